/*
 * elements.h -- one element of a vector in memory, for checks of results: floats as double, which
 * holds all that occur, integers as 64 bits, of which the lowest count. Written from rubato.h: what
 * is checked with it has its own.
 */
#ifndef TOOLS_ELEMENTS_H
#define TOOLS_ELEMENTS_H

#include <math.h>
#include <string.h>

#include "rubato.h"

static inline bool type_is_float(rubato_type type)
{
	return type == RUBATO_FLOAT32 || type == RUBATO_FLOAT64 || type == RUBATO_FLOAT16 ||
	       type == RUBATO_BFLOAT16;
}

static inline bool type_is_signed(rubato_type type) /* Of integers. */
{
	return type == RUBATO_INT8 || type == RUBATO_INT16 || type == RUBATO_INT32 ||
	       type == RUBATO_INT64;
}

static inline double float_get(rubato_type type, const void *from, uint64_t i)
{
	if (type == RUBATO_FLOAT64)
		return ((const double *)from)[i];
	if (type == RUBATO_FLOAT32)
		return (double)((const float *)from)[i];
	if (type == RUBATO_FLOAT16)
		return (double)rubato_float16_to_float32(((const uint16_t *)from)[i]);
	return (double)rubato_bfloat16_to_float32(((const uint16_t *)from)[i]);
}

static inline void float_set(rubato_type type, void *to, uint64_t i, double value)
{
	if (type == RUBATO_FLOAT64)
		((double *)to)[i] = value;
	else if (type == RUBATO_FLOAT32)
		((float *)to)[i] = (float)value;
	else if (type == RUBATO_FLOAT16)
		((uint16_t *)to)[i] = rubato_float32_to_float16((float)value);
	else
		((uint16_t *)to)[i] = rubato_float32_to_bfloat16((float)value);
}

/* Without sign: only its lowest bytes count. */
static inline uint64_t integer_get(rubato_type type, const void *from, uint64_t i)
{
	const uint8_t *at = (const uint8_t *)from + i * rubato_type_bytes(type);
	uint64_t value = 0;

	memcpy(&value, at, rubato_type_bytes(type));
	return value;
}

static inline void integer_set(rubato_type type, void *to, uint64_t i, uint64_t value)
{
	memcpy((uint8_t *)to + i * rubato_type_bytes(type), &value, rubato_type_bytes(type));
}

/* As a number: with its sign, where the type has one. */
static inline int64_t integer_signed(rubato_type type, uint64_t value)
{
	unsigned unused = 64 - 8 * (unsigned)rubato_type_bytes(type);

	return (int64_t)(value << unused) >> unused;
}

static inline bool integer_less(rubato_type type, uint64_t a, uint64_t b)
{
	unsigned unused = 64 - 8 * (unsigned)rubato_type_bytes(type);

	if (type_is_signed(type))
		return integer_signed(type, a) < integer_signed(type, b);
	return a << unused < b << unused;
}

/* Toward zero, as C does. */
static inline uint64_t integer_divided(rubato_type type, uint64_t value, uint64_t divisor)
{
	unsigned unused = 64 - 8 * (unsigned)rubato_type_bytes(type);

	if (type_is_signed(type))
		return (uint64_t)(integer_signed(type, value) / (int64_t)divisor);
	return (value << unused >> unused) / divisor;
}

/* An average is a sum until its end. */
static inline double float_reduced(rubato_operator reduction, double a, double b)
{
	if (isnan(a) || isnan(b))
		return NAN;
	switch (reduction) {
	case RUBATO_MAX:
		return a > b ? a : b;
	case RUBATO_MIN:
		return a < b ? a : b;
	case RUBATO_PROD:
		return a * b;
	case RUBATO_SUM:
	case RUBATO_AVG:
		break;
	}
	return a + b;
}

static inline uint64_t integer_reduced(rubato_type type, rubato_operator reduction, uint64_t a,
				       uint64_t b)
{
	switch (reduction) {
	case RUBATO_MAX:
		return integer_less(type, a, b) ? b : a;
	case RUBATO_MIN:
		return integer_less(type, a, b) ? a : b;
	case RUBATO_PROD:
		return a * b;
	case RUBATO_SUM:
	case RUBATO_AVG:
		break;
	}
	return a + b;
}

#endif
