/*
 * test_adaptive.c -- the adaptive quorum against the best fixed one, chosen with hindsight: six
 * kinds of delays, aligned and free. judge_adaptive makes the table of docs/relaxed.md, with more
 * ranks and seeds.
 */
#include <stdlib.h>

#include "adaptive_judge.h"
#include "collectives/partial/adaptive.h"
#include "tests/check_main.h"
#include "tests/length.h"

START_TEST(time_is_within_a_tenth_of_the_best_quorum)
{
	uint64_t seeds = test_length() == TEST_SHORT ? 1 : 3;
	uint32_t largest = test_length() == TEST_SHORT ? 4 : 16;

	for (uint32_t n = 4; n <= largest; n *= 2)
		for (int i = 0; i < 2 * JUDGE_FAMILIES; i++) {
			struct judge_world world = { .family = (enum judge_family)(i / 2),
						     .free_rounds = i % 2 == 1,
						     .rank_count = n,
						     .steps = 600,
						     .depth = 8 };
			double sum = 0;

			for (world.seed = 2001; world.seed < 2001 + seeds; world.seed++)
				sum += judge(&world).ratio;
			ck_assert_msg(sum / (double)seeds <= 1.1, "%s, %s, %u ranks: %.3f",
				      judge_family_names[world.family],
				      world.free_rounds ? "free" : "aligned", n,
				      sum / (double)seeds);
		}
}
END_TEST

START_TEST(even_ranks_wait_for_nearly_all_and_uneven_ones_do_not)
{
	struct judge_world world = {
		.family = JUDGE_EVEN, .rank_count = 8, .steps = 300, .depth = 8, .seed = 5
	};

	ck_assert_double_ge(judge_run(&world, 0).quorum, 6.5);
	world.family = JUDGE_EXPONENTIAL;
	ck_assert_double_le(judge_run(&world, 0).quorum, 4);
	world.family = JUDGE_PERSISTENT; /* Aligned rounds cannot gain by leaving it behind. */
	ck_assert_double_ge(judge_run(&world, 0).quorum, 7);
	world.free_rounds = true;
	ck_assert_double_le(judge_run(&world, 0).quorum, 7.5);
}
END_TEST

START_TEST(the_same_history_gives_the_same_quorum)
{
	for (int i = 0; i < 2 * JUDGE_FAMILIES; i++) {
		struct judge_world world = { .family = (enum judge_family)(i / 2),
					     .free_rounds = i % 2 == 1,
					     .rank_count = 7,
					     .steps = 200,
					     .depth = 8,
					     .seed = 11 };
		struct judge_result first = judge_run(&world, 0), again = judge_run(&world, 0);

		ck_assert(first.alike && again.alike);
		ck_assert_uint_eq(first.time_ns, again.time_ns);
		ck_assert_uint_eq(first.rounds, again.rounds);
	}
}
END_TEST

START_TEST(extreme_histories_do_no_harm)
{
	for (uint32_t n = 1; n <= 40; n += 13) {
		struct rb_adaptive *a = malloc(rb_adaptive_bytes(n));

		ck_assert_ptr_nonnull(a);
		for (uint32_t form = 0; form < 4; form++) {
			rb_adaptive_init(a, n, form % 2 == 1, 0, form < 2 ? 1 : (n + 1) / 2);
			for (uint64_t round = 0; round < 200; round++) {
				for (uint32_t r = 0; r < n; r++)
					if ((r + round) % 3 != 0)
						rb_adaptive_add(a, r,
								round < 90 ? 0
								: r == 0   ? UINT64_MAX
									   : r);
				rb_adaptive_round(a, round);
				ck_assert_uint_ge(rb_adaptive_quorum(a),
						  form < 2 ? 1 : (n + 1) / 2);
				ck_assert_uint_le(rb_adaptive_quorum(a), n);
			}
		}
		free(a);
	}
}
END_TEST

/* One rank of eight is late each time, another one in each round: waiting for four costs more than
 * waiting for one, and yet four is the least. */
START_TEST(no_quorum_below_the_least)
{
	struct rb_adaptive *a = malloc(rb_adaptive_bytes(8));
	uint32_t found[2];

	ck_assert_ptr_nonnull(a);
	for (uint32_t form = 0; form < 2; form++) {
		rb_adaptive_init(a, 8, false, 8, form == 0 ? 1 : 4);
		for (uint64_t round = 0; round < 100; round++) {
			for (uint32_t r = 0; r < 8; r++)
				rb_adaptive_add(a, r, 100 + 50 * ((r + round) % 8));
			rb_adaptive_round(a, round);
		}
		found[form] = rb_adaptive_quorum(a);
	}
	ck_assert_uint_lt(found[0], 4);
	ck_assert_uint_ge(found[1], 4);
	ck_assert_uint_lt(found[1], 8);
	free(a);
}
END_TEST

START_TEST(ranks_that_have_gone_do_not_count)
{
	struct rb_adaptive *a = malloc(rb_adaptive_bytes(8));

	ck_assert_ptr_nonnull(a);
	rb_adaptive_init(a, 8, false, 8, 4);
	for (uint64_t round = 0; round < 300; round++) {
		for (uint32_t r = 0; r < (round < 100 ? 8 : 3); r++)
			rb_adaptive_add(a, r, 1000000);
		rb_adaptive_round(a, round);
		if (round == 99)
			ck_assert_uint_eq(rb_adaptive_quorum(a), 8);
	}
	ck_assert_uint_eq(rb_adaptive_quorum(a), 3);
	free(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("adaptive");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, time_is_within_a_tenth_of_the_best_quorum);
	tcase_add_test(tc, even_ranks_wait_for_nearly_all_and_uneven_ones_do_not);
	tcase_add_test(tc, the_same_history_gives_the_same_quorum);
	tcase_add_test(tc, extreme_histories_do_no_harm);
	tcase_add_test(tc, no_quorum_below_the_least);
	tcase_add_test(tc, ranks_that_have_gone_do_not_count);
	return check_main("adaptive", tc);
}
