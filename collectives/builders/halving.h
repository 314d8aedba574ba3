/*
 * halving.h -- recursive halving and doubling (Rabenseifner, "Optimization of Collective Reduction
 * Operations", 2004) among members, which are ranks, or nodes of which one rank takes part.
 *
 * In round k, pairs at distance 2^k halve the range that both have: each sends one half and reduces
 * the other, the lower one's operand first. Then the same pairs, the last first, exchange the
 * results. Each element's last reduction is one rank's, so that all get the same bits.
 *
 * When their number is no power of two, the first members fold in pairs: the odd one gives its
 * operand to the even one, and gets the result from it.
 */
#ifndef RB_COLLECTIVES_HALVING_H
#define RB_COLLECTIVES_HALVING_H

#include "collectives/build.h"

#define RB_HALVING_ROUNDS 32
/* Channels: round k's are k and, of results, RB_HALVING_GATHER + k. */
#define RB_HALVING_GATHER 32
#define RB_HALVING_FOLD 64
#define RB_HALVING_RESULT 65
#define RB_HALVING_CHANNELS 66 /* From here on they are the builder's own. */

struct rb_range { /* Of blocks. */
	uint32_t block, blocks;
};

struct rb_halving {
	uint32_t member, rounds, fold;
	struct rb_range have[RB_HALVING_ROUNDS]; /* Before each round. */
	uint32_t peer[RB_HALVING_ROUNDS];        /* The rank to meet: for the builder to fill. */
	uint32_t slots;                          /* Of scratch: used so far. */
	/* What is written so far. */
	uint32_t reduce; /* The last one. */
	bool reduced;
	uint32_t sends[RB_HALVING_ROUNDS], recvs[RB_HALVING_ROUNDS]; /* Halving; gathering. */
};

/* One of `count` members; the vector's blocks, as many as the power of two below, begin at `first`.
 */
void rb_halving_init(struct rb_halving *h, uint32_t member, uint32_t count, uint32_t first);

/* Whether the member gives all it has to the one before it; whether it gets that. */
static inline bool rb_halving_is_folded(const struct rb_halving *h)
{
	return h->member < 2 * h->fold && h->member % 2 == 1;
}
static inline bool rb_halving_folds(const struct rb_halving *h)
{
	return h->member < 2 * h->fold && h->member % 2 == 0;
}

/* The member to meet in round k. */
uint32_t rb_halving_meets(const struct rb_halving *h, uint32_t k);

/* What stays (or, `other`, what goes) in round k: the lower half where bit k is 0. */
struct rb_range rb_halving_half(const struct rb_halving *h, uint32_t k, bool other);

/* Whether the own operand comes first in round k. */
bool rb_halving_is_lower(const struct rb_halving *h, uint32_t k);

/*
 * The step added last works on `now`, of which, or around which, `step` works on `then`. What
 * begins later in `now` is in a later chunk of it; what begins earlier may reach back from any
 * chunk to its last.
 */
void rb_halving_after(struct rb_writer *w, uint32_t step, struct rb_range then,
		      struct rb_range now);

/* RECV and REDUCE of `range` into OUT, with what is here in `have`. */
void rb_halving_reduce(struct rb_writer *w, struct rb_halving *h, uint32_t peer, uint16_t channel,
		       struct rb_range range, struct rb_span have, bool lower);

/* The rounds from k on; then those that bring the results to OUT. */
void rb_halving_rounds(struct rb_writer *w, struct rb_halving *h, uint32_t k);
void rb_halving_gather(struct rb_writer *w, struct rb_halving *h);

/* The step added last needs the results of `range`: our own block, and what came in rounds from
 * k. */
void rb_halving_after_results(struct rb_writer *w, const struct rb_halving *h, uint32_t k,
			      struct rb_range range);

/* Elements that a member sends. */
uint64_t rb_halving_sent(struct rb_halving *h, const struct rb_layout *layout);

#endif
