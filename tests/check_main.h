/*
 * check_main.h -- Check with a filter of single tests, and the end of every test program.
 *
 * TEST_ONLY=NAME runs the START_TESTs of that name alone; NAME may be a pattern, as in 'wire_*'. A
 * program in which no test has run fails, whoever left them out: TEST_ONLY or Check's CK_RUN_*. A
 * case that sets no limit has a minute.
 */
#ifndef RB_TESTS_CHECK_MAIN_H
#define RB_TESTS_CHECK_MAIN_H

#include <check.h>
#include <fnmatch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/seeds.h"

struct check_share { /* Which tests are this process's: side_by_side.h. */
	uint32_t of, number;
	uint32_t next; /* Test, of all. */
};

static inline struct check_share *check_share(void)
{
	static struct check_share share = { .of = 1 };

	return &share;
}

/* Check's own limit for a test, 4 s of the clock, is soon over where others take the processors. */
static inline TCase *check_case(const char *name)
{
	(void)setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	return tcase_create(name);
}
#define tcase_create(name) check_case(name)

/*
 * Of each assertion that holds Check writes the place to a file, for the report of a crash: in
 * loops that costs more than what is asserted. A thread tells each place the first few times. Not
 * under ThreadSanitizer: the lock that Check takes there orders threads.
 */
#ifndef __SANITIZE_THREAD__
#define _mark_point(file, line)                                                                    \
	__extension__({                                                                            \
		static __thread uint8_t check_told;                                                \
		if (check_told < 4) {                                                              \
			check_told++;                                                              \
			(_mark_point)(file, line);                                                 \
		}                                                                                  \
	})
#endif

/* All of Check's macros that add a test come here. */
static inline void check_add(TCase *tc, const TTest *test, int signal, int exit_status, int begin,
			     int end)
{
	const char *only = getenv("TEST_ONLY");
	struct check_share *share = check_share();

	if (only != NULL && fnmatch(only, test->name, 0) != 0)
		return;
	if (share->of == 1)
		_tcase_add_test(tc, test, signal, exit_status, begin, end);
	else
		for (int i = begin; i < end; i++)
			if (share->next++ % share->of == share->number)
				_tcase_add_test(tc, test, signal, exit_status, i, i + 1);
}

#undef tcase_add_test
#undef tcase_add_test_raise_signal
#undef tcase_add_exit_test
#undef tcase_add_loop_test
#undef tcase_add_loop_test_raise_signal
#undef tcase_add_loop_exit_test
#define tcase_add_test(tc, test) check_add(tc, test, 0, 0, 0, 1)
#define tcase_add_test_raise_signal(tc, test, signal) check_add(tc, test, signal, 0, 0, 1)
#define tcase_add_exit_test(tc, test, status) check_add(tc, test, 0, status, 0, 1)
#define tcase_add_loop_test(tc, test, begin, end) check_add(tc, test, 0, 0, begin, end)
#define tcase_add_loop_test_raise_signal(tc, test, signal, begin, end)                             \
	check_add(tc, test, signal, 0, begin, end)
#define tcase_add_loop_exit_test(tc, test, status, begin, end)                                     \
	check_add(tc, test, 0, status, begin, end)

/* Runs the suite; the exit status of main. */
static inline int check_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int run, failed;

	seeds_open();
	srunner_run_all(runner, CK_ENV);
	run = srunner_ntests_run(runner);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (failed > 0)
		seeds_report();
	if (run == 0)
		(void)fprintf(stderr, "no test has run: does TEST_ONLY or CK_RUN_* name one?\n");
	return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A suite of one case. */
static inline int check_main(const char *suite_name, TCase *tc)
{
	Suite *suite = suite_create(suite_name);

	suite_add_tcase(suite, tc);
	return check_suite(suite);
}

#endif
