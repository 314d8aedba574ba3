/*
 * settings.h -- run.json of --out: what a run computes, in the words of the command line, for those
 * who read the other files: tools/replay recomputes the parameters from it, the ledger and the
 * data. docs/trainer.md explains the keys.
 */
#ifndef TR_SETTINGS_H
#define TR_SETTINGS_H

#include "trainer/options.h"
#include "trainer/order.h"

/* Written whole, or not at all. `rate`: with its step_count. */
rubato_status tr_settings_write(const struct tr_options *options, const struct tr_model *model,
				const struct tr_order *order, const struct tr_rate *rate,
				struct tr_note *note);

#endif
