/*
 * fast_clock.c -- loaded before the library: from rubato_init to the first rubato_barrier a rank's
 * clock goes a hundred times as fast, as if others had nearly all of the core for that long and
 * none of it after. Says so when that is over.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rubato.h"

#define TOO_MUCH 99

typedef rubato_status init_fn(rubato_comm **comm, const rubato_options *options);
typedef rubato_status barrier_fn(rubato_comm *comm);

static _Atomic(long long) begun_ns, ended_ns;

static long long now_ns(void)
{
	struct timespec t;

	(void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
	long long begun = begun_ns, ended = ended_ns, now;

	if (clock != CLOCK_MONOTONIC || begun == 0)
		return (int)syscall(SYS_clock_gettime, clock, t);
	now = now_ns();
	now += TOO_MUCH * ((ended != 0 ? ended : now) - begun);
	t->tv_sec = (time_t)(now / 1000000000);
	t->tv_nsec = (long)(now % 1000000000);
	return 0;
}

rubato_status rubato_init(rubato_comm **comm, const rubato_options *options)
{
	union {
		void *data;
		init_fn *call;
	} real = { dlsym(RTLD_NEXT, "rubato_init") };
	rubato_status status = real.call(comm, options);

	begun_ns = now_ns();
	return status;
}

rubato_status rubato_barrier(rubato_comm *comm)
{
	union {
		void *data;
		barrier_fn *call;
	} real = { dlsym(RTLD_NEXT, "rubato_barrier") };

	if (ended_ns == 0) {
		ended_ns = now_ns();
		(void)fprintf(stderr, "fault fired\n");
	}
	return real.call(comm);
}
