/*
 * vector_types.h -- a width's vectors: v_f32, v_u16, ... The including file defines VECTOR_BYTES
 * (16, 32 or 64) and TARGET, the attribute of its functions.
 */
#ifndef RB_COLLECTIVES_REDUCE_VECTOR_TYPES_H
#define RB_COLLECTIVES_REDUCE_VECTOR_TYPES_H

#include <stdint.h>

#define INLINE TARGET __attribute__((always_inline)) static inline
#define DECLARE(T, type)                                                                           \
	typedef type v_##T __attribute__((vector_size(VECTOR_BYTES)));                             \
	typedef type v_any_##T __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

DECLARE(f32, float)
DECLARE(f64, double)
DECLARE(i8, int8_t)
DECLARE(i16, int16_t)
DECLARE(i32, int32_t)
DECLARE(i64, int64_t)
DECLARE(u8, uint8_t)
DECLARE(u16, uint16_t)
DECLARE(u32, uint32_t)
DECLARE(u64, uint64_t)
typedef v_f32 v_f16; /* 16-bit floats are computed in float32. */
typedef v_f32 v_bf16;

/* The element in memory, and how many of them make a vector. */
#define BYTES_f32 4
#define BYTES_f64 8
#define BYTES_f16 2
#define BYTES_bf16 2
#define BYTES_i8 1
#define BYTES_i16 2
#define BYTES_i32 4
#define BYTES_i64 8
#define BYTES_u8 1
#define BYTES_u16 2
#define BYTES_u32 4
#define BYTES_u64 8
#define LANES(T) (sizeof(v_##T) / sizeof(((v_##T) { 0 })[0]))

/* max and min of integers, for which there is no instruction. */
#define PICK(verb, T, sign)                                                                        \
	INLINE v_##T verb##_##T(v_##T a, v_##T b)                                                  \
	{                                                                                          \
		v_##T first = (v_##T)(a sign b);                                                   \
                                                                                                   \
		return (a & first) | (b & ~first);                                                 \
	}
#define PICK_BOTH(T) PICK(max, T, >) PICK(min, T, <)

#endif
