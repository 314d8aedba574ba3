/* shuffle.c -- Fisher-Yates (in Durstenfeld's form, 1964) with a stream of its own for each
 * epoch. */
#include "trainer/data/shuffle.h"

#include <stdlib.h>

#include "trainer/base/streams.h"

static void draw(struct tr_shuffle *shuffle)
{
	struct rng rng = rng_open(shuffle->seed, TR_STREAM_SHUFFLE, shuffle->epoch);

	for (uint32_t i = 0; i < shuffle->row_count; i++)
		shuffle->rows[i] = i;
	if (!shuffle->random)
		return;
	for (uint32_t i = shuffle->row_count; i-- > 1;) {
		uint32_t k = (uint32_t)rng_below(&rng, (uint64_t)i + 1);
		uint32_t row = shuffle->rows[i];

		shuffle->rows[i] = shuffle->rows[k];
		shuffle->rows[k] = row;
	}
}

rubato_status tr_shuffle_open(struct tr_shuffle *shuffle, uint32_t row_count, uint32_t rank,
			      uint32_t rank_count, uint32_t batch, uint64_t seed, bool random,
			      struct tr_error *error)
{
	*shuffle = (struct tr_shuffle) { .row_count = row_count,
					 .rank = rank,
					 .rank_count = rank_count,
					 .batch = batch,
					 .seed = seed,
					 .random = random };
	shuffle->epoch_steps = row_count / ((uint64_t)rank_count * batch);
	if (shuffle->epoch_steps == 0)
		return tr_refuse(error,
				 "--batch %u on %u rank%s needs %llu samples a step, the training "
				 "set has %u",
				 batch, rank_count, rank_count == 1 ? "" : "s",
				 (unsigned long long)rank_count * batch, row_count);
	shuffle->rows = malloc((size_t)row_count * sizeof(*shuffle->rows));
	if (shuffle->rows == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "shuffle: no memory for %u rows",
			       row_count);
	draw(shuffle);
	return RUBATO_OK;
}

void tr_shuffle_close(struct tr_shuffle *shuffle)
{
	free(shuffle->rows);
	shuffle->rows = NULL;
}

const uint32_t *tr_shuffle_rows(struct tr_shuffle *shuffle, uint64_t first_place)
{
	uint64_t epoch_places = shuffle->epoch_steps * shuffle->rank_count * shuffle->batch;
	uint64_t epoch = first_place / epoch_places;

	if (epoch != shuffle->epoch) {
		shuffle->epoch = epoch;
		draw(shuffle);
	}
	return shuffle->rows + first_place % epoch_places;
}

const uint32_t *tr_shuffle_batch(struct tr_shuffle *shuffle, uint64_t step)
{
	return tr_shuffle_rows(shuffle, tr_shuffle_place(shuffle, step));
}

uint64_t tr_shuffle_place(const struct tr_shuffle *shuffle, uint64_t step)
{
	return (step * shuffle->rank_count + shuffle->rank) * shuffle->batch;
}
