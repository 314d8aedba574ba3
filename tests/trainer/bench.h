/* bench.h -- models of each kind and shape with data drawn from a seed, which backends compute. */
#ifndef RB_TESTS_TRAINER_BENCH_H
#define RB_TESTS_TRAINER_BENCH_H

#include <stdlib.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "trainer/models/compute.h"

struct shape_case { /* Of a model of text: `in` is its layers, heads and length. */
	enum tr_model_kind kind;
	enum tr_loss loss;
	struct tr_shape in;
	uint32_t outputs, hidden, batch;
};

static const struct shape_case cases[] = {
	{ TR_LOGISTIC, TR_CROSS_ENTROPY, { 7, 1, 1 }, 3, 0, 5 },
	{ TR_LOGISTIC, TR_HALF_SQUARE, { 9, 1, 1 }, 1, 0, 4 },
	{ TR_LOGISTIC, TR_CROSS_ENTROPY, { 1, 28, 28 }, 10, 0, 32 },
	{ TR_MLP, TR_CROSS_ENTROPY, { 13, 1, 1 }, 4, 11, 6 },
	{ TR_MLP, TR_HALF_SQUARE, { 1, 5, 3 }, 2, 17, 1 },
	{ TR_MLP, TR_CROSS_ENTROPY, { 1, 28, 28 }, 10, 64, 32 },
	{ TR_CNN, TR_CROSS_ENTROPY, { 1, 8, 8 }, 3, 0, 3 },
	{ TR_CNN, TR_HALF_SQUARE, { 1, 13, 13 }, 2, 0, 2 },
	{ TR_CNN, TR_CROSS_ENTROPY, { 1, 4, 4 }, 1, 0, 1 },
	{ TR_CNN, TR_CROSS_ENTROPY, { 1, 28, 28 }, 10, 0, 16 },
	{ TR_HYPERPLANE, TR_HALF_SQUARE, { 11, 1, 1 }, 1, 0, 3 },
	{ TR_HYPERPLANE, TR_HALF_SQUARE, { 700, 1, 1 }, 1, 0, 20 },
	{ TR_RESNET20, TR_CROSS_ENTROPY, { 3, 8, 8 }, 4, 0, 5 },
	{ TR_RESNET20, TR_HALF_SQUARE, { 1, 7, 7 }, 2, 0, 6 },      /* 7, 4 and 2 pixels wide. */
	{ TR_RESNET20, TR_CROSS_ENTROPY, { 3, 32, 32 }, 10, 0, 2 }, /* Seconds, in plain loops. */
};
#define ALL_COUNT ((int)(sizeof(cases) / sizeof(cases[0])))
#define CASE_COUNT (ALL_COUNT - 1)
#define SHALLOW_COUNT (CASE_COUNT - 2) /* All but resnet20: too deep for differences of floats. */

struct bench {
	struct tr_model model;
	float *parameters, *gradient, *statistics, *x;
	int32_t *labels;
	float *targets;
	struct tr_error error;
};

static inline void fill(struct rng *rng, float *values, size_t count, double scale)
{
	for (size_t i = 0; i < count; i++)
		values[i] = (float)(scale * (2.0 * rng_unit(rng) - 1.0));
}

static inline void *room(size_t count, size_t item_bytes)
{
	void *memory = calloc(count, item_bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* Rows of tokens; of an lstm lines of all lengths, one of them without an end. */
static inline void fill_text(struct bench *b, struct rng *rng, size_t rows)
{
	const struct tr_sequence *s = &b->model.sequence;

	for (size_t row = 0; row < rows; row++) {
		float *x = b->x + row * b->model.feature_count;
		uint64_t count = row == 1 ? s->length : rng_below(rng, s->length) + 1;

		if (b->model.kind == TR_GPT)
			count = s->length;
		for (uint64_t k = 1; k <= count; k++)
			x[k] = (float)(1 + rng_below(rng, s->vocabulary - 1));
		if (b->model.kind == TR_LSTM && count < s->length)
			x[count] = 0.0f;
	}
}

static inline void bench_open_text(struct bench *b, const struct shape_case *c, size_t rows)
{
	const struct tr_sequence s = { .vocabulary = c->outputs,
				       .length = c->in.width,
				       .hidden = c->hidden,
				       .layers = c->in.channels,
				       .width = c->hidden,
				       .heads = c->in.height };
	struct rng rng = { 11 };

	ck_assert_int_eq(tr_model_build_text(&b->model, c->kind, &s, &b->error), RUBATO_OK);
	b->parameters = room(b->model.parameter_count, sizeof(float));
	b->gradient = room(b->model.parameter_count, sizeof(float));
	b->statistics = room(1, sizeof(float));
	b->x = room(rows * b->model.feature_count, sizeof(float));
	tr_model_init(&b->model, 3, b->parameters);
	for (size_t i = 0; i < b->model.parameter_count; i++) /* No bias 0, no gain 1. */
		b->parameters[i] += (float)(0.2 * (rng_unit(&rng) - 0.5));
	fill_text(b, &rng, rows);
}

static inline void bench_open(struct bench *b, const struct shape_case *c)
{
	struct rng rng = { 7 };
	size_t rows = c->batch > TR_EVAL_ROWS ? c->batch : TR_EVAL_ROWS;

	if (tr_model_reads_text(c->kind)) {
		bench_open_text(b, c, rows);
		return;
	}
	ck_assert_int_eq(tr_model_build(&b->model, c->kind, c->loss, c->in, c->outputs, c->hidden,
					&b->error),
			 RUBATO_OK);
	b->parameters = room(b->model.parameter_count, sizeof(float));
	b->gradient = room(b->model.parameter_count, sizeof(float));
	b->statistics = room(b->model.statistics_count + 1, sizeof(float));
	tr_statistics_init(&b->model, b->statistics);
	b->x = room(rows * b->model.feature_count, sizeof(float));
	b->labels = room(rows, sizeof(int32_t));
	b->targets = room(rows * c->outputs, sizeof(float));
	tr_model_init(&b->model, 3, b->parameters);
	for (uint32_t i = 0; i < b->model.layer_count; i++)
		fill(&rng, b->parameters + b->model.layers[i].bias_offset,
		     b->model.layers[i].bias_count, 0.1);
	fill(&rng, b->x, rows * b->model.feature_count, 1.0);
	fill(&rng, b->targets, rows * c->outputs, 1.0);
	for (size_t i = 0; i < rows; i++)
		b->labels[i] = (int32_t)rng_below(&rng, c->outputs);
}

static inline void bench_close(struct bench *b)
{
	free(b->parameters);
	free(b->gradient);
	free(b->statistics);
	free(b->x);
	free(b->labels);
	free(b->targets);
}

#endif
