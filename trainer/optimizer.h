/*
 * optimizer.h -- SGD with momentum: v = mu * v + (g + wd * w); w -= lr * v.
 *
 * Weight decay is added here, where an update is applied, on the parameters of that moment; it
 * never travels in a gradient.
 */
#ifndef TR_OPTIMIZER_H
#define TR_OPTIMIZER_H

#include <stddef.h>

#include "trainer/note.h"

struct tr_optimizer {
	float momentum, weight_decay;
	float *velocity; /* NULL without momentum. */
};

rubato_status tr_optimizer_open(struct tr_optimizer *optimizer, double momentum,
				double weight_decay, size_t count, struct tr_note *note);
/* The vectors are whole; elements begin to end - 1 are updated. */
void tr_optimizer_apply(struct tr_optimizer *optimizer, double rate, const float *gradient,
			float *parameters, size_t begin, size_t end);
void tr_optimizer_close(struct tr_optimizer *optimizer);

#endif
