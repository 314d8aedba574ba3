/*
 * sim_core.c -- cores that ranks of a simulated node, or of several on one machine, share.
 *
 * A core runs one rank at a time, until that waits: it keeps the core while it copies and reduces.
 * Who waits looks whether what it waits for has come, and lets the next one have the core: so a
 * core that nobody keeps goes round its ranks, a turn from each to the next, and a rank that
 * something has come for runs when its turn comes. Ranks that sleep, have ended or are frozen are
 * left out.
 *
 * Where a core is in its round is counted when somebody asks, not turn by turn: no event is made
 * for a look in vain.
 */
#include <stddef.h>
#include <stdlib.h>

#include "transport/sim/sim_cluster_inside.h"

static struct rb_sim_process *member(const struct rb_sim_cluster *c, const struct rb_sim_core *core,
				     uint32_t place)
{
	return &c->processes[core->first + place * core->stride];
}

static bool takes_turns(const struct rb_sim_process *process)
{
	return (process->state == RB_SIM_WAITING || process->state == RB_SIM_QUEUED) &&
	       process->frozen == 0 && !process->ghost;
}

/* How many turns from `core->at` to the first rank that wants to run; UINT32_MAX: there is none. */
static uint32_t turns_to_next(const struct rb_sim_cluster *c, const struct rb_sim_core *core,
			      uint32_t *place)
{
	uint32_t turns = 0;

	for (uint32_t i = 0; i < core->count; i++) {
		uint32_t at = (core->at + i) % core->count;

		if (!takes_turns(member(c, core, at)))
			continue;
		turns += i > 0;
		if (member(c, core, at)->state != RB_SIM_QUEUED)
			continue;
		*place = at;
		return turns;
	}
	return UINT32_MAX;
}

/* Its round up to now, when `asker` asks. Where nobody looks, who asks has it at once; one that is
 * alone there looks all the time. */
static void go_round(const struct rb_sim_cluster *c, struct rb_sim_core *core,
		     const struct rb_sim_process *asker)
{
	uint64_t turn_ns = c->options.costs.turn_ns, turns;
	uint32_t looking = 0, last = (asker->rank - core->first) / core->stride;

	for (uint32_t i = 0; i < core->count; i++) {
		if (!takes_turns(member(c, core, i)))
			continue;
		looking++;
		last = i;
	}
	turns = turn_ns > 0 ? (c->now_ns - core->since_ns) / turn_ns : 1;
	if (looking == 0 || (looking == 1 && turns > 0)) {
		core->at = last;
		core->since_ns = c->now_ns;
		return;
	}
	core->since_ns = turn_ns > 0 ? core->since_ns + turns * turn_ns : c->now_ns;
	for (turns %= looking; turns > 0; turns--) {
		do
			core->at = (core->at + 1) % core->count;
		while (!takes_turns(member(c, core, core->at)));
	}
}

void rb_sim_core_next(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;
	struct rb_sim_core *core = process->core;
	uint32_t turns, place;

	if (core == NULL || core->holder != NULL)
		return;
	rb_sim_event_unset(c, &core->event);
	turns = turns_to_next(c, core, &place);
	if (turns != UINT32_MAX)
		rb_sim_event_set(c, &core->event,
				 core->since_ns + turns * c->options.costs.turn_ns);
}

static void turn_comes(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_core *core =
		(struct rb_sim_core *)((char *)e - offsetof(struct rb_sim_core, event));
	uint32_t place = 0, turns = turns_to_next(c, core, &place);
	struct rb_sim_process *process = member(c, core, place);

	if (turns == UINT32_MAX)
		return;
	if (core->since_ns + turns * c->options.costs.turn_ns > c->now_ns) {
		rb_sim_core_next(process); /* Whose turn it was does not want it any more. */
		return;
	}
	rb_sim_trace(c, RB_SIM_TRACE_TURN, process->rank, process->rank, 0, turns);
	core->holder = process;
	rb_sim_ready(process);
}

bool rb_sim_core_ask(struct rb_sim_process *process)
{
	struct rb_sim_core *core = process->core;
	uint32_t place;

	if (core == NULL || process->ghost || core->holder == process)
		return true;
	if (core->holder == NULL) {
		go_round(process->cluster, core, process);
		process->state = RB_SIM_QUEUED;
		if (turns_to_next(process->cluster, core, &place) == 0) {
			core->holder = process;
			rb_sim_event_unset(process->cluster, &core->event);
			return true;
		}
	}
	process->state = RB_SIM_QUEUED;
	rb_sim_core_next(process);
	return false;
}

void rb_sim_core_leave(struct rb_sim_process *process)
{
	struct rb_sim_core *core = process->core;

	if (core == NULL)
		return;
	if (core->holder == process) {
		core->holder = NULL;
		core->at = (process->rank - core->first) / core->stride;
		core->since_ns = process->cluster->now_ns;
	}
	rb_sim_core_next(process);
}

/* Of `rank_count` ranks from `first` on. The node keeps them. */
static rubato_status cores_open(struct rb_sim_cluster *c, struct rb_sim_node *node, uint32_t first,
				uint32_t rank_count)
{
	uint32_t cores = c->options.costs.cores < rank_count ? c->options.costs.cores : rank_count;

	node->cores = calloc(cores, sizeof(*node->cores));
	if (node->cores == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u cores", cores);
	for (uint32_t i = 0; i < cores; i++)
		node->cores[i] = (struct rb_sim_core) {
			.event = { .from = RB_SIM_NOBODY, .to = RB_SIM_NOBODY, .fire = turn_comes },
			.first = first + i,
			.stride = cores,
			.count = (rank_count - i + cores - 1) / cores,
		};
	for (uint32_t i = 0; i < rank_count; i++)
		c->processes[first + i].core = &node->cores[i % cores];
	return RUBATO_OK;
}

rubato_status rb_sim_cores_open(struct rb_sim_cluster *c)
{
	uint32_t together = c->options.costs.machine_nodes > 0 ? c->options.costs.machine_nodes : 1;
	uint32_t first = 0, ranks = 0;

	for (uint32_t i = 0; c->options.costs.cores > 0 && i < c->node_count; i++) {
		ranks += c->nodes[i].rank_count;
		if (i % together != together - 1 && i + 1 < c->node_count)
			continue;
		RB_TRY(cores_open(c, &c->nodes[i], first, ranks));
		first += ranks;
		ranks = 0;
	}
	return RUBATO_OK;
}
