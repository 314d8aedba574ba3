/*
 * text.h -- what models of text have in common on a CUDA device: their tokens and scores, products
 * of matrices, sums of rows.
 *
 * A step brings its tokens in one copy from pinned memory, enqueues all that it computes, and waits
 * once, for the scores. Sums are cut into pieces that depend on shapes and tokens alone, and need
 * no atomics: equal inputs give equal bits.
 */
#ifndef TR_CUDA_TEXT_H
#define TR_CUDA_TEXT_H

#include "trainer/cuda/libraries.h"
#include "trainer/models/compute.h"

#define TR_TEXT_MEMORIES_MAX 256 /* gpt of 12 layers has 190. */
#define TR_TEXT_PIECE 32u        /* Rows that one thread adds up. */

struct tr_cuda_text {
	struct tr_model model;
	struct tr_cuda *cuda;
	struct tr_blas blas;
	const float *parameters;
	float *gradient;
	size_t at[TR_ARRAYS_MAX]; /* Where each array lies in the flat vectors. */
	uint32_t capacity;        /* Tokens that there is room for. */
	/* Of the step, in pinned memory and on the device: [capacity]; `order`: tokens by what they
	 * are, cut into pieces; first[piece]; which[vocabulary + 1]: the first piece of each. */
	struct tr_cuda_text_words {
		int32_t *in, *out, *order, *first, *which;
	} host, device;
	size_t words_bytes;
	uint32_t pieces;
	float *sums; /* Of pieces. */
	struct tr_cuda_row *scores, *host_scores;
	CUevent scored; /* host_scores have come, and host words were read. */
	bool in_use;    /* Until then. */
	void *memories[TR_TEXT_MEMORIES_MAX];
	uint32_t memory_count;
	rubato_status lost;     /* Memory that there was not. */
	struct tr_error *error; /* Of the call that is under way. */
};

#define TR_TEXT_LAUNCH(text, kernel, threads, ...)                                                 \
	tr_cuda_launch((text)->cuda, TR_CUDA_##kernel, (threads),                                  \
		       &(const struct tr_cuda_##kernel) { __VA_ARGS__ }, (text)->error)

/* `widest`: rows that are added up; most_values: of the largest array. Errors: those of
 * tr_blas_open; ARGUMENT: an array is too large. */
rubato_status tr_cuda_text_open(struct tr_cuda_text *text, const struct tr_compute_setup *setup,
				uint32_t capacity, size_t widest, size_t most_values,
				struct tr_error *error);
void tr_cuda_text_close(struct tr_cuda_text *text);
/* [rows][columns] on the device; NULL: there is none, as text->lost says from then on. */
float *tr_cuda_text_room(struct tr_cuda_text *text, size_t rows, size_t columns);

/* Host words are free to be written; the first `count` of in and out are the step's. */
rubato_status tr_cuda_text_begin(struct tr_cuda_text *text);
rubato_status tr_cuda_text_upload(struct tr_cuda_text *text, uint32_t count);
/* The loss of outputs[count][vocabulary]; with `slope`, its slope, too. */
rubato_status tr_cuda_text_score(struct tr_cuda_text *text, const float *outputs, float *slope,
				 uint32_t count);
rubato_status tr_cuda_text_scored(struct tr_cuda_text *text, uint32_t count,
				  struct tr_score *score);

const float *tr_cuda_text_weight(const struct tr_cuda_text *text, size_t array);
float *tr_cuda_text_slope(const struct tr_cuda_text *text, size_t array);
rubato_status tr_cuda_text_product(struct tr_cuda_text *text, size_t batch, size_t m, size_t n,
				   size_t k, float scale, struct tr_factor a, struct tr_factor b,
				   float keep, float *c, size_t c_stride);
/* to[count]: the sum of from[rows][count]. */
rubato_status tr_cuda_text_columns(struct tr_cuda_text *text, const float *from, size_t rows,
				   size_t count, float *to);
/* to[2][count]: slopes of gain and shift of what normalised `value`. */
rubato_status tr_cuda_text_norm_columns(struct tr_cuda_text *text, const float *slope,
					const float *value, const float *mean, const float *inverse,
					size_t rows, size_t count, float *to);
/* to[vocabulary][count]: of each token the sum of its rows of from[tokens][count]. */
rubato_status tr_cuda_text_by_token(struct tr_cuda_text *text, const float *from, size_t count,
				    float *to);
rubato_status tr_cuda_text_ready(const struct tr_cuda_text *text, const struct tr_ready *ready,
				 size_t array);

#endif
