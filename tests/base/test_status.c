/* test_status.c -- the assertion macro first: all other tests lean on it. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

/* A pipe that nobody reads holds up who logs once and for a moment; what was dropped is told. */
START_TEST(a_full_pipe_drops_lines)
{
	static char bytes[65536];
	ssize_t got, last;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
	while (write(ends[1], bytes, 4096) > 0)
		continue;
	ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0);
	ck_assert_int_eq(dup2(ends[1], 2), 2);
	for (int i = 0; i < 1000; i++)
		RB_LOG(RB_LOG_WARN, "line %d", i);
	do
		got = read(ends[0], bytes, sizeof(bytes));
	while (got > 0);
	RB_LOG(RB_LOG_WARN, "after");
	RB_LOG(RB_LOG_WARN, "again");
	last = read(ends[0], bytes, sizeof(bytes) - 1);
	ck_assert_int_gt(last, 0);
	bytes[last] = '\0';
	ck_assert_str_eq(bytes, "rubato: 1000 lines were dropped: standard error was full\n"
				"rubato: after\nrubato: again\n");
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
	tcase_add_test(tc, a_full_pipe_drops_lines);
	return check_main("base", tc);
}
