/*
 * test_cuda_device.c -- collectives on the memory of a CUDA device, ranks as threads of this
 * process: right bits, the host's, wherever each rank's buffers lie; on streams; and what happens
 * when the driver fails. On the fake driver with delays from a seed, or on a real one.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "rubato_cuda.h"
#include "runtime/comm.h"
#include "tests/check_main.h"
#include "tests/coded.h"
#include "tests/cuda/app.h"
#include "tests/cuda/fake/worlds.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/seeds.h"

#define WORDS 50000u

static struct cuda_app app;

static void app_open(uint64_t seed)
{
	cuda_app_begin(&app, seed);
}

/* Or "verbs": then the network reaches the device's memory, by dma-bufs. Or "ucx": UCX takes it. */
static const char *transport = "shm";
static bool streams = true; /* UCX starts nothing on them. */

static rubato_status ranks_run(uint32_t ranks, local_main body, void *arg)
{
	return cuda_app_ranks(&app, transport, ranks, body, arg);
}

/* ---- Right bits ---- */

static void worlds_run(const char *name, bool on_streams)
{
	bool verbs = strcmp(transport, "shm") != 0; /* They begin slower. */
	uint64_t times = test_length() == TEST_SHORT    ? (verbs ? 5 : 10)
			 : test_length() == TEST_NORMAL ? (verbs ? 12 : 60)
							: 10000;
	struct seeds seeds = seeds_from(name, 1, times);
	uint32_t ran = 0, skipped = 0;
	struct fake_cuda_counts counts = { 0 };

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct cuda_world w = { .app = &app, .seed = seed, .streams = on_streams };

		app_open(seed);
		ck_assert_msg(ranks_run(cuda_app_ranks_drawn(&app, rb_mix(seed)), cuda_world_main,
					&w) == RUBATO_OK,
			      "seed %llu: %s", (unsigned long long)seed, rubato_error_text());
		if (app.fake_counts != NULL)
			counts = app.fake_counts();
		cuda_app_end(&app);
		ran += w.ran;
		skipped += w.skipped;
	}
	ck_assert_uint_gt(ran, 2 * skipped);
	ck_assert_uint_eq(counts.pageable, 0);
	if (strcmp(transport, "ucx") == 0 && app.fake_counts != NULL && !seeds_chosen())
		ck_assert_uint_gt(counts.foreign_copies, 0);
	if (strcmp(transport, "ucx") == 0)
		return;
	if (app.fake_counts == NULL || seeds_chosen())
		return;
	/* Over verbs little is copied on the device, so that little waits there. */
	ck_assert_uint_gt(counts.copies, verbs ? 20 : 100);
	ck_assert_uint_gt(counts.launches, verbs ? 10 : 20);
	ck_assert_uint_gt(verbs ? counts.exported : counts.waited, 0);
}

START_TEST(ranks_have_buffers_where_they_like)
{
	worlds_run(__func__, false);
}
END_TEST

START_TEST(operations_on_streams_have_the_same_bits)
{
	worlds_run(__func__, true);
}
END_TEST

/* Where random worlds may not have come. */
START_TEST(every_collective_has_every_type)
{
	for (uint32_t draw = 0; draw < 4; draw++) {
		struct cuda_world w = { .app = &app };
		uint32_t ranks;

		app_open(0);
		ranks = cuda_app_ranks_drawn(&app, draw);
		ck_assert_msg(ranks_run(ranks, cuda_every_main, &w) == RUBATO_OK, "%u ranks: %s",
			      ranks, rubato_error_text());
		cuda_app_end(&app);
		ck_assert_uint_ge(w.ran, 11 * RUBATO_TYPE_COUNT);
		ck_assert_uint_eq(w.skipped, 0);
	}
}
END_TEST

/* ---- In fewer bits ---- */

START_TEST(what_travels_in_fewer_bits_is_the_hosts)
{
	uint64_t times = test_length() == TEST_SHORT    ? 6
			 : test_length() == TEST_NORMAL ? 30
							: 10000;
	struct seeds seeds = seeds_from(__func__, 1, times);
	uint32_t ran = 0, skipped = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct cuda_world w = { .app = &app, .seed = seed, .streams = streams && seed % 2 };

		app_open(seed);
		ck_assert_msg(ranks_run(cuda_app_ranks_drawn(&app, rb_mix(seed)), cuda_coded_main,
					&w) == RUBATO_OK,
			      "seed %llu: %s", (unsigned long long)seed, rubato_error_text());
		cuda_app_end(&app);
		ran += w.ran;
		skipped += w.skipped;
	}
	if (!seeds_chosen())
		ck_assert_uint_gt(ran, skipped);
}
END_TEST

/* Several pieces, coded, added up and decoded where they are; of reduce_scatter blocks that end
 * within a unit. */
static rubato_status coded_bytes_main(rubato_comm *comm, void *arg)
{
	const uint64_t count = (test_length() == TEST_SHORT ? 1u << 18 : 4u << 20) + 5;
	struct coded c = {
		.feedback = true, .count = count, .op = RUBATO_AVG, .memory = cuda_app_memory(&app)
	};
	float *want = malloc(CODED_ROUNDS * count * 4), *got = malloc(CODED_ROUNDS * count * 4);

	(void)arg;
	EXPECT(want != NULL && got != NULL);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t bytes, before;

		c.wire = i == 0 ? RUBATO_WIRE_BFLOAT16 : RUBATO_WIRE_INT8;
		c.scatter = i == 2;
		/* The test's own: vectors in and back; and what is behind them, twice each. */
		bytes = ((c.scatter ? rubato_size(comm) : 1) + 1) * CODED_ROUNDS * count * 4;
		bytes = rubato_size(comm) * (bytes + 4 * CODED_BEHIND * sizeof(float));
		c.kinds[0] = c.kinds[1] = EXERCISE_HOST;
		RB_TRY(coded_run(comm, &c, want));
		RB_TRY(rubato_barrier(comm));
		before = app.fake_counts().host_bytes;
		RB_TRY(rubato_barrier(comm));
		c.kinds[0] = c.kinds[1] = EXERCISE_DEVICE;
		RB_TRY(coded_run(comm, &c, got));
		RB_TRY(rubato_barrier(comm));
		EXPECT(app.fake_counts().host_bytes - before == bytes);
		RB_TRY(rubato_barrier(comm));
		EXPECT(memcmp(want, got, CODED_ROUNDS * count * 4) == 0);
	}
	free(want);
	free(got);
	return RUBATO_OK;
}

START_TEST(what_travels_in_fewer_bits_stays_on_the_device)
{
	app_open(18);
	if (app.fake_counts != NULL)
		ck_assert_msg(ranks_run(2 + (uint32_t)_i, coded_bytes_main, NULL) == RUBATO_OK,
			      "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* What an operation has lost goes to one made alike, which goes on as it does. Before the first
 * start there is nothing. */
static rubato_status residual_main(rubato_comm *comm, void *arg)
{
	const uint64_t count = 70001;
	rubato_op *ops[2];
	float *in = cuda_app_alloc(&app, count * 4), *out = cuda_app_alloc(&app, count * 4);
	float *host = malloc(count * 4), *results[2], *lost[2], *saved;
	uint64_t lengths[2];

	(void)arg;
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_INT8, true));
	for (uint32_t i = 0; i < 2; i++) {
		results[i] = malloc(count * 4);
		EXPECT(results[i] != NULL && host != NULL);
		RB_TRY(rubato_op_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM,
					   &ops[i]));
		RB_TRY(rubato_op_residual(ops[i], &lost[i], &lengths[i]));
	}
	EXPECT(lengths[0] == lengths[1] && lengths[0] >= 2 * count);
	saved = malloc(lengths[0] * 4);
	EXPECT(saved != NULL);
	cuda_app_copy(&app, saved, lost[1], lengths[1] * 4);
	for (uint64_t i = 0; i < lengths[1]; i++)
		EXPECT(saved[i] == 0);
	for (uint32_t round = 0; round < 4; round++) {
		uint32_t which = round == 3;

		for (uint64_t i = 0; i < count; i++)
			host[i] = (float)((i + (round < 2 ? round : 2) + rubato_rank(comm)) % 97) *
				  0.7f;
		cuda_app_copy(&app, in, host, count * 4);
		if (round == 2) {
			cuda_app_copy(&app, saved, lost[0], lengths[0] * 4);
			cuda_app_copy(&app, lost[1], saved, lengths[0] * 4);
		}
		RB_TRY(rubato_start(ops[which]));
		RB_TRY(rubato_wait(ops[which], RUBATO_TIMEOUT_DEFAULT));
		cuda_app_copy(&app, results[which], out, count * 4);
	}
	EXPECT(memcmp(results[0], results[1], count * 4) == 0);
	for (uint32_t i = 0; i < 2; i++) {
		rubato_op_free(ops[i]);
		free(results[i]);
	}
	free(host);
	free(saved);
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	return RUBATO_OK;
}

START_TEST(what_rounding_loses_is_lent_on_the_device)
{
	app_open(29);
	ck_assert_msg(ranks_run(3, residual_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* ---- Helped against a late rank ---- */

static rubato_status helped_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t *host = malloc(WORDS * 4);
	void *in = cuda_app_alloc(&app, WORDS * 4), *out = cuda_app_alloc(&app, WORDS * 4);
	rubato_op *op;

	(void)arg;
	EXPECT(host != NULL);
	RB_TRY(rubato_op_allreduce_helped(comm, in, out, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	for (uint32_t late = 0; late < n; late++) {
		for (uint32_t i = 0; i < WORDS; i++)
			host[i] = i * (rank + 1) + late;
		cuda_app_copy(&app, in, host, WORDS * 4);
		if (rank == late)
			usleep(20000);
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		cuda_app_copy(&app, host, out, WORDS * 4);
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT(host[i] == i * (n * (n + 1) / 2) + n * late);
	}
	rubato_op_free(op);
	free(host);
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	return RUBATO_OK;
}

START_TEST(a_late_rank_is_helped_on_the_device)
{
	app_open(13);
	ck_assert_msg(ranks_run(4, helped_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* ---- In place of each other ---- */

/* Ranks of one process work in each other's device memory: nothing goes over the host. */
static rubato_status in_place_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), value = rank + 1, got[2];
	uint64_t count = 3u << 20; /* Two chunks a rank. */
	char *in = cuda_app_alloc(&app, count * 4), *out = cuda_app_alloc(&app, count * 4);
	struct fake_cuda_counts before = { 0 }, after = { 0 };

	(void)arg;
	for (uint64_t at = 0; at < count; at += count - 1)
		cuda_app_copy(&app, in + 4 * at, &value, 4);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	RB_TRY(rubato_set_algorithm(comm, "alltoall", "direct"));
	RB_TRY(rubato_barrier(comm));
	if (app.fake_counts != NULL)
		before = app.fake_counts();
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < 5; i++)
		RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_UINT32, RUBATO_SUM));
	for (uint32_t i = 0; i < 2; i++) /* There and back, through scratch. */
		RB_TRY(rubato_alltoall(comm, out, out, count / n, RUBATO_UINT32));
	RB_TRY(rubato_barrier(comm));
	if (app.fake_counts != NULL) {
		after = app.fake_counts();
		EXPECT(after.host_copies == before.host_copies);
		EXPECT(after.launches - before.launches >= 5 * n);
		EXPECT(after.copies - before.copies >= 5 * n * (n - 1));
	}
	RB_TRY(rubato_barrier(comm));
	cuda_app_copy(&app, &got[0], out, 4);
	cuda_app_copy(&app, &got[1], out + 4 * (count - 1), 4);
	EXPECT(got[0] == n * (n + 1) / 2 && got[1] == got[0]);
	RB_TRY(rubato_barrier(comm));
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	return RUBATO_OK;
}

START_TEST(ranks_of_a_process_work_in_place)
{
	app_open(5);
	ck_assert_msg(ranks_run(3, in_place_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* Of an alltoallv some pairs work in place, and others send messages meanwhile: their chunks, and
 * what these lie in, are those of every rank, whatever it has. */
static rubato_status mixed_pairs_main(rubato_comm *comm, void *arg)
{
	struct exercise e = { .kind = "alltoallv",
			      .algorithm = "direct",
			      .count = 70001, /* Some blocks are several chunks. */
			      .type = RUBATO_UINT64,
			      .times = 2,
			      .memory = cuda_app_memory(&app) };

	(void)arg;
	for (uint32_t i = 0; i < 16; i++) {
		bool host = i % 2 == 0 && rubato_rank(comm) == 0;

		e.salt = i / 4;
		e.in_place = i % 2;
		e.persistent = i % 4 > 1;
		e.kinds[0] = e.kinds[1] = host ? EXERCISE_HOST : EXERCISE_DEVICE;
		RB_TRY(exercise_run(comm, &e, NULL));
	}
	return RUBATO_OK;
}

START_TEST(pairs_that_send_messages_have_the_chunks_of_all)
{
	app_open(6);
	ck_assert_msg(ranks_run(4, mixed_pairs_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* ---- Streams ---- */

static struct {
	atomic_bool held, may_go;
} hold;

static void CUDA_CB held_until_told(void *arg)
{
	(void)arg;
	hold.held = true;
	while (!hold.may_go)
		usleep(100);
}

/* What stands before on the stream is waited for, by the device; the caller is not held up, and
 * what comes behind sees the result. */
static rubato_status order_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	uint32_t *host, n = rubato_size(comm), rank = rubato_rank(comm);
	void *in = cuda_app_alloc(&app, WORDS * 4), *out = cuda_app_alloc(&app, WORDS * 4);
	rubato_op *op;
	bool done;

	(void)arg;
	/* Pinned: to copy into other memory the driver would keep the caller waiting. */
	CUDA_APP(&app, cuMemHostAlloc, (void **)(void *)&host, WORDS * 4, 0);
	RB_TRY(rubato_op_allreduce(comm, in, out, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	for (uint32_t round = 0; round < 3; round++) {
		if (rank == 0)
			EXPECT(app.host_call(stream, held_until_told, NULL) == CUDA_SUCCESS);
		CUDA_APP(&app, cuMemsetD8Async, (CUdeviceptr)(uintptr_t)in, (uint8_t)(rank + round),
			 WORDS * 4, stream);
		RB_TRY(rubato_cuda_start(op, stream));
		CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)host,
			 (CUdeviceptr)(uintptr_t)out, WORDS * 4, stream);
		if (rank == 0) {
			while (!hold.held)
				usleep(100);
			usleep(2000);
			RB_TRY(rubato_test(op, &done));
			EXPECT(!done);
			hold.held = false;
			hold.may_go = true;
		}
		CUDA_APP(&app, cuStreamSynchronize, stream);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT(host[i] == 0x01010101u * (n * (n - 1) / 2 + n * round));
		RB_TRY(rubato_barrier(comm));
		if (rank == 0)
			hold.may_go = false;
		RB_TRY(rubato_barrier(comm));
	}
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	CUDA_APP(&app, cuMemFreeHost, host);
	return RUBATO_OK;
}

START_TEST(a_stream_orders_what_is_before_and_behind)
{
	app_open(7);
	ck_assert_msg(ranks_run(3, order_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* Rank r's input lies on the host if bit 0 of r + mix is set, its output if bit 1 is. The driver
 * may be given no memory that is not pinned: while a stream waits, it would not return. */
static rubato_status mixed_run(rubato_comm *comm, CUstream stream, const char *algorithm,
			       uint32_t mix, uint32_t *seen)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), sides = rank + mix;
	void *host[2] = { malloc(WORDS * 4), malloc(WORDS * 4) };
	void *device[2] = { cuda_app_alloc(&app, WORDS * 4), cuda_app_alloc(&app, WORDS * 4) };
	void *in = sides & 1 ? host[0] : device[0], *out = sides & 2 ? host[1] : device[1];
	rubato_op *op = NULL;
	rubato_status err;

	EXPECT(host[0] != NULL && host[1] != NULL);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithm));
	err = rubato_op_allreduce(comm, in, out, WORDS, RUBATO_UINT32, RUBATO_SUM, &op);
	for (uint32_t round = 0; round < 3 && err == RUBATO_OK; round++) {
		memset(host[0], (int)(rank + round), WORDS * 4);
		CUDA_APP(&app, cuMemsetD8Async, (CUdeviceptr)(uintptr_t)device[0],
			 (uint8_t)(rank + round), WORDS * 4, stream);
		RB_TRY(rubato_cuda_start(op, stream));
		if (out == device[1])
			CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)seen,
				 (CUdeviceptr)(uintptr_t)out, WORDS * 4, stream);
		CUDA_APP(&app, cuStreamSynchronize, stream);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT((out == host[1] ? ((uint32_t *)out)[i] : seen[i]) ==
			       0x01010101u * (n * (n - 1) / 2 + n * round));
	}
	rubato_op_free(op);
	RB_TRY(rubato_barrier(comm)); /* To free waits for streams, others' too. */
	for (uint32_t i = 0; i < 2; i++) {
		free(host[i]);
		cuda_app_free(&app, device[i]);
	}
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_UNSUPPORTED); /* "direct" over verbs. */
	return rubato_barrier(comm);
}

static rubato_status mixed_main(rubato_comm *comm, void *arg)
{
	static const char *const algorithms[] = { "auto", "ring", "direct", "two_shot", "flat" };
	CUstream stream = cuda_app_stream(&app);
	struct fake_cuda_control control = {
		.seed = 19, .delay_us_max = 200, .queues = 32, .pageable_waits = true
	};
	uint32_t *seen;

	(void)arg;
	CUDA_APP(&app, cuMemHostAlloc, (void **)(void *)&seen, WORDS * 4, 0);
	RB_TRY(rubato_set_timeout(comm, 20000000000u));
	if (app.fake_control != NULL && rubato_rank(comm) == 0)
		app.fake_control(&control);
	RB_TRY(rubato_barrier(comm));
	for (uint32_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++)
		for (uint32_t mix = 0; mix < 4; mix++)
			RB_TRY(mixed_run(comm, stream, algorithms[a], mix, seen));
	CUDA_APP(&app, cuStreamDestroy, stream);
	CUDA_APP(&app, cuMemFreeHost, seen);
	return RUBATO_OK;
}

START_TEST(a_stream_takes_buffers_on_both_sides)
{
	app_open(19);
	ck_assert_msg(ranks_run(4, mixed_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	if (app.fake_counts != NULL)
		ck_assert_uint_eq(app.fake_counts().pageable, 0);
	cuda_app_close(&app);
}
END_TEST

/* The next start of an operation waits for its last one; several operations on one stream, and
 * messages between ranks, follow each other. */
static rubato_status many_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm), value = rank + 1;
	uint32_t got = 0, next = (rank + 1) % n, before = (rank + n - 1) % n;
	void *a = cuda_app_alloc(&app, 4), *b = cuda_app_alloc(&app, 4);
	rubato_op *sum, *send, *recv;
	uint32_t host = 0;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, a, b, 1, RUBATO_UINT32, RUBATO_SUM, &sum));
	RB_TRY(rubato_op_send(comm, &value, 1, RUBATO_UINT32, next, 5, &send));
	RB_TRY(rubato_op_recv(comm, &got, 1, RUBATO_UINT32, before, 5, &recv));
	cuda_app_copy(&app, a, &value, 4);
	for (uint32_t i = 0; i < 20; i++) {
		RB_TRY(rubato_cuda_start(sum, stream));
		RB_TRY(rubato_cuda_start(send, stream));
		RB_TRY(rubato_cuda_start(recv, stream));
		/* b becomes the next a. */
		CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)a, (CUdeviceptr)(uintptr_t)b,
			 4, stream);
	}
	CUDA_APP(&app, cuStreamSynchronize, stream);
	RB_TRY(rubato_wait(recv, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(got == before + 1);
	cuda_app_copy(&app, &host, a, 4);
	uint32_t want = n * (n + 1) / 2;
	for (uint32_t i = 1; i < 20; i++)
		want *= n;
	EXPECT(host == want);
	rubato_op_free(sum);
	rubato_op_free(send);
	rubato_op_free(recv);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, a);
	cuda_app_free(&app, b);
	return RUBATO_OK;
}

START_TEST(operations_of_one_stream_follow_each_other)
{
	app_open(3);
	ck_assert_msg(ranks_run(4, many_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* Whatever ends an operation, what is behind it on the stream goes on. */
static rubato_status ended_main(rubato_comm *comm, void *arg)
{
	bool by_abort = *(const bool *)arg;
	CUstream stream = cuda_app_stream(&app);
	void *memory = cuda_app_alloc(&app, WORDS * 4);
	rubato_op *op;
	rubato_status err;

	RB_TRY(rubato_op_allreduce(comm, memory, memory, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	if (rubato_rank(comm) == 1) { /* It never starts. */
		CUDA_APP(&app, cuStreamDestroy, stream);
		while (!hold.held)
			usleep(100);
		cuda_app_free(&app, memory);
		return RUBATO_OK;
	}
	RB_TRY(rubato_cuda_start(op, stream));
	usleep(20000);
	if (by_abort)
		EXPECT(rubato_abort(comm) == RUBATO_OK);
	else
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
	CUDA_APP(&app, cuStreamSynchronize, stream);
	err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	EXPECT(err == RUBATO_ERR_CANCELLED);
	EXPECT(rubato_cuda_start(op, stream) == RUBATO_ERR_CANCELLED);
	CUDA_APP(&app, cuStreamSynchronize, stream);
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	hold.held = true;
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(an_end_by_force_frees_the_stream)
{
	for (int i = 0; i < 2; i++) {
		bool by_abort = i == 1;
		rubato_status err;

		hold.held = false;
		app_open(11);
		err = ranks_run(2, ended_main, &by_abort);
		ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s", rubato_error_text());
		cuda_app_close(&app);
	}
}
END_TEST

/* ---- When the driver fails ---- */

static rubato_status failing_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_control control = *(const struct fake_cuda_control *)arg;
	void *memory = cuda_app_alloc(&app, WORDS * 4);
	rubato_status err = RUBATO_OK;

	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		app.fake_control(&control);
	for (uint32_t i = 0; i < 200 && err == RUBATO_OK; i++)
		err = rubato_allreduce(comm, memory, memory, WORDS, RUBATO_FLOAT32, RUBATO_SUM);
	/* Memory can run out on one rank alone, for one call. */
	EXPECT(err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_MEMORY || err == RUBATO_ERR_PEER);
	/* Once the device is lost, whatever is called next says so. */
	if (err == RUBATO_ERR_SYSTEM)
		EXPECT(strstr(rubato_error_text(),
			      control.fail_for_good ? "CUDA_ERROR_" : control.fail_call));
	return RUBATO_OK;
}

START_TEST(an_error_of_the_driver_is_an_error_of_the_call)
{
	static const struct {
		const char *call;
		CUresult with;
	} faults[] = {
		{ "cuMemcpyAsync", CUDA_ERROR_LAUNCH_FAILED },
		{ "cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "cuEventRecord", CUDA_ERROR_LAUNCH_FAILED },
		{ "cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "cuStreamWaitEvent", CUDA_ERROR_LAUNCH_FAILED },
		{ "cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY },
		{ "cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY },
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		for (uint32_t at = 1; at < 30; at += 7) {
			struct fake_cuda_control control = { .seed = at,
							     .fail_at = at,
							     .fail_with = faults[i].with };
			bool memory = faults[i].with == CUDA_ERROR_OUT_OF_MEMORY;
			rubato_status err;

			if (memory && at > 1) /* Rooms are kept: the first calls get them. */
				continue;
			(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s",
				       faults[i].call);
			app_open(at);
			if (app.fake_control == NULL) {
				cuda_app_close(&app);
				return;
			}
			control.fail_for_good = !memory && at % 2 == 0;
			err = ranks_run(2, failing_main, &control);
			ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s, call %u: %s", faults[i].call,
				      at, rubato_error_text());
			ck_assert_msg(app.fake_counts().failed > 0, "%s, call %u", faults[i].call,
				      at);
			app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
			cuda_app_close(&app);
		}
	}
}
END_TEST

/* ---- What is refused ---- */

/* Memory of a device that is not the communicator's. */
static rubato_status foreign_try(rubato_comm *comm, void *memory)
{
	CUcontext context;
	CUdevice device;
	void *foreign;
	int count;

	CUDA_APP(&app, cuDeviceGetCount, &count);
	if (count < 2)
		return RUBATO_OK;
	CUDA_APP(&app, cuDeviceGet, &device, 1);
	CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, device);
	CUDA_APP(&app, cuCtxPushCurrent, context);
	foreign = cuda_app_alloc(&app, 4000);
	EXPECT(rubato_allreduce(comm, foreign, memory, 1000, RUBATO_FLOAT32, RUBATO_SUM) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "allreduce: a buffer lies in memory of CUDA device 1, "
					   "and this communicator uses CUDA device 0"));
	EXPECT(rubato_broadcast(comm, foreign, 1000, RUBATO_FLOAT32, 0) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_send(comm, foreign, 1000, RUBATO_FLOAT32, 0, 1) == RUBATO_ERR_ARGUMENT);
	cuda_app_free(&app, foreign);
	CUDA_APP(&app, cuCtxPopCurrent, &context);
	CUDA_APP(&app, cuDevicePrimaryCtxRelease, device);
	return RUBATO_OK;
}

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	void *memory, *own;
	rubato_op *op;
	char text[200];
	int on_stack = 0;

	(void)arg;
	memory = cuda_app_alloc(&app, 4000);
	EXPECT(rubato_allreduce(comm, memory, memory, 1001, RUBATO_FLOAT32, RUBATO_SUM) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "4004 bytes in device memory that ends after 4000"));
	EXPECT(rubato_cuda_use(comm, 0) == RUBATO_OK);
	EXPECT(rubato_cuda_use(comm, 1) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "uses another device already"));
	EXPECT(rubato_cuda_use(comm, -2) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_cuda_use(NULL, 0) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_cuda_start(NULL, NULL) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_cuda_free(comm, &on_stack) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_cuda_free(comm, NULL) == RUBATO_OK);
	RB_TRY(foreign_try(comm, memory));
	RB_TRY(rubato_cuda_describe(comm, text, sizeof(text)));
	EXPECT(strncmp(text, "CUDA device 0, ", 15) == 0);
	RB_TRY(rubato_cuda_alloc(comm, 100000, &own));
	RB_TRY(rubato_allreduce(comm, own, own, 25000, RUBATO_FLOAT32, RUBATO_SUM));
	EXPECT(rubato_cuda_free(comm, (char *)own + 8) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_cuda_free(comm, own));
	EXPECT(rubato_cuda_free(comm, own) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_op_allreduce(comm, memory, memory, 1000, RUBATO_FLOAT32, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(what_cannot_be_is_said)
{
	app_open(0);
	ck_assert_msg(ranks_run(1, refused_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

static rubato_status split_main(rubato_comm *comm, void *arg)
{
	rubato_comm *half;
	char text[200];
	void *memory = cuda_app_alloc(&app, 4000);

	(void)arg;
	RB_TRY(rubato_split(comm, rubato_rank(comm) % 2, 0, &half));
	RB_TRY(rubato_cuda_describe(half, text, sizeof(text)));
	RB_TRY(rubato_allreduce(half, memory, memory, 1000, RUBATO_FLOAT32, RUBATO_SUM));
	RB_TRY(rubato_finalize(half));
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

START_TEST(a_child_has_its_parents_device)
{
	app_open(1);
	ck_assert_msg(ranks_run(4, split_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_close(&app);
}
END_TEST

/* test_cuda_device [TRANSPORT] */
int main(int argc, char **argv)
{
	TCase *tc = tcase_create("device");
	bool mapped;

	if (argc > 1)
		transport = argv[1];
	mapped = strcmp(transport, "shm") == 0;
	streams = strcmp(transport, "ucx") != 0;

	if (!cuda_app_may_run())
		return 77;
	tcase_set_timeout(tc, 500);
	if (!test_is_threads_only()) /* They differ in kernels, which have one thread. */
		tcase_add_test(tc, every_collective_has_every_type);
	tcase_add_test(tc, ranks_have_buffers_where_they_like);
	if (streams)
		tcase_add_test(tc, operations_on_streams_have_the_same_bits);
	tcase_add_test(tc, a_late_rank_is_helped_on_the_device);
	tcase_add_test(tc, what_travels_in_fewer_bits_is_the_hosts);
	tcase_add_test(tc, what_rounding_loses_is_lent_on_the_device);
	if (mapped) { /* Over verbs, short messages pass the host's memory. */
		tcase_add_test(tc, ranks_of_a_process_work_in_place);
		tcase_add_test(tc, pairs_that_send_messages_have_the_chunks_of_all);
		tcase_add_loop_test(tc, what_travels_in_fewer_bits_stays_on_the_device, 0, 2);
	}
	if (streams) {
		tcase_add_test(tc, a_stream_orders_what_is_before_and_behind);
		tcase_add_test(tc, a_stream_takes_buffers_on_both_sides);
		tcase_add_test(tc, operations_of_one_stream_follow_each_other);
		tcase_add_test(tc, an_end_by_force_frees_the_stream);
	}
	if (mapped) /* Over verbs, other calls matter: test_cuda_rdma.c. */
		tcase_add_test(tc, an_error_of_the_driver_is_an_error_of_the_call);
	tcase_add_test(tc, what_cannot_be_is_said);
	tcase_add_test(tc, a_child_has_its_parents_device);
	return check_main("cuda", tc);
}
