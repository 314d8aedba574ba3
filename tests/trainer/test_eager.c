/*
 * test_eager.c -- the eager rule on its own, in virtual time: gradients in which every (rank, step)
 * has one element of its own, so that the parameters at the end say how often, and by what divided,
 * each was applied. Whole runs by the program: test_eager_runs.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/own.h"
#include "trainer/base/streams.h"
#include "trainer/rules/shared_options.h"

#define RANKS_MAX 9
#define STEPS 24
#define COUNT (RANKS_MAX * STEPS)

static struct world { /* One run: what the ranks do, and what came of it. */
	const struct tr_rule *rule;
	struct tr_rule_options *own;
	double clip;
	uint32_t batch;
	uint64_t steps;
	uint64_t delay_ns;  /* The longest; drawn for each rank and step. */
	uint32_t slow_rank; /* UINT32_MAX: none. Takes ten times as long. */
	uint64_t extra;     /* The last rank makes so many steps more. */
	double momentum;
	bool constant_gradient; /* Of one for every element: for look-ahead. */
	bool own_models;        /* Rank r begins with parameters r, and gradients are zero. */
	float parameters[RANKS_MAX][COUNT];
	float looked_at[RANKS_MAX][STEPS]; /* Element 0 when the gradient of a step is computed, */
	float held[RANKS_MAX][STEPS];      /* and when the step is over. */
	double sum[RANKS_MAX][STEPS];      /* Of all elements then, each times its number. */
	struct tr_counts counts[RANKS_MAX];
	bool differ;
} w;

static void fill_gradient(struct tr_rule_context *ctx, uint64_t step)
{
	for (size_t i = 0; i < COUNT; i++)
		ctx->gradient[i] = w.constant_gradient ? 1.0f : 0.0f;
	if (!w.own_models && !w.constant_gradient)
		ctx->gradient[ctx->rank * STEPS + step] = 1.0f;
}

static rubato_status train(struct tr_rule_context *ctx, struct tr_rule_state *state)
{
	uint64_t steps = w.steps + (ctx->rank == ctx->rank_count - 1 ? w.extra : 0);
	struct rng rng = rng_open(ctx->seed, TR_STREAM_DELAY, ctx->rank);

	for (uint64_t step = 0; step < steps; step++) {
		uint64_t delay_ns = w.delay_ns == 0 ? 0 : rng_below(&rng, w.delay_ns);

		TR_TRY(tr_rule_eager.begin(state, step));
		w.looked_at[ctx->rank][step] = ctx->parameters[0];
		rubato_sleep(ctx->comm, 1000 + delay_ns * (ctx->rank == w.slow_rank ? 10 : 1));
		fill_gradient(ctx, step);
		TR_TRY(tr_rule_eager.step(state, step));
		w.held[ctx->rank][step] = ctx->parameters[0];
		for (int i = 0; i < COUNT; i++)
			w.sum[ctx->rank][step] += i * (double)ctx->parameters[i];
	}
	return tr_rule_eager.finish(state, steps);
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };
	const struct tr_rate rate = { .kind = TR_RATE_CONSTANT, .base = 1.0, .step_count = STEPS };
	struct tr_optimizer optimizer;
	struct tr_rule_state *state = NULL;
	float parameters[COUNT] = { 0 }, gradient[COUNT];
	uint32_t rank = rubato_rank(comm);
	struct tr_rule_context ctx = { .comm = comm,
				       .rank = rank,
				       .rank_count = rubato_size(comm),
				       .vectors = &tr_vectors_host,
				       .parameter_count = COUNT,
				       .parameters = parameters,
				       .gradient = gradient,
				       .batch = w.batch,
				       .optimizer = &optimizer,
				       .rate = &rate,
				       .own = w.own,
				       .clip = w.clip,
				       .seed = 5,
				       .step_count = w.steps,
				       .error = &error };
	rubato_status err;

	(void)arg;
	TR_TRY(tr_optimizer_open(&optimizer, &tr_vectors_host, TR_SGD, w.momentum, 0.0, COUNT,
				 &error));
	TR_TRY(tr_ledger_open(&ctx.ledger, true, rank, ctx.rank_count, &error));
	TR_TRY(tr_trace_open(&ctx.trace, true, &error));
	err = tr_rule_open(&state, &tr_rule_eager, &ctx);
	for (size_t i = 0; w.own_models && i < COUNT; i++)
		parameters[i] = (float)rank;
	if (err == RUBATO_OK)
		err = train(&ctx, state);
	tr_rule_close(&tr_rule_eager, state);
	memcpy(w.parameters[rank], parameters, sizeof(parameters));
	w.counts[rank] = ctx.counts;
	w.differ = ctx.replicas_differ;
	tr_trace_close(ctx.trace);
	tr_ledger_close(ctx.ledger);
	tr_optimizer_close(&optimizer);
	if (err)
		fprintf(stderr, "rank %u: %s\n", rank, error.text);
	return err;
}

/* What --policy and --collect fill, in numbers. */
enum { KIND, QUORUM, GROUP, DEADLINE };
typedef uint64_t policy_numbers[4];
typedef uint64_t collect_numbers[2];
#define POLICY OWN(&w, policy_numbers, "policy")
#define COLLECT OWN(&w, collect_numbers, "collect")

static void prepare(rubato_policy policy)
{
	free(w.own);
	memset(&w, 0, sizeof(w));
	w.rule = &tr_rule_eager;
	w.own = tr_rule_options_new(w.rule);
	ck_assert_ptr_nonnull(w.own);
	POLICY[KIND] = policy;
	POLICY[GROUP] = 1;
	POLICY[DEADLINE] = 100000;
	w.batch = 4;
	w.steps = STEPS;
	w.delay_ns = 1000000;
	w.slow_rank = UINT32_MAX;
}

static void run(uint32_t ranks)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = ranks;
	options.latency_ns = 5000;
	options.seed = ranks;
	ck_assert_int_eq(rubato_sim_run(&options, rank_main, NULL, &result), RUBATO_OK);
	for (uint32_t r = 1; r < ranks; r++)
		ck_assert_msg(memcmp(w.parameters[0], w.parameters[r], sizeof(w.parameters[0])) ==
				      0,
			      "%u ranks: 0 and %u end with different parameters", ranks, r);
}

/* Of the gradients of all ranks and steps: how many were applied, once and divided by `divisor`?
 * No other may have left a trace. */
static uint64_t applied(uint32_t ranks, double divisor, const char *name)
{
	uint64_t count = 0;

	for (uint32_t r = 0; r < RANKS_MAX; r++)
		for (uint64_t s = 0; s < STEPS; s++) {
			double got = -(double)w.parameters[0][r * STEPS + s] * divisor;
			bool made = r < ranks && s < w.steps + (r == ranks - 1 ? w.extra : 0);

			if (made && fabs(got - 1.0) < 1e-5)
				count++;
			else
				ck_assert_msg(got == 0.0,
					      "%s, %u ranks: step %d of rank %u was applied %g "
					      "times",
					      name, ranks, (int)s, r, got);
		}
	return count;
}

static const uint32_t sizes[] = { 1, 2, 3, 5, 8 };
#define SIZE_COUNT 5

static const char *const policies[] = { "solo", "majority", "quorum", "deadline", "adaptive" };

START_TEST(every_gradient_is_in_one_update)
{
	rubato_policy policy = (rubato_policy)(_i / 2);
	uint64_t stale = 0;

	for (int i = 0; i < SIZE_COUNT; i++) {
		uint32_t n = sizes[i];

		prepare(policy);
		OWN(&w, rubato_rounds, "rounds") = (rubato_rounds)(_i % 2);
		run(n);
		ck_assert(!w.differ);
		ck_assert_uint_eq(applied(n, n, policies[_i / 2]), n * STEPS);
		for (uint32_t r = 0; r < n; r++) {
			ck_assert_uint_eq(w.counts[r].rounds, w.counts[0].rounds);
			ck_assert_uint_eq(w.counts[r].fresh_sum, w.counts[0].fresh_sum);
			ck_assert_uint_le(w.counts[r].staleness_max, 8); /* The depth. */
			stale += w.counts[r].staleness_max;
		}
		ck_assert_uint_ge(w.counts[0].contributors_sum, w.counts[0].fresh_sum);
	}
	ck_assert_uint_gt(stale, 0); /* So there was something late to be kept. */
}
END_TEST

START_TEST(unequal_numbers_of_steps)
{
	for (int i = 0; i < SIZE_COUNT; i++) {
		prepare(RUBATO_POLICY_QUORUM);
		OWN(&w, rubato_rounds, "rounds") = RUBATO_ROUNDS_FREE;
		w.steps = 15;
		w.extra = 9;
		w.slow_rank = 0;
		run(sizes[i]);
		ck_assert_uint_eq(applied(sizes[i], sizes[i], "quorum"), sizes[i] * w.steps + 9);
	}
}
END_TEST

/* Each rank applies every round of its own steps, and what is left when all drain. */
START_TEST(own_loses_nothing)
{
	for (int i = 0; i < SIZE_COUNT; i++) {
		prepare((rubato_policy)(_i / 2 % 2));
		COLLECT[KIND] = RUBATO_COLLECT_OWN;
		OWN(&w, uint64_t, "model-sync-every") = _i % 2 == 0 ? 0 : 7;
		run(sizes[i]);
		ck_assert(w.differ);
		ck_assert_uint_eq(applied(sizes[i], sizes[i], "own"), sizes[i] * STEPS);
	}
}
END_TEST

/* The newest result only: what is in the others is lost to this rank's model. */
START_TEST(latest_skips)
{
	double sum = 0.0;

	prepare(RUBATO_POLICY_SOLO);
	COLLECT[KIND] = RUBATO_COLLECT_LATEST;
	w.slow_rank = 1;
	run(4);
	for (int i = 0; i < 4 * STEPS; i++)
		sum -= (double)w.parameters[0][i];
	ck_assert_double_lt(sum, STEPS - 0.1);
	ck_assert_double_gt(sum, 0.1 * STEPS);
	ck_assert_uint_lt(w.counts[1].rounds, w.counts[0].rounds);
}
END_TEST

START_TEST(what_is_dropped_is_counted)
{
	static const rubato_late rules[] = { RUBATO_LATE_DROP, RUBATO_LATE_LATEST };

	for (int i = 1; i < SIZE_COUNT; i++) {
		prepare(RUBATO_POLICY_SOLO);
		OWN(&w, rubato_late, "late") = rules[_i];
		w.slow_rank = 0;
		run(sizes[i]);
		ck_assert_uint_gt(w.counts[0].discarded, 0);
		ck_assert_uint_eq(applied(sizes[i], sizes[i], "drop") + w.counts[0].discarded,
				  sizes[i] * STEPS);
	}
}
END_TEST

START_TEST(quorum_counts_fresh_ranks)
{
	for (uint32_t k = 1; k <= 5; k++) {
		prepare(RUBATO_POLICY_QUORUM);
		POLICY[QUORUM] = k;
		run(5);
		/* The last round may only gather what is left. */
		ck_assert_uint_ge(w.counts[0].fresh_sum, k * (STEPS - 1));
		if (k == 5)
			ck_assert_uint_eq(w.counts[0].fresh_sum, 5 * STEPS);
		if (k == 1)
			ck_assert_uint_lt(w.counts[0].fresh_sum, 3 * STEPS);
	}
}
END_TEST

START_TEST(full_rounds_are_sync)
{
	for (int i = 0; i < SIZE_COUNT; i++) {
		uint32_t n = sizes[i];

		prepare(RUBATO_POLICY_SOLO);
		OWN(&w, uint32_t, "full-every") = 1;
		w.slow_rank = 0;
		run(n);
		ck_assert_uint_eq(w.counts[0].rounds, STEPS);
		ck_assert_uint_eq(w.counts[0].fresh_sum, n * STEPS);
		ck_assert_uint_eq(w.counts[0].staleness_max, 0);
		/* After each step the gradients of exactly that step are there. */
		for (uint64_t s = 0; s < STEPS; s++)
			ck_assert_float_eq_tol(w.held[0][s], -1.0f / (float)n, 1e-6f);
	}
}
END_TEST

START_TEST(absence_is_bounded)
{
	prepare(RUBATO_POLICY_SOLO);
	w.slow_rank = 2;
	run(4);
	uint64_t unbounded = w.counts[0].staleness_max;
	prepare(RUBATO_POLICY_SOLO);
	w.slow_rank = 2;
	OWN(&w, uint32_t, "max-absence") = 2;
	run(4);
	ck_assert_uint_lt(w.counts[0].staleness_max, unbounded);
	ck_assert_uint_eq(applied(4, 4, "max-absence"), 4 * STEPS);
}
END_TEST

/* Divided by those that are there, every round's shares add up to one gradient. */
START_TEST(normalised_by_what_is_there)
{
	double sum = 0.0;

	prepare(RUBATO_POLICY_SOLO);
	OWN(&w, rubato_normalise, "normalise") =
		_i == 0 ? RUBATO_BY_CONTRIBUTORS : RUBATO_BY_WEIGHT;
	run(5);
	for (int i = 0; i < 5 * STEPS; i++) {
		sum -= (double)w.parameters[0][i];
		ck_assert_float_le(w.parameters[0][i], -0.2f + 1e-6f + (_i == 1 ? 0.19f : 0.0f));
	}
	if (_i == 1) /* Of weights: exactly one a round, whoever is how late. */
		ck_assert_double_eq_tol(sum, (double)w.counts[0].rounds, 1e-4);
	else
		ck_assert_double_ge(sum, (double)w.counts[0].rounds - 1e-4);
	ck_assert_uint_gt(w.counts[0].rounds, STEPS - 1);
}
END_TEST

/* group^m ranks, m rotations, no gradients: everybody has an equal share of every model. */
START_TEST(wagma_mixes_every_model)
{
	static const struct {
		uint32_t ranks, group, turns;
	} forms[] = { { 4, 2, 2 }, { 8, 2, 3 }, { 9, 3, 2 }, { 8, 8, 1 } };
	float mean = (float)(forms[_i].ranks - 1) / 2.0f;

	prepare(RUBATO_POLICY_WAGMA);
	POLICY[GROUP] = forms[_i].group;
	COLLECT[KIND] = RUBATO_COLLECT_OWN;
	OWN(&w, rubato_late, "late") = RUBATO_LATE_LATEST;
	/* All arrive while the round that the first opens still waits for them. */
	OWN(&w, uint64_t, "window") = 10000000;
	w.own_models = true;
	w.delay_ns = 1000;
	w.steps = forms[_i].turns;
	run(forms[_i].ranks);
	for (uint32_t r = 0; r < forms[_i].ranks; r++)
		ck_assert_float_eq_tol(w.held[r][w.steps - 1], mean, 1e-5f);
	if (forms[_i].turns > 1)
		ck_assert_float_ne(w.held[0][0], mean); /* Not before. */
}
END_TEST

/* Late ranks: means of models stay within what they are means of, and draw together. */
START_TEST(wagma_draws_late_models_together)
{
	float least = 8.0f, most = 0.0f;

	prepare(RUBATO_POLICY_WAGMA);
	POLICY[GROUP] = 2;
	COLLECT[KIND] = RUBATO_COLLECT_OWN;
	OWN(&w, rubato_late, "late") = RUBATO_LATE_LATEST;
	w.own_models = true;
	w.slow_rank = 3;
	run(8);
	ck_assert_uint_lt(w.counts[0].fresh_sum, 2 * STEPS); /* Some were late. */
	ck_assert_uint_gt(w.counts[0].local_reductions, 0);
	for (uint32_t r = 0; r < 8; r++) {
		float end = w.held[r][STEPS - 1];

		ck_assert(end > 0.5f && end < 6.5f);
		least = fminf(least, end);
		most = fmaxf(most, end);
	}
	ck_assert_float_lt(most - least, 1.5f); /* 7 at the beginning. */
}
END_TEST

START_TEST(model_sync_makes_ranks_equal)
{
	prepare(RUBATO_POLICY_SOLO);
	COLLECT[KIND] = RUBATO_COLLECT_LATEST;
	OWN(&w, uint64_t, "model-sync-every") = 6;
	w.slow_rank = 1;
	run(3);
	ck_assert_uint_eq(w.counts[0].global_reductions, w.counts[1].global_reductions);
	bool apart = false;
	for (uint64_t s = 0; s < STEPS; s++) {
		bool equal = w.sum[0][s] == w.sum[1][s];

		apart = apart || !equal;
		if ((s + 1) % 6 == 0)
			ck_assert(equal);
	}
	ck_assert(apart);
}
END_TEST

/* v = m v + 1: a rank that was s rounds stale looks from w at w - m (1 - m^s) / (1 - m) v. */
START_TEST(look_ahead_goes_where_momentum_leads)
{
	const double m = 0.5;
	unsigned ahead = 0;

	prepare(RUBATO_POLICY_QUORUM);
	POLICY[QUORUM] = 2;
	OWN(&w, enum tr_lag_comp, "lag-comp") = TR_LAG_COMP_LOOKAHEAD;
	w.momentum = m;
	w.constant_gradient = true;
	run(4);
	for (uint32_t r = 0; r < 4; r++)
		for (uint64_t s = 1; s < STEPS; s++) {
			double gap = (double)w.held[r][s - 1] - (double)w.looked_at[r][s];

			ck_assert_double_ge(gap, -1e-6);
			ahead += gap > 1e-6;
		}
	ck_assert_uint_gt(ahead, 0);
	/* Nobody is stale: nobody looks ahead. */
	prepare(RUBATO_POLICY_QUORUM);
	POLICY[QUORUM] = 4;
	OWN(&w, enum tr_lag_comp, "lag-comp") = TR_LAG_COMP_LOOKAHEAD;
	w.momentum = m;
	w.constant_gradient = true;
	run(4);
	for (uint64_t s = 1; s < STEPS; s++)
		ck_assert_float_eq(w.held[0][s - 1], w.looked_at[0][s]);
	ck_assert_float_eq(w.held[0][1], -1.0f - 1.5f); /* v: 1, then 1.5. */
}
END_TEST

START_TEST(clip_bounds_what_is_applied)
{
	prepare(RUBATO_POLICY_QUORUM);
	POLICY[QUORUM] = 3;
	w.clip = 0.1;
	run(3);
	for (uint64_t s = 0; s < STEPS; s++) { /* Three elements of equal size a round. */
		double norm = 0.0;

		for (int r = 0; r < 3; r++)
			norm += pow((double)w.parameters[0][r * STEPS + (int)s], 2);
		ck_assert_double_eq_tol(sqrt(norm), 0.1, 1e-6);
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("eager");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, every_gradient_is_in_one_update, 0, 10);
	tcase_add_test(tests, unequal_numbers_of_steps);
	tcase_add_loop_test(tests, own_loses_nothing, 0, 4);
	tcase_add_test(tests, latest_skips);
	tcase_add_loop_test(tests, what_is_dropped_is_counted, 0, 2);
	tcase_add_test(tests, quorum_counts_fresh_ranks);
	tcase_add_test(tests, full_rounds_are_sync);
	tcase_add_test(tests, absence_is_bounded);
	tcase_add_loop_test(tests, normalised_by_what_is_there, 0, 2);
	tcase_add_loop_test(tests, wagma_mixes_every_model, 0, 4);
	tcase_add_test(tests, wagma_draws_late_models_together);
	tcase_add_test(tests, model_sync_makes_ranks_equal);
	tcase_add_test(tests, look_ahead_goes_where_momentum_leads);
	tcase_add_test(tests, clip_bounds_what_is_applied);
	return check_main("eager", tests);
}
