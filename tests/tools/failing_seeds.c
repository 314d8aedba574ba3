/* failing_seeds.c -- no test of ours: fails at some seeds, for test_only.py. */
#include <signal.h>

#include "tests/check_main.h"

START_TEST(passes)
{
	struct seeds seeds = seeds_from(__func__, 0, 10);
	uint64_t count = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);)
		count++;
	ck_assert_uint_eq(count, seeds_single() ? 1 : 10);
}
END_TEST

START_TEST(asserts)
{
	struct seeds seeds = seeds_from(__func__, 0, 10);

	for (uint64_t seed; seeds_next(&seeds, &seed);)
		ck_assert_uint_ne(seed, 7);
}
END_TEST

START_TEST(crashes)
{
	struct seeds seeds = seeds_from(__func__, 0, 10);

	for (uint64_t seed; seeds_next(&seeds, &seed);)
		if (seed == 3)
			(void)raise(SIGKILL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("seeds");

	tcase_add_test(tc, passes);
	tcase_add_test(tc, asserts);
	tcase_add_test(tc, crashes);
	return check_main("seeds", tc);
}
