/* place.c -- see place.h. */
#include "tools/place.h"

#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

static void place_add(struct places *places, unsigned cpu)
{
	if (places->count < PLACES_MAX)
		places->cpus[places->count++] = cpu;
}

/* Those processors whose number within their core is `turn`; whether there are any. */
static bool turn_add(struct places *places, hwloc_topology_t topology, hwloc_const_cpuset_t allowed,
		     int turn)
{
	hwloc_obj_t core = NULL;
	bool any = false;

	while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
		int left = turn, cpu = hwloc_bitmap_first(core->cpuset);

		while (cpu >= 0 && (!hwloc_bitmap_isset(allowed, (unsigned)cpu) || left-- > 0))
			cpu = hwloc_bitmap_next(core->cpuset, cpu);
		if (cpu >= 0)
			place_add(places, (unsigned)cpu);
		any |= cpu >= 0;
	}
	return any;
}

/* A made-up machine allows all it has; on ours this process may be bound already. */
static void allowed_find(hwloc_topology_t topology, hwloc_bitmap_t allowed)
{
	hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
	if (hwloc_topology_is_thissystem(topology))
		(void)hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS);
}

static void places_by_affinity(struct places *places)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	(void)sched_getaffinity(0, sizeof(set), &set);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			place_add(places, cpu);
	places->core_count = places->count;
}

void places_find(struct places *places)
{
	hwloc_topology_t topology;
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc();

	memset(places, 0, sizeof(*places));
	if (allowed != NULL && hwloc_topology_init(&topology) == 0) {
		if (hwloc_topology_load(topology) == 0) {
			allowed_find(topology, allowed);
			for (int turn = 0; turn_add(places, topology, allowed, turn); turn++)
				if (turn == 0)
					places->core_count = places->count;
		}
		hwloc_topology_destroy(topology);
	}
	hwloc_bitmap_free(allowed);
	if (places->count == 0)
		places_by_affinity(places);
}
