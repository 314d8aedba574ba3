/*
 * alltoall_put.c -- one phase: every rank puts each other rank's block straight into that one's
 * OUT, once it has said that OUT may be written.
 *
 * In place OUT is IN, so a rank takes its blocks out of the way first, into scratch, and puts them
 * from there. Whether it does is its own affair: so all say when they are ready, also where they
 * have just exchanged addresses.
 */
#include "collectives/builders/builders.h"

#define DATA 0
#define READY 1

void rb_build_alltoall_flat_put(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span in = rb_span_in(RB_SELF), slot = rb_span_vector_slot(0);
	struct rb_row copies = { 0 }, ready;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_PUT;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		if (build->in_place)
			rb_row_add(&copies, rb_write_copy(w, in, slot, peer, 1));
		(void)rb_write_notify(w, peer, READY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		if (build->in_place)
			rb_write_dep(w, rb_row_at(&copies, i - 1), RB_DEP_ALL);
	}
	ready = rb_write_wait_all(w, build, READY, 0);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_put(w, peer, DATA, build->in_place ? slot : in,
				   rb_span_shifted(rb_span_out(peer), rb_left(build, r, peer)),
				   peer, 1);
		rb_write_dep(w, rb_row_at(&ready, i - 1), 0);
		if (build->in_place)
			rb_write_dep(w, rb_row_at(&copies, i - 1), 0);
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_wait(w, peer, DATA, peer, 1);
	}
	(void)rb_write_copy(w, in, rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_alltoall_flat_put(const struct rb_layout *layout, const struct rb_build *build,
				   uint32_t element_bytes)
{
	return rb_sent_alltoall_flat(layout, build, element_bytes);
}
