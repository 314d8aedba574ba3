/*
 * rounds_results.c -- which result is collected next, and how long each is kept.
 *
 * `next` is the round to be collected next. EACH takes all in order; LATEST skips to the newest;
 * OWN takes the round of the last contribution, once `own_due`, and after a drain also each that
 * follows: what is left must not get lost. What is skipped is as good as released.
 *
 * The end of an era is a cut: from `limit` on, rounds are those of the next one, which others have
 * begun. They are kept as all are, but not offered before a collect has told that there is no more
 * of this one; between a drain and that moment nothing may be committed, either. A rank that has
 * left is given what is there of the rounds up to the one that it left in, and waits for no more
 * than its own contributions; nothing is held up for it.
 */
#include "collectives/partial/rounds_inside.h"

#define SLOTS_MIN 3u /* The newest, one that is lent, and the running round's. */

static bool takes_latest(const struct rb_rounds *m)
{
	return m->config.options.collection == RUBATO_COLLECT_LATEST;
}

static bool takes_own(const struct rb_rounds *m)
{
	return m->config.options.collection == RUBATO_COLLECT_OWN;
}

static bool has_left(const struct rb_rounds *m)
{
	return (m->era.flags & RB_ROUNDS_LEFT) != 0;
}

uint32_t rb_rounds_slots(const rubato_partial_options *options)
{
	bool aged = options->collection != RUBATO_COLLECT_LATEST;

	return aged && options->depth > SLOTS_MIN ? options->depth : SLOTS_MIN;
}

/* ---- Room ---- */

/* Whether what a slot holds is still to be collected. */
static bool is_wanted(const struct rb_rounds *m, uint32_t slot)
{
	uint64_t round = m->results.kept[slot];

	if (round == RB_ROUNDS_NEVER || round < m->results.next)
		return false;
	if (takes_latest(m)) /* The era's last one: it may not be the newest any more. */
		return round + 1 == m->results.limit;
	return !has_left(m) || round < m->results.limit;
}

/* Whether a result is to be collected or released that is `depth` rounds old. */
static bool is_behind(const struct rb_rounds *m)
{
	uint64_t oldest = m->results.next;

	if (takes_latest(m) || has_left(m))
		return false;
	if (m->results.lent != RB_ROUNDS_NO_SLOT && m->results.kept[m->results.lent] < oldest)
		oldest = m->results.kept[m->results.lent];
	return oldest < m->round && m->round - oldest >= m->config.options.depth;
}

uint32_t rb_rounds_slot_find(const struct rb_rounds *m)
{
	uint32_t found = RB_ROUNDS_NO_SLOT, oldest = RB_ROUNDS_NO_SLOT;

	if (is_behind(m))
		return RB_ROUNDS_NO_SLOT;
	for (uint32_t i = 0; i < m->results.slot_count; i++) {
		if (i == m->results.lent || i == m->results.newest)
			continue;
		if (!is_wanted(m, i))
			found = i;
		if (oldest == RB_ROUNDS_NO_SLOT || m->results.kept[i] < m->results.kept[oldest])
			oldest = i;
	}
	return found == RB_ROUNDS_NO_SLOT && has_left(m) ? oldest : found;
}

/* ---- Collection ---- */

/* Between a drain and the moment when this rank is told that all have drained. */
static bool is_flushing(const struct rb_rounds *m)
{
	return (m->era.flags & RB_ROUNDS_DRAINING) != 0 || m->results.limit != RB_ROUNDS_NEVER;
}

/* The next one's slot, if it is here. */
static uint32_t next_find(const struct rb_rounds *m)
{
	uint64_t end = m->results.limit < m->round ? m->results.limit : m->round;
	uint32_t found = RB_ROUNDS_NO_SLOT;

	if (takes_own(m) && !m->results.own_due && !is_flushing(m))
		return RB_ROUNDS_NO_SLOT;
	for (uint32_t i = 0; i < m->results.slot_count; i++) {
		if (m->results.kept[i] < m->results.next || m->results.kept[i] >= end)
			continue;
		if (found == RB_ROUNDS_NO_SLOT ||
		    takes_latest(m) == (m->results.kept[i] > m->results.kept[found]))
			found = i;
	}
	return found;
}

/* Free rounds go by when a rank has taken all that there is. */
static void catch_up(struct rb_rounds *m)
{
	if (m->results.next >= m->round)
		m->results.caught_up = rb_rounds_next_join(m);
}

/* Whether a round is to come that this rank waits for. */
static bool waits(const struct rb_rounds *m)
{
	if (rb_rounds_is_over(m))
		return m->phase != RB_ROUNDS_OVER; /* The survivors are about to agree. */
	if (has_left(m))
		return m->pending.count > 0 || m->joined.count > 0;
	if (m->pending.fresh || m->joined.fresh || (m->era.flags & RB_ROUNDS_DRAINING) != 0)
		return true;
	return m->results.own_due && m->is_joined && m->results.next <= m->round;
}

void rb_rounds_collect(struct rb_rounds *m, bool looks)
{
	uint32_t slot = next_find(m);

	RB_ASSERT(m->results.lent == RB_ROUNDS_NO_SLOT);
	if (slot != RB_ROUNDS_NO_SLOT) {
		m->results.lent = slot;
		m->results.next = m->results.kept[slot] + 1;
		m->results.own_due = false;
		m->results.offer = RB_ROUNDS_RESULT;
		return;
	}
	if (takes_own(m) && rb_rounds_is_free(m) && !m->results.own_due &&
	    m->results.next < m->round)
		m->results.next = m->round; /* Those between are not wanted. */
	catch_up(m);
	m->results.offer = RB_ROUNDS_NOTHING;
	/* The end of an era is told to who asks for it. */
	if (looks && m->results.limit != RB_ROUNDS_NEVER)
		return;
	if (m->results.limit != RB_ROUNDS_NEVER) { /* This tells it. */
		m->results.offer = RB_ROUNDS_ERA_OVER;
		m->results.next =
			m->results.next > m->results.limit ? m->results.next : m->results.limit;
		m->results.next = has_left(m) ? RB_ROUNDS_NEVER : m->results.next;
		m->results.limit = RB_ROUNDS_NEVER;
		m->results.own_due = false;
	} else if (waits(m)) {
		m->results.offer = RB_ROUNDS_WAIT;
	} else if (m->phase == RB_ROUNDS_OVER) {
		m->results.offer = RB_ROUNDS_NO_MORE;
	} else if (has_left(m)) {
		m->results.offer = RB_ROUNDS_ERA_OVER;
		m->results.next = RB_ROUNDS_NEVER;
	}
}

void rb_rounds_release(struct rb_rounds *m)
{
	RB_ASSERT(m->results.lent != RB_ROUNDS_NO_SLOT);
	m->results.lent = RB_ROUNDS_NO_SLOT;
	if (rb_rounds_is_free(m))
		catch_up(m);
}

void rb_rounds_own_commit(struct rb_rounds *m, uint64_t step, bool in_time)
{
	uint64_t round = rb_rounds_next_join(m);

	if (!takes_own(m))
		return;
	if (!in_time && !rb_rounds_is_free(m))
		round = rb_rounds_target(m, step);
	else if (!in_time && round > 0)
		round--; /* The newest that it might have been in. */
	if (round < m->results.next)
		return;
	m->results.next = round;
	m->results.own_due = true;
}

/* ---- Eras ---- */

void rb_rounds_era_over(struct rb_rounds *m)
{
	if (m->era.parting == RB_ROUNDS_STAYS) {
		m->results.limit = m->round + 1;
	} else if (m->era.parting == RB_ROUNDS_PARTS_NEXT) {
		m->era.parting = RB_ROUNDS_PARTS;
		m->era.flags |= RB_ROUNDS_DRAINING;
	} else {
		m->era.parted = true;
	}
}

void rb_rounds_part(struct rb_rounds *m)
{
	m->results.lent = RB_ROUNDS_NO_SLOT;
	m->results.next = m->results.limit = RB_ROUNDS_NEVER;
	m->era.parting = RB_ROUNDS_PARTS;
	if (has_left(m)) /* The others drain. */
		m->era.parted = true;
	else if ((m->era.flags & RB_ROUNDS_DRAINING) != 0)
		m->era.parting = RB_ROUNDS_PARTS_NEXT;
	else
		m->era.flags |= RB_ROUNDS_DRAINING;
}
