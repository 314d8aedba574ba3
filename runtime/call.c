/* call.c -- see call.h. */
#include "runtime/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/again.h"
#include "runtime/engine/absent.h"
#include "runtime/message.h"
#include "runtime/op_prepare.h"
#include "runtime/op_run.h"
#include "runtime/unmatched.h"

#define MESSAGE_NOW_MAX 65536u /* Elements: no transport takes as many at once. */

struct rb_caller {
	bool next_up;
	struct rb_caller *next;
};

/* One-shots run one at a time, in the order of the calls. One that is late has no number, while the
 * other ranks' has: the next call must not be taken for it. */
static rubato_status queue_enter(struct rubato_comm *comm)
{
	uint64_t timeout_ns = comm->timeout_ns;
	struct rb_caller caller = { .next_up = false, .next = NULL };
	rubato_status err;

	if (!comm->oneshots.busy) {
		comm->oneshots.busy = true;
		return RUBATO_OK;
	}
	*(comm->oneshots.last != NULL ? &comm->oneshots.last->next : &comm->oneshots.first) =
		&caller;
	comm->oneshots.last = &caller;
	err = rb_engine_wait_for(&comm->engine, &caller.next_up, timeout_ns);
	if (err == RUBATO_OK)
		return RUBATO_OK;

	struct rb_caller **at = &comm->oneshots.first, *last = NULL;
	char text[RB_TEXT_BYTES];

	while (*at != &caller) {
		last = *at;
		at = &(*at)->next;
	}
	*at = caller.next;
	if (comm->oneshots.last == &caller)
		comm->oneshots.last = last;
	(void)snprintf(text, sizeof(text),
		       "rank %u: another thread's collective did not end within %.3g s",
		       comm->engine.rank, (double)timeout_ns * 1e-9);
	rb_engine_poison(&comm->engine, err, text);
	return rb_engine_check(&comm->engine);
}

static void queue_leave(struct rubato_comm *comm)
{
	struct rb_caller *next = comm->oneshots.first;

	comm->oneshots.busy = next != NULL;
	if (next == NULL)
		return;
	comm->oneshots.first = next->next;
	if (next->next == NULL)
		comm->oneshots.last = NULL;
	next->next_up = true;
	/* Its thread may sleep, and we are about to leave. */
	if (comm->engine.waiters > 0)
		rb_engine_wake_waiters(&comm->engine);
	comm->engine.completed = true;
}

static void timeout_poison(struct rubato_op *op, uint64_t timeout_ns)
{
	const struct rb_run *run = rb_op_current(op);
	const struct rubato_comm *comm = op->comm;
	char name[96], absent[128], way[RB_WAY_BYTES], instead[192], rounds[160] = "";
	char text[RB_TEXT_BYTES];

	rb_unmatched_look(op->comm);
	if (op->done)
		return;
	(void)rb_signature_text(&op->signature, name, sizeof(name));
	(void)rb_run_absent(run, absent, sizeof(absent));
	(void)rb_run_way(&comm->engine, run, way, sizeof(way));
	if (comm->relaxed != NULL)
		(void)comm->relaxed->text(comm, rounds, sizeof(rounds));
	(void)rb_unmatched_persistent(op->comm, instead, sizeof(instead));
	(void)snprintf(text, sizeof(text), "%s, call %llu%s: rank %u waited %.3g s for%s%s%s%s",
		       name, (unsigned long long)op->number,
		       op->state == RB_OP_EXCHANGING ? " (exchange of buffers)" : "",
		       op->comm->engine.rank, (double)timeout_ns * 1e-9,
		       absent[0] != '\0' ? absent : " its own work", instead, rounds, way);
	RB_LOG(RB_LOG_WARN, "%s", text);
	rb_engine_poison(&op->comm->engine,
			 instead[0] != '\0' ? RUBATO_ERR_MISMATCH : RUBATO_ERR_TIMEOUT, text);
}

/* Begun: so many of the plan's steps are done, and it has its number. */
static rubato_status oneshot_run(struct rubato_comm *comm, uint32_t begun)
{
	struct rubato_op *op = comm->oneshots.op;
	uint64_t number = op->number;
	rubato_status err = rb_op_prepare(op);

	if (err != RUBATO_OK) {
		err = rb_notice_memory(&comm->engine, err);
		op->done = true;
		rb_op_release(op);
		return err;
	}
	if (begun == 0)
		number = comm->oneshots.sequence++;
	op->number = number;
	comm->oneshots.called[number % RB_CALLS_REMEMBERED] = op->signature;
	op->run.begun = begun;
	rb_op_start(op);
	if (rb_engine_wait_for(&comm->engine, &op->done, comm->timeout_ns) != RUBATO_OK)
		timeout_poison(op, comm->timeout_ns);
	err = op->status;
	rb_op_release(op);
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(err, "%s", op->failure);
}

static void call_apply(const struct rb_call *call, struct rubato_op *op)
{
	op->kind = call->kind;
	op->in = call->in;
	op->out = call->out;
	op->count = call->count;
	op->type = call->type;
	op->op = call->op;
	op->root = call->root;
	op->named = call->named;
	if (rb_kind_uneven(call->kind))
		op->shape = *call->shape;
}

/* Under the lock, which it drops. Begun: as in oneshot_run. */
static __attribute__((noinline)) rubato_status collective_end(struct rubato_comm *comm,
							      const struct rb_call *call,
							      enum rb_again again, uint32_t begun,
							      uint64_t *number)
{
	rubato_status err = rb_engine_check(&comm->engine);
	char text[RB_TEXT_BYTES];

	text[0] = '\0';
	if (err == RUBATO_OK && again != RB_AGAIN_DONE) {
		err = queue_enter(comm);
		if (err == RUBATO_OK) {
			call_apply(call, comm->oneshots.op);
			err = oneshot_run(comm, begun);
			if (err != RUBATO_OK)
				(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
			queue_leave(comm);
		}
	}
	if (number != NULL && err == RUBATO_OK)
		*number = comm->oneshots.op->number;
	/* Ranks that never wait never sleep either. */
	if (err == RUBATO_OK && comm->oneshots.sequence % RB_CALLS_REMEMBERED == 0)
		rb_unmatched_look(comm);
	rb_engine_leave(&comm->engine);
	return err == RUBATO_OK || text[0] == '\0' ? err : RB_FAIL(err, "%s", text);
}

rubato_status rb_call_collective(rubato_comm *comm, const struct rb_call *call, uint64_t *number)
{
	enum rb_again again = RB_AGAIN_NOT;
	uint32_t begun = 0;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: no communicator",
			       rb_kind_name(call->kind));
	RB_TRY(rb_engine_call(&comm->engine));
	if (comm->engine.poison == RUBATO_OK && !comm->oneshots.busy)
		again = rb_again(comm, call, &begun);
	if (again != RB_AGAIN_DONE || number != NULL ||
	    comm->oneshots.sequence % RB_CALLS_REMEMBERED == 0)
		return collective_end(comm, call, again, begun, number);
	rb_engine_leave_quiet(&comm->engine);
	return RUBATO_OK;
}

rubato_status rb_call_gather(rubato_comm *comm, enum rb_kind named, const void *words, void *all,
			     uint64_t count, uint64_t *number)
{
	const struct rb_call call = { .kind = RB_KIND_ALLGATHER,
				      .in = words,
				      .out = all,
				      .count = count,
				      .type = RUBATO_INT64,
				      .named = named };

	return rb_call_collective(comm, &call, number);
}

/* ---- Persistent operations ---- */

static rubato_status op_join(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	bool message = op->kind == RB_KIND_SENDRECV;
	rubato_status err = RUBATO_OK;

	op->number = message ? comm->message_sequence++ : comm->persistent_sequence++;
	rb_op_list(op);
	if (!message) {
		/* First what can be: who has heard of all ranks may start at once, and then whoever
		 * shares its device may get no memory. */
		rb_op_streams_ready(op);
		err = rb_op_agree(op, rb_deadline(rb_engine_now(&comm->engine), comm->timeout_ns));
	}
	if (err == RUBATO_OK)
		rb_op_streams_ready(op);
	else
		rb_op_forget(op);
	return err;
}

rubato_status rb_call_create(rubato_comm *comm, const struct rb_call *call, uint32_t user_tag,
			     bool sending, rubato_op **out)
{
	bool message = call->kind == RB_KIND_SENDRECV;
	struct rubato_op *op;
	rubato_status err;

	if (comm == NULL || out == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: NULL", rb_kind_name(call->kind));
	RB_TRY(rb_engine_ours(&comm->engine));
	op = calloc(1, sizeof(*op));
	if (op == NULL) {
		free(call->helped);
		err = RB_FAIL(RUBATO_ERR_MEMORY, "operation: %zu bytes", sizeof(*op));
		return message ? err : rb_notice_memory_outside(&comm->engine, err);
	}
	call_apply(call, op);
	op->comm = comm;
	op->persistent = true;
	op->user_tag = user_tag;
	op->sending = sending;
	op->done = true;
	op->helped = call->helped;
	rb_engine_enter(&comm->engine);
	err = rb_engine_check(&comm->engine);
	if (err == RUBATO_OK)
		err = op->helped != NULL ? rb_op_prepare_late(op) : rb_op_prepare(op);
	if (err == RUBATO_OK)
		err = op_join(op);
	else
		rb_op_discard(op);
	if (!message)
		err = rb_notice_memory(&comm->engine, err);
	rb_engine_leave(&comm->engine);
	if (err == RUBATO_OK)
		*out = op;
	return err;
}

/* ---- Point to point ---- */

/* A message that has begun to come is waited for once more as long: it would be lost. */
static void message_late(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	const char *what = "nothing for";
	uint64_t ns = comm->timeout_ns;

	if (!op->sending && !rb_message_recall(op, "")) {
		what = "its message has begun to come, and is not whole after";
		ns += comm->timeout_ns;
		if (rb_engine_wait_for(&comm->engine, &op->done, comm->timeout_ns) == RUBATO_OK)
			return;
	}
	rb_op_cancel(op);
	if (op->status != RUBATO_ERR_CANCELLED)
		return;
	op->status = RUBATO_ERR_TIMEOUT;
	(void)snprintf(op->failure, sizeof(op->failure), "rank %u %s rank %u, tag %u: %s %.3g s",
		       comm->engine.rank, op->sending ? "sends to" : "receives from", op->root,
		       op->user_tag, what, (double)ns * 1e-9);
}

/* One that is kept: to clear a new one takes longer than to send a small message. */
static struct rubato_op *message_op(struct rubato_comm *comm)
{
	struct rubato_op *op = comm->messages;

	if (op != NULL) {
		comm->messages = op->next;
		return op;
	}
	op = calloc(1, sizeof(*op));
	if (op != NULL)
		op->comm = comm;
	return op;
}

/* Whether there is nothing to be said against it; else an operation says what. */
static bool message_fits(const struct rubato_comm *comm, const struct rb_call *call, bool sending)
{
	const void *buffer = sending ? call->in : call->out;

	return comm->engine.poison == RUBATO_OK && (unsigned)call->type < RUBATO_TYPE_COUNT &&
	       call->root < comm->engine.rank_count && call->count <= MESSAGE_NOW_MAX &&
	       (buffer != NULL || call->count == 0);
}

/* One that fits. False: an operation must do it. */
static bool message_now(struct rubato_comm *comm, const struct rb_call *call, uint32_t tag,
			bool sending)
{
	const struct rb_signature signature = { .kind = RB_KIND_SENDRECV,
						.type = (uint8_t)call->type,
						.op = 0xff,
						.root = UINT32_MAX,
						.count = call->count };
	struct rb_message message = {
		.peer = call->root,
		.signature = &signature,
		.buffer = sending ? (void *)(uintptr_t)call->in : call->out,
		.size_bytes = (size_t)call->count * rubato_type_bytes(call->type),
	};

	return rb_message_now(comm, &message, tag, sending);
}

/* Who poisons the engine ends it, too. */
static void send_list(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;

	op->previous = NULL;
	op->next = comm->sends;
	if (op->next != NULL)
		op->next->previous = op;
	comm->sends = op;
}

static void send_unlist(struct rubato_op *op)
{
	*(op->previous != NULL ? &op->previous->next : &op->comm->sends) = op->next;
	if (op->next != NULL)
		op->next->previous = op->previous;
}

/* NULL: no memory. It has not begun; message_put() when it is over. */
static struct rubato_op *message_take(struct rubato_comm *comm, const struct rb_call *call,
				      uint32_t tag, bool sending)
{
	struct rubato_op *op = message_op(comm);

	if (op == NULL)
		return NULL;
	call_apply(call, op);
	op->user_tag = tag;
	op->sending = sending;
	op->done = true;
	return op;
}

static void message_put(struct rubato_op *op)
{
	if (op == NULL)
		return;
	op->next = op->comm->messages;
	op->comm->messages = op;
}

static rubato_status message_prepare(struct rubato_op *op)
{
	RB_TRY(rb_engine_check(&op->comm->engine));
	return rb_op_prepare(op);
}

/* Whether it is listed until it is over. */
static bool message_start(struct rubato_op *op)
{
	bool listed;

	rb_op_start(op);
	listed = op->sending && !op->done;
	if (listed)
		send_list(op);
	return listed;
}

static void message_await(struct rubato_op *op, bool listed, uint64_t timeout_ns)
{
	if (rb_engine_wait_for(&op->comm->engine, &op->done, timeout_ns) != RUBATO_OK)
		message_late(op);
	if (listed)
		send_unlist(op);
}

static rubato_status message_run(struct rubato_op *op)
{
	RB_TRY(message_prepare(op));
	message_await(op, message_start(op), op->comm->timeout_ns);
	return rb_op_result(op);
}

static rubato_status message_memory(void)
{
	return RB_FAIL(RUBATO_ERR_MEMORY, "operation: %zu bytes", sizeof(struct rubato_op));
}

rubato_status rb_call_message(rubato_comm *comm, const struct rb_call *call, uint32_t tag,
			      bool sending)
{
	struct rubato_op *op;
	rubato_status err;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: no communicator",
			       sending ? "send" : "recv");
	RB_TRY(rb_engine_call(&comm->engine));
	if (message_fits(comm, call, sending) && message_now(comm, call, tag, sending)) {
		rb_engine_leave(&comm->engine);
		return RUBATO_OK;
	}
	op = message_take(comm, call, tag, sending);
	err = op != NULL ? message_run(op) : message_memory();
	message_put(op);
	rb_engine_leave(&comm->engine);
	return err;
}

/* `send`: NULL where it has left already. The receive first: it clears its sender. */
static rubato_status pair_run(struct rubato_op *send, struct rubato_op *receive)
{
	uint64_t timeout_ns = receive->comm->timeout_ns;
	bool listed = false;
	rubato_status err;

	RB_TRY(message_prepare(receive));
	if (send != NULL)
		RB_TRY(message_prepare(send));
	(void)message_start(receive);
	if (send != NULL)
		listed = message_start(send);
	message_await(receive, false, timeout_ns);
	if (send != NULL)
		message_await(send, listed,
			      receive->status == RUBATO_ERR_TIMEOUT ? RUBATO_NO_WAIT : timeout_ns);
	err = rb_op_result(receive);
	return err == RUBATO_OK && send != NULL ? rb_op_result(send) : err;
}

rubato_status rb_call_sendrecv(rubato_comm *comm, const struct rb_call *send, uint32_t send_tag,
			       const struct rb_call *receive, uint32_t receive_tag)
{
	struct rubato_op *sending = NULL, *receiving;
	rubato_status err;
	bool sent;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sendrecv: no communicator");
	RB_TRY(rb_engine_call(&comm->engine));
	sent = message_fits(comm, send, true) && message_fits(comm, receive, false) &&
	       message_now(comm, send, send_tag, true);
	if (sent && message_now(comm, receive, receive_tag, false)) {
		rb_engine_leave(&comm->engine);
		return RUBATO_OK;
	}
	receiving = message_take(comm, receive, receive_tag, false);
	if (!sent)
		sending = message_take(comm, send, send_tag, true);
	err = receiving == NULL || (sending == NULL && !sent) ? message_memory()
							      : pair_run(sending, receiving);
	message_put(sending);
	message_put(receiving);
	rb_engine_leave(&comm->engine);
	return err;
}
