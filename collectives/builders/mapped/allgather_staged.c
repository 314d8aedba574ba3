/*
 * allgather_staged.c -- allgather_direct for buffers that peers cannot map: every rank copies its
 * part, chunk by chunk, into slots of mapped scratch, and the others copy it out of them. So a part
 * is copied once, and read by all; a message would copy it once for each.
 *
 * Nobody says that a slot is free again. Of two ranks slots alternate. Of more, the word of a
 * rank's own chunk c says so of what it has read of chunk c - LAG, and a chunk takes its slot when
 * the others' words of chunk c - LAG are there. Parts are all equally long.
 */
#include "collectives/builders/builders.h"

#define LAG (RB_DEPTH / 2)

static struct rb_span slots(uint32_t rank)
{
	return rb_span_scratch(rank, 0, RB_DEPTH);
}

/* Of two ranks each has one reader, and slots alternate. */
static void write_pair(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t r = build->rank, peer = rb_right(build, r, 1);
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);
	struct rb_label read = { 0 };
	uint32_t there = rb_write_ahead(w, rb_write_wait(w, peer, 0, peer, 1));
	uint32_t staged =
		rb_write_ahead(w, rb_write_copy(w, part, rb_staged_way(build, r, peer), r, 1));

	rb_write_dep_label(w, &read, RB_DEPTH_MAPPED);
	(void)rb_write_ahead(w, rb_write_notify(w, peer, 0, r, 1));
	rb_write_dep(w, staged, 0);
	(void)rb_write_copy(w, part, out, r, 1);
	(void)rb_write_copy(w, rb_staged_way(build, peer, r), out, peer, 1);
	rb_write_label(w, &read);
	rb_write_dep(w, there, 0);
}

void rb_build_allgather_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span part = rb_span_part(rb_span_in(RB_SELF)), out = rb_span_out(RB_SELF);
	struct rb_row waits = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	if (n == 1) {
		(void)rb_write_copy(w, part, out, r, 1);
		return;
	}
	if (n == 2) {
		write_pair(w, build);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&waits, rb_write_ahead(w, rb_write_wait(w, peer, 1, peer, 1)));
	}
	struct rb_row entry = rb_write_entry(w, build, 0);
	uint32_t staged = rb_write_ahead(w, rb_write_copy(w, part, slots(RB_SELF), r, 1));

	rb_write_dep_row(w, &entry, 0);
	rb_write_dep_row(w, &waits, LAG);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);
		struct rb_label read = { 0 };

		(void)rb_write_ahead(w, rb_write_notify(w, peer, 1, r, 1));
		rb_write_dep(w, staged, 0);
		rb_write_dep_label(w, &read, LAG);
		if (i == 1) /* While the first one writes. */
			(void)rb_write_copy(w, part, out, r, 1);
		(void)rb_write_copy(w, slots(peer), out, peer, 1);
		rb_write_label(w, &read);
		rb_write_dep(w, rb_row_at(&waits, i - 1), 0);
	}
}

RB_SENDS_NOTHING(allgather_staged)
