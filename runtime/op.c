/* op.c -- see op.h. */
#include "runtime/op.h"

#include <stdio.h>

void rb_op_end(struct rubato_op *op, rubato_status status, const char *text)
{
	struct rb_engine *engine = &op->comm->engine;

	if (op->stream.ends != NULL)
		op->stream.ends(op);
	op->stream.ends = NULL;
	op->state = RB_OP_IDLE;
	op->done = true;
	op->status = status;
	op->failure[0] = '\0';
	if (status != RUBATO_OK)
		(void)snprintf(op->failure, sizeof(op->failure), "%s", text);
	if (op->persistent)
		engine->in_flight--;
	engine->completed = true;
	engine->operations++;
	if (status != RUBATO_OK && op->kind != RB_KIND_SENDRECV)
		rb_engine_poison(engine, status, text);
}

struct rb_run *rb_op_current(struct rubato_op *op)
{
	if (op->state == RB_OP_CONVERTING)
		return &op->converted.run;
	return op->state == RB_OP_EXCHANGING ? &op->exchange.run : &op->run;
}

static struct rubato_op **list_of(struct rubato_comm *comm, uint64_t number)
{
	return &comm->operations[number % RB_OP_LISTS];
}

void rb_op_list(struct rubato_op *op)
{
	struct rubato_op **first = list_of(op->comm, op->number);

	op->next = *first;
	if (*first != NULL)
		(*first)->previous = op;
	*first = op;
}

struct rubato_op *rb_op_find(const struct rubato_comm *comm, uint64_t number)
{
	struct rubato_op *op = comm->operations[number % RB_OP_LISTS];

	while (op != NULL && (op->number != number || op->kind == RB_KIND_SENDRECV))
		op = op->next;
	return op;
}

void rb_op_unlist(struct rubato_op *op)
{
	*(op->previous != NULL ? &op->previous->next : list_of(op->comm, op->number)) = op->next;
	if (op->next != NULL)
		op->next->previous = op->previous;
}

rubato_status rb_op_result(const struct rubato_op *op)
{
	return op->status == RUBATO_OK ? RUBATO_OK : RB_FAIL(op->status, "%s", op->failure);
}
