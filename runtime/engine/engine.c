/*
 * engine.c -- progress, waiting and sleeping; engine.h has the locking rule.
 *
 * No lost wake-up: who drives sleeps only after arm() of every endpoint has said that nothing is
 * pending, and an event after arm() makes a descriptor readable. Whoever completes something, or
 * adds work that no descriptor announces, while it sleeps, wakes it before dropping the
 * lock (sleepers_tell). The progress thread stays in its sleep on the descriptors while a waiter
 * drives (nothing is armed then, so it is not disturbed), and is armed again when the waiter leaves
 * operations behind.
 */
#include "runtime/engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/engine/calls.h"

#define SLOTS_PER_BLOCK 16 /* Guess: one run of few steps, or the notices of 1,024 ranks. */
#define FIRST_POLLS 64     /* Some 2 us. */
#define FIRST_POLLS_SHARED 4
#define FIRST_POLLS_GIVING_WAY 16 /* Guess: enough for what comes from the same node. */
#define LOOKS 96                  /* Likewise, of looks without a poll. */
#define LOOKS_SHARED 16           /* Guess: with a yield after each but the first few. */
#define POLLS_PER_CLOCK 32   /* Polls between two looks at the clock: a look costs some 25 ns. */
#define MOVES_PER_CLOCK 4    /* Likewise while things move: each may copy RB_SLICE_BYTES. */
#define USELESS_MAX 8u       /* Guess: of a training loop's first steps not all. */
#define USELESS_AGAIN 2u     /* After it was of use once. */
#define TICKS_IDLE 10u       /* Without a start: the progress thread parks. */
#define LOOK_NS 1000         /* Simulated: of a look in which nothing moves. */
#define LOOKS_MAX 16         /* In vain, before who shares a core gives it away. Guess. */
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
	rubato_status err = engine->route == NULL
				    ? RB_FAIL(RUBATO_ERR_MEMORY, "engine for %u ranks", rank_count)
				    : rb_forks_count();
	engine->forks = rb_forks;
	if (err == RUBATO_OK)
		err = rb_losses_init(&engine->losses, rank, rank_count, engine->endpoints,
				     &engine->endpoint_count);
	engine->losses.route = engine->route;
	if (err == RUBATO_OK)
		err = rb_executor_host_open(&engine->executor);
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
	while (engine->device_count > 0) {
		struct rb_executor *device = engine->devices[--engine->device_count];

		device->ops->close(device);
	}
	rb_losses_fini(&engine->losses);
	free(engine->route);
	engine->executor = NULL;
	engine->route = NULL;
}

/* ---- Completions ---- */

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

static void notices_hear(struct rb_engine *engine)
{
	while (engine->notices != NULL) {
		struct rb_request *request = engine->notices;

		engine->notices = request->next;
		slot_done(engine, request->owner);
	}
}

/* What came with notices of failure succeeds before them, and fails after. */
static void notices_done(struct rb_engine *engine, struct rb_request *list)
{
	struct rb_request *heads[3] = { NULL, NULL, NULL }, **ends[3];

	for (uint32_t i = 0; i < 3; i++)
		ends[i] = &heads[i];
	for (; list != NULL; list = list->next) {
		bool is_notice = ((struct rb_slot *)list->owner)->is_notice;
		uint32_t i = is_notice ? 1 : list->status == RUBATO_OK ? 0 : 2;

		*ends[i] = list;
		ends[i] = &list->next;
	}
	for (uint32_t i = 0; i < 3; i++)
		*ends[i] = NULL;
	engine->notices = heads[1];
	list_done(engine, heads[0]);
	notices_hear(engine);
	list_done(engine, heads[2]);
}

void rb_engine_hear(struct rb_engine *engine, const struct rb_request *failed)
{
	notices_hear(engine);
	if (failed->status == RUBATO_ERR_MISMATCH && engine->poison == RUBATO_OK &&
	    rb_calls_finalize(&failed->signature, &failed->theirs))
		rb_losses_await(&engine->losses, failed->peer);
	rb_losses_hear(&engine->losses);
}

static bool requests_done(struct rb_engine *engine, struct rb_request *list)
{
	bool any = list != NULL, notices = false;

	for (struct rb_request *request = list; request != NULL; request = request->next) {
		struct rb_slot *slot = request->owner;

		slot->listed = true;
		notices |= slot->is_notice;
	}
	if (notices)
		notices_done(engine, list);
	else
		list_done(engine, list);
	return any;
}

bool rb_engine_poll_executor(struct rb_engine *engine, struct rb_executor *executor)
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

/* ---- Pollers ---- */

void rb_engine_add_poller(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_poller **at = &engine->pollers;

	while (*at != NULL && (*at)->ops->order < poller->ops->order)
		at = &(*at)->next;
	poller->next = *at;
	*at = poller;
	engine->polled += poller->ops->polled;
}

void rb_engine_remove_poller(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_poller **at = &engine->pollers;

	while (*at != NULL && *at != poller)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = poller->next;
	engine->polled -= poller->ops->polled;
}

static bool pollers_post(struct rb_engine *engine)
{
	bool moved = false;

	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->post != NULL)
			moved |= p->ops->post(engine, p);
	return moved;
}

static bool pollers_poll(struct rb_engine *engine)
{
	bool moved = false;

	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->poll != NULL)
			moved |= p->ops->poll(engine, p);
	return moved;
}

static void pollers_awaited(struct rb_engine *engine)
{
	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->awaited != NULL)
			p->ops->awaited(engine, p);
}

static bool pollers_busy(const struct rb_engine *engine)
{
	for (const struct rb_poller *p = engine->polled > 0 ? engine->pollers : NULL; p != NULL;
	     p = p->next)
		if (p->ops->busy != NULL && p->ops->busy(engine, p))
			return true;
	return false;
}

uint64_t rb_engine_next_timer(const struct rb_engine *engine)
{
	uint64_t next = UINT64_MAX;

	for (const struct rb_poller *p = engine->polled > 0 ? engine->pollers : NULL; p != NULL;
	     p = p->next) {
		uint64_t at = p->ops->next_ns != NULL ? p->ops->next_ns(p) : UINT64_MAX;

		next = at < next ? at : next;
	}
	return next;
}

static void pollers_sleeping(struct rb_engine *engine)
{
	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->sleeping != NULL)
			p->ops->sleeping(engine, p);
}

void rb_engine_peer_lost(struct rb_engine *engine, uint32_t peer)
{
	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->peer_lost != NULL)
			p->ops->peer_lost(engine, p, peer);
}

/* Whether a loss concerns anybody here. */
static bool concerned(const struct rb_engine *engine)
{
	for (const struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->concerned != NULL && p->ops->concerned(engine, p))
			return true;
	return false;
}

static void losses_act(struct rb_engine *engine)
{
	char text[RB_LOSS_BYTES];
	uint32_t peer;

	rb_losses_hear(&engine->losses);
	engine->losses.fresh = false;
	while (rb_losses_next(&engine->losses, &peer, text, sizeof(text))) {
		rb_engine_peer_lost(engine, peer);
		if (concerned(engine))
			rb_engine_poison(engine, RUBATO_ERR_PEER, text);
	}
}

/* ---- Progress ---- */

bool rb_engine_progress(struct rb_engine *engine)
{
	bool moved = false;
	const char *broken;

	engine->unpolled = 0;
	if (engine->executor->ops->busy(engine->executor)) {
		moved = true;
		(void)rb_engine_poll_executor(engine, engine->executor);
	}
	if (engine->polled > 0)
		moved |= pollers_post(engine);
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		moved |= requests_done(engine, ep->ops->poll(ep));
		rb_losses_collect(&engine->losses, ep);
	}
	if (engine->losses.fresh)
		losses_act(engine);
	if (engine->polled > 0)
		moved |= pollers_poll(engine);
	if (atomic_load_explicit(&engine->abort_wanted, memory_order_relaxed))
		rb_engine_poison(engine, RUBATO_ERR_CANCELLED, "the communicator was aborted");
	if (rb_broken_take(&broken))
		rb_engine_poison(engine, RUBATO_ERR_INTERNAL, broken);
	return moved;
}

/* For who drives. What a poisoned engine has to say leaves at the end of the call. */
static inline bool over(const struct rb_engine *engine, const bool *done)
{
	return *done && (engine->background.thread.running || engine->poison != RUBATO_OK ||
			 !rb_engine_leaving(engine));
}

bool rb_engine_over(const struct rb_engine *engine, const bool *done)
{
	return *done && (engine->driving == RB_DRIVING_WAITER || over(engine, done));
}

static bool executors_busy(const struct rb_engine *engine)
{
	return engine->executor->ops->busy(engine->executor) || pollers_busy(engine);
}

/* ---- Poison ---- */

rubato_status rb_engine_check(struct rb_engine *engine)
{
	return engine->poison == RUBATO_OK ? RUBATO_OK
					   : RB_FAIL(engine->poison, "%s", engine->poison_text);
}

void rb_engine_poison(struct rb_engine *engine, rubato_status status, const char *text)
{
	if (engine->poison != RUBATO_OK)
		return;
	engine->poison = status;
	(void)snprintf(engine->poison_text, sizeof(engine->poison_text), "%s", text);
	RB_LOG(RB_LOG_INFO, "rank %u: poisoned (%s): %s", engine->rank, rubato_status_name(status),
	       text);
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		engine->endpoints[i]->failed = true;
	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->poisoned != NULL)
			p->ops->poisoned(engine, p, status, text);
}

/* ---- Lock ---- */

rubato_status rb_engine_not_ours(void)
{
	return RB_FAIL(RUBATO_ERR_ARGUMENT, "this communicator is the parent's: a process that "
					    "fork() made cannot use it");
}

void rb_engine_enter_late(struct rb_engine *engine)
{
	atomic_fetch_add_explicit(&engine->hand_over.wanted, 1, memory_order_relaxed);
	rb_lock_take(&engine->lock);
	atomic_fetch_sub_explicit(&engine->hand_over.wanted, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&engine->hand_over.taken, 1, memory_order_relaxed);
	if (engine->hand_over.away > 0)
		rb_futex_wake(&engine->hand_over.taken, UINT32_MAX);
}

/* The lock is not fair: who drops it and takes it again is faster than who must first wake up.
 * So stay away until one of those that want it has had it. */
bool rb_engine_hand_over(struct rb_engine *engine)
{
	uint32_t seen = atomic_load_explicit(&engine->hand_over.taken, memory_order_relaxed);

	if (atomic_load_explicit(&engine->hand_over.wanted, memory_order_relaxed) == 0)
		return false;
	engine->hand_over.away++;
	rb_lock_drop(&engine->lock);
	rb_yield();
	if (atomic_load_explicit(&engine->hand_over.taken, memory_order_relaxed) == seen)
		(void)rb_futex_wait(&engine->hand_over.taken, seen, rb_clock_ns() + HAND_OVER_NS);
	rb_engine_enter(engine);
	engine->hand_over.away--;
	return true;
}

void rb_engine_wake_waiters(struct rb_engine *engine)
{
	engine->completed = false;
	atomic_fetch_add_explicit(&engine->waiters_word, 1, memory_order_release);
	if (engine->waiters > 0)
		rb_futex_wake(&engine->waiters_word, UINT32_MAX);
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

/* The processor to go on with; RB_CPU_NONE: this one. Not inlined: hot-paths counts it apart. */
static __attribute__((noinline)) uint32_t processor_choose(const struct rb_engine *engine)
{
	struct rb_sharing_look look = { .share = engine->sharing.share };
	uint64_t allowed[RB_CPU_WORDS]; /* The application may have changed it. */

	for (uint32_t r = 0; r < engine->rank_count; r++) {
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		if (ep->ops->processor != NULL)
			rb_sharing_add(&look, ep->ops->processor(ep, r), r == engine->rank);
	}
	if (!look.moves)
		return RB_CPU_NONE;
	rb_cpus_allowed(allowed);
	return rb_sharing_target(&engine->sharing, &look, allowed);
}

/* Where a core has more than its share; without the lock meanwhile. */
static void processor_change(struct rb_engine *engine, uint64_t now)
{
	uint32_t to, from;
	bool moved;

	/* The progress thread stays: an application may compute wherever nobody waits. */
	if (engine->driving != RB_DRIVING_WAITER || !rb_sharing_due(&engine->sharing, now))
		return;
	to = processor_choose(engine);
	if (to == RB_CPU_NONE)
		return;
	from = rb_cpu_here();
	rb_lock_drop(&engine->lock);
	moved = rb_thread_move(to, RB_SHARING_PATIENCE_NS);
	rb_engine_enter(engine);
	rb_sharing_tried(&engine->sharing, moved, now);
	if (moved)
		engine->waiting.empty = 0;
	RB_LOG(RB_LOG_INFO, "rank %u was on processor %u, where %u lower ones are: %s %u",
	       engine->rank, from, engine->sharing.share, moved ? "went to" : "no turn on", to);
}

/* Sleeps, without the lock, until something may have come, a timer is due, or the deadline. */
static void sleep_until(struct rb_engine *engine, uint64_t deadline_ns)
{
	struct rb_endpoint *first = engine->endpoints[0];
	uint64_t now, woken, span = SLEEP_NS_MAX, timer = rb_engine_next_timer(engine);

	deadline_ns = timer < deadline_ns ? timer : deadline_ns;
	if (rb_engine_time_is_virtual(engine)) {
		rubato_status before = engine->poison;

		pollers_sleeping(engine);
		if (engine->poison == before)
			first->ops->wait(first, deadline_ns);
		return;
	}
	if (executors_busy(engine))
		return;
	if (engine->completed && engine->waiters > 0)
		rb_engine_wake_waiters(engine);
	engine->completed = engine->posted = false;
	pollers_sleeping(engine);
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
	woken = rb_engine_now(engine);
	rb_waiting_slept(&engine->waiting, woken - now);
	if (rb_waiting_in_vain(&engine->waiting))
		processor_change(engine, woken);
}

/* What no descriptor announces to the thread that sleeps on them. */
static bool sleeper_needed(struct rb_engine *engine)
{
	return executors_busy(engine) || rb_engine_next_timer(engine) < engine->asleep_until_ns;
}

/*
 * Before a thread drops the lock while another drives: that one may be asleep, and have looked
 * before this one completed, posted or cancelled something that no descriptor announces.
 */
static void sleepers_tell(struct rb_engine *engine)
{
	bool completed = engine->completed;

	if (completed && engine->waiters > 0)
		rb_engine_wake_waiters(engine);
	if (!engine->asleep)
		return;
	if (!completed && !engine->posted && (engine->polled == 0 || !sleeper_needed(engine)))
		return;
	engine->completed = engine->posted = false;
	if ((completed && engine->driving == RB_DRIVING_WAITER) || sleeper_needed(engine) ||
	    !endpoints_arm(engine))
		endpoints_wake(engine);
}

/* ---- Driving ---- */

struct idle {
	uint64_t since_ns; /* 0: the clock has not been read since something moved. */
	uint32_t polls;
	bool overdue; /* The pollers have been told. */
	bool slept;
};

static void overdue_check(struct rb_engine *engine, struct idle *idle, uint64_t now)
{
	if (idle->overdue || now < idle->since_ns + RB_OVERDUE_NS)
		return;
	idle->overdue = true;
	for (struct rb_poller *p = engine->pollers; p != NULL; p = p->next)
		if (p->ops->overdue != NULL)
			p->ops->overdue(engine, p);
}

/* Virtual time passes in sleeps only. */
static bool idle_step_simulated(struct rb_engine *engine, struct idle *idle, uint64_t deadline_ns)
{
	uint64_t now = rb_engine_now(engine), until;

	if (idle->since_ns == 0)
		idle->since_ns = now;
	overdue_check(engine, idle, now);
	until = idle->overdue ? UINT64_MAX : idle->since_ns + RB_OVERDUE_NS;
	sleep_until(engine, until < deadline_ns ? until : deadline_ns);
	return rb_engine_now(engine) < deadline_ns;
}

static void turn_give(struct rb_engine *engine, uint64_t now)
{
	if (engine->waiting.yield_ns > 0)
		processor_change(engine, now);
	rb_yield();
}

/* Nothing moved: poll again, yield or sleep. Returns false when the deadline has passed. */
static bool idle_step(struct rb_engine *engine, struct idle *idle, uint64_t deadline_ns)
{
	uint64_t now, waited, spin_ns;

	if (rb_engine_time_is_virtual(engine))
		return idle_step_simulated(engine, idle, deadline_ns);
	if (rb_engine_hand_over(engine))
		return rb_engine_now(engine) < deadline_ns;
	if (++idle->polls % POLLS_PER_CLOCK != 0 && engine->waiting.yield_ns == 0 &&
	    !engine->waiting.gives_way) {
		rb_pause();
		return true;
	}
	now = rb_engine_now(engine);
	if (idle->since_ns == 0)
		idle->since_ns = now;
	waited = now - idle->since_ns;
	overdue_check(engine, idle, now);
	spin_ns = rb_waiting_spin_ns(&engine->waiting);
	if (now >= deadline_ns)
		return false;
	if (waited < spin_ns && !engine->waiting.gives_way)
		rb_pause();
	else if (waited < spin_ns + engine->waiting.yield_ns)
		turn_give(engine, now);
	else
		sleep_until(engine, deadline_ns);
	idle->slept = waited >= spin_ns + engine->waiting.yield_ns;
	return true;
}

/* Sleeping waiters look again when another drives or something completes. */
static void turn_wait(struct rb_engine *engine, uint64_t deadline_ns)
{
	uint32_t seen;

	sleepers_tell(engine);
	seen = atomic_load_explicit(&engine->waiters_word, memory_order_acquire);
	engine->waiters++;
	rb_lock_drop(&engine->lock);
	(void)rb_futex_wait(&engine->waiters_word, seen, deadline_ns);
	rb_engine_enter(engine);
	engine->waiters--;
}

/* A thread comes to wait: has the progress thread been of use? */
static void background_relieve(struct rb_engine *engine)
{
	if (engine->background.moves != engine->background.handed_moves)
		engine->background.useless /= 2;
	else if (++engine->background.useless >= USELESS_MAX)
		engine->background.reluctant = true;
}

static void drive_as(struct rb_engine *engine, enum rb_driving who)
{
	if (engine->driving == RB_DRIVING_BACKGROUND && who == RB_DRIVING_WAITER)
		background_relieve(engine);
	engine->driving = who;
	if (engine->asleep) {
		engine->asleep = false;
		endpoints_disarm(engine, engine->endpoint_count);
	}
}

static bool drive(struct rb_engine *engine, const bool *done, uint64_t deadline_ns)
{
	struct idle idle = { 0 };
	uint32_t moves = 0;

	while (!over(engine, done)) {
		if (rb_engine_progress(engine)) {
			if (idle.since_ns != 0 && !idle.slept)
				rb_waiting_found(&engine->waiting);
			idle = (struct idle) { 0 };
			if (engine->completed && engine->waiters > 0)
				rb_engine_wake_waiters(engine);
			(void)rb_engine_hand_over(engine);
			/* What goes on moving need not be what is waited for. */
			if (++moves % MOVES_PER_CLOCK == 0 && rb_engine_now(engine) >= deadline_ns)
				return over(engine, done);
			continue;
		}
		if (over(engine, done))
			break;
		if (!idle_step(engine, &idle, deadline_ns))
			return over(engine, done);
		drive_as(engine, RB_DRIVING_WAITER);
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
		if (engine->driving == RB_DRIVING_WAITER) {
			turn_wait(engine, deadline_ns);
			if (!*done && rb_engine_now(engine) >= deadline_ns)
				break;
			continue;
		}
		drive_as(engine, RB_DRIVING_WAITER);
		bool finished = drive(engine, done, deadline_ns);
		engine->driving = RB_DRIVING_NOBODY;
		if (engine->waiters > 0)
			rb_engine_wake_waiters(engine);
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
	uint32_t polls = engine->waiting.yield_ns > 0 ? FIRST_POLLS_SHARED
			 : engine->waiting.gives_way  ? FIRST_POLLS_GIVING_WAY
						      : FIRST_POLLS;

	drive_as(engine, RB_DRIVING_WAITER);
	if (engine->polled > 0)
		pollers_awaited(engine);
	for (uint32_t i = 0; i < polls && !*done; i++)
		if (!rb_engine_progress(engine))
			rb_pause();
	engine->driving = RB_DRIVING_NOBODY;
}

/* As first_polls, apart. */
__attribute__((noinline)) bool rb_engine_linger(const struct rb_engine *engine, uint32_t peer)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	bool shared = engine->waiting.yield_ns > 0;
	uint32_t looks = shared ? LOOKS_SHARED : LOOKS;

	for (uint32_t i = 0; i < looks; i++) {
		if (ep->ops->here(ep, peer))
			return true;
		if (atomic_load_explicit(&engine->hand_over.wanted, memory_order_relaxed) > 0)
			return false;
		if (shared && i >= FIRST_POLLS_SHARED)
			rb_yield();
		else
			rb_pause();
	}
	return false;
}

bool rb_engine_look(struct rb_engine *engine, const bool *done)
{
	struct rb_endpoint *first = engine->endpoints[0];

	if (!rb_engine_over(engine, done) && engine->driving != RB_DRIVING_WAITER &&
	    !rb_engine_progress(engine)) {
		if (rb_engine_time_is_virtual(engine))
			first->ops->wait(first, rb_engine_now(engine) + LOOK_NS);
		else if (engine->waiting.yield_ns > 0 && ++engine->looks % LOOKS_MAX == 0)
			rb_yield();
	}
	(void)rb_engine_hand_over(engine);
	return rb_engine_over(engine, done);
}

rubato_status rb_engine_wait_for(struct rb_engine *engine, const bool *done, uint64_t timeout_ns)
{
	if (!*done && engine->driving != RB_DRIVING_WAITER && engine->waiters == 0 &&
	    !rb_engine_time_is_virtual(engine))
		first_polls(engine, done);
	if (over(engine, done))
		return RUBATO_OK;
	return rb_engine_wait(engine, done, rb_deadline(rb_engine_now(engine), timeout_ns));
}

/* ---- The progress thread ---- */

static inline bool background_wanted(const struct rb_engine *engine)
{
	return engine->in_flight > 0 || rb_engine_leaving(engine);
}

static void background_modest(struct rb_engine *engine, bool modest)
{
	if (engine->background.usual && engine->background.modest != modest)
		rb_thread_modest(modest);
	engine->background.modest = modest;
}

static void background_drive(struct rb_engine *engine)
{
	struct idle idle = { 0 };

	background_modest(engine, false);
	while (engine->driving == RB_DRIVING_BACKGROUND && !engine->background.stop &&
	       (background_wanted(engine) || rb_engine_mends(engine))) {
		engine->background.polls++;
		if (rb_engine_progress(engine)) {
			idle = (struct idle) { 0 };
			engine->background.moves++;
			if (engine->completed && engine->waiters > 0)
				rb_engine_wake_waiters(engine);
			(void)rb_engine_hand_over(engine);
			continue;
		}
		(void)idle_step(engine, &idle, UINT64_MAX);
		if (engine->asleep && engine->driving == RB_DRIVING_BACKGROUND)
			drive_as(engine, RB_DRIVING_BACKGROUND);
	}
	if (engine->driving == RB_DRIVING_BACKGROUND)
		engine->driving = RB_DRIVING_NOBODY;
}

/* Whether something is in flight that nobody has looked after since the last tick. */
static bool tick(struct rb_engine *engine, uint64_t *starts, uint32_t *idle_ticks)
{
	bool left = background_wanted(engine) && engine->driving == RB_DRIVING_NOBODY &&
		    engine->waiters == 0;
	bool same = *starts == engine->background.starts;

	*starts = engine->background.starts;
	*idle_ticks = same ? *idle_ticks + 1 : 0;
	if (left && same)
		return true;
	if (*idle_ticks >= TICKS_IDLE && !left)
		engine->background.ticking = false;
	return false;
}

/* Nothing is in flight. */
static void look_after(struct rb_engine *engine)
{
	if (engine->driving != RB_DRIVING_NOBODY || engine->waiters > 0)
		return;
	background_modest(engine, false);
	rb_engine_look_after(engine);
	if (background_wanted(engine) || rb_engine_mends(engine))
		engine->driving = RB_DRIVING_BACKGROUND;
}

static void background_park(struct rb_engine *engine, uint64_t *starts, uint32_t *idle_ticks)
{
	uint32_t seen = atomic_load(&engine->background.word);
	bool woken, ticking = engine->background.ticking;
	uint64_t each_ns = ticking ? RB_TICK_NS : rb_engine_looks_each_ns(engine);
	uint64_t until_ns = each_ns > 0 ? rb_clock_ns() + each_ns : UINT64_MAX;

	engine->background.parked = true;
	rb_lock_drop(&engine->lock);
	background_modest(engine, true);
	woken = rb_futex_wait(&engine->background.word, seen, until_ns);
	rb_engine_enter(engine);
	engine->background.parked = false;
	if (!woken && !ticking && !engine->background.stop)
		look_after(engine);
	if (woken || !ticking || engine->background.stop || !tick(engine, starts, idle_ticks))
		return;
	engine->background.reluctant = false;
	engine->background.useless = USELESS_MAX - USELESS_AGAIN;
	engine->background.handed_moves = engine->background.moves;
	engine->driving = RB_DRIVING_BACKGROUND;
}

static void *background_main(void *arg)
{
	struct rb_engine *engine = arg;
	uint64_t starts = 0;
	uint32_t idle_ticks = 0;

	if (rb_cpus_count(engine->background.cpus) > 0)
		rb_thread_confine(engine->background.cpus, RB_CPU_WORDS);
	engine->background.usual = rb_thread_is_usual();
	rb_engine_enter(engine);
	while (!engine->background.stop) {
		if (engine->driving == RB_DRIVING_BACKGROUND) {
			background_drive(engine);
			continue;
		}
		background_park(engine, &starts, &idle_ticks);
	}
	if (engine->driving == RB_DRIVING_BACKGROUND) /* Stopped before it had begun. */
		drive_as(engine, RB_DRIVING_NOBODY);
	rb_lock_drop(&engine->lock);
	return NULL;
}

static void background_kick(struct rb_engine *engine)
{
	atomic_fetch_add(&engine->background.word, 1);
	if (engine->background.parked)
		rb_futex_wake(&engine->background.word, 1);
}

static uint64_t background_step(void *arg)
{
	struct rb_engine *engine = arg;

	while (rb_engine_progress(engine))
		;
	return rb_engine_next_timer(engine);
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
	return wanted ? rb_thread_start(&engine->background.thread, background_main, engine)
		      : RUBATO_OK;
}

static void background_hand(struct rb_engine *engine)
{
	engine->background.starts++;
	if (engine->background.reluctant) {
		if (!engine->background.ticking) {
			engine->background.ticking = true;
			background_kick(engine);
			endpoints_wake(engine); /* It may sleep there still. */
		}
		return;
	}
	engine->driving = RB_DRIVING_BACKGROUND;
	engine->background.handed_moves = engine->background.moves;
	engine->completed = engine->posted = false;
	if (engine->background.parked)
		background_kick(engine);
	else if (!sleeper_needed(engine) && endpoints_arm(engine))
		engine->asleep = true; /* It sleeps on the descriptors still. */
	else
		endpoints_wake(engine);
}

/* Apart, as most have nothing to say, to hand over or to wake. */
static __attribute__((noinline)) void leave_busy(struct rb_engine *engine)
{
	if (engine->poison != RUBATO_OK)
		rb_engine_tell(engine);
	sleepers_tell(engine);
	if (background_wanted(engine) && engine->background.thread.running &&
	    engine->driving == RB_DRIVING_NOBODY && engine->waiters == 0)
		background_hand(engine);
	rb_lock_drop(&engine->lock);
}

void rb_engine_leave(struct rb_engine *engine)
{
	if (engine->poison == RUBATO_OK && engine->waiters == 0 && !engine->asleep &&
	    !background_wanted(engine))
		rb_lock_drop(&engine->lock);
	else
		leave_busy(engine);
}

void rb_engine_stop(struct rb_engine *engine)
{
	if (!engine->background.thread.running)
		return;
	rb_engine_enter(engine);
	engine->background.stop = true;
	background_kick(engine);
	endpoints_wake(engine);
	rb_lock_drop(&engine->lock);
	rb_thread_join(&engine->background.thread);
}
