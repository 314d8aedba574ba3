/*
 * eager.c -- eager-SGD: a step's gradients are added up by a partial allreduce, which does not
 * wait for all ranks (Li et al., PPoPP 2020). What a rank computes too late is in a later round.
 *
 * A step commits the gradient and applies what has finished: a rank that was in time for the open
 * round waits for it, a late one goes on at once. Which results it applies is --collect:
 *   each    every round in order, before the next gradient: all ranks walk one path, some behind
 *   own     that of its own step (the paper's), latest  the newest (its released code's): models
 *           drift apart, until --model-sync-every or the end averages them
 *
 * The rate of an update follows the rounds. Aligned rounds: that of the newest step in it. Free
 * ones: that of the steps that all ranks have made before it.
 *
 * Under --policy wagma (Li et al., TPDS 2021) models travel instead of gradients: a step updates
 * its own, commits it, and takes the mean of its group of that round; a rank whose newest model is
 * not in it mixes its own in as one more. The papers' S is the number of models that are there: a
 * late rank's old model is in one round, not in all that it misses.
 *
 * Look-ahead (--lag-comp): a rank whose last gradient was applied s rounds after the parameters it
 * was computed on computes the next one where momentum alone will have led by then.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "programs/operations.h"
#include "trainer/rules/shared_options.h"

#define PATIENCE 9   /* A rank may be ten times as slow as the others. */
#define BEGUN_KEPT 8 /* Of the newest commits: the one in a running round, and the one pending. */

#define POLICY_BYTES 32 /* Of rubato_policy_format(). */

struct policy_option { /* No bytes between: it is hashed. */
	uint64_t kind, quorum, group, deadline_ns;
};

struct collect_option {
	uint64_t kind, depth; /* The same. */
};

struct eager_options {
	struct tr_rule_options run;
	struct policy_option policy;
	struct collect_option collect;
	rubato_rounds rounds;
	rubato_late late;
	rubato_normalise normalise;
	rubato_members members;
	uint32_t full_every, max_absence; /* Rounds; 0: none. */
	uint64_t window_ns;
	uint64_t model_sync_every; /* Local steps; 0: never. */
	enum tr_lag_comp lag_comp;
	enum tr_opt_state opt_state;
};

struct tr_rule_state {
	const struct eager_options *own;
	struct tr_rule_context *ctx;
	rubato_partial *partial;
	uint64_t *made; /* [rank_count]: contributions of each, as far as rounds tell. */
	float *kept;    /* The parameters, while look-ahead has shifted them. */
	float *model;   /* Wagma: a contribution, or the sum of some. */
	bool models;    /* Wagma: they travel. */
	bool shifted;
	size_t vector_count; /* Floats of a contribution: parameters, and wagma's statistics. */
	uint64_t open_ns;
	uint64_t step;                 /* The local step in progress, or the last. */
	uint64_t next_step;            /* The first that is computed after what is applied now. */
	uint64_t begun_at[BEGUN_KEPT]; /* `seen` when the gradient of a step was begun. */
	struct kept_state {            /* Kept in checkpoints. */
		uint64_t made_sum;     /* Of `made`. */
		uint64_t seen;         /* Rounds that are over for this rank, but empty ones. */
		uint64_t empty;       /* Those in which ranks only said that they drain, or wait. */
		uint64_t averages;    /* Of models, by all ranks. */
		uint64_t averaged_at; /* Local steps made at the last of them. */
		uint64_t staleness;   /* Of this rank's last gradient, in rounds. */
	} past;
};

/* ---- Options ---- */

/* Here, and in policy_read and policy_give, is all that a policy's text says. */
_Static_assert(sizeof(rubato_partial_options) == 104, "a field more: does it belong here?");

static bool policy_read(const char *option, const char *text, void *to, struct option_error *error)
{
	rubato_partial_options partial = RUBATO_PARTIAL_OPTIONS_INIT;
	struct policy_option *policy = to;

	if (rubato_policy_parse(text, &partial) != RUBATO_OK)
		return option_refuse(error, "%s: %s", option, rubato_error_text());
	*policy = (struct policy_option) { partial.policy, partial.quorum, partial.group,
					   partial.deadline_ns };
	return true;
}

static void policy_give(const struct policy_option *policy, rubato_partial_options *partial)
{
	partial->policy = (rubato_policy)policy->kind;
	partial->quorum = (uint32_t)policy->quorum;
	partial->group = (uint32_t)policy->group;
	partial->deadline_ns = policy->deadline_ns;
}

/* "quorum:3", ...; returns text. */
static char *policy_text(const struct policy_option *policy, char text[POLICY_BYTES])
{
	rubato_partial_options partial = RUBATO_PARTIAL_OPTIONS_INIT;

	policy_give(policy, &partial);
	return rubato_policy_format(&partial, text, POLICY_BYTES);
}

static json_t *policy_json(const void *from)
{
	char text[POLICY_BYTES];

	return json_string(policy_text(from, text));
}

static bool collect_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct collect_option *collect = to;
	uint64_t depth = TR_DEPTH_DEFAULT;
	const char *value;
	uint32_t kind;

	if (!value_choice(option, text, partial_collections, &kind, &value, error) ||
	    (value != NULL && !value_count("--collect each", value, 1, 4096, &depth, error)))
		return false;
	*collect = (struct collect_option) { kind, depth };
	return true;
}

static json_t *collect_json(const void *from)
{
	const struct collect_option *collect = from;
	const char *form = partial_collections[collect->kind];

	return json_pack("{s:s#,s:I}", "collect", form, (int)strcspn(form, "[:"), "depth",
			 (json_int_t)collect->depth);
}

#define AT(member) offsetof(struct eager_options, member)

static const struct option rows[] = {
	{ "policy", .kind = OPTION_OTHER, .at = AT(policy), .value = "P", .read = policy_read,
	  .size = sizeof(struct policy_option), .forms_of = rubato_policy_forms,
	  .preset = "adaptive",
	  .help = "%s; adaptive takes K ranks or more, half of them where none is said",
	  .key = "policy", .json = policy_json },
	{ "rounds", .kind = OPTION_CHOICE, .at = AT(rounds), .value = "KIND",
	  .forms = partial_rounds, .preset = "aligned",
	  .help = "%s; free with policy adaptive or --work shared", .key = "rounds" },
	{ "late", .kind = OPTION_CHOICE, .at = AT(late), .value = "KIND", .forms = partial_lates,
	  .preset = "accumulate", .help = "%s", .key = "late" },
	{ "normalise", .kind = OPTION_CHOICE, .at = AT(normalise), .value = "BY",
	  .forms = partial_normalises, .preset = "ranks", .help = "by %s", .key = "normalise" },
	{ "collect", .kind = OPTION_OTHER, .at = AT(collect), .value = "KIND", .read = collect_read,
	  .size = sizeof(struct collect_option), .forms = partial_collections, .preset = "each:8",
	  .help = "%s", .key = "", .json = collect_json },
	{ "members", .kind = OPTION_CHOICE, .at = AT(members), .value = "KIND",
	  .forms = partial_members, .preset = "ranks",
	  .help = "whom --policy counts: %s; K and S are numbers of these", .key = "members" },
	{ "full-every", .kind = OPTION_U32, .at = AT(full_every), .value = "N", .max = UINT32_MAX,
	  .preset = "0", .help = "every N-th round waits for all; 0: none" },
	{ "max-absence", .kind = OPTION_U32, .at = AT(max_absence), .value = "S", .max = UINT32_MAX,
	  .preset = "0", .help = "so does one after S rounds without some rank; 0: none" },
	{ "window", .kind = OPTION_TIME, .at = AT(window_ns), .value = "T", .preset = "0",
	  .help = "what arrives so long after the opening is in" },
	{ "model-sync-every", .kind = OPTION_U64, .at = AT(model_sync_every), .value = "N",
	  .max = UINT32_MAX, .preset = "0", .help = "average models every N steps; 0: never",
	  .key = "model_sync_every" },
	{ 0 },
};

static const struct tr_option_group groups[] = {
	{ rows, 0 },
	{ tr_lag_comp_rows, AT(lag_comp) },
	{ tr_opt_state_rows, AT(opt_state) },
	{ tr_sampler_rows, AT(run.sampler) },
	{ 0 },
};

/* The default policy takes small quorums where they are fast: momentum wants look-ahead then. */
static bool ahead_by_default(const struct eager_options *own, const struct tr_rule_request *request)
{
	return !options_given(request->words, "lag-comp") &&
	       own->policy.kind == RUBATO_POLICY_ADAPTIVE &&
	       own->collect.kind == RUBATO_COLLECT_EACH && own->late == RUBATO_LATE_ACCUMULATE &&
	       own->model_sync_every == 0 && request->optimizer == TR_SGD &&
	       request->momentum > 0.0;
}

static void fill_defaults(struct eager_options *own, const struct tr_rule_request *request)
{
	bool models = own->policy.kind == RUBATO_POLICY_WAGMA;
	bool uneven =
		own->run.sampler == TR_SAMPLER_SHARED || own->policy.kind == RUBATO_POLICY_ADAPTIVE;

	if (models && !options_given(request->words, "collect"))
		own->collect.kind = RUBATO_COLLECT_OWN;
	if (models && !options_given(request->words, "late"))
		own->late = RUBATO_LATE_LATEST;
	if (uneven && !options_given(request->words, "rounds"))
		own->rounds = RUBATO_ROUNDS_FREE;
	if (ahead_by_default(own, request))
		own->lag_comp = TR_LAG_COMP_LOOKAHEAD;
	own->run.gradient_depth = (uint32_t)own->collect.depth;
}

static rubato_status eager_judge(struct tr_rule_options *options,
				 const struct tr_rule_request *request, struct tr_error *error)
{
	struct eager_options *own = (struct eager_options *)options;
	bool models, each;

	fill_defaults(own, request);
	models = own->policy.kind == RUBATO_POLICY_WAGMA;
	each = own->collect.kind == RUBATO_COLLECT_EACH;
	if (models &&
	    (each || own->late == RUBATO_LATE_ACCUMULATE || own->normalise != RUBATO_BY_RANKS))
		return tr_refuse(error, "--policy wagma averages the models that are there: no "
					"--collect each, --late accumulate or --normalise");
	if (own->lag_comp != TR_LAG_COMP_NONE && (!each || models))
		return tr_refuse(error, "--lag-comp lookahead: with --collect each only, where "
					"ranks share one momentum");
	if (own->run.sampler == TR_SAMPLER_SHARED &&
	    (own->rounds == RUBATO_ROUNDS_ALIGNED || own->model_sync_every > 0))
		return tr_refuse(error, "--work shared: ranks take different numbers of steps, so "
					"rounds must be free and --model-sync-every 0");
	TR_TRY(tr_opt_state_judge(request, error));
	return tr_option_needs(request, "opt-state", own->model_sync_every > 0,
			       "--model-sync-every", error);
}

/* ---- Making ---- */

/* Whom the policy counts. */
static rubato_status members_count(const struct tr_rule_context *ctx, rubato_members members,
				   uint32_t *count)
{
	rubato_peer peer = { .size_bytes = sizeof(peer) };

	*count = members == RUBATO_MEMBERS_RANKS ? ctx->rank_count : 0;
	for (uint32_t r = 0; r < ctx->rank_count && members == RUBATO_MEMBERS_NODES; r++) {
		TR_TRY(tr_check(ctx->error, rubato_get_peer(ctx->comm, r, &peer), "get_peer"));
		if (peer.node >= *count)
			*count = peer.node + 1;
	}
	return RUBATO_OK;
}

static rubato_status eager_check(const struct tr_rule_context *ctx)
{
	const struct eager_options *own = (const struct eager_options *)ctx->own;
	const struct tr_optimizer *optimizer = ctx->optimizer;
	const char *members = own->members == RUBATO_MEMBERS_RANKS ? "rank" : "node";
	char policy[POLICY_BYTES];
	uint32_t count;

	TR_TRY(members_count(ctx, own->members, &count));
	if (own->policy.quorum > count)
		return tr_refuse(ctx->error, "--policy %s: %s %u %s%s",
				 policy_text(&own->policy, policy),
				 count == 1 ? "there is" : "there are", count, members,
				 count == 1 ? "" : "s");
	if (own->policy.kind == RUBATO_POLICY_WAGMA && count % own->policy.group != 0)
		return tr_refuse(ctx->error, "--policy %s: does not divide %u %ss",
				 policy_text(&own->policy, policy), count, members);
	if (own->lag_comp == TR_LAG_COMP_LOOKAHEAD &&
	    (optimizer->kind != TR_SGD || optimizer->momentum == 0.0f))
		return tr_refuse(ctx->error, "--lag-comp lookahead: needs sgd with a --momentum");
	return RUBATO_OK;
}

static void eager_close(struct tr_rule_state *state)
{
	(void)rubato_partial_free(state->partial);
	free(state->made);
	if (state->kept != NULL)
		state->ctx->vectors->free(state->ctx->vectors, NULL, state->kept);
	if (state->model != NULL)
		state->ctx->vectors->free(state->ctx->vectors, NULL, state->model);
}

static rubato_status allocate(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;

	state->made = calloc(ctx->rank_count, sizeof(*state->made));
	if (state->made == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "eager: out of memory");
	if (state->own->lag_comp == TR_LAG_COMP_LOOKAHEAD)
		TR_TRY(ctx->vectors->make(ctx->vectors, NULL, ctx->parameter_count, "eager",
					  &state->kept, ctx->error));
	if (!state->models)
		return RUBATO_OK;
	return ctx->vectors->make(ctx->vectors, NULL, state->vector_count, "eager", &state->model,
				  ctx->error);
}

/* `saved`: of rubato_partial_save; NULL: from the beginning. */
static rubato_status create(struct tr_rule_state *state, const void *saved, uint64_t saved_bytes)
{
	struct tr_rule_context *ctx = state->ctx;
	const struct eager_options *own = state->own;
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	policy_give(&own->policy, &options);
	options.collection = (rubato_collection)own->collect.kind;
	options.depth = (uint32_t)own->collect.depth;
	options.rounds = own->rounds;
	options.late = own->late;
	options.members = own->members;
	options.normalise = own->normalise;
	options.full_every = own->full_every;
	options.max_absence = own->max_absence;
	options.window_ns = own->window_ns;
	options.seed = ctx->seed;
	options.state = saved;
	options.state_bytes = saved_bytes;
	state->open_ns = rubato_now(ctx->comm);
	return tr_check(ctx->error,
			rubato_partial_create(ctx->comm, state->vector_count, RUBATO_FLOAT32,
					      state->models ? RUBATO_SUM : RUBATO_AVG, &options,
					      &state->partial),
			"eager");
}

static rubato_status eager_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	const struct eager_options *own = (const struct eager_options *)ctx->own;

	TR_TRY(eager_check(ctx));
	state->ctx = ctx;
	state->own = own;
	state->models = own->policy.kind == RUBATO_POLICY_WAGMA;
	state->vector_count = ctx->parameter_count;
	ctx->relaxed = true;
	ctx->replicas_differ = own->collect.kind != RUBATO_COLLECT_EACH;
	ctx->average_statistics = state->models && ctx->bn == TR_BN_AVERAGE;
	if (ctx->average_statistics)
		state->vector_count += ctx->statistics_count;
	TR_TRY(allocate(state));
	return create(state, NULL, 0);
}

/* ---- What a round held ---- */

/* Its last step here, if this rank has a part in it. */
static bool own_part(const struct tr_rule_state *state, const rubato_round *round, uint64_t *step)
{
	const rubato_contribution *mine = &round->ranks[state->ctx->rank];

	*step = mine->last_step;
	return mine->count > 0;
}

static uint64_t newest_step(const struct tr_rule_state *state, const rubato_round *round)
{
	uint64_t newest = 0;

	for (uint32_t i = 0; i < state->ctx->rank_count; i++)
		if (round->ranks[i].count > 0 && round->ranks[i].last_step > newest)
			newest = round->ranks[i].last_step;
	return newest;
}

/* Local steps that all ranks together have made, per rank. */
static uint64_t steps_made(const struct tr_rule_state *state)
{
	return state->past.made_sum / state->ctx->rank_count;
}

/* The same on all ranks that apply the round; but for free rounds under own and latest, where each
 * knows of the steps in rounds that it has seen. */
static double rate_of(const struct tr_rule_state *state, const rubato_round *round)
{
	bool aligned = state->own->rounds == RUBATO_ROUNDS_ALIGNED;

	return tr_rate_at(state->ctx->rate,
			  aligned ? newest_step(state, round) : steps_made(state));
}

static void count_round(struct tr_rule_state *state, const rubato_round *round)
{
	struct tr_counts *counts = &state->ctx->counts;
	uint64_t step;

	if (own_part(state, round, &step)) {
		state->past.staleness =
			round->round - state->past.empty - state->begun_at[step % BEGUN_KEPT];
		if (state->past.staleness > counts->staleness_max)
			counts->staleness_max = state->past.staleness;
	}
	tr_count_round(state->ctx, round->fresh, round->contributors);
	tr_trace_span(state->ctx->trace, TR_SPAN_UPDATE, rubato_now(state->ctx->comm),
		      rubato_now(state->ctx->comm), round->round);
}

static void record_round(struct tr_rule_state *state, const rubato_round *round, double rate)
{
	const struct tr_rule_context *ctx = state->ctx;
	double divisor = round->divisor;

	if (state->own->normalise == RUBATO_BY_WEIGHT)
		divisor /= ctx->batch; /* In steps, all of one batch. */
	tr_ledger_update(ctx->ledger, round->round, divisor, rate, state->next_step);
	for (uint32_t i = 0; i < ctx->rank_count; i++)
		if (round->ranks[i].count > 0)
			tr_ledger_share(ctx->ledger, i, round->ranks[i].first_step,
					round->ranks[i].last_step);
}

/* ---- Applying ---- */

static void apply_gradient(struct tr_rule_state *state, const float *result,
			   const rubato_round *round)
{
	struct tr_rule_context *ctx = state->ctx;
	double rate = rate_of(state, round);

	if (ctx->clip > 0.0) { /* The gradient's place is free: it was committed. */
		ctx->vectors->put(ctx->vectors, ctx->gradient, result, ctx->parameter_count);
		tr_clip(ctx->vectors, ctx->gradient, ctx->parameter_count, ctx->clip);
		result = ctx->gradient;
	} else {
		result = tr_vectors_take(ctx->vectors, result, ctx->gradient, ctx->parameter_count);
	}
	tr_optimizer_next(ctx->optimizer);
	tr_optimizer_apply(ctx->optimizer, rate, result, ctx->parameters, 0, ctx->parameter_count);
	ctx->rate_applied = rate;
	record_round(state, round, rate);
}

/* The mean of `count` models, whose sum `sum` is, and perhaps of the own one. */
static void mix(const struct tr_vectors *v, float *own, const float *sum, size_t length,
		uint32_t count, bool with_own)
{
	if (!with_own)
		v->zero(v, own, length);
	v->add(v, own, sum, length);
	v->divide(v, own, own, (float)(count + with_own), length);
}

static void apply_models(struct tr_rule_state *state, const float *result,
			 const rubato_round *round)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t step;
	bool current = own_part(state, round, &step) && step == state->step;

	result = tr_vectors_take(ctx->vectors, result, state->model, state->vector_count);
	mix(ctx->vectors, ctx->parameters, result, ctx->parameter_count, round->contributors,
	    !current);
	if (ctx->average_statistics)
		mix(ctx->vectors, ctx->statistics, result + ctx->parameter_count,
		    ctx->statistics_count, round->contributors, !current);
}

static void apply(struct tr_rule_state *state, const float *result, const rubato_round *round)
{
	state->ctx->counts.discarded = round->discarded;
	if (round->contributors == 0) {
		state->past.empty++;
		return;
	}
	state->past.seen = round->round - state->past.empty + 1;
	if (state->models)
		apply_models(state, result, round);
	else
		apply_gradient(state, result, round);
	count_round(state, round);
	for (uint32_t i = 0; i < state->ctx->rank_count; i++)
		if (round->ranks[i].count > 0) {
			state->past.made_sum += round->ranks[i].last_step + 1 - state->made[i];
			state->made[i] = round->ranks[i].last_step + 1;
		}
}

static rubato_status count_reductions(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->ctx;
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	uint64_t grouped;

	TR_TRY(tr_check(ctx->error, rubato_partial_get_stats(state->partial, &stats),
			"partial stats"));
	grouped = state->models ? stats.rounds - stats.full_rounds : 0;
	ctx->counts.local_reductions = grouped;
	ctx->counts.global_reductions = state->past.averages + stats.rounds - grouped;
	return RUBATO_OK;
}

/* The next result. Who drains waits for ranks that are still at work, and may have opened no round
 * for long (aligned ones, when all they do is late): some times as long as the run has taken. */
static rubato_status next_result(struct tr_rule_state *state, const void **result,
				 rubato_round *round, uint64_t drain_ns)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t before_ns = rubato_now(ctx->comm);
	rubato_status err;

	do {
		err = rubato_partial_collect_view(state->partial, result, round,
						  RUBATO_TIMEOUT_DEFAULT);
	} while (err == RUBATO_ERR_TIMEOUT && drain_ns > 0 &&
		 rubato_now(ctx->comm) - drain_ns < PATIENCE * (drain_ns - state->open_ns));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	return tr_check(ctx->error, err, "eager");
}

/* Takes what has finished; waits for the round that this rank is ready for. `use` false: what is
 * left over of models that the ranks have gone beyond. `drain_ns`: since when it drains; or 0. */
static rubato_status collect(struct tr_rule_state *state, bool use, uint64_t drain_ns)
{
	struct tr_rule_context *ctx = state->ctx;
	const void *result;

	do {
		rubato_round round = { .size_bytes = sizeof(round) };

		TR_TRY(next_result(state, &result, &round, drain_ns));
		if (result == NULL)
			break;
		if (use)
			apply(state, result, &round);
		TR_TRY(tr_check(ctx->error, rubato_partial_release(state->partial), "eager"));
	} while (result != NULL);
	return count_reductions(state);
}

/* Collective: afterwards nothing is on its way. */
static rubato_status drain(struct tr_rule_state *state)
{
	TR_TRY(tr_check(state->ctx->error, rubato_partial_drain(state->partial), "eager: drain"));
	return collect(state, !state->models, rubato_now(state->ctx->comm));
}

/* Collective, with nothing on its way. `steps` have been made. */
static rubato_status average_models(struct tr_rule_state *state, uint64_t steps)
{
	struct tr_rule_context *ctx = state->ctx;
	struct tr_optimizer *optimizer = ctx->optimizer;
	const char *what = "eager: average of the models";
	uint64_t before_ns = rubato_now(ctx->comm);

	TR_TRY(tr_average(ctx, ctx->parameters, ctx->parameter_count, what));
	if (ctx->average_statistics && ctx->statistics_count > 0)
		TR_TRY(tr_average(ctx, ctx->statistics, ctx->statistics_count, what));
	for (uint32_t i = 0;
	     i < optimizer->state_count && state->own->opt_state == TR_STATE_AVERAGE; i++)
		TR_TRY(tr_average(ctx, optimizer->states[i], ctx->parameter_count, what));
	if (state->own->opt_state == TR_STATE_RESET)
		tr_optimizer_reset(optimizer);
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	tr_trace_span(ctx->trace, TR_SPAN_AVERAGE, before_ns, rubato_now(ctx->comm), steps - 1);
	tr_ledger_average(ctx->ledger, TR_SCOPE_GLOBAL, 0, 1, ctx->rank_count, steps,
			  steps - state->past.averaged_at);
	state->past.averaged_at = steps;
	state->past.averages++;
	return count_reductions(state);
}

/* ---- Steps ---- */

/* Where momentum leads in `rounds` updates, if no gradient changes it. */
static void look_ahead(struct tr_rule_state *state, uint64_t step, uint64_t rounds)
{
	struct tr_rule_context *ctx = state->ctx;
	const float *velocity = ctx->optimizer->states[0];
	double m = ctx->optimizer->momentum;
	uint64_t at = state->own->rounds == RUBATO_ROUNDS_FREE ? steps_made(state) : step;
	float reach =
		(float)(tr_rate_at(ctx->rate, at) * m * (1.0 - pow(m, (double)rounds)) / (1.0 - m));

	ctx->vectors->copy(ctx->vectors, state->kept, ctx->parameters, ctx->parameter_count);
	ctx->vectors->combine(ctx->vectors, ctx->parameters, 1.0f, ctx->parameters, -reach,
			      velocity, ctx->parameter_count);
	state->shifted = true;
}

static rubato_status eager_begin(struct tr_rule_state *state, uint64_t step)
{
	state->next_step = step;
	TR_TRY(collect(state, true, 0));
	state->begun_at[step % BEGUN_KEPT] = state->past.seen;
	if (state->kept != NULL && state->past.staleness > 0)
		look_ahead(state, step, state->past.staleness);
	return RUBATO_OK;
}

static rubato_status commit_gradient(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	bool weighted = state->own->normalise == RUBATO_BY_WEIGHT;
	float weight = weighted ? (float)ctx->batch : 1.0f;

	if (weight != 1.0f)
		ctx->vectors->scale(ctx->vectors, ctx->gradient, weight, ctx->parameter_count);
	TR_TRY(ctx->vectors->wait(ctx->vectors, ctx->error));
	return tr_check(ctx->error,
			rubato_partial_contribute(state->partial, ctx->gradient, step, ctx->batch),
			"eager");
}

/* The own model takes its own step first; the ranks' means follow. */
static rubato_status commit_models(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	const struct tr_vectors *v = ctx->vectors;
	const float *mine = ctx->parameters;

	ctx->rate_applied = tr_rate_at(ctx->rate, step);
	tr_apply_gradient(ctx, ctx->rate_applied);
	if (state->vector_count > ctx->parameter_count) {
		v->copy(v, state->model, ctx->parameters, ctx->parameter_count);
		v->copy(v, state->model + ctx->parameter_count, ctx->statistics,
			ctx->statistics_count);
		mine = state->model;
	}
	TR_TRY(v->wait(v, ctx->error));
	return tr_check(ctx->error, rubato_partial_contribute(state->partial, mine, step, 1),
			"eager");
}

static rubato_status eager_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t every = state->own->model_sync_every, before_ns;

	state->step = step;
	state->next_step = step + 1;
	if (state->shifted)
		ctx->vectors->copy(ctx->vectors, ctx->parameters, state->kept,
				   ctx->parameter_count);
	state->shifted = false;
	before_ns = rubato_now(ctx->comm);
	TR_TRY(state->models ? commit_models(state, step) : commit_gradient(state, step));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before_ns;
	TR_TRY(collect(state, true, 0));
	if (every == 0 || (step + 1) % every != 0)
		return RUBATO_OK;
	TR_TRY(drain(state));
	return average_models(state, step + 1);
}

static rubato_status eager_finish(struct tr_rule_state *state, uint64_t step_count)
{
	uint64_t *staleness = &state->ctx->counts.staleness_max; /* Each rank knows its own. */

	state->next_step = step_count;
	TR_TRY(drain(state));
	TR_TRY(tr_check(state->ctx->error,
			rubato_allreduce(state->ctx->comm, staleness, staleness, 1, RUBATO_UINT64,
					 RUBATO_MAX),
			"eager: allreduce"));
	if (!state->ctx->replicas_differ || state->past.averaged_at == step_count)
		return RUBATO_OK;
	return average_models(state, step_count);
}

static rubato_status eager_settle(struct tr_rule_state *state, uint64_t step_count)
{
	state->next_step = step_count;
	return drain(state);
}

/* The operation is made anew, so that it goes on from what the other one left. */
static rubato_status keep_partial(struct tr_rule_state *state, struct tr_archive *archive,
				  void *saved, uint64_t saved_bytes)
{
	struct tr_error *error = state->ctx->error;
	rubato_partial *begun = state->partial;

	if (!tr_archive_loading(archive)) {
		TR_TRY(tr_check(error, rubato_partial_save(state->partial, saved, &saved_bytes),
				"eager: save"));
		return tr_archive_bytes(archive, "eager.rounds", saved, saved_bytes, error);
	}
	TR_TRY(tr_archive_bytes(archive, "eager.rounds", saved, saved_bytes, error));
	state->partial = NULL;
	TR_TRY(tr_check(error, rubato_partial_free(begun), "eager"));
	return create(state, saved, saved_bytes);
}

static rubato_status eager_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	struct tr_rule_context *ctx = state->ctx;
	uint64_t saved_bytes = 0;
	rubato_status err;
	void *saved;

	TR_TRY(tr_archive_value(archive, "eager", state->past, ctx->error));
	TR_TRY(tr_archive_bytes(archive, "eager.made", state->made,
				ctx->rank_count * sizeof(*state->made), ctx->error));
	TR_TRY(tr_check(ctx->error, rubato_partial_save(state->partial, NULL, &saved_bytes),
			"eager: save"));
	saved = malloc(saved_bytes);
	if (saved == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "eager: no memory for a checkpoint");
	err = keep_partial(state, archive, saved, saved_bytes);
	free(saved);
	return err;
}

const struct tr_rule tr_rule_eager = {
	.name = "eager",
	.options_bytes = sizeof(struct eager_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.judge = eager_judge,
	.open = eager_open,
	.begin = eager_begin,
	.step = eager_step,
	.finish = eager_finish,
	.settle = eager_settle,
	.keep = eager_keep,
	.close = eager_close,
};
