/* algorithms.c -- the table: one row an algorithm, one file a row. */
#include <string.h>

#include "collectives/build.h"

#define ANY UINT32_MAX
#define MPICH "Thakur, Rabenseifner and Gropp 2005"
#define RING "Patarasuk and Yuan 2009"
#define DIRECT "in mapped memory; after Jain et al. 2018"

/* Kind, name, what it needs, largest rank count, one block per rank. */
#define ROW(enum_kind, text, needs, max, per_rank, function, origin)                               \
	{                                                                                          \
		.kind = enum_kind, .name = text, .flags = needs, .rank_max = max,                  \
		.block_per_rank = per_rank, .build = rb_build_##function,                          \
		.bytes_sent = rb_sent_##function, .source = origin                                 \
	}

/* Rings use two channels a rank, or one; everything else a fixed number. */
const struct rb_algorithm rb_algorithms[] = {
	ROW(RB_KIND_BARRIER, "dissemination", 0, ANY, false, barrier_dissemination,
	    "Hensgen, Finkel and Manber 1988"),

	ROW(RB_KIND_BROADCAST, "binomial", 0, ANY, false, broadcast_binomial, MPICH),
	ROW(RB_KIND_BROADCAST, "chain", 0, ANY, false, broadcast_chain, "van de Geijn, Watts 1997"),
	ROW(RB_KIND_BROADCAST, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, false, broadcast_direct,
	    DIRECT),

	ROW(RB_KIND_REDUCE, "binomial", 0, ANY, false, reduce_binomial, MPICH),
	ROW(RB_KIND_REDUCE, "chain", 0, ANY, false, reduce_chain, "broadcast chain backwards"),
	ROW(RB_KIND_REDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, true, reduce_direct,
	    DIRECT),

	ROW(RB_KIND_ALLREDUCE, "flat", 0, UINT16_MAX / 2, false, allreduce_flat, "everyone to all"),
	ROW(RB_KIND_ALLREDUCE, "recursive_doubling", 0, ANY, false, allreduce_recursive_doubling,
	    MPICH),
	ROW(RB_KIND_ALLREDUCE, "ring", 0, RB_CHANNEL_MAX / 2, true, allreduce_ring, RING),
	ROW(RB_KIND_ALLREDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, true,
	    allreduce_direct, DIRECT),
	ROW(RB_KIND_ALLREDUCE, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, true,
	    allreduce_staged, "direct, through slots of scratch"),

	ROW(RB_KIND_REDUCE_SCATTER, "flat", 0, UINT16_MAX, true, reduce_scatter_flat, MPICH),
	ROW(RB_KIND_REDUCE_SCATTER, "ring", 0, RB_CHANNEL_MAX, true, reduce_scatter_ring, RING),
	ROW(RB_KIND_REDUCE_SCATTER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, true,
	    reduce_scatter_direct, DIRECT),
	ROW(RB_KIND_REDUCE_SCATTER, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, true,
	    reduce_scatter_staged, "direct, through slots of scratch"),

	ROW(RB_KIND_ALLGATHER, "flat", 0, ANY, true, allgather_flat, "everyone to all"),
	ROW(RB_KIND_ALLGATHER, "bruck", 0, ANY, true, allgather_bruck, "Bruck et al. 1997"),
	ROW(RB_KIND_ALLGATHER, "ring", 0, RB_CHANNEL_MAX, true, allgather_ring, MPICH),
	ROW(RB_KIND_ALLGATHER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, true, allgather_direct,
	    DIRECT),
	ROW(RB_KIND_ALLGATHER, "ring_put", RB_SCHEDULE_PUT, RB_CHANNEL_MAX, true,
	    allgather_ring_put, MPICH ", with puts"),

	ROW(RB_KIND_SENDRECV, "eager", 0, 2, false, sendrecv_eager, "one message"),
};
const uint32_t rb_algorithm_count = sizeof(rb_algorithms) / sizeof(rb_algorithms[0]);
_Static_assert(sizeof(rb_algorithms) / sizeof(rb_algorithms[0]) < 256, "travels as one byte");

int rb_algorithm_find(enum rb_kind kind, const char *name)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (rb_algorithms[i].kind == kind && strcmp(rb_algorithms[i].name, name) == 0)
			return (int)i;
	return -1;
}
