/*
 * mpi.c -- Rubato within an MPI program: MPI starts the ranks, and its allgather is all that Rubato
 * needs of it. Any launcher's will do in its place.
 *
 *	mpicc mpi.c $(pkg-config --cflags --libs rubato) -o mpi && mpirun -n 4 ./mpi
 */
#include <stdio.h>

#include <mpi.h>
#include <rubato.h>

static int allgather(void *arg, const void *in, void *out, size_t size_bytes)
{
	MPI_Comm *world = arg;

	return MPI_Allgather(in, (int)size_bytes, MPI_BYTE, out, (int)size_bytes, MPI_BYTE, *world);
}

int main(int argc, char **argv)
{
	MPI_Comm world = MPI_COMM_WORLD;
	rubato_comm *comm;
	double mine, sum;
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &size);
	mine = rank + 1;
	if (rubato_init_oob(&comm, allgather, &world, (uint32_t)rank, (uint32_t)size, NULL) !=
		    RUBATO_OK ||
	    rubato_allreduce(comm, &mine, &sum, 1, RUBATO_FLOAT64, RUBATO_SUM) != RUBATO_OK ||
	    rubato_finalize(comm) != RUBATO_OK) { /* Before MPI_Finalize. */
		(void)fprintf(stderr, "%s\n", rubato_error_text());
		MPI_Abort(world, 1);
	}
	(void)printf("rank %d of %d: %g\n", rank, size, sum);
	MPI_Finalize();
	return 0;
}
