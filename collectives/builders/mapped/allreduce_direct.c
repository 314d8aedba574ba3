/*
 * allreduce_direct.c -- in mapped memory: rank r reduces block r straight out of everybody's IN and
 * stores it into everybody's OUT, chunk by chunk while it is in the cache. No bytes are sent, and
 * nothing is copied that need not be. Nobody but rank r touches block r between the two barriers,
 * so IN and OUT may be the same. The idea is the intra-node scheme of Jain et al., "Framework for
 * Scalable Intra-Node Collective Operations using Shared Memory" (SC 2018), with user buffers in
 * place of their pool.
 */
#include "collectives/builders/builders.h"

void rb_build_allreduce_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	struct rb_row entry = rb_write_entry(w, build, 0), copies = { 0 };
	uint32_t reduce = rb_write_reduce(w, rb_span_out(RB_SELF), r, 1);

	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, rb_span_in(s == r ? RB_SELF : s));
	rb_write_dep_row(w, &entry, 0);
	rb_write_flags(w, RB_STEP_FINAL);

	for (uint32_t i = 1; i < n; i++) {
		struct rb_span theirs = rb_span_out(rb_right(build, r, i));

		rb_row_add(&copies, rb_write_copy(w, rb_span_out(RB_SELF), theirs, r, 1));
		rb_write_dep(w, reduce, 0);
	}
	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_notify(w, rb_right(build, r, i), 1, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep(w, rb_row_at(&copies, i - 1), RB_DEP_ALL);
	}
	(void)rb_write_wait_all(w, build, 1, 0);
}

RB_SENDS_NOTHING(allreduce_direct)
