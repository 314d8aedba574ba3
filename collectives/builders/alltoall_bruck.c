/*
 * alltoall_bruck.c -- Bruck et al., "Efficient Algorithms for All-to-All Communications in
 * Multiport Message-Passing Systems" (1997). What is for the rank i places to the right travels the
 * bits of i: in round k all that still has bit k to go moves 2^k places, in one message. log2(n)
 * messages instead of n, half of the vector each: for small blocks.
 *
 * Item i of a rank is what goes, or has come, i places. Round k has a vector slot: first the items
 * that leave, side by side, then those that come in their stead.
 */
#include "collectives/builders/builders.h"

static bool moves(uint32_t i, uint32_t k)
{
	return i >> k & 1;
}

/* How many of the items below i move in round k: also the place of item i among them. */
static uint32_t movers_below(uint32_t i, uint32_t k)
{
	uint32_t low = (uint32_t)(i & (((uint64_t)2 << k) - 1)), bit = 1u << k;

	return (uint32_t)((uint64_t)i >> (k + 1) << k) + (low > bit ? low - bit : 0);
}

struct bruck {
	uint32_t n, r;
	uint32_t recvs[32];      /* Per round. */
	struct rb_row packs[32]; /* Per round: of the items that move, in rising order. */
};

/* Where item i has come to in round k: a block of that round's vector slot. */
static uint32_t arrived(const struct bruck *b, uint32_t i, uint32_t k)
{
	return movers_below(b->n, k) + movers_below(i, k);
}

static struct rb_span at_block(const struct bruck *b, struct rb_span span, uint32_t block,
			       uint32_t step_block)
{
	return rb_span_shifted(span, (block + b->n - step_block) % b->n);
}

/* After the message of round k has come as far as item i in it. */
static void after_arrival(struct rb_writer *w, const struct bruck *b, uint32_t i, uint32_t k)
{
	rb_write_dep(w, b->recvs[k], movers_below(i, k) == 0 ? 0 : RB_DEP_ALL);
}

static void write_pack(struct rb_writer *w, struct bruck *b, uint32_t i, uint32_t k)
{
	uint32_t place = movers_below(i, k), lower = i & ((1u << k) - 1);
	struct rb_span to = rb_span_vector_slot(k);

	if (lower == 0) {
		struct rb_span in = rb_span_in(RB_SELF);

		in = at_block(b, in, (b->r + i) % b->n, place);
		rb_row_add(&b->packs[k], rb_write_copy(w, in, to, place, 1));
		return;
	}
	uint32_t before = 31 - (uint32_t)__builtin_clz(lower);

	struct rb_span from =
		at_block(b, rb_span_vector_slot(before), arrived(b, i, before), place);

	rb_row_add(&b->packs[k], rb_write_copy(w, from, to, place, 1));
	after_arrival(w, b, i, before);
}

static void write_round(struct rb_writer *w, struct bruck *b, const struct rb_build *build,
			uint32_t k)
{
	uint32_t items = movers_below(b->n, k);

	for (uint32_t i = 0; i < b->n; i++)
		if (moves(i, k))
			write_pack(w, b, i, k);
	(void)rb_write_send(w, rb_right(build, b->r, 1u << k), (uint16_t)k, rb_span_vector_slot(k),
			    0, items);
	/* An item that lies further back is in a later chunk of the message. */
	rb_write_dep_row(w, &b->packs[k], 0);
	b->recvs[k] = rb_write_recv(w, rb_left(build, b->r, 1u << k), (uint16_t)k,
				    rb_span_vector_slot(k), items, items);
}

/* Item i has gone all its way: it is from the rank i places to the left. */
static void write_result(struct rb_writer *w, const struct bruck *b, const struct rb_build *build,
			 uint32_t i)
{
	uint32_t k = 31 - (uint32_t)__builtin_clz(i), from = rb_left(build, b->r, i);
	uint32_t back = b->n - i, lowest = (uint32_t)__builtin_ctz(back);

	(void)rb_write_copy(w, at_block(b, rb_span_vector_slot(k), arrived(b, i, k), from),
			    rb_span_out(RB_SELF), from, 1);
	after_arrival(w, b, i, k);
	if (build->in_place) /* Item n - i was there, and has been packed. */
		rb_write_dep(w, rb_row_at(&b->packs[lowest], movers_below(back, lowest)), 0);
}

void rb_build_alltoall_bruck(struct rb_writer *w, const struct rb_build *build)
{
	struct bruck b = { .n = build->rank_count, .r = build->rank };

	rb_writer_init(w, w->schedule, b.r, b.n, b.n);
	for (uint32_t k = 0; k < 31 && 1u << k < b.n; k++)
		write_round(w, &b, build, k);
	for (uint32_t i = 1; i < b.n; i++)
		write_result(w, &b, build, i);
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), b.r, 1);
}

uint64_t rb_sent_alltoall_bruck(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	uint64_t items = 0;

	for (uint32_t k = 0; k < 31 && 1u << k < build->rank_count; k++)
		items += movers_below(build->rank_count, k);
	return items * rb_layout_length(layout, 0, 1) * element_bytes;
}
