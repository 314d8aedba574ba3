/* sequence.c -- see sequence.h. */
#include "trainer/models/sequence.h"

#include <math.h>

struct list {
	struct tr_array *arrays;
	uint32_t count;
	size_t total;
};

static void add(struct list *list, const char *name, size_t count, double bound, float fill)
{
	list->arrays[list->count++] = (struct tr_array) { name, list->total, count, bound, fill };
	list->total += count;
}

/* Uniform within 1 / sqrt(hidden); forget gates begin open (Jozefowicz et al. 2015). */
uint32_t tr_lstm_arrays(const struct tr_sequence *s, struct tr_array arrays[TR_ARRAYS_MAX])
{
	struct list list = { arrays, 0, 0 };
	size_t h = s->hidden, e = TR_LSTM_EMBEDDING, v = s->vocabulary;
	double bound = 1.0 / sqrt((double)h);

	add(&list, "embedding", v * e, 1.0, 0.0f);
	add(&list, "input", 4 * h * e, bound, 0.0f);
	add(&list, "recurrent", 4 * h * h, bound, 0.0f);
	add(&list, "bias", h, 0.0, 0.0f);
	add(&list, "forget bias", h, 0.0, 1.0f);
	add(&list, "other bias", 2 * h, 0.0, 0.0f);
	add(&list, "output", v * h, bound, 0.0f);
	add(&list, "output bias", v, 0.0, 0.0f);
	return list.count;
}

/* GPT-2's standard deviation of 0.02, less by sqrt(2 layers) where a layer adds to its input. */
static void add_layer(struct list *list, size_t d, double bound, double last_bound)
{
	add(list, "norm 1 gain", d, 0.0, 1.0f);
	add(list, "norm 1 shift", d, 0.0, 0.0f);
	add(list, "qkv", 3 * d * d, bound, 0.0f);
	add(list, "qkv bias", 3 * d, 0.0, 0.0f);
	add(list, "mix", d * d, last_bound, 0.0f);
	add(list, "mix bias", d, 0.0, 0.0f);
	add(list, "norm 2 gain", d, 0.0, 1.0f);
	add(list, "norm 2 shift", d, 0.0, 0.0f);
	add(list, "up", 4 * d * d, bound, 0.0f);
	add(list, "up bias", 4 * d, 0.0, 0.0f);
	add(list, "down", 4 * d * d, last_bound, 0.0f);
	add(list, "down bias", d, 0.0, 0.0f);
}

uint32_t tr_gpt_arrays(const struct tr_sequence *s, struct tr_array arrays[TR_ARRAYS_MAX])
{
	struct list list = { arrays, 0, 0 };
	size_t d = s->width, v = s->vocabulary;
	double bound = 0.02 * sqrt(3.0); /* A uniform distribution's. */

	add(&list, "tokens", v * d, bound, 0.0f);
	add(&list, "positions", s->length * d, bound, 0.0f);
	for (uint32_t l = 0; l < s->layers; l++)
		add_layer(&list, d, bound, bound / sqrt(2.0 * s->layers));
	add(&list, "norm gain", d, 0.0, 1.0f);
	add(&list, "norm shift", d, 0.0, 0.0f);
	add(&list, "output", v * d, bound, 0.0f);
	return list.count;
}

uint32_t tr_row_tokens(const float *row, uint32_t length)
{
	for (uint32_t k = 1; k < length; k++)
		if (row[k] == 0.0f)
			return k;
	return length;
}
