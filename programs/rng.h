/* rng.h -- splitmix64 (Steele, Lea, Flood 2014): one word of state, every seed good; a stream per
 * purpose, from one seed. */
#ifndef PROGRAMS_RNG_H
#define PROGRAMS_RNG_H

#include <stdint.h>

__extension__ typedef unsigned __int128 rng_u128;

struct rng {
	uint64_t state;
};

/* Every bit of the input reaches every bit of the output. */
static inline uint64_t rng_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t rng_next(struct rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15u;
	return rng_mix(rng->state);
}

/* `stream`: the purpose. */
static inline struct rng rng_open(uint64_t seed, uint32_t stream, uint64_t index)
{
	struct rng rng = { rng_mix(seed + 0x9e3779b97f4a7c15u * (uint64_t)stream) };

	rng.state = rng_mix(rng.state ^ (index + 0x632be59bd9b4e019u));
	return rng;
}

/* Uniform in 0 .. bound - 1 up to a bias of bound / 2^64; bound > 0. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
	return (uint64_t)(((rng_u128)rng_next(rng) * bound) >> 64);
}

/* A random word as a number in [0, 1). */
static inline double rng_unit_of(uint64_t word)
{
	return (double)(word >> 11) * 0x1p-53;
}

/* Uniform in [0, 1). */
static inline double rng_unit(struct rng *rng)
{
	return rng_unit_of(rng_next(rng));
}

#endif
