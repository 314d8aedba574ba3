/* options.c -- rows say what is read where; what options mean together is judged here. */
#include "trainer/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_DEFAULT TR_MLP
#define DATA_DEFAULT "fashion-mnist"
#define DATA_TEXT 4 /* In data_forms. */
#define HIDDEN_DEFAULT 64
#define EPOCHS_DEFAULT 5
#define BUCKET_LEAST 1024
#define FORWARD_DEFAULT (1.0 / 3.0) /* A backward pass does twice the work of a forward pass. */

/* ---- Rows ---- */

static const char *const data_forms[] = { "fashion-mnist[:DIR]",   "cifar10:DIR", "npy:DIR",
					  "synthetic[:ROWSxDIMS]", "text:FILE",   NULL };
static const char *const topologies[] = { "flat", "nodes:N", NULL };
static const char *const devices[] = { "cpu", "cuda[:N]", NULL };
static const char *const bns[] = { "local", "average", NULL };

static bool rule_read(const char *option, const char *text, void *to, struct option_error *error)
{
	const struct tr_rule **rule = to;
	const char *value;
	uint32_t index;

	if (!value_choice(option, text, tr_rule_names(), &index, &value, error))
		return false;
	*rule = tr_rule_at(index);
	return true;
}

static bool device_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct tr_device_option *device = to;
	const char *value;
	uint32_t kind;

	*device = (struct tr_device_option) { .is_cuda = false };
	if (!value_choice(option, text, devices, &kind, &value, error))
		return false;
	device->is_cuda = kind == 1;
	return value == NULL || value_count32(option, value, 0, 1023, &device->number, error);
}

/* A source without what must follow its colon is refused as that. */
static bool data_read(const char *option, const char *text, void *to, struct option_error *error)
{
	static const char *const wants[] = { "folder", "folder", "folder", "size", "file" };
	char all[VALUE_FORMS_BYTES];
	size_t length = strcspn(text, ":");
	const char **data = to, *value;
	uint32_t kind;

	for (size_t i = 0; data_forms[i] != NULL; i++) {
		const char *form = data_forms[i];

		if (strncmp(text, form, length) != 0 || strcspn(form, ":[") != length)
			continue;
		if ((text[length] == '\0' && form[length] == ':') ||
		    (text[length] == ':' && text[length + 1] == '\0'))
			return option_refuse(error, "%s: '%s' lacks its %s; it takes %s", option,
					     text, wants[i],
					     value_forms_join(data_forms, all, sizeof(all)));
	}
	*data = text;
	return value_choice(option, text, data_forms, &kind, &value, error);
}

static bool topology_read(const char *option, const char *text, void *to,
			  struct option_error *error)
{
	uint32_t kind, *ranks = to;
	const char *value;

	if (!value_choice(option, text, topologies, &kind, &value, error))
		return false;
	*ranks = 0;
	return value == NULL ||
	       value_count32("--topology nodes", value, 1, TR_RANKS_MAX, ranks, error);
}

#define AT(member) offsetof(struct tr_options, member)

static const struct option model_rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(ranks), "N", .min = 1, .max = TR_RANKS_MAX,
	  .help = "start N ranks on this machine (absent: join the launcher's job)" },
	{ "model", 0, OPTION_CHOICE, AT(model), "NAME", .forms = tr_model_names, .preset = "mlp",
	  .help = "%s" },
	{ "hidden", 0, OPTION_U32, AT(hidden_count), "N", .min = 1, .max = 1u << 20,
	  .help = "hidden units of mlp (64), lstm (128)" },
	{ "context", 0, OPTION_U32, AT(sequence.length), "N", .min = 1, .max = TR_CONTEXT_MAX,
	  .help = "bytes: of a block of gpt (64), of the longest line of lstm (512)" },
	{ "layers", 0, OPTION_U32, AT(sequence.layers), "N", .min = 1, .max = TR_GPT_LAYERS_MAX,
	  .help = "of gpt (2)" },
	{ "width", 0, OPTION_U32, AT(sequence.width), "N", .min = 1, .max = 1u << 16,
	  .help = "of gpt (64)" },
	{ "heads", 0, OPTION_U32, AT(sequence.heads), "N", .min = 1, .max = 1u << 16,
	  .help = "of attention, gpt (4)" },
	{ "data", 0, OPTION_OTHER, AT(data), "SET", .read = data_read, .forms = data_forms,
	  .help = "%s; npy: x.npy and y.npy (" DATA_DEFAULT "; hyperplane: synthetic)" },
	{ "device", 0, OPTION_OTHER, AT(device), "NAME", .read = device_read, .forms = devices,
	  .preset = "cpu", .help = "%s" },
	{ "precision", 0, OPTION_CHOICE, AT(precision), "NAME", .forms = tr_precision_names,
	  .preset = "float32", .help = "of products on a device: %s" },
	{ "eval-every", 0, OPTION_U64, AT(eval_every), "N", .max = 1u << 30, .preset = "0",
	  .help = "test every N epochs; 0: at the end only" },
	{ "final-rows", 0, OPTION_U64, AT(final_rows), "N", .max = UINT32_MAX, .word = "all",
	  .word_is = TR_FINAL_ALL,
	  .help = "training samples that the loss at the end is over: all, 0: none (as many as "
		  "were trained with, at least 1024)" },
	{ "report-every", 0, OPTION_U64, AT(report_every), "N", .min = 1, .max = UINT32_MAX,
	  .preset = "50", .help = "steps between lines of metrics.jsonl" },
	{ 0 },
};

/* They are no part of what a run computes. */
static const struct option file_rows[] = {
	{ "init", 0, OPTION_STRING, AT(init), "FILE.npy",
	  .help = "first parameters: one flat vector of floats" },
	{ "save", 0, OPTION_STRING, AT(save), "FILE.npy", .help = "write the last parameters" },
	{ "out", 0, OPTION_STRING, AT(out), "DIR",
	  .help = "folder for the files of the run: metrics, ledger, trace, report" },
	{ "checkpoint", 0, OPTION_STRING, AT(checkpoint), "DIR",
	  .help = "folder for checkpoints: one an epoch, the last two are kept" },
	{ "checkpoint-every", 0, OPTION_U64, AT(checkpoint_every), "N", .min = 1, .max = UINT32_MAX,
	  .help = "one every N steps instead" },
	{ "resume", 0, OPTION_FLAG, AT(resume),
	  .help = "go on from the newest whole one of --checkpoint DIR; --steps may be more" },
	{ "no-report", 0, OPTION_FLAG, AT(no_report), .help = "no report.html in --out DIR" },
	{ "quiet", 'q', OPTION_FLAG, AT(quiet), .help = "no progress on standard error" },
	{ 0 },
};

static const struct option training_rows[] = {
	{ "algorithm", 0, OPTION_OTHER, AT(rule), "NAME", .read = rule_read,
	  .forms_of = tr_rule_names, .preset = "sync",
	  .help = "%s; adpsgd: adaptive periodic averaging, not gossip" },
	{ "optimizer", 0, OPTION_CHOICE, AT(optimizer), "NAME", .forms = tr_optimizer_names,
	  .preset = "sgd", .help = "%s" },
	{ "lr", 0, OPTION_REAL, AT(rate.base), "X", .most = 1e6, .preset = "0.05",
	  .help = "learning rate" },
	{ "momentum", 0, OPTION_REAL, AT(momentum), "X", .most = 1.0, .preset = "0",
	  .help = "of SGD" },
	{ "weight-decay", 0, OPTION_REAL, AT(weight_decay), "X", .most = 1e6, .preset = "0",
	  .help = "adds X times the parameters to the gradient" },
	{ "lr-schedule", 0, OPTION_OTHER, AT(rate), "NAME", .read = tr_rate_parse,
	  .forms = tr_rate_names, .preset = "constant",
	  .help = "%s; before it perhaps warmup:N and a comma" },
	{ "warmup", 0, OPTION_U64, AT(warmup_steps), "N", .max = UINT32_MAX, .preset = "0",
	  .help = "steps over which the rate grows to --lr" },
	{ "batch", 0, OPTION_U32, AT(batch), "N", .min = 1, .max = 1u << 20, .preset = "32",
	  .help = "samples a step, per rank" },
	{ "epochs", 0, OPTION_U64, AT(epochs), "N", .min = 1, .max = 1u << 30,
	  .help = "length of the run (5)" },
	{ "steps", 0, OPTION_U64, AT(steps), "N", .min = 1, .max = UINT32_MAX,
	  .help = "the same, in local steps" },
	{ "seed", 0, OPTION_U64, AT(seed), "N", .max = UINT64_MAX, .preset = "0",
	  .help = "of first parameters and shuffle" },
	{ "augment", 0, OPTION_FLAG, AT(augment),
	  .help = "shift (up to 4 pixels) and mirror training images" },
	{ "no-shuffle", 0, OPTION_FLAG, AT(no_shuffle), .help = "take samples in stored order" },
	{ "bucket", 0, OPTION_BYTES, AT(bucket_bytes), "SIZE", .preset = "1M",
	  .help = "reduce the gradient in pieces of SIZE, each when it is complete; 0: in one" },
	{ "bn", 0, OPTION_CHOICE, AT(bn), "KIND", .forms = bns, .preset = "average",
	  .help = "statistics of batch normalisation: %s" },
	{ "clip", 0, OPTION_REAL, AT(clip), "X", .most = 1e9, .preset = "0",
	  .help = "largest norm of an applied gradient; 0: any" },
	{ 0 },
};

static const struct option time_rows[] = {
	{ "compute-time", 0, OPTION_OTHER, AT(compute_time), "T", .read = tr_compute_time_parse,
	  .help = "a gradient takes this long, whatever it takes here; or T/token, or "
		  "trace:FILE" },
	{ "forward", 0, OPTION_REAL, AT(compute_time.forward), "SHARE", .most = 1.0,
	  .help = "share of --compute-time before the first of the gradient is complete (1/3)" },
	{ "delay", 0, OPTION_OTHER, AT(delay), "KIND", .read = tr_delay_parse,
	  .forms = tr_delay_names, .preset = "none", .help = "stragglers: %s" },
	{ "simulate", 0, OPTION_FLAG, AT(simulate),
	  .help = "all ranks in this process, in virtual time" },
	{ "topology", 0, OPTION_OTHER, AT(world.ranks_per_node), "KIND", .read = topology_read,
	  .forms = topologies, .preset = "flat",
	  .help = "simulated: %s: N ranks a node, which share memory" },
	{ "jitter", 0, OPTION_REAL, AT(world.jitter), "SHARE", .most = 1000.0, .preset = "0",
	  .help = "simulated: stretches each latency by up to this share of it" },
	{ 0 },
};

static const struct option *const own_rows[] = { model_rows, training_rows, time_rows, file_rows,
						 NULL };

/* ---- The command line ---- */

/* All but --work, which update rules have: a profile may say it. */
static void network_rows_take(struct option *rows)
{
	for (const struct option *row = network_rows; row->name != NULL; row++)
		if (strcmp(row->name, "work") != 0)
			*rows++ = *row;
}

static struct tr_command_line *line_make(void)
{
	struct tr_command_line *line = calloc(1, sizeof(*line));

	if (line == NULL || !tr_rule_rows_make(&line->rules)) {
		free(line);
		return NULL;
	}
	line->tables[0] = (struct option_table) { .title = "The run:", .rows = model_rows };
	line->tables[1] = (struct option_table) { .title = "Training:", .rows = training_rows };
	line->tables[2] = (struct option_table) { .title = "Of single algorithms:",
						  .rows = line->rules.rows };
	line->tables[3] = (struct option_table) { .title = "Time, emulated and simulated:",
						  .rows = time_rows };
	network_rows_take(line->network);
	line->tables[4] =
		(struct option_table) { .title = "The simulated network:", .rows = line->network };
	line->tables[TR_TABLE_FILES] =
		(struct option_table) { .title = "Files and output:", .rows = file_rows };
	line->options = (struct options) {
		.program = "rubato-train",
		.usage = "[OPTION...]",
		.about = "Trains a model on one or more ranks.",
		.notes = "",
		.tables = line->tables,
	};
	return line;
}

static bool given(const struct tr_options *o, const char *name)
{
	return options_given(&o->line->words, name);
}

/* ---- What options mean together ---- */

/* Sizes, which not all models have. */
static rubato_status judge_model(struct tr_options *o, struct tr_error *error)
{
	struct tr_sequence *s = &o->sequence;
	const struct {
		const char *name;
		enum tr_model_kind taker; /* Besides lstm, where that has a default of its own. */
		uint32_t *to, preset, lstm;
	} rows[] = {
		{ "hidden", TR_MLP, &o->hidden_count, HIDDEN_DEFAULT, TR_LSTM_HIDDEN },
		{ "context", TR_GPT, &s->length, TR_GPT_CONTEXT, TR_LSTM_CONTEXT },
		{ "layers", TR_GPT, &s->layers, TR_GPT_LAYERS, 0 },
		{ "width", TR_GPT, &s->width, TR_GPT_WIDTH, 0 },
		{ "heads", TR_GPT, &s->heads, TR_GPT_HEADS, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool lstm = o->model == TR_LSTM;

		if (!given(o, rows[i].name))
			*rows[i].to = lstm ? rows[i].lstm : rows[i].preset;
		else if (o->model != rows[i].taker && (!lstm || rows[i].lstm == 0))
			return tr_refuse(error, "--%s: model %s has no use for it", rows[i].name,
					 tr_model_names[o->model]);
	}
	s->hidden = o->hidden_count;
	return RUBATO_OK;
}

static rubato_status judge_data(struct tr_options *o, struct tr_error *error)
{
	size_t text = strcspn(data_forms[DATA_TEXT], ":");

	if (o->data == NULL)
		o->data = o->model == TR_HYPERPLANE ? "synthetic" : DATA_DEFAULT;
	if ((strncmp(o->data, data_forms[DATA_TEXT], text + 1) == 0) !=
	    tr_model_reads_text(o->model))
		return tr_refuse(error,
				 "--model %s: --data text:FILE is for lstm and gpt, which read "
				 "nothing else",
				 tr_model_names[o->model]);
	return RUBATO_OK;
}

static rubato_status judge_precision(const struct tr_options *o, struct tr_error *error)
{
	if (o->precision != TR_FLOAT32 && !o->device.is_cuda)
		return tr_refuse(error, "--precision %s: only with --device cuda",
				 tr_precision_names[o->precision]);
	return RUBATO_OK;
}

static rubato_status judge_rate(struct tr_options *o, struct tr_error *error)
{
	if (given(o, "warmup") && o->rate.warmup_steps > 0)
		return tr_refuse(error, "--warmup: --lr-schedule names a warm-up already");
	if (given(o, "warmup"))
		o->rate.warmup_steps = o->warmup_steps;
	if (o->momentum >= 1.0)
		return tr_refuse(error, "--momentum: must be below 1");
	return RUBATO_OK;
}

static rubato_status judge_length(struct tr_options *o, struct tr_error *error)
{
	if (given(o, "epochs") && given(o, "steps"))
		return tr_refuse(error, "--epochs and --steps: give one of the two");
	if (!given(o, "epochs") && !given(o, "steps"))
		o->epochs = EPOCHS_DEFAULT;
	return RUBATO_OK;
}

static rubato_status judge_time(struct tr_options *o, struct tr_error *error)
{
	if (o->bucket_bytes > 0 && o->bucket_bytes < BUCKET_LEAST)
		return tr_refuse(error, "--bucket: '%s' is neither 0 nor at least %d",
				 options_text(&o->line->words, "bucket"), BUCKET_LEAST);
	if (o->compute_time.kind == TR_COMPUTE_TIME_TOKEN && !tr_model_reads_text(o->model))
		return tr_refuse(error, "--compute-time: model %s has no tokens",
				 tr_model_names[o->model]);
	if (given(o, "forward") && o->compute_time.kind == TR_COMPUTE_TIME_NONE)
		return tr_refuse(error, "--forward: a share of --compute-time, which is not given");
	return RUBATO_OK;
}

/* Those that say more of something that is not there; a profile may hold them. */
static rubato_status judge_network(const struct tr_options *o, struct tr_error *error)
{
	const rubato_sim_costs *costs = &o->world.costs;
	const bool cores = costs->cores > 0, caches = costs->cache_bytes > 0;
	const bool memory = costs->memory_bandwidth > 0 || costs->core_bandwidth > 0;
	const struct {
		const char *name, *needs;
		bool there;
	} rows[] = {
		{ "turn", "--cores", cores },
		{ "machine", "--cores", cores },
		{ "cached-bandwidth", "--cache", caches },
		{ "reduced-bandwidth", "--cache", caches },
		{ "outer-cache", "--cache", caches },
		{ "outer-bandwidth", "--cache", caches },
		{ "shared-bandwidth", "--cache", caches },
		{ "shared-latency", "--cache", caches },
		{ "attach-bandwidth", "--memory-bandwidth or --core-bandwidth", memory },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (given(o, rows[i].name) && !rows[i].there)
			return tr_refuse(error, "--%s: changes nothing without %s", rows[i].name,
					 rows[i].needs);
	return RUBATO_OK;
}

static rubato_status judge_simulation(struct tr_options *o, struct tr_error *error)
{
	static const char *const only[] = { "topology", "jitter" };

	for (int i = 0; i < 2 && !o->simulate; i++)
		if (given(o, only[i]))
			return tr_refuse(error, "--%s: only with --simulate", only[i]);
	for (const struct option *row = o->line->network; row->name != NULL && !o->simulate; row++)
		if (given(o, row->name))
			return tr_refuse(error, "--%s: only with --simulate", row->name);
	if (!o->simulate)
		return RUBATO_OK;
	if (o->ranks == 0)
		return tr_refuse(error, "--simulate: needs --ranks");
	if (o->device.is_cuda)
		return tr_refuse(error, "--simulate: its ranks compute on the processor, not by "
					"--device cuda");
	o->world.rank_count = o->ranks;
	o->world.seed = o->seed;
	return judge_network(o, error);
}

static rubato_status judge_rule(struct tr_options *o, struct tr_error *error)
{
	const struct tr_rule_request request = { &o->line->words, o->optimizer, o->momentum };

	o->own = tr_rule_options_new(o->rule);
	if (o->own == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "options: out of memory");
	return tr_rule_options_read(o->rule, &o->line->rules, &request, o->own, error);
}

/* The rules that use buckets: "sync, ...". */
static const char *rules_of_buckets(char *text, size_t text_bytes)
{
	const struct tr_rule *rule;
	size_t used = 0;

	for (size_t i = 0; (rule = tr_rule_at(i)) != NULL; i++)
		if (rule->ready != NULL && used < text_bytes)
			used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
						 used > 0 ? ", " : "", rule->name);
	return text;
}

/* A run means all that its command line says: what would change nothing is refused. */
static rubato_status judge_uses(struct tr_options *o, struct tr_error *error)
{
	const char *rule = o->rule->name;
	char users[128] = "";

	if (o->optimizer != TR_SGD && o->momentum > 0.0)
		return tr_refuse(error,
				 "--momentum: for --optimizer sgd; adam and adamw have their "
				 "own");
	if (given(o, "bucket") && o->rule->ready == NULL)
		return tr_refuse(error, "--bucket: --algorithm %s has no use for it (%s)", rule,
				 rules_of_buckets(users, sizeof(users)));
	if (given(o, "forward") && (o->rule->ready == NULL || o->bucket_bytes == 0))
		return tr_refuse(error, "--forward: of use only to --algorithm %s with buckets",
				 rules_of_buckets(users, sizeof(users)));
	if (given(o, "bn") && o->model != TR_RESNET20)
		return tr_refuse(error, "--bn: model %s has no batch normalisation",
				 tr_model_names[o->model]);
	if (o->eval_every > 0)
		o->for_out = "--eval-every";
	return RUBATO_OK;
}

static bool is_empty(const char *name)
{
	return name != NULL && name[0] == '\0';
}

static rubato_status judge_files(struct tr_options *o, struct tr_error *error)
{
	if (o->checkpoint == NULL && (o->resume || given(o, "checkpoint-every")))
		return tr_refuse(error, "%s: needs --checkpoint DIR",
				 o->resume ? "--resume" : "--checkpoint-every");
	if (is_empty(o->checkpoint))
		return tr_refuse(error, "--checkpoint needs a name");
	if (is_empty(o->init) || is_empty(o->save) || is_empty(o->out))
		return tr_refuse(error, "--init, --save and --out need a name");
	if (o->no_report && o->out == NULL)
		return tr_refuse(error, "--no-report: needs --out DIR");
	return RUBATO_OK;
}

static rubato_status judge(struct tr_options *o, struct tr_error *error)
{
	TR_TRY(judge_model(o, error));
	TR_TRY(judge_data(o, error));
	TR_TRY(judge_precision(o, error));
	TR_TRY(judge_rate(o, error));
	TR_TRY(judge_length(o, error));
	TR_TRY(judge_time(o, error));
	TR_TRY(judge_simulation(o, error));
	TR_TRY(judge_rule(o, error));
	TR_TRY(judge_uses(o, error));
	return judge_files(o, error);
}

static rubato_status read_rows(struct tr_options *o, struct tr_error *error)
{
	struct option_error said;

	o->final_rows = TR_FINAL_AUTO;
	o->compute_time.forward = FORWARD_DEFAULT;
	o->world = (rubato_sim_options)RUBATO_SIM_OPTIONS_INIT;
	for (const struct option *const *rows = own_rows; *rows != NULL; rows++)
		TR_TRY(tr_take(error, options_default(*rows, o, &said), &said));
	for (const struct option *const *rows = own_rows; *rows != NULL; rows++)
		TR_TRY(tr_take(error, options_apply(&o->line->words, *rows, o, &said), &said));
	TR_TRY(tr_take(error, options_default(network_rows, &o->world, &said), &said));
	return tr_take(error, options_apply(&o->line->words, o->line->network, &o->world, &said),
		       &said);
}

rubato_status tr_options_parse(struct tr_options *options, int argc, const char **argv,
			       enum tr_options_verdict *verdict, struct tr_error *error)
{
	struct tr_command_line *line = line_make();
	struct option_error said;

	*options = (struct tr_options) { .line = line };
	*verdict = TR_OPTIONS_DONE;
	if (line == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "options: out of memory");
	TR_TRY(tr_take(error,
		       options_scan(&line->options, argc, (char *const *)(uintptr_t)argv,
				    &line->words, &said),
		       &said));
	if (line->words.help)
		options_help(&line->options, line->words.form);
	else if (line->words.version)
		printf("rubato-train %s\n", rubato_version());
	if (line->words.help || line->words.version)
		return RUBATO_OK;
	*verdict = TR_OPTIONS_RUN;
	TR_TRY(read_rows(options, error));
	return judge(options, error);
}

void tr_options_close(struct tr_options *options)
{
	struct tr_command_line *line = options->line;

	tr_compute_time_close(&options->compute_time);
	free(options->own);
	options->own = NULL;
	options->line = NULL;
	if (line == NULL)
		return;
	options_free(&line->words);
	tr_rule_rows_free(&line->rules);
	free(line);
}
