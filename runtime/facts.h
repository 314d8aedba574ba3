/*
 * facts.h -- what ranks agree on, when a communicator is made, about each other: which map each
 * other's memory (nodes.h), run on one host, share a card, and in which NUMA domain each runs;
 * where puts are good, and how long keys of memory are. Each tells all a few words, so the work and
 * the memory of a rank are linear in their number, and what is so between two ranks changes nothing
 * between others.
 */
#ifndef RB_RUNTIME_FACTS_H
#define RB_RUNTIME_FACTS_H

#include "runtime/comm.h"

struct rb_whereabouts {      /* Of this rank. */
	uint64_t host, card; /* Ranks with equal ones share it. */
	uint32_t domain;     /* RB_DOMAIN_NONE: several, or not known. */
};

/* Connected; fills comm->choices and comm->locality. The bootstrap's exchanges are collective. */
RB_NODISCARD rubato_status rb_facts_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
					  const struct rb_whereabouts *here, uint64_t deadline_ns);

/* ---- For tests ---- */

/* Whom a rank maps, itself included: equal for two ranks only where the sets are. */
struct rb_mapped_set {
	uint32_t lowest, count;
	uint64_t hash; /* The sum of rb_mapped_hash of each. */
};
uint64_t rb_mapped_hash(uint32_t rank);
/*
 * name_of[r]: ranks that all map exactly each other share a name, the lowest rank's number; any
 * other has its own. Linear in the number of ranks.
 */
void rb_nodes_name(const struct rb_mapped_set *sets, uint32_t rank_count, uint32_t *name_of,
		   struct rb_mapped_set *found);

/* number_of[i]: equal for equal words, counted in the order of their first. Returns how many there
 * are. `order`: room for as many as `words`. */
struct rb_numbered {
	uint64_t word;
	uint32_t index;
};
uint32_t rb_words_number(const uint64_t *words, uint32_t count, uint32_t *number_of,
			 struct rb_numbered *order);

#endif
