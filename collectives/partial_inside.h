/* partial_inside.h -- what the files of the partial allreduce's machine share. */
#ifndef RB_COLLECTIVES_PARTIAL_INSIDE_H
#define RB_COLLECTIVES_PARTIAL_INSIDE_H

#include "collectives/adaptive.h"
#include "collectives/partial.h"

/*
 * Faults that a test variant of these sources can be told to have, one at a time: the laws must
 * notice each (tests/collectives/test_partial_mutants.c). Elsewhere they are not compiled.
 */
enum rb_mutant {
	RB_MUTANT_NONE,
	RB_MUTANT_FORGET_SWAP,
	RB_MUTANT_KEEP_FRESH,
	RB_MUTANT_JOIN_DURING_MERGE,
	RB_MUTANT_IGNORE_ROOM,
	RB_MUTANT_IGNORE_WINDOW,
	RB_MUTANT_SKIP_FULL,
	RB_MUTANT_FORGET_ABSENCE,
	RB_MUTANT_COUNT_TWICE,
	RB_MUTANT_FORWARD_TWICE,
	RB_MUTANT_LATE_IS_READY,
	RB_MUTANT_WRONG_CHILD,
	RB_MUTANT_FEWER_CHILDREN,
	RB_MUTANT_STALE_COUNT,
	RB_MUTANT_DRAW_DEAD,
	RB_MUTANT_OPEN_EARLY,
	RB_MUTANT_DEADLINE_DEAF,
	RB_MUTANT_HIDE_DRAIN,
	RB_MUTANT_COUNT_PASSIVE,
	RB_MUTANT_KEEP_BASE,
	RB_MUTANT_KEEP_DRAINING,
	RB_MUTANT_LOSE_DISCARDED,
	RB_MUTANT_LATE_IS_FRESH,
	RB_MUTANT_EARLY_IS_LATE,
	RB_MUTANT_GO_ON_AFTER_LOSS,
	RB_MUTANT_END_UNEQUAL,
	RB_MUTANT_END_UNHEARD,
	RB_MUTANT_END_OTHER_DEAD,
	RB_MUTANT_NEVER_FETCH,
	RB_MUTANT_FETCH_FROM_ANY,
	RB_MUTANT_FETCH_FROM_DEAD,
	RB_MUTANT_TELL_ONCE,
	RB_MUTANT_SILENT_AT_END,
	RB_MUTANT_FORGET_RESTORE,
	RB_MUTANT_RESTORE_DELIVERED,
	RB_MUTANT_FETCH_UNCOUNTED,
	RB_MUTANT_COUNT
};
#ifdef RB_MUTANTS
extern enum rb_mutant rb_mutant_chosen;
#define RB_MUTANT(name) (rb_mutant_chosen == RB_MUTANT_##name)
#else
#define RB_MUTANT(name) false
/* Whether the two reduce together in `round`, the current one or the one before. */
bool rb_partial_together(const struct rb_partial *m, uint64_t round, uint32_t a, uint32_t b);

#endif

enum rb_partial_message_kind {
	RB_PARTIAL_MESSAGE_ACTIVATE = 1, /* The round is open; value: index of the distance. */
	RB_PARTIAL_MESSAGE_READY,        /* value more ranks are ready for the round. */
	RB_PARTIAL_MESSAGE_STATE, /* Of recovery. round: completed ones; value: a lost rank. */
	RB_PARTIAL_MESSAGE_FETCH, /* Please serve the round's result. */
};

struct rb_partial_message {
	uint32_t kind, value;
	uint64_t round;
	uint64_t dead_hash;
	uint32_t dead_count;
	uint32_t reserved[5]; /* 0 */
};
_Static_assert(sizeof(struct rb_partial_message) == RB_PROTOCOL_MESSAGE_BYTES, "travels as it is");

#define RB_PARTIAL_NOBODY UINT32_MAX

/* Activation and counts of one round; messages come for the current round and the next. */
struct rb_partial_slot {
	uint32_t sent;          /* Bit i: distance 2^i has been told. */
	uint32_t arrived, told; /* Ready ranks known here, and passed on to the parent. */
	bool active;
};

/* Contributions of this rank, not delivered yet. */
struct rb_partial_load {
	uint64_t first_step, last_step, weight;
	uint32_t count;
	bool fresh; /* One of them is in time for the first round not joined. */
};

struct rb_partial_peer { /* What a survivor told last. */
	uint64_t completed, dead_hash;
	uint32_t dead_count;
	bool heard, dead;
};

struct rb_partial {
	struct rb_partial_config config;
	enum rb_partial_phase phase;
	enum rb_partial_verdict verdict;
	uint64_t round;
	uint32_t levels; /* Distances: 2^0 .. 2^(levels - 1). */

	/* The application. */
	struct rb_partial_load pending, joined;
	uint64_t produced, delivered, discarded; /* Contributions. */
	uint64_t duration_ns;                    /* Of the last one. */
	uint64_t base_round, base_step; /* Aligned: contribution base_step is for base_round. */
	bool based;
	uint64_t released;  /* Rounds below it. */
	uint64_t caught_up; /* Free: rounds joined here when all that ran had been released. */
	uint32_t merging;   /* Merges not done. */
	uint32_t flags;     /* RB_PARTIAL_DRAINING, _LEFT. */
	bool is_joined;     /* This rank is in the running round. */

	/* The open round: from the records of those before. */
	uint32_t live, need, initiator;
	uint64_t turn; /* Grouped rounds so far: wagma's rotation. */
	bool willing,
		lent; /* RB_PARTIAL_WAITING with nothing pending; already, since the last commit. */
	uint64_t last_turn; /* As turn and full were in the round before. */
	bool last_full;
	bool full;
	bool arrived;                /* This rank is counted. */
	uint64_t opens_ns, joins_ns; /* When the deadline and the window end. */
	struct rb_partial_slot slots[2];

	/* Recovery. */
	uint32_t dead_count, fetch_from;
	uint64_t dead_hash;

	struct rb_partial_record record;
	struct rb_partial_record *records; /* rank_count each, in the machine's own memory. */
	struct rb_partial_peer *peers;
	struct rb_adaptive *adaptive;
	uint32_t *absent; /* Rounds since the last contribution. */
	uint8_t *told;    /* Passive flags that records have shown. */
};

/* Distance 2^i to the right, around the ring. */
static inline uint32_t rb_partial_right(const struct rb_partial *m, uint32_t distance)
{
	return (uint32_t)(((uint64_t)m->config.rank + distance) % m->config.rank_count);
}

static inline bool rb_partial_is_over(const struct rb_partial *m)
{
	return m->phase >= RB_PARTIAL_RECOVERING;
}

/* partial_activation.c: the flood and the count. */
bool rb_partial_counting(const struct rb_partial *m);
/* This rank's ready count changed or the round has just opened: tell the parent. */
void rb_partial_count_forward(struct rb_partial *m, struct rb_protocol_actions *out);
/* This rank opens the current round. */
void rb_partial_activate(struct rb_partial *m, struct rb_protocol_actions *out);
/* ACTIVATE or READY, of the current round or the next. */
void rb_partial_flood_message(struct rb_partial *m, const struct rb_partial_message *message,
			      struct rb_protocol_actions *out);
uint32_t rb_partial_draw(const struct rb_partial *m);

/* partial_recovery.c: what survivors agree on. */
void rb_partial_lose(struct rb_partial *m, uint32_t peer, struct rb_protocol_actions *out);
void rb_partial_recovery_message(struct rb_partial *m, uint32_t from,
				 const struct rb_partial_message *message,
				 struct rb_protocol_actions *out);
void rb_partial_fetched(struct rb_partial *m, struct rb_protocol_actions *out);
/* Fetches or ends if it can. */
void rb_partial_recovery_advance(struct rb_partial *m, struct rb_protocol_actions *out);

/* partial.c */
void rb_partial_say(struct rb_protocol_actions *out, enum rb_protocol_act act, uint32_t peer,
		    const struct rb_partial_message *message);
void rb_partial_run(struct rb_partial *m, enum rb_partial_run which, uint32_t peer,
		    struct rb_protocol_actions *out);
/* The round's result and records are here. */
void rb_partial_complete(struct rb_partial *m, struct rb_protocol_actions *out);
bool rb_partial_valid(const void *machine);

/* Whether the two reduce together in `round`, the current one or the one before. */
bool rb_partial_together(const struct rb_partial *m, uint64_t round, uint32_t a, uint32_t b);

#endif
