/*
 * call.h -- a public call, carried out: once and waited for, or made into a persistent operation.
 *
 * Each takes the engine's lock, and leaves the sentence of its error.
 */
#ifndef RB_RUNTIME_CALL_H
#define RB_RUNTIME_CALL_H

#include "runtime/op.h"

struct rb_call { /* What distinguishes one public rb_call from another. */
	enum rb_kind kind;
	const void *in;
	void *out;
	uint64_t count;
	rubato_type type;
	rubato_operator op;
	uint32_t root;
	enum rb_kind named;    /* What it is to the caller, where that is not `kind`. */
	struct rb_shape shape; /* Of uneven blocks. */
	/* Of a persistent allreduce that is helped; the operation's from then on, also if making it
	 * fails. */
	struct rb_helped *helped;
};

/* A blocking collective: they run one at a time, in the order of the calls. *number: the call's,
 * the same on every rank; NULL: of no interest. */
RB_NODISCARD rubato_status rb_call_collective(rubato_comm *comm, const struct rb_call *call,
					      uint64_t *number);
/* A blocking send or receive: at once, or by an operation. */
RB_NODISCARD rubato_status rb_call_message(rubato_comm *comm, const struct rb_call *call,
					   uint32_t user_tag, bool sending);
/* A persistent operation; sendrecv's user_tag and sending are of no meaning to others. */
RB_NODISCARD rubato_status rb_call_create(rubato_comm *comm, const struct rb_call *call,
					  uint32_t user_tag, bool sending, rubato_op **out);

#endif
