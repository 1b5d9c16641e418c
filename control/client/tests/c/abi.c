/* Compiles as C and as C++ only if the header's structs have the layout that the library expects. */
#include "madctl.h"

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif

CHECK(sizeof(struct madctl_plane) == 504);
CHECK(offsetof(struct madctl_plane, default_node_guid) == 96);
CHECK(offsetof(struct madctl_plane, version) == 168);
CHECK(sizeof(struct madctl_worker) == 88);
CHECK(offsetof(struct madctl_worker, busy_share) == 80);
CHECK(sizeof(struct madctl_session) == 296);
CHECK(offsetof(struct madctl_session, path) == 80);
CHECK(offsetof(struct madctl_session, node) == 224);
CHECK(sizeof(struct madctl_counter) == 96);
CHECK(offsetof(struct madctl_counter, name) == 32);
CHECK(sizeof(struct madctl_error) == 264);
CHECK(offsetof(struct madctl_error, text) == 32);
CHECK(sizeof(struct madctl_percentiles) == 48);
CHECK(sizeof(struct madctl_table) == 56);
CHECK(offsetof(struct madctl_table, capacity) == 40);
CHECK(sizeof(struct madctl_route) == 144);
CHECK(offsetof(struct madctl_route, id) == 16);
CHECK(offsetof(struct madctl_route, tenant_name) == 112);
CHECK(sizeof(struct madctl_tenant) == 360);
CHECK(offsetof(struct madctl_tenant, p_keys) == 168);
CHECK(offsetof(struct madctl_tenant, number) == 296);
CHECK(offsetof(struct madctl_tenant, name) == 328);
