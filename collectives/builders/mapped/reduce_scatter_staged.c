/*
 * reduce_scatter_staged.c -- reduce_scatter_direct for buffers that peers cannot map: every rank
 * copies its part of another's block, chunk by chunk, into slots of mapped scratch, out of which
 * that one reduces all parts in rank order.
 *
 * The slots of two ranks alternate: a rank's next lap goes where it has read the other's last one,
 * so that it is free.
 */
#include "collectives/builders/builders.h"

void rb_build_reduce_scatter_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_label reduced = { 0 };
	struct rb_row parts = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t b = rb_right(build, r, i);
		uint32_t part = rb_write_ahead(
			w, rb_write_copy(w, rb_span_in(RB_SELF), rb_staged_way(build, r, b), b, 1));

		rb_write_dep_label(w, &reduced, RB_DEPTH_MAPPED);
		(void)rb_write_ahead(w, rb_write_notify(w, b, 0, b, 1));
		rb_write_dep(w, part, 0);
	}
	for (uint32_t i = 1; i < n; i++)
		rb_row_add(&parts,
			   rb_write_ahead(w, rb_write_wait(w, rb_right(build, r, i), 0, r, 1)));
	(void)rb_write_reduce(w, rb_span_part(rb_span_out(RB_SELF)), r, 1);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : rb_staged_way(build, s, r));
	rb_write_label(w, &reduced);
	rb_write_dep_row(w, &parts, 0);
	rb_write_flags(w, RB_STEP_FINAL);
}

RB_SENDS_NOTHING(reduce_scatter_staged)
