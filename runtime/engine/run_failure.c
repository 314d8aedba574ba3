/* run_failure.c -- what is said of a run that failed. */
#include "runtime/engine/run.h"

#include <stdio.h>
#include <string.h>

#include "runtime/engine/calls.h"

static void work_failure(const struct rb_engine *engine, const struct rb_run *run,
			 const struct rb_slot *slot, const char *call, char *text,
			 size_t text_bytes)
{
	const struct rb_executor *executor =
		rb_run_executor(engine, run, &run->plan->schedule.steps[slot->step]);
	const char *why = executor->ops->why != NULL ? executor->ops->why(executor) : NULL;

	(void)snprintf(text, text_bytes, "%s: a local copy or reduction failed%s%s", call,
		       why != NULL ? ": " : "", why != NULL ? why : "");
}

/* What a device failed with, whose memory the transport copies; empty: nothing is known. */
static const char *device_why(const struct rb_engine *engine)
{
	const char *why = NULL;

	for (uint32_t i = 0; i < engine->device_count && why == NULL; i++)
		if (engine->devices[i]->ops->why != NULL)
			why = engine->devices[i]->ops->why(engine->devices[i]);
	return why != NULL ? why : "";
}

rubato_status rb_run_failure(struct rb_engine *engine, const struct rb_run *run,
			     const struct rb_slot *slot, char *text, size_t text_bytes)
{
	const struct rb_request *request = &slot->request;
	const char *loss = NULL;
	char mine[96], lost[RB_LOSS_BYTES];

	(void)rb_signature_text(slot->is_work ? &run->signature : &request->signature, mine,
				sizeof(mine));
	if (slot->is_work) {
		work_failure(engine, run, slot, mine, text, text_bytes);
	} else if (request->status == RUBATO_ERR_MISMATCH &&
		   (loss = rb_loss_behind(&engine->losses, request->peer, lost, sizeof(lost))) !=
			   NULL) {
		(void)snprintf(text, text_bytes, "%s: %s", mine, loss);
		return RUBATO_ERR_PEER;
	} else if (request->status == RUBATO_ERR_MISMATCH) {
		size_t at =
			strlen(rb_calls_text(text, text_bytes, engine->rank, &request->signature,
					     request->peer, &request->theirs));

		if (rb_signature_same(&request->signature, &request->theirs))
			(void)snprintf(text + at, text_bytes - at, ": %zu bytes, %llu bytes",
				       request->size_bytes,
				       (unsigned long long)request->their_bytes);
	} else if (request->status == RUBATO_ERR_PEER &&
		   (loss = rb_loss_text(&engine->losses, request->peer, lost, sizeof(lost))) !=
			   NULL) {
		(void)snprintf(text, text_bytes, "%s: %s", mine, loss);
	} else {
		const char *why = request->status == RUBATO_ERR_SYSTEM ? device_why(engine) : "";

		(void)snprintf(text, text_bytes, "%s: rank %u: %s%s%s", mine, request->peer,
			       request->status == RUBATO_ERR_PEER ? "it has left"
								  : "the transport failed",
			       why[0] != '\0' ? ": " : "", why);
	}
	return slot->is_work ? slot->work.status : request->status;
}
