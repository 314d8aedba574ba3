/*
 * explore.h -- runs threads one at a time, in orders that it chooses: what tests on real threads
 * meet once in a million runs is met here on purpose, and met again from its seed.
 *
 * The code under test is the library's own, compiled with explore_sync.h in front: each atomic
 * operation, futex, poll, pause and thread start is a *point*, where the explorer may let another
 * thread go on. Threads are fibers. Time is virtual; it moves with the points, and to the next
 * deadline when every thread waits, if the case allows that. A wake-up that was lost is a state in
 * which all threads wait. An execution without end is one of too many points.
 *
 * Memory is sequentially consistent or, with buffers, like x86: a store that is not sequentially
 * consistent stays in its thread's store buffer, invisible to others, until that thread does a
 * sequentially consistent store, an atomic read-modify-write, a fence or a system call, or until
 * the explorer lets it out. Weaker orders than that are not explored, but what they would allow is
 * found for data that explore_shared() names: an access that no chain of release and acquire
 * orders after a conflicting one is a data race, whatever order this execution took.
 */
#ifndef RB_TESTS_EXPLORE_H
#define RB_TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_THREADS 8

enum explore_how {
	EXPLORE_RANDOM, /* Each point: go on, or any other thread. */
	EXPLORE_PCT,    /* Random priorities that change `depth` - 1 times (Burckhardt et al.). */
	EXPLORE_ALL,    /* Every order with at most `depth` preemptions or held-back stores. */
};

struct explore_case {
	const char *name;
	/* Off the record, on the test's own stack; end and close are called after failures too. */
	void *(*open)(void);
	void (*begin)(void *world);
	void (*end)(void *world);
	void (*close)(void *world);
	void (*body)(void *world); /* The first thread. All that it starts must end. */
	bool time_outs;            /* Sleeps may end by their deadline, also injected. */
	uint32_t points_max;       /* Of one execution; more is a livelock. */
	uint32_t fewer;            /* The suite makes so many times fewer executions; 0: not. */
};

struct explore_plan {
	enum explore_how how;
	uint32_t depth;
	uint64_t seed, executions; /* RANDOM, PCT: seeds from here on. ALL: at most so many. */
};

struct explore_result {
	bool failed, complete; /* complete: ALL has seen all there is. */
	uint64_t executions, points, seed, switches, sleeps, buffered, spurious, timed_out;
	char text[1024];  /* What failed. */
	char trace[8192]; /* The last points, of the last execution. */
};

void explore(const struct explore_case *test, const struct explore_plan *plan,
	     struct explore_result *out);

/* ---- In a body ---- */

/* Ends the execution as a failure. */
void explore_expect(bool expected, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What the test's own threads do to each other: a point, and memory that is always consistent. */
void explore_point(const char *what);
/* Lets other threads go first. */
void explore_pause(void);
/* Memory whose plain accesses by memcpy are checked for races in this execution. */
void explore_shared(const void *memory, size_t size_bytes);
/* One of `count`, as the exploration has it. */
uint32_t explore_choose(uint32_t count);

/* Which fault of mutations.py is switched on, from 1; 0: none. */
void explore_mutate(uint32_t mutation);

#endif
