/* laws_draw.c -- what one seed stands for. See laws.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/laws.h"
#include "tools/options.h"
#include "tools/sim.h"

#define STEPS_MAX 10

uint64_t laws_below(struct laws_random *random, uint64_t bound)
{
	random->state += 0x9e3779b97f4a7c15u;
	return random_mix(random->state) % bound;
}

static bool chance(struct laws_random *random, uint64_t one_in)
{
	return laws_below(random, one_in) == 0;
}

static uint32_t ranks_draw(struct laws_random *random)
{
	if (chance(random, 30))
		return 1 + (uint32_t)laws_below(random, LAWS_RANKS_MAX);
	return 1 + (uint32_t)laws_below(random, chance(random, 4) ? 16 : 7);
}

static void world_draw(struct laws_trial *trial, struct laws_random *random)
{
	uint32_t n = ranks_draw(random);

	trial->world = (rubato_sim_options)RUBATO_SIM_OPTIONS_INIT;
	trial->world.rank_count = n;
	trial->world.seed = trial->seed;
	trial->world.ranks_per_node = chance(random, 2) ? 0 : 1 + (uint32_t)laws_below(random, n);
	trial->world.jitter = chance(random, 3) ? 0 : (double)laws_below(random, 300) / 100;
	trial->world.reorder = (uint32_t)laws_below(random, 2);
	trial->world.latency_ns = 500 + laws_below(random, 20000);
	trial->world.bandwidth = 1e8 * (double)(1 + laws_below(random, 200));
	trial->world.detect_ns = 1000 + laws_below(random, 1000000);
	trial->world.timeout_ns = 20000000000u;
	trial->world.time_max_ns = 200000000000u;
}

static uint32_t divisor_draw(struct laws_random *random, uint32_t n)
{
	uint32_t divisor = 1 + (uint32_t)laws_below(random, n);

	while (n % divisor != 0)
		divisor--;
	return divisor;
}

static void op_draw(struct laws_op *op, struct laws_random *random, uint32_t n)
{
	static const rubato_operator reductions[] = { RUBATO_SUM, RUBATO_SUM, RUBATO_MAX,
						      RUBATO_MIN };
	rubato_partial_options *o = &op->options;

	*o = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	o->policy = (rubato_policy)laws_below(random, 6);
	o->rounds = (rubato_rounds)laws_below(random, 2);
	o->late = chance(random, 2) ? RUBATO_LATE_ACCUMULATE : (rubato_late)laws_below(random, 3);
	o->collection =
		chance(random, 2) ? RUBATO_COLLECT_EACH : (rubato_collection)laws_below(random, 3);
	o->quorum = 1 + (uint32_t)laws_below(random, n);
	o->group = divisor_draw(random, n);
	o->deadline_ns = 1000 + laws_below(random, 1000000);
	o->window_ns = chance(random, 2) ? 0 : laws_below(random, 300000);
	o->depth = 1 + (uint32_t)laws_below(random, 8);
	o->full_every = chance(random, 3) ? 1 + (uint32_t)laws_below(random, 10) : 0;
	o->max_absence = chance(random, 3) ? 1 + (uint32_t)laws_below(random, 8) : 0;
	o->zeroed = (uint32_t)laws_below(random, 2);
	o->seed = laws_below(random, UINT32_MAX);
	op->count = 1 + laws_below(random, chance(random, 40) ? 3000 : 8);
	op->reduction = reductions[laws_below(random, 4)];
}

/* Of its own chance, so that what else a seed stands for stays. */
static void average_draw(struct laws_trial *trial)
{
	struct laws_random random = { random_mix(trial->seed + 0xa5e) };

	for (uint32_t i = 0; i < trial->op_count; i++) {
		struct laws_op *op = &trial->ops[i];

		if (op->reduction == RUBATO_SUM && chance(&random, 2))
			op->reduction = RUBATO_AVG;
	}
	for (uint32_t i = 0; i < trial->op_count; i++)
		trial->ops[i].options.normalise = (rubato_normalise)laws_below(&random, 3);
}

/* Of a fault before the last one. */
static bool is_victim(const struct laws_trial *trial, uint32_t rank)
{
	for (uint32_t i = 0; i + 1 < trial->world.fault_count; i++)
		if (trial->faults[i].rank == rank)
			return true;
	return false;
}

static void fault_draw(struct laws_trial *trial, struct laws_random *random, uint32_t kind)
{
	rubato_sim_fault *fault = &trial->faults[trial->world.fault_count++];
	uint32_t n = trial->world.rank_count;

	*fault = (rubato_sim_fault) { .kind = kind };
	fault->rank = (uint32_t)laws_below(random, n);
	while (is_victim(trial, fault->rank)) /* Each its own. */
		fault->rank = (fault->rank + 1) % n;
	fault->peer = (fault->rank + 1 + (uint32_t)laws_below(random, n - 1)) % n;
	fault->at_ns = trial->until_ns / 16 + laws_below(random, trial->until_ns);
	fault->for_ns = 1 + laws_below(random, trial->until_ns);
	trial->kinds[kind]++;
	trial->world.faults = trial->faults;
}

static void faults_draw(struct laws_trial *trial, struct laws_random *random)
{
	uint32_t n = trial->world.rank_count, most = n < LAWS_FAULTS_MAX ? n : LAWS_FAULTS_MAX;

	if (n < 2 || chance(random, 3))
		return;
	if (!trial->lagged && chance(random, 3))
		fault_draw(trial, random, RUBATO_SIM_CRASH);
	if (trial->kinds[RUBATO_SIM_CRASH] > 0 && chance(random, 6))
		fault_draw(trial, random, RUBATO_SIM_CRASH);
	while (trial->world.fault_count < most && chance(random, 2))
		fault_draw(trial, random, RUBATO_SIM_FREEZE);
	if (trial->world.fault_count < most && chance(random, 4))
		fault_draw(trial, random, RUBATO_SIM_CUT);
	for (uint32_t i = 0; i < trial->world.fault_count; i++)
		if (trial->faults[i].at_ns >= trial->until_ns)
			trial->until_ns = trial->faults[i].at_ns + 1;
}

static void program_draw(struct laws_trial *trial, struct laws_random *random)
{
	uint32_t n = trial->world.rank_count, even = 1 + (uint32_t)laws_below(random, STEPS_MAX);
	bool ragged = chance(random, 3);

	trial->lagged = chance(random, 12);
	trial->lag = 1 + (uint32_t)laws_below(random, 3);
	trial->convenient = chance(random, 4);
	trial->op_count = chance(random, 4) ? 1 + (uint32_t)laws_below(random, LAWS_OPS_MAX) : 1;
	for (uint32_t i = 0; i < trial->op_count; i++)
		op_draw(&trial->ops[i], random, n);
	/* As buckets of one model: a program that waits in one operation for ranks which wait in
	 * another, of another policy, deadlocks by itself. */
	for (uint32_t i = 1; i < trial->op_count; i++)
		trial->ops[i].options = trial->ops[0].options;
	trial->drain_step = chance(random, 5) ? (even + 1) / 2 : 0;
	for (uint32_t r = 0; r < n; r++)
		trial->steps[r] = ragged ? even + (uint32_t)laws_below(random, STEPS_MAX) : even;
	trial->leaver = n > 1 && chance(random, 6) ? (uint32_t)laws_below(random, n) : LAWS_NONE;
	trial->leave_step = trial->drain_step + (uint32_t)laws_below(random, even);
	trial->skew = (enum laws_skew)laws_below(random, LAWS_SKEW_COUNT);
	trial->skew_ns = 1 + laws_below(random, chance(random, 2) ? 100000 : 3000000);
	trial->until_ns = even * (trial->skew_ns / 2 + 8 * trial->world.latency_ns);
}

void laws_draw(struct laws_trial *trial, uint64_t seed)
{
	struct laws_random random = { random_mix(seed + 0x1a35) };

	memset(trial, 0, sizeof(*trial));
	trial->seed = seed;
	world_draw(trial, &random);
	program_draw(trial, &random);
	average_draw(trial);
	faults_draw(trial, &random);
}

void laws_free(struct laws_trial *trial)
{
	for (uint32_t i = 0; i < trial->op_count; i++) {
		struct laws_op *op = &trial->ops[i];

		for (uint64_t r = 0; r < op->round_end; r++) {
			free(op->rounds[r].ranks);
			free(op->rounds[r].digests);
			free(op->rounds[r].members);
		}
		free(op->rounds);
		op->rounds = NULL;
		op->round_end = op->round_capacity = 0;
	}
}

uint64_t laws_skew_ns(const struct laws_trial *trial, uint32_t rank, uint32_t step)
{
	uint32_t n = trial->world.rank_count;
	uint64_t random = random_mix(random_mix(trial->seed + 5) ^ ((uint64_t)rank << 32 | step));
	uint64_t d = trial->skew_ns;

	switch (trial->skew) {
	case LAWS_LINEAR:
		return d * rank / n;
	case LAWS_EXP:
		return (uint64_t)(-(double)d / 2 * log(1 - random_unit(random)));
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

uint64_t laws_word(const struct laws_trial *trial, uint32_t op, uint32_t rank, uint64_t step,
		   uint64_t place)
{
	return random_mix(
		random_mix(trial->seed ^ ((uint64_t)op << 56 | (uint64_t)rank << 40 | step)) +
		place * 0x9e3779b97f4a7c15u);
}

uint64_t laws_identity(rubato_operator reduction)
{
	if (reduction == RUBATO_MAX)
		return (uint64_t)INT64_MIN;
	return reduction == RUBATO_MIN ? (uint64_t)INT64_MAX : 0;
}

uint64_t laws_reduce(rubato_operator reduction, uint64_t a, uint64_t b)
{
	if (reduction == RUBATO_MAX)
		return (int64_t)a > (int64_t)b ? a : b;
	if (reduction == RUBATO_MIN)
		return (int64_t)a < (int64_t)b ? a : b;
	return a + b;
}
