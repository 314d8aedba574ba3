/*
 * sync.h -- every atomic, lock, sleep and thread of the library goes through here, so that one
 * place says what the memory order is and a test build can explore interleavings: that one puts
 * its own scheduler under the operations of <stdatomic.h>, rb_pause and all of sync_os.c.
 *
 * rb_lock is uncontended in one atomic exchange; contended it spins briefly, then sleeps on a
 * futex. It is never shared between processes: shared memory holds single-writer words only.
 */
#ifndef RB_BASE_SYNC_H
#define RB_BASE_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct rb_lock {
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody sleeps. */
};

void rb_lock_init(struct rb_lock *lock);
bool rb_lock_try(struct rb_lock *lock);
void rb_lock_take(struct rb_lock *lock);
void rb_lock_drop(struct rb_lock *lock);
/* By some thread: for assertions. */
static inline bool rb_lock_is_held(const struct rb_lock *lock)
{
	return atomic_load_explicit(&lock->word, memory_order_relaxed) != 0;
}

/* Sleeps while *word == seen, at most until deadline_ns (rb_clock_ns); false: the deadline
 * passed. */
bool rb_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void rb_futex_wake(_Atomic uint32_t *word, uint32_t count);

/* sync_fork.c: how many forks lie between this process and the first that counted. Only fork(),
 * in the child, changes it. */
extern uint32_t rb_forks;
/* Of what the process has once. A forked child finds it free, and what it guards whole. */
extern struct rb_lock rb_process_lock;
/* From now on they are counted, and that lock is held over each. */
RB_NODISCARD rubato_status rb_forks_count(void);

struct rb_thread {
	unsigned long handle;
	bool running;
};
RB_NODISCARD rubato_status rb_thread_start(struct rb_thread *thread, void *(*main)(void *),
					   void *arg);
void rb_thread_join(struct rb_thread *thread);
/* The calling thread, to the processors whose bits are set; says so in the log when it cannot. */
void rb_thread_confine(const uint64_t *cpus, uint32_t word_count);

/* Whether the calling thread is scheduled as threads usually are. */
bool rb_thread_is_usual(void);
/* Of such a one: when it is woken, it leaves the processor to who is running there, until that one
 * sleeps or has had its turn; or takes it, as threads usually do. */
void rb_thread_modest(bool modest);

#define RB_CPU_NONE UINT32_MAX
/* The processor that the calling thread is on; NONE: the system does not say. */
uint32_t rb_cpu_here(void);
/* Takes the calling thread to a processor, and then lets it run where it might before. False: it
 * might not run there, or had to wait for longer than patience_ns, and went back. */
bool rb_thread_move(uint32_t cpu, uint64_t patience_ns);

static inline void rb_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	/* A delay: on most processors `yield` is none, and a barrier would wait for stores. */
	__asm__ volatile("isb" ::: "memory");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* The line is about to be written: it may come here meanwhile from the processor that has it. */
static inline void rb_prefetch_write(const void *at)
{
#if defined(__x86_64__)
	/* The builtin would fetch it for reading, where the compiler may not assume this one. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

void rb_yield(void);

#endif
