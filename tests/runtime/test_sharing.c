/*
 * test_sharing.c -- ranks that are more on one core than need be: who goes where, and that they do.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

#define CALLS 300
#define PATIENCE_NS UINT64_C(60000000000) /* Others may keep the cores busy. */

/* ---- Who goes where ---- */

static void cpus_set(uint64_t cpus[RB_CPU_WORDS], uint64_t bits)
{
	memset(cpus, 0, RB_CPU_WORDS * sizeof(*cpus));
	cpus[0] = bits;
}

/* Where rank `own` of those at `at` goes, if it may use `allowed`, after so many tries. */
static uint32_t target_of(const uint32_t *at, uint32_t count, uint32_t share, uint32_t own,
			  uint64_t allowed, uint32_t tries)
{
	struct rb_sharing sharing = { .tries = tries };
	struct rb_sharing_look look = { .share = share };
	uint64_t cpus[RB_CPU_WORDS];

	cpus_set(sharing.cores, 0xff);
	cpus_set(cpus, allowed);
	for (uint32_t r = 0; r < count; r++)
		rb_sharing_add(&look, at[r], r == own);
	return rb_sharing_target(&sharing, &look, cpus);
}

static uint32_t target(const uint32_t *at, uint32_t count, uint32_t own, uint64_t allowed,
		       uint32_t tries)
{
	return target_of(at, count, 1, own, allowed, tries);
}

START_TEST(the_lowest_stays_and_others_go_apart)
{
	const uint32_t at[] = { 0, 0, 3, 3, 0 };

	ck_assert_uint_eq(target(at, 5, 0, 0xff, 0), RB_CPU_NONE);
	ck_assert_uint_eq(target(at, 5, 2, 0xff, 0), RB_CPU_NONE);
	ck_assert_uint_eq(target(at, 5, 1, 0xff, 0), 1);
	ck_assert_uint_eq(target(at, 5, 3, 0xff, 0), 2);
	ck_assert_uint_eq(target(at, 5, 4, 0xff, 0), 4);
}
END_TEST

START_TEST(none_goes_where_it_may_not_or_where_a_rank_is)
{
	const uint32_t at[] = { 0, 0, 1 }, apart[] = { 0, 1, 2 };

	ck_assert_uint_eq(target(at, 3, 1, 0x3, 0), RB_CPU_NONE);
	ck_assert_uint_eq(target(at, 3, 1, 0x1, 0), RB_CPU_NONE);
	ck_assert_uint_eq(target(at, 3, 1, 0x300, 0), RB_CPU_NONE); /* No core of the job. */
	ck_assert_uint_eq(target(at, 3, 1, 0x83, 0), 7);
	for (uint32_t r = 0; r < 3; r++)
		ck_assert_uint_eq(target(apart, 3, r, 0xff, 0), RB_CPU_NONE);
}
END_TEST

START_TEST(another_try_is_of_another_core)
{
	const uint32_t at[] = { 5, 5 };

	ck_assert_uint_eq(target(at, 2, 1, 0x2c, 0), 2);
	ck_assert_uint_eq(target(at, 2, 1, 0x2c, 1), 3);
	ck_assert_uint_eq(target(at, 2, 1, 0x2c, 2), 2);
}
END_TEST

START_TEST(who_does_not_say_where_it_is_does_not_count)
{
	const uint32_t at[] = { RB_CPU_NONE, RB_CPU_NONE, 4 };

	for (uint32_t r = 0; r < 3; r++)
		ck_assert_uint_eq(target(at, 3, r, 0xff, 0), RB_CPU_NONE);
}
END_TEST

START_TEST(who_is_beyond_a_share_goes_where_there_is_least)
{
	static const uint32_t four[] = { 1, 0, 1, 1 }, eight[] = { 0, 0, 1, 0, 0, 1, 0, 1 };
	static const uint32_t six[] = { 0, 0, 0, 0, 1, 1 }, even[] = { 0, 1, 1, 0 };
	static const uint32_t uneven[] = { 0, 0, 0, 0, 0, 1 };

	for (uint32_t r = 0; r < 4; r++) {
		ck_assert_uint_eq(target_of(four, 4, 2, r, 0x3, 0), r == 3 ? 0 : RB_CPU_NONE);
		ck_assert_uint_eq(target_of(even, 4, 2, r, 0x3, 0), RB_CPU_NONE);
	}
	for (uint32_t r = 0; r < 8; r++)
		ck_assert_uint_eq(target_of(eight, 8, 4, r, 0x3, 0), r == 6 ? 1 : RB_CPU_NONE);
	ck_assert_uint_eq(target_of(six, 6, 2, 2, 0xf, 0), 2);
	ck_assert_uint_eq(target_of(six, 6, 2, 3, 0xf, 0), 3);
	ck_assert_uint_eq(target_of(six, 6, 2, 3, 0xf, 1), 2); /* The second place there. */
	ck_assert_uint_eq(target_of(six, 6, 2, 3, 0x3, 0), RB_CPU_NONE);
	for (uint32_t tries = 0; tries < 3; tries++) { /* As many go there as there are places. */
		uint32_t went[3] = { 0, 0, 0 };

		for (uint32_t r = 2; r < 5; r++)
			went[target_of(uneven, 6, 2, r, 0x7, tries) % 3]++;
		ck_assert_uint_eq(went[1], 1);
		ck_assert_uint_eq(went[2], 2);
	}
}
END_TEST

/* What a core has of ranks that may each use one of these. */
static uint32_t share_of(uint64_t mine, const uint64_t *each, uint32_t count)
{
	uint64_t cores[RB_CPU_WORDS], theirs[RB_CPU_WORDS];
	double load = 0;

	cpus_set(cores, mine);
	for (uint32_t r = 0; r < count; r++) {
		cpus_set(theirs, each[r]);
		load += rb_sharing_load(cores, theirs);
	}
	return rb_sharing_share(load, rb_cpus_count(cores));
}

START_TEST(a_share_is_of_those_that_may_be_there)
{
	static const uint64_t every[] = { 0x3, 0x3, 0x3, 0x3, 0x3 };
	static const uint64_t halves[] = { 0xf, 0xf0, 0xf, 0xf0, 0xf, 0xf0, 0xf, 0xf0 };
	static const uint64_t uneven[] = { 0xf, 0xf, 0xf, 0xf, 0xf, 0xf, 0xf0, 0xf0 };
	static const uint64_t thirds[] = { 0x7, 0x7, 0x7, 0x7, 0x7, 0x7 }, none[] = { 0, 1 };

	ck_assert_uint_eq(share_of(0x3, every, 2), 1);
	ck_assert_uint_eq(share_of(0x3, every, 4), 2);
	ck_assert_uint_eq(share_of(0x3, every, 5), 3);
	ck_assert_uint_eq(share_of(0xf, halves, 8), 1); /* Each half has four, and four ranks. */
	ck_assert_uint_eq(share_of(0xf0, halves, 8), 1);
	ck_assert_uint_eq(share_of(0xf, uneven, 8), 2);
	ck_assert_uint_eq(share_of(0xf0, uneven, 8), 1);
	ck_assert_uint_eq(share_of(0x1, thirds, 6), 2);
	ck_assert_uint_eq(share_of(0x1, none, 2), 1);
	ck_assert_uint_eq(share_of(0x0, none, 2), 1);
}
END_TEST

START_TEST(tries_in_a_row_come_ever_later)
{
	struct rb_sharing sharing = { .tries = 0 }, still = { .tries = 0 };
	uint64_t now = 1000000000, tried = 0;

	ck_assert(!rb_sharing_due(&still, now)); /* There is nowhere to go. */
	cpus_set(sharing.cores, 3);
	for (uint32_t i = 0; i < 100000; i++, now += 100000) /* 10 s. */
		if (rb_sharing_due(&sharing, now)) {
			rb_sharing_tried(&sharing, false, now);
			tried++;
		}
	ck_assert_uint_ge(tried, 10);
	ck_assert_uint_le(tried, 25);
	now += UINT64_C(100000000000); /* Long after, it is as at first. */
	for (uint32_t i = 0; i < 100; i++, now += 100000)
		if (rb_sharing_due(&sharing, now)) {
			rb_sharing_tried(&sharing, false, now);
			tried++;
		}
	ck_assert_uint_ge(tried, 12);
}
END_TEST

/* ---- That they do ---- */

/* The first two processors that we may use; false: there is one only. */
static bool processors(uint32_t two[2])
{
	uint32_t count = 0;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return false;
	for (uint32_t i = 0; i < CPU_SETSIZE && count < 2; i++)
		if (CPU_ISSET(i, &set))
			two[count++] = i;
	return count == 2;
}

START_TEST(a_thread_goes_where_it_is_sent_and_stays_free)
{
	cpu_set_t before, after, one;
	uint32_t two[2];

	if (!processors(two))
		return;
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	for (uint32_t i = 0; i < 20; i++) {
		CPU_ZERO(&one);
		CPU_SET(two[i % 2], &one);
		ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
		ck_assert(!rb_thread_move(two[1 - i % 2], UINT64_MAX)); /* It may not. */
		ck_assert_uint_eq(rb_cpu_here(), two[i % 2]);
		ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
		ck_assert(rb_thread_move(two[1 - i % 2], UINT64_MAX));
		ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
		ck_assert(CPU_EQUAL(&before, &after));
		ck_assert(!rb_thread_move(two[i % 2], 0)); /* No patience: it goes back. */
		ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
		ck_assert(CPU_EQUAL(&before, &after));
	}
}
END_TEST

/*
 * Whether the kernel leaves two threads on one core that it could part is its own affair: some of
 * its versions never do. So peers are said to be wherever one asks.
 */
static struct rb_transport_ops together_shm;

static uint32_t together_processor(struct rb_endpoint *ep, uint32_t peer)
{
	(void)ep;
	(void)peer;
	return rb_cpu_here();
}

static rubato_status together_open(const struct rb_transport_options *options,
				   struct rb_endpoint **out)
{
	RB_TRY(rb_transport_shm.open(options, out));
	(*out)->ops = &together_shm;
	return RUBATO_OK;
}

static const struct rb_transport_ops *together_transport(void)
{
	together_shm = rb_transport_shm;
	together_shm.open = together_open;
	together_shm.processor = together_processor;
	return &together_shm;
}

struct together {
	uint64_t tries[2], moves[2];
	_Atomic uint32_t lies; /* The transport said another processor than theirs. */
};

#define CROWD 4u

struct crowd {
	_Atomic uint32_t share;
	uint64_t tries[CROWD];
};

static rubato_status calls(rubato_comm *comm)
{
	int32_t one = 1, sum;

	for (uint32_t i = 0; i < CALLS; i++)
		RB_TRY(rubato_allreduce(comm, &one, &sum, 1, RUBATO_INT32, RUBATO_SUM));
	return RUBATO_OK;
}

/* All ranks on one core until they sleep, then free; again until one has tried to go. */
static rubato_status together_main(rubato_comm *comm, void *arg)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS;
	uint32_t rank = rubato_rank(comm), two[2] = { 0, 0 }, seen;
	const struct rb_sharing *sharing = &comm->engine.sharing;
	struct together *out = arg;
	bool expected = comm->config->spread.number != 0;
	cpu_set_t before, one;
	int64_t tries = 0, mine, over = 0, late;

	(void)processors(two);
	CPU_ZERO(&one);
	CPU_SET(two[0], &one);
	if (sched_getaffinity(0, sizeof(before), &before) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "sched_getaffinity");
	for (uint32_t i = 0; tries == 0 && over == 0 && (expected || i < 10); i++) {
		(void)sched_setaffinity(0, sizeof(one), &one);
		RB_TRY(calls(comm));
		seen = rb_transport_shm.processor(comm->engine.endpoints[0], 1 - rank);
		out->lies += seen != two[0];
		(void)sched_setaffinity(0, sizeof(before), &before);
		RB_TRY(calls(comm));
		mine = sharing->tries;
		late = rb_clock_ns() > until;
		RB_TRY(rubato_allreduce(comm, &mine, &tries, 1, RUBATO_INT64, RUBATO_SUM));
		RB_TRY(rubato_allreduce(comm, &late, &over, 1, RUBATO_INT64, RUBATO_SUM));
	}
	out->tries[rank] = sharing->tries;
	out->moves[rank] = sharing->moves;
	return RUBATO_OK;
}

static void together(struct together *out)
{
	const struct rb_transport_ops *const shm[] = { together_transport(), NULL };
	rubato_status status[2];

	/* Only sleeps of at most twice the time of polls count. Under ThreadSanitizer a turn of the
	 * other alone takes longer than that, where wake-ups say how long polls last: after polls
	 * of 80 us most sleeps took 160 to 320, and a try was a matter of luck. */
	if (test_length() == TEST_SHORT)
		ck_assert_int_eq(setenv("RUBATO_SPIN", "500us", 1), 0);
	*out = (struct together) { .tries = { 0, 0 } };
	ck_assert_int_eq(local_run(2, shm, together_main, out, status), RUBATO_OK);
}

START_TEST(ranks_that_sleep_on_one_core_go_apart)
{
	struct together seen;
	uint32_t two[2];

	if (!processors(two))
		return;
	together(&seen);
	ck_assert_uint_eq(seen.tries[0], 0); /* The lower one stays. */
	ck_assert_uint_gt(seen.tries[1], 0);
	ck_assert_uint_le(seen.moves[1], seen.tries[1]);
	ck_assert_uint_eq(seen.lies, 0);
}
END_TEST

START_TEST(they_stay_where_the_user_wants_it)
{
	struct together seen;

	ck_assert_int_eq(setenv("RUBATO_SPREAD", "0", 1), 0);
	together(&seen);
	ck_assert_int_eq(unsetenv("RUBATO_SPREAD"), 0);
	ck_assert_uint_eq(seen.tries[0] + seen.tries[1], 0);
}
END_TEST

/* All seem to be where each is: until all beyond a core's share have tried to go. */
static rubato_status crowd_main(rubato_comm *comm, void *arg)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS;
	const struct rb_sharing *sharing = &comm->engine.sharing;
	uint32_t rank = rubato_rank(comm);
	struct crowd *out = arg;
	int64_t waits, left = 1, over = 0, late;

	out->share = sharing->share;
	while (left > 0 && over == 0) {
		RB_TRY(calls(comm));
		waits = rank >= sharing->share && sharing->tries == 0;
		late = rb_clock_ns() > until;
		RB_TRY(rubato_allreduce(comm, &waits, &left, 1, RUBATO_INT64, RUBATO_SUM));
		RB_TRY(rubato_allreduce(comm, &late, &over, 1, RUBATO_INT64, RUBATO_SUM));
	}
	out->tries[rank] = sharing->tries;
	return RUBATO_OK;
}

/* On two processors; false: there are not two. */
static bool crowd_run(const struct rb_transport_ops *transport, local_main rank_main,
		      struct crowd *seen)
{
	const struct rb_transport_ops *const shm[] = { transport, NULL };
	rubato_status status[CROWD];
	cpu_set_t before, both;
	uint32_t two[2];

	if (!processors(two))
		return false;
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&both);
	CPU_SET(two[0], &both);
	CPU_SET(two[1], &both);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(both), &both), 0);
	ck_assert_int_eq(local_run(CROWD, shm, rank_main, seen, status), RUBATO_OK);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
	return true;
}

START_TEST(more_ranks_than_cores_are_as_many_on_each)
{
	struct crowd seen = { .share = 0 };

	if (!crowd_run(together_transport(), crowd_main, &seen))
		return;
	ck_assert(seen.share == CROWD / 2 || seen.share == CROWD); /* One core has both. */
	for (uint32_t r = 0; r < CROWD; r++)
		ck_assert_msg((seen.tries[r] > 0) == (r >= seen.share), "rank %u: %llu tries", r,
			      (unsigned long long)seen.tries[r]);
}
END_TEST

#define LATE_NS 2000000u

/* The application has bound each to the first processor; all wait for the lowest one. */
static rubato_status kept_main(rubato_comm *comm, void *arg)
{
	const struct rb_sharing *sharing = &comm->engine.sharing;
	uint32_t rank = rubato_rank(comm), two[2] = { 0, 0 };
	struct crowd *out = arg;
	cpu_set_t one;

	(void)processors(two);
	CPU_ZERO(&one);
	CPU_SET(two[0], &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "sched_setaffinity");
	for (uint32_t i = 0; i < 10; i++) {
		if (rank == 0)
			rb_clock_sleep_until(rb_clock_ns() + LATE_NS);
		RB_TRY(rubato_barrier(comm));
	}
	out->tries[rank] = sharing->tries;
	return rank == 0 || sharing->next_ns > 0
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u has never looked", rank);
}

START_TEST(none_tries_to_go_where_it_may_not)
{
	struct crowd seen = { .share = 0 };

	if (!crowd_run(&rb_transport_shm, kept_main, &seen))
		return;
	for (uint32_t r = 0; r < CROWD; r++)
		ck_assert_msg(seen.tries[r] == 0, "rank %u: %llu tries", r,
			      (unsigned long long)seen.tries[r]);
}
END_TEST

#define COMPUTES_NS 20000000u

/* Its progress thread waits for the others meanwhile. */
static rubato_status computing_main(rubato_comm *comm, void *arg)
{
	const struct rb_sharing *sharing = &comm->engine.sharing;
	uint32_t rank = rubato_rank(comm), before;
	struct crowd *out = arg;
	double one = 1, sum;
	rubato_op *op;

	RB_TRY(rubato_op_allreduce(comm, &one, &sum, 1, RUBATO_FLOAT64, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < 5; i++) {
		RB_TRY(rubato_barrier(comm));
		before = sharing->tries;
		if (rank < CROWD - 1)
			rb_clock_sleep_until(rb_clock_ns() + COMPUTES_NS);
		RB_TRY(rubato_start(op));
		if (rank == CROWD - 1) {
			rb_clock_sleep_until(rb_clock_ns() + COMPUTES_NS);
			out->tries[rank] += sharing->tries - before;
		}
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	}
	rubato_op_free(op);
	return RUBATO_OK;
}

START_TEST(a_progress_thread_stays)
{
	struct crowd seen = { .share = 0 };

	if (!crowd_run(together_transport(), computing_main, &seen))
		return;
	ck_assert_uint_eq(seen.tries[CROWD - 1], 0);
}
END_TEST

#define BOUND 3u

struct bound {
	struct rb_place places[BOUND];
	uint32_t shares[BOUND];
};

/* The lowest rank has a core for itself, the others one together; a child looks where they are. */
static rubato_status bound_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), two[2] = { 0, 0 };
	struct bound *out = arg;
	rubato_comm *child = NULL;
	cpu_set_t one;

	(void)processors(two);
	CPU_ZERO(&one);
	CPU_SET(two[rank > 0], &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "sched_setaffinity");
	rb_place_here(false, &out->places[rank]);
	RB_TRY(rubato_split(comm, 0, (int32_t)rank, &child));
	out->shares[rank] = child->engine.sharing.share;
	return rubato_finalize(child);
}

START_TEST(ranks_that_are_bound_count_where_they_may_run)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
	struct bound seen = { .shares = { 0 } };
	rubato_status status[BOUND];
	uint32_t two[2];
	bool one_core;

	if (!processors(two))
		return;
	ck_assert_int_eq(local_run(BOUND, shm, bound_main, &seen, status), RUBATO_OK);
	one_core = memcmp(&seen.places[0], &seen.places[1], sizeof(seen.places[0])) == 0;
	ck_assert_uint_eq(seen.shares[0], one_core ? BOUND : 1);
	for (uint32_t r = 1; r < BOUND; r++)
		ck_assert_uint_eq(seen.shares[r], one_core ? BOUND : BOUND - 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("sharing");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, the_lowest_stays_and_others_go_apart);
	tcase_add_test(tc, none_goes_where_it_may_not_or_where_a_rank_is);
	tcase_add_test(tc, another_try_is_of_another_core);
	tcase_add_test(tc, who_does_not_say_where_it_is_does_not_count);
	tcase_add_test(tc, who_is_beyond_a_share_goes_where_there_is_least);
	tcase_add_test(tc, a_share_is_of_those_that_may_be_there);
	tcase_add_test(tc, tries_in_a_row_come_ever_later);
	tcase_add_test(tc, a_thread_goes_where_it_is_sent_and_stays_free);
	tcase_add_test(tc, ranks_that_sleep_on_one_core_go_apart);
	tcase_add_test(tc, they_stay_where_the_user_wants_it);
	tcase_add_test(tc, more_ranks_than_cores_are_as_many_on_each);
	tcase_add_test(tc, none_tries_to_go_where_it_may_not);
	tcase_add_test(tc, a_progress_thread_stays);
	tcase_add_test(tc, ranks_that_are_bound_count_where_they_may_run);
	return check_main("runtime", tc);
}
