/*
 * reduce_binomial.c -- the binomial tree upside down, as in Thakur, Rabenseifner and Gropp,
 * "Optimization of Collective Communication Operations in MPICH" (2005), chunk by chunk. Counted
 * from the root, v has the ranks from v up to its last descendant; it reduces them in that order,
 * all children at once.
 */
#include "collectives/builders/builders.h"

/* For what comes from child k; one more for the sum. */
static struct rb_span slots(uint32_t k)
{
	return rb_span_scratch(RB_SELF, k * RB_DEPTH, RB_DEPTH);
}

void rb_build_reduce_binomial(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t v = rb_from_root(build), children = 0;
	uint32_t parent = v > 0 ? rb_right(build, build->root, v & (v - 1)) : 0;
	struct rb_label reduced = { 0 }, sent = { 0 };
	struct rb_row recvs = { 0 };

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	for (uint64_t bit = 1; bit < rb_below(build, v); bit *= 2)
		children++;
	if (v > 0 && children == 0) {
		(void)rb_write_send(w, parent, 0, rb_span_in(RB_SELF), 0, 1);
		return;
	}
	for (uint32_t k = 0; k < children; k++) {
		uint32_t child = rb_right(build, build->root, v + (1u << k));

		rb_row_add(&recvs, rb_write_recv(w, child, 0, slots(k), 0, 1));
		rb_write_dep_label(w, &reduced, RB_DEPTH);
	}
	struct rb_span sum = slots(children);
	uint32_t reduce = rb_write_reduce(w, v == 0 ? rb_span_out(RB_SELF) : sum, 0, 1);

	rb_write_label(w, &reduced);
	rb_write_operand(w, rb_span_in(RB_SELF));
	for (uint32_t k = 0; k < children; k++)
		rb_write_operand(w, slots(k));
	rb_write_dep_row(w, &recvs, 0);
	if (v == 0) {
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	rb_write_dep_label(w, &sent, RB_DEPTH);
	(void)rb_write_send(w, parent, 0, sum, 0, 1);
	rb_write_label(w, &sent);
	rb_write_dep(w, reduce, 0);
}

uint64_t rb_sent_reduce_binomial(const struct rb_layout *layout, const struct rb_build *build,
				 uint32_t element_bytes)
{
	return build->rank == build->root ? 0 : layout->count * element_bytes;
}
