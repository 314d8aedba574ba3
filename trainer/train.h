/* train.h -- one rank's training run, from joining the job to the last file. */
#ifndef TR_TRAIN_H
#define TR_TRAIN_H

#include "trainer/options.h"

/*
 * Collective. A failure that all ranks learn of is said on `line_fd` by one of them, before any of
 * them leaves: whoever looks after the job ends the others when the first is gone.
 */
rubato_status tr_train(const struct tr_options *options, int line_fd, struct tr_note *note);

#endif
