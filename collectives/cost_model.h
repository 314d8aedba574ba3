/* cost_model.h -- what cost.c reckons with: the facts, as one algorithm meets them. */
#ifndef RB_COLLECTIVES_COST_MODEL_H
#define RB_COLLECTIVES_COST_MODEL_H

#include "collectives/algorithms.h"

struct model {
	const struct rb_algorithm *a;
	double ranks, nodes, size; /* All; nodes; ranks of one. */
	double far, near;          /* Other ranks: of other nodes, and of its own. */
	double drivers;            /* Ranks that share a card. */
	double latency, near_latency, message, near_message; /* us */
	double wire;                                         /* us a byte of one message. */
	double core, memory; /* us a byte read or written: by one rank; of the node's memory. */
	double move, alone;  /* Of all ranks of a node at once; of one. */
	double work;         /* us a piece. */
	double copied, piece, eager, attach; /* Bytes. */
	double attach_copies;                /* What one that is attached takes. */
	double bytes, chunk;
	bool put;
};

struct model rb_cost_model(const struct rb_choice_facts *facts,
			   const struct rb_algorithm *algorithm, double bytes, double chunk_bytes);

#endif
