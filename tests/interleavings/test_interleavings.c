/*
 * test_interleavings.c -- explores every case, and shows that every mutation is caught.
 *
 *   test_interleavings [CASE [random|pct|all [DEPTH [SEED [MUTATION]]]]]
 *
 * Without arguments: the suite. With a seed: that execution alone, whose last points are printed
 * (for `all` a seed is the number of executions before it).
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/sync.h"
#include "tests/check_main.h"
#include "tests/faults.h"
#include "tests/interleavings/cases.h"
#include "tests/interleavings/ranks.h"
#include "tests/length.h"

static const struct explore_case *const all_cases[] = {
	&case_lock,         &case_waiting,       &case_engine_one,     &case_engine_two,
	&case_engine_chain, &case_engine_left,   &case_engine_leaving, &case_engine_reluctant,
	&case_engine_local, &case_engine_cancel, &case_engine_stop,    &case_shm_sleep,
	&case_shm_cells,    &case_shm_room,      &case_shm_bulk,       &case_shm_pieces,
	&case_shm_hands,    &case_shm_now,       &case_shm_parcels,    &case_stack,
	&case_swap,         &case_swap_latest,
};
#define CASES (sizeof(all_cases) / sizeof(all_cases[0]))

static const char *const hows[] = { "random", "pct", "all" };

static uint64_t executions(enum test_length length)
{
	static const uint64_t counts[] = { 300, 2000, 100000 };

	return counts[length];
}

static void total_add(struct explore_result *total, const struct explore_result *r)
{
	total->switches += r->switches;
	total->sleeps += r->sleeps;
	total->buffered += r->buffered;
	total->spurious += r->spurious;
	total->timed_out += r->timed_out;
}

/* One plan after the other until one fails. */
static bool explore_plans(const struct explore_case *test, uint64_t count,
			  struct explore_plan *failed, struct explore_result *out,
			  struct explore_result *total)
{
	const struct explore_plan plans[] = {
		{ EXPLORE_ALL, 1, 0, count * 2 }, { EXPLORE_RANDOM, 0, 1, count },
		{ EXPLORE_PCT, 1, 1, count / 4 }, { EXPLORE_PCT, 2, 1, count / 2 },
		{ EXPLORE_PCT, 3, 1, count },     { EXPLORE_PCT, 4, 1, count },
		{ EXPLORE_ALL, 2, 0, count * 4 },
	};

	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		explore(test, &plans[i], out);
		*failed = plans[i];
		if (out->failed)
			return false;
		total_add(total, out);
		printf("%s: %s %u: %llu executions%s, %llu points, %llu switches, %llu sleeps, "
		       "%llu held-back stores, %llu spurious, %llu time-outs\n",
		       test->name, hows[plans[i].how], plans[i].depth,
		       (unsigned long long)out->executions, out->complete ? " (all)" : "",
		       (unsigned long long)out->points, (unsigned long long)out->switches,
		       (unsigned long long)out->sleeps, (unsigned long long)out->buffered,
		       (unsigned long long)out->spurious, (unsigned long long)out->timed_out);
	}
	return true;
}

static const struct explore_case *case_find(const char *name)
{
	for (size_t i = 0; i < CASES; i++)
		if (strcmp(all_cases[i]->name, name) == 0)
			return all_cases[i];
	return NULL;
}

START_TEST(test_explore)
{
	const struct explore_case *test = all_cases[_i];
	uint64_t count = executions(test_length()) / (test->fewer > 0 ? test->fewer : 1);
	struct explore_plan plan;
	static struct explore_result result, total;

	if (!explore_plans(test, count, &plan, &result, &total))
		ck_abort_msg("%s %s %u %llu: %s\n%s", test->name, hows[plan.how], plan.depth,
			     (unsigned long long)result.seed, result.text, result.trace);
	/* What is meant to disturb did. */
	ck_assert_uint_gt(total.switches, 0);
	ck_assert_uint_gt(total.sleeps, 0);
	if (test->time_outs)
		ck_assert_uint_gt(total.timed_out, 0);
	else
		ck_assert_uint_eq(total.timed_out, 0);
	if (strncmp(test->name, "shm", 3) == 0)
		ck_assert_uint_gt(total.buffered, 0);
	else
		ck_assert_uint_gt(total.spurious, 0);
}
END_TEST

/* A seed is all that an execution depends on. */
START_TEST(test_replay)
{
	static struct explore_result first, second;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct explore_plan plan = { seed % 2 == 0 ? EXPLORE_RANDOM : EXPLORE_PCT, 3, seed,
					     1 };

		explore(all_cases[_i], &plan, &first);
		explore(all_cases[_i], &plan, &second);
		ck_assert_str_eq(first.text, second.text);
		ck_assert_str_eq(first.trace, second.trace);
		ck_assert_uint_eq(first.points, second.points);
	}
}
END_TEST

static void *open_main(void *arg)
{
	struct ranks **w = arg;

	*w = ranks_open();
	return NULL;
}

/* Endpoints connect on real threads, outside of executions, and may have to wait for a lock. */
START_TEST(test_lock_is_held_while_ranks_connect)
{
	const struct timespec while_ns = { 0, 50000000 };
	struct ranks *w = NULL;
	pthread_t opener;

	rb_lock_take(&rb_process_lock);
	ck_assert_int_eq(pthread_create(&opener, NULL, open_main, &w), 0);
	(void)nanosleep(&while_ns, NULL);
	rb_lock_drop(&rb_process_lock);
	ck_assert_int_eq(pthread_join(opener, NULL), 0);
	ck_assert_ptr_nonnull(w);
	ranks_close(w);
}
END_TEST

START_TEST(test_mutation)
{
	const struct explore_case *test = case_find(faults[_i].known);
	struct explore_plan plan;
	static struct explore_result result, total;

	ck_assert_ptr_nonnull(test);
	explore_mutate((uint32_t)_i + 1);
	if (explore_plans(test, executions(TEST_NORMAL), &plan, &result, &total))
		ck_abort_msg("survived: %s", faults[_i].name);
	printf("caught %d | %s | %s %s %u %llu | %s |\n", _i + 1, faults[_i].name, test->name,
	       hows[plan.how], plan.depth, (unsigned long long)result.seed, result.text);
}
END_TEST

static int explore_by_hand(int argc, char **argv)
{
	static struct explore_result result;
	const struct explore_case *test = case_find(argv[1]);
	struct explore_plan plan = { EXPLORE_RANDOM, 2, 1, 10000 };

	if (argc > 5)
		explore_mutate((uint32_t)strtoul(argv[5], NULL, 10));
	for (int i = 0; argc > 2 && i < 3; i++)
		if (strcmp(argv[2], hows[i]) == 0)
			plan.how = (enum explore_how)i;
	if (argc > 3)
		plan.depth = (uint32_t)strtoul(argv[3], NULL, 10);
	if (argc > 4)
		plan.seed = strtoull(argv[4], NULL, 10);
	if (argc > 4)
		plan.executions = plan.how == EXPLORE_ALL ? plan.seed + 1 : 1;
	if (test == NULL) {
		fprintf(stderr, "no case is named %s\n", argv[1]);
		return EXIT_FAILURE;
	}
	explore(test, &plan, &result);
	printf("%s: %llu executions, %llu points: %s\n%s", test->name,
	       (unsigned long long)result.executions, (unsigned long long)result.points,
	       result.failed ? result.text : "nothing found", result.trace);
	return result.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("interleavings");

	if (argc > 1)
		return explore_by_hand(argc, argv);
	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(tc, test_explore, 0, (int)CASES);
	tcase_add_test(tc, test_lock_is_held_while_ranks_connect);
	tcase_add_loop_test(tc, test_replay, 0, (int)CASES);
	/* What a sanitizer would say of these is nothing of the library. */
	if (test_length() != TEST_SHORT)
		tcase_add_loop_test(tc, test_mutation, 0, (int)fault_count);
	return check_main("interleavings", tc);
}
