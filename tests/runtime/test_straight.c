/*
 * test_straight.c -- short plans carried out straight on (runtime/engine/straight.h) do what they
 * do step by step: schedules drawn at random, each run both ways, give the same values and the
 * same bytes sent. Ranks come early and late, so that some get through at once, some on waiting,
 * and some are left to the steps on the way; each of these is seen. And a start looks for what its
 * peers send at that moment, but waits for none.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

#define RANKS 3u
#define MESSAGES_MAX 9u /* Two steps each at a rank: 64 in all are short. */
#define BLOCK 5u        /* Elements. */

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return RB_FAIL(RUBATO_ERR_INTERNAL, "seed %llu, rank %u, line %d: not %s", \
				       (unsigned long long)d->seed, d->rank, __LINE__,             \
				       #condition);                                                \
	} while (0)

struct drawn { /* The same on all ranks, but for `rank`. */
	uint64_t seed;
	uint32_t rank, count;
	uint32_t from[MESSAGES_MAX], to[MESSAGES_MAX]; /* Message m carries block m. */
	struct rb_step steps[4 * MESSAGES_MAX];
	struct rb_span spans[8 * MESSAGES_MAX];
	struct rb_dep deps[8 * MESSAGES_MAX];
};

struct seen {
	uint32_t whole, part, none; /* Runs by how far they went straight on. */
};

/* On any of the steps before it: messages are drawn in one order for all, so nobody waits in a
 * circle. */
static void depend(struct rb_writer *w, struct rb_rng *rng)
{
	uint32_t last = w->schedule->step_count - 1;

	if (last > 0 && rb_rng_below(rng, 2) == 0)
		rb_write_dep(w, (uint32_t)rb_rng_below(rng, last), 0);
}

/* The receiver of a block adds its own to it; the others copy theirs. */
static void message_write(const struct drawn *d, struct rb_writer *w, uint32_t m,
			  struct rb_rng *rng)
{
	uint32_t received;

	if (d->rank == d->from[m]) {
		(void)rb_write_send(w, d->to[m], (uint16_t)m, rb_span_in(RB_SELF), m, 1);
		depend(w, rng);
	}
	if (d->rank != d->to[m]) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), m, 1);
		depend(w, rng);
		return;
	}
	received = rb_write_recv(w, d->from[m], (uint16_t)m, rb_span_out(RB_SELF), m, 1);
	depend(w, rng);
	(void)rb_write_reduce(w, rb_span_out(RB_SELF), m, 1);
	rb_write_operand(w, rb_span_in(RB_SELF));
	rb_write_operand(w, rb_span_out(RB_SELF));
	rb_write_dep(w, received, 0);
}

static struct rb_schedule schedule_draw(struct drawn *d)
{
	struct rb_schedule schedule = { .steps = d->steps, .spans = d->spans, .deps = d->deps };
	struct rb_writer w = { .schedule = &schedule,
			       .step_capacity = 4 * MESSAGES_MAX,
			       .span_capacity = 8 * MESSAGES_MAX,
			       .dep_capacity = 8 * MESSAGES_MAX };
	struct rb_rng all, own;

	all.state = d->seed;
	own.state = d->seed * RANKS + d->rank;
	d->count = 1 + (uint32_t)rb_rng_below(&all, MESSAGES_MAX);
	rb_writer_init(&w, &schedule, d->rank, RANKS, d->count);
	for (uint32_t m = 0; m < d->count; m++) {
		d->from[m] = (uint32_t)rb_rng_below(&all, RANKS);
		d->to[m] = (d->from[m] + 1 + (uint32_t)rb_rng_below(&all, RANKS - 1)) % RANKS;
		message_write(d, &w, m, &own);
	}
	RB_ASSERT(rb_writer_fits(&w));
	return schedule;
}

static bool has_messages(const struct drawn *d)
{
	for (uint32_t m = 0; m < d->count; m++)
		if (d->from[m] == d->rank || d->to[m] == d->rank)
			return true;
	return false;
}

static int64_t value(uint32_t rank, uint32_t i)
{
	return rank * 1000 + i;
}

static void run_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine;
	*(bool *)run->owner = true;
}

static rubato_status run_once(rubato_comm *comm, const struct drawn *d, struct rb_plan *plan,
			      bool second, uint64_t *sent, struct seen *seen)
{
	struct rb_engine *engine = &comm->engine;
	int64_t in[MESSAGES_MAX * BLOCK], out[MESSAGES_MAX * BLOCK] = { 0 };
	bool done = false;
	struct rb_run run = { .buffers = { { .base = in }, { .base = out } },
			      .type = RUBATO_INT64,
			      .op = RUBATO_SUM,
			      .signature = { .kind = RB_KIND_SPLIT, .count = d->seed },
			      .done = run_done,
			      .owner = &done };
	uint64_t before = rb_comm_endpoint(comm)->bytes_sent;
	rubato_status err;

	for (uint32_t i = 0; i < d->count * BLOCK; i++)
		in[i] = value(d->rank, i);
	RB_TRY(rb_run_init(&run, plan));
	rb_engine_enter(engine);
	run.tag = rb_tag(engine->epoch, RB_TAG_SPLIT, 1000000 + 2 * d->seed + second, 0);
	rb_run_start(engine, &run);
	err = rb_engine_wait_for(engine, &done, comm->timeout_ns);
	if (err != RUBATO_OK)
		rb_run_fail(engine, &run, err, "it takes too long");
	rb_engine_leave(engine);
	err = run.status;
	*(run.straight == 0                  ? &seen->none
	  : run.straight < plan->order_count ? &seen->part
					     : &seen->whole) += 1;
	rb_run_fini(&run);
	RB_TRY(err);
	*sent = rb_comm_endpoint(comm)->bytes_sent - before;
	for (uint32_t i = 0; i < d->count * BLOCK; i++) {
		uint32_t m = i / BLOCK;

		HOLDS(out[i] ==
		      value(d->rank, i) + (d->to[m] == d->rank ? value(d->from[m], i) : 0));
	}
	return RUBATO_OK;
}

/* Both ways; sometimes a rank comes late, or very late. */
static rubato_status both_ways(rubato_comm *comm, struct drawn *d, struct rb_rng *chance,
			       struct seen *seen)
{
	struct rb_schedule schedule = schedule_draw(d);
	const struct rb_layout layout = { .count = (uint64_t)d->count * BLOCK,
					  .chunk = BLOCK,
					  .block_count = d->count,
					  .align = 1 };
	struct seen unseen = { 0 };
	uint64_t sent[2] = { 0 };
	struct rb_plan *plan;
	rubato_status err;

	RB_TRY(rb_plan_from(&schedule, &layout, 8, &plan));
	HOLDS(plan->order_count == (has_messages(d) ? plan->live_count[0] : 0));
	if (rb_rng_below(chance, 8) == 0)
		rb_clock_sleep_until(rb_clock_ns() + rb_rng_below(chance, 2000000));
	err = run_once(comm, d, plan, false, &sent[0], seen);
	plan->order_count = 0;
	if (err == RUBATO_OK)
		err = run_once(comm, d, plan, true, &sent[1], &unseen);
	RB_TRY(err);
	HOLDS(unseen.part + unseen.whole == 0);
	HOLDS(sent[0] == sent[1]);
	rb_plan_free(plan);
	return RUBATO_OK;
}

static rubato_status straight_main(rubato_comm *comm, void *arg)
{
	struct seen *seen = arg, mine = { 0 };
	uint64_t seeds = test_length() == TEST_SHORT ? 300 : 3000;
	struct drawn *d = calloc(1, sizeof(*d));
	rubato_status err = d == NULL ? RUBATO_ERR_MEMORY : RUBATO_OK;
	struct rb_rng chance;

	chance.state = rubato_rank(comm);
	for (uint64_t seed = 1; seed <= seeds && err == RUBATO_OK; seed++) {
		d->seed = seed;
		d->rank = rubato_rank(comm);
		err = both_ways(comm, d, &chance, &mine);
	}
	free(d);
	seen[rubato_rank(comm)] = mine;
	return err;
}

START_TEST(straight_on_is_step_by_step)
{
	struct seen seen[RANKS] = { 0 }, all = { 0 };

	ck_assert_msg(local_run(RANKS, shm, straight_main, seen, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
	for (uint32_t r = 0; r < RANKS; r++) {
		all.whole += seen[r].whole;
		all.part += seen[r].part;
		all.none += seen[r].none;
	}
	printf("%u runs went straight on to the end, %u in part, %u not\n", all.whole, all.part,
	       all.none);
	ck_assert_uint_gt(all.whole, 0);
	ck_assert_uint_gt(all.part, 0);
}
END_TEST

/* ---- A start that looks ---- */

#define STARTS 100u

/* Rank 1 starts when rank 0 has begun to look for it, rank 2 when rank 0 has looked in vain. */
static struct {
	struct rb_transport_ops ops;
	const struct rb_transport_ops *real;
	bool starting, called; /* Rank 0 is in its start; rank 1 has been told to start. */
	uint32_t looks[RANKS]; /* In this start, by peer. */
	uint32_t parts;        /* Starts that found rank 1's message and not rank 2's. */
	sem_t go[RANKS], gone;
} looking;

static bool looks_here(struct rb_endpoint *ep, uint32_t peer)
{
	if (!looking.starting)
		return looking.real->here(ep, peer);
	looking.looks[peer]++;
	if (peer == 1 && !looking.called) {
		looking.called = true;
		(void)sem_post(&looking.go[1]);
		(void)sem_wait(&looking.gone);
	}
	return looking.real->here(ep, peer);
}

/* Where ranks share cores it does not look. */
static rubato_status start_looks(rubato_comm *comm, rubato_op *op, bool shared)
{
	struct rb_engine *engine = &comm->engine;
	uint64_t sent = rb_comm_endpoint(comm)->bytes_sent, yield_ns;

	memset(looking.looks, 0, sizeof(looking.looks));
	looking.called = false;
	rb_engine_enter(engine);
	yield_ns = engine->waiting.yield_ns;
	engine->waiting.yield_ns = shared;
	looking.starting = true;
	rb_engine_leave(engine);
	RB_TRY(rubato_start(op));
	rb_engine_enter(engine);
	engine->waiting.yield_ns = yield_ns;
	looking.starting = false;
	rb_engine_leave(engine);
	EXPECT(!shared || looking.looks[1] + looking.looks[2] == 0);
	looking.parts += looking.looks[1] == 1 && looking.looks[2] > 1;
	if (!looking.called) { /* As the engine was not quiet. */
		(void)sem_post(&looking.go[1]);
		(void)sem_wait(&looking.gone);
	}
	(void)sem_post(&looking.go[2]);
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(rb_comm_endpoint(comm)->bytes_sent - sent == (RANKS - 1) * sizeof(int64_t));
	return RUBATO_OK;
}

static rubato_status looking_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	struct rb_endpoint *ep = rb_comm_endpoint(comm);
	rubato_status err;
	int64_t in = 0, out = 0;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "flat"));
	RB_TRY(rubato_op_allreduce(comm, &in, &out, 1, RUBATO_INT64, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op)); /* Later ones are as this left the run. */
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	if (rank == 0) {
		looking.ops = *ep->ops;
		looking.real = ep->ops;
		looking.ops.here = looks_here;
		local_transport_replace(comm, &looking.ops);
	}
	for (uint32_t i = 0; i < STARTS; i++) {
		in = value(rank, i);
		if (rank == 0) {
			err = start_looks(comm, op, i % 4 == 3);
			for (uint32_t k = 0; k < 2 * STARTS && err != RUBATO_OK; k++)
				(void)sem_post(&looking.go[1 + k % 2]);
			RB_TRY(err);
		} else {
			(void)sem_wait(&looking.go[rank]);
			RB_TRY(rubato_start(op));
			if (rank == 1)
				(void)sem_post(&looking.gone);
			RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		}
		EXPECT(out == value(0, i) + value(1, i) + value(2, i));
	}
	if (rank == 0)
		local_transport_replace(comm, looking.real);
	rubato_op_free(op);
	return RUBATO_OK;
}

START_TEST(a_start_looks_for_who_starts_now_and_waits_for_nobody)
{
	for (uint32_t r = 0; r < RANKS; r++)
		ck_assert_int_eq(sem_init(&looking.go[r], 0, 0), 0);
	ck_assert_int_eq(sem_init(&looking.gone, 0, 0), 0);
	ck_assert_msg(local_run(RANKS, shm, looking_main, NULL, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
	printf("%u starts of %u went on by what came while they looked\n", looking.parts, STARTS);
	ck_assert_uint_gt(looking.parts, 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("straight");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, straight_on_is_step_by_step);
	tcase_add_test(t, a_start_looks_for_who_starts_now_and_waits_for_nobody);
	return check_main("straight", t);
}
