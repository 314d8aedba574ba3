/*
 * allreduce_recursive_halving_doubling.c -- Rabenseifner, "Optimization of Collective Reduction
 * Operations" (2004). In round k, pairs at distance 2^k halve the range that both have: each sends
 * one half and reduces the other, the lower ranks' operand first. Then the same pairs, the last
 * first, exchange the results. As few bytes as a ring sends, in 2 log2(n) phases. Each element's
 * last reduction is one rank's, so that all get the same bits.
 *
 * When n is not a power of two, the first ranks fold in pairs, as in allreduce_recursive_doubling.
 */
#include "collectives/builders/builders.h"

#define CHANNEL_FOLD 64
#define CHANNEL_RESULT 65
#define CHANNEL_GATHER 32
#define ROUNDS_MAX 32

struct range { /* Of blocks. */
	uint32_t block, blocks;
};

struct halving {
	uint32_t group, rounds, fold;
	struct range have[ROUNDS_MAX]; /* Before each round. */
};

static void halving_init(struct halving *h, const struct rb_build *build)
{
	uint32_t power = rb_power_below(build->rank_count), r = build->rank;

	h->fold = build->rank_count - power;
	h->rounds = (uint32_t)__builtin_ctz(power);
	h->group = r < 2 * h->fold ? r / 2 : r - h->fold;
	h->have[0] = (struct range) { 0, power };
}

/* What stays (or, `other`, what goes) in round k: the lower half where bit k is 0. */
static struct range half(const struct halving *h, uint32_t k, bool other)
{
	struct range have = h->have[k];
	bool upper = ((h->group >> k & 1) != 0) != other;

	return (struct range) { have.block + (upper ? have.blocks / 2 : 0), have.blocks / 2 };
}

static uint32_t peer_of(const struct halving *h, uint32_t k)
{
	uint32_t other = h->group ^ (1u << k);

	return other < h->fold ? 2 * other : other + h->fold;
}

static struct rb_span slots(uint32_t round)
{
	return rb_span_scratch(RB_SELF, round * RB_DEPTH, RB_DEPTH);
}

static bool is_folded(const struct halving *h, uint32_t rank)
{
	return rank < 2 * h->fold && rank % 2 == 1;
}

/*
 * The step added last works on `now`, of which, or around which, `step` wrote. What begins later in
 * `now` is in a later chunk of it; what begins earlier may reach back from any chunk to its last.
 */
static void after(struct rb_writer *w, uint32_t step, struct range wrote, struct range now)
{
	rb_write_dep(w, step, wrote.block >= now.block ? 0 : RB_DEP_ALL);
}

/* RECV and REDUCE of `range` with what is here in `have`. Returns the latter. */
static uint32_t write_reduce(struct rb_writer *w, uint32_t peer, uint16_t channel, uint32_t round,
			     struct range range, struct rb_span have, bool lower)
{
	struct rb_span slot = slots(round);
	struct rb_label reader = { 0 };
	uint32_t recv = rb_write_recv(w, peer, channel, slot, range.block, range.blocks);

	rb_write_dep_label(w, &reader, RB_DEPTH);
	uint32_t reduce = rb_write_reduce(w, rb_span_out(RB_SELF), range.block, range.blocks);

	rb_write_label(w, &reader);
	rb_write_operand(w, lower ? have : slot);
	rb_write_operand(w, lower ? slot : have);
	rb_write_dep(w, recv, 0);
	return reduce;
}

struct progress {
	uint32_t reduce; /* The last one. */
	bool reduced;
	uint32_t sends[ROUNDS_MAX], recvs[ROUNDS_MAX]; /* Of halving; of gathering. */
};

static void write_halving(struct rb_writer *w, struct halving *h, struct progress *p)
{
	for (uint32_t k = 0; k < h->rounds; k++) {
		struct rb_span have = p->reduced ? rb_span_out(RB_SELF) : rb_span_in(RB_SELF);
		struct range keep = half(h, k, false), give = half(h, k, true);
		uint32_t peer = peer_of(h, k), before = p->reduce;

		p->sends[k] = rb_write_send(w, peer, (uint16_t)k, have, give.block, give.blocks);
		if (p->reduced)
			after(w, before, h->have[k], give);
		p->reduce = write_reduce(w, peer, (uint16_t)k, k + 1, keep, have,
					 (h->group >> k & 1) == 0);
		if (p->reduced)
			after(w, before, h->have[k], keep);
		if (k + 1 == h->rounds)
			rb_write_flags(w, RB_STEP_FINAL);
		h->have[k + 1] = keep;
		p->reduced = true;
	}
}

/* The step added last needs the results of `range`: our own block, and what came in rounds from
 * k. */
static void after_results(struct rb_writer *w, const struct halving *h, const struct progress *p,
			  uint32_t k, struct range range)
{
	after(w, p->reduce, h->have[h->rounds], range);
	for (uint32_t i = k; i < h->rounds; i++)
		after(w, p->recvs[i], half(h, i, true), range);
}

static void write_gathering(struct rb_writer *w, const struct halving *h, struct progress *p)
{
	struct rb_span out = rb_span_out(RB_SELF);

	for (uint32_t k = h->rounds; k-- > 0;) {
		struct range have = h->have[k + 1], get = half(h, k, true);
		uint16_t channel = (uint16_t)(CHANNEL_GATHER + k);
		uint32_t peer = peer_of(h, k);

		(void)rb_write_send(w, peer, channel, out, have.block, have.blocks);
		after_results(w, h, p, k + 1, have);
		p->recvs[k] = rb_write_recv(w, peer, channel, out, get.block, get.blocks);
		/* That half of OUT (in place, of IN) was sent from here. */
		rb_write_dep(w, p->sends[k], 0);
	}
}

void rb_build_allreduce_recursive_halving_doubling(struct rb_writer *w,
						   const struct rb_build *build)
{
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	uint32_t n = build->rank_count, r = build->rank;
	struct progress p = { .reduced = false };
	struct halving h = { 0 };

	halving_init(&h, build);
	struct range all = h.have[0];

	rb_writer_init(w, w->schedule, r, n, all.blocks);
	if (n == 1) {
		(void)rb_write_copy(w, in, out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (is_folded(&h, r)) {
		uint32_t send = rb_write_send(w, r - 1, CHANNEL_FOLD, in, 0, all.blocks);

		(void)rb_write_recv(w, r - 1, CHANNEL_RESULT, out, 0, all.blocks);
		rb_write_dep(w, send, 0); /* In place OUT is what is being sent. */
		return;
	}
	if (r < 2 * h.fold) {
		p.reduce = write_reduce(w, r + 1, CHANNEL_FOLD, 0, all, in, true);
		p.reduced = true;
	}
	write_halving(w, &h, &p);
	write_gathering(w, &h, &p);
	if (r < 2 * h.fold) {
		(void)rb_write_send(w, r + 1, CHANNEL_RESULT, out, 0, all.blocks);
		after_results(w, &h, &p, 0, all);
	}
}

uint64_t rb_sent_allreduce_recursive_halving_doubling(const struct rb_layout *layout,
						      const struct rb_build *build,
						      uint32_t element_bytes)
{
	struct halving h = { 0 };
	uint64_t elements = 0;

	halving_init(&h, build);
	if (is_folded(&h, build->rank))
		return layout->count * element_bytes;
	if (build->rank < 2 * h.fold)
		elements = layout->count;
	for (uint32_t k = 0; k < h.rounds; k++) { /* Both halves: one to reduce, one reduced. */
		elements += rb_layout_length(layout, h.have[k].block, h.have[k].blocks);
		h.have[k + 1] = half(&h, k, false);
	}
	return elements * element_bytes;
}
