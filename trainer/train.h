/* train.h -- one rank's training run, from joining the job to the last file. */
#ifndef TR_TRAIN_H
#define TR_TRAIN_H

#include "trainer/options.h"

/* Collective. A failure that all ranks learn of leaves the sentence on one of them only. */
rubato_status tr_train(const struct tr_options *options, struct tr_note *note);

#endif
