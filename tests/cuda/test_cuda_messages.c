/*
 * test_cuda_messages.c -- single messages of a device's memory, ranks as threads, over shared
 * memory, which does not reach it, or over UCX, which does: what is sent is what comes, wherever
 * either end lies; none overtakes
 * another; and what is cancelled, or fails in the driver, leaves those behind it alone. On the fake
 * driver with delays from a seed, or on a real one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/cuda/app.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/seeds.h"

#define WORDS 300001u /* More than a slice, and than an eager message. */

static struct cuda_app app;

static const char *transport = "shm";
static bool streams = true; /* UCX starts nothing on them. */

static rubato_status ranks_run(uint32_t ranks, local_main body, void *arg)
{
	return cuda_app_ranks(&app, transport, ranks, body, arg);
}

struct place { /* Memory of WORDS words. */
	bool device;
	uint32_t *memory;
};

static struct place place_new(bool device)
{
	struct place p = { .device = device };

	p.memory = device ? cuda_app_alloc(&app, WORDS * 4) : malloc(WORDS * 4);
	ck_assert_ptr_nonnull(p.memory);
	return p;
}

static void place_free(struct place p)
{
	if (p.device)
		cuda_app_free(&app, p.memory);
	else
		free(p.memory);
}

static void place_fill(struct place p, uint32_t words, uint32_t salt)
{
	uint32_t *host = malloc(WORDS * 4);

	for (uint32_t i = 0; i < words; i++)
		host[i] = i * 2654435761u + salt;
	cuda_app_copy(&app, p.memory, host, (size_t)words * 4);
	free(host);
}

static bool place_holds(struct place p, uint32_t words, uint32_t salt)
{
	uint32_t *host = malloc(WORDS * 4);
	bool all = true;

	cuda_app_copy(&app, host, p.memory, (size_t)words * 4);
	for (uint32_t i = 0; i < words; i++)
		all = all && host[i] == i * 2654435761u + salt;
	free(host);
	return all;
}

/* ---- From anywhere to anywhere ---- */

static uint32_t below(struct rb_rng *rng, uint32_t bound)
{
	return (uint32_t)rb_rng_below(rng, bound);
}

static rubato_status pairs_main(rubato_comm *comm, void *arg)
{
	static const uint32_t counts[] = { 0, 1, 1000, 65537, WORDS };
	struct rb_rng rng = { *(const uint64_t *)arg };
	uint32_t rank = rubato_rank(comm);
	CUstream stream = cuda_app_stream(&app);
	struct place places[2] = { place_new(false), place_new(true) };

	for (uint32_t i = 0; i < 12; i++) {
		uint32_t words = counts[below(&rng, 5)], way = below(&rng, streams ? 3 : 2);
		uint32_t from = below(&rng, 2), tag = below(&rng, 2);
		bool device[2] = { below(&rng, 2), below(&rng, 2) };
		struct place p = places[device[rank]];
		rubato_op *op = NULL;

		place_fill(p, words, rank == from ? i : 999);
		if (way == 0 && rank == from) {
			RB_TRY(rubato_send(comm, p.memory, words, RUBATO_UINT32, 1 - rank, tag));
			place_fill(p, words, 777); /* The caller's again. */
		} else if (way == 0) {
			RB_TRY(rubato_recv(comm, p.memory, words, RUBATO_UINT32, from, tag));
			EXPECT(place_holds(p, words, i));
		} else if (rank == from) {
			RB_TRY(rubato_op_send(comm, p.memory, words, RUBATO_UINT32, 1 - rank, tag,
					      &op));
		} else {
			RB_TRY(rubato_op_recv(comm, p.memory, words, RUBATO_UINT32, from, tag,
					      &op));
		}
		for (uint32_t again = 0; op != NULL && again < 3; again++) {
			place_fill(p, words, rank == from ? i + again : 999);
			if (way == 1)
				RB_TRY(rubato_start(op));
			else
				RB_TRY(rubato_cuda_start(op, stream));
			RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
			EXPECT(place_holds(p, words, i + again));
		}
		rubato_op_free(op);
		if (way == 2)
			CUDA_APP(&app, cuStreamSynchronize, stream);
	}
	RB_TRY(rubato_barrier(comm)); /* To free waits for the other's stream. */
	CUDA_APP(&app, cuStreamDestroy, stream);
	place_free(places[0]);
	place_free(places[1]);
	return RUBATO_OK;
}

START_TEST(what_is_sent_is_what_comes)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 4 : 20);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		uint64_t before = 0;

		cuda_app_begin(&app, seed);
		ck_assert_msg(ranks_run(2, pairs_main, &seed) == RUBATO_OK, "seed %llu: %s",
			      (unsigned long long)seed, rubato_error_text());
		if (app.fake_counts != NULL)
			before = app.fake_counts().host_copies;
		cuda_app_end(&app);
		if (app.fake_counts != NULL && streams)
			ck_assert_uint_gt(before, 24);
	}
}
END_TEST

/* ---- Order ---- */

/* The first is copied while the second, which needs no copy, could go. */
static rubato_status order_main(rubato_comm *comm, void *arg)
{
	struct place large = place_new(true), small = place_new(false);
	rubato_op *ops[2];

	(void)arg;
	for (uint32_t i = 0; i < 4; i++) {
		if (rubato_rank(comm) == 1) {
			place_fill(small, 1, 5);
			RB_TRY(rubato_recv(comm, large.memory, WORDS, RUBATO_UINT32, 0, 3));
			RB_TRY(rubato_recv(comm, small.memory, 1, RUBATO_UINT32, 0, 3));
			EXPECT(place_holds(large, WORDS, 10 + i) && place_holds(small, 1, 20 + i));
			continue;
		}
		place_fill(large, WORDS, 10 + i);
		place_fill(small, 1, 20 + i);
		RB_TRY(rubato_op_send(comm, large.memory, WORDS, RUBATO_UINT32, 1, 3, &ops[0]));
		RB_TRY(rubato_op_send(comm, small.memory, 1, RUBATO_UINT32, 1, 3, &ops[1]));
		for (uint32_t k = 0; k < 2; k++)
			RB_TRY(rubato_start(ops[k]));
		for (uint32_t k = 0; k < 2; k++) {
			RB_TRY(rubato_wait(ops[k], RUBATO_TIMEOUT_DEFAULT));
			rubato_op_free(ops[k]);
		}
	}
	place_free(large);
	place_free(small);
	return RUBATO_OK;
}

START_TEST(none_overtakes_another)
{
	cuda_app_begin(&app, 5);
	ck_assert_msg(ranks_run(2, order_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- Cancel ---- */

struct cancels { /* Of sends; what they came to. */
	uint32_t cancelled, sent;
};

/* Rank 0 says by another tag whether the first was sent. */
static rubato_status cancel_send(rubato_comm *comm, struct cancels *cancels)
{
	struct place place = place_new(true);
	uint32_t second = 42, sent;
	rubato_status err;
	rubato_op *op;

	place_fill(place, WORDS, 1);
	RB_TRY(rubato_op_send(comm, place.memory, WORDS, RUBATO_UINT32, 1, 0, &op));
	RB_TRY(rubato_start(op));
	err = rubato_cancel(op);
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_CANCELLED);
	sent = err == RUBATO_OK;
	*(sent ? &cancels->sent : &cancels->cancelled) += 1;
	RB_TRY(rubato_send(comm, &sent, 1, RUBATO_UINT32, 1, 9));
	RB_TRY(rubato_send(comm, &second, 1, RUBATO_UINT32, 1, 0));
	/* And once more, whole. */
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	place_free(place);
	return RUBATO_OK;
}

static rubato_status cancel_seen(rubato_comm *comm)
{
	struct place place = place_new(true);
	uint32_t second = 0, sent = 0;

	RB_TRY(rubato_recv(comm, &sent, 1, RUBATO_UINT32, 0, 9));
	if (sent)
		RB_TRY(rubato_recv(comm, place.memory, WORDS, RUBATO_UINT32, 0, 0));
	RB_TRY(rubato_recv(comm, &second, 1, RUBATO_UINT32, 0, 0));
	EXPECT(second == 42);
	place_fill(place, WORDS, 2);
	RB_TRY(rubato_recv(comm, place.memory, WORDS, RUBATO_UINT32, 0, 0));
	EXPECT(place_holds(place, WORDS, 1));
	place_free(place);
	return RUBATO_OK;
}

/* A receive that is given up leaves its message, which has not begun to come, to the next one. */
static rubato_status cancel_receive(rubato_comm *comm)
{
	struct place place = place_new(true);
	uint8_t go = 1;
	rubato_op *op;

	place_fill(place, WORDS, 3);
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_recv(comm, &go, 1, RUBATO_UINT8, 1, 8));
		RB_TRY(rubato_send(comm, place.memory, WORDS, RUBATO_UINT32, 1, 4));
		place_free(place);
		return RUBATO_OK;
	}
	place_fill(place, WORDS, 4);
	RB_TRY(rubato_op_recv(comm, place.memory, WORDS, RUBATO_UINT32, 0, 4, &op));
	RB_TRY(rubato_start(op));
	EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
	rubato_op_free(op);
	RB_TRY(rubato_send(comm, &go, 1, RUBATO_UINT8, 0, 8));
	RB_TRY(rubato_recv(comm, place.memory, WORDS, RUBATO_UINT32, 0, 4));
	EXPECT(place_holds(place, WORDS, 3));
	place_free(place);
	return RUBATO_OK;
}

static rubato_status cancel_main(rubato_comm *comm, void *arg)
{
	if (rubato_rank(comm) == 0)
		RB_TRY(cancel_send(comm, arg));
	else
		RB_TRY(cancel_seen(comm));
	return cancel_receive(comm);
}

START_TEST(what_is_cancelled_leaves_the_others_alone)
{
	struct cancels cancels = { 0 };

	for (uint64_t seed = 1; seed <= (test_length() == TEST_SHORT ? 4 : 12); seed++) {
		cuda_app_begin(&app, seed);
		ck_assert_msg(ranks_run(2, cancel_main, &cancels) == RUBATO_OK, "seed %llu: %s",
			      (unsigned long long)seed, rubato_error_text());
		cuda_app_end(&app);
	}
	ck_assert_uint_gt(cancels.cancelled, 0);
}
END_TEST

/* ---- When the driver fails ---- */

static rubato_status failing_main(rubato_comm *comm, void *arg)
{
	struct place place = place_new(true);
	uint32_t got = 0;

	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 1) {
		EXPECT(rubato_recv(comm, &got, 1, RUBATO_UINT32, 0, 0) != RUBATO_OK);
	} else {
		app.fake_control(arg);
		EXPECT(rubato_send(comm, place.memory, WORDS, RUBATO_UINT32, 1, 0) ==
		       RUBATO_ERR_SYSTEM);
		EXPECT(strstr(rubato_error_text(), "cuMemcpyAsync: CUDA_ERROR_LAUNCH_FAILED"));
		EXPECT(rubato_abort(comm) == RUBATO_OK);
	}
	place_free(place);
	return RUBATO_OK;
}

START_TEST(a_failure_of_the_driver_is_the_senders)
{
	struct fake_cuda_control control = { .fail_call = "cuMemcpyAsync",
					     .fail_at = 1,
					     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	rubato_status err;

	cuda_app_begin(&app, 1);
	if (app.fake_control == NULL) {
		cuda_app_close(&app);
		return;
	}
	err = ranks_run(2, failing_main, &control);
	ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s", rubato_error_text());
	ck_assert_uint_eq(app.fake_counts().failed, 1);
	app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
	cuda_app_close(&app);
}
END_TEST

/* test_cuda_messages [TRANSPORT] */
int main(int argc, char **argv)
{
	TCase *tc = tcase_create("messages");

	transport = argc > 1 ? argv[1] : transport;
	streams = strcmp(transport, "ucx") != 0;

	if (!cuda_app_may_run())
		return 77;
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_is_sent_is_what_comes);
	tcase_add_test(tc, none_overtakes_another);
	tcase_add_test(tc, what_is_cancelled_leaves_the_others_alone);
	if (streams) /* UCX copies nothing of what does not fit: test_cuda_ucx.c. */
		tcase_add_test(tc, a_failure_of_the_driver_is_the_senders);
	return check_main("cuda", tc);
}
