/*
 * cuda_gate.h -- where streams of the application wait for operations: for a word in host memory,
 * which only grows, so that it never need be reset. They are made by the score, the first when a
 * context is opened: to make memory while streams wait may take until they go on.
 */
#ifndef RB_RUNTIME_DEVICES_CUDA_GATE_H
#define RB_RUNTIME_DEVICES_CUDA_GATE_H

#include "runtime/devices/cuda_memory.h"
#include "runtime/engine/gate.h"

/* So that there is at least one that nobody has. */
RB_NODISCARD rubato_status rb_cuda_gates_make(struct rb_cuda_context *context);
RB_NODISCARD rubato_status rb_cuda_gate_new(struct rb_cuda_context *context, struct rb_gate **out);
/* False: a stream has not come by in all the time that we can wait; then the words must stay. */
bool rb_cuda_gates_close(struct rb_cuda_context *context);

#endif
