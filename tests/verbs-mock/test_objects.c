/*
 * test_objects.c -- what there is on the mock: devices and their tables, states of queue pairs,
 * limits, symbols with their versions.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

START_TEST(devices_have_ports_and_tables)
{
	struct ibv_device **list;
	struct ibv_gid_entry table[32];
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex all;
	struct ibv_context *context;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;
	int count;

	mock_set("devices", 3);
	mock_set("ports", 2);
	list = ibv_get_device_list(&count);
	ck_assert_int_eq(count, 3);
	ck_assert_ptr_null(list[3]);
	ck_assert_str_eq(ibv_get_device_name(list[2]), "mock2");
	ck_assert_uint_ne(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
	context = ibv_open_device(list[2]);
	ibv_free_device_list(list);
	ck_assert_int_eq(ibv_query_device(context, &attr), 0);
	ck_assert_int_eq(attr.phys_port_cnt, 2);
	ck_assert_int_eq(ibv_query_device_ex(context, NULL, &all), 0);
	ck_assert_int_eq(all.orig_attr.max_sge, attr.max_sge);
	ck_assert_int_eq(ibv_query_port(context, 3, &port), EINVAL);
	ck_assert_int_eq(ibv_query_port(context, 2, &port), 0);
	ck_assert(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	ck_assert(port.lid == 0 && port.active_mtu == IBV_MTU_4096 && port.gid_tbl_len == 8);
	ck_assert_int_eq(ibv_query_gid_table(context, table, 32, 0), 8);
	for (uint32_t i = 0; i < 8; i++) {
		struct ibv_gid_entry entry;

		ck_assert_uint_eq(table[i].port_num, 1 + i / 4);
		ck_assert_uint_eq(table[i].gid_type,
				  i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
		ck_assert_uint_eq(table[i].gid.raw[0], i % 4 < 2 ? 0xfe : 0);
		ck_assert_int_eq(ibv_query_gid_ex(context, 1 + i / 4, i % 4, &entry, 0), 0);
		ck_assert_mem_eq(&entry, &table[i], sizeof(entry));
		ck_assert_int_eq(ibv_query_gid(context, (uint8_t)(1 + i / 4), (int)i % 4, &gid), 0);
		ck_assert_mem_eq(&gid, &entry.gid, sizeof(gid));
	}
	ck_assert_int_eq(ibv_query_gid_ex(context, 1, 4, &table[0], 0), ENODATA);
	ck_assert_int_eq(ibv_query_gid(context, 1, 8, &gid), -1);
	ck_assert_int_eq(ibv_query_pkey(context, 1, 0, &pkey), 0);
	ck_assert_uint_eq(pkey, htons(0xffff));
	ck_assert_int_eq(ibv_close_device(context), 0);
}
END_TEST

START_TEST(infiniband_goes_by_lid)
{
	struct mock_config config;
	struct ibv_qp_attr init = end_init_attr(), rts = end_rts_attr();
	struct ibv_port_attr port;
	struct end ends[2];

	mock_config_default(&config);
	config.infiniband = 1;
	ck_assert_int_eq(mock_reset(&config), 0);
	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { .device = 1 });
	for (int i = 0; i < 2; i++) {
		struct address to = end_address(&ends[!i]);
		struct ibv_qp_attr rtr = end_rtr_attr(&to);

		ck_assert_int_eq(ibv_query_port(ends[!i].context, 1, &port), 0);
		ck_assert_int_eq(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
		rtr.ah_attr = (struct ibv_ah_attr) { .dlid = port.lid, .port_num = 1 };
		ck_assert_int_eq(ibv_modify_qp(ends[i].qp, &init, INIT_MASK), 0);
		ck_assert_int_eq(ibv_modify_qp(ends[i].qp, &rtr, RTR_MASK), 0);
		ck_assert_int_eq(ibv_modify_qp(ends[i].qp, &rts, RTS_MASK), 0);
	}
	end_receive(&ends[1], 1, 0, 10);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_SUCCESS);
	mock_device_event(0, 1, 1, IBV_EVENT_LID_CHANGE);
	end_receive(&ends[1], 1, 0, 10);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
	pair_close(ends);
}
END_TEST

START_TEST(fabrics_do_not_meet)
{
	struct mock_config config;
	struct end ends[2];
	struct address to;

	mock_config_default(&config);
	config.fabrics = 1;
	ck_assert_int_eq(mock_reset(&config), 0);
	end_open(&ends[0], (struct end_options) { 0 });
	end_open(&ends[1], (struct end_options) { .device = 1 });
	to = end_address(&ends[1]);
	end_connect(&ends[0], &to);
	to = end_address(&ends[0]);
	end_connect(&ends[1], &to);
	ck_assert_int_eq(end_send(&ends[0], 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
	pair_close(ends);
}
END_TEST

/* Brings a queue pair to a state, from wherever it is. */
static void go(struct end *end, enum ibv_qp_state state)
{
	struct address to = end_address(end);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	attr = end_init_attr();
	if (state >= IBV_QPS_INIT)
		ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, INIT_MASK), 0);
	attr = end_rtr_attr(&to);
	if (state >= IBV_QPS_RTR)
		ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, RTR_MASK), 0);
	attr = end_rts_attr();
	if (state >= IBV_QPS_RTS)
		ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, RTS_MASK), 0);
	attr.qp_state = state;
	if (state > IBV_QPS_RTS)
		ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	ck_assert_int_eq(end_state(end), state);
}

static int step_mask(enum ibv_qp_state to)
{
	return to == IBV_QPS_INIT  ? INIT_MASK
	       : to == IBV_QPS_RTR ? RTR_MASK
	       : to == IBV_QPS_RTS ? RTS_MASK
				   : IBV_QP_STATE;
}

static struct ibv_qp_attr step_attr(struct end *end, enum ibv_qp_state to)
{
	struct address own = end_address(end);
	struct ibv_qp_attr attr = { .qp_state = to };

	return to == IBV_QPS_INIT  ? end_init_attr()
	       : to == IBV_QPS_RTR ? end_rtr_attr(&own)
	       : to == IBV_QPS_RTS ? end_rts_attr()
				   : attr;
}

START_TEST(states_follow_each_other)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						    IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR };
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	for (uint32_t i = 0; i < 36; i++) {
		enum ibv_qp_state from = states[i / 6], to = states[i % 6];
		struct ibv_qp_attr attr = step_attr(&end, to);
		bool allowed = to == IBV_QPS_RESET || to == IBV_QPS_ERR || i % 6 == i / 6 + 1 ||
			       (from == IBV_QPS_INIT && to == IBV_QPS_INIT) ||
			       (from == IBV_QPS_SQD && to == IBV_QPS_SQD);

		go(&end, from);
		ck_assert_msg(ibv_modify_qp(end.qp, &attr, step_mask(to)) == (allowed ? 0 : EINVAL),
			      "from state %d to %d", from, to);
		ck_assert_int_eq(end_state(&end), allowed ? to : from);
	}
	end_close(&end);
}
END_TEST

/* Each attribute that a move asks for, left out; each that it does not know, added. */
START_TEST(moves_ask_for_their_attributes)
{
	static const int foreign[] = { IBV_QP_QKEY | IBV_QP_TIMEOUT, IBV_QP_QKEY | IBV_QP_SQ_PSN,
				       IBV_QP_QKEY | IBV_QP_DEST_QPN };
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		struct ibv_qp_attr attr = step_attr(&end, to);
		uint32_t tried = 0;

		go(&end, to - 1);
		for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
			int mask = step_mask(to);

			if (bit == IBV_QP_STATE)
				continue;
			if ((mask & bit) == 0 && (foreign[to - 1] & bit) == 0)
				continue;
			ck_assert_int_eq(ibv_modify_qp(end.qp, &attr, mask ^ bit), EINVAL);
			tried++;
		}
		ck_assert_uint_ge(tried, 5);
		ck_assert_int_eq(ibv_modify_qp(end.qp, &attr, step_mask(to)), 0);
	}
	end_close(&end);
}
END_TEST

START_TEST(values_that_cannot_be_are_refused)
{
	struct ibv_qp_attr init = end_init_attr(), rtr, rts;
	struct address to;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	to = end_address(&end);
	init.port_num = 2;
	ck_assert_int_eq(ibv_modify_qp(end.qp, &init, INIT_MASK), EINVAL);
	go(&end, IBV_QPS_INIT);
	for (int i = 0; i < 4; i++) {
		rtr = end_rtr_attr(&to);
		if (i == 0)
			rtr.ah_attr.grh.sgid_index = 5; /* Empty. */
		else if (i == 1)
			rtr.ah_attr.is_global = 0;
		else if (i == 2)
			rtr.path_mtu = 6;
		else
			rtr.max_dest_rd_atomic = 17;
		ck_assert_int_eq(ibv_modify_qp(end.qp, &rtr, RTR_MASK), EINVAL);
	}
	go(&end, IBV_QPS_RTR);
	rts = end_rts_attr();
	rts.rnr_retry = 8;
	ck_assert_int_eq(ibv_modify_qp(end.qp, &rts, RTS_MASK), EINVAL);
	end_close(&end);
}
END_TEST

/* A second one of each kind, where there is room for one only. */
START_TEST(limits_are_kept)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct end end;

	end_open(&end, (struct end_options) { .srq = true });
	init.send_cq = init.recv_cq = end.cq;
	mock_set("max_qp", 1);
	ck_assert(ibv_create_qp(end.pd, &init) == NULL && errno == ENOMEM);
	mock_set("max_cq", 1);
	ck_assert(ibv_create_cq(end.context, 1, NULL, NULL, 0) == NULL && errno == ENOMEM);
	mock_set("max_srq", 1);
	ck_assert(ibv_create_srq(end.pd, &srq) == NULL && errno == ENOMEM);
	mock_set("max_pd", 1);
	ck_assert(ibv_alloc_pd(end.context) == NULL && errno == ENOMEM);
	mock_set("max_mr", 1);
	ck_assert(ibv_reg_mr(end.pd, end.memory, 10, 0) == NULL && errno == ENOMEM);
	mock_set("max_mr", 9);
	mock_set("max_memlock", END_BYTES + 9);
	ck_assert(ibv_reg_mr(end.pd, end.memory, 10, 0) == NULL && errno == ENOMEM);
	mock_set("max_mr_size", 9);
	ck_assert(ibv_reg_mr(end.pd, end.memory, 10, 0) == NULL && errno == EINVAL);
	mock_set("max_cqe", 9);
	ck_assert(ibv_create_cq(end.context, 10, NULL, NULL, 0) == NULL && errno == EINVAL);
	mock_set("max_qp", 2);
	mock_set("max_qp_wr", 9);
	init.cap.max_send_wr = 10;
	ck_assert(ibv_create_qp(end.pd, &init) == NULL && errno == EINVAL);
	init.cap.max_send_wr = 9;
	init.cap.max_inline_data = 513;
	ck_assert(ibv_create_qp(end.pd, &init) == NULL && errno == EINVAL);
	ck_assert_int_eq(ibv_destroy_cq(end.cq), EBUSY);
	ck_assert_int_eq(ibv_destroy_srq(end.srq), EBUSY);
	ck_assert_int_eq(ibv_dealloc_pd(end.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_comp_channel(end.channel), EBUSY);
	end_close(&end);
}
END_TEST

struct symbol {
	const char *name, *version;
};

static const struct symbol symbols[] = {
	{ "ibv_create_comp_channel", "IBVERBS_1.0" },
	{ "ibv_destroy_comp_channel", "IBVERBS_1.0" },
	{ "ibv_get_device_list", "IBVERBS_1.1" },
	{ "ibv_open_device", "IBVERBS_1.1" },
	{ "ibv_reg_mr", "IBVERBS_1.1" },
	{ "ibv_create_qp", "IBVERBS_1.1" },
	{ "ibv_wc_status_str", "IBVERBS_1.1" },
	{ "ibv_get_pkey_index", "IBVERBS_1.5" },
	{ "ibv_qp_to_qp_ex", "IBVERBS_1.6" },
	{ "ibv_reg_mr_iova", "IBVERBS_1.7" },
	{ "ibv_reg_mr_iova2", "IBVERBS_1.8" },
	{ "ibv_get_device_index", "IBVERBS_1.9" },
	{ "ibv_query_ece", "IBVERBS_1.10" },
	{ "_ibv_query_gid_ex", "IBVERBS_1.11" },
	{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ "ibv_is_fork_initialized", "IBVERBS_1.13" },
};

/* By its SONAME the loader finds the one that this program is linked to. */
START_TEST(symbols_have_the_versions_of_the_real_one)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	ck_assert_ptr_nonnull(library);
	ck_assert_ptr_eq(dlsym(library, "mock_set"), dlsym(RTLD_DEFAULT, "mock_set"));
	ck_assert_ptr_nonnull(dlsym(library, "mock_set"));
	for (uint32_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		ck_assert_msg(dlvsym(library, symbols[i].name, symbols[i].version) != NULL &&
				      dlsym(library, symbols[i].name) ==
					      dlvsym(library, symbols[i].name, symbols[i].version),
			      "%s@@%s", symbols[i].name, symbols[i].version);
	ck_assert_int_eq(dlclose(library), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verbs-mock-objects");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, devices_have_ports_and_tables);
	tcase_add_test(tc, infiniband_goes_by_lid);
	tcase_add_test(tc, fabrics_do_not_meet);
	tcase_add_test(tc, states_follow_each_other);
	tcase_add_test(tc, moves_ask_for_their_attributes);
	tcase_add_test(tc, values_that_cannot_be_are_refused);
	tcase_add_test(tc, limits_are_kept);
	tcase_add_test(tc, symbols_have_the_versions_of_the_real_one);
	return check_main("verbs-mock-objects", tc);
}
