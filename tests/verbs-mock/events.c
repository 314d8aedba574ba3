/*
 * events.c -- completion channels and asynchronous events: queues behind a readable descriptor.
 *
 * The descriptor is one end of a socket pair. There is a byte in it exactly while the queue is not
 * empty, so that poll(), epoll and a blocking read mean what they mean with the kernel's.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/verbs-mock/process.h"

int event_queue_open(struct event_queue *queue)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return errno;
	*queue = (struct event_queue) { .fd = pair[0], .other = pair[1] };
	queue->last = &queue->first;
	return 0;
}

void event_queue_close(struct event_queue *queue)
{
	while (queue->first != NULL) {
		struct event *event = queue->first;

		queue->first = event->next;
		free(event);
	}
	(void)close(queue->fd);
	(void)close(queue->other);
}

static void token_put(const struct event_queue *queue)
{
	(void)send(queue->other, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void event_queue_add(struct event_queue *queue, struct mock_cq *cq,
		     const struct ibv_async_event *async)
{
	struct event *event = calloc(1, sizeof(*event));

	if (event == NULL)
		abort();
	event->cq = cq;
	if (async != NULL)
		event->async = *async;
	event_queue_push(queue, event);
}

void event_queue_push(struct event_queue *queue, struct event *event)
{
	if (queue->first == NULL)
		token_put(queue);
	*queue->last = event;
	queue->last = &event->next;
}

static bool about(const struct event *event, const void *object)
{
	if (event->cq != NULL)
		return event->cq == object;
	if (event->id != NULL)
		return event->id == object;
	switch (event->async.event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_DEVICE_FATAL:
		return false;
	default:
		return event->async.element.qp == object;
	}
}

void event_queue_purge(struct event_queue *queue, const void *object)
{
	bool had = queue->first != NULL;
	char token;

	queue->last = &queue->first;
	for (struct event **at = &queue->first; *at != NULL;) {
		struct event *event = *at;

		if (about(event, object)) {
			*at = event->next;
			free(event);
		} else {
			at = &event->next;
		}
		queue->last = at;
	}
	if (had && queue->first == NULL)
		(void)recv(queue->fd, &token, 1, MSG_DONTWAIT);
}

struct event *event_queue_take(struct world *world, struct event_queue *queue)
{
	char token;

	for (;;) {
		struct event *event;

		if (read(queue->fd, &token, 1) != 1)
			return NULL;
		world_lock(world);
		event = queue->first;
		if (event != NULL) {
			queue->first = event->next;
			if (queue->first == NULL)
				queue->last = &queue->first;
			else
				token_put(queue);
			if (event->cq != NULL)
				event->cq->events_taken++;
			if (event->id != NULL)
				cm_taken(event->id);
		}
		world_unlock(world);
		if (event != NULL)
			return event;
	}
}

MOCK_API int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			      void **cq_context)
{
	struct mock_channel *own = (struct mock_channel *)channel;
	int error = call_fails(CALL_ibv_get_cq_event);
	struct event *event;

	if (error != 0) {
		errno = error;
		return -1;
	}
	event = event_queue_take(world_now(), &own->events);
	if (event == NULL)
		return -1;
	*cq = &event->cq->v;
	*cq_context = event->cq->v.cq_context;
	free(event);
	return 0;
}

MOCK_API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	struct world *world = world_now();

	world_lock(world);
	cq->comp_events_completed += count;
	world_unlock(world);
}

/* The count of what was taken, and of what was acknowledged, of an event's object. */
static void async_counts(struct ibv_async_event *event, uint32_t **taken, uint32_t **completed)
{
	*taken = *completed = NULL;
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		*taken = &((struct mock_cq *)event->element.cq)->async_taken;
		*completed = &event->element.cq->async_events_completed;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		*taken = &((struct mock_srq *)event->element.srq)->async_taken;
		*completed = &event->element.srq->events_completed;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*taken = &((struct mock_qp *)event->element.qp)->async_taken;
		*completed = &event->element.qp->events_completed;
		break;
	default:
		break;
	}
}

MOCK_API int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int error = call_fails(CALL_ibv_get_async_event);
	struct world *world = world_now();
	uint32_t *taken, *completed;
	struct event *next;

	if (error != 0) {
		errno = error;
		return -1;
	}
	next = event_queue_take(world, &context_of(context)->events);
	if (next == NULL)
		return -1;
	*event = next->async;
	free(next);
	world_lock(world);
	async_counts(event, &taken, &completed);
	if (taken != NULL)
		(*taken)++;
	world_unlock(world);
	return 0;
}

MOCK_API void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct world *world = world_now();
	uint32_t *taken, *completed;

	world_lock(world);
	async_counts(event, &taken, &completed);
	if (completed != NULL)
		(*completed)++;
	world_unlock(world);
}

void async_raise(struct mock_context *context, enum ibv_event_type type, void *object, int port)
{
	struct ibv_async_event event = { .event_type = type };

	if (object != NULL)
		event.element.qp = object;
	else
		event.element.port_num = port;
	event_queue_add(&context->events, NULL, &event);
}

void device_events_raise(struct world *world)
{
	for (struct mock_context *context = process.contexts; context != NULL;
	     context = context->next) {
		const struct world_device *device = &world->devices[context->device];

		for (; context->device_events < device->event_count; context->device_events++) {
			const struct world_event *event =
				&device->events[context->device_events % WORLD_EVENTS];

			async_raise(context, event->type, NULL, (int)event->port);
		}
	}
}

void device_event(struct world *world, uint32_t device, enum ibv_event_type type, uint32_t port)
{
	struct world_device *at = &world->devices[device];

	at->events[at->event_count % WORLD_EVENTS] =
		(struct world_event) { .type = type, .port = port };
	at->event_count++;
	device_events_raise(world);
	for (uint32_t i = 0; i < WORLD_PROCESSES; i++)
		if (world->processes[i].used && i != world_self())
			world_notify(world, i);
}

void events_acknowledged(struct world *world, const char *what, const uint32_t *taken,
			 const uint32_t *completed)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (uint64_t waited = 0; *taken != *completed; waited++) {
		if (waited >= world->config.acknowledge_ms) {
			(void)fprintf(stderr,
				      "verbs-mock: %s: %u of %u events are not acknowledged after "
				      "%" PRIu64 " ms; it would wait for ever\n",
				      what, *taken - *completed, *taken, waited);
			abort();
		}
		world_unlock(world);
		(void)nanosleep(&pause, NULL);
		world_lock(world);
	}
}
