/*
 * wire.h -- the mean of vectors that travel in fewer bits: bfloat16, or 8-bit integers with one
 * scale for each WIRE_BLOCK of them.
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
#ifndef TR_WIRE_H
#define TR_WIRE_H

#include "trainer/checkpoint/archive.h"
#include "trainer/rules/rule_options.h"

#define TR_WIRE_BLOCK 128 /* Values that share a scale (int8). */

struct tr_wire_mean;

/* Collective. Means of vectors of `count` floats, and of `extra_count` doubles, unrounded. `kind`:
 * bf16 or int8. */
rubato_status tr_wire_open(struct tr_wire_mean **out, rubato_comm *comm, enum tr_wire kind,
			   size_t count, uint32_t extra_count, struct tr_error *error);
void tr_wire_close(struct tr_wire_mean *wire); /* NULL is fine. */

/* Starts the mean of `values`. Does not block. */
rubato_status tr_wire_begin(struct tr_wire_mean *wire, const float *values, const double *extras,
			    struct tr_error *error);
/* Waits for it. extras: their means. */
rubato_status tr_wire_end(struct tr_wire_mean *wire, float *mean, double *extras,
			  struct tr_error *error);
/* What rounding has lost so far. Not between begin and end. */
rubato_status tr_wire_keep(struct tr_wire_mean *wire, const char *name, struct tr_archive *archive,
			   struct tr_error *error);

#endif
