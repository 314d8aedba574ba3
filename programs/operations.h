/*
 * operations.h -- the operations that rubato-bench and rubato-sim measure, by name, and a blocking
 * call of each; and the words for what partial ones may be. What a size means for each is as
 * nccl-tests has it.
 *
 * In the v-variants what rank a sends rank b is so many halves of the even share as (a + b) mod 5
 * says; in allgatherv and reduce_scatterv, a is 0. So some are empty, some are twice as long, and
 * what two ranks exchange is equal, as it must be in place. Blocks are packed.
 */
#ifndef PROGRAMS_OPERATIONS_H
#define PROGRAMS_OPERATIONS_H

#include <stdbool.h>

#include "rubato.h"

enum operation {
	OP_ALLREDUCE,
	OP_REDUCE_SCATTER,
	OP_ALLGATHER,
	OP_BROADCAST,
	OP_REDUCE,
	OP_ALLTOALL,
	OP_GATHER,
	OP_SCATTER,
	OP_ALLGATHERV,
	OP_REDUCE_SCATTERV,
	OP_ALLTOALLV,
	OP_BARRIER,
	OP_SENDRECV,
};
#define OPERATION_COUNT 13
extern const char *const operation_names[]; /* NULL-terminated, by enum operation. */

bool operation_reduces(enum operation op);
bool operation_rooted(enum operation op);
bool operation_in_place(enum operation op);  /* Whether there are two ways to call it. */
bool operation_scattered(enum operation op); /* Whether a rank's data is a share of the whole. */
bool operation_uneven(enum operation op);    /* Whether blocks differ: the v-variants. */

/* Elements of a rank's input and output, for a call that takes `count`: the even share, where
 * blocks differ. */
uint64_t operation_in(enum operation op, uint64_t count, uint32_t rank, uint32_t rank_count);
uint64_t operation_out(enum operation op, uint64_t count, uint32_t rank, uint32_t rank_count);
/* Elements of scattered data before this rank's. */
uint64_t operation_start(enum operation op, uint64_t count, uint32_t rank);
/* Elements of all ranks' data, as nccl-tests counts them; alltoallv: of a rank's, in the mean. */
uint64_t operation_whole(enum operation op, uint64_t count, uint32_t rank_count);
/* nccl-tests' doc/PERFORMANCE.md: what a link carries for each byte of the result. */
double operation_bus_factor(enum operation op, uint32_t rank_count);

struct operation_call {
	enum operation op;
	void *in, *out; /* Broadcast has one, `out`. */
	uint64_t count;
	const uint64_t *counts; /* Of the v-variants: uneven_fill(). */
	rubato_type type;
	rubato_operator reduction;
	uint32_t root;
};
/* Sendrecv: to the next rank, from the one before. */
rubato_status operation_call(rubato_comm *comm, const struct operation_call *call);
/* Likewise, as a persistent operation; not sendrecv, which is two: ARGUMENT. */
rubato_status operation_make(rubato_comm *comm, const struct operation_call *call, rubato_op **op);

/* ---- Blocks of the v-variants ---- */

static inline uint64_t uneven_count(uint64_t share, uint32_t a, uint32_t b)
{
	static const uint8_t halves[5] = { 2, 1, 4, 0, 3 };
	uint64_t count = share / 2 * halves[(a + b) % 5];

	return share % 2 == 0 ? count : count + (halves[(a + b) % 5] + 1u) / 2;
}

/* Elements before block b of rank a. */
static inline uint64_t uneven_start(uint64_t share, uint32_t a, uint32_t b)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < b; i++)
		start += uneven_count(share, a, i);
	return start;
}

static inline void uneven_fill(uint64_t share, uint32_t a, uint32_t rank_count, uint64_t *counts)
{
	for (uint32_t i = 0; i < rank_count; i++)
		counts[i] = uneven_count(share, a, i);
}

/* Elements of all ranks' blocks, by the mean over ranks. */
static inline uint64_t uneven_mean(uint64_t share, uint32_t rank_count)
{
	uint64_t sum = 0;

	for (uint32_t a = 0; a < rank_count; a++)
		sum += uneven_start(share, a, rank_count);
	return sum / rank_count;
}

/* The words of rubato_partial_options, for value_choice(), each list in the order of its enum; the
 * policies' are rubato_policy_forms(). */
extern const char *const partial_rounds[], *const partial_lates[], *const partial_normalises[];
extern const char *const partial_members[];
extern const char *const partial_collections[]; /* Behind the colon: how many results are kept. */

#endif
