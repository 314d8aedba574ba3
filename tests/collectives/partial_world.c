/*
 * partial_world.c -- the worlds of partial_world.h. What a machine should do is told from the
 * records and from what the applications did, by rules written down a second time here.
 */
#include "partial_world.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/partial.h"

#define RANKS_MAX 12
#define ROUNDS_MAX 400
#define EVENTS_MAX 8192
#define LETTERS_MAX 8192
#define STEPS_MAX 60 /* Contributions of a rank: bits of a word. */
#define EVENTS_LIMIT 400000
#define NONE UINT32_MAX

enum happening { LETTER, RUN_END, TIMER, APPLICATION, MERGE_END, LOSS, CRASH, FREEZE };

struct event {
	uint64_t at, order, value;
	enum happening kind;
	uint32_t rank, peer;
};

struct letter {
	uint32_t next;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

enum application { COMPUTING, COLLECTING, WAITING, FINISHED, GONE };

struct rank {
	struct rb_partial *machine;
	uint64_t frozen_until, timer, run, joining_since, ready_since, drain_round;
	enum application state;
	bool dead, ended, draining, left, caught_up, pending_fresh, joining, knows[RANKS_MAX];
	uint32_t merging, steps, segment, made; /* steps: left in the segment. */
	uint64_t number, completed, next_join;
	uint64_t produced, delivered, discarded, pending, joined; /* Sets of contributions. */
	uint64_t numbers[STEPS_MAX];
	uint32_t fetch_from;
};

struct round {
	struct rb_partial_record records[RANKS_MAX];
	uint64_t sets[RANKS_MAX];
	uint32_t members[RANKS_MAX][RANKS_MAX], member_count[RANKS_MAX];
	uint32_t joined, need, live;
	bool reducing[RANKS_MAX], full, opened, last; /* last: all have drained. */
};

struct world {
	struct rb_rng rng;
	struct rb_partial_config config;
	struct partial_totals *totals;
	uint32_t n, segments, crashes_left, dead_count;
	uint64_t now, order, base_round, released_from[RANKS_MAX];
	uint64_t slow; /* Scale of the network's delays. */
	bool tells_empty;
	struct rank ranks[RANKS_MAX];
	uint8_t told[RANKS_MAX];
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

static void __attribute__((noreturn, format(printf, 2, 3)))
broke(struct world *w, const char *format, ...)
{
	va_list args;
	int length = snprintf(w->text, w->text_bytes, "t=%" PRIu64 " ", w->now);

	va_start(args, format);
	(void)vsnprintf(w->text + length, w->text_bytes - (size_t)length, format, args);
	va_end(args);
	longjmp(w->broken, 1);
}

#define LAW(w, expr, ...)                                                                          \
	do {                                                                                       \
		if (!(expr))                                                                       \
			broke((w), __VA_ARGS__);                                                   \
	} while (0)

static uint64_t below(struct world *w, uint64_t bound)
{
	return rb_rng_below(&w->rng, bound);
}

static bool chance(struct world *w, uint64_t percent)
{
	return below(w, 100) < percent;
}

static uint32_t bits(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

/* ---- Time ---- */

static bool sooner(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void at(struct world *w, uint64_t delay, enum happening kind, uint32_t rank, uint32_t peer,
	       uint64_t value)
{
	struct event event = { .at = w->now + delay,
			       .order = w->order++,
			       .kind = kind,
			       .rank = rank,
			       .peer = peer,
			       .value = value };
	uint32_t i = w->heap_count++;

	LAW(w, w->heap_count <= EVENTS_MAX, "the harness holds too few events");
	for (; i > 0 && sooner(&event, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = event;
}

static struct event next_event(struct world *w)
{
	struct event top = w->heap[0], moved = w->heap[--w->heap_count];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= w->heap_count)
			break;
		if (child + 1 < w->heap_count && sooner(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!sooner(&w->heap[child], &moved))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = moved;
	return top;
}

/* Mostly short, sometimes long: orders of arrival are all there. */
static uint64_t delay(struct world *w)
{
	return 1 + (chance(w, 10) ? below(w, 20 * w->slow) : below(w, w->slow));
}

/* ---- The network ---- */

static void letter_send(struct world *w, uint32_t from, uint32_t to, const uint8_t *message)
{
	uint32_t l = w->letter_free;

	LAW(w, from != to && to < w->n, "rank %u sends to %u", from, to);
	LAW(w, l != NONE, "the harness holds too few messages");
	LAW(w,
	    w->dead_count > 0 ||
		    rb_partial_neighbour(
			    &((struct rb_partial_config) { .rank = from, .rank_count = w->n }), to),
	    "rank %u sends to %u, which is no neighbour", from, to);
	w->letter_free = w->letters[l].next;
	w->letters[l].next = NONE;
	memcpy(w->letters[l].message, message, sizeof(w->letters[l].message));
	if (w->first[from][to] == NONE)
		w->first[from][to] = l;
	else
		w->letters[w->last[from][to]].next = l;
	w->last[from][to] = l;
	at(w, delay(w), LETTER, to, from, 0);
}

static bool letter_take(struct world *w, uint32_t from, uint32_t to, uint8_t *message)
{
	uint32_t l = w->first[from][to];

	if (l == NONE)
		return false; /* Lost in a crash. */
	memcpy(message, w->letters[l].message, sizeof(w->letters[l].message));
	w->first[from][to] = w->letters[l].next;
	w->letters[l].next = w->letter_free;
	w->letter_free = l;
	return true;
}

/* The last messages of a pair are lost. */
static void letters_cut(struct world *w, uint32_t from, uint32_t to)
{
	uint32_t count = 0, l;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];

	for (l = w->first[from][to]; l != NONE; l = w->letters[l].next)
		count++;
	if (count == 0)
		return;
	count = (uint32_t)below(w, count + 1);
	if (count == 0) {
		while (letter_take(w, from, to, message))
			;
		return;
	}
	for (l = w->first[from][to]; --count > 0;)
		l = w->letters[l].next;
	w->letters[w->last[from][to]].next = NONE;
	while (w->letters[l].next != NONE) {
		uint32_t gone = w->letters[l].next;

		w->letters[l].next = w->letters[gone].next;
		w->letters[gone].next = w->letter_free;
		w->letter_free = gone;
	}
	w->last[from][to] = l;
}

/* ---- What should be, from records ---- */

static bool newly_passive(const struct world *w, uint32_t r)
{
	const struct rank *rank = &w->ranks[r];

	/* A rank may not know yet that what it drained into was the end of all. */
	return w->told[r] == 0 &&
	       (rank->left || (rank->draining && rank->drain_round >= w->base_round));
}

static bool counts_as_ready(const struct world *w, uint32_t r)
{
	return w->told[r] == 0 && (w->ranks[r].pending_fresh || newly_passive(w, r));
}

/* Rounds before `r` have been joined by all: what does r need? */
static void round_expect(struct world *w, uint64_t r)
{
	const struct rb_partial_config *c = &w->config;
	struct round *round = &w->rounds[r];

	round->live = 0;
	round->full = c->full_every > 0 && (r + 1) % c->full_every == 0;
	for (uint32_t i = 0; i < w->n; i++) {
		round->live += w->told[i] == 0;
		if (c->max_absence > 0 && w->told[i] == 0 && w->absent[i] >= c->max_absence)
			round->full = true;
	}
	round->need = round->live > 0;
	if (round->full)
		round->need = round->live;
	else if (c->policy == RB_POLICY_QUORUM)
		round->need = c->quorum < round->live ? c->quorum : round->live;
	else if (c->policy == RB_POLICY_DEADLINE)
		round->need = round->live;
	else if (c->policy == RB_POLICY_ADAPTIVE)
		round->need = 0; /* What the first rank says is what all must say. */
}

static uint32_t drawn(const struct world *w, uint64_t r, uint32_t live)
{
	uint64_t hash = rb_mix(w->config.seed ^ rb_mix(r + 0x9e3779b97f4a7c15u));
	uint32_t left = (uint32_t)(((rb_u128)hash * live) >> 64);

	for (uint32_t i = 0; i < w->n; i++)
		if (w->told[i] == 0 && left-- == 0)
			return i;
	return NONE;
}

/* Rank `first` is the first that found round r open. */
static void round_opened(struct world *w, uint64_t r, uint32_t first)
{
	struct round *round = &w->rounds[r];
	uint32_t ready = 0, draw = NONE;
	bool late_enough = false;

	round->opened = true;
	if (round->need == 0)
		round->need = rb_partial_need(w->ranks[first].machine);
	for (uint32_t i = 0; i < w->n; i++) {
		if (!counts_as_ready(w, i))
			continue;
		ready++;
		if (w->ranks[i].ready_since + w->config.deadline_ns <= w->now)
			late_enough = true;
	}
	if (!round->full && w->config.policy == RB_POLICY_MAJORITY) {
		draw = drawn(w, r, round->live);
		LAW(w, draw != NONE && counts_as_ready(w, draw),
		    "round %" PRIu64 " is open, but not by rank %u, which was drawn", r, draw);
	}
	if (w->config.policy == RB_POLICY_DEADLINE && !round->full && ready < round->need) {
		LAW(w, late_enough, "round %" PRIu64 " is open before the deadline", r);
		w->totals->deadlines++;
		return;
	}
	LAW(w, ready >= round->need, "round %" PRIu64 " is open with %u of %u ready ranks", r,
	    ready, round->need);
}

/* All have joined round r: what follows for the next ones. */
static void round_joined(struct world *w, uint64_t r)
{
	struct round *round = &w->rounds[r];

	round->last = true;
	for (uint32_t i = 0; i < w->n; i++) {
		const struct rb_partial_record *record = &round->records[i];

		w->told[i] = record->flags & (RB_PARTIAL_DRAINING | RB_PARTIAL_LEFT);
		w->absent[i] = record->count > 0 ? 0 : w->absent[i] + 1;
		LAW(w,
		    w->config.max_absence == 0 || w->told[i] != 0 ||
			    w->absent[i] <= w->config.max_absence,
		    "rank %u is in none of the last %u rounds up to %" PRIu64, i, w->absent[i], r);
		round->last = round->last && w->told[i] != 0;
	}
	if (round->last) {
		w->base_round = r + 1;
		for (uint32_t i = 0; i < w->n; i++) {
			w->told[i] &= (uint8_t)~RB_PARTIAL_DRAINING;
			w->absent[i] = 0;
		}
	}
	w->totals->rounds++;
	w->totals->full += round->full;
	LAW(w, r + 1 < ROUNDS_MAX, "more rounds than contributions");
	memset(&w->rounds[r + 1], 0, sizeof(w->rounds[r + 1]));
	round_expect(w, r + 1);
}

/* ---- Runs ---- */

static void run_ends(struct world *w, uint32_t r, uint64_t value)
{
	at(w, delay(w), RUN_END, r, (uint32_t)w->ranks[r].run, value);
}

static void exchange(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];
	struct round *round = &w->rounds[number];
	const struct rb_partial_record *record = rb_partial_record(rank->machine);
	bool passive = rank->draining || rank->left;

	LAW(w, number == rank->next_join && number == rank->completed, "rank %u joins %" PRIu64, r,
	    number);
	LAW(w, rank->merging == 0, "rank %u joins during a merge", r);
	LAW(w, record->round == number && record->count == bits(rank->pending),
	    "rank %u joins %" PRIu64 " with %u contributions, not %u", r, number, record->count,
	    bits(rank->pending));
	LAW(w, ((record->flags & RB_PARTIAL_FRESH) != 0) == rank->pending_fresh,
	    "rank %u in round %" PRIu64 ": fresh is wrong", r, number);
	LAW(w,
	    ((record->flags & RB_PARTIAL_DRAINING) != 0) == rank->draining &&
		    ((record->flags & RB_PARTIAL_LEFT) != 0) == rank->left,
	    "rank %u in round %" PRIu64 ": passive is wrong", r, number);
	LAW(w, record->discarded == bits(rank->discarded) && record->weight == 3 * record->count,
	    "rank %u in round %" PRIu64 ": discarded or weight", r, number);
	if (record->count > 0)
		LAW(w,
		    record->first_step == rank->numbers[__builtin_ctzll(rank->pending)] &&
			    record->last_step == rank->numbers[63 - __builtin_clzll(rank->pending)],
		    "rank %u in round %" PRIu64 ": steps", r, number);
	LAW(w, record->count > 0 || passive || w->now >= rank->joining_since + w->config.window_ns,
	    "rank %u joins with nothing before the window ends", r);
	LAW(w, !w->config.limited || rank->left || number < w->released_from[r] + w->config.depth,
	    "rank %u joins %" PRIu64 " without room: released %" PRIu64, r, number,
	    w->released_from[r]);
	rank->next_join = number + 1;
	rank->joined = rank->pending;
	rank->pending = 0;
	rank->pending_fresh = rank->caught_up = rank->joining = false;
	round->records[r] = *record;
	round->sets[r] = rank->joined;
	if (++round->joined < w->n)
		return;
	round_joined(w, number);
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->ranks[i].dead && (w->dead_count == 0 || chance(w, 50)))
			run_ends(w, i, number * RB_PARTIAL_RUNS + RB_PARTIAL_EXCHANGE);
}

static void reduce(struct world *w, uint32_t r, uint64_t number)
{
	struct round *round = &w->rounds[number];
	uint32_t *members = round->members[r], count;
	bool all = true, self = false;
	bool grouped = w->config.policy == RB_POLICY_WAGMA && !round->full;

	count = round->member_count[r] = rb_partial_members(w->ranks[r].machine, members);
	round->reducing[r] = true;
	LAW(w, count == (grouped ? w->config.group : w->n), "%u members", count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t member = members[i];

		LAW(w, i == 0 || member > members[i - 1], "members do not ascend");
		self = self || member == r;
		all = all && round->reducing[member];
		if (round->reducing[member])
			LAW(w,
			    memcmp(members, round->members[member], count * sizeof(*members)) == 0,
			    "ranks %u and %u reduce in different groups", r, member);
	}
	LAW(w, self, "rank %u reduces without itself", r);
	for (uint32_t i = 0; all && i < count; i++)
		if (!w->ranks[members[i]].dead && (w->dead_count == 0 || chance(w, 50)))
			run_ends(w, members[i], number * RB_PARTIAL_RUNS + RB_PARTIAL_REDUCE);
}

static void run_start(struct world *w, uint32_t r, const struct rb_protocol_action *action)
{
	struct rank *rank = &w->ranks[r];
	uint64_t number = action->value / RB_PARTIAL_RUNS;

	switch ((enum rb_partial_run)(action->value % RB_PARTIAL_RUNS)) {
	case RB_PARTIAL_EXCHANGE:
		exchange(w, r, number);
		break;
	case RB_PARTIAL_REDUCE:
		reduce(w, r, number);
		break;
	case RB_PARTIAL_FETCH:
		LAW(w, w->ranks[action->peer].completed > number,
		    "rank %u fetches round %" PRIu64 " from %u, which has it not", r, number,
		    action->peer);
		LAW(w, number == rank->completed, "rank %u fetches %" PRIu64, r, number);
		rank->fetch_from = action->peer;
		w->totals->fetches++;
		break;
	case RB_PARTIAL_SERVE:
		LAW(w, rank->completed == number + 1, "rank %u serves %" PRIu64, r, number);
		if (!w->ranks[action->peer].dead && w->ranks[action->peer].fetch_from == r)
			run_ends(w, action->peer, number * RB_PARTIAL_RUNS + RB_PARTIAL_FETCH);
		break;
	case RB_PARTIAL_ABANDON:
		rank->run++;
		rank->fetch_from = NONE;
		break;
	case RB_PARTIAL_RESTORE:
		LAW(w, number == rank->completed && rank->joined != 0, "rank %u restores", r);
		rank->pending |= rank->joined;
		rank->joined = 0;
		w->totals->restored++;
		break;
	}
}

static void machine_event(struct world *w, uint32_t r, struct rb_protocol_event *event);

static void run_end(struct world *w, const struct event *e)
{
	struct rank *rank = &w->ranks[e->rank];
	struct rb_partial_record *records = rb_partial_records(rank->machine);
	uint64_t number = e->value / RB_PARTIAL_RUNS;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_RUN_DONE, .value = e->value };

	if ((uint32_t)rank->run != e->peer)
		return;
	if (e->value % RB_PARTIAL_RUNS == RB_PARTIAL_FETCH)
		rank->fetch_from = NONE;
	if (e->value % RB_PARTIAL_RUNS != RB_PARTIAL_REDUCE)
		memcpy(records, w->rounds[number].records, w->n * sizeof(*records));
	machine_event(w, e->rank, &event);
}

/* ---- Applications ---- */

static void application_next(struct world *w, uint32_t r);

static void call(struct world *w, uint32_t r, enum rb_partial_call what, const void *argument,
		 size_t bytes)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = what };

	memcpy(event.message, argument, bytes);
	machine_event(w, r, &event);
}

static enum rb_partial_verdict expected_verdict(const struct world *w, const struct rank *rank,
						bool fresh)
{
	if (!fresh && w->config.late == RB_LATE_DROP)
		return RB_PARTIAL_DISCARD;
	if (rank->pending == 0)
		return RB_PARTIAL_TAKE;
	return w->config.late == RB_LATE_LATEST && !rank->pending_fresh ? RB_PARTIAL_REPLACE
									: RB_PARTIAL_MERGE;
}

static void commit(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	uint32_t made = rank->made++;
	struct rb_partial_commit c = { .step = rank->number,
				       .weight = 3,
				       .duration_ns = below(w, 99) };
	bool fresh = w->config.free_rounds ? rank->caught_up
					   : w->base_round + rank->number - 1000 * rank->segment >=
						     rank->next_join;
	enum rb_partial_verdict verdict = expected_verdict(w, rank, fresh);

	rank->numbers[made] = rank->number++;
	rank->produced |= 1ull << made;
	w->totals->late += !fresh;
	/* The machine acts on it at once: the pending set must be ready for a join. */
	if (verdict == RB_PARTIAL_DISCARD) {
		rank->discarded |= 1ull << made;
	} else {
		if (verdict == RB_PARTIAL_REPLACE) {
			rank->discarded |= rank->pending;
			rank->pending = 0;
		}
		rank->pending |= 1ull << made;
		if (fresh && !rank->pending_fresh)
			rank->ready_since = w->now;
		rank->pending_fresh = rank->pending_fresh || fresh;
	}
	rank->merging += verdict == RB_PARTIAL_MERGE;
	w->totals->merges += verdict == RB_PARTIAL_MERGE;
	call(w, r, RB_PARTIAL_COMMIT, &c, sizeof(c));
	LAW(w, rb_partial_verdict(rank->machine) == verdict, "rank %u: verdict %d instead of %d", r,
	    (int)rb_partial_verdict(rank->machine), (int)verdict);
	if (verdict == RB_PARTIAL_MERGE)
		at(w, delay(w), MERGE_END, r, 0, 0);
}

static void collect(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	uint64_t upto = rank->completed;
	bool news = upto > w->released_from[r];

	if (news || w->tells_empty) {
		w->released_from[r] = upto;
		rank->caught_up = true;
		call(w, r, RB_PARTIAL_RELEASED, &upto, sizeof(upto));
	}
	if (rank->state != COLLECTING)
		return;
	rank->state = WAITING;
	if (!rb_partial_ready(rank->machine) && !rank->draining)
		application_next(w, r);
}

/* What the application does when it need not wait. */
static void application_next(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	if (rank->steps > 0 && rank->made < STEPS_MAX) {
		rank->steps--;
		rank->state = COMPUTING;
		at(w, chance(w, 15) ? below(w, 3000) : below(w, 150), APPLICATION, r, 0, 0);
	} else if (chance(w, 12)) {
		rank->left = true;
		rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
		rank->state = GONE;
		w->totals->left++;
		call(w, r, RB_PARTIAL_LEAVE, "", 0);
	} else {
		rank->draining = true;
		rank->drain_round = rank->next_join;
		rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
		rank->state = WAITING;
		call(w, r, RB_PARTIAL_DRAIN, "", 0);
	}
}

static void application(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	if (rank->ended || rank->state == GONE || rank->state == FINISHED)
		return;
	if (rank->state == COMPUTING) {
		commit(w, r);
		rank->state = COLLECTING;
		if (rank->steps > 0 && chance(w, 10)) { /* Twice in one go. */
			rank->steps--;
			commit(w, r);
		}
		at(w, below(w, 5), APPLICATION, r, 0, 0);
	} else if (rank->state == COLLECTING) {
		collect(w, r);
	}
}

static void segment_begin(struct world *w, uint32_t r, uint32_t segment)
{
	struct rank *rank = &w->ranks[r];

	rank->segment = segment;
	rank->number = 1000 * segment;
	rank->steps = (uint32_t)below(w, STEPS_MAX / w->segments / 2);
}

/* ---- Machines ---- */

static void completed(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];
	struct round *round = &w->rounds[number];

	LAW(w, number == rank->completed, "rank %u completes %" PRIu64 " after %" PRIu64, r, number,
	    rank->completed);
	LAW(w, round->joined == w->n, "rank %u completes %" PRIu64 ", which %u joined", r, number,
	    round->joined);
	LAW(w,
	    memcmp(rb_partial_records(rank->machine), round->records,
		   w->n * sizeof(round->records[0])) == 0,
	    "rank %u has other records of %" PRIu64, r, number);
	LAW(w, rank->joined == round->sets[r], "rank %u: what is in round %" PRIu64, r, number);
	LAW(w, (rank->delivered & rank->joined) == 0, "rank %u delivers twice", r);
	rank->delivered |= rank->joined;
	rank->joined = 0;
	rank->completed++;
	if (rank->pending_fresh)
		rank->ready_since = w->now;
	if (newly_passive(w, r) && !rank->pending_fresh)
		rank->ready_since = w->now;
}

static void drained(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];

	LAW(w, w->rounds[number].last && number + 1 == rank->completed, "rank %u has drained", r);
	LAW(w, rank->pending == 0, "rank %u has drained with something pending", r);
	rank->draining = false;
	w->totals->drained++;
	if (rank->state == GONE || rank->ended)
		return;
	if (rank->segment + 1 < w->segments)
		segment_begin(w, r, rank->segment + 1);
	else
		rank->state = FINISHED;
}

static void done(struct world *w, uint32_t r, const struct rb_protocol_action *action)
{
	struct rank *rank = &w->ranks[r];
	uint64_t number = action->value / RB_PARTIAL_EVENTS;

	switch ((enum rb_partial_done)(action->value % RB_PARTIAL_EVENTS)) {
	case RB_PARTIAL_COMPLETED:
		completed(w, r, number);
		break;
	case RB_PARTIAL_DRAINED:
		drained(w, r, number);
		break;
	case RB_PARTIAL_ENDED:
		LAW(w, !rank->ended && w->dead_count > 0 && number == rank->completed,
		    "rank %u ends after %" PRIu64, r, number);
		rank->ended = true;
		break;
	}
	if (rank->state == WAITING) {
		rank->state = COLLECTING;
		at(w, below(w, 20), APPLICATION, r, 0, 0);
	}
}

static void actions_do(struct world *w, uint32_t r, const struct rb_protocol_actions *actions)
{
	for (uint32_t i = 0; i < actions->count; i++) {
		const struct rb_protocol_action *action = &actions->item[i];

		switch (action->act) {
		case RB_PROTOCOL_SEND:
			letter_send(w, r, action->peer, action->message);
			break;
		case RB_PROTOCOL_SEND_ALL:
			for (uint32_t p = 0; p < w->n; p++)
				if (p != r && !w->ranks[r].knows[p])
					letter_send(w, r, p, action->message);
			break;
		case RB_PROTOCOL_RUN:
			run_start(w, r, action);
			break;
		case RB_PROTOCOL_WAKE:
			LAW(w, action->value >= w->now, "rank %u wakes in the past", r);
			w->ranks[r].timer = action->value;
			at(w, action->value - w->now, TIMER, r, 0, action->value);
			break;
		case RB_PROTOCOL_DONE:
			done(w, r, action);
			break;
		}
	}
}

static void machine_check(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	struct rb_partial_counts c = rb_partial_counts(rank->machine);
	struct round *round = &w->rounds[rank->completed];

	LAW(w,
	    c.produced == bits(rank->produced) && c.delivered == bits(rank->delivered) &&
		    c.discarded == bits(rank->discarded) && c.pending == bits(rank->pending) &&
		    c.joined == bits(rank->joined),
	    "rank %u counts wrongly", r);
	LAW(w, rb_partial_round(rank->machine) == rank->completed, "rank %u: round", r);
	if (rb_partial_phase(rank->machine) > RB_PARTIAL_REDUCING || rank->ended)
		return;
	LAW(w,
	    rb_partial_live(rank->machine) == round->live &&
		    rb_partial_full(rank->machine) == round->full,
	    "rank %u sees other live ranks or bounds in %" PRIu64, r, rank->completed);
	if (round->need == 0)
		round->need = rb_partial_need(rank->machine);
	LAW(w, rb_partial_need(rank->machine) == round->need,
	    "rank %u needs %u, not %u in %" PRIu64, r, rb_partial_need(rank->machine), round->need,
	    rank->completed);
	if (w->config.policy == RB_POLICY_DEADLINE && !round->full && counts_as_ready(w, r) &&
	    rb_partial_phase(rank->machine) == RB_PARTIAL_OPEN)
		LAW(w,
		    w->now <= rank->ready_since + w->config.deadline_ns ||
			    w->now <= rank->frozen_until,
		    "rank %u does not open %" PRIu64 " at its deadline", r, rank->completed);
}

static void machine_event(struct world *w, uint32_t r, struct rb_protocol_event *event)
{
	struct rank *rank = &w->ranks[r];
	struct rb_protocol_actions actions;
	const struct rb_protocol *protocol = &rb_partial_protocol;
	const char *what = "";

	actions.count = 0;
	event->now_ns = w->now;
	LAW(w, protocol->valid(rank->machine), "rank %u is not valid before an event", r);
	protocol->step(rank->machine, event, &actions);
	LAW(w, protocol->valid(rank->machine), "rank %u is not valid", r);
	LAW(w, !rb_broken_take(&what), "rank %u: %s", r, what);
	uint64_t number = rb_partial_round(rank->machine);
	bool joining = rb_partial_phase(rank->machine) == RB_PARTIAL_JOINING;

	for (uint32_t i = 0; i < actions.count; i++)
		joining = joining || (actions.item[i].act == RB_PROTOCOL_RUN &&
				      actions.item[i].value == number * RB_PARTIAL_RUNS);
	if (joining && !rank->joining) {
		/* Told before the actions, among which the join may be. */
		rank->joining = true;
		rank->joining_since = w->now;
		if (!w->rounds[number].opened)
			round_opened(w, number, r);
	}
	actions_do(w, r, &actions);
	machine_check(w, r);
}

/* ---- Faults ---- */

static void crash(struct world *w)
{
	uint32_t dead = (uint32_t)below(w, w->n);
	bool foremost = chance(w, 50); /* Who has completed most: the rest need what it has. */

	if (w->dead_count + 1 == w->n)
		return;
	while (w->ranks[dead].dead)
		dead = (dead + 1) % w->n;
	for (uint32_t r = 0; foremost && r < w->n; r++)
		if (!w->ranks[r].dead && w->ranks[r].completed > w->ranks[dead].completed)
			dead = r;
	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];
		enum rb_partial_phase phase = rb_partial_phase(rank->machine);
		bool running = phase == RB_PARTIAL_EXCHANGING || phase == RB_PARTIAL_REDUCING;

		w->totals->late_crashes += r == dead && rank->ended;
		if (r == dead || rank->dead)
			continue;
		letters_cut(w, dead, r);
		/* What the dead rank had sent has come, or has not. */
		if ((running || rank->fetch_from == dead) && chance(w, 50))
			rank->run++;
		at(w, chance(w, 30) ? below(w, 3000) : delay(w), LOSS, r, dead, 0);
	}
	w->ranks[dead].dead = true;
	w->dead_count++;
	w->totals->crashes++;
}

static void happen(struct world *w, const struct event *e)
{
	struct rank *rank = &w->ranks[e->rank];
	struct rb_protocol_event event = { .peer = e->peer };

	switch (e->kind) {
	case LETTER:
		event.kind = RB_PROTOCOL_MESSAGE;
		if (letter_take(w, e->peer, e->rank, event.message) && !rank->knows[e->peer])
			machine_event(w, e->rank, &event);
		break;
	case RUN_END:
		run_end(w, e);
		break;
	case TIMER:
		event.kind = RB_PROTOCOL_TIMER;
		if (rank->timer == e->value)
			machine_event(w, e->rank, &event);
		break;
	case APPLICATION:
		application(w, e->rank);
		break;
	case MERGE_END:
		rank->merging--;
		call(w, e->rank, RB_PARTIAL_MERGED, "", 0);
		break;
	case LOSS:
		rank->knows[e->peer] = true;
		event.kind = RB_PROTOCOL_PEER_LOST;
		machine_event(w, e->rank, &event);
		break;
	case CRASH:
		crash(w);
		break;
	case FREEZE:
		rank->frozen_until = w->now + below(w, 2000);
		w->totals->freezes++;
		break;
	}
}

/* ---- The end ---- */

static void end_check(struct world *w)
{
	uint64_t rounds = UINT64_MAX;

	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];
		uint64_t delivered = 0;

		if (rank->dead)
			continue;
		rounds = rounds == UINT64_MAX ? rank->completed : rounds;
		LAW(w, rank->completed == rounds || w->config.policy == RB_POLICY_WAGMA,
		    "rank %u ends after %" PRIu64 " rounds, not %" PRIu64, r, rank->completed,
		    rounds);
		for (uint64_t i = 0; i < rank->completed; i++)
			delivered |= w->rounds[i].sets[r];
		LAW(w,
		    rank->delivered == delivered && rank->joined == 0 &&
			    (rank->delivered | rank->discarded | rank->pending) == rank->produced &&
			    bits(rank->delivered) + bits(rank->discarded) + bits(rank->pending) ==
				    bits(rank->produced),
		    "rank %u: something is lost or twice there", r);
		if (w->dead_count > 0) {
			LAW(w, rank->ended, "rank %u never ends", r);
			continue;
		}
		LAW(w, rank->state == FINISHED || rank->state == GONE,
		    "rank %u is stuck in round %" PRIu64 ", phase %d, application %d", r,
		    rank->completed, (int)rb_partial_phase(rank->machine), (int)rank->state);
		LAW(w, rank->pending == 0, "rank %u has something pending at the end", r);
	}
}

/* ---- The beginning ---- */

static void config_draw(struct world *w)
{
	struct rb_partial_config *c = &w->config;
	uint32_t n = 1 + (uint32_t)below(w, chance(w, 25) ? RANKS_MAX : 5);

	w->n = c->rank_count = n;
	c->policy = (enum rb_policy)below(w, 6);
	c->quorum = 1 + (uint32_t)below(w, n);
	c->group = 1 + (uint32_t)below(w, n);
	while (n % c->group != 0)
		c->group--;
	c->deadline_ns = below(w, 400);
	c->window_ns = chance(w, 30) ? below(w, 200) : 0;
	c->late = (enum rb_late)below(w, 3);
	c->free_rounds = chance(w, 50);
	c->limited = chance(w, 60);
	c->depth = 1 + (uint32_t)below(w, 4);
	c->full_every = chance(w, 30) ? 1 + (uint32_t)below(w, 6) : 0;
	c->max_absence = chance(w, 30) ? 1 + (uint32_t)below(w, 4) : 0;
	c->seed = rb_rng_next(&w->rng);
	w->segments = 1 + (uint32_t)below(w, 2);
	w->tells_empty = chance(w, 50);
	w->slow = (uint64_t[]) { 5, 80, 400 }[below(w, 3)];
}

static void world_begin(struct world *w)
{
	w->now = w->order = w->base_round = 0;
	w->heap_count = w->dead_count = 0;
	config_draw(w);
	for (uint32_t i = 0; i < LETTERS_MAX; i++)
		w->letters[i].next = i + 1 < LETTERS_MAX ? i + 1 : NONE;
	w->letter_free = 0;
	memset(w->first, 0xff, sizeof(w->first));
	memset(w->ranks, 0, sizeof(w->ranks));
	memset(w->told, 0, sizeof(w->told));
	memset(w->absent, 0, sizeof(w->absent));
	memset(w->released_from, 0, sizeof(w->released_from));
	memset(&w->rounds[0], 0, sizeof(w->rounds[0]));
	round_expect(w, 0);
	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];

		w->config.rank = r;
		LAW(w, rb_partial_bytes(&w->config) <= sizeof(w->memory[r]), "memory");
		rank->machine = (struct rb_partial *)(void *)w->memory[r];
		LAW(w, rb_partial_init(rank->machine, &w->config) == RUBATO_OK, "%s",
		    rubato_error_text());
		rank->caught_up = true;
		rank->fetch_from = NONE;
		rank->state = COLLECTING;
		segment_begin(w, r, 0);
		at(w, below(w, 100), APPLICATION, r, 0, 0);
		if (chance(w, 5))
			at(w, below(w, 3000), FREEZE, r, 0, 0);
	}
	uint64_t crash_at = below(w, 3000);
	bool close = chance(w, 50);

	for (uint64_t i = chance(w, 30) ? 1 + below(w, 4) : 0; i > 0; i--)
		at(w, close ? crash_at + below(w, 10 * w->slow) : below(w, 3000), CRASH, 0, 0, 0);
}

static void world_go(struct world *w)
{
	uint64_t count = 0;

	world_begin(w);
	while (w->heap_count > 0) {
		struct event e = next_event(w);

		w->now = e.at;
		LAW(w, ++count < EVENTS_LIMIT, "it never ends");
		if (e.kind != CRASH && w->ranks[e.rank].dead)
			continue;
		if (e.kind != CRASH && w->ranks[e.rank].frozen_until > w->now)
			at(w, w->ranks[e.rank].frozen_until - w->now, e.kind, e.rank, e.peer,
			   e.value);
		else
			happen(w, &e);
	}
	w->totals->events += count;
	end_check(w);
}

const char *partial_world_run(uint64_t seed, struct partial_totals *totals, char *text,
			      size_t text_bytes)
{
	struct world *w = malloc(sizeof(*w));
	bool fine = false;

	if (w == NULL)
		return "out of memory";
	w->rng = (struct rb_rng) { seed };
	w->totals = totals;
	w->text = text;
	w->text_bytes = text_bytes;
	if (setjmp(w->broken) == 0) {
		world_go(w);
		fine = true;
	}
	free(w);
	return fine ? NULL : text;
}
