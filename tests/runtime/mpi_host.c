/*
 * mpi_host.c -- Rubato inside an MPI program: starts over MPI's allgather, and gives what
 * MPI_Allreduce gives, turn and turn about with it, on MPI_COMM_WORLD and on its two halves.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "rubato.h"

#define COUNT 10000

static int gather(void *arg, const void *in, void *out, size_t size_bytes)
{
	int bytes = (int)size_bytes;

	return MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, *(MPI_Comm *)arg);
}

static int fail(int rank, const char *what)
{
	(void)fprintf(stderr, "rank %d: %s: %s\n", rank, what, rubato_error_text());
	return 1;
}

static int compare(rubato_comm *comm, MPI_Comm world, int rank)
{
	static int64_t in[COUNT], ours[COUNT], theirs[COUNT];

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < COUNT; i++)
			in[i] = (int64_t)(i + 1) * (rank + 3) * (round + 1);
		if (rubato_allreduce(comm, in, ours, COUNT, RUBATO_INT64, RUBATO_SUM) != RUBATO_OK)
			return fail(rank, "allreduce");
		if (MPI_Allreduce(in, theirs, COUNT, MPI_INT64_T, MPI_SUM, world) != MPI_SUCCESS)
			return fail(rank, "MPI_Allreduce");
		for (int i = 0; i < COUNT; i++)
			if (ours[i] != theirs[i])
				return fail(rank, "another sum than MPI's");
	}
	return 0;
}

static int on(MPI_Comm world)
{
	rubato_comm *comm;
	int rank, size, bad;

	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &size);
	if (rubato_init_oob(&comm, gather, &world, (uint32_t)rank, (uint32_t)size, NULL) !=
	    RUBATO_OK)
		return fail(rank, "init_oob");
	bad = compare(comm, world, rank);
	if (rubato_finalize(comm) != RUBATO_OK)
		return fail(rank, "finalize");
	return bad;
}

int main(int argc, char **argv)
{
	int rank, size, bad, all_bad = 1;
	MPI_Comm half;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	bad = on(MPI_COMM_WORLD);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	bad |= on(half);
	MPI_Comm_free(&half);
	MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0 && all_bad == 0)
		(void)printf("%d ranks: the same sums as MPI's\n", size);
	MPI_Finalize();
	return all_bad;
}
