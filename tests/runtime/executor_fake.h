/*
 * executor_fake.h -- an executor that behaves as a device would: nothing is done at start,
 * everything completes polls later, in an order of its own (from a seed), never two at once.
 */
#ifndef TESTS_RUNTIME_EXECUTOR_FAKE_H
#define TESTS_RUNTIME_EXECUTOR_FAKE_H

#include "base/rng.h"
#include "runtime/engine/executor.h"

#define FAKE_QUEUE_MAX 4096

struct executor_fake {
	struct rb_executor base;
	struct rb_rng rng;
	struct rb_work *queue[FAKE_QUEUE_MAX];
	uint32_t queued, started, completed, overtook, cancelled;
};

void executor_fake_init(struct executor_fake *fake, uint64_t seed);

#endif
