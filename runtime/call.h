/*
 * call.h -- a public call, carried out: once and waited for, or made into a persistent operation.
 *
 * Each takes the engine's lock, and leaves the sentence of its error.
 */
#ifndef RB_RUNTIME_CALL_H
#define RB_RUNTIME_CALL_H

#include "runtime/op.h"

/* A blocking collective: they run one at a time, in the order of the calls. *number: the call's,
 * the same on every rank; NULL: of no interest. */
RB_NODISCARD rubato_status rb_call_collective(rubato_comm *comm, const struct rb_call *call,
					      uint64_t *number);
/* The library's own allgather, within what the application knows as `named`: `count` words of each
 * rank. As all that are named so it goes by no algorithm that the application has forced. */
RB_NODISCARD rubato_status rb_call_gather(rubato_comm *comm, enum rb_kind named, const void *words,
					  void *all, uint64_t count, uint64_t *number);
/* A blocking send or receive: at once, or by an operation. */
RB_NODISCARD rubato_status rb_call_message(rubato_comm *comm, const struct rb_call *call,
					   uint32_t user_tag, bool sending);
/* Both at once, neither of which waits for the other. */
RB_NODISCARD rubato_status rb_call_sendrecv(rubato_comm *comm, const struct rb_call *send,
					    uint32_t send_tag, const struct rb_call *receive,
					    uint32_t receive_tag);
/* A persistent operation; sendrecv's user_tag and sending are of no meaning to others. */
RB_NODISCARD rubato_status rb_call_create(rubato_comm *comm, const struct rb_call *call,
					  uint32_t user_tag, bool sending, rubato_op **out);

#endif
