/* build.c -- shapes that several builders write. */
#include "collectives/build.h"

void rb_write_notify_all(struct rb_writer *w, const struct rb_build *build, uint16_t channel,
			 uint8_t flags)
{
	for (uint32_t i = 1; i < build->rank_count; i++) {
		(void)rb_write_notify(w, rb_right(build, build->rank, i), channel, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | flags);
	}
}

struct rb_row rb_write_wait_all(struct rb_writer *w, const struct rb_build *build, uint16_t channel,
				uint8_t flags)
{
	struct rb_row waits = { 0 };

	for (uint32_t i = 1; i < build->rank_count; i++) {
		uint32_t peer = rb_right(build, build->rank, i);

		rb_row_add(&waits, rb_write_wait(w, peer, channel, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | flags);
	}
	return waits;
}

struct rb_row rb_write_entry(struct rb_writer *w, const struct rb_build *build, uint16_t channel)
{
	rb_write_notify_all(w, build, channel, RB_STEP_ENTRY);
	return rb_write_wait_all(w, build, channel, RB_STEP_ENTRY);
}

uint32_t rb_write_give(struct rb_writer *w, bool put, uint32_t peer, uint16_t channel,
		       struct rb_span from, struct rb_span to, uint32_t block, uint32_t blocks)
{
	to.rank = peer;
	return put ? rb_write_put(w, peer, channel, from, to, block, blocks)
		   : rb_write_send(w, peer, channel, from, block, blocks);
}

uint32_t rb_write_take(struct rb_writer *w, bool put, uint32_t peer, uint16_t channel,
		       struct rb_span to, uint32_t block, uint32_t blocks)
{
	return put ? rb_write_wait(w, peer, channel, block, blocks)
		   : rb_write_recv(w, peer, channel, to, block, blocks);
}

uint32_t rb_write_ready(struct rb_writer *w, uint32_t from, uint32_t to, uint16_t channel)
{
	(void)rb_write_notify(w, from, channel, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t ready = rb_write_wait(w, to, channel, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	return ready;
}

void rb_write_meet_reduce(struct rb_writer *w, const struct rb_build *build, struct rb_span result)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row entry = rb_write_entry(w, build, 0);
	uint32_t reduce = rb_write_reduce(w, result, r, 1);

	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, rb_span_in(s == r ? RB_SELF : s));
	rb_write_dep_row(w, &entry, 0);
	rb_write_flags(w, RB_STEP_FINAL);
	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_notify(w, rb_right(build, r, i), 1, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, reduce, RB_DEP_ALL);
	}
	(void)rb_write_wait_all(w, build, 1, 0);
}

struct rb_pieces rb_pieces_below(const struct rb_build *build, uint32_t v)
{
	uint32_t n = build->rank_count, first = rb_right(build, build->root, v);
	uint32_t blocks = rb_below(build, v), beyond = first + blocks > n ? first + blocks - n : 0;

	return (struct rb_pieces) { .count = beyond > 0 ? 2 : 1,
				    .block = { first, 0 },
				    .blocks = { blocks - beyond, beyond } };
}

uint64_t rb_pieces_length(const struct rb_layout *layout, const struct rb_build *build, uint32_t v)
{
	struct rb_pieces pieces = rb_pieces_below(build, v);

	return rb_layout_length(layout, pieces.block[0], pieces.blocks[0]) +
	       rb_layout_length(layout, pieces.block[1], pieces.blocks[1]);
}

void rb_write_lend(struct rb_writer *w, const struct rb_build *build, struct rb_span from,
		   struct rb_span to)
{
	(void)rb_write_copy(w, from, to, build->rank, 1);
	rb_write_notify_all(w, build, 0, RB_STEP_ENTRY);
	(void)rb_write_wait_all(w, build, 1, 0);
}

void rb_write_borrow(struct rb_writer *w, uint32_t root, struct rb_span from, struct rb_span to,
		     uint32_t block)
{
	uint32_t ready = rb_write_wait(w, root, 0, 0, 0);

	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	uint32_t copy = rb_write_copy(w, from, to, block, 1);

	rb_write_dep(w, ready, 0);
	(void)rb_write_notify(w, root, 1, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	rb_write_dep(w, copy, RB_DEP_ALL);
}

void rb_write_exchange(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
		       struct rb_exchanges *x)
{
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	uint32_t t = x->count++, group = t % RB_PAIRWISE_AT_ONCE;
	struct rb_span slots = rb_span_scratch(RB_SELF, x->slots + group * RB_DEPTH, RB_DEPTH);
	uint32_t send = rb_write_send(w, peer, 0, in, peer, 1);
	struct rb_label reader = { 0 };

	rb_row_add(&x->sends, send);
	if (t >= RB_PAIRWISE_AT_ONCE) {
		rb_write_dep(w, rb_row_at(&x->sends, t - RB_PAIRWISE_AT_ONCE), RB_DEP_ALL);
		rb_write_dep(w, rb_row_at(&x->recvs, t - RB_PAIRWISE_AT_ONCE), RB_DEP_ALL);
	}
	uint32_t recv = rb_write_recv(w, peer, 0, build->in_place ? slots : out, peer, 1);

	rb_row_add(&x->recvs, recv);
	rb_write_flags(w, RB_STEP_OUT);
	if (!build->in_place)
		return;
	rb_write_dep_label(w, &reader, RB_DEPTH);
	/* The slots were those partners'. An empty block waits for none before it. */
	for (uint32_t s = group; s < t; s += RB_PAIRWISE_AT_ONCE)
		rb_write_dep(w, rb_row_at(&x->copies, s), RB_DEP_ALL);
	rb_row_add(&x->copies, rb_write_copy(w, slots, out, peer, 1));
	rb_write_label(w, &reader);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, recv, 0);
	rb_write_dep(w, send, 0);
}

void rb_write_fetch(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
		    uint32_t entry, struct rb_fetches *f)
{
	uint32_t t = f->count++, group = t % RB_PAIRWISE_AT_ONCE;
	struct rb_label reader = { 0 };
	struct rb_span out = rb_span_out(RB_SELF);
	struct rb_span slots =
		rb_span_scratch(RB_SELF, f->slots + group * RB_DEPTH_MAPPED, RB_DEPTH_MAPPED);
	/* Of the peer's blocks, ours. */
	struct rb_span from = rb_span_shifted(rb_span_in(peer), rb_left(build, build->rank, peer));
	uint32_t copy = rb_write_copy(w, from, build->in_place ? slots : out, peer, 1);

	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, entry, 0);
	if (build->in_place) {
		rb_write_dep_label(w, &reader, RB_DEPTH_MAPPED);
		/* The slots were those peers'. An empty block waits for none before it. */
		for (uint32_t s = group; s < t; s += RB_PAIRWISE_AT_ONCE)
			rb_write_dep(w, rb_row_at(&f->put_down, s), RB_DEP_ALL);
	}
	(void)rb_write_notify(w, peer, 1, peer, 1);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, copy, 0);
	uint32_t fetched = rb_write_wait(w, peer, 1, peer, 1);

	if (!build->in_place)
		return;
	rb_row_add(&f->put_down, rb_write_copy(w, slots, out, peer, 1));
	rb_write_label(w, &reader);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, copy, 0);
	rb_write_dep(w, fetched, 0);
}

static struct rb_span ring_slots(uint32_t t)
{
	return rb_span_scratch(RB_SELF, t * RB_DEPTH_RING, RB_DEPTH_RING);
}

/*
 * Block b starts at rank b+1 and travels right until it reaches rank b. In turn t rank r sends
 * block r-1-t and receives block r-2-t, adds its own part in the slot where it arrived, and sends
 * that slot in turn t+1. Each turn has slots of its own: were they shared, a turn would wait for an
 * earlier one's sends, these for the right neighbour's slots, and so on around the ring, a cycle.
 */
struct rb_ring rb_write_ring_reduce(struct rb_writer *w, const struct rb_build *build, bool put,
				    uint32_t ready, struct rb_span result)
{
	uint32_t n = build->rank_count, r = build->rank, last = n - 2;
	uint32_t right = rb_right(build, r, 1), left = rb_left(build, r, 1);
	struct rb_label reader = { 0 }; /* The last one of the slot that was received into. */
	struct rb_ring ring = { 0 };

	for (uint32_t t = 0; t <= last; t++) {
		uint32_t out = rb_left(build, r, t + 1), in = rb_left(build, out, 1);
		uint16_t channel = (uint16_t)t;
		struct rb_span slot = put ? rb_span_vector_slot(0) : ring_slots(t);
		struct rb_span before = put ? slot : ring_slots(t - 1);

		uint32_t send = rb_write_give(w, put, right, channel,
					      t == 0 ? rb_span_in(RB_SELF) : before, slot, out, 1);

		rb_write_label(w, &reader);
		if (put && ready != RB_RING_FREE)
			rb_write_dep(w, ready, 0);
		if (t == 0)
			ring.first_send = send;
		else
			rb_write_dep(w, rb_row_at(&ring.reduces, t - 1), 0);
		uint32_t recv = rb_write_take(w, put, left, channel, slot, in, 1);

		if (!put)
			rb_write_dep_label(w, &reader, RB_DEPTH_RING);
		rb_row_add(&ring.reduces, rb_write_reduce(w, t == last ? result : slot, in, 1));
		rb_write_operand(w, slot);
		rb_write_operand(w, rb_span_in(RB_SELF));
		rb_write_dep(w, recv, 0);
		if (t == last) {
			rb_write_label(w, &reader);
			rb_write_flags(w, RB_STEP_FINAL);
		}
	}
	return ring;
}

/* At `rank`, those that it and `peer` have. */
static struct rb_span staged_slots(const struct rb_build *build, uint32_t rank, uint32_t peer)
{
	uint32_t place = rb_left(build, peer, rank) - 1;

	return rb_span_scratch(rank == build->rank ? RB_SELF : rank, place * RB_DEPTH_MAPPED,
			       RB_DEPTH_MAPPED);
}

struct rb_span rb_staged_way(const struct rb_build *build, uint32_t from, uint32_t to)
{
	return rb_span_alternating(staged_slots(build, from, to), staged_slots(build, to, from));
}
