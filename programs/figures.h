/* figures.h -- what the tools compute with: order, quantiles. */
#ifndef PROGRAMS_FIGURES_H
#define PROGRAMS_FIGURES_H

#include <math.h>
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

#endif
