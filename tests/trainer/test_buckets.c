/*
 * test_buckets.c -- how a gradient is cut, and that its pieces are reduced: each once it is
 * complete and not before, to the bits that one piece gives; emulated computation releases them on
 * time. Ranks are simulated, so that times are exact.
 */
#include <stdio.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "trainer/emulation/compute_time.h"
#include "trainer/rules/buckets.h"

START_TEST(a_cut_covers_all_once)
{
	static const size_t totals[] = { 1, 15, 16, 17, 4096, 50890, 1000003 };
	static const uint64_t sizes[] = { 0, 1024, 1087, 4096, 65536, 1u << 20 };
	struct tr_cut cut;
	struct tr_error error;

	for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			uint64_t size = sizes[s] / 64 * 16;
			size_t end = totals[t];

			if (size > 0 && totals[t] / size >= TR_BUCKETS_MAX)
				continue;
			ck_assert_int_eq(tr_cut_make(&cut, totals[t], sizes[s], &error), RUBATO_OK);
			for (uint32_t i = 0; i < cut.count; i++) {
				ck_assert_uint_eq(tr_cut_end(&cut, i), end);
				ck_assert_uint_lt(tr_cut_begin(&cut, i), end);
				ck_assert(size == 0 || end - tr_cut_begin(&cut, i) <= size);
				end = tr_cut_begin(&cut, i);
				ck_assert_uint_eq(end % TR_BUCKET_ALIGN, 0);
			}
			ck_assert_uint_eq(end, 0);
			ck_assert(size > 0 || cut.count == 1);
		}
	ck_assert_int_eq(tr_cut_make(&cut, (size_t)TR_BUCKETS_MAX * 256, 1024, &error), RUBATO_OK);
	ck_assert_uint_eq(cut.count, TR_BUCKETS_MAX);
	ck_assert_int_eq(tr_cut_make(&cut, (size_t)TR_BUCKETS_MAX * 256 + 1, 1024, &error),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(error.exit_code, TR_EXIT_USAGE);
}
END_TEST

/* ---- In a simulation ---- */

#define RANKS 4
#define TOTAL 5000 /* Floats; 5 buckets of 4 KiB, the last one short. */
#define SPAN_NS 9000000

static void fill(float *vector, uint32_t rank)
{
	for (size_t i = 0; i < TOTAL; i++)
		vector[i] = (float)((i * 7919 + rank * 104729) % 1009) / 77.0f;
}

static rubato_status pieces_rank(rubato_comm *comm, void *arg)
{
	static float vector[RANKS][TOTAL], whole[RANKS][TOTAL];
	uint32_t rank = rubato_rank(comm), over;
	struct tr_buckets *b = calloc(1, sizeof(*b));
	struct tr_error error = { .text = "" };
	struct tr_cut cut;

	(void)arg;
	ck_assert_int_eq(tr_cut_make(&cut, TOTAL, 4096, &error), RUBATO_OK);
	ck_assert_uint_eq(cut.count, 5);
	ck_assert_int_eq(tr_buckets_open(b, comm, &tr_vectors_host, &cut, vector[rank], &error),
			 RUBATO_OK);
	for (int turn = 0; turn < 3; turn++) {
		fill(vector[rank], rank);
		fill(whole[rank], rank);
		TR_TRY(rubato_allreduce(comm, whole[rank], whole[rank], TOTAL, RUBATO_FLOAT32,
					RUBATO_AVG));
		TR_TRY(tr_buckets_ready(b, TOTAL - 1, &error));
		ck_assert_uint_eq(b->started, 0); /* One float is no bucket. */
		TR_TRY(tr_buckets_ready(b, tr_cut_begin(&cut, 1), &error));
		ck_assert_uint_eq(b->started, 2);
		TR_TRY(tr_buckets_over(b, &over, &error));
		ck_assert_uint_eq(over, 0);
		rubato_sleep(comm, 1000000000); /* Far more than they need. */
		TR_TRY(tr_buckets_over(b, &over, &error));
		ck_assert_uint_eq(over, 2);
		for (size_t i = 0; i < tr_cut_begin(&cut, 1); i++) /* The rest was not touched. */
			ck_assert_float_eq(vector[rank][i],
					   (float)((i * 7919 + rank * 104729) % 1009) / 77.0f);
		TR_TRY(tr_buckets_ready(b, 0, &error));
		ck_assert_uint_eq(b->started, 5);
		for (uint32_t i = 0; i < cut.count; i++)
			TR_TRY(tr_buckets_wait(b, i, &error));
		tr_buckets_again(b);
		ck_assert_int_eq(memcmp(vector[rank], whole[rank], sizeof(whole[rank])), 0);
	}
	tr_buckets_close(b);
	free(b);
	return RUBATO_OK;
}

static void simulate(rubato_sim_main rank_main, void *arg)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = RANKS;
	ck_assert_msg(rubato_sim_run(&options, rank_main, arg, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}

START_TEST(pieces_are_reduced_when_complete)
{
	/* The order of a ring's operands depends on the place in the vector: not its business. */
	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	simulate(pieces_rank, NULL);
}
END_TEST

/* ---- Emulated computation ---- */

struct releases {
	rubato_comm *comm;
	uint64_t begin_ns, at_ns[8];
	size_t first[8];
	uint32_t count;
	uint64_t each_ns; /* Spent in ready(). */
};

static rubato_status note_release(void *arg, size_t first)
{
	struct releases *r = arg;

	ck_assert_uint_lt(r->count, 8);
	r->first[r->count] = first;
	r->at_ns[r->count++] = rubato_now(r->comm) - r->begin_ns;
	rubato_sleep(r->comm, r->each_ns);
	return RUBATO_OK;
}

static rubato_status timed_rank(rubato_comm *comm, void *arg)
{
	const struct tr_compute_time *compute_time = arg;
	struct tr_error error;
	struct tr_cut cut;

	ck_assert_int_eq(tr_cut_make(&cut, TOTAL, 4096, &error), RUBATO_OK);
	for (uint64_t each_ns = 0; each_ns <= SPAN_NS; each_ns += SPAN_NS) {
		struct releases r = { .comm = comm, .each_ns = each_ns };
		struct tr_ready ready = { note_release, &r };

		r.begin_ns = rubato_now(comm);
		TR_TRY(tr_compute_time_pass(compute_time, compute_time->span_ns, comm, &cut,
					    r.begin_ns, &ready));
		ck_assert_uint_eq(r.count, cut.count);
		for (uint32_t i = 0; i < r.count; i++) {
			double part = (double)(TOTAL - tr_cut_begin(&cut, i)) / TOTAL;
			double due = SPAN_NS *
				     (compute_time->forward + (1.0 - compute_time->forward) * part);

			ck_assert_uint_eq(r.first[i], tr_cut_begin(&cut, i));
			if (each_ns == 0)
				ck_assert_double_eq_tol((double)r.at_ns[i], due, 1.0);
			else if (i > 0) /* What was late already is not put off further. */
				ck_assert_uint_eq(r.at_ns[i], r.at_ns[i - 1] + each_ns);
		}
	}
	return RUBATO_OK;
}

START_TEST(time_passes_as_emulated)
{
	static const double forward[] = { 0.0, 1.0 / 3.0, 1.0 };
	struct tr_compute_time compute_time = { .kind = TR_COMPUTE_TIME_STEP,
						.span_ns = SPAN_NS,
						.forward = forward[_i] };

	simulate(timed_rank, &compute_time);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("buckets");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, a_cut_covers_all_once);
	tcase_add_test(tests, pieces_are_reduced_when_complete);
	tcase_add_loop_test(tests, time_passes_as_emulated, 0, 3);
	return check_main("buckets", tests);
}
