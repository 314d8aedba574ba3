/* allgather_flat.c -- one phase: every rank sends its part to every other. For small parts. */
#include "collectives/builders/builders.h"

void rb_build_allgather_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 1; i < n; i++)
		(void)rb_write_send(w, rb_right(build, r, i), 0, part, r, 1);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_recv(w, peer, 0, rb_span_out(RB_SELF), peer, 1);
	}
	(void)rb_write_copy(w, part, rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_allgather_flat(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	return (build->rank_count - 1) * rb_layout_length(layout, build->rank, 1) * element_bytes;
}
