/* test_lagged.c -- lagged allreduces: the delay, the weights, the order of results. */
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

/* ---- The exact vector: two ranks minimise (x - a)^2 / 2 for a = 1 and 3, rate 0.1 ---- */

static rubato_status laga_main(rubato_comm *comm, void *arg)
{
	static const double want[] = { 0, 0, 0.2, 0.4, 0.58, 0.74 };
	double a = rubato_rank(comm) == 0 ? 1 : 3, x = 0;
	rubato_lagged *l;
	const void *mean;
	uint64_t weight;

	(void)arg;
	RB_TRY(rubato_lagged_create(comm, 1, RUBATO_FLOAT64, RUBATO_AVG, 1, &l));
	for (uint32_t k = 0; k < 4; k++) {
		double gradient = x - a;

		EXPECT(x > want[k] - 1e-12 && x < want[k] + 1e-12);
		RB_TRY(rubato_lagged_accumulate(l, &gradient, 1));
		RB_TRY(rubato_lagged_begin(l));
		RB_TRY(rubato_lagged_collect(l, &mean, &weight, 0));
		EXPECT((mean == NULL) == (k == 0));
		if (mean == NULL)
			continue;
		EXPECT(weight == 2);
		x -= 0.1 * *(const double *)mean;
	}
	EXPECT(x > want[4] - 1e-12 && x < want[4] + 1e-12);
	RB_TRY(rubato_lagged_flush(l, &mean, &weight, 0));
	EXPECT(mean != NULL && weight == 2);
	x -= 0.1 * *(const double *)mean;
	EXPECT(x > want[5] - 1e-12 && x < want[5] + 1e-12);
	RB_TRY(rubato_lagged_flush(l, &mean, &weight, 0));
	EXPECT(mean == NULL);
	return rubato_lagged_free(l);
}

START_TEST(exact_vector)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	ck_assert_int_eq(local_run(2, shm, laga_main, NULL, NULL), RUBATO_OK);
	options.rank_count = 2;
	ck_assert_int_eq(rubato_sim_run(&options, laga_main, NULL, &result), RUBATO_OK);
}
END_TEST

/* ---- Any lag, any weights, against a sequential reference, bit for bit ---- */

#define COUNT 3000
#define BEGINS 12

static float gradient_of(uint32_t rank, uint32_t step, uint32_t part, uint32_t i)
{
	return (float)((rank * 131 + step * 17 + part * 7 + i) % 1009) * 0.37f - 100.0f;
}

/* How much each rank accumulates before a begin: not the same. */
static uint32_t parts_of(uint32_t rank, uint32_t step)
{
	return step == 5 ? 0 : (rank + step) % 4;
}

static void reference(uint32_t n, uint32_t step, float *sum, uint64_t *weight)
{
	*weight = 0;
	for (uint32_t i = 0; i < COUNT; i++) {
		for (uint32_t r = 0; r < n; r++) {
			float mine = 0;

			for (uint32_t k = 0; k < parts_of(r, step); k++)
				mine += gradient_of(r, step, k, i);
			sum[i] = r == 0 ? mine : sum[i] + mine;
		}
	}
	for (uint32_t r = 0; r < n; r++)
		*weight += 3 * parts_of(r, step);
	for (uint32_t i = 0; i < COUNT; i++)
		sum[i] = *weight == 0 ? 0 : sum[i] * (1.0f / (float)*weight);
}

static rubato_status result_check(rubato_comm *comm, const void *result, uint64_t weight,
				  uint32_t step)
{
	float *sum = malloc(COUNT * sizeof(*sum));
	uint64_t want;
	bool same;

	EXPECT(sum != NULL);
	reference(rubato_size(comm), step, sum, &want);
	same = memcmp(sum, result, COUNT * sizeof(*sum)) == 0;
	free(sum);
	EXPECT(weight == want);
	EXPECT(same);
	return RUBATO_OK;
}

static rubato_status step_accumulate(rubato_comm *comm, rubato_lagged *l, uint32_t step)
{
	uint32_t me = rubato_rank(comm);
	float gradient[COUNT];

	for (uint32_t k = 0; k < parts_of(me, step); k++) {
		for (uint32_t i = 0; i < COUNT; i++)
			gradient[i] = gradient_of(me, step, k, i);
		if (step % 2 == 0) {
			RB_TRY(rubato_lagged_accumulate(l, gradient, 3));
			continue;
		}
		void *buffer;

		RB_TRY(rubato_lagged_acquire(l, &buffer));
		for (uint32_t i = 0; i < COUNT; i++)
			((float *)buffer)[i] += gradient[i];
		RB_TRY(rubato_lagged_accumulate(l, NULL, 3));
	}
	return RUBATO_OK;
}

static rubato_status delays_main(rubato_comm *comm, void *arg)
{
	uint32_t lag = *(const uint32_t *)arg, next = 0;
	const void *result;
	rubato_lagged *l;
	uint64_t weight;

	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	RB_TRY(rubato_lagged_create(comm, COUNT, RUBATO_FLOAT32, RUBATO_AVG, lag, &l));
	for (uint32_t step = 0; step < BEGINS; step++) {
		RB_TRY(step_accumulate(comm, l, step));
		RB_TRY(rubato_lagged_begin(l));
		RB_TRY(rubato_lagged_collect(l, &result, &weight, 0));
		EXPECT((result != NULL) == (step >= lag));
		if (result != NULL)
			RB_TRY(result_check(comm, result, weight, next++));
	}
	for (;;) {
		RB_TRY(rubato_lagged_flush(l, &result, &weight, 0));
		if (result == NULL)
			break;
		RB_TRY(result_check(comm, result, weight, next++));
	}
	EXPECT(next == BEGINS);
	return rubato_lagged_free(l);
}

START_TEST(any_lag_and_weights)
{
	for (uint32_t n = 1; n <= 4; n++) {
		uint32_t lag = (uint32_t)_i;

		ck_assert_int_eq(local_run(n, shm, delays_main, &lag, NULL), RUBATO_OK);
	}
}
END_TEST

/* ---- Misuse, and progress without calls ---- */

static rubato_status misuse_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *l;
	const void *result;
	uint64_t weight;
	void *buffer;
	bool done;

	(void)arg;
	EXPECT(rubato_lagged_create(comm, 8, RUBATO_INT32, RUBATO_SUM, 1, &l) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_lagged_create(comm, 8, RUBATO_FLOAT32, RUBATO_MAX, 1, &l) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_lagged_create(comm, 8, RUBATO_FLOAT32, RUBATO_SUM, 0, &l) ==
	       RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_create(comm, 8, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	RB_TRY(rubato_lagged_test(l, &done));
	EXPECT(done);
	RB_TRY(rubato_lagged_begin(l));
	RB_TRY(rubato_lagged_begin(l));
	EXPECT(rubato_lagged_begin(l) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_lagged_acquire(l, &buffer) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_collect(l, &result, &weight, 0));
	EXPECT(result != NULL && weight == 0 && *(const float *)result == 0);
	RB_TRY(rubato_lagged_collect(l, &result, &weight, 0));
	EXPECT(result == NULL);
	return rubato_lagged_free(l); /* One is still in flight. */
}

START_TEST(misuse_is_refused)
{
	ck_assert_int_eq(local_run(2, shm, misuse_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* `count` may be 0. Each rank counts 3 without a gradient, 2 with one, and nothing else. */
static rubato_status weights_main(rubato_comm *comm, void *arg)
{
	static const uint64_t large = (uint64_t)INT64_MAX / 2;
	const uint64_t count = *(const uint64_t *)arg;
	const float gradient[2] = { 5, 5 };
	rubato_lagged *l;
	const void *result;
	uint64_t weight;

	RB_TRY(rubato_lagged_create(comm, count, RUBATO_FLOAT32, RUBATO_AVG, 1, &l));
	RB_TRY(rubato_lagged_accumulate(l, NULL, 3));
	RB_TRY(rubato_lagged_begin(l));
	RB_TRY(rubato_lagged_accumulate(l, NULL, 3));
	RB_TRY(rubato_lagged_accumulate(l, gradient, 2));
	RB_TRY(rubato_lagged_begin(l));
	RB_TRY(rubato_lagged_flush(l, &result, &weight, 0));
	EXPECT(result != NULL && weight == 6);
	EXPECT(count == 0 || ((const float *)result)[1] == 0);
	RB_TRY(rubato_lagged_flush(l, &result, &weight, 0));
	EXPECT(result != NULL && weight == 10);
	EXPECT(count == 0 || ((const float *)result)[1] == 1);

	/* Of two ranks each has room for half of what a sum may be. */
	EXPECT(rubato_lagged_accumulate(l, gradient, large + 1) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_accumulate(l, gradient, large - 1));
	EXPECT(rubato_lagged_accumulate(l, gradient, 2) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_accumulate(l, gradient, 1));
	RB_TRY(rubato_lagged_begin(l));
	RB_TRY(rubato_lagged_accumulate(l, gradient, 5));
	RB_TRY(rubato_lagged_begin(l));
	EXPECT(rubato_lagged_collect(l, &result, &weight, 0) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "too large") != NULL);
	RB_TRY(rubato_lagged_flush(l, &result, &weight, 0));
	EXPECT(result != NULL && weight == 10);
	return rubato_lagged_free(l);
}

START_TEST(weights_count_whatever_comes_with_them)
{
	ck_assert_int_eq(local_run(2, shm, weights_main, (uint64_t[]) { 2 }, NULL), RUBATO_OK);
	ck_assert_int_eq(local_run(2, shm, weights_main, (uint64_t[]) { 0 }, NULL), RUBATO_OK);
}
END_TEST

static rubato_status work_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *l;
	uint64_t begin_ns;
	bool done;

	(void)arg;
	RB_TRY(rubato_lagged_create(comm, 100000, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	RB_TRY(rubato_lagged_begin(l));
	rubato_sleep(comm, 50000000); /* Virtual. */
	begin_ns = rubato_now(comm);
	RB_TRY(rubato_lagged_test(l, &done));
	EXPECT(done && rubato_now(comm) == begin_ns);
	return rubato_lagged_free(l);
}

START_TEST(work_hides_the_allreduce)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 5;
	ck_assert_int_eq(rubato_sim_run(&options, work_main, NULL, &result), RUBATO_OK);
}
END_TEST

/* The vector and its weight are two operations, and one wait: *arg (0: how long it takes). */
static rubato_status wait_main(rubato_comm *comm, void *arg)
{
	uint64_t *took_ns = arg, timeout_ns = *took_ns, begin_ns;
	rubato_lagged *l;
	const void *result;

	RB_TRY(rubato_lagged_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	RB_TRY(rubato_barrier(comm));
	RB_TRY(rubato_lagged_begin(l));
	if (rubato_rank(comm) == 0) {
		begin_ns = rubato_now(comm);
		if (timeout_ns > 0) {
			EXPECT(rubato_lagged_flush(l, &result, NULL, timeout_ns) ==
			       RUBATO_ERR_TIMEOUT);
			EXPECT(rubato_now(comm) - begin_ns == timeout_ns);
		}
		RB_TRY(rubato_lagged_flush(l, &result, NULL, 0));
		*took_ns = rubato_now(comm) - begin_ns;
	}
	return rubato_lagged_free(l);
}

START_TEST(a_collection_waits_once)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	uint64_t took_ns = 0;

	options.rank_count = 2;
	options.costs.gap_ns = 1000; /* The weight comes behind the vector. */
	ck_assert_int_eq(rubato_sim_run(&options, wait_main, &took_ns, &result), RUBATO_OK);
	ck_assert_uint_gt(took_ns, 1);
	took_ns--;
	ck_assert_int_eq(rubato_sim_run(&options, wait_main, &took_ns, &result), RUBATO_OK);
}
END_TEST

/* However many are in flight, freeing waits for all of them once: *arg (0: how long it takes). */
static rubato_status free_main(rubato_comm *comm, void *arg)
{
	uint64_t *took_ns = arg, timeout_ns = *took_ns, begin_ns;
	rubato_lagged *l;

	RB_TRY(rubato_lagged_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, 4, &l));
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < 4; i++)
		RB_TRY(rubato_lagged_begin(l));
	begin_ns = rubato_now(comm);
	if (timeout_ns == 0) {
		RB_TRY(rubato_lagged_free(l));
	} else {
		RB_TRY(rubato_set_timeout(comm, timeout_ns));
		EXPECT(rubato_lagged_free(l) == RUBATO_ERR_TIMEOUT);
		EXPECT(rubato_now(comm) - begin_ns == timeout_ns);
	}
	if (rubato_rank(comm) == 0)
		*took_ns = rubato_now(comm) - begin_ns;
	return RUBATO_OK;
}

START_TEST(freeing_waits_once)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	uint64_t took_ns = 0;

	options.rank_count = 2;
	options.costs.gap_ns = 1000; /* Each comes behind the one before. */
	ck_assert_int_eq(rubato_sim_run(&options, free_main, &took_ns, &result), RUBATO_OK);
	ck_assert_uint_gt(took_ns, 1);
	took_ns--;
	ck_assert_int_eq(rubato_sim_run(&options, free_main, &took_ns, &result), RUBATO_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lagged");
	TCase *tc = tcase_create("lagged");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, exact_vector);
	tcase_add_loop_test(tc, any_lag_and_weights, 1, 4);
	tcase_add_test(tc, misuse_is_refused);
	tcase_add_test(tc, weights_count_whatever_comes_with_them);
	tcase_add_test(tc, work_hides_the_allreduce);
	tcase_add_test(tc, a_collection_waits_once);
	tcase_add_test(tc, freeing_waits_once);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
