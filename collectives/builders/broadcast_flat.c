/* broadcast_flat.c -- one phase: the root sends every rank the vector. For small vectors, where a
 * latency takes longer than the root's n - 1 messages. */
#include "collectives/builders/builders.h"

void rb_build_broadcast_flat(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	if (build->rank != build->root) {
		(void)rb_write_recv(w, build->root, 0, out, 0, 1);
		return;
	}
	for (uint32_t i = 1; i < build->rank_count; i++)
		(void)rb_write_send(w, rb_right(build, build->rank, i), 0, out, 0, 1);
}

uint64_t rb_sent_broadcast_flat(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	if (build->rank != build->root)
		return 0;
	return (build->rank_count - 1) * layout->count * element_bytes;
}
