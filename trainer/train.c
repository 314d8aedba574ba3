/*
 * train.c -- the training loop.
 *
 *   prepare    data, model, order, compute: local; then all agree that it worked, and alike
 *   train      gradient of the next batch, over to the rule; reports and tests in between
 *   conclude   the rule drains; replicas are compared; final loss, test, --save, summary
 */
#include "trainer/train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/augment.h"
#include "trainer/checkpoint.h"
#include "trainer/compute.h"
#include "trainer/metrics.h"
#include "trainer/npy.h"
#include "trainer/order.h"
#include "trainer/pace.h"
#include "trainer/progress.h"
#include "trainer/replicas.h"
#include "trainer/settings.h"
#include "trainer/snapshots.h"
#include "trainer/tally.h"
#include "trainer/task.h"
#include "trainer/view.h"
#include "trainer/work.h"

struct batch { /* Room for gathered rows. */
	float *x;
	int32_t *labels;
	float *targets;
	float *spare; /* A row. */
};

struct run {
	const struct tr_options *options;
	struct tr_note *note;
	rubato_comm *comm;
	uint32_t rank, rank_count;
	const struct tr_data *data; /* Its own, or one that simulated ranks share. */
	struct tr_data own_data;
	struct tr_model model;
	struct tr_order order;
	struct tr_work *work;
	const struct tr_compute_ops *ops;
	struct tr_compute *compute;
	struct batch batch, eval_batch;
	struct tr_optimizer optimizer;
	struct tr_rate rate;
	struct tr_rule_context ctx;
	struct tr_rule_state *rule;
	struct tr_metrics metrics;
	struct tr_progress progress;
	uint64_t start_ns, pause_ns; /* pause_ns: spent on tests, reports and checkpoints. */
	uint64_t compute_ns;         /* Gathering and computing gradients. */
	uint64_t ready_ns;           /* Meanwhile in the rule's ready(), this step. */
	struct tr_score score;       /* Of all steps of this rank, */
	struct tr_tally reported;    /* and of all ranks, up to the last report. */
	uint64_t steps_done;         /* Here. */
	uint64_t tests_due;          /* --eval-every, so far; of shared work. */
	struct tr_tellers *tellers;  /* A relaxed rule's reports; NULL: reports are collective. */
	struct tr_snapshots snapshots;
	struct tr_checkpoints checkpoints;
	uint64_t told;                    /* `steps_done` at the last report. */
	uint64_t kept_ns;                 /* The time that goes to a checkpoint. */
	uint64_t before_ns, before_bytes; /* Of a resumed run: its time, and what it had sent. */
	double seconds;                   /* Set when the loop is over. */
};

static struct tr_answers answers_of(const struct batch *batch)
{
	return (struct tr_answers) { batch->labels, batch->targets };
}

/* ---- Prepare ---- */

static rubato_status open_batch(struct run *run, struct batch *batch, size_t rows)
{
	batch->x = calloc(rows * run->model.feature_count, sizeof(float));
	batch->labels = calloc(rows, sizeof(int32_t));
	batch->targets = calloc(rows * run->model.output_count, sizeof(float));
	batch->spare = calloc(run->model.feature_count, sizeof(float));
	if (batch->x == NULL || batch->labels == NULL || batch->targets == NULL ||
	    batch->spare == NULL)
		return tr_fail(run->note, RUBATO_ERR_MEMORY, "no memory for batches of %zu", rows);
	return RUBATO_OK;
}

static void close_batch(struct batch *batch)
{
	free(batch->x);
	free(batch->labels);
	free(batch->targets);
	free(batch->spare);
}

static rubato_status first_parameters(struct run *run)
{
	const char *path = run->options->init;
	struct tr_npy array;
	rubato_status err = RUBATO_OK;

	if (path == NULL) {
		tr_model_init(&run->model, run->options->seed, run->ctx.parameters);
		return RUBATO_OK;
	}
	TR_TRY(tr_npy_read(path, &array, run->note));
	if (array.kind != TR_NPY_FLOAT || array.item_bytes != 4 || array.rank != 1)
		err = tr_fail(run->note, RUBATO_ERR_ARGUMENT,
			      "%s: --init wants one flat float32 vector", path);
	else if (array.count != run->model.parameter_count)
		err = tr_fail(run->note, RUBATO_ERR_ARGUMENT,
			      "%s: %llu values, but model %s has %zu parameters here", path,
			      (unsigned long long)array.count, tr_model_name(run->model.kind),
			      run->model.parameter_count);
	else
		memcpy(run->ctx.parameters, array.bytes, array.count * sizeof(float));
	free(array.bytes);
	return err;
}

/* Better refused now than after the training. */
static rubato_status check_save(struct run *run)
{
	const char *path = run->options->save, *slash;
	char folder[4200] = ".";

	if (path == NULL || run->rank != 0)
		return RUBATO_OK;
	slash = strrchr(path, '/');
	if (slash != NULL)
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
	if (access(folder, W_OK | X_OK) != 0)
		return tr_fail(run->note, RUBATO_ERR_SYSTEM, "--save %s: %s", path,
			       strerror(errno));
	return RUBATO_OK;
}

static rubato_status write_parameters(struct run *run, const char *name)
{
	char path[4200];

	TR_TRY(tr_path(path, sizeof(path), run->note, "%s/%s.npy", run->options->out, name));
	return tr_npy_write(path, run->ctx.parameters, run->model.parameter_count, run->note);
}

static rubato_status open_vectors(struct run *run)
{
	size_t size_bytes = run->model.parameter_count * sizeof(float);
	void *parameters, *gradient, *statistics;

	TR_TRY(tr_check(run->note, rubato_alloc(run->comm, size_bytes, &parameters),
			"alloc of the parameters"));
	run->ctx.parameters = parameters;
	TR_TRY(tr_check(run->note, rubato_alloc(run->comm, size_bytes, &gradient),
			"alloc of the gradient"));
	run->ctx.gradient = gradient;
	run->ctx.statistics_count = run->model.statistics_count;
	if (run->model.statistics_count == 0)
		return RUBATO_OK;
	size_bytes = run->model.statistics_count * sizeof(float);
	TR_TRY(tr_check(run->note, rubato_alloc(run->comm, size_bytes, &statistics),
			"alloc of the statistics"));
	run->ctx.statistics = statistics;
	tr_statistics_init(&run->model, statistics);
	return RUBATO_OK;
}

/* Simulated, by --topology (flat: each rank is a node); else by the machine. */
static uint64_t node_of(const struct run *run)
{
	uint32_t ranks = run->options->world.ranks_per_node;
	char boot[64] = "";
	FILE *file;

	if (run->options->simulate)
		return run->rank / (ranks == 0 ? 1 : ranks);
	file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file == NULL || fgets(boot, sizeof(boot), file) == NULL)
		snprintf(boot, sizeof(boot), "rank %u", run->rank); /* Nothing is known: alone. */
	if (file != NULL)
		fclose(file);
	return tr_hash(TR_HASH_INIT, boot, strlen(boot));
}

static rubato_status prepare(struct run *run)
{
	const struct tr_options *o = run->options;
	struct tr_compute_setup setup = { .model = &run->model, .batch = o->batch };

	TR_TRY(check_save(run));
	if (run->data == &run->own_data)
		TR_TRY(tr_task_data(o, &run->own_data, run->note));
	TR_TRY(tr_task_model(o, run->data, &run->model, run->note));
	if (o->augment)
		TR_TRY(tr_augment_check(run->data, run->note));
	TR_TRY(tr_order_open(&run->order, (uint32_t)run->data->train.rows, run->rank,
			     run->rank_count, o->batch, o->seed, o->shuffle, run->note));
	run->rate.step_count = o->epochs > 0 ? o->epochs * run->order.epoch_steps : o->steps;
	run->ctx.parameter_count = run->model.parameter_count;
	run->ctx.step_count = run->rate.step_count;
	run->ctx.seed = o->seed;
	run->ctx.batch = o->batch;
	run->ctx.own = &o->own;
	run->ctx.node = node_of(run);
	TR_TRY(tr_cut_make(&run->ctx.cut, run->model.parameter_count, o->bucket_bytes, run->note));
	TR_TRY(open_vectors(run));
	TR_TRY(first_parameters(run));
	TR_TRY(open_batch(run, &run->batch, o->batch));
	TR_TRY(open_batch(run, &run->eval_batch, TR_EVAL_ROWS));
	TR_TRY(tr_optimizer_open(&run->optimizer, o->optimizer, o->momentum, o->weight_decay,
				 run->model.parameter_count, run->note));
	setup.parameters = run->ctx.parameters;
	setup.gradient = run->ctx.gradient;
	setup.statistics = run->ctx.statistics;
	run->ops = tr_compute_host(run->model.kind);
	return run->ops->open(&run->compute, &setup, run->note);
}

/* What must be the same everywhere for the ranks to be one run. */
static uint64_t settings_hash(const struct run *run)
{
	const struct tr_options *o = run->options;
	uint64_t whole[] = { run->model.kind,
			     run->model.loss,
			     run->model.parameter_count,
			     run->model.feature_count,
			     run->data->train.rows,
			     run->data->test.rows,
			     run->rate.step_count,
			     run->rate.kind,
			     run->rate.every,
			     run->rate.warmup_steps,
			     o->batch,
			     run->ctx.cut.size,
			     o->optimizer,
			     o->pace.kind,
			     o->pace.span_ns,
			     o->eval_every,
			     o->report_every,
			     o->seed,
			     o->shuffle,
			     o->augment };
	double real[] = { run->rate.base, run->rate.factor, o->momentum, o->weight_decay,
			  o->pace.forward };
	uint64_t hash = tr_hash(TR_HASH_INIT, whole, sizeof(whole));

	hash = tr_hash(hash, real, sizeof(real));
	hash = tr_hash(hash, &o->own, sizeof(o->own));
	hash = tr_hash(hash, &o->delay, sizeof(o->delay));
	hash = tr_hash(hash, &run->model.sequence, sizeof(run->model.sequence));
	if (o->pace.kind == TR_PACE_TRACE)
		hash = tr_hash(hash, o->pace.trace_ns, o->pace.trace_count * sizeof(uint64_t));
	return tr_hash(hash, o->rule->name, strlen(o->rule->name));
}

/* Rank 0: opens the files of --out. Where a run begins and what it computes is, with the ledger,
 * all that a replay needs. */
static rubato_status write_beginning(struct run *run)
{
	TR_TRY(tr_metrics_open(&run->metrics, run->options->out,
			       tr_checkpoints_step(&run->checkpoints), run->note));
	if (run->options->out == NULL)
		return RUBATO_OK;
	TR_TRY(tr_settings_write(run->options, &run->model, &run->order, &run->rate, run->note));
	return write_parameters(run, "initial");
}

/* All record what rank 0 writes down: --out is its option alone. */
static rubato_status open_records(struct run *run)
{
	uint8_t wanted = run->options->out != NULL;
	rubato_status err;

	TR_TRY(tr_check(run->note, rubato_broadcast(run->comm, &wanted, 1, RUBATO_UINT8, 0),
			"broadcast of what is written"));
	err = tr_ledger_open(&run->ctx.ledger, wanted, run->rank, run->rank_count, run->note);
	if (err == RUBATO_OK)
		err = tr_trace_open(&run->ctx.trace, wanted, run->note);
	return tr_agree(run->comm, err, run->note);
}

static rubato_status share_preparation(struct run *run)
{
	rubato_status err = prepare(run);
	/* A resumed run may have others than the run before. */
	uint64_t settings, together[] = { run->options->checkpoint != NULL,
					  run->options->checkpoint_every, run->options->resume };

	TR_TRY(tr_agree(run->comm, err, run->note));
	settings = settings_hash(run);
	TR_TRY(tr_agree_equal(run->comm, tr_hash(settings, together, sizeof(together)),
			      "the ranks were started with different options or data", run->note));
	TR_TRY(open_records(run));
	TR_TRY(tr_checkpoints_open(&run->checkpoints, run->comm, run->options->checkpoint,
				   run->options->resume, settings, run->note));
	TR_TRY(tr_check(run->note,
			rubato_broadcast(run->comm, run->ctx.parameters, run->model.parameter_count,
					 RUBATO_FLOAT32, 0),
			"broadcast of the first parameters"));
	err = run->options->rule->open(&run->rule, &run->ctx);
	TR_TRY(tr_agree(run->comm, err, run->note));
	if (run->rank == 0)
		err = write_beginning(run);
	TR_TRY(tr_agree(run->comm, err, run->note));
	err = tr_work_open(&run->work, &run->options->own, &run->order, run->comm,
			   run->rate.step_count, run->note);
	if (err == RUBATO_OK && run->ctx.relaxed)
		err = tr_tellers_open(&run->tellers, run->comm, run->note);
	return tr_agree(run->comm, err, run->note);
}

/* ---- Scores over all ranks ---- */

/* Blocks of rows go round the ranks; the sums are the same on all. */
static rubato_status evaluate(struct run *run, const struct tr_part *part, struct tr_score *out)
{
	struct tr_score mine = { 0 };
	double sums[3];

	for (uint64_t first = (uint64_t)run->rank * TR_EVAL_ROWS; first < part->rows;
	     first += (uint64_t)run->rank_count * TR_EVAL_ROWS) {
		uint64_t left = part->rows - first;
		uint32_t rows = left < TR_EVAL_ROWS ? (uint32_t)left : TR_EVAL_ROWS;

		tr_data_gather(run->data, part, NULL, first, rows, run->eval_batch.x,
			       run->eval_batch.labels, run->eval_batch.targets);
		TR_TRY(run->ops->evaluate(run->compute, run->eval_batch.x,
					  answers_of(&run->eval_batch), rows, &mine, run->note));
	}
	sums[0] = mine.loss;
	sums[1] = (double)mine.correct;
	sums[2] = (double)mine.rows;
	TR_TRY(tr_check(run->note,
			rubato_allreduce(run->comm, sums, sums, 3, RUBATO_FLOAT64, RUBATO_SUM),
			"evaluate: allreduce"));
	*out = (struct tr_score) { sums[0], (uint64_t)sums[1], (uint64_t)sums[2] };
	return RUBATO_OK;
}

static double mean_loss(const struct tr_score *score)
{
	return score->loss / (double)score->rows;
}

static double accuracy(const struct tr_score *score)
{
	return (double)score->correct / (double)score->rows;
}

/* All that this rank has done so far. */
static rubato_status tally(struct run *run, struct tr_tally *mine)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	TR_TRY(tr_check(run->note, rubato_get_stats(run->comm, &stats), "get_stats"));
	*mine = (struct tr_tally) {
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

/* Collective. */
static rubato_status add_up(struct run *run, struct tr_tally *sum)
{
	TR_TRY(tally(run, sum));
	return tr_check(
		run->note,
		rubato_allreduce(run->comm, sum, sum, TR_TALLY_COUNT, RUBATO_FLOAT64, RUBATO_SUM),
		"report: allreduce");
}

static uint64_t elapsed_ns(const struct run *run)
{
	return run->before_ns + rubato_now(run->comm) - run->start_ns - run->pause_ns;
}

static double elapsed(const struct run *run)
{
	return (double)elapsed_ns(run) * 1e-9;
}

/* ---- Checkpoints ---- */

/* All that a rank's next step depends on, and all that the run tells of the steps before. */
static rubato_status keep_run(void *arg, struct tr_archive *archive)
{
	struct run *run = arg;
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

static rubato_status begin_checkpoints(struct run *run)
{
	struct tr_tally mine;

	TR_TRY(tr_checkpoints_begin(&run->checkpoints, keep_run, run, run->note));
	if (run->tellers == NULL || run->steps_done == 0)
		return RUBATO_OK;
	TR_TRY(tally(run, &mine));
	return tr_tellers_resume(run->tellers, &mine, run->note);
}

/* ---- Train ---- */

/* What has happened since the last line; `sum` is of the whole run. */
static struct tr_metrics_line make_line(struct run *run, double seconds, const struct tr_tally *sum)
{
	double ranks = run->rank_count, rows = sum->rows - run->reported.rows;
	double idle = seconds - sum->compute_seconds / ranks;
	struct tr_metrics_line line = {
		.step = run->steps_done,
		.epoch = sum->steps / ranks / (double)run->order.epoch_steps,
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

static void add_test(struct tr_metrics_line *line, const struct tr_score *test)
{
	line->has_test = true;
	line->test_loss = mean_loss(test);
	line->test_accuracy = accuracy(test);
}

static rubato_status diverged(struct run *run, bool shared)
{
	tr_fail(run->note, RUBATO_ERR_ARGUMENT,
		"the loss is not finite after step %llu: the training diverged (a smaller --lr may "
		"help)",
		(unsigned long long)run->steps_done);
	run->note->shared = shared;
	if (shared && run->rank != 0) /* The same on all ranks: one of them says it. */
		run->note->text[0] = '\0';
	return RUBATO_ERR_ARGUMENT;
}

/* Collective: everybody reports at the same steps. */
static rubato_status report_together(struct run *run, double seconds, bool with_test)
{
	struct tr_metrics_line line;
	struct tr_tally sum;
	struct tr_score test;
	float *kept;

	TR_TRY(add_up(run, &sum));
	if (!isfinite(sum.loss))
		return diverged(run, true);
	line = make_line(run, seconds, &sum);
	if (with_test) {
		rubato_status err = tr_view_begin(&run->ctx, &kept);

		if (err == RUBATO_OK)
			err = evaluate(run, &run->data->test, &test);
		tr_view_end(&run->ctx, kept);
		TR_TRY(err);
		add_test(&line, &test);
	}
	return tr_agree(run->comm,
			run->rank == 0 ? tr_metrics_line(&run->metrics, &line, run->note)
				       : RUBATO_OK,
			run->note);
}

/* Nobody waits for anybody: rank 0 writes what it has heard, and tests come after the run. */
static rubato_status report_alone(struct run *run, double seconds, bool with_test)
{
	struct tr_metrics_line line;
	struct tr_tally mine, sum;

	TR_TRY(tally(run, &mine));
	if (!isfinite(mine.loss))
		return diverged(run, false);
	TR_TRY(tr_tellers_tell(run->tellers, &mine, run->note));
	if (run->rank != 0)
		return RUBATO_OK;
	TR_TRY(tr_tellers_sum(run->tellers, &sum, run->note));
	line = make_line(run, seconds, &sum);
	if (with_test)
		TR_TRY(tr_snapshots_take(&run->snapshots, &line, run->ctx.parameters,
					 run->model.parameter_count, run->ctx.statistics,
					 run->ctx.statistics_count, run->note));
	return tr_metrics_line(&run->metrics, &line, run->note);
}

static rubato_status report(struct run *run, bool with_test)
{
	uint64_t before_ns = rubato_now(run->comm), after_ns;

	if (run->tellers == NULL)
		TR_TRY(report_together(run, elapsed(run), with_test));
	else
		TR_TRY(report_alone(run, elapsed(run), with_test));
	after_ns = rubato_now(run->comm);
	run->pause_ns += after_ns - before_ns;
	tr_trace_span(run->ctx.trace, TR_SPAN_PAUSE, before_ns, after_ns, run->steps_done);
	return RUBATO_OK;
}

static rubato_status gradient_ready(void *arg, size_t first)
{
	struct run *run = arg;
	const struct tr_rule *rule = run->options->rule;
	uint64_t before_ns = rubato_now(run->comm);

	if (rule->ready != NULL)
		TR_TRY(rule->ready(run->rule, first));
	run->ready_ns += rubato_now(run->comm) - before_ns;
	return RUBATO_OK;
}

/* Before anything of the gradient is complete: what is late is late for all of it. */
static void suffer_delay(struct run *run, uint64_t step)
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
static rubato_status compute_gradient(struct run *run, uint64_t step, const struct tr_batch *batch)
{
	const struct tr_ready ready = { gradient_ready, run };
	const struct tr_pace *pace = &run->options->pace;
	uint64_t before_ns = rubato_now(run->comm);
	struct tr_score score = { 0 };

	tr_data_gather(run->data, &run->data->train, batch->rows, 0, run->options->batch,
		       run->batch.x, run->batch.labels, run->batch.targets);
	if (run->options->augment)
		tr_augment(run->data, run->options->seed, batch->first_place, run->options->batch,
			   run->batch.x, run->batch.spare);
	run->ready_ns = 0;
	TR_TRY(run->ops->train(run->compute, run->batch.x, answers_of(&run->batch),
			       pace->kind == TR_PACE_NONE ? &ready : NULL, &score, run->note));
	if (pace->kind != TR_PACE_NONE)
		TR_TRY(tr_pace_pass(
			pace, tr_pace_span(pace, run->rank, run->rank_count, step, score.rows),
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
static bool test_is_due(struct run *run, const struct tr_batch *batch)
{
	uint64_t every = run->options->eval_every * run->order.epoch_steps, passed;

	if (every == 0 || run->data->test.rows == 0)
		return false;
	if (run->options->own.work == TR_WORK_STATIC)
		return run->steps_done % every == 0;
	passed = (batch->first_place / run->options->batch + 1) / run->rank_count / every;
	if (passed == run->tests_due)
		return false;
	run->tests_due = passed;
	return true;
}

static bool checkpoint_is_due(const struct run *run)
{
	uint64_t every = run->options->checkpoint_every;

	if (every == 0)
		every = run->order.epoch_steps;
	return run->options->checkpoint != NULL &&
	       (run->steps_done % every == 0 || run->steps_done == run->rate.step_count);
}

static rubato_status save_checkpoint(struct run *run)
{
	uint64_t before_ns = rubato_now(run->comm), after_ns;

	run->kept_ns = elapsed_ns(run);
	TR_TRY(tr_checkpoints_save(&run->checkpoints, run->steps_done, keep_run, run, run->note));
	after_ns = rubato_now(run->comm);
	run->pause_ns += after_ns - before_ns;
	tr_trace_span(run->ctx.trace, TR_SPAN_PAUSE, before_ns, after_ns, run->steps_done);
	return RUBATO_OK;
}

static rubato_status one_step(struct run *run, const struct tr_batch *batch)
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

static rubato_status train(struct run *run)
{
	const struct tr_rule *rule = run->options->rule;
	struct tr_batch batch;

	TR_TRY(begin_checkpoints(run));
	TR_TRY(tr_check(run->note, rubato_barrier(run->comm), "barrier"));
	tr_progress_open(&run->progress, run->rank == 0 && !run->options->quiet, run->steps_done,
			 run->rate.step_count, run->order.epoch_steps,
			 (uint64_t)run->options->batch * run->rank_count);
	run->start_ns = rubato_now(run->comm);
	for (;;) {
		TR_TRY(tr_work_next(run->work, run->steps_done, &batch, run->note));
		if (batch.rows == NULL)
			break;
		if (run->options->own.work == TR_WORK_SHARED)
			tr_ledger_draw(run->ctx.ledger, run->steps_done, batch.first_place,
				       run->options->batch);
		TR_TRY(one_step(run, &batch));
		bool due = test_is_due(run, &batch);
		if (due || run->steps_done % run->options->report_every == 0) {
			TR_TRY(report(run, due));
			run->told = run->steps_done;
		}
		if (checkpoint_is_due(run))
			TR_TRY(save_checkpoint(run));
	}
	if (run->told < run->steps_done)
		TR_TRY(report(run, false));
	TR_TRY(rule->finish(run->rule, run->steps_done));
	run->seconds = elapsed(run);
	tr_progress_close(&run->progress);
	return RUBATO_OK;
}

/* ---- Conclude ---- */

static void fill_summary(const struct run *run, const struct tr_tally *totals,
			 const struct tr_score *train, const struct tr_score *test,
			 struct tr_summary *s)
{
	const struct tr_counts *counts = &run->ctx.counts;
	double rounds = counts->rounds == 0 ? 1.0 : (double)counts->rounds;
	double buckets = counts->buckets == 0 ? 1.0 : (double)counts->buckets;
	double busy = run->seconds > 0.0 ? totals->compute_seconds / run->rank_count / run->seconds
					 : 1.0; /* A simulation in which nothing takes time. */

	*s = (struct tr_summary) {
		.options = run->options,
		.algorithm = run->options->rule->name,
		.model = tr_model_name(run->model.kind),
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
		.final_loss = mean_loss(train),
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
		s->test_loss = mean_loss(test);
		s->test_accuracy = accuracy(test);
	}
}

static void print_result(const struct tr_summary *s)
{
	printf("%s, %s, %u rank%s: loss %.6g", s->model, s->algorithm, s->ranks,
	       s->ranks == 1 ? "" : "s", s->final_loss);
	if (s->has_test && s->reads_text)
		printf(", test perplexity %.4g", exp(s->test_loss));
	else if (s->has_test && s->classify)
		printf(", test accuracy %.2f %%", 100.0 * s->test_accuracy);
	else if (s->has_test)
		printf(", test loss %.6g", s->test_loss);
	printf(", %llu samples in %.1f s (%.0f a second)\n", (unsigned long long)s->samples,
	       s->seconds, s->samples_per_second);
	fflush(stdout);
}

/* Collective. The summary is the last: where it is, the other files are complete. */
static rubato_status write_results(struct run *run, struct tr_summary *summary)
{
	struct tr_tally mine, *per_rank;
	rubato_status err = RUBATO_OK;

	if (run->rank == 0 && run->options->save != NULL)
		err = tr_npy_write(run->options->save, run->ctx.parameters,
				   run->model.parameter_count, run->note);
	if (err == RUBATO_OK && run->rank == 0 && run->options->out != NULL)
		err = write_parameters(run, "final");
	TR_TRY(tr_agree(run->comm, err, run->note));
	TR_TRY(tr_ledger_write(run->ctx.ledger, run->comm, run->options->out, run->note));
	TR_TRY(tr_trace_write(run->ctx.trace, run->comm, run->options->out, run->start_ns,
			      run->note));
	TR_TRY(tally(run, &mine));
	TR_TRY(tr_tally_gather(run->comm, &mine, &per_rank, run->note));
	summary->per_rank = per_rank;
	if (run->rank == 0)
		err = tr_metrics_summary(&run->metrics, summary, run->note);
	free(per_rank);
	return tr_agree(run->comm, err, run->note);
}

static rubato_status test_each_snapshot(struct run *run, uint32_t snapshot_count)
{
	struct tr_snapshot *snapshot = run->snapshots.first;

	for (uint32_t i = 0; i < snapshot_count; i++) {
		struct tr_score test;
		rubato_status err = RUBATO_OK;

		TR_TRY(tr_view_show(&run->ctx, snapshot));
		TR_TRY(evaluate(run, &run->data->test, &test));
		if (run->rank == 0) {
			add_test(&snapshot->line, &test);
			err = tr_metrics_line(&run->metrics, &snapshot->line, run->note);
			snapshot = snapshot->next;
		}
		TR_TRY(tr_agree(run->comm, err, run->note));
	}
	return RUBATO_OK;
}

/* Tests what could not be tested on the way; the last parameters stay. */
static rubato_status test_snapshots(struct run *run)
{
	uint32_t snapshot_count = run->snapshots.count;
	rubato_status err = RUBATO_OK;
	float *kept;

	TR_TRY(tr_check(run->note,
			rubato_broadcast(run->comm, &snapshot_count, 1, RUBATO_UINT32, 0),
			"broadcast of the number of snapshots"));
	if (snapshot_count == 0)
		return RUBATO_OK;
	kept = tr_view_keep(&run->ctx);
	if (kept == NULL)
		err = tr_fail(run->note, RUBATO_ERR_MEMORY, "no memory to test snapshots");
	err = tr_agree(run->comm, err, run->note);
	if (err == RUBATO_OK)
		err = test_each_snapshot(run, snapshot_count);
	tr_view_end(&run->ctx, kept);
	return err;
}

static rubato_status conclude(struct run *run)
{
	struct tr_score train, test = { 0 };
	struct tr_summary summary;
	struct tr_tally totals;

	if (run->tellers != NULL) {
		TR_TRY(tally(run, &totals));
		TR_TRY(tr_tellers_last(run->tellers, &totals, run->note));
	}
	TR_TRY(tr_agree_equal(run->comm,
			      tr_hash(TR_HASH_INIT, run->ctx.parameters,
				      run->model.parameter_count * sizeof(float)),
			      "the ranks' parameters differ at the end of the run", run->note));
	TR_TRY(add_up(run, &totals));
	TR_TRY(test_snapshots(run));
	TR_TRY(tr_view_average_statistics(&run->ctx));
	TR_TRY(evaluate(run, &run->data->train, &train));
	if (run->data->test.rows > 0)
		TR_TRY(evaluate(run, &run->data->test, &test));
	fill_summary(run, &totals, &train, &test, &summary);
	TR_TRY(write_results(run, &summary));
	if (run->rank == 0)
		print_result(&summary);
	return RUBATO_OK;
}

static void close_run(struct run *run)
{
	tr_progress_close(&run->progress);
	tr_work_close(run->work);
	run->options->rule->close(run->rule);
	tr_tellers_close(run->tellers);
	tr_snapshots_close(&run->snapshots);
	tr_ledger_close(run->ctx.ledger);
	tr_trace_close(run->ctx.trace);
	if (run->ops != NULL)
		run->ops->close(run->compute);
	tr_metrics_close(&run->metrics);
	tr_optimizer_close(&run->optimizer);
	close_batch(&run->batch);
	close_batch(&run->eval_batch);
	tr_order_close(&run->order);
	tr_data_close(&run->own_data);
	(void)rubato_free(run->comm, run->ctx.statistics);
	(void)rubato_free(run->comm, run->ctx.gradient);
	(void)rubato_free(run->comm, run->ctx.parameters);
}

rubato_status tr_train(rubato_comm *comm, const struct tr_options *options,
		       const struct tr_data *data, int line_fd, struct tr_note *note)
{
	struct run run = { .options = options, .note = note, .comm = comm, .rate = options->rate };
	rubato_status err;

	tr_snapshots_open(&run.snapshots);
	run.rank = rubato_rank(comm);
	run.rank_count = rubato_size(comm);
	run.data = data == NULL ? &run.own_data : data;
	run.ctx = (struct tr_rule_context) { .comm = comm,
					     .rank = run.rank,
					     .rank_count = run.rank_count,
					     .optimizer = &run.optimizer,
					     .rate = &run.rate,
					     .rate_applied = -1.0,
					     .note = note };
	err = share_preparation(&run);
	if (err == RUBATO_OK)
		err = train(&run);
	if (err == RUBATO_OK)
		err = conclude(&run);
	if (err)
		tr_say(note, line_fd); /* Before rubato_finalize, which holds the others back. */
	if (err && !note->shared)
		(void)rubato_abort(comm); /* The others must not wait for this rank. */
	close_run(&run);
	return err;
}
