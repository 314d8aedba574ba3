/*
 * test_split.c -- communicators out of communicators: threads, processes and simulated ranks run
 * one program. Name of the transport as argument: shm, ucx, sim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

/* ---- The program ---- */

/* Every operation, on memory of the communicator's own and on any other. */
static rubato_status use(rubato_comm *comm)
{
	static const char *const kinds[] = { "barrier",    "broadcast",       "reduce",
					     "allreduce",  "reduce_scatter",  "allgather",
					     "gather",     "scatter",         "alltoall",
					     "allgatherv", "reduce_scatterv", "alltoallv" };

	for (uint32_t i = 0; i < 12; i++) {
		struct exercise e = { .kind = kinds[i],
				      .algorithm = "auto",
				      .count = 500 * i + 1,
				      .type = RUBATO_INT64,
				      .root = i % rubato_size(comm),
				      .allocated = i % 2 == 0,
				      .persistent = i % 3 == 0,
				      .times = 2,
				      .salt = i };

		RB_TRY(exercise_run(comm, &e, NULL));
	}
	return RUBATO_OK;
}

static rubato_status sum_of(rubato_comm *comm, int64_t mine, int64_t *sum)
{
	return rubato_allreduce(comm, &mine, sum, 1, RUBATO_INT64, RUBATO_SUM);
}

/* A group's ranks alone share its job's name: it is not their parent's, their siblings', nor that
 * of another split. */
static rubato_status names(rubato_comm *comm)
{
	enum { BYTES = sizeof(comm->job), SPLITS = 2, RANKS_MAX = 64 };
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	uint8_t mine[SPLITS][BYTES], all[RANKS_MAX][SPLITS][BYTES];

	EXPECT(n <= RANKS_MAX);
	for (uint32_t s = 0; s < SPLITS; s++) {
		rubato_comm *child = NULL;

		RB_TRY(rubato_split(comm, rank % 3, 0, &child));
		memcpy(mine[s], child->job, BYTES);
		EXPECT(memcmp(mine[s], comm->job, BYTES) != 0);
		RB_TRY(rubato_finalize(child));
	}
	RB_TRY(rubato_allgather(comm, mine, all, sizeof(mine), RUBATO_UINT8));
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t s = 0; s < SPLITS * SPLITS; s++) {
			bool same = memcmp(mine[s / SPLITS], all[r][s % SPLITS], BYTES) == 0;

			EXPECT(same == (r % 3 == rank % 3 && s / SPLITS == s % SPLITS));
		}
	return RUBATO_OK;
}

/* Even and odd ranks apart, each in reverse order; then these halves in halves. */
static rubato_status halves(rubato_comm *comm)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm), parity = rank % 2;
	uint32_t size = n / 2 + (n % 2 && parity == 0);
	rubato_comm *half = NULL, *quarter = NULL;
	int64_t sum, want = 0;

	RB_TRY(rubato_split(comm, parity, -(int32_t)rank, &half));
	EXPECT(rubato_size(half) == size);
	EXPECT(rubato_rank(half) == size - 1 - rank / 2);
	for (uint32_t r = parity; r < n; r += 2)
		want += r;
	RB_TRY(sum_of(half, rank, &sum));
	EXPECT(sum == want);
	RB_TRY(use(half));
	RB_TRY(rubato_split(half, rubato_rank(half) / 2, 0, &quarter));
	EXPECT(rubato_rank(quarter) == rubato_rank(half) % 2);
	RB_TRY(use(quarter));
	RB_TRY(rubato_finalize(half)); /* Before its child. */
	RB_TRY(sum_of(quarter, 1, &sum));
	EXPECT(sum == rubato_size(quarter));
	RB_TRY(rubato_finalize(quarter));
	return use(comm);
}

/* Rank 0 stays out. */
static rubato_status without_one(rubato_comm *comm)
{
	uint32_t rank = rubato_rank(comm);
	rubato_comm *others = (rubato_comm *)&rank;

	RB_TRY(rubato_split(comm, rank == 0 ? RUBATO_COLOR_NONE : 7, 0, &others));
	EXPECT((others == NULL) == (rank == 0));
	if (rank == 0)
		return RUBATO_OK;
	EXPECT(rubato_rank(others) == rank - 1 && rubato_size(others) == rubato_size(comm) - 1);
	RB_TRY(use(others));
	return rubato_finalize(others);
}

/* Operations of both in flight at once, and messages with one tag in both. */
static rubato_status side_by_side(rubato_comm *comm)
{
	enum { COUNT = 30000 };
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), right = (rank + 1) % n;
	int64_t *vector = malloc(COUNT * sizeof(*vector)), sum, got[2], sent[2] = { 10, 20 };
	rubato_op *ops[3];
	rubato_comm *twin;

	EXPECT(vector != NULL);
	RB_TRY(rubato_split(comm, 0, 0, &twin));
	EXPECT(rubato_rank(twin) == rank && rubato_size(twin) == n);
	for (uint32_t i = 0; i < COUNT; i++)
		vector[i] = i;
	RB_TRY(rubato_op_allreduce(twin, vector, vector, COUNT, RUBATO_INT64, RUBATO_SUM, &ops[0]));
	RB_TRY(rubato_op_recv(comm, &got[0], 1, RUBATO_INT64, (rank + n - 1) % n, 5, &ops[1]));
	RB_TRY(rubato_op_recv(twin, &got[1], 1, RUBATO_INT64, (rank + n - 1) % n, 5, &ops[2]));
	for (int i = 2; i >= 0; i--)
		RB_TRY(rubato_start(ops[i]));
	RB_TRY(sum_of(comm, 1, &sum));
	EXPECT(sum == n);
	RB_TRY(rubato_send(twin, &sent[1], 1, RUBATO_INT64, right, 5));
	RB_TRY(rubato_send(comm, &sent[0], 1, RUBATO_INT64, right, 5));
	for (int i = 0; i < 3; i++) {
		RB_TRY(rubato_wait(ops[i], RUBATO_TIMEOUT_DEFAULT));
		rubato_op_free(ops[i]);
	}
	EXPECT(got[0] == 10 && got[1] == 20);
	for (uint32_t i = 0; i < COUNT; i++)
		EXPECT(vector[i] == (int64_t)i * n);
	free(vector);
	return rubato_finalize(twin);
}

/* A child that fails leaves its parent alone. */
static rubato_status child_fails(rubato_comm *comm)
{
	int64_t sum;
	rubato_comm *child;

	RB_TRY(rubato_split(comm, 3, 0, &child));
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_abort(child));
		EXPECT(sum_of(child, 1, &sum) == RUBATO_ERR_CANCELLED);
		RB_TRY(rubato_finalize(child));
	} else {
		EXPECT(sum_of(child, 1, &sum) == RUBATO_ERR_PEER);
		EXPECT(rubato_finalize(child) == RUBATO_ERR_PEER);
	}
	RB_TRY(sum_of(comm, 1, &sum));
	EXPECT(sum == rubato_size(comm));
	return RUBATO_OK;
}

static rubato_status program(rubato_comm *comm, void *arg)
{
	rubato_comm *none;

	(void)arg;
	EXPECT(rubato_split(comm, 0, 0, NULL) == RUBATO_ERR_ARGUMENT);
	RB_TRY(names(comm));
	RB_TRY(halves(comm));
	RB_TRY(without_one(comm));
	RB_TRY(side_by_side(comm));
	RB_TRY(child_fails(comm));
	return rubato_split(comm, RUBATO_COLOR_NONE, 0, &none);
}

/* ---- Who runs it ---- */

static uint32_t ranks_wanted(void)
{
	bool ucx = strcmp(transport_name, "ucx") == 0;

	if (test_length() != TEST_SHORT)
		return ucx ? 5 : UINT32_MAX;
	return ucx ? 2 : 5;
}

static const uint32_t rank_counts[] = { 2, 3, 5, 8 };

START_TEST(threads)
{
	uint32_t n = rank_counts[_i];

	if (n <= ranks_wanted())
		ck_assert_int_eq(local_run(n, transports, program, NULL, NULL), RUBATO_OK);
}
END_TEST

static rubato_status process_main(const rubato_id *id, uint32_t rank, uint32_t n)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	rubato_status err, end;

	options.transport = transport_name;
	RB_TRY(rubato_init_id(&comm, id, rank, n, &options));
	err = program(comm, NULL);
	if (err != RUBATO_OK)
		fprintf(stderr, "rank %u: %s\n", rank, rubato_error_text());
	end = rubato_finalize(comm);
	return err != RUBATO_OK ? err : end;
}

START_TEST(processes)
{
	enum { N = 3 };
	pid_t children[N] = { 0 };
	rubato_id id;

	if (N > ranks_wanted())
		return;
	ck_assert_int_eq(rubato_id_create(&id), RUBATO_OK);
	for (uint32_t r = 1; r < N; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			_exit(process_main(&id, r, N) == RUBATO_OK ? 0 : 1);
	}
	ck_assert_int_eq(process_main(&id, 0, N), RUBATO_OK);
	for (uint32_t r = 1; r < N; r++) {
		int status;

		ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}
END_TEST

/* Twice, and the same events: flat, and several ranks a node. */
START_TEST(simulated)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result, again;

	options.rank_count = rank_counts[_i / 2];
	options.ranks_per_node = _i % 2 == 0 ? 0 : 2;
	options.seed = (uint64_t)_i;
	options.jitter = 0.5;
	options.reorder = 1;
	ck_assert_msg(rubato_sim_run(&options, program, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
	ck_assert_int_eq(rubato_sim_run(&options, program, NULL, &again), RUBATO_OK);
	ck_assert_uint_eq(result.trace_hash, again.trace_hash);
}
END_TEST

/* A rank crashes: both communicators that it was in learn, and the one that it was not in works. */
static rubato_status crash_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	uint64_t until_ns = rubato_now(comm) + 5000000;
	rubato_comm *half;
	rubato_status err = RUBATO_OK, end;
	int64_t sum;

	RB_TRY(rubato_split(comm, rank / 2, 0, &half));
	while (err == RUBATO_OK && rubato_now(comm) < until_ns) {
		err = sum_of(half, 1, &sum);
		rubato_sleep(comm, 10000);
	}
	end = rubato_finalize(half);
	if (rank == 3) /* A ghost may come so far; what it is told is nobody's business. */
		return RUBATO_OK;
	EXPECT(err == (rank < 2 ? RUBATO_OK : RUBATO_ERR_PEER));
	EXPECT(end == err);
	EXPECT(rubato_barrier(comm) == RUBATO_ERR_PEER);
	++*(uint32_t *)arg;
	return RUBATO_OK;
}

START_TEST(a_crash_is_told_to_every_group)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH, .rank = 3, .at_ns = 2000000 };
	rubato_sim_result result;
	uint32_t survivors = 0;

	options.rank_count = 4;
	options.faults = &fault;
	options.fault_count = 1;
	/* Finalizing the parent reports the loss. */
	ck_assert_int_eq(rubato_sim_run(&options, crash_main, &survivors, &result),
			 RUBATO_ERR_PEER);
	ck_assert_uint_eq(result.faults_fired, 1);
	ck_assert_uint_eq(survivors, 3);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("split");
	TCase *tc = tcase_create("split");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 200);
	if (strcmp(transport_name, "sim") == 0) {
		tcase_add_loop_test(tc, simulated, 0, 8);
		tcase_add_test(tc, a_crash_is_told_to_every_group);
	} else {
		tcase_add_loop_test(tc, threads, 0, 4);
		tcase_add_test(tc, processes);
	}
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
