/*
 * node_speed.h -- what messages, memory and turns take within a node: measured once, when a
 * communicator is made, unless a profile says it or its parent has measured; the same figures on
 * all ranks, so that they choose alike.
 */
#ifndef RB_RUNTIME_NODE_SPEED_H
#define RB_RUNTIME_NODE_SPEED_H

#include "collectives/nodes.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/memory.h"
#include "runtime/startup/bootstrap.h"
#include "runtime/startup/topology.h"

struct rb_node_probe { /* Who is where. */
	struct rb_engine *engine;
	struct rb_memories *memories;
	const struct rb_nodes *nodes;
	const uint32_t *host_of; /* Per node. */
	uint32_t host_count;
	uint32_t host_ranks, cores; /* Of the host with the most ranks a core. */
};

/* With nodes and hosts agreed, and runs possible. Fills what *speed does not say: 0 stays what
 * could not be measured. Some 1.4 to 3 ms and three of the bootstrap's exchanges; collective. */
RB_NODISCARD rubato_status rb_node_speed_measure(const struct rb_node_probe *where,
						 struct rb_bootstrap *bootstrap,
						 uint64_t deadline_ns, struct rb_node_speed *speed);

/* Whether ranks that copy at once, each for so long a byte, share what memory gives. */
bool rb_node_is_shared(double at_once_us, double alone_us);

/* How long IN and OUT of a rank must be together that results go past the cache, which its ranks
 * share, so many of the host; 0: never, nothing is known of the cache. */
uint64_t rb_past_bytes(const struct rb_shared_cache *cache, uint32_t host_ranks);

#endif
