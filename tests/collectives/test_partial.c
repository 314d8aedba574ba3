/* test_partial.c -- the partial allreduce's machines: by hand, and many together under the laws. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "partial_world.h"
#include "tests/check_main.h"
#include "tests/effort.h"

/* RUBATO_TEST_SEED=n runs that one world. */
START_TEST(laws_hold_in_all_worlds)
{
	const char *one = getenv("RUBATO_TEST_SEED");
	uint64_t first = one != NULL ? strtoull(one, NULL, 0) : 1;
	uint64_t counts[] = { 3000, 40000, 1000000 };
	uint64_t count = one != NULL ? 1 : counts[effort_wanted()];
	struct partial_totals t = { 0 };
	char text[256];

	for (uint64_t seed = first; seed < first + count; seed++) {
		const char *broken = partial_world_run(seed, &t, text, sizeof(text));

		ck_assert_msg(broken == NULL, "RUBATO_TEST_SEED=%" PRIu64 ": %s", seed, broken);
	}
	printf("%" PRIu64 " worlds: %" PRIu64 " events, %" PRIu64 " rounds (%" PRIu64
	       " full, %" PRIu64 " at deadlines), %" PRIu64 " crashes (%" PRIu64
	       " after the end), %" PRIu64 " fetches, %" PRIu64 " restored, %" PRIu64
	       " late, %" PRIu64 " merges, %" PRIu64 " drains, %" PRIu64 " left, %" PRIu64
	       " freezes\n",
	       count, t.events, t.rounds, t.full, t.deadlines, t.crashes, t.late_crashes, t.fetches,
	       t.restored, t.late, t.merges, t.drained, t.left, t.freezes);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("partial");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, laws_hold_in_all_worlds);
	return check_main("partial", tc);
}
