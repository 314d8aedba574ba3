/*
 * explore.c -- threads as fibers, and who goes on at each point.
 *
 * RANDOM and PCT draw from the seed of the execution. ALL keeps the trail of choices of the
 * execution before, and takes at the last one that has another option left that option.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/interleavings/explore_inside.h"

#define STACK_BYTES (256u << 10)
#define POINT_NS 50 /* Virtual: an atomic operation and what is around it. */

struct explorer *explorer;

/* ---- Failure ---- */

static void trace_write(void)
{
	struct explore_result *out = explorer->result;
	uint64_t first =
		explorer->event_count > EXPLORE_TRACE ? explorer->event_count - EXPLORE_TRACE : 0;
	size_t used = 0;

	for (uint64_t i = first; i < explorer->event_count; i++) {
		const struct event *e = &explorer->events[i % EXPLORE_TRACE];
		int wrote = snprintf(out->trace + used, sizeof(out->trace) - used,
				     "    %llu: thread %u %s:%u %s %llx\n", (unsigned long long)i,
				     e->thread, e->function, e->line, e->what,
				     (unsigned long long)e->value);

		if (wrote < 0 || (size_t)wrote >= sizeof(out->trace) - used)
			break;
		used += (size_t)wrote;
	}
}

void explorer_fail(const char *format, ...)
{
	struct explore_result *out = explorer->result;
	va_list args;

	if (!out->failed) {
		va_start(args, format);
		(void)vsnprintf(out->text, sizeof(out->text), format, args);
		va_end(args);
		trace_write();
	}
	out->failed = true;
	explorer->over = true;
	for (;;)
		rb_fiber_leave(self()->fiber); /* For good. */
}

void explore_expect(bool expected, const char *format, ...)
{
	char text[512];
	va_list args;

	if (expected)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	explorer_fail("%s", text);
}

/* ---- Choices ---- */

static uint32_t trail_choice(uint32_t count)
{
	struct choice *c = &explorer->trail[explorer->trail_at];

	if (count <= 1)
		return 0;
	if (explorer->trail_at == EXPLORE_TRAIL)
		explorer_fail("more than %d choices in one execution", EXPLORE_TRAIL);
	if (explorer->trail_at++ < explorer->trail_count) {
		if (c->count != count)
			explorer_fail("not deterministic: %u options where there were %u", count,
				      c->count);
		return c->taken;
	}
	*c = (struct choice) { 0, (uint8_t)count };
	explorer->trail_count = explorer->trail_at;
	return 0;
}

/* To the next trail; false: that was the last. */
static bool trail_next(void)
{
	while (explorer->trail_count > 0) {
		struct choice *c = &explorer->trail[explorer->trail_count - 1];

		if (c->taken + 1 < c->count) {
			c->taken++;
			return true;
		}
		explorer->trail_count--;
	}
	return false;
}

uint32_t explorer_choice(uint32_t count)
{
	if (explorer->plan->how == EXPLORE_ALL)
		return trail_choice(count);
	return count <= 1 ? 0 : (uint32_t)(rb_rng_next(&explorer->rng) % count);
}

uint32_t explore_choose(uint32_t count)
{
	return explorer_choice(count);
}

bool explorer_chance(uint32_t one_in)
{
	return explorer->plan->how != EXPLORE_ALL && rb_rng_next(&explorer->rng) % one_in == 0;
}

bool explorer_deviates(uint32_t one_in)
{
	if (explorer->plan->how != EXPLORE_ALL)
		return explorer_chance(one_in);
	if (explorer->cost >= explorer->plan->depth || trail_choice(2) == 0)
		return false;
	explorer->cost++;
	return true;
}

/* ---- Who waits for what ---- */

static bool thread_ready(struct thread *t)
{
	static const struct timespec at_once;

	if (t->state == THREAD_POLL && ppoll(t->fds, t->fd_count, &at_once, NULL) > 0)
		t->state = THREAD_READY;
	if (t->state == THREAD_JOIN && explorer->threads[t->joins].state == THREAD_DONE)
		t->state = THREAD_READY;
	return t->state == THREAD_READY;
}

static bool thread_timed(const struct thread *t)
{
	return (t->state == THREAD_FUTEX || t->state == THREAD_POLL) &&
	       t->deadline_ns != UINT64_MAX;
}

static void thread_time_out(struct thread *t)
{
	if (explorer->now_ns < t->deadline_ns)
		explorer->now_ns = t->deadline_ns;
	t->timed_out = true;
	t->state = THREAD_READY;
	explorer->result->timed_out++;
}

/* What sleepers must stand at any time: futexes that wake for no reason, and late wake-ups. */
static void disturb(void)
{
	struct thread *t = &explorer->threads[explorer_choice(explorer->count)];

	if (t->state == THREAD_FUTEX && explorer_chance(2)) {
		t->state = THREAD_READY;
		explorer->result->spurious++;
	} else if (explorer->test->time_outs && thread_timed(t)) {
		thread_time_out(t);
	}
}

static void all_wait(void)
{
	static const char *const states[] = { "", "runs", "futex", "poll", "join", "over" };
	struct thread *first = NULL;
	char text[400] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < explorer->count && explorer->test->time_outs; i++) {
		struct thread *t = &explorer->threads[i];

		if (thread_timed(t) && (first == NULL || t->deadline_ns < first->deadline_ns))
			first = t;
	}
	if (first != NULL) {
		thread_time_out(first);
		return;
	}
	for (uint32_t i = 0; i < explorer->count && used < sizeof(text); i++) {
		const struct thread *t = &explorer->threads[i];

		if (t->state != THREAD_DONE)
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 "; thread %u: %s at %s:%d", i, states[t->state],
						 t->where, t->line);
	}
	explorer_fail("lost wake-up: all threads sleep%s", text);
}

/* ---- Who goes on ---- */

static bool candidate(uint32_t i, bool with_yielded)
{
	struct thread *t = &explorer->threads[i];

	return thread_ready(t) && (with_yielded || !t->yielded);
}

static uint32_t choose_all(const uint32_t *list, uint32_t count, bool own)
{
	uint32_t taken;

	if (own && explorer->cost >= explorer->plan->depth)
		return list[0];
	taken = trail_choice(count);
	explorer->cost += own && taken > 0;
	return list[taken];
}

static uint32_t choose_pct(const uint32_t *list, uint32_t count)
{
	uint32_t best = list[0];

	for (uint32_t i = 0; i + 1 < explorer->plan->depth && i < 8; i++)
		if (explorer->changes[i] == explorer->points)
			self()->priority = --explorer->lowest;
	for (uint32_t i = 1; i < count; i++)
		if (explorer->threads[list[i]].priority > explorer->threads[best].priority)
			best = list[i];
	return best;
}

/* The current thread stands first in the list, if it can go on. */
static uint32_t list_ready(uint32_t *list, bool with_yielded)
{
	uint32_t count = 0;

	for (uint32_t k = 0; k < explorer->count; k++) {
		uint32_t i = (explorer->current + k) % explorer->count;

		if (candidate(i, with_yielded))
			list[count++] = i;
	}
	return count;
}

static uint32_t next_thread(void)
{
	uint32_t list[EXPLORE_THREADS], count;
	bool own;

	if (explorer->plan->how != EXPLORE_ALL && explorer_chance(32))
		disturb();
	while ((count = list_ready(list, false)) == 0) {
		if (list_ready(list, true) == 0)
			all_wait();
		for (uint32_t i = 0; i < explorer->count; i++)
			explorer->threads[i].yielded = false;
	}
	own = list[0] == explorer->current;
	switch (explorer->plan->how) {
	case EXPLORE_RANDOM: /* Half of the points change nothing, so that runs get longer too. */
		return own && explorer_chance(2) ? list[0] : list[explorer_choice(count)];
	case EXPLORE_PCT:
		return choose_pct(list, count);
	case EXPLORE_ALL:
		break;
	}
	return choose_all(list, count, own);
}

/* From the current fiber through the host, which enters the thread that is current by then. */
static void switch_to(uint32_t next)
{
	struct thread *before = self();

	if (next == explorer->current)
		return;
	explorer->result->switches++;
	explorer->current = next;
	rb_fiber_leave(before->fiber);
}

static void go_on(void)
{
	uint32_t next = next_thread();

	/* A yield has had its effect once somebody else has made a step. */
	if (next != explorer->current)
		explorer->threads[next].yielded = false;
	switch_to(next);
}

void explorer_point(const char *function, int line, const char *what, uint64_t value)
{
	self()->where = function;
	self()->line = line;
	explorer->events[explorer->event_count++ % EXPLORE_TRACE] =
		(struct event) { explorer->current, (uint32_t)line, function, what, value };
	explorer->now_ns += POINT_NS;
	if (++explorer->points > explorer->test->points_max)
		explorer_fail("livelock: no end after %llu points",
			      (unsigned long long)explorer->points);
	memory_flush_some();
	go_on();
}

void explorer_block(void)
{
	memory_flush(self());
	self()->timed_out = false;
	while (!thread_ready(self()))
		go_on();
}

void explore_point(const char *what)
{
	if (exploring())
		explorer_point("test", 0, what, 0);
}

void explore_pause(void)
{
	if (!exploring())
		return;
	/* Held-back stores do not stay back for ever; with ALL, which lets none out by chance, so
	 * long as their thread has something to do. */
	memory_flush(self());
	self()->yielded = true;
	self()->priority = --explorer->lowest;
	explorer_point("pause", 0, "", 0);
	self()->yielded = false;
}

/* ---- Threads ---- */

/* False: that was the last thread. */
static bool thread_end(struct thread *t)
{
	memory_flush(t);
	t->state = THREAD_DONE;
	for (uint32_t i = 0; i < explorer->count; i++) {
		if (explorer->threads[i].state != THREAD_DONE) {
			explorer->current = next_thread();
			return true;
		}
	}
	return false;
}

static void thread_main(void *arg)
{
	struct thread *t = arg;

	for (;;) {
		(void)t->main(t->arg);
		explorer->over = !thread_end(t);
		rb_fiber_leave(t->fiber);
	}
}

static uint32_t thread_add(void *(*main)(void *), void *arg)
{
	uint32_t i = explorer->count++;
	struct thread *t = &explorer->threads[i];

	*t = (struct thread) {
		.fiber = t->fiber, .main = main, .arg = arg, .state = THREAD_READY, .where = "start"
	};
	t->priority = 100 + (int32_t)(rb_rng_next(&explorer->rng) % 1000);
	t->seen[i] = 1;
	if (t->fiber == NULL && rb_fiber_open(STACK_BYTES, thread_main, t, &t->fiber) != RUBATO_OK)
		abort();
	return i;
}

rubato_status rb_thread_start(struct rb_thread *thread, void *(*main)(void *), void *arg)
{
	uint32_t i;

	if (!exploring() || explorer->count == EXPLORE_THREADS)
		abort();
	memory_flush(self());
	i = thread_add(main, arg);
	memory_learn(explorer->threads[i].seen, self()->seen);
	self()->seen[explorer->current]++;
	thread->handle = i;
	thread->running = true;
	explorer_point("rb_thread_start", 0, "thread", i);
	return RUBATO_OK;
}

void rb_thread_join(struct rb_thread *thread)
{
	if (!thread->running)
		return;
	if (!exploring())
		abort();
	explorer_point("rb_thread_join", 0, "thread", thread->handle);
	self()->state = THREAD_JOIN;
	self()->joins = (uint32_t)thread->handle;
	explorer_block();
	memory_learn(self()->seen, explorer->threads[thread->handle].seen);
	thread->running = false;
}

/* Where a thread runs is the scheduler's business. */
void rb_thread_confine(const uint64_t *cpus, uint32_t word_count)
{
	(void)cpus;
	(void)word_count;
}

bool rb_thread_is_usual(void)
{
	return false;
}

void rb_thread_modest(bool modest)
{
	(void)modest;
}

uint32_t rb_cpu_here(void)
{
	return RB_CPU_NONE;
}

bool rb_thread_move(uint32_t cpu, uint64_t patience_ns)
{
	(void)cpu;
	(void)patience_ns;
	return false;
}

void rb_yield(void)
{
	explore_pause();
}

uint64_t rb_clock_ns(void)
{
	struct timespec now;

	if (exploring())
		return explorer->now_ns;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rb_clock_sleep_until(uint64_t when_ns)
{
	while (exploring() && explorer->now_ns < when_ns)
		explore_pause();
}

/* ---- One execution, many ---- */

static void *body_main(void *arg)
{
	struct explorer *e = arg;

	e->test->body(e->world);
	return NULL;
}

static void execute(uint64_t seed)
{
	const struct explore_case *test = explorer->test;
	uint64_t length;

	explorer->count = explorer->current = 0;
	explorer->now_ns = 1000000;
	explorer->points = explorer->event_count = 0;
	explorer->trail_at = explorer->cost = 0;
	explorer->lowest = 0;
	explorer->over = false;
	explorer->rng.state = rb_mix(seed);
	/* Drawn, not learnt from executions before: each seed stands alone. */
	length = UINT64_C(16) << rb_rng_next(&explorer->rng) % 7;
	for (uint32_t i = 0; i < 8; i++)
		explorer->changes[i] = 1 + rb_rng_next(&explorer->rng) % length;
	memory_begin();
	if (test->begin != NULL)
		test->begin(explorer->world);
	(void)thread_add(body_main, explorer);
	while (!explorer->over) {
		explorer->inside = true;
		rb_fiber_enter(explorer->threads[explorer->current].fiber);
		explorer->inside = false;
	}
	if (test->end != NULL)
		test->end(explorer->world);
	explorer->result->executions++;
	explorer->result->points += explorer->points;
}

void explore(const struct explore_case *test, const struct explore_plan *plan,
	     struct explore_result *out)
{
	struct explorer *e = calloc(1, sizeof(*e));

	memset(out, 0, sizeof(*out));
	if (e == NULL || (e->trail = calloc(EXPLORE_TRAIL, sizeof(*e->trail))) == NULL)
		abort();
	e->test = test;
	e->plan = plan;
	e->result = out;
	explorer = e;
	e->world = test->open != NULL ? test->open() : NULL;
	for (uint64_t i = 0; i < plan->executions && !out->failed && !out->complete; i++) {
		out->seed = plan->how == EXPLORE_ALL ? i : plan->seed + i;
		execute(plan->how == EXPLORE_ALL ? 1 : out->seed);
		out->complete = !out->failed && plan->how == EXPLORE_ALL && !trail_next();
	}
	if (!out->failed)
		trace_write(); /* Of the last one: for who wants to see what is explored. */
	if (test->close != NULL)
		test->close(e->world);
	for (uint32_t i = 0; i < EXPLORE_THREADS; i++)
		rb_fiber_close(e->threads[i].fiber);
	memory_end();
	explorer = NULL;
	free(e->trail);
	free(e);
}
