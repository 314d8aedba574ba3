/* test_period.c -- when the period between averages changes, and when it must not. */
#include <math.h>
#include <string.h>

#include "tests/check_main.h"
#include "trainer/rules/period.h"

static struct tr_period_options options(enum tr_schedule schedule)
{
	return (struct tr_period_options) { .schedule = schedule,
					    .first = 4,
					    .adapt_low = 0.7,
					    .adapt_high = 1.3,
					    .adapt_sample_steps = 20 };
}

/* Two samples: 2 / 1 and 3 / .5, so C is 4. */
static struct tr_period sampled(const struct tr_period_options *own)
{
	struct tr_period period;

	tr_period_open(&period, own, 100);
	tr_period_spread(&period, 7, 2.0, 1.0);
	tr_period_spread(&period, 19, 3.0, 0.5);
	ck_assert_uint_eq(period.steps, 4);
	ck_assert_uint_eq(period.samples, 2);
	ck_assert_double_eq(period.constant, 4.0);
	return period;
}

static const struct {
	double spread, rate;
	uint64_t steps;
} decisions[] = {
	{ 2.8, 1.0, 4 },  { 2.79, 1.0, 5 },     { 5.2, 1.0, 4 },  { 5.21, 1.0, 3 },
	{ 0.28, 0.1, 4 }, { 0.27, 0.1, 5 },     { 0.53, 0.1, 3 }, { 0.0, 1.0, 5 },
	{ 0.0, 0.0, 4 },  { 9.0, 0.0, 4 },      /* A rate of 0 says nothing, */
	{ NAN, 1.0, 4 },  { INFINITY, 1.0, 4 }, /* nor what is no number. */
};
#define DECISION_COUNT ((int)(sizeof(decisions) / sizeof(decisions[0])))

START_TEST(the_spread_decides)
{
	struct tr_period_options own = options(TR_SCHEDULE_ADP);
	struct tr_period period = sampled(&own);

	tr_period_spread(&period, 20, decisions[_i].spread, decisions[_i].rate);
	ck_assert_uint_eq(period.steps, decisions[_i].steps);
	ck_assert_double_eq(period.constant, 4.0); /* Sampling is over. */
}
END_TEST

START_TEST(the_period_has_bounds)
{
	struct tr_period_options own = options(TR_SCHEDULE_ADP);
	struct tr_period period;

	own.most = 6;
	period = sampled(&own);
	for (int i = 0; i < 5; i++)
		tr_period_spread(&period, 30, 0.1, 1.0);
	ck_assert_uint_eq(period.steps, 6);
	for (int i = 0; i < 9; i++)
		tr_period_spread(&period, 30, 99.0, 1.0);
	ck_assert_uint_eq(period.steps, 1);
	own.most = 0;
	period = sampled(&own);
	for (int i = 0; i < 50; i++)
		tr_period_spread(&period, 30, 0.1, 1.0);
	ck_assert_uint_eq(period.steps, 54);
}
END_TEST

START_TEST(without_samples_nothing_changes)
{
	struct tr_period_options own = options(TR_SCHEDULE_ADP);
	struct tr_period period;

	own.adapt_sample_steps = 0;
	tr_period_open(&period, &own, 100);
	tr_period_spread(&period, 3, 1.0, 1.0);
	tr_period_spread(&period, 7, 1e-9, 1.0);
	ck_assert_uint_eq(period.steps, 4);
	own.adapt_sample_steps = UINT64_MAX; /* A quarter of the steps. */
	tr_period_open(&period, &own, 100);
	tr_period_spread(&period, 24, 0.0, 1.0); /* One rank, say: no spread, C is 0. */
	tr_period_spread(&period, 25, 0.0, 1.0);
	tr_period_spread(&period, 26, 1.0, 1.0);
	ck_assert_uint_eq(period.samples, 1);
	ck_assert_uint_eq(period.steps, 4);
}
END_TEST

START_TEST(post_local_begins_full)
{
	struct tr_period_options own = options(TR_SCHEDULE_POST_LOCAL);
	struct tr_period period;

	tr_period_open(&period, &own, 100);
	ck_assert(tr_period_full(&period, 0) && tr_period_full(&period, 19));
	ck_assert(!tr_period_full(&period, 20));
	own.schedule = TR_SCHEDULE_CONST;
	tr_period_open(&period, &own, 100);
	ck_assert(!tr_period_full(&period, 0));
}
END_TEST

static void loss(struct tr_period *period, uint64_t step, double value, uint64_t wanted)
{
	tr_period_loss(period, step, value);
	ck_assert_msg(period->steps == wanted, "after step %llu: %llu, not %llu",
		      (unsigned long long)step, (unsigned long long)period->steps,
		      (unsigned long long)wanted);
}

START_TEST(adacomm_follows_the_loss_downwards)
{
	struct tr_period_options own = options(TR_SCHEDULE_ADACOMM);
	struct tr_period period;

	own.first = 9;
	tr_period_open(&period, &own, 100);
	loss(&period, 8, 4.0, 9);
	loss(&period, 17, 1.0, 9);
	loss(&period, 26, 1.0, 8); /* Their mean is 2.5: ceil(9 * sqrt(2.5 / 4)) = ceil(7.1). */
	loss(&period, 34, 1.0, 8);
	loss(&period, 42, 9.0, 5); /* ceil(9 / 2) */
	loss(&period, 60, 1.0, 2); /* ceil(9 * 1.5) is more: half of 5. */
	loss(&period, 81, 0.1, 1);
	loss(&period, 101, 0.1, 1); /* Never 0. */
	loss(&period, 121, NAN, 1);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("period");

	tcase_add_loop_test(tests, the_spread_decides, 0, DECISION_COUNT);
	tcase_add_test(tests, the_period_has_bounds);
	tcase_add_test(tests, without_samples_nothing_changes);
	tcase_add_test(tests, post_local_begins_full);
	tcase_add_test(tests, adacomm_follows_the_loss_downwards);
	return check_main("period", tests);
}
