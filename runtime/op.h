/*
 * op.h -- an operation: one call of a collective or a message, or a persistent one.
 *
 *   IDLE --start--> EXCHANGING --all records here--> RUNNING --all steps done--> IDLE
 *    |  |`--no peer memory needed, or known already----^
 *    |  `--helped--> AWAITING --the late rank is named--^
 *    |--on a stream--> ENQUEUED --the stream has come that far--> as from start
 *    `--free--> FINAL_BARRIER --every rank has freed it--> gone
 *
 * op_prepare.c chooses and plans, op_exchange.c tells peers where the buffers are, op_run.c starts,
 * cancels and frees; message.c does what is between two ranks. All under the engine's lock.
 */
#ifndef RB_RUNTIME_OP_H
#define RB_RUNTIME_OP_H

#include <stdlib.h>

#include "base/hollow.h"
#include "runtime/comm.h"
#include "runtime/engine/converted.h"
#include "runtime/engine/gate.h"
#include "runtime/engine/memory.h"
#include "runtime/engine/run.h"

enum rb_op_state {
	RB_OP_IDLE,
	RB_OP_ENQUEUED,
	RB_OP_CONVERTING,
	RB_OP_EXCHANGING,
	RB_OP_AWAITING,
	RB_OP_RUNNING,
	RB_OP_FINAL_BARRIER
};

struct rb_op_scratch {
	bool mapped; /* The one in use: memory from `at` on, else plain. */
	/* One-shot: the calls that go ahead (RB_STEP_AHEAD) have two sets in turn, which nothing
	 * else uses: when a set's turn comes, all ranks have met once since they read it. */
	uint64_t at, room; /* What these sets take; 0: no call has gone ahead. */
	bool second;       /* The set that was last, */
	uint64_t turned;   /* and how far from its half's begin: see scratch_take(). */
	bool cramped;      /* There was no room for them: this rank does not go ahead. */
	struct rb_memory *memory, *retired;
	void *plain;
	uint64_t plain_bytes;
};

static inline void rb_scratch_free(struct rb_op_scratch *scratch)
{
	if (!rb_hollow(scratch->plain))
		free(scratch->plain);
	scratch->plain = NULL;
	scratch->plain_bytes = 0;
}

struct rb_op_room { /* Memory of a device's, kept for the next run. */
	void *memory;
	uint64_t bytes;
	struct rb_executor *owner;
	struct rb_memory *registered; /* As long as it lives; NULL: it is not. */
};

struct rb_op_device {                 /* Where a buffer is not the host's: op_stage.c. */
	struct rb_executor *executor; /* The device's; NULL: all are the host's, or managed. */
	struct rb_executor *executors[2];
	uint8_t kinds[RB_BUFFER_COUNT]; /* enum rb_memory_kind. */
	struct rb_op_room scratch, stages[RB_STAGE_COUNT];
};

struct rb_op_stream {         /* Started on a stream of a device: streams/op_stream.c. */
	struct rb_gate *gate; /* NULL: it never was. */
	/* Of what is in flight, and was started so; its end opens the gate. NULL: it was not. */
	void (*ends)(struct rubato_op *op);
	struct rubato_op *next;
};

struct rb_op_exchange { /* Where peers' buffers are: op_exchange.c. */
	struct rb_run run;
	bool over;                     /* Persistent: known since creation. */
	struct rb_peer_buffers *peers; /* Per rank. */
	/* Who takes part, and how many; NULL: all ranks. */
	const uint32_t *ranks;
	uint32_t rank_count;
	/* By pairs: this rank, and those that it exchanges with; of these, whose device memory it
	 * opens; per rank whether it turns out to be apart (rb_build). Each as many as there are
	 * ranks. */
	uint32_t *pairs, *opening, opening_count;
	uint8_t *apart;
	struct rb_plan *plan; /* Likewise: the run's, of so many. */
	uint64_t *records;    /* What the run gathers: record_words for each of these. */
	uint32_t record_words, record_room;
	uint64_t *own_record; /* By pairs: one for each. */
	size_t own_room;
	struct rb_memory *added[RB_BUFFER_COUNT]; /* Registered for this operation's puts. */
	/* What peers of other processes find buffers on a device by; NULL: there is none. */
	struct rb_memory *shares;
	enum { RB_SHARES_NONE, RB_SHARES_OPEN, RB_SHARES_REFUSED } sharing; /* Of all ranks. */
	/* Whether this rank could open all of the others'; all's. By pairs each other's. */
	uint64_t *opened, *all_opened;
	bool ahead; /* All have gone ahead. */
	bool holds; /* `added`, remotes and opened shares in `peers`: there is something. */
};

struct rb_op_message { /* SENDRECV, in flight. */
	struct rb_slot *slot;
	struct rb_where where;
	struct rb_flow_message in; /* Of its flow. */
	uint32_t flow;             /* Where in the table that was found last. */
	bool missed; /* Receive: its message was not there when it was last looked for. */
};

struct rb_call { /* What distinguishes one public rb_call from another. */
	enum rb_kind kind;
	const void *in;
	void *out;
	uint64_t count;
	rubato_type type;
	rubato_operator op;
	uint32_t root;
	/* What it is to the application, where the library calls it for that: rb_call_gather. */
	enum rb_kind named;
	const struct rb_shape *shape; /* Of uneven blocks. */
	/* Of a persistent allreduce that is helped; the operation's from then on, also if making it
	 * fails. */
	struct rb_helped *helped;
};

struct rubato_op {
	struct rubato_comm *comm;
	/* What was asked for. */
	enum rb_kind kind;
	rubato_type type;
	rubato_operator op;
	const void *in;
	void *out;
	uint64_t count;        /* As in struct rb_plan_key; coded: units, once prepared. */
	struct rb_shape shape; /* Until it is prepared. */
	uint32_t root;         /* SENDRECV: the peer. */
	uint32_t user_tag;
	enum rb_kind named; /* The library's own: its kind in the signature; else NONE. */
	bool sending, persistent;
	bool at_once; /* Persistent: struct rb_prepared's. */
	/* How it is done. */
	uint64_t prepared; /* Number of the rb_prepared that what follows is of; 0: of none. */
	uint64_t in_bytes, out_bytes; /* Of this rank's buffers, gaps included. */
	struct rb_choice choice;
	struct rb_plan *plan, *plan_staged; /* Staged: when some rank's buffers are not mapped. */
	struct rb_signature signature;
	struct rb_run run;
	struct rb_op_scratch scratch;
	struct rb_op_exchange exchange;
	struct rb_converted converted;
	struct rb_helped *helped; /* An allreduce that is helped against a late rank; or NULL. */
	void (*then)(struct rubato_op *op, rubato_status status, const char *text);
	struct rb_op_device device;
	struct rb_op_stream stream;
	uint64_t number; /* Persistent: its id. One-shot: the call's sequence number. */
	uint32_t instance;
	struct rb_op_message message;
	/* How it goes. */
	enum rb_op_state state;
	bool done; /* Nothing in flight. */
	/* It was done in its start, and has left: to wait for it needs no lock. */
	_Atomic bool over;
	rubato_status status;
	char failure[RB_TEXT_BYTES];
	/* In a list of comm->operations: the persistent ones; in comm->sends. */
	struct rubato_op *next, *previous;
};

/* Whether a plan touches peers' memory, so that its ranks have to know where that is. */
static inline bool rb_plan_needs_peers(const struct rb_plan *plan)
{
	if (plan->schedule.rank_count == 1)
		return false;
	return (plan->schedule.flags &
		(RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH | RB_SCHEDULE_PUT)) != 0;
}

/* Whether its ranks tell each other where their buffers are. All do where an operation is made,
 * whatever each knows of its own pairs. */
static inline bool rb_op_asks_peers(const struct rubato_op *op)
{
	return rb_plan_needs_peers(op->plan) ||
	       (op->persistent && rb_plan_by_pairs(op->plan) && op->plan->schedule.rank_count > 1);
}

/* Of its plan: what is coded counts in units. */
static inline uint8_t rb_op_element_bytes(const struct rubato_op *op)
{
	return op->converted.active ? (uint8_t)rb_converted_bytes(&op->converted)
				    : (uint8_t)rubato_type_bytes(op->type);
}
static inline bool rb_op_coded(const struct rubato_op *op)
{
	return op->converted.active && op->converted.wire != RUBATO_WIRE_SAME;
}

/* An alltoall's or alltoallv's. What has no bytes lies at no place, whatever its address. */
static inline bool rb_op_in_place(const struct rubato_op *op)
{
	return op->in == op->out && op->in_bytes > 0 && op->out_bytes > 0;
}

/* This rank's, as its spans count, and their sizes. */
static inline void rb_op_buffers(const struct rubato_op *op, void *base[RB_BUFFER_COUNT],
				 uint64_t bytes[RB_BUFFER_COUNT])
{
	base[RB_BUF_IN] = (void *)(uintptr_t)op->in;
	base[RB_BUF_OUT] = op->out;
	base[RB_BUF_SCRATCH] =
		op->scratch.mapped ? op->scratch.memory->base + op->scratch.at : op->scratch.plain;
	bytes[RB_BUF_IN] = op->in_bytes;
	bytes[RB_BUF_OUT] = op->out_bytes;
	bytes[RB_BUF_SCRATCH] =
		op->scratch.mapped ? op->scratch.memory->size_bytes - op->scratch.at : 0;
}

/* Completes it, and poisons if a collective failed. */
void rb_op_end(struct rubato_op *op, rubato_status status, const char *text);
/* The run that a collective in flight is at. */
struct rb_run *rb_op_current(struct rubato_op *op);
/* How it ended: OK, or its error, noted again. */
RB_NODISCARD rubato_status rb_op_result(const struct rubato_op *op);

/* On the communicator's list of persistent operations, and off it. */
void rb_op_list(struct rubato_op *op);
void rb_op_unlist(struct rubato_op *op);
/* The collective with this number, or NULL: freed, or not made yet. */
struct rubato_op *rb_op_find(const struct rubato_comm *comm, uint64_t number);

#endif
