/* topology.c -- see topology.h. */
#include "runtime/topology.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#ifdef RB_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "base/log.h"

#define CPUS_MAX (64 * RB_CPU_WORDS)
_Static_assert(CPUS_MAX <= CPU_SETSIZE, "every bit of ours is one of the system's");

void rb_cpus_allowed(uint64_t cpus[RB_CPU_WORDS])
{
	cpu_set_t set;

	memset(cpus, 0, RB_CPU_WORDS * sizeof(*cpus));
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return;
	for (uint32_t i = 0; i < CPUS_MAX; i++)
		if (CPU_ISSET(i, &set))
			cpus[i / 64] |= UINT64_C(1) << i % 64;
}

uint32_t rb_cpus_count(const uint64_t cpus[RB_CPU_WORDS])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < RB_CPU_WORDS; i++)
		count += (uint32_t)__builtin_popcountll(cpus[i]);
	return count;
}

#ifdef RB_HAVE_HWLOC
static bool has(const uint64_t cpus[RB_CPU_WORDS], unsigned cpu)
{
	return cpu < CPUS_MAX && (cpus[cpu / 64] >> cpu % 64 & 1) != 0;
}

/* The lowest processor of `set`; sets it in `cpus`. */
static void first_add(hwloc_const_cpuset_t set, uint64_t cpus[RB_CPU_WORDS])
{
	int cpu = hwloc_bitmap_first(set);

	if (cpu >= 0 && cpu < CPUS_MAX)
		cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static bool touches(hwloc_const_cpuset_t set, const uint64_t cpus[RB_CPU_WORDS])
{
	int cpu = hwloc_bitmap_first(set);

	while (cpu >= 0 && !has(cpus, (unsigned)cpu))
		cpu = hwloc_bitmap_next(set, cpu);
	return cpu >= 0;
}

static void place_find(hwloc_topology_t topology, const uint64_t cpus[RB_CPU_WORDS],
		       struct rb_place *out)
{
	hwloc_obj_t core = NULL, domain = NULL;

	memset(out, 0, sizeof(*out));
	while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL)
		if (touches(core->cpuset, cpus))
			first_add(core->cpuset, out->cores);
	while ((domain = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, domain)) !=
	       NULL) {
		if (!touches(domain->cpuset, cpus))
			continue;
		for (int cpu = hwloc_bitmap_first(domain->cpuset); cpu >= 0 && cpu < CPUS_MAX;
		     cpu = hwloc_bitmap_next(domain->cpuset, cpu))
			out->domain[cpu / 64] |= UINT64_C(1) << cpu % 64;
	}
}

rubato_status rb_topology_place(const char *description, const uint64_t cpus[RB_CPU_WORDS],
				struct rb_place *out)
{
	hwloc_topology_t topology;

	if (hwloc_topology_init(&topology) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "hwloc does not start");
	if ((description != NULL && hwloc_topology_set_synthetic(topology, description) != 0) ||
	    hwloc_topology_load(topology) != 0) {
		hwloc_topology_destroy(topology);
		return RB_FAIL(RUBATO_ERR_SYSTEM, "hwloc cannot read %s",
			       description != NULL ? description : "this machine");
	}
	place_find(topology, cpus, out);
	hwloc_topology_destroy(topology);
	return rb_cpus_count(out->cores) > 0
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_SYSTEM, "hwloc knows none of our processors");
}
#else
rubato_status rb_topology_place(const char *description, const uint64_t cpus[RB_CPU_WORDS],
				struct rb_place *out)
{
	(void)description;
	(void)cpus;
	(void)out;
	return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "this build has no hwloc");
}
#endif

static bool threads_share_cores(void)
{
	FILE *file = fopen("/sys/devices/system/cpu/smt/active", "re");
	int c = file != NULL ? fgetc(file) : '0';

	if (file != NULL)
		(void)fclose(file);
	return c == '1';
}

void rb_place_here(bool domain, struct rb_place *out)
{
	uint64_t cpus[RB_CPU_WORDS];

	rb_cpus_allowed(cpus);
	if ((domain || threads_share_cores()) && rb_topology_place(NULL, cpus, out) == RUBATO_OK)
		return;
	memcpy(out->cores, cpus, sizeof(out->cores));
	memset(out->domain, 0, sizeof(out->domain)); /* Unknown. */
}
