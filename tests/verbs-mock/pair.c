/*
 * pair.c -- two queue pairs of a test.
 */
#include "tests/verbs-mock/pair.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/check_main.h"

#define WAIT_S 20.0

static double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void end_queues(struct end *end, struct end_options options)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 4 } };
	struct ibv_qp_init_attr init = {
		.qp_type = options.ud ? IBV_QPT_UD : IBV_QPT_RC,
		.sq_sig_all = options.signal_all,
		.cap = { options.sends != 0 ? options.sends : 16,
			 options.receives != 0 ? options.receives : 16, 4, 4, 64 },
	};

	end->channel = ibv_create_comp_channel(end->context);
	ck_assert_ptr_nonnull(end->channel);
	end->cq =
		ibv_create_cq(end->context, options.cq_entries != 0 ? (int)options.cq_entries : 64,
			      end, end->channel, 0);
	ck_assert_ptr_nonnull(end->cq);
	end->srq = options.srq ? ibv_create_srq(end->pd, &srq) : NULL;
	ck_assert(!options.srq || end->srq != NULL);
	init.send_cq = init.recv_cq = end->cq;
	init.srq = end->srq;
	end->qp = ibv_create_qp(end->pd, &init);
	ck_assert_ptr_nonnull(end->qp);
}

void end_open(struct end *end, struct end_options options)
{
	unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	ck_assert_ptr_nonnull(list);
	ck_assert_int_gt(count, (int)options.device);
	end->context = ibv_open_device(list[options.device]);
	ck_assert_ptr_nonnull(end->context);
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->context);
	ck_assert_ptr_nonnull(end->pd);
	end->memory = aligned_alloc(4096, END_BYTES);
	ck_assert_ptr_nonnull(end->memory);
	memset(end->memory, 0, END_BYTES);
	end->mr = ibv_reg_mr(end->pd, end->memory, END_BYTES,
			     options.access != 0 ? options.access : access);
	ck_assert_ptr_nonnull(end->mr);
	end_queues(end, options);
}

struct address end_address(const struct end *end)
{
	struct address address = {
		(uintptr_t)end->memory, end->qp->qp_num, end->mr->rkey, { { 0 } }
	};

	ck_assert_int_eq(ibv_query_gid(end->context, 1, 3, &address.gid), 0);
	return address;
}

struct ibv_qp_attr end_init_attr(void)
{
	return (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
}

struct ibv_qp_attr end_rtr_attr(const struct address *peer)
{
	return (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = 7,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = 3, .hop_limit = 64 } },
	};
}

struct ibv_qp_attr end_rts_attr(void)
{
	return (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS,
		.timeout = 10,
		.retry_cnt = 3,
		.rnr_retry = 0,
		.sq_psn = 7,
		.max_rd_atomic = 1,
	};
}

void end_connect_as(struct end *end, const struct address *peer, struct ibv_qp_attr rts)
{
	struct ibv_qp_attr init = end_init_attr(), rtr = end_rtr_attr(peer);

	ck_assert_int_eq(ibv_modify_qp(end->qp, &init, INIT_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(end->qp, &rtr, RTR_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(end->qp, &rts, RTS_MASK), 0);
}

void end_connect(struct end *end, const struct address *peer)
{
	end_connect_as(end, peer, end_rts_attr());
}

void end_close(struct end *end)
{
	ck_assert_int_eq(ibv_destroy_qp(end->qp), 0);
	if (end->srq != NULL)
		ck_assert_int_eq(ibv_destroy_srq(end->srq), 0);
	ck_assert_int_eq(ibv_destroy_cq(end->cq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(end->channel), 0);
	ck_assert_int_eq(ibv_dereg_mr(end->mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(end->pd), 0);
	ck_assert_int_eq(ibv_close_device(end->context), 0);
	free(end->memory);
}

void pair_open(struct end ends[2], struct end_options options)
{
	struct address address;

	end_open(&ends[0], options);
	end_open(&ends[1], options);
	address = end_address(&ends[1]);
	end_connect(&ends[0], &address);
	address = end_address(&ends[0]);
	end_connect(&ends[1], &address);
}

void pair_close(struct end ends[2])
{
	end_close(&ends[0]);
	end_close(&ends[1]);
}

void end_receive(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + offset, bytes, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (end->srq != NULL)
		ck_assert_int_eq(ibv_post_srq_recv(end->srq, &wr, &bad), 0);
	else
		ck_assert_int_eq(ibv_post_recv(end->qp, &wr, &bad), 0);
}

int end_send(struct end *end, uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t offset,
	     uint32_t bytes, const struct address *remote)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + offset, bytes, end->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl((uint32_t)wr_id),
	};

	if (remote != NULL) {
		wr.wr.rdma.remote_addr = remote->memory + offset;
		wr.wr.rdma.rkey = remote->rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

struct ibv_wc end_wait(struct end *end)
{
	double until = now() + WAIT_S;
	struct ibv_wc wc;
	int got = 0;

	while (got == 0 && now() < until)
		got = ibv_poll_cq(end->cq, 1, &wc);
	ck_assert_msg(got == 1, "poll_cq gave %d after %g s", got, WAIT_S);
	return wc;
}

bool end_silent(struct end *end, int ms)
{
	double until = now() + ms * 1e-3;
	struct ibv_wc wc;

	while (now() < until)
		if (ibv_poll_cq(end->cq, 1, &wc) != 0)
			return false;
	return true;
}

struct ibv_async_event end_event(struct end *end)
{
	struct pollfd readable = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	ck_assert_msg(poll(&readable, 1, (int)(WAIT_S * 1e3)) == 1, "no event in %g s", WAIT_S);
	ck_assert_int_eq(ibv_get_async_event(end->context, &event), 0);
	ibv_ack_async_event(&event);
	return event;
}

bool end_no_event(const struct end *end)
{
	struct pollfd readable = { .fd = end->context->async_fd, .events = POLLIN };

	return poll(&readable, 1, 0) == 0;
}

enum ibv_qp_state end_state(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ck_assert_int_eq(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}
