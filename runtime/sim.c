/*
 * sim.c -- a whole program in a simulated cluster: a communicator per fiber, and a start-up among
 * them that takes no virtual time.
 *
 * An exchange of start-up is a table that all ranks share; it stays until the run is over, because
 * each rank may look at it until it closes its bootstrap, whenever that is.
 */
#include "rubato_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "runtime/comm.h"
#include "runtime/open.h"
#include "transport/sim/sim_cluster.h"
#include "transport/sim/sim_device.h"

struct exchange {
	uint32_t arrived;
	void **blobs; /* Per rank; NULL: not here yet. */
	size_t *blob_bytes;
	struct exchange *next; /* The one after it. */
};

/* What ranks have in common: bootstrap.keep. */
struct kept {
	struct kept *next;
	size_t size_bytes;
	uint8_t bytes[];
};

struct simulation {
	struct rb_sim_cluster *cluster;
	struct rb_config config;
	uint64_t timeout_ns, seed;
	uint32_t rank_count;
	rubato_sim_main rank_main;
	void *arg;
	struct exchange *exchanges;
	struct kept *kept;
};

struct bootstrap {
	struct rb_bootstrap base; /* First. */
	struct simulation *simulation;
	struct rb_sim_process *process;
	struct exchange **next; /* Where this rank's next exchange is, or will be. */
};

/* ---- Start-up ---- */

static struct exchange *exchange_new(uint32_t rank_count)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (x == NULL)
		return NULL;
	x->blobs = calloc(rank_count, sizeof(*x->blobs));
	x->blob_bytes = calloc(rank_count, sizeof(*x->blob_bytes));
	if (x->blobs == NULL || x->blob_bytes == NULL) {
		free(x->blobs);
		free(x->blob_bytes);
		free(x);
		return NULL;
	}
	return x;
}

static void exchanges_free(struct simulation *s)
{
	while (s->exchanges != NULL) {
		struct exchange *x = s->exchanges;

		s->exchanges = x->next;
		for (uint32_t i = 0; i < s->rank_count; i++)
			free(x->blobs[i]);
		free(x->blobs);
		free(x->blob_bytes);
		free(x);
	}
}

static rubato_status exchange_wait(struct bootstrap *b, struct exchange *x, uint64_t deadline_ns)
{
	uint32_t count = b->base.rank_count, missing = 0, lost;

	while (x->arrived < count) {
		while (x->blobs[missing] != NULL)
			missing++;
		if (!rb_sim_process_alone(b->process) &&
		    rb_sim_cluster_lost(b->simulation->cluster, &lost))
			return RB_FAIL(RUBATO_ERR_PEER, "start-up: rank %u crashed", lost);
		if (rb_sim_process_now(b->process) >= deadline_ns)
			return RB_FAIL(RUBATO_ERR_TIMEOUT, "start-up: rank %u has not come",
				       missing);
		rb_sim_process_park(b->process, deadline_ns);
	}
	return RUBATO_OK;
}

static rubato_status sim_allgather(struct rb_bootstrap *base, const void *in, size_t in_bytes,
				   const void *const **out, const size_t **out_bytes,
				   uint64_t deadline_ns)
{
	struct bootstrap *b = (struct bootstrap *)base;
	struct simulation *s = b->simulation;
	struct exchange *x = *b->next;
	void *copy = malloc(in_bytes + 1);

	if (x == NULL)
		x = *b->next = exchange_new(base->rank_count);
	if (x == NULL || copy == NULL) {
		free(copy);
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: no memory to exchange");
	}
	if (in_bytes > 0)
		memcpy(copy, in, in_bytes);
	x->blobs[base->rank] = copy;
	x->blob_bytes[base->rank] = in_bytes;
	b->next = &x->next;
	if (++x->arrived == base->rank_count) {
		for (uint32_t i = 0; i < base->rank_count; i++)
			rb_sim_process_unpark(rb_sim_cluster_process(s->cluster, i));
	}
	RB_TRY(exchange_wait(b, x, deadline_ns));
	*out = (const void *const *)x->blobs;
	*out_bytes = x->blob_bytes;
	return RUBATO_OK;
}

/* Few different ones. */
static void *sim_keep(struct rb_bootstrap *base, const void *bytes, size_t size_bytes)
{
	struct simulation *s = ((struct bootstrap *)base)->simulation;
	struct kept *k = s->kept;

	while (k != NULL &&
	       (k->size_bytes != size_bytes || memcmp(k->bytes, bytes, size_bytes) != 0))
		k = k->next;
	if (k != NULL)
		return k->bytes;
	k = malloc(sizeof(*k) + size_bytes);
	if (k == NULL)
		return NULL;
	k->size_bytes = size_bytes;
	memcpy(k->bytes, bytes, size_bytes);
	k->next = s->kept;
	s->kept = k;
	return k->bytes;
}

static void kept_free(struct simulation *s)
{
	while (s->kept != NULL) {
		struct kept *k = s->kept;

		s->kept = k->next;
		free(k);
	}
}

static void sim_bootstrap_close(struct rb_bootstrap *base)
{
	free(base);
}

static rubato_status bootstrap_new(struct simulation *s, struct rb_sim_process *process,
				   struct rb_bootstrap **out)
{
	struct bootstrap *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: %zu bytes", sizeof(*b));
	b->base.rank = rb_sim_process_rank(process);
	b->base.rank_count = s->rank_count;
	memcpy(b->base.job, &s->seed, sizeof(s->seed));
	b->base.allgather = sim_allgather;
	b->base.keep = sim_keep;
	b->base.close = sim_bootstrap_close;
	b->simulation = s;
	b->process = process;
	b->next = &s->exchanges;
	*out = &b->base;
	return RUBATO_OK;
}

/* ---- A run ---- */

static rubato_status rank_run(struct rb_sim_process *process, void *arg)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_sim, NULL };
	struct simulation *s = arg;
	struct rb_setup setup = {
		.config = &s->config,
		.config_stays = true,
		.timeout_ns = s->timeout_ns,
		.transports = transports,
		.backend = s->cluster,
	};
	rubato_comm *comm;
	rubato_status err, end;
	char text[RB_TEXT_BYTES];

	RB_TRY(bootstrap_new(s, process, &setup.bootstrap));
	RB_TRY(rb_comm_open(&setup, &comm));
	err = s->rank_main(comm, s->arg);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	end = rubato_finalize(comm);
	return err != RUBATO_OK ? RB_FAIL(err, "%s", text) : end;
}

rubato_status rubato_sim_run(const rubato_sim_options *options, rubato_sim_main rank_main,
			     void *arg, rubato_sim_result *result)
{
	struct simulation *s;
	rubato_status err;

	if (options == NULL || rank_main == NULL || result == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: options, a main and a result are needed");
	memset(result, 0, sizeof(*result));
	result->failed_rank = UINT32_MAX;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*s));
	s->seed = options->seed;
	s->rank_main = rank_main;
	s->arg = arg;
	err = rb_config_read(&s->config);
	if (err == RUBATO_OK)
		err = rb_sim_cluster_open(options, &s->cluster);
	if (err == RUBATO_OK) {
		s->rank_count = options->rank_count;
		s->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : 60000000000u;
		err = rb_sim_cluster_run(s->cluster, rank_run, s);
		rb_sim_cluster_result(s->cluster, result);
		rb_sim_cluster_close(s->cluster);
	}
	exchanges_free(s);
	kept_free(s);
	free(s);
	return err;
}

void *rubato_sim_hollow(rubato_comm *comm, size_t bytes)
{
	struct rb_endpoint *ep = comm != NULL ? rb_comm_endpoint(comm) : NULL;

	return ep != NULL && ep->ops == &rb_transport_sim ? rb_sim_hollow(ep, bytes) : NULL;
}

void rubato_sim_reseed(rubato_comm *comm, uint64_t number)
{
	struct rb_endpoint *ep = comm != NULL ? rb_comm_endpoint(comm) : NULL;

	if (ep != NULL && ep->ops == &rb_transport_sim)
		rb_sim_reseed(ep, number);
}

/* ---- Devices ---- */

rubato_status rubato_sim_device_alloc(rubato_comm *comm, size_t size_bytes, bool managed,
				      void **memory)
{
	struct rb_endpoint *ep;
	rubato_status err;

	if (comm == NULL || memory == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "device memory: NULL");
	ep = rb_comm_endpoint(comm);
	if (rb_sim_device_of(ep) == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "device memory: there is no simulated device (options.device)");
	rb_engine_enter(&comm->engine);
	err = rb_sim_device_new(rb_sim_cluster_of(ep), rb_sim_rank_of(ep),
				managed ? RB_MEMORY_MANAGED : RB_MEMORY_DEVICE, size_bytes, memory);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_sim_device_free(rubato_comm *comm, void *memory)
{
	rubato_status err = RUBATO_OK;
	struct rb_endpoint *ep;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "device memory: NULL");
	if (memory == NULL)
		return RUBATO_OK;
	ep = rb_comm_endpoint(comm);
	rb_engine_enter(&comm->engine);
	if (rb_sim_device_of(ep) == NULL || !rb_sim_device_free(rb_sim_cluster_of(ep), memory))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "device memory: %p is not the start of any",
			      memory);
	rb_engine_leave(&comm->engine);
	return err;
}

void rubato_sim_device_copy(rubato_comm *comm, void *to, const void *from, size_t size_bytes)
{
	struct rb_endpoint *ep = comm != NULL ? rb_comm_endpoint(comm) : NULL;

	if (ep != NULL && rb_sim_device_of(ep) != NULL)
		rb_sim_device_copy(rb_sim_cluster_of(ep), to, from, size_bytes);
	else if (size_bytes > 0)
		memcpy(to, from, size_bytes);
}
