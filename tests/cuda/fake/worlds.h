/*
 * worlds.h -- some collectives that a seed draws, the same on all ranks, on buffers that lie where
 * it draws, on each rank by itself: the bits are those of the same calls on the host's memory.
 */
#ifndef TESTS_CUDA_FAKE_WORLDS_H
#define TESTS_CUDA_FAKE_WORLDS_H

#include "tests/cuda/app.h"

struct cuda_world {
	struct cuda_app *app;
	uint64_t seed;
	bool streams;          /* What can be is started on one. */
	uint32_t ran, skipped; /* Of rank 0; these: algorithms for which all would have to map. */
};

/* arg: a struct cuda_world; of a rank that has entered app's context. */
rubato_status cuda_world_main(rubato_comm *comm, void *arg);

/* Likewise, of sums and averages that travel in fewer bits. */
rubato_status cuda_coded_main(rubato_comm *comm, void *arg);

/* Every collective with every type and operator that they have, by `auto`, on the device; the same
 * calls on the host's memory. arg: as above, of which `app` is needed. */
rubato_status cuda_every_main(rubato_comm *comm, void *arg);

#endif
