/* test_partial.c -- partial allreduces over the whole runtime: ranks as threads, and simulated. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/local.h"
#include "tests/runtime/rounds.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
#ifdef RB_HAVE_UCX
static const struct rb_transport_ops *const ucx[] = { &rb_transport_ucx, NULL };
#endif

static const struct {
	const char *name;
	rubato_policy policy;
} policies[] = {
	{ "solo", RUBATO_POLICY_SOLO },		{ "majority", RUBATO_POLICY_MAJORITY },
	{ "quorum", RUBATO_POLICY_QUORUM },	{ "deadline", RUBATO_POLICY_DEADLINE },
	{ "adaptive", RUBATO_POLICY_ADAPTIVE }, { "wagma", RUBATO_POLICY_WAGMA },
};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static struct rounds world; /* Each test runs in a process of its own. */

static void threads_run(uint32_t n, const char *name)
{
	ck_assert_msg(local_run(n, shm, rounds_main, &world, NULL) == RUBATO_OK, "%s on %u threads",
		      name, n);
	rounds_check(&world, n, name);
}

static void simulated_run(rubato_sim_options *options, const char *name)
{
	rubato_sim_result result;

	ck_assert_msg(rubato_sim_run(options, rounds_main, &world, &result) == RUBATO_OK,
		      "%s on %u ranks, seed %llu: rank %u: %s", name, options->rank_count,
		      (unsigned long long)options->seed, result.failed_rank, rubato_error_text());
	rounds_check(&world, options->rank_count, name);
}

static void policy_set(uint32_t index, uint32_t n)
{
	world.options.policy = policies[index].policy;
	world.options.deadline_ns = 200000;
	world.options.group = policies[index].policy == RUBATO_POLICY_WAGMA && n % 2 == 0 ? n / 2 : 0;
}

START_TEST(every_policy_on_threads)
{
	for (uint32_t n = 1; n <= 4; n++) {
		rounds_init(&world);
		policy_set((uint32_t)_i, n);
		threads_run(n, policies[_i].name);
		rounds_init(&world);
		policy_set((uint32_t)_i, n);
		world.options.rounds = RUBATO_ROUNDS_FREE;
		world.delay_ns = 300000;
		world.rotating = true;
		world.count = 20000; /* Merges without the lock. */
		threads_run(n, policies[_i].name);
	}
}
END_TEST

#ifdef RB_HAVE_UCX
START_TEST(every_policy_over_ucx)
{
	rounds_init(&world);
	policy_set((uint32_t)_i, 2);
	world.delay_ns = 1000000;
	ck_assert_msg(local_run(2, ucx, rounds_main, &world, NULL) == RUBATO_OK, "%s over UCX",
		      policies[_i].name);
	rounds_check(&world, 2, policies[_i].name);
}
END_TEST
#endif

/* Aligned and free, all late rules, all collections, on networks that reorder and on nodes. */
START_TEST(every_option_simulated)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	for (uint64_t seed = 0; seed < 108; seed++) {
		char name[64];

		rounds_init(&world);
		options.seed = seed + 1;
		options.rank_count = (uint32_t)(2 + seed % 7);
		options.reorder = seed % 2 == 0;
		options.jitter = 0.5;
		options.ranks_per_node = seed % 4 < 2 ? 0 : 4;
		policy_set((uint32_t)_i, options.rank_count);
		world.options.rounds = (rubato_rounds)(seed / 3 % 2);
		world.options.late = (rubato_late)(seed % 3);
		world.options.collection = (rubato_collection)(seed / 6 % 3);
		world.options.normalise = (rubato_normalise)(seed / 9 % 3);
		world.options.window_ns = seed % 5 == 0 ? 300000 : 0;
		world.options.depth = seed % 4 == 1 ? 2 : 0;
		world.options.full_every = seed % 7 == 3 ? 4 : 0;
		world.options.max_absence = seed % 6 == 5 ? 3 : 0;
		world.options.zeroed = seed % 2 == 1;
		world.options.seed = seed;
		world.floats = seed % 3 == 1;
		world.delay_ns = seed % 5 * 250000;
		world.rotating = seed % 2 == 1;
		world.eras = seed % 4 == 2 ? 3 : 1;
		world.leaving = seed % 9 == 4 && world.eras == 1;
		world.extra = world.options.rounds == RUBATO_ROUNDS_FREE ? 7 : 0;
		(void)snprintf(name, sizeof(name), "%s, seed %llu", policies[_i].name,
			       (unsigned long long)seed);
		simulated_run(&options, name);
	}
}
END_TEST

/* ---- Losses ---- */

/* At any time, so in every phase; two crashes in half of the runs, the second during recovery. */
START_TEST(survivors_of_crashes_agree)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	uint32_t fired = 0, second = 0;

	for (uint64_t seed = 0; seed < 150; seed++) {
		rubato_sim_fault faults[2] = {
			{ .kind = RUBATO_SIM_CRASH, .rank = (uint32_t)(seed % 3) },
			{ .kind = RUBATO_SIM_CRASH, .rank = 3 },
		};
		rubato_sim_result result;
		uint32_t survivors;
		char name[64];

		rounds_init(&world);
		options.seed = seed + 1;
		options.rank_count = (uint32_t)(4 + seed % 5);
		options.ranks_per_node = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 4 : 16;
		options.jitter = 0.5;
		options.detect_ns = 1000 + seed % 7 * 20000;
		faults[0].at_ns = 20000 + seed * 7919 % 600000;
		faults[1].at_ns = faults[0].at_ns + options.detect_ns + seed % 11 * 3000;
		options.faults = faults;
		options.fault_count = 1 + seed % 2;
		policy_set((uint32_t)_i, options.rank_count);
		world.options.group = 0;
		world.options.deadline_ns = 20000;
		world.options.rounds = (rubato_rounds)(seed / 2 % 2);
		world.count = 1000;
		world.steps = 60;
		world.delay_ns = seed % 4 * 10000;
		world.rotating = true;
		world.victims = 1u << faults[0].rank | 1u << faults[1].rank;
		(void)snprintf(name, sizeof(name), "%s, seed %llu", policies[_i].name,
			       (unsigned long long)seed);
		rubato_status err = rubato_sim_run(&options, rounds_main, &world, &result);

		survivors = rounds_check_survivors(&world, options.rank_count, name);
		if (err == RUBATO_OK || survivors == 0)
			continue; /* All had returned, or not begun. */
		ck_assert_msg(survivors == options.rank_count - 2,
			      "%s: %u of %u heard of %u crashes: rank %u: %s", name, survivors,
			      options.rank_count, result.faults_fired, result.failed_rank,
			      rubato_error_text());
		ck_assert_int_eq(result.first_error, RUBATO_ERR_PEER);
		fired++;
		second += result.faults_fired == 2;
	}
	ck_assert_uint_ge(fired, 100);
	ck_assert_uint_ge(second, 15);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("partial");
	TCase *tc = tcase_create("partial");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, every_policy_on_threads, 0, POLICIES);
#ifdef RB_HAVE_UCX
	tcase_add_loop_test(tc, every_policy_over_ucx, 0, POLICIES);
#endif
	tcase_add_loop_test(tc, every_option_simulated, 0, POLICIES);
	tcase_add_loop_test(tc, survivors_of_crashes_agree, 0, POLICIES);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
