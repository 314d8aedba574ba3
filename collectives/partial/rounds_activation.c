/*
 * rounds_activation.c -- how all ranks learn that a round is open, and how ready ranks are
 * counted.
 *
 * The flood. Who opens a round owes it to the ranks at distances 2^0 .. 2^(L-1), L = ceil(log2 P);
 * who hears of it over distance 2^j owes it to those at 2^0 .. 2^(j-1). Every offset is a sum of
 * distinct powers of two, taken in falling order, so all are reached within L hops. A message over
 * an edge always carries the same debt, so one a round is enough, however many openers there are.
 *
 * The count. Relative to root = round mod P, rank rel's parent is rel & (rel - 1): a binomial tree
 * whose edges are powers of two, too. A rank passes on by how much its count grew, and whether one
 * of those has something for the round: others, who are only willing since they wait in another
 * operation, open none. Where all live ranks are needed anyway it waits for those below it. A round
 * that is active needs no count.
 */
#include "collectives/partial/rounds_inside.h"

static struct rb_rounds_activation *activation_of(struct rb_rounds *m, uint64_t round)
{
	return &m->opening.activations[round & 1];
}

static void owe(struct rb_rounds *m, uint64_t round, uint32_t levels,
		struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = activation_of(m, round);

	activation->active = true;
	for (uint32_t i = levels; i-- > 0;) { /* The farthest first: it has most to pass on. */
		struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_ACTIVATE,
						     .value = i,
						     .round = round };

		if (activation->sent & (1u << i))
			continue;
		activation->sent |= 1u << i;
		rb_rounds_act_send(out, RB_PROTOCOL_SEND, rb_rounds_right(m, 1u << i), &message);
	}
}

bool rb_rounds_counting(const struct rb_rounds *m)
{
	rubato_policy policy = m->config.options.policy;

	return m->opening.full || policy == RUBATO_POLICY_QUORUM ||
	       policy == RUBATO_POLICY_ADAPTIVE || policy == RUBATO_POLICY_DEADLINE;
}

static uint32_t below_root(const struct rb_rounds *m, uint32_t rank)
{
	uint32_t n = m->config.rank_count;

	return (rank + n - (uint32_t)(m->round % n)) % n;
}

/* Live ranks in this rank's subtree: rel .. rel + lowest bit of rel - 1. */
static uint32_t subtree_live(const struct rb_rounds *m)
{
	uint32_t rel = below_root(m, m->config.rank), n = m->config.rank_count, live = 0;
	uint32_t size = rel & (~rel + 1u);

	for (uint32_t i = 0; i < size && rel + i < n; i++)
		live += m->ranks.passive[rb_rounds_right(m, i)] == 0;
	return live;
}

void rb_rounds_count_forward(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = activation_of(m, m->round);
	uint32_t rel = below_root(m, m->config.rank);
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_READY,
					     .value = activation->ready - activation->forwarded,
					     .round = m->round,
					     .wanted = activation->wanted };
	bool grown = message.value > 0 || activation->wanted != activation->wanted_forwarded;

	if (!rb_rounds_counting(m) || activation->active || rel == 0 || !grown)
		return;
	if (m->opening.need == m->opening.live && activation->ready < subtree_live(m))
		return;
	activation->forwarded = activation->ready;
	activation->wanted_forwarded = activation->wanted;
	rb_rounds_act_send(out, RB_PROTOCOL_SEND,
			   rb_rounds_right(m, m->config.rank_count - (rel & (~rel + 1u))),
			   &message);
}

void rb_rounds_activate(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	owe(m, m->round, m->opening.levels, out);
}

void rb_rounds_flood_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			     struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = activation_of(m, message->round);

	if (message->round < m->round)
		return; /* Completed here: everybody joined it. */
	RB_ASSERT(message->round == m->round || (message->round == m->round + 1 && m->is_joined));
	if (message->kind == RB_ROUNDS_MESSAGE_ACTIVATE) {
		owe(m, message->round, message->value, out);
		return;
	}
	activation->ready += message->value;
	activation->wanted = activation->wanted || message->wanted != 0;
}
