/* protocol_driver.h -- connects a protocol machine (collectives/protocol.h) to an engine. */
#ifndef RB_RUNTIME_PROTOCOL_DRIVER_H
#define RB_RUNTIME_PROTOCOL_DRIVER_H

#include "collectives/protocol.h"
#include "runtime/engine.h"

struct rb_protocol_driver {
	struct rb_poller poller; /* First. */
	/* Set by the owner before rb_protocol_open. */
	const struct rb_protocol *protocol;
	void *machine;
	uint64_t number; /* The same on every rank, and no other driver's, ever. */
	/* RB_PROTOCOL_RUN: starts schedule `value`; rb_protocol_event with RUN_DONE must follow. */
	void (*run)(struct rb_engine *engine, struct rb_protocol_driver *driver, uint64_t value,
		    uint32_t peer);
	/* RB_PROTOCOL_DONE; also called with the poison's status when that ends the machine. */
	void (*done)(struct rb_engine *engine, struct rb_protocol_driver *driver, uint64_t value,
		     rubato_status status);
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
	bool stepping;
	bool listening_all;
	struct rb_protocol_queued *queue_first, *queue_last; /* Events that came during a step. */
	struct rb_protocol_queued *queue_spare;
	struct rb_protocol_outgoing *outgoing, *outgoing_spare; /* Messages on their way; unused. */
};

/* All under the engine's lock. Collective: every rank opens the same plugs. */
RB_NODISCARD rubato_status rb_protocol_open(struct rb_engine *engine,
					    struct rb_protocol_driver *driver);
/* Collective, when no machine will say any more: tells the neighbours so; `finished` once all have
 * said it, and every message has come. */
void rb_protocol_finish(struct rb_engine *engine, struct rb_protocol_driver *driver);
/* Waits until what it sent has left (at most 1 s), unless it is over or the engine poisoned. */
void rb_protocol_close(struct rb_engine *engine, struct rb_protocol_driver *driver);
void rb_protocol_event(struct rb_engine *engine, struct rb_protocol_driver *driver,
		       const struct rb_protocol_event *event);

#endif
