/*
 * alltoall_staged.c -- alltoall_direct for buffers that peers cannot map: every rank copies what is
 * for a peer, chunk by chunk, into slots of mapped scratch, out of which that peer copies it.
 *
 * The slots of two ranks alternate: a rank's next lap goes where it has read the other's last one,
 * so that it is free.
 */
#include "collectives/builders/builders.h"

void rb_build_alltoall_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	struct rb_row waits = { 0 };
	bool own = false;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&waits, rb_write_ahead(w, rb_write_wait(w, peer, 0, peer, 1)));
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = rb_partner(build, i);
		struct rb_label read = { 0 };

		if (peer == r)
			continue;
		uint32_t staged = rb_write_ahead(
			w, rb_write_copy(w, in, rb_staged_way(build, r, peer), peer, 1));

		rb_write_dep_label(w, &read, RB_DEPTH_MAPPED);
		(void)rb_write_ahead(w, rb_write_notify(w, peer, 0, peer, 1));
		rb_write_dep(w, staged, 0);
		if (!own) /* While the first one writes. */
			(void)rb_write_copy(w, in, out, r, 1);
		own = true;
		(void)rb_write_copy(w, rb_staged_way(build, peer, r), out, peer, 1);
		rb_write_label(w, &read);
		rb_write_dep(w, rb_row_at(&waits, rb_other(build, peer)), 0);
		if (build->in_place)
			rb_write_dep(w, staged, 0);
	}
	if (!own)
		(void)rb_write_copy(w, in, out, r, 1);
}

RB_SENDS_NOTHING(alltoall_staged)
