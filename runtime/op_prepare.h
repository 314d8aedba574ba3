/*
 * op_prepare.h -- from arguments to plans: which algorithm, which schedule, which scratch.
 *
 * Choosing and planning take longer than a small operation, so that both are remembered: choices by
 * count, plans by signature, and what a call of even blocks came to as a whole.
 */
#ifndef RB_RUNTIME_OP_PREPARE_H
#define RB_RUNTIME_OP_PREPARE_H

#include "runtime/op.h"

/* Checks the arguments, chooses, plans. The op must be zeroed but for what a former use left. */
RB_NODISCARD rubato_status rb_op_prepare(struct rubato_op *op);
/* Forgets all choices: they are made anew. */
void rb_choices_forget(struct rubato_comm *comm);

#endif
