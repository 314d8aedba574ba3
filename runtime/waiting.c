/*
 * waiting.c -- how long to poll, how long to yield, when to sleep.
 *
 * A cross-core wake-up is dear (some 30 us one way on virtual machines), a yield to another
 * runnable thread cheap (under 1 us), a cache line cheapest. So: with a core for each rank, poll
 * for several times what being woken costs; with more ranks than cores, polling keeps the awaited
 * rank from running: yield early. Either way sleep when nothing has come for long. The wake-up is
 * measured, once per communicator.
 */
#include <sched.h>

#include "base/clock.h"
#include "runtime/engine.h"

#define ROUNDS 6           /* Enough for a median, at some 70 us each. */
#define SPIN_WAKEUPS 4     /* Guess: polls for that many wake-ups' time before it sleeps. */
#define YIELD_WAKEUPS 40   /* Guess: yields are 50 times cheaper than wake-ups. */
#define SHARED_SPIN_NS 300 /* A few cache misses: the peer may be on the other core, just now. */
#define WAKE_NS_MIN 20000  /* Both threads of the measurement may have shared a core. */
#define WAKE_NS_MAX 200000

#define BALL_NS_MAX 100000000

struct echo {
	_Atomic uint32_t ball; /* Only grows. Odd: the helper's turn. */
};

/* Until the ball has come to `turn`; false: it was too long on its way, so the game is over. */
static bool ball_await(struct echo *echo, uint32_t turn)
{
	uint64_t until = rb_deadline(rb_clock_ns(), BALL_NS_MAX);
	uint32_t seen;

	while ((seen = atomic_load(&echo->ball)) < turn)
		if (!rb_futex_wait(&echo->ball, seen, until))
			return false;
	return true;
}

static void *echo_main(void *arg)
{
	struct echo *echo = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (!ball_await(echo, 2 * i + 1))
			break;
		atomic_store(&echo->ball, 2 * i + 2);
		rb_futex_wake(&echo->ball, 1);
	}
	return NULL;
}

/* The fastest of some round trips between two sleeping threads, halved; bounded. */
static uint64_t wake_measure(void)
{
	struct echo echo = { 0 };
	struct rb_thread thread;
	uint64_t best = WAKE_NS_MAX * 2;

	if (rb_thread_start(&thread, echo_main, &echo) != RUBATO_OK)
		return WAKE_NS_MAX;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t start = rb_clock_ns(), took;

		atomic_store(&echo.ball, 2 * i + 1);
		rb_futex_wake(&echo.ball, 1);
		if (!ball_await(&echo, 2 * i + 2))
			break;
		took = rb_clock_ns() - start;
		best = took < best ? took : best;
	}
	rb_thread_join(&thread);
	best /= 2;
	return best < WAKE_NS_MIN ? WAKE_NS_MIN : best > WAKE_NS_MAX ? WAKE_NS_MAX : best;
}

struct rb_waiting rb_waiting_choose(uint32_t node_ranks, uint32_t cores, uint64_t forced_ns)
{
	uint64_t wake_ns;

	if (forced_ns > 0)
		return (struct rb_waiting) { .spin_ns = forced_ns, .yield_ns = 0 };
	wake_ns = wake_measure();
	if (node_ranks <= cores)
		return (struct rb_waiting) { .spin_ns = SPIN_WAKEUPS * wake_ns, .yield_ns = 0 };
	return (struct rb_waiting) { .spin_ns = SHARED_SPIN_NS,
				     .yield_ns = YIELD_WAKEUPS * wake_ns };
}
