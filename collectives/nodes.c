/* nodes.c -- see nodes.h. */
#include "collectives/nodes.h"

#include <string.h>

/* Numbers the nodes by their lowest ranks; `number` has room for a name each. */
static void number_nodes(struct rb_nodes *nodes, const uint32_t *name_of, uint32_t *number)
{
	for (uint32_t r = 0; r < nodes->rank_count; r++)
		number[r] = UINT32_MAX;
	for (uint32_t r = 0; r < nodes->rank_count; r++) {
		uint32_t *at = &number[name_of[r]];

		if (*at == UINT32_MAX)
			*at = nodes->count++;
		nodes->node_of[r] = *at;
	}
}

static void list_ranks(struct rb_nodes *nodes)
{
	uint32_t n = nodes->rank_count;

	memset(nodes->first, 0, (nodes->count + 1) * sizeof(*nodes->first));
	for (uint32_t r = 0; r < n; r++)
		nodes->place_of[r] = nodes->first[nodes->node_of[r] + 1]++;
	nodes->least = n;
	for (uint32_t i = 0; i < nodes->count; i++) {
		uint32_t size = nodes->first[i + 1];

		nodes->least = size < nodes->least ? size : nodes->least;
		nodes->first[i + 1] += nodes->first[i];
	}
	for (uint32_t r = 0; r < n; r++)
		nodes->ranks[nodes->first[nodes->node_of[r]] + nodes->place_of[r]] = r;
}

void rb_nodes_move(struct rb_nodes *nodes, uint32_t *words)
{
	size_t n = nodes->rank_count;

	nodes->node_of = words;
	nodes->place_of = words + n;
	nodes->ranks = words + 2 * n;
	nodes->first = words + 3 * n;
}

void rb_nodes_make(struct rb_nodes *nodes, uint32_t *words, const uint32_t *name_of,
		   uint32_t rank_count)
{
	*nodes = (struct rb_nodes) { .rank_count = rank_count };
	rb_nodes_move(nodes, words);
	number_nodes(nodes, name_of, nodes->ranks);
	list_ranks(nodes);
}
