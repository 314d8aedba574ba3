/*
 * test_layers.c -- the trainer's kernels for layers and losses, wherever they run (launcher.h),
 * give the bits of the plain layers, and write nothing beside; zeros of both signs are one, NaNs
 * are, too. Losses have exponentials of their own: they are near the host's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/cuda/areas.h"
#include "tests/length.h"
#include "trainer/cuda/kernels.h"

#define tr_compute_plain tr_compute_twin
#include "trainer/models/compute_plain.c"

enum kernel {
	RELU,
	RELU_BACK,
	BIAS,
	POOL,
	POOL_BACK,
	AVERAGE,
	AVERAGE_BACK,
	ADD,
	ADD_BACK,
	LABELS,
	TARGETS,
	KERNELS
};

struct draw {
	struct areas *a;
	struct rb_rng *rng;
	unsigned grid, block;
	uint32_t rows, add;
	struct tr_layer layer;
};

static uint32_t below(struct draw *d, uint32_t n)
{
	return (uint32_t)rb_rng_below(d->rng, n);
}

static float *host(const struct draw *d, uint32_t area)
{
	return areas_host(d->a, area, 4);
}

static float *device(const struct draw *d, uint32_t area, size_t count, bool written)
{
	return areas_give(d->a, area, 4, count * sizeof(float), written);
}

static const char *launch(const struct draw *d, const char *kernel, const void *call, size_t bytes)
{
	return launcher_run(kernel, d->grid, d->block, call, bytes, d->a->spans, d->a->span_count);
}

#define RUN(name, ...)                                                                             \
	launch(d, "tr_" #name, &(const struct tr_cuda_##name) { __VA_ARGS__ },                     \
	       sizeof(struct tr_cuda_##name))

/* What slopes are added to. */
static float *host_target(struct draw *d, size_t count)
{
	float *to = host(d, 0);

	for (size_t i = 0; i < count && d->add == 0; i++)
		to[i] = 0.0f;
	return to;
}

static const char *relu(struct draw *d, bool back)
{
	const uint32_t count = 1 + below(d, 700);
	float *to = back ? host_target(d, count) : host(d, 0);
	const float *value = host(d, 1), *slope = host(d, 2);

	for (uint32_t i = 0; i < count && !back; i++)
		to[i] = value[i] > 0.0f ? value[i] : 0.0f;
	for (uint32_t i = 0; i < count && back; i++)
		to[i] += value[i] > 0.0f ? slope[i] : 0.0f;
	float *target = device(d, 0, count, true);
	if (!back)
		return RUN(relu, .to = target, .from = device(d, 1, count, false), .count = count);
	return RUN(relu_back, .to = target, .value = device(d, 1, count, false),
		   .slope = device(d, 2, count, false), .count = count, .add = d->add);
}

static const char *bias(struct draw *d)
{
	const uint32_t channels = 1 + below(d, 5), plane = 1 + below(d, 9);
	const uint32_t count = d->rows * channels * plane;

	for (uint32_t i = 0; i < count; i++)
		host(d, 0)[i] += host(d, 1)[i / plane % channels];
	float *target = device(d, 0, count, true);
	return RUN(bias, .to = target, .bias = device(d, 1, channels, false), .count = count,
		   .channels = channels, .plane = plane);
}

static const char *pooling(struct draw *d, bool back)
{
	struct tr_layer *l = &d->layer;

	l->kernel = 1 + below(d, 3);
	l->in = (struct tr_shape) { 1 + below(d, 3), l->kernel + below(d, 6),
				    l->kernel + below(d, 6) };
	l->out = (struct tr_shape) { l->in.channels, l->in.height / l->kernel,
				     l->in.width / l->kernel };
	const size_t in = d->rows * tr_shape_count(l->in), out = d->rows * tr_shape_count(l->out);
	const uint32_t planes = d->rows * l->in.channels;

	if (back)
		pool(l, d->rows, host(d, 1), NULL, host(d, 2), host_target(d, in));
	else
		pool(l, d->rows, host(d, 1), host(d, 0), NULL, NULL);
	float *target = device(d, 0, back ? in : out, true), *value = device(d, 1, in, false);
	if (!back)
		return RUN(pool, .to = target, .from = value, .planes = planes, .kernel = l->kernel,
			   .in_height = l->in.height, .in_width = l->in.width,
			   .out_height = l->out.height, .out_width = l->out.width);
	return RUN(pool_back, .to = target, .value = value, .slope = device(d, 2, out, false),
		   .planes = planes, .kernel = l->kernel, .in_height = l->in.height,
		   .in_width = l->in.width, .out_height = l->out.height, .out_width = l->out.width,
		   .add = d->add);
}

static const char *averages(struct draw *d, bool back)
{
	struct tr_layer *l = &d->layer;

	l->in = (struct tr_shape) { 1 + below(d, 5), 1 + below(d, 6), 1 + below(d, 6) };
	const size_t in = d->rows * tr_shape_count(l->in);
	const uint32_t planes = d->rows * l->in.channels, plane = l->in.height * l->in.width;

	if (back)
		average_backward(l, d->rows, host(d, 1), host_target(d, in));
	else
		average(l, d->rows, host(d, 1), host(d, 0));
	float *target = device(d, 0, back ? in : planes, true);
	float *from = device(d, 1, back ? planes : in, false);
	if (!back)
		return RUN(average, .to = target, .from = from, .planes = planes, .plane = plane);
	return RUN(average_back, .to = target, .slope = from, .planes = planes, .plane = plane,
		   .add = d->add);
}

static const char *sums(struct draw *d, bool back)
{
	struct tr_layer *l = &d->layer;
	const struct tr_shape wide = { 1 + below(d, 3), 1 + below(d, 7), 1 + below(d, 7) };

	l->stride = 1 + below(d, 2);
	l->out = (struct tr_shape) { wide.channels + below(d, 3),
				     (wide.height + l->stride - 1) / l->stride,
				     (wide.width + l->stride - 1) / l->stride };
	const size_t early = d->rows * tr_shape_count(wide);
	const size_t out = d->rows * tr_shape_count(l->out);

	if (back) {
		shortcut(l, wide, d->rows, host(d, 1), host_target(d, early), true);
	} else {
		memcpy(host(d, 0), host(d, 1), out * sizeof(float));
		shortcut(l, wide, d->rows, host(d, 2), host(d, 0), false);
	}
	float *target = device(d, 0, back ? early : out, true), *from = device(d, 1, out, false);
	if (back)
		return RUN(add_back, .to = target, .slope = from, .rows = d->rows,
			   .stride = l->stride, .wide_channels = wide.channels,
			   .wide_height = wide.height, .wide_width = wide.width,
			   .channels = l->out.channels, .height = l->out.height,
			   .width = l->out.width, .add = d->add);
	return RUN(add, .to = target, .from = from, .early = device(d, 2, early, false),
		   .rows = d->rows, .stride = l->stride, .wide_channels = wide.channels,
		   .wide_height = wide.height, .wide_width = wide.width,
		   .channels = l->out.channels, .height = l->out.height, .width = l->out.width);
}

static bool near(double have, double want)
{
	return (isnan(have) && isnan(want)) || have == want ||
	       fabs(have - want) <= 1e-6 * (1e-3 + fabs(want));
}

/* Rows in area 0, slopes in 1, outputs in 2, answers in 3. Then the device's are the host's. */
static const char *losses_differ(struct draw *d, const struct tr_model *model, bool asked)
{
	const uint32_t count = model->output_count;
	struct tr_cuda_row *rows = areas_host(d->a, 0, 0);
	float *slope = asked ? host(d, 1) : NULL;

	memcpy(rows, &d->a->device[0][64], d->rows * sizeof(*rows));
	for (uint32_t i = 0; i < d->rows; i++) {
		const struct tr_answers answers = { areas_host(d->a, 3, 4 + 4 * i),
						    host(d, 3) + (size_t)i * count };
		struct tr_score score = { 0 };
		float *s = asked ? slope + (size_t)i * count : NULL;

		tr_loss_score(model, host(d, 2) + (size_t)i * count, answers, 1, s, &score);
		if (!near(model->loss == TR_HALF_SQUARE ? 0.5 * rows[i].sum
							: log(rows[i].sum) - (double)rows[i].gap,
			  score.loss) ||
		    rows[i].correct != score.correct)
			return "another loss";
		for (uint32_t k = 0; asked && k < count; k++) {
			float have;

			memcpy(&have, &d->a->device[1][68 + 4 * ((size_t)i * count + k)], 4);
			if (fabs((double)have * d->rows - (double)s[k]) > 1e-6 &&
			    !near((double)have * d->rows, (double)s[k]))
				return "another slope";
			s[k] = have;
		}
	}
	return NULL;
}

static const char *losses(struct draw *d, enum tr_loss loss)
{
	struct tr_model model = { .loss = loss, .output_count = 1 + below(d, 12) };
	const uint32_t count = model.output_count;
	const size_t all = (size_t)d->rows * count;
	const bool asked = below(d, 3) > 0;
	const float scale = 1.0f / (float)d->rows;
	const double spread = below(d, 4) == 0 ? 200.0 : 8.0;
	const char *error;

	for (size_t i = 0; i < all; i++) {
		const float o = (float)(spread * (rb_rng_unit(d->rng) - 0.5));
		const float target = (float)rb_rng_unit(d->rng);
		const uint32_t label = below(d, count);

		memcpy(host(d, 2) + i, &o, 4);
		memcpy(host(d, 3) + i,
		       loss == TR_HALF_SQUARE ? (const void *)&target : (const void *)&label, 4);
	}
	memcpy(d->a->device[2], d->a->host[2], AREA_BYTES);
	memcpy(d->a->device[3], d->a->host[3], AREA_BYTES);
	void *rows = areas_give(d->a, 0, 0, d->rows * sizeof(struct tr_cuda_row), true);
	float *slope = asked ? device(d, 1, all, true) : NULL;
	float *outputs = device(d, 2, all, false);
	if (loss == TR_HALF_SQUARE)
		error = RUN(loss_targets, .rows = rows, .outputs = outputs,
			    .targets = device(d, 3, all, false), .slope = slope,
			    .row_count = d->rows, .count = count, .scale = scale);
	else
		error = RUN(loss_labels, .rows = rows, .outputs = outputs,
			    .labels = areas_give(d->a, 3, 4, d->rows * 4, false), .slope = slope,
			    .row_count = d->rows, .count = count, .scale = scale);
	return error != NULL ? error : losses_differ(d, &model, asked);
}

/* One zero and one NaN for all. */
static void alike(struct areas *a)
{
	for (uint32_t at = 0; at < AREA_BYTES; at += 4) {
		float one, other;

		memcpy(&one, &a->host[0][at], 4);
		memcpy(&other, &a->device[0][at], 4);
		if ((isnan(one) && isnan(other)) || (one == 0.0f && other == 0.0f))
			memcpy(&a->device[0][at], &a->host[0][at], 4);
	}
}

static const char *run(struct draw *d, enum kernel kernel)
{
	switch (kernel) {
	case RELU:
	case RELU_BACK:
		return relu(d, kernel == RELU_BACK);
	case BIAS:
		return bias(d);
	case POOL:
	case POOL_BACK:
		return pooling(d, kernel == POOL_BACK);
	case AVERAGE:
	case AVERAGE_BACK:
		return averages(d, kernel == AVERAGE_BACK);
	case ADD:
	case ADD_BACK:
		return sums(d, kernel == ADD_BACK);
	case LABELS:
		return losses(d, TR_CROSS_ENTROPY);
	default:
		return losses(d, TR_HALF_SQUARE);
	}
}

START_TEST(layers_are_twins)
{
	struct areas *a = launcher_memory(sizeof(*a));
	uint64_t seed = 1;
	const uint32_t draws = (test_length() == TEST_SHORT ? 60 : 300) / launcher_slower;
	char text[1024];

	(void)seeds_given(&seed);
	struct rb_rng rng = { seed };

	ck_assert(a != NULL);
	for (uint32_t i = 0; i < draws; i++) {
		struct draw d = { .a = a, .rng = &rng };
		const char *error;

		areas_fill(a, &rng);
		d.grid = 1 + below(&d, 3);
		d.block = 1 + below(&d, 40);
		d.rows = 1 + below(&d, 4);
		d.add = below(&d, 2);
		error = run(&d, (enum kernel)_i);
		alike(a);
		if (error == NULL)
			error = areas_differ(a, text, sizeof(text));
		if (error != NULL)
			ck_abort_msg("kernel %d, draw %u: %s, TEST_SEED=%lu", _i, i, error,
				     (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("layers");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, layers_are_twins, 0, KERNELS);
	return check_main("cuda", tc);
}
