/*
 * metrics.h -- the files of --out, written by rank 0: metrics.jsonl grows by whole lines,
 * summary.json appears when the run is over. docs/trainer.md explains each key.
 */
#ifndef TR_METRICS_H
#define TR_METRICS_H

#include "trainer/records/totals.h"

struct tr_metrics {
	const char *folder; /* NULL: nothing is written. */
	int lines;          /* File descriptor of metrics.jsonl. */
};

struct tr_metrics_line {
	uint64_t step; /* Local steps done. */
	double epoch;  /* Epochs done. */
	double loss, accuracy;
	bool has_accuracy;
	uint64_t samples;
	double time, idle_time, communication_time, rate;
	uint64_t reductions, bytes;
	uint64_t period; /* 0: the rule has none. */
	bool has_test;
	double test_loss, test_accuracy;
};

struct tr_summary {
	const char *algorithm, *model, *data, *compute;
	uint32_t ranks, batch;
	uint64_t steps, samples, seed, parameters;
	uint32_t buckets;
	double hidden_fraction;
	bool simulated;
	double seconds, samples_per_second, idle_fraction, communication_seconds;
	uint64_t final_rows; /* That final_loss is over; 0: there is none. */
	double final_loss, test_loss, test_accuracy;
	bool classify, has_test;
	bool reads_text; /* Losses are per token. */
	uint64_t tokens; /* Predicted in training, of all ranks. */
	uint64_t global_reductions, local_reductions, bytes_sent, rounds, staleness_max;
	uint64_t discarded;
	double fresh_mean, contributors_mean;
	const struct tr_totals *per_rank; /* [ranks] */
	struct json_t *settings;          /* Of the command line; tr_metrics_summary() frees it. */
};

/* Makes the folder where it is missing, and removes what an older run left at its end. */
rubato_status tr_metrics_folder(const char *folder, struct tr_error *error);
/* Starts the lines; of those that are there, where a resumed run goes on, the ones up to step
 * `last_step` stay, but for those with tests unless `with_tests`. `folder` NULL: nothing is
 * written. */
rubato_status tr_metrics_open(struct tr_metrics *metrics, const char *folder, uint64_t last_step,
			      bool with_tests, struct tr_error *error);
rubato_status tr_metrics_line(struct tr_metrics *metrics, const struct tr_metrics_line *line,
			      struct tr_error *error);
rubato_status tr_metrics_summary(struct tr_metrics *metrics, const struct tr_summary *summary,
				 struct tr_error *error);
void tr_metrics_close(struct tr_metrics *metrics);

#endif
