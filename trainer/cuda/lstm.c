/*
 * lstm.c -- lstm on a CUDA device: what models/compute_lstm.c says, and packed as there. A step of
 * time is a product, of the states before and the recurrent weights, and a kernel, which adds what
 * the tokens bring, bends the gates and moves the cells; backward the same two in turn.
 */
#include "trainer/cuda/text.h"
#include "trainer/models/packing.h"

#define ROWS_LEAST 16 /* As on the host. */

struct tr_compute {
	struct tr_cuda_text text;
	struct tr_packing packing;
	struct tr_rooms rooms; /* Of it. */
	uint32_t batch, capacity;
	size_t hidden, vocabulary;
	/* Packed, on the device: */
	float *gates;           /* [4H]; backward, their slopes. */
	float *cell, *squashed; /* [H]: c and tanh(c). */
	float *state, *before;  /* [H]: h, and h of the step before. */
	float *outputs, *slope; /* [V] */
	float *state_slope;     /* [H]: by the outputs. */
	/* Not packed: */
	float *table, *table_slope;    /* [V][4H] */
	float *back_state, *back_cell; /* [capacity][H]: slopes that come from the step after. */
};

static const float *weight(const struct tr_compute *c, size_t array)
{
	return tr_cuda_text_weight(&c->text, array);
}

static float *slope_of(const struct tr_compute *c, size_t array)
{
	return tr_cuda_text_slope(&c->text, array);
}

static rubato_status shift(struct tr_compute *c, float *rows, size_t row_count, size_t count,
			   size_t bias)
{
	return TR_TEXT_LAUNCH(&c->text, bias, row_count * count, .to = rows,
			      .bias = weight(c, bias), .count = (uint32_t)(row_count * count),
			      .channels = (uint32_t)count, .plane = 1);
}

/* ---- Forward ---- */

static rubato_status step_forward(struct tr_compute *c, uint32_t t)
{
	const struct tr_packing *p = &c->packing;
	const size_t h = c->hidden, first = p->first[t], count = p->active[t];
	const size_t previous = t == 0 ? 0 : p->first[t - 1];
	const size_t going_on = t + 1 < p->step_count ? p->active[t + 1] : 0;

	if (t > 0)
		TR_TRY(tr_cuda_text_product(&c->text, 1, count, 4 * h, h, 1.0f,
					    tr_plain(c->state + previous * h, h),
					    tr_turned(weight(c, TR_LSTM_RECURRENT), h), 0.0f,
					    c->gates + first * 4 * h, 4 * h));
	return TR_TEXT_LAUNCH(
		&c->text, cell, count * h, .gates = c->gates + first * 4 * h,
		.cell = c->cell + first * h, .squashed = c->squashed + first * h,
		.state = c->state + first * h, .after = c->before + (first + count) * h,
		.table = c->table, .cell_before = t == 0 ? NULL : c->cell + previous * h,
		.in = c->text.device.in + first, .rows = (uint32_t)count,
		.going_on = (uint32_t)going_on, .hidden = (uint32_t)h, .recurrent = t > 0);
}

/* *count: the tokens predicted. */
static rubato_status forward(struct tr_compute *c, const float *x, uint32_t rows, uint32_t *count)
{
	struct tr_cuda_text *text = &c->text;
	const size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING;

	TR_TRY(tr_cuda_text_begin(text));
	*count = (uint32_t)tr_pack(&c->packing, &text->model.sequence, x, rows, text->host.in,
				   text->host.out);
	TR_TRY(tr_cuda_text_upload(text, *count));
	TR_TRY(tr_cuda_text_product(text, 1, v, 4 * h, e, 1.0f,
				    tr_plain(weight(c, TR_LSTM_TOKENS), e),
				    tr_turned(weight(c, TR_LSTM_INPUT), e), 0.0f, c->table, 4 * h));
	TR_TRY(shift(c, c->table, v, 4 * h, TR_LSTM_BIAS));
	for (uint32_t t = 0; t < c->packing.step_count; t++)
		TR_TRY(step_forward(c, t));
	TR_TRY(tr_cuda_text_product(text, 1, *count, v, h, 1.0f, tr_plain(c->state, h),
				    tr_turned(weight(c, TR_LSTM_OUTPUT), h), 0.0f, c->outputs, v));
	return shift(c, c->outputs, *count, v, TR_LSTM_OUTPUT_BIAS);
}

/* ---- Backward ---- */

static rubato_status step_backward(struct tr_compute *c, uint32_t t)
{
	const struct tr_packing *p = &c->packing;
	const size_t h = c->hidden, first = p->first[t], count = p->active[t];
	const size_t previous = t == 0 ? 0 : p->first[t - 1];
	const size_t going_on = t + 1 < p->step_count ? p->active[t + 1] : 0;

	TR_TRY(TR_TEXT_LAUNCH(
		&c->text, cell_back, count * h, .gates = c->gates + first * 4 * h,
		.back_cell = c->back_cell, .cell_before = t == 0 ? NULL : c->cell + previous * h,
		.squashed = c->squashed + first * h, .state_slope = c->state_slope + first * h,
		.back_state = c->back_state, .rows = (uint32_t)count,
		.going_on = (uint32_t)going_on, .hidden = (uint32_t)h));
	if (t == 0)
		return RUBATO_OK;
	return tr_cuda_text_product(
		&c->text, 1, count, h, 4 * h, 1.0f, tr_plain(c->gates + first * 4 * h, 4 * h),
		tr_plain(weight(c, TR_LSTM_RECURRENT), h), 0.0f, c->back_state, h);
}

static rubato_status output_backward(struct tr_compute *c, size_t count)
{
	const size_t h = c->hidden, v = c->vocabulary;

	TR_TRY(tr_cuda_text_product(&c->text, 1, v, h, count, 1.0f, tr_turned(c->slope, v),
				    tr_plain(c->state, h), 0.0f, slope_of(c, TR_LSTM_OUTPUT), h));
	TR_TRY(tr_cuda_text_columns(&c->text, c->slope, count, v,
				    slope_of(c, TR_LSTM_OUTPUT_BIAS)));
	return tr_cuda_text_product(&c->text, 1, count, h, v, 1.0f, tr_plain(c->slope, v),
				    tr_plain(weight(c, TR_LSTM_OUTPUT), h), 0.0f, c->state_slope,
				    h);
}

static rubato_status weights_backward(struct tr_compute *c, size_t count)
{
	const size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING;
	const size_t later = c->packing.first[1]; /* Tokens with one before. */
	float *recurrent = slope_of(c, TR_LSTM_RECURRENT);

	if (count == later)
		TR_TRY(tr_cuda_clear(c->text.cuda, recurrent, 4 * h * h * sizeof(float),
				     c->text.error));
	else
		TR_TRY(tr_cuda_text_product(&c->text, 1, 4 * h, h, count - later, 1.0f,
					    tr_turned(c->gates + later * 4 * h, 4 * h),
					    tr_plain(c->before + later * h, h), 0.0f, recurrent,
					    h));
	TR_TRY(tr_cuda_text_by_token(&c->text, c->gates, 4 * h, c->table_slope));
	TR_TRY(tr_cuda_text_columns(&c->text, c->table_slope, v, 4 * h, slope_of(c, TR_LSTM_BIAS)));
	return tr_cuda_text_product(
		&c->text, 1, 4 * h, e, v, 1.0f, tr_turned(c->table_slope, 4 * h),
		tr_plain(weight(c, TR_LSTM_TOKENS), e), 0.0f, slope_of(c, TR_LSTM_INPUT), e);
}

static rubato_status backward(struct tr_compute *c, size_t count, const struct tr_ready *ready)
{
	const size_t h = c->hidden, v = c->vocabulary, e = TR_LSTM_EMBEDDING;

	TR_TRY(output_backward(c, count));
	TR_TRY(tr_cuda_text_ready(&c->text, ready, TR_LSTM_OUTPUT));
	for (uint32_t t = c->packing.step_count; t-- > 0;)
		TR_TRY(step_backward(c, t));
	TR_TRY(weights_backward(c, count));
	TR_TRY(tr_cuda_text_ready(&c->text, ready, TR_LSTM_INPUT));
	TR_TRY(tr_cuda_text_product(&c->text, 1, v, e, 4 * h, 1.0f, tr_plain(c->table_slope, 4 * h),
				    tr_plain(weight(c, TR_LSTM_INPUT), e), 0.0f,
				    slope_of(c, TR_LSTM_TOKENS), e));
	return tr_cuda_text_ready(&c->text, ready, TR_LSTM_TOKENS);
}

static rubato_status lstm_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				const struct tr_ready *ready, struct tr_score *score,
				struct tr_error *error)
{
	uint32_t count;

	(void)answers; /* They are in x. */
	c->text.error = error;
	TR_TRY(forward(c, x, c->batch, &count));
	TR_TRY(tr_cuda_text_score(&c->text, c->outputs, c->slope, count));
	TR_TRY(backward(c, count, ready));
	return tr_cuda_text_scored(&c->text, count, score);
}

static rubato_status lstm_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				   uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	(void)answers;
	c->text.error = error;
	for (uint32_t row = 0; row < rows; row += c->capacity) {
		const uint32_t some = rows - row < c->capacity ? rows - row : c->capacity;
		uint32_t count;

		TR_TRY(forward(c, x + (size_t)row * c->text.model.feature_count, some, &count));
		TR_TRY(tr_cuda_text_score(&c->text, c->outputs, NULL, count));
		TR_TRY(tr_cuda_text_scored(&c->text, count, score));
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static void lstm_close(struct tr_compute *c)
{
	tr_cuda_text_close(&c->text);
	tr_rooms_free(&c->rooms);
}

static float *room(struct tr_compute *c, size_t rows, size_t columns)
{
	return tr_cuda_text_room(&c->text, rows, columns);
}

static void make_room(struct tr_compute *c)
{
	const size_t h = c->hidden, v = c->vocabulary, rows = c->capacity;
	const size_t all = rows * c->text.model.sequence.length;

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
	const struct tr_sequence *s = &setup->model->sequence;
	const size_t h = s->hidden, v = s->vocabulary;
	size_t all, most;

	(void)ops;
	c->batch = setup->batch;
	c->capacity = c->batch > ROWS_LEAST ? c->batch : ROWS_LEAST;
	c->hidden = h;
	c->vocabulary = v;
	c->text.cuda = setup->device;
	all = (size_t)c->capacity * s->length;
	most = 32 * all; /* Threads of a warp for each token, too. */
	most = 4 * h * all > most ? 4 * h * all : most;
	most = v * all > most ? v * all : most;
	most = v * 4 * h > most ? v * 4 * h : most;
	TR_TRY(tr_cuda_text_open(&c->text, setup, (uint32_t)all, v > 4 * h ? v : 4 * h, most,
				 error));
	make_room(c);
	TR_TRY(c->text.lost);
	return tr_packing_open(&c->packing, &c->rooms, c->capacity, s->length)
		       ? RUBATO_OK
		       : tr_fail(error, RUBATO_ERR_MEMORY, "--device cuda: out of memory");
}

const struct tr_compute_ops tr_compute_lstm_cuda = {
	.name = "CUDA",
	.state_bytes = sizeof(struct tr_compute),
	.open = lstm_open,
	.train = lstm_train,
	.evaluate = lstm_evaluate,
	.close = lstm_close,
};
