/*
 * rule_sync.c -- synchronous data-parallel SGD: every step waits for the mean gradient of all
 * ranks, so N ranks with batches of B walk the path of one rank with batches of N * B (up to
 * rounding).
 */
#include <stdlib.h>

#include "trainer/clock.h"
#include "trainer/rule.h"

struct tr_rule_state {
	struct tr_rule_context *ctx;
	rubato_op *average; /* Of ctx->gradient, in place. */
};

static void sync_close(struct tr_rule_state *state)
{
	if (state == NULL)
		return;
	rubato_op_free(state->average);
	free(state);
}

static rubato_status sync_open(struct tr_rule_state **out, struct tr_rule_context *ctx)
{
	struct tr_rule_state *state = calloc(1, sizeof(*state));
	rubato_status err;

	if (state == NULL)
		return tr_fail(ctx->note, RUBATO_ERR_MEMORY, "sync: out of memory");
	state->ctx = ctx;
	err = rubato_op_allreduce(ctx->comm, ctx->gradient, ctx->gradient, ctx->parameter_count,
				  RUBATO_FLOAT32, RUBATO_AVG, &state->average);
	if (err) {
		sync_close(state);
		return tr_check(ctx->note, err, "sync: op_allreduce");
	}
	*out = state;
	return RUBATO_OK;
}

static rubato_status sync_begin(struct tr_rule_state *state, uint64_t step)
{
	(void)state; /* Parameters are up to date since the last step. */
	(void)step;
	return RUBATO_OK;
}

static rubato_status sync_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before = tr_clock_ns();

	TR_TRY(tr_check(ctx->note, rubato_start(state->average), "sync: start"));
	TR_TRY(tr_check(ctx->note, rubato_wait(state->average, RUBATO_TIMEOUT_DEFAULT),
			"sync: allreduce"));
	ctx->counts.communication_ns += tr_clock_ns() - before;
	ctx->counts.global_reductions++;
	ctx->counts.rounds++;
	ctx->counts.fresh_sum += ctx->rank_count;
	ctx->counts.contributors_sum += ctx->rank_count;
	tr_optimizer_apply(ctx->optimizer, tr_rate_at(ctx->rate, step), ctx->gradient,
			   ctx->parameters);
	return RUBATO_OK;
}

static rubato_status sync_finish(struct tr_rule_state *state, uint64_t step_count)
{
	(void)state; /* Nothing is ever in flight between steps. */
	(void)step_count;
	return RUBATO_OK;
}

const struct tr_rule tr_rule_sync = {
	.name = "sync",
	.open = sync_open,
	.begin = sync_begin,
	.step = sync_step,
	.finish = sync_finish,
	.close = sync_close,
};
