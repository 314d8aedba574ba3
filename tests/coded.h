/*
 * coded.h -- sums and averages that travel in fewer bits (rubato_set_wire), on buffers of a device,
 * beside the same calls on the host's memory.
 */
#ifndef TESTS_CODED_H
#define TESTS_CODED_H

#include "tests/runtime/exercise.h"

#define CODED_ROUNDS 3u
/* Floats behind a vector, which are not its own: as many as the last unit has. */
#define CODED_BEHIND 128u

struct coded {
	rubato_wire wire;
	bool feedback;
	bool scatter;          /* reduce_scatter, of count floats a rank; else allreduce. */
	bool once;             /* CODED_ROUNDS calls, else starts of one operation. */
	bool in_place;         /* allreduce. */
	const char *algorithm; /* NULL: auto. */
	uint64_t count;
	rubato_operator op;
	enum exercise_kind kinds[2]; /* Where this rank's input and output lie. */
	const struct exercise_memory *memory;
	rubato_status (*start)(rubato_op *op); /* Not with `once`. NULL: rubato_start. */
	uint64_t salt;                         /* Of the inputs. */
};

/* All results, one behind the other. UNSUPPORTED: not by this algorithm. */
rubato_status coded_run(rubato_comm *comm, const struct coded *coded, float *results);

struct coded_world {
	uint64_t seed;
	const struct exercise_memory *memory;
	rubato_status (*start)(rubato_op *op);
	uint32_t ran, skipped; /* These: not by the algorithm. */
};

/* Some calls that the seed draws, the same on all ranks, on buffers that lie where it draws, on
 * each rank by itself: the bits are those of the same calls on the host's memory. */
rubato_status coded_world_run(rubato_comm *comm, struct coded_world *world);

#endif
