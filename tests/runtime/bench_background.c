/*
 * bench_background.c -- what taking part in the background costs a rank that computes.
 *
 * rubato-run -n 2 build/tests/runtime/bench_background [MIB [ROUNDS_PER_SECOND [WINDOWS]]]
 *
 * Rank 0 counts its own work for 200 ms at a time without entering the library: in even windows
 * nobody does anything else, in odd ones the others run solo rounds. Its loss is what it counts
 * less; the progress thread's CPU time is the process's less that of the computing thread.
 * The others' time in the call is compared with rounds during which rank 0 waits in the library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rubato_sim.h"

#define WINDOW_NS 200000000u

struct bench {
	rubato_comm *comm;
	rubato_partial *partial;
	uint64_t count, step, rounds; /* rounds: in a window. */
	uint64_t call_ns, calls;
};

static uint64_t clock_get(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void check(rubato_status err)
{
	if (err == RUBATO_OK)
		return;
	(void)fprintf(stderr, "bench_background: %s\n", rubato_error_text());
	exit(1);
}

static void collect(struct bench *b)
{
	const void *result;

	do {
		check(rubato_partial_collect_view(b->partial, &result, NULL,
						  RUBATO_TIMEOUT_DEFAULT));
		if (result != NULL)
			check(rubato_partial_release(b->partial));
	} while (result != NULL);
}

/* Work until `end`, in pieces of some 2 us. Returns how many. */
static uint64_t compute(rubato_comm *comm, uint64_t end)
{
	volatile uint64_t x = 1;
	uint64_t pieces = 0;

	while (rubato_now(comm) < end) {
		for (int i = 0; i < 1000; i++)
			x = x * 6364136223846793005u + 1;
		pieces++;
	}
	return pieces;
}

static void rounds_run(struct bench *b, uint64_t begin)
{
	for (uint64_t k = 0; k < b->rounds; k++) {
		uint64_t at = begin + k * WINDOW_NS / b->rounds, now = rubato_now(b->comm);
		void *buffer;

		check(rubato_partial_acquire(b->partial, &buffer));
		memset(buffer, 0, b->count * sizeof(float));
		if (at > now)
			rubato_sleep(b->comm, at - now);
		now = rubato_now(b->comm);
		check(rubato_partial_commit(b->partial, b->step++, 1));
		collect(b);
		b->call_ns += rubato_now(b->comm) - now;
		b->calls++;
	}
}

/* All are in the library: rank 0 drains and collects while the others commit. */
static void window_end(struct bench *b)
{
	uint64_t steps = 0;

	check(rubato_partial_drain(b->partial));
	collect(b);
	check(rubato_allreduce(b->comm, &b->step, &steps, 1, RUBATO_UINT64, RUBATO_MAX));
	b->step = steps;
}

struct window {
	uint64_t pieces, own_ns, process_ns, reduce_ns;
};

static struct window window_compute(struct bench *b, uint64_t begin)
{
	rubato_partial_stats before = { .size_bytes = sizeof(before) }, after = before;
	uint64_t own, process;
	struct window w;

	check(rubato_partial_get_stats(b->partial, &before));
	own = clock_get(CLOCK_THREAD_CPUTIME_ID);
	process = clock_get(CLOCK_PROCESS_CPUTIME_ID);
	w.pieces = compute(b->comm, begin + WINDOW_NS);
	w.own_ns = clock_get(CLOCK_THREAD_CPUTIME_ID) - own;
	w.process_ns = clock_get(CLOCK_PROCESS_CPUTIME_ID) - process;
	check(rubato_partial_get_stats(b->partial, &after));
	w.reduce_ns = after.round_ns[3] - before.round_ns[3];
	return w;
}

static void report(const struct window *sum, uint64_t windows, double per_window)
{
	double quiet = (double)sum[0].pieces, busy = (double)sum[1].pieces;
	double wall = (double)windows * WINDOW_NS;
	double others = (double)(sum[1].process_ns - sum[1].own_ns) -
			(double)(sum[0].process_ns - sum[0].own_ns);

	(void)printf("rounds in a window of 200 ms        %10.0f\n", per_window);
	(void)printf("work lost beside rounds             %9.2f%%\n", 100 * (1 - busy / quiet));
	(void)printf("progress thread's CPU time          %9.2f%% of a core\n",
		     100 * others / wall);
	(void)printf("  rounds were in their reductions   %9.2f%% of the time\n",
		     100 * (double)sum[1].reduce_ns / wall);
	(void)printf("  CPU time beyond these             %9.2f%% of a core\n",
		     100 * (others - (double)sum[1].reduce_ns) / wall);
}

int main(int argc, char **argv)
{
	double mib = argc > 1 ? atof(argv[1]) : 4, rate = argc > 2 ? atof(argv[2]) : 20;
	uint64_t windows = argc > 3 ? strtoull(argv[3], NULL, 10) : 10, us[3] = { 0 };
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	struct bench b = { .count = (uint64_t)(mib * (1 << 18)) };
	struct window sum[2] = { { 0 }, { 0 } };

	b.rounds = (uint64_t)(rate * WINDOW_NS * 1e-9);
	check(rubato_init(&b.comm, NULL));
	options.depth = (uint32_t)b.rounds + 2; /* Rank 0 releases nothing meanwhile. */
	check(rubato_partial_create(b.comm, b.count, RUBATO_FLOAT32, RUBATO_SUM, &options,
				    &b.partial));
	for (uint64_t w = 0; w < 3 * (windows + 1); w++) {
		int kind =
			(int)(w % 3); /* Quiet; rounds beside rank 0's work; beside its waiting. */

		check(rubato_barrier(b.comm));
		uint64_t begin = rubato_now(b.comm);

		b.call_ns = b.calls = 0;
		if (rubato_rank(b.comm) == 0 && kind < 2) {
			struct window one = window_compute(&b, begin);

			sum[kind].pieces += w < 3 ? 0 : one.pieces;
			sum[kind].own_ns += w < 3 ? 0 : one.own_ns;
			sum[kind].process_ns += w < 3 ? 0 : one.process_ns;
			sum[kind].reduce_ns += w < 3 ? 0 : one.reduce_ns;
		} else if (rubato_rank(b.comm) != 0 && kind > 0) {
			rounds_run(&b, begin);
		}
		us[kind] += w < 3 || b.calls == 0 ? 0 : b.call_ns / b.calls / 1000;
		window_end(&b);
	}
	if (rubato_rank(b.comm) == 0)
		report(sum, windows, (double)b.rounds);
	check(rubato_barrier(b.comm));
	if (rubato_rank(b.comm) == 1)
		(void)printf("in call: %.0f us while rank 0 computes, %.0f us while it waits\n",
			     (double)us[1] / (double)windows, (double)us[2] / (double)windows);
	check(rubato_partial_free(b.partial));
	check(rubato_finalize(b.comm));
	return 0;
}
