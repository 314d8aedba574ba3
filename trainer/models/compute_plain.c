/*
 * compute_plain.c -- the layers as plain loops: the twin that fast backends are compared with, and
 * the host backend of a build without oneDNN.
 *
 * Layer l reads value[l] and writes value[l + 1]; backward it reads slope[l + 1] (and value[l]) and
 * adds to slope[l]: a value that a shortcut reads too has two slopes. Arrays are
 * [rows][channels][height][width].
 *
 * Nothing here depends on the precision: tests/trainer/test_gradient.c compiles it for doubles.
 */
#include <math.h>
#include <string.h>

#include "trainer/models/compute.h"

struct tr_compute {
	struct tr_model model;
	uint32_t batch;
	const float *parameters;
	float *gradient, *statistics;
	float *moments;                  /* [statistics_count]: of the last batch. */
	float *value[TR_LAYERS_MAX + 1]; /* [0] is unused: the caller's rows. */
	float *slope[TR_LAYERS_MAX + 1]; /* [0] is unused: nobody asks. */
	struct tr_rooms rooms;           /* Of all these. */
};

static void dense_forward(const struct tr_layer *l, const float *weight, const float *bias,
			  uint32_t rows, const float *in, float *out)
{
	size_t ins = tr_shape_count(l->in), outs = l->out.channels;

	for (size_t row = 0; row < rows; row++)
		for (size_t o = 0; o < outs; o++) {
			float sum = bias == NULL ? 0.0f : bias[o];
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

			if (bias_slope != NULL)
				bias_slope[o] += s;
			for (size_t i = 0; i < ins; i++)
				weight_slope[o * ins + i] += s * in[row * ins + i];
			for (size_t i = 0; in_slope != NULL && i < ins; i++)
				in_slope[row * ins + i] += s * weight[o * ins + i];
		}
}

/* The outputs from..to-1 of a row or column that tap k of the kernel serves: output i reads input
 * stride * i + shift. */
struct reach {
	int32_t stride, shift;
	int32_t from, to;
};

static struct reach tap(const struct tr_layer *l, uint32_t k, uint32_t in, uint32_t out)
{
	int32_t stride = (int32_t)l->stride, shift = (int32_t)k - (int32_t)(l->kernel / 2);
	int32_t to = ((int32_t)in - shift + stride - 1) / stride;

	return (struct reach) { stride, shift, shift < 0 ? (stride - 1 - shift) / stride : 0,
				to < (int32_t)out ? to : (int32_t)out };
}

static struct reach tap_row(const struct tr_layer *l, size_t t)
{
	return tap(l, (uint32_t)t / l->kernel % l->kernel, l->in.height, l->out.height);
}

static struct reach tap_column(const struct tr_layer *l, size_t t)
{
	return tap(l, (uint32_t)t % l->kernel, l->in.width, l->out.width);
}

/* One weight over one plane: out[y][x] += weight * in[y'][x']; or, for slopes, its transposes. */
static void conv_tap_forward(const struct tr_layer *l, struct reach ry, struct reach rx,
			     float weight, const float *in, float *out)
{
	int32_t in_width = (int32_t)l->in.width, width = (int32_t)l->out.width;

	for (int32_t y = ry.from; y < ry.to; y++)
		for (int32_t x = rx.from; x < rx.to; x++)
			out[y * width + x] += weight * in[(y * ry.stride + ry.shift) * in_width +
							  x * rx.stride + rx.shift];
}

static float conv_tap_backward(const struct tr_layer *l, struct reach ry, struct reach rx,
			       float weight, const float *in, const float *out_slope,
			       float *in_slope)
{
	int32_t in_width = (int32_t)l->in.width, width = (int32_t)l->out.width;
	float sum = 0.0f;

	for (int32_t y = ry.from; y < ry.to; y++)
		for (int32_t x = rx.from; x < rx.to; x++) {
			float s = out_slope[y * width + x];
			int32_t at =
				(y * ry.stride + ry.shift) * in_width + x * rx.stride + rx.shift;

			sum += s * in[at];
			if (in_slope != NULL)
				in_slope[at] += s * weight;
		}
	return sum;
}

static void conv_forward(const struct tr_layer *l, const float *weight, const float *bias,
			 uint32_t rows, const float *in, float *out)
{
	size_t in_plane = (size_t)l->in.height * l->in.width;
	size_t plane = (size_t)l->out.height * l->out.width;
	size_t taps = (size_t)l->kernel * l->kernel;
	size_t ins = l->in.channels, outs = l->out.channels;

	for (size_t p = 0; p < rows * outs; p++) { /* One output plane: a row and a channel. */
		const float *w = weight + (p % outs) * ins * taps;

		for (size_t k = 0; k < plane; k++)
			out[p * plane + k] = bias == NULL ? 0.0f : bias[p % outs];
		for (size_t t = 0; t < ins * taps; t++)
			conv_tap_forward(l, tap_row(l, t), tap_column(l, t), w[t],
					 in + (p / outs * ins + t / taps) * in_plane,
					 out + p * plane);
	}
}

static void conv_backward(const struct tr_layer *l, const float *weight, uint32_t rows,
			  const float *in, const float *out_slope, float *weight_slope,
			  float *bias_slope, float *in_slope)
{
	size_t in_plane = (size_t)l->in.height * l->in.width;
	size_t plane = (size_t)l->out.height * l->out.width;
	size_t taps = (size_t)l->kernel * l->kernel;
	size_t ins = l->in.channels, outs = l->out.channels;

	for (size_t p = 0; p < rows * outs; p++) {
		size_t first = (p % outs) * ins * taps;

		for (size_t k = 0; bias_slope != NULL && k < plane; k++)
			bias_slope[p % outs] += out_slope[p * plane + k];
		for (size_t t = 0; t < ins * taps; t++) {
			size_t at = (p / outs * ins + t / taps) * in_plane;

			weight_slope[first + t] += conv_tap_backward(
				l, tap_row(l, t), tap_column(l, t), weight[first + t], in + at,
				out_slope + p * plane, in_slope == NULL ? NULL : in_slope + at);
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
					in_slope[p * in_plane + best] += out_slope[at];
			}
}

/* The mean of the whole plane. */
static void average(const struct tr_layer *l, uint32_t rows, const float *in, float *out)
{
	size_t plane = (size_t)l->in.height * l->in.width;

	for (size_t p = 0; p < (size_t)rows * l->in.channels; p++) {
		float sum = 0.0f;

		for (size_t k = 0; k < plane; k++)
			sum += in[p * plane + k];
		out[p] = sum / (float)plane;
	}
}

static void average_backward(const struct tr_layer *l, uint32_t rows, const float *out_slope,
			     float *in_slope)
{
	size_t plane = (size_t)l->in.height * l->in.width;

	for (size_t p = 0; p < (size_t)rows * l->in.channels; p++)
		for (size_t k = 0; k < plane; k++)
			in_slope[p * plane + k] += out_slope[p] / (float)plane;
}

/* Of a channel k: the j-th of its rows * plane values. */
static size_t norm_place(const struct tr_layer *l, size_t k, size_t j)
{
	size_t plane = (size_t)l->in.height * l->in.width;

	return (j / plane * l->in.channels + k) * plane + j % plane;
}

/* Mean and variance of each channel over the batch. */
static void norm_measure(const struct tr_layer *l, uint32_t rows, const float *in, float *mean,
			 float *variance)
{
	size_t count = (size_t)rows * l->in.height * l->in.width;

	for (size_t k = 0; k < l->in.channels; k++) {
		double sum = 0.0, square = 0.0;

		for (size_t j = 0; j < count; j++)
			sum += (double)in[norm_place(l, k, j)];
		sum /= (double)count;
		for (size_t j = 0; j < count; j++) {
			double d = (double)in[norm_place(l, k, j)] - sum;

			square += d * d;
		}
		mean[k] = (float)sum;
		variance[k] = (float)(square / (double)count);
	}
}

static float norm_inverse(float variance)
{
	return (float)(1.0 / sqrt((double)variance + TR_NORM_EPSILON));
}

static void norm_forward(const struct tr_layer *l, const float *scale, const float *shift,
			 const float *moments, uint32_t rows, const float *in, float *out)
{
	size_t count = (size_t)rows * l->in.height * l->in.width, channels = l->in.channels;

	for (size_t k = 0; k < channels; k++) {
		float factor = scale[k] * norm_inverse(moments[channels + k]);

		for (size_t j = 0; j < count; j++) {
			size_t at = norm_place(l, k, j);

			out[at] = factor * (in[at] - moments[k]) + shift[k];
		}
	}
}

/* With n values x, u = (x - mean) / sqrt(variance + epsilon), y = scale u + shift:
 * dx = scale / sqrt(variance + epsilon) (dy - mean(dy) - u mean(u dy)). */
static void norm_backward(const struct tr_layer *l, const float *scale, const float *moments,
			  uint32_t rows, const float *in, const float *out_slope,
			  float *scale_slope, float *shift_slope, float *in_slope)
{
	size_t count = (size_t)rows * l->in.height * l->in.width, channels = l->in.channels;

	for (size_t k = 0; k < channels; k++) {
		float inverse = norm_inverse(moments[channels + k]);
		double sum = 0.0, product = 0.0;

		for (size_t j = 0; j < count; j++) {
			size_t at = norm_place(l, k, j);

			sum += (double)out_slope[at];
			product += (double)(out_slope[at] * ((in[at] - moments[k]) * inverse));
		}
		scale_slope[k] += (float)product;
		shift_slope[k] += (float)sum;
		sum /= (double)count;
		product /= (double)count;
		for (size_t j = 0; j < count; j++) {
			size_t at = norm_place(l, k, j);
			float u = (in[at] - moments[k]) * inverse;

			in_slope[at] += scale[k] * inverse *
					(out_slope[at] - (float)sum - u * (float)product);
		}
	}
}

/* to[p] += from[p'] at the places of a shortcut; backward the two swap: `wide` is the larger. */
static void shortcut(const struct tr_layer *l, struct tr_shape wide, uint32_t rows,
		     const float *from, float *to, bool backward)
{
	for (size_t row = 0; row < rows; row++)
		for (size_t k = 0; k < wide.channels; k++)
			for (size_t y = 0; y < l->out.height; y++)
				for (size_t x = 0; x < l->out.width; x++) {
					size_t a = ((row * wide.channels + k) * wide.height +
						    y * l->stride) *
							   wide.width +
						   x * l->stride;
					size_t b = ((row * l->out.channels + k) * l->out.height +
						    y) * l->out.width +
						   x;

					if (backward)
						to[a] += from[b];
					else
						to[b] += from[a];
				}
}

/* `training`: normalisations measure the batch, and the running statistics follow. */
static void norm_layer(struct tr_compute *c, const struct tr_layer *l, uint32_t rows, bool training,
		       const float *in, float *out)
{
	float *moments = (training ? c->moments : c->statistics) + l->statistics_offset;

	if (training) {
		norm_measure(l, rows, in, moments, moments + l->in.channels);
		tr_statistics_follow(l, c->statistics, moments, moments + l->in.channels,
				     (uint64_t)rows * l->in.height * l->in.width);
	}
	norm_forward(l, c->parameters + l->weight_offset, c->parameters + l->bias_offset, moments,
		     rows, in, out);
}

static const float *forward(struct tr_compute *c, uint32_t rows, bool training, const float *x)
{
	const float *in = x;

	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		const struct tr_layer *l = &c->model.layers[i];
		const float *weight = c->parameters + l->weight_offset;
		const float *bias = l->bias_count == 0 ? NULL : c->parameters + l->bias_offset;
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
		case TR_AVGPOOL:
			average(l, rows, in, out);
			break;
		case TR_NORM:
			norm_layer(c, l, rows, training, in, out);
			break;
		case TR_ADD:
			memcpy(out, in, rows * tr_shape_count(l->in) * sizeof(float));
			shortcut(l, c->model.layers[l->from].in, rows, c->value[l->from], out,
				 false);
			break;
		}
		in = out;
	}
	return in;
}

static void layer_backward(struct tr_compute *c, uint32_t i, const float *in)
{
	const struct tr_layer *l = &c->model.layers[i];
	const float *weight = c->parameters + l->weight_offset;
	float *weight_slope = c->gradient + l->weight_offset;
	float *bias_slope = l->bias_count == 0 ? NULL : c->gradient + l->bias_offset;
	const float *out_slope = c->slope[i + 1];
	float *in_slope = c->slope[i]; /* NULL for the first layer. */
	size_t count = c->batch * tr_shape_count(l->in);

	switch (l->kind) {
	case TR_DENSE:
		dense_backward(l, weight, c->batch, in, out_slope, weight_slope, bias_slope,
			       in_slope);
		break;
	case TR_CONV:
		conv_backward(l, weight, c->batch, in, out_slope, weight_slope, bias_slope,
			      in_slope);
		break;
	case TR_RELU:
		for (size_t k = 0; k < count; k++)
			in_slope[k] += in[k] > 0.0f ? out_slope[k] : 0.0f;
		break;
	case TR_MAXPOOL:
		pool(l, c->batch, in, NULL, out_slope, in_slope);
		break;
	case TR_AVGPOOL:
		average_backward(l, c->batch, out_slope, in_slope);
		break;
	case TR_NORM:
		norm_backward(l, weight, c->moments + l->statistics_offset, c->batch, in, out_slope,
			      weight_slope, bias_slope, in_slope);
		break;
	case TR_ADD:
		for (size_t k = 0; k < count; k++)
			in_slope[k] += out_slope[k];
		shortcut(l, c->model.layers[l->from].in, c->batch, out_slope, c->slope[l->from],
			 true);
		break;
	}
}

static rubato_status backward(struct tr_compute *c, const float *x, const struct tr_ready *ready)
{
	memset(c->gradient, 0, c->model.parameter_count * sizeof(float));
	for (uint32_t i = 1; i < c->model.layer_count; i++)
		memset(c->slope[i], 0,
		       c->batch * tr_shape_count(c->model.layers[i].in) * sizeof(float));
	for (uint32_t i = c->model.layer_count; i-- > 0;) {
		const struct tr_layer *l = &c->model.layers[i];

		layer_backward(c, i, i == 0 ? x : c->value[i]);
		if (ready != NULL && l->weight_count > 0)
			TR_TRY(ready->call(ready->arg, l->weight_offset));
	}
	return RUBATO_OK;
}

static rubato_status plain_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				 const struct tr_ready *ready, struct tr_score *score,
				 struct tr_error *error)
{
	const float *outputs = forward(c, c->batch, true, x);

	(void)error; /* Loops do not fail. */
	tr_loss_score(&c->model, outputs, answers, c->batch, c->slope[c->model.layer_count], score);
	return backward(c, x, ready);
}

static rubato_status plain_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				    uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	(void)error;
	tr_loss_score(&c->model, forward(c, rows, false, x), answers, rows, NULL, score);
	return RUBATO_OK;
}

static void plain_close(struct tr_compute *c)
{
	tr_rooms_free(&c->rooms);
}

static rubato_status plain_open(struct tr_compute *c, const struct tr_compute_ops *ops,
				const struct tr_compute_setup *setup, struct tr_error *error)
{
	size_t rows = setup->batch > TR_EVAL_ROWS ? setup->batch : TR_EVAL_ROWS;

	(void)ops;
	c->model = *setup->model;
	c->batch = setup->batch;
	c->parameters = setup->parameters;
	c->gradient = setup->gradient;
	c->statistics = setup->statistics;
	c->moments = tr_room(&c->rooms, c->model.statistics_count + 1, sizeof(float));
	for (uint32_t i = 1; i <= c->model.layer_count; i++) {
		size_t count = tr_shape_count(c->model.layers[i - 1].out);

		c->value[i] = tr_room(&c->rooms, rows * count, sizeof(float));
		c->slope[i] = tr_room(&c->rooms, setup->batch * count, sizeof(float));
	}
	if (c->rooms.lost)
		return tr_fail(error, RUBATO_ERR_MEMORY, "compute: out of memory for a batch of %u",
			       setup->batch);
	return RUBATO_OK;
}

const struct tr_compute_ops tr_compute_plain = {
	.name = "plain",
	.state_bytes = sizeof(struct tr_compute),
	.open = plain_open,
	.train = plain_train,
	.evaluate = plain_evaluate,
	.close = plain_close,
};
