/*
 * rdmacm.h -- what the mock's librdmacm keeps: an identifier, as the application has it.
 *
 * What its two ends know of each other is in the world (struct world_cm), by the same index.
 */
#ifndef RB_VERBS_MOCK_RDMACM_H
#define RB_VERBS_MOCK_RDMACM_H

#include <rdma/rdma_cma.h>

#include "tests/verbs-mock/process.h"

struct mock_cm_channel {
	struct rdma_event_channel v;
	struct event_queue events;
	uint32_t ids;
};

struct mock_cm {
	struct rdma_cm_id v;
	struct ibv_context context; /* That v.verbs names: it is none of the application's. */
	uint32_t index;
	uint32_t taken, completed; /* Events. */
	bool known;                /* To the application: its request was taken, or it made it. */
	struct world_cm_error *error; /* That its try ends with, or NULL. */
};

struct mock_cm_event { /* In a channel. */
	struct event base;
	struct rdma_cm_event v;
	uint8_t data[WORLD_CM_DATA];
};

/* cm.c */
/* A slot of the world's, of this process; WORLD_NONE: there is none. */
uint32_t cm_make(struct world *world, uint32_t owner);
/* Tells the owner, soon. */
void cm_tell(struct world *world, uint32_t index, enum rdma_cm_event_type type, int status);
/* Its other end, or NULL: it has none any more. */
struct world_cm *cm_peer(struct world *world, const struct world_cm *cm);
/* It ends, and its other end is told: rejected, or disconnected. */
void cm_end(struct world *world, uint32_t index);
uint32_t cm_listener(const struct world *world, uint32_t device, uint32_t port, uint16_t number);

#endif
