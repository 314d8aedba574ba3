/*
 * sim_choice.c -- rubato-sim choice: what the choice among algorithms loses against the best one.
 *
 * For each operation and size one simulated call by the algorithm that is chosen, and one by each
 * of the others, by name. All ranks enter at one moment; a call takes until the last rank leaves
 * it. Buffers are hollow (rubato_sim.h), so sizes cost no memory. A run ends when its call has
 * taken longer than is of interest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/results.h"
#include "tools/sim/sim.h"

#define ENTER_NS 1000000000u /* Later than any communicator is open. */
#define TIMEOUT_NS 100000000000000u
#define CLOSE_US 1000.0 /* Longer than ranks take, after the call, to leave their communicator. */
#define ALL_FACTOR 4    /* --all: so much longer than the chosen one is of interest. */
#define ALGORITHMS_MAX 32

struct choice_options {
	struct sim_options sim;
	uint64_t begin_bytes, end_bytes, factor;
	bool wanted[OPERATION_COUNT];
	bool all, plain;
	double bound; /* Percent. */
};

struct call {
	const struct choice_options *options;
	enum operation op;
	uint64_t count;
	const char *algorithm; /* NULL: as chosen. */
	uint64_t end_ns;       /* When the last rank left. */
	bool refused;          /* It cannot run here. */
	char explained[1024];
};

struct entry { /* An algorithm's. */
	char name[48];
	double us;           /* 0: it cannot run, or took too long. */
	double predicted_us; /* -1: it is no candidate. */
};

struct cell { /* An operation and a size. */
	enum operation op;
	uint64_t bytes;
	struct entry chosen, best;
	struct entry entries[ALGORITHMS_MAX];
	uint32_t count;
};

/* ---- One call ---- */

static void *buffer(rubato_comm *comm, const struct call *call, uint64_t elements)
{
	size_t bytes = elements * sizeof(float) + 1;
	void *at = NULL;

	if (call->options->plain)
		return rubato_sim_hollow(comm, bytes);
	return rubato_alloc(comm, bytes, &at) == RUBATO_OK ? at : NULL;
}

static rubato_status perform(rubato_comm *comm, struct call *call)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint64_t *counts = NULL;
	struct operation_call c = { .op = call->op,
				    .count = call->count,
				    .type = RUBATO_FLOAT32,
				    .reduction = RUBATO_SUM };
	rubato_status err = RUBATO_OK;

	c.in = buffer(comm, call, operation_in(call->op, call->count, rank, n));
	c.out = buffer(comm, call, operation_out(call->op, call->count, rank, n));
	if (operation_uneven(call->op)) {
		counts = malloc(n * sizeof(*counts));
		if (counts != NULL)
			uneven_fill(call->count, call->op == OP_ALLTOALLV ? rank : 0, n, counts);
		c.counts = counts;
	}
	if (c.in == NULL || c.out == NULL || (operation_uneven(call->op) && counts == NULL))
		err = RUBATO_ERR_MEMORY;
	if (err == RUBATO_OK) {
		rubato_sleep(comm, ENTER_NS - rubato_now(comm));
		err = operation_call(comm, &c);
	}
	if (rubato_now(comm) > call->end_ns)
		call->end_ns = rubato_now(comm);
	free(counts);
	return err;
}

static rubato_status call_rank(rubato_comm *comm, void *arg)
{
	struct call *call = arg;
	const char *op = operation_names[call->op];
	uint64_t count = operation_uneven(call->op)
				 ? uneven_start(call->count, 0, rubato_size(comm))
				 : call->count;
	rubato_status err = RUBATO_OK;

	if (call->algorithm != NULL)
		err = rubato_set_algorithm(comm, op, call->algorithm);
	else if (rubato_rank(comm) == 0)
		err = rubato_explain(comm, op, count, RUBATO_FLOAT32, call->explained,
				     sizeof(call->explained));
	if (err == RUBATO_OK)
		err = perform(comm, call);
	call->refused = call->refused || err == RUBATO_ERR_UNSUPPORTED;
	return err;
}

/* In microseconds; 0: it cannot run here, or takes longer than bound_us (0: any time). */
static double call_time(struct call *call, double bound_us)
{
	rubato_sim_options cluster = call->options->sim.cluster;
	rubato_sim_result result;
	rubato_status err;

	cluster.hollow = 1;
	cluster.timeout_ns = TIMEOUT_NS;
	if (bound_us > 0)
		cluster.time_max_ns = ENTER_NS + (uint64_t)((bound_us + CLOSE_US) * 1e3) + 1;
	call->end_ns = 0;
	call->refused = false;
	err = rubato_sim_run(&cluster, call_rank, call, &result);
	if (err == RUBATO_OK)
		return (double)(call->end_ns - ENTER_NS) * 1e-3;
	if (call->refused || (err == RUBATO_ERR_TIMEOUT && bound_us > 0))
		return 0;
	(void)fprintf(stderr, "%s: %s, %s: %s: %s\n", SIM, operation_names[call->op],
		      call->algorithm != NULL ? call->algorithm : "chosen", rubato_status_name(err),
		      rubato_error_text());
	exit(EXIT_FAILURE);
}

/* ---- One cell ---- */

/* "OP: NAME (why), ..., predicted 1.2 us; ...; else NAME 3.4 us, NAME 5.6 us" */
static double predicted(const char *text, const char *name, bool chosen)
{
	char needle[64];
	const char *at = strstr(text, chosen ? "predicted " : "; else ");

	(void)snprintf(needle, sizeof(needle), " %s ", chosen ? "predicted" : name);
	at = at != NULL ? strstr(at - 1, needle) : NULL;
	return at != NULL ? strtod(at + strlen(needle), NULL) : -1;
}

static void chosen_find(struct cell *cell, struct call *call)
{
	const char *colon;

	call->algorithm = NULL;
	cell->chosen.us = call_time(call, 0);
	colon = strchr(call->explained, ':');
	(void)snprintf(cell->chosen.name, sizeof(cell->chosen.name), "%.*s",
		       colon != NULL ? (int)strcspn(colon + 2, " (") : 0,
		       colon != NULL ? colon + 2 : "");
	cell->chosen.predicted_us = predicted(call->explained, "", true);
	cell->best = cell->chosen;
}

/* Where cards do not put, a transport carries puts by messages, which is not simulated. */
static bool is_comparable(const struct choice_options *options, const char *name)
{
	return options->sim.cluster.costs.puts != 0 || strstr(name, "_put") == NULL;
}

/* What is there to be compared: hierarchical_staged is what hierarchical is with plain buffers. */
static void cell_measure(const struct choice_options *options, struct cell *cell)
{
	struct call call = { .options = options, .op = cell->op };
	const char *op = operation_names[cell->op], *name;

	call.count = cell->bytes / sizeof(float) /
		     (operation_scattered(cell->op) ? options->sim.cluster.rank_count : 1);
	chosen_find(cell, &call);
	for (uint32_t i = 0;
	     (name = rubato_algorithm_name(op, i)) != NULL && cell->count < ALGORITHMS_MAX; i++) {
		struct entry *e = &cell->entries[cell->count];

		if (strcmp(name, cell->chosen.name) == 0 || !is_comparable(options, name))
			continue;
		call.algorithm = name;
		(void)snprintf(e->name, sizeof(e->name), "%s", name);
		e->predicted_us = predicted(call.explained, name, false);
		e->us = call_time(&call,
				  options->all ? cell->chosen.us * ALL_FACTOR : cell->best.us);
		if (e->us > 0 && e->us < cell->best.us)
			cell->best = *e;
		cell->count++;
	}
}

static double loss(const struct cell *cell)
{
	return cell->best.us > 0 ? (cell->chosen.us / cell->best.us - 1) * 100 : 0;
}

/* ---- Output ---- */

static void cell_text(const struct choice_options *options, const struct cell *cell)
{
	(void)printf("  %-16s %11" PRIu64 " %12.2f %12.2f %8.1f  %-28s %s\n",
		     operation_names[cell->op], cell->bytes, cell->chosen.us,
		     cell->chosen.predicted_us, loss(cell), cell->chosen.name, cell->best.name);
	for (uint32_t i = 0; options->all && i < cell->count; i++) {
		const struct entry *e = &cell->entries[i];

		if (e->us > 0)
			(void)printf("  %28s %12.2f %12.2f %8.1f  %s\n", "", e->us, e->predicted_us,
				     (cell->chosen.us / e->us - 1) * 100, e->name);
	}
	(void)fflush(stdout);
}

static json_t *cell_json(const struct cell *cell)
{
	json_t *others = json_object();

	for (uint32_t i = 0; i < cell->count; i++)
		if (cell->entries[i].us > 0)
			json_object_set_new(others, cell->entries[i].name,
					    json_pack("{s:f,s:f}", "us", cell->entries[i].us,
						      "predicted_us",
						      cell->entries[i].predicted_us));
	return json_pack("{s:s,s:I,s:s,s:f,s:f,s:s,s:f,s:f,s:o}", "op", operation_names[cell->op],
			 "size", (json_int_t)cell->bytes, "chosen", cell->chosen.name, "us",
			 cell->chosen.us, "predicted_us", cell->chosen.predicted_us, "best",
			 cell->best.name, "best_us", cell->best.us, "loss_percent", loss(cell),
			 "others", others);
}

/* The largest loss, in percent. */
static double table(const struct choice_options *options, json_t *results)
{
	bool text = strcmp(options->sim.json, "-") != 0;
	double most = 0;

	if (text)
		(void)printf("# rubato-sim choice %s: %u ranks, %s buffers, times are virtual\n#\n"
			     "# %-16s %11s %12s %12s %8s  %-28s %s\n# %-16s %11s %12s %12s %8s\n",
			     rubato_version(), options->sim.cluster.rank_count,
			     options->plain ? "plain" : "mapped", "operation", "size", "time",
			     "predicted", "loss", "chosen", "best", "", "(B)", "(us)", "(us)",
			     "(%)");
	for (uint32_t op = 0; op < OPERATION_COUNT; op++) {
		for (uint64_t bytes = op == OP_BARRIER ? 0 : options->begin_bytes;
		     options->wanted[op];) {
			struct cell cell = { .op = (enum operation)op, .bytes = bytes };

			cell_measure(options, &cell);
			if (text)
				cell_text(options, &cell);
			json_array_append_new(results, cell_json(&cell));
			most = loss(&cell) > most ? loss(&cell) : most;
			if (bytes == 0 || bytes > options->end_bytes / options->factor)
				break;
			bytes *= options->factor;
		}
	}
	if (text)
		(void)printf("# The choice loses at most %.1f %%.\n", most);
	return most;
}

/* ---- Options ---- */

static bool operations_read(const char *option, const char *text, void *to,
			    struct option_error *error)
{
	struct choice_options *options = to;
	char *copy = strdup(text), *rest = copy, *word;
	bool good = copy != NULL || option_refuse(error, "out of memory");

	memset(options->wanted, 0, sizeof(options->wanted));
	while (good && (word = strsep(&rest, ",")) != NULL) {
		uint32_t op = 0;

		while (operation_names[op] != NULL && strcmp(operation_names[op], word) != 0)
			op++;
		if (operation_names[op] == NULL || op == OP_SENDRECV)
			good = option_refuse(error,
					     "%s takes operations with algorithms, commas between, "
					     "not '%s'",
					     option, word);
		else
			options->wanted[op] = true;
	}
	free(copy);
	return good;
}

#define AT(member) offsetof(struct choice_options, member)

static const struct option rows[] = {
	{ "operations", 0, OPTION_OTHER, 0, "LIST", .read = operations_read,
	  .help = "operations, with commas between (all)" },
	{ "begin", 'b', OPTION_BYTES, AT(begin_bytes), "SIZE", .min = 4, .preset = "1K",
	  .help = "smallest size" },
	{ "end", 'e', OPTION_BYTES, AT(end_bytes), "SIZE", .preset = "64M",
	  .help = "largest size" },
	{ "factor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = 1u << 20, .preset = "4",
	  .help = "each size is this many times the one before" },
	{ "plain", 0, OPTION_FLAG, AT(plain), .help = "buffers that peers cannot map" },
	{ "all", 0, OPTION_FLAG, AT(all),
	  .help = "shows all algorithms, but those that take four times as long as the chosen "
		  "one" },
	{ "bound", 0, OPTION_REAL, AT(bound), "PERCENT", .most = 1e6, .preset = "1000000",
	  .help = "exit status 1 where the choice loses more" },
	{ 0 },
};

int sim_choice_command(int argc, char **argv)
{
	static struct choice_options o; /* Large. */
	const struct option_table tables[] = { { .rows = sim_cluster_rows, .to = &o.sim },
					       { .rows = network_rows, .to = &o.sim.cluster },
					       { .rows = rows, .to = &o },
					       { .rows = sim_json_rows, .to = &o.sim },
					       { 0 } };
	const struct options options = {
		.program = SIM,
		.usage = "choice [options]",
		.about = "Shows what the choice among algorithms loses against the best one, in "
			 "virtual time.\n",
		.notes = "",
		.tables = tables,
	};
	json_t *results = json_array();
	bool written = true;
	double most;

	(void)setenv("RUBATO_LOG", "none", 0); /* Runs that are cut short would warn. */
	sim_options_init(&o.sim, argc, argv);
	for (uint32_t op = 0; op < OPERATION_COUNT; op++)
		o.wanted[op] = op != OP_SENDRECV;
	(void)options_read(&options, argc, argv);
	o.sim.cluster.reorder = o.sim.reorder;
	if (o.end_bytes < o.begin_bytes)
		option_fail(SIM, "-e is less than -b");
	if (o.sim.cluster.fault_count > 0)
		option_fail(SIM, "choice takes no --faults");
	sim_cluster_fit(&o.sim);
	results_check(SIM, "--json", o.sim.json);
	most = table(&o, results);
	if (o.sim.json[0] == '\0')
		json_decref(results);
	else
		written = sim_json_write(
			o.sim.json,
			json_pack("{s:s,s:o,s:i,s:o,s:o}", "version", rubato_version(), "args",
				  sim_args_json(argc, argv), "ranks", (int)o.sim.cluster.rank_count,
				  "network", options_json(network_rows, &o.sim.cluster), "results",
				  results));
	return most <= o.bound && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
