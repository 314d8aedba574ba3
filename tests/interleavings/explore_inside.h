/* explore_inside.h -- private to explore*.c: who runs, what each thread waits for, what it
 * holds. */
#ifndef RB_TESTS_EXPLORE_INSIDE_H
#define RB_TESTS_EXPLORE_INSIDE_H

#include <poll.h>

#include "base/rng.h"
#include "base/sync.h"
#include "tests/interleavings/explore.h"
#include "transport/sim/fiber.h"

#define EXPLORE_BUFFER 16    /* Stores that one thread can hold back. */
#define EXPLORE_TRAIL 65536  /* Choices of one execution that are remembered. */
#define EXPLORE_TRACE 128    /* Last points that a failure shows. */
#define EXPLORE_RELEASES 512 /* Atomic words of one execution. */
#define EXPLORE_LINE 64u     /* Bytes; races are looked for line by line. */
#define EXPLORE_SHARED 4     /* Spans of memory in which they are looked for. */

enum thread_state {
	THREAD_NONE,
	THREAD_READY,
	THREAD_FUTEX,
	THREAD_POLL,
	THREAD_JOIN,
	THREAD_DONE
};

typedef uint32_t clocks[EXPLORE_THREADS];

struct held_store {
	volatile void *at;
	size_t size_bytes;
	uint64_t value;
	clocks released;
};

struct thread {
	struct rb_fiber *fiber; /* Runs one execution after the other, while they end well. */
	void *(*main)(void *);
	void *arg;
	enum thread_state state;
	bool yielded, timed_out;
	_Atomic uint32_t *futex;
	struct pollfd *fds;
	nfds_t fd_count;
	uint32_t joins;
	uint64_t deadline_ns;
	const char *where;
	int line;
	int32_t priority;
	struct held_store held[EXPLORE_BUFFER];
	uint32_t held_count;
	clocks seen; /* Happened before this thread's next step. */
};

struct release { /* What a thread that acquires this word learns. */
	const volatile void *at;
	clocks seen;
};

struct line_use {
	uint64_t execution; /* What an earlier one left here does not count. */
	uint32_t writer, write_clock;
	clocks reads;
};

struct choice {
	uint8_t taken, count;
};

struct event {
	uint32_t thread, line;
	const char *function, *what;
	uint64_t value;
};

struct explorer {
	const struct explore_case *test;
	const struct explore_plan *plan;
	struct explore_result *result;
	void *world;
	struct thread threads[EXPLORE_THREADS];
	uint32_t count, current;
	bool inside, over;
	uint64_t now_ns, points;
	struct rb_rng rng;
	int32_t lowest;          /* Priority handed out last to one that steps back. */
	uint64_t changes[8];     /* PCT: points at which the running thread steps back. */
	struct choice *trail;    /* ALL: the choices of this execution ... */
	uint32_t trail_count;    /* ... so many from the one before, */
	uint32_t trail_at, cost; /* ... so many made. */
	struct event events[EXPLORE_TRACE];
	uint64_t event_count;
	struct release releases[EXPLORE_RELEASES];
	const uint8_t *shared[EXPLORE_SHARED];
	size_t shared_bytes[EXPLORE_SHARED], line_counts[EXPLORE_SHARED];
	struct line_use *lines[EXPLORE_SHARED]; /* Kept for the next execution. */
	uint32_t shared_count;
};

/* The one exploration of this process; hooks find it only here. NULL: not under way. */
extern struct explorer *explorer;

static inline struct thread *self(void)
{
	return &explorer->threads[explorer->current];
}

static inline bool exploring(void)
{
	return explorer != NULL && explorer->inside;
}

/* explore.c */
void explorer_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void explorer_point(const char *function, int line, const char *what, uint64_t value);
/* The current thread cannot go on until its state is READY again. */
void explorer_block(void);
bool explorer_chance(uint32_t one_in); /* Not for ALL, whose choices count: false there. */
/* Whether to do what is not the normal course; ALL: if that is still within its bound. */
bool explorer_deviates(uint32_t one_in);
uint32_t explorer_choice(uint32_t count);

/* explore_memory.c */
void memory_begin(void);
void memory_end(void);
void memory_flush(struct thread *thread);
void memory_flush_some(void);
void memory_learn(clocks into, const clocks from);

#endif
