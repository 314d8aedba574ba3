/* cuda_rdma.c -- see cuda_rdma.h. */
#include "runtime/devices/cuda_rdma.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define PIECE_BYTES (64u << 10)

/* ---- What there is ---- */

static int attribute(const struct rb_cuda_context *context, CUdevice_attribute name)
{
	int value = 0;

	/* A driver that does not know it has not what it is about. */
	return context->cuda.p_cuDeviceGetAttribute(&value, name, context->number) == CUDA_SUCCESS
		       ? value
		       : 0;
}

void rb_cuda_rdma_ask(const struct rb_cuda_context *context, struct rb_cuda_rdma *rdma)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	int ordering = attribute(context, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
	int options = attribute(context, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
	uint32_t ways = 0;

	if (cuda->p_cuMemGetHandleForAddressRange != NULL &&
	    attribute(context, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0)
		ways |= RB_MEMORY_BY_DMABUF;
	if (attribute(context, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0)
		ways |= RB_MEMORY_BY_PEERMEM;
	rdma->why = "the driver has no RDMA to this device";
	if (ways == 0)
		return;
	rdma->flushes = ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
	if (rdma->flushes && (cuda->p_cuFlushGPUDirectRDMAWrites == NULL ||
			      (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) == 0)) {
		rdma->why = "nothing orders the network's writes for this device";
		return;
	}
	rdma->ways = ways;
	rdma->why = NULL;
}

rubato_status rb_cuda_rdma_prepare(struct rb_cuda_context *context, const void *owner,
				   struct rb_cuda_rdma *rdma)
{
	if (rdma->copied == NULL)
		RB_CUDA_TRY(&context->cuda, cuEventCreate, &rdma->copied, CU_EVENT_DISABLE_TIMING);
	return rdma->pinned != NULL ? RUBATO_OK
				    : rb_cuda_room_new(context, owner, RB_MEMORY_HOST, PIECE_BYTES,
						       &rdma->pinned);
}

void rb_cuda_rdma_find(struct rb_cuda_context *context, const void *owner,
		       struct rb_cuda_rdma *rdma)
{
	if (rdma->asked)
		return;
	rdma->asked = true;
	rb_cuda_rdma_ask(context, rdma);
	if (rdma->ways != 0 && rb_cuda_rdma_prepare(context, owner, rdma) != RUBATO_OK) {
		rdma->ways = 0;
		rdma->why = "the device has no memory for it";
	}
}

void rb_cuda_rdma_close(struct rb_cuda_context *context, struct rb_cuda_rdma *rdma)
{
	if (rdma->copied != NULL)
		(void)context->cuda.p_cuEventDestroy(rdma->copied);
	if (rdma->pinned != NULL)
		rb_cuda_room_free(context, rdma->pinned);
	*rdma = (struct rb_cuda_rdma) { .asked = false };
}

/* ---- What is done ---- */

rubato_status rb_cuda_rdma_export(const struct rb_cuda_context *context, const void *address,
				  size_t size_bytes, int *fd, uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)address;
	uintptr_t start = at & ~(page - 1), end = (at + size_bytes + page - 1) & ~(page - 1);

	*fd = -1;
	*offset = at - start;
	if (context->cuda.p_cuMemGetHandleForAddressRange == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "the CUDA driver exports no dma-bufs");
	RB_CUDA_TRY(&context->cuda, cuMemGetHandleForAddressRange, fd, (CUdeviceptr)start,
		    end - start, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	return RUBATO_OK;
}

static rubato_status piece_copy(const struct rb_cuda_context *context,
				const struct rb_cuda_rdma *rdma, void *to, const void *from,
				size_t bytes, enum rb_cuda_queue queue)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	CUstream stream = context->streams[queue];
	uint64_t until = rb_clock_ns() + RB_CUDA_PATIENCE_NS;
	CUresult result;

	RB_CUDA_TRY(cuda, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
		    bytes, stream);
	RB_CUDA_TRY(cuda, cuEventRecord, rdma->copied, stream);
	do {
		result = cuda->p_cuEventQuery(rdma->copied);
		if (result == CUDA_ERROR_NOT_READY)
			rb_yield();
	} while (result == CUDA_ERROR_NOT_READY && rb_clock_ns() < until);
	if (result == CUDA_ERROR_NOT_READY)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "a copy does not come to its end");
	return result == CUDA_SUCCESS ? RUBATO_OK : rb_cuda_failed(cuda, "cuEventQuery", result);
}

rubato_status rb_cuda_rdma_copy(const struct rb_cuda_context *context,
				const struct rb_cuda_rdma *rdma, void *to, bool to_device,
				const void *from, bool from_device, size_t size_bytes)
{
	if (to_device && from_device)
		return piece_copy(context, rdma, to, from, size_bytes, RB_CUDA_OTHER);
	for (size_t at = 0; at < size_bytes; at += PIECE_BYTES) {
		size_t bytes = size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
		uint8_t *there = (uint8_t *)to + at;
		const uint8_t *here = (const uint8_t *)from + at;

		if (to_device) {
			memcpy(rdma->pinned, here, bytes);
			RB_TRY(piece_copy(context, rdma, there, rdma->pinned, bytes, RB_CUDA_IN));
		} else {
			RB_TRY(piece_copy(context, rdma, rdma->pinned, here, bytes, RB_CUDA_OUT));
			memcpy(there, rdma->pinned, bytes);
		}
	}
	return RUBATO_OK;
}

rubato_status rb_cuda_rdma_flush(const struct rb_cuda_context *context,
				 const struct rb_cuda_rdma *rdma)
{
	if (rdma->flushes)
		RB_CUDA_TRY(&context->cuda, cuFlushGPUDirectRDMAWrites,
			    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
			    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	return RUBATO_OK;
}
