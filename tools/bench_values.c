/* bench_values.c -- inputs whose results are known exactly, and the comparison. See bench.h. */
#include <string.h>

#include "tools/bench.h"

/* splitmix64's finish: every bit of the input reaches every bit of the output. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* A signed integer of so few bits that the sum over ranks fits into `bits`. */
static int64_t narrow(uint64_t random, uint32_t bits, uint32_t rank_count)
{
	uint32_t keep = bits;

	for (uint32_t ranks = rank_count - 1; ranks > 0 && keep > 2; ranks >>= 1)
		keep--;
	return (int64_t)random >> (64 - keep);
}

void pattern_of_rank(struct pattern *pattern, rubato_type type, uint64_t elements, uint32_t rank,
		     uint32_t rank_count, uint64_t call)
{
	uint64_t seed = mix(mix(call + 1) ^ ((uint64_t)rank << 32));

	pattern->type = type;
	pattern->used = elements < PATTERN_ELEMENTS ? elements : PATTERN_ELEMENTS;
	for (uint64_t i = 0; i < pattern->used; i++) {
		uint64_t random = mix(seed + i * 0x9e3779b97f4a7c15u);

		switch (type) {
		case RUBATO_FLOAT32: /* 2^24: integers up to it are exact. */
			pattern->at.f32[i] = (float)narrow(random, 24, rank_count);
			break;
		case RUBATO_FLOAT64:
			pattern->at.f64[i] = (double)narrow(random, 53, rank_count);
			break;
		case RUBATO_INT32:
			pattern->at.i32[i] = (uint32_t)(random >> 32);
			break;
		case RUBATO_INT64:
			pattern->at.i64[i] = random;
			break;
		}
	}
}

#define KEEP(to, from, better)                                                                     \
	do {                                                                                       \
		if (better)                                                                        \
			(to) = (from);                                                             \
	} while (0)

/* to = op(to, from), on element i of the pattern; AVG is a sum until the end. */
static void element_add(struct pattern *to, const struct pattern *from, rubato_operator op,
			uint64_t i)
{
	bool max = op == RUBATO_MAX, sum = op == RUBATO_SUM || op == RUBATO_AVG;

	switch (to->type) {
	case RUBATO_FLOAT32: {
		float *a = &to->at.f32[i], b = from->at.f32[i];

		if (sum)
			*a += b;
		else
			KEEP(*a, b, max ? b > *a : b < *a);
		break;
	}
	case RUBATO_FLOAT64: {
		double *a = &to->at.f64[i], b = from->at.f64[i];

		if (sum)
			*a += b;
		else
			KEEP(*a, b, max ? b > *a : b < *a);
		break;
	}
	case RUBATO_INT32: {
		uint32_t *a = &to->at.i32[i], b = from->at.i32[i];

		if (sum)
			*a += b;
		else
			KEEP(*a, b, max ? (int32_t)b > (int32_t)*a : (int32_t)b < (int32_t)*a);
		break;
	}
	case RUBATO_INT64: {
		uint64_t *a = &to->at.i64[i], b = from->at.i64[i];

		if (sum)
			*a += b;
		else
			KEEP(*a, b, max ? (int64_t)b > (int64_t)*a : (int64_t)b < (int64_t)*a);
		break;
	}
	}
}

/* As rubato.h says of RUBATO_AVG: floats times 1/size, integers divided toward zero. */
static void average(struct pattern *pattern, uint32_t rank_count)
{
	for (uint64_t i = 0; i < pattern->used; i++) {
		switch (pattern->type) {
		case RUBATO_FLOAT32:
			pattern->at.f32[i] *= (float)(1.0 / (double)rank_count);
			break;
		case RUBATO_FLOAT64:
			pattern->at.f64[i] *= 1.0 / (double)rank_count;
			break;
		case RUBATO_INT32:
			pattern->at.i32[i] =
				(uint32_t)(int32_t)((int64_t)(int32_t)pattern->at.i32[i] /
						    (int64_t)rank_count);
			break;
		case RUBATO_INT64:
			pattern->at.i64[i] =
				(uint64_t)((int64_t)pattern->at.i64[i] / (int64_t)rank_count);
			break;
		}
	}
}

void pattern_of_all(struct pattern *pattern, struct pattern *scratch, rubato_type type,
		    rubato_operator op, uint64_t elements, uint32_t rank_count, uint64_t call)
{
	pattern_of_rank(pattern, type, elements, 0, rank_count, call);
	for (uint32_t rank = 1; rank < rank_count; rank++) {
		pattern_of_rank(scratch, type, elements, rank, rank_count, call);
		for (uint64_t i = 0; i < pattern->used; i++)
			element_add(pattern, scratch, op, i);
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
