/*
 * reduce_hierarchical.c -- in lanes (lanes.h), a share of the vector each: a chain over nodes that
 * ends at the root's, in which the rank that drives a lane adds the operands of all ranks of its
 * node, in one pass, to what comes, and passes it on, chunk by chunk; at the root's node it writes
 * the result into the root's OUT. Every node sends the vector over its card once and gets it once,
 * all its lanes together. As reduce_chain between nodes, as reduce_direct within them.
 *
 * The staged form is for memory that is not mapped: operands and results go in messages within the
 * node. Between nodes both send the same, so each node may take either.
 *
 * A lane's messages have its number as their channel.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/sums.h"

static struct rb_sums_range range_of(const struct rb_lanes *l, uint32_t lane)
{
	return (struct rb_sums_range) { .block = lane * l->nodes,
					.blocks = l->nodes,
					.channel = (uint16_t)lane };
}

/* How many nodes lie between the rank's and the root's, that one included. */
static uint32_t nodes_to_root(const struct rb_lanes *l)
{
	const struct rb_nodes *nodes = l->build->nodes;

	return nodes == NULL ? 0 : rb_lanes_node_left(l, nodes->node_of[l->build->root]);
}

static void write_driven(struct rb_writer *w, const struct rb_lanes *l)
{
	uint32_t ahead = nodes_to_root(l), root = l->build->root;
	struct rb_sums_range range = range_of(l, l->place);
	struct rb_sums sums = { .l = l };

	rb_sums_enter(w, &sums);
	rb_sums_pass(w, &sums, &range, ahead + 1 == l->nodes ? RB_SELF : l->right,
		     ahead == 0 ? RB_SELF : l->left,
		     rb_span_out(root == l->build->rank ? RB_SELF : root));
	rb_sums_leave(w, &sums);
}

/* A lane that another rank of the node drives. */
static void write_other(struct rb_writer *w, const struct rb_lanes *l, uint32_t lane)
{
	struct rb_sums_range range = range_of(l, lane);
	uint32_t driver = rb_lanes_local(l, lane);

	if (l->mapped) {
		rb_sums_lend(w, driver);
		return;
	}
	uint32_t given = rb_sums_give(w, driver, &range);

	if (l->build->rank != l->build->root)
		return;
	(void)rb_write_recv(w, driver, range.channel, rb_span_out(RB_SELF), range.block,
			    range.blocks);
	rb_write_dep(w, given, 0); /* In place this is what is sent. */
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped)
{
	struct rb_lanes l = rb_lanes_of(who, mapped);

	rb_writer_init(w, w->schedule, who->rank, who->rank_count, l.nodes * l.lanes);
	w->schedule->flags = mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0;
	if (rb_lanes_drives(&l))
		write_driven(w, &l);
	for (uint32_t i = 0; i < l.lanes; i++)
		if (i != l.place)
			write_other(w, &l, i);
}

void rb_build_reduce_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true);
}

void rb_build_reduce_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false);
}

static uint64_t lane_length(const struct rb_lanes *l, const struct rb_layout *layout, uint32_t lane)
{
	struct rb_sums_range range = range_of(l, lane);

	return rb_layout_length(layout, range.block, range.blocks);
}

uint64_t rb_sent_reduce_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
				     uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);

	if (!rb_lanes_drives(&l) || nodes_to_root(&l) == 0)
		return 0;
	return lane_length(&l, layout, l.place) * element_bytes;
}

uint64_t rb_sent_reduce_hierarchical_staged(const struct rb_layout *layout,
					    const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t sent = 0;

	for (uint32_t i = 0; i < l.lanes; i++)
		if (i != l.place || nodes_to_root(&l) > 0 || who->rank != who->root)
			sent += lane_length(&l, layout, i);
	return sent * element_bytes;
}
