/*
 * allreduce_staged.c -- allreduce_direct for buffers that peers cannot map: through slots of mapped
 * scratch. For each block b and chunk c, rank s copies its part into a slot of its own and notifies
 * rank b; b waits for all, reduces out of their slots in rank order into a slot of its own, and
 * notifies all; they copy the result out of it.
 *
 * Two notifications a chunk are all there is, since each also says that a slot is free again. That
 * b has reduced chunk c says that the parts' slots of c may be written again; and a rank sends word
 * of its part of chunk c only after it has copied the result of chunk c - depth. Across instances
 * the same holds: a rank ends when it has copied every result, and b overwrites a result only after
 * everybody's first word in the next instance.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define RESULT 1

/* At rank r: its part of block b, and for b == r the result. */
static struct rb_span slots(uint32_t rank, uint32_t b)
{
	return rb_span_scratch(rank, b * RB_DEPTH_MAPPED, RB_DEPTH_MAPPED);
}

/* As owner of a block. */
static void write_owned(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row parts = { 0 };
	struct rb_label copied = { 0 };

	for (uint32_t i = 1; i < n; i++)
		rb_row_add(&parts, rb_write_wait(w, rb_right(build, r, i), PART, r, 1));
	uint32_t reduce = rb_write_reduce(w, slots(RB_SELF, r), r, 1);

	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(s, r));
	rb_write_dep_row(w, &parts, 0);
	rb_write_dep_label(w, &copied, RB_DEPTH_MAPPED);
	rb_write_flags(w, RB_STEP_FINAL);
	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_notify(w, rb_right(build, r, i), RESULT, r, 1);
		rb_write_dep(w, reduce, 0);
	}
	(void)rb_write_copy(w, slots(RB_SELF, r), rb_span_out(RB_SELF), r, 1);
	rb_write_label(w, &copied);
	rb_write_dep(w, reduce, 0);
}

/* As one of those who bring the owner of block b their parts. */
static void write_part(struct rb_writer *w, uint32_t b)
{
	struct rb_label reduced = { 0 }, copied = { 0 };
	uint32_t part = rb_write_copy(w, rb_span_in(RB_SELF), slots(RB_SELF, b), b, 1);

	rb_write_dep_label(w, &reduced, RB_DEPTH_MAPPED);
	(void)rb_write_notify(w, b, PART, b, 1);
	rb_write_dep(w, part, 0);
	rb_write_dep_label(w, &copied, RB_DEPTH_MAPPED);
	uint32_t result = rb_write_wait(w, b, RESULT, b, 1);

	rb_write_label(w, &reduced);
	(void)rb_write_copy(w, slots(b, b), rb_span_out(RB_SELF), b, 1);
	rb_write_label(w, &copied);
	rb_write_dep(w, result, 0);
}

void rb_build_allreduce_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	for (uint32_t i = 1; i < n; i++)
		write_part(w, rb_right(build, r, i));
	write_owned(w, build);
}

RB_SENDS_NOTHING(allreduce_staged)
