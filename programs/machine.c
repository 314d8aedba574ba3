/* machine.c -- see machine.h. */
#include "programs/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (MACHINE_CPUS_MAX / 64)
#define NODES_MAX MACHINE_CPUS_MAX
#define INDEXES_MAX 16 /* Folders of caches a processor has. */

static bool has(const uint64_t set[WORDS], uint32_t number)
{
	return (set[number / 64] >> number % 64 & 1) != 0;
}

/* A file of numbers as Linux lists them, "0-3,8"; false: it is not there, or is something else. */
static bool list_read(const char *path, uint64_t set[WORDS])
{
	FILE *file = fopen(path, "re");
	bool good = file != NULL;
	int after = ',';

	memset(set, 0, WORDS * sizeof(*set));
	while (good && after == ',') {
		unsigned first, last;

		good = fscanf(file, "%u", &first) == 1;
		after = fgetc(file);
		last = first;
		if (good && after == '-') {
			good = fscanf(file, "%u", &last) == 1;
			after = fgetc(file);
		}
		for (unsigned i = first; good && i <= last && i < MACHINE_CPUS_MAX; i++)
			set[i / 64] |= UINT64_C(1) << i % 64;
	}
	if (file != NULL)
		(void)fclose(file);
	return good && after == '\n';
}

/* The lowest number in a list; MACHINE_NONE: no list. */
static uint32_t list_first(const char *path)
{
	uint64_t set[WORDS];

	if (!list_read(path, set))
		return MACHINE_NONE;
	for (uint32_t i = 0; i < MACHINE_CPUS_MAX; i++)
		if (has(set, i))
			return i;
	return MACHINE_NONE;
}

static bool line_read(const char *path, char *line, size_t line_bytes)
{
	FILE *file = fopen(path, "re");
	bool good = file != NULL && fgets(line, (int)line_bytes, file) != NULL;

	if (file != NULL)
		(void)fclose(file);
	return good;
}

static void caches_read(const char *folder, struct machine *machine, struct machine_cpu *cpu)
{
	char path[640], line[32];

	for (uint32_t level = 0; level < MACHINE_LEVELS; level++)
		cpu->cache[level] = MACHINE_NONE;
	for (uint32_t i = 0; i < INDEXES_MAX; i++) {
		(void)snprintf(path, sizeof(path), "%s/cache/index%u/level", folder, i);
		if (!line_read(path, line, sizeof(line)))
			return;
		unsigned long level = strtoul(line, NULL, 10) - 1;

		(void)snprintf(path, sizeof(path), "%s/cache/index%u/type", folder, i);
		if (level >= MACHINE_LEVELS || !line_read(path, line, sizeof(line)) ||
		    strcmp(line, "Instruction\n") == 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/cache/index%u/shared_cpu_list", folder, i);
		cpu->cache[level] = list_first(path);
		(void)snprintf(path, sizeof(path), "%s/cache/index%u/size", folder, i);
		if (machine->cache_bytes[level] == 0 && line_read(path, line, sizeof(line)))
			machine->cache_bytes[level] = strtoull(line, NULL, 10) << 10; /* "48K" */
	}
}

static void cpu_read(const char *system, uint32_t number, struct machine *machine)
{
	struct machine_cpu *cpu = &machine->cpus[machine->cpu_count++];
	char folder[512], path[640];

	(void)snprintf(folder, sizeof(folder), "%.400s/cpu/cpu%u", system, number);
	cpu->number = number;
	cpu->domain = MACHINE_NONE;
	(void)snprintf(path, sizeof(path), "%s/topology/thread_siblings_list", folder);
	cpu->core = list_first(path);
	(void)snprintf(path, sizeof(path), "%s/topology/core_siblings_list", folder);
	cpu->package = list_first(path);
	if (cpu->core == MACHINE_NONE) /* Nothing is said: a core of its own, one package. */
		cpu->core = number;
	if (cpu->package == MACHINE_NONE)
		cpu->package = 0;
	caches_read(folder, machine, cpu);
}

static void domains_read(const char *system, struct machine *machine)
{
	uint64_t nodes[WORDS], node[WORDS];
	char path[512];

	(void)snprintf(path, sizeof(path), "%.400s/node/online", system);
	if (!list_read(path, nodes))
		return;
	for (uint32_t i = 0; i < NODES_MAX; i++) {
		if (!has(nodes, i))
			continue;
		machine->domain_count++;
		(void)snprintf(path, sizeof(path), "%.400s/node/node%u/cpulist", system, i);
		if (!list_read(path, node))
			continue;
		for (uint32_t k = 0; k < machine->cpu_count; k++)
			if (has(node, machine->cpus[k].number))
				machine->cpus[k].domain = i;
	}
}

static int compare(const void *left, const void *right)
{
	const struct machine_cpu *a = left, *b = right;
	const uint32_t as[] = { a->package, a->domain, a->cache[MACHINE_LEVELS - 1], a->core,
				a->number };
	const uint32_t bs[] = { b->package, b->domain, b->cache[MACHINE_LEVELS - 1], b->core,
				b->number };

	for (size_t i = 0; i < sizeof(as) / sizeof(as[0]); i++)
		if (as[i] != bs[i])
			return as[i] < bs[i] ? -1 : 1;
	return 0;
}

bool machine_read(const char *system, struct machine *machine)
{
	uint64_t online[WORDS];
	char path[512];

	memset(machine, 0, sizeof(*machine));
	(void)snprintf(path, sizeof(path), "%.400s/cpu/online", system);
	if (!list_read(path, online))
		return false;
	for (uint32_t i = 0; i < MACHINE_CPUS_MAX; i++)
		if (has(online, i))
			cpu_read(system, i, machine);
	domains_read(system, machine);
	qsort(machine->cpus, machine->cpu_count, sizeof(machine->cpus[0]), compare);
	return machine->cpu_count > 0;
}
