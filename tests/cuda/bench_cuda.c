/*
 * bench_cuda.c -- collectives on device memory and on streams, ranks as threads of this process:
 * what they take, beside what the memory of the device, and the way to the host, allow.
 *
 * usage: bench_cuda [RANKS [MIB]]
 *
 * With RUBATO_RANK set it is one rank, of processes that are started elsewhere.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "rubato_cuda.h"
#include "runtime/devices/cuda_memory.h"
#include "tests/cuda/app.h"
#include "tests/runtime/local.h"

#define RANKS_MAX 16u
#define TIMES_MAX 200u
#define COMMS 64u
/* Streams that wait for each other share a process's queues, with the library's own. */
#define STREAMS_OF_THREADS (32u - RB_CUDA_STREAMS)

static struct cuda_app app;
static uint64_t mib = 256;
static bool processes;
static atomic_uint moves;        /* Of all ranks: what has been measured. */
static double copy_bytes_per_us; /* Read and written. */

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(uint64_t *ns, uint32_t count)
{
	qsort(ns, count, sizeof(*ns), by_time);
	return (double)ns[count / 2] * 1e-3;
}

static void say(rubato_comm *comm, const char *what, uint64_t bytes, uint64_t *ns, uint32_t count)
{
	double us = median_us(ns, count);

	if (rubato_rank(comm) != 0)
		return;
	(void)printf("%-34s %u ranks %10llu bytes %10.1f us (%.1f to %.1f) %8.2f GB/s\n", what,
		     rubato_size(comm), (unsigned long long)bytes, us, (double)ns[0] * 1e-3,
		     (double)ns[count - 1] * 1e-3, (double)bytes / us * 1e-3);
	(void)fflush(stdout);
}

/* The device's own copy, and to and from pinned memory: what is possible. */
static rubato_status copies(rubato_comm *comm, uint64_t bytes)
{
	CUstream stream = cuda_app_stream(&app);
	void *a = cuda_app_alloc(&app, bytes), *b = cuda_app_alloc(&app, bytes), *host;
	const char *const names[] = { "copy on the device", "copy from the host",
				      "copy to the host" };
	uint64_t ns[9];

	CUDA_APP(&app, cuMemHostAlloc, &host, bytes, CU_MEMHOSTALLOC_PORTABLE);
	memset(host, 1, bytes);
	for (uint32_t way = 0; way < 3; way++) {
		void *to = way == 2 ? host : b, *from = way == 1 ? host : a;

		for (uint32_t i = 0; i < 9; i++) {
			uint64_t start = rb_clock_ns();

			CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)to,
				 (CUdeviceptr)(uintptr_t)from, bytes, stream);
			CUDA_APP(&app, cuStreamSynchronize, stream);
			ns[i] = rb_clock_ns() - start;
		}
		say(comm, names[way], bytes, ns, 9);
		if (way == 0)
			copy_bytes_per_us = 2 * (double)bytes / median_us(ns, 9);
	}
	CUDA_APP(&app, cuMemFreeHost, host);
	cuda_app_free(&app, a);
	cuda_app_free(&app, b);
	CUDA_APP(&app, cuStreamDestroy, stream);
	return RUBATO_OK;
}

static rubato_status allreduces(rubato_comm *comm, uint64_t bytes, const char *algorithm)
{
	void *in, *out;
	uint64_t ns[TIMES_MAX];
	uint32_t times = bytes > (1u << 20) ? 9 : 50;
	char what[64];

	in = cuda_app_alloc(&app, bytes);
	out = cuda_app_alloc(&app, bytes);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithm));
	for (uint32_t i = 0; i < times + 2; i++) {
		uint64_t start;

		RB_TRY(rubato_barrier(comm));
		start = rb_clock_ns();
		RB_TRY(rubato_allreduce(comm, in, out, bytes / 4, RUBATO_FLOAT32, RUBATO_SUM));
		if (i >= 2)
			ns[i - 2] = rb_clock_ns() - start;
		moves++;
	}
	(void)snprintf(what, sizeof(what), "allreduce %s", algorithm);
	say(comm, what, bytes, ns, times);
	if (rubato_rank(comm) == 0 && bytes == mib << 20) {
		/* In place of each other: all inputs are read, and each result is written, read by
		 * all others, and written by them. */
		double n = rubato_size(comm), traffic = (double)bytes * (n + 1 + 2 * (n - 1));

		(void)printf("%34s %.2f of what the device's memory allows\n", "",
			     traffic / copy_bytes_per_us / median_us(ns, times));
	}
	RB_TRY(rubato_barrier(comm));
	cuda_app_free(&app, in);
	cuda_app_free(&app, out);
	return RUBATO_OK;
}

/* What a start on a stream takes the host; and the operation, as the stream sees it. */
static rubato_status starts(rubato_comm *comm, uint64_t bytes)
{
	CUstream stream = cuda_app_stream(&app);
	void *memory = cuda_app_alloc(&app, bytes);
	uint64_t host[TIMES_MAX], whole[TIMES_MAX];
	rubato_op *op;

	RB_TRY(rubato_op_allreduce(comm, memory, memory, bytes / 4, RUBATO_FLOAT32, RUBATO_SUM,
				   &op));
	for (uint32_t i = 0; i < TIMES_MAX + 5; i++) {
		uint64_t start, started;

		RB_TRY(rubato_barrier(comm));
		start = rb_clock_ns();
		RB_TRY(rubato_cuda_start(op, stream));
		started = rb_clock_ns();
		CUDA_APP(&app, cuStreamSynchronize, stream);
		if (i < 5)
			continue;
		moves++;
		host[i - 5] = started - start;
		whole[i - 5] = rb_clock_ns() - start;
	}
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	say(comm, "start on a stream: the caller", bytes, host, TIMES_MAX);
	say(comm, "start on a stream: until it is over", bytes, whole, TIMES_MAX);
	RB_TRY(rubato_barrier(comm)); /* No stream waits where something is freed. */
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

/* Many communicators, each with an operation on a stream of its own, all at once. */
static rubato_status many(rubato_comm *comm)
{
	rubato_comm *comms[COMMS];
	rubato_op *ops[COMMS];
	CUstream streams[COMMS];
	void *memory = cuda_app_alloc(&app, COMMS * 4096);
	uint64_t ns[20];
	uint32_t comms_count = processes || rubato_size(comm) == 1
				       ? COMMS
				       : STREAMS_OF_THREADS / rubato_size(comm);
	char what[64];

	for (uint32_t i = 0; i < comms_count; i++) {
		streams[i] = cuda_app_stream(&app);
		RB_TRY(rubato_split(comm, 0, 0, &comms[i]));
		RB_TRY(rubato_op_allreduce(comms[i], (char *)memory + 4096 * i,
					   (char *)memory + 4096 * i, 1024, RUBATO_FLOAT32,
					   RUBATO_SUM, &ops[i]));
	}
	RB_TRY(rubato_barrier(comm)); /* While streams wait, others may be made nowhere. */
	for (uint32_t round = 0; round < 20; round++) {
		uint64_t start = rb_clock_ns();

		for (uint32_t i = 0; i < comms_count; i++)
			RB_TRY(rubato_cuda_start(ops[i], streams[i]));
		for (uint32_t i = 0; i < comms_count; i++)
			CUDA_APP(&app, cuStreamSynchronize, streams[i]);
		moves++;
		ns[round] = rb_clock_ns() - start;
	}
	(void)snprintf(what, sizeof(what), "%u communicators, a stream each", comms_count);
	say(comm, what, comms_count * 4096, ns, 20);
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < comms_count; i++) {
		RB_TRY(rubato_wait(ops[i], RUBATO_TIMEOUT_DEFAULT));
		rubato_op_free(ops[i]);
		RB_TRY(rubato_finalize(comms[i]));
		CUDA_APP(&app, cuStreamDestroy, streams[i]);
	}
	cuda_app_free(&app, memory);
	return RUBATO_OK;
}

/* ---- What a communicator that does nothing costs a step ---- */

#define STEP_COPIES 200u
#define STEP_BYTES (UINT64_C(8) << 20)
#define STEPS 200u

/* What a step of training is to a device: many small things on a stream, and a wait for it. */
static double step_us(void)
{
	CUstream stream = cuda_app_stream(&app);
	void *a = cuda_app_alloc(&app, STEP_BYTES), *b = cuda_app_alloc(&app, STEP_BYTES);
	uint32_t steps = app.fake_control == NULL ? STEPS : 4; /* A processor copies. */
	uint64_t ns[STEPS];

	for (uint32_t i = 0; i < 2 * steps; i++) { /* The first half warms all up. */
		uint64_t start = rb_clock_ns();

		for (uint32_t k = 0; k < STEP_COPIES; k++)
			CUDA_APP(&app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)(k % 2 ? a : b),
				 (CUdeviceptr)(uintptr_t)(k % 2 ? b : a), STEP_BYTES >> k % 8,
				 stream);
		CUDA_APP(&app, cuStreamSynchronize, stream);
		ns[i % steps] = rb_clock_ns() - start;
	}
	cuda_app_free(&app, a);
	cuda_app_free(&app, b);
	CUDA_APP(&app, cuStreamDestroy, stream);
	return median_us(ns, steps);
}

static double step_before_us, step_beside_us; /* Without a communicator; beside one. */
static atomic_bool idle_over;

/* The other ranks sleep meanwhile: it is the library's thread that may disturb. */
static rubato_status idle(rubato_comm *comm)
{
	if (rubato_rank(comm) == 0) {
		step_beside_us = step_us();
		idle_over = true;
		moves++;
	}
	while (!processes && !idle_over)
		usleep(1000);
	return rubato_barrier(comm);
}

static void idle_say(void)
{
	double after_us;

	cuda_app_enter(&app);
	after_us = step_us();
	cuda_app_leave(&app);
	(void)printf("a step of %u copies: %.1f and %.1f us without a communicator, %.1f beside an "
		     "idle one: %.3f\n",
		     STEP_COPIES, step_before_us, after_us, step_beside_us,
		     2 * step_beside_us / (step_before_us + after_us));
}

/* What hangs is told, not waited for. */
struct watch {
	rubato_comm *comm;
	pthread_t thread;
	atomic_bool over;
};

static void *watch_main(void *arg)
{
	struct watch *watch = arg;
	uint32_t seen = UINT32_MAX, still = 0;

	while (!watch->over && still < 8) {
		usleep(1000000);
		still = moves == seen ? still + 1 : 0;
		seen = moves;
	}
	if (watch->over)
		return NULL;
	rubato_dump(watch->comm, STDOUT_FILENO);
	usleep(1000000);
	(void)printf("nothing has moved for 8 s\n");
	_exit(3);
}

static rubato_status bench(rubato_comm *comm, void *arg)
{
	struct watch watch = { .comm = comm };
	char text[200];

	(void)arg;
	if (pthread_create(&watch.thread, NULL, watch_main, &watch) != 0)
		return RUBATO_ERR_SYSTEM;
	cuda_app_enter(&app);
	RB_TRY(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	RB_TRY(rubato_cuda_describe(comm, text, sizeof(text)));
	if (rubato_rank(comm) == 0) {
		(void)printf("%s\n", text);
		RB_TRY(copies(comm, mib << 20));
	}
	RB_TRY(rubato_barrier(comm));
	RB_TRY(idle(comm));
	RB_TRY(allreduces(comm, 8, "auto"));
	RB_TRY(allreduces(comm, 64u << 10, "auto"));
	RB_TRY(allreduces(comm, 1u << 20, "auto"));
	for (const char *const *a =
		     (const char *const[]) { "auto", "direct", "ring", "two_shot", NULL };
	     *a != NULL; a++) {
		rubato_status err = allreduces(comm, mib << 20, *a);

		if (err != RUBATO_OK && err != RUBATO_ERR_UNSUPPORTED)
			return err;
	}
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "auto"));
	RB_TRY(starts(comm, 8));
	RB_TRY(starts(comm, 1u << 20));
	RB_TRY(many(comm));
	cuda_app_leave(&app);
	watch.over = true;
	pthread_join(watch.thread, NULL);
	return RUBATO_OK;
}

int main(int argc, char **argv)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	uint32_t ranks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
	rubato_status status[RANKS_MAX];
	char why[200];

	mib = argc > 2 ? strtoull(argv[2], NULL, 10) : mib;
	if (ranks == 0 || ranks > RANKS_MAX || mib == 0) {
		(void)fprintf(stderr, "usage: bench_cuda [RANKS (1 to %u) [MIB]]\n", RANKS_MAX);
		return 2;
	}
	if (!cuda_app_open(&app, why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	cuda_app_enter(&app);
	step_before_us = step_us();
	cuda_app_leave(&app);
	if (getenv("RUBATO_RANK") != NULL) {
		rubato_comm *comm;
		rubato_status err = rubato_init(&comm, NULL);

		processes = true;
		if (err == RUBATO_OK)
			err = bench(comm, NULL);
		if (err == RUBATO_OK)
			err = rubato_finalize(comm);
		if (err == RUBATO_OK && step_beside_us > 0)
			idle_say();
		if (err != RUBATO_OK)
			(void)fprintf(stderr, "%s\n", rubato_error_text());
		return err != RUBATO_OK;
	}
	if (local_run(ranks, transports, bench, NULL, status) != RUBATO_OK) {
		(void)fprintf(stderr, "%s\n", rubato_error_text());
		return 1;
	}
	idle_say();
	cuda_app_close(&app);
	return 0;
}
