/* init.c -- the public functions that come before a communicator: settings, jobs, ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "runtime/open.h"
#include "runtime/startup/quota.h"

static rubato_status options_apply(const rubato_options *options, struct rb_config *config,
				   struct rb_job *job)
{
	char bytes[24];

	if (options == NULL)
		return RUBATO_OK;
	if (options->size_bytes < sizeof(rubato_options) || options->flags != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "options: start from RUBATO_OPTIONS_INIT (size %u, flags %u)",
			       options->size_bytes, options->flags);
	if (options->transport != NULL) {
		if (strlen(options->transport) >= sizeof(config->transport.text))
			return RB_FAIL(
				RUBATO_ERR_ARGUMENT,
				"RUBATO_TRANSPORT=%.64s: %zu characters, expected 15 at most",
				options->transport, strlen(options->transport));
		(void)snprintf(config->transport.text, sizeof(config->transport.text), "%s",
			       options->transport);
		config->source.transport = RB_CONFIG_OPTIONS;
	}
	if (options->timeout_ns > 0) {
		config->timeout.number = options->timeout_ns;
		config->source.timeout = RB_CONFIG_OPTIONS;
	}
	if (options->heap_bytes > 0) {
		(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, options->heap_bytes);
		RB_TRY(rb_config_set(config, "RUBATO_HEAP", bytes));
	}
	if (options->secret != NULL && job != NULL)
		RB_TRY(rb_job_set_secret(job, options->secret, (size_t)options->secret_bytes));
	return RUBATO_OK;
}

/* Of options that need not be good. */
static uint64_t timeout_of(const rubato_options *options)
{
	bool good = options != NULL && options->size_bytes >= sizeof(*options) &&
		    options->flags == 0 && options->timeout_ns > 0;

	return good ? options->timeout_ns : 60000000000u;
}

/* By a launcher's store: where ranks meet, and their secret. */
static rubato_status stored_open(const struct rb_config *config, struct rb_job *job,
				 struct rb_setup *setup, uint64_t deadline_ns)
{
	struct rb_store store;
	rubato_status err = rb_store_open(job->store, deadline_ns, &store);

	if (err != RUBATO_OK)
		return err;
	err = rb_job_from_store(&store, config->interface.text, deadline_ns, job);
	if (err == RUBATO_OK)
		err = rb_rendezvous_open(job, deadline_ns, &setup->bootstrap);
	rb_store_close(&store);
	return err;
}

static rubato_status job_open(const struct rb_config *config, struct rb_job *job,
			      rubato_comm **comm)
{
	struct rb_setup setup = { .config = config };
	uint64_t deadline_ns = rb_deadline(rb_clock_ns(), config->timeout.number);

	if (job->rank_count > 1 && job->store != RB_STORE_NONE)
		RB_TRY(stored_open(config, job, &setup, deadline_ns));
	else if (job->rank_count > 1)
		RB_TRY(rb_rendezvous_open(job, deadline_ns, &setup.bootstrap));
	else if (job->listener >= 0)
		(void)close(job->listener); /* An id for one rank: nobody will come. */
	return rb_comm_open(&setup, comm);
}

/* Settings and options, then the job that they name; that of an id is known. */
static rubato_status job_prepare(struct rb_config *config, bool known,
				 const rubato_options *options, struct rb_job *job)
{
	bool found;

	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	RB_TRY(rb_config_read(config));
	if (!known)
		RB_TRY(rb_job_from_environment(config, job, &found));
	if (job->source != NULL) /* A launcher's root counts as ours. */
		(void)snprintf(config->root.text, sizeof(config->root.text), "%s", job->root);
	return options_apply(options, config, job);
}

/* Others wait for this rank, whose settings or options are bad: it comes, to say so. Of rank 0 they
 * find that nobody listens. */
static rubato_status job_refuse(const struct rb_job *job, uint64_t timeout_ns, rubato_status err)
{
	uint64_t deadline_ns = rb_deadline(rb_clock_ns(), timeout_ns);
	struct rb_bootstrap *bootstrap;
	char text[RB_TEXT_BYTES];

	if (job->rank == 0) {
		if (job->listener >= 0)
			(void)close(job->listener);
		return err;
	}
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (rb_rendezvous_open(job, deadline_ns, &bootstrap) == RUBATO_OK) {
		(void)RB_FAIL(err, "%s", text);
		(void)bootstrap->end(bootstrap, false);
		bootstrap->close(bootstrap);
	}
	return RB_FAIL(err, "%s", text);
}

/* Joins the job of `id`, or of the environment where that is NULL: there a launcher ends the others
 * where one fails before it knows its job. */
static rubato_status job_join(rubato_comm **comm, const rubato_id *id, uint32_t rank, uint32_t size,
			      const rubato_options *options)
{
	struct rb_job job = { .listener = -1 };
	struct rb_config *config;
	rubato_status err;

	rb_process_standard_open();
	if (id != NULL)
		RB_TRY(rb_job_from_id(id, rank, size, &job));
	config = calloc(1, sizeof(*config));
	err = job_prepare(config, id != NULL, options, &job);
	if (err == RUBATO_OK)
		err = job_open(config, &job, comm);
	else if (id != NULL)
		err = job_refuse(&job, timeout_of(options), err);
	explicit_bzero(&job, sizeof(job)); /* It held the secret. */
	free(config);
	return err;
}

rubato_status rubato_init(rubato_comm **comm, const rubato_options *options)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "init: comm is NULL: nowhere to put the communicator");
	return job_join(comm, NULL, 0, 1, options);
}

rubato_status rubato_job_explain(char *text, size_t text_bytes)
{
	struct rb_config *config;
	struct rb_job job;
	rubato_status err;
	bool found;

	if (text == NULL && text_bytes > 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "job: text is NULL");
	config = calloc(1, sizeof(*config));
	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		err = rb_job_from_environment(config, &job, &found);
	if (err == RUBATO_OK && found)
		(void)snprintf(text, text_bytes, "rank %u of %u%s%s%s%s, says %s", job.rank,
			       job.rank_count, job.root[0] != '\0' ? ", rank 0 at " : "", job.root,
			       job.store != RB_STORE_NONE ? ", rank 0 known by " : "",
			       job.store != RB_STORE_NONE ? rb_store_name(job.store) : "",
			       job.source);
	else if (err == RUBATO_OK)
		(void)snprintf(text, text_bytes, "one rank: the environment names no job");
	explicit_bzero(&job, sizeof(job));
	free(config);
	return err;
}

rubato_status rubato_id_create(rubato_id *id)
{
	struct rb_config *config;
	rubato_status err;

	if (id == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "id: NULL");
	rb_process_standard_open();
	config = calloc(1, sizeof(*config));
	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		err = rb_job_make_id(id, config->interface.text);
	free(config);
	return err;
}

rubato_status rubato_init_id(rubato_comm **comm, const rubato_id *id, uint32_t rank, uint32_t size,
			     const rubato_options *options)
{
	if (comm == NULL || id == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "init: NULL");
	return job_join(comm, id, rank, size, options);
}

/* Settings that are bad here must not leave the others in their callback. */
static rubato_status callback_join(rubato_comm **comm, const struct rb_config *config,
				   struct rb_bootstrap *bootstrap, rubato_status err)
{
	struct rb_setup setup = { .config = config, .bootstrap = bootstrap };

	if (err == RUBATO_OK)
		return rb_comm_open(&setup, comm);
	if (bootstrap != NULL) {
		(void)bootstrap->end(bootstrap, false);
		bootstrap->close(bootstrap);
	}
	return err;
}

rubato_status rubato_init_oob(rubato_comm **comm, rubato_allgather_function allgather, void *arg,
			      uint32_t rank, uint32_t size, const rubato_options *options)
{
	struct rb_bootstrap *bootstrap = NULL;
	struct rb_config *config;
	rubato_status err, opened = RUBATO_OK;
	char text[RB_TEXT_BYTES];

	if (comm == NULL || allgather == NULL || rank >= size)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "init: %s",
			       comm == NULL || allgather == NULL ? "NULL" : "no such rank");
	rb_process_standard_open();
	config = calloc(1, sizeof(*config));
	if (config == NULL && size > 1)
		rb_callback_refuse(allgather, arg, size);
	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	config->timeout.number = 60000000000u;
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		err = options_apply(options, config, NULL);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (size > 1)
		opened = rb_callback_open(allgather, arg, rank, size,
					  rb_deadline(rb_clock_ns(), config->timeout.number),
					  &bootstrap);
	if (err != RUBATO_OK)
		err = RB_FAIL(err, "%s", text);
	err = callback_join(comm, config, bootstrap, err != RUBATO_OK ? err : opened);
	free(config);
	return err;
}

rubato_status rubato_config_each(void (*row)(void *arg, const char *variable, const char *value,
					     const char *source, const char *help),
				 void *arg)
{
	struct rb_config *config;
	rubato_status err;

	if (row == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "settings: the function to call is NULL");
	config = calloc(1, sizeof(*config));
	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		rb_config_each(config, row, arg);
	free(config);
	return err;
}

uint32_t rubato_processor_limit(void)
{
	return rb_quota_find("").milli;
}
