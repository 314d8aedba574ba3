/* local.c -- see local.h. */
#include "tests/runtime/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCAL_TIMEOUT_NS 60000000000u

struct local_job {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t rank_count, arrived, left;
	void **blobs;
	size_t *bytes;
	const struct rb_transport_ops *const *transports;
	local_main rank_main;
	void *arg;
	rubato_status *status;
	bool finalize;
	const struct rb_config *config;
};

struct local_round { /* One exchange's result: handed out until close. */
	struct local_round *next;
	const void **out;
	size_t *out_bytes;
};

struct local_rank {
	struct rb_bootstrap base;
	struct local_job *job;
	struct local_round *rounds;
};

static bool wait_until(struct local_job *job, const uint32_t *word, uint32_t value)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	while (*word != value)
		if (pthread_cond_timedwait(&job->changed, &job->lock, &until) == ETIMEDOUT)
			return false;
	return true;
}

static void blobs_copy(struct local_rank *me)
{
	uint32_t n = me->job->rank_count;
	struct local_round *round = calloc(1, sizeof(*round));

	round->out = calloc(n, sizeof(*round->out));
	round->out_bytes = calloc(n, sizeof(*round->out_bytes));
	for (uint32_t r = 0; r < n; r++) {
		void *copy = malloc(me->job->bytes[r] + 1);

		memcpy(copy, me->job->blobs[r], me->job->bytes[r]);
		round->out[r] = copy;
		round->out_bytes[r] = me->job->bytes[r];
	}
	round->next = me->rounds;
	me->rounds = round;
}

static rubato_status local_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				     const void *const **out, const size_t **out_bytes,
				     uint64_t deadline_ns)
{
	struct local_rank *me = (struct local_rank *)b;
	struct local_job *job = me->job;
	bool fine;

	(void)deadline_ns;
	pthread_mutex_lock(&job->lock);
	fine = wait_until(job, &job->left, 0); /* The round before. */
	free(job->blobs[b->rank]);
	job->blobs[b->rank] = malloc(in_bytes + 1);
	memcpy(job->blobs[b->rank], in, in_bytes);
	job->bytes[b->rank] = in_bytes;
	job->arrived++;
	pthread_cond_broadcast(&job->changed);
	fine = fine && wait_until(job, &job->arrived, job->rank_count);
	if (fine) {
		blobs_copy(me);
		if (++job->left == job->rank_count)
			job->arrived = job->left = 0;
		pthread_cond_broadcast(&job->changed);
	}
	while (fine && job->left != 0)
		fine = wait_until(job, &job->left, 0);
	pthread_mutex_unlock(&job->lock);
	if (!fine)
		return RB_FAIL(RUBATO_ERR_TIMEOUT, "local bootstrap: a rank is missing");
	*out = me->rounds->out;
	*out_bytes = me->rounds->out_bytes;
	return RUBATO_OK;
}

static void local_close(struct rb_bootstrap *b)
{
	struct local_rank *me = (struct local_rank *)b;

	while (me->rounds != NULL) {
		struct local_round *next = me->rounds->next;

		for (uint32_t r = 0; r < me->job->rank_count; r++)
			free((void *)(uintptr_t)me->rounds->out[r]);
		free(me->rounds->out);
		free(me->rounds->out_bytes);
		free(me->rounds);
		me->rounds = next;
	}
	free(me);
}

static rubato_status rank_run(struct local_job *job, uint32_t rank)
{
	struct local_rank *me = calloc(1, sizeof(*me));
	struct rb_setup setup = { .config = job->config,
				  .timeout_ns = LOCAL_TIMEOUT_NS,
				  .heap_bytes = (uint64_t)1 << 30,
				  .transports = job->transports };
	rubato_comm *comm = NULL;
	rubato_status err;

	me->base = (struct rb_bootstrap) { .rank = rank,
					   .rank_count = job->rank_count,
					   .job = "local test job",
					   .allgather = local_allgather,
					   .close = local_close };
	me->job = job;
	setup.bootstrap = &me->base;
	err = rb_comm_open(&setup, &comm);
	if (err == RUBATO_OK) {
		err = job->rank_main(comm, job->arg);
		if (err != RUBATO_OK)
			fprintf(stderr, "rank %u: %s: %s\n", rank, rubato_status_name(err),
				rubato_error_text());
		if (job->finalize) {
			rubato_status end = rubato_finalize(comm);

			err = err != RUBATO_OK ? err : end;
		}
	} else {
		fprintf(stderr, "rank %u cannot open: %s\n", rank, rubato_error_text());
	}
	return err;
}

struct start {
	struct local_job *job;
	uint32_t rank;
};

static void *rank_thread(void *arg)
{
	struct start *start = arg;

	start->job->status[start->rank] = rank_run(start->job, start->rank);
	return NULL;
}

static rubato_status run(uint32_t n, const struct rb_transport_ops *const *transports,
			 local_main rank_main, void *arg, rubato_status *status, bool finalize)
{
	struct rb_config *config = calloc(1, sizeof(*config));
	struct local_job job = { .lock = PTHREAD_MUTEX_INITIALIZER,
				 .changed = PTHREAD_COND_INITIALIZER,
				 .rank_count = n,
				 .transports = transports,
				 .rank_main = rank_main,
				 .arg = arg,
				 .finalize = finalize };
	pthread_t *threads = calloc(n, sizeof(*threads));
	struct start *starts = calloc(n, sizeof(*starts));
	rubato_status first = rb_config_read(config);

	job.config = config;
	job.blobs = calloc(n, sizeof(*job.blobs));
	job.bytes = calloc(n, sizeof(*job.bytes));
	job.status = status != NULL ? status : calloc(n, sizeof(*job.status));
	for (uint32_t r = 0; first == RUBATO_OK && r < n; r++) {
		starts[r] = (struct start) { &job, r };
		if (pthread_create(&threads[r], NULL, rank_thread, &starts[r]) != 0)
			abort();
	}
	for (uint32_t r = 0; first == RUBATO_OK && r < n; r++)
		pthread_join(threads[r], NULL);
	for (uint32_t r = 0; r < n; r++) {
		if (first == RUBATO_OK)
			first = job.status[r];
		free(job.blobs[r]);
	}
	free(job.blobs);
	free(job.bytes);
	if (status == NULL)
		free(job.status);
	free(threads);
	free(starts);
	free(config);
	return first;
}

rubato_status local_run(uint32_t rank_count, const struct rb_transport_ops *const *transports,
			local_main rank_main, void *arg, rubato_status *status)
{
	return run(rank_count, transports, rank_main, arg, status, true);
}

rubato_status local_run_raw(uint32_t rank_count, const struct rb_transport_ops *const *transports,
			    local_main rank_main, void *arg, rubato_status *status)
{
	return run(rank_count, transports, rank_main, arg, status, false);
}

const struct rb_transport_ops *local_transport(const char *name)
{
#ifdef RB_HAVE_UCX
	if (strcmp(name, "ucx") == 0 || strcmp(name, "tcp") == 0)
		return &rb_transport_ucx;
#endif
#ifdef RB_HAVE_VERBS
	if (strcmp(name, "verbs") == 0)
		return &rb_transport_verbs;
#endif
	(void)name;
	return &rb_transport_shm;
}

void local_transport_replace(rubato_comm *comm, const struct rb_transport_ops *ops)
{
	rb_engine_enter(&comm->engine); /* They read it under this lock. */
	rb_comm_endpoint(comm)->ops = ops;
	rb_engine_leave(&comm->engine);
}
