/*
 * comm.h -- a communicator: an engine with its endpoints, what was agreed when it was made, its
 * plans, its memory, and the operations that applications see.
 *
 * Everything but the const part is under engine.lock.
 */
#ifndef RB_RUNTIME_COMM_H
#define RB_RUNTIME_COMM_H

#include "runtime/engine.h"
#include "runtime/notice.h"
#include "runtime/run.h"
#include "runtime/startup/setup.h"
#include "runtime/wide.h"

#define RB_KINDS_FORCED RB_KIND_COUNT

struct rb_unmatched {            /* unmatched.c */
	struct rb_poller poller; /* First. */
	struct rubato_comm *comm;
};

struct rb_memory {                                   /* One rubato_alloc or rubato_register. */
	struct rb_region *regions[RB_ENDPOINTS_MAX]; /* Per endpoint; NULL where it has none. */
	uint8_t *base;
	size_t size_bytes;
	bool allocated;
	struct rb_memory *next;
};

struct rb_turn { /* A thread that waits to run its blocking collective: they run one at a time. */
	bool mine;
	struct rb_turn *next;
};

struct rb_flow {                        /* Messages of one (peer, tag, direction): message.c. */
	uint64_t key, next;             /* Number of the next one. */
	struct rubato_op *first, *last; /* Receives in flight, oldest first. */
	uint64_t *freed;                /* Numbers below `next` that nobody waits for, ascending. */
	uint32_t freed_count, freed_room;
	bool used;
};

#define RB_MEMO_COUNT 64 /* A power of 2. */
#define RB_OP_LISTS 256u
#define RB_CALLS_REMEMBERED 64u

struct rb_memo { /* A choice made before: the cost model takes longer than a small operation. */
	uint64_t count;
	uint8_t kind, element_bytes; /* Kind 0: empty. */
	struct rb_choice choice;
};

/* What a call of even blocks came to: the next one like it is not checked or planned again. */
struct rb_prepared {
	struct rb_plan *plan, *plan_staged; /* plan NULL: empty. */
	uint64_t evictions;                 /* Of the cache when they were found there. */
	uint64_t number;                    /* Never used again. */
	struct rb_choice choice;
	struct rb_signature signature;
	uint64_t count, what; /* Of the call: what: kind, type, operator, root and so on. */
	uint64_t in_bytes, out_bytes, scratch_bytes;
};

enum rb_op_state { RB_OP_IDLE, RB_OP_CONVERTING, RB_OP_EXCHANGING, RB_OP_RUNNING, RB_OP_FAREWELL };

struct rubato_op {
	struct rubato_comm *comm;
	/* What was asked for. */
	enum rb_kind kind;
	rubato_type type;
	rubato_operator op;
	const void *in;
	void *out;
	uint64_t count;        /* As in struct rb_plan_key. */
	struct rb_shape shape; /* Until it is prepared. */
	uint32_t root;         /* SENDRECV: the peer. */
	uint32_t user_tag;
	enum rb_kind named; /* In the signature, where it is not `kind`. */
	bool sending, persistent;
	/* How it is done. */
	uint64_t prepared; /* Number of the rb_prepared that what follows is of; 0: of none. */
	uint64_t in_bytes, out_bytes; /* Of this rank's buffers, gaps included. */
	struct rb_choice choice;
	struct rb_plan *plan,
		*plan_staged; /* plan_staged: when some rank's buffers are not mapped. */
	struct rb_run run, exchange;
	struct rb_wide wide;
	struct rb_signature signature;
	struct rb_peer_buffers *peers;
	uint64_t *records; /* The exchange's vector: record_words per rank. */
	uint32_t record_words, record_room;
	uint64_t *own_record; /* PER_PEER: one for each peer. */
	size_t own_room;
	bool scratch_mapped; /* The one in use: scratch, else plain_scratch. */
	struct rb_memory *scratch, *scratch_retired;
	void *plain_scratch;
	uint64_t scratch_bytes;
	struct rb_memory *added[RB_BUFFER_COUNT]; /* Registered for this operation's puts. */
	bool puts;       /* `added`, and remotes in `peers`, have something. */
	bool exchanged;  /* Persistent: peers' buffers are known since creation. */
	uint64_t number; /* Persistent: its id. One-shot: the call's sequence number. */
	uint32_t instance;
	struct rb_slot *slot; /* SENDRECV in flight. */
	uint64_t message;     /* SENDRECV: its number. */
	struct rubato_op *flow_next, *flow_previous;
	/* How it goes. */
	enum rb_op_state state;
	bool done; /* Nothing in flight. */
	rubato_status status;
	char failure[192];
	struct rubato_op *next, *previous; /* In a list of comm->operations: the persistent ones. */
};

enum rb_exchange {                       /* What ranks tell each other of their buffers. */
		   RB_EXCHANGE_WORDS,    /* Words alone. */
		   RB_EXCHANGE_KEYS,     /* Whole records, with keys. */
		   RB_EXCHANGE_PER_PEER, /* Words for each peer. */
};
#define RB_EXCHANGE_COUNT 3

/* What is asked of all relaxed operations of a communicator. Under the lock. */
struct rb_relaxed_ops {
	/* "; partial allreduce 0 (quorum): round 7 is open", for each, as far as they fit. Returns
	 * text. */
	char *(*text)(const struct rubato_comm *comm, char *text, size_t text_bytes);
	void (*dump)(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		     void *arg);
	/* Of those that are still open when the communicator ends. Local. */
	void (*end)(struct rubato_comm *comm);
};

struct rubato_comm {
	struct rb_engine engine;
	struct rb_poller runs;
	struct rb_unmatched unmatched;
	struct rb_config config;
	uint8_t job[16];        /* The job's nonce. */
	struct rb_setup origin; /* How it was made; of use to those that are split off. */
	uint64_t timeout_ns;
	struct rb_choice_facts facts;
	rubato_accumulate accumulate;
	int forced[RB_KIND_COUNT]; /* Index of an algorithm, or -1. */
	struct rb_memo memos[RB_MEMO_COUNT];
	struct rb_prepared prepared[RB_MEMO_COUNT];
	uint64_t prepared_count;
	struct rb_plan_cache plans;
	struct rb_plan *barrier_plan;
	struct rb_plan *exchange_plans[RB_EXCHANGE_COUNT]; /* NULL: not needed so far. */
	struct rubato_op oneshot;
	bool oneshot_busy;
	struct rb_turn *turns_first, *turns_last;
	/* No number comes twice. */
	uint64_t oneshot_sequence, persistent_sequence, partial_sequence;
	uint64_t message_sequence;
	struct rb_signature called[RB_CALLS_REMEMBERED]; /* One-shots, by number: unmatched.c. */
	struct rubato_op *operations[RB_OP_LISTS];       /* By number. */
	struct rb_memory *memory;
	struct rb_flow *flows;
	uint32_t flow_count, flow_capacity;
	struct rubato_op *messages; /* Of blocking sends and receives: not in use, by `next`. */
	struct rb_notices notices;
	const struct rb_relaxed_ops *relaxed; /* NULL: none was ever made. */
	struct rubato_partial *partials;      /* Theirs. */
	bool closing;
};

/* The endpoint that tells time, and (simulated) the only one. */
struct rb_endpoint *rb_comm_endpoint(rubato_comm *comm);
/* The communicator's, made when it is first asked for: each has a step for every rank. Under the
 * lock. */
RB_NODISCARD rubato_status rb_comm_exchange_plan(struct rubato_comm *comm, enum rb_exchange which,
						 struct rb_plan **out);

/* ---- memory.c: under the lock ---- */
RB_NODISCARD rubato_status rb_memory_alloc(struct rubato_comm *comm, size_t size_bytes,
					   struct rb_memory **out);
RB_NODISCARD rubato_status rb_memory_add(struct rubato_comm *comm, void *base, size_t size_bytes,
					 struct rb_memory **out);
void rb_memory_drop(struct rubato_comm *comm, struct rb_memory *memory);
/* The one that holds all these bytes, or NULL. */
struct rb_memory *rb_memory_find(struct rubato_comm *comm, const void *base, size_t size_bytes);

/* ---- arguments.c ---- */

/* Sets count, in_bytes, out_bytes and the shape's hash. */
RB_NODISCARD rubato_status rb_op_check(struct rubato_op *op);
/* Without the algorithm. */
struct rb_signature rb_op_signature(const struct rubato_op *op);

/* ---- op.c: under the lock ---- */

/* Checks the arguments, chooses, plans. The op must be zeroed but for what a former use left. */
RB_NODISCARD rubato_status rb_op_prepare(struct rubato_op *op);
void rb_op_start(struct rubato_op *op);
void rb_op_cancel(struct rubato_op *op);
/* The run that a collective in flight is at. */
struct rb_run *rb_op_current(struct rubato_op *op);
/* Frees what prepare made; not the struct. */
void rb_op_release(struct rubato_op *op);
/* A persistent operation's end: in the background where peers may still need its scratch. */
void rb_op_free(struct rubato_op *op);
/* Puts it on comm->operations. */
void rb_op_list(struct rubato_op *op);
/* The collective with this number, or NULL: freed, or not made yet. */
struct rubato_op *rb_op_find(const struct rubato_comm *comm, uint64_t number);
/* Takes it off comm->operations, releases and frees it: at once. */
void rb_op_forget(struct rubato_op *op);
void rb_op_discard(struct rubato_op *op); /* One that is not on the list. */
/* The first step of a split, a collective as any other: everybody's RB_SPLIT_WORDS. *number: the
 * call's, the same on every rank. */
#define RB_SPLIT_WORDS 2
RB_NODISCARD rubato_status rb_split_gather(struct rubato_comm *comm, const int64_t *in,
					   int64_t *out, uint64_t *number);
/* A persistent collective that was just prepared: all ranks agree that it is the same one, and
 * tell each other where their buffers are, if that matters. Collective. */
RB_NODISCARD rubato_status rb_op_agree(struct rubato_op *op, uint64_t deadline_ns);

/* Completes it, and poisons if a collective failed. */
void rb_op_end(struct rubato_op *op, rubato_status status, const char *text);

/* ---- message.c: under the lock ---- */

void rb_message_start(struct rubato_op *op);
void rb_message_cancel(struct rubato_op *op, const char *text);
/* Cancels a receive that no message has met, as if it had never been started; else false. */
bool rb_message_recall(struct rubato_op *op, const char *text);
void rb_flows_free(struct rubato_comm *comm);

/* ---- unmatched.c: under the lock ---- */

/* From then on looked for before each sleep. */
void rb_unmatched_open(struct rubato_comm *comm);
/* Whether a message lies here that shows that ranks call different things: that poisons. */
void rb_unmatched_look(struct rubato_comm *comm);
/* The same as look when all ranks have come to the end: then nothing may be left. */
RB_NODISCARD rubato_status rb_unmatched_end(struct rubato_comm *comm);
/* "; rank 2 is in barrier, call 3, which rank 0 has not called", if a message tells of one; else
 * nothing. Returns text. */
char *rb_unmatched_ahead(struct rubato_comm *comm, char *text, size_t text_bytes);

#endif
