/* check_main.h -- the end of every test program: runs one suite of one test case. */
#ifndef RB_TESTS_CHECK_MAIN_H
#define RB_TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

static inline int check_main(const char *suite_name, TCase *tc)
{
	Suite *suite = suite_create(suite_name);

	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
