/* op.c -- the public functions of a persistent operation: start, wait, free. */
#include <stdio.h>

#include "runtime/engine/absent.h"
#include "runtime/op_run.h"
#include "runtime/unmatched.h"

rubato_status rubato_start(rubato_op *op)
{
	struct rb_engine *engine;
	rubato_status err;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "start: NULL");
	engine = &op->comm->engine;
	RB_TRY(rb_engine_call(engine));
	err = rb_engine_check(engine);
	if (err == RUBATO_OK && !op->done)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "start: the operation is in flight already");
	if (err == RUBATO_OK)
		rb_op_start(op);
	rb_engine_leave(engine);
	return err;
}

rubato_status rubato_test(rubato_op *op, bool *done)
{
	struct rb_engine *engine;
	rubato_status err = RUBATO_OK;

	if (op == NULL || done == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "test: NULL");
	engine = &op->comm->engine;
	RB_TRY(rb_engine_call(engine));
	*done = rb_engine_look(engine, &op->done);
	if (*done)
		err = rb_op_result(op);
	rb_engine_leave(engine);
	return err;
}

/* `look`: it was not waited for. */
static rubato_status unfinished_fail(struct rubato_op *op, rubato_status err, bool look,
				     uint64_t timeout_ns)
{
	char name[96], absent[128] = "", way[RB_WAY_BYTES] = "", ahead[256] = "";
	struct rb_engine *engine = &op->comm->engine;

	(void)rb_signature_text(&op->signature, name, sizeof(name));
	if (op->state == RB_OP_ENQUEUED) {
		(void)snprintf(absent, sizeof(absent), " what is before it on its stream");
	} else if (op->state == RB_OP_AWAITING) {
		(void)op->comm->help->absent(op, absent, sizeof(absent));
	} else if (rb_op_current(op)->active) {
		(void)rb_run_absent(rb_op_current(op), absent, sizeof(absent));
		(void)rb_run_way(engine, rb_op_current(op), way, sizeof(way));
	}
	if (!look)
		(void)rb_unmatched_ahead(op->comm, NULL, ahead, sizeof(ahead));
	return RB_FAIL(err, "%s is still in flight after %.3g s%s%s%s%s", name,
		       (double)timeout_ns * 1e-9, absent[0] != '\0' ? ": waits for" : "", absent,
		       way, ahead);
}

rubato_status rb_op_wait(struct rubato_op *op, uint64_t timeout_ns, uint64_t deadline_ns)
{
	bool look = timeout_ns == RUBATO_NO_WAIT;
	struct rb_engine *engine = &op->comm->engine;
	rubato_status err;

	if (atomic_load_explicit(&op->over, memory_order_acquire))
		return RUBATO_OK;
	rb_engine_enter(engine);
	if (op->run.deferred && !look && engine->driving == RB_DRIVING_NOBODY &&
	    engine->waiters == 0)
		rb_run_await(engine, &op->run);
	if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
		timeout_ns = op->comm->timeout_ns;
	if (look)
		err = rb_engine_look(engine, &op->done) ? RUBATO_OK : RUBATO_ERR_TIMEOUT;
	else if (deadline_ns > 0)
		err = rb_engine_wait(engine, &op->done, deadline_ns);
	else
		err = rb_engine_wait_for(engine, &op->done, timeout_ns);
	if (err != RUBATO_OK && !look)
		rb_unmatched_look(op->comm);
	if (rb_engine_over(engine, &op->done))
		err = rb_op_result(op);
	else if (op->done)
		err = RB_FAIL(RUBATO_ERR_TIMEOUT,
			      "its last messages have yet to leave after %.3g s",
			      (double)timeout_ns * 1e-9);
	else
		err = unfinished_fail(op, err, look, timeout_ns);
	rb_engine_leave(engine);
	return err;
}

rubato_status rubato_wait(rubato_op *op, uint64_t timeout_ns)
{
	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "wait: NULL");
	RB_TRY(rb_engine_ours(&op->comm->engine));
	return rb_op_wait(op, timeout_ns, 0);
}

rubato_status rubato_cancel(rubato_op *op)
{
	rubato_status err = RUBATO_OK;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cancel: NULL");
	RB_TRY(rb_engine_call(&op->comm->engine));
	if (!op->done) {
		rb_op_cancel(op);
		err = rb_op_result(op);
	}
	rb_engine_leave(&op->comm->engine);
	return err;
}

struct zeroed {
	bool done;
	rubato_status status;
	char text[RB_TEXT_BYTES];
};

static void zeroed(void *arg, rubato_status status, const char *text)
{
	struct zeroed *z = arg;

	z->done = true;
	z->status = status;
	(void)snprintf(z->text, sizeof(z->text), "%s", text);
}

/* On a device: nobody has written there before the first start. */
static rubato_status residual_zero(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	struct zeroed z = { .status = RUBATO_OK };
	rubato_status err;

	if (op->converted.on.device == NULL)
		return RUBATO_OK;
	RB_TRY(rb_engine_check(engine));
	rb_converted_zero(&op->converted, engine, zeroed, &z);
	err = rb_engine_wait_for(engine, &z.done, op->comm->timeout_ns);
	if (!z.done)
		rb_run_fail(engine, &op->converted.run, err, rubato_error_text());
	return z.status == RUBATO_OK ? RUBATO_OK : RB_FAIL(z.status, "residual: %s", z.text);
}

rubato_status rubato_op_residual(rubato_op *op, float **residual, uint64_t *count)
{
	rubato_status err = RUBATO_OK;

	if (op == NULL || residual == NULL || count == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "residual: NULL");
	RB_TRY(rb_engine_call(&op->comm->engine));
	if (!op->done)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "residual: the operation is in flight");
	else if (op->converted.residual == NULL)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "residual: nothing is fed back");
	else
		err = residual_zero(op);
	if (err == RUBATO_OK) {
		*residual = op->converted.residual;
		*count = op->converted.residual_count;
	}
	rb_engine_leave(&op->comm->engine);
	return err;
}

void rubato_op_free(rubato_op *op)
{
	struct rubato_comm *comm;

	if (op == NULL)
		return;
	comm = op->comm;
	if (rb_engine_call(&comm->engine) != RUBATO_OK)
		return;
	rb_op_free(op);
	rb_engine_leave(&comm->engine);
}
