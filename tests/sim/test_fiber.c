/* test_fiber.c -- a fiber keeps its place, its registers and to its stack. */
#include <fenv.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "transport/sim/fiber.h"

struct counter {
	struct rb_fiber *fiber;
	int turns, done;
};

static void count_to_three(void *arg)
{
	struct counter *c = arg;

	for (c->turns = 1; c->turns < 3; c->turns++)
		rb_fiber_leave(c->fiber);
	c->done = 1;
}

START_TEST(a_fiber_goes_on_where_it_left)
{
	struct counter c = { NULL, 0, 0 };

	ck_assert_int_eq(rb_fiber_open(65536, count_to_three, &c, &c.fiber), RUBATO_OK);
	ck_assert_int_eq(c.turns, 0);
	for (int i = 1; i <= 3; i++) {
		ck_assert(!rb_fiber_done(c.fiber));
		rb_fiber_enter(c.fiber);
		ck_assert_int_eq(c.turns, i);
	}
	ck_assert(rb_fiber_done(c.fiber));
	ck_assert_int_eq(c.done, 1);
	rb_fiber_close(c.fiber);
}
END_TEST

START_TEST(a_fiber_may_be_dropped_at_any_time)
{
	struct counter c = { NULL, 0, 0 };

	ck_assert_int_eq(rb_fiber_open(65536, count_to_three, &c, &c.fiber), RUBATO_OK);
	rb_fiber_close(c.fiber);
	ck_assert_int_eq(rb_fiber_open(65536, count_to_three, &c, &c.fiber), RUBATO_OK);
	rb_fiber_enter(c.fiber);
	rb_fiber_close(c.fiber);
	rb_fiber_close(NULL);
	ck_assert_int_eq(c.done, 0);
}
END_TEST

#define MANY 1024

static void sum_with_locals(void *arg)
{
	struct counter *c = arg;
	volatile double third = 1.0 / 3.0;
	uint64_t words[64];

	for (unsigned i = 0; i < 64; i++)
		words[i] = (uint64_t)(uintptr_t)c + i;
	for (unsigned i = 0; i < 64; i++) {
		rb_fiber_leave(c->fiber);
		c->turns += words[i] == (uint64_t)(uintptr_t)c + i && third == 1.0 / 3.0;
	}
}

START_TEST(a_thousand_fibers_keep_apart)
{
	struct counter *c = calloc(MANY, sizeof(*c));
	unsigned running = MANY;

	ck_assert_ptr_nonnull(c);
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_int_eq(rb_fiber_open(32768, sum_with_locals, &c[i], &c[i].fiber),
				 RUBATO_OK);
	while (running > 0) {
		for (unsigned i = 0; i < MANY; i++) {
			rb_fiber_enter(c[i].fiber);
			running -= rb_fiber_done(c[i].fiber);
		}
	}
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_int_eq(c[i].turns, 64);
		rb_fiber_close(c[i].fiber);
	}
	free(c);
}
END_TEST

static void round_up(void *arg)
{
	struct counter *c = arg;

	(void)fesetround(FE_UPWARD);
	rb_fiber_leave(c->fiber);
	c->turns = fegetround() == FE_UPWARD;
}

START_TEST(rounding_mode_belongs_to_the_fiber)
{
	struct counter c = { NULL, 0, 0 };

	ck_assert_int_eq(rb_fiber_open(65536, round_up, &c, &c.fiber), RUBATO_OK);
	rb_fiber_enter(c.fiber);
	ck_assert_int_eq(fegetround(), FE_TONEAREST);
	rb_fiber_enter(c.fiber);
	ck_assert_int_eq(c.turns, 1);
	rb_fiber_close(c.fiber);
}
END_TEST

static void fill_stack(void *arg)
{
	volatile char *depth = arg; /* Its own frame, and down from there. */
	volatile char here = 0;

	depth = &here;
	for (size_t i = 0; i < 65536; i += 64)
		*(depth - i) = 1;
}

START_TEST(running_over_the_stack_faults)
{
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct rb_fiber *f;

		(void)close(STDERR_FILENO); /* A sanitizer would tell the story there. */
		if (rb_fiber_open(16384, fill_stack, NULL, &f) == RUBATO_OK)
			rb_fiber_enter(f);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fiber");
	Suite *suite = suite_create("sim");

	tcase_add_test(tc, a_fiber_goes_on_where_it_left);
	tcase_add_test(tc, a_fiber_may_be_dropped_at_any_time);
	tcase_add_test(tc, a_thousand_fibers_keep_apart);
	tcase_add_test(tc, rounding_mode_belongs_to_the_fiber);
	tcase_add_test(tc, running_over_the_stack_faults);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
