/*
 * network.c -- what the simulated network and its nodes cost: options, and profiles that hold the
 * same names and values, one a line.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "programs/options.h"
#include "rubato_sim.h"

#define PROFILE_BYTES_MAX 65536

static bool profile_read(const char *option, const char *text, void *to,
			 struct option_error *error);

#define HOUR_NS UINT64_C(3600000000000) /* As rubato_sim.h has it. */

#define AT(member) offsetof(rubato_sim_options, member)

const struct option network_rows[NETWORK_ROWS] = {
	{ "profile", 0, OPTION_OTHER, 0, "FILE", .read = profile_read,
	  .help = "reads the values of the options from here to --turn, a line each, "
		  "without dashes; they stand where this option does" },
	{ "latency", 0, OPTION_TIME, AT(latency_ns), "TIME", .min = 1, .max = HOUR_NS,
	  .preset = "5us", .key = "latency_ns", .help = "one way, between nodes" },
	{ "bandwidth", 0, OPTION_BANDWIDTH, AT(bandwidth), "B", .preset = "12.5GB/s",
	  .key = "bandwidth", .help = "of each card, each way: 10Gbit, 800Mbit, 12.5GB/s" },
	{ "cards", 0, OPTION_U32, AT(costs.cards), "N", .max = 1u << 20, .preset = "0",
	  .key = "cards",
	  .help = "of each node, which its ranks share, message by message; 0: each rank has one" },
	{ "puts", 0, OPTION_U32, AT(costs.puts), "N", .max = 1, .preset = "0", .key = "puts",
	  .help = "1: cards write memory well, so that algorithms by puts may be chosen" },
	{ "gap", 0, OPTION_TIME, AT(costs.gap_ns), "TIME", .max = HOUR_NS, .preset = "0",
	  .key = "gap_ns", .help = "that each message holds a card beside its bytes" },
	{ "burst", 0, OPTION_BYTES, AT(costs.burst_bytes), "SIZE", .preset = "0",
	  .key = "burst_bytes",
	  .help = "that a card lets pass at once when it was idle: a token bucket, each way" },
	{ "send", 0, OPTION_TIME, AT(costs.send_ns), "TIME", .max = HOUR_NS, .preset = "0",
	  .key = "send_ns", .help = "of the processor for each message that leaves its node" },
	{ "receive", 0, OPTION_TIME, AT(costs.receive_ns), "TIME", .max = HOUR_NS, .preset = "0",
	  .key = "receive_ns", .help = "of the processor for each message from another node" },
	{ "stack-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.stack_bandwidth), "B",
	  .key = "stack_bandwidth",
	  .help = "of the processor for their bytes, either way, in its kernel (no bound)" },
	{ "node-latency", 0, OPTION_TIME, AT(node_latency_ns), "TIME", .min = 1, .max = HOUR_NS,
	  .preset = "0.3us", .key = "node_latency_ns", .help = "one way, within a node" },
	{ "node-bandwidth", 0, OPTION_BANDWIDTH, AT(node_bandwidth), "B", .preset = "20GB/s",
	  .key = "node_bandwidth",
	  .help = "of each rank's link within its node, where memory takes no time" },
	{ "node-send", 0, OPTION_TIME, AT(costs.node_send_ns), "TIME", .max = HOUR_NS,
	  .preset = "0", .key = "node_send_ns", .help = "as --send, within a node" },
	{ "node-receive", 0, OPTION_TIME, AT(costs.node_receive_ns), "TIME", .max = HOUR_NS,
	  .preset = "0", .key = "node_receive_ns", .help = "as --receive, within a node" },
	{ "work", 0, OPTION_TIME, AT(costs.work_ns), "TIME", .max = HOUR_NS, .preset = "0",
	  .key = "work_ns", .help = "of the processor for each piece of copying or reducing" },
	{ "memory-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.memory_bandwidth), "B",
	  .key = "memory_bandwidth",
	  .help = "of a node's memory, reads and writes added up, shared evenly (no bound)" },
	{ "core-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.core_bandwidth), "B",
	  .key = "core_bandwidth",
	  .help = "of it for one rank (no bound; without both, memory takes no time)" },
	{ "attach-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.attach_bandwidth), "B",
	  .key = "attach_bandwidth",
	  .help = "of the kernel's copies of long messages within a node (as a core's)" },
	{ "cache", 0, OPTION_BYTES, AT(costs.cache_bytes), "SIZE", .preset = "0",
	  .key = "cache_bytes", .help = "of each core, or each rank; 0: all lies in memory" },
	{ "cached-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.cached_bandwidth), "B",
	  .key = "cached_bandwidth", .help = "of what lies in a core's own cache (no bound)" },
	{ "reduced-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.reduced_bandwidth), "B",
	  .key = "reduced_bandwidth", .help = "of reductions of it (as copies)" },
	{ "outer-cache", 0, OPTION_BYTES, AT(costs.outer_bytes), "SIZE", .preset = "0",
	  .key = "outer_cache_bytes", .help = "of each node, of what goes from the cores' caches" },
	{ "outer-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.outer_bandwidth), "B",
	  .key = "outer_bandwidth", .help = "of what lies there (no bound)" },
	{ "shared-bandwidth", 0, OPTION_BANDWIDTH, AT(costs.shared_bandwidth), "B",
	  .key = "shared_bandwidth", .help = "of what lies in another core's (no bound)" },
	{ "shared-latency", 0, OPTION_TIME, AT(costs.shared_latency_ns), "TIME", .max = HOUR_NS,
	  .preset = "0", .key = "shared_latency_ns", .help = "until the first of that is read" },
	{ "cores", 0, OPTION_U32, AT(costs.cores), "N", .max = 1u << 20, .preset = "0",
	  .key = "cores", .help = "of each node, on which its ranks take turns; 0: each has one" },
	{ "machine", 0, OPTION_U32, AT(costs.machine_nodes), "N", .max = 1u << 20, .preset = "0",
	  .key = "machine_nodes",
	  .help = "so many nodes in a row stand on one machine, and share its --cores; 0: each its "
		  "own" },
	{ "turn", 0, OPTION_TIME, AT(costs.turn_ns), "TIME", .max = HOUR_NS, .preset = "0",
	  .key = "turn_ns", .help = "in which a core goes from one rank to the next" },
	{ 0 },
};

static const struct option *row_find(const char *name)
{
	for (const struct option *row = network_rows; row->name != NULL; row++)
		if (row->read == NULL && strcmp(row->name, name) == 0)
			return row;
	return NULL;
}

/* Writes into the line. Empty ones and those of a comment say nothing. */
static bool line_read(char *line, void *to, struct option_error *error)
{
	static const char blanks[] = " \t\r";
	const char *name, *value;
	const struct option *row;
	char *rest = line;

	line[strcspn(line, "#")] = '\0';
	name = strtok_r(line, blanks, &rest);
	value = strtok_r(NULL, blanks, &rest);
	if (name == NULL)
		return true;
	row = row_find(name);
	if (row == NULL)
		return option_refuse(error, "what is '%s'?", name);
	if (value == NULL || strtok_r(NULL, blanks, &rest) != NULL)
		return option_refuse(error, "%s takes one value", name);
	return option_read(row, value, (char *)to + row->at, error);
}

/* With a 0 at its end. */
static bool file_read(const char *path, char *text, struct option_error *error)
{
	FILE *file = fopen(path, "re");
	size_t bytes = file != NULL ? fread(text, 1, PROFILE_BYTES_MAX, file) : 0;
	bool failed = file == NULL || ferror(file) != 0;

	if (file != NULL)
		(void)fclose(file);
	text[bytes < PROFILE_BYTES_MAX ? bytes : 0] = '\0';
	if (failed)
		return option_refuse(error, "cannot be read");
	return (bytes < PROFILE_BYTES_MAX && strlen(text) == bytes) ||
	       option_refuse(error, "is not a text of less than %d bytes", PROFILE_BYTES_MAX);
}

static bool profile_read(const char *option, const char *text, void *to, struct option_error *error)
{
	static char content[PROFILE_BYTES_MAX]; /* Large. */
	char *rest = content, *line;
	struct option_error why;

	if (!file_read(text, content, &why))
		return option_refuse(error, "%s: '%s' %s", option, text, why.text);
	for (uint32_t number = 1; (line = strsep(&rest, "\n")) != NULL; number++)
		if (!line_read(line, to, &why))
			return option_refuse(error, "%s: '%s', line %u: %s", option, text, number,
					     why.text);
	return true;
}
