/*
 * allreduce_hierarchical.c -- in lanes (lanes.h): the ring of Patarasuk and Yuan over nodes, in
 * which the rank that drives a lane adds at each turn the operands of all ranks of its node, in one
 * pass, straight out of their IN. Every node sends 2 (H-1)/H of the vector over its card, the least
 * possible for H nodes, all its lanes together. The others of the node copy a block's result out of
 * the OUT of the rank that drives its lane, chunk by chunk as it comes. After Jain et al.,
 * "Framework for Scalable Intra-Node Collective Operations using Shared Memory" (SC 2018), within
 * nodes, and Traeff and Hunold, "Decomposing MPI Collectives for Exploiting Multi-lane
 * Communication" (2020), across them.
 *
 * The staged form is for memory that is not mapped: operands and results go in messages within the
 * node. Between nodes both send the same, so each node may take either.
 *
 * By puts a lane's partial sums go into scratch of the rank that drives it at the next node, and
 * results straight into its OUT, as in allreduce_ring.
 *
 * Operands: block h of a lane is summed up over nodes h+1, h+2, ... h, from what came from the node
 * before and the node's ranks in their order. Only one rank computes it, so all get the same bits.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/sums.h"

/* Channels within a node; across nodes the turns number them. */
#define RESULT(h) (1 + (h)) /* Of the block of node h. */
#define PART(l, h) (1 + (l)->nodes + (h))
#define EXIT(l) (1 + 2 * (l)->nodes) /* OUT is read no more. */

struct lane { /* What the rank that drives it has written so far. */
	const struct rb_lanes *l;
	struct rb_sums sums;
	uint32_t first_read;   /* The step that reads IN of the block that is sent first. */
	struct rb_row reduces; /* Of the ring, by turn. */
	uint32_t own;          /* The step that writes the result of the own node's block. */
};

/* The sum over the node of block h, and of what step `came` has brought to a slot (NULL: nothing
 * came), into `to`. */
static uint32_t write_sum(struct rb_writer *w, struct lane *lane, uint32_t h, uint32_t came,
			  const struct rb_span *slot, struct rb_span to)
{
	struct rb_sums_range range = { .block = rb_lanes_block(lane->l, h, lane->l->place),
				       .blocks = 1,
				       .channel = (uint16_t)PART(lane->l, h) };

	return rb_sums_write(w, &lane->sums, &range, came, slot, to);
}

/* By puts a vector slot: each block has its own place. */
static struct rb_span ring_slots(struct lane *lane)
{
	return lane->l->put ? rb_span_vector_slot(0) : rb_sums_slots(&lane->sums);
}

/* Turn t's step to the next node: of block h. */
static uint32_t write_right(struct rb_writer *w, const struct lane *lane, uint32_t t,
			    struct rb_span from, struct rb_span to, uint32_t h)
{
	const struct rb_lanes *l = lane->l;

	return rb_write_give(w, lane->l->put, l->right, (uint16_t)t, from, to,
			     rb_lanes_block(l, h, l->place), 1);
}

/* Turn t sends the block of node - 1 - t and adds to that of node - 2 - t, in the slot where it
 * came; the last one writes the result. Slots as in rb_write_ring_reduce. */
static void write_reduce_ring(struct rb_writer *w, struct lane *lane)
{
	const struct rb_lanes *l = lane->l;
	uint32_t last = l->nodes - 2, sent = rb_lanes_node_left(l, 1), ready = RB_NO_SPAN;
	struct rb_span from = rb_span_in(RB_SELF);
	struct rb_label reader = { 0 }; /* The last one of the slot that was written. */

	if (l->size > 1) {
		from = ring_slots(lane);
		ready = lane->first_read = write_sum(w, lane, sent, 0, NULL, from);
		if (!lane->l->put)
			rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
	}
	for (uint32_t t = 0; t <= last; t++) {
		uint32_t in = rb_lanes_node_left(l, t + 2);
		struct rb_span slot = ring_slots(lane);
		uint32_t send = write_right(w, lane, t, from, slot, sent);

		rb_write_label(w, &reader);
		if (ready != RB_NO_SPAN)
			rb_write_dep(w, ready, 0);
		else
			lane->first_read = send;
		uint32_t recv = rb_write_take(w, lane->l->put, l->left, (uint16_t)t, slot,
					      rb_lanes_block(l, in, l->place), 1);

		if (!lane->l->put)
			rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
		ready = write_sum(w, lane, in, recv, &slot,
				  t == last ? rb_span_out(RB_SELF) : slot);
		rb_row_add(&lane->reduces, ready);
		from = slot;
		sent = in;
	}
	rb_write_label(w, &reader);
	rb_write_flags(w, RB_STEP_FINAL);
	lane->own = ready;
}

/* The others of the node get block h from OUT, where step `ready` writes it. */
static void write_result(struct rb_writer *w, const struct rb_lanes *l, uint32_t h, uint32_t ready)
{
	uint32_t block = rb_lanes_block(l, h, l->place);

	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t peer = rb_lanes_local(l, (l->place + i) % l->size);

		if (l->mapped)
			(void)rb_write_notify(w, peer, (uint16_t)RESULT(h), block, 1);
		else
			(void)rb_write_send(w, peer, (uint16_t)RESULT(h), rb_span_out(RB_SELF),
					    block, 1);
		rb_write_dep(w, ready, 0);
	}
}

static void write_gather_ring(struct rb_writer *w, const struct lane *lane)
{
	const struct rb_lanes *l = lane->l;
	struct rb_span out = rb_span_out(RB_SELF);
	uint32_t got = lane->own;

	/* What has come goes on first: the next node waits for it. */
	for (uint32_t t = 0; t + 1 < l->nodes; t++) {
		uint32_t turn = l->nodes - 1 + t, in = rb_lanes_node_left(l, t + 1);

		(void)write_right(w, lane, turn, out, out, rb_lanes_node_left(l, t));
		rb_write_dep(w, got, 0);
		write_result(w, l, rb_lanes_node_left(l, t), got);
		got = rb_write_take(w, lane->l->put, l->left, (uint16_t)turn, out,
				    rb_lanes_block(l, in, l->place), 1);
		/* In place this block of OUT is IN. */
		if (!lane->l->put)
			rb_write_dep(
				w, t == 0 ? lane->first_read : rb_row_at(&lane->reduces, t - 1), 0);
	}
	write_result(w, l, rb_lanes_node_left(l, l->nodes - 1), got);
}

static void write_driven(struct rb_writer *w, const struct rb_lanes *l)
{
	struct lane lane = { .l = l, .sums = { .l = l } };

	rb_sums_enter(w, &lane.sums);
	if (l->nodes > 1) {
		write_reduce_ring(w, &lane);
	} else {
		lane.own = write_sum(w, &lane, 0, 0, NULL, rb_span_out(RB_SELF));
		rb_write_flags(w, RB_STEP_FINAL);
	}
	write_gather_ring(w, &lane);
	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		(void)rb_write_wait(w, rb_lanes_local(l, (l->place + i) % l->size),
				    (uint16_t)EXIT(l), 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
	w->schedule->scratch_slots = lane.sums.slots;
}

/* A lane that another rank of the node drives: its blocks in the order in which they come. */
static void write_other(struct rb_writer *w, const struct rb_lanes *l, uint32_t lane)
{
	uint32_t driver = rb_lanes_local(l, lane);
	struct rb_row copies = { 0 };

	if (l->mapped) {
		(void)rb_write_notify(w, driver, RB_SUMS_ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t t = 0; t < l->nodes; t++) {
		uint32_t h = rb_lanes_node_left(l, t), block = rb_lanes_block(l, h, lane);

		if (!l->mapped) {
			uint32_t send = rb_write_send(w, driver, (uint16_t)PART(l, h),
						      rb_span_in(RB_SELF), block, 1);

			(void)rb_write_recv(w, driver, (uint16_t)RESULT(h), rb_span_out(RB_SELF),
					    block, 1);
			rb_write_dep(w, send, 0); /* In place this is what is sent. */
			continue;
		}
		uint32_t ready = rb_write_wait(w, driver, (uint16_t)RESULT(h), block, 1);

		rb_row_add(&copies,
			   rb_write_copy(w, rb_span_out(driver), rb_span_out(RB_SELF), block, 1));
		rb_write_dep(w, ready, 0);
	}
	if (l->mapped) {
		(void)rb_write_notify(w, driver, (uint16_t)EXIT(l), 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &copies, RB_DEP_ALL);
	}
}

static void build(struct rb_writer *w, const struct rb_build *build, bool mapped, bool put)
{
	struct rb_lanes l = rb_lanes_of(build, mapped);

	l.put = put;
	rb_writer_init(w, w->schedule, build->rank, build->rank_count, l.nodes * l.lanes);
	w->schedule->flags =
		(mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0) | (put ? RB_SCHEDULE_PUT : 0);
	if (build->rank_count == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (rb_lanes_drives(&l))
		write_driven(w, &l);
	for (uint32_t i = 0; i < l.lanes; i++)
		if (i != l.place)
			write_other(w, &l, i);
}

void rb_build_allreduce_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, false);
}

void rb_build_allreduce_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false, false);
}

void rb_build_allreduce_hierarchical_put(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, true);
}

void rb_build_allreduce_hierarchical_put_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false, true);
}

static uint64_t sent_between(const struct rb_lanes *l, const struct rb_layout *layout)
{
	if (!rb_lanes_drives(l) || l->nodes == 1)
		return 0;
	return rb_lanes_length(l, layout, l->place, l->node) +
	       rb_lanes_length(l, layout, l->place, (l->node + 1) % l->nodes);
}

uint64_t rb_sent_allreduce_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
					uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);

	return sent_between(&l, layout) * element_bytes;
}

uint64_t rb_sent_allreduce_hierarchical_staged(const struct rb_layout *layout,
					       const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t sent = sent_between(&l, layout);

	for (uint32_t i = 0; i < l.lanes; i++)
		sent += rb_lanes_length(&l, layout, i, l.nodes) * (i == l.place ? l.size - 1 : 1);
	return sent * element_bytes;
}

uint64_t rb_sent_allreduce_hierarchical_put(const struct rb_layout *layout,
					    const struct rb_build *who, uint32_t element_bytes)
{
	return rb_sent_allreduce_hierarchical(layout, who, element_bytes);
}

uint64_t rb_sent_allreduce_hierarchical_put_staged(const struct rb_layout *layout,
						   const struct rb_build *who,
						   uint32_t element_bytes)
{
	return rb_sent_allreduce_hierarchical_staged(layout, who, element_bytes);
}
