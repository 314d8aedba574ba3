/*
 * allreduce_recursive_doubling.c -- as in Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005). In round k, pairs at distance 2^k exchange
 * what they have and both reduce it, the lower ranks' operand first, so that all get the same bits.
 * When n is not a power of two, the first ranks fold in pairs: odd ones hand their vector to the
 * even one on their left and get the result from it.
 */
#include "collectives/builders/builders.h"

#define CHANNEL_FOLD 32
#define CHANNEL_RESULT 33

/* Slots: RB_DEPTH for what comes in each round (the fold is round 0), and for what it gives. */
static struct rb_span slots(uint32_t round, bool result)
{
	return rb_span_scratch(RB_SELF, (2 * round + result) * RB_DEPTH, RB_DEPTH);
}

static void build_folded(struct rb_writer *w, uint32_t even)
{
	uint32_t send = rb_write_send(w, even, CHANNEL_FOLD, rb_span_in(RB_SELF), 0, 1);

	(void)rb_write_recv(w, even, CHANNEL_RESULT, rb_span_out(RB_SELF), 0, 1);
	rb_write_dep(w, send, 0); /* In place OUT is what is being sent. */
}

struct partial { /* What a rank has so far: where, and which step wrote it. */
	struct rb_span span;
	uint32_t reduce;
	bool scratch;
	struct rb_row sends_in;                 /* The step that sends IN itself, if one does. */
	struct rb_label next_send, next_reduce; /* The slot's readers in the next round. */
};

/* Receives a chunk and reduces it with `have`, which is sent too if they exchange. */
static void write_round(struct rb_writer *w, struct partial *have, uint32_t round, uint32_t peer,
			uint16_t channel, bool lower, bool exchange, bool last)
{
	struct rb_span to = last ? rb_span_out(RB_SELF) : slots(round, true);
	struct rb_label received = { 0 };

	if (exchange) {
		uint32_t send = rb_write_send(w, peer, channel, have->span, 0, 1);

		rb_write_label(w, &have->next_send);
		if (have->scratch)
			rb_write_dep(w, have->reduce, 0);
		else
			rb_row_add(&have->sends_in, send);
	}
	uint32_t recv = rb_write_recv(w, peer, channel, slots(round, false), 0, 1);

	rb_write_dep_label(w, &received, RB_DEPTH);
	uint32_t reduce = rb_write_reduce(w, to, 0, 1);

	rb_write_label(w, &received);
	rb_write_label(w, &have->next_reduce);
	rb_write_operand(w, lower ? have->span : slots(round, false));
	rb_write_operand(w, lower ? slots(round, false) : have->span);
	rb_write_dep(w, recv, 0);
	if (have->scratch)
		rb_write_dep(w, have->reduce, 0);
	if (last) {
		rb_write_flags(w, RB_STEP_FINAL);
		rb_write_dep_row(w, &have->sends_in, 0); /* In place IN is OUT. */
	} else {
		rb_write_dep_label(w, &have->next_send, RB_DEPTH);
		rb_write_dep_label(w, &have->next_reduce, RB_DEPTH);
	}
	have->span = to;
	have->reduce = reduce;
	have->scratch = true;
}

void rb_build_allreduce_recursive_doubling(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, power = rb_power_below(n),
		 fold = n - power;
	struct partial have = { .span = rb_span_in(RB_SELF) };

	rb_writer_init(w, w->schedule, r, n, 1);
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (r < 2 * fold && r % 2 == 1) {
		build_folded(w, r - 1);
		return;
	}
	if (r < 2 * fold)
		write_round(w, &have, 0, r + 1, CHANNEL_FOLD, true, false, false);
	uint32_t group = r < 2 * fold ? r / 2 : r - fold;

	for (uint32_t k = 0; 1u << k < power; k++) {
		uint32_t other = group ^ (1u << k);
		uint32_t peer = other < fold ? 2 * other : other + fold;

		write_round(w, &have, k + 1, peer, (uint16_t)k, group < other, true,
			    2u << k == power);
	}
	if (r < 2 * fold) {
		(void)rb_write_send(w, r + 1, CHANNEL_RESULT, rb_span_out(RB_SELF), 0, 1);
		rb_write_dep(w, have.reduce, 0);
	}
}

uint64_t rb_sent_allreduce_recursive_doubling(const struct rb_layout *layout,
					      const struct rb_build *build, uint32_t element_bytes)
{
	uint32_t power = rb_power_below(build->rank_count), fold = build->rank_count - power;
	uint32_t times = (uint32_t)__builtin_ctz(power);

	if (build->rank < 2 * fold)
		times = build->rank % 2 == 1 ? 1 : times + 1;
	return times * layout->count * element_bytes;
}
