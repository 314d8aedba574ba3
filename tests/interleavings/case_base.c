/* case_base.c -- the lock with three threads, and the start-up's measurement of a wake-up. */
#include <stdlib.h>

#include "base/clock.h"
#include "runtime/engine/engine.h"
#include "tests/interleavings/cases.h"

/* ---- The lock ---- */

#define LOCKERS 3
#define ROUNDS 2
#define POINTS_INSIDE 3 /* So long that others give up spinning. */

struct lock_world {
	struct rb_lock lock;
	uint64_t counter; /* Plain: the lock's. */
};

static void *lock_open(void)
{
	return calloc(1, sizeof(struct lock_world));
}

static void *locker(void *arg)
{
	struct lock_world *w = arg;
	uint64_t value;

	for (int i = 0; i < ROUNDS; i++) {
		rb_lock_take(&w->lock);
		memcpy(&value, &w->counter, sizeof(value));
		for (int k = 0; k < POINTS_INSIDE; k++)
			explore_point("inside the lock");
		value++;
		memcpy(&w->counter, &value, sizeof(value));
		rb_lock_drop(&w->lock);
	}
	return NULL;
}

static void lock_body(void *world)
{
	struct lock_world *w = world;
	struct rb_thread others[LOCKERS - 1];

	rb_lock_init(&w->lock);
	w->counter = 0;
	explore_shared(&w->counter, sizeof(w->counter));
	for (int i = 0; i < LOCKERS - 1; i++)
		explore_expect(rb_thread_start(&others[i], locker, w) == RUBATO_OK, "thread");
	(void)locker(w);
	for (int i = 0; i < LOCKERS - 1; i++)
		rb_thread_join(&others[i]);
	explore_expect(w->counter == LOCKERS * ROUNDS, "counted to %llu of %d",
		       (unsigned long long)w->counter, LOCKERS * ROUNDS);
}

const struct explore_case case_lock = {
	.name = "lock",
	.open = lock_open,
	.body = lock_body,
	.close = free,
	.points_max = 5000,
};

/* ---- The measurement of a wake-up ---- */

static void waiting_body(void *world)
{
	uint64_t wake_ns = 0;
	struct rb_waiting waiting = rb_waiting_find(&wake_ns, 2, 2, 0);

	(void)world;
	explore_expect(waiting.spin_ns > 0 && waiting.yield_ns == 0, "spins %llu ns, yields %llu",
		       (unsigned long long)waiting.spin_ns, (unsigned long long)waiting.yield_ns);
}

const struct explore_case case_waiting = {
	.name = "waiting",
	.body = waiting_body,
	.time_outs = true,
	.points_max = 2000,
};
