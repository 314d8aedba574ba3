/*
 * laws.h -- rubato-sim laws: random jobs of relaxed collectives in virtual time, each judged by the
 * laws that rubato.h promises. One seed draws one trial: ranks, network, policy, skew, faults.
 *
 * Contributions are 64-bit words drawn from (seed, rank, step, place), and reduced with
 * wrap-around, so that a result is right only if it holds exactly the contributions that its round
 * names.
 */
#ifndef TOOLS_LAWS_H
#define TOOLS_LAWS_H

#include "rubato_sim.h"

#define LAWS_RANKS_MAX 64
#define LAWS_OPS_MAX 3 /* Partial operations side by side. */
#define LAWS_FAULTS_MAX 3
#define LAWS_TEXT_BYTES 512
#define LAWS_NONE UINT32_MAX

struct laws_random {
	uint64_t state;
};
uint64_t laws_below(struct laws_random *random, uint64_t bound);

struct laws_round { /* As the first rank that collected it saw it: the others must see the same. */
	bool known;
	uint64_t digest;            /* Of the records; without wagma of the result too. */
	rubato_contribution *ranks; /* A copy of the records. */
	uint64_t *digests;          /* Wagma: of the result, per rank that collected it. */
	uint8_t *members;           /* Wagma: rank_count x rank_count; row i as rank i saw it. */
};

struct laws_op { /* A partial operation, seen from all ranks. */
	rubato_partial_options options;
	rubato_operator reduction;
	uint64_t count;
	struct laws_round *rounds;
	uint64_t round_capacity, round_end; /* Rounds below round_end: some are known. */
	bool passive;                       /* Some rank has drained or left: quorums may shrink. */
	/* Per rank. */
	uint64_t committed[LAWS_RANKS_MAX];    /* Steps 0 .. committed - 1. */
	uint64_t collected[LAWS_RANKS_MAX];    /* The last round + 1. */
	uint64_t passive_from[LAWS_RANKS_MAX]; /* round_end when it drained or left. */
	rubato_partial_stats stats[LAWS_RANKS_MAX];
	bool drained[LAWS_RANKS_MAX], ended[LAWS_RANKS_MAX];
	uint64_t pending_first[LAWS_RANKS_MAX]; /* Ended: what was restored. */
	uint32_t pending_count[LAWS_RANKS_MAX];
};

enum laws_skew {
	LAWS_EVEN,
	LAWS_LINEAR,
	LAWS_EXP,
	LAWS_ROTATING,
	LAWS_STRAGGLER, /* One rank always. */
	LAWS_BURST,     /* Mostly none, now and then long. */
	LAWS_SKEW_COUNT,
};

struct laws_trial {
	uint64_t seed;
	rubato_sim_options world;
	rubato_sim_fault faults[LAWS_FAULTS_MAX];
	uint32_t kinds[RUBATO_SIM_CUT + 1]; /* Faults of each kind. */
	bool lagged;                        /* A trial of the lagged allreduce. */
	bool convenient;                    /* contribute and collect instead of leases. */
	uint32_t op_count, lag;
	struct laws_op ops[LAWS_OPS_MAX];
	uint32_t steps[LAWS_RANKS_MAX];
	uint32_t leaver, leave_step; /* LAWS_NONE: nobody leaves. */
	uint32_t drain_step;         /* All drain here too; 0: only at the end. */
	enum laws_skew skew;
	uint64_t skew_ns;
	uint64_t until_ns; /* Nobody ends before: faults are to find the ranks at work. */
	uint64_t rounds;   /* Collected, over ranks and operations. */
	bool dump;         /* When an operation does not end. */
	char broken[LAWS_TEXT_BYTES]; /* The first law broken; empty: none. */
};

/* Allocates for the trial's rounds; laws_free frees. */
void laws_draw(struct laws_trial *trial, uint64_t seed);
void laws_free(struct laws_trial *trial);

/* rubato_sim_main; arg is the trial. */
rubato_status laws_rank(rubato_comm *comm, void *arg);
rubato_status laws_lagged_rank(rubato_comm *comm, struct laws_trial *trial);

/* Whether the trial crashes this rank: it then runs on as a ghost, whose calls fail. */
bool laws_victim(const struct laws_trial *trial, uint32_t rank);
/* Notes the first broken law. */
void laws_break(struct laws_trial *trial, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* What rank contributes at step in place, and the reduction of such words. */
uint64_t laws_word(const struct laws_trial *trial, uint32_t op, uint32_t rank, uint64_t step,
		   uint64_t place);
uint64_t laws_reduce(rubato_operator reduction, uint64_t a, uint64_t b);
uint64_t laws_identity(rubato_operator reduction);
uint64_t laws_skew_ns(const struct laws_trial *trial, uint32_t rank, uint32_t step);

/* A round as `rank` collected it. */
void laws_see(struct laws_trial *trial, uint32_t op, uint32_t rank, const uint64_t *result,
	      const rubato_round *round);
/* After the run: conservation, fairness, recovery; that each fault has fired. */
void laws_judge(struct laws_trial *trial, rubato_status status, const rubato_sim_result *result);

/* The command: argv[0] is "laws". The exit status. */
int laws_command(int argc, char **argv);

#endif
