/*
 * rounds_recovery.c -- which round was the last, when ranks have died.
 *
 * A rank that learns of a loss runs no more rounds: the number it has completed is frozen. It tells
 * all survivors whom it knows to be dead and that number, and again whenever either changes. Two
 * ranks' numbers differ by one at most: nobody completes a round that not all have joined, and to
 * join one is to have completed those before. So a rank that is behind fetches one result, from the
 * lowest rank that has it; its own part in that round was joined, and is in the result.
 *
 * Under wagma that holds within each group: the others' results are none of its own, and what a
 * group has completed nowhere is given back to its ranks.
 *
 * It is over for a rank when every survivor has told the same dead and none is behind. From then on
 * no number changes: only a rank that is behind would change it, and none is. Whoever dies later is
 * still passed on, for those that have not heard everything yet.
 *
 * News of the dead travel with the numbers, so it is enough that one rank notices.
 */
#include "base/rng.h"
#include "collectives/partial/rounds_inside.h"

static void state_send(struct rb_rounds *m, uint32_t dead, struct rb_protocol_actions *out)
{
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_STATE,
					     .value = dead,
					     .round = m->round,
					     .dead_hash = m->recovery.dead_hash,
					     .dead_count = m->recovery.dead_count };

	rb_rounds_act_send(out, RB_PROTOCOL_SEND_ALL, 0, &message);
}

void rb_rounds_lose(struct rb_rounds *m, uint32_t peer, struct rb_protocol_actions *out)
{
	bool fetching = m->phase == RB_ROUNDS_FETCHING;
	bool cut = fetching && m->recovery.fetch_from == peer;

	RB_ASSERT(peer < m->config.rank_count);
	if (peer == m->config.rank || m->recovery.peers[peer].dead)
		return;
	m->recovery.peers[peer].dead = true;
	m->recovery.dead_count++;
	m->recovery.dead_hash ^= rb_mix(peer + 1u);
	if (cut || m->phase == RB_ROUNDS_EXCHANGING || m->phase == RB_ROUNDS_REDUCING)
		rb_rounds_act_run(m, RB_ROUNDS_ABANDON, 0, out);
	if (cut || m->phase < RB_ROUNDS_RECOVERING)
		m->phase = RB_ROUNDS_RECOVERING;
	state_send(m, peer, out);
	rb_rounds_recovery_advance(m, out);
}

void rb_rounds_recovery_message(struct rb_rounds *m, uint32_t from,
				const struct rb_rounds_message *message,
				struct rb_protocol_actions *out)
{
	struct rb_rounds_peer *peer = &m->recovery.peers[from];

	if (peer->dead)
		return;
	if (message->kind == RB_ROUNDS_MESSAGE_FETCH) {
		RB_ASSERT(rb_rounds_is_over(m) && message->round + 1 == m->round);
		rb_protocol_action_add(out, RB_PROTOCOL_RUN)->value =
			message->round * RB_ROUNDS_RUNS + RB_ROUNDS_SERVE;
		out->item[out->count - 1].peer = from;
		return;
	}
	RB_ASSERT(message->round <= m->round + 1 && m->round <= message->round + 1);
	RB_ASSERT(
		RB_IMPLIES(message->round > m->round, m->is_joined || m->phase == RB_ROUNDS_OVER));
	peer->heard = true;
	peer->completed = message->round;
	peer->dead_hash = message->dead_hash;
	peer->dead_count = message->dead_count;
	if (message->value != RB_ROUNDS_NOBODY)
		rb_rounds_lose(m, message->value, out);
	rb_rounds_recovery_advance(m, out);
}

void rb_rounds_fetched(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	bool alike = rb_rounds_records_read(m);

	RB_ASSERT(alike); /* Else who serves them had not completed the round. */
	rb_rounds_complete(m, out);
	m->phase = RB_ROUNDS_RECOVERING;
	state_send(m, RB_ROUNDS_NOBODY, out);
	rb_rounds_recovery_advance(m, out);
}

static void fetch(struct rb_rounds *m, uint32_t from, struct rb_protocol_actions *out)
{
	struct rb_rounds_message message = { .kind = RB_ROUNDS_MESSAGE_FETCH, .round = m->round };

	m->phase = RB_ROUNDS_FETCHING;
	m->recovery.fetch_from = from;
	rb_rounds_act_send(out, RB_PROTOCOL_SEND, from, &message);
	rb_rounds_act_run(m, RB_ROUNDS_FETCH, from, out);
}

static void restore(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	struct rb_rounds_load *pending = &m->pending, *joined = &m->joined;

	rb_rounds_act_run(m, RB_ROUNDS_RESTORE, 0, out);
	if (pending->count == 0) {
		*pending = *joined;
	} else { /* What was joined is older. */
		pending->first_step = joined->first_step;
		pending->weight += joined->weight;
		pending->count += joined->count;
	}
	*joined = (struct rb_rounds_load) { 0 };
}

static void end(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	if (m->joined.count > 0)
		restore(m, out);
	m->is_joined = false;
	m->results.out = RB_ROUNDS_NO_SLOT;
	m->pending.fresh = m->joined.fresh = false;
	m->phase = RB_ROUNDS_OVER;
	rb_rounds_act_done(m, RB_ROUNDS_ENDED, RUBATO_OK, out);
}

static bool agrees(const struct rb_rounds *m, const struct rb_rounds_peer *peer)
{
	return peer->heard && peer->dead_count == m->recovery.dead_count &&
	       peer->dead_hash == m->recovery.dead_hash;
}

static bool survives(const struct rb_rounds *m, uint32_t rank)
{
	return rank == m->config.rank ||
	       (m->recovery.peers[rank].heard && !m->recovery.peers[rank].dead);
}

static uint64_t completed_by(const struct rb_rounds *m, uint32_t rank)
{
	return rank == m->config.rank ? m->round : m->recovery.peers[rank].completed;
}

/* The lowest survivor that has the result which `rank` lacks; NOBODY: it lacks none. */
static uint32_t holder_for(const struct rb_rounds *m, uint32_t rank)
{
	uint64_t completed = completed_by(m, rank);

	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (survives(m, r) && completed_by(m, r) > completed &&
		    (completed > m->round || rb_rounds_together(m, completed, rank, r)))
			return r;
	return RB_ROUNDS_NOBODY;
}

uint32_t rb_rounds_lost(const struct rb_rounds *m)
{
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		if (m->recovery.peers[r].dead)
			return r;
	return RB_ROUNDS_NOBODY;
}

void rb_rounds_recovery_advance(struct rb_rounds *m, struct rb_protocol_actions *out)
{
	uint32_t holder;
	bool agreed = true;

	if (m->phase != RB_ROUNDS_RECOVERING)
		return;
	holder = holder_for(m, m->config.rank);
	for (uint32_t r = 0; r < m->config.rank_count && agreed; r++)
		if (r != m->config.rank && !m->recovery.peers[r].dead)
			agreed = agrees(m, &m->recovery.peers[r]) &&
				 holder_for(m, r) == RB_ROUNDS_NOBODY;
	if (holder != RB_ROUNDS_NOBODY)
		fetch(m, holder, out);
	else if (agreed && m->merging == 0)
		end(m, out);
}
