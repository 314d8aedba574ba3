/* rounds_inside.h -- what the files of the partial allreduce's machine share. */
#ifndef RB_COLLECTIVES_PARTIAL_INSIDE_H
#define RB_COLLECTIVES_PARTIAL_INSIDE_H

#include "collectives/partial/adaptive.h"
#include "collectives/partial/rounds.h"

enum rb_rounds_message_kind {
	RB_ROUNDS_MESSAGE_ACTIVATE = 1, /* The round is open; value: index of the distance. */
	RB_ROUNDS_MESSAGE_READY,        /* value more ranks are ready for the round. */
	RB_ROUNDS_MESSAGE_STATE, /* Of recovery. round: completed ones; value: a lost rank. */
	RB_ROUNDS_MESSAGE_FETCH, /* Please serve the round's result. */
};

struct rb_rounds_message {
	uint32_t kind, value;
	uint64_t round;
	uint64_t dead_hash;
	uint32_t dead_count;
	uint32_t wanted;      /* READY: one of those ranks has something for the round. */
	uint32_t reserved[4]; /* 0 */
};
_Static_assert(sizeof(struct rb_rounds_message) == RB_PROTOCOL_MESSAGE_BYTES, "travels as it is");

#define RB_ROUNDS_NEVER UINT64_MAX

/* Activation and counts of one round; messages come for the current round and the next. */
struct rb_rounds_tally {
	uint32_t sent;            /* Bit i: distance 2^i has been told. */
	uint32_t arrived, told;   /* Ready ranks known here, and passed on to the parent. */
	bool wanted, wanted_told; /* Some of them are not only willing. */
	bool active;
};

/* Contributions of this rank, not delivered yet. */
struct rb_rounds_load {
	uint64_t first_step, last_step, weight, duration_ns;
	uint32_t count;
	bool fresh; /* One of them is in time for the first round not joined. */
};

struct rb_rounds_peer { /* What a survivor told last. */
	uint64_t completed, dead_hash;
	uint32_t dead_count;
	bool heard, dead;
};

enum rb_rounds_parting { RB_ROUNDS_STAYS, RB_ROUNDS_PARTS_NEXT, RB_ROUNDS_PARTS };

struct rb_rounds {
	struct rb_rounds_config config;
	enum rb_rounds_phase phase;
	uint64_t round;
	uint32_t levels; /* Distances: 2^0 .. 2^(levels - 1). */

	/* The application's contributions. */
	struct rb_rounds_load pending, joined;
	uint64_t committed, delivered, discarded, merged, last_step;
	enum rb_rounds_verdict verdict;
	uint32_t merging; /* Merges not done. */
	uint32_t flags;   /* RB_ROUNDS_DRAINING, _LEFT. */
	bool is_joined;   /* This rank is in the running round. */
	bool willing;     /* RB_ROUNDS_WAITING with nothing pending; */
	bool counted;     /* not before it has committed in this era. */

	/* Aligned rounds: contribution base_step is for base_round. After a drain it is the first
	 * number of all ranks, which records tell, and own_base that of this rank, once it has. */
	uint64_t base_round, base_step, own_base;
	bool based, first_era;
	uint32_t differing[2]; /* Ranks. */

	/* Results: rounds_results.c. */
	uint64_t *kept; /* Per slot: its round, or NEVER. */
	uint32_t slot_count, out, newest, lent;
	uint64_t next;      /* The next round to be collected: those below are, or were skipped. */
	uint64_t limit;     /* Rounds from here on are not for collection yet; NEVER: none. */
	uint64_t caught_up; /* Free: rounds joined here when all that ran had been released. */
	bool own_due;       /* Own: a contribution's round is to be collected: `next`. */
	enum rb_rounds_offer offer;
	enum rb_rounds_parting parting;
	bool parted;

	/* The open round: from the records of those before. */
	uint32_t live, need, initiator;
	uint64_t turn; /* Grouped rounds so far: wagma's rotation. */
	uint64_t last_turn, full_rounds;
	bool full, last_full;        /* last: of the round before. */
	bool arrived;                /* This rank is counted. */
	uint64_t opens_ns, joins_ns; /* When the deadline and the window end. */
	struct rb_rounds_tally tallies[2];
	rubato_round summary;

	/* Recovery. */
	uint32_t dead_count, fetch_from;
	uint64_t dead_hash;

	struct rb_rounds_record record;
	struct rb_rounds_record *records; /* rank_count each, in the machine's own memory. */
	struct rb_rounds_peer *peers;
	struct rb_adaptive *adaptive;
	uint32_t *absent; /* Rounds since the last contribution. */
	uint8_t *told;    /* Passive flags that records have shown. */
};

/* Distance 2^i to the right, around the ring. */
static inline uint32_t rb_rounds_right(const struct rb_rounds *m, uint32_t distance)
{
	return (uint32_t)(((uint64_t)m->config.rank + distance) % m->config.rank_count);
}

static inline bool rb_rounds_is_over(const struct rb_rounds *m)
{
	return m->phase >= RB_ROUNDS_RECOVERING;
}

static inline bool rb_rounds_is_free(const struct rb_rounds *m)
{
	return m->config.options.rounds == RUBATO_ROUNDS_FREE;
}

/* The first round that this rank has not joined. */
static inline uint64_t rb_rounds_next_join(const struct rb_rounds *m)
{
	return m->round + m->is_joined;
}

/* rounds_activation.c: the flood and the count. */
bool rb_rounds_counting(const struct rb_rounds *m);
/* This rank's ready count changed or the round has just opened: tell the parent. */
void rb_rounds_count_forward(struct rb_rounds *m, struct rb_protocol_actions *out);
/* This rank opens the current round. */
void rb_rounds_activate(struct rb_rounds *m, struct rb_protocol_actions *out);
/* ACTIVATE or READY, of the current round or the next. */
void rb_rounds_flood_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			     struct rb_protocol_actions *out);

/* rounds_recovery.c: what survivors agree on. */
void rb_rounds_lose(struct rb_rounds *m, uint32_t peer, struct rb_protocol_actions *out);
void rb_rounds_recovery_message(struct rb_rounds *m, uint32_t from,
				const struct rb_rounds_message *message,
				struct rb_protocol_actions *out);
void rb_rounds_fetched(struct rb_rounds *m, struct rb_protocol_actions *out);
/* Fetches or ends if it can. */
void rb_rounds_recovery_advance(struct rb_rounds *m, struct rb_protocol_actions *out);

/* rounds_records.c: what follows from records. */
/* Records are here. False: ranks' numbers differ, this is the end. */
bool rb_rounds_records_read(struct rb_rounds *m);
/* The round is over: who is passive, absent, the era's end. */
void rb_rounds_records_apply(struct rb_rounds *m);
/* Live ranks, need and bounds of m->round. */
void rb_rounds_round_prepare(struct rb_rounds *m);
/* The round that contribution `step` is for: aligned rounds. */
uint64_t rb_rounds_target(const struct rb_rounds *m, uint64_t step);
/* Whether a full round waits for this rank, which was in none of the last ones. */
bool rb_rounds_overdue(const struct rb_rounds *m);
/* Whether the two reduce together in `round`, the current one or the one before. */
bool rb_rounds_together(const struct rb_rounds *m, uint64_t round, uint32_t a, uint32_t b);

/* rounds_results.c: what is collected when. */
void rb_rounds_collect(struct rb_rounds *m, bool looks);
void rb_rounds_release(struct rb_rounds *m);
void rb_rounds_part(struct rb_rounds *m);
/* Own: a contribution is committed; whether in time. */
void rb_rounds_own_note(struct rb_rounds *m, uint64_t step, bool in_time);
/* The era that this rank has drained into, or its own, ends with the current round. */
void rb_rounds_era_over(struct rb_rounds *m);
/* Where the next round's result goes; NO_SLOT: nowhere, what is there is still to be read. */
uint32_t rb_rounds_slot_find(const struct rb_rounds *m);

/* rounds.c */
void rb_rounds_act_send(struct rb_protocol_actions *out, enum rb_protocol_act act, uint32_t peer,
			const struct rb_rounds_message *message);
void rb_rounds_act_run(struct rb_rounds *m, enum rb_rounds_run which, uint32_t peer,
		       struct rb_protocol_actions *out);
void rb_rounds_act_done(struct rb_rounds *m, enum rb_rounds_done which, rubato_status status,
			struct rb_protocol_actions *out);
/* The round's result and records are here. */
void rb_rounds_complete(struct rb_rounds *m, struct rb_protocol_actions *out);

#endif
