/* figures.h -- what the tools compute of times: order, quantiles, a table's figures. */
#ifndef PROGRAMS_FIGURES_H
#define PROGRAMS_FIGURES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Of doubles, for qsort. */
static inline int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The smallest of `count` sorted values that a share q of them does not exceed. */
static inline double quantile(const double *sorted, uint64_t count, double q)
{
	uint64_t at = (uint64_t)ceil(q * (double)count);

	return sorted[at > 0 ? at - 1 : 0];
}

struct times_figures {
	double median_us, min_us, p99_us; /* Over iterations, of the mean over ranks. */
	double slowest_us;                /* The median of the largest over ranks. */
	double mean_us, call_p99_us;      /* Over ranks and iterations. */
};

/* times: [ranks][iterations]; sorted afterwards. False: no memory. */
bool times_figures(double *times_us, uint32_t ranks, uint32_t iterations,
		   struct times_figures *figures);

#endif
