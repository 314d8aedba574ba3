/*
 * alltoall_pairwise.c -- in round i the ranks whose sum is i (modulo n) exchange their blocks, so
 * that each rank has one partner at a time: Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005), section 4.4, with an order that suits any
 * number of ranks. A few rounds are under way together. For large blocks.
 *
 * In place a block arrives in slots and takes its place when the old one is sent, as in
 * alltoall_flat.
 */
#include "collectives/builders/build.h"

/* Round t of this rank: SEND and RECV, and in place COPY. */
static uint32_t step_of(const struct rb_build *build, uint32_t t)
{
	return (build->in_place ? 3 : 2) * t;
}

static void write_round(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
			uint32_t t)
{
	struct rb_span in = rb_span_in(RB_SELF), out = rb_span_out(RB_SELF);
	struct rb_span slots = rb_span_scratch(RB_SELF, t % RB_ROUNDS_AT_ONCE * RB_DEPTH, RB_DEPTH);
	uint32_t send = step_of(build, t), recv = send + 1, copy = send + 2;
	uint32_t before = t < RB_ROUNDS_AT_ONCE ? 0 : step_of(build, t - RB_ROUNDS_AT_ONCE);
	bool waits = t >= RB_ROUNDS_AT_ONCE;

	(void)rb_write_send(w, peer, 0, in, peer, 1);
	if (waits) {
		rb_write_dep(w, before, RB_DEP_ALL);
		rb_write_dep(w, before + 1, RB_DEP_ALL);
	}
	(void)rb_write_recv(w, peer, 0, build->in_place ? slots : out, peer, 1);
	rb_write_flags(w, RB_STEP_OUT);
	if (!build->in_place)
		return;
	rb_write_dep(w, copy, RB_DEPTH);
	/* The slots were those rounds'. Where a block is empty, its round waits for none before
	 * it. */
	for (uint32_t s = t % RB_ROUNDS_AT_ONCE; s < t; s += RB_ROUNDS_AT_ONCE)
		rb_write_dep(w, step_of(build, s) + 2, RB_DEP_ALL);
	(void)rb_write_copy(w, slots, out, peer, 1);
	rb_write_flags(w, RB_STEP_OUT);
	rb_write_dep(w, recv, 0);
	rb_write_dep(w, send, 0);
}

void rb_build_alltoall_pairwise(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, t = 0;

	rb_writer_init(w, w->schedule, r, n, n);
	for (uint32_t i = 0; i < n; i++)
		if (rb_partner(build, i) != r)
			write_round(w, build, rb_partner(build, i), t++);
	(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), r, 1);
}

uint64_t rb_sent_alltoall_pairwise(const struct rb_layout *layout, const struct rb_build *build,
				   uint32_t element_bytes)
{
	return rb_bytes_without(layout, build->rank, element_bytes);
}
