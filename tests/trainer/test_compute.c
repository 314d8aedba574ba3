/*
 * test_compute.c -- the plain layers against finite differences (test_gradient.c does it better,
 * with doubles), and every other backend against the plain layers: gradients, losses and counts,
 * for each model, loss, odd sizes and batches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/bench.h"

static struct tr_compute *open_with(const struct tr_compute_ops *ops, struct bench *b,
				    uint32_t batch, float *gradient, float *statistics)
{
	struct tr_compute_setup setup = { &b->model,  batch, b->parameters, gradient,
					  statistics, NULL,  TR_FLOAT32 };
	struct tr_compute *compute;

	ck_assert_int_eq(tr_compute_open(&compute, ops, &setup, &b->error), RUBATO_OK);
	return compute;
}

static struct tr_score train_with(const struct tr_compute_ops *ops, struct tr_compute *compute,
				  struct bench *b)
{
	struct tr_score score = { 0 };
	struct tr_answers answers = { b->labels, b->targets };

	ck_assert_int_eq(ops->train(compute, b->x, answers, NULL, &score, &b->error), RUBATO_OK);
	return score;
}

static double mean_loss_at(struct tr_compute *compute, struct bench *b, const float *base,
			   const struct tr_layer *layer, const float *direction, double step)
{
	size_t count = layer->weight_count + layer->bias_count;
	struct tr_score score;

	for (size_t i = 0; i < count; i++)
		b->parameters[layer->weight_offset + i] =
			(float)(base[layer->weight_offset + i] + step * direction[i]);
	score = train_with(&tr_compute_plain, compute, b);
	for (size_t i = 0; i < count; i++)
		b->parameters[layer->weight_offset + i] = base[layer->weight_offset + i];
	return score.loss / (double)score.rows;
}

/*
 * Along a random direction through each layer's parameters: (L(w + hd) - L(w - hd)) / 2h = g . d.
 * Rectifiers and pooling bend within the step for some unit now and then, hence 2 % of the norm.
 */
START_TEST(plain_gradient_is_the_slope_of_the_loss)
{
	const struct shape_case *c = &cases[_i];
	const double h = 2e-3;
	struct bench b;
	struct rng rng = { 99 };

	bench_open(&b, c);
	struct tr_compute *compute =
		open_with(&tr_compute_plain, &b, c->batch, b.gradient, b.statistics);
	float *base = room(b.model.parameter_count, sizeof(float));
	float *direction = room(b.model.parameter_count, sizeof(float));
	float *gradient = room(b.model.parameter_count, sizeof(float));
	train_with(&tr_compute_plain, compute, &b);
	for (size_t i = 0; i < b.model.parameter_count; i++) {
		base[i] = b.parameters[i];
		gradient[i] = b.gradient[i];
	}
	for (uint32_t l = 0; l < b.model.layer_count; l++) {
		const struct tr_layer *layer = &b.model.layers[l];
		size_t count = layer->weight_count + layer->bias_count;
		double dot = 0.0, norm = 0.0;

		if (count == 0)
			continue;
		/* Mostly along the gradient, so that the slope stands out of the rounding. */
		fill(&rng, direction, count, 1.0);
		for (size_t i = 0; i < count; i++)
			norm += (double)gradient[layer->weight_offset + i] *
				(double)gradient[layer->weight_offset + i];
		norm = sqrt(norm);
		for (size_t i = 0; i < count; i++) {
			double g = gradient[layer->weight_offset + i];

			direction[i] = (float)(0.5 * (double)direction[i] / sqrt((double)count) +
					       (norm > 0.0 ? g / norm : 0.0));
			dot += g * (double)direction[i];
		}
		double up = mean_loss_at(compute, &b, base, layer, direction, h);
		double down = mean_loss_at(compute, &b, base, layer, direction, -h);
		double slope = (up - down) / (2.0 * h);
		ck_assert_msg(fabs(slope - dot) <= 0.02 * norm + 1e-4,
			      "case %d layer %s: slope %g, gradient says %g", _i, layer->name,
			      slope, dot);
		ck_assert(norm > 0.0 || c->outputs == 1); /* One class: loss 0, gradient 0. */
	}
	tr_compute_close(&tr_compute_plain, compute);
	free(base);
	free(direction);
	free(gradient);
	bench_close(&b);
}
END_TEST

START_TEST(host_backend_equals_plain)
{
	const struct shape_case *c = &cases[_i];
	const struct tr_compute_ops *ops = tr_compute_host(c->kind);
	struct bench b;

	bench_open(&b, c);
	float *fast = room(b.model.parameter_count, sizeof(float));
	float *fast_statistics = room(b.model.statistics_count + 1, sizeof(float));
	tr_statistics_init(&b.model, fast_statistics);
	struct tr_compute *slow_compute =
		open_with(&tr_compute_plain, &b, c->batch, b.gradient, b.statistics);
	struct tr_compute *fast_compute = open_with(ops, &b, c->batch, fast, fast_statistics);
	for (int turn = 0; turn < 2; turn++) { /* Twice: nothing is left over from a run. */
		struct tr_score want = train_with(&tr_compute_plain, slow_compute, &b);
		struct tr_score have = train_with(ops, fast_compute, &b);

		ck_assert_double_eq_tol(have.loss, want.loss, 1e-5 * (1.0 + fabs(want.loss)));
		ck_assert_uint_eq(have.correct, want.correct);
		ck_assert_uint_eq(have.rows, want.rows);
		for (uint32_t l = 0; l < b.model.layer_count; l++) {
			const struct tr_layer *layer = &b.model.layers[l];
			size_t end = layer->bias_offset + layer->bias_count;
			double difference = 0.0, norm = 0.0;

			for (size_t i = layer->weight_offset; i < end; i++) {
				double d = (double)fast[i] - (double)b.gradient[i];

				difference += d * d;
				norm += (double)b.gradient[i] * (double)b.gradient[i];
			}
			ck_assert_msg(sqrt(difference) <= 1e-5 * sqrt(norm) + 1e-9,
				      "case %d layer %s: off by %g of %g", _i,
				      layer->name == NULL ? "-" : layer->name, sqrt(difference),
				      sqrt(norm));
		}
		for (size_t i = 0; i < b.model.statistics_count; i++)
			ck_assert_float_eq_tol(fast_statistics[i], b.statistics[i],
					       1e-5f * (1.0f + fabsf(b.statistics[i])));
	}
	tr_compute_close(&tr_compute_plain, slow_compute);
	tr_compute_close(ops, fast_compute);
	free(fast);
	free(fast_statistics);
	bench_close(&b);
}
END_TEST

START_TEST(evaluation_counts_the_first_rows_only)
{
	const struct shape_case *c = &cases[_i];
	const struct tr_compute_ops *backends[] = { &tr_compute_plain, tr_compute_host(c->kind) };
	const uint32_t rows[] = { 1, 5, TR_EVAL_ROWS };
	struct bench b;

	bench_open(&b, c);
	struct tr_answers answers = { b.labels, b.targets };
	for (size_t r = 0; r < 3; r++) {
		struct tr_score score[2] = { { 0 } };

		for (size_t k = 0; k < 2; k++) {
			struct tr_compute *compute =
				open_with(backends[k], &b, c->batch, b.gradient, b.statistics);

			ck_assert_int_eq(backends[k]->evaluate(compute, b.x, answers, rows[r],
							       &score[k], &b.error),
					 RUBATO_OK);
			tr_compute_close(backends[k], compute);
		}
		ck_assert_uint_eq(score[0].rows, rows[r]);
		ck_assert_uint_eq(score[1].rows, rows[r]);
		ck_assert_uint_eq(score[0].correct, score[1].correct);
		ck_assert_double_eq_tol(score[0].loss, score[1].loss, 1e-5 * (1.0 + score[0].loss));
	}
	bench_close(&b);
}
END_TEST

struct watch { /* What ready() says during one train(). */
	const struct bench *bench;
	float *seen; /* The gradient as it was when that part of it was said to be final. */
	size_t final, calls;
	size_t refuse_at; /* Call number whose answer is an error; 0: none. */
};

static rubato_status watch_ready(void *arg, size_t first)
{
	struct watch *w = arg;
	const struct tr_layer *layer = &w->bench->model.layers[w->bench->model.layer_count - 1];

	ck_assert_uint_lt(first, w->final);
	if (w->calls == 0) /* Not all at once, at the end: the last layer comes alone. */
		ck_assert_uint_eq(first, layer->weight_offset);
	memcpy(w->seen + first, w->bench->gradient + first, (w->final - first) * sizeof(float));
	w->final = first;
	w->calls++;
	return w->calls == w->refuse_at ? RUBATO_ERR_CANCELLED : RUBATO_OK;
}

/* What is said to be final does not change any more, and in the end that is everything. */
START_TEST(ready_tells_what_is_final)
{
	const struct shape_case *c = &cases[_i];
	const struct tr_compute_ops *backends[] = { &tr_compute_plain, tr_compute_host(c->kind) };
	struct bench b;

	for (size_t k = 0; k < 2; k++) {
		bench_open(&b, c);
		struct tr_compute *compute =
			open_with(backends[k], &b, c->batch, b.gradient, b.statistics);
		struct tr_answers answers = { b.labels, b.targets };
		struct watch watch = { .bench = &b, .final = b.model.parameter_count };
		struct tr_ready ready = { watch_ready, &watch };
		struct tr_score score = { 0 };
		size_t calls = 0;

		watch.seen = room(b.model.parameter_count, sizeof(float));
		ck_assert_int_eq(
			backends[k]->train(compute, b.x, answers, &ready, &score, &b.error),
			RUBATO_OK);
		for (uint32_t i = 0; i < b.model.layer_count; i++)
			calls += b.model.layers[i].weight_count > 0;
		ck_assert_uint_eq(watch.final, 0);
		ck_assert_uint_eq(watch.calls, calls);
		ck_assert_int_eq(
			memcmp(watch.seen, b.gradient, b.model.parameter_count * sizeof(float)), 0);
		watch = (struct watch) { &b, watch.seen, b.model.parameter_count, 0, calls };
		ck_assert_int_eq(
			backends[k]->train(compute, b.x, answers, &ready, &score, &b.error),
			RUBATO_ERR_CANCELLED);
		free(watch.seen);
		tr_compute_close(backends[k], compute);
		bench_close(&b);
	}
}
END_TEST

/* By hand: W[outputs][features] row-major, then b. */
START_TEST(layouts_are_as_documented)
{
	const struct shape_case logistic = { TR_LOGISTIC, TR_HALF_SQUARE, { 2, 1, 1 }, 2, 0, 1 };
	const float weights[] = { 1, 2, 3, 4, 10, 20 }; /* W[2][2], then b[2]. */
	struct bench b;
	struct tr_score score;

	bench_open(&b, &logistic);
	ck_assert_uint_eq(b.model.parameter_count, 6);
	for (size_t i = 0; i < 6; i++)
		b.parameters[i] = weights[i];
	b.x[0] = 1;
	b.x[1] = -1;
	b.targets[0] = 8; /* Output is (1 - 2 + 10, 3 - 4 + 20) = (9, 19). */
	b.targets[1] = 21;
	struct tr_compute *compute = open_with(&tr_compute_plain, &b, 1, b.gradient, b.statistics);
	score = train_with(&tr_compute_plain, compute, &b);
	ck_assert_double_eq_tol(score.loss, 0.5 * (1 + 4), 1e-12);
	const float want[] = { 1, -1, -2, 2, 1, -2 };
	for (size_t i = 0; i < 6; i++)
		ck_assert_float_eq(b.gradient[i], want[i]);
	tr_compute_close(&tr_compute_plain, compute);
	bench_close(&b);
}
END_TEST

START_TEST(cnn_wants_square_images)
{
	const struct tr_shape bad[] = { { 784, 1, 1 }, { 1, 28, 27 }, { 3, 8, 8 }, { 1, 3, 3 } };
	struct tr_model model;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tr_error error = { 0 };

		ck_assert_int_eq(
			tr_model_build(&model, TR_CNN, TR_CROSS_ENTROPY, bad[i], 10, 0, &error),
			RUBATO_ERR_ARGUMENT);
		ck_assert(error.text[0] != '\0');
	}
}
END_TEST

START_TEST(first_parameters_come_from_the_seed_alone)
{
	struct bench b;

	bench_open(&b, &cases[6]);
	float *again = room(b.model.parameter_count, sizeof(float));
	float *other = room(b.model.parameter_count, sizeof(float));
	size_t same = 0;
	tr_model_init(&b.model, 3, b.parameters);
	tr_model_init(&b.model, 3, again);
	tr_model_init(&b.model, 4, other);
	for (size_t i = 0; i < b.model.parameter_count; i++) {
		ck_assert_float_eq(b.parameters[i], again[i]);
		same += b.parameters[i] == other[i];
	}
	ck_assert_uint_lt(same, b.model.parameter_count / 2); /* Biases are 0 in both. */
	free(again);
	free(other);
	bench_close(&b);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("compute");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, plain_gradient_is_the_slope_of_the_loss, 0, SHALLOW_COUNT);
	tcase_add_loop_test(tests, host_backend_equals_plain, 0,
			    test_length() == TEST_SHORT ? CASE_COUNT : ALL_COUNT);
	tcase_add_loop_test(tests, evaluation_counts_the_first_rows_only, 0, CASE_COUNT);
	tcase_add_loop_test(tests, ready_tells_what_is_final, 0, CASE_COUNT);
	tcase_add_test(tests, layouts_are_as_documented);
	tcase_add_test(tests, cnn_wants_square_images);
	tcase_add_test(tests, first_parameters_come_from_the_seed_alone);
	return check_main("compute", tests);
}
