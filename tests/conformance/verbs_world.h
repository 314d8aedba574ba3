/*
 * verbs_world.h -- a world of mock RDMA devices for each run of ranks, and what must be true of it
 * at the end: no send found no receive, nobody reached memory that was not registered for it, and
 * no completion queue was too short.
 */
#ifndef RB_TESTS_VERBS_WORLD_H
#define RB_TESTS_VERBS_WORLD_H

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "conformance.h"
#include "tests/verbs-mock/mock.h"

static void *verbs_world_symbol(const char *name)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = library == NULL ? NULL : dlsym(library, name);

	ck_assert_msg(symbol != NULL, "the mock of libibverbs is not what is found: %s", dlerror());
	return symbol;
}

/* Of processes it is a file, which goes when its last user does. `config`: VERBS_MOCK_CONFIG. */
static void verbs_world_make(const char *path, const char *config)
{
	ck_assert_int_eq(setenv("VERBS_MOCK_CONFIG", config, 1), 0);
	if (path != NULL)
		ck_assert_int_eq(setenv("VERBS_MOCK", path, 1), 0);
	else
		ck_assert_int_eq(unsetenv("VERBS_MOCK"), 0);
}

static void verbs_world_check(void)
{
	void (*counters)(struct mock_counters *) =
		(void (*)(struct mock_counters *))(uintptr_t)verbs_world_symbol("mock_counters");
	struct mock_counters c;

	counters(&c);
	ck_assert_uint_eq(c.rnr, 0);
	/* Of a cancelled receive whose sender did not answer in time: it is borne (verbs-falls). */
	ck_assert_uint_eq(c.outside_remote, c.stale_remote);
	ck_assert_uint_eq(c.outside_local, 0);
	ck_assert_uint_eq(c.cq_overruns, 0);
	ck_assert_uint_eq(c.length_errors, 0);
	ck_assert_uint_eq(c.left_open, 0);
	ck_assert_uint_eq(c.early_sends, 0);
	ck_assert_uint_eq(c.sent_in_place, 0);
}

static inline bool verbs_world_threads(const char *config, uint32_t rank_count,
				       void (*rank_main)(void *arg, uint32_t rank), void *arg)
{
	bool good;

	verbs_world_make(NULL, config);
	good = conform_run_threads(NULL, rank_count, rank_main, arg);
	verbs_world_check();
	return good;
}

static inline bool verbs_world_processes(const char *config, uint32_t rank_count,
					 void (*rank_main)(void *arg, uint32_t rank), void *arg)
{
	char path[64];
	bool good;

	(void)snprintf(path, sizeof(path), "/dev/shm/rubato-verbs-%d", (int)getpid());
	verbs_world_make(path, config);
	good = conform_run_processes(NULL, rank_count, rank_main, arg);
	verbs_world_check();
	ck_assert_int_eq(unlink(path), 0);
	return good;
}

#endif
