/*
 * straight.h -- a short plan in one go: its steps one after the other, in an order in which each
 * finds done what it depends on, without a request, a poll, or a look at the graph.
 *
 * What the transport and the executor do not do at once is not done: it and all that is behind it
 * in the order are left to who runs the graph, and nothing has happened to them.
 */
#ifndef RB_RUNTIME_STRAIGHT_H
#define RB_RUNTIME_STRAIGHT_H

#include "runtime/engine/engine.h"
#include "runtime/engine/plan.h"

struct rb_straight {
	const struct rb_plan *plan;
	void *buffers[RB_BUF_SCRATCH + 1]; /* IN is never written. SCRATCH: the instance's set. */
	const struct rb_signature *signature;
	struct rb_tag tag;
	rubato_type type;
	rubato_operator op;
	uint32_t divisor; /* Of AVG. */
	uint32_t at;      /* Steps of plan->order that are done. */
};

/* Whether all its messages go over transports, and its work to an executor, that do such things. */
bool rb_straight_can(const struct rb_engine *engine, const struct rb_plan *plan);
/* DONE: all steps are; ABSENT: a message has yet to come, then call it again; REFUSED: it will not
 * get further. */
enum rb_now rb_straight_go(const struct rb_engine *engine, struct rb_straight *s);

#endif
