/*
 * test_memory.c -- a rank that lacks memory. Each of its requests for memory fails in turn, while
 * it makes a communicator, splits one, makes and uses operations, or calls a collective; the linker
 * gives them to us (--wrap). Nobody crashes, all have a sentence, and none waits until its deadline
 * for what another one knows already.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define RANKS 3u
#define TIMEOUT_NS UINT64_C(20000000000)

/* ---- Requests for memory ---- */

static _Thread_local uint64_t requests, failing; /* Of this thread, from 1; 0: none fails. */

static bool fails(void)
{
	return failing != 0 && ++requests == failing;
}

#define WRAPPED(type, name, parameters, arguments, failure)                                        \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return fails() ? (failure) : __real_##name arguments;                              \
	}

WRAPPED(void *, malloc, (size_t bytes), (bytes), NULL)
WRAPPED(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL)
WRAPPED(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL)
WRAPPED(void *, aligned_alloc, (size_t align, size_t bytes), (align, bytes), NULL)
WRAPPED(int, posix_memalign, (void **out, size_t align, size_t bytes), (out, align, bytes), 12)

static void memory_fails(uint64_t request)
{
	requests = 0;
	failing = request;
}

/* Whether it has failed. */
static bool memory_returns(void)
{
	bool fired = failing != 0 && requests >= failing;

	failing = 0;
	return fired;
}

/* ---- Ranks ---- */

struct rank;

/* What the victim does while its memory fails. */
struct act {
	void (*run)(struct rank *me, rubato_comm *comm); /* NULL: it makes the communicator. */
	uint64_t requests_min; /* Fewer: the fault was not injected as meant. */
};

struct job {
	const struct act *act;
	const char *transport;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t arrived, turn;
	uint8_t bytes[RANKS][8192];
	uint32_t victim;  /* A rank. */
	uint64_t request; /* Of the victim's, which fails. */
};

struct rank {
	struct job *job;
	uint32_t number;
	bool fired;
	rubato_status status;
	char text[512];
};

/* Waits for all, however long: who has no memory for its start calls it, too. */
static int gather(void *arg, const void *in, void *out, size_t size_bytes)
{
	struct rank *me = arg;
	struct job *job = me->job;
	uint32_t turn;

	if (size_bytes > sizeof(job->bytes[0]))
		abort(); /* Check itself asks for memory. */
	for (uint32_t step = 0; step < 2; step++) {
		if (step == 0)
			memcpy(job->bytes[me->number], in, size_bytes);
		(void)pthread_mutex_lock(&job->lock);
		turn = job->turn;
		if (++job->arrived == RANKS) {
			job->arrived = 0;
			job->turn++;
			(void)pthread_cond_broadcast(&job->changed);
		}
		while (turn == job->turn)
			(void)pthread_cond_wait(&job->changed, &job->lock);
		(void)pthread_mutex_unlock(&job->lock);
		for (uint32_t r = 0; step == 0 && r < RANKS; r++)
			memcpy((uint8_t *)out + r * size_bytes, job->bytes[r], size_bytes);
	}
	return 0;
}

static void outcome(struct rank *me, rubato_status status)
{
	me->status = status;
	if (status != RUBATO_OK)
		(void)snprintf(me->text, sizeof(me->text), "%s", rubato_error_text());
}

static rubato_status sum_up(rubato_comm *comm)
{
	int64_t mine = rubato_rank(comm) + 1, sum = 0;
	rubato_status err = rubato_allreduce(comm, &mine, &sum, 1, RUBATO_INT64, RUBATO_SUM);

	ck_assert_msg(err != RUBATO_OK || sum == RANKS * (RANKS + 1) / 2, "a wrong sum");
	return err;
}

static void *rank_main(void *arg)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	struct rank *me = arg;
	struct job *job = me->job;
	rubato_comm *comm = NULL;
	rubato_status ended;
	uint64_t request = me->number == job->victim ? job->request : 0;

	options.timeout_ns = TIMEOUT_NS;
	options.transport = job->transport;
	memory_fails(job->act->run == NULL ? request : 0);
	outcome(me, rubato_init_oob(&comm, gather, me, me->number, RANKS, &options));
	if (job->act->run == NULL)
		me->fired = memory_returns();
	if (comm != NULL && job->act->run != NULL) {
		memory_fails(request);
		job->act->run(me, comm);
	}
	/* Elsewhere it may have failed: these say so. */
	if (me->status == RUBATO_OK)
		outcome(me, sum_up(comm));
	ended = rubato_finalize(comm);
	if (me->status == RUBATO_OK)
		outcome(me, ended);
	return NULL;
}

/* ---- Acts: each uses what it has made, and has its memory back before it frees that ---- */

static void splits(struct rank *me, rubato_comm *comm)
{
	rubato_comm *child = NULL;

	outcome(me, rubato_split(comm, 0, 0, &child));
	me->fired = memory_returns();
	if (me->status == RUBATO_OK)
		outcome(me, sum_up(child));
	(void)rubato_finalize(child);
}

#define COUNT 65536u /* Elements: less is not helped. */

static void collects(struct rank *me, rubato_comm *comm)
{
	static _Thread_local float vector[COUNT];

	outcome(me, rubato_allreduce(comm, vector, vector, COUNT, RUBATO_FLOAT32, RUBATO_SUM));
	me->fired = memory_returns();
}

static void operation_use(struct rank *me, rubato_op *operation)
{
	for (uint32_t i = 0; i < 2 && me->status == RUBATO_OK; i++) {
		rubato_status err = rubato_start(operation);

		outcome(me,
			err == RUBATO_OK ? rubato_wait(operation, RUBATO_TIMEOUT_DEFAULT) : err);
	}
	me->fired = memory_returns();
	rubato_op_free(operation);
}

static void persists(struct rank *me, rubato_comm *comm)
{
	static _Thread_local float vector[COUNT];
	rubato_op *operation = NULL;

	outcome(me, rubato_op_allreduce(comm, vector, vector, COUNT, RUBATO_FLOAT32, RUBATO_SUM,
					&operation));
	operation_use(me, operation);
}

/* Of what peers map. */
static void persists_mapped(struct rank *me, rubato_comm *comm)
{
	uint64_t request = failing;
	rubato_op *operation = NULL;
	void *vector = NULL;

	memory_fails(0); /* That one is local. */
	ck_assert_int_eq(rubato_alloc(comm, COUNT * sizeof(float), &vector), RUBATO_OK);
	memory_fails(request);
	outcome(me, rubato_op_allreduce(comm, vector, vector, COUNT, RUBATO_FLOAT32, RUBATO_SUM,
					&operation));
	operation_use(me, operation);
}

static void helps(struct rank *me, rubato_comm *comm)
{
	static _Thread_local float vector[COUNT];
	rubato_op *operation = NULL;

	outcome(me, rubato_op_allreduce_helped(comm, vector, vector, COUNT, RUBATO_FLOAT32,
					       RUBATO_SUM, &operation));
	operation_use(me, operation);
}

static void takes_part(struct rank *me, rubato_comm *comm)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	float vector[3] = { 1, 2, 3 }, sum[3];
	rubato_partial *partial = NULL;
	rubato_status freed;
	bool collected;

	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = RANKS;
	outcome(me, rubato_partial_create(comm, 3, RUBATO_FLOAT32, RUBATO_SUM, &options, &partial));
	if (me->status == RUBATO_OK)
		outcome(me, rubato_partial_contribute(partial, vector, 0, 1));
	if (me->status == RUBATO_OK)
		outcome(me, rubato_partial_collect(partial, sum, &collected, NULL,
						   RUBATO_TIMEOUT_DEFAULT));
	me->fired = memory_returns();
	freed = rubato_partial_free(partial);
	if (me->status == RUBATO_OK)
		outcome(me, freed);
}

static void lags(struct rank *me, rubato_comm *comm)
{
	const float vector[3] = { 1, 2, 3 };
	rubato_lagged *lagged = NULL;
	const void *result;
	rubato_status freed;
	uint64_t weight;

	outcome(me, rubato_lagged_create(comm, 3, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	for (uint32_t i = 0; i < 2; i++) {
		if (me->status == RUBATO_OK)
			outcome(me, rubato_lagged_accumulate(lagged, vector, 1));
		if (me->status == RUBATO_OK)
			outcome(me, rubato_lagged_begin(lagged));
		if (me->status == RUBATO_OK)
			outcome(me, rubato_lagged_collect(lagged, &result, &weight,
							  RUBATO_TIMEOUT_DEFAULT));
	}
	me->fired = memory_returns();
	freed = rubato_lagged_free(lagged);
	if (me->status == RUBATO_OK)
		outcome(me, freed);
}

static const struct act start = { NULL, 40 }, split = { splits, 40 };
static const struct act creations[] = {
	{ collects, 5 }, { persists, 5 },    { persists_mapped, 5 },
	{ helps, 5 },    { takes_part, 20 }, { lags, 20 },
};
#define CREATIONS (sizeof(creations) / sizeof(creations[0]))

/* ---- Jobs ---- */

static const char *transport; /* The first argument. */

/* false: the victim did not ask for memory so often. */
static bool job_run(struct job *job, uint64_t request)
{
	struct rank ranks[RANKS];
	pthread_t threads[RANKS];
	uint32_t failed = 0;

	(void)pthread_mutex_init(&job->lock, NULL);
	(void)pthread_cond_init(&job->changed, NULL);
	job->request = request;
	for (uint32_t r = 0; r < RANKS; r++) {
		ranks[r] = (struct rank) { .job = job, .number = r };
		ck_assert_int_eq(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
	}
	for (uint32_t r = 0; r < RANKS; r++)
		ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
	for (uint32_t r = 0; r < RANKS; r++) {
		if (getenv("RUBATO_LOG") != NULL && ranks[r].status != RUBATO_OK)
			(void)fprintf(stderr, "request %llu: rank %u: %s: %s\n",
				      (unsigned long long)request, r,
				      rubato_status_name(ranks[r].status), ranks[r].text);
		failed += ranks[r].status != RUBATO_OK;
		ck_assert_msg(ranks[r].status != RUBATO_ERR_TIMEOUT,
			      "request %llu of rank %u failed, rank %u waited: %s",
			      (unsigned long long)request, job->victim, r, ranks[r].text);
		ck_assert_msg(ranks[r].status == RUBATO_OK || ranks[r].text[0] != '\0',
			      "request %llu of rank %u failed, rank %u has no sentence",
			      (unsigned long long)request, job->victim, r);
	}
	ck_assert_msg(failed == 0 || failed == RANKS,
		      "request %llu of rank %u failed, %u of %u ranks have a communicator",
		      (unsigned long long)request, job->victim, RANKS - failed, RANKS);
	ck_assert_msg(failed == 0 || ranks[job->victim].fired, "without a fault: %s",
		      ranks[0].text);
	return ranks[job->victim].fired;
}

/* Networks ask 1,500 times at the start, to measure each other most of all: there some of those do,
 * and of the first ones those that are this victim's, which the others leave out. So it is in
 * shared memory if time is short. */
#define FIRST_UNTIL 64u

static void each_request_fails(uint32_t victim, const struct act *act)
{
	static struct job job;
	bool of_memory = strcmp(transport, "shm") == 0, brief = test_length() == TEST_SHORT;
	uint32_t share = of_memory && !brief ? 1 : RANKS;
	uint32_t first_step = of_memory || !brief ? share : 5 * share;
	uint32_t step = of_memory ? share : brief ? 401 : 97;
	uint64_t request = 1 + victim % first_step;
	bool more = true;

	for (; more; request += request < FIRST_UNTIL ? first_step : step) {
		job = (struct job) { .act = act, .transport = transport, .victim = victim };
		more = job_run(&job, request);
	}
	ck_assert_uint_gt(request, act->requests_min);
}

START_TEST(a_rank_without_memory_ends_the_start_of_all)
{
	each_request_fails((uint32_t)_i, &start);
}
END_TEST

START_TEST(a_rank_without_memory_ends_the_split_of_all)
{
	each_request_fails((uint32_t)_i, &split);
}
END_TEST

START_TEST(a_rank_without_memory_ends_the_creation_of_all)
{
	each_request_fails((uint32_t)_i % RANKS, &creations[(uint32_t)_i / RANKS]);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("memory");

	transport = argc > 1 ? argv[1] : "shm";
	tcase_set_timeout(tc, 300);
	/* UCX ends a process in which a connection is lost while it is made (docs/security.md). */
	if (strcmp(transport, "tcp") != 0) {
		tcase_add_loop_test(tc, a_rank_without_memory_ends_the_start_of_all, 0, RANKS);
		tcase_add_loop_test(tc, a_rank_without_memory_ends_the_split_of_all, 0, RANKS);
	}
	tcase_add_loop_test(tc, a_rank_without_memory_ends_the_creation_of_all, 0,
			    (int)CREATIONS * (int)RANKS);
	return check_main("memory", tc);
}
