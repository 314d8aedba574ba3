/*
 * test_lies.c -- a rank of the job that says what is not so (where its memory is), or nothing where
 * it is awaited. The others judge what it says before they use it, and end with an error that names
 * it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

#define ELEMENTS 300000u /* Much more than what is left behind the word. */
#define LIAR 1u

static struct rb_transport_ops ops;
static _Atomic(struct rb_endpoint *) lying; /* The endpoint that lies from now on; NULL: none. */

static rubato_status open_ours(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	RB_TRY(rb_transport_shm.open(options, out));
	(*out)->ops = &ops;
	return RUBATO_OK;
}

/* Near the end of the heap of a gigabyte that local_run gives each rank. */
static uint64_t lie(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	if (ep == lying)
		return ((uint64_t)1 << 30) - 4096;
	return rb_transport_shm.word_of(ep, address, size_bytes);
}

static rubato_status call(rubato_comm *comm, int which, void *in, void *out)
{
	static const char *const names[] = { "allreduce", "broadcast", "gather", "alltoall" };

	RB_TRY(rubato_set_algorithm(comm, names[which], "direct"));
	switch (which) {
	case 0:
		return rubato_allreduce(comm, in, out, ELEMENTS, RUBATO_FLOAT32, RUBATO_SUM);
	case 1:
		return rubato_broadcast(comm, out, ELEMENTS, RUBATO_FLOAT32, LIAR);
	case 2:
		return rubato_gather(comm, in, out, ELEMENTS / 3, RUBATO_FLOAT32, LIAR);
	default:
		return rubato_alltoall(comm, in, out, ELEMENTS / 3, RUBATO_FLOAT32);
	}
}

static rubato_status lie_main(rubato_comm *comm, void *arg)
{
	void *in, *out;
	uint32_t rank;
	rubato_status err;
	char text[256];

	RB_TRY(rubato_alloc(comm, (size_t)ELEMENTS * 4, &in));
	RB_TRY(rubato_alloc(comm, (size_t)ELEMENTS * 4, &out));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == LIAR)
		lying = comm->engine.endpoints[0];
	RB_TRY(rubato_barrier(comm));
	err = call(comm, *(const int *)arg, in, out);
	if (err == RUBATO_OK)
		err = rubato_barrier(comm); /* Whoever reads no memory of the liar's. */
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rank = rubato_rank(comm);
	(void)rubato_finalize(comm);
	if (rank == LIAR || (err == RUBATO_ERR_PEER && strstr(text, "rank 1") != NULL))
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_INTERNAL, "call %d: %s: %s", *(const int *)arg,
		       rubato_status_name(err), text);
}

START_TEST(memory_that_is_not_there_is_not_touched)
{
	static const struct rb_transport_ops *const transports[] = { &ops, NULL };
	rubato_status status[3];

	ops = rb_transport_shm;
	ops.word_of = lie;
	ops.open = open_ours;
	lying = NULL;
	(void)local_run_raw(3, transports, lie_main, &_i, status);
	ck_assert_int_eq(status[0], RUBATO_OK);
	ck_assert_int_eq(status[2], RUBATO_OK);
}
END_TEST

/* All but one make a persistent operation, for which ranks tell each other where buffers are. */
static rubato_status stay_main(rubato_comm *comm, void *arg)
{
	pthread_barrier_t *all = arg;
	rubato_op *op = NULL;
	rubato_status err = RUBATO_OK;
	void *in, *out;
	char text[256];
	uint32_t rank = rubato_rank(comm);

	RB_TRY(rubato_alloc(comm, 4000, &in));
	RB_TRY(rubato_alloc(comm, 4000, &out));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	comm->timeout_ns = 300000000;
	if (rank != LIAR)
		err = rubato_op_allreduce(comm, in, out, 1000, RUBATO_FLOAT32, RUBATO_SUM, &op);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	(void)pthread_barrier_wait(all);
	(void)rubato_finalize(comm);
	if (rank == LIAR)
		return RUBATO_OK;
	/* Who is first speaks for all. */
	if ((err == RUBATO_ERR_TIMEOUT || err == RUBATO_ERR_PEER) &&
	    strstr(text, "for rank 1") != NULL && strstr(text, "allreduce") != NULL)
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_INTERNAL, "%s: %s", rubato_status_name(err), text);
}

START_TEST(who_stays_away_from_a_creation_is_named)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
	pthread_barrier_t all;

	ck_assert_int_eq(pthread_barrier_init(&all, NULL, 3), 0);
	ck_assert_int_eq(local_run_raw(3, shm, stay_main, &all, NULL), RUBATO_OK);
	(void)pthread_barrier_destroy(&all);
}
END_TEST

/* One is held up where it opens what a group's ranks reach each other by. */
static pthread_barrier_t held_up;
static _Atomic bool holds;

static rubato_status open_held_up(const struct rb_transport_options *options,
				  struct rb_endpoint **out)
{
	if (atomic_load(&holds) && options->rank == LIAR) {
		(void)pthread_barrier_wait(&held_up);
		return RB_FAIL(RUBATO_ERR_INTERNAL, "too late");
	}
	return rb_transport_shm.open(options, out);
}

/* The first `*arg` ranks stay out: who holds up has another number in the group than here. */
static rubato_status split_main(rubato_comm *comm, void *arg)
{
	const uint32_t out = *(const uint32_t *)arg;
	rubato_comm *group = NULL;
	rubato_status err;
	char text[256], name[32];
	uint32_t rank = rubato_rank(comm), late = out + LIAR;

	RB_TRY(rubato_barrier(comm));
	comm->timeout_ns = 300000000;
	atomic_store(&holds, true); /* All have been opened. */
	err = rubato_split(comm, rank < out ? RUBATO_COLOR_NONE : 0, (int32_t)rank, &group);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (rank != late)
		(void)pthread_barrier_wait(&held_up);
	(void)rubato_finalize(comm);
	if (rank == late)
		return err != RUBATO_OK ? RUBATO_OK : RB_FAIL(RUBATO_ERR_INTERNAL, "it opened");
	if (rank < out)
		return err;
	(void)snprintf(name, sizeof(name), "for rank %u", late);
	if ((err == RUBATO_ERR_TIMEOUT || err == RUBATO_ERR_PEER) && strstr(text, name) != NULL &&
	    strstr(text, "group") != NULL && strstr(text, "numbered from 0") == NULL)
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_INTERNAL, "%s: %s", rubato_status_name(err), text);
}

START_TEST(who_is_held_up_in_a_split_is_named)
{
	static const struct rb_transport_ops *const transports[] = { &ops, NULL };
	uint32_t out = (uint32_t)_i, n = 3 + out;

	ops = rb_transport_shm;
	ops.open = open_held_up;
	atomic_store(&holds, false);
	ck_assert_int_eq(pthread_barrier_init(&held_up, NULL, n), 0);
	ck_assert_int_eq(local_run_raw(n, transports, split_main, &out, NULL), RUBATO_OK);
	(void)pthread_barrier_destroy(&held_up);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("lies");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, memory_that_is_not_there_is_not_touched, 0, 4);
	tcase_add_test(tc, who_stays_away_from_a_creation_is_named);
	tcase_add_loop_test(tc, who_is_held_up_in_a_split_is_named, 0, 2);
	return check_main("runtime", tc);
}
