/*
 * reduce.h -- reductions of host memory. Each fast kernel stands beside its plain twin
 * (reduce_plain.c), with the same bits.
 *
 * Element i of the result is op(...op(op(from[0][i], from[1][i]), from[2][i])..., ...), in that
 * order, whatever the vector width. 16-bit floats are widened to float32 first and rounded (to
 * nearest, ties to even) once, at the end. The rest is as rubato.h says of types and operators: one
 * canonical NaN, -0 below +0, integers wrap. AVG sums, and with `final_count` > 1 the sum is then
 * multiplied by 1/final_count (floats; 16-bit ones before they are rounded) or divided toward zero
 * (integers). One operand without division is a copy: nothing becomes canonical.
 *
 * `to` may be equal to any of from[], but not overlap otherwise; nothing need be aligned. The
 * caller's rounding mode and the like do not matter, and are as they were afterwards.
 */
#ifndef RB_COLLECTIVES_REDUCE_H
#define RB_COLLECTIVES_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What devices are also asked to do: coded.h. */
enum rb_coding { RB_CODING_NONE, RB_CODING_ENCODE, RB_CODING_DECODE, RB_CODING_REDUCE };

struct rb_reduce {
	rubato_type type;
	rubato_operator op;
	uint32_t final_count; /* 0, or the rank count where AVG divides. */
	void *to;
	const void *const *from;
	uint32_t from_count; /* At least 1. */
	uint64_t count;      /* Elements. */
	void *also;          /* Where the result goes, too: other memory than `to`; or NULL. */
	bool past;           /* What goes there (if NULL: to `to`) leaves the caches to others
			      * (base/copy.h). */
	enum rb_coding
		coding; /* All but NONE: as struct rb_coded has it, type and operator aside; */
	rubato_wire wire;
	float *residual;
};

/* Chosen once by the caller. Ranks may differ: every kernel gives the same bits. */
typedef void (*rb_reduce_fn)(const struct rb_reduce *reduce);
rb_reduce_fn rb_reduce_best(void);           /* The widest that this processor has. */
const char *rb_reduce_name(rb_reduce_fn fn); /* "plain", "avx2", ... */
void rb_reduce_plain(const struct rb_reduce *reduce);

/*
 * Between 16-bit floats (`half`: which) and float32, `count` elements: exact to float32 but for the
 * payload of NaNs; back rounded to nearest, ties to even, NaN canonical. No overlap.
 */
struct rb_convert {
	rubato_type half;
	bool narrow; /* From float32; else to it. */
	const void *from;
	void *to;
	uint64_t count;
};
typedef void (*rb_convert_fn)(const struct rb_convert *convert);
rb_convert_fn rb_convert_of(rb_reduce_fn fn); /* Of the same width. */
void rb_convert_plain(const struct rb_convert *convert);

/* All that are built in, from plain to the widest; NULL: no more of them. */
rb_reduce_fn rb_reduce_kernel(uint32_t index);
bool rb_reduce_usable(rb_reduce_fn fn); /* On this processor. */

#endif
