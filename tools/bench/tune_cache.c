/*
 * tune_cache.c -- how fast what lies in caches is read and written.
 *
 * A core's own: copies of ever longer vectors, until they take more than twice as long a byte as
 * the fastest: then both no longer fit. And sums: a copy may be one instruction, a reduction has
 * three streams. Another core's: a process there writes a vector, and this
 * one copies it, the median of many; of two lengths, so that what comes once is told from what
 * each byte takes.
 */
#include "tools/bench/tune_cache.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/clock.h"

#define SHORTEST_BYTES (UINT64_C(128) << 10) /* No longer in a first-level cache. */
#define SUM_BYTES (UINT64_C(64) << 10) /* Three of them are no longer in a first-level cache. */
#define LONGEST_BYTES (UINT64_C(16) << 20)
#define COPY_NS 1000000u
#define COPY_TIMES 3u /* The best counts. */
#define LEAST_NS 1.0 /* The least that a profile's line can say, whose latencies are in 0.001 us. */

#define SHORT_BYTES (UINT64_C(4) << 10)
#define LONG_BYTES (UINT64_C(256) << 10)
#define ROUNDS 401u
#define PATIENCE_NS UINT64_C(2000000000)

double tune_copy_rate(uint64_t size_bytes, uint64_t for_ns)
{
	uint8_t *from = malloc(size_bytes), *to = malloc(size_bytes);
	uint64_t begin = 0, end = 0, copied = 0;

	if (from != NULL && to != NULL) {
		memset(from, 1, size_bytes);
		memset(to, 2, size_bytes);
		begin = clock_ns();
		do {
			memcpy(to, from, size_bytes);
			__asm__ volatile("" ::: "memory"); /* It is not left out. */
			copied += 2 * size_bytes;
			end = clock_ns();
		} while (end - begin < for_ns);
	}
	free(from);
	free(to);
	return end > begin ? (double)copied * 1e9 / (double)(end - begin) : 0;
}

/* As long that compilers that are careful make vectors of it. */
#define SUM_FLOATS 64u

static void sum(float *restrict to, const float *restrict a, const float *restrict b)
{
	for (uint32_t i = 0; i < SUM_FLOATS; i++)
		to[i] = a[i] + b[i];
}

/* Bytes read and written a second. */
static double sum_rate(uint64_t size_bytes)
{
	uint64_t floats = size_bytes / sizeof(float) / SUM_FLOATS * SUM_FLOATS;
	float *memory = calloc(3 * floats, sizeof(*memory));
	float *a = memory, *b = memory + floats, *to = memory + 2 * floats;
	uint64_t begin = clock_ns(), end = begin, added = 0;

	if (memory == NULL)
		return 0;
	for (uint64_t i = 0; i < 3 * floats; i++)
		memory[i] = (float)i;
	do {
		for (uint64_t i = 0; i < floats; i += SUM_FLOATS)
			sum(to + i, a + i, b + i);
		__asm__ volatile("" ::: "memory");
		added += 3 * floats * sizeof(float);
		end = clock_ns();
	} while (end - begin < COPY_NS);
	free(memory);
	return (double)added * 1e9 / (double)(end - begin);
}

/* ---- Another core's ---- */

/* In memory of both. The turn is the writer's where it is even. */
struct meeting {
	_Atomic uint32_t turn;
	uint8_t vector[LONG_BYTES];
};

static bool turn_await(struct meeting *m, uint32_t turn)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	while (atomic_load(&m->turn) != turn)
		if (clock_ns() > until)
			return false;
	return true;
}

static void vectors_write(struct meeting *m, uint64_t size_bytes)
{
	for (uint32_t i = 0; i < ROUNDS && turn_await(m, 2 * i); i++) {
		memset(m->vector, (int)i, size_bytes);
		atomic_store(&m->turn, 2 * i + 1);
	}
}

static int by_length(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of a copy of what the other one wrote, in ns; 0: it did not. */
static double copy_ns(struct meeting *m, uint8_t *to, uint64_t size_bytes)
{
	static double ns[ROUNDS];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t begin;

		if (!turn_await(m, 2 * i + 1))
			return 0;
		begin = clock_ns();
		memcpy(to, m->vector, size_bytes);
		__asm__ volatile("" ::: "memory");
		ns[i] = (double)(clock_ns() - begin);
		atomic_store(&m->turn, 2 * i + 2);
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), by_length);
	return ns[ROUNDS / 2];
}

static bool confine(uint32_t cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

static double copy_of_other_ns(struct meeting *m, uint32_t other, uint64_t size_bytes)
{
	uint8_t *to = malloc(size_bytes);
	double ns = 0;
	pid_t pid;

	if (to == NULL)
		return 0;
	memset(to, 1, size_bytes);
	atomic_store(&m->turn, 0);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (confine(other))
			vectors_write(m, size_bytes);
		_exit(0);
	}
	if (pid > 0) {
		ns = copy_ns(m, to, size_bytes);
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	free(to);
	return ns;
}

/* Two that this process may use; false: there is one only. */
static bool two_processors(const cpu_set_t *may, uint32_t two[2])
{
	uint32_t count = 0;

	for (uint32_t cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
		if (CPU_ISSET(cpu, may))
			two[count++] = cpu;
	return count == 2;
}

static void shared_measure(struct tune_cache *cache)
{
	struct meeting *m;
	uint32_t two[2];
	cpu_set_t before;
	double few, many, byte;

	if (sched_getaffinity(0, sizeof(before), &before) != 0 || !two_processors(&before, two))
		return;
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return;
	memset(m->vector, 1, sizeof(m->vector));
	if (confine(two[0])) {
		/* What is written lies in the own cache. */
		few = copy_of_other_ns(m, two[1], SHORT_BYTES) -
		      (double)SHORT_BYTES * 1e9 / cache->cached;
		many = copy_of_other_ns(m, two[1], LONG_BYTES) -
		       (double)LONG_BYTES * 1e9 / cache->cached;
		(void)sched_setaffinity(0, sizeof(before), &before);
		byte = (many - few) / (double)(LONG_BYTES - SHORT_BYTES);
		if (few > 0 && byte > 0) {
			cache->shared = 1e9 / byte;
			few -= (double)SHORT_BYTES * byte;
			cache->shared_latency_us = (few > LEAST_NS ? few : LEAST_NS) * 1e-3;
		}
	}
	(void)munmap(m, sizeof(*m));
}

/* ---- All of it ---- */

struct tune_cache tune_cache_measure(void)
{
	struct tune_cache cache = { 0 };
	uint64_t fits = 0;

	for (uint64_t size = SHORTEST_BYTES; size <= LONGEST_BYTES; size *= 2) {
		double rate = 0;

		for (uint32_t i = 0; i < COPY_TIMES; i++)
			rate = fmax(rate, tune_copy_rate(size, COPY_NS));

		if (rate < cache.cached / 2)
			break;
		cache.cached = rate > cache.cached ? rate : cache.cached;
		fits = size;
	}
	if (fits == LONGEST_BYTES || fits == 0)
		return (struct tune_cache) { 0 }; /* No end of it was found. */
	cache.size_bytes = 3 * fits;              /* Twice that fits, four times it does not. */
	for (uint32_t i = 0; i < COPY_TIMES; i++)
		cache.reduced = fmax(cache.reduced, sum_rate(SUM_BYTES));
	shared_measure(&cache);
	return cache;
}
