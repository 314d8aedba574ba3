/*
 * scalar.h -- one element at a time, with every bit decided. IEEE 754 leaves open which of two
 * NaNs a sum gives, and compilers may swap operands: here it is the first one's, made quiet.
 * Elements need not be aligned.
 */
#ifndef RB_COLLECTIVES_REDUCE_SCALAR_H
#define RB_COLLECTIVES_REDUCE_SCALAR_H

#include <stdint.h>
#include <string.h>

#define RB_SCALAR_FLOAT(type)                                                                      \
	static inline type rb_add_##type(type a, type b)                                           \
	{                                                                                          \
		return a != a ? a + a : a + b;                                                     \
	}                                                                                          \
	static inline type rb_max_##type(type a, type b)                                           \
	{                                                                                          \
		return a > b || a != a ? a : b;                                                    \
	}                                                                                          \
	static inline type rb_min_##type(type a, type b)                                           \
	{                                                                                          \
		return a < b || a != a ? a : b;                                                    \
	}                                                                                          \
	static inline type rb_average_##type(type sum, uint32_t count)                             \
	{                                                                                          \
		return sum * ((type)1 / (type)count);                                              \
	}

#define RB_SCALAR_INT(type)                                                                        \
	static inline type rb_add_##type(type a, type b)                                           \
	{                                                                                          \
		return (type)((u##type)a + (u##type)b);                                            \
	}                                                                                          \
	static inline type rb_max_##type(type a, type b)                                           \
	{                                                                                          \
		return a > b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_min_##type(type a, type b)                                           \
	{                                                                                          \
		return a < b ? a : b;                                                              \
	}                                                                                          \
	static inline type rb_average_##type(type sum, uint32_t count)                             \
	{                                                                                          \
		return (type)((int64_t)sum / (int64_t)count);                                      \
	}

#define RB_SCALAR_MEMORY(type)                                                                     \
	static inline type rb_load_##type(const void *base, uint64_t i)                            \
	{                                                                                          \
		type value;                                                                        \
                                                                                                   \
		memcpy(&value, (const char *)base + i * sizeof(value), sizeof(value));             \
		return value;                                                                      \
	}                                                                                          \
	static inline void rb_store_##type(void *base, uint64_t i, type value)                     \
	{                                                                                          \
		memcpy((char *)base + i * sizeof(value), &value, sizeof(value));                   \
	}

RB_SCALAR_FLOAT(float)
RB_SCALAR_FLOAT(double)
RB_SCALAR_INT(int32_t)
RB_SCALAR_INT(int64_t)
RB_SCALAR_MEMORY(float)
RB_SCALAR_MEMORY(double)
RB_SCALAR_MEMORY(int32_t)
RB_SCALAR_MEMORY(int64_t)

#endif
