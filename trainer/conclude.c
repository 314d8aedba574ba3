/* conclude.c -- after the last step: are the replicas equal, how good is the model, what is
 * written. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "programs/results.h"
#include "trainer/base/agree.h"
#include "trainer/base/npy.h"
#include "trainer/eval_model.h"
#include "trainer/run.h"
#include "trainer/settings.h"

#define FINAL_ROWS_LEAST 1024
#define LOSS_MAX 700.0 /* Larger ones have no perplexity that a double can hold. */

struct result {
	struct tr_totals totals;
	struct tr_score train, test;
	uint64_t final_rows; /* That `train` is over; 0: none. */
};

static double samples_per_second(const struct tr_run *run, const struct result *r)
{
	return run->seconds > 0.0 ? r->totals.samples / run->seconds : 0.0;
}

static void append_real(json_t *o, const char *key, double value)
{
	json_array_append_new(json_object_get(o, key), json_real(value));
}

static void append_whole(json_t *o, const char *key, double value)
{
	json_array_append_new(json_object_get(o, key), json_integer((json_int_t)value));
}

static json_t *per_rank_object(const struct tr_totals *per_rank, uint32_t ranks)
{
	json_t *o = json_pack("{s:[],s:[],s:[],s:[],s:[]}", "compute_seconds",
			      "communication_seconds", "idle_seconds", "steps", "samples");

	for (uint32_t rank = 0; rank < ranks; rank++) {
		const struct tr_totals *t = &per_rank[rank];
		double idle = t->seconds - t->compute_seconds;

		append_real(o, "compute_seconds", t->compute_seconds);
		append_real(o, "communication_seconds", t->communication_seconds);
		append_real(o, "idle_seconds", idle > 0.0 ? idle : 0.0);
		append_whole(o, "steps", t->steps);
		append_whole(o, "samples", t->samples);
	}
	return o;
}

/* Per token. */
static json_t *perplexity(const struct tr_run *run, const struct tr_score *score)
{
	bool there = tr_model_reads_text(run->model.kind) && score->rows > 0;
	double loss = there ? tr_mean_loss(score) : 0.0;

	return tr_optional(there && loss < LOSS_MAX, exp(loss));
}

/* docs/trainer.md explains the keys. NULL: no memory. */
static json_t *summary_object(const struct tr_run *run, const struct result *r,
			      const struct tr_totals *per_rank)
{
	const struct tr_options *o = run->options;
	const struct tr_counts *counts = &run->ctx.counts;
	const struct tr_score *train = &r->train, *test = &r->test;
	double ranks = run->rank_count, rounds = counts->rounds == 0 ? 1.0 : (double)counts->rounds;
	double buckets = counts->buckets == 0 ? 1.0 : (double)counts->buckets;
	double busy = run->seconds > 0.0 ? r->totals.compute_seconds / ranks / run->seconds
					 : 1.0; /* A simulation in which nothing takes time. */
	bool classify = run->model.loss == TR_CROSS_ENTROPY, has_test = test->rows > 0;
	json_t *data = json_string(o->data); /* NULL where a folder's name is no UTF-8. */

	return json_pack(
		"{s:s,s:i,s:I,s:f,s:f,s:f,s:o,s:I,s:o,s:o,s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:f,s:s,"
		"s:o,s:s,s:i,s:I,s:o,s:I,s:i,s:f,s:b,s:o,s:o,s:o,s:o,s:o}",
		"algorithm", o->rule->name, "ranks", (int)run->rank_count, "samples",
		(json_int_t)r->totals.samples, "seconds", run->seconds, "samples_per_second",
		samples_per_second(run, r), "idle_fraction", busy < 1.0 ? 1.0 - busy : 0.0,
		"final_loss", tr_optional(train->rows > 0, tr_mean_loss(train)), "final_rows",
		(json_int_t)r->final_rows, "test_accuracy",
		tr_optional(has_test && classify, tr_accuracy(test)), "test_loss",
		tr_optional(has_test, tr_mean_loss(test)), "global_reductions",
		(json_int_t)counts->global_reductions, "local_reductions",
		(json_int_t)counts->local_reductions, "bytes_sent",
		(json_int_t)r->totals.bytes_sent, "rounds", (json_int_t)counts->rounds,
		"fresh_mean", (double)counts->fresh_sum / rounds, "contributors_mean",
		(double)counts->contributors_sum / rounds, "staleness_max",
		(json_int_t)counts->staleness_max, "discarded", (json_int_t)counts->discarded,
		"communication_seconds", r->totals.communication_seconds / ranks, "model",
		tr_model_names[run->model.kind], "data", data == NULL ? json_null() : data,
		"compute", run->ops->name, "batch", (int)o->batch, "steps",
		(json_int_t)run->rate.step_count, "seed", results_whole(o->seed), "parameters",
		(json_int_t)run->model.parameter_count, "buckets", (int)run->ctx.cut.count,
		"hidden_fraction", (double)counts->buckets_hidden / buckets, "simulated",
		o->simulate, "tokens",
		tr_model_reads_text(run->model.kind) ? json_integer((json_int_t)r->totals.rows)
						     : json_null(),
		"perplexity", perplexity(run, train), "test_perplexity", perplexity(run, test),
		"settings", tr_settings_given(o), "per_rank",
		per_rank_object(per_rank, run->rank_count));
}

static void print_result(const struct tr_run *run, const struct result *r)
{
	printf("%s, %s, %u rank%s:", tr_model_names[run->model.kind], run->options->rule->name,
	       run->rank_count, run->rank_count == 1 ? "" : "s");
	if (r->final_rows > 0)
		printf(" loss %.6g,", tr_mean_loss(&r->train));
	if (r->test.rows > 0 && tr_model_reads_text(run->model.kind))
		printf(" test perplexity %.4g,", exp(tr_mean_loss(&r->test)));
	else if (r->test.rows > 0 && run->model.loss == TR_CROSS_ENTROPY)
		printf(" test accuracy %.2f %%,", 100.0 * tr_accuracy(&r->test));
	else if (r->test.rows > 0)
		printf(" test loss %.6g,", tr_mean_loss(&r->test));
	printf(" %llu samples in %.1f s (%.0f a second)\n", (unsigned long long)r->totals.samples,
	       run->seconds, samples_per_second(run, r));
	fflush(stdout);
}

/* Collective. The summary is the last: where it is, the other files are complete. */
static rubato_status write_results(struct tr_run *run, const struct result *r)
{
	struct tr_totals mine, *per_rank;
	rubato_status err = RUBATO_OK;

	if (run->rank == 0 && run->options->save != NULL)
		err = tr_run_write_parameters(run, run->options->save);
	if (err == RUBATO_OK && run->rank == 0 && run->options->out != NULL)
		err = tr_run_write_out(run, "final");
	TR_TRY(tr_agree(run->comm, err, run->error));
	TR_TRY(tr_ledger_write(run->ctx.ledger, run->comm, run->options->out, run->error));
	TR_TRY(tr_trace_write(run->ctx.trace, run->comm, run->options->out, run->start_ns,
			      run->error));
	TR_TRY(tr_run_totals(run, &mine));
	TR_TRY(tr_totals_gather(run->comm, &mine, &per_rank, run->error));
	if (run->metrics.folder != NULL)
		err = tr_json_write(run->metrics.folder, "summary.json",
				    summary_object(run, r, per_rank), TR_METRICS_DIGITS,
				    run->error);
	free(per_rank);
	return tr_agree(run->comm, err, run->error);
}

static rubato_status test_each_snapshot(struct tr_run *run, uint32_t snapshot_count)
{
	struct tr_snapshot *snapshot = run->snapshots.first;

	for (uint32_t i = 0; i < snapshot_count; i++) {
		struct tr_score test;
		rubato_status err = RUBATO_OK;

		TR_TRY(tr_eval_model_show(&run->ctx, snapshot));
		TR_TRY(tr_run_evaluate(run, &run->data->test, run->data->test.rows, "tests",
				       &test));
		if (!isfinite(test.loss))
			return tr_run_diverged(run, true);
		if (run->rank == 0) {
			tr_line_add_test(&snapshot->line, &test);
			err = tr_metrics_line(&run->metrics, &snapshot->line, run->error);
			snapshot = snapshot->next;
		}
		TR_TRY(tr_agree(run->comm, err, run->error));
	}
	return RUBATO_OK;
}

/* Tests what could not be tested on the way; the last parameters stay. */
static rubato_status test_snapshots(struct tr_run *run)
{
	uint32_t snapshot_count = run->snapshots.count;
	rubato_status err = RUBATO_OK;
	float *kept;

	TR_TRY(tr_check(run->error,
			rubato_broadcast(run->comm, &snapshot_count, 1, RUBATO_UINT32, 0),
			"broadcast of the number of snapshots"));
	if (snapshot_count == 0)
		return RUBATO_OK;
	kept = tr_eval_model_keep(&run->ctx);
	if (kept == NULL)
		err = tr_fail(run->error, RUBATO_ERR_MEMORY, "no memory to test snapshots");
	err = tr_agree(run->comm, err, run->error);
	if (err == RUBATO_OK)
		err = test_each_snapshot(run, snapshot_count);
	tr_eval_model_end(&run->ctx, kept);
	return err;
}

/* A look at a sample costs a third of training with it: as many as that, unless told otherwise. */
static uint64_t final_rows(const struct tr_run *run, uint64_t trained)
{
	uint64_t wanted = run->options->final_rows, all = run->data->train.rows;

	if (wanted == TR_FINAL_AUTO)
		wanted = trained > FINAL_ROWS_LEAST ? trained : FINAL_ROWS_LEAST;
	return wanted < all ? wanted : all;
}

static rubato_status compare_parameters(struct tr_run *run)
{
	size_t count = run->model.parameter_count;
	uint64_t hash;
	float *parameters;

	TR_TRY(tr_vectors_map(run->vectors, run->ctx.parameters, count, &parameters, run->error));
	hash = tr_hash(TR_HASH_INIT, parameters, count * sizeof(float));
	tr_vectors_unmap(run->vectors, run->ctx.parameters, count, parameters, false);
	return tr_agree_equal(run->comm, hash, "the ranks' parameters differ at the end of the run",
			      run->error);
}

rubato_status tr_run_conclude(struct tr_run *run)
{
	struct result r = { .final_rows = 0 };

	if (run->channel != NULL) {
		TR_TRY(tr_run_totals(run, &r.totals));
		TR_TRY(tr_totals_finish(run->channel, &r.totals, run->error));
	}
	TR_TRY(compare_parameters(run));
	TR_TRY(tr_run_add_up(run, &r.totals));
	TR_TRY(test_snapshots(run));
	TR_TRY(tr_average_statistics(&run->ctx));
	if (run->data->test.rows > 0)
		TR_TRY(tr_run_evaluate(run, &run->data->test, run->data->test.rows, "test",
				       &r.test));
	r.final_rows = final_rows(run, (uint64_t)r.totals.samples);
	if (r.final_rows > 0)
		TR_TRY(tr_run_evaluate(run, &run->data->train, r.final_rows, "final loss",
				       &r.train));
	tr_progress_close(&run->progress);
	if (!isfinite(r.train.loss) || !isfinite(r.test.loss)) /* By the last update. */
		return tr_run_diverged(run, true);
	TR_TRY(write_results(run, &r));
	if (run->rank == 0)
		print_result(run, &r);
	return RUBATO_OK;
}
