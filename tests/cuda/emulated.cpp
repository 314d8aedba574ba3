/*
 * emulated.cpp -- what nvcc knows by itself and a C++ compiler does not, then the kernels: those of
 * KERNELS_SOURCE, which may be copies with faults (faults.py), and the trainer's.
 */
#include "tests/cuda/emulated.h"

#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "transport/sim/fiber.h"
}

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __launch_bounds__(...)
/* Parameters stay where they are. */
#define __grid_constant__ &

struct uint4 {
	uint32_t x, y, z, w;
} __attribute__((aligned(16), may_alias));
struct uint2 {
	uint32_t x, y;
} __attribute__((aligned(8), may_alias));
struct dim1 {
	unsigned x;
};
static thread_local dim1 threadIdx, blockIdx, blockDim, gridDim;

/* ---- Warps that meet ---- */

#define LANES 32

struct warp {
	void (*thread)(const void *parameters);
	const void *parameters;
	rb_fiber *lanes[LANES];
	uint32_t values[LANES], met_values[LANES], greatest;
	unsigned lane, met;
};
static thread_local warp *warp_now;

/* All lanes' greatest, when all have come; and what each has (met_values). */
static uint32_t __reduce_max_sync(unsigned, uint32_t value)
{
	const dim1 thread = threadIdx, block = blockIdx;
	warp *w = warp_now;
	const unsigned lane = w->lane;

	w->values[lane] = value;
	w->met++;
	rb_fiber_leave(w->lanes[lane]);
	threadIdx = thread;
	blockIdx = block;
	return w->greatest;
}

/* What the lane has whose number differs in these bits. */
template <class Value> static Value __shfl_xor_sync(unsigned mask, Value value, int apart)
{
	static_assert(sizeof(value) == 4, "a register");
	const unsigned lane = warp_now->lane;
	uint32_t bits;

	memcpy(&bits, &value, 4);
	(void)__reduce_max_sync(mask, bits);
	memcpy(&value, &warp_now->met_values[lane ^ (unsigned)apart], 4);
	return value;
}

static void __syncwarp(void)
{
	(void)__reduce_max_sync(0, 0);
}

/* A lane of every warp, one after another. */
static void lane_main(void *arg)
{
	warp *w = static_cast<warp *>(arg);
	const unsigned lane = w->lane;

	for (unsigned b = 0; b < gridDim.x; b++)
		for (unsigned t = lane; t < blockDim.x; t += LANES) {
			blockIdx.x = b;
			threadIdx.x = t;
			w->thread(w->parameters);
		}
}

static void warps_run(void (*thread)(const void *parameters), const void *parameters)
{
	warp w = {};
	bool more = true;

	if (blockDim.x % LANES != 0)
		abort();
	w.thread = thread;
	w.parameters = parameters;
	warp_now = &w;
	for (rb_fiber *&lane : w.lanes)
		if (rb_fiber_open(64 << 10, lane_main, &w, &lane) != RUBATO_OK)
			abort();
	while (more) {
		more = false;
		w.met = 0;
		for (w.lane = 0; w.lane < LANES; w.lane++) {
			rb_fiber_enter(w.lanes[w.lane]);
			more |= !rb_fiber_done(w.lanes[w.lane]);
		}
		if (more && w.met != LANES) /* Some have ended, others wait for them. */
			abort();
		memcpy(w.met_values, w.values, sizeof(w.values));
		w.greatest = 0;
		for (uint32_t value : w.values)
			w.greatest = value > w.greatest ? value : w.greatest;
	}
	for (rb_fiber *lane : w.lanes)
		rb_fiber_close(lane);
	warp_now = NULL;
}

/* ---- Words that the host looks at ---- */

static void word_write(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint32_t word_read(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void __nanosleep(unsigned)
{
	(void)sched_yield();
}

/* ---- Kernels ---- */

#include KERNELS_SOURCE
#include "trainer/cuda/kernels.cu"

struct emulated_kernel {
	const char *name;
	void (*thread)(const void *parameters);
	size_t parameter_bytes;
	bool meets;
};

template <class Call, void (*kernel)(const Call &)> static void thread(const void *parameters)
{
	kernel(*static_cast<const Call *>(parameters));
}

#define ONE(name, call, meets)                                                                     \
	emulated_kernel                                                                            \
	{                                                                                          \
#name, thread < call, name>, sizeof(call), meets                                   \
	}
#if defined(FAULTS)
#define FAULT(n, call, meets)                                                                      \
	{ "rb_fault_" #n, thread<call, fault_##n::rb_fault_##n>, sizeof(call), meets },
static emulated_kernel kernels[] = { FAULTS(FAULT) };
#else
#undef REDUCE
#define REDUCE(T)                                                                                  \
	ONE(rb_reduce_##T, rb_cuda_reduce, false),                                                 \
		ONE(rb_reduce_many_##T, rb_cuda_reduce_many, false)
#define TRAINER(name) ONE(tr_##name, tr_cuda_##name, false),
#define TRAINER_WARPS(name) ONE(tr_##name, tr_cuda_##name, true),

static emulated_kernel kernels[] = { REDUCE(f32),
				     REDUCE(f64),
				     REDUCE(i32),
				     REDUCE(i64),
				     REDUCE(f16),
				     REDUCE(bf16),
				     REDUCE(i8),
				     REDUCE(i16),
				     REDUCE(u8),
				     REDUCE(u16),
				     REDUCE(u32),
				     REDUCE(u64),
				     ONE(rb_widen_f16, rb_cuda_convert, false),
				     ONE(rb_widen_bf16, rb_cuda_convert, false),
				     ONE(rb_narrow_f16, rb_cuda_convert, false),
				     ONE(rb_narrow_bf16, rb_cuda_convert, false),
				     ONE(rb_encode_bf16, rb_cuda_coded, false),
				     ONE(rb_decode_bf16, rb_cuda_coded, false),
				     ONE(rb_reduce_coded_bf16, rb_cuda_coded, false),
				     ONE(rb_reduce_coded_many_bf16, rb_cuda_coded_many, false),
				     ONE(rb_encode_int8, rb_cuda_coded, true),
				     ONE(rb_decode_int8, rb_cuda_coded, false),
				     ONE(rb_reduce_coded_int8, rb_cuda_coded, true),
				     ONE(rb_reduce_coded_many_int8, rb_cuda_coded_many, true),
				     ONE(rb_sgd, rb_cuda_sgd, false),
				     ONE(rb_adam, rb_cuda_adam, false),
				     ONE(rb_gate, rb_cuda_gate, false),
				     TR_CUDA_LONE_KERNELS(TRAINER)
					     TR_CUDA_WARP_KERNELS(TRAINER_WARPS) };
#endif

void *emulated_find(const char *kernel_name)
{
	for (emulated_kernel &kernel : kernels)
		if (strcmp(kernel.name, kernel_name) == 0)
			return &kernel;
	return NULL;
}

size_t emulated_parameter_bytes(const void *kernel)
{
	return static_cast<const emulated_kernel *>(kernel)->parameter_bytes;
}

void emulated_launch(void *kernel, unsigned grid, unsigned block, const void *parameters)
{
	const emulated_kernel *k = static_cast<const emulated_kernel *>(kernel);

	gridDim.x = grid;
	blockDim.x = block;
	if (k->meets) {
		warps_run(k->thread, parameters);
		return;
	}
	for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
			k->thread(parameters);
}
