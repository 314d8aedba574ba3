/* optimizer.c -- one pass over the flat vectors. */
#include "trainer/rules/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const tr_optimizer_names[] = { "sgd", "adam", "adamw", NULL };

#define BETA1 0.9f
#define BETA2 0.999f
#define EPSILON 1e-8f

rubato_status tr_optimizer_open(struct tr_optimizer *optimizer, enum tr_optimizer_kind kind,
				double momentum, double weight_decay, size_t count,
				struct tr_error *error)
{
	*optimizer = (struct tr_optimizer) { .kind = kind,
					     .momentum = (float)momentum,
					     .weight_decay = (float)weight_decay,
					     .state_count = kind != TR_SGD ? 2 : momentum != 0.0,
					     .count = count };
	for (uint32_t i = 0; i < optimizer->state_count; i++) {
		optimizer->states[i] = calloc(count, sizeof(float));
		if (optimizer->states[i] == NULL)
			return tr_fail(error, RUBATO_ERR_MEMORY, "optimizer: out of memory");
	}
	return RUBATO_OK;
}

void tr_optimizer_next(struct tr_optimizer *optimizer)
{
	optimizer->updates++;
}

static void apply_sgd(struct tr_optimizer *optimizer, float lr, const float *gradient,
		      float *parameters, size_t begin, size_t end)
{
	float mu = optimizer->momentum, wd = optimizer->weight_decay;
	float *v = optimizer->states[0];

	for (size_t i = begin; v != NULL && i < end; i++) {
		v[i] = mu * v[i] + (gradient[i] + wd * parameters[i]);
		parameters[i] -= lr * v[i];
	}
	for (size_t i = begin; v == NULL && i < end; i++)
		parameters[i] -= lr * (gradient[i] + wd * parameters[i]);
}

static void apply_adam(struct tr_optimizer *optimizer, float lr, const float *gradient,
		       float *parameters, size_t begin, size_t end)
{
	float coupled = optimizer->kind == TR_ADAM ? optimizer->weight_decay : 0.0f;
	float decoupled = optimizer->kind == TR_ADAMW ? lr * optimizer->weight_decay : 0.0f;
	float *m = optimizer->states[0], *v = optimizer->states[1];
	double t = (double)optimizer->updates;
	float scale1 = (float)(1.0 / (1.0 - pow(BETA1, t)));
	float scale2 = (float)(1.0 / (1.0 - pow(BETA2, t)));

	for (size_t i = begin; i < end; i++) {
		float g = gradient[i] + coupled * parameters[i];

		m[i] = BETA1 * m[i] + (1.0f - BETA1) * g;
		v[i] = BETA2 * v[i] + (1.0f - BETA2) * g * g;
		parameters[i] -= decoupled * parameters[i];
		parameters[i] -= lr * (m[i] * scale1) / (sqrtf(v[i] * scale2) + EPSILON);
	}
}

void tr_optimizer_apply(struct tr_optimizer *optimizer, double rate, const float *gradient,
			float *parameters, size_t begin, size_t end)
{
	if (optimizer->kind == TR_SGD)
		apply_sgd(optimizer, (float)rate, gradient, parameters, begin, end);
	else
		apply_adam(optimizer, (float)rate, gradient, parameters, begin, end);
}

void tr_optimizer_reset(struct tr_optimizer *optimizer)
{
	for (uint32_t i = 0; i < optimizer->state_count; i++)
		memset(optimizer->states[i], 0, optimizer->count * sizeof(float));
	optimizer->updates = 0;
}

rubato_status tr_optimizer_keep(struct tr_optimizer *optimizer, struct tr_archive *archive,
				struct tr_error *error)
{
	static const char *const names[TR_OPTIMIZER_STATES] = { "optimizer 0", "optimizer 1" };

	for (uint32_t i = 0; i < optimizer->state_count; i++)
		TR_TRY(tr_archive_bytes(archive, names[i], optimizer->states[i],
					optimizer->count * sizeof(float), error));
	return tr_archive_value(archive, "optimizer updates", optimizer->updates, error);
}

void tr_optimizer_close(struct tr_optimizer *optimizer)
{
	for (uint32_t i = 0; i < TR_OPTIMIZER_STATES; i++) {
		free(optimizer->states[i]);
		optimizer->states[i] = NULL;
	}
}

void tr_clip(float *gradient, size_t count, double most)
{
	double sum = 0.0;

	if (most == 0.0)
		return;
	for (size_t i = 0; i < count; i++)
		sum += (double)gradient[i] * gradient[i];
	if (!(sum > most * most))
		return;
	float scale = (float)(most / sqrt(sum));
	for (size_t i = 0; i < count; i++)
		gradient[i] *= scale;
}
