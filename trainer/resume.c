/*
 * resume.c -- what a run keeps in a checkpoint, and goes on from.
 *
 * A checkpoint divides a run in two: what is on its way comes to its end, the ranks meet, and what
 * each of them then depends on is kept. So a run that is resumed there goes on as the first one
 * did. Where time is virtual, "as" is meant to the bit: ranks go on at the same distances from each
 * other, on a network that is quiet, and whose chance is drawn anew.
 */
#include "trainer/run.h"

#define QUIET_NS 1000000000u /* Nothing is on the network any more. */

/* All that a rank's next step depends on, and all that the run tells of the steps before. */
static rubato_status keep_run(void *arg, struct tr_archive *archive)
{
	struct tr_run *run = arg;
	const struct tr_rule *rule = run->options->rule;
	uint64_t numbers[] = { run->steps_done, run->reported_step, run->compute_ns,
			       run->kept_ns,    run->kept_bytes,    run->tests_due };
	struct {
		const char *name;
		void *bytes;
		size_t size_bytes;
	} pieces[] = {
		{ "counts", &run->ctx.counts, sizeof(run->ctx.counts) },
		{ "score", &run->score, sizeof(run->score) },
		{ "reported", &run->reported, sizeof(run->reported) },
		{ "numbers", numbers, sizeof(numbers) },
		{ "rate", &run->ctx.rate_applied, sizeof(run->ctx.rate_applied) },
	};

	TR_TRY(tr_archive_vector(archive, "parameters", run->vectors, run->ctx.parameters,
				 run->ctx.parameter_count, run->error));
	TR_TRY(tr_archive_vector(archive, "statistics", run->vectors, run->ctx.statistics,
				 run->ctx.statistics_count, run->error));
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		TR_TRY(tr_archive_bytes(archive, pieces[i].name, pieces[i].bytes,
					pieces[i].size_bytes, run->error));
	run->steps_done = numbers[0];
	run->reported_step = numbers[1];
	run->compute_ns = numbers[2];
	run->kept_ns = numbers[3];
	run->kept_bytes = numbers[4];
	run->tests_due = numbers[5];
	TR_TRY(tr_optimizer_keep(&run->optimizer, archive, run->error));
	TR_TRY(tr_ledger_keep(run->ctx.ledger, archive, run->error));
	TR_TRY(tr_snapshots_keep(&run->snapshots, archive,
				 run->ctx.parameter_count + run->ctx.statistics_count,
				 run->rank == 0, run->error));
	TR_TRY(tr_sampler_keep(run->sampler, archive, run->error));
	/* A rule may need what the others have loaded. */
	return rule->keep == NULL ? RUBATO_OK : rule->keep(run->rule, archive);
}

/* The first checkpoint after local step `step`; one ends the run. */
static uint64_t next_after(const struct tr_run *run, uint64_t step)
{
	uint64_t every = run->options->checkpoint_every, next;

	if (every == 0)
		every = run->shuffle.epoch_steps;
	if (run->options->checkpoint == NULL || step >= run->rate.step_count)
		return UINT64_MAX;
	next = (step / every + 1) * every;
	return next < run->rate.step_count ? next : run->rate.step_count;
}

/* ---- The cut ---- */

/* What is on its way comes to its end. Ranks come to this one by one, and whoever waits here takes
 * part in what the others still wait for: first of all it says that it brings nothing more. */
static rubato_status settle(struct tr_run *run)
{
	const struct tr_rule *rule = run->options->rule;

	TR_TRY(tr_sampler_stop(run->sampler, run->error));
	if (rule->settle != NULL)
		TR_TRY(rule->settle(run->rule, run->steps_done));
	TR_TRY(tr_check(run->error, rubato_barrier(run->comm), "barrier"));
	/* By now nobody waits here: who does counts as ready in the gradients' next round. */
	return tr_sampler_settle(run->sampler, run->error);
}

/* Rank 0 hears how far all are. */
static rubato_status meet(struct tr_run *run)
{
	struct tr_totals mine;

	if (run->channel == NULL)
		return RUBATO_OK;
	TR_TRY(tr_run_totals(run, &mine));
	return tr_totals_sync(run->channel, &mine, run->error);
}

/* Bytes that checkpoints cost are not the run's. */
static rubato_status bytes_reset(struct tr_run *run)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	TR_TRY(tr_check(run->error, rubato_get_stats(run->comm, &stats), "get_stats"));
	run->before_bytes = run->kept_bytes - stats.bytes_sent;
	return RUBATO_OK;
}

static void sleep_until(struct tr_run *run, uint64_t at_ns)
{
	uint64_t now_ns = rubato_now(run->comm);

	if (now_ns < at_ns)
		rubato_sleep(run->comm, at_ns - now_ns);
}

/* From here on the run is the same, whether it was resumed or never interrupted. Ranks set out a
 * nanosecond apart: who is first must not depend on what they did before. */
static rubato_status set_out(struct tr_run *run, uint64_t step)
{
	uint64_t latest_ns = rubato_now(run->comm);

	if (run->options->simulate) {
		TR_TRY(tr_check(run->error,
				rubato_allreduce(run->comm, &latest_ns, &latest_ns, 1,
						 RUBATO_UINT64, RUBATO_MAX),
				"checkpoint: allreduce"));
		sleep_until(run, latest_ns + QUIET_NS);
		rubato_sim_reseed(run->comm, step);
		sleep_until(run, latest_ns + 2 * QUIET_NS + run->rank);
	}
	run->checkpoint_next = next_after(run, step);
	return bytes_reset(run);
}

/* ---- Going on ---- */

rubato_status tr_run_resume(struct tr_run *run)
{
	TR_TRY(tr_checkpoints_begin(&run->checkpoints, keep_run, run, run->error));
	run->checkpoint_next = next_after(run, 0);
	if (tr_checkpoints_step(&run->checkpoints) == 0)
		return RUBATO_OK;
	TR_TRY(bytes_reset(run));
	return meet(run);
}

rubato_status tr_run_set_out(struct tr_run *run)
{
	uint64_t step = tr_checkpoints_step(&run->checkpoints);

	TR_TRY(tr_check(run->error, rubato_barrier(run->comm), "barrier"));
	if (step > 0)
		TR_TRY(set_out(run, step));
	run->before_ns = run->kept_ns;
	run->start_ns = rubato_now(run->comm);
	return RUBATO_OK;
}

/* ---- Keeping ---- */

static rubato_status save(struct tr_run *run, uint64_t step)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };
	uint64_t before_ns, after_ns;

	TR_TRY(settle(run));
	before_ns = rubato_now(run->comm);
	TR_TRY(tr_check(run->error, rubato_get_stats(run->comm, &stats), "get_stats"));
	run->kept_ns = tr_run_elapsed_ns(run);
	run->kept_bytes = run->before_bytes + stats.bytes_sent;
	TR_TRY(meet(run));
	TR_TRY(tr_checkpoints_save(&run->checkpoints, step, keep_run, run, run->error));
	TR_TRY(set_out(run, step));
	after_ns = rubato_now(run->comm);
	run->pause_ns += after_ns - before_ns;
	tr_trace_span(run->ctx.trace, TR_SPAN_PAUSE, before_ns, after_ns, run->steps_done);
	return RUBATO_OK;
}

rubato_status tr_run_checkpoint(struct tr_run *run, const struct tr_batch *batch)
{
	if (tr_sampler_reached(run->sampler, batch) < run->checkpoint_next)
		return RUBATO_OK;
	return save(run, run->checkpoint_next);
}
