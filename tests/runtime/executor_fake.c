/* executor_fake.c -- see executor_fake.h. */
#include "tests/runtime/executor_fake.h"

#include <string.h>

static void fake_start(struct rb_executor *executor, struct rb_work *work)
{
	struct executor_fake *fake = (struct executor_fake *)executor;

	RB_ASSERT(fake->queued < FAKE_QUEUE_MAX);
	work->state = RB_WORK_PENDING;
	fake->queue[fake->queued++] = work;
	fake->started++;
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
	fake->overtook += at > 0;
	work = fake->queue[at];
	fake->queued--;
	memmove(&fake->queue[at], &fake->queue[at + 1], (fake->queued - at) * sizeof(work));
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
		if (fake->queue[i] != work)
			continue;
		fake->queue[i] = fake->queue[--fake->queued];
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

static const struct rb_executor_ops fake_ops = {
	.name = "fake",
	.start = fake_start,
	.poll = fake_poll,
	.cancel = fake_cancel,
	.busy = fake_busy,
	.close = fake_close,
};

void executor_fake_init(struct executor_fake *fake, uint64_t seed)
{
	memset(fake, 0, sizeof(*fake));
	fake->base.ops = &fake_ops;
	fake->rng.state = seed;
}
