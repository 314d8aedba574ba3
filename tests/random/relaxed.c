/*
 * relaxed.c -- lagged and partial allreduces. What they give is known exactly: a lagged result is
 * the sum of what all had added so many begins ago; a partial one's rounds say which contributions
 * they hold, no rank's is left out or comes twice, and the values are those.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define ELEMENTS 3000u
#define STEPS 6u

static void values_check(const struct place *place, const char *name, const uint8_t *got,
			 const uint8_t *expected, uint64_t elements, size_t element)
{
	uint64_t have = 0, want = 0;

	for (uint64_t i = 0; i < elements; i++) {
		if (memcmp(got + i * element, expected + i * element, element) == 0)
			continue;
		memcpy(&have, got + i * element, element);
		memcpy(&want, expected + i * element, element);
		fail(place, "%s: index %" PRIu64 ": expected 0x%" PRIx64 ", got 0x%" PRIx64, name,
		     i, want, have);
	}
}

/* ---- Lagged ---- */

struct lag {
	struct call call; /* Whose values: each begin has its key. */
	rubato_lagged *lagged;
	uint64_t keys[STEPS + 1], weights[STEPS];
	uint32_t seen;
	uint8_t *values, *expected;
};

static uint64_t weight_of(uint64_t key, uint32_t rank)
{
	return mixed(key, rank) % 5;
}

/* The result of begin number lag->seen. */
static void lag_see(struct place *place, struct lag *lag, const void *result, uint64_t weight)
{
	uint64_t all = 0;

	lag->call.key = lag->keys[lag->seen];
	for (uint32_t r = 0; r < place->size; r++)
		all += weight_of(lag->call.key, r);
	if (weight != all)
		fail(place, "weight of begin %u: expected %" PRIu64 ", got %" PRIu64, lag->seen,
		     all, weight);
	values_expected(&lag->call, place->size, 0, lag->call.count, lag->expected);
	values_check(place, "lagged", result, lag->expected, lag->call.count,
		     rubato_type_bytes(lag->call.type));
	lag->seen++;
}

static void lag_begin(struct place *place, struct lag *lag, uint32_t begin)
{
	const uint64_t key = lag->keys[begin];
	size_t element = rubato_type_bytes(lag->call.type), bytes = lag->call.count * element;
	void *buffer;

	lag->call.key = key;
	values_reduced(&lag->call, place->rank * RANKS_MAX, 0, lag->call.count, lag->values);
	if (one_in(&place->own, 2)) {
		must(place, rubato_lagged_acquire(lag->lagged, &buffer));
		memset(lag->expected, 0, bytes);
		values_check(place, "acquired", buffer, lag->expected, lag->call.count, element);
		memcpy(buffer, lag->values, bytes);
		must(place,
		     rubato_lagged_accumulate(lag->lagged, NULL, weight_of(key, place->rank)));
	} else {
		must(place, rubato_lagged_accumulate(lag->lagged, lag->values,
						     weight_of(key, place->rank)));
	}
	must(place, rubato_lagged_begin(lag->lagged));
}

void step_lagged(struct place *place)
{
	struct draws *draws = &place->common;
	struct lag lag = { .call = { .op = RUBATO_SUM } };
	uint32_t late = 1 + below(draws, 3), begins = 1 + below(draws, STEPS);
	const void *result;
	rubato_status status;
	uint64_t weight;

	lag.call.type = one_in(draws, 2) ? RUBATO_FLOAT32 : RUBATO_FLOAT64;
	lag.call.count = 1 + below(draws, ELEMENTS);
	lag.values = calloc(ELEMENTS, 8);
	lag.expected = calloc(ELEMENTS, 8);
	if (lag.values == NULL || lag.expected == NULL)
		fail(place, "no memory");
	doing(place, "lagged count %" PRIu64 " lag %u begins %u", lag.call.count, late, begins);
	status = rubato_lagged_create(place->comm, lag.call.count, lag.call.type, RUBATO_SUM, late,
				      &lag.lagged);
	if (unsupported(place, ALLREDUCE, status))
		status = rubato_lagged_create(place->comm, lag.call.count, lag.call.type,
					      RUBATO_SUM, late, &lag.lagged);
	must(place, status);
	for (uint32_t begin = 0; begin < begins; begin++) {
		lag.keys[begin] = next_key(place);
		lag_begin(place, &lag, begin);
		must(place,
		     rubato_lagged_collect(lag.lagged, &result, &weight, RUBATO_TIMEOUT_DEFAULT));
		if ((result != NULL) != (begin >= late))
			fail(place, "begin %u: there is %s result", begin,
			     result == NULL ? "no" : "a");
		if (result != NULL)
			lag_see(place, &lag, result, weight);
		if (one_in(&place->own, 4))
			nap(place, below(&place->own, 500));
	}
	while (must(place,
		    rubato_lagged_flush(lag.lagged, &result, &weight, RUBATO_TIMEOUT_DEFAULT)),
	       result != NULL)
		lag_see(place, &lag, result, weight);
	if (lag.seen != begins)
		fail(place, "results: expected %u, got %u", begins, lag.seen);
	must(place, rubato_lagged_free(lag.lagged));
	free(lag.values);
	free(lag.expected);
	count(place, LAGGED);
}

/* ---- Partial ---- */

struct rounds {
	struct call call;
	rubato_partial *partial;
	uint64_t key;
	uint64_t next[RANKS_MAX]; /* The contribution of each rank that comes next. */
	struct draws naps;        /* How many there are, time says. */
	uint8_t *values, *expected;
};

/* Contribution `step` of a rank. */
static void contribution(struct rounds *rounds, uint32_t rank, uint64_t step, uint8_t *out)
{
	rounds->call.key = mixed(rounds->key, step);
	values_reduced(&rounds->call, rank * RANKS_MAX, 0, rounds->call.count, out);
}

static void combine(const struct rounds *rounds, uint8_t *into, const uint8_t *more)
{
	for (uint64_t i = 0; i < rounds->call.count; i++) {
		int64_t a, b;

		memcpy(&a, into + 8 * i, 8);
		memcpy(&b, more + 8 * i, 8);
		if (rounds->call.op == RUBATO_SUM)
			a = (int64_t)((uint64_t)a + (uint64_t)b);
		else if ((rounds->call.op == RUBATO_MAX) == (b > a))
			a = b;
		memcpy(into + 8 * i, &a, 8);
	}
}

/* What the record says is in it is, next in its rank's order. */
static void round_check(struct place *place, struct rounds *rounds, const rubato_round *round,
			const void *result)
{
	bool any = false;

	memset(rounds->expected, 0, 8 * rounds->call.count);
	for (uint32_t r = 0; r < place->size; r++) {
		const rubato_contribution *c = &round->ranks[r];

		if (c->count == 0)
			continue;
		if (c->first_step != rounds->next[r] ||
		    c->last_step != c->first_step + c->count - 1)
			fail(place,
			     "round %" PRIu64 " of rank %u: expected from %" PRIu64 ", got %" PRIu64
			     " to %" PRIu64 ", %u",
			     round->round, r, rounds->next[r], c->first_step, c->last_step,
			     c->count);
		rounds->next[r] += c->count;
		for (uint64_t step = c->first_step; step <= c->last_step && c->member; step++) {
			contribution(rounds, r, step, rounds->values);
			if (any)
				combine(rounds, rounds->expected, rounds->values);
			else
				memcpy(rounds->expected, rounds->values, 8 * rounds->call.count);
			any = true;
		}
	}
	if (any)
		values_check(place, "round", result, rounds->expected, rounds->call.count, 8);
}

/* Until there is none. */
static void collect_all(struct place *place, struct rounds *rounds)
{
	rubato_round round = { .size_bytes = sizeof(round) };
	const void *result;

	for (;;) {
		must(place, rubato_partial_collect_view(rounds->partial, &result, &round,
							RUBATO_TIMEOUT_DEFAULT));
		if (result == NULL)
			return;
		if (one_in(&rounds->naps, 8))
			nap_unseen(below(&rounds->naps, 300));
		round_check(place, rounds, &round, result);
		must(place, rubato_partial_release(rounds->partial));
	}
}

static void options_draw(struct place *place, rubato_partial_options *options)
{
	struct draws *draws = &place->common;

	*options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	options->policy = (rubato_policy)below(draws, RUBATO_POLICY_COUNT);
	options->rounds = (rubato_rounds)below(draws, 2);
	options->seed = draw(draws);
	options->deadline_ns = 1 + below(draws, 1000000);
	options->depth = below(draws, 3) == 0 ? 2 : 0;
	if (options->policy == RUBATO_POLICY_QUORUM || options->policy == RUBATO_POLICY_ADAPTIVE)
		options->quorum = 1 + below(draws, place->size);
	if (options->policy == RUBATO_POLICY_WAGMA && one_in(draws, 2))
		options->group = 1;
	if (options->policy != RUBATO_POLICY_DEADLINE)
		options->deadline_ns = 0;
	place->done[DONE_POLICY(options->policy)]++;
}

static void partial_run(struct place *place, struct rounds *rounds, uint32_t steps)
{
	void *buffer;

	for (uint64_t step = 0; step < steps; step++) {
		if (one_in(&place->own, 3))
			nap(place, below(&place->own, 1000));
		contribution(rounds, place->rank, step, rounds->values);
		if (one_in(&place->own, 2)) {
			must(place,
			     rubato_partial_contribute(rounds->partial, rounds->values, step, 1));
		} else {
			must(place, rubato_partial_acquire(rounds->partial, &buffer));
			memcpy(buffer, rounds->values, 8 * rounds->call.count);
			must(place, rubato_partial_commit(rounds->partial, step, 1));
		}
		collect_all(place, rounds);
	}
	must(place, rubato_partial_drain(rounds->partial));
	collect_all(place, rounds);
	for (uint32_t r = 0; r < place->size; r++)
		if (rounds->next[r] != steps)
			fail(place, "contributions of rank %u: expected %u, got %" PRIu64, r, steps,
			     rounds->next[r]);
}

void step_partial(struct place *place)
{
	static const rubato_operator operators[] = { RUBATO_SUM, RUBATO_MAX, RUBATO_MIN };
	rubato_partial_options options;
	struct rounds rounds = { .call = { .type = RUBATO_INT64 } };
	uint32_t steps = 1 + below(&place->common, STEPS);
	rubato_status status;
	char policy[32];

	options_draw(place, &options);
	rounds.call.op = operators[below(&place->common, 3)];
	rounds.call.count = 1 + below(&place->common, ELEMENTS);
	rounds.key = next_key(place);
	rounds.naps.state = draw(&place->own);
	rounds.values = calloc(ELEMENTS, 8);
	rounds.expected = calloc(ELEMENTS, 8);
	if (rounds.values == NULL || rounds.expected == NULL)
		fail(place, "no memory");
	doing(place, "partial %s %s %s count %" PRIu64 " steps %u",
	      rubato_policy_format(&options, policy, sizeof(policy)),
	      options.rounds == RUBATO_ROUNDS_FREE ? "free" : "aligned",
	      rubato_operator_name(rounds.call.op), rounds.call.count, steps);
	status = rubato_partial_create(place->comm, rounds.call.count, RUBATO_INT64, rounds.call.op,
				       &options, &rounds.partial);
	if (unsupported(place, ALLREDUCE, status))
		status = rubato_partial_create(place->comm, rounds.call.count, RUBATO_INT64,
					       rounds.call.op, &options, &rounds.partial);
	must(place, status);
	partial_run(place, &rounds, steps);
	must(place, rubato_partial_free(rounds.partial));
	free(rounds.values);
	free(rounds.expected);
	count(place, PARTIAL);
}
