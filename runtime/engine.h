/*
 * engine.h -- carries out schedules: the one place where collectives meet transports and executors.
 *
 * Locking. Everything here is under engine->lock, but for what says otherwise. Endpoints and
 * executors are thus used by one thread at a time; who holds the lock and polls is the *driver*:
 *
 *   NONE        nothing is in flight, or nobody has had to wait yet
 *   WAITER      a thread inside a blocking call polls until its own operation is complete. Other
 *               waiting threads sleep on `turn`; leaving, the driver hands over to one of them
 *   BACKGROUND  operations are in flight, or messages of completed ones have yet to leave, and
 *               nobody waits: the progress thread polls, or sleeps with the endpoints armed. A
 *               thread that comes to wait takes over at once
 *
 * A driver drops the lock when another thread wants it (engine->wanting) and whenever it yields or
 * sleeps.
 */
#ifndef RB_RUNTIME_ENGINE_H
#define RB_RUNTIME_ENGINE_H

#include "base/config.h"
#include "base/sync.h"
#include "runtime/executor.h"
#include "runtime/plan.h"
#include "runtime/startup/topology.h"
#include "transport/transport.h"

#define RB_WINDOW                                                                                  \
	8 /* Iterations of one step in flight. Guess: hides a round trip at 256 KiB a chunk. */
#define RB_ENDPOINTS_MAX 4
#define RB_TICK_NS 1000000u      /* Guess: 5 us of waking up cost half a percent. */
#define RB_OVERDUE_NS 100000000u /* Guess: seldom reached where ranks call alike. */

struct rb_engine;
struct rb_loss;
struct rb_run;
struct rb_plug;

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
	bool is_news;             /* rb_engine_hear. */
	uint32_t step, iteration; /* Of a run. */
	void *owner;
	void (*done)(struct rb_engine *engine, struct rb_slot *slot); /* Gives the slot back. */
	struct rb_slot *next, *previous; /* In the owner's list, or the free list. */
};

struct rb_step_state {
	uint32_t started, done; /* done: iterations 0 .. done - 1 are complete. */
	uint32_t finished;      /* Bit i: iteration done + i is complete too. */
};

/* Where a peer's buffers are: mapped here, or reachable by put. */
struct rb_peer_buffers {
	void *mapped[RB_BUFFER_COUNT];
	struct rb_remote *remote[RB_BUFFER_COUNT];
	uint64_t remote_offset[RB_BUFFER_COUNT];
};

/* A schedule being executed. */
struct rb_run {
	/* Set by the owner before rb_run_start. */
	struct rb_plan *plan;
	void *buffers[RB_BUFFER_COUNT]; /* IN is never written. */
	struct rb_peer_buffers *peers;  /* Per rank; NULL if the schedule names no peer's memory. */
	const uint32_t *ranks; /* The plan's ranks in the communicator, or NULL: they are those. */
	uint32_t divisor;      /* Of AVG; 0: the number of ranks. */
	struct rb_executor *executor; /* NULL: the engine's. */
	rubato_type type;
	rubato_operator op;
	struct rb_tag tag;
	struct rb_signature signature;
	uint32_t instance; /* Chooses the set of scratch slots. */
	bool entered;      /* RB_STEP_ENTRY steps are left out. */
	void (*done)(struct rb_engine *engine, struct rb_run *run); /* May free the run. */
	void *owner;
	/* The run's own. */
	struct rb_step_state *states;
	uint64_t *dirty; /* Bitmap of steps whose next iteration may have become ready. */
	uint64_t done_steps, ready_steps; /* Bitmaps, of a short plan: instead of these two. */
	uint64_t set_at;                  /* In scratch: this instance's set, in bytes. */
	uint32_t step_capacity, steps_left;
	bool active;
	bool advancing;
	bool probed; /* Since its start: unmatched.c. */
	rubato_status status;
	char failure[192];              /* The sentence of the first error. */
	struct rb_slot *slots;          /* Outstanding. */
	struct rb_run *next, *previous; /* engine->runs. */
	uint64_t started_ns;
};

enum rb_driver { RB_DRIVER_NONE, RB_DRIVER_WAITER, RB_DRIVER_BACKGROUND };

struct rb_waiting {        /* How to wait, from the costs of this machine: waiting.c. */
	uint64_t spin_ns;  /* Poll without giving the core away. */
	uint64_t yield_ns; /* Then poll between yields, for so long; then sleep. */
	uint32_t vain;     /* Polls of late that were in vain: waiting.c. */
	bool forced;       /* As it is, whatever sleeps teach. */
};

struct rb_engine {
	struct rb_lock lock;
	_Atomic uint32_t wanting; /* Threads that are about to take the lock. */
	_Atomic uint32_t handed;  /* How many of those have had it. */
	uint32_t handing;         /* Threads that stay away until one has. */
	uint32_t rank, rank_count, epoch;
	struct rb_endpoint *endpoints[RB_ENDPOINTS_MAX];
	uint32_t endpoint_count;
	uint8_t *route;          /* Per peer: index into endpoints. */
	bool *lost;              /* Per peer: a failure was reported. */
	struct rb_request *news; /* That have come, and were not heard yet. */
	struct rb_loss *losses;  /* In order; */
	uint32_t losses_untold;  /* and those that no memory was left for. */
	bool losses_new;
	uint32_t blames; /* The rank over which this one has to give up, + 1; 0: none. */
	struct rb_executor *executor;
	struct rb_waiting waiting;

	struct rb_slot *free_slots;
	struct rb_slot_block *slot_blocks;
	struct rb_run *runs;    /* Active ones. */
	uint32_t own_executors; /* Of those, how many brought their own. */
	uint32_t in_flight; /* Operations that nobody may be waiting for: what BACKGROUND is for. */
	struct rb_plug *plugs; /* Protocol machines: plug.h. */

	enum rb_driver driver;
	bool asleep;              /* The driver sleeps, the lock is free. */
	uint64_t asleep_until_ns; /* Asleep: no timer before then was known. */
	uint32_t waiters;         /* Threads that sleep on turn. */
	_Atomic uint32_t turn;
	bool completed; /* Something completed since the driver last woke the waiters. */
	bool stirred;   /* Something was posted since the sleeping driver looked. */
	struct rb_thread background;
	uint64_t background_cpus[RB_CPU_WORDS]; /* All zero: where its process may. */
	_Atomic uint32_t background_word;       /* The parked progress thread sleeps on it. */
	bool background_parked, stop;
	/*
	 * To hand what is in flight to the progress thread costs a wake-up. Where the application
	 * came back to wait before that thread had moved anything, again and again, it is not woken
	 * any more: it looks by itself every RB_TICK_NS, and takes what was left for two ticks.
	 */
	bool reluctant, ticking;
	uint32_t handed_in_vain; /* Halved where it was of use. */
	uint64_t handed_moves;   /* background_moves when it was last handed something. */
	uint64_t background_moves, starts;

	rubato_status poison; /* The first error of a collective, or 0. */
	char poison_text[256];
	_Atomic bool abort_wanted;
	void (*poisoned)(struct rb_engine *engine, void *arg); /* Told once, to tell the peers. */
	void (*last_words)(struct rb_engine *engine, uint32_t peer, const uint8_t *words);
	/* Before a sleep: messages that meet tell a mismatch by themselves; others lie there. */
	void (*unmatched_look)(struct rb_engine *engine, void *arg);
	/* Nothing has moved for RB_OVERDUE_NS, though a thread waits or something is in flight. */
	void (*overdue)(struct rb_engine *engine, void *arg);
	void *owner; /* Their arg. */

	uint64_t operations, bytes_mapped, wait_ns, background_polls;
};

/* endpoints, route: set by the caller afterwards, before anything else is called. */
RB_NODISCARD rubato_status rb_engine_init(struct rb_engine *engine, uint32_t rank,
					  uint32_t rank_count);
/* Stops the progress thread. Endpoints are closed by the caller, after this. */
void rb_engine_stop(struct rb_engine *engine);
void rb_engine_fini(struct rb_engine *engine);

void rb_engine_enter(struct rb_engine *engine); /* Takes the lock. */
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
	engine->stirred = true;
	slot->is_news = false;
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

/* One round: polls executors and endpoints, advances runs. True if anything moved. */
bool rb_engine_progress(struct rb_engine *engine);
/* What a peer said before it went tells why: to be called before what fails without it fails. */
void rb_engine_hear(struct rb_engine *engine);
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
RB_NODISCARD rubato_status rb_engine_check(struct rb_engine *engine); /* The poison, noted again. */

RB_NODISCARD rubato_status rb_engine_background(struct rb_engine *engine, bool wanted);

/* ---- Lost ranks: loss.c ---- */

void rb_loss_note(struct rb_engine *engine, const struct rb_failure *failure);
/* What an endpoint has to say, noted; nothing else happens. */
static inline void rb_losses_collect(struct rb_engine *engine, struct rb_endpoint *ep)
{
	struct rb_failure failure;

	failure.blames = 0;
	failure.gave_up = failure.spoke = false;
	while (__builtin_expect(ep->ops->failure(ep, &failure), 0)) {
		rb_loss_note(engine, &failure);
		failure.blames = 0;
		failure.gave_up = failure.spoke = false;
	}
}
/* Hands the last words of the lost, once, to engine.last_words: before anything is said of them. */
void rb_losses_hear(struct rb_engine *engine);
/* Tells protocol machines, poisons where something is in flight. */
void rb_losses_act(struct rb_engine *engine);
/* "rank 3 is lost: process 4711 ended", and which others are; NULL: it is not known to be. */
const char *rb_loss_text(struct rb_engine *engine, uint32_t peer, char *text, size_t text_bytes);
/* The same of another rank than `peer`, which gave up over it: if it then went on to something
 * else, it seems to call the wrong operation. Who gave up without a word may have done so over a
 * call that was wrong, and is no cause. UINT32_MAX: whatever was lost first. */
const char *rb_loss_behind(struct rb_engine *engine, uint32_t peer, char *text, size_t text_bytes);
void rb_losses_fini(struct rb_engine *engine);

/* ---- Runs: run.c ---- */

RB_NODISCARD rubato_status rb_run_init(struct rb_run *run, struct rb_plan *plan);
void rb_run_fini(struct rb_run *run);
/* Starts what can start; run->done is called when all is complete, perhaps before this returns. */
void rb_run_start(struct rb_engine *engine, struct rb_run *run);
/* Ends it with `status`: afterwards no buffer is touched any more, and run->done has been
 * called. */
void rb_run_fail(struct rb_engine *engine, struct rb_run *run, rubato_status status,
		 const char *text);
/* "rank 0 calls allreduce ... by ring, rank 1 calls ...": what both call. Returns text. */
char *rb_calls_text(char *text, size_t text_bytes, uint32_t rank, const struct rb_signature *ours,
		    uint32_t peer, const struct rb_signature *theirs);
uint32_t rb_run_steps_done(const struct rb_run *run);
/* "waiting for rank 3 (recv), rank 5 (wait)": what it lacks. Returns text. */
char *rb_run_absent(const struct rb_run *run, char *text, size_t text_bytes);

/* ---- waiting.c ---- */

struct rb_waiting_costs {
	uint64_t wake_ns;  /* From waking a sleeper until it runs. */
	uint64_t yield_ns; /* From one thread of a core to another; 0: not measured. */
};
/* crowded: the yield, too. Takes about a millisecond. */
void rb_waiting_measure(bool crowded, struct rb_waiting_costs *out);
/* Pure: for node_ranks that share `cores`. */
struct rb_waiting rb_waiting_choose(const struct rb_waiting_costs *costs, uint32_t node_ranks,
				    uint32_t cores);
/* How long to poll now; and after a sleep, what it teaches. */
uint64_t rb_waiting_spin_ns(const struct rb_waiting *waiting);
void rb_waiting_slept(struct rb_waiting *waiting, uint64_t slept_ns);
/* Measures and chooses; forced_ns > 0 is RUBATO_SPIN, and is taken as it is. */
struct rb_waiting rb_waiting_find(uint32_t node_ranks, uint32_t cores, uint64_t forced_ns);

#endif
