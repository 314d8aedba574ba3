/* sim_world.c -- virtual time, ranks and faults: the scheduler of the simulator. */
#include "transport/sim/sim_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/sim/sim_world_inside.h"

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

static void heap_put(struct rb_sim_world *w, uint32_t at, struct rb_sim_slot slot)
{
	w->heap[at] = slot;
	slot.event->place = at + 1;
}

static void heap_up(struct rb_sim_world *w, uint32_t at, struct rb_sim_slot slot)
{
	while (at > 0 && earlier(&slot, &w->heap[(at - 1) / 2])) {
		heap_put(w, at, w->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_put(w, at, slot);
}

static void heap_down(struct rb_sim_world *w, uint32_t at, struct rb_sim_slot slot)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= w->heap_count)
			break;
		if (child + 1 < w->heap_count && earlier(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!earlier(&w->heap[child], &slot))
			break;
		heap_put(w, at, w->heap[child]);
		at = child;
	}
	heap_put(w, at, slot);
}

static void heap_remove(struct rb_sim_world *w, uint32_t at)
{
	struct rb_sim_slot last = w->heap[--w->heap_count];

	w->heap[at].event->place = 0;
	if (at == w->heap_count)
		return;
	if (at > 0 && earlier(&last, &w->heap[(at - 1) / 2]))
		heap_up(w, at, last);
	else
		heap_down(w, at, last);
}

static void queue_push(struct rb_sim_queue *q, struct rb_sim_event *e)
{
	e->queue = q;
	e->next = NULL;
	e->previous = q->last;
	if (q->last != NULL)
		q->last->next = e;
	else
		q->first = e;
	q->last = e;
}

static void queue_remove(struct rb_sim_event *e)
{
	struct rb_sim_queue *q = e->queue;

	if (e->previous != NULL)
		e->previous->next = e->next;
	else
		q->first = e->next;
	if (e->next != NULL)
		e->next->previous = e->previous;
	else
		q->last = e->previous;
	e->queue = NULL;
}

void rb_sim_event_unset(struct rb_sim_world *w, struct rb_sim_event *e)
{
	if (e->place != 0)
		heap_remove(w, e->place - 1);
	if (e->queue != NULL)
		queue_remove(e);
}

void rb_sim_event_set(struct rb_sim_world *w, struct rb_sim_event *e, uint64_t time_ns)
{
	rb_sim_event_unset(w, e);
	if (w->heap_count == w->heap_capacity) {
		uint32_t capacity = w->heap_capacity * 2;
		struct rb_sim_slot *heap = realloc(w->heap, capacity * sizeof(*heap));

		if (heap == NULL) {
			w->heap_full = true;
			return;
		}
		w->heap = heap;
		w->heap_capacity = capacity;
	}
	e->time_ns = time_ns > w->now_ns ? time_ns : w->now_ns;
	e->sequence = w->sequence++;
	w->heap_count++;
	heap_up(w, w->heap_count - 1, (struct rb_sim_slot) { e->time_ns, e->sequence, e });
}

void rb_sim_trace(struct rb_sim_world *w, enum rb_sim_trace kind, uint32_t from, uint32_t to,
		  uint64_t size_bytes, uint64_t what)
{
	uint64_t hash = w->result.trace_hash;

	hash = rb_mix(hash ^ w->now_ns ^ ((uint64_t)kind << 56));
	hash = rb_mix(hash ^ ((uint64_t)from << 32 | to));
	hash = rb_mix(hash ^ what ^ (size_bytes << 20 | size_bytes >> 44));
	w->result.trace_hash = hash;
	w->result.events++;
}

/* ---- Who runs ---- */

static void ready(struct rb_sim_seat *seat)
{
	struct rb_sim_world *w = seat->world;

	if (seat->frozen > 0 && !seat->ghost) {
		seat->stalled = true;
		return;
	}
	if (!w->running) { /* No fibers: whoever called block looks at the state. */
		seat->state = RB_SIM_RUNNING;
		return;
	}
	seat->state = RB_SIM_READY;
	seat->next_ready = NULL;
	if (w->ready_last != NULL)
		w->ready_last->next_ready = seat;
	else
		w->ready_first = seat;
	w->ready_last = seat;
}

static struct rb_sim_seat *ready_take(struct rb_sim_world *w)
{
	struct rb_sim_seat *seat = w->ready_first;

	if (seat != NULL) {
		w->ready_first = seat->next_ready;
		if (w->ready_first == NULL)
			w->ready_last = NULL;
	}
	return seat;
}

static void timer_fires(struct rb_sim_world *w, struct rb_sim_event *e)
{
	struct rb_sim_seat *seat = &w->seats[e->to];

	rb_sim_trace(w, RB_SIM_TRACE_TIMER, e->to, e->to, 0, 0);
	if (!seat->crashed && (seat->state == RB_SIM_WAITING || seat->state == RB_SIM_SLEEPING))
		ready(seat);
}

void rb_sim_news(struct rb_sim_place *place)
{
	struct rb_sim_seat *seat = place->seat;

	place->news = true;
	if (seat->crashed)
		return;
	if (seat->state == RB_SIM_WAITING ||
	    (seat->state == RB_SIM_SLEEPING && place->step != NULL))
		ready(seat);
}

bool rb_sim_step(struct rb_sim_seat *seat, const struct rb_sim_place *but)
{
	bool any = false;

	for (struct rb_sim_place *place = seat->places; place != NULL; place = place->next) {
		if (place == but || place->step == NULL ||
		    (!place->news && rb_sim_seat_now(seat) < place->step_ns))
			continue;
		place->news = false;
		place->step_ns = place->step(place->step_arg);
		any = true;
	}
	return any;
}

uint64_t rb_sim_step_next(const struct rb_sim_seat *seat, const struct rb_sim_place *but)
{
	uint64_t next_ns = UINT64_MAX;

	for (const struct rb_sim_place *place = seat->places; place != NULL; place = place->next)
		if (place != but && place->step != NULL && place->step_ns < next_ns)
			next_ns = place->step_ns;
	return next_ns;
}

void rb_sim_wake(struct rb_sim_seat *seat)
{
	seat->woken = true;
	if (!seat->crashed && seat->state == RB_SIM_WAITING)
		ready(seat);
}

/* ---- Time ---- */

static void happen(struct rb_sim_world *w, struct rb_sim_event *e)
{
	if (w->cuts > 0 && e->from != RB_SIM_NOBODY) {
		for (uint32_t i = 0; i < w->options.fault_count; i++) {
			struct rb_sim_fault *f = &w->faults[i];
			uint32_t a = f->what.rank, b = f->what.peer;

			if (f->what.kind != RUBATO_SIM_CUT || !f->lasts ||
			    !((e->from == a && e->to == b) || (e->from == b && e->to == a)))
				continue;
			f->fired = true;
			queue_push(&f->held, e);
			return;
		}
	}
	if (e->to != RB_SIM_NOBODY && w->seats[e->to].frozen > 0) {
		queue_push(&w->seats[e->to].held, e);
		return;
	}
	e->fire(w, e);
}

/* In the order in which they were held back, before anything else of this moment. */
static void release(struct rb_sim_world *w, struct rb_sim_queue *q)
{
	struct rb_sim_queue all = *q;

	*q = (struct rb_sim_queue) { NULL, NULL };
	for (struct rb_sim_event *e = all.first; e != NULL; e = e->next)
		e->queue = &all;
	while (all.first != NULL) {
		struct rb_sim_event *e = all.first;

		queue_remove(e);
		happen(w, e);
	}
}

/* The next event; false: there is none, or none that may be. */
static bool advance(struct rb_sim_world *w)
{
	struct rb_sim_event *e;

	if (w->heap_full || w->heap_count == 0)
		return false;
	e = w->heap[0].event;
	if (w->options.time_max_ns != 0 && e->time_ns > w->options.time_max_ns) {
		w->now_ns = w->options.time_max_ns;
		return false;
	}
	heap_remove(w, 0);
	w->now_ns = e->time_ns;
	happen(w, e);
	return true;
}

static bool ghost_call(struct rb_sim_seat *seat)
{
	if (++seat->ghost_calls > GHOST_CALLS_MAX && seat->fiber != NULL) {
		seat->abandoned = true;
		rb_fiber_leave(seat->fiber); /* For good. */
	}
	return true;
}

static void suspend(struct rb_sim_seat *seat, enum rb_sim_state state, uint64_t deadline_ns)
{
	struct rb_sim_world *w = seat->world;

	if (seat->ghost && ghost_call(seat)) {
		if (deadline_ns > seat->ghost_ns)
			seat->ghost_ns = deadline_ns;
		return;
	}
	seat->idle = 0;
	seat->state = state;
	if (deadline_ns != UINT64_MAX)
		rb_sim_event_set(w, &seat->timer, deadline_ns);
	if (w->running) {
		rb_fiber_leave(seat->fiber);
	} else {
		while (seat->state == state && !seat->ghost && advance(w))
			;
	}
	seat->state = RB_SIM_RUNNING;
	rb_sim_event_unset(w, &seat->timer);
	if (seat->ghost && deadline_ns > seat->ghost_ns)
		seat->ghost_ns = deadline_ns; /* The world ended meanwhile. */
}

void rb_sim_idle(struct rb_sim_seat *seat)
{
	uint64_t now_ns = rb_sim_seat_now(seat);

	if (++seat->idle >= IDLE_MAX) {
		seat->idle = 0;
		suspend(seat, RB_SIM_WAITING, rb_deadline(now_ns, IDLE_NS));
	}
}

void rb_sim_block(struct rb_sim_seat *seat, enum rb_sim_state state, uint64_t deadline_ns)
{
	if (deadline_ns <= rb_sim_seat_now(seat))
		rb_sim_idle(seat);
	else
		suspend(seat, state, deadline_ns);
}

/* ---- Faults ---- */

static bool at_work(const struct rb_sim_seat *seat)
{
	bool any = seat->state == RB_SIM_SLEEPING;

	for (const struct rb_sim_place *place = seat->places; place != NULL; place = place->next)
		any = any || (place->port != NULL && rb_sim_port_at_work(place->port));
	return any;
}

static void ports_stop(struct rb_sim_seat *seat)
{
	for (struct rb_sim_place *place = seat->places; place != NULL; place = place->next)
		if (place->port != NULL)
			rb_sim_port_stop(place->port);
}

static void crash(struct rb_sim_seat *seat)
{
	struct rb_sim_world *w = seat->world;

	seat->crashed = true;
	seat->ghost = true;
	if (w->running)
		w->live--;
	rb_sim_event_unset(w, &seat->timer);
	ports_stop(seat);
	rb_sim_event_set(w, &seat->lost_event, rb_deadline(w->now_ns, w->options.detect_ns));
}

static void fault_ends(struct rb_sim_world *w, struct rb_sim_event *e)
{
	struct rb_sim_fault *f =
		(struct rb_sim_fault *)((char *)e - offsetof(struct rb_sim_fault, end));
	struct rb_sim_seat *seat = &w->seats[f->what.rank];

	rb_sim_trace(w, RB_SIM_TRACE_FAULT_END, f->what.rank, f->what.peer, 0, f->what.kind);
	f->lasts = false;
	if (f->what.kind == RUBATO_SIM_CUT) {
		w->cuts--;
		release(w, &f->held);
		return;
	}
	if (--seat->frozen > 0)
		return;
	if (seat->stalled) {
		seat->stalled = false;
		if (!seat->crashed)
			ready(seat);
	}
	release(w, &seat->held);
}

static void fault_starts(struct rb_sim_world *w, struct rb_sim_event *e)
{
	struct rb_sim_fault *f =
		(struct rb_sim_fault *)((char *)e - offsetof(struct rb_sim_fault, start));
	struct rb_sim_seat *seat = &w->seats[f->what.rank];

	rb_sim_trace(w, RB_SIM_TRACE_FAULT, f->what.rank, f->what.peer, f->what.for_ns,
		     f->what.kind);
	if (f->what.kind != RUBATO_SIM_CUT) {
		if (seat->crashed || seat->state == RB_SIM_ENDED)
			return;
		f->fired = at_work(seat);
	}
	if (f->what.kind == RUBATO_SIM_CRASH) {
		crash(seat);
		return;
	}
	f->lasts = true;
	if (f->what.kind == RUBATO_SIM_CUT)
		w->cuts++;
	else
		seat->frozen++;
	rb_sim_event_set(w, &f->end, rb_deadline(w->now_ns, f->what.for_ns));
}

/* The others of its group learn. */
static void place_gone(struct rb_sim_place *place)
{
	struct rb_sim_group *g = place->group;

	place->gone = true;
	if (place->gone_fails)
		g->failures[g->failure_count++] = place->rank;
	for (uint32_t i = 0; i < g->rank_count; i++) {
		struct rb_sim_place *other = &g->places[i];

		if (other == place || other->seat == NULL || other->seat->ghost)
			continue;
		if (rb_sim_port_endpoint(other->port) != NULL)
			rb_sim_port_lost(other->port, place->rank, place->gone_fails);
		if (place->gone_fails)
			rb_sim_news(other);
	}
}

static void seat_lost(struct rb_sim_seat *seat)
{
	struct rb_sim_world *w = seat->world;

	if (seat->lost)
		return;
	seat->lost = true;
	w->failures[w->failure_count++] = seat->rank;
	for (uint32_t i = 0; i < w->options.rank_count; i++)
		if (i != seat->rank && !w->seats[i].ghost)
			rb_sim_wake(&w->seats[i]); /* It may be parked. */
}

static void gone_fires(struct rb_sim_world *w, struct rb_sim_event *e)
{
	struct rb_sim_place *place =
		(struct rb_sim_place *)((char *)e - offsetof(struct rb_sim_place, gone_event));

	rb_sim_trace(w, RB_SIM_TRACE_GONE, place->seat->rank, place->seat->rank, 0,
		     place->gone_fails);
	place_gone(place);
	if (place->gone_fails)
		seat_lost(place->seat);
}

static void lost_fires(struct rb_sim_world *w, struct rb_sim_event *e)
{
	struct rb_sim_seat *seat =
		(struct rb_sim_seat *)((char *)e - offsetof(struct rb_sim_seat, lost_event));

	rb_sim_trace(w, RB_SIM_TRACE_GONE, seat->rank, seat->rank, 0, true);
	for (struct rb_sim_place *place = seat->places; place != NULL; place = place->next) {
		if (place->gone_fails || place->left)
			continue;
		place->gone_fails = true;
		place_gone(place);
	}
	seat_lost(seat);
}

void rb_sim_tell(struct rb_sim_place *place, uint64_t delay_ns, bool fails)
{
	struct rb_sim_world *w = place->seat->world;

	if (place->gone_fails || place->left) /* Told, or about to be. */
		return;
	place->gone_fails = fails;
	place->left = !fails;
	rb_sim_event_set(w, &place->gone_event, rb_deadline(w->now_ns, delay_ns));
}

/* ---- Groups ---- */

static void group_free(struct rb_sim_group *g)
{
	for (uint32_t i = 0; g->places != NULL && i < g->rank_count; i++)
		rb_sim_port_free(g->places[i].port);
	free(g->places);
	free(g->failures);
	free(g);
}

static struct rb_sim_group *group_new(const uint8_t job[16], uint32_t rank_count)
{
	struct rb_sim_group *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	memcpy(g->job, job, sizeof(g->job));
	g->rank_count = rank_count;
	g->places = calloc(rank_count, sizeof(*g->places));
	g->failures = calloc(rank_count, sizeof(*g->failures));
	if (g->places == NULL || g->failures == NULL) {
		group_free(g);
		return NULL;
	}
	for (uint32_t i = 0; i < rank_count; i++) {
		g->places[i].group = g;
		g->places[i].rank = i;
		g->places[i].gone_event = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
								  .to = RB_SIM_NOBODY,
								  .fire = gone_fires };
	}
	return g;
}

rubato_status rb_sim_group_get(struct rb_sim_world *w, const uint8_t job[16], uint32_t rank_count,
			       struct rb_sim_group **out)
{
	struct rb_sim_group *g = w->groups;

	while (g != NULL && memcmp(g->job, job, sizeof(g->job)) != 0)
		g = g->next;
	if (g != NULL && g->rank_count != rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: this job has %u ranks, not %u",
			       g->rank_count, rank_count);
	if (g == NULL) {
		g = group_new(job, rank_count);
		if (g == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "sim: a group of %u", rank_count);
		g->next = w->groups;
		w->groups = g;
	}
	*out = g;
	return RUBATO_OK;
}

static void groups_close(struct rb_sim_world *w)
{
	for (struct rb_sim_group *g = w->groups; g != NULL; g = g->next)
		for (uint32_t i = 0; i < g->rank_count; i++)
			if (rb_sim_port_endpoint(g->places[i].port) != NULL)
				rb_transport_sim.close(rb_sim_port_endpoint(g->places[i].port),
						       true, 0);
	while (w->groups != NULL) {
		struct rb_sim_group *g = w->groups;

		for (uint32_t i = 0; i < g->rank_count; i++)
			rb_sim_event_unset(w, &g->places[i].gone_event);
		w->groups = g->next;
		group_free(g);
	}
}

/* ---- Open and close ---- */

static rubato_status options_take(rubato_sim_options *o, const rubato_sim_options *given)
{
	if (given->size_bytes != sizeof(*given))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: options.size_bytes is %u, not %zu",
			       given->size_bytes, sizeof(*given));
	*o = *given;
	if (o->rank_count == 0 || o->rank_count > RANKS_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: %u ranks, not 1 to %u", o->rank_count,
			       RANKS_MAX);
	if (!(o->bandwidth >= 0) || !isfinite(o->bandwidth) || !(o->node_bandwidth >= 0) ||
	    !isfinite(o->node_bandwidth))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: bandwidths %g and %g bytes a second",
			       o->bandwidth, o->node_bandwidth);
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

static void seat_init(struct rb_sim_world *w, uint32_t rank)
{
	struct rb_sim_seat *seat = &w->seats[rank];

	seat->world = w;
	seat->rank = rank;
	seat->state = RB_SIM_RUNNING;
	seat->rng.state = rb_mix(w->options.seed ^ rb_mix(rank + 1));
	seat->timer =
		(struct rb_sim_event) { .from = RB_SIM_NOBODY, .to = rank, .fire = timer_fires };
	seat->lost_event = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
						   .to = RB_SIM_NOBODY,
						   .fire = lost_fires };
}

static void fault_init(struct rb_sim_world *w, struct rb_sim_fault *f, const rubato_sim_fault *what)
{
	f->what = *what;
	f->start = (struct rb_sim_event) { .from = RB_SIM_NOBODY,
					   .to = RB_SIM_NOBODY,
					   .fire = fault_starts };
	f->end = f->start;
	f->end.fire = fault_ends;
	w->crashes = w->crashes || what->kind == RUBATO_SIM_CRASH;
	rb_sim_event_set(w, &f->start, what->at_ns);
}

rubato_status rb_sim_world_open(const rubato_sim_options *options, struct rb_sim_world **out)
{
	rubato_sim_options o;
	struct rb_sim_world *w;

	RB_TRY(options_take(&o, options));
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*w));
	w->options = o;
	w->rng.state = rb_mix(o.seed + 1);
	w->result.failed_rank = RB_SIM_NOBODY;
	w->heap_capacity = 2 * o.rank_count + o.fault_count + 64;
	w->heap = malloc(w->heap_capacity * sizeof(*w->heap));
	w->seats = calloc(o.rank_count, sizeof(*w->seats));
	w->failures = calloc(o.rank_count, sizeof(*w->failures));
	w->faults = calloc(o.fault_count + 1u, sizeof(*w->faults));
	if (w->heap == NULL || w->seats == NULL || w->failures == NULL || w->faults == NULL) {
		rb_sim_world_close(w);
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u ranks", o.rank_count);
	}
	for (uint32_t i = 0; i < o.rank_count; i++)
		seat_init(w, i);
	for (uint32_t i = 0; i < o.fault_count; i++)
		fault_init(w, &w->faults[i], &o.faults[i]);
	w->options.faults = NULL; /* The caller's; ours are copies. */
	*out = w;
	return RUBATO_OK;
}

void rb_sim_world_close(struct rb_sim_world *w)
{
	if (w == NULL)
		return;
	/* What is closed from here on tells nobody. */
	for (uint32_t i = 0; w->seats != NULL && i < w->options.rank_count; i++)
		w->seats[i].ghost = true;
	groups_close(w);
	for (uint32_t i = 0; w->seats != NULL && i < w->options.rank_count; i++) {
		rb_sim_graves_free(&w->seats[i]);
		rb_fiber_close(w->seats[i].fiber);
	}
	free(w->faults);
	free(w->failures);
	free(w->seats);
	free(w->heap);
	free(w);
}

/* ---- A run ---- */

static void seat_main(void *arg)
{
	struct rb_sim_seat *seat = arg;

	seat->status = seat->world->main(seat, seat->world->arg);
	seat->state = RB_SIM_ENDED;
}

static void seat_enter(struct rb_sim_seat *seat)
{
	struct rb_sim_world *w = seat->world;

	seat->state = RB_SIM_RUNNING;
	w->current = seat;
	rb_fiber_enter(seat->fiber);
	w->current = NULL;
	if (!rb_fiber_done(seat->fiber) && !seat->abandoned)
		return;
	if (seat->abandoned)
		RB_LOG(RB_LOG_WARN, "sim: rank %u does not end; its memory is lost", seat->rank);
	if (seat->crashed)
		return;
	w->live--;
	if (seat->abandoned)
		seat->status = RUBATO_ERR_TIMEOUT;
	if (seat->status != RUBATO_OK && w->result.first_error == RUBATO_OK) {
		w->result.first_error = seat->status;
		w->result.failed_rank = seat->rank;
		(void)snprintf(w->first_text, sizeof(w->first_text), "%s", rb_fail_text());
	}
}

static void world_end(struct rb_sim_world *w)
{
	if (w->end_status != RUBATO_OK) /* Only ghosts that were abandoned are left. */
		return;
	w->end_status = w->heap_full ? RUBATO_ERR_MEMORY : RUBATO_ERR_TIMEOUT;
	for (uint32_t i = 0; i < w->options.rank_count; i++) {
		struct rb_sim_seat *seat = &w->seats[i];

		if (seat->crashed || seat->state == RB_SIM_ENDED)
			continue;
		seat->ghost = true;
		ports_stop(seat);
		ready(seat);
	}
}

static rubato_status fibers_open(struct rb_sim_world *w)
{
	for (uint32_t i = 0; i < w->options.rank_count; i++)
		RB_TRY(rb_fiber_open(w->options.stack_bytes, seat_main, &w->seats[i],
				     &w->seats[i].fiber));
	return RUBATO_OK;
}

rubato_status rb_sim_world_run(struct rb_sim_world *w,
			       rubato_status (*main)(struct rb_sim_seat *seat, void *arg),
			       void *arg)
{
	if (w->main != NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: this world has run already");
	RB_TRY(fibers_open(w));
	w->main = main;
	w->arg = arg;
	w->running = true;
	w->live = w->options.rank_count;
	for (uint32_t i = 0; i < w->options.rank_count; i++)
		ready(&w->seats[i]);
	while (w->live > 0) {
		struct rb_sim_seat *seat = ready_take(w);

		if (seat != NULL)
			seat_enter(seat);
		else if (!advance(w))
			world_end(w);
	}
	w->result.end_ns = w->now_ns;
	for (uint32_t i = 0; i < w->options.rank_count; i++) {
		if (w->seats[i].crashed)
			seat_enter(&w->seats[i]);
	}
	w->running = false;
	if (w->end_status != RUBATO_OK)
		return RB_FAIL(w->end_status, "sim: the run was ended at %llu ns: %s",
			       (unsigned long long)w->now_ns,
			       w->heap_full        ? "no memory for its events"
			       : w->heap_count > 0 ? "options.time_max_ns has passed"
						   : "all ranks wait, for ever");
	if (w->result.first_error != RUBATO_OK)
		return RB_FAIL(w->result.first_error, "rank %u: %s", w->result.failed_rank,
			       w->first_text);
	return RUBATO_OK;
}

void rb_sim_world_result(const struct rb_sim_world *w, rubato_sim_result *result)
{
	*result = w->result;
	if (w->running || w->main == NULL)
		result->end_ns = w->now_ns;
	for (uint32_t i = 0; i < w->options.fault_count; i++)
		result->faults_fired += w->faults[i].fired;
}

/* ---- Seats, from outside ---- */

struct rb_sim_seat *rb_sim_world_seat(struct rb_sim_world *w, uint32_t rank)
{
	return &w->seats[rank];
}

uint32_t rb_sim_seat_rank(const struct rb_sim_seat *seat)
{
	return seat->rank;
}

uint64_t rb_sim_seat_now(const struct rb_sim_seat *seat)
{
	uint64_t now_ns = seat->world->now_ns;

	return seat->ghost && seat->ghost_ns > now_ns ? seat->ghost_ns : now_ns;
}

void rb_sim_seat_park(struct rb_sim_seat *seat, uint64_t deadline_ns)
{
	if (!seat->woken)
		rb_sim_block(seat, RB_SIM_WAITING, deadline_ns);
	seat->woken = false;
}

void rb_sim_seat_unpark(struct rb_sim_seat *seat)
{
	rb_sim_wake(seat);
}

bool rb_sim_seat_alone(const struct rb_sim_seat *seat)
{
	return seat->ghost;
}

bool rb_sim_world_lost(const struct rb_sim_world *w, uint32_t *rank)
{
	if (w->failure_count == 0)
		return false;
	*rank = w->failures[0];
	return true;
}
