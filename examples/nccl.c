/*
 * nccl.c -- NCCL within groups of ranks, Rubato between them, on one stream: gradients are summed
 * and scattered in a group, each rank's shard is averaged over the groups, and gathered again.
 *
 *   rubato-run -n 4 nccl [RANKS OF A GROUP, 2]       # a device for each rank of a group
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <nccl.h>
#include <rubato_cuda.h>

enum { SHARD = 1000, STEPS = 3 };

static void check(rubato_status status)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	exit(1);
}

static void check_cuda(CUresult result)
{
	if (result == CUDA_SUCCESS)
		return;
	(void)fprintf(stderr, "CUDA: error %d\n", (int)result);
	exit(1);
}

static void check_nccl(ncclResult_t result)
{
	if (result == ncclSuccess)
		return;
	(void)fprintf(stderr, "NCCL: %s\n", ncclGetErrorString(result));
	exit(1);
}

int main(int argc, char **argv)
{
	uint32_t size = argc > 1 ? (uint32_t)atoi(argv[1]) : 2, rank, count;
	rubato_comm *all, *group, *across;
	float *host, *gradients, *shard;
	ncclUniqueId id = { { 0 } };
	ncclComm_t inside;
	CUcontext context;
	CUdeviceptr memory;
	CUdevice device;
	CUstream stream;
	rubato_op *mean;

	check(rubato_init(&all, NULL));
	rank = rubato_rank(all);
	if (size == 0 || rubato_size(all) % size != 0) {
		(void)fprintf(stderr, "%u ranks are no groups of %u\n", rubato_size(all), size);
		return 2;
	}
	check_cuda(cuInit(0));
	check_cuda(cuDeviceGet(&device, (int)(rank % size)));
	check_cuda(cuDevicePrimaryCtxRetain(&context, device));
	check_cuda(cuCtxPushCurrent(context));
	check(rubato_cuda_use(all, RUBATO_CUDA_CURRENT));
	check(rubato_split(all, rank / size, 0, &group));
	check(rubato_split(all, rank % size, 0, &across));
	if (rubato_rank(group) == 0)
		check_nccl(ncclGetUniqueId(&id));
	check(rubato_broadcast(group, &id, sizeof(id), RUBATO_UINT8, 0));
	check_nccl(ncclCommInitRank(&inside, (int)size, id, (int)rubato_rank(group)));
	/* All that waits or makes memory comes before the first start. */
	count = size * SHARD;
	check_cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	check_cuda(cuMemAlloc(&memory, count * sizeof(float)));
	check_cuda(cuMemHostAlloc((void **)(void *)&host, count * sizeof(float), 0));
	gradients = (float *)(uintptr_t)memory;
	shard = gradients + rubato_rank(group) * SHARD;
	check(rubato_op_allreduce(across, shard, shard, SHARD, RUBATO_FLOAT32, RUBATO_AVG, &mean));
	for (int step = 0; step < STEPS; step++) {
		for (uint32_t i = 0; i < count; i++) /* The backward pass. */
			host[i] = (float)(rank + (uint32_t)step);
		check_cuda(cuMemcpyAsync(memory, (CUdeviceptr)(uintptr_t)host, count * 4, stream));
		/* The same order on all ranks: what waits for peers is what holds a stream up. */
		check_nccl(ncclReduceScatter(gradients, shard, SHARD, ncclFloat, ncclSum, inside,
					     stream));
		check(rubato_cuda_start(mean, stream));
		check_nccl(ncclAllGather(shard, gradients, SHARD, ncclFloat, inside, stream));
		check_cuda(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, memory, count * 4, stream));
		check_cuda(cuStreamSynchronize(stream));
		check(rubato_wait(mean, RUBATO_TIMEOUT_DEFAULT)); /* Its error, if it had one. */
		if (rank == 0)
			(void)printf("step %d: %g to %g\n", step, host[0], host[count - 1]);
	}
	rubato_op_free(mean);
	check_nccl(ncclCommDestroy(inside));
	check(rubato_finalize(across));
	check(rubato_finalize(group));
	return rubato_finalize(all) == RUBATO_OK ? 0 : 1;
}
