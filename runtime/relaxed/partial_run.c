/*
 * partial_run.c -- carries out what the partial allreduce's machine asks for: the exchange of
 * records, the reduction, what survivors of a crash fetch and serve.
 *
 * A round touches peers' buffers in place, so when does nobody touch mine? The exchange of round r
 * is complete when every rank has joined r, and joining r means to have completed r - 1: so it
 * synchronises the entry into the reduction (run.entered), and whatever was read or written for
 * r - 1 is free again. In the reduction contributions are only read: those of a round that a crash
 * cut short are as they were.
 */
#include "runtime/relaxed/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Contributions ---- */

uint32_t rb_partial_free_contribution(const struct rubato_partial *p)
{
	uint32_t i = 0;

	while (i == p->buffers.lease || i == p->buffers.pending || i == p->buffers.joined)
		i++;
	RB_ASSERT(i < RB_PARTIAL_CONTRIBUTIONS);
	return i;
}

void rb_partial_merge(struct rubato_partial *p, uint32_t into, uint32_t from, bool from_first)
{
	const void *operands[2] = { rb_partial_buffer(p, from_first ? from : into),
				    rb_partial_buffer(p, from_first ? into : from) };
	const struct rb_reduce both = { .type = p->vector.type,
					.op = p->vector.op,
					.to = rb_partial_buffer(p, into),
					.from = operands,
					.from_count = 2,
					.count = p->vector.count };

	if (p->vector.count > 0)
		p->vector.reduce(&both);
}

/* What the verdict on a commit means for the buffers: before anything else happens. */
static void settle(struct rubato_partial *p)
{
	uint32_t lease = p->buffers.lease;

	switch (rb_rounds_view_of(p->machine).verdict) {
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

static void restore(struct rubato_partial *p)
{
	if (p->buffers.pending == RB_PARTIAL_NONE)
		p->buffers.pending = p->buffers.joined;
	else /* Into the pending one: peers may still be reading what was joined. */
		rb_partial_merge(p, p->buffers.pending, p->buffers.joined, true);
	p->buffers.joined = RB_PARTIAL_NONE;
}

/* ---- Steps ---- */

void rb_partial_wait_note(struct rubato_partial *p, uint64_t now_ns)
{
	struct rb_partial_clocks *c = &p->clocks;

	if (c->wait_since_ns > 0 && c->phase <= RB_ROUNDS_REDUCING)
		c->wait_ns[c->phase] += now_ns - c->wait_since_ns;
	c->wait_since_ns = c->wait_since_ns > 0 ? now_ns : 0;
}

/* Who waits, here or in another operation, looks again: it may be wanted now. */
static void stir(struct rubato_partial *p)
{
	for (struct rubato_partial *q = p->comm->partials; q != NULL; q = q->next)
		q->changed = true;
	p->changed = p->comm->engine.completed = true;
}

static void phase_note(struct rubato_partial *p, uint64_t now_ns)
{
	enum rb_rounds_phase phase = rb_rounds_view_of(p->machine).phase;
	struct rb_partial_clocks *c = &p->clocks;

	if (phase == c->phase)
		return;
	rb_partial_wait_note(p, now_ns);
	if (c->phase <= RB_ROUNDS_REDUCING)
		c->phase_ns[c->phase] += now_ns - c->phase_since_ns;
	c->phase = phase;
	c->phase_since_ns = now_ns;
	/* For want of room, perhaps: who waits elsewhere is to know. */
	if (phase == RB_ROUNDS_JOINING && p->comm->partials->next != NULL)
		stir(p);
}

static void step(void *machine, const struct rb_protocol_event *event,
		 struct rb_protocol_actions *out)
{
	struct rubato_partial *p = machine;

	rb_rounds_protocol.step(p->machine, event, out);
	if (event->kind == RB_PROTOCOL_START && event->value == RB_ROUNDS_COMMIT)
		settle(p);
	phase_note(p, event->now_ns);
}

static bool valid(const void *machine)
{
	const struct rubato_partial *p = machine;

	return rb_rounds_protocol.valid(p->machine);
}

const struct rb_protocol rb_partial_protocol = { .name = "partial", .step = step, .valid = valid };

void rb_partial_call(struct rubato_partial *p, enum rb_rounds_call call, const void *argument,
		     size_t argument_bytes)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = call };

	RB_ASSERT(argument_bytes <= sizeof(event.message));
	if (argument_bytes > 0)
		memcpy(event.message, argument, argument_bytes);
	rb_protocol_event(&p->comm->engine, &p->driver, &event);
}

/* ---- Runs ---- */

static void run_over(struct rb_engine *engine, struct rb_run *run, enum rb_rounds_run which)
{
	struct rubato_partial *p = run->owner;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_RUN_DONE };

	if (run->status == RUBATO_OK) {
		event.value = rb_rounds_view_of(p->machine).round * RB_ROUNDS_RUNS + which;
		rb_protocol_event(engine, &p->driver, &event);
	} else if (run->status != RUBATO_ERR_PEER) {
		rb_engine_poison(engine, run->status, run->failure);
	} /* Else the machine is about to learn who was lost. */
}

static void exchange_done(struct rb_engine *engine, struct rb_run *run)
{
	run_over(engine, run, RB_ROUNDS_EXCHANGE);
}

static void reduce_done(struct rb_engine *engine, struct rb_run *run)
{
	run_over(engine, run, RB_ROUNDS_REDUCE);
}

static void forgotten_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine, (void)run;
}

struct rb_tag rb_partial_run_tag(const struct rubato_partial *p, enum rb_partial_tag which,
				 uint64_t instance)
{
	return rb_tag(p->comm->engine.epoch, RB_TAG_PARTIAL,
		      p->driver.number * RB_PARTIAL_TAGS + which, (uint32_t)instance);
}

static void exchange_start(struct rb_engine *engine, struct rubato_partial *p, uint64_t round)
{
	struct rb_rounds_record *record = rb_rounds_own_record(p->machine);
	uint32_t in = RB_PARTIAL_IDENTITY, out = rb_rounds_view_of(p->machine).out;

	RB_ASSERT((record->count > 0) == (p->buffers.pending != RB_PARTIAL_NONE));
	if (record->count > 0) {
		in = p->buffers.joined = p->buffers.pending;
		p->buffers.pending = RB_PARTIAL_NONE;
	}
	p->results.slots[out].buffer = RB_PARTIAL_RESULTS + out;
	record->in = (uint16_t)in;
	record->out = (uint16_t)p->results.slots[out].buffer;
	p->exchange.run.buffers[RB_BUF_IN] = record;
	p->exchange.run.buffers[RB_BUF_OUT] = rb_rounds_records(p->machine);
	p->exchange.run.buffers[RB_BUF_SCRATCH] = p->exchange.scratch;
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

static uint32_t members_find(struct rubato_partial *p)
{
	uint32_t position = 0;

	p->reduction.member_count = rb_rounds_members(p->machine, p->reduction.members);
	while (p->reduction.members[position] != p->comm->engine.rank)
		position++;
	return position;
}

/* False: a peer names buffers that there are none of. */
static bool addresses_fill(struct rubato_partial *p, const struct rb_rounds_record *records)
{
	for (uint32_t i = 0; i < p->reduction.member_count; i++) {
		const struct rb_rounds_record *record = &records[p->reduction.members[i]];
		uint8_t *base = p->buffers.bases[p->reduction.members[i]];

		if (record->in > RB_PARTIAL_IDENTITY || record->out < RB_PARTIAL_RESULTS ||
		    record->out >= RB_PARTIAL_RESULTS + p->results.slot_count)
			return false;
		if (base == NULL)
			continue; /* This algorithm touches nobody's memory. */
		p->reduction.peers[i].mapped[RB_BUF_IN] = base + p->buffers.stride * record->in;
		p->reduction.peers[i].mapped[RB_BUF_OUT] = base + p->buffers.stride * record->out;
		p->reduction.peers[i].mapped[RB_BUF_SCRATCH] =
			base + p->buffers.stride * (RB_PARTIAL_RESULTS + p->results.slot_count);
	}
	return true;
}

static void reduce_start(struct rb_engine *engine, struct rubato_partial *p, uint64_t round)
{
	const struct rb_rounds_record *own = rb_rounds_own_record(p->machine);
	uint32_t position = members_find(p);
	bool all = p->reduction.member_count == engine->rank_count;
	double divisor = rb_rounds_summary(p->machine)->divisor;
	struct rb_run *run = &p->reduction.run;

	if (divisor > UINT32_MAX) {
		rb_engine_poison(engine, RUBATO_ERR_ARGUMENT,
				 "partial: a round's weights add up to 2^32 or more");
		return;
	}
	if (!addresses_fill(p, rb_rounds_records(p->machine))) {
		rb_engine_poison(engine, RUBATO_ERR_INTERNAL,
				 "partial: a record names a buffer that does not exist");
		return;
	}
	run->plan = all ? p->reduction.plan : p->reduction.group_plans[position];
	run->ranks = all ? NULL : p->reduction.members;
	run->buffers[RB_BUF_IN] = rb_partial_buffer(p, own->in);
	run->buffers[RB_BUF_OUT] = rb_partial_buffer(p, own->out);
	run->buffers[RB_BUF_SCRATCH] =
		rb_partial_buffer(p, RB_PARTIAL_RESULTS + p->results.slot_count);
	run->peers = p->reduction.peers;
	run->type = p->vector.type;
	run->op = p->vector.op;
	run->divisor = (uint32_t)divisor;
	run->tag = rb_partial_run_tag(p, RB_PARTIAL_TAG_REDUCE, round);
	run->signature = (struct rb_signature) {
		.kind = RB_KIND_ALLREDUCE,
		.type = (uint8_t)p->vector.type,
		.op = (uint8_t)p->vector.op,
		.algorithm = (uint8_t)(run->plan->algorithm - rb_algorithms),
		.root = UINT32_MAX,
		.count = p->vector.count,
	};
	run->instance = (uint32_t)round;
	run->entered = true;
	run->done = reduce_done;
	run->owner = p;
	rb_run_start(engine, run);
}

static void run_forget(struct rb_engine *engine, struct rb_run *run)
{
	if (!run->active)
		return;
	run->done = forgotten_done;
	rb_run_fail(engine, run, RUBATO_ERR_CANCELLED, "abandoned");
}

/* ---- What survivors fetch from each other: a vector and the records ---- */

static void transfer_end(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	struct rb_partial_transfer **at = &t->partial->transfers.first;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	rb_slot_give(engine, t->slot);
	free(t);
}

static void transfer_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_partial_transfer *t = slot->owner;
	struct rubato_partial *p = t->partial;
	bool here = t->fetching && slot->request.status == RUBATO_OK;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_RUN_DONE,
					   .value = p->transfers.value };

	transfer_end(engine, t);
	if (here && --p->transfers.missing == 0)
		rb_protocol_event(engine, &p->driver, &event);
}

static void transfer_start(struct rb_engine *engine, struct rubato_partial *p, uint32_t peer,
			   uint64_t round, uint32_t part, void *buffer, uint64_t bytes,
			   bool fetching)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	struct rb_partial_transfer *t = calloc(1, sizeof(*t));
	struct rb_slot *slot = rb_slot_take(engine);
	struct rb_request *request;

	if (t == NULL || slot == NULL) {
		free(t);
		if (slot != NULL)
			rb_slot_give(engine, slot);
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a fetched result");
		return;
	}
	*t = (struct rb_partial_transfer) { slot, p, fetching, p->transfers.first };
	p->transfers.first = t;
	request = &slot->request;
	slot->is_work = false;
	slot->owner = t;
	slot->done = transfer_done;
	request->peer = peer;
	request->tag =
		rb_tag_message(engine->epoch, RB_TAG_FETCH, p->driver.number, round * 2 + part);
	request->signature = (struct rb_signature) { .kind = RB_KIND_CONTROL,
						     .type = 0xff,
						     .op = 0xff,
						     .root = UINT32_MAX,
						     .count = bytes };
	request->buffer = buffer;
	request->size_bytes = (size_t)bytes;
	request->owner = slot;
	request->state = RB_REQUEST_IDLE;
	if (fetching)
		ep->ops->recv(ep, request);
	else
		ep->ops->send(ep, request);
	if (request->state == RB_REQUEST_DONE)
		transfer_done(engine, slot);
}

static uint64_t records_bytes(const struct rubato_partial *p)
{
	return (uint64_t)p->comm->engine.rank_count * sizeof(struct rb_rounds_record);
}

/*
 * Peers that have not heard of the loss may still be writing the round's result here, the same
 * bits: it comes into a contribution buffer that is not needed any more.
 */
static void fetch_start(struct rb_engine *engine, struct rubato_partial *p, uint64_t value,
			uint32_t peer)
{
	uint64_t round = value / RB_ROUNDS_RUNS;
	struct rb_partial_result *out = &p->results.slots[rb_rounds_view_of(p->machine).out];

	(void)members_find(p);
	if (out->buffer >= RB_PARTIAL_RESULTS)
		out->buffer = rb_partial_free_contribution(p);
	p->transfers.missing = 2;
	p->transfers.value = value;
	transfer_start(engine, p, peer, round, 0, rb_partial_buffer(p, out->buffer),
		       p->vector.bytes, true);
	transfer_start(engine, p, peer, round, 1, rb_rounds_records(p->machine), records_bytes(p),
		       true);
}

static void serve(struct rb_engine *engine, struct rubato_partial *p, uint64_t round, uint32_t peer)
{
	const struct rb_partial_result *r = &p->results.slots[rb_rounds_view_of(p->machine).newest];

	RB_ASSERT(r->summary.round == round);
	transfer_start(engine, p, peer, round, 0, rb_partial_buffer(p, r->buffer), p->vector.bytes,
		       false);
	transfer_start(engine, p, peer, round, 1, r->records, records_bytes(p), false);
}

static void transfers_cancel(struct rb_engine *engine, struct rubato_partial *p, bool served)
{
	struct rb_partial_transfer *t = p->transfers.first;

	while (t != NULL) {
		struct rb_partial_transfer *next = t->next;
		struct rb_endpoint *ep = rb_engine_endpoint(engine, t->slot->request.peer);

		if (t->fetching || served) {
			if (t->slot->request.state == RB_REQUEST_PENDING)
				ep->ops->cancel(ep, &t->slot->request);
			transfer_end(engine, t);
		}
		t = next;
	}
}

void rb_partial_quiet(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;

	run_forget(engine, &p->exchange.run);
	run_forget(engine, &p->reduction.run);
	transfers_cancel(engine, p, true);
}

void rb_partial_carry_out(struct rb_engine *engine, struct rb_protocol_driver *driver,
			  uint64_t value, uint32_t peer)
{
	struct rubato_partial *p = driver->owner;
	uint64_t round = value / RB_ROUNDS_RUNS;

	if (driver->over)
		return; /* By an action before this one. */
	switch ((enum rb_rounds_run)(value % RB_ROUNDS_RUNS)) {
	case RB_ROUNDS_EXCHANGE:
		exchange_start(engine, p, round);
		break;
	case RB_ROUNDS_REDUCE:
		reduce_start(engine, p, round);
		break;
	case RB_ROUNDS_FETCH:
		fetch_start(engine, p, value, peer);
		break;
	case RB_ROUNDS_SERVE:
		serve(engine, p, round, peer);
		break;
	case RB_ROUNDS_ABANDON:
		run_forget(engine, &p->exchange.run);
		run_forget(engine, &p->reduction.run);
		transfers_cancel(engine, p, false);
		break;
	case RB_ROUNDS_RESTORE:
		restore(p);
		break;
	}
}

/* ---- Completion ---- */

static void completed(struct rubato_partial *p)
{
	struct rb_partial_result *r = &p->results.slots[rb_rounds_view_of(p->machine).newest];

	memcpy(r->records, rb_rounds_records(p->machine), records_bytes(p));
	r->summary = *rb_rounds_summary(p->machine);
	memset(r->member, 0, p->comm->engine.rank_count * sizeof(*r->member));
	for (uint32_t i = 0; i < p->reduction.member_count; i++)
		r->member[p->reduction.members[i]] = true;
	p->buffers.joined = RB_PARTIAL_NONE;
}

static void differing(struct rb_engine *engine, const struct rubato_partial *p)
{
	uint32_t ranks[2];
	uint64_t steps[2];
	char text[160];

	rb_rounds_mismatch(p->machine, ranks, steps);
	(void)snprintf(
		text, sizeof(text),
		"partial: the first number after a drain is %llu on rank %u, %llu on rank %u",
		(unsigned long long)steps[0], ranks[0], (unsigned long long)steps[1], ranks[1]);
	rb_engine_poison(engine, RUBATO_ERR_MISMATCH, text);
}

void rb_partial_told(struct rb_engine *engine, struct rb_protocol_driver *driver, uint64_t value,
		     rubato_status status)
{
	struct rubato_partial *p = driver->owner;

	stir(p);
	if (driver->over)
		return; /* Poisoned. */
	switch ((enum rb_rounds_done)(value % RB_ROUNDS_EVENTS)) {
	case RB_ROUNDS_COMPLETED:
		completed(p);
		break;
	case RB_ROUNDS_ENDED: /* The driver lives on: others may still have to hear. */
		break;
	case RB_ROUNDS_DIFFERING:
		RB_ASSERT(status == RUBATO_ERR_MISMATCH);
		differing(engine, p);
		break;
	}
}
