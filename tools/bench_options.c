/* bench_options.c -- rubato-bench's command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/launch.h"
#include "tools/options.h"

const char *const bench_op_names[] = { "allreduce", "reduce_scatter", "allgather", "broadcast",
				       "reduce",    "barrier",        "sendrecv",  NULL };
const char *const bench_transports[] = { "auto", "shm", "ucx", "tcp", NULL };

static const char help[] =
	"usage: rubato-bench OP [options]\n"
	"\n"
	"Times OP, one of allreduce, reduce_scatter, allgather, broadcast, reduce, barrier and\n"
	"sendrecv, and checks every element of every result. Exit status 1: values were wrong.\n"
	"\n"
	"  -n, --ranks N        start N ranks here (absent: join the launcher's job)\n"
	"  -b, --begin SIZE     smallest size (8)\n"
	"  -e, --end SIZE       largest size (16M)\n"
	"  -i, --step SIZE      next size: so much more\n"
	"  -f, --factor N       next size: so many times as large (4)\n"
	"  -d, --type NAME      float32, float64, int32, int64 or all (float32)\n"
	"  -o, --op NAME        sum, max, min, avg or all (sum)\n"
	"  -r, --root RANK      of broadcast and reduce (0)\n"
	"  -w, --warmup N       calls before the timed ones (5)\n"
	"  -t, --iterations N   timed calls (20)\n"
	"  --algorithm NAME     auto, all, or one by name (auto)\n"
	"  --transport NAME     auto, shm, ucx, tcp (auto)\n"
	"  --buffers KIND       plain: any memory; registered: rubato_alloc's (plain)\n"
	"  --in-place 0|1       only out of place, or only in place (absent: both)\n"
	"  --json FILE          results for programs; - is standard output, then without the "
	"table\n"
	"  --explain            say for each size which algorithm is chosen, and why\n"
	"  --help, --version\n"
	"\n"
	"Columns are those of nccl-tests; GB are 10^9 bytes. time is the median over iterations "
	"of\n"
	"the mean over ranks; to the right stand min and p99 over iterations and, as slowest, the\n"
	"median of the largest over ranks. Sizes count all ranks' data for reduce_scatter and\n"
	"allgather. The inputs are written anew before each call.\n";

enum {
	OPTION_ALGORITHM = 256,
	OPTION_TRANSPORT,
	OPTION_BUFFERS,
	OPTION_IN_PLACE,
	OPTION_JSON,
	OPTION_EXPLAIN,
	OPTION_JOINED,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option longs[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "begin", required_argument, NULL, 'b' },
	{ "end", required_argument, NULL, 'e' },
	{ "step", required_argument, NULL, 'i' },
	{ "factor", required_argument, NULL, 'f' },
	{ "type", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "iterations", required_argument, NULL, 't' },
	{ "algorithm", required_argument, NULL, OPTION_ALGORITHM },
	{ "transport", required_argument, NULL, OPTION_TRANSPORT },
	{ "buffers", required_argument, NULL, OPTION_BUFFERS },
	{ "in-place", required_argument, NULL, OPTION_IN_PLACE },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "explain", no_argument, NULL, OPTION_EXPLAIN },
	{ "joined", no_argument, NULL, OPTION_JOINED }, /* For ourselves: see rubato_bench.c. */
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

bool bench_op_reduces(enum bench_op op)
{
	return op == BENCH_ALLREDUCE || op == BENCH_REDUCE_SCATTER || op == BENCH_REDUCE;
}

bool bench_op_rooted(enum bench_op op)
{
	return op == BENCH_BROADCAST || op == BENCH_REDUCE;
}

bool bench_op_in_place(enum bench_op op)
{
	return bench_op_reduces(op) || op == BENCH_ALLGATHER;
}

static void types_read(struct bench_options *options, const char *text)
{
	const char *names[RUBATO_TYPE_COUNT + 2] = { NULL };

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		names[i] = rubato_type_name((rubato_type)i);
	names[RUBATO_TYPE_COUNT] = "all";
	uint32_t found = option_choice(BENCH, "-d", text, names);

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		options->types[i] = found == RUBATO_TYPE_COUNT || found == i;
}

static void operators_read(struct bench_options *options, const char *text)
{
	const char *names[RUBATO_OPERATOR_COUNT + 2] = { NULL };

	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		names[i] = rubato_operator_name((rubato_operator)i);
	names[RUBATO_OPERATOR_COUNT] = "all";
	uint32_t found = option_choice(BENCH, "-o", text, names);

	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		options->operators[i] = found == RUBATO_OPERATOR_COUNT || found == i;
}

static uint32_t small(const char *option, uint32_t min, uint32_t max)
{
	return (uint32_t)option_number(BENCH, option, optarg, min, max);
}

static bool option_short(struct bench_options *options, int found)
{
	switch (found) {
	case 'n':
		options->rank_count = small("-n", 1, LAUNCH_RANKS_MAX);
		return true;
	case 'b':
		options->begin_bytes = option_bytes(BENCH, "-b", optarg);
		return true;
	case 'e':
		options->end_bytes = option_bytes(BENCH, "-e", optarg);
		return true;
	case 'i':
		options->step_bytes = option_bytes(BENCH, "-i", optarg);
		if (options->step_bytes == 0)
			option_fail(BENCH, "-i takes a size above 0");
		return true;
	case 'f':
		options->factor = small("-f", 2, 1u << 20);
		return true;
	case 'd':
		types_read(options, optarg);
		return true;
	case 'o':
		operators_read(options, optarg);
		return true;
	case 'r':
		options->root = small("-r", 0, UINT32_MAX - 1);
		return true;
	case 'w':
		options->warmups = small("-w", 0, 1000000);
		return true;
	case 't':
		options->iterations = small("-t", 1, 1000000);
		return true;
	}
	return false;
}

static void option_long(struct bench_options *options, int found)
{
	static const char *const buffers[] = { "plain", "registered", NULL };

	switch (found) {
	case OPTION_ALGORITHM:
		options->algorithm = optarg;
		break;
	case OPTION_TRANSPORT:
		options->transport = bench_transports[option_choice(BENCH, "--transport", optarg,
								    bench_transports)];
		break;
	case OPTION_BUFFERS:
		options->registered = option_choice(BENCH, "--buffers", optarg, buffers) == 1;
		break;
	case OPTION_IN_PLACE:
		options->places[1] = small("--in-place", 0, 1) == 1;
		options->places[0] = !options->places[1];
		break;
	case OPTION_JSON:
		options->json = optarg;
		break;
	case OPTION_EXPLAIN:
		options->explain = true;
		break;
	case OPTION_JOINED:
		options->joined = true;
		break;
	case OPTION_VERSION:
		(void)printf("rubato-bench %s\n", rubato_version());
		exit(EXIT_SUCCESS);
	default:
		(void)fputs(help, stdout);
		exit(EXIT_SUCCESS);
	}
}

static void algorithm_check(struct bench_options *options)
{
	const char *op = bench_op_names[options->op], *name;
	char all[256] = "auto, all";

	if (options->op == BENCH_SENDRECV && strcmp(options->algorithm, "all") == 0)
		options->algorithm = "auto"; /* There is but one, and no choice to force. */
	if (options->op == BENCH_SENDRECV && strcmp(options->algorithm, "auto") != 0)
		option_fail(BENCH, "sendrecv has one algorithm: leave --algorithm out");
	if (strcmp(options->algorithm, "auto") == 0 || strcmp(options->algorithm, "all") == 0)
		return;
	for (uint32_t i = 0; (name = rubato_algorithm_name(op, i)) != NULL; i++) {
		size_t used = strlen(all);

		if (strcmp(options->algorithm, name) == 0)
			return;
		(void)snprintf(all + used, sizeof(all) - used, ", %s", name);
	}
	option_fail(BENCH, "--algorithm of %s takes one of %s, not '%s'", op, all,
		    options->algorithm);
}

static void options_fit(struct bench_options *options, int argc, char **argv)
{
	if (optind == argc)
		option_fail(BENCH, "OP is missing, such as allreduce; --help lists them");
	options->op = (enum bench_op)option_choice(BENCH, "OP", argv[optind], bench_op_names);
	if (optind + 1 < argc)
		option_fail(BENCH, "one OP only: what is '%s'?", argv[optind + 1]);
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
	algorithm_check(options);
}

void bench_options_read(int argc, char **argv, struct bench_options *options)
{
	char **words =
		calloc((size_t)argc + 1, sizeof(*words)); /* getopt sorts what it is given. */
	int found;

	if (words == NULL)
		option_fail(BENCH, "out of memory");
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	*options = (struct bench_options) {
		.begin_bytes = 8,
		.end_bytes = 16u << 20,
		.warmups = 5,
		.iterations = 20,
		.algorithm = "auto",
		.transport = "auto",
		.places = { true, true },
		.argc = argc,
		.argv = argv,
		.words = words,
	};
	options->types[RUBATO_FLOAT32] = true;
	options->operators[RUBATO_SUM] = true;
	while ((found = option_next(BENCH, argc, words, ":n:b:e:i:f:d:o:r:w:t:", longs)) != -1)
		if (!option_short(options, found))
			option_long(options, found);
	options_fit(options, argc, words);
}
