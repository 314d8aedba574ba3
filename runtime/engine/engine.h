/*
 * engine.h -- carries out schedules: the one place where collectives meet transports and executors.
 *
 * Locking. Everything here is under engine->lock, but for what says otherwise. Endpoints and
 * executors are thus used by one thread at a time. Who holds the lock and polls *drives*:
 *
 *   NOBODY      nothing is in flight, or nobody has had to wait yet
 *   WAITER      a thread inside a blocking call polls until its own operation is complete. Other
 *               waiting threads sleep; leaving, it hands over to one of them
 *   BACKGROUND  operations are in flight, or messages of completed ones have yet to leave, and
 *               nobody waits: the progress thread polls, or sleeps with the endpoints armed. A
 *               thread that comes to wait takes over at once
 *
 * Who drives drops the lock when another thread wants it, and whenever it yields or sleeps.
 *
 * The engine is given its pollers (runs, protocol machines, failure notices, ...): it does not know
 * them.
 */
#ifndef RB_RUNTIME_ENGINE_H
#define RB_RUNTIME_ENGINE_H

#include "base/config.h"
#include "base/sync.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/loss.h"
#include "runtime/engine/sharing.h"
#include "runtime/engine/waiting.h"
#include "runtime/startup/topology.h"
#include "transport/transport.h"

#define RB_ENDPOINTS_MAX 4
#define RB_DEVICES_MAX 4
#define RB_TICK_NS 1000000u      /* Guess: 5 us of waking up cost half a percent. */
#define RB_OVERDUE_NS 100000000u /* Guess: seldom reached where all ranks call the same. */

struct rb_engine;
struct rb_run;

/* One post or one piece of work, from a pool that never shrinks: steady state allocates nothing. */
struct rb_slot {
	union {
		struct rb_request request;
		struct rb_work work;
	};
	/* Operands that do not fit into work.operands; kept for the next user of the slot. */
	const void **operands_more;
	uint32_t operands_more_count;
	bool is_work;
	bool listed, given;       /* By a poll, not handled yet; given back meanwhile. */
	bool is_notice;           /* Of a failure: rb_engine_hear. */
	uint32_t step, iteration; /* Of a run. */
	void *owner;
	void (*done)(struct rb_engine *engine, struct rb_slot *slot); /* Gives the slot back. */
	struct rb_slot *next, *previous; /* In the owner's list, or the free list. */
};

/* What is polled, or told of what happens to the engine, beside endpoints and executor. */
struct rb_poller {
	const struct rb_poller_ops *ops;
	struct rb_poller *next; /* engine->pollers */
};

/* Those of lower order come first: runs end before protocol machines, and peers hear of it last. */
enum rb_poller_order { RB_POLLER_RUNS, RB_POLLER_PROTOCOL, RB_POLLER_NOTICE };

struct rb_poller_ops { /* NULL: no need. */
	enum rb_poller_order order;
	bool polled; /* Always; others add themselves to engine->polled when there is need. */
	/* With every round of progress while engine->polled > 0; whether anything moved. First,
	 * before the endpoints are polled: what comes is to find its receive. */
	bool (*post)(struct rb_engine *engine, struct rb_poller *poller);
	bool (*poll)(struct rb_engine *engine, struct rb_poller *poller);
	/* A thread begins to wait: likewise, before it polls for the first time. */
	void (*awaited)(struct rb_engine *engine, struct rb_poller *poller);
	/* When it wants to be polled though nothing comes; UINT64_MAX: never. */
	uint64_t (*next_ns)(const struct rb_poller *poller);
	/* Whether it must be polled again soon, without anything that would wake a sleeper. */
	bool (*busy)(const struct rb_engine *engine, const struct rb_poller *poller);
	/* Whether the loss of any rank concerns it: then that poisons the engine. */
	bool (*concerned)(const struct rb_engine *engine, const struct rb_poller *poller);
	void (*peer_lost)(struct rb_engine *engine, struct rb_poller *poller, uint32_t peer);
	void (*poisoned)(struct rb_engine *engine, struct rb_poller *poller, rubato_status status,
			 const char *text);
	/* Before a sleep: what lies here that no poll tells of. */
	void (*sleeping)(struct rb_engine *engine, struct rb_poller *poller);
	/* Nothing has moved for RB_OVERDUE_NS, though a thread waits or something is in flight. */
	void (*overdue)(struct rb_engine *engine, struct rb_poller *poller);
};

/* The lock is not fair: threads that want it say so, and who has just had it stays away. */
struct rb_hand_over {
	_Atomic uint32_t wanted; /* Threads that are about to take the lock. */
	_Atomic uint32_t taken;  /* How many of those have had it. */
	uint32_t away;           /* Threads that stay away until one has. */
};

struct rb_background { /* The progress thread. */
	struct rb_thread thread;
	uint64_t cpus[RB_CPU_WORDS]; /* All zero: where its process may. */
	_Atomic uint32_t word;       /* Parked, it sleeps on it. */
	bool parked, stop;
	/*
	 * It is woken in rubato_start, or where an application leaves another call, and shall not
	 * take the processor from it: a start would last as long as the operation. So while it is
	 * parked it is modest; once it drives it is not, for messages must find it.
	 */
	bool usual, modest;
	/*
	 * To hand what is in flight to the progress thread costs a wake-up. Where the application
	 * came back to wait before that thread had moved anything, again and again, it is not woken
	 * any more: it looks by itself every RB_TICK_NS, and takes what was left for two ticks.
	 */
	bool reluctant, ticking;
	uint32_t useless;      /* Hand-overs of late that were; halved where one was of use. */
	uint64_t handed_moves; /* `moves` when it was last handed something. */
	uint64_t moves, starts, polls;
};

enum rb_driving { RB_DRIVING_NOBODY, RB_DRIVING_WAITER, RB_DRIVING_BACKGROUND };

struct rb_engine {
	struct rb_lock lock;
	struct rb_hand_over hand_over;
	uint32_t rank, rank_count, epoch;
	uint32_t forks; /* rb_forks of the process that made it. */
	struct rb_endpoint *endpoints[RB_ENDPOINTS_MAX];
	uint32_t endpoint_count;
	/* Per endpoint: its number among the transports that all ranks were given. */
	uint8_t transport[RB_ENDPOINTS_MAX];
	uint8_t *route; /* Per peer: index into endpoints. */
	struct rb_losses losses;
	struct rb_request *notices;   /* Of failures, that have come and were not heard yet. */
	struct rb_executor *executor; /* The host's. */
	uint64_t past_bytes; /* IN and OUT as long as this: results go past the caches; 0: never. */
	struct rb_executor *devices[RB_DEVICES_MAX];
	uint32_t device_count;

	struct rb_slot *free_slots;
	struct rb_slot_block *slot_blocks;
	struct rb_run *runs;       /* Active ones: run.h's. */
	struct rb_poller *pollers; /* In their order. */
	uint32_t polled;           /* How many of them have something to poll. */
	uint32_t in_flight; /* Operations that nobody may be waiting for: what BACKGROUND is for. */

	enum rb_driving driving;
	struct rb_waiting waiting;
	struct rb_sharing sharing;
	bool asleep;              /* Who drives sleeps, the lock is free. */
	uint64_t asleep_until_ns; /* Asleep: no timer before then was known. */
	uint32_t waiters;         /* Threads that sleep on waiters_word. */
	_Atomic uint32_t waiters_word;
	bool completed; /* Something completed since the waiters were last woken. */
	bool posted;    /* Something was posted since the sleeping thread looked. */
	struct rb_background background;

	rubato_status poison; /* The first error of a collective, or 0. */
	char poison_text[RB_TEXT_BYTES];
	bool told;        /* Of it: rb_engine_tell. */
	uint32_t telling; /* Notices of it that are not sent yet. */
	_Atomic bool abort_wanted;

	uint32_t unpolled; /* What was carried out since the last poll. */
	uint32_t looks;    /* In vain, where ranks share cores. */
	uint64_t operations, bytes_mapped, wait_ns;
};

/* endpoints, transport, route: set by the caller afterwards, before anything else is called. */
RB_NODISCARD rubato_status rb_engine_init(struct rb_engine *engine, uint32_t rank,
					  uint32_t rank_count);
/* Stops the progress thread. Endpoints are closed by the caller, after this. */
void rb_engine_stop(struct rb_engine *engine);
void rb_engine_fini(struct rb_engine *engine);

RB_NODISCARD rubato_status rb_engine_not_ours(void); /* The error. */
/* Whether it was made in this process: ARGUMENT in a forked child of the one that did. What a
 * public call does first, before the lock, which a thread that the child lacks may have held. */
RB_NODISCARD static inline rubato_status rb_engine_ours(const struct rb_engine *engine)
{
	return __builtin_expect(engine->forks == rb_forks, 1) ? RUBATO_OK : rb_engine_not_ours();
}

void rb_engine_enter_late(struct rb_engine *engine);
static inline void rb_engine_enter(struct rb_engine *engine) /* Takes the lock. */
{
	if (!__builtin_expect(rb_lock_try(&engine->lock), 1))
		rb_engine_enter_late(engine); /* When who has it is through. */
}
/* Of a public call: where the engine is ours. */
RB_NODISCARD static inline rubato_status rb_engine_call(struct rb_engine *engine)
{
	RB_TRY(rb_engine_ours(engine));
	rb_engine_enter(engine);
	return RUBATO_OK;
}
void rb_engine_leave(
	struct rb_engine *engine); /* Drops it; hands what is in flight to BACKGROUND. */

/* ---- Under the lock ---- */

/* For those that poll: drops the lock and takes it again if a thread waits for it; whether so. */
bool rb_engine_hand_over(struct rb_engine *engine);

static inline struct rb_endpoint *rb_engine_endpoint(const struct rb_engine *engine, uint32_t peer)
{
	return engine->endpoints[engine->route[peer]];
}

/* As in a simulation: time passes while ranks wait, and never while they poll. */
static inline bool rb_engine_time_is_virtual(const struct rb_engine *engine)
{
	return (engine->endpoints[0]->ops->caps & RB_CAP_VIRTUAL_TIME) != 0;
}

/* Whether completed messages, or notices of failure, have yet to be driven out. */
static inline bool rb_engine_leaving(const struct rb_engine *engine)
{
	if (engine->telling > 0)
		return true;
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (ep->leaving != 0 && (ep->ops->left == NULL || !ep->ops->left(ep)))
			return true;
	}
	return false;
}

uint64_t rb_engine_now(struct rb_engine *engine);

bool rb_slots_more(struct rb_engine *engine); /* False when memory runs out. */

/* NULL when memory runs out. */
static inline struct rb_slot *rb_slot_take(struct rb_engine *engine)
{
	struct rb_slot *slot;

	if (__builtin_expect(engine->free_slots == NULL, 0) && !rb_slots_more(engine))
		return NULL;
	slot = engine->free_slots;
	engine->free_slots = slot->next;
	engine->posted = true;
	slot->is_notice = false;
	slot->next = slot->previous = NULL;
	return slot;
}

static inline void rb_slot_give(struct rb_engine *engine, struct rb_slot *slot)
{
	slot->given = slot->listed;
	if (slot->listed)
		return; /* It must stay put until those before it in the list are done. */
	slot->next = engine->free_slots;
	engine->free_slots = slot;
}

/* Whether nothing is under way that needs polls, but for so many operations in flight, and so many
 * of what is put off: then what is here already may be taken without one. Every so often false
 * nevertheless, until there was a poll. */
#define RB_UNPOLLED_MAX 256u /* Guess: a poll costs a hundred instructions. */
static inline bool rb_engine_quiet(struct rb_engine *engine, uint32_t in_flight, uint32_t put_off)
{
	if (engine->driving != RB_DRIVING_NOBODY || engine->waiters > 0 || engine->runs != NULL ||
	    engine->polled > put_off || engine->in_flight > in_flight || engine->notices != NULL ||
	    atomic_load_explicit(&engine->abort_wanted, memory_order_relaxed) ||
	    rb_engine_leaving(engine))
		return false;
	return ++engine->unpolled < RB_UNPOLLED_MAX;
}
/* As rb_engine_leave, of an engine that was quiet, in which nothing has begun since. */
static inline void rb_engine_leave_quiet(struct rb_engine *engine)
{
	if (engine->asleep)
		rb_engine_leave(engine);
	else
		rb_lock_drop(&engine->lock);
}
/* Looks for a moment whether something comes from this peer, in a quiet engine, without a poll. */
bool rb_engine_linger(const struct rb_engine *engine, uint32_t peer);
/* One round: polls executors and endpoints, advances runs. True if anything moved. */
bool rb_engine_progress(struct rb_engine *engine);
/* What a peer said before it went tells why: to be called before what `failed` belongs to fails. */
void rb_engine_hear(struct rb_engine *engine, const struct rb_request *failed);
/*
 * Drives, or lets others drive, until *done, the deadline, poison or abort; without a progress
 * thread also, after *done, until everything has left. OK means *done. TIMEOUT leaves everything in
 * flight. In a poisoned engine, operations complete with errors by themselves.
 */
RB_NODISCARD rubato_status rb_engine_wait(struct rb_engine *engine, const bool *done,
					  uint64_t deadline_ns);
/* Whether an operation is over for a caller who does not drive: done, and left (transport.h) too
 * where neither a progress thread nor another waiter will see to that. */
bool rb_engine_over(const struct rb_engine *engine, const bool *done);
/* The same from now on; what is done within the first polls costs no look at the clock. */
RB_NODISCARD rubato_status rb_engine_wait_for(struct rb_engine *engine, const bool *done,
					      uint64_t timeout_ns);
/* One round of progress, if nobody else drives; returns rb_engine_over. In the simulator one in
 * which nothing moves takes time, so that a loop of looks does not stop it. */
bool rb_engine_look(struct rb_engine *engine, const bool *done);
/* Ends all runs with `status`, buffers quiet, and lets no new one start. The first one counts. */
void rb_engine_poison(struct rb_engine *engine, rubato_status status, const char *text);
/*
 * What a poisoned engine has to say leaves, if no progress thread sees to that: the first call that
 * ends waits for it, two seconds at most, and each later one looks once.
 */
void rb_engine_tell(struct rb_engine *engine);
RB_NODISCARD rubato_status rb_engine_check(struct rb_engine *engine); /* The poison, noted again. */

/* The threads that wait look whether what they wait for has come. */
void rb_engine_wake_waiters(struct rb_engine *engine);

/* What an executor has completed; whether there was any. */
bool rb_engine_poll_executor(struct rb_engine *engine, struct rb_executor *executor);
/* Stays until it is removed; the first of its order from then on. */
void rb_engine_add_poller(struct rb_engine *engine, struct rb_poller *poller);
void rb_engine_remove_poller(struct rb_engine *engine, struct rb_poller *poller);
/* To all pollers: rank `peer` takes part in nothing any more. */
void rb_engine_peer_lost(struct rb_engine *engine, uint32_t peer);
uint64_t rb_engine_next_timer(const struct rb_engine *engine); /* UINT64_MAX: none. */

/* mending.c: of what has left. Whether a way is being mended; how often somebody is to look after
 * it, 0: never; does so. */
bool rb_engine_mends(const struct rb_engine *engine);
uint64_t rb_engine_looks_each_ns(const struct rb_engine *engine);
void rb_engine_look_after(struct rb_engine *engine);

RB_NODISCARD rubato_status rb_engine_background(struct rb_engine *engine, bool wanted);

#endif
