/*
 * plug.c -- carries out a protocol machine's actions: messages, timers, schedules, completion.
 *
 * One receive per peer is posted at all times; messages are numbered per pair (the tag's
 * iteration), so they are seen in order on transports that reorder. A machine is never entered
 * twice: what happens during a step (a run that completes at once) waits in a queue until the
 * step's actions are done.
 */
#include "runtime/plug.h"

#include <stdlib.h>
#include <string.h>

struct rb_plug_peer {
	struct rb_plug *plug;
	struct rb_slot *receive;
	uint32_t sent, received; /* Messages, modulo RB_ITERATION_MAX in tags. */
	uint32_t sending;        /* Not complete yet. */
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

struct rb_plug_queued {
	struct rb_plug_queued *next;
	struct rb_protocol_event event;
};

struct outgoing { /* A message on its way; freed when sent. */
	struct rb_plug_peer *peer;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

static const struct rb_signature control_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

static void request_prepare(struct rb_engine *engine, struct rb_slot *slot, struct rb_plug *plug,
			    uint32_t peer, uint32_t number, void *buffer)
{
	struct rb_request *request = &slot->request;

	slot->is_work = false;
	request->peer = peer;
	request->tag = rb_tag_step(rb_tag(engine->epoch, RB_TAG_CONTROL, 1), plug->number,
				   number % RB_ITERATION_MAX);
	request->signature = control_signature;
	request->buffer = buffer;
	request->size_bytes = RB_PROTOCOL_MESSAGE_BYTES;
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
}

static void send_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct outgoing *outgoing = slot->owner;

	outgoing->peer->sending--;
	free(outgoing);
	rb_slot_give(engine, slot);
}

static void message_send(struct rb_engine *engine, struct rb_plug *plug, uint32_t peer,
			 const struct rb_protocol_action *action)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	struct outgoing *outgoing = malloc(sizeof(*outgoing));
	struct rb_slot *slot = rb_slot_take(engine);

	if (outgoing == NULL || slot == NULL) {
		free(outgoing);
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a protocol message");
		return;
	}
	outgoing->peer = &plug->peers[peer];
	memcpy(outgoing->message, action->message, sizeof(outgoing->message));
	request_prepare(engine, slot, plug, peer, outgoing->peer->sent++, outgoing->message);
	slot->owner = outgoing;
	slot->done = send_done;
	outgoing->peer->sending++;
	ep->ops->send(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		send_done(engine, slot);
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot);

/* False when the message was there already: then receive_take must follow. */
static bool receive_post(struct rb_engine *engine, struct rb_plug_peer *peer, uint32_t rank)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, rank);

	request_prepare(engine, peer->receive, peer->plug, rank, peer->received, peer->message);
	peer->receive->owner = peer;
	peer->receive->done = receive_done;
	ep->ops->recv(ep, &peer->receive->request);
	return peer->receive->request.state != RB_REQUEST_DONE;
}

static void receive_take(struct rb_engine *engine, struct rb_plug_peer *peer, uint32_t rank)
{
	struct rb_plug *plug = peer->plug;

	do {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE, .peer = rank };

		if (peer->receive->request.status != RUBATO_OK)
			return; /* Lost: the failure event tells. */
		peer->received++;
		memcpy(event.message, peer->message, sizeof(event.message));
		rb_plug_event(engine, plug, &event);
	} while (!receive_post(engine, peer, rank));
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_plug_peer *peer = slot->owner;

	receive_take(engine, peer, slot->request.peer);
}

static void actions_do(struct rb_engine *engine, struct rb_plug *plug,
		       const struct rb_protocol_actions *actions)
{
	for (uint32_t i = 0; i < actions->count; i++) {
		const struct rb_protocol_action *action = &actions->item[i];

		switch (action->act) {
		case RB_PROTOCOL_SEND:
			message_send(engine, plug, action->peer, action);
			break;
		case RB_PROTOCOL_SEND_ALL:
			for (uint32_t r = 0; r < engine->rank_count; r++)
				if (r != engine->rank && !engine->lost[r])
					message_send(engine, plug, r, action);
			break;
		case RB_PROTOCOL_RUN:
			plug->run(engine, plug, action->value);
			break;
		case RB_PROTOCOL_WAKE:
			plug->wake_ns = action->value;
			break;
		case RB_PROTOCOL_DONE:
			engine->completed = true;
			plug->done(engine, plug, action->value, action->status);
			break;
		}
	}
}

static bool queue_add(struct rb_plug *plug, const struct rb_protocol_event *event)
{
	struct rb_plug_queued *queued = malloc(sizeof(*queued));

	if (queued == NULL)
		return false;
	*queued = (struct rb_plug_queued) { .event = *event };
	*(plug->queue_last != NULL ? &plug->queue_last->next : &plug->queue_first) = queued;
	plug->queue_last = queued;
	return true;
}

static bool queue_take(struct rb_plug *plug, struct rb_protocol_event *event)
{
	struct rb_plug_queued *queued = plug->queue_first;

	if (queued == NULL)
		return false;
	*event = queued->event;
	plug->queue_first = queued->next;
	if (queued->next == NULL)
		plug->queue_last = NULL;
	free(queued);
	return true;
}

void rb_plug_event(struct rb_engine *engine, struct rb_plug *plug,
		   const struct rb_protocol_event *event)
{
	struct rb_protocol_event current = *event;
	struct rb_protocol_actions actions;

	if (engine->poison != RUBATO_OK)
		return;
	if (plug->stepping) {
		if (!queue_add(plug, event))
			rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for an event");
		return;
	}
	plug->stepping = true;
	do {
		current.now_ns = rb_engine_now(engine);
		actions.count = 0;
		RB_ASSERT(plug->protocol->valid(plug->machine));
		plug->protocol->step(plug->machine, &current, &actions);
		RB_ASSERT(plug->protocol->valid(plug->machine));
		actions_do(engine, plug, &actions);
	} while (queue_take(plug, &current) && engine->poison == RUBATO_OK);
	plug->stepping = false;
}

rubato_status rb_plug_open(struct rb_engine *engine, struct rb_plug *plug)
{
	RB_ASSERT(plug->number > 0 && plug->number < RB_CHANNEL_MAX);
	plug->peers = calloc(engine->rank_count, sizeof(*plug->peers));
	plug->wake_ns = UINT64_MAX;
	plug->queue_first = plug->queue_last = NULL;
	plug->stepping = false;
	if (plug->peers == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: %u peers", plug->protocol->name,
			       engine->rank_count);
	plug->next = engine->plugs;
	engine->plugs = plug;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		plug->peers[r].plug = plug;
		plug->peers[r].receive = rb_slot_take(engine);
		if (plug->peers[r].receive == NULL) {
			rb_plug_close(engine, plug);
			return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: receives",
				       plug->protocol->name);
		}
		if (!receive_post(engine, &plug->peers[r], r))
			receive_take(engine, &plug->peers[r], r);
	}
	return RUBATO_OK;
}

void rb_plug_close(struct rb_engine *engine, struct rb_plug *plug)
{
	struct rb_protocol_event event;
	struct rb_plug **at = &engine->plugs;

	while (*at != NULL && *at != plug)
		at = &(*at)->next;
	if (*at == plug)
		*at = plug->next;
	for (uint32_t r = 0; plug->peers != NULL && r < engine->rank_count; r++) {
		struct rb_slot *receive = plug->peers[r].receive;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		/* What we sent must have left: its counter dies with us. Small sends leave at once.
		 */
		while (plug->peers[r].sending > 0 && engine->poison == RUBATO_OK)
			if (!rb_engine_progress(engine))
				rb_yield();
		if (receive == NULL)
			continue;
		if (receive->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &receive->request);
		rb_slot_give(engine, receive);
	}
	while (queue_take(plug, &event))
		;
	free(plug->peers);
	plug->peers = NULL;
}

bool rb_plug_timers(struct rb_engine *engine)
{
	uint64_t now = rb_engine_now(engine);
	bool any = false;

	for (struct rb_plug *plug = engine->plugs; plug != NULL; plug = plug->next) {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_TIMER };

		if (plug->wake_ns > now)
			continue;
		plug->wake_ns = UINT64_MAX;
		rb_plug_event(engine, plug, &event);
		any = true;
	}
	return any;
}

uint64_t rb_plug_next_timer(const struct rb_engine *engine)
{
	uint64_t next = UINT64_MAX;

	for (const struct rb_plug *plug = engine->plugs; plug != NULL; plug = plug->next)
		next = plug->wake_ns < next ? plug->wake_ns : next;
	return next;
}

void rb_plug_peer_lost(struct rb_engine *engine, uint32_t peer)
{
	for (struct rb_plug *plug = engine->plugs; plug != NULL; plug = plug->next) {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = peer };

		rb_plug_event(engine, plug, &event);
	}
}

void rb_plug_poisoned(struct rb_engine *engine, rubato_status status)
{
	for (struct rb_plug *plug = engine->plugs; plug != NULL; plug = plug->next)
		plug->done(engine, plug, 0, status);
}
