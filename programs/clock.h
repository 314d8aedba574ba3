/* clock.h -- where programs read the time of this machine; rubato_now() is a rank's. */
#ifndef PROGRAMS_CLOCK_H
#define PROGRAMS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
