/* memory.c -- see memory.h. */
#include "runtime/engine/memory.h"

#include <stdlib.h>

#include "base/hollow.h"
#include "collectives/schedule.h"

static void regions_drop(struct rb_memories *memories, struct rb_memory *memory)
{
	/* The allocating endpoint comes first and goes last. */
	for (uint32_t i = memories->engine->endpoint_count; i-- > 0;) {
		struct rb_endpoint *ep = memories->engine->endpoints[i];

		if (memory->regions[i] != NULL)
			ep->ops->region_drop(ep, memory->regions[i]);
	}
}

static struct rb_memory *memory_link(struct rb_memories *memories, struct rb_memory *memory)
{
	memory->next = memories->first;
	memories->first = memory;
	for (uint32_t i = 0; i < memories->engine->endpoint_count; i++)
		memories->told |= (memories->engine->endpoints[i]->ops->caps & RB_CAP_REGIONS) != 0;
	return memory;
}

rubato_status rb_memory_alloc(struct rb_memories *memories, size_t size_bytes,
			      struct rb_memory **out)
{
	struct rb_endpoint *first = memories->engine->endpoints[0];
	struct rb_memory *memory = calloc(1, sizeof(*memory));
	size_t bytes = size_bytes > 0 ? size_bytes : 1;
	rubato_status err;

	RB_ASSERT(rb_lock_is_held(&memories->engine->lock));
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
	for (uint32_t i = 1; i < memories->engine->endpoint_count; i++) {
		struct rb_endpoint *ep = memories->engine->endpoints[i];

		if (ep->ops->region_add(ep, memory->base, bytes, &memory->regions[i]) != RUBATO_OK)
			memory->regions[i] = NULL;
	}
	*out = memory_link(memories, memory);
	return RUBATO_OK;
}

rubato_status rb_memory_alloc_for(struct rb_memories *memories, size_t size_bytes, const void *in,
				  const void *out_buffer, struct rb_memory **out)
{
	struct rb_endpoint *first = memories->engine->endpoints[0];
	rubato_status err;

	first->solid = !rb_hollow(in) && !rb_hollow(out_buffer);
	err = rb_memory_alloc(memories, size_bytes, out);
	first->solid = false;
	return err;
}

static enum rb_memory_kind kind_of(const struct rb_engine *engine, const void *base)
{
	enum rb_memory_kind kind = RB_MEMORY_HOST;

	for (uint32_t i = 0; i < engine->device_count; i++)
		if (engine->devices[i]->ops->knows(engine->devices[i], base, &kind) > 0)
			break;
	return kind;
}

/* Whether regions of this endpoint may be of the memory at `base`. */
static bool reaches(const struct rb_engine *engine, const struct rb_endpoint *ep, const void *base)
{
	return rb_endpoint_reaches(ep, kind_of(engine, base));
}

rubato_status rb_memory_add(struct rb_memories *memories, void *base, size_t size_bytes,
			    struct rb_memory **out)
{
	struct rb_memory *memory = calloc(1, sizeof(*memory));

	RB_ASSERT(rb_lock_is_held(&memories->engine->lock));
	if (memory == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "register: %zu bytes", sizeof(*memory));
	memory->base = base;
	memory->size_bytes = size_bytes;
	for (uint32_t i = 0; i < memories->engine->endpoint_count; i++) {
		struct rb_endpoint *ep = memories->engine->endpoints[i];
		rubato_status err = RUBATO_ERR_UNSUPPORTED;

		if (reaches(memories->engine, ep, base))
			err = ep->ops->region_add(ep, base, size_bytes, &memory->regions[i]);
		if (err == RUBATO_OK)
			memory->regions[i]->kind = kind_of(memories->engine, base);
		if (err == RUBATO_ERR_UNSUPPORTED) {
			memory->regions[i] = NULL;
		} else if (err != RUBATO_OK) {
			memory->regions[i] = NULL;
			regions_drop(memories, memory);
			free(memory);
			return err;
		}
	}
	*out = memory_link(memories, memory);
	return RUBATO_OK;
}

void rb_memory_drop(struct rb_memories *memories, struct rb_memory *memory)
{
	struct rb_memory **at = &memories->first;

	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	regions_drop(memories, memory);
	free(memory);
	memories->told = memories->told && memories->first != NULL;
}

void rb_memory_release(struct rb_memories *memories, struct rb_memory *memory)
{
	RB_ASSERT(memory->users > 0);
	if (--memory->users == 0 && !memory->named)
		rb_memory_drop(memories, memory);
}

struct rb_memory *rb_memory_find(const struct rb_memories *memories, const void *base,
				 size_t size_bytes)
{
	uintptr_t first = (uintptr_t)base;

	for (struct rb_memory *memory = memories->first; memory != NULL; memory = memory->next) {
		uintptr_t start = (uintptr_t)memory->base;

		if (first >= start && size_bytes <= memory->size_bytes &&
		    first - start <= memory->size_bytes - size_bytes)
			return memory;
	}
	return NULL;
}

/* ---- Devices' memory ---- */

bool rb_memory_taken(const void *engine, uint32_t peer)
{
	return rb_endpoint_reaches(rb_engine_endpoint(engine, peer), RB_MEMORY_DEVICE);
}

bool rb_memory_all_taken(const struct rb_engine *engine, const struct rb_schedule *schedule)
{
	bool all = true;

	for (uint32_t i = 0; i < schedule->step_count; i++) {
		const struct rb_step *step = &schedule->steps[i];

		if (step->peer != RB_SELF && (step->to != RB_NO_SPAN || step->from_count > 0))
			all = all && rb_memory_taken(engine, step->peer);
	}
	return all;
}

uint8_t rb_memory_ways(const struct rb_engine *engine)
{
	uint8_t bits = 0;

	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (rb_endpoint_reaches(engine->endpoints[i], RB_MEMORY_DEVICE))
			bits |= (uint8_t)(1u << i);
	return bits;
}
