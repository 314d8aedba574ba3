/*
 * test_models.c -- resnet20 and the hyperplane by the program (argument 1), mostly in simulation:
 * they learn, runs repeat bit by bit, and what becomes of batch normalisation's statistics.
 */
#include <math.h>
#include <stdio.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/support.h"

static const char *train[] = { NULL, "--quiet", "--out", "out", "--no-report", NULL };

#define RESNET                                                                                     \
	"--data npy:data --model resnet20 --batch 8 --lr 0.05 --momentum 0.9 --seed 4 --ranks 2 "

START_TEST(resnet20_learns)
{
	line_succeed(train, RESNET "--simulate --steps 64");
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
	ck_assert_double_eq(summary_number("parameters"), 269722 - 2 * 16 * 9 - 7 * 65);
}
END_TEST

START_TEST(resnet20_repeats_bit_by_bit)
{
	char line[512];

	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(line, sizeof(line), RESNET "--steps 6 --save real%d.npy", i);
		line_succeed(train, line);
	}
	line_succeed(train, RESNET "--steps 6 --simulate --bucket 16K --save sim.npy");
	files_compare("real0.npy", "real1.npy");
	files_compare("real0.npy", "sim.npy");
}
END_TEST

/* Statistics have no part in training. So a test sees them averaged or not, and the parameters
 * are the same. */
START_TEST(statistics_are_averaged_for_tests_alone)
{
	double average, local;

	line_succeed(train, RESNET "--simulate --steps 20 --save average.npy");
	average = summary_number("test_loss");
	line_succeed(train, RESNET "--simulate --steps 20 --save local.npy --bn local");
	local = summary_number("test_loss");
	files_compare("average.npy", "local.npy");
	ck_assert_double_gt(fabs(average - local), 1e-6);

	/* Tests after 8 and 16 steps change nothing of what comes behind them, to the last bit. */
	line_succeed(train, RESNET "--simulate --steps 20 --save tested.npy --eval-every 1");
	files_compare("average.npy", "tested.npy");
	ck_assert_double_eq(summary_number("test_loss"), average);
	line_succeed(train, RESNET "--simulate --steps 20 --eval-every 1 --bn local");
	ck_assert_double_eq(summary_number("test_loss"), local);
}
END_TEST

/* All ranks read the same rows, so their statistics are equal and so are both ways to test. */
START_TEST(equal_statistics_have_themselves_for_a_mean)
{
	static const char x_head[] =
		"{'descr': '<f4', 'fortran_order': False, 'shape': (16, 8, 8), }";
	static const char y_head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (16,), }";
	static float x[16][64];
	int32_t y[16];
	double average;

	for (int row = 0; row < 16; row++) {
		y[row] = row % 8 % 3;
		for (int k = 0; k < 64; k++)
			x[row][k] = (float)((row % 8 * 29 + k * 13) % 31) / 31.0f;
	}
	npy_write("data/x.npy", 1, x_head, x, sizeof(x));
	npy_write("data/y.npy", 1, y_head, y, sizeof(y));
	line_succeed(train, RESNET "--simulate --steps 5 --no-shuffle");
	average = summary_number("test_loss");
	line_succeed(train, RESNET "--simulate --steps 5 --no-shuffle --bn local");
	ck_assert_double_eq(summary_number("test_loss"), average);
}
END_TEST

/* Statistics go where each rule takes its parameters; its tests see them, on the way and after. */
static const char *const rules[] = {
	"sync",
	"kavg --k 4",
	"local --k 4 --pull 0.6",
	"eager",
	"laga",
	"laga --accumulate 2",
	"kavg --k 4 --wire int8",
	"hier --k1 2 --k2 8 --group 2",
	"adpsgd",
	"eager --work shared",
	"eager --policy solo --collect own --model-sync-every 8",
};
#define SHORT_COUNT 4
#define RULE_COUNT ((int)(sizeof(rules) / sizeof(rules[0])))

START_TEST(resnet20_learns_under_every_rule)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "--data npy:data --model resnet20 --ranks 4 --simulate --batch 8 --lr 0.05 "
		 "--momentum 0.5 --steps 48 --compute-time 5ms --delay random:5ms --eval-every 6 "
		 "--algorithm %s",
		 rules[_i]);
	line_succeed(train, line);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
	ck_assert_double_gt(number_last("out/metrics.jsonl", "test_accuracy"), 0.8);
}
END_TEST

/* The least that any plane can reach is half the variance of the noise, 1/128. */
START_TEST(hyperplane_finds_the_plane)
{
	line_succeed(train,
		     "--model hyperplane --data synthetic:2048x64 --ranks 4 --simulate --batch 16 "
		     "--steps 300 --lr 0.1 --lr-schedule cosine --report-every 1");
	ck_assert_double_eq(summary_number("parameters"), 64);
	ck_assert_double_gt(summary_number("final_loss"), 0.9 / 128);
	ck_assert_double_lt(summary_number("final_loss"), 1.1 / 128);
	ck_assert_double_gt(summary_number("test_loss"), 0.7 / 128);
	ck_assert_double_lt(summary_number("test_loss"), 1.4 / 128);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("models");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_test(tests, resnet20_learns);
	tcase_add_loop_test(tests, resnet20_learns_under_every_rule, 0,
			    test_length() == TEST_SHORT ? SHORT_COUNT : RULE_COUNT);
	tcase_add_test(tests, resnet20_repeats_bit_by_bit);
	tcase_add_test(tests, statistics_are_averaged_for_tests_alone);
	tcase_add_test(tests, equal_statistics_have_themselves_for_a_mean);
	tcase_add_test(tests, hyperplane_finds_the_plane);
	return check_main("models", tests);
}
