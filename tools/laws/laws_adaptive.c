/*
 * laws_adaptive.c -- the adaptive quorum as docs/relaxed.md describes it, written a second time and
 * as plainly as can be: no heap, no lists; each quorum's replay looks at all ranks at every step.
 *
 * Durations of the last pieces of work, up to 32 a rank, are run through the rules of rounds for up
 * to nine quorums, none below the least one. The largest that costs little over the cheapest is
 * taken: 3 % where a rank's pieces are its own; in free rounds 3 % if they are shared and 6 % if
 * not. For pieces of their own ranks' means are first drawn together as far as chance explains that
 * they differ.
 */
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

#define KEPT 32
#define SILENT 64   /* Rounds: who is in none of so many is left out. */
#define PIECES 8192 /* Of all ranks in a replay; but 8 of each. */
#define CANDIDATES 9
#define ONE 1024 /* Fractions are in 1/1024. */
#define LONGEST_NS UINT64_C(1000000000000)

struct worker {
	uint64_t pieces[KEPT]; /* The oldest first. */
	uint32_t piece_count;
	uint64_t seen_in; /* The last round it was in. */
	/* Of a decision. */
	uint64_t recent[KEPT];
	uint32_t recent_count;
	uint64_t mean, scale;
	/* Of a replay. */
	enum { DONE, WORKING, WAITING } state;
	uint64_t until;
	uint32_t made, began; /* Pieces done; rounds that had run when it began this one. */
};

struct laws_adaptive {
	uint32_t n, depth, least, quorum, undecided;
	bool free_rounds;
	uint64_t round;
	struct worker *workers;
};

struct laws_adaptive *laws_adaptive_new(uint32_t rank_count, bool free_rounds, uint32_t depth,
					uint32_t least)
{
	struct laws_adaptive *a = calloc(1, sizeof(*a));

	if (a != NULL)
		a->workers = calloc(rank_count, sizeof(*a->workers));
	if (a == NULL || a->workers == NULL)
		option_fail(SIM, "out of memory");
	a->n = rank_count;
	a->free_rounds = free_rounds;
	a->depth = depth;
	a->least = least;
	a->quorum = (rank_count + 1) / 2 > least ? (rank_count + 1) / 2 : least;
	return a;
}

void laws_adaptive_free(struct laws_adaptive *a)
{
	if (a != NULL)
		free(a->workers);
	free(a);
}

uint32_t laws_adaptive_quorum(const struct laws_adaptive *a)
{
	return a->quorum;
}

void laws_adaptive_note(struct laws_adaptive *a, uint32_t rank, uint64_t duration_ns)
{
	struct worker *w = &a->workers[rank];

	if (w->piece_count == KEPT)
		memmove(w->pieces, w->pieces + 1, --w->piece_count * sizeof(w->pieces[0]));
	w->pieces[w->piece_count++] = duration_ns < LONGEST_NS ? duration_ns : LONGEST_NS;
	w->seen_in = a->round;
	a->undecided++;
}

/* ---- What a quorum would have cost ---- */

static void begin(struct worker *w, uint64_t now, uint32_t rounds)
{
	w->state = WORKING;
	w->began = rounds;
	w->until = now + w->recent[w->made % w->recent_count] * w->scale / ONE;
}

/* Who works and is done first; none: NULL. */
static struct worker *earliest(struct laws_adaptive *a)
{
	struct worker *found = NULL;

	for (uint32_t i = 0; i < a->n; i++)
		if (a->workers[i].state == WORKING &&
		    (found == NULL || a->workers[i].until < found->until))
			found = &a->workers[i];
	return found;
}

static bool somebody_is_behind(const struct laws_adaptive *a, uint32_t rounds)
{
	for (uint32_t i = 0; i < a->n && a->depth > 0; i++)
		if (a->workers[i].state == WORKING && rounds >= a->workers[i].began + a->depth)
			return true;
	return false;
}

/* `waiters`: in the order of their arrival; a round hands them their next pieces in that order. */
struct replay {
	uint32_t quorum, length, shared_left, rounds, alive, waiting;
	bool shared;
	struct worker *waiters[LAWS_RANKS_MAX];
};

static void next_piece(struct replay *r, struct worker *w, uint64_t now)
{
	bool more = r->shared ? r->shared_left > 0 : w->made < r->length;

	if (more) {
		r->shared_left -= r->shared;
		begin(w, now, r->rounds);
	} else {
		w->state = DONE;
		r->alive--;
	}
}

static void run_rounds(struct laws_adaptive *a, struct replay *r, uint64_t now)
{
	while (r->waiting > 0 && (r->waiting >= r->quorum || r->waiting >= r->alive) &&
	       !somebody_is_behind(a, r->rounds)) {
		uint32_t count = r->waiting;

		r->rounds++;
		r->waiting = 0;
		for (uint32_t i = 0; i < count; i++)
			next_piece(r, r->waiters[i], now);
	}
}

static uint64_t cost_of(struct laws_adaptive *a, uint32_t quorum, uint32_t length, bool shared)
{
	struct replay r = { .quorum = quorum, .length = length, .shared = shared };
	struct worker *w;
	uint64_t now = 0;

	for (uint32_t i = 0; i < a->n; i++)
		r.alive += a->workers[i].recent_count > 0;
	r.shared_left = length * r.alive;
	for (uint32_t i = 0; i < a->n; i++) {
		a->workers[i].made = 0;
		a->workers[i].state = DONE;
		if (a->workers[i].recent_count > 0)
			next_piece(&r, &a->workers[i], 0);
	}
	while ((w = earliest(a)) != NULL) {
		bool in_time = a->free_rounds ? w->began == r.rounds : w->made >= r.rounds;

		now = w->until;
		w->made++;
		if (in_time) {
			w->state = WAITING;
			r.waiters[r.waiting++] = w;
		} else {
			next_piece(&r, w, now);
		}
		run_rounds(a, &r, now);
	}
	return now;
}

/* ---- The decision ---- */

/* Who counts, with how much of its past. Returns how many do. */
static uint32_t choose_workers(struct laws_adaptive *a, uint32_t length)
{
	uint32_t active = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		struct worker *w = &a->workers[i];
		uint64_t sum = 0;

		w->recent_count = w->piece_count < length ? w->piece_count : length;
		w->scale = ONE;
		if (w->piece_count > 0 && w->seen_in + SILENT < a->round)
			w->recent_count = 0;
		for (uint32_t k = 0; k < w->recent_count; k++) {
			w->recent[k] = w->pieces[w->piece_count - w->recent_count + k];
			sum += w->recent[k];
		}
		w->mean = w->recent_count > 0 ? sum / w->recent_count : 0;
		active += w->recent_count > 0;
	}
	return active;
}

static uint64_t squared(uint64_t a, uint64_t b)
{
	return a > b ? (a - b) * (a - b) : (b - a) * (b - a);
}

/* The variance of a mean of so many pieces, by how they scatter around it. */
static uint64_t variance_of_mean(const struct worker *w, uint64_t grand)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < w->recent_count; k++)
		sum += squared(w->recent[k] * ONE / grand, w->mean * ONE / grand) / ONE;
	if (w->recent_count == 1)
		return sum * ONE;
	return sum / (w->recent_count - 1) * ONE / w->recent_count;
}

/* James and Stein: each mean keeps that share of its distance to the grand one which chance does
 * not explain. */
static void draw_together(struct laws_adaptive *a, uint32_t active)
{
	uint64_t grand = 0, between = 0, within = 0, kept = 0;

	for (uint32_t i = 0; i < a->n; i++)
		grand += a->workers[i].mean;
	grand /= active;
	if (grand == 0 || active == 1)
		return;
	for (uint32_t i = 0; i < a->n; i++) {
		if (a->workers[i].recent_count == 0)
			continue;
		between += squared(a->workers[i].mean * ONE / grand, ONE);
		within += variance_of_mean(&a->workers[i], grand);
	}
	between /= active - 1;
	within /= active;
	if (between > within)
		kept = ONE - within * ONE / between;
	for (uint32_t i = 0; i < a->n; i++) {
		struct worker *w = &a->workers[i];

		if (w->mean > 0)
			w->scale = (grand * (ONE - kept) + w->mean * kept) / w->mean;
	}
}

/* Of the first `count` candidates: how many, up to the largest that is cheap enough. */
static uint32_t cheap_enough(struct laws_adaptive *a, const uint32_t *quorums, uint32_t count,
			     uint32_t length, bool shared, uint64_t percent)
{
	uint64_t costs[CANDIDATES], least = UINT64_MAX;

	for (uint32_t i = 0; i < count; i++) {
		costs[i] = cost_of(a, quorums[i], length, shared);
		least = costs[i] < least ? costs[i] : least;
	}
	while (count > 1 && costs[count - 1] > least + least / 100 * percent)
		count--;
	return count;
}

static void decide(struct laws_adaptive *a)
{
	uint32_t length = PIECES / a->n, active, count, first, quorums[CANDIDATES];

	length = length < 8 ? 8 : length > KEPT ? KEPT : length;
	active = choose_workers(a, length);
	if (active == 0)
		return;
	/* From the least one to all who count, evenly. */
	first = a->least < active ? a->least : active;
	count = active - first + 1 < CANDIDATES ? active - first + 1 : CANDIDATES;
	quorums[0] = first;
	for (uint32_t i = 1; i < count; i++)
		quorums[i] = first + (active - first) * i / (count - 1);
	if (a->free_rounds)
		count = cheap_enough(a, quorums, count, length, true, 3);
	draw_together(a, active);
	count = cheap_enough(a, quorums, count, length, false, a->free_rounds ? 6 : 3);
	a->quorum = quorums[count - 1];
}

void laws_adaptive_round(struct laws_adaptive *a)
{
	a->round++;
	if (a->undecided < 4 * a->n)
		return;
	a->undecided = 0;
	decide(a);
}
