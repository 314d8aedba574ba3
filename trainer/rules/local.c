/*
 * local.c -- long stretches of each rank's own optimizer, and an outer one for the global
 * model.
 *
 * Blocking: DiLoCo (Douillard et al., 2023). Every K steps the way d from the global model to the
 * mean of the ranks' models goes to the outer optimizer (outer.h; its sign: -d is the gradient).
 * The inner optimizer's state stays with the rank.
 *
 * --pull a: Overlap-Local-SGD (Wang, Liang, Joshi, 2020). Nobody waits for the mean: every K steps
 * the mean that was begun K steps before has arrived and moves the anchor z, each rank pulls its
 * model x towards it,  x = (1 - a) x + a z,  and the next mean begins. (The paper gives each rank
 * an outer optimizer and averages the anchors; all of outer.h is linear, so one optimizer that gets
 * the mean of the models is the same.) The ranks' models are never equal on the way: a plain
 * average ends the run.
 */
#include <stdlib.h>

#include "trainer/rules/global_model.h"

struct tr_rule_state {
	struct tr_global_model global;
	uint64_t begun;   /* Local steps done when the mean in flight began, */
	uint64_t unbegun; /* or when one did not, because it would have come after the end. */
	bool arrived;     /* It has arrived and was not applied yet. */
};

static void local_close(struct tr_rule_state *state)
{
	if (state == NULL)
		return;
	tr_global_model_close(&state->global);
	free(state);
}

static rubato_status local_open(struct tr_rule_state **out, struct tr_rule_context *ctx)
{
	struct tr_rule_state *state = calloc(1, sizeof(*state));
	rubato_status err;

	if (state == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "local: out of memory");
	err = tr_global_model_open(&state->global, ctx, 0, ctx->own->pull > 0.0);
	if (err) {
		local_close(state);
		return err;
	}
	ctx->counts.period = ctx->own->k;
	*out = state;
	return RUBATO_OK;
}

static void pull(float a, const float *to, float *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] += a * (to[i] - x[i]);
}

static rubato_status wait_for_mean(struct tr_rule_state *state)
{
	struct tr_averaging *averaging = state->global.averaging;

	if (!tr_averaging_in_flight(averaging))
		return RUBATO_OK;
	TR_TRY(tr_averaging_end(averaging, state->global.outer.model, NULL));
	state->arrived = true;
	return RUBATO_OK;
}

/* The anchor moves by the mean that has arrived, and the rank towards the anchor. */
static rubato_status follow(struct tr_rule_state *state, uint64_t done)
{
	struct tr_rule_context *ctx = state->global.ctx;
	struct tr_averaging *averaging = state->global.averaging;
	struct tr_outer_state *outer = &state->global.outer;
	float a = (float)ctx->own->pull;
	uint64_t before = rubato_now(ctx->comm);

	TR_TRY(wait_for_mean(state));
	if (state->arrived) {
		tr_outer_move(outer, tr_rate_at(ctx->rate, state->begun - 1),
			      tr_averaging_parameters(averaging), outer->model);
		tr_global_model_count(&state->global, state->begun);
		state->arrived = false;
		if (tr_averaging_statistics(averaging) != NULL)
			pull(a, tr_averaging_statistics(averaging), ctx->statistics,
			     ctx->statistics_count);
	}
	pull(a, outer->model, ctx->parameters, ctx->parameter_count);
	tr_trace_span(ctx->trace, TR_SPAN_AVERAGE, before, rubato_now(ctx->comm), done);
	return RUBATO_OK;
}

static rubato_status begin_mean(struct tr_rule_state *state, uint64_t done)
{
	state->unbegun = done;
	if (done >= state->global.ctx->step_count)
		return RUBATO_OK;
	state->unbegun = 0;
	state->begun = done;
	return tr_averaging_begin(state->global.averaging, state->global.outer.model, NULL);
}

static rubato_status local_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;
	uint64_t done = step + 1;

	tr_local_step(ctx, step);
	if (done % ctx->own->k != 0)
		return RUBATO_OK;
	if (!(ctx->own->pull > 0.0))
		return tr_global_model_average(&state->global, done, TR_MOVE_OUTER);
	TR_TRY(follow(state, done));
	if (ctx->own->opt_state == TR_STATE_RESET)
		tr_optimizer_reset(ctx->optimizer);
	return begin_mean(state, done);
}

static rubato_status local_finish(struct tr_rule_state *state, uint64_t step_count)
{
	TR_TRY(wait_for_mean(state));
	if (state->arrived)
		TR_TRY(follow(state, step_count));
	if (step_count == state->global.last)
		return RUBATO_OK;
	return tr_global_model_average(&state->global, step_count, TR_MOVE_PLAIN);
}

static rubato_status local_settle(struct tr_rule_state *state, uint64_t step_count)
{
	(void)step_count;
	return wait_for_mean(state); /* So that it can be kept. */
}

static rubato_status local_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	struct tr_rule_context *ctx = state->global.ctx;

	TR_TRY(tr_global_model_keep(&state->global, archive));
	if (!(ctx->own->pull > 0.0))
		return RUBATO_OK;
	TR_TRY(tr_archive_bytes(archive, "local.begun", &state->begun, sizeof(state->begun),
				ctx->error));
	TR_TRY(tr_archive_bytes(archive, "local.unbegun", &state->unbegun, sizeof(state->unbegun),
				ctx->error));
	TR_TRY(tr_archive_bytes(archive, "local.arrived", &state->arrived, sizeof(state->arrived),
				ctx->error));
	TR_TRY(tr_averaging_keep_mean(state->global.averaging, archive));
	if (!tr_archive_loading(archive) || state->unbegun == 0)
		return RUBATO_OK;
	return begin_mean(state, state->unbegun); /* The run goes on after what was its end. */
}

const struct tr_rule tr_rule_local = {
	.name = "local",
	.open = local_open,
	.step = local_step,
	.finish = local_finish,
	.settle = local_settle,
	.keep = local_keep,
	.close = local_close,
};
