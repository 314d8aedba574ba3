/* rng.h -- splitmix64 (Steele, Lea, Flood 2014): one word of state, every seed good, forks
 * cheaply. */
#ifndef RB_BASE_RNG_H
#define RB_BASE_RNG_H

#include <stdint.h>

__extension__ typedef unsigned __int128 rb_u128;

struct rb_rng {
	uint64_t state;
};

static inline uint64_t rb_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t rb_rng_next(struct rb_rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15u;
	return rb_mix(rng->state);
}

/* Uniform in 0 .. bound - 1 up to a bias of bound / 2^64; bound > 0. */
static inline uint64_t rb_rng_below(struct rb_rng *rng, uint64_t bound)
{
	return (uint64_t)(((rb_u128)rb_rng_next(rng) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double rb_rng_unit(struct rb_rng *rng)
{
	return (double)(rb_rng_next(rng) >> 11) * 0x1p-53;
}

#endif
