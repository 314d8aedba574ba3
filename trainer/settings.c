/* settings.c -- a table of keys and values a section; and a hash, value by value: the bytes between
 * them are anybody's. */
#include "trainer/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/agree.h"
#include "trainer/base/npy.h"

#define DIGITS JSON_REAL_PRECISION(17)

static const char *const states[] = { "local", "average", "reset" };

static json_t *words(const char *word)
{
	json_t *text = word == NULL ? NULL : json_string(word);

	return text == NULL ? json_null() : text; /* A folder's name may be no UTF-8. */
}

static json_t *whole(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *rate_object(const struct tr_rate *rate)
{
	static const char *const kinds[] = { [TR_RATE_CONSTANT] = "constant",
					     [TR_RATE_COSINE] = "cosine",
					     [TR_RATE_LINEAR] = "linear",
					     [TR_RATE_STEP] = "step" };

	return json_pack("{s:s,s:f,s:f,s:o,s:o,s:o}", "kind", kinds[rate->kind], "base", rate->base,
			 "factor", rate->factor, "every", whole(rate->every), "warmup_steps",
			 whole(rate->warmup_steps), "step_count", whole(rate->step_count));
}

static json_t *lagged_object(const struct tr_rule_options *own)
{
	return json_pack("{s:o,s:o,s:s,s:s,s:b,s:s}", "accumulate", whole(own->accumulate), "lag",
			 whole(own->lag), "lag_comp",
			 own->lag_comp == TR_LAG_COMP_NONE ? "none" : "lookahead", "first_step",
			 own->first_step == TR_FIRST_SKIP ? "skip" : "zero", "rate_by_count",
			 own->rate_by_count, "work",
			 own->sampler == TR_SAMPLER_STATIC ? "static" : "shared");
}

static json_t *averaging_object(const struct tr_rule_options *own)
{
	static const char *const schedules[] = { "const", "adp", "adacomm", "post-local" };
	static const char *const outers[] = { "none", "block", "slowmo", "nesterov" };
	static const char *const wires[] = { "f32", "bf16", "int8" };

	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:f,s:f,s:s,s:s,s:s,s:f,s:s}", "k",
			 whole(own->k), "k1", whole(own->k1), "k2", whole(own->k2), "group",
			 whole(own->group), "period", whole(own->period), "schedule",
			 schedules[own->schedule], "outer", outers[own->outer], "outer_momentum",
			 own->outer_momentum, "outer_lr", own->outer_lr, "outer_gain",
			 own->outer_gain == TR_GAIN_ONE ? "1" : "1-mu", "nesterov_base",
			 own->nesterov_base == TR_BASE_UNSHIFTED ? "unshifted" : "shifted",
			 "opt_state", states[own->opt_state], "pull", own->pull, "wire",
			 wires[own->compression]);
}

static json_t *eager_object(const struct tr_rule_options *own)
{
	static const char *const collections[] = { "each", "own", "latest" };
	static const char *const lates[] = { "accumulate", "latest", "drop" };
	static const char *const divisors[] = { "ranks", "contributors", "samples" };
	const rubato_partial_options *p = &own->partial;

	return json_pack("{s:s,s:o,s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:s,s:s}", "policy",
			 rubato_policy_name(p->policy), "quorum", whole(p->quorum), "rounds",
			 p->rounds == RUBATO_ROUNDS_ALIGNED ? "aligned" : "free", "late",
			 lates[p->late], "collect", collections[p->collection], "normalise",
			 divisors[p->normalise], "depth", whole(p->depth), "model_sync_every",
			 whole(own->model_sync_every), "work",
			 own->sampler == TR_SAMPLER_STATIC ? "static" : "shared", "lag_comp",
			 own->lag_comp == TR_LAG_COMP_NONE ? "none" : "lookahead", "opt_state",
			 states[own->opt_state]);
}

/* The options that the rule uses. */
static json_t *rule_object(const struct tr_options *o)
{
	if (strcmp(o->rule->name, "sync") == 0)
		return json_object();
	if (strcmp(o->rule->name, "laga") == 0)
		return lagged_object(&o->own);
	if (strcmp(o->rule->name, "eager") == 0)
		return eager_object(&o->own);
	return averaging_object(&o->own);
}

/* NULL: no memory. */
static json_t *settings_object(const struct tr_options *o, const struct tr_model *model,
			       const struct tr_shuffle *shuffle, const struct tr_rate *rate)
{
	json_t *object =
		json_pack("{s:i,s:s,s:o,s:s,s:o,s:o,s:o,s:o,s:s,s:o}", "version", 1, "algorithm",
			  o->rule->name, "ranks", whole(shuffle->rank_count), "model",
			  tr_model_name(model->kind), "hidden", whole(o->hidden_count), "features",
			  whole(model->feature_count), "outputs", whole(model->output_count),
			  "parameters", whole(model->parameter_count), "loss",
			  model->loss == TR_CROSS_ENTROPY ? "cross-entropy" : "half-square", "data",
			  words(o->data));
	json_t *rest = json_pack("{s:o,s:o,s:o,s:o,s:o,s:b,s:s,s:f,s:f,s:f,s:o,s:o}", "rows",
				 whole(shuffle->row_count), "batch", whole(o->batch), "steps",
				 whole(rate->step_count), "epoch_steps",
				 whole(shuffle->epoch_steps), "seed", whole(o->seed), "shuffle",
				 o->shuffle, "optimizer", tr_optimizer_names[o->optimizer],
				 "momentum", o->momentum, "weight_decay", o->weight_decay, "clip",
				 o->own.clip, "rate", rate_object(rate), "rule", rule_object(o));

	if (object == NULL || rest == NULL || json_object_update(object, rest) != 0) {
		json_decref(object);
		object = NULL;
	}
	json_decref(rest);
	return object;
}

rubato_status tr_settings_write(const struct tr_options *options, const struct tr_model *model,
				const struct tr_shuffle *shuffle, const struct tr_rate *rate,
				struct tr_error *error)
{
	json_t *object = settings_object(options, model, shuffle, rate);
	char *text = NULL, path[4200];
	rubato_status err;

	if (object != NULL)
		text = json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER | DIGITS);
	json_decref(object);
	if (text == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "run.json: out of memory");
	err = tr_path(path, sizeof(path), error, "%s/run.json", options->out);
	if (err == RUBATO_OK)
		err = tr_file_replace(path, text, strlen(text), "\n", 1, error);
	free(text);
	return err;
}

json_t *tr_settings_given(const struct tr_options *options)
{
	json_t *o = json_object();
	const char *name, *value;

	for (uint32_t i = 0; i < tr_options_setting_count(); i++) {
		json_t *item;

		if (!tr_options_setting(options, i, &name, &value))
			continue;
		item = value == NULL ? json_true() : json_string(value);
		json_object_set_new(o, name, item == NULL ? json_null() : item); /* No UTF-8. */
	}
	return o;
}

/* ---- The hash ---- */

#define ADD(value) hash = tr_hash(hash, &(value), sizeof(value))

static uint64_t add_rule(uint64_t hash, const struct tr_rule_options *o)
{
	ADD(o->accumulate);
	ADD(o->lag);
	ADD(o->lag_comp);
	ADD(o->first_step);
	ADD(o->rate_by_count);
	ADD(o->k);
	ADD(o->k1);
	ADD(o->k2);
	ADD(o->group);
	ADD(o->period);
	ADD(o->period_max);
	ADD(o->schedule);
	ADD(o->adapt_low);
	ADD(o->adapt_high);
	ADD(o->adapt_sample_steps);
	ADD(o->outer);
	ADD(o->outer_momentum);
	ADD(o->outer_lr);
	ADD(o->outer_gain);
	ADD(o->nesterov_base);
	ADD(o->opt_state);
	ADD(o->pull);
	ADD(o->compression);
	ADD(o->model_sync_every);
	ADD(o->bn);
	ADD(o->sampler);
	ADD(o->clip);
	return hash;
}

static uint64_t add_partial(uint64_t hash, const rubato_partial_options *p)
{
	ADD(p->policy);
	ADD(p->rounds);
	ADD(p->late);
	ADD(p->collection);
	ADD(p->normalise);
	ADD(p->quorum);
	ADD(p->group);
	ADD(p->deadline_ns);
	ADD(p->window_ns);
	ADD(p->depth);
	ADD(p->full_every);
	ADD(p->max_absence);
	return hash;
}

static uint64_t add_time(uint64_t hash, const struct tr_compute_time *compute_time,
			 const struct tr_delay *delay)
{
	ADD(compute_time->kind);
	ADD(compute_time->span_ns);
	ADD(compute_time->forward);
	for (size_t i = 0; i < compute_time->trace_count; i++)
		ADD(compute_time->trace_ns[i]);
	ADD(delay->kind);
	ADD(delay->rank);
	for (uint32_t i = 0; i < delay->count; i++)
		ADD(delay->ns[i]);
	return hash;
}

static uint64_t add_model(uint64_t hash, const struct tr_model *model, const struct tr_data *data)
{
	const struct tr_sequence *s = &model->sequence;

	ADD(model->kind);
	ADD(model->loss);
	ADD(model->parameter_count);
	ADD(model->feature_count);
	ADD(s->vocabulary);
	ADD(s->length);
	ADD(s->hidden);
	ADD(s->layers);
	ADD(s->width);
	ADD(s->heads);
	ADD(data->train.rows);
	ADD(data->test.rows);
	return hash;
}

uint64_t tr_settings_hash(const struct tr_options *o, const struct tr_model *model,
			  const struct tr_data *data)
{
	uint64_t hash = tr_hash(TR_HASH_INIT, o->rule->name, strlen(o->rule->name));

	ADD(o->optimizer);
	ADD(o->momentum);
	ADD(o->weight_decay);
	ADD(o->rate.kind);
	ADD(o->rate.base);
	ADD(o->rate.factor);
	ADD(o->rate.every);
	ADD(o->rate.warmup_steps);
	ADD(o->batch);
	ADD(o->bucket_bytes);
	ADD(o->eval_every);
	ADD(o->report_every);
	ADD(o->seed);
	ADD(o->shuffle);
	ADD(o->augment);
	hash = add_model(hash, model, data);
	hash = add_rule(hash, &o->own);
	hash = add_partial(hash, &o->own.partial);
	return add_time(hash, &o->compute_time, &o->delay);
}
