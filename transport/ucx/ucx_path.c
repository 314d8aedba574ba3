/*
 * ucx_path.c -- which devices carry a peer's data, as UCX says it.
 *
 * Not every version can be asked, but each prints it: a line for each lane of a connection, with
 * the transport and the device of the lane. What is printed is for people and may change: of a
 * line that looks otherwise nothing is said, and nothing else depends on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/ucx/ucx.h"

#define LOGGED_PEERS 32u
#define NAME_BYTES_MAX 80

/* "lane[0]:  5:rc_verbs/mlx5_0:1.0 md[2] ..." gives rc_verbs/mlx5_0:1; 0: not such a line. */
static size_t lane_name(const char *line, const char *end, const char **name)
{
	static const char lane[] = "lane[";
	const char *at = strstr(line, lane);
	size_t bytes;

	if (at == NULL || at >= end)
		return 0;
	at += sizeof(lane) - 1;
	at += strspn(at, "0123456789");
	if (strncmp(at, "]:", 2) != 0)
		return 0;
	at += 2;
	at += strspn(at, " ");
	at += strspn(at, "0123456789");
	if (*at++ != ':')
		return 0;
	bytes = strcspn(at, " \n");
	/* The path of the device, where it has several; behind the name, as in eth0.100.0 too. */
	if (bytes > 2 && at[bytes - 2] == '.' && at[bytes - 1] >= '0' && at[bytes - 1] <= '9')
		bytes -= 2;
	*name = at;
	return memchr(at, '/', bytes) != NULL && bytes < NAME_BYTES_MAX ? bytes : 0;
}

/* Whether the list has that name already. */
static bool is_listed(const char *list, const char *name, size_t bytes)
{
	for (const char *at = list; *at != '\0';) {
		size_t there = strcspn(at, ",");

		if (there == bytes && memcmp(at, name, bytes) == 0)
			return true;
		at += there;
		at += strspn(at, ", ");
	}
	return false;
}

bool rb_ucx_lanes_read(const char *printed, char *text, size_t text_bytes)
{
	size_t at = 0;

	text[0] = '\0';
	for (const char *line = printed; *line != '\0';) {
		const char *end = line + strcspn(line, "\n"), *name;
		size_t bytes = lane_name(line, end, &name);

		if (bytes > 0 && !is_listed(text, name, bytes) && at + bytes + 3 < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%.*s",
					       at > 0 ? ", " : "", (int)bytes, name);
		line = *end == '\0' ? end : end + 1;
	}
	return at > 0;
}

void rb_ucx_path(struct rb_endpoint *ep, uint32_t peer, char *text, size_t text_bytes)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	char *printed = NULL;
	size_t printed_bytes = 0;
	FILE *memory;

	size_t at = rb_ucx_device_path(ux, text, text_bytes);

	if (ux->peers[peer].ucp == NULL)
		return;
	memory = open_memstream(&printed, &printed_bytes);
	if (memory == NULL)
		return;
	ux->api.ucp_ep_print_info(ux->peers[peer].ucp, memory);
	if (fclose(memory) == 0)
		(void)rb_ucx_lanes_read(printed, text + at, text_bytes - at);
	free(printed);
}

void rb_ucx_paths_log(struct rb_ucx *ux)
{
	enum rb_log_level level = ux->base.rank_count <= LOGGED_PEERS ? RB_LOG_INFO : RB_LOG_DEBUG;
	char text[160];

	if (!rb_log_enabled(level))
		return;
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		if (!ux->peers[r].used || r == ux->base.rank)
			continue;
		rb_ucx_path(&ux->base, r, text, sizeof(text));
		rb_log_line(level, "UCX: rank %u by %s", r,
			    text[0] != '\0' ? text : "what it does not say");
	}
}
