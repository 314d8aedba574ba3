/*
 * rule_options.h -- the update rules' own options, as the command line has them. An option that the
 * chosen rule does not use is refused, so that no run means less than its command line says.
 */
#ifndef TR_RULE_OPTIONS_H
#define TR_RULE_OPTIONS_H

#include <stdbool.h>

#include "trainer/data/sampler.h"

enum tr_lag_comp { TR_LAG_COMP_NONE, TR_LAG_COMP_LOOKAHEAD };
enum tr_first_step { TR_FIRST_SKIP, TR_FIRST_ZERO };
enum tr_schedule {
	TR_SCHEDULE_CONST,
	TR_SCHEDULE_ADP,
	TR_SCHEDULE_ADACOMM,
	TR_SCHEDULE_POST_LOCAL
};
enum tr_outer { TR_OUTER_NONE, TR_OUTER_BLOCK, TR_OUTER_SLOWMO, TR_OUTER_NESTEROV };
enum tr_gain { TR_GAIN_ONE, TR_GAIN_COMPLEMENT }; /* 1, or 1 - momentum. */
enum tr_base { TR_BASE_UNSHIFTED, TR_BASE_SHIFTED };
enum tr_state_sync { TR_STATE_LOCAL, TR_STATE_AVERAGE, TR_STATE_RESET };
enum tr_bn { TR_BN_LOCAL, TR_BN_AVERAGE };
enum tr_compression { TR_COMPRESSION_F32, TR_COMPRESSION_BF16, TR_COMPRESSION_INT8 };

struct tr_rule_options {
	/* laga. */
	uint32_t accumulate;       /* Micro-batches a reduction; 0: until the one before is over. */
	uint32_t lag;              /* Reductions in flight: 1 or more. */
	enum tr_lag_comp lag_comp; /* Also of eager. */
	enum tr_first_step first_step;
	bool rate_by_count; /* The rate of an update times sqrt(its micro-batches / ranks). */
	/* Averaging of models: kavg, hier, periodic, adpsgd, local. */
	uint64_t k, k1, k2;          /* Local steps between averages: kavg, local; hier's two. */
	uint32_t group;              /* hier: ranks of a group; 0: the ranks of a node. */
	uint64_t period, period_max; /* periodic, adpsgd: the first period; 0: no bound. */
	enum tr_schedule schedule;
	double adapt_low, adapt_high;
	uint64_t adapt_sample_steps; /* UINT64_MAX: a quarter of the steps. */
	enum tr_outer outer;
	double outer_momentum, outer_lr;
	enum tr_gain outer_gain;
	enum tr_base nesterov_base;
	enum tr_state_sync opt_state;
	double pull; /* local: Overlap-Local-SGD's pull-back; 0: not overlapped. */
	enum tr_compression compression;
	/* eager. */
	rubato_partial_options partial; /* seed and size_bytes are filled by the rule. */
	uint64_t model_sync_every;      /* Local steps; 0: never. */
	/* All. */
	enum tr_bn bn;
	enum tr_sampler_kind sampler;
	double clip; /* Largest norm of the gradient that is applied; 0: none. */
};

#endif
