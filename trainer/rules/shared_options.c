/* shared_options.c -- see shared_options.h. */
#include "trainer/rules/shared_options.h"

static const char *const lag_comps[] = { "none", "lookahead", NULL };
static const char *const opt_states[] = { "local", "average", "reset", NULL };
static const char *const compressions[] = { "f32", "bf16", "int8", NULL };
static const char *const samplers[] = { "static", "shared", NULL };

const struct option tr_interval_rows[] = {
	{ "k", .kind = OPTION_U64, .value = "K", .min = 1, .max = UINT32_MAX, .preset = "8",
	  .help = "steps between averages", .key = "k" },
	{ 0 },
};

const struct option tr_lag_comp_rows[] = {
	{ "lag-comp", .kind = OPTION_CHOICE, .value = "KIND", .forms = lag_comps, .preset = "none",
	  .help = "%s: gradients where momentum will have led; of eager also lookahead where "
		  "policy adaptive allows it",
	  .key = "lag_comp" },
	{ 0 },
};

const struct option tr_opt_state_rows[] = {
	{ "opt-state", .kind = OPTION_CHOICE, .value = "KIND", .forms = opt_states,
	  .preset = "local", .help = "momentum at averages: %s", .key = "opt_state" },
	{ 0 },
};

const struct option tr_compression_rows[] = {
	{ "wire", .kind = OPTION_CHOICE, .value = "TYPE", .forms = compressions, .preset = "f32",
	  .help = "averaged models travel as %s", .key = "wire" },
	{ 0 },
};

const struct option tr_sampler_rows[] = {
	{ "work", .kind = OPTION_CHOICE, .value = "KIND", .forms = samplers, .preset = "static",
	  .help = "%s: equal shards, or ranks draw the next samples", .key = "work" },
	{ 0 },
};

rubato_status tr_opt_state_judge(const struct tr_rule_request *request, struct tr_error *error)
{
	bool any = request->optimizer != TR_SGD || request->momentum > 0.0;

	return tr_option_needs(request, "opt-state", any, "a state: sgd has one with --momentum",
			       error);
}

/* ---- How the global model moves ---- */

static const char *const outers[] = { "none", "block", "slowmo", "nesterov", NULL };
static const char *const gains[] = { "1", "1-mu", NULL };
static const char *const bases[] = { "unshifted", "shifted", NULL };

#define AT(member) offsetof(struct tr_outer_options, member)

const struct option tr_outer_rows[] = {
	{ "outer", .kind = OPTION_CHOICE, .at = AT(kind), .value = "NAME", .forms = outers,
	  .preset = "none", .help = "how the model moves at averages: %s", .key = "outer" },
	{ "outer-momentum", .kind = OPTION_REAL, .at = AT(momentum), .value = "X", .most = 0.9999,
	  .preset = "0.5", .help = "its momentum; local with nesterov: 0.9",
	  .key = "outer_momentum" },
	{ "outer-lr", .kind = OPTION_REAL, .at = AT(lr), .value = "X", .most = 1e3, .preset = "1",
	  .help = "its learning rate; local with nesterov: 0.7", .key = "outer_lr" },
	{ "outer-gain", .kind = OPTION_CHOICE, .at = AT(gain), .value = "G", .forms = gains,
	  .preset = "1", .help = "block, nesterov: weight of the new displacement: %s",
	  .key = "outer_gain" },
	{ "nesterov-base", .kind = OPTION_CHOICE, .at = AT(base), .value = "KIND", .forms = bases,
	  .preset = "unshifted",
	  .help = "nesterov: displacements from the model without, or with, its lead: %s",
	  .key = "nesterov_base" },
	{ 0 },
};
#undef AT

rubato_status tr_outer_judge(struct tr_outer_options *outer, const struct tr_rule_request *request,
			     struct tr_error *error)
{
	bool nesterov = outer->kind == TR_OUTER_NESTEROV, any = outer->kind != TR_OUTER_NONE;

	if (!any)
		outer->momentum = 0.0;
	TR_TRY(tr_option_needs(request, "outer-momentum", any, "--outer block, nesterov or slowmo",
			       error));
	TR_TRY(tr_option_needs(request, "outer-lr", any, "--outer block, nesterov or slowmo",
			       error));
	TR_TRY(tr_option_needs(request, "outer-gain", nesterov || outer->kind == TR_OUTER_BLOCK,
			       "--outer block or nesterov", error));
	return tr_option_needs(request, "nesterov-base", nesterov, "--outer nesterov", error);
}

/* ---- When models are averaged ---- */

static const char *const schedules[] = { "const", "adp", "adacomm", "post-local", NULL };

#define AT(member) offsetof(struct tr_period_options, member)

const struct option tr_period_rows[] = {
	{ "period", .kind = OPTION_U64, .at = AT(first), .value = "P", .min = 1, .max = UINT32_MAX,
	  .preset = "8", .help = "steps between averages, at first", .key = "period" },
	{ "period-max", .kind = OPTION_U64, .at = AT(most), .value = "P", .min = 1,
	  .max = UINT32_MAX, .help = "and at most (no bound)" },
	{ "schedule", .kind = OPTION_CHOICE, .at = AT(schedule), .value = "NAME",
	  .forms = schedules, .preset = "const", .help = "of the period: %s", .key = "schedule" },
	{ "adapt-low", .kind = OPTION_REAL, .at = AT(adapt_low), .value = "X", .most = 1e6,
	  .preset = "0.7", .help = "adp: below this share of the sampled spread" },
	{ "adapt-high", .kind = OPTION_REAL, .at = AT(adapt_high), .value = "X", .most = 1e6,
	  .preset = "1.3", .help = "adp: and above this the period changes" },
	{ "adapt-sample-steps", .kind = OPTION_U64, .at = AT(adapt_sample_steps), .value = "N",
	  .max = UINT32_MAX,
	  .help = "adp, adacomm: steps of sampling; post-local: of full averaging (a quarter of "
		  "the run; adacomm: a sixteenth)" },
	{ 0 },
};

rubato_status tr_period_judge(struct tr_period_options *period,
			      const struct tr_rule_request *request, struct tr_error *error)
{
	bool adp = period->schedule == TR_SCHEDULE_ADP;

	if (!options_given(request->words, "adapt-sample-steps"))
		period->adapt_sample_steps = UINT64_MAX;
	TR_TRY(tr_option_needs(request, "adapt-low", adp, "--schedule adp", error));
	TR_TRY(tr_option_needs(request, "adapt-high", adp, "--schedule adp", error));
	TR_TRY(tr_option_needs(request, "period-max", adp, "--schedule adp", error));
	TR_TRY(tr_option_needs(request, "adapt-sample-steps", period->schedule != TR_SCHEDULE_CONST,
			       "--schedule adp, adacomm or post-local", error));
	if (period->most > 0 && period->most < period->first)
		period->first = period->most;
	return RUBATO_OK;
}
