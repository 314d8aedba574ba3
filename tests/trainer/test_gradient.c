/*
 * test_gradient.c -- the plain layers compiled for doubles: their gradient against finite
 * differences, with so little rounding that every layer, also deep in resnet20, is held to one part
 * in a million; and what batch normalisation does in training and in tests.
 *
 * The sources are included with `float` defined away; what they share with the trainer's library
 * (the model's list of layers, and what its failures say) has no floats in it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "tests/length.h"

/* Same functions, other type: names that the library has too get other ones. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define float double
#define expf exp
#define tr_compute_plain tr_double_plain
#define tr_compute_host tr_double_host
#define tr_loss_score tr_double_score
#define tr_model_init tr_double_model_init
#define tr_model_build tr_double_model_build
#define tr_model_names tr_double_model_names
#define tr_statistics_init tr_double_statistics_init
#define tr_statistics_follow tr_double_statistics_follow
#undef TR_HAVE_DNNL
#include "trainer/models/compute_plain.c"
#include "trainer/models/loss.c"
#include "trainer/models/model.c"

struct bench {
	struct tr_model model;
	struct tr_compute *compute;
	uint32_t batch;
	double *parameters, *gradient, *statistics, *x, *targets;
	int32_t *labels;
	struct tr_error error;
};

static void fill(struct rng *rng, double *values, size_t count, double scale)
{
	for (size_t i = 0; i < count; i++)
		values[i] = scale * (2.0 * rng_unit(rng) - 1.0);
}

static void *room(size_t count, size_t item_bytes)
{
	void *memory = calloc(count + 1, item_bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static void bench_open(struct bench *b, enum tr_model_kind kind, enum tr_loss loss,
		       struct tr_shape in, uint32_t outputs, uint32_t batch)
{
	struct rng rng = { 7 };
	size_t rows = batch > TR_EVAL_ROWS ? batch : TR_EVAL_ROWS;

	memset(b, 0, sizeof(*b));
	b->batch = batch;
	ck_assert_int_eq(tr_model_build(&b->model, kind, loss, in, outputs, 11, &b->error),
			 RUBATO_OK);
	b->parameters = room(b->model.parameter_count, sizeof(double));
	b->gradient = room(b->model.parameter_count, sizeof(double));
	b->statistics = room(b->model.statistics_count, sizeof(double));
	b->x = room(rows * b->model.feature_count, sizeof(double));
	b->targets = room(rows * outputs, sizeof(double));
	b->labels = room(rows, sizeof(int32_t));
	tr_model_init(&b->model, 3, b->parameters);
	tr_statistics_init(&b->model, b->statistics);
	fill(&rng, b->x, rows * b->model.feature_count, 1.0);
	fill(&rng, b->targets, rows * outputs, 1.0);
	for (size_t i = 0; i < rows; i++)
		b->labels[i] = (int32_t)rng_below(&rng, outputs);
	for (size_t i = 0; i < b->model.parameter_count; i++) /* No scale is 1, no bias 0. */
		b->parameters[i] += 0.1 * (2.0 * rng_unit(&rng) - 1.0);
	struct tr_compute_setup setup = { &b->model,     batch, b->parameters, b->gradient,
					  b->statistics, NULL,  TR_FLOAT32 };
	ck_assert_int_eq(tr_compute_open(&b->compute, &tr_compute_plain, &setup, &b->error),
			 RUBATO_OK);
}

static void bench_close(struct bench *b)
{
	tr_compute_close(&tr_compute_plain, b->compute);
	free(b->parameters);
	free(b->gradient);
	free(b->statistics);
	free(b->x);
	free(b->targets);
	free(b->labels);
}

static double train_loss(struct bench *b)
{
	struct tr_score score = { 0 };
	struct tr_answers answers = { b->labels, b->targets };

	ck_assert_int_eq(tr_compute_plain.train(b->compute, b->x, answers, NULL, &score, &b->error),
			 RUBATO_OK);
	return score.loss / (double)score.rows;
}

static double test_loss(struct bench *b)
{
	struct tr_score score = { 0 };
	struct tr_answers answers = { b->labels, b->targets };

	ck_assert_int_eq(
		tr_compute_plain.evaluate(b->compute, b->x, answers, b->batch, &score, &b->error),
		RUBATO_OK);
	return score.loss / (double)score.rows;
}

static const struct {
	enum tr_model_kind kind;
	enum tr_loss loss;
	struct tr_shape in;
	uint32_t outputs, batch;
} cases[] = {
	{ TR_LOGISTIC, TR_CROSS_ENTROPY, { 7, 1, 1 }, 3, 5 },
	{ TR_MLP, TR_HALF_SQUARE, { 13, 1, 1 }, 2, 6 },
	{ TR_CNN, TR_CROSS_ENTROPY, { 1, 9, 9 }, 3, 4 },
	{ TR_HYPERPLANE, TR_HALF_SQUARE, { 19, 1, 1 }, 1, 5 },
	{ TR_RESNET20, TR_CROSS_ENTROPY, { 3, 8, 8 }, 4, 3 },
	{ TR_RESNET20, TR_HALF_SQUARE, { 1, 7, 7 }, 2, 4 },
};
#define CASE_COUNT ((int)(sizeof(cases) / sizeof(cases[0])))

/* Of one layer: along its gradient, turned by a random direction of the same length. */
static void check_layer(struct bench *b, const struct tr_layer *layer, const double *gradient,
			struct rng *rng)
{
	const double h = 1e-7;
	size_t count = layer->weight_count + layer->bias_count, first = layer->weight_offset;
	double *direction = room(count, sizeof(double)), *base = room(count, sizeof(double));
	double norm = 0.0, dot = 0.0, loss[2];

	fill(rng, direction, count, 1.0);
	memcpy(base, b->parameters + first, count * sizeof(double));
	for (size_t i = 0; i < count; i++)
		norm += gradient[first + i] * gradient[first + i];
	norm = sqrt(norm);
	ck_assert_double_gt(norm, 1e-9);
	for (size_t i = 0; i < count; i++) {
		direction[i] = direction[i] / sqrt((double)count) + gradient[first + i] / norm;
		dot += direction[i] * gradient[first + i];
	}
	for (int side = 0; side < 2; side++) {
		for (size_t i = 0; i < count; i++)
			b->parameters[first + i] = base[i] + (2 * side - 1) * h * direction[i];
		loss[side] = train_loss(b);
	}
	memcpy(b->parameters + first, base, count * sizeof(double));
	double slope = (loss[1] - loss[0]) / (2.0 * h);
	ck_assert_msg(fabs(slope - dot) <= 1e-6 * norm + 1e-8,
		      "%s at %zu: slope %.12g, gradient says %.12g", layer->name, first, slope,
		      dot);
	free(direction);
	free(base);
}

START_TEST(gradient_is_the_slope_of_the_loss)
{
	struct rng rng = { 99 };
	uint32_t weighted = 0, every;
	struct bench b;

	bench_open(&b, cases[_i].kind, cases[_i].loss, cases[_i].in, cases[_i].outputs,
		   cases[_i].batch);
	double *gradient = room(b.model.parameter_count, sizeof(double));
	train_loss(&b);
	memcpy(gradient, b.gradient, b.model.parameter_count * sizeof(double));
	/* Each layer of a deep model takes two passes through all of it. */
	every = test_length() == TEST_SHORT && b.model.layer_count > 10 ? 4 : 1;
	for (uint32_t l = 0; l < b.model.layer_count; l++)
		if (b.model.layers[l].weight_count > 0 && weighted++ % every == 0)
			check_layer(&b, &b.model.layers[l], gradient, &rng);
	free(gradient);
	bench_close(&b);
}
END_TEST

static const struct tr_shape image = { 3, 8, 8 };

static void channel_moments(const struct tr_layer *l, uint32_t rows, const double *values,
			    size_t channel, double *mean, double *variance)
{
	size_t plane = (size_t)l->out.height * l->out.width, count = rows * plane;

	*mean = *variance = 0.0;
	for (size_t row = 0; row < rows; row++)
		for (size_t k = 0; k < plane; k++)
			*mean += values[(row * l->out.channels + channel) * plane + k] /
				 (double)count;
	for (size_t row = 0; row < rows; row++)
		for (size_t k = 0; k < plane; k++)
			*variance +=
				pow(values[(row * l->out.channels + channel) * plane + k] - *mean,
				    2) /
				(double)count;
}

/* Of every layer: outputs have the shifts for means and the scales for deviations; the running
 * statistics are 0.9 times what they were, and a tenth of the batch's, with n - 1. */
START_TEST(training_normalises_and_statistics_follow)
{
	uint32_t layers = 0;
	struct bench b;

	bench_open(&b, TR_RESNET20, TR_CROSS_ENTROPY, image, 4, 5);
	train_loss(&b);
	for (uint32_t i = 0; i < b.model.layer_count; i++) {
		const struct tr_layer *l = &b.model.layers[i];
		size_t count = (size_t)b.batch * l->in.height * l->in.width;

		if (l->kind != TR_NORM)
			continue;
		layers++;
		for (size_t k = 0; k < l->out.channels; k++) {
			const double *running = b.statistics + l->statistics_offset + k;
			double mean, variance, out_mean, out_variance;

			channel_moments(l, b.batch, b.compute->value[i], k, &mean, &variance);
			channel_moments(l, b.batch, b.compute->value[i + 1], k, &out_mean,
					&out_variance);
			ck_assert_double_eq_tol(out_mean, b.parameters[l->bias_offset + k], 1e-12);
			ck_assert_double_eq_tol(out_variance,
						pow(b.parameters[l->weight_offset + k], 2) *
							variance / (variance + 1e-5),
						1e-12);
			ck_assert_double_eq_tol(running[0], 0.1 * mean, 1e-12);
			ck_assert_double_eq_tol(
				running[l->out.channels],
				0.9 + 0.1 * variance * (double)count / (double)(count - 1), 1e-12);
		}
	}
	ck_assert_uint_eq(layers, 19);
	bench_close(&b);
}
END_TEST

/* With the batch's own moments as statistics, a test sees what training saw; it changes none. */
START_TEST(tests_use_the_statistics_and_leave_them)
{
	struct bench b;
	double trained, by_row = 0.0;

	bench_open(&b, TR_RESNET20, TR_CROSS_ENTROPY, image, 4, 5);
	trained = train_loss(&b);
	ck_assert_double_ge(fabs(test_loss(&b) - trained), 1e-3);
	memcpy(b.statistics, b.compute->moments, b.model.statistics_count * sizeof(double));
	ck_assert_double_eq_tol(test_loss(&b), trained, 1e-12);
	ck_assert_int_eq(
		memcmp(b.statistics, b.compute->moments, b.model.statistics_count * sizeof(double)),
		0);
	for (uint32_t row = 0; row < 5; row++) { /* A row does not care about its neighbours. */
		struct tr_score score = { 0 };
		struct tr_answers answers = { b.labels + row, NULL };

		ck_assert_int_eq(tr_compute_plain.evaluate(b.compute,
							   b.x + row * b.model.feature_count,
							   answers, 1, &score, &b.error),
				 RUBATO_OK);
		by_row += score.loss / 5.0;
	}
	ck_assert_double_eq_tol(by_row, trained, 1e-12);
	bench_close(&b);
}
END_TEST

/* Two images of 4 x 4 pixels become 2 x 2 of two channels: every second pixel, and nothing. */
START_TEST(shortcuts_take_every_second_pixel)
{
	const struct tr_shape wide = { 1, 4, 4 };
	const struct tr_layer l = { .kind = TR_ADD, .stride = 2, .out = { 2, 2, 2 } };
	const double want[16] = { 0, 2, 8, 10, 0, 0, 0, 0, 16, 18, 24, 26, 0, 0, 0, 0 };
	double early[32], late[16] = { 0 };

	for (int i = 0; i < 32; i++)
		early[i] = i;
	shortcut(&l, wide, 2, early, late, false);
	for (int i = 0; i < 16; i++)
		ck_assert_double_eq(late[i], want[i]);
	memset(early, 0, sizeof(early));
	shortcut(&l, wide, 2, late, early, true);
	for (int i = 0; i < 32; i++)
		ck_assert_double_eq(early[i], i % 2 == 0 && i / 4 % 2 == 0 ? i : 0);
}
END_TEST

/* 0.27 million parameters, as the paper's table has it. */
START_TEST(resnet20_has_the_published_size)
{
	const struct tr_shape cifar = { 3, 32, 32 };
	struct tr_model model;
	struct tr_error error;

	ck_assert_int_eq(
		tr_model_build(&model, TR_RESNET20, TR_CROSS_ENTROPY, cifar, 10, 0, &error),
		RUBATO_OK);
	ck_assert_uint_eq(model.parameter_count, 269722);
	ck_assert_uint_eq(model.statistics_count, 2 * 688);
	ck_assert_uint_le(model.layer_count, TR_LAYERS_MAX);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("gradient");

	tcase_set_timeout(tests, 240);
	tcase_add_loop_test(tests, gradient_is_the_slope_of_the_loss, 0, CASE_COUNT);
	tcase_add_test(tests, training_normalises_and_statistics_follow);
	tcase_add_test(tests, tests_use_the_statistics_and_leave_them);
	tcase_add_test(tests, shortcuts_take_every_second_pixel);
	tcase_add_test(tests, resnet20_has_the_published_size);
	return check_main("gradient", tests);
}
