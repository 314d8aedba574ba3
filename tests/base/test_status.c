/* test_status.c -- the assertion macro first: all other tests lean on it. */
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "tests/check_main.h"

static rubato_status fails(void)
{
	return RB_FAIL(RUBATO_ERR_PEER, "rank %u closed at step %u", 3u, 7u);
}

static rubato_status tries(uint32_t *reached)
{
	RB_TRY(RUBATO_OK);
	*reached = 1;
	RB_TRY(fails());
	*reached = 2;
	return RUBATO_OK;
}

START_TEST(true_assertions_are_silent)
{
	const char *what;
	int a = 2, b = 2;

	RB_ASSERT(a == b); /* Without parentheses in the macro this would be !a == b: false. */
	RB_ASSERT(a || b);
	RB_ASSERT(RB_IMPLIES(a == 3, b == 3));
	RB_ASSERT(!RB_IMPLIES(a == 2, b == 3));
	ck_assert(!rb_broken_take(&what));
}
END_TEST

#ifdef RB_ASSERT_ABORTS
START_TEST(a_false_assertion_aborts)
{
	int a = 0, b = 1;

	rb_log_level_set(RB_LOG_NONE);
	RB_ASSERT(a == b);
}
END_TEST
#else
START_TEST(a_false_assertion_is_noted_once)
{
	const char *what;
	int a = 0, b = 1;

	rb_log_level_set(RB_LOG_NONE);
	RB_ASSERT(a == b);
	ck_assert(rb_broken_take(&what));
	ck_assert_ptr_nonnull(strstr(what, "broken invariant: a == b"));
	ck_assert_ptr_nonnull(strstr(what, "test_status.c:"));
	ck_assert(!rb_broken_take(&what));
}
END_TEST
#endif

START_TEST(failures_leave_their_sentence)
{
	uint32_t reached = 0;

	ck_assert_int_eq(tries(&reached), RUBATO_ERR_PEER);
	ck_assert_uint_eq(reached, 1);
	ck_assert_str_eq(rubato_error_text(), "rank 3 closed at step 7");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("status");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, true_assertions_are_silent);
#ifdef RB_ASSERT_ABORTS
	tcase_add_test_raise_signal(tc, a_false_assertion_aborts, SIGABRT);
#else
	tcase_add_test(tc, a_false_assertion_is_noted_once);
#endif
	tcase_add_test(tc, failures_leave_their_sentence);
	return check_main("base", tc);
}
