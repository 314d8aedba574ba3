/*
 * skew.h -- how late each rank enters each call: none, linear:T (0 to T by rank), exp:T and
 * pareto:T (random, with mean T), rotating:T (linear, one rank further each time), rank:R:T (always
 * that one), trace:FILE (a line an iteration, a time for each rank; it begins again at its end).
 */
#ifndef PROGRAMS_SKEW_H
#define PROGRAMS_SKEW_H

#include "programs/values.h"

enum skew_kind {
	SKEW_NONE,
	SKEW_LINEAR,
	SKEW_EXP,
	SKEW_PARETO,
	SKEW_ROTATING,
	SKEW_RANK,
	SKEW_TRACE,
};

struct skew {
	enum skew_kind kind;
	uint64_t time_ns, seed;
	uint32_t rank;
	uint64_t *trace; /* Lines one after the other. */
	uint32_t trace_lines, trace_ranks;
};
extern const char *const skew_names[]; /* NULL-terminated. */
#define SKEW_HELP                                                                                  \
	"%s (none); linear and rotating: 0 to T by rank; exp and pareto: random with mean T"

/* For struct option: `to` is a struct skew, of which the seed stays. */
bool skew_read(const char *option, const char *text, void *to, struct option_error *error);
/* A trace must have as many columns as there are ranks. */
void skew_fit(const char *program, const struct skew *skew, uint32_t rank_count);
uint64_t skew_ns(const struct skew *skew, uint32_t rank, uint32_t rank_count, uint32_t iteration);
/* The largest over ranks and iterations. */
uint64_t skew_largest_ns(const struct skew *skew, uint32_t rank_count, uint32_t iterations);

#endif
