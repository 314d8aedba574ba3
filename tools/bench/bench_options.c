/* bench_options.c -- rubato-bench's command line. */
#include <stdlib.h>
#include <string.h>

#include "programs/launch/launch.h"
#include "programs/options.h"
#include "tools/bench/bench.h"

#define NCCL_STEP_BYTES (1u << 20) /* Theirs, where neither -i nor -f is given. */

const char *const bench_transports[] = { "auto", "shm", "ucx", "tcp", "verbs", NULL };
const char *const bench_commands[] = { "partial", "lagged", NULL };

static const char about[] =
	"Times OP, and checks every element of every result. Exit status 1: values were wrong.\n";
static const char notes[] =
	"\n"
	"Columns are those of nccl-tests; GB are 10^9 bytes. time is the median over iterations "
	"of\n"
	"the mean over ranks; to the right stand min, percentiles and max over iterations and, as\n"
	"slowest, the median of the largest over ranks; whole is from the first rank's begin to "
	"the\n"
	"last one's end, where all run on one machine: what counts where ranks share cores. "
	"Sizes\n"
	"count all ranks' data for reduce_scatter,\n"
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

/* Buffers may be twice as long, and whole pages: no sum of theirs must wrap around. */
#define SIZE_MOST (UINT64_MAX / 4)

static void options_fit(struct bench_options *options, enum bench_like like)
{
	wire_fit(options);
	if (options->sizes.end_bytes < options->sizes.begin_bytes)
		option_fail(BENCH, "%s",
			    like == LIKE_OSU ? "-m: MAX is less than MIN" : "-e is less than -b");
	if (options->sizes.end_bytes > SIZE_MOST)
		option_fail(BENCH, "%s takes at most %llu bytes", like == LIKE_OSU ? "-m" : "-e",
			    (unsigned long long)SIZE_MOST);
	if (options->step_bytes > 0 && options->factor > 0)
		option_fail(BENCH, "-i or -f, not both");
	if (options->factor == 0 && options->step_bytes == 0 && like == LIKE_NCCL_TESTS)
		options->step_bytes = NCCL_STEP_BYTES;
	if (options->factor == 0)
		options->factor = like == LIKE_OSU ? 2 : 4;
	results_apart(BENCH, options->json, options->csv);
	if (options->rank_count > 0)
		bench_results_check(options->json, options->csv);
	if (options->aggregate > 0 && options->peers.count > 0)
		option_fail(BENCH, "--aggregate: peers make one call at a time");
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
		options->sizes = (struct bench_sizes) { 0 };
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

enum { BUFFERS_PLAIN }; /* The first of buffers[]. */
static const char *const buffers[] = { "plain", "registered", NULL };
static const char *const wires[] = { "f32", "bf16", "int8", NULL }; /* By rubato_wire. */

struct given { /* Options of which bench_options says more than one word. */
	struct bench_options options;
	uint32_t type, reduction, transport, buffers, in_place, wire, like;
	uint32_t check, threads, devices;
	char algorithm[64];
	bool always;
};

#define GIVEN(member) offsetof(struct given, member)
#define AT(member) GIVEN(options.member)

#define AGGREGATE_MAX 256 /* What is known of each takes 160 KiB. */
#define ITERATIONS_MAX 1000000
#define FACTOR_MAX (1u << 20)

static const char *const likes[] = { "rubato", "nccl-tests", "osu", NULL }; /* By bench_like. */
/* By rubato_type, and all. */
static const char *const nccl_types[] = { "float",    "double", "int32", "int64", "half",
					  "bfloat16", "int8",   "int16", "uint8", "uint16",
					  "uint32",   "uint64", "all",   NULL };

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "begin", 'b', OPTION_BYTES, AT(sizes.begin_bytes), "SIZE", .preset = "8",
	  .help = "smallest size" },
	{ "end", 'e', OPTION_BYTES, AT(sizes.end_bytes), "SIZE", .preset = "16M",
	  .help = "largest size" },
	{ "step", 'i', OPTION_BYTES, AT(step_bytes), "SIZE", .min = 1,
	  .help = "each size is this much larger than the one before" },
	{ "factor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = FACTOR_MAX,
	  .help = "each size is this many times the one before (4)" },
	{ "type", 'd', OPTION_CHOICE, GIVEN(type), "NAME", .forms_of = option_types_or_all,
	  .preset = "float32", .help = "%s" },
	{ "op", 'o', OPTION_CHOICE, GIVEN(reduction), "NAME", .forms_of = option_operators_or_all,
	  .preset = "sum", .help = "%s" },
	{ "root", 'r', OPTION_U32, AT(root), "RANK", .max = UINT32_MAX - 1, .preset = "0",
	  .help = "of broadcast, reduce, gather and scatter" },
	{ "warmup", 'w', OPTION_U32, AT(warmups), "N", .max = ITERATIONS_MAX, .preset = "5",
	  .help = "calls before the timed ones" },
	{ "iterations", 't', OPTION_U32, AT(iterations), "N", .min = 1, .max = ITERATIONS_MAX,
	  .preset = "20", .help = "timed calls" },
	{ "aggregate", 'm', OPTION_U32, AT(aggregate), "N", .min = 1, .max = AGGREGATE_MAX,
	  .help = "start N operations, then wait for all; times are of one (absent: blocking "
		  "calls)" },
	{ "check", 'c', OPTION_U32, GIVEN(check), "0|1", .max = 1, .preset = "1",
	  .help = "whether results are looked at" },
	{ 0 },
};

static const struct option nccl_rows[] = {
	{ "nthreads", 't', OPTION_U32, GIVEN(threads), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start so many ranks here, times -g (both absent: join the launcher's job)" },
	{ "ngpus", 'g', OPTION_U32, GIVEN(devices), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start so many ranks here, times -t" },
	{ "minbytes", 'b', OPTION_BYTES, AT(sizes.begin_bytes), "SIZE", .preset = "32M",
	  .help = "smallest size" },
	{ "maxbytes", 'e', OPTION_BYTES, AT(sizes.end_bytes), "SIZE", .preset = "32M",
	  .help = "largest size" },
	{ "stepbytes", 'i', OPTION_BYTES, AT(step_bytes), "SIZE", .min = 1,
	  .help = "each size is this much larger than the one before (1M)" },
	{ "stepfactor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = FACTOR_MAX,
	  .help = "each size is this many times the one before" },
	{ "datatype", 'd', OPTION_CHOICE, GIVEN(type), "NAME", .forms = nccl_types,
	  .preset = "float", .help = "%s" },
	{ "op", 'o', OPTION_CHOICE, GIVEN(reduction), "NAME", .forms_of = option_operators_or_all,
	  .preset = "sum", .help = "%s" },
	{ "root", 'r', OPTION_U32, AT(root), "RANK", .max = UINT32_MAX - 1, .preset = "0",
	  .help = "of broadcast, reduce, gather and scatter" },
	{ "warmup_iters", 'w', OPTION_U32, AT(warmups), "N", .max = ITERATIONS_MAX, .preset = "1",
	  .help = "calls before the timed ones" },
	{ "iters", 'n', OPTION_U32, AT(iterations), "N", .min = 1, .max = ITERATIONS_MAX,
	  .preset = "20", .help = "timed calls" },
	{ "agg_iters", 'm', OPTION_U32, AT(aggregate), "N", .min = 1, .max = AGGREGATE_MAX,
	  .help = "start N operations, then wait for all; times are of one (absent: blocking "
		  "calls)" },
	{ "check", 'c', OPTION_U32, GIVEN(check), "N", .max = ITERATIONS_MAX, .preset = "1",
	  .help = "0: results are not looked at; else all are" },
	{ "local_register", 'R', OPTION_U32, GIVEN(buffers), "0|1|2", .max = 2, .preset = "0",
	  .help = "1 and 2: buffers are rubato_alloc's" },
	{ "output_file", 'J', OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX, .help = "--json" },
	{ 0 },
};

static const struct option osu_rows[] = {
	{ "ranks", 0, OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "message-size", 'm', OPTION_OTHER, AT(sizes), "[MIN:]MAX", .read = bench_sizes_read,
	  .size = sizeof(struct bench_sizes), .preset = "1:1M", .help = "sizes, by factors of 2" },
	{ "type", 'T', OPTION_CHOICE, GIVEN(type), "NAME", .forms_of = option_types_or_all,
	  .preset = "float32", .help = "%s" },
	{ "warmup", 'x', OPTION_U32, AT(warmups), "N", .max = ITERATIONS_MAX, .preset = "200",
	  .help = "calls before the timed ones" },
	{ "iterations", 'i', OPTION_U32, AT(iterations), "N", .min = 1, .max = ITERATIONS_MAX,
	  .preset = "1000", .help = "timed calls" },
	BENCH_OSU_ALWAYS(GIVEN(always)),
	{ 0 },
};

/* Of all families. */
static const struct option common_rows[] = {
	{ "algorithm", 0, OPTION_TEXT, GIVEN(algorithm), "NAME", .max = 64, .preset = "auto",
	  .help = "auto, all, or one of rubato-bench --help" },
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
	{ "csv", 0, OPTION_TEXT, AT(csv), "FILE", .max = PATH_MAX,
	  .help = "the same, a line for each row and place" },
	{ "peer", 0, OPTION_OTHER, AT(peers), "LIST", .read = bench_peers_read, .forms = peer_names,
	  .help = "other libraries in turn in the same run: %s" },
	{ "peers", 0, OPTION_TEXT, AT(peers.place.prefix), "PREFIX", .max = 1000,
	  .help = "those that tools/peers has put there, before the system's" },
	{ "bind", 0, OPTION_CHOICE, AT(peers.bind), "WHEN", .forms = bench_binds, .preset = "auto",
	  .help = "rank i to the i-th core, peers' ranks too: %s (where there are peers and enough "
		  "cores)" },
	{ "explain", 0, OPTION_FLAG, AT(explain),
	  .help = "say for each size which algorithm is chosen, and why" },
	{ "like", 0, OPTION_CHOICE, GIVEN(like), "BENCHMARK", .forms = likes, .preset = "rubato",
	  .help = "letters, names and defaults of options are those of %s: --like osu --help" },
	{ 0 },
};

enum bench_like bench_like(int argc, char *const *argv)
{
	enum bench_like like = LIKE_NONE;

	for (int i = 1; i < argc; i++) {
		const char *value = strncmp(argv[i], "--like=", 7) == 0              ? argv[i] + 7
				    : strcmp(argv[i], "--like") == 0 && i + 1 < argc ? argv[i + 1]
										     : "";

		for (int k = 0; likes[k] != NULL; k++)
			if (strcmp(value, likes[k]) == 0)
				like = (enum bench_like)k;
	}
	return like;
}

bool bench_sizes_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct bench_sizes *sizes = to;
	const char *colon = strchr(text, ':');
	char least[64];

	if (colon == NULL)
		return value_bytes(option, text, &sizes->end_bytes, error);
	(void)snprintf(least, sizeof(least), "%.*s", (int)(colon - text), text);
	return value_bytes(option, least, &sizes->begin_bytes, error) &&
	       (colon[1] == '\0' || value_bytes(option, colon + 1, &sizes->end_bytes, error));
}

void bench_options_read(int argc, char **argv, struct bench_options *o)
{
	static struct given given; /* Large. */
	static const struct option *const families[] = { rows, nccl_rows, osu_rows };
	enum bench_like like = bench_like(argc, argv);
	const struct option_table tables[] = { { .rows = families[like], .to = &given },
					       { .rows = common_rows, .to = &given },
					       { 0 } };
	const struct options options = {
		.program = BENCH,
		.usage = "OP [options]",
		.about = about,
		.notes = notes,
		.tables = tables,
		.operations = operation_names,
		.others = bench_commands,
		.algorithms = like == LIKE_NONE,
	};

	given = (struct given) { .options = { .argc = argc, .argv = argv },
				 .in_place = 2,
				 .check = 1 };
	given.options.op = (enum operation)options_read(&options, argc, argv);
	*o = given.options;
	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		o->types[i] = given.type == i || given.type == RUBATO_TYPE_COUNT;
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		o->operators[i] = given.reduction == i || given.reduction == RUBATO_OPERATOR_COUNT;
	o->transport = bench_transports[given.transport];
	o->wire = (rubato_wire)given.wire;
	o->registered = given.buffers != BUFFERS_PLAIN;
	o->places[0] = given.in_place != 1;
	o->places[1] = given.in_place != 0;
	o->checked = given.check > 0;
	if (given.threads > 0 || given.devices > 0)
		o->rank_count = (given.threads > 0 ? given.threads : 1) *
				(given.devices > 0 ? given.devices : 1);
	if (o->rank_count > LAUNCH_RANKS_MAX)
		option_fail(BENCH, "-t times -g: at most %d ranks", LAUNCH_RANKS_MAX);
	options_fit(o, like);
	o->algorithm = algorithm_fit(o->op, given.algorithm);
	o->bound = bench_bind(&o->peers, o->rank_count);
}
