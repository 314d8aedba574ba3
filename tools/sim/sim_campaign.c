/*
 * sim_campaign.c -- many seeds: each draws a cluster, a program of calls and perhaps one fault that
 * only delays, and must end with right values, equal bits on all ranks, and the same again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/results.h"
#include "tools/sim/sim.h"

#define RANKS_MAX 16
#define CALLS_MAX 40
#define COUNT_MAX 20000 /* Elements: well above a chunk's 256 KiB when gathered. */

static uint64_t below(struct rng *random, uint64_t bound)
{
	return rng_next(random) % bound;
}

struct trial {
	rubato_sim_options cluster;
	rubato_sim_fault fault;
	uint32_t node_ranks[2];
	uint64_t seed;
	uint32_t call_count;
	uint64_t skew_ns;
	struct sim_call calls[CALLS_MAX];
	uint64_t digests[CALLS_MAX]; /* Of the first rank that has one; 0: none yet. */
	uint64_t wrong, unequal;
};

static void call_draw(struct sim_call *call, struct rng *random, uint32_t rank_count)
{
	*call = (struct sim_call) {
		.op = (enum operation)below(random, OPERATION_COUNT),
		.type = (rubato_type)below(random, RUBATO_TYPE_COUNT),
		.reduction = (rubato_operator)below(random, RUBATO_OPERATOR_COUNT),
		.root = (uint32_t)below(random, rank_count),
		.salt = below(random, 1u << 20),
	};
	if (call->op != OP_BARRIER) /* Small ones often, large ones sometimes. */
		call->count = below(random, below(random, 64) == 0 ? COUNT_MAX : 100);
	if (operation_scattered(call->op)) /* A share, so that checking takes about as long. */
		call->count = (call->count + rank_count - 1) / rank_count;
	call->rough = call->op == OP_ALLREDUCE && below(random, 2) == 0 &&
		      (call->type == RUBATO_FLOAT32 || call->type == RUBATO_FLOAT64 ||
		       call->type == RUBATO_FLOAT16 || call->type == RUBATO_BFLOAT16);
}

/* A stream of its own, as below. */
static void cores_draw(rubato_sim_options *cluster, uint64_t seed)
{
	struct rng random = { rng_mix(rng_mix(seed + 1) + 2) };

	if (below(&random, 2) == 0)
		return;
	cluster->costs.cores = 1 + (uint32_t)below(&random, 4);
	cluster->costs.turn_ns = below(&random, 2000);
}

static void burst_draw(rubato_sim_options *cluster, uint64_t seed)
{
	struct rng random = { rng_mix(rng_mix(seed + 1) + 3) };

	if (below(&random, 3) == 0)
		cluster->costs.burst_bytes = UINT64_C(1) << below(&random, 20);
}

static void attach_draw(rubato_sim_options *cluster, uint64_t seed)
{
	struct rng random = { rng_mix(rng_mix(seed + 1) + 4) };

	if (below(&random, 3) == 0)
		cluster->costs.attach_bandwidth = 1e9 * (double)(1 + below(&random, 20));
}

/* A stream of its own: seeds keep the trials that they had before there were costs. */
static void costs_draw(struct trial *trial, uint64_t seed)
{
	struct rng random = { rng_mix(rng_mix(seed + 1) + 1) };
	rubato_sim_options *cluster = &trial->cluster;

	if (below(&random, 2) == 0)
		return;
	cluster->costs = (rubato_sim_costs) {
		.send_ns = below(&random, 1000),
		.receive_ns = below(&random, 1000),
		.node_send_ns = below(&random, 300),
		.node_receive_ns = below(&random, 300),
		.work_ns = below(&random, 200),
		.gap_ns = below(&random, 500),
		.memory_bandwidth = 1e9 * (double)below(&random, 40),
		.core_bandwidth = 1e9 * (double)below(&random, 20),
		.cards = (uint32_t)below(&random, 4),
	};
	cores_draw(cluster, seed);
	burst_draw(cluster, seed);
	attach_draw(cluster, seed);
	if (cluster->ranks_per_node == 0 || below(&random, 2) == 0)
		return;
	trial->node_ranks[0] = cluster->ranks_per_node;
	trial->node_ranks[1] = 1 + (uint32_t)below(&random, cluster->rank_count);
	cluster->ranks_per_node = 0;
	cluster->node_ranks = trial->node_ranks;
	cluster->node_count = 2;
}

static void trial_draw(struct trial *trial, uint64_t seed)
{
	struct rng random = { rng_mix(seed + 1) };
	uint32_t n = 1 + (uint32_t)below(&random, RANKS_MAX);

	*trial = (struct trial) { .cluster = RUBATO_SIM_OPTIONS_INIT, .seed = seed };
	trial->cluster.rank_count = n;
	trial->cluster.seed = seed;
	trial->cluster.ranks_per_node =
		below(&random, 2) == 0 ? 0 : 1 + (uint32_t)below(&random, n);
	trial->cluster.jitter = below(&random, 3) == 0 ? 0 : (double)below(&random, 300) / 100;
	trial->cluster.reorder = (uint32_t)below(&random, 2);
	trial->cluster.latency_ns = 200 + below(&random, 20000);
	trial->cluster.bandwidth = 1e8 * (double)(1 + below(&random, 200));
	trial->skew_ns = below(&random, 2) == 0 ? 0 : 1 + below(&random, 100000);
	if (n > 1 && below(&random, 2) == 0) {
		trial->fault.kind = below(&random, 2) == 0 ? RUBATO_SIM_FREEZE : RUBATO_SIM_CUT;
		trial->fault.rank = (uint32_t)below(&random, n);
		trial->fault.peer = (trial->fault.rank + 1 + (uint32_t)below(&random, n - 1)) % n;
		trial->fault.at_ns = below(&random, 1000000);
		trial->fault.for_ns = 1 + below(&random, 2000000);
		trial->cluster.faults = &trial->fault;
		trial->cluster.fault_count = 1;
	}
	costs_draw(trial, seed);
	trial->call_count = 10 + (uint32_t)below(&random, CALLS_MAX - 9);
	for (uint32_t i = 0; i < trial->call_count; i++)
		call_draw(&trial->calls[i], &random, n);
}

static rubato_status trial_rank(rubato_comm *comm, void *arg)
{
	struct trial *trial = arg;
	uint32_t n = rubato_size(comm);
	uint64_t bytes =
		(uint64_t)COUNT_MAX * n * 8 * 2; /* Uneven ones may have twice the share. */
	void *in = malloc(bytes), *out = malloc(bytes);
	rubato_status err = in == NULL || out == NULL ? RUBATO_ERR_MEMORY : RUBATO_OK;
	struct rng own = { rng_mix(trial->seed ^ ((uint64_t)rubato_rank(comm) << 32)) };

	for (uint32_t i = 0; i < trial->call_count && err == RUBATO_OK; i++) {
		const struct sim_call *call = &trial->calls[i];
		struct sim_times times = { 0, 0 };
		uint64_t digest;

		if (trial->skew_ns > 0)
			times.enter_ns = rubato_now(comm) + below(&own, trial->skew_ns);
		memset(out, 0x5a, sim_call_out_bytes(comm, call));
		err = sim_call_make(comm, call, in, out, &times, &trial->wrong);
		digest = err == RUBATO_OK ? sim_call_digest(comm, call, out) : 0;
		if (trial->digests[i] == 0)
			trial->digests[i] = digest;
		trial->unequal += digest != 0 && digest != trial->digests[i];
	}
	free(in);
	free(out);
	return err;
}

/* What is wrong with it, as a sentence in `text`; false: nothing. */
static bool trial_fails(uint64_t seed, rubato_sim_result *result, uint32_t *fault_kind, char *text,
			size_t text_bytes)
{
	struct trial *trial = malloc(sizeof(*trial));
	rubato_sim_result again;
	bool fails = true;

	if (trial == NULL)
		option_fail(SIM, "out of memory");
	trial_draw(trial, seed);
	*fault_kind = trial->fault.kind;
	if (rubato_sim_run(&trial->cluster, trial_rank, trial, result) != RUBATO_OK) {
		(void)snprintf(text, text_bytes, "%s", rubato_error_text());
	} else if (trial->wrong > 0) {
		(void)snprintf(text, text_bytes, "%" PRIu64 " elements are wrong", trial->wrong);
	} else if (trial->unequal > 0) {
		(void)snprintf(text, text_bytes, "%" PRIu64 " results differ between ranks",
			       trial->unequal);
	} else {
		trial_draw(trial, seed);
		fails = rubato_sim_run(&trial->cluster, trial_rank, trial, &again) != RUBATO_OK ||
			again.trace_hash != result->trace_hash || again.end_ns != result->end_ns;
		if (fails)
			(void)snprintf(text, text_bytes, "its second run was another");
	}
	free(trial);
	return fails;
}

struct campaign_options {
	uint64_t seed, seeds;
	char json[PATH_MAX];
};

#define AT(member) offsetof(struct campaign_options, member)

static const struct option rows[] = {
	{ "seed", 0, OPTION_U64, AT(seed), "N", .max = UINT64_MAX, .preset = "0",
	  .help = "the first" },
	{ "seeds", 0, OPTION_U64, AT(seeds), "N", .min = 1, .max = 1000000000, .preset = "1000",
	  .help = "how many" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "results for programs; - is standard output, then without the line" },
	{ 0 },
};

static int campaign(const struct campaign_options *options)
{
	uint64_t failed = 0, events = 0, fired[RUBATO_SIM_CUT + 1] = { 0 };
	bool written = true;
	char text[512];

	for (uint64_t i = 0; i < options->seeds; i++) {
		uint64_t seed = options->seed + i;
		rubato_sim_result result;
		uint32_t kind;

		if (trial_fails(seed, &result, &kind, text, sizeof(text))) {
			failed++;
			(void)fprintf(stderr, "%s: seed %" PRIu64 ": %s\n", SIM, seed, text);
		}
		events += result.events;
		fired[kind] += result.faults_fired;
	}
	if (options->json[0] != '\0') {
		json_t *json = json_pack(
			"{s:s,s:o,s:I,s:I,s:I,s:{s:I,s:I}}", "version", rubato_version(), "seed",
			results_whole(options->seed), "seeds", (json_int_t)options->seeds, "failed",
			(json_int_t)failed, "events", (json_int_t)events, "faults_fired", "freeze",
			(json_int_t)fired[RUBATO_SIM_FREEZE], "cut",
			(json_int_t)fired[RUBATO_SIM_CUT]);

		written = sim_json_write(options->json, json);
	}
	if (strcmp(options->json, "-") != 0)
		(void)printf("# %" PRIu64 " seeds, %" PRIu64 " failed, %" PRIu64 " events, %" PRIu64
			     " freezes and %" PRIu64 " cuts fired\n",
			     options->seeds, failed, events, fired[RUBATO_SIM_FREEZE],
			     fired[RUBATO_SIM_CUT]);
	return failed == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}

int sim_campaign_command(int argc, char **argv)
{
	static struct campaign_options o; /* Large. */
	const struct option_table tables[] = { { .rows = rows, .to = &o }, { 0 } };
	const struct options options = {
		.program = SIM,
		.usage = "campaign [options]",
		.about = "Runs many seeds. Each draws ranks, a network, costs, a program of all "
			 "operations with sizes and\nskew, and perhaps one fault that delays; it "
			 "must end with right values, equal bits on all ranks,\nand the same "
			 "again.\n",
		.notes = "",
		.tables = tables,
	};

	(void)options_read(&options, argc, argv);
	results_check(SIM, "--json", o.json);
	return campaign(&o);
}
