/*
 * gather_direct.c -- in mapped memory: every rank copies its part into the root's OUT, once the
 * root has said that it may, and tells it when that is done.
 */
#include "collectives/builders/builders.h"

void rb_build_gather_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, root = build->root;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	if (r == root) {
		rb_write_lend(w, build, part, rb_span_out(RB_SELF));
		return;
	}
	rb_write_borrow(w, root, part, rb_span_out(root), r);
}

RB_SENDS_NOTHING(gather_direct)
