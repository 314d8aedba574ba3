/* options.c -- popt reads the words, this file judges them. */
#include "trainer/options_words.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/values.h"

#define MODEL_DEFAULT TR_MLP
#define DATA_DEFAULT "fashion-mnist"
#define DATA_TEXT 4 /* In data_choices. */
#define HIDDEN_DEFAULT 64
#define BATCH_DEFAULT 32
#define EPOCHS_DEFAULT 5
#define LR_DEFAULT 0.05
#define REPORT_DEFAULT 50
#define BUCKET_DEFAULT (1u << 20)
#define BUCKET_LEAST 1024
#define FORWARD_DEFAULT (1.0 / 3.0) /* A backward pass does twice the work of a forward pass. */
#define LATENCY_DEFAULT_NS 5000
#define TABLES 4    /* Of options, each with a title in --help. */
#define ROWS_MAX 48 /* Of one. */

static const char *const data_choices[] = { "fashion-mnist[:DIR]",   "cifar10:DIR", "npy:DIR",
					    "synthetic[:ROWSxDIMS]", "text:FILE",   NULL };
static const char *const topologies[] = { "flat", "nodes:N", NULL };
static const char *const devices[] = { "cpu", NULL };

/* What a word may be; NULL: no choice. `room` is for tables that are not there as such. */
static const char *const *choices_of(int word, const char *room[TR_CHOICES_MAX])
{
	size_t count = 0;

	switch (word) {
	case WORD_MODEL:
		for (; count <= TR_GPT; count++)
			room[count] = tr_model_name((enum tr_model_kind)count);
		break;
	case WORD_ALGORITHM:
		for (; tr_rule_at(count) != NULL; count++)
			room[count] = tr_rule_at(count)->name;
		break;
	case WORD_OPTIMIZER:
		return tr_optimizer_names;
	case WORD_DATA:
		return data_choices;
	case WORD_TOPOLOGY:
		return topologies;
	case WORD_DEVICE:
		return devices;
	case WORD_LR_SCHEDULE:
		return tr_rate_names;
	case WORD_DELAY:
		return tr_delay_names;
	default:
		return tr_rule_choices(word);
	}
	room[count] = NULL;
	return room;
}

/* Leaves *index as it is where the word was not given. */
static rubato_status judge_choice(const struct words *w, enum word word, const char *name,
				  unsigned *index, struct tr_error *error)
{
	const char *room[TR_CHOICES_MAX], *value;

	return w->at[word] == NULL ? RUBATO_OK
				   : tr_parse_choice(name, w->at[word], choices_of((int)word, room),
						     index, &value, error);
}

static rubato_status judge_model(struct tr_options *o, const struct words *w,
				 struct tr_error *error)
{
	unsigned kind = MODEL_DEFAULT;
	uint64_t hidden;

	TR_TRY(judge_choice(w, WORD_MODEL, "--model", &kind, error));
	o->model = (enum tr_model_kind)kind;
	hidden = o->model == TR_LSTM ? TR_LSTM_HIDDEN : HIDDEN_DEFAULT;
	if (w->at[WORD_HIDDEN] != NULL)
		TR_TRY(tr_parse_count("--hidden", w->at[WORD_HIDDEN], 1, 1u << 20, &hidden, error));
	o->hidden_count = (uint32_t)hidden;
	if (w->given[WORD_HIDDEN] && o->model != TR_MLP && o->model != TR_LSTM)
		return tr_refuse(error, "--hidden: model %s has no use for it",
				 tr_model_name(o->model));
	return RUBATO_OK;
}

/* The sizes of the models of text; others have no use for them. */
static rubato_status judge_sequence(struct tr_options *o, const struct words *w,
				    struct tr_error *error)
{
	static const struct {
		const char *name;
		enum word word;
		uint64_t gpt, lstm, most; /* Defaults; lstm 0: only gpt has it. */
	} rows[] = {
		{ "--context", WORD_CONTEXT, TR_GPT_CONTEXT, TR_LSTM_CONTEXT, TR_CONTEXT_MAX },
		{ "--layers", WORD_LAYERS, TR_GPT_LAYERS, 0, TR_GPT_LAYERS_MAX },
		{ "--width", WORD_WIDTH, TR_GPT_WIDTH, 0, 1u << 16 },
		{ "--heads", WORD_HEADS, TR_GPT_HEADS, 0, 1u << 16 },
	};
	uint64_t value[4];

	for (int i = 0; i < 4; i++) {
		const char *text = w->at[rows[i].word];

		value[i] = o->model == TR_LSTM ? rows[i].lstm : rows[i].gpt;
		if (text == NULL)
			continue;
		if (o->model != TR_GPT && (o->model != TR_LSTM || rows[i].lstm == 0))
			return tr_refuse(error, "%s: model %s has no use for it", rows[i].name,
					 tr_model_name(o->model));
		TR_TRY(tr_parse_count(rows[i].name, text, 1, rows[i].most, &value[i], error));
	}
	o->sequence = (struct tr_sequence) { .length = (uint32_t)value[0],
					     .hidden = o->hidden_count,
					     .layers = (uint32_t)value[1],
					     .width = (uint32_t)value[2],
					     .heads = (uint32_t)value[3] };
	return RUBATO_OK;
}

/* A source without what must follow its colon is told so. */
static rubato_status judge_data(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	static const char *const wants[] = { "folder", "folder", "folder", "size", "file" };
	char all[TR_CHOICES_BYTES];
	const char *value = NULL;
	unsigned kind = 0;
	size_t length;

	o->data = w->at[WORD_DATA];
	if (o->data == NULL)
		o->data = o->model == TR_HYPERPLANE ? "synthetic" : DATA_DEFAULT;
	length = strcspn(o->data, ":");
	for (size_t i = 0; data_choices[i] != NULL; i++) {
		const char *form = data_choices[i];

		if (strncmp(o->data, form, length) != 0 || strcspn(form, ":[") != length)
			continue;
		if ((o->data[length] == '\0' && form[length] == ':') ||
		    (o->data[length] == ':' && o->data[length + 1] == '\0'))
			return tr_refuse(error, "--data: '%s' lacks its %s; it takes %s", o->data,
					 wants[i], tr_choices_join(data_choices, all, sizeof(all)));
	}
	TR_TRY(tr_parse_choice("--data", o->data, data_choices, &kind, &value, error));
	if ((kind == DATA_TEXT) != tr_model_reads_text(o->model))
		return tr_refuse(error,
				 "--model %s: --data text:FILE is what lstm and gpt want, and is "
				 "for them alone",
				 tr_model_name(o->model));
	return RUBATO_OK;
}

static rubato_status judge_rule(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	unsigned device = 0, optimizer = TR_SGD, rule = 0;

	if (w->at[WORD_DEVICE] != NULL && strcmp(w->at[WORD_DEVICE], "cuda") == 0)
		return tr_refuse(error, "--device: 'cuda' is not in this version; there is cpu");
	TR_TRY(judge_choice(w, WORD_DEVICE, "--device", &device, error));
	TR_TRY(judge_choice(w, WORD_OPTIMIZER, "--optimizer", &optimizer, error));
	TR_TRY(judge_choice(w, WORD_ALGORITHM, "--algorithm", &rule, error));
	o->optimizer = (enum tr_optimizer_kind)optimizer;
	o->rule = tr_rule_at(rule);
	return RUBATO_OK;
}

static rubato_status judge_rate(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	o->rate = (struct tr_rate) { .kind = TR_RATE_CONSTANT, .base = LR_DEFAULT };
	if (w->at[WORD_LR] != NULL)
		TR_TRY(tr_parse_number("--lr", w->at[WORD_LR], 0.0, 1e6, &o->rate.base, error));
	if (w->at[WORD_LR_SCHEDULE] != NULL)
		TR_TRY(tr_rate_parse(&o->rate, w->at[WORD_LR_SCHEDULE], error));
	if (w->at[WORD_WARMUP] != NULL && o->rate.warmup_steps > 0)
		return tr_refuse(error, "--warmup: --lr-schedule names a warm-up already");
	if (w->at[WORD_WARMUP] != NULL)
		TR_TRY(tr_parse_count("--warmup", w->at[WORD_WARMUP], 0, UINT32_MAX,
				      &o->rate.warmup_steps, error));
	if (w->at[WORD_MOMENTUM] != NULL) {
		TR_TRY(tr_parse_number("--momentum", w->at[WORD_MOMENTUM], 0.0, 1.0, &o->momentum,
				       error));
		if (o->momentum >= 1.0)
			return tr_refuse(error, "--momentum: must be below 1");
	}
	if (w->at[WORD_WEIGHT_DECAY] != NULL)
		TR_TRY(tr_parse_number("--weight-decay", w->at[WORD_WEIGHT_DECAY], 0.0, 1e6,
				       &o->weight_decay, error));
	return RUBATO_OK;
}

static rubato_status judge_run(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	uint64_t ranks = 0, batch = BATCH_DEFAULT;

	if (w->at[WORD_RANKS] != NULL)
		TR_TRY(tr_parse_count("--ranks", w->at[WORD_RANKS], 1, TR_RANKS_MAX, &ranks,
				      error));
	if (w->at[WORD_BATCH] != NULL)
		TR_TRY(tr_parse_count("--batch", w->at[WORD_BATCH], 1, 1u << 20, &batch, error));
	o->ranks = (uint32_t)ranks;
	o->batch = (uint32_t)batch;
	if (w->at[WORD_EPOCHS] != NULL && w->at[WORD_STEPS] != NULL)
		return tr_refuse(error, "--epochs and --steps: give one of the two");
	o->epochs = w->at[WORD_STEPS] == NULL ? EPOCHS_DEFAULT : 0;
	if (w->at[WORD_EPOCHS] != NULL)
		TR_TRY(tr_parse_count("--epochs", w->at[WORD_EPOCHS], 1, 1u << 30, &o->epochs,
				      error));
	if (w->at[WORD_STEPS] != NULL)
		TR_TRY(tr_parse_count("--steps", w->at[WORD_STEPS], 1, UINT32_MAX, &o->steps,
				      error));
	if (w->at[WORD_EVAL_EVERY] != NULL)
		TR_TRY(tr_parse_count("--eval-every", w->at[WORD_EVAL_EVERY], 0, 1u << 30,
				      &o->eval_every, error));
	o->final_rows = TR_FINAL_AUTO;
	if (w->at[WORD_FINAL_ROWS] != NULL && strcmp(w->at[WORD_FINAL_ROWS], "all") == 0)
		o->final_rows = TR_FINAL_ALL;
	else if (w->at[WORD_FINAL_ROWS] != NULL)
		TR_TRY(tr_parse_count("--final-rows", w->at[WORD_FINAL_ROWS], 0, UINT32_MAX,
				      &o->final_rows, error));
	o->report_every = REPORT_DEFAULT;
	if (w->at[WORD_REPORT_EVERY] != NULL)
		TR_TRY(tr_parse_count("--report-every", w->at[WORD_REPORT_EVERY], 1, UINT32_MAX,
				      &o->report_every, error));
	if (w->at[WORD_SEED] != NULL)
		TR_TRY(tr_parse_count("--seed", w->at[WORD_SEED], 0, UINT64_MAX, &o->seed, error));
	return RUBATO_OK;
}

static rubato_status judge_time(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	o->bucket_bytes = BUCKET_DEFAULT;
	if (w->at[WORD_BUCKET] != NULL)
		TR_TRY(tr_parse_bytes("--bucket", w->at[WORD_BUCKET], &o->bucket_bytes, error));
	if (o->bucket_bytes > 0 && o->bucket_bytes < BUCKET_LEAST)
		return tr_refuse(error, "--bucket: '%s' is neither 0 nor at least %d",
				 w->at[WORD_BUCKET], BUCKET_LEAST);
	o->compute_time.forward = FORWARD_DEFAULT;
	if (w->at[WORD_COMPUTE_TIME] != NULL)
		TR_TRY(tr_compute_time_parse(&o->compute_time, w->at[WORD_COMPUTE_TIME], error));
	if (o->compute_time.kind == TR_COMPUTE_TIME_TOKEN && !tr_model_reads_text(o->model))
		return tr_refuse(error, "--compute-time: model %s has no tokens",
				 tr_model_name(o->model));
	if (w->at[WORD_DELAY] != NULL)
		TR_TRY(tr_delay_parse(&o->delay, w->at[WORD_DELAY], error));
	if (w->at[WORD_FORWARD] == NULL)
		return RUBATO_OK;
	if (o->compute_time.kind == TR_COMPUTE_TIME_NONE)
		return tr_refuse(error, "--forward: a share of --compute-time, which is not given");
	return tr_parse_number("--forward", w->at[WORD_FORWARD], 0.0, 1.0, &o->compute_time.forward,
			       error);
}

static rubato_status judge_topology(struct tr_options *o, const char *word, struct tr_error *error)
{
	uint64_t ranks = 0;
	const char *value;
	unsigned kind;

	TR_TRY(tr_parse_choice("--topology", word, topologies, &kind, &value, error));
	if (value != NULL)
		TR_TRY(tr_parse_count("--topology nodes", value, 1, TR_RANKS_MAX, &ranks, error));
	o->world.ranks_per_node = (uint32_t)ranks;
	return RUBATO_OK;
}

static rubato_status judge_simulation(struct tr_options *o, const struct words *w,
				      struct tr_error *error)
{
	static const char *const only[] = { "--topology", "--latency", "--bandwidth", "--jitter" };

	o->simulate = w->given[WORD_SIMULATE];
	o->world = (rubato_sim_options)RUBATO_SIM_OPTIONS_INIT;
	for (int i = 0; i < 4 && !o->simulate; i++)
		if (w->at[WORD_TOPOLOGY + i] != NULL)
			return tr_refuse(error, "%s: only with --simulate", only[i]);
	if (!o->simulate)
		return RUBATO_OK;
	if (o->ranks == 0)
		return tr_refuse(error, "--simulate: wants --ranks");
	o->world.rank_count = o->ranks;
	o->world.seed = o->seed;
	o->world.latency_ns = LATENCY_DEFAULT_NS;
	if (w->at[WORD_TOPOLOGY] != NULL)
		TR_TRY(judge_topology(o, w->at[WORD_TOPOLOGY], error));
	if (w->at[WORD_LATENCY] != NULL)
		TR_TRY(tr_parse_time("--latency", w->at[WORD_LATENCY], &o->world.latency_ns,
				     error));
	if (w->at[WORD_BANDWIDTH] != NULL)
		TR_TRY(tr_parse_bandwidth("--bandwidth", w->at[WORD_BANDWIDTH], &o->world.bandwidth,
					  error));
	if (w->at[WORD_JITTER] != NULL)
		TR_TRY(tr_parse_number("--jitter", w->at[WORD_JITTER], 0.0, 1000.0,
				       &o->world.jitter, error));
	return RUBATO_OK;
}

static rubato_status judge_checkpoint(struct tr_options *o, const struct words *w,
				      struct tr_error *error)
{
	o->checkpoint = w->at[WORD_CHECKPOINT];
	o->resume = w->given[WORD_RESUME];
	if (o->checkpoint == NULL && (o->resume || w->given[WORD_CHECKPOINT_EVERY]))
		return tr_refuse(error, "%s: wants --checkpoint DIR",
				 o->resume ? "--resume" : "--checkpoint-every");
	if (o->checkpoint == NULL)
		return RUBATO_OK;
	if (o->checkpoint[0] == '\0')
		return tr_refuse(error, "--checkpoint wants a name");
	if (w->at[WORD_CHECKPOINT_EVERY] != NULL)
		TR_TRY(tr_parse_count("--checkpoint-every", w->at[WORD_CHECKPOINT_EVERY], 1,
				      UINT32_MAX, &o->checkpoint_every, error));
	return RUBATO_OK;
}

/* A run means all that its command line says: what would change nothing is refused. */
static rubato_status judge_uses(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	const char *rule = o->rule->name;

	if (o->optimizer != TR_SGD && o->momentum > 0.0)
		return tr_refuse(error, "--momentum: of --optimizer sgd; adam and adamw have their "
					"own");
	if (w->given[WORD_BUCKET] && o->rule->ready == NULL)
		return tr_refuse(error, "--bucket: --algorithm %s has no use for it (sync)", rule);
	if (w->given[WORD_FORWARD] && (o->rule->ready == NULL || o->bucket_bytes == 0))
		return tr_refuse(error,
				 "--forward: of no use but to --algorithm sync, with buckets");
	if (w->given[WORD_BN] && o->model != TR_RESNET20)
		return tr_refuse(error, "--bn: model %s has no batch normalisation",
				 tr_model_name(o->model));
	if (o->eval_every > 0)
		o->for_out = "--eval-every";
	return RUBATO_OK;
}

static rubato_status judge(struct tr_options *o, const struct words *w, struct tr_error *error)
{
	TR_TRY(judge_model(o, w, error));
	TR_TRY(judge_sequence(o, w, error));
	TR_TRY(judge_data(o, w, error));
	TR_TRY(judge_rule(o, w, error));
	TR_TRY(judge_rate(o, w, error));
	TR_TRY(judge_run(o, w, error));
	TR_TRY(judge_time(o, w, error));
	TR_TRY(judge_simulation(o, w, error));
	TR_TRY(tr_judge_rule_options(o, w, error));
	TR_TRY(judge_uses(o, w, error));
	TR_TRY(judge_checkpoint(o, w, error));
	o->shuffle = !w->given[WORD_NO_SHUFFLE];
	o->augment = w->given[WORD_AUGMENT];
	o->quiet = w->given[WORD_QUIET];
	o->report = !w->given[WORD_NO_REPORT];
	o->init = w->at[WORD_INIT];
	o->save = w->at[WORD_SAVE];
	o->out = w->at[WORD_OUT];
	if ((o->init != NULL && o->init[0] == '\0') || (o->save != NULL && o->save[0] == '\0') ||
	    (o->out != NULL && o->out[0] == '\0'))
		return tr_refuse(error, "--init, --save and --out want a name");
	if (!o->report && o->out == NULL)
		return tr_refuse(error, "--no-report: wants --out DIR");
	return RUBATO_OK;
}

static const struct poptOption run_rows[] = {
	{ "ranks", 'n', POPT_ARG_STRING, NULL, WORD_RANKS,
	  "start N ranks on this machine (absent: join the launcher's job)", "N" },
	{ "model", 0, POPT_ARG_STRING, NULL, WORD_MODEL, "%s (mlp)", "NAME" },
	{ "hidden", 0, POPT_ARG_STRING, NULL, WORD_HIDDEN, "hidden units of mlp (64), lstm (128)",
	  "N" },
	{ "context", 0, POPT_ARG_STRING, NULL, WORD_CONTEXT,
	  "bytes: of a block of gpt (64), of the longest line of lstm (512)", "N" },
	{ "layers", 0, POPT_ARG_STRING, NULL, WORD_LAYERS, "of gpt (2)", "N" },
	{ "width", 0, POPT_ARG_STRING, NULL, WORD_WIDTH, "of gpt (64)", "N" },
	{ "heads", 0, POPT_ARG_STRING, NULL, WORD_HEADS, "of attention, gpt (4)", "N" },
	{ "data", 0, POPT_ARG_STRING, NULL, WORD_DATA,
	  "%s; npy: x.npy and y.npy (" DATA_DEFAULT "; hyperplane: synthetic)", "SET" },
	{ "device", 0, POPT_ARG_STRING, NULL, WORD_DEVICE, "%s (cpu)", "NAME" },
	{ "init", 0, POPT_ARG_STRING, NULL, WORD_INIT, "first parameters: one flat float32 vector",
	  "FILE.npy" },
	{ "save", 0, POPT_ARG_STRING, NULL, WORD_SAVE, "write the last parameters", "FILE.npy" },
	{ "out", 0, POPT_ARG_STRING, NULL, WORD_OUT, "folder for what became of the run", "DIR" },
	{ "checkpoint", 0, POPT_ARG_STRING, NULL, WORD_CHECKPOINT,
	  "folder for checkpoints: one an epoch, the last two are kept", "DIR" },
	{ "checkpoint-every", 0, POPT_ARG_STRING, NULL, WORD_CHECKPOINT_EVERY,
	  "one every N steps instead", "N" },
	{ "resume", 0, POPT_ARG_NONE, NULL, WORD_RESUME,
	  "go on from the newest whole one of --checkpoint DIR; --steps may be more", NULL },
	{ "eval-every", 0, POPT_ARG_STRING, NULL, WORD_EVAL_EVERY,
	  "test every N epochs (0: at the end only)", "N" },
	{ "final-rows", 0, POPT_ARG_STRING, NULL, WORD_FINAL_ROWS,
	  "training samples that the loss at the end is over: all, 0: none (as many as were "
	  "trained "
	  "with, at least 1024)",
	  "N" },
	{ "report-every", 0, POPT_ARG_STRING, NULL, WORD_REPORT_EVERY,
	  "steps between lines of metrics.jsonl (50)", "N" },
	{ "no-report", 0, POPT_ARG_NONE, NULL, WORD_NO_REPORT, "no report.html in --out DIR",
	  NULL },
	{ "quiet", 'q', POPT_ARG_NONE, NULL, WORD_QUIET, "no progress on standard error", NULL },
	{ "version", 0, POPT_ARG_NONE, NULL, WORD_VERSION, "print the version", NULL },
	POPT_TABLEEND
};

static const struct poptOption rule_rows[] = {
	{ "algorithm", 0, POPT_ARG_STRING, NULL, WORD_ALGORITHM,
	  "%s (sync); adpsgd: adaptive periodic averaging, not gossip", "NAME" },
	{ "optimizer", 0, POPT_ARG_STRING, NULL, WORD_OPTIMIZER, "%s (sgd)", "NAME" },
	{ "lr", 0, POPT_ARG_STRING, NULL, WORD_LR, "learning rate (0.05)", "X" },
	{ "momentum", 0, POPT_ARG_STRING, NULL, WORD_MOMENTUM, "of SGD (0)", "X" },
	{ "weight-decay", 0, POPT_ARG_STRING, NULL, WORD_WEIGHT_DECAY,
	  "adds X times the parameters to the gradient (0)", "X" },
	{ "lr-schedule", 0, POPT_ARG_STRING, NULL, WORD_LR_SCHEDULE,
	  "%s (constant); before it perhaps warmup:N and a comma", "NAME" },
	{ "warmup", 0, POPT_ARG_STRING, NULL, WORD_WARMUP,
	  "steps over which the rate grows to --lr (0)", "N" },
	{ "batch", 0, POPT_ARG_STRING, NULL, WORD_BATCH, "samples a step, per rank (32)", "N" },
	{ "epochs", 0, POPT_ARG_STRING, NULL, WORD_EPOCHS, "length of the run (5)", "N" },
	{ "steps", 0, POPT_ARG_STRING, NULL, WORD_STEPS, "the same, in local steps", "N" },
	{ "seed", 0, POPT_ARG_STRING, NULL, WORD_SEED, "of first parameters and order (0)", "N" },
	{ "augment", 0, POPT_ARG_NONE, NULL, WORD_AUGMENT,
	  "shift (up to 4 pixels) and mirror training images", NULL },
	{ "no-shuffle", 0, POPT_ARG_NONE, NULL, WORD_NO_SHUFFLE, "take samples in stored order",
	  NULL },
	{ "bucket", 0, POPT_ARG_STRING, NULL, WORD_BUCKET,
	  "reduce the gradient in pieces of SIZE, each when it is complete (1M; 0: one)", "SIZE" },
	POPT_TABLEEND
};

static const struct poptOption time_rows[] = {
	{ "compute-time", 0, POPT_ARG_STRING, NULL, WORD_COMPUTE_TIME,
	  "a gradient takes this long, whatever it takes here; or T/token, or trace:FILE", "T" },
	{ "forward", 0, POPT_ARG_STRING, NULL, WORD_FORWARD,
	  "share of --compute-time before the first of the gradient is complete (1/3)", "SHARE" },
	{ "delay", 0, POPT_ARG_STRING, NULL, WORD_DELAY, "stragglers: %s (none)", "KIND" },
	{ "simulate", 0, POPT_ARG_NONE, NULL, WORD_SIMULATE,
	  "all ranks in this process, in virtual time", NULL },
	{ "topology", 0, POPT_ARG_STRING, NULL, WORD_TOPOLOGY,
	  "simulated: %s: N ranks a node, which share memory (flat)", "KIND" },
	{ "latency", 0, POPT_ARG_STRING, NULL, WORD_LATENCY,
	  "simulated: one way, between nodes (5us)", "TIME" },
	{ "bandwidth", 0, POPT_ARG_STRING, NULL, WORD_BANDWIDTH,
	  "simulated: of each rank's link, each way (12.5GB/s)", "B" },
	{ "jitter", 0, POPT_ARG_STRING, NULL, WORD_JITTER,
	  "simulated: stretches each latency by up to this share of it (0)", "SHARE" },
	POPT_TABLEEND
};

/* The tables as popt gets them: with what words may be in place of %s. */
struct tables {
	struct poptOption rows[TABLES][ROWS_MAX], all[TABLES + 2];
	char *texts[TABLES * ROWS_MAX];
	size_t text_count;
};

static const struct poptOption *const table_rows[TABLES] = { run_rows, rule_rows, tr_rule_rows,
							     time_rows };

static const char *help_of(struct tables *tables, const struct poptOption *row)
{
	const char *room[TR_CHOICES_MAX], *at = strstr(row->descrip, "%s");
	const char *const *choices = choices_of(row->val, room);
	char all[TR_CHOICES_BYTES], *text;

	assert((at != NULL) == (choices != NULL)); /* What parses is what is shown. */
	if (at == NULL)
		return row->descrip;
	tr_choices_join(choices, all, sizeof(all));
	if (asprintf(&text, "%.*s%s%s", (int)(at - row->descrip), row->descrip, all, at + 2) < 0)
		return row->descrip; /* Out of memory, for a text. */
	tables->texts[tables->text_count++] = text;
	return text;
}

static void tables_fill(struct tables *tables)
{
	static const char *const titles[TABLES] = {
		"The run:", "Training:", "Of single algorithms:", "Time, emulated and simulated:"
	};
	static const struct poptOption end[] = { POPT_AUTOHELP POPT_TABLEEND };

	for (int i = 0; i < TABLES; i++) {
		int count = 0;

		for (; table_rows[i][count].longName != NULL; count++) {
			assert(count + 1 < ROWS_MAX);
			tables->rows[i][count] = table_rows[i][count];
			tables->rows[i][count].descrip = help_of(tables, &table_rows[i][count]);
		}
		tables->all[i] = (struct poptOption) { .argInfo = POPT_ARG_INCLUDE_TABLE,
						       .arg = tables->rows[i],
						       .descrip = titles[i] };
	}
	memcpy(tables->all + TABLES, end, sizeof(end));
}

static rubato_status read_words(int argc, const char **argv, struct words *w,
				struct tr_error *error)
{
	struct tables *tables = calloc(1, sizeof(*tables));
	rubato_status err = RUBATO_OK;
	poptContext popt;
	int code;

	if (tables == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "options: out of memory");
	tables_fill(tables);
	popt = poptGetContext("rubato-train", argc, argv, tables->all, 0);
	poptSetOtherOptionHelp(popt, "[OPTION...]  -- trains a model on one or more ranks");
	while ((code = poptGetNextOpt(popt)) > 0) {
		free(w->at[code]);
		w->at[code] = poptGetOptArg(popt);
		w->given[code] = true;
	}
	if (code < -1)
		err = tr_refuse(error, "%s: %s (--help lists the options)",
				poptBadOption(popt, POPT_BADOPTION_NOALIAS), poptStrerror(code));
	else if (poptPeekArg(popt) != NULL)
		err = tr_refuse(error, "'%s' is no option (--help lists them)", poptPeekArg(popt));
	poptFreeContext(popt);
	while (tables->text_count > 0)
		free(tables->texts[--tables->text_count]);
	free(tables);
	return err;
}

rubato_status tr_options_parse(struct tr_options *options, int argc, const char **argv,
			       enum tr_options_verdict *verdict, struct tr_error *error)
{
	struct words *words = calloc(1, sizeof(*words));
	rubato_status err;

	*options = (struct tr_options) { .strings = words };
	*verdict = TR_OPTIONS_RUN;
	if (words == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "options: out of memory");
	err = read_words(argc, argv, words, error);
	if (err == RUBATO_OK && words->given[WORD_VERSION]) {
		printf("rubato-train %s\n", rubato_version());
		*verdict = TR_OPTIONS_DONE;
		return RUBATO_OK;
	}
	if (err == RUBATO_OK)
		err = judge(options, words, error);
	if (err)
		tr_options_close(options);
	return err;
}

static const char *name_of(int word)
{
	for (size_t i = 0; i < TABLES; i++)
		for (const struct poptOption *row = table_rows[i]; row->longName != NULL; row++)
			if (row->val == word)
				return row->longName;
	return NULL;
}

uint32_t tr_options_setting_count(void)
{
	return WORD_COUNT;
}

bool tr_options_setting(const struct tr_options *options, uint32_t index, const char **name,
			const char **value)
{
	static const int others[] = {
		WORD_INIT,   WORD_SAVE,  WORD_OUT,     WORD_CHECKPOINT, WORD_CHECKPOINT_EVERY,
		WORD_RESUME, WORD_QUIET, WORD_VERSION, WORD_NO_REPORT
	};
	const struct words *w = options->strings;

	if (w == NULL || index >= WORD_COUNT || !w->given[index])
		return false;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if ((int)index == others[i])
			return false;
	*name = name_of((int)index);
	*value = w->at[index];
	return *name != NULL;
}

void tr_options_close(struct tr_options *options)
{
	struct words *w = options->strings;

	tr_compute_time_close(&options->compute_time);
	options->strings = NULL;
	if (w == NULL)
		return;
	for (int i = 0; i < WORD_COUNT; i++)
		free(w->at[i]);
	free(w);
}
