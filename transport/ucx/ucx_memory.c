/*
 * ucx_memory.c -- regions, their keys, and put.
 *
 * UCX is asked for one thing only: memory that other processes of this host can map. Where a peer's
 * region is mapped, put is a copy; elsewhere it is pieces that the region's owner copies in, after
 * it has checked their bounds. A key: id, size and base of the region, then what UCX needs to map.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/ucx/ucx.h"

#define KEY_HEAD_BYTES (3 * sizeof(uint64_t) + sizeof(uint16_t) + sizeof(uint8_t))

struct rb_ucx_region *rb_ucx_region_find(struct rb_ucx *ux, uint64_t id)
{
	struct rb_ucx_region *region = ux->regions;

	while (region != NULL && region->id != id)
		region = region->next;
	return region;
}

static struct rb_ucx_region *region_make(struct rb_ucx *ux, void *base, size_t size_bytes)
{
	struct rb_ucx_region *region = calloc(1, sizeof(*region));

	if (region == NULL)
		return NULL;
	region->base.base = base;
	region->base.size_bytes = size_bytes;
	region->id = ++ux->regions_made;
	region->next = ux->regions;
	ux->regions = region;
	return region;
}

/* Memory that UCX can let others map; false: not here. */
static bool shared_alloc(struct rb_ucx *ux, size_t size_bytes, struct rb_ucx_region *region)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.length = size_bytes,
		.flags = UCP_MEM_MAP_ALLOCATE,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	/* UCX's POSIX memory gets its pages one by one: too much would first take all there is. */
	if (size_bytes / page > (size_t)sysconf(_SC_PHYS_PAGES))
		return false;
	if (ux->tcp_only || ux->api.ucp_mem_map(ux->context, &params, &region->memory) != UCS_OK)
		return false;
	if (ux->api.ucp_mem_query(region->memory, &attr) != UCS_OK ||
	    (uintptr_t)attr.address % page != 0) {
		(void)ux->api.ucp_mem_unmap(ux->context, region->memory);
		region->memory = NULL;
		return false;
	}
	region->base.base = attr.address;
	memset(attr.address, 0, size_bytes); /* Of UCX's ways to allocate, not all give zeros. */
	return true;
}

rubato_status rb_ucx_region_alloc(struct rb_endpoint *ep, size_t size_bytes, struct rb_region **out)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t whole = size_bytes == 0 ? page : size_bytes;
	struct rb_ucx_region *region = region_make(ux, NULL, size_bytes);

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region");
	region->base.allocated = true;
	if (!shared_alloc(ux, whole, region)) {
		void *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);

		if (base == MAP_FAILED) {
			rb_ucx_region_drop(ep, &region->base);
			return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region of %zu bytes",
				       size_bytes);
		}
		region->base.base = base;
		region->mapped = true;
	}
	*out = &region->base;
	return RUBATO_OK;
}

rubato_status rb_ucx_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				struct rb_region **out)
{
	struct rb_ucx_region *region = region_make((struct rb_ucx *)ep, base, size_bytes);

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a region");
	*out = &region->base;
	return RUBATO_OK;
}

void rb_ucx_region_drop(struct rb_endpoint *ep, struct rb_region *region)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct rb_ucx_region *own = (struct rb_ucx_region *)region;
	struct rb_ucx_region **at = &ux->regions;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (region == NULL)
		return;
	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
	if (own->memory != NULL)
		(void)ux->api.ucp_mem_unmap(ux->context, own->memory);
	if (own->mapped)
		(void)munmap(region->base, region->size_bytes == 0 ? page : region->size_bytes);
	free(own);
}

rubato_status rb_ucx_region_key(struct rb_endpoint *ep, struct rb_region *region, void *key,
				size_t *key_bytes)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct rb_ucx_region *own = (struct rb_ucx_region *)region;
	struct rb_wire w = rb_wire_over(key, RB_KEY_BYTES_MAX);
	void *rkey = NULL;
	size_t rkey_bytes = 0;

	if (own->memory != NULL &&
	    ux->api.ucp_rkey_pack(ux->context, own->memory, &rkey, &rkey_bytes) != UCS_OK)
		rkey = NULL;
	if (rkey == NULL || rkey_bytes > RB_KEY_BYTES_MAX - KEY_HEAD_BYTES)
		rkey_bytes = 0; /* Cannot be mapped, then: put goes in pieces. */
	rb_wire_put_u64(&w, own->id);
	rb_wire_put_u64(&w, region->size_bytes);
	rb_wire_put_u64(&w, (uint64_t)(uintptr_t)region->base);
	rb_wire_put_u8(&w, (uint8_t)region->kind);
	rb_wire_put_u16(&w, (uint16_t)rkey_bytes);
	rb_wire_put_bytes(&w, rkey, rkey_bytes);
	if (rkey != NULL)
		ux->api.ucp_rkey_buffer_release(rkey);
	RB_ASSERT(!w.bad);
	*key_bytes = (size_t)(w.at - (uint8_t *)key);
	return RUBATO_OK;
}

static void remote_map(struct rb_ucx *ux, struct rb_ucx_remote *remote, uint64_t base,
		       const void *rkey)
{
	struct rb_ucx_peer *peer = &ux->peers[remote->base.peer];

	if (!peer->shared || peer->ucp == NULL ||
	    ux->api.ucp_ep_rkey_unpack(peer->ucp, rkey, &remote->rkey) != UCS_OK) {
		remote->rkey = NULL;
		return;
	}
	if (ux->api.ucp_rkey_ptr(remote->rkey, base, &remote->base.mapped) == UCS_OK)
		return;
	remote->base.mapped = NULL;
	ux->api.ucp_rkey_destroy(remote->rkey);
	remote->rkey = NULL;
}

rubato_status rb_ucx_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				 size_t key_bytes, struct rb_remote **out)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	uint8_t copy[RB_KEY_BYTES_MAX];
	struct rb_wire w = rb_wire_over(copy, key_bytes);
	struct rb_ucx_remote *remote;
	uint64_t id, size_bytes, base;
	uint16_t rkey_bytes;
	uint8_t kind;

	if (peer >= ep->rank_count || !ux->peers[peer].used)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u is not connected here", peer);
	if (key_bytes < KEY_HEAD_BYTES || key_bytes > sizeof(copy))
		return RB_FAIL(RUBATO_ERR_PEER, "rank %u gave a region's key of %zu bytes", peer,
			       key_bytes);
	memcpy(copy, key, key_bytes);
	id = rb_wire_get_u64(&w);
	size_bytes = rb_wire_get_u64(&w);
	base = rb_wire_get_u64(&w);
	kind = rb_wire_get_u8(&w);
	rkey_bytes = rb_wire_get_u16(&w);
	if (kind >= RB_MEMORY_KIND_COUNT || rkey_bytes != w.end - w.at ||
	    size_bytes > UINT64_MAX - base)
		return RB_FAIL(RUBATO_ERR_PEER, "rank %u gave a malformed key of a region", peer);
	RB_TRY(rb_remote_check(ep, peer, (enum rb_memory_kind)kind));
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a peer's region");
	remote->base.peer = peer;
	remote->base.kind = (enum rb_memory_kind)kind;
	remote->base.size_bytes = size_bytes;
	remote->region = id;
	if (peer == ep->rank) {
		struct rb_ucx_region *own = rb_ucx_region_find(ux, id);

		remote->base.mapped = own == NULL ? NULL : own->base.base;
	} else if (rkey_bytes != 0) {
		remote_map(ux, remote, base, w.at);
	}
	remote->next = ux->remotes;
	ux->remotes = remote;
	*out = &remote->base;
	return RUBATO_OK;
}

void rb_ucx_remote_close(struct rb_endpoint *ep, struct rb_remote *remote)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct rb_ucx_remote *own = (struct rb_ucx_remote *)remote;
	struct rb_ucx_remote **at = &ux->remotes;

	if (remote == NULL)
		return;
	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
	if (own->rkey != NULL)
		ux->api.ucp_rkey_destroy(own->rkey);
	free(own);
}

/* ---- Put ---- */

static void put_mapped(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_ucx_head end = { .message = RB_UCX_PUT_END,
				   .sender = ux->base.rank,
				   .tag = request->tag,
				   .signature = request->signature };
	rubato_status status;

	status = rb_ucx_move_bytes(
		ux, rb_ucx_is_device(request) || request->remote->kind == RB_MEMORY_DEVICE,
		request->size_bytes == 0
			? NULL
			: (uint8_t *)request->remote->mapped + request->remote_offset,
		request->buffer, request->size_bytes);
	if (status != RUBATO_OK) {
		rb_ucx_complete(ux, request, status);
		return;
	}
	ux->base.bytes_sent += request->size_bytes;
	if (request->peer == ux->base.rank)
		rb_ucx_deliver(ux, &end, NULL);
	else
		rb_ucx_tell_head(ux, request->peer, &end);
	rb_ucx_complete(ux, request, ux->peers[request->peer].lost ? RUBATO_ERR_PEER : RUBATO_OK);
}

void rb_ucx_post_put(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_remote *remote = request->remote;
	struct rb_ucx_peer *peer = &ux->peers[request->peer];
	rubato_status status;

	if (remote->peer != request->peer || request->remote_offset > remote->size_bytes ||
	    request->size_bytes > remote->size_bytes - request->remote_offset)
		status = RB_FAIL(RUBATO_ERR_ARGUMENT,
				 "a put of %zu bytes at %llu does not fit rank %u's region of %zu",
				 request->size_bytes, (unsigned long long)request->remote_offset,
				 remote->peer, remote->size_bytes);
	else if (peer->lost)
		status = RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason);
	else if (rb_put_check(&ux->base, request) != RUBATO_OK)
		status = RUBATO_ERR_UNSUPPORTED;
	else if (remote->mapped != NULL || request->size_bytes == 0)
		status = RUBATO_OK;
	else if (request->peer == ux->base.rank)
		status = RB_FAIL(RUBATO_ERR_ARGUMENT, "a put into a region that is gone");
	else
		status = rb_ucx_flight_begin(ux, request, RB_UCX_STAGE_PUTTING);
	if (status != RUBATO_OK) {
		rb_ucx_complete(ux, request, status);
	} else if (remote->mapped != NULL || request->size_bytes == 0) {
		put_mapped(ux, request);
	} else {
		request->backend[RB_UCX_OTHER] = ++ux->puts_begun;
		rb_ucx_push(ux, request);
	}
}

static struct rb_ucx_put **put_find(struct rb_ucx_peer *peer, uint64_t id)
{
	struct rb_ucx_put **at = &peer->puts;

	while (*at != NULL && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static void put_forget(struct rb_ucx_peer *peer, struct rb_ucx_put **at)
{
	struct rb_ucx_put *put = *at;

	if (put == NULL)
		return;
	*at = put->next;
	peer->waiting--;
	free(put);
}

static struct rb_ucx_put **put_find_or_make(struct rb_ucx_peer *peer, uint64_t id)
{
	struct rb_ucx_put **at = put_find(peer, id);

	if (*at != NULL || peer->waiting >= RB_UCX_WAITING_MAX)
		return at;
	*at = calloc(1, sizeof(**at));
	if (*at != NULL) {
		(*at)->id = id;
		peer->waiting++;
	}
	return at;
}

/* False: outside the region. The peer is lost where the region's device fails. *written is false
 * then, and when the region was dropped meanwhile. */
static bool region_write(struct rb_ucx *ux, uint32_t peer, uint64_t id, uint64_t offset,
			 const void *data, size_t data_bytes, bool *written)
{
	struct rb_ucx_region *region = rb_ucx_region_find(ux, id);

	*written = false;
	if (region == NULL)
		return true;
	if (offset > region->base.size_bytes || data_bytes > region->base.size_bytes - offset)
		return false;
	if (rb_ucx_move_bytes(ux, region->base.kind == RB_MEMORY_DEVICE,
			      (uint8_t *)region->base.base + offset, data,
			      data_bytes) != RUBATO_OK) {
		rb_ucx_lack(ux, peer, rubato_error_text());
		return true;
	}
	ux->base.bytes_received += data_bytes;
	*written = true;
	return true;
}

static bool whole_put_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			      size_t data_bytes, const char **what)
{
	struct rb_ucx_head end = *head;
	bool written;

	*what = "a put lies outside its region";
	if (!region_write(ux, head->sender, head->id, head->offset, data, data_bytes, &written))
		return false;
	end.size_bytes = 0;
	if (written)
		rb_ucx_deliver(ux, &end, NULL);
	return true;
}

bool rb_ucx_put_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			size_t data_bytes, const char **what)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	struct rb_ucx_put **at;
	bool written;

	if (head->message == RB_UCX_PUT)
		return whole_put_arrived(ux, head, data, data_bytes, what);
	if (head->message == RB_UCX_PUT_STOPPED) {
		put_forget(peer, put_find(peer, head->id));
		return true;
	}
	if (head->message == RB_UCX_PUT_END && head->offset == 0) {
		struct rb_ucx_head end = *head;

		end.size_bytes = 0;
		rb_ucx_deliver(ux, &end, NULL);
		return true;
	}
	at = put_find_or_make(peer, head->id);
	*what = "too many puts at a time";
	if (*at == NULL)
		return false;
	if (head->message == RB_UCX_PUT_END) {
		(*at)->ended = true;
		(*at)->end = *head;
		(*at)->end.size_bytes = 0;
	} else {
		*what = "a put lies outside its region";
		if (!region_write(ux, head->sender, head->tag.call, head->offset, data, data_bytes,
				  &written))
			return false;
		if (peer->lost)
			return true; /* Its puts are gone. */
		(*at)->received_bytes += written ? data_bytes : 0;
	}
	if ((*at)->ended && (*at)->received_bytes == (*at)->end.offset) {
		struct rb_ucx_head end = (*at)->end;

		put_forget(peer, at);
		rb_ucx_deliver(ux, &end, NULL);
	}
	return true;
}

void rb_ucx_puts_drop(struct rb_ucx_peer *peer)
{
	while (peer->puts != NULL)
		put_forget(peer, &peer->puts);
}
