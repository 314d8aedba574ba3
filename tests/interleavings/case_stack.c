/*
 * case_stack.c -- engines on shared memory: two ranks, each with a thread that calls and a progress
 * thread, and all that lies between them.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "runtime/engine/engine.h"
#include "tests/interleavings/cases.h"
#include "tests/interleavings/ranks.h"

#define ROUNDS 2

/* A word to the other rank and one from it. */
struct exchange {
	uint64_t out, in;
	uint32_t left;
	bool done;
};

struct rank {
	struct rb_engine engine;
	struct exchange exchanges[ROUNDS];
};

struct stack {
	struct ranks *ranks;
	struct rank each[2];
};

static void part_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct exchange *x = slot->owner;

	explore_expect(slot->request.status == RUBATO_OK, "rank %u: a message ends with %d",
		       engine->rank, (int)slot->request.status);
	if (--x->left == 0) {
		x->done = true;
		engine->in_flight--;
		engine->completed = true;
	}
	rb_slot_give(engine, slot);
}

static void part_post(struct rb_engine *engine, struct exchange *x, uint64_t tag, uint64_t *word,
		      void (*post)(struct rb_endpoint *ep, struct rb_request *request))
{
	struct rb_slot *slot = rb_slot_take(engine);

	explore_expect(slot != NULL, "memory");
	slot->owner = x;
	slot->done = part_done;
	slot->request = (struct rb_request) { .peer = 1 - engine->rank,
					      .tag = { 0, tag },
					      .buffer = word,
					      .size_bytes = sizeof(*word),
					      .owner = slot };
	post(engine->endpoints[0], &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		part_done(engine, slot);
}

static void exchange_post(struct rb_engine *engine, struct exchange *x, uint64_t tag)
{
	*x = (struct exchange) { .out = 1000 * tag + engine->rank, .left = 2 };
	engine->in_flight++;
	part_post(engine, x, tag, &x->in, rb_transport_shm.recv);
	part_post(engine, x, tag, &x->out, rb_transport_shm.send);
}

static void exchange_finish(struct rb_engine *engine, struct exchange *x, uint64_t tag)
{
	rubato_status err = rb_engine_wait_for(engine, &x->done, UINT64_C(60000000000));

	explore_expect(err == RUBATO_OK, "rank %u: exchange %llu ends with %d", engine->rank,
		       (unsigned long long)tag, (int)err);
	explore_expect(x->in == 1000 * tag + 1 - engine->rank, "rank %u: exchange %llu brings %llu",
		       engine->rank, (unsigned long long)tag, (unsigned long long)x->in);
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;
	bool apart = explore_choose(2) == 1;

	explore_expect(rb_engine_background(&r->engine, true) == RUBATO_OK, "thread");
	for (uint64_t i = 0; i < ROUNDS; i++) {
		rb_engine_enter(&r->engine);
		exchange_post(&r->engine, &r->exchanges[i], i);
		if (apart) { /* Starts, computes, comes back. */
			rb_engine_leave(&r->engine);
			for (uint32_t k = explore_choose(12); k > 0; k--)
				explore_pause();
			rb_engine_enter(&r->engine);
		}
		exchange_finish(&r->engine, &r->exchanges[i], i);
		rb_engine_leave(&r->engine);
	}
	rb_engine_stop(&r->engine);
	return NULL;
}

static void stack_body(void *world)
{
	struct stack *w = world;
	struct rb_thread other;

	ranks_share(w->ranks);
	explore_expect(rb_thread_start(&other, rank_main, &w->each[1]) == RUBATO_OK, "thread");
	(void)rank_main(&w->each[0]);
	rb_thread_join(&other);
}

static void *stack_open(void)
{
	struct stack *w = calloc(1, sizeof(*w));

	if (w == NULL)
		abort();
	w->ranks = ranks_open();
	return w;
}

static void stack_begin(void *world)
{
	struct stack *w = world;

	ranks_reset(w->ranks, UINT32_MAX - 1);
	for (uint32_t i = 0; i < 2; i++) {
		struct rb_engine *engine = &w->each[i].engine;

		if (rb_engine_init(engine, i, 2) != RUBATO_OK)
			abort();
		engine->endpoints[0] = w->ranks->sides[i].ep;
		engine->endpoint_count = 1;
		engine->waiting = (struct rb_waiting) { .spin_ns = 150, .yield_ns = 0 };
	}
}

static void stack_end(void *world)
{
	struct stack *w = world;

	ranks_end(w->ranks);
	for (uint32_t i = 0; i < 2; i++)
		rb_engine_fini(&w->each[i].engine);
}

static void stack_close(void *world)
{
	ranks_close(((struct stack *)world)->ranks);
	free(world);
}

const struct explore_case case_stack = {
	.name = "stack",
	.open = stack_open,
	.begin = stack_begin,
	.body = stack_body,
	.end = stack_end,
	.close = stack_close,
	.points_max = 20000,
};
