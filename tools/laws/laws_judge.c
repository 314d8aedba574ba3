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

void laws_break_round(const struct laws_op *op, const char *law, uint64_t round, const char *format,
		      ...)
{
	char text[LAWS_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	laws_break(op->trial, "%s%soperation %u, round %" PRIu64 "%s", law != NULL ? law : "",
		   law != NULL ? ": " : "", op->index, round, text);
}

void laws_break_rank(const struct laws_op *op, const char *law, uint32_t rank, const char *format,
		     ...)
{
	char text[LAWS_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	laws_break(op->trial, "%s%soperation %u: rank %u%s", law != NULL ? law : "",
		   law != NULL ? ": " : "", op->index, rank, text);
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

uint64_t laws_target(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	uint64_t base = c->era > 0 ? laws_first_step(op, rank, c->era) : 0;

	return op->begins[c->era] + (c->step - base);
}

/* ---- Where each contribution is ---- */

/* The first round that does not count for this rank: what only those saw who crashed is lost. */
static uint64_t end_of(const struct laws_op *op, uint32_t rank)
{
	const struct laws_rank *side = &op->ranks[rank];

	return side->ended && side->stats.rounds < op->round_end ? side->stats.rounds
								 : op->round_end;
}

static void round_fill(struct laws_op *op, uint32_t rank, uint64_t number, uint32_t *next,
		       bool whole)
{
	struct laws_rank *side = &op->ranks[rank];
	const rubato_contribution *c = &op->rounds[number].ranks[rank];
	uint32_t first = laws_index_of(op, rank, c->first_step);

	if (c->count == 0 || first == LAWS_NONE)
		return; /* Told as it was collected. */
	if (first < *next ||
	    (op->options.late == RUBATO_LATE_ACCUMULATE && whole && first != *next))
		laws_break_round(op, "conservation", number,
				 ": contribution %u of rank %u, where %u comes next", first, rank,
				 *next);
	*next = first + c->count;
	for (uint32_t i = first; i < *next && i < side->commit_count; i++) {
		side->commits[i].round = number;
		if (laws_era_of(op, number) != side->commits[i].era)
			laws_break_round(
				op, "cut", number,
				" of era %u holds contribution %u of rank %u, committed in era %u",
				laws_era_of(op, number), i, rank, side->commits[i].era);
	}
}

/* Returns how many of the rank's contributions rounds hold. *whole: all rounds are known. */
static uint32_t rounds_fill(struct laws_op *op, uint32_t rank, bool *whole)
{
	struct laws_rank *side = &op->ranks[rank];
	uint32_t next = 0, held = 0;

	*whole = true;
	for (uint32_t i = 0; i < side->commit_count; i++)
		side->commits[i].round = LAWS_NEVER;
	for (uint64_t r = 0; r < end_of(op, rank); r++) {
		*whole = *whole && op->rounds[r].known;
		if (op->rounds[r].known)
			round_fill(op, rank, r, &next, *whole);
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
static enum laws_maybe was_in_time(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	uint64_t target;

	if (op->options.rounds == RUBATO_ROUNDS_FREE) {
		if (c->behind)
			return LAWS_NO;
		return c->caught_up && c->round == c->completed ? LAWS_YES : LAWS_MAYBE;
	}
	if (is_vague(op->trial, c->era))
		return LAWS_MAYBE;
	target = laws_target(op, rank, index);
	if (target > c->completed)
		return LAWS_YES;
	if (target < c->completed)
		return LAWS_NO;
	if (c->round == LAWS_NEVER || (laws_by_nodes(op) && c->round != target))
		return LAWS_MAYBE;
	return c->round == target ? LAWS_YES : LAWS_NO;
}

bool laws_by_nodes(const struct laws_op *op)
{
	return op->options.members == RUBATO_MEMBERS_NODES;
}

static bool era_is_over(const struct laws_op *op, uint32_t era)
{
	return op->begins[era + 1] != LAWS_NEVER;
}

bool laws_is_lenient(const struct laws_op *op)
{
	return op->trial->op_count > 1 && op->options.rounds == RUBATO_ROUNDS_FREE;
}

static void judge_commit(const struct laws_op *op, uint32_t rank, uint32_t index, bool whole)
{
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	enum laws_maybe in_time = was_in_time(op, rank, index);
	bool gone = c->round == LAWS_NEVER && whole && op->ranks[rank].told > c->era;
	bool held = c->round != LAWS_NEVER;
	rubato_late late = op->options.late;

	if (held && (laws_by_nodes(op) ? c->round < c->completed
				       : c->round != c->completed && c->round != c->completed + 1))
		laws_break(op->trial,
			   "delivery: operation %u: contribution %u of rank %u is in round %" PRIu64
			   ", where %" PRIu64 " was open",
			   op->index, index, rank, c->round, c->completed);
	if (gone && late == RUBATO_LATE_ACCUMULATE)
		laws_break(op->trial,
			   "conservation: operation %u: contribution %u of rank %u was in no round",
			   op->index, index, rank);
	if (gone && in_time == LAWS_YES && !laws_is_lenient(op) && !laws_by_nodes(op))
		laws_break(op->trial,
			   "conservation: operation %u: contribution %u of rank %u came in time "
			   "and was in no round",
			   op->index, index, rank);
	if (held && late == RUBATO_LATE_DROP && in_time == LAWS_NO)
		laws_break(op->trial,
			   "lateness: operation %u: contribution %u of rank %u came late and is in "
			   "round %" PRIu64,
			   op->index, index, rank, c->round);
}

/* One record: whether it is rightly called fresh, and holds no more than one if late ones do not
 * accumulate. */
static void judge_record(const struct laws_op *op, uint32_t rank, uint64_t number)
{
	const rubato_contribution *c = &op->rounds[number].ranks[rank];
	uint32_t first = laws_index_of(op, rank, c->first_step);
	bool aligned = op->options.rounds == RUBATO_ROUNDS_ALIGNED, some = false, all_late = true;

	if (c->count == 0 || first == LAWS_NONE) {
		if (c->fresh)
			laws_break_round(op, "freshness", number, ": rank %u is fresh with nothing",
					 rank);
		return;
	}
	for (uint32_t k = first; k < first + c->count; k++) {
		enum laws_maybe in_time = was_in_time(op, rank, k);

		some = some || in_time == LAWS_YES;
		all_late = all_late && in_time == LAWS_NO;
		/* A late one would have been replaced, not joined by another. */
		if (c->count > 1 && k == first && in_time == LAWS_NO && !laws_is_lenient(op) &&
		    op->options.late == RUBATO_LATE_LATEST)
			laws_break_round(op, "lateness", number,
					 " has %u contributions of rank %u, the first one late",
					 c->count, rank);
	}
	if (aligned)
		some = laws_target(op, rank, first + c->count - 1) >= number;
	if (aligned ? (c->fresh != 0) != some
		    : (some && !c->fresh) || (all_late && c->fresh && !laws_is_lenient(op)))
		laws_break_round(op, "freshness", number, " has rank %u as %s", rank,
				 c->fresh ? "fresh" : "late");
}

static void judge_staleness(const struct laws_op *op, uint64_t number)
{
	const rubato_round *round = &op->rounds[number].seen;
	uint64_t least = LAWS_NEVER, most = 0;

	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];
		uint32_t first = laws_index_of(op, r, c->first_step);

		if (!c->member || c->count == 0 || first == LAWS_NONE)
			continue;
		for (uint32_t k = first; k < first + c->count; k++) {
			uint64_t target = laws_target(op, r, k);
			uint64_t stale = target < number ? number - target : 0;

			least = stale < least ? stale : least;
			most = stale > most ? stale : most;
		}
	}
	if (least == LAWS_NEVER || op->options.rounds == RUBATO_ROUNDS_FREE)
		least = most = 0;
	if (round->staleness_min != least || round->staleness_max != most)
		laws_break_round(op, "staleness", number,
				 " is %" PRIu64 " to %" PRIu64 " old, by its own account %" PRIu64
				 " to %" PRIu64,
				 least, most, round->staleness_min, round->staleness_max);
}

/* ---- What was discarded ---- */

/* At the end of an era everything of it is in a round or discarded: so far. */
static void judge_discarded(const struct laws_op *op)
{
	uint64_t before = 0;

	for (uint64_t r = 0; r < op->round_end; r++) {
		const rubato_round *round = &op->rounds[r].seen;
		uint32_t era = laws_era_of(op, r);
		uint64_t want = 0;

		if (!op->rounds[r].known)
			return;
		if (round->discarded < before ||
		    (op->options.late == RUBATO_LATE_ACCUMULATE && round->discarded > 0))
			laws_break_round(op, "conservation", r,
					 ": %" PRIu64 " discarded after %" PRIu64, round->discarded,
					 before);
		before = round->discarded;
		if (!era_is_over(op, era) || r + 1 != op->begins[era + 1])
			continue;
		for (uint32_t k = 0; k < op->trial->world.rank_count; k++)
			for (uint32_t i = 0; i < op->ranks[k].commit_count; i++)
				want += op->ranks[k].commits[i].era <= era &&
					op->ranks[k].commits[i].round == LAWS_NEVER;
		if (round->discarded != want && !laws_crashes(op->trial))
			laws_break(op->trial,
				   "conservation: operation %u: %" PRIu64 " discarded when era %u "
				   "ends, by its own account %" PRIu64,
				   op->index, want, era, round->discarded);
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
static uint64_t own_round(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	const struct laws_commit *c = &op->ranks[rank].commits[index];
	enum laws_maybe in_time = was_in_time(op, rank, index);

	if (in_time == LAWS_YES && laws_by_nodes(op) &&
	    op->options.rounds == RUBATO_ROUNDS_ALIGNED) {
		uint64_t target = laws_target(op, rank, index);

		return c->round < target ? c->round : target; /* Up to there it moves along. */
	}
	if (in_time == LAWS_YES)
		return c->round;
	if (in_time == LAWS_NO && op->options.rounds == RUBATO_ROUNDS_ALIGNED)
		return laws_target(op, rank, index);
	return LAWS_NEVER;
}

static void judge_own(const struct laws_op *op, uint32_t rank, const struct laws_collect *c,
		      uint64_t next)
{
	const struct laws_commit *last;
	uint64_t own;

	if (c->flushing || is_vague(op->trial, c->era) ||
	    (c->committed == 0 && c->round == LAWS_NEVER))
		return;
	if (c->committed == 0) {
		laws_break_rank(op, "own", rank,
				" is given round %" PRIu64 " before it has committed", c->round);
		return;
	}
	last = &op->ranks[rank].commits[c->committed - 1];
	own = own_round(op, rank, c->committed - 1);
	if (c->round == LAWS_NEVER) { /* Then it has been given its own. */
		if (!c->looks && own != LAWS_NEVER && own >= next && op->trial->op_count == 1)
			laws_break_rank(op, "own", rank,
					" is not given round %" PRIu64
					", that of its contribution %u",
					own, c->committed - 1);
		return;
	}
	if (own ==
	    LAWS_NEVER) /* Late: the newest one it was in; or in time, perhaps without its node. */
		own = c->round + 1 == last->completed || c->round == last->completed ||
				      c->round == last->round ||
				      (laws_by_nodes(op) && c->round == last->completed + 1)
			      ? c->round
			      : last->completed;
	if (c->round != own)
		laws_break_rank(op, "own", rank,
				" is given round %" PRIu64 ", not %" PRIu64
				", that of its contribution %u",
				c->round, own, c->committed - 1);
}

/* Own, free rounds: whose contribution came late is given the newest round that it missed. */
static void judge_own_late(const struct laws_op *op, uint32_t rank, const struct laws_collect *c,
			   uint64_t next)
{
	const struct laws_commit *last = &op->ranks[rank].commits[c->committed - 1];

	if (op->options.rounds == RUBATO_ROUNDS_FREE && op->trial->op_count == 1 &&
	    was_in_time(op, rank, c->committed - 1) == LAWS_NO && last->era == c->era &&
	    next < last->completed && last->completed - 1 >= op->begins[c->era])
		laws_break_rank(op, "own", rank,
				" is given none of the rounds up to %" PRIu64
				", which its contribution %u missed",
				last->completed - 1, c->committed - 1);
}

/* That nothing was given: nothing was there, and nothing to wait for. */
static void judge_none(const struct laws_op *op, uint32_t rank, const struct laws_collect *c,
		       uint64_t next)
{
	const struct laws_rank *side = &op->ranks[rank];
	bool own = op->options.collection == RUBATO_COLLECT_OWN && !c->flushing;
	enum laws_maybe in_time;
	uint64_t round;

	if (own && c->committed > 0 && !c->looks)
		judge_own_late(op, rank, c, next);
	if (!own && next < available(op, c) &&
	    !(c->looks && op->options.collection == RUBATO_COLLECT_OWN))
		laws_break_rank(op, "collection", rank,
				" is told that there is none, though round %" PRIu64 " is there",
				next);
	if (c->looks || c->flushing || c->committed == 0 || op->trial->op_count > 1)
		return;
	in_time = was_in_time(op, rank, c->committed - 1);
	round = side->commits[c->committed - 1].round;
	if (laws_by_nodes(op) && op->options.rounds == RUBATO_ROUNDS_ALIGNED &&
	    laws_target(op, rank, c->committed - 1) < round)
		round = laws_target(op, rank, c->committed - 1); /* Which it missed. */
	if (in_time == LAWS_YES && round != LAWS_NEVER && round >= c->completed)
		laws_break_rank(op, "collection", rank,
				" does not wait for the round of its contribution %u",
				c->committed - 1);
	if (in_time == LAWS_NO && c->at_ns != c->begin_ns && !own && c->committed > 1 &&
	    side->commits[c->committed - 1].at_ns == c->begin_ns &&
	    op->trial->kinds[RUBATO_SIM_FREEZE] == 0 && !laws_crashes(op->trial))
		laws_break_rank(op, "collection", rank,
				" waits %" PRIu64 " ns though its contribution %u is late",
				c->at_ns - c->begin_ns, c->committed - 1);
}

/* Who has left is told that there is none when all that it had committed has been reduced. */
static void judge_left(const struct laws_op *op, uint32_t rank, const struct laws_collect *c)
{
	const struct laws_rank *side = &op->ranks[rank];

	for (uint32_t i = 0; i < c->committed; i++)
		if (side->commits[i].round != LAWS_NEVER && side->commits[i].round >= c->completed)
			laws_break_rank(
				op, "collection", rank,
				", which has left, is told that there is none before round %" PRIu64
				" with its contribution %u",
				side->commits[i].round, i);
}

static void judge_collects(const struct laws_op *op, uint32_t rank)
{
	const struct laws_rank *side = &op->ranks[rank];
	rubato_collection collection = op->options.collection;
	uint64_t next = 0;

	for (uint32_t i = 0; i < side->collect_count; i++) {
		const struct laws_collect *c = &side->collects[i];
		bool left = side->left && c->flushing;

		if (collection == RUBATO_COLLECT_OWN)
			judge_own(op, rank, c, next);
		if (c->round == LAWS_NEVER) {
			if (!left && !laws_crashes(op->trial))
				judge_none(op, rank, c, next);
			else if (left && !c->looks && !laws_crashes(op->trial))
				judge_left(op, rank, c);
			continue;
		}
		if (c->round >= available(op, c) || (c->era > 0 && c->round < op->begins[c->era]))
			laws_break_rank(op, "cut", rank,
					" is given round %" PRIu64 " in era %u, with %" PRIu64
					" complete",
					c->round, c->era, c->completed);
		if (left &&
		    c->round > laws_tells_by(op, rank, &side->passives[side->passive_count - 1]))
			laws_break_rank(op, "left", rank,
					" is given round %" PRIu64 ", and left before", c->round);
		if (collection == RUBATO_COLLECT_LATEST && !left &&
		    c->round + 1 != available(op, c))
			laws_break_rank(op, "collection", rank,
					" is given round %" PRIu64 " with %" PRIu64 " complete",
					c->round, c->completed);
		next = c->round + 1;
	}
}

/* ---- Figures and recovery ---- */

static void judge_merged(const struct laws_op *op, uint32_t rank, uint32_t held)
{
	uint64_t records = 0;

	if (laws_is_lenient(op))
		return;
	for (uint64_t r = 0; r < op->round_end; r++)
		records += op->rounds[r].ranks[rank].count > 0;
	/* What was merged and missed its round may be discarded. */
	if (laws_by_nodes(op) && op->options.late != RUBATO_LATE_ACCUMULATE &&
	    op->ranks[rank].stats.merged >= held - records)
		return;
	if (op->ranks[rank].stats.merged != held - records)
		laws_break_rank(op, "figures", rank, " has merged %" PRIu64 ", not %" PRIu64,
				op->ranks[rank].stats.merged, held - records);
}

static void judge_figures(const struct laws_op *op, uint32_t rank, uint32_t held, bool whole)
{
	const struct laws_rank *side = &op->ranks[rank];
	const rubato_partial_stats *s = &side->stats;
	bool over = side->drained || side->ended;

	if (op->trial->differs != LAWS_NONE && side->told > op->trial->differ_era)
		laws_break_rank(op, "misuse", rank, " is told the end of era %u",
				op->trial->differ_era);

	if (s->committed != side->commit_count ||
	    s->committed != s->delivered + s->discarded + s->pending)
		laws_break_rank(op, "conservation", rank,
				" committed %u, by its own count %" PRIu64 " = %" PRIu64
				" delivered + %" PRIu64 " discarded + %" PRIu64 " pending",
				side->commit_count, s->committed, s->delivered, s->discarded,
				s->pending);
	if (!over)
		return;
	if (whole && s->rounds == op->round_end && s->delivered != held)
		laws_break_rank(op, "conservation", rank,
				" delivered %" PRIu64 ", the rounds hold %u", s->delivered, held);
	if (side->drained && !side->ended && s->pending > 0)
		laws_break_rank(op, NULL, rank, " has drained, and %" PRIu64 " are pending",
				s->pending);
	if (whole && side->drained && !side->ended && s->rounds == op->round_end)
		judge_merged(op, rank, held);
}

/* What is pending after a crash: all that was neither delivered nor discarded. */
static void judge_pending(const struct laws_op *op, uint32_t rank, bool whole)
{
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
		laws_break_rank(op, "recovery", rank, " has %" PRIu64 " pending, was given back %u",
				side->stats.pending, p->count);
	if (accumulate && whole && op->round_end >= side->stats.rounds &&
	    (p->count != left || p->weight != weight ||
	     (left > 0 && (p->first_step != side->commits[first].step ||
			   p->last_step != side->commits[side->commit_count - 1].step))))
		laws_break_rank(op, "recovery", rank,
				" was given back %u from %" PRIu64 " on, weight %" PRIu64
				"; %u are in no round, weight %" PRIu64,
				p->count, p->first_step, p->weight, left, weight);
	/* All that the survivors have completed was there to collect. */
	if (op->options.collection == RUBATO_COLLECT_EACH && !side->left &&
	    side->next != side->stats.rounds)
		laws_break_rank(op, "recovery", rank, " had %" PRIu64 " of %" PRIu64 " rounds",
				side->next, side->stats.rounds);
}

/* Survivors of a crash have completed the same rounds, all that anybody of them has collected. */
static void judge_recovery(struct laws_op *op)
{
	uint32_t first = LAWS_NONE;

	if (op->options.policy == RUBATO_POLICY_WAGMA)
		return; /* Groups complete a round apart. */
	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		const struct laws_rank *side = &op->ranks[r];

		if (!side->ended)
			continue;
		first = first == LAWS_NONE ? r : first;
		if (side->stats.rounds != op->ranks[first].stats.rounds)
			laws_break(op->trial,
				   "recovery: operation %u ends after %" PRIu64
				   " rounds at rank %u, %" PRIu64 " at rank %u",
				   op->index, op->ranks[first].stats.rounds, first,
				   side->stats.rounds, r);
	}
	for (uint32_t r = 0; r < op->trial->world.rank_count && first != LAWS_NONE; r++)
		if (!laws_victim(op->trial, r) && op->ranks[r].next > op->ranks[first].stats.rounds)
			laws_break_rank(op, "recovery", r,
					" was given %" PRIu64
					" rounds, the survivors end after %" PRIu64,
					op->ranks[r].next, op->ranks[first].stats.rounds);
	if (first != LAWS_NONE && op->round_end > op->ranks[first].stats.rounds)
		op->round_end = op->ranks[first].stats.rounds; /* The rest is void. */
}

/* ---- All ---- */

static void judge_op(struct laws_op *op)
{
	uint64_t allocated = op->round_end;

	judge_recovery(op);
	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		bool whole, victim = laws_victim(op->trial, r);
		uint32_t held = rounds_fill(op, r, &whole);

		for (uint32_t i = 0; i < op->ranks[r].commit_count; i++)
			judge_commit(op, r, i, whole && !victim);
		if (!whole && op->options.collection == RUBATO_COLLECT_EACH)
			laws_break(op->trial, "operation %u: a round was given to nobody",
				   op->index);
		if (victim)
			continue;
		judge_collects(op, r);
		judge_figures(op, r, held, whole);
		judge_pending(op, r, whole);
	}
	for (uint64_t number = 0; number < op->round_end; number++) {
		if (!op->rounds[number].known || is_vague(op->trial, laws_era_of(op, number)))
			continue;
		for (uint32_t r = 0; r < op->trial->world.rank_count; r++)
			judge_record(op, r, number);
		judge_staleness(op, number);
	}
	judge_discarded(op);
	laws_judge_rounds(op);
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
		judge_op(&trial->ops[op]);
}
