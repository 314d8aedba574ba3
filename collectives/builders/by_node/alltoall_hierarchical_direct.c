/*
 * alltoall_hierarchical_direct.c -- within the node as alltoall_direct, out of each other's IN;
 * with the ranks of other nodes the very messages of alltoall_pairwise, but all at once, and so
 * that at any time each node sends to one other. For large blocks, and for those that no other
 * rank knows (ALLTOALLV), which cannot travel together. A node whose memory is not mapped takes
 * alltoall_pairwise. In place, where each partner needs slots, a few partners follow each other,
 * as there.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

#define ENTRY 0 /* IN may be read. */

static bool is_near(const struct rb_build *build, uint32_t rank)
{
	const struct rb_nodes *nodes = build->nodes;

	return nodes == NULL || nodes->node_of[rank] == nodes->node_of[build->rank];
}

static uint32_t place_of(const struct rb_build *build, uint32_t rank)
{
	return build->nodes != NULL ? build->nodes->place_of[rank] : rank;
}

static void write_far(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_exchanges exchanges = { .slots = RB_PAIRWISE_AT_ONCE * RB_DEPTH_MAPPED };
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row sends = { 0 };

	for (uint32_t i = 0; build->in_place && i < n; i++)
		if (!is_near(build, rb_partner(build, i)))
			rb_write_exchange(w, build, rb_partner(build, i), &exchanges);
	for (uint32_t i = 1; !build->in_place && i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		if (is_near(build, peer))
			continue;
		rb_row_add(&sends, rb_write_send(w, peer, 0, rb_span_in(RB_SELF), peer, 1));
		rb_write_pace(w, &sends);
	}
	for (uint32_t i = 1; !build->in_place && i < n; i++) {
		uint32_t peer = rb_left(build, r, i);

		if (is_near(build, peer))
			continue;
		(void)rb_write_recv(w, peer, 0, rb_span_out(RB_SELF), peer, 1);
		rb_write_flags(w, RB_STEP_OUT);
	}
}

void rb_build_alltoall_hierarchical_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_lanes l = rb_lanes_of(build, true);
	struct rb_fetches fetches = { 0 };
	struct rb_row entry = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	for (uint32_t i = 1; i < l.size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(&l, i), ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 1; i < l.size; i++) {
		rb_row_add(&entry, rb_write_wait(w, rb_lanes_other(&l, i), ENTRY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	write_far(w, build);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = rb_partner(build, i);

		if (peer != r && is_near(build, peer))
			rb_write_fetch(
				w, build, peer,
				rb_row_at(&entry, rb_lanes_other_at(&l, place_of(build, peer))),
				&fetches);
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_alltoall_hierarchical_direct(const struct rb_layout *layout,
					      const struct rb_build *build, uint32_t element_bytes)
{
	uint64_t sent = 0;

	for (uint32_t p = 0; p < build->rank_count; p++)
		if (!is_near(build, p))
			sent += rb_layout_length(layout, p, 1);
	return sent * element_bytes;
}
