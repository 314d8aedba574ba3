/*
 * protocol_driver.c -- what a protocol machine needs of an engine: messages, a timer, the word of
 * losses, and that events come one at a time.
 *
 * One receive per neighbour is posted at all times, per rank once one is lost; messages are
 * numbered per pair, so they are seen in order on transports that reorder. What happens during a
 * step (a run that completes at once) waits in a queue until the step's actions are done. Messages
 * and queued events are reused: steady state allocates nothing.
 */
#include "runtime/relaxed/protocol_driver.h"

#include <stdlib.h>
#include <string.h>

#define FLUSH_NS 1000000000u /* What has not left by then meets nobody. */

struct rb_protocol_peer {
	struct rb_protocol_driver *driver;
	struct rb_slot *receive;        /* NULL: not listened to. */
	uint64_t sent, received;        /* Messages. */
	struct rb_protocol_event event; /* Of the one that comes, which is received into it. */
};

struct rb_protocol_queued {
	struct rb_protocol_queued *next;
	struct rb_protocol_event event;
};

struct rb_protocol_outgoing { /* A message on its way. */
	struct rb_protocol_driver *driver;
	struct rb_slot *slot;
	struct rb_protocol_outgoing *next, *previous;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

/* While it has a time to wake up at, it is polled. */
static void wake_set(struct rb_engine *engine, struct rb_protocol_driver *driver, uint64_t at_ns)
{
	RB_ASSERT(RB_IMPLIES(driver->wake_ns != UINT64_MAX, engine->polled > 0));
	engine->polled -= driver->wake_ns != UINT64_MAX;
	engine->polled += at_ns != UINT64_MAX;
	driver->wake_ns = at_ns;
}

/* The driver's own: no machine says this. */
static const uint8_t last_message[RB_PROTOCOL_MESSAGE_BYTES] = { 0xff, 0xff, 0xff, 0xff };

static inline bool is_last(const uint8_t *message)
{
	return message[0] == last_message[0] &&
	       memcmp(message, last_message, sizeof(last_message)) == 0;
}

static const struct rb_signature control_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

static struct rb_tag tag_of(const struct rb_engine *engine, const struct rb_protocol_driver *driver,
			    uint64_t number)
{
	return rb_tag_message(engine->epoch, RB_TAG_PROTOCOL, driver->number, number);
}

static void request_prepare(struct rb_engine *engine, struct rb_slot *slot,
			    struct rb_protocol_driver *driver, uint32_t peer, uint64_t number,
			    void *buffer)
{
	struct rb_request *request = &slot->request;

	slot->is_work = false;
	request->peer = peer;
	request->tag = tag_of(engine, driver, number);
	request->signature = control_signature;
	request->buffer = buffer;
	request->where = NULL;
	request->size_bytes = RB_PROTOCOL_MESSAGE_BYTES;
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
}

static struct rb_protocol_outgoing *outgoing_take(struct rb_engine *engine,
						  struct rb_protocol_driver *driver)
{
	struct rb_protocol_outgoing *outgoing = driver->outgoing_spare;
	struct rb_slot *slot = rb_slot_take(engine);

	if (outgoing != NULL)
		driver->outgoing_spare = outgoing->next;
	else
		outgoing = malloc(sizeof(*outgoing));
	if (outgoing == NULL || slot == NULL) {
		free(outgoing);
		if (slot != NULL)
			rb_slot_give(engine, slot);
		return NULL;
	}
	outgoing->driver = driver;
	outgoing->slot = slot;
	outgoing->previous = NULL;
	outgoing->next = driver->outgoing;
	if (driver->outgoing != NULL)
		driver->outgoing->previous = outgoing;
	driver->outgoing = outgoing;
	return outgoing;
}

static void outgoing_give(struct rb_engine *engine, struct rb_protocol_outgoing *outgoing)
{
	struct rb_protocol_driver *driver = outgoing->driver;

	rb_slot_give(engine, outgoing->slot);
	*(outgoing->previous != NULL ? &outgoing->previous->next : &driver->outgoing) =
		outgoing->next;
	if (outgoing->next != NULL)
		outgoing->next->previous = outgoing->previous;
	outgoing->next = driver->outgoing_spare;
	driver->outgoing_spare = outgoing;
}

static void send_done(struct rb_engine *engine, struct rb_slot *slot)
{
	outgoing_give(engine, slot->owner);
}

/* As most can: nothing is left of it here. */
static bool sent_now(struct rb_engine *engine, struct rb_protocol_driver *driver, uint32_t peer,
		     const uint8_t *message)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	const struct rb_message now = {
		.peer = peer,
		.tag = tag_of(engine, driver, driver->peers[peer].sent),
		.signature = &control_signature,
		.buffer = (void *)(uintptr_t)message,
		.size_bytes = RB_PROTOCOL_MESSAGE_BYTES,
	};

	if (ep->ops->send_now == NULL || ep->ops->send_now(ep, &now) != RB_NOW_DONE)
		return false;
	driver->peers[peer].sent++;
	return true;
}

static void message_send(struct rb_engine *engine, struct rb_protocol_driver *driver, uint32_t peer,
			 const uint8_t *message)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	struct rb_protocol_outgoing *outgoing;

	if (engine->losses.lost[peer] || sent_now(engine, driver, peer, message))
		return;
	outgoing = outgoing_take(engine, driver);
	if (outgoing == NULL) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a protocol message");
		return;
	}
	memcpy(outgoing->message, message, sizeof(outgoing->message));
	request_prepare(engine, outgoing->slot, driver, peer, driver->peers[peer].sent++,
			outgoing->message);
	outgoing->slot->owner = outgoing;
	outgoing->slot->done = send_done;
	ep->ops->send(ep, &outgoing->slot->request);
	if (outgoing->slot->request.state == RB_REQUEST_DONE)
		outgoing_give(engine, outgoing);
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot);

/* False when the message was there already: then receive_take must follow. */
static bool receive_post(struct rb_engine *engine, struct rb_protocol_peer *peer, uint32_t rank)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, rank);

	request_prepare(engine, peer->receive, peer->driver, rank, peer->received,
			peer->event.message);
	peer->receive->owner = peer;
	peer->receive->done = receive_done;
	ep->ops->recv(ep, &peer->receive->request);
	return peer->receive->request.state != RB_REQUEST_DONE;
}

static void receive_take(struct rb_engine *engine, struct rb_protocol_peer *peer, uint32_t rank)
{
	struct rb_protocol_driver *driver = peer->driver;

	do {
		if (peer->receive->request.status != RUBATO_OK)
			return; /* Lost: the failure event tells. */
		peer->received++;
		if (is_last(peer->event.message)) {
			driver->finished = --driver->unfinished == 0;
			return;
		}
		rb_protocol_event_set(&peer->event, RB_PROTOCOL_MESSAGE, rank, 0, 0);
		driver->event(engine, driver, &peer->event);
	} while (!receive_post(engine, peer, rank));
}

void rb_protocol_finish(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	for (uint32_t r = 0; r < engine->rank_count; r++)
		if (driver->peers[r].receive != NULL)
			message_send(engine, driver, r, last_message);
}

void rb_protocol_send_soon(const struct rb_engine *engine)
{
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		if (r != engine->rank && ep->ops->send_soon != NULL)
			ep->ops->send_soon(ep, r);
	}
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_protocol_peer *peer = slot->owner;

	receive_take(engine, peer, slot->request.peer);
}

void rb_protocol_carry_out(struct rb_engine *engine, struct rb_protocol_driver *driver,
			   const struct rb_protocol_action *action)
{
	switch (action->act) {
	case RB_PROTOCOL_SEND:
		message_send(engine, driver, action->peer, action->message);
		break;
	case RB_PROTOCOL_SEND_ALL:
		for (uint32_t r = 0; r < engine->rank_count; r++)
			if (r != engine->rank)
				message_send(engine, driver, r, action->message);
		break;
	case RB_PROTOCOL_WAKE:
		wake_set(engine, driver, action->value);
		break;
	case RB_PROTOCOL_RUN:
	case RB_PROTOCOL_DONE:
		RB_ASSERT(false);
		break;
	}
}

static bool queue_add(struct rb_protocol_driver *driver, const struct rb_protocol_event *event)
{
	struct rb_protocol_queued *queued = driver->queue_spare;

	if (queued != NULL)
		driver->queue_spare = queued->next;
	else
		queued = malloc(sizeof(*queued));
	if (queued == NULL)
		return false;
	queued->next = NULL;
	queued->event = *event;
	*(driver->queue_last != NULL ? &driver->queue_last->next : &driver->queue_first) = queued;
	driver->queue_last = queued;
	return true;
}

static bool queue_take(struct rb_protocol_driver *driver, struct rb_protocol_event *event)
{
	struct rb_protocol_queued *queued = driver->queue_first;

	if (queued == NULL)
		return false;
	*event = queued->event;
	driver->queue_first = queued->next;
	if (queued->next == NULL)
		driver->queue_last = NULL;
	queued->next = driver->queue_spare;
	driver->queue_spare = queued;
	return true;
}

static uint64_t time_of(struct rb_engine *engine, struct rb_protocol_driver *driver,
			uint64_t now_ns)
{
	if (now_ns == 0)
		now_ns = rb_engine_now(engine);
	if (driver->now_ns < now_ns)
		driver->now_ns = now_ns;
	return driver->now_ns;
}

bool rb_protocol_begin(struct rb_engine *engine, struct rb_protocol_driver *driver,
		       struct rb_protocol_event *event)
{
	if (rb_protocol_is_dead(engine, driver))
		return false;
	if (driver->stepping) {
		if (!queue_add(driver, event))
			rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for an event");
		return false;
	}
	driver->stepping = true;
	event->now_ns = time_of(engine, driver, event->now_ns);
	return true;
}

bool rb_protocol_next(struct rb_engine *engine, struct rb_protocol_driver *driver,
		      struct rb_protocol_event *event)
{
	driver->stepping = queue_take(driver, event) && !rb_protocol_is_dead(engine, driver);
	if (driver->stepping) /* It has waited for what took its time. */
		event->now_ns = time_of(engine, driver, 0);
	return driver->stepping;
}

static rubato_status listen(struct rb_engine *engine, struct rb_protocol_driver *driver,
			    uint32_t rank)
{
	struct rb_protocol_peer *peer = &driver->peers[rank];

	/* Those of others are not touched: of many ranks few are listened to. */
	peer->driver = driver;
	peer->receive = rb_slot_take(engine);
	if (peer->receive == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: receives", driver->name);
	driver->unfinished++;
	if (!receive_post(engine, peer, rank))
		receive_take(engine, peer, rank);
	return RUBATO_OK;
}

static void outgoing_flush(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	struct rb_endpoint *first = engine->endpoints[0];
	uint64_t deadline_ns = rb_engine_now(engine) + FLUSH_NS;

	while (driver->outgoing != NULL && engine->poison == RUBATO_OK && !driver->over &&
	       rb_engine_now(engine) < deadline_ns) {
		if (rb_engine_progress(engine))
			continue;
		if (rb_engine_time_is_virtual(engine))
			first->ops->wait(first, rb_engine_now(engine) + 1000);
		else
			rb_yield();
	}
	while (driver->outgoing != NULL) {
		struct rb_slot *slot = driver->outgoing->slot;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, slot->request.peer);

		if (slot->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &slot->request);
		outgoing_give(engine, driver->outgoing);
	}
}

static void memory_free(struct rb_protocol_driver *driver)
{
	struct rb_protocol_event event;

	while (queue_take(driver, &event))
		;
	while (driver->queue_spare != NULL) {
		struct rb_protocol_queued *queued = driver->queue_spare;

		driver->queue_spare = queued->next;
		free(queued);
	}
	while (driver->outgoing_spare != NULL) {
		struct rb_protocol_outgoing *outgoing = driver->outgoing_spare;

		driver->outgoing_spare = outgoing->next;
		free(outgoing);
	}
	free(driver->peers);
	driver->peers = NULL;
}

void rb_protocol_close(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	rb_engine_remove_poller(engine, &driver->poller);
	if (driver->peers == NULL)
		return;
	wake_set(engine, driver, UINT64_MAX);
	outgoing_flush(engine, driver);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		struct rb_slot *receive = driver->peers[r].receive;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		if (receive == NULL)
			continue;
		if (receive->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &receive->request);
		rb_slot_give(engine, receive);
	}
	memory_free(driver);
}

static void listen_to_all(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	if (driver->listening_all || rb_protocol_is_dead(engine, driver))
		return;
	driver->listening_all = true;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		if (driver->peers[r].receive != NULL || engine->losses.lost[r])
			continue;
		if (listen(engine, driver, r) != RUBATO_OK) {
			rb_engine_poison(engine, RUBATO_ERR_MEMORY, rubato_error_text());
			return;
		}
	}
}

/* ---- What the engine asks of it ---- */

static struct rb_protocol_driver *driver_of(const struct rb_poller *poller)
{
	return (struct rb_protocol_driver *)(uintptr_t)poller;
}

static bool timer_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_TIMER };
	struct rb_protocol_driver *driver = driver_of(poller);

	/* A look at the clock costs more than the first. */
	if (driver->wake_ns == UINT64_MAX || driver->wake_ns > rb_engine_now(engine))
		return false;
	wake_set(engine, driver, UINT64_MAX);
	driver->event(engine, driver, &event);
	return true;
}

static uint64_t timer_next(const struct rb_poller *poller)
{
	return driver_of(poller)->wake_ns;
}

/* It has to see to it that survivors agree. */
static bool is_surviving(const struct rb_engine *engine, const struct rb_poller *poller)
{
	(void)engine;
	return driver_of(poller)->survives && !driver_of(poller)->over;
}

static void peer_lost(struct rb_engine *engine, struct rb_poller *poller, uint32_t peer)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = peer };

	driver_of(poller)->event(engine, driver_of(poller), &event);
	listen_to_all(engine, driver_of(poller));
}

static void poisoned(struct rb_engine *engine, struct rb_poller *poller, rubato_status status,
		     const char *text)
{
	struct rb_protocol_driver *driver = driver_of(poller);

	(void)text;
	if (driver->over)
		return;
	if (driver->survives && status == RUBATO_ERR_PEER) {
		listen_to_all(engine, driver);
		return;
	}
	driver->over = true;
	driver->ended(engine, driver);
}

static const struct rb_poller_ops poller_ops = {
	.order = RB_POLLER_PROTOCOL,
	.poll = timer_poll,
	.next_ns = timer_next,
	.concerned = is_surviving,
	.peer_lost = peer_lost,
	.poisoned = poisoned,
};

/* ---- Opening ---- */

rubato_status rb_protocol_open(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	driver->peers = calloc(engine->rank_count, sizeof(*driver->peers));
	driver->wake_ns = UINT64_MAX;
	driver->queue_first = driver->queue_last = driver->queue_spare = NULL;
	driver->outgoing = driver->outgoing_spare = NULL;
	driver->stepping = driver->over = driver->listening_all = false;
	driver->unfinished = 0;
	if (driver->peers == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "protocol %s: %u peers", driver->name,
			       engine->rank_count);
	driver->poller.ops = &poller_ops;
	rb_engine_add_poller(engine, &driver->poller);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		rubato_status err = RUBATO_OK;

		if (!engine->losses.lost[r] &&
		    (driver->neighbour == NULL || driver->neighbour(driver, r)))
			err = listen(engine, driver, r);
		if (err != RUBATO_OK) {
			rb_protocol_close(engine, driver);
			return err;
		}
	}
	for (uint32_t r = 0; r < engine->rank_count && engine->poison != RUBATO_OK; r++) {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = r };

		if (engine->losses.lost[r])
			driver->event(engine, driver, &event);
	}
	if (engine->poison != RUBATO_OK)
		listen_to_all(engine, driver);
	driver->finished = driver->unfinished == 0;
	return RUBATO_OK;
}
