/* optimizer.c -- one pass over the flat vectors. */
#include "trainer/optimizer.h"

#include <stdlib.h>

rubato_status tr_optimizer_open(struct tr_optimizer *optimizer, double momentum,
				double weight_decay, size_t count, struct tr_note *note)
{
	*optimizer = (struct tr_optimizer) { .momentum = (float)momentum,
					     .weight_decay = (float)weight_decay };
	if (momentum == 0.0)
		return RUBATO_OK;
	optimizer->velocity = calloc(count, sizeof(float));
	if (optimizer->velocity == NULL)
		return tr_fail(note, RUBATO_ERR_MEMORY, "optimizer: out of memory");
	return RUBATO_OK;
}

void tr_optimizer_apply(struct tr_optimizer *optimizer, double rate, const float *gradient,
			float *parameters, size_t begin, size_t end)
{
	float mu = optimizer->momentum, wd = optimizer->weight_decay, lr = (float)rate;
	float *v = optimizer->velocity;

	for (size_t i = begin; v != NULL && i < end; i++) {
		v[i] = mu * v[i] + (gradient[i] + wd * parameters[i]);
		parameters[i] -= lr * v[i];
	}
	for (size_t i = begin; v == NULL && i < end; i++)
		parameters[i] -= lr * (gradient[i] + wd * parameters[i]);
}

void tr_optimizer_close(struct tr_optimizer *optimizer)
{
	free(optimizer->velocity);
	optimizer->velocity = NULL;
}
