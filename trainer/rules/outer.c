/* outer.c -- see outer.h; element by element, so that equal means move equally on all ranks. */
#include "trainer/rules/outer.h"

#include <stdlib.h>
#include <string.h>

rubato_status tr_outer_open(struct tr_outer_state *outer, const struct tr_outer_options *options,
			    bool model, const float *parameters, size_t count,
			    struct tr_error *error)
{
	*outer = (struct tr_outer_state) { .options = options, .count = count };
	if (!model && options->kind == TR_OUTER_NONE)
		return RUBATO_OK;
	outer->model = malloc(count * sizeof(float));
	if (options->kind != TR_OUTER_NONE)
		outer->velocity = calloc(count, sizeof(float));
	if (outer->model == NULL || (options->kind != TR_OUTER_NONE && outer->velocity == NULL))
		return tr_fail(error, RUBATO_ERR_MEMORY, "the global model: out of memory");
	memcpy(outer->model, parameters, count * sizeof(float));
	return RUBATO_OK;
}

void tr_outer_close(struct tr_outer_state *outer)
{
	free(outer->model);
	free(outer->velocity);
}

void tr_outer_adopt(struct tr_outer_state *outer, const float *mean, float *start)
{
	if (outer->model != NULL)
		memcpy(outer->model, mean, outer->count * sizeof(float));
	if (start != mean && start != outer->model)
		memcpy(start, mean, outer->count * sizeof(float));
}

/* `lead`: how far ahead of w local steps start, in v. */
static void move_block(struct tr_outer_state *outer, float mu, float step, float lead,
		       const float *mean, float *start)
{
	float *w = outer->model, *v = outer->velocity;

	for (size_t i = 0; i < outer->count; i++) {
		v[i] = mu * v[i] + step * (mean[i] - w[i]);
		w[i] += v[i];
		start[i] = w[i] + lead * v[i];
	}
}

static void move_nesterov(struct tr_outer_state *outer, float mu, float lr, float gain,
			  const float *mean)
{
	float *w = outer->model, *v = outer->velocity;

	for (size_t i = 0; i < outer->count; i++) {
		float d = gain * (mean[i] - w[i]);

		v[i] = mu * v[i] + d;
		w[i] += lr * (d + mu * v[i]);
	}
}

static void move_slowmo(struct tr_outer_state *outer, float mu, float alpha, float rate,
			const float *mean)
{
	float *w = outer->model, *v = outer->velocity;

	for (size_t i = 0; i < outer->count; i++) {
		v[i] = mu * v[i] + (w[i] - mean[i]) / rate;
		w[i] -= alpha * rate * v[i];
	}
}

void tr_outer_move(struct tr_outer_state *outer, double rate, const float *mean, float *start)
{
	const struct tr_outer_options *o = outer->options;
	float mu = (float)o->momentum, lr = (float)o->lr;
	float gain = o->gain == TR_GAIN_ONE ? 1.0f : 1.0f - mu;
	bool shifted = o->base == TR_BASE_SHIFTED;

	if (o->kind == TR_OUTER_NONE || (o->kind == TR_OUTER_SLOWMO && !(rate > 0.0))) {
		tr_outer_adopt(outer, mean, start);
		return;
	}
	if (o->kind == TR_OUTER_BLOCK || (o->kind == TR_OUTER_NESTEROV && !shifted)) {
		float lead = o->kind == TR_OUTER_NESTEROV ? mu : 0.0f;

		move_block(outer, mu, lr * gain, lead, mean, start);
		return;
	}
	if (o->kind == TR_OUTER_SLOWMO)
		move_slowmo(outer, mu, lr, (float)rate, mean);
	else
		move_nesterov(outer, mu, lr, gain, mean);
	if (start != outer->model)
		memcpy(start, outer->model, outer->count * sizeof(float));
}

rubato_status tr_outer_keep(struct tr_outer_state *outer, struct tr_archive *archive,
			    struct tr_error *error)
{
	size_t size_bytes = outer->count * sizeof(float);

	if (outer->model != NULL)
		TR_TRY(tr_archive_bytes(archive, "outer.model", outer->model, size_bytes, error));
	if (outer->velocity != NULL)
		TR_TRY(tr_archive_bytes(archive, "outer.velocity", outer->velocity, size_bytes,
					error));
	return RUBATO_OK;
}
