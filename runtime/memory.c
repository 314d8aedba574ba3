/*
 * memory.c -- rubato_alloc and rubato_register: one rb_memory per call, a region per endpoint.
 *
 * The first endpoint that can allocate does (shm before ucx, by the order of transports); the
 * others register what it gave, as far as they can: an endpoint without a region falls back to
 * messages.
 */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/comm.h"

static void regions_drop(struct rubato_comm *comm, struct rb_memory *memory)
{
	/* The allocating endpoint comes first and goes last. */
	for (uint32_t i = comm->engine.endpoint_count; i-- > 0;) {
		struct rb_endpoint *ep = comm->engine.endpoints[i];

		if (memory->regions[i] != NULL)
			ep->ops->region_drop(ep, memory->regions[i]);
	}
}

static struct rb_memory *memory_link(struct rubato_comm *comm, struct rb_memory *memory)
{
	memory->next = comm->memory;
	comm->memory = memory;
	return memory;
}

rubato_status rb_memory_alloc(struct rubato_comm *comm, size_t size_bytes, struct rb_memory **out)
{
	struct rb_endpoint *first = comm->engine.endpoints[0];
	struct rb_memory *memory = calloc(1, sizeof(*memory));
	size_t bytes = size_bytes > 0 ? size_bytes : 1;
	rubato_status err;

	if (memory == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "alloc: %zu bytes", sizeof(*memory));
	err = first->ops->region_alloc(first, bytes, &memory->regions[0]);
	if (err != RUBATO_OK) {
		free(memory);
		return err;
	}
	memory->base = memory->regions[0]->base;
	memory->size_bytes = bytes;
	memory->allocated = true;
	for (uint32_t i = 1; i < comm->engine.endpoint_count; i++) {
		struct rb_endpoint *ep = comm->engine.endpoints[i];

		if (ep->ops->region_add(ep, memory->base, bytes, &memory->regions[i]) != RUBATO_OK)
			memory->regions[i] = NULL;
	}
	*out = memory_link(comm, memory);
	return RUBATO_OK;
}

rubato_status rb_memory_add(struct rubato_comm *comm, void *base, size_t size_bytes,
			    struct rb_memory **out)
{
	struct rb_memory *memory = calloc(1, sizeof(*memory));

	if (memory == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "register: %zu bytes", sizeof(*memory));
	memory->base = base;
	memory->size_bytes = size_bytes;
	for (uint32_t i = 0; i < comm->engine.endpoint_count; i++) {
		struct rb_endpoint *ep = comm->engine.endpoints[i];
		rubato_status err = ep->ops->region_add(ep, base, size_bytes, &memory->regions[i]);

		if (err == RUBATO_ERR_UNSUPPORTED) {
			memory->regions[i] = NULL;
		} else if (err != RUBATO_OK) {
			memory->regions[i] = NULL;
			regions_drop(comm, memory);
			free(memory);
			return err;
		}
	}
	*out = memory_link(comm, memory);
	return RUBATO_OK;
}

void rb_memory_drop(struct rubato_comm *comm, struct rb_memory *memory)
{
	struct rb_memory **at = &comm->memory;

	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	regions_drop(comm, memory);
	free(memory);
}

struct rb_memory *rb_memory_find(struct rubato_comm *comm, const void *base, size_t size_bytes)
{
	uintptr_t first = (uintptr_t)base;

	for (struct rb_memory *memory = comm->memory; memory != NULL; memory = memory->next) {
		uintptr_t start = (uintptr_t)memory->base;

		if (first >= start && size_bytes <= memory->size_bytes &&
		    first - start <= memory->size_bytes - size_bytes)
			return memory;
	}
	return NULL;
}
