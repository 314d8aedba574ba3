/*
 * test_cuda_queues.c -- many communicators with operations on streams of their own, on a device
 * with few queues (tests/cuda/fake/fake_cuda.h), ranks as threads or processes: what can be
 * promised, and what cannot. On the fake driver alone: which streams share a queue of a real one,
 * nobody says.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/cuda/fake/processes.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

#define COMMS_MAX 64u
#define RANKS_MAX 4u
#define COUNT 1024u
#define ROUNDS 3u
#define PATIENCE_NS 300000000u

static struct cuda_app app;

struct many {
	uint32_t ranks, comms;
	bool own_devices; /* Rank r's is number r; else all have number 0. */
	struct fake_cuda_control control;
};

struct part { /* Of a rank, on one communicator. */
	rubato_comm *comm;
	rubato_op *op;
	CUstream stream;
	uint32_t *device, *host; /* COUNT; pinned. */
};

static rubato_status part_make(rubato_comm *comm, struct part *part)
{
	RB_TRY(rubato_split(comm, 0, 0, &part->comm));
	part->device = cuda_app_alloc(&app, COUNT * 4);
	CUDA_APP(&app, cuMemHostAlloc, (void **)(void *)&part->host, COUNT * 4, 0);
	part->stream = cuda_app_stream(&app);
	return RUBATO_OK;
}

/* Nothing here waits: all is behind the start on the stream. */
static rubato_status part_start(const struct part *part, uint32_t byte)
{
	CUdeviceptr device = (CUdeviceptr)(uintptr_t)part->device;

	CUDA_APP(&app, cuMemsetD8Async, device, (uint8_t)byte, COUNT * 4, part->stream);
	RB_TRY(rubato_cuda_start(part->op, part->stream));
	CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)part->host, device, COUNT * 4,
		 part->stream);
	return RUBATO_OK;
}

static rubato_status part_free(struct part *part)
{
	RB_TRY(rubato_wait(part->op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(part->op);
	RB_TRY(rubato_finalize(part->comm));
	CUDA_APP(&app, cuStreamDestroy, part->stream);
	CUDA_APP(&app, cuMemFreeHost, part->host);
	cuda_app_free(&app, part->device);
	return RUBATO_OK;
}

static rubato_status parts_run(rubato_comm *comm, const struct many *many, struct part *parts)
{
	uint32_t n = many->ranks, rank = rubato_rank(comm);

	for (uint32_t i = 0; i < many->comms; i++)
		RB_TRY(part_make(comm, &parts[i]));
	RB_TRY(rubato_barrier(comm));
	/* The last is there for all ranks when it is for one, which starts at once. */
	for (uint32_t i = 0; i < many->comms; i++)
		RB_TRY(rubato_op_allreduce(parts[i].comm, parts[i].device, parts[i].device, COUNT,
					   RUBATO_UINT32, RUBATO_SUM, &parts[i].op));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < many->comms; i++)
			RB_TRY(part_start(&parts[i], rank + round + i));
		for (uint32_t i = 0; i < many->comms; i++) {
			uint32_t want = n * (n - 1) / 2 + n * (round + i);

			CUDA_APP(&app, cuStreamSynchronize, parts[i].stream);
			for (uint32_t at = 0; at < COUNT; at += COUNT - 1)
				EXPECT(parts[i].host[at] == 0x01010101u * want);
		}
	}
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < many->comms; i++)
		RB_TRY(part_free(&parts[i]));
	return RUBATO_OK;
}

static rubato_status many_main(rubato_comm *comm, void *arg)
{
	const struct many *many = arg;
	struct part *parts = calloc(COMMS_MAX, sizeof(*parts));
	CUdevice device = many->own_devices ? (CUdevice)rubato_rank(comm) : 0;
	CUcontext context;
	rubato_status err;

	CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, device);
	CUDA_APP(&app, cuCtxPushCurrent, context);
	err = rubato_cuda_use(comm, RUBATO_CUDA_CURRENT);
	if (err == RUBATO_OK)
		err = parts_run(comm, many, parts);
	CUDA_APP(&app, cuCtxPopCurrent, &context);
	CUDA_APP(&app, cuDevicePrimaryCtxRelease, device);
	free(parts);
	return err;
}

static void many_run(struct many many, local_main body)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	rubato_status status[RANKS_MAX];
	struct fake_cuda_counts counts;
	char why[200];

	if (test_length() == TEST_SHORT && many.comms > 16)
		many.comms = 16;
	ck_assert_msg(cuda_app_open(&app, why, sizeof(why)), "%s", why);
	many.control.delay_us_max = 100;
	app.fake_control(&many.control);
	ck_assert_msg(local_run(many.ranks, transports, body, &many, status) == RUBATO_OK, "%s",
		      rubato_error_text());
	counts = app.fake_counts();
	ck_assert_uint_eq(counts.streams, 0);
	ck_assert_uint_eq(counts.events, 0);
	ck_assert_uint_eq(counts.memory_bytes, 0);
	cuda_app_close(&app);
}

/* As ranks mostly are: each with its device, or, the same to its streams, in its own process. A
 * stream for each communicator, eight to a queue. */
START_TEST(ranks_with_a_device_each_have_any_number_of_streams)
{
	many_run((struct many) { .ranks = 2,
				 .comms = 64,
				 .own_devices = true,
				 .control = { .seed = 3, .queues = 8, .making_waits = true } },
		 many_main);
}
END_TEST

/* As it hung on an H200 when each communicator had streams of its own; here each process has its
 * queues, and works in the other's memory. */
static rubato_status process_many_main(struct cuda_app *its, rubato_comm *comm, void *arg)
{
	struct part *parts = calloc(COMMS_MAX, sizeof(*parts));
	rubato_status err =
		parts != NULL ? rubato_cuda_use(comm, RUBATO_CUDA_CURRENT) : RUBATO_ERR_MEMORY;

	app = *its;
	if (err == RUBATO_OK)
		err = parts_run(comm, arg, parts);
	free(parts);
	return err;
}

START_TEST(processes_of_one_device_have_any_number_of_streams)
{
	struct many many = { .ranks = 2, .comms = test_length() == TEST_LONG ? COMMS_MAX : 16 };
	struct processes p = { .count = 2,
			       .control = { .seed = 6,
					    .delay_us_max = 100,
					    .queues = many.comms / 8,
					    .making_waits = true },
			       .body = process_many_main,
			       .arg = &many };

	processes_run(&p);
}
END_TEST

START_TEST(ranks_of_one_device_have_a_stream_for_each_queue)
{
	many_run((struct many) { .ranks = 4,
				 .comms = 8,
				 .control = { .seed = 4, .queues = 32, .making_waits = true } },
		 many_main);
}
END_TEST

/* Should priorities not matter, ours are six of those streams. */
START_TEST(streams_of_the_library_are_six)
{
	many_run((struct many) { .ranks = 2,
				 .comms = 8,
				 .control = { .seed = 5, .queues = 22, .queues_together = true } },
		 many_main);
}
END_TEST

/* ---- What cannot be promised ---- */

/* Two ranks' streams in one queue: the second's input comes behind the first's wait for it. It is
 * no more than a wait that can be ended. */
static rubato_status shared_main(rubato_comm *comm, void *arg)
{
	CUstream stream;
	void *memory;
	rubato_op *op;
	rubato_status err;
	atomic_bool *first_started = arg;

	cuda_app_enter(&app);
	RB_TRY(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	stream = cuda_app_stream(&app);
	memory = cuda_app_alloc(&app, COUNT * 4);
	RB_TRY(rubato_op_allreduce(comm, memory, memory, COUNT, RUBATO_UINT32, RUBATO_SUM, &op));
	RB_TRY(rubato_barrier(comm));
	/* One behind the other: else both may come to their gates before the first one's wait. */
	while (rubato_rank(comm) > 0 && !*first_started)
		rubato_sleep(comm, 1000000);
	RB_TRY(rubato_cuda_start(op, stream));
	*first_started = true;
	err = rubato_wait(op, PATIENCE_NS);
	EXPECT(err == RUBATO_ERR_TIMEOUT || err == RUBATO_ERR_PEER); /* The other may be first. */
	EXPECT(rubato_abort(comm) == RUBATO_OK);
	CUDA_APP(&app, cuStreamSynchronize, stream);
	EXPECT(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT) < 0);
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, memory);
	cuda_app_leave(&app);
	return RUBATO_OK;
}

START_TEST(ranks_of_one_device_with_more_streams_than_queues_wait_for_each_other)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	struct fake_cuda_control control = { .queues = 1 };
	rubato_status status[2], err;
	atomic_bool first_started = false;
	char why[200];

	ck_assert_msg(cuda_app_open(&app, why, sizeof(why)), "%s", why);
	app.fake_control(&control);
	err = local_run(2, transports, shared_main, &first_started, status);
	ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s", rubato_error_text());
	ck_assert_uint_eq(app.fake_counts().streams, 0);
	cuda_app_close(&app);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("queues");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, ranks_with_a_device_each_have_any_number_of_streams);
	tcase_add_test(tc, processes_of_one_device_have_any_number_of_streams);
	tcase_add_test(tc, ranks_of_one_device_have_a_stream_for_each_queue);
	tcase_add_test(tc, streams_of_the_library_are_six);
	tcase_add_test(tc, ranks_of_one_device_with_more_streams_than_queues_wait_for_each_other);
	return check_main("cuda queues", tc);
}
