/* sim_cache.h -- what lies in the caches of a simulated cluster's cores: sim_cache.c. */
#ifndef RB_TRANSPORT_SIM_CACHE_H
#define RB_TRANSPORT_SIM_CACHE_H

#include "rubato_sim.h"
#include "transport/transport.h"

struct rb_sim_caches;

/* What accesses cost: time, and what moves through the node's memory besides. */
struct rb_sim_access {
	double busy_ns;
	uint64_t memory_bytes;
};

struct rb_sim_place { /* Who accesses: a core by its cache, of a node. */
	uint32_t cache, node;
};

/* *out NULL: costs know of none. Errors: ARGUMENT, MEMORY. */
RB_NODISCARD rubato_status rb_sim_caches_open(const rubato_sim_options *options,
					      uint32_t node_count, struct rb_sim_caches **out);
void rb_sim_caches_close(struct rb_sim_caches *caches);

/* One after the other; who reads more than one reduces. NULL: all lies in memory. */
struct rb_sim_access rb_sim_caches_access(struct rb_sim_caches *caches, struct rb_sim_place place,
					  const struct rb_touch *touches, uint32_t count);

#endif
