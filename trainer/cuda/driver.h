/*
 * driver.h -- the CUDA driver, loaded by name: one rubato-train runs with and without it.
 *
 * The library has a table of its own, which it shows to nobody; these are the few functions that
 * the trainer needs.
 */
#ifndef TR_CUDA_DRIVER_H
#define TR_CUDA_DRIVER_H

#include <cuda.h>

#include "trainer/base/error.h"

#define TR_CUDA_FUNCTIONS(X)                                                                       \
	X(cuInit)                                                                                  \
	X(cuGetErrorName)                                                                          \
	X(cuGetErrorString)                                                                        \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDeviceGetCount)                                                                        \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventRecord)                                                                           \
	X(cuEventSynchronize)                                                                      \
	X(cuFuncLoad)                                                                              \
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
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamSynchronize)                                                                     \
	X(cuStreamWaitEvent)

struct tr_cuda_driver {
#define TR_CUDA_MEMBER(name) __typeof__(&(name)) p_##name;
	TR_CUDA_FUNCTIONS(TR_CUDA_MEMBER)
#undef TR_CUDA_MEMBER
};

struct tr_cuda_symbol {
	const char *name;
	void **at;
};

/* cuda.h's and cublas_v2.h's macros name the version of a function: that is the symbol. */
#define TR_CUDA_TEXT(name) #name
#define TR_CUDA_NAME(name) TR_CUDA_TEXT(name)

/* Loads the first of `libraries` that there is (up to a NULL) and looks the symbols up in it.
 * Errors: UNSUPPORTED, in one line that says which library or function is missing. */
rubato_status tr_cuda_load(const char *const *libraries, const struct tr_cuda_symbol *symbols,
			   size_t symbol_count, struct tr_error *error);

rubato_status tr_cuda_driver_open(struct tr_cuda_driver *driver, struct tr_error *error);

/* Of a call that failed: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". */
rubato_status tr_cuda_failed(const struct tr_cuda_driver *driver, const char *call, CUresult result,
			     struct tr_error *error);

#define TR_CUDA_TRY(driver, error, call, ...)                                                      \
	do {                                                                                       \
		CUresult try_result_ = (driver)->p_##call(__VA_ARGS__);                            \
		if (try_result_ != CUDA_SUCCESS)                                                   \
			return tr_cuda_failed((driver), #call, try_result_, (error));              \
	} while (0)

#endif
