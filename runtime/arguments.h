/*
 * arguments.h -- what a caller asks for: whether it makes sense, how much memory it names, and what
 * of it all ranks must have in common.
 */
#ifndef RB_RUNTIME_ARGUMENTS_H
#define RB_RUNTIME_ARGUMENTS_H

#include "runtime/op.h"

/* Sets count, in_bytes, out_bytes and the shape's hash. */
RB_NODISCARD rubato_status rb_op_check(struct rubato_op *op);
/* Without the algorithm. */
struct rb_signature rb_op_signature(const struct rubato_op *op);

#endif
