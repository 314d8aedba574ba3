/*
 * test_deaths.c -- a rank dies at each step of start-up: before, and after, each of its exchanges.
 * The others come to each step early or late, as a seed draws. Each of them ends in time, and an
 * error that it is given names the dead one, and nobody else as the cause.
 *
 *   test_deaths TRANSPORT     TEST_SEED=n: that job alone
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sync.h"
#include "rubato.h"
#include "runtime/open.h"
#include "runtime/startup/setup.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/startup/lost_ranks.h"
#include "tests/seeds.h"

#define RANKS_MAX 5u
#define TIMEOUT_NS UINT64_C(10000000000)  /* Of the library's waits; */
#define PATIENCE_NS UINT64_C(60000000000) /* and of ours, on a busy machine. */
#define NEVER UINT32_MAX

static const char *transport;

struct shared { /* By all processes of a job. */
	_Atomic uint32_t id_made;
	rubato_id id;
	_Atomic uint32_t exchanges; /* Of rank 0. */
	struct outcome {
		rubato_status status;
		char text[512];
		_Atomic bool ended;
	} outcomes[RANKS_MAX];
};

struct job {
	uint64_t seed;
	uint32_t rank_count, victim;
	bool reaped;   /* At once: then the others find no process of its number. */
	uint32_t step; /* 2 x exchange, + 1: after it. NEVER: nobody dies. */
};

/* ---- A bootstrap that dies ---- */

struct mortal {
	struct rb_bootstrap base; /* First. */
	struct rb_bootstrap *inner;
	const struct job *job;
	struct shared *shared;
	struct rb_rng rng;
	uint32_t steps;
};

static void step(struct mortal *m)
{
	static const uint64_t lates_ms[] = { 0, 0, 2, 30 };

	if (m->base.rank == m->job->victim && m->steps++ == m->job->step) {
		(void)kill(getpid(), SIGKILL);
		(void)pause();
	}
	rb_clock_sleep_until(rb_clock_ns() + lates_ms[rb_rng_below(&m->rng, 4)] * 1000000);
}

static rubato_status mortal_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				      const void *const **out, const size_t **out_bytes,
				      uint64_t deadline_ns)
{
	struct mortal *m = (struct mortal *)b;
	rubato_status err;

	step(m);
	err = m->inner->allgather(m->inner, in, in_bytes, out, out_bytes, deadline_ns);
	b->blames = m->inner->blames;
	if (err != RUBATO_OK)
		return err;
	if (b->rank == 0)
		atomic_fetch_add(&m->shared->exchanges, 1);
	step(m);
	return RUBATO_OK;
}

static rubato_status mortal_end(struct rb_bootstrap *b, bool good)
{
	struct mortal *m = (struct mortal *)b;

	rubato_status err;

	m->inner->blames = b->blames;
	err = m->inner->end(m->inner, good);
	b->blames = m->inner->blames;
	return err;
}

static void mortal_leave(struct rb_bootstrap *b)
{
	struct mortal *m = (struct mortal *)b;

	m->inner->blames = b->blames;
	m->inner->leave(m->inner);
	b->blames = m->inner->blames;
}

static void mortal_close(struct rb_bootstrap *b)
{
	struct mortal *m = (struct mortal *)b;

	m->inner->close(m->inner);
}

/* ---- A rank ---- */

static rubato_status rank_open(struct mortal *m, struct rb_config *config, uint32_t rank,
			       rubato_comm **comm)
{
	struct rb_setup setup = { .config = config, .timeout_ns = TIMEOUT_NS };
	struct rb_job at;

	RB_TRY(rb_config_read(config));
	if (rank == 0) { /* It listens, in the process that makes the id. */
		RB_TRY(rb_job_make_id(&m->shared->id, "lo"));
		atomic_store(&m->shared->id_made, 1);
	}
	while (atomic_load(&m->shared->id_made) == 0)
		rb_clock_sleep_until(rb_clock_ns() + 20000);
	RB_TRY(rb_job_from_id(&m->shared->id, rank, m->job->rank_count, &at));
	RB_TRY(rb_rendezvous_open(&at, rb_deadline(rb_clock_ns(), TIMEOUT_NS), &m->inner));
	m->base = *m->inner;
	m->base.allgather = mortal_allgather;
	m->base.leave = mortal_leave;
	m->base.end = mortal_end;
	m->base.close = mortal_close;
	setup.bootstrap = &m->base;
	return rb_comm_open(&setup, comm);
}

static rubato_status rank_run(const struct job *job, struct shared *s, uint32_t rank)
{
	struct mortal m = { .job = job, .shared = s, .rng = { rb_mix(job->seed) ^ rank } };
	struct rb_config *config = calloc(1, sizeof(*config));
	rubato_comm *comm;

	if (config == NULL)
		return RUBATO_ERR_MEMORY;
	RB_TRY(rank_open(&m, config, rank, &comm));
	RB_TRY(rubato_barrier(comm)); /* Start-up may have been over when the victim died. */
	return rubato_finalize(comm);
}

static void child_main(const struct job *job, struct shared *s, uint32_t rank, int output)
{
	struct outcome *o = &s->outcomes[rank];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getenv("RUBATO_LOG") == NULL)
		(void)dup2(output, STDERR_FILENO);
	o->status = rank_run(job, s, rank);
	if (o->status != RUBATO_OK)
		(void)snprintf(o->text, sizeof(o->text), "%s", rubato_error_text());
	atomic_store(&o->ended, true);
	_exit(0);
}

/* ---- Jobs ---- */

static bool all_ended(const struct job *job, const struct shared *s)
{
	for (uint32_t r = 0; r < job->rank_count; r++)
		if ((r != job->victim || job->step == NEVER) && !atomic_load(&s->outcomes[r].ended))
			return false;
	return true;
}

/* UCX ends some whose peer goes while they connect (docs/security.md): they are lost, too. */
static bool is_lost(const struct job *job, const struct shared *s, uint32_t rank, pid_t *child,
		    int output)
{
	int status = 0;

	if (rank == job->victim && job->step != NEVER)
		return true;
	if (atomic_load(&s->outcomes[rank].ended) || waitpid(*child, &status, WNOHANG) != *child)
		return false;
	*child = -1;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && ended_by_ucx(output);
}

static bool is_named(const struct job *job, const bool *lost, const char *text)
{
	for (uint32_t r = 0; r < job->rank_count; r++)
		if (lost[r] && names(text, r))
			return true;
	return false;
}

/* How many ranks UCX has ended. */
static uint32_t judge(const struct job *job, const struct shared *s, pid_t *children, int output)
{
	bool lost[RANKS_MAX];
	uint32_t count = 0;
	char said[400];

	for (uint32_t r = 0; r < job->rank_count; r++) {
		lost[r] = is_lost(job, s, r, &children[r], output);
		count += lost[r];
	}
	said_last(output, said, sizeof(said));
	for (uint32_t r = 0; r < job->rank_count; r++) {
		const struct outcome *o = &s->outcomes[r];

		if (lost[r])
			continue;
		ck_assert_msg(atomic_load(&o->ended), "seed %llu: rank %u does not end; said: %s",
			      (unsigned long long)job->seed, r, said);
		if (job->step == NEVER)
			ck_assert_msg(o->status == RUBATO_OK, "rank %u: %s", r, o->text);
		else
			ck_assert_msg(o->status == RUBATO_OK || is_named(job, lost, o->text),
				      "seed %llu: rank %u of %u dies at step %u: rank %u: %s: %s",
				      (unsigned long long)job->seed, job->victim, job->rank_count,
				      job->step, r, rubato_status_name(o->status), o->text);
	}
	return count - (job->step != NEVER);
}

struct tally {
	uint32_t errors, foreign; /* Ranks that were given one; that UCX has ended. */
};

/* How many exchanges rank 0 has made. */
static uint32_t job_run(const struct job *job, struct tally *tally)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t until_ns = rb_clock_ns() + PATIENCE_NS;
	pid_t children[RANKS_MAX];
	uint32_t exchanges;
	int died = 0, output = memfd_create("output", 0);

	ck_assert_int_ge(output, 0);
	ck_assert_ptr_ne(s, MAP_FAILED);
	(void)fflush(NULL);
	for (uint32_t r = 0; r < job->rank_count; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			child_main(job, s, r, output);
	}
	while (!all_ended(job, s) && rb_clock_ns() < until_ns) {
		rb_clock_sleep_until(rb_clock_ns() + 500000);
		/* Its number is then nobody's. */
		if (job->step != NEVER && job->reaped && children[job->victim] > 0 &&
		    waitpid(children[job->victim], &died, WNOHANG) > 0)
			children[job->victim] = -1;
	}
	tally->foreign += judge(job, s, children, output);
	for (uint32_t r = 0; r < job->rank_count; r++) {
		int status = died;
		bool dies = r == job->victim && job->step != NEVER;

		if (children[r] > 0)
			ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
		if (dies)
			ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else if (children[r] > 0)
			ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		tally->errors += s->outcomes[r].status != RUBATO_OK;
	}
	(void)close(output);
	exchanges = atomic_load(&s->exchanges);
	(void)munmap(s, sizeof(*s));
	return exchanges;
}

static uint32_t rounds_wanted(void)
{
	switch (test_length()) {
	case TEST_SHORT:
		return 1;
	case TEST_LONG:
		return 50;
	default:
		return 3;
	}
}

START_TEST(others_name_the_dead)
{
	struct job job = { .rank_count = 2, .step = NEVER };
	struct tally tally = { 0 };
	uint32_t steps = 2 * job_run(&job, &tally), jobs = 0;
	struct seeds seeds;

	ck_assert_uint_ge(steps, 4); /* Addresses, and what is agreed after them. */
	seeds = seeds_from(__func__, 1, (uint64_t)rounds_wanted() * steps);
	for (uint64_t seed; seeds_next(&seeds, &seed); jobs++) {
		struct rb_rng rng = { seed };

		job.seed = seed;
		job.rank_count = 3 + (uint32_t)rb_rng_below(&rng, RANKS_MAX - 2);
		job.victim = (uint32_t)rb_rng_below(&rng, job.rank_count);
		job.step = (uint32_t)(seed % steps);
		job.reaped = rb_rng_below(&rng, 2) == 0;
		(void)job_run(&job, &tally);
	}
	(void)fprintf(stderr, "%s: %u steps, %u jobs, %u errors, %u ranks ended by UCX\n",
		      transport, steps, jobs, tally.errors, tally.foreign);
	/* Somebody else is told in each, and mostly all are. */
	ck_assert_uint_ge(tally.errors + tally.foreign, jobs);
	ck_assert_uint_le(tally.foreign, jobs / 8 + 2);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("deaths");
	TCase *tc = tcase_create("start-up");

	transport = argc > 1 ? argv[1] : "shm";
	(void)setenv("RUBATO_TRANSPORT", transport, 1);
	if (strcmp(transport, "tcp") == 0)
		(void)setenv("RUBATO_INTERFACE", "lo", 1);
	tcase_add_test(tc, others_name_the_dead);
	tcase_set_timeout(tc, 600);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
