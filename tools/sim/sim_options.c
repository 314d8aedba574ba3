/* sim_options.c -- rubato-sim's command line. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/results.h"
#include "tools/sim/sim.h"

const char *const sim_op_names[] = {
	"allreduce", "reduce_scatter", "allgather", "broadcast",  "reduce",
	"alltoall",  "gather",         "scatter",   "allgatherv", "reduce_scatterv",
	"alltoallv", "barrier",        "sendrecv",  NULL
};

const char *const sim_commands[] = { "partial", "lagged", "laws", NULL };

static const char about[] =
	"Runs OP on a simulated cluster, in virtual time, and checks every element of every "
	"result.\n"
	"Exit status 1: values were wrong, or a run failed.\n";
static const char notes[] =
	"\n"
	"Columns are those of nccl-tests; GB are 10^9 bytes; times are virtual. time is the "
	"median\n"
	"over iterations of the mean over ranks of the time in the call. Sizes, and the blocks of\n"
	"the v-variants, are rubato-bench's.\n";

/* ---- Values ---- */

static void share_read(const char *text, void *to)
{
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	if (number < 0 || *end != '\0' || number > 1000)
		option_fail(SIM, "--jitter takes a share such as 0.5, at most 1000, not '%s'",
			    text);
	*(double *)to = number;
}

static const char *const topologies[] = { "flat", "nodes:N", NULL };

static void topology_read(const char *text, void *to)
{
	struct sim_options *options = to;
	const char *ranks;

	(void)option_word(SIM, "--topology", text, topologies, &ranks);
	options->world.ranks_per_node =
		ranks == NULL
			? 0
			: (uint32_t)option_number(SIM, "--topology nodes:", ranks, 1, 1u << 20);
}

static void skew_option(const char *text, void *to)
{
	struct sim_options *options = to;

	skew_read(SIM, text, &options->skew);
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

/* In the order of the kinds of rubato_sim.h, from RUBATO_SIM_FREEZE on. */
static const char *const faults[] = { "freeze:RANK@TIME+FOR", "crash:RANK@TIME", "cut:A-B@TIME+FOR",
				      NULL };

static bool fault_read(char *text, rubato_sim_fault *fault)
{
	const char *rest;
	char *at, *plus;

	*fault = (rubato_sim_fault) {
		.kind = RUBATO_SIM_FREEZE + option_word(SIM, "--faults", text, faults, &rest),
	};
	at = text + (rest - text);
	if (!rank_read(&at, &fault->rank))
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

static void faults_read(const char *text, void *to)
{
	struct sim_options *options = to;
	char *copy = strdup(text), *rest = copy, *word;

	if (copy == NULL)
		option_fail(SIM, "out of memory");
	while ((word = strsep(&rest, ",")) != NULL) {
		char whole[128];

		(void)snprintf(whole, sizeof(whole), "%s", word);
		if (options->world.fault_count == SIM_FAULTS_MAX)
			option_fail(SIM, "--faults takes at most %d faults", SIM_FAULTS_MAX);
		if (!fault_read(word, &options->faults[options->world.fault_count]))
			option_fail(SIM, "--faults takes %s, not '%s'",
				    faults[options->faults[options->world.fault_count].kind -
					   RUBATO_SIM_FREEZE],
				    whole);
		options->world.fault_count++;
	}
	options->world.faults = options->faults;
	free(copy);
}

/* ---- Options ---- */

void sim_faults_fit(const struct sim_options *options)
{
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
}

static void options_fit(struct sim_options *options)
{
	if (options->end_bytes < options->begin_bytes)
		option_fail(SIM, "-e is less than -b");
	if (options->root >= options->world.rank_count)
		option_fail(SIM, "-r %u: there are %u ranks", options->root,
			    options->world.rank_count);
	sim_faults_fit(options);
	skew_fit(SIM, &options->skew, options->world.rank_count);
	options->skew.seed = options->world.seed;
	if (options->op == SIM_BARRIER)
		options->begin_bytes = options->end_bytes = 0;
}

struct given { /* Options that sim_options holds in other types. */
	uint32_t type, reduction;
	bool reorder;
	char algorithm[64];
};

uint32_t sim_world_rows(struct sim_options *o, bool *reorder, struct option rows[SIM_WORLD_ROWS])
{
	const struct option world[SIM_WORLD_ROWS] = {
		{ "ranks", 'n', OPTION_U32, &o->world.rank_count, "N", .min = 1, .max = 1u << 20,
		  .help = "ranks (8)" },
		{ "topology", 0, OPTION_OTHER, o, "KIND", .read = topology_read,
		  .names = topologies, .help = "%s: N ranks a node, which share memory (flat)" },
		{ "latency", 0, OPTION_TIME, &o->world.latency_ns, "TIME", .min = 1,
		  .help = "one way, between nodes (5us)" },
		{ "bandwidth", 0, OPTION_BANDWIDTH, &o->world.bandwidth, "B",
		  .help = "of each rank's link, each way: 10Gbit, 800Mbit, 12.5GB/s (12.5GB/s)" },
		{ "jitter", 0, OPTION_OTHER, &o->world.jitter, "SHARE", .read = share_read,
		  .help = "stretches each latency by up to this share of it (0)" },
		{ "reorder", 0, OPTION_FLAG, reorder,
		  .help = "messages of one pair may overtake each other" },
		{ "faults", 0, OPTION_OTHER, o, "LIST", .read = faults_read, .names = faults,
		  .help = "%s, with commas between; times are virtual" },
		{ "timeout", 0, OPTION_TIME, &o->world.timeout_ns, "TIME",
		  .help = "the ranks' deadline, virtual (60s)" },
	};

	memcpy(rows, world, sizeof(world));
	return SIM_WORLD_ROWS;
}

static enum sim_op options_parse(int argc, char **argv, struct sim_options *o, struct given *given)
{
	const char *types[RUBATO_TYPE_COUNT + 1] = { NULL };
	const char *operators[RUBATO_OPERATOR_COUNT + 1] = { NULL };
	const struct option own[] = {
		{ "skew", 0, OPTION_OTHER, o, "KIND", .read = skew_option, .names = skew_names,
		  .help = "how late ranks enter: " SKEW_HELP },
		{ "algorithm", 0, OPTION_TEXT, given->algorithm, "NAME",
		  .max = sizeof(given->algorithm), .help = "auto, or one of those above (auto)" },
		{ "begin", 'b', OPTION_BYTES, &o->begin_bytes, "SIZE",
		  .help = "smallest size (8)" },
		{ "end", 'e', OPTION_BYTES, &o->end_bytes, "SIZE", .help = "largest size (1M)" },
		{ "factor", 'f', OPTION_U64, &o->factor, "N", .min = 2, .max = 1u << 20,
		  .help = "next size: so many times as large (4)" },
		{ "type", 'd', OPTION_CHOICE, &given->type, "NAME", .names = types,
		  .help = "%s (float32)" },
		{ "op", 'o', OPTION_CHOICE, &given->reduction, "NAME", .names = operators,
		  .help = "%s (sum)" },
		{ "root", 'r', OPTION_U32, &o->root, "RANK", .max = (1u << 20) - 1,
		  .help = "of broadcast, reduce, gather and scatter (0)" },
		{ "iterations", 't', OPTION_U32, &o->iterations, "N", .min = 1, .max = 100000,
		  .help = "timed calls (5)" },
		{ "seed", 0, OPTION_U64, &o->world.seed, "N", .max = UINT64_MAX,
		  .help = "of jitter, order and skew (0)" },
		{ "seeds", 0, OPTION_U64, &o->seeds, "N", .min = 1, .max = 1000000000,
		  .help = "a campaign instead: N seeds from --seed on, each with random ranks, "
			  "network, sizes, skew and delays, each run twice" },
		{ "json", 0, OPTION_TEXT, o->json, "FILE", .max = sizeof(o->json),
		  .help = "results for programs; - is standard output, then without the table" },
		{ 0 },
	};
	struct option rows[SIM_WORLD_ROWS + sizeof(own) / sizeof(own[0])];
	const struct options options = {
		.program = SIM,
		.usage = "OP [options]",
		.about = about,
		.notes = notes,
		.rows = rows,
		.operations = sim_op_names,
		.others = sim_commands,
		.algorithms = true,
	};

	memcpy(rows + sim_world_rows(o, &given->reorder, rows), own, sizeof(own));
	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		types[i] = rubato_type_name((rubato_type)i);
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		operators[i] = rubato_operator_name((rubato_operator)i);
	return (enum sim_op)options_read(&options, argc, argv);
}

void sim_options_init(struct sim_options *options, int argc, char **argv)
{
	*options = (struct sim_options) {
		.world = RUBATO_SIM_OPTIONS_INIT,
		.begin_bytes = 8,
		.end_bytes = 1u << 20,
		.factor = 4,
		.iterations = 5,
		.argc = argc,
		.argv = argv,
	};
	options->world.rank_count = 8;
	options->world.latency_ns = 5000;
}

json_t *sim_args_json(int argc, char **argv)
{
	json_t *args = json_array();

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			i++; /* Where the results go is no part of them. */
		else if (strncmp(argv[i], "--json=", 7) != 0)
			json_array_append_new(args, results_text(argv[i]));
	}
	return args;
}

void sim_options_read(int argc, char **argv, struct sim_options *options)
{
	struct given given = { RUBATO_FLOAT32, RUBATO_SUM, .algorithm = "auto" };

	sim_options_init(options, argc, argv);
	options->op = options_parse(argc, argv, options, &given);
	options->type = (rubato_type)given.type;
	options->reduction = (rubato_operator)given.reduction;
	options->world.reorder = given.reorder;
	options_fit(options);
	options->algorithm =
		option_algorithm(SIM, sim_op_names[options->op], given.algorithm, false);
	if (options->json[0] != '\0' && !results_writable(options->json))
		option_fail(SIM, "--json: cannot write there");
}
