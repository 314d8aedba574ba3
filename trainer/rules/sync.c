/*
 * sync.c -- synchronous data-parallel SGD: every step waits for the mean gradient of all
 * ranks, so N ranks with batches of B walk the path of one rank with batches of N * B (up to
 * rounding). Buckets of the gradient are averaged while the rest of it is computed; each updates
 * its part of the parameters when it is there, while the later ones still travel.
 */
#include "trainer/rules/rule.h"

struct tr_rule_state {
	struct tr_rule_context *ctx;
	struct tr_buckets buckets; /* Of ctx->gradient, in place. */
};

static void sync_close(struct tr_rule_state *state)
{
	tr_buckets_close(&state->buckets);
}

static rubato_status sync_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	state->ctx = ctx;
	return tr_buckets_open(&state->buckets, ctx->comm, ctx->vectors, &ctx->cut, ctx->gradient,
			       ctx->error);
}

static rubato_status sync_begin(struct tr_rule_state *state, uint64_t step)
{
	(void)step; /* Parameters are up to date since the last step. */
	tr_buckets_again(&state->buckets);
	return RUBATO_OK;
}

static rubato_status sync_ready(struct tr_rule_state *state, size_t first)
{
	return tr_buckets_ready(&state->buckets, first, state->ctx->error);
}

/* The norm is that of the mean: nothing can be applied before all of it is there. */
static rubato_status clip_whole(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before = rubato_now(ctx->comm);

	for (uint32_t i = 0; i < state->buckets.cut.count; i++)
		TR_TRY(tr_buckets_wait(&state->buckets, i, ctx->error));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before;
	tr_clip(ctx->vectors, ctx->gradient, ctx->parameter_count, ctx->clip);
	return RUBATO_OK;
}

static rubato_status sync_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	const struct tr_cut *cut = &state->buckets.cut;
	double rate = tr_rate_at(ctx->rate, step);
	uint64_t now;
	uint32_t over;

	TR_TRY(tr_buckets_over(&state->buckets, &over, ctx->error));
	ctx->counts.buckets += cut->count;
	ctx->counts.buckets_hidden += over;
	tr_optimizer_next(ctx->optimizer);
	if (ctx->clip > 0.0)
		TR_TRY(clip_whole(state));
	for (uint32_t i = 0; i < cut->count; i++) {
		size_t begin = tr_cut_begin(cut, i);
		uint64_t before = rubato_now(ctx->comm);

		TR_TRY(tr_buckets_wait(&state->buckets, i, ctx->error));
		ctx->counts.communication_ns += rubato_now(ctx->comm) - before;
		tr_optimizer_apply(ctx->optimizer, rate, ctx->gradient, ctx->parameters, begin,
				   tr_cut_end(cut, i));
	}
	tr_ledger_step(ctx->ledger, step, rate);
	now = rubato_now(ctx->comm);
	tr_trace_span(ctx->trace, TR_SPAN_UPDATE, now, now, step);
	ctx->counts.global_reductions++;
	tr_count_round(ctx, ctx->rank_count, ctx->rank_count);
	return RUBATO_OK;
}

const struct tr_rule tr_rule_sync = {
	.name = "sync",
	.state_bytes = sizeof(struct tr_rule_state),
	.open = sync_open,
	.begin = sync_begin,
	.ready = sync_ready,
	.step = sync_step,
	.close = sync_close,
};
