/*
 * allreduce_ring.c -- Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
 * Workstations" (2009): a ring that reduces, then one that gathers. Every rank sends 2 (n-1)/n of
 * the vector, the least possible. Each block is reduced by one chain of ranks, so all ranks get the
 * same bits.
 *
 * By puts partial sums go into the right neighbour's scratch and results straight into its OUT, and
 * nothing holds them back. A result has been through all ranks, so the neighbour is there, and in
 * place has read that block of OUT as IN. And who has all results of an instance knows that
 * everybody has read the partial sums.
 */
#include "collectives/builders/builders.h"

static void build_ring(struct rb_writer *w, const struct rb_build *build, bool put)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = put ? RB_SCHEDULE_PUT : 0;
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	uint32_t right = rb_right(build, r, 1), left = rb_left(build, r, 1);
	struct rb_ring ring = rb_write_ring_reduce(w, build, put, RB_RING_FREE, out);
	uint32_t got = rb_row_at(&ring.reduces, n - 2);

	for (uint32_t t = 0; t + 1 < n; t++) {
		uint16_t channel = (uint16_t)(n - 1 + t);

		(void)rb_write_give(w, put, right, channel, out, out, rb_left(build, r, t), 1);
		rb_write_dep(w, got, 0);
		got = rb_write_take(w, put, left, channel, out, rb_left(build, r, t + 1), 1);
		/* In place this block of OUT is IN: sent at first, or added to what came. */
		if (!put)
			rb_write_dep(w, t == 0 ? ring.first_send : rb_row_at(&ring.reduces, t - 1),
				     0);
	}
}

void rb_build_allreduce_ring(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, false);
}

void rb_build_allreduce_ring_put(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, true);
}

uint64_t rb_sent_allreduce_ring(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	if (build->rank_count == 1)
		return 0;
	return rb_bytes_without(layout, build->rank, element_bytes) +
	       rb_bytes_without(layout, rb_right(build, build->rank, 1), element_bytes);
}

uint64_t rb_sent_allreduce_ring_put(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	return rb_sent_allreduce_ring(layout, build, element_bytes);
}
