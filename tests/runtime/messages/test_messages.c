/*
 * test_messages.c -- point to point when receives and sends are taken back: by a timeout or a
 * cancel. What is taken back counts as never called; the rest keeps its order. Name of the
 * transport as argument: shm, ucx, sim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

#define SHORT_NS 20000000u
#define LARGE 200000 /* Elements: announced, not sent at once. */

/* A receive times out before its message is sent, and is called again; so is a send. */
static rubato_status retry_main(rubato_comm *comm, void *arg)
{
	int64_t value = 0, *large = calloc(LARGE, sizeof(*large));
	rubato_status err;

	(void)arg;
	EXPECT(rubato_set_timeout(comm, RUBATO_NO_WAIT) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_set_timeout(NULL, SHORT_NS) == RUBATO_ERR_ARGUMENT);
	for (int64_t i = 0; i < 3; i++) {
		if (rubato_rank(comm) == 1) {
			RB_TRY(rubato_set_timeout(comm, SHORT_NS));
			err = rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5);
			RB_TRY(rubato_set_timeout(comm, RUBATO_TIMEOUT_DEFAULT));
			EXPECT(err == RUBATO_ERR_TIMEOUT);
			EXPECT(strstr(rubato_error_text(), "tag 5") != NULL);
			RB_TRY(rubato_barrier(comm));
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5));
			EXPECT(value == 70 + i);
			RB_TRY(rubato_barrier(comm));
			RB_TRY(rubato_recv(comm, large, LARGE, RUBATO_INT64, 0, 5));
			EXPECT(large[LARGE - 1] == i + 1);
		} else {
			value = 70 + i;
			RB_TRY(rubato_barrier(comm));
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 5));
			RB_TRY(rubato_set_timeout(comm, SHORT_NS)); /* Nobody receives it yet. */
			err = rubato_send(comm, large, LARGE, RUBATO_INT64, 1, 5);
			RB_TRY(rubato_set_timeout(comm, RUBATO_TIMEOUT_DEFAULT));
			EXPECT(err == RUBATO_ERR_TIMEOUT);
			RB_TRY(rubato_barrier(comm));
			large[LARGE - 1] = i + 1;
			RB_TRY(rubato_send(comm, large, LARGE, RUBATO_INT64, 1, 5));
		}
	}
	free(large);
	return RUBATO_OK;
}

/* Of several receives in flight any is cancelled: the others get the messages, in order. */
static rubato_status receives_main(rubato_comm *comm, void *arg)
{
	enum { N = 6 };
	int64_t values[N];
	rubato_op *ops[N];

	(void)arg;
	for (uint32_t gone = 0; gone < 1u << N; gone++) {
		int64_t next = 1000 * gone;

		if (rubato_rank(comm) == 0) {
			RB_TRY(rubato_barrier(comm));
			for (uint32_t i = 0; i < N; i++) {
				int64_t value = next + i;

				RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 9));
			}
			continue;
		}
		for (uint32_t i = 0; i < N; i++) {
			RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 0, 9, &ops[i]));
			RB_TRY(rubato_start(ops[i]));
		}
		for (uint32_t i = 0; i < N; i++)
			if (gone & 1u << (gone % 2 == 0 ? i : N - 1 - i)) {
				uint32_t k = gone % 2 == 0 ? i : N - 1 - i;

				EXPECT(rubato_cancel(ops[k]) == RUBATO_ERR_CANCELLED);
			}
		RB_TRY(rubato_barrier(comm));
		for (uint32_t i = 0; i < N; i++) {
			if (gone & 1u << i)
				continue;
			RB_TRY(rubato_wait(ops[i], 0));
			EXPECT(values[i] == next++);
		}
		for (; next < 1000 * (int64_t)gone + N; next++) {
			RB_TRY(rubato_recv(comm, &values[0], 1, RUBATO_INT64, 0, 9));
			EXPECT(values[0] == next);
		}
		for (uint32_t i = 0; i < N; i++)
			rubato_op_free(ops[i]);
	}
	return RUBATO_OK;
}

/* Of several sends in flight some are taken back, others not: those arrive, in order. */
static rubato_status sends_main(rubato_comm *comm, void *arg)
{
	enum { N = 4 };
	int64_t *large[N], value;
	rubato_op *ops[N];

	(void)arg;
	for (uint32_t i = 0; i < N; i++)
		large[i] = calloc(LARGE, sizeof(**large));
	for (uint32_t gone = 0; gone < 1u << N; gone++) {
		bool early = gone % 3 == 0; /* Receives are in flight before what is taken back. */

		if (rubato_rank(comm) == 0) {
			for (uint32_t i = 0; i < N; i++) {
				large[i][0] = large[i][LARGE - 1] = 10 * gone + i;
				RB_TRY(rubato_op_send(comm, large[i], LARGE, RUBATO_INT64, 1, 3,
						      &ops[i]));
				RB_TRY(rubato_start(ops[i]));
			}
			for (uint32_t i = 0; i < N; i++)
				if (gone & 1u << i)
					EXPECT(rubato_cancel(ops[i]) == RUBATO_ERR_CANCELLED);
			value = gone;
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 4));
			for (uint32_t i = 0; i < N; i++) {
				if (!(gone & 1u << i))
					RB_TRY(rubato_wait(ops[i], 0));
				rubato_op_free(ops[i]);
			}
			/* One more, which must not be taken for any of those. */
			large[0][0] = large[0][LARGE - 1] = -1;
			RB_TRY(rubato_send(comm, large[0], LARGE, RUBATO_INT64, 1, 3));
			continue;
		}
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 4));
		EXPECT(value == gone);
		for (uint32_t i = 0; i < N && early; i++) {
			RB_TRY(rubato_op_recv(comm, large[i], LARGE, RUBATO_INT64, 0, 3, &ops[i]));
			if (!(gone & 1u << i))
				RB_TRY(rubato_start(ops[i]));
		}
		for (uint32_t i = 0; i < N; i++) {
			if (!(gone & 1u << i)) {
				RB_TRY(early ? rubato_wait(ops[i], 0)
					     : rubato_recv(comm, large[i], LARGE, RUBATO_INT64, 0,
							   3));
				EXPECT(large[i][0] == 10 * gone + i);
				EXPECT(large[i][LARGE - 1] == 10 * gone + i);
			}
			if (early)
				rubato_op_free(ops[i]);
		}
		RB_TRY(rubato_recv(comm, large[0], LARGE, RUBATO_INT64, 0, 3));
		EXPECT(large[0][LARGE - 1] == -1);
	}
	for (uint32_t i = 0; i < N; i++)
		free(large[i]);
	return RUBATO_OK;
}

/* ---- Random: sends of all sizes on a few tags, and receives, taken back or not ---- */

#define TAGS 3
#define SENDS 60
#define SIZES 4

static uint64_t count_of(uint32_t tag)
{
	static const uint64_t counts[TAGS] = { 1, 1500, 40000 };

	return counts[tag]; /* Of a tag all have one: a receive must know it. */
}

struct posted {
	rubato_op *op;
	int64_t *data;
	uint32_t tag;
	int64_t value;
	bool taken_back;
};

static rubato_status random_sender(rubato_comm *comm, struct rb_rng *rng)
{
	int64_t next[TAGS] = { 0 };
	uint64_t sent[TAGS] = { 0 };
	struct posted posted[SENDS];

	for (uint32_t i = 0; i < SENDS; i++) {
		struct posted *p = &posted[i];

		*p = (struct posted) { .tag = (uint32_t)rb_rng_below(rng, TAGS) };
		p->value = next[p->tag]++;
		sent[p->tag] |= UINT64_C(1) << p->value;
		p->data = calloc(count_of(p->tag), sizeof(int64_t));
		p->data[0] = p->data[count_of(p->tag) - 1] = p->value;
		RB_TRY(rubato_op_send(comm, p->data, count_of(p->tag), RUBATO_INT64, 1, p->tag,
				      &p->op));
		RB_TRY(rubato_start(p->op));
		if (rb_rng_below(rng, 3) == 0)
			rubato_sleep(comm, rb_rng_below(rng, 30000));
		if (rb_rng_below(rng, 3) != 0)
			continue;
		p = &posted[rb_rng_below(rng, i + 1)];
		if (!p->taken_back && rubato_cancel(p->op) == RUBATO_ERR_CANCELLED) {
			p->taken_back = true;
			sent[p->tag] &= ~(UINT64_C(1) << p->value);
		}
	}
	RB_TRY(rubato_send(comm, sent, TAGS, RUBATO_UINT64, 1, 100));
	for (uint32_t i = 0; i < SENDS; i++) {
		if (!posted[i].taken_back)
			RB_TRY(rubato_wait(posted[i].op, 0));
		rubato_op_free(posted[i].op);
		free(posted[i].data);
	}
	return RUBATO_OK;
}

/* Each once; what was sent after another may only come first where one was taken back. */
static rubato_status seen_add(uint64_t *seen, uint64_t sent, uint32_t tag, const int64_t *data)
{
	uint64_t bit = UINT64_C(1) << data[0];

	if (data[count_of(tag) - 1] != data[0] || (*seen & bit) != 0 || (sent & bit) == 0 ||
	    ((sent & (sent + 1)) == 0 && *seen != bit - 1))
		return RB_FAIL(RUBATO_ERR_INTERNAL,
			       "tag %u: %lld, ends with %lld; seen %llx of %llx", tag,
			       (long long)data[0], (long long)data[count_of(tag) - 1],
			       (unsigned long long)*seen, (unsigned long long)sent);
	*seen |= bit;
	return RUBATO_OK;
}

/* Receives are taken back only while nothing can have met them. */
static rubato_status random_receiver(rubato_comm *comm, struct rb_rng *rng)
{
	uint64_t seen[TAGS] = { 0 }, sent[TAGS];
	int64_t *data[TAGS][SIZES];
	rubato_op *ops[TAGS][SIZES];

	for (uint32_t t = 0; t < TAGS; t++)
		for (uint32_t i = 0; i < SIZES; i++) {
			data[t][i] = calloc(count_of(t), sizeof(int64_t));
			RB_TRY(rubato_op_recv(comm, data[t][i], count_of(t), RUBATO_INT64, 0, t,
					      &ops[t][i]));
		}
	/* Receives that wait before anything is sent, of which some are taken back. */
	for (uint32_t t = 0; t < TAGS; t++)
		for (uint32_t i = 0; i < SIZES; i++)
			RB_TRY(rubato_start(ops[t][i]));
	bool back[TAGS][SIZES] = { { false } };

	for (uint32_t i = 0; i < TAGS * SIZES / 2; i++) {
		uint32_t t = (uint32_t)rb_rng_below(rng, TAGS);
		uint32_t k = (uint32_t)rb_rng_below(rng, SIZES);

		if (!back[t][k])
			EXPECT(rubato_cancel(ops[t][k]) == RUBATO_ERR_CANCELLED);
		back[t][k] = true;
	}
	RB_TRY(rubato_barrier(comm));
	RB_TRY(rubato_recv(comm, sent, TAGS, RUBATO_UINT64, 0, 100));
	for (uint32_t t = 0; t < TAGS; t++)
		for (uint32_t i = 0; i < SIZES; i++) {
			if (!back[t][i] && seen[t] != sent[t]) {
				RB_TRY(rubato_wait(ops[t][i], 0));
				RB_TRY(seen_add(&seen[t], sent[t], t, data[t][i]));
			}
		}
	for (uint32_t t = 0; t < TAGS; t++) {
		for (uint32_t i = 0; i < SIZES; i++) /* Those for which nothing is left. */
			rubato_op_free(ops[t][i]);
		while (seen[t] != sent[t]) {
			RB_TRY(rubato_recv(comm, data[t][0], count_of(t), RUBATO_INT64, 0, t));
			RB_TRY(seen_add(&seen[t], sent[t], t, data[t][0]));
		}
		for (uint32_t i = 0; i < SIZES; i++)
			free(data[t][i]);
	}
	return RUBATO_OK;
}

static rubato_status random_main(rubato_comm *comm, void *arg)
{
	struct rb_rng rng = { *(const uint64_t *)arg * 2 + rubato_rank(comm) };

	for (uint32_t i = 0; i < 3; i++) {
		if (rubato_rank(comm) == 0)
			RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_rank(comm) == 0 ? random_sender(comm, &rng)
					      : random_receiver(comm, &rng));
		RB_TRY(rubato_barrier(comm));
	}
	return RUBATO_OK;
}

/*
 * A receive that is put off though its message is here, as it found none the last time, while the
 * next one is posted and has found what nobody else waits for. Taken back now, the first one has
 * its own.
 */
static rubato_status here_main(rubato_comm *comm, void *arg)
{
	int64_t values[3] = { 0 }, last = 3;
	rubato_op *ops[2];
	rubato_status err;

	(void)arg;
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_barrier(comm));
		for (int64_t value = 1; value <= 2; value++)
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 5));
		RB_TRY(rubato_send(comm, &last, 1, RUBATO_INT64, 1, 6));
		return rubato_barrier(comm);
	}
	for (uint32_t i = 0; i < 2; i++)
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 0, 5, &ops[i]));
	RB_TRY(rubato_start(ops[0]));
	EXPECT(rubato_cancel(ops[0]) == RUBATO_ERR_CANCELLED);
	RB_TRY(rubato_barrier(comm));
	RB_TRY(rubato_recv(comm, &values[2], 1, RUBATO_INT64, 0, 6));
	rubato_sleep(comm, 1000000); /* What may overtake has come by then, too. */
	for (uint32_t i = 0; i < 2; i++)
		RB_TRY(rubato_start(ops[i]));
	err = rubato_cancel(ops[0]);
	RB_TRY(rubato_wait(ops[1], 0));
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_CANCELLED);
	EXPECT(values[1] == (err == RUBATO_OK ? 2 : 1));
	if (err != RUBATO_OK)
		RB_TRY(rubato_recv(comm, &values[0], 1, RUBATO_INT64, 0, 5));
	EXPECT(values[0] + values[1] == 3 && values[2] == 3);
	for (uint32_t i = 0; i < 2; i++)
		rubato_op_free(ops[i]);
	return rubato_barrier(comm);
}

static void run_ranks(local_main rank_main, uint64_t seed)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = 2;
	options.seed = seed;
	options.reorder = 1;
	options.jitter = 3;
	options.ranks_per_node = seed % 2 == 0 ? 0 : 2;
	if (strcmp(transport_name, "sim") != 0)
		err = local_run(2, transports, rank_main, &seed, NULL);
	else
		err = rubato_sim_run(&options, rank_main, &seed, &result);
	ck_assert_msg(err == RUBATO_OK, "seed %llu: %s: %s", (unsigned long long)seed,
		      rubato_status_name(err), rubato_error_text());
}

START_TEST(what_timed_out_is_called_again)
{
	run_ranks(retry_main, 1);
}
END_TEST

START_TEST(receives_are_taken_back)
{
	run_ranks(receives_main, 1);
}
END_TEST

START_TEST(what_is_taken_back_has_what_is_here)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		run_ranks(here_main, seed);
}
END_TEST

START_TEST(sends_are_taken_back)
{
	run_ranks(sends_main, 1);
}
END_TEST

#define RANDOM_PARTS 3 /* Side by side: over verbs a job waits for as much as half a second. */
START_TEST(random_messages)
{
	uint32_t seeds = strcmp(transport_name, "sim") == 0 ? 300 : 30;

	if (test_length() == TEST_SHORT)
		seeds /= 10;
	for (uint64_t seed = (uint64_t)_i; seed < seeds; seed += RANDOM_PARTS)
		run_ranks(random_main, seed);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("messages");

	side_by_side(3);
	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_timed_out_is_called_again);
	tcase_add_test(tc, receives_are_taken_back);
	tcase_add_test(tc, what_is_taken_back_has_what_is_here);
	tcase_add_test(tc, sends_are_taken_back);
	tcase_add_loop_test(tc, random_messages, 0, RANDOM_PARTS);
	return check_main("messages", tc);
}
