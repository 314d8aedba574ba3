/*
 * eval_model.h -- the model that a test looks at, where that is not simply the rank's own: the mean
 * of ranks that differ, or a snapshot of rank 0.
 */
#ifndef TR_EVAL_MODEL_H
#define TR_EVAL_MODEL_H

#include "trainer/records/snapshots.h"
#include "trainer/rules/rule.h"

/* Puts it in the place of the rank's own parameters and statistics; *kept is what
 * tr_eval_model_end() puts back, also after an error. Collective. */
rubato_status tr_eval_model_begin(struct tr_rule_context *ctx, float **kept);
void tr_eval_model_end(struct tr_rule_context *ctx, float *kept);

/* A copy of parameters and statistics for tr_eval_model_end(), or of a snapshot; NULL: no
 * memory. */
float *tr_eval_model_keep(const struct tr_rule_context *ctx);
/* Rank 0's snapshot takes the place of everybody's. Collective. */
rubato_status tr_eval_model_show(struct tr_rule_context *ctx, const struct tr_snapshot *snapshot);
/* Those of batch normalisation, for good; under `--bn local` each rank keeps its own.
 * Collective. */
rubato_status tr_average_statistics(struct tr_rule_context *ctx);

#endif
