/* straight.c -- see straight.h. */
#include "runtime/engine/straight.h"

bool rb_straight_can(const struct rb_engine *engine, struct rb_plan *plan)
{
	if (plan->order_count == 0 || engine->executor->ops->now == NULL)
		return false;
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (engine->endpoints[i]->ops->send_now == NULL)
			return false;
	return rb_plan_acts_make(plan);
}

static enum rb_now message(const struct rb_engine *engine, const struct rb_straight *s,
			   const struct rb_signature *signature)
{
	const struct rb_parcel *p = &s->plan->parcels[s->on.at];
	const struct rb_message message = {
		.peer = p->peer,
		.tag = { s->on.tag.call, s->on.tag.step | p->tag_step },
		.signature = signature,
		.buffer = p->size_bytes > 0 ? (uint8_t *)s->buffers[p->buffer] + p->at : NULL,
		.size_bytes = p->size_bytes,
	};
	struct rb_endpoint *ep = rb_engine_endpoint(engine, p->peer);

	return p->sends ? ep->ops->send_now(ep, &message) : ep->ops->recv_now(ep, &message);
}

/* As rb_run_count. */
static uint64_t pair_count(const struct rb_straight *s, uint32_t step)
{
	uint8_t kind = s->plan->schedule.steps[step].kind;

	return kind == RB_STEP_SEND || kind == RB_STEP_RECV ? s->plan->range[step]
							    : s->on.signature->count;
}

enum rb_now rb_straight_by_steps(const struct rb_engine *engine, struct rb_straight *s)
{
	const struct rb_plan *plan = s->plan;
	struct rb_signature signature = *s->on.signature;

	for (; s->on.at < plan->order_count; s->on.at++) {
		const struct rb_plan_act *act = &plan->acts[s->on.at];
		enum rb_now got;

		if (act->messages == 0) {
			rb_straight_work(engine, s, act);
			continue;
		}
		if (plan->layout.per_peer)
			signature.count = pair_count(s, plan->order[s->on.at]);
		got = message(engine, s, &signature);
		if (got != RB_NOW_DONE)
			return got;
	}
	return RB_NOW_DONE;
}
