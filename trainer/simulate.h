/* simulate.h -- --simulate: all ranks of a run in this process, in virtual time. */
#ifndef TR_SIMULATE_H
#define TR_SIMULATE_H

#include "trainer/options.h"

/* Of several ranks' sentences about a failure, `error` gets the first. */
rubato_status tr_simulate(const struct tr_options *options, struct tr_error *error);

#endif
