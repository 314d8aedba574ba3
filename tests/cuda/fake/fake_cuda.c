/* fake_cuda.c -- see fake_cuda.h: calls, devices, contexts. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fake/fake_inside.h"

struct fake_state fake = { .lock = PTHREAD_MUTEX_INITIALIZER,
			   .over = PTHREAD_COND_INITIALIZER,
			   .memfd = -1 };
_Thread_local struct fake_here fake_thread;

/* ---- Calls: each takes the lock, and fails where it was told to ---- */

/* A lost device's things are given back as others are, so that what is not shows as a leak. */
static bool gives_back(const char *name)
{
	return strncmp(name, "cuCtx", 5) == 0 || strstr(name, "Destroy") != NULL ||
	       strstr(name, "Free") != NULL || strstr(name, "Unload") != NULL ||
	       strstr(name, "Release") != NULL || strstr(name, "Close") != NULL;
}

static CUresult asked_for(const char *name)
{
	struct fake_cuda_control *c = &fake.control;

	if (fake.lost)
		return gives_back(name) ? CUDA_SUCCESS : fake.lost_with;
	if (c->fail_at == 0 || strcmp(c->fail_call, name) != 0 || ++fake.fail_calls < c->fail_at ||
	    fake.fail_calls > c->fail_at + c->fail_count)
		return CUDA_SUCCESS;
	fake.counts.failed++;
	fake.lost_with = c->fail_with;
	/* A lost device does nothing more. */
	while (c->fail_for_good && fake.running > 0)
		fake_over_wait();
	fake.lost = c->fail_for_good;
	return c->fail_with;
}

/* Streams come first: who asks again and again whether one is done would keep it from the lock. */
void fake_stream_lock(void)
{
	atomic_fetch_add(&fake.streams_want, 1);
	pthread_mutex_lock(&fake.lock);
	atomic_fetch_sub(&fake.streams_want, 1);
}

CUresult fake_enter(const char *name)
{
	CUresult result;

	for (uint32_t i = 0; i < 100 && atomic_load(&fake.streams_want) > 0; i++)
		(void)sched_yield();
	pthread_mutex_lock(&fake.lock);
	result = fake.initialized ? asked_for(name) : CUDA_ERROR_NOT_INITIALIZED;
	if (result != CUDA_SUCCESS)
		pthread_mutex_unlock(&fake.lock);
	return result;
}

CUresult fake_leave(CUresult result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

void fake_over_wait(void)
{
	fake.over_awaited++;
	pthread_cond_wait(&fake.over, &fake.lock);
	fake.over_awaited--;
}

CUcontext fake_current(void)
{
	return fake_thread.depth > 0 ? fake_thread.stack[fake_thread.depth - 1] : NULL;
}

CUdevice fake_device(CUcontext context)
{
	return (CUdevice)(context - fake.contexts);
}

void fake_making_waits(void)
{
	while (fake.control.making_waits && fake_current()->at_gates > 0 && !fake.lost)
		fake_over_wait();
}

EXPORT void fake_cuda_control(const struct fake_cuda_control *control);
EXPORT struct fake_cuda_counts fake_cuda_counts(void);

void fake_cuda_control(const struct fake_cuda_control *control)
{
	pthread_mutex_lock(&fake.lock);
	fake.control = *control;
	fake.fail_calls = 0;
	fake.lost = false;
	pthread_mutex_unlock(&fake.lock);
}

struct fake_cuda_counts fake_cuda_counts(void)
{
	struct fake_cuda_counts counts;

	pthread_mutex_lock(&fake.lock);
	counts = fake.counts;
	counts.contexts_retained = 0;
	for (int d = 0; d < FAKE_CUDA_DEVICES; d++)
		counts.contexts_retained += (uint64_t)fake.contexts[d].retained;
	pthread_mutex_unlock(&fake.lock);
	return counts;
}

EXPORT CUresult fake_cuda_asked(const char *name)
{
	CUresult result = fake_enter(name);

	if (result != CUDA_SUCCESS)
		return result;
	return fake_leave(fake_current() != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- Devices and contexts ---- */

EXPORT CUresult cuInit(unsigned int flags)
{
	static const struct fake_cuda_control as_seen = { .seed = 1,
							  .delay_us_max = 100,
							  .queues = 32,
							  .making_waits = true,
							  .pageable_waits = true };

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	if (!fake.initialized && getenv("FAKE_CUDA_AS_SEEN") != NULL)
		fake.control = as_seen;
	fake.initialized = true;
	pthread_mutex_unlock(&fake.lock);
	ENTER();
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGetErrorName(CUresult result, const char **name)
{
	static const struct {
		CUresult result;
		const char *name;
	} names[] = {
#define NAME(name) { name, #name }
		NAME(CUDA_SUCCESS),
		NAME(CUDA_ERROR_INVALID_VALUE),
		NAME(CUDA_ERROR_OUT_OF_MEMORY),
		NAME(CUDA_ERROR_NOT_INITIALIZED),
		NAME(CUDA_ERROR_NO_DEVICE),
		NAME(CUDA_ERROR_INVALID_IMAGE),
		NAME(CUDA_ERROR_INVALID_CONTEXT),
		NAME(CUDA_ERROR_INVALID_HANDLE),
		NAME(CUDA_ERROR_NOT_FOUND),
		NAME(CUDA_ERROR_NOT_READY),
		NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
		NAME(CUDA_ERROR_LAUNCH_FAILED),
		NAME(CUDA_ERROR_NOT_SUPPORTED),
		NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
		NAME(CUDA_ERROR_MAP_FAILED),
		NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
#undef NAME
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].result == result) {
			*name = names[i].name;
			return CUDA_SUCCESS;
		}
	*name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult result, const char **text)
{
	(void)result;
	*text = "by the fake driver";
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	ENTER();
	*count = FAKE_CUDA_DEVICES;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	if (ordinal < 0 || ordinal >= FAKE_CUDA_DEVICES)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	(void)device;
	(void)snprintf(name, (size_t)bytes, "fake device");
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	ENTER();
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 2;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		*value = !fake.control.no_rdma;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
		*value = fake.control.writes_stay ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE
						  : CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
		*value = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
		break;
	default:
		*value = 0;
		break;
	}
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	if (device < 0 || device >= FAKE_CUDA_DEVICES)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*context = &fake.contexts[device];
	(*context)->retained++;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	ENTER();
	if (device < 0 || device >= FAKE_CUDA_DEVICES || fake.contexts[device].retained == 0)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (fake.contexts[device].retained == 1)
		fake_default_stream_end(&fake.contexts[device]);
	fake.contexts[device].retained--;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER();
	*context = fake_current();
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER_CONTEXT();
	*device = fake_device(fake_current());
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *last, int *first)
{
	ENTER_CONTEXT();
	*last = 0;
	*first = -5;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER();
	if (fake_thread.depth == STACK_DEPTH)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_thread.stack[fake_thread.depth++] = context;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	ENTER();
	if (fake_thread.depth == 0)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	fake_thread.depth--;
	if (context != NULL)
		*context = fake_thread.stack[fake_thread.depth];
	return fake_leave(CUDA_SUCCESS);
}
