/* resume.c -- what a run keeps in a checkpoint, and goes on from. */
#include "trainer/run.h"

/* All that a rank's next step depends on, and all that the run tells of the steps before. */
static rubato_status keep_run(void *arg, struct tr_archive *archive)
{
	struct tr_run *run = arg;
	const struct tr_rule *rule = run->options->rule;
	rubato_stats stats = { .size_bytes = sizeof(stats) };
	uint64_t numbers[6];
	struct {
		const char *name;
		void *bytes;
		size_t size_bytes;
	} pieces[] = {
		{ "parameters", run->ctx.parameters, run->ctx.parameter_count * sizeof(float) },
		{ "statistics", run->ctx.statistics, run->ctx.statistics_count * sizeof(float) },
		{ "counts", &run->ctx.counts, sizeof(run->ctx.counts) },
		{ "score", &run->score, sizeof(run->score) },
		{ "reported", &run->reported, sizeof(run->reported) },
		{ "numbers", numbers, sizeof(numbers) },
		{ "rate", &run->ctx.rate_applied, sizeof(run->ctx.rate_applied) },
	};

	TR_TRY(tr_check(run->note, rubato_get_stats(run->comm, &stats), "get_stats"));
	/* A rule may change what the others save, and may need what they have loaded. */
	if (rule->keep != NULL && !tr_archive_loading(archive))
		TR_TRY(rule->keep(run->rule, archive));
	numbers[0] = run->steps_done;
	numbers[1] = run->told;
	numbers[2] = run->compute_ns;
	numbers[3] = run->kept_ns;
	numbers[4] = run->before_bytes + stats.bytes_sent;
	numbers[5] = run->tests_due;
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		TR_TRY(tr_archive_bytes(archive, pieces[i].name, pieces[i].bytes,
					pieces[i].size_bytes, run->note));
	TR_TRY(tr_optimizer_keep(&run->optimizer, archive, run->note));
	TR_TRY(tr_ledger_keep(run->ctx.ledger, archive, run->note));
	TR_TRY(tr_snapshots_keep(&run->snapshots, archive, run->ctx.parameter_count,
				 run->ctx.statistics_count, run->rank == 0, run->note));
	if (!tr_archive_loading(archive))
		return RUBATO_OK;
	if (rule->keep != NULL)
		TR_TRY(rule->keep(run->rule, archive));
	run->steps_done = numbers[0];
	run->told = numbers[1];
	run->compute_ns = numbers[2];
	run->before_ns = numbers[3];
	run->tests_due = numbers[5];
	run->before_bytes = numbers[4] - stats.bytes_sent;
	return RUBATO_OK;
}

rubato_status tr_run_resume(struct tr_run *run)
{
	struct tr_tally mine;

	TR_TRY(tr_checkpoints_begin(&run->checkpoints, keep_run, run, run->note));
	if (run->tellers == NULL || run->steps_done == 0)
		return RUBATO_OK;
	TR_TRY(tr_run_tally(run, &mine));
	return tr_tellers_resume(run->tellers, &mine, run->note);
}

bool tr_run_checkpoint_is_due(const struct tr_run *run)
{
	uint64_t every = run->options->checkpoint_every;

	if (every == 0)
		every = run->order.epoch_steps;
	return run->options->checkpoint != NULL &&
	       (run->steps_done % every == 0 || run->steps_done == run->rate.step_count);
}

rubato_status tr_run_checkpoint(struct tr_run *run)
{
	uint64_t before_ns = rubato_now(run->comm), after_ns;

	run->kept_ns = tr_run_elapsed_ns(run);
	TR_TRY(tr_checkpoints_save(&run->checkpoints, run->steps_done, keep_run, run, run->note));
	after_ns = rubato_now(run->comm);
	run->pause_ns += after_ns - before_ns;
	tr_trace_span(run->ctx.trace, TR_SPAN_PAUSE, before_ns, after_ns, run->steps_done);
	return RUBATO_OK;
}
