/* crowd.c -- see crowd.h. */
#include "collectives/crowd.h"

#include <math.h>

#define PHASE_US 0.4 /* Measured: a notification between two cores, there and seen. */
#define TURN_US 1.4  /* Measured: one yield to another rank. */
/* Measured, 8 ranks on 2 cores, two and four nodes: a message within a node takes such a part of a
 * turn more, as it is looked for in vain before. */
#define LOOK_TURNS 0.3

double rb_crowd(const struct rb_choice_facts *facts)
{
	return facts->cores > 0 ? (double)facts->host_ranks / facts->cores : 1;
}

double rb_crowd_tree(const struct rb_choice_facts *facts)
{
	double ranks = facts->rank_count, levels = 1, inner, ends;

	if (rb_crowd(facts) <= 1 || facts->host_ranks < facts->rank_count)
		return 1;
	for (uint32_t cores = 1; 2 * cores <= facts->cores; cores *= 2)
		levels++;
	inner = ceil(ranks / facts->cores);
	ends = inner * levels - 1 < ranks - 1 ? inner * levels - 1 : ranks - 1;
	ends += inner - 1;
	return ends * facts->cores / (2 * (ranks - 1));
}

static double turn_us(const struct rb_choice_facts *facts)
{
	if (rb_crowd(facts) <= 1)
		return 0;
	return facts->node.turn_us > 0 ? facts->node.turn_us : TURN_US;
}

double rb_crowd_phase_us(const struct rb_choice_facts *facts)
{
	double near_us = facts->node.latency_us > 0 ? facts->node.latency_us : PHASE_US;

	return near_us + turn_us(facts) * rb_crowd(facts);
}

double rb_crowd_message_us(const struct rb_choice_facts *facts)
{
	double us = facts->node.message_us;

	if (rb_crowd(facts) <= 1)
		return us;
	return (us > 0 ? us : RB_MESSAGE_US) + LOOK_TURNS * turn_us(facts);
}
