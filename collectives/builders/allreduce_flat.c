/*
 * allreduce_flat.c -- one phase: every rank sends its whole vector to every other and reduces all
 * of them in rank order. n(n-1) messages, but nobody waits for a rank that waits for another: the
 * least time for tiny vectors, above all where ranks share cores.
 */
#include "collectives/builders/builders.h"

void rb_build_allreduce_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row sends = { 0 }, recvs = { 0 };
	struct rb_span in = rb_span_in(RB_SELF);
	struct rb_label reduce = { 0 };

	rb_writer_init(w, w->schedule, r, n, 1);
	for (uint32_t i = 1; i < n; i++)
		rb_row_add(&sends, rb_write_send(w, rb_right(build, r, i), 0, in, 0, 1));
	for (uint32_t i = 1; i < n; i++) {
		struct rb_span slot = rb_span_scratch(RB_SELF, i - 1, 1);

		rb_row_add(&recvs, rb_write_recv(w, rb_right(build, r, i), 0, slot, 0, 1));
		rb_write_dep_label(w, &reduce, 1);
	}
	(void)rb_write_reduce(w, rb_span_out(RB_SELF), 0, 1);
	rb_write_label(w, &reduce);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? in : rb_span_scratch(RB_SELF, rb_other(build, s), 1));
	rb_write_dep_row(w, &sends, 0); /* In place OUT is what is being sent. */
	rb_write_dep_row(w, &recvs, 0);
	rb_write_flags(w, RB_STEP_FINAL);
}

uint64_t rb_sent_allreduce_flat(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	return (build->rank_count - 1) * layout->count * element_bytes;
}
