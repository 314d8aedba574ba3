/*
 * rounds.c -- rounds as one rank sees them: what its application commits and collects, when it
 * joins, and what happens in which order. Beside it: what all ranks agree on about a round
 * (rounds_agreement.c), what survivors do (rounds_recovery.c).
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
#include "collectives/partial/rounds.h"

#include <string.h>

#include "collectives/partial/rounds_inside.h"

#define SLOTS_MIN 3u /* The newest, one that is lent, and the running round's. */

void rb_rounds_act_send(struct rb_protocol_actions *out, enum rb_protocol_act act, uint32_t peer,
			const struct rb_rounds_message *message)
{
	struct rb_protocol_action *action = rb_protocol_action_add(out, act);

	action->peer = peer;
	memcpy(action->message, message, sizeof(*message));
}

void rb_rounds_act_run(struct rb_rounds *m, enum rb_rounds_run which, uint32_t peer,
		       struct rb_protocol_actions *out)
{
	struct rb_protocol_action *action = rb_protocol_action_add(out, RB_PROTOCOL_RUN);

	action->value = m->round * RB_ROUNDS_RUNS + which;
	action->peer = peer;
}

void rb_rounds_act_done(struct rb_rounds *m, enum rb_rounds_done which, rubato_status status,
			struct rb_protocol_actions *out)
{
	struct rb_protocol_action *action = rb_protocol_action_add(out, RB_PROTOCOL_DONE);

	action->value = m->round * RB_ROUNDS_EVENTS + which;
	action->status = status;
}

void rb_rounds_act_wake(struct rb_protocol_actions *out, uint64_t at_ns)
{
	rb_protocol_action_add(out, RB_PROTOCOL_WAKE)->value = at_ns;
}

/* ---- Room for results ---- */

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

/* Where the next round's result goes; NO_SLOT: nowhere, what is there is still to be read. */
static uint32_t slot_find(const struct rb_rounds *m)
{
	uint32_t oldest = RB_ROUNDS_NO_SLOT;

	if (is_behind(m))
		return RB_ROUNDS_NO_SLOT;
	for (uint32_t i = m->results.slot_count; i-- > 0;) {
		if (i == m->results.lent || i == m->results.newest)
			continue;
		if (!is_wanted(m, i))
			return i;
		if (oldest == RB_ROUNDS_NO_SLOT || m->results.kept[i] < m->results.kept[oldest])
			oldest = i;
	}
	return has_left(m) ? oldest : RB_ROUNDS_NO_SLOT;
}

/* ---- The running round ---- */

bool rb_rounds_has_room(const struct rb_rounds *m)
{
	if (m->merging > 0)
		return false;
	return slot_find(m) != RB_ROUNDS_NO_SLOT;
}

static bool may_join(const struct rb_rounds *m, uint64_t now_ns)
{
	if (!rb_rounds_has_room(m))
		return false;
	if (!rb_rounds_is_head(m))
		return true; /* The first rank of the node has waited. */
	return rb_rounds_node_full(m) || now_ns >= m->opening.joins_ns;
}

/* Own: `round` is the one to be collected. */
static void own_set(struct rb_rounds *m, uint64_t round)
{
	if (!takes_own(m) || round < m->results.next)
		return;
	m->results.next = round;
	m->results.own_due = true;
}

/* What has missed the round that this rank joins without it, since others of its node have nothing:
 * it waits, as if it had come late. The rank goes on waiting for the round itself. */
static void stay_out(struct rb_rounds *m)
{
	struct rb_rounds_load *load = &m->pending;

	m->joined = (struct rb_rounds_load) { .fresh = load->fresh };
	load->fresh = load->fresh && !rb_rounds_is_free(m) &&
		      rb_rounds_target(m, m->counts.last_step) > m->round;
	if (load->fresh)
		own_set(m, m->round + 1); /* It was committed ahead. */
	if (load->fresh || m->config.options.late != RUBATO_LATE_DROP)
		return;
	m->counts.discarded += load->count;
	*load = (struct rb_rounds_load) { 0 };
}

void rb_rounds_join(struct rb_rounds *m, bool whole, enum rb_rounds_run run,
		    struct rb_protocol_actions *out)
{
	bool based = m->era.begun && !m->era.is_first && !rb_rounds_is_free(m);
	/* That it drains or leaves it tells with its node, too. */
	uint32_t flags = whole ? m->era.flags : m->ranks.passive[m->config.rank];

	if (whole) {
		m->joined = m->pending;
		m->pending = (struct rb_rounds_load) { 0 };
	} else {
		stay_out(m);
	}
	m->results.out = slot_find(m);
	m->results.kept[m->results.out] = RB_ROUNDS_NEVER;
	m->exchange.own = (struct rb_rounds_record) {
		.first_step = m->joined.first_step,
		.last_step = m->joined.last_step,
		.count = m->joined.count,
		.flags = flags | (whole && m->joined.fresh ? RB_ROUNDS_FRESH : 0) |
			 (based ? RB_ROUNDS_BASED : 0),
		.weight = m->joined.weight,
		.duration_ns = m->joined.duration_ns,
		.discarded = m->counts.discarded,
		.base_step = based ? m->numbers.own_first : 0,
		.round = (uint32_t)m->round,
		.in = (uint16_t)m->joined.buffer,
		.out = (uint16_t)m->results.out,
	};
	m->is_joined = true;
	m->willing = false;
	rb_rounds_act_run(m, run, 0, out);
}

/* All that can happen now without a further event. */
static void advance(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	bool opened;

	if (rb_rounds_meets(&m->config)) {
		rb_rounds_meeting_advance(m, now_ns, out);
		return;
	}
	opened = m->phase == RB_ROUNDS_OPEN && rb_rounds_open(m, now_ns, out);
	if (opened) {
		m->phase = RB_ROUNDS_JOINING;
		m->opening.joins_ns = now_ns + m->config.options.window_ns;
	}
	if (m->phase != RB_ROUNDS_JOINING)
		return;
	rb_rounds_node_note(m, out);
	if (may_join(m, now_ns)) {
		if (rb_rounds_is_head(m))
			rb_rounds_node_join(m, m->round,
					    rb_rounds_node_full(m) || rb_rounds_node_counts(m),
					    out);
		rb_rounds_join(m, rb_rounds_activation_of(m, m->round)->whole, RB_ROUNDS_EXCHANGE,
			       out);
		m->phase = RB_ROUNDS_EXCHANGING;
	} else if (opened && rb_rounds_is_head(m) && now_ns < m->opening.joins_ns) {
		rb_rounds_act_wake(out, m->opening.joins_ns);
	}
}

void rb_rounds_complete(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	RB_ASSERT(m->is_joined && m->results.out != RB_ROUNDS_NO_SLOT);
	rb_rounds_summarise(m);
	m->counts.delivered += m->joined.count;
	m->joined = (struct rb_rounds_load) { 0 };
	m->results.kept[m->results.out] = m->round;
	m->results.newest = m->results.out;
	m->results.out = RB_ROUNDS_NO_SLOT;
	m->counts.full_rounds += m->opening.full;
	m->is_joined = false;
	rb_rounds_act_done(m, RB_ROUNDS_COMPLETED, RUBATO_OK, out);
	rb_rounds_next(m);
}

void rb_rounds_exchanged(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	if (!rb_rounds_records_read(m)) {
		rb_rounds_act_done(m, RB_ROUNDS_DIFFERING, RUBATO_ERR_MISMATCH, out);
		return;
	}
	m->phase = RB_ROUNDS_REDUCING;
	rb_rounds_act_run(m, RB_ROUNDS_REDUCE, 0, out);
}

static void run_done(struct rb_rounds *m, const struct rb_protocol_event *event,
		     struct rb_protocol_actions *out)
{
	uint64_t which = event->value % RB_ROUNDS_RUNS;

	if (event->value / RB_ROUNDS_RUNS != m->round)
		return; /* Crossed an ABANDON. */
	if (m->phase == RB_ROUNDS_EXCHANGING && which == RB_ROUNDS_EXCHANGE) {
		rb_rounds_exchanged(m, out);
	} else if (m->phase == RB_ROUNDS_REDUCING && which == RB_ROUNDS_REDUCE) {
		rb_rounds_complete(m, out);
		m->phase = RB_ROUNDS_OPEN;
		advance(m, event->now_ns, out);
	} else if (m->phase == RB_ROUNDS_FETCHING && which == RB_ROUNDS_FETCH) {
		rb_rounds_fetched(m, out);
	} else {
		RB_ASSERT(rb_rounds_is_over(m));
	}
}

/* ---- What the application commits ---- */

/* Own: a contribution is committed; whether in time. */
static void own_commit(struct rb_rounds *m, uint64_t step, bool in_time)
{
	uint64_t round = rb_rounds_next_join(m);

	if (!in_time && !rb_rounds_is_free(m))
		round = rb_rounds_target(m, step);
	else if (!in_time && round > 0)
		round--; /* The newest that it might have been in. */
	own_set(m, round);
}

static bool in_time(struct rb_rounds *m, uint64_t step)
{
	if (!m->era.begun) {
		m->era.begun = true;
		m->numbers.own_first = step;
	}
	if (rb_rounds_is_free(m))
		return m->results.caught_up == rb_rounds_next_join(m);
	if (!m->numbers.based) {
		m->numbers.based = true;
		m->numbers.base_step = step;
	}
	return rb_rounds_target(m, step) >= rb_rounds_next_join(m);
}

/* Aligned: whether a round before took in the contribution that is for the next one. A rank may
 * commit that far ahead when collect sent it on, since another operation lacked it. */
static bool gave_early(const struct rb_rounds *m)
{
	return m->era.begun && !rb_rounds_is_free(m) && !m->pending.fresh &&
	       rb_rounds_target(m, m->counts.last_step) >= rb_rounds_next_join(m);
}

static enum rb_rounds_verdict judge(const struct rb_rounds *m, bool fresh)
{
	rubato_late late = m->config.options.late;

	if (!fresh && late == RUBATO_LATE_DROP)
		return RB_ROUNDS_DISCARD;
	if (m->pending.count == 0)
		return RB_ROUNDS_TAKE;
	/* What is in time for an open round has not missed one. */
	if (late == RUBATO_LATE_LATEST && !m->pending.fresh)
		return RB_ROUNDS_REPLACE;
	return RB_ROUNDS_MERGE;
}

bool rb_rounds_may_commit(const struct rb_rounds *m, uint64_t step)
{
	return m->phase != RB_ROUNDS_OVER && !rb_rounds_is_passive(m) &&
	       m->results.limit == RB_ROUNDS_NEVER &&
	       (m->counts.committed == 0 || step > m->counts.last_step);
}

static void commit(struct rb_rounds *m, const struct rb_rounds_commit *c)
{
	bool fresh = in_time(m, c->step);
	struct rb_rounds_load *load = &m->pending;

	RB_ASSERT(rb_rounds_may_commit(m, c->step));
	own_commit(m, c->step, fresh);
	m->willing = false;
	m->counts.committed++;
	m->counts.last_step = c->step;
	m->verdict = judge(m, fresh);
	if (m->verdict == RB_ROUNDS_DISCARD) {
		m->counts.discarded++;
		return;
	}
	if (m->verdict == RB_ROUNDS_REPLACE) {
		m->counts.discarded += load->count;
		*load = (struct rb_rounds_load) { 0 };
	}
	m->merging += m->verdict == RB_ROUNDS_MERGE;
	m->counts.merged += m->verdict == RB_ROUNDS_MERGE;
	load->buffer = load->count == 0 ? c->buffer : load->buffer;
	load->first_step = load->count == 0 ? c->step : load->first_step;
	load->last_step = c->step;
	load->weight += c->weight;
	load->duration_ns = c->duration_ns;
	load->count++;
	load->fresh = load->fresh || fresh;
}

/* Not before the first commit of an era: rounds would open while ranks have yet to begin. */
static void waiting(struct rb_rounds *m)
{
	if (!rb_rounds_is_free(m))
		m->willing = gave_early(m);
	else if (m->pending.count > 0)
		m->pending.fresh = true;
	else
		m->willing = m->era.begun;
}

/* ---- What it collects ---- */

/* Between a drain and the moment when this rank is told that all have drained. */
static bool is_flushing(const struct rb_rounds *m)
{
	return (m->era.flags & RB_ROUNDS_DRAINING) != 0 || m->results.limit != RB_ROUNDS_NEVER;
}

/* The next one's slot, if it is here. */
static uint32_t next_find(const struct rb_rounds *m)
{
	uint64_t end = m->results.limit < m->round ? m->results.limit : m->round;
	uint32_t found = RB_ROUNDS_NO_SLOT, newest = m->results.newest;

	if (m->results.next >= end || (takes_own(m) && !m->results.own_due && !is_flushing(m)))
		return RB_ROUNDS_NO_SLOT;
	/* As it mostly is: no other one is as new, or in between. */
	if (newest != RB_ROUNDS_NO_SLOT && m->results.kept[newest] == m->results.next)
		return newest;
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

static void collect(struct rb_rounds *m, bool looks)
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

static void release(struct rb_rounds *m)
{
	RB_ASSERT(m->results.lent != RB_ROUNDS_NO_SLOT);
	m->results.lent = RB_ROUNDS_NO_SLOT;
	if (rb_rounds_is_free(m))
		catch_up(m);
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

static void part(struct rb_rounds *m)
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

/* ---- Events ---- */

static bool reads(enum rb_rounds_call call)
{
	return call == RB_ROUNDS_COLLECT || call == RB_ROUNDS_LOOK || call == RB_ROUNDS_RELEASE;
}

static void read_call(struct rb_rounds *m, enum rb_rounds_call call)
{
	m->awaited = false;
	if (call == RB_ROUNDS_RELEASE) {
		release(m);
		return;
	}
	collect(m, call == RB_ROUNDS_LOOK);
	m->awaited = call == RB_ROUNDS_COLLECT && m->results.offer == RB_ROUNDS_WAIT;
}

bool rb_rounds_read_apart(struct rb_rounds *m, enum rb_rounds_call call)
{
	/* What is collected makes room for who has not joined. */
	if (!reads(call) || rb_rounds_is_over(m) || !(m->is_joined || rb_rounds_is_idle(m)))
		return false;
	read_call(m, call);
	return true;
}

static void call(struct rb_rounds *m, const struct rb_protocol_event *event)
{
	struct rb_rounds_commit contribution;

	m->awaited = m->awaited && event->value == RB_ROUNDS_MERGED;
	switch ((enum rb_rounds_call)event->value) {
	case RB_ROUNDS_COMMIT:
		memcpy(&contribution, event->message, sizeof(contribution));
		commit(m, &contribution);
		break;
	case RB_ROUNDS_MERGED:
		RB_ASSERT(m->merging > 0);
		m->merging--;
		break;
	case RB_ROUNDS_COLLECT:
	case RB_ROUNDS_LOOK:
	case RB_ROUNDS_RELEASE:
		read_call(m, (enum rb_rounds_call)event->value);
		break;
	case RB_ROUNDS_DRAIN:
		m->era.flags |= RB_ROUNDS_DRAINING;
		break;
	case RB_ROUNDS_LEAVE:
		m->era.flags |= RB_ROUNDS_LEFT;
		break;
	case RB_ROUNDS_WAITING:
		waiting(m);
		break;
	case RB_ROUNDS_PART:
		part(m);
		break;
	}
}

static void message(struct rb_rounds *m, const struct rb_protocol_event *event,
		    struct rb_protocol_actions *out)
{
	struct rb_rounds_message message;

	/* Most are this: its record is copied once, to where it stays. */
	memcpy(&message, event->message, RB_ROUNDS_MESSAGE_HEAD);
	if (message.kind != RB_ROUNDS_MESSAGE_MEET)
		memcpy(&message, event->message, sizeof(message));
	RB_ASSERT(event->peer < m->config.rank_count && event->peer != m->config.rank);
	RB_ASSERT(message.kind >= RB_ROUNDS_MESSAGE_ACTIVATE &&
		  message.kind <= RB_ROUNDS_MESSAGE_MEET);
	if (message.kind == RB_ROUNDS_MESSAGE_STATE || message.kind == RB_ROUNDS_MESSAGE_FETCH)
		rb_rounds_recovery_message(m, event->peer, &message, out);
	else if (rb_rounds_is_over(m))
		return;
	else if (message.kind == RB_ROUNDS_MESSAGE_MEET)
		rb_rounds_meeting_message(m, event->peer, &message,
					  event->message + RB_ROUNDS_MESSAGE_HEAD);
	else
		rb_rounds_flood_message(m, &message, out);
}

void rb_rounds_step(struct rb_rounds *m, const struct rb_protocol_event *event,
		    struct rb_protocol_actions *out)
{
	switch (event->kind) {
	case RB_PROTOCOL_START:
		if (rb_rounds_read_apart(m, (enum rb_rounds_call)event->value))
			return;
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
		rb_rounds_lose(m, event->peer, out);
		break;
	}
	advance(m, event->now_ns, out);
	if (rb_rounds_is_over(m))
		rb_rounds_recovery_advance(m, out);
}

bool rb_rounds_valid(const struct rb_rounds *m)
{
	const struct rb_rounds_activation *now = &m->opening.activations[m->round & 1];
	const struct rb_rounds_activation *next = &m->opening.activations[(m->round + 1) & 1];
	bool running = m->phase == RB_ROUNDS_EXCHANGING || m->phase == RB_ROUNDS_REDUCING;
	bool conserved = m->counts.committed == m->counts.delivered + m->counts.discarded +
							m->pending.count + m->joined.count;
	uint32_t members = rb_rounds_member_count(&m->config);
	bool counted = m->opening.need <= m->opening.live && m->opening.live <= members &&
		       now->ready <= members;
	bool early = next->active || next->ready > 0; /* Of the next round. */
	bool meets = rb_rounds_meets(&m->config);

	return conserved && counted && RB_IMPLIES(running, m->is_joined) &&
	       (meets ? rb_rounds_meeting_valid(m)
		      : RB_IMPLIES(m->phase <= RB_ROUNDS_JOINING, !m->is_joined && !early) &&
				RB_IMPLIES(m->phase == RB_ROUNDS_JOINING, now->active)) &&
	       RB_IMPLIES(!m->is_joined, m->joined.count == 0) &&
	       RB_IMPLIES(rb_rounds_is_over(m), m->recovery.dead_count > 0) &&
	       RB_IMPLIES(m->phase == RB_ROUNDS_FETCHING,
			  !m->recovery.peers[m->recovery.fetch_from].dead) &&
	       RB_IMPLIES(m->pending.fresh, m->pending.count > 0) &&
	       RB_IMPLIES(m->results.out != RB_ROUNDS_NO_SLOT,
			  m->results.out != m->results.lent && m->results.out != m->results.newest);
}

/* ---- Reading ---- */

struct rb_rounds_view rb_rounds_view_of(const struct rb_rounds *m)
{
	bool drained = m->results.limit != RB_ROUNDS_NEVER; /* But not told. */

	return (struct rb_rounds_view) {
		.phase = m->phase,
		.verdict = m->verdict,
		.offer = m->results.offer,
		.round = m->round,
		.next = m->results.next,
		.last_step = m->counts.last_step,
		.committed = m->counts.committed,
		.delivered = m->counts.delivered,
		.discarded = m->counts.discarded,
		.pending = m->pending.count,
		.joined = m->joined.count,
		.merged = m->counts.merged,
		.full_rounds = m->counts.full_rounds,
		.need = m->opening.need,
		.live = m->opening.live,
		.full = m->opening.full,
		.ready = m->pending.fresh || m->joined.fresh ||
			 (m->era.flags & RB_ROUNDS_DRAINING) != 0,
		.draining = (m->era.flags & RB_ROUNDS_DRAINING) != 0 || drained,
		.left = (m->era.flags & RB_ROUNDS_LEFT) != 0,
		.parted = m->era.parted,
		.out = m->results.out,
		.newest = m->results.newest,
		.lent = m->results.lent,
	};
}

struct rb_rounds_answer rb_rounds_answer_of(const struct rb_rounds *m)
{
	return (struct rb_rounds_answer) { .verdict = m->verdict,
					   .offer = m->results.offer,
					   .newest = m->results.newest,
					   .lent = m->results.lent };
}

enum rb_rounds_phase rb_rounds_phase_of(const struct rb_rounds *m)
{
	return m->phase;
}

const char *rb_rounds_phase_name(enum rb_rounds_phase phase)
{
	static const char *const names[RB_ROUNDS_PHASES] = {
		[RB_ROUNDS_OPEN] = "open",
		[RB_ROUNDS_JOINING] = "joining",
		[RB_ROUNDS_EXCHANGING] = "exchanging",
		[RB_ROUNDS_REDUCING] = "reducing",
		[RB_ROUNDS_RECOVERING] = "recovering",
		[RB_ROUNDS_FETCHING] = "fetching",
		[RB_ROUNDS_OVER] = "over",
	};

	return names[phase];
}

const struct rb_rounds_record *rb_rounds_own_record(const struct rb_rounds *m)
{
	return &m->exchange.own;
}

struct rb_rounds_record *rb_rounds_records(struct rb_rounds *m, uint64_t round)
{
	return m->exchange.records[round & 1];
}

double rb_rounds_divisor(struct rb_rounds *m)
{
	if (!m->config.average)
		return 1;
	rb_rounds_summarise(m);
	return m->exchange.summaries[m->round & 1].divisor;
}

const rubato_round *rb_rounds_summary(const struct rb_rounds *m, uint64_t round)
{
	return &m->exchange.summaries[round & 1];
}

rubato_contribution rb_rounds_pending(const struct rb_rounds *m)
{
	const struct rb_rounds_load *load = &m->pending;

	return (rubato_contribution) { .first_step = load->first_step,
				       .last_step = load->last_step,
				       .weight = load->weight,
				       .count = load->count,
				       .member = load->count > 0 };
}

bool rb_rounds_is_idle(const struct rb_rounds *m)
{
	return m->phase == RB_ROUNDS_OPEN && !m->is_joined && m->pending.count == 0 &&
	       !rb_rounds_is_passive(m);
}

bool rb_rounds_learns(const struct rb_rounds_config *config)
{
	return rb_rounds_policy_of(config)->learns;
}

bool rb_rounds_wants(const struct rb_rounds *m, bool *unread)
{
	bool late = m->ranks.passive[m->config.rank] == 0 && !rb_rounds_is_passive(m) &&
		    !m->pending.fresh && !m->is_joined;

	*unread = m->phase == RB_ROUNDS_JOINING && slot_find(m) == RB_ROUNDS_NO_SLOT;
	if (*unread)
		return true;
	return m->phase == RB_ROUNDS_OPEN && (rb_rounds_is_free(m) || gave_early(m)) && late &&
	       (rb_rounds_overdue(m) ||
		m->opening.initiator == rb_rounds_member_of(&m->config, m->config.rank));
}
