/*
 * test_verbs_seeds.c -- jobs of two ranks over the verbs transport on mock devices whose delays,
 * pieces of writes, order between queue pairs, and events without a completion a seed draws: all of
 * them are right. A test takes some seeds; TEST_SEED=N one; SEEDS=FIRST:COUNT those.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"

static void chosen(uint64_t *first, uint64_t *count)
{
	const char *text = getenv("SEEDS");
	unsigned long long from, many;

	*first = 1;
	*count = test_length() == TEST_SHORT ? 20 : 300;
	if (text == NULL)
		return;
	if (sscanf(text, "%llu:%llu", &from, &many) != 2)
		ck_abort_msg("SEEDS=%s: expected FIRST:COUNT", text);
	*first = from;
	*count = many;
}

START_TEST(seeded_jobs_are_right)
{
	uint64_t first, count;
	struct seeds seeds;

	chosen(&first, &count);
	seeds = seeds_from(__func__, first, count);
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
