/* comm.c -- the public functions of a communicator: its ranks, memory, time and settings. */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/message.h"

uint32_t rubato_rank(const rubato_comm *comm)
{
	return comm != NULL ? comm->engine.rank : UINT32_MAX;
}

uint32_t rubato_size(const rubato_comm *comm)
{
	return comm != NULL ? comm->engine.rank_count : 0;
}

static void peer_path(rubato_comm *comm, struct rb_endpoint *ep, uint32_t rank, rubato_peer *peer)
{
	rb_engine_enter(&comm->engine); /* It asks the endpoint, which may be driven. */
	ep->ops->path(ep, rank, peer->path, sizeof(peer->path));
	rb_engine_leave(&comm->engine);
}

rubato_status rubato_get_peer(rubato_comm *comm, uint32_t rank, rubato_peer *peer)
{
	if (comm == NULL || peer == NULL || peer->size_bytes < sizeof(*peer))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "peer: NULL, or size_bytes is not set");
	RB_TRY(rb_engine_ours(&comm->engine));
	if (rank >= comm->engine.rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "peer: rank %u of %u", rank,
			       comm->engine.rank_count);

	const struct rb_locality *l = &comm->locality;
	const struct rb_link *network = &comm->choices.facts.network;
	const struct rb_node_speed *near = &comm->choices.facts.node;
	uint32_t node = comm->choices.nodes.node_of[rank];
	struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, rank);

	*peer = (rubato_peer) {
		.size_bytes = (uint32_t)sizeof(*peer),
		.node = node,
		.host = l->host_of[node],
		.card = l->card_of[rank],
		.numa_domain = l->domain_of[rank] != RB_LOCALITY_NONE ? l->domain_of[rank]
								      : RUBATO_DOMAIN_UNKNOWN,
		.transport = ep->ops->name,
		.source = rb_node_source_name(rb_comm_node_source(comm)),
		.processor = RUBATO_PROCESSOR_UNKNOWN,
	};
	if (rank == comm->engine.rank && !rb_engine_time_is_virtual(&comm->engine))
		peer->processor = rb_cpu_here();
	else if (ep->ops->processor != NULL)
		peer->processor = ep->ops->processor(ep, rank);
	if (rank != comm->engine.rank && ep->ops->copies != NULL)
		peer->copies = ep->ops->copies(ep, rank);
	if (rank != comm->engine.rank && ep->ops->path != NULL)
		peer_path(comm, ep, rank, peer);
	if (!rb_comm_maps(comm, rank)) {
		peer->latency_us = network->latency_us;
		peer->bandwidth = network->byte_us > 0 ? 1e6 / network->byte_us : 0;
	} else if (rank != comm->engine.rank) {
		peer->latency_us = near->latency_us;
		peer->bandwidth = rb_node_copy_rate(near);
	}
	return RUBATO_OK;
}

/* ---- Memory ---- */

rubato_status rubato_alloc(rubato_comm *comm, size_t size_bytes, void **memory)
{
	struct rb_memory *made;
	rubato_status err;

	if (comm == NULL || memory == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "alloc: NULL");
	RB_TRY(rb_engine_call(&comm->engine));
	err = rb_memory_alloc(&comm->memory, size_bytes, &made);
	rb_engine_leave(&comm->engine);
	if (err == RUBATO_OK)
		*memory = made->base;
	return err;
}

/* Whether an operation in flight reads or writes there. Under the lock. */
static bool is_worked_in(const rubato_comm *comm, const struct rb_memory *memory)
{
	for (const struct rb_run *run = comm->engine.runs; run != NULL; run = run->next)
		if (rb_memory_is_of(memory, run->buffers[RB_BUF_IN].base) ||
		    rb_memory_is_of(memory, run->buffers[RB_BUF_OUT].base))
			return true;
	return rb_messages_work_in(comm, memory);
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
	RB_TRY(rb_engine_call(&comm->engine));
	found = comm->memory.first;
	while (found != NULL && (found->base != memory || found->allocated != allocated ||
				 found->named == allocated))
		found = found->next;
	if (found == NULL)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: %p is not the start of such memory", name,
			      memory);
	else if (is_worked_in(comm, found))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: an operation in flight works in %p", name,
			      memory);
	else if (found->users > 0) /* Peers have its key. */
		found->named = false;
	else
		rb_memory_drop(&comm->memory, found);
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
	if (size_bytes > UINTPTR_MAX - (uintptr_t)memory)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "register: %zu bytes at %p end beyond the address space", size_bytes,
			       memory);
	if (comm->choices.nodes.count < comm->engine.rank_count)
		RB_LOG(RB_LOG_INFO,
		       "register: ranks of this node map rubato_alloc's memory only: between them "
		       "%zu bytes at %p stay a plain buffer",
		       size_bytes, memory);
	RB_TRY(rb_engine_call(&comm->engine));
	err = rb_memory_add(&comm->memory, memory, size_bytes, &made);
	if (err == RUBATO_OK)
		made->named = true;
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_unregister(rubato_comm *comm, void *memory)
{
	return memory_remove(comm, memory, false, "unregister");
}

/* ---- Time ---- */

uint64_t rubato_now(rubato_comm *comm)
{
	struct rb_endpoint *ep;

	if (comm == NULL)
		return 0;
	ep = rb_comm_endpoint(comm);
	return ep->ops->now_ns(ep);
}

void rubato_sleep(rubato_comm *comm, uint64_t duration_ns)
{
	struct rb_endpoint *ep;

	if (comm == NULL)
		return;
	ep = rb_comm_endpoint(comm);
	/* Without the engine's lock: a progress thread needs it meanwhile. */
	ep->ops->sleep(ep, rb_deadline(ep->ops->now_ns(ep), duration_ns));
}

/* ---- Settings ---- */

static void converts_set(rubato_comm *comm)
{
	comm->converts =
		comm->accumulate != RUBATO_ACCUMULATE_STEP || comm->wire != RUBATO_WIRE_SAME;
}

rubato_status rubato_set_timeout(rubato_comm *comm, uint64_t timeout_ns)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "timeout: no communicator");
	if (timeout_ns == RUBATO_NO_WAIT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "timeout: every wait needs some time");
	RB_TRY(rb_engine_call(&comm->engine));
	comm->timeout_ns =
		timeout_ns != RUBATO_TIMEOUT_DEFAULT ? timeout_ns : comm->began_timeout_ns;
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

rubato_status rubato_set_accumulate(rubato_comm *comm, rubato_accumulate accumulate)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "accumulate: no communicator");
	if (accumulate != RUBATO_ACCUMULATE_STEP && accumulate != RUBATO_ACCUMULATE_WHOLE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "accumulate: unknown way %d", (int)accumulate);
	RB_TRY(rb_engine_call(&comm->engine));
	comm->accumulate = accumulate;
	converts_set(comm);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

rubato_status rubato_set_wire(rubato_comm *comm, rubato_wire wire, bool feedback)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "wire: no communicator");
	if ((unsigned)wire >= RUBATO_WIRE_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "wire: unknown form %d", (int)wire);
	RB_TRY(rb_engine_call(&comm->engine));
	comm->wire = wire;
	comm->wire_feedback = feedback;
	converts_set(comm);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}
