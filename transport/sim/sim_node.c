/*
 * sim_node.c -- what the ranks of a simulated node share: its memory and its cards.
 *
 * Memory is served evenly: each of k ranks that move something moves it at min(core_bandwidth,
 * memory_bandwidth / k), so that k changes whenever one begins or ends (processor sharing). Since
 * all are served alike, it is enough to count what one that was always there would have been
 * served, `moved`: a flow of b bytes that begins at m is over when `moved` is m + b. So a beginning
 * or an end costs a step in a list that is in order of the ends, and one event.
 *
 * All of it is in integers: the same on every machine.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "transport/sim/sim_cluster_inside.h"

/* Of one flow; with it, two flows' ends are never half of the counter's range apart. */
#define BYTES_MAX (UINT64_C(1) << 42)

/* ---- Memory ---- */

/* What each of the flows moves in a ns, in 1 / RB_SIM_BYTE bytes. */
static uint64_t rate_of(const struct rb_sim_cluster *c, const struct rb_sim_node *node)
{
	const rubato_sim_costs *costs = &c->options.costs;
	double rate = costs->core_bandwidth;

	if (costs->memory_bandwidth > 0 &&
	    (rate == 0 || costs->memory_bandwidth / node->flow_count < rate))
		rate = costs->memory_bandwidth / node->flow_count;
	return (uint64_t)fmin(fmax(rate * 1e-9 * RB_SIM_BYTE + 0.5, 1), (double)BYTES_MAX);
}

/* Brings `moved` up to now. */
static void serve(const struct rb_sim_cluster *c, struct rb_sim_node *node)
{
	if (node->flow_count > 0)
		node->moved += rate_of(c, node) * (c->now_ns - node->since_ns);
	node->since_ns = c->now_ns;
}

/* May be less than 0 by what the last ns moved. */
static int64_t left_of(const struct rb_sim_node *node, const struct rb_sim_flow *flow)
{
	return (int64_t)(flow->until - node->moved);
}

static void next_end_set(struct rb_sim_cluster *c, struct rb_sim_node *node)
{
	uint64_t rate, left;

	rb_sim_event_unset(c, &node->event);
	if (node->first == NULL)
		return;
	rate = rate_of(c, node);
	left = left_of(node, node->first) > 0 ? (uint64_t)left_of(node, node->first) : 0;
	rb_sim_event_set(c, &node->event, c->now_ns + (left + rate - 1) / rate);
}

/* Behind those that end before it or with it; most begin last and end last. */
static void flow_add(struct rb_sim_node *node, struct rb_sim_flow *flow)
{
	struct rb_sim_flow *before = node->last;

	while (before != NULL && (int64_t)(before->until - flow->until) > 0)
		before = before->previous;
	flow->active = true;
	flow->previous = before;
	flow->next = before != NULL ? before->next : node->first;
	*(before != NULL ? &before->next : &node->first) = flow;
	*(flow->next != NULL ? &flow->next->previous : &node->last) = flow;
	node->flow_count++;
}

static void flow_remove(struct rb_sim_node *node, struct rb_sim_flow *flow)
{
	flow->active = false;
	*(flow->previous != NULL ? &flow->previous->next : &node->first) = flow->next;
	*(flow->next != NULL ? &flow->next->previous : &node->last) = flow->previous;
	node->flow_count--;
}

static void flow_ends(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_node *node =
		(struct rb_sim_node *)((char *)e - offsetof(struct rb_sim_node, event));

	rb_sim_trace(c, RB_SIM_TRACE_MEMORY, (uint32_t)(node - c->nodes), node->flow_count, 0, 0);
	serve(c, node);
	while (node->first != NULL && left_of(node, node->first) <= 0) {
		struct rb_sim_flow *flow = node->first;

		flow_remove(node, flow);
		rb_sim_ready((struct rb_sim_process *)((char *)flow -
						       offsetof(struct rb_sim_process, flow)));
	}
	next_end_set(c, node);
}

static void flow_begin(struct rb_sim_process *process, uint64_t bytes)
{
	struct rb_sim_cluster *c = process->cluster;
	struct rb_sim_node *node = &c->nodes[process->node];

	serve(c, node);
	process->flow.until = node->moved + (bytes < BYTES_MAX ? bytes : BYTES_MAX) * RB_SIM_BYTE;
	flow_add(node, &process->flow);
	next_end_set(c, node);
}

void rb_sim_work_stop(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;
	struct rb_sim_node *node = &c->nodes[process->node];

	if (!process->flow.active)
		return;
	serve(c, node);
	flow_remove(node, &process->flow);
	next_end_set(c, node);
}

void rb_sim_work(struct rb_sim_process *process, uint64_t busy_ns, uint64_t bytes)
{
	struct rb_sim_cluster *c = process->cluster;

	if (process->ghost)
		return;
	if (busy_ns > 0)
		rb_sim_block(process, RB_SIM_WORKING, rb_deadline(c->now_ns, busy_ns));
	if (bytes > 0 && c->moves && !process->ghost) {
		flow_begin(process, bytes);
		rb_sim_block(process, RB_SIM_WORKING, UINT64_MAX);
	}
	process->quiet_ns = c->now_ns;
}

struct rb_sim_access rb_sim_touch(struct rb_sim_process *process, const struct rb_touch *touches,
				  uint32_t count)
{
	struct rb_sim_place place = { process->core != NULL ? process->core->first : process->rank,
				      process->node };

	return rb_sim_caches_access(process->cluster->caches, place, touches, count);
}

double rb_sim_core_bandwidth(const struct rb_sim_cluster *c)
{
	const rubato_sim_costs *costs = &c->options.costs;

	return costs->core_bandwidth > 0 && (costs->memory_bandwidth == 0 ||
					     costs->core_bandwidth < costs->memory_bandwidth)
		       ? costs->core_bandwidth
		       : costs->memory_bandwidth;
}

double rb_sim_rate_least(const struct rb_sim_process *process)
{
	const struct rb_sim_cluster *c = process->cluster;
	const rubato_sim_costs *costs = &c->options.costs;
	double share = costs->memory_bandwidth / c->nodes[process->node].rank_count;

	if (!c->moves)
		return 0;
	return 1e-9 * (costs->core_bandwidth == 0 ? share
		       : share == 0               ? costs->core_bandwidth
						  : fmin(share, costs->core_bandwidth));
}

/* ---- Open and close ---- */

/* Less, and more time, would not fit 64 bits of nanoseconds. */
#define RATE_MIN 1.0

bool rb_sim_is_rate(double x)
{
	return x == 0 || (x >= RATE_MIN && isfinite(x));
}

static rubato_status times_check(const rubato_sim_costs *costs)
{
	const uint64_t times[] = { costs->send_ns,      costs->receive_ns,
				   costs->node_send_ns, costs->node_receive_ns,
				   costs->work_ns,      costs->gap_ns,
				   costs->turn_ns,      costs->shared_latency_ns };

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (times[i] > RB_SIM_COST_MAX_NS)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "sim: a cost of %llu ns is more than an hour",
				       (unsigned long long)times[i]);
	return RUBATO_OK;
}

static rubato_status options_check(const rubato_sim_options *o)
{
	const rubato_sim_costs *costs = &o->costs;

	RB_TRY(times_check(costs));
	if (!rb_sim_is_rate(costs->memory_bandwidth) || !rb_sim_is_rate(costs->core_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: memory of %g, a core of %g bytes a second",
			       costs->memory_bandwidth, costs->core_bandwidth);
	if (!rb_sim_is_rate(costs->cached_bandwidth) || !rb_sim_is_rate(costs->shared_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: caches of %g and %g bytes a second",
			       costs->cached_bandwidth, costs->shared_bandwidth);
	if (!rb_sim_is_rate(costs->outer_bandwidth) || !rb_sim_is_rate(costs->reduced_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: outer caches of %g, reductions of %g bytes a second",
			       costs->outer_bandwidth, costs->reduced_bandwidth);
	if (!rb_sim_is_rate(costs->attach_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: a kernel that copies %g bytes a second",
			       costs->attach_bandwidth);
	if (!rb_sim_is_rate(costs->stack_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: a network's code of %g bytes a second",
			       costs->stack_bandwidth);
	if (costs->cache_bytes > 0 && costs->memory_bandwidth == 0 && costs->core_bandwidth == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: caches want a memory_bandwidth or core_bandwidth, too");
	if (costs->machine_nodes > 0 && costs->cores == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: machines of %u nodes want cores, too",
			       costs->machine_nodes);
	if (costs->puts > 1)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: costs.puts is %u, not 0 or 1",
			       costs->puts);
	if (o->node_count > 0 && (o->node_ranks == NULL || o->ranks_per_node > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: node_count is %u: node_ranks is needed, and no ranks_per_node",
			       o->node_count);
	for (uint32_t i = 0; i < o->node_count; i++)
		if (o->node_ranks[i] == 0)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: node_ranks[%u] is 0", i);
	return RUBATO_OK;
}

/* Of node number `node`. */
static uint32_t ranks_of(const rubato_sim_options *o, uint32_t node)
{
	if (o->node_count > 0)
		return o->node_ranks[node % o->node_count];
	return o->ranks_per_node > 0 ? o->ranks_per_node : 1;
}

static rubato_status node_open(struct rb_sim_cluster *c, struct rb_sim_node *node)
{
	uint32_t ranks = ranks_of(&c->options, (uint32_t)(node - c->nodes));
	uint32_t cards = c->options.costs.cards < ranks ? c->options.costs.cards : ranks;

	node->event = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
					      .to = RB_SIM_NOBODY,
					      .fire = flow_ends };
	if (cards == 0)
		return RUBATO_OK;
	node->cards = calloc(cards, sizeof(*node->cards));
	return node->cards != NULL ? RUBATO_OK : RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u cards", cards);
}

/* Without its bandwidth the kernel is as fast as a core. */
static void kernel_open(struct rb_sim_cluster *c)
{
	double core = rb_sim_core_bandwidth(c), kernel = c->options.costs.attach_bandwidth;

	c->attaches = kernel == 0 || core < RB_SHM_KERNEL_COPIES * kernel;
	c->attach_ns = kernel > 0 && core > kernel ? 1e9 / kernel - 1e9 / core : 0;
}

rubato_status rb_sim_nodes_open(struct rb_sim_cluster *c)
{
	const rubato_sim_options *o = &c->options;
	const rubato_sim_costs *costs = &o->costs;
	uint32_t first = 0; /* Of the node's ranks. */

	RB_TRY(options_check(o));
	c->flat = o->node_count == 0 && o->ranks_per_node == 0;
	c->moves = costs->memory_bandwidth > 0 || costs->core_bandwidth > 0;
	kernel_open(c);
	c->charges = c->moves || costs->send_ns > 0 || costs->receive_ns > 0 ||
		     costs->node_send_ns > 0 || costs->node_receive_ns > 0 || costs->work_ns > 0 ||
		     costs->stack_bandwidth > 0;
	c->nodes = calloc(o->rank_count, sizeof(*c->nodes));
	if (c->nodes == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: nodes of %u ranks", o->rank_count);
	for (uint32_t rank = 0; rank < o->rank_count; rank++) {
		struct rb_sim_process *process = &c->processes[rank];

		if (rank == first)
			RB_TRY(node_open(c, &c->nodes[c->node_count++]));
		process->node = c->node_count - 1;
		c->nodes[process->node].rank_count++;
		process->card =
			costs->cards > 0
				? &c->nodes[process->node].cards[(rank - first) % costs->cards]
				: &process->own;
		if (rank - first + 1 < ranks_of(o, process->node) && rank + 1 < o->rank_count)
			continue;
		first = rank + 1;
	}
	RB_TRY(rb_sim_cores_open(c));
	return rb_sim_caches_open(o, c->node_count, &c->caches);
}

void rb_sim_nodes_close(struct rb_sim_cluster *c)
{
	for (uint32_t i = 0; i < c->node_count; i++) {
		free(c->nodes[i].cards);
		free(c->nodes[i].cores);
	}
	free(c->nodes);
	rb_sim_caches_close(c->caches);
}
