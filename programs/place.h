/* place.h -- on which processor each rank of this machine runs under --bind core. */
#ifndef PROGRAMS_PLACE_H
#define PROGRAMS_PLACE_H

#include "programs/machine.h"

#define PLACES_MAX MACHINE_CPUS_MAX

struct places { /* Rank i takes the i-th, counted round. */
	uint32_t count;
	uint32_t core_count; /* So many come before a core is used twice. */
	uint32_t cpus[PLACES_MAX];
};

/* The processors of the machine that `allowed` has, neighbours side by side: one of each core, then
 * the second hardware threads. NULL: all. */
void places_find(const struct machine *machine, const bool allowed[PLACES_MAX],
		 struct places *places);

/* On this machine, those that this process may use. Where the system tells of no cores, each
 * processor is one. */
void places_find_here(struct places *places);

#endif
