/*
 * test_again.c -- small collectives that are called again and again (runtime/again.h), or started
 * so as persistent ones: whichever way each goes, results are right, and what differs between ranks
 * is found out. rb_again is watched, so that each of its ends is seen: done at once, begun and gone
 * on with by an operation as a rank is late, and not taken; of starts, what they left behind.
 * Shared memory is the transport that does things at once.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "runtime/again.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

#define COUNT_MAX 5u

static const struct rb_transport_ops *const transports[] = { &rb_transport_shm, NULL };
static _Atomic uint32_t seen[3]; /* By enum rb_again. */

enum rb_again __real_rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at);
enum rb_again __wrap_rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at);

enum rb_again __wrap_rb_again(struct rubato_comm *comm, const struct rb_call *call, uint32_t *at)
{
	enum rb_again got = __real_rb_again(comm, call, at);

	atomic_fetch_add(&seen[got], 1);
	return got;
}

static void late(uint32_t us)
{
	struct timespec span = { .tv_nsec = (long)us * 1000 };

	if (us > 0)
		(void)nanosleep(&span, NULL);
}

/* ---- Results ---- */

static rubato_status call_and_look(rubato_comm *comm, struct rb_rng *rng)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t kind = (uint32_t)rb_rng_below(rng, 6), root = (uint32_t)rb_rng_below(rng, n);
	uint64_t count = rb_rng_below(rng, COUNT_MAX + 1);
	uint32_t who = (uint32_t)rb_rng_below(rng, 4 * n); /* No rank, most times. */
	uint32_t first = (uint32_t)rb_rng_below(rng, 1000);
	int64_t in[COUNT_MAX], out[COUNT_MAX * 8], sum = (int64_t)n * first + n * (n - 1) / 2;

	late(rank == who ? 300 : 0);
	memset(out, -1, sizeof(out));
	for (uint32_t i = 0; i < COUNT_MAX; i++)
		in[i] = first + rank + 10 * (int64_t)i;
	if (kind == 0)
		return rubato_barrier(comm);
	if (kind == 1)
		RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_INT64, RUBATO_SUM));
	else if (kind == 2)
		RB_TRY(rubato_allreduce(comm, in, in, count, RUBATO_INT64, RUBATO_MAX));
	else if (kind == 3)
		RB_TRY(rubato_broadcast(comm, in, count, RUBATO_INT64, root));
	else if (kind == 4)
		RB_TRY(rubato_allgather(comm, in, out, count, RUBATO_INT64));
	else
		RB_TRY(rubato_reduce(comm, in, out, count, RUBATO_INT64, RUBATO_SUM, root));
	for (uint64_t i = 0; i < count; i++) {
		int64_t more = 10 * (int64_t)i;

		EXPECT(kind != 1 || out[i] == sum + n * more);
		EXPECT(kind != 2 || in[i] == first + n - 1 + more);
		EXPECT(kind != 3 || in[i] == first + root + more);
		EXPECT(kind != 5 || rank != root || out[i] == sum + n * more);
		for (uint32_t r = 0; r < n; r++)
			EXPECT(kind != 4 || out[r * count + i] == first + r + more);
	}
	return RUBATO_OK;
}

static rubato_status results_main(rubato_comm *comm, void *arg)
{
	struct rb_rng rng = { .state = *(const uint64_t *)arg };
	uint32_t calls = test_length() == TEST_SHORT ? 500 : 4000;

	for (uint32_t i = 0; i < calls; i++)
		RB_TRY(call_and_look(comm, &rng));
	return RUBATO_OK;
}

static void results(uint32_t rank_count, uint64_t seed)
{
	rubato_status err = local_run(rank_count, transports, results_main, &seed, NULL);

	ck_assert_msg(err == RUBATO_OK, "%u ranks, seed %llu: %s", rank_count,
		      (unsigned long long)seed, rubato_error_text());
}

START_TEST(results_are_right_whichever_way)
{
	for (uint32_t n = 1; n <= 5; n++)
		results(n, n);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_msg(atomic_load(&seen[i]) > 50, "%u calls were of kind %u",
			      atomic_load(&seen[i]), i);
}
END_TEST

/* Then a call ends when its messages have left, as others do. */
START_TEST(without_a_progress_thread_it_is_not_taken)
{
	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0); /* Of this test's own process. */
	results(2, 1);
	ck_assert_uint_gt(atomic_load(&seen[RB_AGAIN_NOT]), 0);
	ck_assert_uint_eq(atomic_load(&seen[RB_AGAIN_DONE]) + atomic_load(&seen[RB_AGAIN_BEGUN]),
			  0);
}
END_TEST

/* ---- Persistent ---- */

#define OPS 4u
enum start { START_DONE, START_DEFERRED, START_RUNNING, START_KINDS };
static _Atomic uint32_t starts[START_KINDS];

struct started {
	rubato_op *op;
	int64_t in[COUNT_MAX], out[COUNT_MAX * 8];
	bool in_flight;
};

static rubato_status ops_make(rubato_comm *comm, struct started ops[OPS])
{
	RB_TRY(rubato_op_allreduce(comm, ops[0].in, ops[0].out, COUNT_MAX, RUBATO_INT64, RUBATO_SUM,
				   &ops[0].op));
	RB_TRY(rubato_op_allgather(comm, ops[1].in, ops[1].out, COUNT_MAX, RUBATO_INT64,
				   &ops[1].op));
	RB_TRY(rubato_op_barrier(comm, &ops[2].op));
	return rubato_op_broadcast(comm, ops[3].in, COUNT_MAX, RUBATO_INT64, rubato_size(comm) - 1,
				   &ops[3].op);
}

static rubato_status start_one(rubato_comm *comm, struct started *s, int64_t first)
{
	for (uint32_t i = 0; i < COUNT_MAX; i++)
		s->in[i] = first + rubato_rank(comm) + 10 * (int64_t)i;
	memset(s->out, -1, sizeof(s->out));
	RB_TRY(rubato_start(s->op));
	s->in_flight = true;
	rb_engine_enter(&comm->engine);
	atomic_fetch_add(&starts[s->op->done           ? START_DONE
				 : s->op->run.deferred ? START_DEFERRED
						       : START_RUNNING],
			 1);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

static rubato_status end_one(rubato_comm *comm, struct started ops[OPS], uint32_t which,
			     int64_t first, bool by_test)
{
	struct started *s = &ops[which];
	int64_t n = rubato_size(comm);
	bool done = false;

	while (by_test && !done)
		RB_TRY(rubato_test(s->op, &done));
	RB_TRY(rubato_wait(s->op, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(rubato_wait(s->op, RUBATO_NO_WAIT)); /* It stays over. */
	s->in_flight = false;
	for (uint32_t i = 0; i < COUNT_MAX; i++) {
		int64_t more = 10 * (int64_t)i;

		EXPECT(which != 0 || s->out[i] == n * (first + more) + n * (n - 1) / 2);
		EXPECT(which != 3 || s->in[i] == first + n - 1 + more);
		for (uint32_t r = 0; which == 1 && r < n; r++)
			EXPECT(s->out[r * COUNT_MAX + i] == first + r + more);
	}
	return RUBATO_OK;
}

/* One at a time, several at once, each rank in its own order, and with a blocking call between
 * start and wait. */
static rubato_status starts_main(rubato_comm *comm, void *arg)
{
	struct rb_rng rng = { .state = *(const uint64_t *)arg };
	struct started ops[OPS] = { 0 };
	uint32_t rounds = test_length() == TEST_SHORT ? 300 : 1000;

	RB_TRY(ops_make(comm, ops));
	for (uint32_t round = 0; round < rounds; round++) {
		uint32_t n = rubato_size(comm), who = (uint32_t)rb_rng_below(&rng, 6 * n);
		uint32_t some = 1 + (uint32_t)rb_rng_below(&rng, (1 << OPS) - 1);
		bool one = rb_rng_below(&rng, 2) == 0, call = rb_rng_below(&rng, 4) == 0;
		bool by_test = rb_rng_below(&rng, 4) == 0;

		late(rubato_rank(comm) == who ? 300 : 0);
		for (uint32_t k = 0; k < OPS; k++) {
			uint32_t i = one ? k : (k + round * (rubato_rank(comm) + 1)) % OPS;

			if ((some >> i & 1) == 0)
				continue;
			RB_TRY(start_one(comm, &ops[i], round));
			if (one)
				RB_TRY(end_one(comm, ops, i, round, by_test));
		}
		if (call)
			RB_TRY(call_and_look(comm, &rng));
		for (uint32_t i = OPS; i-- > 0;)
			if (ops[i].in_flight)
				RB_TRY(end_one(comm, ops, i, round, by_test));
	}
	for (uint32_t i = 0; i < OPS; i++)
		rubato_op_free(ops[i].op);
	return RUBATO_OK;
}

START_TEST(starts_are_right_whichever_way)
{
	bool background = _i == 0;

	if (!background)
		ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	for (uint64_t n = 1; n <= 5; n++) {
		rubato_status err = local_run((uint32_t)n, transports, starts_main, &n, NULL);

		ck_assert_msg(err == RUBATO_OK, "%u ranks: %s", (uint32_t)n, rubato_error_text());
	}
	for (uint32_t i = 0; i < START_KINDS; i++)
		ck_assert_msg(atomic_load(&starts[i]) > 50, "%u starts were of kind %u",
			      atomic_load(&starts[i]), i);
}
END_TEST

/* ---- Of several threads ---- */

struct handed { /* Started by one thread of a rank, waited for by another. */
	rubato_op *op;
	double in, out;
	uint32_t rank, rounds;
	_Atomic uint32_t started, ended;
	_Atomic bool over;
	rubato_status status;
};

static rubato_status hand_over(struct handed *h)
{
	for (uint32_t i = 0; i < h->rounds; i++) {
		while (atomic_load(&h->ended) < i)
			if (atomic_load(&h->over))
				return RUBATO_OK;
			else
				rb_yield();
		h->in = i + h->rank;
		h->out = -1;
		RB_TRY(rubato_start(h->op));
		atomic_store(&h->started, i + 1);
	}
	return RUBATO_OK;
}

static void *starter_main(void *arg)
{
	struct handed *h = arg;

	h->status = hand_over(h);
	atomic_store(&h->over, true);
	return NULL;
}

static rubato_status take_over(rubato_comm *comm, struct handed *h, struct rb_rng *own)
{
	uint32_t n = rubato_size(comm);

	for (uint32_t i = 0; i < h->rounds; i++) {
		bool done = false, by_test = rb_rng_below(own, 3) == 0;
		double in = i, out = 0;

		while (atomic_load(&h->started) <= i && !atomic_load(&h->over))
			rb_yield();
		EXPECT(atomic_load(&h->started) > i);
		late(rb_rng_below(own, 8) == 0 ? 100 : 0);
		if (i % 3 == 0) {
			RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_MIN));
			EXPECT(out == i);
		}
		while (by_test && !done)
			RB_TRY(rubato_test(h->op, &done));
		RB_TRY(rubato_wait(h->op, RUBATO_TIMEOUT_DEFAULT));
		EXPECT(h->out == (double)n * i + n * (n - 1) / 2);
		atomic_store(&h->ended, i + 1);
	}
	return RUBATO_OK;
}

static rubato_status handed_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	struct handed h = { .rank = rank, .rounds = test_length() == TEST_SHORT ? 300 : 1000 };
	struct rb_rng own = { .state = rank };
	struct rb_thread starter;
	rubato_status err;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, &h.in, &h.out, 1, RUBATO_FLOAT64, RUBATO_SUM, &h.op));
	RB_TRY(rb_thread_start(&starter, starter_main, &h));
	err = take_over(comm, &h, &own);
	atomic_store(&h.over, true);
	rb_thread_join(&starter);
	RB_TRY(err);
	RB_TRY(h.status);
	rubato_op_free(h.op);
	return RUBATO_OK;
}

START_TEST(one_thread_starts_and_another_waits)
{
	if (_i == 1)
		ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	for (uint32_t n = 1; n <= 4; n++) {
		rubato_status err = local_run(n, transports, handed_main, NULL, NULL);

		ck_assert_msg(err == RUBATO_OK, "%u ranks: %s", n, rubato_error_text());
	}
}
END_TEST

struct beside {
	rubato_comm *comm;
	rubato_status status;
};

static void *beside_main(void *arg)
{
	struct beside *beside = arg;
	double in = 1, out = 0;

	beside->status = rubato_allreduce(beside->comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM);
	return NULL;
}

/* A call that waits for another thread's does so no longer than its deadline. It has no number
 * then, so the next one would meet what the others call in its place. */
static rubato_status queued_main(rubato_comm *comm, void *arg)
{
	pthread_barrier_t *barrier = arg;
	struct beside beside = { .comm = comm };
	double in = 1, out = 0;
	struct rb_thread thread;
	bool busy = false;

	if (rubato_rank(comm) == 1) {
		(void)pthread_barrier_wait(barrier);
		/* What is with the first one may be here. */
		(void)!rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM);
		EXPECT(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
		       RUBATO_ERR_PEER);
		(void)rubato_finalize(comm);
		return RUBATO_OK;
	}
	RB_TRY(rb_thread_start(&thread, beside_main, &beside));
	while (!busy) {
		rb_engine_enter(&comm->engine);
		busy = comm->oneshots.busy;
		rb_engine_leave(&comm->engine);
		rb_yield();
	}
	RB_TRY(rubato_set_timeout(comm, 1000000));
	EXPECT(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
	       RUBATO_ERR_TIMEOUT);
	EXPECT(strstr(rubato_error_text(), "another thread's collective") != NULL);
	RB_TRY(rubato_set_timeout(comm, RUBATO_TIMEOUT_DEFAULT));
	(void)pthread_barrier_wait(barrier);
	EXPECT(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
	       RUBATO_ERR_TIMEOUT);
	rb_thread_join(&thread);
	EXPECT(beside.status == RUBATO_ERR_TIMEOUT);
	(void)rubato_finalize(comm);
	return RUBATO_OK;
}

START_TEST(who_waits_for_another_thread_in_vain_fails)
{
	pthread_barrier_t barrier;
	rubato_status err;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
	err = local_run_raw(2, transports, queued_main, &barrier, NULL);
	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	(void)pthread_barrier_destroy(&barrier);
}
END_TEST

/* Rank 1 does not start it: whom the wait is for is named; and the operation can be waited for
 * again. */
static rubato_status late_start_main(rubato_comm *comm, void *arg)
{
	double in = 1, out = 0;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < 100; i++) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	}
	if (rubato_rank(comm) == 1) {
		late(300000);
		RB_TRY(rubato_start(op));
	} else {
		RB_TRY(rubato_start(op));
		EXPECT(rubato_start(op) == RUBATO_ERR_ARGUMENT); /* In flight already. */
		EXPECT(rubato_wait(op, 20000000) == RUBATO_ERR_TIMEOUT);
		EXPECT(strstr(rubato_error_text(), "rank 1") != NULL);
	}
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(out == 2);
	rubato_op_free(op);
	return RUBATO_OK;
}

START_TEST(who_does_not_start_is_named)
{
	rubato_status err = local_run(2, transports, late_start_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
}
END_TEST

/* Nothing of it is posted yet: a dump says all the same whom it waits for. */
static rubato_status dump_main(rubato_comm *comm, void *arg)
{
	double in = 1, out = 0;
	_Atomic bool *dumped = arg;
	char text[2000] = "";
	bool deferred;
	ssize_t got;
	int ends[2];
	rubato_op *op;

	RB_TRY(rubato_op_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	}
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_start(op));
		deferred = op->run.deferred;
		EXPECT(pipe(ends) == 0);
		rubato_dump(comm, ends[1]);
		got = read(ends[0], text, sizeof(text) - 1);
		(void)close(ends[0]);
		(void)close(ends[1]);
		atomic_store(dumped, true);
		EXPECT(deferred && got > 0);
		EXPECT(strstr(text, "wait rank 1\n") != NULL);
	}
	/* No message of rank 1 comes before, which would put an end to that. */
	while (rubato_rank(comm) == 1 && !atomic_load(dumped))
		rb_yield();
	if (rubato_rank(comm) == 1)
		RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	return RUBATO_OK;
}

START_TEST(what_is_put_off_is_in_a_dump)
{
	_Atomic bool dumped = false;
	rubato_status err;

	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	err = local_run(2, transports, dump_main, &dumped, NULL);
	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
}
END_TEST

/* ---- What differs ---- */

static rubato_status warm_up(rubato_comm *comm)
{
	double in = 1, out = 0;

	for (uint32_t i = 0; i < 100; i++) {
		RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM));
		RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_MAX));
	}
	return RUBATO_OK;
}

/* Both have made both calls before. */
static rubato_status differ_main(rubato_comm *comm, void *arg)
{
	uint32_t late_rank = *(const uint32_t *)arg;
	double in = 1, out = 0;

	RB_TRY(warm_up(comm));
	late(rubato_rank(comm) == late_rank ? 2000 : 0);
	EXPECT(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64,
				rubato_rank(comm) == 0 ? RUBATO_SUM : RUBATO_MAX) ==
	       RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "max") != NULL);
	EXPECT(strstr(rubato_error_text(), "sum") != NULL);
	return RUBATO_OK;
}

START_TEST(calls_that_differ_are_found_out)
{
	for (uint32_t late_rank = 0; late_rank < 3; late_rank++) { /* 2: none is. */
		rubato_status err = local_run_raw(2, transports, differ_main, &late_rank, NULL);

		ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	}
}
END_TEST

/* An argument that is wrong on one rank: it has sent nothing, and may call again. */
static rubato_status wrong_main(rubato_comm *comm, void *arg)
{
	double in = 1, out = 0;

	(void)arg;
	RB_TRY(warm_up(comm));
	if (rubato_rank(comm) == 0) {
		EXPECT(rubato_allreduce(comm, NULL, &out, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
		       RUBATO_ERR_ARGUMENT);
		EXPECT(rubato_allreduce(comm, &in, NULL, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
		       RUBATO_ERR_ARGUMENT);
	}
	RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM));
	EXPECT(out == 2);
	return RUBATO_OK;
}

START_TEST(a_wrong_argument_sends_nothing)
{
	rubato_status err = local_run(2, transports, wrong_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
}
END_TEST

/* Rank 1 does not come. */
static rubato_status alone_main(rubato_comm *comm, void *arg)
{
	double in = 1, out = 0;

	(void)arg;
	RB_TRY(warm_up(comm));
	comm->timeout_ns = 300000000;
	if (rubato_rank(comm) == 1) {
		late(900000);
		return RUBATO_OK;
	}
	EXPECT(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT64, RUBATO_SUM) ==
	       RUBATO_ERR_TIMEOUT);
	EXPECT(strstr(rubato_error_text(), "call 200") != NULL);
	EXPECT(strstr(rubato_error_text(), "rank 1") != NULL);
	return RUBATO_OK;
}

START_TEST(who_does_not_come_is_named)
{
	rubato_status err = local_run_raw(2, transports, alone_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_gt(atomic_load(&seen[RB_AGAIN_BEGUN]), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("again");

	tcase_add_test(tc, results_are_right_whichever_way);
	tcase_add_test(tc, without_a_progress_thread_it_is_not_taken);
	tcase_add_loop_test(tc, starts_are_right_whichever_way, 0, 2);
	tcase_add_loop_test(tc, one_thread_starts_and_another_waits, 0, 2);
	tcase_add_test(tc, who_waits_for_another_thread_in_vain_fails);
	tcase_add_test(tc, who_does_not_start_is_named);
	tcase_add_test(tc, what_is_put_off_is_in_a_dump);
	tcase_add_test(tc, calls_that_differ_are_found_out);
	tcase_add_test(tc, a_wrong_argument_sends_nothing);
	tcase_add_test(tc, who_does_not_come_is_named);
	return check_main("again", tc);
}
