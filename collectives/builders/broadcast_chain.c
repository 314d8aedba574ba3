/*
 * broadcast_chain.c -- the pipelined chain: each rank passes every chunk on to its right. Every
 * link carries the vector once; with many chunks the time is that of one link. As in van de Geijn
 * and Watts, "SUMMA" (1997), section on pipelining. By puts, from OUT to OUT.
 */
#include "collectives/builders/builders.h"

#define DATA 0
#define READY 1

static void build_chain(struct rb_writer *w, const struct rb_build *build, bool put)
{
	uint32_t n = build->rank_count, v = rb_from_root(build), came = 0, ready = 0;
	uint32_t right = rb_right(build, build->rank, 1), left = rb_left(build, build->rank, 1);
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, build->rank, n, 1);
	w->schedule->flags = put ? RB_SCHEDULE_PUT : 0;
	if (put && v > 0) {
		(void)rb_write_notify(w, left, READY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	if (v > 0)
		came = rb_write_take(w, put, left, DATA, out, 0, 1);
	if (v + 1 == n)
		return;
	if (put) {
		ready = rb_write_wait(w, right, READY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	(void)rb_write_give(w, put, right, DATA, out, out, 0, 1);
	if (put)
		rb_write_dep(w, ready, 0);
	if (v > 0)
		rb_write_dep(w, came, 0);
}

void rb_build_broadcast_chain(struct rb_writer *w, const struct rb_build *build)
{
	build_chain(w, build, false);
}

void rb_build_broadcast_chain_put(struct rb_writer *w, const struct rb_build *build)
{
	build_chain(w, build, true);
}

uint64_t rb_sent_broadcast_chain(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	return rb_from_root(build) + 1 < build->rank_count ? layout->count * element_bytes : 0;
}

uint64_t rb_sent_broadcast_chain_put(const struct rb_layout *layout, const struct rb_build *build,
				     uint32_t element_bytes)
{
	return rb_sent_broadcast_chain(layout, build, element_bytes);
}
