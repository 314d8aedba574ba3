/*
 * comm.h -- a communicator: an engine with its endpoints, what was agreed when it was made, its
 * plans, its memory, and the operations that applications see.
 *
 * open.c makes it, close.c ends it. Everything but the const part is under engine.lock.
 */
#ifndef RB_RUNTIME_COMM_H
#define RB_RUNTIME_COMM_H

#include "runtime/engine/engine.h"
#include "runtime/engine/flow.h"
#include "runtime/engine/memory.h"
#include "runtime/engine/notice.h"
#include "runtime/engine/plan.h"
#include "runtime/engine/run.h"
#include "runtime/startup/setup.h"

#define RB_MEMO_COUNT 64 /* A power of 2. */
#define RB_OP_LISTS 256u
#define RB_CALLS_REMEMBERED 64u

struct rb_caller; /* A thread that waits to run its blocking collective: call.c. */

struct rb_comm_poller {
	struct rb_poller poller; /* First. */
	struct rubato_comm *comm;
};

struct rb_memo { /* A choice made before: the cost model takes longer than a small operation. */
	uint64_t count;
	uint8_t kind, element_bytes; /* Kind 0: empty. */
	bool coded;
	int forced; /* Index of an algorithm, or -1. */
	struct rb_choice choice;
};

struct rb_locality { /* Where ranks are: facts.c. */
	uint32_t card_count, host_count;
	uint32_t *card_of;   /* Per rank: what its messages to other nodes leave by; numbered, */
	uint32_t *host_of;   /* per node: the kernel that it runs on; likewise, */
	uint16_t *domain_of; /* per rank: its NUMA domain there; RB_LOCALITY_NONE: several, or none
			      * is known. */
};
#define RB_LOCALITY_NONE UINT16_MAX

struct rb_choices { /* Of algorithms. */
	struct rb_nodes nodes;
	struct rb_choice_facts facts;
	int forced[RB_KIND_COUNT]; /* Index of an algorithm, or -1. */
	struct rb_memo memos[RB_MEMO_COUNT];
};

/* What a call came to: the next one like it is not checked or planned again. */
struct rb_prepared {
	struct rb_plan *plan, *plan_staged; /* plan NULL: empty. */
	uint64_t evictions;                 /* Of the cache when they were found there. */
	uint64_t number;                    /* Never used again. */
	struct rb_choice choice;
	struct rb_signature signature;
	uint64_t count, what; /* Of the call: what: kind, type, operator, root and so on. */
	uint64_t total;       /* The operation's count. */
	uint64_t in_bytes, out_bytes, scratch_bytes;
	bool uneven;  /* The plan has its blocks. */
	bool at_once; /* The plan may begin without an operation. */
};

enum rb_exchange { /* What ranks tell each other of their buffers: op_exchange.c. */
		   RB_EXCHANGE_WORDS,       /* Words alone. */
		   RB_EXCHANGE_KEYS,        /* Whole records, with keys. */
		   RB_EXCHANGE_NODE,        /* Words, among the ranks of a node. */
		   RB_EXCHANGE_OPENED,      /* Whether each could open others' device memory; */
		   RB_EXCHANGE_NODE_OPENED, /* among the ranks of a node. */
};
#define RB_EXCHANGE_COUNT 5

struct rb_plans {
	struct rb_plan_cache cache;
	struct rb_plan *barrier;
	struct rb_plan *exchange[RB_EXCHANGE_COUNT]; /* NULL: not needed so far. */
};

/* Blocking collectives run one at a time, in one operation. */
struct rb_oneshots {
	struct rubato_op *op;
	bool busy;
	struct rb_caller *first, *last; /* Who waits to be next. */
	uint64_t sequence;
	struct rb_signature called[RB_CALLS_REMEMBERED]; /* By number: unmatched.c. */
};

#define RB_RECEIVES_PUT_OFF 8u

struct rb_receives { /* Started, and not posted yet: message.c. */
	struct rb_comm_poller poller;
	struct rubato_op *at[RB_RECEIVES_PUT_OFF];
	uint32_t count;
};

struct rb_enqueued { /* Started on streams that have not come that far: streams/op_stream.c. */
	struct rb_comm_poller poller;
	struct rubato_op *first, *last;
};

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

/* What is asked of the operations that are helped against a late rank. Under the lock. */
struct rb_help_ops {
	/* In place of its run: which that is becomes known when all ranks but one have come. */
	void (*start)(struct rubato_op *op);
	/* "rank 3, which has not begun it": whom it waits for until then. Returns text. */
	char *(*absent)(const struct rubato_op *op, char *text, size_t text_bytes);
	void (*dump)(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		     void *arg);
	void (*end)(struct rubato_comm *comm); /* The communicator ends. Local. */
};

struct rubato_comm {
	struct rb_engine engine;
	struct rb_runs runs;
	struct rb_comm_poller unmatched;
	struct rb_notices notices;
	const struct rb_config *config;
	uint8_t job[16]; /* The job's nonce. */
	uint8_t key[32]; /* Likewise, these: see struct rb_bootstrap. */
	bool elsewhere;
	struct rb_setup origin; /* How it was made; of use to those that are split off. */
	uint64_t timeout_ns, began_timeout_ns; /* Now, and when it was opened. */
	rubato_accumulate accumulate;
	rubato_wire wire;
	bool wire_feedback;
	bool converts; /* Some calls, by these: what they come to is not kept. */
	struct rb_memories memory;
	/* Per transport: the words that a region's key takes in records, the same on all ranks; 0:
	 * no rank has an endpoint of it. */
	uint8_t key_words[RB_ENDPOINTS_MAX];
	struct rb_choices choices;
	struct rb_locality locality;
	struct { /* Arrays of nodes and locality that are the bootstrap's: rb_bootstrap.keep. */
		bool nodes, cards, hosts, domains;
	} kept;
	struct rb_plans plans;
	struct rb_prepared prepared[RB_MEMO_COUNT];
	uint64_t prepared_count;
	struct rb_oneshots oneshots;
	struct rubato_op *operations[RB_OP_LISTS]; /* Persistent ones, by number. */
	struct rb_flows flows;
	struct rb_receives receives;
	struct rb_enqueued enqueued;
	struct rubato_op *messages; /* Of blocking sends and receives: not in use, by `next`. */
	struct rubato_op *sends;    /* Blocking ones that are waited for. */
	/* No number comes twice. */
	uint64_t persistent_sequence, partial_sequence, message_sequence;
	const struct rb_relaxed_ops *relaxed;         /* NULL: none was ever made. */
	struct rubato_partial *partials;              /* Theirs. */
	struct rubato_lagged *lagged;                 /* All that are not freed. */
	void (*lagged_end)(struct rubato_comm *comm); /* NULL: none was ever made. */
	const struct rb_help_ops *help;               /* NULL: none was ever made. */
	struct rb_helper *helper;                     /* Theirs. */
	bool closing;
	bool staging_said;    /* The log has a line of it. */
	bool sharing_refused; /* Some rank could not open others' device memory. */
};

/* Who this rank is, for plans of all ranks. */
static inline struct rb_build rb_comm_build(const struct rubato_comm *comm)
{
	return (struct rb_build) { .rank = comm->engine.rank,
				   .rank_count = comm->engine.rank_count,
				   .nodes = comm->choices.facts.nodes };
}

/* Whether the memory that `rank` allocates can be mapped here, and ours there: on one node. */
static inline bool rb_comm_maps(const struct rubato_comm *comm, uint32_t rank)
{
	const uint32_t *node_of = comm->choices.nodes.node_of;

	return node_of[rank] == node_of[comm->engine.rank];
}

/* Whether all that map each other's memory here are one process: all of them see it alike. */
static inline bool rb_comm_in_process(const struct rubato_comm *comm)
{
	const struct rb_endpoint *ep = comm->engine.endpoints[0];
	const struct rb_nodes *nodes = &comm->choices.nodes;
	uint32_t node = nodes->node_of[comm->engine.rank];

	for (uint32_t i = 0; i < rb_node_size(nodes, node); i++)
		if (ep->ops->in_process == NULL ||
		    !ep->ops->in_process(ep, nodes->ranks[nodes->first[node] + i]))
			return false;
	return true;
}

/* Where what is known of a node comes from. */
enum rb_node_source {
	RB_NODE_BUILT_IN,
	RB_NODE_MEASURED,
	RB_NODE_PROFILE,
	RB_NODE_SIMULATED,
};

static inline enum rb_node_source rb_comm_node_source(const struct rubato_comm *comm)
{
	if (comm->choices.facts.node.core_byte_us == 0)
		return RB_NODE_BUILT_IN;
	if (rb_engine_time_is_virtual(&comm->engine))
		return RB_NODE_SIMULATED;
	return comm->origin.node_measured ? RB_NODE_MEASURED : RB_NODE_PROFILE;
}

static inline const char *rb_node_source_name(enum rb_node_source source)
{
	static const char *const names[] = { "built in", "measured", "profile", "simulated" };

	return names[source];
}

/* Bytes a second that a rank copies out of another one's memory; 0: not known. */
static inline double rb_node_copy_rate(const struct rb_node_speed *node)
{
	double cross_us = node->cross_byte_us > 0 ? node->cross_byte_us : node->core_byte_us;

	return node->core_byte_us > 0 ? 1e6 / (node->core_byte_us + cross_us) : 0;
}

/* Whether sums and averages of this kind and type are coded as they travel. */
static inline bool rb_wire_applies(const struct rubato_comm *comm, enum rb_kind kind,
				   rubato_type type)
{
	return comm->wire != RUBATO_WIRE_SAME && type == RUBATO_FLOAT32 &&
	       (kind == RB_KIND_ALLREDUCE || kind == RB_KIND_REDUCE_SCATTER);
}

/* The endpoint that tells time, and (simulated) the only one. */
static inline struct rb_endpoint *rb_comm_endpoint(const struct rubato_comm *comm)
{
	return comm->engine.endpoints[0];
}

#endif
