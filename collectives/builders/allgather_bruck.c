/*
 * allgather_bruck.c -- in step k each rank passes on the 2^k parts that it has, its own first, to
 * the rank 2^k to its left: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient Algorithms for
 * All-to-All Communications in Multiport Message-Passing Systems" (1997), section 4; without the
 * rotation at the end, since parts go straight to their places (in two ranges where they wrap).
 */
#include "collectives/builders/builders.h"

#define RANGES 2 /* From `first` on, and from block 0 on: channels 2k and 2k + 1. */

struct range {
	uint32_t block, blocks;
	uint32_t step; /* That writes it. */
};

/* Blocks first, first + 1, ... modulo n. */
static void ranges_of(const struct rb_build *build, uint32_t first, uint32_t blocks,
		      struct range ranges[RANGES])
{
	uint32_t room = build->rank_count - first;

	ranges[0] = (struct range) { first, blocks < room ? blocks : room, 0 };
	ranges[1] = (struct range) { 0, blocks - ranges[0].blocks, 0 };
}

/* Chunk c of a send lies in chunks up to c of what it passes on: none of that begins before it. */
static void send_range(struct rb_writer *w, uint32_t peer, uint16_t channel,
		       const struct range *range, const struct range *filled, uint32_t filled_count)
{
	(void)rb_write_send(w, peer, channel, rb_span_out(RB_SELF), range->block, range->blocks);
	for (uint32_t f = 0; f < filled_count; f++)
		if (filled[f].block >= range->block &&
		    filled[f].block < range->block + range->blocks)
			rb_write_dep(w, filled[f].step, 0);
}

void rb_build_allgather_bruck(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, filled_count = 1;
	struct range filled[1 + 32 * RANGES] = { { r, 1, 0 } };
	uint16_t channel = 0;

	rb_writer_init(w, w->schedule, r, n, n);
	filled[0].step =
		rb_write_copy(w, rb_span_part(rb_span_in(RB_SELF)), rb_span_out(RB_SELF), r, 1);
	for (uint32_t have = 1; have < n; have *= 2, channel += RANGES) {
		uint32_t blocks = have < n - have ? have : n - have, before = filled_count;
		struct range mine[RANGES], theirs[RANGES];

		ranges_of(build, r, blocks, mine);
		ranges_of(build, rb_right(build, r, have), blocks, theirs);
		for (uint16_t i = 0; i < RANGES; i++)
			if (mine[i].blocks > 0)
				send_range(w, rb_left(build, r, have), channel + i, &mine[i],
					   filled, before);
		for (uint16_t i = 0; i < RANGES; i++) {
			if (theirs[i].blocks == 0)
				continue;
			theirs[i].step = rb_write_recv(w, rb_right(build, r, have), channel + i,
						       rb_span_out(RB_SELF), theirs[i].block,
						       theirs[i].blocks);
			filled[filled_count++] = theirs[i];
		}
	}
}

uint64_t rb_sent_allgather_bruck(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	uint64_t elements = 0;

	for (uint32_t have = 1; have < build->rank_count; have *= 2) {
		uint32_t left = build->rank_count - have;
		struct range mine[RANGES];

		ranges_of(build, build->rank, have < left ? have : left, mine);
		for (uint32_t i = 0; i < RANGES; i++)
			elements += rb_layout_length(layout, mine[i].block, mine[i].blocks);
	}
	return elements * element_bytes;
}
