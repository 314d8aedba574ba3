/* values.c -- draws, the values of ranks' inputs, and what a plain computation makes of them. */
#include <math.h>
#include <string.h>

#include "random.h"

/* ---- Draws ---- */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t mixed(uint64_t a, uint64_t b)
{
	return mix(mix(a + 0x9e3779b97f4a7c15u) + b * 0xd1342543de82ef95u);
}

uint64_t draw(struct draws *draws)
{
	draws->state += 0x9e3779b97f4a7c15u;
	return mix(draws->state);
}

uint32_t below(struct draws *draws, uint32_t bound)
{
	return (uint32_t)((draw(draws) >> 32) * bound >> 32);
}

bool one_in(struct draws *draws, uint32_t bound)
{
	return below(draws, bound) == 0;
}

void order_draw(struct draws *draws, uint32_t count, uint32_t *order)
{
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t k = below(draws, i), other = order[k];

		order[k] = order[i - 1];
		order[i - 1] = other;
	}
}

/* ---- Elements, as their bits ---- */

rubato_type type_draw(struct draws *draws)
{
	return (rubato_type)below(draws, RUBATO_TYPE_COUNT);
}

bool is_float(rubato_type type)
{
	return type == RUBATO_FLOAT32 || type == RUBATO_FLOAT64 || type == RUBATO_FLOAT16 ||
	       type == RUBATO_BFLOAT16;
}

static bool is_signed(rubato_type type)
{
	return type == RUBATO_INT8 || type == RUBATO_INT16 || type == RUBATO_INT32 ||
	       type == RUBATO_INT64;
}

static uint64_t raw(uint64_t key, uint32_t stream, uint64_t i)
{
	return mix(key + stream * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u);
}

static void put(uint8_t *out, rubato_type type, uint64_t i, uint64_t bits)
{
	size_t bytes = rubato_type_bytes(type); /* Little-endian, as all that this runs on. */

	memcpy(out + i * bytes, &bits, bytes);
}

static double float_of(rubato_type type, uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	double wide;
	float narrow;

	if (type == RUBATO_FLOAT16)
		return rubato_float16_to_float32((uint16_t)bits);
	if (type == RUBATO_BFLOAT16)
		return rubato_bfloat16_to_float32((uint16_t)bits);
	memcpy(&narrow, &low, sizeof(narrow));
	memcpy(&wide, &bits, sizeof(wide));
	return type == RUBATO_FLOAT32 ? narrow : wide;
}

/* Every NaN that a reduction gives is the same. */
static uint64_t bits_of(rubato_type type, double value)
{
	float narrow = (float)value;
	uint64_t bits = 0;

	if (type == RUBATO_FLOAT16)
		return isnan(value) ? 0x7e00 : rubato_float32_to_float16(narrow);
	if (type == RUBATO_BFLOAT16)
		return isnan(value) ? 0x7fc0 : rubato_float32_to_bfloat16(narrow);
	if (type == RUBATO_FLOAT32) {
		memcpy(&bits, &narrow, sizeof(narrow));
		return isnan(value) ? 0x7fc00000 : bits;
	}
	memcpy(&bits, &value, sizeof(value));
	return isnan(value) ? 0x7ff8000000000000 : bits;
}

static uint64_t cut(rubato_type type, uint64_t bits)
{
	uint32_t unused = 64 - 8 * (uint32_t)rubato_type_bytes(type);

	return bits << unused >> unused;
}

/* The integer that these bits are, its sign spread. */
static int64_t wide_of(rubato_type type, uint64_t bits)
{
	uint32_t unused = 64 - 8 * (uint32_t)rubato_type_bytes(type);

	return (int64_t)(bits << unused) >> unused;
}

static uint64_t odd_float(rubato_type type, uint64_t drawn)
{
	static const uint64_t nans[] = {
		[RUBATO_FLOAT32] = 0xffa00123,
		[RUBATO_FLOAT64] = 0xfff4000000000123,
		[RUBATO_FLOAT16] = 0xfd23,
		[RUBATO_BFLOAT16] = 0xffa3,
	};

	if (drawn % 4 == 0)
		return nans[type];
	if (drawn % 4 == 1)
		return bits_of(type, drawn & 64 ? INFINITY : -INFINITY);
	return bits_of(type, drawn & 64 ? -0.0 : 0.0);
}

/* Floats are such that no result is rounded, but for averages. */
static uint64_t element(const struct call *call, uint32_t stream, uint64_t i)
{
	uint64_t drawn = raw(call->key, stream, i);

	if (!is_float(call->type))
		return cut(call->type, drawn);
	if (call->odd && drawn >> 8 & 1)
		return odd_float(call->type, drawn);
	if (call->op == RUBATO_PROD)
		return bits_of(call->type, (double)(1 + drawn % 2) * (drawn & 64 ? -1 : 1));
	return bits_of(call->type, (double)(drawn % 65) - 32);
}

/* ---- Reductions ---- */

static uint64_t pair(const struct call *call, uint64_t a, uint64_t b)
{
	rubato_type type = call->type;
	bool less = is_signed(type) ? wide_of(type, a) < wide_of(type, b) : a < b;

	if (call->op == RUBATO_MAX)
		return less ? b : a;
	if (call->op == RUBATO_MIN)
		return less ? a : b;
	return cut(type, call->op == RUBATO_PROD ? a * b : a + b);
}

static double pair_float(const struct call *call, double a, double b)
{
	bool less = a < b || (a == b && signbit(a) && !signbit(b));

	if (call->op == RUBATO_PROD)
		return a * b;
	if (call->op == RUBATO_SUM || call->op == RUBATO_AVG)
		return a + b;
	if (isnan(a) || isnan(b))
		return NAN;
	return less == (call->op == RUBATO_MAX) ? b : a;
}

static uint64_t divided(rubato_type type, uint64_t sum, uint32_t ranks)
{
	return is_signed(type) ? cut(type, (uint64_t)(wide_of(type, sum) / (int64_t)ranks))
			       : sum / ranks;
}

static double divided_float(rubato_type type, double sum, uint32_t ranks)
{
	float part = 1.0f / (float)ranks;

	return type == RUBATO_FLOAT64 ? sum * (1.0 / ranks) : (double)((float)sum * part);
}

static uint64_t reduction(const struct call *call, uint32_t ranks, uint64_t i)
{
	uint64_t bits = element(call, 0, i);
	double value;

	if (ranks == 1)
		return bits;
	if (!is_float(call->type)) {
		for (uint32_t r = 1; r < ranks; r++)
			bits = pair(call, bits, element(call, r * RANKS_MAX, i));
		return call->op == RUBATO_AVG ? divided(call->type, bits, ranks) : bits;
	}
	value = float_of(call->type, bits);
	for (uint32_t r = 1; r < ranks; r++)
		value = pair_float(call, value,
				   float_of(call->type, element(call, r * RANKS_MAX, i)));
	if (call->op == RUBATO_AVG)
		value = divided_float(call->type, value, ranks);
	if (call->wire == RUBATO_WIRE_BFLOAT16)
		value = rubato_bfloat16_to_float32(rubato_float32_to_bfloat16((float)value));
	return bits_of(call->type, value);
}

/* ---- Many ---- */

void values_moved(uint64_t key, uint32_t stream, uint64_t from, uint64_t count, rubato_type type,
		  uint8_t *out)
{
	for (uint64_t i = 0; i < count; i++)
		put(out, type, i, raw(key, stream, from + i));
}

void values_reduced(const struct call *call, uint32_t stream, uint64_t from, uint64_t count,
		    uint8_t *out)
{
	for (uint64_t i = 0; i < count; i++)
		put(out, call->type, i, element(call, stream, from + i));
}

void values_expected(const struct call *call, uint32_t ranks, uint64_t from, uint64_t count,
		     uint8_t *out)
{
	for (uint64_t i = 0; i < count; i++)
		put(out, call->type, i, reduction(call, ranks, from + i));
}
