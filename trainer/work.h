/*
 * work.h -- which samples a rank's next step reads.
 *
 *   static   equal shards, fixed before the run (order.h)
 *   shared   the next samples that nobody has drawn: a slow rank draws fewer (--work shared)
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
rubato_status tr_work_open(struct tr_work **out, enum tr_work_kind kind, struct tr_order *order,
			   rubato_comm *comm, uint64_t step_count, struct tr_note *note);
rubato_status tr_work_next(struct tr_work *work, uint64_t step, struct tr_batch *batch,
			   struct tr_note *note);
/* Collective. NULL is fine. */
void tr_work_close(struct tr_work *work);

#endif
