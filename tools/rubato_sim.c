/*
 * rubato_sim.c -- collectives on simulated clusters: what they would take, and whether they are
 * right. See sim.h.
 *
 * Each row is a cluster of its own. Before each timed call all ranks meet in a barrier; then they
 * sleep until one moment, APART_LATENCIES later, plus their skew, and enter. With --at-once they do
 * not sleep.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "programs/options.h"
#include "programs/results.h"
#include "programs/standard.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

#define APART_LATENCIES 64 /* More than the first to leave a barrier is ahead of the last. */

struct row { /* Of the table; shared by the ranks, which run in one thread. */
	const struct sim_options *options;
	struct sim_call call;
	struct sim_inputs inputs;
	uint64_t *start_ns; /* Per iteration: 0 until the first rank says. */
	double *call_us;    /* [ranks][iterations] */
	uint64_t wrong;
	uint64_t refused_bytes; /* Of a rank's buffers: no memory. */
	char explained[256];
	rubato_sim_result result;
};

/* ---- One row's cluster ---- */

static rubato_status row_calls(rubato_comm *comm, struct row *row, void *in, void *out)
{
	const struct sim_options *options = row->options;
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	uint64_t latency_ns = options->cluster.latency_ns;
	uint64_t apart_ns =
		(uint64_t)((double)latency_ns * APART_LATENCIES * (1 + options->cluster.jitter));
	struct sim_call call = row->call;
	rubato_status err = RUBATO_OK;

	if (options->helped)
		err = rubato_op_allreduce_helped(comm, in, out, call.count, call.type,
						 call.reduction, &call.started);
	for (uint32_t i = 0; i < options->iterations && err == RUBATO_OK; i++) {
		struct sim_times times = { 0, 0 };

		call.salt = i;
		if (i > 0) /* Zeros again, without memory. */
			(void)madvise(out, sim_call_out_bytes(comm, &call) + 1, MADV_DONTNEED);
		err = rubato_barrier(comm);
		if (row->start_ns[i] == 0)
			row->start_ns[i] = rubato_now(comm) + apart_ns;
		if (!options->at_once)
			times.enter_ns = row->start_ns[i] + skew_ns(&options->skew, rank, n, i);
		if (err == RUBATO_OK)
			err = sim_call_make(comm, &call, in, out, &times, &row->wrong);
		if (err == RUBATO_OK)
			row->call_us[(size_t)rank * options->iterations + i] =
				(double)(times.leave_ns - times.enter_ns) * 1e-3;
	}
	rubato_op_free(call.started);
	return err;
}

static rubato_status row_rank(rubato_comm *comm, void *arg)
{
	struct row *row = arg;
	const char *op = operation_names[row->call.op];
	uint32_t n = rubato_size(comm);
	size_t bytes = rubato_type_bytes(row->call.type);
	uint32_t rank = rubato_rank(comm);
	uint64_t in_count = operation_in(row->call.op, row->call.count, rank, n);
	uint64_t out_count = operation_out(row->call.op, row->call.count, rank, n);
	void *own = row->call.inputs == NULL ? malloc(in_count * bytes + 1) : NULL;
	void *in = row->call.inputs == NULL ? own : sim_inputs_of(&row->call, rank);
	/* Zeros that take no memory before something is written there. */
	void *out = mmap(NULL, out_count * bytes + 1, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rubato_status err = in == NULL || out == MAP_FAILED ? RUBATO_ERR_MEMORY : RUBATO_OK;

	if (err != RUBATO_OK)
		row->refused_bytes = (in_count + out_count) * bytes;
	if (err == RUBATO_OK && row->call.op != OP_SENDRECV)
		err = rubato_set_algorithm(comm, op, row->options->algorithm);
	if (err == RUBATO_OK && row->call.op != OP_SENDRECV && rubato_rank(comm) == 0)
		err = rubato_explain(comm, op,
				     operation_uneven(row->call.op)
					     ? uneven_start(row->call.count, 0, n)
					     : row->call.count,
				     row->call.type, row->explained, sizeof(row->explained));
	if (err == RUBATO_OK)
		err = row_calls(comm, row, in, out);
	free(own);
	if (out != MAP_FAILED)
		(void)munmap(out, out_count * bytes + 1);
	return err;
}

/* ---- Output ---- */

static uint64_t size_of(const struct row *row)
{
	return operation_whole(row->call.op, row->call.count, row->options->cluster.rank_count) *
	       rubato_type_bytes(row->call.type);
}

/* "allreduce: ring (...), ..." -> "ring" */
static void algorithm_of(const struct row *row, char *name, size_t name_bytes)
{
	const char *colon = strchr(row->explained, ':');

	(void)snprintf(name, name_bytes, "%s",
		       row->options->helped ? "helped" : row->options->algorithm);
	if (strcmp(name, "auto") == 0 && colon != NULL)
		(void)snprintf(name, name_bytes, "%.*s", (int)strcspn(colon + 2, " ("), colon + 2);
}

static void table_head(const struct sim_options *options)
{
	const rubato_sim_options *w = &options->cluster;

	(void)printf("# rubato-sim %s: %s, %u ranks, seed %" PRIu64 ", iterations %u, times are "
		     "virtual, values checked\n#\n",
		     rubato_version(), operation_names[options->op], w->rank_count, w->seed,
		     options->iterations);
	(void)printf("# %12s %12s %8s %7s %6s %9s %8s %8s %6s %9s %9s %9s %9s %9s  %s\n", "size",
		     "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "min",
		     "p99", "slowest", "messages", "events", "algorithm");
	(void)printf("# %12s %12s %8s %7s %6s %9s %8s %8s %6s %9s %9s %9s\n", "(B)", "(elements)",
		     "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)");
}

static double algbw(const struct row *row, const struct times_figures *f)
{
	return f->median_us > 0 ? (double)size_of(row) / f->median_us * 1e-3 : 0;
}

static double busbw(const struct row *row, const struct times_figures *f)
{
	return algbw(row, f) * operation_bus_factor(row->call.op, row->options->cluster.rank_count);
}

static void row_text(const struct row *row, const struct times_figures *f, const char *algorithm)
{
	const struct sim_call *call = &row->call;
	bool rooted = operation_rooted(call->op);

	(void)printf("  %12" PRIu64 " %12" PRIu64 " %8s %7s %6d %9.2f %8.2f %8.2f %6" PRIu64
		     " %9.2f %9.2f %9.2f %9" PRIu64 " %9" PRIu64 "  %s\n",
		     size_of(row), call->count, rubato_type_name(call->type),
		     operation_reduces(call->op) ? rubato_operator_name(call->reduction) : "none",
		     rooted ? (int)call->root : -1, f->median_us, algbw(row, f), busbw(row, f),
		     row->wrong, f->min_us, f->p99_us, f->slowest_us, row->result.messages,
		     row->result.events, algorithm);
}

static json_t *row_json(const struct row *row, const struct times_figures *f, const char *algorithm)
{
	const struct sim_call *call = &row->call;
	const rubato_sim_result *result = &row->result;
	char hash[24];
	json_t *json = json_pack(
		"{s:s,s:s,s:s,s:I,s:I,s:s,s:s,s:{s:f,s:f,s:f,s:f},s:f,s:f,s:I}", "op",
		operation_names[call->op], "impl", "rubato", "algorithm", algorithm, "size",
		(json_int_t)size_of(row), "count", (json_int_t)call->count, "type",
		rubato_type_name(call->type), "redop",
		operation_reduces(call->op) ? rubato_operator_name(call->reduction) : "none",
		"time_us", "median", f->median_us, "p99", f->p99_us, "min", f->min_us, "slowest",
		f->slowest_us, "algbw", algbw(row, f), "busbw", busbw(row, f), "wrong",
		(json_int_t)row->wrong);

	(void)snprintf(hash, sizeof(hash), "%016" PRIx64, result->trace_hash);
	if (row->options->skew.kind != SKEW_NONE)
		json_object_set_new(
			json, "in_call_us",
			json_pack("{s:f,s:f}", "mean", f->mean_us, "p99", f->call_p99_us));
	json_object_update_new(
		json, json_pack("{s:I,s:I,s:I,s:I,s:s}", "messages", (json_int_t)result->messages,
				"message_bytes", (json_int_t)result->message_bytes, "events",
				(json_int_t)result->events, "faults_fired",
				(json_int_t)result->faults_fired, "trace_hash", hash));
	return json;
}

static bool table_write(const struct sim_options *options, json_t *results)
{
	return sim_json_write(options->json,
			      json_pack("{s:s,s:o,s:i,s:o,s:o}", "version", rubato_version(),
					"args", sim_args_json(options->argc, options->argv),
					"ranks", (int)options->cluster.rank_count, "network",
					options_json(network_rows, &options->cluster), "results",
					results));
}

/* ---- The table ---- */

static bool row_run(const struct sim_options *options, uint64_t size_bytes, json_t *results)
{
	uint32_t n = options->cluster.rank_count;
	struct row *row = calloc(1, sizeof(*row));
	struct times_figures figures;
	char algorithm[64], what[64] = "";
	rubato_status err;
	bool good;

	if (row != NULL) {
		row->start_ns = calloc(options->iterations, sizeof(*row->start_ns));
		row->call_us = calloc((size_t)options->iterations * n, sizeof(*row->call_us));
	}
	if (row == NULL || row->start_ns == NULL || row->call_us == NULL)
		option_fail(SIM, "out of memory");
	row->options = options;
	row->call = (struct sim_call) {
		.op = options->op,
		.type = options->type,
		.reduction = options->reduction,
		.root = options->root,
		.count = size_bytes / rubato_type_bytes(options->type) /
			 (operation_scattered(options->op) ? n : 1),
	};
	if (!sim_inputs_open(&row->inputs, &row->call, n))
		option_fail(SIM, "out of memory");
	err = rubato_sim_run(&options->cluster, row_rank, row, &row->result);
	good = err == RUBATO_OK && row->wrong == 0;
	if (err != RUBATO_OK) {
		if (row->refused_bytes > 0)
			(void)snprintf(what, sizeof(what), "%" PRIu64 " bytes of buffers",
				       row->refused_bytes);
		(void)fprintf(stderr, "%s: %" PRIu64 " bytes, seed %" PRIu64 ": %s: %s%s\n", SIM,
			      size_bytes, options->cluster.seed, rubato_status_name(err),
			      rubato_error_text(), what);
	} else {
		(void)snprintf(what, sizeof(what), "%s of %" PRIu64 " bytes",
			       operation_names[options->op], size_bytes);
		sim_faults_tell(options, what, &row->result);
		if (!times_figures(row->call_us, n, options->iterations, &figures))
			option_fail(SIM, "out of memory");
		algorithm_of(row, algorithm, sizeof(algorithm));
		if (strcmp(options->json, "-") != 0)
			row_text(row, &figures, algorithm);
		json_array_append_new(results, row_json(row, &figures, algorithm));
	}
	free(row->inputs.at);
	free(row->start_ns);
	free(row->call_us);
	free(row);
	return good;
}

int sim_table(const struct sim_options *options)
{
	json_t *results = json_array();
	uint64_t size_bytes = options->begin_bytes;
	bool good = true;

	if (strcmp(options->json, "-") != 0)
		table_head(options);
	for (;;) {
		good = row_run(options, size_bytes, results) && good;
		if (size_bytes == 0 || size_bytes > options->end_bytes / options->factor)
			break;
		size_bytes *= options->factor;
	}
	if (options->json[0] == '\0')
		json_decref(results);
	else
		good = table_write(options, results) && good;
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int command_run(int argc, char **argv)
{
	struct sim_options options;

	for (int k = 0; argc > 1 && sim_commands[k] != NULL; k++)
		if (strcmp(argv[1], sim_commands[k]) == 0)
			return k == 4   ? sim_campaign_command(argc - 1, argv + 1)
			       : k == 3 ? sim_choice_command(argc - 1, argv + 1)
			       : k == 2 ? laws_command(argc - 1, argv + 1)
					: sim_relaxed_command(argc - 1, argv + 1, k == 1);
	sim_options_read(argc, argv, &options);
	return sim_table(&options);
}

int main(int argc, char **argv)
{
	int status = command_run(argc, argv);

	return standard_written(SIM) || status != EXIT_SUCCESS ? status : EXIT_FAILURE;
}
