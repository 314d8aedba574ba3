/*
 * pace.h -- computation that takes a given time (--compute-time), whatever it takes here.
 *
 * The gradient is computed at once and held back: with a step of T and a forward pass of share f,
 * the part of the gradient from float i of n on counts as complete at f T + (1 - f) T (n - i) / n
 * after the step's begin, as in a model whose backward pass takes equal time for equal numbers of
 * parameters. Where the true computation takes longer than that, it is what takes the time; in a
 * simulation it takes none.
 */
#ifndef TR_PACE_H
#define TR_PACE_H

#include "trainer/buckets.h"
#include "trainer/compute.h"

struct tr_pace {
	uint64_t span_ns; /* T; 0: nothing is emulated. */
	double forward;   /* f, 0 to 1. */
};

/* Lets time pass until everything is complete; `ready` learns of each bucket at its time. */
rubato_status tr_pace_pass(const struct tr_pace *pace, rubato_comm *comm, const struct tr_cut *cut,
			   uint64_t begin_ns, const struct tr_ready *ready);

#endif
