/*
 * device_cuda.c -- a CUDA device: copies by its copy engines, reductions by kernels of ours.
 *
 * Three queues, streams of which none waits for the default stream: one for copies from the host,
 * one for copies to it, one for all else (of a few, cuda_memory.h), so that copies each way and
 * reductions go on at once. All communicators of the process put their work there, in any order:
 * what depends on work in another stream waits for it there, and that has been put before. Behind
 * a piece of work goes an event, by which poll() sees that it is over. Work of one communicator on
 * a stream is over in its order, so a number, queue and place in it, is enough to name it for ever.
 *
 * The context is the device's primary one: that of CUDA's runtime, of PyTorch, and of all ranks
 * that are threads of this process.
 *
 * Nothing of ours waits for a stream of the application. So what is under way ends by itself, and
 * cancel() can wait for that: a device does not forget what it was given.
 */
#include "runtime/devices/device_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "collectives/reduce/coded.h"
#include "cuda/driver.h"
#include "cuda/kernels.h"
#include "runtime/devices/cuda_context.h"
#include "runtime/devices/cuda_gate.h"
#include "runtime/devices/cuda_ipc.h"
#include "runtime/devices/cuda_rdma.h"

#define PLACES_FIRST 64u /* Of a stream; a power of two. */

struct place {
	struct rb_work *work; /* NULL: it was cancelled. */
	CUevent event;        /* Stays here, and is recorded again. */
};

struct queue_state {
	CUstream stream;      /* The context's. */
	struct place *places; /* Number n is in places[n % place_count]. */
	uint64_t place_count;
	uint64_t over, next; /* Numbers below `over` are; `next` is the next one's. */
};

struct device {
	struct rb_executor base;
	struct rb_cuda_context *context;
	uint32_t lane;
	struct queue_state queues[RB_CUDA_QUEUES];
	struct rb_cuda_ipc ipc;
	struct rb_cuda_rdma rdma;
	rubato_status lost;          /* What the device failed with: it is of no more use. */
	char failure[RB_TEXT_BYTES]; /* That, or the last other one. */
};

static struct device *of(const struct rb_executor *executor)
{
	return (struct device *)(uintptr_t)executor;
}

static const struct rb_cuda_driver *driver(const struct device *device)
{
	return &device->context->cuda;
}

static void enter(const struct device *device)
{
	rb_cuda_enter(device->context);
}

static void leave(const struct device *device)
{
	rb_cuda_leave(device->context);
}

/* What was put on a stream before a call failed may still be under way: its memory is the caller's
 * again when that is over. A device that is lost says so at once. */
static void quiet(struct device *device)
{
	uint64_t until = rb_clock_ns() + RB_CUDA_PATIENCE_NS;

	enter(device);
	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++)
		while (driver(device)->p_cuStreamQuery(device->queues[q].stream) ==
			       CUDA_ERROR_NOT_READY &&
		       rb_clock_ns() < until)
			rb_yield();
	leave(device);
}

/* An error of the driver is the device's end: those of earlier work come out of any later call.
 * That there is no memory, or something is not supported, is not. */
static void failed(struct device *device, rubato_status status)
{
	if (device->lost != RUBATO_OK)
		return;
	(void)snprintf(device->failure, sizeof(device->failure), "CUDA device %d: %s",
		       device->context->number, rubato_error_text());
	if (status != RUBATO_ERR_SYSTEM)
		return;
	device->lost = status;
	quiet(device);
	RB_LOG(RB_LOG_WARN, "%s", device->failure);
}

static const char *device_why(const struct rb_executor *executor)
{
	return of(executor)->failure;
}

/* ---- Numbers: the queue in the two lowest bits ---- */

static uint64_t number_of(enum rb_cuda_queue queue, uint64_t place)
{
	return place << 2 | queue;
}

static struct place *place_of(const struct queue_state *queue, uint64_t number)
{
	return &queue->places[number & (queue->place_count - 1)];
}

static rubato_status places_grow(struct device *device, struct queue_state *queue)
{
	uint64_t count = queue->place_count > 0 ? 2 * queue->place_count : PLACES_FIRST;
	struct place *places = calloc(count, sizeof(*places));
	uint64_t made = 0;

	if (places == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %llu places",
			       (unsigned long long)count);
	/* Those in use keep their numbers, the events of all are kept. */
	for (uint64_t i = queue->over; i < queue->over + queue->place_count; i++)
		places[i & (count - 1)] = *place_of(queue, i);
	for (; made < count; made++) {
		struct place *place = &places[made];
		rubato_status err;

		if (place->event != NULL)
			continue;
		err = driver(device)->p_cuEventCreate(&place->event, CU_EVENT_DISABLE_TIMING) ==
				      CUDA_SUCCESS
			      ? RUBATO_OK
			      : RUBATO_ERR_SYSTEM;
		if (err != RUBATO_OK)
			break;
	}
	if (made < count) {
		/* What is new goes; the old ones are still those of the queue. */
		for (uint64_t i = 0; i < made; i++) {
			bool old = queue->place_count > 0 &&
				   place_of(queue, i)->event == places[i].event;

			if (!old)
				(void)driver(device)->p_cuEventDestroy(places[i].event);
		}
		free(places);
		return RB_FAIL(RUBATO_ERR_SYSTEM, "CUDA device: no more events");
	}
	free(queue->places);
	queue->places = places;
	queue->place_count = count;
	return RUBATO_OK;
}

/* ---- Start ---- */

static bool is_copy(const struct rb_reduce *reduce)
{
	return reduce->from_count == 1 && reduce->final_count == 0 &&
	       reduce->coding == RB_CODING_NONE;
}

static size_t known(struct device *device, const void *address, enum rb_memory_kind *kind)
{
	unsigned int type = 0, managed = 0;
	CUdeviceptr start = 0;
	size_t bytes = 0;
	int ordinal = -1;
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	};
	void *values[] = { &type, &managed, &ordinal, &start, &bytes };
	CUresult result = driver(device)->p_cuPointerGetAttributes(
		sizeof(values) / sizeof(values[0]), attributes, values,
		(CUdeviceptr)(uintptr_t)address);

	if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) {
		failed(device, rb_cuda_failed(driver(device), "cuPointerGetAttributes", result));
		*kind = RB_MEMORY_DEVICE;
		return SIZE_MAX;
	}
	if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || start == 0)
		return 0;
	*kind = managed ? RB_MEMORY_MANAGED : RB_MEMORY_DEVICE;
	if (!managed && ordinal != device->context->number) {
		*kind = RB_MEMORY_FOREIGN;
		(void)snprintf(device->failure, sizeof(device->failure),
			       "memory of CUDA device %d, and this communicator uses CUDA device "
			       "%d: rubato_cuda_use",
			       ordinal, device->context->number);
	}
	return (size_t)(start + bytes - (CUdeviceptr)(uintptr_t)address);
}

static enum rb_cuda_queue queue_of(struct device *device, const struct rb_reduce *reduce)
{
	enum rb_memory_kind kind;
	bool from, to;

	if (!is_copy(reduce))
		return RB_CUDA_OTHER;
	from = known(device, reduce->from[0], &kind) > 0;
	to = known(device, reduce->to, &kind) > 0;
	return from == to ? RB_CUDA_OTHER : to ? RB_CUDA_IN : RB_CUDA_OUT;
}

static rubato_status wait_for(struct device *device, enum rb_cuda_queue here,
			      const struct rb_work *work)
{
	uint64_t behind[RB_CUDA_QUEUES] = { 0 };

	for (uint32_t i = 0; i < work->after_count; i++) {
		uint64_t number = work->after[i].number;
		uint64_t place = (number >> 2) + 1;

		if (place > behind[number & 3])
			behind[number & 3] = place;
	}
	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++) {
		const struct queue_state *queue = &device->queues[q];

		if (q == here || behind[q] <= queue->over)
			continue;
		RB_CUDA_TRY(driver(device), cuStreamWaitEvent, device->queues[here].stream,
			    place_of(queue, behind[q] - 1)->event, 0);
	}
	return RUBATO_OK;
}

static rubato_status launch(struct device *device, const struct rb_work *work, CUstream stream)
{
	const struct rb_reduce *reduce = &work->reduce;
	enum rb_cuda_kernel kernel =
		reduce->from_count > RB_CUDA_OPERANDS ? RB_CUDA_MANY : RB_CUDA_FEW;
	struct rb_cuda_reduce_many arguments = {
		.to = reduce->to,
		.count = reduce->count,
		.from_count = reduce->from_count,
		.op = reduce->op,
		.final_count = reduce->final_count,
	};
	void *parameters[] = { &arguments };

	if (reduce->from_count > RB_CUDA_OPERANDS_MANY)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "CUDA: a reduction of %u operands at once; %u are the most",
			       reduce->from_count, RB_CUDA_OPERANDS_MANY);
	memcpy(arguments.from, reduce->from, reduce->from_count * sizeof(arguments.from[0]));
	RB_CUDA_TRY(
		driver(device), cuLaunchKernel, device->context->kernels[reduce->type][kernel],
		rb_cuda_grid(reduce->count, work->element_bytes, device->context->multiprocessors),
		1, 1, RB_CUDA_BLOCK, 1, 1, 0, stream, parameters, NULL);
	return RUBATO_OK;
}

/* Of float32 in fewer bits; what is coded in units takes a warp for each. */
static rubato_status launch_coded(struct device *device, const struct rb_reduce *reduce,
				  CUstream stream)
{
	struct rb_cuda_coded_many arguments = { .to = reduce->to,
						.residual = reduce->residual,
						.count = reduce->count,
						.from_count = reduce->from_count,
						.final_count = reduce->final_count };
	void *parameters[] = { &arguments };
	CUfunction kernel = device->context->coders[reduce->wire - 1][reduce->coding - 1];
	uint64_t values = reduce->count;

	if (reduce->from_count > RB_CUDA_OPERANDS_MANY)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "CUDA: a sum of %u coded operands at once; %u are the most",
			       reduce->from_count, RB_CUDA_OPERANDS_MANY);
	if (reduce->from_count > RB_CUDA_OPERANDS)
		kernel = device->context->coded_many[reduce->wire - 1];
	if (reduce->coding == RB_CODING_REDUCE)
		values *= rb_code_values(reduce->wire);
	memcpy(arguments.from, reduce->from, reduce->from_count * sizeof(arguments.from[0]));
	RB_CUDA_TRY(driver(device), cuLaunchKernel, kernel,
		    rb_cuda_grid(values, sizeof(float), device->context->multiprocessors), 1, 1,
		    RB_CUDA_BLOCK, 1, 1, 0, stream, parameters, NULL);
	return RUBATO_OK;
}

static rubato_status put_on(struct device *device, struct rb_work *work)
{
	const struct rb_reduce *reduce = &work->reduce;
	size_t bytes = (size_t)reduce->count * work->element_bytes;
	enum rb_cuda_queue q = queue_of(device, reduce);
	struct queue_state *queue = &device->queues[q];
	struct place *place;

	if (queue->next - queue->over == queue->place_count)
		RB_TRY(places_grow(device, queue));
	RB_TRY(wait_for(device, q, work));
	if (reduce->from_count == 0)
		RB_CUDA_TRY(driver(device), cuMemsetD8Async, (CUdeviceptr)(uintptr_t)reduce->to, 0,
			    bytes, queue->stream);
	else if (reduce->coding != RB_CODING_NONE)
		RB_TRY(launch_coded(device, reduce, queue->stream));
	else if (!is_copy(reduce))
		RB_TRY(launch(device, work, queue->stream));
	else if (reduce->to != reduce->from[0])
		RB_CUDA_TRY(driver(device), cuMemcpyAsync, (CUdeviceptr)(uintptr_t)reduce->to,
			    (CUdeviceptr)(uintptr_t)reduce->from[0], bytes, queue->stream);
	place = place_of(queue, queue->next);
	RB_CUDA_TRY(driver(device), cuEventRecord, place->event, queue->stream);
	place->work = work;
	work->number = number_of(q, queue->next++);
	return RUBATO_OK;
}

static void device_start(struct rb_executor *executor, struct rb_work *work)
{
	struct device *device = of(executor);
	rubato_status err = device->lost;

	work->status = RUBATO_OK;
	work->state = RB_WORK_DONE;
	if (err != RUBATO_OK) {
		work->status = err;
		return;
	}
	if (work->reduce.count == 0)
		return;
	enter(device);
	err = put_on(device, work);
	leave(device);
	if (err == RUBATO_OK) {
		work->state = RB_WORK_PENDING;
		return;
	}
	work->status = err;
	failed(device, err);
}

/* ---- The end ---- */

static struct rb_work **finish(struct rb_work **end, struct place *place, rubato_status status)
{
	struct rb_work *work = place->work;

	place->work = NULL;
	if (work == NULL)
		return end;
	work->state = RB_WORK_DONE;
	work->status = status;
	work->next = NULL;
	*end = work;
	return &work->next;
}

static struct rb_work *device_poll(struct rb_executor *executor)
{
	struct device *device = of(executor);
	struct rb_work *list = NULL, **end = &list;

	if (!executor->ops->busy(executor))
		return NULL;
	enter(device);
	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++) {
		struct queue_state *queue = &device->queues[q];

		while (queue->over < queue->next) {
			struct place *place = place_of(queue, queue->over);
			CUresult result = CUDA_SUCCESS;

			if (device->lost == RUBATO_OK)
				result = driver(device)->p_cuEventQuery(place->event);
			if (result == CUDA_ERROR_NOT_READY)
				break;
			if (result != CUDA_SUCCESS)
				failed(device,
				       rb_cuda_failed(driver(device), "cuEventQuery", result));
			end = finish(end, place, device->lost);
			queue->over++;
		}
	}
	leave(device);
	return list;
}

/* It cannot be taken back: it is waited for. */
static void device_cancel(struct rb_executor *executor, struct rb_work *work)
{
	struct device *device = of(executor);
	struct place *place = place_of(&device->queues[work->number & 3], work->number >> 2);
	uint64_t until = rb_clock_ns() + RB_CUDA_PATIENCE_NS;
	CUresult result;

	if (work->state != RB_WORK_PENDING)
		return;
	RB_ASSERT(place->work == work);
	enter(device);
	while (device->lost == RUBATO_OK) {
		result = driver(device)->p_cuEventQuery(place->event);
		if (result == CUDA_SUCCESS)
			break;
		if (result != CUDA_ERROR_NOT_READY)
			failed(device, rb_cuda_failed(driver(device), "cuEventQuery", result));
		else if (rb_clock_ns() > until)
			failed(device, RB_FAIL(RUBATO_ERR_SYSTEM,
					       "CUDA device %d does not come to an end of its work",
					       device->context->number));
		rb_yield();
	}
	leave(device);
	place->work = NULL;
	work->state = RB_WORK_DONE;
	work->status = device->lost != RUBATO_OK ? device->lost : RUBATO_ERR_CANCELLED;
}

static bool device_busy(struct rb_executor *executor)
{
	const struct device *device = of(executor);
	bool busy = false;

	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++)
		busy |= device->queues[q].over < device->queues[q].next;
	return busy;
}

static bool device_waits_for(const struct rb_executor *executor, const struct rb_executor *other)
{
	return executor == other;
}

/* ---- Memory ---- */

static size_t device_knows(const struct rb_executor *executor, const void *address,
			   enum rb_memory_kind *kind)
{
	struct device *device = of(executor);
	size_t bytes;

	/* What nobody can tell any more is taken for the device's, so that no processor touches it:
	 * what is done with it ends with the device's error. */
	if (device->lost != RUBATO_OK) {
		*kind = RB_MEMORY_DEVICE;
		return SIZE_MAX;
	}
	enter(device);
	bytes = known(device, address, kind);
	leave(device);
	return bytes;
}

/* The device's number and the address: ranks of one process share its context. */
#define WORD_ADDRESS_BITS 52

static uint64_t device_word_of(const struct rb_executor *executor, const void *address)
{
	uint64_t at = (uint64_t)(uintptr_t)address;
	uint64_t number = (uint64_t)of(executor)->context->number;

	return at >> WORD_ADDRESS_BITS != 0 || number > 62 ? 0 : number << WORD_ADDRESS_BITS | at;
}

static uint32_t device_word_kin(uint64_t word)
{
	return (uint32_t)(word >> WORD_ADDRESS_BITS);
}

static void *device_word_map(const struct rb_executor *executor, uint64_t word, uint64_t size_bytes)
{
	void *address = (void *)(uintptr_t)(word & ((UINT64_C(1) << WORD_ADDRESS_BITS) - 1));
	enum rb_memory_kind kind = RB_MEMORY_HOST;
	size_t known_bytes = device_knows(executor, address, &kind);

	return kind == RB_MEMORY_DEVICE && known_bytes >= size_bytes ? address : NULL;
}

static bool device_share_of(struct rb_executor *executor, const void *address, struct rb_share *out)
{
	struct device *device = of(executor);

	return device->lost == RUBATO_OK &&
	       rb_cuda_ipc_share(device->context, &device->ipc, address, out);
}

static rubato_status device_share_open(struct rb_executor *executor, const struct rb_share *share,
				       uint64_t size_bytes, void **address)
{
	struct device *device = of(executor);

	RB_TRY(device->lost);
	return rb_cuda_ipc_open(device->context, &device->ipc, share, size_bytes, address);
}

static void device_share_close(struct rb_executor *executor, void *address)
{
	rb_cuda_ipc_close(&of(executor)->ipc, address);
}

static void device_shares_forget(struct rb_executor *executor)
{
	rb_cuda_ipc_forget(of(executor)->context, &of(executor)->ipc, false);
}

static rubato_status device_memory_new(struct rb_executor *executor, enum rb_memory_kind kind,
				       size_t size_bytes, void **out)
{
	return rb_cuda_room_new(of(executor)->context, executor, kind, size_bytes, out);
}

static void device_memory_free(struct rb_executor *executor, void *memory)
{
	rb_cuda_room_free(of(executor)->context, memory);
}

static rubato_status device_gate_new(struct rb_executor *executor, struct rb_gate **out)
{
	return rb_cuda_gate_new(of(executor)->context, out);
}

/* ---- RDMA ---- */

static uint32_t device_ways(struct rb_executor *executor, const char **why)
{
	struct device *device = of(executor);

	enter(device);
	rb_cuda_rdma_find(device->context, executor, &device->rdma);
	leave(device);
	*why = device->rdma.why;
	return device->rdma.ways;
}

/* That this memory cannot be exported is no error of the device's. */
static rubato_status device_export(struct rb_executor *executor, const void *address,
				   size_t size_bytes, int *fd, uint64_t *offset)
{
	struct device *device = of(executor);
	rubato_status err;

	if (device->lost != RUBATO_OK)
		return RB_FAIL(device->lost, "%s", device->failure);
	enter(device);
	err = rb_cuda_rdma_export(device->context, address, size_bytes, fd, offset);
	leave(device);
	return err;
}

static rubato_status device_copy(struct rb_executor *executor, void *to, const void *from,
				 size_t size_bytes)
{
	struct device *device = of(executor);
	enum rb_memory_kind kind = RB_MEMORY_HOST;
	rubato_status err = device->lost;
	bool in, out;

	if (err != RUBATO_OK)
		return RB_FAIL(err, "%s", device->failure);
	enter(device);
	in = known(device, to, &kind) > 0;
	out = known(device, from, &kind) > 0;
	err = device->lost;
	if (err == RUBATO_OK)
		err = rb_cuda_rdma_prepare(device->context, executor, &device->rdma);
	if (err == RUBATO_OK)
		err = rb_cuda_rdma_copy(device->context, &device->rdma, to, in, from, out,
					size_bytes);
	leave(device);
	if (err != RUBATO_OK)
		failed(device, err);
	return err;
}

static rubato_status device_flush(struct rb_executor *executor)
{
	struct device *device = of(executor);
	rubato_status err = device->lost;

	if (err != RUBATO_OK)
		return RB_FAIL(err, "%s", device->failure);
	enter(device);
	err = rb_cuda_rdma_flush(device->context, &device->rdma);
	leave(device);
	if (err != RUBATO_OK)
		failed(device, err);
	return err;
}

static void device_enter(struct rb_executor *executor)
{
	enter(of(executor));
}

static void device_leave(struct rb_executor *executor)
{
	leave(of(executor));
}

/* ---- Closing ---- */

static void device_close(struct rb_executor *executor)
{
	struct device *device = of(executor);

	enter(device);
	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++) {
		struct queue_state *queue = &device->queues[q];

		for (uint64_t i = 0; i < queue->place_count; i++)
			(void)driver(device)->p_cuEventDestroy(queue->places[i].event);
		free(queue->places);
	}
	rb_cuda_rdma_close(device->context, &device->rdma);
	leave(device);
	rb_cuda_ipc_forget(device->context, &device->ipc, true);
	rb_cuda_rooms_free(device->context, device);
	rb_cuda_context_close(device->context);
	free(device);
}

static const struct rb_executor_ops device_ops = {
	.name = "CUDA device",
	.start = device_start,
	.poll = device_poll,
	.cancel = device_cancel,
	.why = device_why,
	.busy = device_busy,
	.close = device_close,
	.waits_for = device_waits_for,
	.knows = device_knows,
	.word_of = device_word_of,
	.word_kin = device_word_kin,
	.word_map = device_word_map,
	.share_of = device_share_of,
	.share_open = device_share_open,
	.share_close = device_share_close,
	.shares_forget = device_shares_forget,
	.memory_new = device_memory_new,
	.memory_free = device_memory_free,
	.ways = device_ways,
	.export_dmabuf = device_export,
	.copy = device_copy,
	.flush = device_flush,
	.enter = device_enter,
	.leave = device_leave,
	.gate_new = device_gate_new,
};

/* ---- Opening ---- */

/* *found false: nobody has a context, and none is asked for. */
static rubato_status number_find(const struct rb_cuda_driver *cuda, int number, CUdevice *found,
				 bool *any)
{
	CUcontext current = NULL;
	int count = 0;

	*any = true;
	if (number != RB_CUDA_CURRENT) {
		RB_CUDA_TRY(cuda, cuDeviceGetCount, &count);
		if (number < 0 || number >= count)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "CUDA device %d: this machine has %d, numbered from 0",
				       number, count);
		RB_CUDA_TRY(cuda, cuDeviceGet, found, number);
		return RUBATO_OK;
	}
	RB_CUDA_TRY(cuda, cuCtxGetCurrent, &current);
	*any = current != NULL;
	if (*any)
		RB_CUDA_TRY(cuda, cuCtxGetDevice, found);
	return RUBATO_OK;
}

static rubato_status queues_make(struct device *device)
{
	for (enum rb_cuda_queue q = 0; q < RB_CUDA_QUEUES; q++) {
		uint32_t stream = q == RB_CUDA_OTHER ? RB_CUDA_OTHER + device->lane : (uint32_t)q;

		device->queues[q].stream = device->context->streams[stream];
		RB_TRY(places_grow(device, &device->queues[q]));
	}
	return RUBATO_OK;
}

rubato_status rb_device_cuda_open(int number, bool load, struct rb_executor **out)
{
	struct rb_cuda_driver cuda;
	struct device *device;
	CUdevice found = 0;
	bool any;
	rubato_status err;

	*out = NULL;
	RB_TRY(rb_cuda_driver_open(load, &cuda, &any));
	if (any)
		RB_TRY(number_find(&cuda, number, &found, &any));
	if (!any)
		return RUBATO_OK;
	device = calloc(1, sizeof(*device));
	if (device == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %zu bytes", sizeof(*device));
	device->base.ops = &device_ops;
	err = rb_cuda_context_open(&cuda, found, &device->context, &device->lane);
	if (err != RUBATO_OK) {
		free(device);
		return err;
	}
	enter(device);
	err = queues_make(device);
	leave(device);
	if (err != RUBATO_OK) {
		device_close(&device->base);
		return err;
	}
	*out = &device->base;
	return RUBATO_OK;
}

bool rb_device_is_cuda(const struct rb_executor *executor)
{
	return executor->ops == &device_ops;
}

rubato_status rb_device_cuda_is(struct rb_executor *executor, int number, bool *same)
{
	struct device *device = of(executor);
	CUdevice current = device->context->number;
	CUcontext context = NULL;

	*same = number == device->context->number;
	if (number != RB_CUDA_CURRENT)
		return RUBATO_OK;
	RB_CUDA_TRY(driver(device), cuCtxGetCurrent, &context);
	if (context != NULL)
		RB_CUDA_TRY(driver(device), cuCtxGetDevice, &current);
	*same = current == device->context->number;
	return RUBATO_OK;
}

int rb_device_cuda_number(const struct rb_executor *executor)
{
	return of(executor)->context->number;
}

bool rb_device_cuda_gave(const struct rb_executor *executor, const void *memory)
{
	return rb_cuda_room_has(of(executor)->context, executor, memory);
}

void rb_device_cuda_describe(struct rb_executor *executor, char *text, size_t text_bytes)
{
	struct device *device = of(executor);
	char name[128] = "?", rdma[160];
	int major = 0, minor = 0;
	struct rb_cuda_rdma found = { .ways = 0 };

	/* Of every device, at start-up: only transports that use it take memory for it. */
	rb_cuda_rdma_ask(device->context, &found);
	if (found.ways == 0)
		(void)snprintf(rdma, sizeof(rdma), "no RDMA: %s", found.why);
	else
		(void)snprintf(rdma, sizeof(rdma), "RDMA by %s%s",
			       (found.ways & RB_MEMORY_BY_DMABUF) != 0 ? "dma-buf"
								       : "nvidia_peermem",
			       found.flushes ? ", with flushes" : "");
	(void)driver(device)->p_cuDeviceGetName(name, sizeof(name), device->context->number);
	(void)driver(device)->p_cuDeviceGetAttribute(
		&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->context->number);
	(void)driver(device)->p_cuDeviceGetAttribute(
		&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->context->number);
	(void)snprintf(text, text_bytes, "CUDA device %d, %s, compute capability %d.%d, %s",
		       device->context->number, name, major, minor, rdma);
}
