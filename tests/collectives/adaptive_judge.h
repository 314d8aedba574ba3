/*
 * adaptive_judge.h -- how long work takes under a fixed quorum and under the adaptive rule: rounds
 * in virtual time, written without looking at the replay inside collectives/partial/adaptive.c.
 */
#ifndef TESTS_COLLECTIVES_ADAPTIVE_JUDGE_H
#define TESTS_COLLECTIVES_ADAPTIVE_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

enum judge_family {
	JUDGE_EVEN,        /* 185 ms, give or take 5 %. */
	JUDGE_EXPONENTIAL, /* ... and an exponential delay of 150 ms in the mean. */
	JUDGE_PARETO,      /* ... and a heavy-tailed one (1.5) of 150 ms in the mean. */
	JUDGE_ROTATING,    /* ... and a ramp from 0 to 350 ms over ranks that moves every step. */
	JUDGE_PERSISTENT,  /* One rank takes three times as long. */
	JUDGE_SWITCHING,   /* One of these for 100 to 300 steps, then another. */
	JUDGE_FAMILIES
};
extern const char *const judge_family_names[JUDGE_FAMILIES];

struct judge_world {
	enum judge_family family;
	bool free_rounds;
	uint32_t rank_count, steps, depth; /* steps: of each rank; free: on the average. */
	uint64_t seed;
};

struct judge_result {
	uint64_t time_ns;
	double quorum; /* Mean over rounds. */
	uint64_t rounds;
	bool alike; /* Two ranks that were told the same chose the same, round for round. */
};

/* quorum 0: the adaptive rule. */
struct judge_result judge_run(const struct judge_world *world, uint32_t quorum);

struct judge_verdict {     /* Against the best fixed quorum, chosen with hindsight. */
	double ratio, all; /* Time of the adaptive rule, of waiting for all, over its time. */
	double quorum;     /* Adaptive: mean over rounds. */
	uint32_t best;
};

struct judge_verdict judge(const struct judge_world *world);

#endif
