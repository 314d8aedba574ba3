/* cuda_ipc.c -- see cuda_ipc.h. */
#include "runtime/devices/cuda_ipc.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define OPENED_MAX 64u /* Beyond, what nobody has open goes, the oldest first. */

struct rb_cuda_opened {
	uint64_t context, start, size_bytes, id; /* The owner's: struct rb_share. */
	CUdeviceptr here;
	uint32_t users;
	uint64_t opened; /* By the clock, last. */
};

_Static_assert(sizeof(CUipcMemHandle) == sizeof(((struct rb_share *)NULL)->handle),
	       "a handle of CUDA's in a share");

/* ---- Ours ---- */

static rubato_status share_find(const struct rb_cuda_context *context, const void *address,
				struct rb_share *share)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	CUdeviceptr start = 0;
	size_t bytes = 0;
	unsigned long long id = 0;
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_BUFFER_ID,
	};
	void *values[] = { &start, &bytes, &id };
	CUipcMemHandle handle;

	RB_CUDA_TRY(cuda, cuPointerGetAttributes, sizeof(values) / sizeof(values[0]), attributes,
		    values, (CUdeviceptr)(uintptr_t)address);
	RB_CUDA_TRY(cuda, cuIpcGetMemHandle, &handle, start);
	*share = (struct rb_share) { .context = context->nonce,
				     .address = (uint64_t)(uintptr_t)address,
				     .start = start,
				     .size_bytes = bytes,
				     .id = id };
	memcpy(share->handle, &handle, sizeof(handle));
	return RUBATO_OK;
}

bool rb_cuda_ipc_share(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc,
		       const void *address, struct rb_share *share)
{
	rubato_status err;

	rb_cuda_enter(context);
	err = share_find(context, address, share);
	rb_cuda_leave(context);
	if (err != RUBATO_OK && !ipc->said)
		RB_LOG(RB_LOG_INFO,
		       "CUDA device %d: some of its memory goes to other processes through the "
		       "host's, as it cannot be shared: %s",
		       context->number, rubato_error_text());
	ipc->said |= err != RUBATO_OK;
	return err == RUBATO_OK;
}

/* ---- Others' ---- */

static void opened_drop(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc, uint32_t i)
{
	rb_cuda_enter(context);
	(void)context->cuda.p_cuIpcCloseMemHandle(ipc->at[i].here);
	rb_cuda_leave(context);
	ipc->at[i] = ipc->at[--ipc->count];
}

static bool is_stale(const struct rb_cuda_opened *o, const struct rb_share *share)
{
	return o->users == 0 && o->context == share->context && o->id != share->id &&
	       o->start < share->start + share->size_bytes &&
	       share->start < o->start + o->size_bytes;
}

static void room_make(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc,
		      const struct rb_share *share)
{
	uint32_t oldest = UINT32_MAX;

	for (uint32_t i = ipc->count; i-- > 0;)
		if (is_stale(&ipc->at[i], share))
			opened_drop(context, ipc, i);
	if (ipc->count < OPENED_MAX)
		return;
	for (uint32_t i = 0; i < ipc->count; i++)
		if (ipc->at[i].users == 0 &&
		    (oldest == UINT32_MAX || ipc->at[i].opened < ipc->at[oldest].opened))
			oldest = i;
	if (oldest != UINT32_MAX)
		opened_drop(context, ipc, oldest);
}

static struct rb_cuda_opened *opened_find(struct rb_cuda_ipc *ipc, const struct rb_share *share)
{
	for (uint32_t i = 0; i < ipc->count; i++) {
		struct rb_cuda_opened *o = &ipc->at[i];

		if (o->context == share->context && o->id == share->id && o->start == share->start)
			return o;
	}
	return NULL;
}

static rubato_status opened_add(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc,
				const struct rb_share *share, struct rb_cuda_opened **out)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	CUipcMemHandle handle;
	CUdeviceptr here = 0;
	CUresult result;

	room_make(context, ipc, share);
	if (ipc->count == ipc->room) {
		uint32_t room = ipc->room > 0 ? 2 * ipc->room : 8;
		struct rb_cuda_opened *at = realloc(ipc->at, room * sizeof(*at));

		if (at == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %u mappings", room);
		ipc->at = at;
		ipc->room = room;
	}
	memcpy(&handle, share->handle, sizeof(handle));
	rb_cuda_enter(context); /* It is mapped for the device whose context is current. */
	result = cuda->p_cuIpcOpenMemHandle(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	rb_cuda_leave(context);
	if (result != CUDA_SUCCESS)
		return rb_cuda_failed(cuda, "cuIpcOpenMemHandle", result);
	*out = &ipc->at[ipc->count++];
	**out = (struct rb_cuda_opened) { .context = share->context,
					  .start = share->start,
					  .size_bytes = share->size_bytes,
					  .id = share->id,
					  .here = here };
	return RUBATO_OK;
}

rubato_status rb_cuda_ipc_open(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc,
			       const struct rb_share *share, uint64_t size_bytes, void **address)
{
	uint64_t offset = share->address - share->start;
	struct rb_cuda_opened *o;

	if (share->address < share->start || offset > share->size_bytes ||
	    size_bytes > share->size_bytes - offset)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "CUDA device: a peer's buffer ends after its memory");
	if (share->context == context->nonce) { /* A thread of this process. */
		*address = (void *)(uintptr_t)share->address;
		return RUBATO_OK;
	}
	o = opened_find(ipc, share);
	if (o == NULL)
		RB_TRY(opened_add(context, ipc, share, &o));
	o->users++;
	o->opened = ++ipc->clock;
	*address = (void *)(uintptr_t)(o->here + offset);
	return RUBATO_OK;
}

void rb_cuda_ipc_close(struct rb_cuda_ipc *ipc, const void *address)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;

	for (uint32_t i = 0; i < ipc->count; i++) {
		struct rb_cuda_opened *o = &ipc->at[i];

		if (at - o->here >= o->size_bytes)
			continue;
		RB_ASSERT(o->users > 0);
		o->users--;
		return;
	}
}

void rb_cuda_ipc_forget(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc, bool all)
{
	for (uint32_t i = ipc->count; i-- > 0;)
		if (all || ipc->at[i].users == 0)
			opened_drop(context, ipc, i);
	if (!all)
		return;
	free(ipc->at);
	*ipc = (struct rb_cuda_ipc) { .at = NULL };
}
