/*
 * sim_cluster_inside.h -- what the simulator's files share: sim_cluster.c (time, ranks, faults),
 * sim_node.c (memory and cards), sim_core.c (cores), sim_net.c, sim_pair.c and sim_match.c
 * (messages), sim.c (the transport's table).
 */
#ifndef RB_TRANSPORT_SIM_CLUSTER_INSIDE_H
#define RB_TRANSPORT_SIM_CLUSTER_INSIDE_H

#include "base/rng.h"
#include "transport/sim/fiber.h"
#include "transport/sim/sim_cache.h"
#include "transport/sim/sim_cluster.h"
#include "transport/sim/sim_way.h"
#include "transport/transport.h"

#define RB_SIM_NOBODY UINT32_MAX

/* ---- Events ---- */

enum rb_sim_trace {
	RB_SIM_TRACE_TIMER,
	RB_SIM_TRACE_FAULT,
	RB_SIM_TRACE_FAULT_END,
	RB_SIM_TRACE_GONE,
	RB_SIM_TRACE_ARRIVE,
	RB_SIM_TRACE_GRANT,
	RB_SIM_TRACE_DATA,
	RB_SIM_TRACE_MEMORY,
	RB_SIM_TRACE_TURN,
};

struct rb_sim_cluster;
struct rb_sim_event;
typedef void rb_sim_fire(struct rb_sim_cluster *cluster, struct rb_sim_event *event);

struct rb_sim_queue {
	struct rb_sim_event *first, *last;
};

/* Embedded in what it happens to; at any time in the heap, in one queue, or nowhere. */
struct rb_sim_event {
	uint64_t time_ns, sequence;
	uint32_t from, to; /* Who is cut or frozen delays it; RB_SIM_NOBODY: nobody. */
	uint32_t at;       /* In the heap, from 1; 0: not there. */
	rb_sim_fire *fire;
	struct rb_sim_queue *queue; /* That holds it back; or NULL. */
	struct rb_sim_event *next, *previous;
};

/* Makes it happen at time_ns (now at the earliest), after all that was set for that time before. */
void rb_sim_event_set(struct rb_sim_cluster *cluster, struct rb_sim_event *event, uint64_t time_ns);
/* Makes it not happen. Fine when it was not going to. */
void rb_sim_event_unset(struct rb_sim_cluster *cluster, struct rb_sim_event *event);
void rb_sim_trace(struct rb_sim_cluster *cluster, enum rb_sim_trace kind, uint32_t from,
		  uint32_t to, uint64_t size_bytes, uint64_t what);

/* ---- Ranks ---- */

enum rb_sim_state {
	RB_SIM_READY,    /* In the queue of those that may run. */
	RB_SIM_RUNNING,  /* The one that runs; outside of a run: any. */
	RB_SIM_WAITING,  /* Until news, or its timer. */
	RB_SIM_SLEEPING, /* Until its timer; news make it run its background step. */
	RB_SIM_WORKING,  /* Until its timer, or what it moves in memory is moved. */
	RB_SIM_QUEUED,   /* It would be ready, but for its core. */
	RB_SIM_ENDED,    /* Its main has returned. */
};

struct rb_sim_process;

/* ---- Nodes ---- */

/* Until when its two sides are taken; each serves whole messages in turn. */
struct rb_sim_card {
	uint64_t out_free_ns, in_free_ns;
};

/* What a process moves in its node's memory; it does nothing else meanwhile. */
struct rb_sim_flow {
	bool active;
	uint64_t until; /* It is over when the node's `moved` is that. */
	struct rb_sim_flow *next, *previous;
};

/* Of a node, shared by some of its ranks, which are `stride` apart. */
struct rb_sim_core {
	struct rb_sim_event event; /* The turn of a rank that wants to run has come. */
	uint32_t first, stride, count;
	struct rb_sim_process *holder; /* Runs, or works; NULL: it goes round. */
	uint32_t at;                   /* Whose turn it was at since_ns: which of its ranks. */
	uint64_t since_ns;
};

struct rb_sim_node {
	struct rb_sim_event event; /* The first of its flows is over. */
	/* What each flow would have been served until since_ns, had it always been there, in
	 * 1 / RB_SIM_BYTE bytes; it wraps. */
	uint64_t moved, since_ns;
	uint32_t flow_count, rank_count;
	struct rb_sim_flow *first, *last; /* In the order in which they end. */
	struct rb_sim_card *cards;        /* NULL: each rank has its own. */
	struct rb_sim_core *cores;        /* Likewise. */
};
#define RB_SIM_BYTE (1u << 20)

/* ---- Members ---- */

/* A process as a member of a communicator: where its endpoint there is, or was. */
struct rb_sim_member {
	struct rb_sim_comm *comm;
	struct rb_sim_process *process; /* NULL: it has not opened yet. */
	uint32_t rank;                  /* In the communicator. */
	struct rb_sim_nic *nic; /* Its network side: from its first open to the cluster's close. */
	struct rb_sim_member *next; /* Of the same process. */

	bool news;                   /* Since the last poll: a completion or a lost peer. */
	uint64_t (*step)(void *arg); /* Background progress; when it wants to be called again. */
	void *step_arg;
	uint64_t step_ns; /* What it said. */

	struct rb_sim_event gone_event;
	bool gone_fails; /* Peers take it as a failure. */
	bool spoke;
	uint32_t blames; /* These: see rb_endpoint. */
	uint8_t last_words[RB_LAST_WORDS_BYTES];
	bool gone; /* Peers know. */
	bool left; /* In good order. */
};

/* The endpoints of one job, or of one communicator that was split off: they know each other by
 * their ranks in it. */
struct rb_sim_comm {
	uint8_t job[16];
	uint32_t rank_count;
	struct rb_sim_member *members;
	uint32_t *failures; /* Ranks, in the order in which peers learned; at most one each. */
	uint32_t failure_count;
	struct rb_sim_comm *next;
};

struct rb_sim_process {
	struct rb_sim_cluster *cluster;
	uint32_t rank;
	enum rb_sim_state state;
	struct rb_fiber *fiber;
	struct rb_sim_process *next_ready;
	struct rb_sim_event timer;
	struct rb_rng rng;
	rubato_status status; /* Of its main. */

	bool woken; /* By wake or unpark. */
	bool crashed;
	bool ghost;        /* On its own: see "the afterlife". Implied by crashed. */
	bool abandoned;    /* A ghost that would not end. */
	uint32_t idle;     /* Fruitless asks for news in a row. */
	uint64_t quiet_ns; /* Since when its processor has had nothing to do. */
	uint64_t ghost_calls, ghost_ns;

	uint32_t frozen; /* Freezes that last. */
	bool stalled;    /* Would be ready, but for those. */
	struct rb_sim_queue held;

	struct rb_sim_event lost_event; /* Peers learn that it has crashed. */
	bool lost;                      /* They have, of that or of an abort. */

	uint32_t node;
	struct rb_sim_card own, inside; /* To other nodes, unless it shares one; within its node. */
	struct rb_sim_card *card;       /* The one to other nodes that it uses. */
	struct rb_sim_core *core;       /* NULL: its own. */
	struct rb_sim_flow flow;
	struct rb_sim_member *members;
	struct rb_sim_region *graves; /* Memory given up that a ghost might still look at. */
	uint64_t hollow_bytes;        /* Of its addresses without memory: those given out. */
};

struct rb_sim_fault {
	rubato_sim_fault what;
	struct rb_sim_cluster *cluster;
	struct rb_sim_event start, end;
	bool lasts, fired;
	struct rb_sim_queue held; /* CUT. */
};

struct rb_sim_slot {
	uint64_t time_ns, sequence;
	struct rb_sim_event *event;
};

struct rb_sim_cluster {
	rubato_sim_options options; /* Defaults filled in. */
	struct rb_sim_process *processes;
	struct rb_sim_node *nodes;
	uint32_t node_count;
	uint64_t segments;            /* Handed out: sim_pair.c. */
	struct rb_sim_caches *caches; /* By the first rank of a core; NULL: there are none. */
	bool flat;                    /* Nobody shares a node. */
	bool charges;                 /* Some of options.costs is not 0; */
	bool moves;                   /* memory takes time. */
	bool attaches;                /* The kernel copies fast (transport/shm_pieces.h): */
	double attach_ns;             /* a byte read or written takes so much more than a core's. */
	struct rb_sim_fault *faults;
	struct rb_sim_comm *comms;
	struct rb_sim_device_memory *device_memory;
	struct rb_sim_process *current; /* Whose fiber runs; NULL: none. */
	uint32_t *failures;             /* Of processes, in the order in which others learned. */
	uint32_t failure_count;         /* At most one a process. */
	struct rb_rng rng;              /* The network's chance. */

	uint64_t now_ns, sequence;
	struct rb_sim_slot *heap;
	uint32_t heap_count, heap_capacity;
	bool heap_full; /* An event was lost for want of memory: the run cannot go on. */

	struct rb_sim_process *ready_first, *ready_last;
	bool running;
	uint32_t live; /* Processes that run and have neither ended nor crashed. */
	bool crashes;  /* Some fault is one. */
	uint32_t cuts; /* That last. */
	rubato_status (*main)(struct rb_sim_process *process, void *arg);
	void *arg;

	rubato_status end_status; /* Why the cluster ended the run, if it did. */
	bool time_over;           /* It was ended while something was yet to happen. */
	rubato_sim_result result;
	char first_text[256];
};

/* sim_device.c: all devices' memory goes; as memcpy, by a message, which reaches what lies there
 * where the network does. */
void rb_sim_devices_free(struct rb_sim_cluster *cluster);
void rb_sim_message_copy(struct rb_sim_cluster *cluster, void *to, const void *from, size_t bytes);

/* Whether two ranks share a node, and so memory. Never on a flat network. */
static inline bool rb_sim_near(const struct rb_sim_cluster *c, uint32_t a, uint32_t b)
{
	return !c->flat && c->processes[a].node == c->processes[b].node;
}

static inline bool rb_sim_member_near(const struct rb_sim_comm *comm, uint32_t a, uint32_t b)
{
	const struct rb_sim_process *from = comm->members[a].process,
				    *to = comm->members[b].process;

	return from != NULL && to != NULL && rb_sim_near(from->cluster, from->rank, to->rank);
}

/* It may run, unless it is frozen. */
void rb_sim_ready(struct rb_sim_process *process);
/* Blocks in `state` until rb_sim_news, wake (WAITING only) or the deadline. */
void rb_sim_block(struct rb_sim_process *process, enum rb_sim_state state, uint64_t deadline_ns);
/* For calls that ask again and again without blocking: lets time pass now and then. */
void rb_sim_idle(struct rb_sim_process *process);
/* Something came for this rank. */
void rb_sim_news(struct rb_sim_member *member);
void rb_sim_wake(struct rb_sim_process *process);
/* Background progress of all endpoints of this rank, but of `but`, that have news or are due;
 * whether any. */
bool rb_sim_step(struct rb_sim_process *process, const struct rb_sim_member *but);
/* When the next of them is due. */
uint64_t rb_sim_step_next(const struct rb_sim_process *process, const struct rb_sim_member *but);
/* The others of the communicator learn after delay_ns that this rank has left it; `fails`: as a
 * failure. */
void rb_sim_tell(struct rb_sim_member *member, uint64_t delay_ns, bool fails);

/* The communicator of this job, made when first asked for. Errors: ARGUMENT (it has another number
 * of ranks), MEMORY. */
RB_NODISCARD rubato_status rb_sim_comm_get(struct rb_sim_cluster *cluster, const uint8_t job[16],
					   uint32_t rank_count, struct rb_sim_comm **out);

/* ---- Nodes (sim_node.c) ---- */

/* Places the ranks. Errors: ARGUMENT, MEMORY. */
RB_NODISCARD rubato_status rb_sim_nodes_open(struct rb_sim_cluster *cluster);
void rb_sim_nodes_close(struct rb_sim_cluster *cluster);
/* Its processor is busy so long, then moves so many bytes in memory (reads and writes added up).
 * Returns when it is done, or the process is on its own. */
void rb_sim_work(struct rb_sim_process *process, uint64_t busy_ns, uint64_t bytes);
/* What it costs its core to read and write that now. */
struct rb_sim_access rb_sim_touch(struct rb_sim_process *process, const struct rb_touch *touches,
				  uint32_t count);
/* What a core moves in a second when it is alone; 0: any number. */
double rb_sim_core_bandwidth(const struct rb_sim_cluster *cluster);
/* What an option may be as bytes a second. */
bool rb_sim_is_rate(double x);
/* Of each, more would not fit 64 bits of nanoseconds: an hour. */
#define RB_SIM_COST_MAX_NS UINT64_C(3600000000000)

/* Virtual time ends here. What one thing takes is bounded by it, too, so that two of them fit. */
#define RB_SIM_TIME_MAX_NS (UINT64_C(1) << 62)

static inline uint64_t rb_sim_ns(double ns)
{
	return ns < (double)RB_SIM_TIME_MAX_NS ? (uint64_t)ns : RB_SIM_TIME_MAX_NS;
}
/* Bytes a ns that it moves at least, however many of its node move something; 0: any number. */
double rb_sim_rate_least(const struct rb_sim_process *process);
/* It moves nothing any more. */
void rb_sim_work_stop(struct rb_sim_process *process);

/* ---- Cores (sim_core.c) ---- */

/* When nodes have their ranks. Errors: MEMORY. */
RB_NODISCARD rubato_status rb_sim_cores_open(struct rb_sim_cluster *cluster);
/* Whether it may run now; if not, it is queued, and rb_sim_ready comes again with its turn. */
bool rb_sim_core_ask(struct rb_sim_process *process);
/* It waits, sleeps or has ended: its state is that already. */
void rb_sim_core_leave(struct rb_sim_process *process);
/* Of those on its core, some may have come to take turns, or no more. */
void rb_sim_core_next(struct rb_sim_process *process);

/* ---- The network side (sim_net.c) ---- */

/* Makes the member's network card, or readies the one it has for its next endpoint. Errors: MEMORY,
 * UNSUPPORTED (an endpoint is open). */
RB_NODISCARD rubato_status rb_sim_nic_open(struct rb_sim_member *member, struct rb_endpoint *ep);
/* The rank stops taking part: withdraws its large sends, drops what came for it. */
void rb_sim_nic_stop(struct rb_sim_nic *nic);
/* After that: forgets the requests that are left, and the endpoint. */
void rb_sim_nic_close(struct rb_sim_nic *nic);
void rb_sim_nic_free(struct rb_sim_nic *nic);
/* Its endpoint while that is open, else NULL. NULL is fine. */
struct rb_endpoint *rb_sim_nic_endpoint(const struct rb_sim_nic *nic);
/* Whether requests are pending on it. */
bool rb_sim_nic_at_work(const struct rb_sim_nic *nic);
/* This rank learns that a peer is no more: ends what needs it. `failed`: what the peer had sent is
 * not waited for. */
void rb_sim_nic_lost(struct rb_sim_nic *nic, uint32_t peer, bool failed);

struct rb_sim_post {       /* Of a send. */
	uint64_t ready_ns; /* When the first piece of its copy was; the last is now. */
	/* Within a node: sim_pair.c. */
	struct rb_sim_way way;
	struct rb_sim_buffers buffers;
};

void rb_sim_send(struct rb_sim_nic *nic, struct rb_request *request,
		 const struct rb_sim_post *post);
void rb_sim_recv(struct rb_sim_nic *nic, struct rb_request *request);
void rb_sim_put(struct rb_sim_nic *nic, struct rb_request *request);
void rb_sim_cancel(struct rb_sim_nic *nic, struct rb_request *request);
/* The completed requests, as poll returns them. */
struct rb_request *rb_sim_collect(struct rb_sim_nic *nic);
bool rb_sim_collectable(const struct rb_sim_nic *nic);
/* Also one that has met a message, which is then as before. */
bool rb_sim_recall(struct rb_sim_nic *nic, struct rb_request *request);
bool rb_sim_unmatched(const struct rb_sim_nic *nic, rb_unmatched_visit *visit, void *arg);
/* Calls line() for each pending request. */
void rb_sim_describe(struct rb_sim_nic *nic, void (*line)(void *arg, const char *text), void *arg);

/* ---- Pairs within a node (sim_pair.c) ---- */

/* Which way a send goes, and in which buffers. */
void rb_sim_pair_sends(struct rb_sim_nic *nic, const struct rb_request *request,
		       struct rb_sim_post *post);
/* Where a piece was written; where it is read, and whoever reads it holds the buffer now. */
const uint8_t *rb_sim_bulk_sent(struct rb_sim_nic *nic, uint32_t peer,
				const struct rb_sim_buffers *buffers, uint32_t piece);
const uint8_t *rb_sim_bulk_read(struct rb_sim_nic *nic, uint32_t peer,
				const struct rb_sim_buffers *buffers, uint32_t piece);
/* All long messages that have come are taken. */
void rb_sim_pairs_take(struct rb_sim_nic *nic);

/* ---- Memory (sim.c), as puts find it ---- */

/* Where in the rank's registered memory; NULL: not there (any more). */
void *rb_sim_memory(struct rb_endpoint *ep, uint32_t region, uint64_t offset, uint64_t size_bytes);
/* The number by which the peer knows the region behind `remote`. */
uint32_t rb_sim_remote_region(const struct rb_remote *remote);
void rb_sim_graves_free(struct rb_sim_process *process);

#endif
