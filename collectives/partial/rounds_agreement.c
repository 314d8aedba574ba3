/*
 * rounds_agreement.c -- what all ranks agree on about a round. By messages: that it is open, once
 * so many members are ready as its policy needs. By the records that they exchange then: who is in
 * it, what its result holds, who goes on, hence what the next round needs, and when an era is over.
 * What follows from records is computed by every rank, the same.
 *
 * The flood. Who opens a round owes it to the members at distances 2^0 .. 2^(L-1), L being
 * ceil(log2 P); who hears of it over distance 2^j owes it to those at 2^0 .. 2^(j-1). Every offset
 * is a sum of distinct powers of two, taken in falling order, so all are reached within L hops. A
 * message over an edge always carries the same debt, so one a round is enough, however many openers
 * there are.
 *
 * The count. Relative to root = round mod P, member rel's parent is rel & (rel - 1): a binomial
 * tree whose edges are powers of two, too. A member passes on by how much its count grew, and
 * whether one of those has something for the round: others, who are only willing since they wait in
 * another operation, open none. Where all live members are needed anyway it waits for those below
 * it. A round that is active needs no count.
 */
#include "base/rng.h"
#include "collectives/partial/rounds_inside.h"

/* ---- Policies ---- */

static uint32_t need_one(const struct rb_rounds *m)
{
	(void)m;
	return 1;
}

static uint32_t need_live(const struct rb_rounds *m)
{
	return m->opening.live;
}

static uint32_t need_quorum(const struct rb_rounds *m)
{
	return m->config.options.quorum;
}

static uint32_t need_adaptive(const struct rb_rounds *m)
{
	return rb_adaptive_quorum(m->ranks.adaptive);
}

/* All that the library knows of a policy, beside its words (base/policy.c). */
static const struct rb_rounds_policy policies[] = {
	[RUBATO_POLICY_SOLO] = { .need = need_one },
	[RUBATO_POLICY_MAJORITY] = { .need = need_one, .draws = true },
	[RUBATO_POLICY_QUORUM] = { .need = need_quorum, .counts = true, .bounded = true },
	[RUBATO_POLICY_DEADLINE] = { .need = need_live, .counts = true, .timed = true },
	[RUBATO_POLICY_ADAPTIVE] = { .need = need_adaptive,
				     .counts = true,
				     .bounded = true,
				     .learns = true },
	[RUBATO_POLICY_WAGMA] = { .need = need_one, .grouped = true },
};
_Static_assert(sizeof(policies) / sizeof(policies[0]) == RUBATO_POLICY_COUNT, "a row each");

const struct rb_rounds_policy *rb_rounds_policy_of(const struct rb_rounds_config *config)
{
	static const struct rb_rounds_policy unknown = { .need = need_one };

	/* Memory is measured before the options are checked. */
	return (unsigned)config->options.policy < RUBATO_POLICY_COUNT
		       ? &policies[config->options.policy]
		       : &unknown;
}

/* ---- What the round needs ---- */

bool rb_rounds_overdue(const struct rb_rounds *m)
{
	uint32_t most = m->config.options.max_absence;

	return most > 0 && m->ranks.absent[m->config.rank] >= most;
}

static bool full_due(const struct rb_rounds *m)
{
	const rubato_partial_options *o = &m->config.options;

	if (o->full_every > 0 && (m->round + 1) % o->full_every == 0)
		return true;
	for (uint32_t r = 0; o->max_absence > 0 && r < m->config.rank_count; r++)
		if (m->ranks.passive[r] == 0 && m->ranks.absent[r] >= o->max_absence)
			return true;
	return false;
}

static uint32_t need(const struct rb_rounds *m)
{
	uint32_t k = m->opening.full ? m->opening.live : rb_rounds_policy_of(&m->config)->need(m);

	return k < m->opening.live ? k : m->opening.live;
}

/* The opener, where one is drawn: from the common seed among the live members. */
static uint32_t draw(const struct rb_rounds *m)
{
	uint64_t hash = rb_mix(m->config.options.seed ^ rb_mix(m->round + 0x9e3779b97f4a7c15u));
	uint32_t left = (uint32_t)(((rb_u128)hash * m->opening.live) >> 64);

	for (uint32_t i = 0; i < rb_rounds_member_count(&m->config); i++) {
		if (rb_rounds_member_live(m, i) == 0)
			continue;
		if (left-- == 0)
			return i;
	}
	return RB_ROUNDS_NOBODY;
}

void rb_rounds_round_prepare(struct rb_rounds *m)
{
	uint32_t members = rb_rounds_member_count(&m->config);
	bool drawn = rb_rounds_policy_of(&m->config)->draws;

	m->opening.live = 0;
	for (uint32_t i = 0; i < members; i++)
		m->opening.live += rb_rounds_member_live(m, i) > 0;
	m->opening.full = full_due(m);
	m->opening.counts = m->opening.full || rb_rounds_policy_of(&m->config)->counts;
	m->opening.need = need(m);
	m->opening.initiator = drawn && !m->opening.full ? draw(m) : RB_ROUNDS_NOBODY;
	m->opening.counted = m->opening.own_ready = m->opening.own_bring = false;
	m->opening.opens_ns = m->opening.joins_ns = RB_ROUNDS_NEVER;
}

/* ---- The flood ---- */

static void owe(struct rb_rounds *m, uint64_t round, uint32_t levels,
		struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = rb_rounds_activation_of(m, round);

	activation->active = true;
	for (uint32_t i = levels; i-- > 0;) { /* The farthest first: it has most to pass on. */
		struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_ACTIVATE,
						     .value = i,
						     .round = round };

		if (activation->sent & (1u << i))
			continue;
		activation->sent |= 1u << i;
		rb_rounds_act_send(out, RB_PROTOCOL_SEND,
				   rb_rounds_head(&m->config, rb_rounds_right(m, 1u << i)),
				   &message);
	}
}

/* ---- The count ---- */

static uint32_t below_root(const struct rb_rounds *m)
{
	uint32_t n = rb_rounds_member_count(&m->config);

	return (rb_rounds_right(m, 0) + n - (uint32_t)(m->round % n)) % n;
}

/* Live members in this one's subtree: rel .. rel + lowest bit of rel - 1. */
static uint32_t subtree_live(const struct rb_rounds *m)
{
	uint32_t rel = below_root(m), n = rb_rounds_member_count(&m->config), live = 0;
	uint32_t size = rel & (~rel + 1u);

	for (uint32_t i = 0; i < size && rel + i < n; i++)
		live += rb_rounds_member_live(m, rb_rounds_right(m, i)) > 0;
	return live;
}

/* This member's count has changed or the round has just opened: tells the parent. */
static void count_forward(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = rb_rounds_activation_of(m, m->round);
	uint32_t rel = below_root(m), n = rb_rounds_member_count(&m->config);
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_READY,
					     .value = activation->ready - activation->forwarded,
					     .round = m->round,
					     .wanted = activation->wanted };
	bool grown = message.value > 0 || activation->wanted != activation->wanted_forwarded;

	if (!m->opening.counts || activation->active || rel == 0 || !grown)
		return;
	if (m->opening.need == m->opening.live && activation->ready < subtree_live(m))
		return;
	activation->forwarded = activation->ready;
	activation->wanted_forwarded = activation->wanted;
	rb_rounds_act_send(out, RB_PROTOCOL_SEND,
			   rb_rounds_head(&m->config, rb_rounds_right(m, n - (rel & (~rel + 1u)))),
			   &message);
}

void rb_rounds_flood_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			     struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = rb_rounds_activation_of(m, message->round);

	if (message->round < m->round)
		return; /* Completed here: everybody joined it. */
	RB_ASSERT(message->round == m->round || (message->round == m->round + 1 && m->is_joined));
	if (message->kind >= RB_ROUNDS_MESSAGE_NODE) {
		rb_rounds_node_message(m, message, out);
	} else if (message->kind == RB_ROUNDS_MESSAGE_ACTIVATE) {
		owe(m, message->round, message->value, out);
	} else {
		activation->ready += message->value;
		activation->wanted = activation->wanted || message->wanted != 0;
	}
}

/* ---- This rank, and its member ---- */

bool rb_rounds_is_ready(const struct rb_rounds *m)
{
	return m->ranks.passive[m->config.rank] == 0 &&
	       (m->pending.fresh || rb_rounds_is_passive(m));
}

/* Where its own readiness is enough, nobody needs its willingness. */
bool rb_rounds_is_willing(const struct rb_rounds *m)
{
	uint32_t own = rb_rounds_member_of(&m->config, m->config.rank);
	bool alone = m->opening.need <= 1 && rb_rounds_member_live(m, own) == 1;

	return m->ranks.passive[m->config.rank] == 0 && m->willing && !alone &&
	       !rb_rounds_overdue(m);
}

static void arrive(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = &m->opening.activations[m->round & 1];
	const struct rb_rounds_policy *policy = rb_rounds_policy_of(&m->config);

	if (!m->opening.counted && rb_rounds_node_counts(m)) {
		m->opening.counted = true;
		activation->ready++;
	}
	if (!rb_rounds_node_ready(m))
		return;
	activation->wanted = true;
	if (policy->timed && !m->opening.full && m->opening.opens_ns == RB_ROUNDS_NEVER) {
		m->opening.opens_ns = now_ns + m->config.options.deadline_ns;
		rb_rounds_act_wake(out, m->opening.opens_ns);
	}
}

static bool may_open(const struct rb_rounds *m, uint64_t now_ns)
{
	const struct rb_rounds_activation *activation = &m->opening.activations[m->round & 1];
	bool ready = rb_rounds_node_ready(m);

	if (m->opening.counts) {
		if (below_root(m) == 0 && activation->wanted && m->opening.need > 0 &&
		    activation->ready >= m->opening.need)
			return true;
		return ready && (m->opening.need == 1 || now_ns >= m->opening.opens_ns);
	}
	return ready && (!rb_rounds_policy_of(&m->config)->draws ||
			 m->opening.initiator == rb_rounds_right(m, 0));
}

bool rb_rounds_open(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	const struct rb_rounds_activation *activation = rb_rounds_activation_of(m, m->round);

	rb_rounds_node_note(m, out);
	if (!rb_rounds_is_head(m))
		return activation->active;
	arrive(m, now_ns, out);
	if (!activation->active && may_open(m, now_ns))
		owe(m, m->round, m->opening.levels, out);
	count_forward(m, out);
	return activation->active;
}

/* ---- Numbers ---- */

uint64_t rb_rounds_target(const struct rb_rounds *m, uint64_t step)
{
	uint64_t since = step > m->numbers.base_step ? step - m->numbers.base_step : 0;

	return since < RB_ROUNDS_NEVER - m->numbers.base_round ? m->numbers.base_round + since
							       : RB_ROUNDS_NEVER - 1;
}

/*
 * Every rank that has committed in this era says with which number it began: so whichever of its
 * contributions have been dropped, replaced or merged, all ranks count from the same one. In the
 * first era that is number 0, for round 0.
 */
static bool base_read(struct rb_rounds *m)
{
	uint32_t first = RB_ROUNDS_NOBODY;

	for (uint32_t r = 0; r < m->config.rank_count && !m->era.is_first; r++) {
		const struct rb_rounds_record *record = rb_rounds_record_of(m, r);

		if ((record->flags & RB_ROUNDS_BASED) == 0)
			continue;
		if (first == RB_ROUNDS_NOBODY) {
			first = r;
			m->numbers.based = true;
			m->numbers.base_step = record->base_step;
		} else if (record->base_step != m->numbers.base_step) {
			m->numbers.differing[0] = first;
			m->numbers.differing[1] = r;
			return false;
		}
	}
	return true;
}

void rb_rounds_mismatch(const struct rb_rounds *m, uint32_t ranks[2], uint64_t steps[2])
{
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = m->numbers.differing[i];
		steps[i] = rb_rounds_record_of(m, ranks[i])->base_step;
	}
}

/* ---- What a result holds ---- */

static double divisor(const struct rb_rounds *m, const rubato_round *s, uint32_t members,
		      uint32_t staying)
{
	double by = members;

	if (!m->config.average)
		return 1;
	switch (m->config.options.normalise) {
	case RUBATO_BY_RANKS:
		break;
	case RUBATO_BY_CONTRIBUTORS:
		by = s->contributors;
		break;
	case RUBATO_BY_WEIGHT:
		by = (double)s->weight;
		break;
	case RUBATO_BY_REMAINING:
		by = staying;
		break;
	}
	return by > 0 ? by : 1;
}

/* Rounds between a contribution's number and the round it is in. */
static uint64_t staleness(const struct rb_rounds *m, uint64_t step)
{
	uint64_t due = rb_rounds_target(m, step);

	return due < m->round ? m->round - due : 0;
}

/* Whether the current round is reduced within groups. */
static bool in_groups(const struct rb_rounds *m)
{
	return rb_rounds_policy_of(&m->config)->grouped && !m->opening.full;
}

static void summary_make(struct rb_rounds *m)
{
	bool aligned = !rb_rounds_is_free(m), apart = in_groups(m);
	uint32_t members = 0, staying = 0;
	rubato_round *s = &m->exchange.summaries[m->round & 1];

	*s = (rubato_round) { .round = m->round };
	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		const struct rb_rounds_record *record = rb_rounds_record_of(m, r);

		s->discarded += record->discarded;
		if (apart && !rb_rounds_together(m, m->round, m->config.rank, r))
			continue;
		members++;
		staying += (m->ranks.passive[r] & RB_ROUNDS_LEFT) == 0; /* Before this round. */
		s->fresh += (record->flags & RB_ROUNDS_FRESH) != 0;
		if (record->count == 0)
			continue;
		uint64_t oldest = staleness(m, record->first_step);
		uint64_t youngest = record->last_step == record->first_step
					    ? oldest
					    : staleness(m, record->last_step);

		if (aligned && (s->contributors == 0 || youngest < s->staleness_min))
			s->staleness_min = youngest;
		if (aligned && oldest > s->staleness_max)
			s->staleness_max = oldest;
		s->contributors++;
		s->weight += record->weight;
	}
	s->divisor = divisor(m, s, members, staying);
}

bool rb_rounds_records_read(struct rb_rounds *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		RB_ASSERT(rb_rounds_record_of(m, r)->round == (uint32_t)m->round);
	m->exchange.summarised = false;
	return base_read(m);
}

void rb_rounds_summarise(struct rb_rounds *m)
{
	if (!m->exchange.summarised)
		summary_make(m);
	m->exchange.summarised = true;
}

/* ---- The end of a round, and of an era ---- */

static bool all_passive(const struct rb_rounds *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (m->ranks.passive[r] == 0)
			return false;
	return true;
}

static void era_end(struct rb_rounds *m)
{
	RB_ASSERT(m->pending.count == 0);
	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		m->ranks.passive[r] &= (uint8_t)~RB_ROUNDS_DRAINING;
		m->ranks.absent[r] = 0;
	}
	m->era.is_first = m->numbers.based = m->era.begun = m->willing = false;
	m->numbers.base_round = m->round + 1;
	if ((m->era.flags & RB_ROUNDS_LEFT) != 0)
		return;
	m->era.flags &= ~RB_ROUNDS_DRAINING;
	rb_rounds_era_over(m);
}

/* A member's piece of work took as long as that of its slowest rank. */
static void durations_apply(struct rb_rounds *m)
{
	const struct rb_nodes *nodes = m->config.nodes;

	for (uint32_t i = 0; i < rb_rounds_member_count(&m->config); i++) {
		uint32_t size = nodes != NULL ? rb_node_size(nodes, i) : 1;
		uint64_t longest = 0;
		bool any = false;

		for (uint32_t k = 0; k < size; k++) {
			uint32_t r = nodes != NULL ? rb_node_rank(nodes, i, k) : i;
			const struct rb_rounds_record *record = rb_rounds_record_of(m, r);

			if (record->count == 0)
				continue;
			any = true;
			if (record->duration_ns > longest)
				longest = record->duration_ns;
		}
		if (any)
			rb_adaptive_add(m->ranks.adaptive, i, longest);
	}
	rb_adaptive_round(m->ranks.adaptive, m->round);
}

/* Whether the era ends with the round. */
static bool records_apply(struct rb_rounds *m)
{
	bool had_left = (m->ranks.passive[m->config.rank] & RB_ROUNDS_LEFT) != 0;

	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		const struct rb_rounds_record *record = rb_rounds_record_of(m, r);

		m->ranks.passive[r] = record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT);
		m->ranks.absent[r] = record->count > 0 ? 0 : m->ranks.absent[r] + 1;
	}
	if (m->ranks.adaptive != NULL)
		durations_apply(m);
	if (!had_left && (m->ranks.passive[m->config.rank] & RB_ROUNDS_LEFT) != 0)
		rb_rounds_era_over(m);
	if (!all_passive(m))
		return false;
	era_end(m);
	return true;
}

void rb_rounds_next(struct rb_rounds *m)
{
	bool ends = records_apply(m);

	m->opening.activations[m->round & 1] = (struct rb_rounds_activation) { 0 };
	m->opening.meetings[m->round & 1] = (struct rb_rounds_meeting) { 0 };
	m->groups.last_turn = m->groups.turn;
	m->groups.last_full = m->opening.full;
	m->groups.turn += !m->opening.full;
	m->round++;
	if (ends)
		rb_rounds_cut(m);
	rb_rounds_round_prepare(m);
}

/* ---- Wagma's groups ---- */

/*
 * Position of a rank's member after `turn` perfect shuffles of `group` hands: member / group^turn
 * modulo member_count - 1, the last one staying where it is. For member_count = group^m a shuffle
 * rotates the digits of the position in base `group`, so that m turns mix every digit once.
 */
static uint64_t shuffled(const struct rb_rounds_config *config, uint64_t turn, uint32_t rank)
{
	uint64_t position = rb_rounds_member_of(config, rank);
	uint64_t last = rb_rounds_member_count(config) - 1;
	uint64_t factor = (last + 1) / config->options.group;

	if (position == last)
		return last;
	for (factor %= last; turn > 0; turn >>= 1) {
		if (turn & 1)
			position = position * factor % last;
		factor = factor * factor % last;
	}
	return position;
}

bool rb_rounds_together(const struct rb_rounds *m, uint64_t round, uint32_t a, uint32_t b)
{
	const struct rb_rounds_config *c = &m->config;
	bool now = round == m->round;
	uint64_t turn = now ? m->groups.turn : m->groups.last_turn;

	RB_ASSERT(now || round + 1 == m->round);
	if (!rb_rounds_policy_of(c)->grouped || (now ? m->opening.full : m->groups.last_full))
		return true;
	return shuffled(c, turn, a) / c->options.group == shuffled(c, turn, b) / c->options.group;
}

bool rb_rounds_grouped(const struct rb_rounds_config *config)
{
	return rb_rounds_policy_of(config)->grouped &&
	       config->options.group < rb_rounds_member_count(config);
}

uint32_t rb_rounds_group_ranks(const struct rb_rounds_config *config)
{
	return config->options.group * (config->nodes != NULL ? config->nodes->least : 1);
}

uint32_t rb_rounds_members(const struct rb_rounds *m, uint32_t *ranks)
{
	bool apart = in_groups(m);
	uint32_t count = 0;

	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (!apart || rb_rounds_together(m, m->round, m->config.rank, r))
			ranks[count++] = r;
	return count;
}
