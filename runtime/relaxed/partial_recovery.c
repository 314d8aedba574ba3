/*
 * partial_recovery.c -- what survivors of a crash do for each other when the machine asks for it:
 * end the round that was cut short, fetch and serve a result, a vector and its records, and have
 * what was joined in vain pending again.
 */
#include "runtime/relaxed/partial.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static void restore(struct rubato_partial *p)
{
	if (p->buffers.pending == RB_PARTIAL_NONE)
		p->buffers.pending = p->buffers.joined;
	else if (p->device.executor != NULL) /* When the application asks. */
		p->device.restored = p->buffers.joined;
	else /* Into the pending one: peers may still be reading what was joined. */
		rb_partial_merge(p, p->buffers.pending, p->buffers.joined, true, NULL);
	p->buffers.joined = RB_PARTIAL_NONE;
}

rubato_status rb_partial_restored(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	uint32_t restored = RB_PARTIAL_NONE;

	rb_engine_enter(engine);
	if (rb_partial_over(p))
		restored = p->device.restored;
	rb_engine_leave(engine);
	if (restored == RB_PARTIAL_NONE)
		return RUBATO_OK;
	/* Nothing changes any more: all is over. */
	RB_TRY(rb_partial_merge(p, p->buffers.pending, restored, true, NULL));
	p->device.restored = RB_PARTIAL_NONE;
	return RUBATO_OK;
}

/* ---- Runs that are given up ---- */

static void forgotten_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine, (void)run;
}

static void run_forget(struct rb_engine *engine, struct rb_run *run)
{
	if (!run->active)
		return;
	run->done = forgotten_done;
	rb_run_fail(engine, run, RUBATO_ERR_CANCELLED, "abandoned");
}

/* ---- Transfers ---- */

static void transfer_end(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	struct rb_partial_transfer **at = &t->partial->transfers.first;
	struct rb_executor *device = t->partial->device.executor;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	if (t->slot != NULL)
		rb_slot_give(engine, t->slot);
	if (t->room != NULL)
		device->ops->memory_free(device, t->room);
	free(t);
}

static void transfer_over(struct rb_engine *engine, struct rb_partial_transfer *t, bool well)
{
	struct rubato_partial *p = t->partial;
	bool here = t->fetching && well;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_RUN_DONE,
					   .value = p->transfers.value };

	transfer_end(engine, t);
	if (here && --p->transfers.missing == 0)
		rb_partial_event(p, &event);
}

static bool slot_get(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	t->slot = rb_slot_take(engine);
	if (t->slot == NULL)
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a fetched result");
	else
		t->slot->owner = t;
	return t->slot != NULL;
}

static void copy_start(struct rb_engine *engine, struct rb_partial_transfer *t);

static void message_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_partial_transfer *t = slot->owner;
	bool well = slot->request.status == RUBATO_OK;

	if (!t->fetching || !well || t->room == NULL) {
		transfer_over(engine, t, well);
		return;
	}
	rb_slot_give(engine, slot);
	copy_start(engine, t);
}

static void message_start(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, t->peer);
	struct rb_request *request;

	if (!slot_get(engine, t)) {
		transfer_over(engine, t, false);
		return;
	}
	request = &t->slot->request;
	t->slot->is_work = false;
	t->slot->done = message_done;
	request->peer = t->peer;
	request->tag = rb_tag_message(engine->epoch, RB_TAG_FETCH, t->partial->driver.number,
				      t->round * 2 + t->part);
	request->signature = (struct rb_signature) { .kind = RB_KIND_CONTROL,
						     .type = 0xff,
						     .op = 0xff,
						     .root = UINT32_MAX,
						     .count = t->bytes };
	request->buffer = t->room != NULL ? t->room : t->buffer;
	request->where = NULL;
	request->size_bytes = (size_t)t->bytes;
	request->owner = t->slot;
	request->state = RB_REQUEST_IDLE;
	if (t->fetching)
		ep->ops->recv(ep, request);
	else
		ep->ops->send(ep, request);
	if (request->state == RB_REQUEST_DONE)
		message_done(engine, t->slot);
}

static void copy_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_partial_transfer *t = slot->owner;
	bool well = slot->work.status == RUBATO_OK;

	if (!well)
		RB_LOG(RB_LOG_WARN, "rank %u: partial: a result cannot be copied for survivors: %s",
		       engine->rank,
		       t->partial->device.executor->ops->why != NULL
			       ? t->partial->device.executor->ops->why(t->partial->device.executor)
			       : "");
	if (t->fetching || !well) {
		transfer_over(engine, t, well);
		return;
	}
	rb_slot_give(engine, slot);
	message_start(engine, t);
}

/* Between the device and pinned memory. */
static void copy_start(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	struct rb_executor *device = t->partial->device.executor;
	struct rb_work *work;

	if (!slot_get(engine, t)) {
		transfer_over(engine, t, false);
		return;
	}
	t->slot->is_work = true;
	t->slot->done = copy_done;
	work = &t->slot->work;
	memset(work, 0, sizeof(*work));
	work->operands[0] = t->fetching ? t->room : t->buffer;
	work->reduce = (struct rb_reduce) { .type = RUBATO_UINT8,
					    .op = RUBATO_SUM,
					    .to = t->fetching ? t->buffer : t->room,
					    .from = work->operands,
					    .from_count = 1,
					    .count = t->bytes };
	work->element_bytes = 1;
	work->owner = t->slot;
	device->ops->start(device, work);
	if (work->state == RB_WORK_DONE)
		copy_done(engine, t->slot);
}

static bool room_make(struct rb_partial_transfer *t)
{
	struct rb_executor *device = t->partial->device.executor;

	return device->ops->memory_new(device, RB_MEMORY_HOST, (size_t)t->bytes + 1, &t->room) ==
	       RUBATO_OK;
}

/* Part 0 is the vector, which may lie on a device; 1 are the records. */
static void transfer_start(struct rb_engine *engine, struct rubato_partial *p, uint32_t peer,
			   uint64_t round, uint32_t part, void *buffer, uint64_t bytes,
			   bool fetching)
{
	struct rb_partial_transfer *t = calloc(1, sizeof(*t));
	bool there = part == 0 && p->device.executor != NULL;

	if (t == NULL) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a fetched result");
		return;
	}
	*t = (struct rb_partial_transfer) { .partial = p,
					    .fetching = fetching,
					    .next = p->transfers.first,
					    .peer = peer,
					    .part = part,
					    .round = round,
					    .bytes = bytes,
					    .buffer = buffer };
	p->transfers.first = t;
	if (there && !room_make(t)) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a fetched result");
		transfer_over(engine, t, false);
	} else if (there && !fetching) {
		copy_start(engine, t);
	} else {
		message_start(engine, t);
	}
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

	(void)rb_partial_members_find(p);
	p->results.filled = false; /* The records are to come. */
	if (out->buffer >= RB_PARTIAL_RESULTS)
		out->buffer = rb_partial_free_contribution(p);
	p->transfers.missing = 2;
	p->transfers.value = value;
	transfer_start(engine, p, peer, round, 0, rb_partial_buffer(p, out->buffer),
		       p->vector.bytes, true);
	transfer_start(engine, p, peer, round, 1, rb_rounds_records(p->machine, round),
		       rb_partial_records_bytes(p), true);
}

static void serve(struct rb_engine *engine, struct rubato_partial *p, uint64_t round, uint32_t peer)
{
	const struct rb_partial_result *r = &p->results.slots[rb_rounds_view_of(p->machine).newest];

	RB_ASSERT(r->summary.round == round);
	transfer_start(engine, p, peer, round, 0, rb_partial_buffer(p, r->buffer), p->vector.bytes,
		       false);
	transfer_start(engine, p, peer, round, 1, p->results.newest, rb_partial_records_bytes(p),
		       false);
}

static void transfer_cancel(struct rb_engine *engine, struct rb_partial_transfer *t)
{
	struct rb_executor *device = t->partial->device.executor;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, t->peer);

	if (t->slot->is_work)
		device->ops->cancel(device, &t->slot->work);
	else if (t->slot->request.state == RB_REQUEST_PENDING)
		ep->ops->cancel(ep, &t->slot->request);
}

static void transfers_cancel(struct rb_engine *engine, struct rubato_partial *p, bool served)
{
	struct rb_partial_transfer *t = p->transfers.first;

	while (t != NULL) {
		struct rb_partial_transfer *next = t->next;

		if (t->fetching || served) {
			transfer_cancel(engine, t);
			transfer_end(engine, t);
		}
		t = next;
	}
}

/* ---- What the machine asks for ---- */

static void abandon(struct rubato_partial *p, bool served)
{
	struct rb_engine *engine = &p->comm->engine;

	run_forget(engine, &p->exchange.run);
	run_forget(engine, &p->reduction.run);
	transfers_cancel(engine, p, served);
}

void rb_partial_recover(struct rubato_partial *p, uint64_t value, uint32_t peer)
{
	switch ((enum rb_rounds_run)(value % RB_ROUNDS_RUNS)) {
	case RB_ROUNDS_FETCH:
		fetch_start(&p->comm->engine, p, value, peer);
		break;
	case RB_ROUNDS_SERVE:
		serve(&p->comm->engine, p, value / RB_ROUNDS_RUNS, peer);
		break;
	case RB_ROUNDS_ABANDON:
		abandon(p, false);
		break;
	case RB_ROUNDS_RESTORE:
		restore(p);
		break;
	case RB_ROUNDS_EXCHANGE:
	case RB_ROUNDS_JOIN:
	case RB_ROUNDS_REDUCE:
		break; /* partial.c has them. */
	}
}

void rb_partial_quiet(struct rubato_partial *p)
{
	abandon(p, true);
	rb_device_unwatch(&p->device.watch);
}
