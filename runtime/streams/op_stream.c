/* op_stream.c -- see op_stream.h. */
#include "runtime/streams/op_stream.h"

#include "runtime/op_run.h"

static void enqueued_add(struct rubato_op *op)
{
	struct rb_enqueued *enqueued = &op->comm->enqueued;

	op->stream.next = NULL;
	*(enqueued->last != NULL ? &enqueued->last->stream.next : &enqueued->first) = op;
	enqueued->last = op;
	op->comm->engine.polled++;
}

static void enqueued_remove(struct rubato_op *op)
{
	struct rb_enqueued *enqueued = &op->comm->enqueued;
	struct rubato_op *before = NULL;

	for (struct rubato_op *at = enqueued->first; at != op; at = at->stream.next)
		before = at;
	*(before != NULL ? &before->stream.next : &enqueued->first) = op->stream.next;
	if (enqueued->last == op)
		enqueued->last = before;
	op->comm->engine.polled--;
}

static void ends(struct rubato_op *op)
{
	if (op->state == RB_OP_ENQUEUED)
		enqueued_remove(op);
	op->stream.gate->ops->open(op->stream.gate);
}

/* In the order in which they were enqueued: each stream reaches its gates in that order, and ranks
 * that start the same operations in the same order begin them so. */
static bool enqueued_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_enqueued *enqueued = &((struct rb_comm_poller *)poller)->comm->enqueued;
	bool any = false;

	for (struct rubato_op *op = enqueued->first, *next; op != NULL; op = next) {
		bool reached;
		rubato_status err = op->stream.gate->ops->look(op->stream.gate, &reached);

		next = op->stream.next;
		if (err == RUBATO_OK && !reached)
			continue;
		any = true;
		if (err != RUBATO_OK) {
			rb_op_end(op, err, rubato_error_text());
			return true; /* All others may have ended, too. */
		}
		enqueued_remove(op);
		op->state = RB_OP_IDLE;
		rb_op_begin(op);
		if (engine->poison != RUBATO_OK)
			return true;
	}
	return any;
}

static bool enqueued_busy(const struct rb_engine *engine, const struct rb_poller *poller)
{
	(void)engine;
	return ((const struct rb_comm_poller *)poller)->comm->enqueued.first != NULL;
}

static void enqueued_poisoned(struct rb_engine *engine, struct rb_poller *poller,
			      rubato_status status, const char *text)
{
	struct rb_enqueued *enqueued = &((struct rb_comm_poller *)poller)->comm->enqueued;

	(void)engine;
	while (enqueued->first != NULL)
		rb_op_end(enqueued->first, status, text);
}

static const struct rb_poller_ops enqueued_ops = {
	.order = RB_POLLER_RUNS,
	.poll = enqueued_poll,
	.busy = enqueued_busy,
	.poisoned = enqueued_poisoned,
};

static void streams_open(struct rubato_comm *comm)
{
	if (comm->enqueued.poller.comm != NULL)
		return;
	comm->enqueued.poller.poller.ops = &enqueued_ops;
	comm->enqueued.poller.comm = comm;
	rb_engine_add_poller(&comm->engine, &comm->enqueued.poller.poller);
}

/* Its last start was cancelled, and the stream of that has yet to come by. */
static void gate_leave(struct rubato_op *op, const void *stream)
{
	struct rb_gate *gate = op->stream.gate;

	if (gate == NULL || !gate->ops->awaited(gate, stream))
		return;
	gate->ops->free(gate);
	op->stream.gate = NULL;
}

rubato_status rb_op_start_on(struct rubato_op *op, void *stream)
{
	gate_leave(op, stream);
	RB_TRY(rb_op_rooms(op));
	RB_TRY(op->stream.gate->ops->shut(op->stream.gate, stream));
	streams_open(op->comm);
	op->state = RB_OP_ENQUEUED;
	op->stream.ends = ends;
	op->done = false;
	atomic_store_explicit(&op->over, false, memory_order_relaxed);
	op->status = RUBATO_OK;
	op->comm->engine.in_flight++;
	enqueued_add(op);
	return RUBATO_OK;
}
