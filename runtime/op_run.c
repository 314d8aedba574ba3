/* op_run.c -- see op_run.h. */
#include "runtime/op_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/engine/absent.h"
#include "runtime/engine/straight.h"
#include "runtime/message.h"
#include "runtime/op_exchange.h"
#include "runtime/op_prepare.h"
#include "runtime/op_stage.h"
#include "runtime/unmatched.h"

/* Of each half of what calls that go ahead have in turn. */
#define TURNED_BYTES (300u << 10)
#define TURNED_BYTES_MIN (32u << 10)

/* ---- Execution ---- */

static void converted(void *arg, rubato_status status, const char *text)
{
	struct rubato_op *op = arg;

	op->then(op, status, text);
}

/* The input, or the result; then() may be called before it returns. */
static void convert(struct rubato_op *op, bool back,
		    void (*then)(struct rubato_op *op, rubato_status status, const char *text))
{
	op->state = RB_OP_CONVERTING;
	op->then = then;
	op->converted.run.signature = op->signature;
	rb_converted_start(&op->converted, &op->comm->engine, back, converted, op);
}

static void main_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	(void)engine;
	if (op->converted.active && run->status == RUBATO_OK)
		convert(op, true, rb_op_end);
	else
		rb_op_end(op, run->status, run->failure);
}

/* In an exchange's tag: the second one, of a call that is the same otherwise. */
#define TAG_OPENED ((uint64_t)(RB_CHANNEL_MAX / 2) << RB_TAG_ITERATION_BITS)

static struct rb_tag op_tag(const struct rubato_op *op, bool exchange)
{
	uint32_t epoch = op->comm->engine.epoch;

	if (op->persistent) /* Its exchange is instance 0. */
		return rb_tag(epoch, RB_TAG_PERSISTENT, op->number, op->instance);
	return rb_tag(epoch, exchange ? RB_TAG_EXCHANGE : RB_TAG_ONESHOT, op->number, 0);
}

/* Where the run works: anew each time, since memory may be registered and unregistered
 * meanwhile. */
static inline void where_set(struct rubato_op *op)
{
	const struct rb_memories *memories = &op->comm->memory;
	struct rb_where *where = op->run.buffers;
	const struct rb_memory *scratch = op->scratch.mapped ? op->scratch.memory : NULL;

	rb_memory_where(memories, (void *)(uintptr_t)op->in, op->in_bytes, &where[RB_BUF_IN]);
	rb_memory_where(memories, op->out, op->out_bytes, &where[RB_BUF_OUT]);
	where[RB_BUF_SCRATCH].base =
		scratch != NULL ? scratch->base + op->scratch.at : op->scratch.plain;
	where[RB_BUF_SCRATCH].regions = scratch != NULL ? scratch->regions : NULL;
}

static void run_start(struct rubato_op *op, struct rb_plan *plan, enum rb_met met)
{
	where_set(op);
	op->run.executors = rb_op_coded(op) ? op->converted.executors : NULL;
	op->run.wire = RUBATO_WIRE_SAME;
	op->run.residual = NULL;
	if (op->comm->engine.device_count > 0) {
		rubato_status err = rb_op_stage(op, &plan);

		if (err != RUBATO_OK) {
			rb_op_end(op, err, rubato_error_text());
			return;
		}
	}
	op->state = RB_OP_RUNNING;
	op->run.plan = plan;
	op->run.peers = op->exchange.peers;
	op->run.type = op->type;
	op->run.op = op->op;
	op->run.tag = op_tag(op, false);
	op->run.signature = op->signature;
	op->run.instance = op->persistent ? op->instance : 0;
	op->run.met = met;
	op->run.in_flight = op->persistent;
	op->run.done = main_done;
	op->run.owner = op;
	rb_run_start(&op->comm->engine, &op->run);
}

/* With all records here. */
static rubato_status plan_use(struct rubato_op *op, struct rb_plan **out)
{
	RB_TRY(rb_exchange_use(op, out));
	if (*out != NULL)
		return RUBATO_OK;
	RB_TRY(rb_plan_by_pairs(op->plan) ? rb_op_plan_apart(op) : rb_op_plan_without_puts(op));
	*out = op->plan;
	return RUBATO_OK;
}

/* Device memory of other processes is open, or not. */
static void exchange_over(struct rubato_op *op)
{
	struct rb_plan *plan = NULL;
	rubato_status err;

	if (op->persistent) { /* rb_op_agree waits for this. */
		op->state = RB_OP_IDLE;
		op->done = true;
		op->status = RUBATO_OK;
		return;
	}
	/* By pairs, others may still be in the call before. */
	if (op->scratch.retired != NULL && !rb_plan_by_pairs(op->plan)) {
		rb_memory_drop(&op->comm->memory, op->scratch.retired);
		op->scratch.retired = NULL;
	}
	err = plan_use(op, &plan);
	if (err != RUBATO_OK)
		rb_op_end(op, err, rubato_error_text());
	else
		run_start(op, plan, op->exchange.ahead ? RB_MET_AHEAD : RB_MET_ENTERED);
}

static void opened_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	(void)engine;
	if (run->status != RUBATO_OK) {
		rb_op_end(op, run->status, run->failure);
		return;
	}
	rb_exchange_opened(op);
	exchange_over(op);
}

static void opened_start(struct rubato_op *op)
{
	struct rb_run *run = &op->exchange.run;

	run->buffers[RB_BUF_IN].base = op->exchange.opened;
	run->buffers[RB_BUF_OUT].base = op->exchange.all_opened;
	run->tag.step |= TAG_OPENED;
	run->done = opened_done;
	rb_run_start(&op->comm->engine, run);
}

static void exchange_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;
	rubato_status err = run->status;
	bool asks = false;

	(void)engine;
	if (err != RUBATO_OK) {
		rb_op_end(op, err, run->failure);
		return;
	}
	if (rb_op_asks_peers(op))
		err = rb_exchange_open(op, &asks);
	if (err != RUBATO_OK)
		rb_op_end(op, err, rubato_error_text());
	else if (asks)
		opened_start(op);
	else
		exchange_over(op);
}

/* The plan that goes through scratch, where it goes ahead and this rank has the room. */
static struct rb_plan *ahead_plan(const struct rubato_op *op)
{
	struct rb_plan *plan = op->plan_staged != NULL ? op->plan_staged : op->plan;

	return op->scratch.mapped && op->scratch.room > 0 && plan->goes_ahead ? plan : NULL;
}

/*
 * Which part of the scratch is this call's: of each half in turn. Longer sets also move on within
 * their half. Measured, docs/performance.md, "Plain buffers": what a core has changed and still
 * keeps in its first cache takes another core longer to get than what has gone to the second.
 */
static void scratch_take(struct rubato_op *op)
{
	struct rb_op_scratch *s = &op->scratch;
	const struct rb_plan *plan = ahead_plan(op);

	s->at = s->room;
	if (plan == NULL)
		return;
	s->second = !s->second;
	if (!s->second)
		s->turned += plan->set_bytes;
	if (plan->set_bytes < TURNED_BYTES_MIN || s->turned + plan->set_bytes > TURNED_BYTES)
		s->turned = 0;
	RB_ASSERT(s->turned + plan->set_bytes <= RB_AHEAD_ROOM); /* So in the other half is none. */
	s->at = (s->second ? RB_AHEAD_ROOM : 0) + s->turned;
}

/* Its parts go into its slots before it tells where these are, if it is known that this is what
 * will be asked for: some buffer of its own is not mapped, or none need be. */
static void ahead_go(struct rubato_op *op)
{
	struct rb_executor *executor = op->comm->engine.executor;
	const struct rb_plan *plan = ahead_plan(op);
	const struct rb_span *spans;
	void *base[RB_BUFFER_COUNT];
	uint64_t sizes[RB_BUFFER_COUNT];

	if (plan == NULL || !plan->is_short || op->device.executor != NULL ||
	    executor->ops->copy_across == NULL || !rb_exchange_is_staged(op))
		return;
	rb_op_buffers(op, base, sizes);
	spans = plan->schedule.spans;
	for (uint32_t s = 0; s < plan->schedule.step_count; s++) {
		const struct rb_step *step = &plan->schedule.steps[s];
		uint64_t bytes = plan->range[s] * plan->key.element_bytes;

		if (step->kind == RB_STEP_COPY && step->flags & RB_STEP_AHEAD && bytes > 0)
			executor->ops->copy_across(executor,
						   (uint8_t *)base[spans[step->to].buffer] +
							   plan->span_first[step->to],
						   (uint8_t *)base[spans[step->from].buffer] +
							   plan->span_first[step->from],
						   bytes);
	}
	rb_exchange_ahead(op);
}

static void exchange_start(struct rubato_op *op)
{
	op->state = RB_OP_EXCHANGING;
	if (rb_op_asks_peers(op)) {
		scratch_take(op);
		rb_exchange_write(op);
		ahead_go(op);
		op->exchange.run.buffers[RB_BUF_IN].base = op->exchange.own_record;
		op->exchange.run.buffers[RB_BUF_OUT].base = op->exchange.records;
		op->exchange.run.type = RUBATO_INT64;
	}
	op->exchange.run.tag = op_tag(op, true);
	op->exchange.run.signature = op->signature;
	op->exchange.run.done = exchange_done;
	op->exchange.run.owner = op;
	rb_run_start(&op->comm->engine, &op->exchange.run);
}

rubato_status rb_op_agree(struct rubato_op *op, uint64_t deadline_ns)
{
	struct rb_engine *engine = &op->comm->engine;
	bool addresses = rb_op_asks_peers(op);
	struct rb_plan *plan = NULL;
	rubato_status err;

	if (!addresses) /* A barrier: its messages carry the signature, which is all there is. */
		RB_TRY(rb_run_init(&op->exchange.run, op->comm->plans.barrier));
	op->done = false;
	engine->in_flight++;
	exchange_start(op);
	err = rb_engine_wait(engine, &op->done, deadline_ns);
	if (op->state == RB_OP_IDLE && op->status == RUBATO_OK && err == RUBATO_OK)
		engine->in_flight--;
	if (err != RUBATO_OK) {
		char name[96], absent[128], way[RB_WAY_BYTES], ahead[192], text[RB_TEXT_BYTES];

		rb_unmatched_look(op->comm);
		RB_TRY(rb_engine_check(engine));
		(void)rb_unmatched_ahead(op->comm, &op->exchange.run, ahead, sizeof(ahead));
		(void)rb_signature_text(&op->signature, name, sizeof(name));
		(void)rb_run_absent(&op->exchange.run, absent, sizeof(absent));
		(void)rb_run_way(engine, &op->exchange.run, way, sizeof(way));
		(void)snprintf(text, sizeof(text),
			       "%s, number %llu: when it was made, rank %u waited for%s, which did "
			       "not come%s%s",
			       name, (unsigned long long)op->number, engine->rank,
			       absent[0] != '\0' ? absent : " its own work", ahead, way);
		rb_engine_poison(engine, ahead[0] != '\0' ? RUBATO_ERR_MISMATCH : err, text);
		return rb_engine_check(engine);
	}
	RB_TRY(op->status == RUBATO_OK ? RUBATO_OK : RB_FAIL(op->status, "%s", op->failure));
	if (!addresses)
		return RUBATO_OK;
	RB_TRY(plan_use(op, &plan));
	if (plan != op->plan) {
		op->plan->users--;
		op->plan = op->plan_staged;
		op->plan_staged = NULL;
	}
	op->exchange.over = true;
	return RUBATO_OK;
}

/* ---- Start, cancel, release ---- */

/* What a collective does with its input in place. */
static void collective_start(struct rubato_op *op, rubato_status status, const char *text)
{
	if (status != RUBATO_OK) {
		rb_op_end(op, status, text);
	} else if (rb_plan_needs_peers(op->plan) && !op->exchange.over) {
		exchange_start(op);
	} else {
		if (op->persistent)
			op->instance++;
		if (op->helped == NULL) {
			run_start(op, op->plan, RB_MET_NOT);
			return;
		}
		op->state = RB_OP_AWAITING;
		op->comm->help->start(op);
	}
}

void rb_op_run(struct rubato_op *op)
{
	RB_ASSERT(op->state == RB_OP_AWAITING);
	run_start(op, op->plan, RB_MET_NOT);
}

rubato_status rb_op_rooms(struct rubato_op *op)
{
	const struct rb_engine *engine = &op->comm->engine;
	struct rb_plan *plan = op->plan;
	bool agreed = plan != NULL && (!rb_plan_needs_peers(plan) || op->exchange.over);

	for (uint32_t i = 0; i < engine->device_count && op->stream.gate == NULL; i++)
		if (engine->devices[i]->ops->gate_new != NULL)
			RB_TRY(engine->devices[i]->ops->gate_new(engine->devices[i],
								 &op->stream.gate));
	if (engine->device_count == 0 || !agreed)
		return RUBATO_OK;
	where_set(op);
	return rb_op_stage(op, &plan);
}

/* While streams wait, a driver may keep who asks for memory waiting, and those streams may be
 * waiting for what its caller does next. So a start finds all that it needs. */
void rb_op_streams_ready(struct rubato_op *op)
{
	const struct rb_engine *engine = &op->comm->engine;

	if (engine->device_count > 0 && !rb_engine_time_is_virtual(engine) &&
	    engine->background.thread.running && rb_op_rooms(op) != RUBATO_OK)
		RB_LOG(RB_LOG_DEBUG, "rank %u: %s", engine->rank, rubato_error_text());
}

#define GLANCES 24 /* Some 50 ns. */
#define LOOKS 6    /* Likewise, with a pause before each: 120 ns or more. */

/* A peer that starts at this moment, too, has sent in a moment. Not to look for it until then takes
 * as long: to put off what is left, and to take it up in the wait. Where ranks share cores, looking
 * keeps the peer from sending. */
static __attribute__((noinline)) bool glance(const struct rb_engine *engine,
					     const struct rb_straight *s)
{
	uint32_t peer = s->plan->parcels[s->on.at].peer;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);

	for (uint32_t i = 0; i < GLANCES && engine->waiting.yield_ns == 0; i++)
		if (ep->ops->here(ep, peer))
			return true;
	return false;
}

/* What can be sent, received and worked on at once. */
static enum rb_now straight_start(struct rubato_op *op)
{
	const struct rb_engine *engine = &op->comm->engine;
	const struct rb_where *where = op->run.buffers;
	struct rb_straight s = {
		.plan = op->plan,
		.buffers = { where[RB_BUF_IN].base, where[RB_BUF_OUT].base,
			     where[RB_BUF_SCRATCH].base },
		.on = { .looks = engine->waiting.yield_ns > 0 ? 0 : LOOKS,
			.tag = op->run.tag,
			.signature = &op->signature },
		.type = op->type,
		.op = op->op,
		.divisor = engine->rank_count,
	};
	enum rb_now got;

	do
		got = rb_straight_go(engine, &s);
	while (got == RB_NOW_ABSENT && glance(engine, &s));
	op->run.begun = s.on.at;
	return got;
}

/* As the last start left the run, but for its instance: there is nothing to agree on, to convert or
 * to stage, and what is as small as that lies in no region. What is over at once was never in
 * flight: to wait for it needs no lock. */
static void start_again(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	op->instance++;
	op->run.instance = op->instance;
	op->run.tag = op_tag(op, false);
	op->status = RUBATO_OK;
	if (rb_engine_quiet(engine, 0, 0) && straight_start(op) == RB_NOW_DONE) {
		op->run.begun = 0;
		engine->operations++;
		atomic_store_explicit(&op->over, rb_engine_over(engine, &op->done),
				      memory_order_release);
		return;
	}
	atomic_store_explicit(&op->over, false, memory_order_relaxed);
	op->done = false;
	engine->in_flight++;
	op->state = RB_OP_RUNNING;
	rb_run_start(engine, &op->run);
}

void rb_op_start(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	if (op->at_once && op->persistent && engine->device_count == 0 &&
	    op->run.done == main_done && engine->poison == RUBATO_OK) {
		start_again(op);
		return;
	}
	op->done = false;
	op->status = RUBATO_OK;
	if (op->persistent)
		engine->in_flight++;
	rb_op_begin(op);
}

void rb_op_begin(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	atomic_store_explicit(&op->over, false, memory_order_relaxed);
	if (engine->poison != RUBATO_OK) {
		rb_op_end(op, engine->poison, engine->poison_text);
	} else if (op->kind == RB_KIND_SENDRECV) {
		rb_message_start(op);
	} else if (op->converted.active) {
		convert(op, false, collective_start);
	} else {
		collective_start(op, RUBATO_OK, "");
	}
}

static void final_barrier_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	engine->in_flight--;
	op->state = RB_OP_IDLE;
	op->done = true;
	rb_op_forget(op);
}

/*
 * Peers that lag behind may still read our scratch in the last instance. So a barrier of its own,
 * in the background, ends an operation with mapped scratch: when it is over, every rank has freed
 * its side.
 */
static bool final_barrier_start(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;

	if (!op->scratch.mapped || comm->closing || comm->engine.poison != RUBATO_OK ||
	    rb_run_init(&op->exchange.run, comm->plans.barrier) != RUBATO_OK)
		return false;
	op->state = RB_OP_FINAL_BARRIER;
	op->done = false;
	comm->engine.in_flight++;
	op->exchange.run.tag = rb_tag(comm->engine.epoch, RB_TAG_FINAL_BARRIER, op->number, 0);
	op->exchange.run.signature = op->signature;
	op->exchange.run.done = final_barrier_done;
	op->exchange.run.owner = op;
	rb_run_start(&comm->engine, &op->exchange.run);
	return true;
}

void rb_op_free(struct rubato_op *op)
{
	if (op->state == RB_OP_FINAL_BARRIER)
		return;
	rb_op_cancel(op);
	if (op->exchange.holds) /* The buffers are the caller's again. */
		rb_exchange_release(op);
	if (!final_barrier_start(op))
		rb_op_forget(op);
}

void rb_op_forget(struct rubato_op *op)
{
	rb_op_unlist(op);
	rb_op_discard(op);
}

void rb_op_discard(struct rubato_op *op)
{
	rb_op_release(op);
	free(op);
}

void rb_op_cancel(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	char text[224], name[96];

	if (op->done)
		return;
	(void)rb_signature_text(&op->signature, name, sizeof(name));
	(void)snprintf(text, sizeof(text), "%s was cancelled", name);
	if (op->kind == RB_KIND_SENDRECV && op->state != RB_OP_ENQUEUED) {
		rb_message_cancel(op, text);
		return;
	}
	if (op->state == RB_OP_AWAITING || op->state == RB_OP_ENQUEUED) {
		rb_op_end(op, RUBATO_ERR_CANCELLED, text);
		return;
	}
	rb_run_fail(engine, rb_op_current(op), RUBATO_ERR_CANCELLED, text);
	RB_ASSERT(op->done);
}

void rb_op_release(struct rubato_op *op)
{
	RB_ASSERT(op->done);
	if (op->plan != NULL)
		op->plan->users--;
	if (op->plan_staged != NULL)
		op->plan_staged->users--;
	if (op->exchange.plan != NULL)
		op->exchange.plan->users--;
	op->plan = op->plan_staged = op->exchange.plan = NULL;
	if (op->exchange.holds)
		rb_exchange_release(op);
	op->exchange.over = false;
	if (!op->persistent)
		return; /* The one-shot keeps its scratch and arrays for the next call. */
	if (op->scratch.retired != NULL)
		rb_memory_drop(&op->comm->memory, op->scratch.retired);
	if (op->scratch.memory != NULL)
		rb_memory_drop(&op->comm->memory, op->scratch.memory);
	rb_scratch_free(&op->scratch);
	free(op->exchange.peers);
	free(op->exchange.records);
	free(op->exchange.own_record);
	free(op->exchange.opened);
	free(op->exchange.all_opened);
	free(op->exchange.pairs);
	free(op->exchange.opening);
	free(op->exchange.apart);
	if (op->exchange.shares != NULL)
		rb_memory_drop(&op->comm->memory, op->exchange.shares);
	free(op->helped);
	if (op->stream.gate != NULL)
		op->stream.gate->ops->free(op->stream.gate);
	op->stream.gate = NULL;
	rb_op_stage_release(op);
	rb_run_fini(&op->run);
	rb_run_fini(&op->exchange.run);
	if (op->converted.memory != NULL)
		rb_memory_drop(&op->comm->memory, op->converted.memory);
	rb_converted_fini(&op->converted);
}
