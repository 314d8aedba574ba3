/*
 * test_eager_runs.c -- whole runs of rubato-train --algorithm eager (argument 1), simulated and
 * real: full rounds are synchronous SGD to the bit, every policy ends with equal replicas that have
 * learned, shared work uses each sample once, and a rank that nobody can wait for is an error.
 */
#include <math.h>
#include <stdio.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/support.h"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

#define RUN "--model mlp --batch 4 --momentum 0.9 --lr 0.05 --lr-schedule cosine --seed 3 "
#define SIM "--simulate --compute-time 10ms --latency 20us "
#define EAGER RUN "--algorithm eager --no-report --out out "

START_TEST(full_rounds_are_sync_to_the_bit)
{
	static const char *const where[] = { "--ranks 3 ", SIM "--ranks 5 ",
					     SIM "--ranks 8 --topology nodes:4 " };
	static const char *const extra[] = { "", "--optimizer adam --momentum 0 --lr 0.001 ",
					     "--clip 0.3 --weight-decay 1e-3 " };
	char line[512];

	if (test_is_threads_only() && _i > 0)
		return;
	/* In rank order everywhere, whatever shares memory. */
	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=flat", 1), 0);
	for (int e = 0; e < 3; e++) {
		snprintf(line, sizeof(line), RUN "%s%s--steps 30 --algorithm sync --save a.npy",
			 where[_i], extra[e]);
		line_succeed(train, line);
		snprintf(line, sizeof(line),
			 EAGER "%s%s--steps 30 --policy solo --full-every 1 --save b.npy",
			 where[_i], extra[e]);
		line_succeed(train, line);
		files_compare("a.npy", "b.npy");
		ck_assert_double_eq(summary_number("fresh_mean"), summary_number("ranks"));
		ck_assert_double_eq(summary_number("staleness_max"), 0);
	}
}
END_TEST

static const struct {
	const char *options;
	double accuracy;
} runs[] = {
	{ "", 0.9 },
	{ "--policy adaptive:1 --rounds aligned", 0.9 },
	{ "--policy solo --lag-comp lookahead", 0.9 },
	{ "--policy majority", 0.9 },
	{ "--policy quorum:3 --normalise contributors", 0.9 },
	{ "--policy quorum:3 --normalise samples --rounds free", 0.9 },
	{ "--policy deadline:5ms --window 2ms", 0.9 },
	{ "--policy solo --max-absence 4 --optimizer adamw --momentum 0 --lr 0.003", 0.9 },
	{ "--policy solo --full-every 5 --collect own", 0.8 },
	{ "--policy solo --collect latest --model-sync-every 8 --opt-state average", 0.8 },
	{ "--policy solo --collect latest --model-sync-every 8 --opt-state reset", 0.8 },
	{ "--policy solo --late latest", 0.8 },
	{ "--policy quorum:2 --late drop", 0.8 },
	{ "--policy wagma:2 --full-every 6", 0.8 },
	{ "--policy wagma:3 --collect latest --model-sync-every 10", 0.8 },
	{ "--work shared", 0.9 },
	{ "--work shared --policy solo --collect own", 0.8 },
	{ "--work shared --policy wagma:2", 0.8 },
	{ "--work shared --policy quorum:4 --collect each:2 --clip 5", 0.9 },
};
#define RUN_COUNT ((int)(sizeof(runs) / sizeof(runs[0])))

/* The program itself ends with an error where ranks' parameters differ. Short: too few epochs to
 * learn all, and once. */
START_TEST(every_form_learns_and_repeats)
{
	bool is_short = test_length() == TEST_SHORT;
	int epochs = is_short ? 5 : 20;
	char line[512];

	snprintf(line, sizeof(line),
		 EAGER SIM "--ranks 6 --epochs %d --delay random:15ms,4ms --eval-every 5 %s "
			   "--save a.npy",
		 epochs, runs[_i].options);
	line_succeed(train, line);
	ck_assert_double_eq(summary_number("samples"), epochs * 5 * 24);
	/* Ranks were late, and nobody waited for all. */
	ck_assert_double_lt(summary_number("fresh_mean"), 6);
	if (is_short)
		return;
	ck_assert_msg(summary_number("test_accuracy") >= runs[_i].accuracy, "%s: accuracy %g", line,
		      summary_number("test_accuracy"));
	ck_assert_double_gt(number_last("out/metrics.jsonl", "test_accuracy"), 0.5);
	ck_assert_int_eq(rename("a.npy", "b.npy"), 0);
	line_succeed(train, line);
	files_compare("a.npy", "b.npy");
}
END_TEST

/* Statistics of batch normalisation: wagma's travel with its models, others' wait for tests. */
START_TEST(models_with_statistics)
{
	static const char *const options[] = { "--policy wagma:2 --full-every 6", "--policy solo",
					       "--policy wagma:2 --bn local --model-sync-every 4",
					       "--work shared" };
	int epochs = test_length() == TEST_SHORT ? 1 : 4;
	char line[512];

	snprintf(line, sizeof(line),
		 EAGER SIM "--ranks 4 --model resnet20 --epochs %d --delay random:15ms "
			   "--eval-every 1 %s",
		 epochs, options[_i]);
	line_succeed(train, line);
	ck_assert_double_eq(summary_number("samples"), epochs * 8 * 16);
	ck_assert(epochs == 1 || summary_number("test_accuracy") >= 0.6);
}
END_TEST

/* Late by a multiple of a step, one rank at a time: nobody waits for it. */
START_TEST(delays_are_hidden)
{
	static const char line[] =
		SIM "--ranks 8 --steps 60 --delay random:20ms --no-report --out out ";
	char text[512];
	double sync, solo;

	snprintf(text, sizeof(text), RUN "--batch 2 --algorithm sync %s", line);
	line_succeed(train, text);
	sync = summary_number("seconds");
	ck_assert_double_gt(sync, 60 * 0.03);
	snprintf(text, sizeof(text), EAGER "--batch 2 --policy solo %s", line);
	line_succeed(train, text);
	solo = summary_number("seconds");
	ck_assert_double_lt(solo, 0.6 * sync);
	ck_assert_double_gt(solo, 60 * 0.01);
}
END_TEST

/* Ranks that draw their samples get the ones that they would have been given, in another order, so
 * the two runs take one path, up to rounding. (They did not, when ranks that waited for their first
 * draw were counted as ready: an empty round ran, and the first update held two gradients of each,
 * which cost 0.5 points of accuracy on Fashion-MNIST.) */
START_TEST(shared_work_of_even_ranks_is_static_work)
{
	static const char *const policies[] = { "quorum:6", "deadline:5ms",
						"majority --full-every 1" };
	char text[512];
	size_t size_bytes, other_bytes;

	snprintf(text, sizeof(text),
		 "--model logistic --batch 2 --momentum 0.5 --lr 0.2 --steps 30 " SIM
		 "--ranks 6 --algorithm eager --rounds free --policy %s --no-report --out out "
		 "--save a.npy",
		 policies[_i]);
	line_succeed(train, text);
	snprintf(text, sizeof(text),
		 "--model logistic --batch 2 --momentum 0.5 --lr 0.2 --steps 30 " SIM
		 "--ranks 6 --algorithm eager --work shared --policy %s --no-report --out out "
		 "--save b.npy",
		 policies[_i]);
	line_succeed(train, text);
	ck_assert_double_eq(summary_number("fresh_mean"), 6);
	ck_assert_double_eq(summary_number("rounds"), 30);
	float *a = file_read("a.npy", &size_bytes), *b = file_read("b.npy", &other_bytes);
	ck_assert_uint_eq(size_bytes, other_bytes);
	for (size_t i = 128 / sizeof(float); i < size_bytes / sizeof(float); i++)
		ck_assert_msg(fabsf(a[i] - b[i]) < 1e-5f, "%zu: %g and %g", i, (double)a[i],
			      (double)b[i]);
	free(a);
	free(b);
}
END_TEST

/* By default half the ranks are fresh in each round, however little it takes to have fewer. */
START_TEST(the_default_has_half_the_ranks)
{
	static const char line[] =
		"--batch 2 " SIM
		"--ranks 8 --steps 200 --delay random:15ms,25ms --no-report --out out ";
	double fresh[2];

	for (int free_to_choose = 0; free_to_choose < 2; free_to_choose++) {
		char text[512];

		snprintf(text, sizeof(text), EAGER "%s%s", line,
			 free_to_choose ? "--policy adaptive:1" : "");
		line_succeed(train, text);
		fresh[free_to_choose] = summary_number("fresh_mean");
	}
	ck_assert_double_ge(fresh[0], 3.9); /* The last rounds are of those who drain. */
	ck_assert_double_lt(fresh[1], 3.5);
}
END_TEST

/* Three times as slow as the others, always: it draws a third of their batches. */
START_TEST(shared_work_uses_all_speeds)
{
	static const char line[] = SIM "--ranks 4 --epochs 24 --delay rank:1:20ms ";
	char text[512];

	snprintf(text, sizeof(text), EAGER "%s--policy quorum:2 --work shared", line);
	line_succeed(train, text);
	double samples = summary_number("samples");
	ck_assert_double_eq(samples, 24 * 8 * 16);
	/* In 30 ms: 3 + 3 + 3 + 1 batches. */
	double best = samples / 4 * 0.030 / 10;
	ck_assert_double_lt(summary_number("seconds"), best / 0.9);
	ck_assert_double_ge(summary_number("seconds"), best);
	/* The rate follows the samples, also on rank 0, which makes more steps than the mean. */
	ck_assert_double_lt(number_last("out/metrics.jsonl", "learning_rate"), 0.05 * 0.01);
	ck_assert_double_ge(number_last("out/metrics.jsonl", "learning_rate"), 0.0);
	ck_assert_double_gt(number_last("out/metrics.jsonl", "step"), 192 * 1.1);
	snprintf(text, sizeof(text), EAGER "%s--policy quorum:2", line);
	line_succeed(train, text);
	ck_assert_double_gt(summary_number("seconds"), 192 * 0.03);
}
END_TEST

START_TEST(real_ranks)
{
	static const char *const options[] = { "", "--policy solo --collect own",
					       "--policy quorum:2 --work shared",
					       "--policy solo --model-sync-every 5" };
	char line[512];

	for (int i = 0; i < 4; i++) {
		snprintf(line, sizeof(line), EAGER "--ranks 3 --epochs 12 --delay random:2ms %s",
			 options[i]);
		line_succeed(train, line);
		ck_assert_double_eq(summary_number("samples"), 12 * 120);
		ck_assert_double_gt(summary_number("test_accuracy"), 0.5);
	}
}
END_TEST

START_TEST(a_wait_has_a_deadline)
{
	/* For a rank that is still at work those at the end wait longer than the 60 s of others. */
	line_succeed(train, EAGER SIM
		     "--ranks 3 --steps 20 --policy solo --compute-time 10s --delay rank:1:20s");
	ck_assert_double_ge(summary_number("seconds"), 20 * 30);

	ck_assert_int_eq(setenv("RUBATO_TIMEOUT", "3s", 1), 0);
	line_fail(train, EAGER "--ranks 2 --steps 5 --policy quorum:2 --delay rank:1:20s", 1,
		  "needs 2 of 2");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("eager-runs");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_loop_test(tests, full_rounds_are_sync_to_the_bit, 0, 3);
	if (!test_is_threads_only()) {
		tcase_add_loop_test(tests, every_form_learns_and_repeats, 0, RUN_COUNT);
		tcase_add_loop_test(tests, models_with_statistics, 0, 4);
		tcase_add_test(tests, delays_are_hidden);
		tcase_add_loop_test(tests, shared_work_of_even_ranks_is_static_work, 0, 3);
		tcase_add_test(tests, the_default_has_half_the_ranks);
		tcase_add_test(tests, shared_work_uses_all_speeds);
	}
	tcase_add_test(tests, real_ranks);
	tcase_add_test(tests, a_wait_has_a_deadline);
	return check_main("eager-runs", tests);
}
