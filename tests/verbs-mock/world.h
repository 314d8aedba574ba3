/*
 * world.h -- what all processes on the mock share: the devices, the queues, the keys.
 *
 * A world is one mapping: private memory where VERBS_MOCK is not set, else the file that it names.
 * One robust mutex guards all of it, and what a process keeps beside it (process.h). In it are
 * indexes and offsets, never pointers. What only its owner touches, as send queues, is not here: a
 * process carries out its own sends, and reaches memory of others through the kernel.
 */
#ifndef RB_VERBS_MOCK_WORLD_H
#define RB_VERBS_MOCK_WORLD_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/verbs-mock/mock.h"

#define WORLD_NODES 16u
#define WORLD_DEVICES 4u /* Of a node. */
#define WORLD_PORTS 2u
#define WORLD_GIDS 8u
#define WORLD_PROCESSES 128u
#define WORLD_QPS 16384u
#define WORLD_CQS 4096u
#define WORLD_SRQS 1024u
#define WORLD_MRS 65536u
#define WORLD_FAULTS 64u
#define WORLD_CMS 4096u /* Identifiers of rdmacm. */
#define WORLD_CM_EVENTS 8u
#define WORLD_CM_DATA 56u     /* With a request, as over InfiniBand. */
#define WORLD_EVENT_TYPES 20u /* enum ibv_event_type */
#define WORLD_NONE 0xffffffffu
#define WORLD_BYTES ((size_t)1 << 30) /* Of which only what is touched is there. */

struct world_port {
	enum ibv_port_state state;
	uint16_t lid;
	uint32_t loss_permille, slow_us, fabric, mtu;
	bool infiniband;
	union ibv_gid gids[WORLD_GIDS];
	uint32_t gid_types[WORLD_GIDS];
};

struct world_event { /* Of a device, told to each context of it. */
	enum ibv_event_type type;
	uint32_t port;
};

#define WORLD_EVENTS 256u

struct world_device {
	struct world_event events[WORLD_EVENTS];
	uint64_t event_count; /* Ever; the last ones are in EVENTS. */
	bool dead;            /* DEVICE_FATAL: nothing moves any more. */
	struct world_port ports[WORLD_PORTS];
	uint32_t qps, cqs, mrs, srqs, pds; /* In use. */
};

struct world_process { /* A slot is in use while its owner holds a lock on byte 1 + slot. */
	bool used;
	int pid;
	uint32_t doorbell;        /* A futex: its engine has something to look at. */
	uint32_t cm_events;       /* Of rdmacm, that are to be told. */
	bool attention;           /* Others changed a queue of it. */
	uint64_t sends, receives; /* That ended well, or by a fault: what faults count. */
};

struct world_cqe {
	struct ibv_wc wc;
	uint32_t qp;          /* Whose send queue it frees, WORLD_NONE: of a receive. */
	uint32_t generation;  /* Of that QP. */
	uint32_t sends_freed; /* Up to there. */
};

struct world_cq {
	bool used, overrun, has_channel;
	uint32_t process, device, capacity;
	uint32_t head, tail; /* Counts: entries are at count % capacity. */
	uint32_t armed;      /* 0: no, 1: for any completion, 2: for a solicited one or an error. */
	uint32_t raise;      /* Channel events that its owner has yet to raise. */
	uint32_t raise_error;
	uint32_t qps;  /* That complete to it. */
	uint64_t ring; /* Offset of its struct world_cqe. */
	uint64_t arms; /* How often it was armed: what seeds decide by. */
};

struct world_receive {
	uint64_t wr_id;
	uint32_t sge_count;
	struct ibv_sge sges[]; /* max_sge of them. */
};

struct world_rq { /* Of a QP, or an SRQ. */
	uint32_t capacity, max_sge, head, tail;
	uint64_t ring; /* Offset; entries are rq_stride() long. */
};

struct world_srq {
	bool used, raise_limit;
	uint32_t process, device, pd, limit, qps;
	struct world_rq rq;
};

struct world_qp {
	bool used, flush; /* flush: what is posted is to end, and has not yet. */
	bool heard;
	uint8_t raise[WORLD_EVENT_TYPES]; /* Events of it that its owner has yet to raise. */
	uint32_t process, device, pd, send_cq, recv_cq, srq, generation, number;
	enum ibv_qp_type type;
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	struct world_rq rq;
	uint32_t psn_sent, psn_expected;
	bool waits_first; /* iWARP: something must come before it may send. */
	bool silent;      /* Nothing that it sends, and nothing sent to it, arrives. */
};

struct world_mr {
	bool used, dmabuf;
	uint32_t process, device, pd, key, access;
	uint64_t iova, length;
	uint64_t address; /* In its process. */
	uint32_t context;
};

/* A piece of a write that its target has, and that is not in its memory yet; the bytes follow. */
struct world_late {
	uint64_t next;    /* Its offset; 0: none. */
	uint32_t qp, key; /* That received it; of the region. */
	uint64_t at, bytes, due;
};

struct world_fault { /* Of a completion. */
	uint32_t process;
	bool receive, delivered;
	enum ibv_wc_status status;
	uint64_t nth, fired;
};

enum world_cm_state {
	CM_MADE,
	CM_LISTENS,
	CM_CONNECTS,
	CM_REQUESTED, /* Made by who connects, for who listens. */
	CM_ACCEPTED,
	CM_CONNECTED,
	CM_OVER,
};

struct world_cm_event {
	uint32_t type; /* enum rdma_cm_event_type */
	int status;
	uint64_t due;
};

struct world_cm { /* An identifier of rdmacm. */
	bool used, passive;
	enum world_cm_state state;
	uint32_t process, generation, device, port; /* port: from 0. */
	uint32_t peer, peer_generation, listener;
	uint32_t qp, psn;
	uint16_t number, to_number;
	union ibv_gid address, to;
	uint8_t data[WORLD_CM_DATA];
	uint64_t told;
	uint32_t head, tail; /* Of events, by counts. */
	struct world_cm_event events[WORLD_CM_EVENTS];
};

struct world_cm_error { /* The NTH try of a process to connect ends so. */
	uint32_t process, type;
	int status;
	uint64_t nth, fired;
};

struct world {
	uint32_t magic;
	pthread_mutex_t lock;
	struct mock_config config;
	uint32_t devices_of[WORLD_NODES]; /* How many a node has. */
	uint64_t step;                    /* The mock's clock: counts calls that move it. */
	uint32_t pd_last, qp_hint, cq_hint, mr_hint;
	/* Behind the last of each that there ever was: who looks through them stops there, and
	 * touches no memory beyond. */
	uint32_t qp_end, cq_end, srq_end, mr_end, cm_end;
	uint64_t arena_next;
	uint64_t arena_free[64];
	uint64_t late_first, late_bytes;
	struct mock_counters counters;
	uint64_t calls[64];
	uint32_t cm_ports, cm_error_count;
	uint64_t cm_tries[WORLD_PROCESSES];
	struct world_cm_error cm_errors[WORLD_FAULTS];
	struct world_cm cms[WORLD_CMS];
	uint32_t fault_count;
	struct world_fault faults[WORLD_FAULTS];
	struct world_process processes[WORLD_PROCESSES];
	struct world_device devices[WORLD_NODES * WORLD_DEVICES];
	struct world_qp qps[WORLD_QPS];
	struct world_cq cqs[WORLD_CQS];
	struct world_srq srqs[WORLD_SRQS];
	struct world_mr mrs[WORLD_MRS];
};

/* Maps the world at its first call, makes it where nobody has; NULL: errno. */
struct world *world_attach(void);
/* The world of this process, or NULL. */
struct world *world_now(void);
/* The slot of this process. */
uint32_t world_self(void);
/* Forgets the world: the next one that attaches makes a new one, where it is not a file. */
void world_detach(void);

void world_lock(struct world *world);
void world_unlock(struct world *world);

/* Wakes what serves a process, and has it look at all of its queues. */
void world_notify(struct world *world, uint32_t process);
/* Whether the process of a slot is alive; gives back what a dead one had. */
bool world_alive(struct world *world, uint32_t process);
void world_bury(struct world *world, uint32_t process);

/* Memory in the world, zeroed; 0: there is none. */
uint64_t world_alloc(struct world *world, size_t bytes);
void world_free(struct world *world, uint64_t offset, size_t bytes);

static inline void *world_at(struct world *world, uint64_t offset)
{
	return (char *)world + offset;
}

static inline size_t rq_stride(const struct world_rq *rq)
{
	return sizeof(struct world_receive) + rq->max_sge * sizeof(struct ibv_sge);
}

static inline struct world_receive *rq_entry(struct world *world, const struct world_rq *rq,
					     uint32_t count)
{
	return world_at(world, rq->ring + count % rq->capacity * rq_stride(rq));
}

/* What a seed decides about WHAT, the same in each run. */
static inline uint64_t world_chance(const struct world *world, uint64_t what, uint64_t which)
{
	uint64_t x = world->config.seed * 0x9e3779b97f4a7c15ull ^ what * 0xbf58476d1ce4e5b9ull;

	x = (x ^ which) + 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

#endif
