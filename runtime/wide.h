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

#include "runtime/run.h"

struct rubato_op;
struct rb_memory;

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
	void (*then)(struct rubato_op *op, rubato_status status, const char *text);
};

/* After the arguments were checked: makes `op` one of float32 where that is wanted. */
RB_NODISCARD rubato_status rb_wide_prepare(struct rubato_op *op);
/* Calls then(), perhaps before it returns. */
void rb_wide_start(struct rubato_op *op, bool narrow,
		   void (*then)(struct rubato_op *op, rubato_status status, const char *text));
/* Frees all but the memory, which is the communicator's. */
void rb_wide_fini(struct rb_wide *wide);

#endif
