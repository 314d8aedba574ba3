/*
 * cq.c -- completion queues: a ring that any process adds to, and its owner takes from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

static struct world_cqe *entry(struct world *world, const struct world_cq *cq, uint32_t count)
{
	return (struct world_cqe *)world_at(world, cq->ring) + count % cq->capacity;
}

/* Events of a queue of this process; the owner's, if it is another's. */
void cq_raise(struct world *world, uint32_t index)
{
	struct world_cq *cq = &world->cqs[index];
	struct mock_cq *own;

	if (cq->raise == 0 && cq->raise_error == 0)
		return;
	if (cq->process != world_self()) {
		world_notify(world, cq->process);
		return;
	}
	own = process.cqs[index];
	for (; cq->raise > 0; cq->raise--)
		event_queue_add(&((struct mock_channel *)own->v.channel)->events, own, NULL);
	for (; cq->raise_error > 0; cq->raise_error--)
		async_raise(context_of(own->v.context), IBV_EVENT_CQ_ERR, own, 0);
}

void cq_break(struct world *world, uint32_t index)
{
	struct world_cq *cq = &world->cqs[index];

	if (cq->overrun)
		return;
	cq->overrun = true;
	cq->raise_error++;
	cq_raise(world, index);
	for (uint32_t i = 0; i < world->qp_end; i++)
		if (world->qps[i].used &&
		    (world->qps[i].send_cq == index || world->qps[i].recv_cq == index)) {
			qp_event(world, i, IBV_EVENT_QP_FATAL);
			qp_fail(world, i);
		}
}

void cq_push(struct world *world, uint32_t index, const struct world_cqe *cqe, bool solicited)
{
	struct world_cq *cq = &world->cqs[index];

	if (!cq->used || cq->overrun)
		return;
	if (cq->tail - cq->head == cq->capacity) {
		world->counters.cq_overruns++;
		cq_break(world, index);
		return;
	}
	*entry(world, cq, cq->tail) = *cqe;
	cq->tail++;
	if (cq->armed == 1 || (cq->armed == 2 && (solicited || cqe->wc.status != IBV_WC_SUCCESS))) {
		cq->armed = 0;
		cq->raise++;
		cq_raise(world, index);
	}
}

/* Its sends' places are free for new ones: all up to this one, which was signalled. */
static void free_sends(const struct world *world, const struct world_cqe *cqe)
{
	if (cqe->qp != WORLD_NONE && world->qps[cqe->qp].used &&
	    world->qps[cqe->qp].generation == cqe->generation && process.qps[cqe->qp] != NULL)
		process.qps[cqe->qp]->freed = cqe->sends_freed;
}

int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int error = call_fails(CALL_ibv_poll_cq), taken = 0;
	struct world *world = world_now();
	struct world_cq *at = &world->cqs[((struct mock_cq *)cq)->index];

	if (error != 0)
		return -error;
	world_lock(world);
	process.calls++;
	world->step++;
	engine_step(world);
	for (; taken < count && at->head != at->tail; taken++) {
		const struct world_cqe *cqe = entry(world, at, at->head);

		wc[taken] = cqe->wc;
		free_sends(world, cqe);
		at->head++;
	}
	world_unlock(world);
	return taken;
}

int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int error = call_fails(CALL_ibv_req_notify_cq);
	struct world *world = world_now();
	uint32_t index = ((struct mock_cq *)cq)->index;
	struct world_cq *at = &world->cqs[index];

	if (error == 0 && cq->channel == NULL)
		error = EINVAL;
	if (error != 0)
		return error;
	world_lock(world);
	process.calls++;
	world->step++;
	at->arms++;
	if (at->armed != 1)
		at->armed = solicited_only ? 2 : 1;
	if (world->config.seed != 0 &&
	    world_chance(world, 1, (uint64_t)index << 32 | at->arms) % 16 == 0) {
		at->armed = 0;
		at->raise++;
		world->counters.spurious_events++;
		cq_raise(world, index);
	}
	world_unlock(world);
	return 0;
}

MOCK_API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int error = call_fails(CALL_ibv_create_comp_channel);
	struct mock_channel *channel = error == 0 ? calloc(1, sizeof(*channel)) : NULL;
	struct world *world = world_now();

	if (channel != NULL)
		error = event_queue_open(&channel->events);
	if (error != 0)
		errno = error;
	if (channel == NULL || error != 0) {
		free(channel);
		return NULL;
	}
	channel->v = (struct ibv_comp_channel) { .context = context, .fd = channel->events.fd };
	world_lock(world);
	context_of(context)->channels++;
	world_unlock(world);
	return &channel->v;
}

MOCK_API int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct mock_channel *own = (struct mock_channel *)channel;
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_destroy_comp_channel);
	bool busy;

	if (error != 0)
		return error;
	world_lock(world);
	busy = channel->refcnt > 0;
	if (!busy)
		context_of(channel->context)->channels--;
	world_unlock(world);
	if (busy)
		return EBUSY;
	event_queue_close(&own->events);
	free(own);
	return 0;
}

static uint32_t cq_place(struct world *world)
{
	for (uint32_t i = 0; i < WORLD_CQS; i++) {
		uint32_t index = (world->cq_hint + i) % WORLD_CQS;

		if (!world->cqs[index].used) {
			world->cq_hint = index + 1;
			if (index >= world->cq_end)
				world->cq_end = index + 1;
			return index;
		}
	}
	return WORLD_NONE;
}

static int cq_make(struct world *world, struct mock_cq *own, uint32_t device, int capacity)
{
	uint32_t index = cq_place(world);
	uint64_t ring;

	if (world->devices[device].dead)
		return EIO;
	if (index == WORLD_NONE || world->devices[device].cqs >= world->config.max_cq)
		return ENOMEM;
	ring = world_alloc(world, (size_t)capacity * sizeof(struct world_cqe));
	if (ring == 0)
		return ENOMEM;
	world->cqs[index] = (struct world_cq) {
		.used = true,
		.has_channel = own->v.channel != NULL,
		.process = world_self(),
		.device = device,
		.capacity = (uint32_t)capacity,
		.ring = ring,
	};
	world->devices[device].cqs++;
	process.cqs[index] = own;
	own->index = own->v.handle = index;
	if (own->v.channel != NULL)
		own->v.channel->refcnt++;
	return 0;
}

MOCK_API struct ibv_cq *ibv_create_cq(struct ibv_context *context, int capacity, void *cq_context,
				      struct ibv_comp_channel *channel, int vector)
{
	int error = call_fails(CALL_ibv_create_cq);
	struct world *world = world_now();
	struct mock_cq *cq = NULL;

	if (error == 0 && (capacity < 1 || (uint64_t)capacity > config_now(world).max_cqe ||
			   vector < 0 || vector >= context->num_comp_vectors))
		error = EINVAL;
	if (error == 0 && (cq = calloc(1, sizeof(*cq))) == NULL)
		error = ENOMEM;
	if (error == 0) {
		cq->v = (struct ibv_cq) {
			.context = context,
			.channel = channel,
			.cq_context = cq_context,
			.cqe = capacity,
		};
		world_lock(world);
		error = cq_make(world, cq, context_of(context)->device, capacity);
		world_unlock(world);
	}
	if (error == 0) {
		pthread_mutex_init(&cq->v.mutex, NULL);
		pthread_cond_init(&cq->v.cond, NULL);
		return &cq->v;
	}
	free(cq);
	errno = error;
	return NULL;
}

void cq_remove(struct world *world, uint32_t index)
{
	struct world_cq *cq = &world->cqs[index];

	world_free(world, cq->ring, cq->capacity * sizeof(struct world_cqe));
	world->devices[cq->device].cqs--;
	cq->used = false;
}

MOCK_API int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct mock_cq *own = (struct mock_cq *)cq;
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_destroy_cq);

	if (error != 0)
		return error;
	world_lock(world);
	if (world->cqs[own->index].qps > 0) {
		world_unlock(world);
		return EBUSY;
	}
	cq_remove(world, own->index);
	process.cqs[own->index] = NULL;
	if (cq->channel != NULL) {
		event_queue_purge(&((struct mock_channel *)cq->channel)->events, own);
		cq->channel->refcnt--;
	}
	event_queue_purge(&context_of(cq->context)->events, own);
	events_acknowledged(world, "ibv_destroy_cq", &own->events_taken,
			    &cq->comp_events_completed);
	events_acknowledged(world, "ibv_destroy_cq", &own->async_taken,
			    &cq->async_events_completed);
	world_unlock(world);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	free(own);
	return 0;
}

MOCK_API int ibv_resize_cq(struct ibv_cq *cq, int capacity)
{
	int error = call_fails(CALL_ibv_resize_cq);
	struct world *world = world_now();
	struct world_cq *at = &world->cqs[((struct mock_cq *)cq)->index];
	uint32_t old = at->capacity, kept = 0;
	uint64_t ring;

	if (error == 0 && (capacity < 1 || (uint64_t)capacity > config_now(world).max_cqe))
		error = EINVAL;
	if (error != 0)
		return error;
	world_lock(world);
	ring = (uint32_t)capacity < at->tail - at->head
		       ? 0
		       : world_alloc(world, (size_t)capacity * sizeof(struct world_cqe));
	if (ring == 0) {
		world_unlock(world);
		return (uint32_t)capacity < at->tail - at->head ? EINVAL : ENOMEM;
	}
	for (; at->head != at->tail; at->head++)
		((struct world_cqe *)world_at(world, ring))[kept++] = *entry(world, at, at->head);
	world_free(world, at->ring, old * sizeof(struct world_cqe));
	at->ring = ring;
	at->capacity = (uint32_t)capacity;
	at->head = 0;
	at->tail = kept;
	cq->cqe = capacity;
	world_unlock(world);
	return 0;
}

/* A QP is destroyed: what it has completed goes with it, as with mlx5. */
void cq_forget_qp(struct world *world, uint32_t index, uint32_t number)
{
	struct world_cq *cq = &world->cqs[index];
	uint32_t kept = cq->head;

	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (entry(world, cq, i)->wc.qp_num != number) {
			*entry(world, cq, kept) = *entry(world, cq, i);
			kept++;
		}
	cq->tail = kept;
}
