/*
 * test_simulate.c -- --simulate by the program (argument 1): the parameters of real ranks bit for
 * bit, a run that repeats byte for byte, 64 ranks that learn, failures in one line, and the time
 * that buckets save, exactly.
 */
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

/* Splits at single spaces, after "rubato-train --data npy:data --quiet". */
static void run_line(const char *line, struct outcome *outcome)
{
	const char *argv[WORDS_MAX + 1] = { program, "--data", "npy:data", "--quiet" };
	char copy[1024], *at = copy, *word;
	int count = 4;

	snprintf(copy, sizeof(copy), "%s", line);
	while ((word = strsep(&at, " ")) != NULL) {
		ck_assert_int_lt(count, WORDS_MAX);
		argv[count++] = word;
	}
	process_run(argv, outcome);
}

static void train(const char *line)
{
	struct outcome got;

	run_line(line, &got);
	ck_assert_msg(got.status == 0, "'%s': status %d: %s", line, got.status, got.err);
	ck_assert_str_eq(got.err, "");
	ck_assert_uint_eq(line_count(got.out), 1);
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

/* The number behind the n-th (from 0) `"key":` of a file. */
static double number_in(const char *path, const char *key, int n)
{
	char quoted[64], *text, *at;
	size_t size_bytes;
	double number;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	at = text = file_read(path, &size_bytes);
	ck_assert_ptr_nonnull(text);
	for (int i = 0; i <= n; i++) {
		at = strstr(i == 0 ? at : at + 1, quoted);
		ck_assert_msg(at != NULL, "no %s number %d in %s", key, n, path);
	}
	number = strtod(at + strlen(quoted), NULL);
	free(text);
	return number;
}

#define STEPS "--batch 4 --steps 40 --momentum 0.9 --weight-decay 1e-3 --seed 4 "

static const char *const models[] = { "logistic", "mlp", "cnn" };

START_TEST(simulated_and_real_ranks_agree_bit_by_bit)
{
	static const char *const algorithms[] = { "flat", "recursive_doubling", "ring" };
	static const char *const buckets[] = { "0", "4K" };
	char line[512], setting[64];

	snprintf(setting, sizeof(setting), "allreduce=%s", algorithms[_i]);
	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", setting, 1), 0);
	for (int m = effort_wanted() == EFFORT_SHORT ? 2 : 0; m < 3; m++)
		for (int b = 0; b < 2; b++) {
			snprintf(line, sizeof(line),
				 STEPS "--ranks 3 --model %s --bucket %s --save real.npy",
				 models[m], buckets[b]);
			train(line);
			snprintf(line, sizeof(line),
				 STEPS "--ranks 3 --model %s --bucket %s --save sim.npy "
				       "--simulate",
				 models[m], buckets[b]);
			train(line);
			must_equal("real.npy", "sim.npy");
			ck_assert_int_eq(unlink("real.npy") | unlink("sim.npy"), 0);
		}
}
END_TEST

/* Algorithms that take operands in one order everywhere do not care where a vector is cut. */
static const struct {
	const char *algorithm, *extra;
} uncut[] = {
	{ "flat", "--ranks 3 " },
	{ "direct", "--ranks 3 " },
	{ "staged", "--ranks 3 " },
	{ "recursive_doubling", "--ranks 3 " },
	{ "flat", "--ranks 5 --simulate " },
	{ "recursive_doubling", "--ranks 5 --simulate " },
	{ "ring", "--ranks 2 " }, /* Of two operands there is one order. */
	{ "auto", "--ranks 2 " },
	{ "auto", "--ranks 3 " }, /* On one node: flat, direct or staged. */
};
#define UNCUT_COUNT ((int)(sizeof(uncut) / sizeof(uncut[0])))

START_TEST(buckets_do_not_change_bits)
{
	static const char *const sizes[] = { "0", "1K", "5K", "16K" };
	char line[512], setting[64], name[16];

	snprintf(setting, sizeof(setting), "allreduce=%s", uncut[_i].algorithm);
	if (strcmp(uncut[_i].algorithm, "auto") != 0)
		ck_assert_int_eq(setenv("RUBATO_ALGORITHM", setting, 1), 0);
	for (int s = 0; s < 4; s++) {
		snprintf(name, sizeof(name), "%d.npy", s);
		snprintf(line, sizeof(line), STEPS "%s--model mlp --bucket %s --save %s --out out",
			 uncut[_i].extra, sizes[s], name);
		train(line);
		/* 4355 parameters: what was asked for was done. */
		ck_assert_double_eq(number_in("out/summary.json", "buckets", 0), s == 0   ? 1
										 : s == 1 ? 18
										 : s == 2 ? 4
											  : 2);
		must_equal("0.npy", name);
	}
}
END_TEST

START_TEST(sums_in_rank_order_agree)
{
	static const char *const algorithms[] = { "flat", "direct", "staged", "ring" };
	char setting[64], name[32];
	size_t size_bytes;

	for (int i = 0; i < 4; i++) {
		snprintf(setting, sizeof(setting), "allreduce=%s", algorithms[i]);
		ck_assert_int_eq(setenv("RUBATO_ALGORITHM", setting, 1), 0);
		train(STEPS "--ranks 5 --model mlp --save w.npy");
		snprintf(name, sizeof(name), "%s.npy", algorithms[i]);
		ck_assert_int_eq(rename("w.npy", name), 0);
	}
	must_equal("flat.npy", "direct.npy");
	must_equal("flat.npy", "staged.npy");
	void *flat = file_read("flat.npy", &size_bytes), *ring = file_read("ring.npy", &size_bytes);
	ck_assert_int_ne(memcmp(flat, ring, size_bytes), 0); /* So the setting was heeded. */
	free(flat);
	free(ring);
}
END_TEST

START_TEST(a_simulation_repeats_byte_by_byte)
{
	static const char line[] =
		STEPS "--simulate --ranks 7 --model mlp --bucket 4K --compute-time 3ms "
		      "--jitter 0.5 --latency 50us --bandwidth 1Gbit --topology nodes:2 "
		      "--report-every 10 --eval-every 5 --save w.npy --out out";
	static const char *const files[] = { "w.npy", "out/metrics.jsonl", "out/summary.json" };
	static const char *const kept[] = { "a.npy", "a.jsonl", "a.json" };
	size_t size_bytes;
	char *text;

	train(line);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rename(files[i], kept[i]), 0);
	train(line);
	for (int i = 0; i < 3; i++)
		must_equal(files[i], kept[i]);
	/* Virtual: 40 steps of 3 ms, and something for the network. */
	ck_assert_double_gt(number_in("a.json", "seconds", 0), 0.12);
	ck_assert_double_lt(number_in("a.json", "seconds", 0), 0.2);
	text = file_read("a.json", &size_bytes);
	ck_assert_ptr_nonnull(strstr(text, "\"simulated\": true"));
	free(text);
}
END_TEST

START_TEST(sixty_four_ranks_learn)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "--simulate --ranks 64 --model %s --batch 2 --steps 30 --lr 0.1 --momentum 0.9 "
		 "--report-every 10 --out out",
		 models[_i]);
	train(line);
	ck_assert_double_eq(number_in("out/summary.json", "ranks", 0), 64);
	ck_assert_double_lt(number_in("out/metrics.jsonl", "loss", 2),
			    0.7 * number_in("out/metrics.jsonl", "loss", 0));
	ck_assert_double_gt(number_in("out/summary.json", "test_accuracy", 0), 0.9);
}
END_TEST

/* ---- Time ---- */

#define NETWORK                                                                                    \
	"--simulate --model mlp --hidden 1000 --batch 1 --steps 3 --bandwidth 100Mbit --out out "

static double step_seconds(int ranks, const char *bucket, const char *more)
{
	char line[512];

	snprintf(line, sizeof(line), NETWORK "--ranks %d --bucket %s%s", ranks, bucket, more);
	train(line);
	return number_in("out/summary.json", "seconds", 0) / 3.0;
}

/*
 * A step takes at most max(computation, communication) + one bucket, and 5 %. Communication is what
 * a step takes whose computation takes no time; one bucket is its share of that. With a forward
 * pass, during which there is nothing to reduce yet, it is max(computation, forward +
 * communication).
 */
START_TEST(buckets_hide_communication)
{
	static const int ranks[] = { 2, 3, 4 };
	static const double ratios[] = { 0.5, 1.0, 2.0 }, forwards[] = { 0.0, 1.0 / 3.0 };
	int n = ranks[_i];

	if (effort_wanted() == EFFORT_SHORT && n != 3)
		return; /* Builds with sanitizers are slow: one number of ranks, one model. */
	double communication = step_seconds(n, "16K", "");
	double bucket = communication / number_in("out/summary.json", "buckets", 0);
	/* 68003 parameters; a ring sends 2 (n - 1) / n of them. */
	double least = 68003.0 * 4 * 2 * (n - 1) / n / 12.5e6;

	ck_assert_double_ge(communication, least);
	ck_assert_double_le(communication, 1.1 * least);
	for (int r = 0; r < 3; r++)
		for (int f = 0; f < 2; f++) {
			double compute = ratios[r] * communication;
			double begin = forwards[f] * compute;
			double bound =
				bucket +
				(compute > begin + communication ? compute : begin + communication);
			char more[96];

			snprintf(more, sizeof(more), " --compute-time %.3fus --forward %.9f",
				 compute * 1e6, forwards[f]);
			double whole = step_seconds(n, "0", more);
			double step = step_seconds(n, "16K", more);
			ck_assert_msg(step <= 1.05 * bound,
				      "%d ranks, ratio %g, forward %g: %g s, bound %g s", n,
				      ratios[r], forwards[f], step, bound);
			ck_assert_double_ge(step, compute);
			ck_assert_double_ge(step, communication);
			/* One bucket hides nothing. */
			ck_assert_double_ge(whole, 0.99 * (compute + communication));
		}
}
END_TEST

START_TEST(without_compute_time_only_the_network_takes_time)
{
	train("--simulate --ranks 1 --model logistic --steps 2 --report-every 1 --out out");
	ck_assert_double_eq(number_in("out/summary.json", "seconds", 0), 0.0);
	ck_assert_double_eq(number_in("out/summary.json", "idle_fraction", 0), 0.0);
	train("--simulate --ranks 2 --model logistic --steps 2 --latency 1ms --out out");
	ck_assert_double_gt(number_in("out/summary.json", "seconds", 0), 2e-3);
	ck_assert_double_eq(number_in("out/summary.json", "idle_fraction", 0), 1.0);
}
END_TEST

/* ---- Failure ---- */

static const struct {
	const char *line;
	int status;
	const char *word;
} bad[] = {
	{ "--simulate --ranks 5 --data npy:none", 1, "No such file" },
	{ "--simulate --ranks 5 --batch 2 --init none.npy", 1, "No such file" },
	{ "--simulate --ranks 5 --batch 99", 2, "--batch" },
	{ "--simulate --ranks 5 --batch 2 --out none/out", 1, "No such file" },
	{ "--simulate --ranks 5 --batch 2 --hidden 100000 --bucket 1K", 2, "--bucket" },
	{ "--simulate --ranks 5 --model logistic --batch 2 --lr 100 --weight-decay 1000 --steps 90",
	  1, "diverged" },
};
#define BAD_COUNT ((int)(sizeof(bad) / sizeof(bad[0])))

START_TEST(failures_are_said_once)
{
	struct outcome got;

	run_line(bad[_i].line, &got);
	ck_assert_msg(got.status == bad[_i].status, "'%s': status %d, '%s'", bad[_i].line,
		      got.status, got.err);
	ck_assert_msg(line_count(got.err) == 1 && strstr(got.err, bad[_i].word) != NULL,
		      "'%s': '%s'", bad[_i].line, got.err);
	ck_assert_str_eq(got.out, "");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("simulate");

	if (argc != 2)
		return EXIT_FAILURE;
	program = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_loop_test(tests, simulated_and_real_ranks_agree_bit_by_bit, 0, 3);
	tcase_add_loop_test(tests, buckets_do_not_change_bits, 0, UNCUT_COUNT);
	tcase_add_test(tests, sums_in_rank_order_agree);
	if (!effort_is_threads_only()) {
		tcase_add_test(tests, a_simulation_repeats_byte_by_byte);
		tcase_add_loop_test(tests, sixty_four_ranks_learn, 0, 3);
		tcase_add_loop_test(tests, buckets_hide_communication, 0, 3);
		tcase_add_test(tests, without_compute_time_only_the_network_takes_time);
	}
	tcase_add_loop_test(tests, failures_are_said_once, 0, BAD_COUNT);
	return check_main("simulate", tests);
}
