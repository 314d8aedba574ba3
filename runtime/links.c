/*
 * links.c -- see links.h.
 *
 * By pings (runtime/engine/ping.h). A small message tells the latency. One large one, and three:
 * their difference is the bandwidth, also of a link that lets the first bytes after a pause pass at
 * once. They are so long that a slow link shows and so short that it is over soon: 192 KiB are 16
 * ms at 100 Mbit/s. And many small ones: what they take beyond one is what messages keep the ends
 * busy.
 */
#include "runtime/links.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "runtime/engine/node_speed.h"
#include "runtime/engine/ping.h"

#define SMALL_TIMES 12
#define LARGE_TIMES 3
#define LARGE_MESSAGES 3
#define BURST_TIMES 4
#define BURST_MESSAGES 65

static double beyond_us(uint64_t ns, uint64_t without_ns)
{
	return (double)(ns > without_ns ? ns - without_ns : 1) / 1e3;
}

/* From a node's first rank to the next node's; one of them is this rank. `round`: of the ring. */
static rubato_status link_measure(struct rubato_comm *comm, uint32_t node, uint32_t round,
				  uint64_t deadline_ns, struct rb_link *link)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	const uint32_t ends[2] = { rb_node_rank(nodes, node, 0),
				   rb_node_rank(nodes, (node + 1) % nodes->count, 0) };
	uint64_t small_ns, burst_ns, large_ns, larger_ns;
	struct rb_ping *p;
	double whole_us;
	rubato_status err;

	RB_TRY(rb_ping_new(&comm->engine, ends, round, deadline_ns, &p));
	err = rb_ping_time(p, RB_PING_SMALL_BYTES, 1, SMALL_TIMES, &small_ns);
	if (err == RUBATO_OK)
		err = rb_ping_time(p, RB_PING_SMALL_BYTES, BURST_MESSAGES, BURST_TIMES, &burst_ns);
	if (err == RUBATO_OK)
		err = rb_ping_time(p, RB_PING_LARGE_BYTES, 1, LARGE_TIMES, &large_ns);
	if (err == RUBATO_OK)
		err = rb_ping_time(p, RB_PING_LARGE_BYTES, LARGE_MESSAGES, LARGE_TIMES, &larger_ns);
	rb_ping_free(p);
	if (err != RUBATO_OK)
		return err;
	link->latency_us = beyond_us(small_ns, 0) / 2;
	link->message_us = beyond_us(burst_ns, small_ns) / (BURST_MESSAGES - 1);
	link->byte_us = beyond_us(larger_ns, large_ns) / RB_PING_LARGE_BYTES / (LARGE_MESSAGES - 1);
	whole_us = beyond_us(larger_ns, small_ns) / RB_PING_LARGE_BYTES / LARGE_MESSAGES;
	if (link->byte_us < whole_us) /* Where a difference is less than the noise. */
		link->byte_us = whole_us;
	return RUBATO_OK;
}

/* Where ranks share processors, one link at a time: else these would be what is measured. */
static bool in_turn(const struct rb_choice_facts *facts)
{
	return facts->host_ranks > facts->cores;
}

static uint32_t rounds_of(const struct rb_choice_facts *facts)
{
	return in_turn(facts) ? facts->nodes->count : 3;
}

/* When the link from this node to the next one is measured: each takes part in one at a time. Two
 * nodes have but one. */
static uint32_t round_of(const struct rb_choice_facts *facts, uint32_t node)
{
	uint32_t count = facts->nodes->count;

	if (count == 2)
		return node == 0 ? 0 : rounds_of(facts);
	if (in_turn(facts))
		return node;
	return node + 1 == count && count % 2 == 1 ? 2 : node % 2;
}

/* All links of the ring, in rounds; *link is that from this rank's node to the next. */
static rubato_status ring_measure(struct rubato_comm *comm, uint64_t deadline_ns,
				  struct rb_link *link)
{
	const struct rb_choice_facts *facts = &comm->choices.facts;
	const struct rb_nodes *nodes = facts->nodes;
	uint32_t own = nodes->node_of[comm->engine.rank];
	uint32_t before = (own + nodes->count - 1) % nodes->count;
	struct rb_link theirs = *link;

	for (uint32_t round = 0; round < rounds_of(facts); round++) {
		if (round_of(facts, own) == round)
			RB_TRY(link_measure(comm, own, round, deadline_ns, link));
		if (round_of(facts, before) == round)
			RB_TRY(link_measure(comm, before, round, deadline_ns, &theirs));
	}
	return RUBATO_OK;
}

/* The first rank of the next node. */
static uint32_t other_find(const struct rubato_comm *comm)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;

	return rb_node_rank(nodes, (nodes->node_of[comm->engine.rank] + 1) % nodes->count, 0);
}

/* What the transport knows of the way to it. */
static bool link_known(const struct rubato_comm *comm, struct rb_link *link)
{
	uint32_t other = other_find(comm);
	struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, other);

	return ep->ops->link != NULL && ep->ops->link(ep, other, link);
}

struct speeds { /* As ranks tell them each other. */
	struct rb_link network;
	struct rb_node_speed node;
};

static bool is_rate(double x)
{
	return x >= 0 && isfinite(x);
}

static bool is_good(const struct speeds *s)
{
	return is_rate(s->network.latency_us) && is_rate(s->network.byte_us) &&
	       is_rate(s->network.message_us) && is_rate(s->network.eager_bytes) &&
	       is_rate(s->network.copied_bytes) && is_rate(s->network.piece_bytes) &&
	       is_rate(s->network.burst_bytes) && is_rate(s->node.latency_us) &&
	       is_rate(s->node.eager_bytes) && is_rate(s->node.attach_bytes) &&
	       is_rate(s->node.attach_copies) && is_rate(s->node.cache_bytes) &&
	       is_rate(s->node.outer_bytes) && is_rate(s->node.message_us) &&
	       is_rate(s->node.core_byte_us) && is_rate(s->node.cross_byte_us) &&
	       is_rate(s->node.memory_byte_us) && is_rate(s->node.message_byte_us) &&
	       is_rate(s->node.work_us) && is_rate(s->node.turn_us);
}

static rubato_status speeds_find(struct rubato_comm *comm, uint64_t deadline_ns,
				 struct speeds *speeds)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	struct rb_endpoint *own = comm->engine.endpoints[0];
	const struct rb_transport_ops *ops;
	struct rb_waiting waiting;
	uint32_t me = comm->engine.rank;
	rubato_status err;

	*speeds = (struct speeds) { comm->origin.network, comm->origin.node };
	if (speeds->node.latency_us == 0 && rb_engine_time_is_virtual(&comm->engine) &&
	    own->ops->node_speed != NULL) /* Else see node_measure(). */
		(void)own->ops->node_speed(own, &speeds->node);
	if (nodes->count == 1)
		return RUBATO_OK;
	ops = rb_engine_endpoint(&comm->engine, other_find(comm))->ops;
	speeds->network.eager_bytes = ops->eager_bytes;
	speeds->network.piece_bytes = ops->piece_bytes;
	speeds->network.copied_bytes = ops->copied_bytes;
	if (speeds->network.latency_us != 0 || link_known(comm, &speeds->network) ||
	    comm->config->measure.number == 0)
		return RUBATO_OK;
	comm->origin.measured = true;
	if (nodes->place_of[me] != 0)
		return RUBATO_OK;
	rb_engine_enter(&comm->engine);
	waiting = comm->engine.waiting;
	rb_waiting_unknown(&comm->engine.waiting);
	rb_engine_leave(&comm->engine);
	err = ring_measure(comm, deadline_ns, &speeds->network);
	rb_engine_enter(&comm->engine);
	comm->engine.waiting = waiting;
	rb_engine_leave(&comm->engine);
	return err;
}

/* Makes `all` the slowest in each of its figures. `spread` begins with what node 0 says. */
static void slowest(struct rb_link *all, const struct rb_link *link, uint32_t node,
		    struct rb_link_spread *spread)
{
	if (link->byte_us > all->byte_us) {
		all->byte_us = link->byte_us;
		spread->narrow_node = node;
	}
	if (link->latency_us > all->latency_us) {
		all->latency_us = link->latency_us;
		spread->far_node = node;
	}
	if (link->message_us > all->message_us)
		all->message_us = link->message_us;
	if (link->burst_bytes < all->burst_bytes)
		all->burst_bytes = link->burst_bytes;
	if (link->byte_us < spread->byte_us)
		spread->byte_us = link->byte_us;
	if (link->latency_us < spread->latency_us)
		spread->latency_us = link->latency_us;
}

/* What all go by: within nodes what the first rank says; between them the slowest of the links that
 * the first ranks of nodes tell of, where they have one. */
static rubato_status speeds_join(struct rubato_comm *comm, const void *const *blobs,
				 const size_t *bytes, struct speeds *out)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	struct rb_link_spread *spread = &comm->origin.spread;
	struct speeds theirs;

	for (uint32_t node = 0; node < nodes->count; node++) {
		uint32_t r = rb_node_rank(nodes, node, 0);

		if (bytes[r] == sizeof(theirs))
			memcpy(&theirs, blobs[r], sizeof(theirs));
		if (bytes[r] != sizeof(theirs) || !is_good(&theirs))
			return RB_FAIL(RUBATO_ERR_MISMATCH, "rank %u's start-up link is malformed",
				       r);
		if (node == 0) {
			*out = theirs;
			*spread = (struct rb_link_spread) {
				.latency_us = theirs.network.latency_us,
				.byte_us = theirs.network.byte_us,
			};
		} else if (theirs.network.latency_us > 0) {
			slowest(&out->network, &theirs.network, node, spread);
		}
	}
	return RUBATO_OK;
}

/* What a profile leaves open. A child has its parent's, and if that could not be measured, no try
 * is made again. */
static rubato_status node_measure(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
				  uint64_t deadline_ns)
{
	struct rb_setup *origin = &comm->origin;

	bool said = origin->profiled && origin->node.core_byte_us > 0;

	if (comm->config->measure.number == 0 || origin->node_measured || said ||
	    rb_engine_time_is_virtual(&comm->engine) || comm->engine.rank_count == 1)
		return RUBATO_OK;
	origin->node_measured = true;

	const struct rb_node_probe where = { .engine = &comm->engine,
					     .memories = &comm->memory,
					     .nodes = &comm->choices.nodes,
					     .host_of = comm->locality.host_of,
					     .host_count = comm->locality.host_count,
					     .host_ranks = comm->choices.facts.host_ranks,
					     .cores = comm->choices.facts.cores };

	return rb_node_speed_measure(&where, bootstrap, deadline_ns, &origin->node);
}

rubato_status rb_links_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			     uint64_t deadline_ns)
{
	struct rb_choice_facts *facts = &comm->choices.facts;
	struct speeds speeds;
	const void *const *blobs;
	const size_t *bytes;

	RB_TRY(node_measure(comm, bootstrap, deadline_ns));
	/* Then there is no link; but a simulated node knows its speed. */
	if (comm->choices.nodes.count == 1 && !rb_engine_time_is_virtual(&comm->engine)) {
		facts->node = comm->origin.node;
		return RUBATO_OK;
	}
	RB_TRY(speeds_find(comm, deadline_ns, &speeds));
	RB_TRY(bootstrap->allgather(bootstrap, &speeds, sizeof(speeds), &blobs, &bytes,
				    deadline_ns));
	RB_TRY(speeds_join(comm, blobs, bytes, &speeds));
	facts->network = comm->origin.network = speeds.network;
	facts->node = comm->origin.node = speeds.node;
	if (comm->choices.nodes.count > 1)
		RB_LOG(RB_LOG_INFO, "between nodes: %.1f us, %.2f GB/s, %.2f us a message",
		       facts->network.latency_us,
		       facts->network.byte_us > 0 ? 1e-3 / facts->network.byte_us : 0.0,
		       facts->network.message_us);
	return RUBATO_OK;
}
