/*
 * kernels.h -- what the trainer's kernels in kernels.cu are called with: for C, and for them.
 *
 * Kernel tr_NAME has one parameter, struct tr_cuda_NAME by value; all its numbers fit in 32 bits.
 * Any number of blocks of TR_CUDA_BLOCK threads does all of it. None uses shared memory, atomics or
 * the results of another warp: equal inputs give equal bits. What each computes is what
 * compute_plain.c does in that layer, with its bits (but for zeros' signs), where it is not said
 * otherwise; arrays are [rows][channels][height][width], and planes are rows * channels.
 */
#ifndef TR_CUDA_KERNELS_H
#define TR_CUDA_KERNELS_H

#include <stdint.h>

#define TR_CUDA_LONE_KERNELS(X)                                                                    \
	X(relu)                                                                                    \
	X(relu_back)                                                                               \
	X(bias)                                                                                    \
	X(pool)                                                                                    \
	X(pool_back)                                                                               \
	X(average)                                                                                 \
	X(average_back)                                                                            \
	X(add)                                                                                     \
	X(add_back)                                                                                \
	X(loss_labels)                                                                             \
	X(loss_targets)                                                                            \
	X(embed)                                                                                   \
	X(split)                                                                                   \
	X(merge)                                                                                   \
	X(gelu)                                                                                    \
	X(gelu_back)                                                                               \
	X(columns)                                                                                 \
	X(cell)                                                                                    \
	X(cell_back)                                                                               \
	X(gather)                                                                                  \
	X(vector_add)                                                                              \
	X(vector_subtract)                                                                         \
	X(vector_scale)                                                                            \
	X(vector_divide)                                                                           \
	X(vector_combine)                                                                          \
	X(vector_approach)                                                                         \
	X(vector_square)                                                                           \
	X(vector_fold)                                                                             \
	X(vector_sgd)                                                                              \
	X(vector_adam)
/* Their warps meet: blocks are of whole ones. */
#define TR_CUDA_WARP_KERNELS(X)                                                                    \
	X(norm)                                                                                    \
	X(norm_back)                                                                               \
	X(soften)                                                                                  \
	X(soften_back)                                                                             \
	X(loss_tokens)
#define TR_CUDA_KERNELS(X) TR_CUDA_LONE_KERNELS(X) TR_CUDA_WARP_KERNELS(X)

#define TR_CUDA_BLOCK 256u
#define TR_CUDA_BLOCKS_PER_MULTIPROCESSOR 32u

/* Backward, `add`: to the slopes that are there; 0: in their place. */

struct tr_cuda_relu {
	float *to;
	const float *from;
	uint32_t count, reserved;
};
struct tr_cuda_relu_back {
	float *to;
	const float *value, *slope; /* What the rectifier read; the slopes behind it. */
	uint32_t count, add;
};

struct tr_cuda_bias { /* Adds bias[channel] to every value. */
	float *to;
	const float *bias;
	uint32_t count, channels, plane, reserved;
};

struct tr_cuda_pool { /* Windows of kernel x kernel; what is left at the edges is not read. */
	float *to;
	const float *from;
	uint32_t planes, kernel, in_height, in_width, out_height, out_width;
};
struct tr_cuda_pool_back {
	float *to;
	const float *value, *slope;
	uint32_t planes, kernel, in_height, in_width, out_height, out_width;
	uint32_t add, reserved;
};

struct tr_cuda_average { /* Of each plane. */
	float *to;
	const float *from;
	uint32_t planes, plane;
};
struct tr_cuda_average_back {
	float *to;
	const float *slope;
	uint32_t planes, plane, add, reserved;
};

/* `early` has `wide` channels and pixels, of which every stride-th is taken. */
struct tr_cuda_add {
	float *to;
	const float *from, *early;
	uint32_t rows, stride;
	uint32_t wide_channels, wide_height, wide_width;
	uint32_t channels, height, width;
};
struct tr_cuda_add_back { /* The slopes of the early value. */
	float *to;
	const float *slope;
	uint32_t rows, stride;
	uint32_t wide_channels, wide_height, wide_width;
	uint32_t channels, height, width;
	uint32_t add, reserved;
};

/* The two losses of tr_loss_score(): slopes, and of each row what the host adds up. Exponentials
 * are those of activations.h. */
struct tr_cuda_row {
	double sum;       /* Of exp(o - greatest), or of the squares. */
	float gap;        /* o[label] - greatest. */
	uint32_t correct; /* 1, 0. */
};
struct tr_cuda_loss_labels {
	struct tr_cuda_row *rows;
	const float *outputs;
	const int32_t *labels;
	float *slope; /* NULL: not asked for. */
	uint32_t row_count, count;
	float scale;
	uint32_t reserved;
};
struct tr_cuda_loss_targets {
	struct tr_cuda_row *rows;
	const float *outputs, *targets;
	float *slope;
	uint32_t row_count, count;
	float scale;
	uint32_t reserved;
};

/*
 * Of models of text (compute_gpt.c, compute_lstm.c). A warp takes a row, a lane every 32nd value; a
 * sum over the row is that of the lanes' sums, those first that are 16 apart, then 8, 4, 2, 1.
 */
#define TR_CUDA_NORM_EPSILON 1e-5f

struct tr_cuda_embed { /* Row i: of token in[i], at place i % length. */
	float *to;
	const float *tokens, *positions;
	const int32_t *in;
	uint32_t rows, length, count, reserved;
};
/* From [rows][length][parts][heads][size] to [parts][rows][heads][length][size], and back. */
struct tr_cuda_split {
	float *to;
	const float *from, *bias; /* [parts][heads][size]; NULL: none. */
	uint32_t rows, length, parts, heads, size, reserved;
};
struct tr_cuda_merge {
	float *to;
	const float *from;
	uint32_t rows, length, parts, heads, size, reserved;
};
struct tr_cuda_gelu { /* Of from[rows][count] + bias. */
	float *to;
	const float *from, *bias;
	uint32_t rows, count;
};
struct tr_cuda_gelu_back { /* Slopes behind it become those before it. */
	float *slope;
	const float *from, *bias;
	uint32_t rows, count;
};
/* Sums over the rows of each chunk, to[chunks][count]; with `value`, which was normalised,
 * to[chunks][2][count]: of slopes times what normalisation gave, and of slopes. */
struct tr_cuda_columns {
	float *to;
	const float *from, *value, *mean, *inverse;
	uint32_t rows, count, chunks, reserved;
};
/* to[i] is the sum of rows from[order[j]], first[i] <= j < first[i + 1]; no order: of from[j]. */
struct tr_cuda_gather {
	float *to;
	const float *from;
	const int32_t *order, *first;
	uint32_t groups, count;
};

/* Normalises in, or with `sum` in + part + bias, which becomes *sum. */
struct tr_cuda_norm {
	float *sum, *out, *mean, *inverse; /* Mean and 1 / deviation: [rows]. */
	const float *in, *part, *bias, *gain, *shift;
	uint32_t rows, count;
};
struct tr_cuda_norm_back {
	float *flow;
	const float *value, *mean, *inverse, *slope, *gain;
	uint32_t rows, count, add, reserved;
};
/* Row i of each scores[length][length] becomes the softmax of its first i + 1, and then zeros. */
struct tr_cuda_soften {
	float *scores;
	uint32_t rows, length; /* Of all of them. */
};
struct tr_cuda_soften_back { /* Slopes of chances become those of scores. */
	float *slope;
	const float *chances;
	uint32_t rows, length;
};
/* Of lstm, a step of time: gates are sums, of `recurrent` ones and table[in], and become values. */
struct tr_cuda_cell {
	float *gates; /* [rows][4][hidden] */
	float *cell, *squashed, *state;
	float *after;                     /* The states of the first `going_on` rows. */
	const float *table, *cell_before; /* NULL: 0. */
	const int32_t *in;
	uint32_t rows, going_on, hidden, recurrent; /* 0: gates hold nothing. */
};
/* Gates become the slopes of their sums. Of the first `going_on` rows something comes back. */
struct tr_cuda_cell_back {
	float *gates, *back_cell;
	const float *cell_before, *squashed, *state_slope, *back_state;
	uint32_t rows, going_on, hidden, reserved;
};
struct tr_cuda_loss_tokens { /* As loss_labels, a warp a row. */
	struct tr_cuda_row *rows;
	const float *outputs;
	const int32_t *labels;
	float *slope;
	uint32_t row_count, count;
	float scale;
	uint32_t reserved;
};

/*
 * Of flat vectors: what trainer/base/vectors.h says of the operation of that name, with the host's
 * bits but for NaNs. A target may be an operand.
 */
struct tr_cuda_vector_add {
	float *to;
	const float *x;
	uint64_t count;
};
struct tr_cuda_vector_subtract {
	float *to;
	const float *x, *y;
	uint64_t count;
};
struct tr_cuda_vector_scale {
	float *to;
	uint64_t count;
	float factor;
	uint32_t reserved;
};
struct tr_cuda_vector_divide {
	float *to;
	const float *x;
	uint64_t count;
	float divisor;
	uint32_t reserved;
};
struct tr_cuda_vector_combine {
	float *to;
	const float *x, *y;
	uint64_t count;
	float a, b;
};
struct tr_cuda_vector_approach {
	float *to;
	const float *x;
	uint64_t count;
	float a;
	uint32_t reserved;
};

/* Squares in an order that no grid changes: sum[s] is of the elements s, s + sums, s + 2 sums, ...,
 * one after another; fold adds `width` neighbours, one after another. */
struct tr_cuda_vector_square {
	double *sum;
	const float *x, *y; /* y NULL: of x; else of x - y, rounded. */
	uint64_t count, sums;
};
struct tr_cuda_vector_fold {
	double *to;
	const double *from;
	uint64_t count, width;
};

struct tr_cuda_vector_sgd {
	float *parameters, *velocity; /* No velocity: no momentum. */
	const float *gradient;
	uint64_t count;
	float rate, momentum, weight_decay;
	uint32_t reserved;
};
struct tr_cuda_vector_adam {
	float *parameters, *first, *second;
	const float *gradient;
	uint64_t count;
	float rate, beta1, beta2, epsilon, coupled, decoupled, scale1, scale2;
};

#endif
