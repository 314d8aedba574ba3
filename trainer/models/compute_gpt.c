/*
 * compute_gpt.c -- a small decoder-only transformer (GPT-2's form: learned positions, normalisation
 * before each part of a layer, GELU by tanh; the output layer shares nothing and has no bias).
 *
 * All rows have `length` tokens. With N = rows * length, D = width, one layer is
 *
 *   a = norm1(in);  q, k, v = a qkv^T + bias
 *   heads: p = softmax(q k^T / sqrt(D / heads)), the future masked; mixed = p v
 *   middle = in + mixed mix^T + bias
 *   b = norm2(middle);  out = middle + gelu(b up^T + bias) down^T + bias
 *
 * and all that its backward pass needs is kept. `stream[l]` is the input of layer l; backward one
 * buffer, `flow`, is the slope of the stream, and each part of a layer adds to it.
 */
#include <math.h>
#include <string.h>

#include "trainer/models/activations.h"
#include "trainer/models/compute.h"

#define NORM_EPSILON 1e-5f

struct norm { /* Of N tokens: what normalisation gave, before gain and shift; and after. */
	float *even, *out;
	float *inverse; /* [N]: 1 / standard deviation. */
};

struct layer {
	struct norm norm1, norm2;
	float *qkv;          /* [N][3D] */
	float *chances;      /* [rows][heads][length][length] */
	float *mixed;        /* [N][D] */
	float *middle;       /* [N][D] */
	float *bent, *bends; /* [N][4D]: gelu, and its slope. */
};

struct tr_compute {
	struct tr_model model;
	tr_product_call *product;
	uint32_t batch;
	size_t length, width, heads, layers, vocabulary;
	const float *parameters;
	float *gradient;
	size_t at[TR_ARRAYS_MAX];
	int32_t *in, *out; /* [N] */
	float *stream[TR_GPT_LAYERS_MAX + 1];
	struct layer layer[TR_GPT_LAYERS_MAX];
	struct norm norm;
	float *outputs, *slope;        /* [N][V] */
	float *flow, *part;            /* [N][D] */
	float *qkv_slope, *bent_slope; /* [N][3D], [N][4D] */
	float *chances_slope;          /* [length][length] */
	struct tr_rooms rooms;         /* Of all these. */
};

static size_t array_of(size_t layer, int array)
{
	return TR_GPT_FIRST_LAYER + layer * TR_GPT_LAYER_ARRAYS + (size_t)array;
}

static const float *weight(const struct tr_compute *c, size_t array)
{
	return c->parameters + c->at[array];
}

static float *slope_of(struct tr_compute *c, size_t array)
{
	return c->gradient + c->at[array];
}

/* out[N][outs] = in[N][ins] weight[outs][ins]^T, plus what is there times `keep`, plus bias. */
static rubato_status dense_forward(struct tr_compute *c, size_t n, size_t ins, size_t outs,
				   const float *in, size_t array, float keep, float *out,
				   struct tr_error *error)
{
	TR_TRY(c->product(n, outs, ins, 1.0f, tr_plain(in, ins), tr_turned(weight(c, array), ins),
			  keep, out, outs, error));
	tr_rows_shift(out, n, outs, weight(c, array + 1));
	return RUBATO_OK;
}

static rubato_status dense_backward(struct tr_compute *c, size_t n, size_t ins, size_t outs,
				    const float *in, size_t array, const float *out_slope,
				    float *in_slope, struct tr_error *error)
{
	TR_TRY(c->product(outs, ins, n, 1.0f, tr_turned(out_slope, outs), tr_plain(in, ins), 0.0f,
			  slope_of(c, array), ins, error));
	tr_rows_sum(out_slope, n, outs, slope_of(c, array + 1));
	return c->product(n, ins, outs, 1.0f, tr_plain(out_slope, outs),
			  tr_plain(weight(c, array), ins), 0.0f, in_slope, ins, error);
}

/* ---- Normalisation: array `gain` is followed by its shift ---- */

static void norm_forward(const struct tr_compute *c, size_t n, const float *in, size_t gain,
			 const struct norm *norm)
{
	size_t d = c->width;
	const float *g = weight(c, gain), *shift = weight(c, gain + 1);

	for (size_t i = 0; i < n; i++) {
		const float *x = in + i * d;
		float *even = norm->even + i * d, *out = norm->out + i * d;
		float mean = 0.0f, square = 0.0f, inverse;

		for (size_t k = 0; k < d; k++)
			mean += x[k];
		mean /= (float)d;
		for (size_t k = 0; k < d; k++)
			square += (x[k] - mean) * (x[k] - mean);
		inverse = 1.0f / sqrtf(square / (float)d + NORM_EPSILON);
		for (size_t k = 0; k < d; k++) {
			even[k] = (x[k] - mean) * inverse;
			out[k] = even[k] * g[k] + shift[k];
		}
		norm->inverse[i] = inverse;
	}
}

/* Adds to `flow` the slope at the input, where `out_slope` is that at the output. */
static void norm_backward(struct tr_compute *c, size_t n, size_t gain, const struct norm *norm,
			  const float *out_slope, float *flow)
{
	size_t d = c->width;
	const float *g = weight(c, gain);
	float *g_slope = slope_of(c, gain), *shift_slope = slope_of(c, gain + 1);

	memset(g_slope, 0, d * sizeof(float));
	memset(shift_slope, 0, d * sizeof(float));
	for (size_t i = 0; i < n; i++) {
		const float *even = norm->even + i * d, *s = out_slope + i * d;
		float mean = 0.0f, along = 0.0f;

		for (size_t k = 0; k < d; k++) {
			g_slope[k] += s[k] * even[k];
			shift_slope[k] += s[k];
			mean += s[k] * g[k];
			along += s[k] * g[k] * even[k];
		}
		mean /= (float)d;
		along /= (float)d;
		for (size_t k = 0; k < d; k++)
			flow[i * d + k] +=
				norm->inverse[i] * (s[k] * g[k] - mean - even[k] * along);
	}
}

/* ---- Attention ---- */

/* Row i of scores[length][length] becomes the softmax of its first i + 1 places. */
static void soften(size_t length, float *scores)
{
	for (size_t i = 0; i < length; i++) {
		float *row = scores + i * length, best = row[0], sum = 0.0f;

		for (size_t j = 1; j <= i; j++)
			best = row[j] > best ? row[j] : best;
		for (size_t j = 0; j <= i; j++) {
			row[j] = expf(row[j] - best);
			sum += row[j];
		}
		for (size_t j = 0; j <= i; j++)
			row[j] /= sum;
		memset(row + i + 1, 0, (length - i - 1) * sizeof(float));
	}
}

static rubato_status attend_forward(struct tr_compute *c, struct layer *l, uint32_t rows,
				    struct tr_error *error)
{
	size_t d = c->width, size = d / c->heads, t = c->length;
	float scale = 1.0f / sqrtf((float)size);

	for (size_t i = 0; i < rows * c->heads; i++) {
		size_t row = i / c->heads, head = i % c->heads;
		const float *q = l->qkv + row * t * 3 * d + head * size;
		float *chances = l->chances + i * t * t;

		TR_TRY(c->product(t, t, size, scale, tr_plain(q, 3 * d), tr_turned(q + d, 3 * d),
				  0.0f, chances, t, error));
		soften(t, chances);
		TR_TRY(c->product(t, size, t, 1.0f, tr_plain(chances, t),
				  tr_plain(q + 2 * d, 3 * d), 0.0f,
				  l->mixed + row * t * d + head * size, d, error));
	}
	return RUBATO_OK;
}

/* Slopes of chances become slopes of scores: p (s - sum of p s). */
static void soften_backward(size_t length, const float *chances, float *slope)
{
	for (size_t i = 0; i < length; i++) {
		const float *p = chances + i * length;
		float *s = slope + i * length, along = 0.0f;

		for (size_t j = 0; j <= i; j++)
			along += p[j] * s[j];
		for (size_t j = 0; j <= i; j++)
			s[j] = p[j] * (s[j] - along);
		memset(s + i + 1, 0, (length - i - 1) * sizeof(float));
	}
}

/* From the slope of `mixed`, in c->part, to that of q, k and v, in c->qkv_slope. */
static rubato_status attend_backward(struct tr_compute *c, const struct layer *l, uint32_t rows,
				     struct tr_error *error)
{
	size_t d = c->width, size = d / c->heads, t = c->length;
	float scale = 1.0f / sqrtf((float)size), *slope = c->chances_slope;

	for (size_t i = 0; i < rows * c->heads; i++) {
		size_t row = i / c->heads, head = i % c->heads;
		const float *q = l->qkv + row * t * 3 * d + head * size;
		const float *chances = l->chances + i * t * t;
		const float *mixed = c->part + row * t * d + head * size;
		float *q_slope = c->qkv_slope + row * t * 3 * d + head * size;

		TR_TRY(c->product(t, t, size, 1.0f, tr_plain(mixed, d), tr_turned(q + 2 * d, 3 * d),
				  0.0f, slope, t, error));
		TR_TRY(c->product(t, size, t, 1.0f, tr_turned(chances, t), tr_plain(mixed, d), 0.0f,
				  q_slope + 2 * d, 3 * d, error));
		soften_backward(t, chances, slope);
		TR_TRY(c->product(t, size, t, scale, tr_plain(slope, t), tr_plain(q + d, 3 * d),
				  0.0f, q_slope, 3 * d, error));
		TR_TRY(c->product(t, size, t, scale, tr_turned(slope, t), tr_plain(q, 3 * d), 0.0f,
				  q_slope + d, 3 * d, error));
	}
	return RUBATO_OK;
}

/* ---- Forward ---- */

/* `bends` holds x, and then the slope there. */
static void gelu(size_t count, float *restrict bends, float *restrict bent)
{
	for (size_t k = 0; k < count; k++) {
		float x = bends[k];

		bent[k] = tr_gelu(x);
		bends[k] = tr_gelu_slope(x);
	}
}

static rubato_status layer_forward(struct tr_compute *c, size_t number, uint32_t rows,
				   struct tr_error *error)
{
	struct layer *l = &c->layer[number];
	size_t n = rows * c->length, d = c->width;
	const float *in = c->stream[number];
	float *out = c->stream[number + 1];

	norm_forward(c, n, in, array_of(number, TR_GPT_GAIN1), &l->norm1);
	TR_TRY(dense_forward(c, n, d, 3 * d, l->norm1.out, array_of(number, TR_GPT_QKV), 0.0f,
			     l->qkv, error));
	TR_TRY(attend_forward(c, l, rows, error));
	memcpy(l->middle, in, n * d * sizeof(float));
	TR_TRY(dense_forward(c, n, d, d, l->mixed, array_of(number, TR_GPT_MIX), 1.0f, l->middle,
			     error));
	norm_forward(c, n, l->middle, array_of(number, TR_GPT_GAIN2), &l->norm2);
	TR_TRY(dense_forward(c, n, d, 4 * d, l->norm2.out, array_of(number, TR_GPT_UP), 0.0f,
			     l->bends, error));
	gelu(n * 4 * d, l->bends, l->bent);
	memcpy(out, l->middle, n * d * sizeof(float));
	return dense_forward(c, n, 4 * d, d, l->bent, array_of(number, TR_GPT_DOWN), 1.0f, out,
			     error);
}

static rubato_status forward(struct tr_compute *c, const float *x, uint32_t rows,
			     struct tr_error *error)
{
	size_t n = rows * c->length, d = c->width, after = array_of(c->layers, 0);
	const float *tokens = weight(c, TR_GPT_TOKENS), *positions = weight(c, TR_GPT_POSITIONS);

	for (size_t i = 0; i < n; i++) {
		size_t at = i % c->length;
		const float *pair = x + i / c->length * c->model.feature_count + at;
		const float *token = tokens + (size_t)pair[0] * d, *position = positions + at * d;
		float *to = c->stream[0] + i * d;

		c->in[i] = (int32_t)pair[0];
		c->out[i] = (int32_t)pair[1];
		for (size_t k = 0; k < d; k++)
			to[k] = token[k] + position[k];
	}
	for (size_t l = 0; l < c->layers; l++)
		TR_TRY(layer_forward(c, l, rows, error));
	norm_forward(c, n, c->stream[c->layers], after + TR_GPT_GAIN, &c->norm);
	return c->product(n, c->vocabulary, d, 1.0f, tr_plain(c->norm.out, d),
			  tr_turned(weight(c, after + TR_GPT_OUTPUT), d), 0.0f, c->outputs,
			  c->vocabulary, error);
}

/* ---- Backward ---- */

static rubato_status report_ready(const struct tr_compute *c, const struct tr_ready *ready,
				  size_t array)
{
	return ready == NULL ? RUBATO_OK : ready->call(ready->arg, c->at[array]);
}

static rubato_status layer_backward(struct tr_compute *c, size_t number, uint32_t rows,
				    const struct tr_ready *ready, struct tr_error *error)
{
	const struct layer *l = &c->layer[number];
	size_t n = rows * c->length, d = c->width;

	TR_TRY(dense_backward(c, n, 4 * d, d, l->bent, array_of(number, TR_GPT_DOWN), c->flow,
			      c->bent_slope, error));
	for (size_t k = 0; k < n * 4 * d; k++)
		c->bent_slope[k] *= l->bends[k];
	TR_TRY(dense_backward(c, n, d, 4 * d, l->norm2.out, array_of(number, TR_GPT_UP),
			      c->bent_slope, c->part, error));
	norm_backward(c, n, array_of(number, TR_GPT_GAIN2), &l->norm2, c->part, c->flow);
	TR_TRY(report_ready(c, ready, array_of(number, TR_GPT_GAIN2)));
	TR_TRY(dense_backward(c, n, d, d, l->mixed, array_of(number, TR_GPT_MIX), c->flow, c->part,
			      error));
	TR_TRY(attend_backward(c, l, rows, error));
	TR_TRY(dense_backward(c, n, d, 3 * d, l->norm1.out, array_of(number, TR_GPT_QKV),
			      c->qkv_slope, c->part, error));
	norm_backward(c, n, array_of(number, TR_GPT_GAIN1), &l->norm1, c->part, c->flow);
	return report_ready(c, ready, array_of(number, TR_GPT_GAIN1));
}

static void embedding_backward(struct tr_compute *c, size_t n)
{
	size_t d = c->width;
	float *tokens = slope_of(c, TR_GPT_TOKENS), *positions = slope_of(c, TR_GPT_POSITIONS);

	memset(tokens, 0, c->vocabulary * d * sizeof(float));
	memset(positions, 0, c->length * d * sizeof(float));
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < d; k++) {
			tokens[(size_t)c->in[i] * d + k] += c->flow[i * d + k];
			positions[i % c->length * d + k] += c->flow[i * d + k];
		}
}

static rubato_status backward(struct tr_compute *c, const struct tr_ready *ready,
			      struct tr_error *error)
{
	size_t n = c->batch * c->length, d = c->width, v = c->vocabulary;
	size_t after = array_of(c->layers, 0);

	TR_TRY(c->product(v, d, n, 1.0f, tr_turned(c->slope, v), tr_plain(c->norm.out, d), 0.0f,
			  slope_of(c, after + TR_GPT_OUTPUT), d, error));
	TR_TRY(report_ready(c, ready, after + TR_GPT_OUTPUT));
	TR_TRY(c->product(n, d, v, 1.0f, tr_plain(c->slope, v),
			  tr_plain(weight(c, after + TR_GPT_OUTPUT), d), 0.0f, c->part, d, error));
	memset(c->flow, 0, n * d * sizeof(float));
	norm_backward(c, n, after + TR_GPT_GAIN, &c->norm, c->part, c->flow);
	for (size_t l = c->layers; l-- > 0;)
		TR_TRY(layer_backward(c, l, c->batch, ready, error));
	embedding_backward(c, n);
	return report_ready(c, ready, TR_GPT_TOKENS);
}

static rubato_status gpt_train(struct tr_compute *c, const float *x, struct tr_answers answers,
			       const struct tr_ready *ready, struct tr_score *score,
			       struct tr_error *error)
{
	(void)answers; /* They are in x. */
	TR_TRY(forward(c, x, c->batch, error));
	tr_loss_score(&c->model, c->outputs, (struct tr_answers) { c->out, NULL },
		      (uint32_t)(c->batch * c->length), c->slope, score);
	return backward(c, ready, error);
}

static rubato_status gpt_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				  uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	(void)answers;
	for (uint32_t row = 0; row < rows; row += c->batch) {
		uint32_t some = rows - row < c->batch ? rows - row : c->batch;

		TR_TRY(forward(c, x + (size_t)row * c->model.feature_count, some, error));
		tr_loss_score(&c->model, c->outputs, (struct tr_answers) { c->out, NULL },
			      (uint32_t)(some * c->length), NULL, score);
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static void gpt_close(struct tr_compute *c)
{
	tr_rooms_free(&c->rooms);
}

static float *room(struct tr_compute *c, size_t rows, size_t columns)
{
	return tr_room(&c->rooms, rows, columns * sizeof(float));
}

static struct norm room_for_norm(struct tr_compute *c, size_t n)
{
	return (struct norm) { room(c, n, c->width), room(c, n, c->width), room(c, n, 1) };
}

static void make_room(struct tr_compute *c)
{
	size_t n = c->batch * c->length, d = c->width, v = c->vocabulary;

	for (size_t l = 0; l < c->layers; l++)
		c->layer[l] = (struct layer) { .norm1 = room_for_norm(c, n),
					       .norm2 = room_for_norm(c, n),
					       .qkv = room(c, n, 3 * d),
					       .chances = room(c, n * c->heads, c->length),
					       .mixed = room(c, n, d),
					       .middle = room(c, n, d),
					       .bent = room(c, n, 4 * d),
					       .bends = room(c, n, 4 * d) };
	for (size_t l = 0; l <= c->layers; l++)
		c->stream[l] = room(c, n, d);
	c->in = tr_room(&c->rooms, n, sizeof(*c->in));
	c->out = tr_room(&c->rooms, n, sizeof(*c->out));
	c->norm = room_for_norm(c, n);
	c->outputs = room(c, n, v);
	c->slope = room(c, n, v);
	c->flow = room(c, n, d);
	c->part = room(c, n, d);
	c->qkv_slope = room(c, n, 3 * d);
	c->bent_slope = room(c, n, 4 * d);
	c->chances_slope = room(c, c->length, c->length);
}

static rubato_status gpt_open(struct tr_compute *c, const struct tr_compute_ops *ops,
			      const struct tr_compute_setup *setup, struct tr_error *error)
{
	const struct tr_sequence *s = &setup->model->sequence;
	struct tr_array arrays[TR_ARRAYS_MAX];

	c->model = *setup->model;
	c->product = ops->product;
	c->batch = setup->batch;
	c->length = s->length;
	c->width = s->width;
	c->heads = s->heads;
	c->layers = s->layers;
	c->vocabulary = s->vocabulary;
	c->parameters = setup->parameters;
	c->gradient = setup->gradient;
	for (uint32_t i = 0, count = tr_gpt_arrays(s, arrays); i < count; i++)
		c->at[i] = arrays[i].offset;
	make_room(c);
	if (c->rooms.lost)
		return tr_fail(error, RUBATO_ERR_MEMORY,
			       "compute: out of memory for a batch of %u blocks of %u bytes",
			       setup->batch, s->length);
	return RUBATO_OK;
}

const struct tr_compute_ops tr_compute_gpt_plain = {
	.name = "plain",
	.state_bytes = sizeof(struct tr_compute),
	.product = tr_product_plain,
	.open = gpt_open,
	.train = gpt_train,
	.evaluate = gpt_evaluate,
	.close = gpt_close,
};

#ifdef TR_HAVE_DNNL
const struct tr_compute_ops tr_compute_gpt_dnnl = {
	.name = "oneDNN",
	.state_bytes = sizeof(struct tr_compute),
	.product = tr_product_dnnl,
	.open = gpt_open,
	.train = gpt_train,
	.evaluate = gpt_evaluate,
	.close = gpt_close,
};
#endif
