/*
 * rounds_world_application.c -- what the applications of a world do, and which result each of them
 * must be given: rules of collection, written down a second time.
 */
#include <string.h>

#include "rounds_world_inside.h"

void world_call(struct world *w, uint32_t r, enum rb_rounds_call what, const void *argument,
		size_t bytes)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = what };

	w->ranks[r].awaited = w->ranks[r].awaited && what == RB_ROUNDS_MERGED;
	if (bytes > 0)
		memcpy(event.message, argument, bytes);
	world_event(w, r, &event);
}

/* ---- Commits ---- */

static enum rb_rounds_verdict expected_verdict(const struct world *w, const struct rank *rank,
					       bool fresh)
{
	if (!fresh && w->config.options.late == RUBATO_LATE_DROP)
		return RB_ROUNDS_DISCARD;
	if (rank->pending == 0)
		return RB_ROUNDS_TAKE;
	return w->config.options.late == RUBATO_LATE_LATEST && !rank->pending_fresh
		       ? RB_ROUNDS_REPLACE
		       : RB_ROUNDS_MERGE;
}

/* The round that the number is for: each segment's first is for the era's first. */
static uint64_t target(const struct world *w, const struct rank *rank)
{
	return w->base_round + rank->number - 1000 * rank->segment;
}

uint64_t world_target(const struct world *w, uint32_t r, uint32_t made)
{
	return w->base_round + w->ranks[r].numbers[made] - 1000 * w->ranks[r].segment;
}

bool world_gave_early(const struct world *w, uint32_t r)
{
	const struct rank *rank = &w->ranks[r];

	return !is_free(w) && rank->state != PARTING && rank->cut == NEVER &&
	       rank->made > rank->made_before && !rank->pending_fresh &&
	       world_target(w, r, rank->made - 1) >= rank->next_join;
}

/* Own: the round that this contribution makes this rank's. */
static void own_expect(const struct world *w, struct rank *rank, bool fresh)
{
	uint64_t own = rank->next_join;

	if (!takes(w, RUBATO_COLLECT_OWN))
		return;
	if (!fresh)
		own = is_free(w) ? own - (own > 0) : target(w, rank);
	if (own < rank->next)
		return;
	rank->next = own;
	rank->own_due = true;
}

static void commit(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	uint32_t made = rank->made++;
	struct rb_rounds_commit c = { .step = rank->number,
				      .weight = WEIGHT,
				      .duration_ns = below(w, 99),
				      .buffer = made % 4 };
	bool fresh = is_free(w) ? rank->caught_up : target(w, rank) >= rank->next_join;
	enum rb_rounds_verdict verdict = expected_verdict(w, rank, fresh);

	own_expect(w, rank, fresh);
	/* Once told, that it was willing counts for the open round. */
	if (rank->willing && rank->next_join == rank->completed &&
	    rb_rounds_view_of(rank->machine).phase <= RB_ROUNDS_JOINING)
		rank->counted = true;
	rank->willing = false;
	rank->numbers[made] = rank->number;
	rank->durations[made] = c.duration_ns;
	rank->number += w->gaps && chance(w, 10) ? 1 + below(w, 4) : 1;
	rank->produced |= 1ull << made;
	w->totals->late += !fresh;
	/* The machine acts on it at once: the pending set must be ready for a join. */
	if (verdict == RB_ROUNDS_DISCARD) {
		rank->discarded |= 1ull << made;
	} else {
		if (verdict == RB_ROUNDS_REPLACE) {
			rank->discarded |= rank->pending;
			rank->pending = 0;
		}
		rank->buffer = rank->pending == 0 ? c.buffer : rank->buffer;
		rank->pending |= 1ull << made;
		if (fresh && !rank->pending_fresh)
			rank->ready_since = w->now;
		rank->pending_fresh = rank->pending_fresh || fresh;
	}
	rank->merging += verdict == RB_ROUNDS_MERGE;
	w->totals->merges += verdict == RB_ROUNDS_MERGE;
	world_call(w, r, RB_ROUNDS_COMMIT, &c, sizeof(c));
	LAW(w, rb_rounds_view_of(rank->machine).verdict == verdict,
	    "rank %u: verdict %d instead of %d", r, (int)rb_rounds_view_of(rank->machine).verdict,
	    (int)verdict);
	if (verdict == RB_ROUNDS_MERGE)
		world_at(w, world_delay(w), MERGE_END, r, 0, 0);
}

/* ---- Results ---- */

static bool is_flushing(const struct rank *rank)
{
	return rank->draining || rank->cut != NEVER;
}

/* Whether a completed round is still to be given to this rank. */
static bool is_wanted(const struct world *w, const struct rank *rank, uint64_t round)
{
	if (round == NEVER || round < rank->next)
		return false;
	return !takes(w, RUBATO_COLLECT_LATEST) || round + 1 == rank->cut;
}

bool world_has_room(const struct world *w, uint32_t r, uint64_t number)
{
	const struct rank *rank = &w->ranks[r];
	uint64_t from = rank->lent < rank->next ? rank->lent : rank->next;

	if (takes(w, RUBATO_COLLECT_LATEST) || rank->left)
		return true;
	return number < from || number - from < w->config.options.depth;
}

void world_slot_check(struct world *w, uint32_t r, uint32_t slot, uint64_t number)
{
	struct rank *rank = &w->ranks[r];

	LAW(w, slot < rb_rounds_slots(&w->config.options), "rank %u: slot %u", r, slot);
	LAW(w, rank->kept[slot] == NEVER || rank->kept[slot] != rank->lent,
	    "rank %u writes %" PRIu64 " over the result that is lent", r, number);
	LAW(w, rank->kept[slot] == NEVER || rank->kept[slot] + 1 != number,
	    "rank %u writes %" PRIu64 " over the newest result", r, number);
	LAW(w, rank->left || !is_wanted(w, rank, rank->kept[slot]),
	    "rank %u writes %" PRIu64 " over %" PRIu64 ", which nobody has read", r, number,
	    rank->kept[slot]);
	rank->kept[slot] = number;
}

/* Of what is still there for a rank that has left, for which nothing is held up. */
static uint64_t found_result(const struct world *w, const struct rank *rank, uint64_t end)
{
	uint64_t found = NEVER;

	for (uint32_t i = 0; i < SLOTS_MAX; i++) {
		if (rank->kept[i] < rank->next || rank->kept[i] >= end)
			continue;
		if (found == NEVER || takes(w, RUBATO_COLLECT_LATEST) == (rank->kept[i] > found))
			found = rank->kept[i];
	}
	return found;
}

/* The round that a collect must give, or NEVER. */
static uint64_t expected_result(const struct world *w, const struct rank *rank)
{
	uint64_t end = rank->completed < rank->cut ? rank->completed : rank->cut;

	if (rank->next >= end)
		return NEVER;
	if (takes(w, RUBATO_COLLECT_OWN) && !rank->own_due && !is_flushing(rank))
		return NEVER;
	if (rank->left)
		return found_result(w, rank, end);
	return takes(w, RUBATO_COLLECT_LATEST) ? end - 1 : rank->next;
}

static bool waits(const struct world *w, const struct rank *rank)
{
	if (w->dead_count > 0 && !rank->ended &&
	    rb_rounds_view_of(rank->machine).phase > RB_ROUNDS_REDUCING)
		return true;
	if (rank->ended)
		return false;
	if (rank->left)
		return rank->pending != 0 || rank->joined != 0;
	if (rank->draining || rank->pending_fresh)
		return true;
	if (rank->next_join > rank->completed && rank->running_fresh)
		return true;
	return rank->own_due && rank->next_join > rank->completed && rank->next <= rank->completed;
}

static void result_take(struct world *w, uint32_t r, uint64_t expected)
{
	struct rank *rank = &w->ranks[r];
	uint32_t slot = rb_rounds_view_of(rank->machine).lent;

	LAW(w, expected != NEVER, "rank %u is given something where there is nothing", r);
	LAW(w, slot < SLOTS_MAX && rank->kept[slot] == expected,
	    "rank %u is given round %" PRIu64 ", not %" PRIu64, r,
	    slot < SLOTS_MAX ? rank->kept[slot] : NEVER, expected);
	rank->lent = expected;
	rank->next = expected + 1;
	rank->own_due = false;
	rank->taken++;
	rank->state = READING;
	world_at(w, chance(w, w->holds) ? below(w, 3000) : 0, APPLICATION, r, 0, 0);
}

static void caught_up_note(struct rank *rank)
{
	if (rank->next >= rank->completed)
		rank->caught_up = true;
}

static void application_next(struct world *w, uint32_t r);

/* All have drained, and it has had everything: then all ranks have had the same. */
static void era_over(struct world *w, uint32_t r, uint64_t cut)
{
	struct rank *rank = &w->ranks[r];

	LAW(w, cut != NEVER || rank->left, "rank %u is told an end before there is one", r);
	if (rank->left)
		return;
	LAW(w, w->rounds[cut - 1].last, "rank %u: its era ends in the middle", r);
	w->totals->drained++;
	if (rank->ended)
		return;
	if (rank->segment + 1 < w->segments) {
		world_segment_begin(w, r, rank->segment + 1);
		application_next(w, r);
	} else {
		rank->state = FINISHED;
		world_at(w, below(w, 300), APPLICATION, r, 0, 0);
	}
}

/* What follows from a collect that has nothing to give, beforehand: the machine acts at once. */
static void nothing_expect(const struct world *w, struct rank *rank, bool ends)
{
	if (takes(w, RUBATO_COLLECT_OWN) && is_free(w) && !rank->own_due &&
	    rank->next < rank->completed)
		rank->next = rank->completed; /* Those between are not wanted. */
	caught_up_note(rank);
	if (!ends)
		return;
	if (rank->cut != NEVER && rank->next < rank->cut)
		rank->next = rank->cut;
	if (rank->left)
		rank->next = NEVER;
	rank->cut = NEVER;
	rank->made_before = rank->made;
	rank->own_due = false;
}

/* It may join what it waits for at once. */
static void collect_call(struct world *w, uint32_t r, bool waiting)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = RB_ROUNDS_COLLECT };

	w->ranks[r].awaited = waiting;
	world_event(w, r, &event);
}

/* Not for long, perhaps: a timeout, or another operation needs it. */
static void wait(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	rank->state = rank->left ? GONE : WAITING;
	if (rb_rng_below(&w->patience_rng, 100) < w->impatient)
		world_at(w, rb_rng_below(&w->patience_rng, 4 * w->slow), GIVE_UP, r, 0,
			 rank->collects);
}

static void collect(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	uint64_t expected = expected_result(w, rank), cut = rank->cut;

	rank->collects++;
	bool waiting = waits(w, rank);
	enum rb_rounds_offer offer, due = RB_ROUNDS_NOTHING;

	if (expected != NEVER)
		due = RB_ROUNDS_RESULT;
	else if (cut != NEVER)
		due = RB_ROUNDS_ERA_OVER;
	else if (waiting)
		due = RB_ROUNDS_WAIT;
	else if (rank->ended)
		due = RB_ROUNDS_NO_MORE;
	else if (rank->left)
		due = RB_ROUNDS_ERA_OVER;
	if (due != RB_ROUNDS_RESULT)
		nothing_expect(w, rank, due == RB_ROUNDS_ERA_OVER);
	collect_call(w, r, due == RB_ROUNDS_WAIT);
	offer = rb_rounds_view_of(rank->machine).offer;
	LAW(w, offer == due, "rank %u is offered %d, not %d (round %" PRIu64 ")", r, (int)offer,
	    (int)due, expected);
	if (offer == RB_ROUNDS_RESULT)
		result_take(w, r, expected);
	else if (offer == RB_ROUNDS_ERA_OVER)
		era_over(w, r, cut);
	else if (offer == RB_ROUNDS_WAIT)
		wait(w, r);
	else if (offer == RB_ROUNDS_NOTHING)
		application_next(w, r);
}

/* ---- What it does ---- */

static void part(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	rank->state = PARTING;
	rank->lent = rank->next = rank->cut = NEVER;
	rank->parts_next = rank->draining;
	if (!rank->left && !rank->draining) {
		rank->drain_round = rank->next_join;
		rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
		rank->draining = true;
	}
	world_call(w, r, RB_ROUNDS_PART, NULL, 0);
}

static void drain(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	rank->draining = true;
	rank->drain_round = rank->next_join;
	rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
	rank->state = WAITING;
	world_call(w, r, RB_ROUNDS_DRAIN, NULL, 0);
	if (rank->segment + 1 == w->segments && chance(w, 10)) {
		part(w, r); /* It looks at no result any more. */
		return;
	}
	rank->state = COLLECTING;
	world_at(w, below(w, 30), APPLICATION, r, 0, 0);
}

/* It waits in another operation, with what is pending here or nothing. */
static void wait_elsewhere(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	if (is_free(w) && rank->pending != 0) {
		rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
		rank->pending_fresh = true;
	} else if (is_free(w) && rank->cut == NEVER && rank->number > 1000 * rank->segment) {
		rank->willing = true; /* It has committed in this era. */
	} else if (!is_free(w)) {
		rank->willing = world_gave_early(w, r);
	}
	world_call(w, r, RB_ROUNDS_WAITING, NULL, 0);
}

/* What the application does when it need not wait. */
static void application_next(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	if (rank->steps > 0 && rank->made < STEPS_MAX) {
		rank->steps--;
		rank->state = COMPUTING;
		world_at(w, chance(w, 15) ? below(w, 3000) : below(w, 150), APPLICATION, r, 0, 0);
		if (chance(w, w->waits))
			wait_elsewhere(w, r);
	} else if (chance(w, 12)) {
		rank->left = true;
		rank->ready_since = rank->pending_fresh ? rank->ready_since : w->now;
		rank->state = GONE;
		w->totals->left++;
		world_call(w, r, RB_ROUNDS_LEAVE, NULL, 0);
		world_at(w, below(w, 3000), APPLICATION, r, 0, 0);
	} else if (w->parts_at_once && rank->segment + 1 == w->segments) {
		part(w, r);
	} else {
		drain(w, r);
	}
}

void world_give_up(struct world *w, uint32_t r, uint64_t collect)
{
	struct rank *rank = &w->ranks[r];

	if (rank->collects == collect && rank->state == WAITING && !rank->ended &&
	    !is_flushing(rank))
		application_next(w, r);
}

void world_application(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];

	if (rank->state == COMPUTING && rank->ended) {
		rank->state = COLLECTING;
		collect(w, r);
	} else if (rank->state == COMPUTING) {
		commit(w, r);
		rank->state = COLLECTING;
		if (rank->steps > 0 && rank->made < STEPS_MAX && chance(w, w->blind)) {
			application_next(w, r); /* Without a look at the results. */
			return;
		}
		world_at(w, below(w, 5), APPLICATION, r, 0, 0);
	} else if (rank->state == READING) {
		rank->lent = NEVER;
		rank->state = rank->left ? GONE : COLLECTING;
		if (is_free(w))
			caught_up_note(rank);
		world_call(w, r, RB_ROUNDS_RELEASE, NULL, 0);
		world_at(w, 0, APPLICATION, r, 0, 0);
	} else if (rank->state == COLLECTING) {
		collect(w, r);
	} else if (rank->state == GONE && rank->next != NEVER) {
		collect(w, r);
		if (rank->state == GONE && !rank->ended)
			world_at(w, below(w, 300), APPLICATION, r, 0, 0);
	} else if ((rank->state == FINISHED || rank->state == GONE) && !rank->ended) {
		part(w, r);
	}
}

void world_segment_begin(struct world *w, uint32_t r, uint32_t segment)
{
	struct rank *rank = &w->ranks[r];

	rank->segment = segment;
	rank->number = 1000 * segment;
	rank->taken = 0;
	rank->steps = (uint32_t)below(w, STEPS_MAX / w->segments / 2);
}
