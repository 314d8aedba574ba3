/*
 * engine.c -- progress, waiting and sleeping; engine.h has the locking rule.
 *
 * No lost wake-up: a driver sleeps only after arm() of every endpoint has said that nothing is
 * pending, and an event after arm() makes a descriptor readable. Whoever completes something, or
 * adds work that no descriptor announces, while the driver sleeps, wakes it before dropping the
 * lock (sleepers_tell). The progress thread stays in its sleep on the descriptors while a waiter
 * drives (nothing is armed then, so it is not disturbed), and is armed again when the waiter leaves
 * operations behind.
 */
#include "runtime/engine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/relaxed/plug.h"

#define SLOTS_PER_BLOCK 64
#define FIRST_POLLS 64 /* Some 2 us. */
#define FIRST_POLLS_SHARED 4
#define POLLS_PER_CLOCK 32   /* Polls between two looks at the clock: a look costs some 25 ns. */
#define IN_VAIN_MAX 8u       /* Guess: of a training loop's first steps not all. */
#define IN_VAIN_AGAIN 2u     /* After it was of use once. */
#define TICKS_IDLE 10u       /* Without a start: the progress thread parks. */
#define LOOK_NS 1000         /* Simulated: of a look in which nothing moves. */
#define HAND_OVER_NS 1000000 /* At most so long away from the lock, should nobody take it. */
#define SLEEP_NS_MAX                                                                               \
	100000000u /* A sleep is at most 100 ms: bounds the harm of a wake-up lost below. */

struct rb_slot_block {
	struct rb_slot_block *next;
	struct rb_slot slots[SLOTS_PER_BLOCK];
};

uint64_t rb_engine_now(struct rb_engine *engine)
{
	struct rb_endpoint *ep = engine->endpoints[0];

	return ep->ops->now_ns(ep);
}

bool rb_slots_more(struct rb_engine *engine)
{
	struct rb_slot_block *block = calloc(1, sizeof(*block));

	if (block == NULL)
		return false;
	block->next = engine->slot_blocks;
	engine->slot_blocks = block;
	for (uint32_t i = 0; i < SLOTS_PER_BLOCK; i++)
		rb_slot_give(engine, &block->slots[i]);
	return true;
}

rubato_status rb_engine_init(struct rb_engine *engine, uint32_t rank, uint32_t rank_count)
{
	memset(engine, 0, sizeof(*engine));
	rb_lock_init(&engine->lock);
	engine->rank = rank;
	engine->rank_count = rank_count;
	engine->route = calloc(rank_count, sizeof(*engine->route));
	engine->lost = calloc(rank_count, sizeof(*engine->lost));
	if (engine->route == NULL || engine->lost == NULL) {
		rb_engine_fini(engine);
		return RB_FAIL(RUBATO_ERR_MEMORY, "engine for %u ranks", rank_count);
	}
	rubato_status err = rb_executor_host_open(&engine->executor);
	if (err != RUBATO_OK)
		rb_engine_fini(engine);
	return err;
}

void rb_engine_fini(struct rb_engine *engine)
{
	RB_ASSERT(engine->runs == NULL);
	while (engine->slot_blocks != NULL) {
		struct rb_slot_block *block = engine->slot_blocks;

		engine->slot_blocks = block->next;
		for (uint32_t i = 0; i < SLOTS_PER_BLOCK; i++)
			free(block->slots[i].operands_more);
		free(block);
	}
	if (engine->executor != NULL)
		engine->executor->ops->close(engine->executor);
	rb_losses_fini(engine);
	free(engine->route);
	free(engine->lost);
	engine->executor = NULL;
	engine->route = NULL;
	engine->lost = NULL;
}

/* ---- Progress ---- */

/* One of a list of completed slots. What came before it may have cancelled it and given it back. */
static void slot_done(struct rb_engine *engine, struct rb_slot *slot)
{
	slot->listed = false;
	if (slot->given)
		rb_slot_give(engine, slot);
	else
		slot->done(engine, slot);
}

static void list_done(struct rb_engine *engine, struct rb_request *list)
{
	while (list != NULL) {
		struct rb_request *request = list;

		list = request->next;
		slot_done(engine, request->owner);
	}
}

void rb_engine_hear(struct rb_engine *engine)
{
	while (engine->news != NULL) {
		struct rb_request *request = engine->news;

		engine->news = request->next;
		slot_done(engine, request->owner);
	}
}

/* What came with news succeeds before them, and fails after. */
static void news_done(struct rb_engine *engine, struct rb_request *list)
{
	struct rb_request *heads[3] = { NULL, NULL, NULL }, **ends[3];

	for (uint32_t i = 0; i < 3; i++)
		ends[i] = &heads[i];
	for (; list != NULL; list = list->next) {
		bool is_news = ((struct rb_slot *)list->owner)->is_news;
		uint32_t i = is_news ? 1 : list->status == RUBATO_OK ? 0 : 2;

		*ends[i] = list;
		ends[i] = &list->next;
	}
	for (uint32_t i = 0; i < 3; i++)
		*ends[i] = NULL;
	engine->news = heads[1];
	list_done(engine, heads[0]);
	rb_engine_hear(engine);
	list_done(engine, heads[2]);
}

static bool requests_done(struct rb_engine *engine, struct rb_request *list)
{
	bool any = list != NULL, news = false;

	for (struct rb_request *request = list; request != NULL; request = request->next) {
		struct rb_slot *slot = request->owner;

		slot->listed = true;
		news |= slot->is_news;
	}
	if (news)
		news_done(engine, list);
	else
		list_done(engine, list);
	return any;
}

static bool works_done(struct rb_engine *engine, struct rb_executor *executor)
{
	struct rb_work *list = executor->ops->poll(executor);
	bool any = list != NULL;

	for (struct rb_work *work = list; work != NULL; work = work->next)
		((struct rb_slot *)work->owner)->listed = true;
	while (list != NULL) {
		struct rb_work *work = list;

		list = work->next;
		slot_done(engine, work->owner);
	}
	return any;
}

/* Executors of runs that brought their own (tests, devices). */
static bool own_executors_poll(struct rb_engine *engine)
{
	for (struct rb_run *run = engine->runs; run != NULL; run = run->next)
		if (run->executor != NULL && works_done(engine, run->executor))
			return true; /* The list may have changed. */
	return false;
}

bool rb_engine_progress(struct rb_engine *engine)
{
	bool moved = false;
	const char *broken;

	if (engine->executor->ops->busy(engine->executor)) {
		moved = true;
		(void)works_done(engine, engine->executor);
	}
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		moved |= requests_done(engine, ep->ops->poll(ep));
		rb_losses_collect(engine, ep);
	}
	if (engine->losses_new)
		rb_losses_act(engine);
	if (engine->own_executors > 0)
		moved |= own_executors_poll(engine);
	if (engine->plugs != NULL)
		moved |= rb_plug_timers(engine);
	if (atomic_load_explicit(&engine->abort_wanted, memory_order_relaxed))
		rb_engine_poison(engine, RUBATO_ERR_CANCELLED, "the communicator was aborted");
	if (rb_broken_take(&broken))
		rb_engine_poison(engine, RUBATO_ERR_INTERNAL, broken);
	return moved;
}

/* Whether completed messages have yet to be driven out. */
static inline bool leaving(const struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (ep->leaving != 0 && (ep->ops->left == NULL || !ep->ops->left(ep)))
			return true;
	}
	return false;
}

/* For who drives. A poisoned engine tells its peers, but not at the price of a late error. */
static inline bool over(const struct rb_engine *engine, const bool *done)
{
	return *done &&
	       (engine->background.running || engine->poison != RUBATO_OK || !leaving(engine));
}

bool rb_engine_over(const struct rb_engine *engine, const bool *done)
{
	return *done && (engine->driver == RB_DRIVER_WAITER || over(engine, done));
}

static bool executors_busy(struct rb_engine *engine)
{
	if (engine->executor->ops->busy(engine->executor))
		return true;
	for (struct rb_run *run = engine->own_executors > 0 ? engine->runs : NULL; run != NULL;
	     run = run->next)
		if (run->executor != NULL && run->executor->ops->busy(run->executor))
			return true;
	return false;
}

/* ---- Poison ---- */

rubato_status rb_engine_check(struct rb_engine *engine)
{
	return engine->poison == RUBATO_OK ? RUBATO_OK
					   : RB_FAIL(engine->poison, "%s", engine->poison_text);
}

/* A run that is being advanced further up in the stack ends there, once its status is set. */
static struct rb_run *run_to_end(struct rb_engine *engine)
{
	struct rb_run *run = engine->runs;

	while (run != NULL && run->advancing)
		run = run->next;
	return run;
}

void rb_engine_poison(struct rb_engine *engine, rubato_status status, const char *text)
{
	struct rb_run *run;

	if (engine->poison != RUBATO_OK)
		return;
	engine->poison = status;
	(void)snprintf(engine->poison_text, sizeof(engine->poison_text), "%s", text);
	RB_LOG(RB_LOG_INFO, "rank %u: poisoned (%s): %s", engine->rank, rubato_status_name(status),
	       text);
	/* run->done may start nothing new (rb_engine_check), so the list only shrinks. */
	for (run = engine->runs; run != NULL; run = run->next)
		if (run->advancing)
			rb_run_fail(engine, run, status, text);
	while ((run = run_to_end(engine)) != NULL)
		rb_run_fail(engine, run, status, text);
	rb_plug_poisoned(engine, status);
	if (engine->poisoned != NULL)
		engine->poisoned(engine, engine->owner);
}

/* ---- Lock ---- */

void rb_engine_enter(struct rb_engine *engine)
{
	if (rb_lock_try(&engine->lock))
		return;
	atomic_fetch_add_explicit(&engine->wanting, 1, memory_order_relaxed);
	rb_lock_take(&engine->lock);
	atomic_fetch_sub_explicit(&engine->wanting, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&engine->handed, 1, memory_order_relaxed);
	if (engine->handing > 0)
		rb_futex_wake(&engine->handed, UINT32_MAX);
}

/*
 * The lock is not fair: who drops it and takes it again is faster than who must first wake up.
 * So stay away until one of those that want it has had it.
 */
bool rb_engine_hand_over(struct rb_engine *engine)
{
	uint32_t seen = atomic_load_explicit(&engine->handed, memory_order_relaxed);

	if (atomic_load_explicit(&engine->wanting, memory_order_relaxed) == 0)
		return false;
	engine->handing++;
	rb_lock_drop(&engine->lock);
	rb_yield();
	if (atomic_load_explicit(&engine->handed, memory_order_relaxed) == seen)
		(void)rb_futex_wait(&engine->handed, seen, rb_clock_ns() + HAND_OVER_NS);
	rb_engine_enter(engine);
	engine->handing--;
	return true;
}

static void waiters_wake(struct rb_engine *engine)
{
	engine->completed = false;
	atomic_fetch_add_explicit(&engine->turn, 1, memory_order_release);
	if (engine->waiters > 0)
		rb_futex_wake(&engine->turn, UINT32_MAX);
}

/* ---- Sleeping ---- */

static void endpoints_wake(struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		engine->endpoints[i]->ops->wake(engine->endpoints[i]);
}

static void endpoints_disarm(struct rb_engine *engine, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		engine->endpoints[i]->ops->disarm(engine->endpoints[i]);
}

static bool endpoints_arm(struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (!ep->ops->arm(ep)) {
			endpoints_disarm(engine, i + 1);
			return false;
		}
	}
	return true;
}

static void descriptors_sleep(struct rb_engine *engine, uint64_t span_ns)
{
	struct pollfd fds[RB_ENDPOINTS_MAX];
	struct timespec span = { (time_t)(span_ns / 1000000000u), (long)(span_ns % 1000000000u) };

	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		fds[i] = (struct pollfd) {
			.fd = engine->endpoints[i]->ops->descriptor(engine->endpoints[i]),
			.events = POLLIN,
		};
	(void)ppoll(fds, engine->endpoint_count, &span, NULL);
}

/* Sleeps, without the lock, until something may have come, a timer is due, or the deadline. */
static void driver_sleep(struct rb_engine *engine, uint64_t deadline_ns)
{
	struct rb_endpoint *first = engine->endpoints[0];
	uint64_t now, span = SLEEP_NS_MAX, timer = rb_plug_next_timer(engine);

	deadline_ns = timer < deadline_ns ? timer : deadline_ns;
	if (rb_engine_time_is_virtual(engine)) {
		rubato_status before = engine->poison;

		if (engine->unmatched_look != NULL)
			engine->unmatched_look(engine, engine->owner);
		if (engine->poison == before)
			first->ops->wait(first, deadline_ns);
		return;
	}
	if (executors_busy(engine))
		return;
	if (engine->completed && engine->waiters > 0)
		waiters_wake(engine);
	engine->completed = engine->stirred = false;
	if (engine->unmatched_look != NULL)
		engine->unmatched_look(engine, engine->owner);
	if (engine->completed || !endpoints_arm(engine))
		return;
	now = rb_engine_now(engine);
	if (deadline_ns < now + span)
		span = deadline_ns > now ? deadline_ns - now : 0;
	engine->asleep_until_ns = now + span;
	first->sleeps++;
	engine->asleep = true;
	rb_lock_drop(&engine->lock);
	descriptors_sleep(engine, span);
	rb_engine_enter(engine);
	rb_waiting_slept(&engine->waiting, rb_engine_now(engine) - now);
}

/* What no descriptor announces to the driver that sleeps on them. */
static bool sleeper_needed(struct rb_engine *engine)
{
	return executors_busy(engine) || rb_plug_next_timer(engine) < engine->asleep_until_ns;
}

/*
 * Before a thread drops the lock while another drives: that one may be asleep, and have looked
 * before this one completed, posted or cancelled something that no descriptor announces.
 */
static void sleepers_tell(struct rb_engine *engine)
{
	bool completed = engine->completed;
	bool stirred = engine->stirred || (engine->plugs != NULL && sleeper_needed(engine));

	if (completed && engine->waiters > 0)
		waiters_wake(engine);
	if (!engine->asleep || !(completed || stirred))
		return;
	engine->completed = engine->stirred = false;
	if ((completed && engine->driver == RB_DRIVER_WAITER) || sleeper_needed(engine) ||
	    !endpoints_arm(engine))
		endpoints_wake(engine);
}

/* ---- Driving ---- */

struct idle {
	uint64_t since_ns; /* 0: the clock has not been read since something moved. */
	uint32_t polls;
	bool overdue; /* The owner has been told. */
};

static void overdue_tell(struct rb_engine *engine, struct idle *idle, uint64_t now)
{
	if (idle->overdue || engine->overdue == NULL || now < idle->since_ns + RB_OVERDUE_NS)
		return;
	idle->overdue = true;
	engine->overdue(engine, engine->owner);
}

/* Virtual time passes in sleeps only. */
static bool idle_step_simulated(struct rb_engine *engine, struct idle *idle, uint64_t deadline_ns)
{
	uint64_t now = rb_engine_now(engine), until;

	if (idle->since_ns == 0)
		idle->since_ns = now;
	overdue_tell(engine, idle, now);
	until = idle->overdue ? UINT64_MAX : idle->since_ns + RB_OVERDUE_NS;
	driver_sleep(engine, until < deadline_ns ? until : deadline_ns);
	return rb_engine_now(engine) < deadline_ns;
}

/* Nothing moved: poll again, yield or sleep. Returns false when the deadline has passed. */
static bool idle_step(struct rb_engine *engine, struct idle *idle, uint64_t deadline_ns)
{
	uint64_t now, waited, spin_ns;

	if (rb_engine_time_is_virtual(engine))
		return idle_step_simulated(engine, idle, deadline_ns);
	if (rb_engine_hand_over(engine))
		return rb_engine_now(engine) < deadline_ns;
	if (++idle->polls % POLLS_PER_CLOCK != 0 && engine->waiting.yield_ns == 0) {
		rb_pause();
		return true;
	}
	now = rb_engine_now(engine);
	if (idle->since_ns == 0)
		idle->since_ns = now;
	waited = now - idle->since_ns;
	overdue_tell(engine, idle, now);
	spin_ns = rb_waiting_spin_ns(&engine->waiting);
	if (now >= deadline_ns)
		return false;
	if (waited < spin_ns)
		rb_pause();
	else if (waited < spin_ns + engine->waiting.yield_ns)
		rb_yield();
	else
		driver_sleep(engine, deadline_ns);
	return true;
}

/* Sleeping waiters look again when the driver changes or something completes. */
static void turn_wait(struct rb_engine *engine, uint64_t deadline_ns)
{
	uint32_t seen;

	sleepers_tell(engine);
	seen = atomic_load_explicit(&engine->turn, memory_order_acquire);
	engine->waiters++;
	rb_lock_drop(&engine->lock);
	(void)rb_futex_wait(&engine->turn, seen, deadline_ns);
	rb_engine_enter(engine);
	engine->waiters--;
}

/* A thread comes to wait: has the progress thread been of use? */
static void background_relieve(struct rb_engine *engine)
{
	if (engine->background_moves != engine->handed_moves)
		engine->handed_in_vain /= 2;
	else if (++engine->handed_in_vain >= IN_VAIN_MAX)
		engine->reluctant = true;
}

static void driver_take(struct rb_engine *engine, enum rb_driver driver)
{
	if (engine->driver == RB_DRIVER_BACKGROUND && driver == RB_DRIVER_WAITER)
		background_relieve(engine);
	engine->driver = driver;
	if (engine->asleep) {
		engine->asleep = false;
		endpoints_disarm(engine, engine->endpoint_count);
	}
}

static bool drive(struct rb_engine *engine, const bool *done, uint64_t deadline_ns)
{
	struct idle idle = { 0, 0, false };

	while (!over(engine, done)) {
		if (rb_engine_progress(engine)) {
			idle = (struct idle) { 0, 0, false };
			if (engine->completed && engine->waiters > 0)
				waiters_wake(engine);
			(void)rb_engine_hand_over(engine);
			continue;
		}
		if (over(engine, done))
			break;
		if (!idle_step(engine, &idle, deadline_ns))
			return over(engine, done);
		driver_take(engine, RB_DRIVER_WAITER);
	}
	return true;
}

rubato_status rb_engine_wait(struct rb_engine *engine, const bool *done, uint64_t deadline_ns)
{
	uint64_t start;

	if (over(engine, done))
		return RUBATO_OK;
	start = rb_engine_now(engine);
	while (!rb_engine_over(engine, done)) {
		if (engine->driver == RB_DRIVER_WAITER) {
			turn_wait(engine, deadline_ns);
			if (!*done && rb_engine_now(engine) >= deadline_ns)
				break;
			continue;
		}
		driver_take(engine, RB_DRIVER_WAITER);
		bool finished = drive(engine, done, deadline_ns);
		engine->driver = RB_DRIVER_NONE;
		if (engine->waiters > 0)
			waiters_wake(engine);
		if (!finished)
			break;
	}
	engine->wait_ns += rb_engine_now(engine) - start;
	return *done ? RUBATO_OK : RUBATO_ERR_TIMEOUT;
}

/* What a small operation among spinning ranks takes; hardly anything where ranks share cores. Not
 * inlined: hot-paths counts what it costs to wait apart. */
static __attribute__((noinline)) void first_polls(struct rb_engine *engine, const bool *done)
{
	uint32_t polls = engine->waiting.yield_ns == 0 ? FIRST_POLLS : FIRST_POLLS_SHARED;

	driver_take(engine, RB_DRIVER_WAITER);
	for (uint32_t i = 0; i < polls && !*done; i++)
		if (!rb_engine_progress(engine))
			rb_pause();
	engine->driver = RB_DRIVER_NONE;
}

bool rb_engine_look(struct rb_engine *engine, const bool *done)
{
	struct rb_endpoint *first = engine->endpoints[0];

	if (!rb_engine_over(engine, done) && engine->driver != RB_DRIVER_WAITER &&
	    !rb_engine_progress(engine) && rb_engine_time_is_virtual(engine))
		first->ops->wait(first, rb_engine_now(engine) + LOOK_NS);
	(void)rb_engine_hand_over(engine);
	return rb_engine_over(engine, done);
}

rubato_status rb_engine_wait_for(struct rb_engine *engine, const bool *done, uint64_t timeout_ns)
{
	if (!*done && engine->driver != RB_DRIVER_WAITER && engine->waiters == 0 &&
	    !rb_engine_time_is_virtual(engine))
		first_polls(engine, done);
	if (over(engine, done))
		return RUBATO_OK;
	return rb_engine_wait(engine, done, rb_deadline(rb_engine_now(engine), timeout_ns));
}

/* ---- The progress thread ---- */

static inline bool background_wanted(const struct rb_engine *engine)
{
	return engine->in_flight > 0 || leaving(engine);
}

static void background_drive(struct rb_engine *engine)
{
	struct idle idle = { 0, 0, false };

	while (engine->driver == RB_DRIVER_BACKGROUND && !engine->stop &&
	       background_wanted(engine)) {
		engine->background_polls++;
		if (rb_engine_progress(engine)) {
			idle = (struct idle) { 0, 0, false };
			engine->background_moves++;
			if (engine->completed && engine->waiters > 0)
				waiters_wake(engine);
			(void)rb_engine_hand_over(engine);
			continue;
		}
		(void)idle_step(engine, &idle, UINT64_MAX);
		if (engine->asleep && engine->driver == RB_DRIVER_BACKGROUND)
			driver_take(engine, RB_DRIVER_BACKGROUND);
	}
	if (engine->driver == RB_DRIVER_BACKGROUND)
		engine->driver = RB_DRIVER_NONE;
}

/* Whether something is in flight that nobody has looked after since the last tick. */
static bool tick(struct rb_engine *engine, uint64_t *starts, uint32_t *idle_ticks)
{
	bool left = background_wanted(engine) && engine->driver == RB_DRIVER_NONE &&
		    engine->waiters == 0;
	bool same = *starts == engine->starts;

	*starts = engine->starts;
	*idle_ticks = same ? *idle_ticks + 1 : 0;
	if (left && same)
		return true;
	if (*idle_ticks >= TICKS_IDLE && !left)
		engine->ticking = false;
	return false;
}

static void background_park(struct rb_engine *engine, uint64_t *starts, uint32_t *idle_ticks)
{
	uint32_t seen = atomic_load(&engine->background_word);
	bool woken, ticking = engine->ticking;
	uint64_t until_ns = ticking ? rb_clock_ns() + RB_TICK_NS : UINT64_MAX;

	engine->background_parked = true;
	rb_lock_drop(&engine->lock);
	woken = rb_futex_wait(&engine->background_word, seen, until_ns);
	rb_engine_enter(engine);
	engine->background_parked = false;
	if (woken || !ticking || engine->stop || !tick(engine, starts, idle_ticks))
		return;
	engine->reluctant = false;
	engine->handed_in_vain = IN_VAIN_MAX - IN_VAIN_AGAIN;
	engine->handed_moves = engine->background_moves;
	engine->driver = RB_DRIVER_BACKGROUND;
}

static void *background_main(void *arg)
{
	struct rb_engine *engine = arg;
	uint64_t starts = 0;
	uint32_t idle_ticks = 0;

	if (rb_cpus_count(engine->background_cpus) > 0)
		rb_thread_confine(engine->background_cpus, RB_CPU_WORDS);
	rb_engine_enter(engine);
	while (!engine->stop) {
		if (engine->driver == RB_DRIVER_BACKGROUND) {
			background_drive(engine);
			continue;
		}
		background_park(engine, &starts, &idle_ticks);
	}
	rb_lock_drop(&engine->lock);
	return NULL;
}

static void background_kick(struct rb_engine *engine)
{
	atomic_fetch_add(&engine->background_word, 1);
	if (engine->background_parked)
		rb_futex_wake(&engine->background_word, 1);
}

static uint64_t background_step(void *arg)
{
	struct rb_engine *engine = arg;

	while (rb_engine_progress(engine))
		;
	return rb_plug_next_timer(engine);
}

rubato_status rb_engine_background(struct rb_engine *engine, bool wanted)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (ep->ops->caps & RB_CAP_BACKGROUND) {
			ep->ops->drive(ep, background_step, engine);
			return RUBATO_OK;
		}
	}
	return wanted ? rb_thread_start(&engine->background, background_main, engine) : RUBATO_OK;
}

static void background_hand(struct rb_engine *engine)
{
	engine->starts++;
	if (engine->reluctant) {
		if (!engine->ticking) {
			engine->ticking = true;
			background_kick(engine);
			endpoints_wake(engine); /* It may sleep there still. */
		}
		return;
	}
	engine->driver = RB_DRIVER_BACKGROUND;
	engine->handed_moves = engine->background_moves;
	engine->completed = engine->stirred = false;
	if (engine->background_parked)
		background_kick(engine);
	else if (!sleeper_needed(engine) && endpoints_arm(engine))
		engine->asleep = true; /* It sleeps on the descriptors still. */
	else
		endpoints_wake(engine);
}

void rb_engine_leave(struct rb_engine *engine)
{
	sleepers_tell(engine);
	if (background_wanted(engine) && engine->background.running &&
	    engine->driver == RB_DRIVER_NONE && engine->waiters == 0)
		background_hand(engine);
	rb_lock_drop(&engine->lock);
}

void rb_engine_stop(struct rb_engine *engine)
{
	if (!engine->background.running)
		return;
	rb_engine_enter(engine);
	engine->stop = true;
	background_kick(engine);
	endpoints_wake(engine);
	rb_lock_drop(&engine->lock);
	rb_thread_join(&engine->background);
}
