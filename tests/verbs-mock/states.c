/*
 * states.c -- the states of a queue pair: which moves there are, and what each must and may bring.
 *
 * The table is InfiniBand's (and that of Linux's ib_core): a mask that lacks a required attribute,
 * or has one that the move does not know, is EINVAL. To RESET and to ERR every state can go.
 */
#include <errno.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

struct state_move {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required, optional;
};

#define RTS_MAY                                                                                    \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |         \
	 IBV_QP_PATH_MIG_STATE)
#define UD_MAY (IBV_QP_CUR_STATE | IBV_QP_QKEY)

static const struct state_move moves[] = {
	{ IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  RTS_MAY },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_MAY },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_MAY },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	  RTS_MAY | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX },
	{ IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	  0 },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, UD_MAY },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, UD_MAY },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, UD_MAY },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, UD_MAY },
};

/* iWARP has no keys of partitions, and what connects moves a queue pair. */
static bool iwarp_move_allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int given = mask & ~IBV_QP_STATE;

	return to == IBV_QPS_RESET || to == IBV_QPS_ERR
		       ? given == 0
		       : from == IBV_QPS_RESET && to == IBV_QPS_INIT &&
				 given == IBV_QP_ACCESS_FLAGS;
}

static bool move_allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			 int mask)
{
	int given = mask & ~IBV_QP_STATE;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return given == 0;
	for (uint32_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		const struct state_move *move = &moves[i];

		if (move->type == type && move->from == from && move->to == to)
			return (given & move->required) == move->required &&
			       (given & ~(move->required | move->optional)) == 0;
	}
	return false;
}

static bool path_valid(const struct world *world, const struct world_qp *qp,
		       const struct ibv_ah_attr *path)
{
	static const union ibv_gid none;
	const struct world_port *port;

	if (path->port_num < 1 || path->port_num > world->config.ports)
		return false;
	if (!path->is_global) /* RoCE has no other address than a GID. */
		return world->config.infiniband != 0 && path->dlid != 0;
	port = &world->devices[qp->device].ports[path->port_num - 1];
	return path->grh.sgid_index < WORLD_GIDS &&
	       memcmp(&port->gids[path->grh.sgid_index], &none, sizeof(none)) != 0 &&
	       memcmp(&path->grh.dgid, &none, sizeof(none)) != 0;
}

static bool values_valid(const struct world *world, const struct world_qp *qp,
			 const struct ibv_qp_attr *attr, int mask)
{
	const struct mock_config *c = &world->config;

	return !((mask & IBV_QP_PORT) != 0 && (attr->port_num < 1 || attr->port_num > c->ports)) &&
	       !((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0) &&
	       !((mask & IBV_QP_AV) != 0 && !path_valid(world, qp, &attr->ah_attr)) &&
	       !((mask & IBV_QP_PATH_MTU) != 0 &&
		 (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)) &&
	       !((mask & IBV_QP_TIMEOUT) != 0 && attr->timeout > 31) &&
	       !((mask & IBV_QP_RETRY_CNT) != 0 && attr->retry_cnt > 7) &&
	       !((mask & IBV_QP_RNR_RETRY) != 0 && attr->rnr_retry > 7) &&
	       !((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr->min_rnr_timer > 31) &&
	       !((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr->max_rd_atomic > c->max_rd_atomic) &&
	       !((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 &&
		 attr->max_dest_rd_atomic > c->max_rd_atomic);
}

#define TAKE(bit, field)                                                                           \
	do {                                                                                       \
		if ((mask & (bit)) != 0)                                                           \
			qp->attr.field = attr->field;                                              \
	} while (0)

static void values_take(struct world_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	if ((mask & IBV_QP_SQ_PSN) != 0)
		qp->psn_sent = attr->sq_psn & 0xffffff;
	if ((mask & IBV_QP_RQ_PSN) != 0)
		qp->psn_expected = attr->rq_psn & 0xffffff;
}

/* As if it had just been made: what was posted is gone, without completions. */
static void qp_reset(struct world *world, struct world_qp *qp, struct mock_qp *own)
{
	late_land(world, own->index);
	qp->state = IBV_QPS_RESET;
	qp->flush = qp->heard = qp->waits_first = false;
	qp->attr = (struct ibv_qp_attr) { 0 };
	qp->rq.head = qp->rq.tail = 0;
	own->freed = own->acked = own->sent = own->posted = 0;
	own->rnr_until = own->attempts = 0;
	qp->generation += 1u << 16; /* Completions of before free nothing of now. */
	engine_deactivate(own);
}

MOCK_API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = call_fails(CALL_ibv_modify_qp);
	struct mock_qp *own = (struct mock_qp *)qp;
	struct world *world = world_now();
	struct world_qp *at = &world->qps[own->index];
	enum ibv_qp_state to;

	if (error != 0)
		return error;
	world_lock(world);
	to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : at->state;
	if (((mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != at->state) ||
	    !(world->config.iwarp != 0 ? iwarp_move_allowed(at->state, to, mask)
				       : move_allowed(at->type, at->state, to, mask)) ||
	    !values_valid(world, at, attr, mask))
		error = EINVAL;
	if (error == 0 && world->devices[at->device].dead && to != IBV_QPS_ERR)
		error = EIO;
	if (error == 0) {
		values_take(at, attr, mask);
		if (to == IBV_QPS_RESET)
			qp_reset(world, at, own);
		else if (to == IBV_QPS_ERR)
			qp_fail(world, own->index);
		else
			at->state = to;
		if (to == IBV_QPS_RTS)
			engine_activate(world, own);
		qp->state = to;
	}
	world_unlock(world);
	return error;
}
