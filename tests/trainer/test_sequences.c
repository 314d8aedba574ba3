/*
 * test_sequences.c -- lstm and gpt: their losses against a model written down in doubles, one row
 * at a time, and their gradients against its slope; every backend; what is final when ready() says
 * so; padding that changes no bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "trainer/models/activations.h"
#include "trainer/models/compute.h"

#define ROWS_MAX 300

static const struct {
	enum tr_model_kind kind;
	struct tr_sequence s;
	uint32_t batch;
} cases[] = {
	{ TR_LSTM, { .vocabulary = 7, .length = 9, .hidden = 5 }, 6 },
	{ TR_LSTM, { .vocabulary = 3, .length = 1, .hidden = 3 }, 2 },
	{ TR_LSTM, { .vocabulary = 40, .length = 30, .hidden = 64 }, 11 },
	{ TR_GPT, { .vocabulary = 5, .length = 6, .layers = 1, .width = 8, .heads = 2 }, 3 },
	{ TR_GPT, { .vocabulary = 11, .length = 1, .layers = 2, .width = 6, .heads = 3 }, 2 },
	{ TR_GPT, { .vocabulary = 30, .length = 16, .layers = 3, .width = 32, .heads = 4 }, 4 },
};
#define CASE_COUNT ((int)(sizeof(cases) / sizeof(cases[0])))

struct bench {
	struct tr_model model;
	struct tr_array arrays[TR_ARRAYS_MAX];
	uint32_t array_count, batch;
	float *parameters, *gradient, *x;
	double *exact; /* The parameters, for the reference. */
	struct tr_error error;
};

static void *room(size_t count, size_t item_bytes)
{
	void *memory = calloc(count, item_bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* Lines of all lengths, the longest among them, with an end where there is room for one. */
static void fill_rows(struct bench *b, struct rng *rng)
{
	const struct tr_sequence *s = &b->model.sequence;

	for (size_t row = 0; row < ROWS_MAX; row++) {
		float *x = b->x + row * (s->length + 1);
		uint64_t count = row == 1 ? s->length : rng_below(rng, s->length) + 1;

		if (b->model.kind == TR_GPT)
			count = s->length;
		for (uint64_t k = 1; k <= count; k++)
			x[k] = (float)(1 + rng_below(rng, s->vocabulary - 1));
		if (b->model.kind == TR_LSTM && count < s->length)
			x[count] = 0.0f; /* Also the only token of a row. */
	}
}

static void bench_open(struct bench *b, int number)
{
	struct rng rng = { 11 };

	*b = (struct bench) { .batch = cases[number].batch };
	ck_assert_int_eq(
		tr_model_build_text(&b->model, cases[number].kind, &cases[number].s, &b->error),
		RUBATO_OK);
	b->array_count = b->model.kind == TR_LSTM ? tr_lstm_arrays(&b->model.sequence, b->arrays)
						  : tr_gpt_arrays(&b->model.sequence, b->arrays);
	b->parameters = room(b->model.parameter_count, sizeof(float));
	b->gradient = room(b->model.parameter_count, sizeof(float));
	b->exact = room(b->model.parameter_count, sizeof(double));
	b->x = room((size_t)ROWS_MAX * b->model.feature_count, sizeof(float));
	tr_model_init(&b->model, 3, b->parameters);
	for (size_t i = 0; i < b->model.parameter_count; i++) { /* No bias 0, no gain 1. */
		b->parameters[i] += (float)(0.2 * (rng_unit(&rng) - 0.5));
		b->exact[i] = (double)b->parameters[i];
	}
	fill_rows(b, &rng);
}

static void bench_close(struct bench *b)
{
	free(b->parameters);
	free(b->gradient);
	free(b->exact);
	free(b->x);
}

static const struct tr_compute_ops *backend(enum tr_model_kind kind, int which)
{
	if (which == 1)
		return tr_compute_host(kind);
	return kind == TR_LSTM ? &tr_compute_lstm_plain : &tr_compute_gpt_plain;
}

static struct tr_compute *open_with(const struct tr_compute_ops *ops, struct bench *b,
				    float *gradient)
{
	struct tr_compute_setup setup = { .model = &b->model,
					  .batch = b->batch,
					  .parameters = b->parameters,
					  .gradient = gradient };
	struct tr_compute *compute;

	ck_assert_int_eq(tr_compute_open(&compute, ops, &setup, &b->error), RUBATO_OK);
	return compute;
}

/* Opens, trains once, closes. */
static struct tr_score train_with(const struct tr_compute_ops *ops, struct bench *b,
				  float *gradient, const struct tr_ready *ready)
{
	struct tr_compute *compute = open_with(ops, b, gradient);
	struct tr_answers none = { NULL, NULL };
	struct tr_score score = { 0 };

	ck_assert_int_eq(ops->train(compute, b->x, none, ready, &score, &b->error), RUBATO_OK);
	tr_compute_close(ops, compute);
	return score;
}

/* ---- The reference: doubles, a row at a time, nothing kept for a backward pass ---- */

static const double *exact(const struct bench *b, size_t array)
{
	return b->exact + b->arrays[array].offset;
}

static void dense(const double *weight, const double *bias, size_t ins, size_t outs,
		  const double *in, double *out)
{
	for (size_t o = 0; o < outs; o++) {
		out[o] = bias == NULL ? 0.0 : bias[o];
		for (size_t i = 0; i < ins; i++)
			out[o] += weight[o * ins + i] * in[i];
	}
}

static double surprise(const double *outputs, size_t count, size_t token)
{
	double sum = 0.0;

	for (size_t k = 0; k < count; k++)
		sum += exp(outputs[k]);
	return log(sum) - outputs[token];
}

static double logistic(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

static double lstm_row(const struct bench *b, const float *x, uint64_t *tokens)
{
	const struct tr_sequence *s = &b->model.sequence;
	size_t h = s->hidden, e = TR_LSTM_EMBEDDING;
	double *gate = room(4 * h, sizeof(double)), *more = room(4 * h, sizeof(double));
	double *cell = room(h, sizeof(double)), *state = room(h, sizeof(double));
	double *outputs = room(s->vocabulary, sizeof(double)), loss = 0.0;

	for (uint32_t t = 0; t < s->length; t++) {
		const double *token = exact(b, TR_LSTM_TOKENS) + (size_t)x[t] * e;

		dense(exact(b, TR_LSTM_INPUT), exact(b, TR_LSTM_BIAS), e, 4 * h, token, gate);
		dense(exact(b, TR_LSTM_RECURRENT), NULL, h, 4 * h, state, more);
		for (size_t k = 0; k < h; k++) {
			double i = logistic(gate[k] + more[k]);
			double f = logistic(gate[h + k] + more[h + k]);
			double g = tanh(gate[2 * h + k] + more[2 * h + k]);

			cell[k] = f * cell[k] + i * g;
			state[k] = logistic(gate[3 * h + k] + more[3 * h + k]) * tanh(cell[k]);
		}
		dense(exact(b, TR_LSTM_OUTPUT), exact(b, TR_LSTM_OUTPUT_BIAS), h, s->vocabulary,
		      state, outputs);
		loss += surprise(outputs, s->vocabulary, (size_t)x[t + 1]);
		++*tokens;
		if (x[t + 1] == 0.0f)
			break;
	}
	free(gate);
	free(more);
	free(cell);
	free(state);
	free(outputs);
	return loss;
}

static void norm(const double *gain, const double *shift, size_t d, const double *in, double *out)
{
	double mean = 0.0, square = 0.0;

	for (size_t k = 0; k < d; k++)
		mean += in[k] / (double)d;
	for (size_t k = 0; k < d; k++)
		square += (in[k] - mean) * (in[k] - mean) / (double)d;
	for (size_t k = 0; k < d; k++)
		out[k] = (in[k] - mean) / sqrt(square + 1e-5) * gain[k] + shift[k];
}

/* One head at place t: what it mixes of the values up to t, from qkv[place][3D]. */
static void attend(const double *qkv, size_t t, size_t d, size_t head, size_t size, double *mixed)
{
	const double *q = qkv + t * 3 * d + head * size;
	double sum = 0.0;

	for (size_t k = 0; k < size; k++)
		mixed[head * size + k] = 0.0;
	for (size_t past = 0; past <= t; past++) {
		const double *key = qkv + past * 3 * d + d + head * size;
		double score = 0.0;

		for (size_t k = 0; k < size; k++)
			score += q[k] * key[k] / sqrt((double)size);
		sum += exp(score);
		for (size_t k = 0; k < size; k++)
			mixed[head * size + k] += exp(score) * key[d + k];
	}
	for (size_t k = 0; k < size; k++)
		mixed[head * size + k] /= sum;
}

/* stream[length][D] goes through layer `number`. */
static void gpt_layer(const struct bench *b, size_t number, double *stream)
{
	const struct tr_sequence *s = &b->model.sequence;
	size_t d = s->width, a = TR_GPT_FIRST_LAYER + number * TR_GPT_LAYER_ARRAYS;
	double *even = room(d, sizeof(double)), *wide = room(4 * d, sizeof(double));
	double *qkv = room(s->length * 3 * d, sizeof(double)), *out = room(d, sizeof(double));

	for (size_t t = 0; t < s->length; t++) {
		norm(exact(b, a + TR_GPT_GAIN1), exact(b, a + TR_GPT_SHIFT1), d, stream + t * d,
		     even);
		dense(exact(b, a + TR_GPT_QKV), exact(b, a + TR_GPT_QKV_BIAS), d, 3 * d, even,
		      qkv + t * 3 * d);
	}
	for (size_t t = 0; t < s->length; t++) {
		for (size_t head = 0; head < s->heads; head++)
			attend(qkv, t, d, head, d / s->heads, even);
		dense(exact(b, a + TR_GPT_MIX), exact(b, a + TR_GPT_MIX_BIAS), d, d, even, out);
		for (size_t k = 0; k < d; k++)
			stream[t * d + k] += out[k];
		norm(exact(b, a + TR_GPT_GAIN2), exact(b, a + TR_GPT_SHIFT2), d, stream + t * d,
		     even);
		dense(exact(b, a + TR_GPT_UP), exact(b, a + TR_GPT_UP_BIAS), d, 4 * d, even, wide);
		for (size_t k = 0; k < 4 * d; k++)
			wide[k] *= 0.5 * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) *
						     (wide[k] + 0.044715 * pow(wide[k], 3.0))));
		dense(exact(b, a + TR_GPT_DOWN), exact(b, a + TR_GPT_DOWN_BIAS), 4 * d, d, wide,
		      out);
		for (size_t k = 0; k < d; k++)
			stream[t * d + k] += out[k];
	}
	free(even);
	free(wide);
	free(qkv);
	free(out);
}

static double gpt_row(const struct bench *b, const float *x, uint64_t *tokens)
{
	const struct tr_sequence *s = &b->model.sequence;
	size_t d = s->width, last = TR_GPT_FIRST_LAYER + s->layers * TR_GPT_LAYER_ARRAYS;
	double *stream = room(s->length * d, sizeof(double)), *even = room(d, sizeof(double));
	double *outputs = room(s->vocabulary, sizeof(double)), loss = 0.0;

	for (size_t t = 0; t < s->length; t++)
		for (size_t k = 0; k < d; k++)
			stream[t * d + k] = exact(b, TR_GPT_TOKENS)[(size_t)x[t] * d + k] +
					    exact(b, TR_GPT_POSITIONS)[t * d + k];
	for (size_t l = 0; l < s->layers; l++)
		gpt_layer(b, l, stream);
	for (size_t t = 0; t < s->length; t++) {
		norm(exact(b, last + TR_GPT_GAIN), exact(b, last + TR_GPT_SHIFT), d, stream + t * d,
		     even);
		dense(exact(b, last + TR_GPT_OUTPUT), NULL, d, s->vocabulary, even, outputs);
		loss += surprise(outputs, s->vocabulary, (size_t)x[t + 1]);
		++*tokens;
	}
	free(stream);
	free(even);
	free(outputs);
	return loss;
}

/* Sum over the first rows; *tokens: how many are predicted. */
static double reference_loss(const struct bench *b, uint32_t rows, uint64_t *tokens)
{
	double loss = 0.0;

	*tokens = 0;
	for (uint32_t row = 0; row < rows; row++) {
		const float *x = b->x + row * (size_t)b->model.feature_count;

		loss += b->model.kind == TR_LSTM ? lstm_row(b, x, tokens) : gpt_row(b, x, tokens);
	}
	return loss;
}

/* ---- Tests ---- */

START_TEST(losses_are_the_references)
{
	struct tr_score score = { 0 };
	struct tr_answers none = { NULL, NULL };
	struct bench b;
	uint64_t tokens;
	double loss;

	bench_open(&b, _i);
	for (int which = 0; which < 2; which++) {
		const struct tr_compute_ops *ops = backend(b.model.kind, which);
		struct tr_compute *compute = open_with(ops, &b, b.gradient);
		const uint32_t rows[] = { 1, b.batch, b.batch + 1, 20 };

		loss = reference_loss(&b, b.batch, &tokens);
		score = train_with(ops, &b, b.gradient, NULL);
		ck_assert_uint_eq(score.rows, tokens);
		ck_assert_double_eq_tol(score.loss, loss, 1e-5 * loss);
		for (int i = 0; i < 4; i++) {
			loss = reference_loss(&b, rows[i], &tokens);
			score = (struct tr_score) { 0 };
			ck_assert_int_eq(
				ops->evaluate(compute, b.x, none, rows[i], &score, &b.error),
				RUBATO_OK);
			ck_assert_uint_eq(score.rows, tokens);
			ck_assert_double_eq_tol(score.loss, loss, 1e-5 * loss);
		}
		tr_compute_close(ops, compute);
	}
	bench_close(&b);
}
END_TEST

static double slope_along(struct bench *b, const struct tr_array *array, const double *direction)
{
	const double h = 1e-5;
	double loss[2];
	uint64_t tokens;

	for (int side = 0; side < 2; side++) {
		for (size_t i = 0; i < array->count; i++)
			b->exact[array->offset + i] = (double)b->parameters[array->offset + i] +
						      (side == 0 ? h : -h) * direction[i];
		loss[side] = reference_loss(b, b->batch, &tokens) / (double)tokens;
	}
	for (size_t i = 0; i < array->count; i++)
		b->exact[array->offset + i] = (double)b->parameters[array->offset + i];
	return (loss[0] - loss[1]) / (2.0 * h);
}

/* Along the gradient and something random, in each array: the reference's slope is g . d. */
START_TEST(gradients_are_the_slope_of_the_reference)
{
	struct bench b;
	struct rng rng = { 5 };

	bench_open(&b, _i);
	double *direction = room(b.model.parameter_count, sizeof(double));
	for (int which = 0; which < 2; which++) {
		train_with(backend(b.model.kind, which), &b, b.gradient, NULL);
		for (uint32_t a = 0; a < b.array_count; a++) {
			const struct tr_array *array = &b.arrays[a];
			double norm2 = 0.0, dot = 0.0, size = sqrt((double)array->count), slope;

			for (size_t i = 0; i < array->count; i++)
				norm2 += pow((double)b.gradient[array->offset + i], 2.0);
			for (size_t i = 0; i < array->count; i++) {
				double g = (double)b.gradient[array->offset + i];

				direction[i] = (2.0 * rng_unit(&rng) - 1.0) / size +
					       (norm2 > 0.0 ? g / sqrt(norm2) : 0.0);
				dot += g * direction[i];
			}
			slope = slope_along(&b, array, direction);
			ck_assert_msg(fabs(slope - dot) <= 2e-4 * sqrt(norm2) + 1e-6,
				      "case %d backend %d %s (%u): slope %g, gradient says %g", _i,
				      which, array->name, a, slope, dot);
			/* Of one token nothing is recurrent, and attention has no choice. */
			ck_assert(norm2 > 0.0 || b.model.sequence.length == 1);
		}
	}
	free(direction);
	bench_close(&b);
}
END_TEST

START_TEST(backends_agree_and_repeat)
{
	struct bench b;
	struct tr_score score[3];
	float *gradient[3];

	bench_open(&b, _i);
	size_t size_bytes = b.model.parameter_count * sizeof(float);
	for (int i = 0; i < 3; i++) { /* Elsewhere in memory each time. */
		gradient[i] = room(b.model.parameter_count + 5 + (size_t)i, sizeof(float));
		score[i] = train_with(backend(b.model.kind, i > 0), &b, gradient[i] + i, NULL);
	}
	ck_assert_uint_eq(score[0].correct, score[1].correct);
	ck_assert_int_eq(memcmp(&score[1], &score[2], sizeof(score[1])), 0);
	ck_assert_int_eq(memcmp(gradient[1] + 1, gradient[2] + 2, size_bytes), 0);
	for (uint32_t a = 0; a < b.array_count; a++) {
		double off = 0.0, norm2 = 0.0;

		for (size_t i = 0; i < b.arrays[a].count; i++) {
			size_t at = b.arrays[a].offset + i;
			double want = (double)gradient[0][at];

			off += pow((double)gradient[1][at + 1] - want, 2.0);
			norm2 += want * want;
		}
		ck_assert_msg(sqrt(off) <= 2e-5 * sqrt(norm2) + 1e-8, "case %d %s: off %g of %g",
			      _i, b.arrays[a].name, sqrt(off), sqrt(norm2));
	}
	for (int i = 0; i < 3; i++)
		free(gradient[i]);
	bench_close(&b);
}
END_TEST

struct watch {
	const struct bench *bench;
	float *seen;
	size_t final, calls;
};

static rubato_status watch_ready(void *arg, size_t first)
{
	struct watch *w = arg;

	ck_assert_uint_lt(first, w->final);
	memcpy(w->seen + first, w->bench->gradient + first, (w->final - first) * sizeof(float));
	w->final = first;
	w->calls++;
	return RUBATO_OK;
}

static rubato_status refuse_ready(void *arg, size_t first)
{
	(void)arg;
	(void)first;
	return RUBATO_ERR_CANCELLED;
}

START_TEST(ready_tells_what_is_final)
{
	struct bench b;

	for (int which = 0; which < 2; which++) {
		bench_open(&b, _i);
		const struct tr_compute_ops *ops = backend(b.model.kind, which);
		struct watch watch = { &b, room(b.model.parameter_count, sizeof(float)),
				       b.model.parameter_count, 0 };
		struct tr_ready ready = { watch_ready, &watch }, refuse = { refuse_ready, NULL };
		struct tr_compute *compute = open_with(ops, &b, b.gradient);
		struct tr_answers none = { NULL, NULL };
		struct tr_score score = { 0 };

		ck_assert_int_eq(ops->train(compute, b.x, none, &ready, &score, &b.error),
				 RUBATO_OK);
		ck_assert_uint_eq(watch.final, 0);
		ck_assert_uint_eq(watch.calls,
				  b.model.kind == TR_LSTM ? 3 : 2 + 2 * b.model.sequence.layers);
		ck_assert_int_eq(
			memcmp(watch.seen, b.gradient, b.model.parameter_count * sizeof(float)), 0);
		ck_assert_int_eq(ops->train(compute, b.x, none, &refuse, &score, &b.error),
				 RUBATO_ERR_CANCELLED);
		tr_compute_close(ops, compute);
		free(watch.seen);
		bench_close(&b);
	}
}
END_TEST

/* What stands behind a line's end is not looked at. */
START_TEST(padding_changes_no_bit)
{
	struct bench b;
	struct tr_score before, after;
	size_t changed = 0;

	bench_open(&b, 2);
	const struct tr_compute_ops *ops = tr_compute_host(TR_LSTM);
	size_t size_bytes = b.model.parameter_count * sizeof(float), width = b.model.feature_count;
	float *kept = room(b.model.parameter_count, sizeof(float));
	before = train_with(ops, &b, b.gradient, NULL);
	memcpy(kept, b.gradient, size_bytes);
	for (size_t row = 0; row < b.batch; row++)
		for (size_t k = tr_row_tokens(b.x + row * width, (uint32_t)width - 1) + 1;
		     k < width; k++, changed++)
			b.x[row * width + k] = 1.0f + (float)(k % 5);
	ck_assert_uint_gt(changed, 0);
	after = train_with(ops, &b, b.gradient, NULL);
	ck_assert_int_eq(memcmp(&before, &after, sizeof(before)), 0);
	ck_assert_int_eq(memcmp(kept, b.gradient, size_bytes), 0);
	free(kept);
	bench_close(&b);
}
END_TEST

START_TEST(curves_are_right)
{
	for (double x = -12.0; x <= 12.0; x += 1.0 / 1024.0) {
		double t = tanh(x);

		ck_assert_double_eq_tol((double)tr_tanh((float)x), t, 5e-7 * fabs(t) + 1e-12);
		ck_assert_double_eq_tol((double)tr_logistic((float)x), logistic(x), 2e-7);
	}
	ck_assert_double_eq_tol((double)tr_tanh(1e-20f), 1e-20, 1e-26);
	ck_assert_float_eq_tol(tr_tanh(INFINITY), 1.0f, 2e-7f);
	ck_assert_float_eq_tol(tr_tanh(-INFINITY), -1.0f, 2e-7f);
	ck_assert(isnan(tr_tanh(NAN)) && isnan(tr_logistic(NAN)));
}
END_TEST

START_TEST(first_parameters_and_layout)
{
	const struct tr_sequence lstm = { .vocabulary = 10, .length = 4, .hidden = 16 };
	const struct tr_sequence gpt = { 10, 4, 0, 2, 8, 2 };
	const struct tr_sequence uneven = { 10, 4, 0, 2, 8, 3 };
	struct tr_model model;
	struct tr_error error = { 0 };
	float *p;

	ck_assert_int_eq(tr_model_build_text(&model, TR_LSTM, &lstm, &error), RUBATO_OK);
	ck_assert_uint_eq(model.parameter_count, 10 * 32 + 64 * 32 + 64 * 16 + 64 + 10 * 16 + 10);
	p = room(model.parameter_count, sizeof(float));
	tr_model_init(&model, 1, p);
	size_t bias = 10 * 32 + 64 * 32 + 64 * 16;
	for (size_t k = 0; k < 64; k++)
		ck_assert_float_eq(p[bias + k], k >= 16 && k < 32 ? 1.0f : 0.0f);
	for (size_t k = 10 * 32; k < bias; k++)
		ck_assert(fabsf(p[k]) <= 0.25f); /* 1 / sqrt(16) */
	free(p);
	ck_assert_int_eq(tr_model_build_text(&model, TR_GPT, &gpt, &error), RUBATO_OK);
	ck_assert_uint_eq(model.parameter_count,
			  10 * 8 + 4 * 8 + 2 * (12 * 8 * 8 + 13 * 8) + 2 * 8 + 10 * 8);
	p = room(model.parameter_count, sizeof(float));
	tr_model_init(&model, 1, p);
	for (size_t k = 0; k < 16; k++) /* The first layer's gain and shift. */
		ck_assert_float_eq(p[14 * 8 + k], k < 8 ? 1.0f : 0.0f);
	free(p);
	ck_assert_int_eq(tr_model_build_text(&model, TR_GPT, &uneven, &error), RUBATO_ERR_ARGUMENT);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("sequences");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, losses_are_the_references, 0, CASE_COUNT);
	tcase_add_loop_test(tests, gradients_are_the_slope_of_the_reference, 0, CASE_COUNT);
	tcase_add_loop_test(tests, backends_agree_and_repeat, 0, CASE_COUNT);
	tcase_add_loop_test(tests, ready_tells_what_is_final, 0, CASE_COUNT);
	tcase_add_test(tests, padding_changes_no_bit);
	tcase_add_test(tests, curves_are_right);
	tcase_add_test(tests, first_parameters_and_layout);
	return check_main("sequences", tests);
}
