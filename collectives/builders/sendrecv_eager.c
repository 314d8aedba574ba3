/* sendrecv_eager.c -- rank 0 of a pair sends its IN to rank 1's OUT. Alone: to itself. */
#include "collectives/builders/builders.h"

void rb_build_sendrecv_eager(struct rb_writer *w, const struct rb_build *build)
{
	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	if (build->rank_count == 1)
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
	else if (build->rank == 0)
		(void)rb_write_send(w, 1, 0, rb_span_in(RB_SELF), 0, 1);
	else
		(void)rb_write_recv(w, 0, 0, rb_span_out(RB_SELF), 0, 1);
}

uint64_t rb_sent_sendrecv_eager(const struct rb_layout *layout, const struct rb_build *build,
				uint32_t element_bytes)
{
	bool sends = build->rank_count > 1 && build->rank == 0;

	return sends ? layout->count * element_bytes : 0;
}
