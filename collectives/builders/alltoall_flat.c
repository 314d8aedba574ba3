/*
 * alltoall_flat.c -- one phase: every rank sends every other that one's block. For small blocks and
 * few ranks. In place a block arrives in slots, and takes its place when the old one is sent: were
 * it to wait for that before it is received, two ranks could wait for each other.
 */
#include "collectives/builders/builders.h"

void rb_build_alltoall_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	struct rb_row sends = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&sends, rb_write_send(w, peer, 0, in, peer, 1));
		if (!build->in_place)
			rb_write_pace(w, &sends);
	}
	/* Who sends to the ranks on its right in turn is heard of by them in turn from the left. */
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_left(build, r, i);
		struct rb_span slot = rb_span_scratch(RB_SELF, (i - 1) * RB_DEPTH, RB_DEPTH);
		struct rb_label reader = { 0 };
		uint32_t recv = rb_write_recv(w, peer, 0, build->in_place ? slot : out, peer, 1);

		rb_write_flags(w, RB_STEP_OUT);
		if (!build->in_place)
			continue;
		rb_write_dep_label(w, &reader, RB_DEPTH);
		(void)rb_write_copy(w, slot, out, peer, 1);
		rb_write_label(w, &reader);
		rb_write_flags(w, RB_STEP_OUT);
		rb_write_dep(w, recv, 0);
		rb_write_dep(w, rb_row_at(&sends, n - 1 - i), 0);
	}
	(void)rb_write_copy(w, in, out, r, 1);
}

uint64_t rb_sent_alltoall_flat(const struct rb_layout *layout, const struct rb_build *build,
			       uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
