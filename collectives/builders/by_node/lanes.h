/*
 * lanes.h -- what hierarchical builders share. Every node has as many lanes as the smallest one has
 * ranks; the rank at place l of a node drives lane l. The ranks at one place of all nodes are a
 * ring of their own, so several ranks of a node drive its card together. Further ranks of a larger
 * node take part within it only.
 *
 * Block h * lanes + l is that of node h in lane l: RB_BLOCKS_LANES.
 */
#ifndef RB_COLLECTIVES_LANES_H
#define RB_COLLECTIVES_LANES_H

#include "collectives/build.h"

struct rb_lanes {
	const struct rb_build *build;
	uint32_t nodes, lanes;
	uint32_t node, size, place; /* The rank's node, how many ranks it has, its place there. */
	uint32_t right, left;       /* Of the rank's ring, if it drives a lane. */
	bool mapped;                /* Ranks of a node touch each other's memory. */
	bool put;                   /* Between nodes by puts; rb_lanes_of: not. */
};

struct rb_lanes rb_lanes_of(const struct rb_build *build, bool mapped);

/* How many ranks a node has, and the one at a place of it. */
static inline uint32_t rb_lanes_size(const struct rb_lanes *l, uint32_t node)
{
	return l->build->nodes != NULL ? rb_node_size(l->build->nodes, node) : l->size;
}
static inline uint32_t rb_lanes_rank(const struct rb_lanes *l, uint32_t node, uint32_t place)
{
	return l->build->nodes != NULL ? rb_node_rank(l->build->nodes, node, place) : place;
}
/* The same of the rank's own node. */
static inline uint32_t rb_lanes_local(const struct rb_lanes *l, uint32_t place)
{
	return rb_lanes_rank(l, l->node, place);
}

/* The i-th of the node's other ranks, from its right on; 0 < i < size. */
static inline uint32_t rb_lanes_other(const struct rb_lanes *l, uint32_t i)
{
	return rb_lanes_local(l, (l->place + i) % l->size);
}

/* Where the one at place p stands in a row that has a step for each of them. */
static inline uint32_t rb_lanes_other_at(const struct rb_lanes *l, uint32_t p)
{
	return (p + l->size - l->place) % l->size - 1;
}

/* Where a node's ranks begin where they lie node by node. */
static inline uint32_t rb_lanes_first(const struct rb_lanes *l, uint32_t node)
{
	return l->build->nodes != NULL ? l->build->nodes->first[node] : 0;
}

/* Whether a node's ranks follow each other, and so their blocks. */
static inline bool rb_lanes_adjoin(const struct rb_lanes *l, uint32_t node)
{
	uint32_t last = rb_lanes_size(l, node) - 1;

	return rb_lanes_rank(l, node, last) == rb_lanes_rank(l, node, 0) + last;
}

/* A span at `block` of a vector slot or buffer of a block per rank, for a step at another block. */
static inline struct rb_span rb_lanes_at(const struct rb_lanes *l, struct rb_span span,
					 uint32_t block, uint32_t step_block)
{
	return rb_span_shifted(span,
			       (uint32_t)(((uint64_t)block + l->build->rank_count - step_block) %
					  l->build->rank_count));
}

static inline bool rb_lanes_drives(const struct rb_lanes *l)
{
	return l->place < l->lanes;
}

static inline uint32_t rb_lanes_block(const struct rb_lanes *l, uint32_t node, uint32_t lane)
{
	return node * l->lanes + lane;
}

/* The node `distance` to the left in the ring of nodes; distance <= nodes. */
static inline uint32_t rb_lanes_node_left(const struct rb_lanes *l, uint32_t distance)
{
	return (l->node + l->nodes - distance) % l->nodes;
}

/* Elements of a lane's blocks, all but that of node `without` (l->nodes: of all). */
uint64_t rb_lanes_length(const struct rb_lanes *l, const struct rb_layout *layout, uint32_t lane,
			 uint32_t without);

#endif
