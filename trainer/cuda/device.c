/* device.c -- see device.h. */
#include "trainer/cuda/device.h"

#include <stdlib.h>

#include "trainer/cuda/image.h"

static rubato_status open_context(struct tr_cuda *c, uint32_t number, struct tr_error *error)
{
	int count = 0, multiprocessors = 0;

	TR_CUDA_TRY(&c->driver, error, cuDeviceGetCount, &count);
	if (number >= (uint32_t)count)
		return tr_refuse(error, "--device cuda:%u: there are %d CUDA devices", number,
				 count);
	TR_CUDA_TRY(&c->driver, error, cuDeviceGet, &c->device, (int)number);
	TR_CUDA_TRY(&c->driver, error, cuDeviceGetAttribute, &multiprocessors,
		    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device);
	c->multiprocessors = (uint32_t)multiprocessors;
	TR_CUDA_TRY(&c->driver, error, cuDevicePrimaryCtxRetain, &c->context, c->device);
	c->retained = true;
	TR_CUDA_TRY(&c->driver, error, cuCtxPushCurrent, c->context);
	c->pushed = true;
	return RUBATO_OK;
}

/* All are loaded now: later that might wait for streams which wait for us. */
static rubato_status open_kernels(struct tr_cuda *c, struct tr_error *error)
{
	static const char *const names[] = {
#define NAME(name) "tr_" #name,
		TR_CUDA_KERNELS(NAME)
#undef NAME
	};

	TR_CUDA_TRY(&c->driver, error, cuModuleLoadData, &c->module, tr_cuda_image);
	for (uint32_t i = 0; i < TR_CUDA_KERNEL_COUNT; i++) {
		TR_CUDA_TRY(&c->driver, error, cuModuleGetFunction, &c->kernels[i], c->module,
			    names[i]);
		TR_CUDA_TRY(&c->driver, error, cuFuncLoad, c->kernels[i]);
	}
	return RUBATO_OK;
}

static rubato_status open_all(struct tr_cuda *c, uint32_t number, struct tr_error *error)
{
	TR_TRY(tr_cuda_driver_open(&c->driver, error));
	TR_TRY(open_context(c, number, error));
	TR_TRY(open_kernels(c, error));
	TR_CUDA_TRY(&c->driver, error, cuStreamCreateWithPriority, &c->stream,
		    CU_STREAM_NON_BLOCKING, 0);
	TR_CUDA_TRY(&c->driver, error, cuEventCreate, &c->order, CU_EVENT_DISABLE_TIMING);
	return RUBATO_OK;
}

rubato_status tr_cuda_open(struct tr_cuda **out, uint32_t number, struct tr_error *error)
{
	struct tr_cuda *c = calloc(1, sizeof(*c));
	rubato_status err;

	if (c == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--device cuda: out of memory");
	err = open_all(c, number, error);
	if (err)
		tr_cuda_close(c);
	else
		*out = c;
	return err;
}

void tr_cuda_close(struct tr_cuda *c)
{
	CUcontext popped;

	if (c == NULL)
		return;
	if (c->stream != NULL) {
		(void)c->driver.p_cuStreamSynchronize(c->stream);
		(void)c->driver.p_cuStreamDestroy(c->stream);
	}
	if (c->order != NULL)
		(void)c->driver.p_cuEventDestroy(c->order);
	if (c->module != NULL)
		(void)c->driver.p_cuModuleUnload(c->module);
	if (c->pushed)
		(void)c->driver.p_cuCtxPopCurrent(&popped);
	if (c->retained)
		(void)c->driver.p_cuDevicePrimaryCtxRelease(c->device);
	free(c);
}

rubato_status tr_cuda_alloc(struct tr_cuda *c, size_t bytes, void **out, struct tr_error *error)
{
	CUdeviceptr at;

	TR_CUDA_TRY(&c->driver, error, cuMemAlloc, &at, bytes > 0 ? bytes : 1);
	*out = (void *)(uintptr_t)at;
	return RUBATO_OK;
}

void tr_cuda_free(struct tr_cuda *c, void *memory)
{
	if (memory != NULL)
		(void)c->driver.p_cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

rubato_status tr_cuda_alloc_host(struct tr_cuda *c, size_t bytes, void **out,
				 struct tr_error *error)
{
	TR_CUDA_TRY(&c->driver, error, cuMemHostAlloc, out, bytes > 0 ? bytes : 1, 0);
	return RUBATO_OK;
}

void tr_cuda_free_host(struct tr_cuda *c, void *memory)
{
	if (memory != NULL)
		(void)c->driver.p_cuMemFreeHost(memory);
}

rubato_status tr_cuda_copy(struct tr_cuda *c, void *to, const void *from, size_t bytes,
			   struct tr_error *error)
{
	if (bytes > 0)
		TR_CUDA_TRY(&c->driver, error, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)to,
			    (CUdeviceptr)(uintptr_t)from, bytes, c->stream);
	return RUBATO_OK;
}

rubato_status tr_cuda_clear(struct tr_cuda *c, void *to, size_t bytes, struct tr_error *error)
{
	if (bytes > 0)
		TR_CUDA_TRY(&c->driver, error, cuMemsetD8Async, (CUdeviceptr)(uintptr_t)to, 0,
			    bytes, c->stream);
	return RUBATO_OK;
}

rubato_status tr_cuda_launch(struct tr_cuda *c, enum tr_cuda_kernel kernel, uint64_t threads,
			     const void *parameters, struct tr_error *error)
{
	uint64_t blocks = threads / TR_CUDA_BLOCK + (threads % TR_CUDA_BLOCK != 0);
	uint64_t most = (uint64_t)c->multiprocessors * TR_CUDA_BLOCKS_PER_MULTIPROCESSOR;
	void *arguments[] = { (void *)(uintptr_t)parameters };

	if (threads > 0)
		TR_CUDA_TRY(&c->driver, error, cuLaunchKernel, c->kernels[kernel],
			    (unsigned)(blocks < most ? blocks : most), 1, 1, TR_CUDA_BLOCK, 1, 1, 0,
			    c->stream, arguments, NULL);
	return RUBATO_OK;
}

rubato_status tr_cuda_wait(struct tr_cuda *c, struct tr_error *error)
{
	TR_CUDA_TRY(&c->driver, error, cuStreamSynchronize, c->stream);
	return RUBATO_OK;
}

rubato_status tr_cuda_order(struct tr_cuda *c, CUstream before, CUstream after,
			    struct tr_error *error)
{
	TR_CUDA_TRY(&c->driver, error, cuEventRecord, c->order, before);
	TR_CUDA_TRY(&c->driver, error, cuStreamWaitEvent, after, c->order, 0);
	return RUBATO_OK;
}
