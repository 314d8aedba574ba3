/* bench_options.c -- rubato-bench's command line. */
#include <stdlib.h>
#include <string.h>

#include "programs/launch/launch.h"
#include "programs/options.h"
#include "tools/bench/bench.h"

const char *const bench_transports[] = { "auto", "shm", "ucx", "tcp", "verbs", NULL };
const char *const bench_commands[] = { "partial", "lagged", NULL };

static const char about[] =
	"Times OP, and checks every element of every result. Exit status 1: values were wrong.\n";
static const char notes[] =
	"\n"
	"Columns are those of nccl-tests; GB are 10^9 bytes. time is the median over iterations "
	"of\n"
	"the mean over ranks; to the right stand min and p99 over iterations and, as slowest, the\n"
	"median of the largest over ranks. Sizes count all ranks' data for reduce_scatter,\n"
	"allgather, gather, scatter and what a rank sends for alltoall; count is one rank's part.\n"
	"In the v-variants rank a sends rank b 1, 1/2, 2, 0 or 3/2 times count elements, by (a + "
	"b)\n"
	"mod 5 (allgatherv, reduce_scatterv: a = 0). The inputs are written anew before each "
	"call.\n"
	"A peer's row ends with our time over its: the ratio of the medians, out of place and in\n"
	"place, and in brackets its 95 % interval, a bootstrap over 16 turns of each.\n"
	"\n"
	"rubato-bench --suite DIR runs a grid, and writes tables and plots: --suite --help.\n"
	"rubato-bench --overlap OP [-n N] measures how much of it hides behind computation: "
	"--overlap --help.\n"
	"rubato-bench --tune FILE [-n N] writes a profile of links and memory: --tune --help.\n";

/* What can travel in fewer bits. */
static void wire_fit(const struct bench_options *options)
{
	if (options->wire == RUBATO_WIRE_SAME)
		return;
	if (options->op != OP_ALLREDUCE && options->op != OP_REDUCE_SCATTER)
		option_fail(BENCH, "--wire is of allreduce and reduce_scatter");
	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		if (options->types[i] && i != RUBATO_FLOAT32)
			option_fail(BENCH, "--wire is of float32: -d float32");
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		if (options->operators[i] && i != RUBATO_SUM && i != RUBATO_AVG)
			option_fail(BENCH, "--wire is of sums and averages: -o sum or avg");
}

static void options_fit(struct bench_options *options)
{
	wire_fit(options);
	if (options->end_bytes < options->begin_bytes)
		option_fail(BENCH, "-e is less than -b");
	if (options->step_bytes > 0 && options->factor > 0)
		option_fail(BENCH, "-i or -f, not both");
	if (options->factor == 0)
		options->factor = 4;
	if (options->rank_count > 0 && operation_rooted(options->op) &&
	    options->root >= options->rank_count)
		option_fail(BENCH, "-r %u: there are %u ranks", options->root, options->rank_count);
	if (!operation_in_place(options->op)) {
		if (!options->places[0])
			option_fail(BENCH,
				    "%s has no in-place form of its own: leave --in-place out",
				    operation_names[options->op]);
		options->places[1] = false;
	}
	if (options->op == OP_BARRIER)
		options->begin_bytes = options->end_bytes = 0;
}

/* sendrecv has but one algorithm, and no choice to force. */
static const char *algorithm_fit(enum operation op, const char *text)
{
	if (op != OP_SENDRECV)
		return option_algorithm(BENCH, operation_names[op], text, true);
	if (strcmp(text, "auto") != 0 && strcmp(text, "all") != 0)
		option_fail(BENCH, "sendrecv has one algorithm: leave --algorithm out");
	return "auto";
}

enum { BUFFERS_PLAIN, BUFFERS_REGISTERED };
static const char *const buffers[] = { "plain", "registered", NULL };
static const char *const wires[] = { "f32", "bf16", "int8", NULL }; /* By rubato_wire. */

struct given { /* Options of which bench_options says more than one word. */
	struct bench_options options;
	uint32_t type, reduction, transport, buffers, in_place, wire;
	char algorithm[64];
};

#define GIVEN(member) offsetof(struct given, member)
#define AT(member) GIVEN(options.member)

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "begin", 'b', OPTION_BYTES, AT(begin_bytes), "SIZE", .preset = "8",
	  .help = "smallest size" },
	{ "end", 'e', OPTION_BYTES, AT(end_bytes), "SIZE", .preset = "16M",
	  .help = "largest size" },
	{ "step", 'i', OPTION_BYTES, AT(step_bytes), "SIZE", .min = 1,
	  .help = "each size is this much larger than the one before" },
	{ "factor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = 1u << 20,
	  .help = "each size is this many times the one before (4)" },
	{ "type", 'd', OPTION_CHOICE, GIVEN(type), "NAME", .forms_of = option_types_or_all,
	  .preset = "float32", .help = "%s" },
	{ "op", 'o', OPTION_CHOICE, GIVEN(reduction), "NAME", .forms_of = option_operators_or_all,
	  .preset = "sum", .help = "%s" },
	{ "root", 'r', OPTION_U32, AT(root), "RANK", .max = UINT32_MAX - 1, .preset = "0",
	  .help = "of broadcast, reduce, gather and scatter" },
	{ "warmup", 'w', OPTION_U32, AT(warmups), "N", .max = 1000000, .preset = "5",
	  .help = "calls before the timed ones" },
	{ "iterations", 't', OPTION_U32, AT(iterations), "N", .min = 1, .max = 1000000,
	  .preset = "20", .help = "timed calls" },
	{ "algorithm", 0, OPTION_TEXT, GIVEN(algorithm), "NAME", .max = 64, .preset = "auto",
	  .help = "auto, all, or one of those above" },
	{ "transport", 0, OPTION_CHOICE, GIVEN(transport), "NAME", .forms = bench_transports,
	  .preset = "auto", .help = "%s" },
	{ "buffers", 0, OPTION_CHOICE, GIVEN(buffers), "KIND", .forms = buffers, .preset = "plain",
	  .help = "%s: any memory, or rubato_alloc's" },
	{ "in-place", 0, OPTION_U32, GIVEN(in_place), "0|1", .max = 1,
	  .help = "only out of place, or only in place (absent: both)" },
	{ "wire", 0, OPTION_CHOICE, GIVEN(wire), "TYPE", .forms = wires, .preset = "f32",
	  .help = "sums and averages of float32 travel as %s" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "results for programs; - is standard output, then without the table" },
	{ "peer", 0, OPTION_OTHER, AT(peers), "LIST", .read = bench_peers_read, .forms = peer_names,
	  .help = "other libraries in turn in the same run: %s" },
	{ "peers", 0, OPTION_TEXT, AT(peers.place.prefix), "PREFIX", .max = 1000,
	  .help = "those that tools/peers has put there, before the system's" },
	{ "bind", 0, OPTION_CHOICE, AT(peers.bind), "WHEN", .forms = bench_binds, .preset = "auto",
	  .help = "rank i to the i-th core, peers' ranks too: %s (where there are peers and enough "
		  "cores)" },
	{ "explain", 0, OPTION_FLAG, AT(explain),
	  .help = "say for each size which algorithm is chosen, and why" },
	{ 0 },
};

void bench_options_read(int argc, char **argv, struct bench_options *o)
{
	static struct given given; /* Large. */
	const struct option_table tables[] = { { .rows = rows, .to = &given }, { 0 } };
	const struct options options = {
		.program = BENCH,
		.usage = "OP [options]",
		.about = about,
		.notes = notes,
		.tables = tables,
		.operations = operation_names,
		.others = bench_commands,
		.algorithms = true,
	};

	given = (struct given) { .options = { .argc = argc, .argv = argv }, .in_place = 2 };
	given.options.op = (enum operation)options_read(&options, argc, argv);
	*o = given.options;
	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		o->types[i] = given.type == i || given.type == RUBATO_TYPE_COUNT;
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		o->operators[i] = given.reduction == i || given.reduction == RUBATO_OPERATOR_COUNT;
	o->transport = bench_transports[given.transport];
	o->wire = (rubato_wire)given.wire;
	o->registered = given.buffers == BUFFERS_REGISTERED;
	o->places[0] = given.in_place != 1;
	o->places[1] = given.in_place != 0;
	options_fit(o);
	o->algorithm = algorithm_fit(o->op, given.algorithm);
	o->bound = bench_bind(&o->peers, o->rank_count);
}
