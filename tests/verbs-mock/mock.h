/*
 * mock.h -- what a test asks of the mock libibverbs, beside the verbs themselves.
 *
 * The functions are symbols of the mock: link to it, or look them up (dlsym). What they do takes
 * effect at once, for every process on the same world. What goes by environment:
 *
 *   VERBS_MOCK=FILE            the world is that file (made by who comes first), for all processes;
 *                              once it is used, who opens and closes it by itself drops its locks
 *   VERBS_MOCK_CONFIG=a=1,b=2  fields of struct mock_config by their names, for who makes the world
 *   VERBS_MOCK_NODE=N          the node on which this process is (0): each has devices of its own
 *   VERBS_MOCK_FAULTS=F,F      faults of this process: call:FUNCTION:NTH:ERRNO[:TIMES],
 *                              send:NTH:STATUS[:delivered], receive:NTH:STATUS; all by number
 */
#ifndef RB_VERBS_MOCK_H
#define RB_VERBS_MOCK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define MOCK_API __attribute__((visibility("default")))

/* name, default: numbers all. */
#define MOCK_CONFIG(X)                                                                             \
	X(seed, 0)       /* 0: all at once, in order; else it draws delays and pieces. */          \
	X(devices, 2)    /* Of a node, at most 4. */                                               \
	X(ports, 1)      /* Of a device, at most 2. */                                             \
	X(iwarp, 0)      /* No datagrams, no immediate values; connected by rdmacm alone. */       \
	X(infiniband, 0) /* Link layer: LIDs, and no need of a GID. */                             \
	X(mtu, 5)        /* An enum ibv_mtu. */                                                    \
	X(fabrics, 0)    /* Whether device i of a node reaches only devices i of others. */        \
	X(max_qp, 16384)                                                                           \
	X(max_qp_wr, 16384)                                                                        \
	X(max_sge, 30)                                                                             \
	X(max_inline, 512)                                                                         \
	X(max_cq, 4096)                                                                            \
	X(max_cqe, 65536)                                                                          \
	X(max_mr, 65536)                                                                           \
	X(max_mr_size, 1099511627776)                                                              \
	X(max_memlock, 1099511627776) /* Bytes that a process may register. */                     \
	X(max_pd, 4096)                                                                            \
	X(max_srq, 1024)                                                                           \
	X(max_srq_wr, 16384)                                                                       \
	X(max_rd_atomic, 16)                                                                       \
	X(max_msg, 2147483648)                                                                     \
	X(max_delay, 0)          /* Steps; 0: the seed says it. */                                 \
	X(soft_roce, 0)          /* Errors have its shapes, not those of the specification. */     \
	X(time_divisor, 50)      /* Retries take that much less than the attributes say. */        \
	X(stale_cqes, 0)         /* Completions of a destroyed QP stay, as on Soft-RoCE. */        \
	X(acknowledge_ms, 10000) /* Who destroys what has unacknowledged events is ended then. */  \
	X(last_wqe, 1)           /* How often LAST_WQE_REACHED is told: Soft-RoCE repeats it. */   \
	X(sleep_ms, 100)         /* The thread looks so often where nobody calls it. */            \
	X(thread, 1) /* 0: only calls move the world, so that a run is the same each time. */

#define MOCK_FIELD(name, value) uint64_t name;
struct mock_config {
	MOCK_CONFIG(MOCK_FIELD)
};
#undef MOCK_FIELD

/* Of the world, since it was made. */
struct mock_counters {
	uint64_t sends;             /* Work requests that were carried out. */
	uint64_t bytes;             /* That they moved. */
	uint64_t rnr;               /* Sends that found no receive. */
	uint64_t outside_remote;    /* Accesses that a remote key did not allow. */
	uint64_t stale_remote;      /* Of those: by keys of regions that are no more. */
	uint64_t outside_local;     /* Accesses that a local key did not allow. */
	uint64_t cq_overruns;       /* Completion queues that were too short. */
	uint64_t length_errors;     /* Messages that were longer than the receive. */
	uint64_t retries_exhausted; /* Sends that nobody answered. */
	uint64_t flushed;           /* Work requests that ended with WR_FLUSH_ERR. */
	uint64_t datagrams_lost;    /* UD, which nobody is told of. */
	uint64_t processes_died;    /* Without having closed. */
	uint64_t faults_fired;      /* Injected by mock_fail_*(). */
	uint64_t packets_lost;      /* Messages, or answers, that a port's loss took. */
	uint64_t slowed;            /* Messages that took as long as a port's slowness says. */
	uint64_t left_open;         /* Objects of devices that were closed before them. */
	uint64_t late_pieces;       /* Of writes, that were told before they were in memory. */
	uint64_t early_sends;       /* iWARP: who accepted sent before something had come. */
	/* iWARP: requests that do not tell their completion, from 4 KiB on. Soft-iWARP sends them
	 * out of their buffers, perhaps later than a completion behind them is told. */
	uint64_t sent_in_place;
	uint64_t spurious_events; /* Channel events without a completion. */
};

/* The default, with VERBS_MOCK_CONFIG in it. */
MOCK_API void mock_config_default(struct mock_config *config);
/* A new world for this process (not a file); no device may be open. 0, or EBUSY. */
MOCK_API int mock_reset(const struct mock_config *config);
MOCK_API void mock_counters(struct mock_counters *counters);
/* The node whose devices this thread lists from now on (VERBS_MOCK_NODE). */
MOCK_API void mock_node(uint32_t node);
/* A setting of the world, from now on; one without such a name ends the program. */
MOCK_API void mock_set(const char *name, uint64_t value);

/* What one node has other than the settings say, before it is opened: "devices", how many;
 * "infiniband", 0 or 1, or "mtu", of all of its ports. */
MOCK_API void mock_set_node(uint32_t node, const char *name, uint64_t value);

/*
 * The NTH call (1: the next) of a function by this process, and those after it up to TIMES (0:
 * all), fail with an errno. The result is a number for mock_fired(). The count is of all processes.
 * Functions are named from 0 on, until NULL. An unknown name ends the program.
 */
MOCK_API int mock_fail_call(const char *function, uint64_t nth, uint64_t times, int error);
MOCK_API uint64_t mock_call_count(const char *function);
MOCK_API const char *mock_call_name(uint32_t index);
/*
 * Sees each call of a counted function by this process, in the thread that makes it, before
 * anything happens, and may fail it: with the errno that it returns. It may call whatever is in
 * this file. NULL: nobody; to be changed while no call is under way.
 */
typedef int mock_watch(void *arg, const char *function);
MOCK_API void mock_watch_calls(mock_watch *watch, void *arg);
/*
 * Sees each datagram that a rank of this process sends, and may change its bytes (at most
 * MOCK_DATAGRAM_BYTES) and their number. It holds the mock's lock: it calls nothing of the mock.
 * NULL: nobody. LATE: it comes behind the next one to the same queue pair, if there is one.
 */
enum mock_fate { MOCK_ARRIVES, MOCK_LOST, MOCK_TWICE, MOCK_LATE };
#define MOCK_DATAGRAM_BYTES 256u
typedef enum mock_fate mock_carry(void *arg, uint32_t node, void *bytes, uint32_t *size_bytes);
MOCK_API void mock_carry_datagrams(mock_carry *carry, void *arg);
/*
 * The NTH send (1: the next) of this process ends with an error, before or after it was delivered,
 * which its sender cannot know; the NTH receive that would have succeeded does. What follows from
 * it comes, too: the queue pair is in ERR, the rest flushed, the sender of the receive told.
 */
MOCK_API int mock_fail_send(uint64_t nth, enum ibv_wc_status status, bool delivered);
MOCK_API int mock_fail_receive(uint64_t nth, enum ibv_wc_status status);
/*
 * The NTH try (1: the next) of this process to connect by rdmacm, a call of rdma_resolve_addr(),
 * ends with an event: ADDR_ERROR, ROUTE_ERROR, UNREACHABLE, REJECTED or CONNECT_ERROR, by number.
 */
MOCK_API int mock_fail_connect(uint64_t nth, uint32_t event, int status);
/* How often a fault has fired. */
MOCK_API uint64_t mock_fired(int fault);

/* Port PORT (1, 2) of device DEVICE of node NODE goes down, or comes up, and says so. */
MOCK_API void mock_link(uint32_t node, uint32_t device, uint32_t port, bool up);
/* Of 1000 messages, and as many answers, so many get lost at a port; 1000: all, in silence. */
MOCK_API void mock_loss(uint32_t node, uint32_t device, uint32_t port, uint32_t permille);
/* A message from or to a port takes so long, one behind the other; datagrams do not. 0: none
 * does. */
MOCK_API void mock_slow(uint32_t node, uint32_t device, uint32_t port, uint32_t microseconds);
/* Nothing from or to a queue pair arrives any more. */
MOCK_API void mock_silence(uint32_t qp_number, bool silent);
/*
 * An event, and what it tells of: PORT_ERR and PORT_ACTIVE as mock_link(), DEVICE_FATAL (nothing
 * works any more), LID_CHANGE (the port has another one). Others are only told.
 */
MOCK_API void mock_device_event(uint32_t node, uint32_t device, uint32_t port,
				enum ibv_event_type type);
/* An entry of a port's table becomes another GID (NULL: none), with GID_CHANGE. */
MOCK_API void mock_gid(uint32_t node, uint32_t device, uint32_t port, uint32_t index,
		       const union ibv_gid *gid);
/* Those of all queue pairs that there are, not more than `max`: how many. */
MOCK_API uint32_t mock_qp_numbers(uint32_t *numbers, uint32_t max);
/* An event of a queue pair; QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR turn it to ERR. 0, or ENOENT. */
MOCK_API int mock_qp_event(uint32_t qp_number, enum ibv_event_type type);
/* A queue pair's connection of rdmacm ends (0: the first that there is): both are told. 0, or
 * ENOENT. */
MOCK_API int mock_disconnect(uint32_t qp_number);
/* The completion queue of a queue pair's sends fails: CQ_ERR, as after an overrun. 0, or ENOENT. */
MOCK_API int mock_cq_error(uint32_t qp_number);

#endif
