/*
 * probe_queues.c -- what streams that wait at a gate hold up: a fact of drivers and devices that
 * docs/gpu.md builds on, and no document tells.
 *
 * usage: probe_queues COUNT
 *
 * COUNT streams of the usual priority wait. Then copies and a kernel are put on other streams, of
 * the usual and of the highest priority: does each come to its end while they wait? And are memory,
 * events and streams made? One line; and if a call of the driver does not return, its name, and 3.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/image.h"
#include "cuda/kernels.h"
#include "tests/cuda/app.h"

#define STREAMS_MAX 128u
#define BYTES (1u << 20)
#define PATIENCE_NS 300000000u
#define CALL_NS (UINT64_C(2) * 1000000000)

static struct cuda_app app;
static uint32_t *words;               /* What opens all gates, then what each has reached. */
static _Atomic(const char *) calling; /* NULL: no call of the driver is under way. */
static _Atomic uint64_t since_ns;

#define CALL(call, ...)                                                                            \
	do {                                                                                       \
		since_ns = rb_clock_ns();                                                          \
		calling = #call;                                                                   \
		CUresult result_ = app.driver.p_##call(__VA_ARGS__);                               \
		if (result_ != CUDA_SUCCESS)                                                       \
			cuda_app_failed(&app, #call, result_, __FILE__, __LINE__);                 \
		calling = NULL;                                                                    \
	} while (0)

static void *watch(void *arg)
{
	for (;;) {
		const char *name = calling;
		uint64_t since = since_ns;

		usleep(100000);
		if (name == NULL || calling != name || since != since_ns ||
		    rb_clock_ns() - since < CALL_NS)
			continue;
		(void)printf(" %s does not return\n", name);
		(void)fflush(stdout);
		_exit(3);
	}
	return arg;
}

/* Whether the stream comes to its end within the time. */
static bool ends(CUstream stream)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS;
	CUevent event;
	CUresult result;

	CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	CALL(cuEventRecord, event, stream);
	do
		result = app.driver.p_cuEventQuery(event);
	while (result == CUDA_ERROR_NOT_READY && rb_clock_ns() < until);
	return result == CUDA_SUCCESS;
}

enum way { FROM_PINNED, TO_PINNED, ON_DEVICE, KERNEL, GATE, FROM_PAGEABLE, TO_PAGEABLE, WAYS };

static const char *const ways[WAYS] = {
	"copy from pinned memory", "copy to pinned memory", "copy on the device", "kernel", "gate",
	"copy from other memory",  "copy to other memory",
};

static struct {
	void *a, *b, *pinned, *pageable;
	CUfunction kernel, gate;
} give;

/* It is open when so many have opened all. */
static void gate_put_on(CUstream stream, uint32_t number, uint32_t value)
{
	struct rb_cuda_gate gate = { .reached = &words[1 + number],
				     .passed = &words[2 + STREAMS_MAX + number],
				     .opened = words,
				     .value = value };
	void *parameters[] = { &gate };

	CALL(cuLaunchKernel, give.gate, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static void put_on(CUstream stream, enum way way)
{
	struct rb_cuda_reduce r = {
		.to = give.b, .count = BYTES / 4, .from_count = 2, .from = { give.a, give.b }
	};
	void *parameters[] = { &r };
	bool in = way == FROM_PINNED || way == FROM_PAGEABLE;
	void *host = way == FROM_PINNED || way == TO_PINNED ? give.pinned : give.pageable;
	void *to = in || way == ON_DEVICE ? give.b : host;
	void *from = in ? host : give.a;

	if (way == KERNEL)
		CALL(cuLaunchKernel, give.kernel, 16, 1, 1, RB_CUDA_BLOCK, 1, 1, 0, stream,
		     parameters, NULL);
	else if (way == GATE)
		gate_put_on(stream, STREAMS_MAX, 0);
	else
		CALL(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, BYTES,
		     stream);
}

static void try_all(int priority, const char *name)
{
	for (enum way way = 0; way < WAYS; way++) {
		CUstream stream;

		CALL(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, priority);
		put_on(stream, way);
		if (!ends(stream))
			(void)printf(" %s on a stream of %s priority is held up;", ways[way], name);
	}
}

static void prepare(void)
{
	CUmodule module;

	give.a = cuda_app_alloc(&app, BYTES);
	give.b = cuda_app_alloc(&app, BYTES);
	give.pageable = calloc(1, BYTES);
	CUDA_APP(&app, cuMemHostAlloc, &give.pinned, BYTES, 0);
	CUDA_APP(&app, cuMemHostAlloc, (void **)(void *)&words, 4096, 0);
	memset(words, 0, 4096);
	CUDA_APP(&app, cuModuleLoadData, &module, rb_cuda_image);
	CUDA_APP(&app, cuModuleGetFunction, &give.kernel, module, "rb_reduce_f32");
	CUDA_APP(&app, cuFuncLoad, give.kernel);
	CUDA_APP(&app, cuModuleGetFunction, &give.gate, module, "rb_gate");
	CUDA_APP(&app, cuFuncLoad, give.gate);
}

int main(int argc, char **argv)
{
	uint32_t count = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	CUstream waiting[STREAMS_MAX];
	int last, first;
	pthread_t thread;
	CUdeviceptr memory;
	void *pinned;
	char why[200];

	if (count == 0 || count > STREAMS_MAX) {
		(void)fprintf(stderr, "usage: probe_queues COUNT (1 to %u)\n", STREAMS_MAX);
		return 2;
	}
	if (!cuda_app_open(&app, why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	cuda_app_enter(&app);
	prepare();
	CUDA_APP(&app, cuCtxGetStreamPriorityRange, &last, &first);
	(void)printf("CUDA_DEVICE_MAX_CONNECTIONS=%s, %u streams wait:",
		     getenv("CUDA_DEVICE_MAX_CONNECTIONS"), count);
	if (pthread_create(&thread, NULL, watch, NULL) != 0)
		return 1;
	for (uint32_t i = 0; i < count; i++)
		waiting[i] = cuda_app_stream(&app);
	for (uint32_t i = 0; i < count; i++)
		gate_put_on(waiting[i], i, 1);
	for (uint64_t until = rb_clock_ns() + PATIENCE_NS, i = 0;
	     i < count && rb_clock_ns() < until;)
		i += __atomic_load_n(&words[1 + i], __ATOMIC_ACQUIRE) == 1;
	for (uint32_t i = 0; i < count; i++)
		if (__atomic_load_n(&words[1 + i], __ATOMIC_ACQUIRE) != 1)
			(void)printf(" stream %u does not come to its gate;", i);
	try_all(first, "the first");
	try_all(0, "the usual");
	CALL(cuMemAlloc, &memory, BYTES);
	CALL(cuMemHostAlloc, &pinned, BYTES, 0);
	__atomic_store_n(words, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < count; i++)
		CALL(cuStreamSynchronize, waiting[i]);
	(void)printf(" all else goes on\n");
	return 0;
}
