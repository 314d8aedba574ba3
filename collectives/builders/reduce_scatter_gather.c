/*
 * reduce_scatter_gather.c -- broadcast_scatter_allgather backwards: every rank but the root
 * reduces one block of all ranks' vectors, in rank order, and sends it to the root. The reduction
 * of large vectors of Rabenseifner, "Optimization of Collective Reduction Operations" (2004), with
 * both halves flat and chunk by chunk, so that they overlap: every rank sends and receives about
 * one vector, a chunk is two latencies on its way.
 *
 * Counted from the root, block v - 1 is that of v.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define RESULT 1

static struct rb_span slots(uint32_t k)
{
	return rb_span_scratch(RB_SELF, k * RB_DEPTH, RB_DEPTH);
}

/* The parts of every block but our own, to those that they are for, the right neighbour's first:
 * after `reduced`, lest the results wait behind them. */
static void write_parts(struct rb_writer *w, const struct rb_build *build, struct rb_row *sends,
			struct rb_label *reduced)
{
	uint32_t n = build->rank_count, v = rb_from_root(build);

	for (uint32_t i = 1; i < n; i++) {
		uint32_t u = (v + i) % n;

		if (u == 0)
			continue;
		rb_row_add(sends, rb_write_send(w, rb_right(build, build->root, u), PART,
						rb_span_in(RB_SELF), u - 1, 1));
		if (reduced != NULL)
			rb_write_dep_label(w, reduced, RB_DEPTH);
	}
}

static void write_root(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_row sends = { 0 };

	write_parts(w, build, &sends, NULL);
	for (uint32_t u = 1; u < build->rank_count; u++) {
		(void)rb_write_recv(w, rb_right(build, build->root, u), RESULT,
				    rb_span_out(RB_SELF), u - 1, 1);
		rb_write_dep(w, rb_row_at(&sends, u - 1), 0); /* In place it is what is sent. */
	}
}

static void write_other(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, own = rb_from_root(build) - 1;
	struct rb_label reduced = { 0 }, sent = { 0 };
	struct rb_row sends = { 0 }, recvs = { 0 };
	struct rb_span result = slots(n - 1);

	write_parts(w, build, &sends, &reduced);
	for (uint32_t i = 1; i < n; i++) {
		rb_row_add(&recvs,
			   rb_write_recv(w, rb_right(build, r, i), PART, slots(i - 1), own, 1));
		rb_write_dep_label(w, &reduced, RB_DEPTH);
	}
	uint32_t reduce = rb_write_reduce(w, result, own, 1);

	rb_write_label(w, &reduced);
	for (uint32_t s = 0; s < n; s++)
		rb_write_operand(w, s == r ? rb_span_in(RB_SELF) : slots(rb_other(build, s)));
	rb_write_dep_row(w, &recvs, 0);
	rb_write_dep_label(w, &sent, RB_DEPTH);
	rb_write_flags(w, RB_STEP_FINAL);
	(void)rb_write_send(w, build->root, RESULT, result, own, 1);
	rb_write_label(w, &sent);
	rb_write_dep(w, reduce, 0);
}

void rb_build_reduce_scatter_gather(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count;

	rb_writer_init(w, w->schedule, build->rank, n, rb_blocks_others(n));
	w->schedule->flags = RB_SCHEDULE_IN_TURNS;
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
	} else if (rb_from_root(build) == 0) {
		write_root(w, build);
	} else {
		write_other(w, build);
	}
}

uint64_t rb_sent_reduce_scatter_gather(const struct rb_layout *layout, const struct rb_build *build,
				       uint32_t element_bytes)
{
	/* All parts but its own, and the result instead of that. */
	return build->rank_count > 1 ? layout->count * element_bytes : 0;
}
