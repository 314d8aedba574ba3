/* plug.h -- connects a protocol machine (collectives/protocol.h) to an engine. */
#ifndef RB_RUNTIME_PLUG_H
#define RB_RUNTIME_PLUG_H

#include "collectives/protocol.h"
#include "runtime/engine.h"

struct rb_plug {
	/* Set by the owner before rb_plug_open. */
	const struct rb_protocol *protocol;
	void *machine;
	uint32_t number; /* 1 .. RB_CHANNEL_MAX - 1, the same on every rank, unique among open
			    plugs. */
	/* RB_PROTOCOL_RUN: starts schedule `value`; rb_plug_event with RUN_DONE must follow. */
	void (*run)(struct rb_engine *engine, struct rb_plug *plug, uint64_t value);
	/* RB_PROTOCOL_DONE; also called with the poison's status when the engine is poisoned. */
	void (*done)(struct rb_engine *engine, struct rb_plug *plug, uint64_t value,
		     rubato_status status);
	void *owner;
	/* The plug's own. */
	struct rb_plug_peer *peers;
	uint64_t wake_ns; /* UINT64_MAX: none. */
	bool stepping;
	struct rb_plug_queued *queue_first, *queue_last; /* Events that came during a step. */
	struct rb_plug *next;
};

/* All under the engine's lock. Collective: every rank opens the same plugs. */
RB_NODISCARD rubato_status rb_plug_open(struct rb_engine *engine, struct rb_plug *plug);
void rb_plug_close(struct rb_engine *engine, struct rb_plug *plug);
void rb_plug_event(struct rb_engine *engine, struct rb_plug *plug,
		   const struct rb_protocol_event *event);

/* For the engine. */
bool rb_plug_timers(struct rb_engine *engine);
uint64_t rb_plug_next_timer(const struct rb_engine *engine); /* UINT64_MAX: none. */
void rb_plug_peer_lost(struct rb_engine *engine, uint32_t peer);
void rb_plug_poisoned(struct rb_engine *engine, rubato_status status);

#endif
