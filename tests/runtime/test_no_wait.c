/*
 * test_no_wait.c -- RUBATO_NO_WAIT in each call that takes a timeout: rank 0 looks while rank 1 has
 * not come, which is no error; then it lets rank 1 come, and looks until all is there.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/sync.h"
#include "rubato_sim.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

#define LOOKS 100

static const char *transport_name;
static const struct rb_transport_ops *transports[2];

/* Rank 1 stands at the gate until rank 0 opens it. */
static rubato_status gate(rubato_comm *comm)
{
	int32_t word = 1;

	return rubato_rank(comm) == 0 ? rubato_send(comm, &word, 1, RUBATO_INT32, 1, 77)
				      : rubato_recv(comm, &word, 1, RUBATO_INT32, 0, 77);
}

/* ---- rubato_wait ---- */

static rubato_status looked_at(rubato_op *op, rubato_comm *comm)
{
	rubato_status err = RUBATO_ERR_TIMEOUT;

	RB_TRY(rubato_start(op));
	for (uint32_t i = 0; i < LOOKS; i++)
		EXPECT(rubato_wait(op, RUBATO_NO_WAIT) == RUBATO_ERR_TIMEOUT);
	EXPECT(strstr(rubato_error_text(), "still in flight") != NULL);
	RB_TRY(gate(comm));
	while (err == RUBATO_ERR_TIMEOUT)
		err = rubato_wait(op, RUBATO_NO_WAIT);
	return err;
}

static rubato_status wait_main(rubato_comm *comm, void *arg)
{
	int32_t rank = (int32_t)rubato_rank(comm), mine = rank + 1, got = 0;
	rubato_op *message, *sum;

	(void)arg;
	RB_TRY(rank == 0 ? rubato_op_recv(comm, &got, 1, RUBATO_INT32, 1, 5, &message)
			 : rubato_op_send(comm, &mine, 1, RUBATO_INT32, 0, 5, &message));
	RB_TRY(rubato_op_allreduce(comm, &mine, &got, 1, RUBATO_INT32, RUBATO_SUM, &sum));
	for (uint32_t i = 0; i < 2; i++) {
		rubato_op *op = i == 0 ? message : sum;

		if (rank == 0) {
			RB_TRY(looked_at(op, comm));
		} else {
			RB_TRY(gate(comm));
			RB_TRY(rubato_start(op));
			RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		}
		EXPECT(rubato_wait(op, RUBATO_NO_WAIT) == RUBATO_OK); /* It is complete. */
		EXPECT(got == (i == 1 ? 3 : rank == 0 ? 2 : 0));
	}
	rubato_op_free(message);
	rubato_op_free(sum);
	return RUBATO_OK;
}

/* ---- A receive that only looks ---- */

static rubato_status look_at(rubato_op *op, bool by_wait, bool *done)
{
	rubato_status err;

	if (!by_wait)
		return rubato_test(op, done);
	err = rubato_wait(op, RUBATO_NO_WAIT);
	*done = err == RUBATO_OK;
	return err == RUBATO_ERR_TIMEOUT ? RUBATO_OK : err;
}

/* One that missed its message at the first look does not look in its next start. One that found it
 * there does again: `over`. The ranks meet outside the library, where nothing is polled for. */
static rubato_status missed_main(rubato_comm *comm, void *arg)
{
	static const struct {
		bool sent_before, over; /* Its message; its start. */
	} starts[] = { { false, false }, { true, false }, { true, true }, { false, false },
		       { false, false }, { true, false }, { true, true } };
	int64_t value = 0;
	rubato_op *op = NULL;

	if (rb_engine_endpoint(&comm->engine, 1 - rubato_rank(comm))->ops->recv_now == NULL)
		return RUBATO_OK;
	if (rubato_rank(comm) == 0)
		RB_TRY(rubato_op_recv(comm, &value, 1, RUBATO_INT64, 1, 3, &op));
	for (int64_t i = 0; i < 14; i++) {
		bool sent_before = starts[i % 7].sent_before, done = false;
		int64_t sent = 50 + i;

		if (op == NULL && sent_before)
			RB_TRY(rubato_send(comm, &sent, 1, RUBATO_INT64, 0, 3));
		(void)pthread_barrier_wait(arg);
		if (op != NULL) {
			RB_TRY(rubato_start(op));
			EXPECT(op->done == starts[i % 7].over);
			RB_TRY(look_at(op, i >= 7, &done));
			EXPECT(done == sent_before && op->message.missed != done);
		}
		(void)pthread_barrier_wait(arg);
		if (op == NULL && !sent_before)
			RB_TRY(rubato_send(comm, &sent, 1, RUBATO_INT64, 0, 3));
		(void)pthread_barrier_wait(arg);
		while (op != NULL && !done)
			RB_TRY(look_at(op, i >= 7, &done));
		EXPECT(op == NULL || value == sent);
	}
	rubato_op_free(op);
	return RUBATO_OK;
}

/* ---- Two ranks on one core ---- */

#define TURNS 100u

/* Each rank waits for the other one by looks alone. */
static rubato_status turns_main(rubato_comm *comm, void *arg)
{
	uint32_t peer = 1 - rubato_rank(comm);
	uint64_t looks = 0;
	int32_t word = 0;
	rubato_op *op;

	if (comm->engine.waiting.yield_ns == 0)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "the ranks do not share a core");
	RB_TRY(rubato_op_recv(comm, &word, 1, RUBATO_INT32, peer, 3, &op));
	for (uint32_t i = 0; i < 2 * TURNS; i++) {
		bool done = false;

		if (i % 2 == peer) {
			RB_TRY(rubato_send(comm, &word, 1, RUBATO_INT32, peer, 3));
			continue;
		}
		RB_TRY(rubato_start(op));
		for (; !done; looks++)
			RB_TRY(rubato_test(op, &done));
	}
	rubato_op_free(op);
	atomic_fetch_add((_Atomic uint64_t *)arg, looks);
	return RUBATO_OK;
}

/* ---- Partial ---- */

/* Looks, by each of the two calls in turn, until there is a result; the value comes back. */
static rubato_status looked_for(rubato_partial *p, rubato_comm *comm, int32_t *value)
{
	const void *result = comm;
	bool collected = true;

	for (uint32_t i = 0; i < LOOKS; i++) {
		RB_TRY(rubato_partial_collect_view(p, &result, NULL, RUBATO_NO_WAIT));
		RB_TRY(rubato_partial_collect(p, value, &collected, NULL, RUBATO_NO_WAIT));
		EXPECT(result == NULL && !collected);
	}
	RB_TRY(gate(comm));
	while (result == NULL && !collected) {
		RB_TRY(rubato_partial_collect(p, value, &collected, NULL, RUBATO_NO_WAIT));
		if (!collected)
			RB_TRY(rubato_partial_collect_view(p, &result, NULL, RUBATO_NO_WAIT));
	}
	if (result == NULL)
		return RUBATO_OK;
	*value = *(const int32_t *)result;
	return rubato_partial_release(p);
}

static rubato_status rounds_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	int32_t rank = (int32_t)rubato_rank(comm), mine = rank + 1, value;
	bool collected = true;
	rubato_partial *p;

	(void)arg;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = 2;
	RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT32, RUBATO_SUM, &options, &p));
	for (uint64_t step = 0; step < 20; step++) {
		if (rank == 1)
			RB_TRY(gate(comm));
		RB_TRY(rubato_partial_contribute(p, &mine, step, 1));
		if (rank == 0)
			RB_TRY(looked_for(p, comm, &value));
		else
			RB_TRY(rubato_partial_collect(p, &value, &collected, NULL,
						      RUBATO_TIMEOUT_DEFAULT));
		EXPECT(collected && value == 3);
	}
	RB_TRY(rubato_partial_collect(p, &value, &collected, NULL, RUBATO_NO_WAIT));
	EXPECT(!collected); /* Nothing waits. */
	return rubato_partial_free(p);
}

/* ---- Lagged ---- */

typedef rubato_status (*lagged_call)(rubato_lagged *lagged, const void **result, uint64_t *weight,
				     uint64_t timeout_ns);

/* Rank 0: looks in vain, opens the gate, looks until the result is there. */
static rubato_status lagged_look(rubato_lagged *l, rubato_comm *comm, lagged_call call)
{
	const void *result = comm;
	uint64_t weight = 0;
	bool done = true;

	for (uint32_t i = 0; i < LOOKS; i++) {
		RB_TRY(call(l, &result, &weight, RUBATO_NO_WAIT));
		EXPECT(result == NULL);
		RB_TRY(rubato_lagged_test(l, &done));
		EXPECT(!done); /* So it is not that none is left. */
	}
	RB_TRY(gate(comm));
	while (result == NULL)
		RB_TRY(call(l, &result, &weight, RUBATO_NO_WAIT));
	EXPECT(*(const float *)result == 3 && weight == 2);
	return RUBATO_OK;
}

static rubato_status lagged_begin(rubato_lagged *l, rubato_comm *comm)
{
	float mine = (float)(rubato_rank(comm) + 1);

	if (rubato_rank(comm) == 1)
		RB_TRY(gate(comm));
	RB_TRY(rubato_lagged_accumulate(l, &mine, 1));
	return rubato_lagged_begin(l);
}

static rubato_status lagged_main(rubato_comm *comm, void *arg)
{
	const void *result = comm;
	uint64_t weight = 0;
	rubato_lagged *l;
	bool done = false;

	(void)arg;
	RB_TRY(rubato_lagged_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	RB_TRY(lagged_begin(l, comm));
	RB_TRY(rubato_lagged_collect(l, &result, &weight, RUBATO_NO_WAIT));
	EXPECT(result == NULL); /* None is due. */
	RB_TRY(lagged_begin(l, comm));
	if (rubato_rank(comm) == 0) {
		RB_TRY(lagged_look(l, comm, rubato_lagged_collect));
		RB_TRY(lagged_look(l, comm, rubato_lagged_flush));
	} else {
		RB_TRY(rubato_lagged_collect(l, &result, &weight, RUBATO_TIMEOUT_DEFAULT));
		RB_TRY(rubato_lagged_flush(l, &result, &weight, RUBATO_TIMEOUT_DEFAULT));
	}
	RB_TRY(rubato_lagged_flush(l, &result, &weight, RUBATO_NO_WAIT));
	RB_TRY(rubato_lagged_test(l, &done));
	EXPECT(result == NULL && done);
	return rubato_lagged_free(l);
}

/* ---- Runs ---- */

static void run_ranks(local_main rank_main)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = 2;
	err = strcmp(transport_name, "sim") != 0
		      ? local_run(2, transports, rank_main, NULL, NULL)
		      : rubato_sim_run(&options, rank_main, NULL, &result);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}

START_TEST(wait_looks)
{
	run_ranks(wait_main);
}
END_TEST

/* Who looks in vain gives the core away: else each turn would take all the time that the system
 * gives it, which are some 10,000 looks. */
START_TEST(looks_give_a_shared_core_away)
{
	_Atomic uint64_t looks = 0;
	cpu_set_t before, one;
	rubato_status err;

	if (strcmp(transport_name, "sim") == 0)
		return;
	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (uint32_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	err = local_run(2, transports, turns_main, &looks, NULL);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
	ck_assert_msg(looks < 200 * TURNS, "%llu looks in %u turns", (unsigned long long)looks,
		      2 * TURNS);
}
END_TEST

START_TEST(receives_that_look_find_theirs)
{
	pthread_barrier_t barrier;
	rubato_status err;

	if (strcmp(transport_name, "sim") == 0)
		return;
	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0); /* Only who looks polls. */
	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
	err = local_run(2, transports, missed_main, &barrier, NULL);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
	(void)pthread_barrier_destroy(&barrier);
}
END_TEST

START_TEST(partial_collect_looks)
{
	run_ranks(rounds_main);
}
END_TEST

START_TEST(lagged_collect_and_flush_look)
{
	run_ranks(lagged_main);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("no-wait");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, wait_looks);
	tcase_add_test(tc, looks_give_a_shared_core_away);
	tcase_add_test(tc, receives_that_look_find_theirs);
	tcase_add_test(tc, partial_collect_looks);
	tcase_add_test(tc, lagged_collect_and_flush_look);
	return check_main("no-wait", tc);
}
