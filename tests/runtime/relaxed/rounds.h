/*
 * rounds.h -- a program of partial allreduces that checks the laws as it goes, for any transport.
 *
 * Every contribution is a vector that only its rank and number give, of integers, so that sums are
 * exact in any order: each rank recomputes each result from what the round says is in it
 * (conservation), and compares with what all others saw of that round (agreement).
 */
#ifndef TESTS_RUNTIME_ROUNDS_H
#define TESTS_RUNTIME_ROUNDS_H

#include <pthread.h>

#include "base/status.h"
#include "rubato.h"
#include "rubato_sim.h"

#define ROUNDS_MAX 4096
#define ROUNDS_RANKS_MAX 16

struct rounds_seen {   /* Of one round: by the first rank that saw it. */
	uint64_t hash; /* Of the result and of all that rubato_round says; 0: not yet. */
	uint64_t weight;
	uint32_t contributors, fresh;
};

struct exercise_memory; /* tests/runtime/exercise.h */

struct rounds {
	/* The program. */
	rubato_partial_options options;
	uint64_t count;
	uint32_t steps;     /* Contributions of each rank. */
	uint32_t extra;     /* The last rank makes so many more (free rounds). */
	uint64_t delay_ns;  /* Of the slowest rank's steps; the others' are in proportion. */
	uint32_t slow_rank; /* Only that one is slow; UINT32_MAX: a ramp. */
	bool rotating;      /* The ramp moves on from step to step. */
	uint32_t eras;      /* Drains, with steps before each. */
	bool floats;        /* RUBATO_FLOAT32 averages instead of int64 sums. */
	bool simulated;     /* One at a time runs: ranks may be compared as they go. */
	bool leaving;       /* Rank 0 leaves halfway. */
	const struct exercise_memory *memory; /* Of a device: vectors lie there; NULL: are lent. */
	bool there; /* With `memory`: buffers, too; leased, or contributed from either side. */
	uint64_t kill_step; /* Victims end their process at this one, just committed; 0: not. */
	uint32_t victims;   /* Bit r: rank r may be lost, and what it sees then does not count. */
	/* What came of it. */
	pthread_mutex_t lock;
	struct rounds_seen seen[ROUNDS_MAX];
	uint32_t finished; /* Ranks that have drained or left, ever. */
	uint64_t wrong;    /* Elements and facts. */
	uint64_t collected[ROUNDS_RANKS_MAX];
	uint64_t delivered[ROUNDS_RANKS_MAX]; /* Own contributions in collected rounds. */
	bool ended[ROUNDS_RANKS_MAX];         /* The program, or by a loss that it survived. */
	rubato_partial_stats stats[ROUNDS_RANKS_MAX];
	uint64_t in_calls_ns[ROUNDS_RANKS_MAX];
	uint64_t in_steps_ns[ROUNDS_RANKS_MAX]; /* That of calls before the first drain. */
	uint64_t contributed[ROUNDS_RANKS_MAX]; /* Of the rounds seen, the last one with it, + 1. */
	char first[256];                        /* What was wrong first. */
};

void rounds_init(struct rounds *w);
rubato_status rounds_main(rubato_comm *comm, void *rounds);
/* Everything committed was delivered or discarded, once, and everybody saw the same. */
void rounds_check(struct rounds *w, uint32_t n, const char *name);
/* After a crash: survivors collected the same rounds and have the rest back. Returns how many
 * survived. */
uint32_t rounds_check_survivors(struct rounds *w, uint32_t n, const char *name);
void rounds_wrong(struct rounds *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
