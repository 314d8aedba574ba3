/*
 * broadcast_scatter_allgather.c -- the root cuts the vector among the others, who pass on what they
 * get to each other: the broadcast of large vectors of Barnett et al., "Interprocessor Collective
 * Communication Library (InterCom)" (1994), with both halves flat and chunk by chunk, so that they
 * overlap. The root has no block of its own: it sends the vector once, which is the least possible,
 * and a chunk is two latencies on its way, however many ranks there are.
 *
 * Counted from the root, block v - 1 is that of v.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define WHOLE 1

void rb_build_broadcast_scatter_allgather(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, v = rb_from_root(build);
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, build->rank, n, rb_blocks_others(n));
	w->schedule->flags = RB_SCHEDULE_IN_TURNS;
	if (v == 0) {
		for (uint32_t u = 1; u < n; u++)
			(void)rb_write_send(w, rb_right(build, build->root, u), PART, out, u - 1,
					    1);
		return;
	}
	uint32_t recv = rb_write_recv(w, build->root, PART, out, v - 1, 1);

	for (uint32_t i = 1; i + 1 < n; i++) {
		uint32_t u = (v - 1 + n - 1 - i) % (n - 1) + 1,
			 peer = rb_right(build, build->root, u);

		(void)rb_write_send(w, peer, WHOLE, out, v - 1, 1);
		rb_write_dep(w, recv, 0);
		(void)rb_write_recv(w, peer, WHOLE, out, u - 1, 1);
	}
}

uint64_t rb_sent_broadcast_scatter_allgather(const struct rb_layout *layout,
					     const struct rb_build *build, uint32_t element_bytes)
{
	uint32_t n = build->rank_count, v = rb_from_root(build);

	if (v == 0)
		return n > 1 ? layout->count * element_bytes : 0;
	return (n - 2) * rb_layout_length(layout, v - 1, 1) * element_bytes;
}
