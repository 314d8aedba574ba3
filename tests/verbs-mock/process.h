/*
 * process.h -- what a process keeps for itself: the objects that its verbs calls return, and its
 * engine. All of it is guarded by the world's lock, except where a line says otherwise.
 */
#ifndef RB_VERBS_MOCK_PROCESS_H
#define RB_VERBS_MOCK_PROCESS_H

#include "tests/verbs-mock/world.h"

/* Functions whose calls are counted, and can be made to fail. */
#define CALLS(X)                                                                                   \
	X(ibv_get_device_list)                                                                     \
	X(ibv_open_device)                                                                         \
	X(ibv_query_device)                                                                        \
	X(ibv_query_port)                                                                          \
	X(ibv_query_gid)                                                                           \
	X(ibv_query_gid_ex)                                                                        \
	X(ibv_query_gid_table)                                                                     \
	X(ibv_query_pkey)                                                                          \
	X(ibv_alloc_pd)                                                                            \
	X(ibv_reg_mr)                                                                              \
	X(ibv_reg_dmabuf_mr)                                                                       \
	X(ibv_dereg_mr)                                                                            \
	X(ibv_create_comp_channel)                                                                 \
	X(ibv_create_cq)                                                                           \
	X(ibv_resize_cq)                                                                           \
	X(ibv_create_srq)                                                                          \
	X(ibv_modify_srq)                                                                          \
	X(ibv_create_qp)                                                                           \
	X(ibv_modify_qp)                                                                           \
	X(ibv_query_qp)                                                                            \
	X(ibv_create_ah)                                                                           \
	X(ibv_close_device)                                                                        \
	X(ibv_dealloc_pd)                                                                          \
	X(ibv_destroy_comp_channel)                                                                \
	X(ibv_destroy_cq)                                                                          \
	X(ibv_destroy_srq)                                                                         \
	X(ibv_destroy_qp)                                                                          \
	X(ibv_destroy_ah)                                                                          \
	X(ibv_get_cq_event)                                                                        \
	X(ibv_get_async_event)                                                                     \
	X(ibv_req_notify_cq)                                                                       \
	X(ibv_poll_cq)                                                                             \
	X(ibv_post_send)                                                                           \
	X(ibv_post_recv)                                                                           \
	X(ibv_post_srq_recv)                                                                       \
	X(rdma_create_event_channel)                                                               \
	X(rdma_create_id)                                                                          \
	X(rdma_destroy_id)                                                                         \
	X(rdma_bind_addr)                                                                          \
	X(rdma_listen)                                                                             \
	X(rdma_resolve_addr)                                                                       \
	X(rdma_resolve_route)                                                                      \
	X(rdma_connect)                                                                            \
	X(rdma_accept)                                                                             \
	X(rdma_reject)                                                                             \
	X(rdma_establish)                                                                          \
	X(rdma_init_qp_attr)                                                                       \
	X(rdma_get_cm_event)

#define CALL_ENUM(name) CALL_##name,
enum call { CALLS(CALL_ENUM) CALL_COUNT };
#undef CALL_ENUM

/* Counts a call; the errno with which it is to fail, or 0. Takes no lock. */
int call_fails(enum call call);

/* Events that are queued, behind a descriptor that is readable while there are any. */
struct event_queue {
	int fd, other; /* A pair of sockets: fd is the application's. */
	struct event *first, **last;
};

struct event {
	struct event *next;
	struct mock_cq *cq; /* Of a channel. */
	struct mock_cm *id; /* Of rdmacm. */
	struct ibv_async_event async;
};

struct mock_context {
	struct verbs_context verbs;
	struct mock_context *next;
	uint32_t device; /* In the world. */
	uint32_t id;     /* Of no other one on it. */
	struct event_queue events;
	uint64_t device_events;      /* Of the device's, that were told. */
	uint32_t pds, mrs, channels; /* In use. */
};

struct mock_pd {
	struct ibv_pd v;
	uint32_t id, users;
};

struct mock_mr {
	struct ibv_mr v;
	uint32_t index;
	void *mapped; /* Of a dma-buf. */
	size_t mapped_bytes;
};

struct mock_channel {
	struct ibv_comp_channel v;
	struct event_queue events;
};

struct mock_cq {
	struct ibv_cq v;
	uint32_t index;
	uint32_t events_taken, async_taken; /* By the application, ever. */
};

struct mock_srq {
	struct ibv_srq v;
	uint32_t index, async_taken;
};

struct mock_ah {
	struct ibv_ah v;
	struct ibv_ah_attr attr;
};

struct send {
	uint64_t wr_id, remote, compare_add, swap, due, ack_due, ordinal;
	uint32_t opcode, flags, imm, rkey, length, moved;
	uint32_t qpn, qkey; /* UD. */
	struct ibv_ah_attr to;
	uint32_t sge_count;
	bool ack_late, ack_lost;
	struct world_fault *fault;
	bool counted;      /* Its fault was asked for. */
	bool slowed;       /* It was on its way as long as a slow port says, */
	uint64_t begun_ns; /* from then on; 0: not yet. */
	struct ibv_sge *sges;
	unsigned char *inline_data;
};

struct mock_qp {
	struct ibv_qp v;
	uint32_t index, async_taken;
	struct ibv_qp_cap cap;
	bool sq_sig_all, active;
	struct mock_qp *next_active;
	/* The send queue, by counts: freed <= acked <= sent <= posted; an entry is at count %
	 * capacity. */
	struct send *sends;
	struct ibv_sge *sge_slab;
	unsigned char *inline_slab;
	uint32_t capacity, freed, acked, sent, posted;
	uint64_t ordinal;  /* Of all sends, ever. */
	uint32_t attempts; /* Of the oldest send, that nobody has answered. */
	uint64_t attempt_until;
	uint32_t rnr_left;
	uint64_t rnr_until;
};

struct process {
	uint64_t calls; /* That moved the world: while it grows, the engine's thread stands back. */
	struct mock_context *contexts;
	struct mock_qp *active;
	struct mock_qp *qps[WORLD_QPS];
	struct mock_cq *cqs[WORLD_CQS];
	struct mock_srq *srqs[WORLD_SRQS];
	struct mock_cm *cms[WORLD_CMS];
	uint64_t registered; /* Bytes. */
	pthread_t engine;
	uint64_t engine_generation; /* A thread of another one ends. */
	bool engine_runs, engine_sleeps;
};

extern struct process process;

/* faults.c */
/* What VERBS_MOCK_FAULTS says, for who has just come. */
void faults_begin(struct world *world);
void faults_forget(void);
/* The fault of a process's next completion, counted, or NULL. */
struct world_fault *fault_of(struct world *world, uint32_t owner, bool receive);

/* The error with which a try to connect by rdmacm ends, counted, or NULL. */
struct world_cm_error *cm_error_of(struct world *world);

/* In a child that was forked: nothing of the parent's is its own. */
void process_forget(void);

/* engine.c */
void engine_start(void);
void engine_stop(void);
/* Carries out what is due of this process. */
void engine_step(struct world *world);
void engine_activate(struct world *world, struct mock_qp *qp);
void engine_deactivate(struct mock_qp *qp);
uint64_t engine_delay(const struct world *world, uint32_t qp, uint64_t ordinal);

/* carry.c */
/* Does what is due of a queue pair; whether anything is left. */
bool carry_out(struct world *world, struct mock_qp *qp);
/* deliver.c: what a queue pair has of writes comes into memory; what is due, of all. */
void late_land(struct world *world, uint32_t qp);
void late_step(struct world *world);
void qp_fail(struct world *world, uint32_t qp); /* To ERR; all that is posted is flushed. */

/* settings.c */
struct mock_config config_now(struct world *world); /* For who has not its lock. */

/* device.c */
void devices_name(void); /* Once, before the process has a world. */
void device_tables(struct world *world);
/* The device and port (from 0) with a GID or LID; false: there is none. */
bool device_find(const struct world *world, uint32_t from, const struct ibv_ah_attr *to,
		 uint32_t *device, uint32_t *port);
/* The node of who calls; the port whose IP address, or GID, this is, there or (WORLD_NONE)
 * anywhere; false: there is none. */
uint32_t device_node(void);
bool device_addressed(const struct world *world, uint32_t node, const union ibv_gid *address,
		      uint32_t *device, uint32_t *port);
struct ibv_device *device_at(uint32_t index);
/* Closes what an application has left open on it. */
void context_sweep(struct world *world, struct mock_context *context);
struct mock_context *context_of(struct ibv_context *context);

/* memory.c */
uint32_t mr_find(const struct world *world, uint32_t process, uint32_t pd, uint32_t key,
		 uint64_t address, uint64_t length, uint32_t access);
void mr_remove(struct world *world, uint32_t index);
/* Between this process and where a region lies; false: it is gone. */
bool memory_write(struct world *world, uint32_t mr, uint64_t at, const void *from, size_t bytes);
bool memory_read(struct world *world, uint32_t mr, uint64_t at, void *into, size_t bytes);

/* cq.c */
void cq_push(struct world *world, uint32_t cq, const struct world_cqe *cqe, bool solicited);
void cq_break(struct world *world, uint32_t index);
void cq_remove(struct world *world, uint32_t index);
void cq_forget_qp(struct world *world, uint32_t cq, uint32_t qp_number);
void cq_raise(struct world *world, uint32_t index);

/* events.c */
int event_queue_open(struct event_queue *queue);
void event_queue_close(struct event_queue *queue);
void event_queue_add(struct event_queue *queue, struct mock_cq *cq,
		     const struct ibv_async_event *async);
void event_queue_push(struct event_queue *queue, struct event *event);
/* The next event, owned by the caller; NULL: errno. Waits as the descriptor is set to wait. */
struct event *event_queue_take(struct world *world, struct event_queue *queue);
void event_queue_purge(struct event_queue *queue, const void *object);
/* Tells this process's contexts what their devices have to say. */
void device_events_raise(struct world *world);
/* Tells it to all, everywhere. */
void device_event(struct world *world, uint32_t device, enum ibv_event_type type, uint32_t port);
void async_raise(struct mock_context *context, enum ibv_event_type type, void *object, int port);
/* Waits until an object's events are acknowledged; ends the program with a line if they are not. */
void events_acknowledged(struct world *world, const char *what, const uint32_t *taken,
			 const uint32_t *completed);

/* cm.c */
/* Puts what is due to this process into its channels of rdmacm. */
void cm_raise(struct world *world);
void cm_taken(struct mock_cm *cm);
void cm_bury(struct world *world, uint32_t owner);

/* queue.c */
void qp_remove(struct world *world, uint32_t index);
void srq_remove(struct world *world, uint32_t index);
void qp_raise(struct world *world, uint32_t index);
void qp_event(struct world *world, uint32_t index, enum ibv_event_type type);
void srq_raise(struct world *world, uint32_t index);

/* post.c */
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);

#endif
