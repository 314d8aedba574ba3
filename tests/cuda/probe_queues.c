/*
 * probe_queues.c -- what streams that wait at a value hold up: a fact of drivers and devices that
 * docs/gpu.md builds on, and no document tells.
 *
 * usage: probe_queues
 *
 * Some streams of the usual priority wait. Then a copy from the host, a copy on the device and a
 * kernel are put on another stream, of the usual or of the highest priority: does each come to its
 * end while they wait? And are memory and events made? One line for each number of streams.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/image.h"
#include "cuda/kernels.h"
#include "tests/cuda/app.h"

#define STREAMS_MAX 48u
#define BYTES (1u << 20)
#define PATIENCE_NS 300000000u

static struct cuda_app app;
static _Atomic uint32_t *word;

/* Whether the stream comes to its end within the time. */
static bool ends(CUstream stream)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS;
	CUevent event;
	CUresult result;

	CUDA_APP(&app, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	CUDA_APP(&app, cuEventRecord, event, stream);
	do
		result = app.driver.p_cuEventQuery(event);
	while (result == CUDA_ERROR_NOT_READY && rb_clock_ns() < until);
	return result == CUDA_SUCCESS;
}

/* Opens the gate of all if a call that may block has done so. */
static struct {
	atomic_bool over, blocked;
} call;

static void *watch(void *arg)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS;

	while (!call.over && rb_clock_ns() < until)
		usleep(1000);
	if (!call.over) {
		call.blocked = true;
		atomic_store(word, *(const uint32_t *)arg);
	}
	return NULL;
}

static void round_of(uint32_t count, uint32_t round, CUfunction kernel, void *a, void *b,
		     void *host)
{
	static const char *const what[] = { "copy from the host", "copy on the device", "kernel" };
	CUstream waiting[STREAMS_MAX];
	int last, first;
	pthread_t thread;
	CUdeviceptr memory;
	void *pinned;

	CUDA_APP(&app, cuCtxGetStreamPriorityRange, &last, &first);
	for (uint32_t i = 0; i < count; i++)
		waiting[i] = cuda_app_stream(&app);
	(void)printf("%2u streams wait:", count);
	for (uint32_t i = 0; i < count; i++)
		CUDA_APP(&app, cuStreamWaitValue32, waiting[i], (CUdeviceptr)(uintptr_t)word, round,
			 CU_STREAM_WAIT_VALUE_GEQ);
	for (int priority = 0; priority < 2; priority++) {
		for (int w = 0; w < 3; w++) {
			struct rb_cuda_reduce r = {
				.to = b, .count = BYTES / 4, .from_count = 2, .from = { a, b }
			};
			void *parameters[] = { &r };
			CUstream stream;
			CUdeviceptr to = (CUdeviceptr)(uintptr_t)b;

			CUDA_APP(&app, cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING,
				 priority ? first : 0);
			if (w < 2)
				CUDA_APP(&app, cuMemcpyAsync, to,
					 (CUdeviceptr)(uintptr_t)(w == 0 ? host : a), BYTES,
					 stream);
			else
				CUDA_APP(&app, cuLaunchKernel, kernel, 16, 1, 1, RB_CUDA_BLOCK, 1,
					 1, 0, stream, parameters, NULL);
			if (!ends(stream))
				(void)printf(" %s%s held up;", what[w],
					     priority ? " (first priority)" : "");
		}
	}
	call.over = call.blocked = false;
	pthread_create(&thread, NULL, watch, &round);
	CUDA_APP(&app, cuMemAlloc, &memory, BYTES);
	CUDA_APP(&app, cuMemHostAlloc, &pinned, BYTES, 0);
	call.over = true;
	pthread_join(thread, NULL);
	if (call.blocked)
		(void)printf(" allocation waits;");
	call.over = call.blocked = false;
	pthread_create(&thread, NULL, watch, &round);
	CUDA_APP(&app, cuMemFree, memory);
	CUDA_APP(&app, cuMemFreeHost, pinned);
	call.over = true;
	pthread_join(thread, NULL);
	if (call.blocked)
		(void)printf(" freeing waits;");
	atomic_store(word, round);
	for (uint32_t i = 0; i < count; i++)
		CUDA_APP(&app, cuStreamSynchronize, waiting[i]);
	(void)printf(" all else goes on\n");
	(void)fflush(stdout);
}

int main(void)
{
	static const uint32_t counts[] = { 1, 2, 4, 7, 8, 9, 16, 31, 32, 33, 40 };
	char why[200];
	void *a, *b, *host;
	CUmodule module;
	CUfunction kernel;

	if (!cuda_app_open(&app, why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	cuda_app_enter(&app);
	(void)printf("CUDA_DEVICE_MAX_CONNECTIONS=%s\n", getenv("CUDA_DEVICE_MAX_CONNECTIONS"));
	a = cuda_app_alloc(&app, BYTES);
	b = cuda_app_alloc(&app, BYTES);
	CUDA_APP(&app, cuMemHostAlloc, &host, BYTES, 0);
	CUDA_APP(&app, cuMemHostAlloc, (void **)(void *)&word, 4096, 0);
	atomic_store(word, 0);
	CUDA_APP(&app, cuModuleLoadData, &module, rb_cuda_image);
	CUDA_APP(&app, cuModuleGetFunction, &kernel, module, "rb_reduce_f32");
	for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		round_of(counts[i], i + 1, kernel, a, b, host);
	return 0;
}
