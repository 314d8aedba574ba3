/* scatter_flat.c -- one phase: the root sends every rank its block. */
#include "collectives/builders/builders.h"

void rb_build_scatter_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, root = build->root;
	struct rb_span part = rb_span_part(rb_span_out(RB_SELF));

	rb_writer_init(w, w->schedule, r, n, n);
	if (r != root) {
		(void)rb_write_recv(w, root, 0, part, r, 1);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_send(w, peer, 0, rb_span_in(RB_SELF), peer, 1);
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), part, r, 1);
}

uint64_t rb_sent_scatter_flat(const struct rb_layout *layout, const struct rb_build *build,
			      uint32_t element_bytes)
{
	return build->rank == build->root ? rb_bytes_without(layout, build->root, element_bytes)
					  : 0;
}
