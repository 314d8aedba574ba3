/*
 * explore_memory.c -- what explore_sync.h puts under atomics and system calls: store buffers,
 * modelled futexes, and vector clocks that tell a race in any order of execution.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/faults.h"
#include "tests/interleavings/explore_inside.h"
#include "tests/interleavings/explore_sync.h"

#undef memcpy
#undef ppoll
#undef epoll_wait
#undef write
#undef read

/* ---- Plain memory ---- */

static uint64_t raw_load(const volatile void *at, size_t size_bytes)
{
	switch (size_bytes) {
	case 1:
		return __atomic_load_n((const volatile uint8_t *)at, __ATOMIC_SEQ_CST);
	case 4:
		return __atomic_load_n((const volatile uint32_t *)at, __ATOMIC_SEQ_CST);
	default:
		return __atomic_load_n((const volatile uint64_t *)at, __ATOMIC_SEQ_CST);
	}
}

static void raw_store(volatile void *at, size_t size_bytes, uint64_t value)
{
	switch (size_bytes) {
	case 1:
		__atomic_store_n((volatile uint8_t *)at, (uint8_t)value, __ATOMIC_SEQ_CST);
		break;
	case 4:
		__atomic_store_n((volatile uint32_t *)at, (uint32_t)value, __ATOMIC_SEQ_CST);
		break;
	default:
		__atomic_store_n((volatile uint64_t *)at, value, __ATOMIC_SEQ_CST);
	}
}

static bool acquires(int order)
{
	return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME ||
	       order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
	return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

/* ---- What happened before ---- */

void memory_learn(clocks into, const clocks from)
{
	for (uint32_t i = 0; i < EXPLORE_THREADS; i++)
		into[i] = from[i] > into[i] ? from[i] : into[i];
}

static struct release *release_of(const volatile void *at)
{
	size_t slot = rb_mix((uintptr_t)at) % EXPLORE_RELEASES;

	for (size_t i = 0; i < EXPLORE_RELEASES; i++) {
		struct release *r = &explorer->releases[(slot + i) % EXPLORE_RELEASES];

		if (r->at == at || r->at == NULL) {
			r->at = at;
			return r;
		}
	}
	explorer_fail("more than %d atomic words in one execution", EXPLORE_RELEASES);
}

static void acquire(const volatile void *at, int order)
{
	if (acquires(order))
		memory_learn(self()->seen, release_of(at)->seen);
}

static void published(clocks out, int order)
{
	memset(out, 0, sizeof(clocks));
	if (!releases(order))
		return;
	memcpy(out, self()->seen, sizeof(clocks));
	self()->seen[explorer->current]++;
}

void memory_begin(void)
{
	memset(explorer->releases, 0, sizeof(explorer->releases));
	explorer->shared_count = 0;
}

void memory_end(void)
{
	for (uint32_t i = 0; i < EXPLORE_SHARED; i++)
		free(explorer->lines[i]);
}

void explore_shared(const void *memory, size_t size_bytes)
{
	size_t count = size_bytes / EXPLORE_LINE + 1;
	uint32_t i = explorer->shared_count++;

	if (i == EXPLORE_SHARED)
		abort();
	if (explorer->line_counts[i] < count) {
		free(explorer->lines[i]);
		explorer->lines[i] = calloc(count, sizeof(struct line_use));
		explorer->line_counts[i] = count;
		if (explorer->lines[i] == NULL)
			abort();
	}
	explorer->shared[i] = memory;
	explorer->shared_bytes[i] = size_bytes;
}

static void line_check(struct line_use *line, bool writes, struct explore_place place)
{
	const uint32_t *seen = self()->seen;

	if (line->execution != explorer->result->executions + 1) {
		memset(line, 0, sizeof(*line));
		line->execution = explorer->result->executions + 1;
	}
	if (line->write_clock > seen[line->writer])
		explorer_fail("data race: thread %u %s at %s:%d what thread %u wrote",
			      explorer->current, writes ? "overwrites" : "reads", place.function,
			      place.line, line->writer);
	if (!writes) {
		line->reads[explorer->current] = seen[explorer->current];
		return;
	}
	for (uint32_t i = 0; i < EXPLORE_THREADS; i++)
		if (line->reads[i] > seen[i])
			explorer_fail("data race: thread %u overwrites at %s:%d what thread %u "
				      "may be reading",
				      explorer->current, place.function, place.line, i);
	line->writer = explorer->current;
	line->write_clock = seen[explorer->current];
}

static void range_check(const void *memory, size_t size_bytes, bool writes,
			struct explore_place place)
{
	const uint8_t *at = memory;

	for (uint32_t i = 0; i < explorer->shared_count; i++) {
		size_t offset = (size_t)(at - explorer->shared[i]);

		if (at < explorer->shared[i] || offset >= explorer->shared_bytes[i])
			continue;
		for (size_t l = offset / EXPLORE_LINE;
		     size_bytes > 0 && l <= (offset + size_bytes - 1) / EXPLORE_LINE; l++)
			line_check(&explorer->lines[i][l], writes, place);
	}
}

void *explore_copy(void *to, const void *from, size_t size_bytes, struct explore_place place)
{
	if (exploring() && explorer->shared_count > 0) {
		range_check(from, size_bytes, false, place);
		range_check(to, size_bytes, true, place);
	}
	return memcpy(to, from, size_bytes);
}

/* ---- Store buffers ---- */

static void let_out(struct thread *t)
{
	struct held_store *first = &t->held[0];

	raw_store(first->at, first->size_bytes, first->value);
	memcpy(release_of(first->at)->seen, first->released, sizeof(clocks));
	t->held_count--;
	memmove(first, first + 1, t->held_count * sizeof(*first));
}

void memory_flush(struct thread *t)
{
	while (t->held_count > 0)
		let_out(t);
}

void memory_flush_some(void)
{
	for (uint32_t i = 0; i < explorer->count; i++)
		if (explorer->threads[i].held_count > 0 && explorer_chance(8))
			let_out(&explorer->threads[i]);
}

/* The value as this thread sees it. */
static uint64_t see(const volatile void *at, size_t size_bytes)
{
	const struct thread *t = self();

	for (uint32_t i = t->held_count; i > 0; i--)
		if (t->held[i - 1].at == at)
			return t->held[i - 1].value;
	return raw_load(at, size_bytes);
}

static void put(volatile void *at, size_t size_bytes, uint64_t value, int order)
{
	struct thread *t = self();
	struct held_store *h;
	clocks released;

	published(released, order);
	if (order != __ATOMIC_SEQ_CST && (t->held_count > 0 || explorer_deviates(2))) {
		if (t->held_count == EXPLORE_BUFFER)
			let_out(t);
		h = &t->held[t->held_count++];
		*h = (struct held_store) { at, size_bytes, value, { 0 } };
		memcpy(h->released, released, sizeof(clocks));
		explorer->result->buffered++;
		return;
	}
	memory_flush(t);
	raw_store(at, size_bytes, value);
	memcpy(release_of(at)->seen, released, sizeof(clocks));
}

/* ---- Atomics ---- */

uint64_t explore_load(const volatile void *at, size_t size_bytes, int order,
		      struct explore_place place)
{
	uint64_t value;

	if (!exploring())
		return raw_load(at, size_bytes);
	explorer_point(place.function, place.line, "load", size_bytes);
	value = see(at, size_bytes);
	acquire(at, order);
	return value;
}

void explore_store(volatile void *at, size_t size_bytes, uint64_t value, int order,
		   struct explore_place place)
{
	if (!exploring()) {
		raw_store(at, size_bytes, value);
		return;
	}
	explorer_point(place.function, place.line, "store", value);
	put(at, size_bytes, value, order);
}

/* A read-modify-write: what was released before stays released. */
static void change(volatile void *at, size_t size_bytes, uint64_t value, int order)
{
	clocks released;

	acquire(at, order);
	published(released, order);
	raw_store(at, size_bytes, value);
	memory_learn(release_of(at)->seen, released);
}

uint64_t explore_exchange(volatile void *at, size_t size_bytes, uint64_t value, int order,
			  struct explore_place place)
{
	uint64_t before;

	if (exploring()) {
		explorer_point(place.function, place.line, "exchange", value);
		memory_flush(self());
	}
	before = raw_load(at, size_bytes);
	if (exploring())
		change(at, size_bytes, value, order);
	else
		raw_store(at, size_bytes, value);
	return before;
}

uint64_t explore_add(volatile void *at, size_t size_bytes, uint64_t value, int order,
		     struct explore_place place)
{
	uint64_t before;

	if (exploring()) {
		explorer_point(place.function, place.line, "add", value);
		memory_flush(self());
	}
	before = raw_load(at, size_bytes);
	if (exploring())
		change(at, size_bytes, before + value, order);
	else
		raw_store(at, size_bytes, before + value);
	return before;
}

bool explore_compare(volatile void *at, size_t size_bytes, void *seen, uint64_t value, int order,
		     struct explore_place place)
{
	uint64_t expected = raw_load(seen, size_bytes), found;

	if (exploring()) {
		explorer_point(place.function, place.line, "compare-exchange", value);
		memory_flush(self());
	}
	found = raw_load(at, size_bytes);
	if (found != expected) {
		raw_store(seen, size_bytes, found);
		return false;
	}
	if (exploring())
		change(at, size_bytes, value, order);
	else
		raw_store(at, size_bytes, value);
	return true;
}

void explore_fence(int order, struct explore_place place)
{
	if (!exploring())
		return;
	explorer_point(place.function, place.line, "fence", 0);
	if (order == __ATOMIC_SEQ_CST)
		memory_flush(self());
}

/* ---- Futexes ---- */

bool rb_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct thread *t;

	if (!exploring()) { /* Ranks connect on real threads. */
		while (raw_load(word, sizeof(*word)) == seen && rb_clock_ns() < deadline_ns)
			(void)sched_yield();
		return raw_load(word, sizeof(*word)) != seen;
	}
	explorer_point("rb_futex_wait", 0, "while", seen);
	t = self();
	memory_flush(t);
	if (raw_load(word, sizeof(*word)) != seen)
		return true;
	if (explorer->now_ns >= deadline_ns)
		return false;
	explorer->result->sleeps++;
	t->state = THREAD_FUTEX;
	t->futex = word;
	t->deadline_ns = deadline_ns;
	t->where = "rb_futex_wait";
	explorer_block();
	return !t->timed_out;
}

void rb_futex_wake(_Atomic uint32_t *word, uint32_t count)
{
	if (!exploring())
		return;
	explorer_point("rb_futex_wake", 0, "threads", count);
	memory_flush(self());
	/* Which of several is not said: any. */
	for (uint32_t first = explorer->count > 0 ? explorer_choice(explorer->count) : 0, i = 0;
	     i < explorer->count && count > 0; i++) {
		struct thread *t = &explorer->threads[(first + i) % explorer->count];

		if (t->state != THREAD_FUTEX || t->futex != word)
			continue;
		t->state = THREAD_READY;
		count--;
	}
}

/* ---- System calls: each is a point, and no store stays behind ---- */

int explore_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *span,
		  const sigset_t *mask)
{
	static const struct timespec at_once;
	struct thread *t;
	int ready;

	if (!exploring())
		return ppoll(fds, count, span, mask);
	explorer_point("ppoll", 0, "descriptors", count);
	t = self();
	ready = ppoll(fds, count, &at_once, mask);
	if (ready != 0)
		return ready;
	explorer->result->sleeps++;
	t->state = THREAD_POLL;
	t->fds = fds;
	t->fd_count = count;
	t->deadline_ns = span == NULL ? UINT64_MAX
				      : explorer->now_ns + (uint64_t)span->tv_sec * 1000000000u +
						(uint64_t)span->tv_nsec;
	t->where = "ppoll";
	explorer_block();
	return t->timed_out ? 0 : ppoll(fds, count, &at_once, mask);
}

int explore_epoll(int epoll, struct epoll_event *events, int count, int span_ms)
{
	if (exploring()) {
		explorer_point("epoll_wait", 0, "events", (uint64_t)count);
		memory_flush(self());
	}
	return epoll_wait(epoll, events, count, span_ms);
}

ssize_t explore_write(int fd, const void *data, size_t size_bytes, struct explore_place place)
{
	if (exploring()) {
		explorer_point(place.function, place.line, "write", 0);
		memory_flush(self());
	}
	return write(fd, data, size_bytes);
}

ssize_t explore_read(int fd, void *data, size_t size_bytes, struct explore_place place)
{
	if (exploring()) {
		explorer_point(place.function, place.line, "read", 0);
		memory_flush(self());
	}
	return read(fd, data, size_bytes);
}

/* ---- Mutations ---- */

static uint32_t mutation_on;

void explore_mutate(uint32_t mutation)
{
	mutation_on = mutation;
}

bool fault_chosen(unsigned int number)
{
	return number == mutation_on;
}
