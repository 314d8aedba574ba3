/*
 * laws.h -- rubato-sim laws: random jobs of relaxed collectives in virtual time, each judged by the
 * laws that rubato.h promises. One seed draws one trial: ranks, network, options, a program, skew,
 * faults.
 *
 * What is judged is written from the header, not from the code: every rank writes down what it did
 * and was given, with the virtual time; results are compared with a reference of what their round
 * names (laws_values.c), rounds with each other as they are collected (laws_see.c), and the whole
 * history afterwards with what must follow from it (laws_judge.c, laws_rounds.c).
 */
#ifndef TOOLS_LAWS_H
#define TOOLS_LAWS_H

#include "programs/rng.h"
#include "rubato_sim.h"

#define LAWS_RANKS_MAX 64
#define LAWS_OPS_MAX 3 /* Partial operations side by side. */
#define LAWS_ERAS_MAX 3
#define LAWS_FAULTS_MAX 4
#define LAWS_NODES_MAX 5 /* Sizes of uneven nodes. */
#define LAWS_TEXT_BYTES 512
#define LAWS_NONE UINT32_MAX
#define LAWS_NEVER UINT64_MAX

uint64_t laws_below(struct rng *random, uint64_t bound);
bool laws_chance(struct rng *random, uint64_t one_in);

/* ---- What happened ---- */

struct laws_commit {
	uint64_t step, weight;
	uint64_t at_ns, duration_ns; /* duration: since its last collect ended. */
	uint64_t completed;          /* Rounds that had completed here before. */
	uint32_t era;
	bool caught_up; /* Its last collect found nothing more, and nothing has completed since; */
	bool behind;    /* or two rounds have, so that it has not collected all that it was in. */
	uint64_t round; /* Which holds it; NEVER: none does. Filled in by the judge. */
};

struct laws_collect {
	uint64_t round; /* That was given; NEVER: there was none. */
	uint64_t begin_ns, at_ns;
	uint64_t completed; /* Rounds that had completed here when it returned. */
	uint32_t era;
	uint32_t committed; /* By this rank, before. */
	bool flushing;      /* After its drain; or it has left. */
	bool looks;         /* RUBATO_NO_WAIT: that there was none tells nothing. */
};

struct laws_passive {       /* A drain or a leave. */
	uint64_t completed; /* Rounds that had completed here: it tells in this one or the next. */
	uint32_t era, committed;
	bool leaves;
};

struct laws_need { /* What the library says of the open round. */
	uint64_t round;
	uint32_t need;
};

struct laws_rank { /* One rank's side of one operation. */
	struct laws_commit *commits;
	uint32_t commit_count, commit_room;
	struct laws_collect *collects;
	uint32_t collect_count, collect_room;
	struct laws_passive passives[LAWS_ERAS_MAX + 1];
	uint32_t passive_count;
	uint32_t era;                      /* That it is in. */
	uint32_t told;                     /* Eras of which it was told the end. */
	uint64_t next;                     /* The last round that it was given, + 1. */
	uint64_t none_completed;           /* Rounds completed when a collect last found none. */
	uint64_t worked_since_ns;          /* Its last collect ended. */
	uint64_t waited_ns;                /* In its calls, by the clock. */
	uint64_t made_ns, opened_ns;       /* It was made between these. */
	bool drains, left, drained, ended; /* drained: told the end of the last era. */
	bool freed, holds;                 /* holds: the result that it was given last. */
	rubato_partial_stats stats;
	rubato_contribution pending; /* Ended: what was given back. */
};

struct laws_round { /* As the first rank that collected it saw it: the others must see the same. */
	bool known;
	uint64_t digest; /* Of all that is said; without wagma of the result too. */
	rubato_round seen;
	rubato_contribution *ranks; /* A copy of the records. */
	uint64_t first_ns;          /* When it was collected first. */
	/* Wagma, per rank that collected it: of the result, and the group as a set. */
	uint64_t *digests, *groups;
};

struct laws_op { /* A partial operation, seen from all ranks. */
	struct laws_trial *trial;
	uint32_t index;                 /* Among the trial's. */
	rubato_partial_options options; /* As given: 0 may be the default. */
	uint32_t quorum, group, depth;  /* What that means. */
	uint32_t member_count;          /* Whom the policy counts: ranks, or nodes. */
	uint32_t member_of[LAWS_RANKS_MAX];
	rubato_type type;
	rubato_operator reduction;
	bool real, nans;  /* Values with fractions; some of them are not numbers. */
	uint32_t weights; /* Of commits: 0 one each, 1 small, 2 some are 0, 3 some are huge. */
	uint32_t gaps;    /* In numbers: 0 none, 1 the same on all ranks, 2 each rank's own. */
	uint64_t count;
	struct laws_round *rounds;
	uint64_t round_room, round_end;     /* Rounds below round_end: some are known. */
	uint64_t begins[LAWS_ERAS_MAX + 1]; /* First round of each era; NEVER: not known. */
	struct laws_need *needs;
	uint32_t need_count, need_room;
	struct laws_rank ranks[LAWS_RANKS_MAX];
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

struct laws_lagged { /* A trial of the lagged allreduce. */
	uint32_t lag;
	rubato_type type;
	rubato_operator reduction;
	uint64_t count;
	bool until_done, hold;
	bool looks; /* Before it waits. */
	bool parts; /* Frees with allreduces in flight. */
	uint32_t begun[LAWS_RANKS_MAX];
	uint64_t begun_ns[LAWS_RANKS_MAX]; /* The last begin. */
	uint64_t *digests;                 /* Of each step's result, as first seen. */
	uint32_t digest_count;
};

struct laws_trial {
	uint64_t seed;
	rubato_sim_options world;
	uint32_t node_ranks[LAWS_NODES_MAX]; /* Of world.node_ranks. */
	rubato_sim_fault faults[LAWS_FAULTS_MAX];
	uint32_t kinds[RUBATO_SIM_CUT + 1]; /* Faults of each kind. */
	bool is_lagged;
	struct laws_lagged lagged;
	bool convenient;    /* contribute and collect instead of leases. */
	bool device;        /* What these are given, and gradients, lie in a device's memory. */
	bool rude;          /* Calls that must be refused, now and then. */
	bool beside;        /* Synchronous collectives beside. */
	bool patient;       /* A freeze is longer than the timeout: collects are repeated. */
	bool parts_at_once; /* All free without a drain before; */
	bool drains_first;  /* or with one whose end they do not wait for. */
	uint32_t blind;     /* One of so many steps looks at no result; 0: all do. */
	bool single;        /* And half of the steps, where not all do, look at one. */
	uint32_t hold;      /* One of so many leases and results is held over time; 0: none. */
	uint32_t op_count, era_count;
	struct laws_op ops[LAWS_OPS_MAX];
	uint32_t steps[LAWS_ERAS_MAX][LAWS_RANKS_MAX];
	uint32_t leaver, leave_era, leave_step; /* LAWS_NONE: nobody leaves. */
	bool lingers;                           /* Who has left frees long after all others. */
	uint32_t peeks; /* Before one of so many collects comes a look; 0: none. */
	bool keeps;     /* Results are kept over commits, drains and the end, now and then. */
	/* Whose first number of an era is not the others', which all are to hear; LAWS_NONE. */
	uint32_t differs, differ_era;
	uint64_t heard; /* Bit r: rank r has. */
	/* Who frees when the last era begins for the others; `deserts`: while they will drain once
	 * more, which is not allowed. LAWS_NONE: nobody. */
	uint32_t goner;
	bool deserts;
	enum laws_skew skew;
	uint64_t skew_ns;
	uint64_t until_ns; /* Nobody ends before: faults are to find the ranks at work. */
	uint64_t rounds;   /* Collected, over ranks and operations. */
	bool dump;         /* When an operation does not end. */
	char broken[LAWS_TEXT_BYTES]; /* The first law broken; empty: none. */
};

/* Allocates for the trial's rounds; laws_free frees. */
void laws_draw(struct laws_trial *trial, uint64_t seed);
/* What was drawn, with a device for each rank and vectors in its memory. */
void laws_draw_device(struct laws_trial *trial);
void laws_free(struct laws_trial *trial);
/* Room for one more: `*items` may move. */
void *laws_grow(void *items, uint32_t count, uint32_t *room, size_t item_bytes);

/* Memory of the rank's device for what lies in `buffer`; NULL: the trial is without, or there is
 * none. Gives back what is not NULL. */
void *laws_device_new(rubato_comm *comm, const struct laws_trial *trial, size_t bytes);
/* Where a call is to read what `buffer` holds. */
const void *laws_device_put(rubato_comm *comm, void *there, const void *buffer, size_t bytes);
/* After the call: it must not read there any more, so something else lies there. */
void laws_device_spoil(rubato_comm *comm, void *there, size_t bytes);

/* rubato_sim_main; arg is the trial. */
rubato_status laws_rank(rubato_comm *comm, void *arg);
rubato_status laws_lagged_rank(rubato_comm *comm, struct laws_trial *trial);

/* Whether the trial crashes this rank: it then runs on as a ghost, whose calls fail. */
bool laws_victim(const struct laws_trial *trial, uint32_t rank);
bool laws_crashes(const struct laws_trial *trial);
/* Notes the first broken law. */
void laws_break(struct laws_trial *trial, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* "LAW: operation 0, round 7", and what follows. LAW: NULL for none. */
void laws_break_round(const struct laws_op *op, const char *law, uint64_t round, const char *format,
		      ...) __attribute__((format(printf, 4, 5)));
/* "LAW: operation 0: rank 3", likewise. */
void laws_break_rank(const struct laws_op *op, const char *law, uint32_t rank, const char *format,
		     ...) __attribute__((format(printf, 4, 5)));

/* ---- laws_values.c: what a contribution holds, and what a result must ---- */

uint64_t laws_mix(uint64_t seed, uint64_t a, uint64_t b);
/* Writes elements from .. to - 1 of contribution number `index` of `rank`, or adds to what is there
 * with the operator. */
void laws_write(const struct laws_op *op, uint32_t rank, uint32_t index, void *buffer,
		uint64_t from, uint64_t to, bool add);
/* Whether all elements are the operator's identity. */
bool laws_is_identity(const struct laws_op *op, const void *buffer);
/* Whether `result` is the reduction of some ranks' contributions, divided by `divisor`: elements
 * that are not; the first one in *at. A part is contributions first .. first + count - 1. */
struct laws_part {
	uint32_t rank, first, count;
};
bool laws_result_right(const struct laws_op *op, const struct laws_part *parts, uint32_t part_count,
		       double divisor, const void *result, uint64_t *at);
uint64_t laws_digest(const void *bytes, size_t size_bytes);
uint64_t laws_weight(const struct laws_op *op, uint32_t rank, uint32_t index);
/* How much more than the last number the next one is. */
uint64_t laws_gap(const struct laws_op *op, uint32_t rank, uint32_t index);
/* The first number of an era: aligned rounds, the same on all ranks. */
uint64_t laws_first_step(const struct laws_op *op, uint32_t rank, uint32_t era);
uint64_t laws_skew_ns(const struct laws_trial *trial, uint32_t rank, uint32_t step);

/* ---- laws_see.c: as a round is collected ---- */

void laws_see(struct laws_op *op, uint32_t rank, const void *result, const rubato_round *round,
	      uint64_t now_ns);
/* A collect that returned OK. */
void laws_note(struct laws_op *op, uint32_t rank, const struct laws_collect *collect);
/* The number of the contribution that is `step` of `rank`; NONE: there is none. */
uint32_t laws_index_of(const struct laws_op *op, uint32_t rank, uint64_t step);
struct laws_round *laws_round_of(struct laws_op *op, uint64_t number);

/* ---- The whole history ---- */

/* After the run: all laws of it; that each fault has fired. */
void laws_judge(struct laws_trial *trial, rubato_status status, const rubato_sim_result *result);
/* laws_rounds.c: who opened each round, with how many, when. */
void laws_judge_rounds(struct laws_op *op);
/* Side by side, who waits elsewhere counts with what it has: late contributions become fresh. */
bool laws_is_lenient(const struct laws_op *op);
/* Whether a rank was passive before this round (no longer counted), had left, or may have said so
 * in it. */
enum laws_maybe { LAWS_NO, LAWS_MAYBE, LAWS_YES };
enum laws_maybe laws_was_passive(const struct laws_op *op, uint32_t rank, uint64_t round);
enum laws_maybe laws_had_left(const struct laws_op *op, uint32_t rank, uint64_t round);
/* The last round in which it may have said so. */
uint64_t laws_tells_by(const struct laws_op *op, uint32_t rank, const struct laws_passive *p);
bool laws_may_turn_passive(const struct laws_op *op, uint32_t rank, uint64_t round);
/* Whether the policy counts nodes. Then a contribution in time may miss its round. */
bool laws_by_nodes(const struct laws_op *op);
/* The era that a round is in, and the round that a contribution is for: aligned rounds. */
uint32_t laws_era_of(const struct laws_op *op, uint64_t round);
uint64_t laws_target(const struct laws_op *op, uint32_t rank, uint32_t index);

/* laws_adaptive.c: the quorum that docs/relaxed.md describes, computed a second time. */
struct laws_adaptive;
struct laws_adaptive *laws_adaptive_new(uint32_t rank_count, bool free_rounds, uint32_t depth,
					uint32_t least);
void laws_adaptive_free(struct laws_adaptive *a);
void laws_adaptive_note(struct laws_adaptive *a, uint32_t rank, uint64_t duration_ns);
void laws_adaptive_round(struct laws_adaptive *a);
uint32_t laws_adaptive_quorum(const struct laws_adaptive *a);

/* The command: argv[0] is "laws". The exit status. */
int laws_command(int argc, char **argv);

#endif
