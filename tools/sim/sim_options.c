/* sim_options.c -- rubato-sim's command line. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/results.h"
#include "tools/sim/sim.h"

const char *const sim_commands[] = { "partial", "lagged", "laws", "choice", "campaign", NULL };

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

static const char *const topologies[] = { "flat", "nodes:N[,N..]", NULL };

static bool topology_read(const char *option, const char *text, void *to,
			  struct option_error *error)
{
	struct sim_options *options = to;
	rubato_sim_options *cluster = &options->cluster;
	const char *ranks;
	uint32_t kind;

	if (!value_choice(option, text, topologies, &kind, &ranks, error))
		return false;
	cluster->node_count = 0;
	cluster->node_ranks = options->node_ranks;
	return ranks == NULL ||
	       value_counts32("--topology nodes:", ranks, 1, 1u << 20, options->node_ranks,
			      SIM_NODES_MAX, &cluster->node_count, error);
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

/* Behind the kind and its colon; false: it is of another form, or a time is wrong (error). */
static bool fault_rest(char *at, rubato_sim_fault *fault, struct option_error *error)
{
	char *plus;

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
		if (!value_time("--faults, after +,", plus + 1, 0, &fault->for_ns, error))
			return false;
	}
	return value_time("--faults, after @,", at, 0, &fault->at_ns, error);
}

/* Writes into the text. */
static bool fault_read(const char *option, char *text, rubato_sim_fault *fault,
		       struct option_error *error)
{
	const char *value;
	char whole[128];
	uint32_t kind;

	if (!value_choice(option, text, faults, &kind, &value, error))
		return false;
	*fault = (rubato_sim_fault) { .kind = RUBATO_SIM_FREEZE + kind };
	(void)snprintf(whole, sizeof(whole), "%s", text);
	error->text[0] = '\0';
	if (fault_rest(text + (value - text), fault, error))
		return true;
	if (error->text[0] == '\0')
		(void)option_refuse(error, "%s takes %s, not '%s'", option, faults[kind], whole);
	return false;
}

static bool faults_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct sim_options *options = to;
	char *copy = strdup(text), *rest = copy, *word;
	bool good = copy != NULL || option_refuse(error, "out of memory");

	while (good && (word = strsep(&rest, ",")) != NULL) {
		if (options->cluster.fault_count == SIM_FAULTS_MAX)
			good = option_refuse(error, "%s takes at most %d faults", option,
					     SIM_FAULTS_MAX);
		else
			good = fault_read(option, word,
					  &options->faults[options->cluster.fault_count++], error);
	}
	options->cluster.faults = options->faults;
	free(copy);
	return good;
}

/* ---- Options ---- */

static void faults_fit(const struct sim_options *options)
{
	for (uint32_t i = 0; i < options->cluster.fault_count; i++) {
		const rubato_sim_fault *fault = &options->faults[i];

		if (fault->rank >= options->cluster.rank_count ||
		    fault->peer >= options->cluster.rank_count ||
		    (fault->kind == RUBATO_SIM_CUT && fault->rank == fault->peer))
			option_fail(SIM,
				    "--faults: number %u names ranks that are not there "
				    "(%u ranks)",
				    i + 1, options->cluster.rank_count);
	}
}

static rubato_status rank_idle(rubato_comm *comm, void *arg)
{
	(void)comm;
	(void)arg;
	return RUBATO_OK;
}

void sim_cluster_fit(const struct sim_options *options)
{
	rubato_sim_options one = options->cluster;
	rubato_sim_result result;

	faults_fit(options);
	one.rank_count = 1;
	one.fault_count = 0;
	if (rubato_sim_run(&one, rank_idle, NULL, &result) == RUBATO_ERR_ARGUMENT)
		option_fail(SIM, "%s", rubato_error_text());
}

void sim_faults_tell(const struct sim_options *options, const char *what,
		     const rubato_sim_result *result)
{
	if (result->faults_fired < options->cluster.fault_count)
		(void)fprintf(stderr,
			      "%s: %s: %u of %u faults fired: the others found no rank at work "
			      "(the run was over after %.6g ms)\n",
			      SIM, what, result->faults_fired, options->cluster.fault_count,
			      (double)result->end_ns * 1e-6);
}

static void options_fit(struct sim_options *options)
{
	if (options->end_bytes < options->begin_bytes)
		option_fail(SIM, "-e is less than -b");
	if (options->root >= options->cluster.rank_count)
		option_fail(SIM, "-r %u: there are %u ranks", options->root,
			    options->cluster.rank_count);
	sim_cluster_fit(options);
	skew_fit(SIM, &options->skew, options->cluster.rank_count);
	options->skew.seed = options->cluster.seed;
	if (options->helped &&
	    (options->op != OP_ALLREDUCE || strcmp(options->algorithm, "auto") != 0))
		option_fail(SIM, "--helped: of allreduce, without --algorithm");
	if (options->at_once && options->skew.kind != SKEW_NONE)
		option_fail(SIM, "--at-once: there is no moment after which --skew could be");
	if (options->op == OP_BARRIER)
		options->begin_bytes = options->end_bytes = 0;
}

#define AT(member) offsetof(struct sim_options, member)

const struct option sim_cluster_rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(cluster.rank_count), "N", .min = 1, .max = 1u << 20,
	  .preset = "8", .help = "ranks" },
	{ "topology", 0, OPTION_OTHER, 0, "KIND", .read = topology_read, .forms = topologies,
	  .preset = "flat",
	  .help = "%s: N ranks a node, which share memory; several N: of the nodes in turn" },
	{ "jitter", 0, OPTION_REAL, AT(cluster.jitter), "SHARE", .most = 1000, .preset = "0",
	  .help = "stretches each latency by up to this share of it" },
	{ "reorder", 0, OPTION_FLAG, AT(reorder),
	  .help = "messages of one pair may overtake each other" },
	{ "faults", 0, OPTION_OTHER, 0, "LIST", .read = faults_read, .forms = faults,
	  .help = "%s, with commas between; times are virtual" },
	{ "timeout", 0, OPTION_TIME, AT(cluster.timeout_ns), "TIME", .preset = "60s",
	  .help = "the ranks' deadline, virtual" },
	{ 0 },
};

static const struct option rows[] = {
	{ "skew", 0, OPTION_OTHER, AT(skew), "KIND", .read = skew_read, .forms = skew_names,
	  .help = "how late ranks enter: " SKEW_HELP },
	{ "helped", 0, OPTION_FLAG, AT(helped),
	  .help = "of allreduce: the persistent one that is helped against a late rank" },
	{ "at-once", 0, OPTION_FLAG, AT(at_once),
	  .help = "ranks enter as they leave the barrier before the call, as rubato-bench has it, "
		  "and not all at one moment" },
	{ "algorithm", 0, OPTION_TEXT, AT(algorithm), "NAME", .max = SIM_ALGORITHM_BYTES,
	  .preset = "auto", .help = "auto, or one of those above" },
	{ "begin", 'b', OPTION_BYTES, AT(begin_bytes), "SIZE", .preset = "8",
	  .help = "smallest size" },
	{ "end", 'e', OPTION_BYTES, AT(end_bytes), "SIZE", .preset = "1M", .help = "largest size" },
	{ "factor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = 1u << 20, .preset = "4",
	  .help = "each size is this many times the one before" },
	{ "type", 'd', OPTION_CHOICE, AT(type), "NAME", .forms_of = option_types,
	  .preset = "float32", .help = "%s" },
	{ "op", 'o', OPTION_CHOICE, AT(reduction), "NAME", .forms_of = option_operators,
	  .preset = "sum", .help = "%s" },
	{ "root", 'r', OPTION_U32, AT(root), "RANK", .max = (1u << 20) - 1, .preset = "0",
	  .help = "of broadcast, reduce, gather and scatter" },
	{ "iterations", 't', OPTION_U32, AT(iterations), "N", .min = 1, .max = 100000,
	  .preset = "5", .help = "timed calls" },
	{ "seed", 0, OPTION_U64, AT(cluster.seed), "N", .max = UINT64_MAX, .preset = "0",
	  .help = "of jitter, order and skew" },
	{ 0 },
};

const struct option sim_json_rows[] = {
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "results for programs; - is standard output, then without the table" },
	{ 0 },
};

void sim_options_init(struct sim_options *options, int argc, char **argv)
{
	*options = (struct sim_options) {
		.cluster = RUBATO_SIM_OPTIONS_INIT,
		.argc = argc,
		.argv = argv,
	};
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

bool sim_json_write(const char *path, json_t *root)
{
	if (results_write(path, root))
		return true;
	(void)fprintf(stderr, "%s: --json: %s could not be written: %s\n", SIM, path,
		      strerror(errno));
	return false;
}

void sim_options_read(int argc, char **argv, struct sim_options *o)
{
	const struct option_table tables[] = { { .rows = sim_cluster_rows, .to = o },
					       { .rows = network_rows, .to = &o->cluster },
					       { .rows = rows, .to = o },
					       { .rows = sim_json_rows, .to = o },
					       { 0 } };
	const struct options options = {
		.program = SIM,
		.usage = "OP [options]",
		.about = about,
		.notes = notes,
		.tables = tables,
		.operations = operation_names,
		.others = sim_commands,
		.algorithms = true,
	};

	sim_options_init(o, argc, argv);
	o->op = (enum operation)options_read(&options, argc, argv);
	o->cluster.reorder = o->reorder;
	options_fit(o);
	(void)option_algorithm(SIM, operation_names[o->op], o->algorithm, false);
	results_check(SIM, "--json", o->json);
}
