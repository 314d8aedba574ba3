/* test_options.c -- tables of options: what a command line does to a struct, what is refused, and
 * what JSON says of it. */
#include "programs/options.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/check_main.h"

enum { LOOP_TIMED, LOOP_CLOSED };

struct inner {
	uint64_t window_ns, bytes;
	double rate;
};

struct all {
	bool flag, other_flag;
	char text[8];
	const char *string;
	uint32_t small, loop;
	uint64_t large, share[2];
	struct inner inner;
	double bandwidth;
	uint32_t guard;
};

static bool pair_read(const char *option, const char *text, void *to, struct option_error *error)
{
	unsigned long long a, b;
	uint64_t *share = to;

	if (sscanf(text, "%llu/%llu", &a, &b) != 2)
		return option_refuse(error, "%s takes A/B, not '%s'", option, text);
	share[0] = a;
	share[1] = b;
	return true;
}

static json_t *pair_json(const void *from)
{
	const uint64_t *share = from;

	return json_sprintf("%d/%d", (int)share[0], (int)share[1]);
}

static const char *const loops[] = { "timed[:T]", "closed", NULL };

static const char *const *loop_forms(void)
{
	return loops;
}

#define AT(member) offsetof(struct all, member)

static const struct option rows[] = {
	{ "flag", 'f', OPTION_FLAG, AT(flag), .help = "a flag", .key = "flag" },
	{ "other-flag", 'g', OPTION_FLAG, AT(other_flag), .help = "another" },
	{ "text", 0, OPTION_TEXT, AT(text), "TEXT", .max = 8, .help = "a text", .key = "text" },
	{ "string", 0, OPTION_STRING, AT(string), "TEXT", .help = "a string", .key = "string" },
	{ "small", 'n', OPTION_U32, AT(small), "N", .min = 1, .max = 64, .preset = "3",
	  .word = "none", .word_is = 99, .help = "a small number", .key = "small" },
	{ "loop", 0, OPTION_CHOICE, AT(loop), "KIND", .forms_of = loop_forms, .preset = "closed",
	  .help = "%s", .key = "loop" },
	{ 0 },
};

#define IN(member) offsetof(struct inner, member)

static const struct option inner_rows[] = {
	{ "window", 0, OPTION_TIME, IN(window_ns), "T", .preset = "0", .help = "a time",
	  .key = "window_ns" },
	{ "bytes", 0, OPTION_BYTES, IN(bytes), "SIZE", .min = 1, .help = "a size", .key = "bytes" },
	{ "rate", 0, OPTION_REAL, IN(rate), "X", .least = 0, .most = 2, .preset = "0.5",
	  .help = "a real", .key = "rate" },
	{ 0 },
};

static const struct option more_rows[] = {
	{ "large", 0, OPTION_U64, AT(large), "N", .max = UINT64_MAX, .help = "a number",
	  .key = "large" },
	{ "bandwidth", 0, OPTION_BANDWIDTH, AT(bandwidth), "B", .help = "a bandwidth",
	  .key = "bandwidth" },
	{ "share", 0, OPTION_OTHER, AT(share), "A/B", .read = pair_read, .json = pair_json,
	  .size = 2 * sizeof(uint64_t), .help = "two numbers", .key = "share" },
	{ 0 },
};

static struct all got;
static struct option_error error;
static struct option_words words;

static const struct option_table tables[] = { { "First:", rows, &got },
					      { "Second:", inner_rows, &got.inner },
					      { "Third:", more_rows, &got },
					      { 0 } };
static const struct options options = {
	.program = "test", .usage = "", .about = "", .notes = "", .tables = tables
};

/* Scans, and applies all tables. */
static bool parse(const char *line)
{
	char copy[256], *argv[32] = { (char[]) { "test" } }, *rest = copy, *word;
	int argc = 1;

	(void)snprintf(copy, sizeof(copy), "%s", line);
	while ((word = strsep(&rest, " ")) != NULL)
		if (word[0] != '\0')
			argv[argc++] = word;
	error.text[0] = '\0';
	options_free(&words);
	memset(&got, 0, sizeof(got));
	got.guard = 0x5a5a5a5a;
	if (!options_scan(&options, argc, argv, &words, &error))
		return false;
	for (const struct option_table *t = tables; t->rows != NULL; t++)
		if (!options_default(t->rows, t->to, &error) ||
		    !options_apply(&words, t->rows, t->to, &error))
			return false;
	ck_assert_uint_eq(got.guard, 0x5a5a5a5a);
	return true;
}

static void closed(void)
{
	options_free(&words);
}

START_TEST(presets_are_there)
{
	ck_assert_msg(parse(""), "%s", error.text);
	ck_assert_uint_eq(got.small, 3);
	ck_assert_uint_eq(got.loop, LOOP_CLOSED);
	ck_assert_uint_eq(got.inner.window_ns, 0);
	ck_assert_double_eq(got.inner.rate, 0.5);
	ck_assert(!got.flag && got.string == NULL && got.text[0] == '\0');
	ck_assert(!options_given(&words, "small"));
	ck_assert_ptr_null(options_text(&words, "small"));
}
END_TEST

START_TEST(all_kinds_are_read)
{
	ck_assert_msg(parse("-fg --text=abcdefg --string  xyz -n 64 --loop timed:7 --window 2us "
			    "--bytes=4K --rate 2 --large 18446744073709551615 --bandwidth 8Gbit "
			    "--share 3/4"),
		      "%s", error.text);
	ck_assert(got.flag && got.other_flag);
	ck_assert_str_eq(got.text, "abcdefg");
	ck_assert_str_eq(got.string, "xyz");
	ck_assert_uint_eq(got.small, 64);
	ck_assert_uint_eq(got.loop, LOOP_TIMED);
	ck_assert_uint_eq(got.inner.window_ns, 2000);
	ck_assert_uint_eq(got.inner.bytes, 4096);
	ck_assert_double_eq(got.inner.rate, 2);
	ck_assert_uint_eq(got.large, UINT64_MAX);
	ck_assert_double_eq(got.bandwidth, 1e9);
	ck_assert_uint_eq(got.share[0], 3);
	ck_assert_uint_eq(got.share[1], 4);
	ck_assert(options_given(&words, "flag") && options_given(&words, "window"));
	ck_assert_ptr_null(options_text(&words, "flag"));
	ck_assert_str_eq(options_text(&words, "window"), "2us");
}
END_TEST

/* A program keeps them until it ends: nothing is left to be freed, which LeakSanitizer knows. */
START_TEST(strings_of_a_program_are_its_own_words)
{
	static char *lines[][4] = { { "options", "--string", "xyz", NULL },
				    { "options", "--string=xyz", "--flag", NULL },
				    { "options", "--string=", "--flag", NULL } };

	for (uint32_t i = 0; i < 3; i++) {
		const char *word = lines[i][i == 0 ? 2 : 1];

		(void)options_read(&options, 3, lines[i]);
		ck_assert_str_eq(got.string, i < 2 ? "xyz" : "");
		ck_assert(got.string >= word && got.string <= word + strlen(word));
	}
}
END_TEST

START_TEST(the_last_counts)
{
	ck_assert(parse("-n 4 --large 1 --small=none --large 2"));
	ck_assert_uint_eq(got.small, 99);
	ck_assert_uint_eq(got.large, 2);
	ck_assert_str_eq(options_text(&words, "small"), "none");
}
END_TEST

static const struct {
	const char *line, *says;
} bad[] = {
	{ "--nonsense", "unknown option --nonsense; --help lists them" },
	{ "-x", "unknown option -x; --help lists them" },
	{ "--small", "--small needs a value" },
	{ "word", "what is 'word'? --help lists the options" },
	{ "-n 65", "-n takes a number from 1 to 64, not '65'" },
	{ "--small 4294967297", "-n takes a number from 1 to 64, not '4294967297'" },
	{ "--text=", "--text takes a text of 1 to 7 bytes, not ''" },
	{ "--text abcdefgh", "--text takes a text of 1 to 7 bytes, not 'abcdefgh'" },
	{ "--loop open", "--loop takes one of timed[:T], closed, not 'open'" },
	{ "--bytes 0", "--bytes takes a size above 0" },
	{ "--rate 2.1", "--rate takes a number from 0 to 2, not '2.1'" },
	{ "--share 3", "--share takes A/B, not '3'" },
	{ "--share 3 --share 3/4", "--share takes A/B, not '3'" },
};

START_TEST(the_rest_is_refused)
{
	ck_assert_msg(!parse(bad[_i].line), "%s", bad[_i].line);
	ck_assert_str_eq(error.text, bad[_i].says);
}
END_TEST

START_TEST(help_ends_the_words)
{
	ck_assert(parse("--help --nonsense"));
	ck_assert(words.help && !words.version);
	ck_assert(parse("--flag --version word"));
	ck_assert(words.version && !words.help);
}
END_TEST

static const char *const operations[] = { "reduce", "gather", NULL };

START_TEST(words_that_are_no_options)
{
	const struct options ops = { .program = "test",
				     .tables = tables,
				     .operations = operations };
	const struct options command = { .program = "test", .tables = tables, .command = true };
	char *line[] = { (char[]) { "test" }, (char[]) { "-f" }, (char[]) { "gather" },
			 (char[]) { "-n" },   (char[]) { "2" },  NULL };

	ck_assert_msg(options_scan(&ops, 5, line, &words, &error), "%s", error.text);
	ck_assert_uint_eq(words.operation, 1);
	ck_assert(options_given(&words, "small"));
	options_free(&words);
	ck_assert(options_scan(&command, 5, line, &words, &error));
	ck_assert_uint_eq(words.operation, 2);
	ck_assert(!options_given(&words, "small"));
	options_free(&words);
	ck_assert(!options_scan(&ops, 2, line, &words, &error));
	ck_assert_str_eq(error.text, "OP is missing, such as reduce; --help lists them");
	line[1] = line[2];
	ck_assert(!options_scan(&ops, 3, line, &words, &error));
	ck_assert_str_eq(error.text, "one OP only: what is 'gather'?");
}
END_TEST

START_TEST(json_says_what_is_there)
{
	static const char expected[] =
		"{\"flag\": true, \"text\": \"abc\", \"string\": null, \"small\": 3, "
		"\"loop\": \"timed\"} {\"window_ns\": 1500, \"bytes\": 0, \"rate\": 0.5} "
		"{\"large\": \"18446744073709551615\", \"bandwidth\": 0.0, \"share\": \"3/4\"} ";
	char text[512] = "";

	ck_assert(parse("-f --text abc --loop timed --window 1.5us --share 3/4 "
			"--large 18446744073709551615"));
	for (const struct option_table *t = tables; t->rows != NULL; t++) {
		json_t *object = options_json(t->rows, t->to);
		char *part = json_dumps(object, JSON_PRESERVE_ORDER);

		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", part);
		free(part);
		json_decref(object);
	}
	ck_assert_str_eq(text, expected);
}
END_TEST

static json_t *members_json(const void *from)
{
	const uint64_t *pair = from;

	return json_pack("{s:I,s:I}", "first", (json_int_t)pair[0], "second", (json_int_t)pair[1]);
}

/* Other rows than those that were scanned, of the same names: other places, other keys. */
START_TEST(rows_apply_by_name)
{
	static const struct option others[] = {
		{ "share", 0, OPTION_OTHER, 0, "A/B", .read = pair_read, .json = members_json,
		  .size = 2 * sizeof(uint64_t), .key = "" },
		{ "small", 0, OPTION_U64, 2 * sizeof(uint64_t), "N", .max = 64, .key = "more" },
		{ 0 },
	};
	uint64_t to[3] = { 0 };
	json_t *object;
	char *text;

	ck_assert(parse("--share 3/4 -n 5 --large 7"));
	ck_assert(options_apply(&words, others, to, &error));
	object = options_json(others, to);
	text = json_dumps(object, JSON_PRESERVE_ORDER);
	ck_assert_str_eq(text, "{\"first\": 3, \"second\": 4, \"more\": 5}");
	free(text);
	json_decref(object);
}
END_TEST

START_TEST(places_have_sizes)
{
	size_t sum = 0;

	for (const struct option_table *t = tables; t->rows != NULL; t++)
		for (const struct option *row = t->rows; row->name != NULL; row++)
			sum += options_size(row);
	ck_assert_uint_eq(sum,
			  2 * sizeof(bool) + 8 + sizeof(char *) + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 16);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("options");

	tcase_add_checked_fixture(tc, NULL, closed);
	tcase_add_test(tc, presets_are_there);
	tcase_add_test(tc, all_kinds_are_read);
	tcase_add_test(tc, strings_of_a_program_are_its_own_words);
	tcase_add_test(tc, the_last_counts);
	tcase_add_loop_test(tc, the_rest_is_refused, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(tc, help_ends_the_words);
	tcase_add_test(tc, words_that_are_no_options);
	tcase_add_test(tc, json_says_what_is_there);
	tcase_add_test(tc, rows_apply_by_name);
	tcase_add_test(tc, places_have_sizes);
	return check_main("options", tc);
}
