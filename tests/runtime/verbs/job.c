/* job.c -- see job.h. */
#include "tests/runtime/verbs/job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/comm.h"
#include "runtime/open.h"
#include "runtime/startup/setup.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/limit.h"
#include "tests/verbs-mock/late.h"

#define SMALL 64u
#define LARGE 40000u /* Written, not sent: 160 KB. */
#define PUT 3000u
#define ROUNDS 3u
#define EXCHANGES_MAX 16u
#define CALLS_MAX 64u
#define STARVED_NS (JOB_TIMEOUT_NS / 2) /* What is silent for so long is noticed. */

struct job_mock job_mock;

/* ---- A start-up between two threads ---- */

struct start {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t done[2]; /* Exchanges that the rank has brought its blob to. */
	bool gone[2];     /* It takes part in none any more. */
	void *blobs[EXCHANGES_MAX][2];
	size_t bytes[EXCHANGES_MAX][2];
};

struct seat {
	struct rb_bootstrap base;
	struct start *start;
};

/* What counts calls, of a run; one job runs at a time. */
struct run {
	struct job *job;
	struct start start;
	struct rb_config config;
	uint64_t counts[2][CALLS_MAX];
};

static _Thread_local uint32_t thread_rank = JOB_NONE;

static rubato_status start_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				     const void *const **out, const size_t **out_bytes,
				     uint64_t deadline_ns)
{
	struct start *start = ((struct seat *)b)->start;
	uint32_t other = 1 - b->rank, now;
	const struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000u),
					.tv_nsec = (long)(deadline_ns % 1000000000u) };
	int error = 0;

	pthread_mutex_lock(&start->lock);
	now = start->done[b->rank]++;
	ck_assert_uint_lt(now, EXCHANGES_MAX);
	start->blobs[now][b->rank] = malloc(in_bytes + 1);
	memcpy(start->blobs[now][b->rank], in, in_bytes);
	start->bytes[now][b->rank] = in_bytes;
	pthread_cond_broadcast(&start->changed);
	while (start->done[other] <= now && !start->gone[other] && error != ETIMEDOUT)
		error = pthread_cond_timedwait(&start->changed, &start->lock, &until);
	error = start->done[other] <= now ? ETIMEDOUT : 0;
	pthread_mutex_unlock(&start->lock);
	if (error != 0)
		return RB_FAIL(RUBATO_ERR_PEER, "start-up: rank %u does not come", other);
	*out = (const void *const *)start->blobs[now];
	*out_bytes = start->bytes[now];
	return RUBATO_OK;
}

static void start_close(struct rb_bootstrap *b)
{
	struct start *start = ((struct seat *)b)->start;

	pthread_mutex_lock(&start->lock);
	start->gone[b->rank] = true;
	pthread_cond_broadcast(&start->changed);
	pthread_mutex_unlock(&start->lock);
	free(b);
}

static void start_init(struct start *start)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&start->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&start->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static void start_fini(struct start *start)
{
	for (uint32_t i = 0; i < EXCHANGES_MAX; i++)
		for (uint32_t r = 0; r < 2; r++)
			free(start->blobs[i][r]);
	pthread_mutex_destroy(&start->lock);
	pthread_cond_destroy(&start->changed);
}

/* ---- What the ranks do ---- */

static rubato_status sums_of(rubato_comm *comm, float *in, float *out, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		in[i] = (float)(i % 1000 + rubato_rank(comm));
	RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM));
	for (uint32_t i = 0; i < count; i++)
		if (out[i] != (float)(2 * (i % 1000) + 1))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u is %g", i,
				       count, (double)out[i]);
	return RUBATO_OK;
}

static rubato_status message(rubato_comm *comm, float *in, float *out, uint32_t count, bool first)
{
	uint32_t me = rubato_rank(comm), other = 1 - me;

	for (uint32_t i = 0; i < count; i++)
		in[i] = (float)(i % 1000 * 2 + me);
	if (first)
		RB_TRY(rubato_send(comm, in, count, RUBATO_FLOAT32, other, 3));
	RB_TRY(rubato_recv(comm, out, count, RUBATO_FLOAT32, other, 3));
	if (!first)
		RB_TRY(rubato_send(comm, in, count, RUBATO_FLOAT32, other, 3));
	for (uint32_t i = 0; i < count; i++)
		if (out[i] != (float)(i % 1000 * 2 + other))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u came as %g", i,
				       count, (double)out[i]);
	return RUBATO_OK;
}

static rubato_status put(rubato_comm *comm, float *in, float *out)
{
	uint32_t me = rubato_rank(comm);

	for (uint32_t i = 0; i < PUT; i++)
		in[i] = (float)(i * 2 + me);
	RB_TRY(rubato_set_algorithm(comm, "allgather", "flat_put"));
	RB_TRY(rubato_allgather(comm, in, out, PUT, RUBATO_FLOAT32));
	for (uint32_t i = 0; i < 2 * PUT; i++)
		if (out[i] != (float)(i % PUT * 2 + i / PUT))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: put element %u is %g", i,
				       (double)out[i]);
	return RUBATO_OK;
}

/* All that both have given, in whichever rounds. */
static rubato_status rounds_collect(rubato_partial *partial, int64_t *total)
{
	int64_t out[SMALL];
	bool collected = true;

	while (collected) {
		RB_TRY(rubato_partial_collect(partial, out, &collected, NULL,
					      RUBATO_TIMEOUT_DEFAULT));
		for (uint32_t i = 0; collected && i < SMALL; i++)
			total[i] += out[i];
	}
	return RUBATO_OK;
}

static rubato_status rounds_run(rubato_comm *comm, rubato_partial *partial)
{
	int64_t given[SMALL], total[SMALL] = { 0 };
	uint32_t me = rubato_rank(comm);

	for (uint32_t step = 0; step < ROUNDS; step++) {
		for (uint32_t i = 0; i < SMALL; i++)
			given[i] = (int64_t)i * (me + 1) + step;
		RB_TRY(rubato_partial_contribute(partial, given, step, 1));
		RB_TRY(rounds_collect(partial, total));
	}
	RB_TRY(rubato_partial_drain(partial));
	RB_TRY(rounds_collect(partial, total));
	for (uint32_t i = 0; i < SMALL; i++)
		if (total[i] != (int64_t)(3 * i * ROUNDS + ROUNDS * (ROUNDS - 1)))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: all rounds' element %u is %lld",
				       i, (long long)total[i]);
	return RUBATO_OK;
}

static rubato_status rounds(rubato_comm *comm)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *partial;
	rubato_status status, end;

	RB_TRY(rubato_partial_create(comm, SMALL, RUBATO_INT64, RUBATO_SUM, &options, &partial));
	status = rounds_run(comm, partial);
	if (status != RUBATO_OK) {
		char text[JOB_TEXT_BYTES];

		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
		(void)rubato_abort(comm);
		(void)rubato_partial_free(partial);
		return RB_FAIL(status, "%s", text);
	}
	end = rubato_partial_free(partial);
	return end;
}

static rubato_status exchange(rubato_comm *comm, float *plain, float *mine)
{
	float *plain_out = plain + LARGE, *out = mine + LARGE;
	bool first = rubato_rank(comm) == 0;

	RB_TRY(sums_of(comm, plain, plain_out, SMALL));
	RB_TRY(sums_of(comm, plain, plain_out, LARGE));
	RB_TRY(sums_of(comm, mine, out, LARGE));
	RB_TRY(message(comm, plain, plain_out, 1, first));
	RB_TRY(message(comm, plain, plain_out, LARGE, first));
	RB_TRY(message(comm, mine, out, LARGE, !first));
	RB_TRY(put(comm, mine, out));
	RB_TRY(rounds(comm));
	return rubato_barrier(comm);
}

static rubato_status program(const struct job *job, rubato_comm *comm)
{
	float *plain = malloc(2 * sizeof(float) * LARGE), *mine = NULL;
	rubato_status status = rubato_alloc(comm, 2 * sizeof(float) * LARGE, (void **)&mine);

	for (uint32_t i = 0; status == RUBATO_OK && i <= job->rounds_more; i++)
		status = exchange(comm, plain, mine);
	free(plain);
	return status;
}

/* ---- Running ---- */

static void said(struct job *job, uint32_t rank, rubato_status status)
{
	if (status == RUBATO_OK || job->texts[rank][0] != '\0')
		return;
	job->status[rank] = status;
	(void)snprintf(job->texts[rank], sizeof(job->texts[rank]), "%s: %s",
		       rubato_status_name(status), rubato_error_text());
}

static void rank_run(struct run *run, uint32_t rank)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_verbs, NULL };
	struct job *job = run->job;
	struct seat *seat = calloc(1, sizeof(*seat));
	struct rb_setup setup = {
		.config = &run->config,
		.timeout_ns = job->timeout_ns > 0 ? job->timeout_ns : JOB_TIMEOUT_NS,
		.heap_bytes = (uint64_t)1 << 24,
		.transports = transports,
		.bootstrap = &seat->base,
	};
	rubato_comm *comm = NULL;
	rubato_status status;

	seat->start = &run->start;
	seat->base = (struct rb_bootstrap) { .rank = rank,
					     .rank_count = 2,
					     .job = "job of verbs",
					     .allgather = start_allgather,
					     .close = start_close };
	status = rb_comm_open(&setup, &comm);
	said(job, rank, status);
	if (status != RUBATO_OK)
		return;
	job->stage[rank] = JOB_RUNS;
	status = program(job, comm);
	said(job, rank, status);
	job->stage[rank] = JOB_LEAVES;
	if (status != RUBATO_OK)
		(void)rubato_abort(comm);
	status = rubato_finalize(comm);
	if (job->texts[rank][0] == '\0')
		said(job, rank, status);
}

struct thread {
	pthread_t thread;
	struct run *run;
	uint32_t rank;
	uint64_t starved_ns;
};

/* 0 where the system does not say. */
static uint64_t thread_starved_ns(void)
{
	unsigned long long ran = 0, starved = 0;
	FILE *file = fopen("/proc/thread-self/schedstat", "re");

	if (file == NULL)
		return 0;
	if (fscanf(file, "%llu %llu", &ran, &starved) != 2)
		starved = 0;
	(void)fclose(file);
	return starved;
}

static void *thread_main(void *arg)
{
	struct thread *me = arg;

	thread_rank = me->rank;
	job_mock.node(me->rank);
	rank_run(me->run, me->rank);
	me->starved_ns = thread_starved_ns();
	return NULL;
}

static int call_seen(void *arg, const char *function)
{
	struct run *run = arg;
	uint32_t rank = thread_rank, index = 0;

	if (rank == JOB_NONE || run->job->at_call == NULL)
		return 0;
	/* Check's assertions write to a file each time. It is one of the mock's own texts. */
	while (index + 1 < CALLS_MAX && job_mock.call_name(index) != function)
		index++;
	return run->job->at_call(run->job, rank, function, ++run->counts[rank][index]);
}

static void mock_find(void)
{
	const struct mock_symbol symbols[] = {
		{ "mock_reset", (void **)&job_mock.reset },
		{ "mock_config_default", (void **)&job_mock.config_default },
		{ "mock_counters", (void **)&job_mock.counters },
		{ "mock_node", (void **)&job_mock.node },
		{ "mock_set", (void **)&job_mock.set },
		{ "mock_call_count", (void **)&job_mock.call_count },
		{ "mock_call_name", (void **)&job_mock.call_name },
		{ "mock_watch_calls", (void **)&job_mock.watch_calls },
		{ "mock_loss", (void **)&job_mock.loss },
		{ "mock_device_event", (void **)&job_mock.device_event },
		{ "mock_qp_event", (void **)&job_mock.qp_event },
		{ "mock_cq_error", (void **)&job_mock.cq_error },
		{ "mock_fail_send", (void **)&job_mock.fail_send },
		{ "mock_fired", (void **)&job_mock.fired },
		{ "mock_qp_numbers", (void **)&job_mock.qp_numbers },
		{ "mock_set_node", (void **)&job_mock.set_node },
		{ "mock_carry_datagrams", (void **)&job_mock.carry_datagrams },
		{ "mock_gid", (void **)&job_mock.gid },
	};

	mock_symbols_find(symbols, sizeof(symbols) / sizeof(symbols[0]));
}

void job_init(struct job *job)
{
	memset(job, 0, sizeof(*job));
	mock_find();
	job_mock.config_default(&job->config);
}

void job_run(struct job *job)
{
	struct run *run = calloc(1, sizeof(*run));
	struct thread threads[2];
	uint64_t begun_ns = rb_clock_ns();

	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_MEASURE", job->measures ? "1" : "0", 1), 0);
	if (job->sleepy)
		ck_assert_int_eq(setenv("RUBATO_SPIN", "1ns", 1), 0);
	ck_assert_int_eq(rb_config_read(&run->config), RUBATO_OK);
	ck_assert_int_eq(job_mock.reset(&job->config), 0);
	run->job = job;
	if (job->prepared != NULL)
		job->prepared(job);
	start_init(&run->start);
	job_mock.watch_calls(call_seen, run);
	for (uint32_t r = 0; r < 2; r++) {
		threads[r] = (struct thread) { .run = run, .rank = r };
		ck_assert_int_eq(pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]),
				 0);
	}
	for (uint32_t r = 0; r < 2; r++) {
		pthread_join(threads[r].thread, NULL);
		if (threads[r].starved_ns > job->starved_ns)
			job->starved_ns = threads[r].starved_ns;
	}
	job_mock.watch_calls(NULL, NULL);
	job_mock.carry_datagrams(NULL, NULL);
	job_mock.counters(&job->counters);
	job->took_ns = rb_clock_ns() - begun_ns;
	start_fini(&run->start);
	free(run);
}

/* ---- What must be so ---- */

bool job_is_right(const struct job *job)
{
	return job->texts[0][0] == '\0' && job->texts[1][0] == '\0';
}

static bool names(const char *text, uint32_t other)
{
	char rank[16], ranks[16];

	(void)snprintf(rank, sizeof(rank), "rank %u", other);
	(void)snprintf(ranks, sizeof(ranks), "ranks %u", other);
	return strstr(text, "mock") != NULL || strstr(text, rank) != NULL ||
	       strstr(text, ranks) != NULL || strstr(text, "RDMA") != NULL;
}

static bool world_is_good(const struct job *job, char *text, size_t text_bytes)
{
	const struct mock_counters *c = &job->counters;

	(void)snprintf(text, text_bytes,
		       "RNR %llu, outside here %llu and there %llu, overruns %llu, lengths %llu, "
		       "left open %llu",
		       (unsigned long long)c->rnr, (unsigned long long)c->outside_local,
		       (unsigned long long)c->outside_remote, (unsigned long long)c->cq_overruns,
		       (unsigned long long)c->length_errors, (unsigned long long)c->left_open);
	return c->rnr + c->outside_local + c->outside_remote + c->cq_overruns + c->length_errors ==
		       0 &&
	       (c->left_open == 0 || job->abrupt);
}

bool job_is_good(const struct job *job, char *text, size_t text_bytes)
{
	if (!world_is_good(job, text, text_bytes))
		return false;
	(void)snprintf(text, text_bytes, "took %llu ms: %s; %s",
		       (unsigned long long)(job->took_ns / 1000000), job->texts[0], job->texts[1]);
	if (job->took_ns > JOB_LIMIT_NS)
		return false;
	for (uint32_t r = 0; r < 2; r++) {
		const char *said = job->texts[r];

		(void)snprintf(text, text_bytes, "%s: rank %u: %s",
			       job->fired == 0 ? "nothing has fired" : "unnamed", r, said);
		if (said[0] != '\0' &&
		    (job->fired == 0 || !names(said, 1 - r) || strstr(said, "wrong") != NULL))
			return false;
	}
	text[0] = '\0';
	return true;
}

/* Time alone can make it bad: nothing was wrong, and errors are those of waits. */
static bool job_is_starved(const struct job *job)
{
	char text[400];

	for (uint32_t r = 0; r < 2; r++)
		if (job->texts[r][0] != '\0' && job->status[r] != RUBATO_ERR_TIMEOUT &&
		    job->status[r] != RUBATO_ERR_PEER)
			return false;
	return job->starved_ns > STARVED_NS && world_is_good(job, text, sizeof(text));
}

/* ---- Series ---- */

#define WIDTH 24u
#define WIDTH_SHORT 8u /* Under sanitizers a job works longer than it sleeps. */
#define WIDTH_FIRST 1u
#define SHOWN_MAX 12u
#define CHILD_SECONDS 100u /* Under sanitizers, too. */
#define AGAIN_MAX 64u
#define TRIES 4u

struct verdict { /* Of a child, in memory that it shares. */
	pid_t pid;
	uint64_t k;
	bool fired, good, starved;
	char text[900];
};

struct series_state {
	struct verdict *verdicts; /* WIDTH of them. */
	uint64_t fired, missed, bad;
	uint64_t again[AGAIN_MAX], again_count; /* The k of those that are to be run alone. */
	char first[900];                        /* What was bad. */
};

static void child_main(const struct job_series *series, uint64_t k, struct verdict *verdict)
{
	struct job job;
	char name[200] = "", text[600] = "";

	limit_start(CHILD_SECONDS);
	job_init(&job);
	series->prepare(&job, series->arg, k, name, sizeof(name));
	(void)snprintf(verdict->text, sizeof(verdict->text), "%s: it has crashed", name);
	job_run(&job);
	verdict->fired = job.fired > 0;
	verdict->good =
		job_is_good(&job, text, sizeof(text)) &&
		(series->judge == NULL || series->judge(&job, series->arg, text, sizeof(text)));
	verdict->starved = job_is_starved(&job);
	(void)snprintf(verdict->text, sizeof(verdict->text), "%s: %s", name, text);
	if (job.abrupt)
		_exit(EXIT_SUCCESS); /* What could not be destroyed is a leak. */
}

static void child_start(const struct job_series *series, uint64_t k, struct verdict *verdict)
{
	pid_t pid;

	memset(verdict, 0, sizeof(*verdict));
	verdict->k = k;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid > 0) {
		verdict->pid = pid;
		return;
	}
	child_main(series, k, verdict);
	exit(EXIT_SUCCESS); /* Here leaks are looked for. */
}

/* Whichever ends first. */
static struct verdict *child_end(struct verdict *verdicts)
{
	struct verdict *verdict = verdicts;
	int status = 0;
	pid_t pid = waitpid(-1, &status, 0);
	size_t at;

	ck_assert_int_gt(pid, 0);
	while (verdict->pid != pid)
		verdict++;
	verdict->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return verdict;
	verdict->good = false;
	at = strlen(verdict->text);
	(void)snprintf(verdict->text + at, sizeof(verdict->text) - at, " (%s %d)",
		       WIFSIGNALED(status) ? "signal" : "exit",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return verdict;
}

/* At first one: where a run has no more calls of a kind, none of the others would fire. */
static uint64_t width(const struct job_series *series, uint64_t ended)
{
	uint64_t most = test_length() == TEST_SHORT ? WIDTH_SHORT : WIDTH;

	if (series->wide > 0)
		most = series->wide;
	return series->whole || ended + WIDTH_FIRST > most ? most : ended + WIDTH_FIRST;
}

static void series_judge(struct series_state *state, const struct verdict *verdict, bool may_again)
{
	if (!verdict->good && verdict->starved && may_again && state->again_count < AGAIN_MAX) {
		(void)fprintf(stderr, "again, for it had no processor: %s\n", verdict->text);
		state->again[state->again_count++] = verdict->k;
		return;
	}
	state->fired += verdict->fired;
	state->missed += !verdict->fired;
	if (verdict->good)
		return;
	if (state->bad++ == 0)
		memcpy(state->first, verdict->text, sizeof(state->first));
	if (state->bad <= SHOWN_MAX)
		(void)fprintf(stderr, "%s\n", verdict->text);
}

/* As many at a time as may be. */
static void series_all(const struct job_series *series, struct series_state *state)
{
	uint64_t k = 1, running = 0;
	bool over = false;

	for (;;) {
		struct verdict *verdict = state->verdicts;

		over = over || (series->last > 0 && k > series->last) ||
		       (state->missed > series->misses && !series->whole);
		if (!over && running < width(series, state->fired + state->missed)) {
			while (verdict->pid != 0)
				verdict++;
			child_start(series, k, verdict);
			k += series->step;
			running++;
			continue;
		}
		if (running == 0)
			break;
		series_judge(state, child_end(state->verdicts), true);
		running--;
	}
}

static void series_again(const struct job_series *series, struct series_state *state)
{
	for (uint64_t i = 0, tries = 0; i < state->again_count;) {
		child_start(series, state->again[i], state->verdicts);
		(void)child_end(state->verdicts);
		if (!state->verdicts->good && state->verdicts->starved && ++tries < TRIES)
			continue;
		series_judge(state, state->verdicts, false);
		tries = 0;
		i++;
	}
}

uint64_t job_series_run(const struct job_series *series)
{
	struct series_state state = { .verdicts = mmap(NULL, WIDTH * sizeof(*state.verdicts),
						       PROT_READ | PROT_WRITE,
						       MAP_SHARED | MAP_ANONYMOUS, -1, 0) };

	ck_assert_ptr_ne(state.verdicts, MAP_FAILED);
	(void)fflush(NULL);
	series_all(series, &state);
	series_again(series, &state);
	ck_assert_int_eq(munmap(state.verdicts, WIDTH * sizeof(*state.verdicts)), 0);
	if (state.bad > 0)
		ck_abort_msg("%llu jobs were not good, the first: %s",
			     (unsigned long long)state.bad, state.first);
	return state.fired;
}
