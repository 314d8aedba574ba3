/*
 * rounds.h -- the partial allreduce as a protocol machine: who opens a round, who is in it, what
 * was late, which result is next, and what survivors of a crash agree on. All that is decided is
 * decided here; runtime/relaxed/partial.c holds buffers and carries the machine's actions out.
 *
 * Rounds r = 0, 1, 2, ... run one after the other; every rank takes part in every round's exchange
 * and reduction, with what it has committed and no round has consumed, or with the identity.
 *
 *   OPEN       until it is activated; then
 *   JOINING    until there is room, the window is over and no merge is under way; then
 *   EXCHANGING until all records are here; then
 *   REDUCING   until the result is here; then the next round is OPEN
 *
 * That is how many ranks do it, and nodes. A few ranks meet once a round, and tell all of them
 * what is told below over trees and by an allgather (rounds_meeting.c).
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
 * Everything that ranks must agree on (fresh, contributors, absence, live ranks, the base of
 * numbers, adaptive k) is computed from records alone.
 *
 * Eras. Passive ranks (left, or draining) are ready with the identity, or what they have pending,
 * for one round, whose record tells; afterwards they are not counted. The round after which no rank
 * is live ends the era, on all ranks the same: those that have not left are live again, and aligned
 * numbers start anew with the next commit's. A rank is given no round of the next era before it has
 * been told that this one is over.
 *
 * Results. The last `slots` of them are kept, in slots that the machine chooses: each until the
 * application has collected and released it, or collection skips it. That, in rounds, is the depth.
 *
 * Commit after failure. A joined contribution is kept until its round is complete here: then nobody
 * reads it any more. When a rank is lost: the survivors stop, tell each other (dead ranks, rounds
 * completed: one that noticed a loss is enough), fetch the newest result that any of them has from
 * one that has it, and end when all survivors with the same dead have completed the same round;
 * what they joined later is pending again.
 *
 * Members. What the policy counts are ranks, or nodes (rounds_nodes.c): then "rank" above is a node
 * where readiness, quorum, draw, flood and groups are told of, its first rank speaks for it, and a
 * round takes in the contributions of whole nodes only. Records stay those of ranks.
 *
 * The machine neither allocates nor reads a clock.
 */
#ifndef RB_COLLECTIVES_PARTIAL_H
#define RB_COLLECTIVES_PARTIAL_H

#include "collectives/nodes.h"
#include "collectives/protocol.h"

struct rb_rounds_config { /* The same on every rank, but for rank. */
	uint32_t rank, rank_count;
	bool average;                   /* The operator is AVG: results are divided. */
	rubato_partial_options options; /* Quorum, group and depth are not 0. */
	const struct rb_nodes *nodes;   /* The members; NULL: each rank is one. */
	uint32_t few; /* So many ranks at most, of those that are the members, meet once a round. */
};
#define RB_ROUNDS_FEW 8u  /* Guess: a rank then sends as many messages as trees and allgather. */
#define RB_ROUNDS_MOST 32 /* That config.few may be. */

/* What a rank tells of its part in a round: travels as it is, 8 words. */
struct rb_rounds_record {
	uint64_t first_step, last_step; /* Of the contributions in it; meaningless if count is 0. */
	uint32_t count;                 /* Contributions in it. */
	uint32_t flags;
	uint64_t weight;      /* Sum of what commits gave: samples. */
	uint64_t duration_ns; /* Of the last one's piece of work: from collect to commit. */
	uint64_t discarded;   /* So far, by the late policy. */
	uint64_t base_step;   /* Number of this rank's first commit of the era, if BASED. */
	uint32_t round;       /* Which one it is for, modulo 2^32: a check. */
	uint16_t in, out;     /* Commit's buffer, if count is not 0; the slot for the result. */
};
#define RB_ROUNDS_RECORD_WORDS 8
_Static_assert(sizeof(struct rb_rounds_record) == 8 * RB_ROUNDS_RECORD_WORDS, "travels as it is");

#define RB_ROUNDS_FRESH 1u    /* A contribution in it was in time for this very round. */
#define RB_ROUNDS_DRAINING 2u /* Commits no more until all have drained. */
#define RB_ROUNDS_LEFT 4u     /* Commits no more. */
#define RB_ROUNDS_BASED 8u    /* Aligned rounds: it has committed in this era. */

/* START events: value says which; `peer` unused. */
enum rb_rounds_call {
	RB_ROUNDS_COMMIT,  /* message: struct rb_rounds_commit. The verdict follows at once. */
	RB_ROUNDS_MERGED,  /* The merge that a verdict asked for is done. */
	RB_ROUNDS_COLLECT, /* The offer follows at once. */
	RB_ROUNDS_LOOK,    /* The same, but that there is none does not tell an era's end. */
	RB_ROUNDS_RELEASE, /* What the last offer lent is given back. */
	RB_ROUNDS_DRAIN,
	RB_ROUNDS_LEAVE,
	/* The application waits in another operation: free rounds then count this rank as ready,
	 * with what is pending, or (where one rank is not enough, and once it has committed in this
	 * era) with nothing, if others have more. Else two operations whose rounds wait for each
	 * other's ranks would wait for ever. */
	RB_ROUNDS_WAITING,
	/* The application neither commits nor collects any more: it drains a last time. */
	RB_ROUNDS_PART,
};

struct rb_rounds_commit {
	uint64_t step; /* Contribution number; must grow. */
	uint64_t weight;
	uint64_t duration_ns;
	uint32_t buffer; /* The runtime's: where it lies, if it is not merged. */
};

/* What the runtime does with the buffer just committed. */
enum rb_rounds_verdict {
	RB_ROUNDS_TAKE,  /* Nothing was pending: it is pending now. */
	RB_ROUNDS_MERGE, /* Reduce it into the pending one, then tell MERGED; no join till then. */
	RB_ROUNDS_REPLACE, /* It takes the place of the pending one, which is discarded. */
	RB_ROUNDS_DISCARD, /* It is discarded. */
};

/* What a COLLECT finds. */
enum rb_rounds_offer {
	RB_ROUNDS_NOTHING,  /* And nothing to wait for. */
	RB_ROUNDS_RESULT,   /* In the slot rb_rounds_view.lent. */
	RB_ROUNDS_WAIT,     /* Nothing yet: this rank waits for a round. */
	RB_ROUNDS_ERA_OVER, /* All have drained (or this rank has left), and it had everything. */
	RB_ROUNDS_NO_MORE,  /* Survivors have agreed, and all that they completed was collected. */
};

/* RUN actions: value = round * RB_ROUNDS_RUNS + which. RUN_DONE comes back with the same value. */
enum rb_rounds_run {
	/* Join: swap the pending buffer (if record.count > 0) in as the round's, else the identity
	 * (and forget it, if the view says that nothing is pending: it is discarded); exchange
	 * machine->record into machine->records. The result is for rb_rounds_view.out. */
	RB_ROUNDS_EXCHANGE,
	RB_ROUNDS_REDUCE,  /* Reduce the round's buffers; the previous round's may be reused. */
	RB_ROUNDS_FETCH,   /* Get the result and records of `round` from action.peer. */
	RB_ROUNDS_SERVE,   /* Give them to action.peer; no RUN_DONE follows. */
	RB_ROUNDS_ABANDON, /* End the run in progress, buffers quiet; no RUN_DONE follows. */
	RB_ROUNDS_RESTORE, /* What was joined in `round` is pending again (merged with what is). */
	RB_ROUNDS_JOIN,    /* As EXCHANGE, but nothing is to be exchanged; no RUN_DONE follows. */
};
#define RB_ROUNDS_RUNS 8

/* DONE actions: value = round * RB_ROUNDS_EVENTS + which. */
enum rb_rounds_done {
	/* Round: its result is final here, in the slot rb_rounds_view.newest; and so are its
	 * records and summary, which are kept until the next step. */
	RB_ROUNDS_COMPLETED,
	RB_ROUNDS_ENDED, /* Survivors agreed: `round` rounds (0 .. round - 1) were completed. */
	/* With RUBATO_ERR_MISMATCH: ranks' first numbers of this era differ, and all ranks see it
	 * in this round's records (rb_rounds_mismatch). Nothing follows. */
	RB_ROUNDS_DIFFERING,
};
#define RB_ROUNDS_EVENTS 4

enum rb_rounds_phase {
	RB_ROUNDS_OPEN,
	RB_ROUNDS_JOINING,
	RB_ROUNDS_EXCHANGING,
	RB_ROUNDS_REDUCING,
	RB_ROUNDS_RECOVERING,
	RB_ROUNDS_FETCHING,
	RB_ROUNDS_OVER,
};
#define RB_ROUNDS_PHASES 7

struct rb_rounds; /* The machine. */

/* Results to be kept. */
uint32_t rb_rounds_slots(const rubato_partial_options *options);
/* Bytes to give to init, 8-aligned. */
size_t rb_rounds_bytes(const struct rb_rounds_config *config);
/* ARGUMENT: the text says which field is impossible. */
RB_NODISCARD rubato_status rb_rounds_init(struct rb_rounds *machine,
					  const struct rb_rounds_config *config);

void rb_rounds_step(struct rb_rounds *machine, const struct rb_protocol_event *event,
		    struct rb_protocol_actions *out);
/* Whether a COMMIT of this number would be right: the rounds go on, this rank neither drains nor
 * has left, and has committed none as high. */
bool rb_rounds_may_commit(const struct rb_rounds *machine, uint64_t step);
/* COLLECT, LOOK or RELEASE, without an event: where that can matter to no round, so that there are
 * no actions and no other phase. False: it may, or it is another call; nothing has happened. */
bool rb_rounds_read_apart(struct rb_rounds *machine, enum rb_rounds_call call);
/* Its invariants: asserted after each step, in test builds. */
bool rb_rounds_valid(const struct rb_rounds *machine);

/* ---- What the runtime reads, between steps ---- */

#define RB_ROUNDS_NO_SLOT UINT32_MAX

struct rb_rounds_view {
	enum rb_rounds_phase phase;
	enum rb_rounds_verdict verdict; /* On the last commit. */
	enum rb_rounds_offer offer;     /* To the last collect. */
	uint64_t round; /* The one that is open or running: those below it are completed here. */
	uint64_t next;  /* Of the results, the next one to be collected. */
	uint64_t last_step;
	/* Contributions of this rank: conservation. joined: in a round not yet completed here. */
	uint64_t committed, delivered, discarded, pending, joined;
	uint64_t merged, full_rounds;
	/* Ready members that the open round needs (0: none is live any more), live members, whether
	 * it is full. */
	uint32_t need, live;
	bool full;
	bool ready; /* This rank waits for the round that is open or running. */
	/* From the call until collect has told that there is no more, and all have drained too. */
	bool draining;
	bool left;
	bool parted; /* PART: nobody opens a round any more. */
	uint32_t out, newest,
		lent; /* Slots of the running round, of the one before, of the loan. */
};
struct rb_rounds_view rb_rounds_view_of(const struct rb_rounds *machine);
/* Of these what is read with every call. */
struct rb_rounds_answer {
	enum rb_rounds_verdict verdict;
	enum rb_rounds_offer offer;
	uint32_t newest, lent;
};
struct rb_rounds_answer rb_rounds_answer_of(const struct rb_rounds *machine);
enum rb_rounds_phase rb_rounds_phase_of(const struct rb_rounds *machine);
const char *rb_rounds_phase_name(enum rb_rounds_phase phase); /* "open", ... */
/* Of the join just asked for. */
const struct rb_rounds_record *rb_rounds_own_record(const struct rb_rounds *machine);
/* rank_count records, by rank: where the exchange (or fetch) of the current round puts them. Of
 * the round before: until the exchange begins. */
struct rb_rounds_record *rb_rounds_records(struct rb_rounds *machine, uint64_t round);
/* What the result of the round that is reduced is divided by. */
double rb_rounds_divisor(struct rb_rounds *machine);
/* Makes the summary of the round that is reduced: else that is done when it is complete. */
void rb_rounds_summarise(struct rb_rounds *machine);
/* What the round holds, this one or the one before, once that is made, as this rank's group sees
 * it; `ranks` and size_bytes are not set. */
const rubato_round *rb_rounds_summary(const struct rb_rounds *machine, uint64_t round);
#define RB_ROUNDS_NOBODY UINT32_MAX
/* The lowest rank that is lost, seen or told by another, or NOBODY. */
uint32_t rb_rounds_lost(const struct rb_rounds *machine);
/* Whether the round waits for a word of that rank, as far as this one has been told: it is not in
 * the round that runs, or not ready for the one that is open. Where few ranks meet
 * (rounds_meeting.c); elsewhere the exchange is a run, which knows: false. */
bool rb_rounds_awaits(const struct rb_rounds *machine, uint32_t rank);
/* Rounds since one held something of a live rank of the member; 0: none is live. */
uint32_t rb_rounds_absent(const struct rb_rounds *machine, uint32_t member);
/* What is pending: count 0, nothing. */
rubato_contribution rb_rounds_pending(const struct rb_rounds *machine);
/* Whether the open round cannot go on without a commit or a collection of this rank's application;
 * *unread: without a collection. It should then not wait elsewhere. */
bool rb_rounds_wants(const struct rb_rounds *machine, bool *unread);
/* Whether this rank has nothing for the open round, and that has not opened: then COLLECT, LOOK and
 * RELEASE lead to no action, no other phase and no wait, whenever they come. */
bool rb_rounds_is_idle(const struct rb_rounds *machine);
/* Whether its policy learns from durations of commits. */
bool rb_rounds_learns(const struct rb_rounds_config *config);
/* After DIFFERING: two ranks, and their first numbers of the era. */
void rb_rounds_mismatch(const struct rb_rounds *machine, uint32_t ranks[2], uint64_t steps[2]);
/* Ranks of this rank's reduction in the current round, ascending; returns how many. All of them
 * but for wagma's rounds that are not full: groups there follow perfect shuffles of the ranks, so
 * that for rank_count = group^m each rank's data reaches all within m such rounds. */
uint32_t rb_rounds_members(const struct rb_rounds *machine, uint32_t *ranks);
/* Whether rounds may be reduced within groups of options.group members, fewer than all; how many
 * ranks such a group has. */
bool rb_rounds_grouped(const struct rb_rounds_config *config);
uint32_t rb_rounds_group_ranks(const struct rb_rounds_config *config);
/* Members: ranks or nodes. */
uint32_t rb_rounds_member_count(const struct rb_rounds_config *config);
/* Whether ranks meet once a round. */
static inline bool rb_rounds_meets(const struct rb_rounds_config *config)
{
	return config->nodes == NULL && config->rank_count <= config->few;
}

/* Whether messages may come from or go to `peer` while nobody is lost: members that are powers of
 * two apart, and places of a node; where ranks meet, all. */
bool rb_rounds_neighbour(const struct rb_rounds_config *config, uint32_t peer);

/* ---- From one machine to another ---- */

/* Words of a state; those of them that are alike on all ranks come first. */
size_t rb_rounds_state_words(const struct rb_rounds_config *config);
size_t rb_rounds_common_words(const struct rb_rounds_config *config);
/* An era is over, whatever other ranks have begun since: not if this one has not drained, has
 * results to be collected or has begun the next one, or a rank has left. */
bool rb_rounds_is_between_eras(const struct rb_rounds *machine);
/* What such a machine goes on from; false: it is not between eras. */
bool rb_rounds_save(const struct rb_rounds *machine, uint64_t *words);
/* After init, before the first event, alike on all ranks. ARGUMENT: no machine can have been so. */
RB_NODISCARD rubato_status rb_rounds_restore(struct rb_rounds *machine, const uint64_t *words);

#endif
