/*
 * allgather_ring.c -- each rank sends its part to the right, then passes on what comes from the
 * left: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
 * MPICH" (2005), section 4.1, chunk by chunk.
 */
#include "collectives/builders/builders.h"

void rb_build_allgather_ring(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, recv = 0;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t t = 0; t + 1 < n; t++) {
		(void)rb_write_send(w, rb_right(build, r, 1), (uint16_t)t, t == 0 ? part : out,
				    rb_left(build, r, t), 1);
		if (t > 0)
			rb_write_dep(w, recv, 0);
		recv = rb_write_recv(w, rb_left(build, r, 1), (uint16_t)t, out,
				     rb_left(build, r, t + 1), 1);
	}
	(void)rb_write_copy(w, part, out, r, 1);
}

uint64_t rb_sent_allgather_ring(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	if (build->rank_count == 1)
		return 0;
	return rb_bytes_without(layout, rb_right(build, build->rank, 1), element_bytes);
}
