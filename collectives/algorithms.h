/*
 * algorithms.h -- every algorithm, by name: what it builds, what it needs, what it moves.
 *
 * How IN and OUT are laid out, by kind (n ranks, blocks 0 .. n-1 where the builder cuts into n):
 *   BARRIER         no data: count 0
 *   BROADCAST       OUT everywhere (the public call passes one buffer): OUT of root is the source
 *   REDUCE          IN whole, OUT whole, OUT at root only (elsewhere spans must not name it)
 *   ALLREDUCE       IN whole, OUT whole
 *   REDUCE_SCATTER  IN whole (block r is for rank r), OUT part
 *   ALLGATHER       IN part, OUT whole
 *   GATHER          IN part, OUT whole, OUT at root only
 *   SCATTER         IN whole, at root only, OUT part
 *   ALLTOALL        IN whole (block p is for rank p), OUT whole (block p is from rank p)
 *   SENDRECV        IN whole at the sender (rank 0 of the pair), OUT whole at the receiver
 * ALLGATHERV, REDUCE_SCATTERV and ALLTOALLV are as the three without V, in uneven blocks
 * (rb_layout); so where the graph is the same they have the same builder. What is "whole" may have
 * gaps. In place: IN and OUT are the same memory at the same elements; builders must be right both
 * ways, and the engine skips a COPY onto itself. GATHER and SCATTER can be in place at the root
 * only; a rank's ALLTOALL(V) may be in place or not whatever the others do, but the builder must be
 * told.
 */
#ifndef RB_COLLECTIVES_ALGORITHMS_H
#define RB_COLLECTIVES_ALGORITHMS_H

#include "base/link.h"
#include "collectives/nodes.h"
#include "collectives/schedule.h"

struct rb_build { /* What a builder may depend on: nothing else. */
	uint32_t rank, rank_count;
	uint32_t root; /* Of rooted operations; of algorithms for one, the late rank; else 0. */
	const struct rb_nodes *nodes; /* NULL: all ranks are on one. */
	/* ALLTOALL(V): IN and OUT are the same memory at this rank. Messages do not depend on
	 * it. */
	bool in_place;
	/* ALLTOALLV in mapped memory, per rank: not between us, but by messages all the same. Both
	 * say the same of each other. NULL: there are none. */
	const uint8_t *apart;
};

/* On this channel and no other ranks send each other the blocks of an ALLTOALLV. */
#define RB_CHANNEL_BLOCKS 0u

/* The layout that an algorithm wants. */
enum rb_blocks {
	RB_BLOCKS_ONE,
	RB_BLOCKS_RANKS,  /* One per rank. */
	RB_BLOCKS_POWER,  /* As many as the largest power of two among the ranks. */
	RB_BLOCKS_OTHERS, /* One per rank but the root. */
	RB_BLOCKS_LANES,  /* One per node and lane: by_node/lanes.h. */
	/* Per lane as many as the largest power of two among the nodes. */
	RB_BLOCKS_LANES_POWER,
};

/* one + log * ceil(log2 n) + all * (n - 1) + share * (n - 1) / n, and fold where n is no power of
 * two. */
struct rb_cost_terms {
	double one, log, all, share, fold;
};

/* How far a rank's messages go, where ranks are numbered node by node: what share of them, and of
 * the phases, crosses from node to node. */
enum rb_reach {
	RB_REACH_ALL,    /* To every other rank. */
	RB_REACH_NEXT,   /* To the next rank: one of a node's crosses. */
	RB_REACH_POWERS, /* To those 1, 2, 4, ... away: the far ones of these rounds do. */
	RB_REACH_AROUND, /* Likewise, around without an end: of the near rounds one does, too. */
	RB_REACH_FAR,    /* by_node: to every rank of other nodes, not in lanes. */
	RB_REACH_PAIRS,  /* To every other rank, two at a time: each round waits for its ends. */
	RB_REACH_HALVES, /* Likewise, half as much each time farther. */
};

struct rb_cost { /* What the busiest rank does: choice.c makes a time of it. */
	struct rb_cost_terms phases, messages;
	/* Through mapped scratch: what is left of these without RB_STEP_AHEAD steps. */
	struct rb_cost_terms ahead_phases, ahead_messages;
	struct rb_cost_terms sent; /* Bytes that a rank sends / bytes of the vector; the root, or
				    * what it receives, where one has most to do. */
	enum rb_reach reach;
	struct rb_cost_terms vectors; /* Bytes moved through memory / bytes of the vector: 2 to send
				       * and 2 to receive, k + 1 to reduce k operands, 2 to copy. */
	/* Of these, what crosses from one rank to another: a peer's memory read or written, what
	 * lies between two ends written and read. Zeros: half of them. */
	struct rb_cost_terms crossed;
	/* Of all ranks together, where not every one does as much; else zeros. */
	struct rb_cost_terms messages_all, vectors_all, crossed_all;
	bool chain;    /* The last rank starts n - 1 chunks late. */
	bool behind;   /* The others read what the busiest has written, a chunk late. */
	bool by_chunk; /* Messages are per chunk of a block. */
	/* On up to so many ranks its slots alternate: what it writes there, half of what crosses,
	 * it has just read. */
	uint32_t alternates;
};

/* How often a rank reduces one element. */
enum rb_reductions {
	RB_REDUCTIONS_SOME,    /* Twice or more; or the kind does not reduce. */
	RB_REDUCTIONS_CHAINED, /* Once at most; several ranks do, one after the other. */
	RB_REDUCTIONS_ONE,     /* One step does, of all ranks' operands. */
};

struct rb_algorithm {
	enum rb_kind kind;
	const char *name; /* As --algorithm takes it; unique within the kind. */
	/* RB_SCHEDULE_*: what it needs; equal to the built schedule's, but where all peers are
	 * `apart`: that needs none. */
	uint32_t flags;
	uint32_t rank_max; /* Largest rank count (channels are limited). */
	enum rb_blocks blocks;
	void (*build)(struct rb_writer *w, const struct rb_build *build);
	/* Bytes that `rank` puts on transports (SEND, PUT), given the layout: the checker
	 * compares. */
	uint64_t (*bytes_sent)(const struct rb_layout *layout, const struct rb_build *build,
			       uint32_t element_bytes);
	const char *source; /* Paper or origin, for docs and --explain. */
	struct rb_cost cost;
	bool slots_per_rank; /* Its scratch has slots for every rank: chunks get smaller. */
	/* Has no slots, and messages of many blocks: chunks are longer, and it copies before it
	 * sends. */
	bool packs;
	uint8_t pieces; /* Of a block, at least, where they are long enough: its phases overlap. */
	bool own_link;  /* Chosen only where each rank has a link to itself: more, shorter
			      * messages than they are worth in memory, or on a shared card. */
	bool exchanges; /* Two ranks send each other their vectors once, at the same time. */
	enum rb_reductions reductions;
	bool forced_only; /* Never chosen by itself. */
	bool even;        /* Blocks must be equally long. */
	bool late;        /* Built for a late rank: the operation's result has no root. */
	bool by_node;     /* Spans name peers of the own node only: runs over several. */
	/* by_node: the one of this kind that needs no mapped memory and sends the same messages
	 * between nodes, so that each node may take one or the other. */
	const char *staged;
};

extern const struct rb_algorithm rb_algorithms[];
extern const uint32_t rb_algorithm_count; /* At most 255: the index travels in signatures. */

/* Blocks in the layout that the algorithm wants. `nodes` may be NULL: one node. */
uint32_t rb_algorithm_blocks(const struct rb_algorithm *algorithm, uint32_t rank_count,
			     const struct rb_nodes *nodes);

/* Whether it is built for one of the ranks: a root, or one that comes late. */
static inline bool rb_algorithm_rooted(const struct rb_algorithm *algorithm)
{
	return rb_kind_rooted(algorithm->kind) || algorithm->late;
}

/* Index into rb_algorithms, or -1. */
int rb_algorithm_find(enum rb_kind kind, const char *name);

/* ---- Choice: the same on every rank, as all of this is agreed at creation ---- */

struct rb_choice_facts {
	uint32_t rank_count;
	const struct rb_nodes *nodes; /* NULL: nothing is known of them. */
	struct rb_link network;       /* Between nodes. */
	struct rb_node_speed node;    /* Within each: of the first rank's. */
	uint32_t card_ranks;          /* So many ranks of a node share a card, or fewer; 0: all. */
	bool mapped;                  /* All ranks can map each other's registered memory. */
	bool ahead;                   /* RB_STEP_AHEAD steps are left out where they may be. */
	bool put;                     /* All transports can put, */
	/* and do it well (transport.h: puts_well) between nodes, and among the ranks of each. */
	bool puts_between, puts_within;
	/* Each rank is alone on its node, and on the card by which it reaches the others. */
	bool own_links;
	uint32_t cores;           /* Of the machine, or part of one, with the most ranks a core. */
	uint32_t host_ranks;      /* Those that share these. */
	uint64_t chunk_bytes_max; /* RUBATO_CHUNK: 256 KiB, of what pipelines. */
	/* Of this operation: each reduction rounds what it gives (rubato_set_wire). So only those
	 * are chosen in which one step reduces all operands, or each node's one: own_link then does
	 * not matter. By name also others in which no rank reduces an element twice. */
	bool coded;
};

struct rb_choice {
	uint8_t algorithm; /* Index into rb_algorithms. */
	uint8_t staged; /* With mapped buffers: index of the one to run when some rank's buffers are
			 * not mapped; equal to `algorithm` if that does not need mapped buffers. */
	uint32_t align;
	uint64_t chunk; /* Elements. */
	/* ALLTOALLV in mapped memory: two ranks with no longer block for each other are `apart`. */
	uint32_t apart_bytes;
	double predicted_us; /* By the cost model; 0: none. */
	const char *why;     /* A few words, for rubato_explain. */
};

/* The time that the cost model gives the algorithm, in microseconds; negative: it is no
 * candidate here. */
double rb_predict(const struct rb_choice_facts *facts, uint32_t algorithm, uint64_t count,
		  uint32_t element_bytes);

/*
 * `count`: elements of the whole vector; of ALLTOALLV it is not asked, since no rank knows the
 * others' counts: the choice and the chunk are then for blocks of a middling size. `forced`: index,
 * or -1 for automatic. Errors: UNSUPPORTED when the forced one cannot run here.
 */
RB_NODISCARD rubato_status rb_choose(const struct rb_choice_facts *facts, enum rb_kind kind,
				     uint64_t count, uint32_t element_bytes, int forced,
				     struct rb_choice *choice);

#endif
