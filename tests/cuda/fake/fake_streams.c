/* fake_streams.c -- see fake_cuda.h: streams, events, kernels. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/kernels.h"
#include "tests/cuda/emulated.h"
#include "tests/cuda/fake/fake_inside.h"

#define PARAMETERS_MAX 4096
/* How often a stream looks at a gate that it waits at. */
#define WATCH_POLL_NS_MIN 20000
#define WATCH_POLL_NS_MAX 1000000

/* ---- Streams ---- */

static void nap(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	(void)nanosleep(&t, NULL);
}

/* What a kernel is given are addresses of the device's: each that is one becomes the stream's. One
 * of another device stays as it is, and the kernel faults there. */
static void parameters_reach(CUdevice device, uint8_t *parameters, size_t bytes)
{
	for (size_t at = 0; at + 8 <= bytes; at += 8) {
		const struct allocation *a;
		void *word;
		uint8_t *reached;

		memcpy(&word, parameters + at, 8);
		a = fake_find(word, 1);
		if (a == NULL || (a->what == DEVICE && a->device != device))
			continue;
		reached = fake_reach(word, 1);
		memcpy(parameters + at, &reached, 8);
	}
}

/* Of rb_gate, which a stream's thread is not to spend its time with. */
static bool is_open(struct item *item)
{
	const struct rb_cuda_gate *gate = (const void *)item->parameters;

	if (!item->said)
		__atomic_store_n(gate->reached, gate->value, __ATOMIC_RELEASE);
	item->said = true;
	return (int32_t)(__atomic_load_n(gate->opened, __ATOMIC_ACQUIRE) - gate->value) >= 0;
}

static bool ready(struct item *item)
{
	if (fake.lost)
		return true;
	if (item->what == WAIT_EVENT)
		return item->event->over >= item->ticket || fake.control.waits_ignored;
	return item->what != GATE || is_open(item);
}

static void carry_out(struct item *item)
{
	switch (item->what) {
	case COPY:
		memmove(item->to, item->from, item->bytes);
		break;
	case SET:
		memset(item->to, (int)item->value, item->bytes);
		break;
	case LAUNCH:
		emulated_launch(item->kernel->kernel, item->grid, item->block, item->parameters);
		break;
	case GATE:
		__atomic_store_n(
			((const struct rb_cuda_gate *)(const void *)item->parameters)->passed,
			item->value, __ATOMIC_RELEASE);
		break;
	case CALL:
		if (item->callback != NULL)
			item->callback(item->stream, CUDA_SUCCESS, item->arg);
		else
			item->call(item->arg != NULL ? item->arg : item->parameters);
		break;
	default:
		break;
	}
}

/* With the lock. */
static void delay(struct CUstream_st *stream)
{
	uint64_t ns = 0;

	if (fake.control.seed == 0)
		return;
	switch (rb_rng_below(&stream->rng, 8)) {
	case 0:
		ns = 1000 * (1 + rb_rng_below(&stream->rng, fake.control.delay_us_max + 1));
		break;
	case 1:
	case 2:
		ns = 1;
		break;
	default:
		return;
	}
	pthread_mutex_unlock(&fake.lock);
	nap(ns);
	fake_stream_lock();
}

static void *stream_main(void *arg)
{
	struct CUstream_st *stream = arg;

	pthread_mutex_lock(&fake.lock);
	while (!stream->stop || stream->first != NULL) {
		struct item *item = stream->first;
		uint64_t poll_ns = WATCH_POLL_NS_MIN;
		bool waited = false;

		if (item == NULL) {
			pthread_cond_wait(&stream->given, &fake.lock);
			continue;
		}
		while (stream->queue != NULL && stream->queue->over != item->place)
			fake_over_wait();
		delay(stream);
		stream->context->at_gates += item->what == GATE;
		while (!ready(item)) {
			waited = true;
			if (item->what == WAIT_EVENT) {
				fake_over_wait();
				continue;
			}
			pthread_mutex_unlock(&fake.lock);
			nap(poll_ns);
			poll_ns = poll_ns < WATCH_POLL_NS_MAX ? 2 * poll_ns : poll_ns;
			fake_stream_lock();
		}
		stream->context->at_gates -= item->what == GATE;
		fake.counts.copies += item->what == COPY;
		fake.counts.launches += item->what == LAUNCH;
		fake.counts.waits += item->what == WAIT_EVENT;
		fake.counts.waited += item->what == WAIT_EVENT && waited;
		if (!fake.lost) {
			fake.running++;
			pthread_mutex_unlock(&fake.lock);
			carry_out(item);
			fake_stream_lock();
			fake.running--;
		}
		if (item->what == RECORD && item->event->over < item->ticket)
			item->event->over = item->ticket;
		if (stream->queue != NULL)
			stream->queue->over++;
		stream->first = item->next;
		if (stream->first == NULL)
			stream->end = &stream->first;
		free(item);
		if (fake.over_awaited > 0)
			pthread_cond_broadcast(&fake.over);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

static struct queue *queue_find(CUcontext context, int priority)
{
	bool own = priority != 0 && !fake.control.queues_together;
	struct queue *queues = context->queues[own], *least = queues;

	if (fake.control.queues == 0)
		return NULL;
	for (uint32_t q = 1; q < fake.control.queues && q < FAKE_CUDA_QUEUES_MAX; q++)
		if (queues[q].streams < least->streams)
			least = &queues[q];
	least->streams++;
	return least;
}

static CUstream stream_make(int priority)
{
	CUstream stream = calloc(1, sizeof(*stream));

	stream->end = &stream->first;
	pthread_cond_init(&stream->given, NULL);
	stream->context = fake_current();
	stream->priority = priority;
	stream->queue = queue_find(stream->context, priority);
	stream->rng.state = rb_mix(fake.control.seed + ++fake.stream_count);
	if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
		if (stream->queue != NULL)
			stream->queue->streams--;
		free(stream);
		return NULL;
	}
	stream->next = fake.streams;
	fake.streams = stream;
	return stream;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	CUstream stream;

	ENTER_MAKING();
	if (flags != CU_STREAM_NON_BLOCKING && flags != CU_STREAM_DEFAULT)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	stream = stream_make(priority);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	fake.counts.streams++;
	*out = stream;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	CUstream stream;

	(void)flags;
	ENTER_MAKING();
	stream = stream_make(0);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	stream->foreign = true;
	fake.counts.streams++;
	*out = stream;
	return fake_leave(CUDA_SUCCESS);
}

/* The one that is meant: NULL is the current context's default stream, made when it is first named.
 * Not NULL: no stream. */
static CUstream stream_of(CUstream stream)
{
	CUstream *own = &fake_current()->default_stream;

	if (stream == NULL && *own == NULL)
		*own = stream_make(0);
	if (stream == NULL)
		return *own;
	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		if (s == stream)
			return stream;
	return NULL;
}

static void stream_drain(CUstream stream)
{
	while (stream->first != NULL)
		fake_over_wait();
}

/* With the lock, which it drops. */
static void stream_end(CUstream stream)
{
	struct CUstream_st **at = &fake.streams;

	stream_drain(stream);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	if (stream->queue != NULL)
		stream->queue->streams--;
	stream->stop = true;
	pthread_cond_signal(&stream->given);
	pthread_mutex_unlock(&fake.lock);
	pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->given);
	free(stream);
}

void fake_default_stream_end(CUcontext context)
{
	CUstream stream = context->default_stream;

	context->default_stream = NULL;
	if (stream == NULL)
		return;
	stream_end(stream);
	pthread_mutex_lock(&fake.lock);
}

/* What it was given is still done; the driver returns at once, we do when it is. */
EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	ENTER_CONTEXT();
	if (stream == NULL || stream_of(stream) == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	fake.counts.streams--;
	stream_end(stream);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	ENTER_CONTEXT();
	stream = stream_of(stream);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	stream_drain(stream);
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	ENTER_CONTEXT();
	stream = stream_of(stream);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	return fake_leave(stream->first == NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ENTER_CONTEXT();
	stream = stream_of(stream);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return fake_leave(CUDA_SUCCESS);
}

/* With the lock, which it drops. */
static CUresult enqueue(CUstream stream, const struct item *item, const void *parameters,
			size_t parameter_bytes)
{
	struct item *copy;

	stream = stream_of(stream);
	if (stream == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	copy = malloc(sizeof(*copy) + parameter_bytes);
	*copy = *item;
	copy->next = NULL;
	if (stream->queue != NULL)
		copy->place = stream->queue->given++;
	if (parameter_bytes > 0)
		memcpy(copy->parameters, parameters, parameter_bytes);
	*stream->end = copy;
	stream->end = &copy->next;
	pthread_cond_signal(&stream->given);
	return fake_leave(CUDA_SUCCESS);
}

static bool is_pageable(CUdeviceptr address)
{
	return fake_find((void *)(uintptr_t)address, 1) == NULL;
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct item item = { .what = COPY, .bytes = bytes };
	bool hosts, foreign;

	ENTER_CONTEXT();
	item.to = fake_reach((void *)(uintptr_t)to, bytes);
	item.from = fake_reach((void *)(uintptr_t)from, bytes);
	if (item.to == NULL || item.from == NULL)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	/* The application's pointer is not the stream's for a device's memory alone. */
	hosts = (uintptr_t)item.to == to || (uintptr_t)item.from == from;
	foreign = stream != NULL && stream_of(stream) != NULL && stream->foreign;
	fake.counts.foreign_copies += foreign;
	fake.counts.foreign_bytes += foreign ? bytes : 0;
	fake.counts.host_copies += hosts && !foreign;
	fake.counts.host_bytes += hosts && !foreign ? bytes : 0;
	if (is_pageable(to) || is_pageable(from)) {
		fake.counts.pageable += stream != NULL && stream->priority != 0;
		while (fake.control.pageable_waits && fake_current()->at_gates > 0 && !fake.lost)
			fake_over_wait();
	}
	return enqueue(stream, &item, NULL, 0);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
				     CUstream stream)
{
	return cuMemcpyAsync(to, from, bytes, stream);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	struct item item = { .what = SET, .bytes = bytes, .value = value };

	ENTER_CONTEXT();
	item.to = fake_reach((void *)(uintptr_t)to, bytes);
	if (item.to == NULL || fake_find((void *)(uintptr_t)to, bytes) == NULL)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return enqueue(stream, &item, NULL, 0);
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn call, void *arg)
{
	struct item item = { .what = CALL, .call = call, .arg = arg };

	ENTER_CONTEXT();
	return enqueue(stream, &item, NULL, 0);
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *arg,
				    unsigned int flags)
{
	struct item item = { .what = CALL, .callback = callback, .stream = stream, .arg = arg };

	ENTER_CONTEXT();
	if (flags != 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return enqueue(stream, &item, NULL, 0);
}

EXPORT CUresult fake_cuda_call(CUstream stream, CUhostFn call, const void *parameters, size_t bytes)
{
	struct item item = { .what = CALL, .call = call };

	pthread_mutex_lock(&fake.lock);
	return enqueue(stream, &item, parameters, bytes);
}

/* ---- Events ---- */

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	(void)flags;
	ENTER_MAKING();
	*out = calloc(1, sizeof(**out));
	fake.counts.events++;
	return fake_leave(CUDA_SUCCESS);
}

/* An error that was asked for is an earlier call's, which drivers may tell here: the event is gone
 * all the same. */
EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	CUresult told = fake_enter(__func__);

	if (told == CUDA_ERROR_NOT_INITIALIZED || event == NULL)
		return told != CUDA_SUCCESS ? told : fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (told != CUDA_SUCCESS)
		pthread_mutex_lock(&fake.lock);
	while (event->over < event->recorded)
		fake_over_wait();
	free(event);
	fake.counts.events--;
	return fake_leave(told);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	struct item item = { .what = RECORD, .event = event };

	ENTER_CONTEXT();
	item.ticket = event->recorded = ++fake.tickets;
	return enqueue(stream, &item, NULL, 0);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	ENTER_CONTEXT();
	return fake_leave(event->over >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	ENTER_CONTEXT();
	if (event == NULL)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	while (event->over < event->recorded)
		fake_over_wait();
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	struct item item = { .what = WAIT_EVENT, .event = event };

	(void)flags;
	ENTER_CONTEXT();
	item.ticket = event->recorded;
	return enqueue(stream, &item, NULL, 0);
}

/* ---- Modules and kernels ---- */

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	static const uint8_t fatbin[4] = { 0x50, 0xed, 0x55, 0xba };

	ENTER_MAKING();
	if (image == NULL || memcmp(image, fatbin, sizeof(fatbin)) != 0)
		return fake_leave(CUDA_ERROR_INVALID_IMAGE);
	*out = calloc(1, sizeof(**out));
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	ENTER_MAKING();
	free(module);
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	void *kernel = emulated_find(name);
	struct CUfunc_st *f;

	(void)module;
	ENTER_CONTEXT();
	if (kernel == NULL)
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	for (f = fake.functions; f != NULL && f->kernel != kernel; f = f->next)
		;
	if (f == NULL) {
		f = calloc(1, sizeof(*f));
		f->kernel = kernel;
		f->parameter_bytes = emulated_parameter_bytes(kernel);
		f->next = fake.functions;
		fake.functions = f;
	}
	*out = f;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuFuncLoad(CUfunction kernel)
{
	ENTER_MAKING();
	return fake_leave(kernel != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

EXPORT CUresult cuLaunchKernel(CUfunction kernel, unsigned int grid_x, unsigned int grid_y,
			       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			       unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			       void **parameters, void **extra)
{
	struct item item = { .what = LAUNCH, .kernel = kernel, .grid = grid_x, .block = block_x };
	_Alignas(16) uint8_t copy[PARAMETERS_MAX];

	ENTER_CONTEXT();
	if (grid_x == 0 || block_x == 0 || block_x > 1024 ||
	    grid_y * grid_z * block_y * block_z != 1 || shared_bytes != 0 || extra != NULL)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (kernel->kernel == emulated_find("rb_gate")) {
		item.what = GATE;
		item.value = ((const struct rb_cuda_gate *)parameters[0])->value;
	}
	memcpy(copy, parameters[0], kernel->parameter_bytes);
	parameters_reach(fake_device(fake_current()), copy, kernel->parameter_bytes);
	return enqueue(stream, &item, copy, kernel->parameter_bytes);
}
