/*
 * broadcast_direct.c -- in mapped memory: every rank copies the vector out of the root's buffer,
 * but for the last of n parts, which the root writes into everybody's meanwhile: so each of the n
 * copies as much. The root may change its buffer again, and the others use theirs, when each has
 * said that it is done.
 */
#include "collectives/builders/builders.h"

#define READY 0 /* To the root: OUT may be written; from it: may be read. */
#define DONE 1

static void write_root(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count;

	rb_write_notify_all(w, build, READY, RB_STEP_ENTRY);
	struct rb_row ready = rb_write_wait_all(w, build, READY, RB_STEP_ENTRY);

	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, build->rank, i);
		uint32_t copy = rb_write_copy(w, rb_span_out(RB_SELF), rb_span_out(peer), n - 1, 1);

		rb_write_dep(w, rb_row_at(&ready, i - 1), 0);
		(void)rb_write_notify(w, peer, DONE, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, copy, RB_DEP_ALL);
	}
	(void)rb_write_wait_all(w, build, DONE, 0);
}

void rb_build_broadcast_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, root = build->root;

	rb_writer_init(w, w->schedule, build->rank, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	if (build->rank == root) {
		write_root(w, build);
		return;
	}
	(void)rb_write_notify(w, root, READY, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t ready = rb_write_wait(w, root, READY, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t copy = rb_write_copy(w, rb_span_out(root), rb_span_out(RB_SELF), 0, n - 1);

	rb_write_dep(w, ready, 0);
	(void)rb_write_notify(w, root, DONE, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep(w, copy, RB_DEP_ALL);
	(void)rb_write_wait(w, root, DONE, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
}

RB_SENDS_NOTHING(broadcast_direct)
