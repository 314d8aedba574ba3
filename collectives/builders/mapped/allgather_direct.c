/*
 * allgather_direct.c -- in mapped memory: every rank copies the others' parts out of their IN, as
 * each says that it may, and tells them when it has. Read, and not written to the others' OUT: a
 * part was written by its owner just now, so it is its cache that gives it, and what is written
 * here is what this rank has had in its own. Its own part comes first: after the others' all took a
 * quarter to a half longer on two ranks (docs/performance.md, "Plain buffers").
 *
 * allgatherv's ranks know of a peer's memory only the block that is theirs, in its OUT: there every
 * rank copies its part into everybody's.
 */
#include "collectives/builders/builders.h"

void rb_build_allgather_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	struct rb_row entry = rb_write_entry(w, build, 0);
	(void)rb_write_copy(w, rb_span_part(rb_span_in(RB_SELF)), out, r, 1);

	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);
		uint32_t copy = rb_write_copy(w, rb_span_part(rb_span_in(peer)), out, peer, 1);

		rb_write_dep(w, rb_row_at(&entry, rb_other(build, peer)), 0);
		(void)rb_write_notify(w, peer, 1, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, copy, RB_DEP_ALL);
	}
	(void)rb_write_wait_all(w, build, 1, 0);
}

RB_SENDS_NOTHING(allgather_direct)

void rb_build_allgatherv_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	struct rb_row entry = rb_write_entry(w, build, 0);

	(void)rb_write_copy(w, part, rb_span_out(RB_SELF), r, 1);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);
		uint32_t copy = rb_write_copy(w, part, rb_span_out(peer), r, 1);

		rb_write_dep(w, rb_row_at(&entry, rb_other(build, peer)), 0);
		(void)rb_write_notify(w, peer, 1, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, copy, RB_DEP_ALL);
	}
	(void)rb_write_wait_all(w, build, 1, 0);
}

RB_SENDS_NOTHING(allgatherv_direct)
