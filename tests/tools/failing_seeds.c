/*
 * failing_seeds.c -- no test of ours: fails at some seeds, for test_only.py.
 *
 *   failing_seeds [PROCESSES]      side by side in so many
 */
#include <signal.h>

#include "tests/check_main.h"
#include "tests/side_by_side.h"

START_TEST(passes)
{
	struct seeds seeds = seeds_from(__func__, 0, 10);
	uint64_t first = 0, last = 0, count = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed); last = seed)
		first = count++ == 0 ? seed : first;
	(void)fprintf(stderr, "%" PRIu64 " to %" PRIu64 ", %" PRIu64 "\n", first, last, count);
	ck_assert(seeds_chosen() || (first == 0 && last == 9 && count == 10));
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

START_TEST(says_its_number)
{
	(void)fprintf(stderr, "number %d\n", _i);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("seeds");

	if (argc > 1)
		side_by_side((uint32_t)strtoul(argv[1], NULL, 10));
	tcase_add_test(tc, passes);
	tcase_add_test(tc, asserts);
	tcase_add_test(tc, crashes);
	tcase_add_loop_test(tc, says_its_number, 3, 10);
	return check_main("seeds", tc);
}
