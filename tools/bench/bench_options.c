/* bench_options.c -- rubato-bench's command line. */
#include <stdlib.h>
#include <string.h>

#include "programs/launch.h"
#include "programs/options.h"
#include "tools/bench/bench.h"

const char *const bench_op_names[] = {
	"allreduce", "reduce_scatter", "allgather", "broadcast",  "reduce",
	"alltoall",  "gather",         "scatter",   "allgatherv", "reduce_scatterv",
	"alltoallv", "barrier",        "sendrecv",  NULL
};
const char *const bench_transports[] = { "auto", "shm", "ucx", "tcp", NULL };
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
	"call.\n";

bool bench_op_reduces(enum bench_op op)
{
	return op == BENCH_ALLREDUCE || op == BENCH_REDUCE_SCATTER || op == BENCH_REDUCE ||
	       op == BENCH_REDUCE_SCATTERV;
}

bool bench_op_rooted(enum bench_op op)
{
	return op == BENCH_BROADCAST || op == BENCH_REDUCE || op == BENCH_GATHER ||
	       op == BENCH_SCATTER;
}

bool bench_op_in_place(enum bench_op op)
{
	return op != BENCH_BROADCAST && op != BENCH_BARRIER && op != BENCH_SENDRECV;
}

bool bench_op_uneven(enum bench_op op)
{
	return op == BENCH_ALLGATHERV || op == BENCH_REDUCE_SCATTERV || op == BENCH_ALLTOALLV;
}

bool bench_op_scattered(enum bench_op op)
{
	return bench_op_uneven(op) || op == BENCH_REDUCE_SCATTER || op == BENCH_ALLGATHER ||
	       op == BENCH_ALLTOALL || op == BENCH_GATHER || op == BENCH_SCATTER;
}

static void options_fit(struct bench_options *options)
{
	if (options->end_bytes < options->begin_bytes)
		option_fail(BENCH, "-e is less than -b");
	if (options->step_bytes > 0 && options->factor > 0)
		option_fail(BENCH, "-i or -f, not both");
	if (options->factor == 0)
		options->factor = 4;
	if (options->rank_count > 0 && bench_op_rooted(options->op) &&
	    options->root >= options->rank_count)
		option_fail(BENCH, "-r %u: there are %u ranks", options->root, options->rank_count);
	if (!bench_op_in_place(options->op)) {
		if (!options->places[0])
			option_fail(BENCH,
				    "%s has no in-place form of its own: leave --in-place out",
				    bench_op_names[options->op]);
		options->places[1] = false;
	}
	if (options->op == BENCH_BARRIER)
		options->begin_bytes = options->end_bytes = 0;
	if (options->rank_count > 0 && !options->joined && getenv("RUBATO_RANK") != NULL)
		option_fail(BENCH, "-n inside a job (RUBATO_RANK is set): leave it out to join");
}

/* sendrecv has but one algorithm, and no choice to force. */
static const char *algorithm_fit(enum bench_op op, const char *text)
{
	if (op != BENCH_SENDRECV)
		return option_algorithm(BENCH, bench_op_names[op], text, true);
	if (strcmp(text, "auto") != 0 && strcmp(text, "all") != 0)
		option_fail(BENCH, "sendrecv has one algorithm: leave --algorithm out");
	return "auto";
}

struct given { /* Options of which bench_options says more than one word. */
	uint32_t type, reduction, transport, buffers, in_place;
	char algorithm[64];
};

static enum bench_op options_parse(int argc, char **argv, struct bench_options *o,
				   struct given *given)
{
	static const char *const buffers[] = { "plain", "registered", NULL };
	const char *types[RUBATO_TYPE_COUNT + 2] = { NULL };
	const char *operators[RUBATO_OPERATOR_COUNT + 2] = { NULL };
	const struct option rows[] = {
		{ "ranks", 'n', OPTION_U32, &o->rank_count, "N", .min = 1, .max = LAUNCH_RANKS_MAX,
		  .help = "start N ranks here (absent: join the launcher's job)" },
		{ "begin", 'b', OPTION_BYTES, &o->begin_bytes, "SIZE",
		  .help = "smallest size (8)" },
		{ "end", 'e', OPTION_BYTES, &o->end_bytes, "SIZE", .help = "largest size (16M)" },
		{ "step", 'i', OPTION_BYTES, &o->step_bytes, "SIZE", .min = 1,
		  .help = "next size: so much more" },
		{ "factor", 'f', OPTION_U64, &o->factor, "N", .min = 2, .max = 1u << 20,
		  .help = "next size: so many times as large (4)" },
		{ "type", 'd', OPTION_CHOICE, &given->type, "NAME", .names = types,
		  .help = "%s (float32)" },
		{ "op", 'o', OPTION_CHOICE, &given->reduction, "NAME", .names = operators,
		  .help = "%s (sum)" },
		{ "root", 'r', OPTION_U32, &o->root, "RANK", .max = UINT32_MAX - 1,
		  .help = "of broadcast, reduce, gather and scatter (0)" },
		{ "warmup", 'w', OPTION_U32, &o->warmups, "N", .max = 1000000,
		  .help = "calls before the timed ones (5)" },
		{ "iterations", 't', OPTION_U32, &o->iterations, "N", .min = 1, .max = 1000000,
		  .help = "timed calls (20)" },
		{ "algorithm", 0, OPTION_TEXT, given->algorithm, "NAME",
		  .max = sizeof(given->algorithm),
		  .help = "auto, all, or one of those above (auto)" },
		{ "transport", 0, OPTION_CHOICE, &given->transport, "NAME",
		  .names = bench_transports, .help = "%s (auto)" },
		{ "buffers", 0, OPTION_CHOICE, &given->buffers, "KIND", .names = buffers,
		  .help = "%s: any memory, or rubato_alloc's (plain)" },
		{ "in-place", 0, OPTION_U32, &given->in_place, "0|1", .max = 1,
		  .help = "only out of place, or only in place (absent: both)" },
		{ "json", 0, OPTION_TEXT, o->json, "FILE", .max = sizeof(o->json),
		  .help = "results for programs; - is standard output, then without the table" },
		{ "peer", 0, OPTION_OTHER, &o->peers, "LIST", .read = bench_peers_read,
		  .names = peer_names, .help = "other libraries in turn in the same run: %s" },
		{ "explain", 0, OPTION_FLAG, &o->explain,
		  .help = "say for each size which algorithm is chosen, and why" },
		{ "joined", 0, OPTION_FLAG, &o->joined, .help = NULL }, /* See rubato_bench.c. */
		{ 0 },
	};
	const struct options options = {
		.program = BENCH,
		.usage = "OP [options]",
		.about = about,
		.notes = notes,
		.rows = rows,
		.operations = bench_op_names,
		.others = bench_commands,
		.algorithms = true,
	};

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		types[i] = rubato_type_name((rubato_type)i);
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		operators[i] = rubato_operator_name((rubato_operator)i);
	types[RUBATO_TYPE_COUNT] = operators[RUBATO_OPERATOR_COUNT] = "all";
	return (enum bench_op)options_read(&options, argc, argv);
}

void bench_options_read(int argc, char **argv, struct bench_options *options)
{
	struct given given = { RUBATO_FLOAT32, RUBATO_SUM, .in_place = 2, .algorithm = "auto" };

	*options = (struct bench_options) {
		.begin_bytes = 8,
		.end_bytes = 16u << 20,
		.warmups = 5,
		.iterations = 20,
		.argc = argc,
		.argv = argv,
	};
	options->op = options_parse(argc, argv, options, &given);
	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		options->types[i] = given.type == i || given.type == RUBATO_TYPE_COUNT;
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		options->operators[i] =
			given.reduction == i || given.reduction == RUBATO_OPERATOR_COUNT;
	options->transport = bench_transports[given.transport];
	options->registered = given.buffers == 1;
	options->places[0] = given.in_place != 1;
	options->places[1] = given.in_place != 0;
	options_fit(options);
	options->algorithm = algorithm_fit(options->op, given.algorithm);
}
