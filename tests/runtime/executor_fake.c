/* executor_fake.c -- see executor_fake.h. */
#include "tests/runtime/executor_fake.h"

#include <stdlib.h>
#include <string.h>

static const struct rb_executor_ops fake_ops;

/* Whether it is still under way. */
static bool pending(const struct rb_event *event)
{
	const struct executor_fake *fake = (const struct executor_fake *)event->executor;

	RB_ASSERT(event->executor->ops == &fake_ops);
	for (uint32_t i = 0; i < fake->queued; i++)
		if (fake->queue[i].work->number == event->number)
			return true;
	return false;
}

static void fake_start(struct rb_executor *executor, struct rb_work *work)
{
	struct executor_fake *fake = (struct executor_fake *)executor;
	bool behind = false, crossed = false;

	RB_ASSERT(fake->queued < FAKE_QUEUE_MAX && work->after_count <= FAKE_AFTER_MAX);
	for (uint32_t i = 0; i < work->after_count; i++) {
		fake->queue[fake->queued].after[i] = work->after[i];
		behind |= pending(&work->after[i]);
		crossed |= work->after[i].executor != executor && pending(&work->after[i]);
	}
	fake->queue[fake->queued].after_count = work->after_count;
	fake->behind += behind;
	fake->crossed += crossed;
	work->state = RB_WORK_PENDING;
	work->number = ++fake->numbers;
	fake->queue[fake->queued++].work = work;
	fake->started++;
}

static bool may_begin(const struct executor_fake *fake, uint32_t at)
{
	for (uint32_t i = 0; i < fake->queue[at].after_count; i++)
		if (pending(&fake->queue[at].after[i]))
			return false;
	return true;
}

static void queue_remove(struct executor_fake *fake, uint32_t at)
{
	fake->queued--;
	memmove(&fake->queue[at], &fake->queue[at + 1],
		(fake->queued - at) * sizeof(fake->queue[0]));
}

static struct rb_work *fake_poll(struct rb_executor *executor)
{
	struct executor_fake *fake = (struct executor_fake *)executor;
	uint64_t draw = rb_rng_next(&fake->rng);
	struct rb_work *work;
	uint32_t at;

	/* Three polls out of four find nothing finished yet. */
	if (fake->queued == 0 || draw % 4 != 0)
		return NULL;
	at = (uint32_t)(draw / 4 % fake->queued);
	for (uint32_t i = 0; i < fake->queued && !may_begin(fake, at); i++)
		at = (at + 1) % fake->queued;
	if (!may_begin(fake, at))
		return NULL; /* All wait for another executor. */
	fake->overtook += at > 0;
	work = fake->queue[at].work;
	queue_remove(fake, at);
	/* One operand on a device is a copy, as on the host. */
	if (work->reduce.from_count > 1 || work->reduce.final_count > 0)
		rb_reduce_plain(&work->reduce);
	else if (work->reduce.to != work->reduce.from[0])
		memcpy(work->reduce.to, work->reduce.from[0],
		       work->reduce.count * work->element_bytes);
	work->state = RB_WORK_DONE;
	work->status = RUBATO_OK;
	work->next = NULL;
	fake->completed++;
	return work;
}

static void fake_cancel(struct rb_executor *executor, struct rb_work *work)
{
	struct executor_fake *fake = (struct executor_fake *)executor;

	for (uint32_t i = 0; i < fake->queued; i++) {
		if (fake->queue[i].work != work)
			continue;
		queue_remove(fake, i);
		work->state = RB_WORK_DONE;
		work->status = RUBATO_ERR_CANCELLED;
		fake->cancelled++;
		return;
	}
}

static bool fake_busy(struct rb_executor *executor)
{
	return ((struct executor_fake *)executor)->queued > 0;
}

static void fake_close(struct rb_executor *executor)
{
	(void)executor;
}

static bool fake_waits_for(const struct rb_executor *executor, const struct rb_executor *other)
{
	return executor->ops == other->ops;
}

static size_t fake_knows(const struct rb_executor *executor, const void *address,
			 enum rb_memory_kind *kind)
{
	const struct executor_fake *fake = (const struct executor_fake *)executor;
	const uint8_t *at = address;

	*kind = RB_MEMORY_DEVICE;
	for (uint32_t i = 0; i < FAKE_MEMORY_MAX; i++)
		if (fake->memory[i].base != NULL && at >= fake->memory[i].base &&
		    at < fake->memory[i].base + fake->memory[i].bytes)
			return (size_t)(fake->memory[i].base + fake->memory[i].bytes - at);
	return 0;
}

static rubato_status fake_memory_new(struct rb_executor *executor, enum rb_memory_kind kind,
				     size_t size_bytes, void **out)
{
	struct executor_fake *fake = (struct executor_fake *)executor;
	uint32_t i = 0;

	*out = calloc(1, size_bytes + 1);
	if (*out == NULL)
		return RUBATO_ERR_MEMORY;
	if (kind != RB_MEMORY_DEVICE)
		return RUBATO_OK;
	while (fake->memory[i].base != NULL)
		i++;
	RB_ASSERT(i < FAKE_MEMORY_MAX);
	fake->memory[i].base = *out;
	fake->memory[i].bytes = size_bytes;
	return RUBATO_OK;
}

static void fake_memory_free(struct rb_executor *executor, void *memory)
{
	struct executor_fake *fake = (struct executor_fake *)executor;

	for (uint32_t i = 0; i < FAKE_MEMORY_MAX; i++)
		if (fake->memory[i].base == memory)
			fake->memory[i].base = NULL;
	free(memory);
}

static const struct rb_executor_ops fake_ops = {
	.name = "fake",
	.start = fake_start,
	.poll = fake_poll,
	.cancel = fake_cancel,
	.busy = fake_busy,
	.close = fake_close,
	.waits_for = fake_waits_for,
	.knows = fake_knows,
	.memory_new = fake_memory_new,
	.memory_free = fake_memory_free,
};

void executor_fake_init(struct executor_fake *fake, uint64_t seed)
{
	memset(fake, 0, sizeof(*fake));
	fake->base.ops = &fake_ops;
	fake->rng.state = seed;
}
