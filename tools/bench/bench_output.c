/* bench_output.c -- nccl-tests' table with columns of ours to the right, and JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"

#define HOST_BYTES 60

struct place_info { /* What the head of the table says of each rank. */
	int32_t pid;
	char host[HOST_BYTES];
};

static double algbw(const struct bench_case *what, const struct bench_result *result)
{
	return result->median_us > 0 ? (double)what->size_bytes / result->median_us * 1e-3 : 0;
}

static void head_ranks(struct bench_output *output, struct bench *bench)
{
	struct place_info mine = { .pid = (int32_t)getpid() };
	struct place_info *all = calloc(bench->rank_count, sizeof(*all));

	if (all == NULL) {
		(void)fprintf(stderr, "%s: out of memory\n", BENCH);
		exit(EXIT_FAILURE);
	}
	(void)gethostname(mine.host, sizeof(mine.host) - 1);
	bench_check(bench,
		    rubato_allgather(bench->comm, &mine, all, sizeof(mine) / 4, RUBATO_INT32),
		    "gathering the head of the table");
	for (uint32_t rank = 0; output->text != NULL && rank < bench->rank_count; rank++)
		(void)fprintf(output->text, "#  Rank %2u Pid %6d on %s\n", rank, all[rank].pid,
			      all[rank].host);
	free(all);
}

static void head_columns(struct bench_output *output)
{
	FILE *file = output->text;

	(void)fprintf(file, "#\n#%58s %26s %31s %49s %59s\n", "", "out-of-place          ",
		      "in-place          ", "out-of-place            ", "in-place              ");
	(void)fprintf(file, "# %12s %12s %8s %7s %6s", "size", "count", "type", "redop", "root");
	for (int i = 0; i < 2; i++)
		(void)fprintf(file, " %9s %8s %8s %6s", "time", "algbw", "busbw", "#wrong");
	for (int i = 0; i < 2; i++)
		(void)fprintf(file, " %9s %9s %9s %9s %9s %9s", "min", "p90", "p99", "max",
			      "slowest", "whole");
	(void)fprintf(file, "  algorithm\n# %12s %12s %8s %7s %6s", "(B)", "(elements)", "", "",
		      "");
	for (int i = 0; i < 2; i++)
		(void)fprintf(file, " %9s %8s %8s %6s", "(us)", "(GB/s)", "(GB/s)", "");
	for (int i = 0; i < 12; i++)
		(void)fprintf(file, " %9s", "(us)");
	(void)fprintf(file, "\n");
}

void bench_results_check(const char *json, const char *csv)
{
	results_check(BENCH, "--json", json);
	results_check(BENCH, "--csv", csv);
}

void bench_output_open(struct bench_output *output, struct bench *bench)
{
	const struct bench_options *options = bench->options;
	bool first = bench->rank == 0;

	*output = (struct bench_output) { .options = options,
					  .peers = &bench->peers,
					  .rank_count = bench->rank_count };
	if (first)
		bench_results_check(options->json, options->csv);
	if (first && (options->json[0] != '\0' || options->csv[0] != '\0'))
		output->results = json_array();
	if (first && strcmp(options->json, "-") != 0 && strcmp(options->csv, "-") != 0)
		output->text = stdout;
	if (output->text != NULL)
		(void)fprintf(
			output->text,
			"# rubato-bench %s: %s, %u ranks, transport %s, %s buffers, warm-up %u, "
			"iterations %u, wire %s, %s, values %schecked\n#\n",
			rubato_version(), operation_names[options->op], bench->rank_count,
			options->transport, options->registered ? "registered" : "plain",
			options->warmups, options->iterations, rubato_wire_name(options->wire),
			options->bound ? "bound" : "not bound", options->checked ? "" : "not ");
	if (output->text != NULL && options->aggregate > 0)
		(void)fprintf(output->text,
			      "#  %u operations at a time; times are of one of them\n",
			      options->aggregate);
	head_ranks(output, bench);
	for (uint32_t p = 0; p < bench->peers.count && output->text != NULL; p++)
		(void)fprintf(output->text, "#  Peer %s: %s\n", bench->peers.list[p].name,
			      bench->peers.list[p].library);
	if (output->text != NULL)
		head_columns(output);
}

static const char *redop(const struct bench_output *output, const struct bench_case *what)
{
	return operation_reduces(output->options->op) ? rubato_operator_name(what->op) : "none";
}

/* "ring", "openmpi  0.43 (0.41-0.46)". */
static void row_end(FILE *file, const char *used, const struct bench_result places[2])
{
	(void)fprintf(file, "  %s", used);
	for (int i = 0; i < 2; i++) {
		const struct ratio_figures *over = &places[i].over;

		if (!places[i].ran || over->ratio == 0)
			continue;
		(void)fprintf(file, "  %.3g", over->ratio);
		if (!isnan(over->low))
			(void)fprintf(file, " (%.3g-%.3g)", over->low, over->high);
	}
	(void)fprintf(file, "\n");
	(void)fflush(file);
}

static void row_text(struct bench_output *output, const struct bench_case *what, const char *used,
		     const struct bench_result places[2])
{
	FILE *file = output->text;
	bool rooted = operation_rooted(output->options->op);
	double factor = operation_bus_factor(output->options->op, output->rank_count);

	(void)fprintf(file, "  %12" PRIu64 " %12" PRIu64 " %8s %7s %6d", what->size_bytes,
		      what->count, rubato_type_name(what->type), redop(output, what),
		      rooted ? (int)output->options->root : -1);
	for (int i = 0; i < 2; i++) {
		if (places[i].ran)
			(void)fprintf(file, " %9.2f %8.2f %8.2f", places[i].median_us,
				      algbw(what, &places[i]), algbw(what, &places[i]) * factor);
		else
			(void)fprintf(file, " %9s %8s %8s", "N/A", "N/A", "N/A");
		if (places[i].ran && output->options->checked)
			(void)fprintf(file, " %6" PRIu64, places[i].wrong);
		else
			(void)fprintf(file, " %6s", "N/A");
	}
	for (int i = 0; i < 2; i++) {
		if (places[i].ran)
			(void)fprintf(file, " %9.2f %9.2f %9.2f %9.2f %9.2f", places[i].min_us,
				      places[i].p90_us, places[i].p99_us, places[i].max_us,
				      places[i].slowest_us);
		else
			(void)fprintf(file, " %9s %9s %9s %9s %9s", "N/A", "N/A", "N/A", "N/A",
				      "N/A");
		if (places[i].ran && !isnan(places[i].whole_us))
			(void)fprintf(file, " %9.2f", places[i].whole_us);
		else
			(void)fprintf(file, " %9s", "N/A");
	}
	row_end(file, used, places);
}

/* `impl`: rubato, or a peer, of which no algorithm is known (`used` is NULL). */
static json_t *row_json(const struct bench_output *output, const struct bench_case *what,
			const char *impl, const char *used, const struct bench_result *result,
			bool in_place)
{
	const struct bench_options *options = output->options;
	double factor = operation_bus_factor(options->op, output->rank_count);
	json_t *row =
		json_pack("{s:s,s:s,s:s?,s:s,s:I,s:I,s:s,s:s}", "op", operation_names[options->op],
			  "impl", impl, "algorithm", used, "asked", what->algorithm, "size",
			  (json_int_t)what->size_bytes, "count", (json_int_t)what->count, "type",
			  rubato_type_name(what->type), "redop", redop(output, what));
	json_t *times = json_pack(
		"{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "median", results_real(result->median_us),
		"mean", results_real(result->mean_us), "min", results_real(result->min_us), "p90",
		results_real(result->p90_us), "p99", results_real(result->p99_us), "max",
		results_real(result->max_us), "slowest", results_real(result->slowest_us), "whole",
		results_real(result->whole_us));

	if (operation_rooted(options->op))
		json_object_set_new(row, "root", json_integer(options->root));
	json_object_set_new(row, "in_place", json_boolean(in_place));
	json_object_set_new(row, "buffers",
			    json_string(options->registered ? "registered" : "plain"));
	json_object_set_new(row, "transport", json_string(options->transport));
	if (options->aggregate > 0)
		json_object_set_new(row, "aggregate", json_integer(options->aggregate));
	if (options->wire != RUBATO_WIRE_SAME)
		json_object_set_new(row, "wire", json_string(rubato_wire_name(options->wire)));
	json_object_set_new(row, "time_us", times);
	json_object_set_new(row, "algbw", results_real(algbw(what, result)));
	json_object_set_new(row, "busbw", results_real(algbw(what, result) * factor));
	json_object_set_new(row, "wrong",
			    options->checked ? json_integer((json_int_t)result->wrong)
					     : json_null());
	return row;
}

void bench_output_row(struct bench_output *output, const struct bench_case *what, const char *used,
		      const char *why, const struct bench_result places[2])
{
	double factor = operation_bus_factor(output->options->op, output->rank_count);

	for (int i = 0; i < 2; i++) {
		double busbw = algbw(what, &places[i]) * factor;

		if (!places[i].ran)
			continue;
		output->wrong += places[i].wrong;
		output->busbw_sum += busbw;
		output->busbw_peak = busbw > output->busbw_peak ? busbw : output->busbw_peak;
		if (output->rows == 0 || places[i].median_us < output->floor_us)
			output->floor_us = places[i].median_us;
		output->rows++;
		if (output->results != NULL) {
			json_t *row = row_json(output, what, "rubato", used, &places[i], i == 1);

			if (why != NULL)
				json_object_set_new(row, "explain", results_text(why));
			json_array_append_new(output->results, row);
		}
	}
	if (output->text == NULL)
		return;
	row_text(output, what, used, places);
	if (why != NULL)
		bench_output_note(output, why);
}

static json_t *ratio_json(const struct ratio_figures *over)
{
	return json_pack("{s:o,s:o,s:o}", "ratio", results_real(over->ratio), "low",
			 results_real(over->low), "high", results_real(over->high));
}

void bench_output_peer(struct bench_output *output, const struct bench_case *what,
		       const struct peer *peer, const struct bench_result places[2])
{
	bool ran = places[0].ran || places[1].ran;

	for (int i = 0; i < 2; i++) {
		output->wrong += places[i].wrong;
		if (!places[i].ran || output->results == NULL)
			continue;
		json_t *row = row_json(output, what, peer->name, NULL, &places[i], i == 1);

		json_object_set_new(row, "rubato_over_it", ratio_json(&places[i].over));
		if (!isnan(places[i].whole_us))
			json_object_set_new(row, "rubato_over_it_whole",
					    ratio_json(&places[i].whole_over));
		json_array_append_new(output->results, row);
	}
	if (output->text != NULL && ran)
		row_text(output, what, peer->name, places);
	else if (!ran)
		bench_output_note(output, peer->why_not);
}

void bench_output_note(struct bench_output *output, const char *text)
{
	if (output->text != NULL)
		(void)fprintf(output->text, "#   %s\n", text);
}

json_t *bench_args_json(int argc, char **argv)
{
	json_t *args = json_array();

	for (int i = 1; i < argc; i++)
		json_array_append_new(args, results_text(argv[i]));
	return args;
}

static bool results_close(struct bench_output *output)
{
	static const char *const columns[] = {
		"op",
		"impl",
		"algorithm",
		"size",
		"count",
		"type",
		"redop",
		"root",
		"in_place",
		"buffers",
		"transport",
		"wire",
		"aggregate",
		"time_us.median",
		"time_us.mean",
		"time_us.min",
		"time_us.p90",
		"time_us.p99",
		"time_us.max",
		"time_us.slowest",
		"time_us.whole",
		"algbw",
		"busbw",
		"wrong",
		"rubato_over_it.ratio",
		"rubato_over_it_whole.ratio",
		NULL,
	};
	const struct bench_options *options = output->options;
	bool good = options->csv[0] == '\0' || results_csv(options->csv, output->results, columns);

	if (options->json[0] == '\0') {
		json_decref(output->results);
		return good;
	}
	return results_write(options->json,
			     json_pack("{s:s,s:o,s:i,s:b,s:o,s:o}", "version", rubato_version(),
				       "args", bench_args_json(options->argc, options->argv),
				       "ranks", (int)output->rank_count, "bound", options->bound,
				       "peers", bench_peers_json(output->peers), "results",
				       output->results)) &&
	       good;
}

int bench_output_close(struct bench_output *output)
{
	double rows = output->rows > 0 ? (double)output->rows : 1;
	bool written = true;

	if (output->text != NULL) {
		if (output->options->checked)
			(void)fprintf(output->text, "# Out of bounds values : %" PRIu64 " %s\n",
				      output->wrong, output->wrong == 0 ? "OK" : "FAILED");
		(void)fprintf(output->text, "# Avg bus bandwidth    : %g\n",
			      output->busbw_sum / rows);
		(void)fprintf(output->text, "# Peak bus bandwidth   : %g\n", output->busbw_peak);
		(void)fprintf(output->text, "# Shortest time        : %g us\n#\n",
			      output->floor_us);
		written = fflush(output->text) == 0;
	}
	if (output->results != NULL)
		written = results_close(output) && written;
	if (!written)
		(void)fprintf(stderr, "%s: the results could not be written\n", BENCH);
	return output->wrong == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
