/* rng.h -- splitmix64 (Steele, Lea, Flood 2014): a stream per purpose, from one seed. */
#ifndef TR_RNG_H
#define TR_RNG_H

#include <stdint.h>

__extension__ typedef unsigned __int128 tr_u128;

enum tr_stream {
	TR_STREAM_SHUFFLE = 1,
	TR_STREAM_INIT = 2,
	TR_STREAM_DELAY = 3,
	TR_STREAM_SYNTHETIC = 11,
	TR_STREAM_AUGMENT = 12,
};

struct tr_rng {
	uint64_t state;
};

static inline uint64_t tr_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t tr_rng_next(struct tr_rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15u;
	return tr_mix(rng->state);
}

static inline struct tr_rng tr_rng_open(uint64_t seed, enum tr_stream stream, uint64_t index)
{
	struct tr_rng rng = { tr_mix(seed + 0x9e3779b97f4a7c15u * (uint64_t)stream) };

	rng.state = tr_mix(rng.state ^ (index + 0x632be59bd9b4e019u));
	return rng;
}

/* Uniform in 0 .. bound - 1 up to a bias of bound / 2^64; bound > 0. */
static inline uint64_t tr_rng_below(struct tr_rng *rng, uint64_t bound)
{
	return (uint64_t)(((tr_u128)tr_rng_next(rng) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double tr_rng_unit(struct tr_rng *rng)
{
	return (double)(tr_rng_next(rng) >> 11) * 0x1p-53;
}

#endif
