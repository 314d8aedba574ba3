/*
 * test_engine.c -- what the engine promises beyond right values: work on an asynchronous executor,
 * direct reductions, cancel, poison, mismatches with both sides, deadlines that name the absent,
 * background progress, several threads, abort, protocol machines.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rubato_sim.h"
#include "runtime/op_stage.h"
#include "runtime/relaxed/protocol_driver.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/executor_fake.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

/* Every algorithm on a million bytes: where that takes long, one rank and three. */
static bool is_wanted(uint32_t n)
{
	return test_length() != TEST_SHORT || n % 2 == 1;
}

/* ---- Proof of shape: a direct reduction from a peer's mapped buffer ---- */

static rubato_status direct_main(rubato_comm *comm, void *arg)
{
	struct exercise e = { .kind = "allreduce",
			      .algorithm = "direct",
			      .count = 100000,
			      .allocated = true,
			      .times = 3,
			      .salt = 5 };
	rubato_stats before = { .size_bytes = sizeof(before) }, after = before;

	(void)arg;
	for (e.persistent = false;; e.persistent = true) {
		RB_TRY(rubato_get_stats(comm, &before));
		RB_TRY(exercise_run(comm, &e, NULL));
		RB_TRY(rubato_get_stats(comm, &after));
		/* Each call reads n - 1 foreign blocks and writes as many: none of it as
		 * messages. */
		EXPECT(after.bytes_mapped - before.bytes_mapped >=
		       3 * 400000 / rubato_size(comm) * (rubato_size(comm) - 1));
		EXPECT(after.bytes_sent - before.bytes_sent < 10000);
		if (e.persistent)
			return RUBATO_OK;
	}
}

START_TEST(direct_reduction_from_mapped_peers)
{
	ck_assert_int_eq(local_run((uint32_t)_i, shm, direct_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Proof of shape: put with notification, simulated ---- */

static rubato_status put_main(rubato_comm *comm, void *arg)
{
	struct exercise e = { .kind = "allgather",
			      .algorithm = "ring_put",
			      .count = 3001,
			      .allocated = true,
			      .times = 3,
			      .salt = 11 };
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	for (e.persistent = false;; e.persistent = true) {
		RB_TRY(exercise_run(comm, &e, arg));
		if (e.persistent)
			break;
	}
	RB_TRY(rubato_get_stats(comm, &stats));
	/* Every block but the own one comes by a put of the left neighbour: none is mapped. */
	EXPECT(stats.bytes_sent >= (uint64_t)6 * 3001 * 4 * (rubato_size(comm) - 1));
	EXPECT(stats.bytes_mapped == 0);
	return RUBATO_OK;
}

START_TEST(put_with_notification_on_the_simulator)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result first, again;
	uint64_t hash = 0;

	options.rank_count = (uint32_t)_i;
	options.seed = (uint64_t)_i;
	options.reorder = 1;
	options.jitter = 0.5;
	ck_assert_int_eq(rubato_sim_run(&options, put_main, &hash, &first), RUBATO_OK);
	ck_assert_int_eq(rubato_sim_run(&options, put_main, &hash, &again), RUBATO_OK);
	ck_assert_uint_eq(first.trace_hash, again.trace_hash);
	ck_assert_uint_gt(first.messages, 0);
}
END_TEST

/* A program that polls, instead of waiting, also runs in virtual time. */
static rubato_status polling_main(rubato_comm *comm, void *arg)
{
	int64_t in = rubato_rank(comm), out = -1, n = rubato_size(comm);
	bool done = false;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, &in, &out, 1, RUBATO_INT64, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	while (!done)
		RB_TRY(rubato_test(op, &done));
	rubato_op_free(op);
	EXPECT(out == n * (n - 1) / 2);
	return RUBATO_OK;
}

START_TEST(tests_in_a_loop_let_simulated_time_pass)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 5;
	ck_assert_int_eq(rubato_sim_run(&options, polling_main, NULL, &result), RUBATO_OK);
	ck_assert_uint_gt(result.end_ns, 0);
}
END_TEST

/* ---- Proof of shape: a schedule on the fake asynchronous executor ---- */

static rubato_status fake_main(rubato_comm *comm, void *arg)
{
	struct rb_executor *host = comm->engine.executor;
	struct executor_fake fake;
	const char *algorithm;
	rubato_status err = RUBATO_OK;

	(void)arg;
	executor_fake_init(&fake, 17 + rubato_rank(comm));
	comm->engine.executor = &fake.base;
	for (uint32_t a = 0; (algorithm = exercise_algorithm("allreduce", a)) != NULL; a++) {
		struct exercise e = { .kind = "allreduce",
				      .algorithm = algorithm,
				      .count = 300000,
				      .allocated = a % 2 == 0,
				      .times = 2,
				      .salt = a };

		if (err == RUBATO_OK)
			err = exercise_run(comm, &e, NULL);
	}
	if (err == RUBATO_OK)
		err = rubato_barrier(comm);
	comm->engine.executor = host;
	RB_TRY(err);
	EXPECT(fake.started > 10 && fake.completed == fake.started && fake.overtook > 0);
	return RUBATO_OK;
}

/* ---- Starting takes no longer than a slice of work ---- */

START_TEST(start_does_a_slice)
{
	enum { WORKS = 64, COUNT = 8192 };
	static struct rb_work works[WORKS];
	double *memory = calloc(2 * COUNT, sizeof(*memory));
	struct rb_executor *host;
	uint64_t done_bytes = 0, polls = 0;

	ck_assert_ptr_nonnull(memory);
	ck_assert_int_eq(rb_executor_host_open(&host), RUBATO_OK);
	for (uint32_t i = 0; i < WORKS; i++) {
		works[i] = (struct rb_work) { .element_bytes = sizeof(*memory),
					      .operands[0] = memory };
		works[i].reduce = (struct rb_reduce) { .type = RUBATO_FLOAT64,
						       .to = memory + COUNT,
						       .from = works[i].operands,
						       .from_count = 1,
						       .count = COUNT };
		host->ops->start(host, &works[i]);
		done_bytes += works[i].state == RB_WORK_DONE ? COUNT * sizeof(*memory) : 0;
	}
	ck_assert_uint_gt(done_bytes, 0);
	ck_assert_uint_le(done_bytes, RB_SLICE_BYTES);
	while (host->ops->busy(host) && ++polls <= WORKS)
		(void)host->ops->poll(host);
	for (uint32_t i = 0; i < WORKS; i++)
		ck_assert_int_eq(works[i].state, RB_WORK_DONE);
	host->ops->close(host);
	free(memory);
}
END_TEST

/* ---- Nor is it interrupted by the progress thread that it wakes ---- */

#define STARTS 60
#define STARTS_TRIES 5      /* Whoever else runs may make the timer interrupt them. */
#define START_NS_MAX 50000u /* A twentieth of a tick, where there are 1,000 a second. */

/* How long a thread has run. Others may be interrupted by whatever this machine does. */
static uint64_t ran_ns(clockid_t clock)
{
	struct timespec spent = { 0, 0 };

	(void)clock_gettime(clock, &spent);
	return (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
}

struct starts {
	_Atomic uint32_t judged, interrupted;
};

/* Freeing an operation goes on in the background: it may be moving something now. */
static uint64_t background_moves(rubato_comm *comm)
{
	uint64_t moves;

	rb_engine_enter(&comm->engine);
	moves = comm->engine.background.moves;
	rb_engine_leave(&comm->engine);
	return moves;
}

/* A start that is as long as a timer's tick is interrupted by that: where a sanitizer or another
 * interpreter makes it so long it says nothing. */
static rubato_status starts_main(rubato_comm *comm, void *arg)
{
	int64_t in[1024] = { 0 }, out[1024];
	struct starts *starts = arg;
	uint64_t moves = background_moves(comm);
	clockid_t progress;
	rubato_op *op;

	EXPECT(pthread_getcpuclockid((pthread_t)comm->engine.background.thread.handle, &progress) ==
	       0);
	RB_TRY(rubato_op_allreduce(comm, in, out, 1024, RUBATO_INT64, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < STARTS; i++) {
		uint64_t own, before;

		RB_TRY(rubato_barrier(comm));
		rubato_sleep(comm, 2000000); /* The progress thread is parked then. */
		before = ran_ns(progress);
		own = ran_ns(CLOCK_THREAD_CPUTIME_ID);
		RB_TRY(rubato_start(op));
		if (ran_ns(CLOCK_THREAD_CPUTIME_ID) - own < START_NS_MAX) {
			atomic_fetch_add(&starts->judged, 1);
			atomic_fetch_add(&starts->interrupted, ran_ns(progress) > before);
		}
		rubato_sleep(comm, 3000000);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	}
	rubato_op_free(op);
	EXPECT(background_moves(comm) > moves + STARTS / 4); /* It was woken, and ran. */
	EXPECT(ran_ns(progress) > 0);
	return RUBATO_OK;
}

/* All threads on one processor: who is woken there can only take it from who wakes. */
START_TEST(starts_are_not_interrupted)
{
	struct starts starts;
	cpu_set_t before, one;
	int cpu = sched_getcpu();
	uint32_t tries = 0;

	ck_assert_int_ge(cpu, 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET((unsigned)cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	do {
		starts = (struct starts) { 0, 0 };
		ck_assert_int_eq(local_run(2, shm, starts_main, &starts, NULL), RUBATO_OK);
	} while (starts.interrupted > starts.judged / 4 && ++tries < STARTS_TRIES);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
	if (starts.judged < STARTS)
		(void)fprintf(stderr, "starts_are_not_interrupted: %u of %u starts were short\n",
			      starts.judged, 2 * STARTS);
	ck_assert_uint_le(starts.interrupted, starts.judged / 4);
}
END_TEST

START_TEST(schedules_on_an_asynchronous_executor)
{
	if (!is_wanted((uint32_t)_i))
		return;
	ck_assert_int_eq(local_run((uint32_t)_i, shm, fake_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Proof of shape: a device with memory of its own, beside the host ---- */

#define DEVICE_COUNT 300000u

static rubato_status device_sum(rubato_comm *comm, float *in, float *out)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);

	for (uint32_t i = 0; i < DEVICE_COUNT; i++)
		in[i] = (float)(rank * 3 + i % 101);
	RB_TRY(rubato_allreduce(comm, in, out, DEVICE_COUNT, RUBATO_FLOAT32, RUBATO_SUM));
	for (uint32_t i = 0; i < DEVICE_COUNT; i++)
		EXPECT(out[i] == (float)(n * (i % 101) + 3 * (n * (n - 1) / 2)));
	return RUBATO_OK;
}

/* All algorithms, with IN and OUT on either side. */
static rubato_status device_sums(rubato_comm *comm, struct executor_fake *device)
{
	float *in[2] = { malloc(DEVICE_COUNT * 4), NULL },
	      *out[2] = { malloc(DEVICE_COUNT * 4), NULL };
	struct rb_executor *executor = &device->base;
	const char *algorithm;

	RB_TRY(executor->ops->memory_new(executor, RB_MEMORY_DEVICE, DEVICE_COUNT * 4,
					 (void **)&in[1]));
	RB_TRY(executor->ops->memory_new(executor, RB_MEMORY_DEVICE, DEVICE_COUNT * 4,
					 (void **)&out[1]));
	for (uint32_t a = 0; (algorithm = exercise_algorithm("allreduce", a)) != NULL; a++) {
		if (strstr(algorithm, "put") != NULL)
			continue; /* Into devices, which shm does not reach. */
		RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithm));
		for (uint32_t k = 0; k < 4; k += test_length() == TEST_SHORT ? 3 : 1) {
			uint32_t mixed = (k + rubato_rank(comm)) % 4;

			RB_TRY(device_sum(comm, in[mixed % 2], out[mixed / 2]));
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		executor->ops->memory_free(executor, in[i]);
		executor->ops->memory_free(executor, out[i]);
	}
	return rubato_barrier(comm);
}

static rubato_status device_main(rubato_comm *comm, void *arg)
{
	struct rb_executor *host = comm->engine.executor;
	struct executor_fake *device = malloc(sizeof(*device)), *other = malloc(sizeof(*other));
	rubato_status err;

	(void)arg;
	EXPECT(device != NULL && other != NULL);
	executor_fake_init(device, 5 + rubato_rank(comm));
	executor_fake_init(other, 50 + rubato_rank(comm));
	comm->engine.devices[comm->engine.device_count++] = &device->base;
	err = device_sums(comm, device);
	/* Were each of a chain started when the one before it is heard of, none were behind. */
	if (err == RUBATO_OK && rubato_size(comm) > 1)
		EXPECT(device->behind > device->started / 10 && device->crossed == 0);
	/* The host's work is asynchronous as well now, and the device waits for its events. */
	comm->engine.executor = &other->base;
	if (err == RUBATO_OK)
		err = device_sums(comm, device);
	comm->engine.executor = host;
	if (err == RUBATO_OK && rubato_size(comm) > 1)
		EXPECT(device->crossed + other->crossed > 0);
	EXPECT(err != RUBATO_OK || device->completed == device->started);
	/* One rank's work is a single piece. */
	EXPECT(err != RUBATO_OK || rubato_size(comm) == 1 || device->overtook > 0);
	rb_op_stage_release(comm->oneshots.op);
	comm->engine.device_count = 0;
	free(device);
	free(other);
	return err;
}

START_TEST(a_device_waits_for_its_own_events)
{
	if (!is_wanted((uint32_t)_i))
		return;
	ck_assert_int_eq(local_run((uint32_t)_i, shm, device_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Proof of shape: cancel in mid-operation ---- */

static rubato_status cancel_main(rubato_comm *comm, void *arg)
{
	enum { COUNT = 1000000 };
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	float *in = malloc(COUNT * sizeof(*in)), *out = malloc(COUNT * sizeof(*out));
	rubato_op *op = NULL;
	rubato_status err;
	uint64_t quiet = 0;
	atomic_uint *ready = arg;

	for (int i = 0; i < COUNT; i++)
		in[i] = 1, out[i] = 0;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_op_allreduce(comm, in, out, COUNT, RUBATO_FLOAT32, RUBATO_SUM, &op));
	if (rank != n - 1) { /* The last rank never starts: the others are caught in the middle. */
		RB_TRY(rubato_start(op));
	}
	atomic_fetch_add(ready, 1);
	if (rank == 0) {
		while (*ready < n) /* The news must not meet a rank that is before that. */
			rubato_sleep(comm, 1000000);
		EXPECT(rubato_wait(op, 20000000) == RUBATO_ERR_TIMEOUT);
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
	} else if (rank != n - 1) {
		/* Rank 0's word ends it, well before the deadline of a minute. */
		err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
		EXPECT(err == RUBATO_ERR_PEER && strstr(rubato_error_text(), "rank 0") != NULL);
	}
	if (rank != n - 1) {
		for (int i = 0; i < COUNT; i++)
			out[i] = 7;
		EXPECT(rubato_barrier(comm) != RUBATO_OK); /* Poisoned, as documented. */
	} else {
		/* Its own communicator learns of it at the next call. */
		EXPECT(rubato_barrier(comm) == RUBATO_ERR_PEER);
	}
	for (int i = 0; i < COUNT; i++)
		quiet += rank == n - 1 || out[i] == 7;
	EXPECT(quiet == COUNT);
	rubato_op_free(op);
	free(in);
	free(out);
	EXPECT(rubato_finalize(comm) != RUBATO_OK || rank == 0);
	return RUBATO_OK;
}

START_TEST(cancel_leaves_quiet_buffers_and_poison)
{
	atomic_uint ready = 0;

	ck_assert_int_eq(local_run_raw((uint32_t)_i, shm, cancel_main, &ready, NULL), RUBATO_OK);
}
END_TEST

static rubato_status cancel_message_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), other = 1 - rank;
	int32_t got = 0, sent = 42;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_recv(comm, &got, 1, RUBATO_INT32, other, 9, &op));
	RB_TRY(rubato_start(op));
	EXPECT(rubato_wait(op, 1000000) == RUBATO_ERR_TIMEOUT);
	EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
	rubato_op_free(op);
	/* The communicator is as good as before. */
	RB_TRY(rubato_barrier(comm));
	if (rank == 0)
		return rubato_send(comm, &sent, 1, RUBATO_INT32, other, 10);
	RB_TRY(rubato_recv(comm, &got, 1, RUBATO_INT32, other, 10));
	EXPECT(got == 42);
	return RUBATO_OK;
}

START_TEST(cancelled_message_leaves_the_communicator_usable)
{
	ck_assert_int_eq(local_run(2, shm, cancel_message_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* Rank 1 never starts, so that rank 0's is cancelled while its input is widened, or soon after. */
static rubato_status cancel_wide_main(rubato_comm *comm, void *arg)
{
	uint64_t count = 1 << 20;
	uint16_t *data = calloc(count, sizeof(*data));
	rubato_op *op;

	(void)arg;
	EXPECT(data != NULL);
	RB_TRY(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE));
	RB_TRY(rubato_op_allreduce(comm, data, data, count, RUBATO_FLOAT16, RUBATO_SUM, &op));
	RB_TRY(rubato_barrier(comm)); /* The news must not meet rank 1 while it makes it. */
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_start(op));
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		EXPECT(rubato_start(op) == RUBATO_ERR_CANCELLED); /* Poisoned. */
	} else {
		EXPECT(rubato_barrier(comm) == RUBATO_ERR_PEER);
	}
	rubato_op_free(op);
	free(data);
	(void)rubato_finalize(comm);
	return RUBATO_OK;
}

START_TEST(conversions_are_cancelled)
{
	ck_assert_int_eq(local_run_raw(2, shm, cancel_wide_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Mismatch: both sides are printed on both sides ---- */

static rubato_status mismatch_main(rubato_comm *comm, void *arg)
{
	const int variant = *(const int *)arg;
	uint32_t rank = rubato_rank(comm);
	float in[64] = { 0 }, out[64], *big = calloc(200000, sizeof(*big));
	rubato_status err;

	if (rank == 1 && variant == 0)
		err = rubato_allreduce(comm, in, out, 32, RUBATO_FLOAT32, RUBATO_SUM);
	else if (rank == 1 && variant == 1)
		err = rubato_allreduce(comm, in, out, 64, RUBATO_FLOAT32, RUBATO_MAX);
	else if (rank == 1 && variant == 2)
		err = rubato_allreduce(comm, in, out, 64, RUBATO_INT32, RUBATO_SUM);
	else if (rank == 1 && variant == 3)
		err = rubato_barrier(comm);
	else if (rank == 1 && variant == 4)
		err = rubato_reduce_scatter(comm, big, big + 50000, 50000, RUBATO_FLOAT32,
					    RUBATO_SUM);
	else if (variant == 5) {
		/* Only one accumulates over the whole. */
		RB_TRY(rubato_set_accumulate(comm, (rubato_accumulate)rank));
		err = rubato_allreduce(comm, in, out, 64, RUBATO_FLOAT16, RUBATO_SUM);
	} else if (variant == 4)
		err = rubato_allreduce(comm, big, big + 100000, 100000, RUBATO_FLOAT32, RUBATO_SUM);
	else
		err = rubato_allreduce(comm, in, out, 64, RUBATO_FLOAT32, RUBATO_SUM);
	EXPECT(err == RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "rank 0 calls") != NULL);
	EXPECT(strstr(rubato_error_text(), "rank 1 calls") != NULL);
	EXPECT(rubato_finalize(comm) == RUBATO_ERR_MISMATCH);
	free(big);
	return RUBATO_OK;
}

START_TEST(mismatch_prints_both_sides)
{
	ck_assert_int_eq(local_run_raw(2, shm, mismatch_main, &_i, NULL), RUBATO_OK);
}
END_TEST

/* ---- Deadlines ---- */

/* Rank 2 waits for a message that never comes, so that it is truly absent from the collective. */
static rubato_status absent_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	float in = 1, out;
	rubato_status err;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "flat"));
	if (rank == 2) {
		err = rubato_recv(comm, &out, 1, RUBATO_FLOAT32, 0, 1);
		EXPECT(err == RUBATO_ERR_PEER); /* The others' news. */
	} else {
		comm->timeout_ns = rank == 0 ? 50000000 : 20000000000u;
		err = rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM);
		EXPECT(err == (rank == 0 ? RUBATO_ERR_TIMEOUT : RUBATO_ERR_PEER));
		EXPECT(strstr(rubato_error_text(), "rank 2") != NULL);
	}
	EXPECT(rubato_finalize(comm) != RUBATO_OK);
	return RUBATO_OK;
}

START_TEST(timeout_names_the_absent_rank)
{
	ck_assert_int_eq(local_run_raw(3, shm, absent_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* Moves all the time, as a stream from a peer does that nobody waits for; not for ever. */
struct restless {
	struct rb_poller poller; /* First. */
	uint64_t until_ns;
};

static bool restless_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	return rb_engine_now(engine) < ((struct restless *)poller)->until_ns;
}

static rubato_status restless_main(rubato_comm *comm, void *arg)
{
	static const struct rb_poller_ops ops = { .order = RB_POLLER_NOTICE,
						  .polled = true,
						  .poll = restless_poll };
	struct restless restless = { .poller = { .ops = &ops },
				     .until_ns = rubato_now(comm) + 10000000000u };
	rubato_status err;
	rubato_op *op;
	float in;

	(void)arg;
	RB_TRY(rubato_op_recv(comm, &in, 1, RUBATO_FLOAT32, 0, 1, &op));
	RB_TRY(rubato_start(op));
	rb_engine_enter(&comm->engine);
	rb_engine_add_poller(&comm->engine, &restless.poller);
	rb_engine_leave(&comm->engine);
	err = rubato_wait(op, 20000000);
	EXPECT(err == RUBATO_ERR_TIMEOUT);
	EXPECT(restless_poll(&comm->engine, &restless.poller)); /* It did not wait for that. */
	rb_engine_enter(&comm->engine);
	rb_engine_remove_poller(&comm->engine, &restless.poller);
	rb_engine_leave(&comm->engine);
	EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
	rubato_op_free(op);
	return RUBATO_OK;
}

START_TEST(a_wait_ends_though_other_things_move)
{
	ck_assert_int_eq(local_run(1, shm, restless_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Background progress ---- */

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
};

static void gate_open(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->open = true;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

static void gate_pass(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	while (!gate->open)
		pthread_cond_wait(&gate->changed, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

static rubato_status background_main(rubato_comm *comm, void *arg)
{
	enum { COUNT = 500000 };
	struct gate *gate = arg;
	float *in = malloc(COUNT * sizeof(*in)), *out = malloc(COUNT * sizeof(*out));
	rubato_op *op;

	for (int i = 0; i < COUNT; i++)
		in[i] = (float)rubato_rank(comm) + 1;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_op_allreduce(comm, in, out, COUNT, RUBATO_FLOAT32, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	if (rubato_rank(comm) == 0) {
		/* Needs the other's progress, whose thread does not call the library meanwhile. */
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		gate_open(gate);
	} else {
		gate_pass(gate);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	}
	EXPECT(out[0] == 3 && out[COUNT - 1] == 3);
	rubato_op_free(op);
	free(in);
	free(out);
	return RUBATO_OK;
}

START_TEST(progress_without_calls)
{
	for (int i = 0; i < 20; i++) {
		struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };

		ck_assert_int_eq(local_run(2, shm, background_main, &gate, NULL), RUBATO_OK);
	}
}
END_TEST

/* ---- Several threads on one communicator ---- */

struct worker {
	rubato_comm *comm;
	uint32_t tag;
	rubato_status status;
};

static rubato_status worker_run(struct worker *w)
{
	uint32_t rank = rubato_rank(w->comm), n = rubato_size(w->comm);
	int64_t token = 0;

	for (int64_t i = 0; i < 300; i++) {
		int64_t out = i * 1000 + w->tag;

		RB_TRY(rubato_send(w->comm, &out, 1, RUBATO_INT64, (rank + 1) % n, w->tag));
		RB_TRY(rubato_recv(w->comm, &token, 1, RUBATO_INT64, (rank + n - 1) % n, w->tag));
		EXPECT(token == out);
	}
	return RUBATO_OK;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->status = worker_run(w);
	return NULL;
}

static rubato_status threads_main(rubato_comm *comm, void *arg)
{
	enum { WORKERS = 4, OPS = 6 };
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];
	rubato_op *ops[OPS];
	int32_t in[OPS] = { 0 }, out[OPS] = { 0 };
	rubato_status err = RUBATO_OK;

	(void)arg;
	for (uint32_t i = 0; i < OPS; i++)
		RB_TRY(rubato_op_allreduce(comm, &in[i], &out[i], 1, RUBATO_INT32, RUBATO_SUM,
					   &ops[i]));
	for (uint32_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker) { comm, i, RUBATO_OK };
		if (pthread_create(&threads[i], NULL, worker_main, &workers[i]) != 0)
			return RUBATO_ERR_MEMORY;
	}
	for (int round = 0; err == RUBATO_OK && round < 100; round++) {
		for (uint32_t i = 0; i < OPS; i++) {
			in[i] = round + (int)i;
			RB_TRY(rubato_start(ops[i]));
		}
		/* Waited for in another order than started, and differently on each rank. */
		for (uint32_t i = 0; i < OPS; i++) {
			uint32_t k = (i * 5 + rubato_rank(comm)) % OPS;

			RB_TRY(rubato_wait(ops[k], RUBATO_TIMEOUT_DEFAULT));
			EXPECT(out[k] == (int)rubato_size(comm) * (round + (int)k));
		}
		err = rubato_barrier(comm);
	}
	for (uint32_t i = 0; i < WORKERS; i++) {
		pthread_join(threads[i], NULL);
		err = err != RUBATO_OK ? err : workers[i].status;
	}
	for (uint32_t i = 0; i < OPS; i++)
		rubato_op_free(ops[i]);
	return err;
}

START_TEST(several_threads_on_one_communicator)
{
	ck_assert_int_eq(local_run(3, shm, threads_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- Abort ---- */

static rubato_status abort_main(rubato_comm *comm, void *arg)
{
	float in = 1, out;
	rubato_status err;

	(void)arg;
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_abort(comm));
		EXPECT(rubato_barrier(comm) == RUBATO_ERR_CANCELLED);
		return rubato_finalize(comm);
	}
	err = rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM);
	EXPECT(err == RUBATO_ERR_PEER);
	EXPECT(rubato_finalize(comm) == RUBATO_ERR_PEER);
	return RUBATO_OK;
}

START_TEST(abort_ends_the_peers_operations)
{
	ck_assert_int_eq(local_run_raw((uint32_t)_i, shm, abort_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- A protocol machine: the first to arrive tells all, along a binomial tree ---- */

struct herald { /* Counts rounds; whoever starts one first forwards it to its children. */
	uint32_t rank, n;
	uint64_t round, heard;
	bool waiting;
	bool done; /* The application waits for it. */
};

static void herald_forward(struct herald *h, uint32_t origin, uint64_t round,
			   struct rb_protocol_actions *out)
{
	uint32_t place = (h->rank + h->n - origin) % h->n;

	for (uint32_t bit = 1; bit < h->n; bit *= 2) {
		if (place >= bit || place + bit >= h->n)
			continue;
		struct rb_protocol_action *send = rb_protocol_action_add(out, RB_PROTOCOL_SEND);

		send->peer = (h->rank + bit) % h->n;
		memcpy(send->message, &origin, sizeof(origin));
		memcpy(send->message + 8, &round, sizeof(round));
	}
}

static void herald_hear(struct herald *h, uint32_t origin, uint64_t round,
			struct rb_protocol_actions *out)
{
	if (round <= h->heard)
		return; /* Two heralds at once: the second is old news. */
	h->heard = round;
	herald_forward(h, origin, round, out);
}

static void herald_step(struct herald *h, const struct rb_protocol_event *event,
			struct rb_protocol_actions *out)
{
	uint32_t origin = h->rank;
	uint64_t round = h->round + 1;

	switch (event->kind) {
	case RB_PROTOCOL_START:
		h->waiting = true;
		herald_hear(h, origin, round, out);
		rb_protocol_action_add(out, RB_PROTOCOL_WAKE)->value = event->now_ns + 1000;
		break;
	case RB_PROTOCOL_MESSAGE:
		memcpy(&origin, event->message, sizeof(origin));
		memcpy(&round, event->message + 8, sizeof(round));
		herald_hear(h, origin, round, out);
		break;
	case RB_PROTOCOL_TIMER:
	case RB_PROTOCOL_RUN_DONE:
	case RB_PROTOCOL_PEER_LOST:
		break;
	}
	if (h->waiting && h->heard > h->round && event->kind != RB_PROTOCOL_START) {
		h->waiting = false;
		h->round++;
		rb_protocol_action_add(out, RB_PROTOCOL_DONE)->value = h->round;
	}
}

static bool herald_valid(const struct herald *h)
{
	return h->rank < h->n && h->heard >= h->round && h->heard <= h->round + 1;
}

static void herald_event(struct rb_engine *engine, struct rb_protocol_driver *driver,
			 struct rb_protocol_event *event)
{
	struct herald *h = driver->owner;
	struct rb_protocol_actions actions;

	if (!rb_protocol_begin(engine, driver, event))
		return;
	do {
		actions.count = 0;
		RB_ASSERT(herald_valid(h));
		herald_step(h, event, &actions);
		RB_ASSERT(herald_valid(h));
		for (uint32_t i = 0; i < actions.count; i++) {
			if (actions.item[i].act == RB_PROTOCOL_DONE)
				h->done = engine->completed = true;
			else
				rb_protocol_carry_out(engine, driver, &actions.item[i]);
		}
	} while (rb_protocol_next(engine, driver, event));
}

static void herald_ended(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	struct herald *h = driver->owner;

	h->done = engine->completed = true;
}

/* A call that began before others had the lock, while another thread stepped the machine. */
static bool time_goes_on(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	struct rb_protocol_event late = { .kind = RB_PROTOCOL_TIMER, .now_ns = 1 };
	uint64_t before_ns = driver->now_ns, now_ns;

	if (before_ns <= late.now_ns || !rb_protocol_begin(engine, driver, &late))
		return false;
	now_ns = late.now_ns;
	while (rb_protocol_next(engine, driver, &late))
		;
	return now_ns == before_ns && driver->now_ns >= before_ns;
}

static rubato_status herald_main(rubato_comm *comm, void *arg)
{
	struct herald herald = { .rank = rubato_rank(comm), .n = rubato_size(comm) };
	struct rb_protocol_driver driver = { .name = "herald",
					     .number = 1,
					     .event = herald_event,
					     .ended = herald_ended,
					     .owner = &herald };
	rubato_status err;
	bool goes_on;

	(void)arg;
	rb_engine_enter(&comm->engine);
	err = rb_protocol_open(&comm->engine, &driver);
	rb_engine_leave(&comm->engine);
	RB_TRY(err);
	for (uint64_t round = 1; round <= 50; round++) {
		struct rb_protocol_event start = { .kind = RB_PROTOCOL_START };

		RB_TRY(rubato_barrier(comm));
		rb_engine_enter(&comm->engine);
		herald.done = false;
		herald_event(&comm->engine, &driver, &start);
		err = rb_engine_wait(&comm->engine, &herald.done,
				     rb_engine_now(&comm->engine) + 20000000000u);
		rb_engine_leave(&comm->engine);
		RB_TRY(err);
		EXPECT(herald.round == round);
	}
	RB_TRY(rubato_barrier(comm));
	rb_engine_enter(&comm->engine);
	goes_on = time_goes_on(&comm->engine, &driver);
	rb_protocol_close(&comm->engine, &driver);
	rb_engine_leave(&comm->engine);
	EXPECT(goes_on);
	return RUBATO_OK;
}

START_TEST(protocol_machine_on_the_engine)
{
	ck_assert_int_eq(local_run((uint32_t)_i, shm, herald_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* promises, or starts: what counts who takes the processor from it, and so runs alone. */
int main(int argc, char **argv)
{
	Suite *suite = suite_create("engine");
	TCase *tc;

	if (argc != 2)
		return EXIT_FAILURE;
	tc = tcase_create(argv[1]);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	if (strcmp(argv[1], "starts") == 0) {
		tcase_add_test(tc, starts_are_not_interrupted);
		return check_suite(suite);
	}
	tcase_add_loop_test(tc, direct_reduction_from_mapped_peers, 2, 5);
	tcase_add_loop_test(tc, put_with_notification_on_the_simulator, 2, 7);
	tcase_add_test(tc, tests_in_a_loop_let_simulated_time_pass);
	tcase_add_test(tc, start_does_a_slice);
	tcase_add_loop_test(tc, schedules_on_an_asynchronous_executor, 1, 5);
	tcase_add_loop_test(tc, a_device_waits_for_its_own_events, 1, 5);
	tcase_add_loop_test(tc, cancel_leaves_quiet_buffers_and_poison, 2, 5);
	tcase_add_test(tc, cancelled_message_leaves_the_communicator_usable);
	tcase_add_test(tc, conversions_are_cancelled);
	tcase_add_loop_test(tc, mismatch_prints_both_sides, 0, 6);
	tcase_add_test(tc, timeout_names_the_absent_rank);
	tcase_add_test(tc, a_wait_ends_though_other_things_move);
	tcase_add_test(tc, progress_without_calls);
	tcase_add_test(tc, several_threads_on_one_communicator);
	tcase_add_loop_test(tc, abort_ends_the_peers_operations, 2, 5);
	tcase_add_loop_test(tc, protocol_machine_on_the_engine, 1, 6);
	return check_suite(suite);
}
