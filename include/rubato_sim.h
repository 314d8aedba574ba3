/*
 * rubato_sim.h -- runs N ranks of a program in one process, in virtual time, from one seed.
 *
 * Each rank is a fiber that runs `rank_main` with a communicator on the simulated transport, which
 * is finalized when rank_main returns, and not by it. Blocking calls of rubato.h switch ranks; time
 * passes only when every rank waits. Equal options and an equal program give an identical run,
 * event by event: *trace_hash tells.
 */
#ifndef RUBATO_SIM_H
#define RUBATO_SIM_H

#include "rubato.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rubato_sim_fault {
	uint32_t kind;     /* RUBATO_SIM_FREEZE, _CRASH or _CUT. */
	uint32_t rank;     /* The victim. */
	uint32_t peer;     /* CUT: the other end of the link that carries nothing from then on. */
	uint32_t reserved; /* 0. */
	uint64_t at_ns;    /* Virtual time. */
	uint64_t for_ns;   /* FREEZE, CUT: how long. */
} rubato_sim_fault;
#define RUBATO_SIM_FREEZE 1 /* The rank neither runs nor receives for a while. */
#define RUBATO_SIM_CRASH 2  /* The rank ends; peers learn it after options.detect_ns. */
#define RUBATO_SIM_CUT 3    /* What is sent between two ranks is held back until the cut ends. */

/*
 * What else takes time; all zero: nothing. A time is an hour at most, a latency, too; a bandwidth,
 * also of the options and the device, is 0 or at least 1: else ARGUMENT. docs/simulator.md has the
 * model and its equations.
 * A rank's processor does one thing at a time: messages, copies, reductions. What rubato_sleep
 * stands for is apart from that.
 */
typedef struct rubato_sim_costs {
	uint64_t send_ns, receive_ns; /* Of the processor for each message between nodes, */
	uint64_t node_send_ns, node_receive_ns; /* and within one. */
	uint64_t work_ns;                       /* And for each piece of copying or reducing. */
	uint64_t gap_ns; /* Each message holds a card so long beside its bytes, either way. */
	/* Bytes a second, reads and writes added up: of a node's memory, shared evenly by its ranks
	 * that move something, and of one rank at most. 0: no bound; both 0: memory takes no time,
	 * and messages within a node have links of node_bandwidth instead. */
	double memory_bandwidth, core_bandwidth;
	uint32_t cards; /* Of a node, shared by its ranks in turn (0: each rank has its own). */
	uint32_t puts;  /* 1: algorithms by puts may be chosen (0: only by name). */
	/* Of a node: its rank k runs on core k mod cores, in turns with the others there while none
	 * of them is at work; a turn takes turn_ns (cores 0: each rank has its own). */
	uint32_t cores;
	/* So many nodes in a row stand on one machine, as containers do, and share its cores: of
	 * all their ranks number k runs on core k mod cores (0: each node has its own cores). */
	uint32_t machine_nodes;
	uint64_t turn_ns;
	/* What a card that was idle for long lets pass at once before its bandwidth bounds it, each
	 * way: a token bucket. */
	uint64_t burst_bytes;
	/* Of each core, or of each rank where cores is 0, a cache of cache_bytes (0: none). What
	 * lies there, and what lies in another core's, is read and written at so many bytes a
	 * second (0: in no time), all else as above. A read of another core's says nothing for
	 * shared_latency_ns. With caches the run depends on where buffers lie within pages, so it
	 * is the same again in a new process only. */
	uint64_t cache_bytes, shared_latency_ns;
	double cached_bandwidth, shared_bandwidth;
	/* Of the kernel, which makes the long copies within a node: bytes a second, reads and
	 * writes added up, at which it copies what lies in memory. 0: as fast as a core. */
	double attach_bandwidth;
	/* Behind the cores' caches, of each node one of outer_bytes (0: none), which holds what has
	 * gone from them: outer_bandwidth. And what reductions read and write in cores' caches, if
	 * that is slower than cached_bandwidth (0: it is not). */
	uint64_t outer_bytes;
	double outer_bandwidth, reduced_bandwidth;
	/* Bytes a second at which a processor takes a message between nodes through its kernel, on
	 * either side, beside send_ns, receive_ns and the copy. 0: in no time. */
	double stack_bandwidth;
} rubato_sim_costs;

/*
 * A device of each rank, for programs that are to run on GPUs one day: memory that processors may
 * not touch (a fault tells who does), and an executor that copies and reduces there in its own
 * time, while the rank's processor does something else. It has three queues: copies from the host,
 * copies to it, all else. A piece of work begins launch_ns after it was started, when its queue and
 * what it waits for are through.
 */
typedef struct rubato_sim_device {
	uint32_t present; /* 1: each rank has one. */
	uint32_t network; /* 1: messages and puts reach its memory; else through the host's. */
	uint64_t launch_ns;
	double copy_bandwidth; /* Bytes a second between host and device, each way; 0: no bound. */
	double memory_bandwidth; /* Of its own memory, reads and writes added up; 0: no bound. */
} rubato_sim_device;

typedef struct rubato_sim_options {
	uint32_t size_bytes; /* sizeof(rubato_sim_options). */
	uint32_t rank_count;
	uint64_t seed;
	uint64_t latency_ns;      /* One way, between nodes (5 us). */
	uint64_t node_latency_ns; /* One way, within a node (300 ns). */
	double bandwidth;         /* Bytes a second of each card, each way (12.5e9). */
	double node_bandwidth;    /* Within a node (20e9). */
	uint32_t ranks_per_node;  /* 0: all on one flat network, no mapped memory. */
	uint32_t reorder;         /* 1: messages of one pair may overtake each other. */
	double jitter;        /* Each latency is stretched by up to this share of it, at random. */
	uint64_t detect_ns;   /* From a crash to the failure event at its peers (1 ms). */
	uint64_t time_max_ns; /* When virtual time passes it, the run fails: TIMEOUT (0: 2^62). */
	uint64_t timeout_ns;  /* rubato_options.timeout_ns of the ranks, virtual (60 s). */
	const rubato_sim_fault *faults;
	uint32_t fault_count;
	uint32_t stack_bytes; /* Of each rank's fiber (0: 256 KiB). */
	/* Uneven nodes, instead of ranks_per_node: the first has node_ranks[0] ranks, the next
	 * node_ranks[1], and so on, again from the first until all ranks have one. */
	uint32_t node_count;        /* 0: as ranks_per_node says. */
	const uint32_t *node_ranks; /* Only read before the run. */
	rubato_sim_costs costs;
	uint32_t hollow;    /* 1: rubato_alloc gives addresses without memory; rubato_sim_hollow. */
	uint32_t reserved2; /* 0. */
	rubato_sim_device device;
} rubato_sim_options;
#define RUBATO_SIM_OPTIONS_INIT                                                                    \
	{                                                                                          \
		(uint32_t)sizeof(rubato_sim_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, \
			0, 0, NULL,                                                                \
			{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },   \
			0, 0,                                                                      \
		{                                                                                  \
			0, 0, 0, 0, 0                                                              \
		}                                                                                  \
	}

typedef struct rubato_sim_result {
	uint64_t end_ns;     /* Virtual time at the end. */
	uint64_t events;     /* Deliveries, timers and faults carried out. */
	uint64_t trace_hash; /* Of every event with its time: equal for equal runs. */
	uint64_t messages;   /* Between ranks. */
	uint64_t message_bytes;
	uint32_t
		faults_fired; /* How many of options.faults found their victim alive and at work. */
	uint32_t failed_rank; /* The first rank whose rank_main returned an error. */
	rubato_status first_error;
} rubato_sim_result;

typedef rubato_status (*rubato_sim_main)(rubato_comm *comm, void *arg);

/* Returns OK when every rank that was not crashed returned OK; `result` is filled in any case. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_sim_run(const rubato_sim_options *options,
							 rubato_sim_main rank_main, void *arg,
							 rubato_sim_result *result);

/* The network's chance (jitter, reordering) goes on as if drawn anew from the seed and `number`: a
 * program that goes on from a checkpoint meets the network that the first one went on to meet, if
 * both say so there. For a moment when nothing is on its way, the same number on every rank that
 * calls it. On other transports it does nothing. */
RUBATO_API void rubato_sim_reseed(rubato_comm *comm, uint64_t number);

/*
 * In a hollow simulation: the address of so many bytes that are not there, as malloc's would be;
 * rubato_alloc gives such addresses, too, as its own. What collectives, sends and receives are
 * given at them takes its time, but moves nowhere: so 256 ranks of 64 MiB fit. Nobody may read or
 * write there, so partial and lagged allreduces are refused. Returns NULL elsewhere, and when the
 * 1 TiB that each rank has is used up.
 */
RUBATO_API void *rubato_sim_hollow(rubato_comm *comm, size_t bytes);

/*
 * Memory of the rank's device: zeroed, 4 KiB aligned; `managed`: memory that the processor may
 * touch as well. Collectives take it as they take the host's, on any rank, for input or output or
 * both.
 * Free it before the communicator ends. Errors: UNSUPPORTED (no device), MEMORY.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_sim_device_alloc(rubato_comm *comm,
								  size_t size_bytes, bool managed,
								  void **memory);
/* Errors: ARGUMENT (`memory` is no begin of such memory). */
RUBATO_API rubato_status rubato_sim_device_free(rubato_comm *comm, void *memory);
/* As memcpy, to, from and between devices and the host: what a program does to prepare input and
 * look at results. Takes no time. */
RUBATO_API void rubato_sim_device_copy(rubato_comm *comm, void *to, const void *from,
				       size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
