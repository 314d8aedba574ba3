/*
 * test_leaving.c -- what a call has completed reaches the others without further calls: a rank that
 * computes holds nobody up. Name of the transport as argument: shm, ucx, tcp, sim.
 *
 * Rank 0 sends and then computes until the others have told it, past the library, that they have
 * everything. No time is judged: who holds something back is found by the deadline.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sync.h"
#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "transport/transport.h"

#define RANKS 3
#define SMALL_COUNT 100u
#define SMALL_BYTES 8000u
#define LARGE_COUNT 8u
#define LARGE_BYTES 300000u
#define COLLECTIVE_BYTES (4u << 20)
#define IDLE_NS 20000000000u /* What has not come by then does not come. */
#define SLEEP_NS 400000000u
#define SLEEP_POLLS_MAX 20000u /* Without sleep some hundred thousand. */
#define LATE_NS 30000000u      /* Receivers come later than rank 0 is through. */

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

struct scene {
	const char *name;
	rubato_status (*first)(rubato_comm *comm, uint8_t *bytes);  /* What rank 0 calls. */
	rubato_status (*others)(rubato_comm *comm, uint8_t *bytes); /* And the others. */
};

struct stage {
	const struct scene *scene;
	_Atomic uint32_t through; /* Ranks that have what they are to have. */
};

static bool simulated(void)
{
	return strcmp(transport_name, "sim") == 0;
}

static uint8_t byte_of(uint32_t rank, uint32_t message, size_t at)
{
	return (uint8_t)(rank * 7 + message * 31 + at * 13 + at / 251);
}

static void fill(uint8_t *bytes, size_t size, uint32_t rank, uint32_t message)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = byte_of(rank, message, i);
}

static bool filled(const uint8_t *bytes, size_t size, uint32_t rank, uint32_t message)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != byte_of(rank, message, i))
			return false;
	return true;
}

/* ---- The scenes ---- */

static rubato_status small_send(rubato_comm *comm, uint8_t *bytes)
{
	for (uint32_t i = 0; i < SMALL_COUNT; i++) {
		for (uint32_t r = 1; r < rubato_size(comm); r++) {
			fill(bytes, SMALL_BYTES, r, i);
			RB_TRY(rubato_send(comm, bytes, SMALL_BYTES, RUBATO_UINT8, r, 5));
		}
	}
	return RUBATO_OK;
}

static rubato_status small_receive(rubato_comm *comm, uint8_t *bytes)
{
	for (uint32_t i = 0; i < SMALL_COUNT; i++) {
		RB_TRY(rubato_recv(comm, bytes, SMALL_BYTES, RUBATO_UINT8, 0, 5));
		EXPECT(filled(bytes, SMALL_BYTES, rubato_rank(comm), i));
	}
	return RUBATO_OK;
}

/* Several at a time, to one rank, looked after by tests alone. */
static rubato_status large_send(rubato_comm *comm, uint8_t *bytes)
{
	rubato_op *ops[LARGE_COUNT];

	for (uint32_t i = 0; i < LARGE_COUNT; i++) {
		uint8_t *at = bytes + i * LARGE_BYTES;

		fill(at, LARGE_BYTES, 1, i);
		RB_TRY(rubato_op_send(comm, at, LARGE_BYTES, RUBATO_UINT8, 1, i, &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	for (uint32_t i = 0; i < LARGE_COUNT; i++) {
		bool done = false;

		while (!done)
			RB_TRY(rubato_test(ops[i], &done));
		rubato_op_free(ops[i]);
	}
	return RUBATO_OK;
}

static rubato_status large_receive(rubato_comm *comm, uint8_t *bytes)
{
	for (uint32_t i = 0; i < LARGE_COUNT && rubato_rank(comm) == 1; i++) {
		RB_TRY(rubato_recv(comm, bytes, LARGE_BYTES, RUBATO_UINT8, 0, i));
		EXPECT(filled(bytes, LARGE_BYTES, 1, i));
	}
	return RUBATO_OK;
}

static rubato_status broadcast_send(rubato_comm *comm, uint8_t *bytes)
{
	fill(bytes, COLLECTIVE_BYTES, 0, 0);
	return rubato_broadcast(comm, bytes, COLLECTIVE_BYTES, RUBATO_UINT8, 0);
}

static rubato_status broadcast_receive(rubato_comm *comm, uint8_t *bytes)
{
	RB_TRY(rubato_broadcast(comm, bytes, COLLECTIVE_BYTES, RUBATO_UINT8, 0));
	EXPECT(filled(bytes, COLLECTIVE_BYTES, 0, 0));
	return RUBATO_OK;
}

static rubato_status scatter_send(rubato_comm *comm, uint8_t *bytes)
{
	uint32_t n = rubato_size(comm);
	size_t block = COLLECTIVE_BYTES / n / 2;

	for (uint32_t r = 0; r < n; r++)
		fill(bytes + r * block, block, r, 1);
	return rubato_scatter(comm, bytes, bytes + n * block, block, RUBATO_UINT8, 0);
}

static rubato_status scatter_receive(rubato_comm *comm, uint8_t *bytes)
{
	size_t block = COLLECTIVE_BYTES / rubato_size(comm) / 2;

	RB_TRY(rubato_scatter(comm, NULL, bytes, block, RUBATO_UINT8, 0));
	EXPECT(filled(bytes, block, rubato_rank(comm), 1));
	return RUBATO_OK;
}

static const struct scene scenes[] = {
	{ "small messages", small_send, small_receive },
	{ "large messages", large_send, large_receive },
	{ "a broadcast", broadcast_send, broadcast_receive },
	{ "a scatter", scatter_send, scatter_receive },
};
#define SCENES (int)(sizeof(scenes) / sizeof(scenes[0]))

/* ---- Playing them ---- */

/* Rank 0 computes: it calls nothing of the library's (simulated time would stand still). */
static rubato_status compute(rubato_comm *comm, struct stage *stage)
{
	uint64_t since_ns = rubato_now(comm), now_ns = since_ns;

	while (atomic_load(&stage->through) < RANKS - 1 && now_ns - since_ns < IDLE_NS) {
		if (simulated()) {
			rubato_sleep(comm, 100000);
			now_ns = rubato_now(comm);
		} else {
			rb_clock_sleep_until(now_ns + 100000);
			now_ns = rb_clock_ns();
		}
	}
	if (atomic_load(&stage->through) < RANKS - 1)
		return RB_FAIL(RUBATO_ERR_INTERNAL,
			       "%s: only %u of %d ranks got all while rank 0 computed",
			       stage->scene->name, atomic_load(&stage->through), RANKS - 1);
	return RUBATO_OK;
}

static rubato_status play(rubato_comm *comm, void *arg)
{
	struct stage *stage = arg;
	uint8_t *bytes = calloc(1, COLLECTIVE_BYTES);
	rubato_status err;

	EXPECT(bytes != NULL);
	err = rubato_barrier(comm);
	if (err == RUBATO_OK && rubato_rank(comm) == 0) {
		err = stage->scene->first(comm, bytes);
		if (err == RUBATO_OK)
			err = compute(comm, stage);
	} else if (err == RUBATO_OK) {
		rubato_sleep(comm, LATE_NS);
		err = stage->scene->others(comm, bytes);
		if (err == RUBATO_OK)
			(void)atomic_fetch_add(&stage->through, 1);
	}
	free(bytes);
	return err;
}

static void play_all(const struct scene *scene)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	for (int round = 0; round < 3; round++) {
		struct stage stage = { .scene = scene };

		options.rank_count = RANKS;
		options.seed = (uint64_t)round;
		if (simulated())
			ck_assert_int_eq(rubato_sim_run(&options, play, &stage, &result),
					 RUBATO_OK);
		else
			ck_assert_int_eq(local_run(RANKS, transports, play, &stage, NULL),
					 RUBATO_OK);
	}
}

START_TEST(a_rank_that_computes_holds_nobody_up)
{
	play_all(&scenes[_i]);
}
END_TEST

/* Then nothing moves outside calls: a call lasts until what it completed has left. */
START_TEST(nor_does_one_without_progress_thread)
{
	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	play_all(&scenes[_i]);
}
END_TEST

#define BEGIN_NS UINT64_C(60000000000)
#define CROWD 400u /* Messages: more than there is room for. */
#define FEW_BYTES 16u

struct failure {
	struct stage stage;
	size_t size_bytes;
	bool cancels;           /* A collective, which poisons; else it aborts. */
	_Atomic uint32_t begun; /* Ranks whose first barrier has ended. */
};

/* One that has not ended yet would end with the failure. */
static rubato_status all_begin(rubato_comm *comm, struct failure *f)
{
	uint64_t until_ns = rb_clock_ns() + BEGIN_NS;

	RB_TRY(rubato_barrier(comm));
	(void)atomic_fetch_add(&f->begun, 1);
	while (atomic_load(&f->begun) < RANKS) {
		EXPECT(rb_clock_ns() < until_ns);
		rb_clock_sleep_until(rb_clock_ns() + 1000000);
	}
	return RUBATO_OK;
}

static rubato_status break_off(rubato_comm *comm, rubato_op *barrier)
{
	if (barrier == NULL)
		return rubato_abort(comm);
	RB_TRY(rubato_start(barrier));
	EXPECT(rubato_cancel(barrier) == RUBATO_ERR_CANCELLED);
	return RUBATO_OK;
}

/* The reason for which an engine is poisoned leaves as well, behind what fills the way to ranks
 * that come late. */
static rubato_status fail_play(rubato_comm *comm, void *arg)
{
	struct failure *f = arg;
	uint8_t *bytes = calloc(1, f->size_bytes);
	rubato_op *ops[CROWD], *barrier = NULL;

	EXPECT(bytes != NULL);
	if (f->cancels)
		RB_TRY(rubato_op_barrier(comm, &barrier));
	RB_TRY(all_begin(comm, f));
	if (rubato_rank(comm) == 0) {
		for (uint32_t i = 0; i < CROWD; i++) {
			bool done;

			RB_TRY(rubato_op_send(comm, bytes, f->size_bytes, RUBATO_UINT8, 1 + i % 2,
					      i, &ops[i]));
			RB_TRY(rubato_start(ops[i]));
			RB_TRY(rubato_test(ops[i], &done));
		}
		RB_TRY(break_off(comm, barrier));
		RB_TRY(compute(comm, &f->stage));
		for (uint32_t i = 0; i < CROWD; i++)
			rubato_op_free(ops[i]);
	} else {
		rb_clock_sleep_until(rb_clock_ns() + LATE_NS);
		EXPECT(rubato_recv(comm, bytes, f->size_bytes, RUBATO_UINT8, 0, CROWD) ==
		       RUBATO_ERR_PEER);
		(void)atomic_fetch_add(&f->stage.through, 1);
	}
	rubato_op_free(barrier);
	(void)rubato_finalize(comm); /* Says why it ended, to all but rank 0. */
	free(bytes);
	return RUBATO_OK;
}

START_TEST(failures_leave)
{
	struct failure f = { .stage.scene = &(struct scene) { .name = "a failure" },
			     .size_bytes = _i / 2 % 2 == 0 ? SMALL_BYTES : FEW_BYTES,
			     .cancels = _i / 4 == 1 };

	if (_i % 2 == 0)
		ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	ck_assert_int_eq(local_run_raw(RANKS, transports, fail_play, &f, NULL), RUBATO_OK);
}
END_TEST

/* While its receivers compute, too, there is nothing to do but to wait: asleep. */
static rubato_status sleep_main(rubato_comm *comm, void *arg)
{
	rubato_stats before = { .size_bytes = sizeof(before) }, after = before;
	uint8_t *bytes = calloc(1, SMALL_BYTES);
	rubato_status err;

	(void)arg;
	EXPECT(bytes != NULL);
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0) {
		RB_TRY(small_send(comm, bytes));
		RB_TRY(rubato_get_stats(comm, &before));
		rubato_sleep(comm, SLEEP_NS / 2);
		RB_TRY(rubato_get_stats(comm, &after));
		EXPECT(after.background_polls - before.background_polls < SLEEP_POLLS_MAX);
		err = RUBATO_OK;
	} else {
		rubato_sleep(comm, SLEEP_NS);
		err = small_receive(comm, bytes);
	}
	free(bytes);
	return err;
}

START_TEST(what_cannot_leave_yet_is_waited_for_asleep)
{
	ck_assert_int_eq(local_run(RANKS, transports, sleep_main, NULL, NULL), RUBATO_OK);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("leaving");
	TCase *tc = tcase_create("leaving");

	side_by_side(3);
	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	/* Sockets as small as a slow link makes them: the kernel takes little at a time. */
	if (setenv("UCX_TCP_SNDBUF", "128k", 1) != 0 || setenv("UCX_TCP_RCVBUF", "128k", 1) != 0 ||
	    (strcmp(transport_name, "tcp") == 0 && setenv("RUBATO_TRANSPORT", "tcp", 1) != 0))
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 200);
	tcase_add_loop_test(tc, a_rank_that_computes_holds_nobody_up, 0, SCENES);
	tcase_add_loop_test(tc, nor_does_one_without_progress_thread, 0, SCENES);
	if (!simulated()) {
		tcase_add_loop_test(tc, failures_leave, 0, 8);
		tcase_add_test(tc, what_cannot_leave_yet_is_waited_for_asleep);
	}
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
