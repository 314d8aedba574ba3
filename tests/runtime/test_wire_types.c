/*
 * test_wire_types.c -- sums and averages of float32 that travel in fewer bits: which bits come out,
 * by every algorithm; that feedback loses nothing; what is refused. Ranks are threads, or simulated
 * on one node, on none, and on several. The transport as argument: shm, ucx, sim.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/algorithms.h"
#include "collectives/reduce/coded.h"
#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static bool simulated;

static rubato_status sim_run(uint32_t n, uint32_t ranks_per_node, local_main rank_main, void *arg)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = n;
	options.seed = n;
	options.ranks_per_node = ranks_per_node;
	options.reorder = ranks_per_node == 0;
	options.jitter = ranks_per_node == 0;
	return rubato_sim_run(&options, rank_main, arg, &result);
}

static void job_run(uint32_t n, local_main rank_main, void *arg)
{
	rubato_status err;

	if (!simulated) {
		err = local_run(n, transports, rank_main, arg, NULL);
	} else {
		err = sim_run(n, n, rank_main, arg);
		if (err == RUBATO_OK)
			err = sim_run(n, 0, rank_main, arg);
		if (err == RUBATO_OK && n > 2)
			err = sim_run(n, 2, rank_main, arg); /* The last node has one, perhaps. */
	}
	ck_assert_msg(err == RUBATO_OK, "%u ranks: %s", n, rubato_error_text());
}

/* ---- What comes out ---- */

struct trial {
	const struct rb_algorithm *algorithm;
	rubato_wire wire;
	rubato_operator op;
	uint64_t count; /* Of the call. */
	bool in_place, allocated, persistent;
	uint32_t salt;
};

struct sweep {
	uint32_t ran, refused; /* By rank 0's word. */
};

static float input(const struct trial *t, uint32_t rank, uint64_t i)
{
	uint64_t bits = rb_mix(((uint64_t)t->salt << 32) + rank * 7919u + i * 104729);
	float value = (float)(int32_t)(bits & 0xffffff) / 65536.0f - 100.0f;

	return i % 1009 == 5 ? INFINITY : i % 511 == 3 ? 0.0f : value;
}

/* Of `count` values from `first` on, as one call rounds them. */
static void code(rubato_wire wire, float *values, uint64_t count)
{
	uint8_t *units = malloc(rb_code_units(wire, count) * rb_code_bytes(wire) + 1);
	const void *from[] = { values, units };
	struct rb_coded there = {
		.wire = wire, .to = units, .from = from, .from_count = 1, .count = count
	};
	struct rb_coded back = {
		.wire = wire, .to = values, .from = from + 1, .from_count = 1, .count = count
	};

	rb_coders_plain.encode(&there);
	rb_coders_plain.decode(&back);
	free(units);
}

/* The block from `first` on, in two roundings; and how far more of them may lead. */
static void expected(const struct trial *t, uint32_t n, uint64_t first, float *sum, float *bound)
{
	float *one = malloc((t->count + 1) * sizeof(*one));

	for (uint32_t r = 0; r < n; r++) {
		for (uint64_t i = 0; i < t->count; i++)
			one[i] = input(t, r, first + i);
		code(t->wire, one, t->count);
		for (uint64_t i = 0; i < t->count; i++)
			sum[i] = r == 0 ? one[i] : sum[i] + one[i];
	}
	/* Of a sum of n values below 156, over n steps. */
	*bound = 156.0f * (float)(n * n) / (t->wire == RUBATO_WIRE_INT8 ? 254.0f : 256.0f);
	for (uint64_t i = 0; t->op == RUBATO_AVG && i < t->count; i++)
		sum[i] *= 1.0f / (float)n;
	code(t->wire, sum, t->count);
	free(one);
}

static rubato_status check(const struct trial *t, uint32_t n, uint64_t first, const float *out)
{
	float *sum = malloc((t->count + 1) * sizeof(*sum)), bound;
	rubato_status err = RUBATO_OK;

	expected(t, n, first, sum, &bound);
	for (uint64_t i = 0; i < t->count && err == RUBATO_OK; i++) {
		bool near = isfinite(sum[i]) && fabsf(out[i] - sum[i]) <= bound;
		bool same = memcmp(&out[i], &sum[i], sizeof(*out)) == 0;

		if (!same && (t->algorithm->reductions == RB_REDUCTIONS_ONE || !near))
			err = RB_FAIL(RUBATO_ERR_MISMATCH,
				      "%s %s as %s, %u ranks, count %llu, %s: element %llu is %g, "
				      "not %g",
				      rb_kind_name(t->algorithm->kind), t->algorithm->name,
				      rubato_wire_name(t->wire), n, (unsigned long long)t->count,
				      t->persistent ? "persistent" : "blocking",
				      (unsigned long long)i, (double)out[i], (double)sum[i]);
	}
	free(sum);
	return err;
}

/* The same bits on every rank. */
static rubato_status compare(rubato_comm *comm, const struct trial *t, const float *out)
{
	uint32_t n = rubato_size(comm);
	uint64_t hash = 1, *all = calloc(n, sizeof(*all));
	rubato_status err;

	for (uint64_t i = 0; i < t->count; i++) {
		uint32_t bits;

		memcpy(&bits, &out[i], sizeof(bits));
		hash = rb_mix(hash + bits);
	}
	err = rubato_allgather(comm, &hash, all, 1, RUBATO_UINT64);
	for (uint32_t r = 0; r < n && err == RUBATO_OK; r++)
		if (all[r] != hash)
			err = RB_FAIL(RUBATO_ERR_MISMATCH, "%s as %s: ranks have other bits",
				      t->algorithm->name, rubato_wire_name(t->wire));
	free(all);
	return err;
}

static rubato_status call_persistent(rubato_comm *comm, const struct trial *t, const float *in,
				     float *out)
{
	bool all = t->algorithm->kind == RB_KIND_ALLREDUCE;
	rubato_op *op = NULL;
	rubato_status err =
		all ? rubato_op_allreduce(comm, in, out, t->count, RUBATO_FLOAT32, t->op, &op)
		    : rubato_op_reduce_scatter(comm, in, out, t->count, RUBATO_FLOAT32, t->op, &op);

	if (err == RUBATO_OK)
		err = rubato_start(op);
	if (err == RUBATO_OK)
		err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	rubato_op_free(op);
	return err;
}

static rubato_status call(rubato_comm *comm, const struct trial *t, const float *in, float *out)
{
	if (t->persistent)
		return call_persistent(comm, t, in, out);
	if (t->algorithm->kind == RB_KIND_ALLREDUCE)
		return rubato_allreduce(comm, in, out, t->count, RUBATO_FLOAT32, t->op);
	return rubato_reduce_scatter(comm, in, out, t->count, RUBATO_FLOAT32, t->op);
}

static rubato_status trial_on(rubato_comm *comm, const struct trial *t, float *in, float *out)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	bool all = t->algorithm->kind == RB_KIND_ALLREDUCE;
	uint64_t whole = all ? t->count : n * t->count, first = all ? 0 : rank * t->count;

	if (t->in_place)
		out = in + first;
	for (uint64_t i = 0; i < whole; i++)
		in[i] = input(t, rank, i);
	RB_TRY(rubato_set_wire(comm, t->wire, false));
	RB_TRY(call(comm, t, in, out));
	RB_TRY(check(t, n, first, out));
	for (uint64_t i = 0; !t->in_place && i < whole; i++) {
		float was = input(t, rank, i);

		if (memcmp(&in[i], &was, sizeof(was)) != 0)
			return RB_FAIL(RUBATO_ERR_MISMATCH, "%s wrote its input",
				       t->algorithm->name);
	}
	return all ? compare(comm, t, out) : RUBATO_OK;
}

static rubato_status trial_run(rubato_comm *comm, const struct trial *t, struct sweep *sweep)
{
	uint64_t bytes = (rubato_size(comm) * t->count + 1) * sizeof(float);
	const char *kind = rb_kind_name(t->algorithm->kind);
	void *in = malloc(bytes), *out = malloc(bytes);
	rubato_status err;

	if (t->allocated) {
		free(in);
		free(out);
		RB_TRY(rubato_alloc(comm, bytes, &in));
		RB_TRY(rubato_alloc(comm, bytes, &out));
	}
	RB_TRY(rubato_set_algorithm(comm, kind, t->algorithm->name));
	err = trial_on(comm, t, in, out);
	if (rubato_rank(comm) == 0)
		*(err == RUBATO_ERR_UNSUPPORTED ? &sweep->refused : &sweep->ran) += 1;
	if (err == RUBATO_ERR_UNSUPPORTED)
		err = RUBATO_OK;
	if (t->allocated) {
		RB_TRY(rubato_free(comm, in));
		RB_TRY(rubato_free(comm, out));
	} else {
		free(in);
		free(out);
	}
	return err == RUBATO_OK ? rubato_set_algorithm(comm, kind, "auto") : err;
}

static rubato_status values_main(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { 1, 127, 128, 129, 1000, 40001 };
	struct sweep *sweep = arg;
	uint32_t turn = 0, each = test_length() == TEST_SHORT ? 3 : 1;

	for (uint32_t a = 0; a < rb_algorithm_count; a++) {
		enum rb_kind kind = rb_algorithms[a].kind;

		if (kind != RB_KIND_ALLREDUCE && kind != RB_KIND_REDUCE_SCATTER)
			continue;
		for (uint32_t i = 0; i < 12; i++) {
			struct trial t = { .algorithm = &rb_algorithms[a],
					   .wire = (rubato_wire)(1 + i % 2),
					   .op = turn / 2 % 2 ? RUBATO_AVG : RUBATO_SUM,
					   .count = counts[i / 2],
					   .in_place = turn / 3 % 2,
					   .allocated = turn / 5 % 2,
					   .persistent = turn / 7 % 2,
					   .salt = turn };

			if (turn++ % each == 0)
				RB_TRY(trial_run(comm, &t, sweep));
		}
	}
	return RUBATO_OK;
}

START_TEST(every_algorithm_rounds_as_it_says)
{
	static const uint32_t rank_counts[] = { 2, 3, 4, 7 };
	struct sweep sweep = { 0 };

	if (test_length() == TEST_SHORT && _i == 3)
		return;
	job_run(rank_counts[_i], values_main, &sweep);
	ck_assert_uint_gt(sweep.ran, 10);
	ck_assert_uint_gt(sweep.refused, 1); /* Recursive ones. */
}
END_TEST

/* Other operators and types travel as they are, and so does what is on one rank. */
static rubato_status others_main(rubato_comm *comm, void *arg)
{
	float in = 1.0f + (float)rubato_rank(comm) / 4096.0f, out, most;
	uint32_t n = rubato_size(comm);
	double wide = in, sum;
	char text[300];

	(void)arg;
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_BFLOAT16, true));
	RB_TRY(rubato_allreduce(comm, &in, &most, 1, RUBATO_FLOAT32, RUBATO_MAX));
	RB_TRY(rubato_allreduce(comm, &wide, &sum, 1, RUBATO_FLOAT64, RUBATO_SUM));
	RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM));
	if (most != 1.0f + (float)(n - 1) / 4096.0f || sum <= n - 0.5)
		return RB_FAIL(RUBATO_ERR_MISMATCH, "max is %g, sum %g", (double)most, sum);
	if (out != (n == 1 ? in : (float)n))
		return RB_FAIL(RUBATO_ERR_MISMATCH, "%u ranks: %g", n, (double)out);
	RB_TRY(rubato_explain(comm, "allreduce", 1000, RUBATO_FLOAT32, text, sizeof(text)));
	if (strstr(text, "as bfloat16") == NULL)
		return RB_FAIL(RUBATO_ERR_MISMATCH, "explained: %s", text);
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_SAME, false));
	RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM));
	if (n > 1 && out == (float)n)
		return RB_FAIL(RUBATO_ERR_MISMATCH, "rounded still");
	if (rubato_set_wire(comm, (rubato_wire)3, false) != RUBATO_ERR_ARGUMENT ||
	    rubato_set_wire(NULL, RUBATO_WIRE_INT8, false) != RUBATO_ERR_ARGUMENT)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "not refused");
	return RUBATO_OK;
}

START_TEST(others_travel_as_they_are)
{
	job_run(1, others_main, NULL);
	job_run(3, others_main, NULL);
}
END_TEST

/* ---- Feedback ---- */

#define LONG_COUNT 1000u
#define LONG_STEPS 40u

struct story {
	const char *algorithm;
	rubato_wire wire;
	bool cut; /* Its second half is another operation's, made of the first one's residual. */
	uint32_t ran;
	double out[LONG_COUNT]; /* Rank 0's. */
};

/* Whole numbers: sums of them are exact in float32. */
static float small_input(uint32_t rank, uint32_t step, uint64_t i)
{
	return (float)(rb_mix(rank * 31 + step * 1009 + i * 104729) % 2001) - 1000.0f;
}

static rubato_status residual_sum(rubato_comm *comm, rubato_op *op, double *left, float *most)
{
	float *residual;
	uint64_t count;

	RB_TRY(rubato_op_residual(op, &residual, &count));
	for (uint64_t i = 0; i < LONG_COUNT; i++) {
		left[i] = (double)residual[i] + (double)residual[count / 2 + i];
		*most = fmaxf(*most, fabsf(residual[i]));
	}
	return rubato_allreduce(comm, left, left, LONG_COUNT, RUBATO_FLOAT64, RUBATO_SUM);
}

static rubato_status hand_over(rubato_comm *comm, const float *in, float *out, rubato_op **op)
{
	float *before, *after;
	uint64_t count, same;
	rubato_op *next;

	RB_TRY(rubato_op_allreduce(comm, in, out, LONG_COUNT, RUBATO_FLOAT32, RUBATO_SUM, &next));
	RB_TRY(rubato_op_residual(*op, &before, &count));
	RB_TRY(rubato_op_residual(next, &after, &same));
	if (count != same)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "residuals of other sizes");
	memcpy(after, before, count * sizeof(*after));
	rubato_op_free(*op);
	*op = next;
	return RUBATO_OK;
}

static rubato_status story_main(rubato_comm *comm, void *arg)
{
	struct story *s = arg;
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	double *sums = calloc(3 * LONG_COUNT, sizeof(*sums)), *out = sums + LONG_COUNT;
	float in[LONG_COUNT], result[LONG_COUNT], most = 0.0f;
	rubato_status err;
	rubato_op *op;

	RB_TRY(rubato_set_algorithm(comm, "allreduce", s->algorithm));
	RB_TRY(rubato_set_wire(comm, s->wire, true));
	err = rubato_op_allreduce(comm, in, result, LONG_COUNT, RUBATO_FLOAT32, RUBATO_SUM, &op);
	if (err == RUBATO_ERR_UNSUPPORTED) {
		free(sums);
		return RUBATO_OK;
	}
	RB_TRY(err);
	for (uint32_t step = 0; step < LONG_STEPS; step++) {
		for (uint64_t i = 0; i < LONG_COUNT; i++)
			in[i] = small_input(rank, step, i);
		if (s->cut && step == LONG_STEPS / 2)
			RB_TRY(hand_over(comm, in, result, &op));
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		for (uint64_t i = 0; i < LONG_COUNT; i++) {
			out[i] += (double)result[i];
			for (uint32_t r = 0; r < n; r++)
				sums[i] += (double)small_input(r, step, i);
		}
	}
	RB_TRY(residual_sum(comm, op, sums + 2 * LONG_COUNT, &most));
	rubato_op_free(op);
	for (uint64_t i = 0; i < LONG_COUNT; i++) {
		double lost = sums[i] - out[i] - sums[2 * LONG_COUNT + i];

		/* A scale of int8 is no whole number: what float32 rounds there is lost. */
		if (fabs(lost) > (s->wire == RUBATO_WIRE_INT8 ? 0.02 : 0.0))
			return RB_FAIL(RUBATO_ERR_MISMATCH, "%s as %s: element %llu: %g lost",
				       s->algorithm, rubato_wire_name(s->wire),
				       (unsigned long long)i, lost);
	}
	if (most == 0.0f || most > 8.0f)
		return RB_FAIL(RUBATO_ERR_MISMATCH, "%g left of an input", (double)most);
	if (rank == 0) {
		memcpy(s->out, out, sizeof(s->out));
		s->ran++;
	}
	free(sums);
	return RUBATO_OK;
}

START_TEST(feedback_loses_nothing)
{
	/* By "flat" every rank rounds each sum, so residuals do not add up. */
	static const char *const algorithms[] = { "two_shot", "ring", "direct", "hierarchical" };

	for (uint32_t w = 1; w < RUBATO_WIRE_COUNT; w++) {
		struct story s = { .algorithm = algorithms[_i], .wire = (rubato_wire)w };

		job_run(3, story_main, &s);
		/* Where no memory is mapped, the last two cannot run. */
		ck_assert(s.ran > 0 || (_i >= 2 && transports[0] != &rb_transport_shm));
	}
}
END_TEST

START_TEST(a_residual_can_be_handed_over)
{
	for (uint32_t w = 1; w < RUBATO_WIRE_COUNT; w++) {
		struct story whole = { .algorithm = "two_shot", .wire = (rubato_wire)w };
		struct story cut = whole;

		cut.cut = true;
		job_run(3, story_main, &whole);
		job_run(3, story_main, &cut);
		ck_assert_mem_eq(whole.out, cut.out, sizeof(whole.out));
	}
}
END_TEST

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	float in[4] = { 0 }, out[4], *residual;
	rubato_op *op;
	uint64_t count;

	(void)arg;
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_INT8, false));
	RB_TRY(rubato_op_allreduce(comm, in, out, 4, RUBATO_FLOAT32, RUBATO_SUM, &op));
	if (rubato_op_residual(op, &residual, &count) != RUBATO_ERR_ARGUMENT)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "a residual of none");
	rubato_op_free(op);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "recursive_doubling"));
	if (rubato_allreduce(comm, in, out, 4, RUBATO_FLOAT32, RUBATO_SUM) !=
		    RUBATO_ERR_UNSUPPORTED ||
	    strstr(rubato_error_text(), "rubato_set_wire") == NULL)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "recursive doubling: %s", rubato_error_text());
	return rubato_allreduce(comm, in, out, 4, RUBATO_FLOAT32, RUBATO_MAX);
}

START_TEST(what_cannot_be_is_refused)
{
	job_run(2, refused_main, NULL);
}
END_TEST

/* More than a machine has, and than a plan has chunks: an error, no broken invariant. */
static rubato_status too_much_main(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { UINT64_C(1) << 48, UINT64_C(1) << 52,
					   UINT64_C(1) << 53 };
	float in[4] = { 0 }, out[4];
	rubato_comm *one;
	rubato_status err;
	rubato_op *op;

	(void)arg;
	for (uint32_t i = 0; i < 3 * 3; i++) { /* Each is its communicator's end. */
		rubato_type type = i / 3 > 0 ? RUBATO_FLOAT32 : RUBATO_FLOAT16;

		RB_TRY(rubato_split(comm, 0, 0, &one));
		RB_TRY(rubato_set_wire(one, (rubato_wire)(i / 3), false));
		RB_TRY(rubato_set_accumulate(one, RUBATO_ACCUMULATE_WHOLE));
		err = rubato_op_allreduce(one, in, out, counts[i % 3], type, RUBATO_SUM, &op);
		/* Or the other one was first, and this one heard of it. */
		if (err != RUBATO_ERR_MEMORY &&
		    (err != RUBATO_ERR_PEER || strstr(rubato_error_text(), " failed: ") == NULL))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "%u: %s", i, rubato_error_text());
		(void)rubato_finalize(one);
	}
	return rubato_allreduce(comm, in, out, 4, RUBATO_FLOAT32, RUBATO_SUM);
}

START_TEST(too_much_is_refused)
{
	job_run(2, too_much_main, NULL);
}
END_TEST

/* ---- Ranks that differ ---- */

struct difference {
	rubato_wire wires[2];
	uint64_t counts[2];
	bool persistent, feedback; /* Of rank 1. */
};

static rubato_status differ_main(rubato_comm *comm, void *arg)
{
	const struct difference *d = arg;
	uint32_t rank = rubato_rank(comm);
	float in[256] = { 0 }, out[256];
	rubato_op *op = NULL;
	rubato_status err;
	char text[256];

	RB_TRY(rubato_set_wire(comm, d->wires[rank], d->feedback && rank == 1));
	if (d->persistent)
		err = rubato_op_allreduce(comm, in, out, d->counts[rank], RUBATO_FLOAT32,
					  RUBATO_SUM, &op);
	else
		err = rubato_allreduce(comm, in, out, d->counts[rank], RUBATO_FLOAT32, RUBATO_SUM);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (!simulated)
		(void)rubato_finalize(comm);
	if (err != RUBATO_ERR_MISMATCH || strstr(text, "float32 as int8") == NULL)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u: %s: %s", rank,
			       rubato_status_name(err), text);
	return RUBATO_OK;
}

START_TEST(ranks_that_differ_learn_it)
{
	static const struct difference rows[] = {
		{ { RUBATO_WIRE_INT8, RUBATO_WIRE_BFLOAT16 }, { 64, 64 }, false, false },
		{ { RUBATO_WIRE_SAME, RUBATO_WIRE_INT8 }, { 64, 64 }, true, false },
		{ { RUBATO_WIRE_INT8, RUBATO_WIRE_SAME }, { 64, 64 }, false, false },
		/* As many units: the counts are compared all the same. */
		{ { RUBATO_WIRE_INT8, RUBATO_WIRE_INT8 }, { 64, 65 }, false, false },
		{ { RUBATO_WIRE_INT8, RUBATO_WIRE_INT8 }, { 127, 128 }, true, false },
		{ { RUBATO_WIRE_INT8, RUBATO_WIRE_INT8 }, { 64, 64 }, true, true },
	};
	struct difference row = rows[_i];

	if (simulated)
		return;
	ck_assert_msg(local_run_raw(2, transports, differ_main, &row, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("wire-types");
	TCase *tc = tcase_create("wire-types");

	transports[0] = local_transport(argc > 1 ? argv[1] : "shm");
	simulated = argc > 1 && strcmp(argv[1], "sim") == 0;
	tcase_set_timeout(tc, 200);
	tcase_add_loop_test(tc, every_algorithm_rounds_as_it_says, 0, 4);
	tcase_add_test(tc, others_travel_as_they_are);
	tcase_add_loop_test(tc, feedback_loses_nothing, 0, 4);
	tcase_add_test(tc, a_residual_can_be_handed_over);
	tcase_add_test(tc, what_cannot_be_is_refused);
	tcase_add_test(tc, too_much_is_refused);
	tcase_add_loop_test(tc, ranks_that_differ_learn_it, 0, 6);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
