/* test_crowd.c -- ranks counted machine by machine: the result beside a comparison of all pairs,
 * and the work, which must grow with the ranks and not with their pairs. */
#include "runtime/startup/crowd.h"

#include <stdlib.h>

#include "base/rng.h"
#include "tests/check_main.h"

#define RANKS_MAX 65536u

static struct rb_seat seats[RANKS_MAX];

/* Rank r on machine machine_of(r), which has `cores_of` cores; bound to one of them, or to none. */
static void seat_set(uint32_t r, uint64_t host, uint32_t cores, bool bound, uint32_t nth)
{
	seats[r] = (struct rb_seat) { .host = host };
	for (uint32_t k = 0; k < cores; k++)
		if (!bound || k == nth % cores)
			seats[r].cores[k / 64] |= UINT64_C(1) << k % 64;
}

/* Of a machine, or of one group there. */
static struct rb_crowding pairs_of(uint32_t count, uint64_t host, const uint64_t *group)
{
	uint64_t together[RB_CPU_WORDS] = { 0 };
	struct rb_crowding c = { 0, 0 };
	uint32_t limit = UINT32_MAX;

	for (uint32_t r = 0; r < count; r++) {
		if (seats[r].host != host || (group != NULL && seats[r].group != *group))
			continue;
		c.ranks++;
		for (uint32_t k = 0; k < RB_CPU_WORDS; k++)
			together[k] |= seats[r].cores[k];
		if (group != NULL && seats[r].cores_max > 0 && seats[r].cores_max < limit)
			limit = seats[r].cores_max;
	}
	c.cores = rb_cpus_count(together);
	c.cores = c.cores < limit ? c.cores : limit;
	return c;
}

static bool is_first_of_its_group(uint32_t rank)
{
	for (uint32_t r = 0; r < rank; r++)
		if (seats[r].host == seats[rank].host && seats[r].group == seats[rank].group)
			return false;
	return true;
}

static struct rb_crowding worse_of(struct rb_crowding a, struct rb_crowding b)
{
	double left = (double)a.ranks / a.cores, right = (double)b.ranks / b.cores;

	return left > right || (left >= right && a.ranks > b.ranks) ? a : b;
}

static struct rb_crowding pairs_at(uint32_t count, uint64_t host, uint64_t group)
{
	struct rb_crowding machine = pairs_of(count, host, NULL);
	struct rb_crowding part = pairs_of(count, host, &group);
	uint64_t allowed = 0;

	for (uint32_t r = 0; r < count; r++)
		if (seats[r].host == host && is_first_of_its_group(r))
			allowed += pairs_of(count, host, &seats[r].group).cores;
	if (allowed < machine.cores)
		machine.cores = (uint32_t)allowed;
	machine.cores = machine.cores > 0 ? machine.cores : 1;
	part.cores = part.cores > 0 ? part.cores : 1;
	return worse_of(machine, part);
}

static void crowd_fill(struct rb_crowd *crowd, uint32_t count)
{
	*crowd = (struct rb_crowd) { 0 };
	for (uint32_t r = 0; r < count; r++)
		ck_assert_int_eq(rb_crowd_add(crowd, &seats[r], 1), RUBATO_OK);
}

/* Every machine against its twin, and the worst of all. */
static void crowd_check(uint32_t count)
{
	struct rb_crowding worst = { 0, 1 }, found;
	struct rb_crowd crowd;

	crowd_fill(&crowd, count);
	for (uint32_t r = 0; r < count; r++) {
		if (!is_first_of_its_group(r))
			continue;
		struct rb_crowding twin = pairs_at(count, seats[r].host, seats[r].group);
		struct rb_crowding one = rb_crowd_at(&crowd, seats[r].host, seats[r].group);

		ck_assert_uint_eq(one.ranks, twin.ranks);
		ck_assert_uint_eq(one.cores, twin.cores);
		worst = worse_of(worst, twin);
	}
	found = rb_crowd_worst(&crowd);
	ck_assert_uint_eq(found.ranks, worst.ranks);
	ck_assert_uint_eq(found.cores, worst.cores);
	rb_crowd_fini(&crowd);
}

/* 16 machines of 128 cores, a core for each rank, one after the other and in turn: nobody is
 * crowded, whatever the number of ranks. */
START_TEST(large_jobs_are_not_crowded)
{
	static const uint32_t counts[] = { 1024, 1025, 1500, 2048 };

	for (uint32_t i = 0; i < 8; i++) {
		uint32_t count = counts[i / 2];
		struct rb_crowding worst;
		struct rb_crowd crowd;

		for (uint32_t r = 0; r < count; r++)
			seat_set(r, 1000 + (i % 2 == 0 ? r / 128 : r % 16), 128, false, 0);
		crowd_fill(&crowd, count);
		worst = rb_crowd_worst(&crowd);
		ck_assert_uint_eq(worst.ranks, i % 2 == 0 ? 128 : (count + 15) / 16);
		ck_assert_uint_eq(worst.cores, 128);
		rb_crowd_fini(&crowd);
		crowd_check(count);
	}
}
END_TEST

/* Two machines: a large one with a core for each rank, a small one with a core for both of its two;
 * the small one is the crowded one, and no number of one is mixed with one of the other. */
START_TEST(uneven_machines_are_not_mixed)
{
	struct rb_crowding large, small, worst;
	struct rb_crowd crowd;

	for (uint32_t r = 0; r < 66; r++)
		seat_set(r, r % 33 == 32 ? 7 : 8, r % 33 == 32 ? 1 : 64, r % 33 != 32, r);
	crowd_fill(&crowd, 66);
	large = rb_crowd_at(&crowd, 8, 0);
	small = rb_crowd_at(&crowd, 7, 0);
	worst = rb_crowd_worst(&crowd);
	ck_assert_uint_eq(large.ranks, 64);
	ck_assert_uint_gt(large.cores, 62); /* Those whose number is 32 or 65 went elsewhere. */
	ck_assert_uint_eq(small.ranks, 2);
	ck_assert_uint_eq(small.cores, 1);
	ck_assert_uint_eq(worst.ranks, 2);
	ck_assert_uint_eq(worst.cores, 1);
	ck_assert_uint_eq(rb_crowd_at(&crowd, 9, 0).ranks, 1); /* Nobody is there. */
	rb_crowd_fini(&crowd);
	crowd_check(66);
}
END_TEST

static void crowding_is(struct rb_crowding c, uint32_t ranks, uint32_t cores)
{
	ck_assert_uint_eq(c.ranks, ranks);
	ck_assert_uint_eq(c.cores, cores);
}

/* Containers of one kernel, each with a limit of its own, run on the same processors. */
START_TEST(limited_groups_share_a_machine)
{
	struct rb_crowd crowd;

	for (uint32_t r = 0; r < 12; r++) { /* Within each limit, and too many together. */
		seat_set(r, 5, 8, false, 0);
		seats[r].group = 1 + r % 3;
		seats[r].cores_max = 4;
	}
	crowd_fill(&crowd, 12);
	crowding_is(rb_crowd_at(&crowd, 5, 2), 12, 8);
	crowding_is(rb_crowd_worst(&crowd), 12, 8);
	rb_crowd_fini(&crowd);
	for (uint32_t r = 0; r < 8; r++) { /* One is crowded, beside ranks that are not. */
		seats[r].group = r % 2;
		seats[r].cores_max = r % 2;
	}
	crowd_fill(&crowd, 8);
	crowding_is(rb_crowd_at(&crowd, 5, 1), 4, 1);
	crowding_is(rb_crowd_at(&crowd, 5, 0), 8, 8);
	crowding_is(rb_crowd_worst(&crowd), 4, 1);
	rb_crowd_fini(&crowd);
	for (uint32_t r = 0; r < 6; r++) { /* The limits are less than the machine. */
		seats[r].group = 1 + r % 2;
		seats[r].cores_max = 2;
	}
	crowd_fill(&crowd, 6);
	crowding_is(rb_crowd_at(&crowd, 5, 1), 6, 4);
	rb_crowd_fini(&crowd);
	crowd_check(6);
}
END_TEST

START_TEST(any_placement_counts_as_pairs_do)
{
	struct rb_rng rng = { 14 };

	for (uint32_t i = 0; i < 60; i++) {
		uint32_t count = 1 + (uint32_t)rb_rng_below(&rng, i % 20 == 0 ? 1300 : 120);
		uint64_t machines = 1 + rb_rng_below(&rng, 40), first = rb_rng_next(&rng);

		for (uint32_t r = 0; r < count; r++) {
			uint64_t m = rb_rng_below(&rng, machines);

			seat_set(r, first + m * m, 1 + (uint32_t)(m * 37 % 200), m % 3 == 0, r);
			if (i % 2 == 1) { /* Some without a limit. */
				seats[r].group = rb_rng_below(&rng, 4);
				seats[r].cores_max = 3 * (uint32_t)seats[r].group;
			}
		}
		crowd_check(count);
	}
}
END_TEST

/* One machine, each rank on its own, and in between: a few looks a rank, at any size. */
START_TEST(work_grows_with_ranks)
{
	for (uint32_t count = 16; count <= RANKS_MAX; count *= 4) {
		for (uint32_t on_each = 1; on_each <= count; on_each *= 16) {
			struct rb_crowd crowd;

			for (uint32_t r = 0; r < count; r++)
				seats[r] = (struct rb_seat) { .host = r / on_each };
			crowd_fill(&crowd, count);
			ck_assert_uint_eq(rb_crowd_worst(&crowd).ranks, on_each);
			ck_assert_uint_ge(crowd.looks, count);
			ck_assert_uint_le(crowd.looks, (uint64_t)count * 8);
			rb_crowd_fini(&crowd);
		}
	}
}
END_TEST

/* One host, each rank on its own, and any between: some looks a rank, as many as there are. */
START_TEST(firsts_are_found_in_one_pass)
{
	static uint64_t hosts[RANKS_MAX];
	static bool first[RANKS_MAX];
	struct rb_rng rng = { 5 };
	uint64_t looks;

	for (uint32_t count = 1; count <= RANKS_MAX; count *= 4) {
		for (uint64_t all = 1; all <= count; all *= 16) {
			for (uint32_t r = 0; r < count; r++)
				hosts[r] = rb_mix(rb_rng_below(&rng, all) + 1);
			ck_assert_int_eq(rb_crowd_firsts(hosts, count, first, &looks), RUBATO_OK);
			ck_assert_uint_ge(looks, count);
			ck_assert_uint_le(looks, (uint64_t)count * 4);
			for (uint32_t r = 0; r < count && r < 300; r++) {
				uint32_t before = 0;

				while (before < r && hosts[before] != hosts[r])
					before++;
				ck_assert_int_eq(first[r], before == r);
			}
		}
	}
}
END_TEST

START_TEST(nobody_is_one_on_one)
{
	struct rb_crowd crowd = { 0 };

	ck_assert_uint_eq(rb_crowd_at(&crowd, 1, 0).ranks, 1);
	ck_assert_uint_eq(rb_crowd_worst(&crowd).cores, 1);
	rb_crowd_fini(&crowd);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("crowd");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, large_jobs_are_not_crowded);
	tcase_add_test(tc, uneven_machines_are_not_mixed);
	tcase_add_test(tc, limited_groups_share_a_machine);
	tcase_add_test(tc, any_placement_counts_as_pairs_do);
	tcase_add_test(tc, work_grows_with_ranks);
	tcase_add_test(tc, firsts_are_found_in_one_pass);
	tcase_add_test(tc, nobody_is_one_on_one);
	return check_main("runtime", tc);
}
