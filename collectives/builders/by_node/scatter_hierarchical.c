/*
 * scatter_hierarchical.c -- gather_hierarchical backwards: one message from the root's node to each
 * other (star.h), whose first rank hands the blocks out. For short ones.
 *
 * In mapped memory the ranks of the root's node take their own blocks, and those of the nodes that
 * they meet, out of the root's IN, and who hands out writes into the others' OUT. The staged form,
 * for memory that is not mapped, sends within the node what those copy. Between nodes both send the
 * same, so each node may take either.
 *
 * What lies node by node has block numbers by place: those of node h begin at its first one.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/star.h"

/* Channels. Staged: a rank's own block, and what is for the i-th other node has i. */
#define OWN 0
#define ENTRY 0 /* Mapped: the root's IN may be read, OUT written. */
#define EXIT 1  /* It no longer is. */

/* ---- Another node than the root's ---- */

static void write_taker(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t giver = rb_lanes_local(l, 0);

	if (!l->mapped) {
		(void)rb_write_recv(w, giver, OWN, rb_span_part(rb_span_out(RB_SELF)),
				    l->build->rank, 1);
		return;
	}
	(void)rb_write_notify(w, giver, ENTRY, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	(void)rb_write_wait(w, giver, EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
}

/* To the rank at place p, of what `recv` has brought into the vector slot. */
static void write_gift(struct rb_writer *w, const struct rb_star *s, uint32_t p, uint32_t recv)
{
	const struct rb_lanes *l = &s->l;
	uint32_t peer = rb_lanes_local(l, p);
	struct rb_span from =
		rb_lanes_at(l, rb_span_vector_slot(0), rb_lanes_first(l, l->node) + p, peer);

	if (!l->mapped) {
		(void)rb_write_send(w, peer, OWN, from, peer, 1);
		/* It may be in any chunk of the message up to the last. */
		rb_write_dep(w, recv, RB_DEP_ALL);
		return;
	}
	uint32_t entry = rb_write_wait(w, peer, ENTRY, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t copy = rb_write_copy(w, from, rb_span_part(rb_span_out(peer)), peer, 1);

	rb_write_dep(w, recv, RB_DEP_ALL);
	rb_write_dep(w, entry, 0);
	(void)rb_write_notify(w, peer, EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep(w, copy, RB_DEP_ALL);
}

static void write_giver(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t hub = rb_star_hub(s, rb_star_index(s)), first = rb_lanes_first(l, l->node);
	uint32_t r = l->build->rank;
	struct rb_span part = rb_span_part(rb_span_out(RB_SELF));

	if (l->size == 1) {
		(void)rb_write_recv(w, hub, 0, part, r, 1);
		return;
	}
	uint32_t recv = rb_write_recv(w, hub, 0, rb_span_vector_slot(0), first, l->size);

	for (uint32_t p = 1; p < l->size; p++)
		write_gift(w, s, p, recv);
	(void)rb_write_copy(w, rb_lanes_at(l, rb_span_vector_slot(0), first, r), part, r, 1);
	rb_write_dep(w, recv, 0);
}

/* ---- The root's node ---- */

/* A node's blocks out of the root's IN into the vector slot. `ready`: what must come before, or
 * RB_NO_SPAN. */
static void write_pack(struct rb_writer *w, const struct rb_star *s, uint32_t node,
		       struct rb_span in, uint32_t ready, struct rb_row *copies)
{
	const struct rb_lanes *l = &s->l;
	bool adjoin = rb_lanes_adjoin(l, node);
	uint32_t first = rb_lanes_first(l, node), size = rb_lanes_size(l, node);

	for (uint32_t p = 0; p < (adjoin ? 1 : size); p++) {
		uint32_t at = rb_lanes_rank(l, node, p);
		struct rb_span to = rb_lanes_at(l, rb_span_vector_slot(0), first + p, at);

		rb_row_add(copies, rb_write_copy(w, in, to, at, adjoin ? size : 1));
		if (ready != RB_NO_SPAN)
			rb_write_dep(w, ready, 0);
	}
}

/* The message to a node, which the COPYs of the row from `*packed` on have packed. */
static void write_message(struct rb_writer *w, const struct rb_star *s, uint32_t node,
			  const struct rb_row *copies, uint32_t *packed)
{
	const struct rb_lanes *l = &s->l;
	uint32_t size = rb_lanes_size(l, node), pieces = rb_lanes_adjoin(l, node) ? 1 : size;

	(void)rb_write_send(w, rb_lanes_rank(l, node, 0), 0, rb_span_vector_slot(0),
			    rb_lanes_first(l, node), size);
	/* A block that lies further back is in a later chunk of the message. */
	for (uint32_t p = 0; p < pieces; p++)
		rb_write_dep(w, rb_row_at(copies, (*packed)++), 0);
}

static void write_near(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t root = l->build->root, ready = rb_write_wait(w, root, ENTRY, 0, 0), packed = 0;
	struct rb_row copies = { 0 };

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	for (uint32_t i = 1; i < l->nodes; i++)
		if (rb_star_meets(s, i))
			write_pack(w, s, rb_star_node(s, i), rb_span_in(root), ready, &copies);
	rb_row_add(&copies, rb_write_copy(w, rb_span_in(root), rb_span_part(rb_span_out(RB_SELF)),
					  l->build->rank, 1));
	rb_write_dep(w, ready, 0);
	for (uint32_t i = 1; i < l->nodes; i++)
		if (rb_star_meets(s, i))
			write_message(w, s, rb_star_node(s, i), &copies, &packed);
	(void)rb_write_notify(w, root, EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep_row(w, &copies, RB_DEP_ALL);
}

static void write_near_staged(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t root = l->build->root;

	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t node = rb_star_node(s, i), first = rb_lanes_first(l, node);
		uint32_t size = rb_lanes_size(l, node);

		if (!rb_star_meets(s, i))
			continue;
		uint32_t recv =
			rb_write_recv(w, root, (uint16_t)i, rb_span_vector_slot(0), first, size);

		(void)rb_write_send(w, rb_lanes_rank(l, node, 0), 0, rb_span_vector_slot(0), first,
				    size);
		rb_write_dep(w, recv, 0);
	}
	(void)rb_write_recv(w, root, OWN, rb_span_part(rb_span_out(RB_SELF)), l->build->rank, 1);
}

/* The blocks of the i-th other node, to where they go. */
static void write_departure(struct rb_writer *w, const struct rb_star *s, uint32_t i)
{
	const struct rb_lanes *l = &s->l;
	uint32_t node = rb_star_node(s, i), first = rb_lanes_first(l, node);
	struct rb_span in = rb_span_in(RB_SELF), from = rb_span_vector_slot(0);
	bool meets = rb_star_meets(s, i);
	uint32_t to = meets ? rb_lanes_rank(l, node, 0) : rb_star_hub(s, i);
	struct rb_row copies = { 0 };

	if (l->mapped && !meets)
		return;
	if (rb_lanes_adjoin(l, node))
		from = rb_lanes_at(l, in, rb_lanes_rank(l, node, 0), first);
	else
		write_pack(w, s, node, in, RB_NO_SPAN, &copies);
	(void)rb_write_send(w, to, meets ? 0 : (uint16_t)i, from, first, rb_lanes_size(l, node));
	rb_write_dep_row(w, &copies, 0);
}

static void write_root(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;

	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(l, i), ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 1; i < l->nodes; i++)
		write_departure(w, s, i);
	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t peer = rb_lanes_other(l, i);

		if (!l->mapped) {
			(void)rb_write_send(w, peer, OWN, rb_span_in(RB_SELF), peer, 1);
			continue;
		}
		(void)rb_write_wait(w, peer, EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_part(rb_span_out(RB_SELF)),
			    l->build->rank, 1);
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped)
{
	struct rb_star s = rb_star_of(who, mapped);

	rb_writer_init(w, w->schedule, who->rank, who->rank_count, who->rank_count);
	w->schedule->flags = mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0;
	if (s.l.node != s.node && s.l.place > 0)
		write_taker(w, &s);
	else if (s.l.node != s.node)
		write_giver(w, &s);
	else if (who->rank == who->root)
		write_root(w, &s);
	else if (mapped)
		write_near(w, &s);
	else
		write_near_staged(w, &s);
}

void rb_build_scatter_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true);
}

void rb_build_scatter_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false);
}

uint64_t rb_sent_scatter_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
				      uint32_t element_bytes)
{
	struct rb_star s = rb_star_of(who, true);

	return s.l.node == s.node ? rb_star_met_length(&s, layout) * element_bytes : 0;
}

uint64_t rb_sent_scatter_hierarchical_staged(const struct rb_layout *layout,
					     const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_star s = rb_star_of(who, false);

	if (who->rank == who->root)
		return rb_bytes_without(layout, who->rank, element_bytes);
	if (s.l.node == s.node || s.l.place > 0)
		return rb_sent_scatter_hierarchical(layout, who, element_bytes);
	return rb_star_length(&s, layout, s.l.node) * element_bytes -
	       rb_layout_length(layout, rb_lanes_first(&s.l, s.l.node), 1) * element_bytes;
}
