/*
 * test_command.c -- the command line of rubato-train (argument 1) as users meet it: what is
 * refused, with which exit status, in one line on standard error, and that a refused run leaves
 * nothing behind.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/free_port.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"

static const char *train[] = { NULL, NULL };

/* 8 rows of 4 x 4 images with labels 0 to 1. */
static void setup(void)
{
	static const int64_t labels[8] = { 0, 1, 0, 1, 0, 1, 0, 1 };
	static const float wrong[3] = { 1, 2, 3 };
	float images[8 * 16];
	struct tr_error error;

	folder_enter();
	for (int i = 0; i < 8 * 16; i++)
		images[i] = (float)(i * 37 % 11) / 11.0f;
	ck_assert_int_eq(mkdir("data", 0777), 0);
	npy_write("data/x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 4, 4), }",
		  images, sizeof(images));
	npy_write("data/y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (8,), }",
		  labels, sizeof(labels));
	ck_assert_int_eq(mkdir("flat", 0777), 0);
	npy_write("flat/x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 16), }",
		  images, sizeof(images));
	npy_write("flat/y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (8,), }",
		  labels, sizeof(labels));
	ck_assert_int_eq(tr_npy_write("wrong.npy", wrong, 3, &error), 0);
}

#define RUN "--data npy:data --model logistic --batch 2 --quiet "

#define LAST_IS_TOO_FAR "--data synthetic:256x16 --batch 4 --quiet --momentum 0 --lr 1e6 --steps 2 "

static const struct {
	const char *line;
	int status;
	const char *word; /* In the line on standard error. */
} bad[] = {
	{ "--nonsense", 2, "--nonsense" },
	{ "-z", 2, "-z" },
	{ "stray", 2, "stray" },
	{ "--lr", 2, "--lr" },
	{ "--model resnet", 2, "takes one of" },
	{ "--model ''", 2, "--model" },
	{ "--hidden 0", 2, "--hidden" },
	{ "--data mnist", 2, "takes one of" },
	{ "--data cifar10", 2, "folder" },
	{ "--data cifar10:none --out out", 1, "No such file" },
	{ "--data text:x", 2, "lstm" },
	{ "--data synthetic:", 2, "size" },
	{ "--data synthetic:8", 2, "ROWSxDIMS" },
	{ "--data synthetic:8x", 2, "ROWSxDIMS" },
	{ "--data synthetic:0x8", 2, "ROWSxDIMS" },
	{ "--data synthetic:8x0", 2, "ROWSxDIMS" },
	{ "--data synthetic:-8x8", 2, "ROWSxDIMS" },
	{ "--data synthetic:8x8x8", 2, "ROWSxDIMS" },
	{ "--data synthetic:99999999999x8", 2, "ROWSxDIMS" },
	{ "--data npy", 2, "folder" },
	{ "--data npy:", 2, "folder" },
	{ "--device cuda:", 2, "--device" },
	{ "--device cuda:x", 2, "--device" },
	{ "--device cpu:0", 2, "--device" },
	{ "--device cuda --simulate --ranks 2", 2, "on the processor" },
	{ "--device tpu", 2, "takes one of" },
	{ "--precision tf32", 2, "--precision tf32: only with --device cuda" },
	{ "--precision half --device cuda", 2, "takes one of" },
	{ "--algorithm eager --policy quorum", 2, "--policy" },
	{ "--algorithm eager --policy quorum:0", 2, "--policy" },
	{ "--algorithm eager --policy deadline:5", 2, "--policy" },
	{ "--algorithm eager --policy adaptive:0", 2, "--policy" },
	{ "--algorithm eager --policy adaptive:x", 2, "--policy" },
	{ "--algorithm eager --policy adaptively", 2, "--policy" },
	{ "--algorithm eager --policy solo:1", 2, "--policy" },
	{ "--algorithm eager --policy wagma:2 --collect each", 2, "wagma" },
	{ "--algorithm eager --policy wagma:2 --late accumulate", 2, "wagma" },
	{ "--algorithm eager --policy wagma:2 --normalise samples", 2, "wagma" },
	{ "--algorithm eager --collect each:0", 2, "--collect" },
	{ "--algorithm eager --lag-comp lookahead --collect own", 2, "--lag-comp" },
	{ "--algorithm eager --work shared --rounds aligned", 2, "--work" },
	{ "--algorithm eager --work shared --model-sync-every 4", 2, "--work" },
	{ "--algorithm eager --window 5", 2, "--window" },
	{ RUN "--algorithm eager --policy quorum:3 --ranks 2 --out out", 2, "quorum:3" },
	{ RUN "--algorithm eager --policy adaptive:3 --ranks 2 --out out", 2, "adaptive:3" },
	{ RUN "--algorithm eager --policy wagma:2 --ranks 3 --out out", 2, "wagma:2" },
	{ RUN "--algorithm eager --lag-comp lookahead --ranks 2 --out out", 2, "momentum" },
	{ "--algorithm adp", 2, "takes one of" },
	{ "--algorithm syncc", 2, "takes one of" },
	{ "--optimizer rmsprop", 2, "--optimizer" },
	{ "--k 3", 2, "no use for it" },
	{ "--policy solo", 2, "eager" },
	{ "--delay random", 2, "--delay" },
	{ "--delay random:5", 2, "--delay" },
	{ "--delay rank:x:5ms", 2, "--delay" },
	{ "--delay rotating:5ms,6ms", 2, "--delay" },
	{ "--lr -1", 2, "--lr" },
	{ "--lr nan", 2, "--lr" },
	{ "--lr inf", 2, "--lr" },
	{ "--lr 0.1x", 2, "--lr" },
	{ "--lr ''", 2, "--lr" },
	{ "--momentum 1", 2, "--momentum" },
	{ "--momentum -0.1", 2, "--momentum" },
	{ "--weight-decay x", 2, "--weight-decay" },
	{ "--lr-schedule exponential", 2, "--lr-schedule" },
	{ "--lr-schedule step:0:0.1", 2, "--lr-schedule" },
	{ "--lr-schedule warmup:5,cosine --warmup 3", 2, "--warmup" },
	{ "--warmup -3", 2, "--warmup" },
	{ "--batch 0", 2, "--batch" },
	{ "--batch -4", 2, "--batch" },
	{ "--batch 1.5", 2, "--batch" },
	{ "--batch 99999999999999999999", 2, "--batch" },
	{ "--ranks 0", 2, "-n takes" },
	{ "--ranks 1000000", 2, "-n takes" },
	{ "-n many", 2, "-n takes" },
	{ "--epochs 0", 2, "--epochs" },
	{ "--steps 0", 2, "--steps" },
	{ "--epochs 2 --steps 5", 2, "one of the two" },
	{ "--seed -1", 2, "--seed" },
	{ "--save ''", 2, "--save" },
	{ "--eval-every x", 2, "--eval-every" },
	{ "--bucket 1000", 2, "--bucket" },
	{ "--bucket 1T", 2, "--bucket" },
	{ "--bucket 99999999999G", 2, "--bucket" },
	{ "--compute-time 5", 2, "--compute-time" },
	{ "--compute-time 0ms", 2, "--compute-time" },
	{ "--compute-time 5ms --forward 1.5", 2, "--forward" },
	{ "--forward 0.5", 2, "--compute-time" },
	{ "--final-rows some", 2, "--final-rows" },
	/* What would change nothing. */
	{ "--optimizer adam --momentum 0.5", 2, "--momentum" },
	{ "--optimizer adamw --momentum 0.5 --weight-decay 0.1", 2, "--momentum" },
	{ "--model logistic --hidden 5", 2, "--hidden" },
	{ "--model mlp --bn local", 2, "--bn" },
	{ "--algorithm kavg --bucket 1M", 2, "--bucket" },
	{ "--algorithm eager --compute-time 1ms --forward 0.5", 2, "--forward" },
	{ "--bucket 0 --compute-time 1ms --forward 0.5", 2, "--forward" },
	{ "--algorithm laga --rate-by-count", 2, "--rate-by-count" },
	{ "--algorithm laga --lag-comp lookahead", 2, "momentum" },
	{ "--algorithm kavg --opt-state reset", 2, "--opt-state" },
	{ "--algorithm eager --momentum 0.5 --opt-state average", 2, "--model-sync-every" },
	{ "--algorithm hier --group 1", 2, "--group 1" },
	{ "--algorithm hier --k1 8 --k2 4", 2, "--k1" },
	{ RUN "--algorithm hier --ranks 3 --simulate", 2, "say --group" },
	{ RUN "--ranks 2 --delay rank:7:5ms", 2, "no rank 7 among 2" },
	{ RUN "--ranks 2 --delay rank:2:5ms", 2, "no rank 2 among 2" },
	{ RUN "--simulate --ranks 2 --delay rank:2:5ms", 2, "no rank 2 among 2" },
	{ RUN "--ranks 1 --delay linear:5ms", 2, "delays nobody" },
	{ RUN "--ranks 1 --simulate --delay rotating:5ms", 2, "delays nobody" },
	{ RUN "--ranks 2 --no-report", 2, "--no-report: needs --out" },
	{ RUN "--ranks 2 --eval-every 1", 2, "no test set" },
	{ RUN "--ranks 2 --eval-every 1 --out out", 2, "no test set" },
	{ "--data synthetic:100x30 --model hyperplane --ranks 2 --eval-every 1", 2, "--out" },
	{ "--simulate", 2, "--ranks" },
	{ "--latency 5us", 2, "--simulate" },
	{ "--bandwidth 1Gbit --ranks 2", 2, "--simulate" },
	{ "--jitter 1", 2, "--simulate" },
	{ "--topology flat", 2, "--simulate" },
	{ "--memory-bandwidth 5GB/s", 2, "--simulate" },
	{ "--simulate -n 2 --profile none.profile", 2, "cannot be read" },
	{ "--simulate -n 2 --latency 5", 2, "--latency" },
	{ "--simulate -n 2 --bandwidth 5", 2, "--bandwidth" },
	{ "--simulate -n 2 --bandwidth 0Gbit", 2, "--bandwidth" },
	{ "--simulate -n 2 --jitter -1", 2, "--jitter" },
	{ "--simulate -n 2 --topology nodes:0", 2, "--topology" },
	{ "--simulate -n 2 --topology ring", 2, "--topology" },
	{ "--data npy:data --batch 9 --out out", 2, "--batch" },
	{ "--data npy:data --batch 3 --ranks 3 --out out", 2, "--batch" },
	{ "--data npy:none --out out", 1, "No such file" },
	{ "--data npy:none --out out --ranks 3", 1, "No such file" },
	{ "--data fashion-mnist:none --out out", 1, "No such file" },
	{ RUN "--steps 2 --init none.npy --out out", 1, "No such file" },
	{ RUN "--steps 2 --init wrong.npy --out out", 1, "3 values" },
	{ RUN "--steps 2 --init wrong.npy --out out --ranks 2", 1, "3 values" },
	{ RUN "--steps 2 --init data/x.npy --out out", 1, "flat vector of floats" },
	{ RUN "--steps 2 --save none/w.npy --out out", 1, "No such file" },
	{ RUN "--steps 2 --save none/w.npy --out out --ranks 2", 1, "No such file" },
	{ RUN "--steps 2 --out none/out --save w.npy", 1, "No such file" },
	{ RUN "--steps 2 --save data --out out", 1, "--save data: Is a directory" },
	{ RUN "--simulate --ranks 2 --cache 1G", 2, "memory_bandwidth" },
	{ RUN "--simulate --ranks 2 --turn 1ms", 2, "--turn: changes nothing without --cores" },
	{ RUN "--simulate --ranks 2 --machine 2", 2, "--machine: changes nothing without --cores" },
	{ RUN "--simulate --ranks 2 --cached-bandwidth 1GB/s", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --reduced-bandwidth 1GB/s", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --outer-cache 1M", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --outer-bandwidth 1GB/s", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --shared-bandwidth 1GB/s", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --shared-latency 1us", 2, "without --cache" },
	{ RUN "--simulate --ranks 2 --attach-bandwidth 1GB/s", 2, "without --memory-bandwidth" },
	{ RUN "--ranks 1 --algorithm eager --members nodes --policy quorum:2", 2,
	  "--policy quorum:2: there is 1 node" },
	{ RUN "--simulate --ranks 4 --topology nodes:2 --algorithm eager --members nodes "
	      "--policy quorum:3",
	  2, "--policy quorum:3: there are 2 nodes" },
	{ RUN "--simulate --ranks 4 --topology nodes:2 --algorithm eager --members nodes "
	      "--policy wagma:3",
	  2, "--policy wagma:3: does not divide 2 nodes" },
	{ RUN "--steps 2 --out wrong.npy --save w.npy", 1, "directory" },
	{ "--data npy:flat --model cnn --batch 2 --out out", 2, "square" },
	{ "--data npy:flat --model resnet20 --batch 2 --out out --ranks 2", 2, "square" },
	{ "--data npy:data --model hyperplane --batch 2 --out out", 2, "labels" },
	{ "--data synthetic:64x8 --model resnet20 --batch 2 --out out", 2, "8 x 1 x 1" },
	{ "--data synthetic:64x8 --augment --batch 2 --out out", 2, "--augment" },
	{ "--data npy:data --augment --batch 2 --out out", 2, "--augment" },
	{ "--data synthetic:64x8 --model cnn --batch 2 --out out", 2, "8 x 1 x 1" },
	{ RUN "--lr 100 --weight-decay 1000 --steps 90 --save w.npy --ranks 2", 1, "diverged" },
	/* By the last update of all. */
	{ LAST_IS_TOO_FAR "--save w.npy", 1, "diverged" },
	{ LAST_IS_TOO_FAR "--final-rows 0 --ranks 2 --batch 2", 1, "diverged" },
};
#define BAD_COUNT ((int)(sizeof(bad) / sizeof(bad[0])))

START_TEST(bad_input_is_refused_in_one_line)
{
	line_fail(train, bad[_i].line, bad[_i].status, bad[_i].word);
	ck_assert_msg(folder_count(".") == 3, "'%s' left something behind", bad[_i].line);
}
END_TEST

START_TEST(help_and_version)
{
	struct outcome got;

	line_run(train, "--help", &got);
	ck_assert_int_eq(got.status, 0);
	ck_assert_str_eq(got.err, "");
	ck_assert_ptr_nonnull(strstr(got.out, "--lr-schedule"));
	line_run(train, "--version", &got);
	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(strncmp(got.out, "rubato-train ", 13), 0);
}
END_TEST

START_TEST(good_lines_run)
{
	static const char *const good[] = {
		RUN "--epochs 1",
		RUN "--steps 2 --ranks 1",
		RUN "--steps 2 -n 2 --no-shuffle --seed 18446744073709551615",
		RUN "--steps 2 --ranks=2 --model=mlp --hidden=3 --momentum=0.9 --weight-decay=1e-4",
		RUN "--steps 2 --lr-schedule warmup:1,step:1:0.5 --batch 8",
		RUN "--steps 2 --model cnn --ranks 2 --lr-schedule cosine --warmup 1",
		RUN "--steps 2 --model cnn --ranks 2 --bucket 1K --compute-time 1.5ms --forward 0",
		RUN "--steps 2 --simulate --ranks 2 --topology nodes:2 --latency 1us --jitter 0.1",
		RUN "--steps 2 --ranks 2 --model resnet20 --bn local",
		RUN "--steps 2 --ranks 2 --data synthetic:100x30",
		RUN "--steps 2 --ranks 2 --data synthetic:100x30 --model hyperplane",
		RUN "--steps 4 --algorithm eager --ranks 2",
		RUN "--steps 4 --algorithm eager --ranks 2 --work shared",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		line_succeed(train, good[i]);
}
END_TEST

START_TEST(out_holds_whole_documents)
{
	static const char *const keys[] = {
		"\"algorithm\": \"sync\"",  "\"ranks\": 2",
		"\"samples\": 8",           "\"seconds\"",
		"\"samples_per_second\"",   "\"idle_fraction\"",
		"\"final_loss\"",           "\"test_accuracy\": null",
		"\"global_reductions\": 2", "\"local_reductions\": 0",
		"\"bytes_sent\"",           "\"rounds\": 2",
		"\"fresh_mean\": 2.0",      "\"contributors_mean\": 2.0",
		"\"staleness_max\": 0",
	};
	static const char *const files[] = {
		"out/run.json",     "out/metrics.jsonl", "out/events.out.tfevents.rubato",
		"out/summary.json", "out/ledger.jsonl",  "out/initial.npy",
		"out/final.npy",    "out/trace.json",    "out/report.html"
	};
	size_t size_bytes;
	char *text;

	for (int turn = 0; turn < 2; turn++) { /* The second run replaces the first. */
		line_succeed(train,
			     RUN "--steps 2 --ranks 2 --out out --report-every 1 --save w.npy");
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
			ck_assert_msg(access(files[i], R_OK) == 0, "no %s", files[i]);
		ck_assert_uint_eq(folder_count("out"), sizeof(files) / sizeof(files[0]));
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			ck_assert_msg(file_holds("out/summary.json", keys[i]), "no %s", keys[i]);
		text = file_read("out/metrics.jsonl", &size_bytes);
		ck_assert_ptr_nonnull(text);
		ck_assert_uint_eq(line_count(text), 2);
		ck_assert_int_eq(strncmp(text, "{\"step\":1,", 10), 0);
		ck_assert_ptr_nonnull(strstr(text, "}\n{\"step\":2,"));
		free(text);
	}
	ck_assert_uint_eq(folder_count("."), 5); /* data, flat, wrong.npy, out, w.npy. */
}
END_TEST

/* A disk that is full in the middle of a line: a file that may not grow past it stands for it. */
START_TEST(metrics_have_whole_lines_on_a_full_disk)
{
	struct outcome got;
	size_t size_bytes;
	char script[512], *text;
	const char *argv[] = { "/bin/sh", "-c", script, NULL };

	snprintf(script, sizeof(script),
		 "mkdir out && ln -s /dev/null out/events.out.tfevents.rubato && "
		 "trap '' XFSZ && ulimit -f 4 && exec %s " RUN
		 "--simulate --ranks 1 --steps 40 --report-every 1 --no-report --out out",
		 train[0]);
	process_run(argv, &got);
	ck_assert_int_eq(got.status, 1);
	ck_assert_msg(strstr(got.err, "metrics.jsonl: File too large") != NULL, "%s", got.err);
	text = file_read("out/metrics.jsonl", &size_bytes);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_gt(size_bytes, 0);
	ck_assert_int_eq(text[size_bytes - 1], '\n');
	free(text);
}
END_TEST

/* JSON's integers of this library end before: nothing of it may look like another seed. */
START_TEST(the_largest_seed_is_written_down)
{
	static const char *const files[] = { "out/run.json", "out/summary.json" };

	line_succeed(train, RUN "--steps 2 --out out --no-report --seed 18446744073709551615");
	for (size_t i = 0; i < 2; i++)
		ck_assert(file_holds(files[i], "\"seed\": \"18446744073709551615\""));
	line_succeed(train, RUN "--steps 2 --out out --no-report --seed 9223372036854775807");
	for (size_t i = 0; i < 2; i++)
		ck_assert(file_holds(files[i], "\"seed\": 9223372036854775807,"));
	ck_assert(!file_holds("out/summary.json", "-1,"));
}
END_TEST

/* By default over as many samples as were trained with, but over 1,024; here: of 3,000. */
START_TEST(the_final_loss_may_be_of_fewer_samples)
{
	static const struct {
		const char *words;
		double rows;
	} cases[] = {
		{ "--steps 2", 1024 },
		{ "--steps 150 --batch 8", 2400 },
		{ "--epochs 1", 3000 },
		{ "--steps 2 --final-rows all", 3000 },
		{ "--steps 2 --final-rows 3000", 3000 },
		{ "--steps 2 --final-rows 500", 500 },
	};
	char line[256];
	double all = 0.0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(line, sizeof(line),
			 RUN "--data synthetic:3000x8 --model hyperplane --ranks 2 "
			     "--batch 2 --lr 0 --out out %s",
			 cases[i].words);
		line_succeed(train, line);
		ck_assert_double_eq(summary_number("final_rows"), cases[i].rows);
		if (i == 3)
			all = summary_number("final_loss");
		if (i == 4)
			ck_assert_double_eq(summary_number("final_loss"), all);
		if (i == 5) /* A sample of it: near, and not the same. */
			ck_assert_double_gt(fabs(summary_number("final_loss") - all), 0.0);
	}
	ck_assert_double_le(fabs(summary_number("final_loss") - all), 0.2 * all);
}
END_TEST

START_TEST(the_final_loss_may_be_left_out)
{
	struct outcome got;

	line_run(train, RUN "--steps 2 --ranks 2 --out out --final-rows 0", &got);
	ck_assert_int_eq(got.status, 0);
	ck_assert_ptr_null(strstr(got.out, "loss"));
	ck_assert_ptr_nonnull(strstr(got.out, "logistic, sync, 2 ranks: 8 samples"));
	ck_assert(file_holds("out/summary.json", "\"final_loss\": null"));
}
END_TEST

/* Two ranks that a launcher started with lines of their own; "words": rank 0's, rank 1's. */
static void launch(const char *const words[2], struct outcome *outcome)
{
	char script[2048];
	const char *argv[] = { "/bin/sh", "-c", script, NULL };

	snprintf(script, sizeof(script),
		 "export RUBATO_SIZE=2 RUBATO_ROOT=127.0.0.1:%u RUBATO_TIMEOUT=30s\n"
		 "RUBATO_RANK=1 '%s' " RUN "--steps 3 %s & other=$!\n"
		 "RUBATO_RANK=0 '%s' " RUN "--steps 3 %s; first=$?\n"
		 "wait $other && exit $first",
		 free_port(), train[0], words[1], train[0], words[0]);
	process_run(argv, outcome);
}

/* Files are rank 0's business; what concerns all must be told to all. */
START_TEST(launched_ranks_may_differ_in_out_alone)
{
	static const char *const first[2] = { "--out out", "" },
				 *const other[2] = { "", "--out out" },
				 *const checkpoint[2] = { "--checkpoint kept", "" };
	struct outcome got;

	launch(first, &got);
	ck_assert_msg(got.status == 0, "%s", got.err);
	ck_assert_int_eq(access("out/ledger.jsonl", R_OK), 0);
	ck_assert_int_eq(access("out/trace.json", R_OK), 0);
	folder_remove("out");
	launch(other, &got);
	ck_assert_msg(got.status == 0, "%s", got.err);
	ck_assert_uint_eq(folder_count("out"), 0);
	launch(checkpoint, &got);
	ck_assert_int_ne(got.status, 0);
	ck_assert_msg(strstr(got.err, "different options") != NULL, "%s", got.err);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("command");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, setup, folder_leave);
	tcase_add_loop_test(tests, bad_input_is_refused_in_one_line, 0, BAD_COUNT);
	tcase_add_test(tests, help_and_version);
	tcase_add_test(tests, good_lines_run);
	tcase_add_test(tests, out_holds_whole_documents);
	tcase_add_test(tests, the_final_loss_may_be_of_fewer_samples);
	tcase_add_test(tests, the_final_loss_may_be_left_out);
	tcase_add_test(tests, metrics_have_whole_lines_on_a_full_disk);
	tcase_add_test(tests, the_largest_seed_is_written_down);
	tcase_add_test(tests, launched_ranks_may_differ_in_out_alone);
	return check_main("command", tests);
}
