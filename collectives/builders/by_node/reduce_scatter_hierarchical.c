/*
 * reduce_scatter_hierarchical.c -- in lanes (lanes.h): the first half of allreduce_hierarchical,
 * with the ranks' own blocks. The block of the rank at place p of a node goes around in lane p
 * (modulo the lanes): it begins at the node behind its own and at each turn gets the operands of a
 * node, in one pass, until the rank that drives the lane at its own node writes the sum into its
 * owner's OUT. Every node sends (H-1)/H of the vector over its card, the least possible for H
 * nodes, all its lanes together.
 *
 * The staged form is for memory that is not mapped: operands and results go in messages within the
 * node. Between nodes both send the same, so each node may take either.
 *
 * Operands: a block of node h is summed up over nodes h+1, h+2, ... h, from what came from the node
 * before and the node's ranks in their order.
 *
 * A block's messages have its owner's number as their channel: a rank that drives a lane gives
 * others their parts of other lanes' blocks only.
 *
 * By puts sums go into scratch of the rank that drives the lane at the next node, once it has said
 * that it has read those of the instance before.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/sums.h"

#define READY(l) ((uint16_t)(l)->build->rank_count)

static struct rb_sums_range block_of(uint32_t owner)
{
	return (struct rb_sums_range) { .block = owner, .blocks = 1, .channel = (uint16_t)owner };
}

static void write_driven(struct rb_writer *w, const struct rb_lanes *l)
{
	struct rb_sums sums = { .l = l };

	rb_sums_enter(w, &sums);
	if (l->put && l->nodes > 1)
		sums.ready = rb_write_ready(w, l->left, l->right, READY(l));
	for (uint32_t d = 1; d <= l->nodes; d++) {
		uint32_t h = rb_lanes_node_left(l, d);

		for (uint32_t p = l->place; p < rb_lanes_size(l, h); p += l->lanes) {
			struct rb_sums_range block = block_of(rb_lanes_rank(l, h, p));
			bool own = d == l->nodes && p == l->place;

			rb_sums_pass(
				w, &sums, &block, d == 1 ? RB_SELF : l->left,
				d == l->nodes ? RB_SELF : l->right,
				rb_span_part(rb_span_out(own ? RB_SELF : rb_lanes_rank(l, h, p))));
		}
	}
	rb_sums_leave(w, &sums);
}

/* A lane that another rank of the node drives. */
static void write_other(struct rb_writer *w, const struct rb_lanes *l, uint32_t lane)
{
	uint32_t driver = rb_lanes_local(l, lane), own = RB_NO_SPAN;

	if (l->mapped) {
		rb_sums_lend(w, driver);
		return;
	}
	for (uint32_t d = 1; d <= l->nodes; d++) {
		uint32_t h = rb_lanes_node_left(l, d);

		for (uint32_t p = lane; p < rb_lanes_size(l, h); p += l->lanes) {
			struct rb_sums_range block = block_of(rb_lanes_rank(l, h, p));
			uint32_t given = rb_sums_give(w, driver, &block);

			if (block.block == l->build->rank)
				own = given;
		}
	}
	if (own == RB_NO_SPAN)
		return;
	uint32_t rank = l->build->rank;

	(void)rb_write_recv(w, driver, (uint16_t)rank, rb_span_part(rb_span_out(RB_SELF)), rank, 1);
	rb_write_dep(w, own, 0); /* In place this is what is sent. */
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped, bool put)
{
	struct rb_lanes l = rb_lanes_of(who, mapped);

	l.put = put;
	rb_writer_init(w, w->schedule, who->rank, who->rank_count, who->rank_count);
	w->schedule->flags =
		(mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0) | (put ? RB_SCHEDULE_PUT : 0);
	if (rb_lanes_drives(&l))
		write_driven(w, &l);
	for (uint32_t i = 0; i < l.lanes; i++)
		if (i != l.place)
			write_other(w, &l, i);
}

void rb_build_reduce_scatter_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, false);
}

void rb_build_reduce_scatter_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false, false);
}

void rb_build_reduce_scatter_hierarchical_put(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, true);
}

void rb_build_reduce_scatter_hierarchical_put_staged(struct rb_writer *w,
						     const struct rb_build *who)
{
	build(w, who, false, true);
}

/* Elements of the blocks of a lane that belong to node h. */
static uint64_t lane_length(const struct rb_lanes *l, const struct rb_layout *layout, uint32_t lane,
			    uint32_t h)
{
	uint64_t sum = 0;

	for (uint32_t p = lane; p < rb_lanes_size(l, h); p += l->lanes)
		sum += rb_layout_length(layout, rb_lanes_rank(l, h, p), 1);
	return sum;
}

static uint64_t sent_between(const struct rb_lanes *l, const struct rb_layout *layout)
{
	uint64_t sum = 0;

	for (uint32_t h = 0; rb_lanes_drives(l) && h < l->nodes; h++)
		if (h != l->node)
			sum += lane_length(l, layout, l->place, h);
	return sum;
}

uint64_t rb_sent_reduce_scatter_hierarchical(const struct rb_layout *layout,
					     const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);

	return sent_between(&l, layout) * element_bytes;
}

uint64_t rb_sent_reduce_scatter_hierarchical_staged(const struct rb_layout *layout,
						    const struct rb_build *who,
						    uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t sent = sent_between(&l, layout);

	for (uint32_t i = 0; i < l.lanes; i++)
		for (uint32_t h = 0; i != l.place && h < l.nodes; h++)
			sent += lane_length(&l, layout, i, h);
	if (rb_lanes_drives(&l))
		sent += lane_length(&l, layout, l.place, l.node) -
			rb_layout_length(layout, who->rank, 1);
	return sent * element_bytes;
}

uint64_t rb_sent_reduce_scatter_hierarchical_put(const struct rb_layout *layout,
						 const struct rb_build *who, uint32_t element_bytes)
{
	return rb_sent_reduce_scatter_hierarchical(layout, who, element_bytes);
}

uint64_t rb_sent_reduce_scatter_hierarchical_put_staged(const struct rb_layout *layout,
							const struct rb_build *who,
							uint32_t element_bytes)
{
	return rb_sent_reduce_scatter_hierarchical_staged(layout, who, element_bytes);
}
