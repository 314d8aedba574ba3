/* kernels.h -- the fast twins, where the compiler can make them, and what all kernels share. */
#ifndef RB_COLLECTIVES_REDUCE_KERNELS_H
#define RB_COLLECTIVES_REDUCE_KERNELS_H

#include "base/float_mode.h"
#include "collectives/reduce/coded.h"
#include "collectives/reduce/reduce.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define RB_REDUCE_X86 1
void rb_reduce_sse2(const struct rb_reduce *reduce);
void rb_convert_sse2(const struct rb_convert *convert);
extern const struct rb_coders rb_coders_sse2;
void rb_reduce_avx2(const struct rb_reduce *reduce);
void rb_convert_avx2(const struct rb_convert *convert);
extern const struct rb_coders rb_coders_avx2;
void rb_reduce_avx512(const struct rb_reduce *reduce);
void rb_convert_avx512(const struct rb_convert *convert);
extern const struct rb_coders rb_coders_avx512;
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && defined(__GNUC__)
#define RB_REDUCE_NEON 1
void rb_reduce_neon(const struct rb_reduce *reduce);
void rb_convert_neon(const struct rb_convert *convert);
extern const struct rb_coders rb_coders_neon;
#endif

/* A reduction of one operand without division: does it, and says so. */
bool rb_reduce_copies(const struct rb_reduce *reduce);

/* Elements first .. first + count - 1 by the plain twin. */
void rb_reduce_plain_part(const struct rb_reduce *reduce, uint64_t first, uint64_t count);

/*
 * Division by a constant as a multiplication (Granlund and Montgomery, PLDI 1994, figure 4.1): with
 * t = the upper half of x * magic, x / count = (t + (x - t) / 2) >> shift, for unsigned x of `bits`
 * bits and 2 <= count < 2^bits.
 */
struct rb_divisor {
	float f32;
	double f64;
	uint64_t magic;
	int shift;
};
struct rb_divisor rb_divisor_make(uint32_t count, uint32_t bits);

#define RB_DIVISOR_MAX UINT16_MAX /* Larger counts are left to the plain twin. */

/*
 * A target that no second-level cache holds is written past the caches: its lines need not be read
 * first, which is a quarter of the traffic of a sum of two. The engine's slices (256 KiB) are
 * shorter: what they give is sent or added next, and had better stay in the cache, unless they say
 * that it is not (past).
 */
#define RB_STREAM_FROM (4u << 20)

#endif
