/*
 * memory_kind.h -- what memory is: who may touch it. Whether it is registered is each transport's
 * own affair (struct rb_place in transport/transport.h).
 */
#ifndef RB_BASE_MEMORY_KIND_H
#define RB_BASE_MEMORY_KIND_H

enum rb_memory_kind {
	RB_MEMORY_HOST,    /* Processors; a device only copies it. */
	RB_MEMORY_DEVICE,  /* The device alone. */
	RB_MEMORY_MANAGED, /* Both. */
	RB_MEMORY_FOREIGN, /* A device that this rank does not use. */
};
#define RB_MEMORY_KIND_COUNT 3 /* Of what is used. */

/* How an RDMA device reaches a device's memory: bits. */
#define RB_MEMORY_BY_DMABUF 1u  /* It is exported as a dma-buf. */
#define RB_MEMORY_BY_PEERMEM 2u /* The kernel's nvidia_peermem pins it as it does the host's. */

static inline const char *rb_memory_kind_name(enum rb_memory_kind kind)
{
	static const char *const names[RB_MEMORY_KIND_COUNT + 1] = { "host", "device", "managed",
								     "another device's" };

	return names[kind];
}

#endif
