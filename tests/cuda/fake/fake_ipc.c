/* fake_ipc.c -- see fake_cuda.h: memory of other processes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/fake/fake_inside.h"

struct handle { /* What stands in a CUipcMemHandle. */
	pid_t process;
	int memfd;
	CUdevice device;
	uint64_t at, bytes, id;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "it fits");

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr memory)
{
	struct allocation *a;
	struct handle handle = { .process = getpid() };

	ENTER_CONTEXT();
	a = fake_find((void *)(uintptr_t)memory, 1);
	if (a == NULL || a->base != (void *)(uintptr_t)memory || a->what != DEVICE || a->alone ||
	    a->owner != 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	handle.memfd = fake.memfd;
	handle.device = a->device;
	handle.at = (uint64_t)(a->alias - fake.alias);
	handle.bytes = a->bytes;
	handle.id = a->id;
	memset(out, 0, sizeof(*out));
	memcpy(out, &handle, sizeof(handle));
	return fake_leave(CUDA_SUCCESS);
}

/* The same pages, as the process that has them sees them; NULL: it is not to be seen from here. */
static uint8_t *pages_map(const struct handle *handle, size_t bytes)
{
	char path[64];
	uint8_t *alias = MAP_FAILED;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle->process, handle->memfd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			     (off_t)handle->at);
		(void)close(fd);
	}
	return alias != MAP_FAILED ? alias : NULL;
}

static size_t room_of(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
}

static struct allocation *opened_before(const struct handle *handle, CUdevice device)
{
	for (struct allocation *a = fake.allocations; a != NULL; a = a->next)
		if (a->owner == handle->process && a->device == device && a->id == handle->id)
			return a;
	return NULL;
}

static void opened_remove(struct allocation *a)
{
	(void)munmap(a->alias, room_of(a->bytes));
	fake_allocation_remove(a);
}

static CUresult memory_open(const struct handle *handle, struct allocation **out)
{
	uint8_t *alias = pages_map(handle, room_of(handle->bytes));
	uint8_t *base = alias != NULL ? fake_room(handle->bytes, false) : NULL;
	struct allocation *a;

	if (base == NULL)
		return CUDA_ERROR_MAP_FAILED;
	a = fake_allocation_add(base, alias, handle->bytes, DEVICE);
	a->id = handle->id;
	a->owner = handle->process;
	if (fake_label(a)->id != a->id) { /* It has been freed. */
		opened_remove(a);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	fake_label(a)->mapped++;
	fake.counts.opened++;
	*out = a;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle given, unsigned int flags)
{
	struct handle handle;
	struct allocation *a;
	CUresult result = CUDA_SUCCESS;

	ENTER_MAKING();
	memcpy(&handle, &given, sizeof(handle));
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (handle.process == getpid())
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (handle.device != fake_device(fake_current()) && fake.control.no_peers)
		return fake_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	a = opened_before(&handle, fake_device(fake_current()));
	if (a == NULL)
		result = memory_open(&handle, &a);
	if (result != CUDA_SUCCESS)
		return fake_leave(result);
	a->opens++;
	fake.counts.opens++;
	*out = (CUdeviceptr)(uintptr_t)a->base;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr memory)
{
	struct allocation *a;

	ENTER_CONTEXT();
	a = fake_find((void *)(uintptr_t)memory, 1);
	if (a == NULL || a->base != (void *)(uintptr_t)memory || a->owner == 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_idle_wait();
	if (--a->opens > 0)
		return fake_leave(CUDA_SUCCESS);
	fake_label(a)->mapped--;
	fake.counts.opened--;
	opened_remove(a);
	return fake_leave(CUDA_SUCCESS);
}
