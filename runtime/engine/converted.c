/* converted.c -- see converted.h. */
#include "runtime/engine/converted.h"

#include <stdlib.h>
#include <string.h>

#include "base/hollow.h"
#include "base/wire.h"

#define SLICE_VALUES (RB_SLICE_BYTES / sizeof(float))
#define IMMEDIATE_VALUES (16u << 10) /* So many are done sooner than queued. */
#define OPERANDS_MOVED 64u           /* Reductions of more are never sliced. */
#define DEVICE_BYTES (4u << 20)      /* Guess: beside which a device's start is short. */

/* ---- Conversions: units `first` to first + count - 1 of IN, or of the result ---- */

static void widen(struct rb_converted *c, uint64_t first, uint64_t count)
{
	struct rb_convert convert = { .half = c->half, .narrow = c->back, .count = count };

	if (c->back) {
		convert.from = c->memory->base + (c->out_first + first) * sizeof(float);
		convert.to = (uint8_t *)c->out + first * sizeof(uint16_t);
	} else {
		convert.from = (const uint8_t *)c->in + first * sizeof(uint16_t);
		convert.to = c->memory->base + first * sizeof(float);
	}
	c->convert(&convert);
}

static void decode(struct rb_converted *c, uint64_t first, uint64_t count)
{
	uint64_t values = rb_code_values(c->wire), at = first * values;
	const void *from = c->memory->base + (c->out_first + first) * rb_code_bytes(c->wire);
	struct rb_coded coded = { .wire = c->wire,
				  .to = (uint8_t *)c->out + at * sizeof(float),
				  .from = &from,
				  .from_count = 1,
				  .count = count * values };

	if (coded.count > c->out_values - at)
		coded.count = c->out_values - at;
	c->coders->decode(&coded);
}

/* Each block begins with a unit of its own. */
static void encode(struct rb_converted *c, uint64_t first, uint64_t count)
{
	uint64_t values = rb_code_values(c->wire), bytes = rb_code_bytes(c->wire);

	while (count > 0) {
		uint64_t block = first / c->block_units, unit = first % c->block_units;
		uint64_t units = c->block_units - unit, at = unit * values;
		const void *from =
			(const uint8_t *)c->in + (block * c->block_values + at) * sizeof(float);
		struct rb_coded coded = { .wire = c->wire,
					  .to = c->memory->base + first * bytes,
					  .from = &from,
					  .from_count = 1 };

		units = units < count ? units : count;
		coded.count = units * values;
		if (coded.count > c->block_values - at)
			coded.count = c->block_values - at;
		if (c->residual != NULL)
			coded.residual = c->residual + first * values;
		c->coders->encode(&coded);
		first += units;
		count -= units;
	}
}

static void convert(struct rb_converted *c, uint64_t first, uint64_t count)
{
	if (c->wire == RUBATO_WIRE_SAME)
		widen(c, first, count);
	else if (c->back)
		decode(c, first, count);
	else
		encode(c, first, count);
}

/* ---- Copies and reductions of what is coded ---- */

static void coded_slice(const struct rb_converted *c, const struct rb_work *work, uint64_t first,
			uint64_t count)
{
	const struct rb_reduce *r = &work->reduce;
	uint64_t skip = work->done_count * work->element_bytes;
	const void *moved[OPERANDS_MOVED];
	struct rb_coded coded = { .wire = c->wire,
				  .final_count = r->final_count,
				  .to = (uint8_t *)r->to + skip,
				  .from = r->from,
				  .from_count = r->from_count,
				  .count = count };

	if (r->from_count == 1 && r->final_count == 0) {
		if (r->to != r->from[0])
			memcpy(coded.to, (const uint8_t *)r->from[0] + skip,
			       (size_t)(count * work->element_bytes));
		return;
	}
	for (uint32_t i = 0; skip > 0 && i < r->from_count; i++)
		moved[i] = (const uint8_t *)r->from[i] + skip;
	if (skip > 0)
		coded.from = moved;
	if (c->residual != NULL) /* Behind those of the inputs. */
		coded.residual =
			c->residual + c->residual_count / 2 + first * rb_code_values(c->wire);
	c->coders->reduce(&coded);
}

/* ---- The executor ---- */

/* Units done_count to done_count + count - 1 of the work. */
static void slice(struct rb_converted *c, struct rb_work *work, uint64_t count)
{
	const struct rb_slot *slot = work->owner;
	const struct rb_run *run = slot->owner;
	uint64_t first = rb_plan_first(run->plan, slot->step, slot->iteration) + work->done_count;
	uint64_t touched = count * work->element_bytes * (work->reduce.from_count + 1);
	bool hollow = c->memory != NULL && rb_hollow(c->memory->base); /* Then all is. */

	if (run == &c->run) {
		if (!hollow)
			convert(c, first, count);
		touched = count * (rb_converted_bytes(c) +
				   rb_code_values(c->wire) *
					   (c->wire == RUBATO_WIRE_SAME ? 2 : sizeof(float)));
	} else if (!hollow) {
		coded_slice(c, work, first, count);
	}
	work->done_count += count;
	if (c->clock->ops->work != NULL)
		c->clock->ops->work(c->clock, &(struct rb_touch) { .size_bytes = touched }, 1);
}

static void queue_remove(struct rb_converted *c, struct rb_work *work)
{
	*(work->previous != NULL ? &work->previous->next : &c->first) = work->next;
	*(work->next != NULL ? &work->next->previous : &c->last) = work->previous;
	work->next = work->previous = NULL;
}

static void converted_work(struct rb_executor *executor, struct rb_work *work)
{
	struct rb_converted *c = (struct rb_converted *)executor;
	uint64_t values = work->reduce.count * work->reduce.from_count * rb_code_values(c->wire);

	work->status = RUBATO_OK;
	work->done_count = 0;
	if (values <= IMMEDIATE_VALUES || work->reduce.from_count > OPERANDS_MOVED) {
		slice(c, work, work->reduce.count);
		work->state = RB_WORK_DONE;
		return;
	}
	work->state = RB_WORK_PENDING;
	work->next = NULL;
	work->previous = c->last;
	*(c->last != NULL ? &c->last->next : &c->first) = work;
	c->last = work;
}

static struct rb_work *converted_poll(struct rb_executor *executor)
{
	struct rb_converted *c = (struct rb_converted *)executor;
	struct rb_work *work = c->first;

	if (work == NULL)
		return NULL;
	uint64_t most = SLICE_VALUES / rb_code_values(c->wire);
	uint64_t left = work->reduce.count - work->done_count;

	slice(c, work, left < most ? left : most);
	if (work->done_count < work->reduce.count)
		return NULL;
	queue_remove(c, work);
	work->state = RB_WORK_DONE;
	return work;
}

static void converted_cancel(struct rb_executor *executor, struct rb_work *work)
{
	if (work->state != RB_WORK_PENDING)
		return;
	queue_remove((struct rb_converted *)executor, work);
	work->state = RB_WORK_DONE;
	work->status = RUBATO_ERR_CANCELLED;
}

static bool converted_busy(struct rb_executor *executor)
{
	return ((struct rb_converted *)executor)->first != NULL;
}

/* The next slice is not slept for. */
static uint64_t converted_next(const struct rb_executor *executor)
{
	const struct rb_converted *c = (const struct rb_converted *)executor;

	return c->first != NULL ? c->clock->ops->now_ns(c->clock) : UINT64_MAX;
}

static void converted_close(struct rb_executor *executor)
{
	(void)executor; /* A part of its operation. */
}

static const struct rb_executor_ops converted_ops = {
	.name = "converted",
	.start = converted_work,
	.poll = converted_poll,
	.cancel = converted_cancel,
	.busy = converted_busy,
	.next_ns = converted_next,
	.close = converted_close,
};

/* ---- The conversions' runs ---- */

static void side_free(struct rb_converted_side *side)
{
	if (side->memory != NULL)
		side->owner->ops->memory_free(side->owner, side->memory);
	side->memory = NULL;
	side->bytes = 0;
}

/* A copy of `count` units, chunk by chunk: what is copied, and how, is the executor's, or the
 * device's. Of so many blocks, each in chunks of its own. */
static rubato_status plan_prepare(struct rb_plan **plan, uint64_t count, uint32_t unit_bytes,
				  uint32_t values, bool on_device, uint32_t blocks)
{
	struct rb_layout layout = {
		.count = count, .block_count = blocks, .align = 1, .chunk = SLICE_VALUES / values
	};
	uint8_t flags = on_device ? RB_STEP_DEVICE : 0;
	struct rb_schedule schedule = { .deps = &(struct rb_dep) { 0 } };
	struct rb_writer w = { .step_capacity = blocks, .span_capacity = 2 * blocks };
	rubato_status err;

	if (on_device)
		layout.chunk = DEVICE_BYTES / unit_bytes;
	if (count / layout.chunk >= RB_ITERATION_MAX - 1) /* No plan has more chunks. */
		layout.chunk = count / (RB_ITERATION_MAX - 1) + 1;
	if (*plan != NULL && (*plan)->layout.count == count &&
	    (*plan)->layout.chunk == layout.chunk && (*plan)->key.element_bytes == unit_bytes &&
	    (*plan)->schedule.step_count == blocks && (*plan)->schedule.steps[0].flags == flags)
		return RUBATO_OK;
	rb_plan_free(*plan);
	*plan = NULL;
	schedule.steps = calloc(blocks, sizeof(*schedule.steps));
	schedule.spans = calloc(2 * (size_t)blocks, sizeof(*schedule.spans));
	if (schedule.steps != NULL && schedule.spans != NULL) {
		rb_writer_init(&w, &schedule, 0, 1, blocks);
		for (uint32_t b = 0; b < blocks; b++) {
			(void)rb_write_copy(&w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), b, 1);
			rb_write_flags(&w, flags);
		}
		err = rb_plan_from(&schedule, &layout, (uint8_t)unit_bytes, plan);
	} else {
		err = RB_FAIL(RUBATO_ERR_MEMORY, "a copy of %u blocks", blocks);
	}
	free(schedule.steps);
	free(schedule.spans);
	return err;
}

rubato_status rb_converted_residual(struct rb_converted *c, uint64_t units)
{
	c->residual_count = 2 * units * rb_code_values(c->wire);
	c->residual = calloc(c->residual_count, sizeof(*c->residual));
	if (c->residual == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "residual of %llu values",
			       (unsigned long long)c->residual_count);
	return RUBATO_OK;
}

rubato_status rb_converted_prepare(struct rb_converted *c, struct rb_memories *memories,
				   bool feedback)
{
	uint32_t unit_bytes = rb_converted_bytes(c), values = rb_code_values(c->wire);
	uint64_t in_units = c->block_units * c->in_blocks;

	c->on.device = NULL;
	rb_converted_executor(c, memories->engine);
	c->convert = rb_convert_of(rb_reduce_best());
	RB_TRY(plan_prepare(&c->there, in_units, unit_bytes, values, false, 1));
	RB_TRY(plan_prepare(&c->after, rb_code_units(c->wire, c->out_values), unit_bytes, values,
			    false, 1));
	RB_TRY(rb_run_init(&c->run, c->there));
	if (feedback)
		RB_TRY(rb_converted_residual(c, in_units));
	bool hollow = rb_hollow(c->in) || rb_hollow(c->out);

	if (c->memory != NULL && (c->memory->size_bytes < in_units * unit_bytes ||
				  rb_hollow(c->memory->base) != hollow)) {
		rb_memory_drop(memories, c->memory);
		c->memory = NULL;
	}
	return c->memory != NULL ? RUBATO_OK
				 : rb_memory_alloc_for(memories, (size_t)(in_units * unit_bytes),
						       c->in, c->out, &c->memory);
}

/* How many are converted, each by itself: one where units lie as the caller's values do. */
static uint32_t parts(const struct rb_converted *c)
{
	return c->block_values % rb_code_values(c->wire) != 0 ? (uint32_t)c->in_blocks : 1;
}

static void there_free(struct rb_converted *c)
{
	struct rb_converted_there *on = &c->on;

	if (on->units != NULL)
		on->owner->ops->memory_free(on->owner, on->units);
	on->units = NULL;
	on->bytes = 0;
}

rubato_status rb_converted_prepare_on(struct rb_converted *c, struct rb_executor *device,
				      bool feedback)
{
	uint64_t units = c->block_units * c->in_blocks, values = rb_code_values(c->wire);
	uint64_t bytes = units * rb_converted_bytes(c);
	struct rb_converted_there *on = &c->on;
	void *memory;

	on->device = device;
	RB_TRY(plan_prepare(&c->there, units, rb_converted_bytes(c), (uint32_t)values, true,
			    parts(c)));
	RB_TRY(plan_prepare(&c->after, rb_code_units(c->wire, c->out_values), rb_converted_bytes(c),
			    (uint32_t)values, true, 1));
	RB_TRY(rb_run_init(&c->run, c->there));
	if (on->owner != device || on->bytes < bytes) {
		there_free(c);
		RB_TRY(device->ops->memory_new(device, RB_MEMORY_DEVICE, (size_t)bytes,
					       &on->units));
		on->bytes = bytes;
		on->owner = device;
	}
	if (!feedback)
		return RUBATO_OK;
	c->residual_count = 2 * units * values;
	RB_TRY(device->ops->memory_new(device, RB_MEMORY_DEVICE,
				       (size_t)(c->residual_count * sizeof(float)), &memory));
	c->residual = memory;
	return RUBATO_OK;
}

void rb_converted_executor(struct rb_converted *c, struct rb_engine *engine)
{
	c->executor.ops = &converted_ops;
	c->executors[0] = &c->executor;
	c->coders = rb_coders_of(rb_reduce_best());
	c->clock = engine->endpoints[0];
}

rubato_status rb_converted_side(struct rb_converted *c, bool out, struct rb_executor *device,
				uint64_t bytes)
{
	struct rb_converted_side *side = &c->sides[out];
	void *memory;

	side->device = device;
	if (device == NULL)
		return RUBATO_OK;
	side->base = out ? c->out : (void *)(uintptr_t)c->in;
	if (side->owner != device || side->bytes < bytes) {
		side_free(side);
		RB_TRY(device->ops->memory_new(device, RB_MEMORY_HOST, (size_t)bytes, &memory));
		side->memory = memory;
		side->bytes = bytes;
		side->owner = device;
	}
	if (out)
		c->out = side->memory;
	else
		c->in = side->memory;
	return plan_prepare(&side->plan, bytes, 1, 1, true, 1);
}

static void run_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rb_converted *c = run->owner;

	(void)engine;
	c->then(c->arg, run->status, run->failure);
}

static void side_copy(struct rb_converted *c, struct rb_engine *engine,
		      void (*done)(struct rb_engine *engine, struct rb_run *run))
{
	struct rb_converted_side *side = &c->sides[c->back];

	c->copiers[0] = engine->executor;
	c->copiers[1] = side->device;
	c->run.plan = side->plan;
	c->run.buffers[RB_BUF_IN].base = c->back ? (void *)side->memory : side->base;
	c->run.buffers[RB_BUF_OUT].base = c->back ? side->base : (void *)side->memory;
	c->run.executors = c->copiers;
	c->run.wire = RUBATO_WIRE_SAME;
	c->run.type = RUBATO_UINT8;
	c->run.done = done;
	rb_run_start(engine, &c->run);
}

static void result_copy(struct rb_engine *engine, struct rb_run *run)
{
	if (run->status == RUBATO_OK)
		side_copy(run->owner, engine, run_done);
	else
		run_done(engine, run);
}

static void conversion_start(struct rb_engine *engine, struct rb_run *run)
{
	struct rb_converted *c = run->owner;

	if (run->status != RUBATO_OK) { /* Of the copy before. */
		run_done(engine, run);
		return;
	}
	c->run.wire = RUBATO_WIRE_SAME;
	c->run.plan = c->back ? c->after : c->there;
	c->run.buffers[RB_BUF_IN].base = c->run.buffers[RB_BUF_OUT].base = c->memory->base;
	c->run.executors = c->executors;
	c->run.type = RUBATO_FLOAT32;
	c->run.done = c->back && c->sides[1].device != NULL ? result_copy : run_done;
	rb_run_start(engine, run);
}

/* On the device: NONE makes zeros of a half of the residual. */
static void convert_on(struct rb_converted *c, struct rb_engine *engine, enum rb_coding coding,
		       void (*done)(struct rb_engine *engine, struct rb_run *run))
{
	struct rb_converted_there *on = &c->on;
	uint64_t first = c->back ? c->out_first * rb_code_bytes(c->wire) : 0;
	uint64_t blocks = c->in_blocks / parts(c); /* In each part. */

	on->code = (struct rb_code_vector) {
		.coding = coding,
		.values = c->back ? c->out : (float *)(uintptr_t)c->in,
		.block_values = c->back ? c->out_values : c->block_values * blocks,
		.block_units =
			c->back ? rb_code_units(c->wire, c->out_values) : c->block_units * blocks,
		.residual = c->back ? NULL : c->residual,
	};
	if (coding == RB_CODING_NONE)
		on->code.residual += on->zeroed * (c->residual_count / 2);
	c->copiers[0] = engine->executor;
	c->copiers[1] = on->device;
	c->run.plan = c->back ? c->after : c->there;
	c->run.buffers[RB_BUF_IN].base = c->run.buffers[RB_BUF_OUT].base =
		(uint8_t *)on->units + first;
	c->run.executors = c->copiers;
	c->run.wire = c->wire;
	c->run.code = &on->code;
	c->run.type = RUBATO_FLOAT32;
	c->run.done = done;
	rb_run_start(engine, &c->run);
}

static void encode_on(struct rb_converted *c, struct rb_engine *engine);

static void half_zeroed(struct rb_engine *engine, struct rb_run *run)
{
	struct rb_converted *c = run->owner;

	if (run->status != RUBATO_OK) {
		run_done(engine, run);
		return;
	}
	c->on.zeroed++;
	encode_on(c, engine);
}

static void encode_on(struct rb_converted *c, struct rb_engine *engine)
{
	if (c->residual != NULL && c->on.zeroed < 2)
		convert_on(c, engine, RB_CODING_NONE, half_zeroed);
	else if (c->on.codes)
		convert_on(c, engine, RB_CODING_ENCODE, run_done);
	else
		c->then(c->arg, RUBATO_OK, "");
}

static void begin(struct rb_converted *c, bool back,
		  void (*then)(void *arg, rubato_status status, const char *text), void *arg)
{
	c->back = back;
	c->then = then;
	c->arg = arg;
	c->run.op = RUBATO_SUM;
	c->run.owner = c;
	c->run.status = RUBATO_OK;
}

void rb_converted_start(struct rb_converted *c, struct rb_engine *engine, bool back,
			void (*then)(void *arg, rubato_status status, const char *text), void *arg)
{
	if (back && c->out_values == 0) {
		then(arg, RUBATO_OK, "");
		return;
	}
	begin(c, back, then, arg);
	c->on.codes = true;
	if (c->on.device != NULL && back)
		convert_on(c, engine, RB_CODING_DECODE, run_done);
	else if (c->on.device != NULL)
		encode_on(c, engine);
	else if (!back && c->sides[0].device != NULL)
		side_copy(c, engine, conversion_start);
	else
		conversion_start(engine, &c->run);
}

void rb_converted_zero(struct rb_converted *c, struct rb_engine *engine,
		       void (*then)(void *arg, rubato_status status, const char *text), void *arg)
{
	begin(c, false, then, arg);
	c->on.codes = false;
	encode_on(c, engine);
}

void rb_converted_copy(struct rb_converted *c, struct rb_engine *engine, bool back,
		       void (*then)(void *arg, rubato_status status, const char *text), void *arg)
{
	begin(c, back, then, arg);
	side_copy(c, engine, run_done);
}

void rb_converted_fini(struct rb_converted *c)
{
	rb_plan_free(c->there);
	rb_plan_free(c->after);
	c->there = c->after = NULL;
	for (uint32_t i = 0; i < 2; i++) {
		side_free(&c->sides[i]);
		rb_plan_free(c->sides[i].plan);
		c->sides[i].plan = NULL;
	}
	there_free(c);
	if (c->on.device != NULL && c->residual != NULL)
		c->on.device->ops->memory_free(c->on.device, c->residual);
	else
		free(c->residual);
	c->residual = NULL;
	rb_run_fini(&c->run);
}
