/*
 * npy.h -- .npy files (versions 1 and 2), strictly: little-endian numbers, no pickles, and exactly
 * as many bytes as the header promises. Every refusal is one line that names the file.
 */
#ifndef TR_NPY_H
#define TR_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/base/error.h"

#define TR_NPY_RANK_MAX 8
#define TR_NPY_BYTES_MAX ((uint64_t)1 << 38) /* A guess at what no training set here exceeds. */

enum tr_npy_kind { TR_NPY_FLOAT, TR_NPY_SIGNED, TR_NPY_UNSIGNED };

struct tr_npy {
	enum tr_npy_kind kind;
	uint32_t item_bytes; /* 1, 2, 4 or 8; a float has at least 2. */
	uint32_t rank;
	uint64_t shape[TR_NPY_RANK_MAX];
	uint64_t count; /* Product of the shape. */
	void *bytes;    /* count * item_bytes in C order, the caller's to free. */
};

rubato_status tr_npy_read(const char *path, struct tr_npy *out, struct tr_error *error);

/* Item k of an array of integers. Unsigned values beyond INT64_MAX come out negative. */
int64_t tr_npy_integer(const struct tr_npy *array, uint64_t k);

/* Makes numbers of any kind float32, rounded to the nearest. Refuses what is too large for it. */
rubato_status tr_npy_float32(struct tr_npy *array, const char *path, struct tr_error *error);

/* Writes a vector of float32 beside `path` and renames it there: it is complete or absent. */
rubato_status tr_npy_write(const char *path, const float *values, uint64_t count,
			   struct tr_error *error);

/* Writes `bytes` beside `path` and renames them there. */
rubato_status tr_file_replace(const char *path, const void *head, size_t head_bytes,
			      const void *body, size_t body_bytes, struct tr_error *error);

#endif
