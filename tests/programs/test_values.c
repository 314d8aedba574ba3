/* test_values.c -- each kind of value: what reads, as what, and what is said of the rest. */
#include <math.h>
#include <string.h>

#include "programs/values.h"
#include "tests/check_main.h"

static struct option_error error;

static const struct {
	const char *text;
	uint64_t value;
} sizes[] = { { "0", 0 },
	      { "8", 8 },
	      { "64K", 65536 },
	      { "1m", 1048576 },
	      { "2G", UINT64_C(2) << 30 },
	      { "18446744073709551615", UINT64_MAX } },
  times[] = { { "0", 0 },
	      { "0us", 0 },
	      { "250us", 250000 },
	      { "1.5ms", 1500000 },
	      { "30s", UINT64_C(30000000000) } };

START_TEST(good_values_are_read)
{
	uint64_t number = 7;
	uint32_t small = 7;
	double real = 7;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert(value_bytes("-b", sizes[i].text, &number, &error));
		ck_assert_uint_eq(number, sizes[i].value);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		ck_assert(value_time("-t", times[i].text, 0, &number, &error));
		ck_assert_uint_eq(number, times[i].value);
	}
	ck_assert(value_count("-n", "18446744073709551615", 0, UINT64_MAX, &number, &error));
	ck_assert_uint_eq(number, UINT64_MAX);
	ck_assert(value_count32("-n", "64", 1, 64, &small, &error));
	ck_assert_uint_eq(small, 64);
	ck_assert(value_real("--lr", "1e-4", 0, 1, &real, &error));
	ck_assert_double_eq(real, 1e-4);
	ck_assert(value_bandwidth("-w", "10Gbit", &real, &error));
	ck_assert_double_eq(real, 1.25e9);
	ck_assert(value_bandwidth("-w", "12.5GB/s", &real, &error));
	ck_assert_double_eq(real, 12.5e9);
}
END_TEST

/* Of each kind the first is the sentence's beginning, which holds for all. */
static const char *const bad_counts[] = { "-x takes a number from 1 to 64, not '",
					  "",
					  "0",
					  "65",
					  "-1",
					  "+1",
					  " 1",
					  "1 ",
					  "0x4",
					  "1.0",
					  "1K",
					  "18446744073709551617",
					  NULL };
static const char *const bad_reals[] = { "-x takes a number from 0 to 1, not '",
					 "",
					 "-0.1",
					 "1.1",
					 "nan",
					 "inf",
					 "0.5x",
					 " 0.5",
					 "K",
					 NULL };
static const char *const bad_sizes[] = { "-x takes a size such as 8, 64K, 1M or 2G, not '",
					 "",
					 "8Q",
					 "-8",
					 "K",
					 "8KK",
					 "1.5K",
					 "17179869184G",
					 NULL };
static const char *const bad_times[] = { "-x takes a time such as 250us, 1.5ms or 30s, not '",
					 "",
					 "5",
					 "5m",
					 "-1s",
					 "ms",
					 "1 s",
					 "1e30s",
					 NULL };
static const char *const bad_rates[] = {
	"-x takes a bandwidth such as 800Mbit, ", "", "0Gbit", "5", "10gbit", "-1Gbit", NULL
};

static void refused_all(const char *const bad[], int kind)
{
	for (int i = 1; bad[i] != NULL; i++) {
		uint64_t number = 7;
		double real = 7;
		bool taken = kind == 0   ? value_count("-x", bad[i], 1, 64, &number, &error)
			     : kind == 1 ? value_real("-x", bad[i], 0, 1, &real, &error)
			     : kind == 2 ? value_bytes("-x", bad[i], &number, &error)
			     : kind == 3 ? value_time("-x", bad[i], 0, &number, &error)
					 : value_bandwidth("-x", bad[i], &real, &error);

		ck_assert_msg(!taken, "'%s' was taken", bad[i]);
		ck_assert_uint_eq(number, 7);
		ck_assert_double_eq(real, 7);
		ck_assert_msg(strncmp(error.text, bad[0], strlen(bad[0])) == 0, "%s", error.text);
		ck_assert_msg(strstr(error.text, bad[i]) != NULL, "%s", error.text);
	}
}

START_TEST(bad_values_are_refused)
{
	refused_all(bad_counts, 0);
	refused_all(bad_reals, 1);
	refused_all(bad_sizes, 2);
	refused_all(bad_times, 3);
	refused_all(bad_rates, 4);
}
END_TEST

START_TEST(times_have_a_least)
{
	uint64_t ns = 7;

	ck_assert(!value_time("-x", "0s", 1, &ns, &error));
	ck_assert_str_eq(error.text, "-x takes a time above 0");
	ck_assert(!value_time("-x", "0", 1, &ns, &error));
	ck_assert_uint_eq(ns, 7);
}
END_TEST

static const char *const forms[] = { "none", "linear:T", "each[:D]", "line", NULL };

START_TEST(choices_have_forms)
{
	const struct {
		const char *text;
		uint32_t index;
		const char *value;
	} good[] = { { "none", 0, NULL }, { "linear:5ms", 1, "5ms" }, { "linear:", 1, "" },
		     { "each", 2, NULL }, { "each:4", 2, "4" },       { "each::", 2, ":" },
		     { "line", 3, NULL } };
	static const char *const bad[] = { "",      "non",  "nonee", "none:", "linear",
					   "line:", "Each", ":",     "each[" };
	const char *value;
	uint32_t index;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert(value_choice("-x", good[i].text, forms, &index, &value, &error));
		ck_assert_uint_eq(index, good[i].index);
		if (good[i].value == NULL)
			ck_assert_ptr_null(value);
		else
			ck_assert_str_eq(value, good[i].value);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(!value_choice("-x", bad[i], forms, &index, &value, &error), "%s",
			      bad[i]);
		ck_assert_ptr_nonnull(strstr(
			error.text, "-x takes one of none, linear:T, each[:D], line, not '"));
	}
}
END_TEST

START_TEST(sentences_are_one_line)
{
	ck_assert(!option_refuse(&error, "%s", "a\nb\tc\x7f"));
	ck_assert_str_eq(error.text, "a?b?c?");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("values");

	tcase_add_test(tc, good_values_are_read);
	tcase_add_test(tc, bad_values_are_refused);
	tcase_add_test(tc, times_have_a_least);
	tcase_add_test(tc, choices_have_forms);
	tcase_add_test(tc, sentences_are_one_line);
	return check_main("values", tc);
}
