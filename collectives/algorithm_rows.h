/*
 * algorithm_rows.h -- every algorithm, a row each, for whoever defines ROW: build.h makes the
 * builders' prototypes of them, algorithm_table.c the table.
 *
 *   ROW(kind, name, what it needs, largest rank count, blocks, builder, source, its cost and what
 *       else is true of it)
 *
 * algorithms.h says what the fields mean, algorithm_table.c has the short names that stand here.
 */

/* Rings use two channels a rank, or one; everything else a fixed number. */
ROW(RB_KIND_BARRIER, "dissemination", 0, ANY, ONE, barrier_dissemination,
    "Hensgen, Finkel and Manber 1988", COST(PHASES(.log = 1), MESSAGES(.log = 2), REACH(AROUND)))
ROW(RB_KIND_BARRIER, "flat", 0, ANY, ONE, barrier_flat, "everyone to all",
    COST(PHASES(.one = 1), MESSAGES(.all = 2)), .own_link = true)
ROW(RB_KIND_BARRIER, "hierarchical", 0, ANY, ONE, barrier_hierarchical, "dissemination over nodes",
    COST(PHASES(.log = 1), MESSAGES(.one = 2, .log = 2)), .by_node = true)

ROW(RB_KIND_BROADCAST, "flat", 0, ANY, ONE, broadcast_flat, "the root to everyone",
    COST(PHASES(.one = 1), MESSAGES(.all = 1), SENT(.all = 1), VECTORS(.all = 2), CROSSED(.all = 1),
	 FROM_ROOT),
    .own_link = true)
ROW(RB_KIND_BROADCAST, "binomial", 0, ANY, ONE, broadcast_binomial, MPICH,
    COST(PHASES(.log = 1), MESSAGES(.log = 1), SENT(.log = 1), REACH(POWERS), VECTORS(.log = 2),
	 CROSSED(.log = 1), FROM_ROOT))
ROW(RB_KIND_BROADCAST, "chain", 0, ANY, ONE, broadcast_chain, "van de Geijn, Watts 1997",
    COST(PHASES(.all = 1), MESSAGES(.one = 2), SENT(.one = 1), REACH(NEXT), VECTORS(.one = 4),
	 CROSSED(.one = 2), FROM_ROOT, .chain = true))
ROW(RB_KIND_BROADCAST, "chain_put", RB_SCHEDULE_PUT, ANY, ONE, broadcast_chain_put,
    "van de Geijn, Watts 1997, with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 4), SENT(.one = 1), REACH(NEXT),
	 VECTORS(.one = 2), CROSSED(.one = 1), IN_ALL(.all = 4), MOVED(.all = 2),
	 CROSSED_IN_ALL(.all = 1), .chain = true))
ROW(RB_KIND_BROADCAST, "scatter_allgather", RB_SCHEDULE_IN_TURNS, ANY, OTHERS,
    broadcast_scatter_allgather, "Barnett et al. 1994",
    COST(PHASES(.one = 2), MESSAGES(.one = -1, .all = 2), SENT(.one = 1), VECTORS(.one = 4),
	 CROSSED(.one = 2)),
    .own_link = true, .pieces = 16)
ROW(RB_KIND_BROADCAST, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS, broadcast_direct,
    DIRECT,
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.share = 2), CROSSED(.share = 1),
	 IN_ALL(.all = 4), MOVED(.all = 2), CROSSED_IN_ALL(.all = 1)))
ROW(RB_KIND_BROADCAST, "staged", RB_SCHEDULE_MAPPED_SCRATCH, ANY, ONE, broadcast_staged,
    "direct, through slots of scratch",
    COST(PHASES(.one = 2), MESSAGES(.all = 2), VECTORS(.one = 2), CROSSED(.one = 1),
	 IN_ALL(.all = 4), MOVED(.one = 2, .all = 2), .behind = true))
ROW(RB_KIND_BROADCAST, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, ANY, LANES,
    broadcast_hierarchical, CHAINED,
    COST(PHASES(.all = 1), MESSAGES(.one = 2), SENT(.one = 1), VECTORS(.one = 4), .chain = true),
    .by_node = true, .staged = "hierarchical_staged")
ROW(RB_KIND_BROADCAST, "hierarchical_staged", 0, ANY, LANES, broadcast_hierarchical_staged, CHAINED,
    COST(PHASES(.all = 1), MESSAGES(.one = 4), SENT(.one = 1), VECTORS(.one = 7), .chain = true),
    .by_node = true)
ROW(RB_KIND_BROADCAST, "hierarchical_binomial", RB_SCHEDULE_MAPPED_BUFFERS, ANY, LANES,
    broadcast_hierarchical_binomial, "binomial over nodes, in lanes",
    COST(PHASES(.log = 1), MESSAGES(.log = 1), SENT(.log = 1), VECTORS(.one = 2, .log = 2)),
    .by_node = true, .staged = "hierarchical_binomial_staged")
ROW(RB_KIND_BROADCAST, "hierarchical_binomial_staged", 0, ANY, LANES,
    broadcast_hierarchical_binomial_staged, "binomial over nodes, in lanes",
    COST(PHASES(.log = 1), MESSAGES(.one = 2, .log = 1), SENT(.log = 1),
	 VECTORS(.one = 5, .log = 2)),
    .by_node = true)
ROW(RB_KIND_BROADCAST, "hierarchical_put", RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT, ANY, LANES,
    broadcast_hierarchical_put, CHAINED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 4), SENT(.one = 1), VECTORS(.one = 2),
	 .chain = true),
    .by_node = true, .staged = "hierarchical_put_staged")
ROW(RB_KIND_BROADCAST, "hierarchical_put_staged", RB_SCHEDULE_PUT, ANY, LANES,
    broadcast_hierarchical_put_staged, CHAINED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 6), SENT(.one = 1), VECTORS(.one = 5),
	 .chain = true),
    .by_node = true)

ROW(RB_KIND_REDUCE, "flat", 0, UINT16_MAX, ONE, reduce_flat, "everyone to the root",
    COST(PHASES(.one = 1), MESSAGES(.all = 1), SENT(.all = 1), VECTORS(.one = 2, .all = 3),
	 CROSSED(.all = 1), IN_ALL(.all = 2), MOVED(.one = 2, .all = 5), CROSSED_IN_ALL(.all = 2)),
    .own_link = true, .slots_per_rank = true)
ROW(RB_KIND_REDUCE, "binomial", 0, ANY, ONE, reduce_binomial, MPICH,
    COST(PHASES(.log = 1), MESSAGES(.log = 1), SENT(.log = 1), REACH(POWERS),
	 VECTORS(.one = 2, .log = 3), CROSSED(.log = 1), IN_ALL(.all = 2),
	 MOVED(.one = 1, .all = 6), CROSSED_IN_ALL(.all = 2)))
ROW(RB_KIND_REDUCE, "chain", 0, ANY, ONE, reduce_chain, "broadcast chain backwards",
    COST(PHASES(.all = 1), MESSAGES(.one = 2), SENT(.one = 1), REACH(NEXT), VECTORS(.one = 7),
	 CROSSED(.one = 2), IN_ALL(.all = 2), MOVED(.all = 7), CROSSED_IN_ALL(.all = 2),
	 .chain = true))
ROW(RB_KIND_REDUCE, "scatter_gather", RB_SCHEDULE_IN_TURNS, UINT16_MAX, OTHERS,
    reduce_scatter_gather, "Rabenseifner 2004",
    COST(PHASES(.one = 2), MESSAGES(.all = 2), SENT(.one = 1), VECTORS(.one = 5),
	 CROSSED(.one = 2)),
    .own_link = true, .slots_per_rank = true, .pieces = 16)
ROW(RB_KIND_REDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS, reduce_direct, DIRECT,
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2, .share = -1), CROSSED(.one = 1),
	 CROSSED_IN_ALL(.all = 1, .share = 1)))

ROW(RB_KIND_REDUCE, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, LANES,
    reduce_hierarchical, CHAINED,
    COST(PHASES(.all = 1), MESSAGES(.one = 2), SENT(.one = 1), VECTORS(.one = 3), .chain = true),
    .by_node = true, .staged = "hierarchical_staged")
ROW(RB_KIND_REDUCE, "hierarchical_staged", 0, RB_CHANNEL_MAX, LANES, reduce_hierarchical_staged,
    CHAINED,
    COST(PHASES(.all = 1), MESSAGES(.one = 4), SENT(.one = 1), VECTORS(.one = 7), .chain = true),
    .by_node = true)

ROW(RB_KIND_ALLREDUCE, "flat", 0, UINT16_MAX / 2, ONE, allreduce_flat, "everyone to all",
    COST(PHASES(.one = 1), MESSAGES(.all = 2), SENT(.all = 1), VECTORS(.one = 2, .all = 5),
	 CROSSED(.all = 2)),
    .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_ALLREDUCE, "two_shot", RB_SCHEDULE_IN_TURNS, UINT16_MAX, RANKS, allreduce_two_shot,
    "reduce_scatter flat, then allgather flat",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 2), VECTORS(.one = 2, .share = 7),
	 CROSSED(.share = 4)),
    .own_link = true, .slots_per_rank = true, .pieces = 16, .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_ALLREDUCE, "two_shot_put", RB_SCHEDULE_IN_TURNS | RB_SCHEDULE_PUT, UINT16_MAX, RANKS,
    allreduce_two_shot_put, "two_shot, with puts",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 2), VECTORS(.one = 2, .share = 3),
	 CROSSED(.share = 2)),
    .own_link = true, .slots_per_rank = true, .pieces = RB_DEPTH, .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_ALLREDUCE, "two_shot_late", RB_SCHEDULE_IN_TURNS, UINT16_MAX, OTHERS,
    allreduce_two_shot_late, "after Devraj et al. 2025",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.one = 1), VECTORS(.one = 10)),
    .slots_per_rank = true, .pieces = 64, .forced_only = true, .late = true)
ROW(RB_KIND_ALLREDUCE, "recursive_doubling", 0, ANY, ONE, allreduce_recursive_doubling, MPICH,
    COST(PHASES(.log = 1), MESSAGES(.log = 2), SENT(.log = 1), REACH(POWERS), VECTORS(.log = 7),
	 CROSSED(.log = 2)),
    .exchanges = true)
ROW(RB_KIND_ALLREDUCE, "recursive_halving_doubling", 0, ANY, POWER,
    allreduce_recursive_halving_doubling, "Rabenseifner 2004",
    COST(PHASES(.log = 2), MESSAGES(.log = 4), SENT(.share = 2, .fold = 1), REACH(HALVES),
	 VECTORS(.share = 11, .fold = 6), CROSSED(.share = 4, .fold = 2)))
ROW(RB_KIND_ALLREDUCE, "ring", 0, RB_CHANNEL_MAX / 2, RANKS, allreduce_ring, RING,
    COST(PHASES(.all = 2), MESSAGES(.all = 4), SENT(.share = 2), REACH(NEXT), VECTORS(.share = 11),
	 CROSSED(.share = 4)),
    .slots_per_rank = true, .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_ALLREDUCE, "ring_put", RB_SCHEDULE_PUT, RB_CHANNEL_MAX / 2, RANKS, allreduce_ring_put,
    RING ", with puts",
    COST(PHASES(.all = 2), MESSAGES(.all = 4), SENT(.share = 2), REACH(NEXT), VECTORS(.share = 7),
	 CROSSED(.share = 2)),
    .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_ALLREDUCE, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS, allreduce_direct,
    DIRECT,
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2, .share = 1), CROSSED(.share = 2)),
    .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_ALLREDUCE, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS, allreduce_staged,
    "direct, through slots of scratch",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), AHEAD_PHASES(.one = 1), AHEAD_MESSAGES(.all = 2),
	 VECTORS(.one = 4, .share = 1), CROSSED(.share = 3), .by_chunk = true),
    .reductions = RB_REDUCTIONS_ONE)

ROW(RB_KIND_ALLREDUCE, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX / 2 - 2, LANES,
    allreduce_hierarchical, LANED,
    COST(PHASES(.all = 2), MESSAGES(.all = 4), SENT(.share = 2), VECTORS(.share = 8)),
    .by_node = true, .staged = "hierarchical_staged", .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_ALLREDUCE, "hierarchical_staged", 0, RB_CHANNEL_MAX / 2 - 2, LANES,
    allreduce_hierarchical_staged, LANED,
    COST(PHASES(.all = 2), MESSAGES(.all = 4), SENT(.share = 2), VECTORS(.share = 14)),
    .by_node = true, .slots_per_rank = true, .reductions = RB_REDUCTIONS_CHAINED)

ROW(RB_KIND_ALLREDUCE, "hierarchical_halving", RB_SCHEDULE_MAPPED_BUFFERS, ANY, LANES_POWER,
    allreduce_hierarchical_halving, "Rabenseifner 2004, in lanes over nodes",
    COST(PHASES(.log = 2, .fold = 2), MESSAGES(.log = 4, .fold = 4), SENT(.share = 2, .fold = 2),
	 REACH(HALVES), VECTORS(.share = 10, .fold = 6)),
    .by_node = true, .staged = "hierarchical_halving_staged")
ROW(RB_KIND_ALLREDUCE, "hierarchical_halving_staged", 0, ANY, LANES_POWER,
    allreduce_hierarchical_halving_staged, "Rabenseifner 2004, in lanes over nodes",
    COST(PHASES(.log = 2, .fold = 2), MESSAGES(.log = 4, .fold = 4), SENT(.share = 2, .fold = 2),
	 REACH(HALVES), VECTORS(.share = 16, .fold = 6)),
    .by_node = true, .slots_per_rank = true)

ROW(RB_KIND_ALLREDUCE, "hierarchical_put", RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT,
    RB_CHANNEL_MAX / 2 - 2, LANES, allreduce_hierarchical_put, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 2), MESSAGES(.one = 2, .all = 6), SENT(.share = 2),
	 VECTORS(.share = 6)),
    .by_node = true, .staged = "hierarchical_put_staged", .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_ALLREDUCE, "hierarchical_put_staged", RB_SCHEDULE_PUT, RB_CHANNEL_MAX / 2 - 2, LANES,
    allreduce_hierarchical_put_staged, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 2), MESSAGES(.one = 2, .all = 6), SENT(.share = 2),
	 VECTORS(.share = 12)),
    .by_node = true, .slots_per_rank = true, .reductions = RB_REDUCTIONS_CHAINED)

ROW(RB_KIND_REDUCE_SCATTER, "flat", 0, UINT16_MAX, RANKS, reduce_scatter_flat, MPICH,
    COST_SCATTER_FLAT, .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_REDUCE_SCATTER, "ring", 0, RB_CHANNEL_MAX, RANKS, reduce_scatter_ring, RING,
    COST_SCATTER_RING, .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_REDUCE_SCATTER, "ring_put", RB_SCHEDULE_PUT, RB_CHANNEL_MAX, RANKS,
    reduce_scatter_ring_put, RING ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1), REACH(NEXT),
	 VECTORS(.share = 5), CROSSED(.share = 1)),
    .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_REDUCE_SCATTER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS,
    reduce_scatter_direct, DIRECT, COST_SCATTER_DIRECT, .reductions = RB_REDUCTIONS_ONE)
ROW(RB_KIND_REDUCE_SCATTER, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS,
    reduce_scatter_staged, "direct, through slots of scratch",
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2, .share = 1), CROSSED(.share = 2),
	 .by_chunk = true, .alternates = ANY),
    .even = true, .reductions = RB_REDUCTIONS_ONE)

ROW(RB_KIND_REDUCE_SCATTER, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, RANKS,
    reduce_scatter_hierarchical, LANED, COST_SCATTER_NODES, .by_node = true,
    .staged = "hierarchical_staged", .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_REDUCE_SCATTER, "hierarchical_staged", 0, RB_CHANNEL_MAX, RANKS,
    reduce_scatter_hierarchical_staged, LANED, COST_SCATTER_NODES_STAGED, .by_node = true,
    .slots_per_rank = true, .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_REDUCE_SCATTER, "hierarchical_put", RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT,
    RB_CHANNEL_MAX - 1, RANKS, reduce_scatter_hierarchical_put, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1),
	 VECTORS(.share = 3)),
    .by_node = true, .staged = "hierarchical_put_staged", .reductions = RB_REDUCTIONS_CHAINED)
ROW(RB_KIND_REDUCE_SCATTER, "hierarchical_put_staged", RB_SCHEDULE_PUT, RB_CHANNEL_MAX - 1, RANKS,
    reduce_scatter_hierarchical_put_staged, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1),
	 VECTORS(.share = 7)),
    .by_node = true, .slots_per_rank = true, .reductions = RB_REDUCTIONS_CHAINED)

ROW(RB_KIND_ALLGATHER, "flat", 0, ANY, RANKS, allgather_flat, "everyone to all", COST_GATHER_FLAT)
ROW(RB_KIND_ALLGATHER, "bruck", 0, ANY, RANKS, allgather_bruck, "Bruck et al. 1997",
    COST(PHASES(.log = 1), MESSAGES(.one = -1, .log = 3), SENT(.share = 1),
	 VECTORS(.one = 2, .share = 2), CROSSED(.share = 2)))
ROW(RB_KIND_ALLGATHER, "ring", 0, RB_CHANNEL_MAX, RANKS, allgather_ring, MPICH, COST_GATHER_RING)
ROW(RB_KIND_ALLGATHER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, allgather_direct, DIRECT,
    COST_GATHER_DIRECT)
ROW(RB_KIND_ALLGATHER, "staged", RB_SCHEDULE_MAPPED_SCRATCH, ANY, RANKS, allgather_staged,
    "direct, through slots of scratch",
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 4, .share = -2), CROSSED(.one = 1),
	 .by_chunk = true, .alternates = 2),
    .even = true)
ROW(RB_KIND_ALLGATHER, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX - 2, RANKS,
    allgather_hierarchical, LANED, COST_GATHER_NODES, .by_node = true,
    .staged = "hierarchical_staged")
ROW(RB_KIND_ALLGATHER, "hierarchical_staged", 0, RB_CHANNEL_MAX - 2, RANKS,
    allgather_hierarchical_staged, LANED, COST_GATHER_NODES_STAGED, .by_node = true)
ROW(RB_KIND_ALLGATHER, "hierarchical_put", RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT,
    RB_CHANNEL_MAX - 2, RANKS, allgather_hierarchical_put, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1),
	 VECTORS(.one = 2)),
    .by_node = true, .staged = "hierarchical_put_staged")
ROW(RB_KIND_ALLGATHER, "hierarchical_put_staged", RB_SCHEDULE_PUT, RB_CHANNEL_MAX - 2, RANKS,
    allgather_hierarchical_put_staged, LANED ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1),
	 VECTORS(.one = 4)),
    .by_node = true)
ROW(RB_KIND_ALLGATHER, "flat_put", RB_SCHEDULE_PUT, ANY, RANKS, allgather_flat_put,
    "everyone to all, with puts",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 1), VECTORS(.one = 2),
	 CROSSED(.share = 1)))
ROW(RB_KIND_ALLGATHER, "ring_put", RB_SCHEDULE_PUT, RB_CHANNEL_MAX, RANKS, allgather_ring_put,
    MPICH ", with puts",
    COST(PHASES(.one = 1, .all = 1), MESSAGES(.one = 2, .all = 2), SENT(.share = 1), REACH(NEXT),
	 VECTORS(.one = 2), CROSSED(.share = 1)))

ROW(RB_KIND_GATHER, "flat", 0, ANY, RANKS, gather_flat, "everyone to the root", COST_ROOT_FLAT)
ROW(RB_KIND_GATHER, "binomial", 0, ANY, RANKS, gather_binomial, MPICH, COST_ROOT_TREE)
ROW(RB_KIND_GATHER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, gather_direct, DIRECT,
    COST_ROOT_DIRECT)
ROW(RB_KIND_GATHER, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, RANKS,
    gather_hierarchical, STAR, COST_STAR, .packs = true, .by_node = true,
    .staged = "hierarchical_staged")
ROW(RB_KIND_GATHER, "hierarchical_staged", 0, RB_CHANNEL_MAX, RANKS, gather_hierarchical_staged,
    STAR, COST_STAR_STAGED, .packs = true, .by_node = true)

ROW(RB_KIND_SCATTER, "flat", 0, ANY, RANKS, scatter_flat, "the root to everyone", COST_ROOT_FLAT)
ROW(RB_KIND_SCATTER, "binomial", 0, ANY, RANKS, scatter_binomial, MPICH, COST_ROOT_TREE)
ROW(RB_KIND_SCATTER, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, scatter_direct, DIRECT,
    COST_ROOT_DIRECT)
ROW(RB_KIND_SCATTER, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, RANKS,
    scatter_hierarchical, STAR, COST_STAR, .packs = true, .by_node = true,
    .staged = "hierarchical_staged")
ROW(RB_KIND_SCATTER, "hierarchical_staged", 0, RB_CHANNEL_MAX, RANKS, scatter_hierarchical_staged,
    STAR, COST_STAR_STAGED, .packs = true, .by_node = true)

ROW(RB_KIND_ALLTOALL, "flat", 0, ANY, RANKS, alltoall_flat, "everyone to all", COST_ALL_FLAT)
ROW(RB_KIND_ALLTOALL, "pairwise", 0, ANY, RANKS, alltoall_pairwise, MPICH, COST_ALL_PAIRWISE)
/* Besides its messages, n log2(n) / 2 small copies. */
ROW(RB_KIND_ALLTOALL, "bruck", 0, ANY, RANKS, alltoall_bruck, "Bruck et al. 1997",
    COST(PHASES(.log = 1), MESSAGES(.log = 2, .all = 0.8), SENT(.log = 0.5),
	 VECTORS(.one = 2, .log = 3), CROSSED(.log = 1)),
    .packs = true)
ROW(RB_KIND_ALLTOALL, "flat_put", RB_SCHEDULE_PUT, ANY, RANKS, alltoall_flat_put,
    "everyone to all, with puts",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 1), VECTORS(.one = 2),
	 CROSSED(.share = 1)))
ROW(RB_KIND_ALLTOALL, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, alltoall_direct, DIRECT,
    COST_ALL_DIRECT)
ROW(RB_KIND_ALLTOALL, "staged", RB_SCHEDULE_MAPPED_SCRATCH, ANY, RANKS, alltoall_staged,
    "direct, through slots of scratch",
    COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2, .share = 2), CROSSED(.share = 2),
	 .by_chunk = true, .alternates = ANY),
    .slots_per_rank = true, .even = true)

ROW(RB_KIND_ALLTOALL, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, RANKS,
    alltoall_hierarchical, "a message from each node to each rank; after Traeff and Hunold 2020",
    COST(PHASES(.one = 1), MESSAGES(.one = 4, .all = 4), SENT(.share = 1),
	 VECTORS(.one = 2, .share = 6)),
    .packs = true, .by_node = true, .staged = "hierarchical_staged")
ROW(RB_KIND_ALLTOALL, "hierarchical_staged", 0, RB_CHANNEL_MAX, RANKS, alltoall_hierarchical_staged,
    "a message from each node to each rank; after Traeff and Hunold 2020",
    COST(PHASES(.one = 2), MESSAGES(.one = 4, .all = 8), SENT(.share = 1),
	 VECTORS(.one = 4, .share = 8)),
    .packs = true, .by_node = true)
ROW(RB_KIND_ALLTOALL, "hierarchical_direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS,
    alltoall_hierarchical_direct, "direct within nodes, everyone to all over them", COST_ALL_NODES,
    .by_node = true, .staged = "pairwise")
ROW(RB_KIND_ALLTOALL, "hierarchical_direct_put", RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT, ANY,
    RANKS, alltoall_hierarchical_direct_put, "direct within nodes, puts to all over them",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 1), REACH(FAR), VECTORS(.share = 2)),
    .by_node = true, .staged = "hierarchical_direct_put_staged")
ROW(RB_KIND_ALLTOALL, "hierarchical_direct_put_staged", RB_SCHEDULE_PUT, ANY, RANKS,
    alltoall_hierarchical_direct_put_staged, "pairwise within nodes, puts to all over them",
    COST(PHASES(.one = 2), MESSAGES(.all = 4), SENT(.share = 1), REACH(FAR), VECTORS(.share = 3)),
    .by_node = true)

ROW(RB_KIND_ALLGATHERV, "flat", 0, ANY, RANKS, allgather_flat, "everyone to all", COST_GATHER_FLAT)
ROW(RB_KIND_ALLGATHERV, "ring", 0, RB_CHANNEL_MAX, RANKS, allgather_ring, MPICH, COST_GATHER_RING)
ROW(RB_KIND_ALLGATHERV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, allgatherv_direct, DIRECT,
    COST_GATHER_DIRECT)
ROW(RB_KIND_ALLGATHERV, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX - 2, RANKS,
    allgather_hierarchical, LANED, COST_GATHER_NODES, .by_node = true,
    .staged = "hierarchical_staged")
ROW(RB_KIND_ALLGATHERV, "hierarchical_staged", 0, RB_CHANNEL_MAX - 2, RANKS,
    allgather_hierarchical_staged, LANED, COST_GATHER_NODES_STAGED, .by_node = true)

ROW(RB_KIND_REDUCE_SCATTERV, "flat", 0, UINT16_MAX, RANKS, reduce_scatter_flat, MPICH,
    COST_SCATTER_FLAT)
ROW(RB_KIND_REDUCE_SCATTERV, "ring", 0, RB_CHANNEL_MAX, RANKS, reduce_scatter_ring, RING,
    COST_SCATTER_RING)
ROW(RB_KIND_REDUCE_SCATTERV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, UINT16_MAX, RANKS,
    reduce_scatter_direct, DIRECT, COST_SCATTER_DIRECT)
ROW(RB_KIND_REDUCE_SCATTERV, "staged", RB_SCHEDULE_MAPPED_SCRATCH, UINT16_MAX, RANKS,
    reduce_scatterv_staged, "direct, through slots of scratch", COST_SCATTER_STAGED)

ROW(RB_KIND_REDUCE_SCATTERV, "hierarchical", RB_SCHEDULE_MAPPED_BUFFERS, RB_CHANNEL_MAX, RANKS,
    reduce_scatter_hierarchical, LANED, COST_SCATTER_NODES, .by_node = true,
    .staged = "hierarchical_staged")
ROW(RB_KIND_REDUCE_SCATTERV, "hierarchical_staged", 0, RB_CHANNEL_MAX, RANKS,
    reduce_scatter_hierarchical_staged, LANED, COST_SCATTER_NODES_STAGED, .by_node = true,
    .slots_per_rank = true)

ROW(RB_KIND_ALLTOALLV, "flat", 0, ANY, RANKS, alltoall_flat, "everyone to all", COST_ALL_FLAT,
    .forced_only = true)
ROW(RB_KIND_ALLTOALLV, "pairwise", 0, ANY, RANKS, alltoall_pairwise, MPICH, COST_ALL_PAIRWISE)
ROW(RB_KIND_ALLTOALLV, "direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS, alltoall_direct, DIRECT,
    COST_ALL_DIRECT)
ROW(RB_KIND_ALLTOALLV, "hierarchical_direct", RB_SCHEDULE_MAPPED_BUFFERS, ANY, RANKS,
    alltoall_hierarchical_direct, "direct within nodes, everyone to all over them", COST_ALL_NODES,
    .by_node = true, .staged = "pairwise")

ROW(RB_KIND_SENDRECV, "eager", 0, 2, ONE, sendrecv_eager, "one message",
    COST(PHASES(.one = 1), MESSAGES(.one = 1), SENT(.one = 1), VECTORS(.one = 2)))
