/* info_topology.c -- what a machine is made of, and where rubato-run --bind core puts ranks. */
#include <stdlib.h>

#include "programs/place.h"
#include "tools/info/info.h"

static void count_say(struct info *info, json_t *json, const char *name, uint32_t count)
{
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-17s %u\n", name, count);
	json_object_set_new(json, name, json_integer(count));
}

static void cache_say(struct info *info, json_t *list, const struct machine *machine,
		      uint32_t level)
{
	uint32_t count = 0, sharers = 0, first = MACHINE_NONE;
	char name[8];

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];

		count += cpu->cache[level] == cpu->number;
		if (first == MACHINE_NONE)
			first = cpu->cache[level];
		sharers += first != MACHINE_NONE && cpu->cache[level] == first;
	}
	if (count == 0)
		return;
	(void)snprintf(name, sizeof(name), "L%u", level + 1);
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-17s %u of %llu KiB, each for %u threads\n", name,
			      count, (unsigned long long)machine->cache_bytes[level] >> 10,
			      sharers);
	json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I}", "level", name, "count",
					      (json_int_t)count, "bytes",
					      (json_int_t)machine->cache_bytes[level], "threads",
					      (json_int_t)sharers));
}

static void counts(struct info *info, json_t *json, const struct machine *machine)
{
	uint32_t packages = 0, cores = 0;
	json_t *list = json_array();

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		packages += machine->cpus[i].package == machine->cpus[i].number;
		cores += machine->cpus[i].core == machine->cpus[i].number;
	}
	count_say(info, json, "packages", packages);
	count_say(info, json, "numa_nodes", machine->domain_count);
	count_say(info, json, "cores", cores);
	count_say(info, json, "hardware_threads", machine->cpu_count);
	json_object_set_new(json, "caches", list);
	for (uint32_t level = 0; level < MACHINE_LEVELS; level++)
		cache_say(info, list, machine, level);
}

/* A processor's core, counted along the machine, and its NUMA node; -1: not known. */
static void about(const struct machine *machine, uint32_t number, int *core, int *domain)
{
	*core = *domain = -1;
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];

		*core += cpu->core == cpu->number;
		if (cpu->number != number)
			continue;
		*domain = cpu->domain == MACHINE_NONE ? -1 : (int)cpu->domain;
		return;
	}
	*core = -1;
}

static void placement(struct info *info, json_t *json, const struct machine *machine,
		      const struct places *places)
{
	uint32_t ranks = info->rank_count > 0 ? info->rank_count : places->core_count;
	json_t *list = json_array();

	json_object_set_new(json, "placement", list);
	if (info->text != NULL)
		(void)fprintf(info->text, "placement of %u ranks by rubato-run --bind core\n",
			      ranks);
	for (uint32_t rank = 0; rank < ranks && places->count > 0; rank++) {
		uint32_t cpu = places->cpus[rank % places->count];
		bool shared = rank >= places->core_count;
		int core, domain;

		about(machine, cpu, &core, &domain);
		if (info->text != NULL)
			(void)fprintf(info->text, "  rank %-4u cpu %u, core %d, NUMA domain %d%s\n",
				      rank, cpu, core, domain, shared ? ", shared" : "");
		json_array_append_new(list, json_pack("{s:i,s:i,s:i,s:i,s:b}", "rank", (int)rank,
						      "cpu", (int)cpu, "core", core, "numa_node",
						      domain, "shared", shared));
	}
}

bool info_topology(struct info *info)
{
	const char *system = info->system != NULL ? info->system : MACHINE_HERE;
	struct machine *machine = malloc(sizeof(*machine));
	struct places places;
	json_t *json = json_object();

	json_object_set_new(info->json, "topology", json);
	if (machine == NULL || !machine_read(system, machine)) {
		(void)fprintf(stderr, "%s: %s tells of no processors\n", INFO, system);
		free(machine);
		return false;
	}
	if (info->system != NULL)
		places_find(machine, NULL, &places);
	else
		places_find_here(&places);
	if (info->text != NULL)
		(void)fprintf(info->text, "topology\n");
	counts(info, json, machine);
	placement(info, json, machine, &places);
	free(machine);
	return true;
}
