/*
 * run.c -- executes one rank's schedule: starts iterations whose dependencies are met, counts
 * completions, wakes successors. Nothing here blocks, recurses or allocates in steady state.
 *
 * Per step: started iterations are at most RB_WINDOW ahead of `done`, the length of the completed
 * prefix; completions beyond the prefix wait as bits in `finished`. When `done` grows, the step and
 * its successors become dirty; rb_run_advance looks at dirty steps, lowest first, until none is
 * left. A short plan (plan.h) needs none of this: a bit tells all about a step. Where nothing else
 * is under way it is carried out straight on (straight.h) as far as that goes, and on from there by
 * the first thread that waits; with the first poll, what is left is started as in other plans.
 */
#include "runtime/engine/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/coded.h"
#include "runtime/engine/straight.h"

#define RB_AFTER_MAX 32 /* A step that would wait for more events waits until some are over. */

_Static_assert(RB_WINDOW <= 32, "finished is 32 bits wide");

/* For executors that wait by themselves: what a step that starts waits for, and each step's events,
 * of the iterations that are under way. */
struct rb_run_events {
	struct rb_event after[RB_AFTER_MAX];
	uint32_t after_count;
	uint64_t numbers[];
};

static rubato_status events_prepare(struct rb_run *run, uint32_t step_count)
{
	size_t numbers = (size_t)step_count * RB_WINDOW * sizeof(uint64_t);

	if (run->events != NULL && run->event_capacity >= step_count)
		return RUBATO_OK;
	free(run->events);
	run->events = calloc(1, sizeof(*run->events) + numbers);
	run->event_capacity = step_count;
	return run->events != NULL ? RUBATO_OK
				   : RB_FAIL(RUBATO_ERR_MEMORY, "run of %u steps", step_count);
}

rubato_status rb_run_init(struct rb_run *run, struct rb_plan *plan)
{
	uint32_t step_count = plan->schedule.step_count;

	run->plan = plan;
	if (plan->staged)
		RB_TRY(events_prepare(run, step_count));
	if (run->states != NULL && run->step_capacity >= step_count)
		return RUBATO_OK;
	free(run->states);
	free(run->dirty);
	run->states = calloc(step_count + 1, sizeof(*run->states));
	run->dirty = calloc(step_count / 64 + 1, sizeof(*run->dirty));
	run->step_capacity = step_count;
	if (run->states == NULL || run->dirty == NULL) {
		rb_run_fini(run);
		return RB_FAIL(RUBATO_ERR_MEMORY, "run of %u steps", step_count);
	}
	return RUBATO_OK;
}

void rb_run_fini(struct rb_run *run)
{
	RB_ASSERT(!run->active);
	free(run->states);
	free(run->dirty);
	free(run->events);
	run->events = NULL;
	run->states = NULL;
	run->dirty = NULL;
	run->step_capacity = run->event_capacity = 0;
}

static void mark(struct rb_run *run, uint32_t step)
{
	run->dirty[step / 64] |= (uint64_t)1 << (step % 64);
}

static inline void completed_short(struct rb_run *run, uint32_t step)
{
	const struct rb_plan *plan = run->plan;

	run->steps_left--;
	run->done_steps |= UINT64_C(1) << step;
	/* What is left out counts as done. */
	for (uint64_t wakes = plan->wakes[step] & ~run->done_steps; wakes != 0;
	     wakes &= wakes - 1) {
		uint32_t next = (uint32_t)__builtin_ctzll(wakes);

		if ((plan->needs[next] & ~run->done_steps) == 0)
			run->ready_steps |= UINT64_C(1) << next;
	}
}

static void completed_long(struct rb_run *run, uint32_t step, uint32_t iteration)
{
	const struct rb_plan *plan = run->plan;
	struct rb_step_state *state = &run->states[step];

	RB_ASSERT(iteration >= state->done && iteration - state->done < 32);
	state->finished |= 1u << (iteration - state->done);
	if (!(state->finished & 1u))
		return;
	while (state->finished & 1u) {
		state->finished >>= 1;
		state->done++;
	}
	if (state->done == plan->iterations[step])
		run->steps_left--;
	mark(run, step);
	for (uint32_t i = plan->successor_first[step]; i < plan->successor_first[step + 1]; i++)
		mark(run, plan->successors[i]);
}

static inline void completed(struct rb_run *run, uint32_t step, uint32_t iteration)
{
	if (run->plan->is_short)
		completed_short(run, step);
	else
		completed_long(run, step, iteration);
}

static bool ready(const struct rb_run *run, const struct rb_step *step, uint32_t iteration)
{
	const struct rb_dep *dep = &run->plan->schedule.deps[step->dep];

	for (uint32_t i = 0; i < step->dep_count; i++, dep++)
		if (run->states[dep->step].done < rb_plan_need(run->plan, dep, iteration))
			return false;
	return true;
}

/* ---- Events ---- */

static inline bool on_device(const struct rb_step *step)
{
	return (step->flags & RB_STEP_DEVICE) != 0;
}

static inline bool is_work(const struct rb_step *step)
{
	return step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE;
}

static uint8_t crosses_of(const struct rb_run *run)
{
	uint8_t crosses = 0;

	for (uint32_t i = 0; i < 4 && run->executors != NULL; i++) {
		const struct rb_executor *a = run->executors[i / 2], *b = run->executors[i % 2];

		if (a->ops->waits_for != NULL && a->ops->waits_for(a, b))
			crosses |= (uint8_t)(1u << i);
	}
	return crosses;
}

/* Adds iterations done .. need - 1 of step `index`; false: some have not started, or are too many
 * or not events that `step` can wait for. */
static bool after_add(struct rb_run *run, const struct rb_step *step, uint32_t index, uint32_t need)
{
	const struct rb_step *before = &run->plan->schedule.steps[index];
	const struct rb_step_state *state = &run->states[index];
	struct rb_run_events *events = run->events;

	if (!is_work(before) || state->started < need ||
	    !(run->crosses >> (2 * on_device(step) + on_device(before)) & 1))
		return false;
	for (uint32_t c = state->done; c < need; c++) {
		if (state->finished >> (c - state->done) & 1)
			continue;
		if (events->after_count == RB_AFTER_MAX)
			return false;
		events->after[events->after_count++] = (struct rb_event) {
			run->executors[on_device(before)],
			events->numbers[index * RB_WINDOW + c % RB_WINDOW],
		};
	}
	return true;
}

/* As ready(), but that dependencies may be under way on an executor, if its events are waited
 * for. */
static bool ready_after(struct rb_run *run, const struct rb_step *step, uint32_t iteration)
{
	const struct rb_dep *dep = &run->plan->schedule.deps[step->dep];

	run->events->after_count = 0;
	for (uint32_t i = 0; i < step->dep_count; i++, dep++) {
		uint32_t need = rb_plan_need(run->plan, dep, iteration);

		if (run->states[dep->step].done < need && !after_add(run, step, dep->step, need))
			return false;
	}
	return true;
}

static inline bool startable(struct rb_run *run, const struct rb_step *step, uint32_t iteration)
{
	if (run->crosses != 0 && is_work(step))
		return ready_after(run, step, iteration);
	return ready(run, step, iteration);
}

/* ---- Spans ---- */

static inline uint64_t span_at(const struct rb_run *run, uint32_t span_index, uint32_t c)
{
	const struct rb_plan *plan = run->plan;
	uint64_t at =
		c == 0 ? plan->span_first[span_index] : rb_plan_span_later(plan, span_index, c);

	return plan->schedule.spans[span_index].buffer == RB_BUF_SCRATCH ? at + run->set_at : at;
}

static void *resolve_peer(struct rb_engine *engine, const struct rb_run *run,
			  const struct rb_span *span, uint64_t size_bytes)
{
	uint8_t *base = run->peers[span->rank].mapped[span->buffer];

	RB_ASSERT(RB_IMPLIES(size_bytes > 0, base != NULL));
	engine->bytes_mapped += size_bytes;
	return base;
}

static void *resolve_alternating(struct rb_engine *engine, const struct rb_run *run,
				 const struct rb_span *both, uint32_t c, uint64_t size_bytes)
{
	struct rb_span span = rb_span_in_turn(*both, run->turns + c);
	uint8_t *base = span.rank == RB_SELF ? run->buffers[span.buffer].base
					     : resolve_peer(engine, run, &span, size_bytes);

	return base + rb_plan_slot(run->plan, span.buffer, span.slot);
}

static inline void *resolve(struct rb_engine *engine, const struct rb_run *run, uint32_t span_index,
			    uint32_t c, uint64_t size_bytes)
{
	const struct rb_span *span = &run->plan->schedule.spans[span_index];
	uint8_t *base = run->buffers[span->buffer].base;

	if (span->alternates)
		return resolve_alternating(engine, run, span, c, size_bytes);
	if (span->rank != RB_SELF)
		base = resolve_peer(engine, run, span, size_bytes);
	return size_bytes > 0 ? base + span_at(run, span_index, c) : base;
}

static void slot_unlink(struct rb_run *run, struct rb_slot *slot)
{
	*(slot->previous != NULL ? &slot->previous->next : &run->slots) = slot->next;
	if (slot->next != NULL)
		slot->next->previous = slot->previous;
}

static void slot_link(struct rb_run *run, struct rb_slot *slot)
{
	slot->previous = NULL;
	slot->next = run->slots;
	if (run->slots != NULL)
		run->slots->previous = slot;
	run->slots = slot;
}

static void advance(struct rb_engine *engine, struct rb_run *run);

static void slot_failed(struct rb_engine *engine, struct rb_run *run, const struct rb_slot *slot,
			rubato_status status)
{
	if (status == RUBATO_ERR_PEER || status == RUBATO_ERR_MISMATCH) { /* Why, may be here. */
		bool advancing = run->advancing;

		run->advancing = true;
		rb_engine_hear(engine, &slot->request);
		run->advancing = advancing;
	}
	if (run->status == RUBATO_OK)
		run->status = rb_run_failure(engine, run, slot, run->failure, sizeof(run->failure));
}

/* A slot's request or work is done: by poll (advance follows), or at once when it is started. */
static inline void slot_finished(struct rb_engine *engine, struct rb_run *run, struct rb_slot *slot)
{
	rubato_status status = slot->is_work ? slot->work.status : slot->request.status;
	uint32_t step = slot->step, iteration = slot->iteration;

	if (__builtin_expect(status != RUBATO_OK, 0))
		slot_failed(engine, run, slot, status);
	rb_slot_give(engine, slot);
	if (status == RUBATO_OK)
		completed(run, step, iteration);
}

static void run_slot_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_run *run = slot->owner;

	slot_unlink(run, slot);
	slot_finished(engine, run, slot);
	advance(engine, run);
}

/* The buffer that a message is read from or written to. */
static void buffer_set(struct rb_engine *engine, const struct rb_run *run, struct rb_slot *slot,
		       uint32_t span_index, uint64_t bytes)
{
	const struct rb_span *span = &run->plan->schedule.spans[span_index];
	struct rb_request *request = &slot->request;

	request->buffer = resolve(engine, run, span_index, slot->iteration, bytes);
	request->size_bytes = (size_t)bytes;
	request->where = span->rank == RB_SELF ? &run->buffers[span->buffer] : NULL;
}

static void message_start(struct rb_engine *engine, struct rb_run *run, struct rb_slot *slot,
			  uint64_t count)
{
	const struct rb_step *step = &run->plan->schedule.steps[slot->step];
	struct rb_endpoint *ep = rb_engine_endpoint(engine, rb_run_peer(run, step));
	struct rb_request *request = &slot->request;
	uint64_t bytes = count * run->plan->key.element_bytes;

	request->peer = rb_run_peer(run, step);
	request->tag = rb_tag_step(run->tag, step->channel, slot->iteration);
	request->signature = run->signature;
	request->signature.count = rb_run_count(run, slot->step);
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
	request->buffer = NULL;
	request->size_bytes = 0;
	request->where = NULL;
	switch ((enum rb_step_kind)step->kind) {
	case RB_STEP_SEND:
		buffer_set(engine, run, slot, step->from, bytes);
		ep->ops->send(ep, request);
		break;
	case RB_STEP_NOTIFY:
		ep->ops->send(ep, request);
		break;
	case RB_STEP_RECV:
		buffer_set(engine, run, slot, step->to, bytes);
		ep->ops->recv(ep, request);
		break;
	case RB_STEP_WAIT:
		ep->ops->recv(ep, request);
		break;
	case RB_STEP_PUT: {
		uint8_t buffer = run->plan->schedule.spans[step->to].buffer;
		const struct rb_peer_buffers *peer = &run->peers[step->peer];

		buffer_set(engine, run, slot, step->from, bytes);
		request->remote = peer->remote[buffer];
		request->remote_offset =
			peer->remote_offset[buffer] + span_at(run, step->to, slot->iteration);
		ep->ops->put(ep, request);
		break;
	}
	case RB_STEP_COPY:
	case RB_STEP_REDUCE:
		RB_ASSERT(false);
	}
}

static bool operands_room(struct rb_slot *slot, uint32_t count)
{
	const void **more;

	if (count <= RB_OPERANDS_INLINE || count <= slot->operands_more_count)
		return true;
	more = realloc(slot->operands_more, count * sizeof(*more));
	if (more == NULL)
		return false;
	slot->operands_more = more;
	slot->operands_more_count = count;
	return true;
}

/* It is an event now, which other steps may wait for without us. */
static void enqueued(struct rb_run *run, const struct rb_slot *slot)
{
	const struct rb_plan *plan = run->plan;
	uint32_t step = slot->step;

	run->events->numbers[step * RB_WINDOW + slot->iteration % RB_WINDOW] = slot->work.number;
	for (uint32_t i = plan->successor_first[step]; i < plan->successor_first[step + 1]; i++)
		mark(run, plan->successors[i]);
}

/* Whether IN and OUT of a rank are together as long as that. */
static bool goes_past(const struct rb_engine *engine, const struct rb_plan *plan)
{
	uint64_t longer = plan->layout.count * plan->key.element_bytes, other = longer;

	if (plan->key.kind == RB_KIND_BROADCAST)
		other = 0;
	else if (plan->key.kind == RB_KIND_ALLGATHER || plan->key.kind == RB_KIND_REDUCE_SCATTER)
		other = longer / engine->rank_count;
	return engine->past_bytes > 0 && longer + other >= engine->past_bytes;
}

static bool writes_twice(const struct rb_run *run, const struct rb_executor *executor)
{
	return run->plan->also != NULL && executor->ops->writes_twice &&
	       run->wire == RUBATO_WIRE_SAME;
}

/* Where its result is copied. */
static void also_set(struct rb_engine *engine, const struct rb_run *run, struct rb_slot *slot,
		     uint64_t bytes)
{
	const struct rb_plan *plan = run->plan;
	const struct rb_step *copy = &plan->schedule.steps[plan->also[slot->step] - 1];

	slot->work.reduce.also = resolve(engine, run, copy->to, slot->iteration, bytes);
	slot->work.reduce.past = (copy->flags & RB_STEP_LAST) != 0 && goes_past(engine, plan);
}

static void work_start(struct rb_engine *engine, struct rb_run *run, struct rb_slot *slot,
		       uint64_t count)
{
	const struct rb_step *step = &run->plan->schedule.steps[slot->step];
	struct rb_executor *executor = rb_run_executor(engine, run, step);
	struct rb_work *work = &slot->work;
	uint64_t bytes = count * run->plan->key.element_bytes;
	const void **operands;

	work->owner = slot;
	work->element_bytes = run->plan->key.element_bytes;
	work->status = RUBATO_OK;
	work->state = RB_WORK_IDLE;
	if (step->flags & RB_STEP_TAKEN && writes_twice(run, executor)) {
		work->state = RB_WORK_DONE;
		return;
	}
	if (!operands_room(slot, step->from_count)) {
		work->status = RUBATO_ERR_MEMORY;
		work->state = RB_WORK_DONE;
		return;
	}
	operands = step->from_count > RB_OPERANDS_INLINE ? slot->operands_more : work->operands;
	for (uint32_t i = 0; i < step->from_count; i++)
		operands[i] = resolve(engine, run, step->from + i, slot->iteration, bytes);
	work->reduce = (struct rb_reduce) {
		.type = run->type,
		.op = run->op,
		.to = resolve(engine, run, step->to, slot->iteration, bytes),
		.from = operands,
		.from_count = step->from_count,
		.count = count,
		.past = (step->flags & RB_STEP_LAST) != 0 && goes_past(engine, run->plan),
	};
	if (writes_twice(run, executor) && run->plan->also[slot->step] != 0)
		also_set(engine, run, slot, bytes);
	if (run->op == RUBATO_AVG && (step->flags & RB_STEP_FINAL))
		work->reduce.final_count = run->divisor > 0 ? run->divisor : engine->rank_count;
	if (run->wire != RUBATO_WIRE_SAME) {
		uint64_t first = rb_plan_first(run->plan, slot->step, slot->iteration);

		if (run->code == NULL)
			rb_reduce_code(&work->reduce, run->wire, run->residual, first);
		else
			work->element_bytes = rb_reduce_convert(&work->reduce, run->code, run->wire,
								first, &work->operands[0]);
	}
	work->after = run->crosses != 0 ? run->events->after : NULL;
	work->after_count = run->crosses != 0 ? run->events->after_count : 0;
	executor->ops->start(executor, work);
	if (run->crosses != 0 && work->state == RB_WORK_PENDING)
		enqueued(run, slot);
}

static void slot_missing(struct rb_run *run)
{
	run->status = RUBATO_ERR_MEMORY;
	(void)snprintf(run->failure, sizeof(run->failure), "out of memory for requests");
}

static void start_iteration(struct rb_engine *engine, struct rb_run *run, uint32_t step_index,
			    uint32_t iteration)
{
	const struct rb_step *step = &run->plan->schedule.steps[step_index];
	uint64_t count = rb_plan_count(run->plan, step_index, iteration);
	struct rb_slot *slot = rb_slot_take(engine);
	bool finished;

	if (slot == NULL) {
		slot_missing(run);
		return;
	}
	slot->is_work = step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE;
	slot->step = step_index;
	slot->iteration = iteration;
	slot->owner = run;
	slot->done = run_slot_done;
	if (slot->is_work) {
		work_start(engine, run, slot, count);
		finished = slot->work.state == RB_WORK_DONE;
	} else {
		message_start(engine, run, slot, count);
		finished = slot->request.state == RB_REQUEST_DONE;
	}
	if (finished)
		slot_finished(engine, run, slot);
	else
		slot_link(run, slot);
}

/* Of a short plan. */
static void start_once(struct rb_engine *engine, struct rb_run *run, uint32_t step_index)
{
	const struct rb_plan_message *m = &run->plan->messages[step_index];
	struct rb_endpoint *ep;
	struct rb_request *request;
	struct rb_slot *slot;

	if (!m->simple) {
		start_iteration(engine, run, step_index, 0);
		return;
	}
	slot = rb_slot_take(engine);
	if (slot == NULL) {
		slot_missing(run);
		return;
	}
	slot->is_work = false;
	slot->step = step_index;
	slot->iteration = 0;
	slot->owner = run;
	slot->done = run_slot_done;
	request = &slot->request;
	request->peer = rb_run_peer(run, &run->plan->schedule.steps[step_index]);
	request->tag = run->tag;
	request->tag.step |= m->tag_step;
	request->signature = run->signature;
	request->signature.count = rb_run_count(run, step_index);
	request->where = &run->buffers[m->buffer];
	request->buffer = run->buffers[m->buffer].base;
	request->size_bytes = (size_t)m->size_bytes;
	if (m->size_bytes > 0)
		request->buffer = (uint8_t *)request->buffer + m->at +
				  (m->buffer == RB_BUF_SCRATCH ? run->set_at : 0);
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
	ep = rb_engine_endpoint(engine, request->peer);
	if (m->sends)
		ep->ops->send(ep, request);
	else
		ep->ops->recv(ep, request);
	if (request->state == RB_REQUEST_DONE)
		slot_finished(engine, run, slot);
	else
		slot_link(run, slot);
}

static void start_ready(struct rb_engine *engine, struct rb_run *run, uint32_t step_index)
{
	const struct rb_step *step = &run->plan->schedule.steps[step_index];
	struct rb_step_state *state = &run->states[step_index];
	uint32_t iterations = run->plan->iterations[step_index];

	while (run->status == RUBATO_OK && state->started < iterations &&
	       state->started - state->done < RB_WINDOW && startable(run, step, state->started))
		start_iteration(engine, run, step_index, state->started++);
}

/* One iteration; the step stays dirty, and has its next turn when the others have had theirs. */
static void start_one(struct rb_engine *engine, struct rb_run *run, uint32_t step_index)
{
	const struct rb_step *step = &run->plan->schedule.steps[step_index];
	struct rb_step_state *state = &run->states[step_index];

	if (state->started == run->plan->iterations[step_index] ||
	    state->started - state->done >= RB_WINDOW || !startable(run, step, state->started))
		return;
	mark(run, step_index);
	start_iteration(engine, run, step_index, state->started++);
}

static void deferred_end(struct rb_engine *engine, struct rb_run *run)
{
	engine->polled -= run->deferred;
	run->deferred = false;
}

static void run_over(struct rb_engine *engine, struct rb_run *run)
{
	run->active = false;
	run->plan->users--;
	engine->completed = true;
	run->done(engine, run); /* Last: may free the run. */
}

static void run_end(struct rb_engine *engine, struct rb_run *run)
{
	deferred_end(engine, run);
	RB_LIST_REMOVE(engine->runs, run);
	engine->polled -= run->executors != NULL;
	run_over(engine, run);
}

static void slots_cancel(struct rb_engine *engine, struct rb_run *run)
{
	while (run->slots != NULL) {
		struct rb_slot *slot = run->slots;

		slot_unlink(run, slot);
		/* Done already, in a list that the engine is about to go through. */
		if (slot->is_work ? slot->work.state == RB_WORK_DONE
				  : slot->request.state == RB_REQUEST_DONE) {
			slot->done = rb_slot_give;
			continue;
		}
		if (slot->is_work) {
			struct rb_executor *executor = rb_run_executor(
				engine, run, &run->plan->schedule.steps[slot->step]);

			executor->ops->cancel(executor, &slot->work);
		} else {
			struct rb_endpoint *ep = rb_engine_endpoint(engine, slot->request.peer);

			ep->ops->cancel(ep, &slot->request);
		}
		rb_slot_give(engine, slot);
	}
}

static void advance_long(struct rb_engine *engine, struct rb_run *run)
{
	uint32_t words = run->plan->schedule.step_count / 64 + 1;
	bool any = true;

	while (any && run->status == RUBATO_OK) {
		any = false;
		for (uint32_t w = 0; w < words; w++) {
			while (run->dirty[w] != 0 && run->status == RUBATO_OK) {
				uint32_t bit = (uint32_t)__builtin_ctzll(run->dirty[w]);

				run->dirty[w] &= run->dirty[w] - 1;
				start_ready(engine, run, w * 64 + bit);
				any = true;
			}
		}
	}
}

/* Round after round through the steps that are dirty when it begins. */
static void advance_in_turns(struct rb_engine *engine, struct rb_run *run)
{
	uint32_t words = run->plan->schedule.step_count / 64 + 1;
	bool any = true;

	while (any && run->status == RUBATO_OK) {
		any = false;
		for (uint32_t w = 0; w < words; w++) {
			uint64_t turn = run->dirty[w];

			run->dirty[w] = 0;
			for (; turn != 0 && run->status == RUBATO_OK; turn &= turn - 1) {
				start_one(engine, run, w * 64 + (uint32_t)__builtin_ctzll(turn));
				any = true;
			}
		}
	}
}

static void advance(struct rb_engine *engine, struct rb_run *run)
{
	if (run->advancing)
		return; /* The call above in the stack goes on. */
	run->advancing = true;
	while (run->ready_steps != 0 && run->status == RUBATO_OK) {
		uint32_t step = (uint32_t)__builtin_ctzll(run->ready_steps);

		run->ready_steps &= run->ready_steps - 1;
		start_once(engine, run, step);
	}
	if (!run->plan->is_short && run->plan->schedule.flags & RB_SCHEDULE_IN_TURNS)
		advance_in_turns(engine, run);
	else if (!run->plan->is_short)
		advance_long(engine, run);
	run->advancing = false;
	if (run->status != RUBATO_OK)
		slots_cancel(engine, run);
	if (run->status != RUBATO_OK || run->steps_left == 0)
		run_end(engine, run);
}

static void steps_mark(struct rb_run *run)
{
	const struct rb_plan *plan = run->plan;
	uint32_t step_count = plan->schedule.step_count;

	memset(run->states, 0, step_count * sizeof(*run->states));
	memset(run->dirty, 0, (step_count / 64 + 1) * sizeof(*run->dirty));
	run->steps_left = plan->pending_steps;
	run->ready_steps = 0;
	for (uint32_t s = 0; s < step_count; s++) {
		if (plan->iterations[s] == 0)
			continue;
		if (run->met != RB_MET_NOT && (plan->schedule.steps[s].flags & RB_STEP_ENTRY)) {
			run->states[s].started = run->states[s].done = plan->iterations[s];
			run->steps_left--;
			continue;
		}
		mark(run, s);
	}
}

/* ---- Straight on ---- */

static bool straight_may(struct rb_engine *engine, const struct rb_run *run)
{
	return rb_straight_can(engine, run->plan) && run->met == RB_MET_NOT && run->ranks == NULL &&
	       run->executors == NULL && rb_engine_quiet(engine, run->in_flight, 0);
}

static enum rb_now straight_go(struct rb_engine *engine, struct rb_run *run, bool linger)
{
	struct rb_straight s = {
		.plan = run->plan,
		.buffers = { run->buffers[RB_BUF_IN].base, run->buffers[RB_BUF_OUT].base,
			     (uint8_t *)run->buffers[RB_BUF_SCRATCH].base + run->set_at },
		.on = { .signature = &run->signature, .tag = run->tag, .at = run->straight },
		.type = run->type,
		.op = run->op,
		.divisor = run->divisor > 0 ? run->divisor : engine->rank_count,
	};
	enum rb_now got;

	do
		got = rb_straight_go(engine, &s);
	while (got == RB_NOW_ABSENT && linger &&
	       rb_engine_linger(engine, run->plan->parcels[s.on.at].peer));
	run->straight = s.on.at;
	run->steps_left = run->plan->order_count - s.on.at;
	return got;
}

/* As if all that has been done so far had been done step by step. */
static void straight_leave(struct rb_engine *engine, struct rb_run *run)
{
	const struct rb_plan *plan = run->plan;

	deferred_end(engine, run);
	run->done_steps = ~plan->live[0];
	for (uint32_t i = 0; i < run->straight; i++)
		run->done_steps |= UINT64_C(1) << plan->order[i];
	run->ready_steps = 0;
	for (uint32_t i = run->straight; i < plan->order_count; i++)
		if ((plan->needs[plan->order[i]] & ~run->done_steps) == 0)
			run->ready_steps |= UINT64_C(1) << plan->order[i];
	advance(engine, run);
}

static void start_straight(struct rb_engine *engine, struct rb_run *run)
{
	enum rb_now got;

	run->straight = run->begun;
	run->begun = 0;
	got = straight_go(engine, run, false);
	if (got == RB_NOW_DONE) {
		run_over(engine, run);
		return;
	}
	RB_LIST_PUSH(engine->runs, run);
	run->deferred = got == RB_NOW_ABSENT;
	engine->polled += run->deferred;
	if (!run->deferred)
		straight_leave(engine, run);
}

/* NULL: none is. There is one at most: where one is, the engine is not quiet. */
static struct rb_run *run_deferred(const struct rb_engine *engine)
{
	struct rb_run *run = engine->runs;

	while (run != NULL && !run->deferred)
		run = run->next;
	return run;
}

void rb_run_await(struct rb_engine *engine, struct rb_run *run)
{
	if (straight_go(engine, run, true) == RB_NOW_DONE)
		run_end(engine, run);
	else
		straight_leave(engine, run);
}

static void runs_awaited(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_run *run = run_deferred(engine);

	(void)poller;
	if (run != NULL)
		rb_run_await(engine, run);
}

/* What has been copied ahead lies in this rank's slots. */
static void turns_begin(struct rb_run *run)
{
	bool ahead = run->met == RB_MET_AHEAD;

	run->turns = ahead ? 0 : run->turns_next;
	run->turns_next += ahead ? 0 : run->plan->turns;
}

void rb_run_start(struct rb_engine *engine, struct rb_run *run)
{
	const struct rb_plan *plan = run->plan;
	uint32_t copies = plan->schedule.scratch_copies;

	RB_ASSERT(!run->active && run->slots == NULL);
	run->status = RUBATO_OK;
	run->failure[0] = '\0';
	run->probed = false;
	run->active = true;
	run->plan->users++;
	run->set_at = copies > 1 ? (run->instance % copies) * plan->set_bytes : 0;
	turns_begin(run);
	run->started_ns = 0;
	run->crosses = plan->staged ? crosses_of(run) : 0;
	if (run->begun > 0 || straight_may(engine, run)) {
		start_straight(engine, run);
		return;
	}
	if (plan->is_short) {
		run->steps_left = plan->live_count[run->met];
		run->done_steps = ~plan->live[run->met];
		run->ready_steps = plan->first[run->met];
	} else {
		steps_mark(run);
	}
	RB_LIST_PUSH(engine->runs, run);
	engine->polled += run->executors != NULL;
	advance(engine, run);
}

void rb_run_fail(struct rb_engine *engine, struct rb_run *run, rubato_status status,
		 const char *text)
{
	if (!run->active)
		return;
	if (run->status == RUBATO_OK) {
		run->status = status;
		(void)snprintf(run->failure, sizeof(run->failure), "%s", text);
	}
	if (!run->advancing)
		advance(engine, run);
}

uint32_t rb_run_steps_done(const struct rb_run *run)
{
	const struct rb_plan *plan = run->plan;
	uint32_t done = 0;

	if (plan->is_short)
		return plan->schedule.step_count - run->steps_left;
	for (uint32_t s = 0; s < plan->schedule.step_count; s++)
		done += run->states[s].done == plan->iterations[s];
	return done;
}

/* ---- What the engine asks of runs ---- */

/* The run's i-th executor, if it is not the engine's, which polls that itself; i < 2. */
static struct rb_executor *own_executor(const struct rb_engine *engine, const struct rb_run *run,
					uint32_t i)
{
	struct rb_executor *executor = run->executors != NULL ? run->executors[i] : NULL;

	return executor != engine->executor ? executor : NULL;
}

static bool runs_post(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_run *deferred = run_deferred(engine);

	(void)poller;
	if (deferred != NULL)
		straight_leave(engine, deferred);
	return deferred != NULL;
}

static bool runs_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	(void)poller;
	for (struct rb_run *run = engine->runs; run != NULL; run = run->next) {
		for (uint32_t i = 0; i < 2; i++) {
			struct rb_executor *executor = own_executor(engine, run, i);

			if (executor != NULL && rb_engine_poll_executor(engine, executor))
				return true; /* The list may have changed. */
		}
	}
	return false;
}

static bool executors_busy(const struct rb_engine *engine, const struct rb_poller *poller)
{
	(void)poller;
	for (const struct rb_run *run = engine->runs; run != NULL; run = run->next) {
		for (uint32_t i = 0; i < 2; i++) {
			struct rb_executor *executor = own_executor(engine, run, i);

			if (executor != NULL && executor->ops->busy(executor))
				return true;
		}
	}
	return false;
}

static uint64_t executors_next(const struct rb_poller *poller)
{
	const struct rb_engine *engine = ((const struct rb_runs *)poller)->engine;
	uint64_t next = UINT64_MAX;

	for (const struct rb_run *run = engine->runs; run != NULL; run = run->next) {
		for (uint32_t i = 0; i < 2; i++) {
			struct rb_executor *executor = own_executor(engine, run, i);
			uint64_t at = executor != NULL && executor->ops->next_ns != NULL
					      ? executor->ops->next_ns(executor)
					      : UINT64_MAX;

			next = at < next ? at : next;
		}
	}
	return next;
}

static bool runs_concerned(const struct rb_engine *engine, const struct rb_poller *poller)
{
	(void)poller;
	return engine->runs != NULL;
}

/* A run that is being advanced further up in the stack ends there, once its status is set. */
static struct rb_run *run_to_end(struct rb_engine *engine)
{
	struct rb_run *run = engine->runs;

	while (run != NULL && run->advancing)
		run = run->next;
	return run;
}

static void runs_poisoned(struct rb_engine *engine, struct rb_poller *poller, rubato_status status,
			  const char *text)
{
	struct rb_run *run;

	(void)poller;
	/* run->done may start nothing new (rb_engine_check), so the list only shrinks. */
	for (run = engine->runs; run != NULL; run = run->next)
		if (run->advancing)
			rb_run_fail(engine, run, status, text);
	while ((run = run_to_end(engine)) != NULL)
		rb_run_fail(engine, run, status, text);
}

static const struct rb_poller_ops runs_ops = {
	.order = RB_POLLER_RUNS,
	.post = runs_post,
	.poll = runs_poll,
	.awaited = runs_awaited,
	.next_ns = executors_next,
	.busy = executors_busy,
	.concerned = runs_concerned,
	.poisoned = runs_poisoned,
};

void rb_runs_open(struct rb_runs *runs, struct rb_engine *engine)
{
	runs->poller.ops = &runs_ops;
	runs->engine = engine;
	rb_engine_add_poller(engine, &runs->poller);
}
