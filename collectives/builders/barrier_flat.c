/* barrier_flat.c -- one phase: every rank tells every other that it is here. */
#include "collectives/builders/builders.h"

void rb_build_barrier_flat(struct rb_writer *w, const struct rb_build *build)
{
	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	rb_write_notify_all(w, build, 0, 0);
	(void)rb_write_wait_all(w, build, 0, 0);
}

RB_SENDS_NOTHING(barrier_flat)
