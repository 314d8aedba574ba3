/*
 * alltoall_direct.c -- in mapped memory: every rank copies what is for it out of everybody's IN,
 * and tells them, chunk by chunk, that it has. The partners' order is that of alltoall_pairwise: no
 * rank's memory is read by all at once.
 */
#include "collectives/builders/builders.h"

void rb_build_alltoall_direct(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_fetches fetches = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	w->schedule->flags = RB_SCHEDULE_MAPPED_BUFFERS;
	struct rb_row entry = rb_write_entry(w, build, 0);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = rb_partner(build, i);

		if (peer != r)
			rb_write_fetch(w, build, peer, rb_row_at(&entry, rb_other(build, peer)),
				       &fetches);
	}
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

RB_SENDS_NOTHING(alltoall_direct)
