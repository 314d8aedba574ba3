/*
 * links.c -- see links.h.
 *
 * A few messages one way and a small one back; the fastest of some such trips counts, as others
 * only waited longer, and not the first, which opens connections and their windows. A small message
 * tells the latency. One large one, and three: their difference is the bandwidth, also of a link
 * that lets the first bytes after a pause pass at once. They are so long that a slow link shows and
 * so short that it is over soon: 192 KiB are 16 ms at 100 Mbit/s. And many small ones: what they
 * take beyond one is what messages keep the ends busy.
 */
#include "runtime/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/engine/run.h"

#define SMALL_BYTES 8
#define SMALL_TIMES 12
#define LARGE_BYTES (192u << 10)
#define LARGE_TIMES 3
#define LARGE_MESSAGES 3
#define BURST_TIMES 4
#define BURST_MESSAGES 65
#define ROUND_SHIFT 16 /* Of the ring of nodes: fewer messages than that in each. */

struct ping {
	struct rubato_comm *comm;
	uint64_t deadline_ns;
	uint32_t ranks[2]; /* Who sends, who receives: of the messages that this rank starts. */
	bool first;        /* This rank sends first. */
	uint64_t number;
	bool done;
	uint8_t bytes[LARGE_BYTES];
};

static void message_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine;
	((struct ping *)run->owner)->done = true;
}

static rubato_status message_run(struct ping *p, struct rb_plan *plan, bool sends)
{
	struct rb_engine *engine = &p->comm->engine;
	uint32_t pair[2] = { p->ranks[p->first != sends], p->ranks[p->first == sends] };
	struct rb_run run = { .ranks = pair,
			      .type = RUBATO_UINT8,
			      .buffers = { { .base = p->bytes }, { .base = p->bytes } },
			      .tag = rb_tag(engine->epoch, RB_TAG_LINK, p->number++, 0),
			      .signature = { .kind = RB_KIND_SENDRECV,
					     .type = RUBATO_UINT8,
					     .op = 0xff,
					     .root = UINT32_MAX,
					     .count = plan->key.count },
			      .done = message_done,
			      .owner = p };
	rubato_status err;

	RB_TRY(rb_run_init(&run, plan));
	p->done = false;
	rb_engine_enter(engine);
	err = rb_engine_check(engine);
	if (err == RUBATO_OK) {
		rb_run_start(engine, &run);
		err = rb_engine_wait(engine, &p->done, p->deadline_ns);
		if (err != RUBATO_OK)
			rb_run_fail(engine, &run, err, "start-up: the link to another node");
		err = run.status != RUBATO_OK ? RB_FAIL(run.status, "%s", run.failure) : err;
	}
	rb_engine_leave(engine);
	rb_run_fini(&run);
	return err;
}

static rubato_status plan_make(uint64_t bytes, bool sends, struct rb_plan **out)
{
	int eager = rb_algorithm_find(RB_KIND_SENDRECV, "eager");
	struct rb_plan_key key = { .count = bytes,
				   .kind = RB_KIND_SENDRECV,
				   .element_bytes = 1,
				   .algorithm = (uint8_t)eager };
	struct rb_choice choice = { .align = 1, .chunk = bytes };
	struct rb_build who = { .rank = sends ? 0 : 1, .rank_count = 2 };

	RB_ASSERT(eager >= 0);
	return rb_plan_make(&key, NULL, &choice, &who, out);
}

/* `count` messages there and a small one back, in nanoseconds. */
static rubato_status round_trip(struct ping *p, uint64_t bytes, uint32_t count, uint32_t times,
				uint64_t *best_ns)
{
	struct rb_plan *there = NULL, *back = NULL;
	rubato_status err = plan_make(bytes, p->first, &there);

	*best_ns = UINT64_MAX;
	if (err == RUBATO_OK)
		err = plan_make(SMALL_BYTES, !p->first, &back);
	for (uint32_t i = 0; i < times && err == RUBATO_OK; i++) {
		uint64_t begin_ns = rb_engine_now(&p->comm->engine), ns;

		for (uint32_t k = 0; k < count && err == RUBATO_OK; k++)
			err = message_run(p, there, p->first);
		if (err == RUBATO_OK)
			err = message_run(p, back, !p->first);
		ns = rb_engine_now(&p->comm->engine) - begin_ns;
		if (i > 0 && ns < *best_ns)
			*best_ns = ns;
	}
	rb_plan_free(there);
	rb_plan_free(back);
	return err;
}

static double beyond_us(uint64_t ns, uint64_t without_ns)
{
	return (double)(ns > without_ns ? ns - without_ns : 1) / 1e3;
}

/* From a node's first rank to the next node's; one of them is this rank. `round`: of the ring. */
static rubato_status link_measure(struct rubato_comm *comm, uint32_t node, uint32_t round,
				  uint64_t deadline_ns, struct rb_link *link)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	struct ping *p = calloc(1, sizeof(*p));
	uint64_t small_ns, burst_ns, large_ns, larger_ns;
	double whole_us;
	rubato_status err;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "link: %zu bytes", sizeof(*p));
	p->comm = comm;
	p->deadline_ns = deadline_ns;
	p->number = (uint64_t)round << ROUND_SHIFT;
	p->ranks[0] = rb_node_rank(nodes, node, 0);
	p->ranks[1] = rb_node_rank(nodes, (node + 1) % nodes->count, 0);
	p->first = comm->engine.rank == p->ranks[0];
	err = round_trip(p, SMALL_BYTES, 1, SMALL_TIMES, &small_ns);
	if (err == RUBATO_OK)
		err = round_trip(p, SMALL_BYTES, BURST_MESSAGES, BURST_TIMES, &burst_ns);
	if (err == RUBATO_OK)
		err = round_trip(p, LARGE_BYTES, 1, LARGE_TIMES, &large_ns);
	if (err == RUBATO_OK)
		err = round_trip(p, LARGE_BYTES, LARGE_MESSAGES, LARGE_TIMES, &larger_ns);
	free(p);
	if (err != RUBATO_OK)
		return err;
	link->latency_us = beyond_us(small_ns, 0) / 2;
	link->message_us = beyond_us(burst_ns, small_ns) / (BURST_MESSAGES - 1);
	link->byte_us = beyond_us(larger_ns, large_ns) / LARGE_BYTES / (LARGE_MESSAGES - 1);
	whole_us = beyond_us(larger_ns, small_ns) / LARGE_BYTES / LARGE_MESSAGES;
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
	       is_rate(s->node.latency_us) && is_rate(s->node.eager_bytes) &&
	       is_rate(s->node.attach_bytes) && is_rate(s->node.message_us) &&
	       is_rate(s->node.core_byte_us) && is_rate(s->node.memory_byte_us) &&
	       is_rate(s->node.work_us) && is_rate(s->node.turn_us);
}

static rubato_status speeds_find(struct rubato_comm *comm, uint64_t deadline_ns,
				 struct speeds *speeds)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	struct rb_endpoint *own = comm->engine.endpoints[0];
	uint32_t me = comm->engine.rank;

	*speeds = (struct speeds) { comm->origin.network, comm->origin.node };
	if (speeds->node.latency_us == 0 && own->ops->node_speed != NULL)
		(void)own->ops->node_speed(own, &speeds->node);
	if (nodes->count == 1)
		return RUBATO_OK;
	speeds->network.eager_bytes =
		rb_engine_endpoint(&comm->engine, other_find(comm))->ops->eager_bytes;
	if (speeds->network.latency_us != 0 || link_known(comm, &speeds->network))
		return RUBATO_OK;
	comm->origin.measured = true;
	if (nodes->place_of[me] != 0)
		return RUBATO_OK;
	return ring_measure(comm, deadline_ns, &speeds->network);
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

rubato_status rb_links_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			     uint64_t deadline_ns)
{
	struct rb_choice_facts *facts = &comm->choices.facts;
	struct speeds speeds;
	const void *const *blobs;
	const size_t *bytes;

	/* On one machine nothing is measured; a simulated node knows. */
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
