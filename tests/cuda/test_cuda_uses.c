/*
 * test_cuda_uses.c -- what programs do with device memory and streams that the other tests do not:
 * several streams on one communicator, operations freed, cancelled and aborted while streams are
 * held, buffers that are parts of one allocation, devices side by side, and any call of the driver
 * that fails at any time. On the fake driver, ranks as threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "rubato_cuda.h"
#include "runtime/comm.h"
#include "tests/check_main.h"
#include "tests/cuda/app.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/seeds.h"

#define WORDS 20001u
#define PATIENCE_NS 10000000000u

static struct cuda_app app;

static rubato_status ranks_run(uint32_t ranks, local_main body, void *arg)
{
	return cuda_app_ranks(&app, "shm", ranks, body, arg);
}

static CUdeviceptr at(const void *memory)
{
	return (CUdeviceptr)(uintptr_t)memory;
}

static void bytes_set(void *memory, uint32_t value, CUstream stream)
{
	CUDA_APP(&app, cuMemsetD8Async, at(memory), (uint8_t)value, (size_t)WORDS * 4, stream);
}

static bool words_are(const void *memory, uint32_t words, uint32_t value)
{
	uint32_t *host = malloc((size_t)words * 4);
	bool all = host != NULL;

	cuda_app_copy(&app, host, memory, (size_t)words * 4);
	for (uint32_t i = 0; i < words && all; i++)
		all = host[i] == value;
	free(host);
	return all;
}

/* ---- Streams that are held ---- */

struct hold {
	CUstream stream;
	atomic_bool go;
};

static void CUDA_CB held(void *arg)
{
	struct hold *hold = arg;

	while (!hold->go)
		(void)usleep(200);
}

static struct hold *hold_new(void)
{
	struct hold *hold = calloc(1, sizeof(*hold));

	ck_assert_ptr_nonnull(hold);
	hold->stream = cuda_app_stream(&app);
	ck_assert_int_eq(app.host_call(hold->stream, held, hold), CUDA_SUCCESS);
	return hold;
}

/* What is on it goes on, and comes to its end. */
static void hold_end(struct hold *hold)
{
	hold->go = true;
	CUDA_APP(&app, cuStreamSynchronize, hold->stream);
	CUDA_APP(&app, cuStreamDestroy, hold->stream);
	free(hold);
}

/* ---- Two streams on one communicator ---- */

static rubato_status two_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), sum = n * (n - 1) / 2;
	CUstream streams[2] = { cuda_app_stream(&app), cuda_app_stream(&app) };
	void *in[2], *out[2];
	rubato_op *ops[2];

	(void)arg;
	for (uint32_t i = 0; i < 2; i++) {
		in[i] = cuda_app_alloc(&app, (size_t)WORDS * 4);
		out[i] = cuda_app_alloc(&app, (size_t)WORDS * 4);
		RB_TRY(rubato_op_allreduce(comm, in[i], out[i], WORDS, RUBATO_UINT32, RUBATO_SUM,
					   &ops[i]));
	}
	/* Each operation on each stream in turn, also where its last start is still in flight. */
	for (uint32_t round = 0; round < 8; round++)
		for (uint32_t i = 0; i < 2; i++) {
			CUstream stream = streams[(i + round) % 2];

			if (round > 0) /* Its input is the operation's until then. */
				RB_TRY(rubato_wait(ops[i], RUBATO_TIMEOUT_DEFAULT));
			bytes_set(in[i], rank + round + i, stream);
			RB_TRY(rubato_cuda_start(ops[i], stream));
		}
	for (uint32_t i = 0; i < 2; i++)
		CUDA_APP(&app, cuStreamSynchronize, streams[i]);
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_wait(ops[i], RUBATO_TIMEOUT_DEFAULT));
		EXPECT(words_are(out[i], WORDS, 0x01010101u * (sum + n * (7 + i))));
		rubato_op_free(ops[i]);
	}
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < 2; i++) {
		CUDA_APP(&app, cuStreamDestroy, streams[i]);
		cuda_app_free(&app, in[i]);
		cuda_app_free(&app, out[i]);
	}
	return RUBATO_OK;
}

START_TEST(operations_change_streams)
{
	cuda_app_begin(&app, 3);
	ck_assert_msg(ranks_run(3, two_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- Ended while its stream is held ---- */

/* A receive is freed before its stream comes to it, and its gate comes to another one, on another
 * stream, which comes first. What the first stream does when it comes at last must not be taken for
 * the second's. The progress thread is kept from looking until both have come. */
static rubato_status late_main(rubato_comm *comm, void *arg)
{
	void *memory = cuda_app_alloc(&app, (size_t)WORDS * 4);
	struct hold *first, *second;
	rubato_op *op, *next;

	(void)arg;
	if (rubato_rank(comm) == 1) {
		CUstream stream = cuda_app_stream(&app);

		bytes_set(memory, 9, stream);
		CUDA_APP(&app, cuStreamSynchronize, stream);
		CUDA_APP(&app, cuStreamDestroy, stream);
		RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_send(comm, memory, WORDS, RUBATO_UINT32, 0, 1));
		cuda_app_free(&app, memory);
		return RUBATO_OK;
	}
	RB_TRY(rubato_op_recv(comm, memory, WORDS, RUBATO_UINT32, 1, 1, &op));
	first = hold_new();
	second = hold_new();
	EXPECT(rubato_cuda_start(op, first->stream) == RUBATO_OK);
	rubato_op_free(op);
	EXPECT(rubato_op_recv(comm, memory, WORDS, RUBATO_UINT32, 1, 1, &next) == RUBATO_OK);
	EXPECT(rubato_cuda_start(next, second->stream) == RUBATO_OK);
	rb_engine_enter(&comm->engine);
	second->go = true;
	(void)usleep(50000);
	hold_end(first);
	rb_engine_leave(&comm->engine);
	RB_TRY(rubato_barrier(comm));
	EXPECT(rubato_wait(next, PATIENCE_NS) == RUBATO_OK);
	hold_end(second);
	EXPECT(words_are(memory, WORDS, 0x09090909u));
	rubato_op_free(next);
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(a_stream_that_comes_late_disturbs_nobody)
{
	cuda_app_begin(&app, 0);
	ck_assert_msg(ranks_run(2, late_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* Freed, by each rank, before its stream comes to it. */
static rubato_status freed_main(rubato_comm *comm, void *arg)
{
	struct hold *hold = hold_new();
	void *memory = cuda_app_alloc(&app, (size_t)WORDS * 4);
	rubato_op *op;
	rubato_status made, err;

	(void)arg;
	made = rubato_op_allreduce(comm, memory, memory, WORDS, RUBATO_UINT32, RUBATO_SUM, &op);
	/* The other rank may have freed its own already. */
	err = made == RUBATO_OK ? rubato_cuda_start(op, hold->stream) : made;
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_PEER);
	if (made == RUBATO_OK)
		rubato_op_free(op);
	bytes_set(memory, 5, hold->stream);
	hold_end(hold);
	EXPECT(words_are(memory, WORDS, 0x05050505u));
	EXPECT(rubato_barrier(comm) < 0); /* A collective was cancelled. */
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(an_operation_is_freed_before_its_stream_comes)
{
	rubato_status err;

	cuda_app_begin(&app, 4);
	err = ranks_run(2, freed_main, NULL); /* finalize() says that it was cancelled. */
	ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

static void *abort_main(void *arg)
{
	(void)usleep(3000);
	return rubato_abort(arg) == RUBATO_OK ? arg : NULL;
}

/* By another thread, while this one starts operations and waits. */
static rubato_status aborted_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	void *memory = cuda_app_alloc(&app, (size_t)WORDS * 4), *aborted;
	rubato_op *op = NULL;
	rubato_status err =
		rubato_op_allreduce(comm, memory, memory, WORDS, RUBATO_UINT32, RUBATO_SUM, &op);
	pthread_t thread;

	/* Where the other rank has made its own, aborted and freed its memory already, it fails. */
	(void)arg;
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_main, comm), 0);
	while (err == RUBATO_OK) {
		err = rubato_cuda_start(op, stream);
		if (err == RUBATO_OK)
			err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	}
	EXPECT(err == RUBATO_ERR_CANCELLED || err == RUBATO_ERR_PEER);
	CUDA_APP(&app, cuStreamSynchronize, stream);
	(void)pthread_join(thread, &aborted);
	EXPECT(aborted != NULL);
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(another_thread_aborts)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 3 : 20);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		rubato_status err;

		cuda_app_begin(&app, seed);
		err = ranks_run(2, aborted_main, NULL);
		ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s", rubato_error_text());
		cuda_app_end(&app);
	}
}
END_TEST

/* ---- Buffers ---- */

static void *whole; /* One allocation, of which each rank has a part. */

/* In place on even ranks, out of place on odd ones; parts begin one element behind a boundary. */
static rubato_status parts_main(rubato_comm *comm, void *arg)
{
	static const char *const algorithms[] = { "auto", "direct", "ring", "two_shot", "flat" };
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t *in = (uint32_t *)whole + (size_t)rank * 2 * (WORDS + 1) + 1;
	uint32_t *out = rank % 2 == 0 ? in : in + WORDS + 1;
	uint32_t *host = malloc((size_t)WORDS * 4);

	(void)arg;
	EXPECT(host != NULL);
	for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
		RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithms[a]));
		for (uint32_t i = 0; i < WORDS; i++)
			host[i] = i * (rank + 1);
		cuda_app_copy(&app, in, host, (size_t)WORDS * 4);
		RB_TRY(rubato_allreduce(comm, in, out, WORDS, RUBATO_UINT32, RUBATO_SUM));
		cuda_app_copy(&app, host, out, (size_t)WORDS * 4);
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT(host[i] == i * (n * (n + 1) / 2));
		/* Of nothing: there, or nowhere. */
		RB_TRY(rubato_allreduce(comm, in, out, 0, RUBATO_UINT32, RUBATO_SUM));
		RB_TRY(rubato_allreduce(comm, NULL, rank == 0 ? NULL : out, 0, RUBATO_UINT32,
					RUBATO_SUM));
	}
	free(host);
	return rubato_barrier(comm);
}

static rubato_status nothing_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	void *memory = cuda_app_alloc(&app, 4);
	rubato_op *ops[2];

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, memory, memory, 0, RUBATO_UINT32, RUBATO_SUM, &ops[0]));
	RB_TRY(rubato_op_barrier(comm, &ops[1]));
	for (uint32_t i = 0; i < 6; i++)
		RB_TRY(rubato_cuda_start(ops[i % 2], stream));
	CUDA_APP(&app, cuStreamSynchronize, stream);
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_wait(ops[i], RUBATO_TIMEOUT_DEFAULT));
		rubato_op_free(ops[i]);
	}
	RB_TRY(rubato_barrier(comm));
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(buffers_are_parts_of_one_or_nothing)
{
	cuda_app_begin(&app, 5);
	cuda_app_enter(&app);
	whole = cuda_app_alloc(&app, (size_t)4 * 2 * (WORDS + 1) * 4);
	ck_assert_msg(ranks_run(4, parts_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_msg(ranks_run(3, nothing_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_free(&app, whole);
	cuda_app_leave(&app);
	cuda_app_end(&app);
}
END_TEST

/* ---- Devices side by side ---- */

/* Two communicators of each rank, each with a device; operations of both are under way at once. */
static rubato_status devices_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	rubato_comm *comms[2];
	CUcontext contexts[2];
	CUstream streams[2];
	void *memory[2];
	rubato_op *ops[2];

	(void)arg;
	for (uint32_t d = 0; d < 2; d++) {
		RB_TRY(rubato_split(comm, 0, 0, &comms[d]));
		RB_TRY(rubato_cuda_use(comms[d], (int)d));
		CUDA_APP(&app, cuDevicePrimaryCtxRetain, &contexts[d], (CUdevice)d);
		CUDA_APP(&app, cuCtxPushCurrent, contexts[d]);
		streams[d] = cuda_app_stream(&app);
		memory[d] = cuda_app_alloc(&app, (size_t)WORDS * 4);
		RB_TRY(rubato_op_allreduce(comms[d], memory[d], memory[d], WORDS, RUBATO_UINT32,
					   RUBATO_SUM, &ops[d]));
		CUDA_APP(&app, cuCtxPopCurrent, &contexts[d]);
	}
	for (uint32_t d = 0; d < 2; d++) {
		CUDA_APP(&app, cuCtxPushCurrent, contexts[d]);
		bytes_set(memory[d], rank + d, streams[d]);
		CUDA_APP(&app, cuCtxPopCurrent, &contexts[d]);
		RB_TRY(rubato_cuda_start(ops[d], streams[d])); /* With no context. */
	}
	for (uint32_t d = 0; d < 2; d++) {
		RB_TRY(rubato_wait(ops[d], RUBATO_TIMEOUT_DEFAULT));
		CUDA_APP(&app, cuCtxPushCurrent, contexts[d]);
		EXPECT(words_are(memory[d], WORDS, 0x01010101u * (n * (n - 1) / 2 + n * d)));
		rubato_op_free(ops[d]);
		RB_TRY(rubato_barrier(comms[d]));
		CUDA_APP(&app, cuStreamDestroy, streams[d]);
		cuda_app_free(&app, memory[d]);
		RB_TRY(rubato_finalize(comms[d]));
		CUDA_APP(&app, cuCtxPopCurrent, &contexts[d]);
		CUDA_APP(&app, cuDevicePrimaryCtxRelease, (CUdevice)d);
	}
	return RUBATO_OK;
}

START_TEST(communicators_have_different_devices)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	rubato_status status[2];

	cuda_app_begin(&app, 6);
	ck_assert_msg(local_run(2, transports, devices_main, NULL, status) == RUBATO_OK, "%s",
		      rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- A device that comes later: calls like those before are of its memory now ---- */

static rubato_status later_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), word = rank, sum = 0;
	CUcontext context;
	void *in, *out;

	(void)arg;
	for (uint32_t i = 0; i < 3; i++)
		RB_TRY(rubato_allreduce(comm, &word, &sum, 1, RUBATO_UINT32, RUBATO_SUM));
	EXPECT(sum == n * (n - 1) / 2);
	CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, (CUdevice)rank);
	CUDA_APP(&app, cuCtxPushCurrent, context);
	RB_TRY(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	in = cuda_app_alloc(&app, (size_t)WORDS * 4);
	out = cuda_app_alloc(&app, (size_t)WORDS * 4);
	bytes_set(in, rank, NULL);
	CUDA_APP(&app, cuStreamSynchronize, NULL);
	RB_TRY(rubato_allreduce(comm, in, out, 1, RUBATO_UINT32, RUBATO_SUM));
	EXPECT(words_are(out, 1, 0x01010101u * sum));
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	CUDA_APP(&app, cuCtxPopCurrent, &context);
	CUDA_APP(&app, cuDevicePrimaryCtxRelease, (CUdevice)rank);
	return rubato_barrier(comm);
}

START_TEST(a_device_comes_after_calls_like_it)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	rubato_status status[2];

	cuda_app_begin(&app, 6);
	ck_assert_msg(local_run(2, transports, later_main, NULL, status) == RUBATO_OK, "%s",
		      rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- The default stream ---- */

/* Of each rank's own device. */
static rubato_status default_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	CUcontext context;
	void *memory;
	rubato_op *op;

	(void)arg;
	CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, (CUdevice)rank);
	CUDA_APP(&app, cuCtxPushCurrent, context);
	RB_TRY(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	memory = cuda_app_alloc(&app, (size_t)WORDS * 4);
	RB_TRY(rubato_op_allreduce(comm, memory, memory, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	for (uint32_t round = 0; round < 3; round++) {
		bytes_set(memory, rank + round, NULL);
		RB_TRY(rubato_cuda_start(op, NULL));
		CUDA_APP(&app, cuStreamSynchronize, NULL);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		EXPECT(words_are(memory, WORDS, 0x01010101u * (n * (n - 1) / 2 + n * round)));
	}
	rubato_op_free(op);
	cuda_app_free(&app, memory);
	CUDA_APP(&app, cuCtxPopCurrent, &context);
	CUDA_APP(&app, cuDevicePrimaryCtxRelease, (CUdevice)rank);
	return RUBATO_OK;
}

START_TEST(the_default_stream_is_one_too)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	rubato_status status[3];

	cuda_app_begin(&app, 8);
	ck_assert_msg(local_run(3, transports, default_main, NULL, status) == RUBATO_OK, "%s",
		      rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- Errors of the driver ---- */

static void driver_fails(const char *call, uint32_t at_call, bool for_good)
{
	struct fake_cuda_control control = { .fail_at = at_call,
					     .fail_with = CUDA_ERROR_LAUNCH_FAILED,
					     .fail_for_good = for_good };

	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", call);
	app.fake_control(&control);
}

/* A start that fails holds nothing up, and the next one begins when its stream has come. */
static rubato_status start_main(rubato_comm *comm, void *arg)
{
	static const char *const calls[] = { "cuStreamIsCapturing", "cuLaunchKernel" };
	CUstream stream = cuda_app_stream(&app);
	void *in = cuda_app_alloc(&app, (size_t)WORDS * 4);
	void *out = cuda_app_alloc(&app, (size_t)WORDS * 4);
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, in, out, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < 2; i++) {
		struct hold *hold;

		driver_fails(calls[i], 1, false);
		EXPECT(rubato_cuda_start(op, stream) == RUBATO_ERR_SYSTEM);
		EXPECT(strstr(rubato_error_text(), calls[i]) != NULL);
		EXPECT(app.fake_counts().failed == i + 1);
		CUDA_APP(&app, cuStreamSynchronize, stream);
		hold = hold_new();
		bytes_set(in, 7 + i, hold->stream);
		RB_TRY(rubato_cuda_start(op, hold->stream));
		(void)usleep(5000);
		hold_end(hold);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		EXPECT(words_are(out, WORDS, 0x01010101u * (7 + i)));
	}
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	return RUBATO_OK;
}

START_TEST(a_start_that_fails_holds_up_nothing)
{
	cuda_app_begin(&app, 0);
	ck_assert_msg(ranks_run(1, start_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

struct fault {
	const char *call;
	uint32_t at;
	bool for_good, at_the_end;
};

/* In fewer bits: what is started has its memory on the device, what is called makes some. */
static rubato_status faulty_coded(rubato_comm *comm, rubato_op *op, float *memory, uint64_t count)
{
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_BFLOAT16, false));
	RB_TRY(rubato_allreduce(comm, memory, memory, count, RUBATO_FLOAT32, RUBATO_AVG));
	return rubato_set_wire(comm, RUBATO_WIRE_SAME, false);
}

static rubato_status coded_made(rubato_comm *comm, float *memory, uint64_t count, rubato_op **op)
{
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_INT8, true));
	RB_TRY(rubato_op_allreduce(comm, memory, memory, count, RUBATO_FLOAT32, RUBATO_SUM, op));
	return rubato_set_wire(comm, RUBATO_WIRE_SAME, false);
}

/* Nothing of the application's own calls the driver once it may fail, but what may. */
static rubato_status faulty_work(rubato_comm *comm, CUstream stream, const struct fault *fault)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint64_t count = 70001;
	void *memory = NULL, *more = NULL;
	rubato_op *op = NULL, *coded = NULL;
	rubato_status err = rubato_cuda_alloc(comm, count * 4, &memory);

	if (err == RUBATO_OK)
		err = rubato_op_allreduce(comm, memory, memory, count, RUBATO_FLOAT32, RUBATO_MAX,
					  &op);
	if (err == RUBATO_OK)
		err = coded_made(comm, memory, count, &coded);
	if (err == RUBATO_OK && rank == 0 && !fault->at_the_end)
		driver_fails(fault->call, fault->at, fault->for_good);
	for (uint32_t i = 0; i < 4 && err == RUBATO_OK; i++) {
		err = rubato_cuda_start(op, stream);
		if (err == RUBATO_OK)
			err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
		if (err == RUBATO_OK)
			err = rubato_set_algorithm(comm, "allreduce", i % 2 ? "ring" : "direct");
		if (err == RUBATO_OK)
			err = rubato_allreduce(comm, memory, memory, count, RUBATO_FLOAT32,
					       RUBATO_MAX);
		if (err == RUBATO_OK)
			err = faulty_coded(comm, coded, memory, count);
		if (err == RUBATO_OK && n > 1 && rank < 2)
			err = rank == 0 ? rubato_send(comm, memory, count, RUBATO_FLOAT32, 1, i)
					: rubato_recv(comm, memory, count, RUBATO_FLOAT32, 0, i);
		if (err == RUBATO_OK && more == NULL)
			err = rubato_cuda_alloc(comm, count * 8, &more);
	}
	if (rank == 0 && fault->at_the_end && op != NULL) /* All have their device. */
		driver_fails(fault->call, fault->at, fault->for_good);
	if (err != RUBATO_OK)
		(void)rubato_abort(comm);
	rubato_op_free(op);
	rubato_op_free(coded);
	(void)rubato_cuda_free(comm, memory);
	(void)rubato_cuda_free(comm, more);
	return err;
}

static rubato_status faulty_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	rubato_status err = faulty_work(comm, stream, arg);

	(void)app.driver.p_cuStreamSynchronize(stream);
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_PEER ||
	       err == RUBATO_ERR_MEMORY || err == RUBATO_ERR_CANCELLED);
	(void)rubato_finalize(comm);
	(void)app.driver.p_cuStreamDestroy(stream);
	return RUBATO_OK;
}

static rubato_status faulty_entered(rubato_comm *comm, void *arg)
{
	rubato_status err;

	cuda_app_enter(&app);
	err = rubato_cuda_use(comm, RUBATO_CUDA_CURRENT);
	if (err == RUBATO_OK)
		err = faulty_main(comm, arg);
	else
		(void)rubato_finalize(comm);
	return err;
}

START_TEST(any_call_fails_at_any_time)
{
	static const char *const calls[] = {
		"cuPointerGetAttributes", "cuMemAlloc_v2", "cuMemFree_v2",      "cuMemHostAlloc",
		"cuMemFreeHost",          "cuMemcpyAsync", "cuLaunchKernel",    "cuEventRecord",
		"cuEventQuery",           "cuEventCreate", "cuEventDestroy_v2", "cuStreamWaitEvent",
		"cuStreamIsCapturing",    "cuStreamQuery", "cuCtxGetCurrent",
	};
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	uint64_t times = test_length() == TEST_SHORT    ? 20
			 : test_length() == TEST_NORMAL ? 100
							: 10000;
	struct seeds seeds = seeds_from(__func__, 1, times);
	uint64_t failed = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_rng rng = { seed };
		struct fault fault = { .call = calls[rb_rng_below(&rng, 15)],
				       .at = 1 + (uint32_t)rb_rng_below(&rng, 40),
				       .for_good = rb_rng_below(&rng, 3) == 0,
				       .at_the_end = rb_rng_below(&rng, 4) == 0 };
		uint32_t ranks = 1 + (uint32_t)rb_rng_below(&rng, 3);
		rubato_status status[3], err;

		cuda_app_begin(&app, seed);
		err = local_run_raw(ranks, transports, faulty_entered, &fault, status);
		ck_assert_msg(err == RUBATO_OK, "seed %llu, %s: %s", (unsigned long long)seed,
			      fault.call, rubato_error_text());
		failed += app.fake_counts().failed > 0;
		app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
		cuda_app_close(&app);
	}
	if (!seeds_chosen())
		ck_assert_uint_gt(failed, times / 4);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("uses");

	tcase_set_timeout(tc, 500);
	tcase_add_test(tc, operations_change_streams);
	tcase_add_test(tc, a_stream_that_comes_late_disturbs_nobody);
	tcase_add_test(tc, an_operation_is_freed_before_its_stream_comes);
	tcase_add_test(tc, another_thread_aborts);
	tcase_add_test(tc, buffers_are_parts_of_one_or_nothing);
	tcase_add_test(tc, communicators_have_different_devices);
	tcase_add_test(tc, a_device_comes_after_calls_like_it);
	tcase_add_test(tc, the_default_stream_is_one_too);
	tcase_add_test(tc, a_start_that_fails_holds_up_nothing);
	tcase_add_test(tc, any_call_fails_at_any_time);
	return check_main("cuda uses", tc);
}
