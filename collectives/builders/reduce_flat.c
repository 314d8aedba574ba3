/* reduce_flat.c -- one phase: every rank sends the root its vector, which reduces all of them in
 * rank order. For small vectors, as broadcast_flat. */
#include "collectives/builders/builders.h"

static struct rb_span slots(const struct rb_build *build, uint32_t peer)
{
	return rb_span_scratch(RB_SELF, rb_other(build, peer) * RB_DEPTH, RB_DEPTH);
}

void rb_build_reduce_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_label reduced = { 0 };
	struct rb_row recvs = { 0 };

	rb_writer_init(w, w->schedule, r, n, 1);
	if (r != build->root) {
		(void)rb_write_send(w, build->root, 0, rb_span_in(RB_SELF), 0, 1);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&recvs, rb_write_recv(w, peer, 0, slots(build, peer), 0, 1));
		rb_write_dep_label(w, &reduced, RB_DEPTH);
	}
	(void)rb_write_reduce(w, rb_span_out(RB_SELF), 0, 1);
	rb_write_label(w, &reduced);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(build, s));
	rb_write_dep_row(w, &recvs, 0);
	rb_write_flags(w, RB_STEP_FINAL);
}

uint64_t rb_sent_reduce_flat(const struct rb_layout *layout, const struct rb_build *build,
			     uint32_t element_bytes)
{
	return build->rank == build->root ? 0 : layout->count * element_bytes;
}
