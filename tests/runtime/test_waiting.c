/* test_waiting.c -- the waiting rule: a pure choice, and what a wake-up takes on this machine. */
#include "runtime/engine/engine.h"
#include "tests/check_main.h"

#define WAKE_NS 33000

START_TEST(a_core_for_each_rank_polls_past_a_wake_up_and_never_yields)
{
	for (uint32_t ranks = 1; ranks <= 4; ranks++) {
		struct rb_waiting w = rb_waiting_choose(WAKE_NS, ranks, 4);

		ck_assert_uint_gt(w.spin_ns, WAKE_NS);
		ck_assert_uint_eq(w.yield_ns, 0);
	}
}
END_TEST

START_TEST(ranks_that_share_cores_yield_after_each_poll)
{
	for (uint32_t ranks = 5; ranks <= 64; ranks++) {
		struct rb_waiting w = rb_waiting_choose(WAKE_NS, ranks, 4);

		ck_assert_uint_eq(w.spin_ns, 0);
		ck_assert_uint_gt(w.yield_ns, WAKE_NS);
	}
}
END_TEST

START_TEST(a_dearer_sleep_is_put_off_longer)
{
	for (uint32_t ranks = 2; ranks <= 8; ranks += 6) {
		struct rb_waiting a = rb_waiting_choose(WAKE_NS, ranks, 4);
		struct rb_waiting b = rb_waiting_choose(2 * WAKE_NS, ranks, 4);

		ck_assert_uint_eq(b.spin_ns, 2 * a.spin_ns);
		ck_assert_uint_eq(b.yield_ns, 2 * a.yield_ns);
	}
}
END_TEST

START_TEST(a_forced_span_is_taken_as_it_is)
{
	uint64_t none = 0;
	struct rb_waiting w = rb_waiting_find(&none, 8, 2, 12345);

	ck_assert_uint_eq(w.spin_ns, 12345);
	ck_assert_uint_eq(w.yield_ns, 0);
}
END_TEST

START_TEST(a_network_is_polled_for_some_of_its_latencies)
{
	uint64_t none = 0;
	struct rb_waiting w = rb_waiting_choose(WAKE_NS, 2, 4), was = w;
	struct rb_waiting crowded = rb_waiting_choose(WAKE_NS, 8, 4), as_crowded = crowded;
	struct rb_waiting forced = rb_waiting_find(&none, 2, 2, 12345);

	rb_waiting_network(&w, 0);
	ck_assert_uint_eq(w.spin_ns, was.spin_ns);
	rb_waiting_network(&w, 2); /* Shorter than a wake-up. */
	ck_assert_uint_eq(w.spin_ns, was.spin_ns);
	rb_waiting_network(&w, 1e6); /* Nobody polls for a second. */
	ck_assert_uint_eq(w.spin_ns, was.spin_ns);
	rb_waiting_network(&w, 100);
	ck_assert_uint_gt(w.spin_ns, 4 * 100000);
	ck_assert_uint_le(w.spin_ns, 20 * 100000);
	ck_assert_uint_eq(w.yield_ns, 0);
	ck_assert(w.gives_way);
	rb_waiting_network(&w, 600); /* An answer is there within the longest poll. */
	ck_assert_uint_ge(w.spin_ns, 2 * 600000);
	ck_assert_uint_le(w.spin_ns, 5 * 600000);
	rb_waiting_network(&crowded, 100); /* Others want the core. */
	ck_assert_uint_eq(crowded.spin_ns, as_crowded.spin_ns);
	rb_waiting_network(&forced, 100);
	ck_assert_uint_eq(forced.spin_ns, 12345);
	ck_assert(!forced.gives_way);
	w = (struct rb_waiting) { .spin_ns = 100 };
	rb_waiting_network(&w, 2); /* A yield would be felt. */
	ck_assert_uint_gt(w.spin_ns, 100);
	ck_assert(!w.gives_way);
	w = (struct rb_waiting) { .spin_ns = 1000000 };
	rb_waiting_network(&w, 30); /* Polls are long already: they give way all the same. */
	ck_assert_uint_eq(w.spin_ns, 1000000);
	ck_assert(w.gives_way);
}
END_TEST

START_TEST(a_network_is_measured_by_polls_where_the_core_is_free)
{
	uint64_t none = 0;
	struct rb_waiting w = rb_waiting_choose(WAKE_NS, 2, 4), was = w;
	struct rb_waiting crowded = rb_waiting_choose(WAKE_NS, 8, 4), as_crowded = crowded;
	struct rb_waiting forced = rb_waiting_find(&none, 2, 2, 12345);

	rb_waiting_unknown(&w);
	ck_assert_uint_gt(w.spin_ns, 4 * was.spin_ns);
	rb_waiting_unknown(&crowded);
	ck_assert_uint_eq(crowded.spin_ns, as_crowded.spin_ns);
	rb_waiting_unknown(&forced);
	ck_assert_uint_eq(forced.spin_ns, 12345);
}
END_TEST

static void sleep_times(struct rb_waiting *w, uint32_t times, uint64_t slept_ns)
{
	for (uint32_t i = 0; i < times; i++)
		rb_waiting_slept(w, slept_ns);
}

START_TEST(polls_that_find_nothing_become_short_until_a_rank_is_late)
{
	struct rb_waiting w = rb_waiting_choose(WAKE_NS, 2, 4);
	uint32_t tried = 0;

	sleep_times(&w, 3, w.spin_ns);
	ck_assert_uint_eq(rb_waiting_spin_ns(&w), w.spin_ns);
	sleep_times(&w, 1, w.spin_ns);
	ck_assert_uint_lt(rb_waiting_spin_ns(&w), WAKE_NS);
	for (uint32_t i = 0; i < 1000; i++) { /* Now and then it is tried again. */
		sleep_times(&w, 1, 1000);
		tried += rb_waiting_spin_ns(&w) == w.spin_ns;
	}
	ck_assert_uint_gt(tried, 10);
	ck_assert_uint_lt(tried, 20);
	sleep_times(&w, 1, 3 * w.spin_ns);
	ck_assert_uint_eq(rb_waiting_spin_ns(&w), w.spin_ns);
}
END_TEST

START_TEST(polls_that_find_something_stay_long)
{
	struct rb_waiting w = rb_waiting_choose(WAKE_NS, 2, 4);

	for (uint32_t i = 0; i < 1000; i++) {
		sleep_times(&w, 3, 1000);
		rb_waiting_found(&w);
		ck_assert_uint_eq(rb_waiting_spin_ns(&w), w.spin_ns);
	}
	sleep_times(&w, 4, 1000);
	rb_waiting_found(&w); /* By a short one: that says nothing of long ones. */
	ck_assert_uint_lt(rb_waiting_spin_ns(&w), w.spin_ns);
}
END_TEST

START_TEST(polls_that_are_forced_or_short_stay_as_they_are)
{
	uint64_t none = 0;
	struct rb_waiting forced = rb_waiting_find(&none, 2, 2, 12345);
	struct rb_waiting crowded = rb_waiting_choose(WAKE_NS, 8, 2);

	sleep_times(&forced, 10, 1);
	ck_assert_uint_eq(rb_waiting_spin_ns(&forced), forced.spin_ns);
	sleep_times(&crowded, 10, 1);
	ck_assert_uint_eq(rb_waiting_spin_ns(&crowded), crowded.spin_ns);
}
END_TEST

START_TEST(a_wake_up_is_measured_within_bounds)
{
	uint64_t wake_ns = rb_waiting_measure(), said = 12345;

	ck_assert_uint_ge(wake_ns, 1000);
	ck_assert_uint_le(wake_ns, 1000000);
	(void)rb_waiting_find(&said, 2, 2, 0);
	ck_assert_uint_eq(said, 12345);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("waiting");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_core_for_each_rank_polls_past_a_wake_up_and_never_yields);
	tcase_add_test(tc, ranks_that_share_cores_yield_after_each_poll);
	tcase_add_test(tc, a_dearer_sleep_is_put_off_longer);
	tcase_add_test(tc, a_forced_span_is_taken_as_it_is);
	tcase_add_test(tc, a_network_is_polled_for_some_of_its_latencies);
	tcase_add_test(tc, a_network_is_measured_by_polls_where_the_core_is_free);
	tcase_add_test(tc, polls_that_find_nothing_become_short_until_a_rank_is_late);
	tcase_add_test(tc, polls_that_find_something_stay_long);
	tcase_add_test(tc, polls_that_are_forced_or_short_stay_as_they_are);
	tcase_add_test(tc, a_wake_up_is_measured_within_bounds);
	return check_main("runtime", tc);
}
