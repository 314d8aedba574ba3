/* prepare.c -- what a run needs before its first step; and what it gives back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/agree.h"
#include "trainer/base/npy.h"
#include "trainer/data/augment.h"
#include "trainer/run.h"
#include "trainer/settings.h"
#include "trainer/train.h"

static rubato_status open_batch(struct tr_run *run, struct tr_batch_buffers *batch, size_t rows)
{
	batch->x = calloc(rows * run->model.feature_count, sizeof(float));
	batch->labels = calloc(rows, sizeof(int32_t));
	batch->targets = calloc(rows * run->model.output_count, sizeof(float));
	batch->spare = calloc(run->model.feature_count, sizeof(float));
	if (batch->x == NULL || batch->labels == NULL || batch->targets == NULL ||
	    batch->spare == NULL)
		return tr_fail(run->error, RUBATO_ERR_MEMORY, "no memory for batches of %zu", rows);
	return RUBATO_OK;
}

static rubato_status first_parameters(struct tr_run *run)
{
	const char *path = run->options->init;
	struct tr_npy array;
	rubato_status err = RUBATO_OK;
	float *drawn;

	if (path == NULL) {
		TR_TRY(tr_vectors_map(run->vectors, run->ctx.parameters, run->model.parameter_count,
				      &drawn, run->error));
		tr_model_init(&run->model, run->options->seed, drawn);
		tr_vectors_unmap(run->vectors, run->ctx.parameters, run->model.parameter_count,
				 drawn, true);
		return RUBATO_OK;
	}
	TR_TRY(tr_npy_read(path, &array, run->error));
	if (array.kind != TR_NPY_FLOAT || array.rank != 1)
		err = tr_fail(run->error, RUBATO_ERR_ARGUMENT,
			      "%s: --init needs one flat vector of floats", path);
	else if (array.count != run->model.parameter_count)
		err = tr_fail(run->error, RUBATO_ERR_ARGUMENT,
			      "%s: %llu values, but model %s has %zu parameters here", path,
			      (unsigned long long)array.count, tr_model_names[run->model.kind],
			      run->model.parameter_count);
	else if ((err = tr_npy_float32(&array, path, run->error)) == RUBATO_OK) {
		run->vectors->put(run->vectors, run->ctx.parameters, (const float *)array.bytes,
				  array.count);
		run->init_hash = tr_hash(TR_HASH_INIT, array.bytes, array.count * sizeof(float));
	}
	free(array.bytes);
	return err;
}

/* Better refused now than after the training. */
static rubato_status check_save(struct tr_run *run)
{
	const char *path = run->options->save, *slash;
	char folder[TR_PATH_BYTES] = ".";
	struct stat there;

	if (path == NULL || run->rank != 0)
		return RUBATO_OK;
	if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
		return tr_fail(run->error, RUBATO_ERR_SYSTEM, "--save %s: %s", path,
			       strerror(EISDIR));
	slash = strrchr(path, '/');
	if (slash != NULL)
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
	if (access(folder, W_OK | X_OK) != 0)
		return tr_fail(run->error, RUBATO_ERR_SYSTEM, "--save %s: %s", path,
			       strerror(errno));
	return RUBATO_OK;
}

rubato_status tr_run_write_parameters(struct tr_run *run, const char *path)
{
	size_t count = run->model.parameter_count;
	float *parameters;
	rubato_status err;

	TR_TRY(tr_vectors_map(run->vectors, run->ctx.parameters, count, &parameters, run->error));
	err = tr_npy_write(path, parameters, count, run->error);
	tr_vectors_unmap(run->vectors, run->ctx.parameters, count, parameters, false);
	return err;
}

rubato_status tr_run_write_out(struct tr_run *run, const char *name)
{
	char path[TR_PATH_BYTES];

	TR_TRY(tr_path(path, run->error, "%s/%s.npy", run->options->out, name));
	return tr_run_write_parameters(run, path);
}

static rubato_status open_vectors(struct tr_run *run)
{
	const struct tr_vectors *v = run->vectors;
	size_t count = run->model.statistics_count;
	float *statistics;

	TR_TRY(v->make(v, run->comm, run->model.parameter_count, "alloc of the parameters",
		       &run->ctx.parameters, run->error));
	TR_TRY(v->make(v, run->comm, run->model.parameter_count, "alloc of the gradient",
		       &run->ctx.gradient, run->error));
	run->ctx.statistics_count = count;
	if (count == 0)
		return RUBATO_OK;
	TR_TRY(v->make(v, run->comm, count, "alloc of the statistics", &run->ctx.statistics,
		       run->error));
	TR_TRY(tr_vectors_map(v, run->ctx.statistics, count, &statistics, run->error));
	tr_statistics_init(&run->model, statistics);
	tr_vectors_unmap(v, run->ctx.statistics, count, statistics, true);
	return RUBATO_OK;
}

/* Simulated, by --topology (flat: each rank is a node); else by the machine. */
static uint64_t node_of(const struct tr_run *run)
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

static rubato_status open_data(const struct tr_options *options, struct tr_data *data,
			       struct tr_error *error)
{
	if (!tr_model_reads_text(options->model))
		return tr_data_open(data, options->data, options->seed, error);
	return tr_text_open(data, strchr(options->data, ':') + 1,
			    options->model == TR_LSTM ? TR_TEXT_LINES : TR_TEXT_BLOCKS,
			    options->sequence.length, error);
}

rubato_status tr_load_data(const struct tr_options *options, struct tr_data *data,
			   struct tr_error *error)
{
	TR_TRY(open_data(options, data, error));
	data->hash = tr_data_hash(data);
	return RUBATO_OK;
}

static rubato_status build_model(const struct tr_options *options, const struct tr_data *data,
				 struct tr_model *model, struct tr_error *error)
{
	struct tr_sequence sequence = options->sequence;

	if (!tr_model_reads_text(options->model))
		return tr_model_build(model, options->model, data->loss, data->shape,
				      data->output_count, options->hidden_count, error);
	sequence.length = data->shape.width - 1; /* Lines may be shorter. */
	sequence.vocabulary = data->output_count;
	return tr_model_build_text(model, options->model, &sequence, error);
}

static rubato_status prepare(struct tr_run *run)
{
	const struct tr_options *o = run->options;
	struct tr_compute_setup setup = { .model = &run->model, .batch = o->batch };

	TR_TRY(check_save(run));
	TR_TRY(tr_run_open_device(run));
	TR_TRY(tr_delay_check(&o->delay, run->rank_count, run->error));
	if (run->data == &run->own_data)
		TR_TRY(tr_load_data(o, &run->own_data, run->error));
	TR_TRY(build_model(o, run->data, &run->model, run->error));
	if (o->eval_every > 0 && run->data->test.rows == 0)
		return tr_refuse(run->error, "--eval-every: these data have no test set");
	if (o->augment)
		TR_TRY(tr_augment_check(run->data, run->error));
	TR_TRY(tr_shuffle_open(&run->shuffle, (uint32_t)run->data->train.rows, run->rank,
			       run->rank_count, o->batch, o->seed, !o->no_shuffle, run->error));
	run->rate.step_count = o->epochs > 0 ? o->epochs * run->shuffle.epoch_steps : o->steps;
	run->ctx.parameter_count = run->model.parameter_count;
	run->ctx.step_count = run->rate.step_count;
	run->ctx.seed = o->seed;
	run->ctx.batch = o->batch;
	run->ctx.own = o->own;
	run->ctx.bn = o->bn;
	run->ctx.clip = o->clip;
	run->ctx.node = node_of(run);
	TR_TRY(tr_cut_make(&run->ctx.cut, run->model.parameter_count, o->bucket_bytes, run->error));
	TR_TRY(open_vectors(run));
	TR_TRY(first_parameters(run));
	TR_TRY(open_batch(run, &run->batch, o->batch));
	TR_TRY(open_batch(run, &run->eval_batch, TR_EVAL_ROWS));
	TR_TRY(tr_optimizer_open(&run->optimizer, run->vectors, o->optimizer, o->momentum,
				 o->weight_decay, run->model.parameter_count, run->error));
	setup.parameters = run->ctx.parameters;
	setup.gradient = run->ctx.gradient;
	setup.statistics = run->ctx.statistics;
	setup.device = run->cuda;
	setup.precision = o->precision;
	return tr_compute_open(&run->compute, run->ops, &setup, run->error);
}

/* Rank 0. A checkpoint takes the place of the first parameters, and may be refused: till then
 * nothing of an older run's is touched. */
static rubato_status keep_first(struct tr_run *run)
{
	size_t count = run->model.parameter_count;

	if (run->options->out == NULL)
		return RUBATO_OK;
	TR_TRY(tr_metrics_folder(run->options->out, run->error));
	run->first = malloc(count * sizeof(*run->first));
	if (run->first == NULL)
		return tr_fail(run->error, RUBATO_ERR_MEMORY, "no memory for initial.npy");
	run->vectors->get(run->vectors, run->first, run->ctx.parameters, count);
	return run->vectors->wait(run->vectors, run->error);
}

/* Rank 0: where a run begins and what it computes is, with the ledger, all that a replay needs. */
static rubato_status write_beginning(struct tr_run *run)
{
	char path[TR_PATH_BYTES];
	rubato_status err;

	if (run->options->out == NULL)
		return RUBATO_OK;
	TR_TRY(tr_metrics_clear(run->options->out, run->error));
	run->goes_on = !tr_settings_other(run->options, &run->model, &run->shuffle, &run->rate);
	TR_TRY(tr_settings_write(run->options, &run->model, &run->shuffle, &run->rate, run->error));
	TR_TRY(tr_path(path, run->error, "%s/initial.npy", run->options->out));
	err = tr_npy_write(path, run->first, run->model.parameter_count, run->error);
	free(run->first);
	run->first = NULL;
	return err;
}

/* All record what rank 0 writes down: --out is its option alone. */
static rubato_status open_records(struct tr_run *run)
{
	uint8_t wanted = run->options->out != NULL;
	rubato_status err;

	TR_TRY(tr_check(run->error, rubato_broadcast(run->comm, &wanted, 1, RUBATO_UINT8, 0),
			"broadcast of what is written"));
	if (!wanted && run->options->for_out != NULL)
		return tr_agree(run->comm,
				tr_refuse(run->error,
					  "%s: it is for the files of --out, which is not given",
					  run->options->for_out),
				run->error);
	err = tr_ledger_open(&run->ctx.ledger, wanted, run->rank, run->rank_count, run->error);
	if (err == RUBATO_OK)
		err = tr_trace_open(&run->ctx.trace, wanted, run->error);
	return tr_agree(run->comm, err, run->error);
}

rubato_status tr_run_prepare(struct tr_run *run)
{
	rubato_status err = prepare(run);
	/* A resumed run may have others than the run before. */
	uint64_t settings,
		together[] = { run->options->checkpoint != NULL, run->options->checkpoint_every,
			       run->options->resume, run->rate.step_count };

	TR_TRY(tr_agree(run->comm, err, run->error));
	settings = tr_settings_hash(run->options, &run->model, run->data);
	settings = tr_hash(settings, &run->init_hash, sizeof(run->init_hash));
	TR_TRY(tr_agree_equal(run->comm, tr_hash(settings, together, sizeof(together)),
			      "the ranks were started with different options or data", run->error));
	TR_TRY(open_records(run));
	TR_TRY(tr_checkpoints_open(
		&run->checkpoints, run->comm, run->options->checkpoint, run->options->resume,
		settings, tr_settings_network(run->options), run->rate.step_count, run->error));
	TR_TRY(run->vectors->wait(run->vectors, run->error));
	TR_TRY(tr_check(run->error,
			rubato_broadcast(run->comm, run->ctx.parameters, run->model.parameter_count,
					 RUBATO_FLOAT32, 0),
			"broadcast of the first parameters"));
	err = tr_rule_open(&run->rule, run->options->rule, &run->ctx);
	TR_TRY(tr_agree(run->comm, err, run->error));
	if (run->rank == 0)
		err = keep_first(run);
	TR_TRY(tr_agree(run->comm, err, run->error));
	err = tr_sampler_open(&run->sampler, run->options->own->sampler,
			      run->options->own->gradient_depth, &run->shuffle, run->comm,
			      run->rate.step_count, run->error);
	if (err == RUBATO_OK && run->ctx.relaxed)
		err = tr_totals_channel_open(&run->channel, run->comm, run->error);
	TR_TRY(tr_agree(run->comm, err, run->error));
	TR_TRY(tr_run_resume(run));
	if (run->rank == 0)
		err = write_beginning(run);
	if (run->rank == 0 && err == RUBATO_OK) /* Tests that come after the run come again. */
		err = tr_metrics_open(&run->metrics, run->options->out,
				      run->goes_on ? run->reported_step : 0, !run->ctx.relaxed,
				      run->error);
	return tr_agree(run->comm, err, run->error);
}

/* ---- The end ---- */

static void close_batch(struct tr_batch_buffers *batch)
{
	free(batch->x);
	free(batch->labels);
	free(batch->targets);
	free(batch->spare);
}

void tr_run_close(struct tr_run *run)
{
	tr_progress_close(&run->progress);
	tr_sampler_close(run->sampler);
	tr_rule_close(run->options->rule, run->rule);
	tr_totals_channel_close(run->channel);
	tr_checkpoints_close(&run->checkpoints);
	free(run->first);
	tr_snapshots_close(&run->snapshots);
	tr_ledger_close(run->ctx.ledger);
	tr_trace_close(run->ctx.trace);
	tr_compute_close(run->ops, run->compute);
	tr_metrics_close(&run->metrics);
	tr_optimizer_close(&run->optimizer);
	close_batch(&run->batch);
	close_batch(&run->eval_batch);
	tr_shuffle_close(&run->shuffle);
	tr_data_close(&run->own_data);
	run->vectors->free(run->vectors, run->comm, run->ctx.statistics);
	run->vectors->free(run->vectors, run->comm, run->ctx.gradient);
	run->vectors->free(run->vectors, run->comm, run->ctx.parameters);
	tr_run_close_device(run);
}
