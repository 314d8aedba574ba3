/*
 * laws_lagged.c -- trials of the lagged allreduce: ranks accumulate different amounts, begin, go
 * on, and are given each step's sum `lag` begins later, the same on all ranks. See laws.h.
 *
 * Gradient number 4 step + m is the micro-batch m of a step, as laws_values.c has contributions.
 */
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

#define MICRO_MAX 3
#define LOOK_NS_MAX 10000u /* A poll in vain takes 1 us here. */

struct job {
	rubato_comm *comm;
	struct laws_trial *trial;
	struct laws_lagged *l;
	uint32_t rank, n, begun, seen;
	struct rng random;
	rubato_lagged *lagged;
	void *gradient, *there; /* there: of a device; NULL: none. */
	const void *lent;       /* The last result, until the next begin, and what it was. */
	uint64_t lent_digest;
	uint64_t bytes;
};

static uint32_t micro_of(const struct laws_trial *trial, uint32_t rank, uint32_t step)
{
	return (uint32_t)(laws_mix(trial->seed, 77, (uint64_t)rank << 32 | step) % (MICRO_MAX + 1));
}

static uint64_t weight_of(const struct laws_trial *trial, uint32_t rank, uint32_t step,
			  uint32_t micro)
{
	uint64_t hash = laws_mix(trial->seed, 78, ((uint64_t)rank << 32 | step) * 4 + micro);

	return trial->seed % 3 == 0 ? 1 : hash % 5;
}

/* ---- What a result must be ---- */

static void see(struct job *job, const void *result, uint64_t weight)
{
	struct laws_lagged *l = job->l;
	struct laws_part parts[LAWS_RANKS_MAX];
	uint64_t want = 0, at, digest = laws_digest(result, job->bytes);
	uint32_t step = job->seen++, count = 0;

	for (uint32_t r = 0; r < job->n; r++) {
		uint32_t micros = micro_of(job->trial, r, step);

		for (uint32_t m = 0; m < micros; m++)
			want += weight_of(job->trial, r, step, m);
		if (micros > 0)
			parts[count++] = (struct laws_part) { r, 4 * step, micros };
	}
	if (weight != want)
		laws_break(job->trial, "lagged: step %u has weight %llu, not %llu", step,
			   (unsigned long long)weight, (unsigned long long)want);
	if (l->reduction == RUBATO_AVG && want == 0)
		count = 0; /* The mean of nothing. */
	if (!laws_result_right(&job->trial->ops[0], parts, count,
			       l->reduction == RUBATO_AVG && want > 0 ? (double)want : 1, result,
			       &at))
		laws_break(job->trial, "lagged: step %u, element %llu at rank %u is wrong", step,
			   (unsigned long long)at, job->rank);
	if (step < l->digest_count && l->digests[step] != 0 && l->digests[step] != digest)
		laws_break(job->trial, "lagged: step %u at rank %u has other bits", step,
			   job->rank);
	if (step < l->digest_count)
		l->digests[step] = digest;
	job->lent = result;
	job->lent_digest = digest;
	job->trial->rounds++;
}

/* What was lent stays as it is until the next begin. */
static void loan_check(struct job *job)
{
	if (job->lent != NULL && laws_digest(job->lent, job->bytes) != job->lent_digest)
		laws_break(job->trial, "lagged: step %u changes while rank %u has it",
			   job->seen - 1, job->rank);
	job->lent = NULL;
}

/* ---- Accumulate, test, begin ---- */

/* Whether every rank has begun so many. */
static bool all_began(const struct job *job, uint32_t count)
{
	for (uint32_t r = 0; r < job->n; r++)
		if (job->l->begun[r] < count)
			return false;
	return true;
}

/* When the last of them began its last, and the messages of that have long come. */
static uint64_t settled_ns(const struct job *job)
{
	const rubato_sim_options *w = &job->trial->world;
	double hop = (double)w->latency_ns * (1 + w->jitter);
	double bytes = (double)(job->bytes + 4096) * job->n * 4;
	uint64_t last = 0;

	for (uint32_t r = 0; r < job->n; r++)
		last = job->l->begun_ns[r] > last ? job->l->begun_ns[r] : last;
	return last +
	       (uint64_t)((hop * 16 * job->n + bytes / w->bandwidth * 1e9) * (job->l->lag + 2));
}

/* What test says of the oldest one in flight. */
static rubato_status test(struct job *job, bool *done)
{
	/* Of before the call: it may sleep, and others begin meanwhile. */
	bool settled = all_began(job, job->begun) && rubato_now(job->comm) > settled_ns(job);
	rubato_status err = rubato_lagged_test(job->lagged, done);

	if (err != RUBATO_OK)
		return err;
	if (job->seen == job->begun && !*done)
		laws_break(job->trial, "lagged: nothing is in flight at rank %u, test waits",
			   job->rank);
	if (*done && job->seen < job->begun && !all_began(job, job->seen + 1))
		laws_break(job->trial, "lagged: step %u is done before all have begun it",
			   job->seen);
	if (!*done && settled && job->trial->world.fault_count == 0)
		laws_break(job->trial, "lagged: step %u is not done at rank %u, long after",
			   job->seen, job->rank);
	return RUBATO_OK;
}

static rubato_status accumulate(struct job *job, uint32_t step, uint32_t micro)
{
	uint64_t weight = weight_of(job->trial, job->rank, step, micro);
	const void *from;
	void *buffer;
	rubato_status err;

	if (laws_chance(&job->random, 2)) {
		laws_write(&job->trial->ops[0], job->rank, 4 * step + micro, job->gradient, 0,
			   job->l->count, false);
		from = laws_device_put(job->comm, job->there, job->gradient, job->bytes);
		err = rubato_lagged_accumulate(job->lagged, from, weight);
		laws_device_spoil(job->comm, job->there, job->bytes);
		return err;
	}
	err = rubato_lagged_acquire(job->lagged, &buffer);
	if (err != RUBATO_OK)
		return err;
	laws_write(&job->trial->ops[0], job->rank, 4 * step + micro, buffer, 0, job->l->count,
		   true);
	return rubato_lagged_accumulate(job->lagged, NULL, weight);
}

static rubato_status begin(struct job *job, uint32_t step)
{
	uint64_t sleep_ns = laws_skew_ns(job->trial, job->rank, step);
	rubato_status err = RUBATO_OK;
	bool done = false;

	for (uint32_t m = 0; m < micro_of(job->trial, job->rank, step) && err == RUBATO_OK; m++) {
		rubato_sleep(job->comm, sleep_ns / MICRO_MAX);
		err = accumulate(job, step, m);
		if (err == RUBATO_OK && job->l->until_done)
			err = test(job, &done);
	}
	if (err != RUBATO_OK)
		return err;
	loan_check(job);
	job->l->begun[job->rank]++;
	job->l->begun_ns[job->rank] = rubato_now(job->comm);
	job->begun++;
	return rubato_lagged_begin(job->lagged);
}

/* ---- Results ---- */

/* A look waits for nothing, finds what is done, and takes nothing that not all have begun. */
static void look_judge(struct job *job, uint64_t begin_ns, const void *result, bool done)
{
	if (rubato_now(job->comm) - begin_ns > LOOK_NS_MAX && job->trial->world.fault_count == 0)
		laws_break(job->trial, "lagged: rank %u only looks for step %u, and waits",
			   job->rank, job->seen);
	if (done && result == NULL)
		laws_break(job->trial, "lagged: step %u was done, and rank %u does not find it",
			   job->seen, job->rank);
	if (result != NULL && !all_began(job, job->seen + 1))
		laws_break(job->trial, "lagged: rank %u takes step %u before all have begun it",
			   job->rank, job->seen);
}

static rubato_status collect(struct job *job, uint32_t step)
{
	const void *result = NULL;
	uint64_t weight = 0, begin_ns;
	bool done = false, due = step >= job->l->lag;
	rubato_status err = RUBATO_OK;

	if (job->l->until_done && due)
		err = test(job, &done);
	begin_ns = rubato_now(job->comm);
	if (err == RUBATO_OK && job->l->looks && laws_chance(&job->random, 2)) {
		err = rubato_lagged_collect(job->lagged, &result, &weight, RUBATO_NO_WAIT);
		look_judge(job, begin_ns, result, done);
	}
	if (err == RUBATO_OK && result == NULL)
		err = rubato_lagged_collect(job->lagged, &result, &weight, 0);
	if (err != RUBATO_OK)
		return err;
	if (done && rubato_now(job->comm) != begin_ns)
		laws_break(job->trial, "lagged: step %u was done, and rank %u waits for it",
			   job->seen, job->rank);
	if ((result != NULL) != due)
		laws_break(job->trial, "lagged: at step %u a result %s", step,
			   result != NULL ? "came early" : "was missing");
	else if (due)
		see(job, result, weight);
	if (due && job->l->hold)
		rubato_sleep(job->comm, 1 + laws_below(&job->random, job->trial->skew_ns));
	return RUBATO_OK;
}

static rubato_status flush(struct job *job)
{
	const void *result = NULL;
	uint64_t weight = 0;
	rubato_status err;

	do {
		uint64_t begin_ns = rubato_now(job->comm);

		result = NULL;
		err = RUBATO_OK;
		if (job->l->looks && laws_chance(&job->random, 2)) {
			err = rubato_lagged_flush(job->lagged, &result, &weight, RUBATO_NO_WAIT);
			look_judge(job, begin_ns, result, false);
		}
		if (err == RUBATO_OK && result == NULL)
			err = rubato_lagged_flush(job->lagged, &result, &weight, 0);
		if (err == RUBATO_OK && result != NULL)
			see(job, result, weight);
	} while (err == RUBATO_OK && result != NULL);
	if (err == RUBATO_OK && job->seen != job->begun)
		laws_break(job->trial, "lagged: %u of %u steps came back", job->seen, job->begun);
	return err;
}

/* More begins than are kept are refused. */
static rubato_status rude(struct job *job, uint32_t step)
{
	rubato_status err;

	if (!job->trial->rude || job->begun - job->seen != job->l->lag + 1)
		return RUBATO_OK;
	err = rubato_lagged_begin(job->lagged);
	if (err != RUBATO_ERR_ARGUMENT && !(laws_crashes(job->trial) && err == RUBATO_ERR_PEER))
		laws_break(job->trial, "misuse: rank %u begins one too many at step %u: %s",
			   job->rank, step, rubato_status_name(err));
	return RUBATO_OK;
}

static rubato_status go(struct job *job)
{
	struct laws_lagged *l = job->l;
	rubato_status err = rubato_lagged_create(job->comm, l->count, l->type, l->reduction, l->lag,
						 &job->lagged);

	for (uint32_t step = 0; step < job->trial->steps[0][0] && err == RUBATO_OK; step++) {
		err = begin(job, step);
		if (err == RUBATO_OK)
			err = rude(job, step);
		if (err == RUBATO_OK)
			err = collect(job, step);
	}
	if (err == RUBATO_OK && !l->parts)
		err = flush(job);
	while (err == RUBATO_OK && rubato_now(job->comm) < job->trial->until_ns)
		rubato_sleep(job->comm, job->trial->until_ns - rubato_now(job->comm));
	return err;
}

rubato_status laws_lagged_rank(rubato_comm *comm, struct laws_trial *trial)
{
	struct job job = { .comm = comm,
			   .trial = trial,
			   .l = &trial->lagged,
			   .rank = rubato_rank(comm),
			   .n = rubato_size(comm),
			   .random = { laws_mix(trial->seed, 79, rubato_rank(comm)) } };
	rubato_status err, end;

	job.bytes = job.l->count * rubato_type_bytes(job.l->type);
	job.gradient = malloc(job.bytes);
	job.there = laws_device_new(comm, trial, job.bytes);
	if (job.gradient == NULL || (job.there == NULL && trial->device))
		return RUBATO_ERR_MEMORY;
	err = go(&job);
	if (err != RUBATO_OK && err != RUBATO_ERR_PEER && !laws_victim(trial, job.rank))
		laws_break(trial, "progress: rank %u: %s", job.rank, rubato_error_text());
	if (rubato_now(comm) < trial->until_ns)
		rubato_sleep(comm, trial->until_ns - rubato_now(comm));
	end = rubato_lagged_free(job.lagged);
	if (job.there != NULL)
		(void)rubato_sim_device_free(comm, job.there);
	free(job.gradient);
	return err != RUBATO_OK ? err : end;
}
