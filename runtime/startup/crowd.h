/*
 * crowd.h -- how many ranks share how many cores, machine by machine: what waiting and the choice
 * of algorithms need to know. Each rank says where it runs; one pass over all of them counts, so
 * that the number of ranks may be large and their order any.
 */
#ifndef RB_RUNTIME_CROWD_H
#define RB_RUNTIME_CROWD_H

#include "runtime/startup/topology.h"

struct rb_seat {       /* Where a rank runs. */
	uint64_t host; /* Ranks with equal ones share a kernel: a machine; */
	uint64_t
		group; /* with equal ones of these, too, a limit of their time; 0: there is none. */
	uint64_t cores[RB_CPU_WORDS]; /* What it may use there: rb_place; */
	uint32_t cores_max;           /* but its group no more at a time; 0: all. */
};

struct rb_crowding {           /* Of a machine, or of a control group on one. */
	uint32_t ranks, cores; /* At least 1 each. */
};

struct rb_crowd_table {
	struct rb_crowd_entry *entries;
	uint32_t count, capacity;
	uint32_t *slots; /* By hash: number of an entry, from 1; 0: free. A power of 2 of them. */
	uint32_t slot_count;
};

struct rb_crowd {
	struct rb_crowd_table machines, groups;
	uint64_t looks; /* Slots that were looked at: the work, for tests. */
};

/* So many ranks with seats alike. Zeroed is empty. */
RB_NODISCARD rubato_status rb_crowd_add(struct rb_crowd *crowd, const struct rb_seat *seat,
					uint32_t ranks);
void rb_crowd_fini(struct rb_crowd *crowd);
/* Of each of `count` ranks, by their hosts, whether it is the first on its own. *looks: the work,
 * for tests. */
RB_NODISCARD rubato_status rb_crowd_firsts(const uint64_t *hosts, uint32_t count, bool *first,
					   uint64_t *looks);

/*
 * Of the machine of `host`, or of the group there, whichever has more ranks a core. The groups of a
 * machine may use together what its ranks may and no more than the groups' limits added up. No rank
 * there counts as one on one core.
 */
struct rb_crowding rb_crowd_at(struct rb_crowd *crowd, uint64_t host, uint64_t group);
/* Of the machine or group with the most ranks a core; of several the one with the most ranks. */
struct rb_crowding rb_crowd_worst(const struct rb_crowd *crowd);

#endif
