/*
 * broadcast_chain.c -- the pipelined chain: each rank passes every chunk on to its right. Every
 * link carries the vector once; with many chunks the time is that of one link. As in van de Geijn
 * and Watts, "SUMMA" (1997), section on pipelining.
 */
#include "collectives/builders/builders.h"

void rb_build_broadcast_chain(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, v = rb_from_root(build), recv = 0;
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, build->rank, n, 1);
	if (v > 0)
		recv = rb_write_recv(w, rb_left(build, build->rank, 1), 0, out, 0, 1);
	if (v + 1 < n) {
		(void)rb_write_send(w, rb_right(build, build->rank, 1), 0, out, 0, 1);
		if (v > 0)
			rb_write_dep(w, recv, 0);
	}
}

uint64_t rb_sent_broadcast_chain(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	return rb_from_root(build) + 1 < build->rank_count ? layout->count * element_bytes : 0;
}
