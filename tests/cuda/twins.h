/*
 * twins.h -- one call of a kernel (launcher.h) beside its twin on the host: the same bits, and
 * nothing else written.
 */
#ifndef RB_TESTS_TWINS_H
#define RB_TESTS_TWINS_H

#include "collectives/reduce/reduce.h"
#include "tests/cuda/launcher.h"

#define TWINS_OPERANDS 40
#define TWINS_COUNT_MAX 3000
#define TWINS_GUARD_BYTES 64
#define TWINS_ROOM (TWINS_COUNT_MAX * 8 + 2 * TWINS_GUARD_BYTES)

extern const char *const twins_types[RUBATO_TYPE_COUNT]; /* As kernels' names have them. */

struct twins_bench {
	_Alignas(64) unsigned char from[TWINS_OPERANDS][TWINS_ROOM], device[TWINS_ROOM],
		plain[TWINS_ROOM], saved[TWINS_ROOM];
	char error[1024];
};

/* How a call is launched, and where its buffers are. */
struct twins_place {
	const char *kernel;
	bool many; /* It takes a struct rb_cuda_reduce_many. */
	uint32_t grid, block;
	uint32_t alias;   /* `to` is this operand; none: a buffer of its own. */
	uint32_t shift;   /* All addresses modulo 16... */
	uint32_t differs; /* ...but operand k lies k * differs bytes behind that. */
};

/* Hostile elements of that type, and others' bits, in the first operands. */
void twins_fill(struct twins_bench *bench, rubato_type type, uint32_t operands, uint64_t seed);
/* NULL, or what differs. `r` has neither `to` nor `from`. */
const char *twins_compare(struct twins_bench *bench, struct rb_reduce r,
			  const struct twins_place *place);

#endif
