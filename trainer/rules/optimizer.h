/*
 * optimizer.h -- from a gradient to an update of the parameters.
 *
 *   sgd    v = mu * v + (g + wd * w);  w -= lr * v
 *   adam   g += wd * w;  m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g * g;
 *          w -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)        (Kingma, Ba 2015)
 *   adamw  the same without wd in g, and first  w -= lr * wd * w         (Loshchilov, Hutter 2019)
 *
 * Weight decay is added here, where an update is applied, on the parameters of that moment; it
 * never travels in a gradient. b1 0.9, b2 0.999, eps 1e-8.
 */
#ifndef TR_OPTIMIZER_H
#define TR_OPTIMIZER_H

#include <stddef.h>

#include "trainer/base/vectors.h"
#include "trainer/checkpoint/archive.h"

#define TR_OPTIMIZER_STATES 2

enum tr_optimizer_kind { TR_SGD, TR_ADAM, TR_ADAMW };
extern const char *const tr_optimizer_names[]; /* NULL-terminated, by kind. */

struct tr_optimizer {
	const struct tr_vectors *vectors;
	enum tr_optimizer_kind kind;
	float momentum, weight_decay;
	float *states[TR_OPTIMIZER_STATES]; /* sgd: v; adam: m, v. NULL: none. */
	uint32_t state_count;
	size_t count;
	uint64_t updates; /* Begun so far: adam's t. */
};

rubato_status tr_optimizer_open(struct tr_optimizer *optimizer, const struct tr_vectors *vectors,
				enum tr_optimizer_kind kind, double momentum, double weight_decay,
				size_t count, struct tr_error *error);
/* Before each update, once; then its elements, in any pieces. */
void tr_optimizer_next(struct tr_optimizer *optimizer);
/* The vectors are whole; elements begin to end - 1 are updated. */
void tr_optimizer_apply(struct tr_optimizer *optimizer, double rate, const float *gradient,
			float *parameters, size_t begin, size_t end);
void tr_optimizer_reset(struct tr_optimizer *optimizer); /* As after open. */
/* Its state goes to a checkpoint, or comes from there. */
rubato_status tr_optimizer_keep(struct tr_optimizer *optimizer, struct tr_archive *archive,
				struct tr_error *error);
void tr_optimizer_close(struct tr_optimizer *optimizer);

/* Scales the gradient so that its norm is at most `most`; 0: leaves it. */
void tr_clip(const struct tr_vectors *vectors, float *gradient, size_t count, double most);

#endif
