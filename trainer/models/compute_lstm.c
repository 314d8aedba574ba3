/*
 * compute_lstm.c -- one layer of long short-term memory over lines of text, forward and backward
 * through time.
 *
 * Lines differ in length, and nothing is computed for padding: everything that belongs to a token
 * is stored packed, step after step (packing.h). What needs no order in time (outputs, weights'
 * gradients) is one product over all tokens.
 *
 *   table  = embedding input^T + bias      what each token adds to the gates: V rows, not N
 *   gates  = table[token] + h[t-1] recurrent^T;  i, f, o by the logistic function, g by tanh
 *   c[t]   = f c[t-1] + i g;  h[t] = o tanh(c[t]);  outputs = h output^T + bias
 */
#include <string.h>

#include "trainer/models/activations.h"
#include "trainer/models/compute.h"
#include "trainer/models/packing.h"

#define ROWS_LEAST 16 /* Tests take so many at a time even where batches are smaller. */

struct tr_compute {
	struct tr_model model;
	tr_product_call *product;
	uint32_t batch, capacity; /* Rows that there is room for. */
	size_t hidden, vocabulary;
	const float *parameters;
	float *gradient;
	size_t at[TR_LSTM_ARRAYS]; /* Where each array lies in the flat vectors. */
	/* The batch: */
	struct tr_packing packing;
	int32_t *in, *out;      /* Packed, as all of these. */
	float *gates;           /* [4H]; backward, their slopes. */
	float *cell, *squashed; /* [H]: c and tanh(c). */
	float *state, *before;  /* [H]: h, and h of the step before. */
	float *outputs, *slope; /* [V] */
	float *state_slope;     /* [H]: by the outputs. */
	/* Not packed: */
	float *table, *table_slope;    /* [V][4H] */
	float *back_state, *back_cell; /* [capacity][H]: slopes that come from the step after. */
	struct tr_rooms rooms;         /* Of all these. */
};

static const float *weight(const struct tr_compute *c, int array)
{
	return c->parameters + c->at[array];
}

static float *slope_of(struct tr_compute *c, int array)
{
	return c->gradient + c->at[array];
}

/* ---- Forward ---- */

/* One token: gates are sums and become values. */
static void cell_forward(size_t h, float *restrict gates, const float *cell_before,
			 float *restrict cell, float *restrict squashed, float *restrict state)
{
	float *i = gates, *f = gates + h, *g = gates + 2 * h, *o = gates + 3 * h;

	for (size_t k = 0; k < 2 * h; k++)
		gates[k] = tr_logistic(gates[k]);
	for (size_t k = 0; k < h; k++)
		g[k] = tr_tanh(g[k]);
	for (size_t k = 0; k < h; k++)
		o[k] = tr_logistic(o[k]);
	for (size_t k = 0; k < h; k++) {
		cell[k] = f[k] * (cell_before == NULL ? 0.0f : cell_before[k]) + i[k] * g[k];
		squashed[k] = tr_tanh(cell[k]);
		state[k] = o[k] * squashed[k];
	}
}

static rubato_status step_forward(struct tr_compute *c, uint32_t t, struct tr_error *error)
{
	size_t h = c->hidden, first = c->packing.first[t], count = c->packing.active[t];
	size_t previous = t == 0 ? 0 : c->packing.first[t - 1];

	for (size_t n = first; n < first + count; n++)
		memcpy(c->gates + n * 4 * h, c->table + (size_t)c->in[n] * 4 * h,
		       4 * h * sizeof(float));
	if (t > 0) {
		memcpy(c->before + first * h, c->state + previous * h, count * h * sizeof(float));
		TR_TRY(c->product(count, 4 * h, h, 1.0f, tr_plain(c->before + first * h, h),
				  tr_turned(weight(c, TR_LSTM_RECURRENT), h), 1.0f,
				  c->gates + first * 4 * h, 4 * h, error));
	}
	for (size_t j = 0; j < count; j++) {
		size_t n = first + j;

		cell_forward(h, c->gates + n * 4 * h, t == 0 ? NULL : c->cell + (previous + j) * h,
			     c->cell + n * h, c->squashed + n * h, c->state + n * h);
	}
	return RUBATO_OK;
}

/* *count: the tokens predicted. */
static rubato_status forward(struct tr_compute *c, const float *x, uint32_t rows, size_t *count,
			     struct tr_error *error)
{
	size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING;

	*count = tr_pack(&c->packing, &c->model.sequence, x, rows, c->in, c->out);
	TR_TRY(c->product(v, 4 * h, e, 1.0f, tr_plain(weight(c, TR_LSTM_TOKENS), e),
			  tr_turned(weight(c, TR_LSTM_INPUT), e), 0.0f, c->table, 4 * h, error));
	tr_rows_shift(c->table, v, 4 * h, weight(c, TR_LSTM_BIAS));
	for (uint32_t t = 0; t < c->packing.step_count; t++)
		TR_TRY(step_forward(c, t, error));
	TR_TRY(c->product(*count, v, h, 1.0f, tr_plain(c->state, h),
			  tr_turned(weight(c, TR_LSTM_OUTPUT), h), 0.0f, c->outputs, v, error));
	tr_rows_shift(c->outputs, *count, v, weight(c, TR_LSTM_OUTPUT_BIAS));
	return RUBATO_OK;
}

/* ---- Backward ---- */

/* One token: gates become the slopes of their sums. `back_state` is NULL at a row's last token. */
static void cell_backward(size_t h, float *gates, const float *cell_before, const float *squashed,
			  const float *state_slope, const float *back_state, float *back_cell)
{
	float *i = gates, *f = gates + h, *g = gates + 2 * h, *o = gates + 3 * h;

	for (size_t k = 0; k < h; k++) {
		float ds = state_slope[k] + (back_state == NULL ? 0.0f : back_state[k]);
		float dc = ds * o[k] * (1.0f - squashed[k] * squashed[k]) +
			   (back_state == NULL ? 0.0f : back_cell[k]);
		float before = cell_before == NULL ? 0.0f : cell_before[k];

		back_cell[k] = dc * f[k];
		o[k] = ds * squashed[k] * o[k] * (1.0f - o[k]);
		f[k] = dc * before * f[k] * (1.0f - f[k]);
		ds = dc * g[k] * i[k] * (1.0f - i[k]);
		g[k] = dc * i[k] * (1.0f - g[k] * g[k]);
		i[k] = ds;
	}
}

static rubato_status step_backward(struct tr_compute *c, uint32_t t, struct tr_error *error)
{
	size_t h = c->hidden, first = c->packing.first[t], count = c->packing.active[t];
	size_t previous = t == 0 ? 0 : c->packing.first[t - 1];
	size_t going_on = t + 1 < c->packing.step_count ? c->packing.active[t + 1] : 0;

	for (size_t j = 0; j < count; j++) {
		size_t n = first + j;

		cell_backward(h, c->gates + n * 4 * h, t == 0 ? NULL : c->cell + (previous + j) * h,
			      c->squashed + n * h, c->state_slope + n * h,
			      j < going_on ? c->back_state + j * h : NULL, c->back_cell + j * h);
	}
	if (t == 0)
		return RUBATO_OK;
	return c->product(count, h, 4 * h, 1.0f, tr_plain(c->gates + first * 4 * h, 4 * h),
			  tr_plain(weight(c, TR_LSTM_RECURRENT), h), 0.0f, c->back_state, h, error);
}

static rubato_status output_backward(struct tr_compute *c, size_t count, struct tr_error *error)
{
	size_t h = c->hidden, v = c->vocabulary;

	TR_TRY(c->product(v, h, count, 1.0f, tr_turned(c->slope, v), tr_plain(c->state, h), 0.0f,
			  slope_of(c, TR_LSTM_OUTPUT), h, error));
	tr_rows_sum(c->slope, count, v, slope_of(c, TR_LSTM_OUTPUT_BIAS));
	return c->product(count, h, v, 1.0f, tr_plain(c->slope, v),
			  tr_plain(weight(c, TR_LSTM_OUTPUT), h), 0.0f, c->state_slope, h, error);
}

static rubato_status weights_backward(struct tr_compute *c, size_t count, struct tr_error *error)
{
	size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING;
	size_t later = c->packing.first[1]; /* Tokens with one before. */

	if (count == later)
		memset(slope_of(c, TR_LSTM_RECURRENT), 0, 4 * h * h * sizeof(float));
	else
		TR_TRY(c->product(4 * h, h, count - later, 1.0f,
				  tr_turned(c->gates + later * 4 * h, 4 * h),
				  tr_plain(c->before + later * h, h), 0.0f,
				  slope_of(c, TR_LSTM_RECURRENT), h, error));
	memset(c->table_slope, 0, v * 4 * h * sizeof(float));
	for (size_t n = 0; n < count; n++) {
		float *to = c->table_slope + (size_t)c->in[n] * 4 * h;

		for (size_t k = 0; k < 4 * h; k++)
			to[k] += c->gates[n * 4 * h + k];
	}
	tr_rows_sum(c->table_slope, v, 4 * h, slope_of(c, TR_LSTM_BIAS));
	return c->product(4 * h, e, v, 1.0f, tr_turned(c->table_slope, 4 * h),
			  tr_plain(weight(c, TR_LSTM_TOKENS), e), 0.0f, slope_of(c, TR_LSTM_INPUT),
			  e, error);
}

static rubato_status lstm_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				const struct tr_ready *ready, struct tr_score *score,
				struct tr_error *error)
{
	size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING, count;

	(void)answers; /* They are in x. */
	TR_TRY(forward(c, x, c->batch, &count, error));
	tr_loss_score(&c->model, c->outputs, (struct tr_answers) { c->out, NULL }, (uint32_t)count,
		      c->slope, score);
	TR_TRY(output_backward(c, count, error));
	if (ready != NULL)
		TR_TRY(ready->call(ready->arg, c->at[TR_LSTM_OUTPUT]));
	for (uint32_t t = c->packing.step_count; t-- > 0;)
		TR_TRY(step_backward(c, t, error));
	TR_TRY(weights_backward(c, count, error));
	if (ready != NULL)
		TR_TRY(ready->call(ready->arg, c->at[TR_LSTM_INPUT]));
	TR_TRY(c->product(v, e, 4 * h, 1.0f, tr_plain(c->table_slope, 4 * h),
			  tr_plain(weight(c, TR_LSTM_INPUT), e), 0.0f, slope_of(c, TR_LSTM_TOKENS),
			  e, error));
	return ready == NULL ? RUBATO_OK : ready->call(ready->arg, 0);
}

static rubato_status lstm_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				   uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	(void)answers;
	for (uint32_t row = 0; row < rows; row += c->capacity) {
		uint32_t some = rows - row < c->capacity ? rows - row : c->capacity;
		size_t count;

		TR_TRY(forward(c, x + (size_t)row * c->model.feature_count, some, &count, error));
		tr_loss_score(&c->model, c->outputs, (struct tr_answers) { c->out, NULL },
			      (uint32_t)count, NULL, score);
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static void lstm_close(struct tr_compute *c)
{
	tr_rooms_free(&c->rooms);
}

static float *room(struct tr_compute *c, size_t rows, size_t columns)
{
	return tr_room(&c->rooms, rows, columns * sizeof(float));
}

static void make_room(struct tr_compute *c)
{
	size_t h = c->hidden, v = c->vocabulary, rows = c->capacity;
	size_t length = c->model.sequence.length, all = rows * length;

	(void)tr_packing_open(&c->packing, &c->rooms, c->capacity, c->model.sequence.length);
	c->in = tr_room(&c->rooms, all, sizeof(*c->in));
	c->out = tr_room(&c->rooms, all, sizeof(*c->out));
	c->gates = room(c, all, 4 * h);
	c->cell = room(c, all, h);
	c->squashed = room(c, all, h);
	c->state = room(c, all, h);
	c->before = room(c, all, h);
	c->outputs = room(c, all, v);
	c->slope = room(c, all, v);
	c->state_slope = room(c, all, h);
	c->table = room(c, v, 4 * h);
	c->table_slope = room(c, v, 4 * h);
	c->back_state = room(c, rows, h);
	c->back_cell = room(c, rows, h);
}

static rubato_status lstm_open(struct tr_compute *c, const struct tr_compute_ops *ops,
			       const struct tr_compute_setup *setup, struct tr_error *error)
{
	struct tr_array arrays[TR_ARRAYS_MAX];

	c->model = *setup->model;
	c->product = ops->product;
	c->batch = setup->batch;
	c->capacity = c->batch > ROWS_LEAST ? c->batch : ROWS_LEAST;
	c->hidden = c->model.sequence.hidden;
	c->vocabulary = c->model.sequence.vocabulary;
	c->parameters = setup->parameters;
	c->gradient = setup->gradient;
	tr_lstm_arrays(&c->model.sequence, arrays);
	for (int i = 0; i < TR_LSTM_ARRAYS; i++)
		c->at[i] = arrays[i].offset;
	make_room(c);
	if (c->rooms.lost)
		return tr_fail(error, RUBATO_ERR_MEMORY,
			       "compute: out of memory for a batch of %u lines of %u bytes",
			       setup->batch, setup->model->sequence.length);
	return RUBATO_OK;
}

const struct tr_compute_ops tr_compute_lstm_plain = {
	.name = "plain",
	.state_bytes = sizeof(struct tr_compute),
	.product = tr_product_plain,
	.open = lstm_open,
	.train = lstm_train,
	.evaluate = lstm_evaluate,
	.close = lstm_close,
};

#ifdef TR_HAVE_DNNL
const struct tr_compute_ops tr_compute_lstm_dnnl = {
	.name = "oneDNN",
	.state_bytes = sizeof(struct tr_compute),
	.product = tr_product_dnnl,
	.open = lstm_open,
	.train = lstm_train,
	.evaluate = lstm_evaluate,
	.close = lstm_close,
};
#endif
