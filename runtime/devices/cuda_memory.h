/*
 * cuda_memory.h -- what all communicators of this process that use a CUDA device have together: its
 * primary context, our kernels, some streams, and the memory that was taken for them.
 *
 * A device has few queues, and streams share them. So there are as many streams as copies each way
 * and kernels need, not as many for each communicator: of kernels one is too few, for those of
 * ranks that are threads go on beside each other. And kernels are loaded, streams made and
 * memory given back only where the first comes and the last goes (cuda_context.h): for each of
 * these a driver may wait until no stream of the application waits for us. Nothing that is put on
 * our streams waits for a word of the host's.
 *
 * Any thread may call any of these.
 */
#ifndef RB_RUNTIME_DEVICES_CUDA_MEMORY_H
#define RB_RUNTIME_DEVICES_CUDA_MEMORY_H

#include "base/memory_kind.h"
#include "base/sync.h"
#include "collectives/reduce/reduce.h"
#include "cuda/driver.h"
#include "rubato.h"

/* Copies from the host, copies to it, all else. */
enum rb_cuda_queue { RB_CUDA_IN, RB_CUDA_OUT, RB_CUDA_OTHER, RB_CUDA_QUEUES };
#define RB_CUDA_LANES 4u /* Streams for all else: communicators get them in turn. */
#define RB_CUDA_STREAMS (RB_CUDA_OTHER + RB_CUDA_LANES)
#define RB_CUDA_WIRES 2u /* Fewer bits: bfloat16, int8. */
enum rb_cuda_kernel { RB_CUDA_FEW, RB_CUDA_MANY, RB_CUDA_KERNELS }; /* Operands. */

#define RB_CUDA_PATIENCE_NS (10 * UINT64_C(1000000000)) /* Longer than any work of ours takes. */

struct rb_cuda_context {
	struct rb_cuda_driver cuda;
	CUdevice number;
	CUcontext context;
	uint64_t nonce; /* No other context has it, of whatever process. */
	uint32_t multiprocessors;
	CUmodule module;
	CUfunction kernels[RUBATO_TYPE_COUNT][RB_CUDA_KERNELS];
	CUfunction coders[RB_CUDA_WIRES][RB_CODING_REDUCE]; /* By wire - 1, coding - 1. */
	CUfunction coded_many[RB_CUDA_WIRES];               /* REDUCE of many operands. */
	CUfunction gate;
	CUstream streams[RB_CUDA_STREAMS];
	struct rb_lock lock; /* Of these two; never held across a call of the driver. */
	struct rb_cuda_room *rooms;
	struct rb_cuda_gates *gates;
	uint32_t users, lane; /* With the lock of all contexts, as the next; of its next user. */
	struct rb_cuda_context *next;
};

void rb_cuda_enter(const struct rb_cuda_context *context);
void rb_cuda_leave(const struct rb_cuda_context *context);

/* Memory of the device, or of the host such that copies are fast. What comes back is kept for who
 * asks next: to free it, a driver waits for all that the device does, which may wait for us. */
RB_NODISCARD rubato_status rb_cuda_room_new(struct rb_cuda_context *context, const void *owner,
					    enum rb_memory_kind kind, size_t size_bytes,
					    void **memory);
void rb_cuda_room_free(struct rb_cuda_context *context, const void *memory);
/* All that this owner has yet. */
void rb_cuda_rooms_free(struct rb_cuda_context *context, const void *owner);
/* Whether it is the begin of device memory that this owner has. */
bool rb_cuda_room_has(struct rb_cuda_context *context, const void *owner, const void *memory);
void rb_cuda_rooms_release(struct rb_cuda_context *context); /* Nobody has one. */

#endif
