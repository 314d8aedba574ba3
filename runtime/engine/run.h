/*
 * run.h -- a schedule being executed: one rank's part of one collective.
 *
 * Everything is under the engine's lock. A run belongs to who started it; the engine knows no more
 * of runs than what pollers do (engine.h): they are ended when it is poisoned, and those with
 * executors of their own have these polled.
 */
#ifndef RB_RUNTIME_RUN_H
#define RB_RUNTIME_RUN_H

#include "runtime/engine/engine.h"
#include "runtime/engine/plan.h"

#define RB_WINDOW                                                                                  \
	8 /* Iterations of one step in flight. Guess: hides a round trip at 256 KiB a chunk. */

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
	struct rb_where buffers[RB_BUFFERS_ALL]; /* IN is never written. */
	struct rb_peer_buffers *peers; /* Per rank; NULL if the schedule names no peer's memory. */
	const uint32_t *ranks; /* The plan's ranks in the communicator, or NULL: they are those. */
	uint32_t divisor;      /* Of AVG; 0: the number of ranks. */
	/* Two: who carries out steps, and those that are RB_STEP_DEVICE. NULL: the engine's. */
	struct rb_executor *const *executors;
	rubato_type type;
	rubato_operator op;
	/* Coded (collectives/reduce/coded.h), for devices: how, and what rounding sums loses, of
	 * the whole vector, or NULL. WIRE_SAME: it is not, or executors[0] alone knows. */
	rubato_wire wire;
	float *residual;
	const struct rb_code_vector *code; /* NULL, or with wire: what its copies are instead. */
	struct rb_tag tag;
	struct rb_signature signature;
	/* Of an exchange among pairs: what they have for each other, which its messages carry in
	 * the signature as those of the plan's do that is being exchanged for. Or NULL. */
	const struct rb_layout *pairs;
	uint32_t instance; /* Chooses the set of scratch slots. */
	enum rb_met met;
	bool in_flight; /* It is of one of the engine's operations in flight. */
	uint32_t begun; /* So many steps of plan->order are done; 0 after the start. */
	void (*done)(struct rb_engine *engine, struct rb_run *run); /* May free the run. */
	void *owner;
	/* The run's own. */
	struct rb_step_state *states;
	struct rb_run_events *events; /* Of a staged plan. */
	uint8_t crosses; /* Bit 2 a + b: executors[a] waits for events of executors[b]. */
	uint64_t *dirty; /* Bitmap of steps whose next iteration may have become ready. */
	uint64_t done_steps, ready_steps; /* Bitmaps, of a short plan: instead of these two. */
	uint64_t set_at;                  /* In scratch: this instance's set, in bytes. */
	uint32_t turns, turns_next; /* Of alternating slots: before this instance, and the next. */
	uint32_t step_capacity, event_capacity, steps_left;
	uint32_t straight; /* How many steps of plan->order are done. */
	bool deferred;     /* The others have not been started: the next poll does that. */
	bool active;
	bool advancing;
	bool probed; /* Since its start: unmatched.c. */
	rubato_status status;
	char failure[RB_TEXT_BYTES];    /* The sentence of the first error. */
	struct rb_slot *slots;          /* Outstanding. */
	struct rb_run *next, *previous; /* engine->runs. */
	uint64_t started_ns;
};

struct rb_runs {                 /* All of an engine. */
	struct rb_poller poller; /* First. */
	struct rb_engine *engine;
};

/* Once, before the first run: `runs` stays as long as the engine. */
void rb_runs_open(struct rb_runs *runs, struct rb_engine *engine);
RB_NODISCARD rubato_status rb_run_init(struct rb_run *run, struct rb_plan *plan);
void rb_run_fini(struct rb_run *run);
/* Starts what can start; run->done is called when all is complete, perhaps before this returns. */
void rb_run_start(struct rb_engine *engine, struct rb_run *run);
/* Ends it with `status`: afterwards no buffer is touched any more, and run->done has been
 * called. */
void rb_run_fail(struct rb_engine *engine, struct rb_run *run, rubato_status status,
		 const char *text);
/* A thread waits for what is deferred, while nobody else drives. */
void rb_run_await(struct rb_engine *engine, struct rb_run *run);
uint32_t rb_run_steps_done(const struct rb_run *run);
/* The rank that a step of the run sends to or receives from. */
static inline uint32_t rb_run_peer(const struct rb_run *run, const struct rb_step *step)
{
	return run->ranks != NULL && step->peer != RB_SELF ? run->ranks[step->peer] : step->peer;
}
/* Who carries out a step. */
static inline struct rb_executor *rb_run_executor(const struct rb_engine *engine,
						  const struct rb_run *run,
						  const struct rb_step *step)
{
	bool device = (step->flags & RB_STEP_DEVICE) != 0;

	return run->executors == NULL ? engine->executor : run->executors[device];
}
/* The status of what failed, and in `text` what is to be said about it. */
rubato_status rb_run_failure(struct rb_engine *engine, const struct rb_run *run,
			     const struct rb_slot *slot, char *text, size_t text_bytes);
/* The count in the signature of a step's message. By pairs it is each pair's own: what one sends
 * must be what the other expects. */
static inline uint64_t rb_run_count(const struct rb_run *run, uint32_t index)
{
	const struct rb_step *step = &run->plan->schedule.steps[index];
	bool block = step->kind == RB_STEP_SEND || step->kind == RB_STEP_RECV;

	if (run->plan->layout.per_peer && block)
		return run->plan->range[index];
	if (run->pairs == NULL || !block)
		return run->signature.count;
	return step->kind == RB_STEP_SEND
		       ? rb_layout_length(run->pairs, rb_run_peer(run, step), 1)
		       : rb_layout_out_length(run->pairs, rb_run_peer(run, step), 1);
}

#endif
