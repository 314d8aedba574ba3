/* app.c -- see app.h. */
#include "tests/cuda/app.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato_cuda.h"
#include "tests/check_main.h"

#define BYTES_OF_UCX 1000

static const struct cuda_app *open_one; /* For functions that are given a communicator alone. */

void cuda_app_failed(const struct cuda_app *app, const char *call, CUresult result,
		     const char *file, int line)
{
	const char *name = "?";

	(void)app->driver.p_cuGetErrorName(result, &name);
	(void)fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, name);
	abort();
}

static rubato_status steps(struct cuda_app *app)
{
	int count = 0;
	bool open;
	void *library;

	/* Streams of ranks that are threads share the device's queues: docs/gpu.md. */
	(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	RB_TRY(rb_cuda_driver_open(true, &app->driver, &open));
	RB_CUDA_TRY(&app->driver, cuDeviceGetCount, &count);
	if (count == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "there is no CUDA device");
	RB_CUDA_TRY(&app->driver, cuDeviceGet, &app->device, 0);
	RB_CUDA_TRY(&app->driver, cuDevicePrimaryCtxRetain, &app->context, app->device);
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	*(void **)(void *)&app->alloc_managed = dlsym(library, "cuMemAllocManaged");
	*(void **)(void *)&app->host_call = dlsym(library, "cuLaunchHostFunc");
	*(void **)(void *)&app->fake_control = dlsym(library, "fake_cuda_control");
	*(void **)(void *)&app->fake_counts = dlsym(library, "fake_cuda_counts");
	return RUBATO_OK;
}

bool cuda_app_open(struct cuda_app *app, char *why, size_t why_bytes)
{
	memset(app, 0, sizeof(*app));
	if (steps(app) != RUBATO_OK) {
		(void)snprintf(why, why_bytes, "%s", rubato_error_text());
		return false;
	}
	open_one = app;
	return true;
}

bool cuda_app_may_run(void)
{
	int status;
	pid_t pid;

	if (getenv("CUDA_REAL") == NULL)
		return true;
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct cuda_app app;
		char why[200];

		if (cuda_app_open(&app, why, sizeof(why)))
			_exit(0);
		(void)printf("skipped: %s\n", why);
		(void)fflush(stdout);
		_exit(1);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

uint32_t cuda_app_ranks_drawn(const struct cuda_app *app, uint64_t draw)
{
	return app->fake_control != NULL ? 1 + (uint32_t)(draw % 4) : 1u << draw % 4;
}

void cuda_app_close(struct cuda_app *app)
{
	CUDA_APP(app, cuDevicePrimaryCtxRelease, app->device);
	open_one = NULL;
}

void cuda_app_begin(struct cuda_app *app, uint64_t seed)
{
	struct fake_cuda_control control = { .seed = seed, .delay_us_max = 200, .queues = 32 };
	static bool kept; /* A device's context: it takes long to make. */
	char why[200];

	ck_assert_msg(cuda_app_open(app, why, sizeof(why)), "%s", why);
	if (app->fake_control != NULL) {
		app->fake_control(&control);
	} else if (!kept) {
		CUDA_APP(app, cuDevicePrimaryCtxRetain, &app->context, app->device);
		kept = true;
	}
}

void cuda_app_end(struct cuda_app *app)
{
	struct fake_cuda_counts counts = { .contexts_retained = 1 };

	if (app->fake_counts != NULL)
		counts = app->fake_counts();
	cuda_app_close(app);
	ck_assert_uint_le(counts.memory_bytes, app->bytes_of_ucx);
	ck_assert_uint_eq(counts.streams, 0);
	ck_assert_uint_eq(counts.events, 0);
	ck_assert_uint_eq(counts.opened, 0);
	ck_assert_uint_eq(counts.contexts_retained, 1); /* This one's. */
}

struct job {
	struct cuda_app *app;
	local_main body;
	void *arg;
};

/* Each thread has the context before it makes its communicator. */
static rubato_status entered(rubato_comm *comm, void *arg)
{
	const struct job *job = arg;
	rubato_status err;

	cuda_app_enter(job->app);
	err = rubato_cuda_use(comm, RUBATO_CUDA_CURRENT);
	if (err == RUBATO_OK)
		err = job->body(comm, job->arg);
	cuda_app_leave(job->app);
	return err;
}

rubato_status cuda_app_ranks(struct cuda_app *app, const char *transport, uint32_t ranks,
			     local_main body, void *arg)
{
	const struct rb_transport_ops *transports[] = { local_transport(transport), NULL };
	struct job job = { app, body, arg };
	rubato_status status[CUDA_APP_RANKS_MAX];

	if (ranks > CUDA_APP_RANKS_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%u ranks", ranks);
	if (strcmp(transport, "ucx") == 0)
		app->bytes_of_ucx = BYTES_OF_UCX;
	return local_run(ranks, transports, entered, &job, status);
}

void cuda_app_enter(const struct cuda_app *app)
{
	CUDA_APP(app, cuCtxPushCurrent, app->context);
}

void cuda_app_leave(const struct cuda_app *app)
{
	CUcontext context;

	CUDA_APP(app, cuCtxPopCurrent, &context);
}

void *cuda_app_alloc(const struct cuda_app *app, size_t bytes)
{
	CUdeviceptr memory;

	CUDA_APP(app, cuMemAlloc, &memory, bytes);
	return (void *)(uintptr_t)memory;
}

void cuda_app_free(const struct cuda_app *app, void *memory)
{
	CUDA_APP(app, cuMemFree, (CUdeviceptr)(uintptr_t)memory);
}

CUstream cuda_app_stream(const struct cuda_app *app)
{
	CUstream stream;

	CUDA_APP(app, cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
	return stream;
}

void cuda_app_copy(const struct cuda_app *app, void *to, const void *from, size_t bytes)
{
	CUstream stream = cuda_app_stream(app);

	CUDA_APP(app, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
		 bytes, stream);
	CUDA_APP(app, cuStreamSynchronize, stream);
	CUDA_APP(app, cuStreamDestroy, stream);
}

static rubato_status memory_alloc(rubato_comm *comm, size_t bytes, bool managed, void **memory)
{
	CUdeviceptr at;

	(void)comm;
	if (!managed) {
		*memory = cuda_app_alloc(open_one, bytes > 0 ? bytes : 1);
		return RUBATO_OK;
	}
	if (open_one->alloc_managed(&at, bytes > 0 ? bytes : 1, CU_MEM_ATTACH_GLOBAL) !=
	    CUDA_SUCCESS)
		return RB_FAIL(RUBATO_ERR_MEMORY, "cuMemAllocManaged");
	*memory = (void *)(uintptr_t)at;
	return RUBATO_OK;
}

static rubato_status memory_free(rubato_comm *comm, void *memory)
{
	(void)comm;
	cuda_app_free(open_one, memory);
	return RUBATO_OK;
}

static void memory_copy(rubato_comm *comm, void *to, const void *from, size_t bytes)
{
	(void)comm;
	if (bytes > 0)
		cuda_app_copy(open_one, to, from, bytes);
}

const struct exercise_memory *cuda_app_memory(const struct cuda_app *app)
{
	static const struct exercise_memory memory = { memory_alloc, memory_free, memory_copy };

	(void)app;
	return &memory;
}
