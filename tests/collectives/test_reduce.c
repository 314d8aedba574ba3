/*
 * test_reduce.c -- every kernel that this processor has gives the plain twin's bits; and the plain
 * twin does what reduce.h and rubato.h say. TEST_SEED takes back the seed of a failure.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/reduce/half.h"
#include "collectives/reduce/kernels.h"
#include "tests/check_main.h"
#include "tests/hostile.h"
#include "tests/length.h"

#if defined(RB_REDUCE_X86)
#define KERNELS 4
#elif defined(RB_REDUCE_NEON)
#define KERNELS 2
#else
#define KERNELS 1
#endif
#define OPERANDS 9
#define COUNT_MAX 5000
#define ROOM ((COUNT_MAX + 16) * 8)
#define GUARD 0x5a

/* ck_assert writes to a pipe, also where it holds: too slow for what is asked a million times. */
#define EXPECT(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg(__VA_ARGS__);                                                 \
	} while (0)

static uint64_t seed_wanted(void)
{
	uint64_t seed = 1;

	(void)seeds_given(&seed);
	return seed;
}

static uint32_t by_length(uint32_t few, uint32_t normal, uint32_t many)
{
	enum test_length length = test_length();

	return length == TEST_SHORT ? few : length == TEST_NORMAL ? normal : many;
}

/* NULL where this processor has it not: said, so that nobody takes it for tested. */
static rb_reduce_fn kernel_wanted(int index)
{
	rb_reduce_fn fn = rb_reduce_kernel((uint32_t)index);

	if (fn != NULL && rb_reduce_usable(fn))
		return fn;
	(void)fprintf(stderr, "kernel %d (%s): not tested, this processor has it not\n", index,
		      fn != NULL ? rb_reduce_name(fn) : "not built in");
	return NULL;
}

struct bench {
	unsigned char from[OPERANDS][ROOM], fast[ROOM], plain[ROOM], saved[ROOM], also[ROOM];
};

/* What a second target has beside the result. */
static void also_checked(const struct bench *b, const struct rb_reduce *r, size_t bytes,
			 uint64_t seed)
{
	size_t at = (size_t)((unsigned char *)r->also - b->also);

	EXPECT(memcmp(r->also, b->plain, bytes) == 0, "%s %s: also, count %lu, TEST_SEED=%lu",
	       rubato_type_name(r->type), rubato_operator_name(r->op), (unsigned long)r->count,
	       (unsigned long)seed);
	for (size_t i = 0; i < at; i++)
		EXPECT(b->also[i] == GUARD, "before, TEST_SEED=%lu", (unsigned long)seed);
	for (size_t i = 0; i < 32; i++)
		EXPECT(b->also[at + bytes + i] == GUARD, "behind, TEST_SEED=%lu",
		       (unsigned long)seed);
}

/*
 * One reduction by both, into a target of its own (alias >= operands) or into an operand, and of a
 * third of the shifts into one more. Operand k begins at shift (k + 1) mod 17.
 */
static void compare(struct bench *b, rb_reduce_fn fn, struct rb_reduce r, uint32_t alias,
		    uint32_t shift, uint64_t seed)
{
	size_t bytes = r.count * rubato_type_bytes(r.type);
	const void *from[OPERANDS];

	for (uint32_t k = 0; k < r.from_count; k++)
		from[k] = b->from[k] + shift * (k + 1) % 17;
	r.from = from;
	r.to = b->plain;
	rb_reduce_plain(&r);
	memset(b->fast, GUARD, bytes + 64);
	r.to = b->fast + shift % 7;
	if (alias < r.from_count) {
		r.to = b->from[alias] + shift * (alias + 1) % 17;
		memcpy(b->saved, r.to, bytes);
	}
	if (shift % 3 == 0) {
		memset(b->also, GUARD, bytes + 64 + 32);
		r.also = b->also + shift * 5 % 64;
	}
	fn(&r);
	if (r.also != NULL)
		also_checked(b, &r, bytes, seed);
	EXPECT(memcmp(r.to, b->plain, bytes) == 0,
	       "%s %s %s: %u operands, count %lu, alias %u, shift %u, final %u, TEST_SEED=%lu",
	       rb_reduce_name(fn), rubato_type_name(r.type), rubato_operator_name(r.op),
	       r.from_count, (unsigned long)r.count, alias, shift, r.final_count,
	       (unsigned long)seed);
	if (alias < r.from_count) {
		memcpy(b->from[alias] + shift * (alias + 1) % 17, b->saved, bytes);
		return;
	}
	for (uint32_t i = 0; i < shift % 7; i++)
		EXPECT(b->fast[i] == GUARD, "before the target, TEST_SEED=%lu",
		       (unsigned long)seed);
	for (uint32_t i = 0; i < 32; i++)
		EXPECT(b->fast[shift % 7 + bytes + i] == GUARD, "behind the target, TEST_SEED=%lu",
		       (unsigned long)seed);
}

static void twins_of_mode(struct bench *b, rb_reduce_fn fn, struct rb_reduce r, bool divide,
			  uint64_t seed)
{
	struct rb_rng rng = { seed * 977 + (uint64_t)r.type * 16 + (uint64_t)r.op + divide * 1000 };
	uint32_t draws = by_length(30, 600, 2000), all = by_length(40, 270, 270);

	for (uint32_t k = 0; k < OPERANDS; k++)
		scramble(b->from[k], COUNT_MAX, rubato_type_bytes(r.type), &rng);
	r.from_count = 2;
	r.final_count = divide ? 3 : 0;
	for (r.count = 0; r.count <= all; r.count++)
		compare(b, fn, r, 2 + (uint32_t)r.count % 2, (uint32_t)r.count, seed);
	r.past = true;
	for (r.count = 0; r.count <= all; r.count++)
		compare(b, fn, r, 2, (uint32_t)(r.count * 5), seed);
	for (uint32_t i = 0; i < draws; i++) {
		uint64_t below = rb_rng_below(&rng, 8) == 0 ? COUNT_MAX : 300;

		r.count = rb_rng_below(&rng, below);
		r.past = i % 2 == 0;
		r.from_count = 1 + (uint32_t)rb_rng_below(&rng, OPERANDS);
		if (divide)
			r.final_count =
				1 + (uint32_t)rb_rng_below(&rng, 1ull << rb_rng_below(&rng, 33));
		compare(b, fn, r, (uint32_t)rb_rng_below(&rng, OPERANDS + 3),
			(uint32_t)rb_rng_below(&rng, 64), seed);
	}
}

START_TEST(kernels_are_twins)
{
	rb_reduce_fn fn = kernel_wanted(_i);
	struct bench *b = malloc(sizeof(*b));
	uint64_t seed = seed_wanted();

	ck_assert(b != NULL);
	for (uint32_t type = 0; fn != NULL && type < RUBATO_TYPE_COUNT; type++) {
		struct rb_reduce r = { .type = (rubato_type)type };

		for (uint32_t op = 0; op < RUBATO_OPERATOR_COUNT; op++) {
			r.op = (rubato_operator)op;
			twins_of_mode(b, fn, r, false, seed);
		}
		r.op = RUBATO_AVG;
		twins_of_mode(b, fn, r, true, seed);
	}
	free(b);
}
END_TEST

/* Targets so large that they are written past the caches, from and to places of any alignment. */
START_TEST(kernels_are_twins_where_they_stream)
{
	static const uint8_t places[][3] = { { 0, 0, 0 }, { 8, 24, 56 }, { 3, 1, 5 } };
	uint64_t room = RB_STREAM_FROM + 4096;
	uint8_t *buffers[4];
	rb_reduce_fn fn = kernel_wanted(_i);
	struct rb_rng rng = { seed_wanted() };

	for (uint32_t i = 0; i < 4; i++)
		ck_assert((buffers[i] = aligned_alloc(4096, room)) != NULL);
	scramble(buffers[0], room, 1, &rng);
	scramble(buffers[1], room, 1, &rng);
	for (uint32_t type = 0; fn != NULL && type < RUBATO_TYPE_COUNT; type++) {
		const uint8_t *place = places[type % 3];
		const void *from[] = { buffers[0] + place[0], buffers[1] + place[1] };
		struct rb_reduce r = {
			.type = (rubato_type)type,
			.op = type % 2 == 0 ? RUBATO_AVG : RUBATO_MAX,
			.final_count = 3,
			.from = from,
			.from_count = 2,
			.to = buffers[2] + place[2],
		};
		size_t bytes = RB_STREAM_FROM + 5 * rubato_type_bytes(r.type);

		r.count = bytes / rubato_type_bytes(r.type);
		memset(buffers[2], GUARD, room);
		fn(&r);
		EXPECT(buffers[2][place[2] + bytes] == GUARD, "behind the target");
		r.to = buffers[3];
		rb_reduce_plain(&r);
		EXPECT(memcmp(buffers[2] + place[2], buffers[3], bytes) == 0, "%s %s",
		       rb_reduce_name(fn), rubato_type_name(r.type));
	}
	for (uint32_t i = 0; i < 4; i++)
		free(buffers[i]);
}
END_TEST

/* ---- Every value of the short types ---- */

static void divide_all(rb_reduce_fn fn, rubato_type type, const void *values, uint64_t count,
		       uint32_t by, void *fast, void *plain)
{
	struct rb_reduce r = { .type = type, .op = RUBATO_AVG, .final_count = by, .count = count };
	const void *from[] = { values };
	size_t bytes = count * rubato_type_bytes(type);

	r.from = from;
	r.from_count = 1;
	r.to = fast;
	fn(&r);
	r.to = plain;
	rb_reduce_plain(&r);
	EXPECT(memcmp(fast, plain, bytes) == 0, "%s %s / %u", rb_reduce_name(fn),
	       rubato_type_name(type), by);
}

START_TEST(short_integers_divide_exactly)
{
	static const uint32_t counts[] = { 2,   3,   5,   7,    64,    127,   128,   129,
					   255, 256, 257, 1000, 32767, 32768, 65535, 65536 };
	uint8_t *bytes = malloc(65536), *fast = malloc(131072), *plain = malloc(131072);
	uint16_t *words = malloc(131072);
	rb_reduce_fn fn = kernel_wanted(_i);

	ck_assert(bytes != NULL && fast != NULL && plain != NULL && words != NULL);
	for (uint32_t i = 0; i < 65536; i++) {
		words[i] = (uint16_t)i;
		bytes[i] = (uint8_t)i;
	}
	for (uint32_t by = 2; fn != NULL && by < 300; by++) {
		divide_all(fn, RUBATO_INT8, bytes, 256, by, fast, plain);
		divide_all(fn, RUBATO_UINT8, bytes, 256, by, fast, plain);
	}
	for (uint32_t c = 0; fn != NULL && c < sizeof(counts) / sizeof(counts[0]); c++) {
		divide_all(fn, RUBATO_INT16, words, 65536, counts[c], fast, plain);
		divide_all(fn, RUBATO_UINT16, words, 65536, counts[c], fast, plain);
	}
	free(bytes);
	free(fast);
	free(plain);
	free(words);
}
END_TEST

/* A 16-bit float rounded by arithmetic: `bits` of fraction, smallest exponent `low`. */
static double round_to(double value, int bits, int low, double infinite_from)
{
	int exponent = value == 0 ? low : ilogb(value);
	int place = (exponent < low ? low : exponent) - bits;
	double rounded;

	if (isnan(value) || isinf(value))
		return value;
	rounded = ldexp(nearbyint(ldexp(value, -place)), place);
	return fabs(rounded) >= infinite_from ? copysign(HUGE_VAL, value) : rounded;
}

static double half_value(uint16_t half, int bits, int bias)
{
	int exponent = (half & 0x7fff) >> bits, fraction = half & ((1 << bits) - 1);
	int highest = (0x7fff >> bits);
	double value = exponent == highest && fraction != 0 ? (double)NAN
		       : exponent == highest                ? HUGE_VAL
		       : exponent == 0                      ? ldexp(fraction, 1 - bias - bits)
				       : ldexp(fraction + (1 << bits), exponent - bias - bits);

	return (half & 0x8000) != 0 ? -value : value;
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void narrow_check(uint32_t bits)
{
	float value = rb_bits_float(bits);
	double f16 = round_to((double)value, 10, -14, 65536), bf16;

	bf16 = round_to((double)value, 7, -126, 0x1p128);
	EXPECT(same(half_value(rb_f16_narrow(value), 10, 15), f16), "float16 of %#x", bits);
	EXPECT(same(half_value(rb_bf16_narrow(value), 7, 127), bf16), "bfloat16 of %#x", bits);
}

START_TEST(half_floats_convert_exactly)
{
	uint64_t step = by_length(65537 * 16, 65537 / 16, 61);

	for (uint32_t h = 0; h < 65536; h++) {
		uint16_t half = (uint16_t)h;
		float f16 = rb_f16_widen(half), bf16 = rb_bf16_widen(half);
		double value = half_value(half, 10, 15);

		EXPECT(same((double)f16, value), "float16 %#x", h);
		EXPECT(same((double)bf16, half_value(half, 7, 127)), "bfloat16 %#x", h);
		/* There and back: itself, or the NaN made quiet. */
		EXPECT(rb_f16_narrow(f16) == (isnan(value) ? half | 0x200 : half), "float16 %#x",
		       h);
		EXPECT(rb_bf16_narrow(bf16) == (isnan(bf16) ? half | 0x40 : half), "bfloat16 %#x",
		       h);
		/* The ties between it and the next, and what lies beside them. */
		if (!isnan(value) && !isinf(value))
			for (uint32_t d = 0; d < 3; d++) {
				narrow_check(rb_float_bits(f16) + 0xfff + d);
				narrow_check(rb_float_bits(bf16) + 0x7fff + d);
			}
	}
	for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step)
		narrow_check((uint32_t)bits);
}
END_TEST

/* Every 16-bit float to float32; back come random bits and hostile ones, from odd places too. */
START_TEST(converters_are_twins)
{
	uint8_t *from = malloc(65536 * 4 + 16), *fast = malloc(65536 * 4 + 16);
	uint8_t *plain = malloc(65536 * 4 + 16);
	rb_reduce_fn fn = kernel_wanted(_i);
	struct rb_rng rng = { seed_wanted() };

	ck_assert(from != NULL && fast != NULL && plain != NULL);
	for (uint32_t mode = 0; fn != NULL && mode < 4; mode++) {
		struct rb_convert c = { .half = mode & 1 ? RUBATO_FLOAT16 : RUBATO_BFLOAT16,
					.narrow = mode >= 2,
					.from = from + mode,
					.count = 65536 - mode };

		for (uint32_t i = 0; i < 65536 && !c.narrow; i++)
			memcpy(from + mode + 2 * i, &(uint16_t) { (uint16_t)i }, 2);
		if (c.narrow)
			scramble(from + mode, 65536, 4, &rng);
		memset(fast, GUARD, 65536 * 4 + 16);
		memset(plain, GUARD, 65536 * 4 + 16);
		c.to = fast + 1;
		rb_convert_of(fn)(&c);
		c.to = plain + 1;
		rb_convert_plain(&c);
		EXPECT(memcmp(fast, plain, 65536 * 4 + 16) == 0, "%s, mode %u", rb_reduce_name(fn),
		       mode);
	}
	free(from);
	free(fast);
	free(plain);
}
END_TEST

/* All of them, with each operator and a few partners. */
START_TEST(kernels_convert_every_half_float)
{
	static const uint32_t partner[] = { 0x0000, 0x0001, 0x3c00, 0x1400, 0x7bff, 0x8001 };
	uint16_t *halves = malloc(131072), *other = malloc(131072);
	uint8_t *fast = malloc(131072), *plain = malloc(131072);
	rb_reduce_fn fn = kernel_wanted(_i);
	const void *from[] = { halves, other };

	ck_assert(halves != NULL && other != NULL && fast != NULL && plain != NULL);
	for (uint32_t p = 0; fn != NULL && p < by_length(1, 6, 6); p++) {
		struct rb_reduce r = { .from = from, .from_count = 2, .count = 65536 };

		for (uint32_t i = 0; i < 65536; i++) {
			halves[i] = (uint16_t)i;
			other[i] = (uint16_t)partner[p];
		}
		for (r.type = RUBATO_FLOAT16; r.type <= RUBATO_BFLOAT16; r.type++) {
			for (uint32_t op = 0; op < RUBATO_OPERATOR_COUNT; op++) {
				r.op = (rubato_operator)op;
				r.final_count = 3;
				r.to = fast;
				fn(&r);
				r.to = plain;
				rb_reduce_plain(&r);
				EXPECT(memcmp(fast, plain, 131072) == 0, "%s %s %s, %#x",
				       rb_reduce_name(fn), rubato_type_name(r.type),
				       rubato_operator_name(r.op), partner[p]);
			}
		}
	}
	free(halves);
	free(other);
	free(fast);
	free(plain);
}
END_TEST

/* ---- What the plain twin says ---- */

static uint64_t reduce_bits(rubato_type type, rubato_operator op, uint64_t a, uint64_t b)
{
	const void *from[] = { &a, &b };
	uint64_t to = 0;
	struct rb_reduce r = { .type = type,
			       .op = op,
			       .final_count = 0,
			       .to = &to,
			       .from = from,
			       .from_count = 2,
			       .count = 1 };

	rb_reduce_plain(&r);
	return to;
}

START_TEST(nan_is_canonical_and_zeros_are_ordered)
{
	static const struct {
		rubato_type type;
		uint64_t sign, one, infinite, signalling, canonical;
	} floats[] = {
		{ RUBATO_FLOAT32, 0x80000000, 0x3f800000, 0x7f800000, 0xff812345, 0x7fc00000 },
		{ RUBATO_FLOAT64, 0x8000000000000000, 0x3ff0000000000000, 0x7ff0000000000000,
		  0xfff0123456789abc, 0x7ff8000000000000 },
		{ RUBATO_FLOAT16, 0x8000, 0x3c00, 0x7c00, 0xfc55, 0x7e00 },
		{ RUBATO_BFLOAT16, 0x8000, 0x3f80, 0x7f80, 0xff95, 0x7fc0 },
	};

	for (uint32_t t = 0; t < 4; t++) {
		rubato_type type = floats[t].type;
		uint64_t sign = floats[t].sign, one = floats[t].one, inf = floats[t].infinite;
		uint64_t nan = floats[t].canonical, odd = floats[t].signalling;

		for (uint32_t o = 0; o < RUBATO_OPERATOR_COUNT; o++) {
			rubato_operator op = (rubato_operator)o;

			ck_assert_uint_eq(reduce_bits(type, op, odd, one), nan);
			ck_assert_uint_eq(reduce_bits(type, op, one, odd), nan);
			ck_assert_uint_eq(reduce_bits(type, op, odd, nan | sign), nan);
			ck_assert_uint_eq(reduce_bits(type, op, odd, inf), nan);
		}
		ck_assert_uint_eq(reduce_bits(type, RUBATO_SUM, inf, inf | sign), nan);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_PROD, inf | sign, 0), nan);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, 0, sign), 0);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, sign, 0), 0);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, sign, sign), sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MIN, 0, sign), sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MIN, sign, 0), sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MIN, 0, 0), 0);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, one, inf | sign), one);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MIN, one, inf | sign), inf | sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_PROD, one | sign, inf), inf | sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_PROD, sign, one), sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_SUM, sign, sign), sign);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_SUM, 1, 1), 2); /* Subnormal. */
	}
}
END_TEST

START_TEST(integers_wrap)
{
	static const struct {
		rubato_type type;
		uint64_t mask, low, high; /* Of `bits` bits; the least and the greatest. */
	} ints[] = {
		{ RUBATO_INT8, 0xff, 0x80, 0x7f },
		{ RUBATO_UINT8, 0xff, 0, 0xff },
		{ RUBATO_INT16, 0xffff, 0x8000, 0x7fff },
		{ RUBATO_UINT16, 0xffff, 0, 0xffff },
		{ RUBATO_INT32, 0xffffffff, 0x80000000, 0x7fffffff },
		{ RUBATO_UINT32, 0xffffffff, 0, 0xffffffff },
		{ RUBATO_INT64, UINT64_MAX, 0x8000000000000000, INT64_MAX },
		{ RUBATO_UINT64, UINT64_MAX, 0, UINT64_MAX },
	};

	for (uint32_t t = 0; t < 8; t++) {
		uint64_t mask = ints[t].mask, low = ints[t].low, high = ints[t].high;
		rubato_type type = ints[t].type;

		ck_assert_uint_eq(reduce_bits(type, RUBATO_SUM, high, 5), (high + 5) & mask);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_PROD, high, high), high * high & mask);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_PROD, low, 3), low * 3 & mask);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, low, high), high);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MAX, high, low), high);
		ck_assert_uint_eq(reduce_bits(type, RUBATO_MIN, low, high), low);
	}
}
END_TEST

/* Divides the one operand `a` by `count`. */
static uint64_t average_bits(rubato_type type, uint64_t a, uint32_t count)
{
	const void *from[] = { &a };
	uint64_t to = 0;

	rb_reduce_plain(&(struct rb_reduce) { .type = type,
					      .op = RUBATO_AVG,
					      .final_count = count,
					      .to = &to,
					      .from = from,
					      .from_count = 1,
					      .count = 1 });
	return to;
}

START_TEST(averages_divide_once)
{
	float third = 1.0f / 3.0f;

	ck_assert_uint_eq(average_bits(RUBATO_INT64, (uint64_t)-7, 2), (uint64_t)-3);
	ck_assert_uint_eq(average_bits(RUBATO_UINT64, (uint64_t)-7, 2), ((uint64_t)-7) / 2);
	ck_assert_uint_eq(average_bits(RUBATO_INT8, 0x80, 3), (uint8_t)-42);
	ck_assert_uint_eq(average_bits(RUBATO_UINT8, 0x80, 3), 42);
	ck_assert_uint_eq(average_bits(RUBATO_UINT16, 0xffff, 65535), 1);
	ck_assert_uint_eq(average_bits(RUBATO_FLOAT32, 0x3f800000, 3), rb_float_bits(third));
	ck_assert_uint_eq(average_bits(RUBATO_FLOAT16, 0x3c00, 3), rb_f16_narrow(third));
	/* One operand and nothing to divide: a copy, whatever it holds. */
	ck_assert_uint_eq(average_bits(RUBATO_FLOAT32, 0xff812345, 0), 0xff812345);
	ck_assert_uint_eq(average_bits(RUBATO_FLOAT32, 0xff812345, 1), 0xff812345);
	ck_assert_uint_eq(average_bits(RUBATO_FLOAT32, 0xff812345, 2), 0x7fc00000);
}
END_TEST

/* 2048 + 1 + 1 is 2048 when each addition is rounded to float16, and 2050 when the last only. */
START_TEST(half_floats_round_once_a_step)
{
	uint16_t values[] = { 0x6800, 0x3c00, 0x3c00, 0x6800 }, to = 0;
	const void *from[] = { &values[0], &values[1], &values[2] };
	struct rb_reduce r = { .type = RUBATO_FLOAT16,
			       .op = RUBATO_SUM,
			       .final_count = 0,
			       .to = &to,
			       .from = from,
			       .from_count = 3,
			       .count = 1 };
	uint16_t largest = 0x7bff;

	rb_reduce_plain(&r);
	ck_assert_uint_eq(to, rb_f16_narrow(2050.0f));
	/* Nor does the sum overflow before the division. */
	from[0] = from[1] = from[2] = &largest;
	r.op = RUBATO_AVG;
	r.final_count = 3;
	rb_reduce_plain(&r);
	ck_assert_uint_eq(to, largest);
}
END_TEST

#ifdef RB_REDUCE_X86
/* Flushes subnormals and rounds upward, as an application's thread may. */
static uint32_t float_mode_disturb(void)
{
	uint32_t was = __builtin_ia32_stmxcsr();

	__builtin_ia32_ldmxcsr(0xdfc0);
	return was;
}

static uint32_t float_mode(void)
{
	return __builtin_ia32_stmxcsr() & 0xffc0;
}

static void float_mode_restore(uint32_t was)
{
	__builtin_ia32_ldmxcsr(was);
}
#elif defined(RB_REDUCE_NEON)
static uint32_t float_mode(void)
{
	uint64_t mode;

	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return (uint32_t)mode;
}

static void float_mode_restore(uint32_t was)
{
	__asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)was) : "memory");
}

/* Besides, the other float16, which has no infinities, and nothing of a NaN's bits is kept. */
static uint32_t float_mode_disturb(void)
{
	uint32_t was = float_mode();

	float_mode_restore(1u << 26 | 1u << 25 | 1u << 24 | 1u << 22);
	return was;
}
#endif

#if defined(RB_REDUCE_X86) || defined(RB_REDUCE_NEON)
#define MODE_ELEMENTS 67

/* To float16 and back: 65536 is infinite, a third is rounded downward. */
static void mode_converts(rb_reduce_fn fn, uint32_t back[2])
{
	const uint32_t from[8] = { 0x47800000, 0x3eaaaaab, 0, 0, 0x47800000, 0x3eaaaaab };
	uint32_t wide[8];
	uint16_t half[8];

	rb_convert_of(fn)(&(struct rb_convert) { RUBATO_FLOAT16, true, from, half, 8 });
	rb_convert_of(fn)(&(struct rb_convert) { RUBATO_FLOAT16, false, half, wide, 8 });
	memcpy(back, wide, 8);
}

START_TEST(the_callers_float_mode_does_not_matter)
{
	rb_reduce_fn fn = kernel_wanted(_i);
	uint32_t tiny[MODE_ELEMENTS], one[MODE_ELEMENTS], to[3][MODE_ELEMENTS], was, kept, now;
	uint64_t one64[MODE_ELEMENTS], to64[MODE_ELEMENTS];
	uint32_t converted[2];
	const void *tinies[] = { tiny, tiny }, *ones[] = { one, tiny }, *ones64[] = { one64 };
	const uint64_t n = MODE_ELEMENTS;

	for (uint32_t i = 0; i < n; i++) {
		tiny[i] = 3;
		one[i] = 0x3f800000;
		one64[i] = 0x3ff0000000000000;
	}
	if (fn == NULL)
		return;
	was = float_mode_disturb();
	kept = float_mode(); /* Valgrind keeps the rounding alone. */
	fn(&(struct rb_reduce) { .type = RUBATO_FLOAT32,
				 .op = RUBATO_SUM,
				 .final_count = 0,
				 .to = to[0],
				 .from = tinies,
				 .from_count = 2,
				 .count = n });
	fn(&(struct rb_reduce) { .type = RUBATO_FLOAT32,
				 .op = RUBATO_SUM,
				 .final_count = 0,
				 .to = to[1],
				 .from = ones,
				 .from_count = 2,
				 .count = n });
	fn(&(struct rb_reduce) { .type = RUBATO_FLOAT32,
				 .op = RUBATO_AVG,
				 .final_count = 29,
				 .to = to[2],
				 .from = ones,
				 .from_count = 1,
				 .count = n });
	fn(&(struct rb_reduce) { .type = RUBATO_FLOAT64,
				 .op = RUBATO_AVG,
				 .final_count = 29,
				 .to = to64,
				 .from = ones64,
				 .from_count = 1,
				 .count = n });
	mode_converts(fn, converted);
	now = float_mode();
	float_mode_restore(was);
	ck_assert_uint_eq(converted[0], 0x7f800000);
	ck_assert_uint_eq(converted[1], 0x3eaaa000);
	ck_assert_uint_ne(kept, float_mode());
	ck_assert_uint_eq(now, kept);
	for (uint32_t i = 0; i < n; i++) {
		EXPECT(to[0][i] == 6 && to[1][i] == one[i], "sums, element %u", i);
		/* The nearest to 1 / 29 is below it, in both types. */
		EXPECT(to[2][i] == 0x3d0d3dcb, "average %#x, element %u", to[2][i], i);
		EXPECT(to64[i] == average_bits(RUBATO_FLOAT64, one64[i], 29), "element %u", i);
	}
}
END_TEST
#endif

START_TEST(kernels_have_names)
{
	ck_assert_str_ne(rb_reduce_name(rb_reduce_best()), "unknown");
	ck_assert_str_eq(rb_reduce_name(rb_reduce_plain), "plain");
	ck_assert(rb_reduce_usable(rb_reduce_best()));
	ck_assert(rb_reduce_kernel(0) == rb_reduce_plain);
	ck_assert(rb_reduce_kernel(KERNELS) == NULL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("reduce");

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, kernels_are_twins, 0, KERNELS);
	tcase_add_loop_test(tc, kernels_are_twins_where_they_stream, 1, KERNELS);
	tcase_add_loop_test(tc, short_integers_divide_exactly, 1, KERNELS);
	tcase_add_loop_test(tc, kernels_convert_every_half_float, 1, KERNELS);
	tcase_add_loop_test(tc, converters_are_twins, 1, KERNELS);
	tcase_add_test(tc, half_floats_convert_exactly);
	tcase_add_test(tc, nan_is_canonical_and_zeros_are_ordered);
	tcase_add_test(tc, integers_wrap);
	tcase_add_test(tc, averages_divide_once);
	tcase_add_test(tc, half_floats_round_once_a_step);
#ifdef MODE_ELEMENTS
	tcase_add_loop_test(tc, the_callers_float_mode_does_not_matter, 0, KERNELS);
#endif
	tcase_add_test(tc, kernels_have_names);
	return check_main("reduce", tc);
}
