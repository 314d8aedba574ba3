/*
 * rounds_nodes.c -- where nodes are counted: what the ranks of one agree on before they join.
 *
 * A round takes in what all live ranks of a node have, or nothing of that node. Two ranks that
 * looked for themselves whether the others have something would see different things, so the node's
 * first rank decides, when it joins, and tells. Its ranks stand in a binomial tree by their places:
 * place p is below p & (p - 1). Up the tree goes what is whole below: all live ranks there have
 * something, all of them are ready. Down goes the word to join, with or without. So an edge carries
 * at most four messages a round, and among nodes the first ranks do what ranks do elsewhere.
 *
 * A rank that waits in another operation is willing, here as there: a node whose ranks are ready or
 * willing takes part.
 */
#include "collectives/partial/rounds_inside.h"

/* ---- Who is where ---- */

uint32_t rb_rounds_member_count(const struct rb_rounds_config *config)
{
	return config->nodes != NULL ? config->nodes->count : config->rank_count;
}

uint32_t rb_rounds_member_live(const struct rb_rounds *m, uint32_t member)
{
	const struct rb_nodes *nodes = m->config.nodes;
	uint32_t live = 0;

	if (nodes == NULL)
		return m->ranks.passive[member] == 0;
	for (uint32_t i = 0; i < rb_node_size(nodes, member); i++)
		live += m->ranks.passive[rb_node_rank(nodes, member, i)] == 0;
	return live;
}

uint32_t rb_rounds_absent(const struct rb_rounds *m, uint32_t member)
{
	const struct rb_nodes *nodes = m->config.nodes;
	uint32_t size = nodes != NULL ? rb_node_size(nodes, member) : 1, least = UINT32_MAX;

	for (uint32_t i = 0; i < size; i++) {
		uint32_t r = nodes != NULL ? rb_node_rank(nodes, member, i) : member;

		if (m->ranks.passive[r] == 0 && m->ranks.absent[r] < least)
			least = m->ranks.absent[r];
	}
	return least == UINT32_MAX ? 0 : least;
}

/* How many places stand below `place`, itself included: up to the next one that has its lowest bit,
 * or a higher one. */
static uint32_t reach(uint32_t place, uint32_t size)
{
	uint32_t room = place > 0 ? place & (~place + 1u) : size;

	return room < size - place ? room : size - place;
}

static uint32_t place_of(const struct rb_rounds *m)
{
	return m->config.nodes->place_of[m->config.rank];
}

static uint32_t size_of(const struct rb_rounds *m)
{
	return rb_node_size(m->config.nodes, m->config.nodes->node_of[m->config.rank]);
}

static uint32_t rank_at(const struct rb_rounds *m, uint32_t place)
{
	return rb_node_rank(m->config.nodes, m->config.nodes->node_of[m->config.rank], place);
}

static uint32_t live_below(const struct rb_rounds *m)
{
	uint32_t place, live = 0;

	if (m->config.nodes == NULL)
		return m->ranks.passive[m->config.rank] == 0;
	place = place_of(m);
	for (uint32_t i = 0; i < reach(place, size_of(m)); i++)
		live += m->ranks.passive[rank_at(m, place + i)] == 0;
	return live;
}

static bool is_power(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

bool rb_rounds_neighbour(const struct rb_rounds_config *config, uint32_t peer)
{
	const struct rb_nodes *nodes = config->nodes;
	uint32_t n = rb_rounds_member_count(config),
		 own = rb_rounds_member_of(config, config->rank);
	uint32_t right = (rb_rounds_member_of(config, peer) + n - own) % n, mine, theirs;

	if (rb_rounds_meets(config))
		return peer != config->rank;
	if (nodes == NULL)
		return is_power(right) || (right != 0 && is_power(n - right));
	mine = nodes->place_of[config->rank];
	theirs = nodes->place_of[peer];
	if (right != 0)
		return mine == 0 && theirs == 0 && (is_power(right) || is_power(n - right));
	return mine != theirs && ((mine & (mine - 1)) == theirs || (theirs & (theirs - 1)) == mine);
}

/* ---- Up ---- */

/* What is whole below this rank, and its parent has not heard of. */
static void tell(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = rb_rounds_activation_of(m, m->round);
	struct rb_rounds_below *below = &activation->below;
	uint32_t live = live_below(m), place = place_of(m);
	bool ready = below->ready == live, bring = below->bring == live;
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_NODE,
					     .value = ready && !below->ready_told ? live : 0,
					     .round = m->round,
					     .wanted = ready && below->wanted,
					     .bring = bring && !below->bring_told ? live : 0 };
	bool grown = message.value > 0 || message.bring > 0 ||
		     (message.wanted != 0 && !below->wanted_told);

	if (activation->active || live == 0 || !grown)
		return;
	below->ready_told = below->ready_told || ready;
	below->bring_told = below->bring_told || bring;
	below->wanted_told = message.wanted != 0;
	rb_rounds_act_send(out, RB_PROTOCOL_SEND, rank_at(m, place & (place - 1)), &message);
}

void rb_rounds_node_note(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	struct rb_rounds_below *below = &rb_rounds_activation_of(m, m->round)->below;
	bool ready = rb_rounds_is_ready(m), live = m->ranks.passive[m->config.rank] == 0;

	if (!m->opening.own_ready && (ready || rb_rounds_is_willing(m))) {
		m->opening.own_ready = true;
		below->ready++;
	}
	if (!m->opening.own_bring && live && (ready || m->pending.count > 0)) {
		m->opening.own_bring = true;
		below->bring++;
	}
	below->wanted = below->wanted || ready;
	if (!rb_rounds_is_head(m))
		tell(m, out);
}

bool rb_rounds_node_counts(const struct rb_rounds *m)
{
	uint32_t live = live_below(m);

	return live > 0 && m->opening.activations[m->round & 1].below.ready == live;
}

bool rb_rounds_node_ready(const struct rb_rounds *m)
{
	return rb_rounds_node_counts(m) && m->opening.activations[m->round & 1].below.wanted;
}

bool rb_rounds_node_full(const struct rb_rounds *m)
{
	return m->opening.activations[m->round & 1].below.bring == live_below(m);
}

/* ---- Down ---- */

void rb_rounds_node_join(struct rb_rounds *m, uint64_t round, bool whole,
			 struct rb_protocol_actions *out)
{
	struct rb_rounds_activation *activation = rb_rounds_activation_of(m, round);
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_JOIN,
					     .value = whole,
					     .round = round };
	uint32_t place, below, distance = 1;

	activation->active = true;
	activation->whole = whole;
	if (m->config.nodes == NULL)
		return;
	place = place_of(m);
	below = reach(place, size_of(m));
	while (distance < below)
		distance *= 2;
	for (; distance > 0; distance /= 2) /* The farthest first: it has most to pass on. */
		if (distance < below)
			rb_rounds_act_send(out, RB_PROTOCOL_SEND, rank_at(m, place + distance),
					   &message);
}

void rb_rounds_node_message(struct rb_rounds *m, const struct rb_rounds_message *message,
			    struct rb_protocol_actions *out)
{
	struct rb_rounds_below *below = &rb_rounds_activation_of(m, message->round)->below;

	if (message->kind == RB_ROUNDS_MESSAGE_JOIN) {
		rb_rounds_node_join(m, message->round, message->value != 0, out);
		return;
	}
	below->ready += message->value;
	below->bring += message->bring;
	below->wanted = below->wanted || message->wanted != 0;
}
