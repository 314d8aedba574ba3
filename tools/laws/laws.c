/* laws.c -- rubato-sim laws: many seeds, or one with what it stands for. See laws.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/options.h"
#include "programs/results.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

#define PROGRESS_EVERY 500

struct laws_options {
	uint64_t seed, seeds;
	bool twice, device;
	char json[PATH_MAX];
};

struct tally {
	uint64_t failed, rounds, events, drawn[RUBATO_SIM_CUT + 1], fired, lagged;
	uint64_t policies[RUBATO_POLICY_COUNT];
};

static void trial_describe(const struct laws_trial *trial)
{
	const rubato_sim_options *w = &trial->world;

	(void)fprintf(stderr,
		      "  %u ranks, %u a node, latency %" PRIu64 " ns, %s, skew %" PRIu64
		      " ns (kind %d), until %" PRIu64 " ns\n",
		      w->rank_count, w->ranks_per_node, w->latency_ns,
		      w->reorder ? "reordered" : "in order", trial->skew_ns, (int)trial->skew,
		      trial->until_ns);
	for (uint32_t i = 0; i < w->fault_count; i++)
		(void)fprintf(stderr,
			      "  %s rank %u (peer %u) at %" PRIu64 " ns for %" PRIu64 " ns\n",
			      w->faults[i].kind == RUBATO_SIM_FREEZE  ? "freeze"
			      : w->faults[i].kind == RUBATO_SIM_CRASH ? "crash"
								      : "cut",
			      w->faults[i].rank, w->faults[i].peer, w->faults[i].at_ns,
			      w->faults[i].for_ns);
	if (trial->is_lagged)
		(void)fprintf(stderr, "  lagged, lag %u, %u steps, %s %s x %" PRIu64 "\n",
			      trial->lagged.lag, trial->steps[0][0],
			      rubato_operator_name(trial->lagged.reduction),
			      rubato_type_name(trial->lagged.type), trial->lagged.count);
	for (uint32_t i = 0; i < trial->op_count && !trial->is_lagged; i++) {
		const rubato_partial_options *o = &trial->ops[i].options;
		char policy[32];

		(void)fprintf(stderr,
			      "  operation %u: %s, %u %s, rounds %s, late %d, collection "
			      "%d, by %d, "
			      "window %" PRIu64
			      " ns, depth %u, full every %u, absence %u, %s %s x %" PRIu64
			      ", weights %u, gaps %u\n",
			      i, rubato_policy_format(o, policy, sizeof(policy)),
			      trial->ops[i].member_count, o->members ? "nodes" : "ranks",
			      o->rounds ? "free" : "aligned", (int)o->late, (int)o->collection,
			      (int)o->normalise, o->window_ns, o->depth, o->full_every,
			      o->max_absence, rubato_operator_name(trial->ops[i].reduction),
			      rubato_type_name(trial->ops[i].type), trial->ops[i].count,
			      trial->ops[i].weights, trial->ops[i].gaps);
	}
	(void)fprintf(
		stderr,
		"  %u eras of %u steps on rank 0; leaver %d in era %u at step %u; %s%s%s%sblind "
		"%u, hold %u\n",
		trial->era_count, trial->steps[0][0], (int)trial->leaver, trial->leave_era,
		trial->leave_step, trial->convenient ? "convenient, " : "",
		trial->beside ? "collectives beside, " : "", trial->patient ? "patient, " : "",
		trial->parts_at_once ? "frees without a drain, " : "", trial->blind, trial->hold);
	(void)fprintf(
		stderr, "  looks %u%s%s; number of rank %d differs in era %u; rank %d goes%s\n",
		trial->peeks, trial->keeps ? ", keeps results" : "",
		trial->lingers ? ", who left lingers" : "", (int)trial->differs, trial->differ_era,
		(int)trial->goner, trial->deserts ? ", which is not allowed" : "");
}

/* Runs the trial once. */
static void trial_run(struct laws_trial *trial, rubato_sim_result *result)
{
	rubato_status status = rubato_sim_run(&trial->world, laws_rank, trial, result);

	laws_judge(trial, status, result);
}

static void trial_draw(const struct laws_options *options, struct laws_trial *trial, uint64_t seed)
{
	laws_draw(trial, seed);
	if (options->device)
		laws_draw_device(trial);
}

static bool seed_run(const struct laws_options *options, uint64_t seed, struct tally *tally)
{
	struct laws_trial *trial = malloc(sizeof(*trial));
	rubato_sim_result result, again;
	bool held;

	if (trial == NULL)
		option_fail(SIM, "out of memory");
	trial_draw(options, trial, seed);
	trial->dump = options->seeds == 1;
	trial_run(trial, &result);
	tally->rounds += trial->rounds;
	tally->events += result.events;
	tally->fired += result.faults_fired;
	tally->lagged += trial->is_lagged;
	for (uint32_t i = 0; i < trial->op_count && !trial->is_lagged; i++)
		tally->policies[trial->ops[i].options.policy]++;
	for (uint32_t kind = 0; kind <= RUBATO_SIM_CUT; kind++)
		tally->drawn[kind] += trial->kinds[kind];
	if (options->twice && trial->broken[0] == '\0') {
		laws_free(trial);
		trial_draw(options, trial, seed);
		trial_run(trial, &again);
		if (again.trace_hash != result.trace_hash || again.end_ns != result.end_ns)
			laws_break(trial, "its second run was another");
	}
	held = trial->broken[0] == '\0';
	if (!held) {
		if (isatty(STDERR_FILENO))
			(void)fprintf(stderr, "\r\033[K");
		(void)fprintf(stderr, "%s: seed %" PRIu64 ": %s\n", SIM, seed, trial->broken);
	}
	if (options->seeds == 1)
		trial_describe(trial);
	laws_free(trial);
	free(trial);
	return held;
}

static void progress(const struct laws_options *options, uint64_t done, uint64_t failed)
{
	if (!isatty(STDERR_FILENO) || (done % PROGRESS_EVERY != 0 && done != options->seeds))
		return;
	(void)fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " failed%s", SIM,
		      done, options->seeds, failed, done == options->seeds ? "\n" : "");
}

static json_t *tally_json(const struct laws_options *options, const struct tally *tally)
{
	json_t *policies = json_object();
	uint64_t must = tally->drawn[RUBATO_SIM_FREEZE] + tally->drawn[RUBATO_SIM_CRASH];

	for (uint32_t i = 0; i < RUBATO_POLICY_COUNT; i++)
		json_object_set_new(policies, rubato_policy_name((rubato_policy)i),
				    json_integer((json_int_t)tally->policies[i]));
	return json_pack("{s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:o,s:{s:I,s:I,s:I},s:{s:I,s:I,s:I}}",
			 "version", rubato_version(), "seed", results_whole(options->seed), "seeds",
			 (json_int_t)options->seeds, "failed", (json_int_t)tally->failed, "rounds",
			 (json_int_t)tally->rounds, "events", (json_int_t)tally->events, "lagged",
			 (json_int_t)tally->lagged, "operations", policies, "faults_drawn",
			 "freeze", (json_int_t)tally->drawn[RUBATO_SIM_FREEZE], "crash",
			 (json_int_t)tally->drawn[RUBATO_SIM_CRASH], "cut",
			 (json_int_t)tally->drawn[RUBATO_SIM_CUT], "faults_fired",
			 /* laws_judge() demands that all freezes and crashes do. */
			 "freeze", (json_int_t)tally->drawn[RUBATO_SIM_FREEZE], "crash",
			 (json_int_t)tally->drawn[RUBATO_SIM_CRASH], "cut",
			 (json_int_t)(tally->fired - must));
}

#define AT(member) offsetof(struct laws_options, member)

static const struct option rows[] = {
	{ "seed", 0, OPTION_U64, AT(seed), "N", .max = UINT64_MAX,
	  .help = "the first (0); with --seeds 1 what it draws is described" },
	{ "seeds", 0, OPTION_U64, AT(seeds), "N", .min = 1, .max = 1000000000, .preset = "1000",
	  .help = "how many" },
	{ "twice", 0, OPTION_FLAG, AT(twice), .help = "run each twice and compare" },
	{ "device", 0, OPTION_FLAG, AT(device),
	  .help = "vectors lie in the memory of simulated devices" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "the summary for programs; - is standard output" },
	{ 0 },
};

int laws_command(int argc, char **argv)
{
	struct laws_options o = { 0 };
	const struct option_table tables[] = { { .rows = rows, .to = &o }, { 0 } };
	const struct options options = {
		.program = SIM,
		.usage = "laws [options]",
		.about =
			"Runs random jobs of partial and lagged allreduces in virtual time, with "
			"skew, freezes,\ncuts and crashes, and checks conservation, agreement, "
			"staleness, fairness, progress and\nrecovery in each. Exit status 1: a law "
			"was broken; its seed was printed.\n",
		.notes = "",
		.tables = tables,
	};
	struct tally tally = { 0 };
	bool written = true;

	(void)options_read(&options, argc, argv);
	results_check(SIM, "--json", o.json);
	for (uint64_t i = 0; i < o.seeds; i++) {
		tally.failed += !seed_run(&o, o.seed + i, &tally);
		progress(&o, i + 1, tally.failed);
	}
	if (o.json[0] != '\0')
		written = sim_json_write(o.json, tally_json(&o, &tally));
	if (strcmp(o.json, "-") != 0)
		(void)printf("# %" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " failed, %" PRIu64
			     " rounds, %" PRIu64 " events; %" PRIu64 " freezes, %" PRIu64
			     " crashes and %" PRIu64 " cuts drawn, %" PRIu64 " faults fired\n",
			     o.seeds, o.seed, tally.failed, tally.rounds, tally.events,
			     tally.drawn[RUBATO_SIM_FREEZE], tally.drawn[RUBATO_SIM_CRASH],
			     tally.drawn[RUBATO_SIM_CUT], tally.fired);
	return tally.failed == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
