/*
 * test_vectors.c -- the trainer's kernels for flat vectors, wherever they run (launcher.h), give
 * the bits of the host's loops (trainer/base/vectors.h), and write nothing beside; where one has a
 * NaN, so has the other. Sums of squares have an order of their own, said here a second time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/cuda/areas.h"
#include "tests/length.h"
#include "trainer/base/vectors.h"
#include "trainer/cuda/kernels.h"

enum operation {
	ADD,
	SUBTRACT,
	SCALE,
	DIVIDE,
	COMBINE,
	APPROACH,
	SQUARE,
	SQUARE_BETWEEN,
	FOLD,
	SGD,
	ADAM,
	OPERATIONS
};

struct draw {
	struct areas *a;
	uint64_t count;
	unsigned grid, block;
	uint32_t shifts[4];
	bool in_place, momentum; /* x is the target. */
	float p, q;
};

static float *host(const struct draw *d, uint32_t area)
{
	return areas_host(d->a, area, d->shifts[area]);
}

static float *device(const struct draw *d, uint32_t area, bool written)
{
	return areas_give(d->a, area, d->shifts[area], d->count * sizeof(float), written);
}

static const char *launch(const struct draw *d, const char *kernel, const void *call, size_t bytes)
{
	return launcher_run(kernel, d->grid, d->block, call, bytes, d->a->spans, d->a->span_count);
}

#define RUN(d, name, ...)                                                                          \
	launch((d), "tr_" #name, &(const struct tr_cuda_##name)__VA_ARGS__,                        \
	       sizeof(struct tr_cuda_##name))

static const char *elements(const struct draw *d, enum operation operation)
{
	const struct tr_vectors *v = &tr_vectors_host;
	const size_t n = d->count;
	float *to = host(d, 0), *x = d->in_place ? to : host(d, 1), *y = host(d, 2);
	float *target = device(d, 0, true), *first = d->in_place ? target : device(d, 1, false);
	float *second = device(d, 2, false);

	switch (operation) {
	case ADD:
		v->add(v, to, x, n);
		return RUN(d, vector_add, { target, first, n });
	case SUBTRACT:
		v->subtract(v, to, x, y, n);
		return RUN(d, vector_subtract, { target, first, second, n });
	case SCALE:
		v->scale(v, to, d->p, n);
		return RUN(d, vector_scale, { target, n, d->p, 0 });
	case DIVIDE:
		v->divide(v, to, x, d->p, n);
		return RUN(d, vector_divide, { target, first, n, d->p, 0 });
	case COMBINE:
		v->combine(v, to, d->p, x, d->q, y, n);
		return RUN(d, vector_combine, { target, first, second, n, d->p, d->q });
	default:
		v->approach(v, to, d->p, x, n);
		return RUN(d, vector_approach, { target, first, n, d->p, 0 });
	}
}

static const char *squares(const struct draw *d, bool between)
{
	const uint64_t sums = 1 + d->count % 37;
	const float *x = host(d, 1), *y = host(d, 2);
	double *to = areas_host(d->a, 3, 0);

	for (uint64_t s = 0; s < sums; s++) {
		to[s] = 0.0;
		for (uint64_t i = s; i < d->count; i += sums) {
			const float way = between ? x[i] - y[i] : x[i];

			to[s] += (double)way * way;
		}
	}
	const struct tr_cuda_vector_square call = {
		.sum = areas_give(d->a, 3, 0, sums * sizeof(double), true),
		.x = device(d, 1, false),
		.y = between ? device(d, 2, false) : NULL,
		.count = d->count,
		.sums = sums,
	};

	return launch(d, "tr_vector_square", &call, sizeof(call));
}

static const char *fold(const struct draw *d)
{
	const uint64_t width = 1 + d->count % 7, count = d->count / (2 * width);
	const double *from = areas_host(d->a, 1, 0);
	double *to = areas_host(d->a, 3, 0);

	for (uint64_t i = 0; i < count; i++) {
		to[i] = 0.0;
		for (uint64_t k = 0; k < width; k++)
			to[i] += from[i * width + k];
	}
	const struct tr_cuda_vector_fold call = {
		.to = areas_give(d->a, 3, 0, count * sizeof(double), true),
		.from = areas_give(d->a, 1, 0, count * width * sizeof(double), false),
		.count = count,
		.width = width,
	};

	return launch(d, "tr_vector_fold", &call, sizeof(call));
}

static const char *sgd(const struct draw *d)
{
	const struct tr_vectors *v = &tr_vectors_host;
	const struct tr_sgd twin = { .parameters = host(d, 0),
				     .velocity = d->momentum ? host(d, 2) : NULL,
				     .gradient = host(d, 1),
				     .count = d->count,
				     .rate = d->p,
				     .momentum = 0.9f,
				     .weight_decay = d->q };

	v->sgd(v, &twin);
	return RUN(d, vector_sgd,
		   { .parameters = device(d, 0, true),
		     .velocity = d->momentum ? device(d, 2, true) : NULL,
		     .gradient = device(d, 1, false),
		     .count = d->count,
		     .rate = d->p,
		     .momentum = 0.9f,
		     .weight_decay = d->q });
}

static const char *adam(const struct draw *d)
{
	const struct tr_vectors *v = &tr_vectors_host;
	const struct tr_adam twin = { .parameters = host(d, 0),
				      .first = host(d, 2),
				      .second = host(d, 3),
				      .gradient = host(d, 1),
				      .count = d->count,
				      .rate = d->p,
				      .beta1 = 0.9f,
				      .beta2 = 0.999f,
				      .epsilon = 1e-8f,
				      .coupled = d->momentum ? d->q : 0.0f,
				      .decoupled = d->momentum ? 0.0f : d->q,
				      .scale1 = 1.9f,
				      .scale2 = 7.3f };

	v->adam(v, &twin);
	return RUN(d, vector_adam,
		   { .parameters = device(d, 0, true),
		     .first = device(d, 2, true),
		     .second = device(d, 3, true),
		     .gradient = device(d, 1, false),
		     .count = d->count,
		     .rate = d->p,
		     .beta1 = 0.9f,
		     .beta2 = 0.999f,
		     .epsilon = 1e-8f,
		     .coupled = d->momentum ? d->q : 0.0f,
		     .decoupled = d->momentum ? 0.0f : d->q,
		     .scale1 = 1.9f,
		     .scale2 = 7.3f });
}

static const char *run(const struct draw *d, enum operation operation)
{
	switch (operation) {
	case SQUARE:
	case SQUARE_BETWEEN:
		return squares(d, operation == SQUARE_BETWEEN);
	case FOLD:
		return fold(d);
	case SGD:
		return sgd(d);
	case ADAM:
		return adam(d);
	default:
		return elements(d, operation);
	}
}

/* One NaN for all: which one arithmetic gives is not said. A wide one is two words, of which the
 * upper says so. */
static void nans_alike(struct areas *a)
{
	for (uint32_t i = 0; i < AREAS; i++) {
		for (uint32_t at = 0; at < AREA_BYTES; at += 4) {
			float one, other;

			memcpy(&one, &a->host[i][at], 4);
			memcpy(&other, &a->device[i][at], 4);
			if (isnan(one) && isnan(other))
				memcpy(&a->device[i][at], &a->host[i][at], 4);
		}
		for (uint32_t at = 0; at < AREA_BYTES; at += 8) {
			double one, other;

			memcpy(&one, &a->host[i][at], 8);
			memcpy(&other, &a->device[i][at], 8);
			if (isnan(one) && isnan(other))
				memcpy(&a->device[i][at], &a->host[i][at], 8);
		}
	}
}

static void draw_values(struct draw *d, struct rb_rng *rng)
{
	areas_fill(d->a, rng);
	if (rb_rng_below(rng, 2) != 0)
		return; /* Hostile. */
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t at = 0; at < AREA_BYTES; at += 4) {
			float value = (float)(rb_rng_unit(rng) - (i == 3 ? 0.0 : 0.5));

			memcpy(&d->a->host[i][at], &value, 4);
		}
	memcpy(d->a->device, d->a->host, sizeof(d->a->host));
}

START_TEST(kernels_are_twins)
{
	struct areas *a = launcher_memory(sizeof(*a));
	const uint32_t draws = (test_length() == TEST_SHORT ? 60 : 150) / launcher_slower;
	uint64_t seed = 1;
	char text[512];

	(void)seeds_given(&seed);
	struct rb_rng rng = { seed };

	ck_assert(a != NULL);
	for (uint32_t i = 0; i < draws; i++) {
		struct draw d = { .a = a,
				  .count = rb_rng_below(&rng, 400),
				  .grid = 1 + (unsigned)rb_rng_below(&rng, 3),
				  .block = 1 + (unsigned)rb_rng_below(&rng, 40),
				  .in_place = rb_rng_below(&rng, 3) == 0,
				  .momentum = rb_rng_below(&rng, 2) != 0,
				  .p = (float)rb_rng_unit(&rng),
				  .q = (float)rb_rng_unit(&rng) };
		const char *error;

		for (uint32_t s = 0; s < 4; s++)
			d.shifts[s] = 4 * (uint32_t)rb_rng_below(&rng, 4);
		draw_values(&d, &rng);
		error = run(&d, (enum operation)_i);
		nans_alike(a);
		if (error == NULL)
			error = areas_differ(a, text, sizeof(text));
		ck_assert_msg(error == NULL, "%s: operation %d, count %lu, TEST_SEED=%lu", error,
			      _i, (unsigned long)d.count, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("vectors");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, kernels_are_twins, 0, OPERATIONS);
	return check_main("cuda", tc);
}
