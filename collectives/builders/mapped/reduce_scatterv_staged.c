/*
 * reduce_scatterv_staged.c -- reduce_scatter_staged of uneven blocks: slots do not alternate, as a
 * rank that reads little would write over what is still to be read. The owner's word back, once a
 * chunk, says that the parts' slots are free.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define FREE 1

static struct rb_span slots(uint32_t rank, uint32_t b)
{
	return rb_span_scratch(rank, b * RB_DEPTH_MAPPED, RB_DEPTH_MAPPED);
}

void rb_build_reduce_scatterv_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row parts = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t b = rb_right(build, r, i);
		uint32_t part = rb_write_ahead(
			w, rb_write_copy(w, rb_span_in(RB_SELF), slots(RB_SELF, b), b, 1));
		struct rb_label freed = { 0 };

		rb_write_dep_label(w, &freed, RB_DEPTH_MAPPED);
		(void)rb_write_ahead(w, rb_write_notify(w, b, PART, b, 1));
		rb_write_dep(w, part, 0);
		(void)rb_write_ahead(w, rb_write_wait(w, b, FREE, b, 1));
		rb_write_label(w, &freed);
	}
	for (uint32_t i = 1; i < n; i++)
		rb_row_add(&parts,
			   rb_write_ahead(w, rb_write_wait(w, rb_right(build, r, i), PART, r, 1)));
	uint32_t reduce = rb_write_reduce(w, rb_span_part(rb_span_out(RB_SELF)), r, 1);

	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(s, r));
	rb_write_dep_row(w, &parts, 0);
	rb_write_flags(w, RB_STEP_FINAL);
	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_ahead(w, rb_write_notify(w, rb_right(build, r, i), FREE, r, 1));
		rb_write_dep(w, reduce, 0);
	}
}

RB_SENDS_NOTHING(reduce_scatterv_staged)
