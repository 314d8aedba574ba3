/* scores.c -- how good the model is and what the run has done, over all ranks. */
#include "trainer/run.h"

struct tr_answers tr_answers_of(const struct tr_batch_buffers *batch)
{
	return (struct tr_answers) { batch->labels, batch->targets };
}

rubato_status tr_run_evaluate(struct tr_run *run, const struct tr_part *part, uint64_t rows,
			      const char *what, struct tr_score *out)
{
	struct tr_score mine = { 0 };
	uint32_t order[TR_EVAL_ROWS];
	double sums[3];

	for (uint64_t first = (uint64_t)run->rank * TR_EVAL_ROWS; first < rows;
	     first += (uint64_t)run->rank_count * TR_EVAL_ROWS) {
		uint64_t left = rows - first;
		uint32_t count = left < TR_EVAL_ROWS ? (uint32_t)left : TR_EVAL_ROWS;

		for (uint32_t i = 0; i < count; i++)
			order[i] = (uint32_t)((first + i) * part->rows / rows);
		tr_data_gather(run->data, part, order, 0, count, run->eval_batch.x,
			       run->eval_batch.labels, run->eval_batch.targets);
		TR_TRY(run->ops->evaluate(run->compute, run->eval_batch.x,
					  tr_answers_of(&run->eval_batch), count, &mine,
					  run->error));
		if (what != NULL)
			tr_progress_rows(&run->progress, what, first + count, rows);
	}
	sums[0] = mine.loss;
	sums[1] = (double)mine.correct;
	sums[2] = (double)mine.rows;
	TR_TRY(tr_check(run->error,
			rubato_allreduce(run->comm, sums, sums, 3, RUBATO_FLOAT64, RUBATO_SUM),
			"evaluate: allreduce"));
	*out = (struct tr_score) { sums[0], (uint64_t)sums[1], (uint64_t)sums[2] };
	return RUBATO_OK;
}

double tr_mean_loss(const struct tr_score *score)
{
	return score->loss / (double)score->rows;
}

double tr_accuracy(const struct tr_score *score)
{
	return (double)score->correct / (double)score->rows;
}

rubato_status tr_run_totals(struct tr_run *run, struct tr_totals *mine)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	TR_TRY(tr_check(run->error, rubato_get_stats(run->comm, &stats), "get_stats"));
	*mine = (struct tr_totals) {
		.steps = (double)run->steps_done,
		.samples = (double)run->steps_done * run->options->batch,
		.loss = run->score.loss,
		.correct = (double)run->score.correct,
		.rows = (double)run->score.rows,
		.compute_seconds = (double)run->compute_ns * 1e-9,
		.communication_seconds = (double)run->ctx.counts.communication_ns * 1e-9,
		.reductions = (double)run->ctx.counts.global_reductions,
		.seconds = run->seconds,
		.bytes_sent = (double)(run->before_bytes + stats.bytes_sent +
				       run->ctx.counts.group_bytes),
	};
	return RUBATO_OK;
}

rubato_status tr_run_add_up(struct tr_run *run, struct tr_totals *sum)
{
	TR_TRY(tr_run_totals(run, sum));
	return tr_check(
		run->error,
		rubato_allreduce(run->comm, sum, sum, TR_TOTALS_COUNT, RUBATO_FLOAT64, RUBATO_SUM),
		"report: allreduce");
}

uint64_t tr_run_elapsed_ns(const struct tr_run *run)
{
	return run->before_ns + rubato_now(run->comm) - run->start_ns - run->pause_ns;
}

double tr_run_elapsed(const struct tr_run *run)
{
	return (double)tr_run_elapsed_ns(run) * 1e-9;
}

void tr_line_add_test(struct tr_metrics_line *line, const struct tr_score *test)
{
	line->has_test = true;
	line->test_loss = tr_mean_loss(test);
	line->test_accuracy = tr_accuracy(test);
}
