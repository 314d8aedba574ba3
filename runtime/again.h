/*
 * again.h -- a small blocking collective like one before it: between the call and its first message
 * stands as little as can be, and what has to be written down is while the messages are under way.
 */
#ifndef RB_RUNTIME_AGAIN_H
#define RB_RUNTIME_AGAIN_H

#include "runtime/op.h"

enum rb_again {
	RB_AGAIN_NOT,   /* Nothing has happened. */
	RB_AGAIN_BEGUN, /* *at of its plan's steps are done, and it has its number. */
	RB_AGAIN_DONE,
};

/* No other thread's call is under way. */
enum rb_again rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at);

#endif
