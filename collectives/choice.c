/*
 * choice.c -- which algorithm, by what a rank does in it:
 *
 *   time = phases * phase + messages * message + bytes moved * byte + bytes crossed * crossing
 *
 * A phase is a wait for other ranks, a message the processor's work for one, a byte one pass of
 * memory over it; one crosses that another rank has written or reads next, and goes from cache
 * to cache, unless both share a core. Messages and bytes are those of the busiest rank, or,
 * where ranks share cores, of all that share one, if that is more; and a phase takes turns of
 * the scheduler for each rank of a core. What bytes and turns take is measured when a
 * communicator is made (runtime/engine/node_speed.c), or a profile says it; the other constants
 * are of one shared-memory machine. What counts is where the curves cross. The terms of an
 * algorithm's row are counted from its schedules (tests/collectives/test_costs.c).
 *
 * Between nodes, latency and bandwidth are what was measured when the communicator was made. A
 * phase that crosses takes the latency; what the ranks of a node send to others goes through its
 * card, one after the other, while the processors do their part. How much crosses follows from how
 * far a rank's messages go (enum rb_reach). An algorithm's row in algorithm_rows.h has its terms.
 *
 * Where a transport also says how long messages are that processors copy, cost.c has a finer model
 * of what goes over nodes.
 */
#include <string.h>

#include "base/float_mode.h"
#include "collectives/build.h"
#include "collectives/cost.h"
#include "collectives/crowd.h"

#define NETWORK_MESSAGE_US 1.0 /* Guess: through layers of a network not measured. */
/* Measured, several machines, while the vectors fit the cache: some 70 GB/s a pass, 18 where it
 * crosses from core to core. */
#define BYTE_US 0.000014
#define CROSSING_US 0.000055
/* Before they map anything, all ranks tell each other where their buffers lie: as long as a phase.
 * Measured, 2, 4 and 8 ranks: such a message takes longer than others, with what it says. */
#define EXCHANGE_PHASES 1
#define MAPPED_MESSAGES 1.5
/* Measured, TCP, 4 ranks: parts that begin long are in no cache when their turn comes. */
#define HALVES_BYTES 1.1
/* Measured, TCP at 1 Gbit/s, 4 hosts, 16 MiB a block: flat reduce_scatter takes 1.09 times as long
 * as a ring. A slot is free again when all peers' chunks are there: flows wait for the slowest. A
 * broadcast of 4 to 64 MiB by scatter_allgather takes 1.05 to 1.07 times as long as a chain, a
 * reduction of 1 to 64 MiB by scatter_gather 1.04 to 1.19 times; with 2 ranks a host a chain of all
 * ranks takes 1.03 to 1.1 times as long as one over nodes. */
#define JOINED_BYTES 1.05
/* Measured, 4 and 8 ranks on 2 cores: where messages come from many, those for the ranks of a
 * core are in no cache of it when their turn comes. So many times what it holds, and each byte
 * takes twice as long; at most so many times as long. */
#define FLOOD_CACHES 2.0
#define CACHE_BYTES (1u << 20) /* Of the machine on which that was measured. */
#define FLOODED_MAX 3.5
/* Measured, alltoall of 2 to 16 MiB on 4 and 8 ranks, 2 cores that share 32 MiB: where IN, OUT and
 * what lies in buffers of pairs fill most of that, messages take 1.1 to 1.55 times as long. */
#define OUTER_PART 0.7
#define OUTER_TIMES 1.35
#define PAIR_BYTES 524288.0 /* What the buffers of a pair hold. */

/* Measured, 2 ranks, whatever a crossing took: messages go in pieces, each with its cells. */
#define PIECES_BYTES 1.05
/* Measured, 2 ranks, 256 KiB to 1 MiB; a guess for more: what the kernel copies takes so many times
 * what follows from its copies within one rank. */
#define ATTACHED_BYTES 1.15
/* Likewise, 3 to 16 ranks on 2 cores, 128 to 512 KiB: a broadcast's. */
#define ATTACHED_BROADCAST_BYTES 1.8

/* Likewise, 2 to 8 ranks on 2 cores, 2 to 32 MiB: of messages so long it takes less by a sixth
 * than of those of 256 KiB. Of shorter chunks only steps that wait for steps have something. */
#define ATTACHED_LONG_BYTES 1.0
#define LONG_BYTES (2u << 20)
/* Measured, TCP at 1 Gbit/s, 4 hosts of 2 ranks, allreduce of 1 MiB: what takes the wire 1 ms
 * delays more than copies cost. Simulated, 25 and 100 Gbit/s: 42 and 10 us do not. */
#define ATTACHED_WIRE_US 100.0
#define LONG_FROM_BYTES (256u << 10) /* RUBATO_CHUNK: who says less means it. */

/* Measured, 2 ranks, alltoall and allgather of 32 to 128 KiB: what crosses in mapped memory takes
 * so many times what it takes in longer vectors. */
#define SHORT_CROSSING 1.4
#define SHORT_BYTES (128u << 10)

/* Measured, 2 ranks, 2 MiB a core: slots that alternate gain most while so many vectors fit. */
#define ALTERNATING_VECTORS 5
/* Likewise, 4 to 512 KiB: of messages that cross, in buffers that change hands; where what comes
 * is reduced it gains to half as much. Longer ones are never attached, and gain nothing. */
#define HANDED_CROSSING 0.75
#define HANDED_BYTES (512u << 10)

#define ALIGN_BYTES 64        /* A cache line: no two ranks write one. */
#define ALIGN_FROM_BYTES 4096 /* Per block; below it even shares matter more. */
/* Measured, docs/performance.md, "Plain buffers": the longer the chunks of staged forms, the less
 * ranks wait for each other, while slots and what goes through them fit the cache. Many ranks have
 * shorter ones, for the sake of their scratch. */
#define STAGED_CHUNK_BYTES_MIN (64u << 10)
#define STAGED_CHUNK_BYTES_MAX (256u << 10)
#define STAGED_SCRATCH_BYTES (1u << 20) /* Guess: half of a rank's slots. */

#define MIDDLING_BYTES                                                                             \
	(64u << 10) /* Guess: a block of an alltoallv, which nobody knows in advance. */

#define APART_BYTES_MIN 64u /* Guess: what no rank would fetch. */

/* A chunk of which tags can count as many as fit an address space. */
#define ANY_BLOCK_CHUNK ((UINT64_C(1) << 47) / RB_ITERATION_MAX)

#define NODE_PHASES 2 /* Of what is done by node: in and out. */

#define EXCHANGE_BYTES (512u << 10) /* Measured: docs/performance.md, "Overlap". */

#define PIECE_BYTES (4u << 10) /* Guess: at 1 Gbit/s ten times what a message costs besides. */
/* Measured, TCP at 1 Gbit/s: a piece takes the wire so many times as long as a processor. */
#define PIECE_MESSAGES 12
/* Guess: of a block that goes from neighbour to neighbour over a network, and each at least. */
#define NETWORK_PIECES 16
#define PASSED_BYTES (16u << 10)
/* Simulated, 16 to 256 ranks at 1 to 100 Gbit/s: pieces take a tree down to half the time.
 * Measured, TCP at 1 Gbit/s, 4 hosts, two levels: up to 64 KiB they take it 1.4 to 1.7 times. */
#define TREE_LEVELS 4

/* Guess, of a chain over nodes: one more message, both ends; of a network not measured. */
#define CHAIN_MESSAGE_US 10.0

#define RING_SCRATCH_BYTES (4u << 20) /* Guess: half of a ring's slots. */

/* Whether some messages go from node to node, and it is known how fast. */
static bool has_network(const struct rb_choice_facts *facts)
{
	return facts->nodes != NULL && facts->nodes->count > 1 && facts->network.latency_us > 0;
}

/* Whether there is something within nodes and something between them. */
static bool has_levels(const struct rb_choice_facts *facts)
{
	return facts->nodes != NULL && facts->nodes->count > 1 &&
	       facts->nodes->count < facts->rank_count;
}

/* Whether what goes over nodes does so in lanes, not from every rank to every other. */
static bool in_lanes(const struct rb_algorithm *a)
{
	return a->by_node && a->cost.reach != RB_REACH_FAR;
}

static uint32_t levels_of(uint32_t n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

static double value(const struct rb_cost_terms *t, uint32_t n)
{
	uint32_t log = levels_of(n);
	double fold = (n & (n - 1)) != 0 ? t->fold : 0;

	return t->one + t->log * log + t->all * (n - 1) + t->share * (n - 1) / n + fold;
}

static bool is_measured(const struct rb_choice_facts *facts)
{
	return has_network(facts) && facts->network.message_us > 0;
}

/* A tree each of whose links carries the whole vector, over so many levels of nodes that what a
 * chunk goes through besides the wire, in all levels at once, is more than its messages cost. */
static bool is_deep_tree(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	return rb_kind_rooted(a->kind) && a->cost.reach == RB_REACH_POWERS &&
	       a->blocks == RB_BLOCKS_ONE && is_measured(facts) &&
	       levels_of(facts->nodes->count) >= TREE_LEVELS;
}

/* Of how many pieces a block should be at least, so that a step begins while the one before it
 * goes on. */
static uint32_t pieces_of(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	bool passed_on = a->by_node || a->cost.reach == RB_REACH_NEXT || is_deep_tree(facts, a);

	if (a->pieces > 0 || !has_network(facts) || !passed_on || a->cost.chain || a->packs)
		return a->pieces;
	return NETWORK_PIECES;
}

/* Over nodes: messages of so many bytes are one copy within each, where buffers are plain. */
static bool is_attached(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			double bytes)
{
	return a->by_node && has_levels(facts) && facts->node.attach_bytes > 0 &&
	       bytes >= facts->node.attach_bytes &&
	       facts->node.attach_bytes * facts->network.byte_us <= ATTACHED_WIRE_US;
}

/* A chunk of `bytes`, or of a piece of a block, if that is shorter: but not too short. */
static uint64_t piece_bytes(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			    uint64_t bytes, uint64_t piece)
{
	double least = a->pieces > 0 ? PIECE_BYTES : PASSED_BYTES;

	if (is_deep_tree(facts, a))
		least = 0;
	if (least < facts->node.attach_bytes &&
	    is_attached(facts, a, (double)piece * pieces_of(facts, a)))
		least = facts->node.attach_bytes;
	if (is_measured(facts) &&
	    PIECE_MESSAGES * facts->network.message_us > least * facts->network.byte_us)
		least = PIECE_MESSAGES * facts->network.message_us / facts->network.byte_us;
	if ((double)piece < least)
		piece = least < (double)bytes ? (uint64_t)least : bytes;
	return piece < bytes ? piece / ALIGN_BYTES * ALIGN_BYTES : bytes;
}

/* The longer a chain's chunks, the later its last link begins; the shorter, the more messages. All
 * lanes together send one at a time. */
static uint64_t chain_chunk_bytes(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
				  double bytes, uint64_t chunk_bytes)
{
	double links = facts->nodes->count - 2, lanes = a->by_node ? facts->nodes->least : 1;
	double message_us = is_measured(facts) ? 2 * facts->network.message_us : CHAIN_MESSAGE_US;
	double piece = facts->network.piece_bytes;

	while (chunk_bytes > PIECE_BYTES &&
	       links * lanes * (double)chunk_bytes * facts->network.byte_us >
		       bytes / lanes / (double)chunk_bytes * message_us)
		chunk_bytes /= 2;
	/* Whoever is behind on a chain stays so: no chunk waits until it is asked for. */
	if (is_measured(facts) && !(a->flags & RB_SCHEDULE_PUT) && piece > 0 &&
	    (double)chunk_bytes > piece &&
	    piece * facts->network.byte_us > PIECE_MESSAGES * facts->network.message_us)
		chunk_bytes = (uint64_t)piece / ALIGN_BYTES * ALIGN_BYTES;
	return chunk_bytes;
}

static uint64_t staged_chunk_max(const struct rb_choice_facts *facts)
{
	uint64_t share = STAGED_SCRATCH_BYTES / facts->rank_count;

	if (share > STAGED_CHUNK_BYTES_MAX)
		return STAGED_CHUNK_BYTES_MAX;
	return share > STAGED_CHUNK_BYTES_MIN ? share : STAGED_CHUNK_BYTES_MIN;
}

/* Whether its steps are messages that the kernel copies, none of which waits for another. */
static bool is_moved_by_kernel(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	const struct rb_cost_terms *phases = &a->cost.phases;

	return !has_network(facts) && facts->node.attach_copies > 0 && !rb_kind_reduces(a->kind) &&
	       a->flags == 0 && !a->by_node && !a->packs && phases->one == 1 && phases->log == 0 &&
	       phases->all == 0;
}

/* Where steps move all of a lane at once: elements of the messages in which it is one copy. 0: no
 * such steps, or no such messages. */
static uint64_t lane_elements(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			      uint64_t count, uint32_t element_bytes)
{
	if (a->kind != RB_KIND_BROADCAST || facts->nodes == NULL ||
	    !is_attached(facts, a, (double)count / facts->nodes->least * element_bytes))
		return 0;
	return (uint64_t)facts->node.attach_bytes / element_bytes;
}

/* Guess: so much longer may mapped buffers take for the sake of plain ones, if these else did. */
#define MAPPED_LOSS 1.07

/* The algorithm itself, or the one that it is the staged form of. */
static const struct rb_algorithm *mapped_form(const struct rb_algorithm *a)
{
	for (const struct rb_algorithm *m = rb_algorithms; m < rb_algorithms + rb_algorithm_count;
	     m++)
		if (m->kind == a->kind && m->staged != NULL && strcmp(m->staged, a->name) == 0)
			return m;
	return a;
}

/*
 * Long messages within a node that cross are copied twice, but for those that are longer than what
 * goes at once. So a block, or a broadcast's lane, goes in chunks of that length where plain
 * buffers gain by it, and mapped ones, which wait longer for a first chunk, lose little.
 */
static uint64_t uncrossed_elements(const struct rb_choice_facts *facts,
				   const struct rb_algorithm *a, uint64_t count,
				   uint32_t element_bytes, uint64_t chunk)
{
	const struct rb_algorithm *mapped = mapped_form(a);
	int staged = mapped->staged != NULL ? rb_algorithm_find(a->kind, mapped->staged) : -1;
	uint64_t least = (uint64_t)RB_CROSSING_BYTES / element_bytes + ALIGN_BYTES;
	double bytes = (double)count * element_bytes;
	uint64_t part = count / facts->nodes->least;

	if (a->kind != RB_KIND_BROADCAST)
		part = count / rb_algorithm_blocks(a, facts->rank_count, facts->nodes);
	if (staged < 0 || part < 2 * least || chunk >= least || a->flags & RB_SCHEDULE_PUT ||
	    !is_attached(facts, a, (double)part * element_bytes))
		return chunk;
	uint64_t longer = (part / (part / least) / ALIGN_BYTES + 2) * ALIGN_BYTES;
	double now_bytes = (double)chunk * element_bytes, then = (double)longer * element_bytes;
	const struct rb_algorithm *plain = &rb_algorithms[staged];

	if (rb_cost_us(facts, mapped, bytes, then) >
		    MAPPED_LOSS * rb_cost_us(facts, mapped, bytes, now_bytes) ||
	    rb_cost_us(facts, plain, bytes, then) >= rb_cost_us(facts, plain, bytes, now_bytes))
		return chunk;
	return longer;
}

static uint64_t chunk_elements(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			       uint64_t count, uint32_t element_bytes)
{
	uint64_t bytes = facts->chunk_bytes_max;

	if (bytes >= LONG_FROM_BYTES && bytes < LONG_BYTES && is_moved_by_kernel(facts, a))
		bytes = LONG_BYTES;
	if (has_network(facts) && facts->network.eager_bytes > 0 && !(a->flags & RB_SCHEDULE_PUT) &&
	    (double)bytes > facts->network.eager_bytes)
		bytes = (uint64_t)facts->network.eager_bytes / ALIGN_BYTES * ALIGN_BYTES;
	if (a->flags & RB_SCHEDULE_MAPPED_SCRATCH && bytes > staged_chunk_max(facts))
		bytes = staged_chunk_max(facts);
	uint32_t pieces = pieces_of(facts, a);

	if (pieces > 0)
		bytes = piece_bytes(
			facts, a, bytes,
			count / rb_algorithm_blocks(a, facts->rank_count, facts->nodes) *
				element_bytes / pieces);
	if (a->slots_per_rank && bytes > RING_SCRATCH_BYTES / facts->rank_count)
		bytes = RING_SCRATCH_BYTES / facts->rank_count;
	if (a->cost.chain && has_network(facts))
		bytes = chain_chunk_bytes(facts, a, (double)count * element_bytes, bytes);
	uint64_t chunk = element_bytes > 0 ? bytes / element_bytes : 1;

	if (chunk < 1)
		chunk = 1;
	if (a->kind == RB_KIND_ALLTOALLV) /* No rank knows how long the others' blocks are. */
		return bytes > ANY_BLOCK_CHUNK ? chunk : ANY_BLOCK_CHUNK / element_bytes;
	if (count / chunk >= RB_ITERATION_MAX - 1) /* Tags count no further. */
		chunk = (count / (RB_ITERATION_MAX - 1) / ALIGN_BYTES + 1) * ALIGN_BYTES;
	/* Slots of scratch hold a chunk each: not much longer than a block. */
	uint64_t blocks = a->packs ? 1 : rb_algorithm_blocks(a, facts->rank_count, facts->nodes);
	uint64_t block = (count / blocks / ALIGN_BYTES + 2) * ALIGN_BYTES;

	if (block < lane_elements(facts, a, count, element_bytes))
		block = lane_elements(facts, a, count, element_bytes);
	if (chunk > block)
		chunk = block;
	if (rb_cost_known(facts) && rb_cost_uncrossed(a) &&
	    facts->chunk_bytes_max >= LONG_FROM_BYTES)
		chunk = uncrossed_elements(facts, a, count, element_bytes, chunk);
	return chunk;
}

#define MAPPED (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH)

/* What a core does, for one rank or for all that share it, whatever lies between ranks. */
struct work {
	double phases, messages, sent_bytes;
	double moved_bytes, crossed_bytes; /* The second are some of the first. */
	double bytes, chunk_bytes;         /* Of the vector, and of a chunk. */
};

/* All that is done on a core. `all`: by all ranks together; 0: by each as much as the busiest. */
static double on_core(const struct rb_choice_facts *facts, double busiest, double all)
{
	double crowd = rb_crowd(facts);
	double each = all > 0 ? all / facts->rank_count : busiest;

	return crowd * each > busiest ? crowd * each : busiest;
}

static bool says(const struct rb_cost_terms *t)
{
	return t->one != 0 || t->log != 0 || t->all != 0 || t->share != 0;
}

struct messages {
	double phases;
	double busiest, all; /* Of one rank; of all together, 0: each as many. */
};

/* Whether its slots are full when the ranks meet. */
static bool goes_ahead(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
		       double bytes)
{
	return facts->ahead && a->flags & RB_SCHEDULE_MAPPED_SCRATCH && bytes <= RB_AHEAD_BYTES &&
	       facts->rank_count <= RB_AHEAD_RANKS;
}

/* Whether what it writes for others is in the core's own cache. */
static bool alternates(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
		       double bytes)
{
	double cache = facts->node.cache_bytes > 0 ? facts->node.cache_bytes : CACHE_BYTES;
	double crowd = rb_crowd(facts) > 1 ? rb_crowd(facts) : 1;

	return facts->rank_count <= a->cost.alternates && !goes_ahead(facts, a, bytes) &&
	       crowd * ALTERNATING_VECTORS * bytes <= cache;
}

static struct messages messages_of(const struct rb_algorithm *a, uint32_t n, bool ahead)
{
	const struct rb_cost *cost = &a->cost;
	struct messages m = {
		.phases = value(ahead ? &cost->ahead_phases : &cost->phases, n),
		.busiest = value(ahead ? &cost->ahead_messages : &cost->messages, n),
		.all = ahead ? 0 : value(&cost->messages_all, n),
	};
	double exchange = 2.0 * (n - 1); /* To all and from all. */

	if (!(a->flags & MAPPED) || a->by_node)
		return m;
	m.phases += EXCHANGE_PHASES;
	m.busiest += MAPPED_MESSAGES * exchange;
	if (m.all > 0)
		m.all += MAPPED_MESSAGES * n * exchange;
	return m;
}

static bool is_tree_of_sums(const struct rb_algorithm *a)
{
	return a->kind == RB_KIND_REDUCE && a->cost.reach == RB_REACH_POWERS;
}

static struct work work_of(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			   uint64_t count, uint32_t element_bytes)
{
	const struct rb_cost *cost = &a->cost;
	/* A lane goes over nodes. */
	uint32_t n = in_lanes(a) && facts->nodes != NULL ? facts->nodes->count : facts->rank_count;
	double bytes = (double)count * element_bytes;
	double chunk = (double)chunk_elements(facts, a, count, element_bytes) * element_bytes;
	double tree = is_tree_of_sums(a) ? rb_crowd_tree(facts) : 1;
	double moved =
		on_core(facts, value(&cost->vectors, n), tree * value(&cost->vectors_all, n));
	double crossed = says(&cost->crossed) ? on_core(facts, value(&cost->crossed, n),
							tree * value(&cost->crossed_all, n))
					      : moved / 2;
	double first = bytes < chunk ? bytes : chunk;
	struct messages messages = messages_of(a, n, goes_ahead(facts, a, bytes));
	struct work work = { .phases = messages.phases,
			     .messages = on_core(facts, messages.busiest, messages.all),
			     .moved_bytes = bytes * moved,
			     .crossed_bytes = bytes * crossed,
			     .sent_bytes = bytes * value(&cost->sent, n),
			     .bytes = bytes,
			     .chunk_bytes = chunk };

	if (alternates(facts, a, bytes))
		work.crossed_bytes /= 2;
	if (cost->by_chunk && bytes / n > chunk)
		work.messages *= bytes / n / chunk;
	if (cost->reach == RB_REACH_HALVES && !a->by_node) {
		work.moved_bytes *= HALVES_BYTES;
		work.crossed_bytes *= HALVES_BYTES;
	}
	if (cost->chain)
		work.moved_bytes += first * (n - 1);
	if (cost->behind) { /* Written there and read there. */
		work.moved_bytes += 2 * first;
		work.crossed_bytes += first;
	}
	return work;
}

/* Of the phases and of a rank's bytes: the shares that go from node to node. */
struct crossing {
	double phases, bytes;
};

static struct crossing crossing_of(const struct rb_nodes *nodes, const struct rb_algorithm *a)
{
	double n = nodes->rank_count, size = n / nodes->count, others = (n - size) / (n - 1);
	double rounds = (double)levels_of(nodes->count) / levels_of(nodes->rank_count);

	if (in_lanes(a))
		return (struct crossing) { 1, 1 };
	switch (a->cost.reach) {
	case RB_REACH_NEXT:
		return (struct crossing) { 1 / size, 1 / size };
	case RB_REACH_POWERS:
		return (struct crossing) { rounds, rounds };
	case RB_REACH_AROUND:
		rounds += 1.0 / levels_of(nodes->rank_count);
		return (struct crossing) { rounds < 1 ? rounds : 1, rounds };
	case RB_REACH_PAIRS:
		return (struct crossing) { 1, others };
	case RB_REACH_HALVES:
		return (struct crossing) { rounds, others / size };
	case RB_REACH_ALL:
	case RB_REACH_FAR:
		break;
	}
	return (struct crossing) { 1, others };
}

/* How many ranks of a node send so much: all, or the root, or (lanes) each its share. In an
 * alltoall every rank has a vector of its own. */
static double senders(const struct rb_nodes *nodes, const struct rb_algorithm *a)
{
	bool share = in_lanes(a) && a->kind != RB_KIND_ALLTOALL;
	bool alone = share || (rb_kind_rooted(a->kind) && !a->cost.chain);

	return alone ? 1 : (double)nodes->rank_count / nodes->count;
}

/*
 * From neighbour to neighbour, chunk after chunk: a chunk goes on while the next one comes, so that
 * the latency is seen once, unless a phase has too few chunks to fill it.
 */
static double pipeline_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			  const struct work *work, double far, double card_us)
{
	double latency_us = facts->network.latency_us, turns = a->cost.chain ? 1 : far;
	double lanes = a->by_node ? facts->nodes->least : 1;
	double phase_us = card_us / turns;
	double chunks = work->sent_bytes / lanes / turns / work->chunk_bytes;
	double chunk_us = chunks > 1 ? phase_us / chunks : phase_us;
	double full_us = card_us + latency_us;
	double stalled_us = far * (latency_us + chunk_us) + phase_us - chunk_us;

	return full_us > stalled_us ? full_us : stalled_us;
}

/* Two that work at the same time, but for the first chunk. */
static double together_us(double one_us, double other_us, double first)
{
	return one_us > other_us ? one_us + other_us * first : other_us + one_us * first;
}

/* Whether many chunks come from all at the same time and each is awaited from all. */
static bool joins_flows(const struct rb_algorithm *a, const struct work *work, uint32_t n)
{
	bool scatters = a->kind == RB_KIND_REDUCE_SCATTER || a->kind == RB_KIND_REDUCE_SCATTERV;
	bool rooted = a->pieces > 0 && (a->kind == RB_KIND_BROADCAST || a->kind == RB_KIND_REDUCE);

	return (scatters || rooted) && a->cost.reach == RB_REACH_ALL && !a->by_node && n > 2 &&
	       work->bytes / n > RB_DEPTH * work->chunk_bytes;
}

/* Over nodes; core_us: of the core's own work. */
static double network_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			 const struct work *work, double phase_us, double core_us)
{
	struct crossing crossing = crossing_of(facts->nodes, a);
	double far = work->phases * crossing.phases;
	double near = a->by_node ? NODE_PHASES : work->phases - far;
	double card_us = work->sent_bytes * crossing.bytes * senders(facts->nodes, a) *
			 facts->network.byte_us;
	/* What is packed has been copied before it is sent. */
	double first =
		a->packs || work->bytes < work->chunk_bytes ? 1 : work->chunk_bytes / work->bytes;
	bool pipelined = in_lanes(a) || a->cost.reach == RB_REACH_NEXT;

	bool winds = a->cost.chain && !a->by_node && facts->rank_count > facts->nodes->count;

	if (winds || joins_flows(a, work, facts->rank_count))
		card_us *= JOINED_BYTES;
	/* Cards and processors. */
	if (pipelined && card_us > 0) {
		double us = pipeline_us(facts, a, work, far, card_us);

		return near * phase_us + together_us(us, core_us, first);
	}
	return far * facts->network.latency_us + near * phase_us +
	       together_us(card_us, core_us, first);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Of the other ranks, those on other cores. */
static double apart(const struct rb_choice_facts *facts)
{
	double ranks = facts->host_ranks, cores = facts->cores;

	return cores > 0 && ranks > cores ? (ranks - ranks / cores) / (ranks - 1) : 1;
}

/* IN, OUT and what lies in buffers of pairs are more than a rank's part of the outer cache. */
static bool overflows(const struct rb_choice_facts *facts, double bytes)
{
	double block = bytes / facts->rank_count;
	double pairs = (facts->rank_count - 1) * (block < PAIR_BYTES ? block : PAIR_BYTES);

	return facts->node.outer_bytes > 0 &&
	       2 * bytes + pairs > OUTER_PART * facts->node.outer_bytes;
}

/* Ranks share cores: how many times as long a byte takes. */
static double flooded(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
		      const struct work *work)
{
	double crowd = (double)facts->host_ranks / facts->cores;
	double come = crowd * 2 * work->sent_bytes; /* In a buffer of the pair, and in scratch. */
	double cache = facts->node.cache_bytes > 0 ? facts->node.cache_bytes : CACHE_BYTES;
	double times = 1 + come / (FLOOD_CACHES * cache);

	/* An alltoall's blocks lie in scratch as long as in buffers of pairs, but all slots of
	 * scratch are shorter. */
	if (a->kind == RB_KIND_ALLTOALL && !(a->flags & MAPPED) && overflows(facts, work->bytes))
		return OUTER_TIMES;
	if (a->cost.reach == RB_REACH_NEXT || (a->flags & MAPPED) || rb_kind_rooted(a->kind) ||
	    a->kind == RB_KIND_ALLTOALL)
		return 1;
	return times < FLOODED_MAX ? times : FLOODED_MAX;
}

/* A message. An ALLTOALLV's chunk is any length. */
static double longest(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
		      const struct work *work)
{
	return a->kind == RB_KIND_ALLTOALLV ? work->bytes / facts->rank_count : work->chunk_bytes;
}

/* Of passes over memory by a core: all that share a memory have a part of it. */
static double memory_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			const struct work *work)
{
	const struct rb_node_speed *node = &facts->node;
	bool crowded = facts->cores > 0 && facts->host_ranks > facts->cores;
	double least = node->memory_byte_us * (crowded ? facts->cores : facts->host_ranks);
	double own = node->core_byte_us > 0 ? node->core_byte_us : BYTE_US;
	double crossing = node->cross_byte_us > 0  ? node->cross_byte_us
			  : node->core_byte_us > 0 ? node->core_byte_us
						   : CROSSING_US;

	crossing = own + (crossing - own) * apart(facts);
	bool messages = !(a->flags & (MAPPED | RB_SCHEDULE_PUT));
	bool moves_only = a->kind == RB_KIND_ALLTOALL || a->kind == RB_KIND_ALLGATHER;
	double each = larger(own, least), crossed = rb_kind_reduces(a->kind) ? 0.75 : 0.5;

	/* Whatever the algorithm, both send at once, and buffers change hands. */
	bool handed = messages && facts->rank_count == 2 && !rb_kind_rooted(a->kind) &&
		      longest(facts, a, work) <= HANDED_BYTES;
	double attached = ATTACHED_BYTES;

	if (crowded && a->kind == RB_KIND_BROADCAST)
		attached = ATTACHED_BROADCAST_BYTES;
	else if (crowded && a->kind == RB_KIND_ALLTOALL)
		attached = 1; /* Through scratch it takes as much longer. */
	else if (longest(facts, a, work) > HANDED_BYTES)
		attached = ATTACHED_LONG_BYTES;

	/* One copy by the kernel from buffer to buffer, of which each end makes half: what the
	 * sender has written crosses once more when it is reduced. */
	if (messages && !handed && node->attach_copies > 0 &&
	    longest(facts, a, work) >= node->attach_bytes)
		return (work->moved_bytes - 2 * work->crossed_bytes) * each +
		       attached * work->crossed_bytes *
			       larger(node->attach_copies * own + crossed * (crossing - own),
				      least);
	if (!messages && !crowded && moves_only && work->bytes <= SHORT_BYTES)
		crossing *= SHORT_CROSSING;
	if (messages && node->message_byte_us > 0)
		crossing = PIECES_BYTES * larger(crossing, node->message_byte_us - own);
	if (handed && work->bytes <= (moves_only ? HANDED_BYTES : SHORT_BYTES))
		crossing *= HANDED_CROSSING;
	double us = (work->moved_bytes - work->crossed_bytes) * each +
		    work->crossed_bytes * larger(crossing, least);

	return crowded ? us * flooded(facts, a, work) : us;
}

static double message_us(const struct rb_choice_facts *facts)
{
	if (is_measured(facts))
		return facts->network.message_us;
	if (has_network(facts))
		return NETWORK_MESSAGE_US;
	return facts->node.message_us > 0 ? facts->node.message_us : RB_MESSAGE_US;
}

/* What ranks pay who ask each other where their buffers lie, to learn that they are not mapped. */
static double exchange_us(const struct rb_choice_facts *facts)
{
	double crowd = rb_crowd(facts) > 1 ? rb_crowd(facts) : 1;
	double messages = 2.0 * (facts->rank_count - 1) * MAPPED_MESSAGES * crowd;

	return EXCHANGE_PHASES * rb_crowd_phase_us(facts) + messages * message_us(facts);
}

static double predict_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
			 uint64_t count, uint32_t element_bytes)
{
	if (rb_cost_known(facts))
		return rb_cost_us(facts, a, (double)count * element_bytes,
				  (double)chunk_elements(facts, a, count, element_bytes) *
					  element_bytes);
	struct work work = work_of(facts, a, count, element_bytes);
	double core_us = work.messages * message_us(facts) + memory_us(facts, a, &work);

	if (has_network(facts))
		return network_us(facts, a, &work, rb_crowd_phase_us(facts), core_us);
	return work.phases * rb_crowd_phase_us(facts) + core_us;
}

static bool can_run(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	bool maps = facts->mapped || (a->by_node && facts->nodes != NULL);

	return facts->rank_count <= a->rank_max && RB_IMPLIES(a->flags & MAPPED, maps) &&
	       RB_IMPLIES(facts->coded, a->reductions != RB_REDUCTIONS_SOME) &&
	       RB_IMPLIES(a->flags & RB_SCHEDULE_PUT, facts->put);
}

/* Two ranks with no memory in common: recursive doubling sends no more than a ring, in half the
 * phases, which is what counts across a link; up to here memory has little more to do for it. */
static bool exchanges(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t bytes)
{
	return kind == RB_KIND_ALLREDUCE && facts->rank_count == 2 && !facts->mapped &&
	       !facts->coded && bytes <= EXCHANGE_BYTES;
}

/* Whether puts are good on all ways that the algorithm takes. */
static bool puts_well(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	bool between = facts->nodes == NULL || facts->nodes->count > 1;
	bool within = facts->nodes == NULL || facts->nodes->count < facts->rank_count;

	return (!between || facts->puts_between) && (!within || a->by_node || facts->puts_within);
}

/* Whether it takes part in the choice here. */
static bool is_candidate(const struct rb_choice_facts *facts, const struct rb_algorithm *a)
{
	bool rounds_little = a->reductions == RB_REDUCTIONS_ONE || a->by_node;

	/* Where all is memory, phases that overlap by short chunks have nothing to gain. */
	bool memory = facts->mapped && a->pieces == 0;
	/* Whose cards are shared, and how, the finer model knows. */
	bool fine = rb_cost_known(facts);
	bool forced_only = a->forced_only && !(fine && a->kind == RB_KIND_ALLTOALLV);

	return !forced_only && RB_IMPLIES(a->flags & RB_SCHEDULE_PUT, puts_well(facts, a)) &&
	       can_run(facts, a) && RB_IMPLIES(facts->coded, rounds_little) &&
	       RB_IMPLIES(a->own_link, fine || facts->own_links || facts->coded || memory) &&
	       RB_IMPLIES(a->by_node, has_levels(facts));
}

/* The cheapest that can run here and needs none of `without`; -1: none. */
static int cheapest(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
		    uint32_t element_bytes, uint32_t without, double *best_us)
{
	bool exchange = exchanges(facts, kind, count * element_bytes);
	int best = -1;

	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];

		if (a->kind != kind || !is_candidate(facts, a) || a->flags & without ||
		    (exchange && !a->exchanges))
			continue;
		double us = predict_us(facts, a, count, element_bytes);

		if (best < 0 || us < *best_us) {
			best = (int)i;
			*best_us = us;
		}
	}
	return best;
}

#define WITHOUT_BUFFERS (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_PUT)

/* Of a candidate, whose buffers are plain: ranks of a node tell each other so first. */
static double plain_us(const struct rb_choice_facts *facts, const struct rb_algorithm *a,
		       uint64_t count, uint32_t element_bytes)
{
	if (a->staged == NULL)
		return predict_us(facts, a, count, element_bytes);
	int twin = rb_algorithm_find(a->kind, a->staged);

	return predict_us(facts, &rb_algorithms[twin], count, element_bytes) +
	       rb_cost_meet_us(facts);
}

/*
 * Over nodes: the one that loses least against the best one, be buffers mapped or plain. A node
 * knows what its own are, no rank what all are, and all must take the same way.
 */
static int best_for_both(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
			 uint32_t element_bytes, int best, double *us)
{
	double mapped_us = *us, least_us = 0, least = 0;

	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (rb_algorithms[i].kind == kind && is_candidate(facts, &rb_algorithms[i])) {
			double plain = plain_us(facts, &rb_algorithms[i], count, element_bytes);

			if (least_us == 0 || plain < least_us)
				least_us = plain;
		}
	least = plain_us(facts, &rb_algorithms[best], count, element_bytes) / least_us;
	if (least <= MAPPED_LOSS)
		return best;
	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];

		if (a->kind != kind || !is_candidate(facts, a))
			continue;
		double mapped = predict_us(facts, a, count, element_bytes) / mapped_us;
		double plain = plain_us(facts, a, count, element_bytes) / least_us;

		if (mapped <= MAPPED_LOSS && larger(mapped, plain) < least) {
			best = (int)i;
			least = larger(mapped, plain);
			*us = mapped * mapped_us;
		}
	}
	return best;
}

/*
 * The cheapest, but that in mapped buffers only where it gains what it costs those whose buffers
 * are not mapped, as most are: nobody knows before they have told each other. Where these take a
 * way through mapped scratch, they tell each other anyway.
 */
static int best_for_any(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
			uint32_t element_bytes, double *us)
{
	double other_us = 0;
	int best = cheapest(facts, kind, count, element_bytes, 0, us), other;

	if (best >= 0 && rb_cost_known(facts) && has_levels(facts) && !facts->mapped)
		return best_for_both(facts, kind, count, element_bytes, best, us);
	if (best < 0 || rb_algorithms[best].by_node ||
	    !(rb_algorithms[best].flags & RB_SCHEDULE_MAPPED_BUFFERS))
		return best;
	other = cheapest(facts, kind, count, element_bytes, WITHOUT_BUFFERS, &other_us);
	if (other < 0 || rb_algorithms[other].flags & MAPPED ||
	    other_us - *us >= exchange_us(facts))
		return best;
	*us = other_us;
	return other;
}

/* Whether a rank's block is its own by the operation's meaning: nothing may be padded then. */
static bool block_is_meant(enum rb_kind kind)
{
	return kind != RB_KIND_ALLREDUCE && kind != RB_KIND_REDUCE && kind != RB_KIND_BROADCAST &&
	       kind != RB_KIND_SENDRECV;
}

static const char *reason(const struct rb_algorithm *a, bool forced)
{
	if (forced)
		return "asked for by name";
	if (a->by_node)
		return "fewest bytes between nodes";
	if (a->flags & RB_SCHEDULE_PUT)
		return "puts need no copies where they go to";
	if (a->flags & RB_SCHEDULE_MAPPED_BUFFERS)
		return "peers' buffers are mapped: no copies";
	if (a->flags & RB_SCHEDULE_MAPPED_SCRATCH)
		return "peers' scratch is mapped: few phases";
	return a->blocks != RB_BLOCKS_ONE ? "fewest bytes moved" : "fewest phases and messages";
}

/* Nobody knows how long the blocks of an alltoallv are. */
static uint64_t count_of(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
			 uint32_t element_bytes)
{
	return kind == RB_KIND_ALLTOALLV
		       ? (uint64_t)facts->rank_count * MIDDLING_BYTES / element_bytes
		       : count;
}

/* Apart: else the compiler may compute before the mode is set. */
static __attribute__((noinline)) double predict(const struct rb_choice_facts *facts,
						const struct rb_algorithm *a, uint64_t count,
						uint32_t element_bytes)
{
	if (!is_candidate(facts, a))
		return -1;
	return predict_us(facts, a, count_of(facts, a->kind, count, element_bytes), element_bytes);
}

double rb_predict(const struct rb_choice_facts *facts, uint32_t algorithm, uint64_t count,
		  uint32_t element_bytes)
{
	uint32_t mode = rb_float_mode_enter();
	double us = predict(facts, &rb_algorithms[algorithm], count, element_bytes);

	rb_float_mode_leave(mode);
	return us;
}

/*
 * Of an ALLTOALLV two ranks know how long their own blocks are. So each pair decides for itself:
 * up to so many bytes it sends messages, although the algorithm works in mapped memory. It is what
 * an alltoall within a node is better sent than fetched.
 */
static uint32_t apart_bytes(const struct rb_choice_facts *facts, uint32_t element_bytes)
{
	int flat = rb_algorithm_find(RB_KIND_ALLTOALLV, "flat");
	int direct = rb_algorithm_find(RB_KIND_ALLTOALLV, "direct");
	struct rb_choice_facts node = *facts;
	uint32_t bytes = APART_BYTES_MIN;

	if (has_levels(facts))
		node.rank_count = facts->rank_count / facts->nodes->count;
	if (node.rank_count < 2)
		node.rank_count = 2;
	node.nodes = NULL;
	node.mapped = true;
	while (2 * bytes <= facts->chunk_bytes_max) {
		uint64_t count = 2 * bytes / element_bytes * (uint64_t)node.rank_count;

		if (predict_us(&node, &rb_algorithms[flat], count, element_bytes) >
		    predict_us(&node, &rb_algorithms[direct], count, element_bytes))
			break;
		bytes *= 2;
	}
	return bytes;
}

/* As predict(), apart. */
static __attribute__((noinline)) rubato_status choose(const struct rb_choice_facts *facts,
						      enum rb_kind kind, uint64_t count,
						      uint32_t element_bytes, int forced,
						      struct rb_choice *choice)
{
	double us = 0, staged_us = 0;
	int index = forced;

	count = count_of(facts, kind, count, element_bytes);
	if (forced >= (int)rb_algorithm_count ||
	    (forced >= 0 && rb_algorithms[forced].kind != kind))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "algorithm %d is not one of %s", forced,
			       rb_kind_name(kind));
	if (forced >= 0 && facts->coded && rb_algorithms[forced].reductions == RB_REDUCTIONS_SOME)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "%s %s reduces elements more than once on a rank: not where they "
			       "are rounded on the way (rubato_set_wire)",
			       rb_kind_name(kind), rb_algorithms[forced].name);
	if (forced >= 0 && !can_run(facts, &rb_algorithms[forced]))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "%s %s cannot run here: %u ranks (it takes %u), memory %s, put %s",
			       rb_kind_name(kind), rb_algorithms[forced].name, facts->rank_count,
			       rb_algorithms[forced].rank_max, facts->mapped ? "mapped" : "apart",
			       facts->put ? "yes" : "no");
	if (forced >= 0)
		us = predict_us(facts, &rb_algorithms[forced], count, element_bytes);
	else
		index = best_for_any(facts, kind, count, element_bytes, &us);
	if (index < 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "no algorithm for %s on %u ranks",
			       rb_kind_name(kind), facts->rank_count);
	const struct rb_algorithm *a = &rb_algorithms[index];
	int staged = index;

	if (a->staged != NULL)
		staged = rb_algorithm_find(kind, a->staged);
	else if (a->flags & RB_SCHEDULE_MAPPED_BUFFERS)
		staged = cheapest(facts, kind, count, element_bytes, WITHOUT_BUFFERS, &staged_us);

	if (staged < 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "%s has no algorithm for buffers that peers cannot map",
			       rb_kind_name(kind));
	bool padded = !block_is_meant(kind) &&
		      count / facts->rank_count * element_bytes >= ALIGN_FROM_BYTES;

	*choice = (struct rb_choice) {
		.algorithm = (uint8_t)index,
		.staged = (uint8_t)staged,
		.align = padded && element_bytes < ALIGN_BYTES ? ALIGN_BYTES / element_bytes : 1,
		.chunk = chunk_elements(facts, &rb_algorithms[staged], count, element_bytes),
		.apart_bytes = kind == RB_KIND_ALLTOALLV && a->flags & RB_SCHEDULE_MAPPED_BUFFERS
				       ? apart_bytes(facts, element_bytes)
				       : 0,
		.predicted_us = us,
		.why = reason(a, forced >= 0),
	};
	return RUBATO_OK;
}

/* Two may take the same time, and then the last bit decides: it must be the same on all ranks. */
rubato_status rb_choose(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
			uint32_t element_bytes, int forced, struct rb_choice *choice)
{
	uint32_t mode = rb_float_mode_enter();
	rubato_status err = choose(facts, kind, count, element_bytes, forced, choice);

	rb_float_mode_leave(mode);
	return err;
}
