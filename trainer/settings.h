/*
 * settings.h -- run.json of --out: what a run computes, in the words of the command line, for those
 * who read the other files: tools/replay recomputes the parameters from it, the ledger and the
 * data. docs/trainer.md explains the keys.
 */
#ifndef TR_SETTINGS_H
#define TR_SETTINGS_H

#include "trainer/data/data.h"
#include "trainer/data/shuffle.h"
#include "trainer/options.h"

/* Of what must be the same on all ranks for them to be one run, and in a checkpoint for it to go
 * on. The length of the run is no part of it, nor is where and how ranks run. */
uint64_t tr_settings_hash(const struct tr_options *options, const struct tr_model *model,
			  const struct tr_data *data);
/* Of the simulated network and nodes, which make a simulated run's times; 0: ranks are real. */
uint64_t tr_settings_network(const struct tr_options *options);
/* Written whole, or not at all. `rate`: with its step_count. */
rubato_status tr_settings_write(const struct tr_options *options, const struct tr_model *model,
				const struct tr_shuffle *shuffle, const struct tr_rate *rate,
				struct tr_error *error);

/* Whether the folder has a run.json of another run: one that differs in more than its length and
 * the name of its data. */
bool tr_settings_other(const struct tr_options *options, const struct tr_model *model,
		       const struct tr_shuffle *shuffle, const struct tr_rate *rate);

/* The options of the command line as they were given, for summary.json; names of files and folders
 * are no part of a run. */
struct json_t *tr_settings_given(const struct tr_options *options);

#endif
