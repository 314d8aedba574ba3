/* op_stage.c -- see op_stage.h. */
#include "runtime/op_stage.h"

#include <string.h>

#include "base/log.h"
#include "runtime/devices/device_copy.h"

static rubato_status buffer_find(struct rubato_op *op, const void *base, uint64_t bytes,
				 uint8_t *kind)
{
	enum rb_memory_kind found;
	struct rb_executor *device;

	RB_TRY(rb_memory_kind_find(&op->comm->engine, rb_kind_name(op->kind), base, bytes, &found,
				   &device));
	*kind = (uint8_t)found;
	if (device == NULL)
		return RUBATO_OK;
	if (op->device.executor != NULL && op->device.executor != device)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "%s: input and output lie on different devices",
			       rb_kind_name(op->kind));
	op->device.executor = device;
	return RUBATO_OK;
}

/* The operation's own memory is that device's which both of its caller's buffers are on, if it
 * codes; else the host's, and theirs is copied from and to there. */
static rubato_status converted_find(struct rubato_op *op)
{
	struct rb_converted *c = &op->converted;
	struct rb_executor *devices[2];
	const uint64_t bytes[2] = {
		c->block_values * c->in_blocks * rb_converted_value_bytes(c),
		c->out_values * rb_converted_value_bytes(c),
	};
	bool there;

	for (uint32_t i = 0; i < 2; i++) {
		op->device.executor = NULL;
		RB_TRY(buffer_find(op, i == 0 ? c->in : c->out, bytes[i],
				   &op->device.kinds[RB_BUF_IN + i]));
		devices[i] = op->device.executor;
	}
	there = devices[0] != NULL && devices[0] == devices[1] && rb_op_coded(op);
	if (there)
		return RUBATO_OK;
	op->device.executor = NULL;
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rb_converted_side(c, i == 1, devices[i], bytes[i]));
		op->device.kinds[RB_BUF_IN + i] = RB_MEMORY_HOST;
	}
	return RUBATO_OK;
}

/* The message's memory is the host's, and copied as a whole before or after (message.c). */
static rubato_status message_find(struct rubato_op *op)
{
	struct rb_converted *c = &op->converted;
	const struct rb_endpoint *ep = rb_engine_endpoint(&op->comm->engine, op->root);
	bool out = !op->sending;

	c->sides[out].device = NULL;
	if (op->device.executor == NULL || rb_endpoint_takes(ep, RB_MEMORY_DEVICE))
		return RUBATO_OK;
	c->in = op->in;
	c->out = op->out;
	RB_TRY(rb_converted_side(c, out, op->device.executor, out ? op->out_bytes : op->in_bytes));
	RB_TRY(rb_run_init(&c->run, c->sides[out].plan));
	op->in = c->in;
	op->out = c->out;
	op->device.kinds[out ? RB_BUF_OUT : RB_BUF_IN] = RB_MEMORY_HOST;
	op->device.executor = NULL;
	return RUBATO_OK;
}

rubato_status rb_op_kinds_find(struct rubato_op *op)
{
	op->device.executor = NULL;
	op->device.kinds[RB_BUF_SCRATCH] = RB_MEMORY_HOST;
	if (op->converted.active)
		return converted_find(op);
	RB_TRY(buffer_find(op, op->in, op->in_bytes, &op->device.kinds[RB_BUF_IN]));
	RB_TRY(buffer_find(op, op->out, op->out_bytes, &op->device.kinds[RB_BUF_OUT]));
	return op->kind == RB_KIND_SENDRECV ? message_find(op) : RUBATO_OK;
}

rubato_status rb_op_kinds_agree(struct rubato_op *op, const enum rb_memory_kind kinds[2])
{
	struct rb_engine *engine = &op->comm->engine;

	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		op->device.kinds[b] = (uint8_t)kinds[b];
		if (kinds[b] != RB_MEMORY_DEVICE || op->device.executor != NULL)
			continue;
		if (engine->device_count == 0)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "%s: buffers of this node lie on devices, and rank %u has "
				       "none to work there",
				       rb_kind_name(op->kind), engine->rank);
		op->device.executor = engine->devices[0];
	}
	return RUBATO_OK;
}

/* ---- The run ---- */

void rb_op_stage_unregister(struct rubato_op *op)
{
	struct rb_op_room *room = &op->device.scratch;

	if (room->registered != NULL)
		rb_memory_drop(&op->comm->memory, room->registered);
	room->registered = NULL;
}

static void room_free(struct rubato_op *op, struct rb_op_room *room)
{
	if (room == &op->device.scratch)
		rb_op_stage_unregister(op);
	if (room->memory != NULL)
		room->owner->ops->memory_free(room->owner, room->memory);
	*room = (struct rb_op_room) { .memory = NULL };
}

static rubato_status room_make(struct rubato_op *op, struct rb_op_room *room,
			       enum rb_memory_kind kind, uint64_t bytes)
{
	struct rb_executor *device = op->device.executor;

	if (room->memory != NULL && room->bytes >= bytes && room->owner == device)
		return RUBATO_OK;
	room_free(op, room);
	room->owner = device;
	if (bytes == 0)
		return RUBATO_OK;
	RB_TRY(device->ops->memory_new(device, kind, (size_t)bytes, &room->memory));
	room->bytes = bytes;
	/* Else each chunk that is received there is, where that can be. */
	if (room == &op->device.scratch &&
	    rb_memory_add(&op->comm->memory, room->memory, (size_t)bytes, &room->registered) !=
		    RUBATO_OK)
		room->registered = NULL;
	return RUBATO_OK;
}

static void stage_say(struct rubato_op *op, const struct rb_plan *plan)
{
	const struct rb_engine *engine = &op->comm->engine;

	if (op->comm->staging_said || plan->stage_bytes[0] + plan->stage_bytes[1] == 0)
		return;
	op->comm->staging_said = true;
	RB_LOG(RB_LOG_INFO,
	       "rank %u: memory of %s goes through the host's where messages and processors do "
	       "not reach it (%s: %llu bytes of it)",
	       engine->rank, op->device.executor->ops->name, rb_kind_name(op->kind),
	       (unsigned long long)plan->stage_bytes[0]);
}

rubato_status rb_op_stage(struct rubato_op *op, struct rb_plan **plan)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_op_device *d = &op->device;
	struct rb_staging staging = { .takes = rb_memory_taken,
				      .arg = engine,
				      .ways = rb_memory_ways(engine) };
	bool known = op->scratch.mapped &&
		     (*plan)->schedule.flags & (RB_SCHEDULE_MAPPED_SCRATCH | RB_SCHEDULE_PUT);
	bool scratch = !known && (*plan)->scratch_bytes > 0;
	struct rb_plan *staged;

	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++)
		op->run.buffers[b].kind = (enum rb_memory_kind)d->kinds[b];
	if (d->executor == NULL)
		return RUBATO_OK;
	d->kinds[RB_BUF_SCRATCH] = scratch && rb_memory_all_taken(engine, &(*plan)->schedule)
					   ? RB_MEMORY_DEVICE
					   : RB_MEMORY_HOST;
	memcpy(staging.kinds, d->kinds, sizeof(staging.kinds));
	RB_TRY(rb_plan_staged(*plan, &staging, &staged));
	RB_ASSERT(d->kinds[RB_BUF_SCRATCH] == RB_MEMORY_DEVICE ||
		  staged->scratch_bytes <= (*plan)->scratch_bytes);
	if (d->kinds[RB_BUF_SCRATCH] == RB_MEMORY_DEVICE)
		RB_TRY(room_make(op, &d->scratch, RB_MEMORY_DEVICE, staged->scratch_bytes));
	RB_TRY(room_make(op, &d->stages[0], RB_MEMORY_HOST, staged->stage_bytes[0]));
	RB_TRY(room_make(op, &d->stages[1], RB_MEMORY_DEVICE, staged->stage_bytes[1]));
	RB_TRY(rb_run_init(&op->run, staged));
	stage_say(op, staged);
	if (d->kinds[RB_BUF_SCRATCH] == RB_MEMORY_DEVICE) {
		op->run.buffers[RB_BUF_SCRATCH].base = d->scratch.memory;
		op->run.buffers[RB_BUF_SCRATCH].regions =
			d->scratch.registered != NULL ? d->scratch.registered->regions : NULL;
		op->run.buffers[RB_BUF_SCRATCH].kind = RB_MEMORY_DEVICE;
	}
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		op->run.buffers[RB_BUF_STAGE_HOST + i].base = d->stages[i].memory;
	op->run.buffers[RB_BUF_STAGE_DEVICE].kind = RB_MEMORY_DEVICE;
	d->executors[0] = engine->executor;
	d->executors[1] = d->executor;
	op->run.executors = d->executors;
	if (rb_op_coded(op)) {
		for (uint32_t s = 0; s < staged->schedule.step_count; s++) /* Their residual is. */
			RB_ASSERT(staged->schedule.steps[s].kind != RB_STEP_REDUCE ||
				  staged->schedule.steps[s].flags & RB_STEP_DEVICE);
		op->run.wire = op->converted.wire;
		if (op->converted.residual != NULL) /* Behind those of the inputs. */
			op->run.residual =
				op->converted.residual + op->converted.residual_count / 2;
	}
	*plan = staged;
	return RUBATO_OK;
}

void rb_op_stage_release(struct rubato_op *op)
{
	room_free(op, &op->device.scratch);
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		room_free(op, &op->device.stages[i]);
}
