/*
 * bench_reduce.c -- every type and operator of a reduction kernel against the memory: by how much
 * is a reduction of two operands into a third buffer slower than a plain loop c = a + b of floats
 * over as many bytes? Not a test: times depend on the machine, and on who else uses it.
 *
 *   bench_reduce [MIB [ROUNDS [KERNEL]]]      (16, 21, the widest)
 *
 * Each round times the plain loop, then each cell, interleaved, so that all see the same machine;
 * `ratio` is the median over rounds of (nearest plain loop's time / cell's time): 1 is as fast,
 * more is faster; `of best` compares the fastest of each, which others' work disturbs less. Exit
 * status 1 when a ratio is below 0.90.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "collectives/reduce/kernels.h"

#define ROUNDS_MAX 1001
#define CELLS (RUBATO_TYPE_COUNT * RUBATO_OPERATOR_COUNT)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static __attribute__((noinline)) void plain_loop(const float *restrict a, const float *restrict b,
						 float *restrict c, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		c[i] = a[i] + b[i];
}

static double plain_us(void *const buffers[3], uint64_t bytes)
{
	double begin = now_us();

	plain_loop(buffers[0], buffers[1], buffers[2], bytes / sizeof(float));
	return now_us() - begin;
}

static double cell_us(rb_reduce_fn fn, uint32_t cell, void *const buffers[3], uint64_t bytes)
{
	const void *from[] = { buffers[0], buffers[1] };
	struct rb_reduce r = {
		.type = (rubato_type)(cell / RUBATO_OPERATOR_COUNT),
		.op = (rubato_operator)(cell % RUBATO_OPERATOR_COUNT),
		.to = buffers[2],
		.from = from,
		.from_count = 2,
		.final_count = 3, /* AVG: no power of two. */
	};
	double begin = now_us();

	r.count = bytes / rubato_type_bytes(r.type);
	fn(&r);
	return now_us() - begin;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[count / 2];
}

/* Small integers and ordinary floats in every type: no subnormals, no NaN. */
static void fill(void *buffer, uint64_t bytes)
{
	struct rb_rng rng = { 5 };
	uint8_t *at = buffer;

	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(i % 2 == 0 ? rb_rng_next(&rng) : 0x3c + rb_rng_next(&rng) % 4);
}

static rb_reduce_fn kernel_named(const char *name)
{
	rb_reduce_fn fn;

	if (name == NULL)
		return rb_reduce_best();
	for (uint32_t i = 0; (fn = rb_reduce_kernel(i)) != NULL; i++)
		if (strcmp(rb_reduce_name(fn), name) == 0 && rb_reduce_usable(fn))
			return fn;
	return NULL;
}

int main(int argc, char **argv)
{
	static double times[CELLS][ROUNDS_MAX], ratios[CELLS][ROUNDS_MAX], plain[ROUNDS_MAX];
	uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20;
	uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 21, slow = 0;
	rb_reduce_fn fn = kernel_named(argc > 3 ? argv[3] : NULL);
	void *buffers[3];

	if (fn == NULL || rounds == 0 || rounds > ROUNDS_MAX || bytes == 0)
		return 2;
	for (uint32_t i = 0; i < 3; i++) {
		if (posix_memalign(&buffers[i], 4096, bytes) != 0)
			return 2;
		fill(buffers[i], bytes);
	}
	for (uint32_t round = 0; round < rounds; round++) {
		for (uint32_t cell = 0; cell < CELLS; cell++) {
			double reference = plain_us(buffers, bytes);
			double time = cell_us(fn, cell, buffers, bytes);

			plain[round] =
				cell == 0 || reference < plain[round] ? reference : plain[round];
			times[cell][round] = time;
			ratios[cell][round] = reference / time;
		}
	}
	printf("# %s kernel, %llu MiB a buffer, %u rounds; plain loop %.1f us\n",
	       rb_reduce_name(fn), (unsigned long long)(bytes >> 20), rounds,
	       median(plain, rounds));
	printf("%-10s%-6s%12s%10s%10s\n", "# type", "redop", "time(us)", "ratio", "of best");
	for (uint32_t cell = 0; cell < CELLS; cell++) {
		double ratio = median(ratios[cell], rounds), time = median(times[cell], rounds);

		printf("%-10s%-6s%12.1f%10.3f%10.3f%s\n",
		       rubato_type_name((rubato_type)(cell / RUBATO_OPERATOR_COUNT)),
		       rubato_operator_name((rubato_operator)(cell % RUBATO_OPERATOR_COUNT)), time,
		       ratio, plain[0] / times[cell][0], ratio < 0.9 ? "  below 0.90" : "");
		slow += ratio < 0.9;
	}
	printf("# %u of %u below 0.90\n", slow, (unsigned)CELLS);
	return slow > 0 ? 1 : 0;
}
