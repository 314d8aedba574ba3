/* topology.c -- see topology.h. */
#include "runtime/startup/topology.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define SYSTEM "/sys/devices/system"
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

static bool has(const uint64_t cpus[RB_CPU_WORDS], uint64_t cpu)
{
	return cpu < CPUS_MAX && (cpus[cpu / 64] >> cpu % 64 & 1) != 0;
}

/* A file of numbers as Linux lists them, "0-3,8"; false: it is not there, or is something else. */
static bool list_read(const char *path, uint64_t set[RB_CPU_WORDS])
{
	FILE *file = fopen(path, "re");
	bool good = file != NULL;
	char after = ',';

	memset(set, 0, RB_CPU_WORDS * sizeof(*set));
	while (good && after == ',') {
		unsigned first, last;

		good = fscanf(file, "%u", &first) == 1;
		after = (char)fgetc(file);
		last = first;
		if (good && after == '-') {
			good = fscanf(file, "%u", &last) == 1;
			after = (char)fgetc(file);
		}
		for (unsigned i = first; good && i <= last && i < CPUS_MAX; i++)
			set[i / 64] |= UINT64_C(1) << i % 64;
	}
	if (file != NULL)
		(void)fclose(file);
	return good && after == '\n';
}

/* Of each core, its first processor, wherever we may run on the core. */
static void cores_find(const char *system, const uint64_t cpus[RB_CPU_WORDS], struct rb_place *out)
{
	for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++) {
		uint64_t threads[RB_CPU_WORDS];
		uint32_t first = 0;
		char path[512];

		if (!has(cpus, cpu))
			continue;
		(void)snprintf(path, sizeof(path), "%.400s/cpu/cpu%u/topology/thread_siblings_list",
			       system, cpu);
		if (!list_read(path, threads))
			continue;
		while (first < cpu && !has(threads, first))
			first++;
		out->cores[first / 64] |= UINT64_C(1) << first % 64;
	}
}

static void domains_find(const char *system, const uint64_t cpus[RB_CPU_WORDS],
			 struct rb_place *out)
{
	uint64_t nodes[RB_CPU_WORDS], node[RB_CPU_WORDS];
	char path[512];

	(void)snprintf(path, sizeof(path), "%.400s/node/online", system);
	if (!list_read(path, nodes)) { /* A kernel without NUMA: one domain. */
		(void)snprintf(path, sizeof(path), "%.400s/cpu/online", system);
		(void)list_read(path, out->domain);
		return;
	}
	for (uint32_t i = 0; i < CPUS_MAX; i++) {
		bool ours = false;

		if (!has(nodes, i))
			continue;
		(void)snprintf(path, sizeof(path), "%.400s/node/node%u/cpulist", system, i);
		if (!list_read(path, node)) /* Memory alone has an empty list. */
			continue;
		for (uint32_t word = 0; word < RB_CPU_WORDS; word++)
			ours |= (node[word] & cpus[word]) != 0;
		for (uint32_t word = 0; ours && word < RB_CPU_WORDS; word++)
			out->domain[word] |= node[word];
	}
}

rubato_status rb_topology_place(const char *system, const uint64_t cpus[RB_CPU_WORDS],
				struct rb_place *out)
{
	memset(out, 0, sizeof(*out));
	cores_find(system, cpus, out);
	domains_find(system, cpus, out);
	return rb_cpus_count(out->cores) > 0
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_SYSTEM, "%s knows none of our processors", system);
}

uint32_t rb_topology_domain(const char *system, const uint64_t cpus[RB_CPU_WORDS])
{
	uint64_t nodes[RB_CPU_WORDS], node[RB_CPU_WORDS];
	uint32_t only = RB_DOMAIN_NONE;
	char path[512];

	(void)snprintf(path, sizeof(path), "%.400s/node/online", system);
	if (!list_read(path, nodes))
		return RB_DOMAIN_NONE;
	for (uint32_t i = 0; i < CPUS_MAX; i++) {
		uint64_t inside = 0, outside = 0;

		if (!has(nodes, i))
			continue;
		(void)snprintf(path, sizeof(path), "%.400s/node/node%u/cpulist", system, i);
		if (!list_read(path, node)) /* Memory alone has an empty list. */
			continue;
		for (uint32_t word = 0; word < RB_CPU_WORDS; word++) {
			inside |= cpus[word] & node[word];
			outside |= cpus[word] & ~node[word];
		}
		if (inside != 0 && outside != 0)
			return RB_DOMAIN_NONE;
		if (inside != 0)
			only = i;
	}
	return only;
}

uint32_t rb_domain_here(void)
{
	uint64_t cpus[RB_CPU_WORDS];

	rb_cpus_allowed(cpus);
	return rb_topology_domain(SYSTEM, cpus);
}

/* So many KiB, or a plain number; 0: it is not there. */
static uint64_t number_read(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned number = 0;
	bool good = file != NULL && fscanf(file, "%u", &number) == 1;

	if (file != NULL)
		(void)fclose(file);
	return good ? number : 0;
}

/* The size of that processor's cache of that level, and who share it. */
static bool cache_read(const char *system, uint32_t cpu, uint64_t level, uint64_t *size_bytes,
		       uint64_t sharers[RB_CPU_WORDS])
{
	uint64_t found = 1;
	char path[512];
	int folder = 0;

	for (uint32_t i = 0; found > 0 && found < level; i++) { /* Of data, and of instructions. */
		folder = snprintf(path, sizeof(path), "%.400s/cpu/cpu%u/cache/index%u/", system,
				  cpu, i);
		(void)snprintf(path + folder, sizeof(path) - (size_t)folder, "level");
		found = number_read(path);
	}
	(void)snprintf(path + folder, sizeof(path) - (size_t)folder, "shared_cpu_list");
	if (found != level || !list_read(path, sharers))
		return false;
	(void)snprintf(path + folder, sizeof(path) - (size_t)folder, "size");
	*size_bytes = number_read(path) << 10;
	return true;
}

uint64_t rb_topology_cache(const char *system, uint32_t cpu)
{
	uint64_t sharers[RB_CPU_WORDS], threads[RB_CPU_WORDS], size_bytes;
	char path[512];

	if (!cache_read(system, cpu, 2, &size_bytes, sharers))
		return 0;
	(void)snprintf(path, sizeof(path), "%.400s/cpu/cpu%u/topology/thread_siblings_list", system,
		       cpu);
	if (!list_read(path, threads) || rb_cpus_count(sharers) < rb_cpus_count(threads))
		return 0;
	return size_bytes * rb_cpus_count(threads) / rb_cpus_count(sharers);
}

uint64_t rb_cache_of(uint32_t cpu)
{
	return rb_topology_cache(SYSTEM, cpu);
}

void rb_topology_shared_cache(const char *system, uint32_t cpu, struct rb_shared_cache *out)
{
	uint64_t sharers[RB_CPU_WORDS], all[RB_CPU_WORDS];
	char path[512];

	memset(out, 0, sizeof(*out));
	(void)snprintf(path, sizeof(path), "%.400s/cpu/online", system);
	if (!cache_read(system, cpu, 3, &out->size_bytes, sharers) || !list_read(path, all)) {
		out->size_bytes = 0;
		return;
	}
	out->sharers = rb_cpus_count(sharers);
	out->cpus = rb_cpus_count(all);
}

void rb_shared_cache_of(uint32_t cpu, struct rb_shared_cache *out)
{
	rb_topology_shared_cache(SYSTEM, cpu, out);
}

uint32_t rb_cache_ranks(const struct rb_shared_cache *cache, uint32_t host_ranks)
{
	uint64_t ranks = cache->cpus == 0 ? 0 : (uint64_t)host_ranks * cache->sharers / cache->cpus;

	return ranks > 0 ? (uint32_t)ranks : 1;
}

static bool threads_share_cores(void)
{
	FILE *file = fopen(SYSTEM "/cpu/smt/active", "re");
	int c = file != NULL ? fgetc(file) : '0';

	if (file != NULL)
		(void)fclose(file);
	return c == '1';
}

void rb_place_here(bool domain, struct rb_place *out)
{
	uint64_t cpus[RB_CPU_WORDS];

	rb_cpus_allowed(cpus);
	if ((domain || threads_share_cores()) && rb_topology_place(SYSTEM, cpus, out) == RUBATO_OK)
		return;
	memcpy(out->cores, cpus, sizeof(out->cores));
	memset(out->domain, 0, sizeof(out->domain)); /* Unknown. */
}
