/*
 * names.c -- texts and conversions.
 */
#include <errno.h>

#include "tests/verbs-mock/process.h"

#define OF(array, value)                                                                           \
	((unsigned int)(value) < sizeof(array) / sizeof((array)[0]) ? (array)[value] : "unknown")

MOCK_API const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const texts[] = {
		"success",
		"local length error",
		"local QP operation error",
		"local EE context operation error",
		"local protection error",
		"Work Request Flushed Error",
		"memory window bind error",
		"bad response error",
		"local access error",
		"remote invalid request error",
		"remote access error",
		"remote operation error",
		"transport retry counter exceeded",
		"RNR retry counter exceeded",
		"local RDD violation error",
		"remote invalid RD request",
		"remote aborted",
		"invalid EE context number",
		"invalid EE context state",
		"fatal error",
		"response timeout error",
		"general error",
		"TM error",
		"TM software rendezvous",
	};

	return OF(texts, status);
}

MOCK_API const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const texts[] = {
		"no state change (NOP)", "down", "init", "armed", "active", "active defer"
	};

	return OF(texts, state);
}

MOCK_API const char *ibv_node_type_str(enum ibv_node_type type)
{
	return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

MOCK_API const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const texts[] = {
		"CQ error",
		"local work queue catastrophic error",
		"invalid request local work queue error",
		"local access violation work queue error",
		"communication established",
		"send queue drained",
		"path migrated",
		"path migration request error",
		"local catastrophic error",
		"port active",
		"port error",
		"LID change",
		"P_Key change",
		"SM change",
		"SRQ catastrophic error",
		"SRQ limit reached",
		"last WQE reached",
		"client reregistration",
		"GID table change",
		"WQ fatal",
	};

	return OF(texts, event);
}

MOCK_API int ibv_fork_init(void)
{
	return 0;
}

MOCK_API enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

struct rate {
	enum ibv_rate rate;
	int mbps;
};

static const struct rate rates[] = {
	{ IBV_RATE_2_5_GBPS, 2500 },   { IBV_RATE_5_GBPS, 5000 },     { IBV_RATE_10_GBPS, 10000 },
	{ IBV_RATE_20_GBPS, 20000 },   { IBV_RATE_25_GBPS, 25781 },   { IBV_RATE_40_GBPS, 40000 },
	{ IBV_RATE_50_GBPS, 53125 },   { IBV_RATE_100_GBPS, 103125 }, { IBV_RATE_200_GBPS, 206250 },
	{ IBV_RATE_400_GBPS, 425000 },
};

MOCK_API int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (uint32_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

MOCK_API enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (uint32_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

MOCK_API int ibv_rate_to_mult(enum ibv_rate rate)
{
	int mbps = ibv_rate_to_mbps(rate);

	return mbps > 0 ? mbps / 2500 : -1;
}

MOCK_API enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (uint32_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].mbps / 2500 == mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

MOCK_API struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp; /* None is made with it: create_qp_ex is not there. */
	return NULL;
}

MOCK_API int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode,
					uint32_t flags)
{
	(void)qp, (void)opcode, (void)flags;
	return 0;
}

MOCK_API int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	*ece = (struct ibv_ece) { 0 };
	return EOPNOTSUPP;
}

MOCK_API int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}
