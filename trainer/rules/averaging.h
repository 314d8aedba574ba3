/*
 * averaging.h -- the mean of the ranks' models.
 *
 * What is averaged is the model a rank holds: its parameters and, where asked, the statistics of
 * batch normalisation (--bn average) and the optimizer's state (--opt-state average). Parameters
 * travel as --wire says, the rest as float32. A few numbers of 0 or more (`extras`) ride along and
 * come back as means in double, so that all ranks decide alike on what they say.
 */
#ifndef TR_AVERAGING_H
#define TR_AVERAGING_H

#include "trainer/rules/shared_options.h"

#define TR_EXTRAS_MAX 3

struct tr_averaging;

/* Collective over `comm`: the run's, or a group's. */
rubato_status tr_averaging_open(struct tr_averaging **out, struct tr_rule_context *ctx,
				rubato_comm *comm, const struct tr_averaging_options *options,
				uint32_t extra_count);
void tr_averaging_close(struct tr_averaging *averaging); /* NULL is fine. */

/*
 * Starts the mean of the ranks' models; end waits for it. `reference`: parameters that all ranks
 * hold alike, the same in both: what travels is the way from there, which loses less to rounding.
 * NULL, for float32 only: the parameters themselves. What is blocked counts as communication.
 */
rubato_status tr_averaging_begin(struct tr_averaging *averaging, const float *reference,
				 const double *extras);
rubato_status tr_averaging_end(struct tr_averaging *averaging, const float *reference,
			       double *extras);
/* After end with a reference: the squared length of the way from there to the mean, alike on all
 * ranks. */
double tr_averaging_square(const struct tr_averaging *averaging);
/* After end, until the next begin: the mean of the parameters, and of the statistics where they are
 * averaged (else NULL). */
float *tr_averaging_parameters(struct tr_averaging *averaging);
float *tr_averaging_statistics(struct tr_averaging *averaging);
/* Whether a begin has no end yet. */
bool tr_averaging_in_flight(const struct tr_averaging *averaging);
/* The statistics and the optimizer's state become their mean; with --opt-state reset, the state
 * becomes new. The parameters are the caller's to take. */
void tr_averaging_adopt(struct tr_averaging *averaging);
/* Not in flight. */
rubato_status tr_averaging_keep(struct tr_averaging *averaging, const char *name,
				struct tr_archive *archive);
/* The mean itself, that the last end brought. */
rubato_status tr_averaging_keep_mean(struct tr_averaging *averaging, struct tr_archive *archive);

#endif
