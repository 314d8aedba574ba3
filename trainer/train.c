/*
 * train.c -- the training loop.
 *
 *   prepare    data, model, shuffle, compute: local; then all agree that it worked, and alike
 *   train      gradient of the next batch, over to the rule; reports and tests in between
 *   conclude   the rule drains; replicas are compared; final loss, test, --save, summary
 */
#include "trainer/train.h"

#include <math.h>

#include "trainer/base/agree.h"
#include "trainer/data/augment.h"
#include "trainer/emulation/compute_time.h"
#include "trainer/eval_model.h"
#include "trainer/run.h"

/* What has happened since the last line; `sum` is of the whole run. */
static struct tr_metrics_line make_line(struct tr_run *run, double seconds,
					const struct tr_totals *sum)
{
	double ranks = run->rank_count, rows = sum->rows - run->reported.rows;
	double idle = seconds - sum->compute_seconds / ranks;
	struct tr_metrics_line line = {
		.step = run->steps_done,
		.epoch = sum->steps / ranks / (double)run->shuffle.epoch_steps,
		.loss = (sum->loss - run->reported.loss) / rows,
		.accuracy = (sum->correct - run->reported.correct) / rows,
		.has_accuracy = run->model.loss == TR_CROSS_ENTROPY,
		.samples = (uint64_t)sum->samples,
		.time = seconds,
		.idle_time = idle > 0.0 ? idle : 0.0,
		.communication_time = sum->communication_seconds / ranks,
		.rate = run->ctx.rate_applied >= 0.0 ? run->ctx.rate_applied
						     : tr_rate_at(&run->rate, run->steps_done - 1),
		.reductions = run->ctx.counts.global_reductions,
		.bytes = (uint64_t)sum->bytes_sent,
		.period = run->ctx.counts.period,
	};

	run->reported = *sum;
	return line;
}

rubato_status tr_run_diverged(struct tr_run *run, bool shared)
{
	tr_fail(run->error, RUBATO_ERR_ARGUMENT,
		"the loss is not finite after step %llu: the training diverged (a smaller --lr may "
		"help)",
		(unsigned long long)run->steps_done);
	run->error->shared = shared;
	if (shared && run->rank != 0) /* The same on all ranks: one of them says it. */
		run->error->text[0] = '\0';
	return RUBATO_ERR_ARGUMENT;
}

/* Collective: everybody reports at the same steps. */
static rubato_status report_together(struct tr_run *run, double seconds, bool with_test)
{
	struct tr_metrics_line line;
	struct tr_totals sum;
	struct tr_score test;
	float *kept;

	TR_TRY(tr_run_add_up(run, &sum));
	if (!isfinite(sum.loss))
		return tr_run_diverged(run, true);
	line = make_line(run, seconds, &sum);
	if (with_test) {
		rubato_status err = tr_eval_model_begin(&run->ctx, &kept);

		if (err == RUBATO_OK)
			err = tr_run_evaluate(run, &run->data->test, run->data->test.rows, NULL,
					      &test);
		tr_eval_model_end(&run->ctx, kept);
		TR_TRY(err);
		if (!isfinite(test.loss))
			return tr_run_diverged(run, true);
		tr_line_add_test(&line, &test);
	}
	return tr_agree(run->comm,
			run->rank == 0 ? tr_metrics_line(&run->metrics, &line, run->error)
				       : RUBATO_OK,
			run->error);
}

/* Nobody waits for anybody: rank 0 writes what it has heard, and tests come after the run. */
static rubato_status report_alone(struct tr_run *run, double seconds, bool with_test)
{
	struct tr_metrics_line line;
	struct tr_totals mine, sum;

	TR_TRY(tr_run_totals(run, &mine));
	if (!isfinite(mine.loss))
		return tr_run_diverged(run, false);
	TR_TRY(tr_totals_send(run->channel, &mine, run->error));
	if (run->rank != 0)
		return RUBATO_OK;
	TR_TRY(tr_totals_sum(run->channel, &sum, run->error));
	line = make_line(run, seconds, &sum);
	if (with_test)
		TR_TRY(tr_snapshots_take(&run->snapshots, &line, tr_eval_model_keep(&run->ctx),
					 run->error));
	return tr_metrics_line(&run->metrics, &line, run->error);
}

static rubato_status report(struct tr_run *run, bool with_test)
{
	uint64_t before_ns = rubato_now(run->comm), after_ns;

	if (run->channel == NULL)
		TR_TRY(report_together(run, tr_run_elapsed(run), with_test));
	else
		TR_TRY(report_alone(run, tr_run_elapsed(run), with_test));
	after_ns = rubato_now(run->comm);
	run->pause_ns += after_ns - before_ns;
	tr_trace_span(run->ctx.trace, TR_SPAN_PAUSE, before_ns, after_ns, run->steps_done);
	return RUBATO_OK;
}

static rubato_status gradient_ready(void *arg, size_t first)
{
	struct tr_run *run = arg;
	const struct tr_rule *rule = run->options->rule;
	uint64_t before_ns = rubato_now(run->comm);

	if (rule->ready != NULL)
		TR_TRY(rule->ready(run->rule, first));
	run->ready_ns += rubato_now(run->comm) - before_ns;
	return RUBATO_OK;
}

/* Before anything of the gradient is complete: what is late is late for all of it. */
static void suffer_delay(struct tr_run *run, uint64_t step)
{
	uint64_t before_ns = rubato_now(run->comm);
	uint64_t delay_ns = tr_delay_at(&run->options->delay, run->options->seed, run->rank,
					run->rank_count, step);

	if (delay_ns == 0)
		return;
	rubato_sleep(run->comm, delay_ns);
	tr_trace_span(run->ctx.trace, TR_SPAN_DELAY, before_ns, rubato_now(run->comm), step);
	run->compute_ns += rubato_now(run->comm) - before_ns;
}

/* Emulated, the gradient is complete inside at once, and for the rule only as time passes. */
static rubato_status compute_gradient(struct tr_run *run, uint64_t step,
				      const struct tr_batch *batch)
{
	const struct tr_ready ready = { gradient_ready, run };
	const struct tr_compute_time *compute_time = &run->options->compute_time;
	uint64_t before_ns = rubato_now(run->comm);
	struct tr_score score = { 0 };

	tr_data_gather(run->data, &run->data->train, batch->rows, 0, run->options->batch,
		       run->batch.x, run->batch.labels, run->batch.targets);
	if (run->options->augment)
		tr_augment(run->data, run->options->seed, batch->first_place, run->options->batch,
			   run->batch.x, run->batch.spare);
	run->ready_ns = 0;
	TR_TRY(run->ops->train(run->compute, run->batch.x, tr_answers_of(&run->batch),
			       compute_time->kind == TR_COMPUTE_TIME_NONE ? &ready : NULL, &score,
			       run->error));
	if (compute_time->kind != TR_COMPUTE_TIME_NONE)
		TR_TRY(tr_compute_time_pass(compute_time,
					    tr_compute_time_span(compute_time, run->rank,
								 run->rank_count, step, score.rows),
					    run->comm, &run->ctx.cut, before_ns, &ready));
	run->ctx.loss = score.loss / (double)score.rows;
	run->score.loss += score.loss;
	run->score.correct += score.correct;
	run->score.rows += score.rows;
	tr_trace_span(run->ctx.trace, TR_SPAN_COMPUTE, before_ns, rubato_now(run->comm), step);
	run->compute_ns += rubato_now(run->comm) - before_ns - run->ready_ns;
	run->ctx.counts.communication_ns += run->ready_ns;
	tr_progress_step(&run->progress, step, score.loss, score.rows);
	return RUBATO_OK;
}

/* After the step on `batch`. Shared work: when the run as a whole has come past the epochs. */
static bool test_is_due(struct tr_run *run, const struct tr_batch *batch)
{
	uint64_t every = run->options->eval_every * run->shuffle.epoch_steps, passed;

	if (every == 0 || run->data->test.rows == 0)
		return false;
	if (run->options->own->sampler == TR_SAMPLER_STATIC)
		return run->steps_done % every == 0;
	passed = (batch->first_place / run->options->batch + 1) / run->rank_count / every;
	if (passed == run->tests_due)
		return false;
	run->tests_due = passed;
	return true;
}

static rubato_status one_step(struct tr_run *run, const struct tr_batch *batch)
{
	const struct tr_rule *rule = run->options->rule;
	uint64_t step = run->steps_done, before_ns = rubato_now(run->comm);
	uint64_t blocked_ns = run->ctx.counts.communication_ns;

	if (rule->begin != NULL)
		TR_TRY(rule->begin(run->rule, step));
	suffer_delay(run, step);
	TR_TRY(compute_gradient(run, step, batch));
	before_ns = rubato_now(run->comm);
	TR_TRY(rule->step(run->rule, step));
	if (run->ctx.counts.communication_ns > blocked_ns + run->ready_ns)
		tr_trace_span(run->ctx.trace, TR_SPAN_COMMUNICATION, before_ns,
			      rubato_now(run->comm), step);
	run->steps_done++;
	return RUBATO_OK;
}

static rubato_status train(struct tr_run *run)
{
	const struct tr_rule *rule = run->options->rule;
	struct tr_batch batch;

	tr_progress_open(&run->progress, run->rank == 0 && !run->options->quiet, run->steps_done,
			 run->rate.step_count, run->shuffle.epoch_steps,
			 (uint64_t)run->options->batch * run->rank_count);
	TR_TRY(tr_run_set_out(run));
	for (;;) {
		TR_TRY(tr_sampler_next(run->sampler, run->steps_done, &batch, run->error));
		TR_TRY(tr_run_checkpoint(run, &batch));
		if (batch.rows == NULL)
			break;
		TR_TRY(tr_sampler_take(run->sampler, run->error));
		if (run->options->own->sampler == TR_SAMPLER_SHARED)
			tr_ledger_draw(run->ctx.ledger, run->steps_done, batch.first_place,
				       run->options->batch);
		TR_TRY(one_step(run, &batch));
		bool due = test_is_due(run, &batch);
		if (due || run->steps_done % run->options->report_every == 0) {
			TR_TRY(report(run, due));
			run->reported_step = run->steps_done;
		}
	}
	TR_TRY(tr_sampler_leave(run->sampler, run->error));
	if (run->reported_step < run->steps_done)
		TR_TRY(report(run, false));
	if (rule->finish != NULL)
		TR_TRY(rule->finish(run->rule, run->steps_done));
	run->seconds = tr_run_elapsed(run);
	tr_progress_close(&run->progress);
	return RUBATO_OK;
}

rubato_status tr_train(rubato_comm *comm, const struct tr_options *options,
		       const struct tr_data *data, int line_fd, struct tr_error *error)
{
	struct tr_run run = {
		.options = options, .error = error, .comm = comm, .rate = options->rate
	};
	rubato_status err;

	tr_snapshots_open(&run.snapshots);
	run.rank = rubato_rank(comm);
	run.rank_count = rubato_size(comm);
	run.data = data == NULL ? &run.own_data : data;
	run.vectors = &tr_vectors_host; /* Until the device is open. */
	run.ctx = (struct tr_rule_context) { .comm = comm,
					     .vectors = run.vectors,
					     .rank = run.rank,
					     .rank_count = run.rank_count,
					     .optimizer = &run.optimizer,
					     .rate = &run.rate,
					     .rate_applied = -1.0,
					     .error = error };
	err = tr_run_prepare(&run);
	if (err == RUBATO_OK)
		err = train(&run);
	if (err == RUBATO_OK)
		err = tr_run_conclude(&run);
	if (err)
		tr_error_print(error,
			       line_fd); /* Before rubato_finalize, which holds the others back. */
	if (err && !error->shared)
		(void)rubato_abort(comm); /* The others must not wait for this rank. */
	tr_run_close(&run);
	return err;
}
