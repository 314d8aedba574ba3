/*
 * allreduce_two_shot.c -- two phases: every rank sends each other rank that one's block, reduces
 * its own of all of them in rank order, and sends the result to all. reduce_scatter_flat, then
 * allgather_flat, chunk by chunk: as few bytes as a ring sends, the least possible, in two
 * latencies. Each element is reduced by one rank, so all ranks get the same bits.
 *
 * By puts the blocks go into slots of whom they are for, and results straight into OUT. A result
 * says that its rank has read the part: so it also gives the part's slot free, here and for the
 * next instance.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define RESULT 1

/* Of our block: what comes from `peer`. */
static struct rb_span slots(const struct rb_build *build, uint32_t peer)
{
	return rb_span_scratch(RB_SELF, rb_other(build, peer) * RB_DEPTH, RB_DEPTH);
}

/* Of the peer's block: where it has what comes from us. */
static struct rb_span slots_there(const struct rb_build *build, uint32_t peer)
{
	uint32_t place = rb_left(build, build->rank, peer) - 1;

	return rb_span_scratch(peer, place * RB_DEPTH, RB_DEPTH);
}

/* Our block, of all ranks, into OUT. Returns the REDUCE. */
static uint32_t write_own(struct rb_writer *w, const struct rb_build *build, bool put)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_label reduced = { 0 };
	struct rb_row recvs = { 0 };

	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&recvs, rb_write_take(w, put, peer, PART, slots(build, peer), r, 1));
		if (!put)
			rb_write_dep_label(w, &reduced, RB_DEPTH);
	}
	uint32_t reduce = rb_write_reduce(w, rb_span_out(RB_SELF), r, 1);

	rb_write_label(w, &reduced);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(build, s));
	rb_write_dep_row(w, &recvs, 0);
	rb_write_flags(w, RB_STEP_FINAL);
	return reduce;
}

void rb_build_allreduce_two_shot(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span out = rb_span_out(RB_SELF);
	struct rb_row sends = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_IN_TURNS;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&sends, rb_write_send(w, peer, PART, rb_span_in(RB_SELF), peer, 1));
	}
	uint32_t reduce = write_own(w, build, false);

	for (uint32_t i = 1; i < n; i++) {
		(void)rb_write_send(w, rb_right(build, r, i), RESULT, out, r, 1);
		rb_write_dep(w, reduce, 0);
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_recv(w, peer, RESULT, out, peer, 1);
		rb_write_dep(w, rb_row_at(&sends, i - 1), 0); /* In place it is what is sent. */
	}
}

void rb_build_allreduce_two_shot_put(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_row results = { 0 };
	struct rb_span out = rb_span_out(RB_SELF);

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_IN_TURNS | RB_SCHEDULE_PUT;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&results, rb_write_wait(w, peer, RESULT, peer, 1));
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_put(w, peer, PART, rb_span_in(RB_SELF), slots_there(build, peer),
				   peer, 1);
		rb_write_dep(w, rb_row_at(&results, i - 1), RB_DEPTH);
	}
	uint32_t reduce = write_own(w, build, true);

	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		(void)rb_write_put(w, peer, RESULT, out, rb_span_out(peer), r, 1);
		rb_write_dep(w, reduce, 0);
	}
}

uint64_t rb_sent_allreduce_two_shot(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	uint64_t own = rb_layout_length(layout, build->rank, 1);

	return rb_bytes_without(layout, build->rank, element_bytes) +
	       (build->rank_count - 1) * own * element_bytes;
}

uint64_t rb_sent_allreduce_two_shot_put(const struct rb_layout *layout,
					const struct rb_build *build, uint32_t element_bytes)
{
	return rb_sent_allreduce_two_shot(layout, build, element_bytes);
}
