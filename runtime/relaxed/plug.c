/*
 * plug.c -- carries out a protocol machine's actions: messages, timers, schedules, completion.
 *
 * One receive per neighbour is posted at all times, per rank once one is lost; messages are
 * numbered per pair, so they are seen in order on transports that reorder. A
 * machine is never entered twice: what happens during a step (a run that completes at once) waits
 * in a queue until the step's actions are done. Messages and queued events are reused: steady state
 * allocates nothing.
 */
#include "runtime/relaxed/plug.h"

#include <stdlib.h>
#include <string.h>

#define FLUSH_NS 1000000000u /* What has not left by then meets nobody. */

struct rb_plug_peer {
	struct rb_plug *plug;
	struct rb_slot *receive; /* NULL: not listened to. */
	uint64_t sent, received; /* Messages. */
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

struct rb_plug_queued {
	struct rb_plug_queued *next;
	struct rb_protocol_event event;
};

struct rb_plug_outgoing { /* A message on its way. */
	struct rb_plug *plug;
	struct rb_slot *slot;
	struct rb_plug_outgoing *next, *previous;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

/* The plug's own: no machine says this. */
static const uint8_t last_message[RB_PROTOCOL_MESSAGE_BYTES] = { 0xff, 0xff, 0xff, 0xff };

static const struct rb_signature control_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

static void request_prepare(struct rb_engine *engine, struct rb_slot *slot, struct rb_plug *plug,
			    uint32_t peer, uint64_t number, void *buffer)
{
	struct rb_request *request = &slot->request;

	slot->is_work = false;
	request->peer = peer;
	request->tag = rb_tag_message(engine->epoch, RB_TAG_PROTOCOL, plug->number, number);
	request->signature = control_signature;
	request->buffer = buffer;
	request->size_bytes = RB_PROTOCOL_MESSAGE_BYTES;
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
}

static bool dead(const struct rb_engine *engine, const struct rb_plug *plug)
{
	return plug->over || (engine->poison != RUBATO_OK &&
			      !(plug->survives && engine->poison == RUBATO_ERR_PEER));
}

static struct rb_plug_outgoing *outgoing_take(struct rb_engine *engine, struct rb_plug *plug)
{
	struct rb_plug_outgoing *outgoing = plug->outgoing_spare;
	struct rb_slot *slot = rb_slot_take(engine);

	if (outgoing != NULL)
		plug->outgoing_spare = outgoing->next;
	else
		outgoing = malloc(sizeof(*outgoing));
	if (outgoing == NULL || slot == NULL) {
		free(outgoing);
		if (slot != NULL)
			rb_slot_give(engine, slot);
		return NULL;
	}
	outgoing->plug = plug;
	outgoing->slot = slot;
	outgoing->previous = NULL;
	outgoing->next = plug->outgoing;
	if (plug->outgoing != NULL)
		plug->outgoing->previous = outgoing;
	plug->outgoing = outgoing;
	return outgoing;
}

static void outgoing_give(struct rb_engine *engine, struct rb_plug_outgoing *outgoing)
{
	struct rb_plug *plug = outgoing->plug;

	rb_slot_give(engine, outgoing->slot);
	*(outgoing->previous != NULL ? &outgoing->previous->next : &plug->outgoing) =
		outgoing->next;
	if (outgoing->next != NULL)
		outgoing->next->previous = outgoing->previous;
	outgoing->next = plug->outgoing_spare;
	plug->outgoing_spare = outgoing;
}

static void send_done(struct rb_engine *engine, struct rb_slot *slot)
{
	outgoing_give(engine, slot->owner);
}

static void message_send(struct rb_engine *engine, struct rb_plug *plug, uint32_t peer,
			 const uint8_t *message)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	struct rb_plug_outgoing *outgoing;

	if (engine->losses.lost[peer])
		return;
	outgoing = outgoing_take(engine, plug);
	if (outgoing == NULL) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a protocol message");
		return;
	}
	memcpy(outgoing->message, message, sizeof(outgoing->message));
	request_prepare(engine, outgoing->slot, plug, peer, plug->peers[peer].sent++,
			outgoing->message);
	outgoing->slot->owner = outgoing;
	outgoing->slot->done = send_done;
	ep->ops->send(ep, &outgoing->slot->request);
	if (outgoing->slot->request.state == RB_REQUEST_DONE)
		outgoing_give(engine, outgoing);
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
		if (memcmp(peer->message, last_message, sizeof(last_message)) == 0) {
			plug->finished = --plug->unfinished == 0;
			return;
		}
		memcpy(event.message, peer->message, sizeof(event.message));
		rb_plug_event(engine, plug, &event);
	} while (!receive_post(engine, peer, rank));
}

void rb_plug_finish(struct rb_engine *engine, struct rb_plug *plug)
{
	for (uint32_t r = 0; r < engine->rank_count; r++)
		if (plug->peers[r].receive != NULL)
			message_send(engine, plug, r, last_message);
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
			message_send(engine, plug, action->peer, action->message);
			break;
		case RB_PROTOCOL_SEND_ALL:
			for (uint32_t r = 0; r < engine->rank_count; r++)
				if (r != engine->rank)
					message_send(engine, plug, r, action->message);
			break;
		case RB_PROTOCOL_RUN:
			plug->run(engine, plug, action->value, action->peer);
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
	struct rb_plug_queued *queued = plug->queue_spare;

	if (queued != NULL)
		plug->queue_spare = queued->next;
	else
		queued = malloc(sizeof(*queued));
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
	queued->next = plug->queue_spare;
	plug->queue_spare = queued;
	return true;
}

void rb_plug_event(struct rb_engine *engine, struct rb_plug *plug,
		   const struct rb_protocol_event *event)
{
	struct rb_protocol_event current = *event;
	struct rb_protocol_actions actions;

	if (dead(engine, plug))
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
	} while (queue_take(plug, &current) && !dead(engine, plug));
	plug->stepping = false;
}

static rubato_status listen(struct rb_engine *engine, struct rb_plug *plug, uint32_t rank)
{
	struct rb_plug_peer *peer = &plug->peers[rank];

	peer->receive = rb_slot_take(engine);
	if (peer->receive == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: receives", plug->protocol->name);
	plug->unfinished++;
	if (!receive_post(engine, peer, rank))
		receive_take(engine, peer, rank);
	return RUBATO_OK;
}

static void outgoing_flush(struct rb_engine *engine, struct rb_plug *plug)
{
	struct rb_endpoint *first = engine->endpoints[0];
	uint64_t deadline_ns = rb_engine_now(engine) + FLUSH_NS;

	while (plug->outgoing != NULL && engine->poison == RUBATO_OK && !plug->over &&
	       rb_engine_now(engine) < deadline_ns) {
		if (rb_engine_progress(engine))
			continue;
		if (rb_engine_time_is_virtual(engine))
			first->ops->wait(first, rb_engine_now(engine) + 1000);
		else
			rb_yield();
	}
	while (plug->outgoing != NULL) {
		struct rb_slot *slot = plug->outgoing->slot;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, slot->request.peer);

		if (slot->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &slot->request);
		outgoing_give(engine, plug->outgoing);
	}
}

static void memory_free(struct rb_plug *plug)
{
	struct rb_protocol_event event;

	while (queue_take(plug, &event))
		;
	while (plug->queue_spare != NULL) {
		struct rb_plug_queued *queued = plug->queue_spare;

		plug->queue_spare = queued->next;
		free(queued);
	}
	while (plug->outgoing_spare != NULL) {
		struct rb_plug_outgoing *outgoing = plug->outgoing_spare;

		plug->outgoing_spare = outgoing->next;
		free(outgoing);
	}
	free(plug->peers);
	plug->peers = NULL;
}

void rb_plug_close(struct rb_engine *engine, struct rb_plug *plug)
{
	rb_engine_remove_poller(engine, &plug->poller);
	if (plug->peers == NULL)
		return;
	outgoing_flush(engine, plug);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		struct rb_slot *receive = plug->peers[r].receive;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		if (receive == NULL)
			continue;
		if (receive->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &receive->request);
		rb_slot_give(engine, receive);
	}
	memory_free(plug);
}

static void listen_to_all(struct rb_engine *engine, struct rb_plug *plug)
{
	if (plug->listening_all || dead(engine, plug))
		return;
	plug->listening_all = true;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		if (plug->peers[r].receive != NULL || engine->losses.lost[r])
			continue;
		if (listen(engine, plug, r) != RUBATO_OK) {
			rb_engine_poison(engine, RUBATO_ERR_MEMORY, rubato_error_text());
			return;
		}
	}
}

/* ---- What the engine asks of it ---- */

static struct rb_plug *plug_of(const struct rb_poller *poller)
{
	return (struct rb_plug *)(uintptr_t)poller;
}

static bool timer_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_TIMER };
	struct rb_plug *plug = plug_of(poller);

	/* A look at the clock costs more than the first. */
	if (plug->wake_ns == UINT64_MAX || plug->wake_ns > rb_engine_now(engine))
		return false;
	plug->wake_ns = UINT64_MAX;
	rb_plug_event(engine, plug, &event);
	return true;
}

static uint64_t timer_next(const struct rb_poller *poller)
{
	return plug_of(poller)->wake_ns;
}

/* It has to see to it that survivors agree. */
static bool is_surviving(const struct rb_engine *engine, const struct rb_poller *poller)
{
	(void)engine;
	return plug_of(poller)->survives && !plug_of(poller)->over;
}

static void peer_lost(struct rb_engine *engine, struct rb_poller *poller, uint32_t peer)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = peer };

	rb_plug_event(engine, plug_of(poller), &event);
	listen_to_all(engine, plug_of(poller));
}

static void poisoned(struct rb_engine *engine, struct rb_poller *poller, rubato_status status,
		     const char *text)
{
	struct rb_plug *plug = plug_of(poller);

	(void)text;
	if (plug->over)
		return;
	if (plug->survives && status == RUBATO_ERR_PEER) {
		listen_to_all(engine, plug);
		return;
	}
	plug->over = true;
	plug->done(engine, plug, 0, status);
}

static const struct rb_poller_ops poller_ops = {
	.order = RB_POLLER_PROTOCOL,
	.polled = true,
	.poll = timer_poll,
	.next_ns = timer_next,
	.concerned = is_surviving,
	.peer_lost = peer_lost,
	.poisoned = poisoned,
};

/* ---- Opening ---- */

rubato_status rb_plug_open(struct rb_engine *engine, struct rb_plug *plug)
{
	plug->peers = calloc(engine->rank_count, sizeof(*plug->peers));
	plug->wake_ns = UINT64_MAX;
	plug->queue_first = plug->queue_last = plug->queue_spare = NULL;
	plug->outgoing = plug->outgoing_spare = NULL;
	plug->stepping = plug->over = plug->listening_all = false;
	plug->unfinished = 0;
	if (plug->peers == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: %u peers", plug->protocol->name,
			       engine->rank_count);
	plug->poller.ops = &poller_ops;
	rb_engine_add_poller(engine, &plug->poller);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		rubato_status err = RUBATO_OK;

		plug->peers[r].plug = plug;
		if (!engine->losses.lost[r] &&
		    (plug->neighbour == NULL || plug->neighbour(plug, r)))
			err = listen(engine, plug, r);
		if (err != RUBATO_OK) {
			rb_plug_close(engine, plug);
			return err;
		}
	}
	for (uint32_t r = 0; r < engine->rank_count && engine->poison != RUBATO_OK; r++) {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = r };

		if (engine->losses.lost[r])
			rb_plug_event(engine, plug, &event);
	}
	if (engine->poison != RUBATO_OK)
		listen_to_all(engine, plug);
	plug->finished = plug->unfinished == 0;
	return RUBATO_OK;
}
