/*
 * test_helped.c -- the allreduce that is helped against a late rank: how much of it is left when
 * that comes, that its bits are the same whoever it is, and what is said when ranks do not come,
 * are lost, or make something else. Virtual time: the same on every machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define NOBODY UINT32_MAX
#define LATENCY_NS 50000u
#define BANDWIDTH 1.25e9
#define MILLISECOND 1000000u

struct job {
	/* What is asked for. */
	uint32_t ranks, late, starts;
	uint64_t count, late_ns;
	rubato_type type;
	rubato_operator op;
	const char *plain; /* An algorithm of the plain one instead; NULL: helped. */
	bool in_place;
	uint64_t stagger_seed; /* Not 0: each rank sleeps as chance says before each start. */
	/* What came of it. */
	uint64_t arrived_ns, end_ns; /* Of the last start: the last rank's. */
	uint8_t *out;                /* Of the last start, rank 0's. */
	uint32_t returned;           /* Ranks that came to the end. */
	char text[64][256];          /* Of each rank's error. */
	rubato_status status[64];
};

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Floats whose sums depend on the order; small integers, so that all know the sum. */
static void fill(const struct job *j, void *in, uint32_t rank, uint32_t start)
{
	for (uint64_t i = 0; i < j->count; i++) {
		uint64_t x = mixed(i * 1000003 + rank * 131 + start + 1);

		if (j->type == RUBATO_FLOAT32)
			((float *)in)[i] = (float)(x >> 40) * 1e-3f * (float)(1u << (x & 15));
		else if (j->type == RUBATO_FLOAT16)
			((uint16_t *)in)[i] = rubato_float32_to_float16((float)(x >> 54) * .01f);
		else
			((int32_t *)in)[i] = (int32_t)(x & 0xffff);
	}
}

static void check_integers(const struct job *j, const void *out, uint32_t start)
{
	for (uint64_t i = 0; j->type == RUBATO_INT32 && i < j->count; i++) {
		int32_t sum = 0;

		for (uint32_t r = 0; r < j->ranks; r++)
			sum += (int32_t)(mixed(i * 1000003 + r * 131 + start + 1) & 0xffff);
		ck_assert_int_eq(((const int32_t *)out)[i], sum);
	}
}

static void sleep_before(const struct job *j, rubato_comm *comm, uint32_t start)
{
	uint32_t rank = rubato_rank(comm);

	if (j->stagger_seed != 0)
		rubato_sleep(comm, mixed(j->stagger_seed * 977 + start * 64 + rank) % 400000);
	else if (rank == j->late)
		rubato_sleep(comm, j->late_ns);
}

/* Every rank's bits of one start are rank 0's. */
static rubato_status check_same(struct job *j, const void *out, uint32_t rank, rubato_comm *comm)
{
	size_t bytes = j->count * rubato_type_bytes(j->type);
	rubato_status err = rubato_barrier(comm);

	if (err == RUBATO_OK && rank == 0)
		memcpy(j->out, out, bytes);
	if (err == RUBATO_OK)
		err = rubato_barrier(comm);
	if (err == RUBATO_OK)
		ck_assert_mem_eq(j->out, out, bytes);
	return err;
}

static rubato_status start_all(rubato_comm *comm, struct job *j, rubato_op *op, void *in,
			       const void *out)
{
	uint32_t rank = rubato_rank(comm);

	for (uint32_t s = 0; s < j->starts; s++) {
		rubato_status err;

		fill(j, in, rank, s);
		err = rubato_barrier(comm);
		if (err != RUBATO_OK)
			return err;
		j->arrived_ns = j->end_ns = 0;
		sleep_before(j, comm, s);
		if (rubato_now(comm) > j->arrived_ns)
			j->arrived_ns = rubato_now(comm);
		err = rubato_start(op);
		if (err == RUBATO_OK)
			err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
		if (err != RUBATO_OK)
			return err;
		if (rubato_now(comm) > j->end_ns)
			j->end_ns = rubato_now(comm);
		check_integers(j, out, s);
		err = check_same(j, out, rank, comm);
		if (err != RUBATO_OK)
			return err;
	}
	return RUBATO_OK;
}

static rubato_status make(rubato_comm *comm, struct job *j, void *in, void *out, rubato_op **op)
{
	rubato_status err;

	if (j->plain == NULL)
		return rubato_op_allreduce_helped(comm, in, out, j->count, j->type, j->op, op);
	err = rubato_set_algorithm(comm, "allreduce", j->plain);
	return err == RUBATO_OK ? rubato_op_allreduce(comm, in, out, j->count, j->type, j->op, op)
				: err;
}

static rubato_status body(rubato_comm *comm, void *arg)
{
	struct job *j = arg;
	size_t bytes = j->count * rubato_type_bytes(j->type);
	uint8_t *in = malloc(bytes), *out = j->in_place ? in : malloc(bytes);
	uint32_t rank = rubato_rank(comm);
	rubato_op *op = NULL;
	rubato_status err;

	ck_assert(in != NULL && out != NULL);
	err = make(comm, j, in, out, &op);
	if (err == RUBATO_OK)
		err = start_all(comm, j, op, in, out);
	j->status[rank] = err;
	(void)snprintf(j->text[rank], sizeof(j->text[rank]), "%s", rubato_error_text());
	j->returned++;
	rubato_op_free(op);
	if (out != in)
		free(out);
	free(in);
	return err;
}

static rubato_sim_options options_of(const struct job *j)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	options.rank_count = j->ranks;
	options.latency_ns = LATENCY_NS;
	options.bandwidth = BANDWIDTH;
	return options;
}

static void run(struct job *j)
{
	rubato_sim_options options = options_of(j);
	rubato_sim_result result;

	free(j->out);
	j->out = calloc(j->count, rubato_type_bytes(j->type));
	ck_assert_ptr_nonnull(j->out);
	ck_assert_msg(rubato_sim_run(&options, body, j, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}

static double after_arrival_ns(uint32_t ranks, uint32_t late, uint64_t count, const char *plain)
{
	struct job j = { .ranks = ranks,
			 .late = late,
			 .starts = 2,
			 .count = count,
			 .late_ns = 100 * MILLISECOND,
			 .plain = plain };

	run(&j);
	free(j.out);
	return (double)(j.end_ns - j.arrived_ns);
}

/* ---- Time ---- */

/* One vector on a link, where two_shot takes 2 (n-1)/n, and some latencies. */
START_TEST(one_vector_is_left_when_the_late_rank_comes)
{
	static const uint32_t ranks[] = { 3, 4, 8, 13, 16 };
	uint64_t count = 1 << 20;
	uint32_t n = ranks[_i], times = test_length() == TEST_SHORT ? 1 : 2;
	double vector_ns = (double)count * 4 / BANDWIDTH * 1e9;

	if (times == 1 && n > 8)
		return;
	for (uint32_t i = 0; i < times; i++) {
		uint32_t late = i == 0 ? n - 1 : 0;
		double helped = after_arrival_ns(n, late, count, NULL);
		double plain = after_arrival_ns(n, late, count, "two_shot");

		ck_assert_msg(helped <= 6 * LATENCY_NS + (n < 8 ? 1.18 : 1.02) * vector_ns,
			      "%u ranks, rank %u late: %.0f us after it came, a vector takes %.0f",
			      n, late, helped / 1e3, vector_ns / 1e3);
		ck_assert_msg(helped <= plain * (n == 3   ? .9
						 : n == 4 ? .8
							  : .6),
			      "%u ranks, rank %u late: %.0f us after it came, plain %.0f", n, late,
			      helped / 1e3, plain / 1e3);
	}
}
END_TEST

/* A message to those who name the late rank and one back; and where they name one although nobody
 * is late, (2n - 3) / (n - 1) vectors on a link instead of two_shot's. */
START_TEST(two_latencies_more_when_nobody_is_late)
{
	static const uint32_t ranks[] = { 3, 4, 8, 16 };
	double n = ranks[_i], vectors = (2 * n - 3) / (n - 1) / (2 * (n - 1) / n);
	double helped = after_arrival_ns(ranks[_i], NOBODY, 1 << 20, NULL);
	double plain = after_arrival_ns(ranks[_i], NOBODY, 1 << 20, "two_shot");

	ck_assert_msg(helped <= plain * 1.07 * vectors + 2 * LATENCY_NS,
		      "%.0f ranks: %.0f us, plain %.0f", n, helped / 1e3, plain / 1e3);
}
END_TEST

/* ---- Bits ---- */

/* Of start number 1, with this rank late in all. */
static uint8_t *bits(struct job j, uint32_t late)
{
	j.late = late;
	j.starts = 2;
	j.late_ns = 3 * MILLISECOND;
	run(&j);
	return j.out;
}

START_TEST(bits_do_not_depend_on_who_is_late)
{
	static const struct job jobs[] = {
		{ .count = 40000, .type = RUBATO_FLOAT32, .op = RUBATO_SUM },
		{ .count = 32801, .type = RUBATO_FLOAT32, .op = RUBATO_AVG, .in_place = true },
		{ .count = 40961, .type = RUBATO_FLOAT16, .op = RUBATO_SUM },
		{ .count = 16384, .type = RUBATO_INT32, .op = RUBATO_SUM, .in_place = true },
	};

	uint32_t most = test_length() == TEST_SHORT ? 5 : 9;

	for (uint32_t n = 3; n <= most; n += n == 3 ? 2 : 4) {
		struct job j = jobs[_i];

		j.ranks = n;
		size_t bytes = j.count * rubato_type_bytes(j.type);
		uint8_t *first = bits(j, NOBODY);

		for (uint32_t late = 0; late < n; late++) {
			uint8_t *out = bits(j, late);

			ck_assert_mem_eq(out, first, bytes);
			free(out);
		}
		free(first);
	}
}
END_TEST

/* Whoever comes when, and several who are late: the same bits and sums. */
START_TEST(any_order_of_arrivals)
{
	uint64_t seeds = test_length() == TEST_SHORT ? 3 : 12;
	uint8_t *out[2] = { NULL, NULL };

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		uint32_t n = 3 + (uint32_t)(seed % 6);
		struct job j = { .ranks = n,
				 .starts = 6,
				 .count = 20000,
				 .type = seed % 2 == 0 ? RUBATO_INT32 : RUBATO_FLOAT32,
				 .in_place = seed % 3 == 0,
				 .stagger_seed = seed };

		run(&j);
		out[0] = j.out;
		j.out = NULL;
		j.stagger_seed = seed + 1000;
		run(&j);
		out[1] = j.out;
		ck_assert_mem_eq(out[0], out[1], j.count * rubato_type_bytes(j.type));
		free(out[0]);
		free(out[1]);
	}
}
END_TEST

/* ---- Who does not come, is lost, or makes something else ---- */

static void run_that_fails(struct job *j, const rubato_sim_fault *fault, uint64_t timeout_ns,
			   rubato_sim_result *result)
{
	rubato_sim_options options = options_of(j);

	options.timeout_ns = timeout_ns;
	options.faults = fault;
	options.fault_count = fault != NULL;
	free(j->out);
	j->out = calloc(j->count, rubato_type_bytes(j->type));
	ck_assert_ptr_nonnull(j->out);
	(void)!rubato_sim_run(&options, body, j, result);
}

/* The deadline names the late rank, once it has been named: then all of them wait for it. */
START_TEST(a_timeout_names_the_late_rank)
{
	struct job j = { .ranks = 5,
			 .late = (uint32_t)_i,
			 .starts = 1,
			 .count = 20000,
			 .late_ns = 500 * (uint64_t)MILLISECOND };
	rubato_sim_result result;
	char name[16];

	run_that_fails(&j, NULL, 50 * MILLISECOND, &result);
	(void)snprintf(name, sizeof(name), "rank %d", _i);
	for (uint32_t r = 0; r < j.ranks; r++) {
		if (r == j.late)
			continue;
		ck_assert_int_eq(j.status[r], RUBATO_ERR_TIMEOUT);
		ck_assert_msg(strstr(j.text[r], name) != NULL, "rank %u: %s", r, j.text[r]);
	}
	free(j.out);
}
END_TEST

static rubato_status two_are_missing(rubato_comm *comm, void *arg)
{
	struct job *j = arg;
	static int32_t in[20000], out[5][20000];
	uint32_t rank = rubato_rank(comm);
	rubato_op *op = NULL;
	rubato_status err;

	err = rubato_op_allreduce_helped(comm, in, out[rank], 20000, RUBATO_INT32, RUBATO_SUM, &op);
	if (err == RUBATO_OK && (rank == 1 || rank == 4))
		rubato_sleep(comm, 100 * MILLISECOND);
	if (err == RUBATO_OK)
		err = rubato_start(op);
	if (err == RUBATO_OK)
		err = rubato_wait(op, 10 * MILLISECOND);
	j->status[rank] = err;
	(void)snprintf(j->text[rank], sizeof(j->text[rank]), "%s", rubato_error_text());
	if (err == RUBATO_ERR_TIMEOUT) /* It goes on. */
		err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	rubato_op_free(op);
	return err;
}

START_TEST(a_timeout_names_all_that_are_missing)
{
	struct job j = { .ranks = 5, .count = 1 };
	rubato_sim_options options = options_of(&j);
	rubato_sim_result result;

	ck_assert_int_eq(rubato_sim_run(&options, two_are_missing, &j, &result), RUBATO_OK);
	for (uint32_t r = 0; r < 3; r += 2) { /* Two that vote. */
		ck_assert_int_eq(j.status[r], RUBATO_ERR_TIMEOUT);
		ck_assert_msg(strstr(j.text[r], "rank 1 (to begin it), rank 4 (to begin it)") !=
				      NULL,
			      "rank %u: %s", r, j.text[r]);
	}
	ck_assert_int_eq(j.status[3], RUBATO_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(j.text[3], "ranks 0 to 2 know"));
	ck_assert_int_eq(j.status[1], RUBATO_OK);
}
END_TEST

/* A rank is lost at any time: the others end with an error that names it, or with the right sums
 * (which start_all checks), and soon. */
START_TEST(a_loss_is_an_error_that_names_it)
{
	uint64_t apart_us = test_length() == TEST_SHORT ? 1100 : 210;
	uint32_t fired = 0, failed = 0;

	for (uint64_t at_us = 100; at_us < 4000; at_us += apart_us) {
		struct job j = { .ranks = 4,
				 .starts = 4,
				 .count = 20000,
				 .type = RUBATO_INT32,
				 .stagger_seed = at_us };
		rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH,
					   .rank = (uint32_t)_i,
					   .at_ns = at_us * 1000 };
		rubato_sim_result result;
		char name[16];

		run_that_fails(&j, &fault, 60000 * (uint64_t)MILLISECOND, &result);
		free(j.out);
		(void)snprintf(name, sizeof(name), "rank %d", _i);
		fired += result.faults_fired;
		ck_assert_uint_lt(result.end_ns, 1000 * (uint64_t)MILLISECOND);
		for (uint32_t r = 0; r < j.ranks; r++) {
			if (r == fault.rank || j.status[r] == RUBATO_OK)
				continue;
			failed++;
			ck_assert_msg(
				j.status[r] == RUBATO_ERR_PEER && strstr(j.text[r], name) != NULL,
				"at %llu us, rank %u: %s", (unsigned long long)at_us, r, j.text[r]);
		}
	}
	ck_assert_uint_ge(fired, 2 + 2000 / apart_us);
	ck_assert_uint_ge(failed, 2 + 2000 / apart_us);
}
END_TEST

static rubato_status one_makes_another(rubato_comm *comm, void *arg)
{
	struct job *j = arg;
	static float in[40000], out[3][40000];
	uint32_t rank = rubato_rank(comm);
	rubato_op *op = NULL;

	j->status[rank] = rank != 1 ? rubato_op_allreduce_helped(comm, in, out[rank], 40000,
								 RUBATO_FLOAT32, RUBATO_SUM, &op)
			  : j->late == 0
				  ? rubato_op_allreduce(comm, in, out[rank], 40000, RUBATO_FLOAT32,
							RUBATO_SUM, &op)
				  : rubato_op_allreduce_helped(comm, in, out[rank], 39999,
							       RUBATO_FLOAT32, RUBATO_SUM, &op);
	return RUBATO_OK;
}

START_TEST(what_is_made_must_be_the_same)
{
	struct job j = { .ranks = 3, .count = 1, .late = (uint32_t)_i };
	rubato_sim_options options = options_of(&j);
	rubato_sim_result result;

	(void)!rubato_sim_run(&options, one_makes_another, &j, &result);
	for (uint32_t r = 0; r < 3; r++)
		ck_assert_int_eq(j.status[r], RUBATO_ERR_MISMATCH);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("helped");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, one_vector_is_left_when_the_late_rank_comes, 0, 5);
	tcase_add_loop_test(tc, two_latencies_more_when_nobody_is_late, 0, 4);
	tcase_add_loop_test(tc, bits_do_not_depend_on_who_is_late, 0, 4);
	tcase_add_test(tc, any_order_of_arrivals);
	tcase_add_loop_test(tc, a_timeout_names_the_late_rank, 0, 5);
	tcase_add_test(tc, a_timeout_names_all_that_are_missing);
	tcase_add_loop_test(tc, a_loss_is_an_error_that_names_it, 0, 4);
	tcase_add_loop_test(tc, what_is_made_must_be_the_same, 0, 2);
	return check_main("helped", tc);
}
