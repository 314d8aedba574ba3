/* ranks.h -- two connected ranks on shared memory: case_shm.c has them, case_stack.c too. */
#ifndef RB_TESTS_RANKS_H
#define RB_TESTS_RANKS_H

#include "transport/shm/shm.h"

#define MESSAGES_MAX (RB_SHM_BULKS + 3)
#define BYTES_MAX (RB_SHM_BULK_BYTES + 128)

struct side {
	struct rb_endpoint *ep;
	uint8_t address[RB_ADDRESS_BYTES_MAX];
	size_t address_bytes;
	struct rb_request sends[MESSAGES_MAX], recvs[MESSAGES_MAX];
	uint8_t out[MESSAGES_MAX][BYTES_MAX], in[MESSAGES_MAX][BYTES_MAX];
	struct ranks *ranks;
};

struct ranks {
	struct side sides[2];
	uint8_t said[2][MESSAGES_MAX][BYTES_MAX]; /* What each rank's messages hold. */
};

void *ranks_open(void);
void ranks_close(void *world);
/* Empty rings, the next cell at `position`. */
void ranks_reset(struct ranks *w, uint32_t position);
void ranks_end(void *world);
/* Races are looked for in rings and bulk buffers. */
void ranks_share(struct ranks *w);

#endif
