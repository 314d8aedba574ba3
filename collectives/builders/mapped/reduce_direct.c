/*
 * reduce_direct.c -- in mapped memory: every rank reduces one block straight out of everybody's IN
 * into the root's OUT. As allreduce_direct, without the copies.
 */
#include "collectives/builders/builders.h"

void rb_build_reduce_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, root = build->root;

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	rb_write_meet_reduce(w, build, rb_span_out(r == root ? RB_SELF : root));
}

RB_SENDS_NOTHING(reduce_direct)
