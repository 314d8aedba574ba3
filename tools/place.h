/* place.h -- on which processor each rank of this machine runs under --bind core. */
#ifndef TOOLS_PLACE_H
#define TOOLS_PLACE_H

#include <stdint.h>

#define PLACES_MAX 1024

struct places { /* Rank i takes the i-th, counted round. */
	uint32_t count;
	uint32_t core_count; /* So many come before a core is used twice. */
	uint32_t cpus[PLACES_MAX];
};

/* The processors that this process may use, neighbours side by side: one of each core, then the
 * second hardware threads. Asks hwloc (and so heeds HWLOC_SYNTHETIC, HWLOC_XMLFILE). */
void places_find(struct places *places);

#endif
