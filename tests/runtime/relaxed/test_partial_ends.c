/* test_partial_ends.c -- relaxed operations that end otherwise than by being freed everywhere, or
 * never begin. */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "runtime/relaxed/partial.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

#define LOST 2u /* Rank that the others hold for lost, before their connections to it end. */
#define TIMEOUT_NS 3000000000u

static void lose(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = LOST };

	rb_engine_enter(engine);
	p->driver.event(engine, &p->driver, &event);
	rb_engine_leave(engine);
}

static rubato_status over(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	uint64_t until_ns = rb_engine_now(engine) + TIMEOUT_NS;
	bool is_over = false;

	while (!is_over) {
		EXPECT(rb_engine_now(engine) < until_ns);
		rb_engine_enter(engine);
		(void)rb_engine_progress(engine);
		is_over = rb_partial_over(p);
		EXPECT(engine->poison == RUBATO_OK);
		rb_engine_leave(engine);
	}
	return RUBATO_OK;
}

static rubato_status agreed_main(rubato_comm *comm, void *arg)
{
	pthread_barrier_t *barrier = arg;
	rubato_partial *p;

	RB_TRY(rubato_set_timeout(comm, TIMEOUT_NS));
	RB_TRY(rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, NULL, &p));
	if (rubato_rank(comm) != LOST) {
		lose(p);
		RB_TRY(over(p));
	}
	(void)pthread_barrier_wait(barrier);
	if (rubato_rank(comm) != LOST) {
		uint64_t begin_ns = rubato_now(comm);

		EXPECT(rubato_partial_free(p) == RUBATO_ERR_PEER);
		EXPECT(strstr(rubato_error_text(), "rank 2 is lost") != NULL ||
		       strstr(rubato_error_text(), " failed") != NULL);
		EXPECT(rubato_now(comm) - begin_ns < TIMEOUT_NS / 2);
	}
	(void)pthread_barrier_wait(barrier);
	return rubato_rank(comm) == LOST ? rubato_abort(comm) : RUBATO_OK;
}

START_TEST(what_survivors_agreed_on_is_no_success)
{
	rubato_status status[LOST + 1];
	pthread_barrier_t barrier;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, LOST + 1), 0);
	(void)!local_run(LOST + 1, shm, agreed_main, &barrier, status);
	for (uint32_t r = 0; r < LOST; r++) /* finalize's: all that was expected was so. */
		ck_assert_msg(status[r] == RUBATO_ERR_PEER, "rank %u: %s: %s", r,
			      rubato_status_name(status[r]), rubato_error_text());
	(void)pthread_barrier_destroy(&barrier);
}
END_TEST

/* However long it is. */
static bool told(rubato_status status)
{
	return status == RUBATO_ERR_TIMEOUT && strstr(rubato_error_text(), "the end") != NULL;
}

static rubato_status poisoned_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *lagged;
	rubato_partial *p;
	char text[500];

	(void)arg;
	memset(text, '-', sizeof(text));
	memcpy(text + sizeof(text) - 8, "the end", 8);
	RB_TRY(rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, NULL, &p));
	RB_TRY(rubato_lagged_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	RB_TRY(rubato_lagged_begin(lagged));
	rb_engine_enter(&comm->engine);
	rb_engine_poison(&comm->engine, RUBATO_ERR_TIMEOUT, text);
	rb_engine_leave(&comm->engine);
	EXPECT(told(rubato_barrier(comm)));
	EXPECT(told(rubato_lagged_begin(lagged)));
	EXPECT(told(rubato_partial_free(p)));
	EXPECT(told(rubato_finalize(comm)));
	return RUBATO_OK;
}

START_TEST(errors_are_told_in_full)
{
	ck_assert_int_eq(local_run_raw(1, shm, poisoned_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* For finalize to free: sanitizers see what it leaves. */
static rubato_status forgotten_main(rubato_comm *comm, void *arg)
{
	const float gradient[4] = { 1, 2, 3, 4 };
	rubato_lagged *first, *second;

	(void)arg;
	RB_TRY(rubato_lagged_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, 1, &first));
	RB_TRY(rubato_lagged_create(comm, 4, RUBATO_FLOAT32, RUBATO_AVG, 2, &second));
	RB_TRY(rubato_lagged_accumulate(second, gradient, 1));
	RB_TRY(rubato_lagged_begin(second));

	EXPECT(comm->lagged != NULL);
	RB_TRY(rubato_lagged_free(first));
	RB_TRY(rubato_lagged_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, 1, &first));
	return RUBATO_OK;
}

START_TEST(lagged_ones_that_are_forgotten_are_freed)
{
	ck_assert_int_eq(local_run(2, shm, forgotten_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* Numbers that no enum has, as a wrong cast or a struct that was not filled leaves them. */
START_TEST(unknown_numbers_are_refused)
{
	static const int numbers[] = { 12, 1000, 100000000, INT_MAX, -1, INT_MIN };
	rubato_partial_options base = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_comm *comm;

	ck_assert_int_eq(rubato_init(&comm, NULL), RUBATO_OK);
	for (uint32_t i = 0; i < 8 * sizeof(numbers) / sizeof(numbers[0]); i++) {
		rubato_partial_options options = base;
		rubato_type type = RUBATO_FLOAT32;
		rubato_operator op = RUBATO_SUM;
		int number = numbers[i / 8];
		rubato_partial *p;
		int *fields[] = { (int *)&options.policy,
				  (int *)&options.rounds,
				  (int *)&options.late,
				  (int *)&options.collection,
				  (int *)&options.normalise,
				  (int *)&options.members,
				  (int *)&type,
				  (int *)&op };

		*fields[i % 8] = number;
		ck_assert_int_eq(rubato_partial_create(comm, 4, type, op, &options, &p),
				 RUBATO_ERR_ARGUMENT);
	}
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("partial-ends");
	TCase *tc = tcase_create("partial-ends");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_survivors_agreed_on_is_no_success);
	tcase_add_test(tc, unknown_numbers_are_refused);
	tcase_add_test(tc, errors_are_told_in_full);
	tcase_add_test(tc, lagged_ones_that_are_forgotten_are_freed);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
