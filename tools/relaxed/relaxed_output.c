/* relaxed_output.c -- what relaxed_run.c has measured, as a table and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "tools/relaxed/relaxed.h"

static const char *const reduction_names[] = { "sum", "max", "min" };
static const char *const phase_names[] = { "open", "join", "exchange", "reduce" };
static const char *const spent_names[] = { "open", "join", "exchange", "reduce", "not waiting" };

static uint64_t count_of(const struct relaxed_options *o)
{
	uint64_t bytes = o->type == 1 || o->type == 3 ? 8 : 4;

	return o->size_bytes >= bytes ? o->size_bytes / bytes : 1;
}

static uint64_t size_of(const struct relaxed_options *o)
{
	return count_of(o) * (o->type == 1 || o->type == 3 ? 8 : 4);
}

static void text_partial(FILE *file, const struct relaxed_form *forms, int form_count, bool closed)
{
	(void)fprintf(file, "# %-16s %10s %10s %10s %10s %8s %8s %7s %9s %6s %6s %9s", "policy",
		      "in call", "median", "p99", "min", "ratio", "fresh", "contr.", "stale max",
		      "rounds", "#wrong", "cpu");
	(void)fprintf(file, " %9s %9s %9s %9s%s\n", "open", "join", "exchange", "reduce",
		      closed ? "  whole run" : "");
	(void)fprintf(file, "# %-16s %10s %10s %10s %10s %8s %8s %7s %9s %6s %6s %9s", "",
		      "mean (us)", "(us)", "(us)", "(us)", "", "mean", "mean", "", "", "", "(us)");
	(void)fprintf(file, " %9s %9s %9s %9s%s\n", "(us)", "(us)", "(us)", "(us)",
		      closed ? "       (us)" : "");
	for (int i = 0; i < form_count; i++) {
		const struct relaxed_form *f = &forms[i];

		(void)fprintf(file,
			      "  %-16s %10.2f %10.2f %10.2f %10.2f %8.2f %8.2f %7.2f %9" PRIu64
			      " %6" PRIu64 " %6" PRIu64,
			      f->name, f->times.mean_us, f->times.median_us, f->times.p99_us,
			      f->times.min_us,
			      f->times.mean_us > 0 ? forms[0].times.mean_us / f->times.mean_us : 0,
			      f->fresh_mean, f->contributors_mean, f->staleness_max, f->rounds,
			      f->wrong);
		if (f->cpu_us < 0)
			(void)fprintf(file, " %9s", "-");
		else
			(void)fprintf(file, " %9.2f", f->cpu_us);
		for (int k = 0; k < 4 && i > 0; k++)
			(void)fprintf(file, " %9.2f", f->round_us[k]);
		if (closed)
			(void)fprintf(file, i > 0 ? " %10.2f" : " %50.2f", f->loop_us);
		(void)fprintf(file, "\n");
	}
}

/* Where the time in the call went. */
static void text_spent(FILE *file, const struct relaxed_form *forms, int form_count)
{
	(void)fprintf(file, "#\n# in call (us): waiting\n# %-16s", "policy");
	for (int k = 0; k < 5; k++)
		(void)fprintf(file, " %11s", spent_names[k]);
	(void)fprintf(file, " %10s %10s %10s\n", "sum", "in call", "allreduce");
	for (int i = 1; i < form_count; i++) {
		const struct relaxed_form *f = &forms[i];
		double sum = 0;

		if (f->whole)
			continue;
		(void)fprintf(file, "  %-16s", f->name);
		for (int k = 0; k < 5; k++) {
			(void)fprintf(file, " %11.2f", f->spent_us[k]);
			sum += f->spent_us[k];
		}
		(void)fprintf(file, " %10.2f %10.2f %10.2f\n", sum, f->times.mean_us,
			      forms[0].times.mean_us);
	}
}

/* Beside the synchronous form. */
static void text_over(FILE *file, const struct relaxed_form *forms, int form_count)
{
	(void)fprintf(file,
		      "#\n# median over the first's, 95 %% interval; inputs and results used\n");
	for (int i = 0; i < form_count; i++) {
		const struct relaxed_form *f = &forms[i];

		(void)fprintf(file, "  %-16s %10.3g", f->name, f->over.ratio);
		if (!isnan(f->over.low))
			(void)fprintf(file, " (%.3g-%.3g)", f->over.low, f->over.high);
		if (f->inputs > 0)
			(void)fprintf(file, "  %u, %u", f->inputs, f->results);
		(void)fprintf(file, "\n");
	}
}

static void text_lagged(FILE *file, const struct relaxed_form *forms, int form_count)
{
	(void)fprintf(file, "# %-16s %10s %9s %9s %12s %6s %6s\n", "form", "step (us)", "idle",
		      "overlap", "micro-batch", "steps", "#wrong");
	for (int i = 0; i < form_count; i++)
		(void)fprintf(file,
			      "  %-16s %10.2f %8.1f%% %8.1f%% %12.2f %6" PRIu64 " %6" PRIu64 "\n",
			      forms[i].name, forms[i].step_us, 100 * forms[i].idle,
			      100 * forms[i].overlap, forms[i].contributors_mean, forms[i].rounds,
			      forms[i].wrong);
}

void relaxed_text(FILE *file, const struct relaxed_options *o, const char *where,
		  uint32_t rank_count, const struct relaxed_form *forms, int form_count)
{
	(void)fprintf(file,
		      "# %s %s: %s, %u ranks, %s, %" PRIu64 " B (%" PRIu64
		      " %s, %s), iterations %u, "
		      "seed %" PRIu64 ", values checked\n#\n",
		      o->program, rubato_version(), o->lagged ? "lagged" : "partial", rank_count,
		      where, size_of(o), count_of(o), relaxed_types[o->type],
		      reduction_names[o->reduction], o->iterations, o->seed);
	if (o->lagged)
		text_lagged(file, forms, form_count);
	else {
		text_partial(file, forms, form_count, o->loop == 1);
		text_spent(file, forms, form_count);
		text_over(file, forms, form_count);
	}
}

static json_t *spent_json(const struct relaxed_form *f)
{
	json_t *json = json_object();

	for (int k = 0; k < 5; k++)
		json_object_set_new(json, spent_names[k], results_real(f->spent_us[k]));
	return json;
}

static json_t *phases_json(const struct relaxed_form *f)
{
	json_t *json = json_object();

	for (int k = 0; k < 4; k++)
		json_object_set_new(json, phase_names[k], results_real(f->round_us[k]));
	return json;
}

json_t *relaxed_json(const struct relaxed_options *o, uint32_t rank_count,
		     const struct relaxed_form *forms, int form_count)
{
	json_t *rows = json_array();
	double bytes = (double)size_of(o);

	for (int i = 0; i < form_count; i++) {
		const struct relaxed_form *f = &forms[i];
		double algbw = f->times.median_us > 0 ? bytes / f->times.median_us * 1e-3 : 0;
		json_t *row = json_pack(
			"{s:s,s:s,s:s,s:I,s:I,s:s,s:s,s:{s:o,s:o,s:o},s:o,s:o,s:I}", "op",
			f->whole ? "allreduce" : (o->lagged ? "lagged" : "partial"), "impl",
			"rubato", "policy", f->name, "size", (json_int_t)size_of(o), "count",
			(json_int_t)count_of(o), "type", relaxed_types[o->type], "redop",
			reduction_names[o->reduction], "time_us", "median",
			results_real(f->times.median_us), "p99", results_real(f->times.p99_us),
			"min", results_real(f->times.min_us), "algbw", results_real(algbw), "busbw",
			results_real(algbw * 2 * (rank_count - 1) / rank_count), "wrong",
			(json_int_t)f->wrong);

		if (o->lagged) {
			json_object_update_new(
				row,
				json_pack("{s:o,s:o,s:o,s:o}", "step_us", results_real(f->step_us),
					  "idle_fraction", results_real(f->idle), "overlap_percent",
					  results_real(100 * f->overlap), "micro_batches_mean",
					  results_real(f->contributors_mean)));
		} else {
			json_object_update_new(
				row, json_pack("{s:{s:o,s:o},s:o,s:o,s:I,s:I,s:o}", "in_call_us",
					       "mean", results_real(f->times.mean_us), "p99",
					       results_real(f->times.call_p99_us), "fresh_mean",
					       results_real(f->fresh_mean), "contributors_mean",
					       results_real(f->contributors_mean), "staleness_max",
					       (json_int_t)f->staleness_max, "rounds",
					       (json_int_t)f->rounds, "phases_us", phases_json(f)));
			json_object_set_new(row, "over_allreduce",
					    json_pack("{s:o,s:o,s:o}", "ratio",
						      results_real(f->over.ratio), "low",
						      results_real(f->over.low), "high",
						      results_real(f->over.high)));
			if (f->inputs > 0)
				json_object_set_new(row, "buffers",
						    json_pack("{s:i,s:i}", "inputs", (int)f->inputs,
							      "results", (int)f->results));
			if (o->loop == 1)
				json_object_set_new(row, "loop_us", results_real(f->loop_us));
			if (!f->whole)
				json_object_set_new(row, "spent_us", spent_json(f));
			if (f->cpu_us >= 0)
				json_object_set_new(row, "cpu_us", results_real(f->cpu_us));
		}
		json_array_append_new(rows, row);
	}
	return rows;
}
