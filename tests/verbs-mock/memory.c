/*
 * memory.c -- registered regions, what their keys allow, and the bytes that go in and out of them.
 *
 * A key is the region's place and a byte that changes whenever the place is used again, so that the
 * key of a region that is gone allows nothing. Nothing is touched that no key covers.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/verbs-mock/process.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define PAGE 4096ull

uint32_t mr_find(const struct world *world, uint32_t owner, uint32_t pd, uint32_t key,
		 uint64_t address, uint64_t length, uint32_t access)
{
	uint32_t index = key >> 8;
	const struct world_mr *mr = index < WORLD_MRS ? &world->mrs[index] : NULL;

	if (mr == NULL || !mr->used || mr->key != key || mr->process != owner || mr->pd != pd ||
	    (mr->access & access) != access)
		return WORLD_NONE;
	if (address < mr->iova || length > mr->length || address - mr->iova > mr->length - length)
		return WORLD_NONE;
	return index;
}

void mr_remove(struct world *world, uint32_t index)
{
	struct world_mr *mr = &world->mrs[index];

	world->devices[mr->device].mrs--;
	mr->used = false;
}

/* ---- Memory of devices, where its driver is the fake one (tests/cuda/fake) ---- */

static struct {
	pthread_once_t once;
	bool (*write)(void *to, const void *from, size_t bytes);
	void (*settle)(void);
} gpu = { .once = PTHREAD_ONCE_INIT };

static void gpu_find(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (driver == NULL)
		return;
	*(void **)(void *)&gpu.write = dlsym(driver, "fake_cuda_remote_write");
	*(void **)(void *)&gpu.settle = dlsym(driver, "fake_cuda_remote_settle");
}

/* All that was written is there. */
static void gpu_settle(void)
{
	if (gpu.settle != NULL)
		gpu.settle();
}

/* In this process. What is written to a device may be under way for a while; reads push it. */
static void move_here(const struct world_mr *mr, void *address, void *own, size_t bytes, bool write)
{
	if (mr->dmabuf && !write)
		gpu_settle();
	if (!write)
		memcpy(own, address, bytes);
	else if (!mr->dmabuf || gpu.write == NULL || !gpu.write(address, own, bytes))
		memcpy(address, own, bytes);
}

static bool move(struct world *world, const struct world_mr *mr, uint64_t at, void *own,
		 size_t bytes, bool write)
{
	const struct world_process *owner = &world->processes[mr->process];
	uint64_t address = mr->address + (at - mr->iova);
	struct iovec here = { .iov_base = own, .iov_len = bytes };
	struct iovec there = { .iov_base = (void *)(uintptr_t)address, .iov_len = bytes };

	if (mr->process == world_self()) {
		move_here(mr, there.iov_base, own, bytes, write);
		return true;
	}
	while (here.iov_len > 0) {
		ssize_t moved = write ? process_vm_writev(owner->pid, &here, 1, &there, 1, 0)
				      : process_vm_readv(owner->pid, &here, 1, &there, 1, 0);

		if (moved <= 0)
			return false;
		here.iov_base = (char *)here.iov_base + moved;
		there.iov_base = (char *)there.iov_base + moved;
		here.iov_len -= (size_t)moved;
		there.iov_len -= (size_t)moved;
	}
	return true;
}

bool memory_write(struct world *world, uint32_t mr, uint64_t at, const void *from, size_t bytes)
{
	return bytes == 0 || move(world, &world->mrs[mr], at, (void *)(uintptr_t)from, bytes, true);
}

bool memory_read(struct world *world, uint32_t mr, uint64_t at, void *into, size_t bytes)
{
	return bytes == 0 || move(world, &world->mrs[mr], at, into, bytes, false);
}

/* Whether there is memory behind all of it: what pinning it would find out. */
static bool mapped(const void *address, size_t length)
{
	unsigned char there[1024];
	uintptr_t from = (uintptr_t)address & ~(PAGE - 1), end = (uintptr_t)address + length;

	for (; from < end; from += sizeof(there) * PAGE) {
		size_t bytes =
			end - from < sizeof(there) * PAGE ? end - from : sizeof(there) * PAGE;

		if (mincore((void *)from, bytes, there) != 0)
			return false;
	}
	return true;
}

static int mr_judge(const struct world *world, uint32_t device, const void *address, size_t length,
		    unsigned int access)
{
	const unsigned int writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | writes | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB;

	if (world->devices[device].dead)
		return EIO;
	if (length == 0 || length > world->config.max_mr_size)
		return EINVAL;
	if ((access & ~known) != 0)
		return (access & IBV_ACCESS_ON_DEMAND) != 0 ? EOPNOTSUPP : EINVAL;
	if ((access & writes) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
		return EINVAL;
	if (world->devices[device].mrs >= world->config.max_mr)
		return ENOMEM;
	if (process.registered + length > world->config.max_memlock)
		return ENOMEM;
	return address == NULL || mapped(address, length) ? 0 : EFAULT;
}

static uint32_t mr_place(struct world *world)
{
	for (uint32_t i = 0; i < WORLD_MRS; i++) {
		uint32_t index = (world->mr_hint + i) % WORLD_MRS;

		if (index != 0 && !world->mrs[index].used) {
			world->mr_hint = index + 1;
			if (index >= world->mr_end)
				world->mr_end = index + 1;
			return index;
		}
	}
	return WORLD_NONE;
}

static struct ibv_mr *mr_make(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
			      unsigned int access, int error)
{
	struct world *world = world_now();
	uint32_t device = context_of(pd->context)->device, index = WORLD_NONE;
	struct mock_mr *mr = calloc(1, sizeof(*mr));

	world_lock(world);
	if (error == 0)
		error = mr == NULL ? ENOMEM : mr_judge(world, device, address, length, access);
	if (error == 0)
		index = mr_place(world);
	if (error == 0 && index == WORLD_NONE)
		error = ENOMEM;
	if (error == 0) {
		struct world_mr *at = &world->mrs[index];
		uint32_t key = index << 8 | ((at->key + 1) & 0xff);

		*at = (struct world_mr) {
			.used = true,
			.process = world_self(),
			.device = device,
			.pd = ((struct mock_pd *)pd)->id,
			.key = key,
			.access = access,
			.iova = iova,
			.length = length,
			.address = (uintptr_t)address,
			.context = context_of(pd->context)->id,
		};
		world->devices[device].mrs++;
		process.registered += length;
		context_of(pd->context)->mrs++;
		((struct mock_pd *)pd)->users++;
		mr->index = index;
		mr->v = (struct ibv_mr) { pd->context, pd, address, length, index, key, key };
	}
	world_unlock(world);
	if (error == 0)
		return &mr->v;
	free(mr);
	errno = error;
	return NULL;
}

MOCK_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
					 uint64_t iova, unsigned int access)
{
	return mr_make(pd, address, length, iova, access, call_fails(CALL_ibv_reg_mr));
}

MOCK_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	return mr_make(pd, address, length, (uintptr_t)address, (unsigned int)access,
		       call_fails(CALL_ibv_reg_mr));
}

MOCK_API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
					uint64_t iova, int access)
{
	return mr_make(pd, address, length, iova, (unsigned int)access,
		       call_fails(CALL_ibv_reg_mr));
}

MOCK_API struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					  uint64_t iova, int fd, int access)
{
	int error = call_fails(CALL_ibv_reg_dmabuf_mr);
	off_t begin =
		lseek(fd, 0, SEEK_CUR); /* 0, unless the fake driver's file stands elsewhere. */
	uint64_t start = offset & ~(PAGE - 1);
	size_t bytes = length + (size_t)(offset - start);
	char *memory = MAP_FAILED;
	struct ibv_mr *mr;

	if (error == 0 && length > 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      (off_t)start + (begin > 0 ? begin : 0));
	if (memory == MAP_FAILED) { /* No memory behind it: no dma-buf. */
		errno = error != 0 ? error : EINVAL;
		return NULL;
	}
	mr = mr_make(pd, memory + (offset - start), length, iova, (unsigned int)access, 0);
	if (mr == NULL) {
		(void)munmap(memory, bytes);
		return NULL;
	}
	(void)pthread_once(&gpu.once, gpu_find);
	mr->addr = NULL; /* The application has no address of it. */
	world_lock(world_now());
	world_now()->mrs[((struct mock_mr *)mr)->index].dmabuf = true;
	world_unlock(world_now());
	((struct mock_mr *)mr)->mapped = memory;
	((struct mock_mr *)mr)->mapped_bytes = bytes;
	return mr;
}

MOCK_API int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mock_mr *own = (struct mock_mr *)mr;
	int error = call_fails(CALL_ibv_dereg_mr);
	struct world *world = world_now();

	if (error != 0)
		return error;
	world_lock(world);
	mr_remove(world, own->index);
	process.registered -= mr->length;
	context_of(mr->context)->mrs--;
	((struct mock_pd *)mr->pd)->users--;
	world_unlock(world);
	if (own->mapped != NULL)
		gpu_settle();
	if (own->mapped != NULL)
		(void)munmap(own->mapped, own->mapped_bytes);
	free(own);
	return 0;
}

MOCK_API int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address,
			  size_t length, int access)
{
	(void)mr, (void)flags, (void)pd, (void)address, (void)length, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}
