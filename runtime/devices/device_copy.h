/*
 * device_copy.h -- copies between an application's memory, which may be a device's, and memory of
 * the library's that only processors touch, for a caller who waits.
 *
 * A device's memory goes through two pieces of pinned host memory in turn, so that the device
 * copies one while the processor copies the other. When a copy returns, whichever way it ended, the
 * device is through with both sides: they are the caller's again. Neither poison nor an abort ends
 * one early, for it waits for no peer; and results of rounds that survived a loss are still to be
 * had.
 */
#ifndef RB_RUNTIME_DEVICES_COPY_H
#define RB_RUNTIME_DEVICES_COPY_H

#include "runtime/engine/engine.h"

struct rb_device_copy {          /* One copy at a time. */
	struct rb_poller poller; /* First. */
	struct rb_engine *engine;
	const char *name;           /* Of the call, for errors. */
	struct rb_executor *device; /* That gave the rooms; NULL: none was needed yet. */
	uint8_t *rooms;
};

/* Where memory of a caller's lies, by all that know memory; *device NULL: no device's. Errors:
 * ARGUMENT (another device's, or it ends too early). */
RB_NODISCARD rubato_status rb_memory_kind_find(const struct rb_engine *engine, const char *call,
					       const void *base, uint64_t bytes,
					       enum rb_memory_kind *kind,
					       struct rb_executor **device);

/* Without the lock. `from`, or `to`, is the application's. Errors: those, TIMEOUT, MEMORY, and the
 * device's. */
RB_NODISCARD rubato_status rb_device_copy_in(struct rb_device_copy *copy, const char *call,
					     void *to, const void *from, uint64_t bytes,
					     uint64_t timeout_ns);
RB_NODISCARD rubato_status rb_device_copy_out(struct rb_device_copy *copy, const char *call,
					      void *to, const void *from, uint64_t bytes,
					      uint64_t timeout_ns);
/* A reduction, a copy, or (of no operands) zeros, where the device reaches; likewise. Errors:
 * MEMORY, TIMEOUT, and the device's. */
RB_NODISCARD rubato_status rb_device_reduce(struct rb_device_copy *copy, const char *call,
					    struct rb_executor *device,
					    const struct rb_reduce *reduce, uint32_t element_bytes,
					    uint64_t timeout_ns);
/* Between memory of the application's, wherever it lies, and the library's on `device`; NULL: on
 * the host. Likewise. */
RB_NODISCARD rubato_status rb_device_take(struct rb_device_copy *copy, const char *call,
					  struct rb_executor *device, void *to, const void *from,
					  uint64_t bytes, uint64_t timeout_ns);
RB_NODISCARD rubato_status rb_device_give(struct rb_device_copy *copy, const char *call,
					  struct rb_executor *device, void *to, const void *from,
					  uint64_t bytes, uint64_t timeout_ns);
/* With the lock: from now on, and no more, the device is polled, of whose work others hear. With a
 * `copy` that copies nothing. */
void rb_device_watch(struct rb_device_copy *copy, struct rb_executor *device);
void rb_device_unwatch(struct rb_device_copy *copy);
/* With the lock. */
void rb_device_copy_fini(struct rb_device_copy *copy);

#endif
