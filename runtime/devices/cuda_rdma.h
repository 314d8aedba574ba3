/*
 * cuda_rdma.h -- RDMA to a CUDA device's memory: what the driver says of it, dma-bufs, and what
 * orders the network's reads and writes beside the device's own.
 *
 *   network reads   what a stream wrote is there when an event behind it is over, for all
 *   network writes  what a device does is given to it after the host has heard of the message. A
 *                   device whose remote writes may still be under way then (an attribute says so)
 *                   is told to flush them before anybody hears of the message
 */
#ifndef RB_RUNTIME_DEVICES_CUDA_RDMA_H
#define RB_RUNTIME_DEVICES_CUDA_RDMA_H

#include "runtime/devices/cuda_memory.h"

struct rb_cuda_rdma { /* A communicator's. */
	bool asked;
	uint32_t ways;   /* RB_MEMORY_BY_...; what they need below is there. */
	const char *why; /* There is none. */
	bool flushes;
	/* For copies that somebody waits for: host memory that is not pinned is copied by way of
	 * this piece, as a driver may keep the caller waiting for other streams. */
	void *pinned;
	CUevent copied;
};

/* What there is, into a struct of zeros: takes nothing. */
void rb_cuda_rdma_ask(const struct rb_cuda_context *context, struct rb_cuda_rdma *rdma);
/* Asks once, and takes what copies need. With the context entered; `owner`: of the room. */
void rb_cuda_rdma_find(struct rb_cuda_context *context, const void *owner,
		       struct rb_cuda_rdma *rdma);
/* What copies need alone, if it is not there. Likewise. */
RB_NODISCARD rubato_status rb_cuda_rdma_prepare(struct rb_cuda_context *context, const void *owner,
						struct rb_cuda_rdma *rdma);
void rb_cuda_rdma_close(struct rb_cuda_context *context, struct rb_cuda_rdma *rdma);

/* As struct rb_executor_ops has them; with the context entered. */
RB_NODISCARD rubato_status rb_cuda_rdma_export(const struct rb_cuda_context *context,
					       const void *address, size_t size_bytes, int *fd,
					       uint64_t *offset);
RB_NODISCARD rubato_status rb_cuda_rdma_copy(const struct rb_cuda_context *context,
					     const struct rb_cuda_rdma *rdma, void *to,
					     bool to_device, const void *from, bool from_device,
					     size_t size_bytes);
RB_NODISCARD rubato_status rb_cuda_rdma_flush(const struct rb_cuda_context *context,
					      const struct rb_cuda_rdma *rdma);

#endif
