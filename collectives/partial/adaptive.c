/*
 * adaptive.c -- what each quorum would have cost, by replay.
 *
 * The replay runs the ranks' last pieces of work through rounds that take no time: a rank that
 * finishes a piece waits for the open round if it is in time for it, and goes on at once if not;
 * k waiting ranks (or all that still have work) run the round. Aligned ranks do as many pieces
 * each. In free rounds they may share them or not, which this file does not know: a quorum has to
 * be cheap both ways. The earliest finish is next: a heap.
 *
 * Ranks with pieces of their own are done when the last one is, and the largest of many sums of a
 * few random durations is far above their mean: a short history would flatter large quorums. So
 * ranks' means are drawn together as far as chance alone explains that they differ (James and Stein
 * 1961).
 *
 * After a change for the worse the new durations weigh at once, for times add up; after one for
 * the better the quorum is too small for a while, which costs freshness but no time.
 */
#include "collectives/partial/adaptive.h"

#include <string.h>

#include "base/status.h"

#define TOLERANCE_PERCENT 3 /* Of the least time: what a larger quorum may cost. */
#define UNSHARED_PERCENT 6  /* In free rounds, if the pieces are not shared after all. */
#define CANDIDATES_MAX 9    /* Quorums tried: all up to so many, or so many evenly spread. */
#define PIECES_MAX 8192     /* Of all ranks, in a replay... */
#define PIECES_MIN 8        /* ... but so many of each. */
#define SILENT_ROUNDS 64    /* Who is in none of so many is left out. */
#define DURATION_NS_MAX 1000000000000u
#define ONE 1024 /* Of fixed-point fractions. */

struct lane {                               /* One rank. */
	uint64_t past[RB_ADAPTIVE_HISTORY]; /* Durations: a ring. */
	uint64_t heard;                     /* Round of the last one. */
	uint32_t noted;
	/* Of a decision. */
	uint64_t mean, scale; /* scale: what durations are multiplied by, times ONE. */
	uint32_t have;
	/* Of a replay. */
	uint64_t finish;
	uint32_t done;          /* Pieces. */
	uint32_t seen;          /* Rounds that had run when it began its piece. */
	uint32_t before, after; /* Busy lanes by seen: a list. */
};

struct rb_adaptive {
	uint32_t rank_count, depth, least, quorum;
	uint32_t undecided; /* Durations since the last decision. */
	bool free_rounds;
	bool shared; /* Of a replay: pieces are handed out, not each rank's own. */
	uint64_t round;
	struct lane *lanes; /* One more than ranks: the ends of the list. */
	uint32_t *heap;     /* Busy ranks by finish. */
	uint32_t *waiters;
	/* Of a replay. */
	uint32_t busy, waiting, rounds, live, active;
	uint32_t pieces; /* Left to be handed out, where they are shared. */
	uint32_t length; /* Pieces of each rank. */
};

size_t rb_adaptive_bytes(uint32_t rank_count)
{
	return sizeof(struct rb_adaptive) + (rank_count + 1) * sizeof(struct lane) +
	       2 * rank_count * sizeof(uint32_t);
}

void rb_adaptive_init(struct rb_adaptive *a, uint32_t rank_count, bool free_rounds, uint32_t depth,
		      uint32_t least)
{
	memset(a, 0, rb_adaptive_bytes(rank_count));
	a->rank_count = rank_count;
	a->depth = depth;
	a->free_rounds = free_rounds;
	a->least = least;
	a->quorum = (rank_count + 1) / 2;
	if (a->quorum < least)
		a->quorum = least;
	a->lanes = (struct lane *)(void *)(a + 1);
	a->heap = (uint32_t *)(void *)(a->lanes + rank_count + 1);
	a->waiters = a->heap + rank_count;
}

void rb_adaptive_add(struct rb_adaptive *a, uint32_t rank, uint64_t duration_ns)
{
	struct lane *lane = &a->lanes[rank];

	lane->past[lane->noted++ % RB_ADAPTIVE_HISTORY] =
		duration_ns < DURATION_NS_MAX ? duration_ns : DURATION_NS_MAX;
	lane->heard = a->round;
	a->undecided++;
}

/* ---- The heap ---- */

static bool sooner(const struct rb_adaptive *a, uint32_t x, uint32_t y)
{
	uint64_t at_x = a->lanes[a->heap[x]].finish, at_y = a->lanes[a->heap[y]].finish;

	return at_x < at_y || (at_x == at_y && a->heap[x] < a->heap[y]);
}

static void swap(struct rb_adaptive *a, uint32_t x, uint32_t y)
{
	uint32_t rank = a->heap[x];

	a->heap[x] = a->heap[y];
	a->heap[y] = rank;
}

static void push(struct rb_adaptive *a, uint32_t rank)
{
	uint32_t at = a->busy++;

	a->heap[at] = rank;
	for (; at > 0 && sooner(a, at, (at - 1) / 2); at = (at - 1) / 2)
		swap(a, at, (at - 1) / 2);
}

static uint32_t pop(struct rb_adaptive *a)
{
	uint32_t rank = a->heap[0], at = 0;

	a->heap[0] = a->heap[--a->busy];
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= a->busy)
			return rank;
		if (child + 1 < a->busy && sooner(a, child + 1, child))
			child++;
		if (!sooner(a, child, at))
			return rank;
		swap(a, at, child);
		at = child;
	}
}

/* ---- The replay ---- */

static void list_add(struct rb_adaptive *a, uint32_t rank)
{
	struct lane *ends = &a->lanes[a->rank_count], *lane = &a->lanes[rank];

	lane->before = ends->before;
	lane->after = a->rank_count;
	a->lanes[ends->before].after = rank;
	ends->before = rank;
}

static void list_remove(struct rb_adaptive *a, uint32_t rank)
{
	a->lanes[a->lanes[rank].before].after = a->lanes[rank].after;
	a->lanes[a->lanes[rank].after].before = a->lanes[rank].before;
}

/* Rank begins its next piece, or is through. */
static void begin(struct rb_adaptive *a, uint32_t rank, uint64_t now)
{
	struct lane *lane = &a->lanes[rank];
	bool more = a->shared ? a->pieces > 0 : lane->done < a->length;
	uint32_t oldest = lane->noted - lane->have;

	if (!more) {
		a->live--;
		return;
	}
	a->pieces -= a->shared;
	lane->seen = a->rounds;
	lane->finish = now + lane->past[(oldest + lane->done % lane->have) % RB_ADAPTIVE_HISTORY] *
				     lane->scale / ONE;
	push(a, rank);
	list_add(a, rank);
}

/* Whether a busy rank is so far behind that the round must wait for it. */
static bool held(const struct rb_adaptive *a)
{
	return a->depth > 0 && a->busy > 0 &&
	       a->rounds >= a->lanes[a->lanes[a->rank_count].after].seen + a->depth;
}

static void rounds_run(struct rb_adaptive *a, uint32_t k, uint64_t now)
{
	while (a->waiting > 0 && (a->waiting >= k || a->waiting >= a->live) && !held(a)) {
		uint32_t count = a->waiting;

		a->rounds++;
		a->waiting = 0;
		for (uint32_t i = 0; i < count; i++)
			begin(a, a->waiters[i], now);
	}
}

static uint64_t replay(struct rb_adaptive *a, uint32_t k)
{
	uint64_t now = 0;

	a->busy = a->waiting = a->rounds = 0;
	a->live = a->active;
	a->pieces = a->length * a->active;
	a->lanes[a->rank_count].before = a->lanes[a->rank_count].after = a->rank_count;
	for (uint32_t r = 0; r < a->rank_count; r++) {
		a->lanes[r].done = 0;
		if (a->lanes[r].have > 0)
			begin(a, r, 0);
	}
	while (a->busy > 0) {
		uint32_t rank = pop(a);
		struct lane *lane = &a->lanes[rank];
		bool in_time = a->free_rounds ? lane->seen == a->rounds : lane->done >= a->rounds;

		list_remove(a, rank);
		now = lane->finish;
		lane->done++;
		if (in_time)
			a->waiters[a->waiting++] = rank;
		else
			begin(a, rank, now);
		rounds_run(a, k, now);
	}
	return now;
}

/* ---- The decision ---- */

/* Who takes part, with how much of the past. */
static void lanes_choose(struct rb_adaptive *a)
{
	a->length = PIECES_MAX / a->rank_count;
	a->length = a->length < PIECES_MIN ? PIECES_MIN : a->length;
	a->length = a->length > RB_ADAPTIVE_HISTORY ? RB_ADAPTIVE_HISTORY : a->length;
	a->active = 0;
	for (uint32_t r = 0; r < a->rank_count; r++) {
		struct lane *lane = &a->lanes[r];
		uint64_t sum = 0;

		lane->have = lane->noted < a->length ? lane->noted : a->length;
		lane->scale = ONE;
		if (lane->heard + SILENT_ROUNDS < a->round)
			lane->have = 0;
		if (lane->have == 0)
			continue;
		for (uint32_t i = 1; i <= lane->have; i++)
			sum += lane->past[(lane->noted - i) % RB_ADAPTIVE_HISTORY];
		lane->mean = sum / lane->have;
		a->active++;
	}
}

static uint64_t square(uint64_t x, uint64_t y)
{
	uint64_t difference = x > y ? x - y : y - x;

	return difference * difference;
}

/* Variance of a rank's mean, by the spread of what it is the mean of; in (grand / ONE)^2. */
static uint64_t chance_of_mean(const struct lane *lane, uint64_t grand)
{
	uint64_t sum = 0, mean = lane->mean * ONE / grand;

	for (uint32_t i = 1; i <= lane->have; i++)
		sum += square(lane->past[(lane->noted - i) % RB_ADAPTIVE_HISTORY] * ONE / grand,
			      mean) /
		       ONE;
	return lane->have > 1 ? sum / (lane->have - 1) * ONE / lane->have : sum * ONE;
}

static void means_draw_together(struct rb_adaptive *a)
{
	uint64_t grand = 0, between = 0, within = 0, keep = 0;

	for (uint32_t r = 0; r < a->rank_count; r++)
		grand += a->lanes[r].have > 0 ? a->lanes[r].mean : 0;
	grand /= a->active;
	if (grand == 0 || a->active < 2)
		return;
	for (uint32_t r = 0; r < a->rank_count; r++) {
		if (a->lanes[r].have == 0)
			continue;
		between += square(a->lanes[r].mean * ONE / grand, ONE);
		within += chance_of_mean(&a->lanes[r], grand);
	}
	between /= a->active - 1;
	within /= a->active;
	if (between > within)
		keep = ONE - within * ONE / between;
	for (uint32_t r = 0; r < a->rank_count; r++) {
		struct lane *lane = &a->lanes[r];

		if (lane->have > 0 && lane->mean > 0)
			lane->scale = (grand * (ONE - keep) + lane->mean * keep) / lane->mean;
	}
}

/* How many of the candidates, from the smallest on, cost little more than the cheapest. */
static uint32_t affordable(struct rb_adaptive *a, const uint32_t *quorums, uint32_t count,
			   uint32_t percent)
{
	uint64_t costs[CANDIDATES_MAX], least = UINT64_MAX;

	for (uint32_t i = 0; i < count; i++) {
		costs[i] = replay(a, quorums[i]);
		least = costs[i] < least ? costs[i] : least;
	}
	while (count > 1 && costs[count - 1] > least + least / 100 * percent)
		count--;
	return count;
}

static void decide(struct rb_adaptive *a)
{
	uint32_t count, quorums[CANDIDATES_MAX], first, beyond;

	lanes_choose(a);
	if (a->active == 0)
		return;
	first = a->least < a->active ? a->least : a->active;
	beyond = a->active - first;
	count = beyond < CANDIDATES_MAX ? beyond + 1 : CANDIDATES_MAX;
	for (uint32_t i = 0; i < count; i++)
		quorums[i] = first + (count > 1 ? beyond * i / (count - 1) : 0);
	if (a->free_rounds) {
		a->shared = true;
		count = affordable(a, quorums, count, TOLERANCE_PERCENT);
		a->shared = false;
	}
	means_draw_together(a);
	count = affordable(a, quorums, count,
			   a->free_rounds ? UNSHARED_PERCENT : TOLERANCE_PERCENT);
	a->quorum = quorums[count - 1];
}

void rb_adaptive_round(struct rb_adaptive *a, uint64_t round)
{
	a->round = round + 1;
	if (a->undecided < RB_ADAPTIVE_PERIOD * a->rank_count)
		return;
	a->undecided = 0;
	decide(a);
}

uint32_t rb_adaptive_quorum(const struct rb_adaptive *a)
{
	return a->quorum;
}

/* ---- From one to another ---- */

#define HEAD_WORDS 3
#define LANE_WORDS (2 + RB_ADAPTIVE_HISTORY)

size_t rb_adaptive_words(uint32_t rank_count)
{
	return HEAD_WORDS + (size_t)rank_count * LANE_WORDS;
}

void rb_adaptive_save(const struct rb_adaptive *a, uint64_t *words)
{
	*words++ = a->quorum;
	*words++ = a->undecided;
	*words++ = a->round;
	for (uint32_t r = 0; r < a->rank_count; r++, words += LANE_WORDS) {
		words[0] = a->lanes[r].heard;
		words[1] = a->lanes[r].noted;
		memcpy(words + 2, a->lanes[r].past, sizeof(a->lanes[r].past));
	}
}

bool rb_adaptive_restore(struct rb_adaptive *a, const uint64_t *words)
{
	bool possible = words[0] > 0 && words[0] <= a->rank_count && words[1] < UINT32_MAX;

	a->quorum = (uint32_t)*words++;
	a->undecided = (uint32_t)*words++;
	a->round = *words++;
	for (uint32_t r = 0; r < a->rank_count; r++, words += LANE_WORDS) {
		a->lanes[r].heard = words[0];
		a->lanes[r].noted = (uint32_t)words[1];
		memcpy(a->lanes[r].past, words + 2, sizeof(a->lanes[r].past));
		possible = possible && words[0] <= a->round && words[1] <= UINT32_MAX;
		for (uint32_t i = 0; i < RB_ADAPTIVE_HISTORY; i++)
			possible = possible && words[2 + i] <= DURATION_NS_MAX;
	}
	return possible;
}
