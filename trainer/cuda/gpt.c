/*
 * gpt.c -- gpt on a CUDA device: what models/compute_gpt.c says. Products by cuBLAS, those of
 * attention for all heads of all rows at once; the rest by kernels of our own, each of which does
 * what stands between two products.
 *
 * So that heads lie one behind the other, queries, keys and values are taken apart when their bias
 * is added. What a part of a layer adds to the stream is added where that is normalised next.
 * Backward, one buffer, `flow`, is the slope of the stream.
 */
#include <math.h>

#include "trainer/cuda/text.h"

struct norm {
	const float *value; /* What it normalises: [N][D]. */
	float *out;
	float *mean, *inverse; /* [N] */
};

struct layer {
	struct norm norm1, norm2;
	float *qkv;       /* [3][rows][heads][length][size] */
	float *chances;   /* [rows][heads][length][length] */
	float *mixed;     /* [N][D] */
	float *up, *bent; /* [N][4D]: what GELU reads, without bias; and gives. */
};

struct tr_compute {
	struct tr_cuda_text text;
	uint32_t batch;
	size_t length, width, heads, layers, vocabulary;
	float *stream[TR_GPT_LAYERS_MAX + 1], *middle[TR_GPT_LAYERS_MAX]; /* [N][D] */
	struct layer layer[TR_GPT_LAYERS_MAX];
	struct norm norm;
	float *outputs, *slope; /* [N][V] */
	float *flow, *part;     /* [N][D] */
	float *wide;            /* [N][4D] */
	float *apart;           /* [3][N][D], by heads. */
	float *chances_slope;   /* As chances. */
};

static size_t array_of(size_t layer, int array)
{
	return TR_GPT_FIRST_LAYER + layer * TR_GPT_LAYER_ARRAYS + (size_t)array;
}

static const float *weight(const struct tr_compute *c, size_t array)
{
	return tr_cuda_text_weight(&c->text, array);
}

/* out[N][outs] = in[N][ins] weight[outs][ins]^T. */
static rubato_status dense_forward(struct tr_compute *c, size_t n, size_t ins, size_t outs,
				   const float *in, size_t array, float *out)
{
	return tr_cuda_text_product(&c->text, 1, n, outs, ins, 1.0f, tr_plain(in, ins),
				    tr_turned(weight(c, array), ins), 0.0f, out, outs);
}

static rubato_status dense_backward(struct tr_compute *c, size_t n, size_t ins, size_t outs,
				    const float *in, size_t array, const float *out_slope,
				    float *in_slope)
{
	TR_TRY(tr_cuda_text_product(&c->text, 1, outs, ins, n, 1.0f, tr_turned(out_slope, outs),
				    tr_plain(in, ins), 0.0f, tr_cuda_text_slope(&c->text, array),
				    ins));
	TR_TRY(tr_cuda_text_columns(&c->text, out_slope, n, outs,
				    tr_cuda_text_slope(&c->text, array + 1)));
	return tr_cuda_text_product(&c->text, 1, n, ins, outs, 1.0f, tr_plain(out_slope, outs),
				    tr_plain(weight(c, array), ins), 0.0f, in_slope, ins);
}

/* Of `value`, or of in + c->part + a bias, which becomes *value. Array `gain` is followed by its
 * shift. */
static rubato_status norm_forward(struct tr_compute *c, size_t n, size_t gain,
				  const struct norm *norm, float *sum, const float *in,
				  const float *bias)
{
	return TR_TEXT_LAUNCH(&c->text, norm, 32 * (uint64_t)n, .sum = sum, .out = norm->out,
			      .mean = norm->mean, .inverse = norm->inverse,
			      .in = sum != NULL ? in : norm->value, .part = c->part, .bias = bias,
			      .gain = weight(c, gain), .shift = weight(c, gain + 1),
			      .rows = (uint32_t)n, .count = (uint32_t)c->width);
}

/* From the slope in c->part at its output: adds to c->flow, or begins it. */
static rubato_status norm_backward(struct tr_compute *c, size_t n, size_t gain,
				   const struct norm *norm, bool add)
{
	TR_TRY(TR_TEXT_LAUNCH(&c->text, norm_back, 32 * (uint64_t)n, .flow = c->flow,
			      .value = norm->value, .mean = norm->mean, .inverse = norm->inverse,
			      .slope = c->part, .gain = weight(c, gain), .rows = (uint32_t)n,
			      .count = (uint32_t)c->width, .add = add));
	return tr_cuda_text_norm_columns(&c->text, c->part, norm->value, norm->mean, norm->inverse,
					 n, c->width, tr_cuda_text_slope(&c->text, gain));
}

/* ---- Attention ---- */

/* To heads that lie one behind the other, or from them. */
static rubato_status split(struct tr_compute *c, uint32_t rows, uint32_t parts, const float *from,
			   const float *bias, float *to)
{
	return TR_TEXT_LAUNCH(&c->text, split, rows * c->length * parts * c->width, .to = to,
			      .from = from, .bias = bias, .rows = rows,
			      .length = (uint32_t)c->length, .parts = parts,
			      .heads = (uint32_t)c->heads, .size = (uint32_t)(c->width / c->heads));
}

static rubato_status merge(struct tr_compute *c, uint32_t rows, uint32_t parts, const float *from,
			   float *to)
{
	return TR_TEXT_LAUNCH(&c->text, merge, rows * c->length * parts * c->width, .to = to,
			      .from = from, .rows = rows, .length = (uint32_t)c->length,
			      .parts = parts, .heads = (uint32_t)c->heads,
			      .size = (uint32_t)(c->width / c->heads));
}

/* From c->wide, queries, keys and values without bias, to l->mixed. */
static rubato_status attend_forward(struct tr_compute *c, struct layer *l, size_t number,
				    uint32_t rows)
{
	const size_t size = c->width / c->heads, t = c->length, all = rows * c->heads;
	const size_t part = rows * t * c->width;
	const float *q = l->qkv, *k = q + part, *v = k + part;

	TR_TRY(split(c, rows, 3, c->wide, weight(c, array_of(number, TR_GPT_QKV_BIAS)), l->qkv));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, t, size, 1.0f / sqrtf((float)size),
				    tr_plain(q, size), tr_turned(k, size), 0.0f, l->chances, t));
	TR_TRY(TR_TEXT_LAUNCH(&c->text, soften, 32 * (uint64_t)(all * t), .scores = l->chances,
			      .rows = (uint32_t)(all * t), .length = (uint32_t)t));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, size, t, 1.0f, tr_plain(l->chances, t),
				    tr_plain(v, size), 0.0f, c->apart, size));
	return merge(c, rows, 1, c->apart, l->mixed);
}

/* From the slope of `mixed`, in c->part, to that of queries, keys and values, in c->wide. */
static rubato_status attend_backward(struct tr_compute *c, const struct layer *l, uint32_t rows)
{
	const size_t size = c->width / c->heads, t = c->length, all = rows * c->heads;
	const size_t part = rows * t * c->width;
	const float scale = 1.0f / sqrtf((float)size);
	const float *q = l->qkv, *k = q + part, *v = k + part, *mixed = c->wide;
	float *slope = c->chances_slope;

	TR_TRY(split(c, rows, 1, c->part, NULL, c->wide));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, t, size, 1.0f, tr_plain(mixed, size),
				    tr_turned(v, size), 0.0f, slope, t));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, size, t, 1.0f, tr_turned(l->chances, t),
				    tr_plain(mixed, size), 0.0f, c->apart + 2 * part, size));
	TR_TRY(TR_TEXT_LAUNCH(&c->text, soften_back, 32 * (uint64_t)(all * t), .slope = slope,
			      .chances = l->chances, .rows = (uint32_t)(all * t),
			      .length = (uint32_t)t));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, size, t, scale, tr_plain(slope, t),
				    tr_plain(k, size), 0.0f, c->apart, size));
	TR_TRY(tr_cuda_text_product(&c->text, all, t, size, t, scale, tr_turned(slope, t),
				    tr_plain(q, size), 0.0f, c->apart + part, size));
	return merge(c, rows, 3, c->apart, c->wide);
}

/* ---- Forward ---- */

/* What the layer adds last is left in c->part. */
static rubato_status layer_forward(struct tr_compute *c, size_t number, uint32_t rows)
{
	struct layer *l = &c->layer[number];
	const size_t n = rows * c->length, d = c->width;

	TR_TRY(dense_forward(c, n, d, 3 * d, l->norm1.out, array_of(number, TR_GPT_QKV), c->wide));
	TR_TRY(attend_forward(c, l, number, rows));
	TR_TRY(dense_forward(c, n, d, d, l->mixed, array_of(number, TR_GPT_MIX), c->part));
	TR_TRY(norm_forward(c, n, array_of(number, TR_GPT_GAIN2), &l->norm2, c->middle[number],
			    c->stream[number], weight(c, array_of(number, TR_GPT_MIX_BIAS))));
	TR_TRY(dense_forward(c, n, d, 4 * d, l->norm2.out, array_of(number, TR_GPT_UP), l->up));
	TR_TRY(TR_TEXT_LAUNCH(&c->text, gelu, n * 4 * d, .to = l->bent, .from = l->up,
			      .bias = weight(c, array_of(number, TR_GPT_UP_BIAS)),
			      .rows = (uint32_t)n, .count = (uint32_t)(4 * d)));
	return dense_forward(c, n, 4 * d, d, l->bent, array_of(number, TR_GPT_DOWN), c->part);
}

static rubato_status forward(struct tr_compute *c, const float *x, uint32_t rows)
{
	struct tr_cuda_text *text = &c->text;
	const size_t n = rows * c->length, d = c->width, after = array_of(c->layers, 0);

	TR_TRY(tr_cuda_text_begin(text));
	for (size_t i = 0; i < n; i++) {
		const float *pair = x + i / c->length * text->model.feature_count + i % c->length;

		text->host.in[i] = (int32_t)pair[0];
		text->host.out[i] = (int32_t)pair[1];
	}
	TR_TRY(tr_cuda_text_upload(text, (uint32_t)n));
	TR_TRY(TR_TEXT_LAUNCH(
		text, embed, n * d, .to = c->stream[0], .tokens = weight(c, TR_GPT_TOKENS),
		.positions = weight(c, TR_GPT_POSITIONS), .in = text->device.in,
		.rows = (uint32_t)n, .length = (uint32_t)c->length, .count = (uint32_t)d));
	TR_TRY(norm_forward(c, n, array_of(0, TR_GPT_GAIN1), &c->layer[0].norm1, NULL, NULL, NULL));
	for (size_t l = 0; l < c->layers; l++) {
		const bool last = l + 1 == c->layers;

		TR_TRY(layer_forward(c, l, rows));
		TR_TRY(norm_forward(c, n, array_of(l + 1, last ? TR_GPT_GAIN : TR_GPT_GAIN1),
				    last ? &c->norm : &c->layer[l + 1].norm1, c->stream[l + 1],
				    c->middle[l], weight(c, array_of(l, TR_GPT_DOWN_BIAS))));
	}
	return dense_forward(c, n, d, c->vocabulary, c->norm.out, after + TR_GPT_OUTPUT,
			     c->outputs);
}

/* ---- Backward ---- */

static rubato_status layer_backward(struct tr_compute *c, size_t number, uint32_t rows,
				    const struct tr_ready *ready)
{
	const struct layer *l = &c->layer[number];
	const size_t n = rows * c->length, d = c->width;

	TR_TRY(dense_backward(c, n, 4 * d, d, l->bent, array_of(number, TR_GPT_DOWN), c->flow,
			      c->wide));
	TR_TRY(TR_TEXT_LAUNCH(&c->text, gelu_back, n * 4 * d, .slope = c->wide, .from = l->up,
			      .bias = weight(c, array_of(number, TR_GPT_UP_BIAS)),
			      .rows = (uint32_t)n, .count = (uint32_t)(4 * d)));
	TR_TRY(dense_backward(c, n, d, 4 * d, l->norm2.out, array_of(number, TR_GPT_UP), c->wide,
			      c->part));
	TR_TRY(norm_backward(c, n, array_of(number, TR_GPT_GAIN2), &l->norm2, true));
	TR_TRY(tr_cuda_text_ready(&c->text, ready, array_of(number, TR_GPT_GAIN2)));
	TR_TRY(dense_backward(c, n, d, d, l->mixed, array_of(number, TR_GPT_MIX), c->flow,
			      c->part));
	TR_TRY(attend_backward(c, l, rows));
	TR_TRY(dense_backward(c, n, d, 3 * d, l->norm1.out, array_of(number, TR_GPT_QKV), c->wide,
			      c->part));
	TR_TRY(norm_backward(c, n, array_of(number, TR_GPT_GAIN1), &l->norm1, true));
	return tr_cuda_text_ready(&c->text, ready, array_of(number, TR_GPT_GAIN1));
}

static rubato_status backward(struct tr_compute *c, const struct tr_ready *ready)
{
	struct tr_cuda_text *text = &c->text;
	const size_t n = c->batch * c->length, d = c->width, v = c->vocabulary;
	const size_t after = array_of(c->layers, 0);

	TR_TRY(tr_cuda_text_product(text, 1, v, d, n, 1.0f, tr_turned(c->slope, v),
				    tr_plain(c->norm.out, d), 0.0f,
				    tr_cuda_text_slope(text, after + TR_GPT_OUTPUT), d));
	TR_TRY(tr_cuda_text_ready(text, ready, after + TR_GPT_OUTPUT));
	TR_TRY(tr_cuda_text_product(text, 1, n, d, v, 1.0f, tr_plain(c->slope, v),
				    tr_plain(weight(c, after + TR_GPT_OUTPUT), d), 0.0f, c->part,
				    d));
	TR_TRY(norm_backward(c, n, after + TR_GPT_GAIN, &c->norm, false));
	for (size_t l = c->layers; l-- > 0;)
		TR_TRY(layer_backward(c, l, c->batch, ready));
	TR_TRY(tr_cuda_text_by_token(text, c->flow, d, tr_cuda_text_slope(text, TR_GPT_TOKENS)));
	TR_TRY(tr_cuda_text_columns(text, c->flow, c->batch, c->length * d,
				    tr_cuda_text_slope(text, TR_GPT_POSITIONS)));
	return tr_cuda_text_ready(text, ready, TR_GPT_TOKENS);
}

static rubato_status gpt_train(struct tr_compute *c, const float *x, struct tr_answers answers,
			       const struct tr_ready *ready, struct tr_score *score,
			       struct tr_error *error)
{
	const uint32_t tokens = (uint32_t)(c->batch * c->length);

	(void)answers; /* They are in x. */
	c->text.error = error;
	TR_TRY(forward(c, x, c->batch));
	TR_TRY(tr_cuda_text_score(&c->text, c->outputs, c->slope, tokens));
	TR_TRY(backward(c, ready));
	return tr_cuda_text_scored(&c->text, tokens, score);
}

static rubato_status gpt_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				  uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	(void)answers;
	c->text.error = error;
	for (uint32_t row = 0; row < rows; row += c->batch) {
		const uint32_t some = rows - row < c->batch ? rows - row : c->batch;
		const uint32_t tokens = (uint32_t)(some * c->length);

		TR_TRY(forward(c, x + (size_t)row * c->text.model.feature_count, some));
		TR_TRY(tr_cuda_text_score(&c->text, c->outputs, NULL, tokens));
		TR_TRY(tr_cuda_text_scored(&c->text, tokens, score));
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static void gpt_close(struct tr_compute *c)
{
	tr_cuda_text_close(&c->text);
}

static float *room(struct tr_compute *c, size_t rows, size_t columns)
{
	return tr_cuda_text_room(&c->text, rows, columns);
}

static struct norm room_for_norm(struct tr_compute *c, size_t n, const float *value)
{
	return (struct norm) { value, room(c, n, c->width), room(c, n, 1), room(c, n, 1) };
}

static void make_room(struct tr_compute *c)
{
	const size_t n = c->batch * c->length, d = c->width, v = c->vocabulary;

	for (size_t l = 0; l <= c->layers; l++)
		c->stream[l] = room(c, n, d);
	for (size_t l = 0; l < c->layers; l++) {
		c->middle[l] = room(c, n, d);
		c->layer[l] = (struct layer) { .norm1 = room_for_norm(c, n, c->stream[l]),
					       .norm2 = room_for_norm(c, n, c->middle[l]),
					       .qkv = room(c, n, 3 * d),
					       .chances = room(c, n * c->heads, c->length),
					       .mixed = room(c, n, d),
					       .up = room(c, n, 4 * d),
					       .bent = room(c, n, 4 * d) };
	}
	c->norm = room_for_norm(c, n, c->stream[c->layers]);
	c->outputs = room(c, n, v);
	c->slope = room(c, n, v);
	c->flow = room(c, n, d);
	c->part = room(c, n, d);
	c->wide = room(c, n, 4 * d);
	c->apart = room(c, n, 3 * d);
	c->chances_slope = room(c, n * c->heads, c->length);
}

static rubato_status gpt_open(struct tr_compute *c, const struct tr_compute_ops *ops,
			      const struct tr_compute_setup *setup, struct tr_error *error)
{
	const struct tr_sequence *s = &setup->model->sequence;
	const size_t n = (size_t)setup->batch * s->length, d = s->width;
	const size_t chances = n * s->heads * s->length;
	size_t most = 32 * n; /* Threads of a warp for each row, too. */

	(void)ops;
	most = 4 * d * n > most ? 4 * d * n : most;
	most = s->vocabulary * n > most ? s->vocabulary * n : most;
	most = chances > most ? chances : most;
	c->batch = setup->batch;
	c->length = s->length;
	c->width = s->width;
	c->heads = s->heads;
	c->layers = s->layers;
	c->vocabulary = s->vocabulary;
	c->text.cuda = setup->device;
	TR_TRY(tr_cuda_text_open(&c->text, setup, (uint32_t)n, 4 * d, most, error));
	make_room(c);
	return c->text.lost;
}

const struct tr_compute_ops tr_compute_gpt_cuda = {
	.name = "CUDA",
	.state_bytes = sizeof(struct tr_compute),
	.open = gpt_open,
	.train = gpt_train,
	.evaluate = gpt_evaluate,
	.close = gpt_close,
};
