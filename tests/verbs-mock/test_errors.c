/*
 * test_errors.c -- every error of the mock has the shape that it has on a device: who is told what,
 * in which order, and what state it leaves behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

static struct mock_counters counted(void)
{
	struct mock_counters counters;

	mock_counters(&counters);
	return counters;
}

static void expect(struct end *end, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = end_wait(end);

	ck_assert_msg(wc.wr_id == wr_id && wc.status == status,
		      "work request %lu ended with '%s', not %lu with '%s'", (long)wc.wr_id,
		      ibv_wc_status_str(wc.status), (long)wr_id, ibv_wc_status_str(status));
	ck_assert_uint_eq(wc.qp_num, end->qp->qp_num);
}

/* A failed send, then what was posted behind it; its queue pair is in ERR. */
static void expect_failure(struct end *end, enum ibv_wc_status status)
{
	expect(end, 1, status);
	expect(end, 2, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(end_state(end), IBV_QPS_ERR);
}

static void send_two(struct end *end, enum ibv_wr_opcode opcode, const struct address *to)
{
	ck_assert_int_eq(end_send(end, 1, opcode, 0, 100, to), 0);
	ck_assert_int_eq(end_send(end, 2, opcode, 0, 100, to), 0);
}

START_TEST(a_wrong_remote_key_ends_both)
{
	struct end ends[2];
	struct address to;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	end_receive(&ends[1], 7, 0, 10);
	to.rkey ^= _i == 0 ? 1 : 0x100;
	to.memory += _i == 2 ? END_BYTES - 99 : 0;
	to.rkey ^= _i == 2 ? 0x100 : 0;
	send_two(&ends[0], IBV_WR_RDMA_WRITE, &to);
	expect_failure(&ends[0], IBV_WC_REM_ACCESS_ERR);
	expect(&ends[1], 7, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(end_state(&ends[1]), IBV_QPS_ERR);
	ck_assert_int_eq(end_event(&ends[1]).event_type, IBV_EVENT_QP_ACCESS_ERR);
	ck_assert(end_no_event(&ends[1]) && end_no_event(&ends[0]));
	ck_assert_uint_eq(counted().outside_remote, 1);
	ck_assert_uint_eq(counted().outside_local, 0);
	pair_close(ends);
}
END_TEST

START_TEST(a_wrong_local_key_ends_the_sender)
{
	struct end ends[2];
	struct address to;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	ends[0].mr->lkey ^= 1;
	mock_set("soft_roce", (uint64_t)_i);
	send_two(&ends[0], IBV_WR_RDMA_WRITE, &to);
	expect_failure(&ends[0], _i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(end_state(&ends[1]), IBV_QPS_RTS);
	ck_assert_uint_eq(counted().outside_local, 1);
	pair_close(ends);
}
END_TEST

START_TEST(a_message_longer_than_its_receive_ends_both)
{
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	mock_set("soft_roce", (uint64_t)_i);
	end_receive(&ends[1], 7, 0, 99);
	end_receive(&ends[1], 8, 0, 99);
	send_two(&ends[0], IBV_WR_SEND, NULL);
	expect_failure(&ends[0], _i ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
	expect(&ends[1], 7, _i ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR);
	expect(&ends[1], 8, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(counted().length_errors, 1);
	pair_close(ends);
}
END_TEST

START_TEST(a_receive_with_a_wrong_key_ends_both)
{
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	ends[1].mr->lkey ^= 1;
	end_receive(&ends[1], 7, 0, 100);
	send_two(&ends[0], IBV_WR_SEND, NULL);
	expect_failure(&ends[0], IBV_WC_REM_OP_ERR);
	expect(&ends[1], 7, IBV_WC_LOC_PROT_ERR);
	pair_close(ends);
}
END_TEST

START_TEST(no_receive_is_counted_and_fails)
{
	struct end ends[2];
	struct address to;

	pair_open(ends, (struct end_options) { 0 });
	to = end_address(&ends[1]);
	send_two(&ends[0], _i ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, &to);
	expect_failure(&ends[0], IBV_WC_RNR_RETRY_EXC_ERR);
	ck_assert_uint_eq(counted().rnr, 1);
	ck_assert_int_eq(end_state(&ends[1]), IBV_QPS_RTS);
	pair_close(ends);
}
END_TEST

START_TEST(a_receive_that_comes_late_is_waited_for)
{
	struct end ends[2];
	struct address to;
	struct ibv_qp_attr rts = end_rts_attr();

	rts.rnr_retry = 7;
	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { 0 });
	to = end_address(&ends[1]);
	end_connect_as(&ends[0], &to, rts);
	to = end_address(&ends[0]);
	end_connect(&ends[1], &to);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 100, NULL), 0);
	ck_assert(end_silent(&ends[0], 20));
	ck_assert_uint_gt(counted().rnr, 2);
	end_receive(&ends[1], 7, 0, 100);
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	expect(&ends[1], 7, IBV_WC_SUCCESS);
	pair_close(ends);
}
END_TEST

enum { GID, TYPE_OF_GID, NUMBER, PSN, PEER_LEAVES, PEER_FAILS, SILENCE, LOSS, LINK, DEVICE, WAYS };

static void break_path(struct end ends[2], int way)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	if (way == PEER_FAILS)
		ck_assert_int_eq(ibv_modify_qp(ends[1].qp, &error, IBV_QP_STATE), 0);
	else if (way == SILENCE)
		mock_silence(ends[1].qp->qp_num, true);
	else if (way == LOSS)
		mock_loss(0, 1, 1, 1000);
	else if (way == LINK)
		mock_link(0, 1, 1, false);
	else if (way == DEVICE)
		mock_device_event(0, 1, 1, IBV_EVENT_DEVICE_FATAL);
}

/* End 0 is on device 0, end 1 on device 1; the path between is wrong, or breaks. */
static void open_broken(struct end ends[2], int way)
{
	struct ibv_qp_attr init = end_init_attr(), rtr, rts = end_rts_attr();
	struct address to;

	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { .device = 1 });
	to = end_address(&ends[1]);
	rtr = end_rtr_attr(&to);
	if (way == GID)
		rtr.ah_attr.grh.dgid.raw[15] ^= 2;
	else if (way == TYPE_OF_GID)
		rtr.ah_attr.grh.sgid_index = 2; /* RoCE v1; the peer speaks v2. */
	else if (way == NUMBER)
		rtr.dest_qp_num ^= 1u << 20;
	else if (way == PSN)
		rts.sq_psn = 8;
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &init, INIT_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &rtr, RTR_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &rts, RTS_MASK), 0);
	to = end_address(&ends[0]);
	end_connect(&ends[1], &to);
	if (way == PEER_LEAVES)
		end_close(&ends[1]);
	else
		break_path(ends, way);
}

START_TEST(who_is_not_reached_is_given_up)
{
	struct end ends[2];
	struct timespec from, until;
	double seconds;

	open_broken(ends, _i);
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	send_two(&ends[0], IBV_WR_SEND, NULL);
	expect_failure(&ends[0], IBV_WC_RETRY_EXC_ERR);
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	seconds = (double)(until.tv_sec - from.tv_sec) +
		  1e-9 * (double)(until.tv_nsec - from.tv_nsec);
	/* Four tries of 4.096 us << 10, fifty times faster. */
	ck_assert_double_ge(seconds, 4 * 4.096e-6 * 1024 / 50 * 0.99);
	ck_assert_uint_eq(counted().retries_exhausted, 1);
	ck_assert_uint_eq(counted().sends, 0);
	if (_i == LINK)
		ck_assert_int_eq(end_event(&ends[1]).event_type, IBV_EVENT_PORT_ERR);
	if (_i == DEVICE)
		ck_assert_int_eq(end_event(&ends[1]).event_type, IBV_EVENT_DEVICE_FATAL);
	end_close(&ends[0]);
	if (_i != PEER_LEAVES)
		end_close(&ends[1]);
}
END_TEST

START_TEST(a_link_that_comes_back_in_time_costs_nothing)
{
	struct end ends[2];
	struct ibv_port_attr port;

	pair_open(ends, (struct end_options) { 0 });
	mock_set("time_divisor", 1); /* 16 ms */
	mock_link(0, 0, 1, false);
	ck_assert_int_eq(ibv_query_port(ends[0].context, 1, &port), 0);
	ck_assert_int_eq(port.state, IBV_PORT_DOWN);
	end_receive(&ends[1], 7, 0, 100);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 100, NULL), 0);
	ck_assert(end_silent(&ends[0], 2));
	mock_link(0, 0, 1, true);
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	expect(&ends[1], 7, IBV_WC_SUCCESS);
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event = end_event(&ends[i]);

		ck_assert_int_eq(event.event_type, IBV_EVENT_PORT_ERR);
		ck_assert_int_eq(event.element.port_num, 1);
		ck_assert_int_eq(end_event(&ends[i]).event_type, IBV_EVENT_PORT_ACTIVE);
	}
	pair_close(ends);
}
END_TEST

START_TEST(soft_roce_flushes_when_its_link_is_down)
{
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	mock_set("soft_roce", 1);
	mock_link(0, 0, 1, false);
	send_two(&ends[0], IBV_WR_SEND, NULL);
	expect_failure(&ends[0], IBV_WC_WR_FLUSH_ERR);
	pair_close(ends);
}
END_TEST

/* The peer has the message, and its sender is told that nobody answered. */
START_TEST(an_answer_that_is_lost_leaves_doubt)
{
	struct mock_config config;
	struct end ends[2];

	mock_config_default(&config);
	config.max_delay = 1000;
	config.thread = 0;
	ck_assert_int_eq(mock_reset(&config), 0);
	pair_open(ends, (struct end_options) { 0 });
	end_receive(&ends[1], 7, 0, 100);
	memset(ends[0].memory, 3, 100);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 100, NULL), 0);
	expect(&ends[1], 7, IBV_WC_SUCCESS);
	mock_link(0, 0, 1, false);
	expect(&ends[0], 1, IBV_WC_RETRY_EXC_ERR);
	ck_assert_uint_eq(ends[1].memory[99], 3);
	pair_close(ends);
}
END_TEST

START_TEST(some_loss_is_retried)
{
	struct end ends[2];
	uint32_t done = 0;

	pair_open(ends, (struct end_options) { 0 });
	mock_loss(0, 0, 1, 50); /* At both ends: one in ten. */
	for (; done < 300; done++) {
		end_receive(&ends[1], done, 0, 100);
		ck_assert_int_eq(end_send(&ends[0], done, IBV_WR_SEND, 0, 100, NULL), 0);
		if (end_wait(&ends[0]).status != IBV_WC_SUCCESS)
			break; /* Four in a row, one in ten thousand. */
		expect(&ends[1], done, IBV_WC_SUCCESS);
	}
	ck_assert_uint_gt(done, 30);
	ck_assert_uint_gt(counted().packets_lost, 1);
	pair_close(ends);
}
END_TEST

START_TEST(path_mtus_that_differ_are_found_out)
{
	struct ibv_qp_attr init = end_init_attr(), rtr, rts = end_rts_attr();
	struct end ends[2];
	struct address to;

	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { 0 });
	to = end_address(&ends[0]);
	end_connect(&ends[1], &to);
	to = end_address(&ends[1]);
	rtr = end_rtr_attr(&to);
	rtr.path_mtu = IBV_MTU_4096;
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &init, INIT_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &rtr, RTR_MASK), 0);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &rts, RTS_MASK), 0);
	ck_assert_int_eq(end_send(&ends[0], 0, IBV_WR_RDMA_WRITE, 0, 1000, &to), 0);
	expect(&ends[0], 0, IBV_WC_SUCCESS); /* One packet. */
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 5000, &to), 0);
	expect(&ends[0], 1, IBV_WC_REM_INV_REQ_ERR);
	pair_close(ends);
}
END_TEST

START_TEST(a_completion_queue_that_overruns_breaks)
{
	struct end ends[2];
	struct address to;
	struct ibv_async_event event;

	pair_open(ends, (struct end_options) { .cq_entries = 4 });
	to = end_address(&ends[1]);
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(end_send(&ends[0], i, IBV_WR_RDMA_WRITE, 0, 10, &to), 0);
	event = end_event(&ends[0]);
	ck_assert_int_eq(event.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(event.element.cq, ends[0].cq);
	event = end_event(&ends[0]);
	ck_assert_int_eq(event.event_type, IBV_EVENT_QP_FATAL);
	ck_assert_ptr_eq(event.element.qp, ends[0].qp);
	ck_assert_int_eq(end_state(&ends[0]), IBV_QPS_ERR);
	ck_assert_uint_eq(counted().cq_overruns, 1);
	pair_close(ends);
}
END_TEST

START_TEST(err_flushes_and_reset_forgets)
{
	struct ibv_qp_attr to = { .qp_state = _i ? IBV_QPS_RESET : IBV_QPS_ERR };
	struct ibv_qp_attr rts = end_rts_attr();
	struct end ends[2];
	struct address peer;

	rts.timeout = 0; /* However late this thread is, the send does not give up before. */
	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { 0 });
	peer = end_address(&ends[1]);
	end_connect_as(&ends[0], &peer, rts);
	end_receive(&ends[0], 8, 0, 10);
	end_receive(&ends[0], 9, 0, 10);
	mock_silence(ends[0].qp->qp_num, true);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 100, NULL), 0);
	ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &to, IBV_QP_STATE), 0);
	if (_i == 0) {
		expect(&ends[0], 1, IBV_WC_WR_FLUSH_ERR);
		expect(&ends[0], 8, IBV_WC_WR_FLUSH_ERR);
		expect(&ends[0], 9, IBV_WC_WR_FLUSH_ERR);
		ck_assert_int_eq(end_send(&ends[0], 2, IBV_WR_SEND, 0, 100, NULL), 0);
		end_receive(&ends[0], 3, 0, 10);
		expect(&ends[0], 2, IBV_WC_WR_FLUSH_ERR);
		expect(&ends[0], 3, IBV_WC_WR_FLUSH_ERR);
		ck_assert_uint_eq(counted().flushed, 5);
	}
	ck_assert(end_silent(&ends[0], 5));
	pair_close(ends);
}
END_TEST

START_TEST(every_status_is_injected_at_sends)
{
	enum ibv_wc_status status = (enum ibv_wc_status)(1 + _i / 2);
	bool delivered = _i % 2 != 0;
	struct end ends[2];
	int fault;

	pair_open(ends, (struct end_options) { 0 });
	fault = mock_fail_send(2, status, delivered);
	for (uint32_t i = 1; i <= 3; i++) {
		end_receive(&ends[1], 10 + i, 0, 10);
		ck_assert_int_eq(end_send(&ends[0], i, IBV_WR_SEND, 0, 10, NULL), 0);
	}
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	expect(&ends[0], 2, status);
	expect(&ends[0], 3, IBV_WC_WR_FLUSH_ERR);
	expect(&ends[1], 11, IBV_WC_SUCCESS);
	if (delivered)
		expect(&ends[1], 12, IBV_WC_SUCCESS);
	ck_assert(end_silent(&ends[1], 5));
	ck_assert_uint_eq(mock_fired(fault), 1);
	ck_assert_uint_eq(counted().faults_fired, 1);
	pair_close(ends);
}
END_TEST

START_TEST(every_status_is_injected_at_receives)
{
	enum ibv_wc_status status = (enum ibv_wc_status)_i;
	struct end ends[2];
	int fault;

	pair_open(ends, (struct end_options) { 0 });
	fault = mock_fail_receive(2, status);
	for (uint32_t i = 1; i <= 3; i++) {
		end_receive(&ends[1], 10 + i, 0, 10);
		ck_assert_int_eq(end_send(&ends[0], i, IBV_WR_SEND, 0, 10, NULL), 0);
	}
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	expect(&ends[0], 2,
	       status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
	expect(&ends[0], 3, IBV_WC_WR_FLUSH_ERR);
	expect(&ends[1], 11, IBV_WC_SUCCESS);
	expect(&ends[1], 12, status);
	expect(&ends[1], 13, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(mock_fired(fault), 1);
	pair_close(ends);
}
END_TEST

static const enum ibv_event_type qp_events[] = {
	IBV_EVENT_QP_FATAL,
	IBV_EVENT_QP_REQ_ERR,
	IBV_EVENT_QP_ACCESS_ERR,
	IBV_EVENT_SQ_DRAINED,
	IBV_EVENT_PATH_MIG,
	IBV_EVENT_PATH_MIG_ERR,
	IBV_EVENT_QP_LAST_WQE_REACHED,
};

START_TEST(events_of_queue_pairs_are_told)
{
	struct ibv_async_event event;
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	ck_assert_int_eq(mock_qp_event(0xfffff, qp_events[_i]), ENOENT);
	ck_assert_int_eq(mock_qp_event(ends[1].qp->qp_num, qp_events[_i]), 0);
	event = end_event(&ends[1]);
	ck_assert_int_eq(event.event_type, qp_events[_i]);
	ck_assert_ptr_eq(event.element.qp, ends[1].qp);
	ck_assert_int_eq(end_state(&ends[1]), _i < 3 ? IBV_QPS_ERR : IBV_QPS_RTS);
	ck_assert(end_no_event(&ends[0]));
	pair_close(ends);
}
END_TEST

START_TEST(tables_that_change_are_told)
{
	struct end ends[2];
	struct ibv_gid_entry entry;

	pair_open(ends, (struct end_options) { 0 });
	mock_gid(0, 0, 1, 3, NULL);
	ck_assert_int_eq(end_event(&ends[0]).event_type, IBV_EVENT_GID_CHANGE);
	ck_assert_int_eq(ibv_query_gid_ex(ends[0].context, 1, 3, &entry, 0), ENODATA);
	mock_device_event(0, 0, 1, IBV_EVENT_LID_CHANGE);
	ck_assert_int_eq(end_event(&ends[0]).event_type, IBV_EVENT_LID_CHANGE);
	send_two(&ends[0], IBV_WR_SEND, NULL); /* Its path leads nowhere now. */
	expect_failure(&ends[0], IBV_WC_RETRY_EXC_ERR);
	pair_close(ends);
}
END_TEST

START_TEST(a_dead_device_does_nothing_more)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	end_receive(&ends[0], 5, 0, 10);
	mock_device_event(0, 0, 1, IBV_EVENT_DEVICE_FATAL);
	expect(&ends[0], 5, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(end_event(&ends[0]).event_type, IBV_EVENT_DEVICE_FATAL);
	ck_assert_ptr_null(ibv_reg_mr(ends[0].pd, ends[0].memory, 4096, 0));
	ck_assert_int_eq(errno, EIO);
	init.send_cq = init.recv_cq = ends[0].cq;
	ck_assert_ptr_null(ibv_create_qp(ends[0].pd, &init));
	ck_assert_int_eq(errno, EIO);
	ck_assert_ptr_null(ibv_create_cq(ends[0].context, 1, NULL, NULL, 0));
	ck_assert_int_eq(errno, EIO);
	pair_close(ends);
}
END_TEST

START_TEST(a_completion_queue_that_breaks_is_told)
{
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	ck_assert_int_eq(mock_cq_error(ends[0].qp->qp_num), 0);
	ck_assert_int_eq(end_event(&ends[0]).event_type, IBV_EVENT_CQ_ERR);
	ck_assert_int_eq(end_event(&ends[0]).event_type, IBV_EVENT_QP_FATAL);
	pair_close(ends);
}
END_TEST

START_TEST(an_event_that_is_not_acknowledged_ends_the_program)
{
	struct ibv_async_event event;
	struct end ends[2];

	pair_open(ends, (struct end_options) { 0 });
	mock_set("acknowledge_ms", 20);
	ck_assert_int_eq(mock_qp_event(ends[0].qp->qp_num, IBV_EVENT_PATH_MIG), 0);
	ck_assert_int_eq(ibv_get_async_event(ends[0].context, &event), 0);
	(void)ibv_destroy_qp(ends[0].qp);
}
END_TEST

#define LOOP(tc, test, count) tcase_add_loop_test(tc, test, 0, count)

int main(void)
{
	TCase *tc = tcase_create("verbs-mock-errors");

	tcase_set_timeout(tc, 60);
	LOOP(tc, a_wrong_remote_key_ends_both, 3);
	LOOP(tc, a_wrong_local_key_ends_the_sender, 2);
	LOOP(tc, a_message_longer_than_its_receive_ends_both, 2);
	tcase_add_test(tc, a_receive_with_a_wrong_key_ends_both);
	LOOP(tc, no_receive_is_counted_and_fails, 2);
	tcase_add_test(tc, a_receive_that_comes_late_is_waited_for);
	LOOP(tc, who_is_not_reached_is_given_up, WAYS);
	tcase_add_test(tc, a_link_that_comes_back_in_time_costs_nothing);
	tcase_add_test(tc, soft_roce_flushes_when_its_link_is_down);
	tcase_add_test(tc, an_answer_that_is_lost_leaves_doubt);
	tcase_add_test(tc, some_loss_is_retried);
	tcase_add_test(tc, path_mtus_that_differ_are_found_out);
	tcase_add_test(tc, a_completion_queue_that_overruns_breaks);
	LOOP(tc, err_flushes_and_reset_forgets, 2);
	LOOP(tc, every_status_is_injected_at_sends, 2 * IBV_WC_TM_RNDV_INCOMPLETE);
	tcase_add_loop_test(tc, every_status_is_injected_at_receives, 1,
			    IBV_WC_TM_RNDV_INCOMPLETE + 1);
	LOOP(tc, events_of_queue_pairs_are_told, sizeof(qp_events) / sizeof(qp_events[0]));
	tcase_add_test(tc, tables_that_change_are_told);
	tcase_add_test(tc, a_dead_device_does_nothing_more);
	tcase_add_test(tc, a_completion_queue_that_breaks_is_told);
	tcase_add_test_raise_signal(tc, an_event_that_is_not_acknowledged_ends_the_program,
				    SIGABRT);
	return check_main("verbs-mock-errors", tc);
}
