/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * madctl: look into a madplane plane, and ask its control daemon for changes. Link with -lmadctl.
 *
 * Looking needs only the plane's read-only segments. It works while both daemons are stopped, hung or dead, and disturbs
 * neither. Changes go through madctld (madctl_call).
 *
 * Results: a negative errno is a failure, and madctl_last_error() says in one line what was the matter; errno itself means
 * nothing afterwards. A null pointer where one is needed gives -EINVAL. Functions called ..._at return 1 when they have filled the
 * struct and 0 when `index` is beyond the last entry. They take a new look at index 0, and all other indices are of that
 * same look, so a loop that counts up from 0 sees one state:
 *
 *	struct madctl_route route;
 *	for (uint32_t i = 0; madctl_route_at(plane, i, &route) > 0; i++)
 *		printf("%u -> %u\n", route.slid, route.dlid);
 *
 * Texts are UTF-8 and end with a zero. Integers are in host order. Fields called reserved are 0. A struct only ever changes
 * together with MADCTL_ABI.
 *
 * Threads: a handle may be used by several threads, whose calls wait for one another; a loop over ..._at belongs to one
 * thread. Only madctl_close must be alone.
 */
#ifndef MADCTL_H
#define MADCTL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the structs below; the library's own is madctl_abi(). */
#define MADCTL_ABI 1

/* madctl_plane.state */
#define MADCTL_STARTING 0
#define MADCTL_READY 1
#define MADCTL_STOPPING 2
#define MADCTL_STOPPED 3  /* shut down in order; what it showed last is still there */
#define MADCTL_DIED 4     /* ended without shutting down; what it showed last is still there */
#define MADCTL_REPLACED 5 /* this is a former plane, another one is starting */
#define MADCTL_UNKNOWN 6

/* madctl_route.on_broken, madctl_session.path_on_broken */
#define MADCTL_FALLBACK 0 /* goes by the forwarding tables when the path is broken */
#define MADCTL_DROP 1     /* is dropped and counted */

/* madctl_session.service_class, madctl_tenant.service_class */
#define MADCTL_BULK 0
#define MADCTL_RESERVED 1 /* served first */

/* madctl_tenant.rights, bits */
#define MADCTL_SMP_GET 1
#define MADCTL_SMP_SET 2

/* madctl_error.source */
#define MADCTL_MADPLANED 0
#define MADCTL_MADCTLD 1

/* For `worker`: all workers together. For madctl_latency: hw_sync_latency. */
#define MADCTL_ALL (-1)

/* madctl_worker.cpu: the worker has no CPU of its own. madctl_route.last_use_age_ns: never used. */
#define MADCTL_NO_CPU UINT32_MAX
#define MADCTL_NEVER UINT64_MAX

/* A plane, looked into; opaque. */
typedef struct madctl madctl;

/* A plane as a whole. */
struct madctl_plane {
	uint32_t state;
	uint32_t running;     /* 1: madplaned runs, and this is what it shows */
	uint32_t pid;         /* of madplaned, also of a dead one */
	uint32_t control_pid; /* of madctld, 0 if it does not run */
	uint32_t workers;
	uint32_t default_port;
	uint32_t session_slots;
	uint32_t huge_pages;
	uint64_t heartbeat_age_ns;
	uint64_t started_unix_ns;
	uint64_t uptime_ns; /* 0 if it does not run */
	uint64_t startup_ns;
	uint64_t nodes;
	uint64_t switches;
	uint64_t links;
	uint64_t sessions;
	uint64_t default_node_guid;
	char name[64];
	char version[72];
	char fabric[264];
};

/* A worker. */
struct madctl_worker {
	uint32_t worker;
	uint32_t cpu;    /* or MADCTL_NO_CPU */
	uint32_t thread; /* thread id */
	uint32_t silent; /* 1: the plane runs but this worker has not shown itself for two seconds */
	uint64_t heartbeat_age_ns;
	uint64_t polls_full;
	uint64_t polls_empty;
	uint64_t longest_cycle_ns;
	uint64_t stalls; /* duty cycles longer than a millisecond */
	uint64_t sessions;
	uint64_t nodes;
	uint64_t applied_generation; /* of the table that it forwards by */
	double busy_share;           /* 0 to 1 */
};

/* A program attached to the plane. */
struct madctl_session {
	uint32_t session;
	uint32_t pid;
	uint32_t uid;
	uint32_t port;
	uint32_t worker;
	uint32_t agents;
	uint32_t tenant; /* number, 0 for none */
	uint32_t service_class;
	uint64_t node_guid;
	uint64_t since_unix_ns;
	uint64_t received;
	uint64_t sent;
	uint64_t dropped;
	uint32_t path_len; /* ports of the path that it is bound to, 0 for none */
	uint32_t path_on_broken;
	uint8_t path[64];
	char tenant_name[40];
	char program[40];
	char node[72];
};

/* A counter. */
struct madctl_counter {
	uint64_t value;
	uint32_t is_drop; /* 1: counts MADs that were dropped for the reason that the name says */
	uint32_t reserved;
	char stage[16]; /* of the pipeline, empty for none */
	char name[64];
};

/* A distinct error. */
struct madctl_error {
	uint64_t count;
	uint64_t first_unix_ns;
	uint64_t last_unix_ns;
	uint32_t source;
	uint32_t reserved;
	char text[232];
};

/* Percentiles, nanoseconds. */
struct madctl_percentiles {
	uint64_t count;
	uint64_t p50_ns;
	uint64_t p90_ns;
	uint64_t p99_ns;
	uint64_t p999_ns;
	uint64_t max_ns;
};

/* The route table as a whole. */
struct madctl_table {
	uint64_t generation;
	uint64_t dr_cache_hit;
	uint64_t dr_cache_miss;
	uint64_t retry_count;
	uint64_t refused;
	uint32_t capacity;
	uint32_t routes;
	uint32_t damaged;    /* routes and tenants that are not believed and not shown */
	uint32_t writer_pid; /* of madctld, also of a dead one */
};

/* A published route. */
struct madctl_route {
	uint16_t slid;
	uint16_t dlid;
	uint16_t p_key;
	uint16_t tenant; /* number, 0 for none */
	uint8_t priority;
	uint8_t on_broken;
	uint8_t path_len; /* 1 to 63 */
	uint8_t reserved;
	uint32_t place;
	uint64_t id;
	uint64_t packets;
	uint64_t bytes;
	uint64_t last_use_age_ns; /* or MADCTL_NEVER */
	uint8_t path[64];         /* egress ports; path_len of them count */
	char tenant_name[32];
};

/* A published tenant. */
struct madctl_tenant {
	uint64_t id;
	uint64_t classes[4]; /* management classes: bit c % 64 of word c / 64 */
	uint64_t nodes[8];
	uint32_t uids[8];
	uint32_t gids[8];
	uint16_t p_keys[32]; /* with membership bit 0x8000 */
	uint8_t prefixes[4][16]; /* length, then ports */
	uint32_t number;
	uint32_t rate; /* MADs a second, 0 for no limit */
	uint32_t burst;
	uint32_t routes;
	uint32_t sessions;
	uint8_t rights;
	uint8_t service_class;
	uint8_t p_key_count;
	uint8_t uid_count;
	uint8_t gid_count;
	uint8_t node_count;
	uint8_t prefix_count;
	uint8_t reserved[5];
	char name[32];
};

/* MADCTL_ABI of the library. */
uint32_t madctl_abi(void);

/* One line about the last failure of this thread; empty if there was none. Valid until this thread's next call. */
const char *madctl_last_error(void);

/* Makes a handle for the plane called `plane` (NULL or "": MADPLANE_NAME, else "default"). The plane need not be there.
 * -EINVAL: that is no name. */
int madctl_open(const char *plane, madctl **out);

/* Frees a handle. NULL is ignored. No other thread may be inside a call. */
void madctl_close(madctl *plane);

/* All functions that look: -ENODEV: there is no such plane, and there was none. -ENOENT: there is no route table. -EAGAIN:
 * it is just being made, or changes too fast. -EOPNOTSUPP: it is of another layout version. -EPROTO: it is damaged. */

int madctl_plane(const madctl *plane, struct madctl_plane *out);
int madctl_worker_at(const madctl *plane, uint32_t index, struct madctl_worker *out);
int madctl_session_at(const madctl *plane, uint32_t index, struct madctl_session *out);

/* Counters of one worker, or sums with MADCTL_ALL; also those that are zero, always in the same order. */
int madctl_counter_at(const madctl *plane, int32_t worker, uint32_t index, struct madctl_counter *out);

/* The distinct error logs of both daemons. */
int madctl_error_at(const madctl *plane, uint32_t index, struct madctl_error *out);

/* With MADCTL_ALL from publication of routes until every worker had them, else duty cycles of a worker that found work.
 * Returns 0; -EINVAL: no such worker. */
int madctl_latency(const madctl *plane, int32_t worker, struct madctl_percentiles *out);

int madctl_table(const madctl *plane, struct madctl_table *out);

/* Published routes, sorted by the two LIDs; all of one generation. */
int madctl_route_at(const madctl *plane, uint32_t index, struct madctl_route *out);

/* Published tenants, by number; all of one generation. */
int madctl_tenant_at(const madctl *plane, uint32_t index, struct madctl_tenant *out);

/* Writes what `noun` shows as JSON, as `madctl --format json` does, but for what only a living madctld can tell: "status", "workers", "sessions", "counters", "errors",
 * "latency", "links", "devices", "routes", "tenants", "check". Returns its length; see madctl_call about the buffer. -EINVAL: no such noun. */
int madctl_show(const madctl *plane, const char *noun, char *buffer, size_t size);

/* Asks madctld for `cmd` ("routes.add", "links.down", ...; `args_json` is a JSON object, or NULL) and writes the result as
 * JSON. Waits for at most 12 seconds.
 *
 * Returns the length of the text without its zero, as snprintf does: if that is not below `size` the text was cut, and
 * madctl_text gives it whole. `buffer` may be NULL if `size` is 0.
 *
 * -EREMOTEIO: madctld refused, nothing was changed. -ECONNREFUSED: madctld does not run. -EACCES: no permission to talk to
 * it. -ETIMEDOUT, -EPROTO: no answer; it may have been done. -EINVAL: that is no JSON. */
int madctl_call(const madctl *plane, const char *cmd, const char *args_json, char *buffer, size_t size);

/* Writes the text of the last madctl_show or madctl_call of this handle again; the same result. */
int madctl_text(const madctl *plane, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
