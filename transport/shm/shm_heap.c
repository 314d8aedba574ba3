/*
 * shm_heap.c -- which pages of a rank's heap are taken: first fit over sorted ranges.
 *
 * Regions are few and large (user buffers), so lists do. The bookkeeping is the owner's private
 * memory: no peer can damage it, and peers need none of it, an address is enough for them.
 *
 * Invariant: free and used ranges together tile [0, size) without overlap; no two neighbours are
 * both free.
 */
#include "transport/shm/shm.h"

#include <stdlib.h>

struct rb_shm_range {
	struct rb_shm_range *next;
	uint64_t offset, size_bytes;
};

static struct rb_shm_range *range_new(uint64_t offset, uint64_t size_bytes)
{
	struct rb_shm_range *range = malloc(sizeof(*range));

	if (range != NULL)
		*range = (struct rb_shm_range) { NULL, offset, size_bytes };
	return range;
}

static void ranges_free(struct rb_shm_range *range)
{
	while (range != NULL) {
		struct rb_shm_range *next = range->next;

		free(range);
		range = next;
	}
}

rubato_status rb_shm_heap_init(struct rb_shm_heap *heap, uint64_t size_bytes)
{
	uint64_t whole_bytes = size_bytes / RB_SHM_PAGE * RB_SHM_PAGE;

	*heap = (struct rb_shm_heap) { .size_bytes = whole_bytes };
	if (whole_bytes == 0)
		return RUBATO_OK;
	heap->free = range_new(0, whole_bytes);
	if (heap->free == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: the heap's first range");
	return RUBATO_OK;
}

void rb_shm_heap_fini(struct rb_shm_heap *heap)
{
	ranges_free(heap->free);
	ranges_free(heap->used);
	*heap = (struct rb_shm_heap) { 0 };
}

static struct rb_shm_range **place_of(struct rb_shm_range **link, uint64_t offset)
{
	while (*link != NULL && (*link)->offset < offset)
		link = &(*link)->next;
	return link;
}

static void insert(struct rb_shm_range **list, struct rb_shm_range *range)
{
	struct rb_shm_range **link = place_of(list, range->offset);

	range->next = *link;
	*link = range;
}

rubato_status rb_shm_heap_take(struct rb_shm_heap *heap, uint64_t size_bytes, uint64_t *offset)
{
	uint64_t need_bytes = size_bytes == 0 ? RB_SHM_PAGE : size_bytes;
	struct rb_shm_range **link = &heap->free;
	struct rb_shm_range *range, *used;

	if (need_bytes > heap->size_bytes)
		return RB_FAIL(
			RUBATO_ERR_MEMORY, "shm: %llu bytes from a heap of %llu (RUBATO_HEAP)",
			(unsigned long long)size_bytes, (unsigned long long)heap->size_bytes);
	need_bytes = (need_bytes + RB_SHM_PAGE - 1) / RB_SHM_PAGE * RB_SHM_PAGE;
	while (*link != NULL && (*link)->size_bytes < need_bytes)
		link = &(*link)->next;
	range = *link;
	if (range == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY,
			       "shm: no gap of %llu bytes is left in a heap of %llu (RUBATO_HEAP)",
			       (unsigned long long)need_bytes,
			       (unsigned long long)heap->size_bytes);
	if (range->size_bytes == need_bytes) {
		*link = range->next;
		used = range;
	} else {
		used = range_new(range->offset, need_bytes);
		if (used == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "shm: bookkeeping of the heap");
		range->offset += need_bytes;
		range->size_bytes -= need_bytes;
	}
	insert(&heap->used, used);
	*offset = used->offset;
	return RUBATO_OK;
}

/* Joins `range` with what follows it, if that touches. */
static void join_next(struct rb_shm_range *range)
{
	struct rb_shm_range *next = range->next;

	if (next == NULL || range->offset + range->size_bytes != next->offset)
		return;
	range->size_bytes += next->size_bytes;
	range->next = next->next;
	free(next);
}

uint64_t rb_shm_heap_give(struct rb_shm_heap *heap, uint64_t offset)
{
	struct rb_shm_range **link = place_of(&heap->used, offset);
	struct rb_shm_range *range = *link, *before = NULL;
	uint64_t size_bytes;

	if (range == NULL || range->offset != offset)
		return 0;
	*link = range->next;
	size_bytes = range->size_bytes;
	for (struct rb_shm_range *at = heap->free; at != NULL && at->offset < offset; at = at->next)
		before = at;
	insert(&heap->free, range);
	join_next(range);
	if (before != NULL)
		join_next(before);
	return size_bytes;
}
