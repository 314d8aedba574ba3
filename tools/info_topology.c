/* info_topology.c -- what hwloc sees, and on which cores rubato-run --bind core puts ranks. */
#include <hwloc.h>

#include "tools/info.h"
#include "tools/place.h"

static const struct {
	const char *name;
	hwloc_obj_type_t type;
} counted[] = {
	{ "packages", HWLOC_OBJ_PACKAGE },
	{ "numa_nodes", HWLOC_OBJ_NUMANODE },
	{ "cores", HWLOC_OBJ_CORE },
	{ "hardware_threads", HWLOC_OBJ_PU },
};

static const struct {
	const char *name;
	hwloc_obj_type_t type;
} caches[] = {
	{ "L1", HWLOC_OBJ_L1CACHE },
	{ "L2", HWLOC_OBJ_L2CACHE },
	{ "L3", HWLOC_OBJ_L3CACHE },
};

static void counts(struct info *info, json_t *json, hwloc_topology_t topology)
{
	json_t *list = json_array();

	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
		int count = hwloc_get_nbobjs_by_type(topology, counted[i].type);

		if (info->text != NULL)
			(void)fprintf(info->text, "  %-17s %d\n", counted[i].name, count);
		json_object_set_new(json, counted[i].name, json_integer(count > 0 ? count : 0));
	}
	json_object_set_new(json, "caches", list);
	for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
		hwloc_obj_t cache = hwloc_get_obj_by_type(topology, caches[i].type, 0);
		int count = hwloc_get_nbobjs_by_type(topology, caches[i].type);

		if (cache == NULL)
			continue;
		int sharers = hwloc_bitmap_weight(cache->cpuset);

		if (info->text != NULL)
			(void)fprintf(info->text, "  %-17s %d of %llu KiB, each for %d threads\n",
				      caches[i].name, count,
				      (unsigned long long)cache->attr->cache.size >> 10, sharers);
		json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:i}", "level", caches[i].name,
						      "count", count, "bytes",
						      (json_int_t)cache->attr->cache.size,
						      "threads", sharers));
	}
}

/* The object of a type that holds a processor: its number, or -1. */
static int above(hwloc_obj_t unit, hwloc_topology_t topology, hwloc_obj_type_t type)
{
	hwloc_obj_t found = NULL;

	if (unit == NULL)
		return -1;
	while ((found = hwloc_get_next_obj_by_type(topology, type, found)) != NULL)
		if (hwloc_bitmap_isset(found->cpuset, unit->os_index))
			return (int)found->logical_index;
	return -1;
}

static void placement(struct info *info, json_t *json, hwloc_topology_t topology)
{
	json_t *list = json_array();
	struct places places;

	places_find(&places);
	json_object_set_new(json, "placement", list);
	uint32_t ranks = info->rank_count > 0 ? info->rank_count : places.core_count;

	if (info->text != NULL)
		(void)fprintf(info->text, "placement of %u ranks by rubato-run --bind core\n",
			      ranks);
	for (uint32_t rank = 0; rank < ranks && places.count > 0; rank++) {
		uint32_t cpu = places.cpus[rank % places.count];
		hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology, cpu);
		int core = above(unit, topology, HWLOC_OBJ_CORE);
		int domain = above(unit, topology, HWLOC_OBJ_NUMANODE);

		if (info->text != NULL)
			(void)fprintf(info->text, "  rank %-4u cpu %u, core %d, NUMA domain %d%s\n",
				      rank, cpu, core, domain,
				      rank >= places.core_count ? ", shared" : "");
		json_array_append_new(list, json_pack("{s:i,s:i,s:i,s:i,s:b}", "rank", (int)rank,
						      "cpu", (int)cpu, "core", core, "numa_node",
						      domain, "shared", rank >= places.core_count));
	}
}

bool info_topology(struct info *info)
{
	hwloc_topology_t topology;
	json_t *json = json_object();

	json_object_set_new(info->json, "topology", json);
	if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0) {
		(void)fprintf(stderr, "%s: hwloc cannot read this machine's topology\n", INFO);
		return false;
	}
	if (info->text != NULL)
		(void)fprintf(info->text, "topology\n");
	counts(info, json, topology);
	placement(info, json, topology);
	hwloc_topology_destroy(topology);
	return true;
}
