/*
 * test_helped.c -- the allreduce that is helped against a late rank, on real transports: ranks are
 * threads. Right sums and the same bits whoever comes when, two of them in flight at once, beside
 * other calls; one that is cancelled, one that is refused on one rank, and ones that are freed
 * while others still work. In virtual time: tests/sim/test_helped.c.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

#define COUNT 30000u
#define STARTS 12u
#define RANKS_MAX 5u

static const struct rb_transport_ops *transports[2];

struct vectors {
	int32_t in[COUNT], sum[COUNT];
	float rough[COUNT], rough_sum[COUNT], first[COUNT];
};

static void fill(struct vectors *v, uint32_t rank, uint32_t start)
{
	for (uint32_t i = 0; i < COUNT; i++) {
		v->in[i] = (int32_t)(i * 7 + rank * 1000 + start);
		v->rough[i] = (float)(i % 977 + 1) * 0.1f / (float)(rank + 3);
	}
}

static bool is_right(const struct vectors *v, uint32_t n, uint32_t start)
{
	for (uint32_t i = 0; i < COUNT; i++)
		if (v->sum[i] != (int32_t)(n * (i * 7 + start) + 1000 * (n * (n - 1) / 2)))
			return false;
	return true;
}

/* Rank and start draw a sleep of up to 2 ms, none in most cases. */
static void come_late(rubato_comm *comm, uint32_t start)
{
	uint32_t x = (rubato_rank(comm) * 40503u + start * 30011u) % 4096;

	if (x > 2800)
		rubato_sleep(comm, (x - 2800) * 1500);
}

static rubato_status both(rubato_comm *comm, rubato_op *a, rubato_op *b, uint32_t start)
{
	int32_t word = 1, words = 0;

	RB_TRY(rubato_start(start % 2 == 0 ? a : b)); /* In any order. */
	come_late(comm, start);
	RB_TRY(rubato_start(start % 2 == 0 ? b : a));
	RB_TRY(rubato_allreduce(comm, &word, &words, 1, RUBATO_INT32, RUBATO_SUM));
	EXPECT(words == (int32_t)rubato_size(comm));
	RB_TRY(rubato_wait(b, RUBATO_TIMEOUT_DEFAULT));
	return rubato_wait(a, RUBATO_TIMEOUT_DEFAULT);
}

static rubato_status starts(rubato_comm *comm, struct vectors *v)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	rubato_op *a = NULL, *b = NULL;

	RB_TRY(rubato_op_allreduce_helped(comm, v->in, v->sum, COUNT, RUBATO_INT32, RUBATO_SUM,
					  &a));
	RB_TRY(rubato_op_allreduce_helped(comm, v->rough, v->rough_sum, COUNT, RUBATO_FLOAT32,
					  RUBATO_AVG, &b));
	for (uint32_t s = 0; s < STARTS; s++) {
		fill(v, rank, s);
		come_late(comm, s + 100);
		RB_TRY(both(comm, a, b, s));
		EXPECT(is_right(v, n, s));
		if (s == 0)
			memcpy(v->first, v->rough_sum, sizeof(v->first));
		EXPECT(memcmp(v->first, v->rough_sum, sizeof(v->first)) == 0);
	}
	RB_TRY(rubato_broadcast(comm, v->first, COUNT, RUBATO_FLOAT32, 0));
	EXPECT(memcmp(v->first, v->rough_sum, sizeof(v->first)) == 0);
	rubato_op_free(b); /* Whoever is slower still waits for it. */
	rubato_op_free(a);
	return RUBATO_OK;
}

static rubato_status starts_main(rubato_comm *comm, void *arg)
{
	struct vectors *v = malloc(sizeof(*v));
	rubato_status err;

	(void)arg;
	EXPECT(v != NULL);
	err = starts(comm, v);
	free(v);
	return err;
}

/* Small ones, and those of two ranks, are plain; wide ones are converted on both ways. */
static rubato_status kinds_main(rubato_comm *comm, void *arg)
{
	static uint16_t in[40000], out[RANKS_MAX][40000];
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	int32_t few[2] = { 1, 2 }, sums[2] = { 0, 0 };
	rubato_op *op = NULL;

	(void)arg; /* All zero: read by all, written by none. */
	RB_TRY(rubato_op_allreduce_helped(comm, few, sums, 2, RUBATO_INT32, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(sums[0] == (int32_t)n && sums[1] == 2 * (int32_t)n);
	rubato_op_free(op);
	RB_TRY(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE));
	memset(out[rank], 0x5a, sizeof(out[rank]));
	RB_TRY(rubato_op_allreduce_helped(comm, in, out[rank], 40000, RUBATO_FLOAT16, RUBATO_SUM,
					  &op));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(memcmp(in, out[rank], sizeof(in)) == 0);
	rubato_op_free(op);
	return RUBATO_OK;
}

/* Before its late rank is named there is no run to end. */
static rubato_status cancel_main(rubato_comm *comm, void *arg)
{
	struct vectors *v = calloc(1, sizeof(*v));
	rubato_op *op = NULL;
	rubato_status err;

	(void)arg;
	EXPECT(v != NULL);
	err = rubato_op_allreduce_helped(comm, v->in, v->sum, COUNT, RUBATO_INT32, RUBATO_SUM, &op);
	if (err == RUBATO_OK)
		err = rubato_start(op);
	if (err == RUBATO_OK)
		err = rubato_rank(comm) == 0 ? rubato_cancel(op)
					     : rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	if (err == (rubato_rank(comm) == 0 ? RUBATO_ERR_CANCELLED : RUBATO_ERR_PEER))
		err = RUBATO_OK; /* As it should: the others may hear of it while they make it. */
	else if (err == RUBATO_OK)
		err = RUBATO_ERR_INTERNAL;
	rubato_op_free(op);
	free(v);
	(void)rubato_finalize(comm); /* How it was poisoned. */
	return err;
}

/* What is refused on one rank alone does not count there: what is made next is the others' next. */
static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	int32_t one = 1, sum = 0, n = (int32_t)rubato_size(comm);
	struct vectors *v = calloc(1, sizeof(*v));
	rubato_partial *partial = NULL;
	rubato_op *op = NULL;
	bool collected = false;

	(void)arg;
	EXPECT(v != NULL);
	if (rubato_rank(comm) == 0)
		EXPECT(rubato_op_allreduce_helped(comm, NULL, v->sum, COUNT, RUBATO_INT32,
						  RUBATO_SUM, &op) == RUBATO_ERR_ARGUMENT);
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = (uint32_t)n;
	RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT32, RUBATO_SUM, &options, &partial));
	RB_TRY(rubato_op_allreduce_helped(comm, v->in, v->sum, COUNT, RUBATO_INT32, RUBATO_SUM,
					  &op));
	fill(v, rubato_rank(comm), 0);
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_partial_contribute(partial, &one, 0, 1));
	RB_TRY(rubato_partial_collect(partial, &sum, &collected, NULL, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(collected && sum == n);
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(is_right(v, (uint32_t)n, 0));
	rubato_op_free(op);
	free(v);
	return rubato_partial_free(partial);
}

START_TEST(right_whoever_comes_when)
{
	static const uint32_t ranks[] = { 2, 3, 4, 5 };
	rubato_status err = local_run(ranks[_i], transports, starts_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}
END_TEST

START_TEST(small_ones_and_wide_ones)
{
	rubato_status err = local_run(4, transports, kinds_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}
END_TEST

START_TEST(refused_on_one_rank)
{
	rubato_status err = local_run(4, transports, refused_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
}
END_TEST

START_TEST(cancelled_before_the_name)
{
	rubato_status status[4];

	(void)!local_run_raw(4, transports, cancel_main, NULL, status);
	for (uint32_t r = 0; r < 4; r++)
		ck_assert_msg(status[r] == RUBATO_OK, "rank %u: %s", r,
			      rubato_status_name(status[r]));
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("helped");

	transports[0] = local_transport(argc > 1 ? argv[1] : "shm");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, right_whoever_comes_when, 0, 4);
	tcase_add_test(tc, small_ones_and_wide_ones);
	tcase_add_test(tc, refused_on_one_rank);
	tcase_add_test(tc, cancelled_before_the_name);
	return check_main("helped", tc);
}
