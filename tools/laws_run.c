/*
 * laws_run.c -- what a rank of a trial does: steps of work, commits to all operations, then
 * collects from all of them, in an order of its own. See laws.h.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/laws.h"
#include "tools/sim.h"

/* Virtual: of waiting for one operation before looking at the next; longer from turn to turn. */
#define TURN_NS 20000u
#define TURN_NS_MAX 20000000u

struct job { /* One rank's side. */
	rubato_comm *comm;
	struct laws_trial *trial;
	uint32_t rank;
	rubato_partial *partials[LAWS_OPS_MAX];
	uint64_t *buffer; /* For contribute and collect. */
};

/* The operation that this rank takes as number i: ranks differ. */
static uint32_t op_at(const struct job *job, uint32_t i)
{
	return (i + job->rank) % job->trial->op_count;
}

static void job_write(const struct job *job, uint32_t op, uint64_t *to)
{
	const struct laws_op *o = &job->trial->ops[op];
	bool add = o->options.zeroed != 0 && !job->trial->convenient;

	for (uint64_t i = 0; i < o->count; i++) {
		uint64_t word = laws_word(job->trial, op, job->rank, o->committed[job->rank], i);

		to[i] = add ? laws_reduce(o->reduction, to[i], word) : word;
	}
}

static rubato_status job_commit(struct job *job, uint32_t op)
{
	struct laws_op *o = &job->trial->ops[op];
	uint64_t step = o->committed[job->rank];
	void *buffer = job->buffer;
	rubato_status err = RUBATO_OK;

	if (!job->trial->convenient)
		err = rubato_partial_acquire(job->partials[op], &buffer);
	if (err != RUBATO_OK)
		return err;
	job_write(job, op, buffer);
	o->committed[job->rank]++; /* Before: others may collect it before the call returns. */
	if (job->trial->convenient)
		err = rubato_partial_contribute(job->partials[op], buffer, step, step + 1);
	else
		err = rubato_partial_commit(job->partials[op], step, step + 1);
	if (err != RUBATO_OK)
		o->committed[job->rank]--;
	return err;
}

/* One result of an operation; *some false: there is none to wait for. TIMEOUT: it must be waited
 * for. */
static rubato_status job_take(struct job *job, uint32_t op, uint64_t timeout_ns, bool *some)
{
	rubato_partial *partial = job->partials[op];
	rubato_round round = { .size_bytes = sizeof(round) };
	const void *result = NULL;
	rubato_status err;

	if (job->trial->convenient) {
		err = rubato_partial_collect(partial, job->buffer, some, &round, timeout_ns);
		if (err == RUBATO_OK && *some)
			laws_see(job->trial, op, job->rank, job->buffer, &round);
		return err;
	}
	err = rubato_partial_collect_view(partial, &result, &round, timeout_ns);
	*some = result != NULL;
	if (err != RUBATO_OK || !*some)
		return err;
	laws_see(job->trial, op, job->rank, result, &round);
	return rubato_partial_release(partial);
}

static rubato_status job_collect(struct job *job, uint32_t op)
{
	bool some = true;
	rubato_status err = RUBATO_OK;

	while (err == RUBATO_OK && some)
		err = job_take(job, op, RUBATO_TIMEOUT_DEFAULT, &some);
	return err;
}

/*
 * All that there is to wait for, from all operations. A rank that waits in one while it leaves
 * another's results uncollected may hold up those for whom it waits: so in turns.
 */
static rubato_status job_collect_all(struct job *job)
{
	uint64_t deadline_ns = rubato_now(job->comm) + job->trial->world.timeout_ns;
	uint64_t turn_ns = TURN_NS;
	uint32_t ops = job->trial->op_count, waiting = ops;

	if (ops == 1)
		return job_collect(job, 0);
	while (waiting > 0) {
		waiting = 0;
		for (uint32_t i = 0; i < ops; i++) {
			bool some = true;
			rubato_status err = RUBATO_OK;

			while (err == RUBATO_OK && some)
				err = job_take(job, op_at(job, i), turn_ns, &some);
			if (err != RUBATO_OK && err != RUBATO_ERR_TIMEOUT)
				return err;
			waiting += err == RUBATO_ERR_TIMEOUT;
		}
		if (waiting > 0 && rubato_now(job->comm) > deadline_ns) {
			if (job->trial->dump)
				rubato_dump(job->comm, STDERR_FILENO);
			return RUBATO_ERR_TIMEOUT;
		}
		turn_ns = turn_ns < TURN_NS_MAX ? turn_ns * 2 : turn_ns;
	}
	return RUBATO_OK;
}

static rubato_status job_step(struct job *job, uint32_t step)
{
	uint32_t ops = job->trial->op_count;
	rubato_status err = RUBATO_OK;

	rubato_sleep(job->comm, laws_skew_ns(job->trial, job->rank, step));
	for (uint32_t i = 0; i < ops && err == RUBATO_OK; i++)
		err = job_commit(job, op_at(job, i));
	return err == RUBATO_OK ? job_collect_all(job) : err;
}

static void passive_note(struct job *job, uint32_t op)
{
	struct laws_op *o = &job->trial->ops[op];

	o->passive = true;
	if (o->passive_from[job->rank] > o->round_end)
		o->passive_from[job->rank] = o->round_end;
}

static rubato_status job_drain(struct job *job)
{
	uint32_t ops = job->trial->op_count;
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; i < ops && err == RUBATO_OK; i++) {
		passive_note(job, op_at(job, i));
		err = rubato_partial_drain(job->partials[op_at(job, i)]);
	}
	return err == RUBATO_OK ? job_collect_all(job) : err;
}

static rubato_status job_leave(struct job *job)
{
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; i < job->trial->op_count && err == RUBATO_OK; i++) {
		passive_note(job, op_at(job, i));
		err = rubato_partial_leave(job->partials[op_at(job, i)]);
	}
	return err;
}

static rubato_status job_steps(struct job *job)
{
	struct laws_trial *trial = job->trial;
	uint32_t step = 0, most = trial->steps[job->rank] * 4 + 4;
	rubato_status err = RUBATO_OK;

	while (err == RUBATO_OK && (step < trial->steps[job->rank] ||
				    (rubato_now(job->comm) < trial->until_ns && step < most))) {
		if (trial->leaver == job->rank && step == trial->leave_step)
			return job_leave(job);
		err = job_step(job, step++);
		if (err == RUBATO_OK && trial->drain_step > 0 && step == trial->drain_step)
			err = job_drain(job);
	}
	if (err != RUBATO_OK)
		return err;
	err = job_drain(job);
	for (uint32_t i = 0; i < trial->op_count && err == RUBATO_OK; i++)
		trial->ops[i].drained[job->rank] = true;
	return err;
}

/* After the loss of a rank: the rounds that survivors agreed on, then what came back to us. */
static rubato_status job_end(struct job *job, uint32_t op)
{
	struct laws_op *o = &job->trial->ops[op];
	rubato_contribution pending = { 0 };
	const void *buffer = NULL;
	rubato_status err = job_collect(job, op);

	if (err == RUBATO_OK) /* Others stopped; this one had ended before. */
		return RUBATO_OK;
	if (err != RUBATO_ERR_PEER)
		return err;
	err = rubato_partial_pending(job->partials[op], &buffer, &pending);
	if (err != RUBATO_OK)
		return err;
	o->ended[job->rank] = true;
	o->pending_first[job->rank] = pending.first_step;
	o->pending_count[job->rank] = buffer != NULL ? pending.count : 0;
	if (buffer == NULL)
		return RUBATO_OK;
	for (uint64_t i = 0; i < o->count && o->options.late == RUBATO_LATE_ACCUMULATE; i++) {
		uint64_t want = laws_identity(o->reduction);

		for (uint64_t k = pending.first_step; k <= pending.last_step; k++)
			want = laws_reduce(o->reduction, want,
					   laws_word(job->trial, op, job->rank, k, i));
		if (((const uint64_t *)buffer)[i] != want) {
			laws_break(job->trial,
				   "operation %u: rank %u was given back other words than it had "
				   "committed",
				   op, job->rank);
			break;
		}
	}
	return RUBATO_OK;
}

rubato_status laws_rank(rubato_comm *comm, void *arg)
{
	struct laws_trial *trial = arg;
	struct job job = { .comm = comm, .trial = trial, .rank = rubato_rank(comm) };
	rubato_status err = RUBATO_OK;

	if (trial->lagged)
		return laws_lagged_rank(comm, trial);
	job.buffer = malloc(3000 * sizeof(*job.buffer));
	if (job.buffer == NULL)
		return RUBATO_ERR_MEMORY;
	for (uint32_t i = 0; i < trial->op_count && err == RUBATO_OK; i++)
		err = rubato_partial_create(comm, trial->ops[i].count, RUBATO_INT64,
					    trial->ops[i].reduction, &trial->ops[i].options,
					    &job.partials[i]);
	if (err == RUBATO_OK)
		err = job_steps(&job);
	for (uint32_t i = 0; i < trial->op_count && job.partials[i] != NULL; i++) {
		trial->ops[i].stats[job.rank].size_bytes = sizeof(rubato_partial_stats);
		if (err == RUBATO_ERR_PEER && trial->leaver != job.rank &&
		    !laws_victim(trial, job.rank) && job_end(&job, i) != RUBATO_OK)
			laws_break(trial, "operation %u: rank %u, after a loss: %s", i, job.rank,
				   rubato_error_text());
		if (rubato_partial_get_stats(job.partials[i], &trial->ops[i].stats[job.rank]) !=
		    RUBATO_OK)
			laws_break(trial, "operation %u: rank %u has no statistics", i, job.rank);
	}
	if (err != RUBATO_OK && err != RUBATO_ERR_PEER && !laws_victim(trial, job.rank))
		laws_break(trial, "progress: rank %u: %s", job.rank, rubato_error_text());
	if (rubato_now(comm) < trial->until_ns)
		rubato_sleep(comm, trial->until_ns - rubato_now(comm));
	for (uint32_t i = 0; i < trial->op_count && job.partials[i] != NULL; i++) {
		rubato_status end = rubato_partial_free(job.partials[i]);

		if (end != RUBATO_OK && trial->dump)
			rubato_dump(comm, STDERR_FILENO);

		err = err != RUBATO_OK ? err : end;
	}
	free(job.buffer);
	return err;
}

/* ---- Lagged ---- */

#define MICRO_MAX 3

static uint32_t micro_of(const struct laws_trial *trial, uint32_t rank, uint32_t step)
{
	return (uint32_t)(laws_word(trial, 0, rank, step, 77) % (MICRO_MAX + 1));
}

/* Small whole numbers, so that float sums are exact. */
static double lagged_value(const struct laws_trial *trial, uint32_t rank, uint32_t step,
			   uint64_t place)
{
	return (double)(laws_word(trial, 1, rank, step, place) % 1000);
}

static void lagged_see(struct laws_trial *trial, uint32_t step, const double *result,
		       uint64_t weight)
{
	uint64_t want_weight = 0;

	for (uint32_t r = 0; r < trial->world.rank_count; r++)
		want_weight += micro_of(trial, r, step);
	if (weight != want_weight)
		laws_break(trial, "lagged: step %u has weight %llu, not %llu", step,
			   (unsigned long long)weight, (unsigned long long)want_weight);
	for (uint64_t i = 0; i < trial->ops[0].count; i++) {
		double want = 0;

		for (uint32_t r = 0; r < trial->world.rank_count; r++)
			want += lagged_value(trial, r, step, i) * micro_of(trial, r, step);
		if (result[i] != want) {
			laws_break(trial, "lagged: step %u, element %llu is %g, not %g", step,
				   (unsigned long long)i, result[i], want);
			return;
		}
	}
	trial->rounds++;
}

static rubato_status lagged_step(rubato_comm *comm, struct laws_trial *trial, rubato_lagged *lagged,
				 uint32_t step, double *gradient)
{
	uint32_t rank = rubato_rank(comm);
	rubato_status err = RUBATO_OK;

	for (uint64_t i = 0; i < trial->ops[0].count; i++)
		gradient[i] = lagged_value(trial, rank, step, i);
	for (uint32_t m = 0; m < micro_of(trial, rank, step) && err == RUBATO_OK; m++) {
		rubato_sleep(comm, laws_skew_ns(trial, rank, step) / MICRO_MAX);
		err = rubato_lagged_accumulate(lagged, gradient, 1);
	}
	return err == RUBATO_OK ? rubato_lagged_begin(lagged) : err;
}

rubato_status laws_lagged_rank(rubato_comm *comm, struct laws_trial *trial)
{
	uint32_t steps = trial->steps[0], seen = 0;
	double *gradient = malloc(trial->ops[0].count * sizeof(*gradient));
	rubato_lagged *lagged = NULL;
	const void *result = NULL;
	uint64_t weight;
	rubato_status err = gradient == NULL ? RUBATO_ERR_MEMORY : RUBATO_OK;

	if (err == RUBATO_OK)
		err = rubato_lagged_create(comm, trial->ops[0].count, RUBATO_FLOAT64, RUBATO_SUM,
					   trial->lag, &lagged);
	for (uint32_t k = 0; k < steps && err == RUBATO_OK; k++) {
		err = lagged_step(comm, trial, lagged, k, gradient);
		if (err == RUBATO_OK)
			err = rubato_lagged_collect(lagged, &result, &weight, 0);
		if (err != RUBATO_OK)
			break;
		if ((result != NULL) != (k >= trial->lag))
			laws_break(trial, "lagged: at step %u a result %s", k,
				   result != NULL ? "came early" : "was missing");
		else if (result != NULL)
			lagged_see(trial, seen++, result, weight);
	}
	while (err == RUBATO_OK) {
		err = rubato_lagged_flush(lagged, &result, &weight, 0);
		if (err != RUBATO_OK || result == NULL)
			break;
		lagged_see(trial, seen++, result, weight);
	}
	if (err == RUBATO_OK && seen != steps)
		laws_break(trial, "lagged: %u of %u steps came back", seen, steps);
	while (err == RUBATO_OK && rubato_now(comm) < trial->until_ns)
		rubato_sleep(comm, trial->until_ns - rubato_now(comm));
	if (lagged != NULL) {
		rubato_status end = rubato_lagged_free(lagged);

		err = err != RUBATO_OK ? err : end;
	}
	free(gradient);
	return err;
}
