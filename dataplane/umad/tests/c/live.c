/* What a program sees while a plane runs; tests/support/plane.rs is that plane. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/umad.h>
#include <infiniband/umad_sm.h>

#define NODE_GUID 0x0002c90300000010ULL
#define SILENT 0xff01

#define CHECK(condition)                                                                       \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__,          \
				#condition, errno);                                            \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

struct packet {
	ib_user_mad_t header;
	struct umad_smp smp;
};

static void request(struct packet *packet, uint8_t mgmt_class, uint16_t attribute, uint64_t tid)
{
	memset(packet, 0, sizeof(*packet));
	packet->smp.base_version = 1;
	packet->smp.mgmt_class = mgmt_class;
	packet->smp.class_version = 1;
	packet->smp.method = UMAD_METHOD_GET;
	packet->smp.tid = htobe64(tid);
	packet->smp.attr_id = htobe16(attribute);
	packet->smp.dr_slid = packet->smp.dr_dlid = 0xffff;
	umad_set_addr(packet, 0xffff, 0, 0, 0);
}

static void devices(void)
{
	char names[3][UMAD_CA_NAME_LEN];
	char path[64] = "", shorter[6];
	umad_ca_t ca;
	umad_port_t port;
	__be64 guids[3];
	struct umad_device_node *list;

	CHECK(umad_get_cas_names(names, 3) == 1 && strcmp(names[0], "mlx5_0") == 0);
	CHECK(umad_get_ca(NULL, &ca) == 0);
	CHECK(strcmp(ca.ca_name, "mlx5_0") == 0 && ca.numports == 2 && ca.node_type == 1);
	CHECK(be64toh(ca.node_guid) == NODE_GUID && be64toh(ca.system_guid) == NODE_GUID + 3);
	CHECK(ca.ports[0] == NULL && ca.ports[1] && ca.ports[2] && ca.ports[3] == NULL);
	CHECK(be64toh(ca.ports[1]->port_guid) == NODE_GUID + 1);
	CHECK(be64toh(ca.ports[2]->port_guid) == NODE_GUID + 2);
	CHECK(ca.ports[1]->pkeys_size == 40 && ca.ports[1]->pkeys[0] == 0xffff);
	CHECK(ca.ports[1]->pkeys[32] == 1 && ca.ports[1]->pkeys[33] == 0);
	CHECK(umad_release_ca(&ca) == 0);

	CHECK(umad_get_port("mlx5_0", 0, &port) == 0 && port.portnum == 2);
	CHECK(port.base_lid == 0x12 && port.state == 4 && port.rate == 100);
	CHECK(be32toh(port.capmask) == 0x02514868);
	CHECK(be64toh(port.gid_prefix) == 0xfe80000000000000ULL);
	CHECK(strcmp(port.link_layer, "InfiniBand") == 0);
	CHECK(umad_release_port(&port) == 0);
	CHECK(umad_get_port("mlx5_0", 3, &port) == -ENODEV);
	CHECK(umad_get_port("mlx5_1", 1, &port) == -ENODEV);

	CHECK(umad_get_ca_portguids(NULL, guids, 2) == -ENOMEM);
	CHECK(umad_get_ca_portguids(NULL, NULL, 0) == 0);
	CHECK(umad_get_ca_portguids(NULL, guids, 3) == 3);
	CHECK(guids[0] == 0 && be64toh(guids[2]) == NODE_GUID + 2);

	CHECK(umad_get_issm_path(NULL, 2, path, sizeof(path)) == 0);
	CHECK(strcmp(path, "/dev/infiniband/issm1") == 0);
	CHECK(umad_get_issm_path(NULL, 2, shorter, sizeof(shorter)) == 0);
	CHECK(strcmp(shorter, "/dev/") == 0);

	list = umad_get_ca_device_list();
	CHECK(list && list->next == NULL && strcmp(list->ca_name, "mlx5_0") == 0);
	CHECK(umad_sort_ca_device_list(&list, 1) == 0);
	umad_free_ca_device_list(list);
}

static int open_with_agents(int *directed, int *lid_routed)
{
	int port = umad_open_port("mlx5_0", 1);
	int directed_agent, lid_agent;

	CHECK(port >= 0);
	directed_agent = umad_register(port, UMAD_CLASS_SUBN_DIRECTED_ROUTE, 1, 0, NULL);
	lid_agent = umad_register(port, UMAD_CLASS_SUBN_LID_ROUTED, 1, 0, NULL);
	CHECK(directed_agent == 0 && lid_agent == 1);
	if (directed)
		*directed = directed_agent;
	if (lid_routed)
		*lid_routed = lid_agent;
	return port;
}

static void registration(void)
{
	struct umad_reg_attr attr = { .mgmt_class = 4, .mgmt_class_version = 1 };
	uint8_t oui[3] = { 0, 0x14, 5 }, no_oui[3] = { 0 };
	uint32_t id = 77;
	int port = umad_open_port(NULL, 1);

	CHECK(port >= 0 && umad_get_fd(port) == port);
	CHECK(umad_register(port, 4, 1, 0, NULL) == -EPERM);
	CHECK(umad_register2(port, &attr, &id) == EINVAL && id == 77);
	CHECK(umad_register(port, 5, 1, 1, NULL) == -EPERM);
	CHECK(umad_register_oui(port, 0x32, 0, no_oui, NULL) == -EPERM);
	CHECK(umad_register_oui(port, 0x32, 0, oui, NULL) == 0);
	CHECK(umad_register(port, 0x33, 1, 1, NULL) == 1);
	attr.mgmt_class = 3;
	attr.mgmt_class_version = 2;
	attr.flags = UMAD_USER_RMPP;
	attr.rmpp_version = 1;
	CHECK(umad_register2(port, &attr, &id) == 0 && id == 2);
	CHECK(umad_unregister(port, 1) == 0);
	CHECK(umad_unregister(port, 1) == -EINVAL);
	CHECK(umad_register(port, 1, 1, 0, NULL) == 1);
	CHECK(umad_close_port(port) == 0);
	CHECK(umad_register(port, 1, 1, 0, NULL) == -EPERM);
}

static void exchange(void)
{
	struct packet packet;
	int directed, lid_routed, length = 256;
	int port = open_with_agents(&directed, &lid_routed);

	/* nothing there: no wait, and a wait that ends; the length is left alone */
	CHECK(umad_recv(port, &packet, &length, 0) == -EAGAIN && errno == EAGAIN);
	CHECK(umad_recv(port, &packet, &length, 20) == -ETIMEDOUT && length == 256);
	CHECK(umad_poll(port, 0) == -ETIMEDOUT);

	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_SM_ATTR_NODE_INFO, 7);
	CHECK(umad_send(port, directed, &packet, 256, 1000, 0) == 0);
	CHECK(packet.header.agent_id == (uint32_t)directed && packet.header.timeout_ms == 1000);
	CHECK(umad_poll(port, -1) == 0);

	/* too small for a MAD: refused and kept */
	length = 100;
	CHECK(umad_recv(port, &packet, &length, 1000) == -EINVAL);
	length = 256;
	CHECK(umad_recv(port, &packet, &length, 1000) == directed && length == 256);
	CHECK(packet.header.length == 320 && umad_status(&packet) == 0);
	CHECK(packet.smp.method == UMAD_METHOD_GET_RESP);
	CHECK((be64toh(packet.smp.tid) & 0xffffffff) == 7 && be64toh(packet.smp.tid) >> 32 != 0);
	CHECK(packet.header.addr.lid == 0xffff);

	/* OpenSM sends LID-routed SMPs with the agent of the other class: the answer comes to the sender */
	request(&packet, UMAD_CLASS_SUBN_LID_ROUTED, UMAD_SM_ATTR_NODE_DESC, 8);
	CHECK(umad_send(port, directed, &packet, 256, 1000, 0) == 0);
	CHECK(umad_recv(port, &packet, &length, 5000) == directed);
	CHECK(packet.smp.mgmt_class == UMAD_CLASS_SUBN_LID_ROUTED);
	CHECK(strcmp((char *)packet.smp.data, "host-7 HCA-1") == 0);

	/* a request without an answer comes back with its header, once, and its TID is taken until then */
	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, SILENT, 9);
	CHECK(umad_send(port, directed, &packet, 256, 60, 1) == 0);
	CHECK(umad_send(port, directed, &packet, 256, 60, 1) == -EIO && errno == EINVAL);
	memset(&packet, 0xa5, sizeof(packet));
	CHECK(umad_recv(port, &packet, &length, -1) == directed && length == 24);
	CHECK(umad_status(&packet) == ETIMEDOUT && packet.header.length == 88);
	CHECK((be64toh(packet.smp.tid) & 0xffffffff) == 9 && be64toh(packet.smp.tid) >> 32 != 0);
	CHECK(packet.smp.attr_id == htobe16(SILENT));
	length = 256;
	CHECK(umad_recv(port, &packet, &length, 100) == -ETIMEDOUT);

	/* sends that cannot be */
	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_SM_ATTR_NODE_INFO, 10);
	CHECK(umad_send(port, 32, &packet, 256, 10, 0) == -EIO && errno == EINVAL);
	CHECK(umad_send(port, -1, &packet, 256, 10, 0) == -EIO && errno == EINVAL);
	CHECK(umad_send(port, 5, &packet, 256, 10, 0) == -EIO && errno == EIO);
	CHECK(umad_send(port, directed, &packet, 35, 10, 0) == -EIO && errno == EINVAL);
	CHECK(umad_send(port, directed, &packet, -1, 10, 0) == -EIO && errno == EINVAL);
	CHECK(umad_close_port(port) == 0);
}

/* A portid is polled as it is, without umad_get_fd: by poll, by select, by epoll, each on a port of its own. */
static void readiness(void)
{
	struct packet packet;
	int directed, length = 256, how, epoll = epoll_create1(0);

	for (how = 0; how < 4; how++) {
		int port = open_with_agents(&directed, NULL);
		struct pollfd pollfd = { .fd = port, .events = POLLIN };
		struct epoll_event event = { .events = EPOLLIN };
		struct timespec moment = { 0 };
		fd_set set;

		FD_ZERO(&set);
		FD_SET(port, &set);
		if (how == 2)
			CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port, &event) == 0);
		else if (how == 3)
			CHECK(pselect(port + 1, &set, NULL, NULL, &moment, NULL) == 0);
		else
			CHECK(poll(&pollfd, 1, 0) == 0);
		/* an answer, and then a timeout, make it readable */
		for (int attribute = UMAD_SM_ATTR_NODE_INFO;; attribute = SILENT) {
			request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, attribute, 1);
			CHECK(umad_send(port, directed, &packet, 256, 50, 0) == 0);
			FD_ZERO(&set);
			FD_SET(port, &set);
			if (how == 0)
				CHECK(poll(&pollfd, 1, 20000) == 1 && pollfd.revents == POLLIN);
			else if (how == 1 || how == 3)
				CHECK(select(port + 1, &set, NULL, NULL, NULL) == 1);
			else
				CHECK(epoll_wait(epoll, &event, 1, 20000) == 1);
			/* ready may also mean that a timer is due */
			length = 256;
			CHECK(umad_recv(port, &packet, &length, 1000) == directed);
			CHECK(umad_recv(port, &packet, &length, 0) == -EAGAIN);
			CHECK(poll(&pollfd, 1, 0) == 0);
			if (attribute == SILENT)
				break;
		}
		CHECK(umad_close_port(port) == 0);
	}
	close(epoll);
}

static int shared_port;

static void *receiver(void *result)
{
	struct packet packet;
	int length = 256;

	*(int *)result = umad_recv(shared_port, &packet, &length, -1);
	return result;
}

static void threads(void)
{
	struct packet packet;
	pthread_t thread;
	void *joined;
	int directed, result = -1;

	/* one thread waits for ever while another sends */
	shared_port = open_with_agents(&directed, NULL);
	CHECK(pthread_create(&thread, NULL, receiver, &result) == 0);
	usleep(50000);
	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_SM_ATTR_NODE_INFO, 1);
	CHECK(umad_send(shared_port, directed, &packet, 256, 1000, 0) == 0);
	CHECK(pthread_join(thread, &joined) == 0 && joined == &result && result == directed);

	/* OpenSM ends its receiver by cancelling it; the port works afterwards */
	CHECK(pthread_create(&thread, NULL, receiver, &result) == 0);
	usleep(50000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &joined) == 0 && joined == PTHREAD_CANCELED);
	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_SM_ATTR_NODE_INFO, 2);
	CHECK(umad_send(shared_port, directed, &packet, 256, 1000, 0) == 0);
	CHECK(receiver(&result) == &result && result == directed);

	/* closing ends a receive that waits */
	result = 1;
	CHECK(pthread_create(&thread, NULL, receiver, &result) == 0);
	usleep(50000);
	CHECK(umad_close_port(shared_port) == 0);
	CHECK(pthread_join(thread, &joined) == 0 && joined == &result && result < 0);
}

static void sm_bit(void)
{
	umad_port_t port;
	int held = open("/dev/infiniband/issm0", O_NONBLOCK), end;

	CHECK(held >= 0);
	CHECK(umad_get_port(NULL, 1, &port) == 0 && (be32toh(port.capmask) & 2));
	umad_release_port(&port);
	CHECK(open("/dev/infiniband/issm0", O_RDONLY | O_NONBLOCK) == -1 && errno == EAGAIN);
	CHECK(open("/dev/infiniband/issm2", O_NONBLOCK) == -1 && errno == ENXIO);
	CHECK(close(held) == 0);
	/* the plane notices in its own time */
	for (end = time(NULL) + 20; (held = open("/dev/infiniband/issm0", O_RDWR | O_NONBLOCK)) < 0;) {
		CHECK(errno == EAGAIN && time(NULL) < end);
		usleep(1000);
	}
	CHECK((fcntl(held, F_GETFD) & FD_CLOEXEC) == 0);
	/* left open: the end of the process releases it */
}

static int gone(void)
{
	struct packet packet;
	int length = 256, port = open_with_agents(NULL, NULL);

	puts("ready");
	fflush(stdout);
	CHECK(umad_recv(port, &packet, &length, -1) == -EIO);
	CHECK(umad_recv(port, &packet, &length, 0) == -EIO);
	request(&packet, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_SM_ATTR_NODE_INFO, 1);
	CHECK(umad_send(port, 0, &packet, 256, 100, 0) == -EIO && errno == EIO);
	CHECK(umad_poll(port, 1000) == -EIO);
	CHECK(umad_close_port(port) == 0);
	CHECK(umad_open_port(NULL, 0) == -ENODEV);
	puts("ok");
	return 0;
}

int main(int argc, char **argv)
{
	/* a watchdog: whatever hangs ends the program */
	alarm(120);
	if (argc > 1 && strcmp(argv[1], "gone") == 0)
		return gone();
	devices();
	registration();
	exchange();
	readiness();
	threads();
	sm_bit();
	puts("ok");
	return 0;
}
