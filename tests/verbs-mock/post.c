/*
 * post.c -- posting: what is judged at once, and copied. All else is found out by the engine.
 */
#include <errno.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

#define IN_PLACE_BYTES 4096u

static bool opcode_known(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return type == IBV_QPT_RC;
	default:
		return false;
	}
}

static bool fetches(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int send_judge(const struct world *world, const struct mock_qp *own,
		      const struct ibv_send_wr *wr)
{
	const struct world_qp *qp = &world->qps[own->index];
	uint64_t length = 0;

	if (world->config.iwarp != 0 &&
	    (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_IMM))
		return EINVAL;
	if (qp->state < IBV_QPS_RTS || !opcode_known(qp->type, wr->opcode) || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > own->cap.max_send_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (length > world->config.max_msg || (qp->type == IBV_QPT_UD && wr->wr.ud.ah == NULL))
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) != 0 &&
	    (fetches(wr->opcode) || length > own->cap.max_inline_data))
		return EINVAL;
	return own->posted - own->freed >= own->capacity ? ENOMEM : 0;
}

static void send_target(struct send *send, enum ibv_qp_type type, const struct ibv_send_wr *wr)
{
	if (type == IBV_QPT_UD) {
		const struct ibv_ah_attr *to = &((struct mock_ah *)wr->wr.ud.ah)->attr;

		send->to = *to;
		send->qpn = wr->wr.ud.remote_qpn;
		send->qkey = wr->wr.ud.remote_qkey;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		send->remote = wr->wr.atomic.remote_addr;
		send->rkey = wr->wr.atomic.rkey;
		send->compare_add = wr->wr.atomic.compare_add;
		send->swap = wr->wr.atomic.swap;
	} else {
		send->remote = wr->wr.rdma.remote_addr;
		send->rkey = wr->wr.rdma.rkey;
	}
}

static void send_take(struct world *world, struct mock_qp *own, const struct ibv_send_wr *wr)
{
	struct send *send = &own->sends[own->posted % own->capacity];

	send->wr_id = wr->wr_id;
	send->opcode = wr->opcode;
	send->flags = wr->send_flags | (own->sq_sig_all ? IBV_SEND_SIGNALED : 0);
	send->imm = wr->imm_data;
	send->length = send->moved = 0;
	send->counted = send->slowed = false;
	send->begun_ns = 0;
	send->sge_count = (uint32_t)wr->num_sge;
	send->ordinal = own->ordinal++;
	send->due = world->step + engine_delay(world, own->index, send->ordinal);
	send_target(send, own->v.qp_type, wr);
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		send->sges[i] = *sge;
		if ((wr->send_flags & IBV_SEND_INLINE) != 0 && sge->length > 0)
			memcpy(send->inline_data + send->length, (void *)(uintptr_t)sge->addr,
			       sge->length);
		send->length += sge->length;
	}
	own->posted++;
	world->counters.sent_in_place += world->config.iwarp != 0 &&
					 send->length >= IN_PLACE_BYTES &&
					 (send->flags & (IBV_SEND_SIGNALED | IBV_SEND_INLINE)) == 0;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = call_fails(CALL_ibv_post_send);
	struct mock_qp *own = (struct mock_qp *)qp;
	struct world *world = world_now();

	world_lock(world);
	process.calls++;
	world->step++;
	for (; wr != NULL; wr = wr->next) {
		if (error == 0)
			error = send_judge(world, own, wr);
		if (error != 0) {
			*bad = wr;
			break;
		}
		send_take(world, own, wr);
	}
	engine_activate(world, own);
	world_unlock(world);
	return error;
}

static int receives_take(struct world *world, struct world_rq *rq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	for (; wr != NULL; wr = wr->next) {
		struct world_receive *receive;

		*bad = wr;
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
			return EINVAL;
		if (rq->capacity == 0 || rq->tail - rq->head >= rq->capacity)
			return ENOMEM;
		receive = rq_entry(world, rq, rq->tail);
		receive->wr_id = wr->wr_id;
		receive->sge_count = (uint32_t)wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			receive->sges[i] = wr->sg_list[i];
		rq->tail++;
	}
	return 0;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = call_fails(CALL_ibv_post_recv);
	struct mock_qp *own = (struct mock_qp *)qp;
	struct world *world = world_now();
	struct world_qp *at = &world->qps[own->index];

	if (error != 0) {
		*bad = wr;
		return error;
	}
	world_lock(world);
	process.calls++;
	world->step++;
	*bad = wr;
	if (at->state == IBV_QPS_RESET || at->srq != WORLD_NONE)
		error = EINVAL;
	else
		error = receives_take(world, &at->rq, wr, bad);
	if (at->state == IBV_QPS_ERR) {
		at->flush = true;
		engine_activate(world, own);
	}
	world_unlock(world);
	return error;
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = call_fails(CALL_ibv_post_srq_recv);
	struct world *world = world_now();
	struct world_srq *at = &world->srqs[((struct mock_srq *)srq)->index];

	if (error != 0) {
		*bad = wr;
		return error;
	}
	world_lock(world);
	process.calls++;
	world->step++;
	error = receives_take(world, &at->rq, wr, bad);
	world_unlock(world);
	return error;
}
