/*
 * alltoall_pairwise.c -- in round i the ranks whose sum is i (modulo n) exchange their blocks, so
 * that each rank has one partner at a time: Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005), section 4.4, with an order that suits any
 * number of ranks. A few rounds are under way together. For large blocks.
 *
 * In place a block arrives in slots and takes its place when the old one is sent, as in
 * alltoall_flat.
 */
#include "collectives/builders/builders.h"

struct rounds { /* By number; in place with a COPY each. */
	struct rb_row sends, recvs, copies;
};

static void write_round(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
			uint32_t t, struct rounds *rounds)
{
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	struct rb_span slots =
		rb_span_scratch(RB_SELF, t % RB_PAIRWISE_AT_ONCE * RB_DEPTH, RB_DEPTH);
	uint32_t send = rb_write_send(w, peer, 0, in, peer, 1);
	struct rb_label reader = { 0 };

	rb_row_add(&rounds->sends, send);
	if (t >= RB_PAIRWISE_AT_ONCE) {
		rb_write_dep(w, rb_row_at(&rounds->sends, t - RB_PAIRWISE_AT_ONCE), RB_DEP_ALL);
		rb_write_dep(w, rb_row_at(&rounds->recvs, t - RB_PAIRWISE_AT_ONCE), RB_DEP_ALL);
	}
	uint32_t recv = rb_write_recv(w, peer, 0, build->in_place ? slots : out, peer, 1);

	rb_row_add(&rounds->recvs, recv);
	rb_write_flags(w, RB_STEP_OUT);
	if (!build->in_place)
		return;
	rb_write_dep_label(w, &reader, RB_DEPTH);
	/* The slots were those rounds'. Where a block is empty, its round waits for none before
	 * it. */
	for (uint32_t s = t % RB_PAIRWISE_AT_ONCE; s < t; s += RB_PAIRWISE_AT_ONCE)
		rb_write_dep(w, rb_row_at(&rounds->copies, s), RB_DEP_ALL);
	rb_row_add(&rounds->copies, rb_write_copy(w, slots, out, peer, 1));
	rb_write_label(w, &reader);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, recv, 0);
	rb_write_dep(w, send, 0);
}

void rb_build_alltoall_pairwise(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, t = 0;
	struct rounds rounds = { 0 };

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 0; i < n; i++)
		if (rb_partner(build, i) != r)
			write_round(w, build, rb_partner(build, i), t++, &rounds);
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_alltoall_pairwise(const struct rb_layout *layout, const struct rb_build *build,
				   uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
