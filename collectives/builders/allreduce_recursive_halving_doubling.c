/*
 * allreduce_recursive_halving_doubling.c -- halving.h among all ranks: as few bytes as a ring
 * sends, in 2 log2(n) phases.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/halving.h"

void rb_build_allreduce_recursive_halving_doubling(struct rb_writer *w,
						   const struct rb_build *build)
{
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_halving h;

	rb_halving_init(&h, r, n, 0);
	struct rb_range all = h.have[0];

	rb_writer_init(w, w->schedule, r, n, all.blocks);
	if (n == 1) {
		(void)rb_write_copy(w, in, out, 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (rb_halving_is_folded(&h)) {
		uint32_t send = rb_write_send(w, r - 1, RB_HALVING_FOLD, in, 0, all.blocks);

		(void)rb_write_recv(w, r - 1, RB_HALVING_RESULT, out, 0, all.blocks);
		rb_write_dep(w, send, 0); /* In place OUT is what is being sent. */
		return;
	}
	for (uint32_t k = 0; k < h.rounds; k++)
		h.peer[k] = rb_halving_meets(&h, k);
	if (rb_halving_folds(&h))
		rb_halving_reduce(w, &h, r + 1, RB_HALVING_FOLD, all, in, true);
	rb_halving_rounds(w, &h, 0);
	rb_halving_gather(w, &h);
	if (rb_halving_folds(&h)) {
		(void)rb_write_send(w, r + 1, RB_HALVING_RESULT, out, 0, all.blocks);
		rb_halving_after_results(w, &h, 0, all);
	}
}

uint64_t rb_sent_allreduce_recursive_halving_doubling(const struct rb_layout *layout,
						      const struct rb_build *build,
						      uint32_t element_bytes)
{
	struct rb_halving h;

	rb_halving_init(&h, build->rank, build->rank_count, 0);
	return rb_halving_sent(&h, layout) * element_bytes;
}
