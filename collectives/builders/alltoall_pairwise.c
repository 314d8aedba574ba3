/*
 * alltoall_pairwise.c -- in round i the ranks whose sum is i (modulo n) exchange their blocks, so
 * that each rank has one partner at a time: Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005), section 4.4, with an order that suits any
 * number of ranks. A few rounds are under way together. For large blocks.
 */
#include "collectives/builders/builders.h"

void rb_build_alltoall_pairwise(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank;
	struct rb_exchanges x = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 0; i < n; i++)
		if (rb_partner(build, i) != r)
			rb_write_exchange(w, build, rb_partner(build, i), &x);
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_alltoall_pairwise(const struct rb_layout *layout, const struct rb_build *build,
				   uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
