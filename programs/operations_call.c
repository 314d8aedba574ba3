/*
 * operations_call.c -- calls an operation, or makes it: what of operations.h needs the library. The
 * ranks of other libraries do without it.
 */
#include "programs/operations.h"

static rubato_status sendrecv(rubato_comm *comm, const struct operation_call *c)
{
	uint32_t rank = rubato_rank(comm), ranks = rubato_size(comm);

	return rubato_sendrecv(comm, c->in, c->count, (rank + 1) % ranks, 0, c->out, c->count,
			       (rank + ranks - 1) % ranks, 0, c->type);
}

rubato_status operation_call(rubato_comm *comm, const struct operation_call *c)
{
	switch (c->op) {
	case OP_ALLREDUCE:
		return rubato_allreduce(comm, c->in, c->out, c->count, c->type, c->reduction);
	case OP_REDUCE_SCATTER:
		return rubato_reduce_scatter(comm, c->in, c->out, c->count, c->type, c->reduction);
	case OP_ALLGATHER:
		return rubato_allgather(comm, c->in, c->out, c->count, c->type);
	case OP_BROADCAST:
		return rubato_broadcast(comm, c->out, c->count, c->type, c->root);
	case OP_REDUCE:
		return rubato_reduce(comm, c->in, c->out, c->count, c->type, c->reduction, c->root);
	case OP_ALLTOALL:
		return rubato_alltoall(comm, c->in, c->out, c->count, c->type);
	case OP_GATHER:
		return rubato_gather(comm, c->in, c->out, c->count, c->type, c->root);
	case OP_SCATTER:
		return rubato_scatter(comm, c->in, c->out, c->count, c->type, c->root);
	case OP_ALLGATHERV:
		return rubato_allgatherv(comm, c->in, c->out, c->counts, NULL, c->type);
	case OP_REDUCE_SCATTERV:
		return rubato_reduce_scatterv(comm, c->in, c->out, c->counts, NULL, c->type,
					      c->reduction);
	case OP_ALLTOALLV:
		return rubato_alltoallv(comm, c->in, c->counts, NULL, c->out, c->counts, NULL,
					c->type);
	case OP_BARRIER:
		return rubato_barrier(comm);
	case OP_SENDRECV:
		return sendrecv(comm, c);
	}
	return RUBATO_ERR_ARGUMENT;
}

rubato_status operation_make(rubato_comm *comm, const struct operation_call *c, rubato_op **op)
{
	switch (c->op) {
	case OP_ALLREDUCE:
		return rubato_op_allreduce(comm, c->in, c->out, c->count, c->type, c->reduction,
					   op);
	case OP_REDUCE_SCATTER:
		return rubato_op_reduce_scatter(comm, c->in, c->out, c->count, c->type,
						c->reduction, op);
	case OP_ALLGATHER:
		return rubato_op_allgather(comm, c->in, c->out, c->count, c->type, op);
	case OP_BROADCAST:
		return rubato_op_broadcast(comm, c->out, c->count, c->type, c->root, op);
	case OP_REDUCE:
		return rubato_op_reduce(comm, c->in, c->out, c->count, c->type, c->reduction,
					c->root, op);
	case OP_ALLTOALL:
		return rubato_op_alltoall(comm, c->in, c->out, c->count, c->type, op);
	case OP_GATHER:
		return rubato_op_gather(comm, c->in, c->out, c->count, c->type, c->root, op);
	case OP_SCATTER:
		return rubato_op_scatter(comm, c->in, c->out, c->count, c->type, c->root, op);
	case OP_ALLGATHERV:
		return rubato_op_allgatherv(comm, c->in, c->out, c->counts, NULL, c->type, op);
	case OP_REDUCE_SCATTERV:
		return rubato_op_reduce_scatterv(comm, c->in, c->out, c->counts, NULL, c->type,
						 c->reduction, op);
	case OP_ALLTOALLV:
		return rubato_op_alltoallv(comm, c->in, c->counts, NULL, c->out, c->counts, NULL,
					   c->type, op);
	case OP_BARRIER:
		return rubato_op_barrier(comm, op);
	case OP_SENDRECV:
		break;
	}
	return RUBATO_ERR_ARGUMENT;
}
