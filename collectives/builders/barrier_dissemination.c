/*
 * barrier_dissemination.c -- Hensgen, Finkel and Manber, "Two Algorithms for Barrier
 * Synchronization" (1988). In round k each rank notifies the one 2^k places to its right, once it
 * has heard from all earlier rounds: after round k it has heard of 2^(k+1) ranks.
 */
#include "collectives/builders/builders.h"

void rb_build_barrier_dissemination(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count;
	struct rb_row waits = { 0 };

	rb_writer_init(w, w->schedule, build->rank, n, 1);
	for (uint32_t k = 0; k < 31 && 1u << k < n; k++) {
		(void)rb_write_notify(w, rb_right(build, build->rank, 1u << k), (uint16_t)k, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &waits, 0);
		rb_row_add(&waits, rb_write_wait(w, rb_left(build, build->rank, 1u << k),
						 (uint16_t)k, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

RB_SENDS_NOTHING(barrier_dissemination)
