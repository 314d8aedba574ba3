/*
 * api.c -- the public functions: checks, the lock, and the sentence of the error. What they do is
 * in comm.c, op.c and memory.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/comm.h"
#include "runtime/startup/quota.h"

const char *rubato_error_text(void)
{
	return rb_fail_text();
}

/* ---- Start ---- */

static rubato_status options_apply(const rubato_options *options, struct rb_config *config,
				   struct rb_job *job)
{
	if (options == NULL)
		return RUBATO_OK;
	if (options->size_bytes < sizeof(rubato_options) || options->flags != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "options: start from RUBATO_OPTIONS_INIT (size %u, flags %u)",
			       options->size_bytes, options->flags);
	if (options->transport != NULL) {
		(void)snprintf(config->transport.text, sizeof(config->transport.text), "%s",
			       options->transport);
		config->source.transport = RB_CONFIG_OPTIONS;
	}
	if (options->timeout_ns > 0) {
		config->timeout.number = options->timeout_ns;
		config->source.timeout = RB_CONFIG_OPTIONS;
	}
	if (options->heap_bytes > 0) {
		config->heap.number = options->heap_bytes;
		config->source.heap = RB_CONFIG_OPTIONS;
	}
	if (options->secret != NULL && job != NULL)
		RB_TRY(rb_job_set_secret(job, options->secret, (size_t)options->secret_bytes));
	return RUBATO_OK;
}

static rubato_status job_open(const struct rb_config *config, const struct rb_job *job,
			      rubato_comm **comm)
{
	struct rb_setup setup = { .config = config };

	if (job->rank_count > 1)
		RB_TRY(rb_rendezvous_open(job, rb_deadline(rb_clock_ns(), config->timeout.number),
					  &setup.bootstrap));
	else if (job->listener >= 0)
		(void)close(job->listener); /* An id for one rank: nobody will come. */
	return rb_comm_open(&setup, comm);
}

/* Joins the job of `id`, or of the environment where that is NULL. */
static rubato_status job_join(rubato_comm **comm, const rubato_id *id, uint32_t rank, uint32_t size,
			      const rubato_options *options)
{
	struct rb_config *config = calloc(1, sizeof(*config));
	struct rb_job job;
	rubato_status err;
	bool found;

	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		err = id != NULL ? rb_job_from_id(id, rank, size, &job)
				 : rb_job_from_environment(config, &job, &found);
	if (err == RUBATO_OK && job.source != NULL) /* A launcher's root counts as ours. */
		(void)snprintf(config->root.text, sizeof(config->root.text), "%s", job.root);
	if (err == RUBATO_OK)
		err = options_apply(options, config, &job);
	if (err == RUBATO_OK)
		err = job_open(config, &job, comm);
	explicit_bzero(&job, sizeof(job)); /* It held the secret. */
	free(config);
	return err;
}

rubato_status rubato_init(rubato_comm **comm, const rubato_options *options)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "init: nowhere to put the communicator");
	return job_join(comm, NULL, 0, 1, options);
}

rubato_status rubato_job_explain(char *text, size_t text_bytes)
{
	struct rb_config *config = calloc(1, sizeof(*config));
	struct rb_job job;
	rubato_status err;
	bool found;

	if (config == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: %zu bytes", sizeof(*config));
	err = rb_config_read(config);
	if (err == RUBATO_OK)
		err = rb_job_from_environment(config, &job, &found);
	if (err == RUBATO_OK && found)
		(void)snprintf(text, text_bytes, "rank %u of %u%s%s, says %s", job.rank,
			       job.rank_count, job.root[0] != '\0' ? ", rank 0 at " : "", job.root,
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
	char text[400];

	if (comm == NULL || allgather == NULL || rank >= size)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "init: %s",
			       comm == NULL || allgather == NULL ? "NULL" : "no such rank");
	config = calloc(1, sizeof(*config));
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

uint32_t rubato_rank(const rubato_comm *comm)
{
	return comm->engine.rank;
}

uint32_t rubato_size(const rubato_comm *comm)
{
	return comm->engine.rank_count;
}

rubato_status rubato_config_each(void (*row)(void *arg, const char *variable, const char *value,
					     const char *source, const char *help),
				 void *arg)
{
	struct rb_config *config;
	rubato_status err;

	if (row == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "settings: no function to call");
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

/* ---- Memory ---- */

rubato_status rubato_alloc(rubato_comm *comm, size_t size_bytes, void **memory)
{
	struct rb_memory *made;
	rubato_status err;

	if (comm == NULL || memory == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "alloc: NULL");
	rb_engine_enter(&comm->engine);
	err = rb_memory_alloc(comm, size_bytes, &made);
	rb_engine_leave(&comm->engine);
	if (err == RUBATO_OK)
		*memory = made->base;
	return err;
}

static rubato_status memory_remove(rubato_comm *comm, void *memory, bool allocated,
				   const char *name)
{
	rubato_status err = RUBATO_OK;
	struct rb_memory *found;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: NULL", name);
	if (memory == NULL)
		return RUBATO_OK;
	rb_engine_enter(&comm->engine);
	found = comm->memory;
	while (found != NULL && (found->base != memory || found->allocated != allocated))
		found = found->next;
	if (found == NULL)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: %p is not the start of such memory", name,
			      memory);
	else
		rb_memory_drop(comm, found);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_free(rubato_comm *comm, void *memory)
{
	return memory_remove(comm, memory, true, "free");
}

rubato_status rubato_register(rubato_comm *comm, void *memory, size_t size_bytes)
{
	struct rb_memory *made;
	rubato_status err;

	if (comm == NULL || memory == NULL || size_bytes == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "register: NULL or empty");
	rb_engine_enter(&comm->engine);
	err = rb_memory_add(comm, memory, size_bytes, &made);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_unregister(rubato_comm *comm, void *memory)
{
	return memory_remove(comm, memory, false, "unregister");
}

/* ---- Blocking collectives ---- */

/* One-shots run one at a time, in the order of the calls. */
static rubato_status turn_take(struct rubato_comm *comm)
{
	struct rb_turn turn = { .mine = false, .next = NULL };
	rubato_status err;

	if (!comm->oneshot_busy) {
		comm->oneshot_busy = true;
		return RUBATO_OK;
	}
	*(comm->turns_last != NULL ? &comm->turns_last->next : &comm->turns_first) = &turn;
	comm->turns_last = &turn;
	err = rb_engine_wait_for(&comm->engine, &turn.mine, comm->timeout_ns);
	if (err == RUBATO_OK)
		return RUBATO_OK;

	struct rb_turn **at = &comm->turns_first, *last = NULL;

	while (*at != &turn) {
		last = *at;
		at = &(*at)->next;
	}
	*at = turn.next;
	if (comm->turns_last == &turn)
		comm->turns_last = last;
	return RB_FAIL(err, "another thread's collective did not end in time");
}

static void turn_give(struct rubato_comm *comm)
{
	struct rb_turn *next = comm->turns_first;

	comm->oneshot_busy = next != NULL;
	if (next == NULL)
		return;
	comm->turns_first = next->next;
	if (next->next == NULL)
		comm->turns_last = NULL;
	next->mine = true;
	/* Its thread may sleep, and we are about to leave. */
	if (comm->engine.waiters > 0)
		rb_engine_wake_waiters(&comm->engine);
	comm->engine.completed = true;
}

static void timeout_poison(struct rubato_op *op, uint64_t timeout_ns)
{
	const struct rb_run *run = rb_op_current(op);
	const struct rubato_comm *comm = op->comm;
	char name[96], absent[128], rounds[160] = "", text[480];

	rb_unmatched_look(op->comm);
	if (op->done)
		return;
	(void)rb_signature_text(&op->signature, name, sizeof(name));
	(void)rb_run_absent(run, absent, sizeof(absent));
	if (comm->relaxed != NULL)
		(void)comm->relaxed->text(comm, rounds, sizeof(rounds));
	(void)snprintf(text, sizeof(text), "%s, call %llu%s: rank %u waited %.3g s for%s%s", name,
		       (unsigned long long)op->number,
		       op->state == RB_OP_EXCHANGING ? " (exchange of buffers)" : "",
		       op->comm->engine.rank, (double)timeout_ns * 1e-9,
		       absent[0] != '\0' ? absent : " its own work", rounds);
	RB_LOG(RB_LOG_WARN, "%s", text);
	rb_engine_poison(&op->comm->engine, RUBATO_ERR_TIMEOUT, text);
}

static rubato_status oneshot_run(struct rubato_comm *comm)
{
	struct rubato_op *op = &comm->oneshot;
	rubato_status err = rb_op_prepare(op);

	if (err != RUBATO_OK) {
		op->done = true;
		rb_op_release(op);
		return err;
	}
	op->number = comm->oneshot_sequence++;
	comm->called[op->number % RB_CALLS_REMEMBERED] = op->signature;
	rb_op_start(op);
	if (rb_engine_wait_for(&comm->engine, &op->done, comm->timeout_ns) != RUBATO_OK)
		timeout_poison(op, comm->timeout_ns);
	err = op->status;
	rb_op_release(op);
	/* Ranks that never wait never sleep either. */
	if (comm->oneshot_sequence % RB_CALLS_REMEMBERED == 0)
		rb_unmatched_look(comm);
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(err, "%s", op->failure);
}

struct call { /* What distinguishes one public call from another. */
	enum rb_kind kind;
	const void *in;
	void *out;
	uint64_t count;
	rubato_type type;
	rubato_operator op;
	uint32_t root;
	enum rb_kind named;           /* What it is to the caller, where that is not `kind`. */
	const struct rb_shape *shape; /* Of uneven blocks. */
};

static void call_apply(const struct call *call, struct rubato_op *op)
{
	op->kind = call->kind;
	op->in = call->in;
	op->out = call->out;
	op->count = call->count;
	op->type = call->type;
	op->op = call->op;
	op->root = call->root;
	op->named = call->named;
	if (call->shape != NULL)
		op->shape = *call->shape;
}

static rubato_status collective_numbered(rubato_comm *comm, const struct call *call,
					 uint64_t *number)
{
	rubato_status err;
	char text[256];

	text[0] = '\0';

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: no communicator",
			       rb_kind_name(call->kind));
	rb_engine_enter(&comm->engine);
	err = rb_engine_check(&comm->engine);
	if (err == RUBATO_OK)
		err = turn_take(comm);
	if (err == RUBATO_OK) {
		call_apply(call, &comm->oneshot);
		err = oneshot_run(comm);
		*number = comm->oneshot.number;
		if (err != RUBATO_OK)
			(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
		turn_give(comm);
	}
	rb_engine_leave(&comm->engine);
	return err == RUBATO_OK || text[0] == '\0' ? err : RB_FAIL(err, "%s", text);
}

static rubato_status collective(rubato_comm *comm, const struct call *call)
{
	uint64_t number;

	return collective_numbered(comm, call, &number);
}

rubato_status rb_split_gather(rubato_comm *comm, const int64_t *in, int64_t *out, uint64_t *number)
{
	struct call call = { .kind = RB_KIND_ALLGATHER,
			     .in = in,
			     .out = out,
			     .count = RB_SPLIT_WORDS,
			     .type = RUBATO_INT64,
			     .named = RB_KIND_SPLIT };

	return collective_numbered(comm, &call, number);
}

rubato_status rubato_allreduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, rubato_operator op)
{
	return collective(
		comm, &(struct call) { RB_KIND_ALLREDUCE, in, out, count, type, op, .root = 0 });
}

rubato_status rubato_reduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			    rubato_type type, rubato_operator op, uint32_t root)
{
	return collective(
		comm, &(struct call) { RB_KIND_REDUCE, in, out, count, type, op, .root = root });
}

rubato_status rubato_reduce_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				    rubato_type type, rubato_operator op)
{
	return collective(comm, &(struct call) { RB_KIND_REDUCE_SCATTER, in, out, count, type, op,
						 .root = 0 });
}

rubato_status rubato_allgather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type)
{
	return collective(comm, &(struct call) { RB_KIND_ALLGATHER, in, out, count, type,
						 RUBATO_SUM, .root = 0 });
}

rubato_status rubato_broadcast(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			       uint32_t root)
{
	return collective(comm, &(struct call) { RB_KIND_BROADCAST, buffer, buffer, count, type,
						 RUBATO_SUM, .root = root });
}

rubato_status rubato_alltoall(rubato_comm *comm, const void *in, void *out, uint64_t count,
			      rubato_type type)
{
	return collective(comm, &(struct call) { RB_KIND_ALLTOALL, in, out, count, type, RUBATO_SUM,
						 .root = 0 });
}

rubato_status rubato_gather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			    rubato_type type, uint32_t root)
{
	return collective(comm, &(struct call) { RB_KIND_GATHER, in, out, count, type, RUBATO_SUM,
						 .root = root });
}

rubato_status rubato_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
			     rubato_type type, uint32_t root)
{
	return collective(comm, &(struct call) { RB_KIND_SCATTER, in, out, count, type, RUBATO_SUM,
						 .root = root });
}

rubato_status rubato_allgatherv(rubato_comm *comm, const void *in, void *out,
				const uint64_t *counts, const uint64_t *offsets, rubato_type type)
{
	return collective(
		comm,
		&(struct call) { RB_KIND_ALLGATHERV, in, out, 0, type, RUBATO_SUM, 0,
				 .shape = &(struct rb_shape) { counts, offsets, NULL, NULL, 0 } });
}

rubato_status rubato_reduce_scatterv(rubato_comm *comm, const void *in, void *out,
				     const uint64_t *counts, const uint64_t *offsets,
				     rubato_type type, rubato_operator op)
{
	return collective(comm, &(struct call) { RB_KIND_REDUCE_SCATTERV, in, out, 0, type, op, 0,
						 .shape = &(struct rb_shape) { counts, offsets,
									       NULL, NULL, 0 } });
}

rubato_status rubato_alltoallv(rubato_comm *comm, const void *in, const uint64_t *send_counts,
			       const uint64_t *send_offsets, void *out,
			       const uint64_t *receive_counts, const uint64_t *receive_offsets,
			       rubato_type type)
{
	return collective(comm, &(struct call) { RB_KIND_ALLTOALLV, in, out, 0, type, RUBATO_SUM, 0,
						 .shape = &(struct rb_shape) {
							 send_counts, send_offsets, receive_counts,
							 receive_offsets, 0 } });
}

rubato_status rubato_barrier(rubato_comm *comm)
{
	return collective(comm, &(struct call) { RB_KIND_BARRIER, NULL, NULL, 0, RUBATO_INT32,
						 RUBATO_SUM, .root = 0 });
}

/* ---- Persistent operations ---- */

static rubato_status op_join(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	bool message = op->kind == RB_KIND_SENDRECV;
	rubato_status err = RUBATO_OK;

	op->number = message ? comm->message_sequence++ : comm->persistent_sequence++;
	rb_op_list(op);
	if (!message)
		err = rb_op_agree(op, rb_deadline(rb_engine_now(&comm->engine), comm->timeout_ns));
	if (err != RUBATO_OK)
		rb_op_forget(op);
	return err;
}

static rubato_status op_create(rubato_comm *comm, const struct call *call, uint32_t user_tag,
			       bool sending, rubato_op **out)
{
	struct rubato_op *op;
	rubato_status err;

	if (comm == NULL || out == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: NULL", rb_kind_name(call->kind));
	op = calloc(1, sizeof(*op));
	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "operation: %zu bytes", sizeof(*op));
	call_apply(call, op);
	op->comm = comm;
	op->persistent = true;
	op->user_tag = user_tag;
	op->sending = sending;
	op->done = true;
	rb_engine_enter(&comm->engine);
	err = rb_engine_check(&comm->engine);
	if (err == RUBATO_OK)
		err = rb_op_prepare(op);
	if (err == RUBATO_OK)
		err = op_join(op);
	else
		rb_op_discard(op);
	rb_engine_leave(&comm->engine);
	if (err == RUBATO_OK)
		*out = op;
	return err;
}

rubato_status rubato_op_allreduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
				  rubato_type type, rubato_operator op, rubato_op **operation)
{
	return op_create(comm,
			 &(struct call) { RB_KIND_ALLREDUCE, in, out, count, type, op, .root = 0 },
			 0, false, operation);
}

rubato_status rubato_op_reduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, rubato_operator op, uint32_t root,
			       rubato_op **operation)
{
	return op_create(comm,
			 &(struct call) { RB_KIND_REDUCE, in, out, count, type, op, .root = root },
			 0, false, operation);
}

rubato_status rubato_op_reduce_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				       rubato_type type, rubato_operator op, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_REDUCE_SCATTER, in, out, count, type, op, .root = 0 }, 0,
		false, operation);
}

rubato_status rubato_op_allgather(rubato_comm *comm, const void *in, void *out, uint64_t count,
				  rubato_type type, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_ALLGATHER, in, out, count, type, RUBATO_SUM, .root = 0 },
		0, false, operation);
}

rubato_status rubato_op_broadcast(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
				  uint32_t root, rubato_op **operation)
{
	return op_create(comm,
			 &(struct call) { RB_KIND_BROADCAST, buffer, buffer, count, type,
					  RUBATO_SUM, .root = root },
			 0, false, operation);
}

rubato_status rubato_op_alltoall(rubato_comm *comm, const void *in, void *out, uint64_t count,
				 rubato_type type, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_ALLTOALL, in, out, count, type, RUBATO_SUM, .root = 0 }, 0,
		false, operation);
}

rubato_status rubato_op_gather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, uint32_t root, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_GATHER, in, out, count, type, RUBATO_SUM, .root = root },
		0, false, operation);
}

rubato_status rubato_op_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				rubato_type type, uint32_t root, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_SCATTER, in, out, count, type, RUBATO_SUM, .root = root },
		0, false, operation);
}

rubato_status rubato_op_allgatherv(rubato_comm *comm, const void *in, void *out,
				   const uint64_t *counts, const uint64_t *offsets,
				   rubato_type type, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_ALLGATHERV, in, out, 0, type, RUBATO_SUM, 0,
				 .shape = &(struct rb_shape) { counts, offsets, NULL, NULL, 0 } },
		0, false, operation);
}

rubato_status rubato_op_reduce_scatterv(rubato_comm *comm, const void *in, void *out,
					const uint64_t *counts, const uint64_t *offsets,
					rubato_type type, rubato_operator op, rubato_op **operation)
{
	return op_create(
		comm,
		&(struct call) { RB_KIND_REDUCE_SCATTERV, in, out, 0, type, op, 0,
				 .shape = &(struct rb_shape) { counts, offsets, NULL, NULL, 0 } },
		0, false, operation);
}

rubato_status rubato_op_alltoallv(rubato_comm *comm, const void *in, const uint64_t *send_counts,
				  const uint64_t *send_offsets, void *out,
				  const uint64_t *receive_counts, const uint64_t *receive_offsets,
				  rubato_type type, rubato_op **operation)
{
	return op_create(comm,
			 &(struct call) { RB_KIND_ALLTOALLV, in, out, 0, type, RUBATO_SUM, 0,
					  .shape = &(struct rb_shape) { send_counts, send_offsets,
									receive_counts,
									receive_offsets, 0 } },
			 0, false, operation);
}

rubato_status rubato_op_barrier(rubato_comm *comm, rubato_op **operation)
{
	return op_create(comm,
			 &(struct call) { RB_KIND_BARRIER, NULL, NULL, 0, RUBATO_INT32, RUBATO_SUM,
					  .root = 0 },
			 0, false, operation);
}

rubato_status rubato_op_send(rubato_comm *comm, const void *buffer, uint64_t count,
			     rubato_type type, uint32_t peer, uint32_t tag, rubato_op **operation)
{
	struct call call = {
		RB_KIND_SENDRECV, buffer, NULL, count, type, RUBATO_SUM, .root = peer
	};

	return op_create(comm, &call, tag, true, operation);
}

rubato_status rubato_op_recv(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			     uint32_t peer, uint32_t tag, rubato_op **operation)
{
	struct call call = {
		RB_KIND_SENDRECV, NULL, buffer, count, type, RUBATO_SUM, .root = peer
	};

	return op_create(comm, &call, tag, false, operation);
}

rubato_status rubato_start(rubato_op *op)
{
	struct rb_engine *engine;
	rubato_status err;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "start: NULL");
	engine = &op->comm->engine;
	rb_engine_enter(engine);
	err = rb_engine_check(engine);
	if (err == RUBATO_OK && !op->done)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "start: the operation is in flight already");
	if (err == RUBATO_OK)
		rb_op_start(op);
	rb_engine_leave(engine);
	return err;
}

static rubato_status op_result(const struct rubato_op *op)
{
	return op->status == RUBATO_OK ? RUBATO_OK : RB_FAIL(op->status, "%s", op->failure);
}

rubato_status rubato_test(rubato_op *op, bool *done)
{
	struct rb_engine *engine;
	rubato_status err = RUBATO_OK;

	if (op == NULL || done == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "test: NULL");
	engine = &op->comm->engine;
	rb_engine_enter(engine);
	*done = rb_engine_look(engine, &op->done);
	if (*done)
		err = op_result(op);
	rb_engine_leave(engine);
	return err;
}

rubato_status rubato_wait(rubato_op *op, uint64_t timeout_ns)
{
	bool look = timeout_ns == RUBATO_NO_WAIT;
	struct rb_engine *engine;
	rubato_status err;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "wait: NULL");
	engine = &op->comm->engine;
	if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
		timeout_ns = op->comm->timeout_ns;
	rb_engine_enter(engine);
	if (look)
		err = rb_engine_look(engine, &op->done) ? RUBATO_OK : RUBATO_ERR_TIMEOUT;
	else
		err = rb_engine_wait_for(engine, &op->done, timeout_ns);
	if (err != RUBATO_OK && !look)
		rb_unmatched_look(op->comm);
	if (rb_engine_over(engine, &op->done)) {
		err = op_result(op);
	} else if (op->done) {
		err = RB_FAIL(RUBATO_ERR_TIMEOUT,
			      "its last messages have yet to leave after %.3g s",
			      (double)timeout_ns * 1e-9);
	} else {
		char name[96], absent[128] = "";

		(void)rb_signature_text(&op->signature, name, sizeof(name));
		if (rb_op_current(op)->active)
			(void)rb_run_absent(rb_op_current(op), absent, sizeof(absent));
		err = RB_FAIL(err, "%s is still in flight after %.3g s%s%s", name,
			      (double)timeout_ns * 1e-9, absent[0] != '\0' ? ": waits for" : "",
			      absent);
	}
	rb_engine_leave(engine);
	return err;
}

rubato_status rubato_cancel(rubato_op *op)
{
	rubato_status err = RUBATO_OK;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cancel: NULL");
	rb_engine_enter(&op->comm->engine);
	if (!op->done) {
		rb_op_cancel(op);
		err = op_result(op);
	}
	rb_engine_leave(&op->comm->engine);
	return err;
}

void rubato_op_free(rubato_op *op)
{
	struct rubato_comm *comm;

	if (op == NULL)
		return;
	comm = op->comm;
	rb_engine_enter(&comm->engine);
	rb_op_free(op);
	rb_engine_leave(&comm->engine);
}

/* ---- Point to point ---- */

/* A message that has begun to come is waited for once more as long: it would be lost. */
static void message_late(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	const char *what = "nothing for";

	if (!op->sending && !rb_message_recall(op, "")) {
		what = "its message has begun to come, and stopped for";
		if (rb_engine_wait_for(&comm->engine, &op->done, comm->timeout_ns) == RUBATO_OK)
			return;
	}
	rb_op_cancel(op);
	if (op->status != RUBATO_ERR_CANCELLED)
		return;
	op->status = RUBATO_ERR_TIMEOUT;
	(void)snprintf(op->failure, sizeof(op->failure), "rank %u %s rank %u, tag %u: %s %.3g s",
		       comm->engine.rank, op->sending ? "sends to" : "receives from", op->root,
		       op->user_tag, what, (double)comm->timeout_ns * 1e-9);
}

/* One that is kept: to clear a new one takes longer than to send a small message. */
static struct rubato_op *message_op(struct rubato_comm *comm)
{
	struct rubato_op *op = comm->messages;

	if (op != NULL) {
		comm->messages = op->next;
		return op;
	}
	op = calloc(1, sizeof(*op));
	if (op != NULL)
		op->comm = comm;
	return op;
}

static rubato_status message_run(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	op->done = true;
	RB_TRY(rb_engine_check(engine));
	RB_TRY(rb_op_prepare(op));
	rb_op_start(op);
	if (rb_engine_wait_for(engine, &op->done, op->comm->timeout_ns) != RUBATO_OK)
		message_late(op);
	return op_result(op);
}

static rubato_status message(rubato_comm *comm, const struct call *call, uint32_t tag, bool sending)
{
	struct rubato_op *op;
	rubato_status err;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: no communicator",
			       sending ? "send" : "recv");
	rb_engine_enter(&comm->engine);
	op = message_op(comm);
	if (op != NULL) {
		call_apply(call, op);
		op->user_tag = tag;
		op->sending = sending;
		err = message_run(op);
		op->next = comm->messages;
		comm->messages = op;
	} else {
		err = RB_FAIL(RUBATO_ERR_MEMORY, "operation: %zu bytes", sizeof(*op));
	}
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_send(rubato_comm *comm, const void *buffer, uint64_t count, rubato_type type,
			  uint32_t peer, uint32_t tag)
{
	struct call call = {
		RB_KIND_SENDRECV, buffer, NULL, count, type, RUBATO_SUM, .root = peer
	};

	return message(comm, &call, tag, true);
}

rubato_status rubato_recv(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			  uint32_t peer, uint32_t tag)
{
	struct call call = {
		RB_KIND_SENDRECV, NULL, buffer, count, type, RUBATO_SUM, .root = peer
	};

	return message(comm, &call, tag, false);
}

/* ---- Time ---- */

uint64_t rubato_now(rubato_comm *comm)
{
	struct rb_endpoint *ep = rb_comm_endpoint(comm);

	return ep->ops->now_ns(ep);
}

void rubato_sleep(rubato_comm *comm, uint64_t duration_ns)
{
	struct rb_endpoint *ep = rb_comm_endpoint(comm);

	/* Without the engine's lock: a progress thread needs it meanwhile. */
	ep->ops->sleep(ep, rb_deadline(ep->ops->now_ns(ep), duration_ns));
}
