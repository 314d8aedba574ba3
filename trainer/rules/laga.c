/*
 * laga.c -- lagged allreduce with gradient accumulation (LAGA: Hakimi, Aviv, Levy, Schuster,
 * ICDM 2021): while the gradients of one round are reduced, the next round's are computed and added
 * up.
 *
 *   compute  | round 0 | round 1 | round 2 | ...      x stays where it is within a round
 *   reduce             | round 0 | round 1 | ...
 *   apply                        | 0       | 1        lag 1: x(k+1) = Opt(x(k), g(k-1))
 *
 * A round ends after A micro-batches, or (until-done) at the end of the micro-batch by which the
 * oldest reduction in flight is over; ranks may then bring different numbers of micro-batches. The
 * payload is the sum of gradients and, behind it, one number a rank: how many are in it (exact as
 * floats up to 2^24). So every rank knows every update's shares, and divides by their sum. All
 * ranks begin and apply the same rounds in the same order: their parameters are equal, round for
 * round.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/rules/shared_options.h"

#define LAG_MAX 64
#define COUNT_MAX (UINT64_C(1) << 24)     /* Micro-batches of a rank in a round. */
#define PATIENCE_NS UINT64_C(60000000000) /* Guess: whom a reduction lacks so long may be gone. */

enum first_step { FIRST_SKIP, FIRST_ZERO };

struct laga_options {
	struct tr_rule_options run;
	uint32_t accumulate; /* Micro-batches a reduction; 0: until the one before is over. */
	uint32_t lag;        /* Reductions in flight: 1 or more. */
	enum tr_lag_comp lag_comp;
	enum first_step first_step;
	bool rate_by_count; /* The rate of an update times sqrt(its micro-batches / ranks). */
};

static const char *const first_steps[] = { "skip", "zero", NULL };

#define AT(member) offsetof(struct laga_options, member)

static const struct option rows[] = {
	{ "accumulate", .kind = OPTION_U32, .at = AT(accumulate), .value = "A", .min = 1,
	  .max = 1u << 20, .word = "until-done", .word_is = 0, .preset = "1",
	  .help = "micro-batches a reduction, or until-done: until the one before is over",
	  .key = "accumulate" },
	{ "lag", .kind = OPTION_U32, .at = AT(lag), .value = "N", .min = 1, .max = LAG_MAX,
	  .preset = "1", .help = "reductions between a gradient and its use", .key = "lag" },
	{ "first-step", .kind = OPTION_CHOICE, .at = AT(first_step), .value = "KIND",
	  .forms = first_steps, .preset = "skip",
	  .help = "before there is a result: %s: no update, or one by zero", .key = "first_step" },
	{ "rate-by-count", .kind = OPTION_FLAG, .at = AT(rate_by_count),
	  .help = "the rate times the square root of an update's mean micro-batches",
	  .key = "rate_by_count" },
	{ 0 },
};

static const struct tr_option_group groups[] = {
	{ rows, 0 },
	{ tr_lag_comp_rows, AT(lag_comp) },
	{ tr_sampler_rows, AT(run.sampler) },
	{ 0 },
};

struct tr_rule_state {
	const struct laga_options *own;
	struct tr_rule_context *ctx;
	rubato_lagged *lagged;
	size_t width;   /* Floats of a payload: parameters, then a count for each rank. */
	float *sum;     /* Of this round's gradients; NULL: there is none yet. */
	float *room;    /* For it, where the library's is no vector; else NULL. */
	uint64_t count; /* How many are in it. */
	uint64_t begun, collected; /* Rounds, each in their order. */
	uint64_t *done;            /* [rank_count]: local steps in the rounds collected. */
	uint64_t *counts;          /* [rank_count]: in the round that is applied now. */
	/* Results taken from the library for a checkpoint and not yet due, oldest first. */
	float *kept; /* [lag][width]; NULL until there are any. */
	uint32_t kept_first, kept_count;
	float *aside;     /* Look-ahead: the true parameters while a gradient is computed. */
	double last_rate; /* Of the newest update. */
	uint64_t steps;   /* Local steps whose gradients are in a sum. */
	/* Of the rounds in flight when each began, and when the one before the oldest was over. */
	uint64_t begun_ns[LAG_MAX], over_ns;
};

static rubato_status laga_judge(struct tr_rule_options *options,
				const struct tr_rule_request *request, struct tr_error *error)
{
	const struct laga_options *own = (const struct laga_options *)options;

	if (own->run.sampler == TR_SAMPLER_SHARED && own->accumulate > 0)
		return tr_refuse(error, "--work shared: ranks take different numbers of steps, so "
					"laga needs --accumulate until-done");
	TR_TRY(tr_option_needs(request, "rate-by-count", own->accumulate != 1,
			       "more than one micro-batch (--accumulate)", error));
	if (own->lag_comp == TR_LAG_COMP_LOOKAHEAD &&
	    (request->optimizer != TR_SGD || request->momentum == 0.0))
		return tr_refuse(error, "--lag-comp lookahead: needs sgd with a --momentum");
	return RUBATO_OK;
}

/* ---- Open and close ---- */

static void laga_close(struct tr_rule_state *state)
{
	(void)rubato_lagged_free(state->lagged);
	free(state->done);
	free(state->counts);
	free(state->kept);
	if (state->aside != NULL)
		state->ctx->vectors->free(state->ctx->vectors, NULL, state->aside);
	if (state->room != NULL)
		state->ctx->vectors->free(state->ctx->vectors, NULL, state->room);
}

static bool until_done(const struct tr_rule_state *state)
{
	return state->own->accumulate == 0;
}

static rubato_status laga_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	const struct tr_vectors *v = ctx->vectors;

	state->ctx = ctx;
	state->own = (const struct laga_options *)ctx->own;
	state->width = ctx->parameter_count + ctx->rank_count;
	/* With a fixed A equal steps mean equal rounds. Until-done, some have applied more rounds
	 * than others at a given moment. */
	ctx->relaxed = until_done(state);
	ctx->replicas_differ = until_done(state);
	state->done = calloc(ctx->rank_count, sizeof(*state->done));
	state->counts = calloc(ctx->rank_count, sizeof(*state->counts));
	if (state->done == NULL || state->counts == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "laga: out of memory");
	if (state->own->lag_comp == TR_LAG_COMP_LOOKAHEAD)
		TR_TRY(v->make(v, NULL, ctx->parameter_count, "laga", &state->aside, ctx->error));
	if (!v->is_host)
		TR_TRY(v->make(v, NULL, state->width, "laga", &state->room, ctx->error));
	return tr_check(ctx->error,
			rubato_lagged_create(ctx->comm, state->width, RUBATO_FLOAT32, RUBATO_SUM,
					     state->own->lag, &state->lagged),
			"lagged_create");
}

/* ---- Updates ---- */

struct mean {           /* What is in ctx->gradient, */
	uint64_t total; /* a mean of so many gradients, perhaps of none, */
	uint64_t age;   /* computed so many updates ago. */
};

/* What rode behind the gradient. */
static void read_counts(struct tr_rule_state *state, const float *counts, struct mean *mean)
{
	mean->total = 0;
	for (uint32_t i = 0; i < state->ctx->rank_count; i++) {
		state->counts[i] = (uint64_t)counts[i];
		state->done[i] += state->counts[i];
		mean->total += state->counts[i];
	}
}

/*
 * The step whose learning rate an update of now takes: this rank's own, where all are at the same;
 * until-done the mean over ranks of what has been applied, which all know.
 */
static uint64_t rate_step(const struct tr_rule_state *state)
{
	uint64_t sum = 0;

	if (!until_done(state))
		return state->steps - 1;
	for (uint32_t i = 0; i < state->ctx->rank_count; i++)
		sum += state->done[i];
	sum /= state->ctx->rank_count;
	return sum > 0 ? sum - 1 : 0;
}

static void update(struct tr_rule_state *state, const struct mean *mean)
{
	struct tr_rule_context *ctx = state->ctx;
	double rate = tr_rate_at(ctx->rate, rate_step(state));
	uint64_t now_ns = rubato_now(ctx->comm), round = ctx->optimizer->updates;

	if (state->own->rate_by_count && mean->total > 0)
		rate *= sqrt((double)mean->total / ctx->rank_count);
	tr_apply_gradient(ctx, rate);
	state->last_rate = rate;
	tr_ledger_update(ctx->ledger, round, mean->total > 0 ? (double)mean->total : 1.0, rate,
			 state->steps);
	tr_trace_span(ctx->trace, TR_SPAN_UPDATE, now_ns, now_ns, round);
}

/* Waits for `round`, the oldest that the library knows. In the trace one is in flight at a time. */
static rubato_status flush(struct tr_rule_state *state, uint64_t round, const void **result)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t begun_ns = state->begun_ns[round % LAG_MAX];

	TR_TRY(tr_check(ctx->error,
			rubato_lagged_flush(state->lagged, result, NULL, RUBATO_TIMEOUT_DEFAULT),
			"wait for a lagged allreduce"));
	begun_ns = begun_ns > state->over_ns ? begun_ns : state->over_ns;
	state->over_ns = rubato_now(ctx->comm);
	tr_trace_span(ctx->trace, TR_SPAN_REDUCTION, begun_ns, state->over_ns, round);
	return RUBATO_OK;
}

/* The oldest round in flight; `result` is lent until the next begin. */
static rubato_status take(struct tr_rule_state *state, const float **result)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before_ns = rubato_now(ctx->comm);
	const void *taken;

	if (state->kept_count > 0) {
		state->collected++;
		*result = state->kept + state->kept_first * state->width;
		state->kept_first++;
		state->kept_count--;
		return RUBATO_OK;
	}
	/* Which is due is counted here: after a checkpoint the library knows only some of them. */
	TR_TRY(flush(state, state->collected++, &taken));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	*result = taken;
	return RUBATO_OK;
}

/* Waits for the oldest round in flight: its mean goes into ctx->gradient. *total: the gradients in
 * it, perhaps none. */
static rubato_status fetch(struct tr_rule_state *state, struct mean *mean)
{
	struct tr_rule_context *ctx = state->ctx;
	const struct tr_vectors *v = ctx->vectors;
	const float *result;

	mean->age = state->collected < state->own->lag ? state->collected : state->own->lag;
	TR_TRY(take(state, &result));
	read_counts(state, result + ctx->parameter_count, mean);
	if (mean->total == 0)
		return RUBATO_OK;
	result = tr_vectors_take(v, result, ctx->gradient, ctx->parameter_count);
	v->divide(v, ctx->gradient, result, (float)mean->total, ctx->parameter_count);
	return RUBATO_OK;
}

static void apply(struct tr_rule_state *state, const struct mean *mean)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t contributors = 0;

	if (mean->total == 0)
		return;
	update(state, mean);
	for (uint32_t i = 0; i < ctx->rank_count; i++) {
		if (state->counts[i] == 0)
			continue;
		tr_ledger_share(ctx->ledger, i, state->done[i] - state->counts[i],
				state->done[i] - 1);
		contributors++;
	}
	tr_count_round(ctx, contributors, contributors);
	if (mean->age > ctx->counts.staleness_max)
		ctx->counts.staleness_max = mean->age;
}

/* ---- Rounds ---- */

/* Gradients are added up where the library reduces them, if that can be. */
static rubato_status sum_open(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;
	void *buffer;

	if (state->room != NULL) {
		ctx->vectors->zero(ctx->vectors, state->room, state->width);
		state->sum = state->room;
		return RUBATO_OK;
	}
	TR_TRY(tr_check(ctx->error, rubato_lagged_acquire(state->lagged, &buffer),
			"acquire of a lagged allreduce"));
	state->sum = buffer;
	return RUBATO_OK;
}

static rubato_status accumulate(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;

	if (state->sum == NULL)
		TR_TRY(sum_open(state));
	ctx->vectors->add(ctx->vectors, state->sum, ctx->gradient, ctx->parameter_count);
	state->count++;
	state->steps++;
	return RUBATO_OK;
}

/* Whether this round has all it should. */
static rubato_status is_full(struct tr_rule_state *state, bool *full)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before_ns = rubato_now(ctx->comm);

	*full = true;
	if (!until_done(state)) {
		*full = state->count >= state->own->accumulate;
		return RUBATO_OK;
	}
	if (state->begun - state->collected < state->own->lag || state->kept_count > 0 ||
	    state->count >= COUNT_MAX)
		return RUBATO_OK;
	TR_TRY(tr_check(ctx->error, rubato_lagged_test(state->lagged, full),
			"test of a lagged allreduce"));
	/* To ask has no deadline: then it is waited for, which has one, and names the rank. */
	if (before_ns - state->begun_ns[state->collected % LAG_MAX] > PATIENCE_NS)
		*full = true;
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	return RUBATO_OK;
}

/* Sends this round off with what it has, perhaps nothing. */
static rubato_status begin_round(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before_ns = rubato_now(ctx->comm);
	const struct tr_vectors *v = ctx->vectors;
	const float count = (float)state->count;

	if (state->count > 0)
		v->put(v, state->sum + ctx->parameter_count + ctx->rank, &count, 1);
	TR_TRY(v->wait(v, ctx->error));
	TR_TRY(tr_check(ctx->error,
			rubato_lagged_accumulate(
				state->lagged, state->count > 0 ? state->room : NULL, state->count),
			"accumulate of a lagged allreduce"));
	state->begun_ns[state->begun % LAG_MAX] = rubato_now(ctx->comm);
	TR_TRY(tr_check(ctx->error, rubato_lagged_begin(state->lagged),
			"begin of a lagged allreduce"));
	state->sum = NULL;
	state->count = 0;
	state->begun++;
	ctx->counts.global_reductions++;
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	return RUBATO_OK;
}

/*
 * The same, and an update if one has become due: else *mean is of nothing. The oldest reduction is
 * waited for first: begun beside it, this one would take its share of the network and delay it.
 */
static rubato_status next_round(struct tr_rule_state *state, struct mean *mean, bool *due)
{
	*due = state->begun - state->collected == state->own->lag;
	if (*due)
		TR_TRY(fetch(state, mean));
	TR_TRY(begin_round(state));
	if (*due)
		apply(state, mean);
	return RUBATO_OK;
}

/* Where the momentum of the updates still to come before this gradient's own will have led. */
static rubato_status laga_begin(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	const struct tr_vectors *v = ctx->vectors;
	const float *velocity = ctx->optimizer->states[0];
	double power = 1.0, sum = 0.0;

	(void)step;
	if (state->aside == NULL)
		return RUBATO_OK;
	v->copy(v, state->aside, ctx->parameters, ctx->parameter_count);
	for (uint32_t i = 0; i < state->own->lag; i++) {
		power *= (double)ctx->optimizer->momentum;
		sum += power;
	}
	float far = (float)(state->last_rate * sum);
	if (velocity != NULL)
		v->combine(v, ctx->parameters, 1.0f, ctx->parameters, -far, velocity,
			   ctx->parameter_count);
	return RUBATO_OK;
}

static rubato_status laga_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	struct mean mean = { 0 };
	bool full, due;

	(void)step;
	if (state->aside != NULL)
		ctx->vectors->copy(ctx->vectors, ctx->parameters, state->aside,
				   ctx->parameter_count);
	TR_TRY(accumulate(state));
	TR_TRY(is_full(state, &full));
	if (!full)
		return RUBATO_OK;
	TR_TRY(next_round(state, &mean, &due));
	if (!due && state->own->first_step == FIRST_ZERO) {
		ctx->vectors->zero(ctx->vectors, ctx->gradient, ctx->parameter_count);
		update(state, &mean);
	}
	return RUBATO_OK;
}

/*
 * Each result is applied once. Until-done, nobody knows how many more rounds the others will begin:
 * a rank without steps goes on with empty ones, until one was empty on all.
 */
static rubato_status laga_finish(struct tr_rule_state *state, uint64_t step_count)
{
	struct mean mean = { .total = UINT64_MAX };

	(void)step_count;
	while (until_done(state) && mean.total > 0) {
		if (state->begun - state->collected == state->own->lag) {
			TR_TRY(fetch(state, &mean));
			apply(state, &mean);
		}
		if (mean.total > 0)
			TR_TRY(begin_round(state));
	}
	if (state->count > 0)
		TR_TRY(begin_round(state));
	while (state->collected < state->begun) {
		TR_TRY(fetch(state, &mean));
		apply(state, &mean);
	}
	return RUBATO_OK;
}

/* ---- Checkpoints ---- */

/* Until-done: all begin the rounds that any has begun, so that all wait for the same ones. */
static rubato_status catch_up(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t most = state->begun;
	struct mean mean;
	bool due;

	TR_TRY(tr_check(ctx->error,
			rubato_allreduce(ctx->comm, &most, &most, 1, RUBATO_UINT64, RUBATO_MAX),
			"checkpoint: allreduce of the number of rounds"));
	while (state->begun < most)
		TR_TRY(next_round(state, &mean, &due));
	return RUBATO_OK;
}

/* The rounds in flight end, and their results wait here until they are due. */
static rubato_status land(struct tr_rule_state *state)
{
	const void *result;

	memmove(state->kept, state->kept + state->kept_first * state->width,
		state->kept_count * state->width * sizeof(float));
	state->kept_first = 0;
	while (state->kept_count < state->begun - state->collected) {
		TR_TRY(flush(state, state->collected + state->kept_count, &result));
		memcpy(state->kept + state->kept_count * state->width, result,
		       state->width * sizeof(float));
		state->kept_count++;
	}
	return RUBATO_OK;
}

static rubato_status kept_make(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;

	if (state->kept == NULL)
		state->kept = malloc(state->own->lag * state->width * sizeof(float));
	if (state->kept == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "laga: no memory for a checkpoint");
	return RUBATO_OK;
}

/* Until-done, nobody who is still at work waits for anybody, so the others may wait here. */
static rubato_status laga_settle(struct tr_rule_state *state, uint64_t step_count)
{
	(void)step_count;
	TR_TRY(kept_make(state));
	if (until_done(state))
		TR_TRY(catch_up(state));
	return land(state);
}

static rubato_status laga_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t numbers[5];

	TR_TRY(kept_make(state));
	memcpy(numbers,
	       ((uint64_t[]) { state->count, state->begun, state->collected, state->steps,
			       state->kept_count }),
	       sizeof(numbers));
	TR_TRY(tr_archive_bytes(archive, "laga.numbers", numbers, sizeof(numbers), ctx->error));
	state->count = numbers[0];
	state->begun = numbers[1];
	state->collected = numbers[2];
	state->steps = numbers[3];
	state->kept_count = (uint32_t)numbers[4];
	if (numbers[4] > state->own->lag || numbers[4] != state->begun - state->collected)
		return tr_fail(ctx->error, RUBATO_ERR_ARGUMENT,
			       "checkpoint: %llu results in flight, of at most %u",
			       (unsigned long long)numbers[4], state->own->lag);
	TR_TRY(tr_archive_value(archive, "laga.rate", state->last_rate, ctx->error));
	TR_TRY(tr_archive_bytes(archive, "laga.done", state->done,
				ctx->rank_count * sizeof(*state->done), ctx->error));
	TR_TRY(tr_archive_bytes(archive, "laga.kept", state->kept,
				state->kept_count * state->width * sizeof(float), ctx->error));
	if (state->count == 0)
		return RUBATO_OK;
	if (state->sum == NULL)
		TR_TRY(sum_open(state));
	return tr_archive_vector(archive, "laga.sum", ctx->vectors, state->sum, state->width,
				 ctx->error);
}

const struct tr_rule tr_rule_laga = {
	.name = "laga",
	.options_bytes = sizeof(struct laga_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.judge = laga_judge,
	.open = laga_open,
	.begin = laga_begin,
	.step = laga_step,
	.finish = laga_finish,
	.settle = laga_settle,
	.keep = laga_keep,
	.close = laga_close,
};
