/*
 * global_model.h -- the model that all ranks share, from average to average: averaging.h finds the
 * mean, outer.h moves the model, and here it is counted and written into the ledger. What the rules
 * of model averaging share; each says when.
 */
#ifndef TR_GLOBAL_MODEL_H
#define TR_GLOBAL_MODEL_H

#include "trainer/rules/averaging.h"
#include "trainer/rules/outer.h"

struct tr_global_model {
	struct tr_rule_context *ctx;
	struct tr_averaging *averaging;
	struct tr_outer_state outer;
	uint64_t last; /* Local steps done at the last average. */
};

/* Collective; tr_global_model_close() follows, whatever it returns. `outer` NULL: the model goes to
 * the mean. `model`: the caller looks at outer.model. */
rubato_status tr_global_model_open(struct tr_global_model *global, struct tr_rule_context *ctx,
				   const struct tr_outer_options *outer,
				   const struct tr_averaging_options *averaging,
				   uint32_t extra_count, bool model);
void tr_global_model_close(struct tr_global_model *global); /* Of zeros is fine. */

/* The mean of the ranks' models, and of extras. Blocks. */
rubato_status tr_global_model_mean(struct tr_global_model *global, uint64_t done, double *extras);
enum tr_move { TR_MOVE_OUTER, TR_MOVE_PLAIN };
/* The global model moves (plain: to the mean), and every rank goes on from it. `done`: local steps
 * done when the mean was taken. */
void tr_global_model_move(struct tr_global_model *global, uint64_t done, enum tr_move move);
/* Both; for rules without extras. */
rubato_status tr_global_model_average(struct tr_global_model *global, uint64_t done,
				      enum tr_move move);

/* Counts an average of all ranks' models after `done` local steps that was applied; */
void tr_global_model_count(struct tr_global_model *global, uint64_t done);
/* a reduction of another kind, after which the ranks' parameters are the global model. */
void tr_global_model_agree(struct tr_global_model *global, uint64_t done);

rubato_status tr_global_model_keep(struct tr_global_model *global, struct tr_archive *archive);

#endif
