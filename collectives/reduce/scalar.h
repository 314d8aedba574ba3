/*
 * scalar.h -- one element at a time, with every bit decided.
 *
 * Each element type T (f32, i8, ...) has a type it is computed in (rb_T; float for both 16-bit
 * floats) and a load, a store, four operators, a division and a finish. IEEE 754 leaves open which
 * NaN an operation gives, so no NaN of the operators is trusted: finish() makes all of them the one
 * canonical NaN before the store. Elements need not be aligned.
 */
#ifndef RB_COLLECTIVES_REDUCE_SCALAR_H
#define RB_COLLECTIVES_REDUCE_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "collectives/reduce/half.h"

#define RB_SCALAR_FLOAT(T, type)                                                                   \
	typedef type rb_##T;                                                                       \
	static inline type rb_sum_##T(type a, type b)                                              \
	{                                                                                          \
		return a + b;                                                                      \
	}                                                                                          \
	static inline type rb_prod_##T(type a, type b)                                             \
	{                                                                                          \
		return a * b;                                                                      \
	}                                                                                          \
	static inline type rb_max_##T(type a, type b)                                              \
	{                                                                                          \
		if (a != a || b != b)                                                              \
			return (type)NAN;                                                          \
		if (a == b) /* Zeros of either sign are equal. */                                  \
			return signbit(a) ? b : a;                                                 \
		return a > b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_min_##T(type a, type b)                                              \
	{                                                                                          \
		if (a != a || b != b)                                                              \
			return (type)NAN;                                                          \
		if (a == b)                                                                        \
			return signbit(a) ? a : b;                                                 \
		return a < b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_divide_##T(type sum, uint32_t count)                                 \
	{                                                                                          \
		return sum * ((type)1 / (type)count);                                              \
	}                                                                                          \
	static inline type rb_finish_##T(type value)                                               \
	{                                                                                          \
		return value != value ? (type)NAN : value;                                         \
	}

/* `wide` holds every value and product of two, or wraps with the type. */
#define RB_SCALAR_INT(T, type, wide)                                                               \
	typedef type rb_##T;                                                                       \
	static inline type rb_sum_##T(type a, type b)                                              \
	{                                                                                          \
		return (type)((uint64_t)a + (uint64_t)b);                                          \
	}                                                                                          \
	static inline type rb_prod_##T(type a, type b)                                             \
	{                                                                                          \
		return (type)((uint64_t)a * (uint64_t)b);                                          \
	}                                                                                          \
	static inline type rb_max_##T(type a, type b)                                              \
	{                                                                                          \
		return a > b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_min_##T(type a, type b)                                              \
	{                                                                                          \
		return a < b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_divide_##T(type sum, uint32_t count)                                 \
	{                                                                                          \
		return (type)((wide)sum / (wide)count);                                            \
	}                                                                                          \
	static inline type rb_finish_##T(type value)                                               \
	{                                                                                          \
		return value;                                                                      \
	}

#define RB_SCALAR_MEMORY(T, stored, WIDEN, NARROW)                                                 \
	static inline rb_##T rb_load_##T(const void *base, uint64_t i)                             \
	{                                                                                          \
		stored value;                                                                      \
                                                                                                   \
		memcpy(&value, (const char *)base + i * sizeof(value), sizeof(value));             \
		return WIDEN(value);                                                               \
	}                                                                                          \
	static inline void rb_store_##T(void *base, uint64_t i, rb_##T value)                      \
	{                                                                                          \
		stored narrow = NARROW(value);                                                     \
                                                                                                   \
		memcpy((char *)base + i * sizeof(narrow), &narrow, sizeof(narrow));                \
	}
#define RB_SAME(value) (value)

RB_SCALAR_FLOAT(f32, float)
RB_SCALAR_FLOAT(f64, double)
RB_SCALAR_FLOAT(f16, float)
RB_SCALAR_FLOAT(bf16, float)
RB_SCALAR_INT(i8, int8_t, int64_t)
RB_SCALAR_INT(i16, int16_t, int64_t)
RB_SCALAR_INT(i32, int32_t, int64_t)
RB_SCALAR_INT(i64, int64_t, int64_t)
RB_SCALAR_INT(u8, uint8_t, uint64_t)
RB_SCALAR_INT(u16, uint16_t, uint64_t)
RB_SCALAR_INT(u32, uint32_t, uint64_t)
RB_SCALAR_INT(u64, uint64_t, uint64_t)
RB_SCALAR_MEMORY(f32, float, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(f64, double, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(f16, uint16_t, rb_f16_widen, rb_f16_narrow)
RB_SCALAR_MEMORY(bf16, uint16_t, rb_bf16_widen, rb_bf16_narrow)
RB_SCALAR_MEMORY(i8, int8_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(i16, int16_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(i32, int32_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(i64, int64_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(u8, uint8_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(u16, uint16_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(u32, uint32_t, RB_SAME, RB_SAME)
RB_SCALAR_MEMORY(u64, uint64_t, RB_SAME, RB_SAME)

#endif
