/*
 * sim_net_inside.h -- what the files of the simulated network share: sim_net.c (messages),
 * sim_pair.c (pairs of a node) and sim_match.c (the table in which messages meet their receives).
 */
#ifndef RB_TRANSPORT_SIM_NET_INSIDE_H
#define RB_TRANSPORT_SIM_NET_INSIDE_H

#include "transport/sim/sim_cluster_inside.h"
#include "transport/sim/sim_way.h"

struct rb_sim_link;

struct rb_sim_message {
	struct rb_sim_event event;              /* First: handlers cast. */
	struct rb_sim_message *next, *previous; /* In its link's list. */
	struct rb_sim_message *chain;           /* In the receiver's bucket. */
	struct rb_sim_link *link;
	uint32_t sender, receiver; /* Ranks in the communicator. */
	bool put;
	bool asked;   /* Its data waits for its receive, but for what has left ahead. */
	bool through; /* The receiver's link has taken it in. */
	bool arrived; /* Its turn to be delivered is all it waits for. */
	bool landed;
	bool kept;   /* In the receiver's bucket. */
	bool hollow; /* Nothing was copied: there was nothing. */
	struct rb_signature signature;
	struct rb_tag tag;
	size_t size_bytes;          /* As the receive must have it: 0 for a put. */
	struct rb_request *request; /* The sender's, while it needs us; NULL: done, or given up. */
	struct rb_request *receive; /* Asked for: met. */
	uint64_t credit_bytes;      /* It holds of its link's. */
	bool under_way;             /* A long one within a node, that has not come yet; */
	uint32_t taken;             /* of the receiver's: rb_shm_longs. */
	struct rb_sim_buffers buffers; /* Likewise. */
	uint64_t ahead_bytes;          /* Left without being asked for, */
	uint64_t first_bytes;          /* and in the piece that announces it. */
	uint64_t last_ns;              /* When its last byte is at the receiver's card. */
	uint64_t arrive_ns;            /* When its first one is, then when it is through. */
	uint64_t came_ns;  /* From its first piece to its last one, where both are copied. */
	uint64_t frees_ns; /* When its source is free; 0: it is, or when it is over. */
	uint32_t region;   /* A put: where to. */
	uint64_t offset, put_bytes;
	uint8_t data[];
};

struct rb_sim_link {            /* From one rank to another. */
	struct rb_sim_nic *nic; /* The sender's. */
	uint32_t peer;
	bool leaving;          /* The sender has left: after the last message, its peer learns. */
	uint64_t credit_bytes; /* Held by its messages. */
	struct rb_sim_pair *pair; /* sim_pair.c; NULL: nothing to know yet. */
	struct rb_sim_message *flying, *flying_last;
	struct rb_sim_message *landed, *landed_last;
};

struct rb_sim_bucket {
	struct rb_request *receives; /* Linked by backend[RB_SIM_CHAIN], oldest first. */
	struct rb_sim_message *arrivals;
};

struct rb_sim_nic {
	struct rb_sim_member *member;
	struct rb_sim_process *process;
	struct rb_endpoint *ep; /* NULL: closed. */
	bool stopped;
	struct rb_sim_link **links; /* Open addressing by peer; a power of 2. */
	uint32_t link_count, link_capacity;
	struct rb_sim_bucket *buckets; /* By peer and tag; a power of 2. */
	uint32_t bucket_count, entry_count;
	uint32_t kept_count;      /* Of the entries: messages that wait for their receive. */
	struct rb_sim_pair *came; /* Of these long messages have come since it polled. */
	struct rb_request *pending;
	struct rb_request *done, *done_last; /* Completed, not yet collected. */
};

/* rb_request.backend */
enum {
	RB_SIM_CHAIN,
	RB_SIM_MESSAGE,
	RB_SIM_WHERE,
	RB_SIM_CAME_NS, /* Of a receive: how long its message came, from the first piece on; */
	RB_SIM_BUFFERS, /* and where it lies: struct rb_sim_buffers. */
	RB_SIM_THEIRS = RB_SIM_CAME_NS, /* Of what was asked for: where the other end has it. */
	RB_SIM_BUFFERS_END = RB_SIM_BUFFERS + 3,
};
_Static_assert(sizeof(struct rb_sim_buffers) <= 3 * sizeof(uint64_t), "fits");

static inline struct rb_sim_message *rb_sim_message_of(const struct rb_request *r)
{
	return (struct rb_sim_message *)(uintptr_t)r->backend[RB_SIM_MESSAGE];
}

static inline void rb_sim_message_set(struct rb_request *r, struct rb_sim_message *m)
{
	r->backend[RB_SIM_MESSAGE] = (uint64_t)(uintptr_t)m;
}

static inline struct rb_request *rb_sim_chain_of(const struct rb_request *r)
{
	return (struct rb_request *)(uintptr_t)r->backend[RB_SIM_CHAIN];
}

static inline void rb_sim_chain_set(struct rb_request *r, struct rb_request *next)
{
	r->backend[RB_SIM_CHAIN] = (uint64_t)(uintptr_t)next;
}

static inline uint64_t rb_sim_tag_word(struct rb_tag tag)
{
	return rb_mix(tag.call) + tag.step;
}

/* The link to a peer, made when first used; NULL: no memory. */
struct rb_sim_link *rb_sim_link_to(struct rb_sim_nic *nic, uint32_t peer);
/* Of it, held by its messages. */
uint64_t rb_sim_link_credit(struct rb_sim_nic *nic, uint32_t peer);

/* ---- Pairs within a node (sim_pair.c) ---- */

/* A message is under way; it does not come; it is there: to be taken with the next poll. */
void rb_sim_pair_posted(struct rb_sim_message *m);
void rb_sim_pair_withdrawn(struct rb_sim_message *m);
void rb_sim_pair_came(struct rb_sim_nic *nic, struct rb_sim_message *m);
/* Whoever reads a message without a copy, to drop it, holds its buffers all the same. */
void rb_sim_pair_read(struct rb_sim_nic *nic, uint32_t peer, const struct rb_sim_buffers *buffers);

/* ---- Matching (sim_match.c): one table a card, by (peer, tag) ---- */

void rb_sim_table_add_receive(struct rb_sim_nic *nic, struct rb_request *receive);
void rb_sim_table_add_arrival(struct rb_sim_nic *nic, struct rb_sim_message *m);
/* The oldest, taken out; NULL: there is none. */
struct rb_request *rb_sim_table_take_receive(struct rb_sim_nic *nic, uint32_t peer,
					     struct rb_tag tag);
struct rb_sim_message *rb_sim_table_find_arrival(struct rb_sim_nic *nic, uint32_t peer,
						 struct rb_tag tag);
/* Both are there. */
void rb_sim_table_remove_receive(struct rb_sim_nic *nic, struct rb_request *gone);
void rb_sim_table_remove_arrival(struct rb_sim_nic *nic, struct rb_sim_message *gone);

#endif
