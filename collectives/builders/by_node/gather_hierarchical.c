/*
 * gather_hierarchical.c -- one message from each node to the root's (star.h): its first rank packs
 * the parts of the node. So the root's card gets no more bytes than from everyone, in as many
 * messages as there are nodes: for short parts. After Traeff, "Hierarchical gather/scatter
 * algorithms with graceful degradation" (2004).
 *
 * In mapped memory who packs copies out of the others' IN, and the ranks of the root's node write
 * their own parts, and those of the nodes that they meet, into the root's OUT. The staged form, for
 * memory that is not mapped, sends within the node what those copy. Between nodes both send the
 * same, so each node may take either.
 *
 * What lies node by node has block numbers by place: those of node h begin at its first one.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/star.h"

/* Channels. Staged: a rank's own part, and what came from the i-th other node has i. */
#define OWN 0
#define ENTRY 0 /* Mapped: IN may be read, the root's OUT written. */
#define EXIT 1  /* It no longer is. */

/* ---- Another node than the root's ---- */

static void write_giver(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t packer = rb_lanes_local(l, 0);

	if (!l->mapped) {
		(void)rb_write_send(w, packer, OWN, rb_span_part(rb_span_in(RB_SELF)),
				    l->build->rank, 1);
		return;
	}
	(void)rb_write_notify(w, packer, ENTRY, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	(void)rb_write_wait(w, packer, EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
}

/* The node's parts, packed, the own one first. */
static struct rb_row write_parts(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	struct rb_row entry = { 0 }, parts = { 0 };

	for (uint32_t p = 1; l->mapped && p < l->size; p++) {
		rb_row_add(&entry, rb_write_wait(w, rb_lanes_local(l, p), ENTRY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t p = 0; p < l->size; p++) {
		uint32_t peer = rb_lanes_local(l, p);
		struct rb_span part = rb_span_part(rb_span_in(p == 0 ? RB_SELF : peer));
		struct rb_span to = rb_lanes_at(l, rb_span_vector_slot(0),
						rb_lanes_first(l, l->node) + p, peer);

		if (!l->mapped && p > 0)
			rb_row_add(&parts, rb_write_recv(w, peer, OWN, to, peer, 1));
		else
			rb_row_add(&parts, rb_write_copy(w, part, to, peer, 1));
		if (l->mapped && p > 0)
			rb_write_dep(w, rb_row_at(&entry, p - 1), 0);
	}
	return parts;
}

static void write_packer(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t hub = rb_star_hub(s, rb_star_index(s)), first = rb_lanes_first(l, l->node);

	if (l->size == 1) {
		(void)rb_write_send(w, hub, 0, rb_span_part(rb_span_in(RB_SELF)), l->build->rank,
				    1);
		return;
	}
	struct rb_row parts = write_parts(w, s);

	(void)rb_write_send(w, hub, 0, rb_span_vector_slot(0), first, l->size);
	/* A part that lies further back is in a later chunk of the message. */
	rb_write_dep_row(w, &parts, 0);
	for (uint32_t p = 1; l->mapped && p < l->size; p++) {
		(void)rb_write_notify(w, rb_lanes_local(l, p), EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, rb_row_at(&parts, p), RB_DEP_ALL);
	}
}

/* ---- The root's node ---- */

/* What `recv` has brought of a node into the vector slot is put down in `out`, where each of its
 * ranks has its block. `ready`: what must come before, or RB_NO_SPAN. */
static void write_put_down(struct rb_writer *w, const struct rb_star *s, uint32_t node,
			   struct rb_span out, uint32_t recv, uint32_t ready, struct rb_row *copies)
{
	const struct rb_lanes *l = &s->l;
	bool adjoin = rb_lanes_adjoin(l, node);
	uint32_t first = rb_lanes_first(l, node), size = rb_lanes_size(l, node);

	for (uint32_t p = 0; p < (adjoin ? 1 : size); p++) {
		uint32_t at = rb_lanes_rank(l, node, p);
		struct rb_span from = rb_lanes_at(l, rb_span_vector_slot(0), first + p, at);

		rb_row_add(copies, rb_write_copy(w, from, out, at, adjoin ? size : 1));
		rb_write_dep(w, recv, p == 0 ? 0 : RB_DEP_ALL);
		if (ready != RB_NO_SPAN)
			rb_write_dep(w, ready, 0);
	}
}

static void write_near(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;
	uint32_t root = l->build->root, ready = rb_write_wait(w, root, ENTRY, 0, 0), met = 0;
	struct rb_row recvs = { 0 }, copies = { 0 };

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	for (uint32_t i = 1; i < l->nodes; i++) {
		uint32_t node = rb_star_node(s, i);

		if (rb_star_meets(s, i))
			rb_row_add(&recvs,
				   rb_write_recv(w, rb_lanes_rank(l, node, 0), 0,
						 rb_span_vector_slot(0), rb_lanes_first(l, node),
						 rb_lanes_size(l, node)));
	}
	rb_row_add(&copies, rb_write_copy(w, rb_span_part(rb_span_in(RB_SELF)), rb_span_out(root),
					  l->build->rank, 1));
	rb_write_dep(w, ready, 0);
	for (uint32_t i = 1; i < l->nodes; i++)
		if (rb_star_meets(s, i))
			write_put_down(w, s, rb_star_node(s, i), rb_span_out(root),
				       rb_row_at(&recvs, met++), ready, &copies);
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
		uint32_t recv = rb_write_recv(w, rb_lanes_rank(l, node, 0), 0,
					      rb_span_vector_slot(0), first, size);

		(void)rb_write_send(w, root, (uint16_t)i, rb_span_vector_slot(0), first, size);
		rb_write_dep(w, recv, 0);
	}
	(void)rb_write_send(w, root, OWN, rb_span_part(rb_span_in(RB_SELF)), l->build->rank, 1);
}

/* The parts of the i-th other node, from where they come. */
static void write_arrival(struct rb_writer *w, const struct rb_star *s, uint32_t i)
{
	const struct rb_lanes *l = &s->l;
	uint32_t node = rb_star_node(s, i), first = rb_lanes_first(l, node);
	struct rb_span out = rb_span_out(RB_SELF);
	bool meets = rb_star_meets(s, i), adjoin = rb_lanes_adjoin(l, node);
	uint32_t from = meets ? rb_lanes_rank(l, node, 0) : rb_star_hub(s, i);
	struct rb_row copies = { 0 };

	if (l->mapped && !meets)
		return;
	uint32_t recv = rb_write_recv(w, from, meets ? 0 : (uint16_t)i,
				      adjoin ? rb_lanes_at(l, out, rb_lanes_rank(l, node, 0), first)
					     : rb_span_vector_slot(0),
				      first, rb_lanes_size(l, node));

	if (!adjoin)
		write_put_down(w, s, node, out, recv, RB_NO_SPAN, &copies);
}

static void write_root(struct rb_writer *w, const struct rb_star *s)
{
	const struct rb_lanes *l = &s->l;

	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(l, i), ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 1; i < l->nodes; i++)
		write_arrival(w, s, i);
	(void)rb_write_copy(w, rb_span_part(rb_span_in(RB_SELF)), rb_span_out(RB_SELF),
			    l->build->rank, 1);
	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t peer = rb_lanes_other(l, i);

		if (!l->mapped) {
			(void)rb_write_recv(w, peer, OWN, rb_span_out(RB_SELF), peer, 1);
			continue;
		}
		(void)rb_write_wait(w, peer, EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped)
{
	struct rb_star s = rb_star_of(who, mapped);

	rb_writer_init(w, w->schedule, who->rank, who->rank_count, who->rank_count);
	w->schedule->flags = mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0;
	if (s.l.node != s.node && s.l.place > 0)
		write_giver(w, &s);
	else if (s.l.node != s.node)
		write_packer(w, &s);
	else if (who->rank == who->root)
		write_root(w, &s);
	else if (mapped)
		write_near(w, &s);
	else
		write_near_staged(w, &s);
}

void rb_build_gather_hierarchical(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true);
}

void rb_build_gather_hierarchical_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false);
}

uint64_t rb_sent_gather_hierarchical(const struct rb_layout *layout, const struct rb_build *who,
				     uint32_t element_bytes)
{
	struct rb_star s = rb_star_of(who, true);

	if (s.l.node == s.node || s.l.place > 0)
		return 0;
	return rb_star_length(&s, layout, s.l.node) * element_bytes;
}

uint64_t rb_sent_gather_hierarchical_staged(const struct rb_layout *layout,
					    const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_star s = rb_star_of(who, false);
	uint64_t sent = 0;

	if (s.l.node == s.node && who->rank != who->root)
		sent = rb_star_met_length(&s, layout);
	if (s.l.node == s.node ? who->rank != who->root : s.l.place > 0)
		sent += rb_layout_length(layout, who->rank, 1);
	return sent * element_bytes + rb_sent_gather_hierarchical(layout, who, element_bytes);
}
