/*
 * peer_mpi.c -- a rank of an MPI library that rubato-bench leads: see peer_rank.h. Built once for
 * each, with ours or by tools/peers.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/peer_rank.h"

struct mpi { /* Of the command. */
	MPI_Datatype type;
	MPI_Op op;
};

static const char *mpi_fit(struct peer_rank *p)
{
	static const MPI_Datatype types[RUBATO_TYPE_COUNT + 1] = {
		[RUBATO_FLOAT32] = MPI_FLOAT,   [RUBATO_FLOAT64] = MPI_DOUBLE,
		[RUBATO_INT8] = MPI_INT8_T,     [RUBATO_INT16] = MPI_INT16_T,
		[RUBATO_INT32] = MPI_INT32_T,   [RUBATO_INT64] = MPI_INT64_T,
		[RUBATO_UINT8] = MPI_UINT8_T,   [RUBATO_UINT16] = MPI_UINT16_T,
		[RUBATO_UINT32] = MPI_UINT32_T, [RUBATO_UINT64] = MPI_UINT64_T,
	};
	static const MPI_Op reductions[RUBATO_OPERATOR_COUNT + 1] = { [RUBATO_SUM] = MPI_SUM,
								      [RUBATO_MAX] = MPI_MAX,
								      [RUBATO_MIN] = MPI_MIN,
								      [RUBATO_PROD] = MPI_PROD };
	struct mpi *m = p->library_data;

	if (p->call.count > INT32_MAX)
		return "MPI takes no such count";
	m->type = types[p->call.type];
	m->op = reductions[p->call.reduction];
	if (m->type == 0)
		return "MPI has no such type";
	if (operation_reduces(p->call.op) && m->op == 0)
		return "MPI has no such operator";
	return NULL;
}

static void mpi_call(struct peer_rank *p)
{
	const struct peer_command *c = &p->command;
	const struct mpi *m = p->library_data;
	bool place = c->in_place != 0, at_root = p->rank == c->root;
	int count = (int)c->count, root = (int)c->root;
	int right = (int)((p->rank + 1) % p->rank_count);
	int left = (int)((p->rank + p->rank_count - 1) % p->rank_count);
	const void *in = place ? MPI_IN_PLACE : p->in;
	MPI_Comm world = MPI_COMM_WORLD;

	switch (p->call.op) {
	case OP_ALLREDUCE:
		(void)MPI_Allreduce(in, p->out, count, m->type, m->op, world);
		break;
	case OP_REDUCE_SCATTER:
		(void)MPI_Reduce_scatter_block(in, p->out, count, m->type, m->op, world);
		break;
	case OP_ALLGATHER:
		(void)MPI_Allgather(in, count, m->type, p->out, count, m->type, world);
		break;
	case OP_BROADCAST:
		(void)MPI_Bcast(p->in, count, m->type, root, world);
		break;
	case OP_REDUCE:
		(void)MPI_Reduce(place && at_root ? MPI_IN_PLACE : p->call.in, p->out, count,
				 m->type, m->op, root, world);
		break;
	case OP_BARRIER:
		(void)MPI_Barrier(world);
		break;
	case OP_SENDRECV:
		(void)MPI_Sendrecv(p->in, count, m->type, right, 1, p->out, count, m->type, left, 1,
				   world, MPI_STATUS_IGNORE);
		break;
	case OP_ALLTOALL:
		(void)MPI_Alltoall(in, count, m->type, p->out, count, m->type, world);
		break;
	case OP_GATHER:
		(void)MPI_Gather(place && at_root ? MPI_IN_PLACE : p->call.in, count, m->type,
				 p->out, count, m->type, root, world);
		break;
	case OP_SCATTER:
		(void)MPI_Scatter(p->in, count, m->type, place && at_root ? MPI_IN_PLACE : p->out,
				  count, m->type, root, world);
		break;
	case OP_ALLGATHERV:
		(void)MPI_Allgatherv(in, p->counts[p->rank], m->type, p->out, p->counts, p->starts,
				     m->type, world);
		break;
	case OP_REDUCE_SCATTERV:
		(void)MPI_Reduce_scatter(in, p->out, p->counts, m->type, m->op, world);
		break;
	case OP_ALLTOALLV:
		(void)MPI_Alltoallv(in, p->counts, p->starts, m->type, p->out, p->counts, p->starts,
				    m->type, world);
		break;
	}
}

static void mpi_barrier(struct peer_rank *p)
{
	(void)p;
	(void)MPI_Barrier(MPI_COMM_WORLD);
}

static void version_get(char *name)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;

	(void)MPI_Get_library_version(version, &length);
	version[strcspn(version, ",\n")] = '\0';
	for (char *at = version; *at != '\0'; at++)
		*at = *at == '\t' ? ' ' : *at;
	(void)snprintf(name, PEER_TEXT_BYTES, "%.100s", version);
}

int main(int argc, char **argv)
{
	static struct peer_rank p; /* Large. */
	static struct mpi m;
	struct peer_library library = {
		.fit = mpi_fit, .call = mpi_call, .barrier = mpi_barrier, .in_place = true
	};
	int rank, size;

	if (argc != 3 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return EXIT_FAILURE;
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &size);
	version_get(library.name);
	p = (struct peer_rank) { .socket = -1,
				 .rank = (uint32_t)rank,
				 .rank_count = (uint32_t)size,
				 .library = &library,
				 .library_data = &m };
	if (!peer_rank_run(&p, argv[1], argv[2]))
		(void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
	(void)MPI_Finalize();
	return EXIT_SUCCESS;
}
