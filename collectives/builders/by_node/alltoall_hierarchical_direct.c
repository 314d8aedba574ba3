/*
 * alltoall_hierarchical_direct.c -- within the node in mapped memory: every rank copies what is for
 * it out of the others' IN, and tells them, chunk by chunk, that it has, in the partners' order of
 * alltoall_pairwise: no rank's memory is read by all at once. With the ranks of other nodes the
 * very messages of alltoall_pairwise, but all at once, and so that at any time each node sends to
 * one other. For large blocks, and for those that no other rank knows (ALLTOALLV), which cannot
 * travel together. A node whose memory is not mapped takes alltoall_pairwise. In place, where each
 * partner needs slots, a few partners follow each other, as there.
 *
 * The ranks of a node that are `apart` take messages, too: pairs whose blocks of an ALLTOALLV are
 * short, or lie where they are not mapped. alltoall_direct is the same where all ranks are a node.
 *
 * By puts blocks go straight into the OUT of ranks of other nodes, as in alltoall_put: once those
 * have said that it may be written and, in place, taken theirs out of the way into a vector slot.
 * The staged form of this is alltoall_pairwise within the node.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

#define ENTRY 0 /* Within the node: IN may be read. */
#define DATA 0  /* Between nodes. */
#define READY 1 /* By puts: OUT may be written. */

/* Whose memory is worked in, or (staged) would be. */
static bool is_near(const struct rb_build *build, uint32_t rank)
{
	const struct rb_nodes *nodes = build->nodes;
	bool apart = build->apart != NULL && build->apart[rank] && rank != build->rank;

	return !apart && (nodes == NULL || nodes->node_of[rank] == nodes->node_of[build->rank]);
}

static void write_far(struct rb_writer *w, const struct rb_build *build, uint32_t slots)
{
	struct rb_exchanges exchanges = { .slots = slots };
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row sends = { 0 };

	for (uint32_t i = 0; build->in_place && i < n; i++)
		if (!is_near(build, rb_partner(build, i)))
			rb_write_exchange(w, build, rb_partner(build, i), &exchanges);
	for (uint32_t i = 1; !build->in_place && i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		if (is_near(build, peer))
			continue;
		rb_row_add(&sends, rb_write_send(w, peer, DATA, rb_span_in(RB_SELF), peer, 1));
		rb_write_pace(w, &sends);
	}
	for (uint32_t i = 1; !build->in_place && i < n; i++) {
		uint32_t peer = rb_left(build, r, i);

		if (is_near(build, peer))
			continue;
		(void)rb_write_recv(w, peer, DATA, rb_span_out(RB_SELF), peer, 1);
		rb_write_flags(w, RB_STEP_OUT);
	}
}

/* The blocks for ranks of other nodes are where they may be put from: says so to each. */
static struct rb_row write_far_ready(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_row copies = { 0 };

	for (uint32_t i = 1; i < build->rank_count; i++) {
		uint32_t peer = rb_right(build, build->rank, i);

		if (is_near(build, peer))
			continue;
		if (build->in_place)
			rb_row_add(&copies, rb_write_copy(w, rb_span_in(RB_SELF),
							  rb_span_vector_slot(0), peer, 1));
		(void)rb_write_notify(w, peer, READY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		if (build->in_place)
			rb_write_dep(w, rb_row_at(&copies, copies.count - 1), RB_DEP_ALL);
	}
	return copies;
}

static void write_far_puts(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span from = build->in_place ? rb_span_vector_slot(0) : rb_span_in(RB_SELF);
	struct rb_row copies = write_far_ready(w, build);
	uint32_t n = build->rank_count, r = build->rank, far = 0;

	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		if (is_near(build, peer))
			continue;
		uint32_t ready = rb_write_wait(w, peer, READY, 0, 0);

		rb_write_flags(w, RB_STEP_ONCE);
		(void)rb_write_put(w, peer, DATA, from,
				   rb_span_shifted(rb_span_out(peer), rb_left(build, r, peer)),
				   peer, 1);
		rb_write_dep(w, ready, 0);
		if (build->in_place)
			rb_write_dep(w, rb_row_at(&copies, far++), 0);
	}
	for (uint32_t i = 1; i < n; i++)
		if (!is_near(build, rb_left(build, r, i)))
			(void)rb_write_wait(w, rb_left(build, r, i), DATA, rb_left(build, r, i), 1);
}

/* The rank's partners of its node, in turn: from *i on the next one; none: false. */
static bool next_near(const struct rb_build *build, uint32_t *i, uint32_t *peer)
{
	for (; *i < build->rank_count; ++*i) {
		*peer = rb_partner(build, *i);
		if (*peer != build->rank && is_near(build, *peer))
			return true;
	}
	return false;
}

static struct rb_row write_near_entry(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_row entry = { 0 };
	uint32_t peer;

	for (uint32_t i = 0; next_near(build, &i, &peer); i++) {
		(void)rb_write_notify(w, peer, ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	for (uint32_t i = 0; next_near(build, &i, &peer); i++) {
		rb_row_add(&entry, rb_write_wait(w, peer, ENTRY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	return entry;
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped, bool put)
{
	uint32_t n = who->rank_count, r = who->rank, peer, first = 0;
	bool maps = mapped && (who->apart == NULL || next_near(who, &first, &peer));
	struct rb_exchanges exchanges = { 0 };
	struct rb_fetches fetches = { 0 };
	struct rb_row entry = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = (maps ? RB_SCHEDULE_MAPPED_BUFFERS : 0) | (put ? RB_SCHEDULE_PUT : 0);
	if (mapped)
		entry = write_near_entry(w, who);
	if (put)
		write_far_puts(w, who);
	else
		write_far(w, who, maps ? RB_PAIRWISE_AT_ONCE * RB_DEPTH_MAPPED : 0);
	for (uint32_t i = 0; next_near(who, &i, &peer); i++)
		if (mapped)
			rb_write_fetch(w, who, peer, rb_row_at(&entry, fetches.count), &fetches);
		else
			rb_write_exchange(w, who, peer, &exchanges);
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

static struct rb_build on_one_node(const struct rb_build *who)
{
	struct rb_build one = *who;

	one.nodes = NULL;
	return one;
}

void rb_build_alltoall_direct(struct rb_writer *w, const struct rb_build *who)
{
	struct rb_build one = on_one_node(who);

	build(w, &one, true, false);
}

uint64_t rb_sent_alltoall_direct(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	struct rb_build one = on_one_node(build);

	return rb_sent_alltoall_hierarchical_direct(layout, &one, element_bytes);
}

void rb_build_alltoall_hierarchical_direct(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, false);
}

void rb_build_alltoall_hierarchical_direct_put(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true, true);
}

void rb_build_alltoall_hierarchical_direct_put_staged(struct rb_writer *w,
						      const struct rb_build *who)
{
	build(w, who, false, true);
}

uint64_t rb_sent_alltoall_hierarchical_direct(const struct rb_layout *layout,
					      const struct rb_build *build, uint32_t element_bytes)
{
	uint64_t sent = 0;

	for (uint32_t p = 0; p < build->rank_count; p++)
		if (p != build->rank && !is_near(build, p))
			sent += rb_layout_length(layout, p, 1);
	return sent * element_bytes;
}

uint64_t rb_sent_alltoall_hierarchical_direct_put(const struct rb_layout *layout,
						  const struct rb_build *build,
						  uint32_t element_bytes)
{
	return rb_sent_alltoall_hierarchical_direct(layout, build, element_bytes);
}

uint64_t rb_sent_alltoall_hierarchical_direct_put_staged(const struct rb_layout *layout,
							 const struct rb_build *build,
							 uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
