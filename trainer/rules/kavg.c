/*
 * kavg.c -- K-AVG: K steps of each rank's own, then all go on from the mean of their models
 * (Zhou, Cong, IJCAI 2018; with reduction momentum, --outer: Cong, Yang, Zhou, ICPP-W 2019). It
 * averages after K, 2 K, ... steps; --k 1 is synchronous SGD.
 */
#include "trainer/rules/global_model.h"

struct kavg_options {
	struct tr_rule_options run;
	uint64_t k; /* Local steps between averages. */
	struct tr_outer_options outer;
	struct tr_averaging_options averaging;
};

static const struct tr_option_group groups[] = {
	{ tr_interval_rows, offsetof(struct kavg_options, k) },
	{ tr_outer_rows, offsetof(struct kavg_options, outer) },
	TR_AVERAGING_GROUPS(struct kavg_options, averaging),
	{ 0 },
};

struct tr_rule_state {
	const struct kavg_options *own;
	struct tr_global_model global;
};

static rubato_status kavg_judge(struct tr_rule_options *options,
				const struct tr_rule_request *request, struct tr_error *error)
{
	struct kavg_options *own = (struct kavg_options *)options;

	TR_TRY(tr_outer_judge(&own->outer, request, error));
	return tr_opt_state_judge(request, error);
}

static void kavg_close(struct tr_rule_state *state)
{
	tr_global_model_close(&state->global);
}

static rubato_status kavg_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	state->own = (const struct kavg_options *)ctx->own;
	ctx->counts.period = state->own->k;
	return tr_global_model_open(&state->global, ctx, &state->own->outer, &state->own->averaging,
				    0, false);
}

static rubato_status kavg_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;

	tr_local_step(ctx, step);
	if ((step + 1) % state->own->k != 0)
		return RUBATO_OK;
	return tr_global_model_average(&state->global, step + 1, TR_MOVE_OUTER);
}

static rubato_status kavg_finish(struct tr_rule_state *state, uint64_t step_count)
{
	if (step_count == state->global.last)
		return RUBATO_OK;
	return tr_global_model_average(&state->global, step_count, TR_MOVE_PLAIN);
}

static rubato_status kavg_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	return tr_global_model_keep(&state->global, archive);
}

const struct tr_rule tr_rule_kavg = {
	.name = "kavg",
	.options_bytes = sizeof(struct kavg_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.judge = kavg_judge,
	.open = kavg_open,
	.step = kavg_step,
	.finish = kavg_finish,
	.keep = kavg_keep,
	.close = kavg_close,
};
