/*
 * engine.c -- when work is done: queues that have any, delays that a seed draws, and the thread
 * that goes on where the application sleeps.
 *
 * The world's clock counts calls. Each call that posts or polls moves it by one, and carries out
 * what is due of this process; so a run in one thread is the same each time. The thread moves it
 * only while no calls do.
 */
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/verbs-mock/process.h"

#define TICK_NS 50000
#define TICK_STEPS 16
#define TICKS_IDLE 40 /* Then the thread sleeps until it is called. */

struct process process;

void process_forget(void)
{
	memset(&process, 0, sizeof(process));
}

uint64_t engine_delay(const struct world *world, uint32_t qp, uint64_t ordinal)
{
	static const uint32_t spans[] = { 1, 1, 4, 16, 64, 256 };
	uint64_t which = (uint64_t)qp << 40 | ordinal, span = world->config.max_delay + 1;

	if (world->config.seed == 0 && world->config.max_delay == 0)
		return 0;
	if (world->config.max_delay == 0) /* A queue pair is fast or slow, in some of its hours. */
		span = spans[world_chance(world, 2, which >> 4) % 6];
	return world_chance(world, 3, which) % span;
}

void engine_activate(struct world *world, struct mock_qp *qp)
{
	if (!qp->active) {
		qp->active = true;
		qp->next_active = process.active;
		process.active = qp;
	}
	if (process.engine_sleeps) {
		struct world_process *slot = &world->processes[world_self()];

		process.engine_sleeps = false;
		__atomic_fetch_add(&slot->doorbell, 1, __ATOMIC_RELEASE);
		(void)syscall(SYS_futex, &slot->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

void engine_deactivate(struct mock_qp *qp)
{
	for (struct mock_qp **at = &process.active; *at != NULL; at = &(*at)->next_active)
		if (*at == qp) {
			*at = qp->next_active;
			break;
		}
	qp->active = false;
}

/* What others have changed of this process's queues. */
static void look_around(struct world *world)
{
	device_events_raise(world);
	for (uint32_t i = 0; i < world->cq_end; i++)
		if (process.cqs[i] != NULL)
			cq_raise(world, i);
	for (uint32_t i = 0; i < world->srq_end; i++)
		if (process.srqs[i] != NULL)
			srq_raise(world, i);
	for (uint32_t i = 0; i < world->qp_end; i++) {
		if (process.qps[i] == NULL)
			continue;
		qp_raise(world, i);
		if (world->qps[i].flush)
			engine_activate(world, process.qps[i]);
	}
}

void engine_step(struct world *world)
{
	struct world_process *slot = &world->processes[world_self()];

	if (slot->attention) {
		slot->attention = false;
		look_around(world);
	}
	if (slot->cm_events > 0)
		cm_raise(world);
	late_step(world);
	for (struct mock_qp **at = &process.active; *at != NULL;) {
		struct mock_qp *qp = *at;

		if (carry_out(world, qp))
			at = &qp->next_active;
		else
			engine_deactivate(qp); /* And *at is the next one. */
	}
}

static void pause_until_called(struct world *world, bool idle)
{
	struct timespec tick = { .tv_nsec = TICK_NS };
	struct timespec sleep = { .tv_sec = (time_t)(world->config.sleep_ms / 1000),
				  .tv_nsec = (long)(world->config.sleep_ms % 1000 * 1000000) };
	uint32_t *doorbell = &world->processes[world_self()].doorbell, seen;

	seen = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
	process.engine_sleeps = idle;
	world_unlock(world);
	if (idle)
		(void)syscall(SYS_futex, doorbell, FUTEX_WAIT, seen, &sleep, NULL, 0);
	else
		(void)nanosleep(&tick, NULL);
	world_lock(world);
}

static void *engine_main(void *argument)
{
	uint64_t generation = (uint64_t)(uintptr_t)argument, seen = 0;
	struct world *world = world_now();
	uint32_t idle = 0;

	world_lock(world);
	while (process.engine_generation == generation) {
		if (process.calls == seen)
			world->step += TICK_STEPS;
		engine_step(world); /* Who called it may have brought something. */
		seen = process.calls;
		idle = process.active != NULL || world->processes[world_self()].cm_events > 0
			       ? 0
			       : idle + 1;
		pause_until_called(world, idle > TICKS_IDLE);
	}
	world_unlock(world);
	return NULL;
}

void engine_start(void)
{
	struct world *world = world_now();

	world_lock(world);
	if (!process.engine_runs && world->config.thread != 0) {
		process.engine_runs = true;
		process.engine_generation++;
		if (pthread_create(&process.engine, NULL, engine_main,
				   (void *)(uintptr_t)process.engine_generation) != 0)
			abort();
	}
	world_unlock(world);
}

void engine_stop(void)
{
	struct world *world = world_now();
	pthread_t thread;
	bool stop;

	world_lock(world);
	stop = process.engine_runs && process.contexts == NULL;
	thread = process.engine;
	if (stop) {
		process.engine_runs = process.engine_sleeps = false;
		process.engine_generation++;
		world_notify(world, world_self());
	}
	world_unlock(world);
	if (stop)
		(void)pthread_join(thread, NULL);
}
