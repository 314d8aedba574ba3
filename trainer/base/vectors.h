/*
 * vectors.h -- arithmetic on the flat vectors of a run: parameters, gradient, statistics,
 * optimizer state, and what update rules keep beside them.
 *
 * Rules never touch an element: they ask for operations of this table, so that the same rule runs
 * where the vectors lie. An operation may go on after its call; those of one table happen in the
 * order in which they were asked for. What fails is remembered, leaves the later ones undone, and
 * is what wait() says. To add an operation: here, in vectors.c, and in each other table.
 *
 * No two vectors of a call overlap, unless they are the same.
 */
#ifndef TR_VECTORS_H
#define TR_VECTORS_H

#include <stddef.h>

#include "trainer/base/error.h"

/* v = momentum * v + (g + decay * w); w -= rate * v. */
struct tr_sgd {
	float *parameters, *velocity; /* w; v: NULL without momentum. */
	const float *gradient;
	size_t count;
	float rate, momentum, weight_decay;
};

/*
 * g += coupled * w; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g;
 * w -= decoupled * w; w -= rate * (m * scale1) / (sqrt(v * scale2) + epsilon).
 */
struct tr_adam {
	float *parameters, *first, *second; /* w, m, v. */
	const float *gradient;
	size_t count;
	float rate, beta1, beta2, epsilon, coupled, decoupled, scale1, scale2;
};

struct tr_vectors_own; /* Private to the table. */

struct tr_vectors {
	bool is_host; /* Vectors are the host's memory, and all of that is one. */
	struct tr_vectors_own *own;

	/* All zeros. `comm`: of which collectives take it; NULL: none. `what`: for the error. */
	rubato_status (*make)(const struct tr_vectors *v, rubato_comm *comm, size_t count,
			      const char *what, float **vector, struct tr_error *error);
	void (*free)(const struct tr_vectors *v, rubato_comm *comm,
		     float *vector); /* NULL is fine. */
	/* What was asked for is done, so that others may look; or what failed. */
	rubato_status (*wait)(const struct tr_vectors *v, struct tr_error *error);
	/* Starts an operation of collectives on vectors, behind what was asked for. */
	rubato_status (*start)(const struct tr_vectors *v, rubato_op *op, const char *what,
			       struct tr_error *error);

	/* From and to the host's memory, which is free when they return. */
	void (*put)(const struct tr_vectors *v, float *to, const float *host, size_t count);
	void (*get)(const struct tr_vectors *v, float *host, const float *from, size_t count);

	void (*zero)(const struct tr_vectors *v, float *to, size_t count);
	void (*copy)(const struct tr_vectors *v, float *to, const float *from, size_t count);
	/* to += x; to = x - y; to = factor * to; to = x / divisor. */
	void (*add)(const struct tr_vectors *v, float *to, const float *x, size_t count);
	void (*subtract)(const struct tr_vectors *v, float *to, const float *x, const float *y,
			 size_t count);
	void (*scale)(const struct tr_vectors *v, float *to, float factor, size_t count);
	void (*divide)(const struct tr_vectors *v, float *to, const float *x, float divisor,
		       size_t count);
	/* to = a * x + b * y; to += a * (x - to). */
	void (*combine)(const struct tr_vectors *v, float *to, float a, const float *x, float b,
			const float *y, size_t count);
	void (*approach)(const struct tr_vectors *v, float *to, float a, const float *x,
			 size_t count);
	/* The sum of squares of x, or of x - y; waits. NaN of what failed. */
	double (*square)(const struct tr_vectors *v, const float *x, size_t count);
	double (*square_between)(const struct tr_vectors *v, const float *x, const float *y,
				 size_t count);
	void (*sgd)(const struct tr_vectors *v, const struct tr_sgd *update);
	void (*adam)(const struct tr_vectors *v, const struct tr_adam *update);
};

extern const struct tr_vectors tr_vectors_host; /* Plain loops, each done when it returns. */

/* The host's `host` as a vector: where it lies, or in `room`. */
const float *tr_vectors_take(const struct tr_vectors *v, const float *host, float *room,
			     size_t count);
/* The vector in the host's memory: itself or a copy, until it is unmapped; `changed`: what the host
 * wrote there becomes the vector's. Errors: MEMORY, and what wait() says. */
rubato_status tr_vectors_map(const struct tr_vectors *v, float *vector, size_t count, float **host,
			     struct tr_error *error);
void tr_vectors_unmap(const struct tr_vectors *v, float *vector, size_t count, float *host,
		      bool changed);

#endif
