/* rule.c -- the rules of this version, and what follows from the rows of their options. */
#include "trainer/rules/rule.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/agree.h"

#define NAMES_BYTES 128 /* Of rules, joined. */

#define AT(name) &tr_rule_##name,
static const struct tr_rule *const rules[] = { TR_RULES(AT) };
#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

const struct tr_rule *tr_rule_at(size_t index)
{
	return index < RULE_COUNT ? rules[index] : NULL;
}

const char *const *tr_rule_names(void)
{
#define NAME(name) #name,
	static const char *const names[] = { TR_RULES(NAME) NULL };

	return names;
}

rubato_status tr_rule_open(struct tr_rule_state **out, const struct tr_rule *rule,
			   struct tr_rule_context *ctx)
{
	struct tr_rule_state *state = calloc(1, rule->state_bytes);
	rubato_status err;

	if (state == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "%s: out of memory", rule->name);
	err = rule->open(state, ctx);
	if (err)
		tr_rule_close(rule, state);
	else
		*out = state;
	return err;
}

void tr_rule_close(const struct tr_rule *rule, struct tr_rule_state *state)
{
	if (state != NULL)
		rule->close(state);
	free(state);
}

/* ---- What rules do alike ---- */

void tr_apply_gradient(struct tr_rule_context *ctx, double rate)
{
	tr_clip(ctx->vectors, ctx->gradient, ctx->parameter_count, ctx->clip);
	tr_optimizer_next(ctx->optimizer);
	tr_optimizer_apply(ctx->optimizer, rate, ctx->gradient, ctx->parameters, 0,
			   ctx->parameter_count);
}

void tr_local_step(struct tr_rule_context *ctx, uint64_t step)
{
	tr_apply_gradient(ctx, tr_rate_at(ctx->rate, step));
}

void tr_count_round(struct tr_rule_context *ctx, uint64_t fresh, uint64_t contributors)
{
	ctx->counts.rounds++;
	ctx->counts.fresh_sum += fresh;
	ctx->counts.contributors_sum += contributors;
}

rubato_status tr_average(struct tr_rule_context *ctx, float *values, size_t count, const char *what)
{
	TR_TRY(ctx->vectors->wait(ctx->vectors, ctx->error));
	return tr_check(
		ctx->error,
		rubato_allreduce(ctx->comm, values, values, count, RUBATO_FLOAT32, RUBATO_AVG),
		what);
}

/* ---- Rows ---- */

static const struct tr_option_group *groups_of(const struct tr_rule *rule)
{
	static const struct tr_option_group none = { NULL, 0 };

	return rule->groups == NULL ? &none : rule->groups;
}

static const struct option *row_of(const struct tr_rule *rule, const char *name, size_t *at)
{
	for (const struct tr_option_group *g = groups_of(rule); g->rows != NULL; g++)
		for (const struct option *row = g->rows; row->name != NULL; row++)
			if (strcmp(row->name, name) == 0) {
				*at = g->at + row->at;
				return row;
			}
	return NULL;
}

const struct option *tr_rule_option(const struct tr_rule *rule, struct tr_rule_options *own,
				    const char *name, void **place)
{
	size_t at = 0;
	const struct option *row = row_of(rule, name, &at);

	*place = (char *)own + at;
	return row;
}

/* "a, b": the rules that have the option. */
static void takers_join(const char *name, char names[NAMES_BYTES])
{
	size_t at;

	names[0] = '\0';
	for (size_t i = 0; i < RULE_COUNT; i++)
		if (row_of(rules[i], name, &at) != NULL)
			snprintf(names + strlen(names), NAMES_BYTES - strlen(names), "%s%s",
				 names[0] == '\0' ? "" : ", ", rules[i]->name);
}

static const char *preset_of(const struct tr_rule *rule, const char *name)
{
	for (const struct tr_rule_preset *p = rule->presets; p != NULL && p->name != NULL; p++)
		if (strcmp(p->name, name) == 0)
			return p->value;
	return NULL;
}

/* " (8; local: 32)", or nothing. */
static void presets_join(const struct option *row, char text[NAMES_BYTES])
{
	if (row->preset == NULL) {
		text[0] = '\0';
		return;
	}
	snprintf(text, NAMES_BYTES, " (%s", row->preset);
	for (size_t i = 0; i < RULE_COUNT; i++)
		if (preset_of(rules[i], row->name) != NULL)
			snprintf(text + strlen(text), NAMES_BYTES - strlen(text), "; %s: %s",
				 rules[i]->name, preset_of(rules[i], row->name));
	strncat(text, ")", NAMES_BYTES - strlen(text) - 1);
}

static bool rows_add(struct tr_rule_rows *rows, const struct option *row)
{
	char names[NAMES_BYTES], presets[NAMES_BYTES], *text;

	for (uint32_t i = 0; i < rows->count; i++)
		if (strcmp(rows->rows[i].name, row->name) == 0)
			return true;
	assert(rows->count + 1 < TR_RULE_ROWS_MAX);
	takers_join(row->name, names);
	presets_join(row, presets);
	if (asprintf(&text, "%s: %s%s", names, row->help, presets) < 0)
		return false;
	rows->rows[rows->count] = *row;
	rows->rows[rows->count].help = text;
	rows->rows[rows->count].preset = NULL;
	rows->texts[rows->count++] = text;
	return true;
}

bool tr_rule_rows_make(struct tr_rule_rows *rows)
{
	*rows = (struct tr_rule_rows) { .count = 0 };
	for (size_t i = 0; i < RULE_COUNT; i++)
		for (const struct tr_option_group *g = groups_of(rules[i]); g->rows != NULL; g++)
			for (const struct option *row = g->rows; row->name != NULL; row++)
				if (!rows_add(rows, row)) {
					tr_rule_rows_free(rows);
					return false;
				}
	return true;
}

void tr_rule_rows_free(struct tr_rule_rows *rows)
{
	while (rows->count > 0)
		free(rows->texts[--rows->count]);
}

/* ---- Values ---- */

struct tr_rule_options *tr_rule_options_new(const struct tr_rule *rule)
{
	struct tr_rule_options *own;
	struct option_error said;
	bool good = true;
	void *place;

	own = calloc(1, rule->options_bytes == 0 ? sizeof(*own) : rule->options_bytes);
	if (own == NULL)
		return NULL;
	own->gradient_depth = TR_DEPTH_DEFAULT;
	for (const struct tr_option_group *g = groups_of(rule); g->rows != NULL; g++)
		good = good && options_default(g->rows, (char *)own + g->at, &said);
	for (const struct tr_rule_preset *p = rule->presets; p != NULL && p->name != NULL; p++) {
		const struct option *row = tr_rule_option(rule, own, p->name, &place);

		good = good && row != NULL && option_read(row, p->value, place, &said);
	}
	assert(good); /* Its own words. */
	return own;
}

static rubato_status refuse_strangers(const struct tr_rule *rule, const struct tr_rule_rows *rows,
				      const struct tr_rule_request *request, struct tr_error *error)
{
	char names[NAMES_BYTES];
	size_t at;

	for (uint32_t i = 0; i < rows->count; i++) {
		const char *name = rows->rows[i].name;

		if (!options_given(request->words, name) || row_of(rule, name, &at) != NULL)
			continue;
		takers_join(name, names);
		return tr_refuse(error, "--%s: --algorithm %s has no use for it (%s)", name,
				 rule->name, names);
	}
	return RUBATO_OK;
}

rubato_status tr_rule_options_read(const struct tr_rule *rule, const struct tr_rule_rows *rows,
				   const struct tr_rule_request *request,
				   struct tr_rule_options *own, struct tr_error *error)
{
	struct option_error said;

	TR_TRY(refuse_strangers(rule, rows, request, error));
	for (const struct tr_option_group *g = groups_of(rule); g->rows != NULL; g++)
		TR_TRY(tr_take(error,
			       options_apply(request->words, g->rows, (char *)own + g->at, &said),
			       &said));
	return rule->judge == NULL ? RUBATO_OK : rule->judge(own, request, error);
}

rubato_status tr_option_needs(const struct tr_rule_request *request, const char *name, bool used,
			      const char *needs, struct tr_error *error)
{
	if (used || !options_given(request->words, name))
		return RUBATO_OK;
	return tr_refuse(error, "--%s: of no use without %s", name, needs);
}

json_t *tr_rule_options_json(const struct tr_rule *rule, const struct tr_rule_options *own)
{
	json_t *object = json_object();

	for (const struct tr_option_group *g = groups_of(rule); g->rows != NULL; g++) {
		json_t *part = options_json(g->rows, (const char *)own + g->at);
		bool good = part != NULL && json_object_update(object, part) == 0;

		json_decref(part);
		if (!good) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

uint64_t tr_rule_options_hash(uint64_t hash, const struct tr_rule *rule,
			      const struct tr_rule_options *own)
{
	hash = tr_hash(hash, rule->name, strlen(rule->name));
	for (const struct tr_option_group *g = groups_of(rule); g->rows != NULL; g++)
		for (const struct option *row = g->rows; row->name != NULL; row++)
			hash = tr_hash(hash, (const char *)own + g->at + row->at,
				       options_size(row));
	return hash;
}
