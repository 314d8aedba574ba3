/*
 * topology.h -- which cores this process may use, and what lies near them, as Linux tells it under
 * /sys. Where it does not, every processor that we may use is taken for a core.
 */
#ifndef RB_RUNTIME_TOPOLOGY_H
#define RB_RUNTIME_TOPOLOGY_H

#include "base/status.h"

#define RB_CPU_WORDS 16 /* Sets of processors, by the system's numbers: 1024 bits. */

struct rb_place {
	uint64_t cores[RB_CPU_WORDS];  /* Of each core that we may use, its first processor. */
	uint64_t domain[RB_CPU_WORDS]; /* All processors of the NUMA domains that hold those. */
};

/* Processors of this thread's affinity; all zero: the system does not say. */
void rb_cpus_allowed(uint64_t cpus[RB_CPU_WORDS]);
uint32_t rb_cpus_count(const uint64_t cpus[RB_CPU_WORDS]);

/* For a process that may use `cpus` of the machine whose /sys/devices/system this folder is.
 * Errors: SYSTEM (it tells of none of them). */
RB_NODISCARD rubato_status rb_topology_place(const char *system, const uint64_t cpus[RB_CPU_WORDS],
					     struct rb_place *out);

#define RB_DOMAIN_NONE UINT32_MAX
/* The NUMA domain that holds all of `cpus` on the machine of that folder; RB_DOMAIN_NONE: several
 * do, or it tells of none. */
uint32_t rb_topology_domain(const char *system, const uint64_t cpus[RB_CPU_WORDS]);
/* That of this thread's affinity. */
uint32_t rb_domain_here(void);

/* Of the core of that processor: its second-level cache in bytes, or its part of one that cores
 * share; 0: the folder does not tell. */
uint64_t rb_topology_cache(const char *system, uint32_t cpu);
/* That of this machine. */
uint64_t rb_cache_of(uint32_t cpu);

struct rb_shared_cache {
	uint64_t size_bytes;    /* Of the third level; 0: the folder does not tell. */
	uint32_t sharers, cpus; /* How many processors share it, of so many. */
};
void rb_topology_shared_cache(const char *system, uint32_t cpu, struct rb_shared_cache *out);
void rb_shared_cache_of(uint32_t cpu, struct rb_shared_cache *out);
/* How many of a host's ranks share it, when they are spread evenly; at least one. */
uint32_t rb_cache_ranks(const struct rb_shared_cache *cache, uint32_t host_ranks);

/* This process's place. Reads more than the affinity only where that could tell more: where cores
 * have several hardware threads, or when `domain` is wanted. */
void rb_place_here(bool domain, struct rb_place *out);

#endif
