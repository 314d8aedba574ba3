/*
 * known.h -- calls whose results are known exactly: what rubato-bench, rubato-sim and the ranks of
 * other libraries put in, and whether what came out is right.
 *
 * Small integers in every floating type (factors near 1 for products), so that results are exact
 * whatever the order, drawn anew for each rank and call, with a prime period: chunks and blocks
 * never fall on a multiple of it, so what comes from the wrong place, rank or call differs.
 *
 * Many ranks of one process need not each have their inputs in memory: `cuts` makes these cuts of a
 * few sequences, which begin at places of their own.
 */
#ifndef TOOLS_KNOWN_H
#define TOOLS_KNOWN_H

#include "programs/operations.h"

#define PATTERN_ELEMENTS 4093
#define KNOWN_SEQUENCES 16

struct pattern { /* Of a vector: one period of it, or what of that is needed. */
	rubato_type type;
	uint64_t first, used; /* Filled in: for elements first .. first + used - 1. */
	union {
		float f32[PATTERN_ELEMENTS];
		double f64[PATTERN_ELEMENTS];
		uint16_t i16[PATTERN_ELEMENTS]; /* 16-bit floats too. */
		uint64_t i64[PATTERN_ELEMENTS];
	} at;
};

struct known_sum { /* A call's reduction over all ranks, of which every rank needs the same. */
	enum operation op;
	rubato_operator reduction;
	uint32_t rank_count; /* 0: none yet. */
	uint64_t number;
	struct pattern pattern;
};

struct known { /* A rank's side of a call; ranks of one thread may use one in turn. */
	uint32_t rank, rank_count;
	uint32_t from;   /* Sendrecv: whose data come. */
	uint64_t number; /* The call's: makes its inputs differ. */
	/* In what form sums and averages of float32 travel. bfloat16: inputs are such that nothing
	 * is lost but of an average; int8: results may be off by what rounding explains. */
	rubato_wire wire;
	bool cuts; /* Inputs are cuts of sequences; only where known_may_cut(). */
	struct pattern mine, expected, scratch;
	struct known_sum sum;
};

/* Writes this rank's inputs, at call->in. */
void known_write(struct known *known, const struct operation_call *call);
/* Whether what a rank puts in may be the same as another's, a few elements on. */
bool known_may_cut(const struct operation_call *call);
/* Where in sequence rank % KNOWN_SEQUENCES the rank's inputs begin: below PATTERN_ELEMENTS. */
uint64_t known_cut(uint32_t rank);
/* Writes so many elements of a sequence for this call. */
void known_write_sequence(struct known *known, const struct operation_call *call, uint32_t sequence,
			  uint64_t count, void *at);
/* How many elements of this rank's result are wrong: at call->out, also of a broadcast. */
uint64_t known_wrong(struct known *known, const struct operation_call *call);
/* How many of those that known_write() has written are other ones now. */
uint64_t known_changed(const struct known *known, const struct operation_call *call);

#endif
