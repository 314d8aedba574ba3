/*
 * world.h -- update rules on simulated ranks with gradients that a test makes up: what each rank's
 * parameters are after each step, exactly.
 */
#ifndef TESTS_TRAINER_WORLD_H
#define TESTS_TRAINER_WORLD_H

#include "tests/trainer/own.h"
#include "trainer/rules/shared_options.h"

#define WORLD_RANKS 8
#define WORLD_STEPS 256

struct world {
	const struct tr_rule *rule;
	/* world_init: as the command line has them by default, but for a --group of 1, a --period
	 * of 4 and an unshifted base. */
	struct tr_rule_options *own;
	enum tr_bn bn;
	uint32_t ranks, per_node; /* per_node 0: each rank is a node. */
	size_t count;             /* Parameters, */
	float first;              /* all of this value at first. */
	size_t statistics_count;
	uint64_t steps;
	struct tr_rate rate; /* Constant 1. */
	enum tr_optimizer_kind optimizer;
	double momentum;
	/* Fills ctx->gradient; may set ctx->statistics and ctx->loss. NULL: zero. */
	void (*gradient)(struct tr_rule_context *ctx, uint64_t step);
	/* Checkpoints: after `keep_step` steps each rank saves to keep_folder/RANK; with `resume`
	 * it loads that first and takes the steps from there on. */
	const char *keep_folder; /* NULL: none. */
	uint64_t keep_step;
	bool resume;
	/* Results. */
	float *after[WORLD_RANKS];  /* [steps][count]: parameters after each step. */
	float *final[WORLD_RANKS];  /* [count]: and at the end. */
	float *states[WORLD_RANKS]; /* [2][count]: the optimizer's, at the end. */
	float statistics[WORLD_RANKS][4];
	uint64_t updates[WORLD_RANKS];
	struct tr_counts counts[WORLD_RANKS];
	uint64_t periods[WORLD_STEPS]; /* Of rank 0 after each step. */
};

void world_init(struct world *world, const struct tr_rule *rule, uint32_t ranks, size_t count,
		uint64_t steps);
/* Runs it; every rank must succeed, and end with the same bits. */
void world_run(struct world *world);
void world_free(struct world *world);

/* Element i of a rank's parameters after `step`. */
float world_after(const struct world *world, uint32_t rank, uint64_t step, size_t i);
/* A number that any rank, step and element has for itself, from -1 to 1. */
float world_noise(uint32_t rank, uint64_t step, size_t i);

#endif
