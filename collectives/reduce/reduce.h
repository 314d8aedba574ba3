/*
 * reduce.h -- reductions of host memory. Each fast kernel stands beside its plain twin
 * (reduce_plain.c), with the same bits: element i is op(...op(op(from[0][i], from[1][i]),
 * from[2][i])..., ...) in that order, for NaN and signed zero too: max(a, b) is a > b || a is NaN ?
 * a : b, min(a, b) is a < b || a is NaN ? a : b; AVG sums, and with `final_count` > 0 the last step
 * multiplies floats by 1/final_count (float32: that factor rounded to float32) and divides integers
 * toward zero. Integer sums wrap. `to` may be equal to any of from[], but not overlap otherwise.
 */
#ifndef RB_COLLECTIVES_REDUCE_H
#define RB_COLLECTIVES_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct rb_reduce {
	rubato_type type;
	rubato_operator op;
	uint32_t final_count; /* 0, or the rank count where AVG divides. */
	void *to;
	const void *const *from;
	uint32_t from_count; /* At least 1: one operand is a copy (and AVG's division). */
	uint64_t count;      /* Elements. */
};

/* The widest that this processor has; chosen once by the caller: processor features are agreed upon
 * by results being the same bits in every kernel, so ranks may differ. */
typedef void (*rb_reduce_fn)(const struct rb_reduce *reduce);
rb_reduce_fn rb_reduce_best(void);
const char *rb_reduce_name(rb_reduce_fn fn); /* "plain", "avx2", ... */
void rb_reduce_plain(const struct rb_reduce *reduce);

#endif
