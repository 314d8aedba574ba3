/*
 * exercise.h -- runs collectives on a communicator and checks every element of every result, on any
 * transport: threads, processes, simulated ranks.
 */
#ifndef TESTS_RUNTIME_EXERCISE_H
#define TESTS_RUNTIME_EXERCISE_H

#include "rubato.h"

enum exercise_kind { EXERCISE_HOST, EXERCISE_DEVICE, EXERCISE_MANAGED };

/* How there is memory of the last two. */
struct exercise_memory {
	rubato_status (*alloc)(rubato_comm *comm, size_t size_bytes, bool managed, void **memory);
	rubato_status (*free)(rubato_comm *comm, void *memory);
	void (*copy)(rubato_comm *comm, void *to, const void *from, size_t size_bytes);
};

extern const struct exercise_memory exercise_simulated; /* rubato_sim.h's. */

struct exercise {
	const char *kind;      /* "allreduce", ... */
	const char *algorithm; /* Or "auto". */
	uint64_t count;        /* Of the v-variants: about what a block has. */
	rubato_type type;
	rubato_operator op;
	rubato_accumulate accumulate;
	uint32_t root;
	bool in_place;
	bool allocated; /* Buffers from rubato_alloc; on odd ranks only if `mixed`. */
	bool mixed;
	/* Where this rank's input and output lie; in place, where the input does. Not with
	 * `allocated`. */
	enum exercise_kind kinds[2];
	const struct exercise_memory *memory; /* NULL: the simulated device's. */
	/* In place of rubato_start, where that is not NULL. */
	rubato_status (*start)(rubato_op *op);
	bool persistent;  /* Made once, started for each call; else blocking, */
	bool nonblocking; /* or made and tested for each call. */
	uint32_t times;   /* Calls, each on fresh input. */
	uint64_t salt;    /* Of the inputs, and of the v-variants' blocks. */
};

/* MISMATCH with a text that names the first wrong element; UNSUPPORTED when the algorithm cannot
 * run here; else the library's status. *hash (may be NULL) is of all output bits. */
rubato_status exercise_run(rubato_comm *comm, const struct exercise *exercise, uint64_t *hash);

/* Algorithm names of a kind, from the library's table; NULL after the last. */
const char *exercise_algorithm(const char *kind, uint32_t index);

#endif
