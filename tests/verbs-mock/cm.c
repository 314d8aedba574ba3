/*
 * cm.c -- connections of rdmacm, as all processes see them: whom they join, what is told of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/rdmacm.h"

#define REJECTED_BY_CONSUMER 28 /* IB_CM_REJ_CONSUMER_DEFINED */

uint32_t cm_make(struct world *world, uint32_t owner)
{
	for (uint32_t i = 0; i < WORLD_CMS; i++) {
		struct world_cm *cm = &world->cms[i];
		uint32_t generation = cm->generation + 1;

		if (cm->used)
			continue;
		*cm = (struct world_cm) { .used = true,
					  .process = owner,
					  .generation = generation,
					  .device = WORLD_NONE,
					  .peer = WORLD_NONE,
					  .listener = WORLD_NONE };
		if (i >= world->cm_end)
			world->cm_end = i + 1;
		cm->psn = (uint32_t)world_chance(world, 11, (uint64_t)generation << 32 | i) &
			  0xffffffu;
		return i;
	}
	return WORLD_NONE;
}

void cm_tell(struct world *world, uint32_t index, enum rdma_cm_event_type type, int status)
{
	struct world_cm *cm = &world->cms[index];
	struct world_cm_event *event = &cm->events[cm->tail % WORLD_CM_EVENTS];
	uint64_t due = world->step + engine_delay(world, index, cm->told++);

	if (cm->tail - cm->head == WORLD_CM_EVENTS)
		abort(); /* No course of a connection has so many. */
	if (cm->tail != cm->head && cm->events[(cm->tail - 1) % WORLD_CM_EVENTS].due > due)
		due = cm->events[(cm->tail - 1) % WORLD_CM_EVENTS].due;
	*event = (struct world_cm_event) { .type = type, .status = status, .due = due };
	cm->tail++;
	world->processes[cm->process].cm_events++;
	world_notify(world, cm->process);
	if (cm->process == world_self())
		process.engine_sleeps = false;
}

struct world_cm *cm_peer(struct world *world, const struct world_cm *cm)
{
	struct world_cm *peer = cm->peer == WORLD_NONE ? NULL : &world->cms[cm->peer];

	return peer != NULL && peer->used && peer->generation == cm->peer_generation ? peer : NULL;
}

void cm_end(struct world *world, uint32_t index)
{
	struct world_cm *cm = &world->cms[index], *peer = cm_peer(world, cm);
	bool was_connected = cm->state == CM_CONNECTED;

	for (uint32_t i = 0; cm->state == CM_LISTENS && i < world->cm_end; i++)
		if (world->cms[i].used && world->cms[i].listener == index &&
		    world->cms[i].state == CM_REQUESTED && process.cms[i] == NULL)
			cm_end(world, i); /* Nobody will ever take it. */
	cm->state = CM_OVER;
	world->processes[cm->process].cm_events -= cm->tail - cm->head;
	cm->head = cm->tail;
	cm->used = false;
	if (peer == NULL || peer->state == CM_OVER)
		return;
	peer->peer = WORLD_NONE;
	if (peer->state == CM_CONNECTED || was_connected)
		cm_tell(world, (uint32_t)(peer - world->cms), RDMA_CM_EVENT_DISCONNECTED, 0);
	else
		cm_tell(world, (uint32_t)(peer - world->cms), RDMA_CM_EVENT_REJECTED,
			REJECTED_BY_CONSUMER);
	peer->state = CM_OVER;
}

void cm_bury(struct world *world, uint32_t owner)
{
	for (uint32_t i = 0; i < world->cm_end; i++)
		if (world->cms[i].used && world->cms[i].process == owner)
			cm_end(world, i);
	world->processes[owner].cm_events = 0;
}

uint32_t cm_listener(const struct world *world, uint32_t device, uint32_t port, uint16_t number)
{
	for (uint32_t i = 0; i < world->cm_end; i++) {
		const struct world_cm *cm = &world->cms[i];

		if (cm->used && cm->state == CM_LISTENS && cm->device == device &&
		    cm->port == port && cm->number == number)
			return i;
	}
	return WORLD_NONE;
}

/* The identifier of a request, which the application has not made. */
static struct mock_cm *cm_of_request(const struct world *world, uint32_t index)
{
	const struct mock_cm *listener = process.cms[world->cms[index].listener];
	struct mock_cm *cm = calloc(1, sizeof(*cm));

	if (cm == NULL)
		abort();
	cm->v = listener->v;
	cm->context = listener->context;
	cm->v.verbs = &cm->context;
	cm->index = index;
	((struct mock_cm_channel *)cm->v.channel)->ids++;
	process.cms[index] = cm;
	return cm;
}

static void event_raise(struct world *world, uint32_t index, const struct world_cm_event *told)
{
	struct mock_cm *cm = process.cms[index];
	struct mock_cm_event *event = calloc(1, sizeof(*event));

	if (event == NULL)
		abort();
	if (told->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		cm = cm_of_request(world, index);
	event->base.id = cm;
	event->v.id = &cm->v;
	event->v.event = told->type;
	event->v.status = told->status;
	if (told->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		event->v.listen_id = &process.cms[world->cms[index].listener]->v;
		memcpy(event->data, world->cms[index].data, sizeof(event->data));
		event->v.param.conn.private_data = event->data;
		event->v.param.conn.private_data_len = sizeof(event->data); /* As on the wire. */
	}
	event_queue_push(&((struct mock_cm_channel *)cm->v.channel)->events, &event->base);
}

void cm_raise(struct world *world)
{
	struct world_process *slot = &world->processes[world_self()];

	for (uint32_t i = 0; i < world->cm_end && slot->cm_events > 0; i++) {
		struct world_cm *cm = &world->cms[i];

		while (cm->used && cm->process == world_self() && cm->head != cm->tail &&
		       cm->events[cm->head % WORLD_CM_EVENTS].due <= world->step) {
			slot->cm_events--;
			event_raise(world, i, &cm->events[cm->head++ % WORLD_CM_EVENTS]);
		}
	}
}
