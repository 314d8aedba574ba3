/*
 * op_stage.h -- operations whose buffers do not lie in the host's memory.
 *
 * What a buffer is, is asked of the devices when an operation is prepared. A plan for host memory
 * then gives way to one for these kinds (rb_plan_staged) when a run starts: this rank's own affair,
 * but where ranks work in each other's buffers, whose kinds they tell each other (op_exchange.c).
 */
#ifndef RB_RUNTIME_OP_STAGE_H
#define RB_RUNTIME_OP_STAGE_H

#include "runtime/op.h"

/* What IN and OUT of a call that was checked are. Errors: ARGUMENT, UNSUPPORTED. */
RB_NODISCARD rubato_status rb_op_kinds_find(struct rubato_op *op);
/* For a run that is about to start: what its buffers are; where the host's plan does not do for
 * that, *plan becomes one that does, and op->run ready for it. Errors: MEMORY. */
RB_NODISCARD rubato_status rb_op_stage(struct rubato_op *op, struct rb_plan **plan);
/* The kinds of what all ranks that map each other's IN and OUT have there. Errors: UNSUPPORTED. */
RB_NODISCARD rubato_status rb_op_kinds_agree(struct rubato_op *op,
					     const enum rb_memory_kind kinds[2]);
void rb_op_stage_release(struct rubato_op *op);
/* What it has registered is no more: transports let go of memory before they close, and devices
 * take it back after that. */
void rb_op_stage_unregister(struct rubato_op *op);

#endif
