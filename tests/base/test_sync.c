/* test_sync.c -- locks, futexes, threads. */
#include "base/clock.h"
#include "base/sync.h"
#include "tests/check_main.h"

#define THREADS 4
#define TURNS 20000

struct shared {
	struct rb_lock lock;
	uint64_t counter; /* Under lock. */
	_Atomic uint32_t word;
};

static void *count_up(void *arg)
{
	struct shared *s = arg;

	for (uint32_t i = 0; i < TURNS; i++) {
		rb_lock_take(&s->lock);
		s->counter++;
		rb_lock_drop(&s->lock);
	}
	return NULL;
}

START_TEST(a_lock_excludes)
{
	struct shared s = { .counter = 0 };
	struct rb_thread threads[THREADS];

	rb_lock_init(&s.lock);
	for (uint32_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(rb_thread_start(&threads[i], count_up, &s), RUBATO_OK);
	for (uint32_t i = 0; i < THREADS; i++)
		rb_thread_join(&threads[i]);
	ck_assert_uint_eq(s.counter, (uint64_t)THREADS * TURNS);
	ck_assert(rb_lock_try(&s.lock));
	ck_assert(!rb_lock_try(&s.lock));
	rb_lock_drop(&s.lock);
}
END_TEST

static void *wake_up(void *arg)
{
	struct shared *s = arg;

	atomic_store(&s->word, 1);
	rb_futex_wake(&s->word, 1);
	return NULL;
}

START_TEST(a_sleeper_is_woken_or_times_out)
{
	struct shared s = { .counter = 0 };
	struct rb_thread thread;

	ck_assert(!rb_futex_wait(&s.word, 0, rb_clock_ns() + 1000000));
	ck_assert(rb_futex_wait(&s.word, 1, UINT64_MAX)); /* The word is another: no sleep. */
	ck_assert_int_eq(rb_thread_start(&thread, wake_up, &s), RUBATO_OK);
	while (atomic_load(&s.word) == 0)
		ck_assert(rb_futex_wait(&s.word, 0, rb_clock_ns() + UINT64_C(60000000000)));
	rb_thread_join(&thread);
	rb_thread_join(&thread); /* Joined already: nothing. */
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("sync");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_lock_excludes);
	tcase_add_test(tc, a_sleeper_is_woken_or_times_out);
	return check_main("base", tc);
}
