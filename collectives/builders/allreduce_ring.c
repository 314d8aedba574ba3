/*
 * allreduce_ring.c -- Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
 * Workstations" (2009): a ring that reduces, then one that gathers. Every rank sends 2 (n-1)/n of
 * the vector, the least possible. Each block is reduced by one chain of ranks, so all ranks get the
 * same bits.
 */
#include "collectives/builders/builders.h"

void rb_build_allreduce_ring(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	uint32_t right = rb_right(build, r, 1), left = rb_left(build, r, 1);
	struct rb_ring ring = rb_write_ring_reduce(w, build, out);
	uint32_t got = rb_row_at(&ring.reduces, n - 2);

	for (uint32_t t = 0; t + 1 < n; t++) {
		uint16_t channel = (uint16_t)(n - 1 + t);

		(void)rb_write_send(w, right, channel, out, rb_left(build, r, t), 1);
		rb_write_dep(w, got, 0);
		got = rb_write_recv(w, left, channel, out, rb_left(build, r, t + 1), 1);
		/* In place this block of OUT is IN: sent at first, or added to what came. */
		rb_write_dep(w, t == 0 ? ring.first_send : rb_row_at(&ring.reduces, t - 1), 0);
	}
}

uint64_t rb_sent_allreduce_ring(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	if (build->rank_count == 1)
		return 0;
	return rb_bytes_without(layout, build->rank, element_bytes) +
	       rb_bytes_without(layout, rb_right(build, build->rank, 1), element_bytes);
}
