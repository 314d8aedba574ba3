/*
 * periodic.c -- periodic averaging of models whose period may change on the way (period.h has
 * the schedules). `adpsgd` is `periodic --schedule adp`: Jiang, Agrawal, Adaptive Periodic
 * Averaging, arXiv 2007.06134 (not Lian et al.'s AD-PSGD).
 *
 * S_k needs no message of its own. With u_i the way of rank i since the last average,
 * S = mean |u_i|^2 - |mean u_i|^2: |u_i|^2 rides in the allreduce of the model, and the rest is the
 * same on all ranks. The step's number rides along too: ranks that disagree on the period would
 * average models of different steps, and learn it here.
 */
#include "trainer/rules/global_model.h"
#include "trainer/rules/period.h"

enum extra { EXTRA_DONE, EXTRA_SPREAD, EXTRA_LOSS = EXTRA_SPREAD, EXTRA_COUNT };

struct periodic_options { /* Of adpsgd, too. */
	struct tr_rule_options run;
	struct tr_period_options period;
	struct tr_averaging_options averaging;
};

static const struct tr_option_group groups[] = {
	{ tr_period_rows, offsetof(struct periodic_options, period) },
	TR_AVERAGING_GROUPS(struct periodic_options, averaging),
	{ 0 },
};

static const struct tr_rule_preset adpsgd_presets[] = { { "period", "4" },
							{ "schedule", "adp" },
							{ 0 } };

struct tr_rule_state {
	const struct periodic_options *own;
	struct tr_global_model global;
	struct tr_period period;
	rubato_op *gradient; /* post-local: its mean, in place. */
	double loss_sum;     /* adacomm: over the steps since the last average. */
};

static rubato_status periodic_judge(struct tr_rule_options *options,
				    const struct tr_rule_request *request, struct tr_error *error)
{
	struct periodic_options *own = (struct periodic_options *)options;

	TR_TRY(tr_period_judge(&own->period, request, error));
	return tr_opt_state_judge(request, error);
}

static rubato_status adpsgd_judge(struct tr_rule_options *options,
				  const struct tr_rule_request *request, struct tr_error *error)
{
	const struct periodic_options *own = (const struct periodic_options *)options;

	if (own->period.schedule != TR_SCHEDULE_ADP)
		return tr_refuse(error, "--schedule: adpsgd is periodic --schedule adp");
	return periodic_judge(options, request, error);
}

static void periodic_close(struct tr_rule_state *state)
{
	rubato_op_free(state->gradient);
	tr_global_model_close(&state->global);
}

/* The period of the step that comes next. */
static void show_period(struct tr_rule_state *state)
{
	bool full = tr_period_full(&state->period, state->global.last);

	state->global.ctx->counts.period = full ? 1 : state->period.steps;
}

static rubato_status open_schedule(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->global.ctx;

	tr_period_open(&state->period, &state->own->period, ctx->step_count);
	show_period(state);
	if (state->own->period.schedule != TR_SCHEDULE_POST_LOCAL)
		return RUBATO_OK;
	return tr_check(ctx->error,
			rubato_op_allreduce(ctx->comm, ctx->gradient, ctx->gradient,
					    ctx->parameter_count, RUBATO_FLOAT32, RUBATO_AVG,
					    &state->gradient),
			"op_allreduce of gradients");
}

static rubato_status periodic_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	bool spread;

	state->own = (const struct periodic_options *)ctx->own;
	spread = state->own->period.schedule == TR_SCHEDULE_ADP;
	TR_TRY(tr_global_model_open(&state->global, ctx, NULL, &state->own->averaging, EXTRA_COUNT,
				    spread));
	return open_schedule(state);
}

/* What this rank has to say: |u_i|^2, or its mean loss. */
static double ask(const struct tr_rule_state *state, uint64_t done)
{
	const struct tr_rule_context *ctx = state->global.ctx;
	const float *model = state->global.outer.model;

	if (state->own->period.schedule == TR_SCHEDULE_ADACOMM)
		return state->loss_sum / (double)(done - state->global.last);
	if (state->own->period.schedule != TR_SCHEDULE_ADP)
		return 0.0;
	return ctx->vectors->square_between(ctx->vectors, ctx->parameters, model,
					    ctx->parameter_count);
}

/* And what all do, from the mean of it. */
static void decide(struct tr_rule_state *state, uint64_t done, double mean)
{
	struct tr_rule_context *ctx = state->global.ctx;
	double spread;

	if (state->own->period.schedule == TR_SCHEDULE_ADACOMM)
		tr_period_loss(&state->period, done - 1, mean);
	if (state->own->period.schedule == TR_SCHEDULE_ADP) {
		spread = mean - tr_averaging_square(state->global.averaging);
		tr_period_spread(&state->period, done - 1, spread > 0.0 ? spread : 0.0,
				 tr_rate_at(ctx->rate, done - 1));
	}
	show_period(state);
}

enum why { WHY_DUE, WHY_END };

static rubato_status average(struct tr_rule_state *state, uint64_t done, enum why why)
{
	struct tr_rule_context *ctx = state->global.ctx;
	double extras[EXTRA_COUNT];

	extras[EXTRA_DONE] = (double)done;
	extras[EXTRA_SPREAD] = ask(state, done);
	TR_TRY(tr_global_model_mean(&state->global, done, extras));
	if (extras[EXTRA_DONE] != (double)done)
		return tr_fail(
			ctx->error, RUBATO_ERR_MISMATCH,
			"periodic: an average after step %llu, of ranks after step %g in the "
			"mean",
			(unsigned long long)done, extras[EXTRA_DONE]);
	if (why == WHY_DUE) /* One that was forced came early, and says nothing. */
		decide(state, done, extras[EXTRA_SPREAD]);
	state->loss_sum = 0.0;
	tr_global_model_move(&state->global, done, TR_MOVE_PLAIN);
	return RUBATO_OK;
}

/* post-local, at first: a step of synchronous SGD. */
static rubato_status full_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;
	uint64_t before = rubato_now(ctx->comm);

	TR_TRY(ctx->vectors->start(ctx->vectors, state->gradient, "start of a gradient",
				   ctx->error));
	TR_TRY(tr_check(ctx->error, rubato_wait(state->gradient, RUBATO_TIMEOUT_DEFAULT),
			"wait for a gradient"));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before;
	tr_local_step(ctx, step);
	tr_ledger_step(ctx->ledger, step, tr_rate_at(ctx->rate, step));
	tr_global_model_agree(&state->global, step + 1);
	show_period(state);
	return RUBATO_OK;
}

static rubato_status periodic_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;

	if (tr_period_full(&state->period, step))
		return full_step(state, step);
	tr_local_step(ctx, step);
	state->loss_sum += ctx->loss;
	if (step + 1 - state->global.last < state->period.steps)
		return RUBATO_OK;
	return average(state, step + 1, WHY_DUE);
}

static rubato_status periodic_finish(struct tr_rule_state *state, uint64_t step_count)
{
	struct tr_rule_context *ctx = state->global.ctx;
	/* Mean gradients leave parameters equal, but not the statistics. */
	bool differ = ctx->average_statistics && ctx->statistics_count > 0 && step_count > 0 &&
		      tr_period_full(&state->period, step_count - 1);

	if (step_count == state->global.last && !differ)
		return RUBATO_OK;
	return average(state, step_count, WHY_END);
}

static rubato_status periodic_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	struct tr_rule_context *ctx = state->global.ctx;

	TR_TRY(tr_global_model_keep(&state->global, archive));
	TR_TRY(tr_period_keep(&state->period, archive, ctx->error));
	show_period(state);
	return tr_archive_value(archive, "periodic.loss_sum", state->loss_sum, ctx->error);
}

const struct tr_rule tr_rule_periodic = {
	.name = "periodic",
	.options_bytes = sizeof(struct periodic_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.judge = periodic_judge,
	.open = periodic_open,
	.step = periodic_step,
	.finish = periodic_finish,
	.keep = periodic_keep,
	.close = periodic_close,
};

const struct tr_rule tr_rule_adpsgd = {
	.name = "adpsgd",
	.options_bytes = sizeof(struct periodic_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.presets = adpsgd_presets,
	.judge = adpsgd_judge,
	.open = periodic_open,
	.step = periodic_step,
	.finish = periodic_finish,
	.keep = periodic_keep,
	.close = periodic_close,
};
