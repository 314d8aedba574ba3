/* text.c -- see text.h. */
#include "trainer/cuda/text.h"

#include <math.h>
#include <string.h>

#define CHUNKS_MOST 128u /* Of sums over rows. */

const float *tr_cuda_text_weight(const struct tr_cuda_text *t, size_t array)
{
	return t->parameters + t->at[array];
}

float *tr_cuda_text_slope(const struct tr_cuda_text *t, size_t array)
{
	return t->gradient + t->at[array];
}

rubato_status tr_cuda_text_ready(const struct tr_cuda_text *t, const struct tr_ready *ready,
				 size_t array)
{
	return ready == NULL ? RUBATO_OK : ready->call(ready->arg, t->at[array]);
}

/* ---- Memory ---- */

static uint32_t pieces_most(const struct tr_cuda_text *t)
{
	return t->capacity / TR_TEXT_PIECE + t->model.sequence.vocabulary;
}

/* All words lie one behind the other. */
static size_t lay_out(const struct tr_cuda_text *t, struct tr_cuda_text_words *words, int32_t *at)
{
	const size_t n = t->capacity;

	*words = (struct tr_cuda_text_words) { at, at + n, at + 2 * n, at + 3 * n,
					       at + 3 * n + pieces_most(t) + 1 };
	return 3 * n + pieces_most(t) + 1 + t->model.sequence.vocabulary + 1;
}

float *tr_cuda_text_room(struct tr_cuda_text *t, size_t rows, size_t columns)
{
	void **memory = &t->memories[t->memory_count];

	if (t->lost == RUBATO_OK)
		t->lost = tr_cuda_alloc(t->cuda, rows * columns * sizeof(float), memory, t->error);
	if (t->lost != RUBATO_OK)
		return NULL;
	t->memory_count++;
	return *memory;
}

rubato_status tr_cuda_text_open(struct tr_cuda_text *t, const struct tr_compute_setup *setup,
				uint32_t capacity, size_t widest, size_t most_values,
				struct tr_error *error)
{
	struct tr_array arrays[TR_ARRAYS_MAX];
	uint32_t count;
	void *memory;

	t->model = *setup->model;
	t->cuda = setup->device;
	t->parameters = setup->parameters;
	t->gradient = setup->gradient;
	t->capacity = capacity;
	t->error = error;
	if (most_values > INT32_MAX)
		return tr_refuse(error, "--device cuda: --batch %u is too large here",
				 setup->batch);
	count = t->model.kind == TR_LSTM ? tr_lstm_arrays(&t->model.sequence, arrays)
					 : tr_gpt_arrays(&t->model.sequence, arrays);
	for (uint32_t i = 0; i < count; i++)
		t->at[i] = arrays[i].offset;
	TR_TRY(tr_blas_open(&t->blas, t->cuda, setup->precision, error));
	t->words_bytes = lay_out(t, &t->host, NULL) * sizeof(int32_t);
	TR_TRY(tr_cuda_alloc_host(t->cuda, t->words_bytes, &memory, error));
	(void)lay_out(t, &t->host, memory);
	TR_TRY(tr_cuda_alloc_host(t->cuda, capacity * sizeof(*t->host_scores),
				  (void **)&t->host_scores, error));
	memory = tr_cuda_text_room(t, t->words_bytes / sizeof(int32_t), 1);
	(void)lay_out(t, &t->device, memory);
	t->scores = (void *)tr_cuda_text_room(t, capacity, sizeof(*t->scores) / sizeof(float));
	t->sums = tr_cuda_text_room(t, pieces_most(t) + 1, widest);
	TR_TRY(t->lost);
	TR_CUDA_TRY(&t->cuda->driver, error, cuEventCreate, &t->scored, CU_EVENT_DISABLE_TIMING);
	return RUBATO_OK;
}

void tr_cuda_text_close(struct tr_cuda_text *t)
{
	struct tr_error unheard;

	(void)tr_cuda_wait(t->cuda, &unheard); /* An error may have left something under way. */
	tr_blas_close(&t->blas);
	if (t->scored != NULL)
		(void)t->cuda->driver.p_cuEventDestroy(t->scored);
	tr_cuda_free_host(t->cuda, t->host.in);
	tr_cuda_free_host(t->cuda, t->host_scores);
	while (t->memory_count > 0)
		tr_cuda_free(t->cuda, t->memories[--t->memory_count]);
}

/* ---- Tokens and scores ---- */

rubato_status tr_cuda_text_begin(struct tr_cuda_text *t)
{
	if (t->in_use)
		TR_CUDA_TRY(&t->cuda->driver, t->error, cuEventSynchronize, t->scored);
	t->in_use = false;
	return RUBATO_OK;
}

/* Places of tokens by what these are, equal ones as they come. */
static void sort(struct tr_cuda_text *t, uint32_t count)
{
	const struct tr_cuda_text_words *w = &t->host;
	const uint32_t vocabulary = t->model.sequence.vocabulary;
	int32_t *next = w->which, place = 0;
	uint32_t piece = 0;

	memset(next, 0, (vocabulary + 1) * sizeof(*next));
	for (uint32_t i = 0; i < count; i++)
		next[w->in[i]]++;
	for (uint32_t v = 0; v < vocabulary; v++) { /* How many there are: where they begin. */
		const int32_t many = next[v];

		next[v] = place;
		place += many;
	}
	for (uint32_t i = 0; i < count; i++)
		w->order[next[w->in[i]]++] = (int32_t)i;
	place = 0;
	for (uint32_t v = 0; v < vocabulary; v++) { /* Where they end: which piece is first. */
		const int32_t end = next[v];

		w->which[v] = (int32_t)piece;
		for (; place < end; place += (int32_t)TR_TEXT_PIECE)
			w->first[piece++] = place;
		place = end;
	}
	w->which[vocabulary] = (int32_t)piece;
	w->first[piece] = (int32_t)count;
	t->pieces = piece;
}

rubato_status tr_cuda_text_upload(struct tr_cuda_text *t, uint32_t count)
{
	sort(t, count);
	t->in_use = true;
	return tr_cuda_copy(t->cuda, t->device.in, t->host.in, t->words_bytes, t->error);
}

rubato_status tr_cuda_text_score(struct tr_cuda_text *t, const float *outputs, float *slope,
				 uint32_t count)
{
	TR_TRY(TR_TEXT_LAUNCH(t, loss_tokens, 32 * (uint64_t)count, .rows = t->scores,
			      .outputs = outputs, .labels = t->device.out, .slope = slope,
			      .row_count = count, .count = t->model.output_count,
			      .scale = 1.0f / (float)count));
	TR_TRY(tr_cuda_copy(t->cuda, t->host_scores, t->scores, count * sizeof(*t->scores),
			    t->error));
	TR_CUDA_TRY(&t->cuda->driver, t->error, cuEventRecord, t->scored, t->cuda->stream);
	return RUBATO_OK;
}

rubato_status tr_cuda_text_scored(struct tr_cuda_text *t, uint32_t count, struct tr_score *score)
{
	TR_TRY(tr_cuda_text_begin(t));
	for (uint32_t i = 0; i < count; i++) {
		score->loss += log(t->host_scores[i].sum) - (double)t->host_scores[i].gap;
		score->correct += t->host_scores[i].correct;
	}
	score->rows += count;
	return RUBATO_OK;
}

/* ---- Arithmetic ---- */

rubato_status tr_cuda_text_product(struct tr_cuda_text *t, size_t batch, size_t m, size_t n,
				   size_t k, float scale, struct tr_factor a, struct tr_factor b,
				   float keep, float *c, size_t c_stride)
{
	return tr_blas_product(&t->blas, batch, m, n, k, scale, a, b, keep, c, c_stride, t->error);
}

/* Of pieces first where there are several; `width`: sums for each. */
static rubato_status columns(struct tr_cuda_text *t, struct tr_cuda_columns c, uint32_t width)
{
	struct tr_cuda_columns last = { .to = c.to, .from = t->sums, .count = width, .chunks = 1 };

	c.chunks = (c.rows + TR_TEXT_PIECE - 1) / TR_TEXT_PIECE;
	if (c.chunks > CHUNKS_MOST)
		c.chunks = CHUNKS_MOST;
	if (c.chunks > 1)
		c.to = t->sums;
	TR_TRY(tr_cuda_launch(t->cuda, TR_CUDA_columns, (uint64_t)c.chunks * c.count, &c,
			      t->error));
	last.rows = c.chunks;
	return c.chunks == 1 ? RUBATO_OK
			     : tr_cuda_launch(t->cuda, TR_CUDA_columns, width, &last, t->error);
}

rubato_status tr_cuda_text_columns(struct tr_cuda_text *t, const float *from, size_t rows,
				   size_t count, float *to)
{
	const struct tr_cuda_columns c = {
		.to = to, .from = from, .rows = (uint32_t)rows, .count = (uint32_t)count
	};

	return columns(t, c, c.count);
}

rubato_status tr_cuda_text_norm_columns(struct tr_cuda_text *t, const float *slope,
					const float *value, const float *mean, const float *inverse,
					size_t rows, size_t count, float *to)
{
	const struct tr_cuda_columns c = { .to = to,
					   .from = slope,
					   .value = value,
					   .mean = mean,
					   .inverse = inverse,
					   .rows = (uint32_t)rows,
					   .count = (uint32_t)count };

	return columns(t, c, 2 * c.count);
}

rubato_status tr_cuda_text_by_token(struct tr_cuda_text *t, const float *from, size_t count,
				    float *to)
{
	const uint32_t vocabulary = t->model.sequence.vocabulary;

	TR_TRY(TR_TEXT_LAUNCH(t, gather, t->pieces * (uint64_t)count, .to = t->sums, .from = from,
			      .order = t->device.order, .first = t->device.first,
			      .groups = t->pieces, .count = (uint32_t)count));
	return TR_TEXT_LAUNCH(t, gather, vocabulary * (uint64_t)count, .to = to, .from = t->sums,
			      .first = t->device.which, .groups = vocabulary,
			      .count = (uint32_t)count);
}
