/* lanes.c -- see lanes.h. */
#include "collectives/builders/by_node/lanes.h"

struct rb_lanes rb_lanes_of(const struct rb_build *build, bool mapped)
{
	const struct rb_nodes *nodes = build->nodes;
	struct rb_lanes l = { .build = build, .mapped = mapped };

	if (nodes == NULL) {
		l.nodes = 1;
		l.lanes = l.size = build->rank_count;
		l.place = l.right = l.left = build->rank;
		return l;
	}
	l.nodes = nodes->count;
	l.lanes = nodes->least;
	l.node = nodes->node_of[build->rank];
	l.size = rb_node_size(nodes, l.node);
	l.place = nodes->place_of[build->rank];
	if (rb_lanes_drives(&l)) {
		l.right = rb_node_rank(nodes, (l.node + 1) % l.nodes, l.place);
		l.left = rb_node_rank(nodes, rb_lanes_node_left(&l, 1), l.place);
	}
	return l;
}

uint64_t rb_lanes_length(const struct rb_lanes *l, const struct rb_layout *layout, uint32_t lane,
			 uint32_t without)
{
	uint64_t sum = 0;

	for (uint32_t h = 0; h < l->nodes; h++)
		if (h != without)
			sum += rb_layout_length(layout, rb_lanes_block(l, h, lane), 1);
	return sum;
}
