/*
 * fake_nccl.c -- a libnccl.so.2 of the few calls that Rubato is shown beside: plain loops, in the
 * turn of the stream that each was given, over memory that the ranks of a communicator share, be
 * they threads or processes. As NCCL's kernels do, a call keeps its stream until all ranks have
 * come; and calls of a communicator meet in their order. Ranks whose calls are different, and ranks
 * that do not come within FAKE_NCCL_PATIENCE_MS, are said on standard error; the call is over then,
 * and every later one fails.
 */
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/fake/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
#define RANKS_MAX 8
#define SLOT_BYTES (UINT64_C(1) << 20)
#define PATIENCE_MS 20000

enum what { REDUCE_SCATTER = 1, ALL_GATHER };

struct shared { /* A file that the unique id names. */
	_Atomic uint64_t ranks, came,
		went; /* Of all calls so far: came with their input, are through. */
	struct {
		uint64_t what, count;
		uint8_t input[SLOT_BYTES];
	} slots[RANKS_MAX];
};

struct ncclComm {
	struct shared *shared;
	int rank, size;
	uint64_t calls; /* That were enqueued. */
	atomic_bool broken;
};

struct call {
	struct ncclComm *comm;
	uint64_t number, what, count;
	const float *from;
	float *to;
};

static void path_of(const ncclUniqueId *id, char *path, size_t bytes)
{
	(void)snprintf(path, bytes, "/fake-nccl-%.64s", id->internal);
}

/* ---- In the stream's turn ---- */

static bool awaited(const struct call *call, _Atomic uint64_t *counter, uint64_t value)
{
	const char *text = getenv("FAKE_NCCL_PATIENCE_MS");
	long left_ms = text != NULL ? atol(text) : PATIENCE_MS;
	struct timespec nap = { 0, 1000000 };

	for (; *counter < value && left_ms > 0; left_ms--)
		(void)nanosleep(&nap, NULL);
	if (*counter >= value)
		return true;
	(void)fprintf(stderr,
		      "fake NCCL: call %llu of a communicator: rank %d of %d waited in vain\n",
		      (unsigned long long)call->number, call->comm->rank, call->comm->size);
	return false;
}

static bool alike(const struct call *call)
{
	struct shared *s = call->comm->shared;

	for (int r = 0; r < call->comm->size; r++)
		if (s->slots[r].what != call->what || s->slots[r].count != call->count) {
			(void)fprintf(stderr,
				      "fake NCCL: call %llu of a communicator is another one on "
				      "rank %d\n",
				      (unsigned long long)call->number, r);
			return false;
		}
	return true;
}

static void compute(const struct call *call)
{
	const struct ncclComm *comm = call->comm;

	for (int r = 0; r < comm->size; r++) {
		const float *in = (const float *)(const void *)comm->shared->slots[r].input;

		for (uint64_t i = 0; i < call->count; i++) {
			if (call->what == ALL_GATHER)
				call->to[(uint64_t)r * call->count + i] = in[i];
			else
				call->to[i] = (r > 0 ? call->to[i] : 0) +
					      in[(uint64_t)comm->rank * call->count + i];
		}
	}
}

static void CUDA_CB carry_out(void *arg)
{
	const struct call *call = arg;
	struct ncclComm *comm = call->comm;
	struct shared *s = comm->shared;
	uint64_t size = (uint64_t)comm->size;
	uint64_t inputs = call->what == REDUCE_SCATTER ? size : 1;

	/* Its slot is read in the call before. */
	if (comm->broken || !awaited(call, &s->went, size * call->number)) {
		comm->broken = true;
		return;
	}
	s->slots[comm->rank].what = call->what;
	s->slots[comm->rank].count = call->count;
	memcpy(s->slots[comm->rank].input, call->from, inputs * call->count * sizeof(float));
	atomic_fetch_add(&s->came, 1);
	if (awaited(call, &s->came, size * (call->number + 1)) && alike(call))
		compute(call);
	else
		comm->broken = true;
	atomic_fetch_add(&s->went, 1);
}

static ncclResult_t enqueue(ncclComm_t comm, enum what what, const void *from, void *to,
			    size_t count, bool simple, cudaStream_t stream)
{
	uint64_t all = count * (uint64_t)comm->size;
	struct call call = { .comm = comm, .what = what, .count = count };

	if (!simple || count == 0 || all * sizeof(float) > SLOT_BYTES)
		return ncclInvalidArgument;
	if (comm->broken)
		return ncclRemoteError;
	call.from = fake_cuda_reach(from, (what == ALL_GATHER ? count : all) * sizeof(float));
	call.to = fake_cuda_reach(to, (what == ALL_GATHER ? all : count) * sizeof(float));
	if (call.from == NULL || call.to == NULL)
		return ncclInvalidArgument;
	call.number = comm->calls++;
	return fake_cuda_call((CUstream)stream, carry_out, &call, sizeof(call)) == CUDA_SUCCESS
		       ? ncclSuccess
		       : ncclUnhandledCudaError;
}

/* ---- What it exports ---- */

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static atomic_uint made;
	char path[96];
	int fd;

	memset(id, 0, sizeof(*id));
	(void)snprintf(id->internal, sizeof(id->internal), "%d-%u", (int)getpid(), made++);
	path_of(id, path, sizeof(path));
	fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct shared)) != 0)
		return ncclSystemError;
	(void)close(fd);
	return ncclSuccess;
}

/* Waits for all, as NCCL's does; the file has no name any more then. */
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
	struct ncclComm *comm = calloc(1, sizeof(*comm));
	struct call call = { .comm = comm };
	char path[96];
	int fd;

	path_of(&id, path, sizeof(path));
	fd = shm_open(path, O_RDWR, 0);
	if (comm == NULL || fd < 0 || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size)
		return ncclInvalidArgument;
	*comm = (struct ncclComm) { .rank = rank, .size = size };
	comm->shared = mmap(NULL, sizeof(*comm->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (comm->shared == MAP_FAILED)
		return ncclSystemError;
	atomic_fetch_add(&comm->shared->ranks, 1);
	if (!awaited(&call, &comm->shared->ranks, (uint64_t)size))
		return ncclRemoteError;
	if (rank == 0)
		(void)shm_unlink(path);
	*out = comm;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
				      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return enqueue(comm, REDUCE_SCATTER, from, to, count, type == ncclFloat && op == ncclSum,
		       stream);
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
				  ncclComm_t comm, cudaStream_t stream)
{
	return enqueue(comm, ALL_GATHER, from, to, count, type == ncclFloat, stream);
}

/* With nothing of it in flight. */
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	(void)munmap(comm->shared, sizeof(*comm->shared));
	free(comm);
	return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclSuccess ? "no error" : "an error of the fake NCCL";
}
