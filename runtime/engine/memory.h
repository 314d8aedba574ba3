/*
 * memory.h -- rubato_alloc and rubato_register: one rb_memory per call, a region per endpoint.
 *
 * The first endpoint that can allocate does (shm before ucx, by the order of transports); the
 * others register what it gave, as far as they can: an endpoint without a region falls back to
 * messages. Under the engine's lock.
 */
#ifndef RB_RUNTIME_MEMORY_H
#define RB_RUNTIME_MEMORY_H

#include "runtime/engine/engine.h"

struct rb_memory {                                   /* One rubato_alloc or rubato_register. */
	struct rb_region *regions[RB_ENDPOINTS_MAX]; /* Per endpoint; NULL where it has none. */
	uint8_t *base;
	size_t size_bytes;
	bool allocated, named; /* By rubato_alloc; by rubato_register, and not unregistered yet. */
	uint32_t users;        /* Operations that it stays registered for while they live. */
	struct rb_memory *next;
};

struct rb_memories { /* Of a communicator. */
	struct rb_engine *engine;
	struct rb_memory *first;
	bool told; /* There is some, and an endpoint that asks for regions: RB_CAP_REGIONS. */
};

RB_NODISCARD rubato_status rb_memory_alloc(struct rb_memories *memories, size_t size_bytes,
					   struct rb_memory **out);
/* Of the library's own, for an operation on these: where a simulation is hollow it is there if they
 * are. */
RB_NODISCARD rubato_status rb_memory_alloc_for(struct rb_memories *memories, size_t size_bytes,
					       const void *in, const void *out_buffer,
					       struct rb_memory **out);
RB_NODISCARD rubato_status rb_memory_add(struct rb_memories *memories, void *base,
					 size_t size_bytes, struct rb_memory **out);
void rb_memory_drop(struct rb_memories *memories, struct rb_memory *memory);
/* As of one user: dropped with the last one, if the application does not name it. */
void rb_memory_release(struct rb_memories *memories, struct rb_memory *memory);
/* Shorter messages are copied, whatever memory they lie in. */
#define RB_WHERE_BYTES_MIN (16u << 10)

/* Whether what begins there lies in it. */
static inline bool rb_memory_is_of(const struct rb_memory *memory, const void *base)
{
	return (uintptr_t)base - (uintptr_t)memory->base < memory->size_bytes;
}
/* The one that holds all these bytes, or NULL. */
struct rb_memory *rb_memory_find(const struct rb_memories *memories, const void *base,
				 size_t size_bytes);

/* Where `base` lies, as requests say it, and its registration where that matters: valid until some
 * of the communicator's memory is dropped. */
static inline void rb_memory_where(const struct rb_memories *memories, void *base,
				   uint64_t size_bytes, struct rb_where *out)
{
	const struct rb_memory *memory = NULL;

	if (memories->told && size_bytes >= RB_WHERE_BYTES_MIN)
		memory = rb_memory_find(memories, base, (size_t)size_bytes);
	out->base = base;
	out->regions = memory != NULL ? memory->regions : NULL;
}

struct rb_schedule;

/* ---- Devices' memory, as messages have it: what a plan is staged for ---- */

/* Whether the way to this peer reads and writes it; `engine`: a struct rb_engine. */
bool rb_memory_taken(const void *engine, uint32_t peer);
/* Whether all that this schedule sends and receives goes such ways. */
bool rb_memory_all_taken(const struct rb_engine *engine, const struct rb_schedule *schedule);
/* A bit for each endpoint of which that is so. */
uint8_t rb_memory_ways(const struct rb_engine *engine);

#endif
