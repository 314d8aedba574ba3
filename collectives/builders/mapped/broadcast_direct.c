/*
 * broadcast_direct.c -- in mapped memory: every rank copies out of the root's buffer, which the
 * root may change again once all have said that they did.
 */
#include "collectives/builders/builders.h"

void rb_build_broadcast_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, root = build->root;

	rb_writer_init(w, w->schedule, build->rank, n, 1);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	if (build->rank == root) {
		rb_write_notify_all(w, build, 0, 0);
		(void)rb_write_wait_all(w, build, 0, 0);
		return;
	}
	uint32_t ready = rb_write_wait(w, root, 0, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE);
	uint32_t copy = rb_write_copy(w, rb_span_out(root), rb_span_out(RB_SELF), 0, 1);

	rb_write_dep(w, ready, 0);
	(void)rb_write_notify(w, root, 0, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep(w, copy, RB_DEP_ALL);
}

RB_SENDS_NOTHING(broadcast_direct)
