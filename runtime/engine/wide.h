/*
 * wide.h -- 16-bit floats accumulated in float32 over a whole reduction (rubato_set_accumulate).
 *
 * No schedule knows of it. The operation becomes one of float32, in place in a buffer of its own
 * (allocated like rubato_alloc's, so it runs where theirs would); a local run widens the caller's
 * input into it before, and another narrows the result after:
 *
 *   IDLE --start--> CONVERTING --> EXCHANGING, RUNNING as always --> CONVERTING --> IDLE
 *
 * Conversions are work of an executor, in slices, so that progress stays fair, and cancelling and
 * poisoning end them as they end any run.
 */
#ifndef RB_RUNTIME_WIDE_H
#define RB_RUNTIME_WIDE_H

#include "runtime/engine/memory.h"
#include "runtime/engine/run.h"

struct rb_wide {
	struct rb_executor executor; /* First: the struct is its own executor. */
	bool active;                 /* For what is asked for now. */
	bool narrowing;
	rubato_type half; /* What the caller asked for, and where its data are. */
	const void *in;
	void *out;
	uint64_t out_first, out_count; /* Where the result lies in `memory`, in elements. */
	struct rb_memory *memory;
	struct rb_plan *widen, *narrow;
	rb_convert_fn convert;
	struct rb_run run;
	struct rb_work *first, *last; /* Waiting slices, by next and previous. */
	struct rb_endpoint *clock;
	void (*then)(void *arg, rubato_status status, const char *text);
	void *arg;
};

/* With half, in, out, out_first and out_count set: room for in_count floats, and what converts. */
RB_NODISCARD rubato_status rb_wide_prepare(struct rb_wide *wide, struct rb_memories *memories,
					   uint64_t in_count);
/* Widens `in`, or narrows the result into `out`; calls then(), perhaps before it returns. */
void rb_wide_start(struct rb_wide *wide, struct rb_engine *engine, bool narrow,
		   void (*then)(void *arg, rubato_status status, const char *text), void *arg);
/* Frees all but the memory, which is the communicator's. */
void rb_wide_fini(struct rb_wide *wide);

#endif
