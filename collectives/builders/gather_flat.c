/* gather_flat.c -- one phase: every rank sends its part to the root. */
#include "collectives/builders/builders.h"

void rb_build_gather_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, root = build->root;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	if (r != root) {
		(void)rb_write_send(w, root, 0, part, r, 1);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_recv(w, peer, 0, rb_span_out(RB_SELF), peer, 1);
	}
	(void)rb_write_copy(w, part, rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_gather_flat(const struct rb_layout *layout, const struct rb_build *build,
			     uint32_t element_bytes)
{
	if (build->rank == build->root)
		return 0;
	return rb_layout_length(layout, build->rank, 1) * element_bytes;
}
