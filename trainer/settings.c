/* settings.c -- a table of keys and values a section; and a hash, value by value: the bytes between
 * them are anybody's. */
#include "trainer/settings.h"

#include <jansson.h>

#include "programs/results.h"
#include "trainer/base/agree.h"
#include "trainer/records/metrics.h"

#define DIGITS 17 /* All that a double has. */

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

/* NULL: no memory. */
static json_t *settings_object(const struct tr_options *o, const struct tr_model *model,
			       const struct tr_shuffle *shuffle, const struct tr_rate *rate)
{
	json_t *object =
		json_pack("{s:i,s:s,s:o,s:s,s:o,s:o,s:o,s:o,s:s,s:o}", "version", 1, "algorithm",
			  o->rule->name, "ranks", whole(shuffle->rank_count), "model",
			  tr_model_names[model->kind], "hidden", whole(o->hidden_count), "features",
			  whole(model->feature_count), "outputs", whole(model->output_count),
			  "parameters", whole(model->parameter_count), "loss",
			  model->loss == TR_CROSS_ENTROPY ? "cross-entropy" : "half-square", "data",
			  words(o->data));
	json_t *rest =
		json_pack("{s:o,s:o,s:o,s:o,s:o,s:b,s:s,s:f,s:f,s:f,s:o,s:o}", "rows",
			  whole(shuffle->row_count), "batch", whole(o->batch), "steps",
			  whole(rate->step_count), "epoch_steps", whole(shuffle->epoch_steps),
			  "seed", results_whole(o->seed), "shuffle", !o->no_shuffle, "optimizer",
			  tr_optimizer_names[o->optimizer], "momentum", o->momentum, "weight_decay",
			  o->weight_decay, "clip", o->clip, "rate", rate_object(rate), "rule",
			  tr_rule_options_json(o->rule, o->own));

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
	return tr_json_write(options->out, "run.json",
			     settings_object(options, model, shuffle, rate), DIGITS, error);
}

/* Takes out what may differ. */
static void strip(json_t *settings)
{
	json_object_del(settings, "steps");
	json_object_del(settings, "data");
	json_object_del(json_object_get(settings, "rate"), "step_count");
}

bool tr_settings_other(const struct tr_options *options, const struct tr_model *model,
		       const struct tr_shuffle *shuffle, const struct tr_rate *rate)
{
	json_t *mine = settings_object(options, model, shuffle, rate), *there = NULL;
	char path[TR_PATH_BYTES];
	struct tr_error error;
	bool other;

	if (tr_path(path, &error, "%s/run.json", options->out) == RUBATO_OK)
		there = json_load_file(path, 0, NULL);
	strip(mine);
	strip(there);
	other = there != NULL && json_equal(mine, there) != 1;
	json_decref(mine);
	json_decref(there);
	return other;
}

json_t *tr_settings_given(const struct tr_options *options)
{
	const struct option_words *given = &options->line->words;
	json_t *o = json_object();

	for (int t = 0; t < TR_TABLE_FILES; t++)
		for (const struct option *row = options->line->tables[t].rows; row->name; row++) {
			const char *value = options_text(given, row->name);

			if (options_given(given, row->name))
				json_object_set_new(o, row->name,
						    value == NULL ? json_true() : words(value));
		}
	return o;
}

/* ---- The hash ---- */

#define ADD(value) hash = tr_hash(hash, &(value), sizeof(value))

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
	ADD(data->hash);
	return hash;
}

uint64_t tr_settings_hash(const struct tr_options *o, const struct tr_model *model,
			  const struct tr_data *data)
{
	uint64_t hash = tr_rule_options_hash(TR_HASH_INIT, o->rule, o->own);

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
	ADD(o->no_shuffle);
	ADD(o->augment);
	ADD(o->bn);
	ADD(o->precision);
	ADD(o->clip);
	hash = add_model(hash, model, data);
	return add_time(hash, &o->compute_time, &o->delay);
}

uint64_t tr_settings_network(const struct tr_options *o)
{
	const rubato_sim_options *world = &o->world;
	uint64_t hash = TR_HASH_INIT;

	if (!o->simulate)
		return 0;
	ADD(world->latency_ns);
	ADD(world->bandwidth);
	ADD(world->node_latency_ns);
	ADD(world->node_bandwidth);
	ADD(world->costs);
	ADD(world->jitter);
	ADD(world->ranks_per_node);
	return hash != 0 ? hash : 1;
}
