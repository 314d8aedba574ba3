/* cuda_context.h -- what communicators have together of a device: the first opens it, the last
 * closes. From any thread. */
#ifndef RB_RUNTIME_DEVICES_CUDA_CONTEXT_H
#define RB_RUNTIME_DEVICES_CUDA_CONTEXT_H

#include "runtime/devices/cuda_memory.h"

/* *lane: which of its streams for all else this user has. Errors: as the driver's. */
RB_NODISCARD rubato_status rb_cuda_context_open(const struct rb_cuda_driver *cuda, CUdevice number,
						struct rb_cuda_context **out, uint32_t *lane);
void rb_cuda_context_close(struct rb_cuda_context *context);

#endif
