/*
 * test_simulate.c -- --simulate by the program (argument 1): the parameters of real ranks bit for
 * bit, a run that repeats byte for byte, 64 ranks that learn, failures in one line, and the time
 * that buckets save, exactly.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/support.h"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

#define STEPS "--batch 4 --steps 40 --momentum 0.9 --weight-decay 1e-3 --seed 4 "

static const char *const models[] = { "logistic", "mlp", "cnn" };

START_TEST(simulated_and_real_ranks_agree_bit_by_bit)
{
	static const char *const algorithms[] = { "flat", "recursive_doubling", "ring" };
	static const char *const buckets[] = { "0", "4K" };
	char line[512], setting[64];

	snprintf(setting, sizeof(setting), "allreduce=%s", algorithms[_i]);
	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", setting, 1), 0);
	for (int m = test_length() == TEST_SHORT ? 2 : 0; m < 3; m++)
		for (int b = 0; b < 2; b++) {
			snprintf(line, sizeof(line),
				 STEPS "--ranks 3 --model %s --bucket %s --save real.npy",
				 models[m], buckets[b]);
			line_succeed(train, line);
			snprintf(line, sizeof(line),
				 STEPS "--ranks 3 --model %s --bucket %s --save sim.npy "
				       "--simulate",
				 models[m], buckets[b]);
			line_succeed(train, line);
			files_compare("real.npy", "sim.npy");
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
		snprintf(line, sizeof(line),
			 STEPS "%s--model mlp --bucket %s --save %s --out out --no-report",
			 uncut[_i].extra, sizes[s], name);
		line_succeed(train, line);
		/* 4355 parameters: what was asked for was done. */
		ck_assert_double_eq(summary_number("buckets"), s == 0   ? 1
							       : s == 1 ? 18
							       : s == 2 ? 4
									: 2);
		files_compare("0.npy", name);
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
		line_succeed(train, STEPS "--ranks 5 --model mlp --save w.npy");
		snprintf(name, sizeof(name), "%s.npy", algorithms[i]);
		ck_assert_int_eq(rename("w.npy", name), 0);
	}
	files_compare("flat.npy", "direct.npy");
	files_compare("flat.npy", "staged.npy");
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

	line_succeed(train, line);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rename(files[i], kept[i]), 0);
	line_succeed(train, line);
	for (int i = 0; i < 3; i++)
		files_compare(files[i], kept[i]);
	/* Virtual: 40 steps of 3 ms, and something for the network. */
	ck_assert_double_gt(number_first("a.json", "seconds"), 0.12);
	ck_assert_double_lt(number_first("a.json", "seconds"), 0.2);
	ck_assert(file_holds("a.json", "\"simulated\": true"));
}
END_TEST

START_TEST(sixty_four_ranks_learn)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "--simulate --ranks 64 --model %s --batch 2 --steps 30 --lr 0.1 --momentum 0.9 "
		 "--report-every 10 --out out",
		 models[_i]);
	line_succeed(train, line);
	ck_assert_double_eq(summary_number("ranks"), 64);
	ck_assert_double_lt(number_last("out/metrics.jsonl", "loss"),
			    0.7 * number_first("out/metrics.jsonl", "loss"));
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
}
END_TEST

/* ---- Time ---- */

#define NETWORK                                                                                    \
	"--simulate --model mlp --hidden 1000 --batch 1 --steps 3 --bandwidth 100Mbit --out out "

static double step_seconds(int ranks, const char *bucket, const char *more)
{
	char line[512];

	snprintf(line, sizeof(line), NETWORK "--ranks %d --bucket %s%s", ranks, bucket, more);
	line_succeed(train, line);
	return summary_number("seconds") / 3.0;
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

	if (test_length() == TEST_SHORT && n != 3)
		return; /* Builds with sanitizers are slow: one number of ranks, one model. */
	double communication = step_seconds(n, "16K", "");
	double bucket = communication / summary_number("buckets");
	/* 68003 parameters; a ring sends 2 (n - 1) / n of them. */
	double least = 68003.0 * 4 * 2 * (n - 1) / n / 12.5e6;

	ck_assert_double_ge(communication, least);
	ck_assert_double_le(communication, 1.1 * least);
	for (int r = test_length() == TEST_SHORT ? 2 : 0; r < 3; r++)
		for (int f = 0; f < 2; f++) {
			double compute = ratios[r] * communication;
			double begin = forwards[f] * compute;
			double bound =
				bucket +
				(compute > begin + communication ? compute : begin + communication);
			char more[96];

			snprintf(more, sizeof(more), " --compute-time %.3fus", compute * 1e6);
			double whole = step_seconds(n, "0", more);
			snprintf(more, sizeof(more), " --compute-time %.3fus --forward %.9f",
				 compute * 1e6, forwards[f]);
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
	line_succeed(train,
		     "--simulate --ranks 1 --model logistic --steps 2 --report-every 1 --out out");
	ck_assert_double_eq(summary_number("seconds"), 0.0);
	ck_assert_double_eq(summary_number("idle_fraction"), 0.0);
	line_succeed(train,
		     "--simulate --ranks 2 --model logistic --steps 2 --latency 1ms --out out");
	ck_assert_double_gt(summary_number("seconds"), 2e-3);
	ck_assert_double_eq(summary_number("idle_fraction"), 1.0);
}
END_TEST

/* A profile and the same options are the same network, and what it costs is seen. */
START_TEST(the_network_costs_what_a_profile_says)
{
	static const char run[] = "--simulate --ranks 4 --model logistic --steps 2 --out out ";
	static const char *const given[] = {
		"",
		"--topology nodes:2 --send 1ms --node-send 0.5ms --core-bandwidth 1GB/s",
		"--topology nodes:2 --profile a.profile",
	};
	FILE *profile = fopen("a.profile", "we");
	double seconds[3];
	char line[512];

	ck_assert_ptr_nonnull(profile);
	fprintf(profile, "send 1ms\nnode-send 0.5ms # half\ncore-bandwidth 1GB/s\nwork 0us\n");
	ck_assert_int_eq(fclose(profile), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(line, sizeof(line), "%s%s", run, given[i]);
		line_succeed(train, line);
		seconds[i] = summary_number("seconds");
	}
	ck_assert_double_gt(seconds[1], seconds[0] + 2e-3);
	ck_assert_double_eq(seconds[2], seconds[1]);
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
	line_fail(train, bad[_i].line, bad[_i].status, bad[_i].word);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("simulate");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_loop_test(tests, simulated_and_real_ranks_agree_bit_by_bit, 0, 3);
	tcase_add_loop_test(tests, buckets_do_not_change_bits, 0, UNCUT_COUNT);
	tcase_add_test(tests, sums_in_rank_order_agree);
	if (!test_is_threads_only()) {
		tcase_add_test(tests, a_simulation_repeats_byte_by_byte);
		tcase_add_loop_test(tests, sixty_four_ranks_learn, 0, 3);
		tcase_add_loop_test(tests, buckets_hide_communication, 0, 3);
		tcase_add_test(tests, without_compute_time_only_the_network_takes_time);
		tcase_add_test(tests, the_network_costs_what_a_profile_says);
	}
	tcase_add_loop_test(tests, failures_are_said_once, 0, BAD_COUNT);
	return check_main("simulate", tests);
}
