/*
 * run.h -- one rank's run, as the files that make it up share it: prepare.c, train.c (the loop),
 * progress that all ranks add up (scores.c), resume.c (checkpoints) and conclude.c.
 */
#ifndef TR_RUN_H
#define TR_RUN_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/data.h"
#include "trainer/data/sampler.h"
#include "trainer/data/shuffle.h"
#include "trainer/models/compute.h"
#include "trainer/options.h"
#include "trainer/records/metrics.h"
#include "trainer/records/progress.h"
#include "trainer/records/snapshots.h"
#include "trainer/records/totals.h"

struct tr_batch_buffers { /* A batch, gathered. */
	float *x;
	int32_t *labels;
	float *targets;
	float *spare; /* A row. */
};

struct tr_run {
	const struct tr_options *options;
	struct tr_error *error;
	rubato_comm *comm;
	uint32_t rank, rank_count;
	const struct tr_data *data; /* Its own, or one that simulated ranks share. */
	struct tr_data own_data;
	struct tr_model model;
	struct tr_shuffle shuffle;
	struct tr_sampler *sampler;
	const struct tr_compute_ops *ops;
	struct tr_compute *compute;
	struct tr_batch_buffers batch, eval_batch;
	const struct tr_vectors *vectors; /* The host's, or cuda_vectors. */
	struct tr_vectors cuda_vectors;
	struct tr_cuda *cuda; /* NULL: the run is on the host. */
	struct tr_optimizer optimizer;
	struct tr_rate rate;
	struct tr_rule_context ctx;
	struct tr_rule_state *rule;
	struct tr_metrics metrics;
	struct tr_progress progress;
	uint64_t start_ns, pause_ns; /* pause_ns: spent on tests, reports and checkpoints. */
	uint64_t compute_ns;         /* Gathering and computing gradients. */
	uint64_t ready_ns;           /* Meanwhile in the rule's ready(), this step. */
	struct tr_score score;       /* Of all steps of this rank, */
	struct tr_totals reported;   /* and of all ranks, up to the last report. */
	uint64_t steps_done;         /* Here. */
	uint64_t tests_due;          /* --eval-every, so far; of shared work. */
	/* A relaxed rule's reports; NULL: reports are collective. */
	struct tr_totals_channel *channel;
	struct tr_snapshots snapshots;
	struct tr_checkpoints checkpoints;
	uint64_t init_hash; /* Of --init. */
	float *first;       /* Rank 0, with --out: its first parameters, for initial.npy; */
	bool goes_on;       /* and whether the lines of metrics that are there are this run's. */
	uint64_t checkpoint_next;         /* After so many local steps, mean of the ranks. */
	uint64_t reported_step;           /* `steps_done` at the last report. */
	uint64_t before_ns, before_bytes; /* Of a resumed run: its time, and what it had sent. */
	uint64_t kept_ns, kept_bytes;     /* What a checkpoint says of these. */
	double seconds;                   /* Set when the loop is over. */
};

/* ---- prepare.c ---- */

/* Collective. Data, model, shuffle, compute: local; then all agree that it worked, and alike. */
rubato_status tr_run_prepare(struct tr_run *run);
void tr_run_close(struct tr_run *run);
rubato_status tr_run_write_parameters(struct tr_run *run, const char *path);
rubato_status tr_run_write_out(struct tr_run *run, const char *name); /* To --out. */

/* ---- device.c ---- */

/* Chooses what the run computes with. Local. */
rubato_status tr_run_open_device(struct tr_run *run);
void tr_run_close_device(struct tr_run *run); /* The last. */

/* ---- train.c ---- */

/* The error of a loss that is not finite; `shared`: all ranks have come to know of it together. */
rubato_status tr_run_diverged(struct tr_run *run, bool shared);

/* ---- scores.c ---- */

struct tr_answers tr_answers_of(const struct tr_batch_buffers *batch);
/* Collective: the score of `rows` of the part, evenly spread. Blocks of them go round the ranks;
 * the sums are the same on all. `what` is found, for progress; NULL: silently. */
rubato_status tr_run_evaluate(struct tr_run *run, const struct tr_part *part, uint64_t rows,
			      const char *what, struct tr_score *out);
double tr_mean_loss(const struct tr_score *score);
double tr_accuracy(const struct tr_score *score);
void tr_line_add_test(struct tr_metrics_line *line, const struct tr_score *test);
/* All that this rank has done so far; */
rubato_status tr_run_totals(struct tr_run *run, struct tr_totals *mine);
/* collective: that of all ranks. */
rubato_status tr_run_add_up(struct tr_run *run, struct tr_totals *sum);
/* Time of training so far: without pauses, with that of the run that was resumed. */
uint64_t tr_run_elapsed_ns(const struct tr_run *run);
double tr_run_elapsed(const struct tr_run *run);

/* ---- resume.c ---- */

/* Collective: loads the checkpoint to go on from, if there is one. */
rubato_status tr_run_resume(struct tr_run *run);
/* Collective, the last before the first step: of a resumed run, the ranks go on as from its
 * checkpoint. */
rubato_status tr_run_set_out(struct tr_run *run);
/* Before the step on `batch`: takes a checkpoint if the ranks have come to one. */
rubato_status tr_run_checkpoint(struct tr_run *run, const struct tr_batch *batch);

/* ---- conclude.c ---- */

/* Collective: replicas are compared; final loss, test, --save, summary. */
rubato_status tr_run_conclude(struct tr_run *run);

#endif
