/*
 * reduce_scatter_ring.c -- the first half of the ring: Patarasuk and Yuan, "Bandwidth Optimal
 * All-reduce Algorithms for Clusters of Workstations" (2009).
 */
#include "collectives/builders/builders.h"

static void build_ring(struct rb_writer *w, const struct rb_build *build, bool put)
{
	struct rb_span out = rb_span_part(rb_span_out(RB_SELF));

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, build->rank_count);
	w->schedule->flags = put ? RB_SCHEDULE_PUT : 0;
	if (build->rank_count == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	uint32_t right = rb_right(build, build->rank, 1), left = rb_left(build, build->rank, 1);
	uint32_t ready = RB_RING_FREE;

	if (put)
		ready = rb_write_ready(w, left, right, (uint16_t)(build->rank_count - 1));
	(void)rb_write_ring_reduce(w, build, put, ready, out);
}

void rb_build_reduce_scatter_ring(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, false);
}

void rb_build_reduce_scatter_ring_put(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, true);
}

uint64_t rb_sent_reduce_scatter_ring(const struct rb_layout *layout, const struct rb_build *build,
				     uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}

uint64_t rb_sent_reduce_scatter_ring_put(const struct rb_layout *layout,
					 const struct rb_build *build, uint32_t element_bytes)
{
	return rb_sent_reduce_scatter_ring(layout, build, element_bytes);
}
