/*
 * uneven.h -- the blocks of the v-variants in rubato-bench and rubato-sim: what rank a sends rank b
 * is so many halves of the even share as (a + b) mod 5 says; in allgatherv and reduce_scatterv, a
 * is 0. So some are empty, some are twice as long, and what two ranks exchange is equal, as it must
 * be in place. Blocks are packed.
 */
#ifndef PROGRAMS_UNEVEN_H
#define PROGRAMS_UNEVEN_H

#include <stdint.h>

static inline uint64_t uneven_count(uint64_t share, uint32_t a, uint32_t b)
{
	static const uint8_t halves[5] = { 2, 1, 4, 0, 3 };
	uint64_t count = share / 2 * halves[(a + b) % 5];

	return share % 2 == 0 ? count : count + (halves[(a + b) % 5] + 1u) / 2;
}

/* Elements before block b of rank a. */
static inline uint64_t uneven_start(uint64_t share, uint32_t a, uint32_t b)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < b; i++)
		start += uneven_count(share, a, i);
	return start;
}

static inline void uneven_fill(uint64_t share, uint32_t a, uint32_t rank_count, uint64_t *counts)
{
	for (uint32_t i = 0; i < rank_count; i++)
		counts[i] = uneven_count(share, a, i);
}

/* Elements of all ranks' blocks, by the mean over ranks. */
static inline uint64_t uneven_mean(uint64_t share, uint32_t rank_count)
{
	uint64_t sum = 0;

	for (uint32_t a = 0; a < rank_count; a++)
		sum += uneven_start(share, a, rank_count);
	return sum / rank_count;
}

#endif
