/*
 * device_cuda.c -- a CUDA device: copies by its copy engines, reductions by kernels of ours.
 *
 * Three streams, none of which waits for the default stream: one for copies from the host, one for
 * copies to it, one for all else, so that copies each way and reductions go on at once. A piece of
 * work is put on its stream at once; what it depends on in other streams, it waits for there.
 * Behind it goes an event, by which poll() sees that it is over. Work on a stream is over in its
 * order, so a number, stream and place in it, is enough to name it for ever.
 *
 * The context is the device's primary one: that of CUDA's runtime, of PyTorch, and of all ranks
 * that are threads of this process.
 *
 * Nothing of ours waits for a stream of the application. So what is under way ends by itself, and
 * cancel() can wait for that: a device does not forget what it was given. A stream of the
 * application waits for us at a gate: for a word in host memory, which only grows, so that it never
 * need be reset.
 */
#include "runtime/devices/device_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "cuda/driver.h"
#include "cuda/image.h"
#include "cuda/kernels.h"

#define CANCEL_NS (10 * UINT64_C(1000000000)) /* Longer than any work of ours takes. */
#define PLACES_FIRST 64u                      /* Of a stream; a power of two. */
#define ROOM_BYTES_MIN 4096u
#define TYPE_KERNELS 2 /* Of few operands, of many. */

enum queue { QUEUE_IN, QUEUE_OUT, QUEUE_OTHER, QUEUES };

struct place {
	struct rb_work *work; /* NULL: it was cancelled. */
	CUevent event;        /* Stays here, and is recorded again. */
};

struct queue_state {
	CUstream stream;
	struct place *places; /* Number n is in places[n % place_count]. */
	uint64_t place_count;
	uint64_t over, next; /* Numbers below `over` are; `next` is the next one's. */
};

struct room { /* Memory that was given; kept when it comes back. */
	void *memory;
	size_t bytes;
	enum rb_memory_kind kind;
	bool free;
	struct room *next;
};

struct gate;

struct device {
	struct rb_executor base;
	struct rb_cuda_driver cuda;
	CUdevice number;
	CUcontext context;
	uint32_t multiprocessors;
	CUmodule module;
	CUfunction kernels[RUBATO_TYPE_COUNT][TYPE_KERNELS];
	struct queue_state queues[QUEUES];
	struct room *rooms;
	struct gate *gates;          /* Those that nobody has. */
	rubato_status lost;          /* What the device failed with: it is of no more use. */
	char failure[RB_TEXT_BYTES]; /* That, or the last other one. */
};

static struct device *of(const struct rb_executor *executor)
{
	return (struct device *)(uintptr_t)executor;
}

static void enter(struct device *device)
{
	(void)device->cuda.p_cuCtxPushCurrent(device->context);
}

static void leave(struct device *device)
{
	CUcontext context;

	(void)device->cuda.p_cuCtxPopCurrent(&context);
}

/* What was put on a stream before a call failed may still be under way: its memory is the caller's
 * again when that is over. A device that is lost says so at once. */
static void quiet(struct device *device)
{
	uint64_t until = rb_clock_ns() + CANCEL_NS;

	enter(device);
	for (enum queue q = 0; q < QUEUES; q++)
		while (device->cuda.p_cuStreamQuery(device->queues[q].stream) ==
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
		       device->number, rubato_error_text());
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

static uint64_t number_of(enum queue queue, uint64_t place)
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
		err = device->cuda.p_cuEventCreate(&place->event, CU_EVENT_DISABLE_TIMING) ==
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
				(void)device->cuda.p_cuEventDestroy(places[i].event);
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
	return reduce->from_count == 1 && reduce->final_count == 0;
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
	CUresult result = device->cuda.p_cuPointerGetAttributes(sizeof(values) / sizeof(values[0]),
								attributes, values,
								(CUdeviceptr)(uintptr_t)address);

	if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) {
		failed(device, rb_cuda_failed(&device->cuda, "cuPointerGetAttributes", result));
		*kind = RB_MEMORY_DEVICE;
		return SIZE_MAX;
	}
	if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || start == 0 ||
	    ordinal != device->number)
		return 0;
	*kind = managed ? RB_MEMORY_MANAGED : RB_MEMORY_DEVICE;
	return (size_t)(start + bytes - (CUdeviceptr)(uintptr_t)address);
}

static enum queue queue_of(struct device *device, const struct rb_reduce *reduce)
{
	enum rb_memory_kind kind;
	bool from, to;

	if (!is_copy(reduce))
		return QUEUE_OTHER;
	from = known(device, reduce->from[0], &kind) > 0;
	to = known(device, reduce->to, &kind) > 0;
	return from == to ? QUEUE_OTHER : to ? QUEUE_IN : QUEUE_OUT;
}

static rubato_status wait_for(struct device *device, enum queue here, const struct rb_work *work)
{
	uint64_t behind[QUEUES] = { 0 };

	for (uint32_t i = 0; i < work->after_count; i++) {
		uint64_t number = work->after[i].number;
		uint64_t place = (number >> 2) + 1;

		if (place > behind[number & 3])
			behind[number & 3] = place;
	}
	for (enum queue q = 0; q < QUEUES; q++) {
		const struct queue_state *queue = &device->queues[q];

		if (q == here || behind[q] <= queue->over)
			continue;
		RB_CUDA_TRY(&device->cuda, cuStreamWaitEvent, device->queues[here].stream,
			    place_of(queue, behind[q] - 1)->event, 0);
	}
	return RUBATO_OK;
}

static rubato_status launch(struct device *device, const struct rb_work *work, CUstream stream)
{
	const struct rb_reduce *reduce = &work->reduce;
	bool many = reduce->from_count > RB_CUDA_OPERANDS;
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
	RB_CUDA_TRY(&device->cuda, cuLaunchKernel, device->kernels[reduce->type][many],
		    rb_cuda_grid(reduce->count, work->element_bytes, device->multiprocessors), 1, 1,
		    RB_CUDA_BLOCK, 1, 1, 0, stream, parameters, NULL);
	return RUBATO_OK;
}

static rubato_status put_on(struct device *device, struct rb_work *work)
{
	const struct rb_reduce *reduce = &work->reduce;
	size_t bytes = (size_t)reduce->count * work->element_bytes;
	enum queue q = queue_of(device, reduce);
	struct queue_state *queue = &device->queues[q];
	struct place *place;

	if (queue->next - queue->over == queue->place_count)
		RB_TRY(places_grow(device, queue));
	RB_TRY(wait_for(device, q, work));
	if (!is_copy(reduce))
		RB_TRY(launch(device, work, queue->stream));
	else if (reduce->to != reduce->from[0])
		RB_CUDA_TRY(&device->cuda, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)reduce->to,
			    (CUdeviceptr)(uintptr_t)reduce->from[0], bytes, queue->stream);
	place = place_of(queue, queue->next);
	RB_CUDA_TRY(&device->cuda, cuEventRecord, place->event, queue->stream);
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
	for (enum queue q = 0; q < QUEUES; q++) {
		struct queue_state *queue = &device->queues[q];

		while (queue->over < queue->next) {
			struct place *place = place_of(queue, queue->over);
			CUresult result = CUDA_SUCCESS;

			if (device->lost == RUBATO_OK)
				result = device->cuda.p_cuEventQuery(place->event);
			if (result == CUDA_ERROR_NOT_READY)
				break;
			if (result != CUDA_SUCCESS)
				failed(device,
				       rb_cuda_failed(&device->cuda, "cuEventQuery", result));
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
	uint64_t until = rb_clock_ns() + CANCEL_NS;
	CUresult result;

	if (work->state != RB_WORK_PENDING)
		return;
	RB_ASSERT(place->work == work);
	enter(device);
	while (device->lost == RUBATO_OK) {
		result = device->cuda.p_cuEventQuery(place->event);
		if (result == CUDA_SUCCESS)
			break;
		if (result != CUDA_ERROR_NOT_READY)
			failed(device, rb_cuda_failed(&device->cuda, "cuEventQuery", result));
		else if (rb_clock_ns() > until)
			failed(device, RB_FAIL(RUBATO_ERR_SYSTEM,
					       "CUDA device %d does not come to an end of its work",
					       device->number));
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

	for (enum queue q = 0; q < QUEUES; q++)
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
	uint64_t at = (uint64_t)(uintptr_t)address, number = (uint64_t)of(executor)->number;

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

/* To free memory, a driver waits for all that the device does, which may be waiting for us. So
 * memory that comes back is kept for the next who asks. */
static rubato_status device_memory_new(struct rb_executor *executor, enum rb_memory_kind kind,
				       size_t size_bytes, void **out)
{
	struct device *device = of(executor);
	size_t bytes = ROOM_BYTES_MIN;
	struct room *room;
	CUdeviceptr memory = 0;
	CUresult result;

	while (bytes < size_bytes)
		bytes *= 2;
	for (room = device->rooms; room != NULL; room = room->next)
		if (room->free && room->kind == kind && room->bytes == bytes)
			break;
	if (room == NULL) {
		room = calloc(1, sizeof(*room));
		if (room == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %zu bytes", sizeof(*room));
		enter(device);
		if (kind == RB_MEMORY_HOST) {
			result = device->cuda.p_cuMemHostAlloc(&room->memory, bytes,
							       CU_MEMHOSTALLOC_PORTABLE);
		} else {
			result = device->cuda.p_cuMemAlloc(&memory, bytes);
			room->memory = (void *)(uintptr_t)memory;
		}
		leave(device);
		if (result != CUDA_SUCCESS) {
			free(room);
			return rb_cuda_failed(
				&device->cuda,
				kind == RB_MEMORY_HOST ? "cuMemHostAlloc" : "cuMemAlloc", result);
		}
		room->kind = kind;
		room->bytes = bytes;
		room->next = device->rooms;
		device->rooms = room;
	}
	room->free = false;
	*out = room->memory;
	return RUBATO_OK;
}

static void device_memory_free(struct rb_executor *executor, void *memory)
{
	for (struct room *room = of(executor)->rooms; room != NULL; room = room->next)
		if (room->memory == memory)
			room->free = true;
}

/* ---- Gates ---- */

struct gate {
	struct rb_gate base;
	struct device *device;
	/* In host memory: the stream writes how many gates it has reached, and goes on when as many
	 * have been opened. So to look is to read. */
	struct gate_words {
		_Atomic uint32_t reached, opened;
	} * words;
	uint32_t passes, looks;
	CUevent passed;    /* That, or what went wrong before it. */
	struct gate *next; /* Of those that nobody has: */
};

#define LOOKS_PER_QUERY 1024u

static rubato_status gate_close(struct device *device, struct gate *gate, CUstream stream)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;

	RB_CUDA_TRY(&device->cuda, cuStreamIsCapturing, stream, &capture);
	if (capture != CU_STREAM_CAPTURE_STATUS_NONE)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "start on a stream: it is being captured into a graph, whose "
			       "launches would all wait for this one start");
	RB_CUDA_TRY(&device->cuda, cuStreamWriteValue32, stream,
		    (CUdeviceptr)(uintptr_t)&gate->words->reached, gate->passes + 1, 0);
	RB_CUDA_TRY(&device->cuda, cuStreamWaitValue32, stream,
		    (CUdeviceptr)(uintptr_t)&gate->words->opened, gate->passes + 1,
		    CU_STREAM_WAIT_VALUE_GEQ);
	gate->passes++;
	RB_CUDA_TRY(&device->cuda, cuEventRecord, gate->passed, stream);
	return RUBATO_OK;
}

static rubato_status gate_shut(struct rb_gate *base, void *stream)
{
	struct gate *gate = (struct gate *)base;
	rubato_status err;

	enter(gate->device);
	err = gate_close(gate->device, gate, stream);
	leave(gate->device);
	return err;
}

static rubato_status gate_look(struct rb_gate *base, bool *reached)
{
	struct gate *gate = (struct gate *)base;
	struct device *device = gate->device;
	CUresult result;

	*reached =
		atomic_load_explicit(&gate->words->reached, memory_order_acquire) == gate->passes;
	if (*reached || ++gate->looks % LOOKS_PER_QUERY != 0)
		return RUBATO_OK;
	enter(device);
	result = device->cuda.p_cuEventQuery(gate->passed);
	leave(device);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
		return RUBATO_OK;
	return rb_cuda_failed(&device->cuda, "cuEventQuery", result);
}

static void gate_open(struct rb_gate *base)
{
	struct gate *gate = (struct gate *)base;

	atomic_store_explicit(&gate->words->opened, gate->passes, memory_order_release);
}

/* Its stream may have yet to look at the words: they stay as they are, and the next to have the
 * gate counts on. */
static void gate_free(struct rb_gate *base)
{
	struct gate *gate = (struct gate *)base;

	gate->next = gate->device->gates;
	gate->device->gates = gate;
}

static const struct rb_gate_ops gate_ops = {
	.shut = gate_shut,
	.look = gate_look,
	.open = gate_open,
	.free = gate_free,
};

static rubato_status gate_make(struct device *device, struct gate **out)
{
	struct gate *gate = calloc(1, sizeof(*gate));
	CUresult result;
	void *words = NULL;
	rubato_status err;

	if (gate == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "gate of a stream: %zu bytes", sizeof(*gate));
	err = device_memory_new(&device->base, RB_MEMORY_HOST, sizeof(*gate->words), &words);
	if (err != RUBATO_OK) {
		free(gate);
		return err;
	}
	enter(device);
	result = device->cuda.p_cuEventCreate(&gate->passed, CU_EVENT_DISABLE_TIMING);
	leave(device);
	if (result != CUDA_SUCCESS) {
		device_memory_free(&device->base, words);
		free(gate);
		return rb_cuda_failed(&device->cuda, "cuEventCreate", result);
	}
	gate->base.ops = &gate_ops;
	gate->device = device;
	gate->words = words;
	memset(gate->words, 0, sizeof(*gate->words));
	*out = gate;
	return RUBATO_OK;
}

rubato_status rb_device_cuda_gate(struct rb_executor *executor, struct rb_gate **out)
{
	struct device *device = of(executor);
	struct gate *gate = device->gates;

	if (gate != NULL)
		device->gates = gate->next;
	else
		RB_TRY(gate_make(device, &gate));
	*out = &gate->base;
	return RUBATO_OK;
}

/* ---- Closing ---- */

static void rooms_free(struct device *device)
{
	while (device->rooms != NULL) {
		struct room *room = device->rooms;

		device->rooms = room->next;
		if (room->kind == RB_MEMORY_HOST)
			(void)device->cuda.p_cuMemFreeHost(room->memory);
		else
			(void)device->cuda.p_cuMemFree((CUdeviceptr)(uintptr_t)room->memory);
		free(room);
	}
}

static void queue_close(struct device *device, struct queue_state *queue)
{
	if (queue->stream != NULL)
		(void)device->cuda.p_cuStreamDestroy(queue->stream);
	for (uint64_t i = 0; i < queue->place_count; i++)
		(void)device->cuda.p_cuEventDestroy(queue->places[i].event);
	free(queue->places);
}

/* False: a stream has not come by in all the time that we can wait; then its words must stay. */
static bool gates_close(struct device *device)
{
	uint64_t until = rb_clock_ns() + CANCEL_NS;
	bool all = true;

	while (device->gates != NULL) {
		struct gate *gate = device->gates;

		while (device->cuda.p_cuEventQuery(gate->passed) == CUDA_ERROR_NOT_READY &&
		       rb_clock_ns() < until)
			rb_yield();
		all &= device->cuda.p_cuEventQuery(gate->passed) != CUDA_ERROR_NOT_READY;
		(void)device->cuda.p_cuEventDestroy(gate->passed);
		device->gates = gate->next;
		free(gate);
	}
	return all;
}

static void device_close(struct rb_executor *executor)
{
	struct device *device = of(executor);

	enter(device);
	if (gates_close(device))
		rooms_free(device);
	else
		RB_LOG(RB_LOG_WARN,
		       "CUDA device %d: a stream has not come to where an operation was started on "
		       "it: some memory stays",
		       device->number);
	for (enum queue q = 0; q < QUEUES; q++)
		queue_close(device, &device->queues[q]);
	if (device->module != NULL)
		(void)device->cuda.p_cuModuleUnload(device->module);
	leave(device);
	(void)device->cuda.p_cuDevicePrimaryCtxRelease(device->number);
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
	.memory_new = device_memory_new,
	.memory_free = device_memory_free,
};

/* ---- Opening ---- */

static rubato_status kernels_load(struct device *device)
{
	static const char *const types[RUBATO_TYPE_COUNT] = {
		[RUBATO_FLOAT32] = "f32", [RUBATO_FLOAT64] = "f64", [RUBATO_INT32] = "i32",
		[RUBATO_INT64] = "i64",   [RUBATO_FLOAT16] = "f16", [RUBATO_BFLOAT16] = "bf16",
		[RUBATO_INT8] = "i8",     [RUBATO_INT16] = "i16",   [RUBATO_UINT8] = "u8",
		[RUBATO_UINT16] = "u16",  [RUBATO_UINT32] = "u32",  [RUBATO_UINT64] = "u64",
	};
	char name[64];

	RB_CUDA_TRY(&device->cuda, cuModuleLoadData, &device->module, rb_cuda_image);
	for (uint32_t t = 0; t < RUBATO_TYPE_COUNT; t++)
		for (uint32_t many = 0; many < TYPE_KERNELS; many++) {
			(void)snprintf(name, sizeof(name), "rb_reduce_%s%s", many ? "many_" : "",
				       types[t]);
			RB_CUDA_TRY(&device->cuda, cuModuleGetFunction, &device->kernels[t][many],
				    device->module, name);
			/* Else the first launch does, and waits for all streams, as it may. */
			RB_CUDA_TRY(&device->cuda, cuFuncLoad, device->kernels[t][many]);
		}
	return RUBATO_OK;
}

static rubato_status parts_make(struct device *device)
{
	int value = 0, last = 0, first = 0;

	/* Streams share a few queues of the device with others of their priority, and one that
	 * waits at a gate holds its queue up. So ours have another priority than is usual. */
	RB_CUDA_TRY(&device->cuda, cuCtxGetStreamPriorityRange, &last, &first);
	RB_CUDA_TRY(&device->cuda, cuDeviceGetAttribute, &value,
		    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->number);
	device->multiprocessors = (uint32_t)value;
	for (enum queue q = 0; q < QUEUES; q++) {
		RB_CUDA_TRY(&device->cuda, cuStreamCreateWithPriority, &device->queues[q].stream,
			    CU_STREAM_NON_BLOCKING, first);
		RB_TRY(places_grow(device, &device->queues[q]));
	}
	return kernels_load(device);
}

/* *found false: nobody has a context, and none is asked for. */
static rubato_status number_find(struct device *device, int number, bool *found)
{
	CUcontext current = NULL;

	*found = true;
	if (number != RB_CUDA_CURRENT) {
		int count = 0;

		RB_CUDA_TRY(&device->cuda, cuDeviceGetCount, &count);
		if (number < 0 || number >= count)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "CUDA device %d: this machine has %d, numbered from 0",
				       number, count);
		RB_CUDA_TRY(&device->cuda, cuDeviceGet, &device->number, number);
		return RUBATO_OK;
	}
	RB_CUDA_TRY(&device->cuda, cuCtxGetCurrent, &current);
	*found = current != NULL;
	if (*found)
		RB_CUDA_TRY(&device->cuda, cuCtxGetDevice, &device->number);
	return RUBATO_OK;
}

rubato_status rb_device_cuda_open(int number, bool load, struct rb_executor **out)
{
	struct device *device = calloc(1, sizeof(*device));
	bool found;
	rubato_status err;

	*out = NULL;
	if (device == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %zu bytes", sizeof(*device));
	device->base.ops = &device_ops;
	err = rb_cuda_driver_open(load, &device->cuda, &found);
	if (err == RUBATO_OK && found)
		err = number_find(device, number, &found);
	if (err == RUBATO_OK && found) {
		CUresult result =
			device->cuda.p_cuDevicePrimaryCtxRetain(&device->context, device->number);

		if (result != CUDA_SUCCESS)
			err = rb_cuda_failed(&device->cuda, "cuDevicePrimaryCtxRetain", result);
	}
	if (err != RUBATO_OK || !found) {
		free(device);
		return err;
	}
	enter(device);
	err = parts_make(device);
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
	CUdevice current = device->number;
	CUcontext context = NULL;

	*same = number == device->number;
	if (number != RB_CUDA_CURRENT)
		return RUBATO_OK;
	RB_CUDA_TRY(&device->cuda, cuCtxGetCurrent, &context);
	if (context != NULL)
		RB_CUDA_TRY(&device->cuda, cuCtxGetDevice, &current);
	*same = current == device->number;
	return RUBATO_OK;
}

int rb_device_cuda_number(const struct rb_executor *executor)
{
	return of(executor)->number;
}

bool rb_device_cuda_gave(const struct rb_executor *executor, const void *memory)
{
	for (const struct room *room = of(executor)->rooms; room != NULL; room = room->next)
		if (room->memory == memory && room->kind == RB_MEMORY_DEVICE)
			return !room->free;
	return false;
}

void rb_device_cuda_describe(struct rb_executor *executor, char *text, size_t text_bytes)
{
	struct device *device = of(executor);
	char name[128] = "?";
	int major = 0, minor = 0;

	(void)device->cuda.p_cuDeviceGetName(name, sizeof(name), device->number);
	(void)device->cuda.p_cuDeviceGetAttribute(
		&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->number);
	(void)device->cuda.p_cuDeviceGetAttribute(
		&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->number);
	(void)snprintf(text, text_bytes, "CUDA device %d, %s, compute capability %d.%d",
		       device->number, name, major, minor);
}
