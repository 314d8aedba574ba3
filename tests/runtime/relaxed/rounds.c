/* rounds.c -- see rounds.h. */
#include "tests/runtime/relaxed/rounds.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/runtime/exercise.h"

void rounds_init(struct rounds *w)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	pthread_mutexattr_t shared;

	memset(w, 0, sizeof(*w));
	(void)pthread_mutexattr_init(&shared);
	(void)pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutex_init(&w->lock, &shared);
	(void)pthread_mutexattr_destroy(&shared);
	w->options = options;
	w->count = 100;
	w->steps = 20;
	w->slow_rank = UINT32_MAX;
	w->eras = 1;
}

void rounds_wrong(struct rounds *w, const char *format, ...)
{
	va_list args;

	(void)pthread_mutex_lock(&w->lock);
	if (w->wrong++ == 0) {
		va_start(args, format);
		(void)vsnprintf(w->first, sizeof(w->first), format, args);
		va_end(args);
	}
	(void)pthread_mutex_unlock(&w->lock);
}

#define VALUES_MOST 101u

/* Small enough for exact sums in float32, too; coded, in bfloat16 (below 257), all of them. */
static uint64_t values_most(const struct rounds *w)
{
	return w->options.wire == RUBATO_WIRE_SAME ? VALUES_MOST : 3;
}

/* After so many elements they come again. */
static int64_t value_of(const struct rounds *w, uint32_t rank, uint64_t step, uint64_t i)
{
	return (int64_t)((rank * 31 + step * 7 + i * 3) % values_most(w)) + 1;
}

static void write_contribution(const struct rounds *w, void *buffer, uint32_t rank, uint64_t step)
{
	int64_t values[VALUES_MOST];
	uint64_t most = values_most(w);

	for (uint64_t i = 0; i < most; i++)
		values[i] = value_of(w, rank, step, i);
	for (uint64_t i = 0; i < w->count; i++) {
		if (w->floats)
			((float *)buffer)[i] = (float)values[i % most];
		else
			((int64_t *)buffer)[i] = values[i % most];
	}
}

static uint64_t delay_of(const struct rounds *w, uint32_t rank, uint32_t n, uint64_t step)
{
	uint64_t at = w->rotating ? (rank + step) % n : rank;

	if (w->slow_rank != UINT32_MAX)
		return rank == w->slow_rank ? w->delay_ns : 0;
	return n > 1 ? w->delay_ns * at / (n - 1) : 0;
}

/* The sum that a round's own account of itself gives. Accumulated numbers are consecutive. */
static int64_t expected(const struct rounds *w, const rubato_round *round, uint32_t n, uint64_t i)
{
	int64_t sum = 0;

	for (uint32_t r = 0; r < n; r++) {
		const rubato_contribution *c = &round->ranks[r];

		for (uint32_t k = 0; c->member && k < c->count; k++)
			sum += value_of(w, r, c->last_step - k, i);
	}
	return sum;
}

/* Whether that is what `sum` may have become. int8: no rounding of up to `roundings` loses more
 * than half a step of the largest value, that of all together. */
static bool average_right(const struct rounds *w, float got, int64_t sum, float factor,
			  uint32_t roundings, int64_t largest)
{
	float average = (float)sum * factor;
	float bound = (float)roundings * (float)largest * factor / 250.0f;

	if (w->options.wire == RUBATO_WIRE_BFLOAT16)
		average = rubato_bfloat16_to_float32(rubato_float32_to_bfloat16(average));
	if (w->options.wire == RUBATO_WIRE_INT8)
		return got >= average - bound && got <= average + bound;
	return got == average;
}

static void result_check(struct rounds *w, uint32_t me, uint32_t n, const void *result,
			 const rubato_round *round)
{
	float factor = 1.0f / (float)round->divisor;
	uint32_t contributions = 0;
	int64_t sums[VALUES_MOST];
	uint64_t most = values_most(w);

	for (uint32_t r = 0; r < n; r++)
		contributions += round->ranks[r].member ? round->ranks[r].count : 0;
	for (uint64_t i = 0; i < most; i++)
		sums[i] = expected(w, round, n, i);
	for (uint64_t i = 0; i < w->count; i++) {
		int64_t sum = sums[i % most];

		if (w->floats ? !average_right(w, ((const float *)result)[i], sum, factor,
					       2 * contributions + 1, 3 * contributions)
			      : ((const int64_t *)result)[i] != sum) {
			rounds_wrong(w, "rank %u, round %llu, element %llu: not %lld", me,
				     (unsigned long long)round->round, (unsigned long long)i,
				     (long long)sum);
			return;
		}
	}
}

static void facts_check(struct rounds *w, uint32_t n, const rubato_round *round)
{
	uint32_t contributors = 0, fresh = 0;
	uint64_t weight = 0;

	for (uint32_t r = 0; r < n; r++) {
		const rubato_contribution *c = &round->ranks[r];

		contributors += c->member && c->count > 0;
		fresh += c->member && c->fresh;
		weight += c->member ? c->weight : 0;
		if (c->count > 0 && w->options.late == RUBATO_LATE_ACCUMULATE &&
		    c->last_step - c->first_step + 1 != c->count)
			rounds_wrong(w, "round %llu: rank %u's numbers have gaps",
				     (unsigned long long)round->round, r);
	}
	if (contributors != round->contributors || fresh != round->fresh || weight != round->weight)
		rounds_wrong(w, "round %llu: its numbers do not add up",
			     (unsigned long long)round->round);
}

/* Whether somebody has collected each of these rounds; the last one is being looked at. */
static bool all_seen(const struct rounds *w, uint64_t first, uint64_t last)
{
	for (uint64_t round = first; round < last; round++)
		if (w->seen[round % ROUNDS_MAX].hash == 0)
			return false;
	return true;
}

/* While no rank has drained: the policy's promise, the bounds on absence and on how far apart. */
static void bounds_check(struct rounds *w, uint32_t me, uint32_t n, const rubato_round *round)
{
	const rubato_partial_options *o = &w->options;
	uint32_t depth = o->depth > 0 ? o->depth : 8,
		 quorum = o->quorum > 0 ? o->quorum : (n + 1) / 2;

	for (uint32_t r = 0; r < n; r++) {
		if (o->collection == RUBATO_COLLECT_EACH &&
		    w->collected[r] + depth <= round->round && !w->leaving)
			rounds_wrong(w, "rank %u is at round %llu, rank %u collects %llu", r,
				     (unsigned long long)w->collected[r], me,
				     (unsigned long long)round->round);
		if (round->ranks[r].count > 0 && w->contributed[r] < round->round + 1)
			w->contributed[r] = round->round + 1;
		if (w->finished == 0 && o->max_absence > 0 &&
		    round->round + 1 > w->contributed[r] + o->max_absence &&
		    all_seen(w, w->contributed[r], round->round))
			rounds_wrong(w, "rank %u has been left out since round %llu, now %llu", r,
				     (unsigned long long)w->contributed[r],
				     (unsigned long long)round->round);
	}
	if (o->policy == RUBATO_POLICY_QUORUM && w->finished == 0 && round->fresh < quorum &&
	    o->members == RUBATO_MEMBERS_RANKS)
		rounds_wrong(w, "round %llu: %u fresh of %u", (unsigned long long)round->round,
			     round->fresh, quorum);
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (; size > 0; at += 8, size -= size < 8 ? size : 8) {
		uint64_t word = 0;

		memcpy(&word, at, size < 8 ? size : 8);
		hash = rb_mix(hash + word + 1);
	}
	return hash;
}

static void agree(struct rounds *w, uint32_t me, uint32_t n, const void *result,
		  const rubato_round *round)
{
	uint64_t hash = hash_bytes(1, result, w->count * (w->floats ? 4 : 8));
	struct rounds_seen *seen = &w->seen[round->round % ROUNDS_MAX];
	bool equal;

	hash = hash_bytes(hash, &round->divisor, sizeof(round->divisor));
	hash = hash_bytes(hash, round->ranks, n * sizeof(*round->ranks));
	hash = hash_bytes(hash, &round->staleness_max, sizeof(round->staleness_max));
	hash = hash_bytes(hash, &round->discarded, sizeof(round->discarded));
	(void)pthread_mutex_lock(&w->lock);
	if (seen->hash == 0)
		*seen = (struct rounds_seen) { hash, round->weight, round->contributors,
					       round->fresh };
	equal = seen->hash == hash;
	(void)pthread_mutex_unlock(&w->lock);
	if (!equal && w->options.policy != RUBATO_POLICY_WAGMA)
		rounds_wrong(w, "rank %u sees another round %llu", me,
			     (unsigned long long)round->round);
}

/* ---- Vectors ---- */

static struct vectors { /* Of a rank, where they are not lent. */
	void *host, *there;
} vectors[ROUNDS_RANKS_MAX];

static size_t vector_bytes(const struct rounds *w)
{
	return w->count * (w->floats ? 4 : 8);
}

static rubato_status vectors_make(const struct rounds *w, rubato_comm *comm)
{
	struct vectors *mine = &vectors[rubato_rank(comm)];

	if (w->memory == NULL)
		return RUBATO_OK;
	mine->host = malloc(vector_bytes(w));
	return mine->host != NULL ? w->memory->alloc(comm, vector_bytes(w), false, &mine->there)
				  : RUBATO_ERR_MEMORY;
}

static rubato_status vectors_free(const struct rounds *w, rubato_comm *comm)
{
	struct vectors *mine = &vectors[rubato_rank(comm)];

	if (w->memory == NULL)
		return RUBATO_OK;
	free(mine->host);
	return w->memory->free(comm, mine->there);
}

static rubato_status contribute(struct rounds *w, rubato_comm *comm, rubato_partial *p,
				uint64_t step)
{
	uint32_t me = rubato_rank(comm);
	struct vectors *mine = &vectors[me];
	void *buffer;

	if (w->memory == NULL) {
		RB_TRY(rubato_partial_acquire(p, &buffer));
		write_contribution(w, buffer, me, step);
		return rubato_partial_commit(p, step, 1 + me);
	}
	write_contribution(w, mine->host, me, step);
	if (w->there && step % 3 == 1) {
		RB_TRY(rubato_partial_acquire(p, &buffer));
		w->memory->copy(comm, buffer, mine->host, vector_bytes(w));
		return rubato_partial_commit(p, step, 1 + me);
	}
	w->memory->copy(comm, mine->there, mine->host, vector_bytes(w));
	RB_TRY(rubato_partial_contribute(p, w->there && step % 3 == 2 ? mine->host : mine->there,
					 step, 1 + me));
	/* It is ours again: whoever still reads it reads something else. */
	memset(mine->host, 0x5a, vector_bytes(w));
	w->memory->copy(comm, mine->there, mine->host, vector_bytes(w));
	return RUBATO_OK;
}

static rubato_status result_take(struct rounds *w, rubato_comm *comm, rubato_partial *p,
				 const void **result, rubato_round *round)
{
	struct vectors *mine = &vectors[rubato_rank(comm)];
	bool some = false;

	if (w->memory == NULL)
		return rubato_partial_collect_view(p, result, round, 0);
	if (w->there && w->collected[rubato_rank(comm)] % 2 == 0) {
		RB_TRY(rubato_partial_collect_view(p, result, round, 0));
		if (*result == NULL)
			return RUBATO_OK;
		w->memory->copy(comm, mine->host, *result, vector_bytes(w));
		*result = mine->host;
		return rubato_partial_release(p);
	}
	RB_TRY(rubato_partial_collect(p, mine->there, &some, round, 0));
	if (some)
		w->memory->copy(comm, mine->host, mine->there, vector_bytes(w));
	*result = some ? mine->host : NULL;
	return RUBATO_OK;
}

/* One result, if there is one: *more. */
static rubato_status collect_one(struct rounds *w, rubato_comm *comm, rubato_partial *p, bool *more)
{
	rubato_round round = { .size_bytes = sizeof(round) };
	uint32_t me = rubato_rank(comm), n = rubato_size(comm);
	const void *result = NULL;
	uint64_t begin_ns = rubato_now(comm);
	rubato_status err = result_take(w, comm, p, &result, &round);

	w->in_calls_ns[me] += rubato_now(comm) - begin_ns;
	*more = false;
	if (err != RUBATO_OK || result == NULL)
		return err;
	if (w->options.collection == RUBATO_COLLECT_EACH && round.round != w->collected[me])
		rounds_wrong(w, "rank %u: round %llu after %llu others", me,
			     (unsigned long long)round.round, (unsigned long long)w->collected[me]);
	w->collected[me]++;
	w->delivered[me] += round.ranks[me].count;
	result_check(w, me, n, result, &round);
	facts_check(w, n, &round);
	agree(w, me, n, result, &round);
	if (w->simulated)
		bounds_check(w, me, n, &round);
	*more = true;
	return w->memory != NULL ? RUBATO_OK : rubato_partial_release(p);
}

static rubato_status collect_all(struct rounds *w, rubato_comm *comm, rubato_partial *p)
{
	bool more = true;

	while (more)
		RB_TRY(collect_one(w, comm, p, &more));
	return RUBATO_OK;
}

static rubato_status era(struct rounds *w, rubato_comm *comm, rubato_partial *p, uint32_t number)
{
	uint32_t me = rubato_rank(comm), n = rubato_size(comm);
	uint64_t steps = w->steps + (me == n - 1 ? w->extra : 0);
	uint64_t most = w->steps + w->extra;

	for (uint64_t k = 0; k < steps; k++) {
		uint64_t step = number * most + k;

		if (w->delay_ns > 0)
			rubato_sleep(comm, delay_of(w, me, n, step));
		RB_TRY(contribute(w, comm, p, step));
		if (w->kill_step > 0 && step == w->kill_step && (w->victims & 1u << me) != 0)
			(void)raise(SIGKILL);
		RB_TRY(collect_all(w, comm, p));
		if (w->leaving && me == 0 && k == steps / 2) {
			w->finished += w->simulated;
			RB_TRY(rubato_partial_leave(p));
			return collect_all(w, comm, p);
		}
	}
	if (w->simulated)
		w->finished++;
	if (number == 0)
		w->in_steps_ns[me] = w->in_calls_ns[me];
	RB_TRY(rubato_partial_drain(p));
	return collect_all(w, comm, p);
}

/* PEER: all that the survivors agreed on is to be had, and the rest comes back. */
static void restored_check(struct rounds *w, rubato_comm *comm, rubato_partial *p)
{
	uint32_t me = rubato_rank(comm);
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	rubato_contribution c = { .count = 0 };
	const void *buffer = NULL;
	bool more = true;
	rubato_status err = RUBATO_OK;

	while (err == RUBATO_OK && more)
		err = collect_one(w, comm, p, &more);
	if (err != RUBATO_ERR_PEER || rubato_partial_pending(p, &buffer, &c) != RUBATO_OK ||
	    rubato_partial_get_stats(p, &stats) != RUBATO_OK) {
		rounds_wrong(w, "rank %u: after the loss: %d", me, (int)err);
		return;
	}
	w->ended[me] = true;
	if (stats.delivered != w->delivered[me] || stats.pending != c.count ||
	    stats.delivered + c.count + stats.discarded != stats.committed ||
	    (buffer != NULL) != (c.count > 0))
		rounds_wrong(w, "rank %u: %llu committed, %llu delivered, %u pending", me,
			     (unsigned long long)stats.committed,
			     (unsigned long long)w->delivered[me], c.count);
	if (w->there && buffer != NULL) {
		w->memory->copy(comm, vectors[me].host, buffer, vector_bytes(w));
		buffer = vectors[me].host;
	}
	for (uint64_t i = 0; buffer != NULL && i < w->count; i++) {
		int64_t sum = 0;

		for (uint32_t k = 0; k < c.count; k++)
			sum += value_of(w, me, c.last_step - k, i);
		if (w->floats ? !average_right(w, ((const float *)buffer)[i], sum, 1.0f,
					       2 * c.count, 3 * c.count)
			      : ((const int64_t *)buffer)[i] != sum) {
			rounds_wrong(w, "rank %u: pending element %llu", me, (unsigned long long)i);
			return;
		}
	}
}

rubato_status rounds_main(rubato_comm *comm, void *rounds)
{
	struct rounds *w = rounds;
	uint32_t me = rubato_rank(comm);
	rubato_partial *p;
	rubato_status err = RUBATO_OK, end;

	RB_TRY((w->there ? rubato_cuda_partial_create : rubato_partial_create)(
		comm, w->count, w->floats ? RUBATO_FLOAT32 : RUBATO_INT64,
		w->floats ? RUBATO_AVG : RUBATO_SUM, &w->options, &p));
	err = vectors_make(w, comm);
	for (uint32_t i = 0; err == RUBATO_OK && i < w->eras; i++)
		err = era(w, comm, p, i);
	if (w->victims != 0 && (w->victims & 1u << me) == 0 && err == RUBATO_ERR_PEER)
		restored_check(w, comm, p);
	if (err == RUBATO_OK)
		w->ended[me] = true;
	w->stats[me].size_bytes = sizeof(w->stats[me]);
	if (err == RUBATO_OK)
		err = rubato_partial_get_stats(p, &w->stats[me]);
	end = vectors_free(w, comm);
	err = err != RUBATO_OK ? err : end;
	end = rubato_partial_free(p);
	return err != RUBATO_OK ? err : end;
}

void rounds_check(struct rounds *w, uint32_t n, const char *name)
{
	ck_assert_msg(w->wrong == 0, "%s: %llu wrong, first: %s", name,
		      (unsigned long long)w->wrong, w->first);
	for (uint32_t r = 0; r < n; r++) {
		const rubato_partial_stats *s = &w->stats[r];
		uint64_t steps = w->steps + (r == n - 1 ? w->extra : 0);

		if (w->leaving && r == 0)
			steps = steps / 2 + 1;
		ck_assert_msg(s->committed == steps * w->eras &&
				      s->delivered + s->discarded + s->pending == s->committed &&
				      (s->pending == 0 || (w->leaving && r == 0)),
			      "%s: rank %u: %llu committed, %llu delivered, %llu discarded, "
			      "%llu pending",
			      name, r, (unsigned long long)s->committed,
			      (unsigned long long)s->delivered, (unsigned long long)s->discarded,
			      (unsigned long long)s->pending);
		ck_assert_msg(w->options.late != RUBATO_LATE_ACCUMULATE || s->discarded == 0,
			      "%s: rank %u discarded", name, r);
	}
}

uint32_t rounds_check_survivors(struct rounds *w, uint32_t n, const char *name)
{
	uint32_t survivors = 0, first = 0;

	ck_assert_msg(w->wrong == 0, "%s: %llu wrong, first: %s", name,
		      (unsigned long long)w->wrong, w->first);
	for (uint32_t r = 0; r < n; r++) {
		if (!w->ended[r] || (w->victims & 1u << r) != 0)
			continue;
		if (survivors++ == 0)
			first = r;
		ck_assert_msg(w->collected[r] == w->collected[first],
			      "%s: rank %u has %llu rounds, rank %u %llu", name, first,
			      (unsigned long long)w->collected[first], r,
			      (unsigned long long)w->collected[r]);
	}
	return survivors;
}
