/*
 * test_verbs_seeds.c -- jobs of two ranks over the verbs transport on mock devices whose delays,
 * pieces of writes, order between queue pairs, and events without a completion a seed draws: all of
 * them are right.
 */
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"

START_TEST(seeded_jobs_are_right)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 20 : 300);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct job job;
		char text[600];

		job_init(&job);
		job.config.seed = seed;
		job.sleepy = seed % 4 == 0;
		job_run(&job);
		if (!job_is_good(&job, text, sizeof(text)) || !job_is_right(&job))
			ck_abort_msg("seed %llu: %s", (unsigned long long)seed, text);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("seeds");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, seeded_jobs_are_right);
	return check_main("verbs-seeds", tc);
}
