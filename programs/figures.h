/* figures.h -- what the tools compute with: random words from a counter, order, quantiles. */
#ifndef PROGRAMS_FIGURES_H
#define PROGRAMS_FIGURES_H

#include <math.h>
#include <stdint.h>

/* splitmix64's finish: every bit of the input reaches every bit of the output. */
static inline uint64_t random_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* In [0, 1). */
static inline double random_unit(uint64_t random)
{
	return (double)(random >> 11) * 0x1p-53;
}

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
