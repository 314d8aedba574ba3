/* clock.c -- CLOCK_MONOTONIC in nanoseconds. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t rb_clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rb_clock_sleep_until(uint64_t when_ns)
{
	struct timespec when = { (time_t)(when_ns / 1000000000u), (long)(when_ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}
