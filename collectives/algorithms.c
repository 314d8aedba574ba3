/* algorithms.c -- the table: one row an algorithm, one file a row. */
#include <string.h>

#include "collectives/build.h"

#define ANY UINT32_MAX
#define MPICH "Thakur, Rabenseifner and Gropp 2005"
#define RING "Patarasuk and Yuan 2009"
#define DIRECT "in mapped memory; after Jain et al. 2018"

/* Kind, name, what it needs, largest rank count, blocks. */
#define ROW(enum_kind, text, needs, max, cut, function, origin)                                    \
	{                                                                                          \
		.kind = enum_kind, .name = text, .flags = needs, .rank_max = max,                  \
		.blocks = RB_BLOCKS_##cut, .build = rb_build_##function,                           \
		.bytes_sent = rb_sent_##function, .source = origin                                 \
	}

/* Rings use two channels a rank, or one; everything else a fixed number. */
const struct rb_algorithm rb_algorithms[] = {
	ROW(RB_KIND_BARRIER, "dissemination", 0, ANY, ONE, barrier_dissemination,
	    "Hensgen, Finkel and Manber 1988"),

	ROW(RB_KIND_BROADCAST, "binomial", 0, ANY, ONE, broadcast_binomial, MPICH),
	ROW(RB_KIND_BROADCAST, "chain", 0, ANY, ONE, broadcast_chain, "van de Geijn, Watts 1997"),
	ROW(RB_KIND_BROADCAST, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, ONE, broadcast_direct,
	    DIRECT),

	ROW(RB_KIND_REDUCE, "binomial", 0, ANY, ONE, reduce_binomial, MPICH),
	ROW(RB_KIND_REDUCE, "chain", 0, ANY, ONE, reduce_chain, "broadcast chain backwards"),
	ROW(RB_KIND_REDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS, reduce_direct,
	    DIRECT),

	ROW(RB_KIND_ALLREDUCE, "flat", 0, UINT16_MAX / 2, ONE, allreduce_flat, "everyone to all"),
	ROW(RB_KIND_ALLREDUCE, "recursive_doubling", 0, ANY, ONE, allreduce_recursive_doubling,
	    MPICH),
	ROW(RB_KIND_ALLREDUCE, "recursive_halving_doubling", 0, ANY, POWER,
	    allreduce_recursive_halving_doubling, "Rabenseifner 2004"),
	ROW(RB_KIND_ALLREDUCE, "ring", 0, RB_CHANNEL_MAX / 2, RANKS, allreduce_ring, RING),
	ROW(RB_KIND_ALLREDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS,
	    allreduce_direct, DIRECT),
	ROW(RB_KIND_ALLREDUCE, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS,
	    allreduce_staged, "direct, through slots of scratch"),

	ROW(RB_KIND_REDUCE_SCATTER, "flat", 0, UINT16_MAX, RANKS, reduce_scatter_flat, MPICH),
	ROW(RB_KIND_REDUCE_SCATTER, "ring", 0, RB_CHANNEL_MAX, RANKS, reduce_scatter_ring, RING),
	ROW(RB_KIND_REDUCE_SCATTER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS,
	    reduce_scatter_direct, DIRECT),
	ROW(RB_KIND_REDUCE_SCATTER, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS,
	    reduce_scatter_staged, "direct, through slots of scratch"),

	ROW(RB_KIND_ALLGATHER, "flat", 0, ANY, RANKS, allgather_flat, "everyone to all"),
	ROW(RB_KIND_ALLGATHER, "bruck", 0, ANY, RANKS, allgather_bruck, "Bruck et al. 1997"),
	ROW(RB_KIND_ALLGATHER, "ring", 0, RB_CHANNEL_MAX, RANKS, allgather_ring, MPICH),
	ROW(RB_KIND_ALLGATHER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, allgather_direct,
	    DIRECT),
	ROW(RB_KIND_ALLGATHER, "ring_put", RB_SCHEDULE_PUT, RB_CHANNEL_MAX, RANKS,
	    allgather_ring_put, MPICH ", with puts"),

	ROW(RB_KIND_GATHER, "flat", 0, ANY, RANKS, gather_flat, "everyone to the root"),
	ROW(RB_KIND_GATHER, "binomial", 0, ANY, RANKS, gather_binomial, MPICH),
	ROW(RB_KIND_GATHER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, gather_direct,
	    DIRECT),

	ROW(RB_KIND_SCATTER, "flat", 0, ANY, RANKS, scatter_flat, "the root to everyone"),
	ROW(RB_KIND_SCATTER, "binomial", 0, ANY, RANKS, scatter_binomial, MPICH),
	ROW(RB_KIND_SCATTER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, scatter_direct,
	    DIRECT),

	ROW(RB_KIND_ALLTOALL, "flat", 0, ANY, RANKS, alltoall_flat, "everyone to all"),
	ROW(RB_KIND_ALLTOALL, "pairwise", 0, ANY, RANKS, alltoall_pairwise, MPICH),
	ROW(RB_KIND_ALLTOALL, "bruck", 0, ANY, RANKS, alltoall_bruck, "Bruck et al. 1997"),
	ROW(RB_KIND_ALLTOALL, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, alltoall_direct,
	    DIRECT),

	ROW(RB_KIND_ALLGATHERV, "flat", 0, ANY, RANKS, allgather_flat, "everyone to all"),
	ROW(RB_KIND_ALLGATHERV, "ring", 0, RB_CHANNEL_MAX, RANKS, allgather_ring, MPICH),
	ROW(RB_KIND_ALLGATHERV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, allgather_direct,
	    DIRECT),

	ROW(RB_KIND_REDUCE_SCATTERV, "flat", 0, UINT16_MAX, RANKS, reduce_scatter_flat, MPICH),
	ROW(RB_KIND_REDUCE_SCATTERV, "ring", 0, RB_CHANNEL_MAX, RANKS, reduce_scatter_ring, RING),
	ROW(RB_KIND_REDUCE_SCATTERV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS,
	    reduce_scatter_direct, DIRECT),
	ROW(RB_KIND_REDUCE_SCATTERV, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS,
	    reduce_scatter_staged, "direct, through slots of scratch"),

	ROW(RB_KIND_ALLTOALLV, "flat", 0, ANY, RANKS, alltoall_flat, "everyone to all"),
	ROW(RB_KIND_ALLTOALLV, "pairwise", 0, ANY, RANKS, alltoall_pairwise, MPICH),
	ROW(RB_KIND_ALLTOALLV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, alltoall_direct,
	    DIRECT),

	ROW(RB_KIND_SENDRECV, "eager", 0, 2, ONE, sendrecv_eager, "one message"),
};
const uint32_t rb_algorithm_count = sizeof(rb_algorithms) / sizeof(rb_algorithms[0]);
_Static_assert(sizeof(rb_algorithms) / sizeof(rb_algorithms[0]) < 256, "travels as one byte");

uint32_t rb_algorithm_blocks(const struct rb_algorithm *algorithm, uint32_t rank_count)
{
	switch (algorithm->blocks) {
	case RB_BLOCKS_RANKS:
		return rank_count;
	case RB_BLOCKS_POWER:
		return rb_power_below(rank_count);
	case RB_BLOCKS_ONE:
		break;
	}
	return 1;
}

int rb_algorithm_find(enum rb_kind kind, const char *name)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (rb_algorithms[i].kind == kind && strcmp(rb_algorithms[i].name, name) == 0)
			return (int)i;
	return -1;
}
