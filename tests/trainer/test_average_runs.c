/*
 * test_average_runs.c -- whole runs of model averaging by the program (argument 1): real ranks and
 * simulated ones bit for bit, exact counts, bytes that shrink, the period in the metrics, options
 * that make no sense together.
 */
#include <math.h>
#include <stdio.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

static void save(const char *line, const char *more, const char *name)
{
	char whole[1024];

	snprintf(whole, sizeof(whole), "%s %s --save %s --out out --no-report", line, more, name);
	line_succeed(train, whole);
}

/* The largest difference of two saved models, over the largest value. */
static double difference(const char *a, const char *b)
{
	struct tr_error error = { 0 };
	struct tr_npy x, y;
	double most = 0.0, scale = 0.0;

	ck_assert_int_eq(tr_npy_read(a, &x, &error), RUBATO_OK);
	ck_assert_int_eq(tr_npy_read(b, &y, &error), RUBATO_OK);
	ck_assert_uint_eq(x.count, y.count);
	for (size_t i = 0; i < x.count; i++) {
		double p = ((const float *)x.bytes)[i], q = ((const float *)y.bytes)[i];

		most = fmax(most, fabs(p - q));
		scale = fmax(scale, fabs(p));
	}
	free(x.bytes);
	free(y.bytes);
	return most / scale;
}

#define STEPS "--batch 4 --steps 42 --momentum 0.9 --weight-decay 1e-3 --seed 4 --model mlp "

static const char *const algorithms[] = {
	"kavg --k 4 --outer block",
	"kavg --k 5 --wire int8 --opt-state average",
	"hier --k1 2 --k2 6 --group 2 --outer nesterov",
	"hier --k1 2 --k2 6 --group 2 --wire bf16",
	"periodic --period 5",
	"periodic --schedule post-local --period 5",
	"periodic --schedule adacomm --period 5",
	"adpsgd --opt-state reset",
	"local --k 7 --outer nesterov",
	"local --k 7 --pull 0.3 --outer slowmo",
};
#define ALGORITHM_COUNT ((int)(sizeof(algorithms) / sizeof(algorithms[0])))

START_TEST(real_and_simulated_ranks_agree)
{
	char line[512];

	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	snprintf(line, sizeof(line), STEPS "--ranks 3 --algorithm %s", algorithms[_i]);
	save(line, "--report-every 10", "real.npy");
	save(line, "--simulate --report-every 7", "sim.npy");
	ck_assert_double_eq(difference("real.npy", "sim.npy"), 0.0);
	save(STEPS "--ranks 3", "--simulate", "sync.npy");
	ck_assert_double_gt(difference("sync.npy", "sim.npy"), 1e-4);
}
END_TEST

/* Each step is rounded once more than in sync, for every rank count. */
START_TEST(one_step_between_averages_is_sync)
{
	static const char *const same[] = { "kavg --k 1", "hier --k2 1 --group 2",
					    "periodic --period 1",
					    "adpsgd --period 1 --period-max 1", "local --k 1" };
	static const int counts[] = { 3, 1, 2, 5, 8 };
	int count_count = test_length() == TEST_SHORT ? 1 : 5;
	char line[512];

	for (int i = 0; i < count_count; i++) {
		int ranks = counts[i];

		snprintf(line, sizeof(line), STEPS "--simulate --ranks %d", ranks);
		save(line, "", "sync.npy");
		ck_assert(!file_holds("out/metrics.jsonl", "\"period\":"));
		snprintf(line, sizeof(line), STEPS "--simulate --ranks %d --algorithm %s", ranks,
			 same[_i]);
		save(line, "", "one.npy");
		ck_assert_double_le(difference("sync.npy", "one.npy"), 2e-5);
		ck_assert_double_eq(summary_number("global_reductions"), 42);
		ck_assert_double_eq(number_last("out/metrics.jsonl", "period"), 1);
	}
}
END_TEST

static const struct {
	const char *algorithm;
	double global, local;
} counted[] = {
	{ "kavg --k 6", 7, 0 },
	{ "kavg --k 5", 9, 0 }, /* 8 and the last. */
	{ "kavg --k 99", 1, 0 },
	{ "hier --k1 2 --k2 6 --group 2", 7, 14 },
	{ "hier --k1 2 --k2 6", 7, 14 }, /* By the nodes. */
	{ "hier --k1 3 --k2 14 --group 4", 3, 13 },
	{ "periodic --period 7", 6, 0 },
	{ "local --k 6 --pull 0.2", 7, 0 },
};
#define COUNTED_COUNT ((int)(sizeof(counted) / sizeof(counted[0])))

START_TEST(reductions_are_counted_exactly)
{
	char line[512];

	snprintf(line, sizeof(line), STEPS "--simulate --ranks 4 --topology nodes:2 --algorithm %s",
		 counted[_i].algorithm);
	save(line, "", "w.npy");
	ck_assert_double_eq(summary_number("global_reductions"), counted[_i].global);
	ck_assert_double_eq(summary_number("local_reductions"), counted[_i].local);
	ck_assert_double_eq(summary_number("rounds"), counted[_i].global);
}
END_TEST

START_TEST(nodes_are_groups)
{
	static const char line[] = STEPS "--simulate --ranks 6 --topology nodes:3 --algorithm hier "
					 "--k1 2 --k2 6";

	save(line, "", "node.npy");
	save(line, "--group 3", "group.npy");
	ck_assert_double_eq(difference("node.npy", "group.npy"), 0.0);
	save(line, "--group 2", "other.npy");
	ck_assert_double_gt(difference("node.npy", "other.npy"), 1e-4);
}
END_TEST

/* Payload: 4, 2, and 1 + 4/128 bytes a value, twice, each time less a P-th; and little else. */
START_TEST(fewer_bits_are_fewer_bytes)
{
	static const char *const wires[] = { "f32", "bf16", "int8" };
	static const double bytes[] = { 4.0, 2.0, 1.0 + 4.0 / 128 };
	const double values = 64 * 500 + 500 + 3 * 500 + 3, averages = 30;
	char line[512];

	for (int ranks = 2; ranks <= (test_length() == TEST_SHORT ? 2 : 5); ranks++)
		for (int i = 0; i < 3; i++) {
			double wanted = 2.0 * (ranks - 1) * values * averages * bytes[i], sent;

			snprintf(line, sizeof(line),
				 "--simulate --ranks %d --model mlp --hidden 500 --batch 2 "
				 "--steps 30 --algorithm kavg --k 1 --wire %s",
				 ranks, wires[i]);
			ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=ring", 1), 0);
			save(line, "", "w.npy");
			sent = summary_number("bytes_sent");
			/* The first parameters and the scores of the end travel, too. */
			ck_assert_msg(sent >= wanted && sent <= 1.10 * wanted + ranks * values * 4,
				      "%d ranks, %s: %g bytes, not %g", ranks, wires[i], sent,
				      wanted);
		}
}
END_TEST

/* In virtual time: a mean that takes less than K steps costs nothing, but for the last. */
START_TEST(overlapped_means_cost_no_time)
{
	static const char line[] = "--simulate --ranks 4 --model mlp --batch 4 --steps 40 "
				   "--compute-time 10ms --bandwidth 10Mbit --algorithm local --k 4";
	double blocked;

	save(line, "", "blocked.npy");
	blocked = summary_number("seconds") - 40 * 0.01;
	ck_assert_double_gt(blocked, 10 * 0.02); /* A mean takes two steps and more, */
	ck_assert_double_lt(blocked, 10 * 0.04); /* and less than four. */
	save(line, "--pull 0.2", "pull.npy");
	ck_assert_double_eq_tol(summary_number("seconds"), 0.4 + blocked / 10, 1e-3);
	ck_assert_double_eq(summary_number("global_reductions"), 10);
}
END_TEST

static const char *const diverging[] = {
	"--simulate --ranks 5 --algorithm hier --k1 1 --k2 4 --group 2",
	"--ranks 3 --algorithm hier --k1 1 --k2 4 --group 2",
	"--simulate --ranks 5 --algorithm hier --k1 1 --k2 4 --group 3 --wire int8",
	"--ranks 2 --algorithm local --k 4 --pull 0.5",
	"--simulate --ranks 3 --algorithm adpsgd",
};
#define DIVERGING_COUNT ((int)(sizeof(diverging) / sizeof(diverging[0])))

/* All leave, at once, groups' communicators and what is in flight behind them; one says why. */
START_TEST(a_run_that_diverges_ends)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "--model logistic --batch 4 --steps 99 --report-every 7 --lr 1e4 "
		 "--weight-decay 1e3 %s",
		 diverging[_i]);
	line_fail(train, line, 1, "diverged");
}
END_TEST

static const struct {
	const char *options, *word;
} bad[] = {
	{ "kavg --k 0", "--k" },
	{ "kavg --k1 4", "--k1" },
	{ "kavg --outer-momentum 0.5", "--outer-momentum" },
	{ "kavg --outer slowmo --outer-gain 1-mu", "--outer-gain" },
	{ "kavg --outer block --nesterov-base shifted", "--nesterov-base" },
	{ "kavg --outer block --outer-gain 2", "--outer-gain" },
	{ "periodic --adapt-low 0.5", "--adapt-low" },
	{ "periodic --period-max 9", "--period-max" },
	{ "periodic --adapt-sample-steps 9", "--adapt-sample-steps" },
	{ "periodic --schedule post-local --adapt-high 2", "--adapt-high" },
	{ "adpsgd --schedule const", "--schedule" },
	{ "local --pull 0.5 --outer nesterov", "--pull" },
	{ "local --pull 0.5 --opt-state average", "--pull" },
	{ "local --wire fp8", "--wire" },
};
#define BAD_COUNT ((int)(sizeof(bad) / sizeof(bad[0])))

START_TEST(what_makes_no_sense_is_refused)
{
	char line[512];

	snprintf(line, sizeof(line), "--simulate --ranks 2 --steps 4 --batch 4 --algorithm %s",
		 bad[_i].options);
	line_fail(train, line, 2, bad[_i].word);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("average_runs");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_loop_test(tests, real_and_simulated_ranks_agree, 0, ALGORITHM_COUNT);
	tcase_add_loop_test(tests, one_step_between_averages_is_sync, 0, 5);
	tcase_add_loop_test(tests, reductions_are_counted_exactly, 0, COUNTED_COUNT);
	tcase_add_test(tests, nodes_are_groups);
	tcase_add_test(tests, fewer_bits_are_fewer_bytes);
	tcase_add_test(tests, overlapped_means_cost_no_time);
	tcase_add_loop_test(tests, a_run_that_diverges_ends, 0, DIVERGING_COUNT);
	tcase_add_loop_test(tests, what_makes_no_sense_is_refused, 0, BAD_COUNT);
	return check_main("average_runs", tests);
}
