/*
 * broadcast_hierarchical.c -- in lanes (lanes.h), each of which brings its share of the vector from
 * node to node: along the pipelined chain of van de Geijn and Watts, "SUMMA" (1997), where it is
 * long, down a binomial tree where it is short. So a node's card carries the vector once each way
 * in the chain, all its lanes together. After Traeff and Hunold, "Decomposing MPI Collectives for
 * Exploiting Multi-lane Communication" (2020).
 *
 * In mapped memory the ranks of the root's node copy out of the root's OUT, those that drive a lane
 * that one first; in the other nodes each copies out of the OUT of the rank that drives the lane,
 * chunk by chunk as it comes. The staged forms, for memory that is not mapped, send within the node
 * what those copy; the root gives each lane to its driver, who passes it on. Between nodes both
 * send the same, so each node may take either.
 *
 * By puts a lane goes from OUT to OUT between nodes, once those behind have said that theirs may be
 * written.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

#define CHILDREN_MAX 32

/* Channels. */
#define LANE 0 /* Of the rank that drives a lane: its share, or that it has come. */
#define FEED 1 /* Of the root: the share of the lane that the other drives. */
#define ENTRY 2
#define EXIT 3
#define READY 4 /* Between nodes: OUT may be put into. */

enum shape { CHAIN, BINOMIAL };

struct cast {
	struct rb_lanes l;
	bool with_root, is_root;      /* The rank's node has the root; the rank is it. */
	uint32_t parent, children;    /* Nodes. */
	uint32_t child[CHILDREN_MAX]; /* The one with the most nodes behind it first. */
	struct rb_row ready;          /* By puts: WAITs for their drivers. */
};

struct form { /* Of an algorithm. */
	enum shape shape;
	bool mapped, put;
};

static struct cast cast_of(const struct rb_build *build, struct form form)
{
	struct cast c = { .l = rb_lanes_of(build, form.mapped) };
	struct rb_build nodes = { .rank = c.l.node, .rank_count = c.l.nodes };

	c.l.put = form.put;
	nodes.root = build->nodes != NULL ? build->nodes->node_of[build->root] : 0;
	uint32_t v = rb_from_root(&nodes);

	c.with_root = v == 0;
	c.is_root = build->rank == build->root;
	if (form.shape == CHAIN) {
		c.parent = rb_lanes_node_left(&c.l, 1);
		if (v + 1 < c.l.nodes)
			c.child[c.children++] = rb_right(&nodes, c.l.node, 1);
		return c;
	}
	uint32_t below = rb_below(&nodes, v);
	uint64_t bit = 1;

	c.parent = rb_right(&nodes, nodes.root, v & (v - 1));
	while (bit < below)
		bit *= 2;
	for (bit /= 2; bit > 0; bit /= 2)
		c.child[c.children++] = rb_right(&nodes, nodes.root, (uint32_t)(v + bit));
	return c;
}

/* A lane's share of the vector: one block for each node, side by side. */
static uint32_t block_of(const struct rb_lanes *l, uint32_t lane)
{
	return lane * l->nodes;
}

/* The rank that drives this rank's lane on another node. */
static uint32_t driver_on(const struct rb_lanes *l, uint32_t node)
{
	return rb_node_rank(l->build->nodes, node, l->place);
}

/* For the step written last. `got`: RB_NO_SPAN where there is nothing to wait for. */
static void write_after(struct rb_writer *w, uint32_t got)
{
	if (got != RB_NO_SPAN)
		rb_write_dep(w, got, 0);
}

/* The rank's lane, which step `got` has brought, to the nodes behind. */
static void write_children(struct rb_writer *w, const struct cast *c, uint32_t got)
{
	const struct rb_lanes *l = &c->l;

	for (uint32_t i = 0; i < c->children; i++) {
		(void)rb_write_give(w, l->put, driver_on(l, c->child[i]), LANE,
				    rb_span_out(RB_SELF), rb_span_out(RB_SELF),
				    block_of(l, l->place), l->nodes);
		write_after(w, got);
		if (l->put)
			rb_write_dep(w, rb_row_at(&c->ready, i), 0);
	}
}

static uint32_t write_parent(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;

	return rb_write_take(w, l->put, driver_on(l, c->parent), LANE, rb_span_out(RB_SELF),
			     block_of(l, l->place), l->nodes);
}

/* By puts: tells the parent that it may, and hears the same of the children. */
static void write_ready(struct rb_writer *w, struct cast *c)
{
	const struct rb_lanes *l = &c->l;

	if (!l->put || !rb_lanes_drives(l))
		return;
	if (!c->with_root) {
		(void)rb_write_notify(w, driver_on(l, c->parent), READY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 0; i < c->children; i++) {
		rb_row_add(&c->ready, rb_write_wait(w, driver_on(l, c->child[i]), READY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
}

/* ---- In mapped memory ---- */

static void write_root(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;

	for (uint32_t i = 1; i < l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(l, i), ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	if (rb_lanes_drives(l))
		write_children(w, c, RB_NO_SPAN);
	for (uint32_t i = 1; i < l->size; i++) {
		(void)rb_write_wait(w, rb_lanes_other(l, i), EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

/* The lane that it drives comes first and goes on at once: the others are copied meanwhile. */
static void write_near_root(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;
	uint32_t root = l->build->root, ready = rb_write_wait(w, root, ENTRY, 0, 0), first = 0;
	struct rb_row others = { 0 };

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	for (uint32_t i = 0; i < l->lanes; i++) {
		uint32_t copy = rb_write_copy(w, rb_span_out(root), rb_span_out(RB_SELF),
					      block_of(l, (l->place + i) % l->lanes), l->nodes);

		rb_write_dep(w, ready, 0);
		if (i > 0)
			rb_row_add(&others, copy);
		else
			first = copy;
		if (i == 0 && rb_lanes_drives(l))
			write_children(w, c, copy);
	}
	(void)rb_write_notify(w, root, EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep(w, first, RB_DEP_ALL);
	rb_write_dep_row(w, &others, RB_DEP_ALL);
}

static void write_far_driver(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;
	uint32_t got = write_parent(w, c);

	write_children(w, c, got);
	for (uint32_t i = 1; i < l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(l, i), LANE, block_of(l, l->place),
				      l->nodes);
		rb_write_dep(w, got, 0);
	}
	for (uint32_t i = 1; i < l->size; i++) {
		(void)rb_write_wait(w, rb_lanes_other(l, i), EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

static void write_far(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;

	if (rb_lanes_drives(l))
		write_far_driver(w, c);
	for (uint32_t i = 0; i < l->lanes; i++) {
		if (i == l->place)
			continue;
		uint32_t driver = rb_lanes_local(l, i), block = block_of(l, i);
		uint32_t came = rb_write_wait(w, driver, LANE, block, l->nodes);
		uint32_t copy = rb_write_copy(w, rb_span_out(driver), rb_span_out(RB_SELF), block,
					      l->nodes);

		rb_write_dep(w, came, 0);
		(void)rb_write_notify(w, driver, EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, copy, RB_DEP_ALL);
	}
}

/* ---- By messages within the node ---- */

/* The others of the node, but for the root, get the lane that this rank drives. */
static void write_lane(struct rb_writer *w, const struct cast *c, uint32_t got)
{
	const struct rb_lanes *l = &c->l;

	write_children(w, c, got);
	for (uint32_t i = 1; i < l->size; i++) {
		if (rb_lanes_other(l, i) == l->build->root)
			continue;
		(void)rb_write_send(w, rb_lanes_other(l, i), LANE, rb_span_out(RB_SELF),
				    block_of(l, l->place), l->nodes);
		write_after(w, got);
	}
}

static void write_staged_root(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;

	for (uint32_t i = 0; i < l->lanes; i++)
		if (i != l->place)
			(void)rb_write_send(w, rb_lanes_local(l, i), FEED, rb_span_out(RB_SELF),
					    block_of(l, i), l->nodes);
	if (rb_lanes_drives(l))
		write_lane(w, c, RB_NO_SPAN);
}

static void write_staged(struct rb_writer *w, const struct cast *c)
{
	const struct rb_lanes *l = &c->l;
	struct rb_span out = rb_span_out(RB_SELF);

	if (rb_lanes_drives(l))
		write_lane(w, c,
			   c->with_root ? rb_write_recv(w, l->build->root, FEED, out,
							block_of(l, l->place), l->nodes)
					: write_parent(w, c));
	for (uint32_t i = 0; i < l->lanes; i++)
		if (i != l->place)
			(void)rb_write_recv(w, rb_lanes_local(l, i), LANE, out, block_of(l, i),
					    l->nodes);
}

/* ---- All forms ---- */

static void build(struct rb_writer *w, const struct rb_build *who, struct form form)
{
	struct cast c = cast_of(who, form);

	rb_writer_init(w, w->schedule, who->rank, who->rank_count, c.l.nodes * c.l.lanes);
	w->schedule->flags =
		(form.mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0) | (form.put ? RB_SCHEDULE_PUT : 0);
	write_ready(w, &c);
	if (!form.mapped && c.is_root)
		write_staged_root(w, &c);
	else if (!form.mapped)
		write_staged(w, &c);
	else if (c.is_root)
		write_root(w, &c);
	else if (c.with_root)
		write_near_root(w, &c);
	else
		write_far(w, &c);
}

/* ---- Bytes ---- */

static uint64_t length_of(const struct rb_lanes *l, const struct rb_layout *layout, uint32_t lane)
{
	return rb_layout_length(layout, block_of(l, lane), l->nodes);
}

static uint64_t sent(const struct rb_layout *layout, const struct rb_build *who, struct form form)
{
	struct cast c = cast_of(who, form);
	uint32_t takers = form.mapped ? 0 : c.l.size - 1 - (c.with_root && !c.is_root);
	uint64_t sum = 0;

	if (rb_lanes_drives(&c.l))
		sum = (c.children + takers) * length_of(&c.l, layout, c.l.place);
	for (uint32_t i = 0; !form.mapped && c.is_root && i < c.l.lanes; i++)
		if (i != c.l.place)
			sum += length_of(&c.l, layout, i);
	return sum;
}

#define FORM(name, ...)                                                                            \
	void rb_build_##name(struct rb_writer *w, const struct rb_build *who)                      \
	{                                                                                          \
		build(w, who, (struct form) { __VA_ARGS__ });                                      \
	}                                                                                          \
	uint64_t rb_sent_##name(const struct rb_layout *layout, const struct rb_build *who,        \
				uint32_t element_bytes)                                            \
	{                                                                                          \
		return sent(layout, who, (struct form) { __VA_ARGS__ }) * element_bytes;           \
	}

FORM(broadcast_hierarchical, .shape = CHAIN, .mapped = true)
FORM(broadcast_hierarchical_staged, .shape = CHAIN)
FORM(broadcast_hierarchical_put, .shape = CHAIN, .mapped = true, .put = true)
FORM(broadcast_hierarchical_put_staged, .shape = CHAIN, .put = true)
FORM(broadcast_hierarchical_binomial, .shape = BINOMIAL, .mapped = true)
FORM(broadcast_hierarchical_binomial_staged, .shape = BINOMIAL)
