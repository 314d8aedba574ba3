/* reduce_best.c -- which kernels this processor can run, and the fastest of them. */
#include "collectives/reduce/reduce.h"

#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#include <cpuid.h>
#endif

static bool always_usable(void)
{
	return true;
}

#ifdef RB_REDUCE_X86
/* clang 14 knows no "f16c" here. Where AVX2 is usable, so are the registers that F16C needs. */
static bool f16c_supported(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool avx2_usable(void)
{
	return __builtin_cpu_supports("avx2") && f16c_supported();
}

static bool avx512_usable(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512bw");
}
#endif

static const struct kernel {
	rb_reduce_fn fn;
	rb_convert_fn convert;
	const struct rb_coders *coders;
	const char *name;
	bool (*usable)(void);
} kernels[] = {
	{ rb_reduce_plain, rb_convert_plain, &rb_coders_plain, "plain", always_usable },
#ifdef RB_REDUCE_X86
	/* Every x86-64 has it. */
	{ rb_reduce_sse2, rb_convert_sse2, &rb_coders_sse2, "sse2", always_usable },
	{ rb_reduce_avx2, rb_convert_avx2, &rb_coders_avx2, "avx2", avx2_usable },
	{ rb_reduce_avx512, rb_convert_avx512, &rb_coders_avx512, "avx512", avx512_usable },
#endif
#ifdef RB_REDUCE_NEON
	/* Every aarch64 has it. */
	{ rb_reduce_neon, rb_convert_neon, &rb_coders_neon, "neon", always_usable },
#endif
};
#define KERNEL_COUNT (sizeof(kernels) / sizeof(kernels[0]))

static const struct kernel *kernel_find(rb_reduce_fn fn)
{
	for (uint32_t i = 0; i < KERNEL_COUNT; i++)
		if (kernels[i].fn == fn)
			return &kernels[i];
	return NULL;
}

rb_reduce_fn rb_reduce_kernel(uint32_t index)
{
	return index < KERNEL_COUNT ? kernels[index].fn : NULL;
}

bool rb_reduce_usable(rb_reduce_fn fn)
{
	const struct kernel *kernel = kernel_find(fn);

	return kernel != NULL && kernel->usable();
}

rb_reduce_fn rb_reduce_best(void)
{
	uint32_t i = KERNEL_COUNT - 1;

	while (!kernels[i].usable())
		i--;
	return kernels[i].fn;
}

rb_convert_fn rb_convert_of(rb_reduce_fn fn)
{
	const struct kernel *kernel = kernel_find(fn);

	return kernel != NULL ? kernel->convert : rb_convert_plain;
}

const struct rb_coders *rb_coders_of(rb_reduce_fn fn)
{
	const struct kernel *kernel = kernel_find(fn);

	return kernel != NULL ? kernel->coders : &rb_coders_plain;
}

const char *rb_reduce_name(rb_reduce_fn fn)
{
	const struct kernel *kernel = kernel_find(fn);

	return kernel != NULL ? kernel->name : "unknown";
}

const char *rubato_reduction_kernel(void)
{
	return rb_reduce_name(rb_reduce_best());
}
