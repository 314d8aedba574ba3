/*
 * test_many.c -- counters that must not wrap into each other: operations alive at once, made and
 * freed, started far ahead. Name of the transport as argument: shm, ucx, sim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

struct many { /* Persistent sums of one number each. */
	uint32_t count;
	int64_t *in, *out;
	rubato_op **ops;
};

static rubato_status many_make(rubato_comm *comm, struct many *m, uint32_t count)
{
	m->count = count;
	m->in = calloc(count, sizeof(*m->in));
	m->out = calloc(count, sizeof(*m->out));
	m->ops = calloc(count, sizeof(rubato_op *));
	for (uint32_t i = 0; i < count; i++)
		RB_TRY(rubato_op_allreduce(comm, &m->in[i], &m->out[i], 1, RUBATO_INT64, RUBATO_SUM,
					   &m->ops[i]));
	return RUBATO_OK;
}

/* All in flight at once; waited for in an order that differs from rank to rank. */
static rubato_status many_run(rubato_comm *comm, struct many *m, int64_t salt)
{
	uint32_t n = rubato_size(comm), wrong = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		m->in[i] = salt + i * (rubato_rank(comm) + 1);
		RB_TRY(rubato_start(m->ops[i]));
	}
	for (uint32_t i = 0; i < m->count; i++) {
		uint32_t k = (i * 7 + rubato_rank(comm)) % m->count;

		RB_TRY(rubato_wait(m->ops[k], 0));
		wrong += m->out[k] != salt * n + (int64_t)k * n * (n + 1) / 2;
	}
	if (wrong > 0)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%u of %u sums are wrong", wrong, m->count);
	return RUBATO_OK;
}

static void many_free(struct many *m)
{
	for (uint32_t i = 0; i < m->count; i++)
		rubato_op_free(m->ops[i]);
	free(m->in);
	free(m->out);
	free(m->ops);
}

#define ALIVE 3000 /* More than 11 bits can tell apart; no multiple of the step in many_run. */

static rubato_status alive_main(rubato_comm *comm, void *arg)
{
	struct many m;

	(void)arg;
	RB_TRY(many_make(comm, &m, ALIVE));
	RB_TRY(many_run(comm, &m, 1000));
	RB_TRY(many_run(comm, &m, 5));
	many_free(&m);
	return RUBATO_OK;
}

/* An old operation beside those whose numbers are 2^11 and 2^12 later. */
static rubato_status freed_main(rubato_comm *comm, void *arg)
{
	struct many old, last;

	(void)arg;
	RB_TRY(many_make(comm, &old, 10));
	for (uint32_t i = 0; i < 2; i++) {
		struct many passing;

		RB_TRY(many_make(comm, &passing, 2038));
		many_free(&passing);
		RB_TRY(many_make(comm, &last, 10));
		for (uint32_t k = 0; k < 10; k++) {
			bool old_first = k % 2 == 0 || rubato_rank(comm) == 0;

			old.in[k] = k;
			last.in[k] = 1000 + k;
			RB_TRY(rubato_start(old_first ? old.ops[k] : last.ops[k]));
			RB_TRY(rubato_start(old_first ? last.ops[k] : old.ops[k]));
		}
		for (uint32_t k = 0; k < 10; k++) {
			RB_TRY(rubato_wait(last.ops[k], 0));
			RB_TRY(rubato_wait(old.ops[k], 0));
			EXPECT(old.out[k] == 2 * k && last.out[k] == 2000 + 2 * k);
		}
		RB_TRY(many_run(comm, &last, 77));
		RB_TRY(many_run(comm, &old, 3));
		many_free(&last);
	}
	many_free(&old);
	return RUBATO_OK;
}

#define AHEAD 3500 /* Of 3,971 that the credit of a peer allows, and more than 2^11. */

/* The root is through with all its starts before the others begin. */
static rubato_status ahead_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), wrong = 0;
	double value = 0;
	int32_t through = 0;
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_broadcast(comm, &value, 1, RUBATO_FLOAT64, 0, &op));
	for (uint32_t i = 0; rank == 0 && i < AHEAD; i++) {
		value = 10.0 * i;
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
	}
	for (uint32_t r = 1; rank == 0 && r < rubato_size(comm); r++)
		RB_TRY(rubato_send(comm, &through, 1, RUBATO_INT32, r, 9));
	if (rank > 0)
		RB_TRY(rubato_recv(comm, &through, 1, RUBATO_INT32, 0, 9));
	for (uint32_t i = 0; rank > 0 && i < AHEAD; i++) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
		wrong += value < 10.0 * i || value > 10.0 * i;
	}
	rubato_op_free(op);
	if (wrong > 0)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%u of %u values are wrong", wrong, AHEAD);
	return RUBATO_OK;
}

#define ROUNDS 2100 /* Past 11 bits. */

/* Two partial allreduces whose rounds count on beside each other, and many made before them. */
static rubato_status rounds_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *p[2];

	(void)arg;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = rubato_size(comm);
	for (uint32_t k = 0; k < 2; k++)
		RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, &options, &p[k]));
	for (uint64_t step = 0; step < ROUNDS; step++) {
		for (uint32_t k = 0; k < 2; k++) {
			int64_t value = (int64_t)step + k;

			RB_TRY(rubato_partial_contribute(p[k], &value, step, 1));
		}
		for (uint32_t k = 0; k < 2; k++) {
			rubato_round round = { .size_bytes = sizeof(round) };
			int64_t sum = 0;
			bool collected = false;

			RB_TRY(rubato_partial_collect(p[k], &sum, &collected, &round, 0));
			EXPECT(collected && round.round == step);
			EXPECT(sum == (int64_t)((step + k) * rubato_size(comm)));
		}
	}
	for (uint32_t k = 0; k < 2; k++)
		RB_TRY(rubato_partial_free(p[k]));
	return RUBATO_OK;
}

/* ---- Numbers that wrap, begun shortly before ---- */

#define NEAR 3u /* Starts, or rounds, before it. */

/* What a start's number is in tags, 24 bits of them, and in the operation. */
static rubato_status starts_main(rubato_comm *comm, void *arg)
{
	static const uint32_t wraps[] = { 1u << 23, 1u << 24, 0 };
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	double in = 0, sum = 0, helped_in[10000], helped[10000], from_root = 0;
	rubato_op *ops[3];

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, &in, &sum, 1, RUBATO_FLOAT64, RUBATO_SUM, &ops[0]));
	RB_TRY(rubato_op_allreduce_helped(comm, helped_in, helped, 10000, RUBATO_FLOAT64,
					  RUBATO_SUM, &ops[1]));
	RB_TRY(rubato_op_broadcast(comm, &from_root, 1, RUBATO_FLOAT64, 0, &ops[2]));
	for (size_t w = 0; w < sizeof(wraps) / sizeof(wraps[0]); w++) {
		for (uint32_t k = 0; k < 3; k++)
			ops[k]->instance = wraps[w] - NEAR;
		for (uint32_t i = 0; i < 3 * NEAR; i++) {
			in = rank + i;
			for (uint32_t e = 0; e < 10000; e++)
				helped_in[e] = in + e;
			for (uint32_t k = 0; k < 2; k++)
				RB_TRY(rubato_start(ops[k]));
			for (uint32_t k = 0; k < 2; k++)
				RB_TRY(rubato_wait(ops[k], 0));
			EXPECT(sum == n * i + n * (n - 1) / 2);
			EXPECT(helped[0] == sum && helped[9999] == sum + n * 9999.0);
		}
		/* The root is through with all of them before the others begin. */
		for (uint32_t i = 0; i < 3 * NEAR; i++) {
			if (i == 0 && rank > 0)
				RB_TRY(rubato_recv(comm, &in, 1, RUBATO_FLOAT64, 0, 9));
			from_root = rank == 0 ? 10.0 * i : -1;
			RB_TRY(rubato_start(ops[2]));
			RB_TRY(rubato_wait(ops[2], 0));
			EXPECT(from_root == 10.0 * i);
		}
		for (uint32_t r = 1; rank == 0 && r < n; r++)
			RB_TRY(rubato_send(comm, &in, 1, RUBATO_FLOAT64, r, 9));
		RB_TRY(rubato_barrier(comm));
		EXPECT(ops[2]->instance == wraps[w] + 2 * NEAR);
	}
	for (uint32_t k = 0; k < 3; k++)
		rubato_op_free(ops[k]);
	return RUBATO_OK;
}

/* The state of a drained one as if it had come so far: its first word behind the head of 16 bytes
 * is the round's number, its last one a checksum (FNV-1a). */
static void state_advance(uint8_t *state, uint64_t bytes, uint64_t round)
{
	uint64_t hash = 0xcbf29ce484222325u;

	memcpy(state + 16, &round, sizeof(round));
	for (uint64_t i = 0; i < bytes - sizeof(hash); i++)
		hash = (hash ^ state[i]) * 0x100000001b3u;
	memcpy(state + bytes - sizeof(hash), &hash, sizeof(hash));
}

static rubato_status drained(rubato_partial *p)
{
	int64_t value;
	bool collected;

	RB_TRY(rubato_partial_drain(p));
	do {
		RB_TRY(rubato_partial_collect(p, &value, &collected, NULL, 0));
	} while (collected);
	return RUBATO_OK;
}

static rubato_status far_rounds(rubato_comm *comm, rubato_partial_options options, uint64_t wrap)
{
	uint8_t state[4096];
	uint64_t bytes = sizeof(state);
	rubato_partial *p;

	RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, &options, &p));
	RB_TRY(drained(p));
	RB_TRY(rubato_partial_save(p, state, &bytes));
	RB_TRY(rubato_partial_free(p));
	state_advance(state, bytes, wrap - NEAR);
	options.state = state;
	options.state_bytes = bytes;
	RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, &options, &p));
	for (uint64_t step = 1; step <= 3 * NEAR; step++) {
		int64_t value = (int64_t)step + rubato_rank(comm), sum = 0;
		rubato_round round = { .size_bytes = sizeof(round) };
		uint32_t n = rubato_size(comm);
		bool collected = false;

		RB_TRY(rubato_partial_contribute(p, &value, step, 1));
		RB_TRY(rubato_partial_collect(p, &sum, &collected, &round, 0));
		EXPECT(collected && round.round == wrap - NEAR + step - 1);
		EXPECT(sum == (int64_t)(n * step + n * (n - 1) / 2));
		EXPECT(round.staleness_max == 0 && round.fresh == n);
	}
	RB_TRY(drained(p));
	return rubato_partial_free(p);
}

/* A round's number in tags (24 bits), in records and runs (32). */
static rubato_status far_rounds_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	(void)arg;
	for (uint32_t policy = 0; policy < 2; policy++) {
		options.policy = policy == 0 ? RUBATO_POLICY_QUORUM : RUBATO_POLICY_ADAPTIVE;
		options.quorum = rubato_size(comm);
		RB_TRY(far_rounds(comm, options, UINT64_C(1) << 24));
		RB_TRY(far_rounds(comm, options, UINT64_C(1) << 32));
		RB_TRY(far_rounds(comm, options, UINT64_C(1) << 52));
	}
	return RUBATO_OK;
}

#define HUGE_BYTES (70u << 20)

/* Blocks of many more chunks than 20 bits can count, were they as small as they may be. */
static rubato_status chunks_main(rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm);
	uint64_t counts[2] = { HUGE_BYTES, HUGE_BYTES };
	uint8_t *in = malloc((size_t)n * HUGE_BYTES), *out = malloc((size_t)n * HUGE_BYTES);

	uint32_t ran = 0;
	char text[256];

	(void)arg;
	EXPECT(in != NULL && out != NULL && n == 2);
	for (uint32_t r = 0; r < n; r++)
		memset(in + (size_t)r * HUGE_BYTES, (int)(10 * rubato_rank(comm) + r), HUGE_BYTES);
	for (uint32_t a = 0; rubato_algorithm_name("alltoallv", a) != NULL; a++) {
		rubato_status err = rubato_set_algorithm(comm, "alltoallv",
							 rubato_algorithm_name("alltoallv", a));

		if (err == RUBATO_OK)
			err = rubato_explain(comm, "alltoallv", 0, RUBATO_UINT8, text,
					     sizeof(text));
		if (err == RUBATO_ERR_UNSUPPORTED)
			continue;
		RB_TRY(err);
		ran++;
		memset(out, 99, (size_t)n * HUGE_BYTES);
		RB_TRY(rubato_alltoallv(comm, in, counts, NULL, out, counts, NULL, RUBATO_UINT8));
		for (size_t i = 0; i < (size_t)n * HUGE_BYTES; i += 4093)
			EXPECT(out[i] == 10 * (i / HUGE_BYTES) + rubato_rank(comm));
	}
	EXPECT(ran >= 2);
	free(in);
	free(out);
	return RUBATO_OK;
}

static void run_ranks(uint32_t rank_count, local_main rank_main)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	if (strcmp(transport_name, "sim") != 0) {
		err = local_run(rank_count, transports, rank_main, NULL, NULL);
	} else {
		options.rank_count = rank_count;
		err = rubato_sim_run(&options, rank_main, NULL, &result);
	}
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}

START_TEST(operations_alive_keep_apart)
{
	run_ranks(2, alive_main);
	run_ranks(3, alive_main);
}
END_TEST

START_TEST(operations_freed_leave_no_number)
{
	run_ranks(2, freed_main);
}
END_TEST

START_TEST(starts_far_ahead_keep_apart)
{
	run_ranks(2, ahead_main);
	run_ranks(3, ahead_main);
}
END_TEST

START_TEST(rounds_keep_apart)
{
	run_ranks(2, rounds_main);
}
END_TEST

START_TEST(starts_wrap)
{
	run_ranks(2, starts_main);
	run_ranks(3, starts_main);
}
END_TEST

START_TEST(rounds_wrap)
{
	run_ranks(2, far_rounds_main);
	run_ranks(9, far_rounds_main); /* More than meet once a round. */
}
END_TEST

START_TEST(small_chunks_count_far)
{
	ck_assert_int_eq(setenv("RUBATO_CHUNK", "64", 1), 0); /* Of this test's own process. */
	run_ranks(2, chunks_main);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("many");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, operations_alive_keep_apart);
	tcase_add_test(tc, operations_freed_leave_no_number);
	tcase_add_test(tc, starts_far_ahead_keep_apart);
	tcase_add_test(tc, rounds_keep_apart);
	tcase_add_test(tc, starts_wrap);
	tcase_add_test(tc, rounds_wrap);
	tcase_add_test(tc, small_chunks_count_far);
	return check_main("many", tc);
}
