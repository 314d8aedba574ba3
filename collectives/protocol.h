/*
 * protocol.h -- the form of every protocol machine: event in, actions out.
 *
 * Relaxed collectives decide who starts a round and whose contribution counts; such a decision is a
 * pure state machine without I/O, clock, lock or allocation. Who owns it carries its actions out:
 * runtime/relaxed/protocol_driver.c moves its messages and wakes it at the times that it asked for,
 * on real and simulated transports alike. Messages of one pair arrive in the order in which they
 * were sent.
 */
#ifndef RB_COLLECTIVES_PROTOCOL_H
#define RB_COLLECTIVES_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define RB_PROTOCOL_MESSAGE_BYTES 80 /* Fixed: it travels inline on every transport. */
#define RB_PROTOCOL_ACTIONS_MAX 64

enum rb_protocol_event_kind {
	RB_PROTOCOL_START,     /* The application's call, `value` being its argument. */
	RB_PROTOCOL_MESSAGE,   /* From peer. */
	RB_PROTOCOL_RUN_DONE,  /* The schedule started with `value` is complete. */
	RB_PROTOCOL_TIMER,     /* The time asked for has come. */
	RB_PROTOCOL_PEER_LOST, /* peer; its messages and runs with it will not come any more. */
};

struct rb_protocol_event {
	enum rb_protocol_event_kind kind;
	uint32_t peer;
	uint64_t value;
	uint64_t now_ns; /* Virtual or real: only for timers and statistics. */
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

/* An event without a message: that is left as it is, since to zero it costs more than all else. */
static inline void rb_protocol_event_set(struct rb_protocol_event *event,
					 enum rb_protocol_event_kind kind, uint32_t peer,
					 uint64_t value, uint64_t now_ns)
{
	event->kind = kind;
	event->peer = peer;
	event->value = value;
	event->now_ns = now_ns;
}

enum rb_protocol_act {
	RB_PROTOCOL_SEND,     /* message to peer */
	RB_PROTOCOL_SEND_ALL, /* message to all ranks but this one and those the transport lost */
	RB_PROTOCOL_RUN,      /* start the schedule `value` (the owner knows which) */
	RB_PROTOCOL_WAKE,     /* at time `value` (ns); a later one replaces it */
	RB_PROTOCOL_DONE,     /* tell the application: `value`, with `status` */
};

struct rb_protocol_action {
	enum rb_protocol_act act;
	uint32_t peer;
	uint64_t value;
	rubato_status status;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

struct rb_protocol_actions {
	uint32_t count;
	struct rb_protocol_action item[RB_PROTOCOL_ACTIONS_MAX];
};

/* The next free action, zeroed but for its message. */
static inline struct rb_protocol_action *rb_protocol_action_add(struct rb_protocol_actions *out,
								enum rb_protocol_act act)
{
	RB_ASSERT(out->count < RB_PROTOCOL_ACTIONS_MAX);
	struct rb_protocol_action *action = &out->item[out->count++];

	action->act = act;
	action->peer = 0;
	action->value = 0;
	action->status = RUBATO_OK;
	return action;
}

#endif
