/*
 * compute_time.h -- computation that takes a given time (--compute-time), whatever it takes here.
 *
 *   T           each step
 *   T/token     each token that the rank's batch predicts (models of text)
 *   trace:FILE  what the file says, a time a line: step s of rank r of P takes line (s P + r), and
 *               after the last line the first comes again
 *
 * The gradient is computed at once and held back: with a step of T and a forward pass of share f,
 * the part of the gradient from float i of n on counts as complete at f T + (1 - f) T (n - i) / n
 * after the step's begin, as in a model whose backward pass takes equal time for equal numbers of
 * parameters. Where the true computation takes longer than that, it is what takes the time; in a
 * simulation it takes none.
 */
#ifndef TR_COMPUTE_TIME_H
#define TR_COMPUTE_TIME_H

#include "trainer/models/compute.h"
#include "trainer/rules/buckets.h"

enum tr_compute_time_kind {
	TR_COMPUTE_TIME_NONE,
	TR_COMPUTE_TIME_STEP,
	TR_COMPUTE_TIME_TOKEN,
	TR_COMPUTE_TIME_TRACE
};

struct tr_compute_time {
	enum tr_compute_time_kind kind;
	uint64_t span_ns;   /* T. */
	uint64_t *trace_ns; /* TRACE. */
	size_t trace_count;
	double forward; /* f, 0 to 1. */
};

/* For struct option: reads its value into a struct tr_compute_time, and a trace's file;
 * tr_compute_time_close() follows. */
bool tr_compute_time_parse(const char *option, const char *text, void *to,
			   struct option_error *error);
void tr_compute_time_close(struct tr_compute_time *time);

/* How long the step takes whose batch predicts `tokens` tokens here. */
uint64_t tr_compute_time_span(const struct tr_compute_time *time, uint32_t rank,
			      uint32_t rank_count, uint64_t step, uint64_t tokens);

/* Lets `span_ns` pass, until everything is complete; `ready` learns of each bucket at its time. */
rubato_status tr_compute_time_pass(const struct tr_compute_time *time, uint64_t span_ns,
				   rubato_comm *comm, const struct tr_cut *cut, uint64_t begin_ns,
				   const struct tr_ready *ready);

#endif
