/* rounds_inside.h -- what the files of the partial allreduce's machine share. */
#ifndef RB_COLLECTIVES_PARTIAL_INSIDE_H
#define RB_COLLECTIVES_PARTIAL_INSIDE_H

#include <stddef.h>

#include "collectives/partial/adaptive.h"
#include "collectives/partial/rounds.h"

enum rb_rounds_message_kind {
	RB_ROUNDS_MESSAGE_ACTIVATE = 1, /* The round is open; value: index of the distance. */
	RB_ROUNDS_MESSAGE_READY,        /* value more members are ready for the round. */
	RB_ROUNDS_MESSAGE_STATE, /* Of recovery. round: completed ones; value: a lost rank. */
	RB_ROUNDS_MESSAGE_FETCH, /* Please serve the round's result. */
	/* Within a node. NODE: value more ranks are ready for the round, `bring` more have
	 * something for it. JOIN: join the round; value 1: with what there is, 0: with nothing. */
	RB_ROUNDS_MESSAGE_NODE,
	RB_ROUNDS_MESSAGE_JOIN,
	RB_ROUNDS_MESSAGE_MEET, /* What a rank says of the round to all: the bits below. */
};

struct rb_rounds_message {
	uint32_t kind, value;
	uint64_t round;
	union {
		struct {
			uint64_t dead_hash;
			uint32_t dead_count;
			uint32_t wanted; /* READY, NODE: one of those has something in time for
					    the round. */
			uint32_t bring;
			uint32_t reserved[11]; /* 0 */
		};
		struct rb_rounds_record record; /* MEET: if it JOINS. */
	};
};
_Static_assert(sizeof(struct rb_rounds_message) == RB_PROTOCOL_MESSAGE_BYTES, "travels as it is");
#define RB_ROUNDS_MESSAGE_HEAD offsetof(struct rb_rounds_message, record)

/* MEET: the rank counts as ready; has something in time for the round; opens it (where others
 * cannot see that for themselves: its deadline is over); has joined it. */
#define RB_ROUNDS_COUNTS 1u
#define RB_ROUNDS_WANTS 2u
#define RB_ROUNDS_OPENS 4u
#define RB_ROUNDS_JOINS 8u

#define RB_ROUNDS_NEVER UINT64_MAX

/* ---- The parts of the machine ---- */

/* What a contribution of this rank is, or several that have been merged. */
struct rb_rounds_load {
	uint64_t first_step, last_step, weight, duration_ns;
	uint32_t count;
	uint32_t buffer;
	bool fresh; /* One of them is in time for the first round not joined. */
};

/* What has become of this rank's contributions, and of rounds. */
struct rb_rounds_counts {
	uint64_t committed, delivered, discarded, merged;
	uint64_t last_step; /* The number of the last commit. */
	uint64_t full_rounds;
};

/* PARTS_NEXT: drains once more when the drain that goes on is over. */
enum rb_rounds_parting { RB_ROUNDS_STAYS, RB_ROUNDS_PARTS_NEXT, RB_ROUNDS_PARTS };

/* From one drain of all ranks to the next. */
struct rb_rounds_era {
	uint32_t flags; /* RB_ROUNDS_DRAINING, _LEFT. */
	bool is_first;
	bool begun; /* This rank has committed in it. */
	bool parted;
	enum rb_rounds_parting parting;
	uint64_t *cut;  /* What rb_rounds_save says, as it was when the last one ended. */
	bool cut_whole; /* All ranks were in it. */
};

/* Aligned rounds: contribution base_step is for base_round, if `based`. After a drain it is the
 * first number of all ranks, which records show, and own_first that of this rank, once it has
 * begun. */
struct rb_rounds_numbers {
	uint64_t base_round, base_step, own_first;
	bool based;
	uint32_t differing[2]; /* Ranks. */
};

/* What is kept, and collected. */
struct rb_rounds_results {
	uint64_t *kept; /* Per slot: its round, or NEVER. */
	uint32_t slot_count, out, newest, lent;
	uint64_t next;      /* The next round to be collected: those below are, or were skipped. */
	uint64_t limit;     /* Rounds from here on are not for collection yet; NEVER: none. */
	uint64_t caught_up; /* Free: rounds joined here when all that ran had been released. */
	bool own_due;       /* Own: a contribution's round is to be collected: `next`. */
	enum rb_rounds_offer offer;
};

/* What a rank knows of its node's ranks that stand below it, itself included. */
struct rb_rounds_below {
	uint32_t ready, bring; /* Ready, or willing; with something pending, or newly passive. */
	bool wanted;           /* Some of them are not only willing. */
	bool ready_told, bring_told, wanted_told;
};

/* The flood and the count of one round; messages come for the current round and the next. */
struct rb_rounds_activation {
	uint32_t sent;                 /* Bit i: to distance 2^i. */
	uint32_t ready, forwarded;     /* Ready members known here, and told to the parent. */
	bool wanted, wanted_forwarded; /* Some of them are not only willing. */
	bool active;
	bool whole; /* Active: this node takes part with what its ranks have. */
	struct rb_rounds_below below;
};

/* What ranks have said of a round where they meet, a bit each. */
struct rb_rounds_meeting {
	uint32_t counted, wanted, here;
	uint32_t ready; /* So many are counted. */
	uint32_t told;  /* What this rank has said. */
	bool called;    /* It is open: one of them says so. */
};

/* How the open round comes to run; what it needs follows from the records before. */
struct rb_rounds_opening {
	uint32_t levels; /* Distances: 2^0 .. 2^(levels - 1). */
	uint32_t live, need, initiator;
	bool full;
	bool counts;                 /* Ready members are counted. */
	bool counted;                /* This member is, as ready. */
	bool own_ready, own_bring;   /* This rank is in `below`. */
	uint64_t opens_ns, joins_ns; /* When the deadline and the window end. */
	struct rb_rounds_activation activations[2];
	struct rb_rounds_meeting meetings[2]; /* Instead of them, where ranks meet. */
};

/* Wagma's groups: turn is the number of grouped rounds so far; last: of the round before. */
struct rb_rounds_groups {
	uint64_t turn, last_turn;
	bool last_full;
};

/* What ranks tell each other of a round, and what it says: by parity, for where ranks meet those
 * of the next one come while this one runs. Elsewhere there is one table of records. */
struct rb_rounds_exchange {
	struct rb_rounds_record own;
	struct rb_rounds_record *records[2]; /* By rank. */
	rubato_round summaries[2];
	bool summarised; /* The current round's is made: its records are here. */
};

/* What records have shown of each rank, by rank. */
struct rb_rounds_ranks {
	uint8_t *passive; /* RB_ROUNDS_DRAINING, _LEFT. */
	uint32_t *absent; /* Rounds since the last contribution. */
	struct rb_adaptive *adaptive;
};

struct rb_rounds_peer { /* What a survivor has said last. */
	uint64_t completed, dead_hash;
	uint32_t dead_count;
	bool heard, dead;
};

/* What survivors of a loss know: rounds_recovery.c. */
struct rb_rounds_recovery {
	uint32_t dead_count, fetch_from;
	uint64_t dead_hash;
	struct rb_rounds_peer *peers; /* By rank. */
};

struct rb_rounds { /* Tables of ranks and slots follow it in its own memory. */
	struct rb_rounds_config config;
	enum rb_rounds_phase phase;
	uint64_t round; /* The one that is open or running. */
	bool is_joined; /* This rank is in it; where ranks meet, perhaps before it is open. */
	bool awaited;   /* The application waits for it: it will commit nothing before. */

	/* This rank's contributions that are not delivered yet. */
	struct rb_rounds_load pending, joined;
	enum rb_rounds_verdict verdict;
	uint32_t merging; /* Merges not done. */
	bool willing;     /* RB_ROUNDS_WAITING with nothing pending. */

	struct rb_rounds_counts counts;
	struct rb_rounds_era era;
	struct rb_rounds_numbers numbers;
	struct rb_rounds_results results;
	struct rb_rounds_opening opening;
	struct rb_rounds_groups groups;
	struct rb_rounds_exchange exchange;
	struct rb_rounds_ranks ranks;
	struct rb_rounds_recovery recovery;
};

static inline uint32_t rb_rounds_member_of(const struct rb_rounds_config *config, uint32_t rank)
{
	return config->nodes != NULL ? config->nodes->node_of[rank] : rank;
}

/* The rank that speaks for a member. */
static inline uint32_t rb_rounds_head(const struct rb_rounds_config *config, uint32_t member)
{
	return config->nodes != NULL ? rb_node_rank(config->nodes, member, 0) : member;
}

static inline bool rb_rounds_is_head(const struct rb_rounds *m)
{
	return m->config.nodes == NULL || m->config.nodes->place_of[m->config.rank] == 0;
}

/* The member at that distance to the right of this rank's, around the ring. */
static inline uint32_t rb_rounds_right(const struct rb_rounds *m, uint32_t distance)
{
	uint64_t member = rb_rounds_member_of(&m->config, m->config.rank);

	return (uint32_t)((member + distance) % rb_rounds_member_count(&m->config));
}

static inline struct rb_rounds_activation *rb_rounds_activation_of(struct rb_rounds *m,
								   uint64_t round)
{
	return &m->opening.activations[round & 1];
}

/* Of the current round. */
static inline const struct rb_rounds_record *rb_rounds_record_of(const struct rb_rounds *m,
								 uint32_t rank)
{
	return &m->exchange.records[m->round & 1][rank];
}

static inline struct rb_rounds_meeting *rb_rounds_meeting_of(struct rb_rounds *m, uint64_t round)
{
	return &m->opening.meetings[round & 1];
}

static inline bool rb_rounds_is_over(const struct rb_rounds *m)
{
	return m->phase >= RB_ROUNDS_RECOVERING;
}

static inline bool rb_rounds_is_free(const struct rb_rounds *m)
{
	return m->config.options.rounds == RUBATO_ROUNDS_FREE;
}

/* It drains, or has left. */
static inline bool rb_rounds_is_passive(const struct rb_rounds *m)
{
	return m->era.flags != 0;
}

/* The first round that this rank has not joined. */
static inline uint64_t rb_rounds_next_join(const struct rb_rounds *m)
{
	return m->round + m->is_joined;
}

/* ---- rounds_agreement.c: what all ranks agree on ---- */

struct rb_rounds_policy { /* Of a round that is not full. */
	/* How many ready ranks it needs, of those that are live at most. */
	uint32_t (*need)(const struct rb_rounds *m);
	bool counts;  /* Ready ranks are counted; else whoever is ready opens it, */
	bool draws;   /* or, of those that are live, one that is drawn. */
	bool timed;   /* The first ready rank opens it after deadline_ns. */
	bool bounded; /* options.quorum says how many, or how many at least. */
	bool learns;  /* From durations in records: it has an rb_adaptive. */
	bool grouped; /* It is reduced within groups of options.group ranks. */
};
const struct rb_rounds_policy *rb_rounds_policy_of(const struct rb_rounds_config *config);

/* Live ranks, need and bounds of m->round. */
void rb_rounds_round_prepare(struct rb_rounds *m);
/* Whether a full round waits for this rank, which was in none of the last ones. */
bool rb_rounds_overdue(const struct rb_rounds *m);
/* The round is open: what this rank has for that is counted, and passed on. True: it is active, as
 * this rank has found, or was told. */
bool rb_rounds_open(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out);
/* ACTIVATE or READY, of the current round or the next. */
void rb_rounds_flood_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			     struct rb_protocol_actions *out);

/* Whether this rank has something for the first round that it has not joined: a contribution in
 * time, or the word that it drains or leaves. */
bool rb_rounds_is_ready(const struct rb_rounds *m);
/* Whether it counts as ready, with nothing: never where a full round waits for its contribution. */
bool rb_rounds_is_willing(const struct rb_rounds *m);

/* ---- rounds_meeting.c: where ranks meet once a round ---- */

/* All that can happen now without a further event. */
void rb_rounds_meeting_advance(struct rb_rounds *m, uint64_t now_ns,
			       struct rb_protocol_actions *out);
/* MEET, of the current round or the next. Of the message there is the head; its record is apart. */
void rb_rounds_meeting_message(struct rb_rounds *m, uint32_t from,
			       const struct rb_rounds_message *message, const void *record);
bool rb_rounds_meeting_valid(const struct rb_rounds *m);

/* ---- rounds_nodes.c: what the ranks of a node agree on ---- */

/* Ranks of a member that are not passive. */
uint32_t rb_rounds_member_live(const struct rb_rounds *m, uint32_t member);
/* What this rank has for the round that is open or has opened: counted, and told to whom it stands
 * below. */
void rb_rounds_node_note(struct rb_rounds *m, struct rb_protocol_actions *out);
/* First rank: whether all live ranks of its node are ready; and not only willing. */
bool rb_rounds_node_counts(const struct rb_rounds *m);
bool rb_rounds_node_ready(const struct rb_rounds *m);
/* First rank: whether none of them has nothing. */
bool rb_rounds_node_full(const struct rb_rounds *m);
/* The round is to be joined by this rank and those below it in its node. */
void rb_rounds_node_join(struct rb_rounds *m, uint64_t round, bool whole,
			 struct rb_protocol_actions *out);
/* NODE or JOIN. */
void rb_rounds_node_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			    struct rb_protocol_actions *out);

/* Records are here. False: ranks' numbers differ, this is the end. */
bool rb_rounds_records_read(struct rb_rounds *m);
/* The round is over: who goes on, whether the era ends, and what the next one needs. */
void rb_rounds_next(struct rb_rounds *m);
/* The round that contribution `step` is for: aligned rounds. */
uint64_t rb_rounds_target(const struct rb_rounds *m, uint64_t step);
/* Whether the two reduce together in `round`, the current one or the one before. */
bool rb_rounds_together(const struct rb_rounds *m, uint64_t round, uint32_t a, uint32_t b);

/* ---- rounds_recovery.c: what survivors agree on ---- */

void rb_rounds_lose(struct rb_rounds *m, uint32_t peer, struct rb_protocol_actions *out);
void rb_rounds_recovery_message(struct rb_rounds *m, uint32_t from,
				const struct rb_rounds_message *message,
				struct rb_protocol_actions *out);
void rb_rounds_fetched(struct rb_rounds *m, struct rb_protocol_actions *out);
/* Fetches or ends if it can. */
void rb_rounds_recovery_advance(struct rb_rounds *m, struct rb_protocol_actions *out);

/* ---- rounds.c ---- */

void rb_rounds_act_send(struct rb_protocol_actions *out, enum rb_protocol_act act, uint32_t peer,
			const struct rb_rounds_message *message);
void rb_rounds_act_wake(struct rb_protocol_actions *out, uint64_t at_ns);
void rb_rounds_act_run(struct rb_rounds *m, enum rb_rounds_run which, uint32_t peer,
		       struct rb_protocol_actions *out);
void rb_rounds_act_done(struct rb_rounds *m, enum rb_rounds_done which, rubato_status status,
			struct rb_protocol_actions *out);
/* Whether this rank may join; but for the window. */
bool rb_rounds_has_room(const struct rb_rounds *m);
/* Joins, `whole`: with what there is. */
void rb_rounds_join(struct rb_rounds *m, bool whole, enum rb_rounds_run run,
		    struct rb_protocol_actions *out);
/* All records are here: reduces, or ends where ranks' numbers differ. */
void rb_rounds_exchanged(struct rb_rounds *m, struct rb_protocol_actions *out);
/* The round's result and records are here. */
void rb_rounds_complete(struct rb_rounds *m, struct rb_protocol_actions *out);
/* The era that this rank has drained into, or its own, ends with the current round. */
void rb_rounds_era_over(struct rb_rounds *m);
/* The first round of the next era is the current one. */
void rb_rounds_cut(struct rb_rounds *m);

#endif
