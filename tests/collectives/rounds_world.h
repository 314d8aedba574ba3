/*
 * rounds_world.h -- many machines of the partial allreduce, a network that delays and reorders
 * (not within a pair), applications that compute, commit, drain and leave, ranks that freeze and
 * crash: all from one seed, in virtual time, under the laws.
 */
#ifndef TESTS_COLLECTIVES_PARTIAL_WORLD_H
#define TESTS_COLLECTIVES_PARTIAL_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rounds_totals { /* Over seeds: what has really happened. */
	uint64_t rounds, full, events, crashes, late_crashes, fetches, restored, drained, left;
	uint64_t merges, discarded, late, held, windows, freezes, deadlines;
};

/* Runs one world. Returns NULL, or what broke, in text[]. */
const char *rounds_world_run(uint64_t seed, struct rounds_totals *totals, char *text,
			     size_t text_bytes);

#endif
