/* mending.c -- what has left, and may be lost on its way: `look_ns` of transport/transport.h; and
 * what is the last to leave. */
#include "runtime/engine/engine.h"

#include "base/clock.h"
#include "base/sync.h"

#define TELL_NS 2000000000 /* Guess: by then peers have taken what fills their rings, or compute. */

bool rb_engine_mends(const struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (engine->endpoints[i]->mending > 0)
			return true;
	return false;
}

uint64_t rb_engine_looks_each_ns(const struct rb_engine *engine)
{
	uint64_t least = 0;

	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		uint64_t each = engine->endpoints[i]->look_ns;

		if (each != 0 && (least == 0 || each < least))
			least = each;
	}
	return least;
}

void rb_engine_look_after(struct rb_engine *engine)
{
	(void)rb_engine_progress(engine);
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (ep->look_ns != 0 && ep->ops->look != NULL)
			ep->ops->look(ep);
	}
	(void)rb_engine_progress(engine);
}

void rb_engine_tell(struct rb_engine *engine)
{
	uint64_t until_ns = 0;

	if (engine->background.thread.running || rb_engine_time_is_virtual(engine) ||
	    !rb_engine_leaving(engine))
		return;
	if (!engine->told)
		until_ns = rb_clock_ns() + TELL_NS;
	engine->told = true;
	do {
		if (engine->driving == RB_DRIVING_NOBODY)
			(void)rb_engine_progress(engine);
		(void)rb_engine_hand_over(engine);
		rb_yield();
	} while (rb_engine_leaving(engine) && rb_clock_ns() < until_ns);
}
