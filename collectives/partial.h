/*
 * partial.h -- the partial allreduce as a protocol machine: who opens a round, who is in it, what
 * was late, and what survivors of a crash agree on.
 *
 * Rounds r = 0, 1, 2, ... run one after the other; every rank takes part in every round's exchange
 * and reduction, with what it has committed and no round has consumed, or with the identity.
 *
 *   OPEN --activated--> JOINING --room, window, no merge--> EXCHANGING --records--> REDUCING -->
 * OPEN
 *
 * Activation. A rank is ready for the open round when it has committed in time for it: aligned
 * rounds, a contribution numbered as the round or above; free rounds, the first commit since this
 * rank has collected every round that ran. The policy says which ready ranks open it:
 *   solo       any
 *   majority   one drawn from the common seed among the live ranks
 *   quorum     the k-th, counted up a binomial tree whose root is round mod rank_count
 *   deadline   the last, or a timer of the first
 *   adaptive   quorum with k from rb_adaptive (durations travel in the records)
 *   wagma      any; the reduction runs in a group
 * A full round needs every live rank. Activation floods the circulant graph of distances 2^j: a
 * message over distance 2^j obliges its receiver to the distances below. So every edge carries at
 * most one message a round, whoever opened it and however many did, and all are reached within
 * ceil(log2 rank_count) hops. Ready counts use the same edges.
 *
 * Records. At its join each rank writes a record (below); the exchange gives all records to all.
 * Everything that ranks must agree on (fresh, contributors, absence, live ranks, adaptive k) is
 * computed from records alone.
 *
 * Passive ranks (left, or draining) are ready with the identity, or what they have pending, for
 * one round, whose record tells; afterwards they are not counted. When no live rank is left, all
 * have drained: those that have not left are live again, and aligned numbers start anew.
 *
 * Commit after failure. A joined contribution is retained until the next exchange is complete,
 * which shows that every rank has completed the round. When a rank is lost: the survivors stop,
 * tell each other (dead ranks, rounds completed: one that noticed a loss is enough), fetch the
 * newest result that any of them has from one that has it, and end when all survivors with the same
 * dead have completed the same round; what they joined later is pending again. Source: DESIGN.md,
 * "Commit after failure".
 *
 * The machine neither allocates nor reads a clock; runtime/partial.c holds buffers and carries its
 * actions out.
 */
#ifndef RB_COLLECTIVES_PARTIAL_H
#define RB_COLLECTIVES_PARTIAL_H

#include "collectives/protocol.h"

enum rb_policy {
	RB_POLICY_SOLO,
	RB_POLICY_MAJORITY,
	RB_POLICY_QUORUM,
	RB_POLICY_DEADLINE,
	RB_POLICY_ADAPTIVE,
	RB_POLICY_WAGMA,
};

enum rb_late { RB_LATE_ACCUMULATE, RB_LATE_LATEST, RB_LATE_DROP };

struct rb_partial_config { /* The same on every rank, but for rank. */
	uint32_t rank, rank_count;
	enum rb_policy policy;
	uint32_t quorum;      /* QUORUM: 1 .. rank_count. */
	uint32_t group;       /* WAGMA: ranks per group; divides rank_count. */
	uint64_t deadline_ns; /* DEADLINE: after the first arrival. */
	uint64_t window_ns;   /* Ranks with nothing wait so long for their application; 0: not. */
	enum rb_late late;
	bool free_rounds;
	bool limited;         /* Collection own and each: round r needs r - depth released here. */
	uint32_t depth;       /* Results kept. */
	uint32_t full_every;  /* Every so many rounds is full (r + 1 divisible); 0: none. */
	uint32_t max_absence; /* After so many rounds without some live rank's contribution a full
				 one follows; 0: never. */
	uint64_t seed;
};

/* What a rank tells of its part in a round: travels as it is, 8 words. */
struct rb_partial_record {
	uint64_t first_step, last_step; /* Of the contributions in it; meaningless if count is 0. */
	uint32_t count;                 /* Contributions in it. */
	uint32_t flags;
	uint64_t weight;      /* Sum of what commits gave: samples. */
	uint64_t duration_ns; /* Of the last piece of work: from collect to commit. */
	uint64_t buffer;      /* The runtime's: which buffer holds it. */
	uint64_t discarded;   /* So far, by the late policy. */
	uint64_t round;       /* Which one it is for: a check. */
};
#define RB_PARTIAL_RECORD_WORDS 8
_Static_assert(sizeof(struct rb_partial_record) == 8 * RB_PARTIAL_RECORD_WORDS, "travels as it is");

#define RB_PARTIAL_FRESH 1u    /* A contribution in it was in time for this very round. */
#define RB_PARTIAL_DRAINING 2u /* Commits no more until all have drained. */
#define RB_PARTIAL_LEFT 4u     /* Commits no more. */

/* START events: value says which; `peer` unused. */
enum rb_partial_call {
	RB_PARTIAL_COMMIT, /* message: struct rb_partial_commit. The verdict follows at once. */
	RB_PARTIAL_MERGED, /* The merge that a verdict asked for is done. */
	/* message: uint64_t; rounds below it are released here. To be told, too, when a collect
	 * finds no more rounds than were released before: free rounds judge commits by the last
	 * collect that took everything. */
	RB_PARTIAL_RELEASED,
	RB_PARTIAL_DRAIN,
	RB_PARTIAL_LEAVE,
	/* The application waits in another operation: free rounds then count this rank as ready,
	 * with what is pending, or (once per commit, where one rank is not enough) with nothing.
	 * Else two operations whose rounds wait for each other's ranks would wait for ever. */
	RB_PARTIAL_WAITING,
};

struct rb_partial_commit {
	uint64_t step; /* Contribution number; must grow. */
	uint64_t weight;
	uint64_t duration_ns;
};

/* What the runtime does with the buffer just committed. */
enum rb_partial_verdict {
	RB_PARTIAL_TAKE,  /* Nothing was pending: it is pending now. */
	RB_PARTIAL_MERGE, /* Reduce it into the pending one, then tell MERGED; no join till then. */
	RB_PARTIAL_REPLACE, /* It takes the place of the pending one, which is discarded. */
	RB_PARTIAL_DISCARD, /* It is discarded. */
};

/* RUN actions: value = round * RB_PARTIAL_RUNS + which. RUN_DONE comes back with the same value. */
enum rb_partial_run {
	/* Join: swap the pending buffer (if record.count > 0) in as the round's, else the identity;
	 * exchange machine->record into machine->records. */
	RB_PARTIAL_EXCHANGE,
	RB_PARTIAL_REDUCE,  /* Reduce the round's buffers; the previous round's may be reused. */
	RB_PARTIAL_FETCH,   /* Get the result and records of `round` from action.peer. */
	RB_PARTIAL_SERVE,   /* Give them to action.peer; no RUN_DONE follows. */
	RB_PARTIAL_ABANDON, /* End the run in progress, buffers quiet; no RUN_DONE follows. */
	RB_PARTIAL_RESTORE, /* What was joined in `round` is pending again (merged with what is). */
};
#define RB_PARTIAL_RUNS 8

/* DONE actions: value = round * RB_PARTIAL_EVENTS + which; status is RUBATO_OK in all. */
enum rb_partial_done {
	RB_PARTIAL_COMPLETED, /* Round: its result is final here, and so are the records, which
				 the actions after this one may overwrite: copy them now. */
	RB_PARTIAL_DRAINED,   /* After COMPLETED of the same round. */
	RB_PARTIAL_ENDED, /* Survivors agreed: `round` rounds (0 .. round - 1) were completed. */
};
#define RB_PARTIAL_EVENTS 4

enum rb_partial_phase {
	RB_PARTIAL_OPEN,
	RB_PARTIAL_JOINING,
	RB_PARTIAL_EXCHANGING,
	RB_PARTIAL_REDUCING,
	RB_PARTIAL_RECOVERING,
	RB_PARTIAL_FETCHING,
	RB_PARTIAL_OVER,
};

struct rb_partial; /* The machine. */
extern const struct rb_protocol rb_partial_protocol;

/* Bytes to give to init, 8-aligned. */
size_t rb_partial_bytes(const struct rb_partial_config *config);
/* ARGUMENT: the text says which field is impossible. */
RB_NODISCARD rubato_status rb_partial_init(struct rb_partial *machine,
					   const struct rb_partial_config *config);

/* ---- What the runtime reads, between steps ---- */

enum rb_partial_verdict rb_partial_verdict(const struct rb_partial *machine);
enum rb_partial_phase rb_partial_phase(const struct rb_partial *machine);
/* The round that is open or running: those below it are completed here. */
uint64_t rb_partial_round(const struct rb_partial *machine);
/* Own record of the join just asked for; `buffer` is the runtime's to fill in. */
struct rb_partial_record *rb_partial_record(struct rb_partial *machine);
/* rank_count records, by rank: where the exchange (or fetch) of the current round puts them. */
struct rb_partial_record *rb_partial_records(struct rb_partial *machine);
/* Whether this rank waits for the round that is open or running, having committed in time. */
bool rb_partial_ready(const struct rb_partial *machine);
/* Ranks of this rank's reduction in the current round, ascending; returns how many. All of them
 * but for wagma's rounds that are not full: groups there follow perfect shuffles of the ranks, so
 * that for rank_count = group^m each rank's data reaches all within m such rounds. */
uint32_t rb_partial_members(const struct rb_partial *machine, uint32_t *ranks);
/* Whether messages may come from or go to `peer` while nobody is lost: powers of two apart. */
bool rb_partial_neighbour(const struct rb_partial_config *config, uint32_t peer);

struct rb_partial_counts { /* Of this rank's contributions: conservation. */
	uint64_t produced, delivered, discarded, pending, joined; /* joined: in a round not yet
								     completed here. */
};
struct rb_partial_counts rb_partial_counts(const struct rb_partial *machine);
/* Ready ranks that the open round needs (0: no rank is live any more), live ranks, whether it is
 * full: for insight and laws. */
uint32_t rb_partial_need(const struct rb_partial *machine);
uint32_t rb_partial_live(const struct rb_partial *machine);
bool rb_partial_full(const struct rb_partial *machine);

#endif
