/*
 * device.h -- a CUDA device as a rank of the trainer has it: context, one stream for everything
 * that is computed, memory, kernels. Each rank has its own; ranks may share a device.
 *
 * From open to close the device's primary context is the calling thread's current one, so that
 * cuBLAS, cuDNN and a communicator made then use the same device. One thread calls.
 */
#ifndef TR_CUDA_DEVICE_H
#define TR_CUDA_DEVICE_H

#include "trainer/cuda/driver.h"
#include "trainer/cuda/kernels.h"

enum tr_cuda_kernel {
#define TR_CUDA_NUMBER(name) TR_CUDA_##name,
	TR_CUDA_KERNELS(TR_CUDA_NUMBER)
#undef TR_CUDA_NUMBER
		TR_CUDA_KERNEL_COUNT
};

struct tr_cuda {
	struct tr_cuda_driver driver;
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent order; /* tr_cuda_order(): a wait remembers what was recorded when it was made. */
	CUmodule module;
	CUfunction kernels[TR_CUDA_KERNEL_COUNT];
	uint32_t multiprocessors;
	bool retained, pushed; /* Of the context. */
};

/* Errors: UNSUPPORTED (no driver, or too old), ARGUMENT (no such device), MEMORY, SYSTEM. */
rubato_status tr_cuda_open(struct tr_cuda **out, uint32_t number, struct tr_error *error);
void tr_cuda_close(struct tr_cuda *cuda); /* After its stream has done all; NULL is fine. */

/* Of the device; of the host, pinned. Nothing is in it. Freeing waits for the device. */
rubato_status tr_cuda_alloc(struct tr_cuda *cuda, size_t bytes, void **out, struct tr_error *error);
void tr_cuda_free(struct tr_cuda *cuda, void *memory);
rubato_status tr_cuda_alloc_host(struct tr_cuda *cuda, size_t bytes, void **out,
				 struct tr_error *error);
void tr_cuda_free_host(struct tr_cuda *cuda, void *memory);

/* On the stream. Host memory is pinned, and left alone until the copy is over. */
rubato_status tr_cuda_copy(struct tr_cuda *cuda, void *to, const void *from, size_t bytes,
			   struct tr_error *error);
rubato_status tr_cuda_clear(struct tr_cuda *cuda, void *to, size_t bytes, struct tr_error *error);
/* `threads`: as many as have something to do; `parameters`: the kernel's struct, read at once. */
rubato_status tr_cuda_launch(struct tr_cuda *cuda, enum tr_cuda_kernel kernel, uint64_t threads,
			     const void *parameters, struct tr_error *error);
/* The host waits until the stream has done all that it was given. */
rubato_status tr_cuda_wait(struct tr_cuda *cuda, struct tr_error *error);

/* What `after` is given from now on comes behind what `before` has been given until now. */
rubato_status tr_cuda_order(struct tr_cuda *cuda, CUstream before, CUstream after,
			    struct tr_error *error);

#endif
