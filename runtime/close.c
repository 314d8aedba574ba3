/* close.c -- the end of a communicator: agreed among all ranks, or not. */
#include "runtime/close.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "runtime/call.h"
#include "runtime/op_run.h"
#include "runtime/op_stage.h"
#include "runtime/unmatched.h"

static void oneshot_free(struct rubato_op *op)
{
	if (op == NULL)
		return;
	rb_scratch_free(&op->scratch);
	rb_op_stage_release(op);
	free(op->exchange.peers);
	free(op->exchange.records);
	free(op->exchange.own_record);
	free(op->exchange.opened);
	free(op->exchange.all_opened);
	free(op->exchange.pairs);
	free(op->exchange.opening);
	free(op->exchange.apart);
	rb_run_fini(&op->run);
	rb_run_fini(&op->exchange.run);
	rb_converted_fini(&op->converted);
	free(op);
}

void rb_comm_free(struct rubato_comm *comm, bool abort_peers, uint64_t span_ns)
{
	struct rb_engine *engine = &comm->engine;
	uint8_t words[RB_LAST_WORDS_BYTES];

	rb_engine_stop(engine);
	if (engine->endpoint_count > 0) {
		uint64_t deadline = rb_deadline(rb_engine_now(engine), span_ns);
		bool speaks = abort_peers && rb_notices_last_words(&comm->notices, words);

		rb_notices_close(&comm->notices);
		if (comm->oneshots.op != NULL)
			rb_op_stage_unregister(comm->oneshots.op);
		while (comm->memory.first != NULL)
			rb_memory_drop(&comm->memory, comm->memory.first);
		for (uint32_t i = engine->endpoint_count; i-- > 0;) {
			engine->endpoints[i]->blames = abort_peers ? engine->losses.blames : 0;
			engine->endpoints[i]->last_words = speaks ? words : NULL;
			engine->endpoints[i]->ops->close(engine->endpoints[i], abort_peers,
							 deadline);
		}
	}
	oneshot_free(comm->oneshots.op);
	if (comm->plans.cache.buckets != NULL)
		rb_plan_cache_fini(&comm->plans.cache);
	rb_plan_free(comm->plans.barrier);
	if (!comm->kept.nodes)
		free(comm->choices.nodes.node_of); /* All of its arrays. */
	if (!comm->kept.cards)
		free(comm->locality.card_of);
	if (!comm->kept.hosts)
		free(comm->locality.host_of);
	if (!comm->kept.domains)
		free(comm->locality.domain_of);
	for (uint32_t i = 0; i < RB_EXCHANGE_COUNT; i++)
		rb_plan_free(comm->plans.exchange[i]);
	while (comm->messages != NULL) {
		struct rubato_op *op = comm->messages;

		comm->messages = op->next;
		rb_converted_fini(&op->converted);
		free(op);
	}
	rb_engine_fini(engine);
	rb_flows_free(&comm->flows);
	free(comm);
}

/* Operations that the application forgot, or that are still in their final barrier. */
static void operations_end(struct rubato_comm *comm)
{
	rb_engine_enter(&comm->engine);
	comm->closing = true;
	for (uint32_t i = 0; i < RB_OP_LISTS; i++) {
		while (comm->operations[i] != NULL) {
			struct rubato_op *op = comm->operations[i];

			if (op->state == RB_OP_FINAL_BARRIER)
				rb_run_fail(&comm->engine, &op->exchange.run, RUBATO_ERR_CANCELLED,
					    "finalize");
			else
				rb_op_free(op);
		}
	}
	if (comm->relaxed != NULL)
		comm->relaxed->end(comm);
	if (comm->lagged_end != NULL)
		comm->lagged_end(comm);
	if (comm->help != NULL)
		comm->help->end(comm);
	rb_engine_leave(&comm->engine);
}

/* Not a barrier of the caller's: who calls one more of these than others has called something
 * else. */
static rubato_status all_meet(struct rubato_comm *comm)
{
	const struct rb_call call = { .kind = RB_KIND_BARRIER,
				      .type = RUBATO_INT32,
				      .named = RB_KIND_FINALIZE };

	return rb_call_collective(comm, &call, NULL);
}

/* All have come, nothing is left of what was sent to any of them, and all know that. */
static rubato_status all_end(struct rubato_comm *comm)
{
	rubato_status err;

	RB_TRY(all_meet(comm));
	rb_engine_enter(&comm->engine);
	while (rb_engine_progress(&comm->engine))
		;
	err = rb_unmatched_end(comm);
	/* Before the last meeting: who has device memory that others map frees it after that. */
	for (uint32_t i = 0; i < comm->engine.device_count; i++)
		if (comm->engine.devices[i]->ops->shares_forget != NULL)
			comm->engine.devices[i]->ops->shares_forget(comm->engine.devices[i]);
	rb_engine_leave(&comm->engine);
	return err == RUBATO_OK ? all_meet(comm) : err;
}

rubato_status rubato_finalize(rubato_comm *comm)
{
	rubato_status err;
	char text[RB_TEXT_BYTES];

	if (comm == NULL)
		return RUBATO_OK;
	RB_TRY(rb_engine_call(&comm->engine));
	err = rb_engine_check(&comm->engine);
	comm->engine.told = true; /* The end waits for that by itself. */
	rb_engine_leave(&comm->engine);
	if (err == RUBATO_OK && !atomic_load(&comm->engine.abort_wanted))
		err = all_end(comm);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	operations_end(comm);
	rb_comm_free(comm, err != RUBATO_OK, 2000000000u);
	/* Whoever aborted knows; finalize then did what it was asked to. */
	return err == RUBATO_OK || err == RUBATO_ERR_CANCELLED ? RUBATO_OK
							       : RB_FAIL(err, "%s", text);
}

rubato_status rubato_abort(rubato_comm *comm)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "abort: no communicator");
	RB_TRY(rb_engine_ours(&comm->engine));
	atomic_store(&comm->engine.abort_wanted, true);
	for (uint32_t i = 0; i < comm->engine.endpoint_count; i++)
		comm->engine.endpoints[i]->ops->wake(comm->engine.endpoints[i]);
	rb_engine_enter(&comm->engine);
	rb_engine_poison(&comm->engine, RUBATO_ERR_CANCELLED, "the communicator was aborted");
	(void)rb_engine_progress(&comm->engine);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}
