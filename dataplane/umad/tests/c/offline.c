/* What the library says when no plane runs; see tests/offline.rs for how it is started. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/umad.h>

#define CHECK(condition)                                                                       \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__,          \
				#condition, errno);                                            \
			return 1;                                                              \
		}                                                                              \
	} while (0)

static int devices(void)
{
	char names[4][UMAD_CA_NAME_LEN];
	char path[64];
	umad_ca_t ca;
	umad_port_t port;
	__be64 guids[4];

	CHECK(umad_init() == 0);
	CHECK(umad_get_cas_names(names, 4) == 0);
	CHECK(umad_get_ca(NULL, &ca) == -ENODEV);
	CHECK(umad_get_ca("other_0", &ca) == -ENODEV);
	CHECK(umad_get_port(NULL, 0, &port) == -ENODEV);
	CHECK(umad_get_ca_portguids(NULL, guids, 4) == -ENODEV);
	CHECK(umad_get_issm_path(NULL, 1, path, sizeof(path)) == -ENODEV);
	CHECK(umad_get_ca_device_list() == NULL);
	CHECK(umad_open_port(NULL, 0) == -ENODEV);
	CHECK(errno == ENODEV);
	CHECK(umad_open_port("other_0", 1) == -ENODEV);
	CHECK(umad_close_port(99) == 0);
	CHECK(umad_done() == 0);
	return 0;
}

static int calls_without_a_port(void)
{
	unsigned char umad[64 + 256] = { 0 };
	struct umad_reg_attr attr = { .mgmt_class = 1, .flags = 8 };
	uint8_t oui[3] = { 0, 0x14, 5 };
	uint32_t agent;
	int length = 256;

	CHECK(umad_send(5, 0, umad, 256, 100, 3) == -EIO);
	CHECK(umad_recv(5, umad, &length, 0) < 0);
	CHECK(umad_recv(5, NULL, &length, 0) == -EINVAL);
	CHECK(umad_register(5, 1, 1, 0, NULL) == -EPERM);
	CHECK(umad_register_oui(5, 0x50, 0, oui, NULL) == -EINVAL);
	CHECK(umad_register2(5, &attr, &agent) == EINVAL && attr.flags == UMAD_USER_RMPP);
	CHECK(umad_unregister(5, 0) < 0);
	CHECK(umad_poll(5, 0) < 0);
	CHECK(umad_get_fd(5) < 0);
	return 0;
}

static int device_tree(void)
{
	struct stat st;

	CHECK(open("/sys/class/infiniband_mad/abi_version", O_RDONLY) == -1 && errno == ENOENT);
	CHECK(open("/sys/class/infiniband/mlx5_0/node_type", O_WRONLY) == -1 && errno == EACCES);
	CHECK(open("/dev/infiniband/issm0", O_NONBLOCK) == -1 && errno == ENODEV);
	CHECK(open("/dev/infiniband/umad0", O_RDWR) == -1 && errno == ENXIO);
	CHECK(fopen("/sys/class/infiniband/mlx5_0/fw_ver", "w") == NULL && errno == EACCES);
	CHECK(fopen("/sys//class/infiniband/mlx5_0/fw_ver", "r") == NULL && errno == ENOENT);
	CHECK(opendir("/sys/class/infiniband/") == NULL && errno == ENOENT);
	CHECK(stat("/sys/class/infiniband", &st) == -1 && errno == ENOENT);
	CHECK(lstat("/dev/infiniband", &st) == -1 && errno == ENOENT);
	CHECK(access("/dev/infiniband/umad0", R_OK) == -1 && errno == ENOENT);
	return 0;
}

/* Everything else has to be as it was. */
static int other_files(void)
{
	struct stat st;
	char link[256], name[] = "/tmp/madplane-umad-XXXXXX";
	struct pollfd pollfd = { .events = POLLIN };
	struct timeval now = { 0 };
	fd_set set;
	int ends[2], fd = mkstemp(name);
	DIR *dir;

	CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
	CHECK(stat(name, &st) == 0 && st.st_size == 1);
	CHECK(access(name, R_OK | W_OK) == 0);
	fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
	CHECK(fstatat(AT_FDCWD, name, &st, 0) == 0 && st.st_size == 2);
	CHECK(unlink(name) == 0 && stat(name, &st) == -1 && errno == ENOENT);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777 & ~0022) == 0640);
	CHECK(close(fd) == 0 && unlink(name) == 0);
	dir = opendir("/sys/class");
	CHECK(dir && readdir(dir) && closedir(dir) == 0);
	CHECK(readlink("/proc/self/exe", link, sizeof(link)) > 0);
	CHECK(open("", O_RDONLY) == -1 && errno == ENOENT);
	CHECK(pipe(ends) == 0);
	pollfd.fd = ends[0];
	CHECK(poll(&pollfd, 1, 0) == 0);
	CHECK(write(ends[1], "z", 1) == 1);
	CHECK(poll(&pollfd, 1, -1) == 1 && pollfd.revents == POLLIN);
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	CHECK(select(ends[0] + 1, &set, NULL, NULL, &now) == 1 && FD_ISSET(ends[0], &set));
	return 0;
}

/* The replaced poll has to stay a cancellation point. */
static void *blocked(void *fd)
{
	struct pollfd pollfd = { .fd = *(int *)fd, .events = POLLIN };

	poll(&pollfd, 1, -1);
	return NULL;
}

static int cancellation(void)
{
	int ends[2];
	pthread_t thread;
	void *result;

	CHECK(pipe(ends) == 0);
	CHECK(pthread_create(&thread, NULL, blocked, &ends[0]) == 0);
	usleep(20000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	return 0;
}

int main(void)
{
	/* a watchdog: whatever hangs ends the program */
	alarm(120);
	if (devices() || calls_without_a_port() || device_tree() || other_files() || cancellation())
		return 1;
	puts("ok");
	return 0;
}
