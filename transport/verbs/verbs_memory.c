/*
 * verbs_memory.c -- regions, their keys, registration for one message, and put.
 *
 * A key: address, size and remote keys of the region, one a rail, and what memory it is. A put's
 * source that lies in no region is registered for the put, or found to be (verbs_cache.h); one that
 * is short, or cannot be registered, leaves from slots.
 *
 * A registration that cannot be ended names memory that may become somebody else's. No peer writes
 * there any more when its message has ended in good order; one that may is lost (verbs_large.c). It
 * is tried again at close.
 *
 * A device's memory is registered by its dma-buf; else as the host's, where nvidia-peermem is
 * loaded; in strict order, as no card has shown what a flush is of relaxed writes. Where neither
 * can be, posts do not name any; where it turns out later that some cannot be, it is copied by way
 * of the host's, and who posts is told (`slow`). The log says which.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs_cache.h"
#include "transport/verbs/verbs_payload.h"

#define COPIED_MAX 16384u /* Guess: below, registering takes longer than copying. */

/* ---- Registration ---- */

static bool has_peermem(void)
{
	return access("/sys/module/nvidia_peermem", F_OK) == 0 ||
	       access("/sys/module/nv_peer_mem", F_OK) == 0;
}

static const char *way_text(const struct rb_verbs *vb)
{
	return (vb->base.slow & 1u << RB_MEMORY_DEVICE) != 0   ? "through the host's"
	       : (vb->device_ways & RB_MEMORY_BY_DMABUF) != 0  ? "by dma-buf"
	       : (vb->device_ways & RB_MEMORY_BY_PEERMEM) != 0 ? "by nvidia-peermem"
							       : "through the host's";
}

void rb_verbs_devices_changed(struct rb_endpoint *ep)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	const char *why = NULL;
	uint32_t its = vb->device.ways != NULL ? vb->device.ways(vb->device.arg, &why) : 0;
	uint32_t ways = its;

	if (vb->api.ibv_reg_dmabuf_mr == NULL)
		ways &= ~RB_MEMORY_BY_DMABUF;
	if (!has_peermem())
		ways &= ~RB_MEMORY_BY_PEERMEM;
	if (ways == 0 && its != 0)
		why = "libibverbs registers no dma-bufs, and nvidia_peermem is not loaded";
	vb->device_ways = ways;
	vb->device_lacking = ways == 0 ? why : NULL;
	vb->base.takes = ways != 0 ? 1u << RB_MEMORY_DEVICE : 0;
	if (ways != 0 || why != NULL)
		RB_LOG(RB_LOG_INFO, "verbs: device memory goes %s%s%s", way_text(vb),
		       ways == 0 ? ": " : "", ways == 0 ? why : "");
}

size_t rb_verbs_device_path(const struct rb_verbs *vb, char *text, size_t text_bytes)
{
	text[0] = '\0';
	return vb->base.takes == 0 && vb->device_lacking == NULL
		       ? 0
		       : (size_t)snprintf(text, text_bytes, "device memory %s; ", way_text(vb));
}

/* What peers write may become visible in any order: nobody looks at it before a message
 * has come behind it on the same queue pair, whose completion says that all of it is there. A
 * device or kernel that knows no relaxed order ignores that it may. */
static struct ibv_mr *host_register(const struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				    size_t size_bytes, int access)
{
	if ((access & IBV_ACCESS_REMOTE_WRITE) == 0 || vb->api.ibv_reg_mr_iova2 == NULL)
		return vb->api.ibv_reg_mr(pd, base, size_bytes, access);
	return vb->api.ibv_reg_mr_iova2(pd, base, size_bytes, (uintptr_t)base,
					(unsigned int)access | IBV_ACCESS_RELAXED_ORDERING);
}

/* What is kept, and not in use, makes room. */
struct ibv_mr *rb_verbs_host_register(struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				      size_t size_bytes, int access)
{
	struct ibv_mr *mr = host_register(vb, pd, base, size_bytes, access);

	if (mr == NULL && errno == ENOMEM && rb_verbs_cache_shrink(vb))
		mr = host_register(vb, pd, base, size_bytes, access);
	return mr;
}

bool rb_verbs_flight_register(struct rb_verbs *vb, struct rb_verbs_flight *flight, uint32_t rails,
			      int access)
{
	const struct rb_request *request = flight->request;

	flight->cached =
		rb_verbs_cache_take(vb, request->buffer, request->size_bytes, rails, access);
	for (uint32_t i = 0; i < rails; i++) {
		flight->mrs[i] =
			flight->cached != NULL
				? flight->cached->mrs[i]
				: rb_verbs_host_register(vb, vb->rails[i].pd, request->buffer,
							 request->size_bytes, access);
		if (flight->mrs[i] == NULL) {
			(void)rb_verbs_unregister(vb, flight);
			return false;
		}
	}
	return true;
}

/* NULL: errno. */
static struct ibv_mr *dmabuf_register(struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				      size_t size_bytes, int access)
{
	struct ibv_mr *mr;
	uint64_t offset;
	int fd, error;

	if (vb->device.export_dmabuf(vb->device.arg, base, size_bytes, &fd, &offset) != RUBATO_OK) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = vb->api.ibv_reg_dmabuf_mr(pd, offset, size_bytes, (uintptr_t)base, fd, access);
	error = errno;
	(void)close(fd); /* The registration holds the memory. */
	errno = error;
	return mr;
}

/* From now on who posts had better stage it. */
static void slow_say(struct rb_verbs *vb, const struct rb_verbs_rail *rail, const char *why)
{
	if ((vb->base.slow & 1u << RB_MEMORY_DEVICE) == 0)
		RB_LOG(RB_LOG_WARN,
		       "verbs: %s: device memory cannot be registered, and goes through the host's "
		       "from now on: %s",
		       rail->port.device, why);
	vb->base.slow |= 1u << RB_MEMORY_DEVICE;
}

/* NULL: errno, EOPNOTSUPP whatever it was. */
static struct ibv_mr *device_register(struct rb_verbs *vb, const struct rb_verbs_rail *rail,
				      void *base, size_t size_bytes, int access)
{
	struct ibv_mr *mr = NULL;

	if ((vb->device_ways & RB_MEMORY_BY_DMABUF) != 0)
		mr = dmabuf_register(vb, rail->pd, base, size_bytes, access);
	if (mr == NULL && (vb->device_ways & RB_MEMORY_BY_PEERMEM) != 0)
		mr = vb->api.ibv_reg_mr(rail->pd, base, size_bytes, access);
	if (mr == NULL && (vb->device_ways & RB_MEMORY_BY_DMABUF) != 0 && errno == EOPNOTSUPP)
		slow_say(vb, rail, rubato_error_text());
	else if (mr == NULL)
		slow_say(vb, rail, strerror(errno));
	if (mr == NULL)
		errno = EOPNOTSUPP;
	return mr;
}

bool rb_verbs_mr_drop(struct rb_verbs *vb, const struct rb_verbs_rail *rail, struct ibv_mr *mr)
{
	struct rb_verbs_stuck *stuck;
	int error = vb->api.ibv_dereg_mr(mr);

	if (error == 0)
		return true;
	if (!vb->stuck_said)
		RB_LOG(RB_LOG_WARN,
		       "verbs: %s: a registration cannot be ended, and keeps its memory: %s",
		       rail->port.device, strerror(error));
	vb->stuck_said = true;
	stuck = malloc(sizeof(*stuck));
	if (stuck == NULL)
		return false;
	*stuck = (struct rb_verbs_stuck) { vb->stuck, mr };
	vb->stuck = stuck;
	return false;
}

void rb_verbs_stuck_end(struct rb_verbs *vb)
{
	while (vb->stuck != NULL) {
		struct rb_verbs_stuck *stuck = vb->stuck;

		vb->stuck = stuck->next;
		(void)vb->api.ibv_dereg_mr(stuck->mr);
		free(stuck);
	}
}

/* ---- Regions ---- */

static struct rb_verbs_region *region_make(struct rb_verbs *vb, void *base, size_t size_bytes)
{
	struct rb_verbs_region *region = calloc(1, sizeof(*region));

	if (region == NULL)
		return NULL;
	region->base.base = base;
	region->base.size_bytes = size_bytes;
	region->next = vb->regions;
	vb->regions = region;
	return region;
}

static rubato_status region_register(struct rb_verbs *vb, struct rb_verbs_region *region)
{
	void *base = region->base.base;
	size_t bytes = region->base.size_bytes;

	region->device = vb->device_ways != 0 && !region->mapped &&
			 vb->device.knows(vb->device.arg, base, bytes);
	vb->device_regions += region->device;
	for (uint32_t i = 0; i < vb->rail_count && bytes > 0; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];

		region->mrs[i] = region->device ? device_register(vb, rail, base, bytes,
								  RB_VERBS_ACCESS_REMOTE)
						: rb_verbs_host_register(vb, rail->pd, base, bytes,
									 RB_VERBS_ACCESS_REMOTE);
		if (region->mrs[i] == NULL && region->device)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "verbs: %s: this device memory cannot be registered",
				       rail->port.device);
		if (region->mrs[i] == NULL)
			return rb_verbs_unregistered(rail, errno, "of the caller's", bytes);
	}
	return RUBATO_OK;
}

rubato_status rb_verbs_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				    struct rb_region **out)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *base = mmap(NULL, size_bytes == 0 ? page : size_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rb_verbs_region *region;
	rubato_status status;

	if (base == MAP_FAILED)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region of %zu bytes",
			       size_bytes);
	region = region_make(vb, base, size_bytes);
	if (region == NULL) {
		(void)munmap(base, size_bytes == 0 ? page : size_bytes);
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region");
	}
	region->base.allocated = true;
	region->mapped = true;
	status = region_register(vb, region);
	if (status != RUBATO_OK)
		rb_verbs_region_drop(ep, &region->base);
	else
		*out = &region->base;
	return status;
}

rubato_status rb_verbs_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				  struct rb_region **out)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_region *region = region_make(vb, base, size_bytes);
	rubato_status status;

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region");
	status = region_register(vb, region);
	if (status != RUBATO_OK)
		rb_verbs_region_drop(ep, &region->base);
	else
		*out = &region->base;
	return status;
}

void rb_verbs_region_drop(struct rb_endpoint *ep, struct rb_region *region)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_region *own = (struct rb_verbs_region *)region;
	struct rb_verbs_region **at = &vb->regions;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (region == NULL)
		return;
	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
	vb->device_regions -= own->device;
	for (uint32_t i = 0; i < vb->rail_count; i++)
		if (own->mrs[i] != NULL)
			(void)rb_verbs_mr_drop(vb, &vb->rails[i], own->mrs[i]);
	if (own->mapped)
		(void)munmap(region->base, region->size_bytes == 0 ? page : region->size_bytes);
	free(own);
}

rubato_status rb_verbs_region_key(struct rb_endpoint *ep, struct rb_region *region, void *key,
				  size_t *key_bytes)
{
	struct rb_verbs_region *own = (struct rb_verbs_region *)region;
	struct rb_wire w = rb_wire_over(key, RB_KEY_BYTES_MAX);

	(void)ep;
	rb_wire_put_u64(&w, (uintptr_t)region->base);
	rb_wire_put_u64(&w, region->size_bytes);
	for (uint32_t i = 0; i < RB_VERBS_RAILS_MAX; i++)
		rb_wire_put_u32(&w, own->mrs[i] != NULL ? own->mrs[i]->rkey : 0);
	rb_wire_put_u8(&w, (uint8_t)region->kind);
	RB_ASSERT(!w.bad);
	*key_bytes = (size_t)(w.at - (uint8_t *)key);
	return RUBATO_OK;
}

rubato_status rb_verbs_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				   size_t key_bytes, struct rb_remote **out)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)key, key_bytes);
	uint64_t address = rb_wire_get_u64(&w), size_bytes = rb_wire_get_u64(&w);
	uint32_t keys[RB_VERBS_RAILS_MAX];
	struct rb_verbs_remote *remote;
	uint8_t kind;
	bool keyed;

	if (peer >= ep->rank_count || !vb->peers[peer].used)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u is not connected here", peer);
	for (uint32_t i = 0; i < RB_VERBS_RAILS_MAX; i++)
		keys[i] = rb_wire_get_u32(&w);
	kind = rb_wire_get_u8(&w);
	keyed = true;
	for (uint32_t i = 0; i < vb->peers[peer].link_count; i++)
		keyed &= keys[i] != 0;
	if (w.bad || w.at != w.end || kind >= RB_MEMORY_KIND_COUNT ||
	    size_bytes > UINT64_MAX - address || (size_bytes > 0 && !keyed))
		return RB_FAIL(RUBATO_ERR_PEER, "rank %u gave a malformed key of a region", peer);
	/* A device's memory is its owner's affair: the key says all that a write needs. */
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a peer's region");
	remote->base.peer = peer;
	remote->base.kind = (enum rb_memory_kind)kind;
	remote->base.size_bytes = size_bytes;
	remote->base.mapped = peer == ep->rank ? (void *)(uintptr_t)address : NULL;
	remote->address = address;
	memcpy(remote->keys, keys, sizeof(keys));
	remote->next = vb->remotes;
	vb->remotes = remote;
	*out = &remote->base;
	return RUBATO_OK;
}

void rb_verbs_remote_close(struct rb_endpoint *ep, struct rb_remote *remote)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_remote *own = (struct rb_verbs_remote *)remote;
	struct rb_verbs_remote **at = &vb->remotes;

	if (remote == NULL)
		return;
	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
	free(own);
}

/* ---- Registration for one message ---- */

static void keys_take(struct rb_verbs_flight *flight, uint32_t rail, const struct ibv_mr *mr,
		      bool written)
{
	flight->local_keys[rail] = mr->lkey;
	if (written)
		flight->keys[rail] = mr->rkey;
}

/* Of a device's memory that cannot be registered, what is to be read. */
static rubato_status copy_make(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	const struct rb_request *request = flight->request;

	flight->copy = malloc(request->size_bytes);
	if (flight->copy == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a copy of device memory");
	return rb_verbs_copy(vb, rb_verbs_is_device(request), flight->copy, request->buffer,
			     request->size_bytes);
}

static bool device_flight_register(struct rb_verbs *vb, struct rb_verbs_flight *flight,
				   uint32_t rails, bool written)
{
	const struct rb_request *request = flight->request;

	if (!rb_endpoint_reaches(&vb->base, RB_MEMORY_DEVICE))
		return false;
	for (uint32_t i = 0; i < rails; i++) {
		flight->mrs[i] =
			device_register(vb, &vb->rails[i], request->buffer, request->size_bytes,
					written ? RB_VERBS_ACCESS_REMOTE : 0);
		if (flight->mrs[i] == NULL) {
			(void)rb_verbs_unregister(vb, flight);
			return false;
		}
	}
	return true;
}

rubato_status rb_verbs_register(struct rb_verbs *vb, struct rb_verbs_flight *flight, bool written)
{
	struct rb_request *request = flight->request;
	uint32_t rails = vb->peers[request->peer].link_count;
	const struct rb_verbs_region *region =
		(const struct rb_verbs_region *)rb_request_region(&vb->base, request);
	bool device = rb_verbs_is_device(request);

	if (device && !written && flight->keys[0] == 0)
		return copy_make(vb, flight); /* It leaves in pieces. */
	if (region != NULL && rb_verbs_is_inside(region, request)) {
		for (uint32_t i = 0; i < rails; i++)
			keys_take(flight, i, region->mrs[i], written);
		return RUBATO_OK;
	}
	if (request->size_bytes == 0 || (!device && !written && request->size_bytes <= COPIED_MAX))
		return RUBATO_OK;
	if (!(device ? device_flight_register(vb, flight, rails, written)
		     : rb_verbs_flight_register(vb, flight, rails,
						written ? RB_VERBS_ACCESS_REMOTE : 0))) {
		if (written)
			memset(flight->keys, 0, sizeof(flight->keys));
		return device && !written ? copy_make(vb, flight) : RUBATO_OK;
	}
	for (uint32_t i = 0; i < rails; i++)
		keys_take(flight, i, flight->mrs[i], written);
	return RUBATO_OK;
}

bool rb_verbs_unregister(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	bool gone = true;

	/* Those of the first rails are. */
	for (uint32_t i = 0; i < vb->rail_count && flight->mrs[i] != NULL; i++) {
		if (flight->cached == NULL)
			gone &= rb_verbs_mr_drop(vb, &vb->rails[i], flight->mrs[i]);
		flight->mrs[i] = NULL;
	}
	if (flight->cached != NULL)
		gone = rb_verbs_cache_give(vb, flight->cached);
	flight->cached = NULL;
	memset(flight->local_keys, 0, sizeof(flight->local_keys));
	if (flight->copy != NULL)
		free(flight->copy);
	flight->copy = NULL;
	return gone;
}

/* ---- Put ---- */

/* Its target may be a device's, and its source another kind. */
static void put_self(struct rb_verbs *vb, struct rb_request *put)
{
	uint8_t *to = (uint8_t *)put->remote->mapped + put->remote_offset;
	bool device = rb_verbs_is_device(put) || put->remote->kind == RB_MEMORY_DEVICE;
	rubato_status status = rb_verbs_copy(vb, device, to, put->buffer, put->size_bytes);

	if (status == RUBATO_OK) {
		vb->base.bytes_sent += put->size_bytes;
		vb->base.bytes_received += put->size_bytes;
		rb_verbs_deliver_self(vb, put);
	}
	rb_verbs_complete(vb, put, status);
}

static void put_begin(struct rb_verbs *vb, struct rb_request *put)
{
	const struct rb_verbs_remote *remote = (const struct rb_verbs_remote *)put->remote;
	struct rb_verbs_flight *flight;
	rubato_status status = rb_verbs_flight_begin(vb, put, &flight);

	if (status != RUBATO_OK) {
		rb_verbs_complete(vb, put, status);
		return;
	}
	put->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_SENDING;
	flight->address = remote->address + put->remote_offset;
	memcpy(flight->keys, remote->keys, sizeof(flight->keys));
	if (put->size_bytes > 0)
		status = rb_verbs_register(vb, flight, false);
	if (status == RUBATO_OK)
		rb_verbs_flight_push_begin(vb, flight);
	else
		rb_verbs_complete(vb, put, status);
}

void rb_verbs_post_put(struct rb_verbs *vb, struct rb_request *put)
{
	struct rb_remote *remote = put->remote;
	struct rb_verbs_peer *peer = &vb->peers[put->peer];
	rubato_status status = RUBATO_OK;

	if (remote->peer != put->peer || put->remote_offset > remote->size_bytes ||
	    put->size_bytes > remote->size_bytes - put->remote_offset)
		status = RB_FAIL(RUBATO_ERR_ARGUMENT,
				 "a put of %zu bytes at %llu does not fit rank %u's region of %zu",
				 put->size_bytes, (unsigned long long)put->remote_offset,
				 remote->peer, remote->size_bytes);
	else if (peer->lost)
		status = RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason);
	else if (put->size_bytes > 0 && rb_verbs_is_device(put) && vb->base.takes == 0)
		status = RB_FAIL(RUBATO_ERR_UNSUPPORTED, "verbs does not put from device memory");
	if (status != RUBATO_OK)
		rb_verbs_complete(vb, put, status);
	else if (put->peer == vb->base.rank)
		put_self(vb, put);
	else
		put_begin(vb, put);
}
