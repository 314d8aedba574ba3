/* relaxed_run.c -- the measurement itself. See relaxed.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs/ledger.h"
#include "tools/relaxed/relaxed.h"

#define MARGIN_NS 2000000u  /* From one rank's word to the begin of a slice. */
#define CLOCK_NS 1000000000 /* No rank hears of it later, unless its clock is another. */
#define CALL_NS 2000000u    /* Of a period: for the call itself. */
#define PRIME 61
#define BUFFERS_MAX 64
#define CHECKED 4096 /* Of a long vector: so many elements, spread over it. */

struct side { /* One rank's side of one form. */
	struct relaxed_form *form;
	const struct relaxed_policy *policy; /* NULL: the synchronous allreduce. */
	rubato_partial *partial;
	rubato_lagged *lagged;
	bool helped;
	struct rotation { /* Of the synchronous forms: call number i uses the i-th of each. */
		void *in[BUFFERS_MAX], *out[BUFFERS_MAX];
		rubato_op *ops[BUFFERS_MAX];
		uint32_t count, inputs, results; /* Ops; buffers, of which both divide count. */
	} rotation;
	const void *inputs[BUFFERS_MAX], *results[BUFFERS_MAX]; /* Seen: different ones. */
	void *in;                                               /* Lagged. */
	double *us;                                             /* Per iteration. */
	int peer;       /* Number of the other library; < 0: ours. */
	double *all_us; /* A peer's, on rank 0: [ranks][iterations]. */
	double *means;  /* Per iteration, over ranks. */
	uint64_t step, fresh, contributors, rounds;
	uint64_t opened;              /* Rounds with somebody fresh. */
	uint64_t wall_ns, compute_ns; /* Lagged; wall_ns: closed loops, too. */
	uint64_t updates;             /* In the ledger. */
	double cpu_us;
	double spent_us[5]; /* As in form, summed over this rank's iterations. */
};

struct run {
	rubato_comm *comm;
	const struct relaxed_options *o;
	uint32_t rank, rank_count;
	rubato_type type;
	uint64_t count, period_ns;
	uint8_t *places; /* place_of() of each element. */
	struct side sides[RELAXED_FORMS_MAX];
	int side_count;
	struct ledger *ledger; /* On rank 0. */
};

/* ---- Values ---- */

static double term_of(uint32_t rank, uint64_t step)
{
	return (double)((rank * 13 + step * 7) % PRIME);
}

static double place_of(uint64_t i)
{
	return (double)((i * 7 + i / PRIME) % PRIME);
}

static double value_get(rubato_type type, const void *from, uint64_t i)
{
	switch ((int)type) {
	case RUBATO_FLOAT32:
		return (double)((const float *)from)[i];
	case RUBATO_FLOAT64:
		return ((const double *)from)[i];
	case RUBATO_INT32:
		return ((const int32_t *)from)[i];
	default:
		return (double)((const int64_t *)from)[i];
	}
}

#define WRITE(TYPE)                                                                                \
	for (uint64_t i = 0; i < run->count; i++)                                                  \
	((TYPE *)to)[i] = (TYPE)run->places[i] + (TYPE)term

/* Fast: ranks that take long to write come to the call at different times. */
static void write_values(const struct run *run, void *to, uint64_t step)
{
	double term = term_of(run->rank, step);

	switch ((int)run->type) {
	case RUBATO_FLOAT32:
		WRITE(float);
		break;
	case RUBATO_FLOAT64:
		WRITE(double);
		break;
	case RUBATO_INT32:
		WRITE(int32_t);
		break;
	default:
		WRITE(int64_t);
		break;
	}
}

struct expected { /* Of a round: over its contributions. */
	double sum, max, min, contributions;
};

static void expected_add(struct expected *e, double term)
{
	e->max = e->contributions == 0 || term > e->max ? term : e->max;
	e->min = e->contributions == 0 || term < e->min ? term : e->min;
	e->sum += term;
	e->contributions++;
}

static uint64_t count_wrong(const struct run *run, const void *result, const struct expected *e)
{
	uint64_t stride = run->count / CHECKED + 1, wrong = 0;

	for (uint64_t i = 0; i < run->count && e->contributions > 0; i += stride) {
		double place = place_of(i), want;

		if (run->o->reduction == 1)
			want = e->max + place;
		else if (run->o->reduction == 2)
			want = e->min + place;
		else
			want = e->sum + e->contributions * place;
		wrong += value_get(run->type, result, i) != want;
	}
	return wrong;
}

/* Counts different pointers, up to BUFFERS_MAX. */
static void seen(const void *list[BUFFERS_MAX], uint32_t *count, const void *pointer)
{
	for (uint32_t i = 0; i < *count; i++)
		if (list[i] == pointer)
			return;
	if (*count < BUFFERS_MAX)
		list[(*count)++] = pointer;
}

static rubato_operator reduction_of(const struct relaxed_options *o)
{
	static const rubato_operator operators[] = { RUBATO_SUM, RUBATO_MAX, RUBATO_MIN };

	return operators[o->reduction];
}

/* ---- Partial: one iteration ---- */

/* From `begin` on, when the first of the calls began: those between which nothing is done are timed
 * as one, as start and wait are. */
static rubato_status collect_all(struct run *run, struct side *side, uint64_t begin,
				 uint64_t *in_call_ns)
{
	rubato_round round = { .size_bytes = sizeof(round) };
	struct relaxed_form *form = side->form;

	for (;;) {
		const void *result;
		rubato_status err = rubato_partial_collect_view(side->partial, &result, &round,
								RUBATO_TIMEOUT_DEFAULT);
		struct expected e = { 0 };

		*in_call_ns += rubato_now(run->comm) - begin;
		if (err != RUBATO_OK || result == NULL)
			return err;
		seen(side->results, &form->results, result);
		for (uint32_t r = 0; r < run->rank_count; r++) {
			const rubato_contribution *c = &round.ranks[r];

			for (uint64_t k = c->first_step;
			     c->member && c->count > 0 && k <= c->last_step; k++)
				expected_add(&e, term_of(r, k));
		}
		form->wrong += count_wrong(run, result, &e);
		if (run->ledger != NULL)
			ledger_round(run->ledger, form->name, side->updates++, &round,
				     run->rank_count);
		side->rounds++;
		if (round.fresh > 0) { /* Else ranks opened it that drain. */
			side->opened++;
			side->fresh += round.fresh;
			side->contributors += round.contributors;
		}
		if (round.staleness_max > form->staleness_max)
			form->staleness_max = round.staleness_max;
		begin = rubato_now(run->comm);
		err = rubato_partial_release(side->partial);
		if (err != RUBATO_OK)
			return err;
	}
}

/* Until this call's time, and where nobody is late until all are there. */
static rubato_status call_await(struct run *run, uint64_t start_ns)
{
	uint64_t now = rubato_now(run->comm);

	if (start_ns > now)
		rubato_sleep(run->comm, start_ns - now);
	if (run->period_ns > 0 || run->o->loop == 1)
		return RUBATO_OK;

	/* Who has slept in the first one is woken late; in the second nobody sleeps. */
	rubato_status err = rubato_barrier(run->comm);

	return err == RUBATO_OK ? rubato_barrier(run->comm) : err;
}

static rubato_status partial_call(struct run *run, struct side *side, uint64_t start_ns, double *us)
{
	uint64_t in_call_ns = 0, begin;
	void *buffer;
	rubato_status err = rubato_partial_acquire(side->partial, &buffer);

	if (err != RUBATO_OK)
		return err;
	seen(side->inputs, &side->form->inputs, buffer);
	write_values(run, buffer, side->step);
	err = call_await(run, start_ns);
	if (err != RUBATO_OK)
		return err;
	begin = rubato_now(run->comm);
	err = rubato_partial_commit(side->partial, side->step++, 1);
	if (err == RUBATO_OK)
		err = collect_all(run, side, begin, &in_call_ns);
	*us = (double)in_call_ns * 1e-3;
	return err;
}

static rubato_status sync_call(struct run *run, struct side *side, uint64_t start_ns, double *us)
{
	const struct rotation *r = &side->rotation;
	rubato_op *op = r->ops[side->step % r->count];
	const void *out = r->out[side->step % r->results];
	void *in = r->in[side->step % r->inputs];
	struct expected e = { 0 };
	uint64_t begin;
	rubato_status err;

	write_values(run, in, side->step);
	err = call_await(run, start_ns);
	if (err != RUBATO_OK)
		return err;
	begin = rubato_now(run->comm);
	err = rubato_start(op);
	if (err == RUBATO_OK)
		err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	*us = (double)(rubato_now(run->comm) - begin) * 1e-3;
	for (uint32_t k = 0; k < run->rank_count; k++)
		expected_add(&e, term_of(k, side->step));
	side->step++;
	if (err == RUBATO_OK)
		side->form->wrong += count_wrong(run, out, &e);
	return err;
}

/* ---- Lagged: one step ---- */

static void compute(struct run *run, struct side *side)
{
	rubato_sleep(run->comm, run->o->compute_ns);
	side->compute_ns += run->o->compute_ns;
}

static rubato_status lagged_check(struct run *run, struct side *side, const void *result,
				  uint64_t weight)
{
	/* Each micro-batch of a step of rank r is term_of(r, 0): only the weights differ. */
	double per_rank = 0, place_sum = (double)weight;

	if (result == NULL || run->o->accumulate == 0)
		return RUBATO_OK; /* Until-done: how many each rank had is not known here. */
	for (uint32_t r = 0; r < run->rank_count; r++)
		per_rank += term_of(r, 0) * run->o->accumulate;
	for (uint64_t i = 0; i < run->count; i += run->count / CHECKED + 1)
		side->form->wrong +=
			value_get(run->type, result, i) != per_rank + place_sum * place_of(i);
	return RUBATO_OK;
}

static rubato_status lagged_step(struct run *run, struct side *side)
{
	const void *result = NULL;
	uint64_t weight = 0;
	uint32_t micro = 0;
	bool done = false;
	rubato_status err = RUBATO_OK;

	while (err == RUBATO_OK &&
	       (run->o->accumulate > 0 ? micro < run->o->accumulate : micro == 0 || !done)) {
		compute(run, side);
		err = rubato_lagged_accumulate(side->lagged, side->in, 1);
		if (err == RUBATO_OK && run->o->accumulate == 0)
			err = rubato_lagged_test(side->lagged, &done);
		micro++;
	}
	if (err == RUBATO_OK)
		err = rubato_lagged_begin(side->lagged);
	if (err == RUBATO_OK)
		err = rubato_lagged_collect(side->lagged, &result, &weight, RUBATO_TIMEOUT_DEFAULT);
	side->contributors += micro;
	return err == RUBATO_OK ? lagged_check(run, side, result, weight) : err;
}

/* The blocking counterpart: the same micro-batches, then the allreduce. */
static rubato_status blocking_step(struct run *run, struct side *side)
{
	uint32_t micro = run->o->accumulate > 0 ? run->o->accumulate : 1;
	rubato_status err;

	for (uint32_t m = 0; m < micro; m++)
		compute(run, side);
	side->contributors += micro;
	err = rubato_start(side->rotation.ops[0]);
	return err == RUBATO_OK ? rubato_wait(side->rotation.ops[0], RUBATO_TIMEOUT_DEFAULT) : err;
}

static rubato_status lagged_flush(struct run *run, struct side *side)
{
	const void *result = NULL;
	uint64_t weight;
	rubato_status err;

	do {
		err = rubato_lagged_flush(side->lagged, &result, &weight, RUBATO_TIMEOUT_DEFAULT);
		if (err == RUBATO_OK)
			err = lagged_check(run, side, result, weight);
	} while (err == RUBATO_OK && result != NULL);
	return err;
}

/* ---- Buffers of the synchronous forms ---- */

static uint32_t common_multiple(uint32_t a, uint32_t b)
{
	uint32_t multiple = a;

	while (multiple % b != 0)
		multiple += a;
	return multiple;
}

/* `inputs` and `results` buffers, and an operation for each pair that calls in turn come to. */
static rubato_status rotation_open(struct run *run, struct side *side, uint32_t inputs,
				   uint32_t results)
{
	uint64_t bytes = run->count * rubato_type_bytes(run->type);
	struct rotation *r = &side->rotation;
	rubato_status err = RUBATO_OK;

	*r = (struct rotation) { .inputs = inputs, .results = results };
	for (uint32_t i = 0; i < inputs && err == RUBATO_OK; i++)
		err = rubato_alloc(run->comm, bytes, &r->in[i]);
	for (uint32_t i = 0; i < inputs && err == RUBATO_OK; i++)
		write_values(run, r->in[i], 0);
	for (uint32_t i = 0; i < results && err == RUBATO_OK; i++)
		err = rubato_alloc(run->comm, bytes, &r->out[i]);
	for (uint32_t i = 0; i < common_multiple(inputs, results) && err == RUBATO_OK; i++) {
		err = (side->helped ? rubato_op_allreduce_helped : rubato_op_allreduce)(
			run->comm, r->in[i % inputs], r->out[i % results], run->count, run->type,
			reduction_of(run->o), &r->ops[i]);
		r->count += err == RUBATO_OK;
	}
	side->form->inputs = inputs;
	side->form->results = results;
	return err;
}

static void rotation_close(struct run *run, struct side *side)
{
	struct rotation *r = &side->rotation;

	for (uint32_t i = 0; i < r->count; i++)
		rubato_op_free(r->ops[i]);
	for (uint32_t i = 0; i < BUFFERS_MAX; i++) {
		(void)rubato_free(run->comm, r->in[i]);
		(void)rubato_free(run->comm, r->out[i]);
	}
	*r = (struct rotation) { 0 };
}

/* The synchronous forms go round as many buffers as the first policy has, the largest of all
 * ranks. */
static rubato_status rotations_fit(struct run *run)
{
	const struct relaxed_form *first = run->sides[1].form;
	int64_t most[2] = { first->inputs, first->results };
	rubato_status err = rubato_allreduce(run->comm, most, most, 2, RUBATO_INT64, RUBATO_MAX);

	for (int s = 0; s < run->side_count && err == RUBATO_OK; s++) {
		struct side *side = &run->sides[s];

		if (side->rotation.count == 0 || most[0] < 1 || most[1] < 1 ||
		    common_multiple((uint32_t)most[0], (uint32_t)most[1]) > BUFFERS_MAX)
			continue;
		rotation_close(run, side);
		err = rotation_open(run, side, (uint32_t)most[0], (uint32_t)most[1]);
	}
	return err;
}

/* ---- Slices ---- */

static double cpu_now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Hosts' clocks have nothing in common, nor have those of containers with times of their own. */
static bool has_clock_of_0(struct run *run, int64_t its_ns)
{
	rubato_peer first = { .size_bytes = sizeof(first) }, self = first;
	int64_t apart_ns = (int64_t)rubato_now(run->comm) - its_ns;

	if (rubato_get_peer(run->comm, 0, &first) != RUBATO_OK ||
	    rubato_get_peer(run->comm, run->rank, &self) != RUBATO_OK)
		return false;
	return strcmp(first.transport, "sim") == 0 ||
	       (first.host == self.host && apart_ns < CLOCK_NS && apart_ns > -CLOCK_NS);
}

/* When a slice begins, by this rank's clock. Who has not rank 0's begins as long after its word as
 * rank 0 does. */
static rubato_status slice_begin(struct run *run, int64_t *t0)
{
	rubato_status err = rubato_barrier(run->comm);

	*t0 = (int64_t)(rubato_now(run->comm) + MARGIN_NS);
	if (err == RUBATO_OK)
		err = rubato_broadcast(run->comm, t0, 1, RUBATO_INT64, 0);
	if (err == RUBATO_OK && !has_clock_of_0(run, *t0))
		*t0 = (int64_t)(rubato_now(run->comm) + MARGIN_NS);
	return err;
}

static rubato_status slice_lagged(struct run *run, struct side *side, uint32_t count)
{
	uint64_t begin;
	rubato_status err = rubato_barrier(run->comm);

	begin = rubato_now(run->comm);
	for (uint32_t i = 0; i < count && err == RUBATO_OK; i++)
		err = side->lagged != NULL ? lagged_step(run, side) : blocking_step(run, side);
	if (err == RUBATO_OK && side->lagged != NULL)
		err = lagged_flush(run, side);
	side->wall_ns += rubato_now(run->comm) - begin;
	return err;
}

/* What the calls so far took, by phase: added with sign 1 after, with -1 before what is timed. */
static rubato_status spent_add(struct side *side, double sign)
{
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	rubato_status err = rubato_partial_get_stats(side->partial, &stats);

	for (int i = 0; i < 4; i++)
		side->spent_us[i] += sign * (double)stats.wait_ns[i] * 1e-3;
	side->spent_us[4] += sign * (double)stats.call_ns * 1e-3;
	return err;
}

/* Iterations first .. first + count - 1; those of the warm-up are not kept. */
static rubato_status slice_partial(struct run *run, struct side *side, uint32_t first,
				   uint32_t count, bool kept)
{
	uint64_t drain_ns = 0;
	double us = 0;
	int64_t t0;
	rubato_status err = slice_begin(run, &t0);
	bool closed = run->o->loop == 1;

	if (err == RUBATO_OK && side->partial != NULL && kept)
		err = spent_add(side, -1);
	for (uint32_t i = 0; i < count && err == RUBATO_OK; i++) {
		uint64_t from =
			closed && i > 0 ? rubato_now(run->comm) : (uint64_t)t0 + i * run->period_ns;
		uint64_t start =
			from + skew_ns(&run->o->skew, run->rank, run->rank_count, first + i);

		err = side->partial != NULL ? partial_call(run, side, start, &us)
					    : sync_call(run, side, start, &us);
		if (kept)
			side->us[first + i] = us;
	}
	if (err == RUBATO_OK && side->partial != NULL && kept)
		err = spent_add(side, 1);
	if (err == RUBATO_OK && side->partial != NULL)
		err = rubato_partial_drain(side->partial);
	if (err == RUBATO_OK && side->partial != NULL)
		err = collect_all(run, side, rubato_now(run->comm), &drain_ns);
	if (err == RUBATO_OK && closed)
		err = rubato_barrier(run->comm);
	side->wall_ns += rubato_now(run->comm) - (uint64_t)t0;
	return err;
}

static rubato_status slice(struct run *run, struct side *side, uint32_t first, uint32_t count,
			   bool kept)
{
	double cpu_us = cpu_now_us();
	rubato_status err = run->o->lagged ? slice_lagged(run, side, count)
					   : slice_partial(run, side, first, count, kept);

	if (kept)
		side->cpu_us += cpu_now_us() - cpu_us;
	return err;
}

/* What the warm-up has counted does not count. */
static void side_reset(struct side *side)
{
	side->fresh = side->contributors = side->rounds = side->opened = 0;
	side->wall_ns = side->compute_ns = 0;
	side->form->staleness_max = 0;
}

/* Rank 0 leads the other library's ranks; ours sleep in the barrier meanwhile. */
static rubato_status slice_peer(struct run *run, struct side *side, uint32_t first, uint32_t count)
{
	const struct relaxed_options *o = run->o;
	double *times = malloc((size_t)count * run->rank_count * sizeof(*times));
	uint64_t wrong = 0;
	bool good = times != NULL;

	if (good && run->rank == 0) {
		good = o->peer_slice(o->peer_arg, (uint32_t)side->peer, first, count,
				     run->period_ns, times, &wrong);
		for (uint32_t r = 0; good && r < run->rank_count; r++)
			memcpy(side->all_us + (size_t)r * o->iterations + first,
			       times + (size_t)r * count, count * sizeof(*times));
		side->form->wrong += wrong;
		if (!good)
			side->form->wrong++; /* It fails the run: why was said. */
	}
	free(times);
	return rubato_barrier(run->comm);
}

static rubato_status slices(struct run *run)
{
	const struct relaxed_options *o = run->o;
	rubato_status err = RUBATO_OK;

	for (int of_policies = !o->lagged; of_policies >= 0 && err == RUBATO_OK; of_policies--) {
		for (int s = 0; s < run->side_count && err == RUBATO_OK && o->warmups > 0; s++) {
			struct side *side = &run->sides[s];

			if (side->peer >= 0 || (side->policy != NULL) != of_policies)
				continue;
			err = slice(run, side, 0, o->warmups, false);
			side_reset(side);
		}
		if (of_policies && o->policy_count > 0 && err == RUBATO_OK)
			err = rotations_fit(run);
	}
	for (uint32_t k = 0; k < RELAXED_SLICES; k++) {
		uint32_t first = (uint32_t)((uint64_t)o->iterations * k / RELAXED_SLICES);
		uint32_t end = (uint32_t)((uint64_t)o->iterations * (k + 1) / RELAXED_SLICES);

		for (int s = 0; s < run->side_count && err == RUBATO_OK; s++)
			err = run->sides[s].peer >= 0
				      ? slice_peer(run, &run->sides[s], first, end - first)
				      : slice(run, &run->sides[s], first, end - first, true);
	}
	return err;
}

/* ---- Figures ---- */

static void means_fill(const struct run *run, struct side *side, const double *all_us)
{
	uint32_t count = run->o->iterations;

	for (uint32_t i = 0; i < count; i++) {
		side->means[i] = 0;
		for (uint32_t r = 0; r < run->rank_count; r++)
			side->means[i] += all_us[(size_t)r * count + i] / run->rank_count;
	}
}

static rubato_status figures_partial(struct run *run, struct side *side)
{
	struct relaxed_form *form = side->form;
	uint32_t count = run->o->iterations;
	double *all = malloc((size_t)run->rank_count * count * sizeof(*all));
	double opened = side->opened > 0 ? (double)side->opened : 1;

	form->loop_us = run->o->loop == 1 ? (double)side->wall_ns * 1e-3 : 0;
	rubato_status err = all == NULL ? RUBATO_ERR_MEMORY : RUBATO_OK;

	if (err == RUBATO_OK && side->peer < 0)
		err = rubato_allgather(run->comm, side->us, all, count, RUBATO_FLOAT64);
	if (err == RUBATO_OK && (side->peer < 0 || run->rank == 0)) {
		means_fill(run, side, side->peer < 0 ? all : side->all_us);
		if (!ratio_figures(side->means, run->sides[0].means, count, RELAXED_SLICES,
				   &form->over))
			err = RUBATO_ERR_MEMORY;
	}
	if (err == RUBATO_OK && (side->peer < 0 || run->rank == 0) &&
	    !times_figures(side->peer < 0 ? all : side->all_us, run->rank_count, count,
			   &form->times))
		err = RUBATO_ERR_MEMORY;
	free(all);
	if (side->partial == NULL) { /* A peer's too. */
		form->fresh_mean = form->contributors_mean = run->rank_count;
		form->rounds = count;
		return err;
	}
	form->rounds = side->rounds;
	form->fresh_mean = (double)side->fresh / opened;
	form->contributors_mean = (double)side->contributors / opened;
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };

	if (err == RUBATO_OK)
		err = rubato_partial_get_stats(side->partial, &stats);
	for (int i = 0; i < 4 && err == RUBATO_OK && stats.rounds > 0; i++)
		form->round_us[i] = (double)stats.round_ns[i] * 1e-3 / (double)stats.rounds;
	for (int i = 0; i < 5; i++)
		side->spent_us[i] /= (double)count * run->rank_count;
	if (err == RUBATO_OK)
		err = rubato_allreduce(run->comm, side->spent_us, form->spent_us, 5, RUBATO_FLOAT64,
				       RUBATO_SUM);
	return err;
}

static void figures_lagged(struct run *run, struct side *side)
{
	struct relaxed_form *form = side->form;
	double wall_us = (double)side->wall_ns * 1e-3, compute_us = (double)side->compute_ns * 1e-3;
	const struct relaxed_form *blocking = run->sides[0].form;
	double micro = side->contributors > 0 ? (double)side->contributors : 1;
	double exposed = (wall_us - compute_us) / run->o->iterations;

	form->rounds = run->o->iterations;
	form->contributors_mean = micro / run->o->iterations;
	form->step_us = form->times.median_us = wall_us / run->o->iterations;
	form->idle = wall_us > 0 ? (wall_us - compute_us) / wall_us : 0;
	if (side->lagged != NULL && blocking->step_us > 0) {
		double whole = blocking->step_us * blocking->idle;

		form->overlap = whole > 0 ? 1 - exposed / whole : 0;
	}
}

static rubato_status figures(struct run *run, bool cpu)
{
	for (int s = 0; s < run->side_count; s++) {
		struct side *side = &run->sides[s];
		int64_t wrong = (int64_t)side->form->wrong, all_wrong = 0;
		double cpu_us = side->cpu_us / run->o->iterations / run->rank_count, all_cpu_us = 0;
		rubato_status err = RUBATO_OK;

		if (run->o->lagged)
			figures_lagged(run, side);
		else
			err = figures_partial(run, side);
		if (err == RUBATO_OK)
			err = rubato_allreduce(run->comm, &wrong, &all_wrong, 1, RUBATO_INT64,
					       RUBATO_SUM);
		if (err == RUBATO_OK)
			err = rubato_allreduce(run->comm, &cpu_us, &all_cpu_us, 1, RUBATO_FLOAT64,
					       RUBATO_SUM);
		if (err != RUBATO_OK)
			return err;
		side->form->wrong = (uint64_t)all_wrong;
		side->form->cpu_us = cpu && side->peer < 0 ? all_cpu_us : -1;
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static rubato_status side_open(struct run *run, struct side *side)
{
	uint64_t bytes = run->count * rubato_type_bytes(run->type);
	size_t all = (size_t)run->rank_count * run->o->iterations;
	rubato_status err;

	side->means = calloc(run->o->iterations, sizeof(*side->means));
	if (side->means == NULL)
		return RUBATO_ERR_MEMORY;
	if (side->peer >= 0) {
		side->all_us = calloc(all, sizeof(*side->all_us));
		return side->all_us == NULL ? RUBATO_ERR_MEMORY : RUBATO_OK;
	}
	side->us = calloc(run->o->iterations, sizeof(*side->us));
	if (side->us == NULL)
		return RUBATO_ERR_MEMORY;
	if (side->policy != NULL)
		return rubato_partial_create(run->comm, run->count, run->type, reduction_of(run->o),
					     &side->policy->options, &side->partial);
	if (!run->o->lagged || side == &run->sides[0])
		return rotation_open(run, side, 1, 1);
	err = rubato_alloc(run->comm, bytes, &side->in);
	if (err != RUBATO_OK)
		return err;
	write_values(run, side->in, 0);
	return rubato_lagged_create(run->comm, run->count, run->type, RUBATO_SUM, run->o->lag,
				    &side->lagged);
}

static rubato_status side_close(struct run *run, struct side *side)
{
	rubato_status err = rubato_partial_free(side->partial), end;

	end = rubato_lagged_free(side->lagged);
	err = err != RUBATO_OK ? err : end;
	rotation_close(run, side);
	(void)rubato_free(run->comm, side->in);
	free(side->us);
	free(side->means);
	free(side->all_us);
	return err;
}

static void sides_name(struct run *run, struct relaxed_form *forms)
{
	const struct relaxed_options *o = run->o;

	int helped = 1 + (int)(o->lagged ? 1 : o->policy_count), own = helped + o->helped;

	run->side_count = own + (int)o->peer_count;
	for (int s = 0; s < run->side_count; s++) {
		struct side *side = &run->sides[s];

		side->form = &forms[s];
		side->peer = s - own;
		memset(side->form, 0, sizeof(*side->form));
		side->helped = s == helped && o->helped;
		side->form->whole = s == 0 || s >= helped;
		if (side->helped)
			(void)snprintf(forms[s].name, sizeof(forms[s].name), "helped");
		else if (side->peer >= 0)
			(void)snprintf(forms[s].name, sizeof(forms[s].name), "%s",
				       o->peer_names[side->peer]);
		else if (s == 0)
			(void)snprintf(forms[s].name, sizeof(forms[s].name), "allreduce");
		else if (o->lagged)
			(void)snprintf(forms[s].name, sizeof(forms[s].name), "lagged");
		else {
			side->policy = &o->policies[s - 1];
			(void)snprintf(forms[s].name, sizeof(forms[s].name), "%s",
				       side->policy->name);
		}
	}
}

int relaxed_measure(rubato_comm *comm, const struct relaxed_options *o, bool cpu,
		    struct relaxed_form forms[RELAXED_FORMS_MAX])
{
	static const rubato_type types[] = { RUBATO_FLOAT32, RUBATO_FLOAT64, RUBATO_INT32,
					     RUBATO_INT64 };
	struct run run = { .comm = comm,
			   .o = o,
			   .rank = rubato_rank(comm),
			   .rank_count = rubato_size(comm),
			   .type = types[o->type] };
	rubato_status err = RUBATO_OK;
	bool good = true;
	uint64_t largest = skew_largest_ns(&o->skew, run.rank_count, o->iterations);

	run.count = o->size_bytes / rubato_type_bytes(run.type);
	run.count = run.count > 0 ? run.count : 1;
	run.period_ns = o->period_ns;
	if (run.period_ns == 0)
		run.period_ns = o->skew.kind == SKEW_NONE ? 0 : largest + largest / 4 + CALL_NS;
	sides_name(&run, forms);
	run.places = malloc(run.count);
	if (run.places == NULL)
		err = RUBATO_ERR_MEMORY;
	for (uint64_t i = 0; run.places != NULL && i < run.count; i++)
		run.places[i] = (uint8_t)place_of(i);
	if (run.rank == 0 && o->ledger[0] != '\0') {
		run.ledger = ledger_open(o->ledger);
		good = run.ledger != NULL;
	}
	for (int s = 0; s < run.side_count && err == RUBATO_OK; s++)
		err = side_open(&run, &run.sides[s]);
	if (err == RUBATO_OK)
		err = slices(&run);
	if (err == RUBATO_OK)
		err = figures(&run, cpu);
	for (int s = 0; s < run.side_count; s++) {
		rubato_status end = side_close(&run, &run.sides[s]);

		err = err != RUBATO_OK ? err : end;
	}
	free(run.places);
	if (run.ledger != NULL)
		good = ledger_close(run.ledger, err == RUBATO_OK) == 0;
	if (!good) /* It fails the run. */
		forms[0].wrong++;
	return err == RUBATO_OK ? run.side_count : (int)err;
}
