/* fake_memory.c -- see fake_cuda.h: memory. */
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/fake/fake_inside.h"

/* ---- Memory ---- */

struct allocation *fake_find(const void *address, size_t bytes)
{
	const uint8_t *at = address;

	for (struct allocation *a = fake.allocations; a != NULL; a = a->next)
		if (at >= a->base && at < a->base + a->bytes &&
		    bytes <= (size_t)(a->base + a->bytes - at))
			return a;
	return NULL;
}

uint8_t *fake_reach(const void *address, size_t bytes)
{
	struct allocation *a = fake_find(address, bytes);
	uint8_t *at = (uint8_t *)(uintptr_t)address;

	if (a != NULL)
		return a->alias + (at - a->base);
	/* The host's: any that is not of the device's range. */
	return fake.base != NULL && at >= fake.base && at < fake.base + DEVICE_BYTES ? NULL : at;
}

EXPORT void *fake_cuda_reach(const void *address, size_t bytes)
{
	const struct allocation *a;
	uint8_t *at = NULL;

	pthread_mutex_lock(&fake.lock);
	a = fake_find(address, bytes);
	if (a != NULL && a->what == DEVICE && a->device == fake_device(fake_current()))
		at = fake_reach(address, bytes);
	pthread_mutex_unlock(&fake.lock);
	return at;
}

static bool memory_open(void)
{
	if (fake.base != NULL)
		return true;
	fake.memfd = memfd_create("fake device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fake.memfd < 0 || ftruncate(fake.memfd, (off_t)DEVICE_BYTES) != 0 ||
	    fcntl(fake.memfd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
		return false;
	fake.base = mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	fake.alias = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fake.memfd, 0);
	return fake.base != MAP_FAILED && fake.alias != MAP_FAILED;
}

static size_t pages(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

struct ipc_label *fake_label(const struct allocation *a)
{
	return (struct ipc_label *)(void *)(a->alias + pages(a->bytes));
}

uint8_t *fake_room(size_t bytes, bool again)
{
	uint64_t room = pages(bytes) + PAGE;
	uint8_t *at;

	if (!memory_open())
		return NULL;
	if (again && fake.again != NULL && fake.again_bytes == room) {
		at = fake.again;
		fake.again = NULL;
		return at;
	}
	if (fake.used + room > DEVICE_BYTES)
		return NULL;
	at = fake.base + fake.used;
	fake.used += room;
	return at;
}

struct allocation *fake_allocation_add(uint8_t *base, uint8_t *alias, size_t bytes, int what)
{
	struct allocation *a = calloc(1, sizeof(*a));

	*a = (struct allocation) { .base = base,
				   .alias = alias,
				   .bytes = bytes,
				   .what = (__typeof__(a->what))what,
				   .device = fake_device(fake_current()),
				   .id = ++fake.ids,
				   .alone = fake.control.memory_alone,
				   .next = fake.allocations };
	fake.allocations = a;
	fake.counts.memory_bytes += bytes;
	return a;
}

static void label_end(const struct allocation *a)
{
	struct ipc_label *label = fake_label(a);

	fake.counts.freed_mapped += label->mapped > 0;
	label->id = 0;
}

void fake_allocation_remove(struct allocation *a)
{
	struct allocation **at = &fake.allocations;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	fake.counts.memory_bytes -= a->bytes;
	if (a->what == DEVICE && a->owner == 0) { /* Its pages are given back. */
		label_end(a);
		(void)fallocate(fake.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				a->alias - fake.alias, (off_t)pages(a->bytes));
		fake.again = a->base;
		fake.again_bytes = pages(a->bytes) + PAGE;
	}
	if (a->what == MANAGED || a->what == PINNED)
		free(a->base);
	free(a);
}

static bool is_idle(CUcontext context)
{
	for (const struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		if (s->context == context && s->first != NULL)
			return false;
	return true;
}

void fake_idle_wait(void)
{
	while (!is_idle(fake_current()))
		fake_over_wait();
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	struct allocation *a;
	uint8_t *base;

	ENTER_MAKING();
	if (bytes == 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	base = fake_room(bytes, fake.control.addresses_again);
	if (base == NULL)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	a = fake_allocation_add(base, fake.alias + (base - fake.base), bytes, DEVICE);
	fake_label(a)->id = a->id;
	*out = (CUdeviceptr)(uintptr_t)base;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr memory)
{
	struct allocation *a;

	ENTER_CONTEXT();
	a = fake_find((void *)(uintptr_t)memory, 1);
	if (a == NULL || a->base != (void *)(uintptr_t)memory || a->what == PINNED || a->owner != 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_idle_wait();
	fake_allocation_remove(a);
	return fake_leave(CUDA_SUCCESS);
}

static CUresult host_alloc(void **out, size_t bytes, int what)
{
	void *memory = NULL;

	if (bytes == 0 || posix_memalign(&memory, PAGE, bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(memory, 0xa5, bytes);
	fake_allocation_add(memory, memory, bytes, what);
	*out = memory;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	(void)flags;
	ENTER_MAKING();
	return fake_leave(host_alloc(out, bytes, PINNED));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	void *memory = NULL;
	CUresult result;

	(void)flags;
	ENTER_MAKING();
	result = host_alloc(&memory, bytes, MANAGED);
	*out = (CUdeviceptr)(uintptr_t)memory;
	return fake_leave(result);
}

EXPORT CUresult cuMemFreeHost(void *memory)
{
	struct allocation *a;

	ENTER_CONTEXT();
	a = fake_find(memory, 1);
	if (a == NULL || a->base != memory || a->what != PINNED)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_idle_wait();
	fake_allocation_remove(a);
	return fake_leave(CUDA_SUCCESS);
}

/* ---- RDMA ---- */

static int udmabuf_of(uint64_t start, size_t bytes)
{
	struct udmabuf_create make = { .memfd = (uint32_t)fake.memfd,
				       .offset = start,
				       .size = bytes };
	int maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (maker < 0)
		return -1;
	fd = ioctl(maker, UDMABUF_CREATE, &make);
	(void)close(maker);
	return fd;
}

/* Another description of the file, that stands where the range begins. */
static int file_of(uint64_t start)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fake.memfd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		(void)lseek(fd, (off_t)start, SEEK_SET);
	return fd;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr memory, size_t bytes,
					      CUmemRangeHandleType type, unsigned long long flags)
{
	const struct allocation *a;
	uint64_t start;
	int fd;

	ENTER_CONTEXT();
	a = fake_find((void *)(uintptr_t)memory, 1);
	if (a == NULL || a->what != DEVICE || memory % PAGE != 0 || bytes % PAGE != 0 ||
	    bytes == 0 || flags != 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (memory - (CUdeviceptr)(uintptr_t)a->base + bytes > (a->bytes + PAGE - 1) / PAGE * PAGE)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake.control.no_rdma)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	start = memory - (CUdeviceptr)(uintptr_t)fake.base;
	fd = getenv("FAKE_CUDA_UDMABUF") != NULL ? udmabuf_of(start, bytes) : file_of(start);
	if (fd < 0)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	*(int *)handle = fd;
	fake.counts.exported++;
	return fake_leave(CUDA_SUCCESS);
}

/* With the lock. */
static void settle(void)
{
	while (fake.staying != NULL) {
		struct remote_write *write = fake.staying;

		fake.staying = write->next;
		memcpy(write->to, write->from, write->bytes);
		free(write);
	}
}

EXPORT CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
					   CUflushGPUDirectRDMAWritesScope scope)
{
	(void)target, (void)scope;
	ENTER_CONTEXT();
	settle();
	fake.counts.flushes++;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT bool fake_cuda_remote_write(void *to, const void *from, size_t bytes);
EXPORT void fake_cuda_remote_settle(void);

bool fake_cuda_remote_write(void *to, const void *from, size_t bytes)
{
	struct remote_write *write = NULL;

	fake_stream_lock();
	if (fake.control.writes_stay)
		write = malloc(sizeof(*write) + bytes);
	if (write != NULL) {
		*write = (struct remote_write) { .to = to, .bytes = bytes };
		memcpy(write->from, from, bytes);
		if (fake.staying == NULL)
			fake.staying_end = &fake.staying;
		*fake.staying_end = write;
		fake.staying_end = &write->next;
		fake.counts.stayed++;
	}
	pthread_mutex_unlock(&fake.lock);
	return write != NULL;
}

void fake_cuda_remote_settle(void)
{
	fake_stream_lock();
	settle();
	pthread_mutex_unlock(&fake.lock);
}

/* ---- What is known of memory ---- */

CUresult fake_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	const struct allocation *a = fake_find((void *)(uintptr_t)address, 1);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = a != NULL ? &fake.contexts[a->device] : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = a == NULL           ? 0
				    : a->what >= PINNED ? CU_MEMORYTYPE_HOST
							: CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = a != NULL && a->what == MANAGED;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = a != NULL ? a->device : -2;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = a != NULL && a->what == DEVICE && !a->alone && a->owner == 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = a != NULL ? (CUdeviceptr)(uintptr_t)a->base : 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = a != NULL ? a->bytes : 0;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = a != NULL ? a->id : 0;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = NULL;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
				       void **data, CUdeviceptr address)
{
	CUresult result = CUDA_SUCCESS;

	ENTER();
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = fake_attribute(data[i], attributes[i], address);
	return fake_leave(result);
}
