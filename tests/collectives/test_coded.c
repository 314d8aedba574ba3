/*
 * test_coded.c -- every coder that this processor has gives the plain twin's bits; and the plain
 * twin does what coded.h and rubato.h say. TEST_SEED takes back the seed of a failure.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/reduce/coded_unit.h"
#include "collectives/reduce/kernels.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define KERNELS 4 /* At most, whatever the processor. */
#define OPERANDS 7
#define UNITS_MAX 9
#define COUNT_MAX (UNITS_MAX * RB_CODE_INT8_VALUES)
#define GUARD 0x5a

static const uint32_t hostile[] = {
	0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001,
	0xff812345, 0x00000001, 0x80000001, 0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x3f800000,
	0xbf800000, 0x3f808000, 0x3f818000, 0x00800000, 0x007fffff, 0x0000003f, 0x0000007f,
};

#define EXPECT(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg(__VA_ARGS__);                                                 \
	} while (0)

static const struct rb_coders *coders_wanted(int index)
{
	rb_reduce_fn fn = rb_reduce_kernel((uint32_t)index);

	if (fn != NULL && rb_reduce_usable(fn))
		return rb_coders_of(fn);
	(void)fprintf(stderr, "kernel %d (%s): not tested, this processor has it not\n", index,
		      fn != NULL ? rb_reduce_name(fn) : "not built in");
	return NULL;
}

/* How values are drawn: 0 ordinary ones of one size, 1 of all sizes, 2 hostile ones among them. */
static void draw(float *values, uint64_t count, uint32_t how, struct rb_rng *rng)
{
	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits = (uint32_t)rb_rng_next(rng);

		if (how == 0)
			bits = (bits & 0x807fffff) | 0x3f000000;
		else if ((bits & 0x7f800000) == 0x7f800000)
			bits ^= 0x00800000;
		if (how == 2 && rb_rng_below(rng, 16) == 0)
			bits = hostile[rb_rng_below(rng, sizeof(hostile) / sizeof(*hostile))];
		values[i] = rb_bits_float(bits);
	}
}

/* ---- Twins ---- */

struct bench {
	uint8_t from[OPERANDS][COUNT_MAX * 4 + 64], to[2][COUNT_MAX * 4 + 64];
	float residual[2][COUNT_MAX];
};

static uint64_t bytes_out(const struct rb_coded *c, rb_coded_fn fn, const struct rb_coders *coders)
{
	if (fn == coders->decode)
		return c->count * sizeof(float);
	return (fn == coders->reduce ? c->count : rb_code_units(c->wire, c->count)) *
	       rb_code_bytes(c->wire);
}

/* Operand k begins at (shift * k) mod 5; the target is operand `alias`, or its own. */
static void compare(struct bench *b, rb_coded_fn fast, rb_coded_fn plain, struct rb_coded c,
		    uint32_t alias, uint32_t shift, bool keeps)
{
	const void *from[OPERANDS];
	uint64_t bytes = bytes_out(&c, plain, &rb_coders_plain);

	for (uint32_t k = 0; k < c.from_count; k++)
		from[k] = b->from[k] + shift * k % 5;
	c.from = from;
	memcpy(b->residual[1], b->residual[0], sizeof(b->residual[0]));
	memset(b->to, GUARD, sizeof(b->to));
	c.to = b->to[0] + shift % 3;
	c.residual = keeps ? b->residual[0] : NULL;
	plain(&c);
	c.residual = keeps ? b->residual[1] : NULL;
	c.to = b->to[1] + shift % 3;
	if (alias < c.from_count && plain == rb_coders_plain.reduce) {
		memcpy(b->to[1] + shift % 3, from[alias], bytes);
		from[alias] = c.to;
	}
	fast(&c);
	EXPECT(memcmp(b->to[0], b->to[1], sizeof(b->to[0])) == 0,
	       "%s, %u operands, count %lu, alias %u, shift %u, final %u, residual %d",
	       rubato_wire_name(c.wire), c.from_count, (unsigned long)c.count, alias, shift,
	       c.final_count, keeps);
	EXPECT(memcmp(b->residual[0], b->residual[1], sizeof(b->residual[0])) == 0,
	       "residual of %s, %u operands, count %lu", rubato_wire_name(c.wire), c.from_count,
	       (unsigned long)c.count);
	for (uint64_t i = shift % 3 + bytes; i < sizeof(b->to[0]); i++)
		EXPECT(b->to[1][i] == GUARD, "behind the target");
}

/* Coded vectors, and a share of random bytes: what peers send may be anything. */
static void operands_draw(struct bench *b, rubato_wire wire, uint32_t how, struct rb_rng *rng)
{
	float values[COUNT_MAX];
	const void *from = values;

	for (uint32_t k = 0; k < OPERANDS; k++) {
		uint32_t shift = (uint32_t)rb_rng_below(rng, 5);
		struct rb_coded c = { .wire = wire,
				      .to = b->from[k] + shift,
				      .from = &from,
				      .from_count = 1,
				      .count = COUNT_MAX };

		draw(values, COUNT_MAX, how, rng);
		if (rb_rng_below(rng, 8) == 0)
			memcpy(b->from[k], values, sizeof(values));
		else
			rb_coders_plain.encode(&c);
	}
}

static void twins_of(struct bench *b, const struct rb_coders *fast, rubato_wire wire,
		     struct rb_rng *rng)
{
	struct rb_coded c = { .wire = wire, .from_count = 1 };
	uint32_t how = (uint32_t)rb_rng_below(rng, 3), shift = (uint32_t)rb_rng_below(rng, 64);
	bool keeps = rb_rng_below(rng, 2) == 0;
	float values[COUNT_MAX];

	c.count = rb_rng_below(rng, COUNT_MAX + 1);
	draw(b->residual[0], COUNT_MAX, how == 2 ? 1 : how, rng);
	draw(values, COUNT_MAX, how, rng);
	memcpy(b->from[0], values, sizeof(values));
	compare(b, fast->encode, rb_coders_plain.encode, c, OPERANDS, shift, keeps);
	operands_draw(b, wire, how, rng);
	compare(b, fast->decode, rb_coders_plain.decode, c, OPERANDS, shift, false);
	c.count = rb_code_units(wire, c.count);
	c.from_count = 1 + (uint32_t)rb_rng_below(rng, OPERANDS);
	c.final_count = rb_rng_below(rng, 2) == 0 ? 0 : (uint32_t)rb_rng_below(rng, 100000);
	/* The target of a reduction in place lies where its operand would: unshifted. */
	compare(b, fast->reduce, rb_coders_plain.reduce, c,
		(uint32_t)rb_rng_below(rng, 2 * OPERANDS), shift, keeps);
}

START_TEST(coders_are_twins)
{
	const struct rb_coders *fast = coders_wanted(_i);
	struct bench *b = calloc(1, sizeof(*b));
	uint32_t draws = test_length() == TEST_SHORT ? 100 : 2000;
	uint64_t seed = 1;

	ck_assert(b != NULL);
	(void)seeds_given(&seed);
	struct rb_rng rng = { seed * 7919 };

	for (uint32_t i = 0; fast != NULL && i < draws; i++)
		for (uint32_t wire = 1; wire < RUBATO_WIRE_COUNT; wire++)
			twins_of(b, fast, (rubato_wire)wire, &rng);
	free(b);
}
END_TEST

/* ---- What is right ---- */

static void code(rubato_wire wire, float *values, uint64_t count, float *residual)
{
	uint8_t units[COUNT_MAX * 4];
	const void *from[2] = { values, units };
	struct rb_coded there = { .wire = wire,
				  .to = units,
				  .from = from,
				  .from_count = 1,
				  .count = count,
				  .residual = residual };
	struct rb_coded back = {
		.wire = wire, .to = values, .from = from + 1, .from_count = 1, .count = count
	};

	rb_coders_plain.encode(&there);
	rb_coders_plain.decode(&back);
}

START_TEST(bfloat16_rounds_to_nearest_even)
{
	static const uint32_t cases[][2] = {
		{ 0x3f800000, 0x3f800000 }, { 0x3f808000, 0x3f800000 }, { 0x3f818000, 0x3f820000 },
		{ 0x3f808001, 0x3f810000 }, { 0x7f7fffff, 0x7f800000 }, { 0xff800000, 0xff800000 },
		{ 0xffc12345, 0x7fc00000 }, { 0x00000001, 0x00000000 }, { 0x00018000, 0x00020000 },
		{ 0x80000000, 0x80000000 },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		float value = rb_bits_float(cases[i][0]);

		code(RUBATO_WIRE_BFLOAT16, &value, 1, NULL);
		ck_assert_uint_eq(rb_float_bits(value), cases[i][1]);
	}
}
END_TEST

/* Half a step of the largest magnitude / 127, at most; the largest itself is exact but for the
 * scale's own rounding. */
START_TEST(int8_errs_by_half_a_step_at_most)
{
	struct rb_rng rng = { 3 };
	float values[COUNT_MAX], got[COUNT_MAX];

	for (uint32_t how = 0; how < 2; how++) {
		draw(values, COUNT_MAX, how, &rng);
		memcpy(got, values, sizeof(got));
		code(RUBATO_WIRE_INT8, got, COUNT_MAX - 5, NULL);
		for (uint32_t u = 0; u < UNITS_MAX; u++) {
			double most = 0;

			for (uint32_t i = u * 128; i < u * 128 + 128 && i < COUNT_MAX - 5; i++)
				most = fmax(most, fabs((double)values[i]));
			for (uint32_t i = u * 128; i < u * 128 + 128 && i < COUNT_MAX - 5; i++)
				EXPECT(fabs((double)got[i] - (double)values[i]) <=
					       most / 254 * (1 + 1e-5),
				       "%g became %g, of at most %g", values[i], got[i], most);
		}
	}
}
END_TEST

START_TEST(int8_of_what_is_not_finite)
{
	float values[256], residual[256];

	for (uint32_t i = 0; i < 256; i++) {
		values[i] = i == 7 ? -INFINITY : i == 200 ? -0.0f : 1.0f;
		residual[i] = 0.25f;
	}
	code(RUBATO_WIRE_INT8, values, 256, residual);
	for (uint32_t i = 0; i < 128; i++) {
		ck_assert_uint_eq(rb_float_bits(values[i]), 0x7fc00000);
		ck_assert(residual[i] == 0.0f);
	}
	ck_assert(fabsf(values[130] - 1.25f) <= 1e-6f);
	/* Zeros have one sign; where all are zero nothing is divided by nothing. */
	memset(values, 0x80, sizeof(values));
	for (uint32_t i = 0; i < 128; i++)
		values[i] = -0.0f;
	code(RUBATO_WIRE_INT8, values, 128, NULL);
	for (uint32_t i = 0; i < 128; i++)
		ck_assert_uint_eq(rb_float_bits(values[i]), 0);
}
END_TEST

/* The sum of what came out, and what is left, is the sum of what went in: exactly, where float32
 * has room for it. What is left is half a step at most. */
START_TEST(feedback_loses_nothing)
{
	for (uint32_t wire = 1; wire < RUBATO_WIRE_COUNT; wire++) {
		double in[COUNT_MAX] = { 0 }, out[COUNT_MAX] = { 0 };
		float residual[COUNT_MAX] = { 0 }, values[COUNT_MAX];
		struct rb_rng rng = { 17 };
		bool lost = false;

		for (uint32_t step = 0; step < 50; step++) {
			for (uint32_t i = 0; i < COUNT_MAX; i++) {
				values[i] = (float)((int)rb_rng_below(&rng, 2001) - 1000);
				in[i] += (double)values[i];
				/* A power of two times 127: the scale is one, so all is exact. */
				if (wire == RUBATO_WIRE_INT8 && i % 128 == 0) {
					in[i] += 127 * 16 - (double)values[i];
					values[i] = 127 * 16;
				}
			}
			code((rubato_wire)wire, values, COUNT_MAX, residual);
			for (uint32_t i = 0; i < COUNT_MAX; i++) {
				out[i] += (double)values[i];
				lost = lost || residual[i] != 0.0f;
				EXPECT(in[i] == out[i] + (double)residual[i],
				       "wire %u, step %u, value %u: %g in, %g out, %g left", wire,
				       step, i, in[i], out[i], (double)residual[i]);
				EXPECT(fabsf(residual[i]) <= 8.0f, "%g left", (double)residual[i]);
			}
		}
		ck_assert(lost);
	}
}
END_TEST

/* A reduction adds in the order of its operands, divides, and rounds once. */
START_TEST(a_reduction_rounds_once)
{
	float inputs[3][COUNT_MAX], sum[COUNT_MAX];
	uint8_t units[3][COUNT_MAX * 4];
	const void *from[3];
	struct rb_rng rng = { 29 };

	for (uint32_t wire = 1; wire < RUBATO_WIRE_COUNT; wire++) {
		struct rb_coded c = { .wire = (rubato_wire)wire, .from_count = 1 };

		for (uint32_t k = 0; k < 3; k++) {
			const void *in = inputs[k];

			draw(inputs[k], COUNT_MAX, 0, &rng);
			c.from = &in;
			c.to = units[k];
			c.count = COUNT_MAX;
			rb_coders_plain.encode(&c);
			code((rubato_wire)wire, inputs[k], COUNT_MAX, NULL);
			from[k] = units[k];
		}
		for (uint32_t i = 0; i < COUNT_MAX; i++)
			sum[i] = (inputs[0][i] + inputs[1][i] + inputs[2][i]) * (1.0f / 3);
		code((rubato_wire)wire, sum, COUNT_MAX, NULL);
		c.from = from;
		c.from_count = 3;
		c.final_count = 3;
		c.to = units[1];
		c.count = rb_code_units((rubato_wire)wire, COUNT_MAX);
		rb_coders_plain.reduce(&c);
		c.from = from + 1;
		c.to = inputs[0];
		c.count = COUNT_MAX;
		rb_coders_plain.decode(&c);
		ck_assert_mem_eq(inputs[0], sum, sizeof(sum));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("coded");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, coders_are_twins, 1, KERNELS);
	tcase_add_test(tc, bfloat16_rounds_to_nearest_even);
	tcase_add_test(tc, int8_errs_by_half_a_step_at_most);
	tcase_add_test(tc, int8_of_what_is_not_finite);
	tcase_add_test(tc, feedback_loses_nothing);
	tcase_add_test(tc, a_reduction_rounds_once);
	return check_main("coded", tc);
}
