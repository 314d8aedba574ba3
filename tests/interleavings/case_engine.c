/*
 * case_engine.c -- the handoff between threads that wait and the progress thread: the engine on an
 * endpoint whose messages come when the explorer lets them.
 *
 * No time-out may end a sleep here: so a wake-up that only the bound of a sleep or a deadline would
 * make good counts as lost.
 */
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "runtime/engine/engine.h"
#include "tests/interleavings/cases.h"

#define OPS_MAX 4

/*
 * Completes one request, any one, for each message that has come, or lets one that was complete
 * leave; local ones by a poll alone, as a copy or what waits for room.
 */
struct fake {
	struct rb_endpoint base;
	struct rb_request *first, *local;
	_Atomic uint32_t arrived, sleeping;
	_Atomic uint32_t left; /* Of base.leaving. */
	uint32_t pending, taken;
	int doorbell;
};

struct op {
	bool done;             /* The engine's lock's, as an operation's. */
	_Atomic uint32_t told; /* The same, for a thread that does not drive. */
};

struct world {
	struct rb_engine engine;
	struct fake fake;
	struct op ops[OPS_MAX];
	uint32_t messages;
};

/* ---- The endpoint ---- */

static struct rb_request *fake_poll(struct rb_endpoint *base)
{
	struct fake *f = (struct fake *)base;
	uint32_t arrived = atomic_load(&f->arrived);
	struct rb_request *list = f->local;

	f->local = NULL;
	while (f->taken != arrived && f->pending + base->leaving > 0) {
		struct rb_request **at = &f->first, *r;

		if (base->leaving > 0 && (f->pending == 0 || explore_choose(2) == 0)) {
			base->leaving--;
			f->taken++;
			(void)atomic_fetch_add(&f->left, 1);
			rb_futex_wake(&f->left, 1);
			continue;
		}
		for (uint32_t i = explore_choose(f->pending); i > 0; i--)
			at = &(*at)->next;
		r = *at;
		*at = r->next;
		r->next = list;
		r->state = RB_REQUEST_DONE;
		list = r;
		f->pending--;
		f->taken++;
	}
	return list;
}

static bool fake_failure(struct rb_endpoint *base, struct rb_failure *out)
{
	(void)base;
	(void)out;
	return false;
}

static int fake_descriptor(struct rb_endpoint *base)
{
	return ((struct fake *)base)->doorbell;
}

static bool fake_arm(struct rb_endpoint *base)
{
	struct fake *f = (struct fake *)base;

	atomic_store(&f->sleeping, 1);
	return f->local == NULL &&
	       (f->pending + base->leaving == 0 || atomic_load(&f->arrived) == f->taken);
}

static void fake_disarm(struct rb_endpoint *base)
{
	struct fake *f = (struct fake *)base;
	uint64_t rings;

	atomic_store(&f->sleeping, 0);
	(void)!read(f->doorbell, &rings, sizeof(rings));
}

static void fake_wake(struct rb_endpoint *base)
{
	uint64_t one = 1;

	(void)!write(((struct fake *)base)->doorbell, &one, sizeof(one));
}

static uint64_t fake_now(struct rb_endpoint *base)
{
	(void)base;
	return rb_clock_ns();
}

static const struct rb_transport_ops fake_ops = {
	.name = "explored",
	.poll = fake_poll,
	.failure = fake_failure,
	.descriptor = fake_descriptor,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.wake = fake_wake,
	.now_ns = fake_now,
};

static void message_comes(struct fake *f)
{
	(void)atomic_fetch_add(&f->arrived, 1);
	if (atomic_load(&f->sleeping) != 0)
		fake_wake(&f->base);
}

/* ---- Operations ---- */

static void op_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct op *op = slot->owner;

	op->done = true;
	atomic_store(&op->told, 1);
	rb_futex_wake(&op->told, 1);
	engine->in_flight--;
	engine->completed = true;
	rb_slot_give(engine, slot);
}

static struct rb_request *op_prepare(struct world *w, struct op *op)
{
	struct rb_slot *slot = rb_slot_take(&w->engine);

	explore_expect(slot != NULL, "memory");
	slot->owner = op;
	slot->done = op_done;
	slot->request.owner = slot;
	slot->request.state = RB_REQUEST_PENDING;
	w->engine.in_flight++;
	return &slot->request;
}

static void op_post(struct world *w, struct op *op)
{
	struct rb_request *r = op_prepare(w, op);

	r->next = w->fake.first;
	w->fake.first = r;
	w->fake.pending++;
}

/* What nothing need come for. */
static void op_post_local(struct world *w, struct op *op)
{
	struct rb_request *r = op_prepare(w, op);

	r->next = w->fake.local;
	w->fake.local = r;
}

static void op_wait(struct world *w, struct op *op, bool for_time)
{
	uint64_t span_ns = UINT64_C(60000000000);
	rubato_status err = for_time ? rb_engine_wait_for(&w->engine, &op->done, span_ns)
				     : rb_engine_wait(&w->engine, &op->done,
						      rb_engine_now(&w->engine) + span_ns);

	explore_expect(err == RUBATO_OK && op->done, "an operation is not complete: %d", (int)err);
}

/* Long enough for whoever drives to poll, or to fall asleep. */
static void dawdle(void)
{
	for (uint32_t i = explore_choose(12); i > 0; i--)
		explore_pause();
}

/* Posts and waits in one go, as a blocking call does. */
static void call(struct world *w, struct op *op)
{
	rb_engine_enter(&w->engine);
	op_post(w, op);
	op_wait(w, op, true);
	rb_engine_leave(&w->engine);
}

/* Posts, leaves it to the progress thread, comes back for it. */
static void start_and_wait(struct world *w, struct op *op)
{
	rb_engine_enter(&w->engine);
	op_post(w, op);
	rb_engine_leave(&w->engine);
	dawdle();
	rb_engine_enter(&w->engine);
	op_wait(w, op, false);
	rb_engine_leave(&w->engine);
}

/* As rubato_test in a loop. */
static void start_and_test(struct world *w, struct op *op)
{
	bool done = false;

	rb_engine_enter(&w->engine);
	op_post(w, op);
	rb_engine_leave(&w->engine);
	while (!done) {
		rb_engine_enter(&w->engine);
		if (!op->done && w->engine.driving != RB_DRIVING_WAITER)
			(void)rb_engine_progress(&w->engine);
		(void)rb_engine_hand_over(&w->engine);
		done = op->done;
		rb_engine_leave(&w->engine);
		explore_pause();
	}
}

/* ---- The world ---- */

static void *world_open(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (w == NULL || (w->fake.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		abort();
	return w;
}

static void world_begin(void *world)
{
	struct world *w = world;
	int doorbell = w->fake.doorbell;

	memset(w, 0, sizeof(*w));
	w->fake.doorbell = doorbell;
	w->fake.base.ops = &fake_ops;
	fake_disarm(&w->fake.base);
	if (rb_engine_init(&w->engine, 0, 2) != RUBATO_OK)
		abort();
	w->engine.endpoints[0] = &w->fake.base;
	w->engine.endpoint_count = 1;
	w->engine.waiting = (struct rb_waiting) { .spin_ns = 150, .yield_ns = 0 };
}

static void world_end(void *world)
{
	rb_engine_fini(&((struct world *)world)->engine);
}

static void world_close(void *world)
{
	(void)close(((struct world *)world)->fake.doorbell);
	free(world);
}

static void *peer_main(void *arg)
{
	struct world *w = arg;

	for (uint32_t i = 0; i < w->messages; i++) {
		dawdle();
		message_comes(&w->fake);
	}
	return NULL;
}

/* With the progress thread and `messages` from a peer, `other` beside `first`. */
static void world_run(struct world *w, uint32_t messages, void *(*other)(void *),
		      void (*first)(struct world *w))
{
	struct rb_thread peer, beside;

	w->messages = messages;
	explore_expect(rb_engine_background(&w->engine, true) == RUBATO_OK, "thread");
	explore_expect(rb_thread_start(&peer, peer_main, w) == RUBATO_OK, "thread");
	if (other != NULL)
		explore_expect(rb_thread_start(&beside, other, w) == RUBATO_OK, "thread");
	first(w);
	if (other != NULL)
		rb_thread_join(&beside);
	rb_thread_join(&peer);
	rb_engine_stop(&w->engine);
	explore_expect(w->engine.in_flight == 0, "%u operations are in flight",
		       w->engine.in_flight);
}

/* ---- One thread, which leaves its operation to the progress thread ---- */

static void one_first(struct world *w)
{
	start_and_wait(w, &w->ops[0]);
}

static void one_body(void *world)
{
	world_run(world, 1, NULL, one_first);
}

const struct explore_case case_engine_one = {
	.name = "engine-one",
	.open = world_open,
	.begin = world_begin,
	.body = one_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- Two threads ---- */

static void any_call(struct world *w, struct op *op)
{
	switch (explore_choose(3)) {
	case 0:
		call(w, op);
		break;
	case 1:
		start_and_wait(w, op);
		break;
	default:
		start_and_test(w, op);
	}
}

static void *two_other(void *arg)
{
	struct world *w = arg;

	any_call(w, &w->ops[2]);
	any_call(w, &w->ops[3]);
	return NULL;
}

static void two_first(struct world *w)
{
	any_call(w, &w->ops[0]);
	any_call(w, &w->ops[1]);
}

static void two_body(void *world)
{
	world_run(world, 4, two_other, two_first);
}

const struct explore_case case_engine_two = {
	.name = "engine-two",
	.open = world_open,
	.begin = world_begin,
	.body = two_body,
	.end = world_end,
	.close = world_close,
	.points_max = 20000,
};

/* ---- Two threads, of which the one cannot be done before the other knows that it is ---- */

static void *chain_other(void *arg)
{
	struct world *w = arg;

	call(w, &w->ops[1]);
	message_comes(&w->fake);
	return NULL;
}

static void chain_first(struct world *w)
{
	start_and_wait(w, &w->ops[0]);
	message_comes(&w->fake);
}

static void chain_body(void *world)
{
	world_run(world, 1, chain_other, chain_first);
}

const struct explore_case case_engine_chain = {
	.name = "engine-chain",
	.open = world_open,
	.begin = world_begin,
	.body = chain_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- One sleeps until the other, whose own work only needs polls, is done and sends ---- */

static void *local_other(void *arg)
{
	struct world *w = arg;
	struct op *op = &w->ops[1];

	dawdle();
	rb_engine_enter(&w->engine);
	op_post_local(w, op);
	if (explore_choose(2) == 0) {
		op_wait(w, op, true);
		rb_engine_leave(&w->engine);
	} else {
		rb_engine_leave(&w->engine);
		while (atomic_load(&op->told) == 0)
			(void)rb_futex_wait(&op->told, 0, UINT64_MAX);
	}
	message_comes(&w->fake);
	return NULL;
}

static void local_first(struct world *w)
{
	if (explore_choose(2) == 0) {
		call(w, &w->ops[0]);
	} else {
		start_and_wait(w, &w->ops[0]);
	}
}

static void local_body(void *world)
{
	world_run(world, 0, local_other, local_first);
}

const struct explore_case case_engine_local = {
	.name = "engine-local",
	.open = world_open,
	.begin = world_begin,
	.body = local_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- One waits for an operation that the other cancels ---- */

static void *cancel_other(void *arg)
{
	struct world *w = arg;
	struct rb_request *r;

	dawdle();
	rb_engine_enter(&w->engine);
	if ((r = w->fake.first) != NULL) {
		w->fake.first = NULL;
		w->fake.pending = 0;
		op_done(&w->engine, r->owner);
	} else {
		w->messages = 1; /* Too early: it goes on as if nothing had been. */
	}
	rb_engine_leave(&w->engine);
	if (w->messages == 1)
		message_comes(&w->fake);
	return NULL;
}

static void cancel_first(struct world *w)
{
	call(w, &w->ops[0]);
}

static void cancel_body(void *world)
{
	world_run(world, 0, cancel_other, cancel_first);
}

const struct explore_case case_engine_cancel = {
	.name = "engine-cancel",
	.open = world_open,
	.begin = world_begin,
	.body = cancel_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- Operations that only the progress thread can complete, while another thread comes and
 * goes */

static void *left_other(void *arg)
{
	struct world *w = arg;

	call(w, &w->ops[1]);
	dawdle();
	call(w, &w->ops[2]);
	return NULL;
}

static void left_first(struct world *w)
{
	rb_engine_enter(&w->engine);
	op_post(w, &w->ops[0]);
	op_post(w, &w->ops[3]);
	rb_engine_leave(&w->engine);
	while (atomic_load(&w->ops[0].told) == 0)
		(void)rb_futex_wait(&w->ops[0].told, 0, UINT64_MAX);
	while (atomic_load(&w->ops[3].told) == 0)
		(void)rb_futex_wait(&w->ops[3].told, 0, UINT64_MAX);
}

static void left_body(void *world)
{
	world_run(world, 4, left_other, left_first);
}

const struct explore_case case_engine_left = {
	.name = "engine-left",
	.open = world_open,
	.begin = world_begin,
	.body = left_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- A thread computes though what it has sent has yet to leave; another comes and goes ---- */

static void *leaving_other(void *arg)
{
	struct world *w = arg;

	dawdle();
	any_call(w, &w->ops[0]);
	return NULL;
}

static void leaving_first(struct world *w)
{
	for (uint32_t i = 0; i < 2; i++) {
		rb_engine_enter(&w->engine);
		w->fake.base.leaving++;
		w->engine.posted = true; /* As a post does. */
		rb_engine_leave(&w->engine);
		while (atomic_load(&w->fake.left) == i)
			(void)rb_futex_wait(&w->fake.left, i, UINT64_MAX);
	}
}

static void leaving_body(void *world)
{
	world_run(world, 3, leaving_other, leaving_first);
}

const struct explore_case case_engine_leaving = {
	.name = "engine-leaving",
	.open = world_open,
	.begin = world_begin,
	.body = leaving_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};

/* ---- The same when the progress thread is not told of each, but looks by itself ---- */

static void reluctant_body(void *world)
{
	((struct world *)world)->engine.background.reluctant = true;
	world_run(world, 4, left_other, left_first);
}

const struct explore_case case_engine_reluctant = {
	.name = "engine-reluctant",
	.open = world_open,
	.begin = world_begin,
	.body = reluctant_body,
	.end = world_end,
	.close = world_close,
	.time_outs = true, /* It looks when its tick is over. */
	.points_max = 20000,
};

/* ---- Stopping while the progress thread sleeps, on an operation that nobody ends ---- */

static void stop_body(void *world)
{
	struct world *w = world;

	explore_expect(rb_engine_background(&w->engine, true) == RUBATO_OK, "thread");
	if (explore_choose(2) == 1) {
		rb_engine_enter(&w->engine);
		op_post(w, &w->ops[0]);
		rb_engine_leave(&w->engine);
	}
	dawdle();
	rb_engine_stop(&w->engine);
	explore_expect(w->engine.driving == RB_DRIVING_NOBODY && !w->engine.asleep,
		       "a thread that is gone drives");
}

const struct explore_case case_engine_stop = {
	.name = "engine-stop",
	.open = world_open,
	.begin = world_begin,
	.body = stop_body,
	.end = world_end,
	.close = world_close,
	.points_max = 5000,
};
