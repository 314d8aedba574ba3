/*
 * shuffle.h -- which rows a rank's step reads: a permutation of the training set for each epoch,
 * drawn from the seed alone (so it does not depend on the number of ranks), cut into batches.
 *
 * Step t' of an epoch on rank r of P with batch B reads places (t' * P + r) * B .. + B - 1 of the
 * shuffle. An epoch has floor(n / (P * B)) steps; what is left over waits for another permutation.
 */
#ifndef TR_SHUFFLE_H
#define TR_SHUFFLE_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/error.h"

struct tr_shuffle {
	uint32_t *rows; /* [row_count]: the shuffle of `epoch`. */
	uint32_t row_count;
	uint32_t rank, rank_count, batch;
	uint64_t seed, epoch, epoch_steps;
	bool random; /* false: as the rows are stored. */
};

rubato_status tr_shuffle_open(struct tr_shuffle *shuffle, uint32_t row_count, uint32_t rank,
			      uint32_t rank_count, uint32_t batch, uint64_t seed, bool random,
			      struct tr_error *error);
void tr_shuffle_close(struct tr_shuffle *shuffle);

/* The `batch` rows of this rank's local step `step`, counted from 0 over the whole run. */
const uint32_t *tr_shuffle_batch(struct tr_shuffle *shuffle, uint64_t step);
/* The first of these rows' places in the shuffle, counted through all epochs. */
uint64_t tr_shuffle_place(const struct tr_shuffle *shuffle, uint64_t step);
/* The `batch` rows from the place on that a rank's step begins at: any step, of any rank. */
const uint32_t *tr_shuffle_rows(struct tr_shuffle *shuffle, uint64_t first_place);

#endif
