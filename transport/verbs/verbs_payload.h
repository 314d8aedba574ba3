/*
 * verbs_payload.h -- the bytes of messages and puts, which may be a device's.
 *
 * Registered, they are the network's alone: flushed when what was written has come, before anybody
 * hears of it. What is not registered is copied by the device: a message as a whole, by way of the
 * host's memory, so that slots hold what is the host's.
 */
#ifndef RB_TRANSPORT_VERBS_PAYLOAD_H
#define RB_TRANSPORT_VERBS_PAYLOAD_H

#include <string.h>

#include "transport/verbs/verbs.h"

/* Of memory that peers write to. */
#define RB_VERBS_ACCESS_REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* Registers the host's memory (verbs_memory.c). NULL: errno. */
struct ibv_mr *rb_verbs_host_register(struct rb_verbs *vb, struct ibv_pd *pd, void *base,
				      size_t size_bytes, int access);
/* Likewise for a flight, its buffer: kept, or for it alone. False: errno, nothing is. */
bool rb_verbs_flight_register(struct rb_verbs *vb, struct rb_verbs_flight *flight, uint32_t rails,
			      int access);
/* False: it cannot be ended, and is tried again at close. */
bool rb_verbs_mr_drop(struct rb_verbs *vb, const struct rb_verbs_rail *rail, struct ibv_mr *mr);

static inline bool rb_verbs_is_device(const struct rb_request *request)
{
	return request->where != NULL && request->where->kind == RB_MEMORY_DEVICE;
}

/* Whether a region holds a request's buffer. */
static inline bool rb_verbs_is_inside(const struct rb_verbs_region *region,
				      const struct rb_request *request)
{
	uintptr_t from = (uintptr_t)request->buffer - (uintptr_t)region->base.base;

	return region->mrs[0] != NULL && request->size_bytes <= region->base.size_bytes &&
	       from <= region->base.size_bytes - request->size_bytes;
}

/* `device`: one end may be its memory. Errors: the device's. */
static inline rubato_status rb_verbs_copy(const struct rb_verbs *vb, bool device, void *to,
					  const void *from, size_t size_bytes)
{
	if (size_bytes == 0)
		return RUBATO_OK;
	if (device)
		return vb->device.copy(vb->device.arg, to, from, size_bytes);
	memcpy(to, from, size_bytes);
	return RUBATO_OK;
}

/* What a flight's writes are of, if they are copied: its buffer, or what that was copied to. */
static inline const uint8_t *rb_verbs_source(const struct rb_verbs_flight *flight)
{
	return flight->copy != NULL ? flight->copy : (const uint8_t *)flight->request->buffer;
}

/* Peers have written to a device's memory. Errors: the device's. */
static inline rubato_status rb_verbs_flush(const struct rb_verbs *vb)
{
	return vb->device.flush != NULL ? vb->device.flush(vb->device.arg) : RUBATO_OK;
}

#endif
