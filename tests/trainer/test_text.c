/*
 * test_text.c -- texts as rows of tokens, with hostile files; computation that takes a time per
 * token or what a trace says; and the program (argument 1) with lstm and gpt.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "trainer/data/data.h"
#include "trainer/emulation/compute_time.h"

static const char *train[] = { NULL, "--quiet", NULL };

/* ---- Rows ---- */

static void open_text(struct tr_data *data, const char *text, enum tr_text_rows kind,
		      uint32_t context)
{
	struct tr_error error = { 0 };

	file_write("text", text, strlen(text));
	ck_assert_msg(tr_text_open(data, "text", kind, context, &error) == RUBATO_OK, "%s",
		      error.text);
	ck_assert_int_eq(data->loss, TR_CROSS_ENTROPY);
}

/* The row as its bytes, '.' for 0; and the floats that a batch gets, which are tokens. */
static void expect_row(const struct tr_data *data, const struct tr_part *part, uint64_t row,
		       const char *bytes)
{
	uint32_t width = data->shape.width;
	float x[64];

	ck_assert_uint_le(width, 64);
	ck_assert_uint_eq(strlen(bytes), width);
	ck_assert_uint_lt(row, part->rows);
	tr_data_gather(data, part, NULL, row, 1, x, NULL, NULL);
	for (uint32_t k = 0; k < width; k++) {
		uint8_t want = bytes[k] == '.' ? 0 : (uint8_t)bytes[k];

		ck_assert_uint_eq(part->pixels[row * width + k], want);
		ck_assert_float_eq(x[k], data->pixel[0][want]);
		ck_assert((want == 0) == (x[k] == 0.0f));
	}
}

START_TEST(lines_become_rows)
{
	struct tr_data data;

	open_text(&data, "ab\n\nabcd\nb", TR_TEXT_LINES, 512); /* The last without its end. */
	ck_assert_uint_eq(data.train.rows, 3);
	ck_assert_uint_eq(data.test.rows, 0);
	ck_assert_uint_eq(data.shape.width, 6);  /* Before it, abcd, its end. */
	ck_assert_uint_eq(data.output_count, 6); /* None, newline, a, b, c, d. */
	ck_assert_float_eq(data.pixel[0]['a'], 2.0f);
	ck_assert_float_eq(data.pixel[0]['d'], 5.0f);
	expect_row(&data, &data.train, 0, ".ab...");
	expect_row(&data, &data.train, 1, ".abcd.");
	expect_row(&data, &data.train, 2, ".b....");
	tr_data_close(&data);
}
END_TEST

START_TEST(long_lines_are_cut_off)
{
	struct tr_data data;
	float row[] = { 0, 1, 2, 0, 0 }, full[] = { 0, 1, 2, 3, 4 }, empty[] = { 0, 0 };

	open_text(&data, "abcdef\nabc\nabcd\n", TR_TEXT_LINES, 4);
	ck_assert_uint_eq(data.shape.width, 5);
	expect_row(&data, &data.train, 0, ".abcd");
	expect_row(&data, &data.train, 1, ".abc.");
	expect_row(&data, &data.train, 2, ".abcd");
	tr_data_close(&data);
	ck_assert_uint_eq(tr_row_tokens(row, 4), 3); /* Two bytes and the end. */
	ck_assert_uint_eq(tr_row_tokens(full, 4), 4);
	ck_assert_uint_eq(tr_row_tokens(empty, 1), 1);
}
END_TEST

START_TEST(blocks_follow_each_other)
{
	struct tr_data data;

	open_text(&data, "abc\nefghij", TR_TEXT_BLOCKS, 3);
	ck_assert_uint_eq(data.train.rows, 3); /* The last byte is left out. */
	ck_assert_uint_eq(data.shape.width, 4);
	ck_assert_uint_eq(data.output_count, 11);
	expect_row(&data, &data.train, 0, ".abc");
	expect_row(&data, &data.train, 1, "c\nef");
	expect_row(&data, &data.train, 2, "fghi");
	tr_data_close(&data);
}
END_TEST

START_TEST(every_tenth_row_is_for_the_test)
{
	char text[80];
	struct tr_data data;

	for (int i = 0; i < 25; i++)
		snprintf(text + 3 * (ptrdiff_t)i, 4, "%02d\n", i);
	open_text(&data, text, TR_TEXT_LINES, 8);
	ck_assert_uint_eq(data.train.rows, 23);
	ck_assert_uint_eq(data.test.rows, 2);
	expect_row(&data, &data.test, 0, ".09.");
	expect_row(&data, &data.test, 1, ".19.");
	expect_row(&data, &data.train, 8, ".08.");
	expect_row(&data, &data.train, 9, ".10.");
	expect_row(&data, &data.train, 22, ".24.");
	tr_data_close(&data);
}
END_TEST

START_TEST(a_large_text_is_read_whole)
{
	size_t count = 300000; /* More than one piece of the reader. */
	char *text = malloc(count);
	struct tr_error error = { 0 };
	struct tr_data data;

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < count; i++)
		text[i] = (char)('a' + i / 100 % 7);
	file_write("text", text, count);
	ck_assert_int_eq(tr_text_open(&data, "text", TR_TEXT_BLOCKS, 100, &error), RUBATO_OK);
	ck_assert_uint_eq(data.train.rows + data.test.rows, 3000);
	ck_assert_int_eq(memcmp(data.test.pixels + 299 * 101 + 1, text + 299900, 100), 0);
	tr_data_close(&data);
	free(text);
}
END_TEST

static void expect_refusal(const char *path, const char *word)
{
	struct tr_error error = { 0 };
	struct tr_data data;

	for (int kind = 0; kind < 2; kind++) {
		ck_assert_int_ne(tr_text_open(&data, path, (enum tr_text_rows)kind, 4, &error),
				 RUBATO_OK);
		ck_assert_msg(strstr(error.text, word) != NULL, "'%s' lacks '%s'", error.text,
			      word);
	}
}

START_TEST(hostile_files)
{
	expect_refusal("absent", "No such file");
	expect_refusal(".", "directory");
	file_write("empty", "", 0);
	expect_refusal("empty", "too short");
	file_write("ends", "\n\n", 2);
	expect_refusal("ends", "too short");
	file_write("bytes", "ab\0cd\n", 6);
	expect_refusal("bytes", "byte 2 is 0");
}
END_TEST

/* ---- Time ---- */

#define OPTION "--compute-time"

START_TEST(times)
{
	struct tr_compute_time compute_time = { .kind = TR_COMPUTE_TIME_NONE };
	struct option_error error;

	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 0, 1, 0, 7), 0);
	ck_assert(tr_compute_time_parse(OPTION, "5ms", &compute_time, &error));
	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 1, 3, 2, 7), 5000000);
	ck_assert(tr_compute_time_parse(OPTION, "20us/token", &compute_time, &error));
	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 1, 3, 2, 7), 140000);
	file_write("times", "1ms\n2ms\n3.5us", 13);
	ck_assert(tr_compute_time_parse(OPTION, "trace:times", &compute_time, &error));
	ck_assert_uint_eq(compute_time.trace_count, 3);
	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 1, 2, 0, 7),
			  2000000); /* Line (s P + r) mod 3. */
	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 0, 2, 1, 7), 3500);
	ck_assert_uint_eq(tr_compute_time_span(&compute_time, 1, 2, 1, 7), 1000000);
	tr_compute_time_close(&compute_time);
}
END_TEST

static const struct {
	const char *value, *word;
} bad_times[] = {
	{ "5", "takes a time" },          { "/token", "takes a time" },
	{ "5ms/tokens", "takes a time" }, { "5ms/token/token", "takes a time" },
	{ "trace:", "No such file" },     { "trace:absent", "No such file" },
	{ "trace:bad", "line 2" },        { "trace:long", "line 1" },
	{ "trace:empty", "no times" },
};

START_TEST(bad_times_are_refused)
{
	struct tr_compute_time compute_time = { .kind = TR_COMPUTE_TIME_NONE };
	struct option_error error;
	char line[200];

	memset(line, '1', sizeof(line));
	file_write("bad", "1ms\nfive\n", 9);
	file_write("long", line, sizeof(line));
	file_write("empty", "", 0);
	ck_assert(!tr_compute_time_parse(OPTION, bad_times[_i].value, &compute_time, &error));
	ck_assert_msg(strstr(error.text, bad_times[_i].word) != NULL, "%s", error.text);
	tr_compute_time_close(&compute_time);
}
END_TEST

/* ---- The program ---- */

#define LINES 200
#define PHRASE "in the beginning was a word "

/* Lines of one phrase, cut off somewhere: what comes next can be learnt, but for the end. */
static size_t write_lines(const char *name)
{
	struct rng rng = { 3 };
	char text[LINES * 64];
	size_t count = 0;

	for (int i = 0; i < LINES; i++) {
		size_t length = 1 + rng_below(&rng, 2 * strlen(PHRASE));

		for (size_t k = 0; k < length; k++)
			text[count++] = PHRASE[k % strlen(PHRASE)];
		text[count++] = '\n';
	}
	file_write(name, text, count);
	return count;
}

#define SHORT " --data text:lines --batch 4 --steps 12 --bucket 4K --context 20 "

START_TEST(simulated_and_real_ranks_agree_bit_by_bit)
{
	static const char *const models[] = { "lstm --hidden 16", "gpt --width 16" };
	char line[512];

	write_lines("lines");
	ck_assert_int_eq(setenv("RUBATO_ALGORITHM", "allreduce=recursive_doubling", 1), 0);
	snprintf(line, sizeof(line), "--ranks 3 --model %s" SHORT "--save real.npy", models[_i]);
	line_succeed(train, line);
	for (int turn = 0; turn < 2; turn++) {
		snprintf(line, sizeof(line),
			 "--ranks 3 --simulate --compute-time 5us/token --model %s" SHORT
			 "--save sim.npy --out %s",
			 models[_i], turn == 0 ? "one" : "two");
		line_succeed(train, line);
		files_compare("real.npy", "sim.npy");
	}
	files_compare("one/metrics.jsonl", "two/metrics.jsonl");
	files_compare("one/summary.json", "two/summary.json");
}
END_TEST

START_TEST(both_models_learn)
{
	static const struct {
		const char *line;
		double perplexity;
	} runs[] = {
		{ "--model lstm --hidden 32 --steps 150", 1.6 },
		{ "--model gpt --context 24 --steps 150", 1.6 },
	};
	char line[512];
	double loss, test_loss;

	write_lines("lines");
	snprintf(line, sizeof(line),
		 "--ranks 1 --data text:lines --batch 16 --optimizer adam --lr 0.01 --out out %s",
		 runs[_i].line);
	line_succeed(train, line);
	loss = summary_number("final_loss");
	test_loss = summary_number("test_loss");
	ck_assert_double_eq_tol(summary_number("perplexity"), exp(loss), 1e-6 * exp(loss));
	ck_assert_double_eq_tol(summary_number("test_perplexity"), exp(test_loss),
				1e-6 * exp(test_loss));
	ck_assert_double_lt(exp(test_loss), runs[_i].perplexity);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.8);
}
END_TEST

/* One epoch of all training lines, each read once: bytes and ends, whatever the batches were. */
START_TEST(time_per_token_is_exact)
{
	double seconds, tokens;
	size_t bytes = write_lines("lines");

	line_succeed(train, "--ranks 1 --simulate --data text:lines --model lstm --hidden 4 "
			    "--batch 9 --epochs 1 --compute-time 10us/token --out out");
	tokens = summary_number("tokens");
	seconds = summary_number("seconds");
	ck_assert_double_eq_tol(seconds, 10e-6 * tokens, 1e-8 * seconds);
	ck_assert_double_lt(tokens, (double)bytes); /* Every tenth line is missing. */
	ck_assert_double_gt(tokens, 0.8 * (double)bytes);
	file_write("times", "1ms\n2ms\n", 8);
	line_succeed(train, "--ranks 1 --simulate --data text:lines --model gpt --context 8 "
			    "--width 8 --steps 5 --batch 2 --compute-time trace:times --out out");
	ck_assert_double_eq_tol(summary_number("seconds"), 7e-3, 1e-9); /* 1, 2, 1, 2, 1 */
	ck_assert_double_eq(summary_number("tokens"), 5 * 2 * 8);
}
END_TEST

static const struct {
	const char *line, *word;
	int status;
} bad[] = {
	{ "--model lstm", "text:FILE", 2 },
	{ "--model gpt --data fashion-mnist", "text:FILE", 2 },
	{ "--model mlp --data text:lines", "lstm and gpt", 2 },
	{ "--model lstm --data text", "file", 2 },
	{ "--model lstm --data text:", "file", 2 },
	{ "--model lstm --data text:absent --ranks 1", "No such file", 1 },
	{ "--model lstm --data text:lines --heads 2", "--heads", 2 },
	{ "--model mlp --context 64", "--context", 2 },
	{ "--model gpt --data text:lines --width 10 --heads 4 --ranks 1", "heads", 2 },
	{ "--model gpt --data text:lines --layers 13", "--layers", 2 },
	{ "--model gpt --data text:lines --context 0", "--context", 2 },
	{ "--model gpt --data text:lines --context 60000 --ranks 1", "too short", 1 },
	{ "--model mlp --compute-time 5us/token", "no tokens", 2 },
	{ "--model lstm --data text:lines --batch 1000 --ranks 1", "--batch", 2 },
};
#define BAD_COUNT ((int)(sizeof(bad) / sizeof(bad[0])))

START_TEST(mistakes_are_one_line)
{
	write_lines("lines");
	line_fail(train, bad[_i].line, bad[_i].status, bad[_i].word);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("text");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, folder_enter, folder_leave);
	tcase_add_test(tests, lines_become_rows);
	tcase_add_test(tests, long_lines_are_cut_off);
	tcase_add_test(tests, blocks_follow_each_other);
	tcase_add_test(tests, every_tenth_row_is_for_the_test);
	tcase_add_test(tests, a_large_text_is_read_whole);
	tcase_add_test(tests, hostile_files);
	tcase_add_test(tests, times);
	tcase_add_loop_test(tests, bad_times_are_refused, 0,
			    (int)(sizeof(bad_times) / sizeof(bad_times[0])));
	tcase_add_loop_test(tests, simulated_and_real_ranks_agree_bit_by_bit, 0, 2);
	tcase_add_loop_test(tests, both_models_learn, 0, 2);
	tcase_add_test(tests, time_per_token_is_exact);
	tcase_add_loop_test(tests, mistakes_are_one_line, 0, BAD_COUNT);
	return check_main("text", tests);
}
