/*
 * test_models.c -- resnet20 and the hyperplane by the program (argument 1), mostly in simulation:
 * they learn, runs repeat bit by bit, and what becomes of batch normalisation's statistics.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/effort.h"
#include "tests/trainer/support.h"
#include "trainer/npy.h"

#define WORDS_MAX 40

static const char *program;
static char folder[PATH_BYTES];

static void setup(void)
{
	folder_make(folder);
	ck_assert_int_eq(chdir(folder), 0);
	images_make("data");
}

static void teardown(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	folder_remove(folder);
}

/* Splits at single spaces, after "rubato-train --quiet --out out". */
static void train(const char *line)
{
	const char *argv[WORDS_MAX + 1] = { program, "--quiet", "--out", "out" };
	char copy[1024], *at = copy, *word;
	struct outcome got;
	int count = 4;

	snprintf(copy, sizeof(copy), "%s", line);
	while ((word = strsep(&at, " ")) != NULL) {
		ck_assert_int_lt(count, WORDS_MAX);
		argv[count++] = word;
	}
	process_run(argv, &got);
	ck_assert_msg(got.status == 0, "'%s': status %d: %s", line, got.status, got.err);
	ck_assert_str_eq(got.err, "");
}

/* The number behind the last `"key":` of a file of --out. */
static double last_number(const char *name, const char *key)
{
	char path[PATH_BYTES], quoted[64], *text, *at, *last = NULL;
	size_t size_bytes;
	double number;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	text = file_read(path_join(path, "out", name), &size_bytes);
	ck_assert_ptr_nonnull(text);
	for (at = text; (at = strstr(at, quoted)) != NULL; at++)
		last = at;
	ck_assert_msg(last != NULL, "no %s in %s", key, name);
	number = strtod(last + strlen(quoted), NULL);
	free(text);
	return number;
}

static void must_equal(const char *a, const char *b)
{
	size_t a_bytes, b_bytes;
	void *a_text = file_read(a, &a_bytes), *b_text = file_read(b, &b_bytes);

	ck_assert_ptr_nonnull(a_text);
	ck_assert_ptr_nonnull(b_text);
	ck_assert_msg(a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0,
		      "%s and %s differ", a, b);
	free(a_text);
	free(b_text);
}

#define RESNET                                                                                     \
	"--data npy:data --model resnet20 --batch 8 --lr 0.05 --momentum 0.9 --seed 4 --ranks 2 "

START_TEST(resnet20_learns)
{
	train(RESNET "--simulate --steps 64");
	ck_assert_double_gt(last_number("summary.json", "test_accuracy"), 0.9);
	ck_assert_double_eq(last_number("summary.json", "parameters"),
			    269722 - 2 * 16 * 9 - 7 * 65);
}
END_TEST

START_TEST(resnet20_repeats_bit_by_bit)
{
	char line[512];

	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(line, sizeof(line), RESNET "--steps 6 --save real%d.npy", i);
		train(line);
	}
	train(RESNET "--steps 6 --simulate --bucket 16K --save sim.npy");
	must_equal("real0.npy", "real1.npy");
	must_equal("real0.npy", "sim.npy");
}
END_TEST

/* Statistics have no part in training. So a test sees them averaged or not, and the parameters
 * are the same. */
START_TEST(statistics_are_averaged_for_tests_alone)
{
	double average, local;

	train(RESNET "--simulate --steps 20 --save average.npy");
	average = last_number("summary.json", "test_loss");
	train(RESNET "--simulate --steps 20 --save local.npy --bn local");
	local = last_number("summary.json", "test_loss");
	must_equal("average.npy", "local.npy");
	ck_assert_double_gt(fabs(average - local), 1e-6);

	/* Tests after 8 and 16 steps change nothing of what comes behind them, to the last bit. */
	train(RESNET "--simulate --steps 20 --save tested.npy --eval-every 1");
	must_equal("average.npy", "tested.npy");
	ck_assert_double_eq(last_number("summary.json", "test_loss"), average);
	train(RESNET "--simulate --steps 20 --eval-every 1 --bn local");
	ck_assert_double_eq(last_number("summary.json", "test_loss"), local);
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
	train(RESNET "--simulate --steps 5 --no-shuffle");
	average = last_number("summary.json", "test_loss");
	train(RESNET "--simulate --steps 5 --no-shuffle --bn local");
	ck_assert_double_eq(last_number("summary.json", "test_loss"), average);
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
	train(line);
	ck_assert_double_gt(last_number("summary.json", "test_accuracy"), 0.9);
	ck_assert_double_gt(last_number("metrics.jsonl", "test_accuracy"), 0.8);
}
END_TEST

/* The least that any plane can reach is half the variance of the noise, 1/128. */
START_TEST(hyperplane_finds_the_plane)
{
	train("--model hyperplane --data synthetic:2048x64 --ranks 4 --simulate --batch 16 "
	      "--steps 300 --lr 0.1 --lr-schedule cosine --report-every 1");
	ck_assert_double_eq(last_number("summary.json", "parameters"), 64);
	ck_assert_double_gt(last_number("summary.json", "final_loss"), 0.9 / 128);
	ck_assert_double_lt(last_number("summary.json", "final_loss"), 1.1 / 128);
	ck_assert_double_gt(last_number("summary.json", "test_loss"), 0.7 / 128);
	ck_assert_double_lt(last_number("summary.json", "test_loss"), 1.4 / 128);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("models");

	if (argc != 2)
		return EXIT_FAILURE;
	program = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, resnet20_learns);
	tcase_add_loop_test(tests, resnet20_learns_under_every_rule, 0,
			    effort_wanted() == EFFORT_SHORT ? SHORT_COUNT : RULE_COUNT);
	tcase_add_test(tests, resnet20_repeats_bit_by_bit);
	tcase_add_test(tests, statistics_are_averaged_for_tests_alone);
	tcase_add_test(tests, equal_statistics_have_themselves_for_a_mean);
	tcase_add_test(tests, hyperplane_finds_the_plane);
	return check_main("models", tests);
}
