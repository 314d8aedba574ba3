/* options_rule.c -- the rules' own options: which rule takes which, and what their words mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/values.h"
#include "trainer/options_words.h"

enum { /* Rules, as bits. */
       SYNC = 1,
       LAGA = 2,
       KAVG = 4,
       HIER = 8,
       PERIODIC = 16,
       ADPSGD = 32,
       EAGER = 64,
       LOCAL = 128,
       AVERAGING = KAVG | HIER | PERIODIC | ADPSGD | LOCAL,
       ANY = 255
};

static const struct {
	const char *name;
	unsigned bit;
} rule_bits[] = { { "sync", SYNC },   { "laga", LAGA },         { "kavg", KAVG },
		  { "hier", HIER },   { "periodic", PERIODIC }, { "adpsgd", ADPSGD },
		  { "eager", EAGER }, { "local", LOCAL } };

/* In the order of enum word, from WORD_ACCUMULATE on. */
static const struct {
	const char *name;
	unsigned rules;
} own[] = {
	{ "--accumulate", LAGA },
	{ "--lag", LAGA },
	{ "--lag-comp", LAGA | EAGER },
	{ "--first-step", LAGA },
	{ "--rate-by-count", LAGA },
	{ "--k", KAVG | LOCAL },
	{ "--k1", HIER },
	{ "--k2", HIER },
	{ "--group", HIER },
	{ "--period", PERIODIC | ADPSGD },
	{ "--period-max", PERIODIC | ADPSGD },
	{ "--schedule", PERIODIC | ADPSGD },
	{ "--adapt-low", PERIODIC | ADPSGD },
	{ "--adapt-high", PERIODIC | ADPSGD },
	{ "--adapt-sample-steps", PERIODIC | ADPSGD },
	{ "--outer", KAVG | HIER | LOCAL },
	{ "--outer-momentum", KAVG | HIER | LOCAL },
	{ "--outer-lr", KAVG | HIER | LOCAL },
	{ "--outer-gain", KAVG | HIER | LOCAL },
	{ "--nesterov-base", KAVG | HIER | LOCAL },
	{ "--opt-state", AVERAGING | EAGER },
	{ "--pull", LOCAL },
	{ "--wire", AVERAGING },
	{ "--policy", EAGER },
	{ "--rounds", EAGER },
	{ "--late", EAGER },
	{ "--normalise", EAGER },
	{ "--collect", EAGER },
	{ "--full-every", EAGER },
	{ "--max-absence", EAGER },
	{ "--window", EAGER },
	{ "--model-sync-every", EAGER },
	{ "--bn", ANY },
	{ "--work", LAGA | EAGER },
	{ "--clip", ANY },
};
_Static_assert(sizeof(own) / sizeof(own[0]) == WORD_COUNT - WORD_ACCUMULATE, "one row each");

static unsigned bit_of(const char *rule)
{
	for (size_t i = 0; i < sizeof(rule_bits) / sizeof(rule_bits[0]); i++)
		if (strcmp(rule_bits[i].name, rule) == 0)
			return rule_bits[i].bit;
	return 0;
}

static rubato_status refuse_strangers(unsigned rule, const char *name, const struct words *w,
				      struct tr_error *error)
{
	char takers[128] = "";

	for (int i = WORD_ACCUMULATE; i < WORD_COUNT; i++) {
		unsigned rules = own[i - WORD_ACCUMULATE].rules;

		if (!w->given[i] || (rules & rule) != 0)
			continue;
		for (size_t r = 0; r < sizeof(rule_bits) / sizeof(rule_bits[0]); r++)
			if ((rules & rule_bits[r].bit) != 0)
				snprintf(takers + strlen(takers), sizeof(takers) - strlen(takers),
					 "%s%s", takers[0] == '\0' ? "" : ", ", rule_bits[r].name);
		return tr_refuse(error, "%s: --algorithm %s has no use for it (%s)",
				 own[i - WORD_ACCUMULATE].name, name, takers);
	}
	return RUBATO_OK;
}

struct reader { /* Reads words one after the other; the first that is wrong ends it. */
	const struct words *words;
	struct tr_error *error;
	rubato_status err;
};

static const char *next(struct reader *r, enum word word)
{
	return r->err == RUBATO_OK ? r->words->at[word] : NULL;
}

static void count(struct reader *r, enum word word, uint64_t least, uint64_t most, uint64_t *out)
{
	const char *text = next(r, word);

	if (text != NULL)
		r->err = tr_parse_count(own[word - WORD_ACCUMULATE].name, text, least, most, out,
					r->error);
}

static void count32(struct reader *r, enum word word, uint32_t least, uint32_t most, uint32_t *out)
{
	uint64_t value = *out;

	count(r, word, least, most, &value);
	*out = (uint32_t)value;
}

static void number(struct reader *r, enum word word, double least, double most, double *out)
{
	const char *text = next(r, word);

	if (text != NULL)
		r->err = tr_parse_number(own[word - WORD_ACCUMULATE].name, text, least, most, out,
					 r->error);
}

static const char *const lag_comps[] = { "none", "lookahead", NULL };
static const char *const first_steps[] = { "skip", "zero", NULL };
static const char *const schedules[] = { "const", "adp", "adacomm", "post-local", NULL };
static const char *const outers[] = { "none", "block", "slowmo", "nesterov", NULL };
static const char *const outer_gains[] = { "1", "1-mu", NULL };
static const char *const nesterov_bases[] = { "unshifted", "shifted", NULL };
static const char *const opt_states[] = { "local", "average", "reset", NULL };
static const char *const wires[] = { "f32", "bf16", "int8", NULL };
static const char *const rounds[] = { "aligned", "free", NULL };
static const char *const lates[] = { "accumulate", "latest", "drop", NULL };
static const char *const normalises[] = { "ranks", "contributors", "samples", NULL };
static const char *const collections[] = { "each[:D]", "own", "latest", NULL };
static const char *const bns[] = { "local", "average", NULL };
static const char *const works[] = { "static", "shared", NULL };

const char *const *tr_rule_choices(int word)
{
	static const struct {
		enum word word;
		const char *const *choices; /* In the order of their enum. */
	} rows[] = {
		{ WORD_LAG_COMP, lag_comps },
		{ WORD_FIRST_STEP, first_steps },
		{ WORD_SCHEDULE, schedules },
		{ WORD_OUTER, outers },
		{ WORD_OUTER_GAIN, outer_gains },
		{ WORD_NESTEROV_BASE, nesterov_bases },
		{ WORD_OPT_STATE, opt_states },
		{ WORD_WIRE, wires },
		{ WORD_ROUNDS, rounds },
		{ WORD_LATE, lates },
		{ WORD_NORMALISE, normalises },
		{ WORD_COLLECT, collections },
		{ WORD_BN, bns },
		{ WORD_WORK, works },
	};

	if (word == WORD_POLICY)
		return rubato_policy_forms();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((int)rows[i].word == word)
			return rows[i].choices;
	return NULL;
}

/* Which of its choices the word is, and the value behind it; `fallback` where not given. */
static unsigned choice_value(struct reader *r, enum word word, unsigned fallback,
			     const char **value)
{
	const char *text = next(r, word);
	unsigned index = fallback;

	*value = NULL;
	if (text != NULL)
		r->err = tr_parse_choice(own[word - WORD_ACCUMULATE].name, text,
					 tr_rule_choices((int)word), &index, value, r->error);
	return index;
}

static unsigned choice(struct reader *r, enum word word, unsigned fallback)
{
	const char *value;

	return choice_value(r, word, fallback, &value);
}

static void read_laga(struct reader *r, struct tr_rule_options *o, unsigned rule)
{
	const char *text = next(r, WORD_ACCUMULATE);

	o->accumulate = 1;
	o->lag = 1;
	if (text != NULL && strcmp(text, "until-done") == 0)
		o->accumulate = 0;
	else
		count32(r, WORD_ACCUMULATE, 1, 1u << 20, &o->accumulate);
	count32(r, WORD_LAG, 1, 64, &o->lag);
	o->lag_comp = (enum tr_lag_comp)choice(r, WORD_LAG_COMP, 0);
	o->first_step = (enum tr_first_step)choice(r, WORD_FIRST_STEP, 0);
	o->rate_by_count = r->words->given[WORD_RATE_BY_COUNT];
	if (rule == LAGA && r->err == RUBATO_OK && o->sampler == TR_SAMPLER_SHARED &&
	    o->accumulate > 0)
		r->err =
			tr_refuse(r->error, "--work shared: ranks take different numbers of steps, "
					    "so laga wants --accumulate until-done");
}

/* Refuses `word` where it was given and the rule's other options leave it without a use. */
static void useless(struct reader *r, enum word word, bool used, const char *needs)
{
	if (r->err == RUBATO_OK && r->words->given[word] && !used)
		r->err = tr_refuse(r->error, "%s: of no use without %s",
				   own[word - WORD_ACCUMULATE].name, needs);
}

/* Of laga and hier. */
static void judge_counts(struct reader *r, const struct tr_options *o, unsigned rule)
{
	const struct tr_rule_options *mine = &o->own;

	useless(r, WORD_RATE_BY_COUNT, mine->accumulate != 1,
		"more than one micro-batch (--accumulate)");
	if (r->err != RUBATO_OK)
		return;
	if (rule == LAGA && mine->lag_comp == TR_LAG_COMP_LOOKAHEAD &&
	    (o->optimizer != TR_SGD || o->momentum == 0.0))
		r->err = tr_refuse(r->error, "--lag-comp lookahead: wants sgd with a --momentum");
	else if (rule == HIER && mine->group == 1)
		r->err = tr_refuse(r->error, "--group 1: a rank alone has nobody to average with");
	useless(r, WORD_K1, mine->k1 % mine->k2 != 0, "a --k2 that it is no multiple of");
}

/* Who averages what. */
static void judge_state(struct reader *r, const struct tr_options *o, unsigned rule)
{
	bool any = o->optimizer != TR_SGD || o->momentum > 0.0;

	useless(r, WORD_OPT_STATE, any, "a state: sgd has one with --momentum");
	useless(r, WORD_OPT_STATE, rule != EAGER || o->own.model_sync_every > 0,
		"--model-sync-every");
}

static void judge_schedule(struct reader *r, struct tr_rule_options *o)
{
	bool adp = o->schedule == TR_SCHEDULE_ADP;

	useless(r, WORD_ADAPT_LOW, adp, "--schedule adp");
	useless(r, WORD_ADAPT_HIGH, adp, "--schedule adp");
	useless(r, WORD_PERIOD_MAX, adp, "--schedule adp");
	useless(r, WORD_ADAPT_SAMPLE_STEPS, o->schedule != TR_SCHEDULE_CONST,
		"--schedule adp, adacomm or post-local");
	if (o->period_max > 0 && o->period_max < o->period)
		o->period = o->period_max;
}

static void judge_outer(struct reader *r, const struct tr_rule_options *o)
{
	bool nesterov = o->outer == TR_OUTER_NESTEROV, any = o->outer != TR_OUTER_NONE;

	useless(r, WORD_OUTER_MOMENTUM, any, "--outer block, nesterov or slowmo");
	useless(r, WORD_OUTER_LR, any, "--outer block, nesterov or slowmo");
	useless(r, WORD_OUTER_GAIN, nesterov || o->outer == TR_OUTER_BLOCK,
		"--outer block or nesterov");
	useless(r, WORD_NESTEROV_BASE, nesterov, "--outer nesterov");
	if (r->err == RUBATO_OK && o->pull > 0.0 && nesterov)
		r->err = tr_refuse(r->error,
				   "--pull: the anchor's --outer is none, block or slowmo");
	if (r->err == RUBATO_OK && o->pull > 0.0 && o->opt_state == TR_STATE_AVERAGE)
		r->err = tr_refuse(r->error, "--pull: a mean of optimizer states would come late: "
					     "--opt-state local or reset");
}

static void read_averaging(struct reader *r, struct tr_rule_options *o, unsigned rule)
{
	const uint64_t most = UINT32_MAX;

	o->k = rule == LOCAL ? 32 : 8;
	o->k1 = 4;
	o->k2 = 32;
	o->period = rule == ADPSGD ? 4 : 8;
	o->adapt_low = 0.7;
	o->adapt_high = 1.3;
	o->adapt_sample_steps = UINT64_MAX;
	o->outer_lr = 1.0;
	count(r, WORD_K, 1, most, &o->k);
	count(r, WORD_K1, 1, most, &o->k1);
	count(r, WORD_K2, 1, most, &o->k2);
	count32(r, WORD_GROUP, 1, TR_RANKS_MAX, &o->group);
	count(r, WORD_PERIOD, 1, most, &o->period);
	count(r, WORD_PERIOD_MAX, 1, most, &o->period_max);
	o->schedule = (enum tr_schedule)choice(
		r, WORD_SCHEDULE, rule == ADPSGD ? TR_SCHEDULE_ADP : TR_SCHEDULE_CONST);
	if (r->err == RUBATO_OK && rule == ADPSGD && o->schedule != TR_SCHEDULE_ADP)
		r->err = tr_refuse(r->error, "--schedule: adpsgd is periodic --schedule adp");
	number(r, WORD_ADAPT_LOW, 0.0, 1e6, &o->adapt_low);
	number(r, WORD_ADAPT_HIGH, 0.0, 1e6, &o->adapt_high);
	count(r, WORD_ADAPT_SAMPLE_STEPS, 0, most, &o->adapt_sample_steps);
	o->outer = (enum tr_outer)choice(r, WORD_OUTER, TR_OUTER_NONE);
	if (o->outer != TR_OUTER_NONE)
		o->outer_momentum = 0.5;
	if (rule == LOCAL && o->outer == TR_OUTER_NESTEROV) { /* DiLoCo. */
		o->outer_momentum = 0.9;
		o->outer_lr = 0.7;
	}
	number(r, WORD_OUTER_MOMENTUM, 0.0, 0.9999, &o->outer_momentum);
	number(r, WORD_OUTER_LR, 0.0, 1e3, &o->outer_lr);
	o->outer_gain = (enum tr_gain)choice(r, WORD_OUTER_GAIN, TR_GAIN_ONE);
	o->nesterov_base = (enum tr_base)choice(
		r, WORD_NESTEROV_BASE, rule == LOCAL ? TR_BASE_SHIFTED : TR_BASE_UNSHIFTED);
	o->opt_state = (enum tr_state_sync)choice(r, WORD_OPT_STATE, TR_STATE_LOCAL);
	number(r, WORD_PULL, 0.0, 1.0, &o->pull);
	o->compression = (enum tr_compression)choice(r, WORD_WIRE, TR_COMPRESSION_F32);
	judge_schedule(r, o);
	judge_outer(r, o);
}

static void read_policy(struct reader *r, rubato_partial_options *p)
{
	const char *text = next(r, WORD_POLICY);

	p->policy = RUBATO_POLICY_ADAPTIVE;
	if (text != NULL && rubato_policy_parse(text, p) != RUBATO_OK)
		r->err = tr_refuse(r->error, "--policy: %s", rubato_error_text());
}

static void read_collection(struct reader *r, rubato_partial_options *p)
{
	bool models = p->policy == RUBATO_POLICY_WAGMA;
	uint64_t depth = 8;
	const char *value;

	p->collection = (rubato_collection)choice_value(
		r, WORD_COLLECT, models ? RUBATO_COLLECT_OWN : RUBATO_COLLECT_EACH, &value);
	if (r->err == RUBATO_OK && value != NULL)
		r->err = tr_parse_count("--collect each", value, 1, 4096, &depth, r->error);
	p->depth = (uint32_t)depth;
	p->late = (rubato_late)choice(r, WORD_LATE,
				      models ? RUBATO_LATE_LATEST : RUBATO_LATE_ACCUMULATE);
}

/* The default policy takes small quorums where they are fast: momentum wants look-ahead then. */
static bool ahead_by_default(const struct tr_options *o, const struct words *w)
{
	const rubato_partial_options *p = &o->own.partial;

	return !w->given[WORD_LAG_COMP] && p->policy == RUBATO_POLICY_ADAPTIVE &&
	       p->collection == RUBATO_COLLECT_EACH && p->late == RUBATO_LATE_ACCUMULATE &&
	       o->own.model_sync_every == 0 && o->optimizer == TR_SGD && o->momentum > 0.0;
}

/* What wagma and look-ahead cannot mean. */
static void check_eager(struct reader *r, const struct tr_rule_options *o, unsigned rule)
{
	const rubato_partial_options *p = &o->partial;

	if (r->err != RUBATO_OK || rule != EAGER)
		return;
	if (p->policy == RUBATO_POLICY_WAGMA &&
	    (p->collection == RUBATO_COLLECT_EACH || p->late == RUBATO_LATE_ACCUMULATE ||
	     p->normalise != RUBATO_BY_RANKS))
		r->err =
			tr_refuse(r->error, "--policy wagma averages the models that are there: no "
					    "--collect each, --late accumulate or --normalise");
	else if (o->lag_comp != TR_LAG_COMP_NONE &&
		 (p->collection != RUBATO_COLLECT_EACH || p->policy == RUBATO_POLICY_WAGMA))
		r->err = tr_refuse(r->error, "--lag-comp lookahead: with --collect each only, "
					     "where ranks share one momentum");
	else if (o->sampler == TR_SAMPLER_SHARED &&
		 (p->rounds == RUBATO_ROUNDS_ALIGNED || o->model_sync_every > 0))
		r->err = tr_refuse(
			r->error, "--work shared: ranks take different numbers of steps, so rounds "
				  "must be free and --model-sync-every 0");
}

static void read_eager(struct reader *r, struct tr_rule_options *o)
{
	rubato_partial_options *p = &o->partial;
	const char *text;

	*p = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	read_policy(r, p);
	read_collection(r, p);
	p->rounds = (rubato_rounds)choice(r, WORD_ROUNDS,
					  o->sampler == TR_SAMPLER_SHARED ||
							  p->policy == RUBATO_POLICY_ADAPTIVE
						  ? RUBATO_ROUNDS_FREE
						  : RUBATO_ROUNDS_ALIGNED);
	p->normalise = (rubato_normalise)choice(r, WORD_NORMALISE, 0);
	count32(r, WORD_FULL_EVERY, 0, UINT32_MAX, &p->full_every);
	count32(r, WORD_MAX_ABSENCE, 0, UINT32_MAX, &p->max_absence);
	text = next(r, WORD_WINDOW);
	if (text != NULL && strcmp(text, "0") != 0)
		r->err = tr_parse_time("--window", text, &p->window_ns, r->error);
	count(r, WORD_MODEL_SYNC_EVERY, 0, UINT32_MAX, &o->model_sync_every);
}

rubato_status tr_judge_rule_options(struct tr_options *o, const struct words *w,
				    struct tr_error *error)
{
	struct reader r = { w, error, RUBATO_OK };
	unsigned rule = bit_of(o->rule->name);

	TR_TRY(refuse_strangers(rule, o->rule->name, w, error));
	o->own.sampler = (enum tr_sampler_kind)choice(&r, WORD_WORK, TR_SAMPLER_STATIC);
	o->own.bn = (enum tr_bn)choice(&r, WORD_BN, TR_BN_AVERAGE);
	number(&r, WORD_CLIP, 0.0, 1e9, &o->own.clip);
	read_laga(&r, &o->own, rule);
	read_averaging(&r, &o->own, rule);
	read_eager(&r, &o->own);
	if (r.err == RUBATO_OK && rule == EAGER && ahead_by_default(o, w))
		o->own.lag_comp = TR_LAG_COMP_LOOKAHEAD;
	check_eager(&r, &o->own, rule);
	judge_counts(&r, o, rule);
	judge_state(&r, o, rule);
	return r.err;
}

#define ROW(word, name, text, value)                                                               \
	{                                                                                          \
		name, 0, POPT_ARG_STRING, NULL, word, text, value                                  \
	}

const struct poptOption tr_rule_rows[] = {
	ROW(WORD_ACCUMULATE, "accumulate",
	    "laga: micro-batches a reduction, or until-done: until the one before is over (1)",
	    "A"),
	ROW(WORD_LAG, "lag", "laga: reductions between a gradient and its use (1)", "N"),
	ROW(WORD_LAG_COMP, "lag-comp",
	    "laga, eager: %s: gradients where momentum will have led (none; "
	    "eager, adaptive: lookahead)",
	    "KIND"),
	ROW(WORD_FIRST_STEP, "first-step",
	    "laga: before there is a result: %s: no update, or one by zero (skip)", "KIND"),
	{ "rate-by-count", 0, POPT_ARG_NONE, NULL, WORD_RATE_BY_COUNT,
	  "laga: the rate times the square root of an update's mean micro-batches", NULL },
	ROW(WORD_K, "k", "kavg, local: steps between averages (8; local: 32)", "K"),
	ROW(WORD_K1, "k1", "hier: steps between averages in a group (4)", "K"),
	ROW(WORD_K2, "k2", "hier: steps between averages of all (32)", "K"),
	ROW(WORD_GROUP, "group", "hier: ranks of a group (those of a node)", "S"),
	ROW(WORD_PERIOD, "period", "periodic, adpsgd: steps between averages, at first (8; 4)",
	    "P"),
	ROW(WORD_PERIOD_MAX, "period-max", "and at most (no bound)", "P"),
	ROW(WORD_SCHEDULE, "schedule", "periodic: %s (const)", "NAME"),
	ROW(WORD_ADAPT_LOW, "adapt-low", "adp: below this share of the sampled spread (0.7)", "X"),
	ROW(WORD_ADAPT_HIGH, "adapt-high", "and above this the period changes (1.3)", "X"),
	ROW(WORD_ADAPT_SAMPLE_STEPS, "adapt-sample-steps",
	    "adp: steps of sampling; post-local: of full averaging (a quarter)", "N"),
	ROW(WORD_OUTER, "outer", "kavg, hier, local: at averages: %s (none)", "NAME"),
	ROW(WORD_OUTER_MOMENTUM, "outer-momentum", "its momentum (0.5; local with nesterov: 0.9)",
	    "X"),
	ROW(WORD_OUTER_LR, "outer-lr", "its learning rate (1; local with nesterov: 0.7)", "X"),
	ROW(WORD_OUTER_GAIN, "outer-gain",
	    "block, nesterov: weight of the new displacement: %s (1)", "G"),
	ROW(WORD_NESTEROV_BASE, "nesterov-base",
	    "nesterov: displacements from the model without, or with, its lead: %s "
	    "(unshifted; local: shifted)",
	    "KIND"),
	ROW(WORD_OPT_STATE, "opt-state", "momentum at averages: %s (local)", "KIND"),
	ROW(WORD_PULL, "pull", "local: Overlap-Local-SGD with this pull-back (0: blocking)", "X"),
	ROW(WORD_WIRE, "wire", "averaged models travel as %s (f32)", "TYPE"),
	ROW(WORD_POLICY, "policy", "eager: %s; adaptive takes K ranks or more (adaptive: half)",
	    "P"),
	ROW(WORD_ROUNDS, "rounds",
	    "eager: %s (aligned; free with policy adaptive or --work shared)", "KIND"),
	ROW(WORD_LATE, "late", "eager: %s (accumulate)", "KIND"),
	ROW(WORD_NORMALISE, "normalise", "eager: by %s (ranks)", "BY"),
	ROW(WORD_COLLECT, "collect", "eager: %s (each:8)", "KIND"),
	ROW(WORD_FULL_EVERY, "full-every", "eager: every N-th round waits for all (0: none)", "N"),
	ROW(WORD_MAX_ABSENCE, "max-absence",
	    "eager: so does one after S rounds without some rank (0: none)", "S"),
	ROW(WORD_WINDOW, "window", "eager: what arrives so long after the opening is in (0)", "T"),
	ROW(WORD_MODEL_SYNC_EVERY, "model-sync-every",
	    "eager: average models every N steps (0: never)", "N"),
	ROW(WORD_BN, "bn", "statistics of batch normalisation: %s (average)", "KIND"),
	ROW(WORD_WORK, "work", "%s: equal shards, or ranks draw the next samples (static)", "KIND"),
	ROW(WORD_CLIP, "clip", "largest norm of an applied gradient (0: any)", "X"),
	POPT_TABLEEND
};
