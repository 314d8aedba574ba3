/*
 * compressed_mean.h -- the mean of vectors that travel in fewer bits: bfloat16, or 8-bit integers
 * with one scale for each TR_SCALE_BLOCK of them.
 *
 * A reduction that rounds after each step would add up errors that nobody knows of. Here every
 * value is rounded exactly twice, each time by a rank that keeps what rounding lost and adds it to
 * the next value (error feedback, on both sides, as in Tang et al., 1-bit Adam, 2021):
 *
 *   alltoall    each rank sends shard s of its vector, rounded, to rank s,
 *   shard       which takes the mean of all in float32, in the order of ranks,
 *   allgather   and sends it, rounded again, to all.
 *
 * So 2 (P - 1) / P values travel from each rank, as in a ring; all ranks decode the same bits.
 */
#ifndef TR_COMPRESSED_MEAN_H
#define TR_COMPRESSED_MEAN_H

#include "trainer/checkpoint/archive.h"
#include "trainer/rules/shared_options.h"

#define TR_SCALE_BLOCK 128 /* Values that share a scale (int8). */

struct tr_compressed_mean;

/* Collective. Means of vectors of `count` floats, and of `extra_count` doubles, unrounded. `kind`:
 * bf16 or int8. */
rubato_status tr_compressed_mean_open(struct tr_compressed_mean **out, rubato_comm *comm,
				      enum tr_compression kind, size_t count, uint32_t extra_count,
				      struct tr_error *error);
void tr_compressed_mean_close(struct tr_compressed_mean *compressed); /* NULL is fine. */

/* Starts the mean of `values`. Does not block. */
rubato_status tr_compressed_mean_begin(struct tr_compressed_mean *compressed, const float *values,
				       const double *extras, struct tr_error *error);
/* Waits for it. extras: their means. */
rubato_status tr_compressed_mean_end(struct tr_compressed_mean *compressed, float *mean,
				     double *extras, struct tr_error *error);
/* What rounding has lost so far. Not between begin and end. */
rubato_status tr_compressed_mean_keep(struct tr_compressed_mean *compressed, const char *name,
				      struct tr_archive *archive, struct tr_error *error);

#endif
