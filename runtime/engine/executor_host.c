/*
 * executor_host.c -- copies and reductions by the thread that drives the engine, in bounded slices.
 *
 * Small work is done when it is started, until a slice's worth is: starting an operation takes no
 * longer, though each of its steps makes the next one ready. Larger work, and what comes after,
 * waits in a queue, oldest first, and each poll does one slice of it: between slices the engine
 * polls its transports, so that peers never wait for long. Where time is virtual, the same work is
 * done, and its time is asked of the transport.
 */
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/hollow.h"
#include "runtime/engine/executor.h"
#include "transport/transport.h"

#define IMMEDIATE_BYTES (64u << 10) /* About 3 us of work: less than a poll round is worth. */
#define SMALL_BYTES (4u << 10)      /* Guess: not worth counting. */
#define FEW 8u                      /* Guess: elements. */

struct host {
	struct rb_executor base;
	rb_reduce_fn reduce;
	rb_copy_fn *copy_across;
	struct rb_work *first, *last; /* The queue, by next and previous. */
	uint64_t immediate_bytes;     /* Done at once since the last poll. */
	struct rb_endpoint *clock;    /* Where time is virtual. */
};

/* Does elements done_count .. done_count + count - 1. */
static void work_slice(struct host *host, struct rb_work *work, uint64_t count)
{
	const size_t skip = (size_t)work->done_count * work->element_bytes;
	struct rb_reduce part = work->reduce;

	part.count = count;
	part.to = (uint8_t *)part.to + skip;
	if (part.also != NULL)
		part.also = (uint8_t *)part.also + skip;
	if (part.from_count == 1 && part.final_count == 0 && part.also == NULL) {
		const void *from = (const uint8_t *)part.from[0] + skip;
		size_t size_bytes = (size_t)count * work->element_bytes;

		if (part.past && part.to != from)
			rb_copy_past(part.to, from, size_bytes);
		else if (part.to != from)
			memcpy(part.to, from, size_bytes);
	} else if (skip == 0) {
		host->reduce(&part);
	} else {
		const void *moved[64];

		RB_ASSERT(part.from_count <= 64);
		for (uint32_t i = 0; i < part.from_count; i++)
			moved[i] = (const uint8_t *)part.from[i] + skip;
		part.from = moved;
		host->reduce(&part);
	}
	work->done_count += count;
}

typedef void slice_fn(struct host *host, struct rb_work *work, uint64_t count);

static inline void start_by(struct host *host, struct rb_work *work, slice_fn *slice)
{
	uint64_t bytes = work->reduce.count * work->element_bytes * work->reduce.from_count;

	work->status = RUBATO_OK;
	work->done_count = 0;
	/* Operands beyond the copy in work_slice are never sliced. */
	if ((bytes <= IMMEDIATE_BYTES && host->immediate_bytes < RB_SLICE_BYTES) ||
	    bytes <= SMALL_BYTES || work->reduce.from_count > 64) {
		host->immediate_bytes += bytes > SMALL_BYTES ? bytes : 0;
		slice(host, work, work->reduce.count);
		work->state = RB_WORK_DONE;
		return;
	}
	work->state = RB_WORK_PENDING;
	work->next = NULL;
	work->previous = host->last;
	*(host->last != NULL ? &host->last->next : &host->first) = work;
	host->last = work;
}

static void host_start(struct rb_executor *executor, struct rb_work *work)
{
	start_by((struct host *)executor, work, work_slice);
}

static void host_now(struct rb_executor *executor, const struct rb_reduce *r,
		     uint32_t element_bytes)
{
	if (r->count <= FEW)
		rb_reduce_plain(r); /* The same bits, and a vector would not be filled. */
	else if (r->from_count != 1 || r->final_count != 0)
		((struct host *)executor)->reduce(r);
	else if (r->to != r->from[0])
		memcpy(r->to, r->from[0], (size_t)r->count * element_bytes);
}

static void host_copy_across(struct rb_executor *executor, void *to, const void *from,
			     size_t size_bytes)
{
	((struct host *)executor)->copy_across(to, from, size_bytes);
}

static void queue_remove(struct host *host, struct rb_work *work)
{
	*(work->previous != NULL ? &work->previous->next : &host->first) = work->next;
	*(work->next != NULL ? &work->next->previous : &host->last) = work->previous;
	work->next = work->previous = NULL;
}

static inline struct rb_work *poll_by(struct host *host, slice_fn *slice)
{
	struct rb_work *work = host->first;

	if (work == NULL)
		return NULL;
	host->immediate_bytes = 0;

	uint64_t left = work->reduce.count - work->done_count;
	uint64_t most = RB_SLICE_BYTES / work->element_bytes;

	slice(host, work, left < most ? left : most);
	if (work->done_count < work->reduce.count)
		return NULL;
	queue_remove(host, work);
	work->state = RB_WORK_DONE;
	return work;
}

static struct rb_work *host_poll(struct rb_executor *executor)
{
	return poll_by((struct host *)executor, work_slice);
}

static void host_cancel(struct rb_executor *executor, struct rb_work *work)
{
	if (work->state != RB_WORK_PENDING)
		return;
	queue_remove((struct host *)executor, work);
	work->state = RB_WORK_DONE;
	work->status = RUBATO_ERR_CANCELLED;
}

static bool host_busy(struct rb_executor *executor)
{
	return ((struct host *)executor)->first != NULL;
}

static void host_close(struct rb_executor *executor)
{
	free(executor);
}

static const struct rb_executor_ops host_ops = {
	.name = "host",
	.writes_twice = true,
	.start = host_start,
	.now = host_now,
	.copy_across = host_copy_across,
	.poll = host_poll,
	.cancel = host_cancel,
	.busy = host_busy,
	.close = host_close,
};

/* ---- Where time is virtual ---- */

static bool is_hollow(const struct rb_reduce *r)
{
	bool hollow = rb_hollow(r->to) || (r->also != NULL && rb_hollow(r->also));

	for (uint32_t i = 0; i < r->from_count && !hollow; i++)
		hollow = rb_hollow(r->from[i]);
	return hollow;
}

static void timed_slice(struct host *host, struct rb_work *work, uint64_t count)
{
	if (is_hollow(&work->reduce))
		work->done_count += count;
	else
		work_slice(host, work, count);
}

#define TOUCHES_MAX 64u /* Of the operands of a reduction; who counts more, does not say where. */

/* After so many elements of it were done, up to done_count. */
static void work_charge(struct host *host, const struct rb_work *work, uint64_t count)
{
	const struct rb_reduce *r = &work->reduce;
	struct rb_touch touches[TOUCHES_MAX + 3];
	uint64_t size_bytes = count * work->element_bytes;
	uint64_t skip = work->done_count * work->element_bytes - size_bytes;
	uint32_t from = r->from_count < TOUCHES_MAX ? r->from_count : TOUCHES_MAX;

	if (r->from_count == 1 && r->final_count == 0 && r->to == r->from[0])
		return;
	for (uint32_t i = 0; i < from; i++)
		touches[i] =
			(struct rb_touch) { (const uint8_t *)r->from[i] + skip, size_bytes, false };
	touches[from] = (struct rb_touch) { NULL, (r->from_count - from) * size_bytes, false };
	touches[from + 1] = (struct rb_touch) { (const uint8_t *)r->to + skip, size_bytes, true };
	if (r->also != NULL)
		touches[from + 2] =
			(struct rb_touch) { (const uint8_t *)r->also + skip, size_bytes, true };
	host->clock->ops->work(host->clock, touches, from + 2 + (r->also != NULL));
}

static void timed_start(struct rb_executor *executor, struct rb_work *work)
{
	struct host *host = (struct host *)executor;

	start_by(host, work, timed_slice);
	if (work->done_count > 0)
		work_charge(host, work, work->done_count);
}

static struct rb_work *timed_poll(struct rb_executor *executor)
{
	struct host *host = (struct host *)executor;
	struct rb_work *work = host->first, *list;
	uint64_t before = work != NULL ? work->done_count : 0;

	list = poll_by(host, timed_slice);
	if (work != NULL)
		work_charge(host, work, work->done_count - before);
	return list;
}

static void timed_copy_across(struct rb_executor *executor, void *to, const void *from,
			      size_t size_bytes)
{
	struct host *host = (struct host *)executor;
	struct rb_work work = { .element_bytes = 1 };

	work.reduce = (struct rb_reduce) { .to = to, .from = &from, .from_count = 1 };
	work.reduce.count = size_bytes;
	timed_slice(host, &work, size_bytes);
	work_charge(host, &work, size_bytes);
}

static const struct rb_executor_ops timed_ops = {
	.name = "host",
	.writes_twice = true,
	.start = timed_start,
	.copy_across = timed_copy_across,
	.poll = timed_poll,
	.cancel = host_cancel,
	.busy = host_busy,
	.close = host_close,
};

void rb_executor_host_time(struct rb_executor *executor, struct rb_endpoint *ep)
{
	RB_ASSERT(executor->ops == &host_ops && ep->ops->work != NULL);
	((struct host *)executor)->clock = ep;
	executor->ops = &timed_ops;
}

/* ---- Open ---- */

rubato_status rb_executor_host_open(struct rb_executor **out)
{
	struct host *host = calloc(1, sizeof(*host));

	if (host == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "host executor: %zu bytes", sizeof(*host));
	host->base.ops = &host_ops;
	host->reduce = rb_reduce_best();
	host->copy_across = rb_copy_across();
	*out = &host->base;
	return RUBATO_OK;
}
