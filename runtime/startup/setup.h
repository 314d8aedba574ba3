/*
 * setup.h -- how a communicator is made, once somebody has decided who and where: rubato_init*, the
 * simulator and tests all come through here.
 */
#ifndef RB_RUNTIME_SETUP_H
#define RB_RUNTIME_SETUP_H

#include "base/config.h"
#include "runtime/startup/bootstrap.h"
#include "runtime/startup/topology.h"
#include "transport/transport.h"

/* Of links from each node to the next. */
struct rb_link_spread {
	double latency_us, byte_us;     /* The best. */
	uint32_t far_node, narrow_node; /* Whose are the worst. */
};

struct rb_setup {
	const struct rb_config *config; /* Copied, unless it stays as long as any that is made. */
	bool config_stays;
	struct rb_bootstrap *bootstrap; /* Closed when it is open, or failed; NULL: size 1. */
	uint64_t timeout_ns;            /* 0: config's. */
	uint64_t heap_bytes;            /* 0: config's. */
	uint64_t deadline_ns; /* Of opening, by the transports' clock; 0: timeout_ns from now. */
	/* Transports to try, best first, NULL-terminated; NULL: by config->transport. For each peer
	 * the first is taken that reaches it; all ranks must end up reachable. */
	const struct rb_transport_ops *const *transports;
	/* Per rank: which of these carried its data in a parent; NULL: there is none. */
	const uint8_t *routes;
	struct rb_link network;    /* Between nodes; latency 0: to be measured. */
	struct rb_node_speed node; /* Likewise within one. */
	struct rb_link_spread spread;
	bool profiled; /* Of these is what a profile says (RUBATO_PROFILE), */
	/* and what was measured when this, or a parent, was made: of links, of nodes. */
	bool measured, node_measured;
	uint64_t wake_ns;             /* Of waiting, likewise: runtime/engine/waiting.h. */
	struct rb_shared_cache cache; /* Of this machine, once it is known; a parent's. */
	bool cache_known;
	bool devices_known; /* A parent's: */
	int cuda;           /* RB_CUDA_OFF, RB_CUDA_AUTO, or the number of the CUDA device. */
	void *backend;      /* rb_transport_options.backend: the simulator's cluster. */
};

#endif
