/* figures.h -- what the tools compute of times: order, quantiles, a table's figures, ratios. */
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

/* a over b. low and high: the ends of the 95 % interval; NAN where the blocks are too few. */
struct ratio_figures {
	double ratio, low, high;
};

#define RATIO_BLOCKS_LEAST 8

/*
 * The ratio of the medians of a and b, which were measured in turn: each had `count` iterations, in
 * `blocks` slices; slice k ends before iteration count * (k + 1) / blocks. The interval is that of
 * the bootstrap: slices are drawn with replacement, a's with the b's of the same turn, so what is
 * alike within a slice, or met both of a turn, is no independent evidence; of 1,000 such ratios it
 * leaves out 2.5 % at either end. (Efron and Tibshirani, An Introduction to the Bootstrap, 1993:
 * chapter 8 for blocks, 13 for percentiles.) The draws are the same in every run. False: no memory.
 */
bool ratio_figures(const double *a, const double *b, uint32_t count, uint32_t blocks,
		   struct ratio_figures *figures);

#endif
