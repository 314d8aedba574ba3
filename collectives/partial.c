/*
 * partial.c -- rounds as one rank sees them: commits, joins, records, and what follows from them.
 * Activation and counts are in partial_activation.c, what happens after a loss in
 * partial_recovery.c.
 */
#include "collectives/partial.h"

#include <string.h>

#include "collectives/partial_inside.h"

void rb_partial_say(struct rb_protocol_actions *out, enum rb_protocol_act act, uint32_t peer,
		    const struct rb_partial_message *message)
{
	struct rb_protocol_action *action = rb_protocol_act(out, act);

	action->peer = peer;
	memcpy(action->message, message, sizeof(*message));
}

void rb_partial_run(struct rb_partial *m, enum rb_partial_run which, uint32_t peer,
		    struct rb_protocol_actions *out)
{
	struct rb_protocol_action *action = rb_protocol_act(out, RB_PROTOCOL_RUN);

	action->value = m->round * RB_PARTIAL_RUNS + which;
	action->peer = peer;
}

/* ---- The next round, from the records of the last ---- */

static bool full_due(const struct rb_partial *m)
{
	const struct rb_partial_config *c = &m->config;

	if (c->full_every > 0 && (m->round + 1) % c->full_every == 0 && !RB_MUTANT(SKIP_FULL))
		return true;
	for (uint32_t r = 0; c->max_absence > 0 && r < c->rank_count; r++)
		if (m->told[r] == 0 && m->absent[r] >= c->max_absence)
			return true;
	return false;
}

static uint32_t need(const struct rb_partial *m)
{
	const struct rb_partial_config *c = &m->config;
	uint32_t k = 1;

	if (m->full || c->policy == RB_POLICY_DEADLINE)
		k = m->live;
	else if (c->policy == RB_POLICY_QUORUM)
		k = RB_MUTANT(OPEN_EARLY) && c->quorum > 1 ? c->quorum - 1 : c->quorum;
	else if (c->policy == RB_POLICY_ADAPTIVE)
		k = rb_adaptive_quorum(m->adaptive);
	return k < m->live ? k : m->live;
}

static void round_prepare(struct rb_partial *m)
{
	m->live = 0;
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		m->live += m->told[r] == 0;
	m->full = full_due(m);
	m->need = need(m);
	m->initiator =
		m->config.policy == RB_POLICY_MAJORITY ? rb_partial_draw(m) : RB_PARTIAL_NOBODY;
	m->arrived = false;
	m->opens_ns = m->joins_ns = UINT64_MAX;
}

static void records_apply(struct rb_partial *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		const struct rb_partial_record *record = &m->records[r];

		RB_ASSERT(record->round == m->round);
		m->told[r] = record->flags & (RB_PARTIAL_DRAINING | RB_PARTIAL_LEFT);
		if (RB_MUTANT(COUNT_PASSIVE) && r != m->config.rank)
			m->told[r] = 0;
		m->absent[r]++;
		if (record->count > 0 || RB_MUTANT(FORGET_ABSENCE))
			m->absent[r] = 0;
		if (record->count > 0 && m->adaptive != NULL)
			rb_adaptive_note(m->adaptive, r, record->duration_ns);
	}
	if (m->adaptive != NULL)
		rb_adaptive_round(m->adaptive, m->round);
}

static bool all_passive(const struct rb_partial *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (m->told[r] == 0)
			return false;
	return true;
}

static void drained(struct rb_partial *m, struct rb_protocol_actions *out)
{
	RB_ASSERT(m->pending.count == 0);
	if (!RB_MUTANT(KEEP_DRAINING))
		m->flags &= ~RB_PARTIAL_DRAINING;
	for (uint32_t r = 0; r < m->config.rank_count; r++) {
		m->told[r] &= (uint8_t)~RB_PARTIAL_DRAINING;
		m->absent[r] = 0;
	}
	if (!RB_MUTANT(KEEP_BASE)) {
		m->based = false;
		m->base_round = m->round + 1;
	}
	rb_protocol_act(out, RB_PROTOCOL_DONE)->value =
		m->round * RB_PARTIAL_EVENTS + RB_PARTIAL_DRAINED;
}

void rb_partial_complete(struct rb_partial *m, struct rb_protocol_actions *out)
{
	RB_ASSERT(m->is_joined);
	records_apply(m);
	if (!(RB_MUTANT(FETCH_UNCOUNTED) && m->phase == RB_PARTIAL_FETCHING)) {
		m->delivered += m->joined.count;
		m->joined = (struct rb_partial_load) { 0 };
	}
	if (RB_MUTANT(RESTORE_DELIVERED) && rb_partial_is_over(m))
		m->joined.count = 1;
	rb_protocol_act(out, RB_PROTOCOL_DONE)->value =
		m->round * RB_PARTIAL_EVENTS + RB_PARTIAL_COMPLETED;
	if (all_passive(m))
		drained(m, out);
	if (!RB_MUTANT(STALE_COUNT))
		m->slots[m->round & 1] = (struct rb_partial_slot) { 0 };
	else
		m->slots[m->round & 1].active = false;
	m->last_turn = m->turn;
	m->last_full = m->full;
	m->turn += !m->full;
	m->is_joined = false;
	m->round++;
	round_prepare(m);
}

/* ---- The running round ---- */

static bool is_passive(const struct rb_partial *m)
{
	return m->flags != 0;
}

/* Whether this rank counts as ready for the first round that it has not joined. */
static bool is_ready(const struct rb_partial *m)
{
	if (m->told[m->config.rank] != 0)
		return false;
	return m->pending.fresh || is_passive(m) || (m->willing && m->need > 1) ||
	       (RB_MUTANT(LATE_IS_READY) && m->pending.count > 0);
}

static void wake(struct rb_protocol_actions *out, uint64_t at_ns)
{
	rb_protocol_act(out, RB_PROTOCOL_WAKE)->value = at_ns;
}

static void arrive(struct rb_partial *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	m->arrived = true;
	m->slots[m->round & 1].arrived += RB_MUTANT(COUNT_TWICE) ? 2 : 1;
	if (m->config.policy == RB_POLICY_DEADLINE && !m->full && !RB_MUTANT(DEADLINE_DEAF)) {
		m->opens_ns = now_ns + m->config.deadline_ns;
		wake(out, m->opens_ns);
	}
}

static bool may_open(const struct rb_partial *m, uint64_t now_ns)
{
	uint32_t root = (uint32_t)(m->round % m->config.rank_count);

	if (rb_partial_counting(m)) {
		if (m->config.rank == root && m->need > 0 &&
		    m->slots[m->round & 1].arrived >= m->need)
			return true;
		return m->arrived && (m->need == 1 || now_ns >= m->opens_ns);
	}
	return m->arrived &&
	       (m->config.policy != RB_POLICY_MAJORITY || m->initiator == m->config.rank);
}

static bool may_join(const struct rb_partial *m, uint64_t now_ns)
{
	const struct rb_partial_config *c = &m->config;

	if (m->merging > 0 && !RB_MUTANT(JOIN_DURING_MERGE))
		return false;
	if (c->limited && (m->flags & RB_PARTIAL_LEFT) == 0 && !RB_MUTANT(IGNORE_ROOM) &&
	    m->round >= m->released + c->depth)
		return false;
	return m->pending.count > 0 || is_passive(m) || now_ns >= m->joins_ns;
}

static void join(struct rb_partial *m, struct rb_protocol_actions *out)
{
	bool fresh = m->pending.fresh || (RB_MUTANT(LATE_IS_FRESH) && m->pending.count > 0);

	m->record = (struct rb_partial_record) { .first_step = m->pending.first_step,
						 .last_step = m->pending.last_step,
						 .count = m->pending.count,
						 .flags = m->flags | (fresh ? RB_PARTIAL_FRESH : 0),
						 .weight = m->pending.weight,
						 .duration_ns = m->duration_ns,
						 .discarded = m->discarded,
						 .round = m->round };
	if (RB_MUTANT(HIDE_DRAIN))
		m->record.flags &= ~RB_PARTIAL_DRAINING;
	m->joined = m->pending;
	if (!RB_MUTANT(FORGET_SWAP))
		m->pending = (struct rb_partial_load) { .fresh = RB_MUTANT(KEEP_FRESH) && fresh };
	m->is_joined = true;
	m->lent = m->lent || m->willing;
	m->willing = false;
	m->phase = RB_PARTIAL_EXCHANGING;
	rb_partial_run(m, RB_PARTIAL_EXCHANGE, 0, out);
}

/* All that can happen now without a further event. */
static void advance(struct rb_partial *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	struct rb_partial_slot *slot = &m->slots[m->round & 1];

	if (m->phase == RB_PARTIAL_OPEN) {
		if (!m->arrived && is_ready(m))
			arrive(m, now_ns, out);
		if (!slot->active && may_open(m, now_ns))
			rb_partial_activate(m, out);
		rb_partial_count_forward(m, out);
		if (slot->active) {
			m->phase = RB_PARTIAL_JOINING;
			m->joins_ns = now_ns + (RB_MUTANT(IGNORE_WINDOW) ? 0 : m->config.window_ns);
			if (!may_join(m, now_ns) && now_ns < m->joins_ns)
				wake(out, m->joins_ns);
		}
	}
	if (m->phase == RB_PARTIAL_JOINING && may_join(m, now_ns))
		join(m, out);
}

static void run_done(struct rb_partial *m, const struct rb_protocol_event *event,
		     struct rb_protocol_actions *out)
{
	uint64_t which = event->value % RB_PARTIAL_RUNS;

	if (event->value / RB_PARTIAL_RUNS != m->round)
		return; /* Crossed an ABANDON. */
	if (m->phase == RB_PARTIAL_EXCHANGING && which == RB_PARTIAL_EXCHANGE) {
		m->phase = RB_PARTIAL_REDUCING;
		rb_partial_run(m, RB_PARTIAL_REDUCE, 0, out);
	} else if (m->phase == RB_PARTIAL_REDUCING && which == RB_PARTIAL_REDUCE) {
		rb_partial_complete(m, out);
		m->phase = RB_PARTIAL_OPEN;
		advance(m, event->now_ns, out);
	} else if (m->phase == RB_PARTIAL_FETCHING && which == RB_PARTIAL_FETCH) {
		rb_partial_fetched(m, out);
	} else {
		RB_ASSERT(rb_partial_is_over(m));
	}
}

/* ---- The application ---- */

static bool in_time(struct rb_partial *m, uint64_t step)
{
	uint64_t next = m->round + m->is_joined; /* First one not joined here. */

	if (m->config.free_rounds)
		return m->caught_up == next;
	if (!m->based) {
		m->based = true;
		m->base_step = step;
	}
	uint64_t target = m->base_round + (step - m->base_step);

	return RB_MUTANT(EARLY_IS_LATE) ? target == next : target >= next;
}

static enum rb_partial_verdict judge(const struct rb_partial *m, bool fresh)
{
	if (!fresh && m->config.late == RB_LATE_DROP)
		return RB_PARTIAL_DISCARD;
	if (m->pending.count == 0)
		return RB_PARTIAL_TAKE;
	/* What is in time for an open round has not missed one. */
	if (m->config.late == RB_LATE_LATEST && !m->pending.fresh)
		return RB_PARTIAL_REPLACE;
	return RB_PARTIAL_MERGE;
}

static void commit(struct rb_partial *m, const struct rb_partial_commit *c)
{
	bool fresh = in_time(m, c->step);
	struct rb_partial_load *p = &m->pending;

	RB_ASSERT(!is_passive(m));
	m->willing = m->lent = false;
	m->produced++;
	m->duration_ns = c->duration_ns;
	m->verdict = judge(m, fresh);
	if (m->verdict == RB_PARTIAL_DISCARD) {
		m->discarded += !RB_MUTANT(LOSE_DISCARDED);
		return;
	}
	if (m->verdict == RB_PARTIAL_REPLACE) {
		m->discarded += RB_MUTANT(LOSE_DISCARDED) ? 0 : p->count;
		*p = (struct rb_partial_load) { 0 };
	}
	m->merging += m->verdict == RB_PARTIAL_MERGE;
	p->first_step = p->count == 0 ? c->step : p->first_step;
	p->last_step = c->step;
	p->weight += c->weight;
	p->count++;
	p->fresh = p->fresh || fresh;
}

static void released(struct rb_partial *m, uint64_t below)
{
	RB_ASSERT(below <= m->round && below >= m->released);
	m->released = below;
	if (below == m->round)
		m->caught_up = m->round + m->is_joined;
}

/* Once per commit: else whoever waits long elsewhere would have empty rounds run here meanwhile. */
static void waiting(struct rb_partial *m)
{
	if (!m->config.free_rounds)
		return;
	if (m->pending.count > 0)
		m->pending.fresh = true;
	else if (!m->lent)
		m->willing = true;
}

static void call(struct rb_partial *m, const struct rb_protocol_event *event)
{
	struct rb_partial_commit contribution;
	uint64_t below;

	switch ((enum rb_partial_call)event->value) {
	case RB_PARTIAL_COMMIT:
		memcpy(&contribution, event->message, sizeof(contribution));
		commit(m, &contribution);
		break;
	case RB_PARTIAL_MERGED:
		RB_ASSERT(m->merging > 0);
		m->merging--;
		break;
	case RB_PARTIAL_RELEASED:
		memcpy(&below, event->message, sizeof(below));
		released(m, below);
		break;
	case RB_PARTIAL_DRAIN:
		m->flags |= RB_PARTIAL_DRAINING;
		break;
	case RB_PARTIAL_LEAVE:
		m->flags |= RB_PARTIAL_LEFT;
		break;
	case RB_PARTIAL_WAITING:
		waiting(m);
		break;
	}
}

static void message(struct rb_partial *m, const struct rb_protocol_event *event,
		    struct rb_protocol_actions *out)
{
	struct rb_partial_message message;

	memcpy(&message, event->message, sizeof(message));
	RB_ASSERT(event->peer < m->config.rank_count && event->peer != m->config.rank);
	RB_ASSERT(message.kind >= RB_PARTIAL_MESSAGE_ACTIVATE &&
		  message.kind <= RB_PARTIAL_MESSAGE_FETCH);
	if (message.kind >= RB_PARTIAL_MESSAGE_STATE)
		rb_partial_recovery_message(m, event->peer, &message, out);
	else if (!rb_partial_is_over(m))
		rb_partial_flood_message(m, &message, out);
}

static void step(void *machine, const struct rb_protocol_event *event,
		 struct rb_protocol_actions *out)
{
	struct rb_partial *m = machine;

	switch (event->kind) {
	case RB_PROTOCOL_START:
		call(m, event);
		break;
	case RB_PROTOCOL_MESSAGE:
		message(m, event, out);
		break;
	case RB_PROTOCOL_RUN_DONE:
		run_done(m, event, out);
		return;
	case RB_PROTOCOL_TIMER:
		break;
	case RB_PROTOCOL_PEER_LOST:
		rb_partial_lose(m, event->peer, out);
		break;
	}
	advance(m, event->now_ns, out);
	rb_partial_recovery_advance(m, out);
}

bool rb_partial_valid(const void *machine)
{
	const struct rb_partial *m = machine;
	const struct rb_partial_slot *next = &m->slots[(m->round + 1) & 1];
	bool running = m->phase == RB_PARTIAL_EXCHANGING || m->phase == RB_PARTIAL_REDUCING;
	bool conserved =
		m->produced == m->delivered + m->discarded + m->pending.count + m->joined.count;
	bool counted = m->need <= m->live && m->live <= m->config.rank_count &&
		       m->slots[m->round & 1].arrived <= m->config.rank_count;
	bool early = next->active || next->arrived > 0; /* News of the next round. */

	return conserved && counted && m->released <= m->round &&
	       RB_IMPLIES(running, m->is_joined) &&
	       RB_IMPLIES(m->phase <= RB_PARTIAL_JOINING, !m->is_joined && !early) &&
	       RB_IMPLIES(!m->is_joined, m->joined.count == 0) &&
	       RB_IMPLIES(m->phase == RB_PARTIAL_JOINING, m->slots[m->round & 1].active) &&
	       RB_IMPLIES(rb_partial_is_over(m), m->dead_count > 0) &&
	       RB_IMPLIES(m->phase == RB_PARTIAL_FETCHING, !m->peers[m->fetch_from].dead) &&
	       RB_IMPLIES(m->pending.fresh, m->pending.count > 0);
}

const struct rb_protocol rb_partial_protocol = { .name = "partial",
						 .step = step,
						 .valid = rb_partial_valid };

/* ---- Making and reading ---- */

static size_t part_bytes(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/* Only where it is asked: it is the largest part. */
static size_t adaptive_bytes(const struct rb_partial_config *config)
{
	return config->policy == RB_POLICY_ADAPTIVE
		       ? part_bytes(rb_adaptive_bytes(config->rank_count))
		       : 0;
}

size_t rb_partial_bytes(const struct rb_partial_config *config)
{
	size_t n = config->rank_count;

	return part_bytes(sizeof(struct rb_partial)) +
	       part_bytes(n * sizeof(struct rb_partial_record)) +
	       part_bytes(n * sizeof(struct rb_partial_peer)) + adaptive_bytes(config) +
	       part_bytes(n * sizeof(uint32_t)) + part_bytes(n);
}

static rubato_status config_check(const struct rb_partial_config *c)
{
	if (c->rank_count == 0 || c->rank >= c->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u of %u", c->rank, c->rank_count);
	if (c->rank_count > 1u << 30)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%u ranks", c->rank_count);
	if (c->policy > RB_POLICY_WAGMA)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "policy %d is none", (int)c->policy);
	if (c->late > RB_LATE_DROP)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "late %d is none", (int)c->late);
	if (c->policy == RB_POLICY_QUORUM && (c->quorum == 0 || c->quorum > c->rank_count))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "quorum %u of %u ranks", c->quorum,
			       c->rank_count);
	if (c->policy == RB_POLICY_WAGMA && (c->group == 0 || c->rank_count % c->group != 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "group %u does not divide %u ranks", c->group,
			       c->rank_count);
	if (c->policy == RB_POLICY_DEADLINE && c->deadline_ns > INT64_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "deadline_ns %llu is too far away",
			       (unsigned long long)c->deadline_ns);
	if (c->window_ns > INT64_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "window_ns %llu is too long",
			       (unsigned long long)c->window_ns);
	if (c->depth == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "depth 0: no result could be kept");
	return RUBATO_OK;
}

rubato_status rb_partial_init(struct rb_partial *m, const struct rb_partial_config *config)
{
	size_t n = config->rank_count;
	uint8_t *at = (uint8_t *)m + part_bytes(sizeof(*m));

	RB_TRY(config_check(config));
	memset(m, 0, rb_partial_bytes(config));
	m->config = *config;
	m->records = (struct rb_partial_record *)(void *)at;
	at += part_bytes(n * sizeof(*m->records));
	m->peers = (struct rb_partial_peer *)(void *)at;
	at += part_bytes(n * sizeof(*m->peers));
	m->adaptive = adaptive_bytes(config) > 0 ? (struct rb_adaptive *)(void *)at : NULL;
	at += adaptive_bytes(config);
	m->absent = (uint32_t *)(void *)at;
	m->told = at + part_bytes(n * sizeof(*m->absent));
	if (m->adaptive != NULL)
		rb_adaptive_init(m->adaptive, config->rank_count, config->free_rounds,
				 config->limited ? config->depth : 0);
	while (m->levels < 31 && 1u << m->levels < config->rank_count)
		m->levels++;
	m->based = true;
	round_prepare(m);
	return RUBATO_OK;
}

enum rb_partial_verdict rb_partial_verdict(const struct rb_partial *m)
{
	return m->verdict;
}

enum rb_partial_phase rb_partial_phase(const struct rb_partial *m)
{
	return m->phase;
}

uint64_t rb_partial_round(const struct rb_partial *m)
{
	return m->round;
}

struct rb_partial_record *rb_partial_record(struct rb_partial *m)
{
	return &m->record;
}

struct rb_partial_record *rb_partial_records(struct rb_partial *m)
{
	return m->records;
}

bool rb_partial_ready(const struct rb_partial *m)
{
	return m->pending.fresh || m->joined.fresh || (m->flags & RB_PARTIAL_DRAINING) != 0;
}

/*
 * Position of a rank after `turn` perfect shuffles of `group` hands: rank / group^turn modulo
 * rank_count - 1, the last one staying where it is. For rank_count = group^m a shuffle rotates the
 * digits of the position in base `group`, so that m turns mix every digit once.
 */
static uint64_t shuffled(const struct rb_partial_config *config, uint64_t turn, uint32_t rank)
{
	uint64_t last = config->rank_count - 1, position = rank;
	uint64_t factor = config->rank_count / config->group;

	if (rank == last)
		return last;
	for (factor %= last; turn > 0; turn >>= 1) {
		if (turn & 1)
			position = position * factor % last;
		factor = factor * factor % last;
	}
	return position;
}

bool rb_partial_together(const struct rb_partial *m, uint64_t round, uint32_t a, uint32_t b)
{
	const struct rb_partial_config *c = &m->config;
	bool now = round == m->round;
	uint64_t turn = now ? m->turn : m->last_turn;

	RB_ASSERT(now || round + 1 == m->round);
	if (c->policy != RB_POLICY_WAGMA || (now ? m->full : m->last_full))
		return true;
	return shuffled(c, turn, a) / c->group == shuffled(c, turn, b) / c->group;
}

uint32_t rb_partial_members(const struct rb_partial *m, uint32_t *ranks)
{
	uint32_t count = 0;

	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (rb_partial_together(m, m->round, m->config.rank, r))
			ranks[count++] = r;
	return count;
}

bool rb_partial_neighbour(const struct rb_partial_config *config, uint32_t peer)
{
	uint32_t n = config->rank_count, right = (peer + n - config->rank) % n, left = n - right;

	return right != 0 && ((right & (right - 1)) == 0 || (left & (left - 1)) == 0);
}

struct rb_partial_counts rb_partial_counts(const struct rb_partial *m)
{
	return (struct rb_partial_counts) { .produced = m->produced,
					    .delivered = m->delivered,
					    .discarded = m->discarded,
					    .pending = m->pending.count,
					    .joined = m->joined.count };
}

uint32_t rb_partial_need(const struct rb_partial *m)
{
	return m->need;
}

uint32_t rb_partial_live(const struct rb_partial *m)
{
	return m->live;
}

bool rb_partial_full(const struct rb_partial *m)
{
	return m->full;
}
