/*
 * vector_x86.h -- what vector.h needs of a width, for those of x86-64: their intrinsics differ in
 * how the names begin. Besides what vector_types.h asks for, the including file defines
 *
 *   MM(x)                           an intrinsic's name
 *   INT FLT DBL                     the intrinsics' vectors
 *   unordered_f32, unordered_f64    value with all bits set where either is NaN
 */
#ifndef RB_COLLECTIVES_REDUCE_VECTOR_X86_H
#define RB_COLLECTIVES_REDUCE_VECTOR_X86_H

#include <immintrin.h>

#include "collectives/reduce/kernels.h"
#include "collectives/reduce/vector_types.h"

/* The instructions give their second operand for equal zeros and for NaN: both ways, and joined. */
#define FLOAT_OPS(T, B, suffix, VECTOR)                                                            \
	INLINE v_##T max_##T(v_##T a, v_##T b)                                                     \
	{                                                                                          \
		v_##T one = (v_##T)MM(max_##suffix)((VECTOR)a, (VECTOR)b);                         \
		v_##T two = (v_##T)MM(max_##suffix)((VECTOR)b, (VECTOR)a);                         \
                                                                                                   \
		return unordered_##T((v_##T)((v_##B)one & (v_##B)two), a, b);                      \
	}                                                                                          \
	INLINE v_##T min_##T(v_##T a, v_##T b)                                                     \
	{                                                                                          \
		v_##T one = (v_##T)MM(min_##suffix)((VECTOR)a, (VECTOR)b);                         \
		v_##T two = (v_##T)MM(min_##suffix)((VECTOR)b, (VECTOR)a);                         \
                                                                                                   \
		return unordered_##T((v_##T)((v_##B)one | (v_##B)two), a, b);                      \
	}                                                                                          \
	INLINE v_##B nan_##T(v_##T a)                                                              \
	{                                                                                          \
		return (v_##B)unordered_##T((v_##T) { 0 }, a, a);                                  \
	}
FLOAT_OPS(f32, u32, ps, FLT)
FLOAT_OPS(f64, u64, pd, DBL)

#define NATIVE(verb, T, suffix)                                                                    \
	INLINE v_##T verb##_##T(v_##T a, v_##T b)                                                  \
	{                                                                                          \
		return (v_##T)MM(verb##_##suffix)((INT)a, (INT)b);                                 \
	}
#define NATIVE_BOTH(T, suffix) NATIVE(max, T, suffix) NATIVE(min, T, suffix)

NATIVE_BOTH(i16, epi16)
NATIVE_BOTH(u8, epu8)
#if VECTOR_BYTES >= 32
NATIVE_BOTH(i8, epi8)
NATIVE_BOTH(i32, epi32)
NATIVE_BOTH(u16, epu16)
NATIVE_BOTH(u32, epu32)
#else
PICK_BOTH(i8)
PICK_BOTH(i32)
PICK_BOTH(u16)
PICK_BOTH(u32)
#endif
#if VECTOR_BYTES == 64
NATIVE_BOTH(i64, epi64)
NATIVE_BOTH(u64, epu64)
#else
PICK_BOTH(i64)
PICK_BOTH(u64)
#endif

INLINE v_u16 upper_16(v_u16 x, const struct rb_divisor *d)
{
	v_u16 magic = (v_u16) { 0 } + (uint16_t)d->magic;

	return (v_u16)MM(mulhi_epu16)((INT)x, (INT)magic);
}

/* The even lanes' products, 64 bits wide. */
INLINE v_u64 multiply(v_u64 a, v_u64 b)
{
	return (v_u64)MM(mul_epu32)((INT)a, (INT)b);
}

INLINE v_u32 upper_32(v_u32 x, const struct rb_divisor *d)
{
	v_u64 magic = (v_u64) { 0 } + d->magic;
	v_u64 even = multiply((v_u64)x, magic), odd = multiply((v_u64)x >> 32, magic);

	return (v_u32)(even >> 32 | (odd & 0xffffffff00000000));
}

#define SHIFT_RIGHT(bits)                                                                          \
	INLINE v_u##bits shift_right_##bits(v_u##bits x, int count)                                \
	{                                                                                          \
		return (v_u##bits)MM(srl_epi##bits)((INT)x, _mm_cvtsi32_si128(count));             \
	}
SHIFT_RIGHT(16)
SHIFT_RIGHT(32)
SHIFT_RIGHT(64)

INLINE v_u16 bytes_first(v_u8 x)
{
	return (v_u16)MM(unpacklo_epi8)((INT)x, (INT)(v_u8) { 0 });
}

INLINE v_u16 bytes_second(v_u8 x)
{
	return (v_u16)MM(unpackhi_epi8)((INT)x, (INT)(v_u8) { 0 });
}

INLINE v_u8 bytes_join(v_u16 first, v_u16 second)
{
	return (v_u8)MM(packus_epi16)((INT)first, (INT)second);
}

#define STREAMS true
#define stream_end() _mm_sfence()

#endif
