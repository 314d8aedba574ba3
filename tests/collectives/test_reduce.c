/*
 * test_reduce.c -- every kernel that this processor has gives the plain twin's bits; and the plain
 * twin does what reduce.h says.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/reduce/kernels.h"
#include "tests/check_main.h"

#define OPERANDS 9
#define ROOM ((70000 + 16) * sizeof(double))

static const uint32_t hostile32[] = {
	0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7fc12345,
	0xffc54321, 0x7f800001, 0xff812345, 0x00000001, 0x80000001, 0x7f7fffff, 0xff7fffff,
	0x3f800000, 0xbf800000, 0x7fffffff, 0xffffffff, 0x34000000, 0x4b800001,
};
static const uint64_t hostile64[] = {
	0x0000000000000000, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000,
	0x7ff8000000000000, 0xfff8000000000000, 0x7ff8123456789abc, 0xfff8cba987654321,
	0x7ff0000000000001, 0xfff0123400000000, 0x0000000000000001, 0x7fefffffffffffff,
	0xffefffffffffffff, 0x3ff0000000000000, 0x7fffffffffffffff, 0xffffffffffffffff,
};

/* Half of the elements from the list above, half random bits. */
static void scramble(unsigned char *bytes, uint64_t count, size_t size, struct rb_rng *rng)
{
	for (uint64_t i = 0; i < count; i++) {
		uint64_t draw = rb_rng_next(rng), value = rb_rng_next(rng);

		if (draw % 2 == 0 && size == 4)
			value = hostile32[rb_rng_below(rng, sizeof(hostile32) / 4)];
		else if (draw % 2 == 0)
			value = hostile64[rb_rng_below(rng, sizeof(hostile64) / 8)];
		memcpy(bytes + i * size, &value, size);
	}
}

struct bench {
	unsigned char *from[OPERANDS], *fast, *plain, *saved;
};

static void open_bench(struct bench *b)
{
	unsigned char **all[] = { &b->fast, &b->plain, &b->saved };

	for (uint32_t k = 0; k < OPERANDS; k++)
		ck_assert((b->from[k] = malloc(ROOM)) != NULL);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert((*all[i] = malloc(ROOM)) != NULL);
}

static void close_bench(struct bench *b)
{
	for (uint32_t k = 0; k < OPERANDS; k++)
		free(b->from[k]);
	free(b->fast);
	free(b->plain);
	free(b->saved);
}

/* One reduction by both, into a target of its own (alias == operands) or into an operand. */
static void compare(struct bench *b, rb_reduce_fn fn, struct rb_reduce r, uint32_t alias,
		    uint32_t shift)
{
	size_t size = rubato_type_bytes(r.type), bytes = r.count * size;
	const void *from[OPERANDS];

	for (uint32_t k = 0; k < r.from_count; k++)
		from[k] = b->from[k] + (shift * (k + 1)) % 13;
	r.from = from;
	r.to = b->plain;
	rb_reduce_plain(&r);
	memset(b->fast, 0x5a, bytes + 16);
	r.to = b->fast + shift % 7;
	if (alias < r.from_count) {
		r.to = b->from[alias] + (shift * (alias + 1)) % 13;
		memcpy(b->saved, r.to, bytes);
	}
	fn(&r);
	ck_assert_msg(memcmp(r.to, b->plain, bytes) == 0,
		      "%s %s %s: %u operands, count %lu, alias %u, shift %u, final %u",
		      rb_reduce_name(fn), rubato_type_name(r.type), rubato_operator_name(r.op),
		      r.from_count, (unsigned long)r.count, alias, shift, r.final_count);
	if (alias < r.from_count)
		memcpy(b->from[alias] + (shift * (alias + 1)) % 13, b->saved, bytes);
	else
		ck_assert_uint_eq(b->fast[shift % 7 + bytes], 0x5a);
}

static bool pick_kernel(int index, rb_reduce_fn *fn)
{
#ifdef RB_REDUCE_X86
	if (index == 1) {
		*fn = rb_reduce_avx2;
		return __builtin_cpu_supports("avx2");
	}
	if (index == 2) {
		*fn = rb_reduce_avx512;
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
	}
#endif
	*fn = rb_reduce_plain; /* Against itself: only aliasing is in question. */
	return index == 0;
}

START_TEST(kernels_are_twins)
{
	static const uint64_t large[] = { 127, 128, 129, 255, 2047, 2048, 2049, 4096, 65537 };
	rb_reduce_fn fn;
	struct bench b;
	struct rb_rng rng = { 7 };

	if (!pick_kernel(_i, &fn))
		return;
	open_bench(&b);
	for (uint32_t mode = 0; mode < RUBATO_TYPE_COUNT * (RUBATO_OPERATOR_COUNT + 1); mode++) {
		struct rb_reduce r = { .type = (rubato_type)(mode % RUBATO_TYPE_COUNT) };
		uint32_t op = mode / RUBATO_TYPE_COUNT;

		/* The last mode is the average that divides; before it, the one that sums. */
		r.op = op < RUBATO_OPERATOR_COUNT ? (rubato_operator)op : RUBATO_AVG;
		r.final_count = op < RUBATO_OPERATOR_COUNT ? 0 : 7;
		for (uint32_t k = 0; k < OPERANDS; k++)
			scramble(b.from[k], 70000, rubato_type_bytes(r.type), &rng);
		for (r.count = 0; r.count <= 70; r.count++)
			for (r.from_count = 1; r.from_count <= OPERANDS; r.from_count++)
				for (uint32_t a = 0; a <= r.from_count; a++)
					compare(&b, fn, r, a, (uint32_t)(r.count + a) % 4 * 3);
		for (uint32_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
			for (r.from_count = 1; r.from_count <= OPERANDS; r.from_count += 2) {
				r.count = large[i];
				r.final_count = r.final_count ? 3 + i : 0;
				compare(&b, fn, r, i % OPERANDS, i);
			}
	}
	close_bench(&b);
}
END_TEST

static uint32_t reduce_bits(rubato_operator op, uint32_t a, uint32_t b)
{
	const void *from[] = { &a, &b };
	uint32_t to = 0;
	struct rb_reduce r = { RUBATO_FLOAT32, op, 0, &to, from, 2, 1 };

	rb_reduce_plain(&r);
	return to;
}

START_TEST(plain_twin_keeps_its_word)
{
	/* Signed zeros are neither greater nor less: the second operand stays. */
	ck_assert_uint_eq(reduce_bits(RUBATO_MAX, 0x00000000, 0x80000000), 0x80000000);
	ck_assert_uint_eq(reduce_bits(RUBATO_MAX, 0x80000000, 0x00000000), 0x00000000);
	ck_assert_uint_eq(reduce_bits(RUBATO_MIN, 0x80000000, 0x00000000), 0x00000000);
	/* NaN from either side comes through max and min untouched, the first one's before. */
	ck_assert_uint_eq(reduce_bits(RUBATO_MAX, 0x7fc12345, 0x3f800000), 0x7fc12345);
	ck_assert_uint_eq(reduce_bits(RUBATO_MAX, 0x3f800000, 0xffc54321), 0xffc54321);
	ck_assert_uint_eq(reduce_bits(RUBATO_MIN, 0x7fc12345, 0xffc54321), 0x7fc12345);
	/* Sums: the first operand's NaN, made quiet. */
	ck_assert_uint_eq(reduce_bits(RUBATO_SUM, 0x7f812345, 0xffc54321), 0x7fc12345);
	ck_assert_uint_eq(reduce_bits(RUBATO_SUM, 0x3f800000, 0xff854321), 0xffc54321);
	ck_assert_uint_eq(reduce_bits(RUBATO_SUM, 0x3f800000, 0x3f800000), 0x40000000);
}
END_TEST

START_TEST(averages_divide_once_and_integers_wrap)
{
	int32_t a = INT32_MAX, b = 6, sum = 0;
	int64_t c = -7, mean = 0;
	float d = 1.0f, third = 0;
	const void *ints[] = { &a, &b }, *longs[] = { &c }, *floats[] = { &d };

	rb_reduce_plain(&(struct rb_reduce) { RUBATO_INT32, RUBATO_SUM, 0, &sum, ints, 2, 1 });
	ck_assert_int_eq(sum, INT32_MIN + 5);
	rb_reduce_plain(&(struct rb_reduce) { RUBATO_INT64, RUBATO_AVG, 2, &mean, longs, 1, 1 });
	ck_assert_int_eq(mean, -3);
	rb_reduce_plain(
		&(struct rb_reduce) { RUBATO_FLOAT32, RUBATO_AVG, 3, &third, floats, 1, 1 });
	ck_assert(third == 1.0f / 3.0f);
	rb_reduce_plain(
		&(struct rb_reduce) { RUBATO_FLOAT32, RUBATO_AVG, 0, &third, floats, 1, 1 });
	ck_assert(third == 1.0f);
}
END_TEST

START_TEST(best_kernel_has_a_name)
{
	ck_assert_str_ne(rb_reduce_name(rb_reduce_best()), "unknown");
	ck_assert_str_eq(rb_reduce_name(rb_reduce_plain), "plain");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("reduce");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, kernels_are_twins, 0, 3);
	tcase_add_test(tc, plain_twin_keeps_its_word);
	tcase_add_test(tc, averages_divide_once_and_integers_wrap);
	tcase_add_test(tc, best_kernel_has_a_name);
	return check_main("reduce", tc);
}
