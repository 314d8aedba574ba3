/*
 * nodes.h -- which ranks map each other's memory. A node is a set of ranks that all do: the ranks
 * of a host as a rule, or one rank alone where its transport maps nothing.
 *
 * Every rank knows all nodes, the same ones: they are agreed when a communicator is made. One
 * number per rank, so 4,096 ranks cost a few pages, and no fact of one pair changes another's.
 */
#ifndef RB_COLLECTIVES_NODES_H
#define RB_COLLECTIVES_NODES_H

#include <stddef.h>
#include <stdint.h>

struct rb_nodes {
	uint32_t rank_count, count;
	uint32_t least;     /* Ranks of the smallest node. */
	uint32_t *node_of;  /* Per rank: its node; numbered in the order of their lowest ranks. */
	uint32_t *place_of; /* Per rank: its place within the node, by rank. */
	uint32_t *first;    /* Per node, and one more: where its ranks begin in `ranks`. */
	uint32_t *ranks;    /* Node by node, rising. */
};

/* name_of: per rank, equal for those of one node, each less than rank_count. The arrays lie in
 * `words`, RB_NODES_WORDS of the caller's. */
#define RB_NODES_WORDS(rank_count) (4 * (size_t)(rank_count) + 1)
void rb_nodes_make(struct rb_nodes *nodes, uint32_t *words, const uint32_t *name_of,
		   uint32_t rank_count);

/* The same, in other words, which hold what the first ones did. */
void rb_nodes_move(struct rb_nodes *nodes, uint32_t *words);

static inline uint32_t rb_node_size(const struct rb_nodes *nodes, uint32_t node)
{
	return nodes->first[node + 1] - nodes->first[node];
}
/* The rank at a place of a node. */
static inline uint32_t rb_node_rank(const struct rb_nodes *nodes, uint32_t node, uint32_t place)
{
	return nodes->ranks[nodes->first[node] + place];
}

#endif
