/* test_topology.c -- places on machines made of files as Linux has them, and on this one. */
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/startup/topology.h"
#include "tests/check_main.h"

static uint64_t cpus[RB_CPU_WORDS];
static struct rb_place place;
static char folder[64];

static void set(uint64_t low)
{
	memset(cpus, 0, sizeof(cpus));
	memset(&place, 0x5a, sizeof(place));
	cpus[0] = low;
}

/* ---- Machines ---- */

static int entry_remove(const char *path, const struct stat *status, int flag, struct FTW *ftw)
{
	(void)status;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void folder_make(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/rubato-topology-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void folder_remove(void)
{
	ck_assert_int_eq(nftw(folder, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes `text` as a line to folder/path, whose last folder may not be there yet. */
static void file_write(const char *path, const char *text)
{
	char whole[256];
	FILE *file;

	(void)snprintf(whole, sizeof(whole), "%s/%s", folder, path);
	for (char *at = whole + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		(void)mkdir(whole, 0700);
		*at = '/';
	}
	file = fopen(whole, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_gt(fprintf(file, "%s\n", text), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void core_write(uint32_t cpu, const char *threads)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "cpu/cpu%u/topology/thread_siblings_list", cpu);
	file_write(path, threads);
}

static void node_write(uint32_t node, const char *list)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "node/node%u/cpulist", node);
	file_write(path, list);
}

static void node_write_range(uint32_t node, uint32_t first, uint32_t last)
{
	char list[32];

	(void)snprintf(list, sizeof(list), "%u-%u", first, last);
	node_write(node, list);
}

/* Domains, so many cores in each, so many threads in each core, numbered one after the other. */
static void machine_write(uint32_t nodes, uint32_t cores, uint32_t threads)
{
	uint32_t count = nodes * cores * threads;
	char list[32];

	for (uint32_t cpu = 0; cpu < count; cpu++) {
		uint32_t first = cpu / threads * threads;

		(void)snprintf(list, sizeof(list), threads > 1 ? "%u-%u" : "%u", first,
			       first + threads - 1);
		core_write(cpu, list);
	}
	for (uint32_t node = 0; node < nodes; node++)
		node_write_range(node, node * cores * threads, (node + 1) * cores * threads - 1);
	(void)snprintf(list, sizeof(list), nodes > 1 ? "0-%u" : "0", nodes - 1);
	file_write("node/online", list);
	(void)snprintf(list, sizeof(list), "0-%u", count - 1);
	file_write("cpu/online", list);
}

struct place_case {
	uint64_t cpus, cores, domain;
};

static void cases_hold(const struct place_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		set(cases[i].cpus);
		ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_OK);
		ck_assert_uint_eq(place.cores[0], cases[i].cores);
		ck_assert_uint_eq(place.domain[0], cases[i].domain);
		for (int k = 1; k < RB_CPU_WORDS; k++)
			ck_assert(place.cores[k] == 0 && place.domain[k] == 0);
	}
}

START_TEST(threads_of_a_core_count_once)
{
	static const struct place_case cases[] = {
		{ 0xff, 0x55, 0xff }, /* The whole machine: four cores. */
		{ 0x03, 0x01, 0x0f }, /* Both threads of one core. */
		{ 0x02, 0x01, 0x0f }, /* A core's second thread alone. */
		{ 0xf0, 0x50, 0xf0 }, /* The second domain. */
		{ 0x18, 0x14, 0xff }, /* Across domains. */
	};

	machine_write(2, 2, 2);
	cases_hold(cases, sizeof(cases) / sizeof(cases[0]));
}
END_TEST

/* As firmware numbers most servers: first threads first, so that lists have gaps; a domain of
 * memory alone; a domain that is offline. */
START_TEST(lists_have_gaps)
{
	static const struct place_case cases[] = { { 0xff, 0x0f, 0xff },
						   { 0x10, 0x01, 0x33 },
						   { 0xc0, 0x0c, 0xcc },
						   { 0x21, 0x03, 0x33 } };

	core_write(0, "0,4");
	core_write(4, "0,4");
	core_write(1, "1,5");
	core_write(5, "1,5");
	core_write(2, "2,6");
	core_write(6, "2,6");
	core_write(3, "3,7");
	core_write(7, "3,7");
	node_write(0, "0-1,4-5");
	node_write(2, "2-3,6-7");
	node_write(3, "");
	node_write(4, "0-7");
	file_write("node/online", "0,2-3");
	cases_hold(cases, sizeof(cases) / sizeof(cases[0]));
}
END_TEST

START_TEST(without_numa_the_machine_is_one_domain)
{
	static const struct place_case cases[] = { { 0x04, 0x04, 0x0f } };

	for (uint32_t cpu = 0; cpu < 4; cpu++) {
		char alone[16];

		(void)snprintf(alone, sizeof(alone), "%u", cpu);
		core_write(cpu, alone);
	}
	file_write("cpu/online", "0-3");
	cases_hold(cases, 1);
}
END_TEST

START_TEST(one_domain_is_told_and_several_are_not)
{
	file_write("node/online", "0-2");
	file_write("node/node0/cpulist", "0-3");
	file_write("node/node1/cpulist", "4-7");
	file_write("node/node2/cpulist", ""); /* Memory alone. */
	set(0x0f);
	ck_assert_uint_eq(rb_topology_domain(folder, cpus), 0);
	set(0x40);
	ck_assert_uint_eq(rb_topology_domain(folder, cpus), 1);
	set(0x18);
	ck_assert_uint_eq(rb_topology_domain(folder, cpus), RB_DOMAIN_NONE);
	set(0x100); /* In none of them. */
	ck_assert_uint_eq(rb_topology_domain(folder, cpus), RB_DOMAIN_NONE);
	ck_assert_uint_eq(rb_topology_domain("/nowhere", cpus), RB_DOMAIN_NONE);
}
END_TEST

START_TEST(large_machines_fit)
{
	set(0);
	memset(cpus, 0xff, sizeof(cpus));
	machine_write(8, 64, 2);
	ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_OK);
	ck_assert_uint_eq(rb_cpus_count(place.cores), 512);
	ck_assert_uint_eq(rb_cpus_count(place.domain), 1024);
	node_write(7, "0-4000000000"); /* Ours end at 1023. */
	ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_OK);
	ck_assert_uint_eq(rb_cpus_count(place.domain), 1024);
}
END_TEST

START_TEST(foreign_processors_are_an_error)
{
	machine_write(2, 2, 2);
	set(UINT64_C(1) << 40);
	ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_ERR_SYSTEM);
	set(1);
	ck_assert_int_eq(rb_topology_place("/nonsense", cpus, &place), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "/nonsense"));
	core_write(0, "zero");
	ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_ERR_SYSTEM);
	core_write(0, "0-");
	ck_assert_int_eq(rb_topology_place(folder, cpus, &place), RUBATO_ERR_SYSTEM);
}
END_TEST

/* ---- This machine ---- */

static void cache_write(uint32_t index, const char *level, const char *size, const char *sharers)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "cpu/cpu4/cache/index%u/level", index);
	file_write(path, level);
	(void)snprintf(path, sizeof(path), "cpu/cpu4/cache/index%u/size", index);
	file_write(path, size);
	(void)snprintf(path, sizeof(path), "cpu/cpu4/cache/index%u/shared_cpu_list", index);
	file_write(path, sharers);
}

/* Whoever asks the system's library hears of all caches of a processor together. */
START_TEST(processors_share_a_cache)
{
	struct rb_shared_cache cache;

	machine_write(1, 16, 2);
	rb_topology_shared_cache(folder, 4, &cache);
	ck_assert_uint_eq(cache.size_bytes, 0);
	cache_write(0, "1", "48K", "4-5");
	cache_write(1, "1", "32K", "4-5");
	cache_write(2, "2", "2048K", "4-5");
	rb_topology_shared_cache(folder, 4, &cache);
	ck_assert_uint_eq(cache.size_bytes, 0);
	cache_write(3, "3", "32768K", "0-7");
	rb_topology_shared_cache(folder, 4, &cache);
	ck_assert_uint_eq(cache.size_bytes, 32 << 20);
	ck_assert_uint_eq(cache.sharers, 8);
	ck_assert_uint_eq(cache.cpus, 32);
	file_write("cpu/online", "?");
	rb_topology_shared_cache(folder, 4, &cache);
	ck_assert_uint_eq(cache.size_bytes, 0);
}
END_TEST

/* Of two threads a core; one, and one that four cores share. */
START_TEST(a_core_has_its_part_of_a_cache)
{
	machine_write(1, 8, 2);
	ck_assert_uint_eq(rb_topology_cache(folder, 4), 0);
	cache_write(0, "1", "48K", "4-5");
	ck_assert_uint_eq(rb_topology_cache(folder, 4), 0);
	cache_write(1, "1", "32K", "4-5");
	cache_write(2, "2", "2048K", "4-5");
	cache_write(3, "3", "266240K", "0-15");
	ck_assert_uint_eq(rb_topology_cache(folder, 4), 2 << 20);
	ck_assert_uint_eq(rb_topology_cache(folder, 5), 0);
	cache_write(2, "2", "4096K", "0-7");
	ck_assert_uint_eq(rb_topology_cache(folder, 4), 1 << 20);
	cache_write(2, "3", "4096K", "0-7");
	ck_assert_uint_eq(rb_topology_cache(folder, 4), 0);
}
END_TEST

START_TEST(this_process_has_a_place)
{
	rb_cpus_allowed(cpus);
	ck_assert_uint_ge(rb_cpus_count(cpus), 1);
	for (int domain = 0; domain < 2; domain++) {
		rb_place_here(domain != 0, &place);
		ck_assert_uint_ge(rb_cpus_count(place.cores), 1);
		ck_assert_uint_le(rb_cpus_count(place.cores), rb_cpus_count(cpus));
	}
	for (int k = 0; k < RB_CPU_WORDS; k++)
		ck_assert_uint_eq(cpus[k] & ~place.domain[k], 0);
}
END_TEST

START_TEST(a_bound_process_has_one_core)
{
	cpu_set_t before, one;
	int cpu = 0;

	CPU_ZERO(&one);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	while (!CPU_ISSET((size_t)cpu, &before))
		cpu++;
	CPU_SET((size_t)cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	rb_place_here(false, &place);
	ck_assert_uint_eq(rb_cpus_count(place.cores), 1);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("runtime");
	TCase *made = tcase_create("made"), *here = tcase_create("here");

	tcase_set_timeout(made, 120);
	tcase_add_checked_fixture(made, folder_make, folder_remove);
	tcase_add_test(made, threads_of_a_core_count_once);
	tcase_add_test(made, lists_have_gaps);
	tcase_add_test(made, without_numa_the_machine_is_one_domain);
	tcase_add_test(made, one_domain_is_told_and_several_are_not);
	tcase_add_test(made, large_machines_fit);
	tcase_add_test(made, foreign_processors_are_an_error);
	tcase_add_test(made, a_core_has_its_part_of_a_cache);
	tcase_add_test(made, processors_share_a_cache);
	tcase_add_test(here, this_process_has_a_place);
	tcase_add_test(here, a_bound_process_has_one_core);
	suite_add_tcase(suite, made);
	suite_add_tcase(suite, here);
	return check_suite(suite);
}
