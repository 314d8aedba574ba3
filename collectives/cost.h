/*
 * cost.h -- the time of an algorithm over nodes, where it is known what messages and copies take
 * between them and within: measured, or as the simulator has them. Elsewhere choice.c has a coarser
 * model.
 */
#ifndef RB_COLLECTIVES_COST_H
#define RB_COLLECTIVES_COST_H

#include "collectives/algorithms.h"

/* Messages within a node that cross go at once up to so many bytes, and are copied at both ends,
 * even where others are one copy: transport/shm_pieces.h. */
#define RB_CROSSING_BYTES 524288.0

/* Whether longer ones are worth it to an algorithm: it only moves, and has no slots for them. */
static inline bool rb_cost_uncrossed(const struct rb_algorithm *a)
{
	return a->by_node && (a->kind == RB_KIND_BROADCAST || a->kind == RB_KIND_ALLGATHER ||
			      a->kind == RB_KIND_ALLGATHERV);
}

/* Whether the facts are enough. */
bool rb_cost_known(const struct rb_choice_facts *facts);

/* In microseconds, of a vector of `bytes` in chunks of chunk_bytes; rb_cost_known. */
double rb_cost_us(const struct rb_choice_facts *facts, const struct rb_algorithm *algorithm,
		  double bytes, double chunk_bytes);

/* Likewise, of what the ranks of a node tell each other before they touch each other's buffers. */
double rb_cost_meet_us(const struct rb_choice_facts *facts);

#endif
