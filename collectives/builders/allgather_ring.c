/*
 * allgather_ring.c -- each rank sends its part to the right, then passes on what comes from the
 * left: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
 * MPICH" (2005), section 4.1, chunk by chunk. By puts they go straight into the right neighbour's
 * OUT, once that one has said that OUT may be written.
 */
#include "collectives/builders/builders.h"

static void build_ring(struct rb_writer *w, const struct rb_build *build, bool put)
{
	uint32_t n = build->rank_count, r = build->rank, came = 0, ready = 0;
	uint32_t right = rb_right(build, r, 1), left = rb_left(build, r, 1);
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = put ? RB_SCHEDULE_PUT : 0;
	if (put && n > 1)
		ready = rb_write_ready(w, left, right, (uint16_t)(n - 1));
	for (uint32_t t = 0; t + 1 < n; t++) {
		(void)rb_write_give(w, put, right, (uint16_t)t, t == 0 ? part : out, out,
				    rb_left(build, r, t), 1);
		if (put)
			rb_write_dep(w, ready, 0);
		if (t > 0)
			rb_write_dep(w, came, 0);
		came = rb_write_take(w, put, left, (uint16_t)t, out, rb_left(build, r, t + 1), 1);
	}
	(void)rb_write_copy(w, part, out, r, 1);
}

void rb_build_allgather_ring(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, false);
}

void rb_build_allgather_ring_put(struct rb_writer *w, const struct rb_build *build)
{
	build_ring(w, build, true);
}

uint64_t rb_sent_allgather_ring(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	if (build->rank_count == 1)
		return 0;
	return rb_bytes_without(layout, rb_right(build, build->rank, 1), element_bytes);
}

uint64_t rb_sent_allgather_ring_put(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	return rb_sent_allgather_ring(layout, build, element_bytes);
}
