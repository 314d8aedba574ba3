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
	/* Its messages: tag and signature. `at`: so many steps of plan->order are done. `looks`:
	 * for each message, where a transport looks by itself. The rest is set here. */
	struct rb_parcels on;
	rubato_type type;
	rubato_operator op;
	uint32_t divisor; /* Of AVG. */
};

/* Whether all its messages go over transports, and its work to an executor, that do such things:
 * then what it takes is ready. */
bool rb_straight_can(const struct rb_engine *engine, struct rb_plan *plan);

/* ---- Here, as a call's time goes into it ---- */

static inline void *rb_straight_place(const struct rb_straight *s, const struct rb_plan_place *p)
{
	return (uint8_t *)s->buffers[p->buffer] + p->at;
}

static inline void rb_straight_work(const struct rb_engine *engine, const struct rb_straight *s,
				    const struct rb_plan_act *act)
{
	const void *operands[RB_STRAIGHT_OPERANDS];
	const struct rb_reduce reduce = {
		.type = s->type,
		.op = s->op,
		.final_count = s->op == RUBATO_AVG && act->final ? s->divisor : 0,
		.to = rb_straight_place(s, &act->to),
		.from = operands,
		.from_count = act->from_count,
		.count = act->count,
	};

	for (uint32_t i = 0; i < act->from_count; i++)
		operands[i] = rb_straight_place(s, &act->from[i]);
	engine->executor->ops->now(engine->executor, &reduce, s->plan->key.element_bytes);
}

/* The messages between two pieces of work at once. */
static inline enum rb_now rb_straight_by_parcels(const struct rb_engine *engine,
						 struct rb_straight *s)
{
	struct rb_endpoint *ep = engine->endpoints[0];
	const struct rb_plan *plan = s->plan;
	struct rb_parcels *on = &s->on;

	on->parcels = plan->parcels;
	on->buffers = s->buffers;
	while (on->at < plan->order_count) {
		const struct rb_plan_act *act = &plan->acts[on->at];
		enum rb_now got;

		if (act->messages == 0) {
			rb_straight_work(engine, s, act);
			on->at++;
			continue;
		}
		on->end = on->at + act->messages;
		got = ep->ops->parcels_now(ep, on);
		if (got != RB_NOW_DONE)
			return got;
	}
	return RB_NOW_DONE;
}

/* One message after the other. Pairs make a signature of their own for each. */
enum rb_now rb_straight_by_steps(const struct rb_engine *engine, struct rb_straight *s);

/* DONE: all steps are; ABSENT: a message has yet to come, then call it again; REFUSED: it will not
 * get further. */
static inline enum rb_now rb_straight_go(const struct rb_engine *engine, struct rb_straight *s)
{
	return !s->plan->layout.per_peer && engine->endpoint_count == 1 &&
			       engine->endpoints[0]->ops->parcels_now != NULL
		       ? rb_straight_by_parcels(engine, s)
		       : rb_straight_by_steps(engine, s);
}

#endif
