/*
 * rule.h -- an update rule: what becomes of the gradient that a rank has just computed.
 *
 * One rule, one file, one paper. The training loop computes the gradient of each local step into
 * ctx->gradient and hands over; the rule communicates, and changes ctx->parameters when (and only
 * when) an update is applied. All ranks call the same functions in the same order.
 */
#ifndef TR_RULE_H
#define TR_RULE_H

#include "rubato.h"
#include "trainer/checkpoint/archive.h"
#include "trainer/records/ledger.h"
#include "trainer/records/trace.h"
#include "trainer/rules/buckets.h"
#include "trainer/rules/optimizer.h"
#include "trainer/rules/rate.h"
#include "trainer/rules/rule_options.h"

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

struct tr_rule_context { /* What a rule works on; it outlives the rule. */
	rubato_comm *comm;
	uint32_t rank, rank_count;
	size_t parameter_count;
	struct tr_cut cut; /* How the flat vectors are cut into buckets. */
	float *parameters; /* Equal on all ranks when the rule opens; from rubato_alloc, as the */
	float *gradient;   /* mean over the last local batch. */
	float *statistics; /* Of batch normalisation, local to the rank; */
	size_t statistics_count;
	uint32_t batch; /* Samples of the last local step here; */
	double loss;    /* its mean loss. */
	uint64_t node;  /* Equal on the ranks of one machine, simulated ones too. */
	struct tr_optimizer *optimizer;
	const struct tr_rate *rate;
	const struct tr_rule_options *own;
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
	const char *name; /* As --algorithm has it. */
	rubato_status (*open)(struct tr_rule_state **out, struct tr_rule_context *ctx);
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
	 * `step_count`: the local steps of this rank. */
	rubato_status (*finish)(struct tr_rule_state *state, uint64_t step_count);
	/* Before a checkpoint, after `step_count` local steps of this rank: what is on its way
	 * comes to its end. All ranks call it, some while others are still at work: nothing in here
	 * may need them before they come, but through the rule's own rounds. NULL: nothing is on
	 * its way. */
	rubato_status (*settle)(struct tr_rule_state *state, uint64_t step_count);
	/* Then all that the next step depends on, but what the context holds, goes into the archive
	 * (locally), or comes from there (on all ranks together). NULL: there is nothing. */
	rubato_status (*keep)(struct tr_rule_state *state, struct tr_archive *archive);
	void (*close)(struct tr_rule_state *state); /* NULL is fine. */
};

extern const struct tr_rule tr_rule_adpsgd;
extern const struct tr_rule tr_rule_hier;
extern const struct tr_rule tr_rule_kavg;
extern const struct tr_rule tr_rule_local;
extern const struct tr_rule tr_rule_periodic;
extern const struct tr_rule tr_rule_sync;
extern const struct tr_rule tr_rule_laga;
extern const struct tr_rule tr_rule_eager;

const struct tr_rule *tr_rule_at(size_t index); /* From 0; NULL: no more of them. */

#endif
