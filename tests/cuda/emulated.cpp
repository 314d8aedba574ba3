/*
 * emulated.cpp -- what nvcc knows by itself and a C++ compiler does not, then the kernels: those of
 * KERNELS_SOURCE, which may be copies with faults (faults.py).
 */
#include "tests/cuda/emulated.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__ &/* Parameters stay where they are. */

struct uint4 {
	uint32_t x, y, z, w;
} __attribute__((aligned(16), may_alias));
struct dim1 {
	unsigned x;
};
static thread_local dim1 threadIdx, blockIdx, blockDim, gridDim;

#include KERNELS_SOURCE

struct emulated_kernel {
	const char *name;
	void (*thread)(const void *parameters);
};

template <class Call, void (*kernel)(const Call &)> static void thread(const void *parameters)
{
	kernel(*static_cast<const Call *>(parameters));
}

#if defined(FAULTS)
#define FAULT(n) { "rb_fault_" #n, thread<rb_cuda_reduce, fault_##n::rb_fault_##n> },
static emulated_kernel kernels[] = { FAULTS(FAULT) };
#else
#define REDUCE(T)                                                                                  \
	{ "rb_reduce_" #T, thread<rb_cuda_reduce, rb_reduce_##T> },                                \
	{                                                                                          \
		"rb_reduce_many_" #T, thread<rb_cuda_reduce_many, rb_reduce_many_##T>              \
	}

static emulated_kernel kernels[] = {
	REDUCE(f32), REDUCE(f64), REDUCE(i32), REDUCE(i64), REDUCE(f16), REDUCE(bf16),
	REDUCE(i8),  REDUCE(i16), REDUCE(u8),  REDUCE(u16), REDUCE(u32), REDUCE(u64),
};
#endif

void *emulated_find(const char *kernel_name)
{
	for (emulated_kernel &kernel : kernels)
		if (strcmp(kernel.name, kernel_name) == 0)
			return &kernel;
	return NULL;
}

void emulated_launch(void *kernel, unsigned grid, unsigned block, const void *parameters)
{
	const emulated_kernel *k = static_cast<const emulated_kernel *>(kernel);

	gridDim.x = grid;
	blockDim.x = block;
	for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
			k->thread(parameters);
}
