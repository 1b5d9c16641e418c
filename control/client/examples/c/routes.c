/* Shows the routes of a plane, and pins one.
 *
 *	cc routes.c -o routes -lmadctl
 *	./routes PLANE                       what there is, also of a dead plane
 *	./routes PLANE 0x11 0x22 1,2,3       pins what LID 0x11 sends to LID 0x22, and returns when every worker has it
 */
#include <madctl.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, int result)
{
	fprintf(stderr, "routes: %s: %s (%s)\n", what, madctl_last_error(), strerror(-result));
	return 1;
}

static int show(const madctl *plane)
{
	struct madctl_plane head;
	struct madctl_table table;
	struct madctl_route route;
	struct madctl_percentiles sync;
	struct madctl_error error;
	uint32_t i;
	int result;

	result = madctl_plane(plane, &head);
	if (result < 0)
		return fail("no plane", result);
	printf("plane %s: madplaned %s, pid %u, %s\n", head.name, head.version, head.pid,
	       head.running ? "running" : "not running");

	result = madctl_table(plane, &table);
	if (result < 0)
		return fail("no table", result);
	printf("table: %u routes of %u, generation %" PRIu64 "\n", table.routes, table.capacity, table.generation);
	if (table.damaged)
		printf("damaged and not shown: %u\n", table.damaged);

	for (i = 0; (result = madctl_route_at(plane, i, &route)) > 0; i++) {
		int hop;

		printf("0x%04x -> 0x%04x: ports ", route.slid, route.dlid);
		for (hop = 0; hop < route.path_len; hop++)
			printf("%s%u", hop ? "," : "", route.path[hop]);
		printf(", %" PRIu64 " packets%s\n", route.packets, route.on_broken == MADCTL_DROP ? ", drop" : "");
	}
	if (result < 0)
		return fail("no routes", result);

	result = madctl_latency(plane, MADCTL_ALL, &sync);
	if (result < 0)
		return fail("no latency", result);
	printf("hw_sync_latency: %" PRIu64 " measured\n", sync.count);

	for (i = 0; (result = madctl_error_at(plane, i, &error)) > 0; i++)
		printf("error: %" PRIu64 " times: %s\n", error.count, error.text);
	return result < 0 ? fail("no errors", result) : 0;
}

static int pin(const madctl *plane, const char *slid, const char *dlid, const char *ports)
{
	char request[512], reply[1024];
	int result;

	snprintf(request, sizeof(request),
		 "{\"route\": {\"slid\": %lu, \"dlid\": %lu, \"path\": [%s]}, \"replace\": true, \"sync\": true}",
		 strtoul(slid, NULL, 0), strtoul(dlid, NULL, 0), ports);
	result = madctl_call(plane, "routes.add", request, reply, sizeof(reply));
	if (result < 0)
		return fail("not pinned", result);
	printf("pinned: %s\n", reply);
	return 0;
}

int main(int argc, char **argv)
{
	madctl *plane;
	int result;

	if (madctl_abi() != MADCTL_ABI) {
		fprintf(stderr, "routes: built for version %d of the library, this is %u\n", MADCTL_ABI, madctl_abi());
		return 1;
	}
	result = madctl_open(argc > 1 ? argv[1] : NULL, &plane);
	if (result < 0)
		return fail("no plane", result);
	result = argc == 5 ? pin(plane, argv[2], argv[3], argv[4]) : show(plane);
	madctl_close(plane);
	return result;
}
