/*
 * laws_rounds.c -- the laws of who opens a round: quorums and full rounds, whom majority draws,
 * deadlines and windows in virtual time, bounds on absence, wagma's groups, the adaptive quorum;
 * and that no round runs that nobody is ready for.
 *
 * Who has drained or left says so in the round that is open then or in the next: in between it may
 * be either, and both are right.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

struct view { /* Of one operation, while its rounds are looked at in order. */
	struct laws_op *op;
	uint32_t n;
	uint64_t turn; /* Grouped rounds so far. */
	uint64_t full_rounds;
	uint32_t absent[LAWS_RANKS_MAX];
	bool exact; /* All of that: every round so far is known, and no bound was in doubt. */
	struct laws_adaptive *adaptive;
};

struct bounds { /* Of a round. */
	uint32_t live_least, live_most;
	uint32_t need_least, need_most;
	bool full, full_known;
};

/* ---- Who is passive ---- */

/* The first and the last round in which it may say so. */
struct telling {
	uint64_t first, last;
};

/* It says so with its node: by the next round, at the latest, that others of it are in. */
static uint64_t node_told(const struct laws_op *op, uint32_t rank, uint64_t round)
{
	for (; round < op->round_end; round++)
		for (uint32_t r = 0; r < op->trial->world.rank_count; r++)
			if (r != rank && op->member_of[r] == op->member_of[rank] &&
			    op->rounds[round].known && op->rounds[round].ranks[r].count > 0)
				return round;
	return LAWS_NEVER;
}

/* The one that was open, or the next. */
static struct telling telling_of(const struct laws_op *op, uint32_t rank,
				 const struct laws_passive *p)
{
	struct telling told = { p->completed, p->completed + 1 };
	uint64_t last = LAWS_NEVER;

	if (p->committed > 0) /* What is pending goes with it. */
		last = op->ranks[rank].commits[p->committed - 1].round;
	if (laws_by_nodes(op))
		told.last = node_told(op, rank, p->completed + 1);
	if (last == p->completed + 1 ||
	    (laws_by_nodes(op) && last != LAWS_NEVER && last > told.first))
		told.first = told.last = last;
	return told;
}

uint64_t laws_tells_by(const struct laws_op *op, uint32_t rank, const struct laws_passive *p)
{
	return telling_of(op, rank, p).last;
}

static enum laws_maybe is_passive(const struct laws_op *op, uint32_t rank, uint64_t round,
				  bool leaves_only)
{
	const struct laws_rank *side = &op->ranks[rank];
	enum laws_maybe found = LAWS_NO;

	for (uint32_t i = 0; i < side->passive_count; i++) {
		const struct laws_passive *p = &side->passives[i];

		if (leaves_only && !p->leaves)
			continue;
		struct telling told = telling_of(op, rank, p);

		if (round <= told.first || (!p->leaves && round >= op->begins[p->era + 1]))
			continue;
		if (round > told.last)
			return LAWS_YES;
		found = LAWS_MAYBE;
	}
	return found;
}

enum laws_maybe laws_was_passive(const struct laws_op *op, uint32_t rank, uint64_t round)
{
	return is_passive(op, rank, round, false);
}

enum laws_maybe laws_had_left(const struct laws_op *op, uint32_t rank, uint64_t round)
{
	return is_passive(op, rank, round, true);
}

bool laws_may_turn_passive(const struct laws_op *op, uint32_t rank, uint64_t round)
{
	const struct laws_rank *side = &op->ranks[rank];

	for (uint32_t i = 0; i < side->passive_count; i++) {
		const struct laws_passive *p = &side->passives[i];
		struct telling told = telling_of(op, rank, p);

		if (round >= told.first && round <= told.last &&
		    (p->leaves || round < op->begins[p->era + 1] || round <= p->completed + 1))
			return true;
	}
	return false;
}

/* ---- What a round needs ---- */

/* Whether some live rank has been in none of the last max_absence rounds. */
static enum laws_maybe absence_due(const struct view *v, uint64_t round)
{
	uint32_t most = v->op->options.max_absence;
	enum laws_maybe due = LAWS_NO;

	for (uint32_t r = 0; most > 0 && r < v->n; r++) {
		enum laws_maybe passive = laws_was_passive(v->op, r, round);

		if (v->absent[r] < most || passive == LAWS_YES)
			continue;
		if (passive == LAWS_NO)
			return LAWS_YES;
		due = LAWS_MAYBE;
	}
	return due;
}

/* Whether any of the member's ranks is live before this round. */
static enum laws_maybe is_live(const struct view *v, uint32_t member, uint64_t round)
{
	enum laws_maybe live = LAWS_NO;

	for (uint32_t r = 0; r < v->n; r++) {
		enum laws_maybe passive = laws_was_passive(v->op, r, round);

		if (v->op->member_of[r] != member || passive == LAWS_YES)
			continue;
		if (passive == LAWS_NO)
			return LAWS_YES;
		live = LAWS_MAYBE;
	}
	return live;
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

_Static_assert(RUBATO_POLICY_COUNT == 6, "a policy more: what must hold of its rounds?");

static void bounds_find(const struct view *v, uint64_t round, struct bounds *b)
{
	const rubato_partial_options *o = &v->op->options;
	enum laws_maybe absence = absence_due(v, round);
	uint32_t k = 1;

	memset(b, 0, sizeof(*b));
	for (uint32_t i = 0; i < v->op->member_count; i++) {
		enum laws_maybe live = is_live(v, i, round);

		b->live_least += live == LAWS_YES;
		b->live_most += live != LAWS_NO;
	}
	b->full = o->full_every > 0 && (round + 1) % o->full_every == 0;
	b->full_known = b->full || (v->exact && absence != LAWS_MAYBE) || o->max_absence == 0;
	b->full = b->full || (v->exact && absence == LAWS_YES);
	if (o->policy == RUBATO_POLICY_QUORUM)
		k = v->op->quorum;
	else if (o->policy == RUBATO_POLICY_DEADLINE)
		k = v->op->member_count;
	else if (o->policy == RUBATO_POLICY_ADAPTIVE)
		k = laws_adaptive_quorum(v->adaptive);
	k = b->full ? v->op->member_count : k;
	b->need_least = least_of(k, b->live_least);
	b->need_most = least_of(k, b->live_most);
	if (o->policy == RUBATO_POLICY_ADAPTIVE && !b->full && !v->exact) {
		b->need_least = least_of(1, b->live_least); /* Its history is not known. */
		b->need_most = b->live_most;
	}
	if (!b->full_known)
		b->need_most = b->live_most;
}

static void judge_need(const struct view *v, uint64_t round, const struct bounds *b)
{
	for (uint32_t i = 0; i < v->op->need_count; i++) {
		const struct laws_need *need = &v->op->needs[i];

		if (need->round == round &&
		    (need->need < b->need_least || need->need > b->need_most))
			laws_break_round(v->op, "quorum", round,
					 " needs %u to %u ranks, the library says %u",
					 b->need_least, b->need_most, need->need);
	}
}

/* ---- Who opened it ---- */

/* The member that the seed draws among the live ones: with all of them known. */
static uint32_t drawn(const struct view *v, uint64_t round)
{
	uint64_t hash = rng_mix(v->op->options.seed ^ rng_mix(round + 0x9e3779b97f4a7c15u));
	uint32_t live = 0;

	for (uint32_t i = 0; i < v->op->member_count; i++)
		live += is_live(v, i, round) == LAWS_YES;
	/* The hash as a fraction of one, times live. */
	uint64_t left = (hash >> 32) * live + ((hash & UINT32_MAX) * live >> 32);

	left >>= 32;
	for (uint32_t i = 0; i < v->op->member_count; i++)
		if (is_live(v, i, round) == LAWS_YES && left-- == 0)
			return i;
	return LAWS_NONE;
}

/* When the rank had something for the round: NEVER: it had not. */
static uint64_t ready_since(const struct view *v, uint32_t rank, uint64_t round)
{
	const rubato_contribution *c = &v->op->rounds[round].ranks[rank];
	const struct laws_rank *side = &v->op->ranks[rank];
	uint32_t first = laws_index_of(v->op, rank, c->first_step);

	return c->fresh && first != LAWS_NONE ? side->commits[first].at_ns : LAWS_NEVER;
}

/* At the least: it may have been ready later, when the round before was over. */
static uint64_t first_ready(const struct view *v, uint64_t round)
{
	uint64_t first = LAWS_NEVER;

	for (uint32_t r = 0; r < v->n; r++) {
		uint64_t since = ready_since(v, r, round);

		if (laws_may_turn_passive(v->op, r, round))
			return 0; /* A drain or a leave may have opened it. */
		first = since < first ? since : first;
	}
	return first;
}

static bool has_begun(const struct view *v, uint32_t rank, uint64_t round)
{
	const struct laws_rank *side = &v->op->ranks[rank];
	uint32_t era = laws_era_of(v->op, round);
	bool has = laws_may_turn_passive(v->op, rank, round);

	for (uint32_t i = 0; i < side->commit_count && !has; i++)
		has = side->commits[i].era == era && side->commits[i].completed <= round;
	return has;
}

/* Side by side a rank may count as ready with nothing, but not before it has committed. */
static void judge_begun(const struct view *v, uint64_t round, const struct bounds *b)
{
	uint32_t begun = 0, era = laws_era_of(v->op, round);

	for (uint32_t i = 0; i < v->op->member_count; i++) {
		bool all = is_live(v, i, round) != LAWS_NO;

		for (uint32_t r = 0; r < v->n; r++)
			all = all && (v->op->member_of[r] != i || has_begun(v, r, round) ||
				      laws_was_passive(v->op, r, round) != LAWS_NO);
		begun += all;
	}
	if (begun < b->need_least && v->op->options.policy != RUBATO_POLICY_DEADLINE)
		laws_break_round(v->op, "quorum", round,
				 ": %u members have committed anything in era %u, not %u", begun,
				 era, b->need_least);
}

/* Side by side, in aligned rounds: whether one before took in this rank's contribution for this
 * round, which it committed ahead when collect had sent it on. It counts as ready then. */
static bool gave_early(const struct view *v, uint32_t rank, uint64_t round)
{
	const struct laws_rank *side = &v->op->ranks[rank];
	uint32_t era = laws_era_of(v->op, round);

	if (v->op->trial->op_count == 1 || v->op->options.rounds == RUBATO_ROUNDS_FREE)
		return false;
	for (uint32_t i = 0; i < side->commit_count; i++) {
		const struct laws_commit *c = &side->commits[i];
		/* It may have been in a round that nobody was given (LATEST). */
		bool before = c->round == LAWS_NEVER ? c->completed < round : c->round < round;

		if (c->era == era && before && laws_target(v->op, rank, i) >= round)
			return true;
	}
	return false;
}

/* Whether the member may have been ready when the round opened: all of its live ranks, one of them
 * with more than its willingness. */
static bool may_be_ready(const struct view *v, uint32_t member, uint64_t round)
{
	bool some = false;

	for (uint32_t r = 0; r < v->n; r++) {
		bool here = v->op->rounds[round].ranks[r].fresh != 0;
		bool passive = laws_may_turn_passive(v->op, r, round);

		if (v->op->member_of[r] != member)
			continue;
		some = some || here || passive || gave_early(v, r, round);
		/* Side by side it may have been willing. */
		if (!here && !passive && laws_was_passive(v->op, r, round) == LAWS_NO &&
		    !gave_early(v, r, round) && !laws_is_lenient(v->op))
			return false;
	}
	return some;
}

static void judge_opening(const struct view *v, uint64_t round, const struct bounds *b)
{
	const rubato_partial_options *o = &v->op->options;
	uint32_t ready = 0, fresh = 0, draw;

	for (uint32_t r = 0; r < v->n; r++)
		fresh += v->op->rounds[round].ranks[r].fresh != 0;
	for (uint32_t i = 0; i < v->op->member_count; i++)
		ready += may_be_ready(v, i, round);
	if (ready == 0)
		laws_break_round(v->op, "progress", round, " has run for nobody");
	if (laws_is_lenient(v->op)) {
		judge_begun(v, round, b);
		return;
	}
	if (ready < b->need_least && (o->policy != RUBATO_POLICY_DEADLINE || b->full))
		laws_break_round(v->op, "quorum", round, "%s: %u members are ready, not %u",
				 b->full ? " is full" : "", ready, b->need_least);
	/* With one missing, nobody but the clock opens it. */
	if (o->policy == RUBATO_POLICY_DEADLINE && ready < b->live_least && fresh > 0 &&
	    v->op->rounds[round].first_ns < first_ready(v, round) + o->deadline_ns)
		laws_break_round(v->op, "deadline", round,
				 " is over before its deadline, with %u of %u members", ready,
				 b->live_least);
	if (o->policy != RUBATO_POLICY_MAJORITY || b->full || !b->full_known ||
	    b->live_least != b->live_most)
		return;
	draw = drawn(v, round);
	if (draw != LAWS_NONE && !may_be_ready(v, draw, round))
		laws_break_round(v->op, "majority", round,
				 " is not opened by member %u, which was drawn", draw);
}

/* Who has nothing for a round that opens is waited for as long as the window. */
static void judge_window(const struct view *v, uint64_t round)
{
	uint64_t opens_ns = first_ready(v, round);

	if (v->op->options.window_ns == 0 || opens_ns == 0 || opens_ns == LAWS_NEVER)
		return;
	for (uint32_t r = 0; r < v->n; r++) {
		const struct laws_rank *side = &v->op->ranks[r];

		if (v->op->rounds[round].ranks[r].count > 0 || laws_by_nodes(v->op) ||
		    laws_was_passive(v->op, r, round) != LAWS_NO)
			continue;
		/* It has committed meanwhile: that was pending, or late and dropped. */
		for (uint32_t i = 0; i < side->commit_count; i++)
			if (side->commits[i].round == round + 1 &&
			    side->commits[i].completed == round &&
			    side->commits[i].at_ns >= opens_ns &&
			    side->commits[i].at_ns < opens_ns + v->op->options.window_ns)
				laws_break_round(
					v->op, "window", round,
					" has gone on without rank %u, which came in its window",
					r);
	}
}

/* What messages of a round may take, generously. */
static uint64_t round_ns(const struct view *v)
{
	const rubato_sim_options *w = &v->op->trial->world;
	double hop = (double)w->latency_ns * (1 + w->jitter);
	double bytes = (double)(v->op->count * rubato_type_bytes(v->op->type) + 1024) * 4 * v->n;

	return (uint64_t)(hop * (32 + 4 * v->n) + bytes / w->bandwidth * 1e9);
}

/* When at the latest all of them were ready. NEVER: not known, or not all. */
static uint64_t member_ready(const struct view *v, uint32_t member, uint64_t round)
{
	uint64_t latest = LAWS_NEVER;

	for (uint32_t r = 0; r < v->n; r++) {
		const rubato_contribution *c = &v->op->rounds[round].ranks[r];
		uint32_t last = laws_index_of(v->op, r, c->last_step);
		uint64_t at_ns;

		if (v->op->member_of[r] != member || laws_was_passive(v->op, r, round) == LAWS_YES)
			continue;
		if (!c->fresh || last == LAWS_NONE)
			return LAWS_NEVER;
		at_ns = v->op->ranks[r].commits[last].at_ns; /* Those before may be late. */
		latest = latest == LAWS_NEVER || at_ns > latest ? at_ns : latest;
	}
	return latest;
}

/* When at the latest so many members were ready for the round that it had to open. NEVER: not
 * known. */
static uint64_t enough_ready(const struct view *v, uint64_t round, const struct bounds *b)
{
	const rubato_partial_options *o = &v->op->options;
	bool drawn_one = o->policy == RUBATO_POLICY_MAJORITY && !b->full;
	uint32_t draw = drawn_one ? drawn(v, round) : LAWS_NONE, count = 0;
	uint32_t need = o->policy == RUBATO_POLICY_DEADLINE && !b->full ? 1 : b->need_least;
	uint64_t times[LAWS_RANKS_MAX];

	if (drawn_one && b->live_least != b->live_most)
		return LAWS_NEVER; /* Among whom it was drawn is not known. */
	for (uint32_t member = 0; member < v->op->member_count; member++) {
		times[count] = member_ready(v, member, round);
		if (times[count] == LAWS_NEVER)
			continue;
		if (member == draw)
			return times[count];
		for (uint32_t i = count++; i > 0 && times[i] < times[i - 1]; i--) {
			uint64_t swap = times[i];

			times[i] = times[i - 1];
			times[i - 1] = swap;
		}
	}
	return drawn_one || need == 0 || count < need ? LAWS_NEVER : times[need - 1];
}

/* Who is ready for the round that is open, and so are enough others, or a time is over that was
 * set, waits no longer: in a sound world, and where results hold nobody up. */
static void judge_promptness(const struct view *v, uint64_t round, const struct bounds *b)
{
	const rubato_partial_options *o = &v->op->options;
	bool room = o->collection == RUBATO_COLLECT_LATEST || v->op->depth > v->op->round_end;
	bool timed = o->policy == RUBATO_POLICY_DEADLINE && !b->full;
	uint64_t bound = o->window_ns + round_ns(v) + (timed ? o->deadline_ns : 0);
	uint64_t opens_ns;

	if (!room || !b->full_known || b->need_least != b->need_most ||
	    v->op->trial->op_count > 1 || v->op->trial->world.fault_count > 0 ||
	    round >= v->op->begins[1])
		return;
	opens_ns = enough_ready(v, round, b);
	for (uint32_t r = 0; r < v->n; r++) {
		const struct laws_rank *side = &v->op->ranks[r];

		for (uint32_t i = 0; i < side->collect_count; i++) {
			const struct laws_collect *c = &side->collects[i];
			const struct laws_commit *last;

			if (c->round != round || c->committed == 0)
				continue;
			last = &side->commits[c->committed - 1];
			if (v->op->rounds[round].ranks[r].fresh && last->round == round &&
			    last->completed == round && c->begin_ns == last->at_ns &&
			    opens_ns != LAWS_NEVER && c->at_ns > last->at_ns + bound &&
			    c->at_ns > opens_ns + bound)
				laws_break_rank(v->op, "promptness", r,
						" was ready for round %" PRIu64
						" and waited %" PRIu64 " ns, not %" PRIu64,
						round, c->at_ns - last->at_ns, bound);
		}
	}
}

/* ---- Bounds on absence, groups ---- */

static void judge_absence(struct view *v, uint64_t round)
{
	uint32_t most = v->op->options.max_absence;

	for (uint32_t r = 0; r < v->n; r++) {
		bool here = v->op->rounds[round].ranks[r].count > 0;

		v->absent[r] = here ? 0 : v->absent[r] + 1;
		if (most > 0 && v->absent[r] > most && v->exact &&
		    laws_was_passive(v->op, r, round) == LAWS_NO &&
		    !laws_may_turn_passive(v->op, r, round))
			laws_break_rank(v->op, "fairness", r,
					" is in none of the %u rounds up to %" PRIu64, v->absent[r],
					round);
	}
}

/* Cards in `group` hands, dealt out by turns and put together again: where card `rank` is then. */
static uint32_t position(uint32_t n, uint32_t group, uint64_t turn, uint32_t rank)
{
	uint32_t deck[LAWS_RANKS_MAX], hands[LAWS_RANKS_MAX];

	for (uint32_t i = 0; i < n; i++)
		deck[i] = i;
	for (uint64_t t = 0; t < turn; t++) {
		for (uint32_t i = 0; i < n; i++)
			hands[i % group * (n / group) + i / group] = deck[i];
		memcpy(deck, hands, n * sizeof(deck[0]));
	}
	for (uint32_t i = 0; i < n; i++)
		if (deck[i] == rank)
			return i;
	return LAWS_NONE;
}

static void judge_groups(const struct view *v, uint64_t round, const struct bounds *b)
{
	const struct laws_round *seen = &v->op->rounds[round];
	uint32_t group = v->op->group, count = v->op->member_count, at[LAWS_RANKS_MAX];
	bool whole = b->full || group == count;

	for (uint32_t r = 0; r < v->n; r++)
		at[r] = whole ? 0 : position(count, group, v->turn, v->op->member_of[r]) / group;
	for (uint32_t r = 0; r < v->n; r++) {
		uint64_t want = 0;

		for (uint32_t other = 0; other < v->n; other++)
			want |= (uint64_t)(at[other] == at[r]) << other;
		if (seen->groups[r] != 0 && seen->groups[r] != want)
			laws_break_round(v->op, "groups", round,
					 ": rank %u reduces with %" PRIx64 ", not %" PRIx64, r,
					 seen->groups[r], want);
	}
}

static void judge_members(const struct view *v, uint64_t round, const struct bounds *b)
{
	const struct laws_round *seen = &v->op->rounds[round];

	if (v->op->options.policy == RUBATO_POLICY_WAGMA) {
		if (v->exact && b->full_known)
			judge_groups(v, round, b);
		return;
	}
	for (uint32_t r = 0; r < v->n; r++)
		if (!seen->ranks[r].member)
			laws_break_round(v->op, "agreement", round, ": rank %u is no member", r);
}

/* ---- In order ---- */

static void durations_note(const struct view *v, uint64_t round)
{
	const struct laws_round *seen = &v->op->rounds[round];

	for (uint32_t member = 0; member < v->op->member_count; member++) {
		uint64_t longest = 0;
		bool any = false;

		for (uint32_t r = 0; r < v->n; r++) {
			const rubato_contribution *c = &seen->ranks[r];
			uint32_t last = laws_index_of(v->op, r, c->last_step);
			uint64_t duration_ns;

			if (v->op->member_of[r] != member || c->count == 0 || last == LAWS_NONE)
				continue;
			any = true;
			duration_ns = v->op->ranks[r].commits[last].duration_ns;
			longest = duration_ns > longest ? duration_ns : longest;
		}
		if (any)
			laws_adaptive_note(v->adaptive, member, longest);
	}
	laws_adaptive_round(v->adaptive);
}

/* A round holds something of all live ranks of a node, or of none. Side by side some of them may
 * have been willing to be in it with nothing. */
static void judge_whole(const struct view *v, uint64_t round)
{
	const struct laws_round *seen = &v->op->rounds[round];
	bool in[LAWS_RANKS_MAX] = { false };

	for (uint32_t r = 0; r < v->n; r++)
		in[v->op->member_of[r]] |= seen->ranks[r].count > 0;
	for (uint32_t r = 0; r < v->n; r++)
		if (in[v->op->member_of[r]] && seen->ranks[r].count == 0 &&
		    laws_was_passive(v->op, r, round) == LAWS_NO &&
		    !laws_may_turn_passive(v->op, r, round) && v->op->trial->op_count == 1)
			laws_break_round(v->op, "nodes", round,
					 " has nothing of rank %u, and something of its node", r);
}

static void round_judge(struct view *v, uint64_t round)
{
	struct bounds b;

	if (round == v->op->begins[laws_era_of(v->op, round)])
		memset(v->absent, 0, sizeof(v->absent));
	bounds_find(v, round, &b);
	judge_need(v, round, &b);
	if (!v->op->rounds[round].known) {
		v->exact = false;
		return;
	}
	v->exact = v->exact && b.full_known;
	judge_opening(v, round, &b);
	judge_window(v, round);
	judge_promptness(v, round, &b);
	judge_members(v, round, &b);
	judge_whole(v, round);
	judge_absence(v, round);
	v->turn += !b.full;
	v->full_rounds += b.full;
	if (v->adaptive != NULL)
		durations_note(v, round);
}

/* How many rounds of those that have run were full. */
static void judge_full_rounds(const struct view *v)
{
	for (uint32_t r = 0; r < v->n && v->exact; r++) {
		const struct laws_rank *side = &v->op->ranks[r];

		if (!laws_victim(v->op->trial, r) && side->stats.rounds == v->op->round_end &&
		    side->stats.full_rounds != v->full_rounds)
			laws_break_rank(v->op, "figures", r,
					" counts %" PRIu64 " full rounds, not %" PRIu64,
					side->stats.full_rounds, v->full_rounds);
	}
}

/* A rank turns passive once an era: it excuses one round without anything fresh, and no more. */
static void judge_empty(const struct view *v)
{
	uint32_t empty = 0, passive = 0;

	for (uint32_t r = 0; r < v->n; r++)
		passive += v->op->ranks[r].passive_count;
	for (uint64_t round = 0; round < v->op->round_end; round++)
		empty += v->op->rounds[round].known && v->op->rounds[round].seen.fresh == 0 &&
			 v->op->options.policy != RUBATO_POLICY_WAGMA;
	if (empty > passive)
		laws_break(v->op->trial,
			   "progress: operation %u: %u rounds with nothing fresh, %u drains and "
			   "leaves",
			   v->op->index, empty, passive);
}

void laws_judge_rounds(struct laws_op *op)
{
	struct view v = { .op = op, .n = op->trial->world.rank_count, .exact = true };

	if (op->options.policy == RUBATO_POLICY_ADAPTIVE)
		v.adaptive = laws_adaptive_new(
			op->member_count, op->options.rounds == RUBATO_ROUNDS_FREE,
			op->options.collection == RUBATO_COLLECT_LATEST ? 0 : op->depth,
			op->quorum);
	for (uint64_t round = 0; round < op->round_end && op->trial->broken[0] == '\0'; round++)
		round_judge(&v, round);
	judge_full_rounds(&v);
	judge_empty(&v);
	laws_adaptive_free(v.adaptive);
}
