/* test_policy.c -- policies as texts: every form reads as its policy, and nothing else does. */
#include <stdio.h>
#include <string.h>

#include "rubato.h"
#include "tests/check_main.h"

static const rubato_partial_options before = {
	.policy = RUBATO_POLICY_WAGMA, .quorum = 71, .group = 72, .deadline_ns = 73, .depth = 74
};

_Static_assert(sizeof(rubato_partial_options) == 104,
	       "a field more: does a policy's text say it? Then `before` has it, too");

static const struct {
	const char *text;
	rubato_partial_options options; /* Of which the text says all that is not 0. */
} good[] = {
	{ "solo", { .policy = RUBATO_POLICY_SOLO } },
	{ "majority", { .policy = RUBATO_POLICY_MAJORITY } },
	{ "quorum:3", { .policy = RUBATO_POLICY_QUORUM, .quorum = 3 } },
	{ "quorum:4294967294", { .policy = RUBATO_POLICY_QUORUM, .quorum = UINT32_MAX - 1 } },
	{ "deadline:250us", { .policy = RUBATO_POLICY_DEADLINE, .deadline_ns = 250000 } },
	{ "deadline:18446744073709551615ns",
	  { .policy = RUBATO_POLICY_DEADLINE, .deadline_ns = UINT64_MAX } },
	{ "deadline:1.5s", { .policy = RUBATO_POLICY_DEADLINE, .deadline_ns = 1500000000 } },
	{ "adaptive", { .policy = RUBATO_POLICY_ADAPTIVE } },
	{ "adaptive:2", { .policy = RUBATO_POLICY_ADAPTIVE, .quorum = 2 } },
	{ "wagma:8", { .policy = RUBATO_POLICY_WAGMA, .group = 8 } },
};

START_TEST(forms_are_read)
{
	rubato_partial_options o = before, expected = good[_i].options;

	expected.depth = before.depth; /* No policy says that. */
	ck_assert_int_eq(rubato_policy_parse(good[_i].text, &o), RUBATO_OK);
	ck_assert_int_eq(o.policy, expected.policy);
	ck_assert_uint_eq(o.quorum, expected.quorum);
	ck_assert_uint_eq(o.group, expected.group);
	ck_assert_uint_eq(o.deadline_ns, expected.deadline_ns);
	ck_assert_int_eq(memcmp(&o, &expected, sizeof(o)), 0); /* Nor any other field. */
}
END_TEST

START_TEST(every_policy_has_a_text_here)
{
	bool found = false;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		found = found || good[i].options.policy == (rubato_policy)_i;
	ck_assert_msg(found, "policy %s: add a row to `good`",
		      rubato_policy_name((rubato_policy)_i));
}
END_TEST

START_TEST(texts_are_written_as_they_are_read)
{
	rubato_partial_options o = before, again = before;
	char text[32];

	ck_assert_int_eq(rubato_policy_parse(good[_i].text, &o), RUBATO_OK);
	ck_assert_int_eq(rubato_policy_parse(rubato_policy_format(&o, text, sizeof(text)), &again),
			 RUBATO_OK);
	ck_assert_int_eq(memcmp(&o, &again, sizeof(o)), 0);
	if (strchr(good[_i].text, '.') == NULL) /* 1.5s is written in whole ms. */
		ck_assert_str_eq(text, good[_i].text);
}
END_TEST

static const char *const bad[] = {
	"",
	"sol",
	"solos",
	"solo:",
	"solo:1",
	"Solo",
	"quorum",
	"quorum:",
	"quorum:0",
	"quorum:-1",
	"quorum:2x",
	"quorum: 2",
	"quorum:4294967295",
	"quorum:99999999999999999999",
	"deadline",
	"deadline:",
	"deadline:5",
	"deadline:0",
	"deadline:x",
	"wagma",
	"wagma:0",
	"adaptive:",
	"adaptive:0",
	"adaptive:x",
	"adaptively",
	"unknown",
	":3",
};

START_TEST(nothing_is_written_as_nothing)
{
	rubato_partial_options o = RUBATO_PARTIAL_OPTIONS_INIT;
	char text[4] = "x";

	ck_assert_ptr_null(rubato_policy_format(NULL, NULL, 0));
	ck_assert_ptr_null(rubato_policy_format(&o, NULL, 0));
	ck_assert_str_eq(rubato_policy_format(NULL, text, sizeof(text)), "");
	ck_assert_ptr_null(rubato_algorithm_name(NULL, 0));
}
END_TEST

START_TEST(all_else_is_refused)
{
	rubato_partial_options o = before;

	ck_assert_int_eq(rubato_policy_parse(bad[_i], &o), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(memcmp(&o, &before, sizeof(o)), 0);
	ck_assert_ptr_nonnull(strchr(rubato_error_text(), '\''));
}
END_TEST

START_TEST(names_and_forms_agree)
{
	const char *const *forms = rubato_policy_forms();
	rubato_partial_options o = before;

	for (int i = 0; i < RUBATO_POLICY_COUNT; i++) {
		const char *name = rubato_policy_name((rubato_policy)i);
		size_t length = strlen(name);

		ck_assert_int_eq(strncmp(forms[i], name, length), 0);
		ck_assert(strchr(":[", forms[i][length]) != NULL); /* Or the end. */
		for (int k = 0; k < i; k++)
			ck_assert_str_ne(name, rubato_policy_name((rubato_policy)k));
	}
	ck_assert_ptr_null(forms[RUBATO_POLICY_COUNT]);
	ck_assert_str_eq(rubato_policy_name((rubato_policy)RUBATO_POLICY_COUNT), "unknown");
	ck_assert_int_eq(rubato_policy_parse("sole", &o), RUBATO_ERR_ARGUMENT);
	for (int i = 0; i < RUBATO_POLICY_COUNT; i++)
		ck_assert_ptr_nonnull(strstr(rubato_error_text(), forms[i]));
	ck_assert_int_eq(rubato_policy_parse(NULL, &o), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_policy_parse("solo", NULL), RUBATO_ERR_ARGUMENT);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("policy");

	tcase_add_loop_test(tests, forms_are_read, 0, (int)(sizeof(good) / sizeof(good[0])));
	tcase_add_loop_test(tests, every_policy_has_a_text_here, 0, RUBATO_POLICY_COUNT);
	tcase_add_loop_test(tests, texts_are_written_as_they_are_read, 0,
			    (int)(sizeof(good) / sizeof(good[0])));
	tcase_add_loop_test(tests, all_else_is_refused, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(tests, names_and_forms_agree);
	tcase_add_test(tests, nothing_is_written_as_nothing);
	return check_main("policy", tests);
}
