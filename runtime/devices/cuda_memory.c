/* cuda_memory.c -- see cuda_memory.h. */
#include "runtime/devices/cuda_memory.h"

#include <stdlib.h>

#define ROOM_BYTES_MIN 4096u

struct rb_cuda_room {
	void *memory;
	size_t bytes;
	enum rb_memory_kind kind;
	const void *owner; /* NULL: nobody has it. */
	struct rb_cuda_room *next;
};

void rb_cuda_enter(const struct rb_cuda_context *context)
{
	(void)context->cuda.p_cuCtxPushCurrent(context->context);
}

void rb_cuda_leave(const struct rb_cuda_context *context)
{
	CUcontext popped;

	(void)context->cuda.p_cuCtxPopCurrent(&popped);
}

/* ---- Memory ---- */

static struct rb_cuda_room *room_take(struct rb_cuda_context *context, const void *owner,
				      enum rb_memory_kind kind, size_t bytes)
{
	struct rb_cuda_room *room;

	rb_lock_take(&context->lock);
	for (room = context->rooms; room != NULL; room = room->next)
		if (room->owner == NULL && room->kind == kind && room->bytes == bytes)
			break;
	if (room != NULL)
		room->owner = owner;
	rb_lock_drop(&context->lock);
	return room;
}

static rubato_status room_fill(struct rb_cuda_context *context, struct rb_cuda_room *room)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	bool host = room->kind == RB_MEMORY_HOST;
	CUdeviceptr memory = 0;
	CUresult result;

	rb_cuda_enter(context);
	if (host) {
		result = cuda->p_cuMemHostAlloc(&room->memory, room->bytes,
						CU_MEMHOSTALLOC_PORTABLE);
	} else {
		result = cuda->p_cuMemAlloc(&memory, room->bytes);
		room->memory = (void *)(uintptr_t)memory;
	}
	rb_cuda_leave(context);
	return result == CUDA_SUCCESS
		       ? RUBATO_OK
		       : rb_cuda_failed(cuda, host ? "cuMemHostAlloc" : "cuMemAlloc", result);
}

rubato_status rb_cuda_room_new(struct rb_cuda_context *context, const void *owner,
			       enum rb_memory_kind kind, size_t size_bytes, void **memory)
{
	size_t bytes = ROOM_BYTES_MIN;
	struct rb_cuda_room *room;
	rubato_status err;

	while (bytes < size_bytes)
		bytes *= 2;
	room = room_take(context, owner, kind, bytes);
	if (room != NULL) {
		*memory = room->memory;
		return RUBATO_OK;
	}
	room = calloc(1, sizeof(*room));
	if (room == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %zu bytes", sizeof(*room));
	*room = (struct rb_cuda_room) { .bytes = bytes, .kind = kind, .owner = owner };
	err = room_fill(context, room);
	if (err != RUBATO_OK) {
		free(room);
		return err;
	}
	*memory = room->memory;
	rb_lock_take(&context->lock);
	room->next = context->rooms;
	context->rooms = room;
	rb_lock_drop(&context->lock);
	return RUBATO_OK;
}

void rb_cuda_room_free(struct rb_cuda_context *context, const void *memory)
{
	rb_lock_take(&context->lock);
	for (struct rb_cuda_room *room = context->rooms; room != NULL; room = room->next)
		if (room->memory == memory)
			room->owner = NULL;
	rb_lock_drop(&context->lock);
}

void rb_cuda_rooms_free(struct rb_cuda_context *context, const void *owner)
{
	rb_lock_take(&context->lock);
	for (struct rb_cuda_room *room = context->rooms; room != NULL; room = room->next)
		if (room->owner == owner)
			room->owner = NULL;
	rb_lock_drop(&context->lock);
}

bool rb_cuda_room_has(struct rb_cuda_context *context, const void *owner, const void *memory)
{
	bool has = false;

	rb_lock_take(&context->lock);
	for (const struct rb_cuda_room *room = context->rooms; room != NULL; room = room->next)
		has |= room->memory == memory && room->kind == RB_MEMORY_DEVICE &&
		       room->owner == owner;
	rb_lock_drop(&context->lock);
	return has;
}

void rb_cuda_rooms_release(struct rb_cuda_context *context)
{
	while (context->rooms != NULL) {
		struct rb_cuda_room *room = context->rooms;

		context->rooms = room->next;
		if (room->kind == RB_MEMORY_HOST)
			(void)context->cuda.p_cuMemFreeHost(room->memory);
		else
			(void)context->cuda.p_cuMemFree((CUdeviceptr)(uintptr_t)room->memory);
		free(room);
	}
}
