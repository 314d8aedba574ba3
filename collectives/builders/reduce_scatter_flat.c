/*
 * reduce_scatter_flat.c -- one phase: every rank sends each other rank that one's block and reduces
 * what it gets, in rank order. The pairwise exchange of Thakur, Rabenseifner and Gropp (2005) with
 * all its rounds at once: the fewest bytes and the shortest path, at n-1 messages a rank.
 */
#include "collectives/builders/builders.h"

static struct rb_span slots(const struct rb_build *build, uint32_t peer)
{
	return rb_span_scratch(RB_SELF, rb_other(build, peer) * RB_DEPTH, RB_DEPTH);
}

void rb_build_reduce_scatter_flat(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_label reduce = { 0 };
	struct rb_row recvs = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_send(w, peer, 0, rb_span_in(RB_SELF), peer, 1);
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&recvs, rb_write_recv(w, peer, 0, slots(build, peer), r, 1));
		rb_write_dep_label(w, &reduce, RB_DEPTH);
	}
	(void)rb_write_reduce(w, rb_span_part(rb_span_out(RB_SELF)), r, 1);
	rb_write_label(w, &reduce);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(build, s));
	rb_write_dep_row(w, &recvs, 0);
	rb_write_flags(w, RB_STEP_FINAL);
}

uint64_t rb_sent_reduce_scatter_flat(const struct rb_layout *layout, const struct rb_build *build,
				     uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
