/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * madclient: attach to a running madplane fabric, send and receive management datagrams.
 *
 * Every function returns 0 or a non-negative result on success and a negative errno otherwise; errno itself is not
 * touched. A null pointer where one is needed gives -EINVAL. Integers are in host order; MAD bytes and GIDs in wire order.
 *
 * Threads: one session may be used by several threads, one blocked in madclient_recv while others send. Only
 * madclient_close must be alone.
 *
 * Who makes progress: there is no background thread. Resends, timeouts and RMPP acknowledgements happen inside calls,
 * above all inside madclient_recv.
 */
#ifndef MADCLIENT_H
#define MADCLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Length of a MAD. */
#define MADCLIENT_MAD_LEN 256
/* Agents of a session are numbered from 0 below this. */
#define MADCLIENT_MAX_AGENTS 32
/* madclient_packet.status of a request that got no response: ETIMEDOUT. */
#define MADCLIENT_TIMED_OUT 110

/* madclient_bind_path: drop what cannot follow the path. */
#define MADCLIENT_DROP_BROKEN 1

/* A session; opaque. */
typedef struct madclient madclient;

/* Where a session is attached. */
struct madclient_info {
	uint64_t node_guid;
	uint64_t port_guid;
	uint64_t system_image_guid;
	uint32_t session_id;
	uint8_t port;      /* 0 on a switch */
	uint8_t node_type; /* 1 channel adapter, 2 switch, 3 router */
	uint8_t num_ports;
	uint8_t reserved;
};

/* What an agent wants to be. Zero all bytes first. */
struct madclient_agent {
	uint8_t qpn;             /* 0 for the subnet management classes 0x01 and 0x81, else 1 */
	uint8_t mgmt_class;      /* 0: an agent that only sends */
	uint8_t class_version;   /* 2 for subnet administration, else 1 */
	uint8_t rmpp_version;    /* 1: whole messages; 0: single segments */
	uint32_t oui;            /* vendor classes 0x30 to 0x4f only, low 24 bits */
	uint64_t method_mask[2]; /* requests wanted: bit m % 64 of word m / 64; zero: responses only */
	uint32_t user_rmpp;      /* not 0: single segments although rmpp_version is 1 */
	uint32_t reserved;
};

/* The other side of a MAD. Zero all bytes first. */
struct madclient_address {
	uint16_t lid;
	uint8_t sl;
	uint8_t path_bits;
	uint32_t qp;
	uint32_t q_key;
	uint16_t p_key_index;
	uint8_t grh_present;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t reserved;
	uint32_t flow_label;
	uint8_t gid[16];
};

/* What madclient_recv says about a packet. */
struct madclient_packet {
	uint32_t agent;
	uint32_t status; /* 0, or MADCLIENT_TIMED_OUT */
	uint64_t length; /* 256; 24 with MADCLIENT_TIMED_OUT; more for an RMPP message */
	struct madclient_address address; /* the source; with MADCLIENT_TIMED_OUT the destination */
};

/* Opens a session of the plane called `plane` (NULL or "": "default") at the port that `selector` names: a node GUID or
 * description, optionally with ":PORT"; "device:NAME" or "device:NAME:PORT" for a port of an RDMA device of the plane,
 * "auto:NAME" for that if it works and else the plane's default; NULL or "" is the plane's default port. Writes the handle to
 * `*out`. -ENODEV also for a device that does not work, and the plane says why.
 * -ENODEV: no such plane. -EACCES: no permission. -EOPNOTSUPP: another layout version. Else what the plane said. */
int madclient_open(const char *plane, const char *selector, madclient **out);

/* As madclient_open, as the tenant of the plane called `tenant`. NULL or "" takes what MADPLANE_TENANT says, as
 * madclient_open does; without that the plane chooses by the user. -EACCES: this user may not be that tenant, or the plane
 * has tenants and none, or several, list this user. -ENOENT: no such tenant.
 * Both functions bind the session to the path of MADPLANE_PATH (ports such as "1,2,3"), if that is set. */
int madclient_open_as(const char *plane, const char *selector, const char *tenant, madclient **out);

/* Has receives that begin from now on wait in another way: "spin" never sleeps and keeps a CPU busy, "adaptive" or
 * "adaptive:MICROSECONDS" spins for so long (50) and then sleeps, and does not spin while more threads want to run than there
 * are CPUs, "sleep" sleeps at once; NULL or "" is what MADPLANE_WAIT says, else "adaptive", as without this call.
 * -EINVAL: no such way; nothing changed. */
int madclient_set_wait(const madclient *session, const char *wait);

/* Closes a session and frees it. NULL is ignored. No other thread may be inside a call; see madclient_shutdown. */
void madclient_close(madclient *session);

/* Makes all calls of all threads, blocked ones included, fail with -EIO (registrations: -EPIPE). Free the session with
 * madclient_close afterwards. */
int madclient_shutdown(const madclient *session);

/* Says where a session is attached. */
int madclient_get_info(const madclient *session, struct madclient_info *out);

/* Sends everything that is not a directed route along the path of `count` output ports from now on, the session's own port
 * first; with a count of 0 as everybody does. A MAD whose destination is not where the path ends, or whose path is broken,
 * goes on by LID from there, or is dropped with MADCLIENT_DROP_BROKEN in `flags`.
 * -EINVAL: more than 63 ports, or ports that no cable connects. -EPIPE: the plane is gone. */
int madclient_bind_path(const madclient *session, const uint8_t *ports, size_t count, uint32_t flags);

/* Registers an agent and returns its number, 0 to 31. -EINVAL: class, queue pair, OUI or RMPP do not go together, or
 * another agent has a method of the mask. -EPERM: the session's tenant may not use the class. -ENOMEM: 32 agents. -EPIPE:
 * the plane is gone. */
int madclient_register(const madclient *session, const struct madclient_agent *spec);

/* Removes an agent; its outstanding requests vanish without a report. -EINVAL: no such agent. */
int madclient_unregister(const madclient *session, uint32_t agent);

/* Sends `length` bytes: at least 36; fewer than 256 are padded with zeros; more than 256 for RMPP only (headers once, then
 * all data). The upper half of a request's TID is replaced by the agent's own. With `timeout_ms` the request is sent again
 * `retries` times and then comes back through madclient_recv with MADCLIENT_TIMED_OUT.
 * -EINVAL: length, agent number, or the TID is outstanding. -EIO: agent not registered, or plane gone. -EAGAIN: the plane
 * takes nothing at the moment. -ENOMEM: too many requests outstanding. Nothing was sent then. */
int madclient_send(const madclient *session, uint32_t agent, const struct madclient_address *address, const void *data,
		   size_t length, uint32_t timeout_ms, uint32_t retries);

/* Receives the next packet into `buffer`. `timeout_ms`: negative for ever, 0 not at all. -ETIMEDOUT: nothing came;
 * -EAGAIN the same for 0. -ENOSPC: the buffer is too small, packet->length says what is needed, and the packet stays for
 * the next call. -EIO: the plane is gone. */
int madclient_recv(const madclient *session, struct madclient_packet *packet, void *buffer, size_t size, int timeout_ms);

/* A descriptor for poll, select and epoll, readable when madclient_recv is worth a call. It belongs to the session. It may
 * be readable although nothing can be received: a timer or an RMPP packet needed the call. From the first call of this
 * function on, every receive makes system calls to keep it true. */
int madclient_fd(const madclient *session);

#ifdef __cplusplus
}
#endif

#endif
