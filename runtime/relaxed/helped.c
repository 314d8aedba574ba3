/*
 * helped.c -- the allreduce that is helped against one late rank.
 *
 * A persistent operation that, when it is started, first has the last rank to come named
 * (collectives/straggler.h), and then carries out the schedule that has that rank's input last: the
 * plans are two_shot_late's, one for each late rank, made when it is first named. Between start and
 * name it is AWAITING (op.h).
 *
 * One protocol driver serves all such operations of a communicator, from the first one that is made
 * until the communicator ends; a message says which operation it is about. One of an operation that
 * this rank has freed has nothing to tell: whoever is still waiting for the name has all votes that
 * it needs on their way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/straggler.h"
#include "runtime/call.h"
#include "runtime/op_prepare.h"
#include "runtime/op_run.h"
#include "runtime/relaxed/protocol_driver.h"

/* Of its driver: no partial allreduce's. It must not count as one of these, since a call that is
 * refused on one rank opens it there. */
#define HELPER_NUMBER UINT64_MAX
#define HELPED_BYTES_MIN (64u << 10) /* Guess: less than what naming costs in latencies. */

struct rb_helper {
	struct rb_protocol_driver driver; /* First. */
	struct rubato_comm *comm;
};

struct rb_helped {
	struct rb_straggler machine; /* First. */
	uint8_t has_arrived[];
};

/* ---- Events and actions ---- */

static void fail(struct rubato_op *op, rubato_status status, uint32_t rank)
{
	struct rb_losses *losses = &op->comm->engine.losses;
	char name[96], loss[RB_LOSS_BYTES], text[RB_TEXT_BYTES];
	const char *what = NULL;

	(void)rb_signature_text(&op->signature, name, sizeof(name));
	if (status == RUBATO_ERR_PEER)
		what = rb_loss_text(losses, rank, loss, sizeof(loss));
	if (what != NULL)
		(void)snprintf(text, sizeof(text), "%s: %s", name, what);
	else
		(void)snprintf(text, sizeof(text), "%s: rank %u %s", name, rank,
			       status == RUBATO_ERR_PEER ? "is lost"
							 : "has sent what is no message of it");
	rb_op_end(op, status, text);
}

static void carry_out(struct rb_helper *helper, struct rubato_op *op,
		      struct rb_protocol_action *action)
{
	struct rb_straggler_message message;
	rubato_status err;

	switch (action->act) {
	case RB_PROTOCOL_RUN:
		err = rb_op_plan_late(op, (uint32_t)action->value);
		if (err == RUBATO_OK)
			rb_op_run(op);
		else
			rb_op_end(op, err, rubato_error_text());
		break;
	case RB_PROTOCOL_DONE:
		if (op->state == RB_OP_AWAITING)
			fail(op, action->status, (uint32_t)action->value);
		break;
	default:
		memcpy(&message, action->message, sizeof(message));
		message.operation = op->number;
		memcpy(action->message, &message, sizeof(message));
		rb_protocol_carry_out(&helper->comm->engine, &helper->driver, action);
		break;
	}
}

static void step(struct rb_helper *helper, struct rubato_op *op,
		 const struct rb_protocol_event *event)
{
	struct rb_protocol_actions actions;

	rb_straggler_step(&op->helped->machine, event, &actions);
	/* The rest of what a machine asked for is for an operation that goes on. */
	for (uint32_t i = 0; i < actions.count && !helper->driver.over; i++)
		carry_out(helper, op, &actions.item[i]);
}

/* The one with this number, if this rank has it. */
static struct rubato_op *find(const struct rubato_comm *comm, uint64_t number)
{
	struct rubato_op *op = rb_op_find(comm, number);

	return op != NULL && op->helped != NULL ? op : NULL;
}

static void step_all(struct rb_helper *helper, const struct rb_protocol_event *event)
{
	for (uint32_t i = 0; i < RB_OP_LISTS; i++)
		for (struct rubato_op *op = helper->comm->operations[i]; op != NULL; op = op->next)
			if (op->helped != NULL)
				step(helper, op, event);
}

static void take(struct rb_helper *helper, const struct rb_protocol_event *event)
{
	struct rb_straggler_message message;
	uint64_t number = event->value; /* START. */
	struct rubato_op *op;

	if (event->kind == RB_PROTOCOL_PEER_LOST) {
		step_all(helper, event);
		return;
	}
	if (event->kind == RB_PROTOCOL_MESSAGE) {
		memcpy(&message, event->message, sizeof(message));
		number = message.operation;
	}
	op = find(helper->comm, number);
	if (op != NULL)
		step(helper, op, event);
}

static void driver_event(struct rb_engine *engine, struct rb_protocol_driver *driver,
			 struct rb_protocol_event *event)
{
	struct rb_helper *helper = driver->owner;

	if (!rb_protocol_begin(engine, driver, event))
		return;
	do
		take(helper, event);
	while (rb_protocol_next(engine, driver, event));
}

/* Poison: nobody is named any more. */
static void driver_ended(struct rb_engine *engine, struct rb_protocol_driver *driver)
{
	struct rb_helper *helper = driver->owner;

	for (uint32_t i = 0; i < RB_OP_LISTS; i++)
		for (struct rubato_op *op = helper->comm->operations[i]; op != NULL; op = op->next)
			if (op->state == RB_OP_AWAITING)
				rb_op_end(op, engine->poison, engine->poison_text);
}

static bool neighbour(const struct rb_protocol_driver *driver, uint32_t peer)
{
	const struct rb_helper *helper = driver->owner;

	return peer != helper->comm->engine.rank &&
	       rb_straggler_neighbour(helper->comm->engine.rank, peer);
}

/* ---- What the operation asks for ---- */

static void start(struct rubato_op *op)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = op->number };

	driver_event(&op->comm->engine, &op->comm->helper->driver, &event);
}

static char *absent(const struct rubato_op *op, char *text, size_t text_bytes)
{
	const struct rb_straggler *machine = &op->helped->machine;
	uint32_t n = op->comm->engine.rank_count, r = rb_straggler_absent(machine, 0);
	size_t at = 0;

	if (r == RB_STRAGGLER_UNKNOWN)
		(void)snprintf(text, text_bytes,
			       " all ranks but one to begin it (ranks 0 to %u know which have not)",
			       RB_STRAGGLER_JUDGES - 1);
	for (; r < n && at < text_bytes; r = rb_straggler_absent(machine, r + 1)) {
		int used = snprintf(text + at, text_bytes - at, "%s rank %u (to begin it)",
				    at > 0 ? "," : "", r);

		at += used > 0 ? (size_t)used : 0;
	}
	return text;
}

/* Those that have no run to show. */
static void dump(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		 void *arg)
{
	char name[96], waits[128] = "", text[256];

	for (uint32_t i = 0; i < RB_OP_LISTS; i++) {
		for (struct rubato_op *op = comm->operations[i]; op != NULL; op = op->next) {
			if (op->state != RB_OP_AWAITING)
				continue;
			(void)rb_signature_text(&op->signature, name, sizeof(name));
			(void)snprintf(text, sizeof(text), "r%u helped %s wait%s",
				       comm->engine.rank, name, absent(op, waits, sizeof(waits)));
			line(arg, text);
		}
	}
}

static void end(struct rubato_comm *comm)
{
	comm->helper->driver.over = true;
	rb_protocol_close(&comm->engine, &comm->helper->driver);
	free(comm->helper);
	comm->helper = NULL;
	comm->help = NULL;
}

static const struct rb_help_ops help_ops = {
	.start = start,
	.absent = absent,
	.dump = dump,
	.end = end,
};

/* ---- Creation ---- */

/* Under the lock. Before this rank's part of the creation of the first one: so no other rank has
 * started that yet. */
static rubato_status helper_open(struct rubato_comm *comm)
{
	struct rb_helper *helper;
	rubato_status err;

	RB_TRY(rb_engine_check(&comm->engine));
	if (comm->helper != NULL)
		return RUBATO_OK;
	helper = calloc(1, sizeof(*helper));
	if (helper == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "helped allreduce: %zu bytes", sizeof(*helper));
	helper->comm = comm;
	helper->driver = (struct rb_protocol_driver) { .name = "helped allreduce",
						       .number = HELPER_NUMBER,
						       .event = driver_event,
						       .ended = driver_ended,
						       .neighbour = neighbour,
						       .owner = helper };
	err = rb_protocol_open(&comm->engine, &helper->driver);
	if (err != RUBATO_OK) {
		free(helper);
		return err;
	}
	comm->helper = helper;
	comm->help = &help_ops;
	return RUBATO_OK;
}

static rubato_status helped_make(struct rubato_comm *comm, struct rb_helped **helped)
{
	uint32_t rank = comm->engine.rank, n = comm->engine.rank_count;

	*helped = calloc(1, sizeof(**helped) + rb_straggler_bytes(rank, n));
	if (*helped == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "helped allreduce of %u ranks", n);
	rb_straggler_init(&(*helped)->machine, rank, n, (*helped)->has_arrived);
	return RUBATO_OK;
}

static rubato_status open_and_make(struct rubato_comm *comm, struct rb_helped **helped)
{
	rubato_status err;

	RB_TRY(rb_engine_call(&comm->engine));
	err = helper_open(comm);
	if (err == RUBATO_OK)
		err = helped_make(comm, helped);
	err = rb_notice_memory(&comm->engine, err);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_op_allreduce_helped(rubato_comm *comm, const void *in, void *out,
					 uint64_t count, rubato_type type, rubato_operator op,
					 rubato_op **operation)
{
	struct rb_call call = { .kind = RB_KIND_ALLREDUCE,
				.in = in,
				.out = out,
				.count = count,
				.type = type,
				.op = op };

	if (comm == NULL || operation == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "helped allreduce: NULL");
	if (comm->engine.rank_count >= RB_STRAGGLER_RANKS_MIN && rubato_type_bytes(type) > 0 &&
	    count >= HELPED_BYTES_MIN / rubato_type_bytes(type))
		RB_TRY(open_and_make(comm, &call.helped));
	return rb_call_create(comm, &call, 0, false, operation);
}
