/*
 * kavg.c -- K-AVG: K steps of each rank's own, then all go on from the mean of their models
 * (Zhou, Cong, IJCAI 2018; with reduction momentum, --outer: Cong, Yang, Zhou, ICPP-W 2019). It
 * averages after K, 2 K, ... steps; --k 1 is synchronous SGD.
 */
#include <stdlib.h>

#include "trainer/rules/global_model.h"

struct tr_rule_state {
	struct tr_global_model global;
};

static void kavg_close(struct tr_rule_state *state)
{
	if (state == NULL)
		return;
	tr_global_model_close(&state->global);
	free(state);
}

static rubato_status kavg_open(struct tr_rule_state **out, struct tr_rule_context *ctx)
{
	struct tr_rule_state *state = calloc(1, sizeof(*state));
	rubato_status err;

	if (state == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "kavg: out of memory");
	err = tr_global_model_open(&state->global, ctx, 0, false);
	if (err) {
		kavg_close(state);
		return err;
	}
	ctx->counts.period = ctx->own->k;
	*out = state;
	return RUBATO_OK;
}

static rubato_status kavg_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;

	tr_local_step(ctx, step);
	if ((step + 1) % ctx->own->k != 0)
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
	.open = kavg_open,
	.step = kavg_step,
	.finish = kavg_finish,
	.keep = kavg_keep,
	.close = kavg_close,
};
