/* outer.c -- see outer.h; element by element, so that equal means move equally on all ranks. */
#include "trainer/rules/outer.h"

rubato_status tr_outer_open(struct tr_outer_state *outer, const struct tr_vectors *vectors,
			    const struct tr_outer_options *options, bool model,
			    const float *parameters, size_t count, struct tr_error *error)
{
	const char *what = "the global model";

	*outer = (struct tr_outer_state) { .vectors = vectors, .options = options, .count = count };
	if (!model && options->kind == TR_OUTER_NONE)
		return RUBATO_OK;
	TR_TRY(vectors->make(vectors, NULL, count, what, &outer->model, error));
	if (options->kind != TR_OUTER_NONE) {
		TR_TRY(vectors->make(vectors, NULL, count, what, &outer->velocity, error));
		TR_TRY(vectors->make(vectors, NULL, count, what, &outer->way, error));
	}
	vectors->copy(vectors, outer->model, parameters, count);
	return RUBATO_OK;
}

void tr_outer_close(struct tr_outer_state *outer)
{
	const struct tr_vectors *v = outer->vectors;

	if (v == NULL)
		return;
	v->free(v, NULL, outer->model);
	v->free(v, NULL, outer->velocity);
	v->free(v, NULL, outer->way);
}

void tr_outer_adopt(struct tr_outer_state *outer, const float *mean, float *start)
{
	const struct tr_vectors *v = outer->vectors;

	if (outer->model != NULL)
		v->copy(v, outer->model, mean, outer->count);
	if (start != outer->model)
		v->copy(v, start, mean, outer->count);
}

/* `lead`: how far ahead of w local steps start, in v. */
static void move_block(struct tr_outer_state *outer, float mu, float step, float lead,
		       const float *mean, float *start)
{
	const struct tr_vectors *v = outer->vectors;

	v->subtract(v, outer->way, mean, outer->model, outer->count);
	v->combine(v, outer->velocity, mu, outer->velocity, step, outer->way, outer->count);
	v->add(v, outer->model, outer->velocity, outer->count);
	if (start != outer->model)
		v->combine(v, start, 1.0f, outer->model, lead, outer->velocity, outer->count);
}

static void move_nesterov(struct tr_outer_state *outer, float mu, float lr, float gain,
			  const float *mean)
{
	const struct tr_vectors *v = outer->vectors;

	v->subtract(v, outer->way, mean, outer->model, outer->count);
	v->scale(v, outer->way, gain, outer->count);
	v->combine(v, outer->velocity, mu, outer->velocity, 1.0f, outer->way, outer->count);
	v->combine(v, outer->way, 1.0f, outer->way, mu, outer->velocity, outer->count);
	v->combine(v, outer->model, 1.0f, outer->model, lr, outer->way, outer->count);
}

static void move_slowmo(struct tr_outer_state *outer, float mu, float alpha, float rate,
			const float *mean)
{
	const struct tr_vectors *v = outer->vectors;

	v->subtract(v, outer->way, outer->model, mean, outer->count);
	v->divide(v, outer->way, outer->way, rate, outer->count);
	v->combine(v, outer->velocity, mu, outer->velocity, 1.0f, outer->way, outer->count);
	v->combine(v, outer->model, 1.0f, outer->model, -(alpha * rate), outer->velocity,
		   outer->count);
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
	outer->vectors->copy(outer->vectors, start, outer->model, outer->count);
}

rubato_status tr_outer_keep(struct tr_outer_state *outer, struct tr_archive *archive,
			    struct tr_error *error)
{
	if (outer->model != NULL)
		TR_TRY(tr_archive_vector(archive, "outer.model", outer->vectors, outer->model,
					 outer->count, error));
	if (outer->velocity != NULL)
		TR_TRY(tr_archive_vector(archive, "outer.velocity", outer->vectors, outer->velocity,
					 outer->count, error));
	return RUBATO_OK;
}
