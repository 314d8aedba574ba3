/* relaxed.c -- the options that partial and lagged measurements share. See relaxed.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/operations.h"
#include "tools/relaxed/relaxed.h"

static bool policy_read(struct relaxed_options *o, const char *text, struct option_error *error)
{
	struct relaxed_policy *p = &o->policies[o->policy_count];

	if (o->policy_count == RELAXED_POLICIES_MAX)
		return option_refuse(error, "--policy takes at most %d policies",
				     RELAXED_POLICIES_MAX);
	p->options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	if (rubato_policy_parse(text, &p->options) != RUBATO_OK)
		return option_refuse(error, "--policy: %s", rubato_error_text());
	(void)rubato_policy_format(&p->options, p->name, sizeof(p->name));
	o->policy_count++;
	return true;
}

static bool policies_read(const char *option, const char *text, void *to,
			  struct option_error *error)
{
	char *copy = strdup(text), *rest = copy, *word;
	struct relaxed_options *o = to;
	bool good = copy != NULL || option_refuse(error, "%s: out of memory", option);

	o->policy_count = 0;
	while (good && (word = strsep(&rest, ",")) != NULL)
		good = policy_read(o, word, error);
	free(copy);
	return good;
}

static bool collect_read(const char *option, const char *text, void *to, struct option_error *error)
{
	rubato_partial_options *partial = to;
	const char *depth;
	uint32_t index;

	if (!value_choice(option, text, partial_collections, &index, &depth, error))
		return false;
	partial->collection = (rubato_collection)index;
	return depth == NULL ||
	       value_count32("--collect each:", depth, 1, 1u << 16, &partial->depth, error);
}

const char *const relaxed_types[] = { "float32", "float64", "int32", "int64", NULL };
const char *const relaxed_reductions[] = { "sum", "max", "min", NULL };
static const char *const loops[] = { "timed", "closed", NULL };

#define AT(member) offsetof(struct relaxed_options, member)

const struct option relaxed_rows[] = {
	{ "size", 's', OPTION_BYTES, AT(size_bytes), "SIZE", .min = 1, .preset = "64K",
	  .help = "of the vector" },
	{ "iterations", 't', OPTION_U32, AT(iterations), "N", .min = RELAXED_SLICES,
	  .max = 10000000, .preset = "200", .help = "timed calls, or steps" },
	{ "warmups", 'w', OPTION_U32, AT(warmups), "N", .max = 1000000, .preset = "10",
	  .help = "calls before these; partial: the synchronous form then goes round as many "
		  "buffers "
		  "as the first policy has" },
	{ "type", 'd', OPTION_CHOICE, AT(type), "NAME", .forms = relaxed_types, .preset = "float32",
	  .help = "%s" },
	{ "seed", 0, OPTION_U64, AT(seed), "N", .max = UINT64_MAX, .preset = "0",
	  .help = "of skew and majority" },
	{ 0 },
};

const struct option relaxed_rows_partial[] = {
	{ "policy", 0, OPTION_OTHER, 0, "LIST", .read = policies_read,
	  .forms_of = rubato_policy_forms, .preset = "solo,majority",
	  .help = "%s, with commas between" },
	{ "op", 'o', OPTION_CHOICE, AT(reduction), "NAME", .forms = relaxed_reductions,
	  .preset = "sum", .help = "%s" },
	{ "rounds", 0, OPTION_CHOICE, AT(partial.rounds), "KIND", .forms = partial_rounds,
	  .preset = "aligned", .help = "%s" },
	{ "late", 0, OPTION_CHOICE, AT(partial.late), "KIND", .forms = partial_lates,
	  .preset = "accumulate", .help = "%s" },
	{ "collect", 0, OPTION_OTHER, AT(partial), "KIND", .read = collect_read,
	  .forms = partial_collections, .preset = "each:8", .help = "%s; D results are kept" },
	{ "members", 0, OPTION_CHOICE, AT(partial.members), "KIND", .forms = partial_members,
	  .preset = "ranks", .help = "whom policies count: %s; K and S are numbers of these" },
	{ "full-every", 0, OPTION_U32, AT(partial.full_every), "N", .max = UINT32_MAX - 1,
	  .preset = "0", .help = "every N-th round waits for all; 0: none" },
	{ "max-absence", 0, OPTION_U32, AT(partial.max_absence), "S", .max = UINT32_MAX - 1,
	  .preset = "0", .help = "so does one after S rounds without some rank; 0: none" },
	{ "window", 0, OPTION_TIME, AT(partial.window_ns), "T", .preset = "0",
	  .help = "what arrives so long after the opening is in" },
	{ "skew", 0, OPTION_OTHER, AT(skew), "KIND", .read = skew_read, .forms = skew_names,
	  .help = SKEW_HELP },
	{ "period", 0, OPTION_TIME, AT(period_ns), "T",
	  .help = "from one iteration's begin to the next (1.25 times the largest skew)" },
	{ "loop", 0, OPTION_CHOICE, AT(loop), "KIND", .forms = loops, .preset = "timed",
	  .help = "%s: calls at absolute times, or after the skew's work" },
	{ "helped", 0, OPTION_FLAG, AT(helped),
	  .help = "the allreduce that is helped against a late rank, too" },
	{ "ledger", 0, OPTION_TEXT, AT(ledger), "FILE", .max = PATH_MAX,
	  .help = "a line of JSON for each round that rank 0 has applied" },
	{ 0 },
};

const struct option relaxed_rows_lagged[] = {
	{ "lag", 0, OPTION_U32, AT(lag), "N", .min = 1, .max = 64, .preset = "1",
	  .help = "steps from a gradient to its use" },
	{ "accumulate", 0, OPTION_U32, AT(accumulate), "A", .min = 1, .max = 1u << 20,
	  .word = "until-done", .word_is = 0, .preset = "1",
	  .help = "micro-batches a step, or until-done" },
	{ "compute-time", 0, OPTION_TIME, AT(compute_ns), "T", .preset = "1ms",
	  .help = "of a micro-batch, emulated" },
	{ 0 },
};

void relaxed_init(struct relaxed_options *o, const char *program, bool lagged)
{
	*o = (struct relaxed_options) {
		.program = program,
		.lagged = lagged,
		.partial = RUBATO_PARTIAL_OPTIONS_INIT,
	};
}

void relaxed_fit(struct relaxed_options *o, uint32_t rank_count)
{
	o->skew.seed = o->seed;
	o->partial.seed = o->seed;
	for (uint32_t i = 0; i < o->policy_count; i++) {
		struct relaxed_policy *p = &o->policies[i];

		p->options = o->partial;
		if (rubato_policy_parse(p->name, &p->options) != RUBATO_OK)
			option_fail(o->program, "--policy: %s", rubato_error_text());
		if (rank_count == 0)
			continue;
		if (p->options.quorum > rank_count)
			option_fail(o->program, "--policy %s: there are %u ranks", p->name,
				    rank_count);
		if (p->options.group > 0 && rank_count % p->options.group != 0 &&
		    p->options.members == RUBATO_MEMBERS_RANKS)
			option_fail(o->program, "--policy %s: does not divide %u ranks", p->name,
				    rank_count);
	}
	if (o->ledger[0] == '-' && o->ledger[1] == '\0')
		option_fail(o->program, "--ledger takes a file");
	results_check(o->program, "--ledger", o->ledger);
	if (o->loop == 1 && o->period_ns > 0)
		option_fail(o->program, "--period is for --loop timed");
	if (rank_count > 0)
		skew_fit(o->program, &o->skew, rank_count);
}
