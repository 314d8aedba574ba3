/*
 * op_stream.h -- operations that are started on a stream of a device.
 *
 * The stream gets a gate: what stands before it is the operation's input, what comes behind it
 * waits for its result. Until the stream has reached the gate the operation is ENQUEUED; then it
 * runs as any other; its end, whichever it is, opens the gate.
 */
#ifndef RB_RUNTIME_STREAMS_OP_STREAM_H
#define RB_RUNTIME_STREAMS_OP_STREAM_H

#include "runtime/op.h"

/* One that is not in flight, and has a gate. Errors: MEMORY, SYSTEM, UNSUPPORTED; then nothing is
 * on the stream. */
RB_NODISCARD rubato_status rb_op_start_on(struct rubato_op *op, void *stream);

#endif
