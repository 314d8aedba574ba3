/* cost_model.c -- see cost_model.h. */
#include "collectives/cost_model.h"

#include <math.h>

#include "collectives/crowd.h"

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Measured, TCP at 1 Gbit/s and at 100 Mbit/s and 5 ms, four hosts of 2 ranks on 2 cores, 4 and 16
 * MiB: halving and doubling takes 1.07 and 1.25 times as long as lanes, which send as much. */
#define HALVES_WIRE 1.05

/* Ranks share cores: what one does takes its time from the others of its core. In a tree, a chain
 * or a star ranks do something one after the other, in all else at once. */
static void crowd_in(struct model *m, const struct rb_choice_facts *facts)
{
	const struct rb_algorithm *a = m->a;
	const struct rb_node_speed *node = &facts->node;
	bool lanes = a->by_node && (a->kind == RB_KIND_BROADCAST || a->kind == RB_KIND_REDUCE);
	bool in_turn = rb_kind_rooted(a->kind) && !lanes && a->pieces == 0;
	bool star = in_turn && !a->by_node && a->cost.phases.one == 1;
	double crowd = rb_crowd(facts), beside = (crowd - 1) / (facts->host_ranks - 1);
	double times = star ? 1 + beside : in_turn ? 1 : crowd;

	double cross = larger(node->core_byte_us, node->cross_byte_us);

	/* Half of what is moved has been written by others. */
	m->alone = larger((node->core_byte_us + cross) / 2, node->memory_byte_us);
	m->message *= times;
	m->near_message *= times;
	m->core = m->move = m->alone * (in_turn ? 1 : crowd);
	if (a->cost.reach == RB_REACH_HALVES && !a->by_node)
		m->wire *= HALVES_WIRE;
}

struct model rb_cost_model(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			   double bytes, double chunk_bytes)
{
	const struct rb_node_speed *node = &facts->node;
	double size = ceil((double)facts->rank_count / facts->nodes->count);
	double cards = facts->card_ranks > 0 ? facts->card_ranks : size;
	struct model m = { .a = a,
			   .ranks = facts->rank_count,
			   .nodes = facts->nodes->count,
			   .size = size,
			   .far = facts->rank_count - size,
			   .near = size - 1,
			   .drivers = size < cards ? size : cards,
			   .latency = facts->network.latency_us,
			   .near_latency = rb_crowd_phase_us(facts),
			   .message = facts->network.message_us,
			   .near_message = rb_crowd_message_us(facts),
			   .wire = facts->network.byte_us,
			   .core = node->core_byte_us,
			   .memory = node->memory_byte_us,
			   .move = larger(node->core_byte_us, size * node->memory_byte_us),
			   .alone = larger(node->core_byte_us, node->memory_byte_us),
			   .work = node->work_us,
			   .copied = facts->network.copied_bytes,
			   .piece = facts->network.piece_bytes,
			   .eager = node->eager_bytes,
			   .attach = node->attach_bytes,
			   .attach_copies = larger(node->attach_copies, 1),
			   .bytes = bytes,
			   .chunk = chunk_bytes > 0 ? chunk_bytes : 1,
			   .put = (a->flags & RB_SCHEDULE_PUT) != 0 };

	if (rb_crowd(facts) > 1)
		crowd_in(&m, facts);
	return m;
}
