/*
 * cost.c -- see cost.h.
 *
 * A collective is a few stages, one after the other, in each of which a rank sends some messages
 * and receives as many. A stage lasts as long as what takes longest of three:
 *
 *   the processor   all its sends, then all its receives, and what it copies and reduces
 *   the wire        one send, the latency, what all ranks that share the card send, one receive
 *   the last one    all sends, the latency, the last message's bytes, one receive
 *
 * which is LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995) for each of the three. Where
 * chunks follow each other through several stages, each stage takes the time of its slowest part,
 * and only the first chunk is waited for in all of them. Processors copy what goes within a node,
 * and short messages between nodes; a rank of k that use the memory of a node has a k-th of it, or
 * what one core can move, if that is less. How many use it at a time follows from what else each
 * has to do (crowd_us).
 */
#include "collectives/cost.h"

#include <math.h>

#include "collectives/build.h"
#include "collectives/cost_model.h"
#include "collectives/crossing.h"
#include "collectives/crowd.h"

/* Guess: of a vector in uneven blocks the longest is so many times as long as the others are in the
 * mean. Who sends it to all is the last; around a ring all blocks go by every rank. */
#define UNEVEN 2

/* Measured, simulated: partners that are not ready at the same time leave cards idle. */
#define UNPACED 1.1

/* Guess: so many chunks of a block are under way at once, and keep pace. */
#define PACED 8

/* Measured, simulated: chunks that the second stage of a broadcast is behind the first. */
#define AHEAD 1.5

/* So much an engine copies before it looks what goes on (RB_SLICE_BYTES there). */
#define SLICE_BYTES (256u << 10)

/* So much may leave for a rank before it has a receive for it (transport.h: credits). */
#define AHEAD_BYTES (768u << 10)

/* Of messages within a node nothing is measured where ranks share cores: turns count there. */
bool rb_cost_known(const struct rb_choice_facts *facts)
{
	const struct rb_nodes *nodes = facts->nodes;
	bool turns = rb_crowd(facts) > 1 && nodes != NULL && nodes->count < facts->rank_count;

	return nodes != NULL && nodes->count > 1 && facts->network.latency_us > 0 &&
	       facts->network.message_us > 0 && facts->network.copied_bytes > 0 &&
	       (facts->node.latency_us > 0 || turns);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

static double rounds_of(double count)
{
	return count > 1 ? ceil(log2(count) - 1e-9) : 0;
}

static double chunks_of(const struct model *m, double bytes)
{
	return bytes > m->chunk ? ceil(bytes / m->chunk) : 1;
}

static double first_of(const struct model *m, double bytes)
{
	return smaller(bytes, m->chunk);
}

/* Of what goes to another node the first piece: the rest follows it. */
static double ahead_of(const struct model *m, bool far, double bytes)
{
	double first = first_of(m, bytes);

	return far && m->piece > 0 ? smaller(first, m->piece) : first;
}

/* And what is left when the last one has come: who receives takes in each while those behind it
 * come, and the last but one while the last does. */
static double final_of(const struct model *m, double bytes)
{
	double first = first_of(m, bytes), piece = ahead_of(m, true, bytes);
	double behind = ceil(first / larger(piece, 1)) - 1, rest = first - behind * piece;
	/* Bytes that are taken in as one comes. */
	double pace = m->alone > 0 ? m->wire / (2 * m->alone) : 1;
	double taken =
		smaller((first - piece) * pace, (behind - 1) * piece + smaller(piece, rest * pace));

	return behind > 0 ? first - taken : first;
}

static double pieces_of(const struct model *m, double bytes)
{
	return m->piece > 0 && bytes > m->piece && !m->put ? ceil(bytes / m->piece) : 1;
}

/* Whether ranks of a node send each other long messages both ways, as those of lanes. */
static bool lanes_cross(const struct rb_algorithm *a)
{
	return a->by_node && a->staged == NULL &&
	       (a->kind == RB_KIND_ALLREDUCE || a->kind == RB_KIND_ALLGATHER ||
		a->kind == RB_KIND_ALLGATHERV || a->kind == RB_KIND_BROADCAST ||
		a->kind == RB_KIND_REDUCE);
}

/* Of such that cross, which share is attached. Simulated: every other one. A broadcast's lanes keep
 * pace: of theirs the first one or two are, of which nobody knows that they cross, and every fourth
 * one. */
static double attached_of(const struct model *m)
{
	double lane = m->bytes / m->size;

	if (!lanes_cross(m->a) || (rb_cost_uncrossed(m->a) && m->chunk > RB_CROSSING_BYTES))
		return 1;
	if (m->a->kind != RB_KIND_BROADCAST)
		return 0.5;
	return smaller(1, larger(0.25, 1.5 * m->chunk / larger(lane, 1)));
}

/* How much of a message a processor copies at one end. Of puts, cards write what goes to another
 * node; within one who puts copies, where not only nodes put to each other. */
static double copied_of(const struct model *m, bool far, double bytes)
{
	if (m->put && (far || !m->a->by_node))
		return far ? 0 : bytes / 2;
	if (far)
		return bytes <= m->copied ? bytes : 0;
	if (m->attach <= 0 || bytes < m->attach)
		return bytes;
	double attached = m->attach_copies * bytes / 2;

	return bytes + (attached - bytes) * attached_of(m);
}

/* What a rank has to do: bytes read and written, and besides so many us. */
struct busy {
	double us, bytes;
};

/* At one end of messages of so many bytes. */
static struct busy end_of(const struct model *m, bool far, double bytes)
{
	double first = first_of(m, bytes), chunks = chunks_of(m, bytes);
	double one = far ? pieces_of(m, first) * m->message : m->near_message;

	return (struct busy) { chunks * one,
			       2 * copied_of(m, far, first) * bytes / larger(first, 1) };
}

static void busy_add(struct busy *b, double times, struct busy what)
{
	b->us += times * what.us;
	b->bytes += times * what.bytes;
}

/*
 * All ranks of a node have that to do. While one does what takes no memory, the others have more of
 * it: each finds there, of the others, as many as are there in the mean, which is the approximation
 * of Bard (1979) and Schweitzer for closed networks of queues.
 */
static double shared_us(const struct model *m, const struct busy *b)
{
	double alone = b->bytes * m->memory, rest = m->size * alone - b->us;
	double moving = (rest + sqrt(rest * rest + 4 * alone * b->us)) / 2;

	return b->us + smaller(larger(moving, b->bytes * m->core), b->bytes * m->move);
}

/* Likewise, but that messages, where there are some, have them keep pace. */
static double crowd_us(const struct model *m, const struct busy *b)
{
	return m->a->staged == NULL ? b->us + b->bytes * m->move : shared_us(m, b);
}

/* Likewise, but that they begin one after the other, as their cards serve them, a `wire` apart. */
static double lanes_us(const struct model *m, const struct busy *b, double wire)
{
	double alone = b->us + b->bytes * m->alone, at_once = m->size;

	if (wire > 0)
		at_once = larger(1, smaller(m->size, alone / wire));
	return b->us + b->bytes * larger(m->core, at_once * m->memory);
}

/* What messages of so many bytes keep one end busy, at `move` us a byte. */
static double end_at(const struct model *m, bool far, double bytes, double move)
{
	struct busy b = end_of(m, far, bytes);

	return b.us + b.bytes * move;
}

static double end_us(const struct model *m, bool far, double bytes)
{
	return end_at(m, far, bytes, m->move);
}

static double latency_us(const struct model *m, bool far)
{
	return far ? m->latency : m->near_latency;
}

static double wire_us(const struct model *m, bool far, double bytes)
{
	return far ? bytes * m->wire : 0;
}

/* Of copying or reducing: so many bytes read and written, for a range of `bytes`. */
static double moved_us(const struct model *m, double moved, double bytes)
{
	return moved * m->move + (moved > 0 ? chunks_of(m, bytes) * m->work : 0);
}

/* ---- Stages ---- */

struct stage {
	double far, near; /* Messages to ranks of other nodes and of its own: as many come. */
	double bytes;     /* Of each. */
	double moved;     /* Bytes read and written besides. */
	double drivers;   /* Ranks that do this over one card. */
	bool in_turn;     /* They begin one after the other. */
};

/* What a rank has to do of messages, as many as the stage's, of which one end is its own. */
static struct busy ends_of(const struct model *m, const struct stage *s, double bytes)
{
	struct busy b = { 0 };

	busy_add(&b, s->far, end_of(m, true, bytes));
	busy_add(&b, s->near, end_of(m, false, bytes));
	return b;
}

/* `back`: bytes of each that comes, or goes, where the others are as long as `bytes`. */
static double stage_both_us(const struct model *m, const struct stage *s, double back)
{
	bool far = s->far > 0;
	double first = ahead_of(m, far, s->bytes), one = end_us(m, far, first);
	double latency = latency_us(m, far), chunks = chunks_of(m, s->bytes);
	struct busy sent = ends_of(m, s, s->bytes), got = ends_of(m, s, back), mean = { 0 };
	struct busy own = { s->moved > 0 ? chunks * m->work : 0, s->moved };

	/* Who has the longest has more to do than the others, when these have done all. */
	busy_add(&mean, 2, got);
	busy_add(&mean, back / larger(s->bytes, 1), own);
	double more = sent.us - got.us + (sent.bytes - got.bytes) * m->alone;

	more += (own.us + own.bytes * m->alone) * (1 - back / larger(s->bytes, 1));
	double cpu = shared_us(m, &mean) + (back < s->bytes ? more : 0);
	double all = sent.us + got.us + own.us + (sent.bytes + got.bytes + own.bytes) * m->move;
	double pace = cpu / larger(all, 1e-9);
	double ends = (sent.us + sent.bytes * m->move) * pace;
	/* Ranks of a node send to one of another at the same time: the last one has theirs to take
	 * in, from when they begin to come, when the others of its own are through. */
	bool burst = s->far > 1 && m->size > 1 && !s->in_turn;
	double last = (own.us + own.bytes * (burst ? m->alone : m->move * pace)) / chunks, taken;

	if (burst)
		taken = smaller(s->far, m->size) *
			(end_at(m, true, s->bytes, m->alone) - wire_us(m, true, s->bytes));
	else
		taken = m->size > 1 ? s->far * end_us(m, true, s->bytes) : 0;
	last += larger(one, taken / chunks);
	double cards = (s->drivers - 1) * wire_us(m, true, back) + wire_us(m, true, s->bytes);

	return larger(cpu, larger(ends + latency + wire_us(m, far, first) + last,
				  one + latency + s->far * cards + last));
}

static double stage_us(const struct model *m, const struct stage *s)
{
	return stage_both_us(m, s, s->bytes);
}

/* Until a rank has the first of what another of its node sends. */
static double near_start_us(const struct model *m, double bytes)
{
	double first = first_of(m, bytes);

	if (m->eager > 0 && first > m->eager)
		return 3 * m->near_latency + m->near_message;
	return end_at(m, false, first, m->alone) + m->near_latency;
}

/* One rank sends to, or gets from, all others. Who gets has those of its own node meanwhile, and so
 * has who sends them long ones, which wait until they are asked for. */
static double star_us(const struct model *m, double bytes, double moved, bool gets)
{
	double first = ahead_of(m, true, bytes), one = end_at(m, true, first, m->alone);
	double far = m->far * end_at(m, true, bytes, m->alone);
	double near = m->near * end_at(m, false, bytes, m->alone);
	double own = moved * m->alone + (moved > 0 ? m->work : 0);
	double wire = m->far * bytes * m->wire;
	double begin = end_at(m, true, final_of(m, bytes), m->alone) + m->latency + first * m->wire;
	double last = own / chunks_of(m, bytes);
	bool beside = m->near > 0 && (gets || (m->eager > 0 && first_of(m, bytes) > m->eager));
	/* Blocks of its own it copies while others travel; a sum waits for the last of them. */
	double alone = m->a->kind == RB_KIND_REDUCE ? begin + own : larger(begin, own);
	double cpu = beside ? larger(near_start_us(m, bytes) + far + near + own, begin + far + last)
			    : alone + far + near;

	return larger(cpu, one + m->latency + wire + one + last);
}

/* From one rank to the next, while `active` of its node do something: until it may go on. */
static double hop_of(const struct model *m, bool far, double bytes, double moved, double active)
{
	double move = larger(m->core, active * m->memory), ahead = ahead_of(m, far, bytes);
	double end = end_at(m, far, ahead, move), rest = bytes - ahead;
	double own = moved * move + (moved > 0 ? chunks_of(m, bytes) * m->work : 0);

	if (!far && m->eager > 0 && bytes > m->eager) /* Both ends at once. */
		return 3 * m->near_latency + m->near_message + end + own;
	return 2 * end + latency_us(m, far) + wire_us(m, far, ahead) +
	       larger(wire_us(m, far, rest), end * rest / larger(ahead, 1)) + own;
}

static double hop_us(const struct model *m, bool far, double bytes, double moved)
{
	return hop_of(m, far, bytes, moved, far ? 1 : 2);
}

static double exchange_us(const struct model *m, double bytes, double moved)
{
	const struct stage s = { m->far, m->near, bytes, moved, m->drivers, false };

	return stage_us(m, &s);
}

/* Of uneven blocks: the longest goes to all, or comes from all, the other way go those of all. */
static double uneven_us(const struct model *m, double part, double moved)
{
	const struct stage s = { m->far, m->near, UNEVEN * part, moved, m->drivers, false };

	return stage_both_us(m, &s, part);
}

static bool is_power(double count)
{
	return fmod(log2(count) + 1e-9, 1) < 1e-6;
}

/* ---- Without nodes ---- */

/*
 * Rounds of pairs that are 1, 2, 4 ... apart, in which ranks of a node meet those of one other over
 * its card. They stay one behind the other, so that a round does not wait for the last of the one
 * before: only once do they line up, where the longest messages go, unless the card never rests.
 */
struct rounds {
	double path;   /* Of one that never waits for the card: us. */
	double widest; /* Of a message on the wire. */
	double cards;  /* The card's, if it does not rest, from the first far message on. */
};

static void round_add(const struct model *m, struct rounds *r, double distance, double bytes,
		      double moved)
{
	bool far = distance >= m->size;
	const struct stage s = { far, !far, bytes, moved, 1, false };
	double us = stage_us(m, &s), wire = wire_us(m, far, bytes);

	r->path += us;
	r->widest = larger(r->widest, wire);
	r->cards += far ? m->drivers * wire : us;
}

static double rounds_us(const struct model *m, const struct rounds *r)
{
	return larger(r->path + (m->drivers - 1) * r->widest,
		      r->cards + (r->widest > 0 ? m->latency + 2 * m->message : 0));
}

/* What ranks beyond a power of two give to others before and get from them after. */
static double fold_us(const struct model *m)
{
	if (is_power(m->ranks))
		return 0;
	return hop_us(m, m->size == 1, m->bytes, 3 * m->bytes) +
	       hop_us(m, m->size == 1, m->bytes, 0);
}

static double doubling_us(const struct model *m)
{
	struct rounds r = { 0 };

	for (double d = 1; 2 * d <= m->ranks; d *= 2)
		round_add(m, &r, d, m->bytes, 3 * m->bytes);
	return rounds_us(m, &r) + fold_us(m);
}

static double halving_us(const struct model *m)
{
	double part = m->bytes / 2;
	struct rounds r = { 0 };

	for (double d = 1; 2 * d <= m->ranks; d *= 2, part /= 2) {
		round_add(m, &r, d, part, 3 * part);
		round_add(m, &r, d, part, 0);
	}
	return rounds_us(m, &r) + fold_us(m);
}

static double longest_of(const struct model *m)
{
	bool uneven = m->a->kind == RB_KIND_ALLGATHERV || m->a->kind == RB_KIND_REDUCE_SCATTERV;

	return uneven ? UNEVEN : 1;
}

/* What keeps a rank busy that passes on what comes, with neighbours of its own node and of others.
 * Of puts, who writes copies all, and who is written to nothing. */
static double passed_us(const struct model *m, double bytes)
{
	bool alone = m->size == 1;

	if (m->put)
		return 2 * end_us(m, alone, bytes);
	return end_us(m, true, bytes) + end_us(m, alone, bytes);
}

/* Around all ranks: a block's chunks follow each other, one link of each node is a far one. */
static double ring_us(const struct model *m, double turns, double moved)
{
	double block = m->bytes / m->ranks, first = first_of(m, block * longest_of(m));
	double far_us = hop_us(m, true, first, moved * first);
	double near_us = hop_us(m, false, first, moved * first);
	double hop = (far_us + (m->size - 1) * near_us) / m->size;
	double turn = larger(passed_us(m, block) + moved_us(m, moved * block, block),
			     wire_us(m, true, block));

	return hop + (turns - 1) * larger(hop, turn) + turn - turn / chunks_of(m, block);
}

static double chain_us(const struct model *m, double moved)
{
	double first = first_of(m, m->bytes), chunks = chunks_of(m, m->bytes);
	double far_us = hop_us(m, true, first, moved * first);
	double near_us = hop_us(m, false, first, moved * first);
	double chunk = larger(passed_us(m, first) + moved_us(m, moved * first, first),
			      wire_us(m, true, first));

	return (m->nodes - 1) * far_us + (m->ranks - m->nodes) * near_us + (chunks - 1) * chunk;
}

/* Within a node so many ranks do the same, of a tree's level in which they are `distance` apart. */
static double active_of(const struct model *m, double distance)
{
	return distance >= m->size ? 1 : smaller(m->size, m->size / distance);
}

/* Down a tree, or up: each level the whole vector, or (halves) half of what the one above has. */
static double tree_us(const struct model *m, bool halves)
{
	double us = 0, part = m->bytes;

	for (double d = pow(2, rounds_of(m->ranks) - 1); d >= 1; d /= 2) {
		bool far = d >= m->size;
		double bytes = halves ? (part /= 2) : part, first = first_of(m, bytes);
		double active = active_of(m, d), move = larger(m->core, active * m->memory);
		double wire = wire_us(m, far, bytes), busy = end_at(m, far, bytes, move);

		/* What may not be sent ahead takes turns with what goes to the others, as much. */
		if (m->a->kind == RB_KIND_SCATTER && bytes > AHEAD_BYTES) {
			busy *= 2;
			wire *= 2 - smaller(1, m->size / d);
		}
		us += hop_of(m, far, first, 0, active) +
		      (1 - first / larger(bytes, 1)) * larger(busy, wire);
	}
	return us;
}

/* Up a tree: who has heard of all below it adds all up in one pass. The root has most to do. */
static double tree_sum_us(const struct model *m)
{
	double first = first_of(m, m->bytes), below = 1, us = 0, root = 0, wire = 0;

	for (double d = 1; d < m->ranks; d *= 2, below++) {
		bool far = d >= m->size;

		us += hop_of(m, far, first, (below + 2) * first, active_of(m, d));
		root += end_at(m, far, first, m->alone);
		wire += wire_us(m, far, first);
	}
	root += (below + 1) * first * m->alone + m->work;
	return us + (larger(m->bytes / larger(first, 1), 1) - 1) * larger(root, wire);
}

/* To who is 1, 2, 4 ... away, around: of all that is within a node one message leaves it. */
static double around_us(const struct model *m, double distance, double bytes)
{
	bool far = 2 * distance >= m->size;
	const struct stage s = {
		far, !far, bytes, 0, smaller(smaller(distance, m->size), m->drivers), false
	};

	return stage_us(m, &s) * (chunks_of(m, bytes) > 1 ? UNPACED : 1);
}

/* In round i what 2^i ranks have. */
static double bruck_gather_us(const struct model *m)
{
	double part = m->bytes / m->ranks, us = moved_us(m, 2 * part, part);

	for (double d = 1; d < m->ranks; d *= 2)
		us += around_us(m, d, smaller(d, m->ranks - d) * part);
	return us;
}

/* In each round half of the blocks: before the first one all of these are packed, later those that
 * have come in the round before, as many again. The others are, and results are taken out, while
 * messages travel. */
static double bruck_us(const struct model *m)
{
	double block = 2 * m->bytes / m->ranks * m->move + m->work, rounds = rounds_of(m->ranks);
	double us = (3 + rounds) * m->ranks / 4 * block;
	double busy = (2 + rounds) * m->ranks / 2 * block;

	for (double d = 1; d < m->ranks; d *= 2) {
		us += around_us(m, d, m->bytes / 2);
		busy += 2 * end_us(m, 2 * d >= m->size, m->bytes / 2);
	}
	return larger(us, busy);
}

static double pairwise_us(const struct model *m)
{
	double block = m->bytes / m->ranks;
	double turn = hop_us(m, true, block, 0) + (m->drivers - 1) * wire_us(m, true, block);

	return larger(UNPACED * exchange_us(m, block, 2 * block),
		      (m->ranks - 1) / RB_PAIRWISE_AT_ONCE * turn);
}

static double dissemination_us(const struct model *m)
{
	double us = 0;

	for (double d = 1; d < m->ranks; d *= 2)
		us += around_us(m, d, 0);
	return us;
}

/* ---- Over nodes ---- */

/* The ranks of a node tell each other something, or send each other `bytes`. */
static double meet_us(const struct model *m, double bytes, double moved)
{
	const struct stage s = { 0, m->near, bytes, moved, 1, false };

	return m->near > 0 ? stage_us(m, &s) : moved_us(m, moved, moved);
}

static bool is_staged(const struct model *m)
{
	return m->a->staged == NULL;
}

/* In lanes around all nodes. reduces: the sum of what is passed on; spreads: results to all. */
static double laned_ring_us(const struct model *m, bool reduces, bool spreads)
{
	double block = m->bytes / m->ranks,
	       first = first_of(m, m->size > 1 ? block : block * longest_of(m));
	double turns = (m->nodes - 1) * (reduces + spreads);
	double sum = reduces ? (m->size + 2) : 0; /* A block's, bytes a byte. */
	bool staged = is_staged(m);
	double hop = hop_us(m, true, first, sum / 2 * first);
	double others = (m->drivers - 1) * wire_us(m, true, first); /* Lanes, once. */
	double wire = m->drivers * wire_us(m, true, block);
	double far_us = turns * 2 * end_us(m, true, block);
	double sums = m->nodes * moved_us(m, sum * block, block);
	double notes = 2 * m->near * m->near_message;
	double parts = m->near * m->nodes * 2 * end_us(m, false, block);
	double in = staged ? reduces * parts : notes, out = 0;

	if (spreads)
		out = staged ? parts
			     : m->nodes * (notes + m->near * (2 * block * m->move + m->work));
	double cpu = far_us + sums + in + out + m->near_latency;
	double begin = in + m->near_latency + (staged ? 0 : moved_us(m, sum * first, first));
	/* The others take in the last block as it comes. */
	double last = larger(out / m->nodes - wire, out / m->nodes / chunks_of(m, block));
	double end = spreads ? last + m->near_latency : 0;
	double path = begin + larger(turns * hop + others, turns * wire + hop) + end;

	return larger(cpu + m->latency, path);
}

/* Two that go on at the same time, but for what is ahead. */
static double overlapped_us(double one_us, double other_us, double ahead)
{
	return larger(one_us, other_us) + smaller(one_us, other_us) * ahead;
}

/* What becomes of a range of results within a node: a rank gives its lane's to the others, and has
 * those of theirs. */
static struct busy range_of(const struct model *m, double bytes)
{
	struct busy b = { 0 };
	double note = 2 * m->near_message + m->work;

	if (is_staged(m))
		busy_add(&b, 2 * m->near, end_of(m, false, bytes));
	else
		busy_add(&b, m->near, (struct busy) { chunks_of(m, bytes) * note, 2 * bytes });
	return b;
}

/* Of a round so much is waited for: while its messages travel, there is something else to do. */
static double waited_us(const struct model *m, const struct busy *meanwhile)
{
	return larger(0, m->latency + 2 * m->message - meanwhile->us - meanwhile->bytes * m->move);
}

/* In lanes: sums of nodes are halved and doubled over them; one lane is copied and summed up while
 * the card carries another. */
static double laned_halving_us(const struct model *m)
{
	double lane = m->bytes / m->size, part = lane / 2, power = 1, path = 0, cards = 0;
	double notes = 2 * (2 * m->near * m->near_message + m->near_latency);
	struct busy busy = { chunks_of(m, lane) * m->work, (m->size + 1) * lane };
	struct busy summed = { 0, (m->size + 1) * (part - first_of(m, part)) };

	for (; 2 * power <= m->nodes; power *= 2, part /= 2) {
		struct busy range = range_of(m, part);
		double ahead = part - AHEAD_BYTES;

		/* First the rest of a node's sums, later those of two; then what is there already
		 * is given to the others of the node. */
		path += waited_us(m, &summed) + waited_us(m, &range);
		summed = (struct busy) { 0 };
		busy_add(&busy, 1, range);
		busy_add(&busy, 4, end_of(m, true, part));
		busy_add(&busy, 1,
			 (struct busy) { m->work - 4 * m->message, (power > 1 ? 3 : 1) * part });
		cards += 2 * m->drivers * wire_us(m, true, part);
		/* While sums are passed on there is nothing else to do: cards wait for
		 * processors, and these for them. */
		if (power > 1)
			path += smaller(m->drivers * wire_us(m, true, part),
					2 * end_us(m, true, part) + 3 * part * m->move);
		/* What a pair may not send ahead waits, and what belongs to the next round is sent
		 * before it. */
		if (ahead > 0 && 4 * power <= m->nodes)
			cards += m->drivers * wire_us(m, true, ahead);
	}
	if (power < m->nodes) {
		path += 2 * (m->latency + 2 * m->message);
		busy_add(&busy, 4, end_of(m, true, lane));
		busy_add(&busy, 1, (struct busy) { m->work - 4 * m->message, 3 * lane });
		cards += 2 * m->drivers * wire_us(m, true, lane);
	}
	busy_add(&busy, 1, range_of(m, lane / power));
	if (is_staged(m))
		busy_add(&busy, 2 * m->near, end_of(m, false, lane));
	else
		busy.us += notes;
	path += m->near_latency * (is_staged(m) ? 2 : 1);
	return path +
	       overlapped_us(crowd_us(m, &busy), cards, 1 / larger(m->drivers, chunks_of(m, lane)));
}

/*
 * In lanes from node to node, `hops` deep, where each gives to `branches`: chunk after chunk, and
 * of each chunk first to the one with the most behind it. Where lanes follow each other over the
 * card, the first is on its way when its driver has it: what feeds the others goes on beside. At
 * the end a rank has all lanes of the last chunk to take in, or, if they come slowly, one of them.
 */
static double laned_path_us(const struct model *m, double hops, double branches, bool reduces)
{
	double lane = m->bytes / m->size, first = first_of(m, lane);
	double notes = 2 * m->near * m->near_message, wire = wire_us(m, true, first);
	double chunks = chunks_of(m, lane), firsts = larger(lane / larger(first, 1), 1);
	struct busy sum = { m->work, (m->size + 2) * first }, copy = { m->work, 2 * first };
	/* Of a chunk: what from node to node is waited for; what keeps a rank busy of what goes on
	 * within its node; with what it gets from other nodes and gives on to them. */
	struct busy passed = { 0 }, near = { 0 }, each = { 0 };
	double around, one, last;

	busy_add(&passed, 2, end_of(m, true, first));
	busy_add(&each, 1 + smaller(branches, hops - 1), end_of(m, true, first));
	if (is_staged(m)) {
		double feed = m->near * end_at(m, false, first, m->alone);

		busy_add(&near, 2 * m->near, end_of(m, false, first));
		if (reduces) { /* Each feeds all drivers; the root gets all lanes. */
			busy_add(&near, 1, sum);
			around = crowd_us(m, &near) + m->near_latency;
		} else { /* The root feeds drivers, each of them the others. */
			around = larger(feed - (m->drivers - 1) * wire, feed / larger(m->near, 1)) +
				 m->near_latency;
		}
		one = feed + m->near_latency;
		last = reduces ? one : crowd_us(m, &near) + m->near_latency;
	} else if (reduces) {
		busy_add(&near, 1, sum);
		around = 2 * (notes + m->near_latency);
		one = last = crowd_us(m, &near);
	} else { /* The root tells the others; they copy, and say that they have. */
		double all = notes + m->near_latency;

		busy_add(&near, m->near, copy);
		near.us += notes;
		around = all / 2 + crowd_us(m, &copy);
		one = all + crowd_us(m, &copy);
		last = crowd_us(m, &near) + all + m->near_latency;
	}
	busy_add(&each, 1, near);
	if (reduces)
		busy_add(&passed, 1, sum);
	/* What it tells its own node of the chunk before stands in the way. */
	if (is_staged(m) && !reduces && chunks > 1)
		passed.us += m->near * m->near_message;
	double hop = lanes_us(m, &passed, wire) + m->latency + wire;
	struct busy more = { (chunks - 1) * each.us, (firsts - 1) * each.bytes };
	double slots = m->drivers * ((firsts - 1) * branches + 1) - 1;
	double deep = hops * hop + larger(crowd_us(m, &more) + last, slots * wire + one);
	double wide = hop + (m->drivers * firsts * branches - 1) * wire + one;

	/* Of what the root's node has at once the first behind it gets all, then the next one. */
	if (!is_staged(m) && branches > 1) {
		double batch = smaller(1, SLICE_BYTES / larger(lane, 1));
		struct busy late = { chunks * batch * near.us, firsts * batch * near.bytes };

		wide = larger(wide, hop + m->drivers * firsts * (branches - batch) * wire +
					    crowd_us(m, &late) + one);
	}
	return around + larger(deep, wide);
}

/* One message from each node, or to it. */
static double node_star_us(const struct model *m)
{
	double part = m->bytes / m->ranks, packed = part * m->size, own = 2 * part * m->alone;
	double notes = 2 * m->near * m->near_message + m->near_latency;
	/* Ranks of the root's node meet a node each, in turn; the root does, too. */
	double met = m->nodes - 1, direct = ceil(met / m->size), via = met - direct;
	double move = larger(m->core, smaller(m->size, met) * m->memory);
	double pack, passed,
		more = larger(packed * m->wire, end_at(m, true, packed, m->move) / m->size);

	if (is_staged(m)) {
		double near = end_at(m, false, packed, m->alone);

		pack = near_start_us(m, part) + m->near * end_at(m, false, part, m->alone) + own;
		passed = via > 0 ? near_start_us(m, packed) + near : 0;
		if (m->a->kind == RB_KIND_SCATTER) /* The root gives to its own node first. */
			passed += m->near * end_at(m, false, part, m->alone);
		more = larger(more,
			      (near * via + (direct - 1) * end_at(m, true, packed, m->alone)) /
				      larger(met - 1, 1));
	} else {
		pack = notes + 2 * packed * m->alone + m->size * m->work;
		passed = notes + (via > 0 ? 2 * packed * move + m->work : 0);
	}
	return pack + hop_us(m, true, packed, 0) + (met - 1) * more + passed;
}

/* Node after node is packed and sent; what the rank has for its own node is copied meanwhile. */
static double node_alltoall_us(const struct model *m)
{
	double block = m->bytes / m->ranks, packed = block * m->size;
	const struct stage s = { m->nodes - 1, 0, packed, 0, m->drivers, false };
	struct busy all = { 0 }, pack = { m->size * m->work, 2 * packed }, begin = { 0 };

	if (is_staged(m)) { /* First it gives away all that others pack. */
		pack = (struct busy) { m->work, 2 * block };
		busy_add(&pack, m->near, end_of(m, false, block));
		busy_add(&begin, m->near * m->nodes, end_of(m, false, block));
	}
	busy_add(&all, 1, begin);
	busy_add(&all, m->nodes, pack);
	busy_add(&all, 2 * s.far, end_of(m, true, packed));
	busy_add(&begin, 1, pack);
	return m->near_latency + larger(shared_us(m, &all), shared_us(m, &begin) + stage_us(m, &s));
}

static double node_direct_us(const struct model *m)
{
	double block = m->bytes / m->ranks;
	const struct stage s = { m->far, 0, block, 2 * m->size * block, m->drivers, false };

	return stage_us(m, &s) + 2 * meet_us(m, 0, 0);
}

static double node_barrier_us(const struct model *m)
{
	return 2 * meet_us(m, 0, 0) + rounds_of(m->nodes) * hop_us(m, true, 0, 0);
}

/* ---- By shape ---- */

static double flat_us(const struct model *m)
{
	double part = m->bytes / m->ranks;

	switch (m->a->kind) {
	case RB_KIND_BROADCAST:
		return star_us(m, m->bytes, 0, false);
	case RB_KIND_REDUCE:
		return star_us(m, m->bytes, (m->ranks + 1) * m->bytes, true);
	case RB_KIND_GATHER:
	case RB_KIND_SCATTER:
		return star_us(m, part, 2 * part, m->a->kind == RB_KIND_GATHER);
	case RB_KIND_ALLREDUCE:
		return exchange_us(m, m->bytes, (m->ranks + 1) * m->bytes);
	case RB_KIND_REDUCE_SCATTERV:
		return uneven_us(m, part, UNEVEN * (m->ranks + 1) * part);
	case RB_KIND_REDUCE_SCATTER:
		return exchange_us(m, part, (m->ranks + 1) * part);
	case RB_KIND_ALLGATHERV:
		return uneven_us(m, part, UNEVEN * 2 * part);
	default:
		return exchange_us(m, part, 2 * part);
	}
}

/* What comes from one rank goes to all others. Of many chunks they come to some ranks earlier than
 * to others, and cards rest. */
static double spread_us(const struct model *m, double bytes)
{
	struct model unpaced = *m;

	if (chunks_of(m, bytes) > PACED)
		unpaced.wire *= UNPACED;
	const struct stage s = { m->far, m->near, bytes, 0, m->drivers, true };

	return stage_us(&unpaced, &s);
}

static double two_shot_us(const struct model *m)
{
	double part = m->bytes / m->ranks, ahead = 1 / chunks_of(m, part);
	double vector = UNPACED * m->bytes * m->wire; /* Sent by each, where one has the result. */

	switch (m->a->kind) {
	case RB_KIND_BROADCAST:
		return larger(vector, overlapped_us(star_us(m, part, 0, false), spread_us(m, part),
						    smaller(1, AHEAD * ahead)));
	case RB_KIND_REDUCE: /* As many chunks as there are slots are under way. */
		return larger(vector, overlapped_us(exchange_us(m, part, (m->ranks + 1) * part),
						    star_us(m, part, 0, true),
						    smaller(1, RB_DEPTH * ahead)));
	default:
		return exchange_us(m, part, (m->ranks + 1) * part) + exchange_us(m, part, 0);
	}
}

static double tree_of(const struct model *m)
{
	bool halves = m->a->kind == RB_KIND_GATHER || m->a->kind == RB_KIND_SCATTER;

	return m->a->kind == RB_KIND_REDUCE ? tree_sum_us(m) : tree_us(m, halves);
}

static double ring_of(const struct model *m)
{
	switch (m->a->kind) {
	case RB_KIND_ALLREDUCE:
		return ring_us(m, m->ranks - 1, 3) + ring_us(m, m->ranks - 1, 0);
	case RB_KIND_REDUCE_SCATTER:
	case RB_KIND_REDUCE_SCATTERV:
		return ring_us(m, m->ranks - 1, 3);
	default:
		return ring_us(m, m->ranks - 1, 0);
	}
}

static double laned_of(const struct model *m)
{
	switch (m->a->kind) {
	case RB_KIND_BARRIER:
		return node_barrier_us(m);
	case RB_KIND_GATHER:
	case RB_KIND_SCATTER:
		return node_star_us(m);
	case RB_KIND_ALLTOALL:
	case RB_KIND_ALLTOALLV:
		return m->a->cost.reach == RB_REACH_FAR ? node_direct_us(m) : node_alltoall_us(m);
	case RB_KIND_BROADCAST:
		return m->a->cost.chain
			       ? laned_path_us(m, m->nodes - 1, 1, false)
			       : laned_path_us(m, rounds_of(m->nodes), rounds_of(m->nodes), false);
	case RB_KIND_REDUCE:
		return laned_path_us(m, m->nodes - 1, 1, true);
	case RB_KIND_ALLREDUCE:
		return m->a->cost.reach == RB_REACH_HALVES ? laned_halving_us(m)
							   : laned_ring_us(m, true, true);
	case RB_KIND_REDUCE_SCATTER:
	case RB_KIND_REDUCE_SCATTERV:
		return laned_ring_us(m, true, false);
	default:
		return laned_ring_us(m, false, true);
	}
}

static double shaped_us(const struct model *m)
{
	const struct rb_algorithm *a = m->a;
	bool moves = a->kind == RB_KIND_ALLGATHER || a->kind == RB_KIND_ALLGATHERV;

	if (a->by_node)
		return laned_of(m);
	if (a->cost.chain)
		return chain_us(m, a->kind == RB_KIND_REDUCE ? 3 : 0);
	switch (a->cost.reach) {
	case RB_REACH_NEXT:
		return ring_of(m);
	case RB_REACH_POWERS:
		return a->kind == RB_KIND_ALLREDUCE ? doubling_us(m) : tree_of(m);
	case RB_REACH_AROUND:
		return dissemination_us(m);
	case RB_REACH_PAIRS:
		return pairwise_us(m);
	case RB_REACH_HALVES:
		return halving_us(m);
	case RB_REACH_ALL:
	case RB_REACH_FAR:
		break;
	}
	if (a->cost.phases.log > 0)
		return moves ? bruck_gather_us(m) : a->packs ? bruck_us(m) : tree_of(m);
	return a->pieces > 0 ? two_shot_us(m) : flat_us(m);
}

/* Bytes that a call sends over the link of the node that sends the most: the time, if nothing else
 * took any and a byte took one. */
static double crossing_bytes(const struct model *m)
{
	struct model bare = *m;

	bare.latency = bare.near_latency = bare.message = bare.near_message = 0;
	bare.core = bare.memory = bare.move = bare.alone = bare.work = 0;
	bare.wire = 1;
	return shaped_us(&bare);
}

double rb_cost_meet_us(const struct rb_choice_facts *facts)
{
	double near = ceil((double)facts->rank_count / facts->nodes->count) - 1;

	return near * 2 * rb_crowd_message_us(facts) * larger(1, rb_crowd(facts));
}

double rb_cost_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a, double bytes,
		  double chunk_bytes)
{
	struct model m = rb_cost_model(facts, a, bytes, chunk_bytes);

	if (facts->network.burst_bytes > 0 && m.wire > 0)
		m.wire *= rb_crossing_byte_us(&facts->network, crossing_bytes(&m)) /
			  facts->network.byte_us;

	/* Before puts all tell each other where they may come; in an alltoall when, too. */
	double rounds = !m.put ? 0 : a->kind == RB_KIND_ALLTOALL ? 2 : 1;

	/* Within a node, before buffers are touched; a star's ranks wait for nothing else there. */
	bool star = a->kind == RB_KIND_GATHER || a->kind == RB_KIND_SCATTER;
	bool meets = a->by_node && a->flags & RB_SCHEDULE_MAPPED_BUFFERS && !star;
	double meet = meets ? rb_cost_meet_us(facts) : 0;

	return meet + rounds * exchange_us(&m, 0, 0) + shaped_us(&m);
}
