/*
 * partial.c -- a partial allreduce at work. A call of the application's, a message, the end of a
 * run: all are events of one loop, which puts each into the protocol machine and does at once what
 * comes out (rb_partial_event). What is decided is the machine's; here buffers change hands, runs
 * begin and end, and the application's threads wait.
 *
 * A round touches peers' buffers in place, so when does nobody touch mine? The exchange of round r
 * is complete when every rank has joined r, and joining r means to have completed r - 1: so it
 * synchronises the entry into the reduction (run.met), and whatever was read or written for
 * r - 1 is free again. In the reduction contributions are only read: those of a round that a crash
 * cut short are as they were.
 */
#include "runtime/relaxed/partial.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/reduce/identity.h"

#define MERGE_LOCKED_BYTES (64u << 10) /* Guess: below it the lock costs more than it holds up. */

/* ---- Buffers of contributions ---- */

uint32_t rb_partial_free_contribution(const struct rubato_partial *p)
{
	uint32_t i = 0;

	while (i == p->buffers.lease || i == p->buffers.pending || i == p->buffers.joined)
		i++;
	RB_ASSERT(i < RB_PARTIAL_CONTRIBUTIONS);
	return i;
}

rubato_status rb_partial_merge(struct rubato_partial *p, uint32_t into, uint32_t from,
			       bool from_first, float *residual)
{
	const void *operands[2] = { rb_partial_buffer(p, from_first ? from : into),
				    rb_partial_buffer(p, from_first ? into : from) };
	const struct rb_reduce both = { .type = p->vector.type,
					.op = p->vector.op,
					.to = rb_partial_buffer(p, into),
					.from = operands,
					.from_count = 2,
					.count = p->vector.count };
	const struct rb_coded coded = { .wire = p->vector.wire,
					.to = both.to,
					.from = operands,
					.from_count = 2,
					.count = p->vector.units,
					.residual = residual };

	if (p->vector.count == 0)
		return RUBATO_OK;
	if (p->device.executor != NULL && p->vector.wire != RUBATO_WIRE_SAME)
		return rb_partial_device_code(p, "partial commit", RB_CODING_REDUCE, &coded);
	if (p->device.executor != NULL)
		return rb_partial_device_reduce(p, "partial commit", &both);
	if (p->vector.wire != RUBATO_WIRE_SAME)
		p->coded.reduction.coders->reduce(&coded);
	else
		p->vector.reduce(&both);
	return RUBATO_OK;
}

/* What is leased goes into its buffer as it travels. */
static rubato_status encode(struct rubato_partial *p)
{
	const void *from = p->coded.lease;
	const struct rb_coded coded = { .wire = p->vector.wire,
					.to = rb_partial_buffer(p, p->buffers.lease),
					.from = &from,
					.from_count = 1,
					.count = p->vector.count,
					.residual = p->coded.reduction.residual };

	if (p->device.executor != NULL)
		return rb_partial_device_code(p, "partial commit", RB_CODING_ENCODE, &coded);
	p->coded.reduction.coders->encode(&coded);
	return RUBATO_OK;
}

rubato_status rb_partial_decoded(struct rubato_partial *p, const char *call, uint32_t index,
				 float *to, const void **out)
{
	const void *from = rb_partial_buffer(p, index);
	const struct rb_coded coded = { .wire = p->vector.wire,
					.to = to,
					.from = &from,
					.from_count = 1,
					.count = p->vector.count };

	*out = p->vector.wire == RUBATO_WIRE_SAME ? from : to;
	if (p->vector.wire == RUBATO_WIRE_SAME)
		return RUBATO_OK;
	if (p->device.executor != NULL)
		return rb_partial_device_code(p, call, RB_CODING_DECODE, &coded);
	p->coded.reduction.coders->decode(&coded);
	return RUBATO_OK;
}

/* What the verdict on a commit means for the buffers: before anything else happens. */
static void settle(struct rubato_partial *p)
{
	uint32_t lease = p->buffers.lease;

	switch (rb_rounds_answer_of(p->machine).verdict) {
	case RB_ROUNDS_REPLACE:
		p->buffers.lease = p->buffers.pending;
		p->buffers.pending = lease;
		break;
	case RB_ROUNDS_TAKE:
		p->buffers.pending = lease;
		p->buffers.lease = rb_partial_free_contribution(p);
		break;
	case RB_ROUNDS_MERGE: /* rubato_partial_commit does it. */
	case RB_ROUNDS_DISCARD:
		break;
	}
}

/* ---- Clocks, and who waits ---- */

static void wait_clock(struct rubato_partial *p, uint64_t now_ns)
{
	struct rb_partial_clocks *c = &p->clocks;

	if (c->wait_since_ns > 0 && c->phase <= RB_ROUNDS_REDUCING) {
		c->wait_ns[c->phase] += now_ns - c->wait_since_ns;
		c->waited_ns += now_ns - c->wait_since_ns;
	}
	c->wait_since_ns = c->wait_since_ns > 0 ? now_ns : 0;
}

/* Who waits, here or in another operation, looks again: it may be wanted now. */
static void waiters_look(struct rubato_partial *p)
{
	for (struct rubato_partial *q = p->comm->partials; q != NULL; q = q->next)
		q->changed = true;
	p->changed = p->comm->engine.completed = true;
}

/* `turned`: a round is over, and the next one may be as far. */
static void phase_clock(struct rubato_partial *p, uint64_t now_ns, bool turned)
{
	enum rb_rounds_phase phase = rb_rounds_phase_of(p->machine);
	struct rb_partial_clocks *c = &p->clocks;

	if (phase == c->phase && !turned)
		return;
	wait_clock(p, now_ns);
	if (c->phase <= RB_ROUNDS_REDUCING)
		c->phase_ns[c->phase] += now_ns - c->phase_since_ns;
	c->phase = phase;
	c->phase_since_ns = now_ns;
	/* For want of room, perhaps: who waits elsewhere is to know. */
	if (phase == RB_ROUNDS_JOINING && p->comm->partials->next != NULL)
		waiters_look(p);
}

/* ---- Runs ---- */

/* `value` is the RUN action's. */
static void run_over(struct rb_engine *engine, const struct rb_run *run, uint64_t value)
{
	struct rb_protocol_event event;

	rb_protocol_event_set(&event, RB_PROTOCOL_RUN_DONE, 0, value, 0);
	if (run->status == RUBATO_OK)
		rb_partial_event(run->owner, &event);
	else if (run->status != RUBATO_ERR_PEER) /* Else the machine is about to hear of a loss. */
		rb_engine_poison(engine, run->status, run->failure);
}

static void exchange_done(struct rb_engine *engine, struct rb_run *run)
{
	run_over(engine, run, ((struct rubato_partial *)run->owner)->exchange.value);
}

static void reduce_done(struct rb_engine *engine, struct rb_run *run)
{
	run_over(engine, run, ((struct rubato_partial *)run->owner)->reduction.value);
}

struct rb_tag rb_partial_run_tag(const struct rubato_partial *p, enum rb_partial_tag which,
				 uint64_t instance)
{
	return rb_tag(p->comm->engine.epoch, RB_TAG_PARTIAL,
		      p->driver.number * RB_PARTIAL_TAGS + which, (uint32_t)instance);
}

static void join(struct rubato_partial *p)
{
	const struct rb_rounds_record *record = rb_rounds_own_record(p->machine);

	if (record->count > 0) {
		RB_ASSERT(record->in == p->buffers.pending);
		p->buffers.joined = p->buffers.pending;
		p->buffers.pending = RB_PARTIAL_NONE;
	} else if (rb_rounds_pending(p->machine).count == 0) {
		p->buffers.pending = RB_PARTIAL_NONE; /* It missed its round, and is discarded. */
	}
	p->results.slots[record->out].buffer = RB_PARTIAL_RESULTS + record->out;
}

static void exchange_start(struct rb_engine *engine, struct rubato_partial *p, uint64_t round)
{
	p->exchange.run.buffers[RB_BUF_IN].base =
		(void *)(uintptr_t)rb_rounds_own_record(p->machine);
	p->exchange.run.buffers[RB_BUF_OUT].base = rb_rounds_records(p->machine, round);
	p->exchange.run.buffers[RB_BUF_SCRATCH].base = p->exchange.scratch;
	p->exchange.run.type = RUBATO_INT64;
	p->exchange.run.tag = rb_partial_run_tag(p, RB_PARTIAL_TAG_EXCHANGE, round);
	p->exchange.run.signature = (struct rb_signature) {
		.kind = RB_KIND_ALLGATHER,
		.type = RUBATO_INT64,
		.op = 0xff,
		.algorithm = (uint8_t)(p->exchange.plan->algorithm - rb_algorithms),
		.root = UINT32_MAX,
		.count = RB_ROUNDS_RECORD_WORDS,
	};
	p->exchange.run.instance = (uint32_t)round;
	p->exchange.run.done = exchange_done;
	p->exchange.run.owner = p;
	rb_run_start(engine, &p->exchange.run);
}

uint32_t rb_partial_members_find(struct rubato_partial *p)
{
	uint32_t position = 0;

	/* Without groups all are in every round. */
	if (p->reduction.member_count == p->config.rank_count && !rb_rounds_grouped(&p->config))
		return p->config.rank;
	p->reduction.member_count = rb_rounds_members(p->machine, p->reduction.members);
	while (p->reduction.members[position] != p->comm->engine.rank)
		position++;
	return position;
}

/* The buffer of what a rank has in a round. */
static uint32_t brought(const struct rb_rounds_record *record)
{
	return record->count > 0 ? record->in : RB_PARTIAL_IDENTITY;
}

/* False: a peer names buffers that there are none of. */
static bool addresses_fill(struct rubato_partial *p, const struct rb_rounds_record *records)
{
	for (uint32_t i = 0; i < p->reduction.member_count; i++) {
		const struct rb_rounds_record *record = &records[p->reduction.members[i]];
		uint8_t *base = p->buffers.bases[p->reduction.members[i]];

		if (brought(record) > RB_PARTIAL_IDENTITY || record->out >= p->results.slot_count)
			return false;
		if (base == NULL)
			continue; /* This algorithm touches nobody's memory. */
		p->reduction.peers[i].mapped[RB_BUF_IN] =
			base + p->buffers.stride * brought(record);
		p->reduction.peers[i].mapped[RB_BUF_OUT] =
			base + p->buffers.stride * (RB_PARTIAL_RESULTS + record->out);
		p->reduction.peers[i].mapped[RB_BUF_SCRATCH] =
			base + p->buffers.stride * (RB_PARTIAL_RESULTS + p->results.slot_count);
	}
	return true;
}

/* What the result of a round holds. */
static void result_fill(struct rubato_partial *p, uint32_t slot, uint64_t round)
{
	struct rb_partial_result *r = &p->results.slots[slot];

	r->summary = *rb_rounds_summary(p->machine, round);
	memcpy(p->results.running, rb_rounds_records(p->machine, round),
	       rb_partial_records_bytes(p));
	rb_contributions_write(&r->contributions, p->results.running, p->reduction.members,
			       p->reduction.member_count);
}

static void reduce_start(struct rb_engine *engine, struct rubato_partial *p, uint64_t round)
{
	const struct rb_rounds_record *own = rb_rounds_own_record(p->machine);
	uint32_t position = rb_partial_members_find(p);
	bool all = p->reduction.member_count == engine->rank_count;
	double divisor = rb_rounds_divisor(p->machine);
	struct rb_run *run = &p->reduction.run;

	if (divisor > UINT32_MAX) {
		rb_engine_poison(engine, RUBATO_ERR_ARGUMENT,
				 "partial: a round's weights add up to 2^32 or more");
		return;
	}
	if (!addresses_fill(p, rb_rounds_records(p->machine, round))) {
		rb_engine_poison(engine, RUBATO_ERR_INTERNAL,
				 "partial: a record names a buffer that does not exist");
		return;
	}
	run->plan = all ? p->reduction.plan : p->reduction.group_plans[position];
	run->ranks = all ? NULL : p->reduction.members;
	run->buffers[RB_BUF_IN] = rb_partial_where(p, brought(own));
	run->buffers[RB_BUF_OUT] = rb_partial_where(p, RB_PARTIAL_RESULTS + own->out);
	run->buffers[RB_BUF_SCRATCH] =
		rb_partial_where(p, RB_PARTIAL_RESULTS + p->results.slot_count);
	run->peers = p->reduction.peers;
	run->type = p->vector.type;
	run->op = p->vector.op;
	if (p->vector.wire != RUBATO_WIRE_SAME)
		run->executors = p->coded.reduction.executors;
	if (p->device.executor != NULL && rb_partial_device_run(p, run) != RUBATO_OK) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, rubato_error_text());
		return;
	}
	run->divisor = (uint32_t)divisor;
	run->tag = rb_partial_run_tag(p, RB_PARTIAL_TAG_REDUCE, round);
	run->signature = (struct rb_signature) {
		.kind = RB_KIND_ALLREDUCE,
		.type = rb_signature_type(p->vector.type, p->vector.wire, false),
		.op = (uint8_t)p->vector.op,
		.algorithm = (uint8_t)(run->plan->algorithm - rb_algorithms),
		.root = UINT32_MAX,
		.count = p->vector.count,
	};
	run->instance = (uint32_t)round;
	run->met = RB_MET_ENTERED;
	run->done = reduce_done;
	run->owner = p;
	rb_run_start(engine, run);
	/* Now, since others are to be waited for; it is read when the round is complete. */
	rb_rounds_summarise(p->machine);
	result_fill(p, own->out, round);
	p->results.filled = true;
}

/* ---- The end of a round ---- */

static void completed(struct rubato_partial *p, uint64_t round)
{
	struct rb_rounds_record *running = p->results.running;

	if (!p->results.filled)
		result_fill(p, rb_rounds_answer_of(p->machine).newest, round);
	p->results.filled = false;
	p->results.running = p->results.newest;
	p->results.newest = running;
	p->buffers.joined = RB_PARTIAL_NONE;
}

/* ---- Events and actions ---- */

static void run_begin(struct rubato_partial *p, const struct rb_protocol_action *action)
{
	struct rb_engine *engine = &p->comm->engine;
	uint64_t round = action->value / RB_ROUNDS_RUNS;

	if (p->driver.over)
		return; /* By an action before this one. */
	switch ((enum rb_rounds_run)(action->value % RB_ROUNDS_RUNS)) {
	case RB_ROUNDS_EXCHANGE:
		p->exchange.value = action->value;
		join(p);
		exchange_start(engine, p, round);
		break;
	case RB_ROUNDS_JOIN:
		join(p);
		break;
	case RB_ROUNDS_REDUCE:
		p->reduction.value = action->value;
		reduce_start(engine, p, round);
		break;
	case RB_ROUNDS_FETCH:
	case RB_ROUNDS_SERVE:
	case RB_ROUNDS_ABANDON:
	case RB_ROUNDS_RESTORE:
		rb_partial_recover(p, action->value, action->peer);
		break;
	}
}

static void done(struct rubato_partial *p, const struct rb_protocol_action *action)
{
	waiters_look(p);
	if (p->driver.over)
		return; /* Poisoned. */
	switch ((enum rb_rounds_done)(action->value % RB_ROUNDS_EVENTS)) {
	case RB_ROUNDS_COMPLETED:
		completed(p, action->value / RB_ROUNDS_EVENTS);
		break;
	case RB_ROUNDS_ENDED: /* The driver lives on: others may still have to hear. */
		break;
	case RB_ROUNDS_DIFFERING:
		RB_ASSERT(action->status == RUBATO_ERR_MISMATCH);
		rb_partial_mismatch(&p->comm->engine, p);
		break;
	}
}

static void action_do(struct rubato_partial *p, const struct rb_protocol_action *action)
{
	switch (action->act) {
	case RB_PROTOCOL_SEND:
	case RB_PROTOCOL_SEND_ALL:
	case RB_PROTOCOL_WAKE:
		rb_protocol_carry_out(&p->comm->engine, &p->driver, action);
		break;
	case RB_PROTOCOL_RUN:
		run_begin(p, action);
		break;
	case RB_PROTOCOL_DONE:
		done(p, action);
		break;
	}
}

void rb_partial_event(struct rubato_partial *p, struct rb_protocol_event *event)
{
	struct rb_engine *engine = &p->comm->engine;

	if (!rb_protocol_begin(engine, &p->driver, event))
		return;
	do {
		p->actions.count = 0;
		rb_rounds_step(p->machine, event, &p->actions);
		if (event->kind == RB_PROTOCOL_START && event->value == RB_ROUNDS_COMMIT)
			settle(p);
		RB_ASSERT_DEAR(rb_rounds_valid(p->machine));
		for (uint32_t i = 0; i < p->actions.count; i++)
			action_do(p, &p->actions.item[i]);
		/* Of the event's time, but behind what others wait for. */
		phase_clock(p, event->now_ns, event->kind == RB_PROTOCOL_RUN_DONE);
	} while (rb_protocol_next(engine, &p->driver, event));
}

/* As most calls are that read results. */
static bool read_apart(struct rubato_partial *p, enum rb_rounds_call call, uint64_t now_ns)
{
	if (p->driver.stepping || rb_protocol_is_dead(&p->comm->engine, &p->driver) ||
	    !rb_rounds_read_apart(p->machine, call))
		return false;
	if (now_ns > p->driver.now_ns)
		p->driver.now_ns = now_ns;
	RB_ASSERT_DEAR(rb_rounds_valid(p->machine));
	return true;
}

static __attribute__((noinline)) void call_event(struct rubato_partial *p, enum rb_rounds_call call,
						 const void *argument, size_t argument_bytes,
						 uint64_t now_ns)
{
	struct rb_protocol_event event;

	RB_ASSERT(argument_bytes <= sizeof(event.message));
	rb_protocol_event_set(&event, RB_PROTOCOL_START, 0, call, now_ns);
	if (argument_bytes > 0)
		memcpy(event.message, argument, argument_bytes);
	rb_partial_event(p, &event);
}

void rb_partial_call(struct rubato_partial *p, enum rb_rounds_call call, const void *argument,
		     size_t argument_bytes, uint64_t now_ns)
{
	if (!read_apart(p, call, now_ns))
		call_event(p, call, argument, argument_bytes, now_ns);
}

void rb_partial_driver_event(struct rb_engine *engine, struct rb_protocol_driver *driver,
			     struct rb_protocol_event *event)
{
	(void)engine;
	rb_partial_event(driver->owner, event);
}

void rb_partial_driver_ended(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	(void)engine;
	waiters_look(driver->owner);
}

/* ---- Whether it goes on ---- */

bool rb_partial_over(const struct rubato_partial *p)
{
	return p->driver.over || rb_rounds_phase_of(p->machine) == RB_ROUNDS_OVER;
}

rubato_status rb_partial_end_check(const struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	const char *loss;
	char text[RB_LOSS_BYTES];

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(engine->poison, "%s", engine->poison_text);
	if (!rb_partial_over(p))
		return RUBATO_OK;
	loss = rb_loss_behind(&engine->losses, UINT32_MAX, text, sizeof(text));
	if (loss != NULL)
		return RB_FAIL(RUBATO_ERR_PEER, "partial allreduce: %s", loss);
	/* The survivors' agreement may be here before our own connection to the lost one ends. */
	return RB_FAIL(RUBATO_ERR_PEER, "partial allreduce: rank %u is lost, others say",
		       rb_rounds_lost(p->machine));
}

/* ---- Calls of the application's thread ---- */

/*
 * Takes the lock. *begin_ns: when the call began. A look at the clock costs as much as a hundred
 * instructions, so where nothing can come of the call, and nobody measures what it takes, it is the
 * time of the last event.
 */
static rubato_status idle_call(struct rubato_partial *p, uint64_t *begin_ns)
{
	struct rb_engine *engine = &p->comm->engine;

	RB_TRY(rb_engine_ours(engine));
	if (!rb_lock_try(&engine->lock)) {
		*begin_ns = rb_engine_now(engine);
		rb_engine_enter(engine);
	} else if (rb_rounds_is_idle(p->machine) && engine->poison == RUBATO_OK &&
		   p->driver.now_ns > 0 && !p->clocks.measured) {
		*begin_ns = p->driver.now_ns;
	} else {
		*begin_ns = rb_engine_now(engine);
	}
	return RUBATO_OK;
}

/* What a call has taken that began then: up to the last event that came of it. */
static void call_clock(struct rubato_partial *p, uint64_t begin_ns)
{
	if (p->driver.now_ns > begin_ns)
		p->clocks.call_ns += p->driver.now_ns - begin_ns;
}

/* ---- What the application commits ---- */

static void *leased(const struct rubato_partial *p)
{
	return p->vector.wire != RUBATO_WIRE_SAME ? p->coded.lease
						  : rb_partial_buffer(p, p->buffers.lease);
}

rubato_status rubato_partial_acquire(rubato_partial *p, void **buffer)
{
	bool zeroed;

	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial acquire: NULL");
	RB_TRY(rb_engine_ours(&p->comm->engine));
	zeroed = !p->buffers.leased && p->config.options.zeroed;
	if (zeroed && p->device.executor != NULL)
		RB_TRY(rb_partial_device_identity(p, leased(p)));
	else if (zeroed)
		rb_reduce_identity(p->vector.type, p->vector.op, leased(p), p->vector.count);
	*buffer = leased(p);
	p->buffers.leased = true;
	return RUBATO_OK;
}

/* Why it cannot be committed; OK: it can. */
static __attribute__((noinline)) rubato_status commit_refuse(const struct rubato_partial *p,
							     uint64_t step, uint64_t weight)
{
	struct rb_rounds_view view = rb_rounds_view_of(p->machine);

	RB_TRY(rb_partial_end_check(p));
	if (view.left || view.draining)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: after %s",
			       (unsigned long long)step,
			       view.left ? "leave" : "drain: collect until there is none first");
	if (!p->buffers.leased)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: nothing was acquired",
			       (unsigned long long)step);
	if (view.committed > 0 && step <= view.last_step)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: the last one was %llu",
			       (unsigned long long)step, (unsigned long long)view.last_step);
	if (weight > UINT32_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit: weight %llu is too large",
			       (unsigned long long)weight);
	return RUBATO_OK;
}

static inline rubato_status commit_check(const struct rubato_partial *p, uint64_t step,
					 uint64_t weight)
{
	if (p->comm->engine.poison == RUBATO_OK && !p->driver.over && p->buffers.leased &&
	    weight <= UINT32_MAX && rb_rounds_may_commit(p->machine, step))
		return RUBATO_OK;
	return commit_refuse(p, step, weight);
}

static rubato_status merge(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	/* The machine keeps it where it is until it is told that this is over. */
	uint32_t pending = p->buffers.pending;
	float *kept = p->coded.reduction.residual;
	bool aside = p->vector.bytes > MERGE_LOCKED_BYTES || p->device.executor != NULL;
	rubato_status err;

	if (aside)
		rb_engine_leave(engine);
	err = rb_partial_merge(p, pending, p->buffers.lease, false, kept);
	if (aside)
		rb_engine_enter(engine);
	if (err != RUBATO_OK) /* What is pending is of no use, and rounds rely on it. */
		rb_engine_poison(engine, err, rubato_error_text());
	rb_partial_call(p, RB_ROUNDS_MERGED, NULL, 0, 0);
	return err == RUBATO_OK ? RUBATO_OK : rb_partial_end_check(p);
}

static rubato_status commit(struct rubato_partial *p, uint64_t step, uint64_t weight,
			    uint64_t begin_ns)
{
	struct rb_rounds_commit c = { .step = step, .weight = weight, .buffer = p->buffers.lease };

	if (rb_rounds_meets(&p->config)) /* It tells all, mostly. */
		rb_protocol_send_soon(&p->comm->engine);
	RB_TRY(commit_check(p, step, weight));
	if (p->vector.wire != RUBATO_WIRE_SAME) {
		rubato_status err;

		rb_engine_leave(&p->comm->engine);
		err = encode(p);
		rb_engine_enter(&p->comm->engine);
		if (err != RUBATO_OK) /* What rounding has lost is lost. */
			rb_engine_poison(&p->comm->engine, err, rubato_error_text());
		RB_TRY(rb_partial_end_check(p));
		begin_ns = rb_engine_now(&p->comm->engine); /* That took its time. */
	}
	if (p->clocks.work_since_ns > 0)
		c.duration_ns = begin_ns - p->clocks.work_since_ns;
	p->buffers.leased = false;
	rb_partial_call(p, RB_ROUNDS_COMMIT, &c, sizeof(c), begin_ns);
	return rb_rounds_answer_of(p->machine).verdict == RB_ROUNDS_MERGE ? merge(p) : RUBATO_OK;
}

rubato_status rubato_partial_commit(rubato_partial *p, uint64_t step, uint64_t weight)
{
	rubato_status err;
	uint64_t begin;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit: NULL");
	begin = rb_engine_now(&p->comm->engine);
	RB_TRY(rb_engine_call(&p->comm->engine));
	err = commit(p, step, weight, begin);
	call_clock(p, begin);
	rb_engine_leave(&p->comm->engine);
	return err;
}

rubato_status rubato_partial_contribute(rubato_partial *p, const void *buffer, uint64_t step,
					uint64_t weight)
{
	rubato_status err;
	void *lease;

	if (p == NULL || (buffer == NULL && p->vector.count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial contribute: NULL");
	RB_TRY(rb_engine_ours(&p->comm->engine));
	lease = leased(p);
	p->buffers.leased = true;
	err = rb_device_take(&p->copy, "partial contribute", p->device.executor, lease, buffer,
			     p->vector.user_bytes, p->comm->timeout_ns);
	if (err == RUBATO_OK)
		return rubato_partial_commit(p, step, weight);
	p->buffers.leased = false; /* It holds some of what did not come. */
	return err;
}

/* ---- What it collects ---- */

/*
 * While this thread waits here, it commits nothing to the others. Whether one of them cannot go on
 * without this application: rounds there and here might wait for each other for ever.
 */
static bool is_wanted_elsewhere(struct rubato_partial *p)
{
	struct rb_rounds_view here;
	bool wanted = false;

	if (p->comm->partials->next == NULL)
		return false;
	here = rb_rounds_view_of(p->machine);
	for (struct rubato_partial *q = p->comm->partials; q != NULL; q = q->next) {
		bool unread;

		if (q == p || rb_partial_over(q))
			continue;
		if (here.phase == RB_ROUNDS_OPEN)
			rb_partial_call(q, RB_ROUNDS_WAITING, NULL, 0, 0);
		if (rb_rounds_wants(q->machine, &unread))
			wanted |= unread || here.phase == RB_ROUNDS_OPEN;
	}
	return wanted && !here.draining && !here.left;
}

/* Whether the machine has still to hear of what poisoned the engine: then there will be more. */
static bool is_loss_unheard(const struct rubato_partial *p)
{
	return p->comm->engine.poison != RUBATO_OK &&
	       rb_rounds_phase_of(p->machine) < RB_ROUNDS_RECOVERING;
}

/* From *at_ns on, a moment ago; and then that is when it was over. */
static rubato_status change_wait(struct rubato_partial *p, uint64_t *deadline_ns,
				 uint64_t timeout_ns, uint64_t *at_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	uint64_t begin_ns = *at_ns, waits_ns = engine->wait_ns;
	rubato_status err;

	p->clocks.wait_since_ns = begin_ns;
	if (*deadline_ns == 0) {
		err = rb_engine_wait_for(engine, &p->changed, timeout_ns);
		*deadline_ns = rb_deadline(begin_ns, timeout_ns);
	} else {
		err = rb_engine_wait(engine, &p->changed, *deadline_ns);
	}
	/* With the first polls, which the event has just ended: as in idle_call. */
	if (engine->wait_ns == waits_ns && p->driver.now_ns > begin_ns && !p->clocks.measured)
		*at_ns = p->driver.now_ns;
	else
		*at_ns = rb_engine_now(engine);
	wait_clock(p, *at_ns);
	p->clocks.wait_since_ns = 0;
	return err == RUBATO_OK ? RUBATO_OK : rb_partial_timeout_fail(p, timeout_ns);
}

/* *slot: where the result is, or NO_SLOT: there is none. *at_ns: when it looked last. */
static rubato_status result_wait(struct rubato_partial *p, uint64_t timeout_ns, uint32_t *slot,
				 uint64_t *at_ns)
{
	bool look = timeout_ns == RUBATO_NO_WAIT, looked = false;
	struct rb_rounds_answer answer;
	uint64_t deadline_ns = 0;

	if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
		timeout_ns = p->comm->timeout_ns;
	*slot = RB_ROUNDS_NO_SLOT;
	for (;;) {
		if (p->driver.over)
			return rb_partial_end_check(p);
		rb_partial_call(p, look ? RB_ROUNDS_LOOK : RB_ROUNDS_COLLECT, NULL, 0, *at_ns);
		answer = rb_rounds_answer_of(p->machine);
		switch (answer.offer) {
		case RB_ROUNDS_RESULT:
			*slot = answer.lent;
			return RUBATO_OK;
		case RB_ROUNDS_ERA_OVER:
			return RUBATO_OK;
		case RB_ROUNDS_NO_MORE:
			return rb_partial_end_check(p);
		case RB_ROUNDS_NOTHING:
			if (!is_loss_unheard(p))
				return RUBATO_OK;
			break;
		case RB_ROUNDS_WAIT:
			break;
		}
		if (looked)
			return RUBATO_OK;
		if (look) {
			(void)rb_engine_look(&p->comm->engine, &looked);
			looked = true;
			*at_ns = rb_engine_now(&p->comm->engine);
			continue;
		}
		p->changed = false;
		if (is_wanted_elsewhere(p))
			return RUBATO_OK;
		RB_TRY(change_wait(p, &deadline_ns, timeout_ns, at_ns));
	}
}

static void round_fill(struct rubato_partial *p, const struct rb_partial_result *r,
		       rubato_round *round)
{
	uint32_t size_bytes = round->size_bytes;

	*round = r->summary;
	round->size_bytes = size_bytes;
	rb_contributions_read(&r->contributions, p->results.lent_ranks);
	round->ranks = p->results.lent_ranks;
}

rubato_status rubato_partial_collect_view(rubato_partial *p, const void **result,
					  rubato_round *round, uint64_t timeout_ns)
{
	uint32_t slot = RB_ROUNDS_NO_SLOT;
	struct rb_engine *engine;
	uint64_t begin, at, before;
	rubato_status err;

	if (p == NULL || result == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: NULL");
	if (round != NULL && round->size_bytes < sizeof(*round))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: round.size_bytes is not set");
	engine = &p->comm->engine;
	RB_TRY(idle_call(p, &begin));
	at = begin;
	before = p->clocks.waited_ns;
	if (rb_rounds_answer_of(p->machine).lent != RB_ROUNDS_NO_SLOT && !p->driver.over)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: release the last one first");
	else
		err = result_wait(p, timeout_ns, &slot, &at);
	if (slot != RB_ROUNDS_NO_SLOT && round != NULL)
		round_fill(p, &p->results.slots[slot], round);
	before = p->clocks.waited_ns - before;
	rb_engine_leave(engine);
	/* It stays as it is until it is released. */
	if (err == RUBATO_OK)
		*result = NULL;
	if (err == RUBATO_OK && slot != RB_ROUNDS_NO_SLOT)
		err = rb_partial_decoded(p, "partial collect", p->results.slots[slot].buffer,
					 p->coded.result, result);
	if (p->vector.wire != RUBATO_WIRE_SAME)
		at = rb_engine_now(engine); /* That took its time. */
	p->clocks.work_since_ns = at;
	p->clocks.call_ns += at - begin - before;
	return err;
}

rubato_status rubato_partial_release(rubato_partial *p)
{
	rubato_status err = RUBATO_OK;
	uint64_t begin;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial release: NULL");
	RB_TRY(idle_call(p, &begin));
	if (rb_rounds_answer_of(p->machine).lent == RB_ROUNDS_NO_SLOT)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial release: nothing is lent");
	else
		rb_partial_call(p, RB_ROUNDS_RELEASE, NULL, 0, begin);
	call_clock(p, begin);
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* Before a result is taken that could go nowhere. */
static rubato_status out_check(rubato_partial *p, const void *out)
{
	struct rb_executor *device;
	enum rb_memory_kind kind;
	rubato_status err;

	if (p->comm->engine.device_count == 0)
		return RUBATO_OK;
	rb_engine_enter(&p->comm->engine);
	err = rb_memory_kind_find(&p->comm->engine, "partial collect", out, p->vector.user_bytes,
				  &kind, &device);
	rb_engine_leave(&p->comm->engine);
	return err;
}

rubato_status rubato_partial_collect(rubato_partial *p, void *out, bool *collected,
				     rubato_round *round, uint64_t timeout_ns)
{
	const void *result;
	rubato_status err;
	char text[RB_TEXT_BYTES];

	if (p == NULL || collected == NULL || (out == NULL && p->vector.count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: NULL");
	RB_TRY(rb_engine_ours(&p->comm->engine));
	RB_TRY(out_check(p, out));
	RB_TRY(rubato_partial_collect_view(p, &result, round, timeout_ns));
	*collected = result != NULL;
	if (result == NULL)
		return RUBATO_OK;
	err = rb_device_give(&p->copy, "partial collect", p->device.executor, out, result,
			     p->vector.user_bytes, p->comm->timeout_ns);
	*collected = err == RUBATO_OK;
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	RB_TRY(rubato_partial_release(p));
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(err, "%s", text);
}

/* ---- Drain and leave ---- */

static rubato_status passive(rubato_partial *p, enum rb_rounds_call call, const char *name)
{
	struct rb_rounds_view view;
	rubato_status err;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial %s: NULL", name);
	RB_TRY(rb_engine_call(&p->comm->engine));
	view = rb_rounds_view_of(p->machine);
	err = rb_partial_end_check(p);
	if (err == RUBATO_OK && (view.draining || view.left))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial %s: after %s", name,
			      view.left ? "leave" : "drain: collect until there is none first");
	if (err == RUBATO_OK)
		rb_partial_call(p, call, NULL, 0, 0);
	rb_engine_leave(&p->comm->engine);
	return err;
}

rubato_status rubato_partial_drain(rubato_partial *p)
{
	return passive(p, RB_ROUNDS_DRAIN, "drain");
}

rubato_status rubato_partial_leave(rubato_partial *p)
{
	return passive(p, RB_ROUNDS_LEAVE, "leave");
}
