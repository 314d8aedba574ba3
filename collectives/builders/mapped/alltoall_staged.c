/*
 * alltoall_staged.c -- alltoall_direct for buffers that peers cannot map: every rank copies what is
 * for a peer, chunk by chunk, into slots of mapped scratch that are that peer's, which copies it
 * out of them.
 *
 * Nobody says that a slot is free again: between two ranks the word of chunk c says so of what came
 * the other way as chunk c - LAG, and a chunk takes its slot when the word of that one is there.
 * Blocks are all equally long, to a chunk.
 */
#include "collectives/builders/builders.h"

#define LAG (RB_DEPTH_MAPPED / 2)

/* What `rank` has for `peer`. */
static struct rb_span slots(const struct rb_build *build, uint32_t rank, uint32_t peer)
{
	uint32_t place = rb_left(build, peer, rank) - 1;

	return rb_span_scratch(rank == build->rank ? RB_SELF : rank, place * RB_DEPTH_MAPPED,
			       RB_DEPTH_MAPPED);
}

void rb_build_alltoall_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	struct rb_row waits = { 0 };
	bool own = false;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t peer = rb_right(build, r, i);

		rb_row_add(&waits, rb_write_ahead(w, rb_write_wait(w, peer, 1, peer, 1)));
	}
	struct rb_row entry = rb_write_entry(w, build, 0);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = rb_partner(build, i);
		struct rb_label read = { 0 };

		if (peer == r)
			continue;
		uint32_t there = rb_row_at(&waits, rb_other(build, peer));
		uint32_t staged =
			rb_write_ahead(w, rb_write_copy(w, in, slots(build, r, peer), peer, 1));

		rb_write_dep(w, rb_row_at(&entry, rb_other(build, peer)), 0);
		rb_write_dep(w, there, LAG);
		(void)rb_write_ahead(w, rb_write_notify(w, peer, 1, peer, 1));
		rb_write_dep(w, staged, 0);
		rb_write_dep_label(w, &read, LAG);
		if (!own) /* While the first one writes. */
			(void)rb_write_copy(w, in, out, r, 1);
		own = true;
		(void)rb_write_copy(w, slots(build, peer, r), out, peer, 1);
		rb_write_label(w, &read);
		rb_write_dep(w, there, 0);
		if (build->in_place)
			rb_write_dep(w, staged, 0);
	}
	if (!own)
		(void)rb_write_copy(w, in, out, r, 1);
}

RB_SENDS_NOTHING(alltoall_staged)
