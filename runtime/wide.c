/* wide.c -- see wide.h. */
#include "runtime/wide.h"

#include <string.h>

#include "runtime/comm.h"

#define CHUNK (RB_SLICE_BYTES / 4) /* Elements. */
#define IMMEDIATE (16u << 10)      /* So many are done sooner than queued. */

rubato_status rubato_set_accumulate(rubato_comm *comm, rubato_accumulate accumulate)
{
	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "accumulate: no communicator");
	if (accumulate != RUBATO_ACCUMULATE_STEP && accumulate != RUBATO_ACCUMULATE_WHOLE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "accumulate: there is no way %d",
			       (int)accumulate);
	rb_engine_enter(&comm->engine);
	comm->accumulate = accumulate;
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

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
	wide->convert(&convert);
	work->state = RB_WORK_DONE;
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

/* ---- The operation ---- */

static bool wanted(const struct rubato_op *op)
{
	bool reduces = op->kind == RB_KIND_ALLREDUCE || op->kind == RB_KIND_REDUCE ||
		       op->kind == RB_KIND_REDUCE_SCATTER || op->kind == RB_KIND_REDUCE_SCATTERV;
	bool rounds = op->op != RUBATO_MAX && op->op != RUBATO_MIN;

	return op->comm->accumulate == RUBATO_ACCUMULATE_WHOLE && reduces && rounds &&
	       (op->type == RUBATO_FLOAT16 || op->type == RUBATO_BFLOAT16) && op->count > 0 &&
	       op->comm->engine.rank_count > 1;
}

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

/* Where in IN the rank's result comes to lie: in place. */
static uint64_t out_first(const struct rubato_op *op)
{
	uint32_t rank = op->comm->engine.rank;
	uint64_t first = 0;

	if (op->kind == RB_KIND_REDUCE_SCATTER)
		return rank * op->count;
	if (op->kind != RB_KIND_REDUCE_SCATTERV)
		return 0;
	if (op->shape.offsets != NULL)
		return op->shape.offsets[rank];
	for (uint32_t r = 0; r < rank; r++)
		first += op->shape.counts[r];
	return first;
}

rubato_status rb_wide_prepare(struct rubato_op *op)
{
	struct rb_wide *wide = &op->wide;
	uint64_t in_count = op->in_bytes / 2, out_count = op->out_bytes / 2;

	wide->active = wanted(op);
	if (!wide->active)
		return RUBATO_OK;
	wide->half = op->type;
	wide->in = op->in;
	wide->out = op->out;
	wide->out_count = out_count;
	wide->out_first = out_first(op);
	wide->executor.ops = &wide_ops;
	wide->convert = rb_convert_of(rb_reduce_best());
	RB_TRY(plan_prepare(&wide->widen, in_count));
	RB_TRY(plan_prepare(&wide->narrow, out_count));
	RB_TRY(rb_run_init(&wide->run, wide->widen));
	if (wide->memory != NULL && wide->memory->size_bytes < in_count * 4) {
		rb_memory_drop(op->comm, wide->memory);
		wide->memory = NULL;
	}
	if (wide->memory == NULL)
		RB_TRY(rb_memory_alloc(op->comm, (size_t)in_count * 4, &wide->memory));
	op->type = RUBATO_FLOAT32;
	op->in = wide->memory->base;
	op->out = out_count > 0 ? wide->memory->base + wide->out_first * 4 : NULL;
	op->in_bytes *= 2;
	op->out_bytes *= 2;
	return RUBATO_OK;
}

static void run_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	(void)engine;
	op->wide.then(op, run->status, run->failure);
}

void rb_wide_start(struct rubato_op *op, bool narrow,
		   void (*then)(struct rubato_op *op, rubato_status status, const char *text))
{
	struct rb_wide *wide = &op->wide;

	if (narrow && wide->out_count == 0) {
		then(op, RUBATO_OK, "");
		return;
	}
	op->state = RB_OP_CONVERTING;
	wide->narrowing = narrow;
	wide->then = then;
	wide->run.plan = narrow ? wide->narrow : wide->widen;
	wide->run.buffers[RB_BUF_IN] = wide->run.buffers[RB_BUF_OUT] = wide->memory->base;
	wide->run.executor = &wide->executor;
	wide->run.type = RUBATO_FLOAT32;
	wide->run.op = RUBATO_SUM;
	wide->run.signature = op->signature;
	wide->run.done = run_done;
	wide->run.owner = op;
	rb_run_start(&op->comm->engine, &wide->run);
}

void rb_wide_fini(struct rb_wide *wide)
{
	rb_plan_free(wide->widen);
	rb_plan_free(wide->narrow);
	wide->widen = wide->narrow = NULL;
	rb_run_fini(&wide->run);
}
