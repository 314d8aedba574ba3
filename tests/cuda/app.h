/*
 * app.h -- what a test needs of CUDA beside the library: memory, copies, streams. By the driver
 * that is found, which is the fake one in the suite, and a real one where there is a device.
 */
#ifndef TESTS_CUDA_APP_H
#define TESTS_CUDA_APP_H

#include "cuda/driver.h"
#include "rubato.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"

#define CUDA_APP_RANKS_MAX 16u

struct cuda_app {
	struct rb_cuda_driver driver;
	CUdevice device;
	CUcontext context;
	/* More of the driver than the library calls. */
	CUresult (*alloc_managed)(CUdeviceptr *out, size_t bytes, unsigned int flags);
	CUresult (*host_call)(CUstream stream, CUhostFn call, void *arg);
	/* NULL: the real driver. */
	fake_cuda_control_function fake_control;
	fake_cuda_counts_function fake_counts;
	/* UCX finds out what allocates by a byte at a time, which it frees without a context, so
	 * that it stays: fewer than this. 0: UCX has not been used. */
	uint64_t bytes_of_ucx;
};

/* False: there is no driver, or no device; `why` says which. */
bool cuda_app_open(struct cuda_app *app, char *why, size_t why_bytes);
/*
 * CUDA_REAL=1 lets a test run on a device. False: it cannot, and it has been said why. Asked in a
 * process of its own: a driver that has begun is of no use to the children that Check forks.
 */
bool cuda_app_may_run(void);
/* Ranks of a random world: 1 to 4, and on a device 1, 2, 4 or 8. */
uint32_t cuda_app_ranks_drawn(const struct cuda_app *app, uint64_t draw);
void cuda_app_close(struct cuda_app *app);
/* Makes its context the calling thread's. */
void cuda_app_enter(const struct cuda_app *app);
void cuda_app_leave(const struct cuda_app *app);
/* Of the calling thread; ends the program where the driver fails. */
void *cuda_app_alloc(const struct cuda_app *app, size_t bytes);
void cuda_app_free(const struct cuda_app *app, void *memory);
/* From or to wherever; over when it returns. */
void cuda_app_copy(const struct cuda_app *app, void *to, const void *from, size_t bytes);
CUstream cuda_app_stream(const struct cuda_app *app);
/* For tests with Check: opens it, with a driver whose delays come from this seed. */
void cuda_app_begin(struct cuda_app *app, uint64_t seed);
/* Closes it, and all that was taken has been given back. */
void cuda_app_end(struct cuda_app *app);
/* Ranks as threads, each with its context, and a communicator that uses it. */
rubato_status cuda_app_ranks(struct cuda_app *app, const char *transport, uint32_t ranks,
			     local_main body, void *arg);
/* With memory of the device that this opened, by threads that entered. */
const struct exercise_memory *cuda_app_memory(const struct cuda_app *app);

#define CUDA_APP(app, call, ...)                                                                   \
	do {                                                                                       \
		CUresult result_ = (app)->driver.p_##call(__VA_ARGS__);                            \
		if (result_ != CUDA_SUCCESS)                                                       \
			cuda_app_failed((app), #call, result_, __FILE__, __LINE__);                \
	} while (0)
void cuda_app_failed(const struct cuda_app *app, const char *call, CUresult result,
		     const char *file, int line);

#endif
