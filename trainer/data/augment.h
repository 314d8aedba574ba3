/*
 * augment.h -- images as they might have been: shifted by up to four pixels each way, and mirrored
 * half of the time (He, Zhang, Ren, Sun 2016, section 4.2, after Lee and others 2015).
 */
#ifndef TR_AUGMENT_H
#define TR_AUGMENT_H

#include "trainer/data/data.h"

#define TR_AUGMENT_SHIFT 4 /* Pixels. */

/* Errors: ARGUMENT, a mistake of the command line, when the samples are no images of bytes. */
rubato_status tr_augment_check(const struct tr_data *data, struct tr_error *error);

/* The `rows` samples x[rows][features], which came from these places of the shuffle (counted
 * through all epochs): what becomes of one depends on the seed and its place alone. What moves
 * in from outside is black. `spare`: [features]. */
void tr_augment(const struct tr_data *data, uint64_t seed, uint64_t first_place, uint32_t rows,
		float *x, float *spare);

#endif
