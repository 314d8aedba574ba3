/*
 * metrics.h -- the files of --out, written by rank 0: metrics.jsonl grows by whole lines, with it a
 * file for TensorBoard (events.h), and summary.json appears when the run is over. docs/trainer.md
 * explains each key.
 */
#ifndef TR_METRICS_H
#define TR_METRICS_H

#include "trainer/records/totals.h"

struct json_t; /* jansson's. */

#define TR_METRICS_DIGITS 9

struct tr_metrics {
	const char *folder; /* NULL: nothing is written. */
	int lines, events;  /* File descriptors of metrics.jsonl and TensorBoard's. */
};

struct tr_metrics_line {
	uint64_t step; /* Local steps done. */
	double epoch;  /* Epochs done. */
	double loss, accuracy;
	uint64_t samples;
	double time, idle_time, communication_time, rate;
	uint64_t reductions, bytes;
	uint64_t period; /* 0: the rule has none. */
	double test_loss, test_accuracy;
	uint32_t has_accuracy, has_test; /* Checkpoints hold this struct: it must have no gaps. */
};
_Static_assert(sizeof(struct tr_metrics_line) == 15 * 8, "no byte is left unset");

/* Makes the folder where it is missing. */
rubato_status tr_metrics_folder(const char *folder, struct tr_error *error);
/* Removes what appears at the end of a run: until then none must look like this one's. */
rubato_status tr_metrics_clear(const char *folder, struct tr_error *error);
/* Starts the lines; of those that are there, where a resumed run goes on, the ones up to step
 * `last_step` stay, but for those with tests unless `with_tests`. `folder` NULL: nothing is
 * written. */
rubato_status tr_metrics_open(struct tr_metrics *metrics, const char *folder, uint64_t last_step,
			      bool with_tests, struct tr_error *error);
rubato_status tr_metrics_line(struct tr_metrics *metrics, const struct tr_metrics_line *line,
			      struct tr_error *error);
/* A file of the folder, whole or not at all. Frees the object; NULL: there was no memory. */
rubato_status tr_json_write(const char *folder, const char *name, struct json_t *object,
			    size_t digits, struct tr_error *error);
/* A number, or null. */
struct json_t *tr_optional(bool there, double value);
void tr_metrics_close(struct tr_metrics *metrics);

#endif
