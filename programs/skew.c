/* skew.c -- how late: see skew.h. skew_read.c reads the words. */
#include <math.h>
#include <stddef.h>

#include "programs/rng.h"
#include "programs/skew.h"

#define PARETO_SHAPE 2.0 /* Heavy tail, finite mean. */

uint64_t skew_ns(const struct skew *skew, uint32_t rank, uint32_t rank_count, uint32_t iteration)
{
	double d = (double)skew->time_ns;
	uint64_t random = rng_mix(rng_mix(skew->seed + 3) ^ ((uint64_t)iteration << 32 | rank));
	double u = rng_unit_of(random);
	double last = rank_count > 1 ? rank_count - 1 : 1;

	switch (skew->kind) {
	case SKEW_NONE:
		break;
	case SKEW_LINEAR:
		return (uint64_t)(d * rank / last);
	case SKEW_EXP:
		return (uint64_t)(-d * log(1 - u));
	case SKEW_PARETO: /* Lomax: from 0 on, with this mean. */
		return (uint64_t)(d * (PARETO_SHAPE - 1) * (pow(1 - u, -1 / PARETO_SHAPE) - 1));
	case SKEW_ROTATING:
		return (uint64_t)(d * ((rank + iteration) % rank_count) / last);
	case SKEW_RANK:
		return rank == skew->rank ? skew->time_ns : 0;
	case SKEW_TRACE:
		return skew
			->trace[(size_t)(iteration % skew->trace_lines) * skew->trace_ranks + rank];
	}
	return 0;
}

uint64_t skew_largest_ns(const struct skew *skew, uint32_t rank_count, uint32_t iterations)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < iterations; i++)
		for (uint32_t r = 0; r < rank_count; r++) {
			uint64_t ns = skew_ns(skew, r, rank_count, i);

			largest = ns > largest ? ns : largest;
		}
	return largest;
}
