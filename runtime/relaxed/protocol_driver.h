/* protocol_driver.h -- connects a protocol machine (collectives/protocol.h) to an engine. */
#ifndef RB_RUNTIME_PROTOCOL_DRIVER_H
#define RB_RUNTIME_PROTOCOL_DRIVER_H

#include "collectives/protocol.h"
#include "runtime/engine/engine.h"

struct rb_protocol_driver {
	struct rb_poller poller; /* First. */
	/* Set by the owner before rb_protocol_open. */
	const char *name; /* Of the protocol: for errors. */
	uint64_t number;  /* The same on every rank, and no other driver's, ever. */
	/* A message, the time asked for, or a loss: the owner steps its machine. The event is the
	 * owner's to write on. */
	void (*event)(struct rb_engine *engine, struct rb_protocol_driver *driver,
		      struct rb_protocol_event *event);
	/* Poison has ended the machine: there are no more events. */
	void (*ended)(struct rb_engine *engine, struct rb_protocol_driver *driver);
	/* Whether messages may come from `peer` before a rank is lost; NULL: from all. */
	bool (*neighbour)(const struct rb_protocol_driver *driver, uint32_t peer);
	/* Poison that a lost peer brought does not end the machine: it has to agree with the other
	 * survivors first. The owner sets `over` when it has. */
	bool survives;
	void *owner;
	/* The driver's own. */
	bool over;           /* The machine is not entered any more. */
	bool finished;       /* All neighbours' last messages are here. */
	uint32_t unfinished; /* Neighbours that are listened to and have more to say. */
	struct rb_protocol_peer *peers;
	uint64_t wake_ns; /* UINT64_MAX: none. */
	uint64_t now_ns;  /* Of the last event: time goes on for the machine. */
	bool stepping;
	bool listening_all;
	struct rb_protocol_queued *queue_first, *queue_last; /* Events that came during a step. */
	struct rb_protocol_queued *queue_spare;
	struct rb_protocol_outgoing *outgoing, *outgoing_spare; /* Messages on their way; unused. */
};

/* All under the engine's lock. Collective: every rank opens the same ones. */
RB_NODISCARD rubato_status rb_protocol_open(struct rb_engine *engine,
					    struct rb_protocol_driver *driver);
/* Collective, when no machine will say any more: tells the neighbours so; `finished` once all have
 * said it, and every message has come. */
void rb_protocol_finish(struct rb_engine *engine, struct rb_protocol_driver *driver);
/* Waits until what it sent has left (at most 1 s), unless it is over or the engine poisoned. */
void rb_protocol_close(struct rb_engine *engine, struct rb_protocol_driver *driver);

/*
 * A machine is never entered twice. For every event, its own (START, RUN_DONE) too, the owner asks
 * rb_protocol_begin, which sets its time, unless it has one from a moment ago (0: it has not), and
 * steps the machine with it. false: the machine is over; or it is at work, and the event waits.
 * After the step, and all that it asked for, comes rb_protocol_next, which writes the next one that
 * has waited meanwhile over it; false: there is none.
 */
bool rb_protocol_begin(struct rb_engine *engine, struct rb_protocol_driver *driver,
		       struct rb_protocol_event *event);
bool rb_protocol_next(struct rb_engine *engine, struct rb_protocol_driver *driver,
		      struct rb_protocol_event *event);
/* Whether the machine is not entered any more. */
static inline bool rb_protocol_is_dead(const struct rb_engine *engine,
				       const struct rb_protocol_driver *driver)
{
	return driver->over || (engine->poison != RUBATO_OK &&
				!(driver->survives && engine->poison == RUBATO_ERR_PEER));
}
/* A SEND_ALL is about to be carried out, as far as the owner knows: a hint to the transports. */
void rb_protocol_send_soon(const struct rb_engine *engine);
/* SEND, SEND_ALL or WAKE; the others are the owner's to carry out. */
void rb_protocol_carry_out(struct rb_engine *engine, struct rb_protocol_driver *driver,
			   const struct rb_protocol_action *action);

#endif
