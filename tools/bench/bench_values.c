/* bench_values.c -- inputs whose results are known exactly, and the comparison. See bench.h. */
#include <string.h>

#include "programs/rng.h"
#include "tools/bench/bench.h"

/* A signed integer of so few bits that the sum over ranks fits into `bits`. */
static int64_t narrow(uint64_t random, uint32_t bits, uint32_t rank_count)
{
	uint32_t keep = bits;

	for (uint32_t ranks = rank_count - 1; ranks > 0 && keep > 2; ranks >>= 1)
		keep--;
	return (int64_t)random >> (64 - keep);
}

/* ---- Elements: floats as double, which holds all that occur, integers as 64 bits ---- */

static bool is_float(rubato_type type)
{
	return type == RUBATO_FLOAT32 || type == RUBATO_FLOAT64 || type == RUBATO_FLOAT16 ||
	       type == RUBATO_BFLOAT16;
}

static bool is_unsigned(rubato_type type)
{
	return type == RUBATO_UINT8 || type == RUBATO_UINT16 || type == RUBATO_UINT32 ||
	       type == RUBATO_UINT64;
}

static double float_get(const struct pattern *pattern, uint64_t i)
{
	switch (pattern->type) {
	case RUBATO_FLOAT32:
		return (double)pattern->at.f32[i];
	case RUBATO_FLOAT16:
		return (double)rubato_float16_to_float32(pattern->at.i16[i]);
	case RUBATO_BFLOAT16:
		return (double)rubato_bfloat16_to_float32(pattern->at.i16[i]);
	default:
		return pattern->at.f64[i];
	}
}

static void float_set(struct pattern *pattern, uint64_t i, double value)
{
	if (pattern->type == RUBATO_FLOAT32)
		pattern->at.f32[i] = (float)value;
	else if (pattern->type == RUBATO_FLOAT64)
		pattern->at.f64[i] = value;
	else if (pattern->type == RUBATO_FLOAT16)
		pattern->at.i16[i] = rubato_float32_to_float16((float)value);
	else
		pattern->at.i16[i] = rubato_float32_to_bfloat16((float)value);
}

/* Signed types with their sign in all 64 bits. */
static uint64_t int_get(const struct pattern *pattern, uint64_t i)
{
	size_t bytes = rubato_type_bytes(pattern->type);
	uint32_t unused = 64 - 8 * (uint32_t)bytes;
	uint64_t value = bytes == 1   ? pattern->at.i8[i]
			 : bytes == 2 ? pattern->at.i16[i]
			 : bytes == 4 ? pattern->at.i32[i]
				      : pattern->at.i64[i];

	return is_unsigned(pattern->type) ? value
					  : (uint64_t)((int64_t)(value << unused) >> unused);
}

static void int_set(struct pattern *pattern, uint64_t i, uint64_t value)
{
	size_t bytes = rubato_type_bytes(pattern->type);

	if (bytes == 1)
		pattern->at.i8[i] = (uint8_t)value;
	else if (bytes == 2)
		pattern->at.i16[i] = (uint16_t)value;
	else if (bytes == 4)
		pattern->at.i32[i] = (uint32_t)value;
	else
		pattern->at.i64[i] = value;
}

/* ---- Inputs and results ---- */

/* What all ranks' sum is exact with. Of many ranks the last add 0 in 16 bits: no room for more. */
static double float_of(uint64_t random, rubato_type type, uint32_t rank, uint32_t rank_count)
{
	switch (type) {
	case RUBATO_FLOAT32:
		return (double)narrow(random, 24, rank_count);
	case RUBATO_FLOAT16:
		return rank < 512 ? (double)narrow(random, 11, rank_count) : 0;
	case RUBATO_BFLOAT16:
		return rank < 64 ? (double)narrow(random, 8, rank_count) : 0;
	default:
		return (double)narrow(random, 53, rank_count);
	}
}

/* Plus or minus 1; of the first eight ranks also 2 and 0.5: products are exact in every type. */
static double factor_of(uint64_t random, uint32_t rank)
{
	double value = rank >= 8 || random >> 63 ? 1 : (random & 2) != 0 ? 2 : 0.5;

	return (random & 1) != 0 ? -value : value;
}

void pattern_of_rank(struct pattern *pattern, rubato_type type, rubato_operator op,
		     uint64_t elements, uint32_t rank, uint32_t rank_count, uint64_t call)
{
	uint64_t seed = rng_mix(rng_mix(call + 1) ^ ((uint64_t)rank << 32));

	pattern->type = type;
	pattern->used = elements < PATTERN_ELEMENTS ? elements : PATTERN_ELEMENTS;
	for (uint64_t i = 0; i < pattern->used; i++) {
		uint64_t random = rng_mix(seed + i * 0x9e3779b97f4a7c15u);

		if (!is_float(type))
			int_set(pattern, i, random >> 8 | random << 56);
		else if (op == RUBATO_PROD)
			float_set(pattern, i, factor_of(random, rank));
		else
			float_set(pattern, i, float_of(random, type, rank, rank_count));
	}
}

static double float_join(double a, double b, rubato_operator op)
{
	switch (op) {
	case RUBATO_MAX:
		return a > b ? a : b;
	case RUBATO_MIN:
		return a < b ? a : b;
	case RUBATO_PROD:
		return a * b;
	default: /* AVG is a sum until the end. */
		return a + b;
	}
}

static uint64_t int_join(uint64_t a, uint64_t b, rubato_operator op, bool no_sign)
{
	bool greater = no_sign ? a > b : (int64_t)a > (int64_t)b;

	switch (op) {
	case RUBATO_MAX:
		return greater ? a : b;
	case RUBATO_MIN:
		return greater ? b : a;
	case RUBATO_PROD:
		return a * b;
	default:
		return a + b;
	}
}

/* to = op(to, from), on element i of the pattern. */
static void element_join(struct pattern *to, const struct pattern *from, rubato_operator op,
			 uint64_t i)
{
	if (is_float(to->type))
		float_set(to, i, float_join(float_get(to, i), float_get(from, i), op));
	else
		int_set(to, i,
			int_join(int_get(to, i), int_get(from, i), op, is_unsigned(to->type)));
}

/* As rubato.h says of RUBATO_AVG: floats times 1/size, integers divided toward zero. */
static void average(struct pattern *pattern, uint32_t rank_count)
{
	for (uint64_t i = 0; i < pattern->used; i++) {
		if (pattern->type == RUBATO_FLOAT64)
			pattern->at.f64[i] *= 1.0 / (double)rank_count;
		else if (is_float(pattern->type))
			float_set(pattern, i,
				  (double)((float)float_get(pattern, i) *
					   (1.0f / (float)rank_count)));
		else if (is_unsigned(pattern->type))
			int_set(pattern, i, int_get(pattern, i) / rank_count);
		else
			int_set(pattern, i,
				(uint64_t)((int64_t)int_get(pattern, i) / (int64_t)rank_count));
	}
}

void pattern_of_all(struct pattern *pattern, struct pattern *scratch, rubato_type type,
		    rubato_operator op, uint64_t elements, uint32_t rank_count, uint64_t call)
{
	pattern_of_rank(pattern, type, op, elements, 0, rank_count, call);
	for (uint32_t rank = 1; rank < rank_count; rank++) {
		pattern_of_rank(scratch, type, op, elements, rank, rank_count, call);
		for (uint64_t i = 0; i < pattern->used; i++)
			element_join(pattern, scratch, op, i);
	}
	if (op == RUBATO_AVG)
		average(pattern, rank_count);
}

/* How many elements, from `first` on, lie in one piece of the pattern: at most `count`. */
static uint64_t piece(uint64_t first, uint64_t count, uint64_t *place)
{
	*place = first % PATTERN_ELEMENTS;
	return count < PATTERN_ELEMENTS - *place ? count : PATTERN_ELEMENTS - *place;
}

void pattern_fill(const struct pattern *pattern, uint64_t first, uint64_t count, void *to)
{
	size_t bytes = rubato_type_bytes(pattern->type);
	const char *from = (const char *)&pattern->at;
	char *at = to;
	uint64_t place;

	while (count > 0) {
		uint64_t length = piece(first, count, &place);

		memcpy(at, from + place * bytes, length * bytes);
		at += length * bytes;
		first += length;
		count -= length;
	}
}

uint64_t pattern_wrong(const struct pattern *pattern, uint64_t first, uint64_t count,
		       const void *got)
{
	size_t bytes = rubato_type_bytes(pattern->type);
	const char *expected = (const char *)&pattern->at;
	const char *at = got;
	uint64_t place, wrong = 0;

	while (count > 0) {
		uint64_t length = piece(first, count, &place);

		if (memcmp(at, expected + place * bytes, length * bytes) != 0)
			for (uint64_t i = 0; i < length; i++)
				wrong += memcmp(at + i * bytes, expected + (place + i) * bytes,
						bytes) != 0;
		at += length * bytes;
		first += length;
		count -= length;
	}
	return wrong;
}
