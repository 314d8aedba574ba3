/*
 * test_verbs.c -- the mock libibverbs does what verbs do: messages, one-sided writes and reads,
 * queues, channels, keys; and what a seed decides.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

static void fill(struct end *end, uint32_t bytes, uint32_t with)
{
	for (uint32_t i = 0; i < bytes; i++)
		end->memory[i] = (unsigned char)(i * 7 + with);
}

static void exchange(struct end ends[2], const struct address *remote, uint32_t bytes)
{
	struct ibv_wc wc;

	fill(&ends[0], bytes, bytes);
	memset(ends[1].memory, 0, bytes);
	end_receive(&ends[1], 5, 0, END_BYTES);
	ck_assert_int_eq(
		end_send(&ends[0], 9,
			 remote != NULL ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM, 0,
			 bytes, remote),
		0);
	wc = end_wait(&ends[1]);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, remote != NULL ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	ck_assert_uint_eq(wc.wr_id, 5);
	ck_assert_uint_eq(wc.byte_len, bytes);
	ck_assert_uint_eq(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	ck_assert_uint_eq(ntohl(wc.imm_data), 9);
	ck_assert_uint_eq(wc.qp_num, ends[1].qp->qp_num);
	ck_assert_mem_eq(ends[0].memory, ends[1].memory, bytes);
	wc = end_wait(&ends[0]);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, remote != NULL ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	ck_assert_uint_eq(wc.wr_id, 9);
}

START_TEST(messages_and_writes_arrive)
{
	static const uint32_t sizes[] = { 0, 1, 64, 4097, END_BYTES };
	struct end ends[2];
	struct address to;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		exchange(ends, NULL, sizes[i]);
		exchange(ends, &to, sizes[i]);
	}
	pair_close(ends);
}
END_TEST

/* What the engine's thread does not do by itself, in a run that only calls move. */
static void still_world(uint64_t seed)
{
	struct mock_config config;

	mock_config_default(&config);
	config.seed = seed;
	config.thread = 0;
	ck_assert_int_eq(mock_reset(&config), 0);
}

START_TEST(a_source_is_read_when_it_is_sent_not_when_it_is_posted)
{
	struct end ends[2];
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	still_world(0);
	pair_open(ends, (struct end_options) { 0 });
	sge = (struct ibv_sge) { (uintptr_t)ends[0].memory, 4, ends[0].mr->lkey };
	end_receive(&ends[1], 0, 0, 4);
	end_receive(&ends[1], 1, 4, 4);
	memcpy(ends[0].memory, "old", 4);
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	wr.send_flags = IBV_SEND_INLINE;
	sge.lkey = 0; /* Inline data needs none. */
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	memcpy(ends[0].memory, "new", 4);
	ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	ck_assert_str_eq((char *)ends[1].memory, "new");
	ck_assert_str_eq((char *)ends[1].memory + 4, "old");
	pair_close(ends);
}
END_TEST

START_TEST(chains_gather_and_receives_scatter)
{
	struct end ends[2];
	struct address to;
	struct ibv_sge from[3], into[2];
	struct ibv_send_wr *bad, wrs[2] = { { 0 } };
	struct ibv_recv_wr *bad_receive, receive = { .wr_id = 3, .sg_list = into, .num_sge = 2 };

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	fill(&ends[0], 100, 0);
	for (uint32_t i = 0; i < 3; i++) /* 10 bytes each: of 60, 30, 0. */
		from[i] = (struct ibv_sge) { (uintptr_t)ends[0].memory + 60 - 30 * i, 10,
					     ends[0].mr->lkey };
	into[0] = (struct ibv_sge) { (uintptr_t)ends[1].memory + 500, 25, ends[1].mr->lkey };
	into[1] = (struct ibv_sge) { (uintptr_t)ends[1].memory + 600, 25, ends[1].mr->lkey };
	ck_assert_int_eq(ibv_post_recv(ends[1].qp, &receive, &bad_receive), 0);
	wrs[0] = (struct ibv_send_wr) { .next = &wrs[1], .sg_list = from, .num_sge = 3 };
	wrs[0].opcode = IBV_WR_RDMA_WRITE;
	wrs[0].wr.rdma.remote_addr = to.memory;
	wrs[0].wr.rdma.rkey = to.rkey;
	wrs[1] = (struct ibv_send_wr) { .wr_id = 4, .sg_list = from, .num_sge = 3 };
	wrs[1].opcode = IBV_WR_SEND;
	wrs[1].send_flags = IBV_SEND_SIGNALED;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, wrs, &bad), 0);
	ck_assert_uint_eq(end_wait(&ends[1]).byte_len, 30);
	for (uint32_t i = 0; i < 30; i++) {
		uint32_t at = i < 25 ? 500 + i : 600 + i - 25;
		unsigned char expected = ends[0].memory[60 - 30 * (i / 10) + i % 10];

		ck_assert_uint_eq(ends[1].memory[i], expected);
		ck_assert_uint_eq(ends[1].memory[at], expected);
	}
	ck_assert_uint_eq(ends[1].memory[30] + ends[1].memory[605], 0);
	ck_assert_uint_eq(end_wait(&ends[0]).wr_id, 4); /* The write was not signalled. */
	ck_assert(end_silent(&ends[0], 2));
	pair_close(ends);
}
END_TEST

START_TEST(only_signalled_completions_that_were_polled_free_sends)
{
	struct end ends[2];
	struct address to;
	struct ibv_send_wr *bad = NULL, wr = { .opcode = IBV_WR_RDMA_WRITE };

	pair_open(ends, (struct end_options) { .sends = 8 });
	to = end_address(&ends[1]);
	wr.wr.rdma.rkey = to.rkey;
	for (uint32_t i = 0; i < 8; i++) {
		wr.send_flags = i == 5 ? IBV_SEND_SIGNALED : 0;
		ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	}
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), ENOMEM);
	ck_assert_ptr_eq(bad, &wr);
	ck_assert(end_silent(&ends[1], 5)); /* All are carried out: none is freed by that. */
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), ENOMEM);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), ENOMEM);
	pair_close(ends);
}
END_TEST

START_TEST(what_cannot_be_posted_is_said_at_once)
{
	struct end ends[2];
	struct ibv_sge sges[5] = { { 0 } };
	struct ibv_send_wr *bad, wr = { .sg_list = sges, .opcode = IBV_WR_SEND };
	struct ibv_recv_wr *bad_receive, receive = { .sg_list = sges, .num_sge = 5 };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	pair_open(ends, (struct end_options) { .receives = 2 });
	wr.num_sge = 5;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), EINVAL);
	ck_assert_int_eq(ibv_post_recv(ends[0].qp, &receive, &bad_receive), EINVAL);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	sges[0].length = 65;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_LOCAL_INV;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), EINVAL);
	end_receive(&ends[0], 0, 0, 1);
	end_receive(&ends[0], 0, 0, 1);
	receive.num_sge = 0;
	ck_assert_int_eq(ibv_post_recv(ends[0].qp, &receive, &bad_receive), ENOMEM);
	ck_assert_ptr_eq(bad_receive, &receive);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &reset, IBV_QP_STATE), 0);
	ck_assert_int_eq(ibv_post_recv(ends[0].qp, &receive, &bad_receive), EINVAL);
	ck_assert_int_eq(end_send(&ends[0], 0, IBV_WR_SEND, 0, 1, NULL), EINVAL);
	pair_close(ends);
}
END_TEST

START_TEST(reads_and_atomics_fetch)
{
	struct end ends[2];
	struct address to;
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	uint64_t *there, *here;
	struct ibv_wc wc;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	fill(&ends[1], 5000, 3);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_READ, 0, 5000, &to), 0);
	wc = end_wait(&ends[0]);
	ck_assert(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ);
	ck_assert_mem_eq(ends[0].memory, ends[1].memory, 5000);
	there = (uint64_t *)(void *)ends[1].memory;
	here = (uint64_t *)(void *)ends[0].memory;
	*there = 40;
	sge = (struct ibv_sge) { (uintptr_t)here, 8, ends[0].mr->lkey };
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.atomic.remote_addr = to.memory;
	wr.wr.atomic.rkey = to.rkey;
	wr.wr.atomic.compare_add = 2;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&ends[0]).opcode, IBV_WC_FETCH_ADD);
	ck_assert(*here == 40 && *there == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&ends[0]).opcode, IBV_WC_COMP_SWAP);
	ck_assert(*here == 42 && *there == 7);
	pair_close(ends);
}
END_TEST

static void datagram_ready(struct end *end, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };

	ck_assert_int_eq(
		ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	attr.qp_state = IBV_QPS_RTR;
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

START_TEST(datagrams_carry_where_they_came_from)
{
	struct end ends[2];
	struct address to;
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1 };
	struct ibv_ah *there, *back;
	struct ibv_wc wc;

	end_open(&ends[0], (struct end_options) { .ud = true });
	end_open(&ends[1], (struct end_options) { .ud = true });
	datagram_ready(&ends[0], 5);
	datagram_ready(&ends[1], 5);
	to = end_address(&ends[1]);
	path.grh.dgid = to.gid;
	path.grh.sgid_index = 3;
	end_receive(&ends[1], 9, 0, 140);
	fill(&ends[0], 100, 4);
	sge = (struct ibv_sge) { (uintptr_t)ends[0].memory, 100, ends[0].mr->lkey };
	wr.send_flags = IBV_SEND_SIGNALED;
	there = ibv_create_ah(ends[0].pd, &path);
	ck_assert_ptr_nonnull(there);
	wr.wr.ud.ah = there;
	wr.wr.ud.remote_qpn = to.qpn;
	wr.wr.ud.remote_qkey = 6; /* Not its key: nobody is told. */
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	ck_assert(end_silent(&ends[1], 2));
	wr.wr.ud.remote_qkey = 5;
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	wc = end_wait(&ends[1]);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 140);
	ck_assert_uint_eq(wc.src_qp, ends[0].qp->qp_num);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_GRH);
	ck_assert_mem_eq(ends[1].memory + 40, ends[0].memory, 100);
	to = end_address(&ends[0]);
	ck_assert_mem_eq(ends[1].memory + 8, &to.gid, 16);
	back = ibv_create_ah_from_wc(ends[1].pd, &wc, (struct ibv_grh *)(void *)ends[1].memory, 1);
	ck_assert_ptr_nonnull(back);
	end_receive(&ends[0], 1, 0, 100);
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.num_sge = 0;
	ck_assert_int_eq(ibv_post_send(ends[1].qp, &wr, &bad), 0);
	ck_assert_uint_eq(end_wait(&ends[0]).byte_len, 40);
	ck_assert_int_eq(ibv_destroy_ah(back), 0);
	ck_assert_int_eq(ibv_destroy_ah(there), 0);
	pair_close(ends);
}
END_TEST

START_TEST(a_shared_receive_queue_says_when_it_runs_low)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct end ends[2];

	pair_open(ends, (struct end_options) { .srq = true });
	mock_set("last_wqe", 3);
	for (uint32_t i = 0; i < 3; i++)
		end_receive(&ends[1], i, 0, 100);
	ck_assert_int_eq(ibv_modify_srq(ends[1].srq, &limit, IBV_SRQ_LIMIT), 0);
	ck_assert_int_eq(end_send(&ends[0], 0, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	ck_assert(end_no_event(&ends[1]));
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(end_event(&ends[1]).event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_int_eq(ibv_modify_qp(ends[1].qp, &error, IBV_QP_STATE), 0);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(end_event(&ends[1]).event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	ck_assert(end_no_event(&ends[1]));
	ck_assert(end_silent(&ends[1], 2)); /* What is posted is the others'. */
	pair_close(ends);
}
END_TEST

static bool channel_readable(const struct end *end)
{
	struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };

	return poll(&readable, 1, 0) == 1;
}

static void take_event(struct end *end)
{
	struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	ck_assert_int_eq(poll(&readable, 1, 10000), 1);
	ck_assert_int_eq(ibv_get_cq_event(end->channel, &cq, &context), 0);
	ck_assert_ptr_eq(cq, end->cq);
	ck_assert_ptr_eq(context, end);
	ibv_ack_cq_events(cq, 1);
}

static void send_solicited(struct end ends[2], unsigned int flags)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND };

	wr.send_flags = IBV_SEND_SIGNALED | flags;
	end_receive(&ends[1], 0, 0, 1);
	ck_assert_int_eq(ibv_post_send(ends[0].qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
}

START_TEST(a_queue_that_is_armed_tells_once)
{
	struct end ends[2];
	struct ibv_cq *cq;
	void *context;

	pair_open(ends, (struct end_options) { 0 });
	send_solicited(ends, 0);
	ck_assert(!channel_readable(&ends[1])); /* It was not armed. */
	ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 0), 0);
	send_solicited(ends, 0);
	send_solicited(ends, 0);
	take_event(&ends[1]);
	ck_assert(!channel_readable(&ends[1]));
	ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 1), 0);
	send_solicited(ends, 0);
	ck_assert(!channel_readable(&ends[1]));
	send_solicited(ends, IBV_SEND_SOLICITED);
	take_event(&ends[1]);
	ck_assert_int_eq(fcntl(ends[1].channel->fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(ibv_get_cq_event(ends[1].channel, &cq, &context), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 0), 0);
	send_solicited(ends, 0); /* An event that nobody takes goes with its queue. */
	ck_assert(channel_readable(&ends[1]));
	pair_close(ends);
}
END_TEST

START_TEST(work_goes_on_while_all_sleep)
{
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 0), 0);
	end_receive(&ends[1], 0, 0, END_BYTES);
	ck_assert_int_eq(end_send(&ends[0], 0, IBV_WR_SEND, 0, END_BYTES, NULL), 0);
	take_event(&ends[1]); /* Nothing is polled meanwhile. */
	ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	pair_close(ends);
}
END_TEST

START_TEST(keys_allow_what_they_say_and_no_more)
{
	struct end ends[2];
	struct address to;
	struct ibv_mr *mr;
	unsigned int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	unsigned int only_read = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	ck_assert_ptr_null(ibv_reg_mr(ends[1].pd, to.gid.raw, 1, IBV_ACCESS_REMOTE_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_reg_mr(ends[1].pd, (void *)4096, 4096, only_read));
	ck_assert_int_eq(errno, EFAULT);
	if (_i == 0) { /* Not for writing. */
		mr = ibv_reg_mr(ends[1].pd, ends[1].memory, 4096, only_read);
		ck_assert_ptr_nonnull(mr);
		to.rkey = mr->rkey;
		ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_READ, 0, 10, &to), 0);
		ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
		ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 10, &to), 0);
	} else { /* Not any more, though another region is where it was. */
		mr = ibv_reg_mr(ends[1].pd, ends[1].memory, 4096, writes);
		ck_assert_ptr_nonnull(mr);
		to.rkey = mr->rkey;
		ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 10, &to), 0);
		ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
		ck_assert_int_eq(ibv_dereg_mr(mr), 0);
		mr = ibv_reg_mr(ends[1].pd, ends[1].memory, 4096, writes);
		ck_assert_uint_ne(mr->rkey, to.rkey);
		ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 10, &to), 0);
	}
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	pair_close(ends);
}
END_TEST

START_TEST(regions_have_addresses_of_their_own_and_lie_in_files)
{
	unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int file = memfd_create("verbs-mock", MFD_CLOEXEC);
	struct end ends[2];
	struct address to;
	struct ibv_mr *mr;
	unsigned char got[3];

	ck_assert_int_eq(ftruncate(file, 3 * 4096), 0);
	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	fill(&ends[0], 100, 9);
	mr = ibv_reg_mr_iova(ends[1].pd, ends[1].memory + 4096, 100, 0x5000, access);
	ck_assert_ptr_nonnull(mr);
	to.rkey = mr->rkey;
	to.memory = 0x5000;
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 100, &to), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	ck_assert_mem_eq(ends[1].memory + 4096, ends[0].memory, 100);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(ends[1].pd, 0, 4096, 0, STDERR_FILENO, (int)access));
	mr = ibv_reg_dmabuf_mr(ends[1].pd, 4096 + 100, 4096, 0x7000, file, (int)access);
	ck_assert_ptr_nonnull(mr);
	to.rkey = mr->rkey;
	to.memory = 0x7001;
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 3, &to), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(pread(file, got, 3, 4096 + 101), 3);
	ck_assert_mem_eq(got, ends[0].memory, 3);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	pair_close(ends);
	(void)close(file);
}
END_TEST

#define PAIRS 3
#define SENDS 8

struct crowd { /* Three pairs; what all have is completed to one queue. */
	struct end ends[2 * PAIRS];
	uint64_t trace;
	uint32_t next[PAIRS], done;
};

static void crowd_open(struct crowd *crowd)
{
	for (uint32_t i = 0; i < PAIRS; i++) {
		pair_open(&crowd->ends[2 * i], (struct end_options) { 0 });
		for (uint64_t k = 0; k < SENDS; k++)
			end_receive(&crowd->ends[2 * i + 1], k, 0, 0);
	}
}

static uint32_t length_of(uint32_t pair, uint64_t send)
{
	return (uint32_t)(send % 3 == 0 ? 8 : 3000 * send + 100 * pair);
}

/* Takes what has come at one end: in order within its pair. */
static void crowd_take(struct crowd *crowd, uint32_t at)
{
	struct end *end = &crowd->ends[at];
	struct ibv_wc wc;

	crowd->trace = crowd->trace * 0x100000001b3ull + 1;
	if (ibv_poll_cq(end->cq, 1, &wc) == 0)
		return;
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	crowd->trace = (crowd->trace ^ (at * 1000 + wc.wr_id)) * 0x100000001b3ull;
	crowd->done++;
	if (at % 2 == 0)
		return;
	ck_assert_uint_eq(ntohl(wc.imm_data), crowd->next[at / 2]);
	ck_assert_uint_eq(wc.byte_len, length_of(at / 2, crowd->next[at / 2]));
	ck_assert_mem_eq(end->memory, (end - 1)->memory, wc.byte_len);
	crowd->next[at / 2]++;
}

/* What came when, at which end, in one run. */
static uint64_t run_of_seed(uint64_t seed)
{
	static struct crowd crowd;

	still_world(seed);
	crowd = (struct crowd) { 0 };
	crowd_open(&crowd);
	for (uint32_t i = 0; i < PAIRS; i++) {
		struct address to = end_address(&crowd.ends[2 * i + 1]);

		fill(&crowd.ends[2 * i], 30000, i);
		for (uint64_t k = 0; k < SENDS; k++)
			ck_assert_int_eq(end_send(&crowd.ends[2 * i], k, IBV_WR_RDMA_WRITE_WITH_IMM,
						  0, length_of(i, k), &to),
					 0);
	}
	for (uint32_t i = 0; crowd.done < 2 * PAIRS * SENDS; i++) {
		ck_assert_uint_lt(i, 1000000);
		crowd_take(&crowd, i % (2 * PAIRS));
	}
	for (uint32_t i = 0; i < PAIRS; i++)
		pair_close(&crowd.ends[2 * i]);
	return crowd.trace;
}

START_TEST(a_seed_decides_the_order_and_its_run_is_the_same_again)
{
	struct seeds seeds = seeds_from(__func__, 1, 60);
	uint64_t known[64], kinds = 0;
	uint32_t runs = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed); runs++) {
		uint64_t trace = run_of_seed(seed);
		bool seen = false;

		ck_assert_uint_eq(run_of_seed(seed), trace);
		for (uint64_t i = 0; i < kinds; i++)
			seen = seen || known[i] == trace;
		if (!seen)
			known[kinds++] = trace;
	}
	ck_assert(seeds_chosen() || kinds > runs / 2);
}
END_TEST

#define WRITES 2u
#define WRITE_BYTES 30000u

struct seen { /* Of so many runs. */
	uint32_t runs;
	uint32_t late; /* Not all was there when its writer had been told that it was written; */
	uint32_t torn; /* the last byte was, and some other was not. */
	uint64_t pieces;
};

/* Writes, of which their owner looks at the memory, then at what a message behind them tells. */
static void writes_and_a_message(uint64_t seed, unsigned int access, bool fails, struct seen *seen)
{
	const uint32_t all = WRITES * WRITE_BYTES;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct mock_counters counters;
	struct address to;
	struct end ends[2];

	still_world(seed);
	pair_open(ends, (struct end_options) { .access = access });
	to = end_address(&ends[1]);
	memset(ends[0].memory, 7, all);
	end_receive(&ends[1], 5, all, 8);
	for (uint32_t i = 0; i < WRITES; i++) {
		ck_assert_int_eq(
			end_send(&ends[0], i, IBV_WR_RDMA_WRITE, i * WRITE_BYTES, WRITE_BYTES, &to),
			0);
		ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	}
	seen->runs++;
	if (memcmp(ends[0].memory, ends[1].memory, all) != 0) {
		seen->late++;
		seen->torn += ends[1].memory[all - 1] == 7;
	}
	if (fails) {
		ck_assert_int_eq(ibv_modify_qp(ends[1].qp, &error, IBV_QP_STATE), 0);
	} else {
		ck_assert_int_eq(end_send(&ends[0], 9, IBV_WR_SEND, 0, 8, NULL), 0);
		ck_assert_int_eq(end_wait(&ends[1]).status, IBV_WC_SUCCESS);
	}
	ck_assert_mem_eq(ends[0].memory, ends[1].memory, all);
	mock_counters(&counters);
	seen->pieces += counters.late_pieces;
	pair_close(ends);
}

START_TEST(relaxed_writes_are_there_when_a_message_behind_them_is)
{
	const unsigned int strict = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct seeds seeds = seeds_from(__func__, 1, 60);
	struct seen relaxed = { 0 }, ordered = { 0 };

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		writes_and_a_message(seed, strict | IBV_ACCESS_RELAXED_ORDERING, _i != 0, &relaxed);
		writes_and_a_message(seed, strict, _i != 0, &ordered);
	}
	ck_assert_uint_eq(ordered.late + ordered.pieces, 0);
	ck_assert(seeds_chosen() || relaxed.pieces > relaxed.runs);
	ck_assert(seeds_chosen() || (relaxed.late > relaxed.runs / 4 && relaxed.torn > 0));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verbs-mock");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, messages_and_writes_arrive);
	tcase_add_test(tc, a_source_is_read_when_it_is_sent_not_when_it_is_posted);
	tcase_add_test(tc, chains_gather_and_receives_scatter);
	tcase_add_test(tc, only_signalled_completions_that_were_polled_free_sends);
	tcase_add_test(tc, what_cannot_be_posted_is_said_at_once);
	tcase_add_test(tc, reads_and_atomics_fetch);
	tcase_add_test(tc, datagrams_carry_where_they_came_from);
	tcase_add_test(tc, a_shared_receive_queue_says_when_it_runs_low);
	tcase_add_test(tc, a_queue_that_is_armed_tells_once);
	tcase_add_test(tc, work_goes_on_while_all_sleep);
	tcase_add_loop_test(tc, keys_allow_what_they_say_and_no_more, 0, 2);
	tcase_add_test(tc, regions_have_addresses_of_their_own_and_lie_in_files);
	tcase_add_test(tc, a_seed_decides_the_order_and_its_run_is_the_same_again);
	tcase_add_loop_test(tc, relaxed_writes_are_there_when_a_message_behind_them_is, 0, 2);
	return check_main("verbs-mock", tc);
}
