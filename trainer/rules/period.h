/*
 * period.h -- how many local steps lie between two averages: a number that every rank computes for
 * itself, from means that all hold alike, so that none must be told.
 *
 *   const       always --period
 *   adp         ADPSGD (Jiang, Agrawal, arXiv 2007.06134). S: the mean squared distance of the
 *               ranks' models from their mean, before they are averaged; lr: the rate of the last
 *               local step. While sampling (the first --adapt-sample-steps steps) C is the running
 *               mean of S / lr; afterwards the period grows by one when S < low lr C and shrinks by
 *               one when S > high lr C. What one period may spread grows as lr^2 and what it should
 *               as lr, so the period follows 1 / lr.
 *   adacomm     AdaComm (Wang, Joshi, 2018), the other way round: seldom first, often later. Every
 *               --adapt-sample-steps steps (default: a sixteenth of the run) the period becomes
 *               ceil(--period * sqrt(mean loss of the interval / first loss)), or half of itself
 *               where that is no less.
 *   post-local  Lin et al., 2018: mean gradients for the first --adapt-sample-steps steps, then
 *               averages every --period.
 */
#ifndef TR_PERIOD_H
#define TR_PERIOD_H

#include "trainer/checkpoint/archive.h"
#include "trainer/rules/shared_options.h"

struct tr_period {
	const struct tr_period_options *options;
	uint64_t sample_steps;
	uint64_t steps;   /* The period now. */
	uint64_t samples; /* adp: in `constant`. adacomm: in `loss_sum`. */
	double constant;  /* adp: C. */
	double loss_sum, first_loss;
	uint64_t interval; /* adacomm: number of the one that `loss_sum` is of. */
};

void tr_period_open(struct tr_period *period, const struct tr_period_options *options,
		    uint64_t step_count);
/* post-local: whether step `step` averages gradients. */
bool tr_period_full(const struct tr_period *period, uint64_t step);
/* A regular average after local step `step` found this spread (adp); or this mean loss of the steps
 * since the one before (adacomm). `rate`: the learning rate of that step. */
void tr_period_spread(struct tr_period *period, uint64_t step, double spread, double rate);
void tr_period_loss(struct tr_period *period, uint64_t step, double loss);

rubato_status tr_period_keep(struct tr_period *period, struct tr_archive *archive,
			     struct tr_error *error);

#endif
