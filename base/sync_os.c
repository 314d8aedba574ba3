/*
 * sync_os.c -- sleeps on futexes, threads on pthreads. Apart from sync.c, so that the exploration
 * of interleavings (tests/interleavings) can put a scheduler of its own in this one place.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool rb_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec until = { (time_t)(deadline_ns / 1000000000u),
				  (long)(deadline_ns % 1000000000u) };
	long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
			  deadline_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);

	return !(rc == -1 && errno == ETIMEDOUT);
}

void rb_futex_wake(_Atomic uint32_t *word, uint32_t count)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
		      count > INT_MAX ? INT_MAX : (int)count, NULL, NULL, 0);
}

rubato_status rb_thread_start(struct rb_thread *thread, void *(*thread_main)(void *), void *arg)
{
	pthread_t handle;
	sigset_t all, before;

	/* Signals stay the application's: none is ever delivered to a thread of the library. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&handle, NULL, thread_main, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);

	thread->running = rc == 0;
	if (rc == EAGAIN)
		return RB_FAIL(RUBATO_ERR_MEMORY,
			       "no thread could be started: the user's limit (ulimit -u), the "
			       "container's (pids.max) or that of address space (ulimit -v) is "
			       "reached");
	if (rc != 0)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no thread could be started: %s", strerror(rc));
	thread->handle = (unsigned long)handle;
	return RUBATO_OK;
}

void rb_thread_join(struct rb_thread *thread)
{
	if (thread->running)
		(void)pthread_join((pthread_t)thread->handle, NULL);
	thread->running = false;
}

void rb_thread_confine(const uint64_t *cpus, uint32_t word_count)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (uint32_t i = 0; i < 64 * word_count && i < CPU_SETSIZE; i++)
		if (cpus[i / 64] >> i % 64 & 1)
			CPU_SET(i, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		RB_LOG(RB_LOG_WARN, "a thread cannot be bound to its processors: %s",
		       strerror(errno));
}

bool rb_thread_is_usual(void)
{
	return sched_getscheduler(0) == SCHED_OTHER;
}

void rb_thread_modest(bool modest)
{
	const struct sched_param none = { 0 };

	(void)sched_setscheduler(0, modest ? SCHED_BATCH : SCHED_OTHER, &none);
}

uint32_t rb_cpu_here(void)
{
	int cpu = sched_getcpu();

	return cpu >= 0 ? (uint32_t)cpu : RB_CPU_NONE;
}

static bool confine_to(uint32_t cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* The system moves a thread when its processor is taken from it. */
bool rb_thread_move(uint32_t cpu, uint64_t patience_ns)
{
	uint64_t start = rb_clock_ns();
	uint32_t from = rb_cpu_here();
	cpu_set_t before;
	bool there;

	if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(before), &before) != 0 ||
	    !CPU_ISSET(cpu, &before) || !confine_to(cpu))
		return false;
	there = rb_clock_ns() - start <= patience_ns;
	if (!there && from < CPU_SETSIZE)
		(void)confine_to(from);
	if (sched_setaffinity(0, sizeof(before), &before) != 0)
		RB_LOG(RB_LOG_WARN, "a thread cannot run where it might before: %s",
		       strerror(errno));
	return there;
}

void rb_yield(void)
{
	(void)sched_yield();
}
