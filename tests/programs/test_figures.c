/* test_figures.c -- a ratio of medians: its value, and that its interval holds what it promises. */
#include "programs/figures.h"
#include "programs/rng.h"
#include "tests/check_main.h"

#define COUNT 160
#define BLOCKS 16

static double a[COUNT], b[COUNT];

START_TEST(medians_are_divided)
{
	struct ratio_figures f;

	for (uint32_t i = 0; i < COUNT; i++) {
		a[i] = i + 1.0; /* Median 80.5. */
		b[i] = i % 2 == 0 ? 7 : 9;
	}
	ck_assert(ratio_figures(a, b, COUNT, BLOCKS, &f));
	ck_assert_double_eq(f.ratio, 80.5 / 8);
	ck_assert(ratio_figures(a, b, 159, BLOCKS, &f)); /* An odd count has one in the middle. */
	ck_assert_double_eq(f.ratio, 80.0 / 7);
}
END_TEST

START_TEST(equal_slices_leave_no_doubt)
{
	struct ratio_figures f;

	for (uint32_t i = 0; i < COUNT; i++) {
		a[i] = 1 + (double)(i % 10);
		b[i] = 2 * a[i];
	}
	ck_assert(ratio_figures(a, b, COUNT, BLOCKS, &f));
	ck_assert_double_eq(f.ratio, 0.5);
	ck_assert_double_eq(f.low, 0.5);
	ck_assert_double_eq(f.high, 0.5);
}
END_TEST

START_TEST(few_slices_have_no_interval)
{
	struct ratio_figures f;

	for (uint32_t i = 0; i < COUNT; i++)
		a[i] = b[COUNT - 1 - i] = i + 1.0;
	ck_assert(ratio_figures(a, b, COUNT, RATIO_BLOCKS_LEAST - 1, &f));
	ck_assert_double_eq(f.ratio, 1);
	ck_assert(isnan(f.low) && isnan(f.high));
	ck_assert(ratio_figures(a, b, COUNT, RATIO_BLOCKS_LEAST, &f));
	ck_assert(f.low < 1 && f.high > 1);
}
END_TEST

/* Calls of one slice are alike: an interval that took them for independent would be far too
 * narrow. */
START_TEST(intervals_hold_the_truth)
{
	struct rng rng = rng_open(7, 0, 0);
	uint32_t held = 0, trials = 200;

	for (uint32_t t = 0; t < trials; t++) {
		struct ratio_figures f;

		for (uint32_t k = 0; k < BLOCKS; k++) {
			double mood_a = rng_unit(&rng), mood_b = rng_unit(&rng);

			for (uint32_t i = 0; i < COUNT / BLOCKS; i++) {
				a[k * (COUNT / BLOCKS) + i] = 5 + mood_a + rng_unit(&rng) / 10;
				b[k * (COUNT / BLOCKS) + i] = 5 + mood_b + rng_unit(&rng) / 10;
			}
		}
		ck_assert(ratio_figures(a, b, COUNT, BLOCKS, &f));
		ck_assert(f.low <= f.ratio && f.ratio <= f.high);
		held += f.low <= 1 && 1 <= f.high;
	}
	/* 95 % of 200, and three standard deviations to either side. */
	ck_assert_uint_ge(held, 180);
	ck_assert_uint_le(held, 199);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("figures");

	tcase_add_test(tc, medians_are_divided);
	tcase_add_test(tc, equal_slices_leave_no_doubt);
	tcase_add_test(tc, few_slices_have_no_interval);
	tcase_add_test(tc, intervals_hold_the_truth);
	return check_main("figures", tc);
}
