/* straggler.c -- see straggler.h. */
#include "collectives/straggler.h"

#include <string.h>

static struct rb_straggler_instance *instance_at(struct rb_straggler *m, uint64_t number)
{
	return &m->instances[number % 2];
}

static bool is_judge(const struct rb_straggler *m)
{
	return m->rank < RB_STRAGGLER_JUDGES;
}

void rb_straggler_init(struct rb_straggler *m, uint32_t rank, uint32_t rank_count, uint8_t *memory)
{
	RB_ASSERT(rank < rank_count && rank_count >= RB_STRAGGLER_RANKS_MIN);
	*m = (struct rb_straggler) { .rank = rank, .rank_count = rank_count };
	for (uint32_t i = 0; i < 2 && is_judge(m); i++)
		m->instances[i].has_arrived = memory + (size_t)i * rank_count;
}

static void instance_clear(struct rb_straggler *m, uint64_t number)
{
	struct rb_straggler_instance *in = instance_at(m, number);

	memset(in->votes, 0, sizeof(in->votes));
	in->arrived = 0;
	if (is_judge(m))
		memset(in->has_arrived, 0, m->rank_count);
}

static void over_say(const struct rb_straggler *m, struct rb_protocol_actions *out)
{
	struct rb_protocol_action *action = rb_protocol_action_add(out, RB_PROTOCOL_DONE);

	action->status = m->over;
	action->value = m->culprit;
}

static void end(struct rb_straggler *m, struct rb_protocol_actions *out, rubato_status status,
		uint32_t rank)
{
	m->over = status;
	m->culprit = rank;
	if (m->begun > 0 && !m->decided)
		over_say(m, out);
}

static void message_write(struct rb_protocol_action *action, enum rb_straggler_message_kind kind,
			  uint64_t instance, uint32_t rank)
{
	struct rb_straggler_message message = { .kind = kind, .rank = rank, .instance = instance };

	memcpy(action->message, &message, sizeof(message));
}

/* The instance that was begun last, once it can be decided. */
static void decide(struct rb_straggler *m, struct rb_protocol_actions *out)
{
	const struct rb_straggler_vote *v = instance_at(m, m->begun)->votes;
	uint32_t named;

	if (m->begun == 0 || m->decided)
		return;
	if (v[1].cast && v[2].cast && v[1].rank == v[2].rank)
		named = v[1].rank;
	else if (v[0].cast && ((v[1].cast && v[1].rank == v[0].rank) ||
			       (v[2].cast && v[2].rank == v[0].rank) || (v[1].cast && v[2].cast)))
		named = v[0].rank;
	else
		return;
	m->decided = true;
	rb_protocol_action_add(out, RB_PROTOCOL_RUN)->value = named;
}

static uint32_t first_absent(const struct rb_straggler *m, const struct rb_straggler_instance *in,
			     uint32_t from)
{
	while (from < m->rank_count && in->has_arrived[from])
		from++;
	return from;
}

/* At a judge. */
static void arrived(struct rb_straggler *m, uint64_t number, uint32_t rank,
		    struct rb_protocol_actions *out)
{
	struct rb_straggler_instance *in = instance_at(m, number);

	in->has_arrived[rank] = 1;
	if (++in->arrived != m->rank_count - 1)
		return;
	struct rb_straggler_vote vote = { true, first_absent(m, in, 0) };

	in->votes[m->rank] = vote;
	message_write(rb_protocol_action_add(out, RB_PROTOCOL_SEND_ALL), RB_STRAGGLER_VOTE, number,
		      vote.rank);
}

static void begin(struct rb_straggler *m, struct rb_protocol_actions *out)
{
	instance_clear(m, m->begun + 2); /* Where the last one was. */
	m->begun++;
	m->decided = false;
	for (uint32_t judge = 0; judge < RB_STRAGGLER_JUDGES; judge++) {
		if (judge == m->rank)
			continue;
		struct rb_protocol_action *action = rb_protocol_action_add(out, RB_PROTOCOL_SEND);

		action->peer = judge;
		message_write(action, RB_STRAGGLER_ARRIVED, m->begun, 0);
	}
	if (is_judge(m))
		arrived(m, m->begun, m->rank, out);
	decide(m, out);
}

/* Whether it can have been sent, by a peer that does as we do. */
static bool is_sound(const struct rb_straggler *m, uint32_t peer,
		     const struct rb_straggler_message *message)
{
	const struct rb_straggler_instance *in = &m->instances[message->instance % 2];

	if (peer == m->rank || peer >= m->rank_count || message->instance == 0 ||
	    message->instance > m->begun + 1)
		return false;
	if (message->kind == RB_STRAGGLER_VOTE)
		return peer < RB_STRAGGLER_JUDGES && message->rank < m->rank_count &&
		       (message->instance < m->begun || !in->votes[peer].cast);
	return message->kind == RB_STRAGGLER_ARRIVED && is_judge(m) &&
	       (message->instance < m->begun || !in->has_arrived[peer]);
}

static void message_take(struct rb_straggler *m, const struct rb_protocol_event *event,
			 struct rb_protocol_actions *out)
{
	struct rb_straggler_message message;

	memcpy(&message, event->message, sizeof(message));
	if (!is_sound(m, event->peer, &message)) {
		end(m, out, RUBATO_ERR_INTERNAL, event->peer);
		return;
	}
	if (message.instance < m->begun)
		return;
	if (message.kind == RB_STRAGGLER_ARRIVED)
		arrived(m, message.instance, event->peer, out);
	else
		instance_at(m, message.instance)->votes[event->peer] =
			(struct rb_straggler_vote) { true, message.rank };
	decide(m, out);
}

void rb_straggler_step(struct rb_straggler *m, const struct rb_protocol_event *event,
		       struct rb_protocol_actions *out)
{
	out->count = 0;
	if (m->over != RUBATO_OK) {
		if (event->kind == RB_PROTOCOL_START)
			over_say(m, out);
		return;
	}
	if (event->kind == RB_PROTOCOL_START)
		begin(m, out);
	else if (event->kind == RB_PROTOCOL_MESSAGE)
		message_take(m, event, out);
	else if (event->kind == RB_PROTOCOL_PEER_LOST)
		end(m, out, RUBATO_ERR_PEER, event->peer);
}

uint32_t rb_straggler_absent(const struct rb_straggler *m, uint32_t from)
{
	return is_judge(m) ? first_absent(m, &m->instances[m->begun % 2], from)
			   : RB_STRAGGLER_UNKNOWN;
}
