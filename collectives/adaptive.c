/*
 * adaptive.c -- what each quorum would have cost, by replay.
 *
 * The replay runs the ranks' last pieces of work through rounds that take no time: a rank that
 * finishes a piece waits for the open round if it is in time for it, and goes on at once if not;
 * k waiting ranks (or all that still have work) run the round. Aligned ranks do as many pieces
 * each; in free rounds they share them. The earliest finish is next: a heap.
 */
#include "collectives/adaptive.h"

#include <string.h>

#include "base/status.h"

#define THRESHOLD_PERCENT 105 /* Of the least time: what a larger quorum may cost. */

struct lane {                               /* One rank. */
	uint64_t past[RB_ADAPTIVE_HISTORY]; /* Durations: a ring. */
	uint32_t noted;
	/* Of a replay. */
	uint64_t finish;
	uint32_t done; /* Pieces. */
	uint32_t seen; /* Rounds that had run when it began its piece. */
	bool waits;
};

struct rb_adaptive {
	uint32_t rank_count, depth, quorum;
	bool free_rounds;
	struct lane *lanes;
	uint32_t *heap; /* Busy ranks by finish. */
	/* Of a replay. */
	uint32_t busy, waiting, rounds, live;
	uint32_t pieces; /* Left to be handed out, in free rounds. */
	uint32_t length; /* Pieces of each rank. */
};

size_t rb_adaptive_bytes(uint32_t rank_count)
{
	return sizeof(struct rb_adaptive) + rank_count * (sizeof(struct lane) + sizeof(uint32_t));
}

void rb_adaptive_init(struct rb_adaptive *a, uint32_t rank_count, bool free_rounds, uint32_t depth)
{
	memset(a, 0, rb_adaptive_bytes(rank_count));
	a->rank_count = rank_count;
	a->depth = depth;
	a->free_rounds = free_rounds;
	a->quorum = (rank_count + 1) / 2;
	a->lanes = (struct lane *)(void *)(a + 1);
	a->heap = (uint32_t *)(void *)(a->lanes + rank_count);
}

void rb_adaptive_note(struct rb_adaptive *a, uint32_t rank, uint64_t duration_ns)
{
	struct lane *lane = &a->lanes[rank];

	lane->past[lane->noted++ % RB_ADAPTIVE_HISTORY] = duration_ns;
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

/* Rank begins its next piece, or is through. */
static void begin(struct rb_adaptive *a, uint32_t rank, uint64_t now)
{
	struct lane *lane = &a->lanes[rank];
	bool more = a->free_rounds ? a->pieces > 0 : lane->done < a->length;
	uint32_t oldest = lane->noted - a->length;

	lane->waits = false;
	if (!more || lane->noted == 0) {
		a->live--;
		return;
	}
	a->pieces -= a->free_rounds;
	lane->seen = a->rounds;
	lane->finish = now + lane->past[(oldest + lane->done % a->length) % RB_ADAPTIVE_HISTORY];
	push(a, rank);
}

/* Whether a busy rank is so far behind that the round must wait for it. */
static bool held(const struct rb_adaptive *a)
{
	for (uint32_t i = 0; a->depth > 0 && i < a->busy; i++)
		if (a->rounds >= a->lanes[a->heap[i]].seen + a->depth)
			return true;
	return false;
}

static void rounds_run(struct rb_adaptive *a, uint32_t k, uint64_t now)
{
	while (a->waiting > 0 && (a->waiting >= k || a->waiting >= a->live) && !held(a)) {
		a->rounds++;
		a->waiting = 0;
		for (uint32_t r = 0; r < a->rank_count; r++)
			if (a->lanes[r].waits)
				begin(a, r, now);
	}
}

static uint64_t replay(struct rb_adaptive *a, uint32_t k)
{
	uint64_t now = 0;

	a->busy = a->waiting = a->rounds = 0;
	a->live = a->rank_count;
	a->pieces = a->length * a->rank_count;
	for (uint32_t r = 0; r < a->rank_count; r++) {
		a->lanes[r].done = 0;
		begin(a, r, 0);
	}
	while (a->busy > 0) {
		uint32_t rank = pop(a);
		struct lane *lane = &a->lanes[rank];

		now = lane->finish;
		lane->waits = a->free_rounds ? lane->seen == a->rounds : lane->done >= a->rounds;
		lane->done++;
		a->waiting += lane->waits;
		if (!lane->waits)
			begin(a, rank, now);
		rounds_run(a, k, now);
	}
	return now;
}

static void decide(struct rb_adaptive *a)
{
	uint64_t least = UINT64_MAX;
	uint32_t k;

	a->length = RB_ADAPTIVE_HISTORY;
	for (uint32_t r = 0; r < a->rank_count; r++)
		if (a->lanes[r].noted > 0 && a->lanes[r].noted < a->length)
			a->length = a->lanes[r].noted;
	for (k = a->rank_count; k > 0; k--) {
		uint64_t cost = replay(a, k);

		least = cost < least ? cost : least;
	}
	for (k = a->rank_count; k > 1; k--)
		if (replay(a, k) <= least + least / 100 * (THRESHOLD_PERCENT - 100))
			break;
	a->quorum = k;
}

void rb_adaptive_round(struct rb_adaptive *a, uint64_t round)
{
	if ((round + 1) % RB_ADAPTIVE_EVERY == 0)
		decide(a);
}

uint32_t rb_adaptive_quorum(const struct rb_adaptive *a)
{
	return a->quorum;
}
