/* figures.c -- see figures.h. */
#include "programs/figures.h"

#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"

#define DRAWS 1000

bool times_figures(double *times_us, uint32_t ranks, uint32_t iterations, struct times_figures *f)
{
	double *means = calloc(2 * (size_t)iterations, sizeof(*means)), *slowest, sum = 0;

	if (means == NULL)
		return false;
	slowest = means + iterations;
	for (uint32_t i = 0; i < iterations; i++) {
		for (uint32_t r = 0; r < ranks; r++) {
			double us = times_us[(size_t)r * iterations + i];

			means[i] += us / ranks;
			slowest[i] = us > slowest[i] ? us : slowest[i];
		}
		sum += means[i];
	}
	qsort(means, iterations, sizeof(*means), ascending);
	qsort(slowest, iterations, sizeof(*slowest), ascending);
	qsort(times_us, (size_t)ranks * iterations, sizeof(*times_us), ascending);
	*f = (struct times_figures) {
		.median_us = quantile(means, iterations, 0.5),
		.min_us = means[0],
		.p99_us = quantile(means, iterations, 0.99),
		.slowest_us = quantile(slowest, iterations, 0.5),
		.mean_us = sum / iterations,
		.call_p99_us = quantile(times_us, (uint64_t)ranks * iterations, 0.99),
	};
	free(means);
	return true;
}

/* ---- Ratios ---- */

struct timed { /* One iteration, and the slice that it was in. */
	double us;
	uint32_t block;
};

static int timed_ascending(const void *a, const void *b)
{
	return ascending(&((const struct timed *)a)->us, &((const struct timed *)b)->us);
}

static void timed_fill(struct timed *to, const double *us, uint32_t count, uint32_t blocks)
{
	for (uint32_t k = 0, i = 0; k < blocks; k++)
		for (; i < (uint64_t)count * (k + 1) / blocks; i++)
			to[i] = (struct timed) { us[i], k };
	qsort(to, count, sizeof(*to), timed_ascending);
}

/* The median of sorted values, each as often as its block was drawn. */
static double drawn_median(const struct timed *sorted, uint32_t count, const uint32_t *drawn)
{
	uint64_t all = 0, below = 0;
	double lower = NAN;

	for (uint32_t i = 0; i < count; i++)
		all += drawn[sorted[i].block];
	for (uint32_t i = 0; i < count; i++) {
		uint32_t times = drawn[sorted[i].block];

		if (times == 0)
			continue;
		if (!isnan(lower))
			return (lower + sorted[i].us) / 2;
		below += times;
		if (2 * below > all)
			return sorted[i].us;
		if (2 * below == all)
			lower = sorted[i].us;
	}
	return lower;
}

static double drawn_ratio(const struct timed *a, const struct timed *b, uint32_t count,
			  const uint32_t *drawn)
{
	return drawn_median(a, count, drawn) / drawn_median(b, count, drawn);
}

bool ratio_figures(const double *a, const double *b, uint32_t count, uint32_t blocks,
		   struct ratio_figures *f)
{
	struct timed *of_a = calloc(2 * (size_t)count, sizeof(*of_a)), *of_b = of_a + count;
	uint32_t *drawn = calloc(blocks, sizeof(*drawn));
	double ratios[DRAWS];
	struct rng rng = rng_open(1, 0, 0);

	if (of_a != NULL && drawn != NULL) {
		timed_fill(of_a, a, count, blocks);
		timed_fill(of_b, b, count, blocks);
		for (uint32_t k = 0; k < blocks; k++)
			drawn[k] = 1;
		*f = (struct ratio_figures) { drawn_ratio(of_a, of_b, count, drawn), NAN, NAN };
	}
	for (uint32_t i = 0; of_a != NULL && drawn != NULL && i < DRAWS; i++) {
		memset(drawn, 0, blocks * sizeof(*drawn));
		for (uint32_t k = 0; k < blocks; k++)
			drawn[rng_below(&rng, blocks)]++;
		ratios[i] = drawn_ratio(of_a, of_b, count, drawn);
	}
	bool good = of_a != NULL && drawn != NULL;

	if (good && blocks >= RATIO_BLOCKS_LEAST) {
		qsort(ratios, DRAWS, sizeof(*ratios), ascending);
		f->low = quantile(ratios, DRAWS, 0.025);
		f->high = quantile(ratios, DRAWS, 0.975);
	}
	free(of_a);
	free(drawn);
	return good;
}
