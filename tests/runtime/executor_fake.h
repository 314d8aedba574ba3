/*
 * executor_fake.h -- an executor that behaves as a device would: nothing is done at start,
 * everything completes polls later, in an order of its own (from a seed), never two at once. It has
 * memory of its own, which anybody may touch, and waits for events by itself, its own and those of
 * others of its kind.
 */
#ifndef TESTS_RUNTIME_EXECUTOR_FAKE_H
#define TESTS_RUNTIME_EXECUTOR_FAKE_H

#include "base/rng.h"
#include "runtime/engine/executor.h"

#define FAKE_QUEUE_MAX 1024
#define FAKE_AFTER_MAX 32
#define FAKE_MEMORY_MAX 16

struct executor_fake {
	struct rb_executor base;
	struct rb_rng rng;
	struct {
		struct rb_work *work;
		struct rb_event after[FAKE_AFTER_MAX];
		uint32_t after_count;
	} queue[FAKE_QUEUE_MAX];
	uint64_t numbers;
	uint32_t queued, started, completed, overtook, cancelled;
	/* Started while what they wait for was still under way; on another executor. */
	uint32_t behind, crossed;
	struct {
		uint8_t *base;
		size_t bytes;
	} memory[FAKE_MEMORY_MAX];
};

void executor_fake_init(struct executor_fake *fake, uint64_t seed);

#endif
