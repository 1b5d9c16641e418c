/* Everything that can be wrong with the arguments, and a plane that is not there. */
#include "madctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #what, madctl_last_error());       \
			return 1;                                                                                      \
		}                                                                                                      \
	} while (0)

#define LINE_HAS(part) (strstr(madctl_last_error(), part) != NULL && strchr(madctl_last_error(), '\n') == NULL)

int main(void)
{
	madctl *plane = NULL;
	struct madctl_plane head;
	struct madctl_route route;
	struct madctl_counter counter;
	struct madctl_percentiles percentiles;
	char text[64];

	MUST(madctl_abi() == MADCTL_ABI);
	MUST(*madctl_last_error() == 0);
	MUST(madctl_open("../x", &plane) == -EINVAL && LINE_HAS("no name for a plane"));
	MUST(madctl_open("\xff", &plane) == -EINVAL && LINE_HAS("not UTF-8"));
	MUST(madctl_open("bed", NULL) == -EINVAL && LINE_HAS("null"));
	MUST(madctl_open("bed", &plane) == 0 && plane != NULL);

	MUST(madctl_plane(NULL, &head) == -EINVAL && LINE_HAS("handle is null"));
	MUST(madctl_plane(plane, &head) == -ENODEV && LINE_HAS("plane bed is not running"));
	MUST(madctl_worker_at(plane, 0, NULL) == -ENODEV);
	MUST(madctl_route_at(plane, 0, &route) == -ENOENT && LINE_HAS("no route table"));
	MUST(madctl_error_at(plane, 0, NULL) == -ENODEV);
	MUST(madctl_counter_at(plane, -7, 0, &counter) == -EINVAL && LINE_HAS("no worker -7"));
	MUST(madctl_latency(plane, MADCTL_ALL, &percentiles) == -ENODEV);
	MUST(madctl_show(plane, "rotes", text, sizeof(text)) == -EINVAL && LINE_HAS("did you mean routes?"));
	MUST(madctl_show(plane, NULL, text, sizeof(text)) == -EINVAL);
	MUST(madctl_call(plane, "control.status", NULL, text, sizeof(text)) == -ECONNREFUSED && LINE_HAS("madctld"));
	MUST(madctl_call(plane, "control.status", "{", text, sizeof(text)) == -EINVAL && LINE_HAS("no JSON"));
	MUST(madctl_call(plane, "control.status", NULL, NULL, 1) == -EINVAL && LINE_HAS("buffer is null"));
	MUST(madctl_call(NULL, NULL, NULL, NULL, 0) == -EINVAL);

	/* nothing has been shown yet */
	strcpy(text, "unchanged");
	MUST(madctl_text(plane, NULL, 0) == 0 && strcmp(text, "unchanged") == 0);
	MUST(madctl_text(plane, text, 1) == 0 && text[0] == 0 && text[1] == 'n');

	madctl_close(NULL);
	madctl_close(plane);
	return 0;
}
