/*
 * alltoall_hierarchical.c -- one message from each node to each rank of another: what all ranks of
 * the node have for it, side by side. In nodes of S ranks a rank sends one S-th of the messages
 * that it sends without nodes, each S times as long: for short blocks. As the lanes of Traeff and
 * Hunold, "Decomposing MPI Collectives for Exploiting Multi-lane Communication" (2020): the rank at
 * place p of a node packs and sends what is for place p (modulo the node's ranks) of every other.
 *
 * Mapped, who packs takes blocks straight out of the others' IN; in the staged form, for memory
 * that is not, they come in messages. Between nodes both send the same, so each node may take
 * either.
 *
 * Vector slots: the first has what comes, node by node; the others have what leaves, as many
 * messages in each as fit. Within a node a message has the number of the rank that its block is for
 * as its channel.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

#define ENTRY 0 /* IN may be read. */
#define EXIT 1  /* It is read no more. */

#define COMES 0 /* Vector slots. */
#define LEAVES 1

struct exchange {
	const struct rb_lanes *l;
	uint32_t r, n;
	struct rb_row entry, exit; /* Mapped: WAITs for the others of the node. */
	struct rb_row near;        /* What brings their blocks. */
	struct rb_row gives;       /* Staged: SENDs to those who pack. */
	struct rb_row sends;       /* To other nodes. */
};

/* Who of a node of `size` ranks packs for place p of another. */
static uint32_t packer(uint32_t p, uint32_t size)
{
	return p % size;
}

/* The blocks of the node's ranks that are for rank `to` of another node, and their message. */
static void write_message(struct rb_writer *w, struct exchange *x, uint32_t to)
{
	const struct rb_lanes *l = x->l;
	uint32_t room = x->n / l->size, first = x->sends.count % room * l->size;
	struct rb_span slot = rb_span_vector_slot(LEAVES + x->sends.count / room);
	struct rb_row parts = { 0 };

	for (uint32_t p = 0; p < l->size; p++) {
		uint32_t peer = rb_lanes_local(l, p);
		struct rb_span from = rb_span_in(p == l->place ? RB_SELF : peer);
		struct rb_span at = rb_lanes_at(l, slot, first + p, to);

		if (l->mapped || p == l->place)
			rb_row_add(&parts, rb_write_copy(w, from, at, to, 1));
		else
			rb_row_add(&parts, rb_write_recv(w, peer, (uint16_t)to, at, to, 1));
		if (l->mapped && p != l->place)
			rb_write_dep(w, rb_row_at(&x->entry, rb_lanes_other_at(l, p)), 0);
	}
	rb_row_add(&x->sends, rb_write_send(w, to, 0, slot, first, l->size));
	/* A block that lies further back is in a later chunk of the message. */
	rb_write_dep_row(w, &parts, 0);
}

/* Staged: what others pack is given to them. */
static void write_gives(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;

	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t node = rb_lanes_node_left(l, i);

		for (uint32_t p = 0; p < rb_lanes_size(l, node); p++) {
			uint32_t to = rb_lanes_rank(l, node, p), by = packer(p, l->size);

			if (by != l->place)
				rb_row_add(&x->gives,
					   rb_write_send(w, rb_lanes_local(l, by), (uint16_t)to,
							 rb_span_in(RB_SELF), to, 1));
		}
	}
	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t to = rb_lanes_other(l, i);

		rb_row_add(&x->gives,
			   rb_write_send(w, to, (uint16_t)to, rb_span_in(RB_SELF), to, 1));
	}
}

/* What leaves for other nodes. */
static void write_far(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;

	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t node = rb_lanes_node_left(l, i);

		for (uint32_t p = l->place; p < rb_lanes_size(l, node); p += l->size)
			write_message(w, x, rb_lanes_rank(l, node, p));
	}
}

/* The blocks of the own node's ranks: into OUT or, in place, the first vector slot. */
static void write_near(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;

	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t p = (l->place + i) % l->size, peer = rb_lanes_local(l, p);
		uint32_t at = rb_lanes_first(l, l->node) + p;
		struct rb_span to = rb_span_out(RB_SELF);

		if (l->build->in_place)
			to = rb_lanes_at(l, rb_span_vector_slot(COMES), at, peer);
		if (l->mapped) {
			struct rb_span from = rb_lanes_at(l, rb_span_in(peer), x->r, peer);

			rb_row_add(&x->near, rb_write_copy(w, from, to, peer, 1));
			rb_write_dep(w, rb_row_at(&x->entry, i - 1), 0);
		} else {
			rb_row_add(&x->near, rb_write_recv(w, peer, (uint16_t)x->r, to, peer, 1));
		}
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), x->r, 1);
}

/* Mapped: the others' IN is read no more, and one's own neither. */
static void write_exit(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;

	for (uint32_t i = 1; i < l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(l, i), EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, rb_row_at(&x->near, i - 1), RB_DEP_ALL);
		/* What is sent has been packed. */
		rb_write_dep_row(w, &x->sends, RB_DEP_ALL);
	}
	for (uint32_t i = 1; i < l->size; i++) {
		rb_row_add(&x->exit, rb_write_wait(w, rb_lanes_other(l, i), EXIT, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

/* In place: the block for the rank at place p of a node has been taken out of IN. `sent`, `given`:
 * how many messages and gifts were for those before it. */
static void after_taken(struct rb_writer *w, const struct exchange *x, uint32_t by, uint32_t sent,
			uint32_t given)
{
	if (by == x->l->place)
		rb_write_dep(w, rb_row_at(&x->sends, sent), 0);
	else if (x->l->mapped)
		rb_write_dep(w, rb_row_at(&x->exit, rb_lanes_other_at(x->l, by)), 0);
	else
		rb_write_dep(w, rb_row_at(&x->gives, given), 0);
}

/* What comes from other nodes. */
static void write_arrivals(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;
	uint32_t sent = 0, given = 0;

	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t node = rb_lanes_node_left(l, i), size = rb_lanes_size(l, node);
		uint32_t from = rb_lanes_rank(l, node, packer(l->place, size));
		uint32_t first = rb_lanes_first(l, node);
		struct rb_span to = rb_span_vector_slot(COMES);
		bool direct = !l->build->in_place && rb_lanes_adjoin(l, node);

		if (direct)
			to = rb_lanes_at(l, rb_span_out(RB_SELF), rb_lanes_rank(l, node, 0), first);
		uint32_t recv = rb_write_recv(w, from, 0, to, first, size);

		for (uint32_t p = 0; p < size && !direct; p++) {
			uint32_t peer = rb_lanes_rank(l, node, p), by = packer(p, l->size);

			(void)rb_write_copy(
				w, rb_lanes_at(l, rb_span_vector_slot(COMES), first + p, peer),
				rb_span_out(RB_SELF), peer, 1);
			rb_write_dep(w, recv, p == 0 ? 0 : RB_DEP_ALL);
			if (l->build->in_place)
				after_taken(w, x, by, sent, given);
			sent += by == l->place;
			given += by != l->place;
		}
	}
}

/* In place: blocks from the own node, once the old ones have been taken. */
static void write_near_results(struct rb_writer *w, struct exchange *x)
{
	const struct rb_lanes *l = x->l;

	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t p = (l->place + i) % l->size, peer = rb_lanes_local(l, p);
		uint32_t at = rb_lanes_first(l, l->node) + p;

		(void)rb_write_copy(w, rb_lanes_at(l, rb_span_vector_slot(COMES), at, peer),
				    rb_span_out(RB_SELF), peer, 1);
		rb_write_dep(w, rb_row_at(&x->near, i - 1), 0);
		after_taken(w, x, p, 0, x->gives.count - l->size + i);
	}
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped)
{
	struct rb_lanes l = rb_lanes_of(who, mapped);
	struct exchange x = { .l = &l, .r = who->rank, .n = who->rank_count };

	rb_writer_init(w, w->schedule, x.r, x.n, x.n);
	w->schedule->flags = mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0;
	for (uint32_t i = 1; mapped && i < l.size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(&l, i), ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 1; mapped && i < l.size; i++) {
		rb_row_add(&x.entry, rb_write_wait(w, rb_lanes_other(&l, i), ENTRY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	if (!mapped)
		write_gives(w, &x);
	write_far(w, &x);
	write_near(w, &x);
	if (mapped)
		write_exit(w, &x);
	write_arrivals(w, &x);
	if (who->in_place)
		write_near_results(w, &x);
}

void rb_build_alltoall_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true);
}

void rb_build_alltoall_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false);
}

/* Ranks of other nodes for whom the rank packs. */
static uint32_t packs(const struct rb_lanes *l)
{
	uint32_t sum = 0;

	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t size = rb_lanes_size(l, rb_lanes_node_left(l, i));

		sum += (size + l->size - 1 - l->place) / l->size;
	}
	return sum;
}

uint64_t rb_sent_alltoall_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
				       uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);

	return (uint64_t)packs(&l) * l.size * rb_layout_length(layout, 0, 1) * element_bytes;
}

uint64_t rb_sent_alltoall_hierarchical_staged(const struct rb_layout *layout,
					      const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t far = packs(&l), near = who->rank_count - 1 - far;

	return (far * l.size + near) * rb_layout_length(layout, 0, 1) * element_bytes;
}
