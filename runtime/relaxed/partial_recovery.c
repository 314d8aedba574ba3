/*
 * partial_recovery.c -- what survivors of a crash do for each other when the machine asks for it:
 * end the round that was cut short, fetch and serve a result, a vector and its records, and have
 * what was joined in vain pending again.
 */
#include "runtime/relaxed/partial.h"

#include <stdlib.h>

static void restore(struct rubato_partial *p)
{
	if (p->buffers.pending == RB_PARTIAL_NONE)
		p->buffers.pending = p->buffers.joined;
	else /* Into the pending one: peers may still be reading what was joined. */
		rb_partial_merge(p, p->buffers.pending, p->buffers.joined, true, NULL);
	p->buffers.joined = RB_PARTIAL_NONE;
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
		rb_partial_event(p, &event);
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
	request->where = NULL;
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
}
