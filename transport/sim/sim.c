/*
 * sim.c -- the simulated transport: an endpoint of a rank in a cluster (sim_cluster.h), and its
 * memory.
 *
 * A rank may have several endpoints, one a communicator (of a job, or split off it): they share its
 * links, its clock and its fiber. While it waits on one, the others' background steps go on.
 *
 * All ranks share one address space, so "mapping" a peer's memory is to know its address; it is
 * allowed within a node only, so that the model holds. A store to it is seen at once, earlier than
 * the message that announces it. Memory that a closed endpoint gives up lives on until the cluster
 * ends: a ghost may still look at it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hollow.h"
#include "base/wire.h"
#include "transport/sim/sim_cluster_inside.h"
#include "transport/sim/sim_device.h"
#include "transport/sim/sim_net_inside.h"
#include "transport/sim/sim_way.h"

#define PAGE 4096
#define ADDRESS_BYTES 16
#define ADDRESS_MAGIC 0x6d69732d74616275u /* "ubat-sim" */
#define KEY_BYTES 16
#define KIND_SHIFT 56  /* Of the kind of memory, above the size in a key. */
#define HOLLOW_BITS 40 /* A rank's share of the addresses without memory: 1 TiB. */
_Static_assert(HOLLOW_BITS + 20 <= RB_HOLLOW_BIT, "as many ranks as there may be");

struct rb_sim_region {
	struct rb_region base; /* First. */
	void *memory;          /* To be freed with it. */
	uint32_t number;
	struct rb_sim_region *next;
};

struct remote {
	struct rb_remote base; /* First. */
	uint32_t number;       /* The region's, at the peer. */
	struct remote *next, *previous;
};

struct endpoint {
	struct rb_endpoint base; /* First. */
	struct rb_sim_process *process;
	struct rb_sim_member *member;
	struct rb_sim_region *regions;
	struct remote *remotes;
	uint32_t region_next;
	uint32_t failures_told; /* Of the communicator's. */
};

static struct endpoint *endpoint_of(struct rb_endpoint *ep)
{
	return (struct endpoint *)ep;
}

static struct endpoint *peer_endpoint(struct endpoint *e, uint32_t peer)
{
	const struct rb_sim_comm *comm = e->member->comm;

	if (peer >= comm->rank_count)
		return NULL;
	return (struct endpoint *)rb_sim_nic_endpoint(comm->members[peer].nic);
}

/* ---- Open and close ---- */

/* The process joins: who opens an endpoint during a run is whoever runs. */
static rubato_status member_take(const struct rb_transport_options *options,
				 struct rb_sim_member **out)
{
	struct rb_sim_cluster *c = options->backend;
	struct rb_sim_comm *comm;
	struct rb_sim_member *member;
	struct rb_sim_process *process;

	if (options->rank_count > c->options.rank_count || options->rank >= options->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: rank %u of %u in a cluster of %u",
			       options->rank, options->rank_count, c->options.rank_count);
	RB_TRY(rb_sim_comm_get(c, options->job, options->rank_count, &comm));
	process = c->current != NULL ? c->current : &c->processes[options->rank];
	member = &comm->members[options->rank];
	if (member->process == NULL) {
		member->process = process;
		member->next = process->members;
		process->members = member;
	}
	if (member->process != process)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: rank %u is taken", options->rank);
	*out = member;
	return RUBATO_OK;
}

static rubato_status sim_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct rb_sim_cluster *c = options->backend;
	struct rb_sim_member *member = NULL;
	struct endpoint *e;
	rubato_status err;

	if (c == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "sim: not in a simulated cluster");
	RB_TRY(member_take(options, &member));
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*e));
	e->base.ops = &rb_transport_sim;
	e->base.rank = options->rank;
	e->base.rank_count = options->rank_count;
	e->process = member->process;
	e->member = member;
	e->failures_told = member->comm->failure_count;
	if (c->options.device.network != 0)
		e->base.takes = 1u << RB_MEMORY_DEVICE;
	err = rb_sim_nic_open(member, &e->base);
	if (err != RUBATO_OK) {
		free(e);
		return err;
	}
	rb_sim_event_unset(c, &member->gone_event);
	member->gone = member->gone_fails = member->left = member->news = false;
	member->process->woken = false;
	*out = &e->base;
	return RUBATO_OK;
}

static rubato_status sim_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	struct rb_wire wire = rb_wire_over(bytes, ADDRESS_BYTES);

	rb_wire_put_u64(&wire, ADDRESS_MAGIC);
	rb_wire_put_u32(&wire, ep->rank);
	rb_wire_put_u32(&wire, ep->rank_count);
	*size_bytes = ADDRESS_BYTES;
	return RUBATO_OK;
}

static bool address_read(const void *address, size_t size_bytes, uint32_t *rank, uint32_t *count)
{
	uint8_t copy[ADDRESS_BYTES];
	struct rb_wire wire = rb_wire_over(copy, sizeof(copy));

	if (size_bytes != ADDRESS_BYTES)
		return false;
	memcpy(copy, address, sizeof(copy));
	if (rb_wire_get_u64(&wire) != ADDRESS_MAGIC)
		return false;
	*rank = rb_wire_get_u32(&wire);
	*count = rb_wire_get_u32(&wire);
	return true;
}

static bool sim_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	uint32_t rank, count;

	return address_read(address, size_bytes, &rank, &count) && count == ep->rank_count &&
	       rank < count;
}

static rubato_status sim_connect(struct rb_endpoint *ep, const void *const *addresses,
				 const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	struct endpoint *e = endpoint_of(ep);

	(void)deadline_ns; /* An address exists when its endpoint does. */
	for (uint32_t i = 0; i < ep->rank_count; i++) {
		uint32_t rank, count;

		if (!use[i])
			continue;
		if (!address_read(addresses[i], address_bytes[i], &rank, &count) || rank != i ||
		    count != ep->rank_count)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: no address of rank %u", i);
		if (e->member->comm->members[i].nic == NULL) /* It may have closed, that is fine. */
			return RB_FAIL(RUBATO_ERR_PEER, "sim: rank %u never had an endpoint", i);
	}
	return RUBATO_OK;
}

static void region_free(struct rb_sim_region *region)
{
	free(region->memory);
	free(region);
}

static void region_bury(struct rb_sim_process *process, struct rb_sim_region *region)
{
	region->next = process->graves;
	process->graves = region;
}

void rb_sim_graves_free(struct rb_sim_process *process)
{
	while (process->graves != NULL) {
		struct rb_sim_region *region = process->graves;

		process->graves = region->next;
		region_free(region);
	}
}

static void sim_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct endpoint *e = endpoint_of(ep);

	(void)deadline_ns; /* Nothing here waits. */
	if (e == NULL)
		return;
	e->member->blames = abort ? ep->blames : 0;
	e->member->spoke = abort && ep->last_words != NULL;
	if (e->member->spoke)
		memcpy(e->member->last_words, ep->last_words, sizeof(e->member->last_words));
	if (!e->process->ghost)
		rb_sim_tell(e->member, e->process->cluster->options.latency_ns, abort);
	rb_sim_nic_close(e->member->nic);
	while (e->regions != NULL) {
		struct rb_sim_region *region = e->regions;

		e->regions = region->next;
		region_bury(e->process, region);
	}
	while (e->remotes != NULL) {
		struct remote *remote = e->remotes;

		e->remotes = remote->next;
		free(remote);
	}
	e->member->step = NULL;
	free(e);
}

/* ---- Memory ---- */

static rubato_status region_new(struct endpoint *e, void *base, size_t size_bytes, bool allocated,
				void *memory, struct rb_region **out)
{
	struct rb_sim_region *region = calloc(1, sizeof(*region));

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*region));
	region->base = (struct rb_region) { base, size_bytes, allocated, RB_MEMORY_HOST };
	region->memory = memory;
	region->number = e->region_next++;
	region->next = e->regions;
	e->regions = region;
	*out = &region->base;
	return RUBATO_OK;
}

/* Each one begins a page, as real ones do. */
void *rb_sim_hollow(struct rb_endpoint *ep, size_t bytes)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	uint64_t first = process->hollow_bytes, share = UINT64_C(1) << HOLLOW_BITS;

	if (process->cluster->options.hollow == 0 || first == share || bytes > share - first - PAGE)
		return NULL;
	process->hollow_bytes = first + (bytes / PAGE + 1) * PAGE;
	return (void *)(uintptr_t)(UINT64_C(1) << RB_HOLLOW_BIT |
				   (uint64_t)process->rank << HOLLOW_BITS | first);
}

static rubato_status sim_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				      struct rb_region **out)
{
	bool hollow = endpoint_of(ep)->process->cluster->options.hollow != 0 && !ep->solid;
	uint8_t *memory;
	void *base;
	rubato_status err;

	if (hollow) {
		base = rb_sim_hollow(ep, size_bytes);
		return base != NULL
			       ? region_new(endpoint_of(ep), base, size_bytes, true, NULL, out)
			       : RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu hollow bytes", size_bytes);
	}
	/* Zeros as they come: of many ranks' scratch most is never touched. */
	memory = size_bytes < SIZE_MAX - PAGE ? calloc(1, size_bytes + PAGE) : NULL;
	if (memory == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: a region of %zu bytes", size_bytes);
	base = memory + (PAGE - (uintptr_t)memory % PAGE) % PAGE;
	err = region_new(endpoint_of(ep), base, size_bytes, true, memory, out);
	if (err != RUBATO_OK)
		free(memory);
	return err;
}

static rubato_status sim_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				    struct rb_region **out)
{
	return region_new(endpoint_of(ep), base, size_bytes, false, NULL, out);
}

static void sim_region_drop(struct rb_endpoint *ep, struct rb_region *base)
{
	struct endpoint *e = endpoint_of(ep);
	struct rb_sim_region *region = (struct rb_sim_region *)base;
	struct rb_sim_region **at = &e->regions;

	while (*at != NULL && *at != region)
		at = &(*at)->next;
	RB_ASSERT(*at != NULL);
	if (*at == NULL)
		return;
	*at = region->next;
	if (e->process->cluster->crashes || e->process->ghost)
		region_bury(e->process, region);
	else
		region_free(region);
}

static rubato_status sim_region_key(struct rb_endpoint *ep, struct rb_region *base, void *key,
				    size_t *key_bytes)
{
	struct rb_wire wire = rb_wire_over(key, KEY_BYTES);

	rb_wire_put_u32(&wire, ep->rank);
	rb_wire_put_u32(&wire, ((struct rb_sim_region *)base)->number);
	rb_wire_put_u64(&wire, base->size_bytes | (uint64_t)base->kind << KIND_SHIFT);
	*key_bytes = KEY_BYTES;
	return RUBATO_OK;
}

static struct rb_sim_region *region_find(struct endpoint *e, uint32_t number)
{
	struct rb_sim_region *region = e->regions;

	while (region != NULL && region->number != number)
		region = region->next;
	return region;
}

static rubato_status sim_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				     size_t key_bytes, struct rb_remote **out)
{
	struct endpoint *e = endpoint_of(ep), *other = peer_endpoint(e, peer);
	uint8_t copy[KEY_BYTES] = { 0 };
	struct rb_wire wire = rb_wire_over(copy, sizeof(copy));
	struct rb_sim_region *region;
	struct remote *remote;
	uint32_t rank, number, kind, owner;
	enum rb_memory_kind is = RB_MEMORY_HOST;

	memcpy(copy, key, key_bytes < sizeof(copy) ? key_bytes : sizeof(copy));
	rank = rb_wire_get_u32(&wire);
	number = rb_wire_get_u32(&wire);
	kind = (uint32_t)(rb_wire_get_u64(&wire) >> KIND_SHIFT);
	if (key_bytes != KEY_BYTES || rank != peer)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: no key of rank %u", peer);
	region = other != NULL ? region_find(other, number) : NULL;
	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_PEER, "sim: rank %u has no region %u (any more)", peer,
			       number);
	(void)rb_sim_device_find(e->process->cluster, region->base.base, &is, &owner);
	if (kind != is)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "sim: rank %u gave a key of memory of kind %u, which is %s memory",
			       peer, kind, rb_memory_kind_name(is));
	RB_TRY(rb_remote_check(ep, peer, is));
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*remote));
	remote->base.peer = peer;
	remote->base.kind = is;
	remote->base.size_bytes = region->base.size_bytes;
	if (region->base.allocated && rb_sim_member_near(e->member->comm, ep->rank, peer))
		remote->base.mapped = region->base.base;
	remote->number = number;
	RB_LIST_PUSH(e->remotes, remote);
	*out = &remote->base;
	return RUBATO_OK;
}

static void sim_remote_close(struct rb_endpoint *ep, struct rb_remote *base)
{
	struct endpoint *e = endpoint_of(ep);
	struct remote *remote = (struct remote *)base;

	RB_LIST_REMOVE(e->remotes, remote);
	free(remote);
}

uint32_t rb_sim_remote_region(const struct rb_remote *remote)
{
	return ((const struct remote *)remote)->number;
}

void *rb_sim_memory(struct rb_endpoint *ep, uint32_t number, uint64_t offset, uint64_t size_bytes)
{
	struct rb_sim_region *region = region_find(endpoint_of(ep), number);

	if (region == NULL || offset > region->base.size_bytes ||
	    size_bytes > region->base.size_bytes - offset)
		return NULL;
	return (uint8_t *)region->base.base + offset;
}

static bool allocated_holds(const struct endpoint *e, uintptr_t address, size_t size_bytes)
{
	for (const struct rb_sim_region *region = e->regions; region != NULL;
	     region = region->next) {
		uintptr_t base = (uintptr_t)region->base.base;

		if (region->base.allocated && address >= base &&
		    address - base <= region->base.size_bytes &&
		    size_bytes <= region->base.size_bytes - (address - base))
			return true;
	}
	return false;
}

struct rb_sim_cluster *rb_sim_cluster_of(const struct rb_endpoint *ep)
{
	return ((const struct endpoint *)ep)->process->cluster;
}

uint32_t rb_sim_rank_of(const struct rb_endpoint *ep)
{
	return ((const struct endpoint *)ep)->process->rank;
}

/* What the ranks of a node map of each other: what they allocated, and their devices' memory. */
static bool gives(const struct endpoint *e, const void *address, size_t size_bytes)
{
	enum rb_memory_kind kind;
	uint32_t rank = UINT32_MAX;

	if (allocated_holds(e, (uintptr_t)address, size_bytes))
		return true;
	return rb_sim_device_find(e->process->cluster, address, &kind, &rank) >= size_bytes &&
	       rank == e->process->rank;
}

static uint64_t sim_word_of(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	return gives(endpoint_of(ep), address, size_bytes) ? (uint64_t)(uintptr_t)address : 0;
}

static void *sim_word_map(struct rb_endpoint *ep, uint32_t peer, uint64_t word, uint64_t size_bytes)
{
	struct endpoint *e = endpoint_of(ep), *other = peer_endpoint(e, peer);

	/* Everybody reaches their own. */
	if (word == 0 || other == NULL ||
	    !gives(other, (const void *)(uintptr_t)word, size_bytes) ||
	    (peer != ep->rank && !rb_sim_member_near(e->member->comm, ep->rank, peer)))
		return NULL;
	return (void *)(uintptr_t)word;
}

/* ---- Posts, progress, waiting ---- */

static struct rb_sim_nic *nic_of(struct rb_endpoint *ep)
{
	return endpoint_of(ep)->member->nic;
}

struct charge { /* Of the processor. */
	double busy_ns;
	uint64_t bytes;  /* That it moves in memory. */
	double quiet_ns; /* For which it has had nothing to do, up to now. */
};

/*
 * Where a rank's messages lie while they are under way within a node: the same place again and
 * again, which no other memory has.
 */
static const void *slots_of(const struct rb_sim_process *process)
{
	return (const void *)(uintptr_t)(UINT64_C(1) << 63 | (uint64_t)process->rank << 32);
}

/* Adds a copy; to NULL: into the slots; from NULL: out of them. */
static void copy_charge(struct rb_sim_process *process, const struct rb_sim_process *sender,
			const void *to, const void *from, uint64_t size_bytes,
			struct charge *charge)
{
	const void *slots = slots_of(sender);
	struct rb_touch touches[] = { { from != NULL ? from : slots, size_bytes, false },
				      { to != NULL ? to : slots, size_bytes, true } };
	struct rb_sim_access cost = rb_sim_touch(process, touches, 2);

	charge->busy_ns += cost.busy_ns;
	charge->bytes += cost.memory_bytes;
}

/* Adds the copy of a message into what it lies in on its way, or out of that. */
static void message_charge(struct rb_endpoint *ep, const struct rb_request *r, bool sends,
			   const struct rb_sim_buffers *buffers, struct charge *charge)
{
	struct rb_sim_process *process = endpoint_of(ep)->process, *sender = process;
	uint8_t *at = r->buffer;

	if (!sends)
		sender = endpoint_of(ep)->member->comm->members[r->peer].process;
	if (buffers->count == 0)
		copy_charge(process, sender, sends ? NULL : at, sends ? at : NULL, r->size_bytes,
			    charge);
	for (uint32_t i = 0; i < buffers->count; i++) {
		size_t done = (size_t)i * RB_SHM_BULK_BYTES;
		const uint8_t *piece = sends ? rb_sim_bulk_sent(nic_of(ep), r->peer, buffers, i)
					     : rb_sim_bulk_read(nic_of(ep), r->peer, buffers, i);

		copy_charge(process, sender, sends ? piece : at + done, sends ? at + done : piece,
			    rb_shm_piece(r->size_bytes - done), charge);
	}
}

/*
 * Adds what one end does of what was asked for: the kernel copies half of it from where the sender
 * has it to where the receiver wants it, for the receiver the first one. Where the kernel is slow
 * it is copied at both ends, a piece behind each other, as is all that leaves at once.
 */
static void asked_charge(struct rb_endpoint *ep, const struct rb_request *r, bool sends,
			 struct charge *charge)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	uint8_t *ours = r->buffer, *theirs = (uint8_t *)(uintptr_t)r->backend[RB_SIM_THEIRS];
	size_t half = r->size_bytes / 2, first = r->size_bytes - half;

	if (!process->cluster->attaches) {
		message_charge(ep, r, sends, &(struct rb_sim_buffers) { .count = 0 }, charge);
		return;
	}
	if (sends)
		copy_charge(process, process, theirs + first, ours + first, half, charge);
	else
		copy_charge(process, process, ours, theirs, first, charge);
	charge->busy_ns += 2 * (double)(sends ? half : first) * process->cluster->attach_ns;
}

static const void *put_target(const struct rb_request *r)
{
	const uint8_t *mapped = r->remote->mapped;

	return mapped != NULL ? mapped + r->remote_offset : NULL;
}

static void charge_pay(struct rb_sim_process *process, const struct charge *charge)
{
	rb_sim_work(process, rb_sim_ns(charge->busy_ns + 0.5), charge->bytes);
}

static bool is_near(struct rb_endpoint *ep, const struct rb_request *r)
{
	return rb_sim_member_near(endpoint_of(ep)->member->comm, ep->rank, r->peer);
}

/* Of either end of a message between nodes. */
static double stack_ns(const struct rb_sim_process *process, uint64_t size_bytes)
{
	double bandwidth = process->cluster->options.costs.stack_bandwidth;

	return bandwidth > 0 ? (double)size_bytes * 1e9 / bandwidth : 0;
}

/* Rounded down; where the product would not fit, by doubles. */
static uint64_t share_ns(uint64_t took_ns, uint64_t part, uint64_t all)
{
	return took_ns <= UINT64_MAX / part
		       ? took_ns * part / all
		       : rb_sim_ns((double)took_ns * (double)part / (double)all);
}

/*
 * Each side copies: between nodes into frames and out of them, within one into memory that both map
 * and out of it; a long one there is one copy, of which each side makes half. Who puts copies
 * within a node, and what is small between nodes. Returns when the first piece was copied.
 * `buffers`: of a message within a node; NULL: it is a put.
 */
static uint64_t post_charge(struct rb_endpoint *ep, const struct rb_request *r,
			    const struct rb_sim_buffers *buffers)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	const rubato_sim_costs *costs = &process->cluster->options.costs;
	uint64_t begin_ns = rb_sim_process_now(process), took_ns, sent_ns, pieces;
	struct charge charge = { 0, 0, 0 };
	bool near, is_put = buffers == NULL;

	if (r->peer >= ep->rank_count || r->peer == ep->rank)
		return begin_ns;
	near = is_near(ep, r);
	pieces = is_put ? 1 : rb_sim_pieces(near, r->size_bytes);
	charge.busy_ns =
		(double)(near ? 1 : pieces) * (double)(near ? costs->node_send_ns : costs->send_ns);
	if (!near)
		charge.busy_ns += stack_ns(process, r->size_bytes);
	if (near && is_put)
		copy_charge(process, process, put_target(r), r->buffer, r->size_bytes, &charge);
	else if (near && buffers->whole)
		message_charge(ep, r, true, buffers, &charge);
	else if (!near && (!is_put || r->size_bytes <= RB_SIM_PUT_COPY_BYTES_MAX))
		charge.bytes += 2 * (uint64_t)r->size_bytes;
	charge_pay(process, &charge);
	took_ns = rb_sim_process_now(process) - begin_ns;
	if (pieces == 1 || (near && !buffers->whole))
		return begin_ns + took_ns;
	if (near)
		return begin_ns + share_ns(took_ns, RB_SHM_BULK_BYTES, r->size_bytes);
	sent_ns = rb_sim_ns((double)pieces * (double)costs->send_ns);
	took_ns -= sent_ns < took_ns ? sent_ns : took_ns;
	return begin_ns + costs->send_ns + share_ns(took_ns, RB_SIM_PIECE_BYTES, r->size_bytes);
}

/*
 * Of a message in pieces, who had nothing else to do has copied all but the last as they came: each
 * while the others behind it did, and the last of them while the last one did.
 */
static uint64_t copied_meanwhile(struct rb_endpoint *ep, const struct rb_request *r,
				 struct charge *charge)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	uint64_t last = rb_sim_last_piece_bytes(false, r->size_bytes),
		 before = r->size_bytes - last;
	double byte_ns = 1e9 / process->cluster->options.bandwidth;
	double rate = rb_sim_rate_least(process), ns, all_ns, piece_ns;

	if (before == 0 || rate == 0)
		return 0;
	piece_ns = 2.0 * RB_SIM_PIECE_BYTES / rate;
	all_ns = 2 * (double)before / rate - piece_ns + fmin(piece_ns, (double)last * byte_ns);
	ns = (double)(r->size_bytes - RB_SIM_PIECE_BYTES) * byte_ns;
	ns = fmin(fmin(ns, charge->quiet_ns), all_ns);
	charge->quiet_ns -= ns;
	return (uint64_t)(ns * rate);
}

/* Of what has come from another node, but for those pieces before the last that came while there
 * was nothing else to do. */
static double stack_behind_ns(struct rb_endpoint *ep, const struct rb_request *r,
			      struct charge *charge)
{
	const struct rb_sim_process *process = endpoint_of(ep)->process;
	uint64_t last = rb_sim_last_piece_bytes(false, r->size_bytes);
	double before = stack_ns(process, r->size_bytes - last);
	double meanwhile = fmin(before, charge->quiet_ns);

	charge->quiet_ns -= meanwhile;
	return before - meanwhile + stack_ns(process, last);
}

/*
 * Adds the copy of what has come from within the node. Of several pieces, who had nothing else to
 * do, on another core than the sender's, has copied all but the last as they came.
 */
static void near_charge(struct rb_endpoint *ep, const struct rb_request *r, struct charge *charge)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	const struct rb_sim_process *peer = endpoint_of(ep)->member->comm->members[r->peer].process;
	uint64_t before = r->size_bytes - rb_sim_last_piece_bytes(true, r->size_bytes);
	double rate = rb_sim_rate_least(process), all_ns, ns = 0;
	struct charge copy = { 0, 0, 0 };
	struct rb_sim_buffers buffers;

	memcpy(&buffers, &r->backend[RB_SIM_BUFFERS], sizeof(buffers));
	if (!buffers.whole) {
		asked_charge(ep, r, false, charge);
		return;
	}
	message_charge(ep, r, false, &buffers, &copy);
	all_ns = copy.busy_ns + (rate > 0 ? (double)copy.bytes / rate : 0);
	if (before > 0 && all_ns > 0 && (process->core == NULL || process->core != peer->core))
		ns = fmin(fmin((double)r->backend[RB_SIM_CAME_NS], charge->quiet_ns),
			  all_ns * (double)before / (double)r->size_bytes);
	charge->quiet_ns -= ns;
	if (ns > 0) {
		copy.busy_ns *= 1 - ns / all_ns;
		copy.bytes = (uint64_t)((double)copy.bytes * (1 - ns / all_ns) + 0.5);
	}
	charge->busy_ns += copy.busy_ns;
	charge->bytes += copy.bytes;
}

/* Adds what it costs to have completed. */
static void done_charge(struct rb_endpoint *ep, const struct rb_request *r, struct charge *charge)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	const rubato_sim_costs *costs = &process->cluster->options.costs;
	bool near;

	if (r->status != RUBATO_OK || r->peer == ep->rank || r->kind == RB_REQUEST_PUT)
		return;
	near = is_near(ep, r);
	if (r->kind == RB_REQUEST_RECV && !near) {
		charge->busy_ns +=
			(double)rb_sim_pieces(false, r->size_bytes) * (double)costs->receive_ns +
			stack_behind_ns(ep, r, charge);
		charge->bytes += 2 * (uint64_t)r->size_bytes - copied_meanwhile(ep, r, charge);
		return;
	}
	if (r->kind == RB_REQUEST_RECV) {
		charge->busy_ns += (double)costs->node_receive_ns;
		near_charge(ep, r, charge);
	} else if (near) { /* It was asked for. */
		asked_charge(ep, r, true, charge);
	}
}

/* What is said of a buffer is so. */
static void where_check(const struct rb_endpoint *ep, const struct rb_request *r)
{
	const struct rb_region *region = rb_request_region(ep, r);

	RB_ASSERT(RB_IMPLIES(region != NULL && r->size_bytes > 0,
			     (uint8_t *)r->buffer >= (uint8_t *)region->base &&
				     (uint8_t *)r->buffer + r->size_bytes <=
					     (uint8_t *)region->base + region->size_bytes));
}

static void sim_send(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	struct rb_sim_post post = { .ready_ns = rb_sim_process_now(process) };

	where_check(ep, request);
	if (request->peer == ep->rank || (request->peer < ep->rank_count && is_near(ep, request)))
		rb_sim_pair_sends(nic_of(ep), request, &post);
	if (process->cluster->charges)
		post.ready_ns = post_charge(ep, request, &post.buffers);
	rb_sim_send(nic_of(ep), request, &post);
}

static void sim_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	struct charge charge = { 0, 0, 0 };

	where_check(ep, request);
	rb_sim_recv(nic_of(ep), request);
	if (!process->cluster->charges || request->state != RB_REQUEST_DONE)
		return;
	done_charge(ep, request, &charge);
	charge_pay(process, &charge);
}

static void sim_put(struct rb_endpoint *ep, struct rb_request *request)
{
	where_check(ep, request);
	if (request->remote != NULL && rb_put_check(ep, request) != RUBATO_OK) {
		request->kind = RB_REQUEST_PUT;
		request->state = RB_REQUEST_DONE;
		request->status = RUBATO_ERR_UNSUPPORTED;
		return;
	}
	if (endpoint_of(ep)->process->cluster->charges)
		(void)post_charge(ep, request, NULL);
	rb_sim_put(nic_of(ep), request);
}

static void sim_work(struct rb_endpoint *ep, const struct rb_touch *touches, uint32_t count)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	struct rb_sim_access cost;

	if (!process->cluster->charges)
		return;
	cost = rb_sim_touch(process, touches, count);
	cost.busy_ns += (double)process->cluster->options.costs.work_ns;
	charge_pay(process, &(struct charge) { cost.busy_ns, cost.memory_bytes, 0 });
}

static void sim_cancel(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_sim_cancel(nic_of(ep), request);
}

static struct rb_request *sim_poll(struct rb_endpoint *ep)
{
	struct rb_sim_member *member = endpoint_of(ep)->member;
	struct rb_sim_process *process = member->process;
	struct charge charge = { 0, 0, 0 };
	struct rb_request *list;

	if (!process->ghost && !rb_sim_collectable(member->nic))
		rb_sim_idle(process); /* Who polls in a loop must see time pass. */
	member->news = false;
	rb_sim_pairs_take(member->nic);
	if (process->ghost || !rb_sim_collectable(member->nic))
		return NULL;
	process->idle = 0;
	list = rb_sim_collect(member->nic);
	if (process->cluster->charges) {
		charge.quiet_ns = (double)(rb_sim_process_now(process) - process->quiet_ns);
		for (const struct rb_request *r = list; r != NULL; r = r->next)
			done_charge(ep, r, &charge);
		charge_pay(process, &charge);
	}
	return list;
}

static bool sim_failure(struct rb_endpoint *ep, struct rb_failure *out)
{
	struct endpoint *e = endpoint_of(ep);
	const struct rb_sim_comm *comm = e->member->comm;

	while (e->failures_told < comm->failure_count) {
		uint32_t peer = comm->failures[e->failures_told++];
		const struct rb_sim_member *member = &comm->members[peer];

		if (peer == ep->rank)
			continue;
		*out = (struct rb_failure) { .peer = peer,
					     .status = RUBATO_ERR_PEER,
					     .gave_up = !member->process->crashed,
					     .blames = member->blames,
					     .spoke = member->spoke && !member->process->crashed };
		memcpy(out->last_words, member->last_words, sizeof(out->last_words));
		(void)snprintf(out->text, sizeof(out->text), "%s",
			       member->process->crashed ? "it crashed" : "it gave up");
		return true;
	}
	return false;
}

static void sim_wake(struct rb_endpoint *ep)
{
	rb_sim_wake(endpoint_of(ep)->process);
}

static void sim_wait(struct rb_endpoint *ep, uint64_t deadline_ns)
{
	struct rb_sim_member *member = endpoint_of(ep)->member;
	struct rb_sim_process *process = member->process;

	if (!process->ghost && (rb_sim_step(process, member) || member->news || process->woken)) {
		process->woken = false;
		rb_sim_idle(process);
		return;
	}
	ep->sleeps++;
	if (!process->ghost && rb_sim_step_next(process, member) < deadline_ns)
		deadline_ns = rb_sim_step_next(process, member);
	rb_sim_block(process, RB_SIM_WAITING, deadline_ns);
	process->woken = false;
}

static void sim_drive(struct rb_endpoint *ep, uint64_t (*step)(void *arg), void *arg)
{
	endpoint_of(ep)->member->step = step;
	endpoint_of(ep)->member->step_arg = arg;
	endpoint_of(ep)->member->step_ns = UINT64_MAX;
}

static uint64_t sim_now_ns(struct rb_endpoint *ep)
{
	return rb_sim_process_now(endpoint_of(ep)->process);
}

static uint64_t sim_random(struct rb_endpoint *ep)
{
	return rb_rng_next(&endpoint_of(ep)->process->rng);
}

static void sim_sleep(struct rb_endpoint *ep, uint64_t until_ns)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;

	uint64_t next_ns;

	for (struct rb_sim_member *member = process->members; member != NULL; member = member->next)
		member->step_ns = 0; /* The background wants to be called now, then it says when. */
	while (rb_sim_process_now(process) < until_ns) {
		if (!process->ghost && rb_sim_step(process, NULL))
			continue;
		next_ns = process->ghost ? UINT64_MAX : rb_sim_step_next(process, NULL);
		rb_sim_block(process, RB_SIM_SLEEPING, next_ns < until_ns ? next_ns : until_ns);
	}
}

void rb_sim_reseed(struct rb_endpoint *ep, uint64_t number)
{
	struct rb_sim_process *process = endpoint_of(ep)->process;
	uint64_t seed = process->cluster->options.seed ^ rb_mix(number + 0x9e3779b97f4a7c15u);

	process->cluster->rng.state = rb_mix(seed + 1);
	process->rng.state = rb_mix(seed ^ rb_mix(process->rank + 1));
}

static bool sim_recall(struct rb_endpoint *ep, struct rb_request *request)
{
	return rb_sim_recall(nic_of(ep), request);
}

static bool sim_unmatched(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg)
{
	return rb_sim_unmatched(nic_of(ep), visit, arg);
}

/* What a put costs is the same anyway: nothing of the receiver's processor. */
static bool sim_puts_well(struct rb_endpoint *ep, uint32_t peer)
{
	(void)peer;
	return endpoint_of(ep)->process->cluster->options.costs.puts != 0;
}

/* As long as it carries nothing else, and without jitter. */
static bool sim_link(struct rb_endpoint *ep, uint32_t peer, struct rb_link *out)
{
	const struct rb_sim_comm *comm = endpoint_of(ep)->member->comm;
	const struct rubato_sim_options *o = &endpoint_of(ep)->process->cluster->options;
	bool near = rb_sim_member_near(comm, ep->rank, peer);

	out->latency_us = (double)(near ? o->node_latency_ns : o->latency_ns) / 1e3;
	out->byte_us = 1e6 / (near ? o->node_bandwidth : o->bandwidth);
	out->message_us = near ? 0 : (double)(o->costs.send_ns + o->costs.receive_ns) / 2e3;
	out->copied_bytes = near ? 0 : 1e18; /* All. */
	out->piece_bytes = near ? 0 : RB_SIM_PIECE_BYTES;
	out->burst_bytes = near ? 0 : (double)o->costs.burst_bytes;
	return true;
}

static double byte_us(double bandwidth)
{
	return bandwidth > 0 ? 1e6 / bandwidth : 0;
}

/* Nothing, where memory takes no time. */
static bool sim_node_speed(struct rb_endpoint *ep, struct rb_node_speed *out)
{
	const struct rubato_sim_options *o = &endpoint_of(ep)->process->cluster->options;
	const rubato_sim_costs *costs = &o->costs;
	const struct rb_sim_cluster *c = endpoint_of(ep)->process->cluster;
	double core = rb_sim_core_bandwidth(c);

	if (!c->moves)
		return false;
	*out = (struct rb_node_speed) {
		.latency_us = (double)o->node_latency_ns / 1e3,
		.message_us = (double)(costs->node_send_ns + costs->node_receive_ns) / 2e3,
		.core_byte_us = byte_us(costs->core_bandwidth > 0 ? costs->core_bandwidth
								  : costs->memory_bandwidth),
		.memory_byte_us = byte_us(costs->memory_bandwidth),
		.eager_bytes = c->attaches ? RB_SIM_NODE_EAGER_BYTES_MAX : RB_SHM_EAGER_MAX,
		.attach_bytes = c->attaches ? RB_SHM_ATTACH_BYTES_MIN : 0,
		.attach_copies = !c->attaches || costs->attach_bandwidth == 0 ? 0
				 : core > costs->attach_bandwidth ? core / costs->attach_bandwidth
								  : 1,
		.work_us = (double)costs->work_ns / 1e3,
	};
	return true;
}

static uint64_t sim_card(struct rb_endpoint *ep)
{
	return (uint64_t)(uintptr_t)endpoint_of(ep)->process->card;
}

static void sim_dump(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg)
{
	rb_sim_describe(nic_of(ep), line, arg);
}

const struct rb_transport_ops rb_transport_sim = {
	.name = "sim",
	.caps = RB_CAP_MAP | RB_CAP_PUT | RB_CAP_BACKGROUND | RB_CAP_VIRTUAL_TIME | RB_CAP_REGIONS,
	.key_bytes = KEY_BYTES,
	.open = sim_open,
	.address = sim_address,
	.reachable = sim_reachable,
	.connect = sim_connect,
	.close = sim_close,
	.region_alloc = sim_region_alloc,
	.region_add = sim_region_add,
	.region_drop = sim_region_drop,
	.region_key = sim_region_key,
	.remote_open = sim_remote_open,
	.remote_close = sim_remote_close,
	.word_of = sim_word_of,
	.word_map = sim_word_map,
	.send = sim_send,
	.recv = sim_recv,
	.put = sim_put,
	.cancel = sim_cancel,
	.recall = sim_recall,
	.unmatched = sim_unmatched,
	.poll = sim_poll,
	.failure = sim_failure,
	.puts_well = sim_puts_well,
	.link = sim_link,
	.node_speed = sim_node_speed,
	.card = sim_card,
	.wake = sim_wake,
	.wait = sim_wait,
	.drive = sim_drive,
	.now_ns = sim_now_ns,
	.random = sim_random,
	.sleep = sim_sleep,
	.work = sim_work,
	.dump = sim_dump,
};
