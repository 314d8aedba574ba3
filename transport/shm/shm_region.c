/*
 * shm_region.c -- memory that peers reach.
 *
 * Allocated regions are ranges of the owner's heap, which every peer mapped when it connected: a
 * key is an offset, opening is an addition. Added regions are the caller's own pages, which nobody
 * else can map: peers know them by an id, and their puts come as pieces that the owner copies.
 * Dropped ranges are punched out of the memfd: the memory goes back to the machine, and whoever
 * gets the range next finds zeros. Once operations have failed they stay as they are: who has not
 * heard of that may be reading or writing there.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum key_kind { KEY_HEAP = 1, KEY_ADDED };
#define MEMORY_SHIFT 4 /* Of the kind of memory, in a key's first byte. */

static uint8_t *heap_of(const struct rb_shm_segment *segment)
{
	return segment->base + segment->layout.heap;
}

static rubato_status region_new(struct rb_shm_endpoint *ep, void *memory, size_t size_bytes,
				struct rb_shm_region **out)
{
	struct rb_shm_region *region = calloc(1, sizeof(*region));

	if (region == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: a region's record");
	region->base.base = memory;
	region->base.size_bytes = size_bytes;
	region->id = RB_SHM_ID_NONE;
	RB_LIST_PUSH(ep->regions, region);
	*out = region;
	return RUBATO_OK;
}

static void region_unlink(struct rb_shm_endpoint *ep, struct rb_shm_region *region)
{
	RB_LIST_REMOVE(ep->regions, region);
	free(region);
}

static void heap_give(struct rb_shm_endpoint *ep, uint64_t offset)
{
	uint64_t size_bytes;

	if (ep->base.failed)
		return;
	size_bytes = rb_shm_heap_give(&ep->heap, offset);
	RB_ASSERT(size_bytes > 0);
	if (fallocate(ep->segment->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(ep->segment->layout.heap + offset), (off_t)size_bytes) != 0)
		memset(heap_of(ep->segment) + offset, 0, size_bytes);
}

rubato_status rb_shm_region_alloc(struct rb_endpoint *base, size_t size_bytes,
				  struct rb_region **out)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_region *region;
	uint64_t offset;
	rubato_status err;

	RB_TRY(rb_shm_heap_take(&ep->heap, size_bytes, &offset));
	err = region_new(ep, heap_of(ep->segment) + offset, size_bytes, &region);
	if (err != RUBATO_OK) {
		(void)rb_shm_heap_give(&ep->heap, offset);
		return err;
	}
	region->base.allocated = true;
	region->word = offset + 1;
	*out = &region->base;
	return RUBATO_OK;
}

rubato_status rb_shm_region_add(struct rb_endpoint *base, void *memory, size_t size_bytes,
				struct rb_region **out)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_region *region;

	RB_TRY(region_new(ep, memory, size_bytes, &region));
	region->word = rb_shm_word_of(base, memory, size_bytes);
	if (region->word == 0) {
		region->id = rb_shm_id_take(&ep->region_ids, region);
		if (region->id == RB_SHM_ID_NONE) {
			region_unlink(ep, region);
			return RB_FAIL(RUBATO_ERR_MEMORY, "shm: a region's id");
		}
	}
	*out = &region->base;
	return RUBATO_OK;
}

void rb_shm_region_drop(struct rb_endpoint *base, struct rb_region *region_base)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_region *region = (struct rb_shm_region *)region_base;

	if (region == NULL)
		return;
	if (region->base.allocated)
		heap_give(ep, region->word - 1);
	if (region->id != RB_SHM_ID_NONE)
		rb_shm_id_give(&ep->region_ids, region->id);
	region_unlink(ep, region);
}

rubato_status rb_shm_region_key(struct rb_endpoint *base, struct rb_region *region_base, void *key,
				size_t *key_bytes)
{
	const struct rb_shm_region *region = (const struct rb_shm_region *)region_base;
	struct rb_wire w = rb_wire_over(key, RB_SHM_KEY_BYTES);

	(void)base;
	rb_wire_put_u8(&w, (uint8_t)((region->word != 0 ? KEY_HEAP : KEY_ADDED) |
				     (uint32_t)region->base.kind << MEMORY_SHIFT));
	rb_wire_put_u64(&w, region->word != 0 ? region->word : region->id);
	rb_wire_put_u64(&w, region->base.size_bytes);
	RB_ASSERT(!w.bad);
	*key_bytes = (size_t)(w.at - (uint8_t *)key);
	return RUBATO_OK;
}

rubato_status rb_shm_remote_open(struct rb_endpoint *base, uint32_t peer, const void *key,
				 size_t key_bytes, struct rb_remote **out)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)key, key_bytes);
	uint8_t kinds = rb_wire_get_u8(&w);
	uint32_t kind = kinds & ((1u << MEMORY_SHIFT) - 1), memory = kinds >> MEMORY_SHIFT;
	uint64_t name = rb_wire_get_u64(&w);
	uint64_t size_bytes = rb_wire_get_u64(&w);
	struct rb_shm_remote *remote;
	const struct rb_shm_peer *p;

	if (w.bad || w.at != w.end || (kind != KEY_HEAP && kind != KEY_ADDED) ||
	    memory >= RB_MEMORY_KIND_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: %zu bytes are not the key of a region",
			       key_bytes);
	if (peer >= ep->base.rank_count || ep->peers[peer].segment == NULL)
		return RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u is not connected", peer);
	p = &ep->peers[peer];
	if (kind == KEY_HEAP && (name == 0 || name - 1 > p->segment->layout.heap_bytes ||
				 size_bytes > p->segment->layout.heap_bytes - (name - 1)))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: a key beyond the heap of rank %u", peer);
	RB_TRY(rb_remote_check(base, peer, (enum rb_memory_kind)memory));
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: a remote region's record");
	remote->base.peer = peer;
	remote->base.kind = (enum rb_memory_kind)memory;
	remote->base.size_bytes = size_bytes;
	remote->base.mapped = kind == KEY_HEAP ? heap_of(p->segment) + (name - 1) : NULL;
	remote->id = kind == KEY_HEAP ? RB_SHM_ID_NONE : name;
	RB_LIST_PUSH(ep->remotes, remote);
	*out = &remote->base;
	return RUBATO_OK;
}

void rb_shm_remote_close(struct rb_endpoint *base, struct rb_remote *remote_base)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_remote *remote = (struct rb_shm_remote *)remote_base;

	if (remote == NULL)
		return;
	RB_LIST_REMOVE(ep->remotes, remote);
	free(remote);
}

uint64_t rb_shm_word_of(struct rb_endpoint *base, const void *address, size_t size_bytes)
{
	const struct rb_shm_endpoint *ep = (const struct rb_shm_endpoint *)base;
	uintptr_t heap = (uintptr_t)heap_of(ep->segment), at = (uintptr_t)address;
	uint64_t heap_bytes = ep->heap.size_bytes;

	if (at < heap || at - heap >= heap_bytes || size_bytes > heap_bytes - (at - heap))
		return 0;
	return at - heap + 1;
}

void *rb_shm_word_map(struct rb_endpoint *base, uint32_t peer, uint64_t word, uint64_t size_bytes)
{
	const struct rb_shm_endpoint *ep = (const struct rb_shm_endpoint *)base;
	const struct rb_shm_segment *segment;

	if (word == 0 || peer >= ep->base.rank_count)
		return NULL;
	segment = ep->peers[peer].segment;
	if (segment == NULL || word - 1 > segment->layout.heap_bytes ||
	    size_bytes > segment->layout.heap_bytes - (word - 1))
		return NULL;
	return heap_of(segment) + (word - 1);
}

/* At close. The ranges are not punched: the memory goes with the segment, and a peer that still
 * reads its mapping finds what was there. */
void rb_shm_regions_fini(struct rb_shm_endpoint *ep)
{
	while (ep->regions != NULL)
		region_unlink(ep, ep->regions);
	while (ep->remotes != NULL)
		rb_shm_remote_close(&ep->base, &ep->remotes->base);
}
