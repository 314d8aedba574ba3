/* sync.c -- locks, on atomics and the sleeps of sync_os.c. */
#include "base/sync.h"

#define SPINS 100 /* Guess: about 3 us of pauses, more than any section under a lock takes. */

void rb_lock_init(struct rb_lock *lock)
{
	atomic_init(&lock->word, 0);
}

bool rb_lock_try(struct rb_lock *lock)
{
	uint32_t seen = 0;

	return atomic_compare_exchange_strong_explicit(&lock->word, &seen, 1, memory_order_acquire,
						       memory_order_relaxed);
}

void rb_lock_take(struct rb_lock *lock)
{
	for (int i = 0; i < SPINS; i++) {
		if (rb_lock_try(lock))
			return;
		rb_pause();
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		(void)rb_futex_wait(&lock->word, 2, UINT64_MAX);
}

void rb_lock_drop(struct rb_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		rb_futex_wake(&lock->word, 1);
}
