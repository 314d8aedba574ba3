/* laws_draw.c -- what one seed stands for. See laws.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

#define STEPS_MAX 10
#define CREATION_NS 15000000u /* Of all operations, at the most. */
#define LONG_SUM 400          /* Contributions whose sum of 32 bits may be exact. */
#define LATER_POLICIES 6      /* From this one on: never raised, see later_policy_draw. */
#define LATER_STREAM 0x90
#define WIRE_STREAM 0xb0
#define MEMBERS_STREAM 0xd0

uint64_t laws_below(struct rng *random, uint64_t bound)
{
	return rng_next(random) % bound;
}

bool laws_chance(struct rng *random, uint64_t one_in)
{
	return laws_below(random, one_in) == 0;
}

static uint32_t draw32(struct rng *random, uint64_t bound)
{
	return (uint32_t)laws_below(random, bound);
}

/* ---- The world ---- */

static uint32_t ranks_draw(struct rng *random)
{
	if (laws_chance(random, 60))
		return 33 + draw32(random, LAWS_RANKS_MAX - 32);
	if (laws_chance(random, 30))
		return 1 + draw32(random, 32);
	return 1 + draw32(random, laws_chance(random, 4) ? 16 : 7);
}

static void world_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = ranks_draw(random);

	trial->world = (rubato_sim_options)RUBATO_SIM_OPTIONS_INIT;
	trial->world.rank_count = n;
	trial->world.seed = trial->seed;
	trial->world.ranks_per_node = laws_chance(random, 2) ? 0 : 1 + draw32(random, n);
	trial->world.jitter = laws_chance(random, 3) ? 0 : (double)laws_below(random, 300) / 100;
	trial->world.reorder = draw32(random, 2);
	trial->world.latency_ns = 500 + laws_below(random, 20000);
	trial->world.bandwidth = 1e8 * (double)(1 + laws_below(random, 200));
	trial->world.detect_ns = 1000 + laws_below(random, 1000000);
	trial->world.timeout_ns = 20000000000u;
	trial->world.time_max_ns = 200000000000u;
}

/* ---- Operations ---- */

static uint32_t divisor_draw(struct rng *random, uint32_t n)
{
	uint32_t divisor = 1 + draw32(random, n);

	while (n % divisor != 0)
		divisor--;
	return divisor;
}

/* The number that the form of a policy wants, as rubato_policy_parse reads it. */
static void number_draw(const char *form, uint64_t drawn, uint32_t n, char *number, size_t room)
{
	uint64_t count = 1 + drawn % n;

	switch (form[strcspn(form, ":") + 1]) {
	case 'T':
		(void)snprintf(number, room, "%" PRIu64 "ns", 1000 + drawn % 1000000);
		return;
	case 'S': /* Divides n. */
		while (n % count != 0)
			count--;
		break;
	default:
		break;
	}
	(void)snprintf(number, room, "%" PRIu64, count);
}

/*
 * Policies that came after the first ones, which keep their draws: a seed stands for the same trial
 * for ever, however many policies there are. So each has a stream of its own, and moves only the
 * operations that it takes, one of as many as there were policies with it; with its number, after
 * its form.
 */
static void later_policy_draw(struct laws_op *op)
{
	rubato_partial_options *o = &op->options;
	uint32_t n = op->trial->world.rank_count;

	for (uint32_t policy = LATER_POLICIES; policy < RUBATO_POLICY_COUNT; policy++) {
		struct rng own = rng_open(op->trial->seed, LATER_STREAM + policy, op->index);
		const char *form = rubato_policy_forms()[policy];
		char number[24] = "", text[64];

		if (!laws_chance(&own, policy + 1))
			continue;
		if (form[strcspn(form, "[:")] == ':' || (strchr(form, '[') && laws_chance(&own, 2)))
			number_draw(form, rng_next(&own), n, number, sizeof(number));
		(void)snprintf(text, sizeof(text), "%s%s%s",
			       rubato_policy_name((rubato_policy)policy),
			       number[0] != '\0' ? ":" : "", number);
		if (rubato_policy_parse(text, o) != RUBATO_OK)
			option_fail(SIM, "laws: %s: say in number_draw what it takes",
				    rubato_error_text());
	}
}

/*
 * Nodes as members, of a stream of their own: one operation of eight. A flat network, where each
 * rank is a node, then gets nodes for the whole trial, often uneven ones. Returns their number, and
 * notes who is where.
 */
static uint32_t nodes_find(struct laws_op *op)
{
	const rubato_sim_options *w = &op->trial->world;
	uint32_t node = 0, place = 0;

	for (uint32_t r = 0; r < w->rank_count; r++) {
		uint32_t size = w->node_count > 0       ? w->node_ranks[node % w->node_count]
				: w->ranks_per_node > 0 ? w->ranks_per_node
							: 1;

		op->member_of[r] = node;
		if (++place == size) {
			node++;
			place = 0;
		}
	}
	return node + (place > 0);
}

static void nodes_draw(struct laws_trial *trial, struct rng *own)
{
	uint32_t n = trial->world.rank_count;

	if (trial->world.ranks_per_node > 0 || trial->world.node_count > 0)
		return;
	if (laws_chance(own, 2)) {
		trial->world.ranks_per_node = 1 + draw32(own, n < 8 ? n : 8);
		return;
	}
	trial->world.node_count = 1 + draw32(own, LAWS_NODES_MAX);
	trial->world.node_ranks = trial->node_ranks;
	for (uint32_t i = 0; i < trial->world.node_count; i++)
		trial->node_ranks[i] = 1 + draw32(own, n < 8 ? n : 8);
}

static void members_draw(struct laws_op *op)
{
	struct rng own = rng_open(op->trial->seed, MEMBERS_STREAM, op->index);
	rubato_partial_options *o = &op->options;
	bool even = true;

	if (op->trial->is_lagged || !laws_chance(&own, 8))
		return;
	o->members = RUBATO_MEMBERS_NODES;
	nodes_draw(op->trial, &own);
	op->member_count = nodes_find(op);
	for (uint32_t r = 0; r < op->trial->world.rank_count; r++)
		even = even &&
		       op->member_of[r] == r * op->member_count / op->trial->world.rank_count;
	even = even && op->trial->world.rank_count % op->member_count == 0;
	o->quorum = o->quorum > 0 ? 1 + (o->quorum - 1) % op->member_count : 0;
	o->group = o->group > 0 && even ? divisor_draw(&own, op->member_count) : 0;
}

/* What the numbers of the options mean. */
static void members_count(struct laws_op *op)
{
	uint32_t n = op->trial->world.rank_count, count;
	const rubato_partial_options *o = &op->options;

	op->member_count = n;
	for (uint32_t r = 0; r < n; r++)
		op->member_of[r] = r;
	members_draw(op);
	count = op->member_count;
	op->quorum = o->quorum > 0 ? o->quorum : (count + 1) / 2;
	op->group = o->group > 0 ? o->group : count;
	op->depth = o->depth > 0 ? o->depth : 8;
}

_Static_assert(sizeof(rubato_partial_options) == 104, "a field more: what is drawn for it?");

static void options_draw(struct laws_op *op, struct rng *random)
{
	rubato_partial_options *o = &op->options;
	uint32_t n = op->trial->world.rank_count;

	*o = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	o->policy = (rubato_policy)laws_below(random, LATER_POLICIES);
	o->rounds = (rubato_rounds)laws_below(random, 2);
	o->late = laws_chance(random, 2) ? RUBATO_LATE_ACCUMULATE
					 : (rubato_late)laws_below(random, 3);
	o->collection = laws_chance(random, 2) ? RUBATO_COLLECT_EACH
					       : (rubato_collection)laws_below(random, 3);
	o->normalise = (rubato_normalise)laws_below(random, 4);
	o->quorum = laws_chance(random, 8) ? 0 : 1 + draw32(random, n);
	o->group = laws_chance(random, 8) ? 0 : divisor_draw(random, n);
	o->deadline_ns = 1000 + laws_below(random, 1000000);
	o->window_ns = laws_chance(random, 2) ? 0 : laws_below(random, 300000);
	o->depth = laws_chance(random, 8) ? 0 : 1 + draw32(random, laws_chance(random, 4) ? 64 : 8);
	o->full_every = laws_chance(random, 3) ? 1 + draw32(random, 10) : 0;
	o->max_absence = laws_chance(random, 3) ? 1 + draw32(random, 8) : 0;
	o->zeroed = draw32(random, 2);
	o->seed = laws_below(random, UINT32_MAX);
	later_policy_draw(op);
	members_count(op);
}

/* A stream of its own, as later policies have. What is fed back, and int8, would make results of
 * other elements and rounds. */
static void wire_draw(struct laws_op *op)
{
	struct rng own = rng_open(op->trial->seed, WIRE_STREAM, op->index);

	if (op->type == RUBATO_FLOAT32 && laws_chance(&own, 2) &&
	    (op->reduction == RUBATO_SUM || op->reduction == RUBATO_AVG))
		op->options.wire = RUBATO_WIRE_BFLOAT16;
}

static void values_draw(struct laws_op *op, struct rng *random, uint32_t n)
{
	static const rubato_operator reductions[] = { RUBATO_SUM, RUBATO_AVG, RUBATO_AVG,
						      RUBATO_MAX, RUBATO_MIN, RUBATO_PROD };
	bool huge;

	op->type = laws_chance(random, 2) ? RUBATO_INT64
					  : (rubato_type)laws_below(random, RUBATO_TYPE_COUNT);
	op->reduction = reductions[laws_below(random, 6)];
	op->real = laws_chance(random, 2) || n * STEPS_MAX * LAWS_ERAS_MAX > LONG_SUM;
	op->nans = op->real && laws_chance(random, 4);
	op->gaps = laws_chance(random, 3) ? draw32(random, 3) : 0;
	/* An average by weight wants sums below 2^32, and one of integers those of their type. */
	huge = op->reduction != RUBATO_AVG || op->options.normalise != RUBATO_BY_WEIGHT;
	op->weights = draw32(random, huge ? 4 : 3);
	op->count = 1 + laws_below(random, laws_chance(random, 40) ? 3000 : 8);
	if (laws_chance(random, 60))
		op->count = 0;
	if (n <= 6 && laws_chance(random, 500)) /* Chunks, and what is larger than them. */
		op->count = 20000 + laws_below(random, laws_chance(random, 3) ? 500000 : 60000);
	wire_draw(op);
}

/* ---- Faults ---- */

/* Of a fault before the last one. */
static bool is_victim(const struct laws_trial *trial, uint32_t rank)
{
	for (uint32_t i = 0; i + 1 < trial->world.fault_count; i++)
		if (trial->faults[i].rank == rank)
			return true;
	return false;
}

static rubato_sim_fault *fault_draw(struct laws_trial *trial, struct rng *random, uint32_t kind)
{
	rubato_sim_fault *fault = &trial->faults[trial->world.fault_count++];
	uint32_t n = trial->world.rank_count;

	*fault = (rubato_sim_fault) { .kind = kind };
	fault->rank = draw32(random, n);
	while (is_victim(trial, fault->rank)) /* Each its own. */
		fault->rank = (fault->rank + 1) % n;
	fault->peer = (fault->rank + 1 + draw32(random, n - 1)) % n;
	fault->at_ns = trial->until_ns / 16 + laws_below(random, trial->until_ns);
	fault->for_ns = 1 + laws_below(random, trial->until_ns);
	trial->kinds[kind]++;
	trial->world.faults = trial->faults;
	return fault;
}

static void faults_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = trial->world.rank_count, most = n < LAWS_FAULTS_MAX ? n : LAWS_FAULTS_MAX;
	bool many = n > 32, complex = trial->op_count > 1 || trial->leaver != LAWS_NONE;

	if (n < 2 || laws_chance(random, many || complex ? 6 : 3))
		return;
	if (laws_chance(random, many ? 2 : 3)) {
		rubato_sim_fault *crash = fault_draw(trial, random, RUBATO_SIM_CRASH);

		if (laws_chance(random, 10)) /* While operations are made. */
			crash->at_ns = 1 + laws_below(random, 60 * trial->world.latency_ns);
	}
	while (trial->kinds[RUBATO_SIM_CRASH] > 0 && trial->world.fault_count < most &&
	       laws_chance(random, 5))
		(void)fault_draw(trial, random, RUBATO_SIM_CRASH);
	while (trial->world.fault_count < most && laws_chance(random, 2))
		(void)fault_draw(trial, random, RUBATO_SIM_FREEZE);
	if (trial->world.fault_count < most && laws_chance(random, 4))
		(void)fault_draw(trial, random, RUBATO_SIM_CUT);
	for (uint32_t i = 0; i < trial->world.fault_count; i++)
		if (trial->faults[i].at_ns >= trial->until_ns)
			trial->until_ns = trial->faults[i].at_ns + 1;
}

/* A freeze that outlasts the timeout of calls, which are to be made again. */
static void patience_draw(struct laws_trial *trial, struct rng *random)
{
	rubato_sim_fault *fault;

	if (trial->is_lagged || trial->beside || trial->parts_at_once ||
	    trial->leaver != LAWS_NONE || trial->world.rank_count < 2 ||
	    trial->kinds[RUBATO_SIM_CRASH] > 0 || !laws_chance(random, 25))
		return;
	trial->patient = true;
	trial->world.timeout_ns = 20000000 + laws_below(random, 50000000);
	if (trial->world.fault_count == LAWS_FAULTS_MAX ||
	    trial->world.fault_count == trial->world.rank_count)
		return;
	fault = fault_draw(trial, random, RUBATO_SIM_FREEZE);
	fault->for_ns = trial->world.timeout_ns + laws_below(random, 3 * trial->world.timeout_ns);
	for (uint32_t i = 0; i < trial->world.fault_count; i++) { /* Nobody makes or frees then. */
		uint64_t end_ns = trial->faults[i].at_ns + trial->faults[i].for_ns + CREATION_NS;

		trial->faults[i].at_ns += CREATION_NS;

		if (end_ns >= trial->until_ns)
			trial->until_ns = end_ns + 1;
	}
}

/* ---- The program ---- */

static void steps_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = trial->world.rank_count;
	bool ragged = !trial->beside && laws_chance(random, 3);

	trial->era_count = laws_chance(random, 3) ? 1 + draw32(random, LAWS_ERAS_MAX) : 1;
	for (uint32_t era = 0; era < trial->era_count; era++) {
		uint32_t even = 1 + draw32(random, STEPS_MAX);

		if (trial->era_count == 1 && n <= 8 && laws_chance(random, 10))
			even += 3 * STEPS_MAX; /* For what only shows after a while. */
		for (uint32_t r = 0; r < n; r++)
			trial->steps[era][r] = ragged ? even + draw32(random, STEPS_MAX) : even;
		trial->until_ns += even * (trial->skew_ns / 2 + 8 * trial->world.latency_ns);
	}
}

static void leave_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = trial->world.rank_count;

	trial->leaver = LAWS_NONE;
	if (n < 2 || trial->beside || !laws_chance(random, 6))
		return;
	trial->leaver = draw32(random, n);
	trial->leave_era = draw32(random, trial->era_count);
	trial->leave_step = draw32(random, trial->steps[trial->leave_era][trial->leaver]);
}

static void program_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = trial->world.rank_count;
	bool free_rounds = false;

	trial->is_lagged = laws_chance(random, 12);
	trial->convenient = laws_chance(random, 4);
	trial->rude = laws_chance(random, 6);
	trial->blind = laws_chance(random, 4) ? 1 + draw32(random, 4) : 0;
	trial->hold = laws_chance(random, 3) ? 1 + draw32(random, 4) : 0;
	trial->op_count = laws_chance(random, 4) ? 1 + draw32(random, LAWS_OPS_MAX) : 1;
	for (uint32_t i = 0; i < trial->op_count; i++) {
		options_draw(&trial->ops[i], random);
		values_draw(&trial->ops[i], random, n);
		free_rounds = free_rounds || trial->ops[i].options.rounds == RUBATO_ROUNDS_FREE;
	}
	/* Where rubato.h allows it: aligned rounds of one operation, after equally many commits.
	 * Those go by numbers without gaps, and a collect after each; so do several operations. */
	trial->beside =
		!trial->is_lagged && !free_rounds && trial->op_count == 1 && laws_chance(random, 4);
	for (uint32_t i = 0; i < trial->op_count && (trial->beside || trial->op_count > 1); i++)
		if (trial->ops[i].options.rounds == RUBATO_ROUNDS_ALIGNED)
			trial->ops[i].gaps = trial->blind = 0;
	trial->single = trial->blind > 1 && laws_chance(random, 2);
	trial->parts_at_once = trial->op_count == 1 && laws_chance(random, 20);
	trial->drains_first = trial->parts_at_once && laws_chance(random, 3);
	trial->skew = (enum laws_skew)laws_below(random, LAWS_SKEW_COUNT);
	trial->skew_ns = 1 + laws_below(random, laws_chance(random, 2) ? 100000 : 3000000);
	steps_draw(trial, random);
	leave_draw(trial, random);
}

/* ---- What programs may do besides ---- */

/* Ends that not all ranks come to alike. */
static void ends_draw(struct laws_trial *trial, struct rng *random)
{
	uint32_t n = trial->world.rank_count, last = trial->era_count - 1;
	bool aligned = trial->ops[0].options.rounds == RUBATO_ROUNDS_ALIGNED;
	bool sound = !laws_crashes(trial) && !trial->patient;

	if (n < 2 || last == 0 || !sound || trial->leaver != LAWS_NONE)
		return;
	if (trial->op_count > 1 || trial->beside)
		return;
	if (aligned && laws_chance(random, 4)) {
		trial->differs = draw32(random, n);
		trial->differ_era = 1 + draw32(random, last);
		return;
	}
	if (!laws_chance(random, 3))
		return;
	trial->goner = draw32(random, n);
	trial->deserts = laws_chance(random, 4);
	trial->parts_at_once = !trial->deserts;
	trial->drains_first = false;
	trial->steps[last][trial->goner] = 0;
}

static void besides_draw(struct laws_trial *trial, struct rng *random)
{
	trial->differs = trial->goner = LAWS_NONE;
	trial->lagged.looks = laws_chance(random, 2);
	trial->lagged.parts = laws_chance(random, 4);
	if (trial->is_lagged)
		return;
	if (laws_chance(random, 3))
		trial->peeks = 1 + draw32(random, 3);
	trial->keeps = laws_chance(random, 6) && trial->op_count == 1 && !trial->convenient &&
		       !trial->beside && !trial->patient && !laws_crashes(trial);
	trial->lingers = trial->leaver != LAWS_NONE && laws_chance(random, 2) &&
			 trial->world.fault_count == 0;
	ends_draw(trial, random);
}

static void lagged_draw(struct laws_trial *trial, struct rng *random)
{
	static const rubato_type types[] = { RUBATO_FLOAT64, RUBATO_FLOAT32, RUBATO_FLOAT16,
					     RUBATO_BFLOAT16 };
	struct laws_lagged *l = &trial->lagged;

	l->lag = 1 + draw32(random, laws_chance(random, 8) ? 20 : 3);
	l->type = types[laws_below(random, 4)];
	l->reduction = laws_chance(random, 2) ? RUBATO_SUM : RUBATO_AVG;
	l->count = 1 + laws_below(random, laws_chance(random, 30) ? 3000 : 8);
	if (trial->world.rank_count <= 6 && laws_chance(random, 60))
		l->count = 20000 + laws_below(random, 200000);
	l->until_done = laws_chance(random, 2);
	l->hold = laws_chance(random, 2);
	if (!trial->is_lagged)
		return;
	trial->op_count = 1;
	trial->ops[0].type = l->type;
	trial->ops[0].reduction = l->reduction;
	trial->ops[0].count = l->count;
	trial->ops[0].nans = trial->ops[0].real = false;
	trial->ops[0].options.wire = RUBATO_WIRE_SAME;
	l->digest_count = trial->steps[0][0];
	l->digests = calloc(l->digest_count, sizeof(*l->digests));
	if (l->digests == NULL)
		option_fail(SIM, "out of memory");
}

void laws_draw(struct laws_trial *trial, uint64_t seed)
{
	struct rng random = { rng_mix(seed + 0x1a35) };
	struct rng besides = { rng_mix(seed ^ UINT64_C(0xbe51de5)) };

	memset(trial, 0, sizeof(*trial));
	trial->seed = seed;
	for (uint32_t i = 0; i < LAWS_OPS_MAX; i++) {
		trial->ops[i].trial = trial;
		trial->ops[i].index = i;
	}
	world_draw(trial, &random);
	program_draw(trial, &random);
	faults_draw(trial, &random);
	patience_draw(trial, &random);
	lagged_draw(trial, &random);
	besides_draw(trial, &besides);
	for (uint32_t i = 0; i < trial->op_count; i++)
		for (uint32_t era = 1; era <= LAWS_ERAS_MAX; era++)
			trial->ops[i].begins[era] = LAWS_NEVER;
}

void laws_free(struct laws_trial *trial)
{
	for (uint32_t i = 0; i < trial->op_count; i++) {
		struct laws_op *op = &trial->ops[i];

		for (uint64_t r = 0; r < op->round_end; r++) {
			free(op->rounds[r].ranks);
			free(op->rounds[r].digests);
			free(op->rounds[r].groups);
		}
		free(op->rounds);
		free(op->needs);
		for (uint32_t r = 0; r < trial->world.rank_count; r++) {
			free(op->ranks[r].commits);
			free(op->ranks[r].collects);
		}
	}
	free(trial->lagged.digests);
	memset(trial->ops, 0, trial->op_count * sizeof(trial->ops[0]));
	trial->lagged.digests = NULL;
}

void *laws_grow(void *items, uint32_t count, uint32_t *room, size_t item_bytes)
{
	if (count < *room)
		return items;
	*room = *room > 0 ? 2 * *room : 16;
	items = realloc(items, *room * item_bytes);
	if (items == NULL)
		option_fail(SIM, "out of memory");
	return items;
}

uint64_t laws_skew_ns(const struct laws_trial *trial, uint32_t rank, uint32_t step)
{
	uint32_t n = trial->world.rank_count;
	uint64_t random = laws_mix(trial->seed, 5, (uint64_t)rank << 32 | step);
	uint64_t d = trial->skew_ns;

	switch (trial->skew) {
	case LAWS_LINEAR:
		return d * rank / n;
	case LAWS_EXP:
		return (uint64_t)(-(double)d / 2 * log(1 - rng_unit_of(random)));
	case LAWS_ROTATING:
		return d * ((rank + step) % n) / n;
	case LAWS_STRAGGLER:
		return rank == trial->seed % n ? d : d / 8;
	case LAWS_BURST:
		return random % 8 == 0 ? d : 0;
	case LAWS_EVEN:
	case LAWS_SKEW_COUNT:
		break;
	}
	return d / 4;
}

/* In no time: what the laws say of times stays as it is. */
void laws_draw_device(struct laws_trial *trial)
{
	trial->device = trial->convenient = true;
	trial->keeps = false;
	trial->world.device = (rubato_sim_device) { .present = 1 };
}
