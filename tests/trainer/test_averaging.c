/*
 * test_averaging.c -- the rules of model averaging on simulated ranks, with gradients made up: the
 * vectors and identities of their papers, and each against a reference in double.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "tests/trainer/world.h"

#define COUNT 300 /* More than two blocks of --wire int8, and no multiple of anything. */

static void near(double got, double wanted, double tolerance, const char *what)
{
	ck_assert_msg(fabs(got - wanted) <= tolerance, "%s: %.9g, not %.9g", what, got, wanted);
}

/* ---- Gradients ---- */

/* Not linear, and another on each rank: averages early and late are not the same. */
static void rough(struct tr_rule_context *ctx, uint64_t step)
{
	for (size_t i = 0; i < ctx->parameter_count; i++) {
		float w = ctx->parameters[i], noise = world_noise(ctx->rank, step, i);

		ctx->gradient[i] = 0.05f * (sinf(3.0f * w + noise) + 0.3f * noise);
	}
	ctx->loss = 1.0 + 0.1 * (double)world_noise(ctx->rank, step, 0);
	for (size_t i = 0; i < ctx->statistics_count; i++)
		ctx->statistics[i] += 0.5f * world_noise(ctx->rank, step, 77 + i);
}

static float rough_at(float w, uint32_t rank, uint64_t step, size_t i)
{
	float noise = world_noise(rank, step, i);

	return 0.05f * (sinf(3.0f * w + noise) + 0.3f * noise);
}

static void same_bits(const struct world *a, const struct world *b, const char *what)
{
	for (uint32_t r = 0; r < a->ranks; r++)
		ck_assert_msg(memcmp(a->final[r], b->final[r], a->count * sizeof(float)) == 0,
			      "%s: rank %u differs", what, r);
}

static double distance(const struct world *a, const struct world *b)
{
	double most = 0.0;

	for (size_t i = 0; i < a->count; i++)
		most = fmax(most, fabs((double)a->final[0][i] - (double)b->final[0][i]));
	return most;
}

/* ---- K-AVG ---- */

/* After K, 2 K, ... steps all ranks are at the mean of where they were; at the end once more. */
START_TEST(kavg_is_the_mean_after_each_k)
{
	uint32_t ranks = (uint32_t)_i + 1;
	struct world w;

	world_init(&w, &tr_rule_kavg, ranks, COUNT, 14);
	OWN(&w, uint64_t, "k") = 4;
	w.gradient = rough;
	world_run(&w);
	for (uint64_t step = 0; step < 14; step++)
		for (size_t i = 0; i < COUNT; i++) {
			double mean = 0.0;

			for (uint32_t r = 0; r < ranks; r++) {
				float from = step == 0 ? 0.0f : world_after(&w, r, step - 1, i);
				float to = from - rough_at(from, r, step, i);

				mean += (double)to / ranks;
				if ((step + 1) % 4 != 0)
					ck_assert(world_after(&w, r, step, i) == to);
			}
			for (uint32_t r = 0; (step + 1) % 4 == 0 && r < ranks; r++)
				near(world_after(&w, r, step, i), mean, 1e-6, "mean");
			if (step == 13)
				near(w.final[0][i], mean, 1e-6, "last mean");
		}
	ck_assert_uint_eq(w.counts[0].global_reductions, 4); /* 3, and the last. */
	ck_assert_uint_eq(w.counts[0].local_reductions, 0);
	ck_assert_uint_eq(w.counts[0].period, 4);
	ck_assert(ranks == 1 || world_after(&w, 0, 0, 0) != world_after(&w, 1, 0, 0));
	world_free(&w);
}
END_TEST

START_TEST(kavg_of_one_step_is_synchronous)
{
	uint32_t ranks = (uint32_t)_i + 1;
	struct world sync, kavg;

	world_init(&sync, &tr_rule_sync, ranks, COUNT, 40);
	sync.gradient = rough;
	sync.momentum = 0.9;
	world_run(&sync);
	world_init(&kavg, &tr_rule_kavg, ranks, COUNT, 40);
	OWN(&kavg, uint64_t, "k") = 1;
	kavg.gradient = rough;
	kavg.momentum = 0.9;
	world_run(&kavg);
	/* Two roundings a step, of numbers below 1. */
	ck_assert_double_le(distance(&sync, &kavg), 40 * 1.2e-7);
	if (ranks == 1)
		same_bits(&sync, &kavg, "one rank");
	ck_assert_uint_eq(kavg.counts[0].global_reductions, 40);
	world_free(&sync);
	world_free(&kavg);
}
END_TEST

/* ---- Hier-AVG ---- */

static void to_twice_the_rank(struct tr_rule_context *ctx, uint64_t step)
{
	ctx->gradient[0] = step == 0 ? -2.0f * (float)ctx->rank : 0.0f;
}

START_TEST(hier_averages_groups_then_all)
{
	static const float groups[] = { 1.0f, 1.0f, 5.0f, 5.0f };
	struct world w;

	world_init(&w, &tr_rule_hier, 4, 1, 2);
	w.gradient = to_twice_the_rank;
	OWN(&w, uint64_t, "k1") = 1;
	OWN(&w, uint64_t, "k2") = 2;
	OWN(&w, uint32_t, "group") = _i == 0 ? 2 : 0; /* Told, or by the nodes. */
	w.per_node = 2;
	world_run(&w);
	for (uint32_t r = 0; r < 4; r++) {
		near(world_after(&w, r, 0, 0), groups[r], 0.0, "group");
		near(world_after(&w, r, 1, 0), 3.0, 0.0, "all");
		ck_assert_uint_eq(w.counts[r].global_reductions, 1);
		ck_assert_uint_eq(w.counts[r].local_reductions, 1);
		ck_assert_uint_gt(w.counts[r].group_bytes, 0);
	}
	world_free(&w);
}
END_TEST

START_TEST(the_last_group_may_be_smaller)
{
	static const float groups[] = { 2.0f, 2.0f, 2.0f, 7.0f, 7.0f };
	struct world w;

	world_init(&w, &tr_rule_hier, 5, 1, 3);
	w.gradient = to_twice_the_rank;
	OWN(&w, uint64_t, "k1") = 1;
	OWN(&w, uint64_t, "k2") = 3;
	OWN(&w, uint32_t, "group") = 3;
	world_run(&w);
	for (uint32_t r = 0; r < 5; r++) {
		near(world_after(&w, r, 1, 0), groups[r], 0.0, "group");
		near(world_after(&w, r, 2, 0), 4.0, 1e-6, "all"); /* Of ranks, not of groups. */
	}
	world_free(&w);
}
END_TEST

static void hier_run(struct world *w, uint32_t ranks, uint64_t k1, uint64_t k2, uint32_t group,
		     enum tr_opt_state state)
{
	world_init(w, &tr_rule_hier, ranks, COUNT, 30);
	w->gradient = rough;
	w->momentum = 0.9;
	OWN(w, uint64_t, "k1") = k1;
	OWN(w, uint64_t, "k2") = k2;
	OWN(w, uint32_t, "group") = group;
	OWN(w, enum tr_opt_state, "opt-state") = state;
	world_run(w);
}

static void kavg_run(struct world *w, uint32_t ranks, uint64_t k, enum tr_opt_state state)
{
	world_init(w, &tr_rule_kavg, ranks, COUNT, 30);
	w->gradient = rough;
	w->momentum = 0.9;
	OWN(w, uint64_t, "k") = k;
	OWN(w, enum tr_opt_state, "opt-state") = state;
	world_run(w);
}

static void must_be_kavg(struct world *hier, uint64_t k, enum tr_opt_state state, const char *what)
{
	struct world kavg;

	kavg_run(&kavg, hier->ranks, k, state);
	same_bits(hier, &kavg, what);
	world_free(hier);
	world_free(&kavg);
}

/* With any treatment of the optimizer's state. */
START_TEST(hier_is_kavg_at_its_ends)
{
	static const uint32_t ranks[] = { 4, 6, 7 };
	enum tr_opt_state state = (enum tr_opt_state)_i;
	struct world hier, other;

	for (int n = 0; n < 3; n++) {
		hier_run(&hier, ranks[n], 5, 5, 2, state);
		ck_assert_uint_eq(hier.counts[0].local_reductions, 0);
		must_be_kavg(&hier, 5, state, "K1 = K2");
		hier_run(&hier, ranks[n], 2, 6, 1, state);
		ck_assert_uint_eq(hier.counts[0].local_reductions, 0); /* Of one: none. */
		must_be_kavg(&hier, 6, state, "S = 1");
		hier_run(&hier, ranks[n], 3, 15, ranks[n], state);
		ck_assert_uint_eq(hier.counts[0].global_reductions, 2);
		ck_assert_uint_eq(hier.counts[0].local_reductions, 30 / 3 - 30 / 15);
		must_be_kavg(&hier, 3, state, "S = P");
		hier_run(&hier, ranks[n], 3, 15, 2, state);
		hier_run(&other, ranks[n], 15, 15, 2, state);
		ck_assert_double_gt(distance(&hier, &other), 1e-3); /* In between: neither. */
		world_free(&hier);
		world_free(&other);
	}
}
END_TEST

/* ---- Reduction momentum ---- */

static const struct tr_rule *const rules_with_outer[] = { &tr_rule_kavg, &tr_rule_local };

/* Two ranks move to `a` and `b` from the global model, then both by .2 from it. */
static void pair(struct tr_rule_context *ctx, uint64_t step)
{
	static const float ways[][2] = { { 0.2f, 0.4f }, { 0.2f, 0.2f } };

	ctx->gradient[0] = -ways[step][ctx->rank];
}

/* The same, where local steps start ahead: at .45, while the global model is at .3. */
static void pair_ahead(struct tr_rule_context *ctx, uint64_t step)
{
	static const float models[][2] = { { 0.2f, 0.4f }, { 0.5f, 0.5f } };

	ctx->gradient[0] = ctx->parameters[0] - models[step][ctx->rank];
}

static const struct {
	enum tr_outer outer;
	enum tr_base base;
	enum tr_gain gain;
	double lr;
	void (*gradient)(struct tr_rule_context *, uint64_t);
	double starts[2];
} vectors[] = {
	{ TR_OUTER_BLOCK, TR_BASE_UNSHIFTED, TR_GAIN_ONE, 1.0, pair, { 0.3, 0.65 } },
	{ TR_OUTER_NESTEROV, TR_BASE_UNSHIFTED, TR_GAIN_ONE, 1.0, pair_ahead, { 0.45, 0.825 } },
	{ TR_OUTER_NESTEROV, TR_BASE_SHIFTED, TR_GAIN_ONE, 1.0, pair, { 0.45, 0.825 } },
	/* v = .15, w = .15;  v = .075 + .1, w = .325. */
	{ TR_OUTER_BLOCK, TR_BASE_UNSHIFTED, TR_GAIN_COMPLEMENT, 1.0, pair, { 0.15, 0.325 } },
	/* The rate is inside of block's velocity: v = .6, w = .6;  v = .3 + .4, w = 1.3. */
	{ TR_OUTER_BLOCK, TR_BASE_UNSHIFTED, TR_GAIN_ONE, 2.0, pair, { 0.6, 1.3 } },
	/* v = -.3, w = .3;  v = -.15 - .2, w = .65. */
	{ TR_OUTER_SLOWMO, TR_BASE_UNSHIFTED, TR_GAIN_ONE, 1.0, pair, { 0.3, 0.65 } },
};
#define VECTOR_COUNT ((int)(sizeof(vectors) / sizeof(vectors[0])))

START_TEST(outer_momentum_follows_its_vectors)
{
	for (int k = 0; k < 2; k++) {
		struct world w;

		world_init(&w, rules_with_outer[k], 2, 1, 2);
		w.gradient = vectors[_i].gradient;
		OWN(&w, uint64_t, "k") = 1;
		OWN(&w, enum tr_outer, "outer") = vectors[_i].outer;
		OWN(&w, enum tr_base, "nesterov-base") = vectors[_i].base;
		OWN(&w, enum tr_gain, "outer-gain") = vectors[_i].gain;
		OWN(&w, double, "outer-lr") = vectors[_i].lr;
		world_run(&w);
		for (uint32_t r = 0; r < 2; r++)
			for (uint64_t step = 0; step < 2; step++)
				near(world_after(&w, r, step, 0), vectors[_i].starts[step], 1e-6,
				     "start");
		world_free(&w);
	}
}
END_TEST

static void outer_run(struct world *w, enum tr_outer outer, double momentum, double lr)
{
	world_init(w, &tr_rule_local, 3, COUNT, 30);
	w->gradient = rough;
	OWN(w, uint64_t, "k") = 3;
	OWN(w, enum tr_outer, "outer") = outer;
	OWN(w, double, "outer-momentum") = momentum;
	OWN(w, double, "outer-lr") = lr;
	OWN(w, enum tr_base, "nesterov-base") = TR_BASE_SHIFTED;
	w->rate = (struct tr_rate) {
		.kind = TR_RATE_STEP, .base = 1.0, .factor = 0.1, .every = 15, .step_count = 30
	};
	world_run(w);
}

START_TEST(without_momentum_outer_is_plain_averaging)
{
	struct world plain, other;

	outer_run(&plain, TR_OUTER_NONE, 0.0, 1.0);
	for (int kind = TR_OUTER_BLOCK; kind <= TR_OUTER_NESTEROV; kind++) {
		outer_run(&other, (enum tr_outer)kind, 0.0, 1.0);
		ck_assert_double_le(distance(&plain, &other), 2e-6);
		world_free(&other);
		outer_run(&other, (enum tr_outer)kind, 0.5, 1.0);
		ck_assert_double_gt(distance(&plain, &other), 1e-2);
		world_free(&other);
	}
	world_free(&plain);
}
END_TEST

/* Every kind against its formula in double, over a change of the learning rate. */
START_TEST(outer_momentum_is_its_formula)
{
	enum tr_outer kind = (enum tr_outer)_i;
	const double mu = 0.9, a = 0.7;
	struct world w;

	outer_run(&w, kind, mu, a);
	for (size_t i = 0; i < COUNT; i++) {
		double model = 0.0, v = 0.0;

		for (uint64_t step = 2; step < 30; step += 3) {
			double rate = step < 15 ? 1.0 : 0.1, mean = 0.0;

			for (uint32_t r = 0; r < 3; r++) {
				float from = world_after(&w, r, step - 1, i);

				mean += ((double)from -
					 (double)((float)rate * rough_at(from, r, step, i))) /
					3;
			}
			double d = mean - model;
			if (kind == TR_OUTER_SLOWMO) {
				v = mu * v - d / rate;
				model -= a * rate * v;
			} else if (kind == TR_OUTER_BLOCK) {
				v = mu * v + a * d;
				model += v;
			} else { /* torch.optim.SGD(nesterov=True), whose gradient is -d. */
				v = mu * v - d;
				model -= a * (-d + mu * v);
			}
			near(world_after(&w, 0, step, i), model, 2e-5, "model");
		}
	}
	world_free(&w);
}
END_TEST

/* Reduction momentum is for averages of all; and steps after the last one get a plain one. */
START_TEST(hier_has_momentum_at_global_averages_only)
{
	struct world w;

	world_init(&w, &tr_rule_hier, 2, 1, 5);
	w.gradient = NULL;
	w.first = 1.0f;
	OWN(&w, uint64_t, "k1") = 1;
	OWN(&w, uint64_t, "k2") = 2;
	OWN(&w, uint32_t, "group") = 2;
	OWN(&w, enum tr_outer, "outer") = TR_OUTER_BLOCK;
	w.gradient = to_twice_the_rank; /* To 1 and 3: mean 2, at step 0; then nothing. */
	world_run(&w);
	near(world_after(&w, 0, 0, 0), 2.0, 0.0, "group");
	near(world_after(&w, 0, 1, 0), 2.0, 0.0, "all: v = 1");
	near(world_after(&w, 0, 2, 0), 2.0, 0.0, "group");
	near(world_after(&w, 0, 3, 0), 2.5, 0.0, "all: v = 0.5");
	near(w.final[0][0], 2.5, 0.0, "the last is plain");
	ck_assert_uint_eq(w.counts[0].global_reductions, 3);
	world_free(&w);
}
END_TEST

/* ---- Periodic averaging ---- */

#define STEEP 100 /* Its models lie this many times closer together than they move. */

static float steep_at(uint32_t rank, uint64_t step, size_t i)
{
	return 0.01f * (world_noise(99, step, i) + world_noise(rank, step, i) / STEEP);
}

static void steep(struct tr_rule_context *ctx, uint64_t step)
{
	for (size_t i = 0; i < ctx->parameter_count; i++)
		ctx->gradient[i] = steep_at(ctx->rank, step, i);
}

/* The mean squared distance of the ranks' models from their mean after `steps` steps alone. */
static double spread_after(uint32_t ranks, uint64_t steps, float first)
{
	double sum = 0.0;

	for (size_t i = 0; i < COUNT; i++) {
		double mean = 0.0, square = 0.0;

		for (uint32_t r = 0; r < ranks; r++) {
			float w = first;

			for (uint64_t step = 0; step < steps; step++)
				w -= steep_at(r, step, i);
			mean += (double)w / ranks;
			square += (double)w * w / ranks;
		}
		sum += square - mean * mean;
	}
	return sum;
}

/* A piece of a rank's checkpoint. */
static void kept(uint32_t rank, const char *name, void *bytes, size_t size_bytes)
{
	struct tr_archive *archive;
	struct tr_error error = { 0 };
	char number[16];

	snprintf(number, sizeof(number), "%u", rank);
	ck_assert_int_eq(tr_archive_open(&archive, number, &error), RUBATO_OK);
	ck_assert_int_eq(tr_archive_bytes(archive, name, bytes, size_bytes, &error), RUBATO_OK);
	tr_archive_close(archive);
}

/* The model moves a hundred times further than it spreads: of |u|^2 four digits cancel. */
START_TEST(the_spread_is_right_and_the_same_everywhere)
{
	uint32_t ranks = (uint32_t)_i + 1;
	double wanted = spread_after(ranks, 4, 1.0f), constant, first = 0.0;
	struct world w;

	world_init(&w, &tr_rule_adpsgd, ranks, COUNT, 6);
	OWN(&w, enum tr_schedule, "schedule") = TR_SCHEDULE_ADP;
	OWN(&w, uint64_t, "adapt-sample-steps") = 6;
	w.first = 1.0f;
	w.gradient = steep;
	w.keep_folder = ".";
	w.keep_step = 4;
	world_run(&w);
	for (uint32_t r = 0; r < ranks; r++) {
		kept(r, "period.constant", &constant, sizeof(constant));
		if (r == 0)
			first = constant;
		ck_assert(constant == first);
		near(constant, wanted, 3e-3 * wanted, "S / lr"); /* 1e-7 of |u|^2. */
	}
	ck_assert(ranks == 1 || wanted > 0.0);
	world_free(&w);
}
END_TEST

/* An average that the end has forced comes early and is no sample. */
START_TEST(a_forced_average_says_nothing)
{
	uint64_t samples;
	struct world w;

	for (uint64_t steps = 8; steps <= 10; steps += 2) {
		world_init(&w, &tr_rule_adpsgd, 2, COUNT, steps);
		OWN(&w, enum tr_schedule, "schedule") = TR_SCHEDULE_ADP;
		OWN(&w, uint64_t, "adapt-sample-steps") = 0;
		w.gradient = rough;
		world_run(&w);
		ck_assert_uint_eq(w.counts[0].global_reductions, steps == 8 ? 2 : 3);
		ck_assert_uint_eq(w.periods[steps - 1], 4); /* No samples, no change. */
		world_free(&w);
	}
	/* The last average, of two steps, would spread half as far as those of the sampling, and
	 * the period would grow. */
	world_init(&w, &tr_rule_adpsgd, 2, COUNT, 10);
	OWN(&w, enum tr_schedule, "schedule") = TR_SCHEDULE_ADP;
	OWN(&w, uint64_t, "adapt-sample-steps") = 8;
	OWN(&w, double, "adapt-low") = 0.9;
	w.gradient = rough;
	w.keep_folder = ".";
	w.keep_step = 10;
	world_run(&w);
	kept(0, "period.samples", &samples, sizeof(samples));
	ck_assert_uint_eq(samples, 2);
	ck_assert_uint_eq(w.counts[0].global_reductions, 3);
	ck_assert_uint_eq(w.counts[0].period, 4);
	world_free(&w);
}
END_TEST

/* Gradients of which nothing is common: the spread after n steps grows as lr^2 n. */
static void noise(struct tr_rule_context *ctx, uint64_t step)
{
	for (size_t i = 0; i < ctx->parameter_count; i++)
		ctx->gradient[i] = world_noise(ctx->rank, step, i);
}

/* While the rate is what it was when C was sampled the period stays; when it falls to a half, the
 * period doubles, step by step; at no time may ranks disagree. */
START_TEST(the_period_follows_the_rate)
{
	struct world w;

	world_init(&w, &tr_rule_adpsgd, (uint32_t)_i, COUNT, 250);
	OWN(&w, enum tr_schedule, "schedule") = TR_SCHEDULE_ADP;
	OWN(&w, uint64_t, "adapt-sample-steps") = 40;
	OWN(&w, enum tr_compression, "wire") = _i == 3 ? TR_COMPRESSION_INT8 : TR_COMPRESSION_F32;
	w.gradient = noise;
	w.rate = (struct tr_rate) {
		.kind = TR_RATE_STEP, .base = 0.1, .factor = 0.25, .every = 80, .step_count = 250
	};
	world_run(&w);
	for (uint64_t step = 0; step < 80; step++)
		ck_assert_uint_eq(w.periods[step], 4);
	ck_assert_uint_ge(w.periods[159], 9); /* 4 + 5 + ... + 9 steps fit. */
	ck_assert_uint_gt(w.periods[249], w.periods[159]);
	for (uint64_t step = 1; step < 250; step++)
		ck_assert_int_le(abs((int)w.periods[step] - (int)w.periods[step - 1]), 1);
	world_free(&w);
}
END_TEST

START_TEST(a_constant_period_is_kavg)
{
	struct world periodic, kavg;

	world_init(&periodic, &tr_rule_periodic, 5, COUNT, 27);
	OWN(&periodic, uint64_t, "period") = 6;
	periodic.gradient = rough;
	periodic.momentum = 0.9;
	world_run(&periodic);
	world_init(&kavg, &tr_rule_kavg, 5, COUNT, 27);
	OWN(&kavg, uint64_t, "k") = 6;
	kavg.gradient = rough;
	kavg.momentum = 0.9;
	world_run(&kavg);
	/* What rides along may move the cuts of the allreduce, and so its rounding. */
	ck_assert_double_le(distance(&periodic, &kavg), 5e-6);
	ck_assert_uint_eq(periodic.counts[0].global_reductions, 5);
	world_free(&periodic);
	world_free(&kavg);
}
END_TEST

START_TEST(post_local_is_synchronous_first)
{
	struct world sync, local;

	world_init(&sync, &tr_rule_sync, 3, COUNT, 30);
	sync.gradient = rough;
	sync.momentum = 0.9;
	world_run(&sync);
	world_init(&local, &tr_rule_periodic, 3, COUNT, 30);
	OWN(&local, enum tr_schedule, "schedule") = TR_SCHEDULE_POST_LOCAL;
	OWN(&local, uint64_t, "adapt-sample-steps") = 20;
	local.gradient = rough;
	local.momentum = 0.9;
	world_run(&local);
	for (uint32_t r = 0; r < 3; r++)
		for (size_t i = 0; i < COUNT; i++) {
			ck_assert(world_after(&local, r, 19, i) == world_after(&sync, r, 19, i));
			ck_assert(r == 0 || i > 0 ||
				  world_after(&local, r, 20, i) != world_after(&local, 0, 20, i));
		}
	/* 20 of gradients, after 24 and 28 steps, and the last. */
	ck_assert_uint_eq(local.counts[0].global_reductions, 23);
	ck_assert_uint_eq(local.periods[18], 1);
	ck_assert_uint_eq(local.periods[19], 4);
	world_free(&sync);
	world_free(&local);
}
END_TEST

static void falling_loss(struct tr_rule_context *ctx, uint64_t step)
{
	rough(ctx, step);
	ctx->loss = (1.0 + 0.5 * ctx->rank) * (step < 32 ? 4.0 : 1.0);
}

/* 16 until half of the run; then the loss is a quarter of the first: ceil(16 * sqrt(1/4)) = 8; then
 * it no longer falls, and the period is halved each time. */
START_TEST(adacomm_goes_down_with_the_loss)
{
	struct world w;

	world_init(&w, &tr_rule_periodic, 3, COUNT, 128);
	OWN(&w, enum tr_schedule, "schedule") = TR_SCHEDULE_ADACOMM;
	OWN(&w, uint64_t, "period") = 16;
	OWN(&w, uint64_t, "adapt-sample-steps") = 32;
	w.gradient = falling_loss;
	world_run(&w);
	ck_assert_uint_eq(w.periods[0], 16);
	ck_assert_uint_eq(w.periods[46], 16);
	ck_assert_uint_eq(w.periods[47],
			  8); /* The first average of the second interval: sqrt(1). */
	ck_assert_uint_eq(w.periods[70], 8);
	ck_assert_uint_eq(w.periods[71], 4);
	ck_assert_uint_eq(w.periods[127], 2);
	world_free(&w);
}
END_TEST

/* ---- Fewer bits ---- */

/* Every step takes the same way, which neither format holds exactly. */
static float stubborn_at(uint32_t rank, size_t i)
{
	return 0.01f * (world_noise(rank, 5, i) + 0.3f);
}

static void stubborn(struct tr_rule_context *ctx, uint64_t step)
{
	(void)step;
	for (size_t i = 0; i < ctx->parameter_count; i++)
		ctx->gradient[i] = stubborn_at(ctx->rank, i);
}

static void compressed_run(struct world *w, uint32_t ranks, enum tr_compression kind, size_t count)
{
	world_init(w, &tr_rule_kavg, ranks, count, 200);
	OWN(w, uint64_t, "k") = 2;
	OWN(w, enum tr_compression, "wire") = kind;
	w->gradient = stubborn;
	world_run(w);
}

/* What rounding loses is made up for later, so the distance from the exact path does not grow. */
START_TEST(errors_of_rounding_do_not_add_up)
{
	static const size_t counts[] = { COUNT, 3, 1 };
	uint32_t ranks = (uint32_t)_i + 1;
	struct world w;

	for (int kind = TR_COMPRESSION_BF16; kind <= TR_COMPRESSION_INT8; kind++)
		for (int c = 0; c < 3; c++) {
			double early = 0.0, late = 0.0;

			compressed_run(&w, ranks, (enum tr_compression)kind, counts[c]);
			for (size_t i = 0; i < w.count; i++) {
				double way = 0.0;

				for (uint32_t r = 0; r < ranks; r++)
					way += (double)stubborn_at(r, i) / ranks;
				early = fmax(early,
					     fabs((double)world_after(&w, 0, 19, i) + 20 * way));
				late = fmax(late, fabs((double)w.final[0][i] + 200 * way));
			}
			/* Two steps of up to .013 are at most one step of either format away. */
			ck_assert_msg(early <= 3e-4 && late <= 3e-4, "%u ranks, wire %d: %g, %g",
				      ranks, kind, early, late);
			ck_assert(counts[c] < COUNT || early > 0.0); /* It was rounded. */
			world_free(&w);
		}
}
END_TEST

static void broken(struct tr_rule_context *ctx, uint64_t step)
{
	stubborn(ctx, step);
	if (ctx->rank == 1)
		ctx->gradient[200] = INFINITY;
}

/* What is no number stays none, so that the loss shows it. */
START_TEST(what_is_no_number_is_not_hidden)
{
	struct world w;

	for (int kind = TR_COMPRESSION_F32; kind <= TR_COMPRESSION_INT8; kind++) {
		world_init(&w, &tr_rule_kavg, 3, COUNT, 2);
		OWN(&w, uint64_t, "k") = 2;
		OWN(&w, enum tr_compression, "wire") = (enum tr_compression)kind;
		w.gradient = broken;
		world_run(&w);
		ck_assert(!isfinite(w.final[0][200]));
		ck_assert(isfinite(w.final[0][0]));
		world_free(&w);
	}
}
END_TEST

/* Every rule, with groups and anchors as references. */
static const struct {
	const struct tr_rule *rule;
	enum tr_schedule schedule;
	enum tr_outer outer;
	double pull;
	enum tr_opt_state state;
} variants[] = {
	{ &tr_rule_kavg, TR_SCHEDULE_CONST, TR_OUTER_BLOCK, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_kavg, TR_SCHEDULE_CONST, TR_OUTER_NESTEROV, 0.0, TR_STATE_AVERAGE },
	{ &tr_rule_hier, TR_SCHEDULE_CONST, TR_OUTER_SLOWMO, 0.0, TR_STATE_AVERAGE },
	{ &tr_rule_hier, TR_SCHEDULE_CONST, TR_OUTER_NONE, 0.0, TR_STATE_RESET },
	{ &tr_rule_periodic, TR_SCHEDULE_CONST, TR_OUTER_NONE, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_periodic, TR_SCHEDULE_ADACOMM, TR_OUTER_NONE, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_periodic, TR_SCHEDULE_POST_LOCAL, TR_OUTER_NONE, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_adpsgd, TR_SCHEDULE_ADP, TR_OUTER_NONE, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_local, TR_SCHEDULE_CONST, TR_OUTER_NESTEROV, 0.0, TR_STATE_LOCAL },
	{ &tr_rule_local, TR_SCHEDULE_CONST, TR_OUTER_NONE, 0.3, TR_STATE_LOCAL },
	{ &tr_rule_local, TR_SCHEDULE_CONST, TR_OUTER_SLOWMO, 0.3, TR_STATE_RESET },
};
#define VARIANT_COUNT ((int)(sizeof(variants) / sizeof(variants[0])))

static void variant_init(struct world *w, int which, uint32_t ranks, enum tr_compression kind)
{
	world_init(w, variants[which].rule, ranks, COUNT, 60);
	OWN(w, uint64_t, "k") = 5;
	OWN(w, uint64_t, "k1") = 2;
	OWN(w, uint64_t, "k2") = 6;
	OWN(w, uint32_t, "group") = 2;
	OWN(w, enum tr_compression, "wire") = kind;
	OWN(w, enum tr_outer, "outer") = variants[which].outer;
	OWN(w, double, "outer-momentum") = 0.3;
	OWN(w, enum tr_base, "nesterov-base") =
		variants[which].rule == &tr_rule_local ? TR_BASE_SHIFTED : TR_BASE_UNSHIFTED;
	OWN(w, enum tr_schedule, "schedule") = variants[which].schedule;
	OWN(w, uint64_t, "adapt-sample-steps") = 16;
	OWN(w, uint64_t, "period") = 5;
	OWN(w, double, "pull") = variants[which].pull;
	OWN(w, enum tr_opt_state, "opt-state") = variants[which].state;
	w->momentum = 0.5;
	w->statistics_count = 2;
	w->gradient = rough;
}

START_TEST(fewer_bits_change_little)
{
	struct world exact, rounded;

	variant_init(&exact, _i, 5, TR_COMPRESSION_F32);
	world_run(&exact);
	for (int kind = TR_COMPRESSION_BF16; kind <= TR_COMPRESSION_INT8; kind++) {
		double sum = 0.0;

		variant_init(&rounded, _i, 5, (enum tr_compression)kind);
		world_run(&rounded);
		for (size_t i = 0; i < COUNT; i++)
			sum += fabs((double)rounded.final[0][i] - (double)exact.final[0][i]);
		ck_assert_double_gt(sum, 0.0);
		ck_assert_double_le(sum / COUNT, 5e-3); /* Of ways of about 1. */
		world_free(&rounded);
	}
	world_free(&exact);
}
END_TEST

/* ---- The optimizer's state, and statistics ---- */

static void opposite(struct tr_rule_context *ctx, uint64_t step)
{
	(void)step;
	ctx->gradient[0] = ctx->rank == 0 ? 1.0f : -3.0f;
	if (ctx->statistics_count > 0)
		ctx->statistics[0] += (float)ctx->rank;
}

static void state_run(struct world *w, enum tr_optimizer_kind kind, enum tr_opt_state state)
{
	world_init(w, &tr_rule_kavg, 2, 1, 4);
	OWN(w, uint64_t, "k") = 2;
	OWN(w, enum tr_opt_state, "opt-state") = state;
	w->optimizer = kind;
	w->momentum = kind == TR_SGD ? 0.5 : 0.0;
	w->gradient = opposite;
	world_run(w);
}

START_TEST(momentum_is_local_averaged_or_reset)
{
	struct world w;

	state_run(&w, TR_SGD, TR_STATE_LOCAL);
	near(w.states[0][0], 1.875, 0.0, "rank 0");
	near(w.states[1][0], -5.625, 0.0, "rank 1");
	world_free(&w);
	/* v: 1.5 and -4.5, mean -1.5; then .25 and -3.75, 1.125 and -4.875. */
	state_run(&w, TR_SGD, TR_STATE_AVERAGE);
	near(w.states[0][0], -1.875, 0.0, "rank 0");
	near(w.states[1][0], -1.875, 0.0, "rank 1");
	near(world_after(&w, 0, 2, 0), 2.25, 0.0, "after a mean of 2.5");
	near(world_after(&w, 1, 2, 0), 6.25, 0.0, "after a mean of 2.5");
	world_free(&w);
	state_run(&w, TR_SGD, TR_STATE_RESET);
	near(w.states[0][0], 0.0, 0.0, "rank 0");
	near(w.final[0][0], 5.0, 1e-6, "model");
	world_free(&w);
}
END_TEST

START_TEST(adam_keeps_its_own_moments)
{
	struct world w;
	double m[2] = { 0.0 }, v[2] = { 0.0 };

	for (int r = 0; r < 2; r++)
		for (int step = 0; step < 4; step++) {
			double g = r == 0 ? 1.0 : -3.0;

			m[r] = 0.9 * m[r] + 0.1 * g;
			v[r] = 0.999 * v[r] + 0.001 * g * g;
		}
	state_run(&w, TR_ADAM, TR_STATE_LOCAL);
	for (int r = 0; r < 2; r++) {
		near(w.states[r][0], m[r], 1e-6, "m");
		near(w.states[r][1], v[r], 1e-6, "v");
		ck_assert_uint_eq(w.updates[r], 4);
	}
	world_free(&w);
	state_run(&w, TR_ADAM, TR_STATE_AVERAGE);
	for (int r = 0; r < 2; r++) {
		near(w.states[r][0], (m[0] + m[1]) / 2, 1e-6, "mean m");
		near(w.states[r][1], (v[0] + v[1]) / 2, 1e-6, "mean v"); /* Not of its root. */
		ck_assert_uint_eq(w.updates[r], 4);
	}
	world_free(&w);
	state_run(&w, TR_ADAM, TR_STATE_RESET);
	near(w.states[1][1], 0.0, 0.0, "v");
	ck_assert_uint_eq(w.updates[1], 0);
	world_free(&w);
}
END_TEST

START_TEST(statistics_ride_along)
{
	struct world w;

	for (int kind = TR_COMPRESSION_F32; kind <= TR_COMPRESSION_INT8; kind++)
		for (int bn = TR_BN_LOCAL; bn <= TR_BN_AVERAGE; bn++) {
			world_init(&w, &tr_rule_kavg, 3, 1, 4);
			OWN(&w, uint64_t, "k") = 4;
			w.bn = (enum tr_bn)bn;
			OWN(&w, enum tr_compression, "wire") = (enum tr_compression)kind;
			w.statistics_count = 1;
			w.gradient = opposite;
			world_run(&w);
			near(w.statistics[2][0], bn == TR_BN_AVERAGE ? 4.0 : 8.0, 1e-6,
			     "statistics");
			world_free(&w);
		}
}
END_TEST

/* ---- Overlap-Local-SGD ---- */

/* The paper's: each rank has a momentum of its own for the anchor, and sends the anchor it
 * wants. */
struct anchor {
	double z, x[4], buffer[4], next;
	bool coming;
};

static void anchor_step(struct anchor *a, uint64_t step, size_t i, bool last)
{
	const double pull = 0.2, beta = 0.4;
	double rate = step < 15 ? 1.0 : step < 30 ? 0.1 : 0.01, next = 0.0;

	for (uint32_t r = 0; r < 4; r++)
		a->x[r] -= rate * (double)rough_at((float)a->x[r], r, step, i);
	if ((step + 1) % 5 != 0)
		return;
	if (a->coming)
		a->z = a->next;
	for (uint32_t r = 0; r < 4; r++) {
		a->x[r] = (1.0 - pull) * a->x[r] + pull * a->z;
		a->buffer[r] = beta * a->buffer[r] - (a->x[r] - a->z) / rate;
		next += (a->z - rate * a->buffer[r]) / 4;
	}
	a->next = next;
	a->coming = !last;
}

START_TEST(overlapped_ranks_follow_an_anchor)
{
	const uint64_t steps = _i == 0 ? 30 : 33;
	struct world w;

	world_init(&w, &tr_rule_local, 4, COUNT, steps);
	OWN(&w, uint64_t, "k") = 5;
	OWN(&w, double, "pull") = 0.2;
	OWN(&w, enum tr_outer, "outer") = TR_OUTER_SLOWMO;
	OWN(&w, double, "outer-momentum") = 0.4;
	w.gradient = rough;
	w.rate = (struct tr_rate) {
		.kind = TR_RATE_STEP, .base = 1.0, .factor = 0.1, .every = 15, .step_count = steps
	};
	world_run(&w);
	for (size_t i = 0; i < COUNT; i++) {
		struct anchor a = { 0 };
		double mean = 0.0;

		for (uint64_t step = 0; step < steps; step++) {
			anchor_step(&a, step, i, step + 1 == steps);
			for (uint32_t r = 0; r < 4; r++)
				near(world_after(&w, r, step, i), a.x[r], 2e-5, "model");
		}
		for (uint32_t r = 0; r < 4; r++) { /* What is in flight is applied once. */
			if (a.coming)
				a.x[r] = 0.8 * a.x[r] + 0.2 * a.next;
			mean += a.x[r] / 4;
		}
		near(w.final[0][i], mean, 2e-5, "last");
	}
	ck_assert_uint_eq(w.counts[0].global_reductions, _i == 0 ? 6 : 7);
	world_free(&w);
}
END_TEST

/* ---- Checkpoints ---- */

/* Saving changes nothing, and a run that goes on from there ends with the same bits. */
START_TEST(a_checkpoint_has_all_that_is_needed)
{
	for (int kind = TR_COMPRESSION_F32; kind <= TR_COMPRESSION_INT8; kind++)
		for (uint64_t step = 13; step <= 35; step += 11) {
			struct world whole, saved, resumed;

			variant_init(&whole, _i, 5, (enum tr_compression)kind);
			world_run(&whole);
			variant_init(&saved, _i, 5, (enum tr_compression)kind);
			saved.keep_folder = ".";
			saved.keep_step = step;
			world_run(&saved);
			same_bits(&whole, &saved, "saved");
			variant_init(&resumed, _i, 5, (enum tr_compression)kind);
			resumed.keep_folder = ".";
			resumed.keep_step = step;
			resumed.resume = true;
			world_run(&resumed);
			same_bits(&whole, &resumed, "resumed");
			ck_assert_mem_eq(whole.statistics[3], resumed.statistics[3],
					 2 * sizeof(float));
			ck_assert_uint_eq(whole.periods[59], resumed.periods[59]);
			world_free(&whole);
			world_free(&saved);
			world_free(&resumed);
		}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("averaging");

	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, folder_enter, folder_leave);
	tcase_add_loop_test(tests, kavg_is_the_mean_after_each_k, 0, WORLD_RANKS);
	tcase_add_loop_test(tests, kavg_of_one_step_is_synchronous, 0, WORLD_RANKS);
	tcase_add_loop_test(tests, hier_averages_groups_then_all, 0, 2);
	tcase_add_test(tests, the_last_group_may_be_smaller);
	tcase_add_loop_test(tests, hier_is_kavg_at_its_ends, 0, 3);
	tcase_add_loop_test(tests, outer_momentum_follows_its_vectors, 0, VECTOR_COUNT);
	tcase_add_test(tests, without_momentum_outer_is_plain_averaging);
	tcase_add_loop_test(tests, outer_momentum_is_its_formula, TR_OUTER_BLOCK,
			    TR_OUTER_NESTEROV + 1);
	tcase_add_test(tests, hier_has_momentum_at_global_averages_only);
	tcase_add_loop_test(tests, the_spread_is_right_and_the_same_everywhere, 0, WORLD_RANKS);
	tcase_add_test(tests, a_forced_average_says_nothing);
	tcase_add_loop_test(tests, the_period_follows_the_rate, 2, WORLD_RANKS + 1);
	tcase_add_test(tests, a_constant_period_is_kavg);
	tcase_add_test(tests, post_local_is_synchronous_first);
	tcase_add_test(tests, adacomm_goes_down_with_the_loss);
	tcase_add_loop_test(tests, errors_of_rounding_do_not_add_up, 0, WORLD_RANKS);
	tcase_add_test(tests, what_is_no_number_is_not_hidden);
	tcase_add_loop_test(tests, fewer_bits_change_little, 0, VARIANT_COUNT);
	tcase_add_test(tests, momentum_is_local_averaged_or_reset);
	tcase_add_test(tests, adam_keeps_its_own_moments);
	tcase_add_test(tests, statistics_ride_along);
	tcase_add_loop_test(tests, overlapped_ranks_follow_an_anchor, 0, 2);
	tcase_add_loop_test(tests, a_checkpoint_has_all_that_is_needed, 0, VARIANT_COUNT);
	return check_main("averaging", tests);
}
