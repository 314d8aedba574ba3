/*
 * options.h -- the command line of rubato-train; every refusal is one line and exit status 2. What
 * an option is, its row says (options.c; of update rules their own files): programs/options.h.
 */
#ifndef TR_OPTIONS_H
#define TR_OPTIONS_H

#include "rubato_sim.h"
#include "trainer/emulation/compute_time.h"
#include "trainer/emulation/delay.h"
#include "trainer/models/compute.h"
#include "trainer/rules/rate.h"
#include "trainer/rules/rule.h"

#define TR_FINAL_AUTO UINT64_MAX /* As many as were trained with, at least 1024. */
#define TR_FINAL_ALL (UINT64_MAX - 1)

enum { TR_TABLE_FILES = 5, TR_TABLE_COUNT }; /* Those of files and of printing are the last. */

struct tr_command_line { /* Words, and the rows that they were scanned with. */
	struct tr_rule_rows rules;
	struct option network[NETWORK_ROWS];
	struct option_table tables[TR_TABLE_COUNT + 1];
	struct options options;
	struct option_words words;
};

struct tr_device_option {
	bool is_cuda;
	uint32_t number; /* As the driver counts. */
};

struct tr_options {
	uint32_t ranks; /* 0: join the launcher's job. */
	enum tr_model_kind model;
	uint32_t hidden_count;
	struct tr_sequence sequence; /* Models of text; length: the context; vocabulary: 0. */
	const char *data;
	const struct tr_rule *rule;
	struct tr_rule_options *own; /* The rule's. */
	enum tr_bn bn;
	double clip; /* Largest norm of a gradient that is applied; 0: any. */
	enum tr_optimizer_kind optimizer;
	struct tr_rate rate;   /* step_count is filled by the run. */
	uint64_t warmup_steps; /* --warmup, which is in the rate, too. */
	double momentum, weight_decay;
	uint32_t batch;
	uint64_t epochs; /* 0: steps counts. */
	uint64_t steps;
	uint64_t eval_every;       /* Epochs; 0: at the end only. */
	uint64_t final_rows;       /* Of the training set, for the loss at the end. */
	uint64_t report_every;     /* Steps between lines of metrics.jsonl. */
	uint64_t checkpoint_every; /* Local steps; 0: one an epoch. */
	uint64_t seed;
	uint64_t bucket_bytes; /* 0: one bucket. */
	struct tr_compute_time compute_time;
	struct tr_delay delay;
	bool no_shuffle;
	bool augment;
	bool quiet;
	bool no_report; /* report.html, with --out. */
	bool resume;
	bool simulate;
	struct tr_device_option device;
	enum tr_precision precision;
	rubato_sim_options world;      /* Of a simulation. */
	const char *init, *save, *out; /* NULL: none. */
	const char *for_out;           /* An option that only --out gives a meaning to; NULL. */
	const char *checkpoint;
	struct tr_command_line *line;
};

/* Whether the run goes on; --help and --version print and do not. */
enum tr_options_verdict { TR_OPTIONS_RUN, TR_OPTIONS_DONE };

/* tr_options_close() follows, whatever it returns. */
rubato_status tr_options_parse(struct tr_options *options, int argc, const char **argv,
			       enum tr_options_verdict *verdict, struct tr_error *error);
void tr_options_close(struct tr_options *options);

#endif
