/*
 * scatter_direct.c -- in mapped memory: every rank copies its block out of the root's IN, which the
 * root may change again once all have said that they did.
 */
#include "collectives/builders/builders.h"

void rb_build_scatter_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, root = build->root;
	struct rb_span part = rb_span_part(rb_span_out(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	if (r == root) {
		rb_write_lend(w, build, rb_span_in(RB_SELF), part);
		return;
	}
	rb_write_borrow(w, root, rb_span_in(root), part, r);
}

RB_SENDS_NOTHING(scatter_direct)
