/*
 * checker.h -- proves a collective: all ranks' schedules together, several instances in a row.
 *
 * Every iteration of every step becomes three events (it starts; it is complete; so are it and all
 * before it), joined by what is guaranteed and by nothing else: dependencies, messages, and that a
 * rank's next instance follows its last. In this graph the checker proves
 *
 *   matching   every message has both ends, equal in length, and no two share a tag
 *   progress   no cycle, even if sends, puts and notifications are complete only when the other
 *              side waits for them, and if each step runs one iteration at a time
 *   order      two accesses to the same elements, one a write, have a path from the end of one to
 *              the start of the other; between instances the owner writes all of IN and OUT
 *   results    executed on symbols, every element of OUT is the reduction of every rank's element
 *              of this instance, once; by the same expression on every rank; FINAL once. Or the
 *              very element that it must be, where nothing is reduced
 *   bytes      what is sent equals the algorithm's formula
 *   bounds     spans lie in blocks of their buffers, and name only what they may: memory of the own
 *              node
 *   kinds      device memory is touched by the device's steps and by messages that reach it, and
 *              the device computes on nothing else
 *
 * Elements are kept as intervals, so a count of 2^33 costs no more than one of 33. This is for
 * tests and tools: unlike the rest of collectives/, it allocates.
 */
#ifndef RB_COLLECTIVES_CHECKER_H
#define RB_COLLECTIVES_CHECKER_H

#include "collectives/algorithms.h"

#define RB_CHECK_TEXT 512

struct rb_check_limits {
	uint64_t events;         /* At most so many; 0: what 32 bits count. */
	bool (*stop)(void *arg); /* Asked now and then, true ends the check; or NULL. */
	void *arg;
};

/* Of such a square: a rank's. */
static inline const uint8_t *rb_apart_of(const uint8_t *apart, uint32_t rank_count, uint32_t rank)
{
	return apart != NULL ? apart + (size_t)rank * rank_count : NULL;
}

struct rb_check {
	enum rb_kind kind;
	const struct rb_schedule *schedules; /* One per rank, in order. */
	uint32_t rank_count, root;
	const struct rb_nodes *nodes; /* NULL: all ranks are on one. */
	const uint8_t *apart; /* Per rank, what its builder was told (rb_build); NULL: nothing. */
	const struct rb_layout *layouts; /* One per rank; all with the same chunk. */
	bool in_place;
	bool device_messages; /* Staged: messages reach device memory (rb_staging.takes). */
	uint32_t instances;   /* At least 1; 3 prove a steady state. */
	const struct rb_algorithm *algorithm; /* For flags and bytes; NULL: not compared. */
	struct rb_check_limits limits;
	/* A question besides, answered in `implied`: whether all ordering that the dependency
	 * `implied_dep` of step `implied_step` at `implied_rank` gives (or gave, where it is no
	 * longer there) follows from the rest. RB_NO_SPAN as rank: not asked. */
	uint32_t implied_rank, implied_step;
	struct rb_dep implied_dep;
};

struct rb_check_result {
	bool proved, implied;
	uint64_t events, edges, pairs; /* Of the graph; pairs of accesses found ordered. */
	char text[RB_CHECK_TEXT];      /* If not proved: what, where. */
};

/* Errors: MEMORY, UNSUPPORTED (more events than the limit), TIMEOUT (stopped). A broken schedule is
 * no error: result->proved is false. */
RB_NODISCARD rubato_status rb_check_schedules(const struct rb_check *check,
					      struct rb_check_result *result);

#endif
