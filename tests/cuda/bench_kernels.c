/*
 * bench_kernels.c -- how fast the kernels are on the first GPU, beside the driver's copy.
 *
 * usage: bench_kernels [MIB [ROUNDS]]
 *
 * A line for each type and number of operands, and for each of the other kernels: GB/s of memory
 * read and written, and their part of what copies move; medians over rounds, copies and kernels in
 * turn. Exits 1 where sums of 2 to 8 of float32 or bfloat16 are below 0.85 of it, 77 without a GPU.
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

static double kernel_once(struct bench *b, const char *kernel, uint64_t count,
			  uint32_t element_bytes, const void *call)
{
	uint32_t grid = rb_cuda_grid(count, element_bytes, b->multiprocessors);
	double begin = now();

	for (uint32_t i = 0; i < REPEATS && b->error == 0; i++)
		b->error = device_run(&b->device, kernel, grid, RB_CUDA_BLOCK, call);
	if (b->error == 0)
		b->error = b->device.context_wait();
	return (now() - begin) / REPEATS;
}

/* The part of a copy's bandwidth that a kernel reaches which moves `moved` bytes. */
static double measure(struct bench *b, const char *kernel, const char *what, uint64_t count,
		      uint32_t element_bytes, double moved, const void *call)
{
	double copies[ROUNDS_MAX], kernels[ROUNDS_MAX], copy_rate, rate;

	for (uint32_t i = 0; i < b->rounds; i++) {
		copies[i] = copy_once(b);
		kernels[i] = kernel_once(b, kernel, count, element_bytes, call);
	}
	copy_rate = 2.0 * (double)b->bytes / median(copies, b->rounds) * 1e-9;
	rate = moved / median(kernels, b->rounds) * 1e-9;
	printf("%-20s %-16s %8.0f GB/s, copy %8.0f GB/s, ratio %.3f\n", kernel, what, rate,
	       copy_rate, rate / copy_rate);
	return rate / copy_rate;
}

static double reduce(struct bench *b, uint32_t type, rubato_operator op, uint32_t operands)
{
	struct rb_cuda_reduce call = {
		.to = (void *)b->at[0],
		.count = b->bytes / types[type].bytes,
		.from_count = operands,
		.op = (uint32_t)op,
		.final_count = op == RUBATO_AVG ? 3 : 0,
	};
	char name[32], what[32];

	for (uint32_t k = 0; k < operands; k++)
		call.from[k] = (const void *)b->at[k + 1];
	(void)snprintf(name, sizeof(name), "rb_reduce_%s", types[type].name);
	(void)snprintf(what, sizeof(what), "%s of %u", rubato_operator_name(op), operands);
	return measure(b, name, what, call.count, types[type].bytes,
		       (operands + 1.0) * (double)b->bytes, &call);
}

/* Vectors of floats of as many bytes as the others'. */
static void others(struct bench *b)
{
	const uint64_t count = b->bytes / sizeof(float);
	const double bytes = (double)b->bytes;
	float *at[5];

	for (uint32_t i = 0; i < 5; i++)
		at[i] = (float *)b->at[i];
	struct rb_cuda_convert convert = { at[0], at[1], count };
	struct rb_cuda_coded coded = { at[0], at[2], count, 1, 0, { at[1] } };
	struct rb_cuda_coded sum = { at[0], NULL, count / 128, 2, 0, { at[1], at[2] } };
	struct rb_cuda_sgd sgd = { at[0], at[1], at[2], count, 0.1f, 0.9f, 0.01f, 0 };
	struct rb_cuda_adam adam = { at[0],  at[1], at[2], at[3], count, 0.1f, 0.9f,
				     0.999f, 1e-8f, 0.0f,  0.0f,  1.0f,  1.0f };

	(void)measure(b, "rb_narrow_bf16", "", count, 4, 1.5 * bytes, &convert);
	(void)measure(b, "rb_widen_bf16", "", count, 4, 1.5 * bytes, &convert);
	(void)measure(b, "rb_encode_bf16", "with residual", count, 4, 3.5 * bytes, &coded);
	(void)measure(b, "rb_encode_int8", "with residual", count, 4, 3.26 * bytes, &coded);
	(void)measure(b, "rb_decode_int8", "", count, 4, 1.26 * bytes, &coded);
	(void)measure(b, "rb_reduce_coded_int8", "of 2", count, 4, 0.77 * bytes, &sum);
	(void)measure(b, "rb_sgd", "momentum, decay", count, 4, 5.0 * bytes, &sgd);
	(void)measure(b, "rb_adam", "", count, 4, 7.0 * bytes, &adam);
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
				double ratio = reduce(&b, t, ops[o], n);

				below += types[t].gradients && ops[o] != RUBATO_MAX &&
					 ratio < WANTED;
			}
	if (b.error == 0)
		others(&b);
	if (b.error != 0)
		printf("failed: %s\n", device_error(&b.device, b.error));
	return b.error != 0 || below > 0;
}
