/*
 * flow.h -- the numbers of messages. Those of one (peer, tag, direction) are a flow: they are
 * numbered where they are sent, and receives where they are posted.
 *
 * Programs may use any number of tags, so flows are forgotten again. Who sends does that alone:
 * before one flow too many it forgets all that it has to a peer, and begins anew, with numbers that
 * none of them has come to. The peer is told where new flows begin from then on, and where each of
 * the old ones ended. There receives that wait for later numbers than that wait for the new ones
 * from then on; a flow that has yet to come to its end goes on with the new ones after it (a jump).
 * Where nothing is in flight and the next number is the one that new flows begin with, there is
 * nothing to remember.
 */
#ifndef RB_RUNTIME_ENGINE_FLOW_H
#define RB_RUNTIME_ENGINE_FLOW_H

#include "runtime/engine/engine.h"

#define RB_FLOWS_MAX 512u /* Guess: to one peer; more tags than that are seldom used in turn. */

struct rb_flow_list;
struct rb_pair;

struct rb_flow_message { /* A receive in flight. */
	uint64_t number;
	struct rb_flow_message *next, *previous;
};

struct rb_flow_left { /* One that was given up, whose message its sender may yet take back. */
	struct rb_flows *flows;
	uint64_t number;
	struct rb_flow_left *next, *previous;
};

struct rb_jump {
	uint64_t from, to; /* After number from - 1 comes `to`. */
};

struct rb_flow {
	uint64_t key, next; /* Number of the next one. */
	struct rb_pair *pair;
	struct rb_flow_message *first, *last; /* Receives in flight, oldest first. */
	struct rb_flow_left *left;
	uint64_t *freed;       /* Numbers below `next` that nobody waits for, ascending. */
	struct rb_jump *jumps; /* From numbers above `next`, ascending. */
	uint32_t freed_count, freed_room;
	uint32_t jump_count, jump_room;
	uint32_t moved; /* It is as the pair was after so many times that the sender began anew. */
	bool used;
};

struct rb_flows { /* A hash table. */
	struct rb_engine *engine;
	struct rb_flow *at;
	uint32_t count, capacity;
	struct rb_pair *pairs;      /* Each with an entry, too. */
	struct rb_flow_list *lists; /* On their way. */
	uint32_t left_count;        /* Of all flows. */
	/* Receives that wait for numbers from `from` on, which do not come, wait for those that are
	 * so much higher. */
	void (*renumber)(const struct rb_flow *flow, uint64_t from, uint64_t by);
};

/* Made if it is not there. NULL: no memory. Valid until another one is made or forgotten. */
struct rb_flow *rb_flow_find(struct rb_flows *flows, uint32_t peer, uint32_t user_tag,
			     bool sending);
/* NULL: there is none. */
struct rb_flow *rb_flow_known(const struct rb_flows *flows, uint32_t peer, uint32_t user_tag,
			      bool sending);
static inline bool rb_flow_is(const struct rb_flow *flow, uint32_t peer, uint32_t user_tag,
			      bool sending)
{
	return flow->used &&
	       flow->key == ((uint64_t)peer << 33 | (uint64_t)user_tag << 1 | sending);
}
/* Of receives, once one is over: forgotten, if there is nothing to remember. */
void rb_flow_settle(struct rb_flows *flows, struct rb_flow *flow);
void rb_flow_jump(struct rb_flow *flow);

void rb_flow_add(struct rb_flow *flow, struct rb_flow_message *message);
void rb_flow_remove(struct rb_flow *flow, struct rb_flow_message *message);
/* The flow is there until it is known what has become of that number, which is another one when
 * numbers have begun anew. NULL: no memory. */
struct rb_flow_left *rb_flow_leave(struct rb_flows *flows, struct rb_flow *flow, uint64_t number);
void rb_flow_left_end(struct rb_flow *flow, struct rb_flow_left *left);

/* The next number is taken, */
static inline void rb_flow_pass(struct rb_flow *flow)
{
	flow->next++;
	if (__builtin_expect(flow->jump_count > 0, 0))
		rb_flow_jump(flow);
}
/* or one that was given back. Errors: MEMORY. */
uint64_t rb_flow_take(struct rb_flow *flow);
rubato_status rb_flow_give(struct rb_flow *flow, uint64_t number);

void rb_flows_free(struct rb_flows *flows); /* Endpoints are closed. */

#endif
