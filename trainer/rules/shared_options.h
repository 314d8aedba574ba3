/*
 * shared_options.h -- options that several update rules have: their rows, what these fill, and what
 * is refused of them. A rule lists the rows beside its own.
 */
#ifndef TR_SHARED_OPTIONS_H
#define TR_SHARED_OPTIONS_H

#include "trainer/rules/rule.h"

/* ---- A field each ---- */

enum tr_lag_comp { TR_LAG_COMP_NONE, TR_LAG_COMP_LOOKAHEAD };
enum tr_opt_state { TR_STATE_LOCAL, TR_STATE_AVERAGE, TR_STATE_RESET };
enum tr_compression { TR_COMPRESSION_F32, TR_COMPRESSION_BF16, TR_COMPRESSION_INT8 };

extern const struct option tr_interval_rows[];    /* --k; uint64_t. */
extern const struct option tr_lag_comp_rows[];    /* --lag-comp; enum tr_lag_comp. */
extern const struct option tr_opt_state_rows[];   /* --opt-state; enum tr_opt_state. */
extern const struct option tr_compression_rows[]; /* --wire; enum tr_compression. */
extern const struct option tr_sampler_rows[];     /* --work; enum tr_sampler_kind. */

/* What averages of models are of, and how they travel. */
struct tr_averaging_options {
	enum tr_opt_state opt_state;
	enum tr_compression compression;
};
#define TR_AVERAGING_GROUPS(type, member)                                                          \
	{ tr_opt_state_rows, offsetof(type, member.opt_state) },                                   \
	{                                                                                          \
		tr_compression_rows, offsetof(type, member.compression)                            \
	}

rubato_status tr_opt_state_judge(const struct tr_rule_request *request, struct tr_error *error);

/* ---- How the global model moves (outer.h) ---- */

enum tr_outer { TR_OUTER_NONE, TR_OUTER_BLOCK, TR_OUTER_SLOWMO, TR_OUTER_NESTEROV };
enum tr_gain { TR_GAIN_ONE, TR_GAIN_COMPLEMENT }; /* 1, or 1 - momentum. */
enum tr_base { TR_BASE_UNSHIFTED, TR_BASE_SHIFTED };

struct tr_outer_options {
	enum tr_outer kind;
	double momentum, lr;
	enum tr_gain gain;
	enum tr_base base;
};

extern const struct option tr_outer_rows[];
rubato_status tr_outer_judge(struct tr_outer_options *outer, const struct tr_rule_request *request,
			     struct tr_error *error);

/* ---- When models are averaged (period.h) ---- */

enum tr_schedule {
	TR_SCHEDULE_CONST,
	TR_SCHEDULE_ADP,
	TR_SCHEDULE_ADACOMM,
	TR_SCHEDULE_POST_LOCAL
};

struct tr_period_options {
	uint64_t first, most; /* The period at first; 0: no bound. */
	enum tr_schedule schedule;
	double adapt_low, adapt_high;
	uint64_t adapt_sample_steps; /* UINT64_MAX: a share of the run. */
};

extern const struct option tr_period_rows[];
rubato_status tr_period_judge(struct tr_period_options *period,
			      const struct tr_rule_request *request, struct tr_error *error);

#endif
