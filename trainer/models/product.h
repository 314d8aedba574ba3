/*
 * product.h -- products of matrices, row-major, on one thread: by oneDNN, and as plain loops (its
 * twin, and what a build without oneDNN has).
 */
#ifndef TR_PRODUCT_H
#define TR_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/error.h"

struct tr_factor { /* A matrix, or with `turned` its transpose; a row begins every `stride`. */
	const float *at;
	size_t stride;
	bool turned;
};

/* c[m][n] = scale * a[m][k] b[k][n] + keep * c; m, n and k above 0. */
typedef rubato_status tr_product_call(size_t m, size_t n, size_t k, float scale, struct tr_factor a,
				      struct tr_factor b, float keep, float *c, size_t c_stride,
				      struct tr_error *error);

tr_product_call tr_product_plain;
tr_product_call tr_product_dnnl; /* Where there is oneDNN. */

static inline struct tr_factor tr_plain(const float *at, size_t stride)
{
	return (struct tr_factor) { at, stride, false };
}

static inline struct tr_factor tr_turned(const float *at, size_t stride)
{
	return (struct tr_factor) { at, stride, true };
}

/* Adds `bias` to each row of rows[row_count][count]; adds the rows up. */
void tr_rows_shift(float *rows, size_t row_count, size_t count, const float *bias);
void tr_rows_sum(const float *rows, size_t row_count, size_t count, float *sum);

#endif
