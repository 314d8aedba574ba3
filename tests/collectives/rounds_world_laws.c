/*
 * rounds_world_laws.c -- what a round of a world must be, told from records and from what the
 * applications did: rules written down a second time.
 */
#include <string.h>

#include "rounds_world_inside.h"

/* ---- Who is ready ---- */

bool world_newly_passive(const struct world *w, uint32_t r)
{
	const struct rank *rank = &w->ranks[r];

	/* A rank may not know yet that what it drained into was the end of all; who parts drains
	 * again as soon as it does. */
	bool drains = rank->draining && rank->drain_round >= w->base_round;
	bool again = rank->parts_next && rb_rounds_view_of(rank->machine).round >= w->base_round;

	return w->passive[r] == 0 && (rank->left || drains || again);
}

/* For a round that has not been joined by all: where ranks meet, who has joined it before it was
 * open was ready. */
static bool is_ready(const struct world *w, uint32_t r, uint64_t number)
{
	const struct rank *rank = &w->ranks[r];

	if (meets(w) && rank->next_join > number)
		return true;
	return w->passive[r] == 0 && (rank->pending_fresh || world_newly_passive(w, r));
}

static uint64_t ready_since(const struct world *w, uint32_t r, uint64_t number)
{
	const struct rank *rank = &w->ranks[r];

	return meets(w) && rank->next_join > number ? rank->early_since : rank->ready_since;
}

static bool is_overdue(const struct world *w, uint32_t r)
{
	uint32_t most = w->config.options.max_absence;

	return most > 0 && w->absent[r] >= most;
}

/* Of a member. */
static uint32_t live_of(const struct world *w, uint32_t member)
{
	uint32_t live = 0;

	for (uint32_t r = 0; r < w->n; r++)
		live += member_of(w, r) == member && w->passive[r] == 0;
	return live;
}

static bool is_willing(const struct world *w, uint32_t r, const struct round *round)
{
	return w->passive[r] == 0 && (w->ranks[r].willing || w->ranks[r].counted) &&
	       (round->need > 1 || live_of(w, member_of(w, r)) > 1) && !is_overdue(w, r);
}

/* A member is ready when all its live ranks are ready or willing, and willing when all are that. */
struct readiness {
	bool ready, willing;
	uint64_t since; /* When all were ready or willing, and one of them ready. */
};

static struct readiness readiness_of(const struct world *w, uint32_t member,
				     const struct round *round)
{
	struct readiness all = { .willing = live_of(w, member) > 0 };
	uint64_t first = NEVER, number = (uint64_t)(round - w->rounds);

	for (uint32_t r = 0; r < w->n; r++) {
		if (member_of(w, r) != member || w->passive[r] != 0)
			continue;
		if (is_ready(w, r, number)) {
			uint64_t since = ready_since(w, r, number);

			all.ready = true;
			first = since < first ? since : first;
			if (since > all.since && !w->ranks[r].counted)
				all.since = since;
		} else if (!is_willing(w, r, round)) {
			return (struct readiness) { 0 };
		}
	}
	all.since = all.ready && first > all.since ? first : all.since;
	all.willing = all.willing && !all.ready;
	return all;
}

/* ---- Whole nodes ---- */

/* Whether it has something for the round, or tells in it that it has nothing more. */
static bool brings(const struct world *w, uint32_t r)
{
	return w->ranks[r].pending != 0 || world_newly_passive(w, r);
}

/* All live ranks of the node have something, and its first rank must know. */
static bool is_full(const struct world *w, uint32_t node, uint64_t number)
{
	for (uint32_t r = 0; r < w->n; r++) {
		if (member_of(w, r) != node)
			continue;
		if (w->passive[r] == 0 && (!brings(w, r) || w->ranks[r].completed < number))
			return false;
		for (uint32_t other = 0; other < w->n; other++)
			if (member_of(w, other) == node && w->first[r][other] != NONE)
				return false; /* It is on its way. */
	}
	return true;
}

/* As its record has it: before anything is changed. */
static void node_note(struct world *w, uint32_t r, const struct rb_rounds_record *record)
{
	struct round *round = &w->rounds[w->ranks[r].next_join];
	uint32_t node = member_of(w, r),
		 told = record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT);
	bool in = record->count > 0 || (world_newly_passive(w, r) && told != 0);
	bool out = !in && brings(w, r);

	if (is_first(w, r))
		round->excused[node] = !is_full(w, node, w->ranks[r].next_join);
	LAW(w,
	    !(in && round->nodes[node] == IN_PART_NOT) && !(out && round->nodes[node] == IN_WHOLE),
	    "rank %u joins %" PRIu64 " %s its node", r, w->ranks[r].next_join,
	    in ? "without" : "apart from");
	LAW(w, !out || round->excused[node], "rank %u stays out of %" PRIu64 ", its node is ready",
	    r, w->ranks[r].next_join);
	LAW(w, !out || w->config.nodes != NULL, "rank %u stays out of %" PRIu64, r,
	    w->ranks[r].next_join);
	w->totals->nodes_in += in;
	w->totals->nodes_out += out;
	if (in || out)
		round->nodes[node] = in ? IN_WHOLE : IN_PART_NOT;
}

/* All have joined: whose node is in the round is in it, or was willing to be with nothing. */
static void whole_check(struct world *w, uint64_t number, const bool *willing)
{
	const struct round *round = &w->rounds[number];
	bool fresh = false;

	for (uint32_t r = 0; r < w->n; r++) {
		const struct rb_rounds_record *record = &round->records[r];
		bool passive = round->passive[r] != 0 ||
			       (record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT)) != 0;

		LAW(w,
		    round->nodes[member_of(w, r)] != IN_WHOLE || record->count > 0 || passive ||
			    willing[r],
		    "rank %u has nothing in %" PRIu64 ", its node is in it", r, number);
		fresh = fresh || (record->flags & RB_ROUNDS_FRESH) != 0 ||
			(round->passive[r] == 0 && passive);
	}
	LAW(w, fresh, "round %" PRIu64 " has run for nobody", number);
}

/* ---- The next round ---- */

_Static_assert(RUBATO_POLICY_COUNT == 6, "a policy more: what must hold of its rounds?");

void world_round_expect(struct world *w, uint64_t r)
{
	const rubato_partial_options *o = &w->config.options;
	struct round *round = &w->rounds[r];

	round->live = 0;
	for (uint32_t i = 0; i < member_count(w); i++)
		round->live += live_of(w, i) > 0;
	round->base_round = w->base_round;
	round->base_step = r == 0 ? 0 : w->rounds[r - 1].base_step + (w->rounds[r - 1].last * 1000);
	memcpy(round->passive, w->passive, sizeof(round->passive));
	round->full = o->full_every > 0 && (r + 1) % o->full_every == 0;
	for (uint32_t i = 0; i < w->n; i++)
		if (w->passive[i] == 0 && is_overdue(w, i))
			round->full = true;
	round->need = round->live > 0;
	if (round->full)
		round->need = round->live;
	else if (o->policy == RUBATO_POLICY_QUORUM)
		round->need = o->quorum < round->live ? o->quorum : round->live;
	else if (o->policy == RUBATO_POLICY_DEADLINE)
		round->need = round->live;
	else if (o->policy == RUBATO_POLICY_ADAPTIVE)
		round->need = 0; /* What the first rank says is what all must say. */
}

static uint32_t drawn(const struct world *w, uint64_t r, uint32_t live)
{
	uint64_t hash = rb_mix(w->config.options.seed ^ rb_mix(r + 0x9e3779b97f4a7c15u));
	uint32_t left = (uint32_t)(((rb_u128)hash * live) >> 64);

	for (uint32_t i = 0; i < member_count(w); i++)
		if (live_of(w, i) > 0 && left-- == 0)
			return i;
	return NONE;
}

void world_round_opened(struct world *w, uint64_t r, uint32_t first)
{
	const rubato_partial_options *o = &w->config.options;
	struct round *round = &w->rounds[r];
	uint32_t ready = 0, willing = 0, draw = NONE;
	bool late_enough = false;

	round->opened = true;
	if (round->need == 0)
		round->need = rb_rounds_view_of(w->ranks[first].machine).need;
	for (uint32_t i = 0; i < member_count(w); i++) {
		struct readiness member = readiness_of(w, i, round);

		willing += member.willing;
		ready += member.ready;
		if (member.ready && member.since + o->deadline_ns <= w->now)
			late_enough = true;
	}
	LAW(w, ready > 0, "round %" PRIu64 " is open, and nobody has anything for it", r);
	if (!round->full && o->policy == RUBATO_POLICY_MAJORITY) {
		draw = drawn(w, r, round->live);
		LAW(w, draw != NONE && readiness_of(w, draw, round).ready,
		    "round %" PRIu64 " is open, but not by member %u, which was drawn", r, draw);
	}
	if (o->policy == RUBATO_POLICY_DEADLINE && !round->full && ready + willing < round->need) {
		LAW(w, late_enough, "round %" PRIu64 " is open before the deadline", r);
		w->totals->deadlines++;
		return;
	}
	LAW(w, ready + willing >= round->need,
	    "round %" PRIu64 " is open with %u of %u ready members", r, ready + willing,
	    round->need);
}

/* All have joined round r: what follows for the next ones. */
static void round_joined(struct world *w, uint64_t r)
{
	struct round *round = &w->rounds[r];

	whole_check(w, r, round->willing);
	round->last = true;
	for (uint32_t i = 0; i < w->n; i++) {
		const struct rb_rounds_record *record = &round->records[i];
		uint32_t most = w->config.options.max_absence;

		w->passive[i] = record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT);
		w->absent[i] = record->count > 0 ? 0 : w->absent[i] + 1;
		LAW(w, most == 0 || w->passive[i] != 0 || w->absent[i] <= most,
		    "rank %u is in none of the last %u rounds up to %" PRIu64, i, w->absent[i], r);
		round->last = round->last && w->passive[i] != 0;
	}
	if (round->last) {
		w->base_round = r + 1;
		for (uint32_t i = 0; i < w->n; i++) {
			w->passive[i] &= (uint8_t)~RB_ROUNDS_DRAINING;
			w->absent[i] = 0;
		}
	}
	w->totals->rounds++;
	w->totals->full += round->full;
	LAW(w, r + 1 < ROUNDS_MAX, "more rounds than contributions");
	memset(&w->rounds[r + 1], 0, sizeof(w->rounds[r + 1]));
	world_round_expect(w, r + 1);
}

/* ---- Runs ---- */

static void run_ends(struct world *w, uint32_t r, uint64_t value)
{
	world_at(w, world_delay(w), RUN_END, r, (uint32_t)w->ranks[r].run, value);
}

static void record_check(struct world *w, uint32_t r, const struct rb_rounds_record *record)
{
	const struct rank *rank = &w->ranks[r];
	uint64_t number = rank->next_join, pending = rank->joined;
	bool out = w->rounds[number].nodes[member_of(w, r)] == IN_PART_NOT;
	uint32_t told = out ? w->passive[r]
			    : (rank->draining ? RB_ROUNDS_DRAINING : 0u) |
					(rank->left ? RB_ROUNDS_LEFT : 0u);

	LAW(w, record->round == number && record->count == bits(pending),
	    "rank %u joins %" PRIu64 " with %u contributions, not %u", r, number, record->count,
	    bits(pending));
	LAW(w, ((record->flags & RB_ROUNDS_FRESH) != 0) == (rank->running_fresh && !out),
	    "rank %u in round %" PRIu64 ": fresh is wrong", r, number);
	LAW(w, (record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT)) == told,
	    "rank %u in round %" PRIu64 ": passive is wrong", r, number);
	LAW(w,
	    record->discarded == bits(rank->discarded) && record->weight == WEIGHT * record->count,
	    "rank %u in round %" PRIu64 ": discarded or weight", r, number);
	LAW(w, record->out == rb_rounds_view_of(rank->machine).out,
	    "rank %u in round %" PRIu64 ": another slot", r, number);
	if (record->count == 0)
		return;
	LAW(w, record->in == rank->buffer, "rank %u in round %" PRIu64 ": another buffer", r,
	    number);
	LAW(w,
	    record->first_step == rank->numbers[__builtin_ctzll(pending)] &&
		    record->last_step == rank->numbers[63 - __builtin_clzll(pending)] &&
		    record->duration_ns == rank->durations[63 - __builtin_clzll(pending)],
	    "rank %u in round %" PRIu64 ": steps or duration", r, number);
	LAW(w,
	    is_free(w) || rank->segment == 0 ||
		    ((record->flags & RB_ROUNDS_BASED) != 0 &&
		     record->base_step == 1000 * rank->segment),
	    "rank %u in round %" PRIu64 ": begins with %" PRIu64, r, number, record->base_step);
}

/* Of all live ranks of a member. */
static bool all_bring(const struct world *w, uint32_t member)
{
	for (uint32_t r = 0; r < w->n; r++)
		if (member_of(w, r) == member && w->passive[r] == 0 && !brings(w, r))
			return false;
	return true;
}

/* What is pending goes into the round; or it has missed it, where its node stays out. */
static void pending_join(struct world *w, uint32_t r)
{
	const rubato_partial_options *o = &w->config.options;
	struct rank *rank = &w->ranks[r];
	bool out = w->rounds[rank->next_join].nodes[member_of(w, r)] == IN_PART_NOT;

	rank->running_fresh = rank->pending_fresh;
	rank->joined = out ? 0 : rank->pending;
	rank->pending = out ? rank->pending : 0;
	rank->pending_fresh = out && rank->pending_fresh && !is_free(w) &&
			      world_target(w, r, rank->made - 1) > rank->next_join;
	if (rank->pending_fresh && o->collection == RUBATO_COLLECT_OWN &&
	    rank->next <= rank->next_join + 1) {
		rank->next = rank->next_join + 1; /* Where it will be now. */
		rank->own_due = true;
	}
	if (rank->pending_fresh || o->late != RUBATO_LATE_DROP)
		return;
	rank->discarded |= rank->pending;
	rank->pending = 0;
}

static void exchange(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];
	struct round *round = &w->rounds[number];
	const struct rb_rounds_record *record = rb_rounds_own_record(rank->machine);

	LAW(w, number == rank->next_join && number == rank->completed, "rank %u joins %" PRIu64, r,
	    number);
	LAW(w, rank->merging == 0, "rank %u joins during a merge", r);
	LAW(w,
	    rank->opened > number || (meets(w) && (rank->awaited || !is_free(w)) &&
				      is_ready(w, r, number) && w->passive[r] == 0),
	    "rank %u joins %" PRIu64 ", which is not open", r, number);
	w->totals->early += rank->opened <= number;
	rank->early_since = rank->ready_since;
	node_note(w, r, record);
	LAW(w,
	    !is_first(w, r) || all_bring(w, member_of(w, r)) ||
		    w->now >= rank->joining_since + w->config.options.window_ns,
	    "rank %u joins with nothing before the window ends", r);
	for (uint32_t i = 0; !is_first(w, r) && i < w->n; i++)
		LAW(w,
		    member_of(w, i) != member_of(w, r) || !is_first(w, i) ||
			    w->ranks[i].next_join > number,
		    "rank %u joins %" PRIu64 " before the first of its node", r, number);
	pending_join(w, r);
	record_check(w, r, record);
	LAW(w, world_has_room(w, r, number), "rank %u joins %" PRIu64 " without room", r, number);
	world_slot_check(w, r, rb_rounds_view_of(rank->machine).out, number);
	rank->next_join = number + 1;
	rank->caught_up = false;
	round->willing[r] = is_willing(w, r, round);
	rank->willing = rank->counted = false;
	round->records[r] = *record;
	round->sets[r] = rank->joined;
	if (++round->joined < w->n)
		return;
	if (!round->opened)
		world_round_opened(w, number, r); /* The words of it are on their way. */
	round_joined(w, number);
	for (uint32_t i = 0; !meets(w) && i < w->n; i++)
		if (!w->ranks[i].dead && (w->dead_count == 0 || chance(w, 50)))
			run_ends(w, i, number * RB_ROUNDS_RUNS + RB_ROUNDS_EXCHANGE);
}

/* What the records say of the round, added up once more: alike on all members. */
static void summary_check(struct world *w, uint32_t r, uint64_t number)
{
	const struct round *round = &w->rounds[number];
	const rubato_round *s = rb_rounds_summary(w->ranks[r].machine, number);
	uint32_t contributors = 0, fresh = 0, staying = 0;
	uint64_t least = NEVER, most = 0, discarded = 0, weight = 0;
	double divisor = 1;

	for (uint32_t i = 0; i < w->n; i++)
		discarded += round->records[i].discarded;
	for (uint32_t i = 0; i < round->member_count[r]; i++) {
		uint32_t member = round->members[r][i];
		const struct rb_rounds_record *c = &round->records[member];
		uint64_t first = c->first_step - round->base_step + round->base_round;
		uint64_t last = c->last_step - round->base_step + round->base_round;

		fresh += (c->flags & RB_ROUNDS_FRESH) != 0;
		staying += (round->passive[member] & RB_ROUNDS_LEFT) == 0;
		if (c->count == 0)
			continue;
		contributors++;
		weight += c->weight;
		first = first < number ? number - first : 0;
		last = last < number ? number - last : 0;
		most = first > most ? first : most;
		least = last < least ? last : least;
	}
	if (contributors == 0 || is_free(w))
		least = most = 0;
	if (w->config.average)
		divisor = w->config.options.normalise == RUBATO_BY_RANKS ? round->member_count[r]
			  : w->config.options.normalise == RUBATO_BY_CONTRIBUTORS ? contributors
			  : w->config.options.normalise == RUBATO_BY_WEIGHT       ? (double)weight
										  : staying;
	LAW(w,
	    s->round == number && s->contributors == contributors && s->fresh == fresh &&
		    s->weight == weight && s->discarded == discarded &&
		    s->divisor == (divisor > 0 ? divisor : 1),
	    "rank %u: what it says of round %" PRIu64 " (divided by %g, not %g)", r, number,
	    s->divisor, divisor);
	LAW(w, s->staleness_min == least && s->staleness_max == most,
	    "rank %u: staleness of round %" PRIu64 " is %" PRIu64 " to %" PRIu64 ", not %" PRIu64
	    " to %" PRIu64,
	    r, number, s->staleness_min, s->staleness_max, least, most);
}

static void members_check(struct world *w, uint32_t r, uint64_t number)
{
	struct round *round = &w->rounds[number];
	uint32_t *members = round->members[r], count;
	bool self = false;
	uint32_t group = w->config.options.group;
	bool grouped = w->config.options.policy == RUBATO_POLICY_WAGMA && !round->full &&
		       group < member_count(w);

	count = round->member_count[r] = rb_rounds_members(w->ranks[r].machine, members);
	LAW(w, count == (grouped ? group * (w->n / member_count(w)) : w->n), "%u members", count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t member = members[i];

		LAW(w, i == 0 || member > members[i - 1], "members do not ascend");
		self = self || member == r;
		if (round->reducing[member])
			LAW(w,
			    memcmp(members, round->members[member], count * sizeof(*members)) == 0,
			    "ranks %u and %u reduce in different groups", r, member);
	}
	LAW(w, self, "rank %u reduces without itself", r);
}

static void records_check(struct world *w, uint32_t r, uint64_t number)
{
	const struct round *round = &w->rounds[number];

	LAW(w, round->joined == w->n, "rank %u runs %" PRIu64 ", which %u joined", r, number,
	    round->joined);
	LAW(w,
	    memcmp(rb_rounds_records(w->ranks[r].machine, number), round->records,
		   w->n * sizeof(round->records[0])) == 0,
	    "rank %u has other records of %" PRIu64, r, number);
}

static void reduce(struct world *w, uint32_t r, uint64_t number)
{
	struct rb_rounds *machine = w->ranks[r].machine;
	struct round *round = &w->rounds[number];
	double divisor = rb_rounds_divisor(machine);
	bool all = true;

	records_check(w, r, number);
	members_check(w, r, number);
	if ((number + r) % 2 == 0) { /* Else the machine makes it, when the round is complete. */
		rb_rounds_summarise(machine);
		summary_check(w, r, number);
		LAW(w, divisor == rb_rounds_summary(machine, number)->divisor,
		    "rank %u divides round %" PRIu64 " by %g", r, number, divisor);
	}
	round->reducing[r] = true;
	for (uint32_t i = 0; i < round->member_count[r]; i++)
		all = all && round->reducing[round->members[r][i]];
	for (uint32_t i = 0; all && i < round->member_count[r]; i++) {
		uint32_t member = round->members[r][i];

		if (!w->ranks[member].dead && (w->dead_count == 0 || chance(w, 50)))
			run_ends(w, member, number * RB_ROUNDS_RUNS + RB_ROUNDS_REDUCE);
	}
}

void world_run_start(struct world *w, uint32_t r, const struct rb_protocol_action *action)
{
	struct rank *rank = &w->ranks[r];
	uint64_t number = action->value / RB_ROUNDS_RUNS;

	switch ((enum rb_rounds_run)(action->value % RB_ROUNDS_RUNS)) {
	case RB_ROUNDS_EXCHANGE:
	case RB_ROUNDS_JOIN:
		LAW(w, meets(w) == (action->value % RB_ROUNDS_RUNS == RB_ROUNDS_JOIN),
		    "rank %u joins as others do", r);
		exchange(w, r, number);
		break;
	case RB_ROUNDS_REDUCE:
		reduce(w, r, number);
		break;
	case RB_ROUNDS_FETCH:
		LAW(w, w->ranks[action->peer].completed > number,
		    "rank %u fetches round %" PRIu64 " from %u, which has it not", r, number,
		    action->peer);
		LAW(w, number == rank->completed, "rank %u fetches %" PRIu64, r, number);
		members_check(w, r, number);
		rank->fetch_from = action->peer;
		w->totals->fetches++;
		break;
	case RB_ROUNDS_SERVE:
		LAW(w, rank->completed == number + 1, "rank %u serves %" PRIu64, r, number);
		LAW(w, rank->kept[rb_rounds_view_of(rank->machine).newest] == number,
		    "rank %u serves another round than %" PRIu64, r, number);
		if (!w->ranks[action->peer].dead && w->ranks[action->peer].fetch_from == r)
			run_ends(w, action->peer, number * RB_ROUNDS_RUNS + RB_ROUNDS_FETCH);
		break;
	case RB_ROUNDS_ABANDON:
		rank->run++;
		rank->fetch_from = NONE;
		break;
	case RB_ROUNDS_RESTORE:
		LAW(w, number == rank->completed && rank->joined != 0, "rank %u restores", r);
		rank->pending |= rank->joined;
		rank->joined = 0;
		w->totals->restored++;
		break;
	}
}

void world_run_end(struct world *w, const struct event *e)
{
	struct rank *rank = &w->ranks[e->rank];
	uint64_t number = e->value / RB_ROUNDS_RUNS;
	struct rb_rounds_record *records = rb_rounds_records(rank->machine, number);
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_RUN_DONE, .value = e->value };

	if ((uint32_t)rank->run != e->peer)
		return;
	if (e->value % RB_ROUNDS_RUNS == RB_ROUNDS_FETCH)
		rank->fetch_from = NONE;
	if (e->value % RB_ROUNDS_RUNS != RB_ROUNDS_REDUCE)
		memcpy(records, w->rounds[number].records, w->n * sizeof(*records));
	world_event(w, e->rank, &event);
}

/* ---- Machines ---- */

static void era_end(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];
	const struct round *round = &w->rounds[number];
	bool just_left = (round->records[r].flags & RB_ROUNDS_LEFT) != 0 &&
			 (round->passive[r] & RB_ROUNDS_LEFT) == 0;

	if (just_left && rank->state != PARTING)
		rank->cut = number + 1;
	if (!round->last || rank->left)
		return;
	LAW(w, rank->pending == 0, "rank %u has drained with something pending", r);
	rank->willing = false;
	rank->draining = rank->parts_next;
	if (rank->state != PARTING)
		rank->cut = number + 1;
	else if (rank->parts_next)
		rank->drain_round = number + 1;
	else
		rank->parted = true;
	rank->parts_next = false;
}

void world_completed(struct world *w, uint32_t r, uint64_t number)
{
	struct rank *rank = &w->ranks[r];
	struct round *round = &w->rounds[number];
	uint32_t newest = rb_rounds_view_of(rank->machine).newest;

	LAW(w, number == rank->completed, "rank %u completes %" PRIu64 " after %" PRIu64, r, number,
	    rank->completed);
	records_check(w, r, number);
	summary_check(w, r, number);
	LAW(w, rank->kept[newest] == number, "rank %u: %" PRIu64 " is in another slot", r, number);
	LAW(w, rank->joined == round->sets[r], "rank %u: what is in round %" PRIu64, r, number);
	LAW(w, (rank->delivered & rank->joined) == 0, "rank %u delivers twice", r);
	rank->delivered |= rank->joined;
	rank->joined = 0;
	rank->completed++;
	era_end(w, r, number);
	if (rank->pending_fresh || world_newly_passive(w, r))
		rank->ready_since = w->now;
}

/* Whether it says rightly that it holds up the round, or that only it can open it. */
static void wants_check(struct world *w, uint32_t r, const struct rb_rounds_view *view)
{
	const struct rank *rank = &w->ranks[r];
	const struct round *round = &w->rounds[rank->completed];
	bool unread, wants = rb_rounds_wants(rank->machine, &unread), expected;
	bool joining = view->phase == RB_ROUNDS_JOINING;

	if (takes(w, RUBATO_COLLECT_LATEST) && unread)
		return; /* Up to the slots. */
	LAW(w, unread == (joining && !world_has_room(w, r, rank->completed)),
	    "rank %u holds up %" PRIu64 ": %d", r, rank->completed, unread);
	expected = view->phase == RB_ROUNDS_OPEN && rank->next_join == rank->completed &&
		   (is_free(w) || world_gave_early(w, r)) && w->passive[r] == 0 &&
		   !rank->draining && !rank->left && !rank->pending_fresh &&
		   (is_overdue(w, r) ||
		    (w->config.options.policy == RUBATO_POLICY_MAJORITY && !round->full &&
		     drawn(w, rank->completed, round->live) == member_of(w, r)));
	LAW(w, unread || wants == expected, "rank %u is wanted for %" PRIu64 ": %d", r,
	    rank->completed, wants);
}

static uint64_t due_at(const struct world *w, uint32_t r, const struct rb_rounds_view *v)
{
	const struct rank *rank = &w->ranks[r];
	const rubato_partial_options *o = &w->config.options;
	uint64_t number = rank->completed;

	if (rank->ended || w->config.nodes != NULL)
		return NEVER;
	if (v->phase == RB_ROUNDS_OPEN)
		return o->policy == RUBATO_POLICY_DEADLINE && !w->rounds[number].full &&
				       is_ready(w, r, number)
			       ? ready_since(w, r, number) + o->deadline_ns
			       : NEVER;
	if (v->phase == RB_ROUNDS_JOINING && rank->merging == 0 && world_has_room(w, r, number) &&
	    !takes(w, RUBATO_COLLECT_LATEST)) /* There it is up to the slots. */
		return brings(w, r) ? w->now : rank->joining_since + w->config.options.window_ns;
	return NEVER;
}

/* Whether those for whom it is the current round are enough for it, deadlines aside. */
static bool opens(const struct world *w, uint64_t number, uint32_t need)
{
	const struct round *round = &w->rounds[number];
	bool drawn_one = w->config.options.policy == RUBATO_POLICY_MAJORITY && !round->full;
	uint32_t ready = 0, willing = 0, draw = drawn_one ? drawn(w, number, round->live) : NONE;

	for (uint32_t r = 0; r < w->n; r++) {
		bool here = w->ranks[r].completed == number, is = here && is_ready(w, r, number);

		if (draw == r || (!drawn_one && is))
			ready += is;
		else
			willing += here && is_willing(w, r, round);
	}
	return ready > 0 && (drawn_one || ready + willing >= need);
}

/* Where ranks meet, of one for which the round is not open. */
static void meeting_check(struct world *w, uint32_t r)
{
	const struct rank *rank = &w->ranks[r];
	bool waits = (rank->awaited || !is_free(w)) && rank->merging == 0 &&
		     world_has_room(w, r, rank->completed);
	bool told = w->dead_count == 0; /* All that has been said is here. */

	LAW(w,
	    rank->next_join > rank->completed || !waits || !is_ready(w, r, rank->completed) ||
		    takes(w, RUBATO_COLLECT_LATEST),
	    "rank %u waits for %" PRIu64 ", and does not join it", r, rank->completed);
	for (uint32_t from = 0; from < w->n; from++)
		told = told && w->first[from][r] == NONE;
	LAW(w, !told || !w->rounds[rank->completed].opened,
	    "rank %u does not see that %" PRIu64 " is open", r, rank->completed);
	LAW(w, !told || !opens(w, rank->completed, rb_rounds_view_of(rank->machine).need),
	    "rank %u does not see that there are enough for %" PRIu64, r, rank->completed);
}

void world_machine_check(struct world *w, uint32_t r)
{
	struct rank *rank = &w->ranks[r];
	struct rb_rounds_view v = rb_rounds_view_of(rank->machine);
	struct round *round = &w->rounds[rank->completed];

	LAW(w,
	    v.committed == bits(rank->produced) && v.delivered == bits(rank->delivered) &&
		    v.discarded == bits(rank->discarded) && v.pending == bits(rank->pending) &&
		    v.joined == bits(rank->joined),
	    "rank %u counts wrongly", r);
	LAW(w, v.round == rank->completed, "rank %u: round", r);
	LAW(w,
	    v.left == rank->left && v.parted == (rank->parted || (rank->left && v.parted)) &&
		    (rank->state == PARTING ||
		     v.draining == (rank->draining || (rank->cut != NEVER))),
	    "rank %u: draining %d, left %d, parted %d", r, v.draining, v.left, v.parted);
	rank->due = NEVER;
	if (v.phase > RB_ROUNDS_REDUCING || rank->ended)
		return;
	LAW(w, v.live == round->live && v.full == round->full,
	    "rank %u sees other live ranks or bounds in %" PRIu64, r, rank->completed);
	if (round->need == 0)
		round->need = v.need;
	LAW(w, v.need == round->need, "rank %u needs %u, not %u in %" PRIu64, r, v.need,
	    round->need, rank->completed);
	wants_check(w, r, &v);
	rank->due = due_at(w, r, &v);
	if (meets(w) && v.phase == RB_ROUNDS_OPEN)
		meeting_check(w, r);
}
