/*
 * compute_plain.c -- the layers as plain loops: the twin that fast backends are compared with, and
 * the host backend of a build without oneDNN.
 *
 * Layer l reads value[l] and writes value[l + 1]; backward it reads slope[l + 1] (and value[l]) and
 * writes slope[l]. Arrays are [rows][channels][height][width].
 */
#include <stdlib.h>
#include <string.h>

#include "trainer/compute.h"

struct tr_compute {
	struct tr_model model;
	uint32_t batch;
	const float *parameters;
	float *gradient;
	float *value[TR_LAYERS_MAX + 1]; /* [0] is unused: the caller's rows. */
	float *slope[TR_LAYERS_MAX + 1]; /* [0] is unused: nobody asks. */
};

static void dense_forward(const struct tr_layer *l, const float *weight, const float *bias,
			  uint32_t rows, const float *in, float *out)
{
	size_t ins = tr_shape_count(l->in), outs = l->out.channels;

	for (size_t row = 0; row < rows; row++)
		for (size_t o = 0; o < outs; o++) {
			float sum = bias[o];
			for (size_t i = 0; i < ins; i++)
				sum += weight[o * ins + i] * in[row * ins + i];
			out[row * outs + o] = sum;
		}
}

static void dense_backward(const struct tr_layer *l, const float *weight, uint32_t rows,
			   const float *in, const float *out_slope, float *weight_slope,
			   float *bias_slope, float *in_slope)
{
	size_t ins = tr_shape_count(l->in), outs = l->out.channels;

	for (size_t row = 0; row < rows; row++)
		for (size_t o = 0; o < outs; o++) {
			float s = out_slope[row * outs + o];

			bias_slope[o] += s;
			for (size_t i = 0; i < ins; i++)
				weight_slope[o * ins + i] += s * in[row * ins + i];
			for (size_t i = 0; in_slope != NULL && i < ins; i++)
				in_slope[row * ins + i] += s * weight[o * ins + i];
		}
}

/* The part of a row or column that tap k of the kernel reads: outputs from..to-1 exist. */
struct reach {
	int32_t shift;
	int32_t from, to;
};

static struct reach tap(uint32_t kernel, uint32_t k, uint32_t size)
{
	int32_t shift = (int32_t)k - (int32_t)(kernel / 2), n = (int32_t)size;

	return (struct reach) { shift, shift < 0 ? -shift : 0, shift > 0 ? n - shift : n };
}

/* out[y][x] += weight * in[y + dy][x + dx] over one plane; or, for slopes, one of its transposes.
 */
static void conv_tap_forward(const struct tr_layer *l, struct reach ry, struct reach rx,
			     float weight, const float *in, float *out)
{
	int32_t width = (int32_t)l->in.width;

	for (int32_t y = ry.from; y < ry.to; y++)
		for (int32_t x = rx.from; x < rx.to; x++)
			out[y * width + x] += weight * in[(y + ry.shift) * width + x + rx.shift];
}

static float conv_tap_backward(const struct tr_layer *l, struct reach ry, struct reach rx,
			       float weight, const float *in, const float *out_slope,
			       float *in_slope)
{
	int32_t width = (int32_t)l->in.width;
	float sum = 0.0f;

	for (int32_t y = ry.from; y < ry.to; y++)
		for (int32_t x = rx.from; x < rx.to; x++) {
			float s = out_slope[y * width + x];
			int32_t at = (y + ry.shift) * width + x + rx.shift;

			sum += s * in[at];
			if (in_slope != NULL)
				in_slope[at] += s * weight;
		}
	return sum;
}

static void conv_forward(const struct tr_layer *l, const float *weight, const float *bias,
			 uint32_t rows, const float *in, float *out)
{
	size_t plane = (size_t)l->in.height * l->in.width, taps = (size_t)l->kernel * l->kernel;
	size_t ins = l->in.channels, outs = l->out.channels;

	for (size_t p = 0; p < rows * outs; p++) { /* One output plane: a row and a channel. */
		const float *w = weight + (p % outs) * ins * taps;

		for (size_t k = 0; k < plane; k++)
			out[p * plane + k] = bias[p % outs];
		for (size_t t = 0; t < ins * taps; t++)
			conv_tap_forward(
				l, tap(l->kernel, (uint32_t)(t % taps) / l->kernel, l->in.height),
				tap(l->kernel, (uint32_t)(t % taps) % l->kernel, l->in.width), w[t],
				in + (p / outs * ins + t / taps) * plane, out + p * plane);
	}
}

static void conv_backward(const struct tr_layer *l, const float *weight, uint32_t rows,
			  const float *in, const float *out_slope, float *weight_slope,
			  float *bias_slope, float *in_slope)
{
	size_t plane = (size_t)l->in.height * l->in.width, taps = (size_t)l->kernel * l->kernel;
	size_t ins = l->in.channels, outs = l->out.channels;

	for (size_t p = 0; p < rows * outs; p++) {
		size_t first = (p % outs) * ins * taps;

		for (size_t k = 0; k < plane; k++)
			bias_slope[p % outs] += out_slope[p * plane + k];
		for (size_t t = 0; t < ins * taps; t++) {
			size_t at = (p / outs * ins + t / taps) * plane;

			weight_slope[first + t] += conv_tap_backward(
				l, tap(l->kernel, (uint32_t)(t % taps) / l->kernel, l->in.height),
				tap(l->kernel, (uint32_t)(t % taps) % l->kernel, l->in.width),
				weight[first + t], in + at, out_slope + p * plane,
				in_slope == NULL ? NULL : in_slope + at);
		}
	}
}

/* Where the largest (the first of equals) of a pooling window lies in its plane. */
static size_t pool_winner(const struct tr_layer *l, const float *plane, uint32_t y, uint32_t x)
{
	size_t width = l->in.width, best = (size_t)y * l->kernel * width + (size_t)x * l->kernel;
	size_t first = best;

	for (uint32_t k = 1; k < l->kernel * l->kernel; k++) {
		size_t at = first + k / l->kernel * width + k % l->kernel;

		if (plane[at] > plane[best])
			best = at;
	}
	return best;
}

static void pool(const struct tr_layer *l, uint32_t rows, const float *in, float *out,
		 const float *out_slope, float *in_slope)
{
	size_t in_plane = (size_t)l->in.height * l->in.width, at = 0;

	for (size_t p = 0; p < (size_t)rows * l->in.channels; p++)
		for (uint32_t y = 0; y < l->out.height; y++)
			for (uint32_t x = 0; x < l->out.width; x++, at++) {
				size_t best = pool_winner(l, in + p * in_plane, y, x);

				if (out != NULL)
					out[at] = in[p * in_plane + best];
				else
					in_slope[p * in_plane + best] = out_slope[at];
			}
}

static const float *forward(struct tr_compute *c, uint32_t rows, const float *x)
{
	const float *in = x;

	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		const struct tr_layer *l = &c->model.layers[i];
		const float *weight = c->parameters + l->weight_offset;
		const float *bias = c->parameters + l->bias_offset;
		float *out = c->value[i + 1];

		switch (l->kind) {
		case TR_DENSE:
			dense_forward(l, weight, bias, rows, in, out);
			break;
		case TR_CONV:
			conv_forward(l, weight, bias, rows, in, out);
			break;
		case TR_RELU:
			for (size_t k = 0; k < rows * tr_shape_count(l->in); k++)
				out[k] = in[k] > 0.0f ? in[k] : 0.0f;
			break;
		case TR_MAXPOOL:
			pool(l, rows, in, out, NULL, NULL);
			break;
		}
		in = out;
	}
	return in;
}

static rubato_status backward(struct tr_compute *c, const float *x, const struct tr_ready *ready)
{
	uint32_t rows = c->batch;

	memset(c->gradient, 0, c->model.parameter_count * sizeof(float));
	for (uint32_t i = c->model.layer_count; i-- > 0;) {
		const struct tr_layer *l = &c->model.layers[i];
		const float *weight = c->parameters + l->weight_offset;
		float *weight_slope = c->gradient + l->weight_offset;
		float *bias_slope = c->gradient + l->bias_offset;
		const float *in = i == 0 ? x : c->value[i], *out_slope = c->slope[i + 1];
		float *in_slope = i == 0 ? NULL : c->slope[i];

		if (in_slope != NULL)
			memset(in_slope, 0, rows * tr_shape_count(l->in) * sizeof(float));
		switch (l->kind) {
		case TR_DENSE:
			dense_backward(l, weight, rows, in, out_slope, weight_slope, bias_slope,
				       in_slope);
			break;
		case TR_CONV:
			conv_backward(l, weight, rows, in, out_slope, weight_slope, bias_slope,
				      in_slope);
			break;
		case TR_RELU:
			for (size_t k = 0; k < rows * tr_shape_count(l->in); k++)
				in_slope[k] = in[k] > 0.0f ? out_slope[k] : 0.0f;
			break;
		case TR_MAXPOOL:
			pool(l, rows, in, NULL, out_slope, in_slope);
			break;
		}
		if (ready != NULL && l->weight_count > 0)
			TR_TRY(ready->call(ready->arg, l->weight_offset));
	}
	return RUBATO_OK;
}

static rubato_status plain_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				 const struct tr_ready *ready, struct tr_score *score,
				 struct tr_note *note)
{
	const float *outputs = forward(c, c->batch, x);

	(void)note; /* Loops do not fail. */
	tr_loss_score(&c->model, outputs, answers, c->batch, c->slope[c->model.layer_count], score);
	return backward(c, x, ready);
}

static rubato_status plain_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				    uint32_t rows, struct tr_score *score, struct tr_note *note)
{
	(void)note;
	tr_loss_score(&c->model, forward(c, rows, x), answers, rows, NULL, score);
	return RUBATO_OK;
}

static void plain_close(struct tr_compute *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i <= TR_LAYERS_MAX; i++) {
		free(c->value[i]);
		free(c->slope[i]);
	}
	free(c);
}

static rubato_status plain_open(struct tr_compute **out, const struct tr_compute_setup *setup,
				struct tr_note *note)
{
	struct tr_compute *c = calloc(1, sizeof(*c));
	size_t rows = setup->batch > TR_EVAL_ROWS ? setup->batch : TR_EVAL_ROWS;

	if (c == NULL)
		return tr_fail(note, RUBATO_ERR_MEMORY, "compute: out of memory");
	c->model = *setup->model;
	c->batch = setup->batch;
	c->parameters = setup->parameters;
	c->gradient = setup->gradient;
	for (uint32_t i = 1; i <= c->model.layer_count; i++) {
		size_t count = tr_shape_count(c->model.layers[i - 1].out);

		c->value[i] = calloc(rows * count, sizeof(float));
		c->slope[i] = calloc(setup->batch * count, sizeof(float));
		if (c->value[i] == NULL || c->slope[i] == NULL) {
			plain_close(c);
			return tr_fail(note, RUBATO_ERR_MEMORY,
				       "compute: out of memory for a batch of %u", setup->batch);
		}
	}
	*out = c;
	return RUBATO_OK;
}

const struct tr_compute_ops tr_compute_plain = {
	.name = "plain",
	.open = plain_open,
	.train = plain_train,
	.evaluate = plain_evaluate,
	.close = plain_close,
};
