/* straight.c -- see straight.h. */
#include "runtime/engine/straight.h"

bool rb_straight_can(const struct rb_engine *engine, const struct rb_plan *plan)
{
	if (plan->order_count == 0 || engine->executor->ops->now == NULL)
		return false;
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (engine->endpoints[i]->ops->send_now == NULL)
			return false;
	return true;
}

static inline uint8_t *place(const struct rb_straight *s, uint8_t buffer, uint64_t at)
{
	return (uint8_t *)s->buffers[buffer] + at;
}

static enum rb_now message(const struct rb_engine *engine, const struct rb_straight *s,
			   uint32_t step, const struct rb_signature *signature)
{
	const struct rb_plan_message *m = &s->plan->messages[step];
	const struct rb_message message = {
		.peer = s->plan->schedule.steps[step].peer,
		.tag = { s->tag.call, s->tag.step | m->tag_step },
		.signature = signature,
		.buffer = m->size_bytes > 0 ? place(s, m->buffer, m->at) : NULL,
		.size_bytes = (size_t)m->size_bytes,
	};
	struct rb_endpoint *ep = rb_engine_endpoint(engine, message.peer);

	return m->sends ? ep->ops->send_now(ep, &message) : ep->ops->recv_now(ep, &message);
}

static void work(const struct rb_engine *engine, const struct rb_straight *s, uint32_t index)
{
	const struct rb_schedule *schedule = &s->plan->schedule;
	const struct rb_step *step = &schedule->steps[index];
	const void *operands[RB_STRAIGHT_OPERANDS];
	struct rb_reduce reduce = {
		.type = s->type,
		.op = s->op,
		.to = place(s, schedule->spans[step->to].buffer, s->plan->span_first[step->to]),
		.from = operands,
		.from_count = step->from_count,
		.count = s->plan->range[index],
	};

	for (uint32_t i = 0; i < step->from_count; i++)
		operands[i] = place(s, schedule->spans[step->from + i].buffer,
				    s->plan->span_first[step->from + i]);
	if (s->op == RUBATO_AVG && (step->flags & RB_STEP_FINAL))
		reduce.final_count = s->divisor;
	engine->executor->ops->now(engine->executor, &reduce, s->plan->key.element_bytes);
}

/* As rb_run_count. */
static uint64_t pair_count(const struct rb_straight *s, uint32_t step)
{
	uint8_t kind = s->plan->schedule.steps[step].kind;

	return kind == RB_STEP_SEND || kind == RB_STEP_RECV ? s->plan->range[step]
							    : s->signature->count;
}

static inline __attribute__((always_inline)) enum rb_now go(const struct rb_engine *engine,
							    struct rb_straight *s, const bool pairs)
{
	const struct rb_plan *plan = s->plan;
	const struct rb_signature *signature = s->signature;
	struct rb_signature own;

	if (pairs) {
		own = *signature;
		signature = &own;
	}
	for (; s->at < plan->order_count; s->at++) {
		uint32_t step = plan->order[s->at];
		enum rb_now got = RB_NOW_DONE;

		if (pairs)
			own.count = pair_count(s, step);
		if (plan->messages[step].simple)
			got = message(engine, s, step, signature);
		else
			work(engine, s, step);
		if (got != RB_NOW_DONE)
			return got;
	}
	return RB_NOW_DONE;
}

/* Apart: the others have no signature to make. */
static __attribute__((noinline)) enum rb_now go_by_pairs(const struct rb_engine *engine,
							 struct rb_straight *s)
{
	return go(engine, s, true);
}

enum rb_now rb_straight_go(const struct rb_engine *engine, struct rb_straight *s)
{
	return s->plan->layout.per_peer ? go_by_pairs(engine, s) : go(engine, s, false);
}
