/* One request and its response, one timeout, one buffer that is too small. Arguments: none; the plane is "test". */
#include "madclient.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                             \
			return 1;                                                                                      \
		}                                                                                                      \
	} while (0)

int main(void)
{
	madclient *session = NULL;
	struct madclient_agent spec;
	struct madclient_address address;
	struct madclient_packet packet;
	struct madclient_info info;
	struct pollfd ready;
	unsigned char mad[256], answer[256];
	const uint8_t path[64] = {1, 7, 99};

	MUST(madclient_open("test", NULL, NULL) == -EINVAL);
	MUST(madclient_open("nobody", NULL, &session) == -ENODEV);
	MUST(madclient_open("../x", NULL, &session) == -EINVAL);
	MUST(madclient_open_as("test", NULL, "a b", &session) == -EINVAL);
	MUST(madclient_open_as("test", NULL, "closed", &session) == -EACCES);
	MUST(madclient_open_as("test", "", "blue", &session) == 0 && session);
	MUST(madclient_bind_path(session, path, 2, MADCLIENT_DROP_BROKEN) == 0);
	MUST(madclient_bind_path(session, path, 3, 0) == -EINVAL);
	MUST(madclient_bind_path(session, path, 64, 0) == -EINVAL);
	MUST(madclient_bind_path(session, path, 2, 2) == -EINVAL);
	MUST(madclient_bind_path(session, NULL, 1, 0) == -EINVAL);
	MUST(madclient_bind_path(NULL, NULL, 0, 0) == -EINVAL);
	MUST(madclient_bind_path(session, NULL, 0, 0) == 0);
	madclient_close(session);
	MUST(madclient_open("test", "", &session) == 0 && session);
	MUST(madclient_get_info(session, &info) == 0 && info.node_guid == 0x1234 && info.port == 1);
	MUST(madclient_set_wait(session, "spin") == 0);
	MUST(madclient_set_wait(session, "adaptive:20") == 0);
	MUST(madclient_set_wait(session, NULL) == 0);
	MUST(madclient_set_wait(session, "slow") == -EINVAL);
	MUST(madclient_set_wait(session, "adaptive:x") == -EINVAL);
	MUST(madclient_set_wait(NULL, "sleep") == -EINVAL);
	MUST(madclient_set_wait(session, "sleep") == 0);
	memset(&spec, 0, sizeof(spec));
	spec.mgmt_class = spec.class_version = 1;
	MUST(madclient_register(NULL, &spec) == -EINVAL);
	MUST(madclient_register(session, &spec) == 0);
	memset(&address, 0, sizeof(address));
	address.lid = 7;
	memset(mad, 0x5a, sizeof(mad));
	mad[0] = mad[1] = mad[2] = mad[3] = 1;
	MUST(madclient_recv(session, &packet, answer, sizeof(answer), 0) == -EAGAIN);
	MUST(madclient_send(session, 0, &address, mad, sizeof(mad), 5000, 0) == 0);
	MUST(madclient_send(session, 0, &address, mad, 35, 5000, 0) == -EINVAL);
	ready.fd = madclient_fd(session);
	ready.events = POLLIN;
	MUST(poll(&ready, 1, 20000) == 1);
	MUST(madclient_recv(session, &packet, answer, 100, 20000) == -ENOSPC && packet.length == 256);
	MUST(madclient_recv(session, &packet, answer, sizeof(answer), -1) == 0);
	MUST(packet.status == 0 && packet.agent == 0 && answer[3] == 0x81 && answer[12] == 0x5a);
	MUST(poll(&ready, 1, 0) == 0);
	mad[3] = 5; /* the test's plane does not answer traps */
	MUST(madclient_send(session, 0, &address, mad, sizeof(mad), 20, 0) == 0);
	MUST(poll(&ready, 1, 20000) == 1);
	MUST(madclient_recv(session, &packet, answer, sizeof(answer), -1) == 0);
	MUST(packet.status == MADCLIENT_TIMED_OUT && packet.length == 24 && packet.address.lid == 7);
	MUST(madclient_unregister(session, 0) == 0);
	MUST(madclient_unregister(session, 0) == -EINVAL);
	MUST(madclient_shutdown(session) == 0);
	MUST(madclient_recv(session, &packet, answer, sizeof(answer), -1) == -EIO);
	madclient_close(session);
	return 0;
}
