/* wide.c -- see wide.h. */
#include "runtime/engine/wide.h"

#include "base/hollow.h"

#define CHUNK (RB_SLICE_BYTES / 4) /* Elements. */
#define IMMEDIATE (16u << 10)      /* So many are done sooner than queued. */

/* ---- The executor ---- */

static void slice(struct rb_wide *wide, struct rb_work *work)
{
	const struct rb_slot *slot = work->owner;
	uint64_t first = (uint64_t)slot->iteration * CHUNK;
	uint8_t *memory = wide->memory->base;
	struct rb_convert convert = { .half = wide->half, .narrow = wide->narrowing };

	convert.count = work->reduce.count;
	if (wide->narrowing) {
		convert.from = memory + (wide->out_first + first) * 4;
		convert.to = (uint8_t *)wide->out + first * 2;
	} else {
		convert.from = (const uint8_t *)wide->in + first * 2;
		convert.to = memory + first * 4;
	}
	if (!rb_hollow(convert.from) && !rb_hollow(convert.to))
		wide->convert(&convert);
	work->state = RB_WORK_DONE;
	if (wide->clock->ops->work != NULL)
		wide->clock->ops->work(wide->clock, convert.count * (4 + 2));
}

static void queue_remove(struct rb_wide *wide, struct rb_work *work)
{
	*(work->previous != NULL ? &work->previous->next : &wide->first) = work->next;
	*(work->next != NULL ? &work->next->previous : &wide->last) = work->previous;
	work->next = work->previous = NULL;
}

static void wide_work(struct rb_executor *executor, struct rb_work *work)
{
	struct rb_wide *wide = (struct rb_wide *)executor;

	work->status = RUBATO_OK;
	if (work->reduce.count <= IMMEDIATE) {
		slice(wide, work);
		return;
	}
	work->state = RB_WORK_PENDING;
	work->next = NULL;
	work->previous = wide->last;
	*(wide->last != NULL ? &wide->last->next : &wide->first) = work;
	wide->last = work;
}

static struct rb_work *wide_poll(struct rb_executor *executor)
{
	struct rb_wide *wide = (struct rb_wide *)executor;
	struct rb_work *work = wide->first;

	if (work == NULL)
		return NULL;
	queue_remove(wide, work);
	slice(wide, work);
	return work;
}

static void wide_cancel(struct rb_executor *executor, struct rb_work *work)
{
	if (work->state != RB_WORK_PENDING)
		return;
	queue_remove((struct rb_wide *)executor, work);
	work->state = RB_WORK_DONE;
	work->status = RUBATO_ERR_CANCELLED;
}

static bool wide_busy(struct rb_executor *executor)
{
	return ((struct rb_wide *)executor)->first != NULL;
}

static void wide_close(struct rb_executor *executor)
{
	(void)executor; /* A part of its operation. */
}

static const struct rb_executor_ops wide_ops = {
	.name = "wide",
	.start = wide_work,
	.poll = wide_poll,
	.cancel = wide_cancel,
	.busy = wide_busy,
	.close = wide_close,
};

/* ---- The conversions ---- */

/* One copy of `count` elements, chunk by chunk: what is copied, and how, is the executor's. */
static rubato_status plan_prepare(struct rb_plan **plan, uint64_t count)
{
	struct rb_span spans[] = { rb_span_in(RB_SELF), rb_span_out(RB_SELF) };
	struct rb_step step = { .kind = RB_STEP_COPY,
				.peer = RB_SELF,
				.blocks = 1,
				.to = 1,
				.from = 0,
				.from_count = 1 };
	struct rb_schedule schedule = {
		.rank_count = 1,
		.block_count = 1,
		.scratch_copies = 1,
		.step_count = 1,
		.span_count = 2,
		.steps = &step,
		.spans = spans,
		.deps = &(struct rb_dep) { 0 },
	};
	struct rb_layout layout = { .count = count, .block_count = 1, .align = 1, .chunk = CHUNK };

	if (*plan != NULL && (*plan)->layout.count == count)
		return RUBATO_OK;
	rb_plan_free(*plan);
	*plan = NULL;
	return rb_plan_from(&schedule, &layout, 4, plan);
}

rubato_status rb_wide_prepare(struct rb_wide *wide, struct rb_memories *memories, uint64_t in_count)
{
	wide->executor.ops = &wide_ops;
	wide->convert = rb_convert_of(rb_reduce_best());
	RB_TRY(plan_prepare(&wide->widen, in_count));
	RB_TRY(plan_prepare(&wide->narrow, wide->out_count));
	RB_TRY(rb_run_init(&wide->run, wide->widen));
	if (wide->memory != NULL && wide->memory->size_bytes < in_count * 4) {
		rb_memory_drop(memories, wide->memory);
		wide->memory = NULL;
	}
	return wide->memory != NULL
		       ? RUBATO_OK
		       : rb_memory_alloc(memories, (size_t)in_count * 4, &wide->memory);
}

static void run_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rb_wide *wide = run->owner;

	(void)engine;
	wide->then(wide->arg, run->status, run->failure);
}

void rb_wide_start(struct rb_wide *wide, struct rb_engine *engine, bool narrow,
		   void (*then)(void *arg, rubato_status status, const char *text), void *arg)
{
	if (narrow && wide->out_count == 0) {
		then(arg, RUBATO_OK, "");
		return;
	}
	wide->narrowing = narrow;
	wide->clock = engine->endpoints[0];
	wide->then = then;
	wide->arg = arg;
	wide->run.plan = narrow ? wide->narrow : wide->widen;
	wide->run.buffers[RB_BUF_IN].base = wide->run.buffers[RB_BUF_OUT].base = wide->memory->base;
	wide->run.executor = &wide->executor;
	wide->run.type = RUBATO_FLOAT32;
	wide->run.op = RUBATO_SUM;
	wide->run.done = run_done;
	wide->run.owner = wide;
	rb_run_start(engine, &wide->run);
}

void rb_wide_fini(struct rb_wide *wide)
{
	rb_plan_free(wide->widen);
	rb_plan_free(wide->narrow);
	wide->widen = wide->narrow = NULL;
	rb_run_fini(&wide->run);
}
