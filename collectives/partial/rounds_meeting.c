/*
 * rounds_meeting.c -- a few ranks meet once a round. Each tells all others what it has to say of
 * it, its record as soon as it joins; so all know what each has said, and find for themselves
 * whether the round is open, and that all have joined it. There is no count up a tree, no flood and
 * no exchange: a round whose ranks are all ready takes one message from each to each.
 *
 * Who is ready joins at once, though the round is not open yet. In aligned rounds what its
 * application commits later is for later rounds; in free ones it would be for this one, so there it
 * joins when its application waits for the round, says until then only that it is ready, and joins
 * in any case once it is open.
 *
 * What a rank has said never grows less within a round, and all hear all of it: so a round that is
 * open on one rank is open on all when what is on its way has come. A deadline is the one thing
 * that others cannot see: who finds it over says so.
 *
 * A rank tells of round r + 1 when it has completed r, hence when all have joined r: what is kept
 * is of the current round and the next.
 */
#include <string.h>

#include "collectives/partial/rounds_inside.h"

static uint32_t own_bit(const struct rb_rounds *m)
{
	return UINT32_C(1) << m->config.rank;
}

static uint32_t all_bits(const struct rb_rounds *m)
{
	return UINT32_MAX >> (RB_ROUNDS_MOST - m->config.rank_count);
}

/* ---- What is said ---- */

static void tell(struct rb_rounds *m, uint32_t bits, struct rb_protocol_actions *out)
{
	const struct rb_rounds_message head = { .kind = RB_ROUNDS_MESSAGE_MEET,
						.value = bits,
						.round = m->round };
	uint8_t *message;

	rb_rounds_meeting_of(m, m->round)->told |= bits;
	if (m->config.rank_count == 1)
		return;
	message = rb_protocol_action_add(out, RB_PROTOCOL_SEND_ALL)->message;
	memcpy(message, &head, RB_ROUNDS_MESSAGE_HEAD);
	message += RB_ROUNDS_MESSAGE_HEAD;
	if ((bits & RB_ROUNDS_JOINS) != 0)
		memcpy(message, &m->exchange.own, sizeof(m->exchange.own));
	else
		memset(message, 0, sizeof(m->exchange.own));
}

static void count(struct rb_rounds_meeting *meeting, uint32_t bit)
{
	meeting->ready += (meeting->counted & bit) == 0;
	meeting->counted |= bit;
}

void rb_rounds_meeting_message(struct rb_rounds *m, uint32_t from,
			       const struct rb_rounds_message *message, const void *record)
{
	struct rb_rounds_meeting *meeting = rb_rounds_meeting_of(m, message->round);
	uint32_t bit = UINT32_C(1) << from;

	if (message->round < m->round)
		return; /* Completed here: it was open. */
	RB_ASSERT(message->round == m->round || (message->round == m->round + 1 && m->is_joined));
	if ((message->value & RB_ROUNDS_COUNTS) != 0)
		count(meeting, bit);
	meeting->wanted |= (message->value & RB_ROUNDS_WANTS) != 0 ? bit : 0;
	meeting->called = meeting->called || (message->value & RB_ROUNDS_OPENS) != 0;
	if ((message->value & RB_ROUNDS_JOINS) == 0)
		return;
	RB_ASSERT((meeting->here & bit) == 0);
	meeting->here |= bit;
	memcpy(&rb_rounds_records(m, message->round)[from], record,
	       sizeof(struct rb_rounds_record));
}

/* ---- Whether it is open ---- */

static bool is_open(const struct rb_rounds *m)
{
	const struct rb_rounds_meeting *meeting = &m->opening.meetings[m->round & 1];

	if (meeting->called)
		return true;
	if (meeting->wanted == 0)
		return false;
	if (m->opening.counts)
		return m->opening.need > 0 && meeting->ready >= m->opening.need;
	return m->opening.initiator == RB_ROUNDS_NOBODY ||
	       (meeting->wanted >> m->opening.initiator & 1) != 0;
}

/* What this rank has for the round. If it has joined it before it was open, that has been said. */
static void note(struct rb_rounds *m)
{
	struct rb_rounds_meeting *meeting = rb_rounds_meeting_of(m, m->round);
	bool ready = rb_rounds_is_ready(m);

	if (ready || rb_rounds_is_willing(m))
		count(meeting, own_bit(m));
	if (ready)
		meeting->wanted |= own_bit(m);
}

/* The deadline of this rank, which has something for the round. */
static void watch(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	struct rb_rounds_meeting *meeting = rb_rounds_meeting_of(m, m->round);

	if (m->opening.full || (meeting->wanted & own_bit(m)) == 0 || is_open(m))
		return;
	if (m->opening.opens_ns == RB_ROUNDS_NEVER) {
		m->opening.opens_ns = now_ns + m->config.options.deadline_ns;
		rb_rounds_act_wake(out, m->opening.opens_ns);
	}
	if (now_ns < m->opening.opens_ns)
		return;
	meeting->called = true;
	tell(m, RB_ROUNDS_OPENS, out);
}

/* ---- One round ---- */

static uint32_t own_words(const struct rb_rounds *m)
{
	const struct rb_rounds_meeting *meeting = &m->opening.meetings[m->round & 1];

	return ((meeting->counted & own_bit(m)) != 0 ? RB_ROUNDS_COUNTS : 0) |
	       ((meeting->wanted & own_bit(m)) != 0 ? RB_ROUNDS_WANTS : 0);
}

/* Whether it waits for nothing that this rank's application may still commit. */
static bool brings(const struct rb_rounds *m)
{
	return m->ranks.passive[m->config.rank] != 0 || rb_rounds_is_ready(m) ||
	       m->pending.count > 0;
}

static bool may_join(const struct rb_rounds *m, uint64_t now_ns)
{
	if (m->is_joined || m->phase > RB_ROUNDS_JOINING)
		return false;
	if (m->phase == RB_ROUNDS_JOINING ? !brings(m) && now_ns < m->opening.joins_ns
					  : !rb_rounds_is_ready(m))
		return false;
	if (m->phase == RB_ROUNDS_OPEN && !m->awaited && rb_rounds_is_free(m))
		return false;
	return rb_rounds_has_room(m);
}

static void join(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	rb_rounds_join(m, true, RB_ROUNDS_JOIN, out);
	rb_rounds_meeting_of(m, m->round)->here |= own_bit(m);
	rb_rounds_records(m, m->round)[m->config.rank] = m->exchange.own;
	tell(m, own_words(m) | RB_ROUNDS_JOINS, out);
}

/* Whether it has just been found to be open. */
static bool opened(struct rb_rounds *m, uint64_t now_ns, struct rb_protocol_actions *out)
{
	if (m->phase != RB_ROUNDS_OPEN)
		return false;
	if (!m->is_joined)
		note(m);
	if (rb_rounds_policy_of(&m->config)->timed)
		watch(m, now_ns, out);
	if (!is_open(m))
		return false;
	m->phase = m->is_joined ? RB_ROUNDS_EXCHANGING : RB_ROUNDS_JOINING;
	m->opening.joins_ns = now_ns + m->config.options.window_ns;
	return true;
}

/* What this rank, which does not join yet, has to say of the round: nothing where `others` open
 * it. */
static void stay(struct rb_rounds *m, bool opens, bool others, uint64_t now_ns,
		 struct rb_protocol_actions *out)
{
	const struct rb_rounds_meeting *meeting = rb_rounds_meeting_of(m, m->round);
	bool concerns = opens || m->opening.counts;

	if (concerns && !others && (own_words(m) & ~meeting->told) != 0)
		tell(m, own_words(m), out);
	if (opens && now_ns < m->opening.joins_ns)
		rb_rounds_act_wake(out, m->opening.joins_ns);
}

/* Nobody has said anything of the open round, nor has this rank anything to say: as it mostly is
 * when one is over. */
static bool is_silent(const struct rb_rounds *m)
{
	const struct rb_rounds_meeting *meeting = &m->opening.meetings[m->round & 1];

	return (meeting->counted | meeting->wanted) == 0 && !meeting->called && !m->willing &&
	       rb_rounds_is_idle(m);
}

void rb_rounds_meeting_advance(struct rb_rounds *m, uint64_t now_ns,
			       struct rb_protocol_actions *out)
{
	const struct rb_rounds_meeting *meeting = rb_rounds_meeting_of(m, m->round);
	bool others, opens;

	if (m->phase > RB_ROUNDS_EXCHANGING || is_silent(m))
		return;
	others = !m->is_joined && is_open(m); /* They have said so, to all. */
	opens = opened(m, now_ns, out);
	if (may_join(m, now_ns)) {
		join(m, out);
		if (m->phase == RB_ROUNDS_JOINING)
			m->phase = RB_ROUNDS_EXCHANGING;
	} else if (m->phase <= RB_ROUNDS_JOINING && !m->is_joined) {
		stay(m, opens, others, now_ns, out);
	}
	if (m->phase == RB_ROUNDS_EXCHANGING && meeting->here == all_bits(m))
		rb_rounds_exchanged(m, out);
}

bool rb_rounds_awaits(const struct rb_rounds *m, uint32_t rank)
{
	const struct rb_rounds_meeting *meeting = &m->opening.meetings[m->round & 1];

	if (!rb_rounds_meets(&m->config) || rank == m->config.rank)
		return false;
	if (m->phase == RB_ROUNDS_EXCHANGING)
		return (meeting->here >> rank & 1) == 0;
	if (m->phase != RB_ROUNDS_OPEN || m->ranks.passive[rank] != 0)
		return false;
	return m->opening.counts ? (meeting->counted >> rank & 1) == 0
				 : rank == m->opening.initiator;
}

bool rb_rounds_meeting_valid(const struct rb_rounds *m)
{
	const struct rb_rounds_meeting *now = &m->opening.meetings[m->round & 1];
	const struct rb_rounds_meeting *next = &m->opening.meetings[(m->round + 1) & 1];
	bool early = (next->counted | next->wanted | next->here) != 0 || next->called;

	return now->ready == (uint32_t)__builtin_popcount(now->counted) &&
	       RB_IMPLIES(m->phase == RB_ROUNDS_JOINING, !m->is_joined) &&
	       RB_IMPLIES(m->phase == RB_ROUNDS_OPEN, !is_open(m)) &&
	       RB_IMPLIES(m->phase == RB_ROUNDS_JOINING || m->phase == RB_ROUNDS_EXCHANGING,
			  is_open(m)) &&
	       RB_IMPLIES(m->phase == RB_ROUNDS_REDUCING, now->here == all_bits(m)) &&
	       RB_IMPLIES(!rb_rounds_is_over(m), m->is_joined == ((now->here & own_bit(m)) != 0)) &&
	       RB_IMPLIES(early, m->is_joined || rb_rounds_is_over(m));
}
