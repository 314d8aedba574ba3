/*
 * verbs_memory.c -- regions, their keys, registration for one message, and put.
 *
 * A key: address, size and remote keys of the region, one a rail, and what memory it is. A put's
 * source that lies in no region is registered for the put; one that is short, or cannot be
 * registered, leaves from slots.
 *
 * A registration that cannot be ended names memory that may become somebody else's. No peer writes
 * there any more when its message has ended in good order; one that may is lost (verbs_large.c). It
 * is tried again at close.
 *
 * A device's memory is registered by its dma-buf; else as the host's, where nvidia-peermem is
 * loaded; else it is copied, in slots, as what cannot be registered. The log says which.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

#define ACCESS_REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define COPIED_MAX 16384u /* Guess: below, registering takes longer than copying. */

/* ---- Registration ---- */

void rb_verbs_device_memory_find(struct rb_verbs *vb)
{
	vb->peer_memory = access("/sys/module/nvidia_peermem", F_OK) == 0 ||
			  access("/sys/module/nv_peer_mem", F_OK) == 0;
	if (vb->device.copy != NULL && (vb->api.ibv_reg_dmabuf_mr != NULL || vb->peer_memory))
		vb->base.takes = 1u << RB_MEMORY_DEVICE;
}

static void device_say(struct rb_verbs *vb, const char *how, const char *why)
{
	if (!vb->device_said)
		RB_LOG(RB_LOG_INFO, "verbs: device memory is %s%s", how, why);
	vb->device_said = true;
}

/* NULL: errno. */
static struct ibv_mr *dmabuf_register(struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				      size_t size_bytes, int access)
{
	struct ibv_mr *mr;
	uint64_t offset;
	int fd, error;

	if (vb->api.ibv_reg_dmabuf_mr == NULL ||
	    vb->device.export_dmabuf(vb->device.arg, base, size_bytes, &fd, &offset) != RUBATO_OK) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = vb->api.ibv_reg_dmabuf_mr(pd, offset, size_bytes, (uintptr_t)base, fd, access);
	error = errno;
	(void)close(fd); /* The registration holds the memory. */
	errno = error;
	return mr;
}

/* The host's memory, or a device's. NULL: errno, which is EOPNOTSUPP where there is no way. */
static struct ibv_mr *memory_register(struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				      size_t size_bytes, int access)
{
	struct ibv_mr *mr;
	int error;

	if (vb->device.copy == NULL || !vb->device.knows(vb->device.arg, base, size_bytes))
		return vb->api.ibv_reg_mr(pd, base, size_bytes, access);
	mr = dmabuf_register(vb, pd, base, size_bytes, access);
	if (mr != NULL) {
		device_say(vb, "registered by dma-buf", "");
		return mr;
	}
	if (vb->peer_memory)
		mr = vb->api.ibv_reg_mr(pd, base, size_bytes, access);
	error = errno == ENOMEM ? ENOMEM : EOPNOTSUPP;
	if (mr != NULL)
		device_say(vb, "registered by nvidia-peermem", "");
	else
		device_say(vb, "copied by way of the host's: ", strerror(errno));
	errno = error;
	return mr;
}

static bool mr_drop(struct rb_verbs *vb, const struct rb_verbs_rail *rail, struct ibv_mr *mr)
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
	for (uint32_t i = 0; i < vb->rail_count && region->base.size_bytes > 0; i++) {
		region->mrs[i] = memory_register(vb, vb->rails[i].pd, region->base.base,
						 region->base.size_bytes, ACCESS_REMOTE);
		if (region->mrs[i] == NULL && errno == EOPNOTSUPP)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "verbs: %s: this device memory cannot be registered",
				       vb->rails[i].port.device);
		if (region->mrs[i] == NULL)
			return rb_verbs_unregistered(&vb->rails[i], errno, "of the caller's",
						     region->base.size_bytes);
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
	for (uint32_t i = 0; i < vb->rail_count; i++)
		if (own->mrs[i] != NULL)
			(void)mr_drop(vb, &vb->rails[i], own->mrs[i]);
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
	RB_TRY(rb_remote_check(ep, peer, (enum rb_memory_kind)kind));
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

static bool is_inside(const struct rb_verbs_region *region, const struct rb_request *request)
{
	uintptr_t base = (uintptr_t)region->base.base, at = (uintptr_t)request->buffer;

	return region->mrs[0] != NULL && at >= base &&
	       request->size_bytes <= region->base.size_bytes &&
	       at - base <= region->base.size_bytes - request->size_bytes;
}

static void keys_take(struct rb_verbs_flight *flight, uint32_t rail, const struct ibv_mr *mr,
		      bool written)
{
	flight->local_keys[rail] = mr->lkey;
	if (written)
		flight->keys[rail] = mr->rkey;
}

void rb_verbs_register(struct rb_verbs *vb, struct rb_verbs_flight *flight, bool written)
{
	struct rb_request *request = flight->request;
	uint32_t rails = vb->peers[request->peer].link_count;
	const struct rb_verbs_region *region =
		(const struct rb_verbs_region *)rb_request_region(&vb->base, request);

	if (region != NULL && is_inside(region, request)) {
		for (uint32_t i = 0; i < rails; i++)
			keys_take(flight, i, region->mrs[i], written);
		return;
	}
	if (request->size_bytes == 0 || (!written && request->size_bytes <= COPIED_MAX))
		return;
	for (uint32_t i = 0; i < rails; i++) {
		flight->mrs[i] = memory_register(vb, vb->rails[i].pd, request->buffer,
						 request->size_bytes, written ? ACCESS_REMOTE : 0);
		if (flight->mrs[i] == NULL) {
			(void)rb_verbs_unregister(vb, flight);
			if (written)
				memset(flight->keys, 0, sizeof(flight->keys));
			return;
		}
		keys_take(flight, i, flight->mrs[i], written);
	}
}

bool rb_verbs_unregister(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	bool gone = true;

	for (uint32_t i = 0; i < vb->rail_count; i++) {
		if (flight->mrs[i] != NULL)
			gone &= mr_drop(vb, &vb->rails[i], flight->mrs[i]);
		flight->mrs[i] = NULL;
		flight->local_keys[i] = 0;
	}
	return gone;
}

/* ---- Put ---- */

static void put_self(struct rb_verbs *vb, struct rb_request *put)
{
	rb_verbs_copy(vb, (uint8_t *)put->remote->mapped + put->remote_offset, put->buffer,
		      put->size_bytes);
	vb->base.bytes_sent += put->size_bytes;
	vb->base.bytes_received += put->size_bytes;
	rb_verbs_deliver_self(vb, put);
	rb_verbs_complete(vb, put, RUBATO_OK);
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
		rb_verbs_register(vb, flight, false);
	rb_verbs_flight_push_begin(vb, flight);
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
	else if (rb_put_check(&vb->base, put) != RUBATO_OK)
		status = RUBATO_ERR_UNSUPPORTED;
	if (status != RUBATO_OK)
		rb_verbs_complete(vb, put, status);
	else if (put->peer == vb->base.rank)
		put_self(vb, put);
	else
		put_begin(vb, put);
}
