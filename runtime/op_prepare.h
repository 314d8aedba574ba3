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
/* Likewise, of an allreduce that is helped (op->helped): by two_shot_late, whoever will be late. */
RB_NODISCARD rubato_status rb_op_prepare_late(struct rubato_op *op);
/* Of such a one: plan, scratch and run are for this late rank. Not in flight. */
RB_NODISCARD rubato_status rb_op_plan_late(struct rubato_op *op, uint32_t late);
/* What is chosen where puts do not reach all buffers, and nobody knows whose are mapped. */
RB_NODISCARD rubato_status rb_choose_without_puts(const struct rb_choice_facts *facts,
						  enum rb_kind kind, uint64_t count,
						  uint32_t element_bytes, struct rb_choice *choice);
/* Plan, scratch and run become that one's. Not in flight; on all ranks. */
RB_NODISCARD rubato_status rb_op_plan_without_puts(struct rubato_op *op);
/* Forgets all choices: they are made anew. */
void rb_choices_forget(struct rubato_comm *comm);

#endif
