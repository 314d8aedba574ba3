/*
 * case_swap.c -- commits against the swap: two applications of a partial allreduce lease, commit,
 * collect and release, while their progress threads run the rounds, on shared memory.
 *
 * Contributions and results are payload, looked at for races: an application writes its lease in
 * two halves, a round reads both ranks' contributions in place and writes both ranks' results.
 * Every contribution is a bit of its own, so that a sum tells what is in it, and how often.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "runtime/call.h"
#include "runtime/relaxed/partial.h"
#include "tests/interleavings/cases.h"
#include "tests/interleavings/ranks.h"

#define ELEMENTS 16u /* Two blocks, each a line of its own. */
#define HALF (ELEMENTS / 2)
#define STEPS 3u /* Of rank 0. */
#define STEPS_MAX 5u

struct swap_rank {
	uint32_t node_words[RB_NODES_WORDS(2)];
	struct rubato_comm comm;
	struct rubato_partial *partial;
	uint64_t total; /* Of what was collected. */
	struct swap *world;
};

struct swap {
	struct ranks *ranks;
	_Atomic uint32_t finished;
	struct swap_rank each[2];
};

/* ---- Instead of the library's: by the meson.build, under these names ---- */

/* At creation, off the record: both ranks' slabs are at the same place of their heaps. */
rubato_status rb_call_gather(rubato_comm *comm, enum rb_kind named, const void *words, void *all,
			     uint64_t count, uint64_t *number)
{
	size_t bytes = (size_t)(count * sizeof(uint64_t));

	(void)named;
	(void)number;
	for (uint32_t r = 0; r < comm->engine.rank_count; r++)
		memcpy((uint8_t *)all + r * bytes, words, bytes);
	return RUBATO_OK;
}

/* So that whatever can happen meanwhile does. */
static void dawdle(void)
{
	for (uint32_t i = 4 * explore_choose(4); i > 0; i--)
		explore_pause();
}

/* One that is seen to read and write, and takes its time. */
static void sum(const struct rb_reduce *reduce)
{
	uint64_t to[ELEMENTS] = { 0 }, from[ELEMENTS];
	size_t bytes = (size_t)reduce->count * sizeof(*to);

	explore_expect(reduce->count <= ELEMENTS && reduce->op == RUBATO_SUM, "another reduction");
	for (uint32_t i = 0; i < reduce->from_count; i++) {
		memcpy(from, reduce->from[i], bytes);
		for (uint32_t k = 0; k < reduce->count; k++)
			to[k] += from[k];
	}
	dawdle();
	memcpy(reduce->to, to, bytes);
}

rb_reduce_fn rb_reduce_best(void)
{
	return sum;
}

/* ---- An application ---- */

static uint64_t steps_of(uint32_t rank)
{
	return rank == 0 ? STEPS : STEPS_MAX;
}

static uint64_t bit_of(uint32_t rank, uint64_t step)
{
	return UINT64_C(1) << (8 * rank + step);
}

static void contribute(struct swap_rank *r, uint64_t step)
{
	uint64_t bits[HALF];
	void *lease;

	for (uint32_t i = 0; i < HALF; i++)
		bits[i] = bit_of(r->comm.engine.rank, step);
	explore_expect(rubato_partial_acquire(r->partial, &lease) == RUBATO_OK, "acquire");
	memcpy(lease, bits, sizeof(bits));
	dawdle();
	memcpy((uint64_t *)lease + HALF, bits, sizeof(bits));
	explore_expect(rubato_partial_commit(r->partial, step, 1) == RUBATO_OK, "commit %llu",
		       (unsigned long long)step);
}

/* What its records say is in a round. */
static uint64_t expected_of(const rubato_round *round)
{
	uint64_t bits = 0;

	for (uint32_t rank = 0; rank < 2; rank++) {
		const rubato_contribution *c = &round->ranks[rank];

		for (uint64_t step = c->first_step; c->count > 0 && step <= c->last_step; step++)
			bits |= bit_of(rank, step);
	}
	return bits;
}

static void result_check(const uint64_t *result, uint64_t expected, const rubato_round *round)
{
	uint64_t seen[ELEMENTS];

	memcpy(seen, result, sizeof(seen));
	for (uint32_t i = 0; i < ELEMENTS; i++)
		explore_expect(seen[i] == expected, "round %llu: element %u is %llx, not %llx",
			       (unsigned long long)round->round, i, (unsigned long long)seen[i],
			       (unsigned long long)expected);
}

/* False: there was none. */
static bool collect(struct swap_rank *r)
{
	rubato_round round = { .size_bytes = sizeof(round) };
	const void *result;
	uint64_t expected;

	explore_expect(rubato_partial_collect_view(r->partial, &result, &round,
						   UINT64_C(60000000000)) == RUBATO_OK,
		       "collect");
	if (result == NULL)
		return false;
	expected = expected_of(&round);
	result_check(result, expected, &round);
	dawdle();
	result_check(result, expected, &round);
	explore_expect(expected == expected_of(&round), "records of a lent round change");
	explore_expect((r->total & expected) == 0, "collected twice: %llx and %llx",
		       (unsigned long long)r->total, (unsigned long long)expected);
	r->total |= expected;
	explore_expect(rubato_partial_release(r->partial) == RUBATO_OK, "release");
	return true;
}

/* Both stay until both need nothing more. */
static void part(struct swap *w)
{
	(void)atomic_fetch_add(&w->finished, 1);
	rb_futex_wake(&w->finished, 1);
	for (uint32_t seen = 1; seen < 2; seen = atomic_load(&w->finished))
		(void)rb_futex_wait(&w->finished, 1, UINT64_MAX);
}

static void *swap_main(void *arg)
{
	struct swap_rank *r = arg;
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	uint64_t steps = steps_of(r->comm.engine.rank);

	explore_expect(rb_engine_background(&r->comm.engine, true) == RUBATO_OK, "thread");
	for (uint64_t step = 0; step < steps; step++) {
		contribute(r, step);
		if (explore_choose(2) == 1)
			(void)collect(r);
	}
	explore_expect(rubato_partial_drain(r->partial) == RUBATO_OK, "drain");
	while (collect(r))
		;
	explore_expect(rubato_partial_get_stats(r->partial, &stats) == RUBATO_OK, "stats");
	explore_expect(stats.committed == steps && stats.delivered == steps,
		       "%llu of %llu contributions are delivered",
		       (unsigned long long)stats.delivered, (unsigned long long)stats.committed);
	part(r->world);
	rb_engine_stop(&r->comm.engine);
	return NULL;
}

/* ---- The world ---- */

static void swap_run(struct swap *w)
{
	struct rb_thread other;

	for (uint32_t i = 0; i < 2; i++) {
		const struct rb_memory *slab = w->each[i].partial->buffers.slab;

		explore_shared(slab->base, slab->size_bytes);
	}
	explore_expect(rb_thread_start(&other, swap_main, &w->each[1]) == RUBATO_OK, "thread");
	(void)swap_main(&w->each[0]);
	rb_thread_join(&other);
}

static void swap_body(void *world)
{
	struct swap *w = world;
	uint64_t all = 0;

	swap_run(w);
	for (uint32_t rank = 0; rank < 2; rank++)
		for (uint64_t step = 0; step < steps_of(rank); step++)
			all |= bit_of(rank, step);
	for (uint32_t i = 0; i < 2; i++)
		explore_expect(w->each[i].total == all, "rank %u collected %llx in all, not %llx",
			       i, (unsigned long long)w->each[i].total, (unsigned long long)all);
}

static void swap_latest_body(void *world)
{
	swap_run(world); /* Rounds may be skipped: sums of those that are not are right. */
}

static void *swap_open(void)
{
	struct swap *w = calloc(1, sizeof(*w));

	if (w == NULL)
		abort();
	w->ranks = ranks_open();
	return w;
}

static int algorithm_index(const char *name)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (rb_algorithms[i].kind == RB_KIND_ALLREDUCE &&
		    strcmp(rb_algorithms[i].name, name) == 0)
			return (int)i;
	abort();
}

static void rank_begin(struct swap *w, uint32_t rank, const rubato_partial_options *options)
{
	struct swap_rank *r = &w->each[rank];
	struct rb_engine *engine = &r->comm.engine;
	static const uint32_t one_node[2] = { 0, 0 };

	memset(r, 0, sizeof(*r));
	r->world = w;
	r->comm.memory.engine = engine;
	if (rb_engine_init(engine, rank, 2) != RUBATO_OK)
		abort();
	engine->endpoints[0] = w->ranks->sides[rank].ep;
	engine->endpoint_count = 1;
	engine->waiting = (struct rb_waiting) { .spin_ns = 150, .yield_ns = 0 };
	r->comm.timeout_ns = UINT64_C(60000000000);
	rb_nodes_make(&r->comm.choices.nodes, r->node_words, one_node, 2);
	r->comm.choices.facts = (struct rb_choice_facts) { .rank_count = 2,
							   .nodes = &r->comm.choices.nodes,
							   .mapped = true,
							   .cores = 2,
							   .host_ranks = 2,
							   .chunk_bytes_max = 1 << 18 };
	for (uint32_t i = 0; i < RB_KIND_COUNT; i++)
		r->comm.choices.forced[i] = -1;
	r->comm.choices.forced[RB_KIND_ALLREDUCE] = algorithm_index("direct");
	if (rubato_partial_create(&r->comm, ELEMENTS, RUBATO_INT64, RUBATO_SUM, options,
				  &r->partial) != RUBATO_OK)
		abort();
}

static void world_begin(void *world, const rubato_partial_options *options)
{
	struct swap *w = world;

	ranks_reset(w->ranks, UINT32_MAX - 1);
	atomic_store(&w->finished, 0);
	for (uint32_t i = 0; i < 2; i++)
		rank_begin(w, i, options);
}

static void swap_begin(void *world)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	options.depth = 3; /* As many results as there are: nothing is to spare. */
	world_begin(world, &options);
}

static void swap_latest_begin(void *world)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	options.collection = RUBATO_COLLECT_LATEST;
	options.rounds = RUBATO_ROUNDS_FREE;
	world_begin(world, &options);
}

static void swap_end(void *world)
{
	struct swap *w = world;

	for (uint32_t i = 0; i < 2; i++) {
		struct rubato_partial *p = w->each[i].partial;

		/* A failed execution ended in the middle of them. */
		p->exchange.run.advancing = p->reduction.run.advancing = p->driver.stepping = false;
		w->each[i].comm.relaxed->end(&w->each[i].comm);
	}
	ranks_end(w->ranks);
	for (uint32_t i = 0; i < 2; i++) {
		while (w->each[i].comm.memory.first != NULL)
			rb_memory_drop(&w->each[i].comm.memory, w->each[i].comm.memory.first);
		rb_engine_fini(&w->each[i].comm.engine);
	}
}

static void swap_close(void *world)
{
	ranks_close(((struct swap *)world)->ranks);
	free(world);
}

const struct explore_case case_swap = {
	.name = "swap",
	.open = swap_open,
	.begin = swap_begin,
	.body = swap_body,
	.end = swap_end,
	.close = swap_close,
	.points_max = 40000,
	.fewer = 5,
};

const struct explore_case case_swap_latest = {
	.name = "swap-latest",
	.open = swap_open,
	.begin = swap_latest_begin,
	.body = swap_latest_body,
	.end = swap_end,
	.close = swap_close,
	.points_max = 40000,
	.fewer = 5,
};
