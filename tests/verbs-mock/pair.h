/*
 * pair.h -- two queue pairs of a test, each with a device, a region and queues of its own.
 */
#ifndef RB_VERBS_MOCK_PAIR_H
#define RB_VERBS_MOCK_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define END_BYTES (1u << 20)

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* Where end_open() was asked for one. */
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory; /* END_BYTES. */
};

struct address { /* What one end tells the other. */
	uint64_t memory;
	uint32_t qpn, rkey;
	union ibv_gid gid;
};

struct end_options {
	uint32_t device, sends, receives, cq_entries, access; /* 0: a usual one. */
	bool srq, signal_all, ud;
};

/* All fail the test, with what failed in words. */
void end_open(struct end *end, struct end_options options);
struct address end_address(const struct end *end);
struct ibv_qp_attr end_init_attr(void);
struct ibv_qp_attr end_rtr_attr(const struct address *peer);
struct ibv_qp_attr end_rts_attr(void);
#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)
void end_connect(struct end *end, const struct address *peer);
/* With other attributes than end_rts_attr()'s; a timeout of 0 never gives up. */
void end_connect_as(struct end *end, const struct address *peer, struct ibv_qp_attr rts);
void end_close(struct end *end);

void pair_open(struct end ends[2], struct end_options options);
void pair_close(struct end ends[2]);

/* A receive of BYTES at OFFSET of an end's memory. */
void end_receive(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t bytes);
/* A signalled send of BYTES at OFFSET; rdma opcodes go to REMOTE + OFFSET. The errno, or 0. */
int end_send(struct end *end, uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t offset,
	     uint32_t bytes, const struct address *remote);
/* The next asynchronous event, acknowledged, within some seconds. */
struct ibv_async_event end_event(struct end *end);
/* Whether no event is there. */
bool end_no_event(const struct end *end);
enum ibv_qp_state end_state(struct end *end);
/* The next completion, within some seconds. */
struct ibv_wc end_wait(struct end *end);
/* Whether there is none for some milliseconds. */
bool end_silent(struct end *end, int ms);

#endif
