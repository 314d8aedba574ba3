/*
 * test_calls.c -- each call that the mock counts can be made to fail, and does nothing then: what
 * it was to make, change or take away is as it was.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

/* A call's errno, by how it tells it; 0: it succeeded. */
#define POINTER(call) (errno = 0, (call) == NULL ? errno : 0)
#define MINUS_ONE(call) (errno = 0, (call) != 0 ? errno : 0)

static struct ibv_device *device_of(struct end *end)
{
	return end->context->device;
}

static struct ibv_qp_init_attr qp_init(struct end *end)
{
	return (struct ibv_qp_init_attr) {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
	};
}

static int query(const char *name, struct end *end)
{
	struct ibv_gid_entry entry;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr qp;
	union ibv_gid gid;
	__be16 pkey;

	if (strcmp(name, "ibv_query_device") == 0)
		return ibv_query_device(end->context, &attr);
	if (strcmp(name, "ibv_query_port") == 0)
		return ibv_query_port(end->context, 1, &port);
	if (strcmp(name, "ibv_query_gid") == 0)
		return MINUS_ONE(ibv_query_gid(end->context, 1, 0, &gid));
	if (strcmp(name, "ibv_query_gid_ex") == 0)
		return ibv_query_gid_ex(end->context, 1, 0, &entry, 0);
	if (strcmp(name, "ibv_query_gid_table") == 0)
		return -(int)ibv_query_gid_table(end->context, &entry, 1, 0);
	if (strcmp(name, "ibv_query_pkey") == 0)
		return MINUS_ONE(ibv_query_pkey(end->context, 1, 0, &pkey));
	if (strcmp(name, "ibv_query_qp") == 0)
		return ibv_query_qp(end->qp, &qp, IBV_QP_STATE, &init);
	return -1;
}

static int make(const char *name, struct end *end)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1 };
	struct ibv_qp_init_attr init = qp_init(end);

	if (strcmp(name, "ibv_get_device_list") == 0)
		return POINTER(ibv_get_device_list(NULL));
	if (strcmp(name, "ibv_open_device") == 0)
		return POINTER(ibv_open_device(device_of(end)));
	if (strcmp(name, "ibv_alloc_pd") == 0)
		return POINTER(ibv_alloc_pd(end->context));
	if (strcmp(name, "ibv_reg_mr") == 0)
		return POINTER(ibv_reg_mr(end->pd, end->memory, 10, 0));
	if (strcmp(name, "ibv_reg_dmabuf_mr") == 0)
		return POINTER(ibv_reg_dmabuf_mr(end->pd, 0, 10, 0, STDIN_FILENO, 0));
	if (strcmp(name, "ibv_create_comp_channel") == 0)
		return POINTER(ibv_create_comp_channel(end->context));
	if (strcmp(name, "ibv_create_cq") == 0)
		return POINTER(ibv_create_cq(end->context, 1, NULL, NULL, 0));
	if (strcmp(name, "ibv_create_srq") == 0)
		return POINTER(ibv_create_srq(end->pd, &srq));
	if (strcmp(name, "ibv_create_qp") == 0)
		return POINTER(ibv_create_qp(end->pd, &init));
	if (strcmp(name, "ibv_create_ah") == 0)
		return POINTER(ibv_create_ah(end->pd, &path));
	return -1;
}

static int unmake(const char *name, struct end *end, struct ibv_ah *ah)
{
	if (strcmp(name, "ibv_dereg_mr") == 0)
		return ibv_dereg_mr(end->mr);
	if (strcmp(name, "ibv_close_device") == 0)
		return MINUS_ONE(ibv_close_device(end->context));
	if (strcmp(name, "ibv_dealloc_pd") == 0)
		return ibv_dealloc_pd(end->pd);
	if (strcmp(name, "ibv_destroy_comp_channel") == 0)
		return ibv_destroy_comp_channel(end->channel);
	if (strcmp(name, "ibv_destroy_cq") == 0)
		return ibv_destroy_cq(end->cq);
	if (strcmp(name, "ibv_destroy_srq") == 0)
		return ibv_destroy_srq(end->srq);
	if (strcmp(name, "ibv_destroy_qp") == 0)
		return ibv_destroy_qp(end->qp);
	if (strcmp(name, "ibv_destroy_ah") == 0)
		return ibv_destroy_ah(ah);
	return -1;
}

static int use(const char *name, struct end *end)
{
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr receive = { 0 }, *bad;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	if (strcmp(name, "ibv_resize_cq") == 0)
		return ibv_resize_cq(end->cq, 100);
	if (strcmp(name, "ibv_modify_srq") == 0)
		return ibv_modify_srq(end->srq, &limit, IBV_SRQ_LIMIT);
	if (strcmp(name, "ibv_modify_qp") == 0)
		return ibv_modify_qp(end->qp, &error, IBV_QP_STATE);
	if (strcmp(name, "ibv_get_cq_event") == 0)
		return MINUS_ONE(ibv_get_cq_event(end->channel, &cq, &context));
	if (strcmp(name, "ibv_get_async_event") == 0)
		return MINUS_ONE(ibv_get_async_event(end->context, &event));
	if (strcmp(name, "ibv_req_notify_cq") == 0)
		return ibv_req_notify_cq(end->cq, 0);
	if (strcmp(name, "ibv_poll_cq") == 0)
		return -ibv_poll_cq(end->cq, 1, &wc);
	if (strcmp(name, "ibv_post_send") == 0)
		return end_send(end, 1, IBV_WR_SEND, 0, 1, NULL);
	if (strcmp(name, "ibv_post_recv") == 0)
		return ibv_post_recv(end->qp, &receive, &bad);
	if (strcmp(name, "ibv_post_srq_recv") == 0)
		return ibv_post_srq_recv(end->srq, &receive, &bad);
	return -1;
}

static int call(const char *name, struct end *end, struct ibv_ah *ah)
{
	int error = query(name, end);

	if (error == -1)
		error = make(name, end);
	if (error == -1)
		error = unmake(name, end, ah);
	return error == -1 ? use(name, end) : error;
}

START_TEST(every_call_fails_when_it_is_told_to)
{
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1 };
	uint32_t tried = 0;

	for (const char *name; (name = mock_call_name(tried)) != NULL; tried++) {
		struct end ends[2];
		struct ibv_ah *ah;
		uint64_t before;
		int fault;

		if (strncmp(name, "rdma_", 5) == 0)
			continue; /* Of librdmacm, which may not be there: verbs-rdmacm's. */
		pair_open(ends, (struct end_options) { .srq = true });
		ah = ibv_create_ah(ends[0].pd, &path);
		before = mock_call_count(name);
		fault = mock_fail_call(name, 1, 1, EUCLEAN);
		ck_assert_msg(call(name, &ends[0], ah) == EUCLEAN, "%s did not fail", name);
		ck_assert_uint_eq(mock_fired(fault), 1);
		ck_assert_uint_eq(mock_call_count(name), before + 1);
		ck_assert_int_eq(end_state(&ends[0]), IBV_QPS_RTS);
		ck_assert_int_eq(ibv_destroy_ah(ah), 0);
		pair_close(ends);
		ck_assert_int_eq(mock_reset(NULL), 0);
	}
	ck_assert_uint_gt(tried, 30);
}
END_TEST

START_TEST(calls_fail_from_the_nth_on_as_often_as_said)
{
	struct end end;
	int fault;

	end_open(&end, (struct end_options) { 0 });
	fault = mock_fail_call("ibv_reg_mr", 3, 2, ENOMEM);
	for (int i = 1; i <= 6; i++) {
		struct ibv_mr *mr = ibv_reg_mr(end.pd, end.memory, 10, 0);

		ck_assert((mr == NULL) == (i == 3 || i == 4));
		if (mr != NULL)
			ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	}
	ck_assert_uint_eq(mock_fired(fault), 2);
	end_close(&end);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verbs-mock-calls");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_call_fails_when_it_is_told_to);
	tcase_add_test(tc, calls_fail_from_the_nth_on_as_often_as_said);
	return check_main("verbs-mock-calls", tc);
}
