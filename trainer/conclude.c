/* conclude.c -- after the last step: are the replicas equal, how good is the model, what is
 * written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/base/agree.h"
#include "trainer/base/npy.h"
#include "trainer/eval_model.h"
#include "trainer/run.h"
#include "trainer/settings.h"

#define FINAL_ROWS_LEAST 1024

static void fill_summary(const struct tr_run *run, const struct tr_totals *totals,
			 const struct tr_score *train, const struct tr_score *test,
			 struct tr_summary *s)
{
	const struct tr_counts *counts = &run->ctx.counts;
	double rounds = counts->rounds == 0 ? 1.0 : (double)counts->rounds;
	double buckets = counts->buckets == 0 ? 1.0 : (double)counts->buckets;
	double busy = run->seconds > 0.0 ? totals->compute_seconds / run->rank_count / run->seconds
					 : 1.0; /* A simulation in which nothing takes time. */

	*s = (struct tr_summary) {
		.algorithm = run->options->rule->name,
		.model = tr_model_names[run->model.kind],
		.data = run->options->data,
		.compute = run->ops->name,
		.ranks = run->rank_count,
		.batch = run->options->batch,
		.steps = run->rate.step_count,
		.samples = (uint64_t)totals->samples,
		.seed = run->options->seed,
		.parameters = run->model.parameter_count,
		.buckets = run->ctx.cut.count,
		.hidden_fraction = (double)counts->buckets_hidden / buckets,
		.simulated = run->options->simulate,
		.seconds = run->seconds,
		.idle_fraction = busy < 1.0 ? 1.0 - busy : 0.0,
		.communication_seconds = totals->communication_seconds / run->rank_count,
		.final_loss = train->rows > 0 ? tr_mean_loss(train) : 0.0,
		.has_test = run->data->test.rows > 0,
		.classify = run->model.loss == TR_CROSS_ENTROPY,
		.reads_text = tr_model_reads_text(run->model.kind),
		.tokens = (uint64_t)totals->rows,
		.global_reductions = counts->global_reductions,
		.local_reductions = counts->local_reductions,
		.bytes_sent = (uint64_t)totals->bytes_sent,
		.rounds = counts->rounds,
		.staleness_max = counts->staleness_max,
		.discarded = counts->discarded,
		.fresh_mean = (double)counts->fresh_sum / rounds,
		.contributors_mean = (double)counts->contributors_sum / rounds,
	};
	s->samples_per_second = run->seconds > 0.0 ? (double)s->samples / run->seconds : 0.0;
	if (s->has_test) {
		s->test_loss = tr_mean_loss(test);
		s->test_accuracy = tr_accuracy(test);
	}
}

static void print_result(const struct tr_summary *s)
{
	printf("%s, %s, %u rank%s:", s->model, s->algorithm, s->ranks, s->ranks == 1 ? "" : "s");
	if (s->final_rows > 0)
		printf(" loss %.6g,", s->final_loss);
	if (s->has_test && s->reads_text)
		printf(" test perplexity %.4g,", exp(s->test_loss));
	else if (s->has_test && s->classify)
		printf(" test accuracy %.2f %%,", 100.0 * s->test_accuracy);
	else if (s->has_test)
		printf(" test loss %.6g,", s->test_loss);
	printf(" %llu samples in %.1f s (%.0f a second)\n", (unsigned long long)s->samples,
	       s->seconds, s->samples_per_second);
	fflush(stdout);
}

/* Collective. The summary is the last: where it is, the other files are complete. */
static rubato_status write_results(struct tr_run *run, struct tr_summary *summary)
{
	struct tr_totals mine, *per_rank;
	rubato_status err = RUBATO_OK;

	if (run->rank == 0 && run->options->save != NULL)
		err = tr_npy_write(run->options->save, run->ctx.parameters,
				   run->model.parameter_count, run->error);
	if (err == RUBATO_OK && run->rank == 0 && run->options->out != NULL)
		err = tr_run_write_parameters(run, "final");
	TR_TRY(tr_agree(run->comm, err, run->error));
	TR_TRY(tr_ledger_write(run->ctx.ledger, run->comm, run->options->out, run->error));
	TR_TRY(tr_trace_write(run->ctx.trace, run->comm, run->options->out, run->start_ns,
			      run->error));
	TR_TRY(tr_run_totals(run, &mine));
	TR_TRY(tr_totals_gather(run->comm, &mine, &per_rank, run->error));
	summary->per_rank = per_rank;
	if (run->rank == 0) {
		summary->settings = tr_settings_given(run->options);
		err = tr_metrics_summary(&run->metrics, summary, run->error);
	}
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

rubato_status tr_run_conclude(struct tr_run *run)
{
	struct tr_score train = { 0 }, test = { 0 };
	struct tr_summary summary;
	struct tr_totals totals;
	uint64_t rows;

	if (run->channel != NULL) {
		TR_TRY(tr_run_totals(run, &totals));
		TR_TRY(tr_totals_finish(run->channel, &totals, run->error));
	}
	TR_TRY(tr_agree_equal(run->comm,
			      tr_hash(TR_HASH_INIT, run->ctx.parameters,
				      run->model.parameter_count * sizeof(float)),
			      "the ranks' parameters differ at the end of the run", run->error));
	TR_TRY(tr_run_add_up(run, &totals));
	TR_TRY(test_snapshots(run));
	TR_TRY(tr_average_statistics(&run->ctx));
	if (run->data->test.rows > 0)
		TR_TRY(tr_run_evaluate(run, &run->data->test, run->data->test.rows, "test", &test));
	rows = final_rows(run, (uint64_t)totals.samples);
	if (rows > 0)
		TR_TRY(tr_run_evaluate(run, &run->data->train, rows, "final loss", &train));
	tr_progress_close(&run->progress);
	fill_summary(run, &totals, &train, &test, &summary);
	summary.final_rows = rows;
	TR_TRY(write_results(run, &summary));
	if (run->rank == 0)
		print_result(&summary);
	return RUBATO_OK;
}
