/*
 * delay.h -- injected stragglers (--delay): how much longer a rank's step takes.
 *
 *   random:T[,T..]  one rank a step for each T, drawn from the run's seed, alike on all ranks
 *   rotating:T      a ramp from 0 to T over the ranks, shifted by one rank a step
 *   linear:T        the same ramp, unshifted
 *   rank:R:T        rank R, every step
 */
#ifndef TR_DELAY_H
#define TR_DELAY_H

#include "trainer/base/error.h"

#define TR_DELAYS_MAX 16

enum tr_delay_kind {
	TR_DELAY_NONE,
	TR_DELAY_RANDOM,
	TR_DELAY_ROTATING,
	TR_DELAY_LINEAR,
	TR_DELAY_RANK
};

struct tr_delay {
	enum tr_delay_kind kind;
	uint32_t rank; /* RANK. */
	uint32_t count;
	uint64_t ns[TR_DELAYS_MAX];
};

extern const char *const tr_delay_names[]; /* NULL-terminated, by kind. */
/* For struct option: `to` is a struct tr_delay. */
bool tr_delay_parse(const char *option, const char *text, void *to, struct option_error *error);
/* Refuses what would delay none of these ranks. */
rubato_status tr_delay_check(const struct tr_delay *delay, uint32_t rank_count,
			     struct tr_error *error);
uint64_t tr_delay_at(const struct tr_delay *delay, uint64_t seed, uint32_t rank,
		     uint32_t rank_count, uint64_t step);

#endif
