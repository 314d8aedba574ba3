/*
 * star.h -- what gather and scatter over nodes share. Each other node has one message with the
 * root's node: the blocks of its ranks side by side, in the order of places. Its first rank meets
 * one rank of the root's node: the root, the next one, and so on, so that all of them drive the
 * node's card.
 */
#ifndef RB_COLLECTIVES_STAR_H
#define RB_COLLECTIVES_STAR_H

#include "collectives/builders/by_node/lanes.h"

struct rb_star {
	struct rb_lanes l;
	uint32_t node, place; /* The root's. */
};

static inline struct rb_star rb_star_of(const struct rb_build *build, bool mapped)
{
	const struct rb_nodes *nodes = build->nodes;

	return (struct rb_star) {
		.l = rb_lanes_of(build, mapped),
		.node = nodes != NULL ? nodes->node_of[build->root] : 0,
		.place = nodes != NULL ? nodes->place_of[build->root] : build->root,
	};
}

/* The i-th of the other nodes, 0 < i < nodes; which one the rank's own is, 0: the root's. */
static inline uint32_t rb_star_node(const struct rb_star *s, uint32_t i)
{
	return (s->node + i) % s->l.nodes;
}
static inline uint32_t rb_star_index(const struct rb_star *s)
{
	return (s->l.node + s->l.nodes - s->node) % s->l.nodes;
}

/* Who of the root's node meets that node, and whether it is this rank, one of the root's node. */
static inline uint32_t rb_star_hub(const struct rb_star *s, uint32_t i)
{
	return rb_lanes_rank(&s->l, s->node, (s->place + i - 1) % rb_lanes_size(&s->l, s->node));
}
static inline bool rb_star_meets(const struct rb_star *s, uint32_t i)
{
	return rb_star_hub(s, i) == s->l.build->rank;
}

/* Elements of a node's blocks. */
static inline uint64_t rb_star_length(const struct rb_star *s, const struct rb_layout *layout,
				      uint32_t node)
{
	return rb_layout_length(layout, rb_lanes_first(&s->l, node), rb_lanes_size(&s->l, node));
}

/* Of those that the rank meets. */
static inline uint64_t rb_star_met_length(const struct rb_star *s, const struct rb_layout *layout)
{
	uint64_t sum = 0;

	for (uint32_t i = 1; i < s->l.nodes; i++)
		if (rb_star_meets(s, i))
			sum += rb_star_length(s, layout, rb_star_node(s, i));
	return sum;
}

#endif
