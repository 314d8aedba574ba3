/*
 * rule.h -- an update rule: what becomes of the gradient that a rank has just computed.
 *
 * One rule, one file, one paper. The training loop computes the gradient of each local step into
 * ctx->gradient and hands over; the rule communicates, and changes ctx->parameters when (and only
 * when) an update is applied. All ranks call the same functions in the same order.
 *
 * A rule's options are a struct of its own, which begins with a struct tr_rule_options, and rows
 * that say where in it they land (programs/options.h): its own rows, and those that it shares with
 * others (shared_options.h). --help, the command line, which rule takes which option, run.json and
 * what a checkpoint holds a run to all follow from them.
 */
#ifndef TR_RULE_H
#define TR_RULE_H

#include "programs/options.h"
#include "rubato.h"
#include "trainer/checkpoint/archive.h"
#include "trainer/data/sampler.h"
#include "trainer/records/ledger.h"
#include "trainer/records/trace.h"
#include "trainer/rules/buckets.h"
#include "trainer/rules/optimizer.h"
#include "trainer/rules/rate.h"

#define TR_RANKS_MAX 1024 /* Of a launch or a group: a bound on typing errors. */

/* All rules, in the order of --help. To add one: its name here, its file in meson.build. */
/* clang-format off */
#define TR_RULES(RULE) \
	RULE(sync) \
	RULE(laga) \
	RULE(kavg) \
	RULE(hier) \
	RULE(periodic) \
	RULE(adpsgd) \
	RULE(local) \
	RULE(eager)
/* clang-format on */

/* ---- Options ---- */

struct tr_rule_options {              /* What the run asks of a rule's. */
	enum tr_sampler_kind sampler; /* --work. */
	uint32_t gradient_depth; /* Results that its partial allreduce keeps; or the default. */
};

#define TR_DEPTH_DEFAULT 8

struct tr_option_group {
	const struct option *rows; /* No two with bytes between their fields: they are hashed. */
	size_t at;                 /* What their places count from, in the rule's struct. */
};

struct tr_rule_preset { /* Where a rule has another default than the row that it shares. */
	const char *name, *value;
};

struct tr_rule_request { /* What else was asked for. */
	const struct option_words *words;
	enum tr_optimizer_kind optimizer;
	double momentum;
};

/* ---- Rules ---- */

struct tr_counts { /* Of this rank; the report adds or compares them. */
	uint64_t global_reductions, local_reductions;
	uint64_t rounds;           /* Reductions whose result was applied. */
	uint64_t fresh_sum;        /* Over rounds: ranks whose contribution of that round was in. */
	uint64_t contributors_sum; /* Over rounds: ranks with any contribution in. */
	uint64_t staleness_max;    /* Largest age of an applied contribution, in rounds. */
	uint64_t period;           /* Local steps between averages of models, now; 0: none. */
	uint64_t group_bytes;      /* Sent on communicators of the rule's own. */
	uint64_t discarded;        /* Contributions of all ranks that were dropped (--late). */
	uint64_t communication_ns; /* Inside calls of the library; the loop adds ready()'s. */
	uint64_t buckets;          /* Reductions of buckets, */
	uint64_t buckets_hidden;   /* and those that were over when the gradient was complete. */
};

enum tr_bn { TR_BN_LOCAL, TR_BN_AVERAGE };

struct tr_rule_context { /* What a rule works on; it outlives the rule. */
	rubato_comm *comm;
	uint32_t rank, rank_count;
	size_t parameter_count;
	struct tr_cut cut;                /* How the flat vectors are cut into buckets. */
	const struct tr_vectors *vectors; /* What touches them. */
	float *parameters; /* Equal on all ranks when the rule opens; collectives take it, as the */
	float *gradient;   /* mean over the last local batch. */
	float *statistics; /* Of batch normalisation, local to the rank; */
	size_t statistics_count;
	uint32_t batch; /* Samples of the last local step here; */
	double loss;    /* its mean loss. */
	uint64_t node;  /* Equal on the ranks of one machine, simulated ones too. */
	struct tr_optimizer *optimizer;
	const struct tr_rate *rate;
	const struct tr_rule_options *own; /* The rule's own struct. */
	enum tr_bn bn;
	double clip;               /* Largest norm of a gradient that is applied; 0: any. */
	uint64_t seed, step_count; /* Of the run; local steps of a rank (shared work: the mean). */
	struct tr_counts counts;   /* The rule keeps them. */
	double rate_applied;       /* Of the last update; negative: that of the local step. */
	struct tr_ledger *ledger;
	struct tr_trace *trace;
	/* What open() says of the rule under its options: */
	bool relaxed; /* Ranks may be several steps apart: nothing in between is collective. */
	bool replicas_differ;    /* Parameters differ between ranks, but after finish(). */
	bool average_statistics; /* It averages `statistics` with the parameters itself. */
	struct tr_error *error;
};

struct tr_rule_state; /* Private to the rule. */

struct tr_rule {
	const char *name;                     /* As --algorithm has it. */
	size_t options_bytes;                 /* Of its struct; 0: a struct tr_rule_options. */
	size_t state_bytes;                   /* Of its struct tr_rule_state. */
	const struct tr_option_group *groups; /* Its rows; NULL: none. The last has no rows. */
	const struct tr_rule_preset *presets; /* NULL: none. The last has no name. */
	/* After its rows have been read into `own`: fills in the defaults that depend on others,
	 * refuses what would change nothing or cannot be meant. NULL: all is well. */
	rubato_status (*judge)(struct tr_rule_options *own, const struct tr_rule_request *request,
			       struct tr_error *error);
	/* `state` is all zeros. After an error close() follows, too. */
	rubato_status (*open)(struct tr_rule_state *state, struct tr_rule_context *ctx);
	/* Before the gradient of local step `step` is computed: parameters may be brought up to
	 * date. NULL: no need. */
	rubato_status (*begin)(struct tr_rule_state *state, uint64_t step);
	/* While it is computed: ctx->gradient is final from float `first` on, which goes down to 0
	 * in steps of any size. Must not block: the time in here is communication. NULL: no
	 * need. */
	rubato_status (*ready)(struct tr_rule_state *state, size_t first);
	/* After it was computed. */
	rubato_status (*step)(struct tr_rule_state *state, uint64_t step);
	/* After the last step: drains what is in flight, applies it, leaves all ranks equal.
	 * `step_count`: the local steps of this rank. NULL: they are, and nothing is. */
	rubato_status (*finish)(struct tr_rule_state *state, uint64_t step_count);
	/* Before a checkpoint, after `step_count` local steps of this rank: what is on its way
	 * comes to its end. All ranks call it, some while others are still at work: nothing in here
	 * may need them before they come, but through the rule's own rounds. NULL: nothing is on
	 * its way. */
	rubato_status (*settle)(struct tr_rule_state *state, uint64_t step_count);
	/* Then all that the next step depends on, but what the context holds, goes into the archive
	 * (locally), or comes from there (on all ranks together). NULL: there is nothing. */
	rubato_status (*keep)(struct tr_rule_state *state, struct tr_archive *archive);
	void (*close)(struct tr_rule_state *state);
};

/* ---- What rules do alike ---- */

/* ctx->gradient, clipped, goes to the optimizer. */
void tr_apply_gradient(struct tr_rule_context *ctx, double rate);
/* A step of the rank's own: the same, at the rate of that step. */
void tr_local_step(struct tr_rule_context *ctx, uint64_t step);
/* A reduction was applied: so many ranks' contributions of that round, of any, were in it. */
void tr_count_round(struct tr_rule_context *ctx, uint64_t fresh, uint64_t contributors);
/* Collective: the ranks' mean, in place. */
rubato_status tr_average(struct tr_rule_context *ctx, float *values, size_t count,
			 const char *what);

/* ---- The rules of this version ---- */

#define TR_RULE_DECLARE(name) extern const struct tr_rule tr_rule_##name;
TR_RULES(TR_RULE_DECLARE)

const struct tr_rule *tr_rule_at(size_t index); /* From 0; NULL: no more of them. */
const char *const *tr_rule_names(void);         /* NULL-terminated, in the same order. */

/* Makes the state and opens the rule on it; of an error nothing is left. */
rubato_status tr_rule_open(struct tr_rule_state **out, const struct tr_rule *rule,
			   struct tr_rule_context *ctx);
void tr_rule_close(const struct tr_rule *rule, struct tr_rule_state *state); /* NULL is fine. */

/* ---- What follows from the rows ---- */

#define TR_RULE_ROWS_MAX 64

/* The options of all rules, each once: its help names the rules that take it, and the defaults of
 * those that have another. */
struct tr_rule_rows {
	struct option rows[TR_RULE_ROWS_MAX]; /* The last has no name. */
	char *texts[TR_RULE_ROWS_MAX];
	uint32_t count;
};

bool tr_rule_rows_make(struct tr_rule_rows *rows); /* False: no memory. */
void tr_rule_rows_free(struct tr_rule_rows *rows); /* Of zeros is fine. */

/* A rule's options by default, but those that judge() fills in; for free(). NULL: no memory. */
struct tr_rule_options *tr_rule_options_new(const struct tr_rule *rule);
/* Its row of that name; NULL: it has none. *place: where it lands. */
const struct option *tr_rule_option(const struct tr_rule *rule, struct tr_rule_options *own,
				    const char *name, void **place);
/* What was given, judged. `rows`: what was scanned. */
rubato_status tr_rule_options_read(const struct tr_rule *rule, const struct tr_rule_rows *rows,
				   const struct tr_rule_request *request,
				   struct tr_rule_options *own, struct tr_error *error);
/* Refuses an option that was given and that the others leave without a use. */
rubato_status tr_option_needs(const struct tr_rule_request *request, const char *name, bool used,
			      const char *needs, struct tr_error *error);
/* NULL: no memory. */
struct json_t *tr_rule_options_json(const struct tr_rule *rule, const struct tr_rule_options *own);
uint64_t tr_rule_options_hash(uint64_t hash, const struct tr_rule *rule,
			      const struct tr_rule_options *own);

#endif
