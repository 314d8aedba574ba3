/*
 * laws_judge.c -- the laws of a rank's whole history: each contribution in one round, the right
 * one, or discarded by the rule for late ones; results by the rule of collection; figures; what is
 * left after a crash. Who opened a round, and when, is in laws_rounds.c.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

void laws_break(struct laws_trial *trial, const char *format, ...)
{
	va_list args;

	if (trial->broken[0] != '\0')
		return;
	va_start(args, format);
	(void)vsnprintf(trial->broken, sizeof(trial->broken), format, args);
	va_end(args);
}

bool laws_victim(const struct laws_trial *trial, uint32_t rank)
{
	for (uint32_t i = 0; i < trial->world.fault_count; i++)
		if (trial->faults[i].kind == RUBATO_SIM_CRASH && trial->faults[i].rank == rank)
			return true;
	return false;
}

bool laws_crashes(const struct laws_trial *trial)
{
	return trial->kinds[RUBATO_SIM_CRASH] > 0;
}

/* ---- Eras and numbers ---- */

uint32_t laws_era_of(const struct laws_op *op, uint64_t round)
{
	uint32_t era = 0;

	while (era < LAWS_ERAS_MAX && op->begins[era + 1] != LAWS_NEVER &&
	       round >= op->begins[era + 1])
		era++;
	return era;
}

uint64_t laws_target(const struct laws_trial *trial, uint32_t op, uint32_t rank, uint32_t index)
{
	const struct laws_op *o = &trial->ops[op];
	const struct laws_commit *c = &o->ranks[rank].commits[index];
	uint64_t base = c->era > 0 ? laws_first_step(trial, op, rank, c->era) : 0;

	return o->begins[c->era] + (c->step - base);
}

/* ---- Where each contribution is ---- */

/* The first round that does not count for this rank: what only those saw who crashed is lost. */
static uint64_t end_of(const struct laws_op *op, uint32_t rank)
{
	const struct laws_rank *side = &op->ranks[rank];

	return side->ended && side->stats.rounds < op->round_end ? side->stats.rounds
								 : op->round_end;
}

static void round_fill(struct laws_trial *trial, uint32_t op_index, uint32_t rank, uint64_t number,
		       uint32_t *next, bool whole)
{
	struct laws_op *op = &trial->ops[op_index];
	struct laws_rank *side = &op->ranks[rank];
	const rubato_contribution *c = &op->rounds[number].ranks[rank];
	uint32_t first = laws_index_of(op, rank, c->first_step);

	if (c->count == 0 || first == LAWS_NONE)
		return; /* Told as it was collected. */
	if (first < *next ||
	    (op->options.late == RUBATO_LATE_ACCUMULATE && whole && first != *next))
		laws_break(trial,
			   "conservation: operation %u, round %" PRIu64 ": contribution %u of rank "
			   "%u, where %u comes next",
			   op_index, number, first, rank, *next);
	*next = first + c->count;
	for (uint32_t i = first; i < *next && i < side->commit_count; i++) {
		side->commits[i].round = number;
		if (laws_era_of(op, number) != side->commits[i].era)
			laws_break(trial,
				   "cut: operation %u, round %" PRIu64 " of era %u holds "
				   "contribution %u of rank %u, committed in era %u",
				   op_index, number, laws_era_of(op, number), i, rank,
				   side->commits[i].era);
	}
}

/* Returns how many of the rank's contributions rounds hold. *whole: all rounds are known. */
static uint32_t rounds_fill(struct laws_trial *trial, uint32_t op_index, uint32_t rank, bool *whole)
{
	struct laws_op *op = &trial->ops[op_index];
	struct laws_rank *side = &op->ranks[rank];
	uint32_t next = 0, held = 0;

	*whole = true;
	for (uint32_t i = 0; i < side->commit_count; i++)
		side->commits[i].round = LAWS_NEVER;
	for (uint64_t r = 0; r < end_of(op, rank); r++) {
		*whole = *whole && op->rounds[r].known;
		if (op->rounds[r].known)
			round_fill(trial, op_index, rank, r, &next, *whole);
	}
	for (uint32_t i = 0; i < side->commit_count; i++)
		held += side->commits[i].round != LAWS_NEVER;
	return held;
}

/* ---- Late or in time ---- */

/* Where ranks' first numbers of an era differ, what its numbers are for is not determined. */
static bool is_vague(const struct laws_trial *trial, uint32_t era)
{
	return trial->differs != LAWS_NONE && era >= trial->differ_era;
}

/* Whether a contribution came in time for the first round that its rank had not joined: that is the
 * one that was open, or the one after it. */
static enum laws_maybe was_in_time(const struct laws_trial *trial, uint32_t op_index, uint32_t rank,
				   uint32_t index)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	uint64_t target;

	if (op->options.rounds == RUBATO_ROUNDS_FREE) {
		if (c->behind)
			return LAWS_NO;
		return c->caught_up && c->round == c->completed ? LAWS_YES : LAWS_MAYBE;
	}
	if (is_vague(trial, c->era))
		return LAWS_MAYBE;
	target = laws_target(trial, op_index, rank, index);
	if (target > c->completed)
		return LAWS_YES;
	if (target < c->completed)
		return LAWS_NO;
	if (c->round == LAWS_NEVER)
		return LAWS_MAYBE;
	return c->round == target ? LAWS_YES : LAWS_NO;
}

static bool era_is_over(const struct laws_op *op, uint32_t era)
{
	return op->begins[era + 1] != LAWS_NEVER;
}

/* Side by side, who waits elsewhere counts with what it has: late contributions become fresh. */
static bool is_lenient(const struct laws_trial *trial, const struct laws_op *op)
{
	return trial->op_count > 1 && op->options.rounds == RUBATO_ROUNDS_FREE;
}

static void judge_commit(struct laws_trial *trial, uint32_t op_index, uint32_t rank, uint32_t index,
			 bool whole)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	enum laws_maybe in_time = was_in_time(trial, op_index, rank, index);
	bool gone = c->round == LAWS_NEVER && whole && op->ranks[rank].told > c->era;
	bool held = c->round != LAWS_NEVER;
	rubato_late late = op->options.late;

	if (held && c->round != c->completed && c->round != c->completed + 1)
		laws_break(trial,
			   "delivery: operation %u: contribution %u of rank %u is in round %" PRIu64
			   ", where %" PRIu64 " was open",
			   op_index, index, rank, c->round, c->completed);
	if (gone && late == RUBATO_LATE_ACCUMULATE)
		laws_break(trial,
			   "conservation: operation %u: contribution %u of rank %u was in no round",
			   op_index, index, rank);
	if (gone && in_time == LAWS_YES && !is_lenient(trial, op))
		laws_break(trial,
			   "conservation: operation %u: contribution %u of rank %u came in time "
			   "and was in no round",
			   op_index, index, rank);
	if (held && late == RUBATO_LATE_DROP && in_time == LAWS_NO)
		laws_break(trial,
			   "lateness: operation %u: contribution %u of rank %u came late and is in "
			   "round %" PRIu64,
			   op_index, index, rank, c->round);
}

/* One record: whether it is rightly called fresh, and holds no more than one if late ones do not
 * accumulate. */
static void judge_record(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
			 uint64_t number)
{
	const struct laws_op *op = &trial->ops[op_index];
	const rubato_contribution *c = &op->rounds[number].ranks[rank];
	uint32_t first = laws_index_of(op, rank, c->first_step);
	bool aligned = op->options.rounds == RUBATO_ROUNDS_ALIGNED, some = false, all_late = true;

	if (c->count == 0 || first == LAWS_NONE) {
		if (c->fresh)
			laws_break(trial,
				   "freshness: operation %u, round %" PRIu64 ": rank %u is fresh "
				   "with nothing",
				   op_index, number, rank);
		return;
	}
	for (uint32_t k = first; k < first + c->count; k++) {
		enum laws_maybe in_time = was_in_time(trial, op_index, rank, k);

		some = some || in_time == LAWS_YES;
		all_late = all_late && in_time == LAWS_NO;
		/* A late one would have been replaced, not joined by another. */
		if (c->count > 1 && k == first && in_time == LAWS_NO && !is_lenient(trial, op) &&
		    op->options.late == RUBATO_LATE_LATEST)
			laws_break(trial,
				   "lateness: operation %u, round %" PRIu64 " has %u contributions "
				   "of rank %u, the first one late",
				   op_index, number, c->count, rank);
	}
	if (aligned)
		some = laws_target(trial, op_index, rank, first + c->count - 1) >= number;
	if (aligned ? (c->fresh != 0) != some
		    : (some && !c->fresh) || (all_late && c->fresh && !is_lenient(trial, op)))
		laws_break(trial, "freshness: operation %u, round %" PRIu64 " has rank %u as %s",
			   op_index, number, rank, c->fresh ? "fresh" : "late");
}

static void judge_staleness(struct laws_trial *trial, uint32_t op_index, uint64_t number)
{
	const struct laws_op *op = &trial->ops[op_index];
	const rubato_round *round = &op->rounds[number].seen;
	uint64_t least = LAWS_NEVER, most = 0;

	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];
		uint32_t first = laws_index_of(op, r, c->first_step);

		if (!c->member || c->count == 0 || first == LAWS_NONE)
			continue;
		for (uint32_t k = first; k < first + c->count; k++) {
			uint64_t target = laws_target(trial, op_index, r, k);
			uint64_t stale = target < number ? number - target : 0;

			least = stale < least ? stale : least;
			most = stale > most ? stale : most;
		}
	}
	if (least == LAWS_NEVER || op->options.rounds == RUBATO_ROUNDS_FREE)
		least = most = 0;
	if (round->staleness_min != least || round->staleness_max != most)
		laws_break(trial,
			   "staleness: operation %u, round %" PRIu64 " is %" PRIu64 " to %" PRIu64
			   " old, by its own account %" PRIu64 " to %" PRIu64,
			   op_index, number, least, most, round->staleness_min,
			   round->staleness_max);
}

/* ---- What was discarded ---- */

/* At the end of an era everything of it is in a round or discarded: so far. */
static void judge_discarded(struct laws_trial *trial, uint32_t op_index)
{
	const struct laws_op *op = &trial->ops[op_index];
	uint64_t before = 0;

	for (uint64_t r = 0; r < op->round_end; r++) {
		const rubato_round *round = &op->rounds[r].seen;
		uint32_t era = laws_era_of(op, r);
		uint64_t want = 0;

		if (!op->rounds[r].known)
			return;
		if (round->discarded < before ||
		    (op->options.late == RUBATO_LATE_ACCUMULATE && round->discarded > 0))
			laws_break(trial,
				   "conservation: operation %u, round %" PRIu64 ": %" PRIu64
				   " discarded after %" PRIu64,
				   op_index, r, round->discarded, before);
		before = round->discarded;
		if (!era_is_over(op, era) || r + 1 != op->begins[era + 1])
			continue;
		for (uint32_t k = 0; k < trial->world.rank_count; k++)
			for (uint32_t i = 0; i < op->ranks[k].commit_count; i++)
				want += op->ranks[k].commits[i].era <= era &&
					op->ranks[k].commits[i].round == LAWS_NEVER;
		if (round->discarded != want && !laws_crashes(trial))
			laws_break(trial,
				   "conservation: operation %u: %" PRIu64 " discarded when era %u "
				   "ends, by its own account %" PRIu64,
				   op_index, want, era, round->discarded);
	}
}

/* ---- Collection ---- */

/* The last round that a rank may be given which has had so many complete. */
static uint64_t available(const struct laws_op *op, const struct laws_collect *c)
{
	uint64_t cut = op->begins[c->era + 1];

	return c->completed < cut ? c->completed : cut;
}

/* OWN: the round of the contribution that is the last when it is collected. NEVER: not known. */
static uint64_t own_round(const struct laws_trial *trial, uint32_t op_index, uint32_t rank,
			  uint32_t index)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	enum laws_maybe in_time = was_in_time(trial, op_index, rank, index);

	if (in_time == LAWS_YES)
		return c->round;
	if (in_time == LAWS_NO && op->options.rounds == RUBATO_ROUNDS_ALIGNED)
		return laws_target(trial, op_index, rank, index);
	return LAWS_NEVER;
}

static void judge_own(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
		      const struct laws_collect *c, uint64_t next)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_commit *last;
	uint64_t own;

	if (c->flushing || is_vague(trial, c->era) || (c->committed == 0 && c->round == LAWS_NEVER))
		return;
	if (c->committed == 0) {
		laws_break(trial,
			   "own: operation %u: rank %u is given round %" PRIu64
			   " before it has committed",
			   op_index, rank, c->round);
		return;
	}
	last = &op->ranks[rank].commits[c->committed - 1];
	own = own_round(trial, op_index, rank, c->committed - 1);
	if (c->round == LAWS_NEVER) { /* Then it has been given its own. */
		if (!c->looks && own != LAWS_NEVER && own >= next && trial->op_count == 1)
			laws_break(trial,
				   "own: operation %u: rank %u is not given round %" PRIu64
				   ", that of its contribution %u",
				   op_index, rank, own, c->committed - 1);
		return;
	}
	if (own == LAWS_NEVER) /* Late: the newest one it was in; or in time. */
		own = c->round + 1 == last->completed || c->round == last->completed ||
				      c->round == last->round
			      ? c->round
			      : last->completed;
	if (c->round != own)
		laws_break(trial,
			   "own: operation %u: rank %u is given round %" PRIu64 ", not %" PRIu64
			   ", that of its contribution %u",
			   op_index, rank, c->round, own, c->committed - 1);
}

/* Own, free rounds: whose contribution came late is given the newest round that it missed. */
static void judge_own_late(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
			   const struct laws_collect *c, uint64_t next)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_commit *last = &op->ranks[rank].commits[c->committed - 1];

	if (op->options.rounds == RUBATO_ROUNDS_FREE && trial->op_count == 1 &&
	    was_in_time(trial, op_index, rank, c->committed - 1) == LAWS_NO &&
	    last->era == c->era && next < last->completed &&
	    last->completed - 1 >= op->begins[c->era])
		laws_break(trial,
			   "own: operation %u: rank %u is given none of the rounds up to %" PRIu64
			   ", which its contribution %u missed",
			   op_index, rank, last->completed - 1, c->committed - 1);
}

/* That nothing was given: nothing was there, and nothing to wait for. */
static void judge_none(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
		       const struct laws_collect *c, uint64_t next)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_rank *side = &op->ranks[rank];
	bool own = op->options.collection == RUBATO_COLLECT_OWN && !c->flushing;
	enum laws_maybe in_time;
	uint64_t round;

	if (own && c->committed > 0 && !c->looks)
		judge_own_late(trial, op_index, rank, c, next);
	if (!own && next < available(op, c) &&
	    !(c->looks && op->options.collection == RUBATO_COLLECT_OWN))
		laws_break(trial,
			   "collection: operation %u: rank %u is told that there is none, though "
			   "round %" PRIu64 " is there",
			   op_index, rank, next);
	if (c->looks || c->flushing || c->committed == 0 || trial->op_count > 1)
		return;
	in_time = was_in_time(trial, op_index, rank, c->committed - 1);
	round = side->commits[c->committed - 1].round;
	if (in_time == LAWS_YES && round != LAWS_NEVER && round >= c->completed)
		laws_break(trial,
			   "collection: operation %u: rank %u does not wait for the round of its "
			   "contribution %u",
			   op_index, rank, c->committed - 1);
	if (in_time == LAWS_NO && c->at_ns != c->begin_ns && !own && c->committed > 1 &&
	    side->commits[c->committed - 1].at_ns == c->begin_ns &&
	    trial->kinds[RUBATO_SIM_FREEZE] == 0 && !laws_crashes(trial))
		laws_break(trial,
			   "collection: operation %u: rank %u waits %" PRIu64 " ns though its "
			   "contribution %u is late",
			   op_index, rank, c->at_ns - c->begin_ns, c->committed - 1);
}

/* Who has left is told that there is none when all that it had committed has been reduced. */
static void judge_left(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
		       const struct laws_collect *c)
{
	const struct laws_rank *side = &trial->ops[op_index].ranks[rank];

	for (uint32_t i = 0; i < c->committed; i++)
		if (side->commits[i].round != LAWS_NEVER && side->commits[i].round >= c->completed)
			laws_break(trial,
				   "collection: operation %u: rank %u, which has left, is told "
				   "that there is none before round %" PRIu64
				   " with its contribution %u",
				   op_index, rank, side->commits[i].round, i);
}

static void judge_collects(struct laws_trial *trial, uint32_t op_index, uint32_t rank)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_rank *side = &op->ranks[rank];
	rubato_collection collection = op->options.collection;
	uint64_t next = 0;

	for (uint32_t i = 0; i < side->collect_count; i++) {
		const struct laws_collect *c = &side->collects[i];
		bool left = side->left && c->flushing;

		if (collection == RUBATO_COLLECT_OWN)
			judge_own(trial, op_index, rank, c, next);
		if (c->round == LAWS_NEVER) {
			if (!left && !laws_crashes(trial))
				judge_none(trial, op_index, rank, c, next);
			else if (left && !c->looks && !laws_crashes(trial))
				judge_left(trial, op_index, rank, c);
			continue;
		}
		if (c->round >= available(op, c) || (c->era > 0 && c->round < op->begins[c->era]))
			laws_break(trial,
				   "cut: operation %u: rank %u is given round %" PRIu64
				   " in era %u, with %" PRIu64 " complete",
				   op_index, rank, c->round, c->era, c->completed);
		if (left && c->round > side->passives[side->passive_count - 1].completed + 1)
			laws_break(trial,
				   "left: operation %u: rank %u is given round %" PRIu64
				   ", and left before",
				   op_index, rank, c->round);
		if (collection == RUBATO_COLLECT_LATEST && !left &&
		    c->round + 1 != available(op, c))
			laws_break(trial,
				   "collection: operation %u: rank %u is given round %" PRIu64
				   " with %" PRIu64 " complete",
				   op_index, rank, c->round, c->completed);
		next = c->round + 1;
	}
}

/* ---- Figures and recovery ---- */

static void judge_merged(struct laws_trial *trial, uint32_t op_index, uint32_t rank, uint32_t held)
{
	const struct laws_op *op = &trial->ops[op_index];
	uint64_t records = 0;

	if (is_lenient(trial, op))
		return;
	for (uint64_t r = 0; r < op->round_end; r++)
		records += op->rounds[r].ranks[rank].count > 0;
	if (op->ranks[rank].stats.merged != held - records)
		laws_break(trial,
			   "figures: operation %u: rank %u has merged %" PRIu64 ", not %" PRIu64,
			   op_index, rank, op->ranks[rank].stats.merged, held - records);
}

static void judge_figures(struct laws_trial *trial, uint32_t op_index, uint32_t rank, uint32_t held,
			  bool whole)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_rank *side = &op->ranks[rank];
	const rubato_partial_stats *s = &side->stats;
	bool over = side->drained || side->ended;

	if (trial->differs != LAWS_NONE && side->told > trial->differ_era)
		laws_break(trial, "misuse: operation %u: rank %u is told the end of era %u",
			   op_index, rank, trial->differ_era);

	if (s->committed != side->commit_count ||
	    s->committed != s->delivered + s->discarded + s->pending)
		laws_break(trial,
			   "conservation: operation %u: rank %u committed %u, by its own count "
			   "%" PRIu64 " = %" PRIu64 " delivered + %" PRIu64 " discarded + %" PRIu64
			   " pending",
			   op_index, rank, side->commit_count, s->committed, s->delivered,
			   s->discarded, s->pending);
	if (!over)
		return;
	if (whole && s->rounds == op->round_end && s->delivered != held)
		laws_break(trial,
			   "conservation: operation %u: rank %u delivered %" PRIu64
			   ", the rounds hold %u",
			   op_index, rank, s->delivered, held);
	if (side->drained && !side->ended && s->pending > 0)
		laws_break(trial, "operation %u: rank %u has drained, and %" PRIu64 " are pending",
			   op_index, rank, s->pending);
	if (whole && side->drained && !side->ended && s->rounds == op->round_end)
		judge_merged(trial, op_index, rank, held);
}

/* What is pending after a crash: all that was neither delivered nor discarded. */
static void judge_pending(struct laws_trial *trial, uint32_t op_index, uint32_t rank, bool whole)
{
	const struct laws_op *op = &trial->ops[op_index];
	const struct laws_rank *side = &op->ranks[rank];
	const rubato_contribution *p = &side->pending;
	bool accumulate = op->options.late == RUBATO_LATE_ACCUMULATE;
	uint32_t left = 0, first = LAWS_NONE;
	uint64_t weight = 0;

	if (!side->ended)
		return;
	for (uint32_t i = 0; i < side->commit_count; i++) {
		if (side->commits[i].round != LAWS_NEVER)
			continue;
		first = first == LAWS_NONE ? i : first;
		left++;
		weight += side->commits[i].weight;
	}
	if (side->stats.pending != p->count)
		laws_break(trial,
			   "recovery: operation %u: rank %u has %" PRIu64
			   " pending, was given back %u",
			   op_index, rank, side->stats.pending, p->count);
	if (accumulate && whole && op->round_end >= side->stats.rounds &&
	    (p->count != left || p->weight != weight ||
	     (left > 0 && (p->first_step != side->commits[first].step ||
			   p->last_step != side->commits[side->commit_count - 1].step))))
		laws_break(trial,
			   "recovery: operation %u: rank %u was given back %u from %" PRIu64
			   " on, weight %" PRIu64 "; %u are in no round, weight %" PRIu64,
			   op_index, rank, p->count, p->first_step, p->weight, left, weight);
	/* All that the survivors have completed was there to collect. */
	if (op->options.collection == RUBATO_COLLECT_EACH && !side->left &&
	    side->next != side->stats.rounds)
		laws_break(trial,
			   "recovery: operation %u: rank %u had %" PRIu64 " of %" PRIu64 " rounds",
			   op_index, rank, side->next, side->stats.rounds);
}

/* Survivors of a crash have completed the same rounds, all that anybody of them has collected. */
static void judge_recovery(struct laws_trial *trial, uint32_t op_index)
{
	struct laws_op *op = &trial->ops[op_index];
	uint32_t first = LAWS_NONE;

	if (op->options.policy == RUBATO_POLICY_WAGMA)
		return; /* Groups complete a round apart. */
	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		const struct laws_rank *side = &op->ranks[r];

		if (!side->ended)
			continue;
		first = first == LAWS_NONE ? r : first;
		if (side->stats.rounds != op->ranks[first].stats.rounds)
			laws_break(trial,
				   "recovery: operation %u ends after %" PRIu64
				   " rounds at rank %u, %" PRIu64 " at rank %u",
				   op_index, op->ranks[first].stats.rounds, first,
				   side->stats.rounds, r);
	}
	for (uint32_t r = 0; r < trial->world.rank_count && first != LAWS_NONE; r++)
		if (!laws_victim(trial, r) && op->ranks[r].next > op->ranks[first].stats.rounds)
			laws_break(trial,
				   "recovery: operation %u: rank %u was given %" PRIu64
				   " rounds, the survivors end after %" PRIu64,
				   op_index, r, op->ranks[r].next, op->ranks[first].stats.rounds);
	if (first != LAWS_NONE && op->round_end > op->ranks[first].stats.rounds)
		op->round_end = op->ranks[first].stats.rounds; /* The rest is void. */
}

/* ---- All ---- */

static void judge_op(struct laws_trial *trial, uint32_t op_index)
{
	struct laws_op *op = &trial->ops[op_index];
	uint64_t allocated = op->round_end;

	judge_recovery(trial, op_index);
	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		bool whole, victim = laws_victim(trial, r);
		uint32_t held = rounds_fill(trial, op_index, r, &whole);

		for (uint32_t i = 0; i < op->ranks[r].commit_count; i++)
			judge_commit(trial, op_index, r, i, whole && !victim);
		if (!whole && op->options.collection == RUBATO_COLLECT_EACH)
			laws_break(trial, "operation %u: a round was given to nobody", op_index);
		if (victim)
			continue;
		judge_collects(trial, op_index, r);
		judge_figures(trial, op_index, r, held, whole);
		judge_pending(trial, op_index, r, whole);
	}
	for (uint64_t number = 0; number < op->round_end; number++) {
		if (!op->rounds[number].known || is_vague(trial, laws_era_of(op, number)))
			continue;
		for (uint32_t r = 0; r < trial->world.rank_count; r++)
			judge_record(trial, op_index, r, number);
		judge_staleness(trial, op_index, number);
	}
	judge_discarded(trial, op_index);
	laws_judge_rounds(trial, op_index);
	op->round_end = allocated;
}

void laws_judge(struct laws_trial *trial, rubato_status status, const rubato_sim_result *result)
{
	/* A cut fires when it finds a message to hold back: that is up to chance. */
	uint32_t must = trial->kinds[RUBATO_SIM_CRASH] + trial->kinds[RUBATO_SIM_FREEZE];

	rubato_status want = trial->is_lagged              ? RUBATO_OK
			     : trial->differs != LAWS_NONE ? RUBATO_ERR_MISMATCH
			     : trial->deserts              ? RUBATO_ERR_TIMEOUT
							   : RUBATO_OK;

	if (status != want && !(laws_crashes(trial) && status == RUBATO_ERR_PEER))
		laws_break(trial, "progress: rank %u: %s", result->failed_rank,
			   status == RUBATO_OK ? "was refused nothing" : rubato_error_text());
	if (want != RUBATO_OK && trial->heard != UINT64_MAX >> (64 - trial->world.rank_count))
		laws_break(trial, "misuse: of the ranks only %" PRIx64 " hear of it", trial->heard);
	if (result->faults_fired < must)
		laws_break(trial, "%u of %u faults fired", result->faults_fired, must);
	for (uint32_t op = 0; op < trial->op_count && !trial->is_lagged; op++)
		judge_op(trial, op);
}
