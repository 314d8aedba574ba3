/*
 * test_sampler.c -- shared work and injected delays: every batch is drawn once, whoever is slow;
 * delays are drawn alike on all ranks.
 */
#include <stdio.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "trainer/base/streams.h"
#include "trainer/data/sampler.h"
#include "trainer/emulation/delay.h"

#define RANKS_MAX 17
#define EPOCH_STEPS 6
#define BATCH 3

static struct world {
	uint64_t step_count; /* Of a rank, in the mean. */
	uint64_t work_ns, slow_ns;
	uint32_t depth;
	uint32_t rows[RANKS_MAX * EPOCH_STEPS * BATCH + 5]; /* How often each was drawn. */
	uint32_t drawn[RANKS_MAX];                          /* Batches, by rank. */
	uint32_t places[64 * RANKS_MAX];                    /* How often each batch was. */
} w;

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), ranks = rubato_size(comm);
	uint32_t row_count = ranks * EPOCH_STEPS * BATCH + 1; /* One row is left out. */
	struct rng rng = rng_open(3, TR_STREAM_DELAY, rank);
	struct tr_error error = { .text = "" };
	struct tr_sampler *sampler = NULL;
	struct tr_batch batch;
	struct tr_shuffle shuffle;

	(void)arg;
	TR_TRY(tr_shuffle_open(&shuffle, row_count, rank, ranks, BATCH, 9, true, &error));
	TR_TRY(tr_sampler_open(&sampler, TR_SAMPLER_SHARED, w.depth, &shuffle, comm, w.step_count,
			       &error));
	for (uint64_t step = 0;; step++) {
		TR_TRY(tr_sampler_next(sampler, step, &batch, &error));
		if (batch.rows == NULL)
			break;
		TR_TRY(tr_sampler_take(sampler, &error));
		w.places[batch.first_place / BATCH]++;
		w.drawn[rank]++;
		for (int i = 0; i < BATCH; i++)
			w.rows[batch.rows[i]]++;
		if (w.work_ns > 0)
			rubato_sleep(comm,
				     rng_below(&rng, w.work_ns) + (rank == 0 ? w.slow_ns : 0));
	}
	TR_TRY(tr_sampler_leave(sampler, &error));
	tr_sampler_close(sampler);
	tr_shuffle_close(&shuffle);
	return RUBATO_OK;
}

static void run(uint32_t ranks, uint64_t steps, uint64_t work_ns, uint64_t slow_ns, uint32_t depth)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	memset(&w, 0, sizeof(w));
	w.step_count = steps;
	w.work_ns = work_ns;
	w.slow_ns = slow_ns;
	w.depth = depth;
	options.rank_count = ranks;
	options.latency_ns = 5000;
	options.jitter = 0.5;
	options.seed = ranks;
	ck_assert_int_eq(rubato_sim_run(&options, rank_main, NULL, &result), RUBATO_OK);
	for (uint64_t b = 0; b < sizeof(w.places) / sizeof(w.places[0]); b++)
		ck_assert_uint_eq(w.places[b], b < steps * ranks);
}

static const uint32_t sizes[] = { 1, 2, 3, 5, 8, 17 };
#define SIZE_COUNT 6

START_TEST(every_batch_is_drawn_once)
{
	static const uint64_t steps[] = { 1, 2, EPOCH_STEPS, 2 * EPOCH_STEPS, 20 };
	/* Work that takes no time, as long as a message, much longer. */
	static const uint64_t times[] = { 0, 10000, 1000000 };

	for (int i = 0; i < SIZE_COUNT; i++)
		for (int s = 0; s < 5; s++) {
			uint32_t n = sizes[i];

			run(n, steps[s], times[_i], 0, 8);
			for (uint32_t r = 0;
			     steps[s] % EPOCH_STEPS == 0 && r < n * EPOCH_STEPS * BATCH + 1; r++)
				ck_assert_uint_le(w.rows[r], steps[s] / EPOCH_STEPS);
		}
}
END_TEST

START_TEST(a_slow_rank_draws_fewer)
{
	for (int i = 1; i < SIZE_COUNT; i++) {
		run(sizes[i], 20, 1000000, 4000000, 8);
		ck_assert_uint_gt(w.drawn[0], 0);
		for (uint32_t r = 1; r < sizes[i]; r++)
			ck_assert_uint_gt(w.drawn[r], 2 * w.drawn[0]);
	}
}
END_TEST

/* One rank computes its first batch, and the one it drew ahead; the others draw all the rest. */
START_TEST(nobody_waits_for_a_very_slow_rank)
{
	run(5, 6, 100000, 1000000000, 8);
	ck_assert_uint_eq(w.drawn[0], 2);
}
END_TEST

/* ---- Delays ---- */

static struct tr_delay parsed(const char *text)
{
	struct option_error error;
	struct tr_delay delay;

	ck_assert_msg(tr_delay_parse("--delay", text, &delay, &error), "%s: %s", text, error.text);
	return delay;
}

START_TEST(delays_are_what_they_say)
{
	const uint64_t ms = 1000000;
	struct tr_delay none = parsed("none"), two = parsed("random:200ms,300ms"),
			ramp = parsed("rotating:350ms"), still = parsed("linear:350ms"),
			one = parsed("rank:2:1.5ms");
	uint32_t hits[8] = { 0 };
	unsigned both = 0;

	for (uint64_t step = 0; step < 4000; step++) {
		uint64_t sum = 0, ramp_sum = 0;

		for (uint32_t r = 0; r < 8; r++) {
			uint64_t at = tr_delay_at(&two, 7, r, 8, step);

			sum += at;
			hits[r] += at > 0;
			both += at == 500 * ms;
			ramp_sum += tr_delay_at(&ramp, 7, r, 8, step);
			ck_assert_uint_eq(tr_delay_at(&none, 7, r, 8, step), 0);
			ck_assert_uint_eq(tr_delay_at(&still, 7, r, 8, step), r * 50 * ms);
			ck_assert_uint_eq(tr_delay_at(&ramp, 7, r, 8, step),
					  (r + step) % 8 * 50 * ms);
			ck_assert_uint_eq(tr_delay_at(&one, 7, r, 8, step),
					  r == 2 ? 3 * ms / 2 : 0);
		}
		/* All ranks draw alike, so exactly one is late for each time. */
		ck_assert_uint_eq(sum, 500 * ms);
		ck_assert_uint_eq(ramp_sum, 28 * 50 * ms);
	}
	for (uint32_t r = 0; r < 8; r++) /* 937.5, give or take 5 standard deviations. */
		ck_assert(hits[r] > 795 && hits[r] < 1080);
	ck_assert(both > 395 && both < 605); /* 500. */
	ck_assert_uint_eq(tr_delay_at(&ramp, 7, 0, 1, 3), 0);
	unsigned moved = 0;
	for (uint64_t step = 0; step < 100; step++)
		moved += tr_delay_at(&two, 7, 0, 8, step) != tr_delay_at(&two, 8, 0, 8, step);
	ck_assert_uint_gt(moved, 0); /* The seed matters. */
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("work");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, every_batch_is_drawn_once, 0, 3);
	tcase_add_test(tests, a_slow_rank_draws_fewer);
	tcase_add_test(tests, nobody_waits_for_a_very_slow_rank);
	tcase_add_test(tests, delays_are_what_they_say);
	return check_main("work", tests);
}
