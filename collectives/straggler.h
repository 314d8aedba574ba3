/*
 * straggler.h -- who is the last to come? The machine by which all ranks name the same one.
 *
 * Ranks begin an operation's instance at different times. When all but one have, that one is named,
 * and all run the schedule that was made for it to be late. Naming must not wait for any one rank,
 * as that may be the late one, and all must name the same, also when the last two come at once. So
 * three ranks vote, the judges (ranks 0, 1, 2):
 *
 *   ARRIVED   from every rank that begins, to the judges
 *   VOTE      from a judge to all ranks, once it has heard from all but one: it names that one
 *
 * A judge votes once for an instance and never changes it. Two equal votes name the rank. Two that
 * differ show that all ranks have come, each judge having heard from the other's: then the third is
 * awaited, and if all three differ, judge 0's counts. So the decision is a function of the votes;
 * two of them are never those of the late rank; and no wait is for a rank that has not come while
 * the others have.
 *
 * An instance is over on a rank only when all have begun it, so messages are of the instance that a
 * rank is in, of the next one, or of past ones, whose decision has been made: those are dropped.
 * What else comes is a peer's mistake.
 *
 * Pure: no clock, no memory of its own, no wait. From three ranks on; see protocol.h.
 */
#ifndef RB_COLLECTIVES_STRAGGLER_H
#define RB_COLLECTIVES_STRAGGLER_H

#include "collectives/protocol.h"

#define RB_STRAGGLER_JUDGES 3u
#define RB_STRAGGLER_RANKS_MIN RB_STRAGGLER_JUDGES

struct rb_straggler_vote {
	bool cast;
	uint32_t rank;
};

struct rb_straggler_instance { /* One in flight. */
	struct rb_straggler_vote votes[RB_STRAGGLER_JUDGES];
	uint32_t arrived; /* Of a judge: how many ranks, and whether each. */
	uint8_t *has_arrived;
};

struct rb_straggler {
	uint32_t rank, rank_count;
	uint64_t begun;     /* Instances that this rank has begun: from 1 on; 0: none. */
	bool decided;       /* The last one that it has begun. */
	rubato_status over; /* Not OK: why no more will be decided, and because of whom. */
	uint32_t culprit;
	struct rb_straggler_instance instances[2]; /* That one and the next, by parity. */
};

/* What travels. */
enum rb_straggler_message_kind { RB_STRAGGLER_ARRIVED = 1, RB_STRAGGLER_VOTE = 2 };

struct rb_straggler_message {
	uint32_t kind, rank; /* VOTE: who is named. */
	uint64_t operation;  /* The owner's, for whoever has several machines. */
	uint64_t instance;
	uint64_t reserved[7]; /* 0 */
};
_Static_assert(sizeof(struct rb_straggler_message) == RB_PROTOCOL_MESSAGE_BYTES, "as it is");

/* Whether messages come from `peer` to `rank`. */
static inline bool rb_straggler_neighbour(uint32_t rank, uint32_t peer)
{
	return rank < RB_STRAGGLER_JUDGES || peer < RB_STRAGGLER_JUDGES;
}

/* Bytes for `has_arrived` of both instances. */
static inline size_t rb_straggler_bytes(uint32_t rank, uint32_t rank_count)
{
	return rank < RB_STRAGGLER_JUDGES ? 2 * (size_t)rank_count : 0;
}

/* `memory`: rb_straggler_bytes of it, zeroed; the machine's while it is used. */
void rb_straggler_init(struct rb_straggler *m, uint32_t rank, uint32_t rank_count, uint8_t *memory);

/*
 * START: this rank begins the next instance; the one before is over here. MESSAGE, PEER_LOST: as
 * they come. Actions: SEND, SEND_ALL; RUN, once for each instance that was begun: `value` is the
 * rank that is late; DONE, instead of it, then and for each later START: the status says why there
 * is none (PEER: rank `value` is lost; INTERNAL: what rank `value` has sent is no message of this
 * machine).
 */
void rb_straggler_step(struct rb_straggler *m, const struct rb_protocol_event *event,
		       struct rb_protocol_actions *out);

/* Of the instance that was begun last, undecided: a rank that this one knows not to have come, from
 * `from` on, or rank_count. Judges know; others know nothing (RB_STRAGGLER_UNKNOWN). */
#define RB_STRAGGLER_UNKNOWN UINT32_MAX
uint32_t rb_straggler_absent(const struct rb_straggler *m, uint32_t from);

#endif
