/* optimizer.c -- one operation on the flat vectors. */
#include "trainer/rules/optimizer.h"

#include <math.h>

const char *const tr_optimizer_names[] = { "sgd", "adam", "adamw", NULL };

#define BETA1 0.9f
#define BETA2 0.999f
#define EPSILON 1e-8f

rubato_status tr_optimizer_open(struct tr_optimizer *optimizer, const struct tr_vectors *vectors,
				enum tr_optimizer_kind kind, double momentum, double weight_decay,
				size_t count, struct tr_error *error)
{
	*optimizer = (struct tr_optimizer) { .vectors = vectors,
					     .kind = kind,
					     .momentum = (float)momentum,
					     .weight_decay = (float)weight_decay,
					     .state_count = kind != TR_SGD ? 2 : momentum != 0.0,
					     .count = count };
	for (uint32_t i = 0; i < optimizer->state_count; i++)
		TR_TRY(vectors->make(vectors, NULL, count, "optimizer", &optimizer->states[i],
				     error));
	return RUBATO_OK;
}

void tr_optimizer_next(struct tr_optimizer *optimizer)
{
	optimizer->updates++;
}

static void apply_sgd(struct tr_optimizer *optimizer, float lr, const float *gradient,
		      float *parameters, size_t begin, size_t end)
{
	float *velocity = optimizer->states[0];
	const struct tr_sgd update = { .parameters = parameters + begin,
				       .velocity = velocity == NULL ? NULL : velocity + begin,
				       .gradient = gradient + begin,
				       .count = end - begin,
				       .rate = lr,
				       .momentum = optimizer->momentum,
				       .weight_decay = optimizer->weight_decay };

	optimizer->vectors->sgd(optimizer->vectors, &update);
}

static void apply_adam(struct tr_optimizer *optimizer, float lr, const float *gradient,
		       float *parameters, size_t begin, size_t end)
{
	float decay = optimizer->weight_decay;
	double t = (double)optimizer->updates;
	const struct tr_adam update = {
		.parameters = parameters + begin,
		.first = optimizer->states[0] + begin,
		.second = optimizer->states[1] + begin,
		.gradient = gradient + begin,
		.count = end - begin,
		.rate = lr,
		.beta1 = BETA1,
		.beta2 = BETA2,
		.epsilon = EPSILON,
		.coupled = optimizer->kind == TR_ADAM ? decay : 0.0f,
		.decoupled = optimizer->kind == TR_ADAMW ? lr * decay : 0.0f,
		.scale1 = (float)(1.0 / (1.0 - pow(BETA1, t))),
		.scale2 = (float)(1.0 / (1.0 - pow(BETA2, t))),
	};

	optimizer->vectors->adam(optimizer->vectors, &update);
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
		optimizer->vectors->zero(optimizer->vectors, optimizer->states[i],
					 optimizer->count);
	optimizer->updates = 0;
}

rubato_status tr_optimizer_keep(struct tr_optimizer *optimizer, struct tr_archive *archive,
				struct tr_error *error)
{
	static const char *const names[TR_OPTIMIZER_STATES] = { "optimizer 0", "optimizer 1" };

	for (uint32_t i = 0; i < optimizer->state_count; i++)
		TR_TRY(tr_archive_vector(archive, names[i], optimizer->vectors,
					 optimizer->states[i], optimizer->count, error));
	return tr_archive_value(archive, "optimizer updates", optimizer->updates, error);
}

void tr_optimizer_close(struct tr_optimizer *optimizer)
{
	for (uint32_t i = 0; i < TR_OPTIMIZER_STATES; i++) {
		if (optimizer->states[i] != NULL)
			optimizer->vectors->free(optimizer->vectors, NULL, optimizer->states[i]);
		optimizer->states[i] = NULL;
	}
}

void tr_clip(const struct tr_vectors *vectors, float *gradient, size_t count, double most)
{
	double sum;

	if (most == 0.0)
		return;
	sum = vectors->square(vectors, gradient, count);
	if (sum > most * most)
		vectors->scale(vectors, gradient, (float)(most / sqrt(sum)), count);
}
