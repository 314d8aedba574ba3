/* again.c -- see again.h. */
#include "runtime/again.h"

#include "runtime/engine/straight.h"
#include "runtime/op_prepare.h"

static void number_take(struct rubato_comm *comm, const struct rb_prepared *p)
{
	uint64_t number = comm->oneshots.sequence++;

	comm->oneshots.op->number = number;
	comm->oneshots.called[number % RB_CALLS_REMEMBERED] = p->signature;
	if (p->plan != comm->plans.barrier)
		rb_plan_cache_touch(&comm->plans.cache, p->plan);
}

enum rb_again rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at)
{
	struct rb_engine *engine = &comm->engine;
	uint64_t what = rb_prepared_what(call->kind, call->named, call->type, call->op, call->root,
					 call->in == call->out);
	const struct rb_prepared *p = rb_prepared_place(comm, call->kind, call->type, call->op,
							call->count, &call->shape, what);
	struct rb_straight s;
	enum rb_now got;

	/* Without a progress thread a call ends when its messages have left. */
	if (p == NULL || !p->at_once || engine->device_count > 0 ||
	    !engine->background.thread.running ||
	    !rb_prepared_fits(p, comm, call->in, call->out, call->count, &call->shape, what) ||
	    comm->oneshots.op->scratch.plain_bytes < p->scratch_bytes ||
	    !rb_engine_quiet(engine, 0, 0))
		return RB_AGAIN_NOT;
	s = (struct rb_straight) {
		.plan = p->plan,
		.buffers = { (void *)(uintptr_t)call->in, call->out,
			     comm->oneshots.op->scratch.plain },
		.signature = &p->signature,
		.tag = rb_tag(engine->epoch, RB_TAG_ONESHOT, comm->oneshots.sequence, 0),
		.type = call->type,
		.op = call->op,
		.divisor = engine->rank_count,
	};
	got = rb_straight_go(engine, &s);
	if (s.at == 0)
		return RB_AGAIN_NOT;
	number_take(comm, p);
	while (got == RB_NOW_ABSENT &&
	       rb_engine_linger(engine, s.plan->schedule.steps[s.plan->order[s.at]].peer))
		got = rb_straight_go(engine, &s);
	*at = s.at;
	if (got != RB_NOW_DONE)
		return RB_AGAIN_BEGUN;
	engine->operations++;
	return RB_AGAIN_DONE;
}
