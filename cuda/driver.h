/*
 * driver.h -- the CUDA driver, as a guest: loaded by name where a job has device memory.
 *
 * Nothing of CUDA is linked, and no CUDA runtime: the driver's own functions alone, by the names
 * that cuda.h gives the versions that we were compiled with. One build runs with and without a
 * driver.
 */
#ifndef RB_CUDA_DRIVER_H
#define RB_CUDA_DRIVER_H

#include <cuda.h>

#include "base/status.h"

#define RB_CUDA_FUNCTIONS(X)                                                                       \
	X(cuInit)                                                                                  \
	X(cuGetErrorName)                                                                          \
	X(cuGetErrorString)                                                                        \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDeviceGetCount)                                                                        \
	X(cuDeviceGetName)                                                                         \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxGetDevice)                                                                          \
	X(cuCtxGetStreamPriorityRange)                                                             \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventQuery)                                                                            \
	X(cuEventRecord)                                                                           \
	X(cuFuncLoad)                                                                              \
	X(cuIpcCloseMemHandle)                                                                     \
	X(cuIpcGetMemHandle)                                                                       \
	X(cuIpcOpenMemHandle)                                                                      \
	X(cuLaunchKernel)                                                                          \
	X(cuMemAlloc)                                                                              \
	X(cuMemFree)                                                                               \
	X(cuMemFreeHost)                                                                           \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemcpyAsync)                                                                           \
	X(cuMemsetD8Async)                                                                         \
	X(cuModuleGetFunction)                                                                     \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)                                                                          \
	X(cuPointerGetAttributes)                                                                  \
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamQuery)                                                                           \
	X(cuStreamIsCapturing)                                                                     \
	X(cuStreamSynchronize)                                                                     \
	X(cuStreamWaitEvent)

/* What RDMA to a device's memory needs, and not all drivers have. */
#define RB_CUDA_FUNCTIONS_PERHAPS(X)                                                               \
	X(cuFlushGPUDirectRDMAWrites)                                                              \
	X(cuMemGetHandleForAddressRange)

struct rb_cuda_driver {
#define RB_CUDA_MEMBER(name) __typeof__(&(name)) p_##name;
	RB_CUDA_FUNCTIONS(RB_CUDA_MEMBER)
	RB_CUDA_FUNCTIONS_PERHAPS(RB_CUDA_MEMBER) /* Each may be NULL. */
#undef RB_CUDA_MEMBER
};

/* Fills in the functions; *open false: the driver is not in this process, and `load` says not to
 * bring it. Errors: UNSUPPORTED (there is none, or one that is too old), SYSTEM. */
RB_NODISCARD rubato_status rb_cuda_driver_open(bool load, struct rb_cuda_driver *functions,
					       bool *open);

/* Notes what `call` failed with: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", and says
 * which status that is. */
rubato_status rb_cuda_failed(const struct rb_cuda_driver *cuda, const char *call, CUresult result);

#define RB_CUDA_TRY(cuda, call, ...)                                                               \
	do {                                                                                       \
		CUresult try_result_ = (cuda)->p_##call(__VA_ARGS__);                              \
		if (try_result_ != CUDA_SUCCESS)                                                   \
			return rb_cuda_failed((cuda), #call, try_result_);                         \
	} while (0)

#endif
