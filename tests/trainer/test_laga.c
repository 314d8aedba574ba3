/*
 * test_laga.c -- --algorithm laga: the update rule alone on simulated ranks, with gradients of
 * which all is known, and the program (argument 1) on real ones.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/trainer/own.h"
#include "tests/trainer/support.h"
#include "trainer/rules/shared_options.h"

enum first_step { FIRST_SKIP, FIRST_ZERO }; /* --first-step, in the order of its forms. */

#define RANKS_MAX 8

static const uint32_t rank_counts[] = { 1, 2, 3, 5, 8 };

/* ---- The rule alone ---- */

struct job {
	uint32_t rank_count;
	uint64_t step_count;
	size_t count; /* Parameters. */
	const struct tr_rule *rule;
	struct tr_rule_options *own;
	double clip;
	struct tr_rate rate;
	float momentum, weight_decay;
	void (*gradient)(const struct job *job, uint32_t rank, uint64_t step, const float *x,
			 float *gradient);
	uint64_t (*work_ns)(uint32_t rank, uint64_t step); /* NULL: none. */
	float *path; /* [step_count + 1][count]: rank 0's parameters after each step, then at the
		      * end. */
	float *last[RANKS_MAX];             /* Each rank's at the end; [count] */
	struct tr_counts counts[RANKS_MAX]; /* The same. */
};

static struct job job_of(uint32_t rank_count, uint64_t step_count, size_t count, double lr)
{
	struct job job = {
		.rank_count = rank_count,
		.step_count = step_count,
		.count = count,
		.rule = &tr_rule_laga,
		.own = tr_rule_options_new(&tr_rule_laga),
		.rate = { .kind = TR_RATE_CONSTANT, .base = lr, .step_count = step_count },
	};

	job.path = calloc((step_count + 1) * count, sizeof(float));
	ck_assert_ptr_nonnull(job.path);
	for (uint32_t i = 0; i < rank_count; i++) {
		job.last[i] = calloc(count, sizeof(float));
		ck_assert_ptr_nonnull(job.last[i]);
	}
	return job;
}

static void job_free(struct job *job)
{
	free(job->own);
	free(job->path);
	for (uint32_t i = 0; i < job->rank_count; i++)
		free(job->last[i]);
}

static rubato_status steps_run(struct job *job, struct tr_rule_context *ctx)
{
	const struct tr_rule *rule = &tr_rule_laga;
	size_t bytes = job->count * sizeof(float);
	struct tr_rule_state *state;
	rubato_status err;

	TR_TRY(tr_rule_open(&state, rule, ctx));
	err = rubato_barrier(ctx->comm);
	for (uint64_t step = 0; err == RUBATO_OK && step < job->step_count; step++) {
		err = rule->begin(state, step);
		if (err)
			break;
		job->gradient(job, ctx->rank, step, ctx->parameters, ctx->gradient);
		if (job->work_ns != NULL)
			rubato_sleep(ctx->comm, job->work_ns(ctx->rank, step));
		err = rule->step(state, step);
		if (ctx->rank == 0)
			memcpy(job->path + step * job->count, ctx->parameters, bytes);
	}
	if (err == RUBATO_OK)
		err = rule->finish(state, job->step_count);
	if (ctx->rank == 0)
		memcpy(job->path + job->step_count * job->count, ctx->parameters, bytes);
	memcpy(job->last[ctx->rank], ctx->parameters, bytes);
	job->counts[ctx->rank] = ctx->counts;
	tr_rule_close(rule, state);
	return err;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct job *job = arg;
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };
	struct tr_optimizer optimizer;
	struct tr_rule_context ctx = { .comm = comm,
				       .rank = rubato_rank(comm),
				       .rank_count = rubato_size(comm),
				       .vectors = &tr_vectors_host,
				       .parameter_count = job->count,
				       .optimizer = &optimizer,
				       .rate = &job->rate,
				       .own = job->own,
				       .clip = job->clip,
				       .step_count = job->step_count,
				       .error = &error };
	rubato_status err;

	ctx.parameters = calloc(job->count, sizeof(float));
	ctx.gradient = calloc(job->count, sizeof(float));
	err = rubato_set_algorithm(comm, "allreduce", "flat"); /* Sums in the order of ranks. */
	if (err == RUBATO_OK)
		err = tr_optimizer_open(&optimizer, &tr_vectors_host, TR_SGD, (double)job->momentum,
					(double)job->weight_decay, job->count, &error);
	if (err == RUBATO_OK)
		err = tr_ledger_open(&ctx.ledger, false, ctx.rank, ctx.rank_count, &error);
	if (err == RUBATO_OK)
		err = tr_trace_open(&ctx.trace, false, &error);
	if (err == RUBATO_OK)
		err = steps_run(job, &ctx);
	if (err)
		fprintf(stderr, "rank %u: %s\n", ctx.rank, error.text);
	tr_trace_close(ctx.trace);
	tr_ledger_close(ctx.ledger);
	tr_optimizer_close(&optimizer);
	free(ctx.gradient);
	free(ctx.parameters);
	return err;
}

static void job_run(struct job *job)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = job->rank_count;
	options.seed = 1;
	options.latency_ns = 5000000; /* A round takes several steps. */
	ck_assert_int_eq(rubato_sim_run(&options, rank_main, job, &result), RUBATO_OK);
	for (uint32_t i = 1; i < job->rank_count; i++)
		ck_assert_mem_eq(job->last[i], job->last[0], job->count * sizeof(float));
}

/* ---- The vector of two parabolas ---- */

/* f(x) = (x - a)^2 / 2, a = 1 on rank 0 and 3 on rank 1. */
static void parabola(const struct job *job, uint32_t rank, uint64_t step, const float *x,
		     float *gradient)
{
	(void)job;
	(void)step;
	gradient[0] = x[0] - (rank == 0 ? 1.0f : 3.0f);
}

START_TEST(two_parabolas)
{
	static const double want[] = { 0.0, 0.2, 0.4, 0.58, 0.74 };
	struct job job = job_of(2, 4, 1, 0.1);

	job.gradient = parabola;
	OWN(&job, uint32_t, "first-step") = _i == 0 ? FIRST_SKIP : FIRST_ZERO;
	job_run(&job);
	for (int i = 0; i < 5; i++)
		ck_assert_double_eq_tol((double)job.path[i], want[i], 1e-6);
	ck_assert_uint_eq(job.counts[1].rounds, 4);
	ck_assert_uint_eq(job.counts[1].global_reductions, 4);
	ck_assert_uint_eq(job.counts[1].fresh_sum, 8);
	ck_assert_uint_eq(job.counts[1].staleness_max, 1);
	job_free(&job);
}
END_TEST

/* ---- The same as one process with late gradients ---- */

#define WIDE 37

static void spread(const struct job *job, uint32_t rank, uint64_t step, const float *x,
		   float *gradient)
{
	for (size_t i = 0; i < job->count; i++) {
		float target = (float)((rank * 31 + step * 7 + i * 3) % 23) / 23.0f;

		gradient[i] = (x[i] - target) * (0.25f + (float)((i + step) % 5) / 7.0f);
	}
}

/* What one process does whose gradients are `lag` rounds late. */
struct reference {
	float x[WIDE], shifted[WIDE], v[WIDE];
	float rounds[64][WIDE]; /* Means. */
	uint32_t weights[64];
	uint32_t begun, applied;
	double rate;
};

static void reference_update(struct reference *r, const struct job *job, uint64_t step, bool empty)
{
	float *g = r->rounds[r->applied], zero[WIDE] = { 0 }, rate;
	double sum = 0.0;

	if (empty)
		g = zero;
	for (size_t i = 0; i < WIDE; i++)
		sum += (double)g[i] * (double)g[i];
	if (job->clip > 0.0 && sqrt(sum) > job->clip)
		for (size_t i = 0; i < WIDE; i++)
			g[i] *= (float)(job->clip / sqrt(sum));
	r->rate = tr_rate_at(&job->rate, step);
	if (OWN(job, bool, "rate-by-count") && !empty)
		r->rate *= sqrt((double)r->weights[r->applied] / job->rank_count);
	rate = (float)r->rate;
	for (size_t i = 0; i < WIDE; i++) {
		r->v[i] = job->momentum * r->v[i] + (g[i] + job->weight_decay * r->x[i]);
		r->x[i] -= rate * r->v[i];
	}
	r->applied += !empty;
}

static void reference_shift(struct reference *r, const struct job *job)
{
	double m = (double)job->momentum, sum = 0.0;

	for (uint32_t i = 1; i <= OWN(job, uint32_t, "lag"); i++)
		sum = m * (1.0 + sum);
	memcpy(r->shifted, r->x, sizeof(r->x));
	for (size_t i = 0;
	     OWN(job, enum tr_lag_comp, "lag-comp") == TR_LAG_COMP_LOOKAHEAD && i < WIDE; i++)
		r->shifted[i] -= (float)(r->rate * sum) * r->v[i];
}

/* One round of `count` micro-batches, the last of them number `step`. */
static void reference_begin(struct reference *r, const struct job *job, uint64_t step,
			    uint32_t count)
{
	float *mean = r->rounds[r->begun], sum[WIDE], g[WIDE];

	for (uint32_t rank = 0; rank < job->rank_count; rank++) {
		memset(sum, 0, sizeof(sum));
		for (uint32_t m = 0; m < count; m++) {
			spread(job, rank, step + 1 - count + m, r->shifted, g);
			for (size_t i = 0; i < WIDE; i++)
				sum[i] += g[i];
		}
		for (size_t i = 0; i < WIDE; i++)
			mean[i] = rank == 0 ? sum[i] : mean[i] + sum[i];
	}
	r->weights[r->begun] = count * job->rank_count;
	for (size_t i = 0; i < WIDE; i++)
		mean[i] /= (float)r->weights[r->begun];
	r->begun++;
}

static void reference_run(struct reference *r, const struct job *job, float *path)
{
	uint32_t count = 0;

	*r = (struct reference) { 0 };
	for (uint64_t step = 0; step < job->step_count; step++) {
		count++;
		reference_shift(r, job);
		if (count == OWN(job, uint32_t, "accumulate")) {
			reference_begin(r, job, step, count);
			count = 0;
			if (r->begun > OWN(job, uint32_t, "lag"))
				reference_update(r, job, step, false);
			else if (OWN(job, uint32_t, "first-step") == FIRST_ZERO)
				reference_update(r, job, step, true);
		}
		memcpy(path + step * WIDE, r->x, sizeof(r->x));
	}
	if (count > 0)
		reference_begin(r, job, job->step_count - 1, count);
	while (r->applied < r->begun)
		reference_update(r, job, job->step_count - 1, false);
	memcpy(path + job->step_count * WIDE, r->x, sizeof(r->x));
}

static const struct {
	uint32_t accumulate, lag;
	enum first_step first;
	enum tr_lag_comp comp;
	bool by_count;
	double clip;
} variants[] = {
	{ 1, 1, FIRST_SKIP, TR_LAG_COMP_NONE, false, 0.0 },
	{ 1, 1, FIRST_ZERO, TR_LAG_COMP_NONE, false, 0.0 },
	{ 3, 1, FIRST_SKIP, TR_LAG_COMP_NONE, true, 0.0 },
	{ 4, 2, FIRST_ZERO, TR_LAG_COMP_NONE, true, 0.5 },
	{ 1, 3, FIRST_SKIP, TR_LAG_COMP_LOOKAHEAD, false, 0.0 },
	{ 2, 1, FIRST_SKIP, TR_LAG_COMP_LOOKAHEAD, true, 0.4 },
	{ 30, 2, FIRST_SKIP, TR_LAG_COMP_NONE, false, 0.0 }, /* The end cuts the first round. */
};
#define VARIANT_COUNT ((int)(sizeof(variants) / sizeof(variants[0])))

/* Bit for bit, after every step, on every number of ranks. */
START_TEST(is_sgd_with_late_gradients)
{
	for (size_t n = 0; n < sizeof(rank_counts) / sizeof(rank_counts[0]); n++) {
		struct job job = job_of(rank_counts[n], 23, WIDE, 0.05);
		float *path = calloc(24 * WIDE, sizeof(float));
		struct reference *r = malloc(sizeof(*r));

		job.gradient = spread;
		job.momentum = 0.9f;
		job.weight_decay = 1e-3f;
		job.rate.kind = TR_RATE_COSINE;
		job.rate.warmup_steps = 5;
		OWN(&job, uint32_t, "accumulate") = variants[_i].accumulate;
		OWN(&job, uint32_t, "lag") = variants[_i].lag;
		OWN(&job, uint32_t, "first-step") = variants[_i].first;
		OWN(&job, enum tr_lag_comp, "lag-comp") = variants[_i].comp;
		OWN(&job, bool, "rate-by-count") = variants[_i].by_count;
		job.clip = variants[_i].clip;
		job_run(&job);
		reference_run(r, &job, path);
		for (int i = 0; i < 24 * WIDE; i++)
			ck_assert_msg(memcmp(&job.path[i], &path[i], sizeof(float)) == 0,
				      "%u ranks, step %d, element %d: %.9g, not %.9g",
				      rank_counts[n], i / WIDE, i % WIDE, (double)job.path[i],
				      (double)path[i]);
		ck_assert_uint_eq(job.counts[0].rounds, r->begun);
		job_free(&job);
		free(path);
		free(r);
	}
}
END_TEST

/* ---- Accumulate until done ---- */

/* Gradient `step` of `rank` is 1 in a place of its own: with a rate of 1 the parameters end as the
 * list of all that was applied, each with -1 / (the gradients of its update). */
static void one_hot(const struct job *job, uint32_t rank, uint64_t step, const float *x,
		    float *gradient)
{
	(void)x;
	memset(gradient, 0, job->count * sizeof(float));
	gradient[rank * job->step_count + step] = 1.0f;
}

/* Rank 1 takes four times as long, and now and then somebody much longer. */
static uint64_t uneven(uint32_t rank, uint64_t step)
{
	uint64_t ns = rank == 1 ? 2000000 : 500000;

	return (rank * 7 + step) % 11 == 0 ? 8 * ns : ns;
}

START_TEST(until_done_applies_every_gradient_once)
{
	const uint64_t steps = 61;

	for (uint32_t lag = 1; lag <= 3; lag++) {
		uint32_t n = rank_counts[_i];
		struct job job = job_of(n, steps, n * steps, 1.0);
		uint64_t with[RANKS_MAX * 61 + 1] = { 0 };
		bool uneven_round = false;
		double sum = 0.0;

		job.gradient = one_hot;
		job.work_ns = uneven;
		OWN(&job, uint32_t, "accumulate") = 0;
		OWN(&job, uint32_t, "lag") = lag;
		job_run(&job);
		for (size_t i = 0; i < job.count; i++) {
			double weight = -1.0 / (double)job.last[0][i];

			ck_assert_double_eq_tol(weight, round(weight), 1e-3);
			ck_assert_double_ge(weight, 1.0);
			ck_assert_double_le(weight, (double)job.count);
			with[(size_t)round(weight)]++;
			sum -= (double)job.last[0][i];
		}
		for (size_t weight = 1; weight <= job.count; weight++) {
			ck_assert_uint_eq(with[weight] % weight, 0);
			uneven_round |= with[weight] > 0 && weight % n != 0;
		}
		/* Each update adds up to 1. */
		ck_assert_double_eq_tol(sum, (double)job.counts[0].rounds, 1e-3);
		ck_assert(n == 1 || uneven_round);
		ck_assert(n == 1 || job.counts[0].rounds < steps);
		for (uint32_t i = 0; i < n; i++) {
			ck_assert_uint_eq(job.counts[i].rounds, job.counts[0].rounds);
			ck_assert_uint_eq(job.counts[i].global_reductions,
					  job.counts[0].rounds + lag);
			ck_assert_uint_eq(job.counts[i].staleness_max, lag);
		}
		job_free(&job);
	}
}
END_TEST

START_TEST(until_done_of_a_single_step)
{
	struct job job = job_of(3, 1, 3, 1.0);

	job.gradient = one_hot;
	OWN(&job, uint32_t, "accumulate") = 0;
	OWN(&job, uint32_t, "lag") = 4;
	job_run(&job);
	for (int i = 0; i < 3; i++)
		ck_assert_double_eq_tol((double)job.last[2][i], -1.0 / 3.0, 1e-6);
	ck_assert_uint_eq(job.counts[1].rounds, 1);
	job_free(&job);
}
END_TEST

/* ---- Stability ---- */

static void unit_curvature(const struct job *job, uint32_t rank, uint64_t step, const float *x,
			   float *gradient)
{
	(void)job;
	(void)rank;
	(void)step;
	gradient[0] = x[0] - 1.0f;
}

/* How far from the minimum, 1 away at first, after 3000 steps: an overflow is far. */
static double distance(double lr, float momentum, uint32_t lag, enum tr_lag_comp comp)
{
	struct job job = job_of(2, 3000, 1, lr);
	double far;

	job.gradient = unit_curvature;
	job.momentum = momentum;
	OWN(&job, uint32_t, "lag") = lag;
	OWN(&job, enum tr_lag_comp, "lag-comp") = comp;
	job_run(&job);
	far = fabs((double)job.last[0][0] - 1.0);
	job_free(&job);
	return isfinite(far) ? far : 1e30;
}

/* eta L < 1 - mu at lag 1; the others are roots of the characteristic polynomials. */
static const struct {
	float momentum;
	uint32_t lag;
	enum tr_lag_comp comp;
	double limit;
} limits[] = {
	{ 0.0f, 1, TR_LAG_COMP_NONE, 1.0 },        { 0.0f, 2, TR_LAG_COMP_NONE, 0.618 },
	{ 0.9f, 1, TR_LAG_COMP_NONE, 0.1 },        { 0.9f, 2, TR_LAG_COMP_NONE, 0.051 },
	{ 0.9f, 1, TR_LAG_COMP_LOOKAHEAD, 0.253 }, { 0.9f, 2, TR_LAG_COMP_LOOKAHEAD, 0.114 },
};
#define LIMIT_COUNT ((int)(sizeof(limits) / sizeof(limits[0])))

START_TEST(is_stable_up_to_its_limit)
{
	double below = distance(0.94 * limits[_i].limit, limits[_i].momentum, limits[_i].lag,
				limits[_i].comp);
	double above = distance(1.06 * limits[_i].limit, limits[_i].momentum, limits[_i].lag,
				limits[_i].comp);

	ck_assert_msg(below < 1e-2, "below %g: %g", limits[_i].limit, below);
	ck_assert_msg(above > 10.0, "above %g: %g", limits[_i].limit, above);
}
END_TEST

/* ---- The program ---- */

static const char *train[] = { NULL,         "--data",      "npy:data", "--quiet", "--model",
			       "logistic",   "--algorithm", "laga",     "--batch", "4",
			       "--momentum", "0.5",         "--out",    "out",     "--no-report",
			       "--seed",     "3",           NULL };

static const uint64_t sixty[] = { 60, 60, 60, 60 };

/* In every update, each rank's steps go on where they ended in the one before. `steps`: of each
 * rank; NULL: 60 on average, but not on each. */
static void must_hold_every_step(const char *path, const uint64_t *steps, uint32_t rank_count)
{
	size_t size_bytes;
	char *text = file_read(path, &size_bytes), *at = text;
	uint64_t next[RANKS_MAX] = { 0 }, sum = 0;
	bool uneven = false;
	unsigned long rank, first, last;

	ck_assert_ptr_nonnull(text);
	while ((at = strstr(at, "\"contributions\":[")) != NULL) {
		at += strlen("\"contributions\":[");
		for (; sscanf(at, "[%lu,%lu,%lu]", &rank, &first, &last) == 3;
		     at += strcspn(at, "]") + 1, at += *at == ',') {
			ck_assert_uint_lt(rank, rank_count);
			ck_assert_uint_eq(first, next[rank]);
			ck_assert_uint_ge(last, first);
			next[rank] = last + 1;
		}
	}
	free(text);
	for (uint32_t i = 0; i < rank_count; i++) {
		ck_assert(steps == NULL || next[i] == steps[i]);
		uneven |= next[i] != 60;
		sum += next[i];
	}
	ck_assert(steps != NULL || (uneven && sum == 60 * (uint64_t)rank_count));
}

START_TEST(real_ranks_agree_with_simulated_ones)
{
	static const char *const ranks[] = { "2", "3" };
	static const char *const variants_of[] = {
		"--accumulate 1",
		"--accumulate 3 --rate-by-count --clip 0.5",
		"--accumulate 2 --lag 2 --first-step zero --lag-comp lookahead",
	};
	char line[512];

	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	for (int v = 0; v < 3; v++) {
		snprintf(line, sizeof(line), "%s --steps 40 --ranks %s --save real.npy",
			 variants_of[v], ranks[_i]);
		line_succeed(train, line);
		snprintf(line, sizeof(line), "%s --steps 40 --ranks %s --save sim.npy --simulate",
			 variants_of[v], ranks[_i]);
		line_succeed(train, line);
		files_compare("real.npy", "sim.npy");
	}
}
END_TEST

/* Fewer rounds than these are too few updates to learn from: where others had the processors. */
#define ROUNDS_LEAST 15

START_TEST(until_done_learns_from_few_rounds)
{
	char line[256];
	double rounds = 0;

	for (uint32_t latency_ms = 12; rounds < ROUNDS_LEAST; latency_ms--) {
		ck_assert_uint_gt(latency_ms, 0);
		(void)snprintf(line, sizeof(line),
			       "--accumulate until-done --steps 60 --ranks 2 --simulate "
			       "--compute-time 1ms --latency %ums",
			       latency_ms);
		line_succeed(train, line);
		rounds = summary_number("rounds");
	}
	ck_assert_double_le(rounds, 2 * ROUNDS_LEAST);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
}
END_TEST

/* The program itself compares the ranks' parameters at the end. */
START_TEST(until_done_on_real_ranks)
{
	double rounds;

	line_succeed(train,
		     _i == 0 ? "--accumulate until-done --steps 60 --ranks 2 --delay rank:1:2ms"
			     : "--accumulate until-done --lag 2 --steps 60 --ranks 3 --delay "
			       "random:3ms");
	must_hold_every_step("out/ledger.jsonl", sixty, _i == 0 ? 2 : 3);
	rounds = summary_number("rounds");
	ck_assert_double_ge(rounds, 1);
	ck_assert_double_le(rounds, 60);
	ck_assert_double_eq(summary_number("global_reductions"), rounds + (_i == 0 ? 1 : 2));
	ck_assert_double_eq(summary_number("samples"), 60 * 4 * (_i == 0 ? 2 : 3));
	if (rounds >= ROUNDS_LEAST)
		ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
	else
		(void)fprintf(stderr,
			      "until_done_on_real_ranks: %g rounds say nothing of what is "
			      "learned\n",
			      rounds);
}
END_TEST

/* Ranks are in different rounds when the checkpoint comes, and some have begun to add up. */
START_TEST(until_done_goes_on_from_a_checkpoint)
{
	static const char line[] =
		"--steps 60 --ranks 4 --simulate --compute-time 1ms --latency 2ms "
		"--delay random:3ms --accumulate until-done --checkpoint ck --checkpoint-every 20";
	char text[1024];

	snprintf(text, sizeof(text), "%s --lag %d", line, _i + 1);
	line_succeed(train, text);
	must_hold_every_step("out/ledger.jsonl", sixty, 4);
	ck_assert_int_eq(unlink("ck/step-60/manifest.ckpt"), 0);
	ck_assert_int_eq(unlink("out/ledger.jsonl"), 0);
	snprintf(text, sizeof(text), "%s --lag %d --resume", line, _i + 1);
	line_succeed(train, text);
	must_hold_every_step("out/ledger.jsonl", sixty, 4);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
}
END_TEST

/* One rank is four times as slow: it never waits. With shared work it does not end last either. */
START_TEST(until_done_does_not_wait)
{
	static const char global[] =
		"--steps 60 --ranks 4 --simulate --compute-time 1ms --latency 200us "
		"--report-every 10 --delay rank:2:3ms --accumulate until-done";
	double seconds;
	char line[512];

	line_succeed(train, global);
	must_hold_every_step("out/ledger.jsonl", sixty, 4);
	seconds = summary_number("seconds");
	ck_assert_double_lt(seconds, 60 * 4e-3 * 1.2);
	snprintf(line, sizeof(line), "%s --work shared", global);
	line_succeed(train, line);
	must_hold_every_step("out/ledger.jsonl", NULL, 4);
	ck_assert_double_lt(summary_number("seconds"), 0.6 * seconds);
	ck_assert_double_eq(summary_number("samples"), 60 * 4 * 4);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
}
END_TEST

static const struct {
	const char *line, *word;
} refused[] = {
	{ "--lag-comp lookahead --optimizer adam --momentum 0", "lookahead" },
	{ "--accumulate 2 --work shared", "until-done" },
	{ "--accumulate 0", "--accumulate" },
	{ "--lag 0", "--lag" },
};

START_TEST(what_makes_no_sense_is_refused)
{
	char line[512];

	snprintf(line, sizeof(line), "--ranks 2 --simulate --steps 3 %s", refused[_i].line);
	line_fail(train, line, 2, refused[_i].word);
}
END_TEST

/* One that stands still is not computed around until the end of the run: what is added up
 * meanwhile would be a round of its own, and nobody would be told. */
START_TEST(until_done_notices_a_rank_that_stands_still)
{
	struct outcome got;
	size_t size_bytes;
	char *text;

	line_run(train,
		 "--simulate --ranks 2 --model logistic --batch 4 --steps 200000 --algorithm laga "
		 "--accumulate until-done --compute-time 1ms --delay rank:1:2000s "
		 "--report-every 1000 --no-report --out out",
		 &got);
	ck_assert_int_eq(got.status, 1);
	ck_assert_msg(strstr(got.err, "waits for rank 1") != NULL, "%s", got.err);
	text = file_read("out/metrics.jsonl", &size_bytes);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_ge(line_count(text), 59); /* A second each. */
	ck_assert_uint_le(line_count(text), 61);
	free(text);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("laga");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_loop_test(tests, two_parabolas, 0, 2);
	tcase_add_loop_test(tests, is_sgd_with_late_gradients, 0, VARIANT_COUNT);
	tcase_add_loop_test(tests, until_done_applies_every_gradient_once, 0, 5);
	tcase_add_test(tests, until_done_of_a_single_step);
	tcase_add_loop_test(tests, is_stable_up_to_its_limit, 0, LIMIT_COUNT);
	tcase_add_loop_test(tests, real_ranks_agree_with_simulated_ones, 0, 2);
	tcase_add_test(tests, until_done_learns_from_few_rounds);
	tcase_add_loop_test(tests, until_done_on_real_ranks, 0, 2);
	tcase_add_test(tests, until_done_does_not_wait);
	tcase_add_test(tests, until_done_notices_a_rank_that_stands_still);
	tcase_add_loop_test(tests, until_done_goes_on_from_a_checkpoint, 0, 3);
	tcase_add_loop_test(tests, what_makes_no_sense_is_refused, 0, 4);
	return check_main("laga", tests);
}
