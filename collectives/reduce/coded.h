/*
 * coded.h -- vectors of float32 in fewer bits, as they travel (rubato_set_wire): coded, decoded,
 * and reduced as they are. Each fast coder stands beside its plain twin (coded_plain.c), with the
 * same bits.
 *
 * What is coded together is a unit, and a coded vector is an array of units:
 *
 *   bfloat16   one value, the upper half of a float32, rounded
 *   int8       128 values: a float32 scale s, and a byte each, round(value / s)
 *
 * With a residual, what rounding loses is kept, and added to what is rounded next at the same
 * place: y = x + e, Q(y) goes out, e = y - Q(y); where that is not finite e = 0.
 */
#ifndef RB_COLLECTIVES_CODED_H
#define RB_COLLECTIVES_CODED_H

#include "collectives/reduce/reduce.h"

#define RB_CODE_INT8_VALUES 128u
#define RB_CODE_INT8_MOST 127.0f

/* Of a unit. */
static inline uint32_t rb_code_values(rubato_wire wire)
{
	return wire == RUBATO_WIRE_INT8 ? RB_CODE_INT8_VALUES : 1;
}
static inline uint32_t rb_code_bytes(rubato_wire wire)
{
	return wire == RUBATO_WIRE_INT8 ? (uint32_t)sizeof(float) + RB_CODE_INT8_VALUES
					: (uint32_t)sizeof(uint16_t);
}
static inline uint64_t rb_code_units(rubato_wire wire, uint64_t count)
{
	uint64_t values = rb_code_values(wire);

	return count / values + (count % values != 0);
}

struct rb_coded {
	rubato_wire wire;        /* BFLOAT16 or INT8. */
	uint32_t final_count;    /* REDUCE: 0, or what AVG divides the sum by. */
	void *to;                /* Units; DECODE: floats. */
	const void *const *from; /* ENCODE: one vector of floats; else of units. */
	uint32_t from_count;
	uint64_t count;  /* ENCODE and DECODE: floats; REDUCE: units. */
	float *residual; /* NULL: none. Room for whole units. */
};

/* A reduction becomes one of what is coded, from unit `first` of the vector on; a copy stays one.
 * `residual`: of the whole vector, or NULL. */
static inline void rb_reduce_code(struct rb_reduce *reduce, rubato_wire wire, float *residual,
				  uint64_t first)
{
	if (reduce->from_count == 1 && reduce->final_count == 0)
		return;
	reduce->coding = RB_CODING_REDUCE;
	reduce->wire = wire;
	reduce->residual = residual != NULL ? residual + first * rb_code_values(wire) : NULL;
}

/* Of which copies of units are conversions instead: from these floats to units, or back. NONE: the
 * residual becomes zeros. */
struct rb_code_vector {
	enum rb_coding coding;
	float *values;
	uint64_t block_values, block_units; /* Each block begins with a unit. */
	float *residual;                    /* For whole units; NULL: none. */
};

/* A copy, from *from, of units of one block, from `first` of the vector on. It counts in floats
 * from then on: returns an element's bytes. */
static inline uint32_t rb_reduce_convert(struct rb_reduce *reduce, const struct rb_code_vector *v,
					 rubato_wire wire, uint64_t first, const void **from)
{
	uint64_t at = first % v->block_units * rb_code_values(wire); /* In the block. */
	float *values = v->values + first / v->block_units * v->block_values + at;
	float *residual = v->residual != NULL ? v->residual + first * rb_code_values(wire) : NULL;

	reduce->count *= rb_code_values(wire);
	if (v->coding == RB_CODING_NONE) {
		reduce->to = residual;
		reduce->from_count = 0;
		return sizeof(float);
	}
	if (reduce->count > v->block_values - at)
		reduce->count = v->block_values - at;
	if (v->coding == RB_CODING_ENCODE)
		*from = values;
	else
		reduce->to = values;
	reduce->coding = v->coding;
	reduce->wire = wire;
	reduce->residual = residual;
	return sizeof(float);
}

/*
 *   encode   one vector of floats; the last unit is filled up with zeros
 *   decode   one coded vector; a NaN is the canonical one
 *   reduce   the sum of all, in their order, in float32: divided, coded again
 *
 * The target of a reduction may be any of its operands; nothing overlaps otherwise, or need be
 * aligned.
 */
typedef void (*rb_coded_fn)(const struct rb_coded *coded);
struct rb_coders {
	rb_coded_fn encode, decode, reduce;
};
extern const struct rb_coders rb_coders_plain;
const struct rb_coders *rb_coders_of(rb_reduce_fn fn); /* Of the same width. */

#endif
