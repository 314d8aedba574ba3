/*
 * converted.h -- operations that run in another form than their caller's: 16-bit floats accumulated
 * in float32 over a whole reduction (rubato_set_accumulate), and float32 that travels in fewer bits
 * (rubato_set_wire).
 *
 * No schedule knows of it. The operation becomes one of the other form, in place in a buffer of its
 * own (allocated like rubato_alloc's, so it runs where theirs would); a local run converts the
 * caller's input into it before, and another the result after:
 *
 *   IDLE --start--> CONVERTING --> EXCHANGING, RUNNING as always --> CONVERTING --> IDLE
 *
 * What is coded (collectives/reduce/coded.h) is to schedules a vector of units, each of which takes
 * as many bytes as travel; its reductions are carried out here, too. Conversions and these are work
 * of an executor, in slices, so that progress stays fair, and cancelling and poisoning end them as
 * they end any run.
 *
 * Where what is coded comes from a device and goes to the same, the units lie there, too, and with
 * them what rounding loses: the operation is one of device memory, and the device converts and adds
 * up. Otherwise (input or result alone on a device, 16-bit floats) other local runs take the input
 * to pinned host memory before, or the result from there after, and the processor converts.
 */
#ifndef RB_RUNTIME_CONVERTED_H
#define RB_RUNTIME_CONVERTED_H

#include "collectives/reduce/coded.h"
#include "runtime/engine/memory.h"
#include "runtime/engine/run.h"

struct rb_converted_side { /* What the caller gave, where it lies on a device; device NULL: not. */
	struct rb_executor *device, *owner; /* owner: that gave the memory. */
	void *base;                         /* On the device, */
	uint8_t *memory;                    /* and on the host, for so many bytes. */
	uint64_t bytes;
	struct rb_plan *plan; /* The copy. */
};

struct rb_converted_there { /* Units on a device; device NULL: they are the host's. */
	struct rb_executor *device, *owner; /* owner: that gave the memory. */
	void *units;
	uint64_t bytes;
	uint32_t zeroed; /* Halves of the residual: inputs', sums'. */
	bool codes;      /* When they are. */
	struct rb_code_vector code;
};

struct rb_converted {
	struct rb_executor executor;      /* First: the struct is its own executor. */
	struct rb_executor *executors[2]; /* It: rb_run.executors. */
	struct rb_executor *copiers[2];   /* The host's, and the device: of the other runs. */
	bool active;                      /* For what is asked for now. */
	bool back;                        /* The result is at work. */
	/* What the caller asked for, and where its data are: values of `half` (wire SAME), or
	 * float32. */
	rubato_wire wire;
	rubato_type half;
	const void *in;
	void *out;
	/* In `memory`: units (of `half` a value each), as many for each block that the caller has,
	 * of block_values; the result is block out_block, or all. */
	uint64_t block_values, block_units, in_blocks, out_first, out_values;
	struct rb_memory *memory;
	struct rb_plan *there, *after;
	rb_convert_fn convert;
	const struct rb_coders *coders;
	struct rb_converted_side sides[2]; /* in, and out. */
	struct rb_converted_there on;
	/* Coded: of the inputs, then of sums, a value each, where the units are; NULL: none is
	 * kept. */
	float *residual;
	uint64_t residual_count;
	struct rb_run run;
	struct rb_work *first, *last; /* Waiting, by next and previous. */
	struct rb_endpoint *clock;
	void (*then)(void *arg, rubato_status status, const char *text);
	void *arg;
};

/* Bytes of a unit in `memory`. */
static inline uint32_t rb_converted_bytes(const struct rb_converted *c)
{
	return c->wire == RUBATO_WIRE_SAME ? (uint32_t)sizeof(float) : rb_code_bytes(c->wire);
}

/* Bytes of what the caller gave, a value. */
static inline uint32_t rb_converted_value_bytes(const struct rb_converted *c)
{
	return c->wire == RUBATO_WIRE_SAME ? (uint32_t)sizeof(uint16_t) : (uint32_t)sizeof(float);
}

/* With wire, half, in, out, blocks and out_ set, and once it is known where `in` and `out` lie:
 * room, and what converts. `feedback`: what rounding loses is kept, from 0 on. */
RB_NODISCARD rubato_status rb_converted_prepare(struct rb_converted *c,
						struct rb_memories *memories, bool feedback);
/* The same on the device that both lie on, of what is coded. */
RB_NODISCARD rubato_status rb_converted_prepare_on(struct rb_converted *c,
						   struct rb_executor *device, bool feedback);
/* What `in`, or `out`, of so many bytes is: the device's, or NULL. Before each first start. */
RB_NODISCARD rubato_status rb_converted_side(struct rb_converted *c, bool out,
					     struct rb_executor *device, uint64_t bytes);
/* With wire and residual set: only the executor, for others' runs of what is coded. */
void rb_converted_executor(struct rb_converted *c, struct rb_engine *engine);
/* With wire and the number of units: 0 at first. */
RB_NODISCARD rubato_status rb_converted_residual(struct rb_converted *c, uint64_t units);
/* Converts `in`, or the result into `out`; calls then(), perhaps before it returns. */
void rb_converted_start(struct rb_converted *c, struct rb_engine *engine, bool back,
			void (*then)(void *arg, rubato_status status, const char *text), void *arg);
/* Only makes zeros of a residual on a device, unless it has been done. */
void rb_converted_zero(struct rb_converted *c, struct rb_engine *engine,
		       void (*then)(void *arg, rubato_status status, const char *text), void *arg);
/* With a side and a run for its plan: only the copy from the device, or (back) to it. */
void rb_converted_copy(struct rb_converted *c, struct rb_engine *engine, bool back,
		       void (*then)(void *arg, rubato_status status, const char *text), void *arg);
/* Frees all but the memory, which is the communicator's. */
void rb_converted_fini(struct rb_converted *c);

#endif
