/* options_words.h -- the words of the command line, before anyone judges them; inside
 * options*.c. */
#ifndef TR_OPTIONS_WORDS_H
#define TR_OPTIONS_WORDS_H

#include <popt.h>
#include <stdbool.h>

#include "trainer/options.h"

enum word {
	WORD_RANKS = 1, /* popt's values begin above 0. */
	WORD_MODEL,
	WORD_HIDDEN,
	WORD_DATA,
	WORD_DEVICE,
	WORD_ALGORITHM,
	WORD_OPTIMIZER,
	WORD_LR,
	WORD_MOMENTUM,
	WORD_WEIGHT_DECAY,
	WORD_LR_SCHEDULE,
	WORD_WARMUP,
	WORD_BATCH,
	WORD_EPOCHS,
	WORD_STEPS,
	WORD_EVAL_EVERY,
	WORD_FINAL_ROWS,
	WORD_REPORT_EVERY,
	WORD_SEED,
	WORD_INIT,
	WORD_SAVE,
	WORD_OUT,
	WORD_BUCKET,
	WORD_COMPUTE_TIME,
	WORD_FORWARD,
	WORD_CONTEXT,
	WORD_LAYERS,
	WORD_WIDTH,
	WORD_HEADS,
	WORD_TOPOLOGY,
	WORD_LATENCY,
	WORD_BANDWIDTH,
	WORD_JITTER,
	WORD_SIMULATE,
	WORD_NO_SHUFFLE,
	WORD_AUGMENT,
	WORD_QUIET,
	WORD_NO_REPORT,
	WORD_VERSION,
	WORD_DELAY,
	WORD_CHECKPOINT,
	WORD_CHECKPOINT_EVERY,
	WORD_RESUME,
	/* The rules' own, options_rule.c. */
	WORD_ACCUMULATE,
	WORD_LAG,
	WORD_LAG_COMP,
	WORD_FIRST_STEP,
	WORD_RATE_BY_COUNT,
	WORD_K,
	WORD_K1,
	WORD_K2,
	WORD_GROUP,
	WORD_PERIOD,
	WORD_PERIOD_MAX,
	WORD_SCHEDULE,
	WORD_ADAPT_LOW,
	WORD_ADAPT_HIGH,
	WORD_ADAPT_SAMPLE_STEPS,
	WORD_OUTER,
	WORD_OUTER_MOMENTUM,
	WORD_OUTER_LR,
	WORD_OUTER_GAIN,
	WORD_NESTEROV_BASE,
	WORD_OPT_STATE,
	WORD_PULL,
	WORD_WIRE,
	WORD_POLICY,
	WORD_ROUNDS,
	WORD_LATE,
	WORD_NORMALISE,
	WORD_COLLECT,
	WORD_FULL_EVERY,
	WORD_MAX_ABSENCE,
	WORD_WINDOW,
	WORD_MODEL_SYNC_EVERY,
	WORD_BN,
	WORD_WORK,
	WORD_CLIP,
	WORD_COUNT
};

struct words {
	char *at[WORD_COUNT];   /* As given, the last time it was; NULL: it was not. */
	bool given[WORD_COUNT]; /* Also of options without a value. */
};

extern const struct poptOption tr_rule_rows[];
/* What a word of a rule's own may be; NULL: no choice. */
const char *const *tr_rule_choices(int word);
/* Needs o->rule and o->ranks. */
rubato_status tr_judge_rule_options(struct tr_options *o, const struct words *w,
				    struct tr_error *error);

#endif
