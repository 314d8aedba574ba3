/*
 * reduce_chain.c -- broadcast_chain backwards: each rank adds its part to what comes from its right
 * and passes it on to its left, chunk by chunk, until it reaches the root.
 */
#include "collectives/builders/builders.h"

void rb_build_reduce_chain(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, v = rb_from_root(build);
	uint32_t left = rb_left(build, build->rank, 1), right = rb_right(build, build->rank, 1);
	struct rb_span slot = rb_span_scratch(RB_SELF, 0, RB_DEPTH_CHAIN);
	struct rb_label reader = { 0 }; /* The slot's last one. */

	rb_writer_init(w, w->schedule, build->rank, n, 1);
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (v == n - 1) {
		(void)rb_write_send(w, left, 0, rb_span_in(RB_SELF), 0, 1);
		return;
	}
	uint32_t recv = rb_write_recv(w, right, 0, slot, 0, 1);

	rb_write_dep_label(w, &reader, RB_DEPTH_CHAIN);
	uint32_t reduce = rb_write_reduce(w, v == 0 ? rb_span_out(RB_SELF) : slot, 0, 1);

	rb_write_operand(w, rb_span_in(RB_SELF));
	rb_write_operand(w, slot);
	rb_write_dep(w, recv, 0);
	if (v == 0) {
		rb_write_flags(w, RB_STEP_FINAL);
	} else {
		(void)rb_write_send(w, left, 0, slot, 0, 1);
		rb_write_dep(w, reduce, 0);
	}
	rb_write_label(w, &reader);
}

uint64_t rb_sent_reduce_chain(const struct rb_layout *layout, const struct rb_build *build,
			      uint32_t element_bytes)
{
	return build->rank == build->root ? 0 : layout->count * element_bytes;
}
