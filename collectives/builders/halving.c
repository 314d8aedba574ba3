/* halving.c -- see halving.h. */
#include "collectives/builders/halving.h"

void rb_halving_init(struct rb_halving *h, uint32_t member, uint32_t count, uint32_t first)
{
	uint32_t power = rb_power_below(count);

	*h = (struct rb_halving) { .member = member, .fold = count - power };
	h->rounds = (uint32_t)__builtin_ctz(power);
	h->have[0] = (struct rb_range) { first, power };
}

/* Its number among those that take part in the rounds. */
static uint32_t number_of(const struct rb_halving *h)
{
	return h->member < 2 * h->fold ? h->member / 2 : h->member - h->fold;
}

uint32_t rb_halving_meets(const struct rb_halving *h, uint32_t k)
{
	uint32_t other = number_of(h) ^ (1u << k);

	return other < h->fold ? 2 * other : other + h->fold;
}

bool rb_halving_is_lower(const struct rb_halving *h, uint32_t k)
{
	return (number_of(h) >> k & 1) == 0;
}

struct rb_range rb_halving_half(const struct rb_halving *h, uint32_t k, bool other)
{
	struct rb_range have = h->have[k];
	bool upper = rb_halving_is_lower(h, k) == other;

	return (struct rb_range) { have.block + (upper ? have.blocks / 2 : 0), have.blocks / 2 };
}

void rb_halving_after(struct rb_writer *w, uint32_t step, struct rb_range then, struct rb_range now)
{
	rb_write_dep(w, step, then.block >= now.block ? 0 : RB_DEP_ALL);
}

void rb_halving_reduce(struct rb_writer *w, struct rb_halving *h, uint32_t peer, uint16_t channel,
		       struct rb_range range, struct rb_span have, bool lower)
{
	struct rb_span slot = rb_span_scratch(RB_SELF, h->slots, RB_DEPTH);
	struct rb_label reader = { 0 };
	uint32_t recv = rb_write_recv(w, peer, channel, slot, range.block, range.blocks);

	h->slots += RB_DEPTH;
	rb_write_dep_label(w, &reader, RB_DEPTH);
	h->reduce = rb_write_reduce(w, rb_span_out(RB_SELF), range.block, range.blocks);
	h->reduced = true;
	rb_write_label(w, &reader);
	rb_write_operand(w, lower ? have : slot);
	rb_write_operand(w, lower ? slot : have);
	rb_write_dep(w, recv, 0);
}

void rb_halving_rounds(struct rb_writer *w, struct rb_halving *h, uint32_t k)
{
	for (; k < h->rounds; k++) {
		bool reduced = h->reduced;
		struct rb_span have = reduced ? rb_span_out(RB_SELF) : rb_span_in(RB_SELF);
		struct rb_range keep = rb_halving_half(h, k, false);
		struct rb_range give = rb_halving_half(h, k, true);
		uint32_t before = h->reduce;

		h->sends[k] =
			rb_write_send(w, h->peer[k], (uint16_t)k, have, give.block, give.blocks);
		if (reduced)
			rb_halving_after(w, before, h->have[k], give);
		rb_halving_reduce(w, h, h->peer[k], (uint16_t)k, keep, have,
				  rb_halving_is_lower(h, k));
		if (reduced)
			rb_halving_after(w, before, h->have[k], keep);
		if (k + 1 == h->rounds)
			rb_write_flags(w, RB_STEP_FINAL);
		h->have[k + 1] = keep;
	}
}

void rb_halving_after_results(struct rb_writer *w, const struct rb_halving *h, uint32_t k,
			      struct rb_range range)
{
	rb_halving_after(w, h->reduce, h->have[h->rounds], range);
	for (uint32_t i = k; i < h->rounds; i++)
		rb_halving_after(w, h->recvs[i], rb_halving_half(h, i, true), range);
}

void rb_halving_gather(struct rb_writer *w, struct rb_halving *h)
{
	struct rb_span out = rb_span_out(RB_SELF);

	for (uint32_t k = h->rounds; k-- > 0;) {
		struct rb_range have = h->have[k + 1], get = rb_halving_half(h, k, true);
		uint16_t channel = (uint16_t)(RB_HALVING_GATHER + k);

		(void)rb_write_send(w, h->peer[k], channel, out, have.block, have.blocks);
		rb_halving_after_results(w, h, k + 1, have);
		h->recvs[k] = rb_write_recv(w, h->peer[k], channel, out, get.block, get.blocks);
		/* That half of OUT (in place, of IN) was sent from here. */
		rb_write_dep(w, h->sends[k], 0);
	}
}

uint64_t rb_halving_sent(struct rb_halving *h, const struct rb_layout *layout)
{
	uint64_t all = rb_layout_length(layout, h->have[0].block, h->have[0].blocks);
	uint64_t elements = rb_halving_folds(h) ? all : 0;

	if (rb_halving_is_folded(h))
		return all;
	for (uint32_t k = 0; k < h->rounds; k++) { /* Both halves: one to reduce, one reduced. */
		elements += rb_layout_length(layout, h->have[k].block, h->have[k].blocks);
		h->have[k + 1] = rb_halving_half(h, k, false);
	}
	return elements;
}
