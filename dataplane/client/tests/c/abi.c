/* Compiles as C and as C++ only if the header's structs have the layout that the library expects. */
#include "madclient.h"

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif

CHECK(sizeof(struct madclient_info) == 32);
CHECK(offsetof(struct madclient_info, session_id) == 24);
CHECK(sizeof(struct madclient_agent) == 32);
CHECK(offsetof(struct madclient_agent, method_mask) == 8);
CHECK(sizeof(struct madclient_address) == 40);
CHECK(offsetof(struct madclient_address, qp) == 4);
CHECK(offsetof(struct madclient_address, gid) == 24);
CHECK(sizeof(struct madclient_packet) == 56);
CHECK(offsetof(struct madclient_packet, length) == 8);
