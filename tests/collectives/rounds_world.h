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

/* Whom policies count: as the seed draws it; ranks always; nodes of one rank each. Only where it is
 * drawn may ranks meet once a round. */
enum rounds_members { ROUNDS_DRAWN, ROUNDS_RANKS, ROUNDS_ALONE };

struct rounds_totals {                /* Over seeds: what has really happened. */
	enum rounds_members members;  /* As the caller wants it. */
	uint64_t acts;                /* A digest of all that machines have done. */
	uint64_t nodes_in, nodes_out; /* Of rounds: with what they have; though a rank has some. */
	uint64_t rounds, full, events, crashes, late_crashes, fetches, restored, drained, left;
	uint64_t merges, discarded, late, held, windows, freezes, deadlines, early;
};

/* Runs one world. Returns NULL, or what broke, in text[]. */
const char *rounds_world_run(uint64_t seed, struct rounds_totals *totals, char *text,
			     size_t text_bytes);

#endif
