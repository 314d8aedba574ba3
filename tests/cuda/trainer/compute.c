/* compute.c -- see compute.h. */
#include "tests/cuda/trainer/compute.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum tr_precision device_precision;

static float *device_floats(struct on_device *d, size_t count)
{
	void *at;

	ck_assert_int_eq(tr_cuda_alloc(d->cuda, (count + 1) * sizeof(float), &at, &d->b.error),
			 RUBATO_OK);
	return at;
}

void device_copy(struct on_device *d, void *to, const void *from, size_t count)
{
	ck_assert_int_eq(tr_cuda_copy(d->cuda, to, from, count * sizeof(float), &d->b.error),
			 RUBATO_OK);
	ck_assert_int_eq(tr_cuda_wait(d->cuda, &d->b.error), RUBATO_OK);
}

static const struct tr_compute_ops *plain_of(enum tr_model_kind kind)
{
	if (tr_model_reads_text(kind))
		return kind == TR_GPT ? &tr_compute_gpt_plain : &tr_compute_lstm_plain;
	return &tr_compute_plain;
}

bool device_try(struct on_device *d, const struct tr_compute_ops *ops, const struct shape_case *c)
{
	struct tr_compute_setup setup = { .batch = c->batch };

	memset(d, 0, sizeof(*d));
	bench_open(&d->b, c);
	d->ops = ops;
	d->plain = plain_of(c->kind);
	ck_assert_msg(tr_cuda_open(&d->cuda, 0, &d->b.error) == RUBATO_OK, "%s", d->b.error.text);
	d->parameters = device_floats(d, d->b.model.parameter_count);
	d->gradient = device_floats(d, d->b.model.parameter_count);
	d->statistics = device_floats(d, d->b.model.statistics_count);
	d->seen = room(d->b.model.parameter_count, sizeof(float));
	d->seen_statistics = room(d->b.model.statistics_count + 1, sizeof(float));
	device_copy(d, d->parameters, d->b.parameters, d->b.model.parameter_count);
	device_copy(d, d->statistics, d->b.statistics, d->b.model.statistics_count);
	setup.model = &d->b.model;
	setup.parameters = d->b.parameters;
	setup.gradient = d->b.gradient;
	setup.statistics = d->b.statistics;
	ck_assert_int_eq(tr_compute_open(&d->twin, d->plain, &setup, &d->b.error), RUBATO_OK);
	setup.parameters = d->parameters;
	setup.gradient = d->gradient;
	setup.statistics = d->statistics;
	setup.device = d->cuda;
	setup.precision = device_precision;
	if (tr_compute_open(&d->compute, ops, &setup, &d->b.error) == RUBATO_OK)
		return true;
	device_close(d);
	return false;
}

void device_open(struct on_device *d, const struct tr_compute_ops *ops, const struct shape_case *c)
{
	ck_assert_msg(device_try(d, ops, c), "%s", d->b.error.text);
}

void device_close(struct on_device *d)
{
	tr_compute_close(d->ops, d->compute);
	tr_compute_close(d->plain, d->twin);
	tr_cuda_free(d->cuda, d->parameters);
	tr_cuda_free(d->cuda, d->gradient);
	tr_cuda_free(d->cuda, d->statistics);
	tr_cuda_close(d->cuda);
	free(d->seen);
	free(d->seen_statistics);
	bench_close(&d->b);
}

static bool near(double have, double want, double share)
{
	return fabs(have - want) <= share * (1.0 + fabs(want));
}

/* As tests/trainer/test_compute.c and test_sequences.c hold backends of the host to it. */
static bool span_differs(const struct on_device *d, size_t first, size_t end, const char *what,
			 uint32_t number, char *text, size_t bytes)
{
	const double share = tr_model_reads_text(d->b.model.kind) ? 2e-5 : 1e-5;
	double difference = 0.0, norm = 0.0;

	for (size_t i = first; i < end; i++) {
		const double want = (double)d->b.gradient[i];

		difference += ((double)d->seen[i] - want) * ((double)d->seen[i] - want);
		norm += want * want;
	}
	if (sqrt(difference) <= share * sqrt(norm) + share * 1e-4)
		return false;
	(void)snprintf(text, bytes, "%s %u: gradient off by %g of %g", what, number,
		       sqrt(difference), sqrt(norm));
	return true;
}

static const char *gradients_differ(const struct on_device *d, char *text, size_t bytes)
{
	const struct tr_model *model = &d->b.model;
	struct tr_array arrays[TR_ARRAYS_MAX];
	uint32_t array_count = 0;

	for (uint32_t l = 0; l < model->layer_count; l++) {
		const struct tr_layer *layer = &model->layers[l];

		if (span_differs(d, layer->weight_offset, layer->bias_offset + layer->bias_count,
				 "layer", l, text, bytes))
			return text;
	}
	if (tr_model_reads_text(model->kind))
		array_count = model->kind == TR_GPT ? tr_gpt_arrays(&model->sequence, arrays)
						    : tr_lstm_arrays(&model->sequence, arrays);
	for (uint32_t a = 0; a < array_count; a++)
		if (span_differs(d, arrays[a].offset, arrays[a].offset + arrays[a].count,
				 arrays[a].name, a, text, bytes))
			return text;
	for (size_t i = 0; i < model->statistics_count; i++)
		if (!near((double)d->seen_statistics[i], (double)d->b.statistics[i], 1e-5))
			return "other statistics";
	return NULL;
}

static const char *step_differs(struct on_device *d, char *text, size_t bytes)
{
	const struct tr_answers answers = { d->b.labels, d->b.targets };
	struct tr_score want = { 0 }, have = { 0 };

	ck_assert_int_eq(d->plain->train(d->twin, d->b.x, answers, NULL, &want, &d->b.error),
			 RUBATO_OK);
	if (d->ops->train(d->compute, d->b.x, answers, NULL, &have, &d->b.error) != RUBATO_OK)
		return d->b.error.text;
	device_copy(d, d->seen, d->gradient, d->b.model.parameter_count);
	device_copy(d, d->seen_statistics, d->statistics, d->b.model.statistics_count);
	if (!near(have.loss, want.loss, 1e-5) || have.correct != want.correct ||
	    have.rows != want.rows) {
		(void)snprintf(text, bytes, "loss %g of %lu, %lu right; not %g of %lu, %lu",
			       have.loss, have.rows, have.correct, want.loss, want.rows,
			       want.correct);
		return text;
	}
	return gradients_differ(d, text, bytes);
}

/* Once more from the statistics before: the same bits. */
static const char *again_differs(struct on_device *d, const float *statistics)
{
	const struct tr_answers answers = { d->b.labels, d->b.targets };
	const size_t count = d->b.model.parameter_count;
	float *again = room(count, sizeof(float));
	struct tr_score score = { 0 };
	const char *error = NULL;

	device_copy(d, d->statistics, statistics, d->b.model.statistics_count);
	if (d->ops->train(d->compute, d->b.x, answers, NULL, &score, &d->b.error) != RUBATO_OK)
		error = d->b.error.text;
	device_copy(d, again, d->gradient, count);
	if (error == NULL && memcmp(again, d->seen, count * sizeof(float)) != 0)
		error = "other bits when computed again";
	free(again);
	return error;
}

const char *device_differs(const struct tr_compute_ops *ops, const struct shape_case *c,
			   uint64_t seed)
{
	static char text[sizeof(((struct tr_error *)0)->text)];
	const struct fake_cuda_control delays = { .seed = seed, .delay_us_max = 100 };
	const char *error = NULL;
	struct on_device d;
	float *before;

	fake_control()(&delays);
	if (!device_try(&d, ops, c)) {
		(void)snprintf(text, sizeof(text), "%s", d.b.error.text);
		return text;
	}
	before = room(d.b.model.statistics_count + 1, sizeof(float));
	error = step_differs(&d, text, sizeof(text));
	memcpy(before, d.seen_statistics, d.b.model.statistics_count * sizeof(float));
	if (error == NULL)
		error = step_differs(&d, text, sizeof(text));
	if (error == NULL)
		error = again_differs(&d, before);
	if (error != NULL && error != text)
		(void)snprintf(text, sizeof(text), "%s", error);
	free(before);
	device_close(&d);
	fake_all_given_back();
	return error != NULL ? text : NULL;
}
