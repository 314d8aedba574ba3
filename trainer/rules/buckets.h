/*
 * buckets.h -- the gradient in pieces, each reduced as soon as it is complete.
 *
 * A backward pass completes the flat gradient from its end towards its beginning. So one number
 * tells how far it is: everything from there on is final. Buckets are numbered in that order,
 * number 0 at the end of the vector. All have the same size but the last one, at the beginning: it
 * becomes complete last, nothing is left to hide its reduction behind, so it gets the rest.
 *
 * Reductions are started in the same order on all ranks, go on while the backward pass does (the
 * library progresses them), and are waited for one by one.
 */
#ifndef TR_BUCKETS_H
#define TR_BUCKETS_H

#include <stddef.h>

#include "trainer/base/vectors.h"

#define TR_BUCKETS_MAX 1024 /* Each has a persistent operation with its scratch memory. */
#define TR_BUCKET_ALIGN 16  /* Floats: buckets begin at cache lines. */

struct tr_cut { /* How a vector is cut; counts are of floats. */
	size_t total, size;
	uint32_t count;
};

/* `size_bytes`: of a bucket, rounded down to cache lines; 0: one bucket. Errors: ARGUMENT when that
 * would make more than TR_BUCKETS_MAX. */
rubato_status tr_cut_make(struct tr_cut *cut, size_t total, uint64_t size_bytes,
			  struct tr_error *error);
size_t tr_cut_begin(const struct tr_cut *cut, uint32_t bucket); /* Its first float, */
size_t tr_cut_end(const struct tr_cut *cut, uint32_t bucket);   /* and the one behind its last. */

struct tr_buckets {
	rubato_comm *comm;
	const struct tr_vectors *vectors;
	struct tr_cut cut;
	rubato_op *average[TR_BUCKETS_MAX];
	uint32_t started;
};

/* Collective: one allreduce (AVG, in place) for each bucket of `vector`. Of a failed one only
 * tr_buckets_close may follow. */
rubato_status tr_buckets_open(struct tr_buckets *buckets, rubato_comm *comm,
			      const struct tr_vectors *vectors, const struct tr_cut *cut,
			      float *vector, struct tr_error *error);
void tr_buckets_close(struct tr_buckets *buckets);

/* Everything from float `first` on is final: starts what has become complete. */
rubato_status tr_buckets_ready(struct tr_buckets *buckets, size_t first, struct tr_error *error);
/* All have been started: how many of them are over. */
rubato_status tr_buckets_over(struct tr_buckets *buckets, uint32_t *over, struct tr_error *error);
rubato_status tr_buckets_wait(struct tr_buckets *buckets, uint32_t bucket, struct tr_error *error);
/* All have been waited for: the next vector begins. */
void tr_buckets_again(struct tr_buckets *buckets);

#endif
