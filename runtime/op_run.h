/*
 * op_run.h -- an operation's life: start, cancel, free.
 *
 * One-shots run one at a time (call.c), so they share one scratch: the exchange shows that every
 * rank has finished the operation before.
 */
#ifndef RB_RUNTIME_OP_RUN_H
#define RB_RUNTIME_OP_RUN_H

#include "runtime/op.h"

void rb_op_start(struct rubato_op *op);
/* What was enqueued, and counted as in flight: now it starts. */
void rb_op_begin(struct rubato_op *op);
/* What its next run needs of devices' memory, as far as it is agreed upon, and a gate. Errors:
 * MEMORY, SYSTEM. */
RB_NODISCARD rubato_status rb_op_rooms(struct rubato_op *op);
/* One that is being made: that, where it may be started on streams. What cannot be had is asked for
 * again when it is. */
void rb_op_streams_ready(struct rubato_op *op);
/* Of one that is helped: its plan is the one to carry out. */
void rb_op_run(struct rubato_op *op);
/* As rubato_wait, but until `deadline_ns`, unless that is 0; then timeout_ns is for the text. */
RB_NODISCARD rubato_status rb_op_wait(struct rubato_op *op, uint64_t timeout_ns,
				      uint64_t deadline_ns);
void rb_op_cancel(struct rubato_op *op);
/* A persistent collective that was just prepared: all ranks agree that it is the same one, and
 * tell each other where their buffers are, if that matters. Collective. */
RB_NODISCARD rubato_status rb_op_agree(struct rubato_op *op, uint64_t deadline_ns);
/* Frees what prepare made; not the struct. */
void rb_op_release(struct rubato_op *op);
/* A persistent operation's end: in the background where peers may still need its scratch. */
void rb_op_free(struct rubato_op *op);
/* Takes it off the list, releases and frees it: at once. */
void rb_op_forget(struct rubato_op *op);
void rb_op_discard(struct rubato_op *op); /* One that is not on the list. */

#endif
