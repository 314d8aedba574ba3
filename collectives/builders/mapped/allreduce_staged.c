/*
 * allreduce_staged.c -- allreduce_direct for buffers that peers cannot map: through slots of mapped
 * scratch. For each block b and chunk c, rank s copies its part into a slot of its own and notifies
 * rank b; b waits for all, reduces out of their slots in rank order, and notifies all; they copy
 * the result.
 *
 * The result goes where the part of b's right neighbour, the host, was: b has just brought these
 * lines to its cache, and no slot that others have in theirs is written again. Measured on 2 ranks:
 * half to three quarters of the time that slots of b's own took.
 *
 * Two notifications a chunk are all there is, since each also says that a slot is free again. That
 * b has reduced chunk c says that the parts' slots of c may be written again; and a rank sends word
 * of its part of chunk c only after it has copied the result of chunk c - depth. So the host knows
 * by the result of chunk c that all have copied that of c - depth, and has twice as many slots for
 * this block. Of the instance before somebody may still read: so there are two sets of slots. Of
 * two ranks the host is the only one that reads the result but for b, which so reads it first.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define RESULT 1
#define DEPTH RB_DEPTH_MAPPED

/* How far right of `rank` the owner of block b is; the last one's result is hosted. */
static uint32_t distance(const struct rb_build *build, uint32_t rank, uint32_t b)
{
	return rb_left(build, b, rank);
}

static bool is_hosted(const struct rb_build *build, uint32_t rank, uint32_t b)
{
	return distance(build, rank, b) == build->rank_count - 1;
}

/* At `rank`: its part of block b. */
static struct rb_span slots(const struct rb_build *build, uint32_t rank, uint32_t b)
{
	bool twice = build->rank_count > 2 && is_hosted(build, rank, b);

	return rb_span_scratch(rank == build->rank ? RB_SELF : rank,
			       (distance(build, rank, b) - 1) * DEPTH, twice ? 2 * DEPTH : DEPTH);
}

static struct rb_span result(const struct rb_build *build, uint32_t b)
{
	return slots(build, rb_right(build, b, 1), b);
}

static void write_results(struct rb_writer *w, const struct rb_build *build, uint32_t after)
{
	for (uint32_t i = 1; i < build->rank_count; i++) {
		(void)rb_write_notify(w, rb_right(build, build->rank, i), RESULT, build->rank, 1);
		rb_write_dep(w, after, 0);
	}
}

/* As owner of a block. */
static void write_owned(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row parts = { 0 };
	struct rb_label copied = { 0 };

	for (uint32_t i = 1; i < n; i++)
		rb_row_add(&parts,
			   rb_write_ahead(w, rb_write_wait(w, rb_right(build, r, i), PART, r, 1)));
	uint32_t reduce = rb_write_reduce(w, result(build, r), r, 1);

	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(build, s, r));
	rb_write_dep_row(w, &parts, 0);
	rb_write_flags(w, RB_STEP_FINAL);
	if (n > 2) {
		rb_write_dep_label(w, &copied, DEPTH);
		write_results(w, build, reduce);
	}
	uint32_t copy = rb_write_copy(w, result(build, r), rb_span_out(RB_SELF), r, 1);

	rb_write_dep(w, reduce, 0);
	if (n > 2)
		rb_write_label(w, &copied);
	else
		write_results(w, build, copy);
}

/* As one of those who bring the owner of block b their parts. */
static void write_part(struct rb_writer *w, const struct rb_build *build, uint32_t b)
{
	bool alone = build->rank_count == 2;
	struct rb_label reduced = { 0 }, copied = { 0 };
	uint32_t part = rb_write_ahead(
		w, rb_write_copy(w, rb_span_in(RB_SELF), slots(build, build->rank, b), b, 1));

	rb_write_dep_label(w, alone ? &copied : &reduced, DEPTH);
	(void)rb_write_ahead(w, rb_write_notify(w, b, PART, b, 1));
	rb_write_dep(w, part, 0);
	if (!alone)
		rb_write_dep_label(w, &copied, DEPTH);
	uint32_t there = rb_write_wait(w, b, RESULT, b, 1);

	if (!alone)
		rb_write_label(w, &reduced);
	(void)rb_write_copy(w, result(build, b), rb_span_out(RB_SELF), b, 1);
	rb_write_label(w, &copied);
	rb_write_dep(w, there, 0);
}

void rb_build_allreduce_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	w->schedule->scratch_copies = n > 2 ? 2 : 1;
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	for (uint32_t i = 1; i < n; i++)
		write_part(w, build, rb_right(build, r, i));
	write_owned(w, build);
}

RB_SENDS_NOTHING(allreduce_staged)
