/* reduce.c -- which kernel this processor runs. */
#include "collectives/reduce/reduce.h"

#include "collectives/reduce/kernels.h"

rb_reduce_fn rb_reduce_best(void)
{
#ifdef RB_REDUCE_X86
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
		return rb_reduce_avx512;
	if (__builtin_cpu_supports("avx2"))
		return rb_reduce_avx2;
#endif
	return rb_reduce_plain;
}

const char *rb_reduce_name(rb_reduce_fn fn)
{
#ifdef RB_REDUCE_X86
	if (fn == rb_reduce_avx512)
		return "avx512";
	if (fn == rb_reduce_avx2)
		return "avx2";
#endif
	return fn == rb_reduce_plain ? "plain" : "unknown";
}
