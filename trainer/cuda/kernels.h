/*
 * kernels.h -- what the trainer's kernels in kernels.cu are called with: for C, and for them.
 *
 * Kernel tr_NAME has one parameter, struct tr_cuda_NAME by value; all its numbers fit in 32 bits.
 * Any number of blocks of TR_CUDA_BLOCK threads does all of it. None uses shared memory, atomics or
 * another thread's results: equal inputs give equal bits. What each computes is what
 * compute_plain.c does in that layer, with its bits (but for zeros' signs), where it is not said
 * otherwise; arrays are [rows][channels][height][width], and planes are rows * channels.
 */
#ifndef TR_CUDA_KERNELS_H
#define TR_CUDA_KERNELS_H

#include <stdint.h>

#define TR_CUDA_KERNELS(X)                                                                         \
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
 * are ours, off by less than 2e-7 of the value; below 2^-125 they are 0. */
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
