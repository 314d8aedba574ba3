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
#include "trainer/rules/global_model.h"

struct local_options {
	struct tr_rule_options run;
	uint64_t k; /* Local steps between averages. */
	struct tr_outer_options outer;
	struct tr_averaging_options averaging;
	double pull; /* Overlap-Local-SGD's pull-back; 0: not overlapped. */
};

#define AT(member) offsetof(struct local_options, member)

static const struct option rows[] = {
	{ "pull", .kind = OPTION_REAL, .at = AT(pull), .value = "X", .most = 1.0, .preset = "0",
	  .help = "Overlap-Local-SGD with this pull-back; 0: blocking", .key = "pull" },
	{ 0 },
};

static const struct tr_option_group groups[] = {
	{ tr_interval_rows, AT(k) },
	{ tr_outer_rows, AT(outer) },
	TR_AVERAGING_GROUPS(struct local_options, averaging),
	{ rows, 0 },
	{ 0 },
};

static const struct tr_rule_preset presets[] = { { "k", "32" },
						 { "nesterov-base", "shifted" },
						 { 0 } };

struct tr_rule_state {
	const struct local_options *own;
	struct tr_global_model global;
	uint64_t begun;   /* Local steps done when the mean in flight began, */
	uint64_t unbegun; /* or when one did not, because it would have come after the end. */
	bool arrived;     /* It has arrived and was not applied yet. */
};

static rubato_status local_judge(struct tr_rule_options *options,
				 const struct tr_rule_request *request, struct tr_error *error)
{
	struct local_options *own = (struct local_options *)options;
	bool nesterov = own->outer.kind == TR_OUTER_NESTEROV;

	if (nesterov && !options_given(request->words, "outer-momentum"))
		own->outer.momentum = 0.9; /* DiLoCo's. */
	if (nesterov && !options_given(request->words, "outer-lr"))
		own->outer.lr = 0.7;
	TR_TRY(tr_outer_judge(&own->outer, request, error));
	if (own->pull > 0.0 && nesterov)
		return tr_refuse(error, "--pull: the anchor's --outer is none, block or slowmo");
	if (own->pull > 0.0 && own->averaging.opt_state == TR_STATE_AVERAGE)
		return tr_refuse(error, "--pull: a mean of optimizer states would come late: "
					"--opt-state local or reset");
	return tr_opt_state_judge(request, error);
}

static void local_close(struct tr_rule_state *state)
{
	tr_global_model_close(&state->global);
}

static rubato_status local_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	state->own = (const struct local_options *)ctx->own;
	ctx->counts.period = state->own->k;
	return tr_global_model_open(&state->global, ctx, &state->own->outer, &state->own->averaging,
				    0, state->own->pull > 0.0);
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
	const struct tr_vectors *v = ctx->vectors;
	float a = (float)state->own->pull;
	uint64_t before = rubato_now(ctx->comm);

	TR_TRY(wait_for_mean(state));
	if (state->arrived) {
		tr_outer_move(outer, tr_rate_at(ctx->rate, state->begun - 1),
			      tr_averaging_parameters(averaging), outer->model);
		tr_global_model_count(&state->global, state->begun);
		state->arrived = false;
		if (tr_averaging_statistics(averaging) != NULL)
			v->approach(v, ctx->statistics, a, tr_averaging_statistics(averaging),
				    ctx->statistics_count);
	}
	v->approach(v, ctx->parameters, a, outer->model, ctx->parameter_count);
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
	if (done % state->own->k != 0)
		return RUBATO_OK;
	if (!(state->own->pull > 0.0))
		return tr_global_model_average(&state->global, done, TR_MOVE_OUTER);
	TR_TRY(follow(state, done));
	if (state->own->averaging.opt_state == TR_STATE_RESET)
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
	if (!(state->own->pull > 0.0))
		return RUBATO_OK;
	TR_TRY(tr_archive_value(archive, "local.begun", state->begun, ctx->error));
	TR_TRY(tr_archive_value(archive, "local.unbegun", state->unbegun, ctx->error));
	TR_TRY(tr_archive_value(archive, "local.arrived", state->arrived, ctx->error));
	TR_TRY(tr_averaging_keep_mean(state->global.averaging, archive));
	if (!tr_archive_loading(archive) || state->unbegun == 0)
		return RUBATO_OK;
	return begin_mean(state, state->unbegun); /* The run goes on after what was its end. */
}

const struct tr_rule tr_rule_local = {
	.name = "local",
	.options_bytes = sizeof(struct local_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.presets = presets,
	.judge = local_judge,
	.open = local_open,
	.step = local_step,
	.finish = local_finish,
	.settle = local_settle,
	.keep = local_keep,
	.close = local_close,
};
