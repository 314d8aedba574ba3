/*
 * queue.c -- queue pairs and shared receive queues: made, queried, taken away.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

#define QPN_BITS 14u /* WORLD_QPS of them; above: how often the place was used. */
#define QPN_FIRST 2u /* 0 and 1 are the subnet's. */

static int rq_make(struct world *world, struct world_rq *rq, uint32_t capacity, uint32_t max_sge)
{
	*rq = (struct world_rq) { .capacity = capacity, .max_sge = max_sge };
	if (capacity == 0)
		return 0;
	rq->ring = world_alloc(world, capacity * rq_stride(rq));
	return rq->ring != 0 ? 0 : ENOMEM;
}

static void rq_drop(struct world *world, struct world_rq *rq)
{
	if (rq->capacity > 0)
		world_free(world, rq->ring, rq->capacity * rq_stride(rq));
	rq->capacity = 0;
}

void qp_remove(struct world *world, uint32_t index)
{
	struct world_qp *qp = &world->qps[index];

	late_land(world, index);
	rq_drop(world, &qp->rq);
	world->cqs[qp->send_cq].qps--;
	world->cqs[qp->recv_cq].qps--;
	if (qp->srq != WORLD_NONE)
		world->srqs[qp->srq].qps--;
	world->devices[qp->device].qps--;
	qp->used = false;
}

void qp_event(struct world *world, uint32_t index, enum ibv_event_type type)
{
	world->qps[index].raise[type]++;
	qp_raise(world, index);
}

/* Events of a queue pair of this process; its owner is called, if it is another's. */
void qp_raise(struct world *world, uint32_t index)
{
	struct world_qp *qp = &world->qps[index];
	struct mock_qp *own = process.qps[index];

	for (uint32_t type = 0; type < WORLD_EVENT_TYPES; type++) {
		if (qp->raise[type] == 0)
			continue;
		if (qp->process != world_self()) {
			world_notify(world, qp->process);
			return;
		}
		for (; qp->raise[type] > 0; qp->raise[type]--)
			async_raise(context_of(own->v.context), (enum ibv_event_type)type, own, 0);
	}
}

static int cap_judge(struct world *world, const struct ibv_qp_init_attr *init)
{
	const struct mock_config config = config_now(world), *c = &config;
	const struct ibv_qp_cap *cap = &init->cap;

	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (init->send_cq == NULL || init->recv_cq == NULL || cap->max_send_wr > c->max_qp_wr ||
	    cap->max_recv_wr > c->max_qp_wr || cap->max_send_sge > c->max_sge ||
	    cap->max_recv_sge > c->max_sge || cap->max_inline_data > c->max_inline)
		return EINVAL;
	return 0;
}

static int qp_place(struct world *world, uint32_t device, uint32_t *index)
{
	if (world->devices[device].dead)
		return EIO;
	if (world->devices[device].qps >= world->config.max_qp)
		return ENOMEM;
	for (uint32_t i = 0; i < WORLD_QPS; i++) {
		*index = (world->qp_hint + i) % WORLD_QPS;
		if (*index >= QPN_FIRST && !world->qps[*index].used) {
			world->qp_hint = *index + 1;
			if (*index >= world->qp_end)
				world->qp_end = *index + 1;
			return 0;
		}
	}
	return ENOMEM;
}

static int send_queue_make(struct mock_qp *qp)
{
	uint32_t sges = qp->cap.max_send_sge > 0 ? qp->cap.max_send_sge : 1;

	qp->capacity = qp->cap.max_send_wr;
	qp->sends = calloc(qp->capacity + 1, sizeof(*qp->sends));
	qp->sge_slab = calloc((size_t)(qp->capacity + 1) * sges, sizeof(*qp->sge_slab));
	qp->inline_slab = calloc(qp->capacity + 1, qp->cap.max_inline_data + 1);
	if (qp->sends == NULL || qp->sge_slab == NULL || qp->inline_slab == NULL)
		return ENOMEM;
	for (uint32_t i = 0; i < qp->capacity; i++) {
		qp->sends[i].sges = qp->sge_slab + (size_t)i * sges;
		qp->sends[i].inline_data = qp->inline_slab + (size_t)i * qp->cap.max_inline_data;
	}
	return 0;
}

static void mock_qp_free(struct mock_qp *qp)
{
	if (qp == NULL)
		return;
	free(qp->sends);
	free(qp->sge_slab);
	free(qp->inline_slab);
	free(qp);
}

static int qp_make(struct world *world, struct mock_qp *own, const struct ibv_qp_init_attr *init)
{
	struct mock_srq *srq = (struct mock_srq *)init->srq;
	uint32_t device = context_of(own->v.context)->device, index, generation;
	struct world_rq rq;
	int error = qp_place(world, device, &index);

	if (error == 0)
		error = rq_make(world, &rq, srq != NULL ? 0 : init->cap.max_recv_wr,
				init->cap.max_recv_sge);
	if (error != 0)
		return error;
	generation = world->qps[index].generation + 1;
	world->qps[index] = (struct world_qp) {
		.used = true,
		.process = world_self(),
		.device = device,
		.pd = ((struct mock_pd *)own->v.pd)->id,
		.send_cq = ((struct mock_cq *)init->send_cq)->index,
		.recv_cq = ((struct mock_cq *)init->recv_cq)->index,
		.srq = srq != NULL ? srq->index : WORLD_NONE,
		.generation = generation,
		.type = init->qp_type,
		.rq = rq,
	};
	world->cqs[world->qps[index].send_cq].qps++;
	world->cqs[world->qps[index].recv_cq].qps++;
	if (srq != NULL)
		world->srqs[srq->index].qps++;
	world->devices[device].qps++;
	((struct mock_pd *)own->v.pd)->users++;
	process.qps[index] = own;
	own->index = own->v.handle = index;
	world->qps[index].number = own->v.qp_num = ((generation & 0x3ff) << QPN_BITS) | index;
	return 0;
}

MOCK_API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	int error = call_fails(CALL_ibv_create_qp);
	struct world *world = world_now();
	struct mock_qp *qp = calloc(1, sizeof(*qp));

	if (error == 0)
		error = qp == NULL ? ENOMEM : cap_judge(world, init);
	if (error == 0 && init->qp_type == IBV_QPT_UD && config_now(world).iwarp != 0)
		error = EOPNOTSUPP;
	if (error == 0) {
		qp->v = (struct ibv_qp) {
			.context = pd->context,
			.qp_context = init->qp_context,
			.pd = pd,
			.send_cq = init->send_cq,
			.recv_cq = init->recv_cq,
			.srq = init->srq,
			.state = IBV_QPS_RESET,
			.qp_type = init->qp_type,
		};
		qp->cap = init->cap;
		qp->sq_sig_all = init->sq_sig_all != 0;
		error = send_queue_make(qp);
	}
	if (error == 0) {
		world_lock(world);
		error = qp_make(world, qp, init);
		world_unlock(world);
	}
	if (error == 0) {
		pthread_mutex_init(&qp->v.mutex, NULL);
		pthread_cond_init(&qp->v.cond, NULL);
		return &qp->v;
	}
	mock_qp_free(qp);
	errno = error;
	return NULL;
}

MOCK_API int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			  struct ibv_qp_init_attr *init)
{
	int error = call_fails(CALL_ibv_query_qp);
	struct mock_qp *own = (struct mock_qp *)qp;
	struct world *world = world_now();

	if (error != 0)
		return error;
	world_lock(world);
	*attr = world->qps[own->index].attr;
	attr->qp_state = attr->cur_qp_state = world->qps[own->index].state;
	attr->cap = own->cap;
	if ((mask & IBV_QP_STATE) != 0)
		qp->state = attr->qp_state;
	*init = (struct ibv_qp_init_attr) {
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = own->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = own->sq_sig_all,
	};
	world_unlock(world);
	return 0;
}

MOCK_API int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct mock_qp *own = (struct mock_qp *)qp;
	struct world *world = world_now();
	struct world_qp *at = &world->qps[own->index];
	int error = call_fails(CALL_ibv_destroy_qp);

	if (error != 0)
		return error;
	world_lock(world);
	if (world->config.stale_cqes == 0) {
		cq_forget_qp(world, at->send_cq, qp->qp_num);
		cq_forget_qp(world, at->recv_cq, qp->qp_num);
	}
	qp_remove(world, own->index);
	process.qps[own->index] = NULL;
	engine_deactivate(own);
	((struct mock_pd *)qp->pd)->users--;
	event_queue_purge(&context_of(qp->context)->events, own);
	events_acknowledged(world, "ibv_destroy_qp", &own->async_taken, &qp->events_completed);
	world_unlock(world);
	pthread_mutex_destroy(&qp->mutex);
	pthread_cond_destroy(&qp->cond);
	mock_qp_free(own);
	return 0;
}

void srq_remove(struct world *world, uint32_t index)
{
	rq_drop(world, &world->srqs[index].rq);
	world->devices[world->srqs[index].device].srqs--;
	world->srqs[index].used = false;
}

void srq_raise(struct world *world, uint32_t index)
{
	struct world_srq *srq = &world->srqs[index];

	if (!srq->raise_limit)
		return;
	if (srq->process != world_self()) {
		world_notify(world, srq->process);
		return;
	}
	srq->raise_limit = false;
	async_raise(context_of(process.srqs[index]->v.context), IBV_EVENT_SRQ_LIMIT_REACHED,
		    process.srqs[index], 0);
}

static int srq_make(struct world *world, struct mock_srq *own, const struct ibv_srq_attr *attr)
{
	uint32_t device = context_of(own->v.context)->device, index = 0;
	int error;

	if (world->devices[device].dead)
		return EIO;
	while (index < WORLD_SRQS && world->srqs[index].used)
		index++;
	if (index == WORLD_SRQS || world->devices[device].srqs >= world->config.max_srq)
		return ENOMEM;
	world->srqs[index] = (struct world_srq) {
		.process = world_self(),
		.device = device,
		.pd = ((struct mock_pd *)own->v.pd)->id,
		.limit = attr->srq_limit,
	};
	error = rq_make(world, &world->srqs[index].rq, attr->max_wr, attr->max_sge);
	if (error != 0)
		return error;
	world->srqs[index].used = true;
	if (index >= world->srq_end)
		world->srq_end = index + 1;
	world->devices[device].srqs++;
	((struct mock_pd *)own->v.pd)->users++;
	process.srqs[index] = own;
	own->index = own->v.handle = index;
	return 0;
}

MOCK_API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	int error = call_fails(CALL_ibv_create_srq);
	struct world *world = world_now();
	struct mock_srq *srq = calloc(1, sizeof(*srq));

	if (error == 0 && srq == NULL)
		error = ENOMEM;
	if (error == 0 &&
	    (init->attr.max_wr < 1 || init->attr.max_wr > config_now(world).max_srq_wr ||
	     init->attr.max_sge > config_now(world).max_sge))
		error = EINVAL;
	if (error == 0) {
		srq->v = (struct ibv_srq) {
			.context = pd->context,
			.srq_context = init->srq_context,
			.pd = pd,
		};
		world_lock(world);
		error = srq_make(world, srq, &init->attr);
		world_unlock(world);
	}
	if (error == 0) {
		pthread_mutex_init(&srq->v.mutex, NULL);
		pthread_cond_init(&srq->v.cond, NULL);
		return &srq->v;
	}
	free(srq);
	errno = error;
	return NULL;
}

MOCK_API int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	int error = call_fails(CALL_ibv_modify_srq);
	struct world *world = world_now();
	struct world_srq *at = &world->srqs[((struct mock_srq *)srq)->index];

	if (error == 0 && (mask & IBV_SRQ_MAX_WR) != 0)
		error = EOPNOTSUPP;
	if (error == 0 && (mask & IBV_SRQ_LIMIT) != 0 && attr->srq_limit >= at->rq.capacity)
		error = EINVAL;
	if (error != 0)
		return error;
	world_lock(world);
	if ((mask & IBV_SRQ_LIMIT) != 0)
		at->limit = attr->srq_limit;
	world_unlock(world);
	return 0;
}

MOCK_API int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct world *world = world_now();
	const struct world_srq *at = &world->srqs[((struct mock_srq *)srq)->index];

	world_lock(world);
	*attr = (struct ibv_srq_attr) { at->rq.capacity, at->rq.max_sge, at->limit };
	world_unlock(world);
	return 0;
}

MOCK_API int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct mock_srq *own = (struct mock_srq *)srq;
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_destroy_srq);

	if (error != 0)
		return error;
	world_lock(world);
	if (world->srqs[own->index].qps > 0) {
		world_unlock(world);
		return EBUSY;
	}
	srq_remove(world, own->index);
	process.srqs[own->index] = NULL;
	((struct mock_pd *)srq->pd)->users--;
	event_queue_purge(&context_of(srq->context)->events, own);
	events_acknowledged(world, "ibv_destroy_srq", &own->async_taken, &srq->events_completed);
	world_unlock(world);
	pthread_mutex_destroy(&srq->mutex);
	pthread_cond_destroy(&srq->cond);
	free(own);
	return 0;
}
