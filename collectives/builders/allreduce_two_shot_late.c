/*
 * allreduce_two_shot_late.c -- two_shot for when one rank, the build's root, comes late: it has no
 * block to reduce, so the others scatter and reduce all but its input while it is awaited. Then it
 * sends each of them a part and gets a result back, and they tell each other theirs: every rank
 * sends and receives about one vector, where it would be two, chunk by chunk in two latencies. The
 * idea is StragglAR's (Devraj et al., arXiv 2505.23523), which pairs the late rank with one other
 * in each of n + log2 n - 2 rounds; here it feeds all of them in turns.
 *
 * The order of operands does not depend on who is late: ranks are reduced in groups of four, the
 * results of four groups together, and so on, each time in rank order. So the same bits come out
 * whoever was late; and besides the late rank's own input only the groups that it is in are left to
 * reduce when it comes. What these are reduced of stays whole until then, in block slots.
 *
 * Counted from the late rank, block v - 1 is that of v.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define RESULT 1
#define GROUP 4

struct tree {
	struct rb_writer *w;
	const struct rb_build *build;
	uint32_t own; /* Our block. */
	uint32_t slots, block_slots;
};

struct operand {
	struct rb_span span;
	uint32_t step; /* That writes it. */
	bool written;
};

static bool has_late(const struct tree *t, uint32_t first, uint32_t ranks)
{
	return t->build->root - first < ranks;
}

/* Where the input of one rank, or the reduction of a group, lies until `reader`, a REDUCE. Whole,
 * if that waits for the late rank and this does not. */
static struct rb_span place(struct tree *t, bool whole)
{
	struct rb_span span = whole ? rb_span_block_slot(t->block_slots)
				    : rb_span_scratch(RB_SELF, t->slots, RB_DEPTH);

	if (whole)
		t->block_slots++;
	else
		t->slots += RB_DEPTH;
	return span;
}

static struct operand write_leaf(struct tree *t, uint32_t rank, bool whole, struct rb_label *reader)
{
	struct operand leaf = { .span = rb_span_in(RB_SELF) };

	if (rank == t->build->rank)
		return leaf;
	leaf.span = place(t, whole);
	leaf.step = rb_write_recv(t->w, rank, PART, leaf.span, t->own, 1);
	leaf.written = true;
	if (!whole)
		rb_write_dep_label(t->w, reader, RB_DEPTH);
	return leaf;
}

/* The ranks from `first` on, at most `ranks` of them, which is a power of GROUP. */
static struct operand write_group(struct tree *t, uint32_t first, uint64_t ranks, bool late_reader,
				  struct rb_label *reader)
{
	bool late = has_late(t, first, (uint32_t)ranks), whole = late_reader && !late;
	struct operand items[GROUP], result = { .written = true };
	struct rb_label reduced = { 0 };
	uint32_t n = t->build->rank_count, count = 0;

	if (ranks == 1)
		return write_leaf(t, first, whole, reader);
	if (n - first <= ranks / GROUP) /* A group of one. */
		return write_group(t, first, ranks / GROUP, late_reader, reader);
	for (uint64_t at = first; count < GROUP && at < n; at += ranks / GROUP)
		items[count++] = write_group(t, (uint32_t)at, ranks / GROUP, late, &reduced);
	result.span = reader != NULL ? place(t, whole) : rb_span_out(RB_SELF);
	result.step = rb_write_reduce(t->w, result.span, t->own, 1);
	rb_write_label(t->w, &reduced);
	for (uint32_t i = 0; i < count; i++)
		rb_write_operand(t->w, items[i].span);
	for (uint32_t i = 0; i < count; i++)
		if (items[i].written)
			rb_write_dep(t->w, items[i].step, 0);
	if (reader == NULL)
		rb_write_flags(t->w, RB_STEP_FINAL);
	else if (!whole)
		rb_write_dep_label(t->w, reader, RB_DEPTH);
	return result;
}

/* The parts of all blocks but our own, to those that reduce them, the right neighbour's first. */
static void write_parts(struct rb_writer *w, const struct rb_build *build, struct rb_row *sends)
{
	uint32_t n = build->rank_count, v = rb_from_root(build);

	for (uint32_t i = 1; i < n; i++) {
		uint32_t u = (v + i) % n;

		if (u != 0)
			rb_row_add(sends, rb_write_send(w, rb_right(build, build->root, u), PART,
							rb_span_in(RB_SELF), u - 1, 1));
	}
}

/* The results of all blocks but our own, each after our part of it has left: in place they are the
 * same memory. */
static void write_results(struct rb_writer *w, const struct rb_build *build,
			  const struct rb_row *sends)
{
	uint32_t n = build->rank_count, v = rb_from_root(build), sent = 0;

	for (uint32_t i = 1; i < n; i++) {
		uint32_t u = (v + i) % n;

		if (u == 0)
			continue;
		(void)rb_write_recv(w, rb_right(build, build->root, u), RESULT,
				    rb_span_out(RB_SELF), u - 1, 1);
		rb_write_dep(w, rb_row_at(sends, sent++), 0);
	}
}

static void write_other(struct rb_writer *w, const struct rb_build *build, struct rb_row *sends)
{
	struct tree t = { .w = w, .build = build, .own = rb_from_root(build) - 1 };
	uint64_t ranks = GROUP;
	struct operand result;

	while (ranks < build->rank_count)
		ranks *= GROUP;
	write_parts(w, build, sends);
	result = write_group(&t, 0, ranks, true, NULL);
	/* The left neighbour's first, as the late rank feeds owners from the left to the right: so
	 * what several of them send at a time goes to different ranks. */
	for (uint32_t i = 1; i < build->rank_count; i++) {
		(void)rb_write_send(w, rb_left(build, build->rank, i), RESULT, result.span, t.own,
				    1);
		rb_write_dep(w, result.step, 0);
	}
}

void rb_build_allreduce_two_shot_late(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count;
	struct rb_row sends = { 0 };

	rb_writer_init(w, w->schedule, build->rank, n, rb_blocks_others(n));
	w->schedule->flags = RB_SCHEDULE_IN_TURNS;
	if (n == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (build->rank == build->root)
		write_parts(w, build, &sends);
	else
		write_other(w, build, &sends);
	write_results(w, build, &sends);
}

uint64_t rb_sent_allreduce_two_shot_late(const struct rb_layout *layout,
					 const struct rb_build *build, uint32_t element_bytes)
{
	uint32_t v = rb_from_root(build);

	if (build->rank_count == 1)
		return 0;
	if (v == 0)
		return layout->count * element_bytes;
	return rb_bytes_without(layout, v - 1, element_bytes) +
	       (build->rank_count - 1) * rb_layout_length(layout, v - 1, 1) * element_bytes;
}
