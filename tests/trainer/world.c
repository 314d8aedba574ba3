/* world.c -- see world.h. */
#include "tests/trainer/world.h"
#include "rubato_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"
#include "tests/check_main.h"

void world_init(struct world *world, const struct tr_rule *rule, uint32_t ranks, size_t count,
		uint64_t steps)
{
	*world = (struct world) { .rule = rule, .ranks = ranks, .count = count, .steps = steps };
	ck_assert_uint_le(ranks, WORLD_RANKS);
	ck_assert_uint_le(steps, WORLD_STEPS);
	world->own = tr_rule_options_new(rule);
	ck_assert_ptr_nonnull(world->own);
	OWN(world, uint32_t, "group") = 1;
	OWN(world, uint64_t, "period") = 4;
	OWN(world, enum tr_base, "nesterov-base") = TR_BASE_UNSHIFTED;
	OWN(world, uint64_t, "adapt-sample-steps") = UINT64_MAX;
	world->bn = TR_BN_AVERAGE;
	world->rate = (struct tr_rate) { .base = 1.0, .step_count = steps };
}

void world_free(struct world *world)
{
	free(world->own);
	for (uint32_t r = 0; r < WORLD_RANKS; r++) {
		free(world->after[r]);
		free(world->final[r]);
		free(world->states[r]);
	}
}

float world_after(const struct world *world, uint32_t rank, uint64_t step, size_t i)
{
	return world->after[rank][step * world->count + i];
}

float world_noise(uint32_t rank, uint64_t step, size_t i)
{
	struct rng rng = { rng_mix(rank + 1) ^ rng_mix(1000 + step) ^ rng_mix(1000000 + i) };

	return (float)(2.0 * rng_unit(&rng) - 1.0);
}

struct life { /* Of one rank. */
	struct world *world;
	struct tr_rule_context ctx;
	struct tr_optimizer optimizer;
	struct tr_rule_state *rule;
	float statistics[4];
	struct tr_error error;
};

static rubato_status open_life(struct life *life, rubato_comm *comm)
{
	struct world *w = life->world;
	uint32_t rank = rubato_rank(comm);
	size_t size_bytes = w->count * sizeof(float);
	void *parameters, *gradient;

	TR_TRY(rubato_alloc(comm, size_bytes, &parameters));
	TR_TRY(rubato_alloc(comm, size_bytes, &gradient));
	life->ctx = (struct tr_rule_context) {
		.comm = comm,
		.rank = rank,
		.rank_count = w->ranks,
		.vectors = &tr_vectors_host,
		.parameter_count = w->count,
		.parameters = parameters,
		.gradient = gradient,
		.statistics = life->statistics,
		.statistics_count = w->statistics_count,
		.batch = 1,
		.node = w->per_node == 0 ? rank : rank / w->per_node,
		.optimizer = &life->optimizer,
		.rate = &w->rate,
		.own = w->own,
		.bn = w->bn,
		.step_count = w->steps,
		.error = &life->error,
	};
	for (size_t i = 0; i < w->count; i++)
		life->ctx.parameters[i] = w->first;
	TR_TRY(tr_cut_make(&life->ctx.cut, w->count, 0, &life->error));
	TR_TRY(tr_optimizer_open(&life->optimizer, &tr_vectors_host, w->optimizer, w->momentum, 0.0,
				 w->count, &life->error));
	TR_TRY(tr_ledger_open(&life->ctx.ledger, true, rank, w->ranks, &life->error));
	TR_TRY(tr_trace_open(&life->ctx.trace, true, &life->error));
	return tr_rule_open(&life->rule, w->rule, &life->ctx);
}

static rubato_status keep(struct life *life)
{
	struct world *w = life->world;
	struct tr_archive *archive;
	char path[512];

	snprintf(path, sizeof(path), "%s/%u", w->keep_folder, life->ctx.rank);
	if (!w->resume && w->rule->settle != NULL)
		TR_TRY(w->rule->settle(life->rule, w->keep_step));
	TR_TRY(w->resume ? tr_archive_open(&archive, path, &life->error)
			 : tr_archive_create(&archive, path, &life->error));
	TR_TRY(w->rule->keep(life->rule, archive));
	TR_TRY(tr_archive_bytes(archive, "parameters", life->ctx.parameters,
				w->count * sizeof(float), &life->error));
	TR_TRY(tr_archive_bytes(archive, "statistics", life->statistics, sizeof(life->statistics),
				&life->error));
	TR_TRY(tr_optimizer_keep(&life->optimizer, archive, &life->error));
	TR_TRY(tr_archive_finish(archive, &life->error));
	tr_archive_close(archive);
	return RUBATO_OK;
}

static rubato_status take_steps(struct life *life)
{
	struct world *w = life->world;
	uint32_t rank = life->ctx.rank;

	for (uint64_t step = w->resume ? w->keep_step : 0; step < w->steps; step++) {
		if (w->rule->begin != NULL)
			TR_TRY(w->rule->begin(life->rule, step));
		memset(life->ctx.gradient, 0, w->count * sizeof(float));
		if (w->gradient != NULL)
			w->gradient(&life->ctx, step);
		if (w->rule->ready != NULL)
			TR_TRY(w->rule->ready(life->rule, 0));
		TR_TRY(w->rule->step(life->rule, step));
		memcpy(w->after[rank] + step * w->count, life->ctx.parameters,
		       w->count * sizeof(float));
		if (rank == 0)
			w->periods[step] = life->ctx.counts.period;
		if (!w->resume && w->keep_folder != NULL && step + 1 == w->keep_step)
			TR_TRY(keep(life));
	}
	return w->rule->finish == NULL ? RUBATO_OK : w->rule->finish(life->rule, w->steps);
}

static void remember(const struct life *life)
{
	struct world *w = life->world;
	uint32_t rank = life->ctx.rank;

	memcpy(w->final[rank], life->ctx.parameters, w->count * sizeof(float));
	for (uint32_t i = 0; i < life->optimizer.state_count; i++)
		memcpy(w->states[rank] + i * w->count, life->optimizer.states[i],
		       w->count * sizeof(float));
	memcpy(w->statistics[rank], life->statistics, sizeof(life->statistics));
	w->updates[rank] = life->optimizer.updates;
	w->counts[rank] = life->ctx.counts;
}

static rubato_status live(rubato_comm *comm, void *arg)
{
	struct life life = { .world = arg };
	rubato_status err = open_life(&life, comm);

	if (err == RUBATO_OK && life.world->resume)
		err = keep(&life);
	if (err == RUBATO_OK)
		err = take_steps(&life);
	if (err == RUBATO_OK)
		remember(&life);
	else
		fprintf(stderr, "rank %u: %s\n", rubato_rank(comm), life.error.text);
	tr_rule_close(life.world->rule, life.rule);
	tr_ledger_close(life.ctx.ledger);
	tr_trace_close(life.ctx.trace);
	tr_optimizer_close(&life.optimizer);
	(void)rubato_free(comm, life.ctx.gradient);
	(void)rubato_free(comm, life.ctx.parameters);
	return err;
}

void world_run(struct world *world)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	for (uint32_t r = 0; r < world->ranks; r++) {
		world->after[r] = calloc(world->steps * world->count, sizeof(float));
		world->final[r] = calloc(world->count, sizeof(float));
		world->states[r] = calloc(2 * world->count, sizeof(float));
		ck_assert(world->after[r] && world->final[r] && world->states[r]);
	}
	options.rank_count = world->ranks;
	options.ranks_per_node = world->per_node;
	options.seed = 1;
	options.stack_bytes = 1u << 20;
	ck_assert_int_eq(rubato_sim_run(&options, live, world, &result), RUBATO_OK);
	for (uint32_t r = 1; r < world->ranks; r++)
		ck_assert_msg(
			memcmp(world->final[r], world->final[0], world->count * sizeof(float)) == 0,
			"%s: rank %u ends elsewhere", world->rule->name, r);
}
