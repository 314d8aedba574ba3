/*
 * test_settings.c -- settings and options that rubato_init takes, and those that it refuses, each
 * with one line that says what it would take.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato.h"
#include "tests/check_main.h"

static void judge(const char *what, const rubato_options *options, const char *refused)
{
	rubato_comm *comm = NULL;
	rubato_status status = rubato_init(&comm, options);
	void *memory = NULL;

	if (refused != NULL) {
		ck_assert_msg(status == RUBATO_ERR_ARGUMENT, "%s: %s", what,
			      rubato_status_name(status));
		ck_assert_msg(strstr(rubato_error_text(), refused) != NULL, "\"%s\" lacks \"%s\"",
			      rubato_error_text(), refused);
		ck_assert_ptr_null(strchr(rubato_error_text(), '\n'));
		return;
	}
	ck_assert_msg(status == RUBATO_OK, "%s: %s", what, rubato_error_text());
	ck_assert_int_eq(rubato_alloc(comm, 1, &memory), RUBATO_OK);
	ck_assert_int_eq(rubato_free(comm, memory), RUBATO_OK);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}

static void try_variable(const char *variable, const char *value, const char *refused)
{
	ck_assert_int_eq(setenv(variable, value, 1), 0);
	judge(value, NULL, refused);
	ck_assert_int_eq(unsetenv(variable), 0);
}

static void try_options(uint64_t heap_bytes, const char *transport, const char *refused)
{
	rubato_options options = RUBATO_OPTIONS_INIT;

	options.heap_bytes = heap_bytes;
	options.transport = transport;
	judge("options", &options, refused);
}

START_TEST(algorithms_are_named_once)
{
	static const char *const refused[][2] = {
		{ "allreduce=ring,", "allreduce=ring,: \"\": expected operation=name" },
		{ ",allreduce=ring", ",allreduce=ring: \"\": expected operation=name" },
		{ "allreduce=ring,,broadcast=flat", "\"\": expected operation=name" },
		{ ",", ",: \"\": expected operation=name" },
		{ "allreduce", "\"allreduce\": expected operation=name" },
		{ "allreduce=ring,broadcast=flat,allreduce=flat", "allreduce is named twice" },
		{ "allreduce=ring,allreduce=ring", "allreduce is named twice" },
		{ "allreduce=auto,allreduce=ring", "allreduce is named twice" },
		{ "allreduce=", "allreduce has no algorithm ''" },
		{ "=ring", "unknown operation ''" },
	};

	try_variable("RUBATO_ALGORITHM", "", NULL);
	try_variable("RUBATO_ALGORITHM", "allreduce=ring", NULL);
	try_variable("RUBATO_ALGORITHM", "allreduce=ring,broadcast=flat", NULL);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		try_variable("RUBATO_ALGORITHM", refused[i][0], refused[i][1]);
}
END_TEST

/* A heap is whole pages, and no larger than shared memory takes: else another transport would. */
START_TEST(a_heap_is_of_some_size)
{
	static const char range[] = "expected a size from 4K to 32T, or 0";
	static const uint64_t refused[] = { 1, 4095, (UINT64_C(1) << 45) + 1, UINT64_MAX };

	try_variable("RUBATO_HEAP", "0", NULL);
	try_variable("RUBATO_HEAP", "4K", NULL);
	try_variable("RUBATO_HEAP", "5000", NULL);
	try_variable("RUBATO_HEAP", "1", range);
	try_variable("RUBATO_HEAP", "4095", range);
	try_variable("RUBATO_HEAP", "33T", range);
	try_options(4096, NULL, NULL);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		try_options(refused[i], NULL, range);
}
END_TEST

START_TEST(transports_are_not_cut_off)
{
	try_options(0, "shm", NULL);
	try_options(0, "shm,ucx,verbs,tcp", "verbs,tcp: 17 characters, expected 15 at most");
	try_options(0, "shm,ucx,", "expected auto, or some of shm, ucx, tcp and verbs");
	try_options(0, "", "expected auto, or some of shm, ucx, tcp and verbs");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings");
	TCase *tc = tcase_create("settings");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, algorithms_are_named_once);
	tcase_add_test(tc, a_heap_is_of_some_size);
	tcase_add_test(tc, transports_are_not_cut_off);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
