/*
 * allgather_flat.c -- one phase: every rank sends its part to every other. For small parts; by
 * puts, straight into everybody's OUT, for any.
 */
#include "collectives/builders/builders.h"

static void build_flat(struct rb_writer *w, const struct rb_build *build, bool put)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);
	struct rb_row ready = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = put ? RB_SCHEDULE_PUT : 0;
	if (put)
		ready = rb_write_entry(w, build, 1);
	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_give(w, put, rb_right(build, r, i), 0, part, out, r, 1);
		if (put)
			rb_write_dep(w, rb_row_at(&ready, i - 1), 0);
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_take(w, put, peer, 0, out, peer, 1);
	}
	(void)rb_write_copy(w, part, out, r, 1);
}

void rb_build_allgather_flat(struct rb_writer *w, const struct rb_build *build)
{
	build_flat(w, build, false);
}

void rb_build_allgather_flat_put(struct rb_writer *w, const struct rb_build *build)
{
	build_flat(w, build, true);
}

uint64_t rb_sent_allgather_flat(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	return (build->rank_count - 1) * rb_layout_length(layout, build->rank, 1) * element_bytes;
}

uint64_t rb_sent_allgather_flat_put(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	return rb_sent_allgather_flat(layout, build, element_bytes);
}
