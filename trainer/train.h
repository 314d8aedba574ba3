/* train.h -- one rank's training run, from reading its data to the last file. */
#ifndef TR_TRAIN_H
#define TR_TRAIN_H

#include "trainer/data/data.h"
#include "trainer/options.h"

/* The samples that the options ask for; tr_data_close() follows. */
rubato_status tr_load_data(const struct tr_options *options, struct tr_data *data,
			   struct tr_error *error);

/*
 * Collective; rubato_finalize follows, whatever it returns. `data`: read already, shared with
 * others; NULL: this rank reads its own. A failure that all ranks learn of is said on `line_fd` by
 * one of them, before any of them leaves: whoever looks after the job ends the others when the
 * first is gone.
 */
rubato_status tr_train(rubato_comm *comm, const struct tr_options *options,
		       const struct tr_data *data, int line_fd, struct tr_error *error);

#endif
