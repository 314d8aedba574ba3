/*
 * scatter_binomial.c -- gather_binomial backwards: counted from the root, v gets from its parent
 * the blocks of all ranks below it together, keeps them in a vector slot and passes them on.
 */
#include "collectives/builders/builders.h"

/* A block that lies further back in what came may be in any chunk of it up to the last. */
static void after_piece(struct rb_writer *w, const struct rb_pieces *mine,
			const struct rb_row *recvs, uint32_t block)
{
	uint32_t i = block < mine->block[0];

	rb_write_dep(w, rb_row_at(recvs, i), block == mine->block[i] ? 0 : RB_DEP_ALL);
}

void rb_build_scatter_binomial(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, v = rb_from_root(build);
	struct rb_span part = rb_span_part(rb_span_out(RB_SELF));
	struct rb_span from = v == 0 ? rb_span_in(RB_SELF) : rb_span_vector_slot(0);
	uint32_t parent = rb_right(build, build->root, v & (v - 1));
	struct rb_pieces mine = rb_pieces_below(build, v);
	struct rb_row recvs = { 0 };
	uint64_t bit = 1;

	rb_writer_init(w, w->schedule, r, n, n);
	if (v > 0 && rb_below(build, v) == 1) {
		(void)rb_write_recv(w, parent, 0, part, r, 1);
		return;
	}
	for (uint32_t i = 0; v > 0 && i < mine.count; i++)
		rb_row_add(&recvs, rb_write_recv(w, parent, (uint16_t)i, from, mine.block[i],
						 mine.blocks[i]));
	while (bit < rb_below(build, v))
		bit *= 2;
	for (bit /= 2; bit > 0; bit /= 2) {
		uint32_t child = v + (uint32_t)bit, peer = rb_right(build, build->root, child);
		struct rb_pieces pieces = rb_pieces_below(build, child);

		for (uint32_t i = 0; i < pieces.count; i++) {
			(void)rb_write_send(w, peer, (uint16_t)i, from, pieces.block[i],
					    pieces.blocks[i]);
			if (v > 0)
				after_piece(w, &mine, &recvs, pieces.block[i]);
		}
	}
	(void)rb_write_copy(w, from, part, r, 1);
	if (v > 0)
		after_piece(w, &mine, &recvs, r);
}

uint64_t rb_sent_scatter_binomial(const struct rb_layout *layout, const struct rb_build *build,
				  uint32_t element_bytes)
{
	uint32_t v = rb_from_root(build);
	uint64_t elements = 0;

	for (uint64_t bit = 1; bit < rb_below(build, v); bit *= 2)
		elements += rb_pieces_length(layout, build, v + (uint32_t)bit);
	return elements * element_bytes;
}
