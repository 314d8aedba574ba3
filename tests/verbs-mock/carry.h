/*
 * carry.h -- between what carries work requests out (carry.c), what they do to their target
 * (deliver.c), and whether they get there (path.c).
 */
#ifndef RB_VERBS_MOCK_CARRY_H
#define RB_VERBS_MOCK_CARRY_H

#include "tests/verbs-mock/process.h"

enum outcome {
	DELIVERED,
	WAITS,     /* For its next piece, or its next try. */
	NOT_READY, /* The target has no receive posted. */
	FAILED,
};

/* The queue pair at the other end, if a packet gets there, and an answer back; else NULL. */
struct world_qp *peer_reached(struct world *world, const struct mock_qp *own,
			      const struct send *send);
/* Whether the answer to a send that was delivered gets back. */
bool answer_arrives(struct world *world, const struct mock_qp *own, const struct send *send);
enum outcome deliver(struct world *world, struct mock_qp *own, struct send *send,
		     struct world_qp *peer, size_t *budget, enum ibv_wc_status *status);
enum outcome datagram(struct world *world, struct mock_qp *own, struct send *send,
		      enum ibv_wc_status *status);
void receive_end(struct world *world, struct world_qp *qp, uint64_t wr_id, struct ibv_wc wc,
		 bool solicited);

/* The source of a send, as its keys allow it now. */
bool gather_allowed(struct world *world, const struct mock_qp *own, const struct send *send,
		    uint32_t access);
/* BYTES of it from OFFSET on, to where a region's addresses AT begin; or back, for reads. */
bool gather_write(struct world *world, const struct send *send, uint32_t offset, uint32_t mr,
		  uint64_t at, size_t bytes);

#endif
