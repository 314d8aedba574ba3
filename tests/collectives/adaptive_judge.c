/* adaptive_judge.c -- rounds in virtual time; see adaptive_judge.h. */
#include "adaptive_judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/partial/adaptive.h"

#define MS 1000000.0
#define WORK_NS (185 * MS)
#define ROUND_NS 10000000u
#define REGIMES_MAX 64
#define RANKS_MAX 64

const char *const judge_family_names[JUDGE_FAMILIES] = { "even",     "exponential", "pareto",
							 "rotating", "persistent",  "switching" };

struct worker {
	uint64_t finish, duration, duration_told;
	uint32_t step; /* Pieces done. */
	uint32_t seen; /* Rounds collected when it began. */
	bool busy, waits, loaded, over;
};

struct run {
	const struct judge_world *world;
	uint32_t quorum; /* Fixed one, or 0. */
	struct rb_adaptive *rules[2];
	struct worker workers[RANKS_MAX];
	bool contributed[RANKS_MAX];
	uint32_t live, waiting, opened, completed, shared;
	uint64_t now, round_end; /* round_end: 0 if none runs. */
	struct {                 /* For the switching family. */
		uint32_t until, rank;
		enum judge_family family;
	} regimes[REGIMES_MAX];
	uint32_t regime_count;
	double quorums;
	bool alike;
};

static void regimes_draw(struct run *run)
{
	struct rb_rng rng = { run->world->seed ^ 0x5eed };
	uint32_t until = 0;

	run->regime_count = 0;
	while (run->regime_count < REGIMES_MAX) {
		until += 100 + (uint32_t)rb_rng_below(&rng, 201);
		run->regimes[run->regime_count].until = until;
		run->regimes[run->regime_count].family =
			(enum judge_family)rb_rng_below(&rng, JUDGE_SWITCHING);
		run->regimes[run->regime_count++].rank =
			(uint32_t)rb_rng_below(&rng, run->world->rank_count);
	}
}

/* How long step `step` of `rank` takes: the same whatever the quorum. */
static uint64_t duration(const struct run *run, uint32_t rank, uint32_t step)
{
	const struct judge_world *world = run->world;
	struct rb_rng rng = { rb_mix(world->seed * 1000003u + rank) + step * 0x9e3779b97f4a7c15u };
	enum judge_family family = world->family;
	uint32_t n = world->rank_count, slow = (uint32_t)(world->seed % n), i = 0;
	double unit, ns;

	(void)rb_rng_next(&rng);
	ns = WORK_NS * (0.95 + 0.1 * rb_rng_unit(&rng));
	unit = 1 - rb_rng_unit(&rng);
	if (family == JUDGE_SWITCHING) {
		while (i + 1 < run->regime_count && step >= run->regimes[i].until)
			i++;
		family = run->regimes[i].family;
		slow = run->regimes[i].rank;
	}
	if (family == JUDGE_EXPONENTIAL)
		ns += -log(unit) * 150 * MS;
	else if (family == JUDGE_PARETO)
		ns += 50 * MS / pow(unit, 1 / 1.5);
	else if (family == JUDGE_ROTATING && n > 1)
		ns += 350 * MS * ((rank + step) % n) / (n - 1);
	else if (family == JUDGE_PERSISTENT && rank == slow)
		ns *= 3;
	return (uint64_t)ns;
}

static void worker_begin(struct run *run, uint32_t rank)
{
	struct worker *worker = &run->workers[rank];
	bool more = run->world->free_rounds ? run->shared > 0 : worker->step < run->world->steps;

	worker->busy = false;
	worker->seen = run->completed;
	if (!more) {
		worker->over = true;
		run->live--;
		return;
	}
	run->shared -= run->world->free_rounds;
	worker->busy = true;
	worker->duration = duration(run, rank, worker->step);
	worker->finish = run->now + worker->duration;
}

static uint32_t quorum_now(struct run *run)
{
	uint32_t k = run->quorum;

	if (k == 0) {
		k = rb_adaptive_quorum(run->rules[0]);
		run->alike = run->alike && k == rb_adaptive_quorum(run->rules[1]);
	}
	return k < run->live ? k : run->live;
}

/* A round opens: what is there is in it. */
static void round_try(struct run *run)
{
	if (run->round_end != 0 || run->waiting == 0 || run->waiting < quorum_now(run))
		return;
	for (uint32_t r = 0; r < run->world->rank_count; r++)
		if (run->workers[r].busy && run->opened >= run->workers[r].seen + run->world->depth)
			return;
	run->quorums += quorum_now(run);
	for (uint32_t r = 0; r < run->world->rank_count; r++) {
		run->contributed[r] = run->workers[r].loaded;
		run->workers[r].duration_told = run->workers[r].duration;
		run->workers[r].loaded = false;
	}
	run->opened++;
	run->round_end = run->now + ROUND_NS;
}

static void round_over(struct run *run)
{
	uint32_t n = run->world->rank_count;

	run->round_end = 0;
	run->completed++;
	for (uint32_t i = 0; i < 2 && run->quorum == 0; i++) {
		for (uint32_t r = 0; r < n; r++)
			if (run->contributed[r])
				rb_adaptive_add(run->rules[i], r, run->workers[r].duration_told);
		rb_adaptive_round(run->rules[i], run->completed - 1);
	}
	for (uint32_t r = 0; r < n; r++) {
		struct worker *worker = &run->workers[r];

		if (!worker->waits || worker->loaded)
			continue; /* It waits for the next one. */
		worker->waits = false;
		run->waiting--;
		worker_begin(run, r);
	}
}

static void worker_finish(struct run *run, uint32_t rank)
{
	struct worker *worker = &run->workers[rank];
	bool free_rounds = run->world->free_rounds;
	/* A round that opened since the last collect makes it late. */
	bool in_time = free_rounds ? worker->seen == run->opened : worker->step >= run->opened;

	worker->busy = false;
	worker->loaded = true;
	worker->step++;
	if (in_time) {
		worker->waits = true;
		run->waiting++;
	} else {
		worker_begin(run, rank);
	}
}

static void run_all(struct run *run)
{
	uint32_t n = run->world->rank_count;

	for (uint32_t r = 0; r < n; r++)
		worker_begin(run, r);
	for (;;) {
		uint32_t next = n;

		for (uint32_t r = 0; r < n; r++)
			if (run->workers[r].busy &&
			    (next == n || run->workers[r].finish < run->workers[next].finish))
				next = r;
		if (run->round_end != 0 &&
		    (next == n || run->round_end <= run->workers[next].finish)) {
			run->now = run->round_end;
			round_over(run);
		} else if (next < n) {
			run->now = run->workers[next].finish;
			worker_finish(run, next);
		} else {
			break;
		}
		round_try(run);
	}
}

struct judge_result judge_run(const struct judge_world *world, uint32_t quorum)
{
	struct run *run = calloc(1, sizeof(*run));
	struct judge_result result = { 0 };

	if (run == NULL || world->rank_count > RANKS_MAX)
		abort();
	run->world = world;
	run->quorum = quorum;
	run->live = world->rank_count;
	run->shared = world->steps * world->rank_count;
	run->alike = true;
	regimes_draw(run);
	for (uint32_t i = 0; i < 2; i++) {
		run->rules[i] = malloc(rb_adaptive_bytes(world->rank_count));
		if (run->rules[i] == NULL)
			abort();
		rb_adaptive_init(run->rules[i], world->rank_count, world->free_rounds, world->depth,
				 1);
	}
	run_all(run);
	result.time_ns = run->now;
	result.rounds = run->completed;
	result.quorum = run->quorums / run->completed;
	result.alike = run->alike;
	for (uint32_t i = 0; i < 2; i++)
		free(run->rules[i]);
	free(run);
	return result;
}

struct judge_verdict judge(const struct judge_world *world)
{
	struct judge_result adaptive = judge_run(world, 0);
	uint64_t least = UINT64_MAX, all = 0;
	struct judge_verdict verdict = { .quorum = adaptive.quorum };

	for (uint32_t k = 1; k <= world->rank_count; k++) {
		all = judge_run(world, k).time_ns;
		if (all <= least) {
			least = all;
			verdict.best = k;
		}
	}
	verdict.ratio = (double)adaptive.time_ns / (double)least;
	verdict.all = (double)all / (double)least;
	return verdict;
}
