/* order.c -- Fisher-Yates (in Durstenfeld's form, 1964) with a stream of its own for each epoch. */
#include "trainer/data/order.h"

#include <stdlib.h>

#include "trainer/base/rng.h"

static void draw(struct tr_order *order)
{
	struct tr_rng rng = tr_rng_open(order->seed, TR_STREAM_ORDER, order->epoch);

	for (uint32_t i = 0; i < order->row_count; i++)
		order->rows[i] = i;
	if (!order->shuffle)
		return;
	for (uint32_t i = order->row_count; i-- > 1;) {
		uint32_t k = (uint32_t)tr_rng_below(&rng, (uint64_t)i + 1);
		uint32_t row = order->rows[i];

		order->rows[i] = order->rows[k];
		order->rows[k] = row;
	}
}

rubato_status tr_order_open(struct tr_order *order, uint32_t row_count, uint32_t rank,
			    uint32_t rank_count, uint32_t batch, uint64_t seed, bool shuffle,
			    struct tr_error *error)
{
	*order = (struct tr_order) { .row_count = row_count,
				     .rank = rank,
				     .rank_count = rank_count,
				     .batch = batch,
				     .seed = seed,
				     .shuffle = shuffle };
	order->epoch_steps = row_count / ((uint64_t)rank_count * batch);
	if (order->epoch_steps == 0)
		return tr_refuse(error,
				 "--batch %u on %u rank%s wants %llu samples a step, the training "
				 "set has %u",
				 batch, rank_count, rank_count == 1 ? "" : "s",
				 (unsigned long long)rank_count * batch, row_count);
	order->rows = malloc((size_t)row_count * sizeof(*order->rows));
	if (order->rows == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "order: no memory for %u rows", row_count);
	draw(order);
	return RUBATO_OK;
}

void tr_order_close(struct tr_order *order)
{
	free(order->rows);
	order->rows = NULL;
}

const uint32_t *tr_order_rows(struct tr_order *order, uint64_t first_place)
{
	uint64_t epoch_places = order->epoch_steps * order->rank_count * order->batch;
	uint64_t epoch = first_place / epoch_places;

	if (epoch != order->epoch) {
		order->epoch = epoch;
		draw(order);
	}
	return order->rows + first_place % epoch_places;
}

const uint32_t *tr_order_batch(struct tr_order *order, uint64_t step)
{
	return tr_order_rows(order, tr_order_place(order, step));
}

uint64_t tr_order_place(const struct tr_order *order, uint64_t step)
{
	return (step * order->rank_count + order->rank) * order->batch;
}
