/*
 * allgather_ring_put.c -- allgather_ring with puts straight into the right neighbour's OUT, once
 * that one has said that OUT may be written.
 */
#include "collectives/builders/builders.h"

void rb_build_allgather_ring_put(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, came = 0;
	uint32_t right = rb_right(build, r, 1), left = rb_left(build, r, 1);
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);
	uint16_t entry = (uint16_t)(n - 1);

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_PUT;
	(void)rb_write_copy(w, part, out, r, 1);
	if (n == 1)
		return;
	(void)rb_write_notify(w, left, entry, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t ready = rb_write_wait(w, right, entry, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	for (uint32_t t = 0; t + 1 < n; t++) {
		(void)rb_write_put(w, right, (uint16_t)t, t == 0 ? part : out, rb_span_out(right),
				   rb_left(build, r, t), 1);
		rb_write_dep(w, ready, 0);
		if (t > 0)
			rb_write_dep(w, came, 0);
		came = rb_write_wait(w, left, (uint16_t)t, rb_left(build, r, t + 1), 1);
	}
}

uint64_t rb_sent_allgather_ring_put(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	return rb_sent_allgather_ring(layout, build, element_bytes);
}
