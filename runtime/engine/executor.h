/*
 * executor.h -- who carries out copies and reductions. Every piece of work starts and later
 * completes, also on the host, so that device streams (and the fake asynchronous executor of the
 * tests) fit in without a second engine.
 *
 *   start   the work is then DONE, or PENDING and listed by exactly one poll
 *   poll    bounded: at most RB_SLICE_BYTES of copying or reducing, so that progress stays fair
 *   cancel  after it the work is DONE (completed, or CANCELLED) and its buffers are not touched
 *           again
 */
#ifndef RB_RUNTIME_EXECUTOR_H
#define RB_RUNTIME_EXECUTOR_H

#include "base/status.h"
#include "collectives/reduce/reduce.h"

#define RB_SLICE_BYTES (256u << 10)
#define RB_OPERANDS_INLINE 8

enum rb_work_state { RB_WORK_IDLE, RB_WORK_PENDING, RB_WORK_DONE };

struct rb_work {
	struct rb_reduce reduce; /* A copy is a reduction of one operand without division. */
	const void *operands[RB_OPERANDS_INLINE]; /* Where reduce.from may point. */
	uint32_t element_bytes;
	enum rb_work_state state;
	rubato_status status;
	uint64_t done_count; /* Elements finished so far: the executor's. */
	struct rb_work *next, *previous;
	void *owner;
};

struct rb_executor;

struct rb_executor_ops {
	const char *name;
	void (*start)(struct rb_executor *executor, struct rb_work *work);
	struct rb_work *(*poll)(
		struct rb_executor *executor); /* Completed, linked by next, or NULL. */
	void (*cancel)(struct rb_executor *executor, struct rb_work *work);
	/* Whether poll must be called again soon, without anything that would wake a sleeper. */
	bool (*busy)(struct rb_executor *executor);
	void (*close)(struct rb_executor *executor);
};

struct rb_executor {
	const struct rb_executor_ops *ops;
};

RB_NODISCARD rubato_status rb_executor_host_open(struct rb_executor **out);

/* From now on what this executor (the host's) does takes as long as the endpoint's work() says. */
struct rb_endpoint;
void rb_executor_host_time(struct rb_executor *executor, struct rb_endpoint *ep);

#endif
