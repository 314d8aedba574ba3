/*
 * bench_kernels.c -- how fast the kernels are on the first GPU, beside the driver's copy.
 *
 * usage: bench_kernels [MIB [ROUNDS]]
 *
 * A line for each type and number of operands: GB/s of memory read and written, and their part of
 * what a copy of as many bytes moves; medians over rounds, copies and kernels in turn. Exits 1
 * where sums of 2 to 8 of float32 or bfloat16 are below 0.85 of it, 77 without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/kernels.h"
#include "rubato.h"
#include "tests/cuda/device.h"

#define ROUNDS_MAX 101
#define REPEATS 8 /* Launches before a wait. */
#define WANTED 0.85

static const struct {
	const char *name;
	uint32_t bytes;
	bool gradients;
} types[] = {
	{ "f32", 4, true },  { "bf16", 2, true }, { "f16", 2, false },
	{ "f64", 8, false }, { "i8", 1, false },  { "i64", 8, false },
};

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *times, uint32_t count)
{
	qsort(times, count, sizeof(*times), ascending);
	return times[count / 2];
}

struct bench {
	struct device device;
	uint64_t at[RB_CUDA_OPERANDS + 1];
	size_t bytes;
	uint32_t rounds, multiprocessors;
	int error;
};

static double copy_once(struct bench *b)
{
	double begin = now();

	for (uint32_t i = 0; i < REPEATS && b->error == 0; i++)
		b->error = b->device.copy(b->at[0], b->at[1], b->bytes);
	if (b->error == 0)
		b->error = b->device.context_wait();
	return (now() - begin) / REPEATS;
}

static double reduce_once(struct bench *b, const char *kernel, uint32_t element_bytes,
			  const struct rb_cuda_reduce *call)
{
	uint32_t grid = rb_cuda_grid(call->count, element_bytes, b->multiprocessors);
	double begin = now();

	for (uint32_t i = 0; i < REPEATS && b->error == 0; i++)
		b->error = device_run(&b->device, kernel, grid, RB_CUDA_BLOCK, call);
	if (b->error == 0)
		b->error = b->device.context_wait();
	return (now() - begin) / REPEATS;
}

/* The part of a copy's bandwidth that it reaches. */
static double measure(struct bench *b, uint32_t type, rubato_operator op, uint32_t operands)
{
	double copies[ROUNDS_MAX], kernels[ROUNDS_MAX], copy_rate, rate;
	struct rb_cuda_reduce call = {
		.to = (void *)b->at[0],
		.count = b->bytes / types[type].bytes,
		.from_count = operands,
		.op = (uint32_t)op,
		.final_count = op == RUBATO_AVG ? 3 : 0,
	};
	char name[32];

	for (uint32_t k = 0; k < operands; k++)
		call.from[k] = (const void *)b->at[k + 1];
	(void)snprintf(name, sizeof(name), "rb_reduce_%s", types[type].name);
	for (uint32_t i = 0; i < b->rounds; i++) {
		copies[i] = copy_once(b);
		kernels[i] = reduce_once(b, name, types[type].bytes, &call);
	}
	copy_rate = 2.0 * (double)b->bytes / median(copies, b->rounds) * 1e-9;
	rate = (operands + 1.0) * (double)b->bytes / median(kernels, b->rounds) * 1e-9;
	printf("%-5s %-4s %u operands %8.0f GB/s, copy %8.0f GB/s, ratio %.3f\n", types[type].name,
	       rubato_operator_name(op), operands, rate, copy_rate, rate / copy_rate);
	return rate / copy_rate;
}

int main(int argc, char **argv)
{
	static const rubato_operator ops[] = { RUBATO_SUM, RUBATO_AVG, RUBATO_MAX };
	struct bench b = { .bytes = (size_t)(argc > 1 ? atol(argv[1]) : 256) << 20,
			   .rounds = argc > 2 ? (uint32_t)atol(argv[2]) : 9 };
	int multiprocessors = 0, below = 0;
	char name[128] = "";

	if (b.rounds == 0 || b.rounds > ROUNDS_MAX || b.bytes == 0)
		return 2;
	if (!device_open(&b.device))
		return 77;
	(void)b.device.name(name, sizeof(name), b.device.number);
	(void)b.device.attribute(&multiprocessors, DEVICE_MULTIPROCESSORS, b.device.number);
	b.multiprocessors = (uint32_t)multiprocessors;
	printf("%s, %d multiprocessors, %zu MiB an operand\n", name, multiprocessors,
	       b.bytes >> 20);
	for (uint32_t k = 0; k <= RB_CUDA_OPERANDS && b.error == 0; k++)
		b.error = b.device.alloc(&b.at[k], b.bytes);
	for (uint32_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (uint32_t o = 0; o < sizeof(ops) / sizeof(*ops); o++)
			for (uint32_t n = 2; n <= RB_CUDA_OPERANDS && b.error == 0; n++) {
				double ratio = measure(&b, t, ops[o], n);

				below += types[t].gradients && ops[o] != RUBATO_MAX &&
					 ratio < WANTED;
			}
	if (b.error != 0)
		printf("failed: %s\n", device_error(&b.device, b.error));
	return b.error != 0 || below > 0;
}
