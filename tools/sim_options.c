/* sim_options.c -- rubato-sim's command line. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/sim.h"

const char *const sim_op_names[] = { "allreduce", "reduce_scatter", "allgather", "broadcast",
				     "reduce",    "barrier",        "sendrecv",  NULL };

static const char help[] =
	"usage: rubato-sim OP [options]\n"
	"\n"
	"Runs OP, one of allreduce, reduce_scatter, allgather, broadcast, reduce, barrier and\n"
	"sendrecv, on a simulated cluster, in virtual time, and checks every element of every\n"
	"result. Exit status 1: values were wrong, or a run failed.\n"
	"\n"
	"  -n, --ranks N         ranks (8)\n"
	"  --topology KIND       flat, or nodes:N: N ranks a node, which share memory (flat)\n"
	"  --latency TIME        one way, between nodes (5us)\n"
	"  --bandwidth B         of each rank's link, each way: 10Gbit, 800Mbit, 12.5GB/s "
	"(12.5GB/s)\n"
	"  --jitter SHARE        stretches each latency by up to this share of it (0)\n"
	"  --reorder             messages of one pair may overtake each other\n"
	"  --skew KIND           how late ranks enter: none, linear:T (0 to T by rank), exp:T and\n"
	"                        pareto:T (random with mean T) (none)\n"
	"  --algorithm NAME      auto, or one by name (auto)\n"
	"  -b, --begin SIZE      smallest size (8)\n"
	"  -e, --end SIZE        largest size (1M)\n"
	"  -f, --factor N        next size: so many times as large (4)\n"
	"  -d, --type NAME       float32, float64, int32, int64 (float32)\n"
	"  -o, --op NAME         sum, max, min, avg (sum)\n"
	"  -r, --root RANK       of broadcast and reduce (0)\n"
	"  -t, --iterations N    timed calls (5)\n"
	"  --faults LIST         freeze:RANK@TIME+FOR, crash:RANK@TIME, cut:A-B@TIME+FOR, with\n"
	"                        commas between; times are virtual\n"
	"  --timeout TIME        the ranks' deadline, virtual (60s)\n"
	"  --seed N              of jitter, order and skew (0)\n"
	"  --seeds N             a campaign instead: N seeds from --seed on, each with random "
	"ranks,\n"
	"                        network, sizes, skew and delays, each run twice\n"
	"  --json FILE           results for programs; - is standard output, then without the "
	"table\n"
	"  --help, --version\n"
	"\n"
	"Columns are those of nccl-tests; GB are 10^9 bytes; times are virtual. time is the "
	"median\n"
	"over iterations of the mean over ranks of the time in the call.\n";

enum {
	OPTION_TOPOLOGY = 256,
	OPTION_LATENCY,
	OPTION_BANDWIDTH,
	OPTION_JITTER,
	OPTION_REORDER,
	OPTION_SKEW,
	OPTION_ALGORITHM,
	OPTION_FAULTS,
	OPTION_TIMEOUT,
	OPTION_SEED,
	OPTION_SEEDS,
	OPTION_JSON,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option longs[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "begin", required_argument, NULL, 'b' },
	{ "end", required_argument, NULL, 'e' },
	{ "factor", required_argument, NULL, 'f' },
	{ "type", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "iterations", required_argument, NULL, 't' },
	{ "topology", required_argument, NULL, OPTION_TOPOLOGY },
	{ "latency", required_argument, NULL, OPTION_LATENCY },
	{ "bandwidth", required_argument, NULL, OPTION_BANDWIDTH },
	{ "jitter", required_argument, NULL, OPTION_JITTER },
	{ "reorder", no_argument, NULL, OPTION_REORDER },
	{ "skew", required_argument, NULL, OPTION_SKEW },
	{ "algorithm", required_argument, NULL, OPTION_ALGORITHM },
	{ "faults", required_argument, NULL, OPTION_FAULTS },
	{ "timeout", required_argument, NULL, OPTION_TIMEOUT },
	{ "seed", required_argument, NULL, OPTION_SEED },
	{ "seeds", required_argument, NULL, OPTION_SEEDS },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

/* ---- Values ---- */

static double bandwidth_read(const char *text)
{
	static const struct {
		const char *unit;
		double bytes;
	} units[] = { { "Mbit", 1e6 / 8 }, { "Gbit", 1e9 / 8 }, { "GB/s", 1e9 } };
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	for (size_t i = 0; number > 0 && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0 && number < 1e9)
			return number * units[i].bytes;
	option_fail(SIM, "--bandwidth takes one such as 800Mbit, 10Gbit or 12.5GB/s, not '%s'",
		    text);
}

static double share_read(const char *text)
{
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	if (number < 0 || *end != '\0' || number > 1000)
		option_fail(SIM, "--jitter takes a share such as 0.5, at most 1000, not '%s'",
			    text);
	return number;
}

static void topology_read(struct sim_options *options, const char *text)
{
	if (strcmp(text, "flat") == 0)
		options->world.ranks_per_node = 0;
	else if (strncmp(text, "nodes:", 6) == 0)
		options->world.ranks_per_node =
			(uint32_t)option_number(SIM, "--topology nodes:", text + 6, 1, 1u << 20);
	else
		option_fail(SIM, "--topology takes flat or nodes:N, not '%s'", text);
}

static void skew_read(struct sim_options *options, const char *text)
{
	static const char *const kinds[] = { "none", "linear:", "exp:", "pareto:" };

	for (uint32_t i = 0; i < 4; i++) {
		size_t length = strlen(kinds[i]);

		if (i == 0 ? strcmp(text, "none") != 0 : strncmp(text, kinds[i], length) != 0)
			continue;
		options->skew = (enum sim_skew)i;
		options->skew_ns = i == 0 ? 0 : option_time_ns(SIM, "--skew", text + length);
		return;
	}
	option_fail(SIM, "--skew takes none, linear:TIME, exp:TIME or pareto:TIME, not '%s'", text);
}

static bool rank_read(char **at, uint32_t *rank)
{
	char *end;
	unsigned long number = strtoul(*at, &end, 10);

	if (!isdigit((unsigned char)**at) || number >= UINT32_MAX)
		return false;
	*rank = (uint32_t)number;
	*at = end;
	return true;
}

/* KIND:RANK[-PEER]@TIME[+FOR] */
static bool fault_read(char *text, rubato_sim_fault *fault)
{
	static const char *const kinds[] = { "freeze:", "crash:", "cut:" };
	char *at = text, *plus;

	*fault = (rubato_sim_fault) { .kind = 0 };
	for (uint32_t i = 0; i < 3 && fault->kind == 0; i++) {
		if (strncmp(text, kinds[i], strlen(kinds[i])) == 0) {
			fault->kind = RUBATO_SIM_FREEZE + i;
			at = text + strlen(kinds[i]);
		}
	}
	if (fault->kind == 0 || !rank_read(&at, &fault->rank))
		return false;
	if (fault->kind == RUBATO_SIM_CUT) {
		if (*at++ != '-' || !rank_read(&at, &fault->peer))
			return false;
	}
	if (*at++ != '@')
		return false;
	plus = strchr(at, '+');
	if ((plus == NULL) != (fault->kind == RUBATO_SIM_CRASH))
		return false;
	if (plus != NULL) {
		*plus = '\0';
		fault->for_ns = option_time_ns(SIM, "--faults, after +,", plus + 1);
	}
	fault->at_ns = option_time_ns(SIM, "--faults, after @,", at);
	return true;
}

static void faults_read(struct sim_options *options, const char *text)
{
	char *copy = strdup(text), *rest = copy, *word;

	if (copy == NULL)
		option_fail(SIM, "out of memory");
	while ((word = strsep(&rest, ",")) != NULL) {
		char whole[128];

		(void)snprintf(whole, sizeof(whole), "%s", word);
		if (options->world.fault_count == SIM_FAULTS_MAX)
			option_fail(SIM, "--faults takes at most %d faults", SIM_FAULTS_MAX);
		if (!fault_read(word, &options->faults[options->world.fault_count]))
			option_fail(SIM,
				    "--faults takes freeze:RANK@TIME+FOR, crash:RANK@TIME or "
				    "cut:A-B@TIME+FOR, not '%s'",
				    whole);
		options->world.fault_count++;
	}
	options->world.faults = options->faults;
	free(copy);
}

static uint32_t type_read(const char *text)
{
	const char *names[RUBATO_TYPE_COUNT + 1] = { NULL };

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		names[i] = rubato_type_name((rubato_type)i);
	return option_choice(SIM, "-d", text, names);
}

static uint32_t operator_read(const char *text)
{
	const char *names[RUBATO_OPERATOR_COUNT + 1] = { NULL };

	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		names[i] = rubato_operator_name((rubato_operator)i);
	return option_choice(SIM, "-o", text, names);
}

/* ---- Options ---- */

static bool option_short(struct sim_options *options, int found)
{
	switch (found) {
	case 'n':
		options->world.rank_count = (uint32_t)option_number(SIM, "-n", optarg, 1, 1u << 20);
		return true;
	case 'b':
		options->begin_bytes = option_bytes(SIM, "-b", optarg);
		return true;
	case 'e':
		options->end_bytes = option_bytes(SIM, "-e", optarg);
		return true;
	case 'f':
		options->factor = option_number(SIM, "-f", optarg, 2, 1u << 20);
		return true;
	case 'd':
		options->type = (rubato_type)type_read(optarg);
		return true;
	case 'o':
		options->reduction = (rubato_operator)operator_read(optarg);
		return true;
	case 'r':
		options->root = (uint32_t)option_number(SIM, "-r", optarg, 0, (1u << 20) - 1);
		return true;
	case 't':
		options->iterations = (uint32_t)option_number(SIM, "-t", optarg, 1, 100000);
		return true;
	}
	return false;
}

static void option_long(struct sim_options *options, int found)
{
	switch (found) {
	case OPTION_TOPOLOGY:
		topology_read(options, optarg);
		break;
	case OPTION_LATENCY:
		options->world.latency_ns = option_time_ns(SIM, "--latency", optarg);
		if (options->world.latency_ns == 0)
			option_fail(SIM, "--latency takes a time above 0");
		break;
	case OPTION_BANDWIDTH:
		options->world.bandwidth = bandwidth_read(optarg);
		break;
	case OPTION_JITTER:
		options->world.jitter = share_read(optarg);
		break;
	case OPTION_REORDER:
		options->world.reorder = 1;
		break;
	case OPTION_SKEW:
		skew_read(options, optarg);
		break;
	case OPTION_ALGORITHM:
		options->algorithm = optarg;
		break;
	case OPTION_FAULTS:
		faults_read(options, optarg);
		break;
	case OPTION_TIMEOUT:
		options->world.timeout_ns = option_time_ns(SIM, "--timeout", optarg);
		break;
	case OPTION_SEED:
		options->world.seed = option_number(SIM, "--seed", optarg, 0, UINT64_MAX);
		break;
	case OPTION_SEEDS:
		options->seeds = option_number(SIM, "--seeds", optarg, 1, 1000000000);
		break;
	case OPTION_JSON:
		options->json = optarg;
		break;
	case OPTION_VERSION:
		(void)printf("rubato-sim %s\n", rubato_version());
		exit(EXIT_SUCCESS);
	default:
		(void)fputs(help, stdout);
		exit(EXIT_SUCCESS);
	}
}

static void algorithm_check(const struct sim_options *options)
{
	const char *op = sim_op_names[options->op], *name;
	char all[256] = "auto";

	if (strcmp(options->algorithm, "auto") == 0)
		return;
	for (uint32_t i = 0; (name = rubato_algorithm_name(op, i)) != NULL; i++) {
		size_t used = strlen(all);

		if (strcmp(options->algorithm, name) == 0)
			return;
		(void)snprintf(all + used, sizeof(all) - used, ", %s", name);
	}
	option_fail(SIM, "--algorithm of %s takes one of %s, not '%s'", op, all,
		    options->algorithm);
}

static void options_fit(struct sim_options *options, int argc, char **argv)
{
	if (optind == argc)
		option_fail(SIM, "OP is missing, such as allreduce; --help lists them");
	options->op = (enum sim_op)option_choice(SIM, "OP", argv[optind], sim_op_names);
	if (optind + 1 < argc)
		option_fail(SIM, "one OP only: what is '%s'?", argv[optind + 1]);
	if (options->end_bytes < options->begin_bytes)
		option_fail(SIM, "-e is less than -b");
	if (options->root >= options->world.rank_count)
		option_fail(SIM, "-r %u: there are %u ranks", options->root,
			    options->world.rank_count);
	for (uint32_t i = 0; i < options->world.fault_count; i++) {
		const rubato_sim_fault *fault = &options->faults[i];

		if (fault->rank >= options->world.rank_count ||
		    fault->peer >= options->world.rank_count ||
		    (fault->kind == RUBATO_SIM_CUT && fault->rank == fault->peer))
			option_fail(SIM,
				    "--faults: number %u names ranks that are not there "
				    "(%u ranks)",
				    i + 1, options->world.rank_count);
	}
	if (options->op == SIM_BARRIER)
		options->begin_bytes = options->end_bytes = 0;
	algorithm_check(options);
}

void sim_options_read(int argc, char **argv, struct sim_options *options)
{
	/* getopt sorts what it is given. */
	char **words = calloc((size_t)argc + 1, sizeof(*words));
	int found;

	if (words == NULL)
		option_fail(SIM, "out of memory");
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	*options = (struct sim_options) {
		.world = RUBATO_SIM_OPTIONS_INIT,
		.begin_bytes = 8,
		.end_bytes = 1u << 20,
		.factor = 4,
		.iterations = 5,
		.algorithm = "auto",
		.argc = argc,
		.argv = argv,
	};
	options->world.rank_count = 8;
	options->world.latency_ns = 5000;
	while ((found = option_next(SIM, argc, words, ":n:b:e:f:d:o:r:t:", longs)) != -1)
		if (!option_short(options, found))
			option_long(options, found);
	options_fit(options, argc, words);
	free(words);
}
