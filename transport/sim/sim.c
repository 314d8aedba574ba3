/*
 * sim.c -- the simulated transport: an endpoint of a rank in a world (sim_world.h), and its memory.
 *
 * A rank may have several endpoints, one a group (a job, or what was split off it): they share its
 * links, its clock and its fiber. While it waits on one, the others' background steps go on.
 *
 * All ranks share one address space, so "mapping" a peer's memory is to know its address; it is
 * allowed within a node only, so that the model holds. A store to it is seen at once, earlier than
 * the message that announces it. Memory that a closed endpoint gives up lives on until the world
 * ends: a ghost may still look at it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "transport/sim/sim_world_inside.h"

#define PAGE 4096
#define ADDRESS_BYTES 16
#define ADDRESS_MAGIC 0x6d69732d74616275u /* "ubat-sim" */
#define KEY_BYTES 16

struct rb_sim_region {
	struct rb_region base; /* First. */
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
	struct rb_sim_seat *seat;
	struct rb_sim_place *place;
	struct rb_sim_region *regions;
	struct remote *remotes;
	uint32_t region_next;
	uint32_t failures_told; /* Of the group's. */
};

static struct endpoint *endpoint_of(struct rb_endpoint *ep)
{
	return (struct endpoint *)ep;
}

static struct endpoint *peer_endpoint(struct endpoint *e, uint32_t peer)
{
	const struct rb_sim_group *g = e->place->group;

	if (peer >= g->rank_count)
		return NULL;
	return (struct endpoint *)rb_sim_port_endpoint(g->places[peer].port);
}

/* ---- Open and close ---- */

/* The seat sits down: who opens an endpoint during a run is whoever runs. */
static rubato_status place_take(const struct rb_transport_options *options,
				struct rb_sim_place **out)
{
	struct rb_sim_world *w = options->backend;
	struct rb_sim_group *group;
	struct rb_sim_place *place;
	struct rb_sim_seat *seat;

	if (options->rank_count > w->options.rank_count || options->rank >= options->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: rank %u of %u in a world of %u",
			       options->rank, options->rank_count, w->options.rank_count);
	RB_TRY(rb_sim_group_get(w, options->job, options->rank_count, &group));
	seat = w->current != NULL ? w->current : &w->seats[options->rank];
	place = &group->places[options->rank];
	if (place->seat == NULL) {
		place->seat = seat;
		place->next = seat->places;
		seat->places = place;
	}
	if (place->seat != seat)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: rank %u is taken", options->rank);
	*out = place;
	return RUBATO_OK;
}

static rubato_status sim_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct rb_sim_world *w = options->backend;
	struct rb_sim_place *place = NULL;
	struct endpoint *e;
	rubato_status err;

	if (w == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "sim: not in a simulated world");
	RB_TRY(place_take(options, &place));
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*e));
	e->base.ops = &rb_transport_sim;
	e->base.rank = options->rank;
	e->base.rank_count = options->rank_count;
	e->seat = place->seat;
	e->place = place;
	e->failures_told = place->group->failure_count;
	err = rb_sim_port_open(place, &e->base);
	if (err != RUBATO_OK) {
		free(e);
		return err;
	}
	rb_sim_event_unset(w, &place->gone_event);
	place->gone = place->gone_fails = place->left = place->news = false;
	place->seat->woken = false;
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
		if (e->place->group->places[i].port == NULL) /* It may have closed, that is fine. */
			return RB_FAIL(RUBATO_ERR_PEER, "sim: rank %u never had an endpoint", i);
	}
	return RUBATO_OK;
}

static void region_free(struct rb_sim_region *region)
{
	if (region->base.allocated)
		free(region->base.base);
	free(region);
}

static void region_bury(struct rb_sim_seat *seat, struct rb_sim_region *region)
{
	region->next = seat->graves;
	seat->graves = region;
}

void rb_sim_graves_free(struct rb_sim_seat *seat)
{
	while (seat->graves != NULL) {
		struct rb_sim_region *region = seat->graves;

		seat->graves = region->next;
		region_free(region);
	}
}

static void sim_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct endpoint *e = endpoint_of(ep);

	(void)deadline_ns; /* Nothing here waits. */
	if (e == NULL)
		return;
	e->place->blames = abort ? ep->blames : 0;
	e->place->spoke = abort && ep->last_words != NULL;
	if (e->place->spoke)
		memcpy(e->place->last_words, ep->last_words, sizeof(e->place->last_words));
	if (!e->seat->ghost)
		rb_sim_tell(e->place, e->seat->world->options.latency_ns, abort);
	rb_sim_port_close(e->place->port);
	while (e->regions != NULL) {
		struct rb_sim_region *region = e->regions;

		e->regions = region->next;
		region_bury(e->seat, region);
	}
	while (e->remotes != NULL) {
		struct remote *remote = e->remotes;

		e->remotes = remote->next;
		free(remote);
	}
	e->place->step = NULL;
	free(e);
}

/* ---- Memory ---- */

static rubato_status region_new(struct endpoint *e, void *base, size_t size_bytes, bool allocated,
				struct rb_region **out)
{
	struct rb_sim_region *region = calloc(1, sizeof(*region));

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*region));
	region->base = (struct rb_region) { base, size_bytes, allocated };
	region->number = e->region_next++;
	region->next = e->regions;
	e->regions = region;
	*out = &region->base;
	return RUBATO_OK;
}

static rubato_status sim_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				      struct rb_region **out)
{
	void *base = NULL;
	rubato_status err;

	if (posix_memalign(&base, PAGE, size_bytes > 0 ? size_bytes : 1) != 0)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: a region of %zu bytes", size_bytes);
	memset(base, 0, size_bytes);
	err = region_new(endpoint_of(ep), base, size_bytes, true, out);
	if (err != RUBATO_OK)
		free(base);
	return err;
}

static rubato_status sim_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				    struct rb_region **out)
{
	return region_new(endpoint_of(ep), base, size_bytes, false, out);
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
	if (e->seat->world->crashes || e->seat->ghost)
		region_bury(e->seat, region);
	else
		region_free(region);
}

static rubato_status sim_region_key(struct rb_endpoint *ep, struct rb_region *base, void *key,
				    size_t *key_bytes)
{
	struct rb_wire wire = rb_wire_over(key, KEY_BYTES);

	rb_wire_put_u32(&wire, ep->rank);
	rb_wire_put_u32(&wire, ((struct rb_sim_region *)base)->number);
	rb_wire_put_u64(&wire, base->size_bytes);
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
	uint32_t rank, number;

	memcpy(copy, key, key_bytes < sizeof(copy) ? key_bytes : sizeof(copy));
	rank = rb_wire_get_u32(&wire);
	number = rb_wire_get_u32(&wire);
	if (key_bytes != KEY_BYTES || rank != peer)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: no key of rank %u", peer);
	region = other != NULL ? region_find(other, number) : NULL;
	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_PEER, "sim: rank %u has no region %u (any more)", peer,
			       number);
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*remote));
	remote->base.peer = peer;
	remote->base.size_bytes = region->base.size_bytes;
	if (region->base.allocated && rb_sim_place_near(e->place->group, ep->rank, peer))
		remote->base.mapped = region->base.base;
	remote->number = number;
	remote->next = e->remotes;
	if (e->remotes != NULL)
		e->remotes->previous = remote;
	e->remotes = remote;
	*out = &remote->base;
	return RUBATO_OK;
}

static void sim_remote_close(struct rb_endpoint *ep, struct rb_remote *base)
{
	struct endpoint *e = endpoint_of(ep);
	struct remote *remote = (struct remote *)base;

	if (remote->previous != NULL)
		remote->previous->next = remote->next;
	else
		e->remotes = remote->next;
	if (remote->next != NULL)
		remote->next->previous = remote->previous;
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

static uint64_t sim_word_of(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	struct endpoint *e = endpoint_of(ep);

	return allocated_holds(e, (uintptr_t)address, size_bytes) ? (uint64_t)(uintptr_t)address
								  : 0;
}

static void *sim_word_map(struct rb_endpoint *ep, uint32_t peer, uint64_t word, uint64_t size_bytes)
{
	struct endpoint *e = endpoint_of(ep), *other = peer_endpoint(e, peer);

	/* Everybody reaches their own. */
	if (word == 0 || other == NULL || !allocated_holds(other, (uintptr_t)word, size_bytes) ||
	    (peer != ep->rank && !rb_sim_place_near(e->place->group, ep->rank, peer)))
		return NULL;
	return (void *)(uintptr_t)word;
}

/* ---- Posts, progress, waiting ---- */

static struct rb_sim_port *port_of(struct rb_endpoint *ep)
{
	return endpoint_of(ep)->place->port;
}

static void sim_send(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_sim_send(port_of(ep), request);
}

static void sim_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_sim_recv(port_of(ep), request);
}

static void sim_put(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_sim_put(port_of(ep), request);
}

static void sim_cancel(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_sim_cancel(port_of(ep), request);
}

static struct rb_request *sim_poll(struct rb_endpoint *ep)
{
	struct rb_sim_place *place = endpoint_of(ep)->place;
	struct rb_sim_seat *seat = place->seat;

	if (!seat->ghost && !rb_sim_collectable(place->port))
		rb_sim_idle(seat); /* Who polls in a loop must see time pass. */
	place->news = false;
	if (seat->ghost || !rb_sim_collectable(place->port))
		return NULL;
	seat->idle = 0;
	return rb_sim_collect(place->port);
}

static bool sim_failure(struct rb_endpoint *ep, struct rb_failure *out)
{
	struct endpoint *e = endpoint_of(ep);
	const struct rb_sim_group *g = e->place->group;

	while (e->failures_told < g->failure_count) {
		uint32_t peer = g->failures[e->failures_told++];
		const struct rb_sim_place *place = &g->places[peer];

		if (peer == ep->rank)
			continue;
		*out = (struct rb_failure) { .peer = peer,
					     .status = RUBATO_ERR_PEER,
					     .gave_up = !place->seat->crashed,
					     .blames = place->blames,
					     .spoke = place->spoke && !place->seat->crashed };
		memcpy(out->last_words, place->last_words, sizeof(out->last_words));
		(void)snprintf(out->text, sizeof(out->text), "%s",
			       place->seat->crashed ? "it crashed" : "it gave up");
		return true;
	}
	return false;
}

static void sim_wake(struct rb_endpoint *ep)
{
	rb_sim_wake(endpoint_of(ep)->seat);
}

static void sim_wait(struct rb_endpoint *ep, uint64_t deadline_ns)
{
	struct rb_sim_place *place = endpoint_of(ep)->place;
	struct rb_sim_seat *seat = place->seat;

	if (!seat->ghost && (rb_sim_step(seat, place) || place->news || seat->woken)) {
		seat->woken = false;
		rb_sim_idle(seat);
		return;
	}
	ep->sleeps++;
	if (!seat->ghost && rb_sim_step_next(seat, place) < deadline_ns)
		deadline_ns = rb_sim_step_next(seat, place);
	rb_sim_block(seat, RB_SIM_WAITING, deadline_ns);
	seat->woken = false;
}

static void sim_drive(struct rb_endpoint *ep, uint64_t (*step)(void *arg), void *arg)
{
	endpoint_of(ep)->place->step = step;
	endpoint_of(ep)->place->step_arg = arg;
	endpoint_of(ep)->place->step_ns = UINT64_MAX;
}

static uint64_t sim_now_ns(struct rb_endpoint *ep)
{
	return rb_sim_seat_now(endpoint_of(ep)->seat);
}

static uint64_t sim_random(struct rb_endpoint *ep)
{
	return rb_rng_next(&endpoint_of(ep)->seat->rng);
}

static void sim_sleep(struct rb_endpoint *ep, uint64_t until_ns)
{
	struct rb_sim_seat *seat = endpoint_of(ep)->seat;

	uint64_t next_ns;

	for (struct rb_sim_place *place = seat->places; place != NULL; place = place->next)
		place->step_ns = 0; /* The background wants to be called now, then it says when. */
	while (rb_sim_seat_now(seat) < until_ns) {
		if (!seat->ghost && rb_sim_step(seat, NULL))
			continue;
		next_ns = seat->ghost ? UINT64_MAX : rb_sim_step_next(seat, NULL);
		rb_sim_block(seat, RB_SIM_SLEEPING, next_ns < until_ns ? next_ns : until_ns);
	}
}

void rb_sim_reseed(struct rb_endpoint *ep, uint64_t number)
{
	struct rb_sim_seat *seat = endpoint_of(ep)->seat;
	uint64_t seed = seat->world->options.seed ^ rb_mix(number + 0x9e3779b97f4a7c15u);

	seat->world->rng.state = rb_mix(seed + 1);
	seat->rng.state = rb_mix(seed ^ rb_mix(seat->rank + 1));
}

static bool sim_recall(struct rb_endpoint *ep, struct rb_request *request)
{
	return rb_sim_recall(port_of(ep), request);
}

static bool sim_unmatched(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg)
{
	return rb_sim_unmatched(port_of(ep), visit, arg);
}

static void sim_dump(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg)
{
	rb_sim_describe(port_of(ep), line, arg);
}

const struct rb_transport_ops rb_transport_sim = {
	.name = "sim",
	.caps = RB_CAP_MAP | RB_CAP_PUT | RB_CAP_BACKGROUND | RB_CAP_VIRTUAL_TIME,
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
	.wake = sim_wake,
	.wait = sim_wait,
	.drive = sim_drive,
	.now_ns = sim_now_ns,
	.random = sim_random,
	.sleep = sim_sleep,
	.dump = sim_dump,
};
