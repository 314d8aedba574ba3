/*
 * kernels.h -- what the kernels in kernels.cu are called with: for C, and for them.
 *
 * A kernel has one parameter, one of these structs, by value. Its name ends with the element type,
 * as collectives/reduce/scalar.h calls it: rb_reduce_f32, rb_reduce_many_bf16. Any number of blocks
 * of RB_CUDA_BLOCK threads (one dimension) does all of it; rb_cuda_grid says how many are good. No
 * kernel uses shared memory, or waits for another block or, but for rb_gate, for the host.
 */
#ifndef RB_CUDA_KERNELS_H
#define RB_CUDA_KERNELS_H

#include <stdint.h>

/*
 * rb_reduce_*: what rb_reduce_plain (collectives/reduce/reduce.h) computes, bit by bit. `to` may be
 * equal to any of from[], but not overlap otherwise; nothing need be aligned. Fast is what is
 * aligned to its elements, fastest where all addresses are the same modulo 16. One operand is only
 * divided: copies are no kernel's.
 */
#define RB_CUDA_OPERANDS 8
struct rb_cuda_reduce {
	void *to;
	uint64_t count;       /* Elements. */
	uint32_t from_count;  /* 2 and more; or 1, with RUBATO_AVG and final_count > 1. */
	uint32_t op;          /* A rubato_operator. */
	uint32_t final_count; /* 0, or what RUBATO_AVG divides the sum by. */
	uint32_t reserved;    /* 0. */
	const void *from[RB_CUDA_OPERANDS];
};

/* rb_reduce_many_*: the same; as many as 4,096 bytes of parameters hold. */
#define RB_CUDA_OPERANDS_MANY 496
struct rb_cuda_reduce_many {
	void *to;
	uint64_t count;
	uint32_t from_count, op, final_count, reserved;
	const void *from[RB_CUDA_OPERANDS_MANY];
};

/* rb_widen_*, rb_narrow_* (f16, bf16): what rb_convert_plain computes. No overlap. */
struct rb_cuda_convert {
	void *to;
	const void *from;
	uint64_t count;
};

/*
 * rb_encode_*, rb_decode_*, rb_reduce_coded_* (bf16, int8): what rb_coders_plain computes
 * (collectives/reduce/coded.h). Those of int8 take a warp for each unit: blocks are whole warps.
 */
struct rb_cuda_coded {
	void *to;
	float *residual;      /* NULL: none. */
	uint64_t count;       /* Encode and decode: floats; reduce: units. */
	uint32_t from_count;  /* 1, but for reduce. */
	uint32_t final_count; /* 0, or what divides the sum. */
	const void *from[RB_CUDA_OPERANDS];
};

/* rb_reduce_coded_many_*: the same, of more. */
struct rb_cuda_coded_many {
	void *to;
	float *residual;
	uint64_t count;
	uint32_t from_count, final_count;
	const void *from[RB_CUDA_OPERANDS_MANY];
};

/*
 * rb_sgd, rb_adam: an update of `count` parameters, by the equations of trainer/rules/optimizer.h.
 * NaNs need not have its bits.
 */
struct rb_cuda_sgd {
	float *parameters, *velocity; /* No velocity: no momentum. */
	const float *gradient;
	uint64_t count;
	float rate, momentum, weight_decay;
	uint32_t reserved; /* 0. */
};
struct rb_cuda_adam {
	float *parameters, *first, *second; /* Moments. */
	const float *gradient;
	uint64_t count;
	float rate, beta1, beta2, epsilon;
	float coupled, decoupled; /* Weight decay: what is added to the gradient; rate times it. */
	float scale1, scale2;     /* 1 / (1 - beta^t). */
};

/*
 * rb_gate, of one thread: says that the stream has come to it, holds it up until `opened` has come
 * to `value`, and says that it goes on. The words only grow, and may wrap; they are the host's. It
 * is how streams of the application wait for the host: what the driver has for that,
 * cuStreamWaitValue32, holds up others' streams, too (docs/gpu.md).
 */
struct rb_cuda_gate {
	uint32_t *reached; /* Becomes `value` first; */
	uint32_t *passed;  /* and this last. */
	const uint32_t *opened;
	uint32_t value, reserved; /* 0. */
};

#define RB_CUDA_BLOCK 256u                    /* Threads of a block. */
#define RB_CUDA_BLOCKS_PER_MULTIPROCESSOR 64u /* Of a good grid, at most. */

/* Blocks of a good grid: a thread for each 16 bytes, up to some of them. At least 1: a kernel that
 * is given nothing does nothing. */
static inline uint32_t rb_cuda_grid(uint64_t count, uint32_t element_bytes,
				    uint32_t multiprocessors)
{
	uint64_t bytes = RB_CUDA_BLOCK * (uint64_t)(16 / element_bytes);
	uint64_t blocks = count / bytes + 1;
	uint64_t most = (uint64_t)multiprocessors * RB_CUDA_BLOCKS_PER_MULTIPROCESSOR;

	return (uint32_t)(blocks < most ? blocks : most);
}

#endif
