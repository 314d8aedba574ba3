/* clock.h -- the one place where the trainer reads the time. */
#ifndef TR_CLOCK_H
#define TR_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t tr_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
