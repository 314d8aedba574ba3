/* rounds_world_inside.h -- what the files of rounds_world.h's worlds share. */
#ifndef TESTS_COLLECTIVES_PARTIAL_WORLD_INSIDE_H
#define TESTS_COLLECTIVES_PARTIAL_WORLD_INSIDE_H

#include <inttypes.h>
#include <setjmp.h>

#include "base/rng.h"
#include "collectives/partial/rounds.h"
#include "rounds_world.h"

#define RANKS_MAX 12
#define ROUNDS_MAX 400
#define EVENTS_MAX 8192
#define LETTERS_MAX 8192
#define STEPS_MAX 60 /* Contributions of a rank: bits of a word. */
#define SLOTS_MAX 8
#define EVENTS_LIMIT 400000
#define NONE UINT32_MAX
#define NEVER UINT64_MAX
#define WEIGHT 3

enum happening { LETTER, RUN_END, TIMER, APPLICATION, GIVE_UP, MERGE_END, LOSS, CRASH, FREEZE };

struct event {
	uint64_t at, order, value;
	enum happening kind;
	uint32_t rank, peer;
};

struct letter {
	uint32_t next;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

/* READING: a result is lent to it. */
enum application { COMPUTING, COLLECTING, READING, WAITING, FINISHED, PARTING, GONE };

struct rank {
	struct rb_rounds *machine;
	uint64_t frozen_until, timer, run, joining_since, ready_since, drain_round;
	enum application state;
	bool dead, ended, draining, left, parted, caught_up, pending_fresh;
	bool awaited;         /* Its application waits in a collect. */
	uint32_t collects;    /* GIVE_UP is of one of them. */
	uint64_t opened;      /* Rounds up to this one, it included, were open here; 0: none. */
	uint64_t due;         /* When it opens or joins, if nothing happens before; or NEVER. */
	uint64_t early_since; /* Joined: when it was ready for that round. */
	uint32_t buffer;      /* Of what is pending. */
	bool knows[RANKS_MAX];
	uint32_t merging, steps, segment, made; /* steps: left in the segment. */
	uint32_t made_before;                   /* This era. */
	uint64_t number, completed, next_join;
	uint64_t produced, delivered, discarded, pending, joined; /* Sets of contributions. */
	uint64_t numbers[STEPS_MAX], durations[STEPS_MAX];
	uint32_t fetch_from;
	/* Results. */
	uint64_t kept[SLOTS_MAX]; /* What has been written to each slot. */
	uint64_t next, lent, cut; /* cut: rounds from here on are not this era's; NEVER: none. */
	uint32_t taken;           /* In this era. */
	bool own_due;
	bool running_fresh; /* It was in time for the running round, perhaps without its node. */
	bool willing;       /* It has waited elsewhere with nothing. */
	bool counted;       /* As willing, in the round that is open. */
	bool parts_next;    /* Parts once the drain before is over. */
};

struct round {
	struct rb_rounds_record records[RANKS_MAX];
	uint64_t sets[RANKS_MAX];
	uint32_t members[RANKS_MAX][RANKS_MAX], member_count[RANKS_MAX];
	uint32_t joined, need, live;
	uint64_t base_round, base_step;               /* Of numbers, in its era. */
	uint8_t passive[RANKS_MAX];                   /* As it was when it began. */
	bool reducing[RANKS_MAX], full, opened, last; /* last: all have drained. */
	/* By node: what its ranks' records tell of it; whether it may stay out, as its first rank
	 * could know. */
	enum { IN_DOUBT, IN_WHOLE, IN_PART_NOT } nodes[RANKS_MAX];
	bool excused[RANKS_MAX];
	bool willing[RANKS_MAX]; /* As they joined. */
};

struct world {
	struct rb_rng rng;
	struct rb_rounds_config config;
	struct rb_nodes layout; /* config.nodes, or NULL there: each rank is a member. */
	uint32_t layout_words[RB_NODES_WORDS(RANKS_MAX)];
	struct rounds_totals *totals;
	uint32_t n, segments, crashes_left, dead_count;
	uint64_t now, order, base_round;
	uint64_t slow;                /* Scale of the network's delays. */
	uint32_t blind, holds, waits; /* Percent: commits in a row; leases held; waits elsewhere. */
	struct rb_rng patience_rng;   /* Percent of collects that do not wait for long. */
	uint32_t impatient;
	bool gaps, parts_at_once; /* Numbers have gaps; all part instead of the last drain. */
	struct rank ranks[RANKS_MAX];
	uint8_t passive[RANKS_MAX];
	uint32_t absent[RANKS_MAX];
	struct round rounds[ROUNDS_MAX];
	struct event heap[EVENTS_MAX];
	uint32_t heap_count;
	struct letter letters[LETTERS_MAX];
	uint32_t letter_free, first[RANKS_MAX][RANKS_MAX], last[RANKS_MAX][RANKS_MAX];
	uint64_t pair_at[RANKS_MAX][RANKS_MAX];
	uint64_t memory[RANKS_MAX][4096];
	jmp_buf broken;
	char *text;
	size_t text_bytes;
};

void __attribute__((noreturn, format(printf, 2, 3)))
world_broke(struct world *w, const char *format, ...);

#define LAW(w, expr, ...)                                                                          \
	do {                                                                                       \
		if (!(expr))                                                                       \
			world_broke((w), __VA_ARGS__);                                             \
	} while (0)

static inline uint64_t below(struct world *w, uint64_t bound)
{
	return rb_rng_below(&w->rng, bound);
}

static inline bool chance(struct world *w, uint64_t percent)
{
	return below(w, 100) < percent;
}

static inline uint32_t bits(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

static inline bool takes(const struct world *w, rubato_collection collection)
{
	return w->config.options.collection == collection;
}

static inline bool is_free(const struct world *w)
{
	return w->config.options.rounds == RUBATO_ROUNDS_FREE;
}

/* ---- Members ---- */

static inline uint32_t member_count(const struct world *w)
{
	return w->config.nodes != NULL ? w->layout.count : w->n;
}

static inline uint32_t member_of(const struct world *w, uint32_t r)
{
	return w->config.nodes != NULL ? w->layout.node_of[r] : r;
}

/* The first rank of its node, or it is alone. */
static inline bool is_first(const struct world *w, uint32_t r)
{
	return w->config.nodes == NULL || w->layout.place_of[r] == 0;
}

/* Meets once a round. */
static inline bool meets(const struct world *w)
{
	return rb_rounds_meets(&w->config);
}

/* ---- rounds_world.c ---- */

/* Mostly short, sometimes long: orders of arrival are all there. */
uint64_t world_delay(struct world *w);
void world_at(struct world *w, uint64_t delay, enum happening kind, uint32_t rank, uint32_t peer,
	      uint64_t value);
void world_event(struct world *w, uint32_t r, struct rb_protocol_event *event);

/* ---- rounds_world_laws.c: what should be, from records ---- */

bool world_newly_passive(const struct world *w, uint32_t r);
/* Rounds before `r` have been joined by all: what does r need? */
void world_round_expect(struct world *w, uint64_t r);
/* Rank `first` is the first that found round r open. */
void world_round_opened(struct world *w, uint64_t r, uint32_t first);
void world_run_start(struct world *w, uint32_t r, const struct rb_protocol_action *action);
void world_run_end(struct world *w, const struct event *e);
void world_completed(struct world *w, uint32_t r, uint64_t number);
void world_machine_check(struct world *w, uint32_t r);

/* ---- rounds_world_application.c ---- */

void world_call(struct world *w, uint32_t r, enum rb_rounds_call what, const void *argument,
		size_t bytes);
void world_segment_begin(struct world *w, uint32_t r, uint32_t segment);
void world_application(struct world *w, uint32_t r);
/* It stops waiting in its `collect`-th collect. */
void world_give_up(struct world *w, uint32_t r, uint64_t collect);
/* Whether rank r is to have room for round `number`: what else is in the way is not asked. */
/* Aligned: an earlier round has taken in its contribution for the next one. */
bool world_gave_early(const struct world *w, uint32_t r);
/* The round that a contribution of the segment is for: each segment's first is for the era's. */
uint64_t world_target(const struct world *w, uint32_t r, uint32_t made);
bool world_has_room(const struct world *w, uint32_t r, uint64_t number);
/* A result is about to be written to `slot`. */
void world_slot_check(struct world *w, uint32_t r, uint32_t slot, uint64_t number);

#endif
