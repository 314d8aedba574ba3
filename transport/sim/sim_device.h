/*
 * sim_device.h -- memory of the simulated ranks' devices.
 *
 * Pages that nobody may touch: a processor that does faults, at the very instruction. The device's
 * executor opens what it works on while it works, and so do copies of messages where network cards
 * reach device memory (rubato_sim_device.network). Managed memory is open to all.
 */
#ifndef RB_TRANSPORT_SIM_DEVICE_H
#define RB_TRANSPORT_SIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory_kind.h"
#include "base/status.h"
#include "rubato_sim.h"
#include "transport/transport.h"

struct rb_sim_cluster;

/* NULL where ranks have none, or where `ep` is not simulated. */
const rubato_sim_device *rb_sim_device_of(const struct rb_endpoint *ep);

/* Of this rank of the job; zeroed, page-aligned. `kind`: DEVICE or MANAGED. */
RB_NODISCARD rubato_status rb_sim_device_new(struct rb_sim_cluster *cluster, uint32_t rank,
					     enum rb_memory_kind kind, size_t size_bytes,
					     void **out);
/* False: it is not the begin of such memory. */
bool rb_sim_device_free(struct rb_sim_cluster *cluster, void *base);

/* Bytes from `address` to the end of the device's memory that it lies in, of any rank, with its
 * kind and the rank of the job; 0: it is the host's. */
size_t rb_sim_device_find(const struct rb_sim_cluster *cluster, const void *address,
			  enum rb_memory_kind *kind, uint32_t *rank);

/* As memcpy, by something that reaches device memory. */
void rb_sim_device_copy(struct rb_sim_cluster *cluster, void *to, const void *from, size_t bytes);
/* What these bytes lie in may be touched from now on, or no more: not nested. The host's may. */
void rb_sim_device_open(struct rb_sim_cluster *cluster, const void *address);
void rb_sim_device_shut(struct rb_sim_cluster *cluster, const void *address);
struct rb_sim_cluster *rb_sim_cluster_of(const struct rb_endpoint *ep);
uint32_t rb_sim_rank_of(const struct rb_endpoint *ep); /* Of the job. */

#endif
