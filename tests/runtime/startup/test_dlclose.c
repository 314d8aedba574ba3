/*
 * test_dlclose.c -- a plugin's host closes what it has loaded, while the plugin's communicators are
 * open: their threads are in the library, which must stay where it is. Argument: its path.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "rubato.h"
#include "tests/check_main.h"

#define RANKS 2u

static const char *path;

/* What a plugin has of the library: nothing is linked. */
static struct {
	rubato_status (*id_create)(rubato_id *);
	rubato_status (*init_id)(rubato_comm **, const rubato_id *, uint32_t, uint32_t,
				 const rubato_options *);
	rubato_status (*allreduce)(rubato_comm *, const void *, void *, uint64_t, rubato_type,
				   rubato_operator);
	rubato_status (*finalize)(rubato_comm *);
} calls;

static void function_find(void *library, const char *name, void *into)
{
	*(void **)into = dlsym(library, name);
	ck_assert_msg(*(void **)into != NULL, "%s", name);
}

struct member {
	pthread_t thread;
	uint32_t rank;
	const rubato_id *id;
	pthread_barrier_t *closed;
	rubato_status opened, reduced, finalized;
	int32_t sum;
};

static void *member_main(void *arg)
{
	struct member *m = arg;
	int32_t mine = (int32_t)m->rank + 1;
	rubato_comm *comm = NULL;

	m->opened = calls.init_id(&comm, m->id, m->rank, RANKS, NULL);
	(void)pthread_barrier_wait(m->closed); /* All are open; */
	(void)pthread_barrier_wait(m->closed); /* the host has closed it. */
	if (m->opened != RUBATO_OK)
		return NULL;
	m->reduced = calls.allreduce(comm, &mine, &m->sum, 1, RUBATO_INT32, RUBATO_SUM);
	m->finalized = calls.finalize(comm);
	return NULL;
}

START_TEST(who_closes_the_library_leaves_it_to_its_threads)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct member members[RANKS];
	pthread_barrier_t closed;
	rubato_id id;

	ck_assert_msg(library != NULL, "%s", path);
	function_find(library, "rubato_id_create", &calls.id_create);
	function_find(library, "rubato_init_id", &calls.init_id);
	function_find(library, "rubato_allreduce", &calls.allreduce);
	function_find(library, "rubato_finalize", &calls.finalize);
	ck_assert_int_eq(calls.id_create(&id), RUBATO_OK);
	ck_assert_int_eq(pthread_barrier_init(&closed, NULL, RANKS + 1), 0);
	for (uint32_t r = 0; r < RANKS; r++) {
		members[r] = (struct member) { .rank = r, .id = &id, .closed = &closed };
		ck_assert_int_eq(pthread_create(&members[r].thread, NULL, member_main, &members[r]),
				 0);
	}
	(void)pthread_barrier_wait(&closed);
	ck_assert_int_eq(dlclose(library), 0);
	(void)pthread_barrier_wait(&closed);
	for (uint32_t r = 0; r < RANKS; r++) {
		ck_assert_int_eq(pthread_join(members[r].thread, NULL), 0);
		ck_assert_int_eq(members[r].opened, RUBATO_OK);
		ck_assert_int_eq(members[r].reduced, RUBATO_OK);
		ck_assert_int_eq(members[r].sum, 3);
		ck_assert_int_eq(members[r].finalized, RUBATO_OK);
	}
	(void)pthread_barrier_destroy(&closed);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("dlclose");

	if (argc < 2)
		return 2;
	path = argv[1];
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, who_closes_the_library_leaves_it_to_its_threads);
	return check_main("dlclose", tc);
}
