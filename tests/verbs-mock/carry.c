/*
 * carry.c -- carries out work requests: in order within a queue pair, each to its end or its error.
 *
 * A send is delivered, then acknowledged, which may be later: in between its receiver has it, and
 * its sender does not know. A send that nobody answers is tried again until its retries are spent.
 * An error completes with what is in front of it, turns the queue pair to ERR, and all else that is
 * posted ends with WR_FLUSH_ERR.
 */
#include <string.h>
#include <time.h>

#include "tests/verbs-mock/carry.h"
#include "tests/verbs-mock/process.h"

#define STEP_BYTES ((size_t)1 << 20) /* Of a queue pair, while others wait for the lock. */

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void qp_fail(struct world *world, uint32_t index)
{
	struct world_qp *qp = &world->qps[index];

	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	qp->flush = true;
	late_land(world, index);
	for (uint64_t i = 0; qp->srq != WORLD_NONE && i < world->config.last_wqe; i++)
		qp_event(world, index, IBV_EVENT_QP_LAST_WQE_REACHED);
	if (qp->process == world_self())
		engine_activate(world, process.qps[index]);
	else
		world_notify(world, qp->process);
}

static enum ibv_wc_opcode completed_as(uint32_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* The oldest send ends. Of one that failed only id, status and number mean something. */
static void send_end(struct world *world, struct mock_qp *own, enum ibv_wc_status status)
{
	struct send *send = &own->sends[own->acked % own->capacity];
	struct world_qp *qp = &world->qps[own->index];
	struct world_cqe cqe = { .qp = own->index, .generation = qp->generation };
	bool error = status != IBV_WC_SUCCESS;

	own->acked++;
	cqe.sends_freed = own->acked;
	cqe.wc.wr_id = send->wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = error ? IBV_WC_DRIVER3 : completed_as(send->opcode);
	cqe.wc.byte_len = error ? 0xdeadbeef : send->length;
	cqe.wc.vendor_err = error ? 0x80u + (uint32_t)status : 0;
	cqe.wc.qp_num = qp->number;
	if (status == IBV_WC_WR_FLUSH_ERR)
		world->counters.flushed++;
	if (status == IBV_WC_RETRY_EXC_ERR)
		world->counters.retries_exhausted++;
	if (error || (send->flags & IBV_SEND_SIGNALED) != 0)
		cq_push(world, qp->send_cq, &cqe, false);
}

void receive_end(struct world *world, struct world_qp *qp, uint64_t wr_id, struct ibv_wc wc,
		 bool solicited)
{
	struct world_cqe cqe = { .wc = wc, .qp = WORLD_NONE };

	late_land(world, (uint32_t)(qp - world->qps));
	cqe.wc.wr_id = wr_id;
	cqe.wc.qp_num = qp->number;
	if (wc.status != IBV_WC_SUCCESS) {
		cqe.wc.opcode = IBV_WC_DRIVER3;
		cqe.wc.byte_len = 0xdeadbeef;
		cqe.wc.vendor_err = 0x80u + (uint32_t)wc.status;
	}
	if (wc.status == IBV_WC_WR_FLUSH_ERR)
		world->counters.flushed++;
	cq_push(world, qp->recv_cq, &cqe, solicited);
}

static void flush(struct world *world, struct mock_qp *own)
{
	struct world_qp *qp = &world->qps[own->index];

	qp->flush = false;
	while (own->acked != own->posted)
		send_end(world, own, IBV_WC_WR_FLUSH_ERR);
	own->sent = own->posted;
	while (qp->rq.head != qp->rq.tail) {
		uint64_t wr_id = rq_entry(world, &qp->rq, qp->rq.head)->wr_id;

		qp->rq.head++;
		receive_end(world, qp, wr_id, (struct ibv_wc) { .status = IBV_WC_WR_FLUSH_ERR },
			    false);
	}
}

/* Nobody answers this try. Whether there are others, or it has failed. */
static enum outcome unanswered(struct world *world, struct mock_qp *own, enum ibv_wc_status *status)
{
	const struct world_qp *qp = &world->qps[own->index];
	const struct world_port *port = &world->devices[qp->device].ports[qp->attr.port_num - 1];

	if (port->state != IBV_PORT_ACTIVE && world->config.soft_roce != 0) {
		*status = IBV_WC_WR_FLUSH_ERR;
		return FAILED;
	}
	if (own->attempts == qp->attr.retry_cnt + 1u) {
		*status = IBV_WC_RETRY_EXC_ERR;
		return FAILED;
	}
	own->attempts++;
	own->attempt_until = now_ns() + (4096ull << qp->attr.timeout) / world->config.time_divisor;
	return WAITS;
}

/* Whether it is too early to try again; without a timeout nothing is ever sent again. */
static bool between_tries(const struct world *world, const struct mock_qp *own)
{
	return own->attempts > 0 &&
	       (world->qps[own->index].attr.timeout == 0 || now_ns() < own->attempt_until);
}

/* The least time between two tries, in units of 10 us, by min_rnr_timer; 0 is the longest. */
static uint64_t rnr_ns(uint32_t timer)
{
	static const uint32_t units[32] = { 65536, 1,    2,    3,     4,     6,     8,     12,
					    16,    24,   32,   48,    64,    96,    128,   192,
					    256,   384,  512,  768,   1024,  1536,  2048,  3072,
					    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	return units[timer & 31] * 10000ull;
}

static enum outcome not_ready(struct world *world, struct mock_qp *own, const struct world_qp *peer,
			      enum ibv_wc_status *status)
{
	const struct world_qp *qp = &world->qps[own->index];
	uint64_t now = now_ns();

	if (now < own->rnr_until)
		return WAITS;
	world->counters.rnr++;
	if (own->rnr_until == 0)
		own->rnr_left = qp->attr.rnr_retry;
	else if (qp->attr.rnr_retry < 7)
		own->rnr_left--;
	if (own->rnr_left == 0) {
		*status = IBV_WC_RNR_RETRY_EXC_ERR;
		return FAILED;
	}
	own->rnr_until = now + rnr_ns(peer->attr.min_rnr_timer) / world->config.time_divisor;
	return WAITS;
}

/* A message that is still on its way, by what the ports of both ends say. */
static bool is_on_its_way(struct world *world, struct send *send, const struct world_qp *qp,
			  const struct world_qp *peer)
{
	uint64_t us = world->devices[qp->device].ports[qp->attr.port_num - 1].slow_us +
		      (uint64_t)world->devices[peer->device].ports[peer->attr.port_num - 1].slow_us;

	if (us == 0 || send->slowed)
		return false;
	if (send->begun_ns == 0)
		send->begun_ns = now_ns();
	if (now_ns() - send->begun_ns < us * 1000)
		return true;
	send->slowed = true;
	world->counters.slowed++;
	return false;
}

static enum outcome try_send(struct world *world, struct mock_qp *own, struct send *send,
			     size_t *budget, enum ibv_wc_status *status)
{
	struct world_qp *peer;
	enum outcome outcome;

	if (own->v.qp_type == IBV_QPT_UD)
		return datagram(world, own, send, status);
	if (between_tries(world, own))
		return WAITS;
	peer = peer_reached(world, own, send);
	if (peer == NULL)
		return unanswered(world, own, status);
	if (is_on_its_way(world, send, &world->qps[own->index], peer))
		return WAITS;
	own->attempts = 0;
	outcome = deliver(world, own, send, peer, budget, status);
	if (outcome == NOT_READY)
		return not_ready(world, own, peer, status);
	own->rnr_until = 0;
	return outcome;
}

/* A send has failed: those before it have not, those after it are flushed. */
static void send_failed(struct world *world, struct mock_qp *own, enum ibv_wc_status status)
{
	while (own->acked + 1 != own->sent)
		send_end(world, own, IBV_WC_SUCCESS);
	send_end(world, own, status);
	if (own->v.qp_type != IBV_QPT_UD) {
		qp_fail(world, own->index);
		return;
	}
	world->qps[own->index].state = IBV_QPS_SQE; /* Datagrams are still received. */
	while (own->acked != own->posted)
		send_end(world, own, IBV_WC_WR_FLUSH_ERR);
	own->sent = own->posted;
}

/* What is injected comes instead of a send, or after it. */
static enum outcome try_or_fault(struct world *world, struct mock_qp *own, struct send *send,
				 size_t *budget, enum ibv_wc_status *status)
{
	enum outcome outcome = DELIVERED;

	if (!send->counted)
		send->fault = fault_of(world, world_self(), false);
	send->counted = true;
	if (send->fault == NULL || send->fault->delivered)
		outcome = try_send(world, own, send, budget, status);
	if (send->fault == NULL || outcome != DELIVERED)
		return outcome;
	send->fault->fired++;
	world->counters.faults_fired++;
	*status = send->fault->status;
	return FAILED;
}

/* Whether it went on: a later one is not tried before. */
static bool send_next(struct world *world, struct mock_qp *own, size_t *budget)
{
	struct send *send = &own->sends[own->sent % own->capacity];
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	enum outcome outcome;
	uint64_t delay;

	if (send->due > world->step)
		return false;
	world->counters.early_sends += world->qps[own->index].waits_first;
	world->qps[own->index].waits_first = false;
	outcome = try_or_fault(world, own, send, budget, &status);
	if (outcome == WAITS)
		return false;
	own->sent++;
	if (outcome == FAILED) {
		send_failed(world, own, status);
		return false;
	}
	world->counters.sends++;
	world->counters.bytes += send->length;
	delay = engine_delay(world, own->index, ~send->ordinal);
	send->ack_due = world->step + delay;
	send->ack_late = delay > 0;
	send->ack_lost = false;
	return true;
}

/*
 * The answer to the oldest send. One that is on its way when a link fails is lost: then the sender
 * tries again, and is told that it has failed where nobody answers, though its peer has all of it.
 */
static enum outcome answer(struct world *world, struct mock_qp *own, struct send *send,
			   enum ibv_wc_status *status)
{
	if (!send->ack_late)
		return DELIVERED;
	if (between_tries(world, own))
		return WAITS;
	if (answer_arrives(world, own, send)) {
		own->attempts = 0;
		return DELIVERED;
	}
	send->ack_lost = true;
	return unanswered(world, own, status);
}

static void take_answers(struct world *world, struct mock_qp *own)
{
	while (own->acked != own->sent) {
		struct send *send = &own->sends[own->acked % own->capacity];
		enum ibv_wc_status status = IBV_WC_SUCCESS;
		enum outcome outcome = WAITS;

		if (send->ack_due <= world->step)
			outcome = answer(world, own, send, &status);
		if (outcome == WAITS)
			return;
		send_end(world, own, status);
		if (outcome == FAILED) {
			qp_fail(world, own->index);
			return;
		}
	}
}

bool carry_out(struct world *world, struct mock_qp *own)
{
	struct world_qp *qp = &world->qps[own->index];
	size_t budget = STEP_BYTES;

	/* While an answer is missing, nothing else is sent. */
	if (qp->state == IBV_QPS_RTS && own->acked != own->sent)
		take_answers(world, own);
	if (qp->state == IBV_QPS_RTS && (own->attempts == 0 || own->acked == own->sent))
		while (own->sent != own->posted && budget > 0 && send_next(world, own, &budget))
			;
	if (qp->state == IBV_QPS_RTS)
		take_answers(world, own);
	if (qp->state == IBV_QPS_ERR) {
		flush(world, own);
		return false;
	}
	return own->acked != own->posted && qp->state == IBV_QPS_RTS;
}
