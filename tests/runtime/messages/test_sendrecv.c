/*
 * test_sendrecv.c -- a send and a receive at once: neither waits for the other, both keep their
 * place among other messages, and what fails leaves the other as it says. Name of the transport as
 * argument: shm, ucx, sim.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

#define SHORT_NS 20000000u
#define LARGE 200000u /* Elements: announced, not sent at once. */
#define COUNTS 8u

static const struct rb_transport_ops *transports[2];
static const char *transport_name;
static const uint32_t counts[COUNTS] = { 0, 1, 3, 24, 140, 1000, 9000, LARGE };

static int64_t word(uint32_t rank, uint32_t round, uint32_t i)
{
	return (int64_t)rank * 1000003 + (int64_t)round * 7919 + i;
}

static void fill(int64_t *values, uint32_t count, uint32_t rank, uint32_t round)
{
	for (uint32_t i = 0; i < count; i++)
		values[i] = word(rank, round, i);
}

static bool is_filled(const int64_t *values, uint32_t count, uint32_t rank, uint32_t round)
{
	for (uint32_t i = 0; i < count; i++)
		if (values[i] != word(rank, round, i))
			return false;
	return true;
}

/* Every rank sends so many ranks on, itself too; each as many elements as it likes. */
static rubato_status around_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), ranks = rubato_size(comm), round = 0;
	int64_t *in = malloc((LARGE + 8) * sizeof(*in)), *out = malloc((LARGE + 8) * sizeof(*out));

	(void)arg;
	EXPECT(in != NULL && out != NULL);
	for (uint32_t c = 0; c < COUNTS; c++)
		for (uint32_t on = 0; on < ranks; on++, round++) {
			uint32_t to = (rank + on) % ranks, from = (rank + ranks - on) % ranks;

			fill(in, counts[c] + rank, rank, round);
			memset(out, 0xee, (LARGE + 8) * sizeof(*out));
			RB_TRY(rubato_sendrecv(comm, in, counts[c] + rank, to, to, out,
					       counts[c] + from, from, rank, RUBATO_INT64));
			EXPECT(is_filled(out, counts[c] + from, from, round));
			EXPECT(out[counts[c] + from] == (int64_t)0xeeeeeeeeeeeeeeee);
			EXPECT(is_filled(in, counts[c] + rank, rank, round));
		}
	free(in);
	free(out);
	return RUBATO_OK;
}

/* In the order of the calls, whatever makes the others: of one flow there are all kinds. */
static rubato_status order_main(rubato_comm *comm, void *arg)
{
	uint32_t peer = 1 - rubato_rank(comm);
	int64_t in, out = -1, first = -1;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_recv(comm, &first, 1, RUBATO_INT64, peer, 4, &op));
	for (int64_t i = 0; i < 300; i += 3) {
		RB_TRY(rubato_start(op));
		in = i;
		RB_TRY(rubato_send(comm, &in, 1, RUBATO_INT64, peer, 4));
		in = i + 1;
		RB_TRY(rubato_sendrecv(comm, &in, 1, peer, 4, &out, 1, peer, 4, RUBATO_INT64));
		EXPECT(out == i + 1);
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		EXPECT(first == i);
		in = i + 2;
		RB_TRY(rubato_send(comm, &in, 1, RUBATO_INT64, peer, 4));
		RB_TRY(rubato_recv(comm, &out, 1, RUBATO_INT64, peer, 4));
		EXPECT(out == i + 2);
	}
	rubato_op_free(op);
	return RUBATO_OK;
}

/* What cannot be received is not sent either, nor the other way round. */
static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), peer = 1 - rank;
	int64_t in = -1, out = 0;

	(void)arg;
	EXPECT(rubato_sendrecv(NULL, &in, 1, peer, 2, &out, 1, peer, 2, RUBATO_INT64) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_sendrecv(comm, &in, 1, peer, 2, &out, 1, 2, 2, RUBATO_INT64) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_sendrecv(comm, &in, 1, 2, 2, &out, 1, peer, 2, RUBATO_INT64) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_sendrecv(comm, &in, 1, peer, 2, NULL, 1, peer, 2, RUBATO_INT64) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_sendrecv(comm, NULL, 1, peer, 2, &out, 1, peer, 2, RUBATO_INT64) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_sendrecv(comm, &in, 1, peer, 2, &out, 1, peer, 2, (rubato_type)99) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(out == 0);
	in = 40 + rank;
	RB_TRY(rubato_sendrecv(comm, &in, 1, peer, 2, &out, 1, peer, 2, RUBATO_INT64));
	EXPECT(out == 40 + (int64_t)peer);
	return RUBATO_OK;
}

/* Nothing comes, so the receive counts as never called; what was sent, short or long, is taken or
 * counts as never sent. */
static rubato_status late_main(rubato_comm *comm, void *arg)
{
	int64_t *large = calloc(LARGE, sizeof(*large)), in = 7, out = 0;

	(void)arg;
	EXPECT(large != NULL);
	for (int64_t i = 0; i < 3; i++) {
		RB_TRY(rubato_barrier(comm));
		if (rubato_rank(comm) == 0) {
			RB_TRY(rubato_set_timeout(comm, SHORT_NS));
			EXPECT(rubato_sendrecv(comm, &in, 1, 1, 6, &out, 1, 1, 6, RUBATO_INT64) ==
			       RUBATO_ERR_TIMEOUT);
			EXPECT(strstr(rubato_error_text(), "receives from rank 1") != NULL);
			EXPECT(rubato_sendrecv(comm, large, LARGE, 1, 8, &out, 1, 1, 6,
					       RUBATO_INT64) == RUBATO_ERR_TIMEOUT);
			RB_TRY(rubato_set_timeout(comm, RUBATO_TIMEOUT_DEFAULT));
			RB_TRY(rubato_barrier(comm));
			large[LARGE - 1] = i + 1;
			RB_TRY(rubato_sendrecv(comm, large, LARGE, 1, 8, &out, 1, 1, 6,
					       RUBATO_INT64));
			EXPECT(out == 50 + i);
			continue;
		}
		RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_recv(comm, &out, 1, RUBATO_INT64, 0, 6));
		EXPECT(out == in);
		out = 50 + i;
		RB_TRY(rubato_sendrecv(comm, &out, 1, 0, 6, large, LARGE, 0, 8, RUBATO_INT64));
		EXPECT(large[LARGE - 1] == i + 1);
	}
	free(large);
	return RUBATO_OK;
}

/* What one expects and the other sends must agree; the other way they do. */
static rubato_status mismatch_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), peer = 1 - rank;
	int64_t in[2] = { 60 + rank, 0 }, out[2] = { 0, 0 };
	rubato_status err;

	(void)arg;
	err = rubato_sendrecv(comm, in, 1, peer, 3, out, 1 + rank, peer, 3, RUBATO_INT64);
	EXPECT(err == (rank == 1 ? RUBATO_ERR_MISMATCH : RUBATO_OK));
	EXPECT(rank == 1 || out[0] == 61);
	RB_TRY(rubato_sendrecv(comm, in, 1, peer, 5, out, 1, peer, 5, RUBATO_INT64));
	EXPECT(out[0] == 60 + (int64_t)peer);
	return RUBATO_OK;
}

static void run_ranks(uint32_t ranks, local_main rank_main)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = ranks;
	options.seed = ranks;
	options.reorder = 1;
	options.jitter = 3;
	if (strcmp(transport_name, "sim") != 0)
		err = local_run(ranks, transports, rank_main, NULL, NULL);
	else
		err = rubato_sim_run(&options, rank_main, NULL, &result);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}

START_TEST(all_send_to_each)
{
	run_ranks(1, around_main);
	run_ranks(2, around_main);
	run_ranks(5, around_main);
}
END_TEST

START_TEST(messages_keep_their_order)
{
	run_ranks(2, order_main);
}
END_TEST

START_TEST(what_is_refused_sends_nothing)
{
	run_ranks(2, refused_main);
}
END_TEST

START_TEST(what_timed_out_is_called_again)
{
	run_ranks(2, late_main);
}
END_TEST

START_TEST(counts_must_agree)
{
	run_ranks(2, mismatch_main);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("sendrecv");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, all_send_to_each);
	tcase_add_test(tc, messages_keep_their_order);
	tcase_add_test(tc, what_is_refused_sends_nothing);
	tcase_add_test(tc, what_timed_out_is_called_again);
	tcase_add_test(tc, counts_must_agree);
	return check_main("sendrecv", tc);
}
