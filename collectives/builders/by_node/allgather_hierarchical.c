/*
 * allgather_hierarchical.c -- in lanes (lanes.h): the ring over nodes of Thakur, Rabenseifner and
 * Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), section 4.1. Lane l
 * carries the parts of the ranks at the places l, l + lanes, ... of each node, so that every node
 * gets each other's parts once, all its lanes together. After Traeff and Hunold, "Decomposing MPI
 * Collectives for Exploiting Multi-lane Communication" (2020).
 *
 * In mapped memory the ranks of a node copy each other's parts out of their IN, and those of other
 * nodes out of the OUT of the rank that drives the lane, chunk by chunk as they come. The staged
 * form, for memory that is not mapped, sends within the node what those copy. Between nodes both
 * send the same, so each node may take either.
 *
 * By puts a part goes from OUT to OUT between nodes, once the rank on the right has said that its
 * own may be written.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

/* Channels: block b's is b; and these two. */
#define ENTRY(l) ((uint16_t)(l)->build->rank_count)      /* IN may be read, OUT be put into. */
#define EXIT(l) ((uint16_t)((l)->build->rank_count + 1)) /* IN and OUT are read no more. */

/* How many parts of a node a lane carries, and whose the i-th is: its block. */
static uint32_t parts_of(const struct rb_lanes *l, uint32_t node, uint32_t lane)
{
	return (rb_node_size(l->build->nodes, node) - lane - 1) / l->lanes + 1;
}

static uint32_t part_of(const struct rb_lanes *l, uint32_t node, uint32_t lane, uint32_t i)
{
	return rb_node_rank(l->build->nodes, node, lane + i * l->lanes);
}

/* The parts of the node's other ranks, from the right one on, come to OUT. */
static struct rb_row write_near(struct rb_writer *w, const struct rb_lanes *l)
{
	struct rb_span own = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);
	uint16_t channel = (uint16_t)l->build->rank;
	struct rb_row entry = { 0 }, came = { 0 };

	for (uint32_t i = 1; i < l->size; i++) {
		if (l->mapped) {
			(void)rb_write_notify(w, rb_lanes_other(l, i), ENTRY(l), 0, 0);
			rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
		} else {
			(void)rb_write_send(w, rb_lanes_other(l, i), channel, own, l->build->rank,
					    1);
		}
	}
	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		rb_row_add(&entry, rb_write_wait(w, rb_lanes_other(l, i), ENTRY(l), 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t peer = rb_lanes_other(l, i);

		if (!l->mapped) {
			rb_row_add(&came, rb_write_recv(w, peer, (uint16_t)peer, out, peer, 1));
			continue;
		}
		rb_row_add(&came, rb_write_copy(w, rb_span_part(rb_span_in(peer)), out, peer, 1));
		rb_write_dep(w, rb_row_at(&entry, i - 1), 0);
	}
	(void)rb_write_copy(w, own, out, l->build->rank, 1);
	return came;
}

/* A part to the next node, once step `ready` (puts) has come. */
static void write_right(struct rb_writer *w, const struct rb_lanes *l, uint32_t block,
			struct rb_span from, uint32_t ready)
{
	(void)rb_write_give(w, l->put, l->right, (uint16_t)block, from, rb_span_out(RB_SELF), block,
			    1);
	if (l->put)
		rb_write_dep(w, ready, 0);
}

/* The node's own parts set out around the ring. */
static void write_first_turn(struct rb_writer *w, const struct rb_lanes *l,
			     const struct rb_row *came, uint32_t ready)
{
	for (uint32_t i = 0; i < parts_of(l, l->node, l->place); i++) {
		uint32_t block = part_of(l, l->node, l->place, i);
		struct rb_span own = rb_span_part(rb_span_in(RB_SELF));

		write_right(w, l, block, i == 0 ? own : rb_span_out(RB_SELF), ready);
		if (i > 0)
			rb_write_dep(w, rb_row_at(came, i * l->lanes - 1), 0);
	}
}

/* A part of another node: comes, goes on, unless it has been everywhere, and to the others here. */
static void write_part(struct rb_writer *w, const struct rb_lanes *l, uint32_t block, bool last,
		       uint32_t ready)
{
	uint16_t channel = (uint16_t)block;
	struct rb_span out = rb_span_out(RB_SELF);
	uint32_t got = rb_write_take(w, l->put, l->left, channel, out, block, 1);

	if (!last) {
		write_right(w, l, block, out, ready);
		rb_write_dep(w, got, 0);
	}
	for (uint32_t i = 1; i < l->size; i++) {
		if (l->mapped)
			(void)rb_write_notify(w, rb_lanes_other(l, i), channel, block, 1);
		else
			(void)rb_write_send(w, rb_lanes_other(l, i), channel, out, block, 1);
		rb_write_dep(w, got, 0);
	}
}

static void write_driven(struct rb_writer *w, const struct rb_lanes *l, const struct rb_row *came)
{
	uint32_t ready = l->put ? rb_write_ready(w, l->left, l->right, ENTRY(l)) : 0;

	write_first_turn(w, l, came, ready);
	for (uint32_t t = 1; t < l->nodes; t++) {
		uint32_t node = rb_lanes_node_left(l, t);

		for (uint32_t i = 0; i < parts_of(l, node, l->place); i++)
			write_part(w, l, part_of(l, node, l->place, i), t + 1 == l->nodes, ready);
	}
}

/* What the rank at another place brings from other nodes, in its order: the steps, if mapped. */
static struct rb_row write_far(struct rb_writer *w, const struct rb_lanes *l, uint32_t place)
{
	uint32_t driver = rb_lanes_local(l, place);
	struct rb_span out = rb_span_out(RB_SELF);
	struct rb_row copies = { 0 };

	for (uint32_t t = 1; place < l->lanes && t < l->nodes; t++) {
		uint32_t node = rb_lanes_node_left(l, t);

		for (uint32_t i = 0; i < parts_of(l, node, place); i++) {
			uint32_t block = part_of(l, node, place, i);

			if (!l->mapped) {
				(void)rb_write_recv(w, driver, (uint16_t)block, out, block, 1);
				continue;
			}
			uint32_t ready = rb_write_wait(w, driver, (uint16_t)block, block, 1);

			rb_row_add(&copies, rb_write_copy(w, rb_span_out(driver), out, block, 1));
			rb_write_dep(w, ready, 0);
		}
	}
	return copies;
}

static void write_others(struct rb_writer *w, const struct rb_lanes *l, const struct rb_row *came)
{
	for (uint32_t i = 1; i < l->size; i++) {
		struct rb_row copies = write_far(w, l, (l->place + i) % l->size);

		if (!l->mapped)
			continue;
		(void)rb_write_notify(w, rb_lanes_other(l, i), EXIT(l), 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, rb_row_at(came, i - 1), RB_DEP_ALL);
		rb_write_dep_row(w, &copies, RB_DEP_ALL);
	}
	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		(void)rb_write_wait(w, rb_lanes_other(l, i), EXIT(l), 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped, bool put)
{
	struct rb_lanes l = rb_lanes_of(who, mapped);

	l.put = put;
	rb_writer_init(w, w->schedule, who->rank, who->rank_count, who->rank_count);
	w->schedule->flags =
		(mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0) | (put ? RB_SCHEDULE_PUT : 0);
	struct rb_row came = write_near(w, &l);

	if (l.nodes > 1 && rb_lanes_drives(&l))
		write_driven(w, &l, &came);
	write_others(w, &l, &came);
}

void rb_build_allgather_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, false);
}

void rb_build_allgather_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false, false);
}

void rb_build_allgather_hierarchical_put(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, true);
}

void rb_build_allgather_hierarchical_put_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false, true);
}

/* Elements of a lane's parts, all but those of node `without`. */
static uint64_t lane_length(const struct rb_lanes *l, const struct rb_layout *layout,
			    uint32_t without)
{
	uint64_t sum = 0;

	for (uint32_t h = 0; h < l->nodes; h++)
		for (uint32_t i = 0; h != without && i < parts_of(l, h, l->place); i++)
			sum += rb_layout_length(layout, part_of(l, h, l->place, i), 1);
	return sum;
}

uint64_t rb_sent_allgather_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
					uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);

	if (l.nodes == 1 || !rb_lanes_drives(&l))
		return 0;
	return lane_length(&l, layout, (l.node + 1) % l.nodes) * element_bytes;
}

uint64_t rb_sent_allgather_hierarchical_staged(const struct rb_layout *layout,
					       const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t sent = rb_layout_length(layout, who->rank, 1);

	if (l.nodes > 1 && rb_lanes_drives(&l))
		sent += lane_length(&l, layout, l.node);
	return sent * (l.size - 1) * element_bytes +
	       rb_sent_allgather_hierarchical(layout, who, element_bytes);
}

uint64_t rb_sent_allgather_hierarchical_put(const struct rb_layout *layout,
					    const struct rb_build *who, uint32_t element_bytes)
{
	return rb_sent_allgather_hierarchical(layout, who, element_bytes);
}

uint64_t rb_sent_allgather_hierarchical_put_staged(const struct rb_layout *layout,
						   const struct rb_build *who,
						   uint32_t element_bytes)
{
	return rb_sent_allgather_hierarchical_staged(layout, who, element_bytes);
}
