/*
 * alltoall_direct.c -- in mapped memory: every rank copies what is for it out of everybody's IN,
 * and tells them, chunk by chunk, that it has. In place, where the new block must not come before
 * the old one has been fetched, a chunk waits in a slot for such a word. The partners' order is
 * that of alltoall_pairwise: no rank's memory is read by all at once.
 */
#include "collectives/builders/builders.h"

/* In place the COPY out of the slots becomes that of turn t in `put_down`. */
static void write_partner(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
			  uint32_t entry, uint32_t t, struct rb_row *put_down)
{
	uint32_t group = t % RB_PAIRWISE_AT_ONCE;
	struct rb_label reader = { 0 };
	struct rb_span out = rb_span_out(RB_SELF);
	struct rb_span slots = rb_span_scratch(RB_SELF, group * RB_DEPTH_MAPPED, RB_DEPTH_MAPPED);
	/* Of the peer's blocks, ours. */
	struct rb_span from = rb_span_shifted(rb_span_in(peer), rb_left(build, build->rank, peer));
	uint32_t copy = rb_write_copy(w, from, build->in_place ? slots : out, peer, 1);

	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, entry, 0);
	if (build->in_place) {
		rb_write_dep_label(w, &reader, RB_DEPTH_MAPPED);
		/* The slots were those partners'. An empty block waits for none before it. */
		for (uint32_t s = group; s < t; s += RB_PAIRWISE_AT_ONCE)
			rb_write_dep(w, rb_row_at(put_down, s), RB_DEP_ALL);
	}
	(void)rb_write_notify(w, peer, 1, peer, 1);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, copy, 0);
	uint32_t fetched = rb_write_wait(w, peer, 1, peer, 1);

	if (!build->in_place)
		return;
	rb_row_add(put_down, rb_write_copy(w, slots, out, peer, 1));
	rb_write_label(w, &reader);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, copy, 0);
	rb_write_dep(w, fetched, 0);
}

void rb_build_alltoall_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, t = 0;
	struct rb_row put_down = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	struct rb_row entry = rb_write_entry(w, build, 0);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = rb_partner(build, i);

		if (peer != r)
			write_partner(w, build, peer, rb_row_at(&entry, rb_other(build, peer)), t++,
				      &put_down);
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

RB_SENDS_NOTHING(alltoall_direct)
