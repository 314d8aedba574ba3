/* operations.c -- see operations.h. */
#include "programs/operations.h"

const char *const operation_names[] = {
	"allreduce", "reduce_scatter", "allgather", "broadcast",  "reduce",
	"alltoall",  "gather",         "scatter",   "allgatherv", "reduce_scatterv",
	"alltoallv", "barrier",        "sendrecv",  NULL
};

bool operation_reduces(enum operation op)
{
	return op == OP_ALLREDUCE || op == OP_REDUCE_SCATTER || op == OP_REDUCE ||
	       op == OP_REDUCE_SCATTERV;
}

bool operation_rooted(enum operation op)
{
	return op == OP_BROADCAST || op == OP_REDUCE || op == OP_GATHER || op == OP_SCATTER;
}

bool operation_in_place(enum operation op)
{
	return op != OP_BROADCAST && op != OP_BARRIER && op != OP_SENDRECV;
}

bool operation_uneven(enum operation op)
{
	return op == OP_ALLGATHERV || op == OP_REDUCE_SCATTERV || op == OP_ALLTOALLV;
}

bool operation_scattered(enum operation op)
{
	return operation_uneven(op) || op == OP_REDUCE_SCATTER || op == OP_ALLGATHER ||
	       op == OP_ALLTOALL || op == OP_GATHER || op == OP_SCATTER;
}

uint64_t operation_in(enum operation op, uint64_t count, uint32_t rank, uint32_t rank_count)
{
	switch (op) {
	case OP_REDUCE_SCATTER:
	case OP_SCATTER:
	case OP_ALLTOALL:
		return count * rank_count;
	case OP_ALLGATHERV:
		return uneven_count(count, 0, rank);
	case OP_REDUCE_SCATTERV:
		return uneven_start(count, 0, rank_count);
	case OP_ALLTOALLV:
		return uneven_start(count, rank, rank_count);
	default:
		return count;
	}
}

uint64_t operation_out(enum operation op, uint64_t count, uint32_t rank, uint32_t rank_count)
{
	switch (op) {
	case OP_ALLGATHER:
	case OP_GATHER:
	case OP_ALLTOALL:
		return count * rank_count;
	case OP_ALLGATHERV:
		return uneven_start(count, 0, rank_count);
	case OP_REDUCE_SCATTERV:
		return uneven_count(count, 0, rank);
	case OP_ALLTOALLV:
		return uneven_start(count, rank, rank_count);
	default:
		return count;
	}
}

uint64_t operation_start(enum operation op, uint64_t count, uint32_t rank)
{
	return operation_uneven(op) ? uneven_start(count, 0, rank) : rank * count;
}

uint64_t operation_whole(enum operation op, uint64_t count, uint32_t rank_count)
{
	if (op == OP_ALLTOALLV)
		return uneven_mean(count, rank_count);
	if (operation_uneven(op))
		return uneven_start(count, 0, rank_count);
	return operation_scattered(op) ? count * rank_count : count;
}

double operation_bus_factor(enum operation op, uint32_t rank_count)
{
	double n = rank_count;

	if (op == OP_ALLREDUCE)
		return 2 * (n - 1) / n;
	return operation_scattered(op) ? (n - 1) / n : 1;
}

/* ---- Partial ---- */

const char *const partial_rounds[] = { "aligned", "free", NULL };
const char *const partial_lates[] = { "accumulate", "latest", "drop", NULL };
const char *const partial_normalises[] = { "ranks", "contributors", "samples", NULL };
const char *const partial_members[] = { "ranks", "nodes", NULL };
const char *const partial_collections[] = { "each[:D]", "own", "latest", NULL };
