/*
 * work.h -- which samples a rank's next step reads.
 *
 *   static   equal shards, fixed before the run (order.h)
 *   shared   the next samples that nobody has drawn: a slow rank draws fewer (--work shared)
 *
 * Shared work needs no server. Each rank asks for a batch by a commit to a partial allreduce of its
 * own, whose rounds the first to ask opens. All ranks see the same rounds with the same ranks in
 * them, so each knows its place: behind all that earlier rounds gave away, and behind lower ranks
 * of its own. It asks while it still computes the batch before, so that it need not wait; at the
 * end that may leave it with one batch more to do than the others.
 *
 * A rank that computes collects no tickets, and `depth` rounds later it would hold the others'
 * tickets up. So the depth is chosen such that its missing gradients hold them up first: between
 * two rounds of gradients a rank makes at most two steps (one that is late, one that is in time),
 * which bounds the tickets that others draw while the gradients' own depth lasts.
 */
#ifndef TR_WORK_H
#define TR_WORK_H

#include "trainer/order.h"
#include "trainer/rule_options.h"

struct tr_batch {
	const uint32_t *rows; /* [batch]; NULL: there is no more work. */
	uint64_t first_place; /* Its first place in the order, counted through all epochs. */
};

struct tr_work;

/* Collective. `step_count`: local steps of a rank; shared: their mean. */
rubato_status tr_work_open(struct tr_work **out, const struct tr_rule_options *own,
			   struct tr_order *order, rubato_comm *comm, uint64_t step_count,
			   struct tr_note *note);
rubato_status tr_work_next(struct tr_work *work, uint64_t step, struct tr_batch *batch,
			   struct tr_note *note);
/* Collective. NULL is fine. */
void tr_work_close(struct tr_work *work);

#endif
