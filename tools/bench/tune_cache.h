/* tune_cache.h -- how fast what lies in caches is read and written: tune_cache.c. */
#ifndef RB_BENCH_TUNE_CACHE_H
#define RB_BENCH_TUNE_CACHE_H

#include <stdint.h>

/* Bytes a second, reads and writes added up; 0: not known. */
double tune_copy_rate(uint64_t size_bytes, uint64_t for_ns);

struct tune_cache {
	uint64_t size_bytes;   /* Of one core; 0: none was found. */
	double cached, shared; /* Bytes a second; shared 0: there is no other core. */
	double reduced; /* Of sums of two vectors into a third, where that is slower than copies. */
	double shared_latency_us; /* Until the first of them comes. */
};

struct tune_cache tune_cache_measure(void);

#endif
