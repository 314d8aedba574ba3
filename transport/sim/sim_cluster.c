/* sim_cluster.c -- virtual time, ranks and faults: the scheduler of the simulator. */
#include "transport/sim/sim_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/sim/sim_cluster_inside.h"

#define RANKS_MAX (1u << 20)
#define STACK_BYTES_MIN 16384
#define STACK_BYTES (256u << 10)
#define IDLE_MAX 32             /* Guess: asks in a row before time passes. */
#define IDLE_NS 1000            /* Guess: and how much. */
#define GHOST_CALLS_MAX 1000000 /* Guess: a ghost that asks more often loops. */

/* ---- The heap of events ---- */

static bool earlier(const struct rb_sim_slot *a, const struct rb_sim_slot *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

static void heap_put(struct rb_sim_cluster *c, uint32_t at, struct rb_sim_slot slot)
{
	c->heap[at] = slot;
	slot.event->at = at + 1;
}

static void heap_up(struct rb_sim_cluster *c, uint32_t at, struct rb_sim_slot slot)
{
	while (at > 0 && earlier(&slot, &c->heap[(at - 1) / 2])) {
		heap_put(c, at, c->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_put(c, at, slot);
}

static void heap_down(struct rb_sim_cluster *c, uint32_t at, struct rb_sim_slot slot)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= c->heap_count)
			break;
		if (child + 1 < c->heap_count && earlier(&c->heap[child + 1], &c->heap[child]))
			child++;
		if (!earlier(&c->heap[child], &slot))
			break;
		heap_put(c, at, c->heap[child]);
		at = child;
	}
	heap_put(c, at, slot);
}

static void heap_remove(struct rb_sim_cluster *c, uint32_t at)
{
	struct rb_sim_slot last = c->heap[--c->heap_count];

	c->heap[at].event->at = 0;
	if (at == c->heap_count)
		return;
	if (at > 0 && earlier(&last, &c->heap[(at - 1) / 2]))
		heap_up(c, at, last);
	else
		heap_down(c, at, last);
}

static void queue_push(struct rb_sim_queue *q, struct rb_sim_event *e)
{
	e->queue = q;
	RB_QUEUE_ADD(q->first, q->last, e);
}

static void queue_remove(struct rb_sim_event *e)
{
	struct rb_sim_queue *q = e->queue;

	RB_QUEUE_REMOVE(q->first, q->last, e);
	e->queue = NULL;
}

void rb_sim_event_unset(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	if (e->at != 0)
		heap_remove(c, e->at - 1);
	if (e->queue != NULL)
		queue_remove(e);
}

void rb_sim_event_set(struct rb_sim_cluster *c, struct rb_sim_event *e, uint64_t time_ns)
{
	rb_sim_event_unset(c, e);
	if (c->heap_count == c->heap_capacity) {
		uint32_t capacity = c->heap_capacity * 2;
		struct rb_sim_slot *heap = realloc(c->heap, capacity * sizeof(*heap));

		if (heap == NULL) {
			c->heap_full = true;
			return;
		}
		c->heap = heap;
		c->heap_capacity = capacity;
	}
	e->time_ns = time_ns > c->now_ns ? time_ns : c->now_ns;
	e->sequence = c->sequence++;
	c->heap_count++;
	heap_up(c, c->heap_count - 1, (struct rb_sim_slot) { e->time_ns, e->sequence, e });
}

void rb_sim_trace(struct rb_sim_cluster *c, enum rb_sim_trace kind, uint32_t from, uint32_t to,
		  uint64_t size_bytes, uint64_t what)
{
	uint64_t hash = c->result.trace_hash;

	hash = rb_mix(hash ^ c->now_ns ^ ((uint64_t)kind << 56));
	hash = rb_mix(hash ^ ((uint64_t)from << 32 | to));
	hash = rb_mix(hash ^ what ^ (size_bytes << 20 | size_bytes >> 44));
	c->result.trace_hash = hash;
	c->result.events++;
}

/* ---- Who runs ---- */

void rb_sim_ready(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;

	if (process->frozen > 0 && !process->ghost) {
		process->stalled = true;
		return;
	}
	if (!c->running) { /* No fibers: whoever called block looks at the state. */
		process->state = RB_SIM_RUNNING;
		return;
	}
	if (!rb_sim_core_ask(process))
		return;
	process->state = RB_SIM_READY;
	process->next_ready = NULL;
	if (c->ready_last != NULL)
		c->ready_last->next_ready = process;
	else
		c->ready_first = process;
	c->ready_last = process;
}

static struct rb_sim_process *ready_take(struct rb_sim_cluster *c)
{
	struct rb_sim_process *process = c->ready_first;

	if (process != NULL) {
		c->ready_first = process->next_ready;
		if (c->ready_first == NULL)
			c->ready_last = NULL;
	}
	return process;
}

static void timer_fires(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_process *process = &c->processes[e->to];

	rb_sim_trace(c, RB_SIM_TRACE_TIMER, e->to, e->to, 0, 0);
	if (!process->crashed &&
	    (process->state == RB_SIM_WAITING || process->state == RB_SIM_SLEEPING ||
	     process->state == RB_SIM_WORKING))
		rb_sim_ready(process);
}

void rb_sim_news(struct rb_sim_member *member)
{
	struct rb_sim_process *process = member->process;

	member->news = true;
	if (process->crashed)
		return;
	if (process->state == RB_SIM_WAITING ||
	    (process->state == RB_SIM_SLEEPING && member->step != NULL))
		rb_sim_ready(process);
}

bool rb_sim_step(struct rb_sim_process *process, const struct rb_sim_member *but)
{
	bool any = false;

	for (struct rb_sim_member *member = process->members; member != NULL;
	     member = member->next) {
		if (member == but || member->step == NULL ||
		    (!member->news && rb_sim_process_now(process) < member->step_ns))
			continue;
		member->news = false;
		member->step_ns = member->step(member->step_arg);
		any = true;
	}
	return any;
}

uint64_t rb_sim_step_next(const struct rb_sim_process *process, const struct rb_sim_member *but)
{
	uint64_t next_ns = UINT64_MAX;

	for (const struct rb_sim_member *member = process->members; member != NULL;
	     member = member->next)
		if (member != but && member->step != NULL && member->step_ns < next_ns)
			next_ns = member->step_ns;
	return next_ns;
}

void rb_sim_wake(struct rb_sim_process *process)
{
	process->woken = true;
	if (!process->crashed && process->state == RB_SIM_WAITING)
		rb_sim_ready(process);
}

/* ---- Time ---- */

static void happen(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	if (c->cuts > 0 && e->from != RB_SIM_NOBODY) {
		for (uint32_t i = 0; i < c->options.fault_count; i++) {
			struct rb_sim_fault *f = &c->faults[i];
			uint32_t a = f->what.rank, b = f->what.peer;

			if (f->what.kind != RUBATO_SIM_CUT || !f->lasts ||
			    !((e->from == a && e->to == b) || (e->from == b && e->to == a)))
				continue;
			f->fired = true;
			queue_push(&f->held, e);
			return;
		}
	}
	if (e->to != RB_SIM_NOBODY && c->processes[e->to].frozen > 0) {
		queue_push(&c->processes[e->to].held, e);
		return;
	}
	e->fire(c, e);
}

/* In the order in which they were held back, before anything else of this moment. */
static void release(struct rb_sim_cluster *c, struct rb_sim_queue *q)
{
	struct rb_sim_queue all = *q;

	*q = (struct rb_sim_queue) { NULL, NULL };
	for (struct rb_sim_event *e = all.first; e != NULL; e = e->next)
		e->queue = &all;
	while (all.first != NULL) {
		struct rb_sim_event *e = all.first;

		queue_remove(e);
		happen(c, e);
	}
}

static uint64_t time_last_ns(const struct rb_sim_cluster *c)
{
	uint64_t most_ns = c->options.time_max_ns;

	return most_ns != 0 && most_ns < RB_SIM_TIME_MAX_NS ? most_ns : RB_SIM_TIME_MAX_NS;
}

/* The next event; false: there is none, or none that may be. */
static bool advance(struct rb_sim_cluster *c)
{
	uint64_t last_ns = time_last_ns(c);
	struct rb_sim_event *e;

	if (c->heap_full || c->heap_count == 0)
		return false;
	e = c->heap[0].event;
	if (e->time_ns > last_ns) {
		c->now_ns = last_ns;
		return false;
	}
	heap_remove(c, 0);
	c->now_ns = e->time_ns;
	happen(c, e);
	return true;
}

static bool ghost_call(struct rb_sim_process *process)
{
	if (++process->ghost_calls > GHOST_CALLS_MAX && process->fiber != NULL) {
		process->abandoned = true;
		rb_fiber_leave(process->fiber); /* For good. */
	}
	return true;
}

static void suspend(struct rb_sim_process *process, enum rb_sim_state state, uint64_t deadline_ns)
{
	struct rb_sim_cluster *c = process->cluster;

	if (process->ghost && ghost_call(process)) {
		if (deadline_ns > process->ghost_ns)
			process->ghost_ns = deadline_ns;
		return;
	}
	process->idle = 0;
	process->state = state;
	if (state != RB_SIM_WORKING)
		process->quiet_ns = c->now_ns;
	if (deadline_ns != UINT64_MAX)
		rb_sim_event_set(c, &process->timer, deadline_ns);
	if (c->running) {
		if (state != RB_SIM_WORKING)
			rb_sim_core_leave(process);
		rb_fiber_leave(process->fiber);
	} else {
		while (process->state == state && !process->ghost && advance(c))
			;
	}
	process->state = RB_SIM_RUNNING;
	rb_sim_event_unset(c, &process->timer);
	if (process->ghost && state != RB_SIM_WORKING && deadline_ns > process->ghost_ns)
		process->ghost_ns = deadline_ns; /* The cluster ended meanwhile. */
}

void rb_sim_idle(struct rb_sim_process *process)
{
	uint64_t now_ns = rb_sim_process_now(process);

	if (++process->idle >= IDLE_MAX) {
		process->idle = 0;
		suspend(process, RB_SIM_WAITING, rb_deadline(now_ns, IDLE_NS));
	}
}

void rb_sim_block(struct rb_sim_process *process, enum rb_sim_state state, uint64_t deadline_ns)
{
	if (deadline_ns <= rb_sim_process_now(process))
		rb_sim_idle(process);
	else
		suspend(process, state, deadline_ns);
}

/* ---- Faults ---- */

static bool at_work(const struct rb_sim_process *process)
{
	bool any = process->state == RB_SIM_SLEEPING || process->state == RB_SIM_WORKING;

	for (const struct rb_sim_member *member = process->members; member != NULL;
	     member = member->next)
		any = any || (member->nic != NULL && rb_sim_nic_at_work(member->nic));
	return any;
}

static void ports_stop(struct rb_sim_process *process)
{
	for (struct rb_sim_member *member = process->members; member != NULL; member = member->next)
		if (member->nic != NULL)
			rb_sim_nic_stop(member->nic);
}

static void crash(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;

	process->crashed = true;
	process->ghost = true;
	if (c->running)
		c->live--;
	rb_sim_event_unset(c, &process->timer);
	ports_stop(process);
	rb_sim_work_stop(process);
	rb_sim_core_leave(process);
	rb_sim_event_set(c, &process->lost_event, rb_deadline(c->now_ns, c->options.detect_ns));
}

static void fault_ends(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_fault *f =
		(struct rb_sim_fault *)((char *)e - offsetof(struct rb_sim_fault, end));
	struct rb_sim_process *process = &c->processes[f->what.rank];

	rb_sim_trace(c, RB_SIM_TRACE_FAULT_END, f->what.rank, f->what.peer, 0, f->what.kind);
	f->lasts = false;
	if (f->what.kind == RUBATO_SIM_CUT) {
		c->cuts--;
		release(c, &f->held);
		return;
	}
	if (--process->frozen > 0)
		return;
	if (process->stalled || process->state == RB_SIM_QUEUED) {
		process->stalled = false;
		if (!process->crashed)
			rb_sim_ready(process);
	}
	release(c, &process->held);
}

static void fault_starts(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_fault *f =
		(struct rb_sim_fault *)((char *)e - offsetof(struct rb_sim_fault, start));
	struct rb_sim_process *process = &c->processes[f->what.rank];

	rb_sim_trace(c, RB_SIM_TRACE_FAULT, f->what.rank, f->what.peer, f->what.for_ns,
		     f->what.kind);
	if (f->what.kind != RUBATO_SIM_CUT) {
		if (process->crashed || process->state == RB_SIM_ENDED)
			return;
		f->fired = at_work(process);
	}
	if (f->what.kind == RUBATO_SIM_CRASH) {
		crash(process);
		return;
	}
	f->lasts = true;
	if (f->what.kind == RUBATO_SIM_CUT)
		c->cuts++;
	else
		process->frozen++;
	rb_sim_event_set(c, &f->end, rb_deadline(c->now_ns, f->what.for_ns));
}

/* The others of its communicator learn. */
static void member_gone(struct rb_sim_member *member)
{
	struct rb_sim_comm *comm = member->comm;

	member->gone = true;
	if (member->gone_fails)
		comm->failures[comm->failure_count++] = member->rank;
	for (uint32_t i = 0; i < comm->rank_count; i++) {
		struct rb_sim_member *other = &comm->members[i];

		if (other == member || other->process == NULL || other->process->ghost)
			continue;
		if (rb_sim_nic_endpoint(other->nic) != NULL)
			rb_sim_nic_lost(other->nic, member->rank, member->gone_fails);
		if (member->gone_fails)
			rb_sim_news(other);
	}
}

static void process_lost(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;

	if (process->lost)
		return;
	process->lost = true;
	c->failures[c->failure_count++] = process->rank;
	for (uint32_t i = 0; i < c->options.rank_count; i++)
		if (i != process->rank && !c->processes[i].ghost)
			rb_sim_wake(&c->processes[i]); /* It may be parked. */
}

static void gone_fires(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_member *member =
		(struct rb_sim_member *)((char *)e - offsetof(struct rb_sim_member, gone_event));

	rb_sim_trace(c, RB_SIM_TRACE_GONE, member->process->rank, member->process->rank, 0,
		     member->gone_fails);
	member_gone(member);
	if (member->gone_fails)
		process_lost(member->process);
}

static void lost_fires(struct rb_sim_cluster *c, struct rb_sim_event *e)
{
	struct rb_sim_process *process =
		(struct rb_sim_process *)((char *)e - offsetof(struct rb_sim_process, lost_event));

	rb_sim_trace(c, RB_SIM_TRACE_GONE, process->rank, process->rank, 0, true);
	for (struct rb_sim_member *member = process->members; member != NULL;
	     member = member->next) {
		if (member->gone_fails || member->left)
			continue;
		member->gone_fails = true;
		member_gone(member);
	}
	process_lost(process);
}

void rb_sim_tell(struct rb_sim_member *member, uint64_t delay_ns, bool fails)
{
	struct rb_sim_cluster *c = member->process->cluster;

	if (member->gone_fails || member->left) /* Told, or about to be. */
		return;
	member->gone_fails = fails;
	member->left = !fails;
	rb_sim_event_set(c, &member->gone_event, rb_deadline(c->now_ns, delay_ns));
}

/* ---- Communicators ---- */

static void comm_free(struct rb_sim_comm *comm)
{
	for (uint32_t i = 0; comm->members != NULL && i < comm->rank_count; i++)
		rb_sim_nic_free(comm->members[i].nic);
	free(comm->members);
	free(comm->failures);
	free(comm);
}

static struct rb_sim_comm *comm_new(const uint8_t job[16], uint32_t rank_count)
{
	struct rb_sim_comm *comm = calloc(1, sizeof(*comm));

	if (comm == NULL)
		return NULL;
	memcpy(comm->job, job, sizeof(comm->job));
	comm->rank_count = rank_count;
	comm->members = calloc(rank_count, sizeof(*comm->members));
	comm->failures = calloc(rank_count, sizeof(*comm->failures));
	if (comm->members == NULL || comm->failures == NULL) {
		comm_free(comm);
		return NULL;
	}
	for (uint32_t i = 0; i < rank_count; i++) {
		comm->members[i].comm = comm;
		comm->members[i].rank = i;
		comm->members[i].gone_event = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
								      .to = RB_SIM_NOBODY,
								      .fire = gone_fires };
	}
	return comm;
}

rubato_status rb_sim_comm_get(struct rb_sim_cluster *c, const uint8_t job[16], uint32_t rank_count,
			      struct rb_sim_comm **out)
{
	struct rb_sim_comm *comm = c->comms;

	while (comm != NULL && memcmp(comm->job, job, sizeof(comm->job)) != 0)
		comm = comm->next;
	if (comm != NULL && comm->rank_count != rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: this job has %u ranks, not %u",
			       comm->rank_count, rank_count);
	if (comm == NULL) {
		comm = comm_new(job, rank_count);
		if (comm == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "sim: a communicator of %u ranks",
				       rank_count);
		comm->next = c->comms;
		c->comms = comm;
	}
	*out = comm;
	return RUBATO_OK;
}

static void groups_close(struct rb_sim_cluster *c)
{
	for (struct rb_sim_comm *comm = c->comms; comm != NULL; comm = comm->next)
		for (uint32_t i = 0; i < comm->rank_count; i++)
			if (rb_sim_nic_endpoint(comm->members[i].nic) != NULL)
				rb_transport_sim.close(rb_sim_nic_endpoint(comm->members[i].nic),
						       true, 0);
	while (c->comms != NULL) {
		struct rb_sim_comm *comm = c->comms;

		for (uint32_t i = 0; i < comm->rank_count; i++)
			rb_sim_event_unset(c, &comm->members[i].gone_event);
		c->comms = comm->next;
		comm_free(comm);
	}
}

/* ---- Open and close ---- */

static rubato_status device_check(const rubato_sim_device *device)
{
	if (device->present > 1 || device->network > 1 || !rb_sim_is_rate(device->copy_bandwidth) ||
	    !rb_sim_is_rate(device->memory_bandwidth) || device->launch_ns > RB_SIM_COST_MAX_NS)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: device present %u, network %u (0 or 1), %g and %g bytes a "
			       "second, %llu ns",
			       device->present, device->network, device->copy_bandwidth,
			       device->memory_bandwidth, (unsigned long long)device->launch_ns);
	return RUBATO_OK;
}

static rubato_status options_take(rubato_sim_options *o, const rubato_sim_options *given)
{
	if (given->size_bytes != sizeof(*given))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: options.size_bytes is %u, not %zu",
			       given->size_bytes, sizeof(*given));
	*o = *given;
	if (o->rank_count == 0 || o->rank_count > RANKS_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: %u ranks, not 1 to %u", o->rank_count,
			       RANKS_MAX);
	if (!rb_sim_is_rate(o->bandwidth) || !rb_sim_is_rate(o->node_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: bandwidths %g and %g bytes a second",
			       o->bandwidth, o->node_bandwidth);
	if (o->reorder > 1 || o->hollow > 1 || o->reserved2 != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "sim: reorder %u, hollow %u (0 or 1), reserved2 %u (0)", o->reorder,
			       o->hollow, o->reserved2);
	RB_TRY(device_check(&o->device));
	if (o->latency_ns > RB_SIM_COST_MAX_NS || o->node_latency_ns > RB_SIM_COST_MAX_NS)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: latencies of %llu and %llu ns",
			       (unsigned long long)o->latency_ns,
			       (unsigned long long)o->node_latency_ns);
	if (!(o->jitter >= 0) || o->jitter > 1e6)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: jitter %g", o->jitter);
	if (o->stack_bytes != 0 && o->stack_bytes < STACK_BYTES_MIN)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: stacks of %u bytes, at least %u",
			       o->stack_bytes, STACK_BYTES_MIN);
	o->latency_ns = o->latency_ns != 0 ? o->latency_ns : 5000;
	o->node_latency_ns = o->node_latency_ns != 0 ? o->node_latency_ns : 300;
	o->bandwidth = o->bandwidth > 0 ? o->bandwidth : 12.5e9;
	o->node_bandwidth = o->node_bandwidth > 0 ? o->node_bandwidth : 20e9;
	o->detect_ns = o->detect_ns != 0 ? o->detect_ns : 1000000;
	o->timeout_ns = o->timeout_ns != 0 ? o->timeout_ns : 60000000000u;
	o->stack_bytes = o->stack_bytes != 0 ? o->stack_bytes : STACK_BYTES;
	if (o->fault_count > 0 && o->faults == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: %u faults are NULL", o->fault_count);
	for (uint32_t i = 0; i < o->fault_count; i++) {
		const rubato_sim_fault *f = &o->faults[i];
		bool known = f->kind == RUBATO_SIM_FREEZE || f->kind == RUBATO_SIM_CRASH ||
			     f->kind == RUBATO_SIM_CUT;

		if (!known || f->rank >= o->rank_count || f->peer >= o->rank_count ||
		    (f->kind == RUBATO_SIM_CUT && f->rank == f->peer))
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "sim: fault %u: kind %u, rank %u, peer %u of %u ranks", i,
				       f->kind, f->rank, f->peer, o->rank_count);
	}
	return RUBATO_OK;
}

static void process_init(struct rb_sim_cluster *c, uint32_t rank)
{
	struct rb_sim_process *process = &c->processes[rank];

	process->cluster = c;
	process->rank = rank;
	process->state = RB_SIM_RUNNING;
	process->rng.state = rb_mix(c->options.seed ^ rb_mix(rank + 1));
	process->timer =
		(struct rb_sim_event) { .from = RB_SIM_NOBODY, .to = rank, .fire = timer_fires };
	process->lost_event = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
						      .to = RB_SIM_NOBODY,
						      .fire = lost_fires };
}

static void fault_init(struct rb_sim_cluster *c, struct rb_sim_fault *f,
		       const rubato_sim_fault *what)
{
	f->what = *what;
	f->start = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
					   .to = RB_SIM_NOBODY,
					   .fire = fault_starts };
	f->end = f->start;
	f->end.fire = fault_ends;
	c->crashes = c->crashes || what->kind == RUBATO_SIM_CRASH;
	rb_sim_event_set(c, &f->start, what->at_ns);
}

rubato_status rb_sim_cluster_open(const rubato_sim_options *options, struct rb_sim_cluster **out)
{
	rubato_sim_options o;
	struct rb_sim_cluster *c;
	rubato_status err;

	RB_TRY(options_take(&o, options));
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*c));
	c->options = o;
	c->rng.state = rb_mix(o.seed + 1);
	c->result.failed_rank = RB_SIM_NOBODY;
	c->heap_capacity = 2 * o.rank_count + o.fault_count + 64;
	c->heap = malloc(c->heap_capacity * sizeof(*c->heap));
	c->processes = calloc(o.rank_count, sizeof(*c->processes));
	c->failures = calloc(o.rank_count, sizeof(*c->failures));
	c->faults = calloc(o.fault_count + 1u, sizeof(*c->faults));
	if (c->heap == NULL || c->processes == NULL || c->failures == NULL || c->faults == NULL) {
		rb_sim_cluster_close(c);
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u ranks", o.rank_count);
	}
	for (uint32_t i = 0; i < o.rank_count; i++)
		process_init(c, i);
	err = rb_sim_nodes_open(c);
	if (err != RUBATO_OK) {
		rb_sim_cluster_close(c);
		return err;
	}
	for (uint32_t i = 0; i < o.fault_count; i++)
		fault_init(c, &c->faults[i], &o.faults[i]);
	c->options.faults = NULL; /* The caller's; ours are copies. */
	c->options.node_ranks = NULL;
	*out = c;
	return RUBATO_OK;
}

void rb_sim_cluster_close(struct rb_sim_cluster *c)
{
	if (c == NULL)
		return;
	/* What is closed from here on tells nobody. */
	for (uint32_t i = 0; c->processes != NULL && i < c->options.rank_count; i++)
		c->processes[i].ghost = true;
	groups_close(c);
	for (uint32_t i = 0; c->processes != NULL && i < c->options.rank_count; i++) {
		rb_sim_graves_free(&c->processes[i]);
		rb_fiber_close(c->processes[i].fiber);
	}
	rb_sim_nodes_close(c);
	rb_sim_devices_free(c);
	free(c->faults);
	free(c->failures);
	free(c->processes);
	free(c->heap);
	free(c);
}

/* ---- A run ---- */

static void process_main(void *arg)
{
	struct rb_sim_process *process = arg;

	process->status = process->cluster->main(process, process->cluster->arg);
	process->state = RB_SIM_ENDED;
	rb_sim_core_leave(process);
}

static void process_enter(struct rb_sim_process *process)
{
	struct rb_sim_cluster *c = process->cluster;

	process->state = RB_SIM_RUNNING;
	c->current = process;
	rb_fiber_enter(process->fiber);
	c->current = NULL;
	if (!rb_fiber_done(process->fiber) && !process->abandoned)
		return;
	if (process->abandoned)
		RB_LOG(RB_LOG_WARN, "sim: rank %u does not end; its memory is lost", process->rank);
	if (process->crashed)
		return;
	c->live--;
	if (process->abandoned)
		process->status = RUBATO_ERR_TIMEOUT;
	if (process->status != RUBATO_OK && c->result.first_error == RUBATO_OK) {
		c->result.first_error = process->status;
		c->result.failed_rank = process->rank;
		(void)snprintf(c->first_text, sizeof(c->first_text), "%s", rubato_error_text());
	}
}

static void cluster_end(struct rb_sim_cluster *c)
{
	if (c->end_status != RUBATO_OK) /* Only ghosts that were abandoned are left. */
		return;
	c->time_over = c->heap_count > 0;
	c->end_status = c->heap_full ? RUBATO_ERR_MEMORY : RUBATO_ERR_TIMEOUT;
	for (uint32_t i = 0; i < c->options.rank_count; i++) {
		struct rb_sim_process *process = &c->processes[i];

		if (process->crashed || process->state == RB_SIM_ENDED)
			continue;
		process->ghost = true;
		ports_stop(process);
		rb_sim_work_stop(process);
		rb_sim_ready(process);
	}
}

static rubato_status fibers_open(struct rb_sim_cluster *c)
{
	for (uint32_t i = 0; i < c->options.rank_count; i++)
		RB_TRY(rb_fiber_open(c->options.stack_bytes, process_main, &c->processes[i],
				     &c->processes[i].fiber));
	return RUBATO_OK;
}

rubato_status rb_sim_cluster_run(struct rb_sim_cluster *c,
				 rubato_status (*main)(struct rb_sim_process *process, void *arg),
				 void *arg)
{
	if (c->main != NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: this cluster has run already");
	RB_TRY(fibers_open(c));
	c->main = main;
	c->arg = arg;
	c->running = true;
	c->live = c->options.rank_count;
	for (uint32_t i = 0; i < c->options.rank_count; i++)
		rb_sim_ready(&c->processes[i]);
	while (c->live > 0) {
		struct rb_sim_process *process = ready_take(c);

		if (process != NULL)
			process_enter(process);
		else if (!advance(c))
			cluster_end(c);
	}
	c->result.end_ns = c->now_ns;
	for (uint32_t i = 0; i < c->options.rank_count; i++) {
		if (c->processes[i].crashed)
			process_enter(&c->processes[i]);
	}
	c->running = false;
	if (c->end_status != RUBATO_OK)
		return RB_FAIL(c->end_status, "sim: the run was ended at %llu ns: %s",
			       (unsigned long long)c->now_ns,
			       c->heap_full    ? "no memory for its events"
			       : !c->time_over ? "all ranks wait, for ever"
			       : time_last_ns(c) < RB_SIM_TIME_MAX_NS
				       ? "options.time_max_ns has passed"
				       : "virtual time lasts no longer (2^62 ns)");
	if (c->result.first_error != RUBATO_OK)
		return RB_FAIL(c->result.first_error, "rank %u: %s", c->result.failed_rank,
			       c->first_text);
	return RUBATO_OK;
}

void rb_sim_cluster_result(const struct rb_sim_cluster *c, rubato_sim_result *result)
{
	*result = c->result;
	if (c->running || c->main == NULL)
		result->end_ns = c->now_ns;
	for (uint32_t i = 0; i < c->options.fault_count; i++)
		result->faults_fired += c->faults[i].fired;
}

/* ---- Processes, from outside ---- */

struct rb_sim_process *rb_sim_cluster_process(struct rb_sim_cluster *c, uint32_t rank)
{
	return &c->processes[rank];
}

uint32_t rb_sim_process_rank(const struct rb_sim_process *process)
{
	return process->rank;
}

uint64_t rb_sim_process_now(const struct rb_sim_process *process)
{
	uint64_t now_ns = process->cluster->now_ns;

	return process->ghost && process->ghost_ns > now_ns ? process->ghost_ns : now_ns;
}

void rb_sim_process_park(struct rb_sim_process *process, uint64_t deadline_ns)
{
	if (!process->woken)
		rb_sim_block(process, RB_SIM_WAITING, deadline_ns);
	process->woken = false;
}

void rb_sim_process_unpark(struct rb_sim_process *process)
{
	rb_sim_wake(process);
}

bool rb_sim_process_alone(const struct rb_sim_process *process)
{
	return process->ghost;
}

bool rb_sim_cluster_lost(const struct rb_sim_cluster *c, uint32_t *rank)
{
	if (c->failure_count == 0)
		return false;
	*rank = c->failures[0];
	return true;
}
