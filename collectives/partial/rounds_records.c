/*
 * rounds_records.c -- what follows from the records of a round, the same on every rank: who is
 * passive, the base of numbers, what a result holds, and when an era is over.
 */
#include "collectives/partial/rounds_inside.h"

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
		const struct rb_rounds_record *record = &m->exchange.records[r];

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
		steps[i] = m->exchange.records[ranks[i]].base_step;
	}
}

/* ---- What a result holds ---- */

static double divisor(const struct rb_rounds *m, uint32_t members, uint32_t staying)
{
	double by = members;

	if (!m->config.average)
		return 1;
	switch (m->config.options.normalise) {
	case RUBATO_BY_RANKS:
		break;
	case RUBATO_BY_CONTRIBUTORS:
		by = m->exchange.summary.contributors;
		break;
	case RUBATO_BY_WEIGHT:
		by = (double)m->exchange.summary.weight;
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

static void summary_make(struct rb_rounds *m)
{
	bool aligned = !rb_rounds_is_free(m);
	uint32_t members = 0, staying = 0;
	rubato_round *s = &m->exchange.summary;

	*s = (rubato_round) { .round = m->round };
	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		const struct rb_rounds_record *record = &m->exchange.records[r];

		s->discarded += record->discarded;
		if (!rb_rounds_together(m, m->round, m->config.rank, r))
			continue;
		members++;
		staying += (m->ranks.passive[r] & RB_ROUNDS_LEFT) == 0; /* Before this round. */
		s->fresh += (record->flags & RB_ROUNDS_FRESH) != 0;
		if (record->count == 0)
			continue;
		uint64_t oldest = staleness(m, record->first_step);
		uint64_t youngest = staleness(m, record->last_step);

		if (aligned && (s->contributors == 0 || youngest < s->staleness_min))
			s->staleness_min = youngest;
		if (aligned && oldest > s->staleness_max)
			s->staleness_max = oldest;
		s->contributors++;
		s->weight += record->weight;
	}
	s->divisor = divisor(m, members, staying);
}

bool rb_rounds_records_read(struct rb_rounds *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		RB_ASSERT(m->exchange.records[r].round == (uint32_t)m->round);
	if (!base_read(m))
		return false;
	summary_make(m);
	return true;
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

void rb_rounds_records_apply(struct rb_rounds *m)
{
	bool had_left = (m->ranks.passive[m->config.rank] & RB_ROUNDS_LEFT) != 0;

	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		const struct rb_rounds_record *record = &m->exchange.records[r];

		m->ranks.passive[r] = record->flags & (RB_ROUNDS_DRAINING | RB_ROUNDS_LEFT);
		m->ranks.absent[r] = record->count > 0 ? 0 : m->ranks.absent[r] + 1;
		if (record->count > 0 && m->ranks.adaptive != NULL)
			rb_adaptive_add(m->ranks.adaptive, r, record->duration_ns);
	}
	if (m->ranks.adaptive != NULL)
		rb_adaptive_round(m->ranks.adaptive, m->round);
	if (!had_left && (m->ranks.passive[m->config.rank] & RB_ROUNDS_LEFT) != 0)
		rb_rounds_era_over(m);
	if (all_passive(m))
		era_end(m);
}

/* ---- Wagma's groups ---- */

/*
 * Position of a rank after `turn` perfect shuffles of `group` hands: rank / group^turn modulo
 * rank_count - 1, the last one staying where it is. For rank_count = group^m a shuffle rotates the
 * digits of the position in base `group`, so that m turns mix every digit once.
 */
static uint64_t shuffled(const struct rb_rounds_config *config, uint64_t turn, uint32_t rank)
{
	uint64_t last = config->rank_count - 1, position = rank;
	uint64_t factor = config->rank_count / config->options.group;

	if (rank == last)
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
	return rb_rounds_policy_of(config)->grouped && config->options.group < config->rank_count;
}

uint32_t rb_rounds_members(const struct rb_rounds *m, uint32_t *ranks)
{
	uint32_t count = 0;

	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (rb_rounds_together(m, m->round, m->config.rank, r))
			ranks[count++] = r;
	return count;
}
