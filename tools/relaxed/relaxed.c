/* relaxed.c -- the options that partial and lagged measurements share. See relaxed.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/relaxed/relaxed.h"

static void policy_read(struct relaxed_options *o, const char *text)
{
	struct relaxed_policy *p = &o->policies[o->policy_count];

	if (o->policy_count == RELAXED_POLICIES_MAX)
		option_fail(o->program, "--policy takes at most %d policies", RELAXED_POLICIES_MAX);
	(void)snprintf(p->name, sizeof(p->name), "%.31s", text);
	p->options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	if (rubato_policy_parse(text, &p->options) != RUBATO_OK)
		option_fail(o->program, "--policy: %s", rubato_error_text());
	o->policy_count++;
}

static void policies_read(const char *text, void *to)
{
	char *copy = strdup(text), *rest = copy, *word;
	struct relaxed_options *o = to;

	if (copy == NULL)
		option_fail(o->program, "out of memory");
	o->policy_count = 0;
	while ((word = strsep(&rest, ",")) != NULL)
		policy_read(o, word);
	free(copy);
}

/* In the order of rubato_collection. */
static const char *const collections[] = { "each[:D]", "own", "latest", NULL };

static void collect_read(const char *text, void *to)
{
	struct relaxed_options *o = to;
	const char *depth;

	o->partial.collection =
		(rubato_collection)option_word(o->program, "--collect", text, collections, &depth);
	if (depth != NULL)
		o->partial.depth =
			(uint32_t)option_number(o->program, "--collect each:", depth, 1, 1u << 16);
}

static void skew_option(const char *text, void *to)
{
	struct relaxed_options *o = to;

	skew_read(o->program, text, &o->skew);
}

static void accumulate_read(const char *text, void *to)
{
	struct relaxed_options *o = to;

	o->accumulate =
		strcmp(text, "until-done") == 0
			? 0
			: (uint32_t)option_number(o->program, "--accumulate", text, 1, 1u << 20);
}

const char *const relaxed_types[] = { "float32", "float64", "int32", "int64", NULL };
const char *const relaxed_reductions[] = { "sum", "max", "min", NULL };
static const char *const rounds[] = { "aligned", "free", NULL };
static const char *const loops[] = { "timed", "closed", NULL };
static const char *const lates[] = { "accumulate", "latest", "drop", NULL };

uint32_t relaxed_rows(struct relaxed_options *o, const char *program, bool lagged,
		      struct option rows[RELAXED_ROWS])
{
	const struct option common[] = {
		{ "size", 's', OPTION_BYTES, &o->size_bytes, "SIZE", .min = 1,
		  .help = "of the vector (64K)" },
		{ "iterations", 't', OPTION_U32, &o->iterations, "N", .min = RELAXED_SLICES,
		  .max = 10000000, .help = "timed calls, or steps (200)" },
		{ "warmups", 'w', OPTION_U32, &o->warmups, "N", .max = 1000000,
		  .help = "calls before these (10)" },
		{ "type", 'd', OPTION_CHOICE, &o->type, "NAME", .names = relaxed_types,
		  .help = "%s (float32)" },
		{ "seed", 0, OPTION_U64, &o->seed, "N", .max = UINT64_MAX,
		  .help = "of skew and majority (0)" },
	};
	const struct option partial[] = {
		{ "policy", 0, OPTION_OTHER, o, "LIST", .read = policies_read,
		  .names = rubato_policy_forms(),
		  .help = "%s, with commas between (solo,majority)" },
		{ "op", 'o', OPTION_CHOICE, &o->reduction, "NAME", .names = relaxed_reductions,
		  .help = "%s (sum)" },
		{ "rounds", 0, OPTION_CHOICE, &o->rounds, "KIND", .names = rounds,
		  .help = "%s (aligned)" },
		{ "late", 0, OPTION_CHOICE, &o->late, "KIND", .names = lates,
		  .help = "%s (accumulate)" },
		{ "collect", 0, OPTION_OTHER, o, "KIND", .read = collect_read, .names = collections,
		  .help = "%s; D results are kept (each:8)" },
		{ "full-every", 0, OPTION_U32, &o->partial.full_every, "N", .max = UINT32_MAX - 1,
		  .help = "every N-th round waits for all; 0: none (0)" },
		{ "max-absence", 0, OPTION_U32, &o->partial.max_absence, "S", .max = UINT32_MAX - 1,
		  .help = "so does one after S rounds without some rank; 0: none (0)" },
		{ "window", 0, OPTION_TIME, &o->partial.window_ns, "T",
		  .help = "what arrives so long after the opening is in (0)" },
		{ "skew", 0, OPTION_OTHER, o, "KIND", .read = skew_option, .names = skew_names,
		  .help = SKEW_HELP },
		{ "period", 0, OPTION_TIME, &o->period_ns, "T",
		  .help = "from one iteration's begin to the next (1.25 times the largest skew)" },
		{ "loop", 0, OPTION_CHOICE, &o->loop, "KIND", .names = loops,
		  .help = "%s: calls at absolute times, or after the skew's work (timed)" },
		{ "ledger", 0, OPTION_TEXT, o->ledger, "FILE", .max = sizeof(o->ledger),
		  .help = "a line of JSON for each round that rank 0 has applied" },
	};
	const struct option lag[] = {
		{ "lag", 0, OPTION_U32, &o->lag, "N", .min = 1, .max = 64,
		  .help = "steps from a gradient to its use (1)" },
		{ "accumulate", 0, OPTION_OTHER, o, "A", .read = accumulate_read,
		  .help = "micro-batches a step, or until-done (1)" },
		{ "compute-time", 0, OPTION_TIME, &o->compute_ns, "T",
		  .help = "of a micro-batch, emulated (1ms)" },
	};
	uint32_t count = sizeof(common) / sizeof(common[0]);
	const struct option *more = lagged ? lag : partial;
	uint32_t more_count =
		lagged ? sizeof(lag) / sizeof(lag[0]) : sizeof(partial) / sizeof(partial[0]);

	*o = (struct relaxed_options) {
		.program = program,
		.lagged = lagged,
		.partial = RUBATO_PARTIAL_OPTIONS_INIT,
		.iterations = 200,
		.warmups = 10,
		.size_bytes = 64u << 10,
		.lag = 1,
		.accumulate = 1,
		.compute_ns = 1000000,
	};
	memcpy(rows, common, sizeof(common));
	memcpy(rows + count, more, more_count * sizeof(*rows));
	if (!lagged)
		policies_read("solo,majority", o);
	return count + more_count;
}

void relaxed_fit(struct relaxed_options *o, uint32_t rank_count)
{
	o->skew.seed = o->seed;
	o->partial.seed = o->seed;
	o->partial.rounds = (rubato_rounds)o->rounds;
	o->partial.late = (rubato_late)o->late;
	for (uint32_t i = 0; i < o->policy_count && rank_count > 0; i++) {
		const struct relaxed_policy *p = &o->policies[i];

		if (p->options.quorum > rank_count)
			option_fail(o->program, "--policy %s: there are %u ranks", p->name,
				    rank_count);
		if (p->options.group > 0 && rank_count % p->options.group != 0)
			option_fail(o->program, "--policy %s: does not divide %u ranks", p->name,
				    rank_count);
	}
	if (o->ledger[0] == '-' && o->ledger[1] == '\0')
		option_fail(o->program, "--ledger takes a file");
	if (o->ledger[0] != '\0' && !results_writable(o->ledger))
		option_fail(o->program, "--ledger: cannot write there");
	if (o->loop == 1 && o->period_ns > 0)
		option_fail(o->program, "--period is for --loop timed");
	if (rank_count > 0)
		skew_fit(o->program, &o->skew, rank_count);
}
