/* test_topology.c -- places on machines that hwloc makes up, and on this one. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/topology.h"
#include "tests/check_main.h"

static uint64_t cpus[RB_CPU_WORDS];
static struct rb_place place;

static void set(uint64_t low)
{
	memset(cpus, 0, sizeof(cpus));
	memset(&place, 0x5a, sizeof(place));
	cpus[0] = low;
}

#ifdef RB_HAVE_HWLOC
/* Two packages, each a domain of 2 cores with 2 threads: processors 0 to 3, and 4 to 7. */
#define MACHINE "pack:2 [numa] core:2 pu:2"

START_TEST(threads_of_a_core_count_once)
{
	static const struct {
		uint64_t cpus, cores, domain;
	} cases[] = {
		{ 0xff, 0x55, 0xff }, /* The whole machine: four cores. */
		{ 0x03, 0x01, 0x0f }, /* Both threads of one core. */
		{ 0x02, 0x01, 0x0f }, /* A core's second thread alone. */
		{ 0xf0, 0x50, 0xf0 }, /* The second domain. */
		{ 0x18, 0x14, 0xff }, /* Across domains. */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(cases[i].cpus);
		ck_assert_int_eq(rb_topology_place(MACHINE, cpus, &place), RUBATO_OK);
		ck_assert_uint_eq(place.cores[0], cases[i].cores);
		ck_assert_uint_eq(place.domain[0], cases[i].domain);
		for (int k = 1; k < RB_CPU_WORDS; k++)
			ck_assert(place.cores[k] == 0 && place.domain[k] == 0);
	}
}
END_TEST

START_TEST(large_machines_fit)
{
	set(0);
	memset(cpus, 0xff, sizeof(cpus));
	ck_assert_int_eq(rb_topology_place("numa:8 core:64 pu:2", cpus, &place), RUBATO_OK);
	ck_assert_uint_eq(rb_cpus_count(place.cores), 512);
	ck_assert_uint_eq(rb_cpus_count(place.domain), 1024);
}
END_TEST

START_TEST(foreign_processors_are_an_error)
{
	set(UINT64_C(1) << 40);
	ck_assert_int_eq(rb_topology_place(MACHINE, cpus, &place), RUBATO_ERR_SYSTEM);
	set(1);
	ck_assert_int_eq(rb_topology_place("nonsense", cpus, &place), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(rb_fail_text(), "nonsense"));
}
END_TEST
#endif

START_TEST(this_process_has_a_place)
{
	rb_cpus_allowed(cpus);
	ck_assert_uint_ge(rb_cpus_count(cpus), 1);
	for (int domain = 0; domain < 2; domain++) {
		rb_place_here(domain != 0, &place);
		ck_assert_uint_ge(rb_cpus_count(place.cores), 1);
		ck_assert_uint_le(rb_cpus_count(place.cores), rb_cpus_count(cpus));
	}
#ifdef RB_HAVE_HWLOC
	for (int k = 0; k < RB_CPU_WORDS; k++)
		ck_assert_uint_eq(cpus[k] & ~place.domain[k], 0);
#endif
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
	TCase *tc = tcase_create("topology");

#ifdef RB_HAVE_HWLOC
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, threads_of_a_core_count_once);
	tcase_add_test(tc, large_machines_fit);
	tcase_add_test(tc, foreign_processors_are_an_error);
#endif
	tcase_add_test(tc, this_process_has_a_place);
	tcase_add_test(tc, a_bound_process_has_one_core);
	return check_main("runtime", tc);
}
