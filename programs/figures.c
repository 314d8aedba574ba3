/* figures.c -- see figures.h. */
#include "programs/figures.h"

#include <stdlib.h>

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
