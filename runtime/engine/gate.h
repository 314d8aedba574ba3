/*
 * gate.h -- where a stream of the application waits for an operation. Whoever puts work on the
 * stream is not blocked: what comes behind the gate is done when it has been opened.
 */
#ifndef RB_RUNTIME_GATE_H
#define RB_RUNTIME_GATE_H

#include "base/status.h"

struct rb_gate;

struct rb_gate_ops {
	/* Puts the gate on the stream: shut. It was open, and no stream has yet to come to it. If
	 * this fails, nothing holds the stream up. */
	rubato_status (*shut)(struct rb_gate *gate, void *stream);
	/* A stream has yet to come to it, or another than this one to pass it: it cannot be shut on
	 * this one, only freed, open as it may be. */
	bool (*awaited)(const struct rb_gate *gate, const void *stream);
	/* *reached: what was on the stream before it is over. */
	rubato_status (*look)(struct rb_gate *gate, bool *reached);
	void (*open)(struct rb_gate *gate); /* Also one that is open. From any thread. */
	void (*free)(struct rb_gate *gate); /* It is open. */
};

struct rb_gate {
	const struct rb_gate_ops *ops;
};

#endif
