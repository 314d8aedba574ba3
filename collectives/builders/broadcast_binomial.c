/*
 * broadcast_binomial.c -- the binomial tree, as in Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005), chunk by chunk. Counted from the root, the
 * parent of v is v without its lowest bit; the largest subtree is served first.
 */
#include "collectives/builders/builders.h"

void rb_build_broadcast_binomial(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t v = rb_from_root(build), below = rb_below(build, v), recv = 0;
	struct rb_span out = rb_span_out(RB_SELF);
	uint64_t bit = 1;

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	if (v > 0)
		recv = rb_write_recv(w, rb_right(build, build->root, v & (v - 1)), 0, out, 0, 1);
	while (bit < below)
		bit *= 2;
	for (bit /= 2; bit > 0; bit /= 2) {
		(void)rb_write_send(w, rb_right(build, build->root, (uint32_t)(v + bit)), 0, out, 0,
				    1);
		if (v > 0)
			rb_write_dep(w, recv, 0);
	}
}

uint64_t rb_sent_broadcast_binomial(const struct rb_layout *layout, const struct rb_build *build,
				    uint32_t element_bytes)
{
	uint32_t below = rb_below(build, rb_from_root(build)), children = 0;

	for (uint64_t bit = 1; bit < below; bit *= 2)
		children++;
	return children * layout->count * element_bytes;
}
