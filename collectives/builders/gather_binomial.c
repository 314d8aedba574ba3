/*
 * gather_binomial.c -- the binomial tree, as in Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005): counted from the root, v collects on a
 * vector slot the parts of all ranks below it and sends them to its parent together.
 */
#include "collectives/builders/builders.h"

#define CHILD_MESSAGES_MAX 64 /* Two pieces of each child. */

struct part { /* What lies in the vector slot from `block` on, and the step that put it there. */
	uint32_t block, step;
};

/* The parts come in any order; one that lies further back in a message is in a later chunk of
 * it. */
static void write_up(struct rb_writer *w, const struct rb_build *build, const struct part *parts,
		     uint32_t count)
{
	uint32_t v = rb_from_root(build);
	struct rb_pieces mine = rb_pieces_below(build, v);

	for (uint32_t i = 0; i < mine.count; i++) {
		(void)rb_write_send(w, rb_right(build, build->root, v & (v - 1)), (uint16_t)i,
				    rb_span_vector_slot(0), mine.block[i], mine.blocks[i]);
		for (uint32_t k = 0; k < count; k++)
			if ((parts[k].block < build->rank) == (i == 1))
				rb_write_dep(w, parts[k].step, 0);
	}
}

void rb_build_gather_binomial(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, v = rb_from_root(build), count = 1;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF));
	struct rb_span to = v == 0 ? rb_span_out(RB_SELF) : rb_span_vector_slot(0);
	struct part parts[1 + CHILD_MESSAGES_MAX];

	rb_writer_init(w, w->schedule, r, n, n);
	if (v > 0 && rb_below(build, v) == 1) {
		(void)rb_write_send(w, rb_right(build, build->root, v & (v - 1)), 0, part, r, 1);
		return;
	}
	parts[0] = (struct part) { r, rb_write_copy(w, part, to, r, 1) };
	for (uint64_t bit = 1; bit < rb_below(build, v); bit *= 2) {
		uint32_t child = v + (uint32_t)bit, peer = rb_right(build, build->root, child);
		struct rb_pieces pieces = rb_pieces_below(build, child);

		for (uint32_t i = 0; i < pieces.count; i++) {
			uint32_t recv = rb_write_recv(w, peer, (uint16_t)i, to, pieces.block[i],
						      pieces.blocks[i]);

			parts[count++] = (struct part) { pieces.block[i], recv };
		}
	}
	if (v > 0)
		write_up(w, build, parts, count);
}

uint64_t rb_sent_gather_binomial(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	uint32_t v = rb_from_root(build);

	return v == 0 ? 0 : rb_pieces_length(layout, build, v) * element_bytes;
}
