/*
 * test_trainer_vectors.c -- the device's table of vectors on the driver without a device: random
 * programs of operations give the host's bits, in the order asked for, whatever the stream's
 * delays; a call of the driver that fails is what wait() says; all that was taken is given back.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "tests/cuda/fakes.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/vectors.h"

#define VECTORS 5
#define COUNT 10007 /* No multiple of anything. */
#define STEPS 60

struct pair { /* The same vectors here and there. */
	struct tr_cuda *cuda;
	struct tr_vectors table[2];
	float *at[2][VECTORS];
	struct tr_error error;
};

static void pair_open(struct pair *p)
{
	ck_assert_msg(tr_cuda_open(&p->cuda, 0, &p->error) == RUBATO_OK, "%s", p->error.text);
	ck_assert_msg(tr_cuda_vectors_open(&p->table[1], p->cuda, &p->error) == RUBATO_OK, "%s",
		      p->error.text);
	p->table[0] = tr_vectors_host;
	for (int t = 0; t < 2; t++)
		for (int i = 0; i < VECTORS; i++)
			ck_assert_int_eq(p->table[t].make(&p->table[t], NULL, COUNT, "test",
							  &p->at[t][i], &p->error),
					 RUBATO_OK);
}

static void pair_close(struct pair *p)
{
	const struct fake_cuda_control calm = { 0 };

	fake_control()(&calm);
	for (int t = 0; t < 2; t++)
		for (int i = 0; i < VECTORS; i++)
			p->table[t].free(&p->table[t], NULL, p->at[t][i]);
	tr_cuda_vectors_close(&p->table[1]);
	tr_cuda_close(p->cuda);
	fake_all_given_back();
}

static void fill(struct pair *p, struct rng *rng)
{
	float *values = calloc(COUNT, sizeof(float));

	ck_assert_ptr_nonnull(values);
	for (int i = 0; i < VECTORS; i++) {
		for (size_t k = 0; k < COUNT; k++)
			values[k] = (float)rng_unit(rng) + (i == 4 ? 0.5f : -0.5f);
		for (int t = 0; t < 2; t++)
			p->table[t].put(&p->table[t], p->at[t][i], values, COUNT);
	}
	free(values);
}

/* `pick`: chooses operation and operands. Numbers stay near 1. */
static void step(const struct tr_vectors *v, float *const at[VECTORS], uint64_t pick)
{
	float *to = at[pick % 4], *x = at[pick / 4 % 4], *y = at[pick / 16 % 4];
	const struct tr_sgd sgd = {
		at[0], pick & 64 ? at[1] : NULL, at[2], COUNT, 0.1f, 0.9f, 0.01f
	};
	const struct tr_adam adam = { at[0],  at[1], at[4], at[2], COUNT, 0.1f, 0.9f,
				      0.999f, 1e-8f, 0.01f, 0.02f, 1.9f,  7.3f };

	switch (pick / 256 % 10) {
	case 0:
		v->zero(v, to, COUNT / 3);
		break;
	case 1:
		v->copy(v, to, x, COUNT);
		break;
	case 2:
		v->add(v, to, x, COUNT);
		v->scale(v, to, 0.5f, COUNT);
		break;
	case 3:
		v->subtract(v, to, x, y, COUNT);
		break;
	case 4:
		v->scale(v, to, 0.7f, COUNT);
		break;
	case 5:
		v->divide(v, to, x, 3.0f, COUNT);
		break;
	case 6:
		v->combine(v, to, 0.6f, x, -0.3f, y, COUNT);
		break;
	case 7:
		v->approach(v, to, 0.25f, x, COUNT);
		break;
	case 8:
		v->sgd(v, &sgd);
		break;
	default:
		v->adam(v, &adam);
	}
}

static void compare(struct pair *p)
{
	float *copy = calloc(COUNT, sizeof(float));

	ck_assert_ptr_nonnull(copy);
	for (int i = 0; i < VECTORS; i++) {
		p->table[1].get(&p->table[1], copy, p->at[1][i], COUNT);
		ck_assert_int_eq(memcmp(copy, p->at[0][i], COUNT * sizeof(float)), 0);
	}
	ck_assert_int_eq(p->table[1].wait(&p->table[1], &p->error), RUBATO_OK);
	free(copy);
}

START_TEST(programs_give_the_hosts_bits)
{
	const struct fake_cuda_control delays = { .seed = (uint64_t)_i + 1, .delay_us_max = 100 };
	struct rng rng = { (uint64_t)_i + 1 };
	struct pair p = { 0 };

	fake_control()(&delays);
	pair_open(&p);
	fill(&p, &rng);
	for (int s = 0; s < STEPS; s++) {
		uint64_t pick = rng_below(&rng, UINT64_C(1) << 32);

		for (int t = 0; t < 2; t++)
			step(&p.table[t], p.at[t], pick);
	}
	compare(&p);
	for (int t = 0; t < 2; t++)
		ck_assert_double_eq(p.table[t].square(&p.table[t], p.at[t][0], 0), 0.0);
	pair_close(&p);
}
END_TEST

/* The order is the device's own: equal up to rounding, and each time the same. */
START_TEST(squares_are_sums_of_all)
{
	static const size_t counts[] = { 1, 255, 256, 4096, 4097, COUNT };
	struct rng rng = { 7 };
	struct pair p = { 0 };

	pair_open(&p);
	fill(&p, &rng);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		double sums[2][2];

		for (int t = 0; t < 2; t++) {
			const struct tr_vectors *v = &p.table[t];

			sums[t][0] = v->square(v, p.at[t][0], counts[i]);
			sums[t][1] = v->square_between(v, p.at[t][0], p.at[t][1], counts[i]);
			ck_assert_double_eq(v->square(v, p.at[t][0], counts[i]), sums[t][0]);
		}
		for (int k = 0; k < 2; k++)
			ck_assert_double_eq_tol(sums[1][k], sums[0][k], 1e-13 * sums[0][k]);
	}
	pair_close(&p);
}
END_TEST

static const char *const calls[] = { "cuMemcpyAsync", "cuMemsetD8Async", "cuLaunchKernel",
				     "cuStreamSynchronize" };

START_TEST(what_failed_is_remembered)
{
	struct fake_cuda_control control = { .fail_at = 3, .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	struct tr_error again = { 0 };
	struct rng rng = { 3 };
	struct pair p = { 0 };
	const struct tr_vectors *v = &p.table[1];
	float one = 1.0f;

	pair_open(&p);
	fill(&p, &rng);
	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", calls[_i]);
	fake_control()(&control);
	for (int s = 0; s < 4; s++) {
		v->zero(v, p.at[1][0], COUNT);
		v->add(v, p.at[1][0], p.at[1][1], COUNT);
		v->copy(v, p.at[1][2], p.at[1][0], COUNT);
		(void)v->square(v, p.at[1][2], COUNT);
	}
	v->get(v, &one, p.at[1][0], 1);
	ck_assert_float_eq(one, 0.0f);
	ck_assert(isnan(v->square(v, p.at[1][0], COUNT)));
	ck_assert_int_eq(v->wait(v, &p.error), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(p.error.text, calls[_i]));
	ck_assert_int_eq(v->wait(v, &again), RUBATO_ERR_SYSTEM);
	ck_assert_str_eq(again.text, p.error.text);
	pair_close(&p);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("vectors");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, programs_give_the_hosts_bits, 0, 6);
	tcase_add_test(tests, squares_are_sums_of_all);
	tcase_add_loop_test(tests, what_failed_is_remembered, 0,
			    (int)(sizeof(calls) / sizeof(calls[0])));
	return check_main("cuda", tests);
}
