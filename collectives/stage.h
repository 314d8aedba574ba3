/*
 * stage.h -- a schedule for buffers that do not all lie in the host's memory.
 *
 * A builder knows nothing of kinds of memory. rb_stage makes of its schedule one for given kinds:
 * steps that touch device memory become the device's (RB_STEP_DEVICE), and what cannot reach it
 * goes through slots of the rank's own, chunk by chunk:
 *
 *   SEND, PUT   from a device, over a transport that does not read it: a copy into a host slot
 *               first. The source may be overwritten after the copy already
 *   RECV        likewise, a copy out of a host slot behind it
 *   COPY        between device and host, by a host slot. Slots are pinned; what callers and peers
 *               have need not be, and a device's driver that copies such memory keeps its caller,
 *               here the thread which drives everything, until it has, behind whatever streams wait
 *   REDUCE      with an operand on the device is done there: operands that lie on the host are
 *               copied into device slots first, and a result that belongs on the host behind it,
 *               likewise. With a result alone on the device it is done by the host, and the result
 *               copied
 *
 * All of this concerns one rank: what it sends and receives stays as it was, so that ranks may have
 * their buffers where they like. The checker takes what comes out as it takes any schedule.
 */
#ifndef RB_COLLECTIVES_STAGE_H
#define RB_COLLECTIVES_STAGE_H

#include "base/memory_kind.h"
#include "collectives/schedule.h"

struct rb_staging {
	/* Where IN, OUT and SCRATCH lie, this rank's and those of peers that it maps: enum
	 * rb_memory_kind. */
	uint8_t kinds[RB_BUFFER_COUNT];
	/* Whether the way to this peer reads and writes device memory; NULL: none does. */
	bool (*takes)(const void *arg, uint32_t peer);
	const void *arg;
	uint8_t ways;   /* A number for what `takes` says: what is staged for one is kept for it. */
	uint32_t depth; /* Slots of each staged step: so many of its chunks are on their way. */
};

/* Writes what `from` becomes; the writer as for a builder. `first`: room for a number for each step
 * of `from`. Whether a put's target may lie on a device, its owner knows: it gives no key. */
void rb_stage(struct rb_writer *w, const struct rb_schedule *from, const struct rb_staging *staging,
	      uint32_t *first);

#endif
