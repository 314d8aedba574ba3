/* again.c -- see again.h. */
#include "runtime/again.h"

#include "runtime/engine/straight.h"
#include "runtime/op_prepare.h"

#define LOOKS 16u /* Guess: what a peer that begins at this moment, too, takes. */

static inline void number_take(struct rubato_comm *comm, const struct rb_prepared *p)
{
	uint64_t number = comm->oneshots.sequence++;

	comm->oneshots.op->number = number;
	comm->oneshots.called[number % RB_CALLS_REMEMBERED] = p->signature;
	if (p->plan != comm->plans.barrier)
		rb_plan_cache_touch(&comm->plans.cache, p->plan);
}

/* What such a call came to before, if it may begin without an operation. */
static inline const struct rb_prepared *before(struct rubato_comm *comm, const struct rb_call *call)
{
	uint64_t what = rb_prepared_what(call->kind, call->named, call->type, call->op, call->root,
					 call->in == call->out);
	const struct rb_prepared *p = rb_prepared_place(comm, call->kind, call->type, call->op,
							call->count, call->shape, what);

	return p != NULL && p->at_once &&
			       rb_prepared_fits(p, comm, call->in, call->out, call->count,
						call->shape, what) &&
			       comm->oneshots.op->scratch.plain_bytes >= p->scratch_bytes
		       ? p
		       : NULL;
}

enum rb_again rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at)
{
	struct rb_engine *engine = &comm->engine;
	const struct rb_prepared *p = before(comm, call);
	struct rb_straight s;
	enum rb_now got;

	/* Without a progress thread a call ends when its messages have left. */
	if (p == NULL || engine->device_count > 0 || !engine->background.thread.running ||
	    !rb_engine_quiet(engine, 0, 0))
		return RB_AGAIN_NOT;
	s.plan = p->plan;
	s.buffers[RB_BUF_IN] = (void *)(uintptr_t)call->in;
	s.buffers[RB_BUF_OUT] = call->out;
	s.buffers[RB_BUF_SCRATCH] = comm->oneshots.op->scratch.plain;
	s.on.signature = &p->signature;
	s.on.tag = rb_tag(engine->epoch, RB_TAG_ONESHOT, comm->oneshots.sequence, 0);
	s.on.at = s.on.looks = 0;
	s.type = call->type;
	s.op = call->op;
	s.divisor = engine->rank_count;
	got = rb_straight_go(engine, &s);
	if (s.on.at == 0)
		return RB_AGAIN_NOT;
	number_take(comm, p);
	s.on.looks = engine->waiting.yield_ns > 0 ? 0 : LOOKS;
	while (got == RB_NOW_ABSENT &&
	       (s.on.looks > 0 || rb_engine_linger(engine, s.plan->parcels[s.on.at].peer))) {
		got = rb_straight_go(engine, &s);
		s.on.looks = 0;
	}
	*at = s.on.at;
	if (got != RB_NOW_DONE)
		return RB_AGAIN_BEGUN;
	engine->operations++;
	return RB_AGAIN_DONE;
}
