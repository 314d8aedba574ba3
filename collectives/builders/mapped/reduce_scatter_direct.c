/*
 * reduce_scatter_direct.c -- in mapped memory: rank r reduces block r straight out of everybody's
 * IN. As allreduce_direct, without the copies.
 */
#include "collectives/builders/builders.h"

void rb_build_reduce_scatter_direct(struct rb_writer *w, const struct rb_build *build)
{
	rb_writer_init(w, w->schedule, build->rank, build->rank_count, build->rank_count);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	rb_write_meet_reduce(w, build, rb_span_part(rb_span_out(RB_SELF)));
}

RB_SENDS_NOTHING(reduce_scatter_direct)
