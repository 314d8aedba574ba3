/*
 * reduce_scatter_ring.c -- the first half of the ring: Patarasuk and Yuan, "Bandwidth Optimal
 * All-reduce Algorithms for Clusters of Workstations" (2009).
 */
#include "collectives/builders/builders.h"

void rb_build_reduce_scatter_ring(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span out = rb_span_part(rb_span_out(RB_SELF));

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, build->rank_count);
	if (build->rank_count == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	(void)rb_write_ring_reduce(w, build, out);
}

uint64_t rb_sent_reduce_scatter_ring(const struct rb_layout *layout, const struct rb_build *build,
				     uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
